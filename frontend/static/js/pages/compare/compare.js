// The comparison page: connects the runs' values, their charts, the table and the address.

import { connectionBar } from "../live/connection.js";
import * as moves from "../../insight/metrics/chart_moves.js";
import { PICTURE, everything, runsCsv, savePicture, saveText } from "../../insight/metrics/chart_files.js";
import { readTokens } from "../../insight/metrics/plotly_figure.js";
import { loadPlotly } from "../../insight/metrics/plotly_script.js";
import * as smoothing from "../../insight/metrics/smoothing.js";
import { Feed } from "../live/feed.js";
import { Overlay } from "./overlay.js";
import { Painter } from "../../insight/metrics/redraws.js";
import { Table } from "./table.js";
import { Waterfall } from "../../insight/metrics/waterfall.js";
import * as state from "../../urlstate.js";

const POINTS = 400;
const PAUSE_MS = 2000;
const AGAIN_MS = 3000;
const LIVE_CELLS = ["Status", "Steps", "Duration", "GPU-hours", "Tokens"];

const page = JSON.parse(document.getElementById("compare-page")?.textContent ?? "{}");
const root = /** @type {HTMLElement} */ (document.querySelector(".compare"));
const grid = /** @type {HTMLElement} */ (document.getElementById("curve-grid"));
const axis = /** @type {HTMLSelectElement} */ (document.getElementById("axis"));
const log = /** @type {HTMLInputElement} */ (document.getElementById("log"));
const figuresOf = /** @type {HTMLSelectElement} */ (document.getElementById("figures-of"));
const table = /** @type {HTMLElement} */ (document.getElementById("compare-table"));
const figures = new Table(table);
const ids = page.runs.map((/** @type {import("./overlay.js").Run} */ run) => run.id).join(",");

// The report contains the page's runs and metrics, on the page's axis.
document.querySelector("[data-report]")?.addEventListener("click", (event) => {
  state.flush();
  const query = new URLSearchParams(location.search);
  query.set("smooth", String(look.smoothing));
  /** @type {HTMLAnchorElement} */ (event.currentTarget).search = query.toString();
});

/** @type {import("./overlay.js").Look} */
const look = { axis: "step", smoothing: 0, log: false, off: new Set(), range: null };
/** @type {Map<string, Overlay>} */
const overlays = new Map();
/** @type {string[]} the chosen metrics, in the order in which they were chosen */
let shown = page.shown;
/** @type {Record<string, number>} the seq up to which each run's curves have been loaded */
let known = {};
/** @type {any} */
let plotly = null;
let tokens = readTokens();

/** @type {Painter<Overlay>} */
const painter = new Painter((overlay) => {
  if (plotly) overlay.draw(plotly, look, tokens);
});
const bar = connectionBar();

// --- numbers ---------------------------------------------------------------------------------------------------

/**
 * @param {string[]} metrics @param {boolean} [fresh]  true for only the runs with new values
 */
async function read(metrics, fresh = false) {
  const by = look.axis;
  const of = figuresOf.value;
  const query = new URLSearchParams({ runs: ids, metrics: state.listed(metrics), x: by, of, points: String(POINTS) });
  if (fresh) query.set("known", Object.entries(known).map(([run, seq]) => `${run}:${seq}`).join(","));
  const response = await fetch(`${page.series}?${query}`, { headers: { Accept: "application/json" } });
  if (response.status === 401) bar("signed-out");
  if (!response.ok) throw new Error(`series.json answered ${response.status}`);
  const answer = await response.json();
  if (by !== look.axis) return; // the axis has changed since: the response for the new one follows
  for (const [metric, curves] of Object.entries(answer.series)) {
    const overlay = overlays.get(metric);
    if (!overlay) continue;
    overlay.curves = fresh ? { ...overlay.curves, ...curves } : curves;
    overlay.loaded = true;
  }
  // If metrics were read at different times, the older one is used, so that nothing is missed.
  for (const [run, seq] of Object.entries(answer.last)) known[run] = fresh ? seq : Math.min(known[run] ?? seq, seq);
  if (fresh) painter.touch((overlay) => metrics.includes(overlay.metric.name));
  else for (const overlay of overlays.values()) if (metrics.includes(overlay.metric.name)) painter.now(overlay); // the user's request
  if (of === figuresOf.value) figures.show(answer.finals, answer.better, formatOf(of));
  sayWhatIsMissing();
}

/** Runs an action, and retries it while the web process isn't responding. @param {() => Promise<void>} act */
async function atLast(act) {
  for (;;) {
    try {
      return await act();
    } catch {
      if (document.documentElement.dataset.live !== "signed-out") bar("lost");
      await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
    }
  }
}

const readAll = () => {
  known = {};
  return atLast(() => read(shown));
};

/** @param {string} name @returns {string} */
const formatOf = (name) => page.metrics.find((/** @type {import("./overlay.js").Metric} */ each) => each.name === name)?.format ?? "number";

// --- the table -------------------------------------------------------------------------------------------------

/** Updates the cells of live runs. A row's checkboxes and links are kept, since the user may be using one. */
async function readTable() {
  const response = await fetch(`${page.table}?runs=${ids}`);
  if (!response.ok) return;
  const fresh = new DOMParser().parseFromString(await response.text(), "text/html");
  if (!page.metrics.length && fresh.querySelector("[data-begun]")) return location.reload(); // the page was rendered without its charts
  for (const row of fresh.querySelectorAll("tr[data-run]")) {
    const old = table.querySelector(`tr[data-run="${CSS.escape(/** @type {HTMLElement} */ (row).dataset.run ?? "")}"]`);
    for (const label of LIVE_CELLS) {
      const [from, to] = [row, old].map((each) => each?.querySelector(`[data-label="${label}"]`));
      if (from && to && from.innerHTML !== to.innerHTML) to.replaceChildren(...from.childNodes);
    }
  }
}

function sayWhatIsMissing() {
  const note = /** @type {HTMLElement} */ (document.getElementById("axis-note"));
  const without = page.runs.filter((/** @type {import("./overlay.js").Run} */ run) =>
    [...overlays.values()].every((overlay) => !overlay.curves[run.id]?.x.length),
  );
  note.hidden = !without.length || !shown.length;
  const what = look.axis === "tokens" ? "token count" : look.axis === "hours" ? "GPU-hours" : "values";
  note.textContent = `Not drawn, because they have no ${what}: ${without.map((/** @type {{name: string}} */ run) => run.name).join(", ")}.`;
}

// --- charts ----------------------------------------------------------------------------------------------------

/** The overlay of a metric, created when it is first needed. @param {string} name */
function overlayOf(name) {
  const found = overlays.get(name);
  if (found) return found;
  const template = /** @type {HTMLTemplateElement} */ (document.getElementById("curve"));
  const element = /** @type {HTMLElement} */ (/** @type {HTMLElement} */ (template.content.firstElementChild).cloneNode(true));
  const metric = page.metrics.find((/** @type {import("./overlay.js").Metric} */ each) => each.name === name);
  const overlay = new Overlay(element, metric, page.runs);
  overlay.onRange = zoom;
  element.dataset.metric = name;
  const terms = /** @type {HTMLTemplateElement} */ (document.getElementById("terms")).content;
  const why = terms.querySelector(`[data-metric="${CSS.escape(name)}"] .why`);
  if (why) element.querySelector(".title")?.after(why.cloneNode(true));
  element.querySelector("[data-enlarge]")?.setAttribute("aria-label", `Enlarge ${metric.title}`);
  element.querySelector("[data-enlarge]")?.addEventListener("click", () => enlarge(overlay));
  element.querySelector("summary")?.setAttribute("aria-label", `Save ${metric.title}`);
  for (const button of /** @type {NodeListOf<HTMLElement>} */ (element.querySelectorAll("[data-save]"))) {
    button.addEventListener("click", () => void save(overlay, button.dataset.save ?? ""));
  }
  overlays.set(name, overlay);
  painter.add(overlay);
  return overlay;
}

/** Makes all charts show the same part of the x axis. @param {[from: number, to: number] | null} range */
function zoom(range) {
  look.range = range;
  state.set("zoom", range ? range.map((end) => String(Number(end.toPrecision(8)))).join(":") : null);
  state.set("smooth", String(look.smoothing));
  painter.now();
}

/** Shows the chosen charts, in order; the others keep their values in case they are chosen again. */
function arrange() {
  const elements = shown.map((name) => overlayOf(name).element);
  grid.replaceChildren(...elements);
}

/** @param {Overlay} overlay @param {string} format */
async function save(overlay, format) {
  if (!overlay.drawn) return;
  const { name, title } = overlay.metric;
  if (format === "csv") {
    const runs = overlay.shown(look);
    try {
      const answers = await Promise.all(runs.map((run) => everything(run.series, [name])));
      saveText(runsCsv(name, runs.map((run, i) => ({ ...run, columns: answers[i][name] }))), `compare-${name}.csv`);
    } catch {
      bar("lost");
    }
  } else await savePicture(plotly, overlay.figure(look, tokens, PICTURE), title, tokens, format === "svg" ? "svg" : "png", `compare-${name}`);
}

/** @param {Overlay} overlay */
function enlarge(overlay) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("enlarged"));
  moves.enlarge(dialog, overlay.element, (large) => {
    overlay.large = large;
    painter.enlarged = large ? overlay.element : null;
    state.set("large", large ? overlay.metric.name : null);
    painter.now(overlay);
  });
}

// --- the user's choices -----------------------------------------------------------------------------------------

function restore() {
  const by = state.get("x") ?? "";
  if (by in page.axes) axis.value = by;
  look.smoothing = smoothing.chosen(state.get("smooth"));
  log.checked = state.get("log") === "1";
  const of = state.get("of") ?? "";
  if ([...figuresOf.options].some((option) => option.value === of)) figuresOf.value = of;
  else if (shown.length) figuresOf.value = shown[0];
  const [from, to] = (state.get("zoom") ?? "").split(":").map(Number);
  look.range = from < to ? [from, to] : null;
  look.off = new Set(state.getList("off"));
  for (const box of boxes(table, "shown")) box.checked = !look.off.has(box.value);
  take();
}

function take() {
  look.axis = /** @type {import("./overlay.js").Look["axis"]} */ (axis.value);
  look.log = log.checked;
}

/** @param {ParentNode} part @param {string} name */
const boxes = (part, name) => /** @type {NodeListOf<HTMLInputElement>} */ (part.querySelectorAll(`input[name="${name}"]`));

function changed() {
  take();
  state.set("x", look.axis === "step" ? null : look.axis);
  state.set("smooth", String(look.smoothing));
  state.set("log", look.log ? "1" : null);
  painter.now();
}

function chooseMetrics() {
  const all = boxes(document, "metric");
  const checked = [...all].filter((box) => box.checked).map((box) => box.value);
  shown = [...shown.filter((name) => checked.includes(name)), ...checked.filter((name) => !shown.includes(name))];
  for (const box of all) box.disabled = !box.checked && shown.length >= page.most;
  arrange();
  state.setList("m", shown);
  painter.now();
  void atLast(() => read(shown.filter((name) => !overlays.get(name)?.loaded)));
}

function listen() {
  axis.addEventListener("change", () => {
    zoom(null); // it belongs to the previous axis
    changed();
    void readAll();
  });
  log.addEventListener("change", changed);
  smoothing.slider(/** @type {HTMLElement} */ (document.querySelector("[data-chart-smoothing]")), look.smoothing, (weight) => {
    look.smoothing = weight;
    changed();
  });
  figuresOf.addEventListener("change", () => {
    state.set("of", figuresOf.value);
    void atLast(() => read([]));
  });
  table.addEventListener("change", () => {
    look.off = new Set([...boxes(table, "shown")].filter((box) => !box.checked).map((box) => box.value));
    state.setList("off", look.off);
    painter.now();
  });
  // The page without one of the runs, but otherwise in its current state.
  table.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-without]") : null;
    if (!(link instanceof HTMLAnchorElement)) return;
    state.flush();
    const query = new URLSearchParams(location.search);
    query.set("runs", new URL(link.href).searchParams.get("runs") ?? "");
    link.search = query.toString();
  });
  document.querySelector(".choices")?.addEventListener("change", chooseMetrics);
  document.getElementById("metric-filter")?.addEventListener("input", (event) => {
    const words = /** @type {HTMLInputElement} */ (event.target).value.toLowerCase().split(/\s+/);
    for (const label of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll(".choices label"))) {
      const text = `${label.title} ${label.textContent}`.toLowerCase();
      label.hidden = !words.every((word) => text.includes(word));
    }
  });
  document.getElementById("compare-prompts")?.addEventListener("htmx:afterSwap", () => {
    const [row, visit] = ["row", "visit"].map((name) => /** @type {HTMLSelectElement | null} */ (document.querySelector(`.prompt-tools select[name="${name}"]`))?.value);
    if (state.get("row") !== null || row !== firstRow) state.set("row", row ?? null);
    state.set("visit", visit === "last" ? null : visit ?? null);
    firstRow ??= row;
  });
  document.addEventListener("themechange", () => {
    tokens = readTokens();
    painter.now();
  });
  addEventListener("resize", () => {
    painter.now();
  });
}

/** @type {string | undefined} the prompt that the page opened with, which the address doesn't need to name */
let firstRow;

// --- live ------------------------------------------------------------------------------------------------------

let planned = 0;

/** Refreshes live runs, at most every two seconds, and only while the page is visible. */
function refresh() {
  if (planned || document.hidden) return;
  planned = setTimeout(async () => {
    try {
      await Promise.all([read(shown, true), readTable()]);
    } catch {
      // The web process isn't responding: the bar reports it, and values come with the next connection.
    }
    planned = 0;
  }, PAUSE_MS);
}

function follow() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  const ours = new Set(ids.split(","));
  const feed = new Feed({
    url: `${scheme}://${location.host}${page.socket}`,
    after: null,
    onFrame: (frame) => {
      const news = /** @type {any} */ (frame).runs ?? [];
      if (frame.type === "changed" && news.some((/** @type {string} */ id) => ours.has(id))) refresh();
    },
    onState: (now) => {
      bar(now);
      if (now === "open") refresh(); // changes during an outage were not received
    },
  });
  addEventListener("online", () => feed.wake());
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return;
    feed.wake();
    refresh();
  });
}

/** Draws the runs' steps once they have been loaded. @param {Promise<any>} loading */
function drawWaterfalls(loading) {
  const place = document.getElementById("waterfall-steps");
  const draw = () => {
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (place?.querySelectorAll("[data-waterfall]") ?? [])) {
      void new Waterfall(element, loading, Number(element.dataset.waterfall)).draw();
    }
  };
  place?.addEventListener("htmx:afterSwap", draw);
  draw();
}

async function start() {
  const numbers = readAll();
  const loading = loadPlotly(root);
  drawWaterfalls(loading);
  plotly = await loading;
  painter.now();
  const large = state.get("large");
  if (large && shown.includes(large)) enlarge(overlayOf(large));
  await numbers;
  follow();
}

restore();
arrange();
listen();
void start();
