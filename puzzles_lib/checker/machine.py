"""Whether the machine code of a right kernel is what its puzzle wants: compiled here, with no GPU."""

from puzzles_lib.checker.report import GoalResult, Verdict
from puzzles_lib.goal import MEASURES, Goal, Want
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.measures import Reading, measure
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import Site
from puzzles_lib.wrapped import unwrap


def judge(kernel: object, puzzle: Puzzle) -> tuple[GoalResult, ...]:
    """How a kernel that passes all cases does by each of the puzzle's goals.

    It is compiled for the goal's own launch, in a process of its own under limits, and once only: what comes
    out is kept on disk. Of a kernel within `triton.autotune` it is the bare kernel that is judged.
    """
    return tuple(_judged(kernel, puzzle, goal, case) for goal in puzzle.machine for case in goal.cases)


def _judged(kernel: object, puzzle: Puzzle, goal: Goal, case: int) -> GoalResult:
    wrapped = unwrap(kernel)
    bare = wrapped.kernel if wrapped and wrapped.autotuner else kernel
    compiled = stages(bare, puzzle, goal.target, case=case, num_warps=goal.num_warps)
    name = wrapped.kernel.__name__ if wrapped else "kernel"
    warps = f", num_warps={goal.num_warps}" if goal.num_warps != 4 else ""
    look = f"stages({name}, {puzzle.name.upper()}, case={case}{warps})"
    if unread := _unread(compiled):
        return GoalResult(goal.launch(case), verdict=Verdict("machine", unread), look=look)
    readings = [(want, measure(want.measure, compiled)) for want in goal.wants]
    missed = next((pair for pair in readings if not pair[0].is_met_by(pair[1].number)), None)
    told = "; ".join(f"{MEASURES[want.measure]}: {want.told(found.number)}" for want, found in readings)
    return GoalResult(goal.launch(case), told, _verdict(*missed, compiled) if missed else None, look)


def _unread(compiled: Stages) -> str:
    """Why there is no machine code to read."""
    if compiled.refusal:
        return f"it does not compile: {compiled.refusal}"
    return "" if compiled.read("sass") else "its machine code cannot be read: nvdisasm is missing"


def _verdict(want: Want, found: Reading, compiled: Stages) -> Verdict:
    message = f"{MEASURES[want.measure]}: {want.told(found.number)}, {want.bound} wanted"
    line = found.line if found.line in compiled.source else None
    site = Site(line, compiled.source[line].strip()) if line is not None else None
    return Verdict("machine", message, site, found.cause)
