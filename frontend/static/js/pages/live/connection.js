// The thin bar that says since when the page has been out of date. The page itself isn't dimmed, so it stays readable.

import { timeOfDay } from "../../times.js";

const PATIENCE_MS = 2500;
const PROBE_MS = 5000;
const ASK_MS = 1000;
/** Time within which held requests are sent; later, the user no longer expects them, so they are dropped. */
const GO_ON_MS = 1000;

const bar = /** @type {HTMLElement} */ (document.getElementById("connection"));
/** The parts that have lost the control plane: the page's feed or its requests. @type {Set<"feed" | "requests">} */
const away = new Set();
/** The time at which the page was last known to be up to date. */
let known = new Date();
let timer = 0;

/** @param {"feed" | "requests"} part */
function lose(part) {
  away.add(part);
  // A short interruption isn't worth a message.
  if (!timer && bar.hidden) timer = setTimeout(say, PATIENCE_MS);
}

/** @param {"feed" | "requests"} part */
function find(part) {
  if (!away.size) known = new Date();
  if (!away.delete(part) || away.size) return;
  clearTimeout(timer);
  timer = 0;
  known = new Date();
  bar.hidden = true;
  document.dispatchEvent(new CustomEvent("reconnected"));
}

function say() {
  timer = 0;
  bar.textContent = `Offline: this page shows the state of ${timeOfDay(known)}. Reconnecting automatically; runs are not affected.`;
  bar.hidden = false;
}

/** Follows the states of a feed. @returns {(state: import("./feed.js").State) => void} */
export function connectionBar() {
  return (state) => {
    if (state === "connecting") return;
    document.documentElement.dataset.live = state;
    if (state === "open") {
      find("feed");
    } else if (state === "lost") {
      if (!away.has("feed")) known = new Date(); // the feed was up to date until now
      lose("feed");
    } else {
      clearTimeout(timer);
      bar.replaceChildren(
        ...(state === "gone"
          ? ["This run no longer exists."]
          : ["You are signed out, so this page no longer updates. ", signInLink()]),
      );
      bar.hidden = false;
    }
  };
}

/** Follows the page's own requests and the network; call once, on every page. */
export function watchNetwork() {
  /** @type {number | undefined} */
  let probing;
  const probe = async () => {
    if (await answers(PROBE_MS)) back();
  };
  const gone = () => {
    lose("requests");
    probing ??= setInterval(probe, PROBE_MS);
  };
  const back = () => {
    clearInterval(probing);
    probing = undefined;
    find("requests");
  };
  if (!navigator.onLine) gone();
  addEventListener("offline", gone);
  addEventListener("online", probe);
  document.addEventListener("htmx:sendError", gone);
  document.addEventListener("htmx:afterOnLoad", back);
  // A page without a feed checks the connection while a form is filled in.
  let asked = -Infinity;
  const ask = async (/** @type {Event} */ { target, timeStamp }) => {
    const control = target instanceof Element ? target.closest("button, input, select, textarea") : null;
    const form = control && "form" in control ? control.form : null;
    if (!(form instanceof HTMLFormElement) || form.method !== "post" || away.size || timeStamp - asked < ASK_MS) return;
    asked = timeStamp;
    if (!(await answers(PROBE_MS))) gone();
  };
  for (const kind of ["focusin", "pointerover"]) document.addEventListener(kind, ask);
  document.addEventListener("click", stayHere);
  addEventListener("submit", keepForm); // on the window, so after all others
}

/** Whether the control plane responds now. @param {number} patience  in ms */
async function answers(patience) {
  try {
    return (await fetch(bar.dataset.probe ?? "", { cache: "no-store", signal: AbortSignal.timeout(patience) })).ok;
  } catch {
    return false;
  }
}

/** True while held requests are being sent, since the control plane has responded. */
let goesOn = false;
const cutOff = () => !goesOn && (!navigator.onLine || away.size > 0);

/** Checks the connection and then continues, since the page may not yet know that the control plane is back.
 * @param {() => void} go */
async function goOnIfBack(go) {
  if (!(await answers(GO_ON_MS))) return;
  goesOn = true;
  go();
  goesOn = false;
}

/** Stops links while offline: they would lead to the browser's error page, and this page would be lost. @param {MouseEvent} event */
function stayHere(event) {
  if (!cutOff() || event.defaultPrevented || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.hash && link.href.split("#")[0] === location.href.split("#")[0]) return; // within this page
  event.preventDefault();
  sayNow("Offline, so the other page can’t be opened. Reconnecting automatically.");
  goOnIfBack(() => link.click());
}

/** Stops forms while offline, which would lead there too and lose what was entered. @param {SubmitEvent} event */
function keepForm(event) {
  const form = event.target;
  if (!cutOff() || event.defaultPrevented || !(form instanceof HTMLFormElement)) return;
  const action = event.submitter?.getAttribute("formaction") ?? form.getAttribute("action") ?? "";
  if (form.method === "dialog" || form.hasAttribute("target") || new URL(action, location.href).origin !== location.origin) return;
  event.preventDefault();
  delete form.dataset.sent;
  form.dispatchEvent(new CustomEvent("heldback", { bubbles: true }));
  sayNow("Not saved, because the control plane is unreachable. What you entered is still here. Reconnecting automatically.");
  goOnIfBack(() => form.requestSubmit(event.submitter));
}

/** @param {string} words */
function sayNow(words) {
  clearTimeout(timer);
  timer = 0;
  bar.textContent = words;
  bar.hidden = false;
}

/** Shows a message in a tab whose content hasn't been loaded yet. @param {Element} panel */
export function sayAway(panel) {
  const words = "The control plane isn't responding. Retrying every 2 seconds …";
  const line = Object.assign(document.createElement("p"), { className: "muted", textContent: words });
  panel.querySelector(".panel-skeleton")?.replaceChildren(line);
}

function signInLink() {
  const link = document.createElement("a");
  link.href = location.href;
  link.textContent = "Sign in again";
  return link;
}
