"""Check that a correct kernel fetches as little from memory as its puzzle asks, by a model of the cache."""

from puzzles_lib import cache_model
from puzzles_lib.binding import Bound, bind
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.checker.report import GoalResult, Verdict
from puzzles_lib.goal import Traffic
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.runner import Options, Run


def judge(kernel: object, puzzle: Puzzle, seconds: float) -> tuple[GoalResult, ...]:
    """Return how a kernel that passes all cases meets each of the puzzle's traffic goals.

    For a kernel within `triton.autotune` the first configuration counts. seconds: the CPU time for a run.
    """
    return tuple(_judged(kernel, puzzle, goal, seconds) for goal in puzzle.traffic)


def _judged(kernel: object, puzzle: Puzzle, goal: Traffic, seconds: float) -> GoalResult:
    case = puzzle.cases[goal.case]
    bound = bind(kernel, puzzle, case)
    assert isinstance(bound, Bound)  # it has been run
    ran = attempt(bound, make_inputs(puzzle, case), Options(record=True, quiet=True, seconds=seconds))
    counted = fetches(puzzle, ran, goal)
    total = sum(times for times, _ in counted.values())
    told = f"{total:,} cache lines of {cache_model.LINE} bytes are fetched"
    verdict = None
    if ran.stop or total > goal.most:
        message = f"{told}, but the goal is at most {goal.most:,}" if not ran.stop else ran.stop.message
        why = goal.why(puzzle, goal, ran) if goal.why and not ran.stop else ""
        verdict = Verdict("traffic", message, diagnosis=_words(counted, why))
    look = f"trace({bound.kernel.__name__}, {puzzle.name.upper()}, case={goal.case})"
    return GoalResult(goal.launch, told, verdict, look, of="traffic")


def fetches(puzzle: Puzzle, ran: Run, goal: Traffic) -> dict[str, tuple[int, int]]:
    """Return for each tensor the lines that a recorded run fetches, and how many different ones."""
    widths = {argument.name: argument.dtype.itemsize for argument in puzzle.tensors}
    programs = cache_model.lines(ran.accesses, widths)
    found = cache_model.fetched(programs, goal.in_flight, goal.cache // cache_model.LINE)
    return cache_model.by_tensor(found)


def _words(counted: dict[str, tuple[int, int]], why: str) -> str:
    each = " and ".join(
        f"{name} is fetched {times / lines:.1f} times" for name, (times, lines) in counted.items()
    )
    return f"{each}: {why or 'programs that run at the same time should share more cache lines'}"
