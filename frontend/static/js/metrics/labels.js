// Names beside the ends of lines instead of a legend, and of bounds: in the margin, where they lie on no curve.

/** @typedef {{label: string, y: number, colour: string, words?: string}} End  of a line, for its name; words: the whole of it */

const LABEL_HEIGHT = 12;
const LETTER_PX = 6.5;
const GAP = 4;
/** Of the part that several names have in common, up to one of these. */
const SEPARATORS = /^.*[-_/.\s]/;

/** Plotly reads tags in texts; these are words of models, trainers and people. @param {string} text */
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/**
 * Pushed apart where lines end close together, within the chart.
 * @param {End[]} ends @param {[bottom: number, top: number]} range  of the y axis, as Plotly has it @param {number} height  of the
 * plot, in px @param {boolean} log @param {number} room  px of the margin
 */
export function directLabels(ends, [bottom, top], height, log, room) {
  const on = (/** @type {number} */ y) => (log ? Math.log10(Math.max(y, 1e-12)) : y);
  const high = (/** @type {number} */ y) => ((on(y) - bottom) / (top - bottom || 1)) * height;
  const placed = ends
    .map((end) => ({ ...end, natural: high(end.y), at: high(end.y) }))
    .filter(({ natural }) => natural >= 0 && natural <= height)
    .sort((a, b) => a.natural - b.natural);
  placed.forEach((end, i) => (end.at = i ? Math.max(end.at, placed[i - 1].at + LABEL_HEIGHT) : Math.max(end.at, LABEL_HEIGHT / 2)));
  for (let i = placed.length - 1, most = height - LABEL_HEIGHT / 2; i >= 0; i--, most -= LABEL_HEIGHT) placed[i].at = Math.min(placed[i].at, most);
  const letters = Math.floor((room - GAP) / LETTER_PX);
  return placed.map((end) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: GAP, yanchor: "middle", showarrow: false,
    y: on(end.y), yshift: end.at - end.natural,
    text: plain(cut(end.label, letters)), font: { size: 10, color: end.colour },
    hovertext: plain(end.words ?? end.label),
  }));
}

/** Not at the end: names of runs and metrics differ at their ends. @param {string} label @param {number} letters */
function cut(label, letters) {
  if (label.length <= letters) return label;
  const start = Math.floor((letters - 1) / 3);
  return `${label.slice(0, start)}…${label.slice(label.length - (letters - 1 - start))}`;
}

/** Names without the words that all begin with. @param {string[]} names @returns {string[]} */
export function apart(names) {
  if (new Set(names).size < 2) return names;
  let same = names[0];
  for (const name of names) while (!name.startsWith(same)) same = same.slice(0, -1);
  const { length } = SEPARATORS.exec(same)?.[0] ?? "";
  return names.every((name) => name.length > length) ? names.map((name) => name.slice(length)) : names;
}
