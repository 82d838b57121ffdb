// Bytes of a log as lines to show. Knows no socket and no page.

/** Bytes that are read at once. */
export const PART = 64 * 1024;

const LF = 10;
const CR = 13;
const COLOURS = /\x1b\[[0-9;?]*[A-Za-z]/g;

/** @param {Uint8Array} bytes */
export const decode = (bytes) => new TextDecoder().decode(bytes);

/** @param {Uint8Array} bytes @returns {number} where the first whole line begins; 0 without a line break */
export function afterFirstBreak(bytes) {
  return bytes.indexOf(LF) + 1 || bytes.indexOf(CR) + 1;
}

/**
 * How many of the bytes are whole lines. Progress bars write over their line again and again: it ends with its line
 * feed. A line longer than a part is cut, if need be between two characters.
 * @param {Uint8Array} bytes
 */
export function wholeLines(bytes) {
  const fed = bytes.lastIndexOf(LF) + 1;
  if (fed || bytes.length < PART) return fed;
  const returned = bytes.lastIndexOf(CR) + 1;
  if (returned) return returned;
  let end = bytes.length;
  while (end > 1 && (bytes[end - 1] & 0xc0) === 0x80) end--;
  return bytes[end - 1] >= 0xc0 ? end - 1 || bytes.length : bytes.length;
}

/** What is left of a line that was written over; without colours. @param {string} line */
export function overwritten(line) {
  const bare = line.includes("\x1b") ? line.replace(COLOURS, "") : line;
  if (!bare.includes("\r")) return bare;
  const said = bare.replace(/\n$/, "").split("\r").filter(Boolean);
  return `${said.at(-1) ?? ""}\n`;
}

/** @param {HTMLElement} place @param {string} line @param {string} needle  in small letters */
export function markIn(place, line, needle) {
  const lower = line.toLowerCase();
  // Some letters have small ones of another length: such a line is left unmarked.
  let from = 0;
  if (needle && lower.length === line.length) {
    for (let at; (at = lower.indexOf(needle, from)) >= 0; from = at + needle.length) {
      const hit = Object.assign(document.createElement("mark"), { textContent: line.slice(at, at + needle.length) });
      place.append(line.slice(from, at), hit);
    }
  }
  place.append(line.slice(from));
}

/** @param {number} bytes */
export function inWords(bytes) {
  for (const [one, unit] of /** @type {[number, string][]} */ ([[2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])) {
    if (bytes >= one) return `${Number((bytes / one).toPrecision(3))} ${unit}`;
  }
  return `${bytes} B`;
}
