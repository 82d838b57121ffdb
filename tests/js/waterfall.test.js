// What Plotly is told of one step.

import assert from "node:assert/strict";
import test from "node:test";

import { drawing } from "../../frontend/static/js/insight/metrics/waterfall.js";

/** @type {Record<string, string>} */
const TOKENS = new Proxy({}, { get: (_, name) => `rgb(${String(name)})` });
const bar = (/** @type {string} */ phase, /** @type {number} */ start, /** @type {number} */ seconds) => ({ phase, colour: "c1", start, seconds });
const STEP = {
  seconds: 10,
  lanes: [
    { key: "vllm", label: "vLLM", bars: [bar("generation", 0, 4)], gaps: /** @type {[number, number][]} */ ([[4, 6]]) },
    { key: "trainer", label: "Trainer <b>", bars: [bar("update", 4, 3), bar("update", 7, 3)], gaps: /** @type {[number, number][]} */ ([[0, 4]]) },
  ],
  gpus: /** @type {any[]} */ ([]),
};

test("a bar for each span, in its lane's row and at its time", () => {
  const { traces, layout } = drawing(STEP, TOKENS, { width: 1000, longest: 0 });
  const [idle, generation, update] = traces;
  assert.deepEqual([idle.y, idle.base, idle.x], [["vllm", "trainer"], [4, 0], [6, 4]]);
  assert.deepEqual([generation.y, generation.base, generation.x], [["vllm"], [0], [4]]);
  assert.deepEqual([update.y, update.base, update.x], [["trainer", "trainer"], [4, 7], [3, 3]]);
  assert.deepEqual(layout.xaxis.range, [0, 10]);
  assert.deepEqual(layout.yaxis.ticktext, ["vLLM", "Trainer &lt;b>"]);
});

test("several steps share an axis, and the GPUs' use has a part of its own", () => {
  const use = { label: "vLLM’s GPUs", t: [1, 2], percent: [50, 100] };
  const { traces, layout } = drawing({ ...STEP, gpus: [use] }, TOKENS, { width: 390, longest: 15 });
  assert.equal(traces[traces.length - 1].yaxis, "y2");
  // Plotly's basic build, which pages may have loaded, draws these.
  assert.deepEqual([...new Set(traces.map(({ type }) => type))].sort(), ["bar", "scatter"]);
  assert.deepEqual(layout.xaxis.range, [0, 15]);
  assert.ok(layout.yaxis.domain[0] > layout.yaxis2.domain[1]);
});
