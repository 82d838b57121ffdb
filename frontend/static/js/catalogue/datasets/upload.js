// The upload page: a file that is chosen, or dropped anywhere on the page, is sent at once. Its size and name are checked
// before the transfer, whose progress is shown. Without this script the form works as a plain one.

import { about } from "../../figures.js";
import { isRestored } from "../../restored.js";

const MIB = 2 ** 20;
const SPAN_MS = 5000;
const form = document.querySelector("form[data-upload]");

/** Transfer rate over the last seconds; the mean of the whole transfer would hide changes. */
class Pace {
  constructor() {
    /** @type {[number, number][]} */
    this.points = [];
  }

  /** Bytes per second, or null at the beginning. @param {number} bytes @param {number} now */
  at(bytes, now) {
    this.points.push([now, bytes]);
    while (this.points.length > 2 && now - this.points[0][0] > SPAN_MS) this.points.shift();
    const [then, before] = this.points[0];
    return now > then && bytes > before ? (1000 * (bytes - before)) / (now - then) : null;
  }
}

class Upload {
  /** @param {HTMLFormElement} form */
  constructor(form) {
    this.form = form;
    const part = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (form.querySelector(selector));
    this.input = /** @type {HTMLInputElement} */ (part('input[type="file"]'));
    this.name = /** @type {HTMLInputElement | null} */ (form.querySelector('input[name="name"]'));
    this.problems = part("[data-problem]");
    this.transfer = part("[data-transfer]");
    this.status = part("[data-transfer-words]");
    this.progress = /** @type {HTMLProgressElement} */ (part("[data-progress]"));
    this.button = /** @type {HTMLButtonElement} */ (part("button.primary"));
    this.limit = Number(form.dataset.limit);
    /** @type {XMLHttpRequest | null} */
    this.request = null;
    this.isChecking = false;
    this.input.addEventListener("change", () => this.check() && void this.submit());
    part("[data-cancel]").addEventListener("click", () => this.cancel());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
    this.check();
    // A file that was chosen while this script loaded is sent; one that a reload restored waits for the button.
    addEventListener("pageshow", (event) => !isRestored(event) && this.check() && void this.submit());
  }

  get file() {
    return this.input.files?.[0];
  }

  /** @param {string[]} lines */
  showProblems(lines) {
    this.problems.replaceChildren(
      ...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })),
    );
    this.problems.hidden = !lines.length;
  }

  /** Checks the file before it is sent. */
  check() {
    const { file } = this;
    const tooLarge = Boolean(file && file.size > this.limit);
    if (tooLarge) this.showProblems([`This file is ${mib(file?.size ?? 0)} large; the limit is ${mib(this.limit)}.`]);
    else if (file && !file.size) this.showProblems(["The file is empty."]);
    else this.showProblems([]);
    this.button.hidden = !file; // choosing a file sends it; the button retries a refused or abandoned upload
    this.button.disabled = tooLarge;
    return Boolean(file?.size) && !tooLarge;
  }

  async submit() {
    const { file, form } = this;
    if (this.request || this.isChecking) return;
    if (!file) {
      this.showProblems(["Choose a file."]);
      this.input.focus();
      return;
    }
    if (!this.check()) return;
    this.isChecking = true;
    const refused = await this.nameProblem(file.name);
    this.isChecking = false;
    if (refused) {
      this.showProblems([refused]);
      this.name?.focus();
      return;
    }
    this.send(new FormData(form), file.size);
  }

  /** Checks the name before the transfer, so that a name that is taken isn't reported only after two gigabytes. */
  async nameProblem(/** @type {string} */ file) {
    const address = this.form.dataset.nameCheck;
    if (!address) return "";
    const parameters = new URLSearchParams({ name: this.name?.value ?? "", file });
    const response = await fetch(`${address}?${parameters}`).catch(() => null);
    if (!response?.ok) return "";
    const result = await response.json().catch(() => ({}));
    return String(result.problem ?? "");
  }

  /** @param {FormData} data @param {number} size */
  send(data, size) {
    const request = (this.request = new XMLHttpRequest());
    const pace = new Pace();
    request.open("POST", this.form.action || location.href);
    request.upload.addEventListener("progress", (event) => this.showProgress(pace, event.loaded, event.total || size));
    request.addEventListener("load", () => this.finish(request));
    request.addEventListener("error", () =>
      this.stop(["The connection was lost during the upload. Nothing was stored. Try again."]),
    );
    request.addEventListener("abort", () => this.stop(["The upload was canceled. Nothing was stored."]));
    this.showProgress(pace, 0, size);
    this.transfer.hidden = false;
    this.button.disabled = true;
    this.showProblems([]);
    this.form.dataset.unsaved = "sending";
    request.send(data);
  }

  /** @param {Pace} pace @param {number} done @param {number} total */
  showProgress(pace, done, total) {
    const speed = pace.at(done, performance.now());
    this.progress.value = total ? done / total : 0;
    const left = speed ? (total - done) / speed : null;
    if (done >= total && total) this.status.textContent = `All ${mib(total)} were sent; the server is storing the file.`;
    else {
      const rest = speed ? `, ${mib(speed)}/s, ${left !== null && left > 1 ? `${about(left)} left` : "almost done"}` : "";
      this.status.textContent = `${mib(done)} of ${mib(total)}${rest}`;
    }
  }

  cancel() {
    this.request?.abort();
  }

  /** Ends the transfer with problems to show. @param {string[]} lines */
  stop(lines) {
    delete this.form.dataset.unsaved;
    this.request = null;
    delete this.form.dataset.sent;
    this.transfer.hidden = true;
    this.button.disabled = false;
    this.showProblems(lines);
    this.button.focus();
  }

  /** Follows the server's redirect, or shows its errors and keeps the file and the name. @param {XMLHttpRequest} request */
  finish(request) {
    if (request.status < 400) {
      delete this.form.dataset.unsaved;
      location.href = request.responseURL;
      return;
    }
    const page = new DOMParser().parseFromString(request.responseText, "text/html");
    const found = [...page.querySelectorAll("#adding .errorlist li, #adding .banner.bad p")];
    const lines = found.map((line) => line.textContent?.trim() ?? "").filter(Boolean);
    const plain = request.getResponseHeader("Content-Type")?.startsWith("text/plain") ? request.responseText.trim() : "";
    this.stop(lines.length ? lines : [plain || `The server refused the file (${request.status}). Nothing was stored.`]);
  }

  /** @param {FileList} files */
  useFiles(files) {
    if (this.request || !files.length) return;
    this.input.files = files;
    if (!this.check()) return;
    if (files.length === 1) return void this.submit();
    this.showProblems(["A version has only one file, so the first one was selected."]);
    this.button.focus();
  }
}

/** Accepts files dropped anywhere on the page; outside the form, the browser would open them. @param {Upload} upload */
function dropping(upload) {
  const veil = /** @type {HTMLElement} */ (document.querySelector("[data-veil]"));
  let depth = 0;
  const shows = (/** @type {DragEvent} */ event) => event.dataTransfer?.types.includes("Files") ?? false;
  const show = (/** @type {number} */ change) => {
    depth = Math.max(0, depth + change);
    veil.hidden = !depth;
  };
  addEventListener("dragenter", (event) => shows(event) && show(1));
  addEventListener("dragleave", (event) => shows(event) && show(-1));
  addEventListener("dragover", (event) => shows(event) && event.preventDefault());
  addEventListener("drop", (event) => {
    if (!shows(event)) return;
    event.preventDefault();
    show(-depth);
    if (event.dataTransfer) upload.useFiles(event.dataTransfer.files);
  });
}

/** @param {number} bytes */
function mib(bytes) {
  const digits = bytes < 10 * MIB ? 1 : 0;
  return `${(bytes / MIB).toLocaleString("en-US", { maximumFractionDigits: digits })} MiB`;
}

if (form instanceof HTMLFormElement) dropping(new Upload(form));
