"""`//` rounds toward zero as in C, not down as in Python."""

import torch
import triton
from jaxtyping import Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def around_zero(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return integers from -20 to 20."""
    return torch.randint(-20, 21, shape, dtype=dtype, generator=generator)


def at_the_ends(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return integers from both ends of int32's range, where x - SIZE or x + SIZE can overflow."""
    near = torch.randint(0, 9, shape, generator=generator)
    signs = torch.randint(0, 2, shape, generator=generator)
    return torch.where(signs == 1, 2**31 - 1 - near, near - 2**31).to(dtype)


def at_the_edges(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return multiples of 49, whose quotient by a rounded 1/49 may be below the cell's number."""
    return 49 * torch.randint(-50, 51, shape, dtype=dtype, generator=generator)


def cells(x: Int32[Tensor, " N"], SIZE: int) -> Int32[Tensor, " N"]:
    """z[n] = x[n] / SIZE, rounded down

    That's the cell of a grid that a point is in. Cell 0 starts at 0, and cell -1 ends
    there.
    """
    return x // SIZE


def _wrapped_around(x: Tensor, SIZE: int) -> Tensor:
    """Compute `cells` from x - (SIZE - 1) below 0, in int32."""
    return torch.where(x < 0, torch.div(x - (SIZE - 1), SIZE, rounding_mode="trunc"), x // SIZE).int()


PUZZLE = Puzzle(
    number="56",
    spec=cells,
    formula=r"z_n = \lfloor x_n / \mathrm{SIZE} \rfloor",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK_N),),
    cases=(
        Case(N=16, SIZE=4, BLOCK_N=16, fill={"x": around_zero}),  # one program
        Case(N=64, SIZE=3, BLOCK_N=16, fill={"x": around_zero}),  # several, all full
        Case(N=45, SIZE=10, BLOCK_N=16, fill={"x": around_zero}),  # ragged
        Case(N=20, SIZE=1000, BLOCK_N=16),
    ),
    slips={
        "negative numbers that SIZE doesn't divide come out one too high": lambda x, SIZE: torch.div(
            x, SIZE, rounding_mode="trunc"
        ),
        "negative numbers that SIZE divides come out one too low": lambda x, SIZE: (
            torch.div(x, SIZE, rounding_mode="trunc") - (x < 0).int()
        ),
        "x / SIZE is a float32, whose 24 bits may round it up to the next cell": lambda x, SIZE: torch.floor(
            x.float() / SIZE
        ).int(),
        "near -2^31, x - SIZE + 1 doesn't fit int32 and wraps around: correct the quotient, not x": (
            _wrapped_around
        ),
    },
    hard={
        "a product with a rounded 1 / SIZE can be below the cell's number": (
            Case(N=64, SIZE=49, BLOCK_N=64, fill={"x": at_the_edges})
        ),
    },
    contract=Contract(
        {"N": Size(300), "SIZE": (7, 64), "BLOCK_N": (64,)},
        fills=lambda s: ({"x": at_the_ends}, {}),
        free=("SIZE",),
    ),
    broken_by="as_in_python",
)

SLIP = Mistake(
    PUZZLE,
    "as_in_python",
    "Rounds toward zero, so points of cell -1 end up in cell 0.",
    {"x // SIZE - (x % SIZE < 0)": "x // SIZE"},
    kind="values",
    says="come out one too high",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/619",
    question=cause(
        SLIP,
        "a",
        ("values",),
        b="Test this with SIZE=4: run it on 3, 7 and 11. Are they rounded to the nearest whole number?",
        c="Test this: run it on 16 points in a block of 16, so that no lane is past the end. Then "
        "sort the points "
        "by value: which are wrong?",
        d="Work out -1 / 4, rounded down. Which cell is that, and which does the kernel return for -1?",
    ),
    also=reproduce(
        "ch20-q3",
        "With SIZE = 10, which point ends up in the wrong cell? Give one, as a whole number.",
        -1,
        lambda x: -(2**31) <= x < 0 and x % 10 != 0,
        "This one is in its cell. The origin is in the middle of the map now: which points weren't "
        "there before?",
        Nudge(lambda v, r: v < 0 and v % 10 == 0, "SIZE divides this one, so nothing is rounded."),
    ),
)
