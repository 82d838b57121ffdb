// Search in a log: the server searches all of it, part by part, and hits are listed.

import { inWords, markIn } from "./log_lines.js";
import * as urlstate from "../../urlstate.js";

const MAX_HITS = 500;

export class LogSearch {
  /** @param {HTMLElement} root @param {import("./logs.js").LogView} view */
  constructor(root, view) {
    this.view = view;
    this.form = /** @type {HTMLFormElement} */ (root.querySelector("[data-log-search]"));
    this.input = /** @type {HTMLInputElement} */ (this.form.elements.namedItem("q"));
    this.found = /** @type {HTMLElement} */ (root.querySelector("[data-log-found]"));
    this.steps = /** @type {HTMLElement} */ (root.querySelector("[data-log-steps]"));
    this.list = /** @type {HTMLElement} */ (root.querySelector("[data-log-hits]"));
    /** @type {{at: number, text: string}[]} */
    this.hits = [];
    this.at = -1;
    this.next = 0;
    this.turn = 0;
    this.reset();
    this.listen(/** @type {HTMLElement} */ (root.querySelector("[data-log-errors]")));
  }

  /** @param {HTMLElement} errors */
  listen(errors) {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.enter(1);
    });
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && event.shiftKey) {
        event.preventDefault();
        this.enter(-1);
      }
      if (event.key === "Escape") this.clear();
    });
    this.input.addEventListener("input", () => !this.input.value && this.clear());
    errors.addEventListener("click", () => void this.run({ errors: true }));
    this.steps.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("[data-log-step]") : null;
      if (button instanceof HTMLElement) this.step(Number(button.dataset.logStep));
    });
    this.list.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("[data-hit]") : null;
      if (button instanceof HTMLElement) this.go(Number(button.dataset.hit));
    });
  }

  /** Runs the search in the address. @param {string} text @param {boolean} jump  true if the address names no position */
  begin(text, jump) {
    this.input.value = text;
    void this.run({ text, jump });
  }

  /** Searches, or goes to the next match if the words are unchanged. @param {number} by */
  enter(by) {
    const text = this.input.value.trim();
    if (!text) this.clear();
    else if (this.query?.text === text) this.step(by);
    else void this.run({ text });
  }

  reset() {
    /** @type {{text?: string, errors?: boolean, jump?: boolean} | null} */
    this.query = null;
    this.hits = [];
    this.at = -1;
    this.next = 0;
    this.turn += 1;
    this.done = this.leftOut = false;
  }

  clear() {
    this.reset();
    this.input.value = "";
    this.found.textContent = "";
    this.steps.hidden = this.list.hidden = true;
    this.list.replaceChildren();
    urlstate.set("l.q", null);
    this.view.mark("");
  }

  /** @param {{text?: string, errors?: boolean, jump?: boolean}} query */
  async run(query) {
    this.reset();
    this.query = query;
    this.list.replaceChildren();
    this.steps.hidden = this.list.hidden = true;
    if (!query.text) this.input.value = "";
    urlstate.set("l.q", query.text ?? null);
    this.view.mark(query.text ?? "");
    await this.read();
  }

  /** Continues the search until the log's end, or until there are enough hits. */
  async read() {
    const turn = this.turn;
    const words = this.query?.errors ? "errors" : `q=${encodeURIComponent(this.query?.text ?? "")}`;
    const most = this.hits.length + MAX_HITS;
    do {
      const { base, name, attempt } = this.view;
      const response = await fetch(`${base}${name}/search?attempt=${attempt}&from=${this.next}&${words}`).catch(() => null);
      if (turn !== this.turn) return;
      if (!response?.ok) {
        this.found.textContent = "The search failed. Try again.";
        this.query = null;
        return;
      }
      const found = await response.json();
      if (turn !== this.turn) return;
      this.take(found);
    } while (!this.done && this.hits.length < most);
    this.tell();
  }

  /** @param {{hits: {at: number, text: string}[], next: number, size: number, done: boolean, left_out: boolean}} found */
  take(found) {
    // An incomplete line is read again when the search continues.
    const last = this.hits.at(-1)?.at ?? -1;
    const fresh = found.hits.filter((hit) => hit.at > last);
    const from = this.hits.length;
    this.hits.push(...fresh);
    this.next = found.next;
    this.done = found.done;
    this.leftOut ||= found.left_out;
    const needle = (this.query?.text ?? "").toLowerCase();
    this.list.append(...fresh.map((hit, i) => item(hit, from + i, needle)));
    this.list.hidden = this.steps.hidden = this.hits.length === 0;
    if (this.at < 0 && this.hits.length && this.query?.jump !== false) this.go(0);
    const so = this.hits.length ? `${this.hits.length} so far; ` : "";
    this.found.textContent = found.done ? "" : `${so}searched ${inWords(found.next)}`;
  }

  tell() {
    const what = this.query?.errors ? "error line" : "match";
    const several = this.query?.errors ? "error lines" : "matches";
    const count = this.hits.length;
    const all = this.done ? "" : "the first ";
    const number = this.at >= 0 ? `${this.at + 1} of ` : "";
    const said = count
      ? `${number}${all}${count} ${count === 1 ? what : several}${this.done ? "" : ", more follow"}`
      : this.query?.errors
        ? "No errors in this log."
        : "No matches.";
    const where = "Parts of this log are stored only on the host.";
    this.found.textContent = this.leftOut ? `${said.replace(/\.?$/, ".")} ${where}` : said;
  }

  /** @param {number} by */
  step(by) {
    const to = this.at + by;
    // After the last hit, search the rest, including what has been written since.
    if (to >= this.hits.length) {
      void this.read().then(() => this.go(to < this.hits.length ? to : 0));
    } else {
      this.go(to < 0 ? this.hits.length - 1 : to);
    }
  }

  /** @param {number} index */
  go(index) {
    const hit = this.hits[index];
    if (!hit) return;
    this.list.querySelector("[aria-current]")?.removeAttribute("aria-current");
    this.at = index;
    const entry = this.list.children[index];
    entry?.firstElementChild?.setAttribute("aria-current", "true");
    if (entry instanceof HTMLElement) this.list.scrollTop = entry.offsetTop - this.list.clientHeight / 2;
    this.view.seek(hit.at);
    this.tell();
  }
}

/** @param {{at: number, text: string}} hit @param {number} index @param {string} needle */
function item(hit, index, needle) {
  const button = Object.assign(document.createElement("button"), { type: "button" });
  button.dataset.hit = String(index);
  markIn(button, hit.text, needle);
  const entry = document.createElement("li");
  entry.append(button);
  return entry;
}
