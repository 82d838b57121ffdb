// The upload page: a file chosen, or dropped anywhere on it, is sent at once; its size and name are judged before the
// transfer, whose progress and end are shown. Without this script the form works as a plain one.

import { about } from "../../figures.js";

const MIB = 2 ** 20;
const SPAN_MS = 5000;
const form = document.querySelector("form[data-upload]");

/** Transfer rate over the last seconds; the mean of the whole transfer would hide changes. */
class Pace {
  constructor() {
    /** @type {[number, number][]} */
    this.points = [];
  }

  /** Bytes a second, or null at the beginning. @param {number} bytes @param {number} now */
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
    this.words = part("[data-transfer-words]");
    this.progress = /** @type {HTMLProgressElement} */ (part("[data-progress]"));
    this.button = /** @type {HTMLButtonElement} */ (part("button.primary"));
    this.limit = Number(form.dataset.limit);
    /** @type {XMLHttpRequest | null} */
    this.request = null;
    this.asking = false;
    this.input.addEventListener("change", () => this.check() && void this.submit());
    part("[data-cancel]").addEventListener("click", () => this.cancel());
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.submit();
    });
    this.check();
  }

  get file() {
    return this.input.files?.[0];
  }

  /** @param {string[]} lines */
  say(lines) {
    this.problems.replaceChildren(
      ...lines.map((line) => Object.assign(document.createElement("li"), { textContent: line })),
    );
    this.problems.hidden = !lines.length;
  }

  /** Checks the file before it is sent. */
  check() {
    const { file } = this;
    const tooLarge = Boolean(file && file.size > this.limit);
    if (tooLarge) this.say([`This file has ${mib(file?.size ?? 0)}; the limit is ${mib(this.limit)}.`]);
    else if (file && !file.size) this.say(["The file is empty."]);
    else this.say([]);
    this.button.hidden = !file; // choosing a file sends it; the button retries a refused or abandoned upload
    this.button.disabled = tooLarge;
    return Boolean(file?.size) && !tooLarge;
  }

  async submit() {
    const { file, form } = this;
    if (this.request || this.asking) return;
    if (!file) {
      this.say(["Choose a file."]);
      this.input.focus();
      return;
    }
    if (!this.check()) return;
    this.asking = true;
    const refused = await this.nameProblem(file.name);
    this.asking = false;
    if (refused) {
      this.say([refused]);
      this.name?.focus();
      return;
    }
    this.send(new FormData(form), file.size);
  }

  /** A name that is taken shall not be heard of after two gigabytes. */
  async nameProblem(/** @type {string} */ file) {
    const address = this.form.dataset.nameCheck;
    if (!address) return "";
    const asked = new URLSearchParams({ name: this.name?.value ?? "", file });
    const answer = await fetch(`${address}?${asked}`).catch(() => null);
    if (!answer?.ok) return "";
    const found = await answer.json().catch(() => ({}));
    return String(found.problem ?? "");
  }

  /** @param {FormData} data @param {number} size */
  send(data, size) {
    const request = (this.request = new XMLHttpRequest());
    const pace = new Pace();
    request.open("POST", this.form.action || location.href);
    request.upload.addEventListener("progress", (event) => this.moved(pace, event.loaded, event.total || size));
    request.addEventListener("load", () => this.answered(request));
    request.addEventListener("error", () =>
      this.ended(["The connection broke during the upload. Nothing was stored; try again."]),
    );
    request.addEventListener("abort", () => this.ended(["The upload was canceled. Nothing was stored."]));
    this.moved(pace, 0, size);
    this.transfer.hidden = false;
    this.button.disabled = true;
    this.say([]);
    this.form.dataset.unsaved = "sending";
    request.send(data);
  }

  /** @param {Pace} pace @param {number} done @param {number} total */
  moved(pace, done, total) {
    const speed = pace.at(done, performance.now());
    this.progress.value = total ? done / total : 0;
    const left = speed ? (total - done) / speed : null;
    if (done >= total && total) this.words.textContent = `${mib(total)} are through; the server stores them.`;
    else {
      const rest = speed ? `, ${mib(speed)}/s, ${left !== null && left > 1 ? `${about(left)} left` : "nearly there"}` : "";
      this.words.textContent = `${mib(done)} of ${mib(total)}${rest}`;
    }
  }

  cancel() {
    this.request?.abort();
  }

  /** The transfer is over, without a page to go to. @param {string[]} lines */
  ended(lines) {
    delete this.form.dataset.unsaved;
    this.request = null;
    delete this.form.dataset.sent;
    this.transfer.hidden = true;
    this.button.disabled = false;
    this.say(lines);
    this.button.focus();
  }

  /** Go where the server led, or say here what it said: the file and the name stay as they are. @param {XMLHttpRequest} request */
  answered(request) {
    if (request.status < 400) {
      delete this.form.dataset.unsaved;
      location.href = request.responseURL;
      return;
    }
    const page = new DOMParser().parseFromString(request.responseText, "text/html");
    const found = [...page.querySelectorAll("#adding .errorlist li, #adding .banner.bad p")];
    const lines = found.map((line) => line.textContent?.trim() ?? "").filter(Boolean);
    const plain = request.getResponseHeader("Content-Type")?.startsWith("text/plain") ? request.responseText.trim() : "";
    this.ended(lines.length ? lines : [plain || `The server refused the file (${request.status}). Nothing was stored.`]);
  }

  /** @param {FileList} files */
  take(files) {
    if (this.request || !files.length) return;
    this.input.files = files;
    if (!this.check()) return;
    if (files.length === 1) return void this.submit();
    this.say(["One file makes one version; the first file was selected."]);
    this.button.focus();
  }
}

/** Files may be let go anywhere: beside the form the browser would open them. @param {Upload} upload */
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
    if (event.dataTransfer) upload.take(event.dataTransfer.files);
  });
}

/** @param {number} bytes */
function mib(bytes) {
  const digits = bytes < 10 * MIB ? 1 : 0;
  return `${(bytes / MIB).toLocaleString("en-US", { maximumFractionDigits: digits })} MiB`;
}

if (form instanceof HTMLFormElement) dropping(new Upload(form));
