"""A real browser, for tests marked `browser`: the fixtures `lab`, `open_notebook`, `open_page`, `open_html`.

The server is started as `make lab` starts it, but only for the browser: on a free port, with a token, with
its kernels on sockets, and with every file that it or the course writes in a folder of its own. Every host
but this machine is refused and noted. A test waits for what it wants to see, never for a time.

    def test_the_map_is_seen(open_notebook):
        book = open_notebook("01_blocks")
        book.run_to("check(constant_add_kernel, CONSTANT_ADD)")
        assert "FAIL" in book.output("check(constant_add_kernel, CONSTANT_ADD)").inner_text()

What went wrong on the page, `Notebook.problems`, is looked at when the test is over.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Route

REPO = Path(__file__).resolve().parent.parent
SHOTS = REPO / ".screenshots"  # not kept by git: artefacts of the last run
LONGEST_S = 120  # for anything to appear: only a failure takes that long
THEMES = {
    "light": "JupyterLab Light",
    "dark": "JupyterLab Dark",
    "high contrast": "JupyterLab Dark High Contrast",
}
_CHROMIUMS = ("chromium", "chromium-browser", "google-chrome")
_SWITCHES = (
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
    "--use-angle=swiftshader",  # WebGL without a GPU
    "--enable-unsafe-swiftshader",
    "--ignore-gpu-blocklist",
)
_OURS = ("127.0.0.1", "localhost")


def missing() -> str:
    """Why no browser can be driven here; "" if one can."""
    try:
        import playwright.sync_api  # noqa: F401
    except ImportError:
        return "needs playwright: pip install -e '.[dev]'"
    return "" if _chromium() else "needs chromium, by apt or the like"


def _chromium() -> str | None:
    return next(filter(None, map(shutil.which, _CHROMIUMS)), None)


# ---- the server


@dataclass(frozen=True)
class Lab:
    """A running JupyterLab. root: its folder, with a copy of the notebooks. url: where, without the token."""

    root: Path
    url: str
    token: str


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """JupyterLab as `make lab` starts it, over a copy of ``notebooks/``."""
    root = tmp_path_factory.mktemp("course")
    shutil.copytree(REPO / "notebooks", root / "notebooks")
    token = "for-the-tests"
    with tempfile.TemporaryDirectory(
        prefix="lab-", ignore_cleanup_errors=True
    ) as own:  # short: sockets' paths are
        options = [
            "--no-browser",
            "--allow-root",
            "--ip=127.0.0.1",
            f"--port={20_000 + os.getpid() % 20_000}",  # the next free one, if it is taken
            "--ServerApp.port_retries=200",
            f"--ServerApp.root_dir={root}",
            f"--IdentityProvider.token={token}",
            "--LabApp.expose_app_in_browser=True",
        ]
        environment = _environment(own)
        for ours, name in _extension().items():  # this tree's, not what was installed
            (Path(own) / "data" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPO / ours, Path(own) / "data" / name)
        with (Path(own) / "log").open("w") as log:
            server = subprocess.Popen(
                ["bash", REPO / ".setup/lab.sh", *options], env=environment, stdout=log, stderr=log
            )
        try:
            yield Lab(root, _address(server, Path(own)), token)
        finally:
            server.terminate()
            try:
                server.wait(30)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()


def _extension() -> dict[str, str]:
    """The files of the course's extension of JupyterLab, and where they belong among Jupyter's data."""
    built = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    shared = built["targets"]["wheel"]["shared-data"]
    return {
        ours: name.removeprefix("share/jupyter/") for ours, name in shared.items() if "labextensions" in name
    }


def _environment(own: str) -> dict[str, str]:
    """This one's, with every folder of Jupyter's and the course's in ``own``; no pytest, no proxy."""
    left_out = re.compile(r"PYTEST_|JUPYTER|IPYTHON|.*_proxy$", re.IGNORECASE)
    kept = {name: value for name, value in os.environ.items() if not left_out.match(name)}
    folders = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "data",
        "JUPYTER_RUNTIME_DIR": "run",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "PUZZLES_STATE_DIR": "state",
        "HOME": "home",
    }
    for folder in folders.values():
        os.makedirs(f"{own}/{folder}", exist_ok=True)
    return (
        kept
        | {name: f"{own}/{folder}" for name, folder in folders.items()}
        | {
            "LAB_PYTHON": sys.executable,
            "JUPYTER_PREFER_ENV_PATH": "0",  # or what is installed would hide `_extension`
            "PYTHONPATH": str(REPO),
        }
    )


def _address(server: subprocess.Popen, own: Path) -> str:
    """Where the server says it listens."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end and server.poll() is None:
        for path in (own / "run").glob("jpserver-*.json"):
            try:
                return json.loads(path.read_text())["url"]
            except ValueError:  # half written
                pass
        time.sleep(0.1)
    pytest.fail(f"JupyterLab did not start:\n{(own / 'log').read_text()[-3000:]}", pytrace=False)


# ---- the browser


def eventually(what: str, holds: Callable[[], bool]) -> None:
    """Wait for what no event tells of."""
    end = time.monotonic() + LONGEST_S
    while not holds():
        if time.monotonic() > end:
            pytest.fail(f"not within {LONGEST_S} s: {what}", pytrace=False)
        time.sleep(0.2)


@pytest.fixture(scope="module")  # while it is open, nothing else in this process can run an event loop
def browser() -> Iterator["Browser"]:
    """Debian's Chromium, which reaches this machine alone."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        arguments = [*_SWITCHES, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
        browser = playwright.chromium.launch(executable_path=_chromium(), args=arguments)
        yield browser
        browser.close()


@dataclass
class Watched:
    """A page, and what went wrong on it."""

    page: "Page"
    problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(LONGEST_S * 1000)
        self.page.on("console", self._console)
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.route("**/*", self._route)

    def _console(self, message: "ConsoleMessage") -> None:
        if message.type == "error":
            self.problems.append(f"console: {message.text} ({message.location.get('url', '')})")

    def _route(self, route: "Route") -> None:
        parts = urlsplit(route.request.url)
        if parts.hostname in _OURS or parts.scheme in ("data", "blob", "about"):
            route.continue_()
        else:
            self.problems.append(f"asked {parts.hostname}: {route.request.url}")
            route.abort()

    def shoot(self, name: str) -> Path:
        """A screenshot, kept as an artefact."""
        SHOTS.mkdir(exist_ok=True)
        path = SHOTS / f"{name}.png"
        self.page.screenshot(path=path)
        return path


class Notebook(Watched):
    """A notebook in JupyterLab. A cell is named by any text that only its source holds, or holds first."""

    def _cell(self, text: str, script: str, *arguments: object) -> object:
        """What a script returns, given the notebook, the cell's number, and further arguments."""
        return self.page.evaluate(
            "([text, arguments_]) => {"
            " const book = window.jupyterapp.shell.currentWidget.content;"
            " const i = book.widgets.findIndex((c) => c.model.sharedModel.source.includes(text));"
            " if (i < 0) throw new Error(`no cell has ${text}`);"
            f" return ((book, i, ...rest) => {{ {script} }})(book, i, ...arguments_); }}",
            [text, list(arguments)],
        )

    def source(self, text: str) -> str:
        return self._cell(text, "return book.widgets[i].model.sharedModel.source")

    def cell(self, text: str) -> "Locator":
        """The cell, scrolled to and made the active one."""
        self._cell(text, "book.activeCellIndex = i; return book.scrollToItem(i, 'center').catch(() => null)")
        return self.page.locator(".jp-Notebook .jp-Cell.jp-mod-active")

    def output(self, text: str) -> "Locator":
        return self.cell(text).locator(".jp-Cell-outputArea")

    def run(self, text: str) -> None:
        """Run a cell by keyboard, as one does, and wait until it has run."""
        self.cell(text)
        before = self._cell(text, "return book.widgets[i].model.executionCount")
        self._cell(text, "book.mode = 'command'; book.activate()")
        self.page.keyboard.press("Control+Enter")
        self.page.wait_for_function(
            "([text, before]) => {"
            " const cells = window.jupyterapp.shell.currentWidget.content.widgets;"
            " const found = cells.find((c) => c.model.sharedModel.source.includes(text));"
            " const { executionCount, executionState } = found.model;"
            " return executionCount && executionCount !== before && executionState === 'idle'; }",
            arg=[text, before],
        )

    def run_to(self, text: str) -> None:
        """Run every code cell before this one, then this one."""
        self.cell(text)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-above')")
        self.run(text)

    def write(self, text: str, source: str) -> None:
        """Replace a cell's source, in its editor."""
        self.cell(text).locator(".cm-content").click()
        self.page.keyboard.press("Control+a")
        self.page.keyboard.insert_text(source)
        assert self.source(source.splitlines()[0]) == source

    def add(self, after: str, source: str) -> None:
        """A new cell below another, with this source."""
        self.cell(after)
        self.page.evaluate("() => window.jupyterapp.commands.execute('notebook:insert-cell-below')")
        self.page.evaluate(
            "(source) => window.jupyterapp.shell.currentWidget.content"
            ".activeCell.model.sharedModel.setSource(source)",
            source,
        )

    def theme(self, name: str) -> None:
        """One of `THEMES`, all of it loaded."""
        self.page.evaluate(
            "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })", THEMES[name]
        )
        self.page.wait_for_function(
            "(theme) => document.body.dataset.jpThemeName === theme", arg=THEMES[name]
        )

    def without_alt(self) -> list[str]:
        """The images of the notebook that a screen reader could only spell."""
        return self.page.evaluate(
            f"() => {{ const told = {_TOLD};"
            " return [...document.querySelectorAll('.jp-Notebook img, .jp-Notebook svg[role=img]')]"
            ".filter((image) => !told(image)).map((image) => image.outerHTML.slice(0, 200)) }"
        )

    def description(self, image: "Locator") -> str:
        """What a screen reader says of an image."""
        return image.evaluate(_TOLD)

    def faint(self, least: float = 4.5) -> list[str]:
        """Our texts, those in outputs, whose contrast to what is behind them is less, with the contrast."""
        return faint(self.page, ".jp-Notebook .jp-Cell-outputArea", least)

    def clipped(self) -> list[str]:
        """Outputs that are wider than their place."""
        return self.page.evaluate(
            "() => [...document.querySelectorAll('.jp-Notebook .jp-OutputArea-output')]"
            ".filter((o) => o.scrollWidth > o.clientWidth + 1).map((o) => o.innerText.slice(0, 200))"
        )


_TOLD = """((image) => image.alt || image.ariaLabel
  || document.getElementById(image.getAttribute("aria-labelledby"))?.textContent)"""
# By WCAG 2's relative luminance, of what the browser has computed; opacity and layers of colour are blended.
_FAINT = """
([within, least]) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, under) => under.slice(0, 3).map((c, i) => top[i] * top[3] + c * (1 - top[3]));
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
    const ground = layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255]);
    return element instanceof SVGElement ? filled(element).reduce((u, l) => over(l, u), ground) : ground;
  };
  const filled = (text) => {  // the shapes of its picture that lie behind the middle of a text
    const box = text.getBBox();
    const middle = new DOMPoint(box.x + box.width / 2, box.y + box.height / 2).matrixTransform(text.getCTM());
    const before = (shape) => shape.compareDocumentPosition(text) & Node.DOCUMENT_POSITION_FOLLOWING;
    const covers = (shape) => {
      try { return shape.isPointInFill(middle.matrixTransform(shape.getCTM().inverse())); }
      catch { return false; }  // not drawn: in a pattern or a mask
    };
    return [...text.ownerSVGElement.querySelectorAll("path, rect, circle, ellipse, polygon")]
      .filter((shape) => before(shape) && covers(shape))
      .map((shape) => getComputedStyle(shape))
      .filter((style) => !/none|url/.test(style.fill))  // a pattern is a few thin lines
      .map((style) => [style, rgba(style.fill)])
      .map(([style, [r, g, b, a]]) => [r, g, b, a * style.fillOpacity * style.opacity]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const found = new Map();
  for (const root of document.querySelectorAll(within)) {
    const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode.textContent.trim(), element = texts.currentNode.parentElement;
      // Not ours: prompts, and code that Jupyter highlights in the colours of its own editor.
      const theirs = element.closest("style, script, .jp-OutputArea-prompt, [class^=ͼ]");
      const shown = !theirs && element.getClientRects().length;
      if (!text || !shown) continue;
      let opacity = 1;
      for (let e = element; e; e = e.parentElement) opacity *= Number(getComputedStyle(e).opacity);
      const style = getComputedStyle(element);
      const ink = rgba(element instanceof SVGElement ? style.fill : style.color), ground = behind(element);
      const [a, b] = [light(over([...ink.slice(0, 3), ink[3] * opacity], ground)), light(ground)];
      const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
      const place = `${element.closest("[class]")?.className}: ${text.slice(0, 80)}`;
      found.set(place, Math.min(contrast, found.get(place) ?? 99));
    }
  }
  if (!found.size) throw new Error(`no text in ${within}`);
  return [...found].filter(([, c]) => c < least).map(([place, c]) => `${c.toFixed(2)}: ${place}`);
}
"""


def faint(page: "Page", within: str, least: float = 4.5) -> list[str]:
    """The texts below some elements whose contrast is less, each with it. Raises where there is no text."""
    return page.evaluate(_FAINT, [within, least])


@pytest.fixture
def open_page(browser: "Browser") -> Iterator[Callable[..., Watched]]:
    """``open_page(url, dark=True, width=1000)``: any page of this machine's, and what went wrong on it."""
    opened: list[Watched] = []

    def open_one(url: str, dark: bool = False, width: int = 1400, height: int = 900) -> Watched:
        opened.append(Watched(_page(browser, width, height, color_scheme="dark" if dark else "light")))
        opened[-1].page.goto(url)
        return opened[-1]

    yield open_one
    for watched in opened:
        watched.page.context.close()
    assert [problem for watched in opened for problem in watched.problems] == []


@pytest.fixture(scope="module")
def _blank_pages(browser: "Browser") -> Iterator[Callable[[bool], "Page"]]:
    """By whether scripts run in it, a page whose content is replaced from test to test."""
    pages: dict[bool, Page] = {}

    def page_of(scripts: bool) -> "Page":
        if scripts not in pages:
            pages[scripts] = browser.new_context(java_script_enabled=scripts).new_page()
            pages[scripts].set_default_timeout(LONGEST_S * 1000)
        return pages[scripts]

    yield page_of
    for page in pages.values():
        page.context.close()


@pytest.fixture
def open_html(_blank_pages: Callable[[bool], "Page"]) -> Iterator[Callable[..., "Page"]]:
    """``open_html(html, width=1000, scripts=False)``: a page that reaches nothing, instead of the last one.

    After the test, whatever it printed, asked for or raised fails it. Not a new page: that is a second and a
    half of the processor.
    """
    problems: list[str] = []
    heard = {
        "console": lambda message: problems.append(message.text),
        "pageerror": lambda error: problems.append(str(error)),
        "request": lambda request: problems.append(request.url),
    }
    opened: dict[bool, Page] = {}

    def open_one(html: str, width: int = 1400, height: int = 900, scripts: bool = True) -> "Page":
        page = _blank_pages(scripts)
        if scripts not in opened:
            opened[scripts] = page
            for event, hear in heard.items():
                page.on(event, hear)
            page.emulate_media(forced_colors="none")
            page.mouse.move(0, 0)
        page.set_viewport_size({"width": width, "height": height})
        page.set_content(html)
        return page

    yield open_one
    for page in opened.values():
        page.set_content("")
        for event, hear in heard.items():
            page.remove_listener(event, hear)
    assert problems == [], problems


@pytest.fixture
def open_notebook(lab: Lab, browser: "Browser") -> Iterator[Callable[..., Notebook]]:
    """``open_notebook("01_blocks", theme="dark", width=1000)``: a copy of it, with a kernel of its own.

    After the test, what went wrong on a page fails it.
    """
    opened: list[Notebook] = []

    def open_one(chapter: str, theme: str = "light", width: int = 1400, height: int = 900) -> Notebook:
        name = f"{chapter}-{time.monotonic_ns()}.ipynb"
        shutil.copy(REPO / "notebooks" / f"{chapter}.ipynb", lab.root / "notebooks" / name)
        book = Notebook(_page(browser, width, height))
        opened.append(book)
        book.page.goto(f"{lab.url}lab/tree/notebooks/{name}?token={lab.token}&reset")
        book.page.wait_for_function(
            "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
        )
        book.theme(theme)
        return book

    yield open_one
    for book in opened:
        book.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
        book.page.context.close()
    assert [problem for book in opened for problem in book.problems] == []


def _page(browser: "Browser", width: int, height: int, **options: str) -> "Page":
    size = {"width": width, "height": height}
    return browser.new_context(viewport=size, reduced_motion="reduce", **options).new_page()
