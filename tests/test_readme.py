"""The README says what is recorded, and names what is there."""

import re
from pathlib import Path

import pytest

from puzzles_lib.bench.recorded import rows, tables
from puzzles_lib.chapters import CHAPTERS

README = (Path(__file__).parents[1] / "README.md").read_text()


@pytest.mark.parametrize(
    "table",
    tables.readme().split("\n\n"),
    ids=["memory", "producers", "dw", "training", "ranks", "packed", "int8", "norms", "attention"],
)
def test_its_tables_are_the_recorded_figures(table):
    assert table in README, "run python -m puzzles_lib.bench report --readme"


def test_nothing_recorded_of_the_fused_product_is_below_what_it_says():
    ratios = {row["case"]: row["ratio"] for row in rows("dw") if row["path"] == "dequant_gemm_dw"}
    assert len(ratios) == 26 and "nothing there is below 0.99x" in README
    assert min(ratios.values()) >= 0.99


def test_its_syllabus_lists_every_chapter_in_order():
    assert re.findall(r"^\| (\d\d) ", README, re.MULTILINE) == [chapter.number for chapter in CHAPTERS]


def test_a_missing_figure_is_named():
    with pytest.raises(ValueError, match=r"0 recorded rows of nothing against copy for x"):
        tables._ratio([], "x", "nothing", "copy")
