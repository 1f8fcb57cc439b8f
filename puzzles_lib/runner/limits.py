"""Limit the time, memory and depth of code that may never end, and restore everything after it.

A limit, or the learner's Ctrl-C, must strike only in the learner's code. An exception during the restoring
would leave things half restored. So each of these functions takes ``inside``, the function that may be
interrupted. While that function is not on the stack, a signal waits or has no effect.
"""

import contextlib
import ctypes
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

CLOCK = 10  # the most elapsed time of a block, in multiples of its CPU time: it may sleep or wait


class TimeLimitReached(BaseException):
    """The time is up. A BaseException, so that no ``except Exception`` in the running code swallows it."""


class Asleep(TimeLimitReached):
    """The limit on elapsed time is reached: the code has used little CPU time meanwhile."""


@contextlib.contextmanager
def time_limit(seconds: float, inside: Callable | None = None) -> Iterator[None]:
    """Raise `TimeLimitReached` in the block, or only in the function ``inside``, after ``seconds``.

    Seconds are CPU time of this thread, so a busy machine makes no difference. Code that sleeps or waits is
    ended, too, after `CLOCK` times as much elapsed time (`Asleep`). Time in which the thread could have run
    but got no processor is not counted. On the main thread, SIGALRM raises the exception, and its handler and
    timer are restored (pytest-timeout and others use it too). On other threads, a watchdog sets an exception,
    which arrives between bytecodes.
    """
    limit = _alarm if threading.current_thread() is threading.main_thread() else _watchdog
    with limit(_Allowance(seconds), inside):
        yield


class _Allowance:
    """The CPU time and the elapsed time that this thread may still use."""

    def __init__(self, seconds: float):
        self._processor = time.pthread_getcpuclockid(threading.get_ident())
        self._thread = threading.get_native_id()
        self._last = time.clock_gettime(self._processor) + seconds
        self._last_by_clock = time.monotonic() - queued(self._thread) + CLOCK * seconds

    def left(self) -> float:
        """Return seconds in which no limit can be reached, at most an hour; 0 if one is reached."""
        try:
            left = self._last - time.clock_gettime(self._processor)
        except OSError:  # the thread is gone
            return 0
        left = min(left, self._last_by_clock - (time.monotonic() - queued(self._thread)))
        return min(max(left, 1e-3), 3600) if left > 0 else 0

    def error(self) -> type[TimeLimitReached]:
        return TimeLimitReached if time.clock_gettime(self._processor) >= self._last else Asleep


def queued(thread: int) -> float:
    """Return the seconds that a thread of this process waited for a CPU; 0 if the system doesn't count."""
    try:
        with open(f"/proc/self/task/{thread}/schedstat") as times:
            return int(times.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@contextlib.contextmanager
def _alarm(allowance: _Allowance, inside: Callable | None) -> Iterator[None]:
    armed = True

    def stop(signum: int, frame: FrameType | None) -> None:
        if not armed:
            return
        if left := allowance.left():
            signal.setitimer(signal.ITIMER_REAL, left, 0.5)
        elif _is_running(inside, frame):
            raise allowance.error()

    started = time.monotonic()
    outer_handler = signal.getsignal(signal.SIGALRM)
    outer_left, outer_interval = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.signal(signal.SIGALRM, stop)
        # The repeat is for an exception lost where Python ignores them, such as in a __del__.
        signal.setitimer(signal.ITIMER_REAL, allowance.left() or 1e-3, 0.5)
        with undone_after_fork(lambda: signal.signal(signal.SIGALRM, outer_handler)), _quietly_lost():
            yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer_handler)
        if outer_left:
            left = outer_left - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), outer_interval)


@contextlib.contextmanager
def _quietly_lost() -> Iterator[None]:
    """Print nothing of a limit's exception that Python ignores: it comes again."""
    outer = sys.unraisablehook

    def told(lost: Any) -> None:
        if not issubclass(lost.exc_type, TimeLimitReached):
            outer(lost)

    sys.unraisablehook = told
    try:
        yield
    finally:
        sys.unraisablehook = outer


@contextlib.contextmanager
def _watchdog(allowance: _Allowance, inside: Callable | None) -> Iterator[None]:
    thread = threading.get_ident()
    done = threading.Event()
    lock = threading.Lock()

    def watch() -> None:
        while not done.wait(allowance.left() or 0.5):
            with lock:
                is_due = not done.is_set() and not allowance.left()
                if is_due and _is_running(inside, sys._current_frames().get(thread)):
                    _throw(thread, allowance.error())

    try:
        threading.Thread(target=watch, name="time limit", daemon=True).start()
        yield
    finally:
        try:
            with lock:
                done.set()
            time.sleep(0)  # one that was thrown and has not arrived yet does so here
        except TimeLimitReached:
            done.set()


def _throw(thread: int, error: type[BaseException]) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


@contextlib.contextmanager
def interrupts_held(inside: Callable) -> Iterator[Callable[[], bool]]:
    """Let Ctrl-C raise only in the function ``inside``. Elsewhere in the block it waits for the block's end.

    The block gets a function that returns whether a Ctrl-C is waiting.
    """
    outer = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(outer):
        yield lambda: False
        return
    waiting = False

    def interrupt(signum: int, frame: FrameType | None) -> None:
        nonlocal waiting
        if _is_running(inside, frame):
            outer(signum, frame)
        else:
            waiting = True

    try:
        signal.signal(signal.SIGINT, interrupt)
        with undone_after_fork(lambda: signal.signal(signal.SIGINT, outer)):
            yield lambda: waiting
    finally:
        signal.signal(signal.SIGINT, outer)
        if waiting:
            raise KeyboardInterrupt


def _is_running(function: Callable | None, frame: FrameType | None) -> bool:
    """Whether a call of the function is on a stack; without a function, always."""
    while frame is not None and function is not None and frame.f_code is not function.__code__:
        frame = frame.f_back
    return frame is not None


@contextlib.contextmanager
def recursion_limit(deeper: int) -> Iterator[None]:
    """Allow ``deeper`` more nested calls than now, whatever limit is set. Very deep calls crash Python."""
    depth = 0
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(min(before, depth + deeper))
    try:
        with undone_after_fork(lambda: sys.setrecursionlimit(before)):
            yield
    finally:
        sys.setrecursionlimit(before)


@contextlib.contextmanager
def memory_limit(extra_bytes: int) -> Iterator[None]:
    """Let the process map at most ``extra_bytes`` more than now. Beyond that, NumPy raises MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + extra_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        with undone_after_fork(lambda: resource.setrlimit(resource.RLIMIT_AS, (soft, hard))):
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


# ---- a fork in the middle

_undo: list[tuple[int, Callable[[], object]]] = []  # and the thread in whose block it is due


@contextlib.contextmanager
def undone_after_fork(undo: Callable[[], object]) -> Iterator[None]:
    """Call ``undo`` first in each process that another thread forks while the block runs.

    The block's own thread doesn't exist in that process, so the block would never end there.
    """
    entry = (threading.get_ident(), undo)
    _undo.append(entry)
    try:
        yield
    finally:
        _undo.remove(entry)


def _after_fork() -> None:
    for thread, undo in reversed(list(_undo)):
        if thread != threading.get_ident():
            undo()
    _undo[:] = [entry for entry in _undo if entry[0] == threading.get_ident()]


os.register_at_fork(after_in_child=_after_fork)
