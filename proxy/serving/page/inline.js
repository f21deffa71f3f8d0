// Markdown inside a line: emphasis, code, links. Handed a text and the chips that stand in it; hands on nodes.
// The tokens of a text are found first, emphasis is paired next, and nodes are made last, each from the few elements
// named here. A link leads somewhere only if `linked` says that its address is a source; an image is its alt text.
// While the text is still being written (`open`), what was begun counts as if it went on to the end.

import { element, link } from "./elements.js";

const PLAIN = /[^\\`*_~[\]!<&\n]+/y;
const SPECIAL = /[\\`*_~[\]!<&\n]/;
const TICKS = /`+/y;
const TARGET = /\(\s?(?:<([^<>\n]*)>|([^\s()]*(?:\([^\s()]*\)[^\s()]*)*))(?:\s(?:"[^"]*"|'[^']*'))?\s?\)/y;
const HALF_TARGET = /\([^\s()]*$/y;
const ADDRESS = /<(https?:\/\/[^\s<>]*)>/iy;
const BREAK = /<br\s*\/?>/iy;
const ENTITY = /&(amp|lt|gt|quot|nbsp|#39);/y;
const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', nbsp: "\u00a0", "#39": "'" };
const TASK = /^\[([ xX])\] /;
const PUNCTUATION = /[\p{P}\p{S}]/u;
const MARKS = { "*": ["em", "strong"], _: ["em", "strong"], "~": [null, "del"] };
const least = (char) => (char === "~" ? 2 : 1); // of a delimiter that means something
const DEEPEST = 20;

export const isPlain = (text) => !SPECIAL.test(text);

// `marks` are chips by their place in the text, in order. `tail` is the text node at the end, if more plain text may
// simply be added to it.
export function inline(text, { open = false, task = false, marks = [], linked = () => false }) {
  const tokens = new Scanner(text, open, task).tokens();
  pair(tokens, open);
  const nodes = new Builder(text, marks, linked);
  for (const token of tokens) nodes.take(token);
  return nodes.end();
}

class Scanner {
  #text;
  #open;
  #at = 0;
  #tokens = [];
  #brackets = [];
  #neverClosed = new Set(); // lengths of runs of backticks that have no partner further on

  constructor(text, open, task) {
    this.#text = text;
    this.#open = open;
    const box = task && TASK.exec(text);
    if (box) this.#literal(box[1] === " " ? "☐ " : "☑ ", box[0].length);
  }

  tokens() {
    while (this.#at < this.#text.length) {
      const plain = this.#match(PLAIN);
      if (plain) this.#literal(plain[0], plain[0].length);
      else this.#special(this.#text[this.#at]);
    }
    // A delimiter at the very end may still grow: what it means is seen with the next letter.
    if (this.#open && this.#tokens.at(-1)?.kind === "delimiter") this.#tokens.pop();
    return this.#tokens;
  }

  #match(pattern) {
    pattern.lastIndex = this.#at;
    return pattern.exec(this.#text);
  }

  #push(kind, length, more = {}) {
    const token = { kind, at: this.#at, ...more };
    this.#tokens.push(token);
    this.#at += length;
    return token;
  }

  #literal(text, length = 1) {
    this.#push("text", length, { text, size: length });
  }

  #special(char) {
    const next = this.#text[this.#at + 1];
    if (char === "\\") this.#escape(next);
    else if (char === "`") this.#code();
    else if (char in MARKS) this.#delimiter(char);
    else if (char === "!" && next === "[") this.#bracket(2, "image");
    else if (char === "[") this.#bracket(1, "link");
    else if (char === "]") this.#closeBracket();
    else if (char === "<") this.#angle();
    else if (char === "&") this.#entity();
    else if (char === "\n") this.#newline();
    else this.#literal(char);
  }

  #escape(next) {
    if (next === "\n") this.#push("break", 2);
    else if (next && PUNCTUATION.test(next)) this.#literal(next, 2);
    else this.#literal("\\");
  }

  #code() {
    const [ticks] = this.#match(TICKS);
    const begins = this.#at + ticks.length;
    const ends = this.#neverClosed.has(ticks.length) ? -1 : this.#closing(ticks.length, begins);
    if (ends >= 0) {
      this.#push("code", ends + ticks.length - this.#at, { text: this.#text.slice(begins, ends) });
    } else if (this.#open && begins < this.#text.length) {
      this.#push("code", this.#text.length - this.#at, { text: this.#text.slice(begins) });
    } else {
      this.#neverClosed.add(ticks.length);
      this.#literal(ticks, ticks.length);
    }
  }

  #closing(length, from) {
    TICKS.lastIndex = from;
    for (let at = this.#text.indexOf("`", from); at >= 0; at = this.#text.indexOf("`", TICKS.lastIndex)) {
      TICKS.lastIndex = at;
      if (TICKS.exec(this.#text)[0].length === length) return at;
    }
    return -1;
  }

  #delimiter(char) {
    let count = 1;
    while (this.#text[this.#at + count] === char) count += 1;
    const before = this.#text[this.#at - 1] ?? " ";
    const after = this.#text[this.#at + count] ?? " ";
    const opens = leans(after, before) && (char !== "_" || !leans(before, after) || PUNCTUATION.test(before));
    const closes = leans(before, after) && (char !== "_" || !leans(after, before) || PUNCTUATION.test(after));
    const begins = /\s/.test(before) || count > 1;
    this.#push("delimiter", count, { char, left: count, opens, closes, begins, pairs: [], ends: [] });
  }

  #bracket(length, kind) {
    this.#brackets.push(this.#tokens.length);
    this.#push("text", length, { text: this.#text.substr(this.#at, length), size: length, bracket: kind });
  }

  #closeBracket() {
    const opened = this.#brackets.pop();
    if (opened === undefined) return this.#literal("]");
    this.#at += 1;
    const target = this.#match(TARGET) ?? (this.#open ? this.#match(HALF_TARGET) : null);
    this.#at -= 1;
    if (!target) return this.#literal("]");
    const first = this.#tokens[opened];
    pair(this.#tokens.slice(opened), false);
    Object.assign(first, { kind: first.bracket, url: target[1] ?? target[2] ?? "" });
    this.#push("closed", target[0].length + 1);
    if (first.kind === "link") this.#brackets.length = 0; // no link stands in another
  }

  #angle() {
    const address = this.#match(ADDRESS);
    const tag = this.#match(BREAK);
    if (tag) this.#push("break", tag[0].length);
    else if (!address) this.#literal("<");
    else {
      this.#push("link", 1, { url: address[1] });
      this.#literal(address[1], address[1].length);
      this.#push("closed", 1);
    }
  }

  #entity() {
    const entity = this.#match(ENTITY);
    this.#literal(entity ? ENTITIES[entity[1]] : "&", entity ? entity[0].length : 1);
  }

  #newline() {
    if (this.#text.startsWith("  ", this.#at - 2)) this.#push("break", 1);
    else this.#literal("\n");
  }
}

// Does a delimiter lean on the character at its one side, and not on the one at its other?
function leans(on, away) {
  return !/\s/.test(on) && (!PUNCTUATION.test(on) || /\s/.test(away) || PUNCTUATION.test(away));
}

// Which delimiters belong together, as CommonMark has it. Each is looked at once: below `floor` none of its kind is left.
function pair(tokens, open) {
  const openers = [];
  const floor = {};
  for (const token of tokens) {
    if (token.kind !== "delimiter" || token.paired) continue;
    token.paired = true;
    while (token.closes && token.left >= least(token.char)) {
      let at = openers.length - 1;
      while (at >= (floor[token.char] ?? 0) && openers[at].char !== token.char) at -= 1;
      if (at < (floor[token.char] ?? 0)) {
        floor[token.char] = openers.length;
        break;
      }
      join(openers[at], token);
      openers.length = openers[at].left >= least(token.char) ? at + 1 : at;
      for (const char in floor) floor[char] = Math.min(floor[char], openers.length);
    }
    if (token.opens && token.left >= least(token.char)) openers.push(token);
  }
  if (!open) return;
  const end = { left: Infinity, ends: [] };
  for (const opener of openers.filter((found) => found.begins).reverse()) {
    while (opener.left >= least(opener.char)) join(opener, end);
  }
}

function join(opener, closer) {
  const both = opener.left > 1 && closer.left > 1 ? 2 : 1;
  const name = MARKS[opener.char][both - 1];
  opener.pairs.push(name);
  closer.ends.push(name);
  opener.left -= both;
  closer.left -= both;
}

class Builder {
  #text;
  #marks;
  #linked;
  #parents = [document.createDocumentFragment()];
  #next = 0; // of the marks
  #tail = null;

  constructor(text, marks, linked) {
    this.#text = text;
    this.#marks = marks;
    this.#linked = linked;
  }

  take(token) {
    this.#chipsUpTo(token.at);
    if (token.kind === "text") this.#write(token);
    else if (token.kind === "code") this.#append(element("code", {}, token.text.replace(/\n/g, " ")));
    else if (token.kind === "break") this.#append(element("br"));
    else if (token.kind === "delimiter") this.#emphasise(token);
    else if (token.kind === "closed") this.#leave();
    else if (token.kind === "link" && this.#linked(token.url)) this.#enter(link(token.url, {}));
    else this.#enter(element("span", token.url ? { title: token.url } : {}));
  }

  end() {
    this.#chipsUpTo(Infinity);
    return { nodes: this.#parents[0], tail: this.#tail };
  }

  get #parent() {
    return this.#parents.at(-1);
  }

  #append(node) {
    this.#parent.append(node);
    this.#tail = null;
  }

  #chipsUpTo(at) {
    while (this.#next < this.#marks.length && this.#marks[this.#next].at <= at) {
      this.#append(this.#marks[this.#next].chip);
      this.#next += 1;
    }
  }

  // A text is cut where chips stand in it; what is not written as it reads, such as `&amp;`, cannot be.
  #write(token) {
    let { at, text } = token;
    if (token.size === text.length) {
      for (let mark; (mark = this.#marks[this.#next]) && mark.at < at + text.length; this.#chipsUpTo(at)) {
        this.#words(text.slice(0, mark.at - at));
        text = text.slice(mark.at - at);
        at = mark.at;
      }
    }
    this.#words(text);
  }

  #words(text) {
    if (!text) return;
    if (this.#tail) this.#tail.appendData(text);
    else this.#parent.append((this.#tail = document.createTextNode(text)));
  }

  #emphasise(token) {
    token.ends.forEach(() => this.#leave());
    if (token.left) this.#words(token.char.repeat(token.left));
    for (const name of token.pairs.reverse()) this.#enter(element(name));
  }

  #enter(made) {
    const deep = this.#parents.length >= DEEPEST;
    if (!deep) this.#append(made);
    this.#parents.push(deep ? this.#parent : made);
    this.#tail = null;
  }

  #leave() {
    if (this.#parents.length > 1) this.#parents.pop();
    this.#tail = null;
  }
}
