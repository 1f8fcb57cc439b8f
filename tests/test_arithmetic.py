"""What a GPU computes otherwise than line by line: products fused with sums, sums that are dots in TF32."""

import dataclasses
from fractions import Fraction

import numpy as np
import pytest
import torch
import triton
from jaxtyping import Float16, Float32
from torch import Tensor

from puzzles_lib import inputs, versions
from puzzles_lib.authoring.solutions import define
from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU
from puzzles_lib.chapters.ch17_normalisation.puzzles import LAYER_NORM_DW
from puzzles_lib.checker import examine, verdicts
from puzzles_lib.checker.expected import expect
from puzzles_lib.compiler import find_target, steps
from puzzles_lib.dtypes import of_torch
from puzzles_lib.inputs import random
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Fused
from puzzles_lib.runner.arithmetic import lost
from puzzles_lib.runner.lanes import FLOAT32, Product
from puzzles_lib.source import Site
from tests.kernels import edited
from tests.running import run

SM_90 = find_target("sm_90")
N = 64
KERNEL = """
@triton.jit
def kernel(x_ptr, y_ptr, w_ptr, z_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y, w = tl.load(x_ptr + i), tl.load(y_ptr + i), tl.load(w_ptr + i)
    p = x * y
    z = EXPRESSION
    tl.store(z_ptr + i, z)
"""


def tensors(dtype: torch.dtype = torch.float32) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, y, w = (torch.randn(N, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3))
    return {"x_ptr": x, "y_ptr": y, "w_ptr": w, "z_ptr": torch.empty(N, dtype=dtype)}


def ran(expression: str, dtype: torch.dtype = torch.float32, as_compiled: bool = True):
    kernel = define(KERNEL.replace("EXPRESSION", expression), "<fused>")
    return run(kernel, {**tensors(dtype), "N": N}, (1, 1, 1), ["z_ptr"], as_compiled=as_compiled)


FUSED = {  # to what it is in exact arithmetic
    "p + w": lambda x, y, w: x * y + w,
    "p - w": lambda x, y, w: x * y - w,
    "w - p": lambda x, y, w: w - x * y,
    "w + tl.reshape(tl.trans(tl.reshape(p, [8, 8])), [N])": lambda x, y, w: (
        w + (x * y).reshape(8, 8).T.ravel()
    ),
    "p - tl.abs(p)": lambda x, y, w: x * y - abs(x * y).astype(np.float32),
    "p - x * y": lambda x, y, w: x * y - (x * y).astype(np.float32),
}
CANCEL = ["p - tl.abs(p)", "p - x * y"]
NOT_FUSED = ["tl.where(x > 0, p, 0.0) + w", "tl.maximum(p, 0.0) + w", "p / 3 - w", "(x + y) - w"]


@pytest.mark.parametrize("expression", FUSED)
def test_a_sum_takes_its_product_unrounded(expression):
    done = ran(expression)
    wide = [t.double().numpy() for name, t in tensors().items() if name != "z_ptr"]
    assert np.array_equal(done.outputs["z"].numpy(), FUSED[expression](*wide).astype(np.float32))
    ((step,),) = [done.arithmetic.fused]
    assert step.sum.line == 7 and step.cancels is (expression in CANCEL)
    assert not torch.equal(done.outputs["z"], ran(expression, as_compiled=False).outputs["z"])


@pytest.mark.parametrize("expression", NOT_FUSED)
def test_a_product_that_something_happened_to_is_rounded(expression):
    done = ran(expression)
    assert not done.arithmetic.products and not done.arithmetic.fused
    assert torch.equal(done.outputs["z"], ran(expression, as_compiled=False).outputs["z"])


def test_the_compiler_does_so():
    lines = [f"tl.store(z_ptr + i, {expression})" for expression in [*FUSED, *NOT_FUSED]]
    body = "\n    ".join(["0.0", *lines])
    kernel = define(KERNEL.replace("EXPRESSION", body), "<fused>")
    found = steps(kernel, {**tensors(), "N": N}, SM_90, 4)
    assert found.fused == set(range(8, 8 + len(FUSED)))


ALONG = [
    "tl.sum(p, 0)",
    "tl.cumsum(p, 0)",
    "tl.reshape(tl.cumsum(tl.reshape(p, [8, 8]), 1), [N])",
]


def test_along_an_axis_it_does_so_too():
    lines = [f"tl.store(z_ptr + i, {expression})" for expression in ALONG]
    kernel = define(KERNEL.replace("EXPRESSION", "\n    ".join(["0.0", *lines])), "<along>")
    assert {8, 9, 10} <= steps(kernel, {**tensors(), "N": N}, SM_90, 4).fused


def row_dots(x: Float32[Tensor, "M N"], y: Float32[Tensor, "M N"]) -> Float32[Tensor, " M"]:
    return (x * y).sum(1)


@pytest.mark.parametrize("fill", [random, inputs.large])
@pytest.mark.parametrize("size", [2, 16, 1024])
def test_what_that_saves_is_within_every_tolerance(size, fill):
    """At most, no product is rounded: the sum moves by all that rounding takes from them."""
    case = Case(M=200, N=size, fill={"x": fill, "y": fill})
    puzzle = Puzzle(number="0", spec=row_dots, grid=lambda s: (1,), cases=(case,))
    given = inputs.make_inputs(puzzle, case)
    x, y = (tensor.numpy() for tensor in given.values())
    saved = abs(lost(Product(x, y, x * y, FLOAT32, None)).sum(1))
    assert saved.any() and (saved < 0.25 * expect(puzzle, case, given)["z"].tolerance.numpy()).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_floats_are_fused_too(dtype):
    done = ran("p - x * y", dtype)
    factors = [tensors(dtype)[name].tolist() for name in ("x_ptr", "y_ptr")]
    rounded = (tensors(dtype)["x_ptr"] * tensors(dtype)["y_ptr"]).tolist()
    exact = [Fraction(x) * Fraction(y) - Fraction(p) for x, y, p in zip(*factors, rounded, strict=True)]
    want = torch.tensor([float(error) for error in exact], dtype=torch.float64).to(dtype)
    assert want.any() and torch.equal(done.outputs["z"], want)


def test_what_a_product_of_float64_loses():
    x, y = 1 + np.float64(2.0**-30), 1 + np.float64(2.0**-40)
    product = Product(*map(np.atleast_1d, (x, y, x * y)), of_torch(torch.float64), None)
    assert lost(product) == [2.0**-70]


def test_what_cancels_is_noted_and_what_is_exact_is_not():
    assert ran("p - x * y", as_compiled=False).arithmetic.cancels
    assert not ran("p - w", as_compiled=False).arithmetic.cancels
    assert not ran("2 * x - 2 * x", as_compiled=False).arithmetic.cancels


@pytest.mark.parametrize(
    "line, says",
    [
        ("z = s * w - s * o", "write s * (w - o)"),
        ("tl.store(z_ptr + i, w * s[None, :] - s[None, :] * o, mask=m)", "write s[None, :] * (w - o)"),
        ("z = (z + tl.abs(z)) / 2", "tl.where"),
        ("        - s * o)", "tl.where"),
    ],
)
def test_the_cure(line, says):
    assert says in verdicts.of_fused(Fused(Site(3, line), Site(3, line), cancels=True))


def test_both_lines_are_named():
    text = verdicts.of_fused(Fused(Site(3, "p = x * y"), Site(4, "z = tl.floor(p + w)"), cancels=False))
    assert "product on line 3 and the sum on line 4" in text and "last bit" in text


RELU = """
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    x, y = 0.5 * tl.load(x_ptr + n, mask=n < N), tl.load(y_ptr + m, mask=m < M)
    p = x * y
    for turn in range(tl.program_id(1) + 1):
        z = p + tl.where(n + turn < N + turn, tl.abs(p), 0.0)
        tl.store(z_ptr + m * N + n, tl.where(p < -1e38, 0.0, z), mask=(m < M) & (n < N))
"""


def test_what_the_compiler_does_not_fuse_is_accepted():
    """The product is made before the loop, which is another block of code to the compiler."""
    report = examine(define(RELU, "<relu>"), MUL_RELU)
    assert report.ok, str(report)


SUMS = """
@triton.jit
def summed(a, b):
    return tl.sum(a[:, :, None] * b[None, :, :], axis=1)

@triton.jit
def kernel(x_ptr, z_ptr):
    i, k = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a, b = tl.load(x_ptr + i * 16 + k), tl.load(x_ptr + k * 16 + i)
    tl.store(z_ptr + i * 16 + k, EXPRESSION)
"""
DOTS = {  # to the lines with sums that are dots
    "tl.sum(a[:, :, None] * b[None, :, :], axis=1)": [10],
    "tl.sum(a[:, :, None] * b[None, :, :], axis=-2)": [10],
    "summed(a, b) + summed(b, a)": [4],
    "tl.sum(a[:, :, None] * b[None, :, :], axis=0)": [10],  # the compiler's fault
    "tl.sum(b[None, :, :] * a[:, :, None], axis=1)": [],
    "tl.dot(a, b, input_precision='ieee') + tl.sum(a, axis=1)[:, None]": [],
    "tl.sum(a[:, :, None].to(tl.int32) * b[None, :, :].to(tl.int32), axis=1)": [],
}


@pytest.mark.parametrize("expression", DOTS)
def test_a_sum_that_is_a_dot_in_tf32(expression):
    kernel = define(SUMS.replace("EXPRESSION", expression), "<sums>")
    x = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    plain, compiled = (
        run(kernel, {"x_ptr": x, "z_ptr": torch.empty(16, 16)}, (1, 1, 1), ["z_ptr"], as_compiled=as_compiled)
        for as_compiled in (False, True)
    )
    assert [site.line for site in plain.arithmetic.in_tf32] == DOTS[expression]
    error = (compiled.outputs["z"] - plain.outputs["z"]).abs().max()
    assert error == 0 if not DOTS[expression] else error > 2**-14


def test_the_compiler_makes_them_dots():
    own = [expression.replace("a[", f"(a + {n})[") for n, expression in enumerate(DOTS)]  # no two are one
    lines = [f"    tl.store(z_ptr + i * 16 + k, {expression})" for expression in own]
    source = SUMS.replace("    tl.store(z_ptr + i * 16 + k, EXPRESSION)", "\n".join(lines))
    found = steps(define(source, "<sums>"), {"x_ptr": torch.empty(0), "z_ptr": torch.empty(0)}, SM_90, 4)
    assert found.in_tf32 == ({4, 10, 11, 13} if versions.has_sums_in_tf32(triton.__version__) else set())


def product(a: Float32[Tensor, "M K"], b: Float32[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a @ b


def whole(shape, dtype, generator):
    """Numbers of a few bits, whose products TF32 holds."""
    return torch.randint(-15, 16, shape, generator=generator).to(dtype)


PRODUCT = Puzzle(
    number="0",
    spec=product,
    grid=lambda s: (1,),
    cases=tuple(Case(M=16, K=16, N=16, fill=dict.fromkeys("ab", fill)) for fill in (whole, random)),
)
IN_TF32 = """
@triton.jit
def kernel(a_ptr, b_ptr, z_ptr):
    i, k = tl.arange(0, 16)[:, None], tl.arange(0, 16)[None, :]
    a, b = tl.load(a_ptr + i * 16 + k), tl.load(b_ptr + i * 16 + k)
    tl.store(z_ptr + i * 16 + k, tl.sum(a[:, :, None] * b[None, :, :], axis=1))
"""


@pytest.mark.parametrize(
    "cases, ok", [(PRODUCT.cases, False), (PRODUCT.cases[:1], True)], ids=["any", "codes"]
)
def test_a_dot_in_tf32_is_wrong_where_it_shows_and_a_note_where_not(cases, ok):
    report = examine(define(IN_TF32, "<tf32>"), dataclasses.replace(PRODUCT, cases=cases))
    assert report.ok is ok and [case.ok for case in report.cases] == [True, False][: len(cases)]
    assert [("at line 6" in note and "TF32" in note) for note in report.notes] == [True] * ok
    assert ok or "on a GPU, wrong values in z" in str(report) and "a dot in TF32" in str(report)


def half_product(a: Float16[Tensor, "M K"], b: Float16[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return a.float() @ b.float()


def test_factors_of_ten_bits_lose_nothing():
    source = IN_TF32.replace("a[:, :, None]", "a[:, :, None].to(tl.float32)")
    puzzle = Puzzle(number="0", spec=half_product, grid=PRODUCT.grid, cases=(Case(M=16, K=16, N=16),))
    report = examine(define(source, "<tf32>"), puzzle)
    assert report.ok and not report.notes


def test_with_a_version_that_keeps_all_bits_nothing_is_said(monkeypatch):
    monkeypatch.setattr(versions, "has_sums_in_tf32", lambda version: False)
    report = examine(define(IN_TF32, "<tf32>"), PRODUCT)
    assert report.ok and not report.notes


def test_a_run_in_reverse_computes_as_the_one_forwards():
    """Else its bits differ for that, and not for the order of the programs."""
    sums = {
        "dw += tl.sum(dy * ((x - mean[:, None]) * rstd[:, None]), axis=0)": """
        xhat = (x - mean[:, None]) * rstd[:, None]
        dw += tl.sum(dy * xhat + (dy * xhat - xhat * dy), axis=0)
""".strip()
    }
    report = examine(edited(LAYER_NORM_DW, "with_nothing_added", "", sums), LAYER_NORM_DW)
    assert report.ok, report
