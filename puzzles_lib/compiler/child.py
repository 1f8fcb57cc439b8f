"""Work in a child: a fork of this process, which may crash, hang or eat memory without harm to this one.

The child has all that the work can reach, a notebook's cells included. What comes back is JSON through a
pipe, and two numbers in memory that both see, where the child notes how far it is. Nothing of the parent
is changed: limits, signals, files and ``sys.stdout`` are set in the child alone.
"""

import contextlib
import faulthandler
import fcntl
import functools
import gc
import io
import json
import mmap
import os
import resource
import select
import signal
import struct
import sys
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from puzzles_lib.interpreter.limits import interrupts_held

HANGS_AFTER = 3.0  # seconds asleep, waiting for a lock that another thread held at the fork, say
WALL_PER_CPU = 4  # wall seconds that a part of the work may take, for one of its CPU seconds
DEEPEST = 20_000  # nested calls in the child
_LOOK_EVERY = 0.1
_HEADER = struct.Struct("<I")
_PLACE = struct.Struct("<qq")
_DONE = b"\0\0\0\0"  # an answer of no bytes
# Python 3.12 warns of threads, and 3.11 cannot: see HANGS_AFTER.
_QUIET = (
    contextlib.nullcontext
    if sys.version_info < (3, 12)
    else functools.partial(warnings.catch_warnings, action="ignore", category=DeprecationWarning)
)
_forking = threading.Lock()  # a child that another thread makes meanwhile would keep the pipe open

Send = Callable[[object], None]


class Place:
    """Two numbers that a child notes, for its parent to read when the child is no more."""

    def __init__(self) -> None:
        self._shared = mmap.mmap(-1, mmap.PAGESIZE)

    def note(self, first: int, second: int) -> None:
        _PLACE.pack_into(self._shared, 0, first, second)

    def read(self) -> tuple[int, int]:
        first, second = _PLACE.unpack_from(self._shared, 0)
        return first, second


@dataclass(frozen=True)
class Limits:
    """cpu_seconds: for each part of the work. memory: bytes that may be mapped on top of what is."""

    cpu_seconds: float
    memory: int

    def begin_part(self) -> None:
        """Called in the child: time counts from here. When it is over, the child ends."""
        signal.setitimer(signal.ITIMER_PROF, self.cpu_seconds)
        signal.setitimer(signal.ITIMER_REAL, WALL_PER_CPU * self.cpu_seconds)


@dataclass
class Ending:
    """What a child sent, and what ended it: ``""``, ``"time"``, ``"hung"`` or ``"crash"``."""

    answers: list = field(default_factory=list)
    cause: str = ""


def in_child(work: Callable[[Send], None], limits: Limits) -> Ending:
    """Do the work in a child. It is handed a function that sends an answer, anything that JSON holds.

    A child that hangs is tried once more. Raises KeyboardInterrupt when interrupted, the child ended,
    and OSError where no process can be made.
    """
    ending = _once(work, limits)
    return _once(work, limits) if ending.cause == "hung" else ending


def _once(work: Callable[[Send], None], limits: Limits) -> Ending:
    ending = Ending()
    pipe = child = -1
    heard, status = "", 0

    def listen() -> None:
        nonlocal heard
        heard = _listen(pipe, child, ending.answers)

    with interrupts_held(inside=listen):
        try:
            pipe, child = _fork(work, limits)
            listen()
        finally:
            if child > 0:
                os.close(pipe)
                status = _end(child, kill=heard != "over")
    if heard == "hung":
        ending.cause = "hung"
    elif heard == "over":
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        ending.cause = "time" if by in (signal.SIGPROF, signal.SIGALRM) else "crash"
    return ending


def _listen(pipe: int, child: int, answers: list) -> str:
    """Collect what the child sends until it is ``"done"``, or ``"over"`` before that, or ``"hung"``."""
    received = bytearray()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    asleep = 0.0
    while True:
        if not poll.poll(_LOOK_EVERY * 1000):
            state = _state(child)
            if state in ("", "Z"):  # and some other process has the pipe
                return "over"
            asleep = asleep + _LOOK_EVERY if state == "S" else 0.0
            if asleep > HANGS_AFTER:
                return "hung"
            continue
        data = os.read(pipe, 1 << 16)
        if not data:
            return "over"
        received += data
        while len(received) >= _HEADER.size:
            (length,) = _HEADER.unpack_from(received)
            if not length:
                return "done"
            if len(received) < _HEADER.size + length:
                break
            answers.append(json.loads(received[_HEADER.size : _HEADER.size + length]))
            del received[: _HEADER.size + length]


def _state(child: int) -> str:
    """Of a process: R, S, D, Z; empty where there is none any more."""
    try:
        with open(f"/proc/{child}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _end(child: int, kill: bool) -> int:
    """Fetch a child's status; 0 where somebody else has, who waits for all of this process's children."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if kill:
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    return 0


def _fork(work: Callable[[Send], None], limits: Limits) -> tuple[int, int]:
    """The end of a pipe to read from, and the child that writes to it."""
    parent = os.getpid()
    with _forking, _QUIET():
        reading, writing = os.pipe()
        try:
            child = os.fork()
            if child == 0:
                _be_child(work, limits, writing)
        except OSError:
            os.close(reading)
            raise
        finally:
            if os.getpid() != parent:
                os._exit(1)
            os.close(writing)
    return reading, child


def _be_child(work: Callable[[Send], None], limits: Limits, pipe: int) -> NoReturn:
    """Never returns: what belongs to the parent, such as buffers not yet written, must not be touched."""
    try:
        _leave_the_parent()
        pipe = fcntl.fcntl(pipe, fcntl.F_DUPFD_CLOEXEC, 10)  # 1 and 2 may have been closed, and be it
        output = os.open(os.devnull, os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)

        def write(data: bytes) -> None:
            while data:
                data = data[os.write(pipe, data) :]

        def send(answer: object) -> None:
            data = json.dumps(answer).encode()
            write(_HEADER.pack(len(data)) + data)

        with open("/proc/self/statm") as statm:
            mapped = int(statm.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = mapped + limits.memory
        resource.setrlimit(
            resource.RLIMIT_AS, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        limits.begin_part()
        work(send)
        write(_DONE)
    finally:
        os._exit(0)


def _leave_the_parent() -> None:
    """No tracing, no handlers of the parent's, none of its files, and nothing of its memory freed."""
    sys.settrace(None)
    sys.setprofile(None)
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGALRM, signal.SIGPROF, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets it, too, and ends this
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
    faulthandler.disable()
    gc.freeze()
    sys.setrecursionlimit(DEEPEST)
    sys.stdout = sys.stderr = io.StringIO()
