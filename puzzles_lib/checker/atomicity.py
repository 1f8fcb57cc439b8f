"""Run other programs between two atomics of a program, because a GPU may do so.

Two atomics are not one. What the first one found can be out of date when the second one runs, because another
program may have run in between. So one program is interrupted before one of its atomics, and another one runs
there, to its end or up to one of its own atomics. A result that is wrong then can be wrong on a GPU, too.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from puzzles_lib.binding import Bound
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.races import Threads
from puzzles_lib.checker.report import Verdict
from puzzles_lib.runner import Options, Plan, Run

MOST = 24  # runs in which programs take turns, in one check
RACES = 4
_ATOMICS = 4  # of a program, at which it is interrupted
_PROGRAMS = 4  # that take turns in all pairs, beside the last two
_MEETINGS = 4  # of programs that update one element
UNENDING = ("deadlock", "time limit", "memory limit")  # of a plan in which one program waits for the other


@dataclass
class Budget:
    """The number of runs with interrupted programs that a check may still make.

    Only some of them may look for races within a program.
    """

    left: int = MOST
    races: int = RACES


def plans(ran: Run) -> Iterator[Plan]:
    """Yield the ways in which two programs take turns, the most promising first."""
    yield from dict.fromkeys([*(Plan(*met) for met in ran.meetings[:_MEETINGS]), *_usual_plans(ran)])


def _usual_plans(ran: Run) -> Iterator[Plan]:
    """Plans for the first programs and the last two, and for their first atomics."""
    most, count = min(ran.atomics, _ATOMICS), ran.programs
    near = [(0, 1), (1, 0), (count - 2, count - 1), (count - 1, count - 2)] if count > 1 else []
    some = range(min(count, _PROGRAMS))
    pairs = dict.fromkeys([*near, *((i, j) for i in some for j in some if i != j)])
    for first, second in pairs:
        for before in range(2, most + 1):
            yield Plan(first, second, before)
    for before in range(2, most + 1) if count > 1 else ():
        for until in range(2, most + 1):
            yield Plan(0, 1, before, until)


def lost(
    bound: Bound,
    judged: Callable[[Run], Verdict | None],
    forwards: Run,
    run: Callable[[Options], Run],
    budget: Budget,
    threads: Threads,
) -> Verdict | None:
    """Return what goes wrong if programs take turns; None if nothing does.

    judged: returns what is wrong with a run. threads: looks for races within a program, some of whose lines
    run only while another program holds a lock.
    forwards: a run in which programs don't take turns, and nothing went wrong. A plan that cannot come to its
    end is skipped: on a GPU the program that waits would let the other one go on.
    """
    if forwards.programs < 2 or forwards.atomics < 2:
        return None
    for plan in plans(forwards):
        if budget.left <= 0:
            return None
        budget.left -= 1
        ran = run(Options(plan=plan, quiet=True))
        if ran.between is None or (ran.stop and ran.stop.kind in UNENDING and not _waits_by_load(ran)):
            continue
        verdict = judged(ran)
        if verdict is not None and _waits_by_load(ran):
            return verdict
        if verdict is not None:
            return verdicts.interrupted(bound.puzzle, bound.case, verdict, ran, plan)
        if ran.suspect and budget.races > 0:
            budget.races -= 1
            if race := threads.race(bound, _in_turns(run, plan)):
                return race
    return None


def _waits_by_load(ran: Run) -> bool:
    """Return whether a program waits by plain loads, which compiled don't look again."""
    return ran.stop is not None and ran.stop.kind == "deadlock" and "plain load" in ran.stop.advice


def _in_turns(run: Callable[[Options], Run], plan: Plan) -> Callable[[Options], Run]:
    """Return a function that runs with the programs in turns."""
    return lambda options: run(replace(options, plan=plan))
