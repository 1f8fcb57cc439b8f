"""Products by group and RoPE on a GPU, beside torch's in float64.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

from importlib import import_module

import pytest
import torch

from puzzles_lib.kernels.grouped_matmul import grouped_matmul
from puzzles_lib.kernels.rope import rope, rope_ref

module = import_module("puzzles_lib.kernels.grouped_matmul")

pytestmark = pytest.mark.gpu


def draw(counts, K, N, dtype, transposed):
    generator = torch.Generator("cuda").manual_seed(0)
    options = {"device": "cuda", "generator": generator}
    x = torch.randn(sum(counts), K, **options).to(dtype)
    w = torch.randn(len(counts), *((N, K) if transposed else (K, N)), **options).to(dtype)
    start = torch.tensor([0, *counts], device="cuda").cumsum(0, dtype=torch.int32)
    return x, w.mT if transposed else w, start


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", module.HALVES, ids=str)
@pytest.mark.parametrize("K, N", [(64, 128), (200, 264), (1, 1), (37, 131), (1024, 512)])
@pytest.mark.parametrize(
    "counts",
    [(1,), (0, 0, 2, 0), (3, 0, 1, 17), (100, 0, 64, 65), (0, 1000, 7, 2000), (5,) * 100],
    ids=str,
)
def test_results_and_gradients_are_float64s(counts, K, N, dtype, transposed):
    x, w, start = draw(counts, K, N, dtype, transposed)
    x.requires_grad_()
    w.requires_grad_()
    y = grouped_matmul(x, w, start)
    dy = torch.randn_like(y)
    found = (y.detach(), *torch.autograd.grad(y, (x, w), dy))
    wide = [each.detach().double().requires_grad_() for each in (x, w)]
    right = module.grouped_matmul_ref(*(each.detach() for each in wide), start)
    want = (right, module.grouped_matmul_ref(dy.double(), wide[1].detach().mT, start),
            module.grouped_matmul_dw_ref(wide[0].detach(), dy.double(), start))  # fmt: skip
    for got, exact in zip(found, want, strict=True):
        assert got.isfinite().all()
        assert (got.double() - exact).norm() <= torch.finfo(dtype).eps * exact.norm()


@pytest.mark.parametrize("name", ["FEW", "SOME", "MANY", "OLD"])
@pytest.mark.parametrize("transposed", [False, True])
def test_every_tile_computes_every_shape(monkeypatch, name, transposed):
    monkeypatch.setattr(module, "choose_tiles", lambda *_: getattr(module, name))
    for counts, K, N in (((300, 0, 1, 511), 96, 200), ((7, 9), 1000, 16), ((129,) * 9, 64, 512)):
        x, w, start = draw(counts, K, N, torch.bfloat16, transposed)
        want = module.grouped_matmul_ref(x.double(), w.double(), start)
        found = grouped_matmul(x, w, start)
        assert (found.double() - want).norm() <= 2**-8 * want.norm()
        assert all(torch.equal(found, grouped_matmul(x, w, start)) for _ in range(20))


@pytest.mark.parametrize("name", ["GRADIENT_SOME", "GRADIENT_MANY", "OLD"])
def test_every_tile_computes_every_gradient(monkeypatch, name):
    monkeypatch.setattr(module, "choose_gradient_tiles", lambda *_: getattr(module, name))
    for counts, K, N in (((300, 0, 1, 511), 96, 200), ((7, 9), 1000, 16), ((129,) * 9, 256, 512)):
        x, _, start = draw(counts, K, N, torch.bfloat16, False)
        dy = torch.randn(sum(counts), N, device="cuda").bfloat16()
        want = module.grouped_matmul_dw_ref(x.double(), dy.double(), start)
        found = module._grouped_matmul_dw(x, dy, start)
        assert (found.double() - want).norm() <= 2**-8 * want.norm()
        assert all(torch.equal(found, module._grouped_matmul_dw(x, dy, start)) for _ in range(20))


def test_a_nan_stays_with_its_expert():
    x, w, start = draw((200, 200, 30), 128, 256, torch.bfloat16, True)
    x[250] = torch.nan
    w.requires_grad_()
    y = grouped_matmul(x, w, start)
    (dw,) = torch.autograd.grad(y.nan_to_num().sum(), w)
    assert y[250].isnan().all() and y.isnan().any(1).sum() == 1
    assert dw[1].isnan().any() and dw[[0, 2]].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, *module.HALVES], ids=str)
@pytest.mark.parametrize("T, H, D", [(1, 1, 2), (16, 32, 128), (7, 40, 80), (300, 3, 256)])
def test_rope_and_its_gradient_are_float64s(T, H, D, dtype):
    qkv = torch.randn(T, H + 3, D, device="cuda").to(dtype)
    x = qkv[:, 1 : H + 1].detach().requires_grad_()
    angle = 6.3 * torch.rand(5000, D // 2, device="cuda")
    position = torch.randint(5000, (T,), device="cuda", dtype=torch.int32)
    z = rope(x, angle.cos(), angle.sin(), position)
    (dx,) = torch.autograd.grad(z, x, torch.ones_like(z))
    wide = (angle.cos().double(), angle.sin().double(), position)
    for got, given, back in ((z, x, False), (dx, torch.ones_like(x), True)):
        want = rope_ref(given.detach().double(), *wide, back)
        assert (got.double() - want).norm() <= 2 * torch.finfo(dtype).eps * want.norm()
