// One message of an answer. Handed its text and its citations in the order of the stream; draws them once per frame,
// however many came.

import { element } from "./elements.js";
import { Markdown } from "./markdown.js";

export class Message {
	#markdown;
	#sources;
	#pending = "";
	#citations = [];
	#drawing = false;
	#wide = []; // places of characters that count once in the API and twice in this language
	#length = 0; // in code points
	text = "";
	marks = []; // { at, number }, for who copies it
	view = element("div", { class: "prose" });

	constructor(sources) {
		this.#sources = sources;
		this.#markdown = new Markdown(this.view, (url) => sources.isLinked(url));
	}

	write(text) {
		for (const [char] of text.matchAll(/[\ud800-\udbff]|[^\ud800-\udfff]+/g)) {
			if (char >= "\ud800" && char < "\udc00") this.#wide.push(this.#length);
			this.#length += char.length;
		}
		this.text += text;
		this.#pending += text;
		this.#drawSoon();
	}

	cite(citation) {
		this.#citations.push(citation);
		this.#drawSoon();
	}

	end() {
		this.#draw();
		this.#markdown.end();
	}

	// A tab that nobody sees draws no frames.
	#drawSoon() {
		if (this.#drawing) return;
		this.#drawing = true;
		if (document.hidden) setTimeout(() => this.#draw(), 200);
		else requestAnimationFrame(() => this.#draw());
	}

	#draw() {
		this.#drawing = false;
		if (this.#pending) this.#markdown.write(this.#pending);
		this.#pending = "";
		for (const citation of this.#citations.splice(0)) {
			const { number } = this.#sources.cite(citation);
			const at = this.#place(citation.end_index);
			this.marks.push({ at, number });
			this.#markdown.cite(at, this.#sources.chip(citation));
		}
	}

	#place(index) {
		return index + 1 + this.#wide.findLastIndex((wide) => wide < index);
	}
}
