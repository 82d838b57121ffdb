// The arrangement of charts on the page: folding sections, a filter, pinned charts first, and the user's order, all kept in
// the URL. Moves elements; draws nothing.

import { idNow } from "./unforeseen.js";
import * as urlstate from "../../urlstate.js";

/** @typedef {import("./chart.js").Chart} Chart */
/** @typedef {{element: HTMLDetailsElement, grid: HTMLElement, title: string, folded: boolean}} Group */

const PINNED = "";

export class Arrangement {
  /** @param {HTMLElement} root @param {Chart[]} charts  as planned */
  constructor(root, charts) {
    this.root = root;
    /** @type {Group[]} */
    this.groups = [...root.querySelectorAll("[data-group]")].map(groupOf);
    /** Each chart's section, in the planned order of the charts. @type {Map<Chart, Group>} */
    this.homes = new Map();
    for (const chart of charts) this.homes.set(chart, this.around(chart));
    const specs = charts.map((chart) => chart.spec);
    const ids = (/** @type {string} */ name) => [...new Set(urlstate.getList(name).map((id) => idNow(id, specs)))];
    this.pins = ids("c.pin");
    this.order = ids("c.order");
    /** Sections that the user has opened or closed, contrary to the plan. */
    this.turned = new Set(urlstate.getList("c.turned"));
    this.filter = urlstate.get("c.filter") ?? "";
    for (const group of this.groups) this.follow(group);
    this.lay();
  }

  /** Adds an unplanned chart to a section, which may be new. @param {Chart} chart
   * @param {{title: string, folded: boolean}} section */
  add(chart, { title, folded }) {
    const group = this.groups.find((g) => g.title === title) ?? this.addGroup(title, folded);
    group.grid.append(chart.element);
    this.homes.set(chart, group);
    this.lay();
  }

  /** @param {string} title @param {boolean} folded @returns {Group} */
  addGroup(title, folded) {
    const element = /** @type {HTMLDetailsElement} */ (fromTemplate(this.root, "group"));
    element.open = !folded;
    element.dataset.group = title;
    /** @type {HTMLElement} */ (element.querySelector("h2")).textContent = title;
    this.last().element.after(element);
    const group = groupOf(element);
    this.groups.push(group);
    this.follow(group);
    return group;
  }

  last() {
    return this.groups[this.groups.length - 1];
  }

  /** @param {Group} group */
  follow(group) {
    group.element.addEventListener("toggle", () => {
      if (this.filter) return;
      if (group.element.open !== group.folded) this.turned.delete(group.title);
      else this.turned.add(group.title);
      urlstate.setList("c.turned", this.turned);
    });
  }

  /** @param {Chart} chart */
  isPinned(chart) {
    return this.pins.includes(chart.spec.id);
  }

  /** @param {Chart} chart */
  pin(chart) {
    const { id } = chart.spec;
    this.pins = this.isPinned(chart) ? this.pins.filter((other) => other !== id) : [...this.pins, id];
    this.keep();
  }

  /** Moves a chart within its section, backwards if by < 0. @param {Chart} chart
   * @param {number} by @returns {Chart | null} its new neighbour */
  move(chart, by) {
    const row = this.inSection(chart).filter((other) => !other.element.hidden);
    const beside = row[row.indexOf(chart) + by];
    if (!beside) return null;
    this.put(chart, beside, by > 0);
    return beside;
  }

  /** Puts a chart before or after another one of its section. @param {Chart} chart @param {Chart} beside @param {boolean} after */
  put(chart, beside, after) {
    if (chart === beside || this.around(chart) !== this.around(beside)) return;
    const row = this.inSection(chart).filter((other) => other !== chart);
    row.splice(row.indexOf(beside) + Number(after), 0, chart);
    const ids = row.map((other) => other.spec.id);
    if (this.isPinned(chart)) this.pins = ids;
    else this.order = [...this.order.filter((id) => !ids.includes(id)), ...ids];
    this.keep();
  }

  /** @param {string} text */
  filterBy(text) {
    this.filter = text.trim().toLowerCase();
    urlstate.set("c.filter", this.filter);
    this.lay();
  }

  reset() {
    this.pins = [];
    this.order = [];
    this.turned.clear();
    this.filter = "";
    for (const name of ["c.turned", "c.filter"]) urlstate.set(name, null);
    this.keep();
  }

  keep() {
    urlstate.setList("c.pin", this.pins);
    urlstate.setList("c.order", this.order);
    this.lay();
  }

  isChanged() {
    return this.pins.length + this.order.length + this.turned.size > 0 || this.filter !== "";
  }

  /** Moves every chart to its place. Elements already in place aren't moved, because they would lose the focus. */
  lay() {
    const words = this.filter.split(/\s+/).filter(Boolean);
    for (const group of this.groups) {
      const charts = this.of(group);
      charts.forEach((chart, i) => {
        const { element } = chart;
        if (group.grid.children[i] !== element) group.grid.insertBefore(element, group.grid.children[i] ?? null);
        element.hidden = !words.every((word) => wordsOf(chart, this.homes.get(chart)?.title ?? "").includes(word));
      });
      const found = charts.filter((chart) => !chart.element.hidden).length;
      group.element.hidden = !found;
      group.element.open = words.length > 0 || group.folded === this.turned.has(group.title);
      const count = group.element.querySelector(".count");
      if (count) count.textContent = found === charts.length ? String(found) : `${found} of ${charts.length}`;
    }
    const nothing = /** @type {HTMLElement | null} */ (this.root.querySelector("[data-no-chart]"));
    if (nothing) nothing.hidden = !words.length || this.groups.some((group) => !group.element.hidden);
  }

  /** Returns the charts of a section, in order. @param {Group} group @returns {Chart[]} */
  of(group) {
    const all = [...this.homes.keys()];
    if (group.title === PINNED) return this.pins.flatMap((id) => all.filter((chart) => chart.spec.id === id));
    const place = (/** @type {Chart} */ chart) => (this.order.indexOf(chart.spec.id) + 1 || Infinity);
    return all
      .filter((chart) => this.homes.get(chart) === group && !this.isPinned(chart))
      .map((chart, i) => ({ chart, place: place(chart), i }))
      .sort((a, b) => (a.place === b.place ? a.i - b.i : a.place - b.place))
      .map(({ chart }) => chart);
  }

  /** @param {Chart} chart */
  inSection(chart) {
    return this.of(this.around(chart));
  }

  /** Returns the section that a chart is in now. @param {Chart} chart @returns {Group} */
  around(chart) {
    const element = chart.element.closest("[data-group]");
    return this.groups.find((group) => group.element === element) ?? this.last();
  }
}

/** @param {Element} element @returns {Group} */
function groupOf(element) {
  const details = /** @type {HTMLDetailsElement} */ (element);
  return {
    element: details,
    grid: /** @type {HTMLElement} */ (details.querySelector(".chart-grid")),
    title: details.dataset.group ?? PINNED,
    folded: !details.open,
  };
}

/** Returns the text that the filter searches. @param {Chart} chart @param {string} section */
function wordsOf({ spec }, section) {
  return [spec.title, section, ...spec.lines.flatMap((line) => [line.metric, line.label])].join(" ").toLowerCase();
}

/** @param {HTMLElement} root @param {string} name @returns {HTMLElement} */
export function fromTemplate(root, name) {
  const template = /** @type {HTMLTemplateElement} */ (root.querySelector(`template[data-template="${name}"]`));
  return /** @type {HTMLElement} */ (/** @type {Element} */ (template.content.firstElementChild).cloneNode(true));
}
