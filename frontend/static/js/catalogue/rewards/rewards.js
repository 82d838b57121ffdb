// The reward editor: adds, removes and replaces component rows, and applies suggested fixes. Also the library's search.

/** @typedef {{ ajax(verb: string, path: string, more: object): Promise<void> }} Htmx */

const editor = document.getElementById("editor");
const rows = document.getElementById("components");

/** Marks the form as changed when rows are added or removed, which no field reports. */
function markUnsaved() {
  if (editor) editor.dataset.unsaved = "yes";
}

/** Gives each component the colour of its position, as on every other page. */
function recolour() {
  const components = rows?.querySelectorAll("[data-component]") ?? [];
  components.forEach((row, place) => {
    row.className = `component c${(place % 8) + 1}`;
  });
  const none = document.getElementById("no-components");
  if (none) none.hidden = components.length > 0;
}

/** Finds the row of the component that currently has this name. @param {string} name */
function rowNamed(name) {
  const fields = [...(rows?.querySelectorAll("input[name$='-name']") ?? [])];
  const field = fields.find((input) => input instanceof HTMLInputElement && input.value === name);
  return field?.closest("[data-component]") ?? null;
}

/** @param {Element} row @param {string} weight */
function setWeight(row, weight) {
  const field = row.querySelector("input[name$='-weight']");
  if (!(field instanceof HTMLInputElement)) return;
  field.value = weight;
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
}

/** Replaces a row by one of another function, with the same name and shared parameters. @param {Element} row @param {string} key */
function replace(row, key) {
  const values = /** @type {Record<string, string>} */ ({});
  for (const field of row.querySelectorAll("input, select, textarea")) {
    if (!(field instanceof HTMLInputElement || field instanceof HTMLSelectElement)) continue;
    if (field.type !== "checkbox" || /** @type {HTMLInputElement} */ (field).checked) values[field.name] = field.value;
  }
  markUnsaved();
  const place = [...(rows?.querySelectorAll("[data-component]") ?? [])].indexOf(row);
  const htmx = /** @type {Htmx} */ (/** @type {any} */ (window).htmx);
  const address = rows?.dataset.address ?? "";
  htmx.ajax("GET", address, {
    target: row,
    swap: "outerHTML",
    values: { ...values, function: key, instead: row.id, place },
  });
}

editor?.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const remove = target?.closest("[data-remove]");
  if (remove) {
    remove.closest("[data-component]")?.remove();
    markUnsaved();
    recolour();
    editor.dispatchEvent(new Event("input"));
  }
  const fix = target?.closest("[data-fix-weight], [data-fix-instead]");
  if (!(fix instanceof HTMLElement)) return;
  const row = rowNamed(fix.dataset.of ?? "");
  if (row && fix.dataset.fixWeight) setWeight(row, fix.dataset.fixWeight);
  if (row && fix.dataset.fixInstead) replace(row, fix.dataset.fixInstead);
});

rows?.addEventListener("htmx:afterSettle", (event) => {
  recolour();
  if (event.target !== rows) return;
  markUnsaved();
  // A new row is added at the end, perhaps out of sight.
  rows.lastElementChild?.scrollIntoView({ block: "nearest" });
});
recolour();

/** Shows only the entries that contain all the words that were typed. @param {Element} library @param {string} typed */
function search(library, typed) {
  const words = typed.toLowerCase().split(/\s+/).filter(Boolean);
  let foundCount = 0;
  for (const shelf of library.querySelectorAll("[data-shelf]")) {
    let shelfCount = 0;
    for (const entry of shelf.querySelectorAll("[data-entry]")) {
      const text = (entry.textContent ?? "").toLowerCase();
      const matches = words.every((word) => text.includes(word));
      /** @type {HTMLElement} */ (entry).hidden = !matches;
      shelfCount += Number(matches);
    }
    /** @type {HTMLElement} */ (shelf).hidden = shelfCount === 0;
    foundCount += shelfCount;
  }
  const empty = library.querySelector("[data-library-empty]");
  if (empty instanceof HTMLElement) empty.hidden = foundCount > 0;
}

for (const library of document.querySelectorAll("[data-library]")) {
  const field = library.querySelector("[data-library-search]");
  if (field instanceof HTMLInputElement) field.addEventListener("input", () => search(library, field.value));
}
