"""Each dtype's row agrees with torch, Triton and jaxtyping; float8 is rounded as an H200 rounds it."""

import hashlib
import re

import jaxtyping
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float8e4m3fn, Float8e5m2, Float32
from torch import Tensor
from triton.language import str_to_ty
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import inputs, stages, trace
from puzzles_lib.checker import examine
from puzzles_lib.checker.expected import expect
from puzzles_lib.compiler import build, find_target, front_end, translate
from puzzles_lib.drawing.errors import error_map
from puzzles_lib.dtypes import DTYPES, of_name, of_torch, of_triton
from puzzles_lib.float8 import NAMES, NO_FLOAT8_ARITHMETIC, refused_cast
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import numerics
from puzzles_lib.runner.buffer import garbage
from puzzles_lib.translator import observer
from tests.kernel_lab import evaluate, execute, kernel_of
from tests.test_bfloat16 import EVERY as EVERY_B16

E4, E5, F16, B16, F32 = torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32
FLOAT8 = pytest.mark.parametrize("dtype", [E4, E5], ids=["e4m3", "e5m2"])
EVERY_F16 = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(F16)


def every(dtype: torch.dtype) -> torch.Tensor:
    """All 256 codes."""
    return torch.arange(256).to(torch.uint8).view(dtype)


def in_triton(dtype: torch.dtype) -> str:
    return {E4: "tl.float8e4nv", E5: "tl.float8e5", F16: "tl.float16", B16: "tl.bfloat16", F32: "tl.float32"}[
        dtype
    ]


def same(got: torch.Tensor, want: torch.Tensor) -> None:
    """Bit for bit, but one NaN is as good as another."""
    assert got.dtype == want.dtype and got.shape == want.shape
    nan = want.float().isnan()
    assert torch.equal(got.float().isnan(), nan)
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}[want.dtype.itemsize]
    different = (got.view(bits) != want.view(bits)) & ~nan
    assert not different.any(), (got[different][:5].float(), want[different][:5].float())


# ---- the table


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_a_row_agrees_with_torch_triton_and_jaxtyping(row):
    assert row.storage.itemsize == row.torch.itemsize
    hint = getattr(jaxtyping, row.annotation)[Tensor, " N"]

    def spec(x: hint) -> hint:
        return x

    assert Puzzle("0", spec, lambda s: (1,), (Case(N=3),)).inputs == (Argument("x", row.torch, ("N",)),)
    assert str_to_ty(f"*{row.signature}", None).element_ty == row.triton
    assert Argument("x", row.torch, ("M", "N")).annotation() == f"{row.annotation}[M, N]"
    assert of_name(row.name) is of_torch(row.torch) is of_triton(row.triton) is row
    assert row.is_float == row.torch.is_floating_point
    if row.is_float:
        assert row.roundoff == torch.finfo(row.torch).eps / 2
    assert getattr(tl, NAMES[row.triton.name]) == row.triton


@triton.jit
def copies(x_ptr, z_ptr):
    tl.store(z_ptr, tl.load(x_ptr))


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_a_row_has_the_name_that_the_ir_has(row):
    x = torch.empty(1, dtype=row.torch)
    text = translate(copies, {"x_ptr": x, "z_ptr": x}, find_target("sm_90")).ir
    (name,) = set(re.findall(r"%x_ptr: !tt\.ptr<(\w+)>", text))
    assert name == row.ir or (row.ir, name) == ("", f"i{8 * row.storage.itemsize}")


def test_the_numbers_of_four_bits_are_those_of_the_specification():
    assert numerics.E2M1.tolist() == [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_a_refused_cast_names_dtypes_as_kernels_do():
    told = refused_cast(tl.bfloat16, tl.float8e5, towards_zero=True)
    assert told.startswith("Triton compiles no cast from bfloat16 to float8e5 that rounds towards zero")


@pytest.mark.parametrize(
    "row", [r for r in DTYPES if r.is_float and r.storage.itemsize < 4], ids=lambda r: r.name
)
def test_narrowing_undoes_widening(row):
    codes = np.arange(256**row.storage.itemsize).astype(f"u{row.storage.itemsize}").view(row.storage)
    wide = row.widen(codes)
    assert wide.dtype.kind == "f"
    back = row.narrow(wide)
    finite = np.isfinite(wide)
    assert np.array_equal(back[finite], codes[finite]) and back.dtype == row.storage
    assert np.isnan(row.widen(back[np.isnan(wide)]).astype(float)).all()


def test_what_is_in_no_row_is_said():
    assert of_name("float4") is None
    with pytest.raises(TypeError, match="the course does not support torch.complex64, only bool, uint8"):
        of_torch(torch.complex64)
    with pytest.raises(TypeError, match="the course's interpreter does not support fp8e4b15"):
        of_triton(tl.float8e4b15)
    assert of_triton(tl.pointer_type(tl.float8e5)).storage == np.uint64


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_undefined_lanes_hold_nan_or_a_pattern(row):
    values = torch.from_numpy(garbage((4,), row).view(np.uint8)).view(row.torch)
    assert values.double().isnan().all() if row.is_float else (values != 0).all()


# ---- float8's casts


@FLOAT8
def test_every_code_widens_as_in_torch(dtype):
    row = of_torch(dtype)
    assert np.array_equal(
        row.widen(every(dtype).view(torch.uint8).numpy()), every(dtype).float(), equal_nan=True
    )
    for wide in (F16, F32):
        same(
            evaluate(f"x.to({in_triton(wide)})", every(dtype), shape=(256,), dtype=wide),
            every(dtype).to(wide),
        )
    finite = every(dtype)[every(dtype).float().isfinite()][:128]
    same(evaluate("x.to(tl.bfloat16)", finite, shape=(128,), dtype=B16), finite.to(B16))


def test_e5m2_to_bfloat16_knows_no_infinity():
    """Triton shifts the bits into place and multiplies by 2**112: an H200 gave these numbers too."""
    special = torch.tensor([0x7C, 0x7D, 0x7E, 0x7F, 0xFC, 0xFD, 0xFE, 0xFF]).to(torch.uint8).view(E5)
    got = evaluate("x.to(tl.bfloat16)", special, shape=(8,), dtype=B16)
    assert got.tolist() == [65536, 81920, 98304, 114688, -65536, -81920, -98304, -114688]
    through = evaluate("x.to(tl.float32).to(tl.bfloat16)", special, shape=(8,), dtype=B16)
    assert through[[0, 4]].tolist() == [float("inf"), float("-inf")] and through[1:4].isnan().all()


def hard_numbers(dtype: torch.dtype) -> torch.Tensor:
    """Codes, the middles between neighbours, what is beside them, too large, tiny, not finite; both signs."""
    numbers = every(dtype).float()[:128]
    numbers = numbers[numbers.isfinite()]
    middles = (numbers[1:] + numbers[:-1]) / 2
    top = numbers[-1]
    beyond = torch.stack(
        [top * (1 + k / 64) for k in range(1, 33)] + [top * 2, top * 1000, torch.tensor(3e38)]
    )
    tiny = numbers[1] * torch.tensor([0.0, 0.25, 0.499, 0.501, 0.75]).float()
    least = torch.tensor([1e-45, 1e-40, 1.2e-38])
    x = torch.cat([numbers, middles, beyond, tiny, least])
    up, down = (torch.nextafter(x, torch.tensor(to)) for to in (float("inf"), 0.0))
    x = torch.cat([x, up, down, torch.tensor([float("inf"), float("nan")])])
    x = torch.cat([x, -x])
    return torch.cat([x, torch.zeros(2048 - len(x))])


@FLOAT8
def test_narrowing_is_torchs_but_for_what_is_too_large(dtype):
    """PTX ISA, cvt: with .satfinite what exceeds the largest number becomes it, infinities too, and NaN 0x7F.

    torch gives infinity for e5m2, and for e4m3 what its version has (NaN or the largest number).
    """
    x = hard_numbers(dtype)
    top = torch.finfo(dtype).max
    got = evaluate(f"x.to({in_triton(dtype)})", x, shape=(2048,), dtype=dtype)
    rounded = x.abs() < top * (1 + 2**-4)  # those that round to the largest number or to less
    same(got[rounded], x[rounded].to(dtype))
    same(got, x.clamp(-top, top).to(dtype))
    assert (got.view(torch.uint8)[x.isnan()] == 0x7F).all()
    same(evaluate("x", x, shape=(2048,), dtype=dtype), got)  # a store rounds too


def test_rounding_towards_zero():
    """cvt.rz.f16.f32 and its upper byte: infinities stay, what is merely too large does not become one."""
    x = hard_numbers(E5)
    got = evaluate("x.to(tl.float8e5, fp_downcast_rounding='rtz')", x, shape=(2048,), dtype=E5)
    finite = x.isfinite()
    assert (got.float()[finite].abs() <= x[finite].abs()).all()
    nearest = x[finite].clamp(-57344, 57344).to(E5)
    off = got[finite].view(torch.uint8).int() - nearest.view(torch.uint8).int()
    assert set(off.tolist()) == {0, -1}
    assert (
        torch.equal(got[x.isinf()].float(), x[x.isinf()]) and (got.view(torch.uint8)[x.isnan()] == 0x7F).all()
    )


LOWER = (0x0000, 0x0001, 0x7FFF, 0x8000, 0xFFFF)  # halves of a float32
UPPER = torch.arange(-(2**15), 2**15) << 16


@pytest.mark.parametrize(
    "source, target, rounding, digest",
    [
        (F16, E4, "rtne", "4eddfd8fa00b7af5"),
        (F16, E5, "rtne", "10df0c5ad73c1940"),
        (B16, E4, "rtne", "e478e36fb3288299"),
        (B16, E5, "rtne", "07afde8db7780588"),
        (F32, E4, "rtne", "0585e88d22fcec2e"),
        (F32, E5, "rtne", "2679d6866f18dcf4"),
        (F32, E5, "rtz", "3f68306555b43cce"),
    ],
)
def test_casts_are_those_of_an_h200(source, target, rounding, digest):
    """SHA-256 of what an NVIDIA H200 made of all 65536 halves, and of 5 x 65536 float32 (Triton 3.6.0)."""
    halves = {F16: [EVERY_F16], B16: [EVERY_B16]}
    blocks = halves.get(source) or [(UPPER + low).to(torch.int32).view(F32) for low in LOWER]
    cast = f"x.to({in_triton(target)}, fp_downcast_rounding='{rounding}')"
    codes = [evaluate(cast, x, shape=(65536,), dtype=target).view(torch.uint8) for x in blocks]
    assert hashlib.sha256(torch.cat(codes).numpy().tobytes()).hexdigest()[:16] == digest


CVT = {
    (E4, F32): "cvt.rn.f16x2.e4m3x2",
    (E5, F32): "cvt.rn.f16x2.e5m2x2",
    (E5, B16): "mul.rn.bf16x2",
    (F32, E4): "cvt.rn.satfinite.e4m3x2.f32",
    (F32, E5): "cvt.rn.satfinite.e5m2x2.f32",
    (F16, E4): "cvt.rn.satfinite.e4m3x2.f16x2",
}


def compiled(expression: str, source: torch.dtype, target: torch.dtype):
    lines = ["i = tl.arange(0, 1024)", "x = tl.load(x_ptr + i)", f"tl.store(z_ptr + i, {expression})"]
    kernel = kernel_of(
        "@triton.jit\ndef kernel(x_ptr, z_ptr):\n" + "".join(f"    {line}\n" for line in lines)
    )
    blank = {"x_ptr": torch.empty(1024, dtype=source), "z_ptr": torch.empty(1024, dtype=target)}
    return build(translate(kernel, blank, find_target("sm_90")))


@pytest.mark.parametrize("source, target", CVT)
def test_triton_still_compiles_the_casts_to_what_is_imitated(source, target):
    assert CVT[source, target] in compiled(f"x.to({in_triton(target)})", source, target).texts["ptx"]


@pytest.mark.parametrize(
    "expression, target",
    [
        ("x + x", E4),
        ("x.to(tl.float64)", torch.float64),
        ("x.to(tl.float8e5)", E5),
        ("tl.full((1024,), 1.3, x.dtype)", E4),
    ],
)
def test_triton_still_does_not_compile_what_is_refused(expression, target, monkeypatch, own_children):
    monkeypatch.setattr(observer, "_float8_made", lambda name, method: method)
    monkeypatch.setattr(observer, "_not_of_float8", lambda method: method)
    assert compiled(expression, E4, target).refusal.message.startswith("llir: ")


# ---- float8 in kernels

A = torch.tensor([0.0, -1.5, 448.0, 0.001953125, -16.0, 3.25, 1.0, -0.0625])


@FLOAT8
@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("x", lambda x: x),
        ("x.to(tl.float32) * 2", lambda x: x.float() * 2),
        ("x + x.to(tl.float32)", lambda x: x.float() * 2),
        ("x * x.to(tl.float16)", lambda x: x.half() * x.half()),
        ("x > 0.0", lambda x: x.float() > 0),
        ("tl.abs(x)", lambda x: x.float().abs().to(x.dtype)),
        ("tl.where(i < 3, x, 0.0)", lambda x: torch.where(torch.arange(8) < 3, x.float(), 0.0).to(x.dtype)),
        ("tl.where(i < 3, x, 1.5)", lambda x: torch.where(torch.arange(8) < 3, x.float(), 1.5).to(x.dtype)),
        ("tl.maximum(x, 0.0)", lambda x: x.float().clamp(min=0)),
        ("tl.clamp(x, -1.0, 1.0)", lambda x: x.float().clamp(-1, 1)),
        ("tl.gather(x, 7 - i, 0)", lambda x: x.float().flip(0).to(x.dtype)),
        ("x.to(tl.uint8, bitcast=True)", lambda x: x.view(torch.uint8)),
        ("x.to(tl.uint8, bitcast=True).to(x.dtype, bitcast=True)", lambda x: x),
        ("tl.trans(tl.reshape(x, (2, 4)))", lambda x: x.reshape(2, 4).t().contiguous()),
        ("tl.zeros((8,), x.dtype)", lambda x: torch.zeros(8).to(x.dtype)),
        ("tl.full((8,), -2.5, x.dtype)", lambda x: torch.full((8,), -2.5).to(x.dtype)),
        ("tl.max(x, 0)", lambda x: x.float().max()),
        ("tl.sum(x.to(tl.float32), 0)", lambda x: x.float().sum()),
    ],
)
def test_what_compiles_is_torchs(dtype, expression, by_torch):
    x = A.to(dtype)
    want = by_torch(x)
    same(evaluate(expression, x, shape=tuple(want.shape), dtype=want.dtype), want)


def test_the_two_meet_in_float16():
    x, y = A.to(E4), A.flip(0).to(E5)
    same(evaluate("x + y", x, y, shape=(8,), dtype=F16), x.half() + y.half())
    same(evaluate("x < y", x, y, shape=(8,), dtype=torch.bool), x.half() < y.half())


@FLOAT8
@pytest.mark.parametrize(
    "expression, words",
    [
        ("x + x", NO_FLOAT8_ARITHMETIC),
        ("x * 0.5", NO_FLOAT8_ARITHMETIC),
        ("-x", NO_FLOAT8_ARITHMETIC),
        ("x < x", NO_FLOAT8_ARITHMETIC),
        ("tl.maximum(x, x)", NO_FLOAT8_ARITHMETIC),
        ("x / x", NO_FLOAT8_ARITHMETIC),
        ("tl.sum(x, 0)", NO_FLOAT8_ARITHMETIC),
        ("tl.cumsum(x, 0)", NO_FLOAT8_ARITHMETIC),
        ("tl.argmax(x, 0)", NO_FLOAT8_ARITHMETIC),
        ("tl.sort(x)", NO_FLOAT8_ARITHMETIC),
        ("x.to(tl.float64)", "Triton compiles no cast from {} to float64: go through float32"),
        ("x.to(tl.float64).to(tl.float32)", "Triton compiles no cast from {} to float64: go through float32"),
        ("x.to({other})", "Triton compiles no cast from {} to {other}: go through float32"),
        (
            "x.to(tl.float16).to({self}, fp_downcast_rounding='rtz')",
            "no cast from float16 to {} that rounds towards",
        ),
        ("tl.full((8,), 1.3, x.dtype)", "1.3 is not a {}, and Triton does not round constants to it"),
        ("tl.full((8,), 1e9, x.dtype)", "1e+09 is not a {}, and Triton does not round constants to it"),
        ("x.to(tl.int32)", "cannot cast"),
    ],
)
def test_what_does_not_compile_is_refused_in_words(dtype, expression, words):
    names = {"self": in_triton(dtype), "other": in_triton({E4: E5, E5: E4}[dtype])}
    lines = ["i = tl.arange(0, 8)", "x = tl.load(x_ptr + i)", expression.format(**names)]
    kernel = kernel_of(
        "@triton.jit\ndef kernel(x_ptr, z_ptr):\n" + "".join(f"    {line}\n" for line in lines)
    )
    words = words.format(names["self"][3:], other=names["other"][3:])
    arguments = {"x_ptr": A.to(dtype), "z_ptr": torch.zeros(8)}
    refusal = front_end(kernel, arguments)
    assert words in refusal.message and refusal.site.line == 5


@pytest.mark.parametrize("expression", ["tl.fma(x, x, x)", "x.exp()"])
def test_functions_of_float8_end_a_run(expression):
    kernel = kernel_of(f"@triton.jit\ndef kernel(x_ptr):\n    x = tl.load(x_ptr)\n    {expression}\n")
    assert NO_FLOAT8_ARITHMETIC in execute(kernel, x_ptr=A.to(E4)).stop.message


@pytest.mark.parametrize("left", [E4, E5])
@pytest.mark.parametrize("right", [E4, E5])
def test_dots_are_exact_in_float32(left, right):
    x, y = torch.randint(-8, 9, (32, 64)).float().to(left), torch.randint(-4, 5, (64, 16)).float().to(right)
    same(evaluate("tl.dot(x, y)", x, y, shape=(32, 16), dtype=F32), x.float() @ y.float())
    x, y = torch.randn(32, 64).to(left), torch.randn(64, 16).to(right)
    got = evaluate("tl.dot(x, y, acc=tl.full((32, 16), 3.0, tl.float32))", x, y, shape=(32, 16), dtype=F32)
    torch.testing.assert_close(got.double(), x.double() @ y.double() + 3, rtol=1e-5, atol=1e-5)


@triton.jit
def load_some(x_ptr, z_ptr, N):
    offs = tl.arange(0, 8)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N, other=1.3))


@triton.jit
def load_some_and_nothing(x_ptr, z_ptr, N):
    offs = tl.arange(0, 8)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N))


@FLOAT8
def test_masked_lanes(dtype):
    z = torch.zeros(8, dtype=dtype)
    execute(load_some, x_ptr=A.to(dtype), z_ptr=z, N=3)
    same(z, torch.cat([A[:3], torch.full((5,), 1.3)]).to(dtype))
    done = execute(load_some_and_nothing, x_ptr=A.to(dtype), z_ptr=z, N=3)
    assert (
        list(done.holes.values()) == ["x"] and z[3:].float().isnan().all() and not z[:3].float().isnan().any()
    )


@triton.jit
def load_a_tile(x_ptr, x_desc, z_ptr, N):
    tile = tl.make_block_ptr(x_ptr, (4, N), (N, 1), (0, 0), (4, 32), (1, 0))
    offs = tl.arange(0, 4)[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(z_ptr + offs, tl.load(tile, boundary_check=(1,), padding_option="nan"))
    tl.store(z_ptr + 128 + offs, x_desc.load([0, 0]))


@pytest.mark.parametrize("dtype", [E4, E5, B16, F16])
def test_padding_with_nan(dtype):
    x, z = torch.ones(4, 16, dtype=dtype), torch.zeros(2, 4, 32, dtype=dtype)
    desc = TensorDescriptor(x.clone(), [4, 16], [16, 1], [4, 32], padding="nan")
    done = execute(load_a_tile, x_ptr=x, x_desc=desc, z_ptr=z, N=16)
    assert done.stop is None
    assert (z[..., :16].float() == 1).all() and z[..., 16:].float().isnan().all()


# ---- a puzzle in float8


def requantize(
    x: Float8e4m3fn[Tensor, "M N"], scale: Float32[Tensor, " M"]
) -> tuple[Float8e5m2[Tensor, "M N"], Float8e4m3fn[Tensor, "M N"], Float32[Tensor, " M"]]:
    """y = x in e5m2, z[m, n] = x[m, n] * scale[m] in e4m3, s[m] the sum of a row"""
    return x, x * scale[:, None], x.sum(1)


CASES = (Case(M=4, N=16, BLOCK=16), Case(M=6, N=13, BLOCK=16))
CASES += tuple(
    Case(M=3, N=13, BLOCK=16, fill={"x": f}) for f in (inputs.large, inputs.late_maximum, inputs.zeros)
)
REQUANTIZE = Puzzle("0", requantize, lambda s: (s.M,), CASES, outputs=("y", "z", "s"))

RIGHT = """
@triton.jit
def kernel(x_ptr, scale_ptr, y_ptr, z_ptr, s_ptr, N, BLOCK: tl.constexpr):
    m = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + m * N + offs, mask=mask, other=0.0).to(tl.float32)
    scale = tl.load(scale_ptr + m)
    tl.store(y_ptr + m * N + offs, x.to(tl.float8e5), mask=mask)
    tl.store(z_ptr + m * N + offs, x * scale, mask=mask)
    tl.store(s_ptr + m, tl.sum(x, 0))
"""


def test_a_right_kernel_passes():
    report = examine(kernel_of(RIGHT), REQUANTIZE)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "old, new, kind, words",
    [
        ("other=0.0", "other=0", "compiler", "cannot cast int32"),
        (".to(tl.float32)\n", "\n", "compiler", "no cast from float8e4nv to float8e5"),
        ("x.to(tl.float8e5)", "x.to(tl.float8e5) + x.to(tl.float8e5)", "compiler", NO_FLOAT8_ARITHMETIC),
        (
            ", mask=mask, other=0.0)",
            ")",
            "out of bounds",
            "5: elements 78..80; x has 78, numbered 0 to 77",
        ),
        (", other=0.0", "", "uninitialized", "tl.load(x_ptr"),
        (
            "float8e5), mask=mask",
            "float8e5), mask=mask & (m > 0)",
            "never written",
            "16 of 64 elements of y are never written",
        ),
        ("x * scale", "x + scale", "values", "wrong values in z"),
        ("x * scale", "x * scale * 1.3", "values", "wrong values in z"),
        ("x * scale", "x * scale * (tl.abs(x * scale) > 2**-6)", "values", "all wrong elements are zero"),
        (
            "x.to(tl.float8e5)",
            "(x * 2).to(tl.float8e5)",
            "values",
            "every element is 2 times what it should be",
        ),
    ],
)
def test_a_wrong_kernel_fails_for_the_right_kind(old, new, kind, words):
    assert RIGHT.count(old) == 1
    report = examine(kernel_of(RIGHT.replace(old, new)), REQUANTIZE)
    verdict = report.verdict or next(case.verdict for case in report.cases if case.verdict)
    assert verdict.kind == kind and words in str(report), str(report)


def test_what_is_too_large_is_expected_to_saturate():
    def double(x: Float32[Tensor, " N"]) -> Float8e5m2[Tensor, " N"]:
        return x * 2

    puzzle = Puzzle("0", double, lambda s: (1,), (Case(N=4, fill={"x": lambda *_: torch.full((4,), 1e9)}),))
    case = puzzle.cases[0]
    assert (expect(puzzle, case, inputs.make_inputs(puzzle, case))["z"].value == 57344).all()


@FLOAT8
def test_inputs_are_sensible(dtype):
    def made(fill):
        return fill((4, 256), dtype, torch.Generator().manual_seed(0))

    for fill in (inputs.random, inputs.zeros, inputs.large, inputs.very_negative, inputs.late_maximum):
        assert made(fill).dtype == dtype and made(fill).float().isfinite().all()
    zero = (made(inputs.random).float() == 0).float().mean()
    assert 1 / 32 < zero < 1 / 8 and len(made(inputs.random).view(torch.uint8).unique()) > 60
    assert (made(inputs.large).float() >= 448).all() and (made(inputs.very_negative).float() <= -448).all()
    assert (made(inputs.late_maximum).float().argmax(1) > 200).all()


def test_float8_is_traced_staged_and_drawn():
    kernel = kernel_of(RIGHT)
    assert "x" in str(trace(kernel, REQUANTIZE, 0))
    assert "cvt.rn.satfinite.e4m3x2.f32" in str(stages(kernel, REQUANTIZE).ptx)
    want = A.to(E4)
    got = (A * torch.tensor([1, 1, 1, 1, 1, 1.5, 1, 1])).to(E4)
    assert "1 of 8 values are wrong; the first is z[5]: got 5, want 3.25" in error_map(got, want, "z").alt
    close = torch.tensor([1.0078125], dtype=B16)
    assert "0 of 1 values are wrong" in error_map(close, torch.ones(1, dtype=B16), "z").alt
