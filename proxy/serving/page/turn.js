// One question and its answer. Handed the question and the server's events; draws all that there is to see of them.

import { copyButtons } from "./copy.js";
import { counted, element, icon, inOneLine, milliseconds, sentence, tokens } from "./elements.js";
import { Message } from "./message.js";
import { problem } from "./problem.js";
import { Refused } from "./server.js";
import { Sources } from "./sources.js";
import { Steps } from "./steps.js";

export class Turn {
	#messages = new Map(); // id of the item → Message
	#began = performance.now();
	#status = element("p", { class: "status" }, icon("dot"), " ", element("span"));
	#thoughts = element("div", { class: "thoughts" });
	#thinking = element("details", { class: "thinking", hidden: "" }, element("summary", {}, "Reasoning"), this.#thoughts);
	#answer = element("div", { class: "answer" });
	#end = element("footer");
	#response = {};
	#searched = false;
	sources = new Sources();
	steps = new Steps((text) => this.#say(text));
	state = "running"; // done | stopped | failed
	requestId = "";

	constructor(question, request, announce) {
		Object.assign(this, { question, request, announce });
		const parts = [element("h2", {}, question), this.steps.view, this.#thinking, this.#answer, this.#status, this.#end];
		this.view = element("article", { class: "turn", "aria-busy": true }, ...parts);
		this.#say("Sending");
	}

	get responseId() {
		return this.#response.id;
	}

	get messages() {
		return [...this.#messages.values()];
	}

	get text() {
		return this.messages.map(({ text }) => text).join("\n\n");
	}

	take(event) {
		const { type, item_id: id } = event;
		if (type === "groundwire.step") this.steps.take(event.step);
		else if (/^response\.(output_text|refusal)\.delta$/.test(type)) this.#message(id).write(event.delta);
		else if (type === "response.output_text.annotation.added") this.#message(id).cite(event.annotation);
		else if (type === "response.reasoning_summary_text.delta") this.#think(event.delta);
		else if (type === "response.output_item.done") this.#itemDone(event.item);
		else if (type === "error") this.#broken(event.error);
		else if (event.response) this.#response = event.response;
	}

	#message(id) {
		if (!this.#messages.has(id)) {
			const message = new Message(this.sources);
			this.#messages.set(id, message);
			this.#answer.append(message.view);
			this.#say("");
		}
		return this.#messages.get(id);
	}

	#think(text) {
		this.#thinking.hidden = false;
		this.#thoughts.append(text);
	}

	#itemDone({ type, id, results }) {
		this.#messages.get(id)?.end();
		if (type !== "web_search_call") return;
		this.#searched = true;
		this.sources.find(results);
	}

	#broken({ message, code }) {
		throw new Refused(message, { status: this.steps.failedWith, code, id: this.requestId });
	}

	#say(text) {
		this.#status.hidden = !text;
		this.#status.lastChild.textContent = text;
		if (text) this.announce(text);
	}

	// The ends

	finish(again) {
		this.#close("done");
		if (this.#response.status === "incomplete") this.#note("The answer was cut short: the model may write no more at once.");
		if (!this.text) this.#note("The model said nothing. Ask again, or in other words.");
		if (!this.#searched) this.#sayWhyNot();
		this.#end.append(this.sources.list(), this.#about(), copyButtons(this, again));
		this.announce(`The answer is complete. ${counted(this.sources.cited.length, "source")}.`);
	}

	stop(again) {
		this.#close("stopped");
		this.#note("Stopped.");
		this.announce("Stopped.");
		if (this.text) this.#end.append(this.sources.list(), copyButtons(this, again));
	}

	fail(refused, again) {
		this.#close("failed");
		this.#end.append(problem(refused, element("button", { onclick: again }, "Ask again")));
	}

	#close(state) {
		this.state = state;
		for (const message of this.messages) message.end();
		this.#say("");
		this.view.setAttribute("aria-busy", false);
	}

	#note(...text) {
		this.#end.append(element("p", { class: "note" }, ...text));
	}

	#sayWhyNot() {
		const { search, why } = this.steps.decided ?? {};
		const unused = search === "offered" ? " The model answered without it." : "";
		if (why) this.#note(element("strong", {}, "Why did it not search? "), ...sentence(why + unused));
	}

	#about() {
		const { model, usage = {} } = this.#response;
		const [searches, pages] = ["web_search", "open_page"].map((tool) => this.steps.count(tool));
		const used = tokens(usage ?? {});
		const text = inOneLine(
			model,
			searches && counted(searches, "search"),
			pages && counted(pages, "page"),
			used && `${used} tokens`,
			milliseconds(performance.now() - this.#began),
		);
		const more = element("a", { href: `#requests/${this.requestId}` }, "What happened");
		return element("p", { class: "about" }, text, " · ", more);
	}
}
