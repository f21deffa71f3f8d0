// What can be taken away from an answer: its text as Markdown with footnotes, and the question as curl or Python.
// Handed a turn and its request; hands on buttons. Keys are never copied: the commands read them from the environment.

import { element, icon } from "./elements.js";
import { hasKey } from "./server.js";

const COPIED = 1500; // milliseconds for which a button says so

export function copyButtons(turn, again) {
  const ways = [
    ["Copy Markdown", () => asMarkdown(turn)],
    ["Copy curl", () => asCurl(turn.request)],
    ["Copy Python", () => asPython(turn.request)],
  ];
  const buttons = ways.map(([label, write]) => copyButton(label, write));
  const retry = element("button", { type: "button", class: "quiet", onclick: again }, icon("again"), "Ask again");
  return element("div", { class: "actions" }, ...buttons, retry);
}

function copyButton(label, write) {
  const text = element("span", {}, label);
  const button = element("button", { type: "button", class: "quiet" }, icon("copy"), text);
  button.addEventListener("click", async () => {
    text.textContent = (await copied(write())) ? "Copied" : "Not allowed to copy";
    setTimeout(() => (text.textContent = label), COPIED);
  });
  return button;
}

// Browsers lend the clipboard only to pages on this machine or behind TLS; for all others there is the old way.
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const field = element("textarea", { class: "hidden", "aria-hidden": "true" });
    field.value = text;
    document.body.append(field);
    field.select();
    const done = document.execCommand("copy");
    field.remove();
    return done;
  }
}

export function asMarkdown(turn) {
  const text = turn.messages.map(withFootnotes).join("\n\n").trim();
  const notes = turn.sources.cited.map(({ number, title, url, quote }) => {
    const named = `[${title.replace(/[[\]\\]/g, "\\$&")}](${url})`;
    return `[^${number}]: ${named}${quote ? `: "${quote.replace(/\s+/g, " ")}"` : ""}`;
  });
  return [`# ${turn.question}`, text, notes.join("\n")].filter(Boolean).join("\n\n") + "\n";
}

function withFootnotes({ text, marks }) {
  const sorted = [...marks].sort((one, other) => one.at - other.at);
  const pieces = sorted.map(({ at, number }, index) => `${text.slice(sorted[index - 1]?.at ?? 0, at)}[^${number}]`);
  return pieces.join("") + text.slice(sorted.at(-1)?.at ?? 0);
}

export function asCurl({ body, search }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  const lines = [
    `curl ${quoted(`${location.origin}/v1/responses`)}`,
    `-H 'Content-Type: application/json'`,
    hasKey() ? `-H "Authorization: Bearer $GROUNDWIRE_KEY"` : "",
    search === "auto" ? "" : `-H 'X-Groundwire-Search: ${search}'`,
    `-d ${quoted(JSON.stringify(body, null, 2))}`,
  ];
  return lines.filter(Boolean).join(" \\\n  ") + "\n";
}

export function asPython({ body, search }) {
  const { model, input } = body;
  const key = hasKey() ? 'os.environ["GROUNDWIRE_KEY"]' : '"none"';
  const headers = search === "auto" ? "" : `\n    extra_headers={"X-Groundwire-Search": "${search}"},`;
  return `${hasKey() ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url="${location.origin}/v1", api_key=${key})
response = client.responses.create(
    model=${inPython(model)},
    input=${inPython(input)},${headers}
)
print(response.output_text)
for item in response.output:
    for part in getattr(item, "content", None) or []:
        for cited in part.annotations:
            print(cited.title, cited.url)
`;
}

// JSON is Python, but for its three words, which no question holds outside of quotation marks.
const inPython = (value) => JSON.stringify(value);
