"""Where a NaN comes from: what a report says of it, and that only stored lanes count."""

import re

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float16, Float32
from torch import Tensor

from puzzles_lib import (
    LINEAR_CROSS_ENTROPY_GRAD,
    LONG_SOFTMAX,
    MXFP4_MATMUL,
    ONLINE_SOFTMAX,
    RELU_UNPACK_BACKWARD,
    Case,
    Puzzle,
    check,
)
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.inputs import make_inputs
from puzzles_lib.source import define


def first_lines(puzzle, right: str, wrong: str) -> str:
    source = kernel_sources()[puzzle.name]
    assert right in source
    report = check(define(source.replace(right, wrong), "<a slip>"), puzzle)
    return "\n".join(report.verdicts[0].lines())


def test_a_softmax_without_the_maximum_divides_inf_by_inf():
    told = first_lines(LONG_SOFTMAX, "tl.exp(x - row_max[:, None])", "tl.exp(x)")
    where = re.search(
        r"are NaN: inf / inf, and the inf came from an exp that overflowed on line (\d+)\n", told
    )
    lines = kernel_sources()[LONG_SOFTMAX.name].splitlines()
    assert where and "denominator += tl.sum(tl.exp(" in lines[int(where[1]) - 1]
    assert "look for" not in told and told.splitlines()[-1].startswith("line ") and "/ denominator" in told


def test_a_start_at_minus_infinity_subtracts_infinities():
    told = first_lines(ONLINE_SOFTMAX, "-1e30", 'float("-inf")')
    assert "NaN: -inf - (-inf)\n" in told and "exp" in told.splitlines()[-1]


def test_a_cause_is_told_instead_of_the_exp_that_overflows_for_it():
    told = first_lines(ONLINE_SOFTMAX, "row_max = new_max", "row_max = row_max")
    assert "is inf, but should be" in told and "row_max stays what it was" in told


def test_a_scale_of_255_is_told():
    last = "mask=is_n & is_g, other=127"
    told = first_lines(MXFP4_MATMUL, last, last.replace("127", "255"))
    assert "are NaN: a scale is 255, which means NaN, and 0 * NaN is NaN\n" in told
    assert "tl.dot_scaled(" in told.splitlines()[-1]


def test_infinity_times_0_in_a_dot_is_told():
    told = first_lines(
        LINEAR_CROSS_ENTROPY_GRAD, "(label[:, None] != -100) & (v[None, :] < V)", "label[:, None] != -100"
    )
    assert "are NaN: 0 * inf, and the inf came from an exp that overflowed on line " in told
    assert "tl.dot(d, w)" in told.splitlines()[-1]


def test_infinities_and_nan_of_an_input_are_told_apart():
    told = first_lines(RELU_UNPACK_BACKWARD, "tl.where(passes, dy, 0.0)", "dy * passes.to(tl.bfloat16)")
    case = RELU_UNPACK_BACKWARD.cases[4]  # no gradient passes
    dy = make_inputs(RELU_UNPACK_BACKWARD, case)["dy"]
    infinite, nan = int(dy.isinf().sum()), int(dy.isnan().sum())
    assert infinite and nan
    assert f"{infinite + nan} of them are NaN: {infinite} from 0 * inf, and dy contains NaN\n" in told


@triton.jit
def both_infinities_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    z = tl.sum(tl.where(offs % 2 == 0, float("inf"), float("-inf")), axis=0) + x
    tl.store(z_ptr + offs, z, mask=offs < N)


@triton.jit
def fma_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    z = tl.fma(x - x, float("inf"), x)
    tl.store(z_ptr + offs, z, mask=offs < N)


@triton.jit
def fma_of_infinities_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    z = tl.fma(x + 1, float("inf"), tl.full((BLOCK,), float("-inf"), tl.float32))
    tl.store(z_ptr + offs, z, mask=offs < N)


@triton.jit
def too_large_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    large = (x * x + 1).to(tl.bfloat16) * 2.0**133
    z = tl.dot(large[:, None] * (x - x)[None, :].to(tl.bfloat16), tl.full((BLOCK, BLOCK), 1.0, tl.bfloat16))
    tl.store(z_ptr + offs, tl.sum(z, axis=1), mask=offs < N)


def spec(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x


def half(x: Float32[Tensor, " N"]) -> Float16[Tensor, " N"]:
    return x.half()


@triton.jit
def root_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=float("inf"))
    unused = x - x  # NaN only in lanes that are masked off
    root = tl.sqrt(x - 2.0)
    z = tl.maximum(root + 1, root) * 0.5 + tl.where(offs < N, unused, 0.0)
    tl.store(z_ptr + offs, z, mask=offs < N)


@triton.jit
def zeros_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    z = tl.sum(tl.where(offs < N, (x - x) / (x - x), 0.0), axis=0) + x
    tl.store(z_ptr + offs, z, mask=offs < N)


def test_a_product_that_is_too_large_is_told():
    """The NaN goes through a dot, and remembers where it was made."""
    puzzle = Puzzle(number="0", spec=spec, grid=lambda s: (1,), cases=(Case(N=20, BLOCK=32),))
    told = str(check(too_large_kernel, puzzle))
    where = r"0 \* inf, and the inf came from a product on line (\d+) that is too large for bfloat16\n"
    assert int(re.search(where, told)[1]) + 1 == int(re.search(r"line (\d+): z = tl.dot\(large", told)[1])


@pytest.mark.parametrize("of", [spec, half])
@pytest.mark.parametrize(
    "kernel, how, line",
    [
        (root_kernel, "the root of a negative number", "root = "),
        (zeros_kernel, "0 / 0", "z = tl.sum("),
        (both_infinities_kernel, "inf + (-inf)", "z = tl.sum("),
        (fma_kernel, "0 * inf", "z = tl.fma("),
        (fma_of_infinities_kernel, "inf + (-inf)", "z = tl.fma("),
    ],
)
def test_the_line_is_the_one_that_made_what_is_stored(of, kernel, how, line):
    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return torch.rand(shape, generator=generator)

    puzzle = Puzzle("0", spec=of, grid=lambda s: (1,), cases=(Case(N=9, BLOCK=16, fill={"x": fill}),))
    verdict = check(kernel, puzzle).verdicts[0]
    assert verdict.kind == "values", verdict
    assert verdict.diagnosis == f"9 of them are NaN: {how}" and verdict.site.source.startswith(line)
