// One step on a time axis: a bar for each phase, a row for each lane. Draws with Plotly; knows no socket.

import { plain } from "./labels.js";
import { readTokens } from "./plotly_figure.js";

/**
 * @typedef {{phase: string, colour: string, start: number, seconds: number}} Bar
 * @typedef {{key: string, label: string, bars: Bar[], gaps: [start: number, seconds: number][]}} Lane
 * @typedef {{label: string, t: number[], percent: number[]}} Use
 * @typedef {{seconds: number, lanes: Lane[], gpus: Use[]}} Step
 */

const ROW_PX = 30;
const AXIS_PX = 30;
const GPU_PX = 70;
const NARROW_PX = 560;
const LETTERS = { narrow: 10, wide: 22 };
const LETTER_PX = 6.5;
const CONFIG = { responsive: false, displayModeBar: false, showTips: false, scrollZoom: false };
/** Minimum time between two reloads. */
const PAUSE_MS = 15_000;

/** Returns everything that Plotly needs. @param {Step} step @param {Record<string, string>} tokens @param {{width: number, longest: number}} room */
export function drawing(step, tokens, { width, longest }) {
  const letters = width < NARROW_PX ? LETTERS.narrow : LETTERS.wide;
  const cut = (/** @type {string} */ label) => (label.length > letters ? `${label.slice(0, letters - 1)}…` : label);
  const rows = step.lanes.map((lane) => lane.key);
  const labels = step.lanes.map((lane) => plain(cut(lane.label)));
  const traces = [idle(step, tokens), ...phases(step, tokens), ...step.gpus.map((use, i) => load(use, i, tokens))];
  const gpus = step.gpus.length ? GPU_PX : 0;
  const height = rows.length * ROW_PX + AXIS_PX + gpus;
  const axis = { gridcolor: tokens.line, linecolor: tokens.line, zeroline: false, tickfont: { size: 11, color: tokens["ink-2"] }, fixedrange: true };
  const split = gpus / (height - AXIS_PX);
  const layout = {
    width, height, barmode: "overlay", bargap: 0.25, showlegend: false, hovermode: "closest",
    font: { family: tokens.font, size: 11, color: tokens["ink-3"] },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    margin: { l: Math.round(Math.max(...labels.map((label) => label.length)) * LETTER_PX) + 12, r: 12, t: 2, b: AXIS_PX - 4 },
    hoverlabel: { bgcolor: tokens["surface-1"], bordercolor: tokens["line-strong"], font: { size: 11, color: tokens["ink-1"] } },
    xaxis: { ...axis, range: [0, longest || step.seconds], ticksuffix: " s", nticks: width < NARROW_PX ? 5 : 9, anchor: gpus ? "y2" : "y" },
    yaxis: { ...axis, type: "category", categoryorder: "array", categoryarray: rows, autorange: "reversed", tickvals: rows, ticktext: labels, showgrid: false, domain: [split, 1] },
    ...(gpus ? { yaxis2: { ...axis, range: [0, 105], tickvals: [0, 100], ticktext: ["0 %", "100 %"], domain: [0, Math.max(0, split - 0.04)] } } : {}),
  };
  return { traces, layout };
}

/** @param {Step} step @param {Record<string, string>} tokens */
function idle(step, tokens) {
  const gaps = step.lanes.flatMap((lane) => lane.gaps.map(([start, seconds]) => ({ row: lane.key, start, seconds })));
  return {
    type: "bar", orientation: "h", name: "idle",
    y: gaps.map((gap) => gap.row), base: gaps.map((gap) => gap.start), x: gaps.map((gap) => gap.seconds),
    marker: { color: "rgba(0,0,0,0)", line: { width: 0 }, pattern: { shape: "/", size: 6, solidity: 0.2, fgcolor: tokens["line-strong"], bgcolor: "rgba(0,0,0,0)" } },
    hovertemplate: "idle %{x:.3~g} s<extra></extra>",
  };
}

/** Returns one trace for each phase and colour. @param {Step} step @param {Record<string, string>} tokens */
function phases(step, tokens) {
  /** @type {Map<string, {row: string, bar: Bar}[]>} */
  const found = new Map();
  for (const lane of step.lanes) {
    for (const bar of lane.bars) {
      const key = `${bar.phase} ${bar.colour}`;
      found.set(key, [...(found.get(key) ?? []), { row: lane.key, bar }]);
    }
  }
  return [...found.values()].map((of) => ({
    type: "bar", orientation: "h", name: plain(of[0].bar.phase),
    y: of.map(({ row }) => row), base: of.map(({ bar }) => bar.start), x: of.map(({ bar }) => bar.seconds),
    customdata: of.map(({ bar }) => [bar.start, bar.start + bar.seconds]),
    // A line in the background colour separates consecutive micro-batches.
    marker: { color: tokens[of[0].bar.colour], line: { width: 1, color: tokens["surface-1"] } },
    hovertemplate: `${plain(of[0].bar.phase)} %{x:.3~g} s<br>from %{customdata[0]:.3~f} to %{customdata[1]:.3~f} s<extra></extra>`,
  }));
}

/** Returns the trace of a GPU utilization, coloured as in the legend. @param {Use} use @param {number} i @param {Record<string, string>} tokens */
function load(use, i, tokens) {
  return {
    type: "scatter", mode: "lines+markers", name: use.label, yaxis: "y2", x: use.t, y: use.percent,
    line: { width: 1.5, color: tokens[i ? "c1" : "c4"], dash: i ? "dot" : "solid" }, marker: { size: 4 },
    hovertemplate: `${plain(use.label)} %{y:.0f} %<extra></extra>`,
  };
}

export class Waterfall {
  /** @param {HTMLElement} element @param {Promise<any>} plotly @param {number} [longest]  length of the axis in seconds; 0: the step's length */
  constructor(element, plotly, longest = 0) {
    this.element = element;
    this.plotly = plotly;
    this.longest = longest;
    this.step = "";
    this.readAt = -Infinity;
    this.asked = 0;
    new ResizeObserver(() => void this.draw()).observe(element);
    document.addEventListener("themechange", () => void this.draw());
    element.addEventListener("change", (event) => {
      if (event.target instanceof HTMLSelectElement && event.target.matches("[data-waterfall-step]")) {
        this.step = event.target.value;
        void this.read();
      }
    });
  }

  /** Reloads after new steps, unless the user has chosen a step or folded the section. */
  news() {
    if (this.step || performance.now() - this.readAt < PAUSE_MS || !this.element.checkVisibility()) return;
    if (!this.element.contains(document.activeElement)) void this.read();
  }

  async read() {
    this.readAt = performance.now();
    const mine = ++this.asked;
    const response = await fetch(`${this.element.dataset.waterfallUrl}?step=${this.step}`).catch(() => null);
    // Responses may arrive out of order. The page's banner reports a server that isn't responding.
    if (mine !== this.asked || !response?.ok) return;
    const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
    const open = this.element.querySelector("details")?.open ?? false;
    const chosen = this.element.contains(document.activeElement);
    this.element.replaceChildren(...fresh.body.childNodes);
    const table = this.element.querySelector("details");
    if (table) table.open = open;
    if (chosen) /** @type {HTMLElement | null} */ (this.element.querySelector("[data-waterfall-step]"))?.focus();
    await this.draw();
  }

  async draw() {
    const plot = /** @type {HTMLElement | null} */ (this.element.querySelector("[data-plot]"));
    const width = plot?.clientWidth ?? 0;
    if (!plot?.dataset.drawn || !width) return;
    const plotly = await this.plotly;
    const { traces, layout } = drawing(JSON.parse(plot.dataset.drawn), readTokens(), { width, longest: this.longest });
    plot.style.height = `${layout.height}px`;
    plotly.react(plot, traces, layout, CONFIG);
  }
}
