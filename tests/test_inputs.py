"""Inputs are seeded, and bite."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.chapters import puzzles
from puzzles_lib.puzzle import Case, Puzzle
from tests.test_puzzle import make


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_inputs_have_the_annotated_shape_and_repeat(puzzle):
    for case in (case for case in puzzle.cases if not case.pretend):
        first, second = inputs.make_inputs(puzzle, case), inputs.make_inputs(puzzle, case)
        for argument in puzzle.inputs:
            tensor = first[argument.name]
            assert tensor.shape == argument.shape(case.numbers) and tensor.dtype == argument.dtype
            assert torch.equal(tensor.view(torch.uint8), second[argument.name].view(torch.uint8))


def test_two_inputs_and_two_cases_differ():
    puzzle = make(cases=(Case(M=9, N=9), Case(M=9, N=9, BLOCK=3)))
    one, two = (inputs.make_inputs(puzzle, case) for case in puzzle.cases)
    assert not torch.equal(one["x"], one["y"]) and not torch.equal(one["x"], two["x"])


def test_random_floats_hold_exact_zeros_of_their_own():
    values = inputs.random((1000,), torch.float32, torch.Generator().manual_seed(0))
    assert 30 < int((values == 0).sum()) < 100


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_random_integers_reach_every_bit(dtype):
    values = inputs.random((2000,), dtype, torch.Generator().manual_seed(0)).long()
    for bit in range(dtype.itemsize * 8):
        assert 0.4 < float(((values >> bit) & 1).float().mean()) < 0.6


def test_large_overflows_and_very_negative_underflows_exp():
    generator = torch.Generator().manual_seed(0)
    assert inputs.large((50,), torch.float32, generator).exp().isinf().all()
    assert not inputs.very_negative((50,), torch.float32, generator).exp().any()


def test_late_maximum_rises():
    generator = torch.Generator().manual_seed(0)
    assert (inputs.late_maximum((4, 100), torch.float32, generator).argmax(1) > 80).all()


def test_what_is_derived_is_computed_in_float64():
    seen = []

    def the_sum(x):
        seen.append(x.dtype)
        return x.sum(0)

    def scaled(x: Float32[Tensor, "M N"], total: Float32[Tensor, " N"]) -> Float32[Tensor, "M N"]:
        return x * total

    puzzle = Puzzle(
        number="0", spec=scaled, grid=lambda s: (1,), cases=(Case(M=3, N=5),), derived={"total": the_sum}
    )
    made = inputs.make_inputs(puzzle, puzzle.cases[0])
    assert seen == [torch.float64] and made["total"].dtype == torch.float32
    assert torch.equal(made["total"], made["x"].double().sum(0).float())


def test_a_fill_that_is_transposed_or_has_gaps_is_refused():
    def same(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
        return x

    def puzzle_of(fill):
        return Puzzle(spec=same, grid=lambda s: (1,), cases=(Case(M=3, N=5, fill={"x": fill}),))

    def transposed(shape, dtype, generator):
        return torch.zeros(shape[::-1], dtype=dtype).t()

    def padded(shape, dtype, generator):
        return torch.zeros(shape[0], shape[1] + 1, dtype=dtype)[:, :-1]

    def repeated(shape, dtype, generator):
        return torch.zeros(1, 1, dtype=dtype).expand(shape)

    for fill in (transposed, padded):
        puzzle = puzzle_of(fill)
        with pytest.raises(ValueError, match=f"{fill.__name__} made x with strides .* use audit"):
            inputs.make_inputs(puzzle, puzzle.cases[0])
    puzzle = puzzle_of(repeated)
    assert inputs.make_inputs(puzzle, puzzle.cases[0])["x"].is_contiguous()


def test_a_fill_of_the_wrong_dtype_is_refused():
    def halves(shape, dtype, generator):
        return torch.zeros(shape, dtype=torch.float16)

    puzzle = make(cases=(Case(M=3, N=5, fill={"x": halves}),))
    with pytest.raises(ValueError, match="halves made torch.float16"):
        inputs.make_inputs(puzzle, puzzle.cases[0])
