// The New run page: profiles and fixes fill in fields, findings mark the fields that they concern, links open folded
// fields, and the commands are fetched while they are open.

import { isRestored } from "../../restored.js";

const form = /** @type {HTMLFormElement} */ (document.getElementById("launch"));
const panel = /** @type {HTMLElement} */ (document.getElementById("preflight"));

const AGAIN_MS = 3000;

/** @typedef {HTMLInputElement | HTMLSelectElement | HTMLTextAreaElement} Field */

/** @param {string} name @returns {Field | null} */
function control(name) {
  const found = name ? form.elements.namedItem(name) : null;
  return found instanceof HTMLInputElement || found instanceof HTMLSelectElement || found instanceof HTMLTextAreaElement
    ? found
    : null;
}

/** @param {Element} element */
function show(element) {
  for (let fold = element.closest("details"); fold; fold = fold.parentElement?.closest("details") ?? null) fold.open = true;
}

/** @param {Field} field @param {string} text */
function setValue(field, text) {
  if (field instanceof HTMLInputElement && field.type === "checkbox") field.checked = text !== "";
  else field.value = text;
  flash(field);
}

/** @param {Field} field */
function valueIn(field) {
  if (field instanceof HTMLInputElement && field.type === "checkbox") return field.checked ? "on" : "";
  return field.value;
}

/** @param {Record<string, string>} values */
function apply(values) {
  let changed = null;
  for (const [name, text] of Object.entries(values)) {
    const field = control(name);
    if (!field) continue;
    setValue(field, text);
    show(field);
    changed = field;
  }
  // One event for all fields, so that there is only one check.
  changed?.dispatchEvent(new Event("change", { bubbles: true }));
}

/** @param {HTMLElement} field */
function flash(field) {
  field.classList.remove("fixed");
  void field.offsetWidth;
  field.classList.add("fixed");
}

/** Shows an error below a field, unless one is already shown there. @param {Field} field @param {Element} box
 * @param {string} message */
function showError(field, box, message) {
  const id = errorOf(field);
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-describedby", [...described(field), id].join(" "));
  if (document.getElementById(id)) return;
  const list = Object.assign(document.createElement("ul"), { className: "errorlist", id });
  list.append(Object.assign(document.createElement("li"), { textContent: message }));
  box.append(list);
}

/** Removes the message below a field. @param {Element} box */
function removeError(box) {
  box.querySelector(".errorlist")?.remove();
  const field = box.querySelector("[aria-invalid]");
  if (!field) return;
  field.removeAttribute("aria-invalid");
  field.setAttribute("aria-describedby", described(field).join(" "));
}

/** @param {Element} field */
function errorOf(field) {
  return `${field.id}_error`;
}

/** The ids of the elements that describe a field, other than its error. @param {Element} field */
function described(field) {
  return (field.getAttribute("aria-describedby") ?? "").split(" ").filter((id) => id && id !== errorOf(field));
}

/** Clears the messages about a field's old value; the panel checks the new one. @param {Event} event */
function clearError(event) {
  const box = event.target instanceof Element ? event.target.closest(".field") : null;
  if (box) removeError(box);
}

/** Updates the launch button and the profiles' labels for the current choices. */
function followVerdict() {
  const launch = panel.querySelector(".launch");
  if (launch instanceof HTMLButtonElement) launch.disabled = launch.hasAttribute("data-blocked");
  /** @type {Record<string, string>} */
  const fits = JSON.parse(document.getElementById("fits")?.textContent || "{}");
  for (const option of profile instanceof HTMLSelectElement ? profile.options : []) {
    const label = fits[option.value];
    if (label && option.text !== label) option.text = label;
  }
}

/** The fields that prevent a launch. @type {Set<string>} */
let stopping = new Set();

/** Marks the fields of the newest findings, with the reason that prevents a launch below each. A fold
 * opens for new findings; the user may close it again. */
function mark() {
  const before = stopping;
  stopping = new Set();
  for (const marked of form.querySelectorAll("[data-mark]")) {
    marked.removeAttribute("data-mark");
    removeError(marked);
  }
  for (const finding of panel.querySelectorAll(".finding")) {
    const { field: name = "", grade = "" } = /** @type {HTMLElement} */ (finding).dataset;
    const field = grade === "note" ? null : control(name);
    const box = field?.closest(".field");
    if (!field || !box || box.getAttribute("data-mark") === "stop") continue;
    box.setAttribute("data-mark", grade);
    if (grade !== "stop") continue;
    showError(field, box, finding.querySelector(".cause")?.textContent ?? "");
    stopping.add(name);
    if (!before.has(name)) show(field);
  }
}

/** The values that each profile fills in, and the values of those fields without a profile; from the server.
 * @type {{base: Record<string, string>, profiles: Record<string, Record<string, string>>}} */
const fillable = JSON.parse(document.getElementById("fillable")?.textContent || '{"base":{},"profiles":{}}');
const profile = control("profile");
/** The profile whose values are in the form. */
let followed = profile?.value ?? "";

/** @param {string} chosen */
function valuesOf(chosen) {
  return { ...fillable.base, ...fillable.profiles[chosen] };
}

/** @param {string} one @param {string} other */
function isSame(one, other) {
  return one === other || (one !== "" && other !== "" && Number(one) === Number(other));
}

/** Puts the profile's values into the form, except into fields whose value differs from that of the previous profile:
 * the user has changed those. */
function follow() {
  const chosen = profile?.value ?? "";
  if (chosen === followed) return;
  const before = valuesOf(followed);
  followed = chosen;
  for (const [name, text] of Object.entries(valuesOf(chosen))) {
    const field = control(name);
    if (field && isSame(valueIn(field), before[name]) && !isSame(valueIn(field), text)) setValue(field, text);
  }
  count();
}

/** Counts the changed fields of each fold. */
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
    const place = fold.querySelector(":scope > summary .fold-count");
    if (place) place.textContent = changed ? `${changed} changed` : "";
  }
}

/** Shows the parts of the page that apply to the current choices. */
function reveal() {
  for (const part of form.querySelectorAll("[data-needs]")) {
    if (!(part instanceof HTMLElement)) continue;
    const { needs = "", also = "", among = "" } = part.dataset;
    const wanted = needs.split(" ").some((name) => control(name)?.value);
    const fits = !also || among.split(" ").includes(control(also)?.value || "none");
    const wrong = part.querySelector(".errorlist, [data-mark]");
    part.hidden = !(wrong || (wanted && fits));
  }
}

form.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const fix = target?.closest("[data-fix]");
  if (fix instanceof HTMLElement) apply(JSON.parse(fix.dataset.fix ?? "{}"));
});
// Links in the panel, in an import's report, and at the top of the page.
document.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const link = target?.closest('a[href^="#id_"]');
  const field = link && document.getElementById(link.getAttribute("href")?.slice(1) ?? "");
  if (field) {
    event.preventDefault();
    show(field);
    field.focus();
    field.scrollIntoView({ block: "center" });
  }
});
// Runs before the check that the same event triggers, which reads the form.
profile?.addEventListener("change", follow);

const commands = document.getElementById("commands");
const box = commands?.closest("details");
/** Fetches the commands from the server, but only while they are open. */
function fetchCommands() {
  if (box?.open) commands?.dispatchEvent(new Event("wanted"));
}
box?.addEventListener("toggle", fetchCommands);

/** @type {number | undefined} */
let next;

/** Marks the verdict as outdated, and requests a new one repeatedly until it arrives. */
function outdated() {
  if (!panel.querySelector(".outdated")) {
    const message = "The control plane isn't responding, so this verdict may be out of date. Trying again …";
    panel.prepend(Object.assign(document.createElement("p"), { className: "outdated warn", textContent: message }));
  }
  clearTimeout(next);
  next = setTimeout(() => panel.dispatchEvent(new Event("again")), AGAIN_MS);
}
for (const failure of ["htmx:sendError", "htmx:responseError"]) panel.addEventListener(failure, outdated);

panel.addEventListener("htmx:afterSwap", () => {
  followVerdict();
  mark();
  reveal();
  fetchCommands();
});
// The host's report on the model replaces the panel's finding below the field.
document.getElementById("inspection")?.addEventListener("htmx:afterSwap", mark);
for (const change of ["input", "change"]) {
  form.addEventListener(change, clearError);
  form.addEventListener(change, count);
  form.addEventListener(change, reveal);
}
// After Back or a reload the fields keep what was entered, so check them again.
addEventListener("pageshow", (event) => {
  followed = profile?.value ?? "";
  count();
  reveal();
  if (isRestored(event)) form.dispatchEvent(new Event("change", { bubbles: true }));
});
followVerdict();
mark();
reveal();
