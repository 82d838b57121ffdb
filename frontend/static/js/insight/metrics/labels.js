// Names beside the ends of lines instead of a legend, and of bounds: in the margin, where they lie on no curve.

/** @typedef {{label: string, y: number, colour: string, words?: string}} End  of a line, for its name; words: the whole of it */

const LABEL_HEIGHT = 12;
const SIZE = 10;
/** Of a letter where none can be measured. */
const LETTER_PX = 6.5;
const GAP = 4;
/** Between a name and the card's edge. */
const EDGE = 8;
const INKED = 0.4;
/** Of the part that several names have in common, up to one of these; no number is broken. */
const SEPARATORS = /^.*(?:[-_/\s]|\.(?!\d))/;

/** Plotly reads tags in texts; these are words of models, trainers and people. @param {string} text */
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/**
 * Pushed apart where lines end close together, within the chart.
 * @param {End[]} ends
 * @param {{range: [bottom: number, top: number], height: number, log: boolean, room: number, ink: string, font?: string}} place  range: of the y
 *   axis, as Plotly has it; height: of the plot, and room: of the margin, in px
 */
export function directLabels(ends, { range: [bottom, top], height, log, room, ink, font }) {
  const on = (/** @type {number} */ y) => (log ? Math.log10(Math.max(y, 1e-12)) : y);
  const high = (/** @type {number} */ y) => ((on(y) - bottom) / (top - bottom || 1)) * height;
  const placed = ends
    .map((end) => ({ ...end, natural: high(end.y), at: high(end.y) }))
    .filter(({ natural }) => natural >= 0 && natural <= height)
    .sort((a, b) => a.natural - b.natural);
  placed.forEach((end, i) => (end.at = i ? Math.max(end.at, placed[i - 1].at + LABEL_HEIGHT) : Math.max(end.at, LABEL_HEIGHT / 2)));
  for (let i = placed.length - 1, most = height - LABEL_HEIGHT / 2; i >= 0; i--, most -= LABEL_HEIGHT) placed[i].at = Math.min(placed[i].at, most);
  const fits = fitting(room, font);
  return placed.map((end) => ({
    xref: "paper", x: 1, xanchor: "left", xshift: GAP, yanchor: "middle", showarrow: false,
    y: on(end.y), yshift: end.at - end.natural,
    text: plain(cut(end.label, fits, (letters) => `${end.label.slice(0, letters)}…`)), font: { size: SIZE, color: legible(end.colour, ink) },
    hovertext: plain(end.words ?? end.label),
  }));
}

/** A line's colour, nearer to that of words: as it is, small letters of some can hardly be read.
 * @param {string} colour  rgb(…) @param {string} ink */
function legible(colour, ink) {
  const [own, words] = [colour, ink].map((each) => (each.match(/[\d.]+/g) ?? []).map(Number));
  return `rgb(${own.slice(0, 3).map((part, i) => Math.round(part + INKED * ((words[i] ?? part) - part))).join(",")})`;
}

/** Whether a text fits into a margin. @param {number} room  in px @param {string} [family]  of the typeface */
function fitting(room, family) {
  const pen = globalThis.document?.createElement("canvas").getContext("2d");
  if (pen) pen.font = `${SIZE}px ${family}`;
  return (/** @type {string} */ text) => (pen ? pen.measureText(text).width : text.length * LETTER_PX) <= room - GAP - EDGE;
}

/** A text as it is, or of as many of its letters as fit.
 * @param {string} text @param {(text: string) => boolean} fits @param {(letters: number) => string} shortened */
function cut(text, fits, shortened) {
  if (fits(text)) return text;
  let letters = text.length - 1;
  while (letters > 1 && !fits(shortened(letters))) letters--;
  return shortened(letters);
}

/** Names of runs for a margin: without the words that all begin with, and cut before their ends, which differ.
 * @param {string[]} names @param {number} room  in px @param {string} [family]  of the typeface @returns {string[]} */
export function apart(names, room, family) {
  const fits = fitting(room, family);
  const short = (/** @type {string} */ name) =>
    cut(name, fits, (letters) => {
      const start = Math.floor(letters / 3);
      return `${name.slice(0, start)}…${name.slice(name.length - (letters - start))}`;
    });
  let same = new Set(names).size > 1 ? names[0] : "";
  for (const name of names) while (!name.startsWith(same)) same = same.slice(0, -1);
  const { length } = SEPARATORS.exec(same)?.[0] ?? "";
  return names.every((name) => name.length > length) ? names.map((name) => short(name.slice(length))) : names.map(short);
}
