// The search as it happens. Handed the steps that the server tells; draws a line for each search and page, with who was
// asked, how long it took and what failed, and remembers what was decided.

import { counted, element, hostOf, icon, milliseconds } from "./elements.js";
import { inWords } from "./words.js";

export class Steps {
  #list = element("ul", { class: "steps", "aria-label": "What was searched" });
  #rows = [];
  #say;
  decided = null;
  failedWith = 0; // the status with which a model failed last

  // `say` is told what goes on, for the line that shows it.
  constructor(say) {
    this.#say = say;
  }

  get view() {
    return this.#list;
  }

  count(tool) {
    return this.#rows.filter((row) => row.tool === tool).length;
  }

  take(step) {
    if (step.kind === "decided") this.decided = step;
    else if (step.kind === "queued" && step.ms >= 50) this.#note("clock", `Waited for a turn: ${milliseconds(step.ms)}`);
    else if (step.kind === "model_asked") this.#say(step.round > 1 ? "Reading what was found" : "Thinking");
    else if (step.kind === "model_failed") this.#modelFailed(step);
    else if (step.kind === "tool_started") for (const content of step.contents ?? [{}]) this.#start(step.tool, content);
    else if (step.kind === "provider_called") this.#called(step);
    else if (step.kind === "tool_finished") for (const content of step.contents ?? [{}]) this.#finish(step, content);
  }

  // What is still under way was broken off.
  end() {
    for (const row of this.#rows.filter((found) => !found.done)) row.view.dataset.state = "stopped";
  }

  #start(tool, content) {
    const asked = content.query ?? content.url ?? "";
    const search = tool === "web_search";
    const text = search ? asked : asked.replace(/^https?:\/\/(www\.)?/, "");
    const about = element("span", { class: "step-about" });
    const failures = element("span", { class: "step-failures" });
    const name = element("span", { class: "step-name" }, element("span", { class: "hidden" }, search ? "Searched: " : "Opened: "), text);
    const view = element("li", { "data-state": "running" }, icon(search ? "search" : "page"), name, about, failures);
    this.#list.append(view);
    this.#rows.push({ tool, asked, view, about, failures, done: false, ms: 0 });
    this.#say(search ? `Searching: ${asked}` : `Reading ${hostOf(asked)}`);
  }

  #row(tool, asked) {
    const fits = (row) => row.tool === tool && !row.done;
    return this.#rows.find((row) => fits(row) && row.asked === asked) ?? this.#rows.find(fits);
  }

  #called(step) {
    const row = this.#row(step.tool, step.asked);
    if (!row) return;
    if (step.outcome === "ok") {
      const found = step.results === undefined ? "" : counted(step.results, "result");
      const about = [step.provider, found, step.cached ? "from cache" : milliseconds(step.ms)];
      row.about.textContent = about.filter(Boolean).join(" · ");
    } else {
      const after = step.ms === undefined ? "" : ` after ${milliseconds(step.ms)}`;
      row.failures.append(element("span", {}, `${step.provider}: ${inWords(step.outcome)}${after}`));
    }
  }

  #finish(step, content) {
    const row = this.#row(step.tool, content.query ?? content.url ?? "");
    if (!row) return;
    row.done = true;
    row.view.dataset.state = step.ok ? "done" : "failed";
    if (!row.about.textContent) row.about.textContent = step.ok ? milliseconds(step.ms) : "found nothing";
  }

  #modelFailed(step) {
    this.failedWith = step.status;
    const status = step.status ? ` (${step.status})` : "";
    this.#note("warning", `${step.upstream} failed: ${inWords(step.code)}${status}`, "failed");
  }

  #note(name, text, state = "done") {
    this.#list.append(element("li", { "data-state": state }, icon(name), element("span", { class: "step-name" }, text)));
  }
}
