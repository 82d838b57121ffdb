// One chart on the page: its element, its range, its value. Draws with Plotly; knows no socket.

import { dragged, on } from "./chart_ranges.js";
import { drawing, kindOf, marginOf } from "./plotly_figure.js";
import { duration, figure, si, significant } from "../../figures.js";
import { hush, rowsOf, tell } from "./readout.js";
import { convert, place, source } from "./series.js";
import { short } from "../../times.js";

/**
 * @typedef {import("./plotly_figure.js").Spec} Spec
 * @typedef {import("./plotly_figure.js").Mark} Mark
 * @typedef {import("./series.js").Kind} Kind
 * @typedef {{x: Kind, smoothing: number, range: Range | null, marks: Mark[], tokens: Record<string, string>}} View  settings that all charts share
 * @typedef {{kind: Kind, from: number, to: number}} Range  visible range of the x axis; time in seconds
 */

const CONFIG = { responsive: false, displayModeBar: false, doubleClick: "autosize", showTips: false };

export class Chart {
  /**
   * @param {HTMLElement} element  figure that reserves the space
   * @param {Spec} spec @param {import("./series.js").Series} series
   */
  constructor(element, spec, series) {
    this.element = element;
    this.spec = spec;
    this.series = series;
    this.plot = /** @type {any} */ (element.querySelector("[data-plot]"));
    this.value = /** @type {HTMLElement} */ (element.querySelector("[data-value]"));
    this.cursor = /** @type {HTMLElement} */ (element.querySelector("[data-cursor]"));
    this.log = spec.log;
    this.smoothed = true;
    this.large = false;
    this.drawn = false;
    /** @type {Kind} */
    this.kind = kindOf(spec, "step");
    /** Finer points within the visible range. @type {Map<string, import("./series.js").Columns> | undefined} */
    this.detail = undefined;
    /** True once finer points have been requested. */
    this.detailed = false;
    /** Size as last observed, so that drawing never measures. @type {{width: number, height: number} | null} */
    this.size = null;
    this.metrics = new Set(spec.lines.flatMap((l) => [l.metric, l.band, l.evaluation]).filter(Boolean));
    /** The line whose newest value is shown next to the title, if one line represents all. */
    this.main = spec.lines.find((l, _, { length }) => length === 1 || /^(mean|all|total)$/.test(l.label)) ?? null;
    this.value.hidden = !this.main;
    /** Suffix of the values, as drawn. */
    this.suffix = "";
    this.onRange = (/** @type {Range | null} */ _range) => {};
    this.onHover = (/** @type {number | null} */ _x) => {};
  }

  /** Returns the metrics to request from the server. */
  sources() {
    return [...new Set([...this.metrics].map(source))];
  }

  /** @param {Set<string>} metrics */
  concerns(metrics) {
    for (const metric of this.metrics) if (metrics.has(metric)) return true;
    return false;
  }

  hasPoints() {
    return this.spec.lines.some((l) => this.series.get(l.metric).value.length > 0);
  }

  /** Shows a value, by default the newest, next to the title. Only text changes, so this is cheap. @param {number | null} [value] */
  showValue(value = null) {
    if (!this.main) return;
    const last = this.series.last(this.main.metric);
    const [text, unit] = figure(value ?? (last === null ? null : last * this.main.weight), this.spec.format);
    if (this.value.firstChild?.textContent === text) return;
    this.value.replaceChildren(text, Object.assign(document.createElement("span"), { className: "unit", textContent: unit }));
  }

  /** @param {any} plotly @param {View} view */
  draw(plotly, view) {
    const empty = !this.hasPoints();
    this.element.classList.toggle("waiting", empty);
    if (empty) return;
    const { traces, layout, suffix } = this.figure(view);
    this.suffix = suffix;
    plotly.react(this.plot, traces, layout, CONFIG);
    if (!this.drawn) this.listen();
    this.drawn = true;
    this.element.classList.add("drawn");
  }

  /** Returns the drawing for Plotly. @param {View} view @param {{width: number, height: number} | null} [size]  size of a picture file */
  figure(view, size = null) {
    const clock = this.series.clock();
    const asked = view.x === "tokens" && !clock.tokens.length ? "step" : view.x;
    this.kind = kindOf(this.spec, asked);
    const range = on(view.range, this.kind, clock);
    const numbers = { get: (/** @type {string} */ metric) => this.series.get(metric, this.detail), clock, origin: this.series.origin() };
    /** @type {import("./plotly_figure.js").Look} */
    const look = { smoothing: this.smoothed ? view.smoothing : 0, log: this.log, x: asked, large: this.large || size !== null };
    const { t, b } = marginOf(look.large);
    const room = size ?? this.size;
    if (room) look.height = room.height - t - b;
    if (range) look.range = [this.to(range.from), this.to(range.to)];
    const { traces, layout, suffix } = drawing(this.spec, numbers, view.marks, look, view.tokens);
    return { traces, suffix, layout: { ...layout, ...room } };
  }

  /** Converts a position to Plotly's axis. @param {number} x */
  to(x) {
    return this.kind === "time" ? x - this.series.origin() : x;
  }

  /** Converts a position from Plotly's axis. @param {number} x */
  from(x) {
    return this.kind === "time" ? x + this.series.origin() : x;
  }

  listen() {
    const told = (/** @type {any} */ { points, event }) => {
      const x = this.from(points[0].x);
      tell(this.element, this.plot, this.pixel(points[0].x), event, { where: this.words(x), rows: rowsOf(points, this.suffix, (at) => this.placeOf(at)) });
      this.onHover(x);
    };
    // A tap causes only a click.
    for (const name of ["plotly_hover", "plotly_click"]) this.plot.on(name, told);
    this.plot.on("plotly_unhover", () => {
      hush();
      this.onHover(null);
    });
    this.plot.on("plotly_relayout", (/** @type {any} */ change) => {
      const ends = dragged(change);
      if (ends !== undefined) this.onRange(ends && { kind: this.kind, from: this.from(ends[0]), to: this.from(ends[1]) });
    });
  }

  /** Shows the position of the pointer on another chart. @param {Kind} kind @param {number | null} x  null hides it */
  point(kind, x) {
    const here = x === null ? null : convert(this.series.clock(), x, kind, this.kind);
    const axis = this.drawn && here !== null ? this.plot._fullLayout.xaxis : null;
    const at = axis ? this.pixel(this.to(/** @type {number} */ (here))) - axis._offset : -1;
    const inside = axis !== null && at >= 0 && at <= axis._length;
    this.cursor.hidden = !inside;
    if (inside) this.cursor.style.transform = `translateX(${axis._offset + at}px)`;
    this.value.classList.toggle("pointed", inside);
    this.showValue(inside ? this.valueAt(/** @type {number} */ (here)) : null);
  }

  /** Returns the distance from the plot's left edge in px. @param {number} x  on Plotly's axis @returns {number} */
  pixel(x) {
    const axis = this.plot._fullLayout.xaxis;
    return axis._offset + axis.d2p(x);
  }

  /** @param {number} x  on Plotly's axis */
  placeOf(x) {
    if (this.kind === "time") return duration(Math.max(0, x));
    return this.kind === "tokens" ? `${si(x)} tokens` : `step ${significant(x, 9)}`;
  }

  /** Describes a position on the x axis as step, tokens, running time and time of day. @param {number} x */
  words(x) {
    const clock = this.series.clock();
    const [step, tokens, t] = /** @type {Kind[]} */ (["step", "tokens", "time"]).map((kind) => convert(clock, x, this.kind, kind));
    const parts = [];
    if (step !== null) parts.push(`step ${significant(Math.floor(step), 9)}`);
    if (tokens !== null) parts.push(`${si(tokens)} tokens`);
    if (t !== null) parts.push(duration(Math.max(0, t - this.series.origin())), short(new Date(t * 1000)));
    return parts.join(" · ");
  }

  /** @param {number} x @returns {number | null} */
  valueAt(x) {
    if (!this.main) return null;
    const columns = this.series.get(this.main.metric, this.detail);
    const byStep = this.kind !== "time" && columns.step[0] !== null;
    const sorted = /** @type {number[]} */ (byStep ? columns.step : columns.t);
    const wanted = convert(this.series.clock(), x, this.kind, byStep ? "step" : "time");
    if (wanted === null || !sorted.length) return null;
    const after = Math.min(place(sorted, wanted), sorted.length - 1);
    const before = Math.max(0, after - 1);
    return columns.value[wanted - sorted[before] < sorted[after] - wanted ? before : after] * this.main.weight;
  }
}
