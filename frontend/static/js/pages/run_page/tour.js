// The tour of the run page: a card next to each stop, which never blocks the page. Once finished or skipped, the tour
// doesn't start automatically again.

const GAP = 10;
const EDGE = 8;
const NARROW = 700;
const RING = 4;

const card = document.getElementById("tour");
const ring = document.getElementById("tour-ring");
const stops = /** @type {HTMLElement[]} */ ([...(card?.querySelectorAll("[data-at]") ?? [])]);
const next = /** @type {HTMLButtonElement | null} */ (card?.querySelector("[data-next]") ?? null);
let at = 0;

/** The first visible element of a stop. @param {HTMLElement} stop */
function place(stop) {
  for (const places of (stop.dataset.at ?? "").split("|")) {
    const found = [...document.querySelectorAll(places)].find((each) => each.getBoundingClientRect().height > 0);
    if (found) return found;
  }
  return null;
}

function show() {
  if (!card || !next) return;
  stops.forEach((stop, number) => (stop.hidden = number !== at));
  const count = card.querySelector("[data-count]");
  if (count) count.textContent = `${at + 1} of ${stops.length}`;
  next.textContent = at + 1 < stops.length ? "Next" : "Done";
  place(stops[at])?.scrollIntoView({ block: "nearest" });
  const shown = !card.hidden;
  card.hidden = false;
  if (!shown) follow();
}

/** Follows the stop's element, since it may move or be replaced on a live page. */
function follow() {
  if (!card || card.hidden) return;
  stand(place(stops[at]));
  requestAnimationFrame(follow);
}

/** Places the ring around the stop, and the card below it, above it if there is no room, or in a narrow window at the
 * bottom. @param {Element | null} target */
function stand(target) {
  if (!card || !ring) return;
  ring.hidden = !target;
  if (!target) return;
  const around = target.getBoundingClientRect();
  put(ring, around.top - RING, around.left - RING);
  ring.style.width = `${around.width + 2 * RING}px`;
  ring.style.height = `${around.height + 2 * RING}px`;
  if (innerWidth <= NARROW) {
    card.style.top = card.style.left = "";
    return;
  }
  const { width, height } = card.getBoundingClientRect();
  const below = Math.max(EDGE, around.bottom + GAP);
  const top = below + height < innerHeight - EDGE ? below : Math.max(EDGE, around.top - GAP - height);
  put(card, top, Math.max(EDGE, Math.min(around.left, document.documentElement.clientWidth - width - EDGE)));
}

/** @param {HTMLElement} element @param {number} top @param {number} left */
function put(element, top, left) {
  element.style.top = `${top}px`;
  element.style.left = `${left}px`;
}

function end() {
  if (!card || card.hidden) return;
  card.hidden = true;
  if (ring) ring.hidden = true;
  const headers = JSON.parse(document.body.getAttribute("hx-headers") ?? "{}");
  // If the network is down, the next run's page starts the tour once more.
  fetch(card.dataset.seen ?? "", { method: "POST", headers, keepalive: true }).catch(() => {});
}

export function begin() {
  at = 0;
  show();
  next?.focus({ preventScroll: true });
}

next?.addEventListener("click", () => {
  at += 1;
  if (at < stops.length) show();
  else end();
});
card?.querySelector("[data-skip]")?.addEventListener("click", end);
card?.addEventListener("keydown", (event) => event.key === "Escape" && end());
document.querySelector("[data-tour]")?.addEventListener("click", begin);
if (card?.hasAttribute("data-tour-begins")) begin();
