"""The second line of a report is true of the run: strides, shares, shapes and starts are read from it."""

import dataclasses

import pytest
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD
from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD_BLOCKS
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM
from puzzles_lib.chapters.ch09_bit_packing.puzzles import PACK_BITS, UNPACK_BITS
from puzzles_lib.checker import examine
from puzzles_lib.checker.verdicts import on_the_grid
from puzzles_lib.puzzle import Case
from puzzles_lib.source import define

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\n"
LOOP = """def kernel(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    {start}
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (offs[None, :] < N)
        x = tl.load(x_ptr + m[:, None] * N + offs[None, :], mask, 0.0)
        {step}
    tl.store(z_ptr + m, acc, m < M)
"""
TOTAL = ("acc = 0", "acc += tl.sum(x, 1)")
LARGEST = ("acc = 0", "acc = tl.maximum(acc, tl.max(x, 1))")


@triton.jit
def rows_m_apart(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x, y = tl.load(x_ptr + n, n < N), tl.load(y_ptr + m, m < M)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(z_ptr + m[:, None] * M + n[None, :], x[None, :] + y[:, None], mask)


@triton.jit
def rows_of_blocks(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x, y = tl.load(x_ptr + n, n < N), tl.load(y_ptr + m, m < M)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(z_ptr + m[:, None] * BLOCK_N + n[None, :], x[None, :] + y[:, None], mask)


@triton.jit
def starts_at_the_id(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, i < N) + 10, i < N)


@triton.jit
def row_of_the_id(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((), tl.float32)
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        total += tl.sum(tl.load(x_ptr + row * N + offs, offs < N, 0.0), 0)
    tl.store(z_ptr + row, total)


@triton.jit
def no_column(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (offs[None, :] < N)
        x = tl.load(x_ptr + m[:, None] * N + offs[None, :], mask, float("-inf"))
        total += tl.sum(tl.exp(x - top), 1)
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (offs[None, :] < N)
        tl.store(z_ptr + m[:, None] * N + offs[None, :], total[:, None] + offs[None, :] * 0.0, mask)


@triton.jit
def right_for_one_row(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (offs[None, :] < N)
        x = tl.load(x_ptr + m[:, None] * N + offs[None, :], mask, float("-inf"))
        top = tl.maximum(top, tl.max(x, 1))
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (offs[None, :] < N)
        x = tl.load(x_ptr + m[:, None] * N + offs[None, :], mask, float("-inf"))
        total += tl.sum(tl.exp(x - top), 1)
    for n in range(0, N, BLOCK_N):
        offs = n + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (offs[None, :] < N)
        x = tl.load(x_ptr + m[:, None] * N + offs[None, :], mask, float("-inf"))
        z = tl.exp(x - top[:, None]) / total[:, None]
        tl.store(z_ptr + m[:, None] * N + offs[None, :], z, mask)


@triton.jit
def transposed_mask(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x, y = tl.load(x_ptr + n, n < N), tl.load(y_ptr + m, m < M)
    mask = (m[None, :] < M) & (n[:, None] < N)
    tl.store(z_ptr + m[:, None] * N + n[None, :], x[None, :] + y[:, None], mask)


@triton.jit
def returns_a_store(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.store(z_ptr + i, tl.load(x_ptr + i, i < N) + 10, i < N)
    return z


@triton.jit
def forgets_the_load(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = x_ptr + i
    tl.store(z_ptr + i, x + 10, i < N)


@triton.jit
def prints_a_shape(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < N)
    print("shape", x.shape)
    tl.store(z_ptr + i, x + 10, i < N)


@triton.jit
def starts_at_a_loaded_place(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    lane = tl.arange(0, BLOCK)
    begin = tl.program_id(0) * (tl.load(x_ptr) < 1e30).to(tl.int32)
    i = begin + lane
    x = tl.load(x_ptr + i, mask=i < N)
    tl.store(z_ptr + i, x + 10, i < N)


@pytest.mark.parametrize(
    "kernel, puzzle, words",
    [
        (starts_at_a_loaded_place, CONSTANT_ADD, ": both places depend on loaded values"),
        (
            rows_m_apart,
            OUTER_ADD_BLOCKS,
            "programs (0, 0) and (0, 2) overwrite each other at z[0, 64]: "
            "your rows are M = 64 elements apart, but rows of z are N = 96 apart",
        ),
        (rows_of_blocks, OUTER_ADD_BLOCKS, "your rows are BLOCK_N = 32 elements apart"),
        (
            starts_at_the_id,
            CONSTANT_ADD,
            "one starts 1 element after the other, but each program covers BLOCK = 32",
        ),
        (row_of_the_id, LONG_SUM, "each program stores 1 element of z, but its share is BLOCK_M = 2"),
        (right_for_one_row, LONG_SOFTMAX, "top[:, None] is a column, with one element per row"),
        (
            right_for_one_row,
            LONG_SOFTMAX,
            "an earlier case has BLOCK_M = 1, and a single element fits any shape",
        ),
        (transposed_mask, OUTER_ADD_BLOCKS, "the earlier cases compile, because BLOCK_M = BLOCK_N there"),
        (returns_a_store, CONSTANT_ADD, "write results with tl.store"),
        (returns_a_store, CONSTANT_ADD, "return z"),
        (forgets_the_load, CONSTANT_ADD, "tl.load(x) reads what is there"),
        (prints_a_shape, CONSTANT_ADD, "tl.static_print(x.shape) can"),
    ],
)
def test_the_cause_is_said(kernel, puzzle, words):
    report = str(examine(kernel, puzzle))
    assert words in report, report


DOUBLED = """def double_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask)
    z = x
    {line}
    tl.store(z_ptr + offs, {stored}, mask=mask)
"""


@pytest.mark.parametrize(
    "line, stored, words",
    [
        ("z * 2", "z", "0.5 times what it should be; the result of this line is never used\n"),
        ("x = 2 * x", "z", "the result of this line is never used\n       line 10: x = 2 * x"),
        ("x *= 2", "z", "the result of this line is never used\n       line 10: x *= 2"),
        ("N += 1", "z", "the result of this line is never used\n       line 10: N += 1"),
        ("z == 2 * x", "z", "== compares: write = to set z\n       line 10: z == 2 * x"),
        ("z = 3 * x", "z", ""),
        ("x = 3 * x", "x", ""),
        ("x = 3 * x; x += 0", "x", ""),
        ("z = 3 * z; x = z", "x", ""),
        ("for _ in range(2): z = z + 0", "z", ""),
        ("tl.device_print('z', z)", "z", ""),
    ],
)
def test_a_line_without_effect_is_named(line, stored, words):
    report = str(examine(define(HEAD + DOUBLED.format(line=line, stored=stored), "<idle>"), DOUBLE))
    assert "wrong values in z" in report
    assert words in report if words else "never used" not in report and "compares" not in report


@pytest.mark.parametrize("mask, why", [("N % BLOCK", ": N % BLOCK is 0 in this case"), ("N - N", "")])
def test_a_mask_that_leaves_a_remainder_of_0_is_explained(mask, why):
    source = HEAD + DOUBLED.format(line="z = 2 * x", stored="z").replace("offs < N", f"offs < {mask}")
    assert f"is False in every lane{why}\n" in str(examine(define(source, "<off>"), DOUBLE))


def test_a_share_is_named_only_if_all_are_of_that_size():
    """The last program's is smaller if the size is no multiple of the block."""

    def told(count: int) -> str:
        cases = (Case(M=count, N=5, BLOCK_M=2, BLOCK_N=8),)
        return str(examine(row_of_the_id, dataclasses.replace(LONG_SUM, cases=cases)))

    assert "but its share is" in told(8) and "but its share is" not in told(7)


@pytest.mark.parametrize(
    "lines, start",
    [
        (TOTAL, "tl.zeros([BLOCK_M], tl.float32)"),
        (LARGEST, 'tl.full([BLOCK_M], float("-inf"), tl.float32)'),
    ],
)
def test_a_start_that_is_advised_is_right_in_all_cases(lines, start):
    """BLOCK_M is 1 in the first case, and a start of one element would be refused in the second."""
    before, step = lines
    wrong = define(HEAD + LOOP.format(start=before, step=step), "<wrong start>")
    assert f"start with acc = {start}" in str(examine(wrong, LONG_SUM))
    mended = define(HEAD + LOOP.format(start=f"acc = {start}", step=step), "<advised start>")
    report = examine(mended, LONG_SUM)
    assert report.ok == (lines is TOTAL) and not report.verdict, report


@pytest.mark.parametrize(
    "puzzle, mask, words",
    [
        (LONG_SUM, "offs_m[:, None] < M", "lanes for columns 200 to 255 are on, but x has N = 200 columns"),
        (LONG_SUM, "offs_n[None, :] < N", "lanes for rows 5 to 7 are on, but x has M = 5 rows: compare the"),
        (OUTER_ADD_BLOCKS, "offs_m[:, None] < M", "compare the columns with N in the mask"),
        (OUTER_ADD_BLOCKS, "offs_n[None, :] < N", "compare the rows with M in the mask"),
    ],
)
def test_the_axis_that_a_mask_leaves_out_is_named(puzzle, mask, words):
    both = "(offs_m[:, None] < M) & (offs_n[None, :] < N)"
    source = kernel_sources()[puzzle.name]
    assert source.count(both) == 1
    report = str(
        examine(define(HEAD.removesuffix("@triton.jit\n") + source.replace(both, mask), "<one axis>"), puzzle)
    )
    assert "out-of-bounds" in report and words in report, report


CODES = (
    "lanes for columns 37 to {} are on, but a row of codes has N = 37 columns: compare the columns n with N"
)
WORDS = (
    "lanes for words 10 to 15 are on, but a row of words has W = 10 words: compare the words offs_w with W"
)


@pytest.mark.parametrize(
    "puzzle, mask, other, words",
    [
        (PACK_BITS, "mask=n < N", "mask=offs_w[:, None] < W", CODES.format(39)),
        (PACK_BITS, ", mask=n < N, other=0", "", CODES.format(63)),
        (PACK_BITS, "mask=offs_w < W", "mask=offs_w < N", WORDS),
        (UNPACK_BITS, "mask=n < N", "mask=offs_w[:, None] < W", CODES.format(39)),
        (UNPACK_BITS, "mask=offs_w < W", "mask=offs_w < N", WORDS),
        (PACK_BITS, "row * N + n", "row * W * F + n", ""),  # the rows are wrong, not the mask
    ],
)
def test_lanes_past_the_end_of_the_only_row_of_a_block_are_named(puzzle, mask, other, words):
    source = kernel_sources()[puzzle.name]
    assert source.count(mask) == 1
    wrong = HEAD.removesuffix("@triton.jit\n") + source.replace(mask, other)
    report = str(examine(define(wrong, "<a row's end>"), puzzle))
    assert "out-of-bounds" in report and words in report and ("lanes for" in report) == bool(words), report


def test_another_fault_in_a_later_case_is_named():
    report = examine(no_column, LONG_SOFTMAX)
    first, other = report.verdicts[0], next(v for v in report.verdicts if v.kind != "values")
    assert (first.kind, other.kind) == ("values", "compiler")
    assert "cases 2 to 7: do not compile" in str(report)
    assert str(report).splitlines()[1].endswith("(case=0)   wrong values")


def test_programs_have_as_many_ids_as_the_grid_has_axes():
    text = "load of x_ptr in program (3, 2, 0): elements 4..7"
    assert on_the_grid(text, 1) == text.replace("(3, 2, 0)", "3")
    assert on_the_grid(text, 2) == text.replace("(3, 2, 0)", "(3, 2)")
    assert on_the_grid(text, 3) == text
