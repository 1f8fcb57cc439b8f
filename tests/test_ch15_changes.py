"""`changed`: the lines that one version of chapter 15's kernel loses and gains against another."""

import json
import re
import sys

import nbformat
import pytest

from puzzles_lib.authoring.release import strip
from puzzles_lib.authoring.solutions import ROOT, define, without_markers
from puzzles_lib.chapters.ch15_racing_cublas import changes, versions
from puzzles_lib.chapters.ch15_racing_cublas import race as racing
from puzzles_lib.chapters.ch15_racing_cublas import rung as rung_module
from puzzles_lib.chapters.ch15_racing_cublas.changes import changed
from puzzles_lib.chapters.ch15_racing_cublas.hasty import hasty
from puzzles_lib.chapters.ch15_racing_cublas.rung import Rung
from puzzles_lib.source import with_helpers
from puzzles_lib.stubs import HOLE

MASTER = ROOT / "solutions" / "15_racing_cublas.ipynb"


def handed_out(*cells: str):
    """The kernel of the last of these cells, as the reader gets it; other helpers are the library's."""
    exercise = strip(nbformat.read(MASTER, as_version=4))
    source = "\n\n\n".join(each.source for each in exercise.cells if each.id in cells)
    return define(source, f"<{cells[-1]}>", vars(versions))


def source_of(rung: Rung) -> str:
    return "\n".join(function.src for function in with_helpers(rung.kernel))


def like(rung: Rung, kernel, **other) -> Rung:
    settings = {"splits": rung.splits, **rung.options, **rung.constants, **other}
    return Rung(rung.name, kernel, descriptors=rung.descriptors, **settings)


def signs(told: changes.Changes, sign: str) -> list[str]:
    return [text.strip() for each, text in told.lines if each == sign]


def test_the_lines_that_go_and_come_and_their_neighbours():
    told = changed(versions.subnormal, versions.one_dot)
    assert "for j in tl.static_range(8):" in signs(told, "-")
    assert "tl.assume(first < last)" in signs(told, "+")
    assert "splits = tl.num_programs(2)" in signs(told, " ")
    assert "acc = tl.dot(x, dy, acc)  # [BLOCK_N, BLOCK_M]" in signs(told, "-")  # out of the inner loop
    assert told.headline == (
        f"4 subnormals → 5 one dot per iteration: "
        f"{len(signs(told, '-'))} lines removed, {len(signs(told, '+'))} added"
    )
    assert str(told).splitlines()[1:3] == ["launched with BLOCK_K 128 → 64", "- removed   + added"]


def test_what_stays_is_not_shown():
    """Not the signature, whose name alone is another, nor a helper that both have."""
    told = changed(versions.along_k, versions.subnormal)
    assert not any("def " in text or "BLOCK_N: tl.constexpr" in text for _, text in told.lines)
    told = changed(versions.whole, versions.in_pieces)
    assert "low, high = tl.split" not in str(told) and "first, last" not in str(told)
    assert "def halves(tile):" in signs(told, "+") and "fmt: skip" not in str(told)


def test_the_same_kernel_otherwise_launched():
    told = changed(versions.first, versions.bigger)
    assert told.lines == ()
    assert str(told).splitlines() == [
        "1 first → 2 bigger tiles: the same kernel with another launch",
        "launched with BLOCK_M 64 → 256, BLOCK_N 64 → 128, BLOCK_K 32 → 64, warps 4 → 8",
    ]
    assert changed(versions.by_tma, versions.filled).launch == ("parts 8 → 7",)
    assert "descriptor of dy none → 128 x 256" in changed(versions.filled, versions.whole).launch


def test_names_comments_and_empty_lines_make_no_difference():
    source = "@triton.jit\n" + versions.along_k.kernel.src.replace("along_k_kernel", "mine")
    mine = define(source.replace("  # row of words", "\n\n    # rows\n"), "<mine>")
    told = changed(versions.along_k, like(versions.along_k, mine))
    assert told.lines == () and str(told) == "3 packed along K → 3 packed along K: nothing changes"
    longer = define(source.replace("r = tl", "r = 1 * tl"), "<longer>")
    told = changed(versions.along_k, like(versions.along_k, longer))
    assert told.headline.endswith(": 1 line removed, 1 added")


@pytest.mark.parametrize(
    "cells, names",
    [
        (["r4-kernel"], ("along_k", "subnormal", "one_dot")),
        (["r5-fields", "r5-kernel"], ("subnormal", "one_dot", "whole")),
        (["r6-kernel"], ("one_dot", "by_tma", "whole")),
    ],
)
def test_an_open_hole_is_said_to_be_one_and_gives_nothing_away(cells, names):
    before, solved, after = (getattr(versions, name) for name in names)
    unsolved = like(solved, handed_out(*cells))
    answer = set(source_of(solved).splitlines()) - set(source_of(unsolved).splitlines())
    assert len(answer) >= 2
    for told in (changed(before, unsolved), changed(unsolved, after)):
        alone = answer - {text for rung in (before, after) for text in source_of(rung).splitlines()}
        for line in alone:
            assert line.strip() not in str(told) and line.strip() not in told._repr_html_()
    holes = [text for text in signs(changed(before, unsolved), "+") if text.startswith(HOLE)]
    assert len(holes) == source_of(unsolved).count(HOLE)
    assert "parts 8 → ?" in changed(versions.by_tma, like(versions.by_tma, solved.kernel, splits=...)).launch


def test_race_names_the_helper_that_is_not_solved():
    """Rung 9 calls rung 8's helper: its own lines may be there already."""
    exercise = strip(nbformat.read(MASTER, as_version=4))
    cells = {each.id: each.source for each in exercise.cells}
    solved = {each.id: without_markers(each.source) for each in nbformat.read(MASTER, as_version=4).cells}
    source = f"{cells['r8-kernel']}\n\n\n{solved['r9-kernel']}"
    kernel = define(source, "<rung 8 is open>", vars(versions))
    found = racing.race(like(versions.in_pieces, kernel))
    assert found.is_open and str(found).endswith("the helper unpacked isn't solved yet: its cell is above")
    assert "tile_sums" not in str(found)  # it calls `unpacked`, but has no hole of its own
    assert "helper" not in str(racing.race(like(versions.by_tma, handed_out("r6-kernel"))))
    told = str(racing.race(like(versions.one_dot, handed_out("r5-fields", "r5-kernel"))))
    assert told.count("isn't solved yet: its cell is above") == 2
    assert f"replace the comment `{HOLE}` with your lines" in told


def test_rung_6_gives_no_answer_to_rung_5_away():
    kernel = handed_out("r6-kernel")
    assert "3 <<" not in kernel.src and "reshape" not in kernel.src
    open_ones = like(versions.one_dot, handed_out("r5-fields", "r5-kernel"))
    assert "3 <<" not in str(changed(open_ones, hasty))  # the library's helpers aren't shown beside them


def test_the_comment_of_a_hole_that_is_filled_is_not_shown():
    source = "@triton.jit\n" + versions.subnormal.kernel.src
    source = source.replace("            bits =", f"            {HOLE} (about 3 lines)\n            bits =")
    mine = like(versions.subnormal, define(source, "<filled>"))
    assert HOLE in mine.kernel.src
    assert str(changed(versions.along_k, mine)) == str(changed(versions.along_k, versions.subnormal))


def test_long_ones_are_folded_and_short_ones_are_not():
    short = changed(versions.along_k, versions.subnormal)
    long = changed(versions.filled, versions.whole)
    assert len(short.lines) <= changes.FOLDED < len(long.lines)
    assert "<details" not in short._repr_html_() and "<details><summary" in long._repr_html_()
    for told in (short, long):
        page = told._repr_html_()
        assert page.count("<div style") == len(told.lines) + 2  # the legend, and the card
        assert not re.search(r"<(?!/?(div|pre|details|summary)\b)", page)
    assert "words &gt;&gt; 8" in short._repr_html_()


def test_a_kernel_edited_since_is_noted(monkeypatch):
    """`changed` refuses to compare, `race` and `standing` to judge code that isn't in the notebook."""
    current = racing.race(versions.first)
    words = "this is an older row_words_kernel"
    monkeypatch.setattr(rung_module, "stale_note", lambda kernel: words * (kernel is versions.first.kernel))
    told = changed(versions.along_k, versions.first)
    assert str(told).splitlines()[1].startswith(words) and words in told._repr_html_()
    assert told.headline.endswith(": not compared") and told.lines == ()
    monkeypatch.setattr(racing, "examine", None)  # nothing is run
    again = racing.race(versions.first)
    assert not again.ok and not again.is_open and str(again).startswith(f"1 first: not run\n       {words}")
    assert str(racing.standing(current)).startswith(f"1 first doesn't take part: {words}")


def test_in_a_notebook_race_notices_an_edited_kernel(monkeypatch):
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.clear_instance()
    shell = InteractiveShell.instance()
    monkeypatch.setitem(sys.modules, "__main__", shell.user_module)
    kernel = "@triton.jit\n" + versions.first.kernel.src
    rung = "first = Rung('1 first', row_words_kernel, splits=8, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)"
    imports = (
        "import triton, triton.language as tl\nfrom puzzles_lib.chapters.ch15_racing_cublas.rung import *"
    )
    try:
        for cell in (imports, kernel, rung):
            shell.run_cell(cell, store_history=True)
        fresh = rung_module.outdated(shell.user_ns["first"])
        shell.run_cell(kernel.replace("& 3, (BLOCK_K", "& 1, (BLOCK_K"), store_history=True)
        edited = rung_module.outdated(shell.user_ns["first"])
        shell.run_cell(rung, store_history=True)
        again = rung_module.outdated(shell.user_ns["first"])
        for cell in (kernel.replace("acc = tl.dot", "acc = = tl.dot"), rung):
            shell.run_cell(cell, store_history=True)
        stopped = rung_module.outdated(shell.user_ns["first"])
    finally:
        shell.history_manager.end_session()
        InteractiveShell.clear_instance()
    assert fresh == again == "" and "row_words_kernel has been edited" in edited
    assert "the newest cell with `def row_words_kernel` stopped before defining it" in stopped


def test_it_wants_rungs():
    with pytest.raises(TypeError, match=r"before must be a Rung, not str"):
        changed("1 first", versions.bigger)
    with pytest.raises(TypeError, match="after must be a Rung, not JITFunction"):
        changed(versions.first, versions.along_k_kernel)


def test_the_chapter_shows_it_where_a_kernel_is_new():
    cells = json.loads(MASTER.read_text())["cells"]
    text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    shown = re.findall(r"^changed\((\w+), (\w+)\)$", text, re.MULTILINE)
    rungs = {name for name, value in vars(versions).items() if isinstance(value, Rung)}
    others = rungs - {"first", "filled"}  # 7 is the reader's number of parts
    assert {after for _, after in shown} == {*others, "hasty"}
    assert {before for before, _ in shown} <= rungs


def test_figures_of_both_boxes_are_compared_once_both_were_raced(monkeypatch):
    """Only figures that differ are shown, and none of a version that was edited after its race."""
    monkeypatch.setattr(racing, "_LATEST", {})
    assert changed(versions.by_tma, versions.filled).box == ()
    racing.race(versions.by_tma), racing.race(versions.filled)
    told = changed(versions.by_tma, versions.filled)
    assert "programs: 144 for 132 slots → 126 for 132 slots" in told.box
    assert "forecast in a burst: 320.4 µs → 186.7 µs" in told.box
    assert not any(line.startswith(("registers", "clocks", "bytes")) for line in told.box)
    assert "    programs: 144 for 132" in str(told) and "<div>126 for 132 slots</div>" in told._repr_html_()
    monkeypatch.setattr(changes, "outdated", lambda rung: "edited since")
    assert changed(versions.by_tma, versions.filled).box == ()
