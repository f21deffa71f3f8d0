// The search as it happens. Handed the steps that the server tells; draws a line for each search and page.

import { counted, element, hostOf, icon, inOneLine, inWords, milliseconds } from "./elements.js";

export class Steps {
	#rows = [];
	#say;
	view = element("ul", { class: "steps", "aria-label": "What was searched" });
	decided = null;
	failedWith = 0; // the status with which a model failed last

	// `say` is told what goes on, for the line that shows it.
	constructor(say) {
		this.#say = say;
	}

	count(tool) {
		return this.#rows.filter((row) => row.tool === tool).length;
	}

	take(step) {
		const { kind, tool, contents = [{}] } = step;
		if (kind === "decided") this.decided = step;
		else if (kind === "model_asked") this.#say(step.round > 1 ? "Reading what was found" : "Thinking");
		else if (kind === "model_failed") this.#modelFailed(step);
		else if (kind === "tool_started") for (const content of contents) this.#start(tool, asked(content));
		else if (kind === "provider_called") this.#called(step);
		else if (kind === "tool_finished") for (const content of contents) this.#finish(step, asked(content));
	}

	#line(name, text, state, ...more) {
		const view = element("li", { "data-state": state }, icon(name), element("span", { class: "step-name" }, text), ...more);
		this.view.append(view);
		return view;
	}

	#start(tool, wanted) {
		const search = tool === "web_search";
		const about = element("span", {});
		const failures = element("span", { class: "step-failures" });
		const view = this.#line(search ? "search" : "page", wanted.replace(/^https?:\/\//, ""), "running", about, failures);
		this.#rows.push({ tool, wanted, view, about, failures, done: false });
		this.#say(search ? `Searching: ${wanted}` : `Reading ${hostOf(wanted)}`);
	}

	// Lines of the same tool that are under way; of these the one that is meant, if it is named.
	#row(tool, wanted) {
		const open = this.#rows.filter((row) => row.tool === tool && !row.done);
		return open.find((row) => row.wanted === wanted) ?? open[0];
	}

	#called({ tool, asked: wanted, outcome, provider, results, cached, ms }) {
		const row = this.#row(tool, wanted);
		const found = results === undefined ? "" : counted(results, "result");
		const after = outcome === "cooling_down" ? "" : ` after ${milliseconds(ms)}`;
		if (outcome !== "ok") row?.failures.append(element("span", {}, `${provider}: ${inWords(outcome)}${after}`));
		else row?.about.replaceChildren(inOneLine(provider, found, cached ? "from cache" : milliseconds(ms)));
	}

	#finish({ tool, ok }, wanted) {
		const row = this.#row(tool, wanted);
		if (!row) return;
		row.done = true;
		row.view.dataset.state = ok ? "done" : "failed";
	}

	#modelFailed({ upstream, code, status }) {
		this.failedWith = status;
		this.#line("warning", `${upstream} failed: ${inWords(code)} (${status})`, "failed");
	}
}

const asked = ({ query, url }) => query ?? url ?? "";
