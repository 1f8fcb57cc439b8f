"""A small process that forks children for this one.

A fork copies the tables of all memory that a process has, and one with torch has much. It has none of this
process's threads either, any of which may hold a lock at a fork for good. Where a process asks for few
children, to begin one would cost more than it saves: so the first are forked from the process itself, and
others as well while the nursery is not there, or where what they are to do is not `portable`.
"""

import atexit
import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import threading
from pathlib import Path
from typing import NoReturn

from puzzles_lib.translator.environment import variables
from puzzles_lib.translator.forked import Limits, Place, Prepare, be_child
from puzzles_lib.translator.portable import packed, unpacked

AFTER = 3  # children, one is begun
MOST = 3  # are begun, where they come to an end
PATIENCE = 30.0  # seconds for an answer that takes milliseconds: then it is given up
UNREADABLE = 77  # the status of a child that cannot make of the bytes what they were made of
_NUMBER = struct.Struct("<i")
_PID = struct.Struct("<i?")
_START = "import sys; sys.path[:] = {!r}; from puzzles_lib.translator.nursery import serve; serve(3)"


class Nursery:
    """The small process, from the side of the one that it forks for."""

    def __init__(self) -> None:
        self._ready = False
        self._owner = os.getpid()
        self._talking = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            null = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDWR, 0)
            files = [null, *((os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2))]
            files.append((os.POSIX_SPAWN_DUP2, theirs.fileno(), 3))
            command = [sys.executable, "-c", _START.format(_path())]
            self.pid = os.posix_spawn(sys.executable, command, variables(), file_actions=files, setsigmask=[])
        self._socket.settimeout(PATIENCE)

    def is_ready(self, within: float = 0.0) -> bool:
        """Whether it can fork by now, or within seconds. Raises OSError where it has come to its end."""
        with self._talking:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not self._ready and poll.poll(1000 * within):
                self._ready = self._received() == b"ready"
        return self._ready

    def fork(self, work: bytes, place: Place, asked: int, pipe: int) -> int:
        """Have it fork a child, as `forked.be_child` is one; gives the child's number."""
        with open(os.memfd_create("work"), "wb+") as file, self._talking:
            file.write(work)
            file.flush()
            socket.send_fds(self._socket, [b"fork"], [file.fileno(), place.file, asked, pipe])
            (pid,) = _NUMBER.unpack(self._received())
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def fetch(self, pid: int, kill: bool) -> int:
        """The status of a child that has ended, or will soon, or that is killed; 0 where nobody knows it."""
        with self._talking, contextlib.suppress(OSError):
            self._socket.send(_PID.pack(pid, kill))
            (status,) = _NUMBER.unpack(self._received())
            return status
        return 0

    def _received(self) -> bytes:
        data = self._socket.recv(64)
        if not data:
            raise BrokenPipeError("the nursery has ended")
        return data

    def close(self) -> None:
        """End it; its children end by themselves, where nobody is left to ask them."""
        self._socket.close()
        if self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)


def _path() -> list[str]:
    """Where Python looks for modules, less the notebooks' folder, whose modules might be a learner's."""
    own = str(Path(__file__).parents[2])
    there = [path for path in sys.path if path and (path == own or path != os.getcwd())]
    return there if own in there else [own, *there]


_nursery: Nursery | None = None
_forks = _begun = 0


def fork(prepare: Prepare, limits: Limits, place: Place, asked: int, pipe: int) -> tuple[Nursery, int] | None:
    """A child, and the nursery that has forked it; None where this process has to fork it itself.

    Raises OSError where no process can be made.
    """
    global _nursery, _forks, _begun
    _forks += 1
    try:
        if _nursery is None:
            if _forks > AFTER and _begun < MOST and sys.executable:
                _begun += 1
                _nursery = Nursery()
            return None
        if not _nursery.is_ready() or (work := packed((prepare, limits))) is None:
            return None
        return _nursery, _nursery.fork(work, place, asked, pipe)
    except OSError:
        forget()
        return None


def begin() -> None:
    """Have one from the first child on: for who is going to ask for many.

    Raises OSError where there can be none.
    """
    global _nursery
    if _nursery is None:
        _nursery = Nursery()
    if not _nursery.is_ready(within=PATIENCE):
        raise TimeoutError(f"the nursery is not there after {PATIENCE:g} s")


def current() -> Nursery | None:
    """That of this process, where there is one."""
    return _nursery


def forget() -> None:
    """Use it no more: it is another process's, or has ended. Another is begun after some forks."""
    global _nursery, _forks
    if _nursery is not None:
        _nursery.close()
    _nursery, _forks = None, 0


def _have_none() -> None:
    """A forked process has not its parent's, and begins none of its own: it does one thing, as a rule."""
    global _begun
    forget()
    _begun = MOST


atexit.register(forget)
os.register_at_fork(after_in_child=_have_none)


# ---- in the nursery


def serve(file: int) -> NoReturn:
    """Fork for whoever has the other end of the socket, until it is closed."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with socket.socket(fileno=file) as asking:
            _prepare()
            asking.send(b"ready")
            while True:
                data, files, _, _ = socket.recv_fds(asking, 64, 4)
                if not data:
                    break
                if data == b"fork":
                    told = _forked(asking, files)
                else:
                    pid, kill = _PID.unpack(data)
                    told = _fetched(pid, kill)
                asking.send(_NUMBER.pack(told))
    finally:
        os._exit(0)


def _prepare() -> None:
    """Do what children need once for all."""
    from puzzles_lib.translator import targets, translation

    translation.warm_up(targets.find_target("sm_90"))
    gc.collect()
    gc.freeze()


def _forked(asking: socket.socket, files: list[int]) -> int:
    work, place, asked, pipe = files
    try:
        pid = os.fork()
        if pid == 0:
            asking.close()
            _be_child(work, place, asked, pipe)
    except OSError as error:
        pid = -(error.errno or 1)
    for number in files:
        os.close(number)
    return pid


def _be_child(work: int, place: int, asked: int, pipe: int) -> NoReturn:
    status = UNREADABLE
    try:
        with open(work, "rb") as file:
            file.seek(0)
            prepare, limits = unpacked(file.read())
        status = 0
        be_child(prepare, limits, Place(place), asked, pipe)
    finally:
        os._exit(status)


def _fetched(pid: int, kill: bool) -> int:
    try:
        if kill:
            os.kill(pid, signal.SIGKILL)
        return os.waitpid(pid, 0)[1]
    except (ProcessLookupError, ChildProcessError):
        return 0
