// Plotly's data for a chart: traces from columns of numbers, and the layout that all charts share.

import { figuresOf, height, plainAxis, reach, scale, visible, xAxis } from "./axes.js";
import { directLabels, plain } from "./labels.js";
import { smooth, tokensOf, valuesAt } from "./series.js";

/**
 * @typedef {import("./series.js").Columns} Columns
 * @typedef {import("./series.js").Kind} Kind
 * @typedef {{metric: string, label: string, colour: string, band: string, evaluation: string, weight: number, low?: number | null,
 *   high?: number | null}} Line
 * @typedef {{id: string, title: string, lines: Line[], format: string, zero: boolean, x: "step" | "time",
 *   bounds: {value: number, name: string, level: string}[], log: boolean, stack?: boolean}} Spec
 * @typedef {{step: number | null, t: number, kind: string, text: string}} Mark
 * @typedef {{smoothing: number, log: boolean, x?: Kind, large?: boolean, dense?: boolean, height?: number,
 *   range?: [from: number, to: number], span?: [from: number, to: number]}} Look  range: visible
 *   range of the x axis, as Plotly has it; span: the full range; height: that of the plot, in px
 * @typedef {{get: (metric: string) => Columns, clock: import("./series.js").Clock, origin: number}} Numbers  origin: start of
 *   the time axis
 * @typedef {Record<string, string>} Tokens
 * @typedef {Line & {columns: Columns, dash: string}} Drawn
 * @typedef {import("./labels.js").End} End
 * @typedef {{kind: Kind, numbers: Numbers, look: Look, tokens: Tokens, by: number, suffix: string}} To  context of a drawing
 */

const MARGIN = { l: 44, r: 14, t: 6, b: 22 };
const LARGE_MARGIN = { l: 68, r: 16, t: 16, b: 48 };
/** Width of the right margin for names of lines, for levels of bounds, and for both in full. */
const ROOM = { lines: 70, bounds: 58, large: 174 };
const PLOT_HEIGHT = 150;
/** Maximum number of lines with names at their ends. With more lines, there is a legend when the chart is enlarged. */
const LABELLED = 4;
/** The same limit for stacked lines, whose ends are farther apart. */
const LABELLED_PARTS = 6;
/** Maximum number of lines in the readout; with more it would be higher than a chart. */
const HOVERED_TOGETHER = 8;
const COLOURS = 8;
const DASHES = ["solid", "dash", "dot", "dashdot"];
/** @type {[from: number, to: number]} */
const ALL = [-Infinity, Infinity];
/** Maximum distance between the pointer and a point, if there are many points; otherwise Plotly's default is used. */
const NEAR_PX = 7;
/** Number of points above which full-size markers would be too close together. */
const MANY = 40;
/** Maximum share of the data's height by which a bound beyond the data extends the axis. */
const REACH = 0.3;
/** Share of the height within which a line merges with an axis that starts at 0. */
const ON_AXIS = 0.02;
const MARKS = /** @type {Record<string, {symbol: string, colour: string, size: number}>} */ ({
  alert: { symbol: "diamond", colour: "warn", size: 9 },
  checkpoint: { symbol: "triangle-up", colour: "ink-3", size: 7 },
  requested: { symbol: "square", colour: "ink-2", size: 7 },
  resumed: { symbol: "triangle-right", colour: "accent", size: 9 },
  process_exited: { symbol: "x", colour: "bad", size: 7 },
  reward_failed: { symbol: "cross", colour: "warn", size: 7 },
  status: { symbol: "line-ns-open", colour: "ink-2", size: 9 },
  "": { symbol: "circle", colour: "ink-3", size: 6 },
});

/** Returns a custom property as a colour that Plotly understands; the browser resolves light-dark(). */
function token(/** @type {HTMLElement} */ probe, /** @type {string} */ name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** @param {string} colour  rgb(…) @param {number} alpha */
export function faint(colour, alpha) {
  const [r, g, b] = colour.match(/[\d.]+/g) ?? ["128", "128", "128"];
  return `rgba(${r},${g},${b},${alpha})`;
}

/** Returns the charts' colours and font in the current theme. @returns {Tokens} */
export function readTokens() {
  const probe = document.createElement("i");
  document.body.append(probe);
  /** @type {Tokens} */
  const tokens = {};
  const names = ["ink-1", "ink-2", "ink-3", "line", "line-strong", "surface-1", "accent", "warn", "bad"];
  for (let i = 1; i <= COLOURS; i++) names.push(`c${i}`);
  for (const name of names) tokens[name] = token(probe, name);
  tokens.font = getComputedStyle(probe).fontFamily;
  probe.remove();
  return tokens;
}

/** Returns the margin between the chart's edges and its plot. @param {boolean} [large] */
export const marginOf = (large) => (large ? LARGE_MARGIN : MARGIN);

/** Returns the unit of a chart's x axis, since samples of the machine have a time but no step. @param {Spec} spec @param {Kind} asked
 * @returns {Kind} */
export const kindOf = (spec, asked) => (spec.x === "time" ? "time" : asked);

/** @param {Columns} columns @param {To} to @returns {(number | null)[]} */
function places(columns, { kind, numbers }) {
  if (kind === "time") return columns.t.map((t) => t - numbers.origin);
  return kind === "tokens" ? tokensOf(columns, numbers.clock) : columns.step;
}

/** Returns a line's colour and, if there are more lines than colours, a dash. @param {Line} line @param {number} i */
function stroke(line, i, /** @type {number} */ lines) {
  return lines > COLOURS ? { colour: `c${(i % COLOURS) + 1}`, dash: DASHES[Math.floor(i / COLOURS) % DASHES.length] } : { colour: line.colour, dash: "solid" };
}

/**
 * Returns everything that Plotly needs for one drawing.
 * @param {Spec} spec @param {Numbers} numbers @param {Mark[]} marks @param {Look} look @param {Tokens} tokens
 */
export function drawing(spec, numbers, marks, look, tokens) {
  const kind = kindOf(spec, look.x ?? "step");
  const lines = spec.lines
    .map((line, i) => ({ ...line, ...stroke(line, i, spec.lines.length), columns: numbers.get(line.metric) }))
    .filter((line) => line.columns.value.length);
  const [lowest, highest] = spec.stack ? [0, heaped(lines)] : extent(lines, look.log);
  const { by, suffix } = scale(spec.format, highest);
  const to = { kind, numbers, look, tokens, by, suffix };
  /** @type {End[]} */
  const ends = [];
  const traces = spec.stack && !look.log ? stacked(lines, to, ends) : lines.flatMap((line) => curve(line, lines.length, to, ends));
  for (const line of spec.lines) traces.push(...evaluations(line, to));
  if (marks.length) traces.push(markTrace(marks, to));
  const span = reach(lines.map((line) => places(line.columns, to)));
  const [bottom, top] = visible(traces, look.range ?? ALL, look.log) ?? [lowest * by, highest * by];
  const dense = lines.some((line) => line.columns.seq.length > MANY);
  return { traces, suffix, layout: layout(spec, { ...look, x: kind, dense, span }, tokens, ends, { by, suffix, lowest: bottom, highest: top }) };
}

/** Returns the traces of a line: the raw line behind it, and its standard deviation band if it is alone. @param {Drawn} line
 * @param {number} among  number of the chart's lines @param {To} to @param {End[]} ends  its end is added */
function curve(line, among, to, ends) {
  const { look, tokens } = to;
  const colour = tokens[line.colour];
  const x = places(line.columns, to);
  const values = line.columns.value.map((v) => v * to.by * line.weight);
  const smoothed = look.smoothing ? smooth(values, look.smoothing) : values;
  ends.push({ label: line.label, y: smoothed[lastSeen(x, look)], colour });
  const traces = among === 1 && line.band && !look.log ? band(line, x, smoothed, to) : [];
  // If there are many lines, raw lines behind them would only be clutter.
  if (look.smoothing && values.length > 2 && among <= LABELLED) {
    traces.push({ x, y: values, mode: "lines", line: { width: 1, color: faint(colour, 0.25) }, hoverinfo: "skip", showlegend: false });
  }
  traces.push({
    x,
    y: smoothed,
    customdata: values,
    name: plain(line.label),
    meta: line.label,
    mode: values.length === 1 ? "markers" : "lines",
    marker: { size: 5, color: colour },
    line: { width: 1.5, color: colour, dash: line.dash },
    hoverinfo: "none",
  });
  return traces;
}

/** Returns the traces of stacked lines. They were thinned separately, so all are interpolated at every point of any line.
 * @param {Drawn[]} lines @param {To} to @param {End[]} ends @returns {any[]} */
function stacked(lines, to, ends) {
  const columns = union(lines.map((line) => line.columns));
  const x = places(columns, to);
  let below = columns.seq.map(() => 0);
  return lines.map((line, i) => {
    const values = valuesAt(line.columns, columns.seq).map((v) => v * to.by * line.weight);
    const thick = to.look.smoothing ? smooth(values, to.look.smoothing) : values;
    const top = thick.map((v, at) => v + below[at]);
    const colour = to.tokens[line.colour];
    const last = lastSeen(x, to.look);
    ends.push({ label: line.label, y: (top[last] + below[last]) / 2, colour });
    below = top;
    return {
      x,
      y: top,
      customdata: values,
      name: plain(line.label),
      meta: line.label,
      mode: "lines",
      line: { width: 1, color: colour },
      fill: i ? "tonexty" : "tozeroy",
      fillcolor: faint(colour, 0.3),
      hoverinfo: "none",
    };
  });
}

/** Returns the index of a line's last visible point. @param {(number | null)[]} x @param {Look} look */
function lastSeen(x, { range }) {
  return range ? Math.max(0, x.findLastIndex((at) => at !== null && at <= range[1])) : x.length - 1;
}

/** Returns the points of several columns without values and duplicates. @param {Columns[]} all @returns {Columns} */
function union(all) {
  /** @type {Map<number, [step: number | null, t: number]>} */
  const points = new Map();
  for (const { seq, step, t } of all) seq.forEach((s, i) => points.set(s, [step[i], t[i]]));
  const order = [...points].sort(([a], [b]) => a - b);
  return { seq: order.map(([seq]) => seq), step: order.map(([, [step]]) => step), t: order.map(([, [, t]]) => t), value: [] };
}

/** Returns the maximum height of stacked lines. @param {Drawn[]} lines */
const heaped = (lines) => lines.reduce((sum, line) => sum + Math.max(0, extent([line])[1]), 0);

/** @param {{columns: Columns, weight: number}[]} lines @param {boolean} log  skips values that aren't positive
 * @returns {[lowest: number, highest: number]} */
function extent(lines, log = false) {
  let [lowest, highest] = [Infinity, -Infinity];
  for (const { columns, weight } of lines) {
    for (const value of columns.value) {
      if (log && value * weight <= 0) continue;
      lowest = Math.min(lowest, value * weight);
      highest = Math.max(highest, value * weight);
    }
  }
  return [lowest, highest];
}

/** Returns a band of one standard deviation on both sides, within the range of possible values. @param {Drawn} line @param {(number | null)[]} x @param {number[]} middle
 * @param {To} to @returns {any[]} */
function band(line, x, middle, { numbers, look, tokens, by }) {
  const deviation = numbers.get(line.band);
  if (!deviation.value.length) return [];
  const raw = valuesAt(deviation, line.columns.seq).map((v) => Math.abs(v * by * line.weight));
  const spread = look.smoothing ? smooth(raw, look.smoothing) : raw;
  const [low, high] = [line.low ?? -Infinity, line.high ?? Infinity].map((end) => end * by * line.weight);
  // The declared range may be wrong, so the band always includes the line.
  const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, x };
  return [
    { ...edge, y: middle.map((v, i) => Math.max(v - spread[i], Math.min(v, low))) },
    { ...edge, y: middle.map((v, i) => Math.min(v + spread[i], Math.max(v, high))), fill: "tonexty", fillcolor: faint(tokens[line.colour], 0.12) },
  ];
}

/** Returns the traces of the same metric on held-out rows. @param {Line} line @param {To} to @returns {any[]} */
function evaluations(line, to) {
  const columns = line.evaluation ? to.numbers.get(line.evaluation) : null;
  if (!columns?.value.length) return [];
  const colour = to.tokens[line.colour];
  return [
    {
      x: places(columns, to),
      y: columns.value.map((v) => v * to.by * line.weight),
      name: `${plain(line.label)}, evaluation`,
      meta: `${line.label}, evaluation`,
      mode: "lines+markers",
      line: { width: 1, dash: "dot", color: colour },
      marker: { size: columns.value.length > MANY ? 3 : 6, color: to.tokens["surface-1"], line: { width: 1.5, color: colour } },
      hoverinfo: "none",
    },
  ];
}

/** Returns the events on the x axis, with their text on hover. @param {Mark[]} marks @param {To} to */
function markTrace(marks, to) {
  const placed = marks.filter((m) => to.kind === "time" || m.step !== null);
  // The checkpoints of a long run would cover the axis.
  const drawn = placed.length > MANY ? placed.filter((m) => m.kind !== "checkpoint") : placed;
  const looks = drawn.map((m) => MARKS[m.kind] ?? MARKS[""]);
  return {
    x: places({ seq: [], step: drawn.map((m) => m.step), t: drawn.map((m) => m.t), value: [] }, to),
    y: drawn.map(() => 0),
    yaxis: "y2",
    mode: "markers",
    cliponaxis: false,
    showlegend: false,
    marker: {
      symbol: looks.map((l) => l.symbol),
      size: looks.map((l) => l.size),
      color: looks.map((l) => to.tokens[l.colour]),
      line: { width: looks.map((l) => (l.symbol.endsWith("open") ? 1.5 : 0)) },
    },
    text: drawn.map((m) => m.text),
    hoverinfo: "none",
    name: "",
  };
}

/**
 * Returns the layout, which is the same for all charts.
 * @param {Spec} spec @param {Look} look @param {Tokens} tokens @param {End[]} ends
 * @param {{by: number, suffix: string, lowest: number, highest: number}} figures
 */
export function layout(spec, look, tokens, ends, figures) {
  const large = look.large === true;
  const most = spec.stack ? LABELLED_PARTS : LABELLED;
  const named = ends.length > 1 && ends.length <= most;
  const bounds = near(spec, look.log, figures);
  const margin = marginOf(large);
  const labels = [
    ...(named ? ends : []),
    ...bounds.map((b) => ({ label: large ? b.name : b.level, words: b.name, y: b.value * figures.by, colour: tokens["ink-3"] })),
  ];
  const room = !labels.length ? margin.r : large ? ROOM.large : named ? ROOM.lines : ROOM.bounds;
  const y = height(spec, look.log, {
    lowest: Math.min(figures.lowest, ...bounds.map((b) => b.value * figures.by)),
    highest: Math.max(figures.highest, ...bounds.map((b) => b.value * figures.by)),
  });
  return {
    ...ground(tokens),
    margin: { ...margin, r: room },
    showlegend: large && ends.length > most,
    legend: { font: { size: 11, color: tokens["ink-2"] }, orientation: "h", x: 0, y: 1.02, yanchor: "bottom", itemsizing: "constant" },
    ...hovered(ends.length),
    hoverdistance: look.dense ? NEAR_PX : undefined,
    xaxis: { ...plainAxis(tokens), ...xAxis(look.x ?? "step", look.range ?? look.span ?? [0, 1], large), ...(look.range ? { autorange: false, range: look.range } : { autorange: true }), ...spike(tokens) },
    yaxis: {
      ...plainAxis(tokens),
      type: look.log ? "log" : "linear",
      fixedrange: true,
      ...(y.range.every(Number.isFinite) ? y : { autorange: true }),
      nticks: large ? 10 : 5,
      ticksuffix: figures.suffix,
      ...figuresOf(figures.lowest, figures.highest),
      ...(large ? { title: { text: plain(spec.title), standoff: 8 } } : {}),
    },
    yaxis2: { overlaying: "y", range: [0, 1], fixedrange: true, visible: false },
    shapes: bounds.map((b) => ({
      type: "line", xref: "paper", x0: 0, x1: 1, y0: b.value * figures.by, y1: b.value * figures.by,
      line: { width: 1, dash: "dot", color: tokens["line-strong"] },
    })),
    annotations: directLabels(labels, { range: y.range, height: look.height ?? PLOT_HEIGHT, log: look.log, room, ink: tokens["ink-1"], font: tokens.font }),
  };
}

/** Returns the layout's background and fonts, shared by the charts of all pages. @param {Tokens} tokens */
export function ground(tokens) {
  return {
    font: { family: tokens.font, size: 11, color: tokens["ink-3"] },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    dragmode: "zoom",
    hoverlabel: { bgcolor: tokens["surface-1"], bordercolor: tokens["line-strong"], namelength: -1, font: { size: 11, color: tokens["ink-1"] } },
  };
}

/** Returns whether lines show their values together (up to HOVERED_TOGETHER lines) or one at a time. @param {number} lines */
export const hovered = (lines) => ({ hovermode: lines > HOVERED_TOGETHER ? "closest" : "x" });

/** Returns the vertical line through the point whose values are shown. @param {Tokens} tokens */
export const spike = (tokens) => ({
  showgrid: false, showspikes: true, spikemode: "across", spikesnap: "hovered data", spikethickness: 1, spikedash: "solid", spikecolor: tokens["line-strong"],
});

/** Returns the bounds near the curve. Plotly fits the axis to everything drawn, so bounds far from the data would flatten
 * the curve. @param {Spec} spec @param {boolean} log
 * @param {{by: number, lowest: number, highest: number}} figures */
function near(spec, log, { by, lowest, highest }) {
  const on = (/** @type {number} */ y) => (log ? Math.log10(y) : y);
  const from0 = spec.zero && !log;
  const [bottom, top] = [on(from0 ? Math.min(0, lowest) : lowest), on(highest)];
  const height = top - bottom || (log ? 1 : Math.abs(top) * 0.1);
  const least = from0 ? bottom + ON_AXIS * height : bottom - REACH * height;
  return spec.bounds.filter((b) => on(b.value * by) >= least && on(b.value * by) <= top + REACH * height);
}
