import assert from "node:assert/strict";
import test from "node:test";

import { height } from "../../frontend/static/js/insight/metrics/axes.js";
import { drawing } from "../../frontend/static/js/insight/metrics/plotly_figure.js";
import { Series } from "../../frontend/static/js/insight/metrics/series.js";

const TOKENS = Object.fromEntries(["ink-1", "ink-2", "ink-3", "line", "line-strong", "surface-1", "c1"].map((name) => [name, "rgb(1, 2, 3)"]));

/** A chart of one line with its band. @param {number[]} means @param {number} std @param {object} [range]  of values @param {object} [look]
 * @param {object[]} [bounds] */
function drawn(means, std, range = {}, look = {}, bounds = []) {
  const seq = means.map((_, i) => i + 1);
  const numbers = new Series();
  const columns = { seq, step: seq, t: seq };
  numbers.replace({ mean: { ...columns, value: means }, std: { ...columns, value: means.map(() => std) } });
  const line = { metric: "mean", label: "mean", colour: "c1", band: "std", evaluation: "", weight: 1, ...range };
  /** @type {any} */
  const spec = { id: "a", title: "a", lines: [line], format: "number", zero: false, x: "step", bounds, log: false };
  const columnsOf = { get: (/** @type {string} */ metric) => numbers.get(metric), clock: numbers.clock(), origin: numbers.origin() };
  return drawing(spec, columnsOf, [], { smoothing: 0, log: false, ...look }, TOKENS);
}

/** The edges of the band. @param {number[]} means @param {number} std @param {object} range */
const edges = (means, std, range) => drawn(means, std, range).traces.slice(0, 2).map((/** @type {any} */ trace) => trace.y);

test("the band of a reward ends where its values do", () => {
  assert.deepEqual(edges([0.25, 0.5, 1], 0.5, { low: 0, high: 1 }), [[0, 0, 0.5], [0.75, 1, 1]]);
  assert.deepEqual(edges([0.25, 2], 0.5, { low: 0, high: null }), [[0, 1.5], [0.75, 2.5]]);
});

test("a declared range that is wrong cuts no line", () => {
  assert.deepEqual(edges([3], 0.5, { low: 0, high: 1 }), [[2.5], [3]]);
});

test("the y axis fits what is looked at, and a drag changes the x axis alone", () => {
  const means = [9, 2, 3, 4, 9];
  const { xaxis, yaxis } = drawn(means, 0, {}, { range: [2, 4] }).layout;
  assert.deepEqual([xaxis.range, yaxis.range, yaxis.fixedrange], [[2, 4], [2 - 0.12, 4 + 0.12], true]);
  assert.deepEqual(drawn(means, 0.5, {}, { range: [2, 4] }).layout.yaxis.range, [1.5 - 0.18, 4.5 + 0.18]);
  const whole = drawn(means, 0).layout;
  assert.deepEqual([whole.xaxis.autorange, whole.yaxis.range], [true, [2 - 0.42, 9 + 0.42]]);
});

test("a logarithmic axis fits the values above 0", () => {
  const { yaxis } = drawn([5, 0, 10, 1000, 7], 0, {}, { log: true, range: [2, 4] }).layout;
  assert.deepEqual(yaxis.range, [1 - 0.12, 3 + 0.12]);
});

test("where no point is, the axis stays that of the whole", () => {
  assert.deepEqual(drawn([1, 2], 0, {}, { range: [1.2, 1.8] }).layout.yaxis.range, [1 - 0.06, 2 + 0.06]);
});

test("an axis of time begins with the run and is marked at full minutes", () => {
  const { traces, layout } = drawn(Array(301).fill(1), 0, {}, { x: "time", large: true });
  const line = traces.find((/** @type {any} */ trace) => trace.customdata);
  assert.deepEqual([line.x[0], line.x[300]], [0, 300]);
  assert.deepEqual(layout.xaxis.ticktext.slice(0, 3), ["0", "30 s", "1 min"]);
  assert.equal(layout.xaxis.title.text, "Time since the start");
});

test("a bound is named in the margin, apart from other names, and seen whole", () => {
  const bounds = [{ value: 1, name: "warning above 1", level: "warning" }, { value: 1.01, name: "bad above 1.01", level: "bad" }];
  const { layout } = drawn([0.5, 0.9], 0, {}, {}, bounds);
  const [warning, bad] = layout.annotations;
  assert.deepEqual([warning.text, warning.hovertext, warning.x, warning.xanchor], ["warning", "warning above 1", 1, "left"]);
  assert.ok(bad.yshift - warning.yshift > 0);
  assert.ok(layout.yaxis.range[1] > 1.01);
  assert.equal(drawn([0.5, 0.9], 0, {}, { large: true }, bounds).layout.annotations[0].text, "warning above 1");
});

test("small values have an exponent, and nothing but zeros an axis from 0", () => {
  const { yaxis } = drawn([4e-5, 2e-5], 0).layout;
  assert.deepEqual([yaxis.exponentformat, yaxis.tickformat], ["e", undefined]);
  assert.equal(drawn([0.5, 1], 0).layout.yaxis.tickformat, ".4~g");
  assert.deepEqual(height({ zero: true, format: "percent" }, false, { lowest: 0, highest: 0 }).range, [0, 5]);
  assert.deepEqual(height({ zero: false, format: "percent" }, false, { lowest: 0, highest: 0 }).range, [0, 5]);
  assert.deepEqual(height({ zero: true, format: "number" }, false, { lowest: 0, highest: 0 }).range, [0, 1]);
  assert.equal(height({ zero: false, format: "percent" }, false, { lowest: 0.1, highest: 50 }).range[0], 0);
});
