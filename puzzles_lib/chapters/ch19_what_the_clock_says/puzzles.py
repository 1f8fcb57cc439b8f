"""Chapter 19: the order in which a matmul's tiles are computed, and a split sum that autotune breaks."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.cache_model import banded
from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Traffic
from puzzles_lib.inputs import large
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Run


def tile_order(
    x: Float32[Tensor, "M K"],
    y: Float32[Tensor, "K N"],
) -> Float32[Tensor, "M N"]:
    """z = x @ y, one program per tile, on a grid with one axis

    pid counts the programs. The kernel chooses which tile its program computes, so
    that each tile is chosen once. GROUP is the number of rows of tiles in a band.
    """
    return x @ y


def order(puzzle: Puzzle, case: Case, ran: Run) -> list[tuple[int, int]]:
    """Return for each program, in launch order, the row and the column of the tile that it stores."""
    found: dict[object, tuple[int, int]] = {}
    for access in ran.accesses:
        stored = access.elements[access.mask] if access.kind == "store" else ()
        if len(stored):
            at = int(stored.min())
            found.setdefault(access.program, (at // case.N // case.BLOCK_M, at % case.N // case.BLOCK_N))
    return list(found.values())


def why_too_much(puzzle: Puzzle, goal: Traffic, ran: Run) -> str:
    """Return what is wrong with the order of a matmul's tiles, if it is in bands of another kind."""
    case = puzzle.cases[goal.case]
    tiles_m, tiles_n = triton.cdiv(case.M, case.BLOCK_M), triton.cdiv(case.N, case.BLOCK_N)
    mine = order(puzzle, case, ran)
    for rows in range(1, tiles_m + 1):
        if mine == banded(tiles_m, tiles_n, rows):
            return (
                f"your bands have {rows} {'row' if rows == 1 else 'rows'} of tiles, but GROUP is {case.GROUP}"
            )
    for columns in range(2, tiles_n):
        if mine == [(m, n) for n, m in banded(tiles_n, tiles_m, columns)]:
            return (
                f"your bands have {columns} columns of tiles, but they should have {case.GROUP} rows (GROUP)"
            )
    return ""


TILE_ORDER = Puzzle(
    number="39",
    spec=tile_order,
    formula=r"z_{mn} = \sum_k x_{mk} \, y_{kn}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M) * triton.cdiv(s.N, s.BLOCK_N),),
    cases=(
        Case(M=16, N=16, K=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP=1),  # one program
        Case(M=64, N=48, K=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP=2),  # two bands, full
        # a last band of one row; ragged on every axis
        Case(M=70, N=45, K=20, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16, GROUP=2),
        Case(M=40, N=90, K=33, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, GROUP=8),  # less than a band
        Case(M=100, N=33, K=50, BLOCK_M=32, BLOCK_N=16, BLOCK_K=16, GROUP=3, fill={"x": large}),
        # 8 x 8 tiles: if they are wide, 4 rows and 2 columns make a wave the most like a square
        Case(M=128, N=256, K=64, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, GROUP=4),
        Case(M=256, N=128, K=64, BLOCK_M=32, BLOCK_N=16, BLOCK_K=32, GROUP=2),  # if they are tall, 2 and 4
    ),
    hard={
        "a product with a rounded reciprocal can be below the band's number; so can a float quotient, which "
        "is such a product on a GPU": (Case(M=672, N=32, K=2, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, GROUP=41)),
    },
    contract=Contract(
        {
            "M": Size(600),
            "N": Size(600),
            "K": Size(150),
            "BLOCK_M": (16, 128),
            "BLOCK_N": (32, 128),
            "BLOCK_K": lambda s: (16,) if s.K > 64 else (16, 64),
            "GROUP": (1, 2, 3, 5),
        }
    ),
    traffic=(
        Traffic(case=5, in_flight=8, cache=16 << 10, most=2200, why=why_too_much),
        Traffic(case=6, in_flight=8, cache=16 << 10, most=2200, why=why_too_much),
    ),
)


def split_sum(x: Float32[Tensor, "M N"]) -> Float32[Tensor, " M"]:
    """z[m] = sum over n of x[m, n], where several programs share a row

    z starts as zeros, and each program adds its part. You may wrap the kernel in
    triton.autotune. Then every configuration must be correct, alone and after the
    others.
    """
    return x.sum(1)


SPLIT_SUM = Puzzle(
    number="40",
    spec=split_sum,
    formula=r"z_m = \sum_n x_{mn}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=4, N=64, BLOCK_M=4, BLOCK_N=64),  # one program
        Case(M=16, N=128, BLOCK_M=4, BLOCK_N=32),  # rows of four programs
        Case(M=5, N=100, BLOCK_M=2, BLOCK_N=32),  # ragged on both axes
        Case(M=3, N=20, BLOCK_M=8, BLOCK_N=64),  # less than a block
        Case(M=33, N=150, BLOCK_M=16, BLOCK_N=64, fill={"x": large}),
    ),
    zeroed=("z",),
    contract=Contract({"M": Size(150), "N": Size(700), "BLOCK_M": (2, 32), "BLOCK_N": (32, 256)}),
)

PUZZLES = (TILE_ORDER, SPLIT_SUM)
