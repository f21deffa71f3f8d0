// Elements of the page, made one by one, and numbers and names in words. Text becomes a text node, never markup: nothing in this
// folder makes elements of a string.

export const one = (selector) => document.querySelector(selector);

export function element(name, properties = {}, ...children) {
	const made = document.createElement(name);
	for (const [key, value] of Object.entries(properties)) {
		if (key === "onclick") made.addEventListener("click", value);
		else if (value != null) made.setAttribute(key, value);
	}
	made.append(...children);
	return made;
}

// A link to a source. The page that opens learns nothing of this one.
export const link = (url, properties, ...children) =>
	element("a", { href: url, target: "_blank", rel: "noopener noreferrer", ...properties }, ...children);

// A sentence of ours or the server's, in which names stand between backticks.
export const sentence = (text) =>
	text.split("`").map((piece, index) => (index % 2 ? element("code", {}, piece) : piece));

export function icon(name) {
	const [drawn, used] = ["svg", "use"].map((kind) => document.createElementNS("http://www.w3.org/2000/svg", kind));
	drawn.setAttribute("class", "icon");
	drawn.setAttribute("viewBox", "0 0 24 24");
	drawn.setAttribute("aria-hidden", true);
	used.setAttribute("href", `#icon-${name}`);
	drawn.append(used);
	return drawn;
}

// Only these may be linked. Sources of the operator's own files have other addresses.
export const isWeb = (url) => /^https?:\/\//i.test(url) && URL.canParse(url);

export const hostOf = (url) => (isWeb(url) ? new URL(url).host.replace(/^www\./, "") : url);

export const inOneLine = (...parts) => parts.filter(Boolean).join(" · ");

export function milliseconds(ms) {
	if (ms == null) return "";
	if (ms < 1000) return ms < 1 ? "< 1 ms" : `${Math.round(ms)} ms`;
	return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.round(ms / 60_000)} min`;
}

export const counted = (number, word) => `${number} ${word}${number === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;

export const tokens = ({ input_tokens: read, output_tokens: made }) => (read || made ? `${read ?? 0} + ${made ?? 0}` : "");

const WORDS = {
	empty: "found nothing",
	auth_failed: "its key was refused",
	rate_limited: "too many requests",
	timed_out: "no answer in time",
	cooling_down: "left alone after failures",
	unavailable: "does not answer",
	untried: "not asked yet",
};

export const inWords = (name) => WORDS[name] ?? String(name ?? "").replaceAll("_", " ");
