// The view in which questions are asked. Handed what is typed; sends it like any client of /v1/responses, and lets a
// turn draw what comes.

import { element, icon, one, sentence } from "./elements.js";
import { ask, askJson, Refused } from "./server.js";
import { events } from "./stream.js";
import { Turn } from "./turn.js";

const HEADERS = { "X-Groundwire-Trace": "on", "X-Groundwire-Citations": "none" };
let turns = []; // whose text belongs to the conversation
let running = null; // { turn, abort }

export async function startAsk() {
	const form = one("#ask-form");
	const question = one("#question");
	form.onsubmit = (event) => {
		event.preventDefault();
		if (!stop() && question.value.trim()) send(question.value.trim());
	};
	question.onkeydown = (event) => {
		if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
		event.preventDefault();
		if (!running) form.requestSubmit();
	};
	question.oninput = () => write(question.value);
	one("#new").onclick = begin;
	begin();
	await listModels();
}

export function stop() {
	running?.abort.abort();
	return Boolean(running);
}

async function listModels() {
	try {
		const { data } = await askJson("/v1/models");
		one("#model").replaceChildren(...data.map(({ id }) => element("option", {}, id)));
		if (!data.length) throw new Refused("No model is there yet.", { advice: "`groundwire check` says why." });
	} catch ({ message, advice = "" }) {
		one("#notice").replaceChildren(...sentence(`${message} ${advice}`));
	}
}

function begin() {
	stop();
	turns = [];
	one("#turns").replaceChildren();
	showState();
	one("#question").focus();
}

// What the model must know: the answer before, by its id, if the server keeps it; what was stopped or forgotten, in full.
function conversation(question, forgotten) {
	const kept = forgotten ? -1 : turns.findLastIndex(({ state }) => state === "done");
	const said = turns.slice(kept + 1).flatMap(({ question: asked, text }) => [
		{ role: "user", content: asked },
		{ role: "assistant", content: text },
	]);
	const input = said.length ? [...said, { role: "user", content: question }] : question;
	return { input, previous_response_id: turns[kept]?.responseId };
}

async function post(question, { body, search }, signal) {
	const headers = search === "auto" ? HEADERS : { ...HEADERS, "X-Groundwire-Search": search };
	const more = { stream: true, include: ["web_search_call.results"] };
	const short = { ...body, ...conversation(question, false), ...more };
	try {
		return await ask("/v1/responses", { body: short, headers, signal });
	} catch (error) {
		if (error.code !== "previous_response_not_found") throw error;
		return ask("/v1/responses", { body: { ...body, ...more }, headers, signal });
	}
}

async function send(question) {
	const search = one('input[name="search"]:checked').value;
	const request = { search, body: { model: one("#model").value, ...conversation(question, true) } };
	const turn = new Turn(question, request, announce);
	const abort = new AbortController();
	const again = () => !running && send(question);
	running = { turn, abort };
	one("#turns").append(turn.view);
	write("");
	showState();
	turn.view.scrollIntoView();
	try {
		await read(turn, await post(question, request, abort.signal));
		turn.finish(again);
	} catch (error) {
		if (abort.signal.aborted) turn.stop(again);
		else turn.fail(error instanceof Refused ? error : brokenOff(turn), again);
	} finally {
		if (running.turn === turn) running = null;
		if (turn.view.isConnected && turn.text) turns.push(turn); // else a new conversation has begun
		showState();
	}
}

async function read(turn, answer) {
	turn.requestId = answer.headers.get("x-request-id");
	let last = "";
	for await (const event of events(answer.body)) {
		turn.take(event);
		last = event.type;
	}
	if (!/^response\.(completed|incomplete)$/.test(last)) throw brokenOff(turn);
}

const brokenOff = ({ requestId: id }) =>
	new Refused("The connection broke off.", { id, advice: "Is the server still running? Ask again." });

function write(text) {
	const field = one("#question");
	field.value = text;
	field.style.height = "auto";
	field.style.height = `${field.scrollHeight}px`;
}

function announce(text) {
	one("#announcer").textContent = text;
}

function showState() {
	const empty = !one("#turns").childElementCount;
	const label = running ? "Stop" : "Ask";
	one("#ask").classList.toggle("empty", empty);
	one("#new").hidden = empty;
	one("#send").replaceChildren(icon(running ? "stop" : "send"));
	one("#send").ariaLabel = one("#send").title = label;
	one("#question").placeholder = empty ? "Ask anything" : "Ask a follow-up";
}
