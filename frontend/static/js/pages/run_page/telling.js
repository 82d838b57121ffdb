// Browser notifications about a run: when it ends or fails, and when its health gets worse. The page's own socket
// reports it; the browser is asked for permission only on a click, and the choice is stored in this browser.

const BAD = ["well", "warning", "bad"];
const STATES = /** @type {Record<string, string>} */ ({ succeeded: "Finished", failed: "Failed", stopped: "Stopped" });
const OFF = "Notifications appear as long as this page is open in a tab.";
const ON = "On. Keep this page open in a tab.";
const BLOCKED = "Your browser blocks notifications from this site. Allow them in its settings for this address, then try again.";
const DISMISSED = "The browser didn’t get your permission. Try again and choose “Allow”.";
const NONE = "This browser can’t show notifications here. Most browsers require an address that begins with https://.";

/** The notification about a run's new state, or null if there is none.
 * @param {{status: string, health: string}} before @param {{status: string, sentence: string, health: {verdict: string}}} run */
export function news(before, run) {
  if (run.status !== before.status && run.status in STATES) return { head: STATES[run.status], text: run.sentence };
  const worse = BAD.indexOf(run.health.verdict) > Math.max(0, BAD.indexOf(before.health));
  if (!worse) return null;
  return run.health.verdict === "bad" ? { head: "Bad health", text: "" } : { head: "Needs attention", text: "" };
}

export class Telling {
  /** @param {{id: string, name: string, status: string, health: string}} page */
  constructor(page) {
    this.page = page;
    this.key = `tell ${page.id}`;
    this.before = { status: page.status, health: page.health };
    this.button = document.querySelector("[data-notify]");
    this.button?.addEventListener("click", () => void this.press());
    this.show();
  }

  get possible() {
    return "Notification" in window && window.isSecureContext;
  }

  get on() {
    return this.possible && Notification.permission === "granted" && stored(this.key);
  }

  async press() {
    if (this.on) {
      store(this.key, false);
      this.show();
      return;
    }
    if (!this.possible) return this.show(NONE);
    const permission = await Notification.requestPermission();
    if (permission !== "granted") return this.show(permission === "denied" ? BLOCKED : DISMISSED);
    store(this.key, true);
    this.show();
  }

  /** @param {string} [says] */
  show(says) {
    this.button?.setAttribute("aria-pressed", String(this.on));
    this.button?.replaceChildren(this.on ? "Stop notifying me here" : "Notify me here");
    document.querySelector("[data-notify-says]")?.replaceChildren(says ?? (this.on ? ON : OFF));
  }

  /** Handles the run's new state. @param {any} run */
  follow(run) {
    const told = news(this.before, run);
    this.before = { status: run.status, health: run.health.verdict };
    if (told && this.on) this.tell(told.head, told.text);
  }

  /** @param {string} head @param {string} text */
  tell(head, text) {
    try {
      const shown = new Notification(`${head}: ${this.page.name}`, { body: text, tag: this.key });
      shown.addEventListener("click", () => window.focus());
    } catch {
      // Phone browsers show notifications only for installed pages.
      store(this.key, false);
      this.show(NONE);
    }
  }
}

/** @param {string} key */
function stored(key) {
  try {
    return localStorage.getItem(key) !== null;
  } catch {
    return false;
  }
}

/** @param {string} key @param {boolean} on */
function store(key, on) {
  try {
    if (on) localStorage.setItem(key, "yes");
    else localStorage.removeItem(key);
  } catch {
    // The choice can't be stored, so no notifications will be shown.
  }
}
