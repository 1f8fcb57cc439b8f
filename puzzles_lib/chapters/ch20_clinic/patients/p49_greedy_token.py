"""Among equal maxima the last block's wins, where the first should."""

import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import zeros
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def few_levels(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """0, 1, 2 or 3: many are equal."""
    return torch.randint(4, shape, generator=generator).to(dtype)


def rising_below_zero(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Each row from -1000 on up, by ones."""
    return (torch.arange(shape[-1]) - 1000.0).expand(shape).to(dtype)


def nothing_left(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """All minus infinity."""
    return torch.full(shape, float("-inf"), dtype=dtype)


def a_hair_apart(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows of tiny numbers that rise by one bit of float32, once every 5 columns."""
    return (2.0**-100 * (1 + torch.arange(shape[-1]) // 5 * 2.0**-23)).expand(shape).to(dtype)


def greedy_token(logits: Float32[Tensor, "M V"]) -> Int32[Tensor, " M"]:
    """token[m] = the first v at which logits[m, v] is largest; there are no NaNs"""
    return logits.argmax(1).int()


def _last_block_wins(logits: Tensor, BLOCK_V: int) -> Tensor:
    best, token = torch.full_like(logits[:, 0], -torch.inf), torch.zeros(len(logits), dtype=torch.int32)
    for number, block in enumerate(logits.split(BLOCK_V, 1)):
        top, place = block.max(1)[0], block.argmax(1).int() + number * BLOCK_V
        token, best = torch.where(top >= best, place, token), torch.maximum(best, top)
    return token


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
        Case(M=2, V=40, BLOCK_V=16, fill={"logits": a_hair_apart}),  # unequal by one bit
    ),
    most_loads={"logits": lambda s: s.M * s.V},
    contract=Contract(
        {"M": Size(9), "V": Size(200), "BLOCK_V": lambda s: (16,) if s.V > 64 else (32,)},
        fills=lambda s: ({"logits": few_levels}, {"logits": rising_below_zero}),
    ),
    slips={"if two blocks have an equal maximum, the later block wins": _last_block_wins},
    broken_by="last_block_wins",
)

SLIP = Mistake(
    PUZZLE,
    "last_block_wins",
    "A later block takes over even if its maximum is only equal.",
    {"top > best": "top >= best"},
    kind="values",
    says="if two blocks have an equal maximum, the later block wins",
)


PATIENT = Patient(
    SLIP,
    thread="https://github.com/pytorch/pytorch/issues/93630",
    ward="masks",
    question=reproduce(
        SLIP,
        "A row has V = 4 logits, with BLOCK_V = 2. For which logits, four whole numbers, is the token not "
        "PyTorch's?",
        (1, 0, 1, 0),
        lambda *logits: max(logits[:2]) == max(logits[2:]),
        "PyTorch takes the first of the largest logits. What happens to token when a later block comes?",
        Nudge(
            lambda v, r: max(v[:2]) > max(v[2:]),
            "The second block's largest logit is smaller than the first's, so nothing changes there.",
        ),
        Nudge(
            lambda v, r: max(v[:2]) < max(v[2:]),
            "The largest logit is in the second block only, and that's where both look.",
        ),
    ),
)
