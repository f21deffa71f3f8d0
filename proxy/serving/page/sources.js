// The sources of one answer. Handed its citations as they come; hands on numbered chips for the text, the list below it
// and what is known of each. A source is numbered when it is first cited.

import { showCard } from "./card.js";
import { element, hostOf, isWeb, link } from "./elements.js";

const BASIS = { page: "Page read", snippet: "Snippet only" };

export class Sources {
  #cited = new Map(); // address → source
  #found = new Map(); // address → what a search said of it

  get cited() {
    return [...this.#cited.values()];
  }

  get notCited() {
    return [...this.#found.values()].filter((source) => !this.#cited.has(source.url));
  }

  find(results) {
    for (const { url, title, date, basis } of results ?? []) {
      if (!this.#found.has(url)) this.#found.set(url, { url, title, date, basis });
    }
  }

  cite({ url, title, basis, cited_text: quote }) {
    const known = this.#cited.get(url);
    if (known) {
      if (basis === "page") known.basis = basis;
      known.quote ??= quote;
      return known;
    }
    const source = { number: this.#cited.size + 1, url, title: title || hostOf(url), basis, quote };
    this.#cited.set(url, source);
    return source;
  }

  // Only what is cited is ever linked.
  isLinked(url) {
    return this.#cited.has(url) && isWeb(url);
  }

  chip(citation) {
    const source = this.cite(citation);
    const label = { class: "chip", "aria-label": `Source ${source.number}: ${source.title}` };
    const made = isWeb(source.url)
      ? link(source.url, label, String(source.number))
      : element("button", { type: "button", ...label }, String(source.number));
    showCard(made, () => this.#card(source, citation));
    return made;
  }

  date(url) {
    return this.#found.get(url)?.date || "";
  }

  #card(source, citation) {
    const { cited_text: quote, unmatched = [], auto } = citation;
    const about = [hostOf(source.url), this.date(source.url)].filter(Boolean).join(" · ");
    return [
      element("p", { class: "source-title" }, isWeb(source.url) ? link(source.url, {}, source.title) : source.title),
      element("p", { class: "source-about" }, about, badge(citation.basis)),
      quote ? element("blockquote", {}, quote) : "",
      unmatched.length ? element("p", { class: "card-warning" }, `Not in this source: ${unmatched.join(", ")}`) : "",
      auto ? element("p", { class: "source-about" }, "Groundwire put this marker here: the model wrote none.") : "",
    ];
  }

  // The list below an answer, and what was found besides.
  list() {
    const rows = this.cited.map((source) => this.#row(source, element("span", { class: "chip", "aria-hidden": true }, String(source.number))));
    const rest = this.notCited.map((source) => this.#row(source, ""));
    if (!rows.length && !rest.length) return "";
    return element(
      "section",
      { class: "sources", "aria-label": "Sources" },
      rows.length ? element("h3", {}, "Sources") : "",
      rows.length ? element("ol", {}, ...rows) : "",
      rest.length ? folded(rows.length ? `${rest.length} more found, not cited` : `${rest.length} found, none cited`, rest) : "",
    );
  }

  #row(source, number) {
    const title = source.title || source.url;
    const about = [hostOf(source.url), this.date(source.url)].filter(Boolean).join(" · ");
    return element(
      "li",
      {},
      number,
      element("span", { class: "source-title" }, isWeb(source.url) ? link(source.url, {}, title) : title),
      element("span", { class: "source-about" }, about, badge(source.basis)),
    );
  }
}

const badge = (basis) => (BASIS[basis] ? element("span", { class: basis === "page" ? "tag good" : "tag" }, BASIS[basis]) : "");

const folded = (summary, rows) => element("details", {}, element("summary", {}, summary), element("ul", {}, ...rows));
