// The numbers of a run in the browser: columns per metric, capped. Knows no DOM and no socket.

export const LIMIT = 1500;
/** What is left after thinning: far enough below the limit that it happens seldom. */
const KEPT = 1000;

/** @typedef {{seq: number[], step: (number | null)[], t: number[], value: number[]}} Columns */

/** @returns {Columns} */
const nothing = () => ({ seq: [], step: [], t: [], value: [] });

export class Series {
  constructor() {
    /** @type {Map<string, Columns>} */
    this.columns = new Map();
  }

  /** Everything anew, from the series document. @param {Record<string, Columns>} series */
  replace(series) {
    this.columns.clear();
    for (const [metric, columns] of Object.entries(series)) this.columns.set(metric, thin(columns));
  }

  /**
   * Rows of a frame. Returns the metrics that have a new point.
   * @param {import("./feed.js").Row[]} rows
   */
  append(rows) {
    /** @type {Set<string>} */
    const touched = new Set();
    for (const [seq, t, step, , values] of rows) {
      for (const [metric, value] of Object.entries(values)) {
        if (typeof value !== "number") continue;
        let columns = this.columns.get(metric);
        if (!columns) this.columns.set(metric, (columns = nothing()));
        // A frame that overlaps what is here already changes nothing.
        if (columns.seq.length && seq <= columns.seq[columns.seq.length - 1]) continue;
        columns.seq.push(seq);
        columns.step.push(step);
        columns.t.push(t);
        columns.value.push(value);
        touched.add(metric);
        if (columns.value.length > LIMIT) this.columns.set(metric, thin(columns));
      }
    }
    if (touched.has("num_tokens")) touched.add("tokens_per_second");
    return touched;
  }

  /** @param {string} metric @returns {Columns} */
  get(metric) {
    if (metric === "tokens_per_second") return rate(this.columns.get("num_tokens") ?? nothing());
    return this.columns.get(metric) ?? nothing();
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

  /**
   * How far the last ten points are from the first ten: whether it learns.
   * @param {string} metric @returns {number | null}
   */
  gain(metric) {
    const { value } = this.get(metric);
    if (value.length < 12) return null;
    const n = Math.min(10, Math.floor(value.length / 2));
    return mean(value.slice(-n)) - mean(value.slice(0, n));
  }
}

/** @param {number[]} values */
const mean = (values) => values.reduce((sum, v) => sum + v, 0) / values.length;

/**
 * Tokens a second between neighbours, from the running total. Wall time, so it also holds for thinned points.
 * @param {Columns} total @returns {Columns}
 */
function rate(total) {
  const out = nothing();
  for (let i = 1; i < total.value.length; i++) {
    const seconds = total.t[i] - total.t[i - 1];
    const tokens = total.value[i] - total.value[i - 1];
    if (seconds <= 0 || tokens < 0) continue;
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
  let sum = 0;
  let norm = 0;
  return values.map((value) => {
    sum = sum * weight + value * (1 - weight);
    norm = norm * weight + (1 - weight);
    return sum / norm;
  });
}
