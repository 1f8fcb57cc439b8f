"""Every solution compiles in every case as a launch would have it compiled, down to Triton's GPU dialect.

What the checker runs is the front end's IR, so a kernel may pass and yet be one that no launch compiles.
LLVM and ptxas are left out: they take seconds for each kernel, and `test_stages.py` asks them for some.
"""

import pytest

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.compiler import find_target, gpu_dialect
from puzzles_lib.source import Refusal

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
