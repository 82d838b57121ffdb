// The numbers of a run in the browser: columns per metric, capped. Knows no DOM and no socket.

export const LIMIT = 1500;
/** Points left after thinning: far enough below the limit that thinning is rare. */
const KEPT = 1000;

/** @typedef {{seq: number[], step: (number | null)[], t: number[], value: number[]}} Columns */
/** @typedef {"step" | "tokens" | "time"} Kind  what an x axis counts */
/** @typedef {{step: number[], t: number[], tokens: number[]}} Clock */

/** Figures that are worked out here, and the metric that each comes from. */
const DERIVED = /** @type {Record<string, string>} */ ({ tokens_per_second: "num_tokens" });

/** @returns {Columns} */
const nothing = () => ({ seq: [], step: [], t: [], value: [] });

/** The recorded metric that a figure comes from. @param {string} metric */
export const source = (metric) => DERIVED[metric] ?? metric;

export class Series {
  /** @param {number[]} [starts]  when each attempt began to train, in seconds */
  constructor(starts = []) {
    this.starts = starts;
    /** @type {Map<string, Columns>} */
    this.columns = new Map();
    /** @type {Clock | null} */
    this.known = null;
  }

  /** Reset everything from the series document. @param {Record<string, Columns>} series */
  replace(series) {
    this.columns.clear();
    this.known = null;
    for (const [metric, columns] of Object.entries(series)) this.columns.set(metric, thin(columns));
  }

  /**
   * Rows of a frame. Returns the metrics that have a new point.
   * @param {import("../../pages/live/feed.js").Row[]} rows
   */
  append(rows) {
    /** @type {Set<string>} */
    const touched = new Set();
    for (const [seq, t, step, , values] of rows) {
      for (const [metric, value] of Object.entries(values)) {
        if (typeof value !== "number") continue;
        let columns = this.columns.get(metric);
        if (!columns) this.columns.set(metric, (columns = nothing()));
        // A frame with known points changes nothing.
        if (columns.seq.length && seq <= columns.seq[columns.seq.length - 1]) continue;
        columns.seq.push(seq);
        columns.step.push(step);
        columns.t.push(t);
        columns.value.push(value);
        touched.add(metric);
        if (columns.value.length > LIMIT) this.columns.set(metric, thin(columns));
      }
    }
    for (const [figure, metric] of Object.entries(DERIVED)) if (touched.has(metric)) touched.add(figure);
    if (touched.size) this.known = null;
    return touched;
  }

  /** @param {string} metric @param {Map<string, Columns>} [detail]  finer points of a part of it @returns {Columns} */
  get(metric, detail) {
    const recorded = this.columns.get(source(metric)) ?? nothing();
    const finer = detail?.get(source(metric));
    const columns = finer?.seq.length ? spliced(recorded, finer) : recorded;
    return metric in DERIVED ? rate(columns, this.starts) : columns;
  }

  /** When which step was done, and how many tokens it had taken by then. @returns {Clock} */
  clock() {
    const total = this.columns.get("num_tokens");
    return (this.known ??= clockOf(total ?? this.stepped(), total !== undefined));
  }

  /** When the first of all points was recorded, in seconds: where an axis of time begins. */
  origin() {
    const first = [...this.columns.values()].reduce((least, { t }) => Math.min(least, t[0] ?? Infinity), Infinity);
    return Number.isFinite(first) ? first : 0;
  }

  /** Any metric that has steps, where no tokens are counted. @returns {Columns} */
  stepped() {
    for (const columns of this.columns.values()) if (columns.step.length && columns.step[0] !== null) return columns;
    return nothing();
  }

  /** @param {string} metric @returns {number | null} */
  last(metric) {
    const { value } = this.get(metric);
    return value.length ? value[value.length - 1] : null;
  }

  /** The mean of the last points. @param {string} metric @param {number} count @returns {number | null} */
  recent(metric, count) {
    const { value } = this.get(metric);
    return value.length ? mean(value.slice(-count)) : null;
  }
}

/**
 * One kind of x for another, between the neighbours that are known. Samples of the machine have a time and no step, so
 * a place on one chart is found on every other.
 * @param {Clock} clock @param {number} x @param {Kind} from @param {Kind} to @returns {number | null}
 */
export function convert(clock, x, from, to) {
  if (from === to) return x;
  const [known, wanted] = [column(clock, from), column(clock, to)];
  return known.length && wanted.length ? between(known, wanted, x) : null;
}

/** @param {Clock} clock @param {Kind} kind */
const column = (clock, kind) => (kind === "time" ? clock.t : clock[kind]);

/**
 * Positions of the points on an axis of tokens.
 * @param {Columns} columns @param {Clock} clock @returns {(number | null)[]}
 */
export function tokensOf(columns, clock) {
  if (!clock.tokens.length) return columns.step;
  return columns.step.map((step, i) =>
    step === null ? between(clock.t, clock.tokens, columns.t[i]) : between(clock.step, clock.tokens, step),
  );
}

/**
 * The values of one metric at the seqs of another: each was thinned on its own.
 * @param {Columns} columns @param {number[]} seqs
 */
export function valuesAt(columns, seqs) {
  return seqs.map((seq) => between(columns.seq, columns.value, seq));
}

/** The place of the first that isn't below. @param {ArrayLike<number>} sorted @param {number} x */
export function place(sorted, x) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Linear between two neighbours, level before the first and after the last. @param {number[]} xs @param {number[]} ys
 * @param {number} x */
function between(xs, ys, x) {
  const after = place(xs, x);
  if (after === 0) return ys[0];
  if (after === xs.length) return ys[after - 1];
  const [left, right] = [xs[after - 1], xs[after]];
  return ys[after - 1] + ((x - left) / (right - left)) * (ys[after] - ys[after - 1]);
}

/**
 * Steps and tokens only grow on it: a resumed attempt counts its tokens from 0 again.
 * @param {Columns} columns @param {boolean} counted  whether the values are tokens @returns {Clock}
 */
function clockOf(columns, counted) {
  /** @type {Clock} */
  const clock = { step: [], t: [], tokens: [] };
  let [before, added] = [0, 0];
  for (let i = 0; i < columns.seq.length; i++) {
    const step = columns.step[i];
    const total = columns.value[i];
    if (step === null || step <= (clock.step[clock.step.length - 1] ?? -1)) continue;
    if (total < before) added += before;
    before = total;
    clock.step.push(step);
    clock.t.push(columns.t[i]);
    if (counted) clock.tokens.push(total + added);
  }
  return clock;
}

/**
 * Replaces points by finer ones; later points stay.
 * @param {Columns} columns @param {Columns} finer @returns {Columns}
 */
function spliced(columns, finer) {
  const from = place(columns.seq, finer.seq[0]);
  const to = place(columns.seq, finer.seq[finer.seq.length - 1] + 1);
  const splice = (/** @type {any[]} */ into, /** @type {any[]} */ what) => [...into.slice(0, from), ...what, ...into.slice(to)];
  return {
    seq: splice(columns.seq, finer.seq),
    step: splice(columns.step, finer.step),
    t: splice(columns.t, finer.t),
    value: splice(columns.value, finer.value),
  };
}

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

/**
 * Tokens a second between neighbours, from the running total. Wall time, so it also holds for thinned points. Between
 * the last step of an attempt and the first of the next lie a stop and a start, which are no part of the speed.
 * @param {Columns} total @param {number[]} starts @returns {Columns}
 */
function rate(total, starts) {
  const out = nothing();
  for (let i = 1; i < total.value.length; i++) {
    const seconds = total.t[i] - total.t[i - 1];
    const tokens = total.value[i] - total.value[i - 1];
    if (seconds <= 0 || tokens < 0) continue;
    if (starts.some((start) => start > total.t[i - 1] && start <= total.t[i])) continue;
    out.seq.push(total.seq[i]);
    out.step.push(total.step[i]);
    out.t.push(total.t[i]);
    out.value.push(tokens / seconds);
  }
  return out;
}

/**
 * Keep the lowest and the highest point of each bucket, and both ends: a spike of one step stays visible.
 * @param {Columns} columns @returns {Columns}
 */
export function thin(columns, limit = LIMIT, kept = KEPT) {
  const n = columns.value.length;
  if (n <= limit) return columns;
  const buckets = Math.floor(kept / 2);
  /** @type {Set<number>} */
  const keep = new Set([0, n - 1]);
  for (let b = 0; b < buckets; b++) {
    const from = Math.floor((b * n) / buckets);
    const to = Math.floor(((b + 1) * n) / buckets);
    let low = from;
    let high = from;
    for (let i = from; i < to; i++) {
      if (columns.value[i] < columns.value[low]) low = i;
      if (columns.value[i] > columns.value[high]) high = i;
    }
    keep.add(low).add(high);
  }
  const order = [...keep].sort((a, b) => a - b);
  return {
    seq: order.map((i) => columns.seq[i]),
    step: order.map((i) => columns.step[i]),
    t: order.map((i) => columns.t[i]),
    value: order.map((i) => columns.value[i]),
  };
}

/**
 * Exponential moving average that starts unbiased: the first points count fully instead of pulling towards the first.
 * @param {number[]} values @param {number} weight  0 (none) to below 1
 */
export function smooth(values, weight) {
  let mean = 0;
  let norm = 0;
  return values.map((value) => {
    norm = norm * weight + (1 - weight);
    const share = (1 - weight) / norm;
    // Constant values stay exact, or the axis would be fitted to rounding errors.
    if (value !== mean) mean = mean * (1 - share) + value * share;
    return mean;
  });
}
