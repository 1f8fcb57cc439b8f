"""A caller of `audit`, or of its command, can say what its function gets, and what else it must take."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit
from puzzles_lib.auditor.command import main


@triton.jit
def scaled_kernel(X, W, Z, N, n, off, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < N * n
    w = tl.load(W + i % N, mask=mask, other=0.0)
    tl.store(Z + i, tl.load(X + i, mask=mask) * w + off, mask=mask)


def scaled(x, w, rows=4, off=0.0):
    """Correct for contiguous tensors with four rows."""
    z = torch.empty(x.shape)
    scaled_kernel[(triton.cdiv(x.numel(), 32),)](x, w, z, x.shape[1], rows, off, BLOCK=32)
    return z


def like(x, w, rows=4, off=0.0):
    return x * w


def inputs():
    return torch.ones(4, 20), torch.ones(20)


def with_an_offset():
    return {"x": torch.ones(4, 20), "w": torch.ones(20), "rows": 4, "off": 1e-3}


def layouts(report):
    return {
        name.partition(":")[0]
        for name in report.tried
        if "stride" in name or "memory" in name or "pad" in name
    }


@pytest.mark.parametrize(
    "contract, tried", [(False, {"x", "w"}), (True, set()), (("x",), {"w"}), (["w"], {"x"})]
)
def test_contiguous_arguments_keep_their_layout(contract, tried):
    guard = Guard(sizes=False, contiguous=contract)
    report = audit(scaled, *inputs(), like=like, hard=True, guard=guard)
    assert layouts(report) == tried
    assert any(finding.on.startswith("x: ") for finding in report.findings) is ("x" in tried)
    assert any("w: elements of stride 2" in note for note in report.notes) is ("w" in tried)
    assert any("inf" in name for name in report.tried), "values still change"


def test_a_list_of_contiguous_tensors():
    def both(tensors):
        return scaled(*tensors)

    for contract, tried in ((["tensors"], set()), (["tensors[1]"], {"tensors[0]"})):
        guard = Guard(sizes=False, contiguous=contract)
        assert layouts(audit(both, list(inputs()), hard=True, guard=guard)) == tried


def test_a_contract_names_arguments():
    with pytest.raises(ValueError, match=r"audit: contiguous must name arguments \(x, w\), but names 'y'"):
        audit(scaled, *inputs(), guard=Guard(contiguous=("y",)))
    for bad in ("x", 1, [1]):
        with pytest.raises(
            TypeError, match="Guard: contiguous must be True, False or a list of arguments' names"
        ):
            Guard(contiguous=bad)


def command(inputs, *options):
    return main([f"{__name__}:scaled", "--inputs", f"{__name__}:{inputs}", "--no-sizes", *options])


def test_the_command_takes_a_contract(capsys):
    assert command("inputs", "--hard") == 1
    assert "with x: padded rows" in capsys.readouterr().out
    assert command("inputs", "--hard", "--contiguous") == 1, "other sizes than four rows"
    assert "padded rows" not in capsys.readouterr().out


def test_the_command_varies_arguments(capsys):
    assert command("with_an_offset", "--vary", "off=0.5,1") == 0
    assert command("with_an_offset", "--vary", "off=0.5", "--vary", "rows=4,3") == 1
    assert "with rows=3: " in capsys.readouterr().out
    for bad in ("rows", "rows=", "=3", "rows=three"):
        assert command("with_an_offset", "--vary", bad) == 2
        assert f"--vary must be like n=1,17, but is {bad!r}" in capsys.readouterr().err
    assert command("with_an_offset", "--vary", "columns=3") == 2
    assert "vary must name arguments" in capsys.readouterr().err


def test_the_command_takes_an_allowance(capsys):
    options = "--like", f"{__name__}:like"
    assert command("with_an_offset", *options) == 1
    assert "80 of 80 elements of the result are wrong" in capsys.readouterr().out
    assert command("with_an_offset", *options, "--allowance", "0.01") == 0
    assert command("with_an_offset", *options, "--allowance", "-1") == 2


def multiplied(x, w):
    x.mul_(w)


@pytest.mark.parametrize(
    "shape, kinds", [((4, 20), {"padded rows", "transposed in memory"}), ((20,), {"elements of stride 2"})]
)
def test_arguments_that_are_written_to_get_strides_but_none_of_0(shape, kinds):
    def in_place(x, w):
        n = x.shape[-1]
        scaled_kernel[(triton.cdiv(x.numel(), 32),)](x, w, x, n, x.numel() // n, 0.0, BLOCK=32)

    arguments = torch.rand(shape), torch.full(shape[-1:], 2.0)
    report = audit(in_place, *arguments, like=multiplied, hard=True, guard=Guard(sizes=False))
    names = {name.removeprefix("x: ") for name in report.tried if name.startswith("x: ")}
    assert kinds <= names and not any("stride 0" in name for name in names)
    assert any(finding.on == "x: padded rows" for finding in report.findings) is (len(shape) == 2)
