// The list of runs: its address holds the query; when a socket reports a change, it reloads the rows.

import { connectionBar } from "../live/connection.js";
import { Feed } from "../live/feed.js";
import { Rows } from "./rows.js";
import { Selection } from "./selection.js";

const PAUSE_MS = 1000;
/** Delay if no row on this page has changed; the counts above may be a little older. */
const LONG_PAUSE_MS = 5000;
/** Wait after a request, in multiples of its duration: a slow server is polled less often. */
const EASE = 10;
const TYPING_MS = 250;

const list = /** @type {HTMLElement} */ (document.getElementById("run-list"));
const news = /** @type {HTMLButtonElement} */ (document.getElementById("list-news"));
const form = /** @type {HTMLFormElement} */ (document.getElementById("filters"));
const columnsField = /** @type {HTMLInputElement} */ (form.elements.namedItem("columns"));
const boxes = /** @type {HTMLInputElement[]} */ ([...document.querySelectorAll("input[data-column]")]);
const csv = /** @type {HTMLAnchorElement} */ (document.querySelector("[data-csv]"));
const selection = new Selection(list, /** @type {HTMLElement} */ (document.getElementById("selection")));
const rows = new Rows(list, news, () => {
  selection.restore();
  again();
});

/** @type {AbortController | null} */
let asking = null;
let asked = 0;
let took = 0;
/** @type {number | undefined} */
let planned;
let plannedFor = Infinity;

/** @param {boolean} waits  true if the user requested this, so rows are replaced wherever the pointer is */
async function refresh(waits) {
  // A user's request doesn't wait for automatic ones.
  if (waits) asking?.abort();
  else if (asking) return soon(PAUSE_MS);
  clearTimeout(planned);
  plannedFor = Infinity;
  const mine = (asking = new AbortController());
  asked = performance.now();
  try {
    const headers = { "HX-Request": "true" };
    const response = await fetch(`${list.dataset.url}${location.search}`, { headers, signal: mine.signal });
    if (response.redirected) location.reload();
    else if (response.ok) void rows.arrive(await response.text(), waits);
    else if (waits) failed();
  } catch {
    // The web process isn't responding: the bar reports it, and rows come with the next connection.
    if (waits && !mine.signal.aborted) failed();
  } finally {
    if (asking === mine) {
      asking = null;
      took = performance.now() - asked;
    }
  }
}

function failed() {
  news.textContent = "The list couldn’t be loaded. Try again";
  news.hidden = false;
  news.addEventListener("click", () => void refresh(true), { once: true });
}

/** @param {number} pause */
function soon(pause) {
  const at = asked + Math.max(pause, EASE * took);
  if (document.hidden || at >= plannedFor) return;
  clearTimeout(planned);
  plannedFor = at;
  planned = setTimeout(() => void refresh(false), Math.max(0, at - performance.now()));
}

/** Polls the progress of the demo's preparation, which no socket reports. */
function again() {
  if (list.querySelector("[data-again]")) soon(PAUSE_MS);
}

/** @param {string} search @param {boolean} step  whether Back leads to the previous state */
function go(search, step) {
  const address = `${list.dataset.url}${search}`;
  if (step) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
  show();
  void refresh(true);
}

/** The form's fields as an address, without those that have no effect. */
function said() {
  const found = new URLSearchParams();
  for (const [name, value] of new FormData(form)) {
    if (value && !(name === "sort" && value === "age")) found.set(name, String(value));
  }
  return found.size ? `?${found}` : "";
}

/** Sets the form and the views from the address. */
function show() {
  const now = new URLSearchParams(location.search);
  let set = 0;
  for (const field of form.elements) {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement)) continue;
    const value = now.get(field.name) ?? (field.name === "sort" ? "age" : "");
    if (field !== document.activeElement || field instanceof HTMLSelectElement) field.value = value;
    if (field.closest(".popup") && field.name !== "sort" && value) set += 1;
  }
  const count = /** @type {HTMLElement} */ (form.querySelector("[data-filters-set]"));
  count.textContent = String(set);
  count.hidden = set === 0;
  for (const box of boxes) box.checked = shownColumns(now.get("columns") ?? "").includes(box.dataset.column ?? "");
  now.delete("page");
  csv.search = String(now);
  now.sort();
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("[data-view]"))) {
    const its = new URL(link.href).searchParams;
    its.sort();
    if (String(its) === String(now)) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

// --- columns ---

const usual = boxes.filter((box) => box.dataset.usual !== undefined).map((box) => box.dataset.column ?? "");
/** @param {string} columns as in the address */
const shownColumns = (columns) => (columns ? columns.split(",") : usual);
const menu = /** @type {HTMLElement} */ (document.getElementById("columns"));
menu.addEventListener("change", (event) => {
  if (!(event.target instanceof HTMLInputElement) || !event.target.dataset.column) return;
  const checked = boxes.filter((box) => box.checked).map((box) => box.dataset.column ?? "");
  // Columns that are shown keep their order; a new one comes last.
  const before = shownColumns(columnsField.value).filter((key) => checked.includes(key));
  const now = [...before, ...checked.filter((key) => !before.includes(key))];
  const asUsual = now.length === usual.length && usual.every((key) => now.includes(key));
  columnsField.value = asUsual ? "" : now.join(",");
  go(said(), false);
});
menu.addEventListener("input", (event) => {
  if (!(event.target instanceof HTMLInputElement) || event.target.dataset.findColumn === undefined) return;
  const wanted = event.target.value.trim().toLowerCase();
  for (const box of boxes) {
    const label = /** @type {HTMLElement} */ (box.closest("label"));
    label.hidden = !`${label.textContent} ${box.dataset.column}`.toLowerCase().includes(wanted);
  }
});

/** @type {number | undefined} */
let typing;
form.addEventListener("input", (event) => {
  if (!(event.target instanceof HTMLInputElement)) return;
  clearTimeout(typing);
  typing = setTimeout(() => go(said(), false), TYPING_MS);
});
form.addEventListener("change", (event) => {
  if (event.target instanceof HTMLSelectElement) go(said(), true);
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  clearTimeout(typing);
  go(said(), true);
});
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("a[data-list]") : null;
  if (!(link instanceof HTMLAnchorElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  go(link.search, true);
  if (link.rel) scrollTo(0, 0);
});
// The address to which an action returns.
document.addEventListener("submit", (event) => {
  if (!(event.target instanceof HTMLFormElement) || !event.target.matches("[data-back]")) return;
  event.target.querySelector('input[name="back"]')?.remove();
  const back = { type: "hidden", name: "back", value: location.search };
  event.target.append(Object.assign(document.createElement("input"), back));
});
addEventListener("popstate", () => {
  show();
  void refresh(true);
});

// j and k move through the rows, x selects the focused one.
document.addEventListener("keydown", (event) => {
  const typed = event.target instanceof HTMLElement && event.target.matches('input:not([type="checkbox"]), select, textarea');
  if (typed || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const names = /** @type {HTMLElement[]} */ ([...list.querySelectorAll("a.name")]);
  const row = document.activeElement?.closest("tr[id]");
  const at = names.findIndex((name) => row?.contains(name));
  if (event.key === "j") names[Math.min(at + 1, names.length - 1)]?.focus();
  else if (event.key === "k") names[Math.max(at - 1, 0)]?.focus();
  else if (event.key === "x") /** @type {HTMLElement | null} */ (row?.querySelector('input[name="run"]') ?? null)?.click();
});

show();
again();

/** @param {{type: string, runs?: string[]}} frame */
function told(frame) {
  if (frame.type !== "changed") return;
  const here = new Set(rows.ids);
  soon(frame.runs?.some((id) => here.has(id)) ? PAUSE_MS : LONG_PAUSE_MS);
}

const scheme = location.protocol === "https:" ? "wss" : "ws";
const bar = connectionBar();
const feed = new Feed({
  url: `${scheme}://${location.host}${list.dataset.socket}`,
  after: null,
  onFrame: told,
  onState: (state) => {
    bar(state);
    // Changes since the page was rendered, or during an outage, were not received.
    if (state === "open") soon(0);
  },
});
addEventListener("online", () => feed.wake());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  feed.wake();
  soon(0);
});
