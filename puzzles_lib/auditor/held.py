"""Delay the user's own signals while an audit works, such as the signal of a test's timeout.

Python calls a signal's handler between any two instructions. If the handler raises an exception while the
audit replaces a method of Triton's or puts it back, the rest is never done. So handlers are called only in
the user's own code and between two runs of a kernel. Ctrl-C is not among these signals: each run delays it by
itself (`puzzles_lib.runner.limits`).
"""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Collection, Iterator
from types import FrameType
from typing import Any

from puzzles_lib.auditor.catching import one_thread
from puzzles_lib.runner.limits import undone_after_fork

_NOT_CTRL_C = frozenset(signal.valid_signals() - {signal.SIGINT})


class Held:
    """Signals that are delayed, and those that came meanwhile. raised: exceptions of their handlers."""

    def __init__(self, numbers: Collection[int]) -> None:
        self.raised: BaseException | None = None
        self._numbers = numbers
        self._handlers: dict[int, Callable[..., Any]] = {}
        self._waiting: list[int] = []

    def _begin(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return  # handlers are called on the main thread alone
        for number in self._numbers:
            handler = signal.getsignal(number)
            if callable(handler):
                self._handlers[number] = handler
                signal.signal(number, self._wait)

    def _wait(self, number: int, frame: FrameType | None) -> None:
        if number not in self._waiting:
            self._waiting.append(number)

    def _restore(self) -> None:
        while self._handlers:
            number, handler = self._handlers.popitem()
            if signal.getsignal(number) == self._wait:
                signal.signal(number, handler)

    def _end(self) -> None:
        """Put the handlers back, and call those whose signals came."""
        self._restore()
        while self._waiting:
            number = self._waiting.pop(0)
            handler = signal.getsignal(number)
            if callable(handler):
                try:
                    handler(number, sys._getframe())
                except BaseException as error:
                    self.raised = error
                    raise

    def drop(self) -> None:
        """Forget the signals that came."""
        self._waiting.clear()

    def deliver(self) -> None:
        """Call the handlers of the signals that came. Their exceptions pass through."""
        if self._waiting:
            with self.released():
                pass

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Let signals come as they would without `held`, in the block."""
        try:
            self._end()
            yield
        finally:
            self._begin()


@contextlib.contextmanager
def held(numbers: Collection[int] = _NOT_CTRL_C) -> Iterator[Held]:
    """Delay signals until the end of the block, if Python functions handle them."""
    signals = Held(numbers)
    try:
        signals._begin()
        with undone_after_fork(signals._restore):
            yield signals
    finally:
        signals._end()


@contextlib.contextmanager
def entered(*managers: contextlib.AbstractContextManager) -> Iterator[None]:
    """Enter these managers. Signals come only in the block, not while the managers begin or end."""
    with one_thread(), held() as signals, contextlib.ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        with signals.released():
            yield
