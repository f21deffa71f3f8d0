// Asking the server. Handed a path and a request; hands on the answer, or throws a Refused that says what to do.
// The key, where one is needed, is held in this module's memory and nowhere else.

let key = "";
let askForKey;
const BUSY = "Wait a moment and ask again.";
const CHECK = "`groundwire check` says what is wrong with the model's server.";
const ADVICE = {
	401: "Enter a key that this server knows; they stand under `server.keys` in its config.",
	403: "Ask the operator of this server for a key that may do this.",
	404: "Choose another model.",
	413: "Begin a new conversation, or ask a shorter question.",
	429: BUSY,
	500: CHECK,
	502: CHECK,
	503: BUSY,
};

export const hasKey = () => key !== "";

export function onKeyWanted(prompt) {
	askForKey = prompt;
}

export class Refused extends Error {
	constructor(message, { status = 0, code = "", id = "", advice } = {}) {
		super(message);
		Object.assign(this, { status, code, id, advice: advice ?? ADVICE[status] ?? "Ask again, or ask another model." });
	}
}

export async function ask(path, options = {}) {
	for (;;) {
		const answer = await send(path, options);
		if (answer.ok) return answer;
		const { error = {} } = await answer.json().catch(() => ({}));
		const { status, headers } = answer;
		const wait = headers.get("retry-after");
		const advice = wait ? `Ask again in ${wait} s.` : undefined;
		const message = error.message || `The server answered with status ${status}.`;
		const refused = new Refused(message, { status, code: error.code, id: headers.get("x-request-id"), advice });
		const given = status === 401 && (await askForKey(key && "This key is not known here."));
		if (!given) throw refused;
		key = given;
	}
}

export const askJson = async (path) => (await ask(path)).json();

async function send(path, { body, headers, signal }) {
	const sent = new Headers(headers);
	if (key) sent.set("authorization", `Bearer ${key}`);
	if (body) sent.set("content-type", "application/json");
	const method = body ? "POST" : "GET";
	try {
		return await fetch(path, { method, headers: sent, body: body && JSON.stringify(body), signal, cache: "no-store" });
	} catch (error) {
		if (error.name === "AbortError") throw error;
		throw new Refused("The server does not answer.", { advice: "Is it still running? Ask again when it is." });
	}
}
