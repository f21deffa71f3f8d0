// One question and its answer. Handed the question and the server's events; draws the search, the thinking, the answer,
// its sources and what can be done with it.

import { copyButtons } from "./copy.js";
import { counted, element, icon, milliseconds, sentence, tokens } from "./elements.js";
import { Message } from "./message.js";
import { problem } from "./problem.js";
import { refusedLater } from "./server.js";
import { Sources } from "./sources.js";
import { Steps } from "./steps.js";
import { reasonInWords } from "./words.js";

export class Turn {
  #sources = new Sources();
  #messages = new Map(); // id of the item → Message
  #began = performance.now();
  #status = element("p", { class: "status" }, icon("dot"), "");
  #thoughts = element("div", { class: "thoughts" });
  #thinking = element("details", { class: "thinking", hidden: true }, element("summary", {}, "Reasoning"), this.#thoughts);
  #answer = element("div", { class: "answer" });
  #end = element("footer", {});
  #response = null;
  #searched = false;
  steps = new Steps((text) => this.#say(text));
  state = "running"; // done | stopped | failed
  requestId = "";
  header = ""; // what the server said about search

  constructor(question, announce) {
    this.question = question;
    this.announce = announce;
    this.view = element(
      "article",
      { class: "turn", "aria-label": question.slice(0, 80), "aria-busy": "true" },
      element("h2", {}, question),
      this.steps.view,
      this.#thinking,
      this.#answer,
      this.#status,
      this.#end,
    );
    this.#say("Sending");
  }

  get responseId() {
    return this.#response?.id ?? "";
  }

  get text() {
    return [...this.#messages.values()].map((message) => message.text).join("\n\n");
  }

  get messages() {
    return [...this.#messages.values()];
  }

  get sources() {
    return this.#sources;
  }

  take(event) {
    const kind = event.type;
    if (kind === "groundwire.step") this.steps.take(event.step);
    else if (kind === "response.output_text.delta") this.#message(event.item_id).write(event.delta);
    else if (kind === "response.refusal.delta") this.#message(event.item_id).write(event.delta);
    else if (kind === "response.output_text.annotation.added") this.#message(event.item_id).cite(event.annotation);
    else if (kind === "response.reasoning_summary_text.delta") this.#think(event.delta);
    else if (kind === "response.output_item.done") this.#itemDone(event.item);
    else if (kind === "error") throw refusedLater(event.error ?? event, this.requestId, this.steps.failedWith);
    else if (event.response) this.#response = event.response;
  }

  #message(id) {
    let message = this.#messages.get(id);
    if (!message) {
      message = new Message(this.#sources);
      this.#messages.set(id, message);
      this.#answer.append(message.view);
      this.#say("");
    }
    return message;
  }

  #think(text) {
    this.#thinking.hidden = false;
    this.#thoughts.append(text);
    this.#say("Thinking");
  }

  #itemDone(item) {
    if (item.type === "web_search_call") {
      this.#searched = true;
      this.#sources.find(item.results);
    }
    if (item.type === "message") this.#messages.get(item.id)?.end();
  }

  #say(text) {
    this.#status.hidden = !text;
    this.#status.lastChild.data = text;
    if (text) this.announce(text);
  }

  // The ends

  finish(again) {
    const cut = this.#response?.status === "incomplete";
    this.#close("done");
    if (cut) this.#note("The answer was cut short: the model may write no more at once.");
    if (!this.text) this.#note("The model said nothing. Ask again, or in other words.");
    if (!this.#searched) this.#sayWhyNot();
    this.#end.append(this.#sources.list(), this.#about(), copyButtons(this, again));
    const cited = this.#sources.cited.length;
    this.announce(`The answer is complete. ${cited ? counted(cited, "source") : "No sources"}.`);
  }

  stop(again) {
    this.#close("stopped");
    this.#note("Stopped.");
    if (this.text) this.#end.append(this.#sources.list(), copyButtons(this, again));
    this.announce("Stopped.");
  }

  fail(refused, again) {
    this.#close("failed");
    this.#end.append(problem(refused, element("button", { type: "button", onclick: again }, "Ask again")));
  }

  #close(state) {
    this.state = state;
    for (const message of this.messages) message.end();
    this.steps.end();
    this.#say("");
    this.view.setAttribute("aria-busy", "false");
  }

  #note(text) {
    this.#end.append(element("p", { class: "note" }, text));
  }

  #sayWhyNot() {
    const { why, search } = this.steps.decided ?? { why: reasonInWords(this.header) };
    const unused = search === "offered" ? " The model answered without it." : "";
    const told = element("p", { class: "note why" }, element("strong", {}, "Why did it not search? "), ...sentence(why + unused));
    if (why) this.#end.append(told);
  }

  #about() {
    const { model, usage } = this.#response ?? {};
    const searches = this.steps.count("web_search");
    const pages = this.steps.count("open_page");
    const parts = [
      model,
      searches ? counted(searches, "search") : "",
      pages ? counted(pages, "page") : "",
      usage?.total_tokens ? `${tokens(usage)} tokens` : "",
      milliseconds(performance.now() - this.#began),
    ];
    const shown = element("p", { class: "about" }, parts.filter(Boolean).join(" · "));
    if (this.requestId) shown.append(" · ", element("a", { href: `#requests/${this.requestId}` }, "What happened"));
    return shown;
  }
}
