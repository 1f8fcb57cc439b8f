"""A configuration that computes only part of the result, hidden by another one."""

from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle


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
    ward="runs",
    question=cause(
        SLIP,
        "a",
        b="Work out both options for a row of 300: in a block of 256 and in a block of 32, up to "
        "which column does a "
        "program store?",
        c="Which is the first column that's never written, as `check` shows? Is that where the mask ends?",
        d="Leave autotune out of it: in a block of 256, up to which column does a program store?",
    ),
)
