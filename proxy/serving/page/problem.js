// Why there is nothing to show. Handed the server's refusal; says what is wrong and what to do.

import { element, icon, sentence } from "./elements.js";

export function problem({ message, advice, status, id }, ...more) {
  const about = [status ? `Status ${status}` : "", id].filter(Boolean).join(" · ");
  return element(
    "div",
    { class: "error", role: "alert" },
    element("p", {}, icon("warning"), ...sentence(message)),
    advice ? element("p", { class: "advice" }, ...sentence(advice)) : "",
    about ? element("p", { class: "about" }, about) : "",
    ...more,
  );
}

export function showProblem(place, refused) {
  const advice = refused.code === "admin_only" ? "Reload the page to enter another key." : refused.advice;
  place.replaceChildren(problem({ ...refused, message: refused.message, advice }));
}
