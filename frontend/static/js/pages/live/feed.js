// The live feed of one run: a websocket with a cursor. Independent of the DOM.
//
// A lost connection, a web restart and a laptop's sleep are handled the same way: connect again with after=<last seq>.

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 15_000;
const PULSE_MS = 5_000;
/** Time without a response to a ping, or to the first message, after which a socket is treated as lost, since a lost
 * network doesn't close it. */
const SILENT_MS = 12_000;
/** Gap between timer ticks that means the machine slept, after which the socket may be dead. */
const SLEPT_MS = 20_000;
const SIGNED_OUT = 4401;
const GONE = 4404;

/**
 * @typedef {[seq: number, t: number, step: number | null, kind: string, values: Record<string, number | null>]} Row
 * @typedef {{type: string, last?: number, rows?: Row[], events?: any[], run?: any, logs?: any, samples?: number}} Frame
 * @typedef {"connecting" | "open" | "lost" | "signed-out" | "gone"} State
 */

export class Feed {
  /**
   * @param {object} options
   * @param {string} options.url  ws: or wss: address, without the cursor
   * @param {number | null} options.after  the last seq already received; null for a feed without a cursor
   * @param {(frame: Frame) => void} options.onFrame
   * @param {(state: State) => void} [options.onState]
   */
  constructor({ url, after, onFrame, onState }) {
    this.url = url;
    this.after = after;
    this.onFrame = onFrame;
    this.onState = onState ?? (() => {});
    /** @type {WebSocket | null} */
    this.socket = null;
    this.failures = 0;
    this.ended = false;
    this.retry = 0;
    this.pulseAt = this.heardAt = this.askedAt = Date.now();
    this.pulse = setInterval(() => this.beat(), PULSE_MS);
    this.connect();
  }

  connect() {
    clearTimeout(this.retry);
    this.onState("connecting");
    this.askedAt = Date.now();
    const socket = new WebSocket(this.after === null ? this.url : `${this.url}?after=${this.after}`);
    this.socket = socket;
    socket.addEventListener("open", () => {
      this.failures = 0;
      this.heardAt = Date.now();
      this.onState("open");
    });
    socket.addEventListener("message", (message) => this.receive(message.data));
    socket.addEventListener("close", (event) => {
      if (socket === this.socket) this.lost(event.code);
    });
  }

  /** @param {string} text */
  receive(text) {
    this.heardAt = Date.now();
    /** @type {Frame} */
    const frame = JSON.parse(text);
    if (frame.type === "pong") return;
    if (this.after !== null && typeof frame.last === "number") this.after = Math.max(this.after, frame.last);
    this.onFrame(frame);
  }

  /** @param {object} message */
  send(message) {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(message));
  }

  /** @param {number} code */
  lost(code) {
    this.socket = null;
    if (this.ended) return;
    if (code === SIGNED_OUT || code === GONE) {
      this.close();
      this.onState(code === SIGNED_OUT ? "signed-out" : "gone");
      return;
    }
    this.onState("lost");
    const wait = Math.min(LONGEST_WAIT_MS, FIRST_WAIT_MS * 2 ** this.failures++);
    // Delays are random, so that not every open page reconnects to a restarted web process at once.
    this.retry = setTimeout(() => this.connect(), wait * (0.7 + 0.6 * Math.random()));
  }

  /** Connects now instead of at the end of a wait, because the network or the page is back. */
  wake() {
    if (!this.ended && (this.socket === null || this.isStuck())) this.restart(this.after);
  }

  /** The first message was neither answered nor refused. */
  isStuck() {
    return this.socket?.readyState === WebSocket.CONNECTING && Date.now() - this.askedAt > SILENT_MS;
  }

  beat() {
    const now = Date.now();
    const slept = now - this.pulseAt > SLEPT_MS;
    this.pulseAt = now;
    if (this.isStuck()) this.wake();
    if (this.ended || this.socket?.readyState !== WebSocket.OPEN) return;
    if (slept || now - this.heardAt > SILENT_MS) {
      const stale = this.socket;
      this.socket = null;
      stale.close();
      if (!slept) this.onState("lost");
      this.connect();
    } else {
      this.send({ type: "ping" });
    }
  }

  /** Starts again from another cursor, after the page has reloaded the series. @param {number | null} after */
  restart(after) {
    this.after = after;
    const old = this.socket;
    this.socket = null;
    old?.close();
    if (!this.ended) this.connect();
  }

  close() {
    this.ended = true;
    clearInterval(this.pulse);
    clearTimeout(this.retry);
    this.socket?.close();
    this.socket = null;
  }
}
