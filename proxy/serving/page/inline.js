// Markdown inside a line. Handed a text and the chips in it; hands on nodes, of the few elements that are named here. A
// link leads somewhere only if it is `linked`, to a source; an image is its alt text; a tag is text. While the text is
// still being written (`open`), what was begun counts as if it went on to the end.

import { element, link } from "./elements.js";

const SPECIAL = /[\\`*_~[\]!<&\n]/;
const PLAIN = /[^\\`*_~[\]!<&\n]+/y;
const TICKS = /`+/y;
const RUN = /\*+|_+|~+/y;
const TARGET = /\(\s?([^\s()]*(?:\([^\s()]*\)[^\s()]*)*)(?:\s(?:"[^"]*"|'[^']*'))?\s?\)/y;
const HALF_TARGET = /\([^\s()]*$/y;
const BREAK = /<br\s*\/?>|\\\n|(?<=  )\n/iy;
const ENTITY = /&(amp|lt|gt|quot|nbsp|#39);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const PUNCTUATION = /[\p{P}\p{S}]/u;
const NAMES = { "*": ["em", "strong"], _: ["em", "strong"], "~": [null, "del"] };
const least = (char) => (char === "~" ? 2 : 1); // of a delimiter that means something
const DEEPEST = 20;

export const isPlain = (text) => !SPECIAL.test(text);

// `marks` are chips by their place in the text, in order. Plain text that follows may be added to the node `tail`.
export function inline(text, { open, marks, linked }) {
	const tokens = new Scanner(text, open).tokens();
	pair(tokens, open);
	const builder = new Builder(marks, linked);
	for (const token of tokens) builder.take(token);
	return builder.end();
}

class Scanner {
	#at = 0;
	#tokens = [];
	#brackets = []; // where open ones stand among the tokens

	constructor(text, open) {
		this.text = text;
		this.open = open;
	}

	tokens() {
		while (this.#at < this.text.length) {
			const plain = this.#match(PLAIN);
			if (plain) this.#words(plain[0]);
			else this.#special(this.text[this.#at]);
		}
		// A delimiter at the very end may still grow: what it means is seen with the next letter.
		if (this.open && this.#tokens.at(-1)?.kind === "delimiter") this.#tokens.pop();
		return this.#tokens;
	}

	#match(pattern, at = this.#at) {
		pattern.lastIndex = at;
		return pattern.exec(this.text);
	}

	#push(kind, size, more) {
		this.#tokens.push({ kind, at: this.#at, size, ...more });
		this.#at += size;
	}

	#words(text, size = text.length, more = {}) {
		this.#push("text", size, { text, ...more });
	}

	#special(char) {
		const next = this.text[this.#at + 1] ?? "";
		const end = this.#match(BREAK);
		const entity = this.#match(ENTITY);
		if (end) this.#push("break", end[0].length);
		else if (entity) this.#words(ENTITIES[entity[1]], entity[0].length);
		else if (char === "\\" && PUNCTUATION.test(next)) this.#words(next, 2);
		else if (char === "`") this.#code();
		else if (char in NAMES) this.#delimiter(char);
		else if (char === "!" && next === "[") this.#openBracket("![", "image");
		else if (char === "[") this.#openBracket("[", "link");
		else if (char === "]") this.#closeBracket();
		else this.#words(char);
	}

	#code() {
		const [ticks] = this.#match(TICKS);
		const begins = this.#at + ticks.length;
		let ends = this.#closing(ticks.length, begins);
		if (ends < 0 && this.open && begins < this.text.length) ends = this.text.length;
		if (ends < 0) this.#words(ticks);
		else {
			const size = Math.min(ends + ticks.length, this.text.length) - this.#at;
			this.#push("code", size, { text: this.text.slice(begins, ends).replaceAll("\n", " ") });
		}
	}

	#closing(length, from) {
		for (let at = this.text.indexOf("`", from); at >= 0; at = this.text.indexOf("`", TICKS.lastIndex)) {
			if (this.#match(TICKS, at)[0].length === length) return at;
		}
		return -1;
	}

	#delimiter(char) {
		const left = this.#match(RUN)[0].length;
		const before = this.text[this.#at - 1] ?? " ";
		const after = this.text[this.#at + left] ?? " ";
		const opens = leans(after, before) && (char !== "_" || !leans(before, after) || PUNCTUATION.test(before));
		const closes = leans(before, after) && (char !== "_" || !leans(after, before) || PUNCTUATION.test(after));
		this.#push("delimiter", left, { char, left, opens, closes, begins: left > 1 || /\s/.test(before), pairs: [], ends: 0 });
	}

	#openBracket(text, bracket) {
		this.#brackets.push(this.#tokens.length);
		this.#words(text, text.length, { bracket });
	}

	#closeBracket() {
		const opened = this.#brackets.pop();
		const behind = this.#at + 1;
		const target = this.#match(TARGET, behind) ?? (this.open ? this.#match(HALF_TARGET, behind) : null);
		if (opened === undefined || !target) {
			this.#words("]");
			return;
		}
		pair(this.#tokens.slice(opened), false);
		const first = this.#tokens[opened];
		Object.assign(first, { kind: first.bracket, url: target[1] ?? "" });
		this.#push("closed", target[0].length + 1);
		if (first.kind === "link") this.#brackets = []; // no link stands in another
	}
}

// Does a delimiter lean on the character at its one side, and not on the one at its other?
function leans(on, away) {
	return !/\s/.test(on) && (!PUNCTUATION.test(on) || /\s/.test(away) || PUNCTUATION.test(away));
}

// Which delimiters belong together, as CommonMark has it. Below `floor` none of that kind is left.
function pair(tokens, open) {
	const openers = [];
	const floor = { "*": 0, _: 0, "~": 0 };
	for (const token of tokens) {
		if (token.kind !== "delimiter" || token.paired) continue;
		const { char } = token;
		token.paired = true;
		while (token.closes && token.left >= least(char)) {
			const at = openers.findLastIndex((opener, index) => index < floor[char] || opener.char === char);
			if (at < floor[char]) {
				floor[char] = openers.length;
				break;
			}
			join(openers[at], token);
			openers.length = openers[at].left >= least(char) ? at + 1 : at;
			for (const other in floor) floor[other] = Math.min(floor[other], openers.length);
		}
		if (token.opens && token.left >= least(char)) openers.push(token);
	}
	for (const opener of open ? openers.reverse() : []) {
		while (opener.begins && opener.left >= least(opener.char)) join(opener, { left: 2 });
	}
}

function join(opener, closer) {
	const both = Math.min(opener.left, closer.left, 2);
	opener.pairs.unshift(NAMES[opener.char][both - 1]);
	opener.left -= both;
	closer.left -= both;
	closer.ends += 1;
}

class Builder {
	#parents = [document.createDocumentFragment()];
	#next = 0; // of the marks
	#tail = null;

	constructor(marks, linked) {
		this.marks = marks;
		this.linked = linked;
	}

	take(token) {
		const { kind, at, text, url } = token;
		this.#chipsUpTo(at);
		if (kind === "text") this.#write(token);
		else if (kind === "code") this.#append(element("code", {}, text));
		else if (kind === "break") this.#append(element("br"));
		else if (kind === "delimiter") this.#emphasise(token);
		else if (kind === "closed") this.#leave();
		else this.#enter(kind === "link" && this.linked(url) ? link(url) : element("span", { title: url }));
	}

	end() {
		this.#chipsUpTo(Infinity);
		return { nodes: this.#parents[0], tail: this.#tail };
	}

	#append(node) {
		this.#parents.at(-1).append(node);
		this.#tail = node.nodeType === Node.TEXT_NODE ? node : null;
	}

	#chipsUpTo(at) {
		for (; this.marks[this.#next]?.at <= at; this.#next += 1) this.#append(this.marks[this.#next].chip);
	}

	// A text is cut where chips stand in it; what is not written as it reads, such as `&amp;`, cannot be.
	#write({ at, text, size }) {
		while (size === text.length && this.marks[this.#next]?.at < at + text.length) {
			const before = this.marks[this.#next].at - at;
			this.#words(text.slice(0, before));
			text = text.slice(before);
			size -= before;
			at += before;
			this.#chipsUpTo(at);
		}
		this.#words(text);
	}

	#words(text) {
		if (this.#tail) this.#tail.appendData(text);
		else if (text) this.#append(document.createTextNode(text));
	}

	#emphasise({ char, left, ends, pairs }) {
		for (; ends > 0; ends -= 1) this.#leave();
		this.#words(char.repeat(left));
		for (const name of pairs) this.#enter(element(name));
	}

	#enter(made) {
		const parent = this.#parents.length < DEEPEST ? made : this.#parents.at(-1);
		if (parent === made) this.#append(made);
		this.#parents.push(parent);
		this.#tail = null;
	}

	#leave() {
		this.#parents.pop();
		this.#tail = null;
	}
}
