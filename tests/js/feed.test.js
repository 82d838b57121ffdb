// The live feed on sockets that do what a test tells them, by a clock that a test moves.

import assert from "node:assert/strict";
import test from "node:test";

import { Feed } from "../../frontend/static/js/pages/live/feed.js";

const PATIENCE_MS = 60_000;

class FakeSocket extends EventTarget {
  static CONNECTING = 0;
  static OPEN = 1;
  static CLOSED = 3;
  /** @type {FakeSocket[]} */
  static made = [];

  /** @param {string} url */
  constructor(url) {
    super();
    this.url = url;
    this.readyState = FakeSocket.CONNECTING;
    /** @type {string[]} */
    this.sent = [];
    FakeSocket.made.push(this);
  }

  open() {
    this.readyState = FakeSocket.OPEN;
    this.dispatchEvent(new Event("open"));
  }

  /** @param {object} frame */
  hear(frame) {
    this.dispatchEvent(new MessageEvent("message", { data: JSON.stringify(frame) }));
  }

  /** @param {number} code */
  drop(code) {
    this.readyState = FakeSocket.CLOSED;
    this.dispatchEvent(Object.assign(new Event("close"), { code }));
  }

  /** @param {string} text */
  send(text) {
    this.sent.push(text);
  }

  close() {
    this.readyState = FakeSocket.CLOSED;
  }
}

/** @param {import("node:test").TestContext} context @param {number | null} after */
function connected(context, after = 7) {
  FakeSocket.made = [];
  Object.assign(globalThis, { WebSocket: FakeSocket });
  context.mock.timers.enable({ apis: ["setTimeout", "setInterval", "Date"] });
  /** @type {string[]} */
  const states = [];
  /** @type {object[]} */
  const frames = [];
  const feed = new Feed({
    url: "ws://nowhere",
    after,
    onFrame: (frame) => frames.push(frame),
    onState: (state) => states.push(state),
  });
  return { feed, states, frames, sockets: FakeSocket.made, timers: context.mock.timers };
}

for (const act of /** @type {const} */ (["beat", "wake"])) {
  test(`a connection that nobody answers is replaced on ${act}`, (context) => {
    const { feed, sockets } = connected(context);
    feed[act]();
    assert.equal(sockets.length, 1);
    feed.askedAt -= PATIENCE_MS;
    feed[act]();
    feed.close();
    assert.deepEqual(sockets.map((socket) => socket.readyState), [FakeSocket.CLOSED, FakeSocket.CLOSED]);
  });
}

test("a lost connection goes on after the last seq that was heard", (context) => {
  const { feed, states, frames, sockets, timers } = connected(context);
  sockets[0].open();
  sockets[0].hear({ type: "rows", last: 12 });
  sockets[0].drop(1012);
  timers.tick(1000);
  assert.deepEqual(sockets.map((socket) => socket.url), ["ws://nowhere?after=7", "ws://nowhere?after=12"]);
  assert.deepEqual(states, ["connecting", "open", "lost", "connecting"]);
  assert.equal(frames.length, 1);
  feed.close();
});

test("a feed without a cursor asks for none", (context) => {
  const { feed, sockets } = connected(context, null);
  assert.equal(sockets[0].url, "ws://nowhere");
  feed.close();
});

test("whoever is signed out, or asks for what is gone, is not connected again", (context) => {
  for (const [code, state] of /** @type {const} */ ([[4401, "signed-out"], [4404, "gone"]])) {
    context.mock.timers.reset();
    const { states, sockets, timers } = connected(context);
    sockets[0].drop(code);
    timers.tick(PATIENCE_MS);
    assert.deepEqual([states.at(-1), sockets.length], [state, 1]);
  }
});

test("waits grow, up to a limit", (context) => {
  const { feed, sockets, timers } = connected(context);
  for (let failures = 0; failures < 10; failures++) {
    sockets.at(-1)?.drop(1006);
    timers.tick(20_000);
    assert.equal(sockets.length, failures + 2);
  }
  sockets.at(-1)?.drop(1006);
  timers.tick(10_000);
  assert.equal(sockets.length, 11);
  feed.close();
});

test("silence is asked about, and then counts as a loss", (context) => {
  const { feed, states, sockets, timers } = connected(context);
  sockets[0].open();
  timers.tick(5_000);
  assert.deepEqual(sockets[0].sent, ['{"type":"ping"}']);
  sockets[0].hear({ type: "pong" });
  timers.tick(10_000);
  assert.equal(sockets.length, 1);
  timers.tick(5_000);
  assert.deepEqual([sockets.length, sockets[0].readyState], [2, FakeSocket.CLOSED]);
  assert.deepEqual(states.slice(2), ["lost", "connecting"]);
  feed.close();
});
