// The parts of the run page that change with its state: reloaded from the server and swapped in one by one.

import { released } from "../../pressing.js";
import { localise } from "../../times.js";

const PAUSE_MS = 400;
const AGAIN_MS = 2000;
/** Elements that the user is using or has opened, and that must not be replaced. */
const BUSY = "dialog[open], details.menu[open], form[data-editing], .htmx-request, input:focus, textarea:focus, select:focus";
const FOLDS = "details:not(.menu)";
const FOCUSABLE = "summary, a[href], button";
const FIELDS = "input, select, textarea";

export class Regions {
  /** @param {string} url */
  constructor(url) {
    this.url = url;
    this.timer = 0;
    this.plannedFor = 0;
    this.asked = 0;
    this.reading = false;
    this.state = stateOf(document);
    this.told = this.state;
    /** @type {Map<string, boolean>} the state of each fold that the server last sent; the user may have changed it */
    this.wanted = new Map();
    for (const region of document.querySelectorAll("[data-region]")) for (const [key, fold] of folds(region)) this.wanted.set(key, fold.open);
    document.body.addEventListener("htmx:afterSwap", () => this.overtaken());
  }

  /** Drops a reading that was asked for before the user's own request was answered: it may not know what that request changed. */
  overtaken() {
    if (!this.reading) return;
    this.asked += 1;
    this.reading = false;
    this.refresh();
  }

  /** Handles the run's current state. What is shown may be older, or newer than any state the feed has reported. @param {string} state */
  follow(state) {
    this.told = state;
    if (state !== this.state) this.refresh();
  }

  /** Reloads soon, and again later if the user is busy or the web process isn't responding. More news doesn't postpone a planned reload. */
  refresh(wait = PAUSE_MS) {
    const at = performance.now() + wait;
    if (this.timer && this.plannedFor <= at) return;
    clearTimeout(this.timer);
    this.plannedFor = at;
    this.timer = setTimeout(() => void this.read(), wait);
  }

  async read() {
    this.timer = 0;
    const mine = ++this.asked;
    this.reading = true;
    const text = await textOf(this.url);
    // Responses may overtake each other, so only the one to the last request is used.
    if (mine !== this.asked) return;
    this.reading = false;
    if (text === "") return;
    if (text === null || !this.swap(text) || this.state !== this.told) this.refresh(AGAIN_MS);
  }

  /** @param {string} text @returns {boolean} whether all parts could be replaced */
  swap(text) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    localise(fresh);
    this.state = stateOf(fresh);
    let whole = true;
    for (const region of fresh.querySelectorAll("[data-region]")) {
      const old = document.getElementById(region.id);
      if (!old) continue;
      const wanted = new Map([...folds(region)].map(([key, fold]) => [key, fold.open]));
      this.keepFolds(old, region);
      if (!same(old, region)) {
        if (old.querySelector(BUSY)) {
          whole = false;
          continue;
        }
        put(old, document.adoptNode(region));
      }
      for (const [key, open] of wanted) this.wanted.set(key, open);
    }
    return whole;
  }

  /** Keeps folds as the user has them, except those whose state the server has changed. @param {Element} old @param {Element} region */
  keepFolds(old, region) {
    const before = folds(old);
    for (const [key, fold] of folds(region)) {
      const was = before.get(key);
      // A fold that came in another way, such as with the response to a form, is kept as the user has it.
      if (was && (this.wanted.get(key) ?? fold.open) === fold.open) fold.open = was.open;
    }
  }
}

const stateOf = (/** @type {Document} */ part) => part.querySelector("[data-state]")?.getAttribute("data-state") ?? "";

/** @param {Element} old @param {Element} region */
function put(old, region) {
  keepChoices(old, region);
  const focused = [...old.querySelectorAll(FOCUSABLE)].findIndex((element) => element === document.activeElement);
  const label = document.activeElement?.textContent;
  old.replaceWith(region);
  const again = region.querySelectorAll(FOCUSABLE)[focused];
  // The keyboard focus is kept if its element still exists.
  if (again instanceof HTMLElement && (again.localName === "summary" || again.textContent === label)) again.focus({ preventScroll: true });
  htmxOf()?.process(region);
}

/** Keeps what the user has chosen or entered but not yet submitted. @param {Element} old @param {Element} region */
function keepChoices(old, region) {
  for (const field of /** @type {NodeListOf<HTMLInputElement | HTMLSelectElement>} */ (old.querySelectorAll(FIELDS))) {
    if (field.value === first(field)) continue;
    const again = /** @type {typeof field | null} */ (region.querySelector(`${field.localName}[name="${CSS.escape(field.name)}"]`));
    if (again instanceof HTMLSelectElement && ![...again.options].some((option) => option.value === field.value)) continue;
    if (again) again.value = field.value;
  }
}

/** The value that the server set in a field. @param {HTMLInputElement | HTMLSelectElement} field */
function first(field) {
  if (!(field instanceof HTMLSelectElement)) return field.defaultValue;
  return ([...field.options].find((option) => option.defaultSelected) ?? field.options[0])?.value;
}

/** Each fold of a region, by the region's id and its place. @param {Element} region @returns {Map<string, HTMLDetailsElement>} */
function folds(region) {
  const all = /** @type {HTMLDetailsElement[]} */ ([...region.querySelectorAll(FOLDS)]);
  return new Map(all.map((fold, i) => [`${region.id} ${i}`, fold]));
}

/** Whether two regions are equal, ignoring ages, which keep counting, and a fix's changes, which are loaded separately.
 * @param {Element} old @param {Element} region */
function same(old, region) {
  const bare = (/** @type {string} */ html) =>
    html
      .replace(/ data-age="\d+">[^<]*/g, ">")
      .replace(/name="csrfmiddlewaretoken" value="\w+"/g, "")
      .replace(/<div class="fix-changes[\s\S]*?<\/div>/g, "");
  return bare(old.innerHTML) === bare(region.innerHTML);
}

const htmxOf = () => /** @type {any} */ (window).htmx;

/** Fetches a part of the page and waits until nothing is pressed; null while the web process isn't responding. @param {string} url */
export async function textOf(url) {
  try {
    const response = await fetch(url);
    // Signed out, or the run no longer exists: the socket reports it, and retrying would not help.
    const text = response.ok ? await response.text() : response.status >= 500 ? null : "";
    await released();
    return text;
  } catch {
    return null;
  }
}
