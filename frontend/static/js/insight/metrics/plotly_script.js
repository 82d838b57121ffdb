// Plotly, loaded by the page that draws with it: it is larger than everything else, and no page waits for it.

/** @param {HTMLElement} root  names the script in data-plotly @returns {Promise<any>} */
export function loadPlotly(root) {
  return new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.src = root.dataset.plotly ?? "";
    script.addEventListener("load", () => resolve(/** @type {any} */ (window).Plotly));
    script.addEventListener("error", () => reject(new Error("Plotly can't be loaded.")));
    document.head.append(script);
  });
}
