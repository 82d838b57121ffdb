// Charts for unplanned metrics: one each, in a section named by the part before the slash.

/** @typedef {import("./chart.js").Spec & {section: {title: string, folded: boolean}}} Spec */

/** As the server has them. */
const OTHER = { title: "Other", folded: false };
const EVALUATIONS = { title: "Other evaluation metrics", folded: true };
const BOOK_KEEPING = /^((train_|eval_)?(epoch|num_tokens|runtime|\w+_per_second)|total_flos|train_loss)$/;
/** Names that change with each step would fill the page. */
const MOST = 200;

/** What the charts show or need. @param {import("./chart.js").Spec[]} specs */
export function known(specs) {
  const names = new Set([""]);
  for (const { lines } of specs) {
    for (const { metric, band, evaluation } of lines) names.add(metric).add(band).add(evaluation);
  }
  return names;
}

/** @param {Iterable<string>} metrics @param {Set<string>} known  grows by what is new @returns {Spec[]} */
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

/** The chart that an id of the address names now: one made here moves to its section once the server plans it.
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
