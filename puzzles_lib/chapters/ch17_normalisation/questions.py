"""The predictions of chapter 17."""

import itertools
import math

import torch

from puzzles_lib.chapters.ch17_normalisation.puzzles import DW_BY_LOCK, LAYER_NORM, LAYER_NORM_DW
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case
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
FLAG_PAIRS = (
    "release, acquire",
    "acquire, release",
    "release, relaxed",
    "relaxed, acquire",
    "acq_rel, acq_rel",
)
"""The sem of the program that sets a flag, and of the program that reads it."""
FINDERS = {
    "own": True,
    "warp": False,
    "barrier": True,
    "grid": False,
    "flag": False,
    "launch": True,
}
"""Readers of a stored value, and whether each is guaranteed to see it."""
LAUNCH = Case(M=4096, N=8000, ROWS=24, BLOCK_M=1, BLOCK_N=2048)
"""Of puzzle 32: the launch whose grid is asked for."""


def _at_most() -> float:
    add_and_norm, fused = len("xrh") + len("hy"), len("xrhy")  # what is loaded or stored
    return add_and_norm / fused


def _too_large() -> float:
    return math.sqrt(128 / 100)


def _by_squares() -> float:
    x = torch.tensor([8192.0, 8194.0])
    return float(x.square().mean() - x.mean().square())


def _first_to_find_out() -> int:
    """Return the first case whose rstd comes out wrong when the variance is E[x²] - E[x]² in float32."""
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


def _ends(step: int) -> bool:
    """Return whether three programs, two at a time, finish in every order of starting.

    Program p waits for program p + step, if there is one.
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
    return LAYER_NORM_DW.programs(LAYER_NORM_DW.cases[1])[1]  # one per block of columns


def _recorded(path: str, what: str, columns: int) -> int:
    rows = load(ORDERS)["rows"]
    (row,) = [row for row in rows if row["path"] == path and f"x{columns}," in row["case"]]
    return row[what]


def _different_sums() -> tuple[str, ...]:
    sums = [_recorded(path, "sums", 4096) for path in ("layer_norm_dw", "dw_by_lock", "dw_by_atomics")]
    return tuple("one" if count == 1 else "many" for count in sums)


def _wrong_runs() -> tuple[str, ...]:
    runs = load(ORDERS)["runs"]
    wrong = [_recorded(f"dw_by_lock, {how}", "wrong", 1024) for how in ("no barrier", "relaxed")]
    return tuple("none" if count == 0 else "all" if count == runs else "some" for count in wrong)


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


def _grid() -> tuple[int, ...]:
    return tuple(DW_BY_LOCK.grid(LAUNCH))


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
        nudge="Count the boxes in the last two lines of the picture, and divide.",
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
        id="ch17-q4",
        asks="Which of the eight cases is the first that fails with the one-pass variance? Count from 0.",
        right=_first_to_find_out,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 4, "Small numbers around 0 have small squares, so nothing gets lost."),
        ),
        nudge="The last column of the table describes the numbers. Which are far from zero?",
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
        nudge="With turned, each lane loads the element that it stored itself. What does the rule say "
        "about that?",
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
        id="ch17-q9",
        asks="A sets a flag with one sem, B reads it with another. Which pairs guarantee that B sees A's "
        f"data: {'; '.join(FLAG_PAIRS)}? Answer with a set.",
        right=_hand_over,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: not v <= set(FLAG_PAIRS),
                f"Each element of the set is a pair in one string, such as '{FLAG_PAIRS[0]}'.",
            ),
            Nudge(
                lambda v, r: "acquire, release" in v,
                "In 'acquire, release', A acquires and B releases. But it's A that has stored something.",
            ),
            Nudge(
                lambda v, r: any("relaxed" in pair for pair in v),
                "You need both halves, and relaxed is neither a release nor an acquire.",
            ),
        ),
        nudge="A must release and B must acquire. Which values of sem do that?",
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
        id="ch17-q11",
        asks="With blocks of 1024 columns, how many of 200 runs are wrong (without the barrier, with relaxed "
        "atomics): 'none', 'some' or 'all'?",
        right=_wrong_runs,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) != 2 or not set(v) <= {"none", "some", "all"},
                "Answer with a pair of 'none', 'some' or 'all': (without the barrier, relaxed).",
            ),
            Nudge(
                lambda v, r: v[1] != r[1],
                "Nothing makes a program with relaxed atomics wait for its stores or forget what it has "
                "cached. How often can that be correct?",
            ),
        ),
        nudge="1024 columns are 8 per thread. By how much can the slowest of four warps be late with its "
        "stores, compared with the time that another program needs to get the lock?",
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
        nudge="Such blocks could be [1, 3] and [5, 7]. Take the squared distances of all four from 4.",
    ),
    Question(
        id="ch17-q14",
        asks="How many rounds does the doubling in the picture take for a block of 1024?",
        right=_rounds,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1023, "A loop takes 1023 additions. How many rounds does doubling take?"),
            Nudge(
                lambda v, r: v == 512,
                "Each round doubles the distance. How often can you double before 1024?",
            ),
        ),
        nudge="8 elements took 3 rounds, and each further round doubles the number of elements.",
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
        id="ch17-q16",
        asks="1000 programs, with room for 264 at a time. Is the launch guaranteed to finish if program "
        "p waits "
        "for a flag of (p + 1, p - 1)?",
        right=lambda: (_ends(1), _ends(-1)),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with a pair: (p waits for p + 1, p waits for p - 1)."),
            Nudge(
                lambda v, r: v[0],
                "Suppose programs 0 to 263 run, and each waits for the next. Which one makes room for 264?",
            ),
        ),
        nudge="It would finish if programs started in the order of their numbers. Is that guaranteed?",
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
    Question(
        id="ch17-q18",
        asks=f"A value is stored, then loaded. Who is guaranteed to see it: {', '.join(FINDERS)}? Answer "
        f"with "
        "a set.",
        right=lambda: {name for name, promised in FINDERS.items() if promised},
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v <= set(FINDERS), f"The allowed names are {', '.join(FINDERS)}."),
            Nudge(
                lambda v, r: "warp" in v,
                "The threads of a warp usually stay together. Is that on the list of the rule?",
            ),
            Nudge(lambda v, r: "grid" in v, "A barrier orders the threads of one program only."),
            Nudge(lambda v, r: "flag" in v, "A relaxed atomic orders nothing besides the flag itself."),
        ),
        nudge="Something is missing. Go through the four entries of the rule one by one.",
    ),
    Question(
        id="ch17-q19",
        asks="Which grid launches puzzle 32 for M = 4096, N = 8000, ROWS = 24 and BLOCK_N = 2048?",
        right=_grid,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) != 2,
                "The grid has two axes: parts of rows along axis 0, blocks of columns along axis 1.",
            ),
            Nudge(lambda v, r: v == r[::-1], "These are the right two numbers, but in the wrong order."),
            Nudge(
                lambda v, r: v[0] == LAUNCH.M // LAUNCH.ROWS or v[1] == LAUNCH.N // LAUNCH.BLOCK_N,
                "The last rows or columns don't fill a part, but they need a program, too. Round up.",
            ),
            Nudge(
                lambda v, r: v[0] == LAUNCH.M,
                "A program walks ROWS = 24 rows, BLOCK_M at a time. How many such parts are there?",
            ),
        ),
        nudge="Divide M by ROWS and N by BLOCK_N, and round both up.",
    ),
)
