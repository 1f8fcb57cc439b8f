"""The fused linear cross entropy on a GPU: beside torch in float64, and its memory.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

from importlib import import_module

import pytest
import torch
from torch.nn.functional import cross_entropy

from puzzles_lib.kernels.linear_cross_entropy import linear_cross_entropy

module = import_module("puzzles_lib.kernels.linear_cross_entropy")

pytestmark = pytest.mark.gpu


def draw(rows, classes, columns, dtype=torch.bfloat16, scale=1.0):
    generator = torch.Generator("cuda").manual_seed(0)
    options = {"device": "cuda", "generator": generator}
    x = (scale * torch.randn(rows, columns, **options)).to(dtype)
    weight = (torch.randn(classes, columns, **options) / columns**0.5).to(dtype)
    label = torch.randint(classes, (rows,), **options)
    label[:1] = classes - 1
    label[3::5] = -100
    return x.requires_grad_(), weight.requires_grad_(), label


def step(call, x, weight, label, **options):
    loss = call(x, weight, label, **options)
    return [loss.detach(), *torch.autograd.grad(loss, (x, weight))]


def torchs(x, weight, label, **options):
    return cross_entropy(x @ weight.t(), label, **options)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize(
    "rows, classes, columns",
    [(1, 1, 1), (7, 33, 16), (513, 1000, 96), (200, 50257, 64), (1024, 131072, 128)],
)
def test_results_are_as_close_to_float64_as_torchs(monkeypatch, rows, classes, columns, dtype, reduction):
    monkeypatch.setattr(module, "FEW_BYTES", 2**20)
    inputs = draw(rows, classes, columns, dtype)
    wide = [each.detach().double().requires_grad_() for each in inputs[:2]]
    want = step(torchs, *wide, inputs[2], reduction=reduction)
    theirs = step(torchs, *inputs, reduction=reduction)
    found = step(linear_cross_entropy, *inputs, reduction=reduction)
    for name, got, other, right in zip(("loss", "dx", "dweight"), found, theirs, want, strict=True):
        norm = right.norm().clamp(min=1e-6)
        off, their_off = ((each.double() - right).norm() / norm for each in (got, other))
        assert off < 2 * their_off + torch.finfo(dtype).eps, (name, float(off), float(their_off))


def test_large_logits_do_not_overflow():
    x, weight, label = draw(64, 5000, 64, torch.float32, scale=1e4)
    found = step(linear_cross_entropy, x, weight, label)
    assert all(each.isfinite().all() for each in found)


def test_a_label_that_no_class_has_is_nan():
    x, weight, label = draw(20, 300, 64)
    label[2] = 300
    loss, dx, _ = step(linear_cross_entropy, x, weight, label)
    assert loss.isnan() and dx[2].isnan().all() and dx[:2].isfinite().all()


def test_the_same_bits_in_every_run():
    inputs = draw(600, 40000, 128)
    first, second = (step(linear_cross_entropy, *inputs) for _ in "ab")
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_memory_is_a_quarter_of_torchs_or_less():
    """At the size that the issue of logits is about: 8192 rows and 131,072 classes."""
    inputs = draw(8192, 131072, 512)
    most = []
    for call in (linear_cross_entropy, torchs):
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step(call, *inputs)
        most.append(torch.cuda.max_memory_allocated() - before)
    assert most[0] <= most[1] / 4, most
