// How much curves are smoothed: one slider, one default and one memory of it for all pages with charts.

const STORED = "smoothing";
export const DEFAULT = 0.6;
/** Positions of the slider; each closes the same share of the gap to 1. */
const PER_TENTH = 10;
const DIGITS = 2;

/** The weight of the past in an exponential moving average. @param {number} position @returns {number} */
const weightAt = (position) => Number((1 - 10 ** (-position / PER_TENTH)).toFixed(DIGITS));

/** @param {number} weight */
const positionOf = (weight) => Math.round(-PER_TENTH * Math.log10(1 - weight));

/** As the address says, else as the person last chose. @param {string | null} text  of the address @returns {number} */
export function chosen(text) {
  let weight = Number(text ?? stored() ?? DEFAULT);
  if (!(weight >= 0 && weight < 1)) weight = DEFAULT;
  return weight;
}

/**
 * @param {HTMLElement} control  holds the slider and its output
 * @param {number} weight @param {(weight: number) => void} changed  with every move of the slider
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
    return null; // Nothing may be stored: the default.
  }
}

/** @param {number} weight */
function remember(weight) {
  try {
    localStorage.setItem(STORED, String(weight));
  } catch {
    // Not stored: it holds for this page.
  }
}
