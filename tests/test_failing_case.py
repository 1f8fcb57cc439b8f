"""After a failed check, `trace` and `watch` open the case that failed, and the program that races."""

import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import Case, Puzzle, check, trace, watch
from puzzles_lib.auditor import audit
from puzzles_lib.auditor.guard import Guard


def twofold(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return 2 * x


def summed(x: Float32[Tensor, " N"]) -> Float32[Tensor, " 1"]:
    return x.sum().reshape(1)


TWOFOLD = Puzzle(
    spec=twofold,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(Case(N=64, BLOCK=32), Case(N=70, BLOCK=32), Case(N=33, BLOCK=32)),
)
SUMMED = Puzzle(
    spec=summed,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    zeroed=("z",),
    cases=(Case(N=32, BLOCK=32), Case(N=96, BLOCK=32)),
)


@triton.jit
def unmasked_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, 2 * tl.load(x_ptr + i))


@triton.jit
def racing_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < N, other=0.0)
    tl.store(z_ptr, tl.load(z_ptr) + tl.sum(x, 0))


def test_trace_and_watch_open_the_case_that_failed():
    assert "N=64" in trace(unmasked_kernel, TWOFOLD).title
    assert not check(unmasked_kernel, TWOFOLD).ok
    assert "N=70" in trace(unmasked_kernel, TWOFOLD).title
    assert "N=70" in watch(unmasked_kernel, TWOFOLD).title
    assert "N=64" in trace(unmasked_kernel, TWOFOLD, case=0).title
    assert "N=32" in trace(racing_kernel, SUMMED).title, "another puzzle's check says nothing"


def test_watch_opens_the_second_of_two_programs_that_race():
    assert not check(racing_kernel, SUMMED).ok
    shown = str(watch(racing_kernel, SUMMED))
    assert "program 1" in shown and "\n> " in shown
    assert "tl.store(z_ptr, tl.load(z_ptr)" in shown.split("\n> ")[1].splitlines()[0]


def test_a_launch_of_an_audit_opens_there_too():
    def added(x):
        z = x.new_zeros(1)
        racing_kernel[(3,)](x, z, 96, BLOCK=32)
        return z

    report = audit(added, torch.ones(96), guard=Guard(sizes=False))
    assert "program 1" in str(report.launches[0].watch())
