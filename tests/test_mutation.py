"""The mutator makes the mutants it should, and nothing gets lost on the way to the score."""

import ast
import json

import pytest

from tests import mutation
from tests.mutation import judge, mutants, read_equivalents, score

# The mask makes no difference here: N is a multiple of BLOCK in this puzzle.
CONSTANT_ADD = """
@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)
"""

SOFTMAX_LIKE = '''
LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit
def double(x):
    return x * 2.0


@triton.jit
def kernel(x_ptr, z_ptr, M, N, stride_xm, stride_zm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """A sample of everything."""
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    acc = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0)
        top = tl.maximum(top, tl.max(x, axis=1))
        acc += tl.sum(tl.where(mask, tl.exp2(-x), 0.0), axis=1)
        acc = tl.dot(x, x, acc, input_precision="ieee")
    if M >> 4 & 15 == 0:
        acc = acc.to(tl.float16) / 3 % 2
    tl.store(z_ptr + offs_m * stride_zm, acc // 1, mask=offs_m < M)
'''


@pytest.fixture(scope="module")
def sample() -> list[mutation.Mutant]:
    return mutants(SOFTMAX_LIKE, "long_sum")


OFFS_N = "offs_n = start + tl.arange(0, BLOCK_N)"
FOR = "for start in range(0, N, BLOCK_N):"
LOAD = "x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0)"
SUM = "acc += tl.sum(tl.where(mask, tl.exp2(-x), 0.0), axis=1)"
DOT = "acc = tl.dot(x, x, acc, input_precision='ieee')"
MASK = "mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)"
OFFS = "offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)"
TO = "acc = acc.to(tl.float16) / 3 % 2"


@pytest.mark.parametrize(
    "before, old, new",
    [
        (OFFS, "* BLOCK_M +", "* BLOCK_M -"),
        (OFFS, "* BLOCK_M", "// BLOCK_M"),
        (OFFS, "* BLOCK_M", "* BLOCK_N"),
        (OFFS, "* BLOCK_M", "* M"),
        (OFFS, "program_id(0)", "program_id(1)"),
        (OFFS, "tl.program_id(0) * BLOCK_M + ", ""),
        (MASK, ") & (", ") | ("),
        (MASK, "(offs_m[:, None] < M) & (offs_n[None, :] < N)", "offs_m[:, None] < M"),
        (MASK, "< M)", "<= M)"),
        (MASK, "< M)", "< N)"),
        (MASK, "< M)", "< M - 1)"),
        (MASK, "offs_m[:, None]", "offs_m[None, :]"),
        (MASK, "offs_m[:, None]", "offs_n[:, None]"),
        (FOR, "(0, N, BLOCK_N)", "(0, N - 1, BLOCK_N)"),
        (FOR, "(0, N, BLOCK_N)", "(0, N - BLOCK_N, BLOCK_N)"),
        (FOR, "(0, N, BLOCK_N)", "(0, BLOCK_N, BLOCK_N)"),
        (FOR, "(0, N, BLOCK_N)", "(BLOCK_N, N, BLOCK_N)"),
        (FOR, "(0, N, BLOCK_N)", "(1, N, BLOCK_N)"),
        (FOR, "(0, N, BLOCK_N)", "(0, N, 2 * BLOCK_N)"),
        (LOAD, ", mask=mask, other=0.0", ""),
        (LOAD, ", other=0.0", ""),
        (LOAD, "mask=mask", "mask=True"),
        (LOAD, "other=0.0", "other=1.0"),
        (LOAD, "stride_xm", "stride_zm"),
        (LOAD, "x_ptr", "z_ptr"),
        (SUM, "+=", "="),
        (SUM, SUM, "pass"),
        (SUM, "exp2", "exp"),
        (SUM, "-x", "x"),
        (OFFS_N, "start", "-start"),
        (SUM, "tl.sum", "tl.max"),
        (SUM, "axis=1", "axis=0"),
        (SUM, ", axis=1", ""),
        (SUM, "tl.exp2(-x), 0.0", "0.0, tl.exp2(-x)"),
        (SUM, "tl.where(mask, tl.exp2(-x), 0.0)", "tl.exp2(-x)"),
        (DOT, ", acc,", ","),
        (DOT, "ieee", "tf32"),
        (DOT, DOT, "pass"),
        (TO, "float16", "float32"),
        (TO, ".to(tl.float16)", ""),
        (TO, "/ 3", "* 3"),
        (TO, "% 2", "// 2"),
        (TO, "3", "4"),
        ("if M >> 4 & 15 == 0:", ">>", "<<"),
        ("if M >> 4 & 15 == 0:", "15", "14"),
        ("if M >> 4 & 15 == 0:", "if ", "if not "),
        ("top = tl.maximum(top, tl.max(x, axis=1))", "maximum", "minimum"),
        ("top = tl.full((BLOCK_M,), float('-inf'), tl.float32)", "float('-inf')", "0.0"),
        ("acc = tl.zeros((BLOCK_M,), tl.float32)", "float32", "float16"),
        ("LOG2E = tl.constexpr(1.4426950408889634)", "1.4426950408889634", "1.0"),
        ("return x * 2.0", "x * 2.0", "x"),
        ("tl.store(z_ptr + offs_m * stride_zm, acc // 1, mask=offs_m < M)", "acc // 1", "top // 1"),
    ],
)
def test_the_change_is_made(sample, before, old, new):
    assert old in before
    assert (before, before.replace(old, new, 1)) in {(m.before, m.after) for m in sample}


def test_mutants_are_legal_and_different_and_always_the_same(sample):
    sources = [m.source for m in sample]
    assert len(sample) > 200 and len(set(sources)) == len(sources)
    for source in sources:
        ast.parse(source)
    assert sample == mutants(SOFTMAX_LIKE, "long_sum")
    assert ast.unparse(ast.parse(SOFTMAX_LIKE)) not in sources


def test_a_mutant_changes_one_line(sample):
    original = ast.unparse(ast.parse(SOFTMAX_LIKE)).splitlines()
    for mutant in sample:
        assert mutant.before in SOFTMAX_LIKE.splitlines()[mutant.line - 1].strip().replace('"', "'")
        if mutant.after != "pass":
            changed = mutant.source.splitlines()
            assert [mutant.after] == [
                new.strip() for old, new in zip(original, changed, strict=True) if old != new
            ]


def test_docstrings_and_signatures_are_left_alone(sample):
    for mutant in sample:
        assert "A sample of everything." in mutant.source and "BLOCK_N: tl.constexpr):" in mutant.source


def pick(old: str, new: str) -> mutation.Mutant:
    (found,) = [m for m in mutants(CONSTANT_ADD, "constant_add") if m.after == m.before.replace(old, new)]
    return found


def test_lines_that_read_alike_are_told_apart():
    twice = CONSTANT_ADD + "    tl.store(z_ptr + offs, x + 10, mask=offs < N)\n"
    places = {m.place for m in mutants(twice, "constant_add") if m.before.startswith("tl.store")}
    assert places == {1, 2}
    second = [m for m in mutants(twice, "constant_add") if m.place == 2][0]
    (entry,) = read_equivalents(f"constant_add: because\n{second.diff()}")
    assert entry.is_for(second)


def test_a_wrong_mutant_is_killed():
    assert judge(pick("+ 10", "- 10")) == "values"
    assert judge(pick(" * BLOCK", "")) == "never written"
    assert judge(pick("tl.arange(0, BLOCK)", "tl.arange(1, BLOCK)")) == "compiler"


def test_a_mutant_that_cannot_even_be_defined_is_killed():
    broken = mutation.Mutant("constant_add", 1, 1, "", "", "", "x = tl.constexpr(1 / 0)")
    assert "ZeroDivisionError" in judge(broken)


def test_a_survivor_is_found_and_the_list_of_equivalents_counts():
    survivor, victim = pick(", mask=offs < N", ""), pick("+ 10", "- 10")
    judged = [(survivor, judge(survivor)), (victim, judge(victim))]

    without = score("constant_add", judged, [])
    assert (without.mutants, without.killed, without.survivors) == (2, 1, [survivor])

    entries = read_equivalents(f"constant_add: N is a multiple of BLOCK\n{survivor.diff()}")
    listed = score("constant_add", judged, entries)
    assert (listed.killed, listed.equivalent, listed.survivors) == (1, entries, [])
    assert (listed.stale, listed.refuted) == ([], [])


def test_stale_and_wrong_equivalents_are_noticed():
    victim = pick("+ 10", "- 10")
    stale, wrong = read_equivalents(
        f"constant_add: a line that was rewritten since\n- z = x\n+ z = y\n{victim.diff()}"
    )
    result = score("constant_add", [(victim, "values")], [stale, wrong])
    assert (result.stale, result.refuted, result.killed) == ([stale], [wrong], 1)


def test_the_list_of_equivalents_can_be_read():
    for entry in read_equivalents(mutation.EQUIVALENTS.read_text()):
        assert entry.why and entry.before != entry.after


def test_every_entry_of_the_list_is_about_a_line_of_a_solution():
    lines = {name: mutation.headlines(source) for name, source in mutation.puzzle_cells().items()}
    entries = read_equivalents(mutation.EQUIVALENTS.read_text())
    assert [str(e) for e in entries if (e.before, e.place) not in lines.get(e.puzzle, [])] == []


def test_every_puzzle_has_a_solution_to_change():
    from puzzles_lib.chapters import puzzles

    assert set(mutation.puzzle_cells()) == {"double"} | {p.name for p in puzzles()}


@pytest.mark.parametrize(
    "text", ["constant_add\n- a\n+ b", "+ b", "constant_add:\n- a", "constant_add: x\n+ b"]
)
def test_a_list_without_reasons_is_refused(text):
    with pytest.raises(ValueError, match="line"):
        read_equivalents(text)


@pytest.fixture
def two_mutants(monkeypatch, tmp_path):
    """The command sees one puzzle with two mutants, one of which survives, and an empty list."""
    found = [pick("+ 10", "- 10"), pick(", mask=offs < N", "")]
    monkeypatch.setattr(mutation, "puzzle_cells", lambda: {"constant_add": CONSTANT_ADD})
    monkeypatch.setattr(mutation, "mutants", lambda source, puzzle: found)
    monkeypatch.setattr(mutation, "EQUIVALENTS", tmp_path / "equivalents.txt")
    mutation.EQUIVALENTS.write_text("")
    return found


def test_json(two_mutants, capsys):
    assert mutation.main(["--json", "--jobs", "1"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["mutants", "killed", "equivalent", "survivors"]
    assert (report["mutants"], report["killed"], report["equivalent"]) == (2, 1, 0)
    (survivor,) = report["survivors"]
    assert survivor["puzzle"] == "constant_add" and survivor["after"] == two_mutants[1].after


def test_text_shows_the_survivor_and_stale_entries(two_mutants, capsys):
    mutation.EQUIVALENTS.write_text("constant_add: once\n- gone\n+ away\nno_puzzle: never\n- a\n+ b\n")
    assert mutation.main(["--jobs", "1"]) == 1
    out, err = capsys.readouterr()
    assert two_mutants[1].diff() in out and "score: 50.00%" in out
    assert err.count("stale") == 2 and "- gone\n+ away" in err and "no_puzzle" in err


def test_without_survivors_the_command_succeeds(two_mutants, capsys):
    mutation.EQUIVALENTS.write_text(f"constant_add: N is a multiple of BLOCK\n{two_mutants[1].diff()}\n")
    assert mutation.main(["--jobs", "1", "--puzzle", "constant_add"]) == 0
    assert "score: 100.00%" in capsys.readouterr().out


def test_a_run_goes_on_from_its_log(two_mutants, monkeypatch, tmp_path, capsys):
    arguments = ["--jobs", "1", "--log", str(tmp_path / "log")]
    assert mutation.main(arguments) == 1
    first = capsys.readouterr().out
    monkeypatch.setattr(mutation, "judge", lambda mutant: pytest.fail("judged again"))
    assert mutation.main(arguments) == 1
    assert capsys.readouterr().out == first


def test_a_solution_is_judged_as_check_judges_it():
    """With its last case alone, this one fails in a random case."""
    source = mutation.puzzle_cells()["layer_norm_dx"]
    assert judge(mutation.Mutant("layer_norm_dx", 1, 1, "", "", "", source)) is None


@pytest.mark.parametrize("told", [None, "time limit"])
def test_the_whole_check_decides_on_mutants_that_no_case_rejects(told, monkeypatch):
    asked = []

    def fault(kernel, puzzle, seconds):
        asked.append(puzzle)
        return told

    monkeypatch.setattr(mutation, "_fault", fault)
    assert judge(pick("+ 10", "- 10")) == told
    *parts, last = asked
    whole = mutation._puzzles()["constant_add"]
    assert last is whole
    assert sorted(map(str, whole.cases)) == sorted(str(case) for part in parts for case in part.cases)


@pytest.mark.parametrize("arguments", [["--puzzle", "nothing"], ["--jobs", "0"]])
def test_bad_options_are_named(two_mutants, arguments, capsys):
    with pytest.raises(SystemExit):
        mutation.main(arguments)
    assert f"{arguments[0]} is {arguments[1]}, allowed" in capsys.readouterr().err
