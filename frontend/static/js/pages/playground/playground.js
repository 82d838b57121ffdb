// The playground next to the reward editor: adding completions and choosing the source.

import { isRestored } from "../../restored.js";

const editor = document.getElementById("editor");
const replay = document.getElementById("replay-form");

/** Adds an empty completion below the others. @param {Element} button */
function oneMore(button) {
  const list = button.closest("#sample")?.querySelector("[data-completions]");
  if (!list) return;
  const place = list.querySelectorAll(".try").length;
  const field = document.createElement("div");
  field.className = "try";
  field.innerHTML = `<label><span class="row small"><span class="muted"></span></span>
      <textarea class="code" name="completion" rows="1" maxlength="20000"></textarea></label>
    <input type="hidden" name="of"><div class="try-scores" id="scores-${place}"></div>`;
  /** @type {HTMLElement} */ (field.querySelector(".muted")).textContent = `Completion ${place + 1}`;
  list.append(field);
  field.querySelector("textarea")?.focus();
}

editor?.addEventListener("click", (event) => {
  const more = event.target instanceof Element ? event.target.closest("[data-more]") : null;
  if (more) oneMore(more);
});

// A new source loads and scores other completions, so the old ones need not be scored again.
document.getElementById("sample")?.addEventListener("input", (event) => {
  if (event.target instanceof Element && event.target.closest("[data-quiet]")) event.stopPropagation();
});

// Enter in a selection field must not save the config.
editor?.addEventListener("keydown", (event) => {
  const target = event.target;
  if (event.key !== "Enter" || !(target instanceof HTMLInputElement) || !target.closest("[data-quiet]")) return;
  event.preventDefault();
  target.dispatchEvent(new Event("change", { bubbles: true }));
});

// The first scores were computed without the restored texts.
addEventListener("pageshow", (event) => {
  if (isRestored(event)) editor?.dispatchEvent(new Event("input", { bubbles: true }));
});

const trial = document.getElementById("trial");
const outdated = trial?.parentElement?.querySelector("[data-outdated]");

/** Marks the scores as outdated, or as up to date. @param {boolean} are */
function markOutdated(are) {
  if (outdated instanceof HTMLElement) outdated.hidden = !are;
}

for (const failure of ["htmx:sendError", "htmx:responseError", "htmx:timeout"]) {
  trial?.addEventListener(failure, () => markOutdated(true));
}
trial?.addEventListener("htmx:afterSwap", (event) => event.target === trial && markOutdated(false));
document.addEventListener("reconnected", () => {
  if (outdated instanceof HTMLElement && !outdated.hidden) editor?.dispatchEvent(new Event("input", { bubbles: true }));
});

/** The step field applies only to the choice “one step”. */
function oneStep() {
  const which = replay?.querySelector("[name=which]");
  const step = replay?.querySelector("[data-one-step]");
  if (which instanceof HTMLSelectElement && step instanceof HTMLElement) step.hidden = which.value !== "one";
}

replay?.addEventListener("change", oneStep);
replay?.addEventListener("htmx:afterSettle", oneStep);
