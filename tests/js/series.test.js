import assert from "node:assert/strict";
import test from "node:test";

import { convert, LIMIT, Series, smooth, thin } from "../../frontend/static/js/insight/metrics/series.js";

/** @param {number} count @param {(i: number) => number} value @returns {import("../../frontend/static/js/insight/metrics/series.js").Columns} */
function columns(count, value) {
  const steps = Array.from({ length: count }, (_, i) => i + 1);
  return { seq: steps, step: steps, t: steps.map((step) => 1000 + step), value: steps.map((step) => value(step)) };
}

test("thinning keeps both ends and every spike", () => {
  const spikes = [777, 2_500, 4_999];
  const thinned = thin(columns(6_000, (step) => (spikes.includes(step) ? 9 : (step % 7) / 10)));
  assert.ok(thinned.value.length <= LIMIT);
  assert.deepEqual([thinned.step[0], thinned.step.at(-1)], [1, 6_000]);
  assert.deepEqual(thinned.step.filter((_, i) => thinned.value[i] === 9), spikes);
});

test("rows that are here already change nothing", () => {
  const series = new Series();
  series.replace({ reward: columns(3, (step) => step) });
  /** @type {import("../../frontend/static/js/pages/live/feed.js").Row[]} */
  const rows = [[3, 1003, 3, "train", { reward: 99 }], [4, 1004, 4, "train", { reward: 4, loss: null }]];
  assert.deepEqual([...series.append(rows)], ["reward"]);
  assert.deepEqual(series.get("reward").value, [1, 2, 3, 4]);
  assert.equal(series.last("loss"), null);
});

test("tokens a second come from the running total", () => {
  const series = new Series();
  series.replace({ num_tokens: columns(3, (step) => 100 * step) });
  assert.deepEqual(series.get("tokens_per_second").value, [100, 100]);
});

test("a resume's start-up is no part of the speed", () => {
  const total = columns(5, (step) => 100 * step);
  total.t = [1000, 1001, 1002, 1102, 1103];
  const series = new Series([999]);
  series.replace({ num_tokens: total });
  assert.deepEqual(series.get("tokens_per_second").value, [100, 100, 1, 100]);
  series.starts.push(1090);
  assert.deepEqual(series.get("tokens_per_second").value, [100, 100, 100]);
});

test("a place on one axis is found on the others", () => {
  const series = new Series();
  series.replace({ num_tokens: columns(30, (step) => 100 * step) });
  const clock = series.clock();
  assert.equal(convert(clock, 12.5, "step", "tokens"), 1250);
  assert.equal(convert(clock, 1250, "tokens", "time"), 1012.5);
  assert.equal(convert(clock, 5, "step", "step"), 5);
});

test("tokens go on growing over an attempt that counts them anew", () => {
  const series = new Series();
  series.replace({ num_tokens: columns(4, (step) => (step > 2 ? 100 * (step - 2) : 100 * step)) });
  assert.deepEqual(series.clock().tokens, [100, 200, 300, 400]);
});

test("finer points take the place of those they stand for", () => {
  const series = new Series();
  series.replace({ reward: thin(columns(6_000, (step) => step)) });
  const every = columns(6_000, (step) => step);
  const part = (/** @type {any[]} */ all) => all.slice(100, 200);
  const finer = { seq: part(every.seq), step: part(every.step), t: part(every.t), value: part(every.value) };
  const steps = series.get("reward", new Map([["reward", finer]])).step;
  assert.deepEqual(steps.filter((step) => step !== null && step > 100 && step <= 200), finer.step);
  assert.deepEqual(steps, steps.toSorted((a, b) => Number(a) - Number(b)));
});

test("what stays the same is smoothed to exactly that, and the first point counts fully", () => {
  assert.deepEqual(smooth([0.01, 0.01, 0.01], 0.9), [0.01, 0.01, 0.01]);
  assert.equal(smooth([1, 0], 0.9)[0], 1);
});
