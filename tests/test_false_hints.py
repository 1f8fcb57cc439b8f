"""Hints to the compiler that are not true are refused where a load or store believes them."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.checker import examine, promises
from puzzles_lib.compiler import find_target, taken_at_once
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner.promises import CONSTANT, CONTIGUOUS, MULTIPLE, harm, untrue
from puzzles_lib.source import Refusal, Site
from tests.hinted import HINTED, Hinted
from tests.kernel_lab import execute, kernel_of

HARMFUL = [each for each in HINTED if each.blamed]


def puzzle_of(hinted: Hinted) -> Puzzle:
    def spec(x):
        return hinted.expected(x)

    spec.__name__ = hinted.name
    spec.__annotations__ = {"x": Float32[Tensor, "R STRIDE"], "return": Float32[Tensor, "R STRIDE"]}
    zeroed = ("z",) if hinted.zeroed else ()
    case = Case(R=2, N=hinted.N, STRIDE=hinted.STRIDE, B=512)
    return Puzzle(number="0", spec=spec, grid=lambda s: (s.R,), outputs=("z",), cases=(case,), zeroed=zeroed)


@pytest.mark.parametrize("hinted", HARMFUL, ids=lambda h: h.name)
def test_one_that_does_harm_is_refused(hinted):
    report = examine(hinted.kernel, puzzle_of(hinted))
    assert [v.kind for v in report.verdicts] == ["false hint"], report
    verdict = report.verdicts[0]
    assert f"tl.{hinted.blamed}(" in verdict.message and f"tl.{hinted.blamed}(" in verdict.site.source, report
    how = {"mask": "first lane's mask", "apart": "not contiguous", "misaligned": "not such a multiple"}
    assert how[hinted.why] in verdict.diagnosis, report


@pytest.mark.parametrize("hinted", [h for h in HINTED if not h.blamed], ids=lambda h: h.name)
def test_one_that_does_none_passes(hinted):
    report = examine(hinted.kernel, puzzle_of(hinted))
    assert report.ok, report


def test_the_words():
    hinted = next(h for h in HINTED if h.name == "a_mask_of_fours")
    text = str(examine(hinted.kernel, puzzle_of(hinted)))
    assert "tl.max_constancy(..., 4), but elements 508..511 of it are True, False, False, False" in text, text
    assert "a GPU loads lanes 508 to 511 of line" in text, text


def test_what_cannot_be_compiled_is_refused_by_its_hint(monkeypatch):
    harmless = next(h for h in HINTED if h.name == "of_a_value")
    monkeypatch.setattr(promises, "taken_at_once", lambda *_: Refusal("no compiler today"))
    report = examine(harmless.kernel, puzzle_of(harmless))
    assert [v.kind for v in report.verdicts] == ["false hint"], report


def test_true_hints_ask_for_no_compilation(monkeypatch):
    def never(*_):
        raise AssertionError("compiled")

    monkeypatch.setattr(promises, "taken_at_once", never)
    honest = next(h for h in HINTED if h.name == "true_ones")
    assert examine(honest.kernel, puzzle_of(honest)).ok


# ---- what the compiler takes at once


@triton.jit
def copy_kernel(x_ptr, z_ptr, N, B: tl.constexpr):
    offs = tl.arange(0, B)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0)
    tl.store(z_ptr + offs, x)


@pytest.mark.parametrize(
    "dtype, block, loaded, stored",
    [
        (torch.float32, 512, 1, 4),  # four to each of 128 threads
        (torch.float32, 128, 1, 1),
        (torch.float16, 1024, 1, 8),
        (torch.int8, 512, 1, 4),
        (torch.int64, 1024, 1, 2),  # at most 16 bytes
    ],
)
def test_lanes_that_one_instruction_takes(dtype, block, loaded, stored):
    tensors = {name: torch.zeros(block, dtype=dtype) for name in ("x_ptr", "z_ptr")}
    found = taken_at_once(copy_kernel, {**tensors, "N": 5, "B": block}, find_target("sm_90"), 4)
    first = copy_kernel.fn.__code__.co_firstlineno
    size = tensors["x_ptr"].element_size()
    for kind, line, wanted in (("load", first + 3, loaded), ("store", first + 4, stored)):
        groups = found(kind, Site(line, _line(line)), (block,), size)
        if wanted == 1:
            assert groups == []
        else:
            assert np.array_equal(groups[0], np.arange(block).reshape(-1, wanted))


def _line(number: int) -> str:
    return open(__file__).read().splitlines()[number - 1].strip()


# ---- when a hint is true


@pytest.mark.parametrize(
    "hint, values, sizes, found",
    [
        (MULTIPLE, [0, 4, 8, 12], [4], ""),
        (MULTIPLE, [8, 9, 10, 11], [4], ""),  # the first of a run
        (MULTIPLE, [8, 9, 10, 12], [4], "element 1 of it is 9"),
        (MULTIPLE, [2, 3, 4, 5], [4], "element 0 of it is 2"),
        (MULTIPLE, [20], [16], "it is 20"),
        (MULTIPLE, [-32], [16], ""),
        (MULTIPLE, np.array([7], np.uint8), [1024], "it is 7"),
        (CONTIGUOUS, np.array([254, 255, 0, 1], np.uint8), [4], "elements 0..3 of it are 254, 255, 0, 1"),
        (CONTIGUOUS, [5, 6, 9, 10], [2], ""),
        (CONTIGUOUS, [5, 6, 9, 8], [2], "elements 2..3 of it are 9, 8"),
        (CONTIGUOUS, [3, 4], [8], ""),
        (CONTIGUOUS, [0, 1, 2, 3, 4, 5, 7, 6], [8], "elements 0..3 of it are 0, 1, 2, 3, ..."),
        (CONSTANT, [True, True, False, False], [2], ""),
        (CONSTANT, [True, True, False, False], [4], "elements 0..3 of it are True, True, False, False"),
        (CONTIGUOUS, [[0, 1], [5, 6]], [1, 2], ""),
        (CONTIGUOUS, [[0, 1], [6, 5]], [1, 2], "elements 1, 0..1 of it are 6, 5"),
        (CONTIGUOUS, [[0, 1], [1, 3]], [2, 1], "elements 0..1, 1 of it are 1, 3"),
    ],
)
def test_what_is_not_as_promised(hint, values, sizes, found):
    assert untrue(hint, np.array(values), sizes) == found


def test_hints_of_flags_and_fractions_are_weighed_too():
    assert untrue(MULTIPLE, np.array([True, False]), [2]) == "element 0 of it is True"
    assert untrue(MULTIPLE, np.array([0.5]), [16]) == "it is 0.5"


def test_addresses_count_in_bytes():
    addresses = np.array([32, 36, 40, 44], np.uint64)
    assert untrue(CONTIGUOUS, addresses, [4], step=4) == ""
    assert untrue(CONTIGUOUS, addresses, [4], step=2)
    assert untrue(MULTIPLE, addresses[1:2], [16], step=4) == "it is 36"


@pytest.mark.parametrize(
    "on, apart, why",
    [
        ([1, 1, 1, 1, 0, 0, 0, 0], 0, None),  # an instruction without a lane that is on does nothing
        ([1, 1, 1, 1, 1, 1, 0, 0], 0, "mask"),
        ([1, 1, 1, 1, 0, 0, 0, 0], 4, None),
        ([1, 1, 1, 1, 1, 1, 1, 1], 4, "apart"),
        ([0, 0, 0, 0, 1, 1, 1, 1], 0, None),
    ],
)
def test_lanes_that_are_taken_at_once_must_belong_together(on, apart, why):
    addresses = 64 + 4 * np.arange(8, dtype=np.uint64)
    addresses[7] += apart
    two = np.arange(8).reshape(2, 4)
    found = harm("load", Site(1, ""), addresses, np.array(on, bool), 4, lambda *access: [two])
    assert (found and found.why) == why and (found is None or found.lanes == (4, 5, 6, 7))


# ---- tl.assume


def test_an_assumption_that_is_false_ends_the_run():
    kernel = kernel_of("""@triton.jit
def kernel(x_ptr, z_ptr):
    tl.assume(tl.load(x_ptr) > 5)
    tl.store(z_ptr, 1)
""")
    assert execute(kernel, x_ptr=torch.tensor([9]), z_ptr=torch.zeros(1)).stop is None
    stop = execute(kernel, x_ptr=torch.tensor([3]), z_ptr=torch.zeros(1)).stop
    assert stop.kind == "false hint" and "tl.assume" in stop.message, stop
