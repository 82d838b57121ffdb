// The thin bar that says a connection is lost. It greys nothing: what is on the page stays readable.

import { timeOfDay } from "../times.js";

const PATIENCE_MS = 2500;

/** Follows the states of a feed. @returns {(state: import("./feed.js").State) => void} */
export function connectionBar() {
  const bar = /** @type {HTMLElement} */ (document.getElementById("connection"));
  let timer = 0;
  /** @type {Date | null} */
  let lost = null;
  return (state) => {
    if (state === "connecting") return;
    clearTimeout(timer);
    lost = state === "lost" ? lost ?? new Date() : null;
    document.documentElement.dataset.live = state;
    if (state === "open") {
      bar.hidden = true;
    } else if (state === "signed-out") {
      bar.replaceChildren("You are signed out, so this page no longer updates. ", signInLink());
      bar.hidden = false;
    } else if (state === "gone") {
      bar.textContent = "This run no longer exists.";
      bar.hidden = false;
    } else {
      // A short break is nothing to read about.
      timer = setTimeout(() => {
        bar.textContent = `No connection to the control plane since ${timeOfDay(lost ?? new Date())}; retrying. Runs are not affected.`;
        bar.hidden = false;
      }, PATIENCE_MS);
    }
  };
}

/** In a tab whose content has never come. @param {Element} panel */
export function sayAway(panel) {
  const words = "The control plane doesn't answer. Trying again every 2 seconds …";
  const line = Object.assign(document.createElement("p"), { className: "muted", textContent: words });
  panel.querySelector(".panel-skeleton")?.replaceChildren(line);
}

function signInLink() {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "Sign in again";
  return link;
}
