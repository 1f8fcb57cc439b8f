"""The comparison is tight, scale-aware, and says where a result went wrong."""

import pytest
import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.checker.compare import compare
from puzzles_lib.checker.expected import expect
from puzzles_lib.puzzle import Case, Puzzle


def row_sum(x: Float32[Tensor, "M T"]) -> Float32[Tensor, " M"]:
    return x.sum(1)


def softmax(x: Float32[Tensor, "M T"]) -> Float32[Tensor, "M T"]:
    return torch.softmax(x, 1)


def doubled(x: Int32[Tensor, " N"]) -> Int32[Tensor, " N"]:
    return 2 * x


def puzzle_of(spec, **numbers) -> Puzzle:
    return Puzzle(number="0", spec=spec, grid=lambda s: (1,), cases=(Case(**numbers),))


def judge(spec, got_from, x, **numbers):
    """Compare ``got_from(x)`` with what the spec says."""
    puzzle = puzzle_of(spec, **numbers)
    inputs = {"x": x}
    return compare(expect(puzzle, puzzle.cases[0], inputs)["z"], got_from(x), puzzle, puzzle.cases[0], inputs)


X = torch.randn(4, 1000, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_summation_in_float32_passes(seed):
    x = torch.randn(4, 1000, generator=torch.Generator().manual_seed(seed)) + seed / 4

    def one_by_one(x):
        total = torch.zeros(4)
        for column in x.T:
            total = total + column
        return total

    for sum_of in (lambda x: x.sum(1), lambda x: x.flip(1).sum(1), one_by_one):
        assert judge(row_sum, sum_of, x, M=4, T=1000) is None


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "sloppy",
    [
        lambda x, half: x.to(half).float().sum(1),  # inputs rounded
        lambda x, half: x.sum(1).to(half).float(),  # result rounded
        lambda x, half: sum(c.to(half) for c in x.split(100, dim=1)).sum(1).float(),  # accumulator
    ],
)
def test_half_precision_anywhere_fails(sloppy, half):
    assert judge(row_sum, lambda x: sloppy(x, half), X, M=4, T=1000) is not None


def test_tolerance_follows_the_scale_of_each_element():
    """A denominator off by 0.1% passes allclose(atol=1e-3) on values of 0.005, and must not here."""
    x = X[:, :200]

    def padded(x):
        return torch.softmax(x, 1) * (1 - 1e-3)

    assert torch.allclose(padded(x), torch.softmax(x, 1), atol=1e-3)
    assert judge(softmax, padded, x, M=4, T=200) is not None
    assert judge(softmax, lambda x: torch.softmax(x, 1), x, M=4, T=200) is None


def test_tiny_inputs_are_judged_as_sharply():
    tiny = X * 1e-20
    assert judge(row_sum, lambda x: x.sum(1), tiny, M=4, T=1000) is None
    assert judge(row_sum, lambda x: x.sum(1) * 1.0001, tiny, M=4, T=1000) is not None
    assert judge(row_sum, lambda x: torch.zeros(4), tiny, M=4, T=1000) is not None


def test_integers_are_compared_exactly():
    x = torch.arange(100, dtype=torch.int32)
    assert judge(doubled, lambda x: 2 * x, x, N=100) is None
    assert (
        "1 of 100, the first is z[7]: got 15, want 14"
        in judge(doubled, lambda x: 2 * x + (x == 7), x, N=100).message
    )


def test_infinities_and_nans_must_stand_in_the_same_places():
    x = X.clone()
    x[1, 3] = float("inf")
    x[2, 3] = float("nan")
    assert judge(row_sum, lambda x: x.sum(1), x, M=4, T=1000) is None
    assert judge(row_sum, lambda x: x.nan_to_num().sum(1), x, M=4, T=1000) is not None


# ---- diagnosis


def matrix(x: Float32[Tensor, "M T"]) -> Float32[Tensor, "M T"]:
    return 3 * x


SQUARE = X[:, :4]


@pytest.mark.parametrize(
    "got_from, words",
    [
        (lambda x: (3 * x).T, "right when transposed"),
        (lambda x: 3 * x + 10, "off by 10 everywhere"),
        (lambda x: 1.5 * x, "0.5 times what it should be"),
        (lambda x: 0 * x, "zero everywhere"),
        (lambda x: 3 * x.clamp(min=0), "the wrong ones are zero"),
        (lambda x: 3 * x * torch.tensor([1, 1, 1, float("nan")]), "4 of them are NaN"),
        (lambda x: 3 * x + torch.tensor([[0], [0], [1], [1]]), "at 2..3 along M"),
    ],
)
def test_diagnosis(got_from, words):
    mismatch = judge(matrix, got_from, SQUARE, M=4, T=4)
    assert words in mismatch.diagnosis


def relu(x: Float32[Tensor, "M T"]) -> Float32[Tensor, "M T"]:
    return x.relu()


def test_diagnosis_of_a_forgotten_relu():
    assert (
        judge(relu, lambda x: x, SQUARE, M=4, T=4).diagnosis == "the wrong ones are those that should be zero"
    )


@pytest.mark.parametrize(
    "got_from, words",
    [
        (lambda x: x[:, :32].sum(1), "only the first block of T counts"),
        (lambda x: x[:, 992:].sum(1), "only the last block of T counts"),
    ],
)
def test_diagnosis_names_the_block_that_counts(got_from, words):
    assert words in judge(row_sum, got_from, X, M=4, T=1000, BLOCK_T=32).diagnosis
