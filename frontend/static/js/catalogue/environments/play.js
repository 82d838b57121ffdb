// The playground of an environment: removes calls that were added to a turn.

document.getElementById("episode")?.addEventListener("click", (event) => {
  const remove = event.target instanceof Element ? event.target.closest("[data-remove-call]") : null;
  remove?.closest("[data-call]")?.remove();
});
