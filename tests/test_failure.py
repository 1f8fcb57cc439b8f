"""A failure draws itself: one map of what is wrong, and the call that shows it happen."""

import ast
import dataclasses
import re
import time

import nbformat
import pytest

from puzzles_lib import OUTER_ADD_BLOCKS, check
from puzzles_lib.authoring.solutions import define
from puzzles_lib.checker import Report, failure
from tests.notebook_run import chapters


def make(rows: str = "0", x_mask: bool = True, added: str = "") -> object:
    """The outer sum with its axes, its mask or its values changed."""
    mask = ", mask=offs_n < N" if x_mask else ""
    source = f"""
import triton
import triton.language as tl

@triton.jit
def mine_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id({rows}) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1 - {rows}) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n{mask})
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    z = x[None, :] + y[:, None]{added}
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)
"""
    return define(source, f"<failure {rows} {x_mask} {added}>")


def told(report: Report) -> list[str]:
    return [line.strip() for line in str(report).splitlines() if "watch(" in line]


FAULTS = {
    "out of bounds": (
        {"x_mask": False},
        "case=2, program=(0, 6)",
        "which program touches which elements of x",
    ),
    "never written": ({"rows": "1"}, "case=1", "which program touches which elements of z"),
    "values": (
        {"added": " + (tl.program_id(1) == 2)"},
        "case=1, program=(0, 2)",
        "where z is wrong",
    ),
}


@pytest.fixture(scope="module", params=FAULTS)
def fault(request) -> tuple[Report, str, str]:
    change, call, title = FAULTS[request.param]
    report = check(make(**change), OUTER_ADD_BLOCKS)
    assert next(c.verdict.kind for c in report.cases if c.verdict) == request.param
    return report, call, title


def test_the_call_names_kernel_puzzle_case_and_program(fault):
    report, call, _ = fault
    assert told(report) == [f"watch(mine_kernel, OUTER_ADD_BLOCKS, {call})"]
    assert told(report)[0] in report._repr_html_() and len(str(report).splitlines()) <= 12


def test_one_map_is_there_folded(fault):
    report, _, title = fault
    page = report._repr_html_()
    assert page.count("<svg") == page.count("<details") == 1 and "<details open" not in page
    assert re.search(r"<summary[^>]*>(.*?)</summary>", page)[1] == title


def test_the_map_is_the_same_each_time_and_no_part_of_the_report(fault):
    report, _, _ = fault
    assert report._repr_html_() == report._repr_html_()
    assert "draw" not in report.as_dict()["cases"][0] and Report.from_dict(report.as_dict()) == report


def test_the_map_costs_little(fault):
    report, _, _ = fault
    report._repr_html_()
    start = time.process_time()
    report._repr_html_()
    drawn = time.process_time()
    sum(i * i for i in range(2_000_000))
    loop = time.process_time() - drawn
    assert drawn - start < 6 * loop, "no slower than twelve million turns of a loop"


def test_what_is_never_written_is_a_region():
    page = check(make(rows="1"), OUTER_ADD_BLOCKS)._repr_html_()
    assert page.count(">never written<") == 2


def test_a_case_that_no_number_names_has_no_call():
    report = check(make(x_mask=False), OUTER_ADD_BLOCKS, salt="s")
    assert not report.ok and told(report) == [] and "<svg" in report._repr_html_()


def test_a_map_that_fails_leaves_the_report():
    report = check(make(added=" + 1"), OUTER_ADD_BLOCKS)
    failing = next(c for c in report.cases if c.verdict)
    assert failing.draw()[1].startswith("<svg")

    def broken() -> tuple[str, str]:
        raise RuntimeError("no")

    cases = tuple(dataclasses.replace(c, draw=broken) if c is failing else c for c in report.cases)
    page = dataclasses.replace(report, cases=cases)._repr_html_()
    assert "<svg" not in page and "wrong values in z" in page


def test_a_long_run_is_not_made_again(monkeypatch):
    monkeypatch.setattr(failure, "MOST_PROGRAMS", 20)  # the failing case has 21
    report = check(make(x_mask=False), OUTER_ADD_BLOCKS)
    assert told(report) and "<svg" not in report._repr_html_()


@pytest.mark.parametrize("notebook", chapters("notebooks"), ids=lambda path: path.stem)
def test_where_a_report_names_watch_it_is_imported(notebook):
    trees = [
        ast.parse(c.source) for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"
    ]
    called = {ast.unparse(node.func) for t in trees for node in ast.walk(t) if isinstance(node, ast.Call)}
    imported = {a.name for node in ast.walk(trees[0]) if isinstance(node, ast.ImportFrom) for a in node.names}
    assert "check" not in called or "watch" in imported
