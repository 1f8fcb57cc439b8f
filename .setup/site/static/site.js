// A player reads its colors from the page, and looks again when the body's attributes change, as Jupyter's do.
new MutationObserver(() => {
  document.body.dataset.shade = document.documentElement.dataset.theme ?? "";
}).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });

// What is wider than the page scrolls, by keyboard too.
addEventListener("load", () => {
  for (const output of document.querySelectorAll(".cell_output .text_html")) {
    if (output.scrollWidth > output.clientWidth) output.tabIndex = 0;
  }
});
