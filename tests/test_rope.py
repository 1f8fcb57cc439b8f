"""RoPE on the CPU: the torch path, the operator, the errors; the kernel, guarded."""

import contextlib
from importlib import import_module

import pytest
import torch

from puzzles_lib.kernels.rope import rope
from tests.running import Guarded

module = import_module("puzzles_lib.kernels.rope")


def draw(T=5, H=3, D=12, C=40, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(T, H + 2, D, generator=generator, dtype=torch.float64).to(dtype)[:, 1:-1]
    angle = 6.3 * torch.rand(C, D // 2, generator=generator, dtype=torch.float64)
    angles = (angle.cos(), angle.sin())
    if dtype != torch.float64:
        angles = tuple(each.float() for each in angles)
    return x, *angles, torch.randint(C, (T,), generator=generator, dtype=torch.int32)


def exact(x, cos, sin, position):
    """As a product of complex numbers."""
    half = x.shape[2] // 2
    turns = torch.complex(cos.double(), sin.double())[position.long()][:, None]
    z = torch.complex(x[..., :half].double(), x[..., half:].double()) * turns
    return torch.cat((z.real, z.imag), -1)


def test_it_is_a_product_of_complex_numbers():
    inputs = draw()
    torch.testing.assert_close(rope(*inputs), exact(*inputs))
    assert rope(*draw(T=0)).shape == (0, 3, 12)


def test_gradients_are_those_of_small_steps():
    x, *rest = draw()
    assert torch.autograd.gradcheck(lambda x: rope(x, *rest), x.contiguous().requires_grad_())
    assert torch.autograd.gradgradcheck(lambda x: rope(x, *rest), x.contiguous().requires_grad_())


def test_torchs_own_checks_of_an_operator():
    x, *rest = draw(dtype=torch.float32)
    torch.library.opcheck(module._rope, (x.requires_grad_(), *rest, False))


def test_torch_compiles_it_as_one_graph():
    inputs = draw(dtype=torch.float32)
    torch.compiler.reset()
    assert torch.equal(torch.compile(rope, fullgraph=True, backend="aot_eager")(*inputs), rope(*inputs))


def wrong(**changes):
    return dict(zip(("x", "cos", "sin", "position"), draw(dtype=torch.float32), strict=True)) | changes


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (wrong(x=torch.zeros(5, 3, 12).int()), TypeError, "x must be .*, but is torch.int32"),
        (
            wrong(x=torch.zeros(5, 3, 11)),
            ValueError,
            r"x must have shape \(T, H, D\) with D even, but has shape \(5, 3, 11\)",
        ),
        (wrong(cos=torch.zeros(40, 6).half()), TypeError, "cos must be torch.float32, but is torch.float16"),
        (wrong(cos=torch.zeros(40, 5)), ValueError, r"cos must have shape \(C, 6\), but has shape \(40, 5\)"),
        (
            wrong(sin=torch.zeros(39, 6)),
            ValueError,
            r"sin must have shape \(40, 6\), but has shape \(39, 6\)",
        ),
        (wrong(position=torch.zeros(5)), TypeError, "position must be torch.int32, but is torch.float32"),
        (
            wrong(position=torch.zeros(4).int()),
            ValueError,
            r"position must have shape \(5,\), but has shape \(4,\)",
        ),
        (
            wrong(sin=torch.zeros(40, 6, device="meta")),
            ValueError,
            "sin must be on the device of x, cpu, but is on meta",
        ),
    ],
)
def test_errors_say_what_is_allowed(arguments, error, words):
    with pytest.raises(error, match=words):
        rope(**arguments)


@pytest.mark.parametrize("dtype", [torch.float32, *module.HALVES], ids=str)
def test_the_kernel_computes_what_torch_does(monkeypatch, dtype):
    monkeypatch.setattr(module, "_rope_kernel", Guarded(module._rope_kernel, ("z_ptr",)))
    monkeypatch.setattr(module, "NUMBERS", 16)
    monkeypatch.setattr(module, "_on_gpu", lambda x: True)
    monkeypatch.setattr(module.launching, "on_device_of", lambda x: contextlib.nullcontext())
    x, *rest = draw(dtype=dtype)
    x = x.detach().requires_grad_()
    z = rope(x, *rest)
    (dx,) = torch.autograd.grad(z, x, z.detach())  # back by the same angles
    for got, want in ((z, exact(x, *rest)), (dx, x)):
        torch.testing.assert_close(got.double(), want.double(), rtol=0, atol=12 * torch.finfo(dtype).eps)
