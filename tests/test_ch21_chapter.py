"""Chapter 21: the library's bugs are found and named, the mended kernels pass, and its questions."""

import functools
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import nbformat
import pytest
import torch
import triton
from torch.nn import functional as F

from puzzles_lib import Guard, answer, audit, audited
from puzzles_lib.auditor.report import Finding
from puzzles_lib.authoring.solutions import without_markers
from puzzles_lib.chapters import questions
from puzzles_lib.chapters.ch21_your_own_kernel import draft, library, suite
from puzzles_lib.chapters.ch21_your_own_kernel.questions import LENGTHS, PAGE, SLICED, WHOLE, D
from puzzles_lib.checker.report import Verdict
from puzzles_lib.source import define
from tests.conftest import REPO

MASTER = nbformat.read(REPO / "solutions" / "21_your_own_kernel.ipynb", as_version=4)
CELLS = {cell.id: cell.source for cell in MASTER.cells}
NO_SIZES = Guard(sizes=False)
HEAD = "import torch\nimport triton\nimport triton.language as tl\n\n\n"
DEFINE = (
    "norm",
    "copy-wrapper",
    "copy-mend",
    "like",
    "loss",
    "norm-refuses",
    "vary-mend",
    "order-mend",
    "own",
)  # cells

DRAW = torch.Generator().manual_seed(0)
ROWS = torch.randn(5, 100, generator=DRAW)
LABELS = torch.tensor([3, 0, 99, 50, 7])
PAGES, TABLE = torch.randn(6, 8, 40, generator=DRAW), torch.tensor([4, 1, 5], dtype=torch.int32)


def norm_like(x, residual, w, eps=1e-6):
    residual += x
    x.copy_(F.rms_norm(residual, w.shape, w, eps))


def entropy_like(logits, labels):
    return F.cross_entropy(logits, labels, reduction="none")


def place_like(x):
    return x.argmax(1)


def copy_like(pages, table, T):
    return pages[table].flatten(0, 1)[:T]


CALLS = {
    "add_rms_norm": ((ROWS[:4].clone(), ROWS[1:5].clone(), torch.ones(100)), norm_like),
    "paged_copy": ((PAGES, TABLE, 19), copy_like),
    "cross_entropy": ((ROWS, LABELS), entropy_like),
    "argmax": ((ROWS,), place_like),
}


def definitions(cell: str) -> str:
    """Return what a master's cell defines, without the lines that use it."""
    blocks = without_markers(CELLS[cell]).split("\n\n\n")
    return "\n\n\n".join(block for block in blocks if re.match(r"(@triton\.jit\n)?def ", block))


@pytest.fixture(scope="module")
def mine(tmp_path_factory) -> ModuleType:
    """What the reader has defined at the end of the chapter."""
    path = tmp_path_factory.mktemp("mine") / "solved_chapter_21.py"
    path.write_text(HEAD + "\n\n\n".join(map(definitions, DEFINE)) + "\n")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where Triton looks for the source
    spec.loader.exec_module(module)
    yield module
    del sys.modules[path.stem]


# ---- the library


@pytest.mark.parametrize("name", CALLS)
def test_on_ordinary_inputs_nothing_is_wrong(name):
    args, like = CALLS[name]
    report = audit(getattr(library, name), *args, like=like, guard=NO_SIZES)
    assert report.ok and report.compared and not report.unjudged, str(report)


def found(report) -> dict[str, str]:
    """The inputs that fail, and what their findings say."""
    return {finding.on: f"{finding.verdict.kind}: {finding.verdict.message}" for finding in report.findings}


def test_the_norms_offset_is_found_at_true_size():
    (finding,) = audit(library.add_rms_norm, *CALLS["add_rms_norm"][0]).findings
    assert finding.verdict.kind == "true size" and "does not fit int32" in finding.verdict.message
    assert "row * N" in finding.verdict.site.source


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("cross_entropy", {"logits: padded rows": "out of bounds: .*load of logits_ptr.* between its"}),
        ("argmax", {"x.shape[1] = 1": "values: ", "x: values near -1000": "values: "}),
    ],
)  # fmt: skip
def test_hard_inputs_name_the_cause(name, wanted):
    args, like = CALLS[name]
    said = found(audit(getattr(library, name), *args, like=like, hard=True, guard=NO_SIZES))
    assert list(said) == list(wanted)
    assert all(re.match(wanted[on], said[on]) for on in said), said


def test_hard_inputs_change_the_layout_of_what_a_kernel_overwrites():
    """As the notebook says of the norm, which takes it for granted that its tensors are contiguous."""
    args, _ = CALLS["add_rms_norm"]
    said = found(audit(library.add_rms_norm, *args, hard=True, guard=NO_SIZES))
    assert list(said) == ["x: padded rows", "residual: padded rows"]
    assert "also for tensors that a kernel overwrites" in CELLS["suite-table"]
    guard = Guard(sizes=False, contiguous=("x", "residual"))
    assert audit(library.add_rms_norm, *args, hard=True, guard=guard).ok


def test_the_norm_of_the_chapters_end_refuses_them(mine):
    args, _ = CALLS["add_rms_norm"]
    report = audit(mine.add_rms_norm, *args, hard=True, guard=NO_SIZES)
    refused = [each for each in report.unjudged if "padded rows: the function raises AssertionError" in each]
    assert report.ok and len(refused) == 2, str(report)


@pytest.mark.parametrize("copies", [False, True])
def test_in_place_a_copy_or_an_early_return_is_no_refusal(copies):
    def unchanged(x, residual, w):
        if x.is_contiguous() and residual.is_contiguous():
            library.add_rms_norm(x, residual, w)
        elif copies:
            library.add_rms_norm(x.contiguous(), residual.contiguous(), w)

    args, like = CALLS["add_rms_norm"]
    (finding,) = audit(unchanged, *args, like=like, hard=True, guard=NO_SIZES).findings
    assert finding.on == "x: padded rows" and finding.verdict.kind == "values"
    told = "the call hasn't changed it: does the function work on a copy, or return too early?"
    assert told in finding.verdict.diagnosis


def wrong_strides(passed):
    """Return a cross-entropy whose launch passes these numbers for its stride and for V."""
    source = (
        library.cross_entropy_kernel.src.replace("label_ptr, V", "label_ptr, stride, V")
        .replace("row * V", "row * stride")
    )  # fmt: skip
    kernel = define("@triton.jit\n" + source, "<a cross-entropy with a stride>")

    def cross_entropy(logits, labels):
        loss = logits.new_empty(len(labels))
        numbers = {"V": logits.shape[1], "stride": logits.stride(0)}
        assert logits.stride(1) == 1
        kernel[(len(labels),)](loss, logits, labels, *(numbers[name] for name in passed), BLOCK=32)
        return loss

    return cross_entropy


@pytest.mark.parametrize(
    "passed, told",
    [
        (("V", "V"), "follow each other without a gap? No argument of the launch is 116"),
        (("V", "stride"), "V is 116 in this launch. Does the kernel multiply the row by V?"),
    ],
)
def test_a_stride_that_is_not_passed_is_not_the_kernels_fault(passed, told):
    args, like = CALLS["cross_entropy"]
    assert audit(wrong_strides(("stride", "V")), *args, like=like, hard=True, guard=NO_SIZES).ok
    finding, *_ = audit(wrong_strides(passed), *args, like=like, hard=True, guard=NO_SIZES).findings
    assert told in finding.verdict.diagnosis


LAUNCHES = {
    "axes 0 and 1 of the grid": ((4, 2), "out pages table T D PAGE BLOCK"),
    "out_ptr and pages_ptr": ((2, 4), "pages out table T D PAGE BLOCK"),
    "pages_ptr and table_ptr": ((2, 4), "out table pages T D PAGE BLOCK"),
    "T and D": ((2, 4), "out pages table D T PAGE BLOCK"),
    "PAGE and BLOCK_D": ((2, 4), "out pages table T D BLOCK PAGE"),
}


@pytest.mark.parametrize("swapped", LAUNCHES)
def test_a_wrong_launch_is_not_blamed_on_the_mask(swapped):
    """Swapped arguments, or swapped axes of the grid: the kernel is all right with these 16 tokens."""
    pages, (grid, order) = torch.randn(6, PAGE, D), LAUNCHES[swapped]

    def launched(pages, table, T):
        out = pages.new_empty(T, D)
        given = {"out": out, "pages": pages, "table": table, "T": T, "D": D, "PAGE": PAGE, "BLOCK": 32}
        draft.copy_kernel[grid](*(given[name] for name in order.split()))
        return out

    (first, *_) = audit(launched, pages, TABLE, 16, guard=NO_SIZES).findings
    told = "may be swapped, in the launch or in the kernel: with them exchanged, nothing is out of bounds"
    assert first.verdict.diagnosis.startswith(f"{swapped} {told}")


def test_a_mask_is_no_exchange_of_a_number_without_a_name():
    """The launch passes a block's size for a page's, and the kernel is wrong, too. No exchange cures both."""

    def launched(pages, table, T):
        out = pages.new_empty(T, D)
        draft.copy_kernel[(3, 4)](out, pages, table, T, D, PAGE=32, BLOCK_D=PAGE)
        return out

    (first, *_) = audit(launched, torch.randn(6, PAGE, D), TABLE, 17, guard=NO_SIZES).findings
    assert "exchange" not in first.verdict.diagnosis


@pytest.mark.parametrize("row", [0, 1])
def test_a_value_that_the_reference_cannot_take_is_not_passed_over(row):
    """A label of -100 raises in this reference; the kernel reads out of bounds, or the row before."""

    def gathered(logits, labels):
        return logits.logsumexp(1) - logits.gather(1, labels[:, None]).squeeze(1)

    labels = LABELS.clone()
    labels[row] = -100
    call = library.cross_entropy, ROWS, LABELS
    report = audit(*call, like=gathered, vary={"labels": [labels]}, guard=NO_SIZES)
    if row == 0:
        (finding,) = report.findings
        assert finding.verdict.kind == "out of bounds" and finding.on == "value 1 of 1 for labels"
    else:
        (text,) = report.unjudged
        assert "values: not compared, because the reference raises RuntimeError: index -100" in text
        assert report.headline().endswith("and 0 of 1 other input, the rest not judged")


@pytest.mark.parametrize("name", ["cross_entropy", "argmax"])
def test_columns_that_are_no_neighbors_are_refused(name):
    args, _ = CALLS[name]
    with pytest.raises(AssertionError, match="columns must be neighbors"):
        getattr(library, name)(args[0].T, *args[1:])


def test_the_draft_works_if_each_page_is_full_and_only_then():
    for T in (16, 24):
        assert audit(draft.copied, PAGES, TABLE, T, like=copy_like, guard=NO_SIZES).ok
    (finding,) = audit(draft.copied, PAGES, TABLE, 19, guard=NO_SIZES).findings
    assert finding.verdict.message.startswith("out-of-bounds store of out_ptr in program (2, 0)")


def test_the_notebooks_draft_is_the_one_that_the_question_runs():
    assert CELLS["copy-kernel"].removeprefix("@triton.jit\n") == draft.copy_kernel.src.rstrip("\n")


@pytest.mark.parametrize("cell, kernel", [("norm", "add_rms_norm"), ("order-mend", "argmax")])
def test_the_notebook_hands_out_the_librarys_kernel(cell, kernel):
    source = re.sub(r" *### BEGIN.*?### END SOLUTION\n", "", CELLS[cell], flags=re.DOTALL)
    assert getattr(library, f"{kernel}_kernel").src.strip() in source


# ---- what the reader makes of it


@pytest.mark.parametrize("name", CALLS)
def test_the_mended_functions_pass_with_hard_inputs(name, mine):
    args, like = CALLS[name]
    contiguous = ("x", "residual") if name == "add_rms_norm" else ()  # as its docstring says
    guard = Guard(sizes=name not in ("cross_entropy", "paged_copy"), contiguous=contiguous)
    hard = name != "paged_copy"  # which takes pages without gaps
    report = audit(getattr(mine, name), *args, like=like, hard=hard, guard=guard)
    assert report.ok and report.compared, str(report)


@pytest.mark.parametrize("T", [1, 8, 17, 19, 24])
def test_the_mended_copy(T, mine):
    report = audit(mine.paged_copy, PAGES, TABLE, T, like=copy_like, guard=NO_SIZES)
    assert report.ok and not report.unjudged, str(report)


def test_the_mended_functions_are_right_where_floats_are_odd(mine):
    inf = float("inf")
    odd = [[-0.0, 0.0], [-inf, -inf], [inf, 1.0], [-1.0, -1.0], [float("nan"), 5.0], [-1e-42, -2e-42]]
    odd = torch.tensor(odd)
    with audited():
        assert torch.equal(mine.argmax(odd), odd.argmax(1))
        logits = torch.full((2, 100), -inf)  # of the first row, the first block is all -inf
        logits[0, 70], logits[1] = 1.0, ROWS[0]
        labels = torch.tensor([70, 4])
        torch.testing.assert_close(mine.cross_entropy(logits, labels), entropy_like(logits, labels))


def test_the_chapters_reference_is_torchs(mine):
    torch.testing.assert_close(mine.wanted(ROWS, LABELS), entropy_like(ROWS, LABELS))


def test_the_last_cells_kernel_has_something_to_find(mine):
    report = audit(mine.mine, ROWS[:3], like=F.silu)
    assert [finding.verdict.kind for finding in report.findings] == ["true size"]


def test_swapped_axes_and_a_grid_that_is_too_small_do_not_pass():
    """The commonest mistakes in the reader's first launch: the sizes of the notebook must show them."""
    pages = torch.randn(6, PAGE, D)
    assert "audit(paged_copy, pages, table, 16," in CELLS["copy-wrapper"]
    for T in (16, *LENGTHS):
        blocks = triton.cdiv(T, PAGE), triton.cdiv(D, 32)
        assert blocks[0] != blocks[1]
        for grid, kind in ((blocks[::-1], "out of bounds"), ((blocks[0], D // 32), "never written")):

            def launched(pages, table, T, grid=grid):
                out = pages.new_empty(T, D)
                library.paged_copy_kernel[grid](out, pages, table, T, D, PAGE=PAGE, BLOCK_D=32)
                return out

            report = audit(launched, pages, TABLE, T, guard=NO_SIZES)
            assert not report.ok and {finding.verdict.kind for finding in report.findings} <= {
                kind,
                "never written",
            }, str(report)


# ---- the suite


def shown(cell: str) -> str:
    """Return what a cell of the master shows: `tests/test_solutions.py` runs it, and finds the same again."""
    (found,) = (each for each in MASTER.cells if each.id == cell)
    return found.outputs[-1].data["text/plain"]


def outcomes(text: str) -> list[str]:
    return re.findall(r"^(pass|FAIL)  test_", text, re.MULTILINE)


def test_pytest_says_what_the_notebook_shows():
    assert CELLS["suite-library"] == "suite.run(suite.TESTS + suite.HARDER)"
    text = shown("suite-library")
    assert outcomes(text) == ["pass"] * 5 + ["FAIL"] * 2
    assert outcomes(text).count("pass") == suite.passed(suite.TESTS + suite.HARDER)
    assert "\n7 launches in 7 tests: 6 clean, 1 with a finding" in text
    assert "FAIL  test_cross_entropy_of_a_slice\n" in text and "load of logits_ptr in program 1" in text
    assert not re.search(r"/tmp|\d\.\d+ ?s\b", text), "it differs from run to run"


def test_functions_of_ones_own_take_the_librarys_place(mine):
    given = re.search(r"functions = \((.*)\nsuite.run\(", CELLS["suite-mine"], re.DOTALL)[1]
    assert len([name for name in re.findall(r"\w+", given) if hasattr(mine, name)]) == 8
    text = shown("suite-mine")
    assert outcomes(text) == ["pass"] * 7 and "\n7 launches in 7 tests: 7 clean" in text


def test_a_suite_that_cannot_be_run_is_a_sentence(monkeypatch):
    assert "pytest ran no test" in str(suite.run("import nothing_of_that_name"))
    monkeypatch.setattr(suite.importlib.util, "find_spec", lambda name: None)
    assert str(suite.run(suite.TESTS)).endswith("Run %pip install pytest, and this cell again.")


# ---- audit, as the notebook needs it


def test_a_block_without_a_launch_is_not_called_clean():
    with audited(title="paged_copy") as report:
        torch.zeros(2)
    assert report.ok and str(report) == "paged_copy: no kernel was launched"


def test_a_line_of_a_notebook_has_no_made_up_file():
    verdict = Verdict("values", "wrong values", None)
    report = audit(library.add_rms_norm, *CALLS["add_rms_norm"][0])
    site = report.findings[0].verdict.site
    finding = Finding(Verdict("true size", verdict.message, site), file="ipykernel_12/3456.py")
    assert finding.lines()[1] == f"line {site.line} of its cell: {site.source}"


def test_torchs_first_meta_operator_is_not_in_the_time_of_true_sizes():
    """It imports a second's worth of modules, in a process in which nothing has used it."""
    code = (
        "import torch; from puzzles_lib import audit\n"
        "from puzzles_lib.chapters.ch21_your_own_kernel import library\n"
        "print(audit(library.argmax, torch.ones(5, 100)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPO)
    assert done.stdout.strip() == "argmax: 1 launch clean, and 3 other inputs", done.stdout + done.stderr


# ---- questions

MINE = {id: question for id, question in questions().items() if id.startswith("ch21-")}

RIGHT = {
    "ch21-q1": 21_474_837,
    "ch21-q2": (3, 4),
    "ch21-q3": {1, 17},
    "ch21-q4": "layouts",
    "ch21-q5": (256, 200),
    "ch21-q6": 3,
    "ch21-q7": 5,
}

# What learners may think, with a word of what they must read.
MISTAKES = [
    ("ch21-q1", 22_817_027, "isn't the first"),  # as the report says
    ("ch21-q1", 2_281_702_700, "That's an offset"),
    ("ch21-q1", 42_949_673, "has a sign"),
    ("ch21-q1", 3, "pretends"),
    ("ch21-q1", 21_474_836, "just below 2^31"),
    ("ch21-q1", 100, "How many rows"),
    ("ch21-q2", (4, 3), "counts pages"),
    ("ch21-q2", (2, 4), "Round up"),
    ("ch21-q2", (3, 3), "Round up"),
    ("ch21-q2", (6, 4), "this sequence"),
    ("ch21-q2", (19, 4), "a whole page"),
    ("ch21-q2", (3,), "two axes"),
    ("ch21-q2", (4, 4), "do 19 tokens fill"),
    ("ch21-q3", set(), "check t"),
    ("ch21-q3", {1}, "Which other T"),
    ("ch21-q3", {17}, "Which other T"),
    ("ch21-q3", {1, 8, 17}, "fill all of their pages"),
    ("ch21-q3", {3}, "copies 8 tokens"),
    ("ch21-q4", "values", "about memory"),
    ("ch21-q4", "sizes", "any V works"),
    ("ch21-q4", "races", "where a row begins"),
    ("ch21-q5", (200, 256), "other way round"),
    ("ch21-q5", (200, 200), "still as far apart"),
    ("ch21-q5", (256, 256), "What's V"),
    ("ch21-q5", (128, 100), "for row 1"),
    ("ch21-q5", (1, 2, 3), "a pair"),
    ("ch21-q5", (1, 2), "2 times the stride"),
    ("ch21-q6", 0, "compares bits as integers"),
    ("ch21-q6", 2, "What do the others hold"),
    ("ch21-q6", 31, "the first one wins"),
    ("ch21-q6", 7, "whose size is larger"),
    ("ch21-q7", 4, "no bug on these inputs"),
    ("ch21-q7", 7, "still has its bugs"),
    ("ch21-q7", 6, "its own assertions"),
    ("ch21-q7", 1, "three new tests"),
]


@pytest.fixture(autouse=True)
def _no_progress(state_dir):
    """What these tests answer is nobody's progress."""


def test_every_question_is_here():
    assert set(MINE) == set(RIGHT) and [id for id in CELLS if re.fullmatch(r"q\d", id)] == [
        id.partition("-")[2] for id in MINE
    ]


@pytest.fixture(scope="module", autouse=True)
def _each_answer_is_computed_once():
    """Some audit launches of true size."""
    computed = {id: question.right for id, question in MINE.items()}
    for id, question in MINE.items():
        object.__setattr__(question, "right", functools.cache(computed[id]))
    yield
    for id, question in MINE.items():
        object.__setattr__(question, "right", computed[id])


@pytest.mark.parametrize("id", RIGHT)
def test_right(id):
    assert isinstance(MINE[id].right(), MINE[id].kind)
    assert answer(id, RIGHT[id]).ok


@pytest.mark.parametrize("id, value, words", MISTAKES)
def test_a_mistake_gets_its_nudge(id, value, words):
    given = answer(id, value)
    assert not given.ok and words in given.words, given.words


@pytest.mark.parametrize("id", ["ch21-q1", "ch21-q2", "ch21-q3", "ch21-q5"])
def test_no_nudge_holds_the_answer(id):
    right = RIGHT[id] if isinstance(RIGHT[id], set) else {str(RIGHT[id])}
    for words in [MINE[id].nudge, *(nudge.words for nudge in MINE[id].nudges)]:
        said = set(map(int, re.findall(r"-?\d+", words)))
        assert not right <= said and not any(str(each) in words for each in right if isinstance(each, str))


def test_the_questions_are_about_what_the_notebook_runs():
    assert f"torch.randn(6, {PAGE}, {D})" in CELLS["copy-wrapper"]
    assert f"for T in {LENGTHS}:" in CELLS["copy-lengths"]
    assert f"torch.randn(3, {WHOLE})[:, :{SLICED}]" in CELLS["q5-ask"]
    assert Path(library.__file__).read_text().count("@triton.jit") == 4
