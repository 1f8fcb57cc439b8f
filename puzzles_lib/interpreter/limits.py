"""Limits on time and memory for code that may never end: set around a run, restored after it."""

import contextlib
import ctypes
import resource
import signal
import threading
import time
from collections.abc import Iterator


class TimeLimitReached(BaseException):
    """Raised in the running code. A BaseException, so that no ``except Exception`` swallows it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise `TimeLimitReached` inside the block once it has run for ``seconds`` (wall clock).

    On the main thread by SIGALRM, whose handler and timer are restored (pytest-timeout and others use
    it too); on other threads by an exception that a watchdog sets, which arrives between bytecodes.
    """
    limit = _alarm(seconds) if threading.current_thread() is threading.main_thread() else _watchdog(seconds)
    with limit:
        yield


@contextlib.contextmanager
def _alarm(seconds: float) -> Iterator[None]:
    armed = True

    def stop(signum, frame):
        if armed:
            raise TimeLimitReached

    started = time.monotonic()
    outer_handler = signal.signal(signal.SIGALRM, stop)
    # The repeat is for an exception lost where Python ignores them, such as in a __del__.
    outer_left, outer_interval = signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, outer_handler)
        if outer_left:
            left = outer_left - (time.monotonic() - started)
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-3), outer_interval)


@contextlib.contextmanager
def _watchdog(seconds: float) -> Iterator[None]:
    thread = ctypes.c_ulong(threading.get_ident())
    lock, armed = threading.Lock(), True

    def stop():
        with lock:
            if armed:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(thread, ctypes.py_object(TimeLimitReached))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            armed = False
        timer.cancel()


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
