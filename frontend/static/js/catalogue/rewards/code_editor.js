// Turns fields for Python (`textarea[data-code]`, including those added later) into editors with highlighting. Until Ace
// has loaded, or without this module, they are plain text fields; the text field always has the current code.

/**
 * The part of Ace's interface that is used.
 * @typedef {{ getValue(): string, setValue(text: string): void, on(event: "change", then: () => void): void,
 *   getUndoManager(): { reset(): void } }} Session
 * @typedef {{ session: Session, setTheme(theme: object): void, setReadOnly(no: boolean): void, resize(): void,
 *   destroy(): void, focus(): void, commands: { removeCommand(name: string): void },
 *   textInput: { getElement(): HTMLElement }, container: HTMLElement }} Editor
 * @typedef {{ edit(at: Element, options: object): Editor,
 *   config: { set(name: string, value: unknown): void } }} Ace
 */

const own = /** @type {HTMLScriptElement | null} */ (document.querySelector("script[data-ace]"));
const folder = own?.dataset.ace ?? "";
const THEME = { cssClass: "ace-grpo", cssText: "", isDark: false }; // its colours are tokens, in code.css
const UNWANTED = ["showSettingsMenu", "openCommandPallete", "openCommandPalette", "toggleFoldWidget"];

/** @type {Promise<Ace> | null} */
let loading = null;
/** @type {Map<HTMLTextAreaElement, Editor>} */
const editors = new Map();

/** @param {string} name */
function script(name) {
  return new Promise((resolve, reject) => {
    const element = document.createElement("script");
    element.src = folder + name;
    element.addEventListener("load", resolve);
    element.addEventListener("error", reject);
    document.head.append(element);
  });
}

/** Loads Ace. The page links the editor's style sheet, because its policy forbids the style elements that Ace would add. */
async function load() {
  await script("ace.js");
  const ace = /** @type {Ace} */ (/** @type {any} */ (window).ace);
  ace.config.set("useStrictCSP", true);
  ace.config.set("basePath", folder);
  ace.config.set("loadWorkerFromBlob", false);
  await script("mode-python.js");
  return ace;
}

/** @param {HTMLTextAreaElement} field */
async function enhance(field) {
  if (field.dataset.enhanced) return;
  field.dataset.enhanced = "soon";
  loading ??= load();
  const ace = await loading.catch(() => null);
  if (!ace || !field.isConnected) {
    delete field.dataset.enhanced;
    return;
  }
  const place = document.createElement("div");
  place.className = "code-editor";
  field.after(place);
  const editor = ace.edit(place, {
    mode: "ace/mode/python",
    theme: THEME,
    value: field.value,
    useWorker: false,
    minLines: 8,
    maxLines: 40,
    tabSize: 4,
    useSoftTabs: true,
    showPrintMargin: false,
    textInputAriaLabel: field.labels?.[0]?.textContent?.trim() || "Python",
    enableKeyboardAccessibility: true, // Tab leaves the editor; Enter goes in, Escape out
    readOnly: field.readOnly || field.matches(":disabled, [data-locked] *"),
  });
  editor.setTheme(THEME);
  for (const name of UNWANTED) editor.commands.removeCommand(name);
  editor.session.getUndoManager().reset();
  describe(editor, field);
  editor.session.on("change", () => {
    if (field.value === editor.session.getValue()) return;
    field.value = editor.session.getValue();
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });
  field.addEventListener("input", () => {
    if (field.value !== editor.session.getValue()) editor.session.setValue(field.value);
  });
  // Links to the field, from its label and the list of errors, focus the editor.
  field.addEventListener("focus", () => editor.focus());
  field.dataset.enhanced = "yes";
  editors.set(field, editor);
}

/**
 * @param {Editor} editor
 * @param {HTMLTextAreaElement} field
 */
function describe(editor, field) {
  const described = field.getAttribute("aria-describedby");
  if (described) editor.textInput.getElement().setAttribute("aria-describedby", described);
  if (field.getAttribute("aria-invalid")) editor.container.classList.add("invalid");
}

function updateEditors() {
  for (const [field, editor] of editors) {
    if (field.isConnected) continue;
    editor.destroy();
    editors.delete(field);
  }
  document.querySelectorAll("textarea[data-code]").forEach((field) => {
    if (field instanceof HTMLTextAreaElement) void enhance(field);
  });
}

// An editor in a collapsed element has no size until the element is opened.
document.addEventListener("toggle", () => editors.forEach((editor) => editor.resize()), true);
document.body.addEventListener("htmx:afterSettle", updateEditors);
updateEditors();
