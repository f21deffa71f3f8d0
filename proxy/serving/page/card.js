// The one card, which shows a source. Handed a chip and what its card holds; shows it while the chip is pointed at, has
// the focus or was tapped.

import { one } from "./elements.js";

const EDGE = 12; // pixels to the window's edge
const LEAVING = 160; // milliseconds in which the pointer may reach the card
let shownFor = null;
let closing = 0;

export function showCard(chip, content) {
	const show = () => open(chip, content());
	chip.onpointerenter = ({ pointerType }) => pointerType === "mouse" && show();
	chip.onfocus = show;
	chip.onpointerleave = chip.onblur = closeSoon;
	chip.onclick = (event) => {
		if (event.pointerType === "touch") event.preventDefault(); // a tap shows; the way to the source is in the card
		show();
	};
}

export function closeCard() {
	const shown = shownFor;
	shown?.removeAttribute("aria-describedby");
	shownFor = null;
	one("#card").hidden = true;
	return Boolean(shown);
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
	const at = chip.getBoundingClientRect();
	const { width, height } = card.getBoundingClientRect();
	const below = at.bottom + height + EDGE < innerHeight;
	card.style.left = `${Math.min(Math.max(at.left - 20, EDGE), innerWidth - width - EDGE)}px`;
	card.style.top = `${below ? at.bottom + 6 : Math.max(EDGE, at.top - height - 6)}px`;
}

function closeSoon() {
	clearTimeout(closing);
	closing = setTimeout(closeCard, LEAVING);
}

export function startCard() {
	const card = one("#card");
	card.onpointerenter = () => clearTimeout(closing);
	card.onpointerleave = closeSoon;
	document.addEventListener("scroll", closeCard, { passive: true });
	document.addEventListener("pointerdown", ({ target }) => {
		if (!card.contains(target) && !shownFor?.contains(target)) closeCard();
	});
}
