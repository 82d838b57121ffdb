// What a person is told of a run while its page is open.

import assert from "node:assert/strict";
import { test } from "node:test";

import { news } from "../../frontend/static/js/pages/run_page/telling.js";

const run = (/** @type {string} */ status, verdict = "well") => ({ status, sentence: "Out of memory.", health: { verdict } });

test("an end is told once, with its sentence", () => {
  assert.deepEqual(news({ status: "running", health: "well" }, run("failed")), { head: "Failed", text: "Out of memory." });
  assert.equal(news({ status: "failed", health: "well" }, run("failed")), null);
  assert.equal(news({ status: "starting", health: "" }, run("running")), null);
});

test("health is told when it gets worse, not when it recovers or is rated first", () => {
  const before = (/** @type {string} */ health) => ({ status: "running", health });
  assert.equal(news(before("well"), run("running", "warning"))?.head, "Needs attention");
  assert.equal(news(before("warning"), run("running", "bad"))?.head, "Bad health");
  assert.equal(news(before("bad"), run("running", "warning")), null);
  assert.equal(news(before("unknown"), run("running", "well")), null);
  assert.equal(news(before("unknown"), run("running", "warning"))?.head, "Needs attention");
});
