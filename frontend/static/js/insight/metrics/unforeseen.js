// Charts for metrics that the server didn't plan, one per metric.

/** @typedef {import("./chart.js").Spec & {section: {title: string, folded: boolean}}} Spec */

/** The same sections as on the server. */
const OTHER = { title: "Other", folded: false };
const EVALUATIONS = { title: "Other evaluation metrics", folded: true };
const BOOK_KEEPING = /^((train_|eval_)?(epoch|num_tokens|runtime|\w+_per_second)|total_flos|train_loss)$/;
/** Maximum number of charts created here, since metrics whose names change with each step would fill the page. */
const MOST = 200;

/** Returns the metrics that the charts show or need. @param {import("./chart.js").Spec[]} specs */
export function known(specs) {
  const names = new Set([""]);
  for (const { lines } of specs) {
    for (const { metric, band, evaluation } of lines) names.add(metric).add(band).add(evaluation);
  }
  return names;
}

/** @param {Iterable<string>} metrics @param {Set<string>} known  new metrics are added @returns {Spec[]} */
export function specs(metrics, known) {
  const fresh = [...metrics].filter((metric) => !known.has(metric) && !BOOK_KEEPING.test(metric)).slice(0, Math.max(0, MOST - made));
  made += fresh.length;
  for (const metric of fresh) known.add(metric);
  return fresh.map((metric) => ({
    id: metric,
    title: metric,
    section: metric.startsWith("eval_") ? EVALUATIONS : OTHER,
    lines: [{ metric, label: metric, colour: "c1", band: "", evaluation: "", weight: 1 }],
    format: "number",
    zero: false,
    x: /^(gpu|host|vllm)\//.test(metric) ? "time" : "step",
    bounds: [],
    log: false,
  }));
}

/** Returns the current id of a chart named in the URL: charts created here get another id once the server plans them.
 * @param {string} id @param {import("./chart.js").Spec[]} specs  as planned */
export function idNow(id, specs) {
  const named = specs.find((spec) => spec.id === id) ?? specs.find(({ lines }) => lines.some(({ metric }) => metric === id));
  return named?.id ?? id;
}

let made = 0;

/** @param {HTMLElement} element  from the template @param {Spec} spec */
export function element(element, spec) {
  element.dataset.chart = spec.id;
  element.setAttribute("aria-label", spec.title);
  const title = /** @type {HTMLElement} */ (element.querySelector(".title"));
  title.textContent = title.title = spec.title;
  element.querySelector("summary")?.setAttribute("aria-label", `Menu of ${spec.title}`);
  return element;
}
