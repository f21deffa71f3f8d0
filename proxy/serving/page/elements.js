// Elements of the page, made one by one. Handed a name, properties and children; hands on the element.
// Text becomes a text node, never markup: nothing in this folder makes elements of a string.

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

// A sentence of ours or the server's, in which names stand between backticks.
export const sentence = (text) =>
  text.split("`").map((piece, index) => (index % 2 ? element("code", {}, piece) : piece)).filter(Boolean);

export const one = (selector) => document.querySelector(selector);

// A line drawing of the icon file, by the id of its symbol.
export function icon(name) {
  const drawn = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const used = document.createElementNS("http://www.w3.org/2000/svg", "use");
  drawn.setAttribute("class", "icon");
  drawn.setAttribute("aria-hidden", "true");
  used.setAttribute("href", `#icon-${name}`);
  drawn.append(used);
  return drawn;
}

// Is it an address that may be linked? Sources of the operator's own files have others.
export function isWeb(url) {
  try {
    return ["http:", "https:"].includes(new URL(url).protocol);
  } catch {
    return false;
  }
}

export function hostOf(url) {
  try {
    return new URL(url).host.replace(/^www\./, "") || url;
  } catch {
    return url;
  }
}

// A link to a source. The page that opens learns nothing of this one.
export function link(url, properties, ...children) {
  return element("a", { href: url, target: "_blank", rel: "noopener noreferrer", ...properties }, ...children);
}

export function milliseconds(ms) {
  if (ms === undefined || ms === null) return "";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1000).toFixed(1)} s` : `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1000)} s`;
}

export const tokens = ({ input_tokens: given, output_tokens: made }) => (given || made ? `${given ?? 0} + ${made ?? 0}` : "");

export const counted = (number, word) => `${number} ${word}${number === 1 ? "" : word.endsWith("ch") ? "es" : "s"}`;
