// Forms whose edits a person would miss: `form[data-unsaved]`. The browser asks before a page is left with one of them
// changed and not sent. data-unsaved="yes": changed, whatever its fields say, as after a refused attempt or when rows
// were added or taken away; "sending": a script is sending it, and would be cut off. Fields in `[data-scratch]` are
// never saved, so nothing is lost with them.

/** Whether a field has another value than the page came with. @param {Element} field */
function isChanged(field) {
  if (field instanceof HTMLSelectElement) {
    const options = [...field.options];
    // Without a choice of the page's own, a single select shows its first.
    if (!field.multiple && !options.some((option) => option.defaultSelected)) return field.selectedIndex > 0;
    return options.some((option) => option.selected !== option.defaultSelected);
  }
  if (field instanceof HTMLTextAreaElement) return field.value !== field.defaultValue;
  if (!(field instanceof HTMLInputElement)) return false;
  const ticked = field.type === "checkbox" || field.type === "radio";
  return ticked ? field.checked !== field.defaultChecked : field.value !== field.defaultValue;
}

/** @param {HTMLFormElement} form */
function isUnsaved(form) {
  if (form.dataset.unsaved === "sending") return true;
  if (form.dataset.sent) return false;
  if (form.dataset.unsaved) return true;
  return [...form.elements].some((field) => field.getAttribute("name") && !field.closest("[data-scratch]") && isChanged(field));
}

/** @type {EventTarget | null} The form that goes with the next page, or with a download. */
let carried = null;
addEventListener("submit", (event) => {
  const { target: form, submitter } = event;
  const elsewhere = submitter?.getAttribute("formtarget") || (form instanceof HTMLFormElement && form.target);
  if (!event.defaultPrevented && !elsewhere) carried = form;
});

addEventListener("heldback", () => (carried = null)); // it stays, offline

addEventListener("beforeunload", (event) => {
  const forms = [...document.querySelectorAll("form[data-unsaved]")].filter((form) => form !== carried);
  carried = null;
  if (forms.some((form) => form instanceof HTMLFormElement && isUnsaved(form))) event.preventDefault();
});
