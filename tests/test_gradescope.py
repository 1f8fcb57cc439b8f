"""The autograder for Gradescope: its zip, and its scripts run in a bare folder as Gradescope runs them."""

import json
import os
import re
import shlex
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from puzzles_lib.authoring import gradescope
from puzzles_lib.authoring.gradescope import contents
from puzzles_lib.grading import autograder
from puzzles_lib.grading.rules import read_points
from tests.hostile import WRONG_TWO, notebook

REPO = Path(__file__).parent.parent
METADATA = {
    "created_at": "2026-11-30T22:00:00.000000+00:00",
    "assignment": {"due_date": "2026-11-30T12:00:00.000000-08:00"},
    "users": [{"email": "ada@x.org", "id": 1, "name": "Ada"}],
}


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    (folder / "points.toml").write_text("default = 10\npartial = 0.5\n")
    options = ["01", "--salt", "x", "--late", "10%/day", "--points", str(folder / "points.toml")]
    assert gradescope.main([*options, "--out", str(folder / "autograder.zip")]) == 0
    return folder / "autograder.zip"


def unpacked(archive: Path, root: Path, submission: dict[str, bytes], metadata: Any = METADATA) -> Path:
    """What Gradescope's container has before `run_autograder` is run."""
    for folder in ("source", "submission", "results"):
        (root / folder).mkdir(parents=True)
    subprocess.run([sys.executable, "-m", "zipfile", "-e", archive, root / "source"], check=True, timeout=240)
    for name, data in submission.items():
        (root / "submission" / name).write_bytes(data)
    (root / "submission_metadata.json").write_text(json.dumps(metadata))
    (root / "run_autograder").write_bytes((root / "source" / "run_autograder").read_bytes())
    return root


def ran(root: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """The script, with nothing of this checkout in its environment."""
    variables = {
        "PATH": os.environ["PATH"],
        "AUTOGRADER_ROOT": str(root),
        "AUTOGRADER_PYTHON": sys.executable,
    }
    command = ["bash", root / "run_autograder"]
    return subprocess.run(command, env=variables | more, cwd="/", capture_output=True, text=True, timeout=240)


def test_a_submission_is_graded_in_a_bare_folder(archive: Path, tmp_path: Path) -> None:
    """With the zip's library, outside of the sandbox and inside, not this checkout's."""
    files = {"my work.ipynb": notebook({"p2-kernel": WRONG_TWO}, "import os"), "notes.txt": b"x"}
    root = unpacked(archive, tmp_path / "autograder", files)
    for name, word in (("rules", "late by "), ("handed_in", "which was not run")):
        path = root / f"source/puzzles_lib/grading/{name}.py"
        assert word in path.read_text()
        path.write_text(path.read_text().replace(word, word.upper()))
    done = ran(root)
    assert done.returncode == 0, done.stderr
    result = json.loads((root / "results/results.json").read_text())
    first, second, *_ = [test for test in result["tests"] if test.get("number")]
    assert (first["name"], first["score"], first["max_score"]) == ("1 constant_add", 9, 10)
    assert (first["status"], second["status"]) == ("passed", "failed")
    assert "wrong values in z" in second["output"] and result["score"] == 9 + second["score"]
    assert "LATE BY 2 h; 10% of" in result["output"] and "WHICH WAS NOT RUN: imports os" in result["output"]


def test_points_are_taken_off_after_the_due_date_or_an_extension(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def pretended(job: Any) -> dict[str, Any]:
        seen.append(job)
        mark = {"puzzle": "constant_add", "number": "1", "chapter": "01", "points": 1, "of": 1}
        mark |= {"state": "solved", "kind": "", "words": "", "remarks": [], "report": None}
        return {
            "student": job.student,
            "key": "k",
            "points": 1,
            "of": 1,
            "remarks": [],
            "puzzles": [mark],
            "answers": [],
        }

    monkeypatch.setattr(autograder, "grade", pretended)
    root = unpacked(archive, tmp_path / "autograder", {"a.ipynb": notebook()})
    assert autograder.main([str(root)]) == 0
    result = json.loads((root / "results/results.json").read_text())
    assert result["score"] == 9 and result["output"].startswith("Late by 2 h; 10% of the points")
    assert seen[0].student == "Ada" and seen[0].chapters == ("01",) and seen[0].salt == "x"
    extended = METADATA | {"users": [{"assignment": {"due_date": "2026-12-01T12:00:00-08:00"}}]}
    (root / "submission_metadata.json").write_text(json.dumps(extended))
    assert autograder.main([str(root)]) == 0
    assert json.loads((root / "results/results.json").read_text())["score"] == 10


def test_who_submits_half_a_file_reads_that_it_is_not_graded(archive: Path, tmp_path: Path) -> None:
    half = notebook({"p2-kernel": WRONG_TWO})[:-200]
    root = unpacked(archive, tmp_path / "autograder", {"01_blocks.ipynb": half})
    assert autograder.main([str(root)]) == 0
    result = json.loads((root / "results/results.json").read_text())
    assert result["score"] == 0 and "Not graded: a file cannot be read (01_blocks.ipynb: " in result["output"]
    assert all("the file cannot be read" in test["output"] for test in result["tests"] if "number" in test)


def test_without_a_sandbox_the_teacher_alone_is_told(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable() -> None:
        raise autograder.sandbox.Unavailable("no namespaces")

    jobs = []

    def pretended(job: Any) -> dict[str, Any]:
        jobs.append(job)
        return {"student": "x", "key": "k", "points": 0, "of": 0, "remarks": [], "puzzles": [], "answers": []}

    monkeypatch.setattr(autograder.sandbox, "find", unavailable)
    monkeypatch.setattr(autograder, "grade", pretended)
    root = unpacked(archive, tmp_path / "autograder", {}, metadata={})
    assert autograder.main([str(root)]) == 0 and jobs[0].sandboxed is False
    (note,) = json.loads((root / "results/results.json").read_text())["tests"]
    assert note["visibility"] == "hidden" and "no namespaces" in note["output"]


@pytest.mark.parametrize(
    "file, text, words",
    [
        ("source/config.json", "{", "config.json: not JSON"),
        ("source/config.json", "{}", "config.json: malformed"),
        ("source/config.json", "[]", "not a JSON object"),
        ("source/points.toml", "default = -1", "default must be a number"),
        ("submission_metadata.json", "x", "submission_metadata.json: not JSON"),
    ],
)
def test_what_cannot_be_graded_has_no_result_and_is_no_zero(
    file: str, text: str, words: str, archive: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = unpacked(archive, tmp_path / "autograder", {})
    (root / file).write_text(text)
    assert autograder.main([str(root)]) == 1
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said and not (root / "results/results.json").exists()


def test_the_zip_has_what_it_needs_and_no_answers(archive: Path) -> None:
    with zipfile.ZipFile(archive) as opened:
        names = opened.namelist()
        modes = {entry.filename: entry.external_attr >> 16 & 0o777 for entry in opened.infolist()}
        pins = opened.read("requirements.txt").decode().split()
        config = json.loads(opened.read("config.json"))
    assert {"setup.sh", "run_autograder", "NOTES.md", "points.toml", "puzzles_lib/grading/inside.py"} <= {
        *names
    }
    assert modes["setup.sh"] == modes["run_autograder"] == 0o755
    assert not [name for name in names if name.endswith(".ipynb") or "__pycache__" in name]
    assert config == {"chapters": ["01"], "salt": "x", "late": "10%/day"}
    assert any(pin.startswith("torch==") for pin in pins) and any(pin.startswith("triton==") for pin in pins)


def test_set_up_installs_the_pins_without_cuda(archive: Path, tmp_path: Path) -> None:
    """With programs that write down how they are called."""
    root = unpacked(archive, tmp_path / "autograder", {})
    programs = tmp_path / "bin"
    programs.mkdir()
    fake = '#!/bin/bash\necho "$(basename "$0") $*" >> "$LOG"\n'
    copies = 'mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/uv"'
    makes = f"if [[ $1 == -m && $2 == venv ]]; then {copies}; fi\n"
    fails = "[[ $1 != -c || -z ${OLD:-} ]]\n"
    for name in ("apt-get", "python3"):
        (programs / name).write_text(fake + makes + fails)
        (programs / name).chmod(0o755)
    variables = {"PATH": f"{programs}:{os.environ['PATH']}", "LOG": str(tmp_path / "log")}
    variables["AUTOGRADER_ROOT"] = str(root)
    command = ["bash", root / "source/setup.sh"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "log").read_text()
    assert "apt-get install --yes --no-install-recommends bubblewrap" in log
    assert f"--torch-backend cpu --requirement {root}/source/requirements.txt" in log
    assert log.splitlines()[-1] == "python -c import puzzles_lib.grading.autograder"
    old = subprocess.run(command, env=variables | {"OLD": "1"}, capture_output=True, text=True, timeout=240)
    assert old.returncode == 1 and "choose Ubuntu 24.04" in old.stderr


@pytest.mark.parametrize(
    "options, words",
    [
        (["77"], "no chapter '77'; there are: 00, 01"),
        (["--late", "x"], "--late x: write a rule"),
        (["--points", "none.toml"], "none.toml"),
    ],
)
def test_bad_choices_are_told_in_a_line(
    options: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gradescope.main([*options, "--out", str(tmp_path / "x.zip")]) == 1
    assert words in capsys.readouterr().err and not (tmp_path / "x.zip").exists()


def test_the_file_of_points_in_teaching_works_with_its_command(tmp_path: Path, monkeypatch: Any) -> None:
    text = (REPO / "TEACHING.md").read_text()
    (points,) = re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    (options,) = re.findall(r"make gradescope GRADESCOPE_ARGS='(.*)'", text)
    (tmp_path / "points.toml").write_text(points)
    monkeypatch.chdir(tmp_path)
    assert gradescope.main([*shlex.split(options), "--out", "x.zip"]) == 0
    assert read_points(Path("points.toml")).total == 100


def test_best_attempts_are_gradescopes_own(tmp_path: Path) -> None:
    (tmp_path / "points.toml").write_text('attempt = "best"')
    with pytest.raises(ValueError, match="let Gradescope choose"):
        contents(REPO, ["01"], "x", points=tmp_path / "points.toml")


def test_the_total_is_that_of_the_points() -> None:
    from puzzles_lib.grading.rules import Points

    assert gradescope.total(["01_blocks"], Points(default=5)) == 15
    assert gradescope.total([], Points(total=100)) == 100
    assert gradescope.total(["01"], Points(answers=1)) > 2
