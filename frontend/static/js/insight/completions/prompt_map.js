// The difficulty map: a canvas with a square for each prompt, coloured by the share of solved completions. The table
// below it has the same data.

const CELLS = [14, 10, 7, 5, 4];
const MAX_HEIGHT = 320;
const CLASSES = ["never", "low", "mid", "high", "always"];

export class PromptMap {
  /** @param {HTMLElement} place  [data-map] @param {(row: number) => void} open */
  constructor(place, open) {
    this.place = place;
    this.canvas = /** @type {HTMLCanvasElement} */ (place.querySelector("canvas"));
    this.tip = /** @type {HTMLElement} */ (place.querySelector(".map-tip"));
    /** @type {{ rows: number[], solved: number[], visits: number[] } | null} */
    this.data = null;
    this.cell = CELLS[0];
    this.across = 1;
    this.canvas.addEventListener("pointermove", (event) => this.show(this.at(event)));
    this.canvas.addEventListener("pointerleave", () => this.show(-1));
    this.canvas.addEventListener("click", (event) => {
      const index = this.at(event);
      if (index >= 0 && this.data) open(this.data.rows[index]);
    });
    // Both stop once the map has left the page.
    this.sizes = new ResizeObserver(() => this.draw());
    this.sizes.observe(place);
    this.themes = () => (place.isConnected ? this.draw() : document.removeEventListener("themechange", this.themes));
    document.addEventListener("themechange", this.themes);
  }

  async read() {
    const response = await fetch(this.place.dataset.map ?? "").catch(() => null);
    if (!response?.ok) {
      this.say("The map could not be loaded. The table below has the same data.");
      return;
    }
    this.data = await response.json();
    this.draw();
  }

  draw() {
    const { data, canvas } = this;
    const width = this.place.clientWidth;
    if (!data || !width) return;
    const count = data.rows.length;
    this.cell = CELLS.find((size) => Math.ceil(count / Math.floor(width / size)) * size <= MAX_HEIGHT) ?? CELLS[CELLS.length - 1];
    this.across = Math.max(1, Math.min(count, Math.floor(width / this.cell)));
    const height = Math.ceil(count / this.across) * this.cell;
    const ratio = devicePixelRatio || 1;
    canvas.width = this.across * this.cell * ratio;
    canvas.height = height * ratio;
    canvas.setAttribute("width", String(canvas.width));
    this.place.style.setProperty("--map-width", `${this.across * this.cell}px`);
    this.place.style.setProperty("--map-height", `${height}px`);
    const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
    context.scale(ratio, ratio);
    const colours = coloursOf(this.place);
    const gap = this.cell > 5 ? 1 : this.cell > 4 ? 0.5 : 0;
    for (let i = 0; i < count; i++) {
      context.fillStyle = colours[classOf(data.solved[i])];
      context.fillRect((i % this.across) * this.cell, Math.floor(i / this.across) * this.cell, this.cell - gap, this.cell - gap);
    }
  }

  /** @param {PointerEvent | MouseEvent} event @returns {number} index of the prompt under the pointer, or -1 */
  at(event) {
    if (!this.data) return -1;
    const box = this.canvas.getBoundingClientRect();
    const x = Math.floor((event.clientX - box.left) / this.cell);
    const index = Math.floor((event.clientY - box.top) / this.cell) * this.across + x;
    return x < this.across && index < this.data.rows.length ? index : -1;
  }

  /** @param {number} index */
  show(index) {
    if (!this.data || index < 0) {
      this.say("");
      return;
    }
    const visits = this.data.visits[index];
    this.say(`Row ${this.data.rows[index]}: ${this.data.solved[index]}% solved in ${visits} visit${visits === 1 ? "" : "s"}`);
  }

  /** @param {string} text */
  say(text) {
    this.tip.hidden = false;
    this.tip.textContent = text || "Point at a square to see its prompt. Click it to see the prompt over the run.";
  }
}

/** @param {number} percent */
export function classOf(percent) {
  return percent === 0 ? 0 : percent === 100 ? 4 : percent < 34 ? 1 : percent < 67 ? 2 : 3;
}

/** Returns the classes' colours in the current theme. @param {HTMLElement} place @returns {string[]} */
function coloursOf(place) {
  const card = place.closest(".card") ?? document;
  return CLASSES.map((name) => {
    const key = card.querySelector(`.cell.${name}`);
    return key ? getComputedStyle(key).backgroundColor : "grey";
  });
}
