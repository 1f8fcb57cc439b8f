"""Of equal maxima the last block's wins, and the first is wanted."""

import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import zeros
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def few_levels(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """0, 1, 2 or 3: many are equal."""
    return torch.randint(4, shape, generator=generator).to(dtype)


def rising_below_zero(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Each row from -1000 on up, by ones."""
    return (torch.arange(shape[-1]) - 1000.0).expand(shape).to(dtype)


def nothing_left(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """All minus infinity."""
    return torch.full(shape, float("-inf"), dtype=dtype)


def greedy_token(logits: Float32[Tensor, "M V"]) -> Int32[Tensor, " M"]:
    """token[m] = the first v at which logits[m, v] is largest; there is no NaN"""
    return logits.argmax(1).int()


PUZZLE = Puzzle(
    number="49",
    spec=greedy_token,
    formula=r"\mathrm{token}_m = \min \arg\max_v \, \mathrm{logits}_{mv}",
    grid=lambda s: (s.M,),
    outputs=("token",),
    cases=(
        Case(M=1, V=32, BLOCK_V=32),  # one program, one block
        Case(M=3, V=64, BLOCK_V=16),  # several, all full
        Case(M=4, V=50, BLOCK_V=16, fill={"logits": few_levels}),  # ragged, and many are equal
        Case(M=2, V=33, BLOCK_V=16, fill={"logits": zeros}),  # all are
        Case(M=3, V=33, BLOCK_V=16, fill={"logits": rising_below_zero}),  # the last one is largest
        Case(M=2, V=20, BLOCK_V=16, fill={"logits": nothing_left}),
    ),
    most_loads={"logits": lambda s: s.M * s.V},
    contract=Contract(
        {"M": Size(9), "V": Size(200), "BLOCK_V": lambda s: (16,) if s.V > 64 else (32,)},
        fills=lambda s: ({"logits": few_levels}, {"logits": rising_below_zero}),
    ),
    broken_by="last_block_wins",
)

SLIP = Mistake(
    PUZZLE,
    "last_block_wins",
    "A later block takes over with a maximum that is only as large.",
    {"top > best": "top >= best"},
    kind="values",
    says="it is correct in the cases with one block of V",
)


def by_blocks(levels: list[float], block: int) -> int:
    """What comes of the comparison as it is."""
    best, token = float("-inf"), 0
    for start in range(0, len(levels), block):
        top = max(levels[start : start + block])
        if top >= best:
            best, token = top, levels.index(top, start)
    return token


PATIENT = Patient(
    SLIP,
    thread="https://github.com/pytorch/pytorch/issues/93630",
    ward="masks",
    question=Question(
        id="ch20-q49",
        asks="A row of 48 zeros has ones at 2, 9, 17 and 20; BLOCK_V is 16. Which token comes out?",
        right=lambda: by_blocks([float(v in (2, 9, 17, 20)) for v in range(48)], 16),
        kind=int,
        nudge="three blocks: what is best and token after each of them?",
        nudges=(
            Nudge(lambda v, r: v == 2, "that is what is wanted; follow the comparison"),
            Nudge(lambda v, r: v == 20, "within a block tl.max gives the first of equals"),
            Nudge(lambda v, r: v == 32, "the last block has zeros only"),
        ),
    ),
)
