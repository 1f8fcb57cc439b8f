"""Chapter 13: its questions have one right answer, its nudges keep it to themselves, its prose is true."""

import ast
import importlib.util
import re

import nbformat
import pytest
from triton.experimental.gluon.language import BlockedLayout

from puzzles_lib import WIDE_ADD, answer, check
from puzzles_lib.chapters import questions
from puzzles_lib.chapters.ch13_machine_code import kernels
from puzzles_lib.chapters.ch13_machine_code import questions as machine_code
from puzzles_lib.chapters.ch13_machine_code.questions import (
    _add,
    _matmul,
)
from puzzles_lib.compiler.layouts import read_layout
from tests.conftest import REPO

MASTER = REPO / "solutions" / "13_machine_code.ipynb"
MINE = {q.id: q for q in machine_code.QUESTIONS}

# What learners may think, with a word of what they must read.
MISTAKES = [
    ("ch13-q1", 6, "What does it ask"),
    ("ch13-q1", 5, "can share a compilation"),
    ("ch13-q1", 3, "besides 16"),
    ("ch13-q1", 2, "neither is 16"),
    ("ch13-q1", 1, "part of the code"),
    ("ch13-q1", 7, "two answers about N"),
    ("ch13-q2", {4002, 4003}, "before N, or after"),
    ("ch13-q2", set(), "never stored"),
    ("ch13-q2", {4001}, "is stored from there on"),
    ("ch13-q19", {2, 4, 8, 16}, "how wide can its load be"),
    ("ch13-q19", {2, 4, 8, 16, 32}, "how wide can its load be"),
    ("ch13-q19", {4}, "a single one"),
    ("ch13-q19", {16}, "how many does each thread get"),
    ("ch13-q19", set(), "how many does each thread get"),
    ("ch13-q3", (1, 15), "three numbers"),
    ("ch13-q3", (1, 15, 0), "held others already"),
    ("ch13-q3", (1, 14, 4), "run of the warp begin"),
    ("ch13-q3", (1, 47, 4), "lanes 0 to 31"),
    ("ch13-q3", (5, 15, 0), "There are four warps"),
    ("ch13-q3", (0, 0, 0), "Divide step by step"),
    ("ch13-q3", (None, 1, 2), "Divide step by step"),
    ("ch13-q4", 1, "count the threads"),
    ("ch13-q4", 128, "They share"),
    ("ch13-q4", 2, "how many places"),
    ("ch13-q5", {4000, 4004, 4008, 4016, 4100}, "told one thing only"),
    ("ch13-q5", {4000, 4016, 4008}, "but not alone"),
    ("ch13-q5", set(), "tt.divisibility"),
    ("ch13-q5", {4000}, "another one"),
    ("ch13-q5", {4004}, "tt.divisibility"),
    ("ch13-q6", "R3", "half of an address"),
    ("ch13-q6", "r6", "belongs to the first load"),
    ("ch13-q6", "7", "a letter in front"),
    ("ch13-q6", "R8", "correct load"),
    ("ch13-q6", "R11", "correct load"),
    ("ch13-q6", "the first", "Which of the thread's two runs"),
    ("ch13-q11", 1, "In TTGIR there is one"),
    ("ch13-q11", 4, "along M"),
    ("ch13-q11", 2, "along K"),
    ("ch13-q11", 16, "all 128 columns"),
    ("ch13-q11", 64, "m64n128k16"),
    ("ch13-q16", 2, "still allowed"),
    ("ch13-q16", 4, "How many runs"),
    ("ch13-q16", 3, "is for all threads"),
    ("ch13-q16", 1024, "the whole block"),
    ("ch13-q16", 4095, "all of x"),
    ("ch13-q16", 16, "share a predicate"),
    ("ch13-q18", "same", "one of the three"),
    ("ch13-q18", "the same", "before it compiles"),
    ("ch13-q18", "shorter", "one for all threads"),
    ("ch13-q23", (8,), "two numbers"),
    ("ch13-q23", (8, 8), "still cut a run"),
    ("ch13-q23", (2, 2), "aligned pointers"),
    ("ch13-q23", (8, 1), "one bit of the mask"),
    ("ch13-q23", (4, 2), "may they share"),
    ("ch13-q23", (1, 1), "needs an address"),
    ("ch13-q25", (2068,), "two numbers"),
    ("ch13-q25", (2053, 2565), "shl by 2"),
    ("ch13-q25", (2068, 3092), "How far apart"),
    ("ch13-q25", (20, 532), "program 0"),
    ("ch13-q25", (1044, 1556), "distance is correct"),
    ("ch13-q25", (0, 0), "doubles a number"),
    ("ch13-q12", (4,), "two numbers"),
    ("ch13-q12", (2, 4), "in front of the loop"),
    ("ch13-q12", (2, 1), "counts iterations"),
    ("ch13-q12", (6, 2), "must be ahead"),
    ("ch13-q12", (4, 4), "one other"),
    ("ch13-q12", (3, 2), "before the first dot"),
    ("ch13-q12", (3, 3), "Three iterations are under way"),
    ("ch13-q14", (64, 128), "five numbers"),
    ("ch13-q14", (64, 100, 32, 4, 5), "powers of two"),
    ("ch13-q14", (64, 128, 32, 4, 4.5), "powers of two"),
    ("ch13-q14", (1024, 1024, 64, 4, 5), "powers of two"),
    ("ch13-q14", (64, 128, 32, 4, 5), "too few"),
    ("ch13-q14", (128, 128, 32, 4, 4), "is less than 5"),
    ("ch13-q14", (128, 256, 16, 4, 5), "registers spill"),
    ("ch13-q14", (128, 128, 32, 2, 5), "without wgmma"),
    ("ch13-q14", (128, 128, 16, 8, 5), "Three programs of 256 threads need"),
    ("ch13-q14", (256, 64, 16, 4, 5), "A thread has 128 sums"),
    ("ch13-q14", (128, 128, 32, 4, 5), "three programs' shared memory"),
    ("ch13-q15", (2,), "two numbers"),
    ("ch13-q15", (1, 2), "is for 3 stages"),
    ("ch13-q15", (3, 1), "what do registers allow"),
    ("ch13-q15", (2, 2), "beside one with 7 stages"),
    ("ch13-q15", (3, 2), "Divide twice"),
    ("ch13-q22", set(), "in all four launches"),
    ("ch13-q22", {4}, "for few threads"),
    ("ch13-q22", {1}, "even for 8 warps"),
    ("ch13-q22", {1, 2, 4}, "by many threads"),
    ("ch13-q22", {2}, "at most 255"),
    ("ch13-q26", 2, "two comparisons"),
    ("ch13-q26", 33, "no other line"),
    ("ch13-q26", 50, "no other line"),
    ("ch13-q26", 6, "take the marks off"),
    ("ch13-q27", 2, "the one next to it"),
    ("ch13-q27", 16, "all of the fragment"),
    ("ch13-q27", 8, "in one row"),
    ("ch13-q27", 1, "Find lane 9's cells"),
    ("ch13-q28", ("num_warps", 4), "the launch as it is"),
    ("ch13-q28", ("BLOCK_K", 64), "the launch as it is"),
    ("ch13-q28", ("BLOCK_M", 64), "each of its four warps"),
    ("ch13-q28", ("BLOCK_M",), "a name and a number"),
    ("ch13-q28", ("BLOCK_L", 32), "a name and a number"),
    ("ch13-q28", ("BLOCK_M", 33), "a name and a number"),
    ("ch13-q28", ("BLOCK_K", 32), "at a time"),
    ("ch13-q28", ("num_stages", 1), "at a time"),
    ("ch13-q28", ("BLOCK_N", 32), "with another n"),
    ("ch13-q28", ("num_warps", 8), "too few rows"),
]


@pytest.fixture(autouse=True)
def _no_progress(state_dir):
    """What these tests answer is nobody's progress."""


@pytest.fixture(scope="module")
def right() -> dict[str, object]:
    return {q.id: q.right() for q in machine_code.QUESTIONS}


def test_there_are_as_many_as_the_chapter_asks():
    assert len(MINE) == 19
    assert all(questions()[i] is q for i, q in MINE.items())
    cells = {c.id: c for c in nbformat.read(MASTER, as_version=4).cells}
    assert {i for i in cells if re.fullmatch(r"q\d+", i)} == {i.removeprefix("ch13-") for i in MINE}


@pytest.mark.parametrize("id", MINE)
def test_the_masters_answer_is_right(id):
    (cell,) = (c for c in nbformat.read(MASTER, as_version=4).cells if f"ch13-{c.id}" == id)
    tree = ast.parse(cell.source)
    value = eval(ast.unparse(tree.body[1].value), {})  # a literal, or a table made by a comprehension
    assert answer(id, value).ok
    assert answer(id).status == "open" and answer(id, None).status == "open"


@pytest.mark.parametrize(
    "id, value, words",
    MISTAKES,
    ids=[f"{i}-{sorted(v) if isinstance(v, set) else v}" for i, v, _ in MISTAKES],
)
def test_a_mistake_is_answered_by_its_nudge(id, value, words):
    given = answer(id, value)
    assert given.status == "wrong" and words in given.words


def test_no_question_and_no_nudge_gives_the_answer_away(right):
    for question in machine_code.QUESTIONS:
        solution = right[question.id]
        texts = [question.nudge, *(n.words for n in question.nudges)]
        secrets = [str(solution)]
        if isinstance(solution, set):
            secrets = [str(s) for s in solution]
        for text in texts:
            found = [s for s in secrets if re.search(rf"(?<![\w.]){re.escape(s)}(?![\w])", text)]
            assert not found, f"{question.id}: {text!r} says {found}"


def test_every_nudge_is_reached_by_some_mistake():
    reached = {(i, answer(i, v).words) for i, v, _ in MISTAKES}
    for question in machine_code.QUESTIONS:
        for words in (question.nudge, *(n.words for n in question.nudges)):
            form = re.sub(r"\\{\w+\\}", r"\\d+", re.escape(words))  # numbers of the wrong answer
            assert any(i == question.id and re.fullmatch(form, text) for i, text in reached), words


# ---- right answers, found in another way


def test_holder_of_700_as_triton_prints_it(right):
    printed = BlockedLayout([4], [32], [4], [0]).format_tensor_view([1024])
    thread, register = map(int, re.findall(r"T(\d+):\s*(\d+)", printed)[700])
    assert right["ch13-q3"] == (*divmod(thread, 32), register)


def test_small_blocks_wide_sizes_and_threads(right):
    assert right["ch13-q4"] == 4 * 32 // 32
    assert right["ch13-q5"] == {n for n in machine_code.SIZES if n % 16 == 0}
    assert right["ch13-q11"] == (128 // 64) * (64 // 16)
    assert right["ch13-q16"] == 1024 // 128
    assert right["ch13-q18"] == "longer"
    assert right["ch13-q19"] == {n for n in machine_code.WARPS if 1024 // (32 * n) >= 4}
    assert right["ch13-q25"] == (2 * 1024 + 5 * 4, 2 * 1024 + 5 * 4 + 128 * 4)
    kinds = {(n == 1, n % 16 == 0, block) for n, block in machine_code.SIX_LAUNCHES}
    assert right["ch13-q1"] == len(kinds)
    launches = machine_code.LAUNCHES.items()
    assert right["ch13-q22"] == {name for name, (m, n, warps) in launches if m * n // (32 * warps) > 255}
    assert right["ch13-q12"] == (2 * (3 - 1), 2)
    assert right["ch13-q15"] == (65536 // (200 * 128), 1)


def test_a_block_of_32_is_work_for_one_warp():
    small = _add(N=200, BLOCK=32, num_warps=1)
    assert len(read_layout(small.ttgir, "#blocked", (32,)).holders((5,))) == 1


def test_the_register_of_element_518_gets_its_ten_added(right):
    sass = _add().sass
    _, second = map(int, re.findall(r"STG\.E\.128 \S+, R(\d+)", sass))
    assert right["ch13-q6"] == f"R{second + (518 - 512) % 4}"
    assert f"FADD {right['ch13-q6']}, {right['ch13-q6']}, 10" in sass


@pytest.mark.parametrize("change", [("BLOCK_M", 16), ("num_warps", 2), ("num_warps", 1)])
def test_too_few_rows_or_warps_for_wgmma(change):
    assert answer("ch13-q28", change).ok


@pytest.mark.parametrize("launch", [(128, 128, 16, 4, 8), (64, 256, 16, 4, 5)])
def test_other_launches_in_the_budget(launch):
    assert answer("ch13-q14", launch).ok


# ---- what the chapter says


def test_the_matmul_is_chapter_07s():
    cells = nbformat.read(REPO / "solutions" / "07_matmul.ipynb", as_version=4).cells
    source = next(c.source for c in cells if c.id == "p11-kernel")
    body = source[source.index("def ") :].partition("\n\n\n")[0]
    assert ast.dump(ast.parse(body)) == ast.dump(ast.parse(kernels.batched_matmul_kernel.src))


def test_ttir_is_the_same_for_every_target_but_for_a_note_on_pointers():
    texts = {t: _add(t).ttir.replace(", tt.pointer_range = 32 : i32", "") for t in
             ("sm_80", "sm_90", "sm_100", "gfx942")}  # fmt: skip
    assert len(set(texts.values())) == 1


def test_num_warps_changes_the_layout_alone():
    diff = _add().diff(_add(num_warps=16), "ttgir")
    assert len(diff.added) == len(diff.removed) == 2
    assert all(re.search(r"#blocked =|module attributes", line) for line in diff.added)


def test_passes_of_the_layout():
    passes = _add().passes
    changed = [p.name for p in passes.changed]
    assert changed[:4] == [
        "inline",
        "convert-triton-to-tritongpu",
        "tritongpu-coalesce",
        "tritongpu-remove-layout-conversions",
    ]
    assert [passes[name].number for name in changed[1:4]] == [8, 9, 12]
    single = "sizePerThread = [1]"
    assert single in "".join(passes[8].after) and "sizePerThread" not in "".join(passes[8].before)
    assert any("sizePerThread = [4]" in line for line in passes[9].diff.added)
    assert single not in "".join(passes[12].after) and "convert_layout" not in "".join(passes[12].after)


@pytest.mark.parametrize(
    "asked, named",
    [
        ("coalesce", "did you mean tritongpu-coalesce or "),
        ("tritongpu-coalese", "did you mean tritongpu-coalesce"),
        ("", "there are inline, convert-triton-to-tritongpu, "),
    ],
)
def test_a_pass_that_there_is_not_is_answered_by_those_like_it(asked, named):
    with pytest.raises(KeyError, match=f"no pass '{asked}'; {named}") as told:
        _add().passes[asked]
    assert len(str(told.value)) < 500


def test_a_pointer_that_is_no_multiple_of_16_makes_narrow_loads():
    """``x[1:]`` of the prose. `stages` takes pointers as torch allocates them, so Triton is asked."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler.compiler import ASTSource

    signature = {"x_ptr": "*fp32", "z_ptr": "*fp32", "N": "i32", "BLOCK": "constexpr"}
    loads, predicates = {}, {}
    for aligned in (True, False):
        attributes = {(1,): [["tt.divisibility", 16]], (2,): [["tt.divisibility", 16]]}
        if aligned:
            attributes[(0,)] = [["tt.divisibility", 16]]
        source = ASTSource(kernels.masked_add_kernel, signature, {"BLOCK": 1024}, attributes)
        ptx = triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"]
        loads[aligned] = set(re.findall(r"ld\.global\S*", ptx))
        predicates[aligned] = set(re.findall(r"(@%p\d+) ld\.global", ptx))
    assert machine_code._loads_without_a_promise() == (ptx.count("ld.global"), len(predicates[False]))
    assert loads == {True: {"ld.global.v4.b32"}, False: {"ld.global.b32"}}


def test_wide_add_wants_wide_loads():
    report = check(kernels.masked_add_kernel, WIDE_ADD)  # without the edit
    assert not report.ok and "8 of 8 loads are that narrow" in str(report)


@pytest.mark.parametrize(
    "limit, words",
    [
        ("tl.multiple_of(N, 4)", "changes nothing here, because N is an argument"),
        ("(N & -4)", "doesn't see through &"),
        ("N - N % 4", "doesn't see through %"),
    ],
)
def test_a_report_on_narrow_loads_says_what_the_compiler_cannot_use(limit, words, tmp_path):
    report = str(check(edited(tmp_path, "mask = offs < N", f"mask = offs < {limit}"), WIDE_ADD))
    assert words in report and "a mask bit of its own" in report


def test_wide_add_takes_a_promise_of_constancy(tmp_path):
    made = edited(tmp_path, "mask = offs < N", "mask = tl.max_constancy(offs < N, 4)")
    assert check(made, WIDE_ADD).ok


def test_a_promise_that_is_untrue_but_harmless_passes_as_the_prose_says(tmp_path):
    made = edited(tmp_path, "mask = offs < N", "mask = tl.max_constancy(offs < N, 16)")
    assert 4004 % 16 and check(made, WIDE_ADD).ok


def test_ttgir_differs_in_a_note_alone_and_llvm_ir_in_its_loads():
    even, odd = _add(N=4096), _add(N=4095)
    diff = even.diff(odd, "ttgir")
    assert len(diff.added) == len(diff.removed) == 1 and "%N: i32)" in diff.added[0]
    assert (even.llir.count("ld.global"), odd.llir.count("ld.global")) == (2, 8)


def edited(tmp_path, before, after):
    """Return masked_add_kernel with one edit."""
    path = tmp_path / "edited.py"
    text = f"import triton\nimport triton.language as tl\n\n\n@triton.jit\n{kernels.masked_add_kernel.src}"
    assert before in text
    path.write_text(text.replace(before, after))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.masked_add_kernel


def test_wide_add_wants_one_kernel_for_all_sizes(tmp_path):
    report = check(edited(tmp_path, "z_ptr, N,", "z_ptr, N: tl.constexpr,"), WIDE_ADD)
    assert report.right and not report.ok and "kernels compiled: 2" in str(report)


def test_seven_stages_are_the_most_that_fit():
    assert machine_code._deepest() == 7


def test_an_a100_keeps_one_pair_of_tiles_less():
    pair = 2 * 128 * 64 * 2
    for depth in (3, 4):
        assert _matmul("sm_80", num_stages=depth).shared_bytes == (depth - 1) * pair
        assert _matmul("sm_90", num_stages=depth).shared_bytes == depth * pair


def test_fragments_pass_through_registers_on_an_a100_but_not_on_an_h100():
    assert _matmul("sm_80").ttgir.count("ttg.local_load") == 2 and "ldmatrix" in _matmul("sm_80").ptx
    assert "ttg.local_load" not in _matmul("sm_90").ttgir
