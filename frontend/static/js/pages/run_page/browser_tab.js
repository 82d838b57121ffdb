// The browser tab of a run: its progress and how it ended, in the title and in the icon.

/** Colours that are visible on light and dark tab strips, so not the page's own. */
const COLOURS = { blue: "#3b82f6", amber: "#d9932b", green: "#22a55b", red: "#e5484d", grey: "#8b9199" };

/** For each status, the colour, the word before the name (by default the percentage done), and the icon's sign (by
 * default a ring). */
const MARKS = /** @type {Record<string, {colour: keyof typeof COLOURS, word?: string, sign?: string}>} */ ({
  queued: { colour: "grey", word: "Queued · " },
  starting: { colour: "blue", word: "Starting · " },
  running: { colour: "blue" },
  stopping: { colour: "amber", word: "Stopping · " },
  succeeded: { colour: "green", word: "✓ ", sign: "M9 16.5l5 5 9-11" },
  failed: { colour: "red", word: "✗ ", sign: "M10 10l12 12M22 10L10 22" },
  stopped: { colour: "grey", word: "■ ", sign: "M12 12h8v8h-8z" },
});

const RADIUS = 12;
const AROUND = 2 * Math.PI * RADIUS;
let name = document.title;
let shown = name;

/** @param {string} status @param {number} step @param {number | null} most  total number of steps, if known */
export function showInTab(status, step, most) {
  if (document.title !== shown) name = document.title; // the run was renamed
  const mark = MARKS[status] ?? { colour: "grey", word: "" };
  const share = most ? Math.min(1, step / most) : 0;
  const title = `${mark.word ?? (most ? `${Math.floor(100 * share)}% · ` : "")}${name}`;
  if (document.title !== title) document.title = title;
  shown = document.title;
  const icon = document.querySelector("link[rel=icon]");
  const address = `data:image/svg+xml,${encodeURIComponent(drawing(COLOURS[mark.colour], share, mark.sign))}`;
  if (icon && icon.getAttribute("href") !== address) icon.setAttribute("href", address);
}

/** A ring that shows the progress, or a disc with a sign. @param {string} colour @param {number} share @param {string} [sign] */
function drawing(colour, share, sign) {
  const line = 'fill="none" stroke-width="5" stroke-linecap="round" stroke-linejoin="round"';
  // In whole percent, since browsers redraw the icon with every change.
  const done = (Math.floor(100 * share) / 100) * AROUND;
  const parts = sign
    ? `<circle cx="16" cy="16" r="15" fill="${colour}"/><path d="${sign}" stroke="#fff" ${line.replace("5", "4")}/>`
    : `<circle cx="16" cy="16" r="${RADIUS}" stroke="${colour}" opacity="0.3" ${line}/>
       <circle cx="16" cy="16" r="${RADIUS}" stroke="${colour}" ${line} stroke-dasharray="${done} ${AROUND}" transform="rotate(-90 16 16)"/>`;
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">${parts}</svg>`;
}
