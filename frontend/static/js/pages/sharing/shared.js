// A shared run's page: the same charts as on the run's own page, reloaded every few seconds while the run is active.

import { ChartsPage } from "../../insight/metrics/charts_page.js";
import { loadPlotly } from "../../insight/metrics/plotly_script.js";
import { Series } from "../../insight/metrics/series.js";
import { localise } from "../../times.js";

const EVERY_MS = 15_000;

const page = JSON.parse(document.getElementById("shared-page")?.textContent ?? "{}");
const root = /** @type {HTMLElement} */ (document.querySelector(".shared-run"));
const stale = /** @type {HTMLElement} */ (root.querySelector("[data-stale]"));
const series = new Series(page.starts);
const charts = new ChartsPage(/** @type {HTMLElement} */ (document.getElementById("shared-charts")), page, series);
/** The HTML that the server last sent for each part; an unchanged part is kept, with its open folds.
 * @type {Map<string, string>} */
const sent = new Map();

/** @param {Element} part */
function name(part) {
  return /** @type {HTMLElement} */ (part).dataset.part ?? "";
}

/** @param {string} url @param {string} accept */
async function read(url, accept) {
  const response = await fetch(url, { headers: { Accept: accept } });
  // The link has ended, and the page says so.
  if (response.status === 404 || response.status === 410) location.reload();
  if (!response.ok) throw new Error(`${url} answered ${response.status}`);
  return response;
}

async function readSeries() {
  const answer = await (await read(page.series, "application/json")).json();
  series.replace(answer.series);
  charts.reload();
}

async function readNow() {
  const fresh = new DOMParser().parseFromString(await (await read(page.now, "text/html")).text(), "text/html");
  for (const part of fresh.querySelectorAll("[data-part]")) {
    const html = part.outerHTML;
    if (sent.get(name(part)) === html) continue;
    sent.set(name(part), html);
    localise(part);
    root.querySelector(`[data-part="${name(part)}"]`)?.replaceWith(part);
  }
}

const isLive = () => root.querySelector('[data-live="yes"]') !== null;

async function again() {
  if (!document.hidden) {
    try {
      await Promise.all([readSeries(), readNow()]);
      stale.hidden = true;
    } catch {
      stale.hidden = false;
    }
  }
  if (isLive() || !stale.hidden) setTimeout(again, EVERY_MS);
}

void charts.start(loadPlotly(root));
void again();
document.addEventListener("visibilitychange", () => !document.hidden && isLive() && void readSeries().catch(() => {}));
