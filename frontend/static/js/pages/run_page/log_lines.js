// Converts bytes of a log to displayed lines. Independent of sockets and the page.

/** Number of bytes that are read at once. */
export const PART = 64 * 1024;

const LF = 10;
const CR = 13;
const COLOURS = /\x1b\[[0-9;?]*[A-Za-z]/g;

/** @param {Uint8Array} bytes */
export const decode = (bytes) => new TextDecoder().decode(bytes);

/** @param {Uint8Array} bytes @returns {number} the start of the first whole line; 0 without a line break */
export function afterFirstBreak(bytes) {
  return bytes.indexOf(LF) + 1 || bytes.indexOf(CR) + 1;
}

/**
 * The number of bytes that are whole lines. Progress bars overwrite their line again and again; it ends with its line
 * feed. A line longer than a part is split, if necessary between two characters.
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

/** The visible rest of an overwritten line, without colours. @param {string} line */
export function overwritten(line) {
  const bare = line.includes("\x1b") ? line.replace(COLOURS, "") : line;
  if (!bare.includes("\r")) return bare;
  const said = bare.replace(/\n$/, "").split("\r").filter(Boolean);
  return `${said.at(-1) ?? ""}\n`;
}

/** @param {HTMLElement} place @param {string} line @param {string} needle  in lower case */
export function markIn(place, line, needle) {
  const lower = line.toLowerCase();
  // If lower case changes the length of a line, it is not highlighted.
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
