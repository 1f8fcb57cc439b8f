"""README.md and RESULTS.md quote what is recorded, show what is current, and can be taken in at once."""

import re
import runpy
from pathlib import Path

import pytest

from puzzles_lib import MASKED_ADD, check
from puzzles_lib.chapters import CHAPTERS, puzzles
from puzzles_lib.timing.recorded import rows, tables

REPO = Path(__file__).parents[1]
README = (REPO / "README.md").read_text()
RESULTS = (REPO / "RESULTS.md").read_text()


@pytest.mark.parametrize(
    "table",
    tables.results().split("\n\n"),
    ids=lambda table: table[2:22].strip(),
)
def test_the_tables_of_the_results_are_the_recorded_figures(table):
    assert table in RESULTS, "run python -m puzzles_lib.bench report --results"


def test_nothing_recorded_of_the_fused_product_is_slower_than_the_results_say():
    ratios = {row["case"]: row["ratio"] for row in rows("dw") if row["path"] == "dequant_gemm_dw"}
    assert len(ratios) == 26 and "runs at 0.99x of the baseline or faster" in RESULTS
    assert min(ratios.values()) >= 0.99


def test_the_figures_of_the_readme_are_those_of_the_results():
    eager = RESULTS[RESULTS.index("| an eager step |") :].partition("\n\n")[0].splitlines()
    four = next(line.split("|") for line in eager if line.startswith("| packed, 4 bits, nearest"))
    shares = [float(cell[cell.index("(") + 1 : -2]) for cell in (four[2], four[4])]
    assert "On an H100" in README and shares == [0.96, 0.47]
    assert "4-bit activations takes 96% of PyTorch's time and 47% of the memory that" in README
    assert "A small language model takes 101% of the time (113% on an H200" in README
    assert [cell[cell.index("(") + 1 : -2] for cell in (four[6], four[7])] == ["1.01", "1.13"]


def test_what_the_results_say_of_compiled_steps_is_in_the_table():
    table = RESULTS[RESULTS.index("| a step with AdamW |") :].partition("\n\n")[0].splitlines()
    of = {cells[1].strip(): cells for cells in (row.split("|") for row in table[2:])}

    def shares(path: str, column: int) -> list[float]:
        """Its share of the unpacked, compiled step: of the language model and of the ViT."""
        pairs = ((of[path][n], of["torch, compiled"][n]) for n in (column, column + 3))
        return [round(100 * float(a.split()[0]) / float(b.split()[0])) for a, b in pairs]

    packed, budget = "packed, 4 bits, nearest, compiled", "torch, compiled, half the memory"
    assert [shares(packed, 2), shares(packed, 3)] == [[109, 128], [46, 47]]
    assert [shares(budget, 2), shares(budget, 3)] == [[107, 105], [58, 56]]
    assert "takes 9 to 28% longer than one without, for 46 to 47% of its memory" in RESULTS
    assert "`activation_memory_budget` costs 5 to 7% and leaves 56 to 58%" in RESULTS


def test_the_results_name_the_versions_of_all_records():
    found = set()
    for path in (REPO / "puzzles_lib/timing/recorded").glob("*.json"):
        text = path.read_text()
        if '"device": "NVIDIA' in text:
            found |= set(re.findall(r'"(torch|triton)": "(\d+\.\d+)', text))
    assert found == {("torch", "2.11"), ("triton", "3.6"), ("triton", "3.7")}
    assert "with torch 2.11 and Triton 3.6 or 3.7" in RESULTS


def test_the_syllabus_lists_every_chapter_in_order():
    assert re.findall(r"^\| (\d\d) ", README, re.MULTILINE) == [chapter.number for chapter in CHAPTERS]


def test_the_readme_counts_the_puzzles():
    assert f"The {len(puzzles())} puzzles take" in README


def test_the_readme_has_at_most_750_words():
    assert len(README.split()) <= 750


def test_its_picture_shows_what_check_says_today():
    from PIL import Image

    kernel = runpy.run_path(str(REPO / ".readme" / "check.py"))["kernel"]()
    with Image.open(REPO / ".readme" / "check.png") as picture:
        assert picture.text["report"] == str(check(kernel, MASKED_ADD)), "run python .readme/check.py"


@pytest.mark.browser
def test_the_first_screen_says_what_it_is_what_to_type_and_what_it_looks_like(open_html):
    import mistune
    from PIL import Image

    with Image.open(REPO / ".readme" / "check.png") as picture:
        width, height = picture.size
    page = mistune.create_markdown(escape=False, plugins=["table"])(README)
    frame = f'<div class="picture" style="aspect-ratio: {width} / {height}"></div>'
    page = re.sub(r"<img[^>]*>", frame, page)
    style = "body { font: 16px/1.5 sans-serif; width: 1012px; margin: 16px auto }"  # as wide as code hosts do
    view = open_html(f"<style>{style}</style>{page}", width=1280, height=800)
    for seen in ("text=Is it for you?", "text=make lab", ".picture >> nth=0"):
        bottom = view.locator(seen).evaluate("element => element.getBoundingClientRect().bottom")
        assert bottom <= 800, seen


def test_a_missing_figure_is_named():
    with pytest.raises(ValueError, match=r"0 recorded rows of nothing against copy for x"):
        tables._ratio([], "x", "nothing", "copy")
