"""Wrong and correct kernels for chapter 04: long_sum, long_softmax and online_softmax."""

import torch
import triton
import triton.language as tl

from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX, LONG_SUM, ONLINE_SOFTMAX
from puzzles_lib.chapters.ch04_reductions.puzzles import long_softmax as long_softmax_spec
from tests.kernels import Wrong, edited

LOG2E = tl.constexpr(1.4426950408889634)
PLAIN_LOG2E = 1.4426950408889634

# ---- puzzle 7, wrong ---------------------------------------------------------------------------


@triton.jit
def first_block_only(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No loop: the row's first block is all that is summed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
    tl.store(z_ptr + offs_m, tl.sum(x, axis=1), mask=offs_m < M)


@triton.jit
def last_block_only(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`=` for `+=`: each block forgets the ones before."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def ragged_tail_dropped(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Walks N // BLOCK_N whole blocks: assumes that the block size divides."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for block in range(N // BLOCK_N):
        offs_n = block * BLOCK_N + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=offs_m[:, None] < M, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def one_row_a_program(x_ptr, z_ptr, N, BLOCK_N: tl.constexpr):
    """Takes the program id for the row: right only for BLOCK_M = 1."""
    row = tl.program_id(0)
    acc = 0.0
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        acc += tl.sum(tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=0.0), axis=0)
    tl.store(z_ptr + row, acc)


@triton.jit
def rows_summed_together(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """tl.sum without an axis adds up all rows of the program."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def wrong_axis(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """tl.sum over axis 0: column sums, of the wrong length for the accumulator."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=0)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def no_other(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Masked-off lanes hold whatever was there, and are summed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def padding_of_ones(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Padding lanes hold 1, which is not neutral in a sum."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=1.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def tail_reads_the_next_row(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No mask along the row: its last block runs on into the next row."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=offs_m[:, None] < M, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def tail_masked_by_the_end(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Masks by the tensor's end, not the row's: the start of the next row is added."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs = offs_m[:, None] * N + start + tl.arange(0, BLOCK_N)[None, :]
        acc += tl.sum(tl.load(x_ptr + offs, mask=offs < M * N, other=0.0), axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def sum_store_unmasked(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The mask is forgotten on the store."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc)


@triton.jit
def one_column_too_many(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`<=` for `<`: the first element of the next row is added, and the last row runs out."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] <= N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def block_for_stride(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A row stride of BLOCK_N: right only where a row is one block long."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * BLOCK_N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def row_length_written_in(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Walks 200 columns, the length of one case."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, 200, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def half_precision_accumulator(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The running sum is rounded to float16 after every block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float16)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc = (acc + tl.sum(x, axis=1)).to(tl.float16)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def accumulator_changes_type(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The accumulator starts as an integer and becomes a float in the loop."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.int32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def accumulator_changes_shape(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The accumulator starts as the number 0 and becomes a block in the loop."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = 0.0
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def row_in_one_arange(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr):
    """A whole row at once: tl.arange of a size known only at run time."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=offs_m[:, None] < M, other=0.0)
    tl.store(z_ptr + offs_m, tl.sum(x, axis=1), mask=offs_m < M)


@triton.jit
def mask_without_brackets(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """`a < M & b < N` is `a < (M & b) < N`."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = offs_m[:, None] < M & offs_n[None, :] < N
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def every_program_the_first_rows(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The program id is never used: all programs sum the first rows."""
    offs_m = tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        acc += tl.sum(x, axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def atomics_on_what_was_there(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Adds to z with atomics, though nobody has set z to zero."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
        tl.atomic_add(z_ptr + offs_m, tl.sum(x, axis=1), mask=offs_m < M)


# ---- puzzle 8, wrong ---------------------------------------------------------------------------


@triton.jit
def no_maximum(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """exp(x) as it stands: overflows for rows around 1000."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        denominator += tl.sum(tl.exp(tl.load(x_ptr + offs, mask=mask, other=float("-inf"))), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x) / denominator[:, None], mask=mask)


@triton.jit
def maximum_from_zero(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The running maximum starts at 0 and stays there for rows around -1000."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.zeros((BLOCK_M,), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def padding_counted(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Padding lanes hold 0, so each adds exp(0 - max) to the denominator."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=0.0)
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def padding_uninitialized(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No `other`: the padding lanes hold whatever was there, and are reduced."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def uninitialized_maximum(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No `other` in the maximum's loop only: garbage may win, though tl.max forgives a NaN."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        row_max = tl.maximum(row_max, tl.max(tl.load(x_ptr + offs, mask=mask), axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def one_row_softmax(x_ptr, z_ptr, N, BLOCK_N: tl.constexpr):
    """Takes the program id for the row: right only for BLOCK_M = 1."""
    row = tl.program_id(0)
    row_max = float("-inf")
    denominator = 0.0
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=0))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max), axis=0)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=float("-inf"))
        tl.store(z_ptr + row * N + offs_n, tl.exp(x - row_max) / denominator, mask=offs_n < N)


@triton.jit
def maximum_of_all_rows(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """tl.max without an axis: one maximum for all rows of the program, too far above some."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = float("-inf")
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        row_max = tl.maximum(row_max, tl.max(tl.load(x_ptr + offs, mask=mask, other=float("-inf"))))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max) / denominator[:, None], mask=mask)


@triton.jit
def denominator_of_all_rows(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """tl.sum without an axis: one denominator for all rows of the program."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = 0.0
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max[:, None]))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator, mask=mask)


@triton.jit
def maximum_of_the_first_block(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The first block's maximum is taken for the row's: overflows where a later one is far above."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    offs_n = tl.arange(0, BLOCK_N)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=float("-inf"))
    row_max = tl.maximum(tl.max(x, axis=1), -1e30)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def softmax_of_each_block(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Each block is normalised alone: right only where a row is one block long."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        exp = tl.exp(x - tl.max(x, axis=1)[:, None])
        tl.store(z_ptr + offs, exp / tl.sum(exp, axis=1)[:, None], mask=mask)


@triton.jit
def first_block_softmax(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No loop: the first block of each row, and nothing else."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
    exp = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(z_ptr + offs, exp / tl.sum(exp, axis=1)[:, None], mask=mask)


@triton.jit
def never_divided(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """exp(x - max) is stored; the denominator is computed nowhere."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]), mask=mask)


@triton.jit
def online_without_rescale(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The maximum moves, the sum so far does not: it stays relative to the old maximum."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def online_rescale_upside_down(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rescales by exp(new - old) where exp(old - new) is meant."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -50.0, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp(new_max - row_max)
        denominator += tl.sum(tl.exp(x - new_max[:, None]), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def online_rescales_the_block(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The rescale is applied to the new block's sum as well as to the old one."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = (denominator + tl.sum(tl.exp(x - new_max[:, None]), axis=1)) * tl.exp(row_max - new_max)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def online_from_minus_infinity(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """-inf - (-inf) = NaN in the rescale while all of the row so far is -inf."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp(row_max - new_max)
        denominator += tl.sum(tl.exp(x - new_max[:, None]), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def rescale_in_powers_of_two(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """log2(e) is forgotten in the rescale alone: right while the first block holds the maximum."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp2(row_max - new_max)
        denominator += tl.sum(tl.exp2((x - new_max[:, None]) * LOG2E), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp2((x - row_max[:, None]) * LOG2E) / denominator[:, None], mask=mask)


@triton.jit
def half_precision_denominator(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The denominator is accumulated in float16."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float16)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator = (denominator + tl.sum(tl.exp(x - row_max[:, None]), axis=1)).to(tl.float16)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def half_precision_input(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x is rounded to float16 before the exponential."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")).to(tl.float16).to(tl.float32)
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")).to(tl.float16).to(tl.float32)
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")).to(tl.float16).to(tl.float32)
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def half_precision_exponentials(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The exponentials are rounded to float16 before they are summed."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp(row_max - new_max)
        denominator += tl.sum(tl.exp(x - new_max[:, None]).to(tl.float16), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def tail_into_the_next_row(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The last store is masked by rows only: a ragged tail lands in the next row, and past the end."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp(row_max - new_max)
        denominator += tl.sum(tl.exp(x - new_max[:, None]), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        z = tl.exp(x - row_max[:, None]) / denominator[:, None]
        tl.store(z_ptr + offs, z, mask=offs_m[:, None] < M)


@triton.jit
def shifted_in_place(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Writes x - max back into x, so that the last loop is shorter: the caller's x is gone."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")) - row_max[:, None]
        tl.store(x_ptr + offs, x, mask=mask)
        denominator += tl.sum(tl.exp(x), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x) / denominator[:, None], mask=mask)


@triton.jit
def three_loops(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A correct softmax that reads x three times."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def plain_global(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """log2(e) from a plain Python global: a kernel may read tl.constexpr globals only."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")) * PLAIN_LOG2E
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp2(row_max - new_max)
        denominator += tl.sum(tl.exp2(x - new_max[:, None]), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf")) * PLAIN_LOG2E
        tl.store(z_ptr + offs, tl.exp2(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def torch_softmax(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Calls torch.softmax on a block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
    tl.store(z_ptr + offs, torch.softmax(x, dim=1), mask=mask)


@triton.jit
def spec_called(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Calls the puzzle's own spec on a block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
    tl.store(z_ptr + offs, long_softmax_spec(x), mask=mask)


maximum_from_minus_a_million = edited(
    LONG_SOFTMAX,
    "maximum_from_minus_a_million",
    "Starts the maximum from -1000000: for a row far below, each exp() is 0.",
    {'float("-inf"), tl.float32)': "-1e6, tl.float32)"},
)

WRONG = [
    Wrong(LONG_SOFTMAX, maximum_from_minus_a_million, kind="values", says="below the -1e+06"),
    Wrong(LONG_SUM, first_block_only, kind="values", says="first block of N"),
    Wrong(LONG_SUM, last_block_only, kind="values", says="last block of N"),
    Wrong(LONG_SUM, ragged_tail_dropped, kind="values", says="z[0]"),
    Wrong(LONG_SUM, one_row_a_program, kind="never written", says="z[4]"),
    Wrong(LONG_SUM, rows_summed_together, kind="values", says="z[0]"),
    Wrong(LONG_SUM, wrong_axis, kind="compiler", says="before the loop"),
    Wrong(LONG_SUM, no_other, kind="uninitialized", says="x_ptr"),
    Wrong(LONG_SUM, padding_of_ones, kind="values", says="too high by 56"),
    Wrong(LONG_SUM, tail_reads_the_next_row, kind="out of bounds", says="x_ptr"),
    Wrong(LONG_SUM, tail_masked_by_the_end, kind="values", says="wrong values in z: 4 of 5 elements"),
    Wrong(LONG_SUM, sum_store_unmasked, kind="out of bounds", says="z_ptr"),
    Wrong(LONG_SUM, one_column_too_many, kind="out of bounds", says="x_ptr"),
    Wrong(LONG_SUM, block_for_stride, kind="values", says="wrong values in z: 7 of 8 elements"),
    Wrong(LONG_SUM, row_length_written_in, kind="values", says="z[0]"),
    Wrong(LONG_SUM, half_precision_accumulator, kind="values", says="z[0]"),
    Wrong(LONG_SUM, accumulator_changes_type, kind="compiler", says="before the loop"),
    Wrong(LONG_SUM, accumulator_changes_shape, kind="compiler", says="before the loop"),
    Wrong(LONG_SUM, row_in_one_arange, kind="compiler", says="tl.arange"),
    Wrong(LONG_SUM, mask_without_brackets, kind="compiler", says="bind more tightly"),
    Wrong(LONG_SUM, every_program_the_first_rows, kind="never written", says="z[2]"),
    Wrong(LONG_SUM, atomics_on_what_was_there, kind="uninitialized", says="z_ptr"),
    Wrong(LONG_SOFTMAX, no_maximum, kind="values", says="NaN"),
    Wrong(LONG_SOFTMAX, maximum_from_zero, kind="values", says="maximum is far above"),
    Wrong(LONG_SOFTMAX, padding_counted, kind="values", says="z[0, 0]"),
    Wrong(LONG_SOFTMAX, padding_uninitialized, kind="uninitialized", says="x_ptr"),
    Wrong(LONG_SOFTMAX, uninitialized_maximum, kind="uninitialized", says="x_ptr"),
    Wrong(LONG_SOFTMAX, one_row_softmax, kind="never written", says="z[2, 0]"),
    Wrong(LONG_SOFTMAX, maximum_of_all_rows, kind="values", says="does tl.max have its axis"),
    Wrong(LONG_SOFTMAX, denominator_of_all_rows, kind="values", says="z[0, 0]"),
    Wrong(LONG_SOFTMAX, maximum_of_the_first_block, kind="values", says="NaN"),
    Wrong(LONG_SOFTMAX, softmax_of_each_block, kind="values", says="z[0, 0]"),
    Wrong(LONG_SOFTMAX, first_block_softmax, kind="never written", says="z[0, 16]"),
    Wrong(LONG_SOFTMAX, never_divided, kind="values", says="aren't divided by the denominator"),
    Wrong(LONG_SOFTMAX, online_without_rescale, kind="values", says="its own factor"),
    Wrong(LONG_SOFTMAX, online_rescale_upside_down, kind="values", says="its own factor"),
    Wrong(LONG_SOFTMAX, online_rescales_the_block, kind="values", says="z[0, 0]"),
    Wrong(LONG_SOFTMAX, online_from_minus_infinity, kind="values", says="NaN"),
    Wrong(LONG_SOFTMAX, rescale_in_powers_of_two, kind="values", says="its own factor"),
    Wrong(LONG_SOFTMAX, half_precision_denominator, kind="values", says="1.000283 times"),
    Wrong(LONG_SOFTMAX, half_precision_input, kind="values", says="z[0, 0]"),
    Wrong(LONG_SOFTMAX, half_precision_exponentials, kind="values", says="1.000283 times"),
    Wrong(LONG_SOFTMAX, tail_into_the_next_row, kind="out of bounds", says="z_ptr"),
    Wrong(LONG_SOFTMAX, shifted_in_place, kind="input changed", says="its input x"),
    Wrong(ONLINE_SOFTMAX, three_loops, kind="loads", says="x_ptr"),
    Wrong(ONLINE_SOFTMAX, online_rescales_the_block, kind="values", says="z[0, 0]"),
    Wrong(ONLINE_SOFTMAX, rescale_in_powers_of_two, kind="values", says="the factor has powers of 2"),
    Wrong(LONG_SOFTMAX, plain_global, kind="compiler", says="PLAIN_LOG2E"),
    Wrong(LONG_SOFTMAX, torch_softmax, kind="compiler", says="torch.softmax"),
    Wrong(LONG_SOFTMAX, spec_called, kind="compiler", says="long_softmax_spec"),
]

# ---- puzzle 7, right ---------------------------------------------------------------------------


@triton.jit
def one_reduction_at_the_end(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Adds block to block, lane by lane, and reduces once."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        acc += tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=0.0)
    tl.store(z_ptr + offs_m, tl.sum(acc, axis=1), mask=offs_m < M)


@triton.jit
def row_after_row(x_ptr, z_ptr, M, N: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """One row at a time inside the program, loops unrolled, a helper for the block."""
    for i in tl.static_range(BLOCK_M):
        row = tl.program_id(0) * BLOCK_M + i
        acc = 0.0
        for start in tl.static_range(0, N, BLOCK_N):
            acc += _block_sum(x_ptr + row * N, start, N, row < M, BLOCK_N)
        tl.store(z_ptr + row, acc, mask=row < M)


@triton.jit
def _block_sum(row_ptr, start, N, wanted, BLOCK_N: tl.constexpr):
    offs_n = start + tl.arange(0, BLOCK_N)
    return tl.sum(tl.load(row_ptr + offs_n, mask=wanted & (offs_n < N), other=0.0), axis=0)


@triton.jit
def backwards_with_pointers(
    x_ptr, z_ptr, M, N, stride_xm, stride_xn, stride_zm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    """From the last block to the first with a `while`, tiles transposed, strides as parameters."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    block = tl.cdiv(N, BLOCK_N)
    while block > 0:
        block -= 1
        offs_n = block * BLOCK_N + tl.arange(0, BLOCK_N)
        mask = (offs_n[:, None] < N) & (offs_m[None, :] < M)
        x = tl.load(x_ptr + offs_m[None, :] * stride_xm + offs_n[:, None] * stride_xn, mask=mask, other=0.0)
        acc += tl.sum(tl.trans(x), axis=1)
    tl.store(z_ptr + offs_m * stride_zm, acc, mask=offs_m < M)


@triton.jit
def sum_by_block_pointer(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A block pointer that advances along the row, padded with zeros."""
    first = tl.program_id(0) * BLOCK_M
    tile = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (first, 0), (BLOCK_M, BLOCK_N), (1, 0))
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for _ in range(0, N, BLOCK_N):
        acc += tl.sum(tl.load(tile, boundary_check=(0, 1), padding_option="zero"), axis=1)
        tile = tl.advance(tile, (0, BLOCK_N))
    offs_m = first + tl.arange(0, BLOCK_M)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def masked_after_the_load(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No `other`, but tl.where puts zeros in the padding lanes before they are used."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
        acc += tl.sum(tl.where(mask, x, 0.0), axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


@triton.jit
def row_mask_on_the_store_only(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Rows past the end stay unloaded garbage, are summed, and are not stored: nobody sees them."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask)
        acc += tl.sum(tl.where(offs_n[None, :] < N, x, 0.0), axis=1)
    tl.store(z_ptr + offs_m, acc, mask=offs_m < M)


# ---- puzzle 8, right ---------------------------------------------------------------------------


@triton.jit
def two_loops_finite_start(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Online: one loop for maximum and denominator, starting from a finite maximum."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp(row_max - new_max)
        denominator += tl.sum(tl.exp(x - new_max[:, None]), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def two_loops_base_two(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Online from -inf with exp2 and a guard against -inf - (-inf); blocks from the last to the first."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    blocks = tl.cdiv(N, BLOCK_N)
    for i in range(blocks):
        offs_n = (blocks - 1 - i) * BLOCK_N + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        shift = tl.where(new_max == float("-inf"), 0.0, new_max)
        denominator = denominator * tl.exp2((row_max - shift) * LOG2E)
        denominator += tl.sum(tl.exp2((x - shift[:, None]) * LOG2E), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp2((x - row_max[:, None]) * LOG2E) / denominator[:, None], mask=mask)


@triton.jit
def log_sum_exp(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """exp(x - max - log(denominator)): no division."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        row_max = tl.maximum(row_max, tl.max(x, axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        denominator += tl.sum(tl.exp(x - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None] - tl.log(denominator)[:, None]), mask=mask)


@triton.jit
def padding_zeroed_after_exp(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """No -inf in the padding of the sum: exp is set to 0 there with tl.where."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        row_max = tl.maximum(row_max, tl.max(tl.where(mask, x, float("-inf")), axis=1))
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        denominator += tl.sum(tl.where(mask, tl.exp(x - row_max[:, None]), 0.0), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask)
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def online_in_every_lane(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Each lane keeps its own maximum and sum; the lanes of a row meet once, at the end."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    lane_max = tl.full((BLOCK_M, BLOCK_N), -1e30, tl.float32)
    lane_sum = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * N + offs_n[None, :], mask=mask, other=float("-inf"))
        new_max = tl.maximum(lane_max, x)
        lane_sum = lane_sum * tl.exp(lane_max - new_max) + tl.exp(x - new_max)
        lane_max = new_max
    row_max = tl.max(lane_max, axis=1)
    denominator = tl.sum(lane_sum * tl.exp(lane_max - row_max[:, None]), axis=1)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        offs = offs_m[:, None] * N + offs_n[None, :]
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs, mask=mask, other=float("-inf"))
        tl.store(z_ptr + offs, tl.exp(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def one_row_after_another(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Scalars for one row at a time, rows in a loop that ends at M."""
    first = tl.program_id(0) * BLOCK_M
    for row in range(first, tl.minimum(first + BLOCK_M, M)):
        row_max = float("-inf")
        for start in range(0, N, BLOCK_N):
            offs_n = start + tl.arange(0, BLOCK_N)
            x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=float("-inf"))
            row_max = tl.maximum(row_max, tl.max(x, axis=0))
        denominator = 0.0
        for start in range(0, N, BLOCK_N):
            offs_n = start + tl.arange(0, BLOCK_N)
            x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=float("-inf"))
            denominator += tl.sum(tl.exp(x - row_max), axis=0)
        for start in range(0, N, BLOCK_N):
            offs_n = start + tl.arange(0, BLOCK_N)
            x = tl.load(x_ptr + row * N + offs_n, mask=offs_n < N, other=float("-inf"))
            tl.store(z_ptr + row * N + offs_n, tl.exp(x - row_max) / denominator, mask=offs_n < N)


@triton.jit
def scaled_before_the_maximum(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """x * log2(e) first, maximum after, as attention kernels do; a helper loads the block."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    row_max = tl.full((BLOCK_M,), -1e30, tl.float32)
    denominator = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        x, _, _ = _load_scaled(x_ptr, offs_m, start, M, N, BLOCK_N)
        new_max = tl.maximum(row_max, tl.max(x, axis=1))
        denominator = denominator * tl.exp2(row_max - new_max)
        denominator += tl.sum(tl.exp2(x - new_max[:, None]), axis=1)
        row_max = new_max
    for start in range(0, N, BLOCK_N):
        x, offs, mask = _load_scaled(x_ptr, offs_m, start, M, N, BLOCK_N)
        tl.store(z_ptr + offs, tl.exp2(x - row_max[:, None]) / denominator[:, None], mask=mask)


@triton.jit
def _load_scaled(x_ptr, offs_m, start, M, N, BLOCK_N: tl.constexpr):
    offs_n = start + tl.arange(0, BLOCK_N)
    offs = offs_m[:, None] * N + offs_n[None, :]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    return tl.load(x_ptr + offs, mask=mask, other=float("-inf")) * LOG2E, offs, mask


@triton.jit
def exponentials_kept_in_z(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Keeps what it computes in the result, and in two loops a name for two things."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    for n in range(N):
        top = tl.maximum(top, tl.load(x_ptr + m * N + n, m < M, 0.0))
    total = tl.zeros((BLOCK_M,), tl.float32)
    for n in range(N):
        e = tl.exp(tl.load(x_ptr + m * N + n, m < M, 0.0) - top)
        total += e
        tl.store(z_ptr + m * N + n, e, m < M)
    for n in range(N):
        e = tl.load(z_ptr + m * N + n, m < M)
        tl.store(z_ptr + m * N + n, e / total, m < M)


RIGHT = [
    (LONG_SOFTMAX, exponentials_kept_in_z),
    (LONG_SUM, one_reduction_at_the_end),
    (LONG_SUM, row_after_row),
    (LONG_SUM, backwards_with_pointers),
    (LONG_SUM, sum_by_block_pointer),
    (LONG_SUM, masked_after_the_load),
    (LONG_SUM, row_mask_on_the_store_only),
    (LONG_SOFTMAX, two_loops_finite_start),
    (LONG_SOFTMAX, two_loops_base_two),
    (ONLINE_SOFTMAX, two_loops_finite_start),
    (ONLINE_SOFTMAX, two_loops_base_two),
    (ONLINE_SOFTMAX, online_in_every_lane),
    (LONG_SOFTMAX, log_sum_exp),
    (LONG_SOFTMAX, padding_zeroed_after_exp),
    (LONG_SOFTMAX, online_in_every_lane),
    (LONG_SOFTMAX, one_row_after_another),
    (LONG_SOFTMAX, scaled_before_the_maximum),
]
