"""Limits on time, memory and depth for code that may never end: set around a run, restored after it.

A limit, or the learner's Ctrl-C, must strike in the learner's code and nowhere else: an exception in the
midst of restoring things would leave them half restored. So each of these takes ``inside``: the
function that may be interrupted. While it is not on the stack, a signal waits or has no effect.
"""

import contextlib
import ctypes
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType


class TimeLimitReached(BaseException):
    """Raised in the running code. A BaseException, so that no ``except Exception`` swallows it."""


@contextlib.contextmanager
def time_limit(seconds: float, inside: Callable | None = None) -> Iterator[None]:
    """Raise `TimeLimitReached` in the block, or only in the function ``inside``, after ``seconds``.

    Wall clock. On the main thread by SIGALRM, whose handler and timer are restored (pytest-timeout and
    others use it too); on other threads by an exception that a watchdog sets, which arrives between
    bytecodes.
    """
    limit = _alarm if threading.current_thread() is threading.main_thread() else _watchdog
    with limit(seconds, inside):
        yield


@contextlib.contextmanager
def _alarm(seconds: float, inside: Callable | None) -> Iterator[None]:
    armed = True

    def stop(signum, frame):
        if armed and _is_running(inside, frame):
            raise TimeLimitReached

    started = time.monotonic()
    outer_handler = signal.getsignal(signal.SIGALRM)
    outer_left, outer_interval = signal.getitimer(signal.ITIMER_REAL)
    try:
        signal.signal(signal.SIGALRM, stop)
        # The repeat is for an exception lost where Python ignores them, such as in a __del__.
        signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer_handler)
        if outer_left:
            left = outer_left - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), outer_interval)


@contextlib.contextmanager
def _watchdog(seconds: float, inside: Callable | None) -> Iterator[None]:
    thread = threading.get_ident()
    done = threading.Event()
    lock = threading.Lock()

    def watch():
        wait = seconds
        while not done.wait(wait):
            with lock:
                if not done.is_set() and _is_running(inside, sys._current_frames().get(thread)):
                    _throw(thread, TimeLimitReached)
            wait = 0.5

    try:
        threading.Thread(target=watch, daemon=True).start()
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
def interrupts_held(inside: Callable) -> Iterator[None]:
    """Let Ctrl-C raise in the function ``inside`` only; elsewhere in the block it waits for the end."""
    outer = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(outer):
        yield
        return
    waiting = False

    def interrupt(signum, frame):
        nonlocal waiting
        if _is_running(inside, frame):
            outer(signum, frame)
        else:
            waiting = True

    try:
        signal.signal(signal.SIGINT, interrupt)
        yield
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
    """Allow that many more nested calls than now, not what somebody else has set: deep ones crash Python."""
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(min(before, depth + deeper))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


@contextlib.contextmanager
def memory_limit(extra_bytes: int) -> Iterator[None]:
    """Let the process map at most ``extra_bytes`` more than now; beyond, NumPy raises MemoryError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm") as statm:
        mapped = int(statm.read().split()[0]) * resource.getpagesize()
    limit = mapped + extra_bytes
    if soft != resource.RLIM_INFINITY:
        limit = min(limit, soft)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
