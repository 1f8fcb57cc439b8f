"""Chapter 06: a sliding window over images, and Conway's Game of Life."""

import operator
from collections.abc import Callable

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
    # the KH rows and KW columns under the filter, for each result: [N, H, W, KH, KW]
    windows = padded.unfold(1, KH, 1).unfold(2, KW, 1)
    return (windows * w).sum(dim=(3, 4))


def _conv2d_slip(
    *,
    swapped: bool = False,
    unshifted: bool = False,
    flipped: bool = False,
    last: bool = False,
    tall: bool = False,
    centered: bool = False,
    by_offset: bool = False,
    narrow: bool = False,
    turned: bool = False,
    ones: bool = False,
    images: Callable[[int, int], int] = operator.mul,
    forward: tuple[int, int] = (1, 1),
    short: tuple[int, int] = (0, 0),
    unweighted: bool = False,
    still: bool = False,
    corner: bool = False,
    exchanged: bool = False,
    whole: bool = False,
) -> Callable:
    """Return `conv2d` with a slip.

    swapped: rows shift by b and columns by a. unshifted: the mask tests the shifted pixel, but the load takes
    the pixel itself. flipped: the filter is flipped. last: only the last product counts. tall: rows of the
    image are taken to be H pixels long. centered: the filter's middle is on the result's position. by_offset:
    the mask tests only the offset. narrow: rows of the filter are taken to be KH numbers long. turned: an
    image is taken to have W rows of H pixels. ones: x counts as one past the edge. images: how far the images
    are taken to be apart, by H and W. forward: how far the pixel shifts per row and per column of the filter,
    whatever the mask tests. short: how many of the filter's last rows and columns are left out. unweighted:
    pixels aren't multiplied by the filter. still: neither the load nor its mask is shifted. corner: all
    numbers of the filter are its first one. exchanged: rows of the image are taken to be its columns. whole:
    windows that hang over the edge count as zero.
    """

    def slip(x: Tensor, w: Tensor) -> Tensor:
        H, W, KH, KW = *x.shape[1:], *w.shape
        w = w.flip(0, 1) if flipped else w
        n, i, j = torch.meshgrid(*(torch.arange(size) for size in x.shape), indexing="ij")
        z = torch.zeros_like(x)
        for a in range(KH - short[0]):
            for b in range(KW - short[1]):
                row, column = (i + b, j + a) if swapped else (i + a, j + b)
                if -1 in forward:
                    row, column = i + forward[0] * a, j + forward[1] * b
                if still:
                    row, column = i, j
                if centered:
                    row, column = row - KH // 2, column - KW // 2
                rows, length = (W, H) if turned else (H, H if tall else W)
                taken = (
                    (n * H + i) * W + j if unshifted else (n * images(rows, length) + row * length + column)
                )
                inside = (row >= 0) & (row < H) & (column >= 0) & (column < W)
                if 0 in forward:
                    taken = (n * H + i + forward[0] * a) * W + j + forward[1] * b
                taken = (n * W + column) * H + row if exchanged else taken
                inside = taken < x.numel() if by_offset else inside
                inside = inside & (i <= H - KH) & (j <= W - KW) if whole else inside
                number = w.flatten()[(a * KH + b) % w.numel()] if narrow else w[a, b]
                number = 1.0 if unweighted else w[0, 0] if corner else number
                product = number * torch.where(inside, x.flatten()[taken % x.numel()], float(ones))
                z = product if last else z + product
        return z

    return slip


CONV2D_SLIPS = {
    "you'd get these values from row = i + b, column = j + a, or from w[b, a] for w[a, b]": _conv2d_slip(
        swapped=True
    ),
    "you'd get these values from a load at row i, column j: load the shifted pixel": _conv2d_slip(
        unshifted=True
    ),
    "you'd get these values from a load at row i, column j + b: the row shifts by a": _conv2d_slip(
        forward=(0, 1)
    ),
    "you'd get these values from a load at row i + a, column j: the column shifts by b": _conv2d_slip(
        forward=(1, 0)
    ),
    "you'd get these values from row i - a, column j - b: rows and columns shift forward": _conv2d_slip(
        forward=(-1, -1)
    ),
    "you'd get these values without the filter's last row: a goes from 0 to KH - 1": _conv2d_slip(
        short=(1, 0)
    ),
    "you'd get these values without the filter's last column: b goes from 0 to KW - 1": _conv2d_slip(
        short=(0, 1)
    ),
    "you'd get these values without the last row and column of the filter: a ends at KH - 1, b at KW - 1": (
        _conv2d_slip(short=(1, 1))
    ),
    "you'd get these values by adding pixels alone: multiply each by its number of the filter": _conv2d_slip(
        unweighted=True
    ),
    "you'd get these values from a flipped filter: here w[a, b] meets row i + a, column j + b": _conv2d_slip(
        flipped=True
    ),
    "you'd get these values from the last product alone: add each one to acc": _conv2d_slip(last=True),
    "you'd get these values from rows of H pixels: an image has H rows of W pixels": _conv2d_slip(tall=True),
    "you'd get these values from a centered filter: here its upper left corner is on the result's position": (
        _conv2d_slip(centered=True)
    ),
    "you'd get these values from a mask on the offset: test the row against H, and the column against W": (
        _conv2d_slip(by_offset=True)
    ),
    "you'd get these values from rows of w that are KH apart: they are KW apart": _conv2d_slip(narrow=True),
    "you'd get these values from W rows of H pixels: an image has H rows of W pixels": _conv2d_slip(
        turned=True
    ),
    "you'd get these values if x were 1 past the edge: it is 0 there": _conv2d_slip(ones=True),
    "you'd get these values from images that are H apart: they are H * W apart": _conv2d_slip(
        images=lambda H, W: H
    ),
    "you'd get these values from one tile of x for all numbers of the filter: load a shifted one for each": (
        _conv2d_slip(still=True)
    ),
    "you'd get these values from w[0, 0] alone: w[a, b] is at a * KW + b": _conv2d_slip(corner=True),
    "you'd get these values from columns of H pixels: rows of W pixels follow each other": _conv2d_slip(
        exchanged=True
    ),
    "you'd get these values if windows that hang over the edge gave 0: add up what is inside": _conv2d_slip(
        whole=True
    ),
    "you'd get these values from image 0 in every load: image n is meant": _conv2d_slip(
        images=lambda H, W: 0
    ),
}
"""Wrong results of `conv2d` that are often seen, by what the report says about them."""

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
    stored_once=("z",),
    slips=CONV2D_SLIPS,
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
    """Return boards on which two cells in five are alive (1), and the others dead (0)."""
    return (torch.rand(shape, generator=generator) < 0.4).to(dtype)


def crowded(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return boards on which every cell is alive, so that only cells at the border have few neighbors."""
    return torch.ones(shape, dtype=dtype)


def gaps(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return boards on which every fourth cell of a row is dead, from the third on."""
    return (torch.arange(shape[1]) % 4 != 2).to(dtype).expand(shape).clone()


def life(x: Int32[Tensor, "H W"]) -> Int32[Tensor, "H W"]:
    """z[i, j] is the cell's next state: 0 (dead) or 1 (alive)

    n[i, j] counts the live neighbors of a cell, of the eight around it.
    x contains 0 (dead) and 1 (alive), and every cell outside x is dead.
    """
    padded = torch.nn.functional.pad(x, (1, 1, 1, 1))
    # the 3 rows and 3 columns around each cell: [H, W, 3, 3]
    squares = padded.unfold(0, 3, 1).unfold(1, 3, 1)
    neighbors = squares.sum(dim=(2, 3)) - x
    return torch.where(neighbors == 2, x, (neighbors == 3).to(x.dtype))


def _life_slip(
    *,
    neighbors: range = range(-1, 2),
    itself: bool = False,
    born: bool = False,
    tall: bool = False,
    wraps: bool = False,
    barren: bool = False,
    counted: bool = False,
    by_offset: bool = False,
    corners: bool = True,
    clamped: bool = False,
    fragile: bool = False,
    lonely: bool = False,
    first: tuple[int, int] = (0, 0),
    reverse: bool = False,
) -> Callable:
    """Return `life` with a slip.

    neighbors: of the rows and columns that are counted. itself: a live cell counts itself. born: a dead cell
    with two neighbors comes alive. tall: rows of the board are taken to be H cells long. wraps: neighbors
    outside the board are taken from the opposite edge. barren: no dead cell comes alive. counted: the result
    is the number of neighbors. by_offset: the mask tests only the offset. corners: whether neighbors at the
    corners count. clamped: neighbors outside the board are taken from its edge. fragile: no cell with two
    neighbors survives. lonely: no live cell with three neighbors survives. first: the first row and column
    that count. reverse: live cells are stored as 0, dead ones as 1.
    """

    def slip(x: Tensor) -> Tensor:
        H, W = x.shape
        i, j = torch.meshgrid(torch.arange(H), torch.arange(W), indexing="ij")
        count = torch.zeros_like(x) if itself else -x
        for a in neighbors:
            for b in neighbors:
                if a and b and not corners:
                    continue
                row, column = ((i + a) % H, (j + b) % W) if wraps else (i + a, j + b)
                if clamped:
                    row, column = row.clamp(0, H - 1), column.clamp(0, W - 1)
                inside = (row >= first[0]) & (row < H) & (column >= first[1]) & (column < W)
                taken = row * (H if tall else W) + column
                inside = (taken >= 0) & (taken < H * W) if by_offset else inside
                count = count + torch.where(inside, x.flatten()[taken % x.numel()], 0)
        if counted:
            return count
        three = (count == 3) & ((x == 1) | (not barren)) & ((x == 0) | (not lonely))
        two = (count == 2) & ((x == 1) | born) & (not fragile)
        return ((three | two) != reverse).to(x.dtype)

    return slip


LIFE_SLIPS = {
    "you'd get these values if a live cell counted itself": _life_slip(itself=True),
    "you'd get these values if dead cells with two neighbors came alive": _life_slip(born=True),
    "you'd get these values from neighbors in range(-1, 1), which ends at 0": _life_slip(
        neighbors=range(-1, 1)
    ),
    "you'd get these values from neighbors in range(0, 3): they are above and to the left, too": _life_slip(
        neighbors=range(3)
    ),
    "you'd get these values from rows of H cells: the board has H rows of W cells": _life_slip(tall=True),
    "you'd get these values from neighbors on the opposite edge: outside the board, every cell is dead": (
        _life_slip(wraps=True)
    ),
    "you'd get these values from a mask on the offset: test the shifted row, and the shifted column": (
        _life_slip(by_offset=True)
    ),
    "you'd get these values from four neighbors: a cell has eight, those at its corners, too": _life_slip(
        corners=False
    ),
    "you'd get these values if live cells with two neighbors died: with two, a cell stays as it is": (
        _life_slip(fragile=True)
    ),
    "you'd get these values if live cells with three neighbors died: they survive": _life_slip(lonely=True),
    "you'd get these values from the nearest cell of the board: outside it, every cell is dead": _life_slip(
        clamped=True
    ),
    "you'd get these values if no dead cell came alive: with three live neighbors it does": _life_slip(
        barren=True
    ),
    "you'd get these values by storing the number of live neighbors: z is 0 or 1": _life_slip(counted=True),
    "you'd get these values if neighbors in row 0 and column 0 didn't count: test with >= 0": _life_slip(
        first=(1, 1)
    ),
    "you'd get these values if neighbors in row 0 didn't count: test with row >= 0": _life_slip(first=(1, 0)),
    "you'd get these values if neighbors in column 0 didn't count: test with column >= 0": _life_slip(
        first=(0, 1)
    ),
    "you'd get these values with 0 and 1 exchanged: tl.where(condition, 1, 0)": _life_slip(reverse=True),
}
"""Wrong results of `life` that are often seen, by what the report says about them."""

LIFE = Puzzle(
    number="10b",
    spec=life,
    formula=(
        r"\begin{gathered} n_{ij} = \sum_{a=-1}^{1} \sum_{b=-1}^{1} x_{i+a,\,j+b} - x_{ij} \\"
        r" z_{ij} = 1 \text{ if } n_{ij} = 3 \text{, or } n_{ij} = 2 \text{ and } x_{ij} = 1"
        r" \text{; otherwise } 0 \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.H, s.BLOCK_H), triton.cdiv(s.W, s.BLOCK_W)),
    exact=("z",),
    stored_once=("z",),
    slips=LIFE_SLIPS,
    cases=(
        Case(H=8, W=8, BLOCK_H=8, BLOCK_W=8, fill={"x": alive}),  # one program
        Case(H=16, W=32, BLOCK_H=8, BLOCK_W=16, fill={"x": alive}),  # 4 programs
        Case(H=13, W=21, BLOCK_H=4, BLOCK_W=16, fill={"x": alive}),  # ragged on both axes
        Case(H=1, W=7, BLOCK_H=2, BLOCK_W=4, fill={"x": gaps}),  # a board of one row
        Case(H=9, W=5, BLOCK_H=8, BLOCK_W=8, fill={"x": crowded}),
    ),
    contract=Contract(
        {"H": Size(70), "W": Size(70), "BLOCK_H": (4, 16), "BLOCK_W": (16, 64)},
        fills=lambda s: ({"x": alive}, {"x": crowded}),
        most_programs=20,
    ),
)

PUZZLES = (CONV2D, LIFE)
