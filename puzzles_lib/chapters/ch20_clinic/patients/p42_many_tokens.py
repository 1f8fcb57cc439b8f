"""A grid has at most 65,535 programs along y and z."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, which_line
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def many_tokens(
    x: Float32[Tensor, "T N"],
    w: Float32[Tensor, " N"],
) -> Float32[Tensor, "T N"]:
    """z[t, n] = x[t, n] · w[n]

    A token is a row. The grid has at most MOST programs along y, even if there are
    more tokens. The kernel isn't given MOST.
    """
    return x * w


PUZZLE = Puzzle(
    number="42",
    spec=many_tokens,
    formula=r"z_{tn} = x_{tn} w_n",
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK_N), min(s.T, s.MOST)),
    most_loads={"x": lambda s: s.T * s.N},
    cases=(
        Case(T=1, N=16, MOST=8, BLOCK_N=16),  # one program
        Case(T=8, N=32, MOST=8, BLOCK_N=16),  # a program for each token
        Case(T=19, N=21, MOST=8, BLOCK_N=16),  # more tokens than programs
        Case(T=9, N=16, MOST=8, BLOCK_N=16, fill={"x": large}),  # one more
    ),
    contract=Contract({"T": Size(80), "N": Size(70), "MOST": (4, 8), "BLOCK_N": (64,)}),
    broken_by="a_token_each",
)

SLIP = Mistake(
    PUZZLE,
    "a_token_each",
    "Each program computes one token, and no program computes those beyond the grid's limit.",
    {
        "for t in range(tl.program_id(1), T, tl.num_programs(1)):\n        x": "t = tl.program_id(1)\n    x",
        "\n        tl.store": "\n    tl.store",
    },
    kind="never written",
    says="of z",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/vllm-project/vllm/pull/52381",
    ward="sizes",
    question=which_line(
        SLIP,
        "Which line decides which rows each program computes?",
        Nudge(lambda v, r: v in (3, 4, 5), "This line is about columns, and the columns are fine."),
    ),
)
