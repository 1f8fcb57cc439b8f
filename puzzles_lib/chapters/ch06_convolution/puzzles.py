"""Chapter 06: a sliding window over images, and Conway's Game of Life."""

import torch
import triton
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def conv2d(
    x: Float32[Tensor, "N H W"],
    w: Float32[Tensor, "KH KW"],
) -> Float32[Tensor, "N H W"]:
    """z[n, i, j] = Σ_{a, b} w[a, b] · x[n, i + a, j + b]

    x counts as zero to the right of its last column and below its last row.
    """
    KH, KW = w.shape
    # [N, H + KH - 1, W + KW - 1]
    padded = torch.nn.functional.pad(x, (0, KW - 1, 0, KH - 1))
    windows = padded.unfold(1, KH, 1).unfold(2, KW, 1)  # [N, H, W, KH, KW]
    return (windows * w).sum(dim=(3, 4))


CONV2D = Puzzle(
    number="10",
    spec=conv2d,
    formula=r"z_{nij} = \sum_{a=0}^{KH-1} \sum_{b=0}^{KW-1} w_{ab} \; x_{n,\,i+a,\,j+b}",
    grid=lambda s: (
        triton.cdiv(s.N, s.BLOCK_N),
        triton.cdiv(s.H, s.BLOCK_H),
        triton.cdiv(s.W, s.BLOCK_W),
    ),
    cases=(
        Case(N=1, H=8, W=8, KH=3, KW=3, BLOCK_N=1, BLOCK_H=8, BLOCK_W=8),  # one program
        Case(N=4, H=8, W=16, KH=2, KW=3, BLOCK_N=2, BLOCK_H=4, BLOCK_W=8),  # 8 programs
        Case(N=7, H=11, W=28, KH=2, KW=3, BLOCK_N=4, BLOCK_H=8, BLOCK_W=16),  # ragged on every axis
        Case(N=3, H=3, W=7, KH=4, KW=3, BLOCK_N=4, BLOCK_H=2, BLOCK_W=8),  # filter taller than the image
        # filter wider than the image
        Case(N=2, H=9, W=3, KH=1, KW=5, BLOCK_N=4, BLOCK_H=16, BLOCK_W=4, fill={"x": inputs.large}),
    ),
    contract=Contract(
        {
            "KH": Size(9),  # taller than H, no filter's last rows count; so with KW and W
            "KW": Size(17),
            "H": Size(40),
            "W": Size(70),
            "N": Size(17),
            "BLOCK_N": (4, 16),
            "BLOCK_H": (8, 32),
            "BLOCK_W": lambda s: (16,) if s.BLOCK_N * s.BLOCK_H > 256 else (16, 64),
        },
        most_programs=2,
    ),
)


def alive(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Boards on which two cells in five are alive: 1, the others 0."""
    return (torch.rand(shape, generator=generator) < 0.4).to(dtype)


def crowded(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Boards on which every cell is alive, so that only cells at the border have few neighbors."""
    return torch.ones(shape, dtype=dtype)


def life(x: Int32[Tensor, "H W"]) -> Int32[Tensor, "H W"]:
    """z[i, j] = 1 if n[i, j] is 3, or if n[i, j] is 2 and x[i, j] is 1; otherwise 0

    n[i, j] counts the live neighbors of a cell, of the eight around it.
    x contains 0 (dead) and 1 (alive), and every cell outside x is dead.
    """
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    squares = padded.unfold(0, 3, 1).unfold(1, 3, 1)  # [H, W, 3, 3]
    neighbors = squares.sum(dim=(2, 3)) - x
    return ((neighbors == 3) | ((neighbors == 2) & (x == 1))).to(x.dtype)


LIFE = Puzzle(
    number="10b",
    spec=life,
    formula=r"n_{ij} = \sum_{a=-1}^{1} \sum_{b=-1}^{1} x_{i+a,\,j+b} - x_{ij}",
    grid=lambda s: (triton.cdiv(s.H, s.BLOCK_H), triton.cdiv(s.W, s.BLOCK_W)),
    exact=("z",),
    cases=(
        Case(H=8, W=8, BLOCK_H=8, BLOCK_W=8, fill={"x": alive}),  # one program
        Case(H=16, W=32, BLOCK_H=8, BLOCK_W=16, fill={"x": alive}),  # 4 programs
        Case(H=13, W=21, BLOCK_H=4, BLOCK_W=16, fill={"x": alive}),  # ragged on both axes
        Case(H=1, W=7, BLOCK_H=2, BLOCK_W=4, fill={"x": alive}),  # a board of one row
        Case(H=9, W=5, BLOCK_H=8, BLOCK_W=8, fill={"x": crowded}),
    ),
    contract=Contract(
        {"H": Size(70), "W": Size(70), "BLOCK_H": (4, 16), "BLOCK_W": (16, 64)},
        fills=lambda s: ({"x": alive}, {"x": crowded}),
        most_programs=20,
    ),
)

PUZZLES = (CONV2D, LIFE)
