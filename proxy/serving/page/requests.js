// The last requests. Handed the list of /v1/groundwire/requests; shows a table with a filter, and one with its steps.

import { element, inWords, milliseconds, one, sentence, tokens } from "./elements.js";
import { problem } from "./problem.js";
import { askJson } from "./server.js";
import { waterfall } from "./waterfall.js";

const PATH = "/v1/groundwire/requests";
const TIME = ["Time", (row) => element("a", { href: `#requests/${row.id}` }, timeOf(row.time))];
const OUTCOME = ["Outcome", (row) => outcomeOf(row)];
// What is `right` is a number, what is `more` is not in the table.
const FACTS = [
	["Key", ({ key }) => key],
	["Model", ({ model, path }) => model || path],
	["Request", ({ method, path }) => `${method} ${path}`, "more"],
	["Upstream", ({ upstream }) => upstream, "more"],
	["Offer", ({ search, reason }) => search && `${search} (${inWords(reason)})`, "more"],
	["Search", (row) => searchOf(row)],
	["Citations", ({ citations }) => citations, "more"],
	["Rounds", ({ rounds }) => rounds, "right"],
	["Retries", ({ retries }) => retries, "more"],
	["Tokens", tokens, "right"],
	["Cost", ({ cost }) => cost, "right"],
	["Waited", (row) => row.queued_ms && milliseconds(row.queued_ms), "more"],
	["First token", (row) => milliseconds(row.first_token_ms), "right"],
	["Time in all", ({ ms }) => milliseconds(ms), "right"],
];
let rows = [];

export function startRequests() {
	one("#requests-filter").oninput = drawTable;
	one("#requests-refresh").onclick = () => showRequests("");
}

export async function showRequests(id) {
	one("#requests-list").hidden = Boolean(id);
	one("#request").hidden = !id;
	try {
		if (id) showOne(await askJson(`${PATH}/${encodeURIComponent(id)}`));
		else {
			({ data: rows } = await askJson(PATH));
			drawTable();
		}
	} catch (error) {
		one(id ? "#request" : "#requests-table").replaceChildren(problem(error));
	}
}

function drawTable() {
	const wanted = one("#requests-filter").value.trim().toLowerCase();
	const shown = rows.filter((row) => JSON.stringify(row).toLowerCase().includes(wanted));
	const told = FACTS.filter(([, show, kind]) => kind !== "more" && rows.some(show));
	const columns = [TIME, ...told, OUTCOME];
	const head = columns.map(([name, , kind]) => element("th", { scope: "col", class: kind }, name));
	const lines = shown.map((row) => element("tr", {}, ...columns.map((column) => cell(row, column))));
	const table = [element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines)];
	const none = rows.length ? "No request matches the filter." : "Nobody has asked anything yet.";
	const view = shown.length ? element("table", { class: "rows" }, ...table) : element("p", { class: "nothing" }, none);
	one("#requests-table").replaceChildren(view);
	one("#requests-count").textContent = wanted ? `${shown.length} of ${rows.length}` : rows.length;
}

const cell = (row, [name, show, kind]) => element("td", { class: kind, "data-label": name }, show(row) || "");

function timeOf(iso) {
	const time = new Date(iso);
	return time.toDateString() === new Date().toDateString() ? time.toLocaleTimeString() : time.toLocaleString();
}

function searchOf({ search, searches = [], pages = [] }) {
	if (!searches.length) return search && (search === "off" ? "off" : "not used");
	const found = searches.filter(({ outcome }) => outcome === "ok").map(({ provider }) => provider);
	const failed = searches.length - found.length;
	const names = found.length ? ` × ${[...new Set(found)].join(", ")}` : "";
	const text = `${found.length}${names}${pages.length ? ` + ${pages.length} read` : ""}`;
	return element("span", {}, text, failed ? element("span", { class: "tag bad" }, `${failed} failed`) : "");
}

function outcomeOf({ outcome, status }) {
	const good = outcome === "ok";
	return element("span", { class: good ? "tag good" : "tag bad" }, good ? "ok" : `${status} ${inWords(outcome)}`);
}

function showOne(row) {
	const facts = FACTS.map(([name, show]) => [name, show(row)]).filter(([, value]) => value);
	const title = row.searches?.length ? "The search" : "Why did it not search?";
	const why = [element("h2", {}, title), element("p", {}, ...sentence(row.why ?? ""))];
	one("#request").replaceChildren(
		element("a", { href: "#requests" }, "← All requests"),
		element("h1", {}, row.model || row.path, outcomeOf(row)),
		element("p", { class: "about" }, `${new Date(row.time).toLocaleString()} · ${row.id}`),
		element("dl", {}, ...facts.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value)))),
		row.why ? element("section", { class: "note" }, ...why) : "",
		element("h2", {}, "What happened, and when"),
		waterfall(row.steps, row.ms),
	);
}
