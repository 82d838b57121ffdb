import assert from "node:assert/strict";
import test from "node:test";

import { drawing } from "../../frontend/static/js/metrics/drawing.js";
import { Series } from "../../frontend/static/js/metrics/series.js";

const TOKENS = Object.fromEntries(["ink-1", "ink-2", "ink-3", "line", "line-strong", "surface-1", "c1"].map((name) => [name, "rgb(1, 2, 3)"]));

/** The band's edges of a chart of one line. @param {number[]} means @param {number} std @param {object} range */
function edges(means, std, range) {
  const seq = means.map((_, i) => i + 1);
  const numbers = new Series();
  const columns = { seq, step: seq, t: seq };
  numbers.replace({ mean: { ...columns, value: means }, std: { ...columns, value: means.map(() => std) } });
  const line = { metric: "mean", label: "mean", colour: "c1", band: "std", evaluation: "", weight: 1, ...range };
  /** @type {any} */
  const spec = { id: "a", title: "a", lines: [line], format: "number", zero: false, x: "step", bounds: [], log: false };
  const { traces } = drawing(spec, { get: (metric) => numbers.get(metric), clock: numbers.clock() }, [], { smoothing: 0, log: false }, TOKENS);
  return traces.slice(0, 2).map((/** @type {any} */ trace) => trace.y);
}

test("the band of a reward ends where its values do", () => {
  assert.deepEqual(edges([0.25, 0.5, 1], 0.5, { low: 0, high: 1 }), [[0, 0, 0.5], [0.75, 1, 1]]);
  assert.deepEqual(edges([0.25, 2], 0.5, { low: 0, high: null }), [[0, 1.5], [0.75, 2.5]]);
});

test("a declared range that is wrong cuts no line", () => {
  assert.deepEqual(edges([3], 0.5, { low: 0, high: 1 }), [[2.5], [3]]);
});
