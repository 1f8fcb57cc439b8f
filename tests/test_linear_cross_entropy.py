"""The fused linear cross entropy on the CPU: the torch path, the operator, the errors; the kernel, guarded.

What needs a GPU is in test_linear_cross_entropy_gpu.py.
"""

import contextlib
from importlib import import_module

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from puzzles_lib.kernels.linear_cross_entropy import linear_cross_entropy
from tests.running import run

module = import_module("puzzles_lib.kernels.linear_cross_entropy")


def draw(rows=19, classes=13, columns=8, dtype=torch.float64, scale=1.0):
    """x, weight and labels, the first and the last class and rows without one among them."""
    generator = torch.Generator().manual_seed(rows + classes)
    x = scale * torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    weight = torch.randn(classes, columns, generator=generator, dtype=torch.float64)
    label = torch.randint(classes, (rows,), generator=generator)
    label[:2] = torch.tensor([0, classes - 1])[: len(label)]
    label[3::5] = -100
    return x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_(), label


def torchs(x, weight, label, **options):
    return cross_entropy((x @ weight.t()).flatten(0, -2), label.flatten(), **options)


def gradients(call, x, weight, *rest, **options):
    loss = call(x, weight, *rest, **options)
    return [loss, *torch.autograd.grad(loss * 3, (x, weight))]


@pytest.fixture
def in_parts(monkeypatch):
    """Parts of an eighth of the rows, at any size."""
    monkeypatch.setattr(module, "FEW_BYTES", 0)


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("rows", [1, 8, 19])
def test_loss_and_gradients_are_torchs(in_parts, rows, reduction):
    inputs = draw(rows)
    found = gradients(linear_cross_entropy, *inputs, reduction=reduction)
    torch.testing.assert_close(found, gradients(torchs, *inputs, reduction=reduction))


def test_any_leading_axes_and_another_ignored_label():
    x, weight, label = draw(18)
    label = label.clamp(min=0).view(3, 6)
    shaped = x.detach().view(3, 6, 8).transpose(0, 1).requires_grad_()
    found = gradients(linear_cross_entropy, shaped, weight, label.t(), ignore_index=0)
    torch.testing.assert_close(found, gradients(torchs, shaped, weight, label.t(), ignore_index=0))
    assert found[1].shape == (6, 3, 8)


def test_only_what_needs_a_gradient_gets_one():
    x, weight, label = draw()
    (dx,) = torch.autograd.grad(linear_cross_entropy(x, weight.detach(), label), x)
    torch.testing.assert_close(dx, torch.autograd.grad(torchs(x, weight, label), x)[0])
    with torch.no_grad():
        assert not linear_cross_entropy(x, weight, label).requires_grad
    loss, empty, _ = module._linear_cross_entropy(x.detach(), weight.detach(), label, -100, True, False)
    torch.testing.assert_close(loss, torchs(x, weight, label).detach())
    assert empty.numel() == 0


def test_bfloat16_is_as_close_as_torchs(in_parts):
    exact = draw(80, 50, 32)
    want = gradients(torchs, *exact)
    low = [each.detach().bfloat16().requires_grad_() for each in exact[:2]]
    found, others = (gradients(call, *low, exact[2]) for call in (linear_cross_entropy, torchs))
    assert found[0].dtype == torch.float32 and found[1].dtype == torch.bfloat16
    for name, got, theirs, right in zip(("loss", "dx", "dweight"), found, others, want, strict=True):
        off, their_off = ((each.double() - right).norm() / right.norm() for each in (got, theirs))
        assert off < 1.5 * their_off + 1e-3, name


def test_rows_without_labels():
    x, weight, label = draw()
    nothing = torch.full_like(label, -100)
    loss, dx, dweight = gradients(linear_cross_entropy, x, weight, nothing, reduction="sum")
    assert loss == 0 and not dx.any() and not dweight.any()
    loss, dx, dweight = gradients(linear_cross_entropy, x, weight, nothing)
    assert loss.isnan() and not dx.any() and not dweight.any()
    loss, dx, dweight = gradients(linear_cross_entropy, x[:0], weight, label[:0], reduction="sum")
    assert loss == 0 and dx.shape == (0, 8) and not dweight.any()


def test_a_label_that_no_class_has_is_nan():
    x, weight, label = draw()
    for bad in (13, -1):
        loss, dx, _ = gradients(linear_cross_entropy, x, weight, label.index_fill(0, torch.tensor([2]), bad))
        assert loss.isnan() and dx[2].isnan().all() and dx[:2].isfinite().all()


def test_gradients_are_those_of_small_steps(in_parts):
    x, weight, label = draw(9, 5, 3)
    assert torch.autograd.gradcheck(lambda x, w: linear_cross_entropy(x, w, label), (x, weight))


def test_backward_takes_new_memory_only_if_the_graph_is_kept():
    x, weight, label = draw()
    loss = linear_cross_entropy(x, weight, label)
    kept = loss.grad_fn.saved_tensors
    first = torch.autograd.grad(loss * 3, (x, weight), retain_graph=True)
    second = torch.autograd.grad(loss * 3, (x, weight))
    for mine, earlier, later in zip(kept, first, second, strict=True):
        assert torch.equal(earlier, later)
        assert earlier.data_ptr() != mine.data_ptr() == later.data_ptr()


def test_torchs_own_checks_of_an_operator():
    x, weight, label = (each.detach() for each in draw())
    for options in ((True, True), (False, False)):
        torch.library.opcheck(module._linear_cross_entropy, (x, weight, label, -100, *options))


def test_torch_compiles_it_as_one_graph():
    inputs = draw(dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(linear_cross_entropy, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(compiled, *inputs), gradients(linear_cross_entropy, *inputs))


def test_a_part_is_an_eighth_or_few_bytes():
    assert module.rows_of_a_part(8192, 131072, 2) == 1024
    assert module.rows_of_a_part(65536, 131072, 2) == 8192
    assert module.rows_of_a_part(4096, 32000, 2) == 4096 > 4096 // 8
    assert module.rows_of_a_part(2048, 32000, 4) == 2048 and module.rows_of_a_part(0, 10, 2) == 1
    for rows in (1, 7, 8, 9, 1000):
        part = module.rows_of_a_part(rows, 2**20, 4)
        assert -(-rows // part) <= module.PARTS


def wrong(**changes):
    x, weight, label = (each.detach().float() if each.is_floating_point() else each for each in draw())
    return {"x": x, "weight": weight, "label": label} | changes


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (wrong(x=torch.zeros(19, 8).half()), TypeError, "x must be .*, but is torch.float16"),
        (
            wrong(weight=torch.zeros(13, 8).double()),
            TypeError,
            "weight must be .* like x, but is torch.float64",
        ),
        (wrong(label=torch.zeros(19)), TypeError, "label must be torch.int64, but is torch.float32"),
        (wrong(x=torch.zeros(19, 7)), ValueError, r"x must have shape \(..., 8\), but has shape \(19, 7\)"),
        (
            wrong(weight=torch.zeros(0, 8)),
            ValueError,
            r"weight must have shape \(V, K\) with V of at least 1, but has shape \(0, 8\)",
        ),
        (
            wrong(weight=torch.zeros(8)),
            ValueError,
            r"weight must have shape \(V, K\) with V of at least 1, but has shape \(8,\)",
        ),
        (
            wrong(label=torch.zeros(18).long()),
            ValueError,
            r"label must have shape \(19,\), but has shape \(18,\)",
        ),
        (
            wrong(label=torch.zeros(19, device="meta").long()),
            ValueError,
            "label must be on the device of x, cpu, but is on meta",
        ),
        (wrong(ignore_index=1.5), TypeError, "ignore_index must be an integer, but is float"),
        (wrong(reduction="none"), ValueError, "reduction must be 'mean' or 'sum', but is 'none'"),
    ],
)
def test_errors_say_what_is_allowed(arguments, error, words):
    with pytest.raises(error, match=words):
        linear_cross_entropy(**arguments)


# ---- the kernel, guarded


class Guarded:
    """The kernel, launched in the interpreter, where every access is checked."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def launch(*values, num_warps, **constants):
            arguments = dict(zip(self.kernel.arg_names, values, strict=False)) | constants
            results = ("loss_ptr", "logits_ptr") if constants["GRADIENTS"] else ("loss_ptr",)
            logits = arguments["logits_ptr"]
            held = {"logits": np.ones(logits.numel(), bool), "loss": np.zeros(len(logits), bool)}
            done = run(self.kernel, arguments, (*grid, 1, 1), results, defined=held)
            assert done.stop is None and done.undefined is None and done.conflict is None, done
            for name, result in done.outputs.items():  # a copy, or the same memory
                arguments[f"{name}_ptr"].copy_(result)

        return launch


@pytest.fixture
def guarded(monkeypatch, in_parts):
    """As if this were a GPU, with blocks of 16."""
    monkeypatch.setattr(module, "_losses_kernel", Guarded(module._losses_kernel))
    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(module, "_on_gpu", lambda x: True)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())


@pytest.mark.parametrize("scale", [1.0, 200.0])
@pytest.mark.parametrize("classes", [1, 16, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_kernel_computes_what_the_torch_path_does(guarded, monkeypatch, dtype, classes, scale):
    inputs = draw(19, classes, dtype=dtype, scale=scale)
    found = [*gradients(linear_cross_entropy, *inputs), linear_cross_entropy(inputs[0].detach(), *inputs[1:])]
    monkeypatch.setattr(module, "_on_gpu", lambda x: False)
    want = [*gradients(linear_cross_entropy, *inputs), linear_cross_entropy(inputs[0].detach(), *inputs[1:])]
    eps = torch.finfo(dtype).eps
    for got, right in zip(found, want, strict=True):
        torch.testing.assert_close(
            got, right, rtol=4 * eps, atol=4 * eps * float(right.detach().abs().max()) + 1e-6
        )


def test_the_kernel_keeps_a_nan_in_its_row(guarded):
    x, weight, label = draw(9, 40, dtype=torch.float32)
    x = x.detach().index_fill(0, torch.tensor([4]), torch.nan).requires_grad_()
    loss, dx, _ = gradients(linear_cross_entropy, x, weight, label)
    assert loss.isnan() and dx[4].isnan().all() and dx[:4].isfinite().all() and dx[5:].isfinite().all()
    loss, dx, _ = gradients(linear_cross_entropy, *draw(9, 40, dtype=torch.float32)[:2], label + 40)
    assert loss.isnan() and dx[0].isnan().all()
