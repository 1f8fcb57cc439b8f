"""`audited(compiled=True)`: the kernels that `torch.compile` writes."""

import re
import sys
import warnings

import pytest
import torch
import triton
import triton.language as tl
from torch.nn import functional

from puzzles_lib import Guard, audited
from puzzles_lib.auditor.compiled import LARGEST_BLOCK
from tests.conftest import REPO

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():  # of Inductor, about the backend that is not there
        warnings.simplefilter("ignore")
        yield


def fused(x, w):
    return functional.softmax(x * w + 1, -1), functional.layer_norm(x, x.shape[-1:]), (x * x).sum(0)


def normed(x):
    return functional.gelu(functional.layer_norm(x, x.shape[-1:])).square().mean()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_kernels_of_a_compiled_function_are_audited(device):
    x, w = torch.randn(40, 50), torch.randn(50)
    with audited(device=device, compiled=True) as report:
        got = torch.compile(fused)(x, w)
    torch.testing.assert_close(got, fused(x, w))
    assert report.ok and not report.unjudged and len(report.launches) >= 2
    grids = [launch.launch.full_grid for launch in report.launches]
    assert max(grid[0] for grid in grids) > 1
    blocks = [launch.launch.numbers.get("XBLOCK", 1) for launch in report.launches]
    assert max(blocks) <= LARGEST_BLOCK
    assert "softmax" in report.launches[0].launch.name


def test_the_backward_of_a_compiled_function_is_audited():
    x = torch.randn(20, 30, requires_grad=True)
    with audited(compiled=True, guard=Guard(configurations=False)) as report:
        torch.compile(normed)(x).backward()
    got, x.grad = x.grad, None
    normed(x).backward()
    torch.testing.assert_close(got, x.grad)
    assert report.ok and any("backward" in launch.launch.name for launch in report.launches)


@triton.jit
def double_kernel(X, BLOCK: tl.constexpr, Y, n, beyond):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Y + i, 2 * tl.load(X + i, mask=i < n + beyond), mask=i < n)


tuned_kernel = triton.autotune([triton.Config({"BLOCK": b}) for b in (32, 64)], key=["n"])(double_kernel)


def plainly(x, beyond, kernel=double_kernel):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 64),)](x, 64, y, x.numel(), beyond)
    return y


def tuned(x, beyond, kernel=tuned_kernel):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)  # noqa: E731
    kernel[grid](X=x, Y=y, n=x.numel(), beyond=beyond)
    return y


@torch.library.triton_op("compiled::plainly", mutates_args={})
def plainly_op(x: torch.Tensor, beyond: int) -> torch.Tensor:
    return plainly(x, beyond, torch.library.wrap_triton(double_kernel))


@torch.library.triton_op("compiled::tuned", mutates_args={})
def tuned_op(x: torch.Tensor, beyond: int) -> torch.Tensor:
    return tuned(x, beyond, torch.library.wrap_triton(tuned_kernel))


@pytest.mark.parametrize("double", [plainly, tuned, plainly_op, tuned_op])
@pytest.mark.parametrize("beyond", [0, 7])
def test_kernels_of_the_users_own_in_compiled_code(double, beyond):
    x = torch.randn(100)
    with audited(compiled=True) as report:
        got = torch.compile(lambda x: double(x + 1, beyond) - 1)(x)
    own = [each for each in report.launches if each.launch.name == "double_kernel"]
    assert not report.unjudged and {each.launch.numbers["BLOCK"] for each in own} <= {32, 64}
    assert len(own) == (2 if double in (tuned, tuned_op) else 1) and len(report.launches) == len(own) + 2
    assert [each.verdict.kind for each in report.findings] == ["out of bounds"] * bool(beyond)
    assert beyond or torch.equal(got, 2 * (x + 1) - 1)


def test_the_page_for_practitioners_shows_a_race_that_is_found(capsys):
    page = (REPO / "AUDIT.md").read_text().partition("## Kernels that `torch.compile` writes")[2]
    code, printed = re.findall(r"```(?:python|text)\n(.*?)```", page, re.DOTALL)[:2]
    exec(compile(code, "shift.py", "exec"), {"__name__": "shift"})
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == printed.splitlines()


def test_nothing_of_it_is_left_afterwards():
    from torch._inductor import config
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    before = config.cpu_backend, CachingAutotuner.run, CachingAutotuner.precompile
    with pytest.raises(RuntimeError, match="stop"), audited(compiled=True):
        raise RuntimeError("stop")
    assert (config.cpu_backend, CachingAutotuner.run, CachingAutotuner.precompile) == before


def test_a_tensor_on_the_cpu_leaves_no_ignored_exception(monkeypatch):
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", lambda error: ignored.append(error.exc_value))

    def shifted(x):
        return x + torch.ones(3, device="cpu").sum()

    with audited(device="cuda", compiled=True) as report:
        torch.testing.assert_close(torch.compile(shifted)(torch.zeros(8)), torch.full((8,), 3.0))
    assert report.ok and ignored == []


def test_an_operator_that_is_written_in_c_plus_plus_is_refused_in_a_sentence():
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = torch.randn(3, 1, 1, 128, 16)
    with pytest.raises(RuntimeError, match=r"C\+\+ instead of Triton .* torch.compiler.disable"):
        with audited(compiled=True):
            torch.compile(flex_attention)(q, k, v)
