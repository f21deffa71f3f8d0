// What is wrong, and what to do about it. Handed the server's refusal; hands on a box that says so.

import { element, icon, inOneLine, sentence } from "./elements.js";

export const problem = ({ message, advice = "", status, id }, ...more) =>
	element(
		"div",
		{ class: "error", role: "alert" },
		element("p", {}, icon("warning"), " ", ...sentence(message)),
		element("p", {}, ...sentence(advice)),
		element("p", { class: "about" }, inOneLine(status && `Status ${status}`, id)),
		...more,
	);
