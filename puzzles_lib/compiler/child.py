"""A child: a fork of this process, which may crash, hang or eat memory without harm to this one.

The child has all that the work can reach, a notebook's cells included. It answers numbers, one after another,
and waits in between. What comes back is JSON through a pipe, and two numbers in memory that both see, where
the child notes how far it is. Nothing of the parent is changed: limits, signals, files and ``sys.stdout`` are
set in the child alone.
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
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeVar

from puzzles_lib.interpreter.limits import interrupts_held

HANGS_AFTER = 3.0  # seconds asleep, waiting for a lock that another thread held at the fork, say
WALL_PER_CPU = 4  # wall seconds that a part of the work may take, for one of its CPU seconds
DEEPEST = 20_000  # nested calls in the child
_LOOK_EVERY = 0.1
_HEADER = struct.Struct("<I")
_NUMBER = struct.Struct("<q")
_PLACE = struct.Struct("<qq")
# Python 3.12 warns of threads, and 3.11 cannot: see HANGS_AFTER.
_QUIET = (
    contextlib.nullcontext
    if sys.version_info < (3, 12)
    else functools.partial(warnings.catch_warnings, action="ignore", category=DeprecationWarning)
)
_forking = threading.Lock()  # a child that another thread makes meanwhile would keep the pipe open

Answer = Callable[[int], object]


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
    """cpu_seconds: for each answer. memory: bytes that may be mapped on top of what is."""

    cpu_seconds: float
    memory: int

    def begin(self) -> None:
        """Called in the child: time counts from here. When it is over, the child ends."""
        self._set(self.cpu_seconds)

    def end(self) -> None:
        """Called in the child: it may wait as long as it likes."""
        self._set(0)

    def _set(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        signal.setitimer(signal.ITIMER_REAL, WALL_PER_CPU * seconds)


class Ended(Exception):
    """There is no answer, and no child any more. cause: ``"time"``, ``"hung"`` or ``"crash"``."""

    def __init__(self, cause: str):
        super().__init__(cause)
        self.cause = cause


class Child:
    """A child that is forked when first asked, and answers until it ends or is closed.

    prepare: called in the child, before its first answer; gives the function that answers a number by
        anything that JSON holds.

        def work(child):
            child.ask(3)
            ...  # meanwhile it works
            return child.answer()

        closed_after(Child(prepare, limits), work)
    """

    def __init__(self, prepare: Callable[[], Answer], limits: Limits):
        self._prepare, self._limits = prepare, limits
        self._pid = 0  # none yet
        self._pipe = self._requests = -1
        self._received = bytearray()

    def ask(self, number: int) -> None:
        """Have it answer this number, once it has answered those asked before.

        Raises OSError where no process can be made.
        """
        with interrupts_held(inside=_nowhere):
            if not self._pid:
                self._pipe, self._requests, self._pid = _fork(self._prepare, self._limits)
            with contextlib.suppress(BrokenPipeError):  # it has ended: `answer` says so
                os.write(self._requests, _NUMBER.pack(number))

    def answer(self) -> object:
        """The oldest answer that was asked for and not fetched yet. Waits for it.

        Raises `Ended` where there will be none, and KeyboardInterrupt when interrupted; then the child is
        to be closed.
        """
        answers: list = []
        heard = ""

        def listen() -> None:
            nonlocal heard
            heard = _listen(self._pipe, self._pid, self._received, answers)

        with interrupts_held(inside=listen):
            listen()
        if answers:
            return answers[0]
        status = self._end(kill=heard == "hung")
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        cause = "time" if by in (signal.SIGPROF, signal.SIGALRM) else "crash"
        raise Ended("hung" if heard == "hung" else cause)

    def close(self) -> None:
        """End it, whatever it is doing."""
        self._end(kill=True)

    def _end(self, kill: bool) -> int:
        """End the child, and be as if it had not been forked yet; returns its status."""
        with interrupts_held(inside=_nowhere):
            if not self._pid:
                return 0
            os.close(self._pipe)
            os.close(self._requests)
            status = _fetch(self._pid, kill)
            self._pid = 0
            self._received.clear()
            return status


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)
Result = TypeVar("Result")


def closed_after(thing: T, work: Callable[[T], Result]) -> Result:
    """What ``work(thing)`` gives, the thing closed, wherever in all this a Ctrl-C comes. work: a function."""
    with interrupts_held(inside=work):
        try:
            return work(thing)
        finally:
            thing.close()


def _nowhere() -> None:
    """Where interrupts are let through that are held everywhere."""


def _listen(pipe: int, child: int, received: bytearray, answers: list) -> str:
    """Wait for an answer, ``""``; or until the child is ``"over"``, or ``"hung"``."""
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    asleep = 0.0
    while not _taken(received, answers):
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
    return ""


def _taken(received: bytearray, answers: list) -> bool:
    """Whether a whole answer has been received, and is taken from there."""
    if len(received) < _HEADER.size:
        return False
    end = _HEADER.size + _HEADER.unpack_from(received)[0]
    if len(received) < end:
        return False
    answers.append(json.loads(received[_HEADER.size : end]))
    del received[:end]
    return True


def _state(child: int) -> str:
    """Of a process: R, S, D, Z; empty where there is none any more."""
    try:
        with open(f"/proc/{child}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _fetch(child: int, kill: bool) -> int:
    """A child's status; 0 where somebody else has fetched it, who waits for all children of this process."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if kill:
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    return 0


def _fork(prepare: Callable[[], Answer], limits: Limits) -> tuple[int, int, int]:
    """A pipe to read answers from, one to write numbers to, and the child that has their other ends."""
    parent = os.getpid()
    open_here: list[int] = []
    with _forking, _QUIET():
        try:
            open_here += os.pipe()
            open_here += os.pipe()
            reading, writing, asked, asking = open_here
            child = os.fork()
            if child == 0:
                for file in (reading, asking):
                    os.close(file)  # so that it ends where its parent has ended
                _be_child(prepare, limits, asked, writing)
        except OSError:
            for file in open_here:
                os.close(file)
            raise
        finally:
            if os.getpid() != parent:
                os._exit(1)
        os.close(writing)
        os.close(asked)
    return reading, asking, child


def _be_child(prepare: Callable[[], Answer], limits: Limits, asked: int, pipe: int) -> NoReturn:
    """Never returns: what belongs to the parent, such as buffers not yet written, must not be touched."""
    try:
        _leave_the_parent()
        # 0, 1 and 2 may have been closed, and be these
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
        answer = prepare()
        while number := os.read(asked, _NUMBER.size):
            limits.begin()
            data = json.dumps(answer(*_NUMBER.unpack(number))).encode()
            limits.end()
            data = _HEADER.pack(len(data)) + data
            while data:
                data = data[os.write(pipe, data) :]
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
