"""Products with a packed factor, on the CPU: references, refusals, operators, and what chooses a kernel.

What needs a GPU is in test_dequant_gemm_gpu.py.
"""

import dataclasses
import functools
import itertools
import re
from importlib import import_module

import numpy as np
import pytest
import torch

from puzzles_lib.kernels import common
from puzzles_lib.kernels.bitpack import BITS, block_rows, matrix_shape
from puzzles_lib.kernels.dequant_gemm import dequant_gemm, dequant_gemm_dw
from puzzles_lib.kernels.quantize import PackedTensor, dequantize, quantize_pack
from tests.running import run

module = import_module("puzzles_lib.kernels.dequant_gemm")

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
HALF_STEP = {torch.float32: 2e-6, torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8}
bits_of_a_code = pytest.mark.parametrize("bits", BITS)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def draw(shape, dtype=torch.float32, seed=0, scale=1.0, offset=0.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale + offset).to(dtype)


def element(packed, row, column):
    """One element of x^ in exact arithmetic, by the letter of the format."""
    height = block_rows(packed.bits)
    word = int(packed.words[row // height, row % 16, column]) % 2**16
    code = word >> (row % height // 16 * packed.bits) & (2**packed.bits - 1)
    scale, low = packed.params[column // packed.group_size, row // height, :, row % height].tolist()
    return low + code * scale


def exact_dw(dy, packed):
    """dW in float64, from the dequantised matrix."""
    matrix = dequantize(packed).double().reshape(matrix_shape(packed.shape))
    return dy.double().reshape(matrix_shape(dy.shape)).t() @ matrix


def close(got, want, dtype):
    """Within what one rounding to the dtype and float32 sums leave."""
    scale = want.abs().amax() if want.numel() else 0.0
    return ((got.double() - want).abs() <= HALF_STEP[dtype] * want.abs() + 2e-6 * scale).all()


# ---- the references


def test_dw_from_the_letter_of_the_format():
    for bits, dtype in itertools.product(BITS, FLOATS):
        x, dy = draw((300, 5), dtype, bits), draw((300, 2), dtype, bits + 1)
        packed = quantize_pack(x, bits, 3)
        x_hat = torch.tensor([[element(packed, k, n) for n in range(5)] for k in range(300)]).to(dtype)
        want = dy.double().t() @ x_hat.double()
        assert close(dequant_gemm_dw(dy, packed), want, dtype)


def test_forward_from_the_letter_of_the_format():
    for bits, dtype in itertools.product(BITS, FLOATS):
        w, x = draw((70, 9), dtype, bits), draw((3, 9), dtype, bits + 1)
        packed = quantize_pack(w, bits, 4)
        w_hat = torch.tensor([[element(packed, n, k) for k in range(9)] for n in range(70)]).to(dtype)
        assert close(dequant_gemm(x, packed), x.double() @ w_hat.double().t(), dtype)


SHAPES = (
    # x, columns of dy
    ((1, 1), 1), ((3, 5), 2), ((128, 256), 64), ((257, 40), 33), ((2, 3, 70), 5), ((70,), 3),
    ((0, 8), 4), ((8, 0), 4), ((8, 4), 0), ((2, 0, 4), 3),
)  # fmt: skip


@bits_of_a_code
@dtypes
@pytest.mark.parametrize("shape, cout", SHAPES, ids=str)
def test_every_shape(shape, cout, dtype, bits):
    packed, dy = quantize_pack(draw(shape, dtype), bits, 32), draw((*shape[:-1], cout), dtype, 1)
    dw = dequant_gemm_dw(dy, packed)
    assert dw.shape == (cout, shape[-1]) and dw.dtype == dtype and dw.is_contiguous()
    assert close(dw, exact_dw(dy, packed), dtype)
    weight = quantize_pack(draw((cout, shape[-1]), dtype, 2), bits, 32)
    x = draw(shape, dtype, 3)
    y = dequant_gemm(x, weight)
    assert y.shape == dy.shape and y.dtype == dtype and y.is_contiguous()
    want = x.double().reshape(matrix_shape(shape)) @ dequantize(weight).double().t()
    assert close(y, want.view(y.shape), dtype)


def test_no_rows_give_zero():
    assert (dequant_gemm_dw(draw((0, 3)), quantize_pack(draw((0, 8)), 2)) == 0).all()
    assert (dequant_gemm(draw((2, 0)), quantize_pack(draw((5, 0)), 2)) == 0).all()


@pytest.mark.parametrize("group", [1, 7, 32, 256, 1000])
def test_groups_of_any_size(group):
    packed, dy = quantize_pack(draw((40, 300)), 4, group), draw((40, 6), seed=1)
    assert close(dequant_gemm_dw(dy, packed), exact_dw(dy, packed), torch.float32)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_poisoned_group_spoils_its_own_columns_alone(bad):
    x, dy = draw((40, 64)), draw((40, 6), seed=1)
    clean = dequant_gemm_dw(dy, quantize_pack(x, 2, 16))
    x[7, 20] = bad
    got = dequant_gemm_dw(dy, quantize_pack(x, 2, 16))
    assert got[:, 16:32].isnan().all()
    got[:, 16:32] = clean[:, 16:32]
    assert torch.equal(got, clean)


def test_non_contiguous_inputs():
    x, dy = draw((40, 30), seed=1), draw((6, 40), seed=2).t()
    packed = quantize_pack(x, 2, 8)
    assert torch.equal(dequant_gemm_dw(dy, packed), dequant_gemm_dw(dy.contiguous(), packed))
    turned = dataclasses.replace(
        packed,
        words=packed.words.transpose(0, 2).contiguous().transpose(0, 2),
        params=packed.params.transpose(0, 3).contiguous().transpose(0, 3),
    )
    assert torch.equal(dequant_gemm_dw(dy, turned), dequant_gemm_dw(dy, packed))
    rows = draw((30, 6), seed=3).t()
    assert torch.equal(dequant_gemm(rows, turned), dequant_gemm(rows.contiguous(), packed))


# ---- what is refused


@functools.cache
def small() -> PackedTensor:
    """Made when it is asked for: the first operator of a process imports torch's compiler."""
    return quantize_pack(draw((20, 30)), 4, 8)


REFUSED = {
    "dy must have shape (20, COUT) for packed of shape (20, 30), but has shape (21, 6)": lambda: (
        dequant_gemm_dw(draw((21, 6)), small())
    ),
    "dy must have shape (20, COUT) for packed of shape (20, 30), but has shape (4, 5, 6)": lambda: (
        dequant_gemm_dw(draw((4, 5, 6)), small())
    ),
    "dy must have shape (4, 5, COUT) for packed of shape (4, 5, 30), but has shape (20, 6)": lambda: (
        dequant_gemm_dw(draw((20, 6)), quantize_pack(draw((4, 5, 30)), 4))
    ),
    "dy must have at least one axis, but is a scalar": lambda: dequant_gemm_dw(draw(()), small()),
    "dy must be on the device of packed, cpu, but is on meta": lambda: dequant_gemm_dw(
        torch.empty(20, 6, device="meta"), small()
    ),
    "x must have shape (..., 30) for packed_weight of shape (20, 30), but has shape (4, 31)": lambda: (
        dequant_gemm(draw((4, 31)), small())
    ),
    "x must have at least one axis": lambda: dequant_gemm(draw(()), small()),
    "x must be on the device of packed_weight, cpu, but is on meta": lambda: dequant_gemm(
        torch.empty(4, 30, device="meta"), small()
    ),
    "packed_weight must have two axes, [N, K], but has shape (4, 5, 30)": lambda: dequant_gemm(
        draw((4, 30)), quantize_pack(draw((4, 5, 30)), 4)
    ),
    "packed.words must have shape (1, 16, 31), but has shape (1, 16, 30)": lambda: dequant_gemm_dw(
        draw((20, 6)), dataclasses.replace(small(), shape=(20, 31))
    ),
    "packed_weight.params must have shape (2, 1, 2, 64), but has shape (4, 1, 2, 64)": lambda: dequant_gemm(
        draw((4, 30)), dataclasses.replace(small(), group_size=16)
    ),
    "bits must be 1, 2, 4 or 8, but is 3": lambda: dequant_gemm_dw(
        draw((20, 6)), dataclasses.replace(small(), bits=3)
    ),
}
REFUSED_TYPES = {
    "packed must be a PackedTensor, not Tensor": lambda: dequant_gemm_dw(draw((20, 6)), draw((20, 30))),
    "packed_weight must be a PackedTensor, not Tensor": lambda: dequant_gemm(draw((4, 30)), draw((20, 30))),
    "dy must have the dtype of packed, torch.float32, but is torch.bfloat16": lambda: dequant_gemm_dw(
        draw((20, 6), torch.bfloat16), small()
    ),
    "dy must have the dtype of packed, torch.float32, but is ndarray": lambda: dequant_gemm_dw(
        np.zeros((20, 6), np.float32), small()
    ),
    "x must have the dtype of packed_weight, torch.float32, but is torch.float64": lambda: dequant_gemm(
        draw((4, 30)).double(), small()
    ),
}


@pytest.mark.parametrize("kind, table", [(ValueError, REFUSED), (TypeError, REFUSED_TYPES)])
def test_bad_input_is_refused_by_name_value_and_what_is_allowed(kind, table):
    for text, call in table.items():
        with pytest.raises(kind, match="^" + re.escape(text)):
            call()


# ---- the operators that torch knows


@bits_of_a_code
def test_opcheck(bits):
    quick = ("test_schema", "test_faketensor", "test_autograd_registration")
    for shape, cout, dtype in (
        ((20, 30), 7, torch.float32),
        ((2, 3, 5), 4, torch.bfloat16),
        ((0, 4), 2, FLOATS[1]),
    ):
        packed, dy = quantize_pack(draw(shape, dtype), bits, 8), draw((*shape[:-1], cout), dtype)
        weight = quantize_pack(draw((cout, shape[-1]), dtype), bits, 8)
        arguments = (dy, packed.words, packed.params, bits, 8)
        torch.library.opcheck(module._dequant_gemm_dw, arguments, test_utils=quick)
        arguments = (draw(shape, dtype).requires_grad_(), weight.words, weight.params, bits, 8, cout)
        torch.library.opcheck(module._dequant_gemm, arguments, test_utils=quick)


def test_opcheck_of_what_is_left():
    """The checks above are the quick ones; all of them once."""
    packed, dy = quantize_pack(draw((20, 30)), 4, 8), draw((20, 7))
    torch.library.opcheck(module._dequant_gemm_dw, (dy, packed.words, packed.params, 4, 8))
    x = draw((3, 30)).requires_grad_()
    torch.library.opcheck(module._dequant_gemm, (x, packed.words, packed.params, 4, 8, 20))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph(backend):
    def both(x, dy, weight):
        return dequant_gemm_dw(dy, quantize_pack(x, 4, 16)), dequant_gemm(x, quantize_pack(weight, 2, 16))

    torch.compiler.reset()
    compiled = torch.compile(both, fullgraph=True, backend=backend)
    inputs = draw((2, 20, 30)), draw((2, 20, 9), seed=1), draw((9, 30), seed=2)
    for got, want in zip(compiled(*inputs), both(*inputs), strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)
    torch.compiler.reset()


def test_the_gradient_of_x_is_that_of_the_dequantised_weight():
    packed, x = quantize_pack(draw((9, 30)), 4, 8), draw((2, 5, 30), seed=1).requires_grad_()
    dy = draw((2, 5, 9), seed=2)
    dequant_gemm(x, packed).backward(dy)
    assert torch.allclose(x.grad, dy @ dequantize(packed), rtol=1e-5, atol=1e-5)


def test_autocast_changes_nothing():
    packed, x = quantize_pack(draw((40, 30)), 4, 8), draw((5, 30)).requires_grad_()
    dy, dy_rows = draw((5, 40), seed=1), draw((40, 7), seed=2)
    want = dequant_gemm_dw(dy_rows, packed), dequant_gemm(x, packed)
    gradient = torch.autograd.grad(want[1], x, dy)[0]
    with torch.autocast("cpu", torch.bfloat16):
        got = dequant_gemm_dw(dy_rows, packed), dequant_gemm(x, packed)
        assert torch.equal(torch.autograd.grad(got[1], x, dy)[0], gradient)
    assert all(a.dtype == torch.float32 and torch.equal(a, b) for a, b in zip(got, want, strict=True))


# ---- the Triton kernel that adds


class Recorded:
    """Stands for a kernel in a launcher: runs it under guard."""

    def __init__(self, kernel, outputs):
        self.kernel, self.outputs = kernel, outputs

    def __getitem__(self, grid):
        def launch(*values, num_warps=4, num_stages=None, **constants):
            named = {**dict(zip(self.kernel.arg_names, values, strict=False)), **constants}
            grid_3d = (tuple(grid) + (1, 1))[:3]
            done = run(self.kernel, named, grid_3d, self.outputs)
            assert done.stop is None, done.stop
            assert done.conflict is None and not done.early_reads and not done.changed and not done.holes
            for name, output in zip(self.outputs, done.outputs.values(), strict=True):
                named[name].copy_(output)
            assert all(written.all() for written in done.written.values())

        return launch


def blank(shape, dtype):
    return torch.full(tuple(shape), float("nan"), dtype=dtype)


@pytest.mark.parametrize("splits, size", [(1, 5), (2, 512), (7, 1300)])
def test_splits_are_added_in_order(monkeypatch, splits, size):
    monkeypatch.setattr(common, "_add_splits_kernel", Recorded(common._add_splits_kernel, ["out_ptr"]))
    sums, out = 10.0 ** torch.arange(splits)[:, None] * draw((splits, size)), blank((size,), torch.float32)
    common.add_splits(sums, out)
    want = torch.zeros(size)
    for part in sums:
        want += part
    assert torch.equal(out, want)


# ---- dW in chunks of rows, where it is not fused


def chunked(monkeypatch, dy, packed, blocks):
    """`dw_by_chunks` in float32, so many blocks of rows at a time."""
    monkeypatch.setattr(module, "CHUNK", blocks * block_rows(packed.bits) * packed.shape[-1] * 4)
    return module.dw_by_chunks(dy, packed.words, packed.params, packed.bits, packed.group_size)


@bits_of_a_code
@pytest.mark.parametrize("rows, cout, cin, group", [(1, 1, 1, 1), (300, 33, 70, 32), (1030, 20, 40, 40)])
@pytest.mark.parametrize("blocks", [1, 2, 100])
def test_dw_in_chunks(monkeypatch, blocks, rows, cout, cin, group, bits):
    x, dy = draw((rows, cin), scale=2.0, offset=0.5), draw((rows, cout), seed=1)
    packed = quantize_pack(x, bits, group)
    assert close(chunked(monkeypatch, dy, packed, blocks), exact_dw(dy, packed), torch.float32)


def test_a_chunk_is_no_larger_than_it_says(monkeypatch):
    made = []

    def dequantized(words, params, bits, group_size, shape):
        made.append(shape)
        return torch.zeros(shape)

    monkeypatch.setattr(module, "dequantize_unchecked", dequantized)
    packed = quantize_pack(draw((1030, 40)), 4, 40)
    chunked(monkeypatch, draw((1030, 8), seed=1), packed, 3)
    assert made == [[192, 40]] * 5 + [[70, 40]]


def test_chunks_keep_a_poisoned_group_to_itself(monkeypatch):
    x, dy = draw((600, 64)), draw((600, 16), seed=1)
    clean = chunked(monkeypatch, dy, quantize_pack(x, 2, 16), 2)
    x[300, 20] = float("nan")
    got = chunked(monkeypatch, dy, quantize_pack(x, 2, 16), 2)
    assert got[:, 16:32].isnan().all()
    got[:, 16:32] = clean[:, 16:32]
    assert torch.equal(got, clean)


def test_what_rows_past_the_end_hold_is_not_read(monkeypatch):
    """Words and params of a block's missing rows may be anything."""
    x, dy = draw((70, 20)), draw((70, 8), seed=1)
    packed = quantize_pack(x, 4, 8)
    words, params = packed.words.clone(), packed.params.clone()
    params[:, 1, :, 6:] = float("nan")  # rows 70 and up of 128
    words[1, 6:] = -1
    spoilt = dataclasses.replace(packed, words=words, params=params)
    assert torch.equal(chunked(monkeypatch, dy, spoilt, 1), chunked(monkeypatch, dy, packed, 1))


@pytest.mark.parametrize(
    "rows, cout, cin, bits, unfused",
    [
        (8192, 1024, 1024, 2, True),  # how much faster the fused kernel is: 0.99
        (4096, 1024, 1024, 8, True),  # 0.86
        (8192, 3072, 768, 2, True),  # 0.83
        (2048, 4096, 4096, 2, True),  # 0.95
        (16384, 11008, 4096, 8, True),  # 0.92
        (8192, 4096, 4096, 8, True),  # 0.93
        (16384, 11008, 4096, 4, False),
        (8192, 768, 768, 8, False),  # 1.11
        (12288, 1024, 1024, 8, False),  # 1.19
        (8192, 2048, 2048, 8, False),  # 1.04
        (100864, 1024, 1024, 8, False),
        (16384, 4096, 11008, 8, False),  # 0.97, but x^ would be larger than dW in float32
    ],
)
def test_where_the_fused_product_is_left(rows, cout, cin, bits, unfused):
    assert module.unfused_is_faster(rows, cout, cin, bits) == unfused


def test_x_is_made_whole_where_dw_is_as_large(monkeypatch):
    """Then nothing is added, and nothing rounded twice."""
    made = []

    def dequantized(words, params, bits, group_size, shape):
        made.append(shape)
        return torch.zeros(shape)

    monkeypatch.setattr(module, "CHUNK", 1)
    monkeypatch.setattr(module, "dequantize_unchecked", dequantized)
    packed = quantize_pack(draw((130, 40)), 4, 40)
    for columns, shapes in ((192, [[130, 40]]), (64, [[64, 40], [64, 40], [2, 40]])):
        made.clear()
        dy = draw((130, columns))
        assert module.dw_by_chunks(dy, packed.words, packed.params, 4, 40).shape == (columns, 40)
        assert made == shapes


@pytest.mark.parametrize(
    "rows, shape, dtype, group, capability, wanted",
    [
        (1, (8192, 8192), torch.bfloat16, 128, (9, 0), "rows16"),
        (16, (4096, 4096), torch.float16, 128, (9, 0), "rows16"),
        (16, (4096, 11008), torch.bfloat16, 128, (9, 0), "rows128"),
        (128, (4096, 4096), torch.bfloat16, 128, (9, 0), "rows128"),
        (32, (4096, 4096), torch.bfloat16, 32, (9, 0), "rows16"),  # groups of no half step
        (32, (4096, 4100), torch.bfloat16, 64, (9, 0), "rows16"),  # rows of no 16 bytes
        (32, (4096, 4096), torch.bfloat16, 128, (8, 0), "rows16"),
        (33, (4096, 4096), torch.bfloat16, 128, (8, 0), None),
        (129, (4096, 4096), torch.bfloat16, 128, (9, 0), None),
        (1, (4096, 4096), torch.float32, 128, (9, 0), None),
        (1, (4096, 4096), torch.bfloat16, 100, (9, 0), None),
        (1, (4096, 4096), torch.bfloat16, 128, (7, 5), None),
    ],
)
def test_which_kernel_multiplies(monkeypatch, rows, shape, dtype, group, capability, wanted):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    x = torch.empty(rows, shape[1], dtype=dtype)
    words = torch.empty(shape[0] // 64, 16, shape[1], dtype=torch.int16)
    launch = module._fused(x, words, 4, group)
    assert (launch and launch.__module__) == (wanted and f"{module.__name__}_{wanted}")
