"""Every solution compiles in every case as a launch would have it compiled, down to Triton's GPU dialect.

What the checker runs is the front end's IR, so a kernel may pass and yet be one that no launch compiles.
LLVM and ptxas are left out: they take seconds for each kernel, and `test_stages.py` asks them for some.
"""

import pytest

from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.compiler import find_target, gpu_dialect
from puzzles_lib.source import Refusal, define

SM_90 = find_target("sm_90")
# An assertion in MLIR of Triton 3.7 and 3.8, mended in https://github.com/triton-lang/triton/pull/11682.
BROKEN = {("long_softmax", 1)}


def uncompiled(puzzle) -> dict[int, str]:
    """The cases in which a puzzle's solution does not compile, and why."""
    found, known = {}, {}
    for number, case in enumerate(puzzle.cases):
        bound = bind(solutions()[puzzle.name], puzzle, case)
        assert isinstance(bound, Bound), bound
        made = gpu_dialect(bound.kernel, bound.arguments, SM_90, known)
        if isinstance(made, Refusal):
            found[number] = str(made)
    return found


@pytest.mark.parametrize("puzzle", [p for p in puzzles() if p.name in solutions()], ids=lambda p: p.name)
def test_the_solution_compiles_in_every_case(puzzle):
    found = uncompiled(puzzle)
    assert {(puzzle.name, number) for number in found} == {
        each for each in BROKEN if each[0] == puzzle.name
    }, found


def test_a_kernel_that_passes_and_stops_the_compiler_is_told_so():
    """It loads what it stored, so the compiler is asked who holds it, and that is when it shows."""
    source = kernel_sources()["long_softmax"]
    store = "        tl.store(z_ptr + offs, z, mask=mask)\n"
    again = store.replace("z, mask", "tl.load(z_ptr + offs, mask=mask), mask")
    assert source.endswith(store)
    puzzle = next(puzzle for puzzle in puzzles() if puzzle.name == "long_softmax")
    report = examine(define(source + again, "<long_softmax, stored twice>"), puzzle)
    assert report.ok, report
    assert "Triton's compiler fails for M=64  N=48  BLOCK_M=32  BLOCK_N=16: " in str(report)
    assert "Triton's compiler" not in str(examine(solutions()["long_softmax"], puzzle))
