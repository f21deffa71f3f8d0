// An answer in Markdown, drawn while it is written. Handed its text in pieces of any size, and chips by their place in
// it; draws into one element. What is drawn stays: each piece costs what it and the open paragraph hold, no more.
//
// A line is held back until its first characters tell what it is (a list, a fence, …), which takes two or three of
// them; from then on its text goes straight into its leaf. Rows of tables wait for their end. Tags are text here.

import { element } from "./elements.js";
import { Leaf } from "./leaf.js";

const UNDECIDED = /^\s*(?:#{1,6}\s*|[-*_+\s]*|\d{1,9}[.)]?\s*|[`~]{1,2}|`{3,}[^`]*|~{3,}.*|[|:\s-]*|>\s*)$/;
const OUTSIDE = /^(?:\s*(?:>|[-*+]\s|\d{1,9}[.)]\s))*/; // marks of containers, in which all this comes again
const CLOSING = /^[\s>]*[`~]*\s*$/;
const RULE = /^(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const BULLET = /^([-*+])(?:\s+|$)/;
const NUMBER = /^(\d{1,9})[.)](?:\s+|$)/;
const HEADING = /^(#{1,6})(?:\s+|$)/;
const FENCE = /^(`{3,}|~{3,})([^`]*)$/;
const COLUMNS = /^[|:\s-]+$/;
const LONGEST_HELD = 300; // characters after which a line is text, whatever it looks like
const LONGEST_ROW = 50_000;
const DEEPEST = 24; // lists and quotations inside each other; further in, their marks are text
const MOST_COLUMNS = 60;
const LINES_IN_PIECE = 80; // of code: a browser lays out a changed piece, not all of it

export class Markdown {
  #root;
  #linked;
  #containers = []; // { kind: quote | list | item, element, … }, from the outside in
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
    this.#root = root;
    this.#linked = linked;
  }

  write(text) {
    for (let from = 0; from < text.length; ) {
      const end = text.indexOf("\n", from);
      this.#more(text.slice(from, end < 0 ? undefined : end));
      if (end < 0) break;
      this.#endLine();
      from = end + 1;
    }
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
    const leaf = this.#leaves[this.#leafAt(at)] ?? this.#leaves[0] ?? this.#paragraph(at);
    leaf.mark(at, chip);
    leaf.draw();
  }

  #leafAt(at) {
    let low = 0;
    let high = this.#leaves.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#leaves[middle].at <= at) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  // Lines

  #more(text) {
    this.#at += text.length;
    if (this.#begun) {
      this.#append(text);
      return;
    }
    this.#held += text;
    if (!this.#isUndecided()) this.#begin();
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
    this.#held = "";
    this.#at += 1;
    this.#lineAt = this.#at;
  }

  #begin() {
    const line = new Line(this.#held, this.#lineAt);
    this.#begun = true;
    this.#place(line);
    this.#held = "";
    for (const [at, chip] of this.#waiting.splice(0)) this.cite(at, chip);
  }

  #append(text) {
    if (this.#fence) {
      this.#writeCode(text);
      return;
    }
    const leaf = this.#leaf ?? this.#paragraph(this.#at - text.length);
    leaf.add(text, this.#at - text.length);
    if (leaf.isLong) this.#keepLeaf(leaf.goOn(this.#at), leaf.single);
  }

  // What a line is

  #place(line) {
    const matched = this.#matched(line);
    const inside = matched === this.#containers.length;
    if (this.#fence && (inside || line.isBlank)) {
      this.#codeLine(line);
    } else if (line.isBlank) {
      this.#closeLeaf();
      this.#table = null;
      if (!inside) this.#closeContainers(matched);
    } else {
      this.#fence = null;
      this.#startBlock(line, matched, inside);
    }
  }

  // How many of the open containers go on in this line.
  #matched(line) {
    let matched = 0;
    for (const container of this.#containers) {
      if (container.kind === "quote" && !line.takeQuote()) break;
      if (container.kind === "item" && !line.isBlank && !line.takeIndent(container.indent)) break;
      matched += 1;
    }
    return matched;
  }

  #startBlock(line, matched, inside) {
    let opened = false;
    for (; this.#containers.length < DEEPEST && !RULE.test(line.rest); matched = this.#containers.length, opened = true) {
      if (line.isQuote) this.#openQuote(line, matched);
      else if (!this.#openItem(line, matched)) break;
    }
    if (line.isBlank) return;
    const rest = line.rest;
    const [, marks, info] = FENCE.exec(rest) ?? [];
    const goesOn = this.#leaf && !this.#leaf.single && !opened;
    if (RULE.test(rest)) this.#addBlock(matched, element("hr"));
    else if (HEADING.test(rest)) this.#heading(line, matched);
    else if (marks) this.#openFence(matched, marks, info, line.indent);
    else if (this.#table && inside && !opened && rest.includes("|")) this.#row(line);
    else if (goesOn && inside && this.#isColumns(rest)) this.#openTable(rest);
    else if (goesOn) this.#goOn(line);
    else this.#addText(line, matched);
  }

  // Containers

  get #inner() {
    return this.#containers.at(-1)?.element ?? this.#root;
  }

  #closeContainers(count) {
    if (count === this.#containers.length) return;
    this.#closeLeaf();
    this.#table = this.#fence = null;
    this.#containers.length = count;
  }

  #open(kind, made, more = {}) {
    this.#inner.append(made);
    this.#containers.push({ kind, element: made, ...more });
  }

  // Makes room for a block that is no item of a list: a list without an open item is over.
  #makeRoom(matched) {
    this.#closeContainers(matched);
    if (this.#containers.at(-1)?.kind === "list") this.#closeContainers(matched - 1);
    this.#closeLeaf();
    this.#table = this.#fence = null;
  }

  #openQuote(line, matched) {
    this.#makeRoom(matched);
    line.takeQuote();
    this.#open("quote", element("blockquote"));
  }

  #openItem(line, matched) {
    const rest = line.rest;
    const [mark, number] = NUMBER.exec(rest) ?? [];
    const bullet = mark ? null : BULLET.exec(rest);
    if (!mark && !bullet) return false;
    const name = mark ? "ol" : "ul";
    const list = this.#containers[matched - 1];
    const continues = list?.kind === "list" && list.element.localName === name;
    // "It was in\n1986. Then …" is no list.
    if (mark && !continues && this.#leaf && matched === this.#containers.length && Number(number) !== 1) return false;
    if (continues) this.#closeContainers(matched);
    else {
      this.#makeRoom(matched);
      this.#open("list", element(name, mark && Number(number) !== 1 ? { start: Number(number) } : {}));
    }
    this.#closeLeaf();
    const indent = line.indent + 2; // models indent by two what stands below a number, too
    line.take(line.indent + (mark ?? bullet[0]).length);
    this.#open("item", element("li"), { indent });
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
    line.take(line.indent + mark.length);
    this.#keepLeaf(new Leaf(made, line.place, this.#options()), true);
    this.#leaf.add(line.rest, line.place);
  }

  #addText(line, matched) {
    this.#makeRoom(matched);
    line.take(line.indent);
    this.#paragraph(line.place);
    this.#leaf.add(line.rest, line.place);
  }

  #goOn(line) {
    line.take(line.indent);
    this.#leaf.add("\n", line.place - 1);
    this.#leaf.add(line.rest, line.place);
  }

  #options() {
    return { linked: this.#linked, task: this.#containers.at(-1)?.kind === "item" };
  }

  #paragraph(at) {
    const made = element("p");
    this.#inner.append(made);
    return this.#keepLeaf(new Leaf(made, at, this.#options()), false);
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

  #openFence(matched, marks, info, indent) {
    const code = element("code");
    const language = info.trim().split(/\s/)[0].slice(0, 40);
    const label = language ? `Code, ${language}` : "Code";
    this.#addBlock(matched, element("pre", { tabindex: 0, role: "region", "aria-label": label }, code));
    this.#fence = { marks, indent, code, piece: null, lines: 0, begun: false };
  }

  #codeLine(line) {
    const { marks, indent } = this.#fence;
    const rest = line.rest.trim();
    if (rest.length >= marks.length && rest === marks[0].repeat(rest.length)) {
      this.#fence = null;
      return;
    }
    line.takeIndent(Math.min(indent, line.indent));
    this.#fence.begun = true;
    this.#writeCode(line.all);
  }

  #writeCode(text) {
    const fence = this.#fence;
    if (!fence.piece || fence.lines >= LINES_IN_PIECE) {
      fence.piece = document.createTextNode("");
      fence.code.append(element("span", {}, fence.piece));
      fence.lines = 0;
    }
    fence.piece.appendData(text);
    if (text === "\n") fence.lines += 1;
  }

  // Tables

  #isColumns(rest) {
    if (rest.length > LONGEST_HELD || !COLUMNS.test(rest) || !/-/.test(rest)) return false;
    const header = this.#leaf.lastLine.text;
    return header.includes("|") && cells(header).length === cells(rest).length && cells(rest).length <= MOST_COLUMNS;
  }

  #openTable(rest) {
    const header = this.#leaf.lastLine;
    const chips = this.#leaf.cut(header.from);
    if (this.#leaf.isEmpty) {
      this.#leaves.pop();
      this.#leaf.remove();
    }
    this.#closeLeaf();
    const align = cells(rest).map(({ text }) => (text.endsWith(":") ? (text.startsWith(":") ? "middle" : "right") : ""));
    const body = element("tbody");
    const head = element("thead");
    const table = element("table", {}, head, body);
    this.#inner.append(element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "Table" }, table));
    this.#table = { body, align };
    this.#addRow(head, "th", header.text, header.at);
    for (const { place, chip } of chips) this.cite(place, chip);
  }

  #row(line) {
    line.take(line.indent);
    this.#addRow(this.#table.body, "td", line.rest, line.place);
  }

  #addRow(into, name, text, at) {
    const row = element("tr");
    const found = cells(text);
    this.#table.align.forEach((align, column) => {
      const cell = element(name, { class: align || null, scope: name === "th" ? "col" : null });
      row.append(cell);
      const given = found[column];
      if (!given) return;
      const leaf = new Leaf(cell, at + given.at, { linked: this.#linked });
      leaf.add(given.text, at + given.at);
      leaf.close();
      this.#leaves.push(leaf);
    });
    into.append(row);
  }
}

// One line, and how far it was read.
class Line {
  #text;
  #start;
  #from = 0;

  constructor(text, start) {
    this.#text = text;
    this.#start = start;
  }

  get all() {
    return this.#text.slice(this.#from);
  }

  get rest() {
    return this.all.trimStart();
  }

  get place() {
    return this.#start + this.#from;
  }

  get isBlank() {
    return this.rest === "";
  }

  get indent() {
    return this.all.length - this.rest.length;
  }

  get isQuote() {
    return this.rest.startsWith(">");
  }

  take(count) {
    this.#from += count;
  }

  takeIndent(count) {
    const tabs = this.all.startsWith("\t") && count > 0; // a tab is enough for any one level
    if (!tabs && this.indent < count) return false;
    this.take(tabs ? 1 : count);
    return true;
  }

  takeQuote() {
    if (!this.isQuote) return false;
    this.take(this.indent + 1);
    if (this.all.startsWith(" ")) this.take(1);
    return true;
  }
}

// The cells of a row with their places in it: between bars that are neither escaped nor in code.
function cells(row) {
  const bars = [];
  let code = false;
  for (let at = 0; at < row.length; at += 1) {
    if (row[at] === "\\") at += 1;
    else if (row[at] === "`") code = !code;
    else if (row[at] === "|" && !code) bars.push(at);
  }
  const edges = [-1, ...bars, row.length];
  const found = edges.slice(0, -1).map((edge, index) => cell(row, edge + 1, edges[index + 1]));
  if (found.length > 1 && !found[0].text) found.shift();
  if (found.length > 1 && !found.at(-1).text) found.pop();
  return found;
}

function cell(row, from, to) {
  const text = row.slice(from, to);
  return { text: text.trim(), at: from + text.length - text.trimStart().length };
}
