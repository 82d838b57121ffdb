// The frame of every page: theme, keyboard, dialogs, menus, ages that keep counting, and the connection bar.

import { age, elapsed } from "./figures.js";
import { watchNetwork } from "./pages/live/connection.js";
import { palette } from "./palette.js";
import { localise } from "./times.js";
import "./unsaved.js";
import "./why.js";

const GO = { r: "runs", d: "datasets", w: "reward_configs", e: "environments", m: "models", h: "hardware", v: "events", s: "settings" };
const GO_WINDOW_MS = 1200;

/** Address of a link in the frame, as the server wrote it, since only the server knows paths. @param {string} name */
function address(name) {
  const link = document.querySelector(`[data-nav="${name}"]`);
  return link instanceof HTMLAnchorElement ? link.href : null;
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return (
    target instanceof HTMLElement &&
    (target.isContentEditable || ["INPUT", "TEXTAREA", "SELECT"].includes(target.tagName))
  );
}

function keyboard() {
  let wentAt = -Infinity; // not 0: a page's time begins there, and a letter typed at once would count as after a "g"
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || isTyping(event.target)) return;
    if (document.querySelector("dialog[open]")) return;
    const after = event.timeStamp - wentAt < GO_WINDOW_MS;
    wentAt = -Infinity;
    const name = after ? GO[/** @type {keyof typeof GO} */ (event.key)] : event.key === "n" ? "new_run" : null;
    const to = name && address(name);
    if (to) {
      event.preventDefault();
      location.href = to;
    } else if (event.key === "g") {
      wentAt = event.timeStamp;
    } else if (event.key === "/") {
      const inSight = (/** @type {Element} */ field) => field.checkVisibility();
      const search = [...document.querySelectorAll("[data-search]")].find(inSight);
      if (search instanceof HTMLInputElement) {
        event.preventDefault();
        search.select();
      }
    } else if (event.key === "?") {
      openDialog("shortcuts");
    }
  });
}

/** @param {string} id */
function openDialog(id) {
  const dialog = document.getElementById(id);
  // showModal() traps the focus, and returns it on close.
  if (dialog instanceof HTMLDialogElement && !dialog.open) dialog.showModal();
}

const OPENED = "details.menu[open], .rail details[open], details.drawer[open]:not(:has([data-editing]))";

function clicks() {
  document.addEventListener("click", (event) => {
    const target = event.target instanceof Element ? event.target : null;
    if (!target) return;
    for (const menu of document.querySelectorAll(OPENED)) {
      if (!menu.contains(target) || target.closest(".popup a, .popup button")) menu.removeAttribute("open");
    }
    const opener = target.closest("[data-dialog]");
    if (opener instanceof HTMLElement) {
      // The menu's item is hidden by now, so the dialog must return the focus to the menu.
      opener.closest("details")?.querySelector("summary")?.focus();
      openDialog(opener.dataset.dialog ?? "");
    }
    const back = target.closest("a[data-back]");
    // The previous page with what was entered there, if the browser still has it.
    if (back instanceof HTMLAnchorElement && back.href === document.referrer && history.length > 1 && !event.ctrlKey && !event.metaKey) {
      event.preventDefault();
      history.back();
    }
    if (target.closest("[data-close]")) target.closest("dialog")?.close();
    // A click on the backdrop has the dialog itself as its target, and so has the second half of a double click that opened it.
    if (target instanceof HTMLDialogElement && target.open && event.detail !== 2) target.close();
    // A double click on a menu must not open and close it.
    if (event.detail === 2 && target.closest("details.menu > summary")) event.preventDefault();
    const theme = target.closest("[data-theme-toggle]");
    if (theme) nextTheme();
    const copy = target.closest("[data-copy]");
    if (copy instanceof HTMLElement) void copied(copy);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    const at = event.target instanceof Element ? event.target : null;
    const cancel = at?.closest("form")?.querySelector("[data-cancel]");
    if (cancel instanceof HTMLElement) cancel.click();
    for (const menu of document.querySelectorAll(OPENED)) {
      menu.removeAttribute("open");
      menu.querySelector("summary")?.focus();
    }
  });
}

const COPIED_MS = 2000;

/** Copies a button's text to the clipboard, and shows the result on the button. @param {HTMLElement} button */
async function copied(button) {
  const text = button.dataset.copy ?? "";
  const written = await navigator.clipboard?.writeText(text).then(
    () => true,
    () => false,
  );
  const done = written || copiedInsecurely(text);
  button.dataset.copied = done ? "yes" : "no";
  said.textContent = done ? "Copied" : "Couldn’t copy: select the text instead";
  if (!said.isConnected) document.body.append(said);
  setTimeout(() => delete button.dataset.copied, COPIED_MS);
}

const said = Object.assign(document.createElement("span"), { className: "visually-hidden", role: "status" });

/** Over plain HTTP, except on the machine itself, browsers offer no other clipboard. @param {string} text */
function copiedInsecurely(text) {
  const put = (/** @type {ClipboardEvent} */ event) => {
    event.clipboardData?.setData("text/plain", text);
    event.preventDefault();
  };
  document.addEventListener("copy", put);
  try {
    return document.execCommand("copy");
  } finally {
    document.removeEventListener("copy", put);
  }
}

/** Switches to the next theme: system, light, dark. */
function nextTheme() {
  setTheme({ undefined: "light", light: "dark", dark: undefined }[String(document.documentElement.dataset.theme)]);
}

/** @param {string | undefined} next  undefined for the system's choice */
function setTheme(next) {
  const root = document.documentElement;
  if (next) root.dataset.theme = next;
  else delete root.dataset.theme;
  try {
    if (next) localStorage.setItem("theme", next);
    else localStorage.removeItem("theme");
  } catch {
    // Not stored, so it applies only to this page.
  }
  document.dispatchEvent(new CustomEvent("themechange"));
}

/** Opens the dialog that the address names, such as #dialog=stop-now. */
function namedDialog() {
  const id = new URLSearchParams(location.hash.slice(1)).get("dialog");
  if (!id) return;
  history.replaceState(history.state, "", location.pathname + location.search); // a reload must not open it again
  openDialog(id);
}

/** Prevents a second click from submitting a form twice. */
function forms() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (!(form instanceof HTMLFormElement) || form.method !== "post" || form.hasAttribute("hx-post")) return;
    // A download doesn't leave the page, so its form can be submitted again.
    if (event.submitter?.hasAttribute("formaction")) return;
    if (form.dataset.sent) event.preventDefault();
    form.dataset.sent = "yes";
  });
  // After a return from the browser's cache, forms can be submitted again.
  addEventListener("pageshow", () => {
    for (const form of document.querySelectorAll("form[data-sent]")) delete (/** @type {HTMLElement} */ (form)).dataset.sent;
  });
}

/** Keeps ages counting ("12 s" becomes "13 s"), since pages are open for days. They start from the age that the server
 * wrote, as clocks differ. */
function ages() {
  /** @type {WeakMap<Element, number>} the time at which its age was 0 s, by this machine's clock */
  const births = new WeakMap();
  setInterval(() => {
    for (const time of document.querySelectorAll("time[data-age]")) {
      const birth = births.get(time) ?? Date.now() - 1000 * Number(/** @type {HTMLElement} */ (time).dataset.age);
      births.set(time, birth);
      const text = age((Date.now() - birth) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
    for (const place of document.querySelectorAll("[data-running]")) {
      const birth = births.get(place) ?? Date.now() - 1000 * Number(/** @type {HTMLElement} */ (place).dataset.running);
      births.set(place, birth);
      place.textContent = elapsed((Date.now() - birth) / 1000);
    }
  }, 1000);
}

/** Drops the errors that htmx logs for requests replaced by a newer one or aborted by leaving the page. */
function quiet() {
  const htmx = /** @type {any} */ (window).htmx;
  if (!htmx) return;
  htmx.logger = (/** @type {Element} */ _, /** @type {string} */ name, /** @type {{error?: unknown, xhr?: XMLHttpRequest}} */ detail) => {
    const aborted = name === "htmx:sendAbort" || (name === "htmx:afterRequest" && detail.xhr?.status === 0);
    if (aborted) delete detail.error;
  };
}

/** Shows every time in the user's own time zone, including those that htmx loads later. */
function times() {
  localise(document);
  document.addEventListener("htmx:load", (event) => event.target instanceof Element && localise(event.target));
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new CustomEvent("themechange")),
);
keyboard();
clicks();
forms();
ages();
quiet();
times();
namedDialog();
addEventListener("hashchange", namedDialog);
watchNetwork();
palette({
  "theme-dark": () => setTheme("dark"),
  "theme-light": () => setTheme("light"),
  "theme-system": () => setTheme(undefined),
  shortcuts: () => openDialog("shortcuts"),
  "sign-out": () => /** @type {HTMLFormElement} */ (document.getElementById("sign-out")).requestSubmit(),
});
