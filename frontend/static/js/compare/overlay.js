// Draws one metric of several runs in one chart. Knows no socket and no address.

import { height, plain, scale, visible } from "../metrics/plotly_figure.js";
import { smooth } from "../metrics/series.js";

/**
 * @typedef {{x: number[], y: number[]}} Curve
 * @typedef {{id: string, name: string, colour: string, dash: string, live: boolean}} Run
 * @typedef {{name: string, title: string, format: string}} Metric
 * @typedef {{axis: string, smoothing: number, log: boolean, off: Set<string>,
 *   range: [from: number, to: number] | null}} Look  range: the part of the x axis that is looked at
 */

/** With more lines than this the raw ones behind the smoothed would hide them. */
const RAW_UP_TO = 4;
/** And one box with a row for each would hide the chart. */
const UNIFIED_UP_TO = 8;
const MINUTE = 60;
const HOUR = 3600;

/** How the x axis is written: seconds become what a person would say. @param {string} axis @param {number} longest */
function along(axis, longest) {
  if (axis === "tokens") return { by: 1, suffix: "", format: ".3~s", title: "%{x} tokens" };
  if (axis === "hours") return { by: 1, suffix: "", format: ".3~g", title: "%{x} GPU-hours" };
  if (axis !== "time") return { by: 1, suffix: "", format: ",d", title: "step %{x}" };
  if (longest >= 2 * HOUR) return { by: 1 / HOUR, suffix: " h", format: ".3~g", title: "%{x}" };
  if (longest >= 2 * MINUTE) return { by: 1 / MINUTE, suffix: " min", format: ".3~g", title: "%{x}" };
  return { by: 1, suffix: " s", format: ".3~g", title: "%{x}" };
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
    /** What the x axis is scaled by. */
    this.by = 1;
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
    const shown = this.runs.filter((run) => !look.off.has(run.id) && this.curves[run.id]?.x.length);
    this.element.classList.toggle("waiting", !shown.length);
    this.plot.setAttribute("aria-label", `${this.metric.title} of ${shown.map((run) => run.name).join(", ") || "no run"}`);
    if (!shown.length) {
      if (this.drawn) plotly.purge(this.plot);
      this.drawn = false;
      return;
    }
    const { traces, layout, by } = this.drawing(shown, look, tokens);
    plotly.react(this.plot, traces, layout, { responsive: false, displayModeBar: false, doubleClick: "autosize", showTips: false });
    this.by = by;
    if (!this.drawn) this.listen();
    this.drawn = true;
    this.element.classList.add("drawn");
  }

  listen() {
    const plot = /** @type {any} */ (this.plot);
    plot.on("plotly_relayout", (/** @type {any} */ change) => {
      if (change["xaxis.autorange"]) return this.onRange(null);
      const [from, to] = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
      if (from !== undefined && to !== undefined) this.onRange([from / this.by, to / this.by]);
    });
  }

  /** @param {Run[]} shown @param {Look} look @param {Record<string, string>} tokens */
  drawing(shown, look, tokens) {
    const curves = shown.map((run) => this.curves[run.id]);
    const highest = curves.reduce((top, c) => c.y.reduce((m, v) => Math.max(m, v), top), -Infinity);
    const longest = curves.reduce((top, c) => Math.max(top, c.x[c.x.length - 1]), 0);
    const y = scale(this.metric.format, highest);
    const x = along(look.axis, longest);
    /** @type {any[]} */
    const traces = [];
    for (const run of shown) {
      const curve = this.curves[run.id];
      const at = x.by === 1 ? curve.x : curve.x.map((value) => value * x.by);
      const values = y.by === 1 ? curve.y : curve.y.map((value) => value * y.by);
      const colour = tokens[run.colour];
      if (look.smoothing && values.length > 2 && shown.length <= RAW_UP_TO) {
        traces.push({ x: at, y: values, mode: "lines", opacity: 0.25, line: { width: 1, color: colour }, hoverinfo: "skip" });
      }
      traces.push({
        x: at,
        y: look.smoothing ? smooth(values, look.smoothing) : values,
        customdata: values,
        name: plain(run.name),
        mode: values.length === 1 ? "markers" : "lines",
        marker: { size: 6, color: colour },
        line: { width: 1.5, color: colour, dash: run.dash },
        hovertemplate: `%{customdata:.4~g}${y.suffix}`,
      });
    }
    /** @type {[from: number, to: number] | null} */
    const range = look.range && [look.range[0] * x.by, look.range[1] * x.by];
    const seen = range && visible(traces, range, look.log);
    return { traces, layout: layout(look, tokens, { x, y, highest: highest * y.by, lines: shown.length, range, seen }), by: x.by };
  }

  /** @param {any} plotly */
  resize(plotly) {
    if (this.drawn) plotly.Plots.resize(this.plot);
  }
}

/**
 * @param {Look} look @param {Record<string, string>} tokens
 * @param {{x: ReturnType<typeof along>, y: ReturnType<typeof scale>, highest: number, lines: number,
 *   range: [number, number] | null, seen: [lowest: number, highest: number] | null}} figures
 */
function layout(look, tokens, { x, y, highest, lines, range, seen }) {
  const axis = { gridcolor: tokens.line, linecolor: tokens.line, zeroline: false, tickfont: { size: 10 }, automargin: false };
  return {
    font: { family: tokens.font, size: 11, color: tokens["ink-3"] },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 44, r: 10, t: 6, b: 22 },
    showlegend: false,
    hovermode: lines <= UNIFIED_UP_TO ? "x unified" : "closest",
    hoverlabel: { bgcolor: tokens["surface-1"], bordercolor: tokens["line-strong"], font: { size: 11, color: tokens["ink-1"] } },
    // The same value each time: a range that the person zoomed to survives new data.
    uirevision: `${look.axis}${x.suffix}${look.log}`,
    dragmode: "zoom",
    xaxis: {
      ...axis, type: "linear", ...(range ? { autorange: false, range } : { autorange: true }), showgrid: false, nticks: 6, tickformat: x.format, hoverformat: x.format, ticksuffix: x.suffix,
      unifiedhovertitle: { text: x.title }, spikethickness: 1, spikedash: "solid", spikecolor: tokens["line-strong"],
    },
    yaxis: {
      ...axis, type: look.log ? "log" : "linear", rangemode: "normal", nticks: 5, fixedrange: true,
      ...(seen ? height({ zero: false }, look.log, { lowest: seen[0], highest: seen[1] }) : { autorange: true }),
      ticksuffix: y.suffix, tickformat: highest >= 10_000 ? ".3~s" : ".4~g",
    },
  };
}
