// The upload page: a file dropped anywhere on the form, the size limit said before the upload, and its progress.
// Without this script the form works as a plain one.

const form = /** @type {HTMLFormElement | null} */ (document.querySelector("[data-upload]"));

/** @param {HTMLFormElement} form */
function enhance(form) {
  const input = /** @type {HTMLInputElement} */ (form.querySelector('input[type="file"]'));
  const problem = /** @type {HTMLElement} */ (form.querySelector("[data-problem]"));
  const progress = /** @type {HTMLProgressElement} */ (form.querySelector("[data-progress]"));
  const button = /** @type {HTMLButtonElement} */ (form.querySelector("button.primary"));
  const drop = /** @type {HTMLElement} */ (form.querySelector("[data-drop]"));
  const limit = Number(form.dataset.limit);

  /** @param {string} text */
  const say = (text) => {
    problem.textContent = text;
    problem.hidden = !text;
  };
  const check = () => {
    const file = input.files?.[0];
    const tooLarge = Boolean(file && file.size > limit);
    say(tooLarge ? `This file has ${mib(file?.size ?? 0)} MiB; at most ${mib(limit)} MiB are taken.` : "");
    button.disabled = tooLarge;
  };
  input.addEventListener("change", check);

  for (const name of ["dragenter", "dragover"]) {
    form.addEventListener(name, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  for (const name of ["dragleave", "drop"]) form.addEventListener(name, () => drop.classList.remove("over"));
  form.addEventListener("drop", (event) => {
    event.preventDefault();
    const files = event.dataTransfer?.files;
    if (files?.length) {
      input.files = files;
      check();
    }
  });

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    button.disabled = true;
    progress.hidden = false;
    const request = new XMLHttpRequest();
    request.open("POST", form.action || location.href);
    request.upload.addEventListener("progress", (e) => {
      if (e.lengthComputable) progress.value = (100 * e.loaded) / e.total;
    });
    request.addEventListener("load", () => answered(form, request));
    request.addEventListener("error", () => {
      delete form.dataset.sent;
      button.disabled = false;
      progress.hidden = true;
      say("The connection broke before the file was through. Nothing was stored; try again.");
    });
    request.send(new FormData(form));
  });
}

/**
 * Go where the server led, or show the page with its errors.
 * @param {HTMLFormElement} sent @param {XMLHttpRequest} request
 */
function answered(sent, request) {
  if (request.status < 400) {
    location.href = request.responseURL;
    return;
  }
  const page = new DOMParser().parseFromString(request.responseText, "text/html");
  const fresh = page.querySelector("[data-upload]");
  if (fresh instanceof HTMLFormElement) {
    sent.replaceWith(fresh);
    enhance(fresh);
  } else {
    document.body.replaceWith(page.body);
  }
}

/** @param {number} bytes */
const mib = (bytes) => (bytes / 2 ** 20).toLocaleString("en", { maximumFractionDigits: 1 });

if (form) enhance(form);
