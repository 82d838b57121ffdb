// Updates the list's rows. Values change at once; rows move only while the pointer and the keyboard focus are elsewhere,
// and until then a button offers the changes. Independent of sockets.

import { released } from "../../pressing.js";

/** @param {ParentNode} part @returns {HTMLElement[]} */
const rowsOf = (part) => [...part.querySelectorAll("tr[id]")].map((row) => /** @type {HTMLElement} */ (row));
/** The parts of a list, which differ between runs, groups and an empty list. @param {ParentNode} list */
const partsOf = (list) => [...list.querySelectorAll("[data-part]")].map((part) => part.getAttribute("data-part")).join();
const orderOf = (/** @type {ParentNode} */ part) => rowsOf(part).map((row) => row.id).join();
/** Whether a cell shows an age, which changes on its own and isn't news. @param {Element} cell */
const shownBy = (cell) => cell.innerHTML.replace(/<time[^>]*>[^<]*/g, "");

export class Rows {
  /** @type {Document | null} */
  #held = null;

  /**
   * @param {HTMLElement} list
   * @param {HTMLButtonElement} news
   * @param {() => void} onChange called when rows have been added, removed or changed
   */
  constructor(list, news, onChange) {
    this.list = list;
    this.news = news;
    this.onChange = onChange;
    list.addEventListener("mouseleave", () => void this.#release());
    // The focus has not moved yet.
    list.addEventListener("focusout", () => queueMicrotask(() => void this.#release()));
    news.addEventListener("click", () => {
      if (this.#held) this.#put(this.#held);
    });
  }

  get ids() {
    return rowsOf(this.list).map((row) => row.id.slice("row-".length));
  }

  /** @param {string} html @param {boolean} asked  true if the user requested this */
  async arrive(html, asked) {
    await released();
    const fresh = new DOMParser().parseFromString(html, "text/html");
    if (!asked && this.#inUse() && orderOf(fresh) !== orderOf(this.list)) this.#hold(fresh);
    else this.#put(fresh);
  }

  #inUse() {
    const body = this.list.querySelector("tbody");
    return body !== null && (body.matches(":hover") || body.querySelector(":focus-visible") !== null);
  }

  /** @param {Document} fresh */
  #hold(fresh) {
    this.#held = fresh;
    const here = new Set(rowsOf(this.list).map((row) => row.id));
    const come = rowsOf(fresh).filter((row) => !here.has(row.id)).length;
    this.news.textContent = come ? `Show ${come} more ${come === 1 ? "run" : "runs"}` : "Show the new order";
    this.news.hidden = false;
    for (const row of rowsOf(fresh)) {
      const old = document.getElementById(row.id);
      if (old) patch(old, /** @type {HTMLElement} */ (row.cloneNode(true)));
    }
    this.#parts(fresh);
    this.onChange();
  }

  async #release() {
    await released();
    if (this.#held && !this.#inUse()) this.#put(this.#held);
  }

  /** @param {Document} fresh */
  #put(fresh) {
    this.#held = null;
    this.news.hidden = true;
    if (fresh.querySelector("tbody") && partsOf(fresh) === partsOf(this.list)) {
      this.#parts(fresh);
      const body = this.list.querySelector("tbody:has(> tr[id])");
      if (body) arrange(/** @type {HTMLElement} */ (body), rowsOf(fresh));
    } else {
      this.list.replaceChildren(...fresh.body.childNodes);
    }
    this.onChange();
  }

  /** Updates everything around the rows. @param {Document} fresh */
  #parts(fresh) {
    for (const part of this.list.querySelectorAll("[data-part]")) {
      const name = /** @type {HTMLElement} */ (part).dataset.part;
      const news = fresh.querySelector(`[data-part="${name}"]`);
      if (!news || news.innerHTML === part.innerHTML) continue;
      const focused = part.contains(document.activeElement) ? nameOf(document.activeElement) : "";
      part.innerHTML = news.innerHTML;
      if (focused) /** @type {HTMLElement | null} */ (part.querySelector(focused))?.focus();
    }
  }
}

/** A selector for the focused element, so that it can be found again. @param {Element | null} element */
function nameOf(element) {
  if (!(element instanceof HTMLElement)) return "";
  for (const name of ["data-sort", "data-choose-all", "rel", "href"]) {
    const value = element.getAttribute(name);
    if (value !== null) return `[${name}="${CSS.escape(value)}"]`;
  }
  return "";
}

/** Puts rows in order without removing those that remain, which keep the focus and a click in progress.
 * @param {HTMLElement} body @param {HTMLElement[]} wanted */
function arrange(body, wanted) {
  const here = new Map(rowsOf(body).map((row) => [row.id, row]));
  const kept = new Set(wanted.map((row) => row.id));
  for (const [id, row] of here) if (!kept.has(id)) row.remove();
  let at = body.firstElementChild;
  for (const fresh of wanted) {
    const old = here.get(fresh.id);
    if (old) patch(old, fresh);
    const row = old ?? fresh;
    if (row === at) at = row.nextElementSibling;
    else body.insertBefore(row, at);
  }
}

/** Replaces only the cells that differ. @param {HTMLElement} old @param {HTMLElement} fresh */
function patch(old, fresh) {
  const cells = [...fresh.children];
  if (old.children.length !== cells.length) return old.replaceChildren(...cells);
  [...old.children].forEach((cell, at) => {
    const now = cells[at];
    if (cell.className === now.className && shownBy(cell) === shownBy(now)) return;
    const focused = cell.contains(document.activeElement) ? document.activeElement?.tagName : undefined;
    cell.replaceWith(now);
    if (focused) /** @type {HTMLElement | null} */ (now.querySelector(focused))?.focus();
  });
}
