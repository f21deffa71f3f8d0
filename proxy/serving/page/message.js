// One message of an answer. Handed its text and its citations in the order of the stream; draws them once per frame,
// however many came, so that a fast model costs no more than a slow one.

import { element } from "./elements.js";
import { Markdown } from "./markdown.js";

export class Message {
  #markdown;
  #sources;
  #pending = "";
  #citations = [];
  #frame = 0;
  #wide = []; // places of characters that count once in the API and twice in this language
  #length = 0; // in code points
  text = "";
  marks = []; // { at, number } for who copies it

  constructor(sources) {
    this.view = element("div", { class: "prose" });
    this.#sources = sources;
    this.#markdown = new Markdown(this.view, (url) => sources.isLinked(url));
  }

  write(text) {
    this.#measure(text);
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

  #measure(text) {
    if (/^[\0-\ud7ff\ue000-\uffff]*$/.test(text)) {
      this.#length += text.length;
      return;
    }
    for (const char of text) {
      if (char.length > 1) this.#wide.push(this.#length);
      this.#length += 1;
    }
  }

  #place(index) {
    let low = 0;
    let high = this.#wide.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#wide[middle] < index) low = middle + 1;
      else high = middle;
    }
    return index + low;
  }

  // A tab that nobody sees draws no frames.
  #drawSoon() {
    if (this.#frame) return;
    this.#frame = 1;
    if (document.hidden) setTimeout(() => this.#draw(), 200);
    else requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    const text = this.#pending;
    this.#pending = "";
    if (text) this.#markdown.write(text);
    for (const citation of this.#citations.splice(0)) this.#mark(citation);
  }

  #mark(citation) {
    const chip = this.#sources.chip(citation);
    const at = this.#place(citation.end_index);
    this.marks.push({ at, number: this.#sources.cite(citation).number });
    this.#markdown.cite(at, chip);
  }
}
