// The steps of a request as bars over its time. Handed steps with `at_ms` (when they were told) and `ms` (how long they
// took); hands on a list in the order in which they began.

import { counted, element, inOneLine, inWords, milliseconds, sentence, tokens } from "./elements.js";

// What is shown of a step: its name, whether it failed, and more in small letters.
const SHOWN = {
	queued: ({ shed }) => [shed ? `Turned away: ${inWords(shed)}` : "Waited for a turn", shed],
	received: () => ["Request received"],
	decided: ({ search, why }) => [`Search: ${search === "first" ? "before the model is asked" : search}`, false, why],
	model_asked: ({ upstream, model }) => [`${upstream} is asked`, false, model],
	model_answered: answered("answers"),
	model_left: answered("is stopped"),
	forwarded: answered("answers, passed on as it is"),
	model_failed: ({ upstream, code, status }) => [`${upstream} fails`, true, `${inWords(code)}, status ${status}`],
	retried: ({ upstream, outcome }) => [`${upstream} again: ${inWords(outcome)}`, outcome !== "asked"],
	tool_started: ran,
	provider_called: (step) => [called(step), step.outcome !== "ok", step.asked],
	tool_finished: ran,
	first_content: () => ["First words are sent"],
	cited: ({ n, title, url }) => [`Source ${n} is cited`, false, title ?? url],
};
const ENDS = { tool_started: ["tool_finished"], model_asked: ["model_answered", "model_failed", "model_left", "forwarded"] };

export function waterfall(steps, total) {
	const whole = Math.max(total, ...steps.map(({ at_ms: at }) => at), 1);
	const shown = steps.filter((step, index) => !isEnded(step, steps.slice(index + 1)));
	shown.sort((one, other) => begins(one) - begins(other));
	return element("ol", { class: "waterfall" }, ...shown.map((step) => row(step, whole)));
}

const begins = ({ at_ms: at, ms = 0 }) => Math.max(at - ms, 0);

// What begins and ends is shown once, as long as it took.
const isEnded = ({ kind }, later) => ENDS[kind] && later.some((step) => ENDS[kind].includes(step.kind));

function row(step, whole) {
	const [name, failed, more = ""] = SHOWN[step.kind]?.(step) ?? [inWords(step.kind)];
	const bar = element("span", { class: step.ms ? "bar" : "tick" });
	bar.style.left = `${(begins(step) / whole) * 100}%`;
	if (step.ms) bar.style.width = `${Math.min(100, (step.ms / whole) * 100)}%`;
	return element(
		"li",
		{ "data-kind": step.kind, class: failed ? "failed" : null },
		element("span", { class: "step-text" }, name, element("small", {}, ...sentence(more))),
		element("span", { class: "track", "aria-hidden": true }, bar),
		element("span", { class: "step-time" }, step.ms ? milliseconds(step.ms) : `at ${milliseconds(step.at_ms)}`),
	);
}

function answered(how) {
	return (step) => [`${step.upstream} ${how}`, step.status >= 400, `${tokens(step)} tokens`];
}

function ran({ tool, ok = true, contents = [] }) {
	const asked = contents.map(({ query, url }) => query ?? url);
	return [`${tool === "open_page" ? "Open pages" : "Search"}${ok ? "" : ": failed"}`, !ok, asked.join(", ")];
}

function called({ provider, outcome, results, cached }) {
	if (outcome !== "ok") return `${provider}: ${inWords(outcome)}`;
	return inOneLine(provider, results === undefined ? "" : counted(results, "result"), cached && "from cache");
}
