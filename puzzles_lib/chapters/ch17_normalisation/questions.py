"""The predictions of chapter 17."""

import itertools
import math

import torch

from puzzles_lib.chapters.ch17_normalisation.puzzles import LAYER_NORM_DW
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.recorded import ORDERS, load

COMBINES = {
    "sum": lambda a, b: a + b,
    "max": max,
    "mean": lambda a, b: (a + b) / 2,
    "difference": lambda a, b: a - b,
    "last": lambda a, b: b,
}
"""Functions of two numbers for a scan, by name."""


def _at_most() -> float:
    add_and_norm, fused = len("xrh") + len("hy"), len("xrhy")  # what is loaded or stored
    return add_and_norm / fused


def _too_large() -> float:
    return math.sqrt(128 / 100)


def _by_squares() -> float:
    x = torch.tensor([8192.0, 8194.0])
    return float(x.square().mean() - x.mean().square())


def _dx(x: torch.Tensor, dy: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    torch.nn.functional.layer_norm(x, x.shape[-1:], eps=0.0).backward(dy)
    return x.grad


def _row() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, dy = (torch.randn(8, dtype=torch.float64, generator=generator) for _ in range(2))
    return x, dy


def _sum_of_dx() -> float:
    return round(float(_dx(*_row()).sum()), 9) + 0.0


def _of_twice_x() -> float:
    x, dy = _row()
    return round(float((_dx(2 * x, dy) / _dx(x, dy)).mean()), 9)


def _updates() -> set[int]:
    """Return what dw[n] = 5 can become when two programs load it, add 1 and store it, over all orders."""
    left = set()
    for turns in set(itertools.permutations("AABB")):
        memory, held = 5, {}
        for program in turns:
            if program in held:
                memory = held[program] + 1
            else:
                held[program] = memory
        left.add(memory)
    return left


def _adding_up() -> int:
    return LAYER_NORM_DW.programs(LAYER_NORM_DW.cases[1])[1]  # one per block of columns


def _recorded(path: str, what: str, columns: int) -> int:
    rows = load(ORDERS)["rows"]
    (row,) = [row for row in rows if row["path"] == path and f"x{columns}," in row["case"]]
    return row[what]


def _different_sums() -> tuple[str, ...]:
    sums = [_recorded(path, "sums", 4096) for path in ("layer_norm_dw", "dw_by_lock", "dw_by_atomics")]
    return tuple("one" if count == 1 else "many" for count in sums)


def _merged() -> float:
    values = torch.tensor([1.0, 3.0, 5.0, 7.0])
    return float((values - values.mean()).square().sum())


def _associative() -> set[str]:
    triples = list(itertools.product((-1.5, 0.0, 2.0, 7.0), repeat=3))
    return {
        name
        for name, of in COMBINES.items()
        if all(of(of(a, b), c) == of(a, of(b, c)) for a, b, c in triples)
    }


def _rounds() -> int:
    return (1024 - 1).bit_length()


QUESTIONS = (
    Question(
        id="ch17-q1",
        asks="How many times as fast as two kernels is a single kernel for the addition and the norm, if "
        "only "
        "bytes count?",
        right=_at_most,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.005,
        nudges=(
            Nudge(
                lambda v, r: abs(v - 0.8) < 0.005,
                "0.8 is the fraction of the time that's left. The speedup is its reciprocal.",
            ),
            Nudge(lambda v, r: v == 2, "There are two kernels, but they don't move twice the bytes."),
        ),
        nudge="With two kernels, one of the matrices moves once more than with a single kernel. Which one?",
    ),
    Question(
        id="ch17-q2",
        asks="N = 100 in a block of 128, and the sum of squares is divided by BLOCK_N. By which factor is y "
        "too large (within 1%)?",
        right=_too_large,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.01 * right,
        nudges=(
            Nudge(
                lambda v, r: abs(v - 1.28) < 0.02,
                "The mean of squares is too small by this factor. But y is divided by its root.",
            ),
            Nudge(
                lambda v, r: v < 1,
                "The mean of squares gets too small here, and y is divided by its root. Does y grow or "
                "shrink?",
            ),
        ),
        nudge="The mean of squares is too small by 100/128. y is divided by the root of that mean.",
    ),
    Question(
        id="ch17-q3",
        asks="x is [8192, 8194]. What is E[x²] - E[x]² in float32?",
        right=_by_squares,
        kind=float,
        same=lambda value, right: value == right,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "That's the result on paper. But float32 can't represent both squares exactly.",
            ),
        ),
        nudge="8193² is above 2^26, where float32 can only represent multiples of 8.",
    ),
    Question(
        id="ch17-q5",
        asks="What is the sum of all elements of a row of dx?",
        right=_sum_of_dx,
        kind=float,
        same=lambda value, right: abs(value - right) < 1e-6,
        nudge="Suppose you add the same number to every x of a row. How do y and the loss change?",
    ),
    Question(
        id="ch17-q6",
        asks="Every x is doubled, eps is negligible, and dy is the same. By which factor does dx change?",
        right=_of_twice_x,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "y is the same, but a step of a given size in x is now a smaller part of x.",
            ),
            Nudge(
                lambda v, r: v in (2, 4),
                "dx has the factor rstd. Does rstd grow or shrink when x is doubled?",
            ),
        ),
        nudge="x̂ = (x - mean) rstd doesn't change. How much does a step of 1 in x move x̂ before, and after?",
    ),
    Question(
        id="ch17-q7",
        asks="Is through_memory_kernel correct on a GPU: (as it is, with turned instead of offs in its last "
        "two lines)?",
        right=lambda: (False, True),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (as it is, with turned)."),
            Nudge(
                lambda v, r: v[0],
                "One thread stores z[0], another loads it. Which entry of the rule puts the two in order?",
            ),
        ),
        nudge="With turned, both lines deal out their elements alike here, so each thread loads what it "
        "stored itself. What does the rule say about that?",
    ),
    Question(
        id="ch17-q8",
        asks="Two programs add 1 to dw[n] = 5, each with a load, an add and a store. Which final values are "
        "possible?",
        right=_updates,
        kind=set,
        nudges=(
            Nudge(lambda v, r: 5 in v, "The last store always writes a sum, so 5 isn't possible."),
            Nudge(
                lambda v, r: len(v) == 1, "There is more than one possible order of the two loads and stores."
            ),
        ),
        nudge="Let one program finish before the other starts. Then let both load before either stores.",
    ),
    Question(
        id="ch17-q10",
        asks="How many programs of case 1 add up parts?",
        right=_adding_up,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1, "One program per counter adds up. How many counters are there?"),
            Nudge(
                lambda v, r: v == 6, "6 programs store a part. How many of them are the last at a counter?"
            ),
        ),
        nudge="Each block of columns has its own counter. The program that's last there adds up its parts.",
    ),
    Question(
        id="ch17-q12",
        asks="How many different results do 200 runs on the same numbers give (two stages, lock, atomics): "
        "'one' or 'many'?",
        right=_different_sums,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) != 3 or not set(v) <= {"one", "many"},
                "Answer with three strings, 'one' or 'many': (two stages, lock, atomics).",
            ),
            Nudge(
                lambda v, r: v[0] != r[0],
                "With two stages, the parts are always added in the same order. Can the bits differ?",
            ),
            Nudge(
                lambda v, r: v[1] != r[1],
                "A lock lets in one program at a time. Does it also say which one comes first?",
            ),
        ),
        nudge="With atomics, 512 parts arrive in a random order at each of the 8192 elements of dw and db. "
        "How likely are the same bits twice?",
    ),
    Question(
        id="ch17-q13",
        asks="One block has n = 2, mean = 2, M2 = 2, the other n = 2, mean = 6, M2 = 2. What is M2 of both "
        "together?",
        right=_merged,
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 4,
                "4 is the sum of the two M2. But the two means differ as well, and that adds something.",
            ),
            Nudge(lambda v, r: v == 36, "Each mean is 2 away from the common mean, not 4."),
        ),
        nudge="Around the common mean, a block's squares add up to more than around its own. For the first "
        "block, try two numbers with a mean of 2 and an M2 of 2, such as 1 and 3.",
    ),
    Question(
        id="ch17-q14",
        asks="In each round, every lane may add what one other lane had before. After how many rounds can a "
        "running sum of 1024 elements be finished?",
        right=_rounds,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 1023,
                "A loop takes 1023 steps. But in each round all lanes add at the same time.",
            ),
            Nudge(
                lambda v, r: v == 512,
                "That's more than you need. How many elements can a sum cover after two rounds?",
            ),
        ),
        nudge="After one round, a sum covers 2 elements. How many can it cover after two, and after three?",
    ),
    Question(
        id="ch17-q15",
        asks=f"Ignoring rounding, which of these are associative: {', '.join(COMBINES)}? Answer with a set.",
        right=_associative,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: "mean" in v,
                "'mean' isn't right. Try 0, 0 and 8: first with parentheses on the left, then on the right.",
            ),
            Nudge(lambda v, r: "difference" in v, "Compare (3 - 2) - 1 with 3 - (2 - 1)."),
            Nudge(
                lambda v, r: "sum" not in v,
                "We ignore rounding here. Is there a reason to leave out 'sum'?",
            ),
            Nudge(
                lambda v, r: "last" not in v,
                "Take the last of three elements. Do the parentheses make a difference?",
            ),
        ),
        nudge="(a · b) · c must be a · (b · c) for all numbers. Try a few for each function.",
    ),
    Question(
        id="ch17-q17",
        asks="128 threads have each stored an element, then a single atomic releases. How many of the "
        "elements "
        "is the program that acquires guaranteed to see?",
        right=lambda: 1,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 128,
                "One thread executes the atomic. Has anything made it wait for the other 127?",
            ),
            Nudge(
                lambda v, r: v == 32,
                "The threads of a warp usually stay together, but that isn't guaranteed.",
            ),
            Nudge(
                lambda v, r: v == 0,
                "The thread that executes the atomic has stored an element too, and it releases that one.",
            ),
        ),
        nudge="A release covers what its own thread did before. There's no barrier for the others.",
    ),
)
