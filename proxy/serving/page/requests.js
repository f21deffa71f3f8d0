// The last requests. Handed the list of /v1/groundwire/requests; shows a table, a filter over it, and one request with
// its steps. An address with a request's id in it, such as #requests/req_…, opens that one.

import { element, milliseconds, one, sentence } from "./elements.js";
import { askJson } from "./server.js";
import { showProblem } from "./problem.js";
import { waterfall } from "./waterfall.js";
import { inWords } from "./words.js";

let rows = [];

export function startRequests() {
  one("#requests-filter").addEventListener("input", drawTable);
  one("#requests-refresh").addEventListener("click", () => showRequests(""));
}

export async function showRequests(id) {
  const list = one("#requests-list");
  const detail = one("#request");
  list.hidden = Boolean(id);
  detail.hidden = !id;
  try {
    if (id) await showOne(detail, id);
    else await load();
  } catch (error) {
    showProblem(id ? detail : one("#requests-table"), error);
  }
}

async function load() {
  ({ data: rows } = await askJson("/v1/groundwire/requests?limit=200"));
  drawTable();
}

// The table

const COLUMNS = [
  ["Time", (row) => timeOf(row)],
  ["Key", (row) => row.key || "–"],
  ["Model", (row) => row.model || row.path],
  ["Search", (row) => searchOf(row)],
  ["Rounds", (row) => row.rounds || "", "number"],
  ["Tokens", (row) => tokensOf(row), "number"],
  ["Cost", (row) => row.cost ?? "", "number"],
  ["First token", (row) => milliseconds(row.first_token_ms), "number"],
  ["Time in all", (row) => milliseconds(row.ms), "number"],
  ["Outcome", (row) => outcomeOf(row)],
];

function drawTable() {
  const wanted = one("#requests-filter").value.trim().toLowerCase();
  const shown = rows.filter((row) => !wanted || JSON.stringify(row).toLowerCase().includes(wanted));
  const columns = COLUMNS.filter(([name]) => name !== "Cost" || rows.some((row) => row.cost !== undefined));
  const head = element("tr", {}, ...columns.map(([name, , kind]) => element("th", { scope: "col", class: kind }, name)));
  const table = element("table", { class: "rows" }, element("thead", {}, head), element("tbody", {}, ...shown.map((row) => line(row, columns))));
  one("#requests-table").replaceChildren(shown.length ? table : element("p", { class: "nothing" }, nothing(wanted)));
  one("#requests-count").textContent = wanted ? `${shown.length} of ${rows.length}` : `${rows.length}`;
}

const nothing = (wanted) =>
  wanted ? "No request matches the filter." : "Nobody has asked anything yet. What is asked of this server shows up here.";

function line(row, columns) {
  const cells = columns.map(([name, show, kind], index) => {
    const shown = show(row);
    const content = index ? shown : element("a", { href: `#requests/${row.id}` }, shown);
    return element("td", { class: kind, "data-label": name }, content instanceof Node ? content : String(content));
  });
  return element("tr", { class: row.outcome === "ok" ? null : "failed" }, ...cells);
}

function timeOf(row) {
  const time = new Date(row.time);
  const today = time.toDateString() === new Date().toDateString();
  return today ? time.toLocaleTimeString() : time.toLocaleString();
}

function searchOf({ search, searches = [], pages = [] }) {
  const failed = searches.filter(({ outcome }) => outcome !== "ok").length;
  const found = [...new Set(searches.filter(({ outcome }) => outcome === "ok").map(({ provider }) => provider))];
  if (!searches.length) return search === "off" ? "off" : search ? "not used" : "–";
  const text = `${searches.length - failed}× ${found.join(", ") || "none"}${pages.length ? ` + ${pages.length} read` : ""}`;
  return element("span", {}, text, failed ? element("span", { class: "tag bad" }, `${failed} failed`) : "");
}

const tokensOf = ({ input_tokens: given, output_tokens: made }) => (given || made ? `${given ?? 0} + ${made ?? 0}` : "");

const outcomeOf = ({ outcome, status }) =>
  element("span", { class: `tag ${outcome === "ok" ? "good" : "bad"}` }, outcome === "ok" ? "ok" : `${status || ""} ${inWords(outcome)}`);

// One request

async function showOne(detail, id) {
  detail.replaceChildren(element("p", { class: "nothing" }, "Loading"));
  const row = await askJson(`/v1/groundwire/requests/${encodeURIComponent(id)}`);
  const why = row.why || (row.search ? "" : "This request asks no model, so there was nothing to decide.");
  detail.replaceChildren(
    element("a", { href: "#requests", class: "back" }, "All requests"),
    element("h2", {}, row.model || `${row.method} ${row.path}`, " ", outcomeOf(row)),
    element("p", { class: "about" }, `${new Date(row.time).toLocaleString()} · ${row.id}`),
    facts(row),
    why ? element("section", { class: "reason" }, element("h3", {}, questionOf(row)), element("p", {}, ...sentence(why))) : "",
    element("h3", {}, "What happened, and when"),
    waterfall(row.steps ?? [], row.ms),
  );
  detail.querySelector("a").focus({ preventScroll: true });
}

function questionOf({ search, searches = [] }) {
  if (searches.length) return "Why did it search?";
  return search === "off" || !searches.length ? "Why did it not search?" : "";
}

function facts(row) {
  const shown = [
    ["Key", row.key],
    ["API", `${row.dialect}, ${row.method} ${row.path}`],
    ["Upstream", row.upstream],
    ["Decision", row.search ? `${row.search} (${inWords(row.reason)})` : ""],
    ["Rounds", row.rounds],
    ["Searches", searchOf(row)],
    ["Citations", row.citations],
    ["Tokens", tokensOf(row)],
    ["Cost", row.cost],
    ["Retries", row.retries],
    ["Waited", row.queued_ms ? milliseconds(row.queued_ms) : ""],
    ["First token", milliseconds(row.first_token_ms)],
    ["Time in all", milliseconds(row.ms)],
  ];
  const given = shown.filter(([, value]) => value !== undefined && value !== null && value !== "" && value !== 0);
  return element("dl", {}, ...given.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value instanceof Node ? value : String(value)))));
}
