import assert from "node:assert/strict";
import test from "node:test";

import { apart, directLabels } from "../../frontend/static/js/insight/metrics/labels.js";

test("names of runs lose what all begin with, up to a separator", () => {
  assert.deepEqual(apart(["gsm8k-qwen-b04", "gsm8k-qwen-b08"], 84), ["b04", "b08"]);
  assert.deepEqual(apart(["gsm8k", "gsm8k-long"], 84), ["gsm8k", "gsm8k-long"]);
  assert.deepEqual(apart(["one", "one"], 84), ["one", "one"]);
  assert.deepEqual(apart(["a-very-long-name-1", "another"], 90), ["a-v…g-name-1", "another"]);
});

test("labels stay apart, within the chart, and are cut to their room", () => {
  const ends = [0, 0, 1, 5].map((y, i) => ({ label: `a-name-that-is-long-${i}`, y, colour: "rgb(200, 100, 0)" }));
  const labels = directLabels(ends, { range: [0, 1], height: 100, log: false, room: 60, ink: "rgb(0, 0, 0)" });
  const places = labels.map(({ y, yshift }) => y * 100 + yshift);
  assert.deepEqual(places, [6, 18, 94]);
  assert.equal(labels[0].font.color, "rgb(120,60,0)");
  assert.deepEqual(labels.map(({ text }) => text), ["a-name…", "a-name…", "a-name…"]);
});
