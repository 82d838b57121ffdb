// Whether a finger or a mouse button is down. Replacing the element under it would lose the click in progress.

let down = false;
/** @type {(() => void)[]} */
const waiting = [];

addEventListener("pointerdown", () => (down = true), true);
addEventListener("pointerup", up, true);
addEventListener("pointercancel", up, true);
// Only this event reports a button that is released over one of the browser's own menus.
addEventListener("pointermove", (event) => down && event.buttons === 0 && up(), true);

function up() {
  down = false;
  // The click comes first, and reaches the pressed element.
  setTimeout(() => {
    if (!down) for (const go of waiting.splice(0)) go();
  });
}

export const pressed = () => down;

/** Resolves when nothing is pressed. @returns {Promise<void>} */
export const released = () => (down ? new Promise((go) => waiting.push(go)) : Promise.resolve());
