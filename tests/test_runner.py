"""`run` gives a kernel's results on tensors of one's own, or says why there are none."""

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor

import puzzles_lib
from puzzles_lib.checker.runner import run
from puzzles_lib.puzzle import Case, Puzzle


def scale_rows(
    x: Float32[Tensor, "M N"], s: Float32[Tensor, " M"]
) -> tuple[Float32[Tensor, "M N"], Float32[Tensor, " M"]]:
    """z[m, n] = x[m, n] * s[m]; r[m] = -s[m]"""
    return x * s[:, None], -s


SCALE_ROWS = Puzzle(
    number="0",
    spec=scale_rows,
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    cases=(Case(M=4, N=16, BLOCK_M=4, BLOCK_N=16),),
    outputs=("z", "r"),
)


def halves(x: Int32[Tensor, " (N+1)//2"], N: int) -> Int32[Tensor, " N"]:
    return x.repeat_interleave(2)[:N]


HALVES = Puzzle(number="0", spec=halves, grid=lambda s: (1,), cases=(Case(N=7, BLOCK=8),))


@triton.jit
def scale_rows_kernel(
    x_ptr, s_ptr, z_ptr, r_ptr, M, N, stride_xm, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr
):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    s = tl.load(s_ptr + offs_m, mask=offs_m < M, other=0.0)
    tl.store(r_ptr + offs_m, -s, mask=offs_m < M)
    for start in range(0, N, BLOCK_N):
        offs_n = start + tl.arange(0, BLOCK_N)
        mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
        x = tl.load(x_ptr + offs_m[:, None] * stride_xm + offs_n[None, :], mask=mask, other=0.0)
        tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x * s[:, None], mask=mask)


@triton.jit
def halves_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.store(z_ptr + n, tl.load(x_ptr + n // 2, mask=n < N), mask=n < N)


BLOCKS = {"BLOCK_M": 2, "BLOCK_N": 4}


@pytest.mark.parametrize("M, N", [(1, 1), (5, 7), (8, 16), (0, 3), (3, 0)])
def test_sizes_come_from_the_tensors(M, N):
    x, s = torch.randn(M, N), torch.randn(M)
    z, r = run(scale_rows_kernel, SCALE_ROWS, x=x, s=s, **BLOCKS)
    assert torch.equal(z, x * s[:, None]) and torch.equal(r, -s)


def test_tensors_need_not_be_contiguous_and_are_not_changed():
    x = torch.randn(7, 5).requires_grad_()
    before = x.detach().clone()
    z, _ = run(scale_rows_kernel, SCALE_ROWS, x=x.T, s=torch.full((5,), 2.0), **BLOCKS)
    assert torch.equal(z, 2 * before.T) and torch.equal(x.detach(), before) and not z.requires_grad


def test_one_result_comes_alone_and_sizes_that_no_axis_gives_are_told():
    z = run(halves_kernel, HALVES, x=torch.tensor([3, 4, 5], dtype=torch.int32), N=5, BLOCK=8)
    assert z.tolist() == [3, 3, 4, 4, 5]


def test_it_is_there_under_the_package_and_leaves_no_trace_in_the_progress(state_dir):
    z, _ = puzzles_lib.run(scale_rows_kernel, SCALE_ROWS, x=torch.ones(2, 2), s=torch.ones(2), **BLOCKS)
    assert torch.equal(z, torch.ones(2, 2)) and not state_dir.exists()


X, S = torch.ones(3, 4), torch.ones(3)


@pytest.mark.parametrize(
    "values, error, words",
    [
        ({"x": X, **BLOCKS}, TypeError, "s is missing, scale_rows takes Float32[M]"),
        ({"x": X, "s": S, "BLOCK_M": 2}, TypeError, "BLOCK_N is missing"),
        ({"x": X, "s": 1.0, **BLOCKS}, TypeError, "s must be Float32[M], but is a float"),
        ({"x": X, "s": S.half(), **BLOCKS}, TypeError, "run: s must be float32, but is float16"),
        (
            {"x": X, "s": X, **BLOCKS},
            TypeError,
            "run: s must be a tensor with 1 axis, but is one with 2: [3, 4]",
        ),
        (
            {"x": S, "s": S, **BLOCKS},
            TypeError,
            "run: x must be a tensor with 2 axes, but is one with 1: [3]",
        ),
        ({"x": X, "s": S[:2], **BLOCKS}, ValueError, "s has shape (2,), but M is 3"),
        ({"x": X, "s": S, "M": 4, **BLOCKS}, ValueError, "x has shape (3, 4), but M is 4"),
        ({"x": X, "s": S, "BLOCK_K": 4, **BLOCKS}, TypeError, "takes x, s, M, N"),
        (
            {"x": X, "s": S, "BLOCK_M": 2.0, "BLOCK_N": 4},
            ValueError,
            "BLOCK_M must be an integer of at least 0, but is 2.0",
        ),
        ({"x": X.to("meta"), "s": S, **BLOCKS}, ValueError, "x must be on the CPU, but is on meta"),
        ({"x": X, "s": S, "seconds": 0, **BLOCKS}, ValueError, "seconds must be a number above 0, but is 0"),
    ],
)
def test_values_that_do_not_fit_are_named(values, error, words):
    with pytest.raises(error) as raised:
        run(scale_rows_kernel, SCALE_ROWS, **values)
    assert words in str(raised.value)


def test_a_size_of_an_expression_must_fit_too():
    with pytest.raises(ValueError, match=r"x has shape \(3,\), but \(N\+1\)//2 is 4"):
        run(halves_kernel, HALVES, x=torch.zeros(3, dtype=torch.int32), N=7, BLOCK=8)
    with pytest.raises(TypeError, match="N is missing"):
        run(halves_kernel, HALVES, x=torch.zeros(3, dtype=torch.int32), BLOCK=8)


def test_the_puzzle_must_be_one():
    with pytest.raises(TypeError, match="puzzle must be a Puzzle, not function"):
        run(scale_rows_kernel, scale_rows, x=X, s=S)


@triton.jit
def overrun(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.store(z_ptr + n, tl.load(x_ptr + n), mask=n < N)


@triton.jit
def holes(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + n // 2, mask=n < N - 1)
    tl.store(z_ptr + n, x, mask=n < N)


@triton.jit
def reads_back(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + n // 2, mask=n < N, other=0)
    tl.store(z_ptr + n, tl.load(z_ptr + n, mask=n < N, other=0) + x, mask=n < N)


@triton.jit
def half_of_it(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.store(z_ptr + n, n, mask=n < N // 2)


@triton.jit
def writes_its_input(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.store(z_ptr + n, n, mask=n < N)
    tl.store(x_ptr + n, n + 1, mask=n < 2)


@triton.jit
def endless(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    n = tl.arange(0, BLOCK)
    tl.store(z_ptr + n, n, mask=n < N)
    while N > 0:
        tl.store(z_ptr + n, n, mask=n < N)


def no_kernel(x_ptr, z_ptr, N, BLOCK):
    pass


@pytest.mark.parametrize(
    "kernel, words",
    [
        (overrun, "out-of-bounds load of x_ptr in program 0: elements 4..7"),
        (holes, "depends on a lane that the load of x_ptr masks off"),
        (reads_back, "z_ptr is read before anything is stored there"),
        (half_of_it, "4 of 7 elements of z are never written"),
        (writes_its_input, "the kernel changes its input x"),
        (endless, "time limit"),
        (no_kernel, "put @triton.jit on the line above its def"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_run_that_is_not_clean_has_no_result_but_a_report(kernel, words):
    with pytest.raises(RuntimeError) as raised:
        seconds = 0.5 if kernel is endless else 60
        run(kernel, HALVES, x=torch.zeros(4, dtype=torch.int32), N=7, BLOCK=8, seconds=seconds)
    text = str(raised.value)
    assert words in text and len(text.splitlines()) <= 12


def test_what_a_decorator_sets_is_left_out():
    x, configs = torch.tensor([3, 4, 5], dtype=torch.int32), [triton.Config({"BLOCK": b}) for b in (8, 16)]
    tuned = triton.autotune(configs, key=["N"])(halves_kernel)
    assert run(tuned, HALVES, x=x, N=5).tolist() == [3, 3, 4, 4, 5]
    assert run(tuned.fn, HALVES, x=x, N=5, BLOCK=32).tolist() == [3, 3, 4, 4, 5]
    with pytest.raises(TypeError, match="BLOCK=32 would not be used.* Leave it out, or run halves_kernel.fn"):
        run(tuned, HALVES, x=x, N=5, BLOCK=32)
    given = triton.heuristics({"BLOCK": lambda values: 8})(halves_kernel)
    assert run(given, HALVES, x=x, N=5).tolist() == [3, 3, 4, 4, 5]
