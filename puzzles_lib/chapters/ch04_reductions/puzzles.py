"""Chapter 04: loops along a row, sums and maxima, and softmax in three loops and in two."""

from types import SimpleNamespace

import torch
import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import inputs
from puzzles_lib.contract import Contract, Size
from puzzles_lib.puzzle import Case, Puzzle


def lone_peaks(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return rows in which one element is 200 above the rest: the first, the last or an inner one, in turn.

    Each row is 400 above the one before. exp() of a difference of 100 overflows float32, so only the row's
    own maximum works: not the maximum of another row or of a part of the row.
    """
    columns = shape[-1]
    values = torch.randn(shape, generator=generator)
    for i, row in enumerate(values.view(-1, columns)):
        row += 400.0 * i
        row[(0, columns - 1, columns * 3 // 4)[i % 3]] += 200.0
    return values.to(dtype)


def masked_half(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return rows as from `lone_peaks` with the first or last half, in turn, set to -inf, as a mask does."""
    values = lone_peaks(shape, dtype, generator)
    rows = values.view(-1, shape[-1])
    rows[0::2, : shape[-1] // 2] = float("-inf")
    rows[1::2, shape[-1] // 2 :] = float("-inf")
    return values


def many_blocks(numbers: SimpleNamespace) -> tuple[int, ...]:
    """Return block sizes that cut a long row into more blocks than any row of the cases has."""
    return (128,) if numbers.N > 1000 else (32, 256, 1024)


def long_sum(x: Float32[Tensor, "M N"]) -> Float32[Tensor, " M"]:
    """z[m] = Σ_n x[m, n], rows of any length"""
    return x.sum(dim=1)


def _into_the_next_row(x: Tensor, BLOCK_N: int) -> Tensor:
    """The mask is offs < M * N: the last block of a row runs on into the next row."""
    rows, columns = x.shape
    walked = triton.cdiv(columns, BLOCK_N) * BLOCK_N
    return torch.nn.functional.pad(x.flatten(), (0, walked)).unfold(0, walked, columns)[:rows].sum(dim=1)


def _without_the_last_column(x: Tensor) -> Tensor:
    return x[:, :-1].sum(dim=1)


def _subtracted(x: Tensor) -> Tensor:
    return -x.sum(dim=1)


def _in_float16(x: Tensor, BLOCK_N: int) -> Tensor:
    acc = torch.zeros(len(x), dtype=torch.float16)
    for block in x.float().split(BLOCK_N, dim=1):
        acc = (acc.float() + block.sum(dim=1)).half()
    return acc


def _largest(x: Tensor) -> Tensor:
    return x.amax(dim=1)


def _mean(x: Tensor) -> Tensor:
    return x.mean(dim=1)


def _from_one(x: Tensor) -> Tensor:
    return 1.0 + x.sum(dim=1)


def _of_offsets(x: Tensor) -> Tensor:
    return torch.arange(x.numel(), dtype=x.dtype).view_as(x).sum(dim=1)


def _less_and_less(x: Tensor, BLOCK_N: int) -> Tensor:
    """The mask is offs_n < N - start, although offs_n contains start already."""
    columns = torch.arange(x.shape[1])
    return (x * (columns < x.shape[1] - columns // BLOCK_N * BLOCK_N)).sum(dim=1)


LONG_SUM = Puzzle(
    number="7",
    spec=long_sum,
    formula=r"z_m = \sum_{n=0}^{N-1} x_{m,n}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    slips={
        "lanes past the end of a row are in the next row, and are summed: compare columns with N": (
            _into_the_next_row
        ),
        "the last column isn't summed: lanes are on where their column is below N": _without_the_last_column,
        "every sum has the wrong sign: add to acc": _subtracted,
        "each result is the largest number of its row: tl.sum adds up a row, tl.max doesn't": _largest,
        "each result is the mean of its row: store the sum": _mean,
        "each sum is too high by 1: acc starts at 0": _from_one,
        "the offsets are summed: load the numbers of x at these offsets": _of_offsets,
        "the mask has fewer lanes in each block: offs_n contains start already, so compare it with N": (
            _less_and_less
        ),
        "acc is rounded to float16: keep it in float32": _in_float16,
    },
    cases=(
        Case(M=1, N=32, BLOCK_M=1, BLOCK_N=32),  # one program, one row, one block
        Case(M=8, N=320, BLOCK_M=2, BLOCK_N=64),  # several programs, rows and blocks
        Case(M=5, N=200, BLOCK_M=4, BLOCK_N=64),  # ragged on both axes
        Case(M=3, N=20, BLOCK_M=8, BLOCK_N=32),  # fewer rows, and columns, than a block
        Case(M=40, N=65, BLOCK_M=32, BLOCK_N=16, fill={"x": inputs.large}),  # a last block of one column
    ),
    contract=Contract({"M": Size(150), "N": Size(2100), "BLOCK_M": (4, 32, 64), "BLOCK_N": many_blocks}),
)


SOFTMAX_CASES = (
    Case(M=1, N=32, BLOCK_M=1, BLOCK_N=32),  # one program, one row, one block
    Case(M=64, N=48, BLOCK_M=32, BLOCK_N=16),  # several programs, rows and blocks
    Case(M=5, N=200, BLOCK_M=4, BLOCK_N=64),  # ragged on both axes
    Case(M=3, N=150, BLOCK_M=4, BLOCK_N=128, fill={"x": inputs.large}),
    Case(M=3, N=150, BLOCK_M=4, BLOCK_N=128, fill={"x": inputs.very_negative}),
    Case(M=3, N=150, BLOCK_M=4, BLOCK_N=64, fill={"x": inputs.late_maximum}),
    Case(M=3, N=129, BLOCK_M=4, BLOCK_N=64, fill={"x": lone_peaks}),
    Case(M=40, N=97, BLOCK_M=64, BLOCK_N=32, fill={"x": masked_half}),
)

SOFTMAX_HARD = {
    inputs.CREEPING: Case(M=1, N=512, BLOCK_M=1, BLOCK_N=16, fill={"x": inputs.creeping}),
}

SOFTMAX_CONTRACT = Contract(
    {"M": Size(150), "N": Size(2100), "BLOCK_M": (4, 32, 64), "BLOCK_N": many_blocks},
    fills=lambda s: ({"x": inputs.far_below}, {"x": masked_half}),
)


def long_softmax(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    """z[m, n] = exp(x[m, n]) / Σ_k exp(x[m, k]), rows of any length

    x may be large, and may contain -inf, but no row is all -inf.
    """
    exp = (x - x.amax(dim=1, keepdim=True)).exp()
    return exp / exp.sum(dim=1, keepdim=True)


def _undivided(x: Tensor) -> Tensor:
    return (x - x.amax(dim=1, keepdim=True)).exp()


def _plain_denominator(x: Tensor) -> Tensor:
    return _undivided(x) / x.exp().sum(dim=1, keepdim=True)


def _plain_numerator(x: Tensor) -> Tensor:
    return x.exp() / _undivided(x).sum(dim=1, keepdim=True)


def _of_all_rows(sums: Tensor, BLOCK_M: int) -> Tensor:
    """Return the total of each program's rows for each of these rows."""
    padded = torch.nn.functional.pad(sums, (0, -len(sums) % BLOCK_M))
    return padded.view(-1, BLOCK_M).sum(dim=1).repeat_interleave(BLOCK_M)[: len(sums)]


def _denominator_of_all_rows(x: Tensor, BLOCK_M: int) -> Tensor:
    if len(x) % BLOCK_M:  # a missing row's sum is NaN: such results have many causes
        return long_softmax(x)
    exp = _undivided(x)
    return exp / _of_all_rows(exp.sum(dim=1), BLOCK_M)[:, None]


def _with_maximum(x: Tensor, row_max: Tensor) -> Tensor:
    """Return a softmax relative to this maximum, in float32 as on a GPU."""
    exp = (x.float() - row_max.float()[:, None]).exp()
    return exp / exp.sum(dim=1, keepdim=True)


def _last_block_maximum(x: Tensor, BLOCK_N: int) -> Tensor:
    return _with_maximum(x, x.split(BLOCK_N, dim=1)[-1].amax(dim=1))


def _maximum_from_zero(x: Tensor) -> Tensor:
    return _with_maximum(x, x.amax(dim=1).clamp(min=0.0))


def _maximum_of_all_rows(x: Tensor, BLOCK_M: int) -> Tensor:
    """Return a softmax relative to the largest number of each program."""
    groups = x.amax(dim=1).split(BLOCK_M)
    return _with_maximum(x, torch.cat([group.max().expand(len(group)) for group in groups]))


def _last_block_sum(x: Tensor, BLOCK_N: int) -> Tensor:
    exp = _undivided(x)
    return exp / exp.split(BLOCK_N, dim=1)[-1].sum(dim=1, keepdim=True)


def _denominator_from_one(x: Tensor) -> Tensor:
    exp = _undivided(x)
    return exp / (1.0 + exp.sum(dim=1, keepdim=True))


def _sum_without_exp(x: Tensor) -> Tensor:
    less = x - x.amax(dim=1, keepdim=True)
    return less.exp() / less.sum(dim=1, keepdim=True)


def _turned_around(x: Tensor) -> Tensor:
    return long_softmax(-x)


def _exp_of_the_sum(x: Tensor) -> Tensor:
    less = (x - x.amax(dim=1, keepdim=True)).float()
    return less.exp() / less.sum(dim=1, keepdim=True).exp()


def _x_divided(x: Tensor) -> Tensor:
    return x / _undivided(x).sum(dim=1, keepdim=True)


def _log(x: Tensor) -> Tensor:
    return x.log_softmax(dim=1)


def _of_columns(x: Tensor, BLOCK_M: int) -> Tensor:
    """Return what tl.softmax makes of a tile without an axis: its columns are softmaxes."""
    return torch.cat([rows.softmax(dim=0) for rows in x.split(BLOCK_M)])


def _walked(x: Tensor, BLOCK_M: int, BLOCK_N: int, slip: str) -> Tensor:
    """Return what an online softmax with one slip computes, in float32 as on a GPU."""
    x = x.float()
    row_max, denominator = torch.full_like(x[:, 0], -1e30), torch.zeros_like(x[:, 0])
    for block in x.split(BLOCK_N, dim=1):
        new_max = row_max.maximum(block.amax(dim=1))
        if slip == "block maximum":
            new_max = block.amax(dim=1)
        subtracted = row_max if slip == "old maximum" else new_max
        added = (block - subtracted[:, None]).exp().sum(dim=1)
        if slip == "all rows":
            added = _of_all_rows(added, BLOCK_M)
        factor = (row_max - new_max).exp()
        if slip == "no factor":
            factor = torch.ones_like(factor)
        elif slip == "factor in powers of 2":
            factor = (row_max - new_max).exp2()
        elif slip == "factor without exp":
            factor = row_max - new_max
        elif slip == "sum of maxima":
            factor = (row_max + new_max).exp()
        denominator = denominator * factor + added
        row_max = new_max
    return (x - row_max[:, None]).exp() / denominator[:, None]


def _not_rescaled(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "no factor")


def _relative_to_the_old_maximum(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "old maximum")


def _this_block_maximum(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "block maximum")


def _factor_in_powers_of_two(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "factor in powers of 2")


def _added_for_all_rows(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "all rows")


def _factor_without_exp(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "factor without exp")


def _factor_of_a_sum(x: Tensor, BLOCK_M: int, BLOCK_N: int) -> Tensor:
    return _walked(x, BLOCK_M, BLOCK_N, "sum of maxima")


def _sum_of_powers_of_two(x: Tensor) -> Tensor:
    return _undivided(x) / (x - x.amax(dim=1, keepdim=True)).exp2().sum(dim=1, keepdim=True)


def _powers_of_two_over_a_sum_of_e(x: Tensor) -> Tensor:
    return (x - x.amax(dim=1, keepdim=True)).exp2() / _undivided(x).sum(dim=1, keepdim=True)


MAX_OF_ALL = "each row has the maximum of all rows of its program: does tl.max have its axis?"
TOO_HIGH = "the maximum is far above all numbers of a negative row"
NO_AXIS = "each row has the denominator of all rows of its program: does tl.sum have its axis?"

SLIPS = {
    MAX_OF_ALL: _maximum_of_all_rows,
    "the denominator starts at 1: a sum starts at 0": _denominator_from_one,
    "the denominator sums x minus the maximum: it needs the exponentials of that": _sum_without_exp,
    "the exponentials aren't divided by the denominator": _undivided,
    "the denominator's exponentials lack the maximum: subtract it, as in the result": _plain_denominator,
    "the result's exponentials lack the maximum: subtract it, as in the denominator": _plain_numerator,
    "every exponent has the wrong sign: it's an element of x minus the maximum": _turned_around,
    "the denominator is the exponential of a sum: take the exponentials first, then add them up": (
        _exp_of_the_sum
    ),
    "x itself is divided: divide its exponentials": _x_divided,
    "each result is the logarithm of a probability: store the probability": _log,
    "the columns of a tile add up to 1: tl.softmax knows no other block of the row": _of_columns,
}

LONG_SOFTMAX = Puzzle(
    number="8",
    spec=long_softmax,
    formula=(
        r"z_{m,n} = \frac{e^{x_{m,n}}}{\sum_k e^{x_{m,k}}}"
        r" = \frac{e^{x_{m,n} - \mu_m}}{\sum_k e^{x_{m,k} - \mu_m}}, \qquad \mu_m = \max_k x_{m,k}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    slips=SLIPS
    | {
        f"{TOO_HIGH}: start it at -inf, and pad with -inf": _maximum_from_zero,
        NO_AXIS: _denominator_of_all_rows,
        "row_max is the last block's maximum: keep the larger one of row_max and this block's": (
            _last_block_maximum
        ),
        "the denominator is the last block's: add each block to it": _last_block_sum,
    },
    hard=SOFTMAX_HARD,
    cases=SOFTMAX_CASES,
    contract=SOFTMAX_CONTRACT,
)


def online_softmax(x: Float32[Tensor, "M N"]) -> Float32[Tensor, "M N"]:
    """z[m, n] = exp(x[m, n]) / Σ_k exp(x[m, k]), in two loops

    Each element of x is loaded at most twice.
    x may be large, and may contain -inf, but no row is all -inf.
    """
    exp = (x - x.amax(dim=1, keepdim=True)).exp()
    return exp / exp.sum(dim=1, keepdim=True)


def _twice(case: Case) -> int:
    """Return how many loads of x two loops over every row make."""
    return 2 * case.M * case.N


ONLINE_SOFTMAX = Puzzle(
    number="8b",
    spec=online_softmax,
    formula=r"z_{m,n} = \frac{e^{x_{m,n}}}{\sum_k e^{x_{m,k}}}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    most_loads={"x": _twice},
    slips=SLIPS
    | {
        f"{TOO_HIGH}: start it at -1e30": _maximum_from_zero,
        "the old denominator isn't rescaled when the maximum rises: is the factor missing, or always 1?": (
            _not_rescaled
        ),
        "new_max is this block's maximum: keep the larger one of row_max and this block's": (
            _this_block_maximum
        ),
        "the factor has powers of 2, the new terms have powers of e: do both in the same way": (
            _factor_in_powers_of_two
        ),
        "the factor is a difference of maxima: it needs tl.exp": _factor_without_exp,
        "the factor adds the two maxima: it's the exponential of old minus new": _factor_of_a_sum,
        "the denominator is the last block's: add each block to the old one": _last_block_sum,
        "the result is zero everywhere: do the new terms lack the new maximum?": _relative_to_the_old_maximum,
        "the denominator has powers of 2, the result has powers of e: do both in the same way": (
            _sum_of_powers_of_two
        ),
        "the result has powers of 2, the denominator has powers of e: do both in the same way": (
            _powers_of_two_over_a_sum_of_e
        ),
        NO_AXIS: _added_for_all_rows,
    },
    hard=SOFTMAX_HARD,
    cases=SOFTMAX_CASES,
    contract=SOFTMAX_CONTRACT,
)

PUZZLES = (LONG_SUM, LONG_SOFTMAX, ONLINE_SOFTMAX)
