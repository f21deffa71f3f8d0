// The steps of a request as bars over its time. Handed steps with `at_ms` (when they were told) and `ms` (how long they
// took); hands on a list that reads in order, with a bar for whatever took time and a tick for all else.

import { counted, element, hostOf, milliseconds } from "./elements.js";
import { inWords } from "./words.js";

const SHOWN = {
  queued: (step) => [`Waited for a turn${step.shed ? `, and was turned away (${inWords(step.shed)})` : ""}`, step.shed],
  decided: (step) => [`Search: ${step.search}`, false, step.why],
  model_asked: (step) => [`Asked ${step.upstream}, round ${step.round}`, false, step.model],
  model_answered: (step) => [`${step.upstream} answered`, false, tokens(step)],
  forwarded: (step) => [`${step.upstream} answered, passed on as it is`, step.status >= 400, tokens(step)],
  model_failed: (step) => [`${step.upstream} failed: ${inWords(step.code)}`, true, step.status && `Status ${step.status}`],
  retried: (step) => [`Asked ${step.upstream} again`, step.outcome !== "ok", inWords(step.outcome)],
  tool_started: (step) => [`${tool(step)} begins`, false, contents(step)],
  provider_called: (step) => [called(step), step.outcome !== "ok", step.asked],
  tool_finished: (step) => [`${tool(step)} ${step.ok ? "is over" : "failed"}`, !step.ok, contents(step)],
  first_content: () => ["First words sent", false],
  cited: (step) => [`Cited source ${step.n}`, false, step.title ?? (step.url && hostOf(step.url))],
};

export function waterfall(steps, total) {
  const ends = steps.map((step) => step.at_ms ?? 0);
  const whole = Math.max(total ?? 0, ...ends, 1);
  if (!steps.length) return element("p", { class: "nothing" }, "No steps were kept of this request.");
  return element("ol", { class: "waterfall" }, ...steps.map((step) => row(step, whole)));
}

function row(step, whole) {
  const [name, failed, more] = (SHOWN[step.kind] ?? ((other) => [inWords(other.kind), false]))(step);
  const took = step.ms ?? 0;
  const bar = element("span", { class: took ? "bar" : "tick" });
  bar.style.left = `${Math.max(0, ((step.at_ms - took) / whole) * 100)}%`;
  if (took) bar.style.width = `${Math.min(100, (took / whole) * 100)}%`;
  return element(
    "li",
    { "data-kind": step.kind, class: failed ? "failed" : null },
    element("span", { class: "step-text" }, name, more ? element("small", {}, String(more)) : ""),
    element("span", { class: "track", "aria-hidden": true }, bar),
    element("span", { class: "step-time" }, took ? milliseconds(took) : `at ${milliseconds(step.at_ms)}`),
  );
}

const tool = (step) => (step.tool === "open_page" ? "Opening pages" : "Search");

const contents = (step) => (step.contents ?? []).map((content) => content.query ?? content.url).join(", ");

const tokens = (step) => (step.input_tokens || step.output_tokens ? `${step.input_tokens ?? 0} + ${step.output_tokens ?? 0} tokens` : "");

function called(step) {
  if (step.outcome !== "ok") return `${step.provider}: ${inWords(step.outcome)}`;
  const found = step.results === undefined ? "" : `: ${counted(step.results, "result")}`;
  return `${step.provider}${found}${step.cached ? ", from cache" : ""}`;
}
