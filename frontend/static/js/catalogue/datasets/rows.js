// The row filter: empty fields are left out of the address.

const form = document.querySelector("form.row-filter");

form?.addEventListener("submit", () => {
  for (const field of form.querySelectorAll("input, select")) {
    if ((field instanceof HTMLInputElement || field instanceof HTMLSelectElement) && !field.value) field.disabled = true;
  }
});
addEventListener("pageshow", () => {
  for (const field of form?.querySelectorAll(":disabled") ?? []) {
    /** @type {HTMLInputElement} */ (field).disabled = false;
  }
});
