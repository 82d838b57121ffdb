// Names beside the ends of lines instead of a legend, and of bounds: in the margin, where they lie on no curve.

/** @typedef {{label: string, y: number, colour: string, words?: string}} End  of a line, for its name; words: the whole of it */

const LABEL_HEIGHT = 12;
const LETTER_PX = 6.5;
const GAP = 4;
const INKED = 0.4;
/** Of the part that several names have in common, up to one of these. */
const SEPARATORS = /^.*[-_/.\s]/;

/** Plotly reads tags in texts; these are words of models, trainers and people. @param {string} text */
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/**
 * Pushed apart where lines end close together, within the chart.
 * @param {End[]} ends
 * @param {{range: [bottom: number, top: number], height: number, log: boolean, room: number, ink: string}} place  range: of the y
 *   axis, as Plotly has it; height: of the plot, and room: of the margin, in px
 */
export function directLabels(ends, { range: [bottom, top], height, log, room, ink }) {
  const on = (/** @type {number} */ y) => (log ? Math.log10(Math.max(y, 1e-12)) : y);
  const high = (/** @type {number} */ y) => ((on(y) - bottom) / (top - bottom || 1)) * height;
  const placed = ends
    .map((end) => ({ ...end, natural: high(end.y), at: high(end.y) }))
    .filter(({ natural }) => natural >= 0 && natural <= height)
    .sort((a, b) => a.natural - b.natural);
  placed.forEach((end, i) => (end.at = i ? Math.max(end.at, placed[i - 1].at + LABEL_HEIGHT) : Math.max(end.at, LABEL_HEIGHT / 2)));
  for (let i = placed.length - 1, most = height - LABEL_HEIGHT / 2; i >= 0; i--, most -= LABEL_HEIGHT) placed[i].at = Math.min(placed[i].at, most);
  const letters = lettersIn(room);
  return placed.map((end) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: GAP, yanchor: "middle", showarrow: false,
    y: on(end.y), yshift: end.at - end.natural,
    text: plain(end.label.length > letters ? `${end.label.slice(0, letters - 1)}…` : end.label), font: { size: 10, color: legible(end.colour, ink) },
    hovertext: plain(end.words ?? end.label),
  }));
}

/** A line's colour, nearer to that of words: as it is, small letters of some can hardly be read.
 * @param {string} colour  rgb(…) @param {string} ink */
function legible(colour, ink) {
  const [own, words] = [colour, ink].map((each) => (each.match(/[\d.]+/g) ?? []).map(Number));
  return `rgb(${own.slice(0, 3).map((part, i) => Math.round(part + INKED * ((words[i] ?? part) - part))).join(",")})`;
}

/** @param {number} room  px of a margin */
const lettersIn = (room) => Math.floor((room - GAP) / LETTER_PX);

/** Names of runs for a margin: without the words that all begin with, and cut before their ends, which differ.
 * @param {string[]} names @param {number} room  in px @returns {string[]} */
export function apart(names, room) {
  const letters = lettersIn(room);
  const start = Math.floor((letters - 1) / 3);
  const short = (/** @type {string} */ name) =>
    name.length > letters ? `${name.slice(0, start)}…${name.slice(name.length - (letters - 1 - start))}` : name;
  let same = new Set(names).size > 1 ? names[0] : "";
  for (const name of names) while (!name.startsWith(same)) same = same.slice(0, -1);
  const { length } = SEPARATORS.exec(same)?.[0] ?? "";
  return names.every((name) => name.length > length) ? names.map((name) => short(name.slice(length))) : names.map(short);
}
