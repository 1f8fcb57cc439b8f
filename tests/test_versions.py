"""What is said with a Triton that the checker doesn't support, and of a fault of the course's own."""

import ctypes
import re

import pytest
import torch
import triton

from puzzles_lib import MASKED_ADD, check, run, stages, trace, versions, watch
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.compiler import front_end
from puzzles_lib.grading.__main__ import main
from puzzles_lib.source import define
from puzzles_lib.translator import observer

TOO_OLD = "the checker does not support Triton 3.6.0, only Triton 3.7 to 3.9"
TOO_NEW = "the checker is tested with Triton 3.7 to 3.9, but this is Triton 3.10.0"


@pytest.mark.parametrize(
    "version, old, new",
    [
        ("3.6.0", True, False),
        ("2.13.1", True, False),
        ("3.7.1", False, False),
        ("3.8.0+git1234", False, False),
        ("3.9.1", False, False),
        ("3.10.0", False, True),
        ("4.0.0", False, True),
        ("of our own", False, False),
    ],
)
def test_which_are_supported(version, old, new):
    assert bool(versions.too_old(version)) == old and bool(versions.too_new(version)) == new


def run_once(kernel: object, puzzle: object) -> object:
    with pytest.raises(RuntimeError) as raised:
        run(kernel, puzzle, x=torch.ones(3), BLOCK=4)
    return raised.value


@pytest.mark.parametrize("look", [check, watch, trace, stages, run_once], ids=lambda look: look.__name__)
def test_with_an_older_one_each_says_so_and_blames_nobody(monkeypatch, look):
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    told = str(look(solutions()["masked_add"], MASKED_ADD))
    assert TOO_OLD in told and len(told.splitlines()) == 2
    assert not re.search("refuses|crashed|does not compile|bug", told)


def test_with_an_older_one_nobody_is_graded(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(triton, "__version__", "3.6.0")
    assert main([str(tmp_path), "--out", str(tmp_path / "results")]) == 2
    assert capsys.readouterr().err == f"error: {TOO_OLD}\n" and not (tmp_path / "results").exists()


class Library:
    """Triton's, without the function that 3.6 hides."""

    def __init__(self, file: str):
        pass

    def __getattr__(self, name: str) -> object:
        raise AttributeError(f"{name}: undefined symbol")


def test_a_library_that_hides_what_the_checker_needs_is_our_fault(monkeypatch, own_children):
    monkeypatch.setattr(ctypes, "CDLL", Library)
    report = check(solutions()["masked_add"], MASKED_ADD)
    (verdict,) = report.verdicts
    assert verdict.kind == "error" and verdict.message.startswith("the checker failed on this line (Attr")
    assert verdict.message.endswith("undefined symbol). This is a bug in the course, not in your kernel")
    assert "not run" in str(report) and not re.search("refuses|crashed", str(report))


def test_with_a_newer_one_a_fault_of_ours_names_the_version(monkeypatch, own_children):
    monkeypatch.setattr(triton, "__version__", "3.10.0")
    monkeypatch.setattr(ctypes, "CDLL", Library)
    assert TOO_NEW in str(check(solutions()["masked_add"], MASKED_ADD))
    crashes = "tl.make_block_ptr(z_ptr, tl.full((1,), 32, tl.int32), (1,), (0,), (32,), (0,))"
    source = f"@triton.jit\ndef kernel(z_ptr):\n    {crashes}\n"
    monkeypatch.undo()
    monkeypatch.setattr(triton, "__version__", "3.10.0")
    refusal = front_end(define(source, "<crashes>", {}), {"z_ptr": torch.empty(0)})
    assert refusal.message.startswith("Triton's compiler crashed on this line") and TOO_NEW in refusal.message


def test_with_a_newer_one_it_is_tried(monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.10.0")
    assert check(solutions()["masked_add"], MASKED_ADD).ok


def test_a_fault_of_ours_between_tritons_lines_is_ours(monkeypatch, own_children):
    """Triton wraps what is raised below its visitor: NameError here, in the course's own part of tl.load."""
    monkeypatch.delattr(observer, "_refuse_two_hints")
    (verdict,) = check(solutions()["masked_add"], MASKED_ADD).verdicts
    assert verdict.kind == "error" and "name '_refuse_two_hints' is not defined" in verdict.message
    assert "tl.load" in verdict.site.source and "not in your kernel" in verdict.message


@pytest.mark.parametrize(
    "line, words",
    [
        ("tl.atomic_xchg(i.type, i)", "computes with numbers and blocks, but this is a block_type"),
        ("tl.histogram(i.to(tl.pointer_type(tl.float32)), 32)", "tl.histogram only counts int32 and uint32"),
    ],
)
def test_a_value_without_what_is_asked_of_it_is_the_kernels_fault(line, words):
    source = f"@triton.jit\ndef kernel(z_ptr):\n    i = tl.arange(0, 32)\n    {line}\n"
    refusal = front_end(define(source, f"<{line}>", {}), {"z_ptr": torch.empty(0)})
    assert refusal.kind == "compiler" and words in refusal.message
