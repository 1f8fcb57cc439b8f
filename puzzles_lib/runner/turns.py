"""Let one thread at a time run or translate a kernel, in a plain environment.

Running and translating change Triton's language and the process's limits for a while, and these are global.
So the other threads wait.
"""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from torch.utils import _python_dispatch as modes

from puzzles_lib.runner.limits import interrupts_held, undone_after_fork

PATIENCE_S = 300.0  # that a thread waits for the work of one other

T = TypeVar("T")


class Busy(Exception):
    """The work cannot be done now. The message says why, in a line."""


class _Turn:
    """The thread that is at work, by its number, and since when."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.lock = threading.Lock()
        self.thread: int | None = None
        self.since = 0.0


_turn = _Turn()


def alone(work: Callable[[], T]) -> T:
    """Return what ``work`` returns, while no other thread does such work.

    The work finds torch as in a fresh session: on the CPU, in float32, on one thread, whatever modes are on.
    (The tensors are small, and more threads would only spin.) Ctrl-C ends the waiting and the work.

    Raises `Busy` if this thread is doing such work already, or waits too long for another one.
    """
    if _turn.thread == threading.get_ident():
        raise Busy("a kernel is being checked right now, and it cannot check another one")
    with interrupts_held(inside=work) as interrupted:
        if _wait(interrupted):
            try:
                _turn.thread, _turn.since = threading.get_ident(), time.monotonic()
                with undone_after_fork(_turn.reset), _streams_undone_after_fork(), _plain_torch():
                    return work()
            finally:
                _turn.thread = None
                _turn.lock.release()
    raise KeyboardInterrupt  # while waiting


def _wait(interrupted: Callable[[], bool]) -> bool:
    """Wait for the turn; return False if Ctrl-C came first."""
    started = time.monotonic()
    while not _turn.lock.acquire(timeout=0.05):
        if interrupted():
            return False
        if time.monotonic() - max(started, _turn.since) > PATIENCE_S:
            raise Busy(
                f"another thread has been checking a kernel for {PATIENCE_S / 60:g} minutes: wait for it"
            )
    return True


@contextlib.contextmanager
def _streams_undone_after_fork() -> Iterator[None]:
    """Put the streams back in a forked process: a trace replaces them while triton-viz prints."""
    out, err = sys.stdout, sys.stderr

    def put_back() -> None:
        sys.stdout, sys.stderr = out, err

    with undone_after_fork(put_back):
        yield


@contextlib.contextmanager
def _plain_torch() -> Iterator[None]:
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float32)
    popped = [modes._pop_mode() for _ in modes._get_current_dispatch_mode_stack()]  # such as FakeTensorMode
    on_cpu = torch.get_default_device().type == "cpu"  # a mode slows down every operation: only if needed
    try:
        with contextlib.nullcontext() if on_cpu else torch.device("cpu"):
            yield
    finally:
        for mode in reversed(popped):
            modes._push_mode(mode)
        torch.set_default_dtype(dtype)
        torch.set_num_threads(threads)
