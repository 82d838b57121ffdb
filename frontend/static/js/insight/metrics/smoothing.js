// Smoothing of curves: a slider, a default and a stored choice that all pages with charts share.

const STORED = "smoothing";
export const DEFAULT = 0.6;
/** Slider positions per factor of ten in the distance to 1. */
const PER_TENTH = 10;
const DIGITS = 2;

/** Returns the weight of past values in the exponential moving average. @param {number} position @returns {number} */
const weightAt = (position) => Number((1 - 10 ** (-position / PER_TENTH)).toFixed(DIGITS));

/** @param {number} weight */
const positionOf = (weight) => Math.round(-PER_TENTH * Math.log10(1 - weight));

/** Returns the weight in the URL, or else the one that the user chose last. @param {string | null} text  from the URL @returns {number} */
export function chosen(text) {
  let weight = Number(text ?? stored() ?? DEFAULT);
  if (!(weight >= 0 && weight < 1)) weight = DEFAULT;
  return weight;
}

/**
 * @param {HTMLElement} control  contains the slider and its output
 * @param {number} weight @param {(weight: number) => void} changed  called at every move of the slider
 */
export function slider(control, weight, changed) {
  const input = /** @type {HTMLInputElement} */ (control.querySelector("input"));
  const output = /** @type {HTMLOutputElement} */ (control.querySelector("output"));
  const say = (/** @type {number} */ now) => {
    output.value = now ? now.toFixed(DIGITS) : "none";
    input.setAttribute("aria-valuetext", output.value);
  };
  input.value = String(positionOf(weight));
  say(weight);
  input.addEventListener("input", () => {
    const now = weightAt(Number(input.value));
    say(now);
    remember(now);
    changed(now);
  });
}

function stored() {
  try {
    return localStorage.getItem(STORED);
  } catch {
    return null; // Storage isn't allowed, so the default is used.
  }
}

/** @param {number} weight */
function remember(weight) {
  try {
    localStorage.setItem(STORED, String(weight));
  } catch {
    // Storage isn't allowed, so the choice applies to this page only.
  }
}
