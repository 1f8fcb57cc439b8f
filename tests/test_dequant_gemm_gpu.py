"""Products with a packed factor on a GPU: as accurate as dequantise + cuBLAS, the same bits each time.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

import dataclasses
import itertools
from importlib import import_module

import pytest
import torch

from puzzles_lib.kernels.bitpack import BITS, matrix_shape
from puzzles_lib.kernels.dequant_gemm import dequant_gemm, dequant_gemm_dw
from puzzles_lib.kernels.quantize import PackedTensor, dequantize, quantize_pack

module = import_module("puzzles_lib.kernels.dequant_gemm")

pytestmark = pytest.mark.gpu

HALVES = (torch.float16, torch.bfloat16)
FLOATS = (torch.float32, *HALVES)
REPEATS = 300
bits_of_a_code = pytest.mark.parametrize("bits", BITS)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


@pytest.fixture(autouse=True, scope="module")
def _float32_sums():
    """cuBLAS keeps to float32 sums. By hand: pytest's monkeypatch can't undo torch's computed settings."""
    matmul = torch.backends.cuda.matmul
    settings = ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction")
    before = [getattr(matmul, setting) for setting in settings]
    for setting in settings:
        setattr(matmul, setting, False)
    yield
    for setting, value in zip(settings, before, strict=True):
        setattr(matmul, setting, value)


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch):
    """Memory that a kernel does not write is NaN."""

    def poisoned(make):
        def empty(*arguments, **options):
            made = make(*arguments, **options)
            return made.fill_(float("nan")) if made.is_floating_point() else made

        return empty

    monkeypatch.setattr(torch, "empty", poisoned(torch.empty))
    monkeypatch.setattr(torch.Tensor, "new_empty", poisoned(torch.Tensor.new_empty))


def draw(shape, dtype=torch.bfloat16, seed=0, scale=1.0, offset=0.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator) * scale + offset).to(dtype)


def in_range(x, dtype):
    """x in the dtype; a group of float16 may span 65504 at most."""
    return (x.clamp(-30000, 30000) if dtype == torch.float16 else x).to(dtype)


def chunked_dw(dy, packed):
    """dW by chunks of rows, where `dequant_gemm_dw` takes another way for these."""
    return module.dw_by_chunks(dy, packed.words, packed.params, packed.bits, packed.group_size)


PATHS = {"product": dequant_gemm_dw, "chunks": chunked_dw}
paths = pytest.mark.parametrize("path", PATHS)


def check_accuracy(got, unfused, want):
    """No worse than 1.05 times the error of dequantise + cuBLAS; few elements: one rounding, and sums."""
    assert got.shape == want.shape and got.isfinite().all()
    size = want.norm()
    error, allowed = (got.double() - want).norm() / size, (unfused.double() - want).norm() / size
    allowed_error = 1.05 * allowed
    if got.dtype == torch.float32:
        allowed_error = max(allowed_error, 1e-6)  # either has float32's sums, in another order
    elif want.numel() < 4096:
        allowed_error = max(
            allowed_error, torch.finfo(got.dtype).eps / 2
        )  # one rounding each: luck of the draw
    assert error <= allowed_error, f"relative error {error:.3e}, of dequantise + cuBLAS {allowed:.3e}"


def check_dw(dy, packed, path="product"):
    x, dy_rows = dequantize(packed), dy.reshape(matrix_shape(dy.shape))
    x = x.reshape(matrix_shape(packed.shape))
    got = PATHS[path](dy, packed)
    assert got.dtype == dy.dtype
    check_accuracy(got, dy_rows.t() @ x, dy_rows.double().t() @ x.double())


# ---- dW


@bits_of_a_code
@dtypes
@pytest.mark.parametrize("group", [16, 32, 64, 128, 256, 328])
@paths
def test_dw_in_every_format(path, group, dtype, bits):
    check_dw(draw((1000, 200), dtype, 1), quantize_pack(draw((1000, 328), dtype), bits, group), path)


# K, COUT, CIN
DW_SHAPES = [
    (1, 8, 8), (7, 8, 264), (31, 40, 136), (127, 128, 128), (129, 256, 128), (257, 264, 136),
    (1023, 768, 256), (8192, 768, 768), (4097, 96, 1000), (20000, 72, 64), (1, 1, 1), (130, 33, 70),
    (300, 257, 129), (3000, 5, 1001),
]  # fmt: skip


@bits_of_a_code
@paths
@pytest.mark.parametrize("group", [32, 64, 256])
@pytest.mark.parametrize("shape", DW_SHAPES, ids=str)
def test_dw_in_every_shape(shape, group, path, bits):
    rows, cout, cin = shape
    check_dw(draw((rows, cout), seed=1), quantize_pack(draw((rows, cin)), bits, group), path)


@bits_of_a_code
@paths
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_dw_over_scales_and_offsets(dtype, path, bits):
    for scale, offset in itertools.product((1e-6, 1e-3, 1.0, 1e2, 1e4), (0.0, 3.0)):
        x = in_range(draw((2000, 512), torch.float32, 2, scale, scale * offset), dtype)
        dy = draw((2000, 384), dtype, 3, min(1e3, 1e-2 / scale))
        check_dw(dy, quantize_pack(x, bits, 256), path)


def test_dw_of_leading_axes_and_strides():
    x, dy = draw((4, 50, 128)), draw((50, 4, 72), seed=1).transpose(0, 1)
    check_dw(dy, quantize_pack(x, 2, 128))
    assert torch.equal(
        dequant_gemm_dw(dy, quantize_pack(x, 2)), dequant_gemm_dw(dy.contiguous(), quantize_pack(x, 2))
    )


def test_dw_of_tensors_without_alignment():
    """Views whose first element is at no multiple of 16 bytes."""
    dy = draw((300 * 72 + 1,), seed=1)[1:].view(300, 72)
    packed = quantize_pack(draw((300, 128)), 2, 128)
    assert dy.data_ptr() % 16 and dy.is_contiguous()
    check_dw(dy, packed)


def test_dw_of_nothing():
    for x_shape, cout in (((0, 8), 4), ((8, 0), 4), ((8, 4), 0)):
        dw = dequant_gemm_dw(draw((x_shape[0], cout)), quantize_pack(draw(x_shape), 2))
        assert dw.shape == (cout, x_shape[1]) and (dw == 0).all()


@paths
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_poisoned_group_spoils_its_own_columns_alone(bad, path):
    x, dy = draw((3000, 512)), draw((3000, 136), seed=1)
    clean = PATHS[path](dy, quantize_pack(x, 2, 128))
    x[1700, 200] = bad
    got = PATHS[path](dy, quantize_pack(x, 2, 128))
    assert got[:, 128:256].isnan().all()
    got[:, 128:256] = clean[:, 128:256]
    assert torch.equal(got, clean)


def check_repeats(call):
    """The same bits, REPEATS times."""
    first = call()
    differ = torch.zeros((), dtype=torch.int64, device="cuda")
    for _ in range(REPEATS):
        differ += (call() != first).any()
    assert first.isfinite().all() and differ == 0, f"{int(differ)} of {REPEATS} runs differ"


# K, COUT, CIN, group: tiles of 128 and less, ragged ones, many and few splits
REPEATED = [(8192, 768, 768, 256), (2500, 200, 136, 136), (300, 264, 512, 128), (4000, 264, 520, 64)]
REPEATED += [(2500, 768, 328, 32)]


@bits_of_a_code
@paths
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("shape", REPEATED, ids=str)
def test_dw_is_bitwise_repeatable(shape, dtype, path, bits):
    rows, cout, cin, group = shape
    for scale in (1e-3, 1.0, 1e2):
        dy, x = draw((rows, cout), dtype, 1, 1e-1), draw((rows, cin), dtype, 2, scale, scale)
        packed = quantize_pack(x, bits, group)
        check_repeats(lambda dy=dy, packed=packed: PATHS[path](dy, packed))


def test_dw_in_float32_is_bitwise_repeatable():
    dy, packed = draw((2500, 200), torch.float32, 1), quantize_pack(draw((2500, 136), torch.float32), 4, 64)
    check_repeats(lambda: dequant_gemm_dw(dy, packed))


@bits_of_a_code
@paths
def test_dw_makes_no_dequantised_copy(path, bits):
    dy, packed = draw((100864, 768), seed=1), quantize_pack(draw((100864, 768)), bits, 256)
    PATHS[path](dy, packed)
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    PATHS[path](dy, packed)
    extra = torch.cuda.max_memory_allocated() - before
    assert extra < dy.nbytes // 3, f"{extra / 1e6:.1f} MB beside x^'s {dy.nbytes / 1e6:.1f} MB"


# ---- the forward


def check_forward(x, packed):
    weight = dequantize(packed)
    got = dequant_gemm(x, packed)
    assert got.dtype == x.dtype
    check_accuracy(got, x @ weight.t(), x.double() @ weight.double().t())


# M, N, K, group
FORWARD_SHAPES = [
    (1, 4096, 4096, 256), (3, 4096, 4096, 64), (16, 4096, 4096, 128), (17, 4096, 4096, 256),
    (5, 1000, 1000, 32), (16, 130, 520, 520), (1, 1, 1, 1), (2, 33, 4100, 100), (9, 64, 8192, 8192),
    (128, 512, 768, 256), (300, 257, 130, 64), (2, 64, 20000, 20000),
    # several splits of K, ragged; groups that no power of two is; rows of no 16 bytes; every number of rows
    (8, 300, 5000, 96), (40, 300, 5000, 192), (64, 1000, 1152, 64), (33, 8200, 520, 128),
    (100, 130, 4104, 4104), (16, 8192, 4096, 128), (24, 500, 1001, 32), (12, 65, 1002, 1002),
    (31, 64, 4096, 32), (128, 129, 10000, 80), (64, 100, 32768, 64),
]  # fmt: skip


@bits_of_a_code
@dtypes
@pytest.mark.parametrize("shape", FORWARD_SHAPES, ids=str)
def test_forward_in_every_shape(shape, dtype, bits):
    rows, features, columns, group = shape
    weight = draw((features, columns), dtype, 1, 0.02, 0.01)
    check_forward(draw((rows, columns), dtype, 2), quantize_pack(weight, bits, group))


@bits_of_a_code
@pytest.mark.parametrize("rows", [4, 16, 40])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_forward_over_scales_and_offsets(dtype, rows, bits):
    for scale, offset in itertools.product((1e-6, 1e-3, 1.0, 1e2, 1e4), (0.0, 3.0)):
        weight = in_range(draw((1024, 1024), torch.float32, 1, scale, scale * offset), dtype)
        check_forward(draw((rows, 1024), dtype, 2, min(1e3, 1e-2 / scale)), quantize_pack(weight, bits, 128))


@bits_of_a_code
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rows", [1, 16, 64])
def test_forward_is_bitwise_repeatable(rows, dtype, bits):
    for scale in (1e-3, 1.0, 1e2):
        packed = quantize_pack(draw((4096, 4096), dtype, 1, scale), bits, 256)
        x = draw((rows, 4096), dtype, 2, 1e-1)
        check_repeats(lambda x=x, packed=packed: dequant_gemm(x, packed))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("rows", [4, 40, 128])
def test_a_poisoned_row_of_the_weight_spoils_its_own_feature_alone(rows, dtype, bad):
    weight, x = draw((200, 512), dtype), draw((rows, 512), dtype, 1)
    clean = dequant_gemm(x, quantize_pack(weight, 4, 128))
    weight[70, 300] = bad
    got = dequant_gemm(x, quantize_pack(weight, 4, 128))
    assert got[:, 70].isnan().all()
    got[:, 70] = clean[:, 70]
    assert torch.equal(got, clean)


@bits_of_a_code
@pytest.mark.parametrize("rows", [4, 40])
def test_params_that_leave_no_room_for_powers_of_two(rows, bits):
    """Huge and tiny ones, side by side in a program: each feature is as exact as without its neighbours."""
    weight, x = draw((256, 1024), torch.float32, 1), draw((rows, 1024), torch.bfloat16, 2)
    for first, size in ((3, 1e30), (40, 1e-30), (77, 3e4), (78, 1e-36)):
        weight[first::128] *= size
    weight[5, 128:256], weight[9::64, :64] = 1e-33, 0  # constant groups: a scale of 1
    packed = quantize_pack(weight.bfloat16(), bits, 128)
    exact = x.double() @ dequantize(packed).double().t()
    got = dequant_gemm(x, packed).double()
    allowed = 2**-8 * exact.abs() + 1e-6 * (x.double().abs() @ dequantize(packed).double().abs().t())
    assert ((got - exact).abs() <= allowed).all()


@pytest.mark.parametrize("rows", [4, 64])
def test_x_that_is_no_number_spoils_its_own_row_alone(rows):
    packed, x = quantize_pack(draw((200, 1000)), 4, 64), draw((rows, 1000), seed=1)
    clean = dequant_gemm(x, packed)
    x[2, 999], x[3, 0] = float("nan"), float("inf")
    got = dequant_gemm(x, packed)
    assert got[2].isnan().all() and not got[3].isfinite().any()
    got[2:4] = clean[2:4]
    assert torch.equal(got, clean)


@bits_of_a_code
@pytest.mark.parametrize("rows", [1, 16, 17, 64, 128])
@pytest.mark.parametrize("columns, group", [(1000, 64), (520, 32), (130, 130)])
def test_what_lies_around_the_operands_is_not_read(rows, columns, group, bits):
    """Nor what a block holds past the last feature."""

    def between(value, poison):
        buffer = torch.full((value.numel() + 8192,), poison, device="cuda", dtype=value.dtype)
        buffer[4096:-4096] = value.flatten()
        return buffer[4096:-4096].view(value.shape)

    features = 300
    packed, x = quantize_pack(draw((features, columns), seed=1), bits, group), draw((rows, columns), seed=2)
    want = dequant_gemm(x, packed)
    words, params = between(packed.words, 0x7FFF), between(packed.params, float("nan"))
    params[:, -1, :, features % (256 // bits) :] = float("nan")
    hidden = dataclasses.replace(packed, words=words, params=params)
    assert torch.equal(dequant_gemm(between(x, float("nan")), hidden), want)
    assert want.isfinite().all()


def test_no_offset_overflows():
    """Words and params of more than 2^31 elements."""
    free = torch.cuda.mem_get_info()[0]
    if free < 40 << 30:
        pytest.skip(f"{free >> 30} GiB are free, 40 are needed")
    columns, features, group = 65536, 8256 * 64, 32
    words = torch.empty(features // 64, 16, columns, device="cuda", dtype=torch.int16).random_()
    words -= 2**14  # the sign bit, too
    params = torch.rand(columns // group, features // 64, 2, 64, device="cuda", dtype=torch.bfloat16)
    assert words.numel() > 2**31 and params.numel() > 2**31
    last = PackedTensor(words[-2:], params[:, -2:], 4, group, (128, columns), torch.bfloat16)
    for rows, step in ((1, 1), (64, 2)):  # groups of 64 for the kernel of many rows
        packed = PackedTensor(
            words, params[::step].contiguous(), 4, step * group, (features, columns), torch.bfloat16
        )
        some = dataclasses.replace(last, params=last.params[::step].contiguous(), group_size=step * group)
        x = draw((rows, columns), seed=1)
        got = dequant_gemm(x, packed)
        assert got.isfinite().all()
        weight = dequantize(some)
        check_accuracy(got[:, -128:], x @ weight.t(), x.double() @ weight.double().t())


@pytest.mark.parametrize("rows", [2, 40])
def test_operands_without_alignment(rows):
    """Views whose first element is at no multiple of 16 bytes."""
    packed = quantize_pack(draw((300, 1024)), 4, 128)
    x = draw((rows * 1024 + 1,), seed=1)[1:].view(rows, 1024)
    words = torch.empty(packed.words.numel() + 1, device="cuda", dtype=torch.int16)[1:].view_as(packed.words)
    shifted = dataclasses.replace(packed, words=words.copy_(packed.words))
    check_forward(x, packed)
    check_forward(x.clone(), shifted)


def test_forward_makes_no_dequantised_copy():
    packed = quantize_pack(draw((4096, 4096)), 4, 256)
    for rows in (1, 16, 32, 64, 128):
        x = draw((rows, 4096), seed=1)
        dequant_gemm(x, packed)
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        dequant_gemm(x, packed)
        assert torch.cuda.max_memory_allocated() - before < 4096 * 4096 * 2 // 3


# ---- the operators that torch knows


def test_opcheck_of_every_operator():
    packed, dy = quantize_pack(draw((100, 304)), 2, 128), draw((100, 40), seed=1)
    torch.library.opcheck(module._dequant_gemm_dw, (dy, packed.words, packed.params, 2, 128))
    x = draw((3, 304), seed=2).requires_grad_()
    torch.library.opcheck(module._dequant_gemm, (x, packed.words, packed.params, 2, 128, 100))


def test_compiles_as_one_graph(monkeypatch):
    monkeypatch.undo()  # the compiler has a use for torch.empty of its own

    def both(x, dy, weight):
        return dequant_gemm_dw(dy, quantize_pack(x, 4, 128)), dequant_gemm(x, quantize_pack(weight, 4, 128))

    inputs = draw((2, 128, 256)), draw((2, 128, 136), seed=1), draw((136, 256), seed=2)
    compiled = torch.compile(both, fullgraph=True)
    for got, want in zip(compiled(*inputs), both(*inputs), strict=True):
        assert torch.equal(got, want)


@bits_of_a_code
@pytest.mark.parametrize("features", [512, 4096])
def test_a_chain_of_products_waits_for_each(features, bits):
    """Each may begin while the one before ends, which makes its x; words and x change in between."""
    packs = [
        quantize_pack(draw((features, features), seed=i, scale=features**-0.5), bits, 128) for i in (0, 1)
    ]
    packed, first = dataclasses.replace(packs[0], words=packs[0].words.clone()), draw((4, features), seed=2)

    def chain(between):
        x, seen = first.clone(), []
        for number in range(30):
            packed.words.copy_(packs[number % 2].words)
            between()
            for _ in range(3):
                x = dequant_gemm(x, packed)
                between()
            x = x.clamp_(-3, 3) + 0.5
            seen.append(x.clone())
            between()
        return torch.stack(seen)

    want = chain(torch.cuda.synchronize)
    for _ in range(5):
        assert torch.equal(chain(lambda: None), want)


def test_in_a_cuda_graph():
    packed, dy = quantize_pack(draw((2000, 256)), 2, 256), draw((2000, 136), seed=1)
    weight, x = quantize_pack(draw((512, 256)), 4, 256), draw((4, 256), seed=2)
    want = dequant_gemm_dw(dy, packed), dequant_gemm(x, weight)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = dequant_gemm_dw(dy, packed), dequant_gemm(x, weight)
    for _ in range(3):
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


def test_two_devices_are_refused():
    packed = quantize_pack(draw((8, 8)), 2)
    with pytest.raises(ValueError, match="dy must be on the device of packed, cuda:0, but is on cpu"):
        dequant_gemm_dw(draw((8, 8)).cpu(), packed)
    with pytest.raises(ValueError, match="x must be on the device of packed_weight, cuda:0, but is on cpu"):
        dequant_gemm(draw((8, 8)).cpu(), packed)
