// Runs before the first paint, as a plain blocking script, so that a stored theme is applied before anything is drawn.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is refused in some private windows; the system's choice is then used.
  }
})();
