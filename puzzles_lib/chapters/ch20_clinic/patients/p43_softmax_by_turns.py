"""The turns of a persistent program are counted by `//`, which drops the rest."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def softmax_by_turns(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    """y[m] = softmax of x[m]

    There are PROGRAMS programs, however many rows there are: they take turns.
    """
    return x.softmax(1)


PUZZLE = Puzzle(
    number="43",
    spec=softmax_by_turns,
    formula=r"y_{mn} = e^{x_{mn}} \Big/ \sum_j e^{x_{mj}}",
    grid=lambda s: (s.PROGRAMS,),
    outputs=("y",),
    most_loads={"x": lambda s: s.M * s.N},
    cases=(
        Case(M=1, N=32, PROGRAMS=1, BLOCK_N=32),  # one program, one turn
        Case(M=8, N=64, PROGRAMS=4, BLOCK_N=64),  # as many turns for all
        Case(M=10, N=50, PROGRAMS=4, BLOCK_N=64),  # a turn more for some
        Case(M=3, N=20, PROGRAMS=4, BLOCK_N=32, fill={"x": large}),  # more programs than rows
    ),
    contract=Contract(
        {
            "M": Size(30),
            "N": Size(150),
            "PROGRAMS": (3, 7),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        },
    ),
    broken_by="whole_turns_only",
)

SLIP = Mistake(
    PUZZLE,
    "whole_turns_only",
    "M // PROGRAMS turns: the rows of a last turn that is not full are nobody's.",
    {
        "    for row in range(tl.program_id(0), M, PROGRAMS):\n": (
            "    for turn in range(M // PROGRAMS):\n        row = turn * PROGRAMS + tl.program_id(0)\n"
        )
    },
    kind="never written",
    says="the first is y[8, 0]",
)


def left_out(M: int, PROGRAMS: int) -> set[int]:
    """Rows that nobody takes."""
    taken = {turn * PROGRAMS + program for turn in range(M // PROGRAMS) for program in range(PROGRAMS)}
    return set(range(M)) - taken


PATIENT = Patient(
    SLIP,
    thread="https://github.com/linkedin/Liger-Kernel/pull/1139",
    ward="sizes",
    question=Question(
        id="ch20-q43",
        asks="Which of 10 rows does nobody take, with 4 programs? A set of row numbers.",
        right=lambda: left_out(10, 4),
        kind=set,
        nudge="write down, for each of the 4 programs, the rows of its turns",
        nudges=(
            Nudge(lambda v, r: v == {1, 2, 5, 6, 9}, "each program starts at its own number, and steps by 4"),
            Nudge(lambda v, r: v == {9, 10}, "rows count from 0"),
            Nudge(lambda v, r: v < r, "there are more of them"),
        ),
    ),
)
