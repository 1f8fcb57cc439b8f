"""Right kernels for chapter 19; wrong ones are its mistakes."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch19_what_the_clock_says.puzzles import SPLIT_SUM, TILE_ORDER
from tests.kernels import edited

# ---- puzzle 39

swizzled = edited(
    TILE_ORDER,
    "swizzled",
    "By Triton's own helper for it.",
    {
        "pid_m = first + place % rows": (
            "pid_m, pid_n = tl.swizzle2d(pid // tiles_n, pid % tiles_n, tiles_m, tiles_n, GROUP)"
        ),
        "    pid_n = place // rows\n": "",
    },
)

to_and_fro = edited(
    TILE_ORDER,
    "to_and_fro",
    "Walks every second band from right to left.",
    {
        "pid_n = place // rows": (
            "pid_n = place // rows\n    pid_n = tl.where(first // GROUP % 2 == 0, pid_n, tiles_n - 1 - pid_n)"
        )
    },
)

# ---- puzzle 40


@triton.jit
def not_tuned(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A plain kernel, whose rows are counted from its pointers."""
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x = tl.load(x_ptr + m * N + n, mask=(m < M) & (n < N), other=0.0)
    tl.atomic_add(z_ptr + m, tl.sum(x, axis=1, keep_dims=True), mask=m < M)


restored = edited(
    SPLIT_SUM,
    "restored",
    "Puts back what was there, instead of clearing it.",
    {'reset_to_zero=["z_ptr"]': 'restore_value=["z_ptr"]'},
)


RIGHT = [
    (TILE_ORDER, swizzled),
    (TILE_ORDER, to_and_fro),
    (SPLIT_SUM, not_tuned),
    (SPLIT_SUM, restored),
]
