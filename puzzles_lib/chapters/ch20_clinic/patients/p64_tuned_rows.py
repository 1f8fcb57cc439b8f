"""A configuration that computes only part of the result, hidden by another one."""

from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def tuned_rows(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    """z[m, n] = 2 x[m, n]

    Each program computes one row. Autotune sets BLOCK_N: the table has the first
    option of its list.
    """
    return 2 * x


PUZZLE = Puzzle(
    number="64",
    spec=tuned_rows,
    formula=r"z_{mn} = 2 x_{mn}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=16, BLOCK_N=256),  # one program
        Case(M=3, N=64, BLOCK_N=256),  # several
        Case(M=4, N=50, BLOCK_N=256),  # ragged
        Case(M=2, N=97, BLOCK_N=256, fill={"x": large}),  # one column in the last block
        Case(M=2, N=300, BLOCK_N=256),  # longer than any of its blocks
    ),
    contract=Contract({"M": Size(9), "N": Size(1100), "BLOCK_N": (32, 64)}),
    broken_by="one_block",
)

SLIP = Mistake(
    PUZZLE,
    "one_block",
    "Computes only one block of a row; if the block is small, the rest is whatever was there before.",
    {
        "    for first in range(0, N, BLOCK_N):\n        n = first + tl": "    n = tl",
        "\n        x": "\n    x",
        "\n        tl.store": "\n    tl.store",
    },
    kind="never written",
    says="of z",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/triton-lang/triton/issues/9230",
    question=cause(
        SLIP,
        "a",
        ("runs", "elements"),
        b="That may well be. But test it against all of the report: with 512 in the list, too, 32 "
        "computed less. Why was the result correct then?",
        c="Which is the first column that's never written, as `check` shows? Is that where the mask ends?",
        d="Leave autotune out of it: in a block of 256, up to which column does a program store?",
    ),
    also=Question(
        id="ch20-q11",
        asks="How many of a row's 300 numbers does a program store with BLOCK_N = 512, 256 and 32? (a, b, c)",
        right=lambda: tuple(min(300, block) for block in (512, 256, 32)),
        kind=tuple,
        nudge="A program stores where `n < N`. Which numbers does `n` have with this block size?",
        nudges=(
            Nudge(lambda v, r: len(v) != len(r), "Answer with three numbers: (a, b, c)."),
            Nudge(lambda v, r: v[0] == 512, "The mask turns off all lanes that have no number of the row."),
            Nudge(
                lambda v, r: set(v) == {300},
                "That would be correct. But is there anything in the kernel that goes on after one block?",
            ),
        ),
    ),
)
