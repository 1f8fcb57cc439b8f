"""``python -m puzzles_lib.progress``: one's own progress and a class's, whatever the files hold."""

import csv
import importlib
import io
import json
import os
import subprocess
import sys

import pytest

import puzzles_lib
from puzzles_lib import overview
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.export import main
from puzzles_lib.ledger import Entry, read, record

COUNT = sum(len(chapter.puzzles) + len(chapter.rungs) + len(chapter.questions) for chapter in CHAPTERS)
BOB = {
    "outer_add": {"state": "solved", "tries": 3, "first_solved": "2026-11-20T10:00:00Z", "last": "pass"},
    "long_sum": {"state": "tried", "tries": 4, "last": "values"},
    "ch13-q1": {"state": "tried", "tries": 1, "last": "wrong answer"},
    "of_another_course": {"state": "solved", "tries": 1},
}


@pytest.fixture
def class_folder(tmp_path, monkeypatch):
    """Three learners: ann with a file of an older course, bob, and eve, who wrote hers herself."""
    (tmp_path / "class" / "ann").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "class")
    with open("ann/progress.json", "w") as file:
        json.dump({"schema": 1, "puzzles": {"outer_add": "solved", "long_sum": "tried"}}, file)
    with open("bob.json", "w") as file:
        json.dump({"schema": 2, "puzzles": BOB}, file)
    with open("=eve.json", "w") as file:
        json.dump({"schema": 2, "puzzles": {"long_sum": {"state": "tried", "last": "values"}}}, file)
    return tmp_path / "class"


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_ones_own_as_json_is_a_file_to_hand_in(capsys, tmp_path):
    record("outer_add", False, "values", "a")
    record("outer_add", True, attempt="b")
    assert main(["--json"]) == 0
    text = capsys.readouterr().out
    told = json.loads(text)
    assert told["self_reported"] is True and len(told["puzzles"]) == COUNT
    own = told["puzzles"]["outer_add"]
    assert (own["chapter"], own["number"], own["state"], own["tries"]) == ("02", "3", "solved", 2)
    (tmp_path / "handed.json").write_text(text)
    entries = read(tmp_path / "handed.json")
    assert entries["outer_add"] == Entry("solved", 2, "pass", own["first_solved"])
    assert entries["long_sum"] == Entry("open")


def test_ones_own_as_csv_and_as_text(capsys):
    record("outer_add", True)
    assert main(["--csv"]) == 0
    told = rows(capsys.readouterr().out)
    assert len(told) == COUNT
    assert [row["puzzle"] for row in told if row["state"] == "solved"] == ["outer_add"]
    assert main([]) == 0
    assert "1 of" in capsys.readouterr().out


def test_a_class_as_json_and_csv(class_folder, capsys):
    assert main(["--json", "ann", "bob.json", "=eve.json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    assert list(told["learners"]) == ["ann", "bob", "=eve"] and told["self_reported"] is True
    bob = told["learners"]["bob"]["puzzles"]
    assert bob["long_sum"] == {"chapter": "04", "number": "7", **BOB["long_sum"], "first_solved": ""}
    assert "of_another_course" not in bob and "not grades" in err
    assert main(["--csv", "ann", "bob.json", "=eve.json"]) == 0
    table = rows(capsys.readouterr().out)
    assert len(table) == 3 * COUNT
    assert {row["learner"] for row in table} == {"ann", "bob", "'=eve"}  # no formula for a spreadsheet
    solved = [(row["learner"], row["first_solved"]) for row in table if row["state"] == "solved"]
    assert solved == [("ann", ""), ("bob", "2026-11-20T10:00:00Z")]


def test_a_class_as_text_says_what_it_is_stuck_on(class_folder, capsys):
    assert main(["ann", "bob.json", "=eve.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("3 learners, self-reported") and lines[0].endswith("not grades")
    assert lines[2].split() == "bob 1 solved, the last on 2026-11-20, 2 tried".split()
    by_name = {line.split()[2]: line.split() for line in lines[5:-1] if line.split()[1].isdigit()}
    assert by_name["outer_add"][3:] == ["2", "0", "3"]
    assert by_name["long_sum"][3:] == ["0", "3", "values", "2,", "?", "1"]
    assert lines[-1] == f"{COUNT - 3} more that nobody has tried"


def test_files_that_are_none_are_named_and_the_others_go_on(class_folder, capsys):
    (class_folder / "junk.json").write_text("junk")
    (class_folder / "newer.json").write_text('{"schema": 9, "puzzles": {}}')
    (class_folder / "esc\x1b[31m.json").write_text('{"schema": 2, "puzzles": {"a": "\x1b[31m"}}')
    os.mkfifo(class_folder / "pipe.json")
    given = ["junk.json", "newer.json", "esc\x1b[31m.json", "pipe.json", "missing.json", "bob.json"]
    assert main(["--csv", *given]) == 1
    out, err = capsys.readouterr()
    assert {row["learner"] for row in rows(out)} == {"bob"}
    errors = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 5 and "\x1b" not in err
    assert "junk.json: not a progress file" in errors[0] and "newer version" in errors[1]
    assert "No such file" in errors[4]


def test_two_learners_of_one_name_are_told_apart_by_their_paths(class_folder, capsys):
    (class_folder / "b").mkdir()
    (class_folder / "b" / "bob.json").write_text('{"schema": 2, "puzzles": {}}')
    assert main(["--json", "bob.json", "b/bob.json", "ann"]) == 0
    assert list(json.loads(capsys.readouterr().out)["learners"]) == ["bob.json", "b/bob.json", "ann"]


def test_it_is_a_command_and_no_module_in_the_functions_place(class_folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "puzzles_lib.progress", raising=False)
    module = importlib.import_module("puzzles_lib.progress")
    assert module is puzzles_lib.progress is overview.progress
    command = [sys.executable, "-m", "puzzles_lib.progress", "--csv", "bob.json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and len(rows(done.stdout)) == COUNT
