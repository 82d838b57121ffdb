// The tour of the run page: a card beside each stop, which never blocks the page. Ended or skipped, it is over for good.

const GAP = 10;
const EDGE = 8;
const NARROW = 700;

const card = document.getElementById("tour");
const stops = /** @type {HTMLElement[]} */ ([...(card?.querySelectorAll("[data-at]") ?? [])]);
const next = /** @type {HTMLButtonElement | null} */ (card?.querySelector("[data-next]") ?? null);
let at = 0;

/** The first of a stop's places that is in sight. @param {HTMLElement} stop */
function place(stop) {
  for (const places of (stop.dataset.at ?? "").split("|")) {
    const found = [...document.querySelectorAll(places)].find((each) => each.getBoundingClientRect().height > 0);
    if (found) return found;
  }
  return null;
}

function show() {
  const target = place(stops[at]);
  if (!card || !next) return;
  document.querySelector(".toured")?.classList.remove("toured");
  stops.forEach((stop, number) => (stop.hidden = number !== at));
  const count = card.querySelector("[data-count]");
  if (count) count.textContent = `${at + 1} of ${stops.length}`;
  next.textContent = at + 1 < stops.length ? "Next" : "Done";
  card.hidden = false;
  target?.classList.add("toured");
  target?.scrollIntoView({ block: "nearest" });
  stand(target);
}

/** Below the stop, or above it where there is no room; a narrow window has it at its foot. @param {Element | null} target */
function stand(target) {
  if (!card) return;
  card.style.top = card.style.left = "";
  if (!target || innerWidth <= NARROW) return;
  const around = target.getBoundingClientRect();
  const { width, height } = card.getBoundingClientRect();
  const below = around.bottom + GAP;
  card.style.top = `${below + height < innerHeight - EDGE ? below : Math.max(EDGE, around.top - GAP - height)}px`;
  card.style.left = `${Math.max(EDGE, Math.min(around.left, innerWidth - width - EDGE))}px`;
}

function end() {
  if (!card || card.hidden) return;
  card.hidden = true;
  document.querySelector(".toured")?.classList.remove("toured");
  const headers = JSON.parse(document.body.getAttribute("hx-headers") ?? "{}");
  // Should the network be away, the next run's page begins it once more.
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
addEventListener("resize", () => card && !card.hidden && stand(place(stops[at])));
addEventListener("scroll", () => card && !card.hidden && stand(place(stops[at])), { passive: true });
document.querySelector("[data-tour]")?.addEventListener("click", begin);
if (card?.hasAttribute("data-tour-begins")) begin();
