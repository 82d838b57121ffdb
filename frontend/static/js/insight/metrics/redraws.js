// Decides when a chart is redrawn: at once, then at most once a second, only on screen, only in a visible tab, and one
// chart per frame (a redraw takes about 8 ms of the main thread, regardless of the number of points).

const INTERVAL_MS = 1000;
const ENLARGED_MS = 500;
/** Multiple of a redraw's duration that is left for everything else, so that slow machines redraw less often instead of
 * freezing the page. */
const REST = 8;

/**
 * @template {{element: HTMLElement}} T
 * @typedef {{chart: T, dirty: boolean, seen: boolean, at: number}} Entry
 */

/** @template {{element: HTMLElement}} T */
export class Painter {
  /** @param {(chart: T) => void} paint */
  constructor(paint) {
    this.paint = paint;
    /** @type {Map<Element, Entry<T>>} */
    this.entries = new Map();
    this.enlarged = /** @type {Element | null} */ (null);
    this.timer = 0;
    this.frame = 0;
    this.rested = 0;
    this.observer = new IntersectionObserver((changes) => this.observed(changes), { rootMargin: "0px" });
    document.addEventListener("visibilitychange", () => this.plan());
  }

  /** @param {T} chart */
  add(chart) {
    this.entries.set(chart.element, { chart, dirty: true, seen: false, at: -Infinity });
    this.observer.observe(chart.element);
  }

  /** Marks charts with new numbers to be redrawn when due. @param {(chart: T) => boolean} [which] */
  touch(which = () => true) {
    for (const entry of this.entries.values()) if (which(entry.chart)) entry.dirty = true;
    this.plan();
  }

  /** Redraws charts in the next frames, because the user changed their look. @param {T} [chart]  default: all charts */
  now(chart) {
    for (const entry of chart ? [this.entries.get(chart.element)] : this.entries.values()) {
      if (entry) Object.assign(entry, { dirty: true, at: -Infinity });
    }
    this.plan();
  }

  /** Returns the charts on screen. @returns {T[]} */
  seen() {
    return [...this.entries.values()].filter((entry) => entry.seen).map((entry) => entry.chart);
  }

  /** @param {IntersectionObserverEntry[]} changes */
  observed(changes) {
    for (const change of changes) {
      const entry = this.entries.get(change.target);
      if (entry) entry.seen = change.isIntersecting;
    }
    this.plan();
  }

  /** Returns when a chart may be drawn: at once if the user changed it. @param {Element} element @param {Entry<T>} entry */
  due(element, entry) {
    const interval = element === this.enlarged ? ENLARGED_MS : INTERVAL_MS;
    return entry.at === -Infinity ? -Infinity : Math.max(entry.at + interval, this.rested);
  }

  plan() {
    clearTimeout(this.timer);
    if (document.hidden || this.frame) return;
    let soonest = Infinity;
    for (const [element, entry] of this.entries) {
      if (entry.dirty && entry.seen) soonest = Math.min(soonest, this.due(element, entry));
    }
    if (soonest === Infinity) return;
    const wait = soonest - performance.now();
    if (wait > 0) this.timer = setTimeout(() => this.plan(), wait);
    else this.frame = requestAnimationFrame(() => this.paintOne());
  }

  /** Draws the chart that has waited longest. */
  paintOne() {
    this.frame = 0;
    const now = performance.now();
    const waiting = [...this.entries].filter(([element, e]) => e.dirty && e.seen && this.due(element, e) <= now);
    const next = waiting.reduce((first, [, e]) => (first && first.at <= e.at ? first : e), /** @type {Entry<T> | null} */ (null));
    if (next) {
      next.dirty = false;
      next.at = now;
      this.paint(next.chart);
      const ended = performance.now();
      this.rested = ended + REST * (ended - now);
    }
    this.plan();
  }
}
