// Loads Plotly on pages that draw with it. It is larger than everything else, so no page waits for it.

/** @param {HTMLElement} root  element whose data-plotly is the script's URL @returns {Promise<any>} */
export function loadPlotly(root) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root.dataset.plotly ?? "";
    script.addEventListener("load", () => resolve(/** @type {any} */ (window).Plotly));
    script.addEventListener("error", () => reject(new Error("Plotly can't be loaded.")));
    document.head.append(script);
  });
}
