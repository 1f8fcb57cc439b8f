"""Right kernels for chapter 17; wrong ones are its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch17_normalisation.puzzles import (
    DW_BY_LOCK,
    LAYER_NORM,
    LAYER_NORM_DW,
    LAYER_NORM_DX,
    LINEAR_RECURRENCE,
    LONG_LAYER_NORM,
    RMS_NORM,
)
from tests.kernels import edited

# ---- puzzle 28


@triton.jit
def a_tile_of_one_row(x_ptr, r_ptr, w_ptr, y_ptr, h_ptr, N, BLOCK_N: tl.constexpr):
    """Moves the pointers to the row; divides by the root."""
    first = tl.cast(tl.program_id(0), tl.int64) * N
    n = tl.arange(0, BLOCK_N)[None, :]
    h = tl.load(x_ptr + first + n, mask=n < N, other=0).to(tl.float32)
    h += tl.load(r_ptr + first + n, mask=n < N, other=0)
    scale = 1.0 / tl.sqrt(tl.sum(h * h, axis=1, keep_dims=True) * (1.0 / N) + 1e-6)
    w = tl.load(w_ptr + n, mask=n < N, other=0.0)
    tl.store(y_ptr + first + n, (h * scale * w).to(tl.bfloat16), mask=n < N)
    tl.store(h_ptr + first + n, h.to(tl.bfloat16), mask=n < N)


h_stored_first = edited(
    RMS_NORM,
    "h_stored_first",
    "Stores h before the norm is known, and fills lanes past the end after the loads.",
    {
        "x_ptr + row + n, mask=mask, other=0.0": "x_ptr + row + n, mask=mask",
        "r_ptr + row + n, mask=mask, other=0.0": "r_ptr + row + n, mask=mask",
        "h = x + r": "h = tl.where(mask, x + r, 0.0)\n    tl.store(h_ptr + row + n, h, mask=mask)",
        "    tl.store(h_ptr + row + n, h, mask=mask)\n    tl.store(y": "    tl.store(y",
    },
)

# ---- puzzle 29


@triton.jit
def row_after_row(
    x_ptr, w_ptr, b_ptr, y_ptr, mean_ptr, rstd_ptr, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    n = tl.arange(0, BLOCK_N)
    w = tl.load(w_ptr + n, mask=n < N)
    b = tl.load(b_ptr + n, mask=n < N)
    first = tl.program_id(0) * BLOCK_M
    for m in range(first, tl.minimum(first + BLOCK_M, M)):
        row = m.to(tl.int64) * N
        x = tl.load(x_ptr + row + n, mask=n < N, other=0.0)
        mean = tl.sum(x) / N
        centred = tl.where(n < N, x - mean, 0.0)
        rstd = 1.0 / tl.sqrt(tl.sum(centred * centred) / N + 1e-5)
        tl.store(y_ptr + row + n, (x - mean) * (rstd * w) + b, mask=n < N)
        tl.store(mean_ptr + m, mean)
        tl.store(rstd_ptr + m, rstd)


mean_of_the_rest_added = edited(
    LAYER_NORM,
    "mean_of_the_rest_added",
    "Adds to the mean what the mean of the remainders is, which is nearly 0.",
    {
        "    centered = ": (
            "    mean += tl.sum(tl.where(mask, x - mean[:, None], 0.0), axis=1) / N\n    centered = "
        )
    },
)

# ---- puzzle 30


@triton.jit
def one_row_of_the_block_at_a_time(
    dy_ptr, x_ptr, w_ptr, mean_ptr, rstd_ptr, dx_ptr, M, N,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    n = tl.arange(0, BLOCK_N)
    w = tl.load(w_ptr + n, mask=n < N, other=0.0)
    first = tl.program_id(0) * BLOCK_M
    for m in range(first, tl.minimum(first + BLOCK_M, M)):
        row, rstd = m.to(tl.int64) * N, tl.load(rstd_ptr + m)
        xhat = (tl.load(x_ptr + row + n, mask=n < N, other=0.0) - tl.load(mean_ptr + m)) * rstd
        g = tl.load(dy_ptr + row + n, mask=n < N, other=0.0) * w
        g -= (tl.sum(g) + xhat * tl.sum(g * xhat)) / N
        tl.store(dx_ptr + row + n, g * rstd, mask=n < N)


sums_before_they_are_scaled = edited(
    LAYER_NORM_DX,
    "sums_before_they_are_scaled",
    "Multiplies the sums, which are few, instead of the elements.",
    {
        "xhat = (x - mean[:, None]) * rstd[:, None]": "centred = x - mean[:, None]",
        "along = tl.sum(g * xhat, axis=1) / N": "along = tl.sum(g * centred, axis=1) * rstd * rstd / N",
        "- xhat * along": "- centred * along",
    },
)

# ---- puzzle 31

acquired_apart = edited(
    LAYER_NORM_DW,
    "acquired_apart",
    "Releases where it counts; only the last one acquires, by another atomic.",
    {
        "tl.atomic_add(count_ptr + j, 1)": 'tl.atomic_add(count_ptr + j, 1, sem="release")',
        "        dw = tl.zeros((BLOCK_N,), tl.float32)\n        db": (
            '        all = tl.atomic_add(count_ptr + j, 0, sem="acquire")\n'
            "        dw = tl.zeros((BLOCK_N,), tl.float32) + (all - all)\n        db"
        ),
    },
)
counted_down = edited(
    LAYER_NORM_DW,
    "counted_down",
    "Counts to -PARTS, from the last part to the first, and lets an atomic set the count back.",
    {
        "tl.atomic_add(count_ptr + j, 1)": "tl.atomic_add(count_ptr + j, -1, sem='acq_rel', scope='sys')",
        "before == tl.num_programs(0) - 1": "before == 1 - tl.num_programs(0)",
        "range(tl.num_programs(0))": "range(tl.num_programs(0) - 1, -1, -1)",
        "tl.store(count_ptr + j, 0)": "tl.atomic_xchg(count_ptr + j, 0)",
    },
)

# ---- puzzle 32

half_orders = edited(
    DW_BY_LOCK,
    "half_orders",
    "Acquires where the lock is taken, releases where it is given back, and no more.",
    {
        "tl.atomic_cas(lock_ptr + j, 0, 1) == 1": 'tl.atomic_cas(lock_ptr + j, 0, 1, sem="acquire") != 0',
        "tl.atomic_xchg(lock_ptr + j, 0)": 'tl.atomic_xchg(lock_ptr + j, 0, sem="release")',
    },
)
taken_by_exchange = edited(
    DW_BY_LOCK,
    "taken_by_exchange",
    "Puts in a 1 whatever was there, until that was a 0; gives back by taking 1 off.",
    {
        "tl.atomic_cas(lock_ptr + j, 0, 1) == 1": "tl.atomic_xchg(lock_ptr + j, 1) == 1",
        "tl.atomic_xchg(lock_ptr + j, 0)": "tl.atomic_add(lock_ptr + j, -1)",
    },
)

# ---- puzzle 33


@triton.jit
def merged(mean, squares, count, other_mean, other_squares, other_count):
    total = count + other_count
    share = other_count / tl.maximum(total, 1.0)
    apart = other_mean - mean
    return mean + apart * share, squares + other_squares + apart * apart * count * share, total


@triton.jit
def element_by_element(x_ptr, mean_ptr, rstd_ptr, N, BLOCK_N: tl.constexpr):
    """Each element is a block of one, and `tl.reduce` merges them all."""
    m = tl.program_id(0)
    mean, squares, count = 0.0, 0.0, 0.0
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + m.to(tl.int64) * N + n, mask=n < N, other=0.0)
        one = (n < N).to(tl.float32)
        its_mean, its_squares, its_count = tl.reduce((x, x * 0.0, one), 0, merged)
        mean, squares, count = merged(mean, squares, count, its_mean, its_squares, its_count)
    tl.store(mean_ptr + m, mean)
    tl.store(rstd_ptr + m, tl.rsqrt(squares / N + 1e-5))


@triton.jit
def lane_by_lane(x_ptr, mean_ptr, rstd_ptr, N, BLOCK_N: tl.constexpr):
    """Each lane keeps mean and squares of what it has seen (Welford, 1962); they are merged at the end."""
    m, lane = tl.program_id(0), tl.arange(0, BLOCK_N)
    mean = tl.zeros((BLOCK_N,), tl.float32)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    count = tl.zeros((BLOCK_N,), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + lane
        x = tl.load(x_ptr + m.to(tl.int64) * N + n, mask=n < N, other=0.0)
        apart = tl.where(n < N, x - mean, 0.0)
        count += (n < N).to(tl.float32)
        mean += apart / tl.maximum(count, 1.0)
        squares += apart * tl.where(n < N, x - mean, 0.0)
    overall = tl.sum(mean * count) / N
    between = (mean - overall) * (mean - overall) * count
    tl.store(mean_ptr + m, overall)
    tl.store(rstd_ptr + m, 1.0 / tl.sqrt(tl.sum(squares + between) / N + 1e-5))


# ---- puzzle 34


@triton.jit
def one_after_the_other(a, x, next_a, next_x):
    return next_a * a, tl.fma(next_a, x, next_x)


@triton.jit
def carried_in_by_the_first_lane(a_ptr, x_ptr, start_ptr, h_ptr, T, BLOCK_T: tl.constexpr):
    """The first step of a block is taken before the scan, which then needs nothing else."""
    m, lane = tl.program_id(0), tl.arange(0, BLOCK_T)
    row = m.to(tl.int64) * T
    h = tl.load(start_ptr + m)
    for first in range(0, T, BLOCK_T):
        t = first + lane
        a = tl.load(a_ptr + row + t, mask=t < T, other=0.0)
        x = tl.load(x_ptr + row + t, mask=t < T, other=0.0)
        x = tl.where(lane == 0, a * h + x, x)
        _, block = tl.associative_scan((a, x), axis=0, combine_fn=one_after_the_other)
        tl.store(h_ptr + row + t, block, mask=t < T)
        h = tl.max(tl.where(lane == BLOCK_T - 1, block, float("-inf")))


read_back_after_a_barrier = edited(
    LINEAR_RECURRENCE,
    "read_back_after_a_barrier",
    "Reads the last h back from memory, where the barrier has it.",
    {
        "h = tl.sum(tl.where(t == first + BLOCK_T - 1, block, 0.0))": (
            "tl.debug_barrier()\n"
            "        h = tl.load(h_ptr + row + first + BLOCK_T - 1, mask=first + BLOCK_T <= T, other=0.0)"
        )
    },
)


RIGHT = [
    (RMS_NORM, a_tile_of_one_row),
    (RMS_NORM, h_stored_first),
    (LAYER_NORM, row_after_row),
    (LAYER_NORM, mean_of_the_rest_added),
    (LAYER_NORM_DX, one_row_of_the_block_at_a_time),
    (LAYER_NORM_DX, sums_before_they_are_scaled),
    (LAYER_NORM_DW, acquired_apart),
    (LAYER_NORM_DW, counted_down),
    (DW_BY_LOCK, half_orders),
    (DW_BY_LOCK, taken_by_exchange),
    (LONG_LAYER_NORM, element_by_element),
    (LONG_LAYER_NORM, lane_by_lane),
    (LINEAR_RECURRENCE, carried_in_by_the_first_lane),
    (LINEAR_RECURRENCE, read_back_after_a_barrier),
]
