// Numbers are written as the server writes them; what the page alone writes is tested here.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import test from "node:test";

import * as figures from "../../frontend/static/js/figures.js";
import { short } from "../../frontend/static/js/times.js";

const alike = JSON.parse(readFileSync(new URL("figures.json", import.meta.url), "utf-8"));

for (const name of /** @type {const} */ (["significant", "change", "duration", "about", "age"])) {
  test(`${name} is written as the server writes it`, () => {
    for (const [value, text] of alike[name]) assert.equal(figures[name](value), text);
  });
}

test("a moment is written as the server writes it, in the local time", () => {
  for (const [[year, month, ...rest], text] of alike.clock) assert.equal(short(new Date(year, month - 1, ...rest)), text);
});

test("a value has its unit, and what is no number is a dash", () => {
  assert.deepEqual(figures.figure(0.041, "percent"), ["4.1", "%"]);
  assert.deepEqual(figures.figure(2048, "mib"), ["2", "GiB"]);
  assert.deepEqual(figures.figure(18_400, "rate"), ["18.4k", "tok/s"]);
  for (const value of [null, undefined, NaN, Infinity]) assert.deepEqual(figures.figure(value, "percent"), ["–", ""]);
});

test("a running time and an age count whole seconds", () => {
  assert.deepEqual([0.4, 9, 42, 137, 3909, -1].map(figures.elapsed), ["0 s", "9 s", "42 s", "2 min 17 s", "1 h 5 min", "0 s"]);
  assert.equal(figures.age(-3), "0 s");
});
