"""Run work in a forked process, which may crash, hang or use up memory without harm to this one.

A child is usually forked from this process. It then has everything that the work can reach, a notebook's
cells included. If that is quicker, it is forked from a small process (`puzzles_lib.translator.nursery`), and
has what is sent to it. The child is asked for one number after another, answers each, and waits in between.
Its work is in `puzzles_lib.translator.forked`.
"""

import collections
import contextlib
import functools
import json
import os
import select
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from puzzles_lib.runner.limits import interrupts_held
from puzzles_lib.translator import nursery
from puzzles_lib.translator.forked import HEADER, NUMBER, Limits, Place, Prepare, be_child

HANGS_AFTER = 3.0  # seconds asleep, waiting for a lock that another thread held at the fork, say
_LOOK_EVERY = 0.1
# Python 3.12 warns of threads, and 3.11 cannot: see HANGS_AFTER.
_QUIET = (
    contextlib.nullcontext
    if sys.version_info < (3, 12)
    else functools.partial(warnings.catch_warnings, action="ignore", category=DeprecationWarning)
)
_forking = threading.Lock()  # a child that another thread makes meanwhile would keep the pipe open


def _after_fork() -> None:
    """Make a new lock in a forked process. The thread that held the old one is not there to release it."""
    global _forking
    _forking = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


class Ended(Exception):
    """Raised if a child has ended without an answer.

    cause: ``"time"``, ``"hung"``, ``"crash"``, or ``"error"`` if Python code in the child raised; then the
        message has the error's words.
    """

    def __init__(self, cause: str, words: str = ""):
        super().__init__(cause)
        self.cause, self.words = cause, words


class Child:
    """A child that is forked when first asked, and answers until it ends or is closed.

    prepare: called in the child, before its first answer. It gets the `Place` where the child notes how far
        it is, and returns the function that answers a number by anything that JSON holds.

        def work(child):
            child.ask(3)
            ...  # meanwhile it works
            return child.answer()

        closed_after(Child(prepare, limits), work)
    """

    def __init__(self, prepare: Prepare, limits: Limits):
        self._prepare, self._limits = prepare, limits
        self._pid = 0  # none yet
        self._place: Place | None = None
        self._noted = (0, 0)
        self.by: nursery.Nursery | None = None  # that has forked it
        self._portable = True
        self._pipe = self._requests = -1
        self._asked: collections.deque[int] = collections.deque()  # and not answered
        self._received = bytearray()

    def ask(self, number: int) -> None:
        """Ask for the answer to this number, after those asked for before.

        Raises OSError if no process can be made.
        """
        with interrupts_held(inside=_nowhere):
            self._ask(number)

    def _ask(self, number: int) -> None:
        if not self._pid:
            self._fork()
        self._asked.append(number)
        with contextlib.suppress(BrokenPipeError):  # it has ended: `answer` says so
            os.write(self._requests, NUMBER.pack(number))

    def answer(self) -> Any:
        """Wait for the oldest answer that was asked for and not fetched yet, and return it.

        Raises `Ended` if there will be none, and KeyboardInterrupt when interrupted. After that, close the
        child.
        """
        answers: list = []
        heard = _listen(self._pipe, self._pid, self._received, answers)
        if answers and isinstance(answers[0], list):
            self._asked.popleft()
            return answers[0][0]
        words = answers[0]["error"] if answers else ""
        asked = [*self._asked]
        status = self._end(kill=heard == "hung")
        if self.by and os.WIFEXITED(status) and os.WEXITSTATUS(status) == nursery.UNREADABLE:
            self._portable = False  # so it is forked from here
            for number in asked:
                self.ask(number)
            return self.answer()
        by = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        cause = "error" if words else "time" if by in (signal.SIGPROF, signal.SIGALRM) else "crash"
        raise Ended("hung" if heard == "hung" else cause, words)

    @property
    def noted(self) -> tuple[int, int]:
        """Return the two numbers by which the child, or the last one that ended, noted how far it was."""
        return self._place.read() if self._place else self._noted

    def close(self) -> None:
        """End the child, whatever it is doing."""
        self._end(kill=True)

    def _fork(self) -> None:
        """Fork the child, with a pipe to read answers from, and one to write numbers to."""
        open_here: list[int] = []
        place = Place()
        with _forking, _QUIET():
            try:
                open_here += os.pipe()
                open_here += os.pipe()
                reading, writing, asked, asking = open_here
                work = self._prepare, self._limits, place, asked, writing
                found = nursery.fork(*work) if self._portable else None
                self.by, self._pid = found or (None, _forked(work, reading, asking))
            except OSError:
                for file in open_here:
                    os.close(file)
                place.close()
                raise
            os.close(writing)
            os.close(asked)
            self._pipe, self._requests, self._place = reading, asking, place

    def _end(self, kill: bool) -> int:
        """End the child, return its status, and be as if it had not been forked yet."""
        with interrupts_held(inside=_nowhere):
            if not self._pid:
                return 0
            os.close(self._pipe)
            os.close(self._requests)
            status = _fetch(self._pid, kill, self.by)
            if self._place:
                self._noted = self._place.read()
                self._place.close()
            self._pid, self._place = 0, None
            self._asked.clear()
            self._received.clear()
            return status


def _forked(work: tuple[Prepare, Limits, Place, int, int], *parents: int) -> int:
    """A child of this process. parents: files of its parent's alone."""
    parent = os.getpid()
    try:
        child = os.fork()
        if child == 0:
            for file in parents:
                os.close(file)  # so that it ends where its parent has ended
            be_child(*work)
        return child
    finally:
        if os.getpid() != parent:
            os._exit(1)


class _Closable(Protocol):
    def close(self) -> None: ...


T = TypeVar("T", bound=_Closable)
Result = TypeVar("Result")


def closed_after(thing: T, work: Callable[[T], Result]) -> Result:
    """Return what ``work(thing)`` returns, and close the thing, even if Ctrl-C comes at any point."""
    with interrupts_held(inside=work):
        try:
            return work(thing)
        finally:
            thing.close()


def _nowhere() -> None:
    """Do nothing. Interrupts that are held everywhere are let through here."""


def _listen(pipe: int, child: int, received: bytearray, answers: list) -> str:
    """Wait for an answer; return ``""``, or ``"over"`` or ``"hung"`` if the child is."""
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
    """Return whether a whole answer has been received; if so, move it to the answers."""
    if len(received) < HEADER.size:
        return False
    end = HEADER.size + HEADER.unpack_from(received)[0]
    if len(received) < end:
        return False
    answers.append(json.loads(received[HEADER.size : end]))
    del received[:end]
    return True


def _state(child: int) -> str:
    """Return a process's state: R, S, D, Z; empty if it no longer exists."""
    try:
        with open(f"/proc/{child}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def _fetch(child: int, kill: bool, by: nursery.Nursery | None) -> int:
    """Return a child's status; 0 if another part of this process has fetched it."""
    if by is not None:
        return by.fetch(child, kill)
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        if kill:
            os.kill(child, signal.SIGKILL)
        return os.waitpid(child, 0)[1]
    return 0
