// A player reads its colors from the page, and looks again when the body's attributes change, as Jupyter's do.
new MutationObserver(() => {
  document.body.dataset.shade = document.documentElement.dataset.theme ?? "";
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
