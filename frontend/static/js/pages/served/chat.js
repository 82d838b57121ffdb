// The chat: it opens at its end, Ctrl + Enter sends, the newest message stays in view, and closing the page notifies the server at once.

const chat = /** @type {HTMLElement} */ (document.querySelector("[data-chat]"));
const turns = /** @type {HTMLElement} */ (document.getElementById("turns"));

document.body.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
  const area = event.target instanceof HTMLTextAreaElement ? event.target : null;
  area?.form?.requestSubmit();
});

let nearEnd = true;
const endIsNear = () => window.innerHeight + window.scrollY >= document.documentElement.scrollHeight - 160;
document.body.addEventListener("htmx:beforeSwap", () => { nearEnd = endIsNear(); });
document.body.addEventListener("htmx:afterSettle", (event) => {
  const part = event.target;
  if (nearEnd && part instanceof Element && (part === turns || turns.contains(part))) window.scrollTo(0, document.documentElement.scrollHeight);
});

if (turns.childElementCount) window.scrollTo(0, document.documentElement.scrollHeight);

window.addEventListener("pagehide", () => {
  fetch(`${chat.dataset.chat}?leaving=1`, { keepalive: true }).catch(() => {});
});
