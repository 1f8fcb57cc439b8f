"""A report names exchanged axes of the grid if, and only if, exchanging them makes the kernel correct."""

import pytest

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine

PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}
SWAPPED = "tl.program_id({}) and tl.program_id({}) are swapped"


def report_on(puzzle: str, source: str) -> str:
    return str(examine(define(source, f"<{puzzle} edited>"), PUZZLES[puzzle], until_failure=True))


def exchanged(source: str, first: int, second: int) -> str:
    place = "tl.program_id({})".format
    source = source.replace(place(first), "FIRST").replace(place(second), place(first))
    return source.replace("FIRST", place(second))


@pytest.mark.parametrize(
    "puzzle, first, second",
    [
        ("outer_add_blocks", 0, 1),
        ("mul_relu", 0, 1),
        ("conv2d", 1, 2),
        ("batched_matmul", 0, 1),
        ("batched_matmul", 0, 2),
        ("fused_dw", 0, 1),
    ],
)
def test_exchanged_axes_are_named(puzzle, first, second):
    source = exchanged(kernel_sources()[puzzle], first, second)
    assert SWAPPED.format(first, second) in (told := report_on(puzzle, source)), told


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("outer_add_blocks", "tl.program_id(1)", "tl.program_id(0)"),
        ("outer_add_blocks", "x[None, :] + y[:, None]", "x[None, :] - y[:, None]"),
        (
            "outer_add_blocks",
            "offs_m[:, None] * N + offs_n[None, :]",
            "offs_n[None, :] * M + offs_m[:, None]",
        ),
        ("mul_relu", "offs_m[:, None] * N", "offs_m[:, None] * M"),
        ("batched_matmul", "pid_b * M * N", "pid_b * M * K"),
        ("tile_order", "pid_m = first + place % rows", "pid_m = first + place % GROUP"),
    ],
)
def test_other_faults_are_not_taken_for_it(puzzle, old, new):
    source = kernel_sources()[puzzle]
    assert old in source
    told = report_on(puzzle, source.replace(old, new))
    assert "FAIL" in told and "are swapped: exchanged" not in told, told
