// The visible range of the x axis, in the URL and in requests. Doesn't use the DOM.

import { convert } from "./series.js";
import * as urlstate from "../../urlstate.js";

/** @typedef {import("./chart.js").Range} Range */

const NAME = "c.range";
const WRITTEN = /^(step|tokens|time):(-?[\d.]+):(-?[\d.]+)$/;
const DIGITS = { step: 2, tokens: 0, time: 3 };
/** A margin around the visible range, so that lines continue past the edges. */
const MARGIN = 0.05;

/** @returns {Range | null} */
export function read() {
  const [, kind, from, to] = WRITTEN.exec(urlstate.get(NAME) ?? "") ?? [];
  return Number(from) < Number(to) ? { kind: /** @type {any} */ (kind), from: Number(from), to: Number(to) } : null;
}

/** @param {Range | null} range */
export function write(range) {
  const ends = range && [range.from, range.to].map((x) => String(Number(x.toFixed(DIGITS[range.kind]))));
  urlstate.set(NAME, range && ends ? [range.kind, ...ends].join(":") : null);
}

/** Converts a range to another kind of axis; null if it can't be converted. @param {Range | null} range @param {import("./series.js").Kind} kind
 * @param {import("./series.js").Clock} clock @returns {Range | null} */
export function on(range, kind, clock) {
  if (!range || range.kind === kind) return range;
  const [from, to] = [range.from, range.to].map((x) => convert(clock, x, range.kind, kind));
  return from === null || to === null || from >= to ? null : { kind, from, to };
}

/** Returns the user's change of the x axis from Plotly's event: null for a reset, undefined if there is none. The axis itself
 * may have been redrawn since. @param {any} change @returns {[from: number, to: number] | null | undefined} */
export function dragged(change) {
  if (change["xaxis.autorange"]) return null;
  const [from, to] = change["xaxis.range"] ?? [change["xaxis.range[0]"], change["xaxis.range[1]"]];
  return from === undefined || to === undefined ? undefined : [Number(from), Number(to)];
}

/**
 * Returns the range to request, in steps, or in time if samples have no step.
 * @param {Range} range @param {import("./chart.js").Spec} spec @param {import("./series.js").Clock} clock
 * @returns {Range | null}
 */
export function asked(range, spec, clock) {
  const kind = spec.x === "time" ? "time" : range.kind === "time" ? "time" : "step";
  const there = on(range, kind, clock);
  if (!there) return null;
  const { from, to } = there;
  const margin = MARGIN * (to - from);
  return kind === "step"
    ? { kind, from: Math.floor(from - margin), to: Math.ceil(to + margin) }
    : { kind, from: from - margin, to: to + margin };
}
