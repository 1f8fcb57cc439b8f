"""A program that asks for more shared memory than a GPU has: it compiles, and its launch fails."""

import contextlib
import dataclasses

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import define, solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch07_matmul.puzzles import BATCHED_MATMUL
from puzzles_lib.checker import examine, launches
from puzzles_lib.compiler import Opinions, build, find_target, shared_memory, translate
from puzzles_lib.goal import Goal, Want
from tests import kernels

SM_90 = find_target("sm_90")
X = torch.empty(0)
HEAD = """
@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, N, M: tl.constexpr, K: tl.constexpr):
    m = tl.arange(0, M)
    k = tl.arange(0, K)
    square = m[:, None] * M + m[None, :]
    rows = m[:, None] * K + k[None, :]
    columns = k[:, None] * M + m[None, :]
"""
BODIES = {
    "dot": "z = tl.dot(tl.load(x_ptr + rows), tl.load(y_ptr + columns))\ntl.store(z_ptr + square, z)",
    "loop": """
z = tl.zeros((M, M), tl.float32)
for i in range(N):
    z = tl.dot(tl.load(x_ptr + rows + i * K), tl.load(y_ptr + columns + i * K * M), z)
tl.store(z_ptr + square, z)
""",
    "staged": """
for i in tl.range(N, num_stages=8):
    tl.store(z_ptr + rows + i, tl.load(x_ptr + rows + i))
""",
    "transposed": "tl.store(z_ptr + columns, tl.load(x_ptr + rows).trans())",
    "summed": "tl.store(z_ptr + k, tl.sum(tl.load(x_ptr + rows), 0))",
    "scanned": "tl.store(z_ptr + rows, tl.cumsum(tl.load(x_ptr + rows), 0))",
    "counted": "tl.store(z_ptr + k, tl.histogram(m, K))",
    "gathered": "tl.store(z_ptr + k, tl.gather(tl.load(x_ptr + m), k % M, 0))",
    "described": """
desc = tl.make_tensor_descriptor(x_ptr, [N, K], [K, 1], [M, K])
tl.make_tensor_descriptor(z_ptr, [N, K], [K, 1], [M, K]).store([0, 0], desc.load([0, 0]) + 1)
""",
}
KERNELS = [
    ("dot", 64, 64), ("dot", 64, 512), ("loop", 128, 32), ("loop", 128, 128), ("staged", 64, 128),
    ("staged", 128, 128), ("transposed", 128, 128), ("transposed", 256, 256), ("summed", 256, 256),
    ("scanned", 256, 64), ("scanned", 256, 256), ("counted", 16, 65536), ("gathered", 1024, 1024),
    ("described", 64, 64), ("described", 256, 256),
]  # fmt: skip


def written(body: str):
    lines = "".join(f"    {line}\n" for line in BODIES[body].strip().splitlines())
    return define(HEAD + lines, f"<launches: {body}>")


@pytest.mark.parametrize("body, m, k", KERNELS)
@pytest.mark.parametrize("num_warps", [4, 8])
def test_what_is_asked_for_is_known_and_foreseen(body, m, k, num_warps):
    """The compiler's own number, found without LLVM and ptxas; and no estimate is below it."""
    kernel, arguments = written(body), {"x_ptr": X, "y_ptr": X, "z_ptr": X, "N": 64, "M": m, "K": k}
    asked = shared_memory(kernel, arguments, SM_90, num_warps=num_warps)
    if m * k <= 1 << 14:  # LLVM takes seconds for the others
        built = build(translate(kernel, arguments, SM_90, num_warps=num_warps))
        assert asked == built.metadata["shared"]
    with contextlib.closing(Opinions(kernel, [arguments])) as opinions:
        assert opinions[0].refusal is None and (opinions[0].large is not None or asked < 100_000)


@triton.jit
def long_steps(
    x_ptr, y_ptr, z_ptr, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEP: tl.constexpr = 2048
):
    b = tl.program_id(2)
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, STEP):
        k = start + tl.arange(0, STEP)
        x = tl.load(x_ptr + b * M * K + m[:, None] * K + k, mask=(m[:, None] < M) & (k < K), other=0.0)
        y = tl.load(y_ptr + b * K * N + k[:, None] * N + n, mask=(k[:, None] < K) & (n < N), other=0.0)
        acc += tl.dot(x, y)
    tl.store(z_ptr + b * M * N + m[:, None] * N + n, acc, mask=(m[:, None] < M) & (n < N))


def test_a_kernel_that_no_h100_would_launch_is_refused_in_its_case():
    report = examine(long_steps, BATCHED_MATMUL)
    failed = report.cases[0]
    assert failed.verdict.kind == "launch"
    assert (
        "a launch would fail: a program needs 256 KB of shared memory, but an H100 or H200 has 227 KB"
        in str(report)
    )
    assert "smaller blocks" in failed.verdict.diagnosis and "tl.load" in failed.verdict.site.source


def test_a_goal_has_the_launch_compiled_and_sees_what_it_asks_for(monkeypatch):
    asked = []
    monkeypatch.setattr(launches, "shared_memory", lambda *launch, **options: asked.append(launch))
    goal = Goal(cases=(0,), wants=(Want("spills", least=0),))
    alone = dataclasses.replace(BATCHED_MATMUL, cases=BATCHED_MATMUL.cases[:1], machine=(goal,))
    report = examine(long_steps, alone)
    assert not asked and not report.ok
    assert {result.verdict.kind for result in report.goals if result.verdict} == {"launch"}
    assert "a program needs 256 KB of shared memory, but an H100 or H200 has 227 KB" in str(report)


@pytest.mark.parametrize("change", [{"num_warps": 8}, {"target": "sm_80"}, {"cases": (1,)}])
def test_a_goal_of_another_launch_says_nothing_of_this_one(change):
    goal = Goal(**{"cases": (0,), "wants": (Want("spills", least=0),)} | change)
    report = examine(long_steps, dataclasses.replace(BATCHED_MATMUL, machine=(goal,)))
    assert report.cases[0].verdict.kind == "launch"


@pytest.mark.parametrize("num_stages, kind", [(2, None), (6, "launch")])
def test_stages_count_that_autotune_would_try(num_stages, kind):
    tuned = triton.autotune([triton.Config({"STEP": 512}, num_stages=num_stages)], key=["K"])(long_steps)
    report = examine(tuned, BATCHED_MATMUL)
    kinds = {case.verdict.kind for case in report.cases if case.verdict}
    assert kinds == ({kind} if kind else set()), str(report)


def test_blocks_that_are_drawn_are_nobodys_launch():
    """A correct kernel with two loops over 64 KB per step: blocks of 128 come from the random case."""
    (kernel,) = (kernel for puzzle, kernel in kernels.right() if kernel.__name__ == "two_loops")
    assert examine(kernel, next(p for p in puzzles() if p.name == "linear_backward")).ok


@pytest.mark.parametrize("puzzle", [p for p in puzzles() if p.name in ("outer_add_blocks", "batched_matmul")])
def test_small_blocks_cost_no_compilation(puzzle, monkeypatch):
    asked = []
    monkeypatch.setattr(launches, "shared_memory", lambda *launch, **options: asked.append(launch))
    assert examine(solutions()[puzzle.name], puzzle).ok and not asked
