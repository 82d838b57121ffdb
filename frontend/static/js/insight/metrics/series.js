// The numbers of a run in the browser: columns per metric, limited in length. Uses neither the DOM nor a socket.

export const LIMIT = 1500;
/** Number of points left after thinning, far enough below the limit that thinning is rare. */
const KEPT = 1000;

/** @typedef {{seq: number[], step: (number | null)[], t: number[], value: number[]}} Columns */
/** @typedef {"step" | "tokens" | "time"} Kind  unit of an x axis */
/** @typedef {{step: number[], t: number[], tokens: number[]}} Clock */

/** Metrics that are computed here -> the metric that they are derived from. */
const DERIVED = /** @type {Record<string, string>} */ ({ tokens_per_second: "num_tokens" });

/** @returns {Columns} */
const nothing = () => ({ seq: [], step: [], t: [], value: [] });

/** Returns the recorded metric that a metric is derived from. @param {string} metric */
export const source = (metric) => DERIVED[metric] ?? metric;

export class Series {
  /** @param {number[]} [starts]  when each attempt started training, in seconds */
  constructor(starts = []) {
    this.starts = starts;
    /** @type {Map<string, Columns>} */
    this.columns = new Map();
    /** @type {Clock | null} */
    this.known = null;
  }

  /** Replaces everything with the series document. @param {Record<string, Columns>} series */
  replace(series) {
    this.columns.clear();
    this.known = null;
    for (const [metric, columns] of Object.entries(series)) this.columns.set(metric, thin(columns));
  }

  /**
   * Adds the rows of a frame and returns the metrics that have new points.
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
        // Points that are already known are skipped.
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

  /** @param {string} metric @param {Map<string, Columns>} [detail]  finer points of some range @returns {Columns} */
  get(metric, detail) {
    const recorded = this.columns.get(source(metric)) ?? nothing();
    const finer = detail?.get(source(metric));
    const columns = finer?.seq.length ? spliced(recorded, finer) : recorded;
    return metric in DERIVED ? rate(columns, this.starts) : columns;
  }

  /** Returns when each step was completed and how many tokens had been processed by then. @returns {Clock} */
  clock() {
    const total = this.columns.get("num_tokens");
    return (this.known ??= clockOf(total ?? this.stepped(), total !== undefined));
  }

  /** Returns when the first point was recorded, in seconds, which is the start of time axes. */
  origin() {
    const first = [...this.columns.values()].reduce((least, { t }) => Math.min(least, t[0] ?? Infinity), Infinity);
    return Number.isFinite(first) ? first : 0;
  }

  /** Returns any metric that has steps, for runs without a token count. @returns {Columns} */
  stepped() {
    for (const columns of this.columns.values()) if (columns.step.length && columns.step[0] !== null) return columns;
    return nothing();
  }

  /** @param {string} metric @returns {number | null} */
  last(metric) {
    const { value } = this.get(metric);
    return value.length ? value[value.length - 1] : null;
  }

  /** Returns the mean of the last points. @param {string} metric @param {number} count @returns {number | null} */
  recent(metric, count) {
    const { value } = this.get(metric);
    return value.length ? mean(value.slice(-count)) : null;
  }
}

/**
 * Converts one kind of x to another by interpolation. Samples of the machine have a time but no step, so this is how a
 * position on one chart is found on the others.
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
 * Returns the positions of points on a token axis.
 * @param {Columns} columns @param {Clock} clock @returns {(number | null)[]}
 */
export function tokensOf(columns, clock) {
  if (!clock.tokens.length) return columns.step;
  return columns.step.map((step, i) =>
    step === null ? between(clock.t, clock.tokens, columns.t[i]) : between(clock.step, clock.tokens, step),
  );
}

/**
 * Returns the values of one metric at the seqs of another, since metrics are thinned separately.
 * @param {Columns} columns @param {number[]} seqs
 */
export function valuesAt(columns, seqs) {
  return seqs.map((seq) => between(columns.seq, columns.value, seq));
}

/** Returns the index of the first value that is at least x. @param {ArrayLike<number>} sorted @param {number} x */
export function place(sorted, x) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Interpolates linearly; constant before the first and after the last point. @param {number[]} xs @param {number[]} ys
 * @param {number} x */
function between(xs, ys, x) {
  const after = place(xs, x);
  if (after === 0) return ys[0];
  if (after === xs.length) return ys[after - 1];
  const [left, right] = [xs[after - 1], xs[after]];
  return ys[after - 1] + ((x - left) / (right - left)) * (ys[after] - ys[after - 1]);
}

/**
 * Returns a clock on which steps and tokens only grow, although a resumed attempt counts tokens from 0 again.
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
 * Replaces points with finer ones; points outside their range stay.
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
 * Computes tokens per second between neighbouring points from the running total. It is based on wall time, so it is also
 * correct for thinned points. The time between the attempts of a run is excluded.
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
 * Keeps the lowest and the highest point of each bucket and both ends, so that a spike of a single step stays visible.
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
 * Computes an exponential moving average with bias correction, so that it isn't pulled towards the first point.
 * @param {number[]} values @param {number} weight  0 (none) to below 1
 */
export function smooth(values, weight) {
  let mean = 0;
  let norm = 0;
  return values.map((value) => {
    norm = norm * weight + (1 - weight);
    const share = (1 - weight) / norm;
    // Constant values stay exact; otherwise the axis would be fitted to rounding errors.
    if (value !== mean) mean = mean * (1 - share) + value * share;
    return mean;
  });
}
