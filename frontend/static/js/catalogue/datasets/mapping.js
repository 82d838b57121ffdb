// The mapping form and its example. htmx loads the example; this script shows errors at their fields, and a note while
// the example is older than the form.

const form = /** @type {HTMLFormElement} */ (document.getElementById("mapping-form"));
const example = /** @type {HTMLElement} */ (document.getElementById("example"));
const state = /** @type {HTMLElement} */ (example.querySelector("[data-example-state]"));

/** @param {Record<string, string[]>} problems  by field name */
function show(problems) {
  for (const place of form.querySelectorAll("[data-problems]")) {
    const name = /** @type {HTMLElement} */ (place).dataset.problems ?? "";
    const lines = problems[name] ?? [];
    place.replaceChildren(
      ...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })),
    );
    /** @type {HTMLElement} */ (place).hidden = !lines.length;
    const field = form.elements.namedItem(name);
    if (field instanceof HTMLElement) {
      if (lines.length) field.setAttribute("aria-invalid", "true");
      else field.removeAttribute("aria-invalid");
    }
    if (lines.length) place.closest("details")?.setAttribute("open", "");
  }
}

/** @param {string} why  "" if the example is up to date */
function stale(why) {
  example.classList.toggle("stale", Boolean(why));
  state.textContent = why;
}

/** Shows the code of a custom function instead of the columns, which it determines itself. */
function showParts() {
  const isCustom = /** @type {HTMLSelectElement} */ (form.elements.namedItem("transform")).value === "custom";
  for (const part of form.querySelectorAll("[data-for-custom]")) /** @type {HTMLElement} */ (part).hidden = !isCustom;
  for (const part of form.querySelectorAll("[data-for-columns]")) /** @type {HTMLElement} */ (part).hidden = isCustom;
}

/** Copies the chosen saved function into the form. @param {Event} event */
function useSaved(event) {
  const choice = event.target;
  if (!(choice instanceof HTMLSelectElement) || !("functions" in choice.dataset) || !choice.value) return;
  const code = /** @type {HTMLTextAreaElement} */ (form.elements.namedItem("code"));
  code.value = choice.value;
  code.dispatchEvent(new Event("input", { bubbles: true }));
}

showParts();
form.addEventListener("change", showParts);
form.addEventListener("change", useSaved);
form.addEventListener("reset", () => setTimeout(showParts));
document.body.addEventListener("mappingproblems", (event) => {
  const { value, elt, ...problems } = /** @type {CustomEvent} */ (event).detail;
  show(problems);
  const isWrong = Object.keys(problems).length > 0;
  const hasOne = example.querySelector("[name=row]");
  stale(isWrong && hasOne ? "not updated: the form has errors" : "");
  const none = example.querySelector("[data-no-preview]"); // until the first preview
  if (isWrong && none instanceof HTMLElement) {
    none.hidden = false;
    example.querySelector("[data-awaited]")?.remove();
  }
});
for (const name of ["htmx:responseError", "htmx:sendError", "htmx:timeout"]) {
  example.addEventListener(name, () => stale("the server didn’t respond; your next change will retry"));
}
document.body.addEventListener("tokenizerfound", (event) => {
  const { sha256, model } = /** @type {CustomEvent} */ (event).detail;
  const choice = /** @type {HTMLSelectElement} */ (form.elements.namedItem("tokenizer"));
  if (![...choice.options].some((option) => option.value === sha256)) choice.add(new Option(model, sha256));
  choice.value = sha256;
  choice.dispatchEvent(new Event("input", { bubbles: true }));
});
form.addEventListener("input", (event) => {
  // The field for another model's tokenizer is inside this form, but isn't part of the mapping.
  if (event.target instanceof HTMLInputElement && event.target.form !== form) return;
  example.classList.add("stale");
});
