"""What a function keeps between calls is after an audit what one call leaves."""

import functools
import os
import signal

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import Guard, audit, audited
from puzzles_lib.auditor.aside import Ended, aside


@triton.jit
def add_kernel(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x, y = tl.load(x + i, mask=i < n, other=0.0), tl.load(y + i, mask=i < n, other=0.0)
    tl.store(z + i, x + y, mask=i < n)


def added(x, workspace):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 128),)](x.contiguous(), workspace, out, x.numel(), BLOCK=128)
    return out


KEPT: dict[str, torch.Tensor] = {}


def by_global(x):
    if "w" not in KEPT or KEPT["w"].numel() < x.numel():
        KEPT["w"] = torch.zeros(x.numel(), device=x.device)
    return added(x, KEPT["w"])


def by_default(x, kept={}):  # noqa: B006
    return added(x, kept.setdefault(x.numel(), torch.zeros(x.numel(), device=x.device)))


@functools.lru_cache
def zeros(n):
    return torch.zeros(n, device="cuda")


def by_cache(x):
    return added(x, zeros(x.numel()))


class Adder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("last", torch.zeros(()))
        self.workspace = None

    def forward(self, x):
        self.calls += 1
        self.last = x.detach().abs().sum()
        if self.workspace is None or self.workspace.numel() != x.numel():
            self.workspace = torch.zeros(x.numel(), device=x.device)
        return added(x, self.workspace)


def clean(report):
    assert report.ok and not report.unjudged, report
    return report


@pytest.mark.parametrize("function", [by_global, by_default, by_cache])
def test_a_workspace_is_kept_as_a_call_leaves_it(function):
    for _ in range(2):
        report = clean(audit(function, torch.randn(100), like=lambda x: x.clone(), hard=True))
        assert len(report.tried) > 10
    kept = [KEPT["w"], *by_default.__defaults__[0].values()]
    assert all(each.device.type == "cpu" and each.shape == (100,) for each in kept)
    assert not any(each.any() for each in kept)
    assert zeros.cache_info().currsize <= 1
    with audited() as after:
        assert torch.equal(function(torch.ones(100)), torch.ones(100))
    clean(after)


def test_a_module_is_called_once():
    module, x = Adder(), torch.randn(100)
    clean(audit(module, x, like=lambda x: x.clone(), hard=True))
    assert module.calls == 1 and module.last == x.abs().sum()
    assert module.workspace.shape == (100,) and module.workspace.device.type == "cpu"


def test_other_configurations_are_not_called_here():
    calls = []
    configs = [triton.Config({"BLOCK": size}) for size in (32, 64)]
    tuned = triton.autotune(configs, key=["n"])(add_kernel)

    def function(x):
        calls.append(1)
        out = torch.empty_like(x)
        tuned[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, x, out, x.numel())
        return out

    clean(audit(function, torch.randn(100), like=lambda x: 2 * x, guard=Guard(sizes=False)))
    assert len(calls) == 1


def test_a_finding_with_other_inputs_comes_back_whole():
    @triton.jit
    def reciprocal_kernel(x, z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z + i, 1 / tl.maximum(tl.load(x + i, mask=i < n, other=1.0), 1e-3), mask=i < n)

    def function(x):
        out = torch.empty_like(x)
        reciprocal_kernel[(1,)](x, out, x.numel(), BLOCK=128)
        return out

    guard = Guard(sizes=False)
    report = audit(function, 1 + torch.rand(100), like=lambda x: 1 / x, hard=True, guard=guard)
    assert "with x: a row of -inf: " in str(report) and len(report.launches) == 1
    assert report.as_dict()["findings"] and report.sarif()["runs"][0]["results"]


def test_a_tensor_on_the_meta_device_is_not_judged():
    with audited() as report:
        added(torch.randn(4), torch.empty(4, device="meta"))
    assert "y is on torch's meta device" in str(report) and report.launches[0].status == "unjudged"


# ---- the process aside


def test_aside_returns_and_changes_nothing_here():
    kept = []
    assert aside(lambda: (kept.append(1), len(kept))[1]) == 1 and not kept


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def test_aside_raises_what_the_work_raises():
    def raises(error):
        raise error

    with pytest.raises(ValueError, match="seven") as caught:
        aside(lambda: raises(ValueError("seven")))
    assert "raises" in "".join(caught.value.__notes__)
    with pytest.raises(RuntimeError, match="Odd: 1"):
        aside(lambda: raises(Odd(1, 2)))


def test_aside_says_how_a_process_ended():
    with pytest.raises(Ended, match="by SIGKILL"):
        aside(lambda: os.kill(os.getpid(), signal.SIGKILL))
    with pytest.raises(Ended, match="with status 3"):
        aside(lambda: os._exit(3))


def test_a_process_that_dies_leaves_the_rest_of_the_report():
    here = os.getpid()

    def function(x):
        if os.getpid() != here:
            os._exit(7)
        return added(x, torch.zeros_like(x))

    report = audit(function, torch.randn(10))
    assert report.ok and "the process that tries other inputs ended with status 7" in str(report)
