"""Int8 dynamic linear on a GPU: to the bit what the CPU gives, whatever the shape.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

import itertools
from importlib import import_module

import pytest
import torch
from torch import nn

from puzzles_lib.kernels.q8_linear import MAX_K, Q8Linear, Tiles, q8_linear, quantize_rows, swap_linears

module = import_module("puzzles_lib.kernels.q8_linear")

pytestmark = pytest.mark.gpu

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
ROWS = (0, 1, 2, 3, 4, 8, 63, 64, 65, 84)
OUTPUTS = (1, 48, 64, 65, 200)
COLUMNS = (0, 1, 31, 32, 33, 60, 256)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def draw(shape, dtype=torch.float32, seed=0, scale=1.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype).cuda()


def draw_weights(outputs, columns, seed=1):
    """wq with the extreme codes in it, w_scale and bias."""
    generator = torch.Generator().manual_seed(seed)
    wq = torch.randint(-127, 128, (outputs, columns), generator=generator, dtype=torch.int8)
    wq.view(-1)[::7], wq.view(-1)[3::11] = 127, -127
    w_scale = torch.rand(outputs, generator=generator) / 100
    return wq.cuda(), w_scale.cuda(), torch.randn(outputs, generator=generator).cuda()


def on_the_cpu(x, *rest):
    return q8_linear(x.cpu(), *(None if r is None else r.cpu() for r in rest))


def same(got, want):
    """Equal to the bit, NaN where NaN is wanted."""
    got, want = got.cpu(), want.cpu()
    return got.dtype == want.dtype and torch.equal(got.nan_to_num(77.0), want.nan_to_num(77.0))


def check(x, wq, w_scale, bias=None):
    """The operator's result, from memory that held something else, is the CPU's."""
    want = on_the_cpu(x, wq, w_scale, bias)
    junk = torch.full((max(1, want.numel()),), float("nan"), device="cuda", dtype=x.dtype)
    del junk  # its memory is what y gets
    y = q8_linear(x, wq, w_scale, bias)
    assert y.shape == want.shape and same(y, want), (tuple(x.shape), tuple(wq.shape))
    return y


def filled(x, wq, w_scale, bias, launch):
    """What a launcher writes into a y full of NaN."""
    y = torch.full((x.shape[0], wq.shape[0]), float("nan"), device="cuda", dtype=x.dtype)
    launch(x, wq, w_scale, bias, y)
    return y


# ---- rows


@dtypes
@pytest.mark.parametrize("columns", [1, 31, 33, 256, 1000, 4096, 8192, 9001])
def test_quantize_rows(columns, dtype):
    for rows, magnitude in itertools.product((1, 3, 300), (1.0, 1e-6, 1e4)):
        x = draw((rows, columns), dtype, rows, magnitude)
        x[-1] = 0
        for got, want in zip(quantize_rows(x), quantize_rows(x.cpu()), strict=True):
            assert torch.equal(got.cpu(), want)


def test_quantize_rows_that_bite():
    for columns in (40, 8200):
        x = draw((12, columns))
        x[0], x[1], x[2], x[3] = x[0] * 1e-40, x[1] * 3e-38, x[2] * 1e-25, x[3] * 3e37
        x[4, 5], x[5, 6], x[6, 7], x[7] = float("nan"), float("inf"), float("-inf"), 0
        x[8, :9] = torch.tensor([127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 125.5, 126.5]) / 16
        x[8, 9:] = 0
        codes, scale = quantize_rows(x)
        want_codes, want_scale = quantize_rows(x.cpu())
        assert torch.equal(codes.cpu(), want_codes) and same(scale, want_scale)
        assert codes[8, :9].tolist() == [127, 0, 2, 2, 0, -2, -2, 126, 126]
        assert scale[4:7].isnan().all() and not codes[4:8].any()


def test_every_tie_is_divided():
    """Values beside a tie, at magnitudes where the remainder of the division would be subnormal."""
    for power in (0, -60, -90, -110, -119, 60, 120):
        base = torch.linspace(2, 3.99, 300)[:, None] * 2.0**power
        tie = (torch.arange(-126, 126) + 0.5) * (base / 127)
        x = torch.cat([tie, torch.nextafter(tie, 2 * tie), torch.nextafter(tie, 0 * tie), base], 1)
        for got, want in zip(quantize_rows(x.cuda()), quantize_rows(x), strict=True):
            assert torch.equal(got.cpu(), want)


# ---- the product


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize("rows", ROWS)
def test_every_shape(rows, outputs):
    """The dtypes and the bias take turns, to compile less."""
    for number, columns in enumerate(COLUMNS):
        x = draw((rows, columns), FLOATS[number % 3])
        wq, w_scale, bias = draw_weights(outputs, columns)
        check(x, wq, w_scale, bias if number % 2 else None)


@pytest.mark.parametrize("rows", [1, 5, 16, 17, 33, 64, 65, 128, 200, 256, 300, 512, 1000, 1500])
def test_larger_shapes(rows):
    shapes = ((256, 1024), (4096, 2048), (1000, 4112), (130, 8192), (72, 1000), (5000, 80), (4400, 1040))
    for outputs, columns in shapes:
        x, (wq, w_scale, bias) = draw((rows, columns), torch.bfloat16), draw_weights(outputs, columns)
        x[rows // 2, 7], x[-1] = float("nan"), 0
        y = check(x, wq, w_scale, bias)
        assert torch.equal(y[-1], bias.bfloat16()) and (rows == 1 or y[rows // 2].isnan().all())
        y = filled(x, wq, w_scale, bias, module.launch_q8_linear)
        assert same(y, on_the_cpu(x, wq, w_scale, bias))


@pytest.mark.parametrize("tma", [False, True])
@pytest.mark.parametrize("split", [1, 2, 3, 8])
@pytest.mark.parametrize("m, n, k, warps", [(16, 32, 64, 4), (64, 32, 256, 4), (128, 128, 128, 4)])
def test_tiles_and_shares(m, n, k, warps, split, tma):
    if tma and torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("no bulk copies before Hopper")
    tiles = Tiles(m, n, k, split=split, warps=warps, stages=3)
    x, (wq, w_scale, bias) = draw((150, 1040)), draw_weights(210, 1040)
    codes = torch.full((tiles.m * 20, 1040), 55, dtype=torch.int8, device="cuda")  # rows past M hold junk
    scale, want = torch.empty(150, device="cuda"), on_the_cpu(x, wq, w_scale, bias)
    grid = module.grid_of(tiles, 150, 210)
    for _ in range(5):
        sums = torch.full((150 * 210 + grid[0],), 99, dtype=torch.int32, device="cuda") if split > 1 else None
        y = torch.full((150, 210), float("nan"), device="cuda")
        module.launch_quantize_rows(x, codes, scale, sums, pdl=tma)
        module.launch_matmul(codes, scale, wq, w_scale, bias, y, sums, tiles, tma, pdl=tma)
        assert same(y, want)


@pytest.mark.parametrize("rows", [1, 100])
def test_the_longest_row(rows):
    x = torch.full((rows, MAX_K), 3.0, device="cuda")
    wq = torch.full((3, MAX_K), 127, dtype=torch.int8, device="cuda")
    wq[1], wq[2, ::2] = -127, -127
    y = check(x, wq, torch.ones(3, device="cuda"))
    assert float(y[0, 0]) == -float(y[0, 1]) > 5e7 and float(y[0, 2]) == 0


def test_a_row_is_the_same_alone_and_in_a_batch():
    """Over every choice of tiles."""
    wq, w_scale, bias = draw_weights(512, 4096)
    x = draw((1100, 4096), torch.bfloat16) * torch.logspace(-3, 3, 1100, device="cuda")[:, None]
    x = x.bfloat16()
    y = q8_linear(x, wq, w_scale, bias)
    for rows in (1, 3, 16, 17, 40, 64, 65, 128, 256, 512, 700):
        assert torch.equal(q8_linear(x[:rows], wq, w_scale, bias), y[:rows])
        assert torch.equal(q8_linear(x[-rows:], wq, w_scale, bias), y[-rows:])


@pytest.mark.parametrize("outputs", [256, 4096])
@pytest.mark.parametrize("rows", [1, 4, 16, 64, 100, 600])
def test_a_hundred_runs_are_equal(rows, outputs):
    """Each after a kernel that has just written x: a program that started too early would read the old."""
    wq, w_scale, bias = draw_weights(outputs, 4096)
    first, second = (draw((rows, 4096), torch.bfloat16, seed) for seed in (0, 1))
    wants = [on_the_cpu(x, wq, w_scale, bias).cuda() for x in (first, second)]
    x = torch.empty_like(first)
    wrong = torch.zeros((), dtype=torch.int64, device="cuda")
    for number in range(100):
        x.copy_((first, second)[number % 2])
        y = q8_linear(x, wq, w_scale, bias)
        wrong += (y != wants[number % 2]).sum()
        y.fill_(float("nan"))
    assert int(wrong) == 0


@pytest.mark.parametrize("rows", [4, 40, 100])
def test_weights_that_have_just_changed(rows):
    """They and their scales are asked for before the codes are there."""
    x, (wq, w_scale, bias) = draw((rows, 4096), torch.bfloat16), draw_weights(4096, 4096)
    wants = [on_the_cpu(x, wq * sign, w_scale * size, bias).cuda() for sign, size in ((1, 1), (-1, 2))]
    for number in range(20):
        assert torch.equal(q8_linear(x, wq, w_scale, bias), wants[number % 2])
        wq.neg_()
        w_scale.mul_(0.5 if number % 2 else 2.0)


def test_in_a_graph_and_on_two_streams():
    wq, w_scale, bias = draw_weights(256, 4096)  # few outputs: shares, with sums and counters
    x = draw((8, 4096), torch.bfloat16)
    want = q8_linear(x, wq, w_scale, bias)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = q8_linear(x, wq, w_scale, bias)
    for _ in range(20):
        y.fill_(float("nan"))
        graph.replay()
        assert torch.equal(y, want)
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    got = []
    for number in range(100):
        with torch.cuda.stream(streams[number % 2]):
            got.append(q8_linear(x, wq, w_scale, bias))
    torch.cuda.synchronize()
    assert all(torch.equal(y, want) for y in got)


@dtypes
def test_strides_shapes_and_bias_dtypes(dtype):
    x = draw((40, 30), dtype).t()
    wq, w_scale, bias = draw_weights(20, 40)
    for b in (bias, bias.half(), bias.bfloat16(), bias.repeat_interleave(3)[::3]):
        check(x, wq, w_scale.repeat_interleave(2)[::2], b)
    strided = torch.empty_strided((20, 40), (1, 20), dtype=torch.int8, device="cuda").copy_(wq)
    check(x, strided, w_scale, bias)
    check(draw((2, 3, 40), dtype), wq, w_scale, bias)
    check(draw((40,), dtype), wq, w_scale, bias)
    offset = torch.empty(20 * 40 + 3, dtype=torch.int8, device="cuda")[3:].view(20, 40).copy_(wq)
    check(x, offset, w_scale, bias)  # not aligned to 16 bytes


# ---- torch


def test_opcheck():
    wq, w_scale, bias = draw_weights(48, 64)
    x = draw((20, 64), torch.bfloat16)
    torch.library.opcheck(module._quantize_rows, (x,))
    torch.library.opcheck(module._q8_linear, (x, wq, w_scale, bias))
    torch.library.opcheck(module._q8_linear, (x, wq, w_scale, None))


def test_modules_compile_as_one_graph():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 64)).eval()
    want = model(draw((40, 256)).cpu()).detach()
    model = swap_linears(model).cuda()
    assert isinstance(model[0], Q8Linear) and model[0].weight.is_cuda
    x = draw((40, 256))
    y = model(x)
    assert float((y.cpu() - want).norm() / want.norm()) < 0.02
    compiled = torch.compile(model, fullgraph=True)
    assert torch.allclose(compiled(x), y, rtol=1e-5, atol=1e-5)
    exported = torch.export.export(model, (x,)).module()
    assert torch.equal(exported(x), y)
    half = model.to(torch.bfloat16)
    assert half[0].scale.dtype == torch.float32
    assert float((half(x.bfloat16()).cpu().float() - want).norm() / want.norm()) < 0.03


def test_two_devices_are_refused():
    wq, w_scale, bias = draw_weights(5, 8)
    with pytest.raises(ValueError, match="^x must be on the device of wq, cuda:0, but is on cpu"):
        q8_linear(torch.zeros(4, 8), wq, w_scale, bias)
    with pytest.raises(ValueError, match="^bias must be on the device of wq, cuda:0, but is on cpu"):
        q8_linear(torch.zeros(4, 8, device="cuda"), wq, w_scale, bias.cpu())
