"""Run notebooks in processes that imported torch and the other imports of every kernel from the start.

These imports take longer than most notebooks do. So each of xdist's workers does them once, in the fork
server of `multiprocessing`. A forked process differs from a new process only in that. The course's own
modules are not imported there, because each process takes them from the folder that it is given.
"""

import atexit
import contextlib
import gc
import importlib
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NoReturn

IMPORTED = [
    "torch",
    "torch._dynamo",  # this and the next: of the first call of a custom operator, and of `opcheck`
    "torch.testing._internal.optests",
    "triton.language",
    "triton.runtime.interpreter",
    "matplotlib.figure",
    "ipykernel.kernelapp",
    "tests.nbval_process",
    "nbformat",
    "flask",  # this and what follows: triton-viz's
    "requests",
    "z3",
]
LAUNCHER = [sys.executable, "-m", "ipykernel_launcher"]

_context = multiprocessing.get_context("forkserver")


def call(name: str, *arguments: object, cwd: Path, env: dict[str, str], log: Path, timeout: float) -> int:
    """What a function, ``"module:name"``, returns in a process of its own, whose output goes to a file.

    Raises subprocess.TimeoutExpired, with the process killed, when it takes more than ``timeout`` seconds.
    """
    _context.set_forkserver_preload(IMPORTED)
    process = _context.Process(target=_called, args=(name, arguments, str(cwd), env, str(log)))
    process.start()
    process.join(timeout)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise subprocess.TimeoutExpired(name, timeout)
    return process.exitcode


def python(code: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    """What a piece of Python prints in a warm process, errors included. It has to end well."""
    with tempfile.TemporaryDirectory() as own:
        log = Path(own) / "log"
        status = call("tests.warm:_run", code, cwd=cwd, env=env or dict(os.environ), log=log, timeout=240)
        printed = log.read_text()
    assert status == 0, printed
    return printed


def _run(code: str) -> None:
    sys.path.insert(0, os.getcwd())  # as `python -c` has it
    exec(compile(code, "<warm>", "exec"), {"__name__": "__main__"})


def _called(name: str, arguments: tuple, cwd: str, env: dict[str, str], log: str) -> NoReturn:
    gc.freeze()  # what is imported stays
    with open(log, "wb", buffering=0) as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    _move(cwd, env)
    module, _, function = name.partition(":")
    sys.exit(getattr(importlib.import_module(module), function)(*arguments))


def _move(cwd: str, env: dict[str, str]) -> None:
    """To another folder and other variables, as if Python had been started there with them."""
    os.chdir(cwd)
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(env)
    after = [path for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = [*after, *(path for path in sys.path if path not in (*before, *after, "", cwd))]


class WarmKernel:
    """A Jupyter kernel that waits to be told its command. To be made before any thread is started.

    Has of `subprocess.Popen` what jupyter_client uses.
    """

    stdin = stdout = stderr = None

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._writing)
            _be_kernel(reading)
        os.close(reading)
        with contextlib.suppress(OSError):  # both do it: signals to its group must not reach this one
            os.setpgid(self.pid, self.pid)

    def start(self, command: list[str], cwd: str, env: dict[str, str]) -> None:
        ends_with = f"--IPKernelApp.parent_handle={os.getpid()}"
        with os.fdopen(self._writing, "w") as pipe:
            json.dump([[*command[len(LAUNCHER) :], ends_with], cwd, env], pipe)

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = time.monotonic() + (timeout or float("inf"))
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("kernel", timeout or 0)
            time.sleep(0.05)
        return self.poll() or 0

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def _be_kernel(reading: int) -> NoReturn:
    """Wait for the command, and be what it says; ends where there is no command to come."""
    code = 1
    try:
        os.setpgid(0, 0)
        with os.fdopen(reading) as pipe:
            told = pipe.read()
        if told:
            arguments, cwd, env = json.loads(told)
            _move(cwd, env)
            with open(os.devnull, "r+b", buffering=0) as nowhere:
                for number in range(3):
                    os.dup2(nowhere.fileno(), number)
            sys.argv = ["ipykernel_launcher", *arguments]
            from ipykernel.kernelapp import launch_new_instance

            launch_new_instance()
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else code
    finally:
        atexit._run_exitfuncs()
        os._exit(code)
