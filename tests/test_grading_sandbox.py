"""The sandbox, as if a kernel had got at Python: what code within it can do, and for how long."""

import json
import os
import secrets
import sys
from pathlib import Path
from typing import Any

import pytest

from puzzles_lib.grading import inside, sandbox
from puzzles_lib.grading.sandbox import NotStarted, Said, Unavailable

BEGIN = """\
import json, os, sys, time
from puzzles_lib.grading.inside import begin
job, out = begin()
def tell(**told):
    os.write(out, json.dumps(told).encode() + b"\\n")
def fails(action):
    try:
        action()
    except (OSError, MemoryError) as error:
        return type(error).__name__
tell(ready=True)
"""


def _missing() -> str:
    try:
        sandbox.find()
    except Unavailable as reason:
        return str(reason)
    return ""


@pytest.fixture(params=["root", "user"])
def walls(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who grades: root, who gives each submission a user of its own, or a user, who cannot."""
    if reason := _missing():
        pytest.skip(reason)
    if request.param == "root" and os.geteuid() != 0:
        pytest.skip("grading as root needs root")
    if request.param == "user":
        sandbox.find.cache_clear()
        monkeypatch.setattr(sandbox, "_own_uid", lambda: None)
        if reason := _missing():
            sandbox.find.cache_clear()
            pytest.skip(reason)
    return request.param


def said(code: str, wall_seconds: float = 60.0, **job: Any) -> Said:
    return sandbox.run(job, wall_seconds, True, ("-c", BEGIN + code))


def told(code: str, **job: Any) -> dict[str, Any]:
    """What the code tells last; it must come to its end."""
    found = said(f"{code}\ntell(done={{}})\n", **job)
    assert not found.ended, found
    return {name: value for message in found.messages for name, value in message.items()}


def test_there_is_no_network_and_nobody_else(walls: str) -> None:
    found = told(
        "import socket\n"
        "tell(links=[name for _, name in socket.if_nameindex()])\n"
        "tell(call=fails(lambda: socket.create_connection(('192.0.2.1', 80), 2)))\n"
        "tell(processes=[int(n) for n in os.listdir('/proc') if n.isdigit()], host=os.uname().nodename)\n"
        "tell(kill=fails(lambda: os.kill(-1, 0)), parent=os.getppid())\n"
    )
    assert found["links"] == ["lo"] and found["call"] == "OSError"
    assert len(found["processes"]) <= 2 and found["parent"] <= 1 and found["host"] == "grading"


def test_only_the_system_the_course_and_an_empty_folder_are_there(walls: str, tmp_path: Path) -> None:
    neighbour = tmp_path / "neighbour.ipynb"
    neighbour.write_text("answers")
    root = str(Path(sandbox.__file__).parents[2])
    found = told(
        "places = ('/usr', '/course', '/course/puzzles_lib', '/etc', '/dev', '/', sys.prefix)\n"
        "tell(writable=[p for p in places if not fails(lambda: open(p + '/x', 'w'))])\n"
        "tell(seen=[p for p in job['hidden'] if os.path.exists(p)], tmp=os.listdir('/tmp'))\n"
        "tell(own=fails(lambda: open('x', 'w')), environment=sorted(os.environ))\n"
        "tell(removed=fails(lambda: os.remove('/course/puzzles_lib/__init__.py')))\n"
        "def fill():\n"
        "    with open('much', 'wb') as file:\n"
        "        for _ in range(100): file.write(bytes(1 << 20)); file.flush()\n"
        "tell(much=fails(fill))\n",
        hidden=[str(neighbour), "/etc/passwd", "/home", f"{root}/notebooks", f"{root}/tests", "/var"],
    )
    pythons = {Path(folder).parts[2] for folder in sandbox._pythons() if folder.startswith("/tmp" + os.sep)}
    assert found["writable"] == [] and found["seen"] == [] and set(found["tmp"]) == pythons
    assert found["own"] is None and found["removed"] and found["much"] == "OSError"
    assert not {"SSH_AUTH_SOCK", "PIP_INDEX_URL", "DISPLAY"} & set(found["environment"])


def test_nobody_is_root_or_another_submissions_user(walls: str) -> None:
    code = "tell(uid=os.getuid(), groups=os.getgroups())\ntell(root=fails(lambda: os.setuid(0)))"
    first, second = told(code), told(code)
    if walls == "root":
        assert 0 not in (first["uid"], second["uid"]) and first["uid"] != second["uid"]
        assert first["groups"] == [] and first["root"] == "PermissionError"


def test_a_fork_bomb_ends_at_the_limit_and_hurts_nobody(walls: str) -> None:
    bomb = (
        "count = 0\n"
        "def bomb():\n"
        "    global count\n"
        "    while count < 1000:\n"
        "        if os.fork() == 0: time.sleep(600)\n"
        "        count += 1\n"
        "tell(error=fails(bomb))\ntell(count=count)\n"
    )
    if walls == "user" and (os.geteuid() == 0 or not sandbox._counts_by_namespace()):
        pytest.skip("no limit on processes holds for root, nor in each sandbox apart on a kernel before 5.14")
    found = told(bomb)
    assert found["error"] == "BlockingIOError" and found["count"] < 64
    assert told("tell(fine=fails(os.fork))")["fine"] is None  # the next has its full share


def test_what_is_left_running_ends_with_the_submission(walls: str) -> None:
    mark = f"left-{secrets.token_hex(8)}"
    told(
        f"if os.fork() == 0:\n"
        f"    os.setsid()\n"
        f"    if os.fork() == 0: os.execv(sys.executable, ['{mark}', '-c', 'import time; time.sleep(600)'])\n"
        f"    os._exit(0)\n"
        f"os.wait()\n"
    )
    commands = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            commands.append(place.read_bytes())
        except OSError:
            continue
    assert commands and not any(mark.encode() in command for command in commands)


@pytest.mark.parametrize(
    "code, ended",
    [
        ("time.sleep(600)", "the process took more than 0.5 s"),
        ("os._exit(0)", "the process ended before it was done"),
        ("os.write(out, b'{\"points\": 25}}\\n')", "the process sent something that is not a message"),
        ("os.write(out, b'[' * 60_000 + b'\\n')", "the process sent something that is not a message"),
        ("while True: os.write(out, bytes(1 << 16))", "the process sent too much"),
        ("os.write(1, b'x' * 100); print('{}'); time.sleep(600)", "the process took more than 0.5 s"),
    ],
)
def test_an_end_is_named(walls: str, code: str, ended: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MOST_SAID", 1 << 20)
    found = said(code, wall_seconds=0.5 if "0.5 s" in ended else 60.0)
    assert found.ended == ended
    assert found.messages == [{"ready": True}]


def test_a_program_that_is_never_ready_is_no_fault_of_a_submission(walls: str) -> None:
    with pytest.raises(NotStarted, match="ModuleNotFoundError"):
        sandbox.run({}, 10, True, ("-c", "import no_such_module"))


def test_without_bubblewrap_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    sandbox.find.cache_clear()
    with pytest.raises(Unavailable, match="not installed"):
        sandbox.find()
    (tmp_path / "bwrap").write_text(f"#!{sys.executable}\nimport sys; sys.exit('no namespaces here')")
    (tmp_path / "bwrap").chmod(0o755)
    with pytest.raises(Unavailable, match="no namespaces here"):
        sandbox.find()
    sandbox.find.cache_clear()


def test_a_job_is_json() -> None:
    from tests.test_grading import job_of

    assert json.loads(json.dumps(job_of({"a": b"\xff"}).as_dict()))["notebooks"] == {"a": "/w=="}


def test_the_process_of_a_puzzle_has_no_pipe_but_its_own():
    def files() -> dict[str, Any]:
        numbers = [number for number in range(3, 1024) if os.path.exists(f"/proc/self/fd/{number}")]
        return {"files": [os.readlink(f"/proc/self/fd/{number}") for number in numbers]}

    reading, writing = os.pipe()
    job_pipe = inside._private(writing)
    try:
        found = inside.in_a_fork(files, {"puzzle_seconds": 10, "memory": 1 << 30})
    finally:
        os.close(job_pipe)
        os.close(reading)
    assert [name.partition(":")[0] for name in found["files"]] == ["pipe"]
