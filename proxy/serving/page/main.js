// Where the page starts: its three views, the keys of the keyboard that count everywhere, and the prompt for a key.

import { startAsk, stop } from "./ask.js";
import { closeCard, startCard } from "./card.js";
import { one } from "./elements.js";
import { showHealth } from "./health.js";
import { showRequests, startRequests } from "./requests.js";
import { onKeyWanted } from "./server.js";

const VIEWS = { ask: () => {}, requests: showRequests, health: showHealth };

function route() {
	const [named, ...more] = location.hash.slice(1).split("/");
	const view = named in VIEWS ? named : "ask";
	for (const tab of document.querySelectorAll("nav a")) {
		const name = tab.hash.slice(1);
		one(tab.hash).hidden = name !== view;
		tab.ariaCurrent = name === view ? "page" : null;
		if (name === view) document.title = `${tab.textContent} · Groundwire`;
	}
	closeCard();
	VIEWS[view](more.join("/"));
}

function onKey(event) {
	const within = (names) => event.target.closest?.(names);
	if (event.key === "Escape" && !within("dialog")) {
		if (closeCard() || stop()) event.preventDefault();
	} else if (event.key === "/" && !within("input, textarea, select, dialog") && !event.ctrlKey && !event.metaKey) {
		event.preventDefault();
		location.hash = "#ask";
		one("#question").focus();
	}
}

// Several questions may be refused at once; they wait for the same prompt.
let prompted = null;

function promptForKey(why) {
	prompted ??= new Promise((given) => {
		const dialog = one("#key-dialog");
		one("#key-why").textContent = why;
		dialog.returnValue = "";
		dialog.onclose = () => given(dialog.returnValue && one("#key").value.trim());
		dialog.showModal();
	}).finally(() => {
		prompted = null;
		one("#key").value = "";
	});
	return prompted;
}

onKeyWanted(promptForKey);
one("#key-cancel").onclick = () => one("#key-dialog").close();
one("#health-refresh").onclick = showHealth;
startCard();
startRequests();
addEventListener("hashchange", route);
document.addEventListener("keydown", onKey);
route();
startAsk();
