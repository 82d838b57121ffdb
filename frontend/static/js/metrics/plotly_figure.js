// What Plotly is told of one chart, as plain data: traces from columns of numbers, and the one look of all charts.

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
 *   range?: [from: number, to: number]}} Look  range: the part of the x axis that is looked at, as Plotly is given it
 * @typedef {{get: (metric: string) => Columns, clock: import("./series.js").Clock}} Numbers
 * @typedef {Record<string, string>} Tokens
 * @typedef {Line & {columns: Columns, dash: string}} Drawn
 * @typedef {{label: string, y: number, colour: string}} End  of a line, for its name
 * @typedef {{kind: Kind, numbers: Numbers, look: Look, tokens: Tokens, by: number, suffix: string}} To  what it is drawn for
 */

const ROOM_FOR_LABELS = 58;
const LABEL_HEIGHT = 12;
const LABEL_LETTERS = 8;
const LARGE = 3;
export const MARGIN = { l: 44, r: 10, t: 6, b: 22 };
const PLOT_HEIGHT = 150;
/** So many lines are named at their ends; more have a legend, once the chart is enlarged. */
const LABELLED = 4;
/** Parts that lie on each other end apart. */
const LABELLED_PARTS = 6;
/** A box with more lines than this would be higher than a chart. */
const HOVERED_TOGETHER = 8;
const COLOURS = 8;
const DASHES = ["solid", "dash", "dot", "dashdot"];
/** A mark further from the pointer than this isn't what is pointed at; where points are few, Plotly's own distance. */
const NEAR_PX = 7;
/** More points than this are too close together for full-size markers. */
const MANY = 40;
/** A bound that is drawn beyond the data makes the axis longer by this share of their height at most. */
const REACH = 0.3;
/** Nearer than this share to an axis that starts at 0, a line can't be told from the axis. */
const ON_AXIS = 0.02;
/** Above and below the lines, of their height. */
const ROOM = 0.06;
const DAY_MS = 24 * 3600 * 1000;

/** In one line each: the second that Plotly adds for the date has no room. */
const TIME_TICKS = [
  { dtickrange: [null, 59_999], value: "%H:%M:%S" },
  { dtickrange: [60_000, DAY_MS - 1], value: "%H:%M" },
  { dtickrange: [DAY_MS, null], value: "%b %-d" },
];

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

/** The value of a custom property as a colour that Plotly understands: light-dark() is resolved by the browser. */
function token(/** @type {HTMLElement} */ probe, /** @type {string} */ name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/** @param {string} colour  rgb(…) @param {number} alpha */
export function faint(colour, alpha) {
  const [r, g, b] = colour.match(/[\d.]+/g) ?? ["128", "128", "128"];
  return `rgba(${r},${g},${b},${alpha})`;
}

/** The colours and the typeface of charts, read once a theme. @returns {Tokens} */
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

/** Plotly reads tags in texts; these are words of models, trainers and people. @param {string} text */
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/** Plotly's number for a value in the chart's format: percentages and GiB are scaled, not only labelled. */
export function scale(/** @type {string} */ format, /** @type {number} */ highest) {
  if (format === "percent") return { by: 100, suffix: "%" };
  if (format === "percent100") return { by: 1, suffix: "%" };
  if (format === "mib") return highest >= 2048 ? { by: 1 / 1024, suffix: " GiB" } : { by: 1, suffix: " MiB" };
  if (format === "seconds") return { by: 1, suffix: " s" };
  if (format === "watts") return { by: 1, suffix: " W" };
  return { by: 1, suffix: "" };
}

/** What the x axis of a chart counts: samples of the machine have a time and no step. @param {Spec} spec @param {Kind} asked
 * @returns {Kind} */
export const kindOf = (spec, asked) => (spec.x === "time" ? "time" : asked);

/** Plotly takes a moment as milliseconds and shows it in the viewer's zone. @param {number} t  seconds */
export const shown = (t) => t * 1000;

/** The seconds of a place on Plotly's own axis: there the clock on the wall is written as if it were UTC.
 * @param {number} wall */
export function unshown(wall) {
  const offset = (/** @type {number} */ ms) => new Date(ms).getTimezoneOffset() * 60_000;
  return (wall + offset(wall + offset(wall))) / 1000;
}

/** @param {Columns} columns @param {To} to @returns {(number | null)[]} */
function places(columns, { kind, numbers }) {
  if (kind === "time") return columns.t.map(shown);
  return kind === "tokens" ? tokensOf(columns, numbers.clock) : columns.step;
}

/** A colour and, where there are more lines than colours, a way of drawing. @param {Line} line @param {number} i */
function stroke(line, i, /** @type {number} */ lines) {
  return lines > COLOURS ? { colour: `c${(i % COLOURS) + 1}`, dash: DASHES[Math.floor(i / COLOURS) % DASHES.length] } : { colour: line.colour, dash: "solid" };
}

/**
 * Everything Plotly needs for one drawing.
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
  const [bottom, top] = (look.range && visible(traces, look.range, look.log)) ?? [lowest * by, highest * by];
  const dense = lines.some((line) => line.columns.seq.length > MANY);
  return { traces, layout: layout(spec, { ...look, x: kind, dense }, tokens, ends, { by, suffix, lowest: bottom, highest: top }) };
}

/** The line; behind it the raw one, and the band of its deviation where it is alone. @param {Drawn} line
 * @param {number} among  lines of the chart @param {To} to @param {End[]} ends  grows by where it ends */
function curve(line, among, to, ends) {
  const { look, tokens, suffix } = to;
  const colour = tokens[line.colour];
  const x = places(line.columns, to);
  const values = line.columns.value.map((v) => v * to.by * line.weight);
  const smoothed = look.smoothing ? smooth(values, look.smoothing) : values;
  ends.push({ label: line.label, y: smoothed[lastSeen(x, look)], colour });
  const traces = among === 1 && line.band && !look.log ? band(line, x, smoothed, to) : [];
  // Behind many lines the raw ones would only be a haze.
  if (look.smoothing && values.length > 2 && among <= LABELLED) {
    traces.push({ x, y: values, mode: "lines", line: { width: 1, color: faint(colour, 0.25) }, hoverinfo: "skip", showlegend: false });
  }
  traces.push({
    x,
    y: smoothed,
    customdata: values,
    name: plain(line.label),
    mode: values.length === 1 ? "markers" : "lines",
    marker: { size: 5, color: colour },
    line: { width: 1.5, color: colour, dash: line.dash },
    hovertemplate: `%{customdata:.4~g}${suffix}`,
  });
  return traces;
}

/** Parts of one whole, each on the ones before. Each was thinned on its own, so all are read where any has a point.
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
      mode: "lines",
      line: { width: 1, color: colour },
      fill: i ? "tonexty" : "tozeroy",
      fillcolor: faint(colour, 0.3),
      hovertemplate: `%{customdata:.4~g}${to.suffix}`,
    };
  });
}

/** The place of a line's last point that is looked at. @param {(number | null)[]} x @param {Look} look */
function lastSeen(x, { range }) {
  return range ? Math.max(0, x.findLastIndex((at) => at !== null && at <= range[1])) : x.length - 1;
}

/** The points of several columns, each once, without values. @param {Columns[]} all @returns {Columns} */
function union(all) {
  /** @type {Map<number, [step: number | null, t: number]>} */
  const points = new Map();
  for (const { seq, step, t } of all) seq.forEach((s, i) => points.set(s, [step[i], t[i]]));
  const order = [...points].sort(([a], [b]) => a - b);
  return { seq: order.map(([seq]) => seq), step: order.map(([, [step]]) => step), t: order.map(([, [, t]]) => t), value: [] };
}

/** How high they can lie on each other. @param {Drawn[]} lines */
const heaped = (lines) => lines.reduce((sum, line) => sum + Math.max(0, extent([line])[1]), 0);

/** @param {{columns: Columns, weight: number}[]} lines @param {boolean} log  then 0 and less have no place
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

/** One standard deviation to both sides, within the range of possible values. @param {Drawn} line @param {(number | null)[]} x @param {number[]} middle
 * @param {To} to @returns {any[]} */
function band(line, x, middle, { numbers, look, tokens, by }) {
  const deviation = numbers.get(line.band);
  if (!deviation.value.length) return [];
  const raw = valuesAt(deviation, line.columns.seq).map((v) => Math.abs(v * by * line.weight));
  const spread = look.smoothing ? smooth(raw, look.smoothing) : raw;
  const [low, high] = [line.low ?? -Infinity, line.high ?? Infinity].map((end) => end * by * line.weight);
  // A declared range may be wrong: the band never ends before the line.
  const edge = { mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, x };
  return [
    { ...edge, y: middle.map((v, i) => Math.max(v - spread[i], Math.min(v, low))) },
    { ...edge, y: middle.map((v, i) => Math.min(v + spread[i], Math.max(v, high))), fill: "tonexty", fillcolor: faint(tokens[line.colour], 0.12) },
  ];
}

/** The same figure on the held-out rows. @param {Line} line @param {To} to @returns {any[]} */
function evaluations(line, to) {
  const columns = line.evaluation ? to.numbers.get(line.evaluation) : null;
  if (!columns?.value.length) return [];
  const colour = to.tokens[line.colour];
  return [
    {
      x: places(columns, to),
      y: columns.value.map((v) => v * to.by * line.weight),
      name: `${plain(line.label)}, evaluation`,
      mode: "lines+markers",
      line: { width: 1, dash: "dot", color: colour },
      marker: { size: columns.value.length > MANY ? 3 : 6, color: to.tokens["surface-1"], line: { width: 1.5, color: colour } },
      hovertemplate: `%{y:.4~g}${to.suffix}`,
    },
  ];
}

/** Events on the x axis, with their words on hover. @param {Mark[]} marks @param {To} to */
function markTrace(marks, to) {
  const placed = marks.filter((m) => to.kind === "time" || m.step !== null);
  // A long run's checkpoints would make the axis a row of teeth.
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
    text: drawn.map((m) => plain(m.text)),
    hovertemplate: "%{text}",
    name: "",
  };
}

/**
 * The one look of all charts.
 * @param {Spec} spec @param {Look} look @param {Tokens} tokens
 * @param {{label: string, y: number, colour: string}[]} ends
 * @param {{by: number, suffix: string, lowest: number, highest: number}} figures
 */
export function layout(spec, look, tokens, ends, figures) {
  const font = { family: tokens.font, size: 11, color: tokens["ink-3"] };
  const axis = { gridcolor: tokens.line, linecolor: tokens.line, zeroline: false, tickfont: { size: 10 }, automargin: false };
  const most = spec.stack ? LABELLED_PARTS : LABELLED;
  const labels = ends.length > 1 && ends.length <= most;
  const legend = ends.length > most && look.large === true;
  const bounds = near(spec, look.log, figures);
  return {
    font,
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    margin: { ...MARGIN, r: labels ? ROOM_FOR_LABELS * (look.large ? LARGE : 1) : MARGIN.r },
    showlegend: legend,
    legend: { font: { size: 11, color: tokens["ink-2"] }, x: 1.01, y: 1, itemsizing: "constant" },
    hovermode: ends.length > HOVERED_TOGETHER ? "closest" : "x unified",
    hoverdistance: look.dense ? NEAR_PX : undefined,
    hoverlabel: { bgcolor: tokens["surface-1"], bordercolor: tokens["line-strong"], namelength: -1, font: { size: 11, color: tokens["ink-1"] } },
    // The same value each time: a range that the person zoomed to survives new data.
    uirevision: `${look.log ? "log" : "linear"} ${look.x}`,
    dragmode: "zoom",
    xaxis: { ...axis, ...xAxis(look.x ?? "step"), ...(look.range ? { autorange: false, range: look.range } : { autorange: true }), showgrid: false, nticks: 6, spikethickness: 1, spikedash: "solid", spikecolor: tokens["line-strong"] },
    yaxis: {
      ...axis,
      type: look.log ? "log" : "linear",
      rangemode: spec.zero && !look.log ? "tozero" : "normal",
      fixedrange: true,
      ...(look.range ? height(spec, look.log, figures) : { autorange: true }),
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
        // The worse one's words at the other end: they would lie on the milder one's.
        xref: "paper", ...(b.level === "bad" ? { x: 1, xanchor: "right" } : { x: 0, xanchor: "left" }), y: look.log ? Math.log10(b.value * figures.by) : b.value * figures.by, yanchor: "bottom", showarrow: false,
        text: plain(b.name), font: { size: 10, color: tokens["ink-3"] },
      })),
      ...(labels ? directLabels(ends, look, spec.zero && !look.log ? 0 : figures.lowest, figures.highest) : []),
    ],
  };
}

/** The lowest and the highest value between two places; null: none is there. Where Plotly fits an axis itself, it takes in
 * every point. @param {any[]} traces @param {[from: number, to: number]} range @param {boolean} log
 * @returns {[lowest: number, highest: number] | null} */
export function visible(traces, [from, to], log) {
  let [lowest, highest] = [Infinity, -Infinity];
  for (const { x, y, yaxis } of traces) {
    if (yaxis === "y2") continue;
    for (let i = 0; i < x.length; i++) {
      if (x[i] === null || x[i] < from || x[i] > to || (log && y[i] <= 0)) continue;
      lowest = Math.min(lowest, y[i]);
      highest = Math.max(highest, y[i]);
    }
  }
  return lowest <= highest ? [lowest, highest] : null;
}

/** The y axis from the lowest to the highest value, and some room. @param {{zero: boolean}} spec @param {boolean} log
 * @param {{lowest: number, highest: number}} figures */
export function height({ zero }, log, { lowest, highest }) {
  const [low, high] = log ? [Math.log10(lowest), Math.log10(highest)] : [lowest, highest];
  const room = (high - low || Math.abs(high) || 1) * ROOM;
  if (!zero || log) return { autorange: false, range: [low - room, high + room] };
  return { autorange: false, range: [low < 0 ? low - room : 0, high > 0 ? high + room : 0] };
}

/** @param {Kind} kind */
function xAxis(kind) {
  if (kind === "time") return { type: "date", tickformatstops: TIME_TICKS, hoverformat: "%b %-d, %H:%M:%S", unifiedhovertitle: { text: "%{x|%b %-d, %H:%M:%S}" } };
  if (kind === "tokens") return { type: "linear", tickformat: ".3~s", hoverformat: ".4~s", unifiedhovertitle: { text: "%{x} tokens" } };
  // Of one or two steps Plotly marks the halves, too: rounded, two marks would be of one step.
  return { type: "linear", tickformat: ",.9~r", hoverformat: ",d", unifiedhovertitle: { text: "step %{x}" } };
}

/** Plotly makes room for every line and its words, so a bound far from the data would flatten the curve: it shows as soon
 * as the curve comes near it. @param {Spec} spec @param {boolean} log
 * @param {{by: number, lowest: number, highest: number}} figures */
function near(spec, log, { by, lowest, highest }) {
  const on = (/** @type {number} */ y) => (log ? Math.log10(y) : y);
  const from0 = spec.zero && !log;
  const [bottom, top] = [on(from0 ? Math.min(0, lowest) : lowest), on(highest)];
  const height = top - bottom || (log ? 1 : Math.abs(top) * 0.1);
  const least = from0 ? bottom + ON_AXIS * height : bottom - REACH * height;
  return spec.bounds.filter((b) => on(b.value * by) >= least && on(b.value * by) <= top + REACH * height);
}

/**
 * Names at the lines' ends instead of a legend, pushed apart where lines end close together, within the chart.
 * @param {{label: string, y: number, colour: string}[]} ends @param {Look} look
 * @param {number} bottom  where the y axis starts @param {number} top
 */
function directLabels(ends, look, bottom, top) {
  const on = (/** @type {number} */ y) => (look.log ? Math.log10(Math.max(y, 1e-12)) : y);
  const height = look.height ?? PLOT_HEIGHT;
  const high = (/** @type {number} */ y) => ((on(y) - on(bottom)) / (on(top) - on(bottom) || 1)) * height;
  const placed = ends.map((end) => ({ ...end, natural: high(end.y), at: high(end.y) })).sort((a, b) => a.natural - b.natural);
  placed.forEach((end, i) => (end.at = i ? Math.max(end.at, placed[i - 1].at + LABEL_HEIGHT) : Math.max(end.at, 0)));
  for (let i = placed.length - 1, room = height; i >= 0; i--, room -= LABEL_HEIGHT) placed[i].at = Math.min(placed[i].at, room);
  return placed.map((end) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: 4, yanchor: "middle", showarrow: false,
    y: on(end.y),
    yshift: end.at - end.natural,
    text: plain(cut(end.label, LABEL_LETTERS * (look.large ? LARGE : 1))), font: { size: 10, color: end.colour },
  }));
}

/** @param {string} label @param {number} letters */
const cut = (label, letters) => (label.length > letters ? `${label.slice(0, letters - 1)}…` : label);
