// Runs before the first paint, as a plain blocking script: a stored theme is there before anything is drawn.
(() => {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is refused in some private windows: the system's choice stands.
  }
})();
