// What a page shows, in its address: names with values in the query, so that a link or a reload shows the same.
//
// Each part of a page has names of its own (c.x, s.step, l.search) and leaves the others' alone. Writing waits a moment:
// browsers refuse a page that writes with every key.

const WAIT_MS = 150;

/** @type {Map<string, string | null>} */
const pending = new Map();
/** What parts of the page have set since it was loaded. @type {Map<string, string | null>} */
const shown = new Map();
let timer = 0;

/** @param {string} name @returns {string | null} */
export function get(name) {
  const written = pending.get(name);
  return written === undefined ? new URLSearchParams(location.search).get(name) : written;
}

/** @param {string} name @param {string | null} value  null, or nothing in it, takes the name away */
export function set(name, value) {
  pending.set(name, value || null);
  shown.set(name, value || null);
  timer ||= setTimeout(flush, WAIT_MS);
}

/** Write it now: before the page is left, or a link with it is handed on. */
export function flush() {
  clearTimeout(timer);
  timer = 0;
  const query = new URLSearchParams(location.search);
  for (const [name, value] of pending) {
    if (value === null) query.delete(name);
    else query.set(name, value);
  }
  pending.clear();
  // These may stand in a query as they are, and an address is also read by people.
  const text = query.toString().replace(/%(2F|2C|3A)/g, decodeURIComponent);
  const address = location.pathname + (text && `?${text}`) + location.hash;
  if (address !== location.pathname + location.search + location.hash) history.replaceState(history.state, "", address);
}

/** An entry of the history of its own: Back leads to what the address says now, and what is set next is said by the new
 * one. */
export function push() {
  flush();
  history.pushState(history.state, "", location.href);
}

/** After Back: the parts with these prefixes go on showing what they do, so the address goes on saying it.
 * @param {string[]} prefixes */
export function keep(...prefixes) {
  for (const [name, value] of shown) if (prefixes.some((prefix) => name.startsWith(prefix))) set(name, value);
}

/** A list in one value. @param {string} name @returns {string[]} */
export function getList(name) {
  return (get(name) ?? "").split(",").filter(Boolean).map((value) => value.replace(/%(25|2C)/g, decodeURIComponent));
}

/** @param {string} name @param {Iterable<string>} values */
export function setList(name, values) {
  set(name, listed(values));
}

/** A list as one value, in which no comma within a member parts it. @param {Iterable<string>} values */
export function listed(values) {
  return [...values].map((value) => value.replace(/[%,]/g, encodeURIComponent)).join(",");
}

addEventListener("pagehide", flush);
// What was not written yet was of the entry that is left.
addEventListener("popstate", () => pending.clear());
