"""A chip computes what the checker accepts: solutions and correct kernels on a GPU, on all their cases.

And what it rejects for the compiler's arithmetic alone, a chip gets wrong.

    python -m pytest -o addopts= tests/test_solutions_gpu.py

Inputs, outputs full of nonsense and the verdict on values are the checker's; the launch is Triton's. Cases
that are pretended are left out: nobody holds their tensors.
"""

from collections.abc import Iterator

import pytest
import torch
import triton

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine, wanted
from puzzles_lib.checker.attempts import blank
from puzzles_lib.puzzle import Case, Puzzle
from tests import kernels

pytestmark = pytest.mark.gpu

ACCEPTED = [(puzzle, None) for puzzle in puzzles()] + kernels.right()
COMPILER = "the compiler's own fault, mended since: github.com/triton-lang/triton/pull/11682"
TRUNCATED = (
    "a tensor core cuts off what it adds, where float32 rounds: 256 steps of 8 products in TF32 are off by "
    "1.8e-4 or more, allowed is 1.2e-4, and one of 2,397 elements is another float16"
)
ASSEMBLER = (
    "ptxas 12.8, 12.9 and 13.0 let only the lanes without a chosen expert take part in a redux of the first "
    "pass, and 13.4 all. In nvdisasm, with 4 warps: @!P0 REDUX, where P0 is a lane's own"
)
KNOWN = {
    "long_softmax": COMPILER,  # for some sizes, as case 1 has, and for 256 columns a step
    "log_sum_exp": COMPILER,
    "float32_factors": TRUNCATED,
    "sum_instead_of_dot": TRUNCATED,  # the compiler makes it a dot
    "who_beats_it": ASSEMBLER,
}
"""Accepted by the checker, and yet no GPU computes them, by name."""
FLUSHED = 2.0**-120
"""A smaller difference is none: a GPU's `exp2` returns 0 below 2^-126, where a CPU has a number."""
OTHERWISE = (
    "on a GPU",
    "a dot in TF32",
    "write s * (w - o)",
)  # what the checker says of the compiler's arithmetic


def _known(puzzle: Puzzle, kernel: object) -> pytest.param:
    name = getattr(kernel, "__name__", puzzle.name)
    marks = [pytest.mark.xfail(reason=KNOWN[name], strict=True)] if name in KNOWN else []
    return pytest.param(puzzle, kernel, id=name, marks=marks)


@pytest.mark.parametrize("puzzle, kernel", [_known(*each) for each in ACCEPTED])
def test_a_gpu_computes_it(puzzle: Puzzle, kernel: object):
    wrong = []
    for number, case in enumerate([*puzzle.cases, *puzzle.drawn()]):
        if not case.pretend:
            wrong += [f"case {number}, {case}: {fault}" for fault in faults(puzzle, kernel, case)]
    assert not wrong, "\n".join(wrong)


ARITHMETIC = [wrong for wrong in kernels.wrong() if any(words in wrong.says for words in OTHERWISE)]


@pytest.mark.parametrize("wrong", ARITHMETIC, ids=lambda wrong: wrong.name)
def test_a_gpu_gets_wrong_what_it_computes_otherwise(wrong: kernels.Wrong):
    """In the cases in which the checker says so, and in no other."""
    told = [case.verdict is not None for case in examine(wrong.kernel, wrong.puzzle).cases]
    cases = wrong.puzzle.cases[: len(told)]
    assert [bool(list(faults(wrong.puzzle, wrong.kernel, case))) for case in cases] == told


def faults(puzzle: Puzzle, kernel: object, case: Case) -> Iterator[str]:
    bound = bind(kernel or solutions()[puzzle.name], puzzle, case)
    assert isinstance(bound, Bound), bound
    inputs, expected = wanted(puzzle, bound.case)
    results = {result.name: blank(puzzle, result, bound.case).cuda() for result in puzzle.results}
    launch(bound, {name: tensor.cuda() for name, tensor in inputs.items()} | results)
    for name, result in results.items():
        right = expected[name].accepts(result.cpu())
        if result.is_floating_point():
            right |= (result.cpu().double() - expected[name].value).abs() <= FLUSHED
        if not right.all():
            yield f"{(~right).sum()} of {right.numel()} elements of {name} are wrong"


def launch(bound: Bound, tensors: dict[str, torch.Tensor]) -> None:
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    options = dict(bound.configuration.options) if bound.configuration else {}
    grid = bound.puzzle.programs(bound.case)
    if all(grid):  # a launch of no programs is none
        bound.kernel[grid](**bound.filled(tensors), **options)
    torch.cuda.synchronize()
