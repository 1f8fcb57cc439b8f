"""Two stores of a program write the same element, in an undefined order."""

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import FAINT, faint, small, zeros
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def norm_and_turn(
    x: Float32[Tensor, "M N"],
    cos: Float32[Tensor, " H"],
    sin: Float32[Tensor, " H"],
) -> Float32[Tensor, "M N"]:
    """y[m] = x[m] / sqrt(mean of x[m]² + 1e-6), then rotated in its last 2 H numbers

    With a and b the halves of these: a · cos - b · sin and b · cos + a · sin.
    """
    y = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)  # [M, N]
    rest, a, b = y.split([x.shape[1] - 2 * len(cos), len(cos), len(cos)], 1)
    return torch.cat([rest, a * cos - b * sin, b * cos + a * sin], 1)


PUZZLE = Puzzle(
    number="53",
    spec=norm_and_turn,
    formula=(
        r"\begin{gathered} \hat x_{mn} = x_{mn} \Big/ \sqrt{\tfrac{1}{N} \sum_j x_{mj}^2 + 10^{-6}} \\ "
        r"y = (\hat x_{\mathrm{rest}}, \; a \cos - b \sin, \; b \cos + a \sin) \end{gathered}"
    ),
    grid=lambda s: (s.M,),
    outputs=("y",),
    most_loads={"x": lambda s: s.M * (s.N + 2 * s.H)},
    cases=(
        Case(M=1, N=64, H=16, BLOCK_N=64, BLOCK_H=16),  # one program
        Case(M=3, N=128, H=32, BLOCK_N=128, BLOCK_H=32),  # several, full blocks
        Case(M=4, N=100, H=24, BLOCK_N=128, BLOCK_H=32),  # ragged
        Case(M=2, N=40, H=20, BLOCK_N=64, BLOCK_H=32, fill={"x": small}),  # the whole row is turned
    ),
    hard={FAINT: Case(M=2, N=32, H=16, BLOCK_N=32, BLOCK_H=16, fill={"cos": zeros, "sin": faint})},
    contract=Contract(
        {
            "M": Size(9),
            "H": Size(150),
            "N": lambda s: (2 * s.H + 5, 3 * s.H),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
            "BLOCK_H": lambda s: (triton.next_power_of_2(s.H),),
        },
    ),
    broken_by="row_and_end",
)

SLIP = Mistake(
    PUZZLE,
    "row_and_end",
    "Stores the whole row, then its end again; other threads may do that in the other order.",
    {"mask=n < N - 2 * H)": "mask=n < N)"},
    kind="race",
    says="race within program",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/10743",
    question=cause(
        SLIP,
        "d",
        ("runs", "elements"),
        a="Compare a wrong number with a correct one: by the report, both are normalized, so both "
        "have the same "
        "`rstd`. What's missing in the wrong one?",
        b="Look at what those two loads read, and which lines of the kernel store there.",
        c="Reduce: check the first case, which has one row and so one program. Is it correct?",
    ),
    also=Question(
        id="ch20-q14",
        asks="A row has N = 10 numbers, and H = 2. To which of them does more than one line store? A set.",
        right=lambda: set(range(10 - 2 * 2, 10)),
        kind=set,
        nudge="Write down `n`, `at_a` and `at_b` for row 0, each with its mask. Which offsets come twice?",
        nudges=(
            Nudge(
                lambda v, r: v == set(range(10)), "Each is stored once by the first store. Which ones again?"
            ),
            Nudge(
                lambda v, r: not v,
                "The kernel has three stores. Compare the first one's offsets with the others'.",
            ),
            Nudge(lambda v, r: v < r, "These are, but there are more: the last two lines both store."),
        ),
    ),
)
