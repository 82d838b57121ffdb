// The reward editor: component rows go, completions come; the server does the rest through htmx.

const editor = document.getElementById("editor");

/** Each component has the colour of its place, as on every other page. */
function recolour() {
  const rows = editor?.querySelectorAll("[data-component]") ?? [];
  rows.forEach((row, place) => {
    row.className = `component c${(place % 8) + 1}`;
  });
}

/** @param {Element} button */
function oneMore(button) {
  const list = button.closest("#sample")?.querySelector("[data-completions]");
  const last = list?.lastElementChild;
  if (!list || !last) return;
  const copy = /** @type {HTMLElement} */ (last.cloneNode(true));
  const label = copy.querySelector("span");
  const text = copy.querySelector("textarea");
  if (label) label.textContent = `Completion ${list.childElementCount + 1}`;
  list.append(copy);
  if (text) {
    text.value = "";
    text.focus();
  }
}

editor?.addEventListener("click", (event) => {
  const target = event.target instanceof Element ? event.target : null;
  const remove = target?.closest("[data-remove]");
  if (remove) {
    remove.closest("[data-component]")?.remove();
    recolour();
    editor.dispatchEvent(new Event("input"));
  }
  const more = target?.closest("[data-more]");
  if (more) oneMore(more);
});
