// Why a view has nothing to show. Handed a place and the server's refusal; says there what is wrong and what to do.

import { element, icon, sentence } from "./elements.js";

export function showProblem(place, error) {
  const admin = error.code === "admin_only" || error.status === 403;
  const message = admin ? "Only the operator may see this." : error.message;
  const advice = admin ? "Your key has no `admin: true` in `server.keys`. Reload the page to enter another one." : error.advice;
  place.replaceChildren(
    element("div", { class: "error", role: "alert" }, element("p", {}, icon("warning"), ...sentence(message)), element("p", { class: "advice" }, ...sentence(advice ?? ""))),
  );
}
