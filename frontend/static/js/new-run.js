// The New run page: fixes put values into fields, findings mark the fields they are about, links open folded fields.

const form = /** @type {HTMLFormElement} */ (document.getElementById("launch"));
const panel = /** @type {HTMLElement} */ (document.getElementById("preflight"));

/** @param {string} name */
function control(name) {
  const found = name ? form.elements.namedItem(name) : null;
  return found instanceof HTMLInputElement || found instanceof HTMLSelectElement || found instanceof HTMLTextAreaElement
    ? found
    : null;
}

/** @param {Element} element */
function show(element) {
  element.closest("details")?.setAttribute("open", "");
}

/** @param {Record<string, string>} values */
function apply(values) {
  let changed = null;
  for (const [name, text] of Object.entries(values)) {
    const field = control(name);
    if (!field) continue;
    if (field instanceof HTMLInputElement && field.type === "checkbox") field.checked = text !== "";
    else field.value = text;
    show(field);
    flash(field);
    changed = field;
  }
  // One event for all: one check.
  changed?.dispatchEvent(new Event("change", { bubbles: true }));
}

/** @param {HTMLElement} field */
function flash(field) {
  field.classList.remove("fixed");
  void field.offsetWidth;
  field.classList.add("fixed");
}

/** Marks the fields that the newest findings are about. */
function mark() {
  for (const marked of form.querySelectorAll("[data-mark]")) {
    marked.removeAttribute("data-mark");
    marked.querySelector("[aria-invalid]")?.removeAttribute("aria-invalid");
    // What the last launch said beside the field is now the panel's to say.
    marked.querySelector(".errorlist")?.remove();
  }
  for (const finding of panel.querySelectorAll(".finding")) {
    const { field: name = "", grade = "" } = /** @type {HTMLElement} */ (finding).dataset;
    const field = grade === "note" ? null : control(name);
    const box = field?.closest(".field");
    if (!field || !box || box.getAttribute("data-mark") === "stop") continue;
    box.setAttribute("data-mark", grade);
    if (grade === "stop") field.setAttribute("aria-invalid", "true");
  }
}

/** How many fields of each fold differ from what the page came with. */
function count() {
  for (const fold of form.querySelectorAll("details.fold")) {
    let changed = 0;
    for (const field of fold.querySelectorAll("input, select, textarea")) {
      if (field instanceof HTMLSelectElement) {
        const first = [...field.options].find((option) => option.defaultSelected) ?? field.options[0];
        changed += Number(field.value !== (first?.value ?? ""));
      } else if (field instanceof HTMLInputElement && field.type === "checkbox") {
        changed += Number(field.checked !== field.defaultChecked);
      } else if (field instanceof HTMLInputElement || field instanceof HTMLTextAreaElement) {
        changed += Number(field.value !== field.defaultValue);
      }
    }
    const place = fold.querySelector(".fold-count");
    if (place) place.textContent = changed ? `${changed} changed` : "";
  }
}

panel.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const fix = target?.closest("[data-fix]");
  if (fix instanceof HTMLElement) apply(JSON.parse(fix.dataset.fix ?? "{}"));
  const link = target?.closest('a[href^="#id_"]');
  const field = link && document.getElementById(link.getAttribute("href")?.slice(1) ?? "");
  if (field) {
    event.preventDefault();
    show(field);
    field.focus();
    field.scrollIntoView({ block: "center" });
  }
});
panel.addEventListener("htmx:afterSwap", mark);
form.addEventListener("input", count);
form.addEventListener("change", count);
// A page brought back by the Back button keeps what was typed: look at it again.
addEventListener("pageshow", (event) => {
  count();
  if (event.persisted) form.dispatchEvent(new Event("change", { bubbles: true }));
});
mark();
