"""The course as a website, to read before anything is installed: `make site`.

This module writes what Sphinx reads: `python -m puzzles_lib.authoring.site FOLDER`. It needs neither torch
nor Triton. A chapter's page has the text and the code of the exercise, with its holes. The outputs come
from the master, except those that would give an answer away:

- the output of a cell that the reader completes or repairs,
- an output that quotes a line of an answer, if that line cannot be cut out of it,
- the output of a call that shows answers to those who solved a puzzle, such as `mistake`,
- the pictures that the exercise holds back until their cell is run.

A prediction comes before what it predicts, so the first output after a question is folded.
"""

import argparse
import base64
import functools
import html
import json
import re
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from puzzles_lib.hints import Hint, read_hints

REPO = Path(__file__).resolve().parents[2]
PAGES = ("RESULTS.md", "AUDIT.md", "TEACHING.md", "CONTRIBUTING.md", "CHANGELOG.md")
YOUR_LINE = "(your line)"
HOLE = "# your code here"  # that of `stubs`, which imports Triton

Cell = dict[str, Any]

_BEGIN, _END = "### BEGIN SOLUTION", "### END SOLUTION"
_ONLY_FOR_READERS_WHO_SOLVED_IT = re.compile(r"\b(?:mistake|progress|hint)\(|\.explore\(")
_WHEN_RUN = "when-run"
_LEAST = 12  # characters of a line without spaces; a shorter one is no secret
_HINT_CELL = re.compile(r"^# hint\((\w+)(?:, (\w+))?\)$", re.MULTILINE)
_STATEMENT = re.compile(r"[A-Z][A-Z0-9_]*|ch\d\d\.pictures\.\w+\(.*\)", re.DOTALL)
_PACKED = re.compile(r"[A-Za-z0-9+/=]{200,}")
_COMMENT = re.compile(r"\s+#.*$")
_LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)#\s]+)(#[^)]*)?\)")
_NO_CHAPTER = re.compile(r"\[([^\]\n]+)\]\(((?!\d\d_)\w+\.ipynb)\)")


@dataclass(frozen=True)
class Chapter:
    """A chapter's exercise and its master. hints: by the puzzle's name and the kernel's name, "" for any."""

    name: str
    exercise: list[Cell]
    master: list[Cell]
    hints: Mapping[tuple[str, str], tuple[Hint, ...]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The heading of the first cell."""
        return _source(self.exercise[0]).splitlines()[0].removeprefix("# ")


def chapters(root: Path) -> list[Chapter]:
    """Return the chapters of a checkout, in order. Raise ValueError for an exercise without its master."""
    found = []
    for path in sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb")):
        master = root / "solutions" / path.name
        if not master.exists():
            raise ValueError(f"notebooks/{path.name} has no master solutions/{path.name}")
        hints = root / "puzzles_lib" / "chapters" / f"ch{path.stem}" / "hints.md"
        found.append(
            Chapter(
                path.stem,
                json.loads(path.read_text("utf-8"))["cells"],
                json.loads(master.read_text("utf-8"))["cells"],
                read_hints(hints.read_text("utf-8")) if hints.exists() else {},
            )
        )
    return found


# ---- what must not be seen


def answer_lines(source: str) -> list[str]:
    """Return the lines between the solution markers of a master's cell, without their comments."""
    lines, inside = [], False
    for line in source.splitlines():
        if line.strip().startswith((_BEGIN, _END)):
            inside = line.strip().startswith(_BEGIN)
        elif inside and (code := _COMMENT.sub("", line).strip()):
            lines.append(code)
    return lines


def repaired_lines(exercise: str, master: str) -> list[str]:
    """Return the lines of a master's cell that replace lines of a kernel which is handed out broken."""
    given = {squeezed(line) for line in exercise.splitlines()}
    lines = [_COMMENT.sub("", line).strip() for line in master.splitlines()]
    return [line for line in lines if line and squeezed(line) not in given]


def secrets(every: Iterable[Chapter]) -> dict[str, frozenset[str]]:
    """Return, for each chapter's page, the lines of answers that it must not contain.

    A line is not a secret on any page if an exercise of the same chapter or an earlier one shows it. A line
    of another chapter's answer is not a secret on a page whose own exercise shows it.
    """
    listed = list(every)
    seen, shown, hidden = "", {}, set()
    for chapter in listed:
        shown[chapter.name] = squeezed("\n".join(_texts(chapter.exercise)))
        seen += shown[chapter.name]
        given = {cell["id"]: _source(cell) for cell in chapter.exercise}
        for cell in chapter.master:
            source = _source(cell)
            lines = answer_lines(source)
            if cell["cell_type"] == "code" and not lines:
                lines = repaired_lines(given[cell["id"]], without_tool_comments(source))
            hidden |= {line for line in lines if len(squeezed(line)) >= _LEAST and squeezed(line) not in seen}
    return {
        chapter.name: frozenset(line for line in hidden if squeezed(line) not in shown[chapter.name])
        for chapter in listed
    }


def quoted(text: str, lines: Iterable[str]) -> list[str]:
    """Return which of `lines` are quoted in a text, in a piece of HTML or in the data of a player in it."""
    unpacked = [text]
    for match in _PACKED.finditer(text):
        try:
            unpacked.append(zlib.decompress(base64.b64decode(match[0])).decode("utf-8", "replace"))
        except (ValueError, zlib.error):  # not a player's data
            continue
    plain = html.unescape(re.sub(r"<[^>]*>", "", text))
    parts = [squeezed(part) for part in (*unpacked, html.unescape(text), plain)]
    parts += [part.replace('\\"', '"') for part in parts]
    whole = "\0".join(dict.fromkeys(parts))  # most are equal
    return [line for line in lines if squeezed(line) in whole]


@functools.cache
def squeezed(text: str) -> str:
    """Return a text without its white space, so that two layouts of a line compare equal."""
    return "".join(text.split())


def without_tool_comments(source: str) -> str:
    """Return a cell's source without comments for the formatter."""
    return re.sub(r" +# fmt: skip$", "", source, flags=re.MULTILINE)


# ---- a chapter's page


def page(chapter: Chapter, hidden: frozenset[str], links: str = "") -> dict[str, Any]:
    """Return the notebook that a chapter's page is made from.

    hidden: the lines it must not quote. links: Markdown that goes below the title.
    """
    masters = {cell["id"]: cell for cell in chapter.master}
    cells: list[Cell] = []
    asked = False  # a question, and nothing yet that answers it
    for cell in chapter.exercise:
        source, master = _source(cell), masters[cell["id"]]
        if cell["cell_type"] == "markdown":
            source = _NO_CHAPTER.sub(r'<a href="../notebooks/\2" download>\1</a>', source)  # has no page
            asked &= not re.search(r"^#+ ", source, re.MULTILINE)
            if cells or not links:
                cells.append(_markdown(cell["id"], source))
            else:
                title, _, rest = source.partition("\n")
                cells.append(_markdown(cell["id"], f"{title}\n\n{links}\n{rest}"))
            continue
        if hints := _HINT_CELL.findall(source):
            folded = "\n".join(_folded_hints(chapter, puzzle, kernel, hidden) for puzzle, kernel in hints)
            cells.append(_markdown(cell["id"], folded))
            continue
        outputs, note = _outputs(cell, master, hidden)
        shown = _code(cell["id"], source, outputs)
        if _STATEMENT.fullmatch(source.strip()) and outputs:
            shown["metadata"]["tags"] = ["remove-input"]
        elif _only_imports(source):
            shown["metadata"] = {"tags": ["hide-input"], "mystnb": {"code_prompt_show": "Imports"}}
        elif asked and outputs:
            shown["metadata"] = {
                "tags": ["hide-output"],
                "mystnb": {"code_prompt_show": "Predict first, then look at what this cell shows"},
            }
            asked = False
        cells.append(shown)
        if note:
            cells.append(_markdown(f"{cell['id']}-note", f"{{.not-here}}\n{note}"))
        asked |= "answer(" in source and HOLE in source
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def _outputs(cell: Cell, master: Cell, hidden: frozenset[str]) -> tuple[list[Any], str]:
    """What a cell's page shows below it, and a note on what it does not show."""
    source, solved = _source(cell), _source(master)
    if HOLE in source:
        return (
            [],
            "" if "answer(" in source else "Your turn. Fill in the hole in the notebook and run the cell.",
        )
    if without_tool_comments(solved) != source:
        return [], "Your turn: repair this kernel in the notebook and run the cell."
    if not master["outputs"]:
        return [], ""
    if _WHEN_RUN in master["metadata"].get("tags", ()):
        return [], "Run this cell in the notebook to see its picture."
    if _ONLY_FOR_READERS_WHO_SOLVED_IT.search(source):
        return [], "Run this cell in the notebook once you have solved the puzzle."
    outputs = [_without_lines(output, hidden) for output in master["outputs"]]
    if not cell["outputs"] and quoted("\n".join(_output_text(output) for output in outputs), hidden):
        return (
            [],
            "This output quotes an answer. Run the cell in the notebook once you have solved the puzzle.",
        )
    return outputs, ""


def _without_lines(output: Any, hidden: frozenset[str]) -> Any:
    """An output in which lines of answers are replaced, where they stand as they are written."""
    told = json.dumps(output, ensure_ascii=False)
    for written in _written(hidden):
        told = told.replace(written, YOUR_LINE)
    return json.loads(told)


@functools.cache
def _written(hidden: frozenset[str]) -> list[str]:
    """Return how lines may be written in an output, the longest lines first."""
    return [
        json.dumps(written, ensure_ascii=False)[1:-1]
        for line in sorted(hidden, key=len, reverse=True)
        for written in {line, html.escape(line), html.escape(line, quote=False)}
    ]


def _folded_hints(chapter: Chapter, puzzle: str, kernel: str, hidden: frozenset[str]) -> str:
    """A puzzle's hints in the order they are written in, each folded; without those that quote an answer."""
    key = puzzle.lower()
    found = chapter.hints.get((key, kernel)) or chapter.hints.get((key, "")) or ()
    shown = [hint for hint in found if not quoted(hint.text, hidden)]
    parts = [
        f'<details class="hint"><summary>Hint {number}: {html.escape(hint.title)}</summary>\n\n'
        f"{hint.text}\n\n</details>\n"
        for number, hint in enumerate(shown, 1)
    ]
    if len(shown) < len(found):
        more = "one more hint" if len(found) == len(shown) + 1 else f"{len(found) - len(shown)} more hints"
        parts.append(f"{{.not-here}}\n`hint({puzzle})` in the notebook has {more}.\n")
    return "\n".join(parts)


def _only_imports(source: str) -> bool:
    return bool(re.fullmatch(r"(?:(?:import|from) [^\n(]*(?:\([^)]*\))?[^\n]*\n|\s*\n)+", source + "\n"))


def _source(cell: Cell) -> str:
    return "".join(cell["source"])


def _texts(cells: Iterable[Cell]) -> Iterable[str]:
    """All that an exercise shows before it is run."""
    for cell in cells:
        yield _source(cell)
        yield from (_output_text(output) for output in cell.get("outputs", ()))


def _output_text(output: Any) -> str:
    parts = [output.get("text", ""), *output.get("data", {}).values()]
    return "\n".join("".join(part) for part in parts if not isinstance(part, dict))


def _markdown(name: str, source: str) -> Cell:
    return {"cell_type": "markdown", "id": name, "metadata": {}, "source": source}


def _code(name: str, source: str, outputs: list[Any]) -> Cell:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": name,
        "metadata": {},
        "outputs": outputs,
        "source": source,
    }


# ---- the whole site


def write(root: Path, target: Path, repository: str = "", branch: str = "main") -> list[str]:
    """Write the site's source for Sphinx to the folder ``target``, and return the names of its pages.

    repository: "owner/name" on GitHub, for the links to Colab, Binder and files; "" leaves those out.
    ``target`` is emptied first. Raises ValueError for a repository of another form.
    """
    if repository and not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ValueError(f"repository must have the form owner/name, or be empty, but is {repository!r}")
    every = chapters(root)
    hidden = secrets(every)
    if target.exists():
        shutil.rmtree(target)
    (target / "chapters").mkdir(parents=True)
    for chapter in every:
        made = page(chapter, hidden[chapter.name], links_of(chapter.name, repository, branch))
        (target / "chapters" / f"{chapter.name}.ipynb").write_text(json.dumps(made), "utf-8")
    shutil.copytree(root / "notebooks", target / "extra" / "notebooks", ignore=shutil.ignore_patterns(".*"))
    shutil.copytree(root / ".readme", target / ".readme")
    shutil.copytree(root / ".setup" / "site", target, dirs_exist_ok=True)
    texts = [name for name in PAGES if (root / name).exists()]
    names = {chapter.name: chapter.title for chapter in every}
    for name in texts:
        text = _linked((root / name).read_text("utf-8"), {*texts, "README.md"}, repository, branch)
        (target / name).write_text(text, "utf-8")
    front = _linked((root / "README.md").read_text("utf-8"), {*texts, "README.md"}, repository, branch)
    (target / "index.md").write_text(_front(front, names, texts, repository), "utf-8")
    return ["index", *(f"chapters/{name}" for name in names), *(Path(name).stem for name in texts)]


def links_of(name: str, repository: str, branch: str) -> str:
    """Return the line below a chapter's title: where to get its notebook, and where to run it."""
    links = [f'<a href="../notebooks/{name}.ipynb" download>Download this notebook</a>']
    if repository:
        binder = f"https://mybinder.org/v2/gh/{repository}/{branch}?urlpath=lab/tree/notebooks/{name}.ipynb"
        colab = f"https://colab.research.google.com/github/{repository}/blob/{branch}/notebooks/{name}.ipynb"
        links += [f'<a href="{binder}">Open in Binder</a>', f'<a href="{colab}">Open in Colab</a>']
    line = f'<p class="run-it">{" · ".join(links)}</p>\n'
    if repository:
        pip = f'%pip install "triton-bit-by-bit[course] @ git+https://github.com/{repository}@{branch}"'
        line += (
            "\n<details class='hint'><summary>In Colab, run this cell first</summary>\n\n"
            f"```\n{pip}\n```\n\nThen restart the runtime. Colab's PyTorch and Triton differ from the "
            "course's, and this was not tried.\n\n</details>\n"
        )
    return line


def _linked(text: str, pages: set[str], repository: str, branch: str) -> str:
    """A page's Markdown whose links stay in the site, or go to the repository."""

    def link(match: re.Match[str]) -> str:
        path, anchor = match[1], match[2] or ""
        if path == "README.md":
            return f"](index.md{anchor})"
        if path in pages or path.startswith(".readme/"):
            return match[0]
        return (
            f"](https://github.com/{repository}/blob/{branch}/{path}{anchor})"
            if repository
            else "](index.md)"
        )

    return _LINK.sub(link, text)


def _front(text: str, names: Mapping[str, str], texts: Iterable[str], repository: str) -> str:
    """The front page: the README, with links to the chapters and the list of all pages."""
    for name in names:
        row = re.compile(rf"^\| ({name[:2]} [^|]*?) \|", re.MULTILINE)
        text = row.sub(rf"| [\1](chapters/{name}.ipynb) |", text)
    if repository:
        text = text.replace("git clone ADDRESS", f"git clone https://github.com/{repository}")
        text = text.replace(", with the repository's address (on GitHub, the **Code** button shows it)", "")
    first = next(iter(names), "")
    begin = f"{{.start}}\n[Start reading: chapter {first[:2]}](chapters/{first}.ipynb)\n\n"
    head, gap, rest = text.partition("\n\n**Is it for you?**")
    text = f"{head}\n\n{begin}{gap.lstrip()}{rest}" if gap else text
    chapters_list = "\n".join(f"chapters/{name}" for name in names)
    pages_list = "\n".join(Path(name).stem for name in texts)
    return (
        f"{text}\n\n```{{toctree}}\n:hidden:\n:caption: Chapters\n\n{chapters_list}\n```\n\n"
        f"```{{toctree}}\n:hidden:\n:caption: More\n\n{pages_list}\n```\n"
    )


def origin(root: Path) -> str:
    """Return "owner/name" of the checkout's origin on GitHub; "" if there is none."""
    command = ["git", "-C", str(root), "remote", "get-url", "origin"]
    try:
        url = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:  # no git
        return ""
    match = re.fullmatch(r"(?:https://|git@|ssh://git@)github\.com[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?", url)
    return match[1] if match else ""


def main(arguments: list[str] | None = None) -> int:
    """Write the site's source; see ``--help``."""
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.authoring.site", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write; it is emptied first")
    parser.add_argument("--repository", default="", help="owner/name on GitHub (default: from git's origin)")
    parser.add_argument("--branch", default="main", help="the branch that links go to (default: main)")
    chosen = parser.parse_args(arguments)
    try:
        pages = write(REPO, chosen.folder, chosen.repository or origin(REPO), chosen.branch)
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{len(pages)} pages for Sphinx in {chosen.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
