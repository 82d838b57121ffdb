// Names of lines and bounds in the margin, next to their ends, instead of a legend. They never cover a curve.

/** @typedef {{label: string, y: number, colour: string, words?: string}} End  end of a line; words is the full name */

const LABEL_HEIGHT = 12;
const SIZE = 10;
/** Width of a letter if text can't be measured. */
const LETTER_PX = 6.5;
const GAP = 4;
/** Distance between a name and the card's edge. */
const EDGE = 8;
const INKED = 0.4;
/** Matches a common prefix of names up to its last separator, without splitting a number. */
const SEPARATORS = /^.*(?:[-_/\s]|\.(?!\d))/;

/** Escapes tags for Plotly, since the text comes from models, trainers and users. @param {string} text */
export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");

/**
 * Returns labels for the ends of lines, moved apart if lines end close together.
 * @param {End[]} ends
 * @param {{range: [bottom: number, top: number], height: number, log: boolean, room: number, ink: string, font?: string}} place  Plotly's range of
 *   the y axis, the plot's height and the margin's width (room) in px
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

/** Mixes a line's colour with the text colour, since small letters in some colours are hard to read.
 * @param {string} colour  rgb(…) @param {string} ink */
function legible(colour, ink) {
  const [own, words] = [colour, ink].map((each) => (each.match(/[\d.]+/g) ?? []).map(Number));
  return `rgb(${own.slice(0, 3).map((part, i) => Math.round(part + INKED * ((words[i] ?? part) - part))).join(",")})`;
}

/** Returns a function that tests whether text fits into a margin. @param {number} room  in px @param {string} [family] */
function fitting(room, family) {
  const pen = globalThis.document?.createElement("canvas").getContext("2d");
  if (pen) pen.font = `${SIZE}px ${family}`;
  return (/** @type {string} */ text) => (pen ? pen.measureText(text).width : text.length * LETTER_PX) <= room - GAP - EDGE;
}

/** Shortens text until it fits.
 * @param {string} text @param {(text: string) => boolean} fits @param {(letters: number) => string} shortened */
function cut(text, fits, shortened) {
  if (fits(text)) return text;
  let letters = text.length - 1;
  while (letters > 1 && !fits(shortened(letters))) letters--;
  return shortened(letters);
}

/** Shortens names of runs for a margin: removes their common prefix, and truncates in the middle, since the ends differ.
 * @param {string[]} names @param {number} room  in px @param {string} [family] @returns {string[]} */
export function apart(names, room, family) {
  const fits = fitting(room, family);
  const short = (/** @type {string} */ name) =>
    cut(name, fits, (letters) => {
      const start = Math.floor(letters / 3);
      return `${name.slice(0, start)}…${name.slice(name.length - (letters - start))}`;
    });
  let prefix = new Set(names).size > 1 ? names[0] : "";
  for (const name of names) while (!name.startsWith(prefix)) prefix = prefix.slice(0, -1);
  const { length } = SEPARATORS.exec(prefix)?.[0] ?? "";
  return names.every((name) => name.length > length) ? names.map((name) => short(name.slice(length))) : names.map(short);
}
