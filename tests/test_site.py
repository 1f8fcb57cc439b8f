"""The website: what its pages may show, and, on request, the whole site in a real browser."""

import functools
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import zlib
from base64 import b64encode
from pathlib import Path

import pytest

from puzzles_lib import stubs
from puzzles_lib.authoring import site

REPO = Path(__file__).resolve().parents[1]
NAMES = [path.stem for path in sorted((REPO / "solutions").glob("[0-9]*.ipynb"))]
MOST_MB = 40
KNOWN = (
    "button[data-bit="  # of chapter 08's live picture: each shows its bit, and its label says which one it is
)


@functools.cache  # not when the module is read, which every worker does
def chapters():
    return {each.name: each for each in site.chapters(REPO)}


@functools.cache
def hidden():
    return site.secrets(chapters().values())


@functools.cache
def pages():
    return {name: site.page(each, hidden()[name]) for name, each in chapters().items()}


def code(name, source, *outputs, **metadata):
    return {"cell_type": "code", "id": name, "metadata": metadata, "source": source, "outputs": list(outputs)}


def text(name, source):
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def printed(words):
    return {"output_type": "stream", "name": "stdout", "text": words}


def shown(words):
    return {"output_type": "display_data", "metadata": {}, "data": {"text/html": words, "text/plain": "-"}}


KERNEL = """\
def kernel(x_ptr):
    ### BEGIN SOLUTION 1 line
    y = tl.load(x_ptr, mask=x < 3)  # why
    ### END SOLUTION"""
STUB = "def kernel(x_ptr):\n    # your code here (1 line)"
ANSWER = "y = tl.load(x_ptr, mask=x < 3)"


def chapter(exercise, master, name="90_made_up"):
    title = text("title", "# 90 · Made up\n\nWords.")
    return site.Chapter(name, [title, *exercise], [title, *master])


def cells_of(made):
    return {cell["id"]: cell for cell in site.page(made, site.secrets([made])[made.name])["cells"]}


# ---- what a page may show


@pytest.mark.parametrize("name", NAMES)
def test_links_between_notebooks_lead_to_a_page_or_a_file(name):
    words = "\n".join(cell["source"] for cell in pages()[name]["cells"] if cell["cell_type"] == "markdown")
    assert set(re.findall(r"\]\(([^)#:\s]+\.ipynb)[)#]", words)) <= {f"{each}.ipynb" for each in NAMES}
    for file in re.findall(r'href="\.\./notebooks/([^"]+)"', words):
        assert (REPO / "notebooks" / file).exists()


def test_every_chapter_has_a_page():
    assert NAMES == [*chapters()]


@pytest.mark.parametrize("name", NAMES)
def test_no_line_of_an_answer_is_on_a_chapters_page(name):
    whole = "\0".join(site._texts(pages()[name]["cells"]))
    assert site.quoted(whole, hidden()[name]) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_masters_own_page_would_be_caught(name):
    """The test above can fail: each master has cells with lines that its page must not have."""
    assert any(site.quoted("\0".join(site._texts([c])), hidden()[name]) for c in chapters()[name].master)


def test_every_hole_of_the_exercises_is_a_hole_on_its_page():
    for each in chapters().values():
        sources = {cell["id"]: cell["source"] for cell in pages()[each.name]["cells"]}
        for cell in each.exercise:
            source = "".join(cell["source"])
            if cell["cell_type"] == "code" and not site._HINT_CELL.search(source):
                assert sources[cell["id"]] == source, f"{each.name}, {cell['id']}"


def test_the_pages_have_what_makes_them_worth_reading():
    outputs = [
        site._output_text(output)
        for page in pages().values()
        for cell in page["cells"]
        for output in cell.get("outputs", ())
    ]
    count = {
        "pictures": sum("<svg " in output for output in outputs),
        "players": sum("puzzles-player" in output for output in outputs),
        "statements": sum("Your kernel may take" in output for output in outputs),
    }
    hints = sum(cell["source"].count("<summary>Hint ") for page in pages().values() for cell in page["cells"])
    least = {"pictures": 130, "players": 4, "statements": 70}
    assert all(count[kind] >= number for kind, number in least.items()) and hints >= 300, (count, hints)


def test_the_hole_is_what_the_exercises_call_it():
    assert site.HOLE == stubs.HOLE


def test_an_answer_and_its_output_stay_out():
    cells = cells_of(chapter([code("k", STUB)], [code("k", KERNEL, printed("all pass"))]))
    assert cells["k"]["source"] == STUB and cells["k"]["outputs"] == []
    assert "Your turn" in cells["k-note"]["source"]


def test_a_repaired_kernel_stays_out():
    broken, repaired = "def kernel(x):\n    tl.store(x, 1)", "def kernel(x):\n    tl.store(x, 1, mask=x < 9)"
    made = chapter(
        [code("k", broken), code("look", "look()")],
        [code("k", repaired, printed("fine")), code("look", "look()", printed("tl.store(x, 1, mask=x < 9)"))],
    )
    assert site.secrets([made])[made.name] == {"tl.store(x, 1, mask=x < 9)"}
    cells = cells_of(made)
    assert cells["k"]["source"] == broken and cells["k"]["outputs"] == []
    assert site.YOUR_LINE in cells["look"]["outputs"][0]["text"]


@pytest.mark.parametrize("told", [ANSWER, ANSWER.replace("<", "&lt;")])
def test_a_line_of_the_readers_is_cut_out_of_a_report(told):
    made = chapter(
        [code("k", STUB), code("c", "check(kernel, P)")],
        [code("k", KERNEL), code("c", "check(kernel, P)", shown(f"<pre>line 2: {told}</pre>"))],
    )
    assert cells_of(made)["c"]["outputs"][0]["data"]["text/html"] == f"<pre>line 2: {site.YOUR_LINE}</pre>"


def test_an_output_from_which_an_answer_cannot_be_cut_stays_out():
    colored = "y = <b>tl.load</b>(x_ptr, <i>mask</i>=x &lt; 3)"
    data = json.dumps({"source": ANSWER, "padding": list(range(300))})
    player = f"<script>play('{b64encode(zlib.compress(data.encode())).decode()}')</script>"
    for told in (colored, player):
        made = chapter(
            [code("k", STUB), code("w", "watch(kernel, P)")],
            [code("k", KERNEL), code("w", "watch(kernel, P)", shown(told))],
        )
        cells = cells_of(made)
        assert cells["w"]["outputs"] == [] and "quotes an answer" in cells["w-note"]["source"]


@pytest.mark.parametrize("source", ["mistake(P, 'slip')", "progress()", "trace(k, P).explore()"])
def test_what_is_for_those_who_solved_it_stays_out(source):
    cells = cells_of(chapter([code("m", source)], [code("m", source, printed("a diff"))]))
    assert cells["m"]["outputs"] == []


def test_a_picture_that_the_exercise_holds_back_stays_out():
    source = "ch90.pictures.result()"
    cells = cells_of(
        chapter(
            [code("p", source, tags=["when-run"])], [code("p", source, shown("<svg />"), tags=["when-run"])]
        )
    )
    assert cells["p"]["outputs"] == []


def test_what_follows_a_question_is_folded_until_the_next_heading():
    ask = code("q", 'n = ...\n# your code here (1 line)\nanswer("ch90-q1", n)')
    solved = code("q", 'n = ...\n### BEGIN SOLUTION 1 line\nn = 3\n### END SOLUTION\nanswer("ch90-q1", n)')
    run = [code("one", "run()", printed("3")), code("two", "run()", printed("4"))]
    bare = [dict(cell, outputs=[]) for cell in run]
    cells = cells_of(chapter([ask, *bare], [solved, *run]))
    assert cells["one"]["metadata"]["tags"] == ["hide-output"] and cells["two"]["metadata"] == {}
    heading = text("h", "### New\n\nWords.")
    cells = cells_of(chapter([ask, heading, *bare], [solved, heading, *run]))
    assert cells["one"]["metadata"] == {}


def test_hints_are_folded_and_those_that_quote_an_answer_are_left_to_the_notebook():
    hints = {
        ("p", ""): (site.Hint("A nudge", "Look at `mask`."), site.Hint("Nearly all", f"```\n{ANSWER}\n```")),
    }
    ask = code("h", "# Stuck?\n# hint(P)")
    exercise, master = [text("t", "# T"), code("k", STUB), ask], [text("t", "# T"), code("k", KERNEL), ask]
    source = cells_of(site.Chapter("90_made_up", exercise, master, hints))["h"]["source"]
    assert "<summary>Hint 1: A nudge</summary>" in source and "Look at `mask`." in source
    assert ANSWER not in source and "`hint(P)` in the notebook has one more hint." in source


def test_a_line_that_an_exercise_shows_is_no_secret():
    given = code("demo", ANSWER)
    made = chapter([given, code("k", STUB)], [given, code("k", KERNEL)])
    assert site.secrets([made])[made.name] == frozenset()


# ---- the source for Sphinx


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """What is written where there is neither torch nor Triton."""
    folder = tmp_path_factory.mktemp("site") / "source"
    program = "import sys; sys.modules.update(torch=None, triton=None, numpy=None)\n"
    program += f"from puzzles_lib.authoring import site; site.main([{str(folder)!r}, *sys.argv[1:]])"
    command = [sys.executable, "-c", program, "--repository", "someone/course"]
    ran = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    names = ["index", *(f"chapters/{name}" for name in NAMES)]
    names += [Path(name).stem for name in site.PAGES if (REPO / name).exists()]
    assert ran.stdout.startswith(f"{len(names)} pages")
    for name in names:
        assert list(folder.glob(f"{name}.*")), name
    return folder


def test_the_source_has_every_page_and_the_exercises_to_download(source):
    for path in (REPO / "notebooks").glob("*.ipynb"):
        assert (source / "extra/notebooks" / path.name).read_bytes() == path.read_bytes()
    front = (source / "index.md").read_text()
    assert "git clone https://github.com/someone/course" in front and "**Code** button" not in front
    assert "Look first" not in front and "[00 welcome](chapters/00_welcome.ipynb)" in front
    first = (source / "chapters/00_welcome.ipynb").read_text()
    assert "colab.research.google.com/github/someone/course/blob/main/notebooks/00_welcome.ipynb" in first
    assert "mybinder.org/v2/gh/someone/course/main?urlpath=lab/tree/notebooks/00_welcome.ipynb" in first


def test_without_a_repository_a_page_links_to_no_other_host():
    assert "https:" not in site.links_of("00_welcome", "", "main")
    assert 'href="../notebooks/00_welcome.ipynb"' in site.links_of("00_welcome", "", "main")


def test_a_repository_of_another_form_is_refused(tmp_path):
    with pytest.raises(
        ValueError,
        match="repository must have the form owner/name, or be empty, but is 'https://github.com/a/b'",
    ):
        site.write(REPO, tmp_path / "source", "https://github.com/a/b")


@pytest.mark.parametrize(
    "url, name",
    [
        ("https://github.com/a/b.git", "a/b"),
        ("git@github.com:a/b.git", "a/b"),
        ("https://github.com/a/b", "a/b"),
        ("https://example.org/a/b", ""),
    ],
)
def test_the_repository_is_gits_origin_on_github(tmp_path, url, name):
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, timeout=240)
    subprocess.run(["git", "-C", tmp_path, "remote", "add", "origin", url], check=True, timeout=240)
    assert site.origin(tmp_path) == name


# ---- in a browser


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder of the site, as `make site` writes it, in a copy of the checkout."""
    root = tmp_path_factory.mktemp("checkout") / "course"
    ignored = shutil.ignore_patterns(".venv*", ".git", "build", "site", "__pycache__", ".mypy_cache")
    shutil.copytree(
        REPO, root, ignore=lambda path, names: ignored(path, names) if path == str(REPO) else set()
    )
    settings = {"REPOSITORY": "someone/course", "PYTHON": sys.executable}
    ran = subprocess.run(
        ["make", "site"], cwd=root, env=os.environ | settings, capture_output=True, text=True, timeout=900
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return root / "site"


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def served(built):
    """The site's address on this machine."""
    handler = functools.partial(_Quiet, directory=str(built))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.fixture
def read(browser):
    """``read(url)``: a page. After the test, an error on the console or a request outside fails it."""
    problems, opened = [], []

    def open_one(url, width=1000, theme="light"):
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=theme)
        opened.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: message.type == "error" and problems.append(f"{url}: {message.text}")
        )
        page.on("pageerror", lambda error: problems.append(f"{url}: {error}"))
        ours = url.split("/chapters/")[0].rsplit("/", 1)[0]
        page.on(
            "request",
            lambda asked: asked.url.startswith((ours, "data:", "blob:")) or problems.append(asked.url),
        )
        page.goto(url)
        page.wait_for_load_state("networkidle")
        return page

    yield open_one
    for context in opened:
        context.close()
    assert problems == []


@pytest.fixture(scope="module")
def axe(tmp_path_factory):
    """axe-core's script, from npm; it is not part of the course."""
    if not shutil.which("npm"):
        pytest.skip("needs npm")
    folder = tmp_path_factory.mktemp("axe")
    subprocess.run(
        ["npm", "pack", "--silent", "axe-core@4.14.1"],
        cwd=folder,
        check=True,
        capture_output=True,
        timeout=240,
    )
    (archive,) = folder.glob("*.tgz")
    shutil.unpack_archive(archive, folder, filter="data")
    return (folder / "package" / "axe.min.js").read_text("utf-8")


@pytest.mark.site
def test_the_site_is_small_and_shows_no_answer(built):
    files = [path for path in built.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_MB * 1_000_000
    for each in chapters().values():
        page = (built / "chapters" / f"{each.name}.html").read_text("utf-8")
        assert site.quoted(page, hidden()[each.name]) == [], each.name
    assert not list(built.glob("_sources/**/*.*")) and "BEGIN SOLUTION" not in "".join(
        path.read_text("utf-8") for path in files if path.suffix in (".html", ".js")
    )


@pytest.mark.site
@pytest.mark.browser
def test_every_page_loads_by_itself_and_axe_finds_nothing_serious(built, served, read, axe):
    pages = sorted(str(path.relative_to(built)) for path in built.rglob("*.html"))
    assert len(pages) >= len(NAMES) + 4
    found = []
    for name in pages:
        view = read(served + name)
        view.evaluate(axe)
        view.add_style_tag(content="* { transition: none !important }")  # or it finds colors on their way
        for theme in ("light", "dark"):
            view.evaluate("theme => { document.documentElement.dataset.theme = theme }", theme)
            faults = view.evaluate("axe.run(document, {resultTypes: ['violations']})")["violations"]
            found += [
                f"{name}, {theme}: {fault['id']} at {fault['nodes'][0]['target']}"
                for fault in faults
                if fault["impact"] in ("serious", "critical")
                and not all(KNOWN in str(node["target"]) for node in fault["nodes"])
            ]
        view.context.close()
    assert found == []


@pytest.mark.site
@pytest.mark.browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_on_a_phone_no_page_is_wider_than_the_screen(built, served, read, theme):
    for path in sorted(built.rglob("*.html")):
        view = read(served + str(path.relative_to(built)), width=390, theme=theme)
        assert view.evaluate("document.documentElement.scrollWidth") <= 390, path.name
        view.context.close()


@pytest.mark.site
@pytest.mark.browser
def test_a_player_steps_by_keyboard(served, read):
    view = read(served + "chapters/00_welcome.html")
    player = view.locator(".puzzles-player")
    step, line = player.get_by_label("step of the run"), player.locator(".code [aria-current=step]")
    assert step.input_value() == "0"
    first = line.inner_text()
    step.focus()
    view.keyboard.press("ArrowRight")
    assert step.input_value() == "1" and line.inner_text() != first
    assert view.url.endswith("00_welcome.html")  # the theme takes no arrow keys


@pytest.mark.site
@pytest.mark.browser
def test_opened_from_the_disk_it_needs_nothing_and_the_search_finds(built, served, read):
    view = read((built / "chapters" / "05_flash_attention.html").as_uri())
    assert view.locator("math").count() > 10 and view.locator(".cell_output svg").count() > 5
    view = read(served + "search.html?q=softmax")
    view.locator("#search-results li a").first.wait_for()
    assert "05_flash_attention" in " ".join(
        link.get_attribute("href") for link in view.locator("#search-results li a").all()
    )


@pytest.mark.site
@pytest.mark.browser
@pytest.mark.parametrize("theme, paper", [("light", "rgb(255, 255, 255)"), ("dark", "rgb(18, 18, 18)")])
def test_the_page_and_its_pictures_follow_the_readers_theme(served, read, theme, paper):
    view = read(served + "chapters/01_blocks.html", theme=theme)
    of_page = "getComputedStyle(document.body).backgroundColor"
    assert view.evaluate(of_page) == paper
    of_player = "getComputedStyle(document.querySelector('.puzzles-player')).backgroundColor"
    assert view.evaluate(of_player) == paper
