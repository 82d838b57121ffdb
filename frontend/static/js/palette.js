// The command palette: Ctrl-K or ⌘K, or its button. A combobox over what the server finds; without words, what was seen
// last in this browser comes first.

const PAUSE_MS = 120;
const REMEMBERED = 16;
const NOTHING =
  "Nothing matches. Searched: pages, commands, and the names of runs (their ids, too), datasets, corpora, rewards, " +
  "environments, models, hardware profiles, hosts and users.";
/** @type {Record<string, string>} */
const MANY = { Corpus: "Corpora", Recent: "Recent" };

/** @typedef {{kind: string, title: string, parts: [string, string], address: string, icon: string, about: string, does: string}} Hit */

const dialog = /** @type {HTMLDialogElement | null} */ (document.getElementById("palette"));
const field = /** @type {HTMLInputElement} */ (document.getElementById("palette-field"));
const list = /** @type {HTMLElement} */ (document.getElementById("palette-list"));
const says = /** @type {HTMLElement} */ (document.getElementById("palette-says"));

/** @type {Hit[]} */
let hits = [];
let chosen = -1;
let pause = 0;
/** @type {AbortController | null} */
let asking = null;

/** @returns {string[]} the addresses that this browser has shown to this person, the newest first */
function remembered() {
  try {
    return JSON.parse(localStorage.getItem(memory()) ?? "[]");
  } catch {
    return []; // storage is refused, or holds something else
  }
}

/** @param {string[]} addresses */
function remember(addresses) {
  try {
    localStorage.setItem(memory(), JSON.stringify([...new Set(addresses)].slice(0, REMEMBERED)));
  } catch {
    // Storage is refused: nothing is remembered.
  }
}

/** Another person at the same browser has other pages. */
const memory = () => `seen by ${dialog?.dataset.person}`;

async function ask() {
  asking?.abort();
  const mine = (asking = new AbortController());
  const words = field.value.trim();
  const query = words ? [["q", words]] : remembered().map((address) => ["recent", address]);
  try {
    const answer = await fetch(`${dialog?.dataset.source}?${new URLSearchParams(query)}`, {
      headers: { Accept: "application/json" },
      signal: mine.signal,
    });
    if (!answer.ok) throw new Error(String(answer.status));
    show((await answer.json()).items, NOTHING);
    if (!words) remember(hits.filter((hit) => hit.kind === "Recent").map((hit) => hit.address));
  } catch (error) {
    if (mine.signal.aborted) return;
    show([], "The control plane isn't responding, so search is unavailable.");
  }
}

/** @param {Hit[]} found @param {string} none  what the list says if there are none */
function show(found, none) {
  const groups = grouped(found);
  hits = [...groups.values()].flat();
  list.replaceChildren(...[...groups].map(([kind, members]) => group(kind, members)));
  choose(found.length ? 0 : -1);
  list.scrollTop = 0;
  list.dataset.none = none;
  says.textContent = found.length ? `${found.length} ${found.length === 1 ? "result" : "results"}` : none && "No results";
}

/** @param {Hit[]} found */
function grouped(found) {
  /** @type {Map<string, Hit[]>} */
  const groups = new Map();
  for (const hit of found) groups.set(hit.kind, [...(groups.get(hit.kind) ?? []), hit]);
  return groups;
}

/** @param {string} kind @param {Hit[]} members */
function group(kind, members) {
  const box = document.createElement("div");
  box.setAttribute("role", "group");
  const name = Object.assign(document.createElement("div"), { className: "palette-kind muted small", textContent: MANY[kind] ?? `${kind}s` });
  name.id = `palette-kind-${kind.replaceAll(" ", "-")}`;
  box.setAttribute("aria-labelledby", name.id);
  box.append(name, ...members.map(option));
  return box;
}

/** @param {Hit} hit */
function option(hit) {
  const row = document.createElement("div");
  row.className = "row single palette-hit";
  row.id = `palette-hit-${hits.indexOf(hit)}`;
  row.setAttribute("role", "option");
  row.setAttribute("aria-selected", "false");
  row.setAttribute("aria-label", `${hit.title} ${hit.about}`.trim()); // read as one, however it is cut
  row.insertAdjacentHTML("afterbegin", hit.icon); // drawn by the server
  const [begin, end] = hit.parts.map((textContent) => Object.assign(document.createElement("span"), { textContent }));
  const title = Object.assign(document.createElement("span"), { className: "palette-title ends grow cut" });
  title.append(begin);
  if (end.textContent) {
    end.className = "end";
    title.append(end);
  }
  row.append(
    title,
    Object.assign(document.createElement("span"), { className: "muted small", textContent: hit.about }),
  );
  return row;
}

/** @param {number} index */
function choose(index) {
  document.getElementById(`palette-hit-${chosen}`)?.setAttribute("aria-selected", "false");
  chosen = index;
  const row = document.getElementById(`palette-hit-${index}`);
  row?.setAttribute("aria-selected", "true");
  row?.scrollIntoView({ block: "nearest" });
  if (row) field.setAttribute("aria-activedescendant", row.id);
  else field.removeAttribute("aria-activedescendant");
}

/** @param {number} by */
function step(by) {
  if (hits.length) choose((chosen + by + hits.length) % hits.length);
}

/** @param {Record<string, () => void>} acts @param {boolean} elsewhere  in a new tab */
function go(acts, elsewhere) {
  const hit = hits[chosen];
  if (!hit) return;
  dialog?.close();
  if (hit.does) acts[hit.does]?.();
  else if (elsewhere) open(hit.address, "_blank", "noopener");
  else location.assign(hit.address);
}

/** Call once. @param {Record<string, () => void>} acts  what the browser does by itself, by name */
export function palette(acts) {
  if (!dialog) return; // nobody is signed in
  remember([location.pathname, ...remembered()]);
  if (navigator.platform.startsWith("Mac")) for (const key of document.querySelectorAll("[data-palette] kbd")) key.textContent = "⌘ K";
  const summon = () => {
    if (document.querySelector("dialog[open]")) return;
    field.value = "";
    show([], "");
    dialog.showModal(); // traps the focus, and gives it back on close
    void ask();
  };
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (dialog.open) dialog.close();
    else summon();
  });
  for (const button of document.querySelectorAll("[data-palette]")) button.addEventListener("click", summon);
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(ask, PAUSE_MS);
  });
  field.addEventListener("keydown", (event) => {
    const moves = { ArrowDown: 1, ArrowUp: -1 };
    const by = moves[/** @type {keyof typeof moves} */ (event.key)];
    if (by) {
      event.preventDefault();
      step(by);
    } else if (event.key === "Enter" && !event.isComposing) {
      event.preventDefault();
      go(acts, event.ctrlKey || event.metaKey);
    }
  });
  list.addEventListener("mousemove", (event) => {
    const row = event.target instanceof Element ? event.target.closest("[role=option]") : null;
    const index = row ? Number(row.id.replace("palette-hit-", "")) : chosen;
    if (index !== chosen) choose(index);
  });
  list.addEventListener("click", (event) => {
    const row = event.target instanceof Element ? event.target.closest("[role=option]") : null;
    if (!row) return;
    choose(Number(row.id.replace("palette-hit-", "")));
    go(acts, event.ctrlKey || event.metaKey);
  });
}
