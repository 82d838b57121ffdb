import assert from "node:assert/strict";
import test from "node:test";

import { wordDiff } from "../../frontend/static/js/insight/completions/word_diff.js";

/** @param {number} seed @param {number} count */
const words = (seed, count) => Array.from({ length: count }, (_, i) => `w${(i * seed) % 97}`).join(" ");

/** @type {[before: string, after: string, by: string][]} */
const PAIRS = [
  ["", "", "words"],
  ["a b c", "a x c", "words"],
  ["", "new", "words"],
  ["gone", "", "words"],
  ["同 じ", "同 く", "words"],
  ["one two three", "two three four", "words"],
  [words(7, 6000), `${words(7, 6000)} tail`, "words"],
  ["x".repeat(50_000), "y".repeat(50_000), "words"],
  [words(7, 4000), words(11, 4000), "lines"],
];

test("the parts of a difference, put together, are the two texts", () => {
  for (const [before, after, by] of PAIRS) {
    const diff = wordDiff(before, after);
    const side = (/** @type {string} */ other) =>
      diff.parts.filter((part) => part.kind !== other).map((part) => part.text).join("");
    assert.equal(side("new"), before);
    assert.equal(side("gone"), after);
    assert.equal(diff.by, by);
  }
});

test("what changed is told, and what stayed is not", () => {
  assert.deepEqual(wordDiff("a b c", "a x c").parts, [
    { kind: "same", text: "a " },
    { kind: "gone", text: "b" },
    { kind: "new", text: "x" },
    { kind: "same", text: " c" },
  ]);
});
