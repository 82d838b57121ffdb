// Pages that ask again every few seconds: not while nobody sees them, not under a finger, and what was unfolded stays so.

let pressed = false;
addEventListener("pointerdown", () => (pressed = true));
addEventListener("pointerup", () => (pressed = false));
addEventListener("pointercancel", () => (pressed = false));

document.body.addEventListener("htmx:beforeRequest", (event) => {
  const asks = event.target instanceof Element && /every/.test(event.target.getAttribute("hx-trigger") ?? "");
  if (asks && (document.hidden || pressed)) event.preventDefault();
});

/** @type {string[]} ids of what is unfolded */
let unfolded = [];
document.body.addEventListener("htmx:beforeSwap", () => {
  unfolded = [...document.querySelectorAll("details[id][open]")].map((part) => part.id);
});
document.body.addEventListener("htmx:afterSwap", () => {
  for (const id of unfolded) document.getElementById(id)?.setAttribute("open", "");
});
