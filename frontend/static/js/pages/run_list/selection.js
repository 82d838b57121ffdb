// The selected runs, which are kept across refreshes and pages, and the actions on them.

/** @typedef {{name: string, live: boolean, archived: boolean, tags: string[]}} Chosen */

/** @type {Record<string, (run: Chosen) => boolean>} the runs to which each action applies */
const FOR = {
  live: (run) => run.live,
  archived: (run) => run.archived,
  shelf: (run) => !run.live && !run.archived,
  ended: (run) => !run.live,
  "": () => true,
};

export class Selection {
  /** @type {Map<string, Chosen>} */
  #chosen = new Map();
  /** @type {HTMLInputElement | null} the start of a range */
  #from = null;

  /** @param {HTMLElement} list @param {HTMLElement} bar */
  constructor(list, bar) {
    this.list = list;
    this.bar = bar;
    list.addEventListener("click", (event) => this.#range(event));
    list.addEventListener("change", (event) => this.#changed(event.target));
    bar.querySelector("[data-clear]")?.addEventListener("click", () => {
      this.#chosen.clear();
      this.restore();
    });
    document.addEventListener("click", (event) => {
      if (event.target instanceof Element && event.target.closest("#selection [data-dialog]")) this.#tell();
    });
    document.addEventListener("submit", (event) => {
      if (event.target instanceof HTMLFormElement && event.target.matches("[data-several]")) this.#fill(event.target);
    });
    this.restore();
  }

  /** Restores the checkboxes after rows have been replaced. */
  restore() {
    for (const box of this.#boxes()) {
      box.checked = this.#chosen.has(box.value);
      if (box.checked) this.#take(box);
    }
    this.#show();
  }

  #boxes() {
    return /** @type {HTMLInputElement[]} */ ([...this.list.querySelectorAll('input[name="run"]')]);
  }

  /** @param {HTMLInputElement} box */
  #take(box) {
    const { name, live, archived, tags } = box.dataset;
    if (!box.checked) this.#chosen.delete(box.value);
    else {
      this.#chosen.set(box.value, {
        name: name ?? box.value,
        live: live !== undefined,
        archived: archived !== undefined,
        tags: (tags ?? "").split(",").filter(Boolean),
      });
    }
  }

  /** @param {EventTarget | null} box */
  #changed(box) {
    if (!(box instanceof HTMLInputElement)) return;
    if (box.dataset.chooseAll !== undefined) {
      for (const each of this.#boxes()) {
        each.checked = box.checked;
        this.#take(each);
      }
    } else if (box.name === "run") {
      this.#take(box);
    }
    this.#show();
  }

  /** With Shift, checks every box from the last one to this. @param {MouseEvent} event */
  #range(event) {
    const box = event.target;
    if (!(box instanceof HTMLInputElement) || box.name !== "run") return;
    const boxes = this.#boxes();
    const [from, to] = [this.#from ? boxes.indexOf(this.#from) : -1, boxes.indexOf(box)];
    if (event.shiftKey && from >= 0) {
      for (const each of boxes.slice(Math.min(from, to), Math.max(from, to) + 1)) {
        each.checked = box.checked;
        this.#take(each);
      }
    }
    this.#from = box;
  }

  #show() {
    const boxes = this.#boxes();
    const here = boxes.filter((box) => box.checked).length;
    const all = this.list.querySelector("[data-choose-all]");
    if (all instanceof HTMLInputElement) {
      all.checked = here > 0 && here === boxes.length;
      all.indeterminate = here > 0 && !all.checked;
    }
    this.bar.hidden = this.#chosen.size === 0;
    const count = this.bar.querySelector("[data-count]");
    const elsewhere = this.#chosen.size - here;
    const words = `${this.#chosen.size} selected${elsewhere ? `, ${elsewhere} not on this page` : ""}`;
    if (count && count.textContent !== words) count.textContent = words;
    for (const act of /** @type {NodeListOf<HTMLElement>} */ (this.bar.querySelectorAll("[data-needs]"))) {
      act.hidden = this.#ids(act.dataset.needs).length === 0;
    }
    this.#compare();
  }

  #compare() {
    const link = /** @type {HTMLAnchorElement} */ (this.bar.querySelector("[data-compare]"));
    const most = Number(this.bar.dataset.mostCompared);
    const may = this.#chosen.size >= 2 && this.#chosen.size <= most;
    if (may) link.href = `${link.dataset.compare}?runs=${[...this.#chosen.keys()].join(",")}`;
    else link.removeAttribute("href");
    link.ariaDisabled = may ? null : "true";
    link.title = may ? "" : `Select 2 to ${most} runs to compare`;
  }

  /** @param {string | undefined} what one of FOR */
  #ids(what) {
    const fits = FOR[what ?? ""];
    return [...this.#chosen].filter(([, run]) => fits(run)).map(([id]) => id);
  }

  /** Lists the runs that a dialog will affect. */
  #tell() {
    for (const names of document.querySelectorAll("form[data-several] [data-chosen]")) {
      const form = /** @type {HTMLElement} */ (names.closest("form"));
      const lines = this.#ids(form.dataset.several).map((id) => this.#chosen.get(id)?.name ?? id);
      names.replaceChildren(...lines.map((name) => Object.assign(document.createElement("li"), { textContent: name })));
    }
    const removal = /** @type {HTMLElement | null} */ (document.querySelector("[data-remove]"));
    if (!removal) return;
    const tags = [...new Set([...this.#chosen.values()].flatMap((run) => run.tags))].sort();
    removal.querySelectorAll("label").forEach((label) => label.remove());
    for (const tag of tags) {
      const label = document.createElement("label");
      const box = Object.assign(document.createElement("input"), { type: "checkbox", name: "remove", value: tag });
      label.append(box, tag);
      removal.append(label);
    }
    removal.hidden = tags.length === 0;
  }

  /** @param {HTMLFormElement} form */
  #fill(form) {
    const name = form.dataset.field ?? "run";
    form.querySelectorAll(`input[type="hidden"][name="${name}"]`).forEach((input) => input.remove());
    for (const id of this.#ids(form.dataset.several)) {
      form.append(Object.assign(document.createElement("input"), { type: "hidden", name, value: id }));
    }
  }
}
