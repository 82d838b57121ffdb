// Pages that poll every few seconds: not while they are hidden or something is pressed, and open folds stay open.

import { pressed } from "./pressing.js";

const asks = (/** @type {unknown} */ part) => part instanceof Element && /every/.test(part.getAttribute("hx-trigger") ?? "");

document.body.addEventListener("htmx:beforeRequest", (event) => {
  if (asks(event.target) && (document.hidden || pressed())) event.preventDefault();
});

/** @type {string[]} ids of the open folds */
let unfolded = [];
document.body.addEventListener("htmx:beforeSwap", (event) => {
  const { detail } = /** @type {CustomEvent} */ (event);
  // Requested before the press; the next response has the same content.
  if (pressed() && asks(detail.requestConfig?.elt)) detail.shouldSwap = false;
  unfolded = [...document.querySelectorAll("details[id][open]")].map((part) => part.id);
});
document.body.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
});
