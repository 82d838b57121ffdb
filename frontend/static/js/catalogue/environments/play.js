// The playground of an environment: a call that was added to a turn can be removed again.

document.getElementById("episode")?.addEventListener("click", (event) => {
  const remove = event.target instanceof Element ? event.target.closest("[data-remove-call]") : null;
  remove?.closest("[data-call]")?.remove();
});
