// Draws one chart with Plotly from columns of numbers. Knows no socket.

import { figure, significant } from "./figures.js";
import { smooth } from "./series.js";

/**
 * @typedef {{metric: string, label: string, colour: string, band: string, evaluation: string}} Line
 * @typedef {{id: string, title: string, lines: Line[], format: string, zero: boolean, x: "step" | "time",
 *   bounds: {value: number, name: string}[], log: boolean}} Spec
 * @typedef {{step: number | null, t: number, kind: string, text: string}} Mark
 * @typedef {{smoothing: number, log: boolean}} Look
 */

const ROOM_FOR_LABELS = 46;
const LABEL_HEIGHT = 12;
const PLOT_HEIGHT = 150;
/** More points than this are too close together for full-size markers. */
const MANY = 40;

/** The value of a custom property as a colour that Plotly understands: light-dark() is resolved by the browser. */
function token(/** @type {HTMLElement} */ probe, /** @type {string} */ name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** @param {string} colour  rgb(…) @param {number} alpha */
function faint(colour, alpha) {
  const [r, g, b] = colour.match(/[\d.]+/g) ?? ["128", "128", "128"];
  return `rgba(${r},${g},${b},${alpha})`;
}

/** All colours that charts use, read once a theme. */
export function readTokens() {
  const probe = document.createElement("i");
  document.body.append(probe);
  /** @type {Record<string, string>} */
  const tokens = {};
  for (const name of ["ink-1", "ink-2", "ink-3", "line", "line-strong", "surface-1", "c1", "c2", "c3", "c4", "c5", "c6", "c7", "c8"]) {
    tokens[name] = token(probe, name);
  }
  probe.remove();
  return tokens;
}

/** Plotly's number for a value in the chart's format: percentages and GiB are scaled, not only labelled. */
function scale(/** @type {string} */ format, /** @type {number} */ highest) {
  if (format === "percent") return { by: 100, suffix: "%" };
  if (format === "percent100") return { by: 1, suffix: "%" };
  if (format === "mib") return highest >= 2048 ? { by: 1 / 1024, suffix: " GiB" } : { by: 1, suffix: " MiB" };
  if (format === "seconds") return { by: 1, suffix: " s" };
  if (format === "watts") return { by: 1, suffix: " W" };
  return { by: 1, suffix: "" };
}

/**
 * Everything Plotly needs for one drawing, as plain data.
 * @param {Spec} spec @param {import("./series.js").Series} series @param {Mark[]} marks @param {Look} look
 * @param {Record<string, string>} tokens
 */
export function drawing(spec, series, marks, look, tokens) {
  const lines = spec.lines.map((line) => ({ ...line, ...series.get(line.metric) })).filter((l) => l.value.length);
  const highest = lines.reduce((top, l) => l.value.reduce((m, v) => Math.max(m, v), top), -Infinity);
  const lowest = lines.reduce((top, l) => l.value.reduce((m, v) => Math.min(m, v), top), Infinity);
  const { by, suffix } = scale(spec.format, highest);
  const x = (/** @type {import("./series.js").Columns} */ c) =>
    spec.x === "time" ? c.t.map((t) => t * 1000) : c.step;
  /** @type {any[]} */
  const traces = [];
  const ends = [];
  for (const line of lines) {
    const colour = tokens[line.colour];
    const values = line.value.map((v) => v * by);
    const smoothed = look.smoothing ? smooth(values, look.smoothing) : values;
    const band = line.band ? series.get(line.band).value : [];
    if (lines.length === 1 && band.length === values.length && !look.log) {
      const spread = smooth(band.map((v) => v * by), look.smoothing);
      const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", x: x(line) };
      traces.push({ ...edge, y: smoothed.map((v, i) => v - spread[i]) });
      traces.push({ ...edge, y: smoothed.map((v, i) => v + spread[i]), fill: "tonexty", fillcolor: faint(colour, 0.12) });
    }
    if (look.smoothing && values.length > 2) {
      traces.push({ x: x(line), y: values, mode: "lines", line: { width: 1, color: faint(colour, 0.25) }, hoverinfo: "skip" });
    }
    const few = values.length === 1;
    traces.push({
      x: x(line),
      y: smoothed,
      customdata: values,
      name: line.label,
      mode: few ? "markers" : "lines",
      marker: { size: 5, color: colour },
      line: { width: 1.5, color: colour },
      hovertemplate: `%{customdata:.4~g}${suffix}`,
    });
    ends.push({ label: line.label, y: smoothed[smoothed.length - 1], colour });
  }
  for (const line of spec.lines) {
    const points = line.evaluation ? series.get(line.evaluation) : null;
    if (!points?.value.length) continue;
    traces.push({
      x: x(points),
      y: points.value.map((v) => v * by),
      name: `${line.label}, evaluation`,
      mode: "lines+markers",
      line: { width: 1, dash: "dot", color: tokens[line.colour] },
      marker: { size: points.value.length > MANY ? 3 : 6, color: tokens["surface-1"], line: { width: 1.5, color: tokens[line.colour] } },
      hovertemplate: `%{y:.4~g}${suffix}`,
    });
  }
  if (marks.length) traces.push(markTrace(marks, spec, tokens));
  return { traces, layout: layout(spec, look, tokens, ends, { by, suffix, lowest: lowest * by, highest: highest * by }) };
}

/** Events on the x axis, with their words on hover. */
function markTrace(/** @type {Mark[]} */ marks, /** @type {Spec} */ spec, /** @type {Record<string, string>} */ tokens) {
  const placed = marks.filter((m) => spec.x === "time" || m.step !== null);
  // A long run's checkpoints would make the axis a row of teeth.
  const shown = placed.length > MANY ? placed.filter((m) => m.kind !== "checkpoint") : placed;
  return {
    x: shown.map((m) => (spec.x === "time" ? m.t * 1000 : m.step)),
    y: shown.map(() => 0),
    yaxis: "y2",
    mode: "markers",
    cliponaxis: false,
    marker: { symbol: "triangle-up", size: 7, color: tokens["ink-3"] },
    // Plotly reads tags in texts; these are words of models and trainers.
    text: shown.map((m) => m.text.replaceAll("&", "&amp;").replaceAll("<", "&lt;")),
    hovertemplate: "%{text}",
    name: "",
  };
}

/**
 * The one look of all charts.
 * @param {Spec} spec @param {Look} look @param {Record<string, string>} tokens
 * @param {{label: string, y: number, colour: string}[]} ends
 * @param {{by: number, suffix: string, lowest: number, highest: number}} figures
 */
function layout(spec, look, tokens, ends, figures) {
  const font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 11, color: tokens["ink-3"] };
  const axis = { gridcolor: tokens.line, linecolor: tokens.line, zeroline: false, tickfont: { size: 10 }, automargin: false };
  const labels = ends.length > 1 && ends.length <= 4;
  // A bound far from the data would flatten the line: it shows as soon as the line comes near it.
  const near = 0.3 * ((figures.highest - (spec.zero ? 0 : figures.lowest)) || Math.abs(figures.highest) * 0.1);
  const bounds = spec.bounds.filter(
    (b) => b.value * figures.by <= figures.highest + near && b.value * figures.by >= figures.lowest - near,
  );
  return {
    font,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: 44, r: labels ? ROOM_FOR_LABELS : 10, t: 6, b: 22 },
    showlegend: ends.length > 4,
    legend: { orientation: "h", y: -0.15, font: { size: 10 } },
    hovermode: "x unified",
    hoverlabel: { bgcolor: tokens["surface-1"], bordercolor: tokens["line-strong"], font: { size: 11, color: tokens["ink-1"] } },
    // The same value each time: a range that the person zoomed to survives new data.
    uirevision: look.log ? "log" : "linear",
    dragmode: "zoom",
    xaxis: {
      ...axis,
      type: spec.x === "time" ? "date" : "linear",
      showgrid: false,
      nticks: 6,
      tickformat: spec.x === "time" ? undefined : ",d",
      hoverformat: spec.x === "time" ? "%H:%M:%S" : ",d",
      unifiedhovertitle: { text: spec.x === "time" ? "%{x}" : "step %{x}" },
      spikethickness: 1,
      spikedash: "solid",
      spikecolor: tokens["line-strong"],
    },
    yaxis: {
      ...axis,
      type: look.log ? "log" : "linear",
      rangemode: spec.zero && !look.log ? "tozero" : "normal",
      nticks: 5,
      ticksuffix: figures.suffix,
      // d3's SI form would write 0.5 as 500m.
      tickformat: figures.highest >= 10_000 ? ".3~s" : ".4~g",
    },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    shapes: bounds.map((b) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: b.value * figures.by, y1: b.value * figures.by,
      line: { width: 1, dash: "dot", color: tokens["line-strong"] },
    })),
    annotations: [
      ...bounds.map((b) => ({
        xref: "paper", x: 0, xanchor: "left", y: b.value * figures.by, yanchor: "bottom", showarrow: false,
        text: `${b.name} ${significant(b.value * figures.by)}${figures.suffix}`, font: { size: 10, color: tokens["ink-3"] },
      })),
      ...(labels ? directLabels(ends, look, figures.highest - (spec.zero ? 0 : figures.lowest)) : []),
    ],
  };
}

/**
 * Names at the lines' ends instead of a legend, pushed apart where lines end close together.
 * @param {{label: string, y: number, colour: string}[]} ends @param {Look} look
 * @param {number} span  what the y axis spans
 */
function directLabels(ends, look, span) {
  const order = [...ends].sort((a, b) => b.y - a.y);
  let above = -Infinity;
  return order.map((end) => {
    const natural = ((order[0].y - end.y) / (span || 1)) * PLOT_HEIGHT;
    const placed = Math.max(natural, above + LABEL_HEIGHT);
    above = placed;
    return {
      xref: "paper", x: 1, xanchor: "left", xshift: 4, yanchor: "middle", showarrow: false,
      y: look.log ? Math.log10(Math.max(end.y, 1e-12)) : end.y,
      yshift: natural - placed,
      text: end.label, font: { size: 10, color: end.colour },
    };
  });
}

/** One chart on the page: its element, its drawing, its menu. */
export class Chart {
  /**
   * @param {HTMLElement} element  the figure that the server reserved
   * @param {Spec} spec @param {import("./series.js").Series} series
   */
  constructor(element, spec, series) {
    this.element = element;
    this.spec = spec;
    this.series = series;
    this.plot = /** @type {HTMLElement} */ (element.querySelector("[data-plot]"));
    this.value = /** @type {HTMLElement} */ (element.querySelector("[data-value]"));
    this.log = spec.log;
    this.smoothed = true;
    this.drawn = false;
  }

  /** @param {Set<string>} metrics */
  concerns(metrics) {
    return this.spec.lines.some((l) => [l.metric, l.band, l.evaluation].some((name) => name && metrics.has(name)));
  }

  hasPoints() {
    return this.spec.lines.some((l) => this.series.get(l.metric).value.length > 0);
  }

  /** The newest value beside the title; text only, so it follows each frame. */
  showValue() {
    const line = this.spec.lines.length > 1 ? this.spec.lines.find((l) => /mean|all/.test(l.label)) ?? this.spec.lines[0] : this.spec.lines[0];
    const [text, unit] = figure(this.series.last(line.metric), this.spec.format);
    this.value.replaceChildren(text, Object.assign(document.createElement("span"), { className: "unit", textContent: unit }));
  }

  /**
   * @param {any} plotly @param {Mark[]} marks @param {number} smoothing @param {Record<string, string>} tokens
   */
  draw(plotly, marks, smoothing, tokens) {
    const empty = !this.hasPoints();
    this.element.classList.toggle("waiting", empty);
    if (empty) return;
    const look = { smoothing: this.smoothed ? smoothing : 0, log: this.log };
    const { traces, layout } = drawing(this.spec, this.series, marks, look, tokens);
    plotly.react(this.plot, traces, layout, { responsive: false, displayModeBar: false, doubleClick: "reset+autosize", showTips: false });
    this.drawn = true;
    this.element.classList.add("drawn");
  }

  /** @param {any} plotly */
  resize(plotly) {
    if (this.drawn) plotly.Plots.resize(this.plot);
  }
}
