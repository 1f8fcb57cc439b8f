"""The masters: each runs, prints what it printed before, and solves its chapter's puzzles."""

import itertools
import re

import nbformat
import pytest

from puzzles_lib.authoring.release import hole_sizes
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import CHAPTERS
from tests.conftest import REPO
from tests.notebook_run import chapters, run_under_nbval, states_of_chapter

masters = pytest.mark.parametrize("notebook", chapters("solutions"), ids=lambda path: path.stem)


def code_cells(notebook):
    return [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]


@masters
def test_outputs_are_what_they_were_and_every_puzzle_is_solved(notebook):
    run_under_nbval(notebook, "--nbval")
    states = states_of_chapter(notebook)
    assert states == dict.fromkeys(states, "solved")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_every_chapter_has_a_master(chapter):
    assert [path.name[:2] for path in chapters("solutions")].count(chapter.number) == 1


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_puzzles_come_in_the_order_of_the_master(chapter):
    """A first pass says which puzzle is next, "below"."""
    names = [puzzle.name for puzzle in chapter.puzzles if puzzle.name in kernel_sources()]
    assert names == [name for name in kernel_sources() if name in names]


def used(names: tuple[str, ...]) -> set[str]:
    """What of `tl` the solutions of some puzzles use."""
    return {name for puzzle in names for name in re.findall(r"\btl\.\w+", kernel_sources()[puzzle])}


def test_the_fast_track_leaves_out_nothing_that_later_chapters_take_for_granted():
    """What later puzzles use beyond 4, 8 and 11 is little: named in the cell, or explained where it comes."""
    welcome, later = chapters("solutions")[0], [c for c in CHAPTERS if c.number >= "09"]
    (cell,) = (c for c in nbformat.read(welcome, as_version=4).cells if c.id == "fast-track")
    assert re.findall(r"puzzles (\d+), (\d+) and (\d+)", cell.source) == [("4", "8", "11")]
    known = used(("outer_add_blocks", "long_softmax", "batched_matmul"))
    new = used(tuple(p.name for c in later for p in c.puzzles if not p.broken_by)) - known
    new -= {"tl.int8", "tl.int32", "tl.bfloat16"}
    named = set(re.findall(r"tl\.\w+", cell.source))
    assert named == {"tl.where"} and new - named <= {
        "tl.abs", "tl.argmax", "tl.associative_scan", "tl.atomic_add", "tl.atomic_cas", "tl.atomic_xchg",
        "tl.cdiv", "tl.cumsum", "tl.debug_barrier", "tl.dot_scaled", "tl.floor", "tl.int64", "tl.log",
        "tl.min", "tl.minimum", "tl.num_programs", "tl.rand", "tl.reshape", "tl.rsqrt", "tl.sort",
        "tl.static_range",
    }  # fmt: skip
    prose = [
        c.source
        for chapter in later
        for c in nbformat.read(REPO / "solutions" / chapter.notebook, as_version=4).cells
        if c.cell_type == "markdown"
    ]
    assert new - named <= {name for text in prose for name in re.findall(r"tl\.\w+", text)}


def test_part_one_is_there():
    assert {path.name[:2] for path in chapters("solutions")} >= {f"{number:02}" for number in range(9)}


@masters
def test_no_warning_and_no_path_of_a_machine_in_the_outputs(notebook):
    for cell in code_cells(notebook):
        for output in cell.outputs:
            assert output.get("name") != "stderr", f"cell {cell.id}: {output.text}"
            assert output.output_type != "error", f"cell {cell.id}: {output.evalue}"
            texts = [output.get("text", "")]
            texts += [text for kind, text in output.get("data", {}).items() if kind.startswith("text/")]
            for text in texts:
                assert not re.search(r"site-packages|(?<![\w+/])/(root|home|work|usr|opt|tmp)/\w", text), (
                    f"cell {cell.id}: {text[:300]}"
                )


MOST_WORDS = 80
MOST_COLUMNS = 88  # of code, in a window 1000 pixels wide; solutions/.ruff.toml holds to it, too


def words(text: str) -> int:
    """The words of a cell's prose: no headings, tables, code or formulas; `code` and a link count as said."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$", "", text, flags=re.DOTALL)
    text = "\n".join(line for line in text.splitlines() if not line.startswith(("#", "|")))
    text = re.sub(r"`[^`]*`|\$[^$]*\$", "x", re.sub(r"\]\([^)]*\)", "]", text))
    return len(re.findall(r"[\w'’.,/×-]*\w[\w'’.,/×-]*", text))


def test_words_are_counted_as_said():
    text = "## Not this\n\nA `b = c`, $d + e$ and [two words](of_a_link.ipynb).\n\n| no | table |\n"
    assert words(text) == 6


@masters
def test_a_question_follows_its_text_and_a_result_its_idea(notebook):
    """A merge can shuffle cells so that each still runs."""
    places = {cell.id: place for place, cell in enumerate(nbformat.read(notebook, as_version=4).cells)}
    for cell, place in places.items():
        for ending in ("-ask", "-harm-idea", "-repair-idea"):
            shown = cell.removesuffix("-idea") if ending.endswith("idea") else cell.removesuffix(ending)
            if cell.endswith(ending):
                assert place < places.get(shown, len(places)), cell
        if cell.endswith("-repair"):
            stem = cell.removesuffix("-repair")
            assert place == max(n for other, n in places.items() if other.startswith(stem + "-")), cell


@masters
def test_a_cell_of_prose_is_short(notebook):
    prose = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "markdown"]
    assert {cell.id: words(cell.source) for cell in prose if words(cell.source) > MOST_WORDS} == {}


@masters
def test_a_line_of_code_is_not_cut_off_on_a_small_screen(notebook):
    long = [
        (c.id, line)
        for c in code_cells(notebook)
        for line in c.source.splitlines()
        if len(line) > MOST_COLUMNS
    ]
    assert long == []


@masters
def test_a_notebook_is_quickly_opened(notebook):
    assert notebook.stat().st_size < 640_000


@masters
def test_hints_are_asked_for(notebook):
    """None lies folded in a cell, where a double click opens all. What a case of the clinic was may, and what
    an answer sums up: right behind its question."""
    cells = nbformat.read(notebook, as_version=4).cells
    folded = [(before, cell) for before, cell in itertools.pairwise(cells) if "<details>" in cell.source]
    if notebook.stem == "20_clinic":
        assert [cell.id for _, cell in folded] == [f"p{p.number}-takeaway" for p in CHAPTERS[20].puzzles]
    else:
        assert [cell.id for before, cell in folded if "answer(" not in before.source] == []
    asked = {name for cell in cells for name in re.findall(r"^# hint\((\w+)\)$", cell.source, re.MULTILINE)}
    checked = {
        name for cell in cells for name in re.findall(r"^check\(\w+, (\w+)\)$", cell.source, re.MULTILINE)
    }
    raced = {name for cell in cells for name in re.findall(r"^race\((\w+)\)$", cell.source, re.MULTILINE)}
    (own,) = (chapter.hints for chapter in CHAPTERS if chapter.notebook == notebook.name)
    exercises = {name.upper() for name, version in own if not version} - checked - raced
    assert asked - raced - exercises == {name for name in checked if (name.lower(), "") in own}
    assert exercises <= asked


@masters
def test_a_hole_is_as_large_as_it_says(notebook):
    for cell in code_cells(notebook):
        for stated, lines in hole_sizes(cell.source):
            number = re.search(r"about (\d+) lines?", stated)
            assert number is None or abs(int(number.group(1)) - lines) <= max(1, lines // 4), (
                f"cell {cell.id}: says {stated!r}, has {lines}"
            )
