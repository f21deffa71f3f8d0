// How providers, models and the cache are. Handed what /v1/groundwire/health has seen, which asks nobody for it; shows a
// card for each.

import { element, milliseconds, one } from "./elements.js";
import { askJson } from "./server.js";
import { showProblem } from "./problem.js";
import { inWords } from "./words.js";

const STATES = { ok: ["good", "ok"], untried: ["", "not asked yet"], cooling_down: ["bad", "cooling down"], failing: ["bad", "failing"] };

export function startHealth() {
  one("#health-refresh").addEventListener("click", showHealth);
}

export async function showHealth() {
  const place = one("#health-content");
  try {
    const seen = await askJson("/v1/groundwire/health");
    place.replaceChildren(
      section("Search and pages", (seen.providers ?? []).map(provider)),
      section("Models", (seen.upstreams ?? []).map(upstream)),
      section("Cache", Object.entries(seen.cache ?? {}).map(cache)),
      element("p", { class: "about" }, about(seen)),
    );
  } catch (error) {
    showProblem(place, error);
  }
}

const section = (title, cards) =>
  element("section", {}, element("h2", {}, title), cards.length ? element("ul", { class: "cards" }, ...cards) : element("p", { class: "nothing" }, "None."));

function card(name, kind, state, lines) {
  const [tone, words] = STATES[state] ?? ["", inWords(state)];
  const tag = state ? element("span", { class: `tag ${tone}` }, words) : "";
  const shown = lines.filter(Boolean).map((text) => element("p", {}, text));
  return element("li", {}, element("h3", {}, name, " ", element("small", {}, kind)), tag, ...shown);
}

function provider({ name, type, roles = [], state, why, until, calls = 0, failures = 0, last_ms: last, last_outcome: outcome, index }) {
  return card(name, type, state, [
    why && state !== "ok" ? `${why}${until ? ` Until ${time(until)}.` : ""}` : "",
    roles.length ? `Used for ${roles.map((role) => (role === "read" ? "reading pages" : role)).join(" and ")}` : "Not used by any tool",
    calls ? `Asked ${times(calls)}, failed ${times(failures)}` : "",
    outcome ? `Last: ${inWords(outcome)}${last ? ` in ${milliseconds(last)}` : ""}` : "",
    index ? indexed(index) : "",
  ]);
}

function indexed({ documents = 0, pending = 0, skipped = 0, state }) {
  const waiting = pending ? `, ${pending} to be read` : "";
  const left = skipped ? `, ${skipped} left out` : "";
  return `Index ${inWords(state)}: ${documents} documents${waiting}${left}`;
}

function upstream({ name, type, state, why, last_ok: ok, last_failure: failure }) {
  return card(name, type, state, [
    why && state !== "ok" ? why : "",
    ok ? `Last answer ${time(ok)}` : "",
    failure ? `Last failure ${time(failure)}` : "",
  ]);
}

function cache([name, { hits = 0, misses = 0 }]) {
  const asked = hits + misses;
  const rate = asked ? `${Math.round((100 * hits) / asked)} %` : "–";
  return element(
    "li",
    {},
    element("h3", {}, name === "read" ? "Pages" : "Searches"),
    element("p", { class: "figure" }, rate),
    element("p", {}, asked ? `${hits} of ${asked} answered from the cache` : "Nothing was asked yet"),
  );
}

const times = (number) => (number === 1 ? "once" : number ? `${number} times` : "never");

const time = (iso) => new Date(iso).toLocaleTimeString();

function about({ version, store, uptime_seconds: up = 0 }) {
  return [version && `Groundwire ${version}`, store && `store: ${store}`, `up for ${milliseconds(up * 1000)}`].filter(Boolean).join(" · ");
}
