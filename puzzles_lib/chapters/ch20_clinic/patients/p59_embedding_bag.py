"""Two float16 rows are added in float16, before the sum in float32 takes them."""

from collections.abc import Callable

import torch
import triton
from jaxtyping import Float16, Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import make_inputs
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def below(size: int) -> Callable[..., Tensor]:
    """A fill with row numbers below ``size``."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.randint(size, shape, generator=generator).to(dtype)

    fill.__name__ = f"below_{size}"
    return fill


def embedding_bag(
    table: Float16[Tensor, "V D"],
    index: Int32[Tensor, "B L"],
) -> Float32[Tensor, "B D"]:
    """z[b] = sum over l of table[index[b, l]], in float32; L is even"""
    return table[index.long()].sum(1)


PUZZLE = Puzzle(
    number="59",
    spec=embedding_bag,
    formula=r"z_{bd} = \sum_l \mathrm{table}_{\mathrm{index}_{bl}, d}",
    grid=lambda s: (s.B,),
    cases=(
        Case(V=10, D=32, B=1, L=2, BLOCK_D=32, fill={"index": below(10)}),  # one program, one pair
        Case(V=20, D=64, B=4, L=8, BLOCK_D=64, fill={"index": below(20)}),  # several, full blocks
        Case(V=15, D=50, B=5, L=6, BLOCK_D=64, fill={"index": below(15)}),  # ragged
        Case(V=1, D=33, B=3, L=10, BLOCK_D=64, fill={"index": below(1)}),  # one row, again and again
    ),
    needed={"table": lambda s: s.D * len(make_inputs(PUZZLE, s)["index"].unique())},
    slips={
        "two rows at a time are added in float16": lambda table, index: (
            table.half()[index.long()].unflatten(1, (-1, 2)).sum(2).to(table.dtype).sum(1)
        )
    },
    contract=Contract(
        {
            "V": Size(80),
            "D": Size(150),
            "B": Size(17),
            "L": Size(40, step=2, least=2),
            "BLOCK_D": lambda s: (triton.next_power_of_2(s.D),),
        },
        fills=lambda s: ({"index": below(s.V)},),
    ),
    broken_by="pairs_in_float16",
)

SLIP = Mistake(
    PUZZLE,
    "pairs_in_float16",
    "The sum of a pair is a float16: it is rounded before it is added in float32.",
    {"acc += one.to(tl.float32) + two": "acc += one + two"},
    kind="values",
    says="two rows at a time are added in float16",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/meta-pytorch/torchrec/pull/3730",
    ward="arithmetic",
    question=which_line(
        SLIP,
        "which sum is made first in each line, and which dtype have its two sides?",
        Nudge(lambda v, r: v == 5, "the accumulator is float32, as it should be"),
        Nudge(lambda v, r: v in (r - 1, r - 2), "a row is float16 in memory: the load loses nothing"),
    ),
)
