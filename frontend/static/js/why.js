// The "?" beside a word: a click, a tap, Enter or a resting mouse shows what it is, in one bubble for the whole page;
// F1 does in a field whose "?" Tab passes by.

const REST_MS = 350;
const GAP = 6;
const EDGE = 8;

const bubble = document.createElement("div");
bubble.id = "why";
bubble.className = "why-bubble floating";
bubble.popover = "manual";
bubble.setAttribute("role", "tooltip");

/** @type {HTMLElement | null} whose text is shown */
let shown = null;
/** Opened by a click: it stays when the mouse goes. */
let pinned = false;
/** @type {number | undefined} */
let rest;

/** @param {EventTarget | null} target */
function whyAt(target) {
  const why = target instanceof Element ? target.closest(".why") : null;
  return why instanceof HTMLElement ? why : null;
}

/** @param {HTMLElement} why */
function show(why) {
  if (shown !== why) hide();
  const { why: text = "", whyFrom = "", more = why.getAttribute("href") } = why.dataset;
  const words = text || document.getElementById(whyFrom)?.textContent?.trim() || "";
  bubble.replaceChildren(Object.assign(document.createElement("p"), { textContent: words }));
  if (more) bubble.append(Object.assign(document.createElement("a"), { href: more, textContent: "Glossary" }));
  // In the dialog, if it stands in one: outside, nothing can be pressed meanwhile.
  (why.closest("dialog") ?? document.body).append(bubble);
  bubble.showPopover();
  place(why);
  why.setAttribute("aria-describedby", bubble.id);
  why.setAttribute("aria-expanded", "true");
  shown = why;
}

/** Below the "?", or above where there is no room. @param {HTMLElement} why */
function place(why) {
  const at = why.getBoundingClientRect();
  const { width, height } = bubble.getBoundingClientRect();
  const below = at.bottom + GAP;
  const top = below + height > innerHeight - EDGE ? Math.max(EDGE, at.top - GAP - height) : below;
  const left = Math.min(Math.max(EDGE, at.left - 12), document.documentElement.clientWidth - width - EDGE);
  bubble.style.top = `${top}px`;
  bubble.style.left = `${left}px`;
}

function hide() {
  clearTimeout(rest);
  if (!shown) return;
  shown.removeAttribute("aria-describedby");
  shown.setAttribute("aria-expanded", "false");
  if (bubble.isConnected) bubble.hidePopover();
  shown = null;
  pinned = false;
}

/** Shows or hides the help of the field that has the focus. @param {KeyboardEvent} event */
function help(event) {
  const field = event.target instanceof Element ? event.target.closest(".field") : null;
  const why = whyAt(field?.querySelector(":scope > .why") ?? null);
  if (!why) return;
  event.preventDefault();
  if (shown === why) return hide();
  show(why);
  pinned = true;
}

document.addEventListener(
  "click",
  (event) => {
    const why = whyAt(event.target);
    if (why) {
      event.preventDefault(); // a summary around it stays as it is, and a link leads nowhere
      event.stopPropagation();
      if (shown === why && pinned) return hide();
      show(why);
      pinned = true;
    } else if (!(event.target instanceof Node && bubble.contains(event.target))) {
      hide();
    }
  },
  true,
);

document.addEventListener("pointerover", (event) => {
  if (event.pointerType !== "mouse" || pinned) return;
  const why = whyAt(event.target);
  if (why === shown && why) return clearTimeout(rest);
  clearTimeout(rest);
  if (event.target instanceof Node && bubble.contains(event.target)) return;
  if (why) rest = setTimeout(() => show(why), REST_MS);
  else if (shown) rest = setTimeout(hide, REST_MS);
});

document.addEventListener(
  "keydown",
  (event) => {
    if (event.key === "F1") return help(event);
    if (event.key !== "Escape" || !shown) return;
    event.preventDefault(); // the dialog around it stays open
    event.stopPropagation();
    if (shown.tabIndex >= 0) shown.focus();
    hide();
  },
  true,
);
document.addEventListener("focusin", (event) => {
  const kept = event.target instanceof Node && bubble.contains(event.target);
  if (shown && shown.tabIndex < 0 && !kept && whyAt(event.target) !== shown) hide();
});
// A mouse that rests on a "?" which has just been scrolled to goes on waiting.
for (const moved of ["scroll", "resize"]) addEventListener(moved, () => shown && hide(), { capture: true, passive: true });
document.addEventListener("htmx:beforeSwap", () => shown && !shown.isConnected && hide());
