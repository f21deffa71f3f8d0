// The last requests. Handed the list of /v1/groundwire/requests; shows a table, a filter over it, and one request with
// its steps. An address with a request's id in it, such as #requests/req_…, opens that one.

import { element, milliseconds, one, sentence, tokens } from "./elements.js";
import { showProblem } from "./problem.js";
import { askJson } from "./server.js";
import { waterfall } from "./waterfall.js";
import { inWords } from "./words.js";

const PATH = "/v1/groundwire/requests";
const COLUMNS = [
  ["Time", (row) => element("a", { href: `#requests/${row.id}` }, timeOf(row))],
  ["Key", ({ key }) => key || "–"],
  ["Model", ({ model, path }) => model || path],
  ["Search", (row) => searchOf(row)],
  ["Rounds", ({ rounds }) => rounds || "", "number"],
  ["Tokens", tokens, "number"],
  ["Cost", ({ cost }) => cost ?? "", "number"],
  ["First token", (row) => milliseconds(row.first_token_ms), "number"],
  ["Time in all", ({ ms }) => milliseconds(ms), "number"],
  ["Outcome", (row) => outcomeOf(row)],
];
const FACTS = [
  ["Key", ({ key }) => key],
  ["Request", ({ method, path }) => `${method} ${path}`],
  ["Upstream", ({ upstream }) => upstream],
  ["Search", ({ search, reason }) => search && `${search} (${inWords(reason)})`],
  ["Searches", ({ searches = [], ...row }) => searches.length && searchOf({ searches, ...row })],
  ["Citations", ({ citations }) => citations],
  ["Rounds", ({ rounds }) => rounds],
  ["Retries", ({ retries }) => retries],
  ["Tokens", tokens],
  ["Cost", ({ cost }) => cost],
  ["Waited", (row) => row.queued_ms && milliseconds(row.queued_ms)],
  ["First token", (row) => milliseconds(row.first_token_ms)],
  ["Time in all", ({ ms }) => milliseconds(ms)],
];
let rows = [];

export function startRequests() {
  one("#requests-filter").addEventListener("input", drawTable);
  one("#requests-refresh").addEventListener("click", () => showRequests(""));
}

export async function showRequests(id) {
  one("#requests-list").hidden = Boolean(id);
  one("#request").hidden = !id;
  try {
    if (id) await showOne(id);
    else {
      ({ data: rows } = await askJson(PATH));
      drawTable();
    }
  } catch (error) {
    showProblem(one(id ? "#request" : "#requests-table"), error);
  }
}

function drawTable() {
  const wanted = one("#requests-filter").value.trim().toLowerCase();
  const shown = rows.filter((row) => JSON.stringify(row).toLowerCase().includes(wanted));
  const columns = COLUMNS.filter(([name]) => name !== "Cost" || rows.some(({ cost }) => cost !== undefined));
  const head = columns.map(([name, , kind]) => element("th", { scope: "col", class: kind }, name));
  const lines = shown.map((row) => element("tr", {}, ...columns.map((column) => cell(row, column))));
  const table = element("table", { class: "rows" }, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
  const none = rows.length ? "No request matches the filter." : "Nobody has asked anything yet.";
  one("#requests-table").replaceChildren(shown.length ? table : element("p", { class: "nothing" }, none));
  one("#requests-count").textContent = wanted ? `${shown.length} of ${rows.length}` : rows.length;
}

const cell = (row, [name, show, kind]) => element("td", { class: kind, "data-label": name }, show(row));

function timeOf({ time }) {
  const began = new Date(time);
  return began.toDateString() === new Date().toDateString() ? began.toLocaleTimeString() : began.toLocaleString();
}

function searchOf({ search, searches = [], pages = [] }) {
  if (!searches.length) return search === "off" ? "off" : search ? "not used" : "–";
  const found = searches.filter(({ outcome }) => outcome === "ok");
  const failed = searches.length - found.length;
  const names = [...new Set(found.map(({ provider }) => provider))].join(", ");
  const read = pages.length ? ` + ${pages.length} read` : "";
  const text = `${found.length}${names && ` × ${names}`}${read} `;
  return element("span", {}, text, failed ? element("span", { class: "tag bad" }, `${failed} failed`) : "");
}

function outcomeOf({ outcome, status }) {
  const good = outcome === "ok";
  return element("span", { class: good ? "tag good" : "tag bad" }, good ? "ok" : `${status || ""} ${inWords(outcome)}`);
}

async function showOne(id) {
  const row = await askJson(`${PATH}/${encodeURIComponent(id)}`);
  const facts = FACTS.map(([name, show]) => [name, show(row)]).filter(([, value]) => value);
  const title = row.searches?.length ? "The search" : "Why did it not search?";
  one("#request").replaceChildren(
    element("a", { href: "#requests", class: "back" }, "All requests"),
    element("h1", {}, row.model || row.path, " ", outcomeOf(row)),
    element("p", { class: "about" }, `${new Date(row.time).toLocaleString()} · ${row.id}`),
    element("dl", {}, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
    row.why ? element("section", { class: "reason" }, element("h2", {}, title), element("p", {}, ...sentence(row.why))) : "",
    element("h2", {}, "What happened, and when"),
    waterfall(row.steps ?? [], row.ms),
  );
}
