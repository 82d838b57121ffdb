// The final values of the compared runs. The best value of each column is highlighted, and headings sort the table.

import { figure } from "../../figures.js";

/** @typedef {{last: number, best: number | null, mean: number}} Final */

export class Table {
  /** @type {Record<string, Final>} */
  #finals = {};
  #better = "";

  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    root.addEventListener("click", (event) => {
      const heading = event.target instanceof Element ? event.target.closest("button")?.closest("th") : null;
      if (heading) this.#sort(/** @type {HTMLElement} */ (heading));
    });
  }

  /** @param {Record<string, Final>} finals @param {string} better high, low or "" @param {string} format */
  show(finals, better, format) {
    this.#finals = finals;
    this.#better = better;
    for (const row of this.#rows()) {
      for (const cell of /** @type {NodeListOf<HTMLElement>} */ (row.querySelectorAll("[data-final]"))) {
        const value = this.#value(row, cell.dataset.final ?? "");
        const [text, unit] = figure(value, format);
        const whole = document.createElement("span");
        whole.append(text, unit && Object.assign(document.createElement("span"), { className: "unit", textContent: unit }));
        const wins = value !== null && value === this.#winner(cell.dataset.final ?? "");
        cell.classList.toggle("wins", wins);
        cell.title = wins ? "The best of these runs" : "";
        cell.replaceChildren(whole);
      }
    }
  }

  #rows() {
    return /** @type {HTMLElement[]} */ ([...this.root.querySelectorAll("tr[data-run]")]);
  }

  /** @param {HTMLElement} row @param {string} which */
  #value(row, which) {
    return this.#finals[row.dataset.run ?? ""]?.[/** @type {keyof Final} */ (which)] ?? null;
  }

  /** The best value of a column; undefined if there is only one run. @param {string} which */
  #winner(which) {
    const values = this.#rows().map((row) => this.#value(row, which)).filter((value) => value !== null);
    if (values.length < 2 || !this.#better) return null;
    return this.#better === "high" ? Math.max(...values) : Math.min(...values);
  }

  /** Sorts by a column: the best values first, and runs without a value last. @param {HTMLElement} heading */
  #sort(heading) {
    const first = this.#better === "low" ? "ascending" : "descending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = heading.getAttribute("aria-sort") === first ? other : first;
    for (const each of this.root.querySelectorAll("th[aria-sort]")) each.removeAttribute("aria-sort");
    heading.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const keys = new Map(this.#rows().map((row) => [row, this.#value(row, heading.dataset.by ?? "")]));
    const sorted = [...keys].sort(([, a], [, b]) => (a === null ? 1 : b === null ? -1 : sign * (a - b)));
    this.root.querySelector("tbody")?.append(...sorted.map(([row]) => row));
  }
}
