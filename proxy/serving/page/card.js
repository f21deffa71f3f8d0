// The card that shows a source. Handed a chip and what its card holds; shows it while the chip is pointed at, has the
// focus or was tapped. There is one card, beside everything else, and Escape closes it.

import { one } from "./elements.js";

const EDGE = 12; // pixels to the window's edge
const LEAVING = 160; // milliseconds in which the pointer may reach the card
let shownFor = null;
let closing = 0;

export function showCard(chip, content) {
  const show = () => open(chip, content());
  chip.addEventListener("pointerenter", (event) => event.pointerType === "mouse" && show());
  chip.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && closeSoon());
  chip.addEventListener("focus", show);
  chip.addEventListener("blur", closeSoon);
  chip.addEventListener("click", (event) => {
    // A tap shows; the way to the source is in the card then.
    if (event.pointerType !== "mouse" && event.detail > 0) event.preventDefault();
    show();
  });
}

export function closeCard() {
  if (!shownFor) return false;
  shownFor.removeAttribute("aria-describedby");
  shownFor = null;
  one("#card").hidden = true;
  return true;
}

function open(chip, content) {
  clearTimeout(closing);
  if (shownFor === chip) return;
  closeCard();
  const card = one("#card");
  card.replaceChildren(...content.filter(Boolean));
  card.hidden = false;
  chip.setAttribute("aria-describedby", "card");
  shownFor = chip;
  place(card, chip.getBoundingClientRect());
}

function closeSoon() {
  clearTimeout(closing);
  closing = setTimeout(closeCard, LEAVING);
}

function place(card, chip) {
  const { width, height } = card.getBoundingClientRect();
  const left = Math.min(Math.max(chip.left - 20, EDGE), window.innerWidth - width - EDGE);
  const below = chip.bottom + height + EDGE < window.innerHeight;
  card.style.left = `${left}px`;
  card.style.top = `${below ? chip.bottom + 6 : Math.max(EDGE, chip.top - height - 6)}px`;
}

export function startCard() {
  const card = one("#card");
  card.addEventListener("pointerenter", () => clearTimeout(closing));
  card.addEventListener("pointerleave", closeSoon);
  document.addEventListener("scroll", closeCard, { passive: true });
  document.addEventListener("pointerdown", (event) => {
    if (!card.contains(event.target) && !shownFor?.contains(event.target)) closeCard();
  });
}
