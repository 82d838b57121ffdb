// Draws one metric of several runs in one chart. Independent of sockets and addresses.

import { figuresOf, height, plainAxis, reach, scale, visible, xAxis } from "../../insight/metrics/axes.js";
import { duration, si, significant } from "../../figures.js";
import { dragged } from "../../insight/metrics/chart_ranges.js";
import { apart, directLabels, plain } from "../../insight/metrics/labels.js";
import { faint, ground, hovered, marginOf, spike } from "../../insight/metrics/plotly_figure.js";
import { hush, rowsOf, tell } from "../../insight/metrics/readout.js";
import { smooth } from "../../insight/metrics/series.js";

/**
 * @typedef {{x: number[], y: number[]}} Curve
 * @typedef {{id: string, name: string, short: string, colour: string, dash: string, live: boolean, series: string}} Run
 * @typedef {{name: string, title: string, format: string}} Metric
 * @typedef {{axis: import("../../insight/metrics/axes.js").Along, smoothing: number, log: boolean, off: Set<string>,
 *   range: [from: number, to: number] | null}} Look  range: the visible part of the x axis
 * @typedef {{width: number, height: number}} Size  in px
 */

/** Maximum number of lines with raw values behind them; with more, the raw values would hide the smoothed lines. */
const RAW_UP_TO = 4;
/** Maximum number of lines that are labelled at their ends; others are named in the table and at the pointer. */
const LABELLED = 8;
/** Width of the margin for run names. */
const ROOM = { small: 92, large: 174 };
/** A curve that ends before this share of the axis is connected to its name by a line. */
const SHORT = 0.75;
/** Opacity of that line. */
const LEADER = 0.5;
const SMALL_HEIGHT = 150;

/** @param {boolean} large */
const roomOf = (large) => (large ? ROOM.large : ROOM.small);

/** The label of a position on the x axis. @param {Look["axis"]} axis @param {number} x */
function where(axis, x) {
  if (axis === "time") return duration(x);
  if (axis === "tokens") return `${si(x)} tokens`;
  return axis === "hours" ? `${significant(x)} GPU-hours` : `step ${significant(x, 9)}`;
}

export class Overlay {
  /** @param {HTMLElement} element @param {Metric} metric @param {Run[]} runs */
  constructor(element, metric, runs) {
    this.element = element;
    this.metric = metric;
    this.runs = runs;
    this.plot = /** @type {HTMLElement} */ (element.querySelector(".plot"));
    /** @type {Record<string, Curve>} */
    this.curves = {};
    this.large = false;
    /** The format of the drawn values. */
    this.suffix = "";
    /** @type {Look["axis"]} the drawn x axis */
    this.axis = "step";
    this.loaded = false;
    this.drawn = false;
    this.onRange = (/** @type {[from: number, to: number] | null} */ _range) => {};
    /** @type {HTMLElement} */ (element.querySelector(".title")).textContent = metric.title;
    /** @type {HTMLElement} */ (element.querySelector(".title")).title = metric.name;
    this.plot.setAttribute("role", "img");
    this.plot.setAttribute("aria-label", metric.title);
  }

  /** @param {any} plotly @param {Look} look @param {Record<string, string>} tokens */
  draw(plotly, look, tokens) {
    if (!this.loaded) return;
    const shown = this.shown(look);
    this.element.classList.toggle("waiting", !shown.length);
    this.plot.setAttribute("aria-label", `${this.metric.title} of ${shown.map((run) => run.name).join(", ") || "no run"}`);
    if (!shown.length) {
      if (this.drawn) plotly.purge(this.plot);
      this.drawn = false;
      return;
    }
    const { traces, layout, suffix } = this.drawing(shown, look, tokens, this.large, { width: this.plot.clientWidth, height: this.plot.clientHeight });
    plotly.react(this.plot, traces, layout, { responsive: false, displayModeBar: false, doubleClick: "autosize", showTips: false });
    Object.assign(this, { suffix, axis: look.axis });
    if (!this.drawn) this.listen();
    this.drawn = true;
    this.element.classList.add("drawn");
  }

  /** The figure of the enlarged chart. @param {Look} look @param {Record<string, string>} tokens @param {Size} size */
  figure(look, tokens, size) {
    return this.drawing(this.shown(look), look, tokens, true, size);
  }

  /** @param {Look} look */
  shown(look) {
    return this.runs.filter((run) => !look.off.has(run.id) && this.curves[run.id]?.x.length);
  }

  listen() {
    const plot = /** @type {any} */ (this.plot);
    plot.on("plotly_relayout", (/** @type {any} */ change) => {
      const ends = dragged(change);
      if (ends !== undefined) this.onRange(ends);
    });
    const told = (/** @type {any} */ { points, event }) => {
      const { x } = points[0];
      const { xaxis } = plot._fullLayout;
      const place = (/** @type {number} */ at) => where(this.axis, at);
      tell(this.element, this.plot, xaxis._offset + xaxis.d2p(x), event, { where: place(x), rows: rowsOf(points, this.suffix, place) });
    };
    for (const name of ["plotly_hover", "plotly_click"]) plot.on(name, told);
    plot.on("plotly_unhover", hush);
  }

  /** @param {Run[]} shown @param {Look} look @param {Record<string, string>} tokens @param {boolean} large @param {Size} size */
  drawing(shown, look, tokens, large, size) {
    const curves = shown.map((run) => this.curves[run.id]);
    const highest = curves.reduce((top, c) => c.y.reduce((m, v) => Math.max(m, v), top), -Infinity);
    const { by, suffix } = scale(this.metric.format, highest);
    /** @type {any[]} */
    const traces = [];
    /** @type {import("../../insight/metrics/labels.js").End[]} */
    const ends = [];
    const inView = look.range ?? reach(curves.map(({ x }) => x));
    /** @type {any[]} */
    const leaders = [];
    const shortBefore = inView[0] + SHORT * (inView[1] - inView[0]);
    const names = apart(shown.map((run) => run.short), roomOf(large), tokens.font);
    for (const [i, run] of shown.entries()) {
      const { x, y } = this.curves[run.id];
      const values = by === 1 ? y : y.map((value) => value * by);
      const colour = tokens[run.colour];
      if (look.smoothing && values.length > 2 && shown.length <= RAW_UP_TO) {
        traces.push({ x, y: values, mode: "lines", opacity: 0.25, line: { width: 1, color: colour }, hoverinfo: "skip" });
      }
      const smoothed = look.smoothing ? smooth(values, look.smoothing) : values;
      const last = look.range ? x.findLastIndex((at) => at <= /** @type {number[]} */ (look.range)[1]) : x.length - 1;
      const [end, y1] = [x[Math.max(0, last)], smoothed[Math.max(0, last)]];
      ends.push({ label: names[i], words: run.name, y: y1, colour });
      if (end < shortBefore) leaders.push({ type: "line", layer: "below", x0: end, x1: inView[1], y0: y1, y1, line: { width: 1, dash: "dot", color: faint(colour, LEADER) } });
      traces.push({
        x,
        y: smoothed,
        customdata: values,
        name: plain(run.name),
        meta: run.name,
        mode: values.length === 1 ? "markers" : "lines",
        marker: { size: 6, color: colour },
        line: { width: 1.5, color: colour, dash: run.dash },
        hoverinfo: "none",
      });
    }
    const seen = visible(traces, look.range ?? [-Infinity, Infinity], look.log) ?? [0, 1];
    const labels = ends.length > 1 && ends.length <= LABELLED ? ends : [];
    const figures = { suffix, lines: shown.length, seen, inView, highest: highest * by, title: this.metric.title, format: this.metric.format };
    return { traces, suffix, layout: { ...layout(look, tokens, labels, figures, large, size), shapes: labels.length ? leaders : [] } };
  }
}

/**
 * @param {Look} look @param {Record<string, string>} tokens @param {import("../../insight/metrics/labels.js").End[]} labels
 * @param {{suffix: string, lines: number, seen: [lowest: number, highest: number], inView: [number, number], highest: number, title: string,
 *   format: string}} figures
 * @param {boolean} large @param {Size} size
 */
function layout(look, tokens, labels, { suffix, lines, seen, inView, highest, title, format }, large, size) {
  const margin = marginOf(large);
  const room = labels.length ? roomOf(large) : margin.r;
  const y = height({ zero: false, format }, look.log, { lowest: seen[0], highest: seen[1] });
  const inside = (size.height || SMALL_HEIGHT + margin.t + margin.b) - margin.t - margin.b;
  return {
    ...ground(tokens),
    ...(size.width && size.height ? size : {}),
    margin: { ...margin, r: room },
    showlegend: large && lines > LABELLED,
    legend: { font: { size: 11, color: tokens["ink-2"] }, orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
    ...hovered(lines),
    xaxis: { ...plainAxis(tokens), ...xAxis(look.axis, inView, large), ...(look.range ? { autorange: false, range: look.range } : { autorange: true }), ...spike(tokens) },
    yaxis: {
      ...plainAxis(tokens), ...y, type: look.log ? "log" : "linear", nticks: large ? 10 : 5, fixedrange: true,
      ticksuffix: suffix, ...figuresOf(seen[0], highest),
      ...(large ? { title: { text: plain(title), standoff: 8 } } : {}),
    },
    annotations: directLabels(labels, { range: y.range, height: inside, log: look.log, room, ink: tokens["ink-1"], font: tokens.font }),
  };
}
