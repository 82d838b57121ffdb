// Pages that ask again every few seconds: not while nobody sees them, not under a finger, and what was unfolded stays so.

import { pressed } from "./pressing.js";

const asks = (/** @type {unknown} */ part) => part instanceof Element && /every/.test(part.getAttribute("hx-trigger") ?? "");

document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (asks(event.target) && (document.hidden || pressed())) event.preventDefault();
});

/** @type {string[]} ids of what is unfolded */
let unfolded = [];
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = /** @type {CustomEvent} */ (event);
  // Asked for before the press: the next answer says it again.
  if (pressed() && asks(detail.requestConfig?.elt)) detail.shouldSwap = false;
  unfolded = [...document.querySelectorAll("details[id][open]")].map((part) => part.id);
});
document.body.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
});
