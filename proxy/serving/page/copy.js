// What can be taken away: the answer as Markdown with footnotes, the question as curl or Python. Keys are never copied.

import { element, icon } from "./elements.js";
import { hasKey } from "./server.js";

const COPIED = 1500; // milliseconds for which a button says so

export function copyButtons(turn, again) {
	const retry = element("button", { class: "quiet", onclick: again }, icon("again"), "Ask again");
	return element(
		"div",
		{ class: "actions" },
		copyButton("Copy Markdown", () => asMarkdown(turn)),
		copyButton("Copy curl", () => asCurl(turn.request)),
		copyButton("Copy Python", () => asPython(turn.request)),
		retry,
	);
}

function copyButton(label, write) {
	const text = element("span", {}, label);
	const onclick = async () => {
		text.textContent = (await copied(write())) ? "Copied" : "Not copied";
		setTimeout(() => (text.textContent = label), COPIED);
	};
	return element("button", { class: "quiet", onclick }, icon("copy"), text);
}

// Browsers lend the clipboard to pages on this machine or behind TLS; for others there is the old way.
async function copied(text) {
	try {
		await navigator.clipboard.writeText(text);
		return true;
	} catch {
		const field = element("textarea", { class: "hidden" }, text);
		document.body.append(field);
		field.select();
		const done = document.execCommand("copy");
		field.remove();
		return done;
	}
}

export function asMarkdown({ question, messages, sources }) {
	const text = messages.map(withFootnotes).join("\n\n").trim();
	const notes = sources.cited.map(({ number, title, url, quote }) => {
		const named = `[${title.replace(/[[\]\\]/g, "\\$&")}](${url})`;
		return `[^${number}]: ${named}${quote ? `: "${quote.replace(/\s+/g, " ")}"` : ""}`;
	});
	return [`# ${question}`, text, notes.join("\n")].filter(Boolean).join("\n\n") + "\n";
}

function withFootnotes({ text, marks }) {
	let done = 0;
	let noted = "";
	for (const { at, number } of [...marks].sort((one, other) => one.at - other.at)) {
		noted += `${text.slice(done, at)}[^${number}]`;
		done = at;
	}
	return noted + text.slice(done);
}

export function asCurl({ body, search }) {
	const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
	const lines = [
		`curl ${quoted(`${location.origin}/v1/responses`)} -H 'Content-Type: application/json'`,
		hasKey() && `-H "Authorization: Bearer $GROUNDWIRE_KEY"`,
		search !== "auto" && `-H 'X-Groundwire-Search: ${search}'`,
		`-d ${quoted(JSON.stringify(body, null, 2))}`,
	];
	return lines.filter(Boolean).join(" \\\n  ") + "\n";
}

// Texts, lists and mappings look the same in JSON and in Python.
export function asPython({ body, search }) {
	const key = hasKey() ? 'os.environ["GROUNDWIRE_KEY"]' : '"none"';
	const headers = search === "auto" ? "" : `\n    extra_headers={"X-Groundwire-Search": "${search}"},`;
	return `${hasKey() ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url="${location.origin}/v1", api_key=${key})
response = client.responses.create(
    model=${JSON.stringify(body.model)},
    input=${JSON.stringify(body.input)},${headers}
)
print(response.output_text)
for item in response.output:
    for part in getattr(item, "content", None) or []:
        for cited in part.annotations:
            print(cited.title, cited.url)
`;
}
