// Asking the server. Handed a path and a request; hands on its answer, or throws a Refused that says what to do.
// The key, where one is needed, is held in this module's memory and nowhere else.

const REQUEST_ID = "x-request-id";
let key = "";
let askForKey = async () => "";

export const hasKey = () => key !== "";

// `ask(why)` shows the key prompt and resolves with what was typed; with nothing if it was closed.
export function onKeyWanted(ask) {
  askForKey = ask;
}

export class Refused extends Error {
  constructor(message, { status = 0, code = "", id = "", advice = "" } = {}) {
    super(message);
    Object.assign(this, { status, code, id, advice });
  }
}

const ADVICE = {
  401: "Enter a key that this server knows. Its operator finds the keys under `server.keys` in config.yaml.",
  403: "Ask the operator of this server for a key that may do this.",
  404: "Choose another model, or ask the operator which models there are.",
  413: "Ask a shorter question, or begin a new conversation.",
  429: "Wait a moment and ask again.",
  500: "Ask again. If it fails again, `groundwire check` says what is wrong with the model's server.",
  502: "The model's server does not do what it should. `groundwire check` says what is wrong with it.",
  503: "The server is busy. Wait a moment and ask again.",
  504: "It took too long. Ask again, or ask another model.",
};

export async function ask(path, { method = "GET", body, headers = {}, signal } = {}) {
  for (;;) {
    const answer = await send(path, { method, body, headers, signal });
    if (answer.ok) return answer;
    const refused = await refusal(answer);
    if (refused.status !== 401 || refused.code === "upstream_auth") throw refused;
    const given = await askForKey(key ? "This key is not known here." : "");
    if (!given) throw refused;
    key = given;
  }
}

export const askJson = async (path, more) => (await ask(path, more)).json();

async function send(path, { method, body, headers, signal }) {
  const sent = new Headers(headers);
  if (key) sent.set("authorization", `Bearer ${key}`);
  if (body !== undefined) sent.set("content-type", "application/json");
  try {
    return await fetch(path, { method, headers: sent, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Refused("The server does not answer.", { advice: "Is it still running? Ask again when it is." });
  }
}

async function refusal(answer) {
  const said = await answer.json().catch(() => ({}));
  const error = said.error ?? {};
  const wait = answer.headers.get("retry-after");
  const advice = wait ? `Ask again in ${wait} s.` : ADVICE[answer.status];
  const message = error.message || `The server answered with status ${answer.status}.`;
  return new Refused(message, {
    status: answer.status,
    code: String(error.code ?? ""),
    id: answer.headers.get(REQUEST_ID) ?? "",
    advice: advice ?? "",
  });
}

// The same for an error that comes in the middle of a stream. `status` is what the model's server said, if it did.
export const refusedLater = (error, id, status = 0) =>
  new Refused(error.message || "The answer broke off.", {
    status,
    code: String(error.code ?? ""),
    id,
    advice: ADVICE[status] ?? "Ask again, or ask another model.",
  });

export const requestId = (answer) => answer.headers.get(REQUEST_ID) ?? "";
