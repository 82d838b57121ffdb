// The run page: composes the feed (no DOM), the numbers (no DOM), the charts (no socket) and the tabs.

import { Chart, readTokens } from "./chart.js";
import { connectionBar } from "./connection.js";
import { Feed } from "./feed.js";
import { about, change, duration, figure, significant } from "./figures.js";
import { LogView } from "./logs.js";
import { Painter } from "./painter.js";
import { Series } from "./series.js";

const HEAD_PAUSE_MS = 400;
const HEAD_AGAIN_MS = 2000;
const PANEL_PAUSE_MS = 1500;
const FIRST_READ_WAIT_MS = 1000;
const LONGEST_READ_WAIT_MS = 15_000;
const SMOOTHING = "smoothing";

const page = JSON.parse(document.getElementById("run-page")?.textContent ?? "{}");
const root = /** @type {HTMLElement} */ (document.querySelector(".run-page"));
const series = new Series();
/** @type {import("./chart.js").Mark[]} */
const marks = page.events.map(mark);
const charts = [...document.querySelectorAll("[data-chart]")].map(
  (element) =>
    new Chart(
      /** @type {HTMLElement} */ (element),
      page.charts.find((/** @type {any} */ c) => c.id === /** @type {HTMLElement} */ (element).dataset.chart),
      series,
    ),
);

/** @type {any} */
let plotly = null;
let tokens = readTokens();
let smoothing = storedSmoothing();
/** @type {Feed | null} */
let feed = null;
/** @type {LogView | null} */
let logView = null;

const bar = connectionBar();

const painter = new Painter((chart) => {
  if (plotly) chart.draw(plotly, marks, smoothing, tokens);
});

// --- numbers ---------------------------------------------------------------------------------------------------

async function readSeries() {
  const response = await fetch(page.series, { headers: { Accept: "application/json" } });
  if (response.status === 401) bar("signed-out");
  if (!response.ok) throw new Error(`series.json answered ${response.status}`);
  const document_ = await response.json();
  series.replace(document_.series);
  painter.touch();
  showFigures();
  return document_.last;
}

/** The series, tried again for as long as a web that restarts doesn't answer. */
async function seriesAtLast() {
  for (let wait = FIRST_READ_WAIT_MS; ; wait = Math.min(2 * wait, LONGEST_READ_WAIT_MS)) {
    try {
      return await readSeries();
    } catch {
      if (document.documentElement.dataset.live !== "signed-out") bar("lost");
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }
}

/** Tiles and the values in the charts' heads. @param {Set<string>} [touched] */
function showFigures(touched) {
  for (const tile of document.querySelectorAll("[data-tile]")) {
    const { tile: metric = "", format = "number" } = /** @type {HTMLElement} */ (tile).dataset;
    if (touched && !touched.has(metric)) continue;
    const place = tile.querySelector("[data-figure]");
    const value = series.last(metric);
    if (!place || value === null) continue;
    const [text, unit] = figure(value, format);
    place.replaceChildren(text, Object.assign(document.createElement("span"), { className: "unit", textContent: unit }));
    if (metric === "reward") showGain(tile.querySelector("[data-change]"));
  }
  for (const chart of charts) if (!touched || chart.concerns(touched)) chart.showValue();
}

/** @param {Element | null} place */
function showGain(place) {
  const gain = series.gain("reward");
  if (!place || gain === null) return;
  place.textContent = change(gain);
  place.className = `change ${gain > 0 ? "up" : "down"}`;
  /** @type {HTMLElement} */ (place).title = "The mean of the last ten steps against the first ten";
}

// --- the feed --------------------------------------------------------------------------------------------------

/** @param {import("./feed.js").Frame} frame */
function onFrame(frame) {
  if (frame.type === "reload") {
    // Raw rows are folded away, or a resumed attempt made drawn points void.
    void seriesAtLast().then((last) => feed?.restart(last));
    refreshHead();
    return;
  }
  if (frame.rows?.length) {
    const touched = series.append(frame.rows);
    painter.touch((chart) => chart.concerns(touched));
    showFigures(touched);
  }
  if (frame.events?.length) onEvents(frame.events);
  if (frame.run) onRun(frame.run);
  if (frame.logs && openTab() === "logs") logView?.news();
  if (typeof frame.samples === "number" && openTab() === "completions") followCompletions();
}

/** @param {any[]} events */
function onEvents(events) {
  const known = new Set(page.events.map((/** @type {any} */ e) => e.id));
  for (const event of events) {
    if (known.has(event.id)) continue;
    page.events.push(event);
    if (event.text && page.marked.includes(event.kind)) marks.push(mark(event));
  }
  if (["events", "checkpoints"].includes(openTab())) refreshPanel(openTab());
  refreshHead();
}

let headKey = "";

/** @param {any} run */
function onRun(run) {
  show("step", significant(run.step, 9));
  // A step that reuses a batch is several times as quick as one that generates: the mean doesn't jump.
  const pace = series.recent("step_time", 10);
  show("step-time", pace ? `${duration(pace)}/step` : "");
  show("eta", pace && run.max_steps > run.step ? `about ${about(pace * (run.max_steps - run.step))} left` : "");
  const bar = root.querySelector("[data-progress]");
  if (bar instanceof HTMLProgressElement && run.max_steps) {
    bar.max = run.max_steps;
    bar.value = run.step;
  }
  const key = [run.status, run.attempt, run.phase, run.reason, run.stop_requested, run.waits_for, run.place, run.out_of_reach_since, !!run.receipt, run.max_steps].join("|");
  if (headKey && key !== headKey) refreshHead();
  headKey = key;
}

/** @param {string} name @param {string} text */
function show(name, text) {
  const place = root.querySelector(`[data-${name}]`);
  if (place && place.textContent !== text) place.textContent = text;
}

let headTimer = 0;

/** Swap in what depends on the state; again later where a menu or a dialog is open, or the web doesn't answer. */
function refreshHead(wait = HEAD_PAUSE_MS) {
  clearTimeout(headTimer);
  headTimer = setTimeout(async () => {
    const text = await textOf(page.head);
    if (text === null || !swapHead(text)) refreshHead(HEAD_AGAIN_MS);
  }, wait);
}

/** @param {string} text @returns {boolean} whether all of it could go in */
function swapHead(text) {
  const fresh = new DOMParser().parseFromString(text, "text/html");
  let whole = true;
  for (const region of fresh.querySelectorAll("[data-region]")) {
    const old = document.getElementById(region.id);
    if (!old || old.innerHTML === region.innerHTML) continue;
    if (old.querySelector("dialog[open], details.menu[open]")) {
      whole = false;
      continue;
    }
    const folded = [...old.querySelectorAll("details[open]")].length > 0;
    old.replaceWith(document.adoptNode(region));
    if (folded) region.querySelector("details:not(.menu)")?.setAttribute("open", "");
  }
  return whole;
}

/** A part of the page, or null while the web doesn't answer. @param {string} url */
async function textOf(url) {
  try {
    const response = await fetch(url);
    // Signed out, or gone: the socket says so, and asking again helps nobody.
    return response.ok ? await response.text() : response.status >= 500 ? null : "";
  } catch {
    return null;
  }
}

/** @param {any} event @returns {import("./chart.js").Mark} */
function mark(event) {
  return { step: event.step, t: Date.parse(event.at) / 1000, kind: event.kind, text: event.text };
}

// --- tabs ------------------------------------------------------------------------------------------------------

const openTab = () => /** @type {HTMLElement} */ (root.querySelector('[data-tab][aria-selected="true"]'))?.dataset.tab ?? "charts";

function tabs() {
  const all = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[data-tab]")]);
  for (const tab of all) {
    tab.addEventListener("click", (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      open(tab.dataset.tab ?? "charts");
      history.replaceState(null, "", tab.dataset.tab === "charts" ? location.pathname : `?tab=${tab.dataset.tab}`);
    });
    tab.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) all[(all.indexOf(tab) + step + all.length) % all.length].focus();
      if (event.key === " ") tab.click();
    });
  }
}

/** @param {string} name */
function open(name) {
  for (const tab of root.querySelectorAll("[data-tab]")) {
    tab.setAttribute("aria-selected", String(/** @type {HTMLElement} */ (tab).dataset.tab === name));
  }
  for (const panel of root.querySelectorAll("[data-panel]")) {
    /** @type {HTMLElement} */ (panel).hidden = /** @type {HTMLElement} */ (panel).dataset.panel !== name;
  }
  if (name !== "charts") void readPanel(name);
  feed?.send({ type: "logs", watch: name === "logs" });
}

/** @param {string} name @param {string} [query] */
async function readPanel(name, query = "") {
  const panel = /** @type {HTMLElement} */ (root.querySelector(`[data-panel="${name}"]`));
  if (name === "logs" && logView) {
    logView.news();
    return;
  }
  const text = await textOf(`${panel.dataset.url}${query}`);
  if (!text) {
    if (text === null) setTimeout(() => openTab() === name && void readPanel(name, query), HEAD_AGAIN_MS);
    return;
  }
  // Parsed as a document of its own and moved over: scripts in it would not run, and there are none.
  const fresh = new DOMParser().parseFromString(text, "text/html");
  panel.replaceChildren(...fresh.body.childNodes);
  const logs = panel.querySelector(".logs");
  if (logs instanceof HTMLElement) logView = new LogView(logs);
  if (name === "completions") stepPicker(panel);
}

let panelTimer = 0;

/** @param {string} name */
function refreshPanel(name) {
  if (panelTimer) return;
  panelTimer = setTimeout(() => {
    panelTimer = 0;
    if (openTab() === name) void readPanel(name);
  }, PANEL_PAUSE_MS);
}

/** The newest step follows by itself, unless the person looks at another one or is reading with the pointer on it. */
function followCompletions() {
  const panel = /** @type {HTMLElement} */ (root.querySelector('[data-panel="completions"]'));
  const older = panel.querySelector('[data-newest="no"]');
  if (!older && !panel.querySelector(".group:hover, :focus")) refreshPanel("completions");
}

/** @param {HTMLElement} panel */
function stepPicker(panel) {
  for (const button of panel.querySelectorAll("[data-step-to]")) {
    const to = /** @type {HTMLElement} */ (button).dataset.stepTo;
    button.addEventListener("click", () => void readPanel("completions", to ? `?step=${to}` : ""));
  }
  const input = panel.querySelector("[data-step-input]");
  input?.addEventListener("change", () =>
    void readPanel("completions", `?step=${/** @type {HTMLInputElement} */ (input).value}`),
  );
}

// --- charts ----------------------------------------------------------------------------------------------------

function storedSmoothing() {
  try {
    return Number(localStorage.getItem(SMOOTHING) ?? "0.6");
  } catch {
    return 0.6;
  }
}

function chartTools() {
  const select = /** @type {HTMLSelectElement} */ (document.getElementById("smoothing"));
  select.value = String(smoothing);
  select.addEventListener("change", () => {
    smoothing = Number(select.value);
    try {
      localStorage.setItem(SMOOTHING, select.value);
    } catch {
      // Not stored: it holds for this page.
    }
    painter.touch();
  });
  for (const chart of charts) chartMenu(chart);
  document.addEventListener("themechange", () => {
    tokens = readTokens();
    painter.touch();
  });
  let resizing = 0;
  addEventListener("resize", () => {
    cancelAnimationFrame(resizing);
    resizing = requestAnimationFrame(() => charts.forEach((chart) => chart.resize(plotly)));
  });
}

/** @param {Chart} chart */
function chartMenu(chart) {
  chart.element.addEventListener("click", (event) => {
    const act = event.target instanceof Element ? event.target.closest("button[data-act]") : null;
    if (!(act instanceof HTMLElement)) return;
    if (act.dataset.act === "enlarge") enlarge(chart);
    if (act.dataset.act === "reset" && chart.drawn) {
      void plotly.relayout(chart.plot, { "xaxis.autorange": true, "yaxis.autorange": true });
    }
  });
  chart.element.addEventListener("change", (event) => {
    const box = event.target;
    if (!(box instanceof HTMLInputElement)) return;
    if (box.dataset.act === "log") chart.log = box.checked;
    if (box.dataset.act === "smooth") chart.smoothed = box.checked;
    painter.now(chart);
  });
}

/** The chart moves into a dialog, which traps the focus; its place is kept meanwhile. @param {Chart} chart */
function enlarge(chart) {
  const dialog = /** @type {HTMLDialogElement} */ (document.getElementById("enlarged"));
  if (dialog.open) {
    dialog.close();
    return;
  }
  const place = document.createElement("div");
  place.className = "chart";
  chart.element.replaceWith(place);
  dialog.append(chart.element);
  dialog.showModal();
  painter.enlarged = chart.element;
  chart.resize(plotly);
  dialog.addEventListener(
    "close",
    () => {
      place.replaceWith(chart.element);
      painter.enlarged = null;
      chart.resize(plotly);
      painter.now(chart);
    },
    { once: true },
  );
}

/** Plotly takes three quarters of a second to start, so the page and its figures come first. */
function loadPlotly() {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root.dataset.plotly ?? "";
    script.addEventListener("load", () => resolve(/** @type {any} */ (window).Plotly));
    script.addEventListener("error", () => reject(new Error("Plotly can't be loaded.")));
    document.head.append(script);
  });
}

// --- start -----------------------------------------------------------------------------------------------------

tabs();
chartTools();
for (const chart of charts) painter.add(chart);
if (page.tab !== "charts") void readPanel(page.tab);

const last = await seriesAtLast();
const scheme = location.protocol === "https:" ? "wss" : "ws";
feed = new Feed({
  url: `${scheme}://${location.host}${page.socket}`,
  after: last,
  onFrame,
  onState: (state) => {
    bar(state);
    if (state === "open") feed?.send({ type: "logs", watch: openTab() === "logs" });
  },
});
addEventListener("online", () => feed?.wake());
document.addEventListener("visibilitychange", () => !document.hidden && feed?.wake());

plotly = await loadPlotly();
painter.touch();
