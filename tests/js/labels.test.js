import assert from "node:assert/strict";
import test from "node:test";

import { apart, directLabels } from "../../frontend/static/js/metrics/labels.js";

test("names of runs lose what all begin with, up to a separator", () => {
  assert.deepEqual(apart(["gsm8k-qwen-b04", "gsm8k-qwen-b08"]), ["b04", "b08"]);
  assert.deepEqual(apart(["gsm8k", "gsm8k-long"]), ["gsm8k", "gsm8k-long"]);
  assert.deepEqual(apart(["one", "one"]), ["one", "one"]);
});

test("labels stay apart, within the chart, and keep the ends of their names", () => {
  const ends = [0, 0, 1, 5].map((y, i) => ({ label: `a-name-that-is-long-${i}`, y, colour: "red" }));
  const labels = directLabels(ends, [0, 1], 100, false, 60);
  const places = labels.map(({ y, yshift }) => y * 100 + yshift);
  assert.deepEqual(places, [6, 18, 94]);
  assert.deepEqual(labels.map(({ text }) => text), ["a-…ong-0", "a-…ong-1", "a-…ong-2"]);
});
