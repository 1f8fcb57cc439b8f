"""Grading: hostile submissions get what they deserve, marks are complete, and results survive."""

import ast
import importlib
import json
import math
import os
import re
import signal
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest
import torch

from puzzles_lib import MASKED_ADD
from puzzles_lib.authoring.solutions import ROOT, kernel_cells
from puzzles_lib.chapters import CHAPTERS
from puzzles_lib.grading import handed_in, inside, plain, sandbox, submissions
from puzzles_lib.grading.__main__ import handed_in_progress
from puzzles_lib.grading.class_view import overview
from puzzles_lib.grading.grade import Job, grade, is_unread
from puzzles_lib.grading.handed_in import Found, Notebook, by_chapter
from puzzles_lib.grading.plain import Known, NotPlain
from puzzles_lib.grading.results import folder_name, gradebook, page, report, summary, told
from puzzles_lib.grading.submissions import collect
from puzzles_lib.ledger import SCHEMA
from puzzles_lib.wrapped import unwrap
from tests.hostile import HOSTILE, TWO, WRONG_TWO, Hostile, notebook, of_cells

SALT = "autumn"


def job_of(files: Mapping[str, bytes], remarks: tuple[str, ...] = (), **options: Any) -> Job:
    given = {"chapters": ("01",), "seconds": 0.4, "wall_seconds": 240.0, "sandboxed": False, **options}
    return Job("Ada", files, remarks, "key", SALT, **given)


def all_said(grade: Mapping[str, Any]) -> str:
    """Every word of a report."""
    answers = [answer["words"] for answer in grade["answers"]]
    return "\n".join([*grade["remarks"], *(told(mark) for mark in grade["puzzles"]), *answers])


@pytest.fixture
def in_a_fork(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process that checks is a fork of this one, which has imported all: a tenth of the time."""

    def run(job: Mapping[str, Any], wall_seconds: float, sandboxed: bool) -> sandbox.Said:
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reading)
                os.chdir(tmp_path)
                sys.stdout = open(os.devnull, "w")  # pytest's own would keep what kernels print
                with os.fdopen(writing, "w") as pipe:
                    inside.grade_job(job, lambda message: print(json.dumps(message), file=pipe, flush=True))
            finally:
                os._exit(0)
        os.close(writing)
        try:
            return sandbox.listen(reading, wall_seconds)
        finally:
            os.close(reading)
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    monkeypatch.setattr(sandbox, "run", run)


@pytest.mark.parametrize("one", [one for one in HOSTILE if not one.slow], ids=lambda one: one.name)
def test_a_hostile_submission_gets_what_it_deserves(one: Hostile, tmp_path: Path, in_a_fork: None) -> None:
    folder = tmp_path / "class" / "student"
    folder.mkdir(parents=True)
    one.write(folder)
    submissions, _ = collect([tmp_path / "class"])
    files, remarks = {}, []
    for submission in submissions:
        if submission.student == "student":
            files, remarks = submission.read()
    found = grade(job_of(files, tuple(remarks)))
    assert found["points"] == one.points, all_said(found)
    assert re.search(one.says, all_said(found)), all_said(found)
    assert not (tmp_path / "owned").exists()
    assert "<script>" not in report(found)
    assert len(json.dumps(found)) < 50_000


def test_an_answer_that_the_learners_own_code_computes_is_not_asked_for() -> None:
    (chapter,) = (chapter for chapter in CHAPTERS if chapter.number == "19")
    data = (ROOT / "notebooks" / chapter.notebook).read_bytes()
    told = {each["id"] for each in grade(job_of({chapter.notebook: data}, chapters=("19",)))["answers"]}
    assert told == {question.id for question in chapter.questions} - {"ch19-q15"}


def test_what_takes_too_long_to_read_is_no_zero_without_a_word(
    in_a_fork: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_ever(*_: object) -> None:
        while True:
            pass

    monkeypatch.setattr(handed_in, "by_chapter", for_ever)
    monkeypatch.setattr(inside, "CLOCK", 200)  # or a busy machine would be too slow for a second of its CPU
    found = grade(job_of({"01_blocks.ipynb": notebook()}, puzzle_seconds=1))
    assert [mark["state"] for mark in found["puzzles"]] == ["limit", "limit", "limit"]
    assert all("could not be read: it took more than 1 s" in mark["words"] for mark in found["puzzles"])
    assert "the notebooks could not be read" in found["remarks"][0]


def test_a_fault_in_reading_is_told_by_its_name(in_a_fork: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("of ours")

    monkeypatch.setattr(handed_in, "by_chapter", fails)
    found = grade(job_of({"01_blocks.ipynb": notebook()}))
    assert "KeyError: 'of ours'" in found["remarks"][0] and found["puzzles"][0]["state"] == "limit"


def test_an_archive_is_unpacked_to_so_much_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are too large count, too: a thousand of them are gigabytes."""
    (tmp_path / "ada").mkdir()
    with zipfile.ZipFile(tmp_path / "ada/x.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for n in range(4):
            archive.writestr(f"{n}.ipynb", bytes(3000))
    monkeypatch.setattr(submissions, "MOST_NOTEBOOK", 2000)
    monkeypatch.setattr(submissions, "MOST_UNPACKED", 4000)
    (ada,) = collect([tmp_path])[0]
    assert [remark.partition(": ")[2] for remark in ada.read()[1]] == [
        *["it is more than 0 MB when unpacked"] * 2,
        *["not read: the archive unpacks to more than 0 MB"] * 2,
        "",
    ]
    monkeypatch.setattr(submissions, "MOST_FILES", 3)
    assert ada.read()[1][0] == "x.zip: an archive of more than 3 files"


def test_what_breaks_the_reader_is_its_students_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada/x.zip").write_bytes(b"PK")

    def fails(*_: object) -> None:
        raise IndexError("of zipfile's")

    monkeypatch.setattr(submissions, "_archive", fails)
    (ada,) = collect([tmp_path])[0]
    assert ada.read() == ({}, ["x.zip: cannot be read (IndexError: of zipfile's)", "no notebook"])


def test_machine_code_is_judged_in_the_sandbox_too() -> None:
    """Its limits are lower than the compiler's own, and nobody there may raise them."""
    try:
        sandbox.find()
    except sandbox.Unavailable as reason:
        pytest.skip(str(reason))
    master = json.loads((ROOT / "solutions/09_bit_packing.ipynb").read_text())
    master["cells"] = [c for c in master["cells"] if "def pack_wide_kernel" in "".join(c["source"])]
    files = {"09_bit_packing.ipynb": json.dumps(master).encode()}
    found = grade(job_of(files, chapters=("09",), seconds=10.0, sandboxed=True))
    assert [mark["points"] for mark in found["puzzles"] if mark["puzzle"] == "pack_wide"] == [1], found


# ---- what is taken of a notebook


def kernel_in(data: bytes) -> Found:
    return Notebook(data).kernel_of(MASKED_ADD)


def test_of_every_solution_the_kernel_is_taken_as_it_stands() -> None:
    """Cell ids, names and all that a solution is made of are what grading knows."""
    for chapter in CHAPTERS:
        (master,) = (ROOT / "solutions").glob(f"{chapter.number}_*.ipynb")
        notebooks, remarks = by_chapter({master.name: master.read_bytes()}, CHAPTERS)
        assert list(notebooks) == ([chapter.number] if chapter.puzzles or chapter.questions else [])
        assert remarks == []
        for puzzle in chapter.puzzles:
            found = notebooks[chapter.number].kernel_of(puzzle)
            assert found.kernel and not found.remarks, (puzzle, found.words)
            cell = kernel_cells()[puzzle.name].split("\n")
            assert set(found.kernel.sources[-1].split("\n")) <= {"", *cell}
        asked = {question.id for question in chapter.questions if not question.computed}
        values = notebooks[chapter.number].answers(asked) if asked else {}
        assert set(values) == asked
        assert all(values.values()) and "..." not in values.values()


def test_a_submission_is_read_without_what_answers_are_computed_with() -> None:
    """Half a second of each submission, most of which nobody reads."""
    code = (
        "import sys; from pathlib import Path; from puzzles_lib.chapters import CHAPTERS\n"
        "from puzzles_lib.grading import inside\n"
        "files = {path.name: path.read_bytes() for path in Path(sys.argv[1]).glob('*.ipynb')}\n"
        "found = inside._taken(files, CHAPTERS, ['ch01-q1'])['notebooks']\n"
        "late = ('matplotlib', 'puzzles_lib.chapters.ch19_what_the_clock_says.questions')\n"
        "print(len(found['chapters']), [*found['answers']], [name for name in late if name in sys.modules])"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "notebooks")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=240,
    )
    assert ran.stdout.strip() == f"{len(CHAPTERS)} ['ch01-q1'] []", ran.stderr


def test_an_unsolved_course_has_nothing_to_remark() -> None:
    files = {path.name: path.read_bytes() for path in (ROOT / "notebooks").glob("*.ipynb")}
    notebooks, remarks = by_chapter(files, CHAPTERS)
    assert remarks == [] and len(notebooks) == len(CHAPTERS)
    of = {p.name: notebooks[c.number].kernel_of(p).remarks for c in CHAPTERS for p in c.puzzles}
    assert {name: remarks for name, remarks in of.items() if remarks} == {}


def test_just_the_puzzles_is_not_graded_and_says_so_where_it_is_begun() -> None:
    data = (ROOT / "notebooks" / "just_the_puzzles.ipynb").read_bytes()
    assert by_chapter({"ann/just_the_puzzles.ipynb": data}, CHAPTERS) == ({}, [])
    begun = data.replace(b"    # your code here", b"    x = 1", 1)
    notebooks, remarks = by_chapter({"ann/just_the_puzzles.ipynb": begun}, CHAPTERS)
    told = "ann/just_the_puzzles.ipynb: not graded, because only kernels in the chapter notebooks count"
    assert (notebooks, remarks) == ({}, [told])


def cell_of(folder: str, number: str, id: str) -> bytes:
    """A notebook with a single cell, of the course's own."""
    (path,) = (ROOT / folder).glob(f"{number}_*.ipynb")
    (cell,) = (c for c in json.loads(path.read_text("utf-8"))["cells"] if c.get("id") == id)
    return of_cells([(id, "".join(cell["source"]))])


@pytest.mark.parametrize("number", ["45", "65"], ids=["a plain kernel", "mended in its decorator"])
def test_a_clinics_kernel_as_it_was_handed_out_is_still_open(number: str, in_a_fork: None) -> None:
    def mark(folder: str) -> Mapping[str, Any]:
        cell = cell_of(folder, "20", f"p{number}-kernel")
        marks = grade(job_of({"20_clinic.ipynb": cell}, chapters=("20",), seconds=10.0))["puzzles"]
        return next(mark for mark in marks if mark["number"] == number)

    broken, mended = mark("notebooks"), mark("solutions")
    assert (broken["points"], broken["state"]) == (0, "open")
    assert "the kernel is still broken, as it was handed out" in told(broken)
    assert (mended["points"], mended["state"]) == (1, "solved")


HELPER = "@triton.jit\ndef ten(x):\n    return x + TEN\n"
WITH_HELPER = TWO.replace("mask=mask) + 10", "mask=mask) + 0").replace("tl.load(", "ten(tl.load(", 1)
TUNED = TWO.replace(
    "@triton.jit", "@triton.autotune(configs=[triton.Config({}, num_warps=w)], key=['N'])\n@triton.jit"
)
MATH = f"from math import log2\nimport math as m\nTEN = tl.constexpr(log2(m.exp2(10)))\n{HELPER}"
WITH_HELPER = WITH_HELPER.replace("mask=mask) + 0", "mask=mask))")
PLACE = "class Place(NamedTuple):\n    'Where a block lies.'\n    offs: tl.tensor\n    mask: open('x', 'w')\n"
IN_A_TUPLE = TWO.replace("mask = offs < N", "at = Place(offs, offs < N)").replace("mask=mask", "mask=at.mask")


@pytest.mark.parametrize(
    "cells",
    [
        {"p2-kernel": f"TEN = tl.constexpr(10)\n\n{HELPER}\n{WITH_HELPER}"},
        {"early": f"TEN: tl.constexpr = tl.constexpr(5 + 5)\n{HELPER}", "p2-kernel": WITH_HELPER},
        {"early": HELPER, "p2-kernel": WITH_HELPER, "late": "TEN: tl.constexpr = tl.constexpr(10)"},
        {"p2-kernel": f"%%time\nimport triton as tr\nTEN = tr.language.constexpr(10)\n{HELPER}{WITH_HELPER}"},
        {"early": MATH, "p2-kernel": WITH_HELPER},
        {"p2-kernel": TUNED.replace("=w", "=4")},
        {"early": f"from typing import NamedTuple\n{PLACE}", "p2-kernel": IN_A_TUPLE},
        {
            "early": "if True:\n" + indent(f"TEN = tl.constexpr(10 if 3 > 2 else 9)\n{HELPER}", "    "),
            "p2-kernel": "if 1 + 1 == 2:\n" + indent(WITH_HELPER, "    "),
        },
    ],
    ids=[
        "one cell",
        "earlier cell",
        "later cell",
        "magic and imports",
        "functions of math",
        "autotune",
        "named tuple",
        "under an if",
    ],
)
def test_helpers_and_constants_are_found(cells: dict[str, str], in_a_fork: None) -> None:
    assert grade(job_of({"01_blocks.ipynb": notebook(cells)}))["points"] == 2


@pytest.mark.parametrize(
    "line, says",
    [
        (
            "if torch.cuda.is_available():",
            "under `if torch.cuda.is_available()`, which the grader cannot evaluate: write it at",
        ),
        ("for _ in range(1):", "under `for`, which grading does not run: write it at the top level"),
    ],
)
def test_what_a_branch_hides_is_told(line: str, says: str, in_a_fork: None) -> None:
    hidden = f"{line}\n    TEN = tl.constexpr(10)\n{HELPER}"
    found = grade(job_of({"01_blocks.ipynb": notebook({"early": hidden, "p2-kernel": WITH_HELPER})}))
    assert found["points"] == 1 and says in all_said(found), all_said(found)
    assert "cell early: TEN is not accepted" in all_said(found)
    whole = f"{line}\n{indent(TWO, '    ')}"
    found = grade(job_of({"01_blocks.ipynb": notebook({"p2-kernel": whole})}))
    assert found["points"] == 1 and says in all_said(found), all_said(found)


def test_the_line_of_a_verdict_is_that_of_the_cell(in_a_fork: None) -> None:
    two = "# mine\n\nHALF = 5\n\n" + TWO.replace("mask = offs < N", "mask = offs < N + 1")
    found = grade(job_of({"01_blocks.ipynb": notebook({"p2-kernel": two})}))
    site = found["puzzles"][1]["report"]["cases"][1]["verdict"]["site"]
    assert two.splitlines()[site["line"] - 1].strip() == site["source"]


def test_autotune_takes_plain_values_alone() -> None:
    assert kernel_in(notebook({"p2-kernel": TUNED})).problem == "refused"  # w is nothing
    assert kernel_in(notebook({"p2-kernel": "w = 4\n" + TUNED})).kernel


@pytest.mark.parametrize(
    "text",
    [
        PLACE.replace("(NamedTuple)", "(tuple)"),
        PLACE.replace("(NamedTuple)", "(NamedTuple, metaclass=M)"),
        PLACE.replace("open('x', 'w')", "int = 1"),
        PLACE + "    def __repr__(self): return ''\n",
        PLACE.replace("offs:", "_offs:"),
        f"@f\n{PLACE}",
        f"NamedTuple = f\n{PLACE}",
    ],
)
def test_a_class_that_could_run_python_is_not_taken(text: str) -> None:
    source = f"from typing import NamedTuple\n{text}"
    assert plain.definitions(source, plain.parse(source), Known())[-1].kind == "other"


def test_right_kernels_are_taken_however_they_are_written() -> None:
    for path in sorted((ROOT / "tests/kernels").glob("ch*.py")):
        module = importlib.import_module(f"tests.kernels.{path.stem}")
        source = path.read_text("utf-8")
        every = plain.definitions(source, ast.parse(source), Known())
        known = {one.name: one for one in every if one.kind == "function"}
        assert module.RIGHT
        for _, kernel in module.RIGHT:
            function = unwrap(kernel).kernel
            source = "".join(function.raw_src)  # where it is an edit of a solution
            found = known.get(function.__name__) or plain.definitions(source, ast.parse(source), Known())[0]
            assert found.complaint is None


@pytest.mark.parametrize(
    "text, value",
    [
        ("-(2**31) // 7", -(2**31) // 7),
        ("{1, 2}", {1, 2}),
        ("(1, (2.5, 'a'), None)", (1, (2.5, "a"), None)),
        ("float('-inf')", float("-inf")),
        ("max(abs(-3), len((1, 2)))", 3),
        ("True", True),
        ("1 < 2 <= 2 != 3", True),
        ("2 in (1, 2) and 'b' not in 'abc'", False),
        ("0 or 5", 5),
        ("64 if 2 > 1 else 32", 64),
        ("(1, (2, 3))[1][-1]", 3),
        ("{'a': 4}['a']", 4),
        ("None is None", True),
        ("(0, 1) * 2 + (5,)", (0, 1, 0, 1, 5)),
        ("3 * [1]", [1, 1, 1]),
    ],
)
def test_plain_values(text: str, value: object) -> None:
    read = plain.value(plain.parse(text).body[0].value, Known())
    assert read == value
    assert plain.value(plain.parse(plain.written(read)).body[0].value, Known()) == value


def test_a_value_is_written_no_further_than_it_may_be_long() -> None:
    class Counted:
        times = 0

        def __repr__(self) -> str:
            Counted.times += 1
            return "1234567890"

    assert plain.written([Counted()] * 3, 36) == "[1234567890, 1234567890, 1234567890]"
    for found in ([Counted()] * 1000, ((Counted(), Counted()),) * 500, {1: (Counted(),) * 1000}):
        Counted.times = 0
        with pytest.raises(NotPlain, match="^the value is too large$"):
            plain.written(found, 35)
        assert 2 <= Counted.times <= 3


@pytest.mark.parametrize(
    "source, bound",
    [
        ("a, b = 2, 3", {"a": "a = 2", "b": "b = 3"}),
        ("a = b = 4", {"a": "a = 4", "b": "b = 4"}),
        ("a, b = 2, 3\na, b = b, a + 1", {"a": "a = 3", "b": "b = 3"}),
        ("a, b = 2, f()", {"a": "a = 2", "b": ""}),
        ("a, *b = 2, 3", {"a": "", "b": ""}),
        ("a, b = 2, 3, 4", {"a": "", "b": ""}),
        ("a, b = c = 2, 3", {"a": "", "b": "", "c": ""}),
        ("a: int = 5", {"a": "a: int = 5"}),
        ("a: int = 5\na += 1", {"a": "a = 6"}),
        ("a = 5\na += f()", {"a": ""}),
        ("a += 1", {"a": ""}),
        ("if True:\n    a = 1\nelse:\n    a = 2", {"a": "a = 1"}),
        ("b = 8\nif b > 4 and not b == 9:\n    a = 1\nelif True:\n    c = 2", {"a": "a = 1", "b": "b = 8"}),
        ("if __name__ == '__main__':\n    a = 1", {"a": "a = 1"}),
        ("a = 1\nif f():\n    a = 2", {"a": ""}),
        ("for a in (1, 2):\n    b = 1", {"a": "", "b": ""}),
    ],
)
def test_constants_are_computed_before_any_is_bound(source: str, bound: dict[str, str]) -> None:
    known = Known()
    found = plain.definitions(source, plain.parse(source), known)
    assert {one.name: one.text for one in found} == bound
    assert set(known.values) == {name for name, text in bound.items() if text}


@pytest.mark.parametrize(
    "text, value",
    [
        ("math.log2(math.e)", math.log2(math.e)),
        ("1 / math.sqrt(64)", 0.125),
        ("-np.inf", -math.inf),
        ("-torch.inf", -math.inf),
        ("triton.cdiv(100, 7) + triton.next_power_of_2(100)", 143),
        ("round(1250, -2)", 1200),
        ("torch.finfo(torch.float32).max", torch.finfo(torch.float32).max),
        ("-torch.finfo(torch.bfloat16).eps / 2", -(2.0**-8)),
        ("np.finfo(np.float16).min", -65504.0),
        ("torch.iinfo(torch.int8).min + np.iinfo(np.int32).bits", -96),
    ],
)
def test_plain_values_of_modules(text: str, value: object) -> None:
    known = Known()
    source = "import math, torch\nimport numpy as np"
    plain.definitions(source, plain.parse(source), known)
    assert plain.value(plain.parse(text).body[0].value, known) == value
    spoilt = "math = np = torch = f()"  # names that a cell gives to something else
    plain.definitions(spoilt, plain.parse(spoilt), known)
    if not text.startswith(("triton", "round")):
        with pytest.raises(NotPlain):
            plain.value(plain.parse(text).body[0].value, known)


@pytest.mark.parametrize(
    "text",
    ["x", "f()", "math.factorial(3)", "np.array(1)", "torch.ones", "math.pow(2.0, 1e9)", "math.log(0)",
     "triton.next_power_of_2(1.5)", "triton.cdiv(1, 0)", "round(1, -10**9)", "math.log2(x=1)",  "9**9**9",
     "1 << 10**6", "'a' * 10**9", "[0] * 10**9", "(1,) + [1]", "(1,) * 1.5",
     "(lambda: 1)()", "print", "1j", "b'a'",
     "torch.finfo(torch.int8).max", "torch.finfo(torch.float32).__class__", "torch.finfo().max",
     "torch.finfo(torch.load).max", "torch.iinfo(f()).max", "f().max", "(1, 2)[2]", "(1, 2)[:1]", "{1: 2}[3]",
     "1 < 'a'", "f() if True else 1", "1 and f()",
     "f'{1}'", "[x for x in (1,)]", "().__class__", "int('1' * 10**5)", "__import__('os')", "-" * 3000 + "1"],
)  # fmt: skip
def test_what_is_no_plain_value(text: str) -> None:
    known = Known()
    source = "import math, torch\nimport numpy as np"
    plain.definitions(source, plain.parse(source), known)
    with pytest.raises(NotPlain):
        plain.value(plain.parse(text).body[0].value, known)


def test_nothing_of_a_cell_is_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while it is read: whatever a cell does would have to go through one of these."""
    touched: list[str] = []
    sys.addaudithook(lambda event, _: touched.append(event) if watching else None)
    watching = True
    for one in (notebook({}, f"{name} = __import__('os').system('x')") for name in ("a", "tl", "triton")):
        by_chapter({"01_blocks.ipynb": one}, CHAPTERS[:2])[0]["01"].kernel_of(MASKED_ADD)
    watching = False
    assert "compile" in touched  # which is parsing, as the hook sees it
    assert not {"exec", "import", "os.system", "subprocess.Popen"} & set(touched)


# ---- answers


def test_answers_are_judged_and_give_no_points(in_a_fork: None) -> None:
    data = notebook({"q2": 'answer("ch01-q2", (12, 0))', "q1": "right = ...\nanswer('ch01-q1', right)"})
    found = grade(job_of({"01_blocks.ipynb": data}))
    assert [answer["status"] for answer in found["answers"]] == ["open", "wrong"]
    assert (found["points"], found["of"]) == (2, 3)


# ---- who handed in what


def students(folder: Path, **files: bytes) -> dict[str, list[str]]:
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return {one.student: sorted(one.read()[0]) for one in collect([folder])[0]}


@pytest.mark.parametrize(
    "files, found",
    [
        (["ada/01_blocks.ipynb", "bob/week/02_broadcasting.ipynb"], {"ada", "bob"}),
        (["01_blocks.ipynb", "02_broadcasting.ipynb"], {"class"}),
        (["ada_01_blocks.ipynb", "ada_02_broadcasting.ipynb", "bob-01_blocks (1).ipynb"], {"ada", "bob"}),
        (["Ada L_12_assignsubmission_file_/01_blocks.ipynb", "Bob_13_assignsubmission_file_x.ipynb"],
         {"Ada L_12", "Bob_13"}),
        (["lovelaceada_77_1001_01_blocks.ipynb", "lovelaceada_LATE_77_1002_02_broadcasting.ipynb"],
         {"lovelaceada_77"}),
        (["HW 1_ada_l_attempt_2026-01-31-10-00-00.txt",
          "HW 1_ada_l_attempt_2026-01-31-10-00-00_01_blocks.ipynb",
          "HW 1_bob_l_attempt_2026-01-30-09-00-00_01_blocks.ipynb"], {"ada_l", "bob_l"}),
        (["HW_1_ada_attempt_2026-01-31-10-00-00_blocks.ipynb"], {"ada"}),
        (["12-67 - Ada L - Jan 31, 2026 1000 AM/01_blocks.ipynb",
          "13-67 - Bob - 1 February, 2026 2359/x.ipynb",
          "index.html"], {"Ada L", "Bob"}),
        (["123456-67890 - Ada L - Jan 31 2026 1000 AM - 01_blocks.ipynb", "index.html"], {"Ada L"}),
        (["ada.ipynb", "bob.ipynb"], {"ada", "bob"}),
        (["01_blocks_ada.ipynb", "01_blocks-Bob.ipynb", "02_broadcasting_ada.ipynb"], {"ada", "Bob"}),
        (["01_blocks_ada.ipynb", "01_blocks-cyd (1).ipynb", "bob_01_blocks.ipynb"], {"ada", "bob", "cyd"}),
        (["01_blocks.ipynb", "01_blocks-Copy1.ipynb", "02_broadcasting_mine.ipynb"], {"class"}),
        (["ada/01_blocks.ipynb", "01_blocks_bob.ipynb"], {"ada", "bob"}),
        (["ada_01_blocks.ipynb", "ada-progress.json", "bob.ipynb"], {"ada", "bob"}),
        (["ada/.ipynb_checkpoints/1.ipynb", "ada/01_blocks.ipynb", "ada/notes.pdf", ".x/a.ipynb"], {"ada"}),
    ],
    ids=["folders", "one student", "names first", "Moodle", "Canvas", "Blackboard", "Blackboard, one student",
         "Brightspace", "Brightspace, files", "bare names", "names last",
         "names first and last", "copies", "folder and file", "progress", "rubbish"],
)  # fmt: skip
def test_students_are_named(files: list[str], found: set[str], tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    named = students(tmp_path / "class", **dict.fromkeys(files, b"{}"))
    assert set(named) == found
    assert sum(map(len, named.values())) == sum(
        name.endswith("ipynb") and "/." not in f"/{name}" for name in files
    )
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        for name in files:
            archive.writestr(f"export/{name}" if len(found) > 1 and "/" in files[0] else name, b"{}")
    assert {one.student for one in collect([tmp_path / "class.zip"])[0]} == found


@pytest.mark.parametrize(
    "names",
    [
        [f"HW_ada_attempt_2026-01-{day:02}-10-00-00_01_blocks.ipynb" for day in (31, 9)],
        [f"12-67 - Ada - {date}/01_blocks.ipynb" for date in ("Oct 9, 2026 1000 AM", "Sep 30, 2026 1000 AM")],
        [
            f"12-67 - Ada - {date}/01_blocks.ipynb"
            for date in ("9 October, 2026 0959", "9 October, 2026 0958")
        ],
    ],
    ids=["Blackboard", "Brightspace", "Brightspace, by 24 hours"],
)
def test_of_a_file_that_is_handed_in_again_the_last_counts(names: list[str], tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    files = dict(zip(names, (b"new", b"old"), strict=True))
    files[names[1].replace("01_blocks", "02_broadcasting")] = b"of another chapter"
    students(tmp_path / "class", **files)
    (ada,), remarks = collect([tmp_path / "class"])
    found, _ = ada.read()
    assert found == {"01_blocks.ipynb": b"new", "02_broadcasting.ipynb": b"of another chapter"}
    assert remarks == [f"{names[1]}: not read, because a newer version was handed in"]


@pytest.mark.parametrize(
    "name", ["../../x", "=HYPERLINK(1)", "<b>", "\u202eada", "a" * 300, "Ünal Ö", ".", "A"]
)
def test_a_students_name_is_a_folder_of_its_own_and_no_formula(name: str) -> None:
    assert re.fullmatch(r"[\w-][\w.-]{0,80}", folder_name(name), re.ASCII)
    assert folder_name(name) != folder_name(name + " ")
    empty = {"student": name, "points": 0, "of": 0, "puzzles": [], "answers": [], "remarks": [name]}
    table = gradebook([empty])
    assert not table.splitlines()[1].startswith(("=", "+", "-", "@"))
    assert "<b>" not in page("x", report(empty))


def test_a_folder_keeps_the_letters_of_a_name() -> None:
    assert folder_name("Ünal Ö").startswith("Unal_O-") and folder_name("王").startswith("student-")


def test_no_name_is_anothers_folder() -> None:
    """A plain name is its own folder; one that is written like another's folder is not that folder."""
    assert folder_name("ada") == "ada" and folder_name("zoë").startswith("zoe-")
    assert folder_name(folder_name("zoë")) != folder_name("zoë")


@pytest.mark.parametrize(
    "data, words", [(b" \n", "an empty file"), (of_cells([]), "a notebook without a cell")]
)
def test_a_file_with_nothing_in_it_is_told_so(data: bytes, words: str) -> None:
    assert by_chapter({"01_blocks.ipynb": data}, CHAPTERS) == ({}, [f"01_blocks.ipynb: {words}"])


BROKEN = {
    "cut in half": notebook()[: len(notebook()) // 2],
    "empty": b"",
    "binary": b"PK\x03\x04\xff\xfe\x00",
    "another JSON": b'{"name": "ada"}',
    "without a cell": of_cells([]),
    "an old format": b'{"worksheets": []}',
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN.keys())
@pytest.mark.parametrize("label", ["01_blocks_ada.ipynb", "homework.ipynb"])
def test_a_file_that_cannot_be_read_is_no_zero(label: str, data: bytes, in_a_fork: None) -> None:
    found = grade(job_of({label: data}))
    assert is_unread(found) and {mark["state"] for mark in found["puzzles"]} == {"unread"}
    assert all(mark["words"].startswith(f"{label}: ") for mark in found["puzzles"])
    assert "Not graded:" in report(found) and "not handed in" not in report(found).partition("Reading")[0]
    assert summary(found)["points"] is None and gradebook([found]).splitlines()[1].startswith("Ada,,3,,,,")


def test_an_unreadable_file_beside_a_readable_one_changes_nothing(in_a_fork: None) -> None:
    files = {"01_blocks.ipynb": notebook(), "02_broadcasting.ipynb": b"{", "notes.ipynb": b"{"}
    found = grade(job_of(files))
    assert not is_unread(found) and found["points"] == 2
    assert grade(job_of({"02_broadcasting.ipynb": b"{"}))["puzzles"][0]["state"] == "missing"


def test_an_archive_that_cannot_be_read_is_no_zero(tmp_path: Path, in_a_fork: None) -> None:
    (tmp_path / "ada").mkdir()
    (tmp_path / "ada/homework.zip").write_bytes(b"PK\x03\x04 cut")
    (submission,), _ = collect([tmp_path])
    files, remarks = submission.read()
    assert list(submission.unread) == ["homework.zip"]
    assert is_unread(grade(job_of(files, tuple(remarks), unread=submission.unread)))


def test_a_report_shows_what_there_is_to_do_and_folds_what_is_solved(in_a_fork: None) -> None:
    wrong = {"p2-kernel": WRONG_TWO, "q1": 'answer("ch01-q1", {1})\n'}
    shown = report(grade(job_of({"01_blocks.ipynb": notebook(wrong)}, chapters=("01", "20"))))
    assert "<details><summary>1 constant_add: solved</summary>" in shown
    assert "FAIL" in shown.partition("Chapter 01: 1 of 3")[2].rpartition("</details>")[2]
    assert "not handed in: 45 bias_relu, 56 cells" in shown and shown.count("no notebook of chapter 20") == 1
    # of the answers, those that are neither right nor open
    assert "<td>not quite</td>" in shown and "ch20-q" not in shown


def test_the_class_page_has_tries_where_students_hand_in_their_progress(tmp_path: Path) -> None:
    tried = {"ada": 1, "bob": 4, "cyd": 7}
    for name, tries in tried.items():
        (tmp_path / name).mkdir()
        entry = {"state": "solved", "tries": tries}
        text = json.dumps({"schema": SCHEMA, "puzzles": {"masked_add": entry, "<b>": entry}})
        (tmp_path / name / "my progress.json").write_text(text)
    (tmp_path / "cyd" / "my progress.json").unlink()
    with zipfile.ZipFile(tmp_path / "cyd" / "all.zip", "w") as archive:
        archive.writestr("course/progress.json", text)
    for name, wrong in {"dan": "[" * 100_000, "eve": text.replace("7", "-7"), "fay": text[:-1]}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "progress.json").write_text(wrong)
    submissions, remarks = collect([tmp_path])
    for one in submissions:
        assert one.read() == ({}, ["no notebook"])
    progress = handed_in_progress(submissions)
    assert {name: kept["masked_add"].tries for name, kept in progress.items()} == tried
    mark = {"puzzle": "masked_add", "number": "2", "chapter": "01", "state": "solved", "kind": ""}
    grade = {"student": "ada", "points": 1, "of": 1, "remarks": [], "answers": []}
    shown = overview([grade | {"puzzles": [mark | {"remarks": []}]}], remarks, True, progress)
    assert '<td class="number">4</td>' in shown and "3 students" in shown and "<b>" not in shown


def test_an_empty_folder_is_a_student_with_nothing(tmp_path: Path) -> None:
    (tmp_path / "ada").mkdir()
    (tmp_path / "bob" / "notes").mkdir(parents=True)
    (tmp_path / "cyd.ipynb").write_bytes(b"{}")
    found = {one.student: one.read() for one in collect([tmp_path])[0]}
    assert found["ada"] == found["bob"] == ({}, ["no notebook"]) and set(found) == {"ada", "bob", "cyd"}


def test_a_name_that_looks_like_anothers_is_not_anothers(tmp_path: Path) -> None:
    named = students(
        tmp_path, **dict.fromkeys(("ada/1.ipynb", "ad\u200ba/1.ipynb", "\u202eada/1.ipynb"), b"{}")
    )
    assert len(named) == 3 and "ada" in named and all(name.isprintable() for name in named)


def test_cells_that_have_lost_their_ids_are_one_remark() -> None:
    """As Colab saves a notebook, and editors of before nbformat 4.5."""
    course = json.loads((ROOT / "solutions" / "08_quantized_matmul.ipynb").read_text("utf-8"))
    (chapter,) = (chapter for chapter in CHAPTERS if chapter.number == "08")
    for number, cell in enumerate(course["cells"]):
        cell["metadata"] = {"id": f"aB3_{number}"}
        cell["source"] = "".join(cell["source"])
        del cell["id"]
    notebooks, remarks = by_chapter({"Copy.ipynb": json.dumps(course).encode()}, CHAPTERS)
    assert remarks == [
        "Copy.ipynb: no cell has an id (Colab saves notebooks like this), so kernels are found by their names"
    ]
    found = [notebooks["08"].kernel_of(puzzle) for puzzle in chapter.puzzles]
    assert len(found) == 4 and all(one.kernel and not one.remarks for one in found)


def test_two_notebooks_of_a_chapter(in_a_fork: None) -> None:
    files = {"01_blocks-Copy1.ipynb": notebook({"p1-kernel": None}), "01_blocks.ipynb": notebook()}
    found = grade(job_of(files))
    assert found["points"] == 2 and "this is a second notebook of chapter 01" in all_said(found)


def test_a_notebook_with_its_own_name_is_compared_with_no_other_chapter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def traces(self: Notebook, chapter: Any) -> int:
        asked.append(chapter.number)
        return 1

    monkeypatch.setattr(Notebook, "traces", traces)
    files = {"ann/05_flash_attention.ipynb": (ROOT / "notebooks/05_flash_attention.ipynb").read_bytes()}
    assert list(by_chapter(files, CHAPTERS)[0]) == ["05"] and asked == ["05"]
