"""`check` gives the most basic fault first, always answers, and leaves no trace of a run behind."""

import dataclasses
import subprocess
import sys

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import LONG_SOFTMAX, LONG_SUM, MASKED_ADD, ledger, stages, trace
from puzzles_lib.authoring.solutions import define, kernel_cells, kernel_sources, solutions
from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION
from puzzles_lib.checker import compare, examine, probes
from puzzles_lib.checking import check
from puzzles_lib.puzzle import Case, Puzzle
from tests import kernels


def scale_rows(x: Float32[Tensor, "M N"], s: Float32[Tensor, " M"]) -> Float32[Tensor, "M N"]:
    """z[m, n] = x[m, n] * s[m]"""
    return x * s[:, None]


def ignores_scales(x: Float32[Tensor, "M N"], s: Float32[Tensor, " M"]) -> Float32[Tensor, "M N"]:
    return x.clone()


SCALE_ROWS = Puzzle(
    number="0",
    spec=scale_rows,
    formula="z_{mn} = x_{mn} s_m",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    cases=(Case(M=4, N=16, BLOCK_M=4, BLOCK_N=16), Case(M=10, N=13, BLOCK_M=4, BLOCK_N=16)),
    most_loads={"s": lambda s: s.M},
)


@triton.jit
def right(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def copies(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs = tl.program_id(0) * BLOCK_M * N + tl.arange(0, BLOCK_M * BLOCK_N)
    mask = (offs < M * N) & (offs < (tl.program_id(0) + 1) * BLOCK_M * N)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def right_but_for_scales(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x + 0 * s[:, None], mask=mask)


@triton.jit
def unmasked(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    s = tl.load(s_ptr + offs_m)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :])
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None])


@triton.jit
def empty(x_ptr, s_ptr, z_ptr):
    pass


@triton.jit
def first_element_only(x_ptr, z_ptr):
    tl.store(z_ptr, tl.load(x_ptr) + 10)


@triton.jit
def no_result(x_ptr, s_ptr):
    tl.load(x_ptr)


@triton.jit
def all_rows_by_each(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_n = tl.arange(0, BLOCK_N)
    for m in range(M):
        x = tl.load(x_ptr + m * N + offs_n, mask=offs_n < N)
        tl.store(z_ptr + m * N + offs_n, x * tl.load(s_ptr + m), mask=offs_n < N)


@triton.jit
def first_rows_only(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def all_rows_by_all(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_n = tl.arange(0, BLOCK_N)
    for m in range(M):
        x = tl.load(x_ptr + m * N + offs_n, mask=offs_n < N)
        s = tl.load(s_ptr + m)
        tl.store(z_ptr + m * N + offs_n, x * s + tl.program_id(0), mask=offs_n < N)


@triton.jit
def last_one_wins(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs = tl.arange(0, BLOCK_N)
    for m in range(M):
        tl.store(z_ptr + m * N + offs * 0, offs.to(tl.float32))


@triton.jit
def in_place(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs, mask=mask) * s[:, None], mask=mask)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask), mask=mask)


@triton.jit
def accumulates_into_garbage(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.atomic_add(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) * s[:, None], mask=mask)


@triton.jit
def leaks_padding(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    x = x + 0 * tl.sum(x, axis=1)[:, None]
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def reads_scales_twice(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M) + tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None] / 2, mask=mask)


@triton.jit
def never_ends(x_ptr, z_ptr):
    i = 0
    while i < 1:
        tl.store(z_ptr, 0.0)
        i -= 1


@triton.jit
def adds(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x + s[:, None], mask=mask)


FAULTS = [
    (
        unmasked,
        "out of bounds",
        "out-of-bounds load of s_ptr in program 2: elements 10..11; s has 10, numbered 0 to 9",
    ),
    (empty, "never written", "the kernel stores nothing there"),
    (no_result, "never written", "the kernel has no parameter z_ptr"),
    (first_rows_only, "never written", "78 of 130 elements of z are never written, starting with z[4, 0]"),
    (all_rows_by_all, "race", "programs 0 and 1 write different values to z[0, 0]"),
    (last_one_wins, "never written", "60 of 64"),
    (in_place, "input changed", "the kernel changes its input x"),
    (accumulates_into_garbage, "uninitialized", "z_ptr is read before anything is stored there"),
    (leaks_padding, "uninitialized", "depends on a lane that the load of x_ptr masks off"),
    (reads_scales_twice, "loads", "too many loads of s_ptr: 8 elements, but 4 are enough"),
    (adds, "values", "wrong values in z"),
]


def test_what_no_result_needs_is_no_part_of_the_least_and_may_not_be_loaded():
    nothing = {"s": lambda s: 0}
    ones = dataclasses.replace(SCALE_ROWS, spec=ignores_scales, most_loads=nothing, needed=nothing)
    report = examine(copies, ones)
    assert report.ok and [c.bytes_moved == c.bytes_least for c in report.cases] == [True, True], report
    (verdict,) = examine(right_but_for_scales, ones, until_failure=True).verdicts
    told = "4 elements of s_ptr are loaded, but no result depends on them"
    assert (verdict.kind, verdict.message, verdict.diagnosis) == ("loads", told, "")


def test_a_result_that_one_program_should_store_may_not_be_stored_twice():
    """Even if the values are the same, as here, where each program stores all rows."""
    alone = dataclasses.replace(SCALE_ROWS, most_loads=None)
    assert examine(all_rows_by_each, alone).ok
    once = dataclasses.replace(alone, stored_once=("z",))
    assert examine(right, once).ok
    (verdict,) = examine(all_rows_by_each, once, until_failure=True).verdicts
    told = "programs 0 and 1 both store z[0, 0]: the value is the same, but one program should store it"
    assert (verdict.kind, verdict.message) == ("race", told)
    with pytest.raises(ValueError, match="stored_once names"):
        dataclasses.replace(alone, stored_once=("x",))


def test_a_case_without_programs_passes_and_says_so():
    nothing = dataclasses.replace(
        SCALE_ROWS, cases=(*SCALE_ROWS.cases, Case(M=0, N=5, BLOCK_M=4, BLOCK_N=16))
    )
    report = examine(right, nothing)
    assert report.ok and report.cases[2].cost() == "no programs", report


def test_a_right_kernel_passes():
    report = examine(right, SCALE_ROWS)
    assert report.ok, str(report)
    assert [c.programs for c in report.cases] == [1, 3]
    assert [c.bytes_moved == c.bytes_least for c in report.cases] == [True, True]


@triton.jit
def talks(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    tl.static_print("x has", x.shape)
    tl.static_print("columns", BLOCK_N)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


def test_what_is_known_at_compile_time_is_said_once_for_all_cases(capsys):
    cases = (*SCALE_ROWS.cases, Case(M=5, N=30, BLOCK_M=4, BLOCK_N=32))
    for _ in range(2):  # and again in the next check
        assert examine(talks, dataclasses.replace(SCALE_ROWS, cases=cases)).ok
        small, *rest = capsys.readouterr().out.splitlines()
        assert small.startswith("x has [") and rest[0] == "columns 16"
        assert len(rest) == 3 and rest[1] != small and rest[2] == "columns 32"


@pytest.mark.parametrize("kernel, kind, words", FAULTS, ids=[k.__name__ for k, _, _ in FAULTS])
def test_the_fault_is_named(kernel, kind, words):
    report = examine(kernel, SCALE_ROWS)
    verdict = report.verdicts[0]
    assert (verdict.kind, words in verdict.message) == (kind, True), str(report)
    assert len(str(report).splitlines()) <= 12


@triton.jit
def into_an_input(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    tl.store(x_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def masks_added(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) + (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def rows_too_close(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * M + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def loads_by_its_number_only(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    row = tl.arange(0, BLOCK_M)[:, None]
    tl.store(z_ptr + row * N + offs_n[None, :], x * s[:, None], mask=mask)


@pytest.mark.parametrize(
    "kernel, words, line",
    [
        (
            into_an_input,
            "none of the 64 elements of z is written: the kernel stores to x_ptr instead, which is an input",
            "tl.store(x_ptr",
        ),
        (masks_added, "the mask of this store is False in every lane", "tl.store(z_ptr"),
        (
            rows_too_close,
            "several lanes of this store write to one element, such as z[0, 4]: your rows are",
            "tl.store(z_ptr",
        ),
        (
            first_rows_only,
            "overwrite each other at z[0, 0]: their offsets are the same, so use tl.program_id(0)",
            "tl.store(z_ptr",
        ),
        (
            loads_by_its_number_only,
            "z[0, 0]: their offsets are the same, although their tl.program_id(0) differs",
            "tl.store(z_ptr",
        ),
    ],
)
def test_why_elements_are_never_written_is_told(kernel, words, line):
    report = examine(kernel, SCALE_ROWS)
    verdict = report.verdicts[0]
    assert verdict.kind == "never written" and words in str(report), str(report)
    assert verdict.site.source.startswith(line)


@triton.jit
def reads_by_atomics(x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M) + tl.atomic_add(s_ptr + offs_m, 0.0, mask=offs_m < M)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None] / 2, mask=mask)


def test_an_atomic_reads_as_a_load_does():
    verdict = examine(reads_by_atomics, SCALE_ROWS).verdicts[0]
    assert "too many loads of s_ptr: 8 elements, but 4 are enough" in verdict.message


def test_the_learners_line_is_the_one_in_the_file():
    verdict = examine(unmasked, SCALE_ROWS).verdicts[0]
    with open(__file__) as file:
        assert file.read().splitlines()[verdict.site.line - 1].strip() == verdict.site.source
    assert verdict.site.source == "s = tl.load(s_ptr + offs_m)"


def test_two_lanes_of_one_store_are_a_race():
    puzzle = Puzzle(
        number="0", spec=scale_rows, grid=lambda s: (1,), cases=(Case(M=1, N=1, BLOCK_N=16, BLOCK_M=1),)
    )
    verdict = examine(last_one_wins, puzzle).verdicts[0]
    assert verdict.kind == "race" and "two lanes of one store" in verdict.message


@pytest.mark.parametrize(
    "name, is_told",
    [
        ("softmax_of_each_block", True),
        ("online_rescale_upside_down", True),
        ("denominator_of_all_rows", False),  # the one case that passes has one block, and one of rows
        ("padding_counted", False),  # the blocks that are not full are at fault
    ],
)
def test_several_blocks_are_blamed_where_one_makes_it_right(name, is_told):
    wrong = (w.kernel for w in kernels.wrong() if w.puzzle is LONG_SOFTMAX)
    kernel = next(kernel for kernel in wrong if kernel.__name__ == name)
    report = examine(kernel, LONG_SOFTMAX)
    assert report.verdicts[0].kind == "values"
    assert ("it is correct in the cases whose N fits into one block (N <= BLOCK_N)" in str(report)) is is_told


def test_after_a_time_limit_the_other_cases_are_not_tried():
    report = examine(never_ends, SCALE_ROWS, seconds=0.3)
    assert [c.status for c in report.cases] == ["FAIL", "skip"]
    assert "time limit: still running after 0.3 s of CPU time" in str(report)


@pytest.mark.parametrize("name", ["relu_the_wrong_way", "outer_x_and_y_swapped"])
def test_a_reason_is_looked_for_in_the_first_case_that_fails_only(name, monkeypatch):
    (wrong,) = [each for each in kernels.wrong() if each.kernel.__name__ == name]
    looked, diagnoses = [], compare._diagnoses
    monkeypatch.setattr(compare, "_diagnoses", lambda w: looked.append(str(w.case)) or diagnoses(w))
    report = examine(wrong.kernel, wrong.puzzle)
    failed = [case for case in report.cases if case.verdict]
    assert len(failed) > 3 and failed[0].verdict.diagnosis
    assert all(case.verdict.message and not case.verdict.diagnosis for case in failed[1:])
    assert set(looked) == {failed[0].label}


def test_examine_may_end_at_the_first_failure():
    assert [c.status for c in examine(empty, SCALE_ROWS).cases] == ["FAIL", "FAIL"]
    assert [c.status for c in examine(empty, SCALE_ROWS, until_failure=True).cases] == ["FAIL", "skip"]
    statuses = [c.status for c in examine(unmasked, SCALE_ROWS, until_failure=True).cases]
    assert statuses == ["pass", "FAIL"]


def test_what_is_no_kernel_is_answered_in_a_line():
    def plain(x_ptr):
        pass

    @triton.jit
    def greedy(x_ptr, z_ptr, eps):
        pass

    @triton.jit
    def constant_pointer(x_ptr: tl.constexpr, z_ptr):
        pass

    for kernel, words in [
        (plain, "plain is a Python function: put @triton.jit"),
        (right[(1,)], "kernel[grid] is a launch: pass only the kernel"),
        (3, "but is 3"),
        (None, "there is no kernel yet: kernel is None"),
        (greedy, "takes 'eps', which scale_rows does not have"),
        (constant_pointer, "x_ptr is a pointer, so it cannot be a tl.constexpr"),
    ]:
        report = examine(kernel, SCALE_ROWS)
        assert not report.ok and words in str(report)


def test_a_parameter_with_a_default_needs_no_offer():
    @triton.jit
    def with_default(
        x_ptr, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, ONE: tl.constexpr = 1
    ):
        right(x_ptr, s_ptr, z_ptr, M * ONE, N, BLOCK_M, BLOCK_N)

    assert examine(with_default, SCALE_ROWS).ok


TILED = dataclasses.replace(
    SCALE_ROWS,
    cases=(Case(M=4, N=16, BLOCK_M=4, BLOCK_N=16), Case(M=10, N=12, BLOCK_M=4, BLOCK_N=16)),
    most_loads=None,
    descriptors={"x": lambda s: (s.BLOCK_M, s.BLOCK_N)},
)


def test_a_kernel_may_take_a_descriptor_from_the_host():
    @triton.jit
    def tiled(x_desc, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = tl.arange(0, BLOCK_N)
        x = x_desc.load([tl.program_id(0) * BLOCK_M, 0])
        s = tl.load(s_ptr + offs_m, mask=offs_m < M, other=0.0)
        place = z_ptr + offs_m[:, None] * N + offs_n[None, :]
        tl.store(place, x * s[:, None], mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))

    report = examine(tiled, TILED)
    assert report.ok and "1.00x" in str(report)
    shown = str(trace(tiled, TILED, case=1))
    assert "x  loaded: 120 of 120 elements" in shown and "cannot trace" not in shown
    assert "cp.async.bulk.tensor" in stages(tiled, TILED).ptx


def test_what_goes_wrong_with_a_descriptor_is_said():
    @triton.jit
    def one_place(x_desc, z_ptr, N):
        tl.store(z_ptr, tl.sum(x_desc.load([0])))

    @triton.jit
    def into_an_input(x_desc, s_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
        offs_n = tl.arange(0, BLOCK_N)
        x = x_desc.load([tl.program_id(0) * BLOCK_M, 0])
        s = tl.load(s_ptr + offs_m, mask=offs_m < M, other=0.0)
        place = z_ptr + offs_m[:, None] * N + offs_n[None, :]
        tl.store(place, x * s[:, None], mask=(offs_m[:, None] < M) & (offs_n[None, :] < N))
        x_desc.store([tl.program_id(0) * BLOCK_M, 0], x + 1)

    @triton.jit
    def next_tile(x_desc, z_ptr, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        m = tl.program_id(0) * BLOCK_M
        offs_m, offs_n = m + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_N)
        tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x_desc.load([m + BLOCK_M, 0]))

    @triton.jit
    def constant(x_desc: tl.constexpr, z_ptr):
        pass

    for kernel, words in [
        (one_place, "the compiler refuses this kernel: "),
        (into_an_input, "the kernel changes its input x; it may only write to its outputs"),
        (next_tile, "wrong values in z"),
        (constant, "x_desc is a descriptor, so it cannot be a tl.constexpr"),
    ]:
        report = examine(kernel, TILED)
        assert not report.ok and words in str(report), report
    report = examine(next_tile, SCALE_ROWS)
    assert "takes 'x_desc', which scale_rows does not have" in str(report)


def test_misuse_of_check_itself_raises_and_names_the_parameter():
    with pytest.raises(TypeError, match="the arguments are swapped, write check"):
        check(SCALE_ROWS, scale_rows)
    for seconds, shown in [(0, "0"), ("ten", "'ten'"), (float("nan"), "nan"), (True, "True")]:
        with pytest.raises(ValueError, match=f"check: seconds must be a number above 0, but is {shown}"):
            check(right, SCALE_ROWS, seconds=seconds)


def test_a_kernel_that_cannot_be_read_is_a_line_and_no_traceback():
    def outer():
        @triton.jit
        def empty_cell(z_ptr):
            tl.store(z_ptr, later)

        report = examine(empty_cell, SCALE_ROWS)
        later = 1
        return report

    report = outer()
    assert not report.ok and "the checker failed on this kernel (ValueError" in str(report)


def test_an_interrupt_shows_few_frames(monkeypatch):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(probes, "attempt", interrupted)
    with pytest.raises(KeyboardInterrupt, match="the check was interrupted") as caught:
        check(right, SCALE_ROWS)
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert len(caught.traceback) == 2


def test_progress_is_noted_by_check_and_not_by_examine(monkeypatch):
    noted = []
    monkeypatch.setattr(ledger, "record", lambda name, solved, *_: noted.append((name, solved)))
    solution = solutions()["masked_add"]
    examine(solution, MASKED_ADD)
    check(solution, MASKED_ADD)
    check(first_element_only, MASKED_ADD)
    assert noted == [("masked_add", True), ("masked_add", False)]


def test_the_progress_counts_kernels_and_keeps_the_last_fault():
    stub, solution = kernel_cells("notebooks")["masked_add"], kernel_cells()["masked_add"]

    def checked(source):
        check(define(source, f"<{len(source)}>"), MASKED_ADD)
        return ledger.entries()[0]["masked_add"]

    assert checked(stub) == ledger.Entry("open")
    wrong = solution.replace("+ 10", "+ 11")
    first = checked(wrong)
    assert (first.state, first.tries, first.last) == ("tried", 1, "values")
    assert checked(wrong + "  # the same") == first
    check(None, MASKED_ADD)
    assert ledger.entries()[0]["masked_add"].last == "signature"
    solved = checked(solution)
    assert (solved.state, solved.tries, solved.last) == ("solved", 3, "pass")


def test_progress_is_of_the_courses_own_puzzles(monkeypatch):
    """Not of another of the same name, nor of one with fewer cases."""
    noted = []
    monkeypatch.setattr(ledger, "record", lambda name, *_: noted.append(name))
    easier = dataclasses.replace(MASKED_ADD, cases=MASKED_ADD.cases[:1])
    assert check(solutions()["masked_add"], easier).ok and easier.name == MASKED_ADD.name
    assert check(right, SCALE_ROWS).ok
    assert noted == []


def test_trouble_with_the_progress_file_is_a_line_in_the_report(monkeypatch):
    monkeypatch.setattr(ledger, "record", lambda *_: "progress: cannot write")
    report = check(solutions()["masked_add"], MASKED_ADD)
    assert report.ok and str(report).splitlines()[-1] == "progress: cannot write"


def test_reports_repeat_to_the_letter():
    for kernel in (right, unmasked, adds):
        assert str(examine(kernel, SCALE_ROWS)) == str(examine(kernel, SCALE_ROWS))


def test_the_spec_sees_untouched_inputs():
    from puzzles_lib.inputs import make_inputs

    case = SCALE_ROWS.cases[0]
    before = {n: t.clone() for n, t in make_inputs(SCALE_ROWS, case).items()}
    examine(in_place, SCALE_ROWS)
    assert all(torch.equal(t, before[n]) for n, t in make_inputs(SCALE_ROWS, case).items())


def test_triton_interpret_set_between_triton_and_the_library_does_no_harm(tmp_path):
    """Set before Triton is imported, check says what to do: `tests/test_survival.py`."""
    script = tmp_path / "script.py"
    script.write_text(
        "import os\n"
        "import triton, triton.language as tl\n"
        "os.environ['TRITON_INTERPRET'] = '1'\n"
        "from puzzles_lib.checker import examine\n"
        "from tests.test_checker import SCALE_ROWS, right\n"
        "print(examine(right, SCALE_ROWS))\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, env=_environment(), timeout=240
    )
    assert done.stderr == "" and "all 2 cases pass" in done.stdout


def _environment() -> dict[str, str]:
    import os
    from pathlib import Path

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}


@triton.jit
def writes_nothing(z_ptr):
    pass


def test_a_result_of_one_element_is_told_in_the_singular():
    assert "z is never written: the kernel stores nothing there" in str(examine(writes_nothing, LONG_SUM))


ADDRESSED = """\
@triton.jit
def masked_add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask, at = offs < N, x_ptr.to(tl.int64)
    ADD
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + add, mask=mask)
"""


@pytest.mark.parametrize(
    "told",
    [
        "at % 4096 == 0",
        "at % 1024 == 0",
        "(at >> 20) % 2 == 0",
        "at > (1 << 48)",
        "(z_ptr.to(tl.int64) - at) % 1024 == 0",
    ],
)
def test_what_depends_on_an_address_is_refused(told: str) -> None:
    """On a GPU `at % 1024` is whatever the allocator has left; here it would always be 0."""
    report = examine(define(ADDRESSED.replace("ADD", f"add = tl.where({told}, 10, 9)"), "masked"), MASKED_ADD)
    assert not report.ok and "depends on an address" in str(report), str(report)


@pytest.mark.parametrize(
    "line",
    [
        "add = tl.where(at % 512 == 0, 10, 9)",  # what torch's allocator promises
        "x_ptr = at.to(tl.pointer_type(tl.float32)); add = 10",
        "x_ptr = (at + 64).to(tl.pointer_type(tl.float32)) - 16; add = 10",
        "x_ptr = tl.multiple_of(x_ptr, 16); add = 10",
        "add = tl.where(at % 4096 == 0, 10.0, 10.0 + 1e-8)",
    ],
)
def test_a_kernel_may_make_numbers_of_addresses(line: str) -> None:
    report = examine(define(ADDRESSED.replace("ADD", line), "masked"), MASKED_ADD, salt="autumn")
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "end, told",
    [
        ("min(start_q + BLOCK_Q, T)", ""),
        ("T", "after a program's last query are loaded in vain"),
        ("max(start_q + BLOCK_Q, T)", "after a program's last query are loaded in vain"),
        ("start_q + 2 * BLOCK_Q", "after a program's last query are loaded in vain"),
    ],
)
def test_keys_that_no_query_of_a_program_sees_must_not_be_loaded(end, told):
    source = kernel_sources()["flash_attention"]
    assert source.count("    end = min(start_q + BLOCK_Q, T)") == 1
    kernel = define(source.replace("    end = min(start_q + BLOCK_Q, T)", f"    end = {end}"), f"<to {end}>")
    report = examine(kernel, FLASH_ATTENTION)
    assert report.ok == (not told)
    assert [verdict.kind for verdict in report.verdicts[:1]] == (["loads"] if told else [])
    assert told in str(report)


def test_loads_that_no_slip_explains_get_the_general_advice():
    source = kernel_sources()["flash_attention"]
    again = "tl.load(k_ptr + offs_kv, mask=mask_kv, other=0.0)"
    assert source.count(again) == 1
    twice = source.replace(again, f"(2 * {again} - {again})").replace("min(start_q + BLOCK_Q, T)", "T")
    assert "only as often as its results need" in str(examine(define(twice, "<twice>"), FLASH_ATTENTION))
