"""`puzzles_lib.ledger`: what is kept, and that nothing wrong with the file stops a check."""

import fcntl
import json
import multiprocessing
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import replace

import pytest

from puzzles_lib import ledger
from puzzles_lib.checker.report import KINDS
from puzzles_lib.ledger import LOCK_TIMEOUT_S, MOST_BYTES, Entry, entries, load, record, solved_by

FILE = "progress.json"


def kept(state_dir):
    return json.loads((state_dir / FILE).read_text())["puzzles"]


def states(state_dir):
    return {name: entry["state"] for name, entry in kept(state_dir).items()}


def write(state_dir, text):
    state_dir.mkdir(parents=True, exist_ok=True)
    (state_dir / FILE).write_text(text)


def test_tried_becomes_solved_and_stays_solved(state_dir):
    assert record("outer_add", False) is None
    assert states(state_dir) == {"outer_add": "tried"}
    assert record("outer_add", True) is None
    assert record("outer_add", False) is None
    assert record("long_sum", False) is None
    assert states(state_dir) == {"outer_add": "solved", "long_sum": "tried"}


def test_what_another_process_solved_meanwhile_stays_solved(state_dir, monkeypatch):
    @contextmanager
    def lock_after_another(path):
        with lock(path):
            write(state_dir, json.dumps({"schema": 2, "puzzles": {"outer_add": {"state": "solved"}}}))
            yield

    lock = ledger._lock
    monkeypatch.setattr("puzzles_lib.ledger._lock", lock_after_another)
    assert record("outer_add", False) is None
    assert states(state_dir) == {"outer_add": "solved"}


def test_file_has_a_schema_and_no_leftovers_beside_it(state_dir):
    record("outer_add", True)
    assert json.loads((state_dir / FILE).read_text())["schema"] == 2
    assert sorted(path.name for path in state_dir.iterdir()) == [FILE, "progress.lock"]


def test_recording_what_is_known_writes_nothing(state_dir):
    record("outer_add", True)
    before = (state_dir / FILE).stat().st_ino
    record("outer_add", True)
    record("outer_add", False)
    assert (state_dir / FILE).stat().st_ino == before


def test_tries_are_different_kernels_up_to_the_first_that_is_right(state_dir):
    for kind, attempt in (("values", "a"), ("values", "a"), ("out of bounds", "b"), ("race", "b")):
        assert record("outer_add", False, kind, attempt) is None
    entry = entries()[0]["outer_add"]
    assert (entry.state, entry.tries, entry.last, entry.first_solved) == ("tried", 2, "race", "")
    before = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record("outer_add", True, attempt="c")
    solved = entries()[0]["outer_add"]
    assert (solved.state, solved.tries, solved.last) == ("solved", 3, "pass")
    assert before <= solved.first_solved <= time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    record("outer_add", False, "values", "d")
    assert entries()[0]["outer_add"] == solved
    record("outer_add", True, attempt="e")
    assert entries()[0]["outer_add"] == replace(solved, attempt=entries()[0]["outer_add"].attempt)


def test_the_newest_text_that_solved_a_puzzle_is_known(state_dir):
    record("outer_add", True, attempt="first")
    assert solved_by("outer_add", "first")
    record("outer_add", True, attempt="tidied")
    record("outer_add", False, "values", "broken")
    assert solved_by("outer_add", "tidied")
    assert not solved_by("outer_add", "broken") and not solved_by("outer_add", "")


def test_what_nobody_has_tried_is_open_and_takes_nothing_back(state_dir):
    record("outer_add", False, "open", "stub")
    assert load() == ({"outer_add": "open"}, None) and entries()[0]["outer_add"].tries == 0
    record("outer_add", False, "values", "a")
    tried = entries()
    record("outer_add", False, "open", "stub")
    assert entries() == tried and tried[0]["outer_add"].tries == 1


def test_every_kind_of_verdict_can_be_kept(state_dir):
    for kind in (*KINDS, "wrong answer"):
        assert record(f"after {kind}", False, kind, "a") is None
    assert entries()[1] is None and len(entries()[0]) == len(KINDS) + 1


FIRST_SCHEMA = '{"schema": 1, "puzzles": {"outer_add": "solved", "long_sum": "tried"}}'


def test_file_of_an_older_course_is_read_and_goes_on(state_dir):
    write(state_dir, FIRST_SCHEMA)
    assert entries() == ({"outer_add": Entry("solved"), "long_sum": Entry("tried")}, None)
    assert (state_dir / FILE).read_text() == FIRST_SCHEMA  # looking changes nothing
    assert record("outer_add", True) is None
    assert (state_dir / FILE).read_text() == FIRST_SCHEMA  # nor does what is known
    assert record("long_sum", False, "values", "a") is None
    kept_now, note = entries()
    assert note is None and kept_now["outer_add"] == Entry("solved")
    assert (kept_now["long_sum"].tries, kept_now["long_sum"].last) == (1, "values")
    assert not (state_dir / f"{FILE}.damaged").exists()


def test_default_is_the_users_state_directory(monkeypatch, tmp_path):
    monkeypatch.delenv("PUZZLES_STATE_DIR")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    record("outer_add", True)
    assert states(tmp_path / "state" / "triton-bit-by-bit") == {"outer_add": "solved"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"schema": 1}',
        '{"schema": 1, "puzzles": ["outer_add"]}',
        '{"schema": 1, "puzzles": {"outer_add": "perfect"}}',
        '{"schema": 1, "puzzles": {"outer_add": []}}',
        '{"schema": "one", "puzzles": {}}',
        '{"schema": 2, "puzzles": {"outer_add": "solved"}}',
        '{"schema": 2, "puzzles": {"outer_add": {}}}',
        '{"schema": 2, "puzzles": {"outer_add": {"state": "solved", "tries": -1}}}',
        '{"schema": 2, "puzzles": {"outer_add": {"state": "solved", "tries": true}}}',
        '{"schema": 2, "puzzles": {"outer_add": {"state": "solved", "last": "\\u001b[31m"}}}',
        '{"schema": 2, "puzzles": {"outer_add": {"state": "solved", "first_solved": "=1+1"}}}',
        '{"schema": 2, "puzzles": {"outer_add": {"state": "solved", "tries": ' + "9" * 10_000 + "}}}",
        "\x00" * 100,
        "[" * 100_000,
        " " * (MOST_BYTES + 1),
    ],
)
def test_damaged_file_is_set_aside_and_told_in_a_line(state_dir, text):
    write(state_dir, text)
    assert "damaged" in load()[1] and "\n" not in load()[1]
    assert (state_dir / FILE).read_text() == text  # looking mends nothing
    line = record("outer_add", False)
    assert "damaged" in line and f"{FILE}.damaged" in line and "\n" not in line
    assert (state_dir / f"{FILE}.damaged").read_text() == text
    assert states(state_dir) == {"outer_add": "tried"}
    assert record("outer_add", True) is None


def test_file_of_a_newer_course_is_left_alone(state_dir):
    text = '{"schema": 3, "puzzles": {"outer_add": "solved"}}'
    write(state_dir, text)
    assert "newer" in record("outer_add", True) and "newer" in load()[1]
    assert (state_dir / FILE).read_text() == text


def test_state_dir_that_cannot_be_made_is_told_in_a_line(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PUZZLES_STATE_DIR", str(tmp_path / "file" / "state"))
    line = record("outer_add", True)
    assert line.startswith("your progress could not be saved: Not a directory") and "\n" not in line
    assert load()[1].startswith("your progress could not be read: Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_read_only_state_dir(state_dir):
    state_dir.mkdir()
    state_dir.chmod(0o555)
    assert record("outer_add", True).startswith("your progress could not be saved: Permission denied")


def test_read_only_file_system(monkeypatch, state_dir):
    def refuse(*args, **kwargs):
        raise OSError(30, "Read-only file system", str(state_dir))

    record("long_sum", True)
    monkeypatch.setattr("puzzles_lib.ledger.tempfile.mkstemp", refuse)
    said = f"your progress could not be saved: Read-only file system: {state_dir}"
    assert record("outer_add", True) == said
    assert states(state_dir) == {"long_sum": "solved"}


def test_failed_write_leaves_the_old_file_and_no_temporary(monkeypatch, state_dir):
    record("long_sum", True)
    monkeypatch.setattr(
        "puzzles_lib.ledger.os.fsync", lambda _: (_ for _ in ()).throw(OSError(28, "No space left"))
    )
    assert "No space left" in record("outer_add", True)
    assert states(state_dir) == {"long_sum": "solved"}
    assert not list(state_dir.glob(".progress-*"))


def test_anything_that_goes_wrong_is_one_line(monkeypatch):
    monkeypatch.setattr("puzzles_lib.ledger._record", lambda *_: 1 / 0)
    assert record("outer_add", True) == "your progress could not be saved: division by zero"


def test_held_lock_is_given_up_on(state_dir):
    record("long_sum", True)
    with open(state_dir / "progress.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        start = time.monotonic()
        line = record("outer_add", True)
        waited = time.monotonic() - start
    assert "another process holds" in line and "\n" not in line
    assert waited < LOCK_TIMEOUT_S + 30  # a busy machine
    assert states(state_dir) == {"long_sum": "solved"}
    assert record("outer_add", True) is None


def _record_many(names):
    for name in names:
        assert record(name, True) is None


def test_writers_at_the_same_time_lose_nothing(state_dir, monkeypatch):
    monkeypatch.setattr("puzzles_lib.ledger.LOCK_TIMEOUT_S", 120)  # a slow disk may keep them all waiting
    names = [[f"puzzle_{writer}_{i}" for i in range(20)] for writer in range(4)]
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_record_many, args=(part,)) for part in names]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert states(state_dir) == {name: "solved" for part in names for name in part}


def test_reading_creates_nothing(state_dir):
    assert load() == ({}, None)
    assert not state_dir.exists()


def test_importing_the_ledger_imports_no_torch():
    code = "import sys, puzzles_lib.ledger; print('torch' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert ran.stdout == "False\n"
