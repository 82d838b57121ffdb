// The values under the pointer, below the chart: a box on it would hide much of the curve.

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
 * Plotly's description of the point under the pointer. A trace's `meta` is its label; a mark has words instead of a value.
 * @param {any[]} points  of its event @param {string} suffix  of the values
 * @param {(x: number) => string} place  a place on the x axis in words @returns {Row[]}
 */
export function rowsOf(points, suffix, place) {
  const [{ x: pointed }] = points;
  const height = (/** @type {any} */ { data, y }) => (data.text ? -Infinity : y);
  return points.toSorted((a, b) => height(b) - height(a)).map(({ data, pointNumber, x, y }) => {
    if (data.text) return { colour: data.marker.color[pointNumber], label: data.text[pointNumber], text: "" };
    const text = `${significant(data.customdata?.[pointNumber] ?? y, DIGITS)}${suffix}`;
    // A line with fewer points shows its nearest one, and where that is.
    return { colour: data.line.color, label: x === pointed ? data.meta : `${data.meta} (${place(x)})`, text };
  });
}

/**
 * Below the chart, or above it where there is no room; within an enlarged one beside the pointer.
 * @param {HTMLElement} element  the chart @param {HTMLElement} plot @param {number} x  px from the plot's left
 * @param {MouseEvent | TouchEvent} event  of the pointer @param {Told} told
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

// A finger doesn't leave a chart: the next touch or drag hides the values.
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
