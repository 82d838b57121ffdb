// Whether a finger or a mouse button is down. What is exchanged under it takes the click with it that has begun.

let down = false;
/** @type {(() => void)[]} */
const waiting = [];

addEventListener("pointerdown", () => (down = true), true);
addEventListener("pointerup", up, true);
addEventListener("pointercancel", up, true);
// A button that comes up over a menu of the browser's own is told of by this alone.
addEventListener("pointermove", (event) => down && event.buttons === 0 && up(), true);

function up() {
  down = false;
  // The click comes first, and meets what was pressed.
  setTimeout(() => {
    if (!down) for (const go of waiting.splice(0)) go();
  });
}

export const pressed = () => down;

/** Fulfilled while nothing is down. @returns {Promise<void>} */
export const released = () => (down ? new Promise((go) => waiting.push(go)) : Promise.resolve());
