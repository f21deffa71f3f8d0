// An answer in Markdown, drawn while it is written. Handed its text in pieces of any size, and chips by their place in
// it; draws into one element. What is drawn stays: each piece costs what it and the open paragraph hold, no more.
// A line is held back until its first two or three characters tell what it is; rows of tables wait for their end.

import { element } from "./elements.js";
import { Leaf } from "./leaf.js";
import { cells, Line } from "./line.js";

const UNDECIDED = /^\s*(?:#{1,6}\s*|[-*_+\s]*|\d{1,9}[.)]?\s*|[`~]{1,2}|`{3,}[^`]*|~{3,}.*|[|:\s-]*|>\s*)$/;
const OUTSIDE = /^(?:\s*(?:>|[-*+]\s|\d{1,9}[.)]\s))*/; // marks of containers, in which all this comes again
const CLOSING = /^\s*[`~]*\s*$/;
const RULE = /^(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^(?:[-*+]|(\d{1,9})[.)])(?:\s+|$)/;
const HEADING = /^(#{1,6})(?:\s+|$)/;
const FENCE = /^(`{3,}|~{3,})([^`]*)$/;
const COLUMNS = /^[|:\s-]*-[|:\s-]*$/;
const LONGEST_HELD = 300; // characters after which a line is text, whatever it looks like
const LONGEST_ROW = 50_000;
const DEEPEST = 24; // lists and quotations inside each other; further in, their marks are text
const MOST_COLUMNS = 60;
const LINES_IN_PIECE = 80; // of code: a browser lays out a changed piece, not all of it

export class Markdown {
	#containers = []; // { kind: quote | list | item, view }, from the outside in
	#leaves = []; // in the order of their places
	#leaf = null; // the open paragraph or heading
	#fence = null;
	#table = null;
	#held = ""; // a line that nobody knows yet
	#lineAt = 0; // where it begins in the answer
	#at = 0; // where the next character stands
	#begun = false; // is the line known?
	#waiting = []; // chips in a line that is held

	constructor(root, linked) {
		this.root = root;
		this.linked = linked;
	}

	write(text) {
		const lines = text.split("\n");
		lines.forEach((line, index) => {
			if (line) this.#more(line);
			if (index < lines.length - 1) this.#endLine();
		});
		this.#leaf?.draw();
	}

	end() {
		if (this.#held) this.#begin();
		this.#closeLeaf();
	}

	cite(at, chip) {
		if (!this.#begun && this.#held && at > this.#lineAt) {
			this.#waiting.push([at, chip]);
			return;
		}
		const leaf = this.#leaves.findLast((found) => found.at <= at) ?? this.#leaves[0] ?? this.#paragraph(at);
		leaf.mark(at, chip);
		leaf.draw();
	}

	// Lines

	#more(text) {
		this.#at += text.length;
		if (this.#begun) this.#append(text, this.#at - text.length);
		else {
			this.#held += text;
			if (!this.#isUndecided()) this.#begin();
		}
	}

	#isUndecided() {
		if (this.#table) return this.#held.length < LONGEST_ROW;
		if (this.#held.length > LONGEST_HELD) return false;
		if (this.#fence && !this.#containers.length) return CLOSING.test(this.#held);
		return UNDECIDED.test(this.#held.replace(OUTSIDE, ""));
	}

	#endLine() {
		if (!this.#begun) this.#begin();
		if (this.#fence?.begun) this.#writeCode("\n");
		if (this.#leaf?.single) this.#closeLeaf();
		this.#begun = false;
		this.#at += 1;
		this.#lineAt = this.#at;
	}

	#begin() {
		const line = new Line(this.#held, this.#lineAt);
		this.#held = "";
		this.#begun = true;
		this.#place(line);
		for (const [at, chip] of this.#waiting.splice(0)) this.cite(at, chip);
	}

	#append(text, at) {
		if (this.#fence) {
			this.#writeCode(text);
			return;
		}
		const leaf = this.#leaf ?? this.#paragraph(at);
		leaf.add(text, at);
		if (leaf.isLong) this.#keepLeaf(leaf.goOn(this.#at), leaf.single);
	}

	// What a line is

	#place(line) {
		const matched = this.#matched(line);
		const inside = matched === this.#containers.length;
		if (this.#fence && (inside || line.isBlank)) this.#codeLine(line);
		else if (line.isBlank) {
			this.#closeLeaf();
			this.#table = null;
			this.#closeContainers(matched);
		} else {
			this.#fence = null;
			this.#startBlock(line, matched, inside);
		}
	}

	// How many of the open containers go on in this line.
	#matched(line) {
		let matched = 0;
		for (const { kind, indent } of this.#containers) {
			if (kind === "quote" && !line.takeQuote()) break;
			if (kind === "item" && !line.isBlank && !line.takeIndent(indent)) break;
			matched += 1;
		}
		return matched;
	}

	#startBlock(line, matched, inside) {
		let opened = false;
		while (this.#containers.length < DEEPEST && !RULE.test(line.rest) && this.#openContainer(line, matched)) {
			opened = true;
			matched = this.#containers.length;
		}
		const { rest } = line;
		const goesOn = this.#leaf && !this.#leaf.single && !opened;
		if (line.isBlank) return;
		if (RULE.test(rest)) this.#addBlock(matched, element("hr"));
		else if (HEADING.test(rest)) this.#heading(line, matched);
		else if (FENCE.test(rest)) this.#openFence(line, matched);
		else if (this.#table && inside && !opened && rest.includes("|")) this.#row(line);
		else if (goesOn && inside && this.#isColumns(rest)) this.#openTable(rest);
		else this.#text(line, matched, goesOn);
	}

	// Containers

	get #inner() {
		return this.#containers.at(-1)?.view ?? this.root;
	}

	#closeContainers(count) {
		if (count === this.#containers.length) return;
		this.#closeLeaf();
		this.#table = this.#fence = null;
		this.#containers.length = count;
	}

	#open(kind, view, indent = 0) {
		this.#inner.append(view);
		this.#containers.push({ kind, view, indent });
	}

	// Makes room for a block that is no item of a list: a list without an open item is over.
	#makeRoom(matched) {
		this.#closeContainers(matched);
		if (this.#containers.at(-1)?.kind === "list") this.#closeContainers(matched - 1);
		this.#closeLeaf();
		this.#table = this.#fence = null;
	}

	#openContainer(line, matched) {
		const [mark, number] = ITEM.exec(line.rest) ?? [];
		if (line.isQuote) {
			this.#makeRoom(matched);
			line.takeQuote();
			this.#open("quote", element("blockquote"));
		} else if (mark && this.#openList(number, matched)) {
			const indent = line.indent + 2; // models indent by two what stands below a number, too
			line.takeMark(mark.length);
			this.#open("item", element("li"), indent);
		} else return false;
		return true;
	}

	#openList(number, matched) {
		const list = this.#containers[matched - 1];
		const name = number ? "ol" : "ul";
		const start = number && Number(number) !== 1 ? Number(number) : null;
		if (list?.kind === "list" && list.view.localName === name) {
			this.#closeContainers(matched);
			this.#closeLeaf();
			return true;
		}
		// "It was in\n1986. Then …" is no list.
		if (start !== null && this.#leaf && matched === this.#containers.length) return false;
		this.#makeRoom(matched);
		this.#open("list", element(name, { start }));
		return true;
	}

	// Blocks

	#addBlock(matched, made) {
		this.#makeRoom(matched);
		this.#inner.append(made);
		return made;
	}

	#heading(line, matched) {
		const [mark, signs] = HEADING.exec(line.rest);
		const made = this.#addBlock(matched, element(`h${Math.min(signs.length + 2, 6)}`));
		line.takeMark(mark.length);
		this.#keepLeaf(new Leaf(made, line.place, this.linked), true).add(line.all, line.place);
	}

	#text(line, matched, goesOn) {
		line.takeMark();
		if (goesOn) this.#leaf.add("\n", line.place - 1);
		else {
			this.#makeRoom(matched);
			this.#paragraph(line.place);
		}
		this.#leaf.add(line.all, line.place);
	}

	#paragraph(at) {
		const made = element("p");
		this.#inner.append(made);
		return this.#keepLeaf(new Leaf(made, at, this.linked), false);
	}

	#keepLeaf(leaf, single) {
		leaf.single = single; // is it over with its line?
		this.#leaf = leaf;
		this.#leaves.push(leaf);
		return leaf;
	}

	#closeLeaf() {
		this.#leaf?.close();
		this.#leaf = null;
	}

	// Code

	#openFence(line, matched) {
		const [, marks, info] = FENCE.exec(line.rest);
		const language = info.trim().split(/\s/)[0].slice(0, 40);
		const code = element("code");
		const label = language ? `Code, ${language}` : "Code";
		this.#addBlock(matched, element("pre", { tabindex: 0, role: "region", "aria-label": label }, code));
		this.#fence = { marks, code, indent: line.indent, lines: LINES_IN_PIECE, begun: false };
	}

	#codeLine(line) {
		const { marks, indent } = this.#fence;
		const rest = line.rest.trimEnd();
		if (rest.startsWith(marks) && rest === marks[0].repeat(rest.length)) {
			this.#fence = null;
			return;
		}
		line.takeIndent(Math.min(indent, line.indent));
		this.#fence.begun = true;
		this.#writeCode(line.all);
	}

	#writeCode(text) {
		const fence = this.#fence;
		if (fence.lines >= LINES_IN_PIECE) {
			fence.piece = document.createTextNode("");
			fence.code.append(element("span", {}, fence.piece));
			fence.lines = 0;
		}
		fence.piece.appendData(text);
		if (text === "\n") fence.lines += 1;
	}

	// Tables

	#isColumns(rest) {
		if (rest.length > LONGEST_HELD || !COLUMNS.test(rest)) return false;
		const header = this.#leaf.lastLine.text;
		const count = cells(rest).length;
		return header.includes("|") && cells(header).length === count && count <= MOST_COLUMNS;
	}

	#openTable(rest) {
		const header = this.#leaf.lastLine;
		const chips = this.#leaf.cut(header.from);
		if (this.#leaf.removeIfEmpty()) this.#leaves.pop();
		this.#closeLeaf();
		const columns = cells(rest).map(({ text }) => (text.endsWith(":") ? (text.startsWith(":") ? "middle" : "right") : null));
		const head = element("thead");
		const body = element("tbody");
		const table = element("table", {}, head, body);
		this.#inner.append(element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, table));
		this.#table = { body, columns };
		this.#addRow(head, "th", header.text, header.at);
		for (const { place, chip } of chips) this.cite(place, chip);
	}

	#row(line) {
		line.takeMark();
		this.#addRow(this.#table.body, "td", line.all, line.place);
	}

	#addRow(into, name, text, at) {
		const found = cells(text);
		const views = this.#table.columns.map((column, index) => {
			const view = element(name, { class: column, scope: name === "th" ? "col" : null });
			const cell = found[index] ?? { text: "", at: text.length };
			const leaf = new Leaf(view, at + cell.at, this.linked);
			leaf.add(cell.text, at + cell.at);
			leaf.close();
			this.#leaves.push(leaf);
			return view;
		});
		into.append(element("tr", {}, ...views));
	}
}
