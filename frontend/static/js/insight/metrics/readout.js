// The values under the pointer, shown below the chart, because a box on it would hide much of the curve.

import { significant } from "../../figures.js";

/**
 * @typedef {{colour: string, label: string, text: string}} Row
 * @typedef {{where: string, rows: Row[]}} Told
 */

const DIGITS = 4;
const EDGE = 8;
const BESIDE_PX = 14;

const box = document.createElement("div");
box.className = "readout floating";
box.setAttribute("aria-hidden", "true");

/**
 * Returns the rows for the points under the pointer. A trace's `meta` is its label; a mark has text instead of a value.
 * @param {any[]} points  from Plotly's event @param {string} suffix  of the values
 * @param {(x: number) => string} place  describes a position on the x axis @returns {Row[]}
 */
export function rowsOf(points, suffix, place) {
  const [{ x: pointed }] = points;
  const height = (/** @type {any} */ { data, y }) => (data.text ? -Infinity : y);
  return points.toSorted((a, b) => height(b) - height(a)).map(({ data, pointNumber, x, y }) => {
    if (data.text) return { colour: data.marker.color[pointNumber], label: data.text[pointNumber], text: "" };
    const text = `${significant(data.customdata?.[pointNumber] ?? y, DIGITS)}${suffix}`;
    // A line with fewer points shows its nearest point and that point's position.
    return { colour: data.line.color, label: x === pointed ? data.meta : `${data.meta} (${place(x)})`, text };
  });
}

/**
 * Shows the readout below the chart, above it if there is no room, or next to the pointer if the chart is enlarged.
 * @param {HTMLElement} element  the chart @param {HTMLElement} plot @param {number} x  px from the plot's left edge
 * @param {MouseEvent | TouchEvent} event  pointer event @param {Told} told
 */
export function tell(element, plot, x, event, { where, rows }) {
  const head = Object.assign(document.createElement("p"), { className: "where muted nowrap", textContent: where });
  box.replaceChildren(head, ...rows.map(line));
  const inside = element.closest("dialog") !== null;
  box.classList.toggle("inside", inside);
  if (box.parentElement !== element) element.append(box);
  const [chart, area, own] = [element, plot, box].map((part) => part.getBoundingClientRect());
  const at = area.left - chart.left + x;
  const left = inside ? (x > area.width / 2 ? at - own.width - BESIDE_PX : at + BESIDE_PX) : at - own.width / 2;
  const [least, most] = [EDGE - chart.left, document.documentElement.clientWidth - EDGE - chart.left - own.width];
  box.style.left = `${Math.max(least, Math.min(left, most))}px`;
  const top = "touches" in event ? event.touches[0].clientY : event.clientY;
  box.style.top = inside ? `${Math.min(top - chart.top + BESIDE_PX, chart.height - own.height - EDGE)}px` : "";
  box.classList.toggle("above", !inside && chart.bottom + own.height + EDGE > innerHeight && chart.top > own.height);
}

export function hush() {
  box.remove();
}

// A touch never leaves the chart, so the next touch or drag hides the values.
addEventListener("pointerdown", hush);

/** @param {Row} row */
function line({ colour, label, text }) {
  const element = Object.assign(document.createElement("p"), { className: "row single line" });
  const swatch = Object.assign(document.createElement("i"), { className: "swatch" });
  swatch.style.background = colour;
  const value = Object.assign(document.createElement("span"), { className: "told nowrap strong to-end", textContent: text });
  const name = Object.assign(document.createElement("span"), { className: "name grow", textContent: label });
  element.append(swatch, name, value);
  return element;
}
