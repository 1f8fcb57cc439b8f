"""Chapter 11: what its prose says of words, bytes and times is what its cells and recordings say."""

import linecache
import re

import nbformat
import pytest
import torch

from puzzles_lib import RELU_PACK, check, run
from puzzles_lib.authoring.solutions import define, kernel_sources, other_kernel
from puzzles_lib.chapters import mistakes
from puzzles_lib.inputs import make_inputs
from puzzles_lib.kernels.packed_relu import relu_pack
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
    handed = {}
    scope = {
        "torch": torch,
        "check": check,
        "run": run,
        "RELU_PACK": RELU_PACK,
        "own_bug_kernel": kernel,
        "answer": lambda id, value: handed.update({id: value}),
    }
    exec(CELLS["q2"].source, scope)
    assert handed["ch11-q2"][2] is accepted


def test_the_two_words_in_the_prose_are_reported_and_differ_in_the_bits_of_nan():
    (slip,) = (m for m in mistakes(RELU_PACK) if m.name == "gradient_of_nan_stopped")
    report = check(define(slip.apply(kernel_sources()["relu_pack"]), "<x > 0>"), RELU_PACK)
    (words,) = (str(case.verdict) for case in report.listed if not case.ok)
    quoted = re.search(r"`(mask\[0, 0\]: .*differ\))`", CELLS["q6-ask"].source)[1]
    assert quoted in words
    got, want = re.search(r"got (-?\d+), want (-?\d+)", quoted).groups()
    assert f"got, want = {got}, {want}" in CELLS["q6"].source
    x = make_inputs(RELU_PACK, RELU_PACK.cases[5])["x"]
    nan = x[0, :32].isnan().nonzero().flatten().tolist()
    assert nan == [i for i in range(32) if (int(got) ^ int(want)) >> i & 1] == [25, 31]
    assert "Elements 25 and 31 are NaN" in CELLS["p17-own-after"].source


def test_a_byte_of_the_librarys_mask_belongs_to_two_rows():
    x = torch.ones(100, 77)
    x[1] = -1
    assert relu_pack(x)[1][8:11].tolist() == [255, 31, 0]


def judged(keeps: str, dweight: str) -> tuple:
    """Return what the layer's cell hands to `answer`, if its forward and backward pass have these lines."""
    source = CELLS["function"].source
    for right, wrong in (
        ("ctx.save_for_backward(mask, weight, *squeeze(y))", keeps),
        ("dz.T @ widen(words, params, shape)", dweight),
    ):
        assert source.count(right) == 1
        source = source.replace(right, wrong)
    handed = {}
    scope = {"torch": torch, "answer": lambda id, value: handed.update({id: value})}
    linecache.cache["<layer>"] = len(source), None, source.splitlines(True), "<layer>"
    exec(compile(source, "<layer>", "exec"), scope)
    exec(CELLS["q8"].source, scope)
    return handed["ch11-q8"]


SQUEEZED = "ctx.save_for_backward(mask, weight, *squeeze(y))"


@pytest.mark.parametrize(
    ("keeps", "dweight", "kept"),
    [
        (SQUEEZED, "dz.T @ widen(words, params, shape)", 12800),
        (f"{SQUEEZED}; ctx.y = y", "dz.T @ ctx.y", 12800 + 65536),
        (f"{SQUEEZED}; ctx.y = y", "dz.T @ widen(words, params, shape)", 12800 + 65536),
    ],
)
def test_what_a_layer_sets_on_ctx_counts(keeps, dweight, kept):
    assert judged(keeps, dweight)[3] == kept


def test_a_gradient_of_the_wrong_shape_is_told_without_a_traceback(capsys):
    assert judged(SQUEEZED, "widen(words, params, shape).T @ dz") is ...
    assert "backward fails: " in capsys.readouterr().out


@pytest.mark.parametrize("dweight", ["dz @ widen(words, params, shape)", "widen(words, params, dz.shape)"])
def test_the_line_of_backward_that_fails_is_printed(dweight, capsys):
    assert judged(SQUEEZED, dweight) is ...
    assert f"\n  in: dweight = {dweight}\n" in capsys.readouterr().out


def test_the_times_in_the_prose_are_recorded():
    us = {
        (row["path"], row["baseline"]): (row["us"], row["baseline_us"])
        for row in recorded.rows("memory")
        if row["case"] == "100864x768"
    }
    prose = CELLS["end-idea-2"].source
    ours, torchs = us["relu_unpack_backward", "torch threshold_backward"]
    assert f"it's {torchs / ours:.1f} times as long" in prose
    ours, torchs = us["relu_pack", "torch relu, no mask"]
    assert f"the mask costs {ours / torchs - 1:.0%}" in prose
    for path in ("relu_pack", "relu_unpack_backward"):
        ours, copy = us[path, "copy of as many bytes"]
        assert abs(ours / copy - 1) < 0.01
