"""Run one submission in its own process, within bubblewrap and with limits, and read its messages.

The process has no network, its own process tree, the system and the course read-only, and an empty folder
in memory. If grading runs as root, each submission gets its own user id, so that limits on processes apply
to each. The verdict comes through a pipe that only `inside` has.
"""

import contextlib
import functools
import json
import os
import platform
import secrets
import select
import shutil
import signal
import site
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHECKS = ("-m", "puzzles_lib.grading.inside")
MOST_SAID = 64 << 20  # the most bytes of all messages
PRIVATE_FOLDER = 64 << 20  # bytes that fit into it
_GRACE = 120.0  # the seconds for a process to start on a busy computer
_PACKAGE = Path(__file__).resolve().parents[1]
_COURSE = "/course"  # the package's place in the sandbox


class Unavailable(RuntimeError):
    """There is no sandbox here. The message says why."""


class NotStarted(RuntimeError):
    """A process ended before it was ready. The submission is not at fault, because it was not read."""


@dataclass
class Said:
    """The messages from the pipe. ended: how the process ended; ``""`` if it said it was done."""

    messages: list[dict[str, Any]] = field(default_factory=list)
    ended: str = ""


@functools.cache
def find() -> tuple[str, bool]:
    """Return where bubblewrap is, and whether it can forbid more namespaces. Raise Unavailable if not."""
    program = shutil.which("bwrap")
    if program is None:
        raise Unavailable("bubblewrap is not installed (apt install bubblewrap; its program is bwrap)")
    helped = subprocess.run([program, "--help"], capture_output=True, text=True)
    newer = "--disable-userns" in helped.stdout + helped.stderr
    command = [program, *_walls(_own_uid() is not None, newer), "--", sys.executable, "-c", ""]
    tried = subprocess.run(command, capture_output=True, text=True, env=_environment("/tmp"), cwd="/")
    if tried.returncode:
        said = tried.stderr.strip().splitlines()[-1:] or [f"status {tried.returncode}"]
        raise Unavailable(f"bubblewrap is installed but does not work: {said[0]}")
    return program, newer


def run(
    job: Mapping[str, Any], wall_seconds: float, sandboxed: bool, program: Sequence[str] = CHECKS
) -> Said:
    """Run ``program``, arguments of Python, on a job, as `inside` does.

    Raises Unavailable if there is no sandbox, and NotStarted if the program never reports that it is ready.
    """
    uid = _own_uid() if sandboxed else None
    whole = {**job, "uid": uid, "limit_processes": uid is not None or (sandboxed and _counts_by_namespace())}
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors, _folder(sandboxed) as folder:
        given.write(json.dumps(whole).encode())
        given.seek(0)
        command = [sys.executable, *program, str(writing)]
        if sandboxed:
            bubblewrap, newer = find()
            command = [bubblewrap, *_walls(uid is not None, newer), "--", *command]
        try:
            process = subprocess.Popen(
                command,
                stdin=given,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=(writing,),
                start_new_session=True,
                env=_environment("/tmp" if sandboxed else folder),
                cwd="/" if sandboxed else folder,
            )
        finally:
            os.close(writing)
        try:
            said = listen(reading, wall_seconds)
        finally:
            os.close(reading)
            status = _end(process)
        if not any("ready" in message for message in said.messages):
            errors.seek(0, os.SEEK_END)
            errors.seek(max(0, errors.tell() - 2000))
            last = errors.read().decode("utf-8", "replace").strip().splitlines()[-1:] or [f"status {status}"]
            raise NotStarted(f"the process that checks did not start: {last[0]}")
        return said


def _end(process: subprocess.Popen[bytes]) -> int:
    """End a process with everything that it has started, and return its status.

    bubblewrap's own child is the root of its process tree: when that one is gone, so are all others.
    """
    try:
        for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
            os.kill(int(child), signal.SIGKILL)
        process.wait(5)
    except (OSError, subprocess.TimeoutExpired):
        pass
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def listen(pipe: int, wall_seconds: float) -> Said:
    """Return all messages, one per line, until the last one, the end of the pipe, or the time limit."""
    said = Said(ended="the process ended before it was done")
    deadline = time.monotonic() + wall_seconds + _GRACE
    received, total = bytearray(), 0
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            said.ended = f"the process took more than {wall_seconds:g} s"
            return said
        if not poll.poll(left * 1000):
            continue
        data = os.read(pipe, 1 << 16)
        total += len(data)
        if not data:
            return said
        if total > MOST_SAID:
            said.ended = "the process sent too much"
            return said
        received += data
        while (end := received.find(b"\n")) >= 0:
            line = bytes(received[:end])
            del received[: end + 1]
            try:
                message = json.loads(line)
            except (ValueError, RecursionError):
                message = None
            if not isinstance(message, dict):
                said.ended = "the process sent something that is not a message"
                return said
            said.messages.append(message)
            if "ready" in message:
                deadline = min(deadline, time.monotonic() + wall_seconds)
            if "done" in message:
                said.ended = ""
                return said


@contextlib.contextmanager
def _folder(sandboxed: bool) -> Iterator[str]:
    """Make a folder in which a process without a sandbox may write."""
    if sandboxed:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="grading-") as folder:
        yield folder


def _environment(home: str) -> dict[str, str]:
    """Return an environment without the grader's variables, and with one thread."""
    return {
        "HOME": home,
        "LANG": "C.UTF-8",
        "MPLCONFIGDIR": f"{home}/matplotlib",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "PATH": "/usr/bin:/bin",
        "PUZZLES_STATE_DIR": f"{home}/state",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join([_COURSE if home == "/tmp" else str(_PACKAGE.parent), *_elsewhere()]),
        "TMPDIR": home,
        "TRITON_CACHE_DIR": f"{home}/triton",
        "USER": "grading",
    }


def _walls(as_root: bool, newer: bool) -> list[str]:
    """Return the options for bubblewrap 0.5 and later. newer: for 0.8 and later."""
    options = ["--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try"]
    options += ["--die-with-parent", "--new-session", "--hostname", "grading", "--cap-drop", "ALL"]
    if as_root:  # to become the submission's own user, who has neither
        options += ["--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        options += ["--unshare-user", *(["--disable-userns"] if newer else [])]
    options += ["--perms", "1777", "--size", str(PRIVATE_FOLDER), "--tmpfs", "/tmp"]
    options += ["--proc", "/proc", "--dev", "/dev"]
    for name in ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            options += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            options += ["--ro-bind", name, name]
    options += ["--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache"]
    made = {"/", "/tmp", "/usr"}
    bound = {_COURSE + "/puzzles_lib": str(_PACKAGE)} | {folder: folder for folder in _pythons()}
    for target, source in bound.items():
        for parent in reversed(Path(target).parents):  # bubblewrap makes them only for its own user
            if str(parent) not in made and not target.startswith("/usr/"):
                made.add(str(parent))
                options += ["--perms", "0755", "--dir", str(parent)]
        options += ["--ro-bind", source, target]
    return [*options, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/tmp"]


def _pythons() -> list[str]:
    """Return the outermost folders that contain this Python and its packages."""
    found = {sys.prefix, sys.base_prefix, sysconfig.get_path("stdlib"), *_elsewhere()}
    found |= {
        str(Path(p).resolve()) for p in (sys.executable, getattr(sys, "_base_executable", ""), *found) if p
    }
    folders = {str(Path(p).parent) if os.path.isfile(p) else p for p in found if os.path.exists(p)}
    outer = [f for f in folders if not any(f != other and f.startswith(other + "/") for other in folders)]
    return sorted(f for f in outer if not f.startswith("/usr/") and f not in ("/usr", "/"))


def _elsewhere() -> list[str]:
    """Return folders with packages that aren't among this Python's own folders."""
    home = (sys.prefix, sys.base_prefix)
    known = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    packages = {str(Path(p).resolve()) for p in sys.path if p.endswith(("site-packages", "dist-packages"))}
    return sorted(p for p in packages | set(known) if os.path.isdir(p) and not p.startswith(home))


def _own_uid() -> int | None:
    """Return an unused user id if this process may assign one. It is random, so that no two share one."""
    if os.geteuid() != 0:
        return None
    try:
        ranges = [line.split() for line in Path("/proc/self/uid_map").read_text().splitlines()]
        first, _, count = max(((int(a), int(b), int(n)) for a, b, n in ranges), key=lambda row: row[2])
    except (OSError, ValueError):
        return None
    least, most = first + count // 4, first + min(count, 2**31 - 2) - 1
    return least + secrets.randbelow(most - least) if most - least > 1000 else None


def _counts_by_namespace() -> bool:
    """Return whether the limit on processes counts only processes in the sandbox, not all of the user."""
    release = platform.release().split(".")
    with contextlib.suppress(ValueError, IndexError):
        return (int(release[0]), int(release[1].split("-")[0])) >= (5, 14)
    return False
