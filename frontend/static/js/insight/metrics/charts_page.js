// The charts tab: charts, their shared options and menus, and when they are drawn. It is given its data and knows no
// socket. The user's choices are in the URL (c.…).

import { Arrangement, fromTemplate } from "./arrangement.js";
import { Chart } from "./chart.js";
import { PICTURE, ask, csv, everything, savePicture, saveText } from "./chart_files.js";
import * as ranges from "./chart_ranges.js";
import { enlarge, movable } from "./chart_moves.js";
import { readTokens } from "./plotly_figure.js";
import { Painter } from "./redraws.js";
import * as smoothing from "./smoothing.js";
import * as unforeseen from "./unforeseen.js";
import * as urlstate from "../../urlstate.js";

/** Maximum number of marks, for run pages that are left open for days. */
const MAX_MARKS = 1000;
const DETAIL_POINTS = 1000;
const DETAIL_PAUSE_MS = 150;
/** URL parameters that set the view. */
const LOOKS = ["c.x", "c.log", "c.raw", "c.range"];

export class ChartsPage {
  /** @param {HTMLElement} root  the panel @param {any} page  the page's document @param {import("./series.js").Series} series */
  constructor(root, page, series) {
    this.root = root;
    this.page = page;
    this.series = series;
    this.plotly = /** @type {any} */ (null);
    /** @type {import("./chart.js").View} */
    this.view = { x: xOf(urlstate.get("c.x")), smoothing: smoothing.chosen(urlstate.get("c.smooth")), range: ranges.read(), marks: page.events.map(mark), tokens: readTokens() };
    /** @type {Map<Element, Chart>} */
    this.charts = new Map();
    /** @type {Painter<Chart>} */
    this.painter = new Painter((chart) => this.paint(chart));
    this.sizes = new ResizeObserver((changes) => this.resized(changes));
    this.asking = new AbortController();
    /** Charts to be redrawn with the points that the whole run's curves omit. @type {Set<Chart>} */
    this.coarse = new Set();
    for (const element of /** @type {NodeListOf<HTMLElement>} */ (root.querySelectorAll("[data-chart]"))) {
      this.adopt(element, page.charts.find((/** @type {any} */ spec) => spec.id === element.dataset.chart));
    }
    this.arrangement = new Arrangement(root, [...this.charts.values()]);
    this.known = unforeseen.known(page.charts);
    this.dialog = /** @type {HTMLDialogElement} */ (document.getElementById("enlarged"));
    this.tools();
    this.acts();
    const inPlace = (/** @type {EventTarget | null} */ at) => (this.dialog.open ? undefined : this.chartAt(at));
    movable(root, inPlace, (...to) => this.put(...to), (chart, by) => this.move(chart, by));
  }

  // --- calls of run_page.js ------------------------------------------------------------------------------------

  /** @param {Promise<any>} plotly */
  async start(plotly) {
    this.plotly = await plotly;
    this.painter.now();
    const large = this.named(urlstate.get("c.large") ?? "");
    if (large) this.enlarge(large);
  }

  /** Updates the charts of metrics that have new points. @param {Set<string>} touched */
  rows(touched) {
    this.meet(touched);
    this.painter.touch((chart) => chart.concerns(touched));
    for (const chart of this.charts.values()) if (chart.concerns(touched) && !this.pointing) chart.showValue();
  }

  /** Redraws everything after the series were reloaded. */
  reload() {
    this.meet([...this.series.columns].filter(([, { value }]) => value.length).map(([metric]) => metric));
    for (const chart of this.charts.values()) {
      chart.showValue();
      chart.detailed = false;
    }
    this.painter.now();
  }

  /** Adds marks for new events. @param {any[]} events */
  events(events) {
    if (!events.length) return;
    const marks = [...this.view.marks, ...events.map(mark)];
    this.view.marks = marks.slice(-MAX_MARKS);
    this.painter.touch();
  }

  /** @param {boolean} visible */
  shown(visible) {
    if (visible) this.painter.plan();
  }

  // --- charts ----------------------------------------------------------------------------------------------------

  /** @param {Chart} chart */
  paint(chart) {
    if (!this.plotly) return;
    chart.draw(this.plotly, this.view);
    this.fetchDetail(chart);
  }

  /** @param {HTMLElement} element @param {import("./chart.js").Spec} spec @returns {Chart} */
  adopt(element, spec) {
    const chart = new Chart(element, spec, this.series);
    const chosen = (/** @type {string} */ name) => urlstate.getList(name).some((id) => this.idNow(id) === spec.id);
    chart.log = chosen("c.log") || spec.log;
    chart.smoothed = !chosen("c.raw");
    chart.onHover = (x) => this.hover(chart, x);
    chart.onRange = (range) => this.look(range);
    this.charts.set(element, chart);
    this.painter.add(chart);
    this.sizes.observe(chart.plot);
    return chart;
  }

  /** Adds a chart for each metric that no chart shows. @param {Iterable<string>} metrics */
  meet(metrics) {
    for (const spec of unforeseen.specs(metrics, this.known)) {
      const element = unforeseen.element(fromTemplate(this.root, "chart"), spec);
      const chart = this.adopt(element, spec);
      this.arrangement.add(chart, spec.section);
      chart.showValue();
    }
  }

  /** @param {string} id  from the URL */
  named(id) {
    return [...this.charts.values()].find((chart) => chart.spec.id === this.idNow(id));
  }

  /** @param {string} id */
  idNow(id) {
    return unforeseen.idNow(id, this.page.charts);
  }

  /** @param {ResizeObserverEntry[]} changes */
  resized(changes) {
    for (const { target, contentRect } of changes) {
      const chart = this.charts.get(/** @type {Element} */ (target.closest("[data-chart]")));
      const [width, height] = [Math.round(contentRect.width), Math.round(contentRect.height)];
      // Elements of a hidden tab have no size; they keep their last one.
      if (!chart || !width || !height || (chart.size?.width === width && chart.size.height === height)) continue;
      chart.size = { width, height };
      this.painter.now(chart);
    }
  }

  // --- one place on all charts -------------------------------------------------------------------------------------

  pointing = 0;

  /** @param {Chart} from @param {number | null} x */
  hover(from, x) {
    cancelAnimationFrame(this.pointing);
    this.pointing = requestAnimationFrame(() => {
      if (x === null) this.pointing = 0;
      for (const chart of x === null ? this.charts.values() : this.painter.seen()) if (chart !== from) chart.point(from.kind, x);
    });
  }

  // --- ranges and their detail ---------------------------------------------------------------------------------------

  /** Shows the same range on all charts. @param {import("./chart.js").Range | null} range */
  look(range) {
    this.view.range = range;
    ranges.write(range);
    this.asking.abort();
    this.asking = new AbortController();
    for (const chart of this.charts.values()) Object.assign(chart, { detail: undefined, detailed: false });
    this.changed();
  }

  /** Requests the points that the whole run's curve omits, together with those of other charts. @param {Chart} chart */
  fetchDetail(chart) {
    if (!this.view.range || chart.detailed) return;
    chart.detailed = true;
    this.coarse.add(chart);
    if (this.coarse.size === 1) setTimeout(() => this.readDetails(), DETAIL_PAUSE_MS);
  }

  readDetails() {
    const { range } = this.view;
    const charts = [...this.coarse];
    this.coarse.clear();
    for (const x of range ? ["step", "time"] : []) {
      const alike = charts.filter((chart) => chart.spec.x === x);
      const wanted = range && alike.length ? ranges.asked(range, alike[0].spec, this.series.clock()) : null;
      if (wanted) void this.readDetail(alike, wanted, this.asking.signal);
    }
  }

  /** @param {Chart[]} charts @param {import("./chart.js").Range} range @param {AbortSignal} signal */
  async readDetail(charts, range, signal) {
    const metrics = [...new Set(charts.flatMap((chart) => chart.sources()))];
    try {
      const detail = new Map(Object.entries(await ask(this.page.series, metrics, DETAIL_POINTS, range, signal)));
      for (const chart of charts) {
        chart.detail = detail;
        this.painter.now(chart);
      }
    } catch {
      // The coarse curve stays until the user selects a range or the series are reloaded.
    }
  }

  // --- tools -------------------------------------------------------------------------------------------------------

  tools() {
    const tool = (/** @type {string} */ name) => /** @type {HTMLInputElement} */ (this.root.querySelector(`[data-chart-${name}]`));
    const [filter, x] = [tool("filter"), tool("x")];
    filter.value = this.arrangement.filter;
    x.value = this.view.x;
    filter.addEventListener("input", () => {
      this.arrangement.filterBy(filter.value);
      this.showReset();
    });
    x.addEventListener("change", () => {
      this.view.x = xOf(x.value);
      urlstate.set("c.x", x.value === "step" ? null : x.value);
      this.changed();
    });
    smoothing.slider(tool("smoothing"), this.view.smoothing, (weight) => {
      this.view.smoothing = weight;
      this.changed();
    });
    document.addEventListener("themechange", () => {
      this.view.tokens = readTokens();
      this.painter.now();
    });
    this.showReset();
  }

  changed() {
    this.showReset();
    this.painter.now();
  }

  showReset() {
    const changed = LOOKS.some((name) => urlstate.get(name)) || this.arrangement.isChanged();
    const button = /** @type {HTMLElement} */ (this.root.querySelector('[data-act="reset-page"]'));
    button.hidden = !changed;
    // A link to a view overrides the smoothing that its reader has chosen.
    const { smoothing: weight } = this.view;
    urlstate.set("c.smooth", changed || weight !== smoothing.DEFAULT ? String(weight) : null);
  }

  resetPage() {
    for (const name of LOOKS) urlstate.set(name, null);
    this.view.x = "step";
    this.arrangement.reset();
    for (const chart of this.charts.values()) Object.assign(chart, { log: chart.spec.log, smoothed: true });
    /** @type {HTMLSelectElement} */ (this.root.querySelector("[data-chart-x]")).value = "step";
    /** @type {HTMLInputElement} */ (this.root.querySelector("[data-chart-filter]")).value = "";
    this.look(null);
  }

  // --- menus, keys, dragging ---------------------------------------------------------------------------------------

  acts() {
    const menu = fromTemplate(this.root, "menu");
    // All charts share one menu, which moves to the chart where it is opened.
    document.addEventListener("toggle", (event) => this.openMenu(menu, event.target), { capture: true });
    document.addEventListener("click", (event) => {
      const act = event.target instanceof Element ? event.target.closest("button[data-act]") : null;
      if (act instanceof HTMLElement) void this.act(act.dataset.act ?? "", this.chartAt(act));
    });
    menu.addEventListener("change", (event) => {
      const chart = this.chartAt(menu);
      if (!(event.target instanceof HTMLInputElement) || !chart) return;
      if (event.target.dataset.act === "log") chart.log = event.target.checked;
      else chart.smoothed = event.target.checked;
      const ids = (/** @type {(chart: Chart) => boolean} */ which) => [...this.charts.values()].filter(which).map((c) => c.spec.id);
      urlstate.setList("c.log", ids((c) => c.log && !c.spec.log));
      urlstate.setList("c.raw", ids((c) => !c.smoothed));
      this.showReset();
      this.painter.now(chart);
    });
  }

  /** @param {EventTarget | null} at @returns {Chart | undefined} */
  chartAt(at) {
    const element = at instanceof Element ? at.closest("[data-chart]") : null;
    return element ? this.charts.get(element) : undefined;
  }

  /** @param {HTMLElement} menu @param {EventTarget | null} details */
  openMenu(menu, details) {
    const chart = details instanceof HTMLDetailsElement && details.open && details.matches(".menu") ? this.chartAt(details) : null;
    if (!chart) return;
    const part = (/** @type {string} */ act) => /** @type {HTMLInputElement} */ (menu.querySelector(`[data-act="${act}"]`));
    const word = (/** @type {string} */ act, /** @type {string} */ text) => part(act).querySelector("span")?.replaceChildren(text);
    word("enlarge", this.dialog.open ? "Back to the page" : "Enlarge");
    word("pin", this.arrangement.isPinned(chart) ? "Unpin" : "Pin to the top");
    part("reset").disabled = !chart.drawn;
    for (const act of ["png", "svg"]) part(act).disabled = !chart.drawn;
    for (const act of ["pin", "earlier", "later"]) part(act).hidden = this.dialog.open;
    part("log").checked = chart.log;
    part("smooth").checked = chart.smoothed;
    /** @type {HTMLElement} */ (details).append(menu);
    menu.classList.remove("up");
    menu.classList.toggle("up", menu.getBoundingClientRect().bottom > innerHeight);
  }

  /** @param {string} act @param {Chart | undefined} chart */
  async act(act, chart) {
    if (act === "reset-page") this.resetPage();
    if (act === "clear-filter") this.clearFilter();
    if (!chart) return;
    const name = `${this.page.id}-${chart.spec.id}`;
    if (act === "enlarge") this.enlarge(chart);
    if (act === "reset") this.look(null);
    if (act === "pin") this.pin(chart);
    if (act === "earlier") this.move(chart, -1);
    if (act === "later") this.move(chart, 1);
    if (act === "png" || act === "svg") await this.saveDrawing(chart, act, name);
    if (act === "csv") await this.saveValues(chart, `${name}.csv`);
  }

  clearFilter() {
    const filter = /** @type {HTMLInputElement} */ (this.root.querySelector("[data-chart-filter]"));
    filter.value = "";
    this.arrangement.filterBy("");
    this.showReset();
    filter.focus();
  }

  /** @param {Chart} chart */
  pin(chart) {
    this.arrangement.pin(chart);
    this.say(`${chart.spec.title} is ${this.arrangement.isPinned(chart) ? "pinned to the top" : "back in its section"}.`);
    this.showReset();
  }

  /** @param {Chart} chart @param {number} by */
  move(chart, by) {
    const focused = document.activeElement;
    const beside = this.arrangement.move(chart, by);
    if (focused instanceof HTMLElement) focused.focus();
    this.say(beside ? `${chart.spec.title} is now ${by > 0 ? "after" : "before"} ${beside.spec.title}.` : `${chart.spec.title} is at the end of its section.`);
    this.showReset();
  }

  /** @param {Chart} chart @param {Chart} beside @param {boolean} after */
  put(chart, beside, after) {
    this.arrangement.put(chart, beside, after);
    this.showReset();
  }

  /** Saves the chart as it looks when enlarged, with axis titles. @param {Chart} chart @param {"png" | "svg"} format @param {string} name */
  async saveDrawing(chart, format, name) {
    const { spec } = chart;
    await savePicture(this.plotly, chart.figure(this.view, PICTURE), spec.title, this.view.tokens, format, name);
  }

  /** @param {Chart} chart @param {string} name */
  async saveValues(chart, name) {
    this.say("Fetching all values…");
    const metrics = chart.spec.x === "time" ? chart.sources() : [...new Set([...chart.sources(), "num_tokens"])];
    try {
      saveText(csv(await everything(this.page.series, metrics)), name);
      this.say("Saved.");
    } catch {
      this.say("The server didn't respond. Nothing was saved.");
    }
  }

  /** Announces a change to users of screen readers. @param {string} text */
  say(text) {
    this.root.querySelector("[data-said]")?.replaceChildren(text);
  }

  // --- one chart, large --------------------------------------------------------------------------------------------

  /** @param {Chart} chart */
  enlarge(chart) {
    enlarge(this.dialog, chart.element, (large) => {
      chart.large = large;
      this.painter.enlarged = large ? chart.element : null;
      urlstate.set("c.large", large ? chart.spec.id : null);
      if (!large) {
        this.arrangement.lay();
        chart.element.querySelector("summary")?.focus({ preventScroll: true });
      }
      this.painter.now(chart);
    });
  }
}

/** @param {any} event @returns {import("./chart.js").Mark} */
function mark(event) {
  return { step: event.step, t: Date.parse(event.at) / 1000, kind: event.kind, text: event.text };
}

/** @param {string | null} text @returns {import("./series.js").Kind} */
const xOf = (text) => (text === "tokens" || text === "time" ? text : "step");
