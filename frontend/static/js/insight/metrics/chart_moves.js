// Reorders charts, by dragging their titles or with Alt and an arrow key, and enlarges them in a dialog.

/**
 * @param {HTMLElement} root
 * @param {(node: EventTarget | null) => import("./chart.js").Chart | undefined} chartAt  undefined if it can't be moved now
 * @param {(chart: import("./chart.js").Chart, beside: import("./chart.js").Chart, after: boolean) => void} put
 * @param {(chart: import("./chart.js").Chart, by: number) => void} move
 */
export function movable(root, chartAt, put, move) {
  /** @type {import("./chart.js").Chart | undefined} */
  let held;
  const over = (/** @type {DragEvent} */ event) => {
    const chart = held && chartAt(event.target);
    return chart && held && chart.element.parentElement === held.element.parentElement ? chart : undefined;
  };
  root.addEventListener("dragstart", (event) => {
    held = chartAt(event.target);
    held?.element.classList.add("held");
    event.dataTransfer?.setData("text/plain", held?.spec.title ?? "");
  });
  root.addEventListener("dragover", (event) => over(event) && event.preventDefault());
  root.addEventListener("drop", (event) => {
    const beside = over(event);
    if (!held || !beside) return;
    event.preventDefault();
    const row = [...(beside.element.parentElement?.children ?? [])];
    put(held, beside, row.indexOf(held.element) < row.indexOf(beside.element));
  });
  root.addEventListener("dragend", () => {
    held?.element.classList.remove("held");
    held = undefined;
  });
  root.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const chart = by && event.altKey ? chartAt(event.target) : undefined;
    if (!by || !chart) return;
    event.preventDefault();
    move(chart, by);
  });
}

/**
 * Moves a chart into a dialog, which traps the focus, and keeps its place. If the dialog is open, moves the chart back.
 * @param {HTMLDialogElement} dialog @param {HTMLElement} element @param {(large: boolean) => void} turned
 */
export function enlarge(dialog, element, turned) {
  if (dialog.open) {
    dialog.close();
    return;
  }
  const place = Object.assign(document.createElement("div"), { className: "chart" });
  element.replaceWith(place);
  dialog.append(element);
  dialog.showModal();
  turned(true);
  const back = () => {
    place.replaceWith(element);
    turned(false);
  };
  dialog.addEventListener("close", back, { once: true });
}
