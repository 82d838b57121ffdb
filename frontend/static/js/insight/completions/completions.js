// The completions tab: a step's table, a search, one group, a prompt over the run, the difficulty map. The server renders
// each of these parts. Their links (?tab=completions&s.…) are followed in place and become the page's URL.

import { sayAway } from "../../pages/live/connection.js";
import { released } from "../../pressing.js";
import { PromptMap } from "./prompt_map.js";
import * as urlstate from "../../urlstate.js";
import { wordDiff } from "./word_diff.js";

const PREFIX = "s.";
const FOLLOW_PAUSE_MS = 1500;
const TYPING_PAUSE_MS = 350;
const AGAIN_MS = 2000;

export class CompletionsTab {
  /** @param {HTMLElement} panel @param {any} page */
  constructor(panel, page) {
    this.panel = panel;
    this.page = page;
    this.query = ours(location.search);
    this.timer = 0;
    this.typing = 0;
    /** @type {AbortController | null} */
    this.asking = null;
    this.unfolded = false;
    panel.addEventListener("click", (event) => this.clicked(event));
    panel.addEventListener("submit", (event) => {
      event.preventDefault();
      this.submitted(/** @type {HTMLFormElement} */ (event.target));
    });
    panel.addEventListener("change", (event) => this.changed(event));
    panel.addEventListener("input", (event) => this.typed(event));
    document.addEventListener("keydown", (event) => this.key(event));
  }

  /** Reads the current part when the tab is opened. */
  open() {
    void this.read();
  }

  /** Follows a new step, unless the user is viewing something else or reading.
   * @param {number} step */
  news(step) {
    const root = this.panel.querySelector(".completions-tab");
    if (!root || root.getAttribute("data-newest") !== "yes") return;
    if (Number(root.getAttribute("data-shown-step") || -1) >= step) return;
    if (this.reading()) {
      const chip = this.panel.querySelector("[data-news]");
      if (!(chip instanceof HTMLElement)) return;
      chip.hidden = false;
      chip.textContent = `Show step ${step}`;
      this.panel.querySelector("[data-following]")?.setAttribute("hidden", "");
    } else if (!this.timer) {
      this.timer = setTimeout(() => {
        this.timer = 0;
        if (!this.panel.hidden && !this.reading()) void this.read();
      }, FOLLOW_PAUSE_MS);
    }
  }

  /** Returns whether a change to the table would disturb the user, who is reading or pointing at it. */
  reading() {
    const held = this.panel.contains(document.activeElement) && document.activeElement !== document.body;
    const selected = getSelection();
    const marked = selected && !selected.isCollapsed && this.panel.contains(selected.anchorNode);
    return held || !!marked || !!this.panel.querySelector(".answers-wrap:hover") || this.query.has("page");
  }

  // --- reading ---------------------------------------------------------------------------------------------------

  address() {
    const query = new URLSearchParams(this.query);
    const base = this.panel.dataset.url ?? "";
    const prompts = base.replace(/completions\/$/, "prompts/");
    let path = base;
    if (query.has("group")) path += `${query.get("group")}/`;
    else if (query.has("prompt")) path = `${prompts}${query.get("prompt")}/`;
    else if (query.get("view") === "prompts") path = prompts;
    else if (query.get("view") === "funnel") path = base.replace(/completions\/$/, "funnel/");
    for (const name of ["group", "prompt", "view"]) query.delete(name);
    const text = query.toString();
    return text ? `${path}?${text}` : path;
  }

  /** Reads the part that the query names and shows it. @param {string} [focus]  id of the element to focus afterwards */
  async read(focus) {
    this.asking?.abort();
    const asking = (this.asking = new AbortController());
    this.panel.setAttribute("aria-busy", "true");
    this.exports();
    const address = this.address();
    /** @type {Response | null} */
    let response = null;
    let text = "";
    try {
      response = await fetch(address, { signal: asking.signal });
      text = await response.text();
      await released();
    } catch {
      if (asking.signal.aborted) return; // superseded by another request
    }
    if (asking.signal.aborted) return;
    this.panel.removeAttribute("aria-busy");
    if (response?.ok) this.show(text, focus);
    else if (response?.status === 404) this.missing();
    else if (!response || response.status >= 500) {
      sayAway(this.panel);
      setTimeout(() => asking === this.asking && !this.panel.hidden && void this.read(focus), AGAIN_MS);
    }
  }

  /** @param {string} text @param {string} [focus] */
  show(text, focus) {
    const fresh = new DOMParser().parseFromString(text, "text/html");
    const held = document.activeElement;
    const keep = focus ?? (held instanceof HTMLElement && this.panel.contains(held) ? held.id : "");
    const typed = held instanceof HTMLInputElement && held.id === keep ? { value: held.value, at: held.selectionStart } : null;
    // Parsed as a separate document whose nodes are moved here; scripts in it would not run, but there are none.
    this.panel.replaceChildren(...fresh.body.childNodes);
    if (this.unfolded) this.unfold(true);
    const place = keep ? document.getElementById(keep) : null;
    if (place) {
      place.focus({ preventScroll: !place.matches("article") });
      // The caret of a search field stays in place, and text typed since the request is kept.
      if (typed && place instanceof HTMLInputElement && place.type === "search") {
        place.value = typed.value;
        place.setSelectionRange(typed.at, typed.at);
      }
    }
    const map = this.panel.querySelector("[data-map]");
    if (map instanceof HTMLElement) void new PromptMap(map, (row) => this.go(new URLSearchParams({ prompt: String(row) }))).read();
    const further = this.panel.querySelector("[data-look-further]") && this.panel.querySelector("a[data-further]");
    if (further instanceof HTMLAnchorElement) this.follow(further);
  }

  /** Unfolds or folds the filters, which are folded on phones. @param {boolean} open */
  unfold(open) {
    this.unfolded = open;
    this.panel.querySelector(".filters.folding")?.classList.toggle("open", open);
    this.panel.querySelector("[data-all-filters]")?.setAttribute("aria-expanded", String(open));
  }

  /** Updates the download links to the current query, even before its page has arrived. */
  exports() {
    for (const link of this.panel.querySelectorAll("a[data-export]")) {
      const address = new URL(/** @type {HTMLAnchorElement} */ (link).href);
      for (const name of ["class", "visits", "by"]) {
        const value = this.query.get(name);
        if (value) address.searchParams.set(name, value);
        else address.searchParams.delete(name);
      }
      link.setAttribute("href", address.pathname + address.search);
    }
    const count = this.panel.querySelector("[data-export-count]");
    if (count) count.textContent = "the selected rows";
  }

  /** Shows that the URL names something that doesn't exist, or doesn't exist yet. */
  missing() {
    const text = document.createElement("p");
    text.className = "banner warn";
    const link = Object.assign(document.createElement("a"), { href: "?tab=completions", textContent: "All completions" });
    text.append("The run has no such completions, or none yet. ", link);
    this.panel.replaceChildren(text);
  }

  /** Adopts the query of the URL after the browser went back or forward. @returns {boolean} whether it has changed */
  goBack() {
    const query = ours(location.search);
    if (query.toString() === this.query.toString()) return false;
    this.query = query;
    return true;
  }

  // --- user actions ----------------------------------------------------------------------------------------------

  /** @param {URLSearchParams} query @param {string} [focus] */
  go(query, focus) {
    if (part(query) !== part(this.query)) {
      // A group or a prompt gets a history entry, so that the browser's Back returns to where it was opened.
      urlstate.push();
    }
    for (const name of new Set([...this.query.keys(), ...query.keys()])) urlstate.set(PREFIX + name, query.get(name));
    this.query = query;
    void this.read(focus);
  }

  /** @param {HTMLAnchorElement} link */
  follow(link) {
    const address = new URL(link.href, location.href);
    const other = !part(this.query) !== !part(ours(address.search));
    if (other && this.panel.getBoundingClientRect().top < 0) this.panel.scrollIntoView({ block: "start" });
    this.go(ours(address.search), address.hash.slice(1) || link.id || undefined);
  }

  /** @param {MouseEvent} event */
  clicked(event) {
    const target = event.target instanceof Element ? event.target : null;
    if (target?.closest("[data-show-diff]")) this.compare();
    if (target?.closest("[data-all-filters]")) this.unfold(!this.panel.querySelector(".filters.open"));
    const link = target?.closest("a");
    const plain = !event.ctrlKey && !event.metaKey && !event.shiftKey && event.button === 0;
    const href = link?.getAttribute("href");
    if (!link || !href?.startsWith("?tab=completions") || !plain) return;
    event.preventDefault();
    if (link instanceof HTMLAnchorElement) this.follow(link);
    else this.go(ours(href)); // a link in the SVG chart of visits
  }

  /** @param {HTMLFormElement} form */
  submitted(form) {
    clearTimeout(this.typing);
    const query = new URLSearchParams();
    for (const [name, value] of new FormData(form)) {
      const key = name.slice(PREFIX.length);
      const had = query.get(key);
      if (value) query.set(key, had ? `${had},${value}` : String(value));
    }
    if (form.id === "step-form") {
      // A different step keeps the filter.
      for (const [name, value] of this.query) if (!["step", "page"].includes(name)) query.set(name, value);
    }
    this.go(query);
  }

  /** @param {Event} event */
  changed(event) {
    const field = event.target;
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement)) return;
    if (field.dataset.side) this.compare();
    else if (field.form?.dataset.part !== undefined) this.submitted(field.form);
  }

  /** @param {Event} event */
  typed(event) {
    const field = event.target;
    if (!(field instanceof HTMLInputElement) || field.dataset.live === undefined) return;
    clearTimeout(this.typing);
    this.typing = setTimeout(() => field.form?.isConnected && this.submitted(field.form), TYPING_PAUSE_MS);
  }

  /** Goes to the previous or next step or group on [ and ]. @param {KeyboardEvent} event */
  key(event) {
    if (this.panel.hidden || event.ctrlKey || event.metaKey || event.altKey || !["[", "]"].includes(event.key)) return;
    if (event.target instanceof Element && event.target.closest("input, textarea, select, dialog")) return;
    const link = this.panel.querySelector(`a[data-key="${event.key}"][href]`);
    if (link instanceof HTMLAnchorElement) this.follow(link);
  }

  // --- the comparison --------------------------------------------------------------------------------------------

  compare() {
    const card = this.panel.querySelector("[data-compare]");
    const place = card?.querySelector("[data-diff]");
    if (!card || !(place instanceof HTMLElement)) return;
    const [before, after] = ["a", "b"].map((side) => {
      const chosen = /** @type {HTMLSelectElement} */ (card.querySelector(`[data-side="${side}"]`)).value;
      return textOf(this.panel.querySelector(`[data-completion="${chosen}"] [data-words]`));
    });
    const { parts, by } = wordDiff(before, after);
    const text = document.createElement("pre");
    text.className = "words";
    text.tabIndex = 0;
    const tags = { same: "span", gone: "del", new: "ins" };
    text.append(...parts.map((part) => Object.assign(document.createElement(tags[part.kind]), { textContent: part.text })));
    const note = document.createElement("p");
    note.className = "small muted below-2";
    note.textContent = before === after ? "The two completions are identical." : NOTES[by];
    place.replaceChildren(note, text);
    place.hidden = false;
    card.querySelector("[data-show-diff]")?.setAttribute("aria-expanded", "true");
  }
}

const NOTES = {
  words: "Struck through: only in the first. Underlined: only in the second.",
  lines: "Too different for a comparison by word, so compared by line. Struck through: only in the first. Underlined: only in the second.",
  whole: "The two have almost nothing in common. The first is struck through; the second follows.",
};

/** Returns a completion's text, turn by turn. @param {Element | null} part */
function textOf(part) {
  return [...(part?.querySelectorAll("pre.words") ?? [])].map((turn) => turn.textContent ?? "").join("\n\n");
}

/** Returns the part of the tab that a query names, or "" for the table. @param {URLSearchParams} query */
function part(query) {
  return ["group", "prompt", "view"].filter((name) => query.has(name)).join();
}

/** Returns the tab's parameters in a query string, without their prefix. @param {string} search */
function ours(search) {
  const query = new URLSearchParams();
  for (const [name, value] of new URLSearchParams(search)) {
    if (name.startsWith(PREFIX) && value) query.set(name.slice(PREFIX.length), value);
  }
  return query;
}
