// The sources of one answer. Handed its citations as they come; hands on numbered chips, and the list below the text.

import { showCard } from "./card.js";
import { element, hostOf, inOneLine, isWeb, link } from "./elements.js";

export class Sources {
	#cited = new Map(); // address → source
	#found = new Map(); // address → what a search said of it

	get cited() {
		return [...this.#cited.values()];
	}

	find(results = []) {
		for (const result of results) this.#found.set(result.url, result);
	}

	cite({ url, title, basis, cited_text: quote }) {
		const known = this.#cited.get(url) ?? { number: this.#cited.size + 1, url, title: title || hostOf(url), basis, quote };
		if (basis === "page") known.basis = basis;
		known.quote ??= quote;
		this.#cited.set(url, known);
		return known;
	}

	// Nothing else is ever linked.
	isLinked(url) {
		return this.#cited.has(url) && isWeb(url);
	}

	chip(citation) {
		const { number, url, title } = this.cite(citation);
		const label = { class: "chip", "aria-label": `Source ${number}: ${title}` };
		const made = isWeb(url) ? link(url, label, number) : element("button", label, number);
		showCard(made, () => this.#card(citation));
		return made;
	}

	#card({ url, title, basis, cited_text: quote, unmatched, auto }) {
		return [
			...this.#row({ url, title, basis }),
			quote && element("blockquote", {}, quote),
			unmatched && element("p", { class: "card-warning" }, `Not in this source: ${unmatched.join(", ")}`),
			auto && element("p", { class: "source-about" }, "Groundwire put this marker here: the model wrote none."),
		];
	}

	#row({ url, title, basis }) {
		const about = inOneLine(hostOf(url), this.#found.get(url)?.date);
		const read = basis === "page";
		const tag = basis ? element("span", { class: read ? "tag good" : "tag" }, read ? "Page read" : "Snippet only") : "";
		return [
			element("div", { class: "source-title" }, isWeb(url) ? link(url, {}, title || url) : title || url),
			element("div", { class: "source-about" }, about, tag),
		];
	}

	// What was cited, and folded what was found besides.
	list() {
		const rest = [...this.#found.values()].filter(({ url }) => !this.#cited.has(url));
		const rows = this.cited.map((source) => {
			const number = element("span", { class: "chip", "aria-hidden": true }, source.number);
			return element("li", {}, number, ...this.#row(source));
		});
		const more = rest.map((source) => element("li", {}, ...this.#row(source)));
		const summary = element("summary", {}, rows.length ? `${rest.length} more found, not cited` : `${rest.length} found, none cited`);
		const view = element("section", { class: "sources", "aria-label": "Sources" });
		if (rows.length) view.append(element("h3", {}, "Sources"), element("ol", {}, ...rows));
		if (rest.length) view.append(element("details", {}, summary, element("ul", {}, ...more)));
		return view;
	}
}
