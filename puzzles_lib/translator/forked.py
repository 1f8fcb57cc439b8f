"""Be a forked process: limit itself, answer numbers one after another, and wait in between.

It sends each answer through a pipe, as a JSON list of one. If Python code raises an error, it sends
``{"error": words}`` and ends. In memory that it shares with its parent it notes its place as two numbers.
Nothing of the parent changes: limits, signals, files and ``sys.stdout`` are only set here.
"""

import faulthandler
import fcntl
import gc
import io
import json
import mmap
import os
import resource
import signal
import struct
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

DEEPEST = 20_000  # the most nested calls
HEADER = struct.Struct("<I")  # the number of bytes of an answer
NUMBER = struct.Struct("<q")  # the number that is asked
_PLACE = struct.Struct("<qq")
_LONGEST = 200  # characters of an error that is sent

Answer = Callable[[int], object]


class Place:
    """Two numbers that a child notes, for its parent to read after the child has ended.

    file: the file of the memory, if it belongs to another process.
    """

    def __init__(self, file: int | None = None):
        self.file = os.memfd_create("place") if file is None else file
        if file is None:
            os.ftruncate(self.file, mmap.PAGESIZE)
        self._shared = mmap.mmap(self.file, mmap.PAGESIZE)

    def note(self, first: int, second: int) -> None:
        _PLACE.pack_into(self._shared, 0, first, second)

    def read(self) -> tuple[int, int]:
        first, second = _PLACE.unpack_from(self._shared, 0)
        return first, second

    def close(self) -> None:
        self._shared.close()
        os.close(self.file)


Prepare = Callable[[Place], Answer]


@dataclass(frozen=True)
class Limits:
    """The limits of a child process.

    cpu_seconds: the CPU time for each answer; the elapsed time may be ``wall_per_cpu`` times as long.
    memory: the bytes that it may map beyond those it starts with.
    """

    cpu_seconds: float
    memory: int
    wall_per_cpu: int = 4

    def begin(self) -> None:
        """Start the time limit. The process ends when it is over."""
        self._set(self.cpu_seconds)

    def end(self) -> None:
        """Stop the time limit while the process waits."""
        self._set(0)

    def _set(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, self.wall_per_cpu * seconds)


def be_child(prepare: Prepare, limits: Limits, place: Place, asked: int, pipe: int) -> NoReturn:
    """Answer numbers and never return, because the parent's state, such as buffers, must stay as it is.

    prepare: returns the function that answers a number with JSON types. asked, pipe: the files to read
    numbers from and to write answers to.
    """
    try:
        _leave_the_parent()
        # 0, 1 and 2 may have been closed, and reused for these
        asked, pipe = (fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, 10) for file in (asked, pipe))
        output = os.open(os.devnull, os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = mapped + limits.memory
        resource.setrlimit(
            resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limits.begin()
        try:
            answer = prepare(place)
            while number := os.read(asked, NUMBER.size):
                limits.begin()
                _send(pipe, [answer(*NUMBER.unpack(number))], limits)
        except (MemoryError, RecursionError):
            raise  # of a limit, so that there may be no room for words
        except Exception as error:
            _send(pipe, {"error": " ".join(f"{type(error).__name__}: {error}".split())[:_LONGEST]}, limits)
    finally:
        os._exit(0)


def _send(pipe: int, told: object, limits: Limits) -> None:
    data = json.dumps(told).encode()
    limits.end()
    data = HEADER.pack(len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _leave_the_parent() -> None:
    """Drop tracing, the parent's handlers, filters and files, and keep its memory from being freed."""
    warnings.resetwarnings()
    warnings.simplefilter("ignore")  # whatever the parent makes of warnings, such as errors
    sys.settrace(None)
    sys.setprofile(None)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it too, and ends this process
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    faulthandler.disable()
    gc.freeze()
    sys.setrecursionlimit(DEEPEST)
    sys.stdout = sys.stderr = io.StringIO()
