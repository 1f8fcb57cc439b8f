"""The masters: each runs, prints what it printed before, and solves its chapter's puzzles."""

import re

import nbformat
import pytest

from puzzles_lib.authoring.release import hole_sizes
from puzzles_lib.chapters import CHAPTERS
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


@masters
def test_a_hole_is_as_large_as_it_says(notebook):
    for cell in code_cells(notebook):
        for stated, lines in hole_sizes(cell.source):
            number = re.search(r"about (\d+) lines?", stated)
            assert number is None or abs(int(number.group(1)) - lines) <= max(1, lines // 4), (
                f"cell {cell.id}: says {stated!r}, has {lines}"
            )
