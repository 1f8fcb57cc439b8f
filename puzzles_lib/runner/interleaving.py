"""Two programs that take turns: one is interrupted before an atomic, and another one runs in between.

Programs run one after the other otherwise, so nothing ever comes between two atomics of one program, as it
may on a GPU. With a `Plan` program ``first`` stops before its ``before``-th atomic, and ``second`` begins. It
runs to its end, or stops before its own ``until``-th atomic. Then the first one goes on to its end, and the
second one after it. To go on, a program that was stopped runs anew, and finds what it found the first time.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from puzzles_lib.source import Site


@dataclass(frozen=True)
class Plan:
    """Numbers of two programs in launch order, and of atomics, from 1. until: None for to the end."""

    first: int
    second: int
    before: int
    until: int | None = None


class Stopped(BaseException):
    """The second program has come to where it is to stop."""


@dataclass
class Turns:
    """Follows one run by a plan. switch: runs the second program, and puts everything back.

    between: the lines of the two atomics between which the second program ran.
    """

    plan: Plan
    switch: Callable[[], None]
    between: tuple[Site, Site] | None = None
    stopped: bool = False  # the second program has not come to its end
    _running: int = -1  # the program that runs by the plan
    _atomics: int = 0
    _last: Site | None = None
    _log: list[Any] = field(default_factory=list)
    _replayed: int | None = None

    def enter(self, number: int) -> None:
        """A program begins in its place."""
        self._running, self._atomics, self._last = number, 0, None
        self._replayed = 0 if number == self.plan.second and self.stopped else None

    def interrupt(self) -> None:
        """Let the second program run, as far as the plan says."""
        kept = self._atomics, self._last
        self.enter(self.plan.second)
        try:
            self.switch()
        except Stopped:
            self.stopped = True
        self._running, (self._atomics, self._last) = self.plan.first, kept

    def atomic(self, site: Site) -> None:
        """An atomic is about to be done."""
        if self._replayed is not None:
            return
        self._atomics += 1
        if self._running == self.plan.first and self._atomics == self.plan.before and self.between is None:
            self.between = (self._last or site, site)
            self.interrupt()
        elif self._running == self.plan.second and self._atomics == self.plan.until and self._may_stop:
            raise Stopped
        self._last = site

    @property
    def _may_stop(self) -> bool:
        """Whether the first program waits, and the second one has not been stopped yet."""
        return self.between is not None and not self.stopped

    def known(self) -> list[Any]:
        """What the access that is about to be done found the first time, in a list; else an empty one."""
        if self._replayed is None:
            return []
        if self._replayed == len(self._log):
            self._replayed = None  # from here on it goes on
            return []
        self._replayed += 1
        return [self._log[self._replayed - 1]]

    def found(self, result: Any) -> Any:
        """Keep what an access of the second program found, for when it runs anew."""
        if self._running == self.plan.second and not self.stopped:
            self._log.append(result)
        return result
