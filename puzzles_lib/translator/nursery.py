"""Run a nursery: a small process that forks children for this one.

A fork copies the page tables of a process, and a process with torch has many. The nursery also has no
threads, which could hold a lock forever in a forked child. Starting a nursery costs more than it saves if
there are few children. The first children are therefore forked from the process itself. So are all others
while the nursery isn't ready, or if their work isn't `portable`.
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

AFTER = 3  # the number of children after which a nursery is started
MOST = 3  # the most nurseries that are started if they end early
PATIENCE = 30.0  # seconds after which a nursery is given up, although an answer takes milliseconds
BEGINS_WITHIN = 240.0  # seconds for its imports, which take two on a computer that is not busy
UNREADABLE = 77  # the status of a child that cannot unpack the bytes
_NUMBER = struct.Struct("<i")
_PID = struct.Struct("<i?")
_START = "import sys; sys.path[:] = {!r}; from puzzles_lib.translator.nursery import serve; serve(3)"


class Nursery:
    """The small process, as an object in the process that it forks for."""

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
        """Return whether the nursery can fork within ``within`` seconds. Raise OSError if it has ended."""
        with self._talking:
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            if not self._ready and poll.poll(1000 * within):
                self._ready = self._received() == b"ready"
        return self._ready

    def fork(self, work: bytes, place: Place, asked: int, pipe: int) -> int:
        """Let the nursery fork a child that runs `forked.be_child`, and return the child's process id."""
        with open(os.memfd_create("work"), "wb+") as file, self._talking:
            file.write(work)
            file.flush()
            socket.send_fds(self._socket, [b"fork"], [file.fileno(), place.file, asked, pipe])
            (pid,) = _NUMBER.unpack(self._received())
        if pid < 0:
            raise OSError(-pid, os.strerror(-pid))
        return pid

    def fetch(self, pid: int, kill: bool) -> int:
        """Wait for a child that is ending, or kill it; return its status, or 0 if it is unknown."""
        with self._talking:
            try:
                self._socket.send(_PID.pack(pid, kill))
                (status,) = _NUMBER.unpack(self._received())
                return status
            except OSError:
                # An answer that comes too late would be taken for that of the next question.
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)
                return 0

    def _received(self) -> bytes:
        data = self._socket.recv(64)
        if not data:
            raise BrokenPipeError("the nursery has ended")
        return data

    def close(self) -> None:
        """End the nursery. Its children end by themselves when no process can ask them anymore."""
        self._socket.close()
        if self._owner == os.getpid():
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)


def _path() -> list[str]:
    """Return Python's search path without the notebooks' folder, whose modules a learner may have written."""
    own = str(Path(__file__).parents[2])
    there = [path for path in sys.path if path and (path == own or path != os.getcwd())]
    return there if own in there else [own, *there]


_nursery: Nursery | None = None
_forks = _begun = 0


def fork(prepare: Prepare, limits: Limits, place: Place, asked: int, pipe: int) -> tuple[Nursery, int] | None:
    """Return a child and the nursery that forked it; None if this process has to fork it itself.

    Raises OSError if no process can be started.
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
    """Start a nursery before the first child, for a process that will need many.

    Raises OSError if none can be started.
    """
    global _nursery
    if _nursery is None:
        _nursery = Nursery()
    if not _nursery.is_ready(within=BEGINS_WITHIN):
        raise TimeoutError(f"the nursery is not ready after {BEGINS_WITHIN:g} s")


def current() -> Nursery | None:
    """Return the nursery of this process; None if there is none."""
    return _nursery


def forget() -> None:
    """Forget the nursery, which is another process's or has ended. A new one is started after some forks."""
    global _nursery, _forks
    if _nursery is not None:
        _nursery.close()
    _nursery, _forks = None, 0


def _have_none() -> None:
    """Have no nursery in a forked process, neither the parent's nor its own, because it does one thing."""
    global _begun
    forget()
    _begun = MOST


atexit.register(forget)
os.register_at_fork(after_in_child=_have_none)


# ---- in the nursery


def serve(file: int) -> NoReturn:
    """Fork a child for each request from the socket's other end, until the socket is closed."""
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
    """Do once what all children need."""
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
