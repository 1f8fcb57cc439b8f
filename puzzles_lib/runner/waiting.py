"""Programs that wait for another one are set aside, and go on when others have run.

Programs run one after the other otherwise, so a program that waits would find for ever what it finds. To go
on, a program that was set aside runs anew, and finds what it found the first time.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from puzzles_lib.runner.records import Program, Stop
from puzzles_lib.source import Site


class SetAside(BaseException):
    """A program waits for what it finds. stop: why the run ends if nobody changes that."""

    def __init__(self, stop: Stop):
        super().__init__(stop.message)
        self.stop = stop


@dataclass
class _Aside:
    """A program that was set aside: what it has found and acquired so far, and what it waits for."""

    number: int
    program: Program
    log: list[Any]
    acquired: np.ndarray | None
    waiting: Any


@dataclass
class Waits:
    """Follows one run in which programs may wait. Memory asks it as it asks `interleaving.Turns`."""

    between: None = None
    aside: list[_Aside] = field(default_factory=list)
    _log: list[Any] = field(default_factory=list)
    _replayed: int | None = None

    @property
    def replays(self) -> bool:
        """Whether the program that runs finds what it found before."""
        return self._replayed is not None and self._replayed < len(self._log)

    def enter(self, log: list[Any] | None = None) -> None:
        """A program begins, or goes on after what it has found."""
        self._log = [] if log is None else log
        self._replayed = None if log is None else 0

    def atomic(self, site: Site) -> None:
        """An atomic is about to be done."""

    def known(self) -> list[Any]:
        """What the access that is about to be done found the first time, in a list; else an empty one."""
        if not self.replays:
            return []
        assert self._replayed is not None
        self._replayed += 1
        return [self._log[self._replayed - 1]]

    def found(self, result: Any) -> Any:
        self._log.append(result)
        self._replayed = None
        return result

    def set_aside(self, number: int, program: Program, acquired: np.ndarray | None, waiting: Any) -> None:
        self.aside.append(_Aside(number, program, self._log, acquired, waiting))

    def ending(self, changes: Callable[[], int]) -> Iterator[_Aside]:
        """The programs that were set aside, each to go on now, the last one first, until all have ended.

        One that waits again is set aside again. Nobody changes anything in a whole round: the run ends there,
        since it is the one who goes on that raises `SetAside` then.
        """
        while self.aside:
            waiting, before = self.aside, changes()
            self.aside = []
            while waiting:
                yield waiting.pop()
                if changes() != before:  # others that wait may go on now
                    waiting, before = [*waiting, *self.aside], changes()
                    self.aside = []
            if self.aside and changes() == before:
                return
