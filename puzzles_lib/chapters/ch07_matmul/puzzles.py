"""Chapter 07: tl.dot, a float32 accumulator, and how often each input is read."""

import dataclasses
from collections.abc import Callable, Sequence

import torch
import triton
from jaxtyping import Float16
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import EVEN, whole
from puzzles_lib.puzzle import Case, Puzzle


def big_then_small(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return rows that start with 2048 or 6144, followed by small growing values, which a float16 sum loses.

    The small values of a row add up to 6 or 8, so that the sum is near a float16: tensor cores cut off a
    little of what they add, and must not round to another one.
    """
    values = torch.rand(shape, generator=generator) * torch.linspace(0, 1, shape[-1])
    values[..., 0] = 0.0
    values /= values.sum(-1, keepdim=True)
    values[..., 0::2, :] *= 6
    values[..., 1::2, :] *= 8
    values[..., 0::2, 0], values[..., 1::2, 0] = 2048.0, 6144.0
    return values.to(dtype)


def ones(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return ones."""
    return torch.ones(shape, dtype=dtype)


def batched_matmul(
    x: Float16[Tensor, "B M K"],
    y: Float16[Tensor, "B K N"],
) -> Float16[Tensor, "B M N"]:
    """z[b, m, n] = sum over k of x[b, m, k] · y[b, k, n]

    Sums run in float32 and are rounded to float16 once, at the end.
    """
    return x @ y


def _one_further(x: Tensor, y: Tensor, BLOCK_K: int) -> Tensor:
    """Return a product whose blocks of K begin at 0, 1, 2 ..., not at multiples of BLOCK_K.

    It is NaN if the first block alone gives nearly the same, because then the slip could be another one.
    """
    first, *others = (
        x[:, :, start : start + BLOCK_K] @ y[:, start : start + BLOCK_K]
        for start in range(max(1, x.shape[2] // BLOCK_K))
    )
    z = sum(others, first)
    return z if (z - first).abs().max() > 0.01 * z.abs().max() else z * torch.nan


def _blocks_at(starts: Callable[[int, int, int, int], Sequence[int]]) -> Callable:
    """Return `batched_matmul` whose blocks of K begin at other numbers: a function of M, K and two blocks.

    It is NaN if these are the first or the full blocks of K, because then the slip could be another one.
    """

    def slip(x: Tensor, y: Tensor, BLOCK_M: int, BLOCK_N: int, BLOCK_K: int) -> Tensor:
        M, K = x.shape[1:]
        z = torch.zeros(x.shape[0], M, y.shape[2], dtype=x.dtype)
        found = list(starts(M, K, BLOCK_M, BLOCK_K))
        for k in found:
            z = z + x[:, :, k : k + BLOCK_K] @ y[:, k : k + BLOCK_K]
        full = list(range(0, K // BLOCK_K * BLOCK_K, BLOCK_K))
        return z * torch.nan if found in ([0], full) and K > BLOCK_K else z

    return slip


def _added_twice(x: Tensor, y: Tensor, BLOCK_K: int) -> Tensor:
    """Return a product whose sum so far is added twice in each iteration; NaN if there is only one."""
    z = torch.zeros(x.shape[0], x.shape[1], y.shape[2], dtype=x.dtype)
    for k in range(0, x.shape[2], BLOCK_K):
        z = 2 * z + x[:, :, k : k + BLOCK_K] @ y[:, k : k + BLOCK_K]
    return z if x.shape[2] > BLOCK_K else z * torch.nan


Strides = tuple[int, int, int]


def _taken_from(tensor: Tensor, batch: int, row: int, column: int) -> Tensor:
    """Return what a load finds with these strides, in a tensor of the same shape; NaN is past its end."""
    b, i, j = torch.meshgrid(*(torch.arange(size) for size in tensor.shape), indexing="ij")
    at = b * batch + i * row + j * column
    return tensor.flatten()[at % tensor.numel()].where(at < tensor.numel(), torch.nan)


def _wrong_strides(
    *,
    of_x: Callable[[int, int, int], Strides] | None = None,
    of_y: Callable[[int, int, int], Strides] | None = None,
) -> Callable:
    """Return `batched_matmul` with the strides that a function of M, N and K gives."""

    def slip(x: Tensor, y: Tensor) -> Tensor:
        M, K, N = x.shape[1], x.shape[2], y.shape[2]
        left = _taken_from(x, *of_x(M, N, K)) if of_x else x
        right = _taken_from(y, *of_y(M, N, K)) if of_y else y
        return left @ right

    return slip


SLIPS = {
    "you'd get these values if the blocks of K began at 0, 1, 2 ...: they begin at multiples of BLOCK_K": (
        _one_further
    ),
    "you'd get these values if every iteration loaded the first block of K: offs_k begins at k": _blocks_at(
        lambda M, K, BLOCK_M, BLOCK_K: [0] * triton.cdiv(K, BLOCK_K)
    ),
    "you'd get these values from a loop without a step: write range(0, K, BLOCK_K)": _blocks_at(
        lambda M, K, BLOCK_M, BLOCK_K: range(K)
    ),
    "you'd get these values if acc were added twice: acc = tl.dot(x, y, acc) adds it already": (_added_twice),
    "you'd get these values from a loop in steps of BLOCK_M: its steps are BLOCK_K": _blocks_at(
        lambda M, K, BLOCK_M, BLOCK_K: range(0, K, BLOCK_M)
    ),
    "you'd get these values from a loop that ends at M: it ends at K": _blocks_at(
        lambda M, K, BLOCK_M, BLOCK_K: range(0, M, BLOCK_K)
    ),
    "you'd get these values from rows of x that are N apart: they are K apart": _wrong_strides(
        of_x=lambda M, N, K: (M * K, N, 1)
    ),
    "you'd get these values from rows of x that are M apart: they are K apart": _wrong_strides(
        of_x=lambda M, N, K: (M * K, M, 1)
    ),
    "you'd get these values if rows of x were 1 apart: they are K apart, and columns 1": _wrong_strides(
        of_x=lambda M, N, K: (M * K, 1, M)
    ),
    "you'd get these values if rows of y were 1 apart: they are N apart, and columns 1": _wrong_strides(
        of_y=lambda M, N, K: (K * N, 1, K)
    ),
    "you'd get these values from matrices of x that are M * N apart: they are M * K apart": _wrong_strides(
        of_x=lambda M, N, K: (M * N, K, 1)
    ),
    "you'd get these values from matrices of y that are M * N apart: they are K * N apart": _wrong_strides(
        of_y=lambda M, N, K: (M * N, N, 1)
    ),
    "you'd get these values from matrices of y that are M * K apart: they are K * N apart": _wrong_strides(
        of_y=lambda M, N, K: (M * K, N, 1)
    ),
    "you'd get these values from matrix 0 of x in every program: matrix pid_b is meant": _wrong_strides(
        of_x=lambda M, N, K: (0, K, 1)
    ),
    "you'd get these values from matrix 0 of y in every program: matrix pid_b is meant": _wrong_strides(
        of_y=lambda M, N, K: (0, N, 1)
    ),
    "you'd get these values from matrix 0 of x and y in every program: matrix pid_b is meant": _wrong_strides(
        of_x=lambda M, N, K: (0, K, 1), of_y=lambda M, N, K: (0, N, 1)
    ),
}
"""Wrong results that are often seen, by what the report says about them."""


def beyond_float16(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Fill with normal values, but with 20000 in each fourth row: sums there are infinite in float16."""
    values = torch.randn(shape, generator=generator)
    values[..., 3::4, :] = 20000.0
    return values.to(dtype)


def infinite_second_row(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Fill with normal values, but let row 1 of each matrix begin with infinity."""
    values = torch.randn(shape, generator=generator)
    values[..., 1:2, 0] = torch.inf
    return values.to(dtype)


def infinite_first_row(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Fill with normal values, but let row 0 of the second matrix and all later ones begin with infinity."""
    values = torch.randn(shape, generator=generator)
    values[1:, 0, 0] = torch.inf
    return values.to(dtype)


NEXT_ROW = "past K the next row begins, and infinity times 0 is NaN: compare offs_k with K in both masks"
"""What a hard case shows of kernels that mask one of the two factors by its offset alone."""

BATCHED_MATMUL = Puzzle(
    number="11",
    spec=batched_matmul,
    formula=r"z_{b, m, n} = \sum_{k=0}^{K-1} x_{b, m, k} \, y_{b, k, n}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N), s.B),
    cases=(
        # one program, one iteration
        Case(B=1, M=16, N=16, K=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),
        # several blocks on every axis, all full
        Case(B=2, M=64, N=32, K=96, BLOCK_M=32, BLOCK_N=16, BLOCK_K=32),
        # ragged on every axis
        Case(B=2, M=45, N=50, K=100, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),
        # fewer rows and columns than a block, one element in the last block of K; y is square
        Case(B=2, M=5, N=33, K=33, BLOCK_M=16, BLOCK_N=64, BLOCK_K=16),
        # a sum that float16 cannot keep
        Case(
            B=1, M=16, N=16, K=1024, BLOCK_M=16, BLOCK_N=16, BLOCK_K=64, fill={"x": big_then_small, "y": ones}
        ),
    ),
    stored_once=("z",),
    slips=SLIPS,
    hard={
        EVEN: Case(
            B=1,
            M=16,
            N=16,
            K=2,
            BLOCK_M=16,
            BLOCK_N=16,
            BLOCK_K=16,
            fill={"x": whole(40, 63), "y": whole(40, 63)},
        ),
        NEXT_ROW: Case(
            B=2,
            M=5,
            N=33,
            K=20,
            BLOCK_M=16,
            BLOCK_N=64,
            BLOCK_K=16,
            fill={"x": infinite_second_row, "y": infinite_first_row},
        ),
    },
    contract=Contract(
        {
            "B": Size(5),
            "K": Size(2100),
            "M": Size(150),
            "N": Size(150),
            "BLOCK_M": (32, 64, 128),
            "BLOCK_N": lambda s: (128,) if s.N > 64 else (32, 64, 128),
            "BLOCK_K": (64,),
        },
        fills=lambda s: ({}, {"x": beyond_float16}),
    ),
)

TILE_SHAPES = dataclasses.replace(
    BATCHED_MATMUL,
    cases=(
        # a wide z: 16 columns of tiles and one row of them
        Case(B=1, M=16, N=512, K=64, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32),
        # a tall z: 16 rows of tiles and one column of them
        Case(B=1, M=256, N=64, K=64, BLOCK_M=16, BLOCK_N=64, BLOCK_K=32),
        # the same, in half as many iterations
        Case(B=1, M=256, N=64, K=64, BLOCK_M=16, BLOCK_N=64, BLOCK_K=64),
        # ragged, 2 columns of tiles and 5 rows of them
        Case(B=1, M=70, N=50, K=100, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),
    ),
    contract=None,
)
"""Puzzle 11 in shapes for which the rule of how often inputs are read cannot be confused with another."""

SHAPE = Case(B=1, M=6144, N=320, K=256)
"""The product for which a tile is chosen."""
MULTIPROCESSORS = 132
"""Those of an H100: as many programs as it needs so that none of them is idle."""
REGISTERS = 128 * 1024
"""Bytes of registers that the accumulator may take."""
SHARED = 227 * 1024
"""Bytes of shared memory that a program on an H100 may take."""


def on_budget(BLOCK_M: int, BLOCK_N: int, BLOCK_K: int) -> Puzzle:
    """Return puzzle 11 for `SHAPE` with these blocks, and `SHARED` as a goal for its shared memory."""
    return dataclasses.replace(
        BATCHED_MATMUL,
        cases=(SHAPE.but(BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K),),
        contract=None,
        machine=(Goal(cases=(0,), wants=(Want("shared", most=SHARED),)),),
    )


PUZZLES = (BATCHED_MATMUL,)
