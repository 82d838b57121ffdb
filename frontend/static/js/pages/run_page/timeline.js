// The timeline tab: new events are added above those shown, even if the user has loaded earlier ones.

/** @param {HTMLElement} panel @param {Document} fresh @returns {boolean} whether there was a timeline to merge into */
export function merge(panel, fresh) {
  const list = panel.querySelector(".timeline");
  const phases = panel.querySelector("[data-phases]");
  const freshPhases = fresh.querySelector("[data-phases]");
  if (!list || !list.querySelector("li[id]") || !phases || !freshPhases) return false;
  phases.replaceWith(freshPhases);
  const items = [...fresh.querySelectorAll(".timeline > li[id]")].filter((item) => !document.getElementById(item.id));
  list.prepend(...items);
  return true;
}

/** Shows each date once, at the first line of its day. @param {ParentNode} panel */
export function datesOnce(panel) {
  let before = "";
  for (const day of panel.querySelectorAll(".timeline .day")) {
    const text = day.textContent?.trim() ?? "";
    day.classList.toggle("again", text === before);
    before = text;
  }
}
