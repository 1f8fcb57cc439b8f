"""The comparison is tight, scale-aware, and says where a result went wrong."""

import dataclasses
import re

import pytest
import torch
from jaxtyping import BFloat16, Float32, Int32
from torch import Tensor

from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import expected
from puzzles_lib.checker.compare import compare
from puzzles_lib.checker.expected import FLOAT32_ROUNDOFF, Expected, expect
from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Argument, Case, Puzzle


def row_sum(x: Float32[Tensor, "M T"]) -> Float32[Tensor, " M"]:
    return x.sum(1)


def softmax(x: Float32[Tensor, "M T"]) -> Float32[Tensor, "M T"]:
    return torch.softmax(x, 1)


def packed_rows(x: Int32[Tensor, " M N//2"]) -> Int32[Tensor, " M N//2"]:
    return x


def doubled(x: Int32[Tensor, " N"]) -> Int32[Tensor, " N"]:
    return 2 * x


def puzzle_of(spec, **numbers) -> Puzzle:
    return Puzzle(number="0", spec=spec, grid=lambda s: (1,), cases=(Case(**numbers),))


def judge(spec, got_from, x, dots=True, **numbers):
    """Compare ``got_from(x)`` with what the spec says."""
    puzzle = puzzle_of(spec, **numbers)
    inputs = {"x": x}
    expected = expect(puzzle, puzzle.cases[0], inputs)["z"]
    return compare(expected, got_from(x), puzzle, puzzle.cases[0], inputs, dots)


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
        "1 of 100 elements. z[7] is 15, but should be 14"
        in judge(doubled, lambda x: 2 * x + (x == 7), x, N=100).message
    )


def test_a_number_that_the_dtype_cannot_hold_is_told_as_0():
    x = torch.tensor([[0.0, -300.0]])
    message = judge(softmax, lambda x: torch.tensor([[1.0, torch.nan]]), x, M=1, T=2).message
    assert message.endswith("z[0, 1] is nan, but should be 0")


@pytest.mark.parametrize(
    "dtype, got, told",
    [
        ("float32", -1.03125, "is -1.03125, but should be -1.50092"),
        ("float16", -1.03125, "is -1.03125, but should be -1.50098"),
        ("bfloat16", -1.03125, "is -1.03125, but should be -1.5"),
        ("bfloat16", -1.5078125, "is -1.50781, but should be -1.5"),
    ],
)
def test_a_wanted_value_has_no_digits_that_its_dtype_lacks(dtype, got, told):
    """In bfloat16, no number is between -1.5078125 and -1.5."""
    exact = torch.tensor([[-1.50092]], dtype=torch.float64)
    argument = Argument("z", getattr(torch, dtype), ("M", "T"))
    wanted = Expected(argument, exact, torch.full_like(exact, 1e-5))
    puzzle, x = puzzle_of(softmax, M=1, T=1), torch.zeros(1, 1)
    mismatch = compare(wanted, torch.tensor([[got]], dtype=argument.dtype), puzzle, puzzle.cases[0], {"x": x})
    assert mismatch.message.endswith(told)


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
        (lambda x: (3 * x).T, "the result is transposed"),
        (lambda x: 3 * x + 10, "every element is too high by 10"),
        (lambda x: 3 * x - 10, "every element is too low by 10"),
        (lambda x: torch.full_like(x, 2.0), "every element of z is 2"),
        (lambda x: 0 * x + 3 * x[0, 0], "which is right only for z[0, 0]: is one number loaded"),
        (lambda x: 1.5 * x, "0.5 times what it should be"),
        (lambda x: -3 * x, "the sign is wrong: every element is -1 times what it should be"),
        (lambda x: 0 * x, "zero everywhere"),
        (lambda x: 3 * x.clamp(min=0), "all wrong elements are zero"),
        (lambda x: 3 * x * torch.tensor([1, 1, 1, float("nan")]), "4 of them are NaN"),
        (lambda x: torch.where(x == x[0, 0], torch.nan, 3 * x), "one of them is NaN: "),
        (lambda x: 3 * x + torch.tensor([[0], [0], [1], [1]]), "at 2–3 along M"),
        (lambda x: 3 * x * torch.tensor([[1], [0.5], [2], [1]]), "its own factor, 0.5 to 2"),
    ],
)
def test_diagnosis(got_from, words):
    mismatch = judge(matrix, got_from, SQUARE, M=4, T=4)
    assert words in mismatch.diagnosis


TALL = torch.randn(40, 6, generator=torch.Generator().manual_seed(2))
ROWS = torch.arange(40)[:, None]


@pytest.mark.parametrize(
    "wrong, words",
    [
        (ROWS % 2 == 1, "every 2nd place along M, starting at 1 (BLOCK_M is 8)"),
        (ROWS % 13 == 2, "every 13th place along M, starting at 2 (BLOCK_M is 8)"),
        (ROWS % 8 >= 6, "places 6–7 of every block of M"),
        (ROWS % 8 == 3, "every 8th place along M, starting at 3 (BLOCK_M is 8)"),
        ((ROWS >= 8) & (ROWS != 20), "8–39 along M"),  # one of them came out right by luck
        ((ROWS > 0) & (ROWS % 5 != 2), ""),  # most of them, here and there
        (ROWS == 9, "9 along M"),
        ((ROWS >= 16) & (torch.arange(6) == 4), "16–39 along M and 4 along T"),
        ((ROWS == 9) & (torch.arange(6) == 4), ""),  # the message names it
    ],
)
def test_places_are_named_where_the_wrong_ones_fill_them(wrong, words):
    noise = torch.rand(40, 6, generator=torch.Generator().manual_seed(3)) + 1
    mismatch = judge(matrix, lambda x: torch.where(wrong, noise, 3 * x), TALL, M=40, T=6, BLOCK_M=8)
    assert mismatch.diagnosis == (f"all wrong elements are at {words}" if words else "")


def test_a_row_that_should_be_zero_is_no_evidence_of_a_place():
    """A fault that leaves zeros correct leaves a whole row of them correct."""
    for zeros, words in ((0, "all wrong elements are at 0–6 along M"), (8, "")):
        x = torch.randn(8, 8, generator=torch.Generator().manual_seed(4))
        x[7, :zeros] = 0
        wrong = (torch.arange(8)[:, None] < 7) & (x > 0)
        mismatch = judge(matrix, lambda x, wrong=wrong: torch.where(wrong, 4 * x, 3 * x), x, M=8, T=8)
        assert mismatch.diagnosis == words


def test_lanes_that_count_beyond_a_row_are_asked_for_where_there_are_some():
    def with_zeros(x):
        exp = (x - x.amax(1, keepdim=True)).exp()
        return exp / (exp.sum(1, keepdim=True) + 24 * (0 - x.amax(1, keepdim=True)).exp())

    x = X[:, :200]
    said = judge(softmax, with_zeros, x, M=4, T=200, BLOCK_T=32).diagnosis
    assert said.startswith("each row is off by its own factor") and "do lanes past T count" in said
    assert "lanes" not in judge(softmax, with_zeros, x, M=4, T=200, BLOCK_T=8).diagnosis


def product(x: Float32[Tensor, "M T"]) -> Float32[Tensor, "M M"]:
    return x @ x.T


@pytest.mark.parametrize("coarse", [torch.float16, torch.bfloat16, "tf32"])
def test_errors_of_the_size_of_a_coarser_type_are_told_as_such(coarse):
    def rounded(x):
        if coarse == "tf32":
            return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)
        return x.to(coarse).float()

    x = torch.randn(16, 100, generator=torch.Generator().manual_seed(4))
    said = judge(product, lambda x: product(rounded(x)), x, M=16, T=100).diagnosis
    assert said.startswith("the errors are as small as a coarser type's") and "input_precision" in said
    without_dots = judge(product, lambda x: product(rounded(x)), x, dots=False, M=16, T=100).diagnosis
    assert "is something float16 or bfloat16?" in without_dots and "TF32" not in without_dots
    noise = 1 + torch.randn(16, 16, generator=torch.Generator().manual_seed(5)) / 10
    assert "coarser" not in judge(product, lambda x: product(x) * noise, x, M=16, T=100).diagnosis


def test_a_block_whose_elements_are_all_the_same_is_told_as_such():
    def folded(x):
        return torch.cat([x[i : i + 2].sum().expand(2) for i in (0, 2)])

    said = judge(row_sum, folded, X, M=4, T=1000, BLOCK_M=2).diagnosis
    assert said.startswith("all elements of a block of M are equal")


# ---- what is rounded, what is copied


def a_third(x: BFloat16[Tensor, "M T"]) -> BFloat16[Tensor, "M T"]:
    return x / 3


def cut_off(x):
    return (x.float() / 3).view(torch.int32).bitwise_and(-65536).view(torch.float32).bfloat16()


def a_unit_more(x):
    return ((x.float() / 3).bfloat16().view(torch.int16) + 1).view(torch.bfloat16)


COARSE = X[:, :50].bfloat16()


def test_a_rounded_result_may_be_half_a_unit_off_and_no_more():
    for right in (lambda x: (x.float() / 3).bfloat16(), lambda x: (x.float() * (1 / 3)).bfloat16()):
        assert judge(a_third, right, COARSE, M=4, T=50) is None
    for wrong in (a_unit_more, lambda x: (x.float() / 3 * 1.004).bfloat16()):
        assert judge(a_third, wrong, COARSE, M=4, T=50) is not None


def test_what_is_cut_off_instead_of_rounded_is_told_so():
    said = judge(a_third, cut_off, COARSE, M=4, T=50).diagnosis
    assert (
        said
        == "the result looks truncated instead of rounded: .to(tl.bfloat16) rounds to the nearest bfloat16"
    )
    assert "truncated" not in judge(a_third, a_unit_more, COARSE, M=4, T=50).diagnosis


def test_copies_are_compared_bit_for_bit():
    def copy(x: BFloat16[Tensor, "M T"]) -> BFloat16[Tensor, "M T"]:
        return x

    values = torch.tensor([[1e5, 1e-8, 2.0**-126, -0.0, float("nan"), float("inf"), 1.0, 3e38]]).bfloat16()
    puzzle = dataclasses.replace(puzzle_of(copy, M=1, T=8), exact=("z",))

    def compared(got):
        inputs = {"x": values}
        case = puzzle.cases[0]
        return compare(expect(puzzle, case, inputs)["z"], got, puzzle, case, inputs)

    assert compared(values.clone()) is None
    assert compared(values.abs()) is None  # -0 and 0 are one
    assert compared(values.half().bfloat16()) is not None
    assert compared(torch.where(values.abs() < 1e-30, 0.0, values)) is not None
    assert compared((values.view(torch.int16) & -2).view(torch.bfloat16)) is not None


def test_rows_of_very_different_sizes_are_judged_by_their_own():
    sizes = torch.tensor([1e5, 1e-8] * 6)[:, None]
    x = torch.randn(12, 40, generator=torch.Generator().manual_seed(6)) * sizes
    assert judge(matrix, lambda x: 3 * x, x, M=12, T=40) is None
    assert judge(matrix, lambda x: 3 * torch.where(x.abs() < 1e-6, 0.0, x), x, M=12, T=40) is not None


# ---- slips that a puzzle knows


def test_a_slip_that_the_puzzle_knows_is_named():
    puzzle = dataclasses.replace(puzzle_of(matrix, M=4, T=4), slips={"it lacks the 3": lambda x: x})
    inputs = {"x": SQUARE}
    expected = expect(puzzle, puzzle.cases[0], inputs)["z"]
    assert compare(expected, SQUARE.clone(), puzzle, puzzle.cases[0], inputs).diagnosis == "it lacks the 3"
    assert "lacks" not in compare(expected, 2 * SQUARE, puzzle, puzzle.cases[0], inputs).diagnosis
    of_a_size = dataclasses.replace(puzzle, slips={"it is T times x": lambda x, T: T * x})
    assert compare(expected, 4 * SQUARE, of_a_size, puzzle.cases[0], inputs).diagnosis == "it is T times x"


def test_the_nearest_of_several_slips_is_named():
    """The others may be within what a slip is allowed, too."""
    texts = {"nearly": lambda x: x + 2.0**-18 * x.abs().max(), "exactly": lambda x: x}
    for slips in (texts, dict(reversed(texts.items()))):
        puzzle = dataclasses.replace(puzzle_of(matrix, M=4, T=4), slips=slips)
        expected = expect(puzzle, puzzle.cases[0], {"x": SQUARE})["z"]
        told = compare(expected, SQUARE.clone(), puzzle, puzzle.cases[0], {"x": SQUARE})
        assert told.diagnosis == "exactly"


def test_nan_that_is_expected_is_not_told():
    x = SQUARE.clone()
    x[1, 2] = torch.nan

    def one_wrong(x):
        z = 3 * x
        z[3, 3] += 1
        return z

    told = judge(matrix, one_wrong, x, M=4, T=4)
    assert "NaN" not in told.diagnosis and "1 of 16" in told.message


def test_a_slip_may_turn_nan_into_a_number():
    """How far a number is from NaN is NaN, and infinities are no reason to take all others for equal."""
    x = torch.tensor([[-2.0, torch.nan, torch.inf, 3.0]])
    dropped = {"it drops NaN": lambda x: torch.where(x > 0, x, 0)}
    puzzle = dataclasses.replace(puzzle_of(relu, M=1, T=4), slips=dropped)
    expected = expect(puzzle, puzzle.cases[0], {"x": x})["z"]
    for got, named in (([0.0, 0.0, torch.inf, 3.0], True), ([0.0, 0.0, torch.inf, 4.0], False),
                       ([0.0, 0.0, 5.0, 3.0], False)):  # fmt: skip
        told = compare(expected, torch.tensor([got]), puzzle, puzzle.cases[0], {"x": x}).diagnosis
        assert (told == "it drops NaN") == named


def test_an_axis_that_is_a_formula_goes_by_its_number():
    x = torch.arange(24, dtype=torch.int32).view(4, 6)
    wrong = torch.where(x % 6 == 5, 99 - x, x)
    told = judge(packed_rows, lambda x: wrong, x, M=4, N=12).diagnosis
    assert told == "all wrong elements are at 5 along axis 1"


def test_of_integers_a_slip_must_give_each():
    """A word that differs in its low bits is as wrong as any, and close to the slip's."""
    puzzle = dataclasses.replace(puzzle_of(doubled, N=2), slips={"it is tripled": lambda x: 3 * x})
    x = torch.tensor([2**28, 5], dtype=torch.int32)
    expected = expect(puzzle, puzzle.cases[0], {"x": x})["z"]
    told = [compare(expected, 3 * x + n, puzzle, puzzle.cases[0], {"x": x}).diagnosis for n in (0, 1)]
    assert told[0] == "it is tripled" and "tripled" not in told[1]


def relu(x: Float32[Tensor, "M T"]) -> Float32[Tensor, "M T"]:
    return x.relu()


def test_diagnosis_of_a_forgotten_relu():
    assert (
        judge(relu, lambda x: x, SQUARE, M=4, T=4).diagnosis
        == "exactly the elements that should be zero are wrong"
    )


@pytest.mark.parametrize(
    "got_from, words",
    [
        (lambda x: x[:, :32].sum(1), "only the first block of T contributes to the result"),
        (lambda x: x[:, 992:].sum(1), "only the last block of T contributes to the result"),
        (lambda x: x[:, :992].sum(1), "the last, partial block of T doesn't contribute"),
    ],
)
def test_diagnosis_names_the_block_that_counts(got_from, words):
    assert words in judge(row_sum, got_from, X, M=4, T=1000, BLOCK_T=32).diagnosis


GROUPS = {"integers:": "integers", "`Puzzle.exact`:": "exact", "float16,": "rounded", "float64,": "float64"}


def kind_of(puzzle, result) -> str:
    row = of_torch(result.dtype)
    if result.name in puzzle.exact:
        return "exact"
    if not row.is_float:
        return "integers"
    return "rounded" if row.roundoff > FLOAT32_ROUNDOFF else row.name


def test_the_table_of_what_counts_as_right_names_its_puzzles():
    told: dict[str, str] = {}
    name = ""
    for line in expected.__doc__.partition("puzzles\n")[2].partition("\n\n")[0].splitlines():
        name = line.split()[0] if line[4] != " " else name
        told[name] = told.get(name, "") + "," + line[86:]
    found = {
        name: {n for part in text.replace(" ", "").split(",") for n in numbers(part)}
        for name, text in told.items()
    }
    every = puzzles()
    for name, kind in GROUPS.items():
        assert found[name] - {"none"} == {
            p.number for p in every if any(kind_of(p, result) == kind for result in p.results)
        }, name
    assert found["what"] == {p.number for p in every if p.allowance}


def numbers(part: str) -> list[str]:
    """``"35-38"``: what it stands for."""
    first, dash, last = part.partition("-")
    return [str(n) for n in range(int(first), int(last) + 1)] if dash else [first] * bool(first)


def test_a_millionth_of_the_value_is_accepted_and_ten_are_not():
    x = {"x": X[:, :1].contiguous()}
    puzzle = puzzle_of(row_sum, M=4, T=1)
    (want,) = expect(puzzle, puzzle.cases[0], x).values()
    assert want.accepts((want.value * (1 + 1e-6)).float()).all()
    assert not want.accepts((want.value * (1 + 1e-5)).float()).any()


def halves(x: Float32[Tensor, " N"]) -> Int32[Tensor, " N"]:
    return (x / 2).round().int()


def plus_one(x: Int32[Tensor, " N"]) -> Int32[Tensor, " N"]:
    return x + 1


@pytest.mark.parametrize(
    "cut, told",
    [
        (torch.trunc, "1 too close to zero: is it truncated"),
        (torch.floor, "1 too small: is it rounded down?"),
        (torch.ceil, "1 too large: is it rounded up?"),
        (lambda x: x.sign() * x.abs().ceil(), "1 too far from zero"),
    ],
)
def test_integers_off_by_one_to_one_side_are_told_so(cut, told):
    x = torch.arange(-40, 41, dtype=torch.float32)
    assert told in judge(halves, lambda x: cut(x / 2).int(), x, N=81).diagnosis
    few = judge(halves, lambda x: cut(x / 2).int(), x[:11], N=11)
    assert told not in few.diagnosis


def test_integers_made_of_integers_are_not_said_to_be_rounded():
    x = torch.arange(40, dtype=torch.int32)
    assert (
        judge(plus_one, lambda x: x + 1 + (x % 2 == 1), x, N=40).diagnosis
        == "each wrong element is 1 too far from zero"
    )


def test_the_zeros_that_are_wrong_are_counted():
    x = torch.arange(-8, 8, dtype=torch.float32)
    some = judge(relu, lambda x: torch.where(x == -3, 1.0, x.clamp(min=0)), x.reshape(4, 4), M=4, T=4)
    assert some.diagnosis == "1 of the 9 elements that should be zero are wrong, and no others"


def packed(x: Int32[Tensor, "M N"], BITS: int) -> Int32[Tensor, " M N*BITS//32"]:
    fields = x.reshape(len(x), -1, 32 // BITS)
    return (fields << BITS * torch.arange(32 // BITS)).sum(-1).int()


def test_a_wrong_word_is_decoded():
    x = torch.arange(8, dtype=torch.int32)[None]
    mismatch = judge(packed, lambda x: packed(x, 4) + (1 << 8), x, M=1, N=8, BITS=4)
    assert mismatch.message.endswith("(field 2: got 3, want 2)")


def test_the_error_and_what_is_allowed_are_said_where_values_look_alike():
    ones = judge(row_sum, lambda x: x.sum(1) * (1 + 4.9e-6), torch.ones(4, 1), M=4, T=1)
    assert re.search(r"is 1\.00000489, but should be 1 \(off by 4\.9e-06, allowed \d\S+\)$", ones.message)


def test_a_factor_near_1_is_not_told_as_1():
    x = torch.tensor([[1.0], [2.0], [4.0], [8.0]])
    told = judge(row_sum, lambda x: x.sum(1) * (1 + 1e-5), x, M=4, T=1).diagnosis
    assert told == "every element is 1.00001 times what it should be"


def test_values_that_were_rounded_are_not_off_by_a_factor():
    coarse = 0.009 * torch.tensor([1.0, -1.0]).repeat(4, 25)
    mismatch = judge(a_third, lambda x: (x.float() / 3 * (1 + coarse)).bfloat16(), COARSE, M=4, T=50)
    assert mismatch is not None and "every element" not in mismatch.diagnosis


def test_neighbours_of_a_flag_are_no_roundings():
    x = torch.arange(40, dtype=torch.int32) % 2
    assert "each wrong element" not in judge(doubled, lambda x: x, x, N=40).diagnosis
    mixed = torch.arange(40, dtype=torch.int32)
    assert "each wrong element" not in judge(doubled, lambda x: 2 * x + x % 3 - 1, mixed, N=40).diagnosis
