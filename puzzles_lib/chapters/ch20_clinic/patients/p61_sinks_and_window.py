"""Two masks are added: a mask has one bit, and in one bit 1 + 1 is 0."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def sinks_and_window(
    x: Float32[Tensor, "M N"],
    S: int,
    W: int,
) -> Float32[Tensor, " M"]:
    """z[m] = sum of x[m, n] over all n that are among the first S or the last W

    Each program computes one row, which fits in its block.
    """
    first, rest = x[:, :S], x[:, S:]
    return first.sum(1) + rest[:, max(0, rest.shape[1] - W) :].sum(1)


def _in_one_part(x: Tensor, S: int, W: int) -> Tensor:
    n = torch.arange(x.shape[1])
    return x[:, (n < S) ^ (n >= x.shape[1] - W)].sum(1)


PUZZLE = Puzzle(
    number="61",
    spec=sinks_and_window,
    formula=r"z_m = \sum_{n < S \text{ or } n \ge N - W} x_{mn}",
    grid=lambda s: (s.M,),
    needed={"x": lambda s: s.M * min(s.N, s.S + s.W)},
    cases=(
        Case(M=1, N=32, S=4, W=8, BLOCK_N=32),  # one program
        Case(M=4, N=64, S=4, W=16, BLOCK_N=64),  # several, all full
        Case(M=3, N=50, S=4, W=16, BLOCK_N=64),  # ragged
        Case(M=3, N=21, S=4, W=18, BLOCK_N=32),  # a column is in both
        Case(M=2, N=3, S=4, W=18, BLOCK_N=4, fill={"x": large}),  # all are
    ),
    slips={"columns that are in both parts are left out": _in_one_part},
    contract=Contract(
        {
            "M": Size(9),
            "N": Size(150),
            "S": lambda s: (11,) if s.N > 64 else (2, 5),
            "W": lambda s: (s.N // 2 + 2,) if s.N > 64 else (s.N // 2, s.N - 1, s.N + 3),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        },
    ),
    broken_by="by_plus",
)

SLIP = Mistake(
    PUZZLE,
    "by_plus",
    "The sum of two masks is a mask with one bit, and the low bit of 1 + 1 is 0.",
    {"(n < S) | (n >= N - W)": "(n < S) + (n >= N - W)"},
    kind="values",
    says="columns that are in both parts are left out",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/10919",
    ward="arithmetic",
    question=reproduce(
        SLIP,
        "A row has N = 8 numbers. For which S and W, both at least 1, is the sum wrong? (S, W)",
        (4, 8),
        lambda S, W: min(S, W) >= 1 and S + W > 8,
        "What does each line do with column 0, with a column in the middle, and with the last one?",
        Nudge(lambda v, r: min(v) < 1, "Both are at least 1."),
        Nudge(
            lambda v, r: sum(v) <= 8,
            "Each column is in one part or in none here. Which other case is there?",
        ),
    ),
)
