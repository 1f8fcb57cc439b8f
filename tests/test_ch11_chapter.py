"""Chapter 11: what its prose says of words, bytes and times is what its cells and recordings say."""

import linecache
import re

import nbformat
import pytest
import torch

from puzzles_lib import RELU_PACK, check, run
from puzzles_lib.answers import judge
from puzzles_lib.authoring.solutions import define, kernel_sources, other_kernel
from puzzles_lib.chapters import mistakes, questions
from puzzles_lib.chapters.ch11_relu_masks.judged import bug_of, layer
from puzzles_lib.inputs import make_inputs
from puzzles_lib.timing import recorded
from tests.conftest import REPO

MASTER = nbformat.read(REPO / "solutions/11_relu_masks.ipynb", as_version=4)
CELLS = {cell.id: cell for cell in MASTER.cells}


def test_the_readers_own_bug_is_noticed_by_one_case_and_isnt_about_nan():
    report = check(other_kernel("11", "p17-own"), RELU_PACK)
    assert [case.number for case in report.listed if not case.ok] == [5]
    (words,) = (str(case.verdict) for case in report.listed if not case.ok)
    assert "wrong values in mask" in words and "NaN" not in words


@pytest.mark.parametrize(
    ("bits", "accepted"),
    [
        ("tl.where(x <= 1e-6, 0, 1)", True),
        ("(x > 0).to(tl.int32)", False),
        ("(x.to(tl.int16, bitcast=True) > 0).to(tl.int32)", False),  # right for +NaN only
        ("((x > 0) | ((x != x) & (x.to(tl.int16, bitcast=True) < 0))).to(tl.int32)", False),  # -NaN only
    ],
)
def test_the_readers_own_bug_must_be_right_for_nan_of_both_signs(bits, accepted):
    source = kernel_sources()["relu_pack"]
    assert source.count("tl.where(shut, 0, 1)") == 1
    kernel = define(source.replace("tl.where(shut, 0, 1)", bits), "<own>")
    found = bug_of(kernel, run)
    assert found[2] is accepted
    assert judge(questions()["ch11-q2"], found).ok is accepted


def test_the_two_words_in_the_prose_are_reported_and_differ_in_the_bits_of_nan():
    (slip,) = (m for m in mistakes(RELU_PACK) if m.name == "gradient_of_nan_stopped")
    report = check(define(slip.apply(kernel_sources()["relu_pack"]), "<x > 0>"), RELU_PACK)
    (words,) = (str(case.verdict) for case in report.listed if not case.ok)
    quoted = re.search(r"`(The first, mask\[0, 0\], is .*differ\))`", CELLS["q6-ask"].source)[1]
    assert quoted in words
    got, want = re.search(r"is (-?\d+), but should be (-?\d+)", quoted).groups()
    assert f"got, want = {got}, {want}" in CELLS["q6"].source
    x = make_inputs(RELU_PACK, RELU_PACK.cases[5])["x"]
    nan = x[0, :32].isnan().nonzero().flatten().tolist()
    assert nan == [i for i in range(32) if (int(got) ^ int(want)) >> i & 1] == [25, 31]
    assert "Elements 25 and 31 are NaN" in CELLS["p17-own-after"].source


KEEPS = "ctx.save_for_backward(mask, weight, *squeeze(y))"
DX = "relu_unpack_backward(dz @ weight, mask)"
DWEIGHT = "dz.T @ widen(words, params, shape)"


def judged(keeps: str = KEEPS, dx: str = DX, dweight: str = DWEIGHT) -> tuple:
    """Return what is handed to `answer` if the layer of the notebook has these lines."""
    source = CELLS["function"].source
    imports = "".join(line + "\n" for line in CELLS["function-tools"].source.splitlines() if "import" in line)
    for right, wrong in ((KEEPS, keeps), (DX, dx), (DWEIGHT, dweight)):
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    linecache.cache["<layer>"] = len(source), None, source.splitlines(True), "<layer>"
    scope = {"torch": torch}
    exec(imports, scope)
    exec(compile(source, "<layer>", "exec"), scope)
    return layer(scope["PackedReLULinear"])


@pytest.mark.parametrize(
    ("keeps", "dweight", "kept"),
    [
        (KEEPS, DWEIGHT, 12800),
        (f"{KEEPS}; ctx.y = y", "dz.T @ ctx.y", 12800 + 65536),
        (f"{KEEPS}; ctx.y = y", DWEIGHT, 12800 + 65536),
    ],
)
def test_what_a_layer_sets_on_ctx_counts(keeps, dweight, kept):
    assert judged(keeps, dweight=dweight)[3] == kept


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ({"dx": "torch.where(widen(words, params, shape) > 0, dz @ weight, 0)"}, "can tell them from 0"),
        ({"dx": "dz @ weight"}, "knows where"),
        ({"dx": "-" + DX}, "From there on, it's puzzle 18"),
        ({"dweight": "dz.T @ relu_unpack_backward(torch.ones(shape).bfloat16(), mask)"}, "not how large"),
        ({"keeps": KEEPS.replace("(y)", "(x)")}, "should squeeze"),
        (
            {
                "keeps": KEEPS.replace("(y)", "(x)"),
                "dweight": "dz.T @ relu_unpack_backward(widen(words, params, shape), mask)",
            },
            "should squeeze",
        ),
        ({"dweight": "dz.T @ widen(words, params, shape).flip(0)"}, "the sum over all tokens"),
    ],
)
def test_the_cause_of_a_wrong_gradient_is_named(lines, says):
    found = judge(questions()["ch11-q8"], judged(**lines))
    assert not found.ok and says in found.words


def test_a_gradient_of_the_wrong_shape_is_told_without_a_traceback(capsys):
    assert judged(dweight="widen(words, params, shape).T @ dz") is ...
    assert "backward fails: " in capsys.readouterr().out


@pytest.mark.parametrize(
    "dweight", ["dz @ widen(words, params, shape)", "widen(words, params, dz.shape)", "nope"]
)
def test_the_line_of_backward_that_fails_is_printed(dweight, capsys):
    assert judged(dweight=dweight) is ...
    assert f"\n  in: dweight = {dweight}\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("keeps", "says"),
    [
        (KEEPS.replace("*", ""), "forward fails: save_for_backward can only save variables"),
        ("kept = nope", "forward fails: name 'nope' is not defined\n  in: kept = nope\n"),
    ],
)
def test_an_error_in_forward_is_told_without_a_traceback(keeps, says, capsys):
    assert judged(keeps) is ...
    assert says in capsys.readouterr().out


def test_the_losses_in_the_prose_are_recorded():
    results = (REPO / "RESULTS.md").read_text()
    table = results[results.index("| byte language model, 3 seeds |") :]
    for name, words in (("2 bits, nearest", "ended with a loss of {}"), ("torch", "torch's with {}.")):
        loss = float(re.search(rf"\n\| {name} \| ([\d.]+) ", table)[1])
        assert words.format(f"{loss:.3f}") in CELLS["function-after"].source


def test_the_times_in_the_prose_are_recorded():
    us = {
        (row["path"], row["baseline"]): (row["us"], row["baseline_us"])
        for row in recorded.rows("memory")
        if row["case"] == "100864x768"
    }
    prose = CELLS["end-idea-2"].source
    ours, torchs = us["relu_unpack_backward", "torch threshold_backward"]
    assert f"measured, it's {torchs / ours:.2f} times" in prose
    ours, torchs = us["relu_pack", "torch relu, no mask"]
    assert f"the mask costs {ours / torchs - 1:.0%}" in prose
    for path in ("relu_pack", "relu_unpack_backward"):
        ours, copy = us[path, "copy of as many bytes"]
        assert abs(ours / copy - 1) < 0.01
