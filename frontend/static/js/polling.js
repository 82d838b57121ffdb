// Pages that ask again every few seconds: not while nobody sees them, and not under a finger.

let pressed = false;
addEventListener("pointerdown", () => (pressed = true));
addEventListener("pointerup", () => (pressed = false));
addEventListener("pointercancel", () => (pressed = false));

document.body.addEventListener("htmx:beforeRequest", (event) => {
  const asks = event.target instanceof Element && /every/.test(event.target.getAttribute("hx-trigger") ?? "");
  if (asks && (document.hidden || pressed)) event.preventDefault();
});
