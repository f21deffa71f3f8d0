// A stretch of text: a paragraph, a heading, a cell of a table. Handed more of it with its place in the answer, and
// chips by theirs; draws itself, and nothing else, when it has changed.

import { element } from "./elements.js";
import { inline, isPlain } from "./inline.js";

const LONG = 4000; // characters that are drawn anew with each change, at the most about twice as many

export class Leaf {
	#block; // the paragraph
	#holder; // what of it is drawn here
	#linked;
	#text = "";
	#parts = []; // { at: in the answer, from: in the text, size }
	#marks = [];
	#open = true;
	#changed = false;
	#tail = null;

	constructor(holder, at, linked, block = holder) {
		this.#holder = holder;
		this.#block = block;
		this.at = at;
		this.#linked = linked;
	}

	add(text, at) {
		if (!text) return;
		const last = this.#parts.at(-1);
		if (last && last.at + last.size === at) last.size += text.length;
		else this.#parts.push({ at, from: this.#text.length, size: text.length });
		const simple = !this.#changed && this.#tail && isPlain(text) && isPlain(this.#text.slice(-1));
		this.#text += text;
		if (simple) this.#tail.appendData(text);
		else this.#changed = true;
	}

	// The line that was begun last, as a table wants to know it.
	get lastLine() {
		const from = this.#text.lastIndexOf("\n") + 1;
		return { text: this.#text.slice(from), at: this.#placed(from), from };
	}

	// Takes the last line out, and hands on the chips that stood in it.
	cut(from) {
		const marks = this.#marks.filter((mark) => mark.at >= from);
		this.#marks = this.#marks.filter((mark) => mark.at < from);
		this.#text = this.#text.slice(0, Math.max(from - 1, 0));
		this.#changed = true;
		return marks;
	}

	// Whether nothing is left of it; then it is gone.
	removeIfEmpty() {
		if (!this.#text) this.#holder.remove();
		return !this.#text;
	}

	mark(place, chip) {
		const part = this.#parts.findLast((found) => found.at <= place) ?? { at: place, from: 0, size: 0 };
		this.#marks.push({ at: part.from + Math.min(place - part.at, part.size), place, chip });
		this.#marks.sort((one, other) => one.at - other.at);
		this.#changed = true;
	}

	get isLong() {
		return this.#text.length > LONG && (/\s$/.test(this.#text) || this.#text.length > 2 * LONG);
	}

	// The same paragraph from here on: what is written so far will not be drawn again with every word.
	goOn(at) {
		this.close();
		if (this.#holder === this.#block) {
			this.#holder = element("span", {}, ...this.#block.childNodes);
			this.#block.append(this.#holder);
		}
		const holder = element("span");
		this.#block.append(holder);
		return new Leaf(holder, at, this.#linked, this.#block);
	}

	close() {
		if (this.#open && !isPlain(this.#text)) this.#changed = true;
		this.#open = false;
		this.draw();
	}

	// Somebody may have the focus on a chip while its sentence is drawn anew.
	draw() {
		if (!this.#changed) return;
		const focused = this.#holder.contains(document.activeElement) ? document.activeElement : null;
		const { nodes, tail } = inline(this.#text, { open: this.#open, marks: this.#marks, linked: this.#linked });
		this.#holder.replaceChildren(nodes);
		this.#tail = tail;
		this.#changed = false;
		if (focused?.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
	}

	#placed(index) {
		const part = this.#parts.findLast((found) => found.from <= index);
		return part ? part.at + index - part.from : this.at;
	}
}
