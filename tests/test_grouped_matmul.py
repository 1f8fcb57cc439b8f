"""Products by group on the CPU: the torch path, the operator, the errors; the kernels, guarded.

What needs a GPU is in test_grouped_matmul_gpu.py.
"""

import contextlib
from importlib import import_module

import pytest
import torch

from puzzles_lib.kernels.grouped_matmul import grouped_matmul
from tests.running import Guarded

module = import_module("puzzles_lib.kernels.grouped_matmul")

COUNTS = (5, 0, 1, 40, 0)


def draw(counts=COUNTS, K=24, N=40, dtype=torch.float64, transposed=False):
    """x, w and start. transposed: w is stored [E, N, K]."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(sum(counts), K, generator=generator, dtype=torch.float64).to(dtype)
    w = torch.randn(len(counts), K, N, generator=generator, dtype=torch.float64).to(dtype)
    start = torch.tensor([0, *counts]).cumsum(0, dtype=torch.int32)
    return x, w.mT.contiguous().mT if transposed else w, start


def exact(x, w, start):
    """The product in float64, with every row's own matrix."""
    expert = torch.repeat_interleave(start.diff().long())
    return torch.einsum("pk,pkn->pn", x.double(), w.double()[expert])


@pytest.mark.parametrize("transposed", [False, True])
def test_each_row_meets_its_experts_matrix(transposed):
    inputs = draw(transposed=transposed)
    torch.testing.assert_close(grouped_matmul(*inputs), exact(*inputs))


@pytest.mark.parametrize("transposed", [False, True])
def test_gradients_are_those_of_small_steps(transposed):
    x, w, start = draw((2, 0, 3), 3, 4, transposed=transposed)
    call = lambda x, w: grouped_matmul(x, w, start)  # noqa: E731
    assert torch.autograd.gradcheck(call, (x.requires_grad_(), w.requires_grad_()))


def test_an_expert_without_rows_has_a_gradient_of_zeros():
    x, w, start = draw()
    (dw,) = torch.autograd.grad(grouped_matmul(x, w.requires_grad_(), start).sum(), w)
    assert not dw[[1, 4]].any() and dw[[0, 2, 3]].any()


def test_nothing_in_nothing_out():
    x, w, start = draw((0, 0))
    assert grouped_matmul(x, w, start).shape == (0, 40)


@pytest.mark.parametrize("transposed", [False, True])
def test_torchs_own_checks_of_an_operator(transposed):
    x, w, start = draw(dtype=torch.float32, transposed=transposed)
    torch.library.opcheck(module._grouped_matmul, (x.requires_grad_(), w.requires_grad_(), start))
    torch.library.opcheck(module._grouped_matmul_dw, (x.detach(), x.detach(), start))


def test_torch_compiles_it_as_one_graph():
    x, w, start = draw(dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(grouped_matmul, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(x, w, start), grouped_matmul(x, w, start))


def test_there_are_tiles_enough_for_any_division_of_the_rows():
    for rows in range(1, 12):
        for experts in (1, 2, 3):
            for block in (1, 2, 4):
                divided = [[rows]] if experts == 1 else [[n, rows - n] for n in range(rows + 1)]
                if experts == 3:
                    divided = [[n, m - n, rows - m] for m in range(rows + 1) for n in range(m + 1)]
                needed = [sum(-(-count // block) for count in some) for some in divided]
                assert module.tiles_of_groups(rows, experts, block) == max(needed)


def test_tiles_grow_with_the_rows_of_an_expert():
    assert module.choose_tiles(2, 8, True) == module.choose_tiles(100, 8, True) == module.FEW
    assert module.choose_tiles(512, 8, True) == module.choose_tiles(4096, 8, True) == module.SOME
    assert module.choose_tiles(8192, 8, True) == module.MANY
    assert module.choose_tiles(8192, 8, False) == module.OLD


def wrong(**changes):
    return dict(zip(("x", "w", "start"), draw(dtype=torch.float32), strict=True)) | changes


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (wrong(x=torch.zeros(46, 24).int()), TypeError, "x must be .*, but is torch.int32"),
        (wrong(w=torch.zeros(5, 24, 40).half()), TypeError, "w must be .* like x, but is torch.float16"),
        (wrong(start=torch.zeros(6).long()), TypeError, "start must be torch.int32, but is torch.int64"),
        (wrong(x=torch.zeros(46)), ValueError, "x must have 2 axes, but has 1"),
        (
            wrong(w=torch.zeros(5, 23, 40)),
            ValueError,
            r"w must have shape \(E, 24, N\) with E of at least 1, but has shape \(5, 23, 40\)",
        ),
        (wrong(w=torch.zeros(0, 24, 40)), ValueError, r"w must have shape .*, but has shape \(0, 24, 40\)"),
        (
            wrong(start=torch.zeros(5).int()),
            ValueError,
            r"start must have shape \(6,\), but has shape \(5,\)",
        ),
        (
            wrong(start=torch.zeros(6, device="meta").int()),
            ValueError,
            "start must be on the device of x, cpu, but is on meta",
        ),
    ],
)
def test_errors_say_what_is_allowed(arguments, error, words):
    with pytest.raises(error, match=words):
        grouped_matmul(**arguments)


# ---- the kernels, guarded


@pytest.fixture(params=[True, False], ids=["TMA", "pointers"])
def guarded(monkeypatch, request):
    """As if this were a GPU with TMA, or one without; small tiles."""
    for name, result in (("_product_kernel", "y_ptr"), ("_dw_kernel", "dw")):
        monkeypatch.setattr(module, name, Guarded(getattr(module, name), (result,)))
    for name in ("FEW", "SOME", "MANY", "OLD"):
        monkeypatch.setattr(module, name, module.Tiles(16, 32, 16, group=2, persistent=request.param))
    monkeypatch.setattr(module, "multiprocessors", lambda device: 3)
    fits = module._fits_tma
    monkeypatch.setattr(module, "_hopper", lambda x: False)
    monkeypatch.setattr(module, "_tma", lambda *matrices: request.param and fits(*matrices))
    monkeypatch.setattr(module, "_on_gpu", lambda x: x.dtype in module.HALVES)
    monkeypatch.setattr(module.launching, "on_device_of", lambda x: contextlib.nullcontext())


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    "counts, K, N",
    [(COUNTS, 24, 40), ((3, 70), 16, 8), ((0, 1), 5, 7), ((33,), 40, 72), ((30, 9), 32, 64)],
)
def test_the_kernels_compute_what_torch_does(guarded, counts, K, N, transposed):
    for dtype in module.HALVES:
        x, w, start = draw(counts, K, N, dtype, transposed)
        x.requires_grad_()
        w.requires_grad_()
        y = grouped_matmul(x, w, start)
        dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
        found = (y, *torch.autograd.grad(y, (x, w), dy))
        wide = [each.detach().double().requires_grad_() for each in (x, w)]
        want = exact(*wide, start)
        for got, right in zip(found, (want, *torch.autograd.grad(want, wide, dy.double())), strict=True):
            assert (got.double() - right).norm() <= torch.finfo(dtype).eps * right.norm()


def test_a_nan_stays_with_its_expert(guarded):
    x, w, start = draw((20, 20, 3), dtype=torch.bfloat16)
    x[25] = torch.nan
    y = grouped_matmul(x, w.requires_grad_(), start)
    (dw,) = torch.autograd.grad(y.nan_to_num().sum(), w)
    assert y[25].isnan().all() and y.isnan().any(1).sum() == 1
    assert dw[1].isnan().all() and dw[[0, 2]].isfinite().all()
