// Decides when a chart is redrawn: at once, then at most once a second, only on screen, only in a visible tab, and one
// chart a frame (a redraw costs about 8 ms of the main thread whatever the number of points).

const INTERVAL_MS = 1000;
const ENLARGED_MS = 500;

export class Painter {
  /** @param {(chart: import("./chart.js").Chart) => void} paint */
  constructor(paint) {
    this.paint = paint;
    /** @type {Map<Element, {chart: import("./chart.js").Chart, dirty: boolean, seen: boolean, at: number}>} */
    this.entries = new Map();
    this.enlarged = /** @type {Element | null} */ (null);
    this.timer = 0;
    this.observer = new IntersectionObserver((changes) => this.observed(changes), { rootMargin: "120px" });
    document.addEventListener("visibilitychange", () => this.plan());
  }

  /** @param {import("./chart.js").Chart} chart */
  add(chart) {
    this.entries.set(chart.element, { chart, dirty: true, seen: false, at: -Infinity });
    this.observer.observe(chart.element);
  }

  /** @param {(chart: import("./chart.js").Chart) => boolean} [which] */
  touch(which = () => true) {
    for (const entry of this.entries.values()) if (which(entry.chart)) entry.dirty = true;
    this.plan();
  }

  /** Draw this one with the next frame: the person changed how it looks. @param {import("./chart.js").Chart} chart */
  now(chart) {
    const entry = this.entries.get(chart.element);
    if (!entry) return;
    entry.dirty = true;
    entry.at = -Infinity;
    this.plan();
  }

  /** @param {IntersectionObserverEntry[]} changes */
  observed(changes) {
    for (const change of changes) {
      const entry = this.entries.get(change.target);
      if (entry) entry.seen = change.isIntersecting;
    }
    this.plan();
  }

  /** @param {Element} element */
  interval(element) {
    return element === this.enlarged ? ENLARGED_MS : INTERVAL_MS;
  }

  plan() {
    if (document.hidden || this.timer) return;
    let soonest = Infinity;
    for (const [element, entry] of this.entries) {
      if (entry.dirty && entry.seen) soonest = Math.min(soonest, entry.at + this.interval(element));
    }
    if (soonest === Infinity) return;
    this.timer = setTimeout(() => requestAnimationFrame(() => this.paintOne()), Math.max(0, soonest - performance.now()));
  }

  paintOne() {
    this.timer = 0;
    const now = performance.now();
    for (const [element, entry] of this.entries) {
      if (!entry.dirty || !entry.seen || now < entry.at + this.interval(element)) continue;
      entry.dirty = false;
      entry.at = now;
      this.paint(entry.chart);
      break;
    }
    this.plan();
  }
}
