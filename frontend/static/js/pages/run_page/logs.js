// The logs tab: a window into a log of any size. The page reports new bytes; this module is independent of sockets.
//
// Only a section of the log is loaded, in parts of whole lines; when a part is added at one end, one is dropped at the
// other. So a gigabyte costs the browser no more than half a megabyte.

import { PART, afterFirstBreak, decode, inWords, markIn, overwritten, wholeLines } from "./log_lines.js";
import { LogSearch } from "./log_search.js";
import * as urlstate from "../../urlstate.js";

const MAX_PARTS = 8;
/** Distance from the end, in bytes, beyond which following starts again at the end. */
const BEHIND = 4 * PART;
/** Distance from an edge, in pixels, at which the next part is fetched. */
const NEAR = 600;
const AGAIN_MS = 3000;

/** @typedef {{start: number, end: number, text: string, element: HTMLElement}} Part */

export class LogView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    const find = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-log-${name}]`));
    this.view = find("view");
    this.place = find("parts");
    this.open_ = find("open");
    this.empty = find("empty");
    this.where = find("where");
    this.slider = /** @type {HTMLInputElement} */ (find("place"));
    this.follow = /** @type {HTMLInputElement} */ (find("follow"));
    this.download = /** @type {HTMLAnchorElement} */ (find("download"));
    this.error = new RegExp(root.dataset.errors ?? "(?!)", "m");
    /** The string that ends a line marking a gap. */
    this.leftOut = `${root.dataset.leftOut}\n`;
    this.base = root.dataset.logBase ?? "";
    this.latest = this.attempt = root.dataset.attempt ?? "";
    this.name = this.first = "";
    this.size = 0;
    this.marked = "";
    /** @type {Part[]} */
    this.parts = [];
    /** Number of opened logs, so that responses for an earlier one are dropped. */
    this.turn = 0;
    this.working = Promise.resolve();
    this.wanted = this.edging = false;
    /** The last scroll position. */
    this.top = 0;
    this.search = new LogSearch(root, this);
    this.listen(find("wrap"), /** @type {HTMLSelectElement | null} */ (root.querySelector("[data-log-attempt]")));
    find("start").addEventListener("click", () => this.seek(0));
    find("end").addEventListener("click", () => this.toTail());
    this.begin();
  }

  /** Opens the log in the address, or else the end of the first log. */
  begin() {
    const names = [...this.root.querySelectorAll("[data-log]")].map((b) => /** @type {HTMLElement} */ (b).dataset.log ?? "");
    const name = urlstate.get("l.log") ?? "";
    const at = Number(urlstate.get("l.at") ?? NaN);
    const text = urlstate.get("l.q");
    this.first = names[0] ?? "";
    this.open(names.includes(name) ? name : this.first, Number.isInteger(at) && at >= 0 ? at : null);
    if (text) this.search.begin(text, Number.isNaN(at));
  }

  /** @param {HTMLElement} wrap @param {HTMLSelectElement | null} attempts */
  listen(wrap, attempts) {
    this.root.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("[data-log]") : null;
      if (button instanceof HTMLElement) this.open(button.dataset.log ?? "");
    });
    const attempt = urlstate.get("l.attempt");
    if (attempts && attempt && [...attempts.options].some((option) => option.value === attempt)) {
      this.attempt = attempts.value = attempt;
    }
    attempts?.addEventListener("change", () => {
      this.attempt = attempts.value;
      urlstate.set("l.attempt", this.attempt === this.latest ? null : this.attempt);
      this.open(this.name);
    });
    wrap.addEventListener("change", () =>
      this.view.classList.toggle("no-wrap", !(/** @type {HTMLInputElement} */ (wrap).checked)),
    );
    this.follow.addEventListener("change", () => this.follow.checked && this.toTail());
    this.slider.addEventListener("change", () => {
      const share = Number(this.slider.value) / Number(this.slider.max);
      if (share >= 1) this.toTail();
      else this.seek(Math.floor(share * this.size), { exact: false });
    });
    this.view.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  /** @param {string} name @param {number | null} [at]  null for its end */
  open(name, at = null) {
    this.name = name;
    for (const button of this.root.querySelectorAll("[data-log]")) {
      button.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (button).dataset.log === name));
    }
    this.download.href = `${this.base}${name}?download&attempt=${this.attempt}`;
    urlstate.set("l.log", name === this.first ? null : name);
    this.search.clear();
    this.size = 0;
    if (at === null) this.toTail();
    else this.seek(at);
  }

  /** Handles a report that there may be new bytes. @param {Record<string, number>} [sizes]  of the latest attempt's logs */
  news(sizes) {
    if (sizes && this.attempt === this.latest) this.showSizes(sizes);
    const size = this.attempt === this.latest ? sizes?.[this.name] : undefined;
    if (size !== undefined && size === this.size && this.end() + this.openBytes() === size) return;
    if (size !== undefined) this.size = size;
    if (this.wanted || !this.follow.checked) {
      this.tell();
      return;
    }
    this.wanted = true;
    this.queue(async () => {
      this.wanted = false;
      if (this.size - this.end() > BEHIND) await this.readTail();
      else await this.readOn();
    });
  }

  /** Goes to the end, and follows it. */
  toTail() {
    this.jump(true);
    urlstate.set("l.at", null);
    this.queue(() => this.readTail());
  }

  /** Goes to a position. @param {number} offset  the start of a line or, unless `exact`, any offset */
  seek(offset, { exact = true } = {}) {
    this.jump(false);
    urlstate.set("l.at", exact ? String(offset) : null);
    this.queue(() => this.readAt(offset, exact));
  }

  /** Discards the reads in progress. @param {boolean} following */
  jump(following) {
    this.turn++;
    this.wanted = false;
    this.follow.checked = following;
  }

  /** Sets the text to highlight. @param {string} text */
  mark(text) {
    if (text === this.marked) return;
    this.marked = text;
    for (const part of this.parts) part.element.replaceChildren(this.lines(part.text));
  }

  // --- reading -------------------------------------------------------------------------------------------------

  /** Performs one read at a time, in order, dropping those requested before the last jump. @param {() => Promise<void>} read */
  queue(read) {
    const turn = this.turn;
    this.working = this.working.then(async () => {
      if (turn !== this.turn) return;
      try {
        await read();
        this.tell();
      } catch {
        this.where.textContent = "The log can’t be read right now; retrying.";
        setTimeout(() => turn === this.turn && this.queue(read), AGAIN_MS);
      }
    });
  }

  /** @param {number} offset  from the end if negative @param {number} limit */
  async fetch(offset, limit) {
    const address = `${this.base}${this.name}?attempt=${this.attempt}&offset=${offset}&limit=${limit}`;
    const response = await fetch(address, { headers: { Accept: "text/plain" } });
    if (!response.ok) throw new Error(String(response.status));
    this.size = Number(response.headers.get("X-Size"));
    return { bytes: new Uint8Array(await response.arrayBuffer()), at: Number(response.headers.get("X-Offset")) };
  }

  async readTail() {
    const turn = this.turn;
    const { bytes, at } = await this.fetch(-PART, PART);
    if (turn !== this.turn) return;
    this.empty_();
    const from = at === 0 ? 0 : afterFirstBreak(bytes);
    this.below(bytes.subarray(from), at + from);
    this.toEnd();
  }

  /** @param {number} offset @param {boolean} exact */
  async readAt(offset, exact) {
    const turn = this.turn;
    const from = Math.max(0, offset - PART / 2);
    const { bytes, at } = await this.fetch(from, 2 * PART);
    if (turn !== this.turn) return;
    this.empty_();
    const first = at === 0 ? 0 : afterFirstBreak(bytes.subarray(0, offset - at));
    const middle = exact ? offset - at : offset - at + (offset ? afterFirstBreak(bytes.subarray(offset - at)) : 0);
    if (middle > first) this.addBelow(bytes.subarray(first, middle), at + first, true);
    this.below(bytes.subarray(middle), at + middle, true);
    const target = this.parts.find((part) => part.start === at + middle)?.element;
    const line = exact && offset > 0 ? target && firstLine(target) : null;
    if (line) this.view.scrollTop = line.offsetTop - this.view.clientHeight / 3;
    else this.view.scrollTop = target ? target.offsetTop : 0;
  }

  /** Loads what follows the last part; while following, up to the end. */
  async readOn() {
    const turn = this.turn;
    do {
      const from = Math.max(0, this.end());
      const { bytes, at } = await this.fetch(from, PART);
      if (turn !== this.turn) return;
      this.noticeScrolling();
      const known = this.end();
      const before = this.view.scrollTop;
      const gone = this.below(bytes, at);
      if (this.follow.checked) this.toEnd();
      else this.view.scrollTop = before - gone;
      if (this.end() === known) return;
    } while (this.follow.checked && this.end() < this.size);
  }

  async readBack() {
    const turn = this.turn;
    const first = this.parts[0];
    if (!first?.start) return;
    const from = Math.max(0, first.start - PART);
    const { bytes, at } = await this.fetch(from, first.start - from);
    if (turn !== this.turn) return;
    const cut = at === 0 ? 0 : afterFirstBreak(bytes);
    const part = this.part(bytes.subarray(cut), at + cut);
    const height = this.view.scrollHeight;
    const top = this.view.scrollTop;
    this.parts.unshift(part);
    this.place.prepend(part.element);
    // Keep the lines that the user is reading in place.
    this.view.scrollTop = top + this.view.scrollHeight - height;
    while (this.parts.length > MAX_PARTS) {
      this.parts.pop()?.element.remove();
      this.showOpen(new Uint8Array());
    }
  }

  // --- parts ---------------------------------------------------------------------------------------------------

  end() {
    return this.parts.at(-1)?.end ?? 0;
  }

  openBytes() {
    return Number(this.open_.dataset.bytes ?? 0);
  }

  empty_() {
    this.parts = [];
    this.place.replaceChildren();
    this.showOpen(new Uint8Array());
  }

  /** Adds bytes after the last part: whole lines, and the incomplete one. Returns the height removed at the top.
   * @param {Uint8Array} bytes @param {number} at */
  below(bytes, at, alone = false) {
    const whole = wholeLines(bytes);
    const gone = whole ? this.addBelow(bytes.subarray(0, whole), at, alone) : 0;
    this.showOpen(at + bytes.length >= this.size ? bytes.subarray(whole) : new Uint8Array());
    return gone;
  }

  /** @param {Uint8Array} bytes @param {number} at @param {boolean} alone  true for a separate part */
  addBelow(bytes, at, alone = false) {
    const last = this.parts.at(-1);
    if (last && !alone && last.end - last.start + bytes.length <= PART) {
      const text = decode(bytes);
      last.element.append(this.lines(text));
      last.text += text;
      last.end += bytes.length;
      return 0;
    }
    const part = this.part(bytes, at);
    this.parts.push(part);
    this.place.append(part.element);
    let gone = 0;
    while (this.parts.length > MAX_PARTS) {
      const first = this.parts.shift();
      gone += first?.element.offsetHeight ?? 0;
      first?.element.remove();
    }
    return gone;
  }

  /** @param {Uint8Array} bytes @param {number} start @returns {Part} */
  part(bytes, start) {
    const element = Object.assign(document.createElement("pre"), { className: "log-part" });
    const text = decode(bytes);
    element.append(this.lines(text));
    return { start, end: start + bytes.length, text, element };
  }

  /** @param {Uint8Array} bytes */
  showOpen(bytes) {
    this.open_.dataset.bytes = String(bytes.length);
    this.open_.replaceChildren(this.lines(decode(bytes)));
  }

  /** Renders lines as a terminal does; errors, gaps and hits are highlighted.
   * @param {string} text */
  lines(text) {
    const all = document.createDocumentFragment();
    let plain = "";
    const needle = this.marked.toLowerCase();
    const flush = () => {
      if (plain) all.append(plain);
      plain = "";
    };
    for (const raw of text.split(/(?<=\n)/)) {
      const line = overwritten(raw);
      const telling = this.error.test(line);
      const leftOut = line.endsWith(this.leftOut);
      if (!telling && !leftOut && !(needle && line.toLowerCase().includes(needle))) {
        plain += line;
        continue;
      }
      flush();
      const span = document.createElement("span");
      if (telling || leftOut) span.className = telling ? "telling bad" : "left-out warn";
      markIn(span, line, needle);
      all.append(span);
    }
    flush();
    return all;
  }

  // --- looks ---------------------------------------------------------------------------------------------------

  /** Stops following when the user scrolls up, until they are at the end again. Returns the pixels below.
   *
   * The event comes after the scrolling, so this is also called before the script scrolls; otherwise it would undo the
   * user's scrolling. If the script's own scrolling finds more to read than before, following doesn't stop. */
  noticeScrolling() {
    const { scrollTop, scrollHeight, clientHeight } = this.view;
    const left = scrollHeight - scrollTop - clientHeight;
    const up = scrollTop < this.top;
    this.top = scrollTop;
    const atEnd = left < 24 && this.end() + this.openBytes() >= this.size;
    if (this.follow.checked ? up && left >= 24 : atEnd) this.follow.checked = !this.follow.checked;
    return left;
  }

  scrolled() {
    const left = this.noticeScrolling();
    const { scrollTop } = this.view;
    this.tell();
    if (this.edging) return;
    const back = scrollTop < NEAR && (this.parts[0]?.start ?? 0) > 0;
    const on = left < NEAR && this.parts.length > 0 && this.end() < this.size - this.openBytes();
    if (!back && !on) return;
    this.edging = true;
    this.queue(() => (back ? this.readBack() : this.readOn()));
    void this.working.then(() => (this.edging = false));
  }

  tell() {
    this.empty.hidden = this.size > 0;
    const share = this.follow.checked || !this.size ? 1 : this.offsetInView() / this.size;
    if (document.activeElement !== this.slider) this.slider.value = String(Math.round(share * Number(this.slider.max)));
    this.where.textContent = this.size
      ? this.follow.checked
        ? `end of ${inWords(this.size)}`
        : `${inWords(this.offsetInView())} of ${inWords(this.size)}`
      : "";
  }

  /** The approximate offset of the top of the view. */
  offsetInView() {
    const top = this.view.scrollTop;
    const part = this.parts.find(({ element }) => element.offsetTop + element.offsetHeight > top) ?? this.parts.at(-1);
    if (!part) return 0;
    const share = (top - part.element.offsetTop) / Math.max(1, part.element.offsetHeight);
    return Math.round(part.start + Math.max(0, Math.min(1, share)) * (part.end - part.start));
  }

  /** @param {Record<string, number>} sizes */
  showSizes(sizes) {
    for (const [name, size] of Object.entries(sizes)) {
      const place = this.root.querySelector(`[data-log-size-of="${name}"]`);
      if (place) place.textContent = inWords(size);
    }
  }

  toEnd() {
    this.view.scrollTop = this.view.scrollHeight;
    this.top = this.view.scrollTop;
  }
}

/** Returns an element at the first line of a part, to scroll to. @param {HTMLElement} element */
function firstLine(element) {
  const first = element.firstChild;
  if (first instanceof HTMLElement) {
    first.classList.add("target");
    return first;
  }
  if (!(first instanceof Text)) return null;
  const end = first.data.indexOf("\n") + 1 || first.data.length;
  first.splitText(end);
  const span = Object.assign(document.createElement("span"), { className: "target" });
  first.replaceWith(span);
  span.append(first);
  return span;
}
