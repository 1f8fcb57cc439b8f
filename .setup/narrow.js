// What JupyterLab does with a chapter of the course:
// - In a narrow window its left sidebar, usually the list of files, closes once, because the pictures need the
//   width. It opens again as always, and by itself when the window grows.
// - What a chapter prints breaks between words. JupyterLab would break within them.
// - In a dark theme the pictures that a chapter is handed out with are dark, too. They are images, which see only
//   the color-scheme of their element, until their cell is run and draws them in the colors of the theme.
(() => {
  const WIDE = 1240; // pixels of a window that has room for both
  const CHAPTER = "triton-bit-by-bit"; // the class of a chapter's element
  const STORED = `body[data-jp-theme-light="false"] .${CHAPTER} .jp-OutputArea img[src^="data:image/svg+xml"]`;
  const PRINTED = `.${CHAPTER} .jp-OutputArea-output.jp-RenderedText pre`;

  function isChapter(widget) {
    const cells = widget?.context?.model?.sharedModel?.cells ?? [];
    return cells.some((cell) => cell.source.includes("puzzles_lib"));
  }

  function activate({ shell }) {
    const narrow = window.matchMedia(`(max-width: ${WIDE - 1}px)`);
    let told = false; // once while the window is narrow: who opens the list then, wants it
    let closed = false;
    const sheet = document.createElement("style");
    sheet.textContent = `${PRINTED} { word-break: normal; overflow-wrap: anywhere }
      ${STORED} { color-scheme: dark }`;
    document.head.append(sheet);

    async function look() {
      const widget = shell.currentWidget;
      await Promise.all([shell.restored, widget?.context?.ready]);
      if (!isChapter(widget)) return;
      widget.node.classList.add(CHAPTER);
      if (!narrow.matches || told) return;
      told = true;
      closed = shell.leftCollapsed === false;
      if (closed) shell.collapseLeft();
    }

    narrow.addEventListener("change", () => {
      if (!narrow.matches && closed) shell.expandLeft();
      told = closed = false;
      look();
    });
    shell.currentChanged?.connect(look);
    look();
  }

  // What webpack would make of it, for JupyterLab to load: a container with one module.
  const plugin = { id: "triton-bit-by-bit:narrow", autoStart: true, activate };
  const extension = { __esModule: true, default: plugin };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["triton-bit-by-bit"] = { init: () => {}, get: async () => () => extension };
})();
