// The view in which questions are asked. Handed what is typed; sends it like any client of /v1/responses, and lets a
// turn draw what comes. A follow-up names the answer before it; what the server has not kept is sent again.

import { element, icon, one, sentence } from "./elements.js";
import { ask, askJson, Refused, requestId } from "./server.js";
import { events } from "./stream.js";
import { Turn } from "./turn.js";

const HEADERS = { "X-Groundwire-Trace": "on", "X-Groundwire-Citations": "none" };
let turns = [];
let running = null; // { turn, abort }

export async function startAsk() {
  const form = one("#ask-form");
  const question = one("#question");
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (running) stop();
    else if (question.value.trim()) send(question.value.trim());
  });
  question.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    if (!running) form.requestSubmit();
  });
  question.addEventListener("input", () => fit(question));
  one("#new").addEventListener("click", begin);
  begin();
  await listModels();
}

export function stop() {
  running?.abort.abort();
  return Boolean(running);
}

async function listModels() {
  const select = one("#model");
  try {
    const { data } = await askJson("/v1/models");
    select.replaceChildren(...data.map(({ id }) => element("option", { value: id }, id)));
    if (!data.length) notice("No model is there yet. The command `groundwire check` says why.");
  } catch (error) {
    notice(`${error.message} ${error.advice ?? ""}`);
  }
}

function notice(text) {
  one("#notice").replaceChildren(...sentence(text));
}

function begin() {
  stop();
  turns = [];
  one("#turns").replaceChildren();
  showState();
  one("#question").focus();
}

// Requests

function chosen() {
  const search = one('input[name="search"]:checked').value;
  return { model: one("#model").value, search };
}

// What the model must know of the conversation: the answer before, by its id, if the server keeps it; what was stopped
// or is forgotten, in full.
function conversation(question, forgotten) {
  const said = turns.filter((turn) => turn.text);
  const kept = forgotten ? -1 : said.findLastIndex((turn) => turn.state === "done" && turn.responseId);
  const rest = said.slice(kept + 1).flatMap((turn) => [
    { role: "user", content: turn.question },
    { role: "assistant", content: turn.text },
  ]);
  const input = rest.length ? [...rest, { role: "user", content: question }] : question;
  return kept < 0 ? { input } : { input, previous_response_id: said[kept].responseId };
}

function request(question, forgotten = false) {
  const { model, search } = chosen();
  const body = { model, ...conversation(question, forgotten), stream: true };
  const headers = search === "auto" ? HEADERS : { ...HEADERS, "X-Groundwire-Search": search };
  return { body, search, headers };
}

async function post(question, signal) {
  const sent = request(question);
  const body = { ...sent.body, include: ["web_search_call.results"] };
  try {
    return await ask("/v1/responses", { method: "POST", body, headers: sent.headers, signal });
  } catch (error) {
    if (error.code !== "previous_response_not_found") throw error;
    const again = { ...request(question, true).body, include: body.include };
    return ask("/v1/responses", { method: "POST", body: again, headers: sent.headers, signal });
  }
}

// One question

async function send(question) {
  const turn = new Turn(question, announce);
  const abort = new AbortController();
  const again = () => !running && send(question);
  turn.request = { ...request(question, true), body: { ...request(question, true).body, stream: undefined } };
  running = { turn, abort };
  one("#turns").append(turn.view);
  one("#question").value = "";
  fit(one("#question"));
  showState();
  turn.view.scrollIntoView({ block: "start" });
  try {
    await read(turn, await post(question, abort.signal));
    turn.finish(again);
    keep(turn);
  } catch (error) {
    end(turn, error, abort.signal.aborted, again);
  } finally {
    if (running?.turn === turn) running = null;
    showState();
  }
}

async function read(turn, answer) {
  turn.requestId = requestId(answer);
  turn.header = answer.headers.get("x-groundwire-search") ?? "";
  let last = "";
  for await (const event of events(answer.body)) {
    turn.take(event);
    last = event.type;
  }
  if (!["response.completed", "response.incomplete"].includes(last)) {
    throw new Refused("The connection broke off in the middle of the answer.", { id: turn.requestId, advice: "Ask again." });
  }
}

function end(turn, error, stopped, again) {
  if (stopped) turn.stop(again);
  else turn.fail(error instanceof Refused ? error : broken(error, turn), again);
  if (turn.text) keep(turn);
}

// Unless a new conversation has begun meanwhile.
function keep(turn) {
  if (turn.view.isConnected) turns.push(turn);
}

function broken(error, turn) {
  if (!(error instanceof TypeError)) console.error(error);
  return new Refused("The connection broke off.", { id: turn.requestId, advice: "Is the server still running? Ask again." });
}

// The form

function fit(field) {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, 240)}px`;
}

function announce(text) {
  one("#announcer").textContent = text;
}

function showState() {
  const button = one("#send");
  const empty = !one("#turns").childElementCount;
  one("#ask").classList.toggle("empty", empty);
  one("#new").hidden = empty;
  button.replaceChildren(icon(running ? "stop" : "send"));
  button.setAttribute("aria-label", running ? "Stop" : "Ask");
  button.title = running ? "Stop (Esc)" : "Ask (Enter)";
  one("#question").placeholder = empty ? "Ask anything" : "Ask a follow-up";
}
