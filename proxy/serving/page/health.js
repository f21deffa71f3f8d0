// How providers, models and the cache are. Handed what /v1/groundwire/health has seen; shows a card for each.

import { counted, element, inOneLine, inWords, milliseconds, one } from "./elements.js";
import { problem } from "./problem.js";
import { askJson } from "./server.js";

const TONES = { ok: "good", cooling_down: "bad", failing: "bad" };
const ROLES = { search: "searching", read: "reading pages" };

export async function showHealth() {
	const place = one("#health-content");
	try {
		const seen = await askJson("/v1/groundwire/health");
		const up = milliseconds(seen.uptime_seconds * 1000);
		place.replaceChildren(
			section("Search and pages", seen.providers.map(provider)),
			section("Models", seen.upstreams.map(upstream)),
			section("Cache", Object.entries(seen.cache).map(cache)),
			element("p", { class: "about" }, inOneLine(`Groundwire ${seen.version}`, `store: ${seen.store}`, `up for ${up}`)),
		);
	} catch (error) {
		place.replaceChildren(problem(error));
	}
}

const section = (title, cards) => element("section", {}, element("h2", {}, title), element("ul", { class: "cards" }, ...cards));

function card(name, kind, state, lines) {
	const tag = element("span", { class: `tag ${TONES[state] ?? ""}` }, inWords(state));
	const shown = lines.filter(Boolean).map((text) => element("p", {}, text));
	return element("li", {}, element("h3", {}, name, " ", element("small", {}, kind)), tag, ...shown);
}

function provider({ name, type, roles, state, why, until, calls, failures, last_outcome: last, last_ms: ms, index }) {
	return card(name, type, state, [
		why && `${why}${until ? ` Until ${time(until)}.` : ""}`,
		roles.length ? `For ${roles.map((role) => ROLES[role] ?? role).join(" and ")}` : "Used by no tool",
		calls && `${counted(calls, "call")}${failures ? `, ${failures} failed` : ""}`,
		last && `Last: ${inWords(last)}${ms ? `, ${milliseconds(ms)}` : ""}`,
		index && indexed(index),
	]);
}

function indexed({ documents, pending, skipped, state }) {
	const known = `Index ${inWords(state)}: ${counted(documents, "document")}`;
	return inOneLine(known, pending && `${pending} to be read`, skipped && `${skipped} left out`);
}

function upstream({ name, type, state, why, last_ok: ok, last_failure: failure }) {
	return card(name, type, state, [why, ok && `Last answer ${time(ok)}`, failure && `Last failure ${time(failure)}`]);
}

function cache([name, { hits, misses }]) {
	const asked = hits + misses;
	return element(
		"li",
		{},
		element("h3", {}, name === "read" ? "Pages" : "Searches"),
		element("p", { class: "figure" }, asked ? `${Math.round((100 * hits) / asked)} %` : "–"),
		element("p", {}, asked ? `${hits} of ${asked} from the cache` : "Nothing was asked yet"),
	);
}

const time = (iso) => new Date(iso).toLocaleTimeString();
