// Which part of the x axis each chart shows, in the address, and as the server is asked for it. Knows no DOM.

import { convert } from "./series.js";
import * as urlstate from "../urlstate.js";

/** @typedef {import("./chart.js").Range} Range */

const NAME = "c.range";
const WRITTEN = /^(.+):(step|tokens|time):(-?[\d.]+):(-?[\d.]+)$/;
const DIGITS = { step: 2, tokens: 0, time: 3 };
/** A bit more than is seen, so that the line goes on past the edges. */
const MARGIN = 0.05;

/** @returns {[id: string, range: Range][]} */
export function read() {
  return urlstate.getList(NAME).flatMap((text) => {
    const [, id, kind, from, to] = WRITTEN.exec(text) ?? [];
    return id && Number(from) < Number(to) ? [[id, { kind: /** @type {any} */ (kind), from: Number(from), to: Number(to) }]] : [];
  });
}

/** @param {Iterable<import("./chart.js").Chart>} charts */
export function write(charts) {
  const texts = [];
  for (const { spec, range } of charts) {
    if (!range) continue;
    const [from, to] = [range.from, range.to].map((x) => String(Number(x.toFixed(DIGITS[range.kind]))));
    texts.push(`${spec.id}:${range.kind}:${from}:${to}`);
  }
  urlstate.setList(NAME, texts);
}

/**
 * What to ask the server for: steps, or the time where samples have no step.
 * @param {Range} range @param {import("./chart.js").Spec} spec @param {import("./series.js").Clock} clock
 * @returns {Range | null}
 */
export function asked(range, spec, clock) {
  const kind = spec.x === "time" ? "time" : range.kind === "time" ? "time" : "step";
  const [from, to] = [range.from, range.to].map((x) => convert(clock, x, range.kind, kind));
  if (from === null || to === null) return null;
  const margin = MARGIN * (to - from);
  return kind === "step"
    ? { kind, from: Math.floor(from - margin), to: Math.ceil(to + margin) }
    : { kind, from: from - margin, to: to + margin };
}
