// Saves a chart as a picture or all its values as CSV. Requests the values from the server; draws nothing on the page.

import { plain } from "./labels.js";
import { listed } from "../../urlstate.js";

/** @typedef {import("./series.js").Columns} Columns */
/** @typedef {Record<string, Columns>} Answer */

const MAX_POINTS = 5000;
/** Number of points from which a range counts as thinned: it has about as many points as requested, rarely exactly as many. */
const FULL = MAX_POINTS / 2;
/** Number of halvings after which a range is so short that it has no more points. */
const DEEPEST = 16;
/** Size of a saved picture, in px. */
export const PICTURE = { width: 960, height: 480 };
const SCALE = 2;
const ROOM_FOR_TITLE = 30;
/** Minimum width of the right margin, in px: half the width of the last tick's label. */
const ROOM_FOR_MARK = 32;

/**
 * Saves a drawing with its title, on the page's background.
 * @param {any} plotly @param {{traces: any[], layout: any}} drawing  with the size of a picture @param {string} title
 * @param {Record<string, string>} tokens @param {"png" | "svg"} format @param {string} name  without its ending
 */
export async function savePicture(plotly, { traces, layout }, title, tokens, format, name) {
  const { width, height } = PICTURE;
  const head = { text: plain(title), font: { size: 14, color: tokens["ink-1"] }, x: 0.02, xanchor: "left", y: 1, yanchor: "top", pad: { t: 10 } };
  const margin = { ...layout.margin, t: layout.margin.t + ROOM_FOR_TITLE, r: Math.max(layout.margin.r, ROOM_FOR_MARK) };
  // On the page all plots are aligned; in a picture this isn't necessary.
  const [xaxis, yaxis] = [layout.xaxis, layout.yaxis].map((axis) => ({ ...axis, automargin: true }));
  const family = tokens.font.split(",")[0].replaceAll('"', "");
  // The page's font list has a name with a comma, which would make Plotly break all styles of the picture.
  const font = { ...layout.font, family: `${family}, sans-serif` };
  const figure = { data: traces, layout: { ...layout, font, xaxis, yaxis, width, height: height + ROOM_FOR_TITLE, title: head, margin, paper_bgcolor: tokens["surface-1"] } };
  // Plotly would create the PNG from a blob, which the page's content security policy forbids for images.
  const picture = withFont(await plotly.toImage(figure, { format: "svg", width, height: height + ROOM_FOR_TITLE }), await typeface(family));
  save(format === "svg" ? picture : await png(picture, SCALE * width, SCALE * (height + ROOM_FOR_TITLE)), `${name}.${format}`);
}

/** Returns the page's @font-face rule with the font embedded, since a picture can't load fonts; "" if there is no such rule.
 * @param {string} family */
async function typeface(family) {
  const rule = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules].map((each) => ({ each, base: sheet.href ?? location.href })))
    .find(({ each }) => each instanceof CSSFontFaceRule && each.style.getPropertyValue("font-family").replaceAll('"', "") === family);
  const address = rule && /url\("([^"]+)"\)/.exec(rule.each.cssText)?.[1];
  if (!address) return "";
  const response = await fetch(new URL(address, rule.base)).catch(() => null);
  if (!response?.ok) return "";
  const bytes = new Uint8Array(await response.arrayBuffer());
  let letters = "";
  for (const byte of bytes) letters += String.fromCharCode(byte);
  return rule.each.cssText.replace(address, `data:font/ttf;base64,${btoa(letters)}`);
}

/** @param {string} svg  as a data URL @param {string} rule */
function withFont(svg, rule) {
  const [head, text] = svg.split(/,(.*)/s);
  return `${head},${encodeURIComponent(decodeURIComponent(text).replace(/<svg[^>]*>/, (start) => `${start}<style>${rule}</style>`))}`;
}

/** @param {string} svg  as a data URL @param {number} width @param {number} height @returns {Promise<string>} */
async function png(svg, width, height) {
  const image = new Image(width, height);
  image.src = svg;
  await image.decode();
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d")?.drawImage(image, 0, 0, width, height);
  return canvas.toDataURL("image/png");
}

/**
 * Returns all values of some metrics. The server thins long ranges, so a range with too many points is requested again in
 * two halves.
 * @param {string} url @param {string[]} metrics @returns {Promise<Answer>}
 */
export async function everything(url, metrics) {
  return part(url, metrics, null, 0);
}

/** @param {string} url @param {string[]} metrics @param {[from: number, to: number] | null} stretch @param {number} depth
 * @returns {Promise<Answer>} */
async function part(url, metrics, stretch, depth) {
  const answer = await ask(url, metrics, MAX_POINTS, stretch && { kind: "time", from: stretch[0], to: stretch[1] });
  const full = Object.values(answer).filter((columns) => columns.value.length >= FULL);
  if (!full.length || depth === DEEPEST) return answer;
  const from = stretch?.[0] ?? Math.min(...full.map(({ t }) => t[0]));
  const to = stretch?.[1] ?? Math.max(...full.map(({ t }) => t[t.length - 1]));
  const middle = (from + to) / 2;
  const before = await part(url, metrics, [from, middle], depth + 1);
  const after = await part(url, metrics, [middle, to], depth + 1);
  return Object.fromEntries(metrics.map((metric) => [metric, joined(before[metric], after[metric])]));
}

/**
 * @param {string} url @param {string[]} metrics @param {number} points @param {import("./chart.js").Range | null} range
 * @param {AbortSignal} [signal] @returns {Promise<Answer>}
 */
export async function ask(url, metrics, points, range, signal) {
  const query = new URLSearchParams({ metrics: listed(metrics), points: String(points) });
  if (range) for (const [name, value] of [["x", range.kind], ["from", range.from], ["to", range.to]]) query.set(String(name), String(value));
  const response = await fetch(`${url}?${query}`, { headers: { Accept: "application/json" }, signal });
  if (!response.ok) throw new Error(`series.json returned ${response.status}`);
  return (await response.json()).series;
}

/** Joins two ranges that may share the point between them. @param {Columns} before @param {Columns} after @returns {Columns} */
function joined(before, after) {
  const last = before.seq[before.seq.length - 1] ?? -1;
  const from = after.seq.findIndex((seq) => seq > last);
  const rest = (/** @type {any[]} */ column) => (from < 0 ? [] : column.slice(from));
  return {
    seq: [...before.seq, ...rest(after.seq)],
    step: [...before.step, ...rest(after.step)],
    t: [...before.t, ...rest(after.t)],
    value: [...before.value, ...rest(after.value)],
  };
}

/** Returns a row per point: step, time and values. @param {Answer} answer @returns {string} */
export function csv(answer) {
  const metrics = Object.keys(answer);
  /** @type {Map<number, {step: number | null, t: number, values: (number | undefined)[]}>} */
  const rows = new Map();
  metrics.forEach((metric, i) => {
    const { seq, step, t, value } = answer[metric];
    for (let at = 0; at < seq.length; at++) {
      let row = rows.get(seq[at]);
      if (!row) rows.set(seq[at], (row = { step: step[at], t: t[at], values: Array(metrics.length) }));
      row.values[i] = value[at];
    }
  });
  const lines = [...rows].sort(([a], [b]) => a - b).map(([, row]) =>
    [row.step ?? "", moment(row.t), ...Array.from(row.values, (value) => value ?? "")].join(","),
  );
  return [["step", "time", ...metrics.map(quoted)].join(","), ...lines, ""].join("\n");
}

/** Returns one metric of several runs, a row per point. @param {string} metric @param {{id: string, name: string, columns: Columns}[]} runs */
export function runsCsv(metric, runs) {
  const rows = runs.flatMap(({ id, name, columns: { step, t, value } }) =>
    value.map((each, i) => [id, quoted(name), step[i] ?? "", moment(t[i]), each].join(",")),
  );
  return [["run", "name", "step", "time", quoted(metric)].join(","), ...rows, ""].join("\n");
}

/** @param {number} t  in seconds */
const moment = (t) => new Date(t * 1000).toISOString();

/** @param {string} text */
const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

/** @param {string} text @param {string} name */
export function saveText(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  save(url, name);
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
}

/** @param {string} href @param {string} name */
function save(href, name) {
  const link = Object.assign(document.createElement("a"), { href, download: name.replace(/[^\w.-]+/g, "_") });
  document.body.append(link);
  link.click();
  link.remove();
}
