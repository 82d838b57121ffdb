// The list of runs: told by a socket that something changed, it reads the rows anew.

import { connectionBar } from "./connection.js";
import { Feed } from "./feed.js";

const list = /** @type {HTMLElement} */ (document.getElementById("run-list"));
const selection = document.getElementById("selection");
/** @type {Map<string, string>} id -> name, over all refreshes */
const chosen = new Map();
let held = "";
let busy = false;
let again = false;

const rows = (/** @type {ParentNode} */ part) => [...part.querySelectorAll("tr[id]")].map((row) => row.id).join();

/** The present filter is in the address. */
async function refresh() {
  if (busy) {
    again = true;
    return;
  }
  busy = true;
  try {
    const response = await fetch(`${list.dataset.url}${location.search}`, { headers: { "HX-Request": "true" } });
    if (response.ok) arrive(await response.text());
  } catch {
    // The web doesn't answer; the bar says so, and an open connection brings the rows.
  } finally {
    busy = false;
  }
  if (again) {
    again = false;
    void refresh();
  }
}

/** New figures go in at once; new rows wait until the pointer is not on the list. @param {string} html */
function arrive(html) {
  const fresh = new DOMParser().parseFromString(html, "text/html");
  if (list.matches(":hover") && rows(fresh) !== rows(list)) {
    held = html;
    return;
  }
  put(fresh);
}

/** @param {Document} fresh */
function put(fresh) {
  held = "";
  const focused = focusedIn(list);
  list.replaceChildren(...fresh.body.childNodes);
  restore();
  if (focused) /** @type {HTMLElement | null} */ (list.querySelector(focused))?.focus();
}

/** What has the focus, as a selector: somebody may be going through the rows by keyboard. @param {HTMLElement} part */
function focusedIn(part) {
  const element = document.activeElement;
  if (!element || !part.contains(element)) return "";
  if (element instanceof HTMLAnchorElement) return `a[href="${CSS.escape(element.getAttribute("href") ?? "")}"]`;
  if (!(element instanceof HTMLInputElement)) return "";
  return element.name ? `input[value="${CSS.escape(element.value)}"]` : "[data-choose-all]";
}

function restore() {
  const present = new Set();
  for (const box of boxes()) {
    present.add(box.value);
    box.checked = chosen.has(box.value);
  }
  for (const id of chosen.keys()) if (!present.has(id)) chosen.delete(id);
  showSelection();
}

/** @param {HTMLInputElement} box */
function choose(box) {
  if (box.checked) chosen.set(box.value, box.dataset.name ?? box.value);
  else chosen.delete(box.value);
}

const boxes = () => /** @type {NodeListOf<HTMLInputElement>} */ (list.querySelectorAll('input[name="run"]'));

function showSelection() {
  if (!selection) return;
  const all = list.querySelector("[data-choose-all]");
  if (all instanceof HTMLInputElement) {
    all.disabled = boxes().length === 0;
    all.checked = chosen.size > 0 && chosen.size === boxes().length;
    all.indeterminate = chosen.size > 0 && !all.checked;
  }
  selection.hidden = chosen.size === 0;
  const count = selection.querySelector("[data-count]");
  if (count) count.textContent = `${chosen.size} chosen`;
  for (const form of document.querySelectorAll("[data-several]")) {
    form.querySelectorAll('input[name="run"]').forEach((input) => input.remove());
    const names = /** @type {HTMLElement} */ (form.querySelector("[data-chosen]"));
    names.replaceChildren();
    for (const [id, name] of chosen) {
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "run", value: id }));
      names.append(Object.assign(document.createElement("li"), { textContent: name }));
    }
  }
}

list.addEventListener("change", (event) => {
  const box = event.target;
  if (!(box instanceof HTMLInputElement)) return;
  if (box.dataset.chooseAll !== undefined) {
    for (const each of boxes()) {
      each.checked = box.checked;
      choose(each);
    }
  } else if (box.name === "run") {
    choose(box);
  } else {
    return;
  }
  showSelection();
});
list.addEventListener("mouseleave", () => {
  if (held) put(new DOMParser().parseFromString(held, "text/html"));
});
selection?.querySelector("[data-clear]")?.addEventListener("click", () => {
  chosen.clear();
  restore();
});
// The filter swaps the rows through htmx: what was chosen stays chosen if it is still there.
list.addEventListener("htmx:afterSwap", restore);

showSelection();

const scheme = location.protocol === "https:" ? "wss" : "ws";
const feed = new Feed({
  url: `${scheme}://${location.host}${list.dataset.socket}`,
  after: null,
  onFrame: (frame) => frame.type === "changed" && void refresh(),
  onState: (() => {
    const bar = connectionBar();
    let before = false;
    return (state) => {
      bar(state);
      // What changed while the connection was away was told to nobody.
      if (state === "open" && before) void refresh();
      before = before || state === "open";
    };
  })(),
});
addEventListener("online", () => feed.wake());
document.addEventListener("visibilitychange", () => {
  if (document.hidden) return;
  feed.wake();
  void refresh();
});
