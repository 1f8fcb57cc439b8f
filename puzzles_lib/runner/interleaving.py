"""Run programs at the same time: one is set aside where it waits or is interrupted, and goes on later.

Programs run one after the other otherwise. Then nothing ever comes between two atomics of one program, and a
program that waits for another one sees the same value forever. Both differ on a GPU:

- A program that waits is set aside when it finds the same value again and again. It goes on after others have
run.
- With a `Plan`, program ``first`` is interrupted before its ``before``-th atomic, and ``second`` begins. It
  runs to its end, to where it waits, or is interrupted itself before its ``until``-th atomic. Then the first
  one goes on, and the second one after it.

To go on, a program that was set aside runs anew, and finds what it found the first time. So each program runs
as far as it can before another one does, and all of them may have begun at the same time.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from puzzles_lib.runner.records import Program, Stop
from puzzles_lib.source import Site


@dataclass(frozen=True)
class Plan:
    """Interrupt one program before one of its atomics, and run another one there.

    first, second: the numbers of the programs in launch order. before: the number of the atomic, from 1.
    until: the atomic before which the second program stops; None if it runs to its end.
    """

    first: int
    second: int
    before: int
    until: int | None = None


class SetAside(BaseException):
    """A program waits for what it finds, or is interrupted.

    stop: why the run ends if the program waits and nobody changes what it waits for; None if it doesn't wait.
    """

    def __init__(self, stop: Stop | None = None):
        super().__init__(stop.message if stop else "interrupted")
        self.stop = stop


@dataclass(eq=False)
class Begun:
    """A program, and where it was set aside.

    log: what its accesses have found so far. acquired, waiting: its state in `ordering.Ordering` and
        `memory.Memory`.
    entered: the era in which it began (see `ordering`); 0 if it has not begun. recorded: the recorder's
        state.
    stop: as for `SetAside`. waited: whether it has waited so far. ended: whether it has ended.
    """

    number: int
    program: Program
    log: list[Any] = field(default_factory=list)
    acquired: np.ndarray | None = None
    waiting: Any = None
    entered: int = 0
    recorded: Any = None
    stop: Stop | None = None
    waited: bool = False
    ended: bool = False


@dataclass
class Turns:
    """Follows one run in which programs may wait, or take turns by a plan.

    goes_on: a function that is called when a program that was run again does something new.
    between: the lines of the two atomics between which the first program of the plan was interrupted.
    """

    plan: Plan | None = None
    goes_on: Callable[[Begun], None] | None = None
    between: tuple[Site, Site] | None = None
    aside: list[Begun] = field(default_factory=list)
    _now: Begun | None = None
    _replayed: int | None = None
    _atomics: int = 0
    _last: Site | None = None
    _interruptions: int = 0
    _until_is_over: bool = False

    # ---- which program runs

    def schedule(self, programs: Sequence[Program], changes: Callable[[], int]) -> Iterator[Begun]:
        """Yield each program when it is to begin or to go on, until all have ended, or wait forever.

        changes: how often memory has been changed so far.
        """
        plan = self.plan
        for number, program in enumerate(programs):
            if plan and number == plan.second:
                continue
            one = Begun(number, program)
            yield from self._run(one)
            if plan and number == plan.first:
                second = Begun(plan.second, programs[plan.second])
                yield from self._run(second)
                for each in (one, second):
                    if each not in self.aside and not each.ended:
                        yield from self._run(each)
        yield from self._rest(changes)

    def _rest(self, changes: Callable[[], int]) -> Iterator[Begun]:
        """Yield the programs that were set aside, the last one first, until nothing changes anymore."""
        while self.aside:
            waiting, before = self.aside, (changes(), self._interruptions)
            self.aside = []
            while waiting:
                yield from self._run(waiting.pop())
                if (changes(), self._interruptions) != before:  # others that wait may go on now
                    waiting, before = [*self.aside, *waiting], (changes(), self._interruptions)
                    self.aside = []
            if (changes(), self._interruptions) == before:
                return

    def _run(self, one: Begun) -> Iterator[Begun]:
        self._now, self._replayed = one, 0
        self._atomics, self._last = 0, None
        one.ended, one.stop = True, None
        yield one

    def set_aside(self, one: Begun, stop: Stop | None) -> None:
        """Set the running program aside: it waits, or was interrupted."""
        one.ended, one.stop = False, stop
        if stop is not None:
            one.waited = True
            self.aside.append(one)
            return
        self._interruptions += 1
        if one.waited:
            self.aside.insert(0, one)  # all that wait come first

    # ---- what it finds

    @property
    def replays(self) -> bool:
        """Return whether the running program is only repeating what it did before."""
        return self._now is not None and self._replayed is not None and self._replayed < len(self._now.log)

    def atomic(self, site: Site) -> None:
        """Count an atomic before it is done. Raise `SetAside` if the program is to be interrupted here."""
        self._atomics += 1
        if self.plan is not None and self._now is not None and not self.replays:
            self._interrupt(self.plan, self._now.number, site)
        self._last = site

    def _interrupt(self, plan: Plan, number: int, site: Site) -> None:
        if number == plan.first and self._atomics == plan.before and self.between is None:
            self.between = (self._last or site, site)
            raise SetAside
        if number == plan.second and self._atomics == plan.until and self.between and not self._until_is_over:
            self._until_is_over = True
            raise SetAside

    def known(self) -> list[Any]:
        """Return what the next access found the first time, in a list; an empty list if it is new."""
        if not self.replays:
            return []
        assert self._replayed is not None and self._now is not None
        self._replayed += 1
        return [self._now.log[self._replayed - 1]]

    def found(self, result: Any) -> Any:
        """Keep what an access found, for when its program is run again."""
        assert self._now is not None
        if self._replayed is not None:
            self._replayed = None
            if self.goes_on:
                self.goes_on(self._now)
        self._now.log.append(result)
        return result
