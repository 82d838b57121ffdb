import assert from "node:assert/strict";
import test from "node:test";

import { afterFirstBreak, inWords, overwritten, PART, wholeLines } from "../../frontend/static/js/pages/run_page/log_lines.js";

const bytes = (/** @type {string} */ text) => new TextEncoder().encode(text);

test("a part of a log ends with its last whole line", () => {
  assert.equal(wholeLines(bytes("one\ntwo\nthr")), 8);
  assert.equal(wholeLines(bytes("no break")), 0);
  assert.equal(afterFirstBreak(bytes("rest\nnext")), 5);
  assert.equal(afterFirstBreak(bytes("none")), 0);
});

test("a line longer than a part is cut between two characters", () => {
  const cut = bytes(`x${"é".repeat(PART)}`).subarray(0, PART);
  assert.equal(wholeLines(cut), PART - 1);
});

test("of a progress bar its last state is left, without colours", () => {
  assert.equal(overwritten("\x1b[31m10%\r50%\r100%\n"), "100%\n");
  assert.equal(overwritten("plain\n"), "plain\n");
});

test("sizes are told in the largest unit", () => {
  assert.deepEqual([12, 2048, 2 ** 20 * 1.5, 200 * 2 ** 20].map(inWords), ["12 B", "2 KiB", "1.5 MiB", "200 MiB"]);
});
