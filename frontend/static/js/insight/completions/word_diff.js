// Differences between two texts, by word: removed and added. Doesn't use the DOM.

const MAX_EDITS = 1200;
const WORDS = /\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu;
const LINES = /[^\n]*\n|[^\n]+/g;

/**
 * @typedef {{ kind: "same" | "gone" | "new", text: string }} Part
 * @param {string} before @param {string} after @returns {{ parts: Part[], by: "words" | "lines" | "whole" }}
 */
export function wordDiff(before, after) {
  for (const [by, pieces] of /** @type {const} */ ([["words", WORDS], ["lines", LINES]])) {
    const parts = diff(before.match(pieces) ?? [], after.match(pieces) ?? []);
    if (parts) return { parts: joined(parts), by };
  }
  return { parts: joined([{ kind: "gone", text: before }, { kind: "new", text: after }]), by: "whole" };
}

/** Finds the differences by Myers' greedy algorithm; null if the texts differ too much.
 * @param {string[]} a @param {string[]} b @returns {Part[] | null} */
function diff(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let endA = a.length;
  let endB = b.length;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) {
    endA--;
    endB--;
  }
  const middle = shortest(a.slice(start, endA), b.slice(start, endB));
  if (!middle) return null;
  const same = (/** @type {string} */ text) => /** @type {Part} */ ({ kind: "same", text });
  return [...a.slice(0, start).map(same), ...middle, ...a.slice(endA).map(same)];
}

/** @param {string[]} a @param {string[]} b @returns {Part[] | null} */
function shortest(a, b) {
  const most = Math.min(a.length + b.length, MAX_EDITS);
  const reach = new Int32Array(2 * most + 3);
  const middle = most + 1;
  /** @type {Int32Array[]} */
  const trace = [];
  for (let edits = 0; edits <= most; edits++) {
    for (let k = -edits; k <= edits; k += 2) {
      const down = k === -edits || (k !== edits && reach[middle + k - 1] < reach[middle + k + 1]);
      let x = down ? reach[middle + k + 1] : reach[middle + k - 1] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach[middle + k] = x;
      if (x >= a.length && x - k >= b.length) return walked(a, b, trace, edits, k);
    }
    trace.push(reach.slice(middle - edits - 1, middle + edits + 2));
  }
  return null;
}

/** Traces the shortest path back and returns its parts. @param {string[]} a @param {string[]} b @param {Int32Array[]} trace
 * @param {number} edits @param {number} k @returns {Part[]} */
function walked(a, b, trace, edits, k) {
  /** @type {Part[]} */
  const back = [];
  let x = a.length;
  let y = b.length;
  for (let e = edits; e > 0; e--) {
    const reach = trace[e - 1];
    const at = (/** @type {number} */ diagonal) => reach[diagonal + e];
    const down = k === -e || (k !== e && at(k - 1) < at(k + 1));
    k += down ? 1 : -1;
    const from = at(k);
    const moved = down ? from : from + 1;
    while (x > moved) back.push({ kind: "same", text: a[--x] });
    y = from - k;
    if (down) back.push({ kind: "new", text: b[y] });
    else back.push({ kind: "gone", text: a[--x] });
  }
  while (x > 0) back.push({ kind: "same", text: a[--x] });
  return back.reverse();
}

/** Merges neighbouring parts of the same kind, removals before additions. A single space between two changes joins them.
 * @param {Part[]} parts @returns {Part[]} */
function joined(parts) {
  /** @type {Part[]} */
  const whole = [];
  let gone = "";
  let fresh = "";
  const put = () => {
    if (gone) whole.push({ kind: "gone", text: gone });
    if (fresh) whole.push({ kind: "new", text: fresh });
    gone = fresh = "";
  };
  parts.forEach((part, i) => {
    const between = part.kind === "same" && part.text === " " && (gone || fresh) && parts[i + 1] && parts[i + 1].kind !== "same";
    if (between) {
      gone += " ";
      fresh += " ";
    } else if (part.kind === "gone") gone += part.text;
    else if (part.kind === "new") fresh += part.text;
    else {
      put();
      const last = whole.at(-1);
      if (last?.kind === "same") last.text += part.text;
      else whole.push({ ...part });
    }
  });
  put();
  return whole;
}
