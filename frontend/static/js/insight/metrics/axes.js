// The axes of all charts: units and labels of x, scaling of values, and the visible range of y.

/** @typedef {"step" | "tokens" | "time" | "hours"} Along  unit of an x axis; time is in seconds since the run started */

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
const UNITS = /** @type {[string, number][]} */ ([["d", DAY], ["h", HOUR], ["min", MINUTE], ["s", 1]]);
/** Possible intervals between the ticks of a time axis, in seconds. */
const PACES = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY];
/** Maximum number of ticks on a time axis. A label such as "2 h 30 min" takes about 45 px. */
const MARKS = { small: 4, large: 10 };
/** Margin above and below the lines, as a share of their height. */
const ROOM = 0.06;
/** Upper end of the axis if all shares are 0, in percent. */
const NO_SHARE = 5;
/** Values below this are written with an exponent, because they would not fit into the margin otherwise. */
const EXPONENT_BELOW = 1e-3;

const TITLES = {
  step: "Step",
  tokens: "Tokens so far, of prompts and completions",
  time: "Time since the start",
  hours: "GPU-hours",
};
const FORMATS = { step: ",.9~r", tokens: ".3~s", hours: ".3~g" };

/**
 * Returns the x axis for Plotly.
 * @param {Along} along @param {[from: number, to: number]} seen  visible range @param {boolean} large
 */
export function xAxis(along, [from, to], large) {
  const title = large ? { title: { text: TITLES[along], standoff: 8 } } : {};
  if (along !== "time") return { type: "linear", tickformat: FORMATS[along], nticks: large ? MARKS.large : 6, ...title };
  const marks = moments(from, to, large ? MARKS.large : MARKS.small);
  return { type: "linear", tickvals: marks, ticktext: marks.map(lasting), ...title };
}

/** Returns the ticks of a time axis, at full minutes, hours or days. @param {number} from @param {number} to @param {number} most */
function moments(from, to, most) {
  const widest = (to - from) / most;
  const pace = PACES.find((each) => each >= widest) ?? Math.ceil(widest / DAY) * DAY;
  const marks = [];
  for (let at = Math.ceil(from / pace) * pace; at <= to && marks.length <= 2 * most; at += pace) marks.push(at);
  return marks;
}

/** Formats a tick in all of its units: with only two units, some neighbouring ticks would look the same. @param {number} seconds */
function lasting(seconds) {
  const parts = [];
  let rest = Math.abs(seconds);
  for (const [unit, size] of UNITS) {
    const count = Math.floor(rest / size);
    if (count) parts.push(`${count} ${unit}`);
    rest -= count * size;
  }
  return (seconds < 0 ? "−" : "") + (parts.join(" ") || "0");
}

/** Returns the range of an axis from the first to the last value, or [0, 1] if there are no values.
 * @param {(number | null)[][]} all  each in order @returns {[from: number, to: number]} */
export function reach(all) {
  let [from, to] = [Infinity, -Infinity];
  for (const places of all) {
    for (const place of [places[0], places[places.length - 1]]) {
      if (typeof place !== "number") continue;
      [from, to] = [Math.min(from, place), Math.max(to, place)];
    }
  }
  return from <= to ? [from, to] : [0, 1];
}

/** Returns the factor and suffix for a format: percentages and GiB are scaled, not only labelled.
 * @param {string} format @param {number} highest */
export function scale(format, highest) {
  if (format === "percent") return { by: 100, suffix: "%" };
  if (format === "percent100") return { by: 1, suffix: "%" };
  if (format === "mib") return highest >= 2048 ? { by: 1 / 1024, suffix: " GiB" } : { by: 1, suffix: " MiB" };
  if (format === "seconds") return { by: 1, suffix: " s" };
  if (format === "watts") return { by: 1, suffix: " W" };
  return { by: 1, suffix: "" };
}

/** Returns the lowest and the highest value within a range, or null if there is none. Plotly would include values outside
 * the range when fitting the axis. @param {any[]} traces @param {[from: number, to: number]} range @param {boolean} log
 * @returns {[lowest: number, highest: number] | null} */
export function visible(traces, [from, to], log) {
  let [lowest, highest] = [Infinity, -Infinity];
  for (const { x, y, yaxis } of traces) {
    if (yaxis === "y2") continue;
    for (let i = 0; i < x.length; i++) {
      if (x[i] === null || x[i] < from || x[i] > to || (log && y[i] <= 0)) continue;
      lowest = Math.min(lowest, y[i]);
      highest = Math.max(highest, y[i]);
    }
  }
  return lowest <= highest ? [lowest, highest] : null;
}

/** Returns the y axis from the lowest to the highest value with a margin. Axes of shares don't extend below 0, and an axis
 * that starts at 0 has some height even if all values are 0. @param {{zero: boolean, format: string}} spec @param {boolean} log
 * @param {{lowest: number, highest: number}} figures @returns {{autorange: boolean, range: [bottom: number, top: number]}} */
export function height({ zero, format }, log, { lowest, highest }) {
  const [low, high] = log ? [Math.log10(lowest), Math.log10(highest)] : [lowest, highest];
  const share = !log && format.startsWith("percent");
  if (low === 0 && high === 0 && (share || (zero && !log))) return { autorange: false, range: [0, share ? NO_SHARE : 1] };
  const room = (high - low || Math.abs(high) || 1) * ROOM;
  if (!zero || log) return { autorange: false, range: [share && low >= 0 ? Math.max(0, low - room) : low - room, high + room] };
  return { autorange: false, range: [low < 0 ? low - room : 0, high > 0 ? high + room : 0] };
}

/** Returns the number format of the y axis. @param {number} lowest @param {number} highest */
export function figuresOf(lowest, highest) {
  const size = Math.max(Math.abs(lowest), Math.abs(highest));
  // Plotly's default format writes exponents, and 0 as 0.
  if (size > 0 && size < EXPONENT_BELOW) return { exponentformat: "e", minexponent: 0 };
  // d3's SI format would write 0.5 as 500m.
  return { tickformat: highest >= 10_000 ? ".3~s" : ".4~g" };
}

/** Returns the settings that all axes share. @param {Record<string, string>} tokens */
export const plainAxis = (tokens) => ({ gridcolor: tokens.line, linecolor: tokens.line, zeroline: false, tickfont: { size: 10 }, automargin: false });
