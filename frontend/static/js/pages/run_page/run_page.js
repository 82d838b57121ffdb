// The run page: connects the feed and the series (both independent of the DOM), the regions of the head and the tabs.

import { ChartsPage } from "../../insight/metrics/charts_page.js";
import { CompletionsTab } from "../../insight/completions/completions.js";
import { connectionBar, sayAway } from "../live/connection.js";
import { Feed } from "../live/feed.js";
import { about, change, duration, figure, significant } from "../../figures.js";
import { LogView } from "./logs.js";
import { Regions, textOf } from "./regions.js";
import { loadPlotly } from "../../insight/metrics/plotly_script.js";
import { Series } from "../../insight/metrics/series.js";
import { Telling } from "./telling.js";
import { Waterfall } from "../../insight/metrics/waterfall.js";
import { localise } from "../../times.js";
import { showInTab } from "./browser_tab.js";
import * as timeline from "./timeline.js";
import "./tour.js";
import * as urlstate from "../../urlstate.js";

const PANEL_PAUSE_MS = 1500;
const PANEL_AGAIN_MS = 2000;
const FIRST_READ_WAIT_MS = 1000;
const LONGEST_READ_WAIT_MS = 15_000;
const PACE_OVER = 10;

const page = JSON.parse(document.getElementById("run-page")?.textContent ?? "{}");
const root = /** @type {HTMLElement} */ (document.querySelector(".run-page"));
const panelOf = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-panel="${name}"]`));

const series = new Series(page.starts);
const regions = new Regions(page.head);
const charts = new ChartsPage(panelOf("charts"), page, series);
// Jobs don't sample completions.
const completions = panelOf("completions") ? new CompletionsTab(panelOf("completions"), page) : null;
const bar = connectionBar();
const telling = new Telling(page);
const known = new Set(page.events.map((/** @type {any} */ event) => event.id));

/** @type {Feed | null} */
let feed = null;
/** @type {LogView | null} */
let logs = null;
/** @type {Waterfall | null} */
let waterfall = null;

// --- numbers ---------------------------------------------------------------------------------------------------

async function readSeries() {
  const response = await fetch(page.series, { headers: { Accept: "application/json" } });
  if (response.status === 401) bar("signed-out");
  if (!response.ok) throw new Error(`series.json answered ${response.status}`);
  const document_ = await response.json();
  series.replace(document_.series);
  charts.reload();
  showTiles();
  return document_.last;
}

/** Loads the series, and retries while the web process isn't responding. */
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

/** @param {Set<string>} [touched] */
function showTiles(touched) {
  for (const tile of root.querySelectorAll("[data-tile]")) {
    const { tile: metric = "", format = "number" } = /** @type {HTMLElement} */ (tile).dataset;
    if (touched && !touched.has(metric)) continue;
    const place = tile.querySelector("[data-figure]");
    const value = series.last(metric);
    if (!place || value === null) continue;
    const [text, unit] = figure(value, format);
    const bar = tile.querySelector("progress");
    if (bar) bar.value = value;
    place.replaceChildren(text, Object.assign(document.createElement("span"), { className: "unit", textContent: unit }));
  }
}

/** @param {number | null} gain @param {boolean} counts  whether it is significant */
function showGain(gain, counts) {
  const place = root.querySelector("[data-gain]");
  if (!place || gain === null) return;
  place.textContent = change(gain);
  place.className = `change ${counts ? (gain > 0 ? "good" : "bad") : "muted"}`;
}

// --- the feed --------------------------------------------------------------------------------------------------

/** @param {import("../live/feed.js").Frame} frame */
function onFrame(frame) {
  if (frame.type === "reload") {
    // Raw rows have been downsampled, or a resume has made drawn points obsolete.
    void seriesAtLast().then((last) => feed?.restart(last));
    regions.refresh();
    return;
  }
  if (frame.rows?.length) {
    const touched = series.append(frame.rows);
    charts.rows(touched);
    if (touched.has("step_time")) waterfall?.news();
    showTiles(touched);
  }
  if (frame.events?.length) onEvents(frame.events);
  if (frame.run) onRun(frame.run);
  if (frame.logs && openTab() === "logs") logs?.news(frame.logs);
  if (typeof frame.samples === "number" && openTab() === "completions") completions?.news(frame.samples);
}

/** @param {any[]} events  some of which may have been received before */
function onEvents(events) {
  const fresh = events.filter((event) => !known.has(event.id));
  for (const event of fresh) known.add(event.id);
  for (const event of fresh) if (event.kind === "training") series.starts.push(Date.parse(event.at) / 1000);
  charts.events(fresh.filter((event) => event.text && page.marked.includes(event.kind)));
  if (["events", "checkpoints"].includes(openTab())) refreshPanel(openTab());
  regions.refresh();
}

/** @param {any} run */
function onRun(run) {
  telling.follow(run);
  show("step", significant(run.step, 9));
  showGain(run.gain, run.gain_counts);
  const epoch = series.last("epoch");
  if (epoch !== null) show("epoch", `epoch ${significant(epoch)}`);
  // Steps that reuse a batch are several times faster than steps that generate; the mean doesn't jump.
  const pace = series.recent("step_time", PACE_OVER);
  show("step-time", pace ? `${duration(pace)}/step` : "");
  show("eta", pace && run.max_steps > run.step ? `about ${about(pace * (run.max_steps - run.step))} left` : "");
  const progress = root.querySelector("[data-progress]");
  if (progress instanceof HTMLProgressElement && run.max_steps) {
    progress.max = run.max_steps;
    progress.value = run.step;
  }
  showInTab(run.status, run.step, run.max_steps);
  regions.follow(run.state);
}

/** @param {string} name @param {string} text */
function show(name, text) {
  const place = root.querySelector(`[data-${name}]`);
  if (place && place.textContent !== text) place.textContent = text;
}

// --- tabs ------------------------------------------------------------------------------------------------------

const openTab = () => /** @type {HTMLElement} */ (root.querySelector('[data-tab][aria-selected="true"]'))?.dataset.tab ?? page.first;

function tabs() {
  const all = /** @type {HTMLElement[]} */ ([...root.querySelectorAll("[data-tab]")]);
  for (const tab of all) {
    tab.addEventListener("keydown", (event) => {
      const to = { ArrowRight: all.indexOf(tab) + 1, ArrowLeft: all.indexOf(tab) - 1, Home: 0, End: -1 }[event.key];
      if (to !== undefined) {
        event.preventDefault();
        all.at(to % all.length)?.focus();
      }
      if (event.key === " ") {
        event.preventDefault();
        tab.click();
      }
    });
  }
  // Tabs and all links to tabs; data-unfold names the fold to open.
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("[data-tab], [data-tab-link]") : null;
    if (!(link instanceof HTMLElement) || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    const name = link.dataset.tab ?? link.dataset.tabLink ?? page.first;
    // Back returns to an earlier tab, but not to earlier filters or choices within one.
    if (name !== openTab()) urlstate.push();
    urlstate.set("tab", name === page.first ? null : name);
    urlstate.flush();
    void open(name, link.dataset.unfold);
    if (!link.dataset.unfold) uncover();
  });
}

/** @param {string} name @param {string} [unfold] */
async function open(name, unfold) {
  for (const tab of root.querySelectorAll("[data-tab]")) {
    const chosen = /** @type {HTMLElement} */ (tab).dataset.tab === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.setAttribute("tabindex", chosen ? "0" : "-1");
  }
  inSight(/** @type {HTMLElement} */ (root.querySelector('[data-tab][aria-selected="true"]')));
  for (const panel of root.querySelectorAll("[data-panel]")) {
    /** @type {HTMLElement} */ (panel).hidden = /** @type {HTMLElement} */ (panel).dataset.panel !== name;
  }
  /** @type {HTMLElement} */ (root.querySelector("[data-overview]")).hidden = name !== page.first;
  charts.shown(name === "charts");
  feed?.send({ type: "logs", watch: name === "logs" });
  if (name === "charts") startCharts();
  else if (name === "completions") completions?.open();
  else if (name === "logs" && logs) logs.news();
  else await readPanel(name);
  if (unfold) reveal(panelOf(name).querySelector(`[data-fold="${unfold}"]`));
}

/** Scrolls a tab into view, since on a phone not all tabs fit next to each other. @param {HTMLElement} tab */
function inSight(tab) {
  const strip = /** @type {HTMLElement} */ (tab.parentElement);
  const [place, all] = [tab.getBoundingClientRect(), strip.getBoundingClientRect()];
  strip.scrollLeft += (place.left + place.right - all.left - all.right) / 2;
}

/** Scrolls to the start of a tab's content. The bar of tabs stays visible, so a tab may be chosen far down in another one's content. */
function uncover() {
  const head = /** @type {HTMLElement} */ (root.querySelector(".run-head")).getBoundingClientRect();
  if (head.bottom < 0) scrollBy(0, head.bottom);
}

/** @param {Element | null} fold */
function reveal(fold) {
  fold?.setAttribute("open", "");
  fold?.scrollIntoView({ block: "start" });
  fold?.querySelector("summary")?.focus({ preventScroll: true });
}

/** @param {string} name */
async function readPanel(name) {
  const panel = panelOf(name);
  const text = await textOf(`${panel.dataset.url}`);
  if (!text) {
    if (text === null) {
      sayAway(panel);
      setTimeout(() => openTab() === name && void readPanel(name), PANEL_AGAIN_MS);
    }
    return;
  }
  // Parsed as a separate document and moved: scripts in it would not run, but there are none.
  const fresh = new DOMParser().parseFromString(text, "text/html");
  localise(fresh);
  if (name === "events" && timeline.merge(panel, fresh)) return timeline.datesOnce(panel);
  panel.replaceChildren(...fresh.body.childNodes);
  if (name === "events") timeline.datesOnce(panel);
  /** @type {any} */ (window).htmx?.process(panel);
  const view = panel.querySelector(".logs");
  if (view instanceof HTMLElement) logs = new LogView(view);
}

// After earlier events have been loaded.
panelOf("events").addEventListener("htmx:afterSettle", () => timeline.datesOnce(panelOf("events")));

let panelTimer = 0;

/** @param {string} name */
function refreshPanel(name) {
  if (panelTimer) return;
  panelTimer = setTimeout(() => {
    panelTimer = 0;
    if (openTab() === name) void readPanel(name);
  }, PANEL_PAUSE_MS);
}

// --- start -----------------------------------------------------------------------------------------------------

/** @type {Promise<any> | null} */
let plotly = null;

/** Loads Plotly once, when the charts are first shown; the page's values don't wait for it. */
function startCharts() {
  if (plotly) return;
  plotly = loadPlotly(root);
  void charts.start(plotly);
  const place = root.querySelector("[data-waterfall-url]");
  if (place instanceof HTMLElement) {
    waterfall = new Waterfall(place, plotly);
    void waterfall.read();
  }
}

showInTab(page.status, page.step, page.max_steps);
tabs();
addEventListener("popstate", () => {
  const moved = completions?.goBack();
  const named = new URLSearchParams(location.search).get("tab") ?? page.first;
  if (named !== openTab() && root.querySelector(`[data-tab="${CSS.escape(named)}"]`)) void open(named);
  else if (moved && named === "completions") completions?.open();
  urlstate.keep("c.", "l.");
});
if (page.tab === "charts") startCharts();
else void open(page.tab);

async function goLive() {
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
}

void goLive();
document.addEventListener("htmx:afterSettle", (event) => {
  // Focus the field again for the next tag, wherever the focus went while the part was replaced.
  const form = /** @type {any} */ (event).detail.requestConfig?.elt;
  if (form instanceof HTMLElement && form.matches(".add-tag")) document.getElementById("add-tag")?.focus();
});
// The report uses the same smoothing as these charts.
document.addEventListener("click", (event) => {
  const link = event.target instanceof Element ? event.target.closest("[data-report]") : null;
  if (link instanceof HTMLAnchorElement) link.search = `?smooth=${charts.view.smoothing}`;
});
addEventListener("online", () => feed?.wake());
document.addEventListener("visibilitychange", () => !document.hidden && feed?.wake());
