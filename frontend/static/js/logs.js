// The logs tab: the end of a log, followed while it is open. Told of new bytes by the page; knows no socket.

const FIRST_BYTES = 48 * 1024;
const PART_BYTES = 256 * 1024;
const MOST_CHARACTERS = 2_000_000;

export class LogView {
  /** @param {HTMLElement} root */
  constructor(root) {
    this.root = root;
    const find = (/** @type {string} */ name) => /** @type {HTMLElement} */ (root.querySelector(`[data-log-${name}]`));
    this.view = find("view");
    this.text = find("text");
    this.size = find("size");
    this.empty = find("empty");
    this.earlier = find("earlier");
    this.follow = /** @type {HTMLInputElement} */ (find("follow"));
    this.download = /** @type {HTMLAnchorElement} */ (find("download"));
    this.base = root.dataset.logBase ?? "";
    this.attempt = root.dataset.attempt ?? "";
    this.name = "";
    this.start = 0;
    this.end = 0;
    this.reading = Promise.resolve();
    this.decoder = new TextDecoder();
    this.listen(find("wrap"), /** @type {HTMLSelectElement | null} */ (root.querySelector("[data-log-attempt]")));
    const first = root.querySelector("[data-log]");
    if (first instanceof HTMLElement) this.open(first.dataset.log ?? "");
  }

  /** @param {HTMLElement} wrap @param {HTMLSelectElement | null} attempts */
  listen(wrap, attempts) {
    for (const button of this.root.querySelectorAll("[data-log]")) {
      button.addEventListener("click", () => this.open(/** @type {HTMLElement} */ (button).dataset.log ?? ""));
    }
    attempts?.addEventListener("change", () => {
      this.attempt = attempts.value;
      this.open(this.name);
    });
    wrap.addEventListener("change", () =>
      this.view.classList.toggle("no-wrap", !(/** @type {HTMLInputElement} */ (wrap).checked)),
    );
    this.follow.addEventListener("change", () => this.follow.checked && this.toEnd());
    this.earlier.addEventListener("click", () => this.queue(() => this.readEarlier()));
    // Scrolling up means reading: following stops until the person is at the end again.
    this.view.addEventListener("scroll", () => {
      this.follow.checked = this.view.scrollHeight - this.view.scrollTop - this.view.clientHeight < 24;
    });
  }

  /** @param {string} name */
  open(name) {
    this.name = name;
    for (const button of this.root.querySelectorAll("[data-log]")) {
      button.setAttribute("aria-pressed", String(/** @type {HTMLElement} */ (button).dataset.log === name));
    }
    this.download.href = `${this.base}${name}?download&attempt=${this.attempt}`;
    this.text.textContent = "";
    this.decoder = new TextDecoder();
    this.start = this.end = -1;
    this.follow.checked = true;
    this.queue(() => this.readOn());
  }

  /** New bytes may be there. */
  news() {
    this.queue(() => this.readOn());
  }

  /** One read at a time, in order. @param {() => Promise<void>} read */
  queue(read) {
    this.reading = this.reading.then(read).catch(() => {
      this.size.textContent = "the log can’t be read just now";
    });
  }

  /** @param {number} offset @param {number} limit */
  async fetch(offset, limit) {
    const address = `${this.base}${this.name}?attempt=${this.attempt}&offset=${offset}&limit=${limit}`;
    const response = await fetch(address, { headers: { Accept: "text/plain" } });
    if (!response.ok) throw new Error(String(response.status));
    const size = Number(response.headers.get("X-Size"));
    return { bytes: new Uint8Array(await response.arrayBuffer()), at: Number(response.headers.get("X-Offset")), size };
  }

  async readOn() {
    const name = this.name;
    for (;;) {
      const fresh = this.end < 0;
      const part = await this.fetch(fresh ? -FIRST_BYTES : this.end, PART_BYTES);
      if (name !== this.name) return;
      if (fresh) this.start = part.at;
      this.end = part.at + part.bytes.length;
      this.show(this.decoder.decode(part.bytes, { stream: true }), part.size);
      if (this.end >= part.size || !part.bytes.length) return;
    }
  }

  async readEarlier() {
    const from = Math.max(0, this.start - PART_BYTES);
    const part = await this.fetch(from, this.start - from);
    const height = this.view.scrollHeight;
    this.text.prepend(new TextDecoder().decode(part.bytes));
    this.start = from;
    this.earlier.hidden = from === 0;
    // What the person was reading stays where it is.
    this.view.scrollTop += this.view.scrollHeight - height;
  }

  /** @param {string} text @param {number} size */
  show(text, size) {
    if (text) this.text.append(text);
    const all = this.text.textContent ?? "";
    if (all.length > MOST_CHARACTERS) {
      this.text.textContent = all.slice(-MOST_CHARACTERS / 2);
      this.start = this.end - MOST_CHARACTERS / 2;
    }
    this.empty.hidden = size > 0;
    this.earlier.hidden = this.start <= 0;
    this.size.textContent = size ? `${(size / 1024).toLocaleString("en-US", { maximumFractionDigits: 0 })} KiB` : "";
    if (this.follow.checked) this.toEnd();
  }

  toEnd() {
    this.view.scrollTop = this.view.scrollHeight;
  }
}
