"""Check that the machine code of a correct kernel meets its puzzle's goals. No GPU is needed."""

from puzzles_lib.binding import bind
from puzzles_lib.checker import launches
from puzzles_lib.checker.report import GoalResult, Verdict
from puzzles_lib.compiler import find_target, specialised
from puzzles_lib.goal import MEASURES, Goal, Once, Want, named, shown
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.measures import Reading, measure
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import Refusal, Site
from puzzles_lib.wrapped import unwrap


def judge(kernel: object, puzzle: Puzzle) -> tuple[GoalResult, ...]:
    """Return how a kernel that passes all cases meets each of the puzzle's goals for its machine code.

    The kernel is compiled for the goal's launch, once, in a separate process with limits; the result is kept
    on disk. For a kernel within `triton.autotune` the bare kernel counts.
    """
    found: list[GoalResult] = []
    for goal in puzzle.machine:
        if isinstance(goal, Once):
            found.append(_judged_together(kernel, puzzle, goal))
        else:
            found += (_judged(kernel, puzzle, goal, case) for case in goal.cases)
    return tuple(found)


def _judged(kernel: object, puzzle: Puzzle, goal: Goal, case: int) -> GoalResult:
    wrapped = unwrap(kernel)
    compiled = stages(_bare(kernel), puzzle, goal.target, case=case, num_warps=goal.num_warps)
    name = wrapped.kernel.__name__ if wrapped else "kernel"
    warps = f", num_warps={goal.num_warps}" if goal.num_warps != 4 else ""
    # Few chapters import stages, so what is offered to be copied brings its import.
    look = f"from puzzles_lib import stages\nstages({name}, {puzzle.name.upper()}, case={case}{warps})"
    if unread := _unread(compiled):
        return GoalResult(goal.launch(case), verdict=unread, look=look)
    if refused := launches.too_much(compiled.shared_bytes or 0, compiled.target):
        return GoalResult(goal.launch(case), verdict=refused, look=look)
    readings = [(want, measure(want.measure, compiled)) for want in goal.wants]
    missed = next((pair for pair in readings if not pair[0].is_met_by(pair[1].number)), None)
    told = [f"{MEASURES[want.measure]}: {want.told(found.number)}" for want, found in readings]
    told += [f"{MEASURES[name]}: {shown(name, measure(name, compiled).number)}" for name in goal.shows]
    return GoalResult(
        goal.launch(case), "; ".join(told), _verdict(*missed, compiled) if missed else None, look
    )


def _judged_together(kernel: object, puzzle: Puzzle, goal: Once) -> GoalResult:
    """Return whether launches of several cases share one compiled kernel."""
    kernels: dict[
        tuple[str, ...], list[int]
    ] = {}  # what is compiled into the kernel of each argument -> its cases
    names: tuple[str, ...] = ()
    for case in goal.cases:
        bound = bind(_bare(kernel), puzzle, puzzle.cases[case])
        target = find_target(goal.target)
        told = bound if isinstance(bound, Refusal) else specialised(bound.kernel, bound.arguments, target)
        if isinstance(told, Refusal):
            return GoalResult(goal.launch, verdict=Verdict("machine", f"it does not compile: {told}"))
        names = tuple(told)
        kernels.setdefault(tuple(told.values()), []).append(case)
    measured = f"kernels compiled: {len(kernels)}"
    if len(kernels) == 1:
        known = dict(zip(names, *kernels, strict=True))
        forgotten = next((name for name in goal.keeps if "divisible by" not in known.get(name, "")), "")
        if forgotten:
            text = f"the goal is that the compiler knows {forgotten} to be a multiple of 16; it doesn't"
            cause = f"{forgotten} is {known.get(forgotten, 'not a parameter')} for the compiler"
            return GoalResult(goal.launch, verdict=Verdict("machine", text, None, cause))
        return GoalResult(goal.launch, measured)
    classes = zip(names, zip(*kernels, strict=True), strict=True)
    name, seen = next((name, seen) for name, seen in classes if len(set(seen)) > 1)
    each = zip(seen, kernels.values(), strict=True)
    cause = f"{name} is " + "; ".join(f"{word} in {named(cases)}" for word, cases in each)
    bare = _bare(kernel)
    given, arguments = getattr(bare, "do_not_specialize", None) or (), getattr(bare, "arg_names", ())
    unknown = [each for each in given if isinstance(each, str) and each not in arguments]
    if unknown:
        cause = f"do_not_specialize names {unknown[0]!r}, but no argument has that name; {cause}"
    return GoalResult(
        goal.launch, verdict=Verdict("machine", f"{measured}, but the goal is one", None, cause)
    )


def _bare(kernel: object) -> object:
    """Return a kernel without `triton.autotune`."""
    wrapped = unwrap(kernel)
    return wrapped.kernel if wrapped and wrapped.autotuner else kernel


def _unread(compiled: Stages) -> Verdict | None:
    """Return why there is no machine code to read; None if there is."""
    if refusal := compiled.refusal:
        return Verdict("machine", f"it does not compile: {refusal.message}", refusal.site, refusal.advice)
    missing = Verdict("machine", "its machine code cannot be read: nvdisasm is missing")
    return None if compiled.read("sass") else missing


def _verdict(want: Want, found: Reading, compiled: Stages) -> Verdict:
    message = f"{MEASURES[want.measure]}: {want.told(found.number)}, but the goal is {want.bound}"
    line = found.line if found.line in compiled.source else None
    site = Site(line, compiled.source[line].strip()) if line is not None else None
    return Verdict("machine", message, site, found.cause)
