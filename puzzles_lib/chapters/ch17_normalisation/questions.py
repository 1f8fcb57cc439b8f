"""The predictions of chapter 17."""

import itertools
import math

import torch

from puzzles_lib.bench.recorded import ORDERS, load
from puzzles_lib.chapters.ch17_normalisation.puzzles import LAYER_NORM, LAYER_NORM_DW
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question

COMBINES = {
    "sum": lambda a, b: a + b,
    "max": max,
    "mean": lambda a, b: (a + b) / 2,
    "difference": lambda a, b: a - b,
    "last": lambda a, b: b,
}
"""Functions of two numbers that a scan might be given, by name."""
FLAG_PAIRS = (
    "release, acquire",
    "acquire, release",
    "release, relaxed",
    "relaxed, acquire",
    "acq_rel, acq_rel",
)
"""The sem of who sets a flag, and of who looks at it."""
FINDERS = {
    "own": True,
    "warp": False,
    "barrier": True,
    "grid": False,
    "flag": False,
    "launch": True,
}
"""Who loads what was stored, and whether it is promised to be there."""


def _at_most() -> float:
    add_and_norm, fused = len("xrh") + len("hy"), len("xrhy")  # what is loaded or stored
    return add_and_norm / fused


def _too_large() -> float:
    return math.sqrt(128 / 100)


def _by_squares() -> float:
    x = torch.tensor([8192.0, 8194.0])
    return float(x.square().mean() - x.mean().square())


def _first_to_find_out() -> int:
    """Where mean and square of the mean, in float32, give another rstd."""
    for number, case in enumerate(LAYER_NORM.cases):
        x = make_inputs(LAYER_NORM, case)["x"]
        by_squares = torch.rsqrt(x.square().mean(1) - x.mean(1).square() + 1e-5)
        right = torch.rsqrt(x.double().var(1, correction=0) + 1e-5)
        if not torch.allclose(by_squares.double(), right, rtol=1e-2):
            return number
    raise AssertionError("no case finds it out")


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
    """dw[n] = 5 after two programs have loaded it, added 1 and stored it, in every order of the steps."""
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


def _ends(step: int) -> bool:
    """Whether three programs, of which two have room, end in every order of starting.

    Program p waits for p + step, if there is one.
    """
    for order in itertools.permutations(range(3)):
        done, waiting = set(), list(order)
        while ready := [p for p in waiting[:2] if p + step not in range(3) or p + step in done]:
            done.add(ready[0])
            waiting.remove(ready[0])
        if waiting:
            return False
    return True


def _hand_over() -> set[str]:
    pairs = {pair: pair.split(", ") for pair in FLAG_PAIRS}
    both = "acq_rel"
    return {pair for pair, (a, b) in pairs.items() if a in ("release", both) and b in ("acquire", both)}


def _adding_up() -> int:
    return LAYER_NORM_DW.programs(LAYER_NORM_DW.cases[1])[1]  # one for each block of columns


def _recorded(path: str, what: str, columns: int) -> int:
    rows = load(ORDERS)["rows"]
    (row,) = [row for row in rows if row["path"] == path and f"x{columns}," in row["case"]]
    return row[what]


def _different_sums() -> tuple[int, int]:
    return tuple(_recorded(path, "sums", 4096) for path in ("layer_norm_dw", "dw_by_atomics"))


def _wrong_runs() -> tuple[int, int]:
    return tuple(_recorded("dw_by_lock, no barrier", "wrong", columns) for columns in (1024, 16384))


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
        asks="An addition and a norm in two kernels, then in one: how many times as fast can the one be, if "
        "only bytes count?",
        right=_at_most,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.005,
        nudges=(
            Nudge(lambda v, r: abs(v - 0.8) < 0.005, "that is the share of time that is left: turn it over"),
            Nudge(lambda v, r: v == 2, "two kernels, but not twice the bytes"),
        ),
        nudge="count the squares in the last two lines of the picture",
    ),
    Question(
        id="ch17-q2",
        asks="N = 100 in a block of 128, and the sum is divided by BLOCK_N. By which factor is y too large "
        "(within 1%)?",
        right=_too_large,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.01 * right,
        nudges=(
            Nudge(
                lambda v, r: abs(v - 1.28) < 0.02, "so much too small is the mean of squares; y has its root"
            ),
            Nudge(lambda v, r: v < 1, "a mean of squares that is too small makes y larger"),
        ),
        nudge="y is divided by the root of the mean of squares",
    ),
    Question(
        id="ch17-q3",
        asks="x holds 8192 and 8194. What is E[x²] - E[x]² in float32?",
        right=_by_squares,
        kind=float,
        same=lambda value, right: value == right,
        nudges=(Nudge(lambda v, r: v == 1, "so it is on paper; but float32 has no room for both squares"),),
        nudge="8193² is above 2^26, where float32 has only multiples of 8",
    ),
    Question(
        id="ch17-q4",
        asks="The variance by squares: which is the first of the eight cases to find out, counted from 0?",
        right=_first_to_find_out,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 4, "small numbers around 0 lose nothing"),),
        nudge="the last column of the table says where the numbers lie",
    ),
    Question(
        id="ch17-q5",
        asks="What do the elements of a row of dx add up to?",
        right=_sum_of_dx,
        kind=float,
        same=lambda value, right: abs(value - right) < 1e-6,
        nudge="add the same number to every x of a row: what happens to y, and so to the loss?",
    ),
    Question(
        id="ch17-q6",
        asks="x is twice as large, eps next to nothing, dy the same. By which factor does dx change?",
        right=_of_twice_x,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 1, "y is the same; but a step in x is now a smaller part of x"),
            Nudge(lambda v, r: v in (2, 4), "which way does rstd move?"),
        ),
        nudge="x̂ and g are as before; what stands in front of the bracket?",
    ),
    Question(
        id="ch17-q7",
        asks="Is through_memory_kernel right on a GPU: (as it stands, with turned for offs in its last two "
        "lines)?",
        right=lambda: (False, True),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two answers: (as it stands, with turned)"),
            Nudge(lambda v, r: v[0], "who stores z[0], who loads it, and what makes one wait for the other?"),
        ),
        nudge="with turned, which lane loads what a lane has stored?",
    ),
    Question(
        id="ch17-q8",
        asks="Two programs add 1 to dw[n] = 5, each by a load, an add and a store. Which values can be left?",
        right=_updates,
        kind=set,
        nudges=(
            Nudge(lambda v, r: 5 in v, "somebody stores last, and has added"),
            Nudge(lambda v, r: len(v) == 1, "there is more than one order"),
        ),
        nudge="let one do all before the other; then let both load first",
    ),
    Question(
        id="ch17-q9",
        asks="A sets a flag with one sem, B looks at it with another. Which pairs hand A's data over every "
        f"time: {'; '.join(FLAG_PAIRS)}? A set.",
        right=_hand_over,
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v <= set(FLAG_PAIRS), f"name pairs such as '{FLAG_PAIRS[0]}'"),
            Nudge(
                lambda v, r: "acquire, release" in v, "A has stored before, B loads after: who is to release?"
            ),
            Nudge(
                lambda v, r: any("relaxed" in pair for pair in v), "it takes two; what does relaxed order?"
            ),
        ),
        nudge="A must release, and B acquire: which values of sem do the one, and which the other?",
    ),
    Question(
        id="ch17-q10",
        asks="Case 1: how many of its programs add up parts?",
        right=_adding_up,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1, "one for each count: and how many counts are there?"),
            Nudge(lambda v, r: v == 6, "so many leave a part"),
        ),
        nudge="who comes last at count[j], adds up block j of the columns",
    ),
    Question(
        id="ch17-q11",
        asks="No barrier before the lock is given back: how many of 200 runs are wrong, with (1024, 16384) "
        "columns a program? Within 20.",
        right=_wrong_runs,
        kind=tuple,
        same=lambda value, right: (
            len(value) == 2 and all(abs(a - b) <= 20 for a, b in zip(value, right, strict=True))
        ),
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (with 1024 columns, with 16384)"),
            Nudge(lambda v, r: abs(v[0] - v[1]) <= 20, "the two are far apart"),
            Nudge(lambda v, r: v[0] > v[1], "in which of the two has a thread more to store?"),
        ),
        nudge="the wider the block, the later its last warp is done",
    ),
    Question(
        id="ch17-q12",
        asks="200 runs on the same numbers, 4096 columns. How many different sums come out: (in two stages, "
        "by atomics)? The second within 20.",
        right=_different_sums,
        kind=tuple,
        same=lambda value, right: len(value) == 2 and value[0] == right[0] and abs(value[1] - right[1]) <= 20,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two numbers: (in two stages, by atomics)"),
            Nudge(lambda v, r: v[0] != r[0], "parts are added in their order: what could differ?"),
        ),
        nudge="512 parts arrive in some order, at each of 8192 elements; how likely is the same bits twice?",
    ),
    Question(
        id="ch17-q13",
        asks="(n = 2, mean = 2, M2 = 2) and (n = 2, mean = 6, M2 = 2): what is the M2 of both?",
        right=_merged,
        kind=float,
        nudges=(
            Nudge(lambda v, r: v == 4, "the means are apart, too"),
            Nudge(lambda v, r: v == 36, "δ² is 16, and n1 n2 / n is 1"),
        ),
        nudge="1, 3 and 5, 7 would be such blocks: take all four around 4",
    ),
    Question(
        id="ch17-q14",
        asks="How many rounds does the doubling of the picture need for a block of 1024?",
        right=_rounds,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1023, "so many turns has a loop"),
            Nudge(lambda v, r: v == 512, "a round doubles the distance"),
        ),
        nudge="8 elements took 3",
    ),
    Question(
        id="ch17-q15",
        asks=f"Rounding aside, which of these are associative: {', '.join(COMBINES)}? A set of names.",
        right=_associative,
        kind=set,
        nudges=(
            Nudge(lambda v, r: "mean" in v, "take the mean of 0, 0 and 8 in both ways"),
            Nudge(lambda v, r: "difference" in v, "(3 - 2) - 1, and 3 - (2 - 1)"),
            Nudge(lambda v, r: "sum" not in v, "rounding aside; a scan of sums rounds as its brackets fall"),
            Nudge(lambda v, r: "last" not in v, "the last of three is the last, whoever asks"),
        ),
        nudge="(a . b) . c must be a . (b . c), for all numbers",
    ),
    Question(
        id="ch17-q16",
        asks="1000 programs, room for 264 at a time; p waits for a flag of (p + 1, p - 1). Does it end?",
        right=lambda: (_ends(1), _ends(-1)),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "two answers: (p waits for p + 1, p waits for p - 1)"),
            Nudge(
                lambda v, r: v[0],
                "264 are there, and each waits for the next: who makes room for number 265?",
            ),
        ),
        nudge="if programs start in the order of their numbers; but do they?",
    ),
    Question(
        id="ch17-q17",
        asks="128 threads have stored an element each, then one atomic releases. How many of the elements "
        "is who acquires promised to find?",
        right=lambda: 1,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 128, "a thread does the atomic: what does it know of the other 127?"),
            Nudge(lambda v, r: v == 32, "the threads of a warp mostly go together; nothing promises it"),
            Nudge(
                lambda v, r: v == 0, "who does the atomic has stored an element, too, and does release that"
            ),
        ),
        nudge="release orders what this thread did before; and no barrier stands between",
    ),
    Question(
        id="ch17-q18",
        asks=f"A value is stored, then loaded. Who is promised to find it: {', '.join(FINDERS)}? A set.",
        right=lambda: {name for name, promised in FINDERS.items() if promised},
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v <= set(FINDERS), f"names are {', '.join(FINDERS)}"),
            Nudge(lambda v, r: "warp" in v, "a warp's threads mostly go together: is it promised?"),
            Nudge(lambda v, r: "grid" in v, "a barrier is for the threads of one program"),
            Nudge(lambda v, r: "flag" in v, "relaxed orders nothing beside the flag itself"),
        ),
        nudge="one is missing: whose accesses stay in order, what do a barrier and a launch's end promise?",
    ),
)
