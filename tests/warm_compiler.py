"""Run the compiler's worker in processes that have imported Triton from the start.

A new process takes longer to import Triton than most kernels take to compile. So each of xdist's workers
starts one process that imports Triton once, and forks. A forked process differs from a new one only in that.
`tests/test_stages.py` and the notebooks have new processes, as learners do.
"""

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any, NoReturn

WORKER = Path(__file__).parents[1] / "puzzles_lib/compiler/worker.py"
IMPORTED = ("triton.compiler.compiler", "triton.backends.compiler", "triton.knobs")

DEVNULL, TimeoutExpired = subprocess.DEVNULL, subprocess.TimeoutExpired
_forking: tuple[int, socket.socket, subprocess.Popen] | None = None  # whose, how to ask, and what forks


class Forked:
    """A worker that was forked. Has of `subprocess.Popen` what `lowering.run_limited` uses."""

    def __init__(self, folder: Path, stdout: int, stderr: int, env: dict[str, str]):
        reading, writing = os.pipe()
        self._told = os.fdopen(reading)
        with _file_of(json.dumps([str(folder), env])) as work:
            socket.send_fds(_asking(), [b"fork"], [work.fileno(), stdout, stderr, writing])
        os.close(writing)
        self.pid, self._status = int(self._told.readline()), None

    def wait(self, timeout: float | None = None) -> int:
        """Return the status, as `subprocess.Popen.wait` does."""
        if self._status is None:
            poll = select.poll()
            poll.register(self._told, select.POLLIN)
            if not poll.poll(None if timeout is None else 1000 * timeout):
                raise TimeoutExpired("worker", timeout or 0)
            with self._told:
                self._status = int(self._told.readline())
        return self._status


def Popen(command: list[str], **options: Any) -> Forked | subprocess.Popen:
    """Fork the worker if the command is the worker's; start any other command."""
    if command[:3] != [sys.executable, "-P", str(WORKER)]:
        return subprocess.Popen(command, **options)
    return Forked(options["cwd"], options["stdout"].fileno(), options["stderr"].fileno(), options["env"])


def _file_of(text: str) -> Any:
    file = open(os.memfd_create("work"), "w+")
    file.write(text)
    file.flush()
    return file


def _asking() -> socket.socket:
    global _forking
    if _forking is None or _forking[0] != os.getpid():  # another one's, after a fork
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            command = [sys.executable, "-P", __file__, str(theirs.fileno())]
            environment = {
                k: v for k, v in os.environ.items() if not k.startswith(("TRITON", "MLIR", "LLVM"))
            }
            forking = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=DEVNULL, env=environment)
        _forking = os.getpid(), ours, forking
    return _forking[1]


# ---- in the process that forks


def serve(asking: socket.socket) -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    sys.path.insert(0, str(WORKER.parent))
    worker = importlib.import_module("worker")
    sys.path.pop(0)
    gc.collect()
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        data, files, _, _ = socket.recv_fds(asking, 16, 4)
        if not data:
            return
        if os.fork() == 0:
            asking.close()
            _keep(worker, *files)
        for file in files:
            os.close(file)


def _keep(worker: Any, work: int, stdout: int, stderr: int, telling: int) -> NoReturn:
    """Fork a worker, and tell its process id and then its status."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    try:
        pid = os.fork()
        if pid == 0:
            os.close(telling)
            _work(worker, work, stdout, stderr)
        os.write(telling, f"{pid}\n".encode())
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.write(telling, f"{os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}\n".encode())
    finally:
        os._exit(0)


def _work(worker: Any, work: int, stdout: int, stderr: int) -> NoReturn:
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(stdout, 1)
        os.dup2(stderr, 2)
        with open(work) as file:
            file.seek(0)
            folder, environment = json.load(file)
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        worker.main(Path(folder))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as end:
        serve(end)
