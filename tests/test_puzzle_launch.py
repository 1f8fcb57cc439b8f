"""Puzzles whose kernels have parameters of any names: `Puzzle(launch=...)`, and results in place."""

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import run, stages, trace, watch
from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case, Puzzle


def scaled(x: Float32[Tensor, "M N"], w: Float32[Tensor, " N"]) -> Float32[Tensor, "M N"]:
    return -100 * x * w


SCALED = Puzzle(
    spec=scaled,
    launch=lambda kernel, s, x, w, z: kernel[(s.M,)](
        x, w, z, x.stride(0), s.N, -100, 1.5, None, True, "plain", BLOCK=s.BLOCK, num_warps=8
    ),
    cases=(Case(M=3, N=64, BLOCK=64), Case(M=5, N=50, BLOCK=64)),
)


@triton.jit
def scaled_kernel(X, Weight, Out, stride, n, index, eps, bias, flag, MODE: tl.constexpr, BLOCK: tl.constexpr):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + cols, mask=cols < n, other=0.0)
    w = tl.load(Weight + cols, mask=cols < n, other=0.0)
    if bias is not None:
        x += tl.load(bias)
    if MODE == "plain":
        x = x * index
    if flag:
        x = x * w
    tl.store(Out + row * stride + cols, x + 0.0 * eps, mask=cols < n)


@triton.jit
def unmasked_kernel(
    X, Weight, Out, stride, n, index, eps, bias, flag, MODE: tl.constexpr, BLOCK: tl.constexpr
):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + cols)
    w = tl.load(Weight + cols, mask=cols < n)
    tl.store(Out + row * stride + cols, x * w * index, mask=cols < n)


@triton.jit
def storing_to_the_input_kernel(
    X, Weight, Out, stride, n, index, eps, bias, flag, MODE: tl.constexpr, BLOCK: tl.constexpr
):
    row, cols = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + cols, mask=cols < n)
    w = tl.load(Weight + cols, mask=cols < n)
    tl.store(X + row * stride + cols, x * w * index, mask=cols < n)


def test_parameters_and_arguments_may_be_any():
    assert examine(scaled_kernel, SCALED).ok
    report = str(examine(unmasked_kernel, SCALED))
    assert "out-of-bounds load of X in program 4: elements 250..263; x has 250" in report
    assert "watch(unmasked_kernel, SCALED, case=1, program=4)" in report
    assert "the kernel stores to x instead, which is an input" in str(
        examine(storing_to_the_input_kernel, SCALED)
    )


def test_the_other_calls_take_such_a_puzzle():
    assert "x" in trace(scaled_kernel, SCALED).tensors
    assert "Weight" in str(watch(scaled_kernel, SCALED, case=1))
    assert "sm_90" in str(stages(scaled_kernel, SCALED, target="sm_90"))
    x, w = torch.randn(2, 5), torch.randn(5)
    torch.testing.assert_close(run(scaled_kernel, SCALED, x=x, w=w, BLOCK=8), -100 * x * w)
    assert (
        "kernel[(3,)](x, w, z, 64, 64, -100, 1.5, None, True, 'plain', BLOCK=64" in SCALED._repr_markdown_()
    )
    assert str(SCALED).startswith("Puzzle: scaled\n") and repr(SCALED) == "<Puzzle: scaled>"


def doubled(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return 2 * x


DOUBLED = Puzzle(
    spec=doubled,
    outputs=("x",),
    launch=lambda kernel, s, x: kernel[lambda meta: (triton.cdiv(s.N, meta["BLOCK"]),)](
        x, s.N, BLOCK=s.BLOCK
    ),
    cases=(Case(N=32, BLOCK=32), Case(N=100, BLOCK=32), Case(N=2**31 + 100, BLOCK=1024, pretend=True)),
)


@triton.jit
def doubled_kernel(a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(a + i, 2 * tl.load(a + i, mask=i < n), mask=i < n)


@triton.jit
def wrapping_kernel(a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(a + i, 2 * tl.load(a + i, mask=i < n), mask=i < n)


@triton.jit
def tripled_kernel(a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(a + i, 3 * tl.load(a + i, mask=i < n), mask=i < n)


@triton.jit
def neighbors_kernel(a, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + (i + BLOCK) % n, mask=i < n)
    tl.store(a + i, x, mask=i < n)


@triton.jit
def idle_kernel(a, n, BLOCK: tl.constexpr):
    pass


@pytest.mark.parametrize(
    "kernel, words",
    [
        (tripled_kernel, "every element is 1.5 times what it should be"),
        (wrapping_kernel, "does not fit int32"),
        (neighbors_kernel, "(case=1)   a race: the results can differ from run to run"),
        (idle_kernel, "wrong values in x"),
    ],
)
def test_a_wrong_kernel_in_place_is_refused(kernel, words):
    assert words in str(examine(kernel, DOUBLED))


def test_a_right_kernel_in_place_passes():
    assert examine(doubled_kernel, DOUBLED).ok
    x = torch.arange(5.0)
    assert torch.equal(run(doubled_kernel, DOUBLED, x=x, BLOCK=8), 2 * x) and x[1] == 1
    assert "tl.store(a + i, 3 *" in str(watch(tripled_kernel, DOUBLED, case=1))


def test_a_puzzle_by_name_may_work_in_place():
    @triton.jit
    def by_name_kernel(x_ptr, N, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, 2 * tl.load(x_ptr + i, mask=i < N), mask=i < N)

    cases = (Case(N=100, BLOCK=32),)
    puzzle = Puzzle(spec=doubled, outputs=("x",), grid=lambda s: (triton.cdiv(s.N, s.BLOCK),), cases=cases)
    assert examine(by_name_kernel, puzzle).ok


def launched_with(*args: int, **kwargs: int) -> Puzzle:
    """Return the puzzle with a launch that passes these besides the tensor and its size."""
    return Puzzle(
        spec=doubled,
        outputs=("x",),
        launch=lambda kernel, s, x: kernel[lambda meta: (triton.cdiv(s.N, meta["BLOCK"]),)](
            x, s.N, *args, **kwargs
        ),
        cases=(Case(N=32, BLOCK=32), Case(N=100, BLOCK=32)),
    )


CONFIGS = [triton.Config({"BLOCK": 16}), triton.Config({"BLOCK": 64}, num_warps=2)]
TUNED = triton.autotune(CONFIGS, key=["n"], restore_value=["a"])


def test_autotune_gives_what_the_launch_leaves_out():
    report = examine(TUNED(doubled_kernel), launched_with())
    assert report.ok and "2 configurations" in str(report)
    twice = str(examine(triton.autotune(CONFIGS, key=["n"])(doubled_kernel), launched_with()))
    assert (
        "wrong on the results that other configurations leave: pass restore_value=['a'] to triton.autotune"
        in twice
    )


def triton_takes(kernel, *args: object, **kwargs: object) -> bool:
    """Return whether Triton's own wrappers pass a launch on to the kernel."""
    passed = []

    class Jitted:
        def run(self, *args: object, **kwargs: object) -> None:
            doubled_kernel.signature.bind(*args, **{n: v for n, v in kwargs.items() if n == "BLOCK"})
            passed.append(kwargs)

    layer = kernel
    while not isinstance(layer.fn, triton.JITFunction):
        layer = layer.fn
    layer.fn = Jitted()
    try:
        kernel.run(*args, **kwargs)
    except (TypeError, ValueError):
        return False
    return bool(passed)


@pytest.mark.parametrize(
    "args, kwargs",
    [
        ((), {}),
        ((), {"BLOCK": 32}),
        ((32,), {}),
        ((), {"num_warps": 8}),
        ((), {"num_stages": 2}),
        ((), {"maxnreg": 64}),
    ],
)
@pytest.mark.parametrize("wrapper", ["several", "one", "heuristic", "warps", "both"])
def test_what_a_launch_passes_over_its_wrappers_is_judged_as_by_triton(wrapper, args, kwargs):
    def timed(call, quantiles):
        call()
        return [1.0, 1.0, 1.0]

    block, warps = {"BLOCK": lambda args: 64}, {"num_warps": lambda args: 2}
    a = torch.zeros(100)

    def wrapped():
        kernel = doubled_kernel
        if wrapper in ("heuristic", "warps"):
            kernel = triton.heuristics(block if wrapper == "heuristic" else block | warps)(kernel)
        if wrapper in ("several", "one", "both"):
            configs = CONFIGS[1:] if wrapper == "one" else CONFIGS
            kernel = triton.autotune(configs, key=["n"], restore_value=["a"], do_bench=timed)(kernel)
        return triton.heuristics(warps)(kernel) if wrapper == "both" else kernel

    report = examine(wrapped(), launched_with(*args, **kwargs))
    assert report.ok == triton_takes(wrapped(), a, 100, *args, **kwargs), str(report)
    if not report.ok:
        assert "set" in str(report) and ("BLOCK" in str(report) or "num_" in str(report)), str(report)


def test_heuristics_find_the_launch_s_arguments():
    block = {"BLOCK": lambda args: min(triton.next_power_of_2(args["n"] // 4), 1024)}
    assert examine(triton.heuristics(block)(doubled_kernel), DOUBLED).ok


def test_a_launch_may_make_descriptors():
    @triton.jit
    def described_kernel(source, target, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK
        target.store([i], 2 * source.load([i]))

    def launch(kernel, s, x, z):
        kernel[(triton.cdiv(s.N, s.BLOCK),)](
            TensorDescriptor(x, [s.N], [1], [s.BLOCK]), TensorDescriptor(z, [s.N], [1], [s.BLOCK]), s.BLOCK
        )

    assert examine(described_kernel, Puzzle(spec=doubled, launch=launch, cases=(Case(N=100, BLOCK=32),))).ok


def test_a_launch_that_does_not_fit_the_kernel_is_a_verdict():
    @triton.jit
    def other_kernel(a, n, m, BLOCK: tl.constexpr):
        pass

    assert "missing a required argument: 'm'" in str(examine(other_kernel, DOUBLED))
    few = Puzzle(
        spec=doubled,
        launch=lambda kernel, s, x, z: kernel[(1,)](z, 3, BLOCK=s.N, num_warps=3),
        cases=(Case(N=32),),
    )
    assert "num_warps must be a power of 2, but is 3" in str(examine(doubled_kernel, few))


@pytest.mark.parametrize(
    "parts, words",
    [
        ({}, "grid is missing"),
        ({"launch": lambda kernel, s: kernel[(1,)](), "grid": lambda s: (1,)}, "give grid or launch"),
        ({"launch": "kernel"}, "launch must be a function, not str"),
        ({"launch": lambda kernel: None}, "launch must take the kernel, the case"),
        ({"launch": lambda kernel, s, y: kernel[(1,)](y)}, "launch may only take x, z"),
        ({"launch": lambda kernel, s, x: None}, "launches the kernel 0 times"),
        ({"launch": lambda kernel, s, x: kernel[(s.Q,)](x)}, "the grid of case N=4: this case has no 'Q'"),
        ({"launch": lambda kernel, s, x: kernel[lambda m: (m["B"],)](x)}, "the grid asks for 'B'"),
        ({"launch": lambda kernel, s, x: kernel[3.5](x)}, "grid must be a tuple of integers, but is 3.5"),
        ({"launch": lambda kernel, s, x: 1 / 0}, "launch fails for case N=4: ZeroDivisionError"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit_are_refused(parts, words):
    with pytest.raises(ValueError, match=words):
        Puzzle(spec=doubled, cases=(Case(N=4),), **parts)


@pytest.mark.parametrize(
    "given, words",
    [
        (lambda x, z: torch.empty_like(x), "neither an input nor a result"),
        (lambda x, z: object(), "a is a object"),
    ],
)
def test_arguments_that_are_not_judged_are_named(given, words):
    puzzle = Puzzle(
        spec=doubled,
        launch=lambda kernel, s, x, z: kernel[(1,)](given(x, z), s.N, BLOCK=4),
        cases=(Case(N=4),),
    )
    assert words in str(examine(doubled_kernel, puzzle))


def test_a_spec_is_needed():
    with pytest.raises(ValueError, match="spec is missing"):
        Puzzle(launch=lambda kernel, s: None)


def halves(x: Float32[Tensor, "2*N"]) -> Float32[Tensor, " N"]:  # noqa: F821
    n = len(x) // 2
    return x[:n] * x[n:]


@triton.jit
def product_kernel(a, b, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + i, mask=i < n) * tl.load(b + i, mask=i < n)
    tl.store(z + i, x, mask=i < n)


@triton.jit
def square_kernel(a, b, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + i, mask=i < n)
    tl.store(z + i, x * x, mask=i < n)


@triton.jit
def beyond_kernel(a, b, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(a + i, mask=i < n) * tl.load(b + i + 1, mask=i < n)
    tl.store(z + i, x, mask=i < n)


def _of_halves(launch):
    cases = (Case(N=32, BLOCK=32), Case(N=50, BLOCK=32), Case(N=2**30 + 100, BLOCK=1024, pretend=True))
    return Puzzle(spec=halves, launch=launch, cases=cases)


HALVES = _of_halves(
    lambda kernel, s, x, z: kernel[(triton.cdiv(s.N, s.BLOCK),)](x[: s.N], x[s.N :], z, s.N, BLOCK=s.BLOCK)
)


@pytest.mark.parametrize(
    "kernel, words",
    [
        (product_kernel, ""),
        (square_kernel, "wrong values in z"),
        (beyond_kernel, "out-of-bounds load of x"),
    ],
)
def test_a_launch_may_pass_parts_of_a_tensor(kernel, words):
    report = examine(kernel, HALVES)
    assert report.ok == (not words) and words in str(report)


def test_a_part_is_shown_with_its_first_element():
    assert "kernel[(1,)](x, x from element 32, z, 32, BLOCK=32)" in HALVES._repr_markdown_()
    x = torch.randn(20)
    torch.testing.assert_close(run(product_kernel, HALVES, x=x, N=10, BLOCK=8), x[:10] * x[10:])
    assert "x" in trace(product_kernel, HALVES).tensors
    assert "tl.load(b + i" in str(watch(product_kernel, HALVES, case=1))


def test_a_launch_may_pass_tuples():
    @triton.jit
    def pair_kernel(pair, z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(pair[0] + i, mask=i < n) * tl.load(pair[1] + i, mask=i < n)
        tl.store(z + i, x, mask=i < n)

    puzzle = _of_halves(
        lambda kernel, s, x, z: kernel[(triton.cdiv(s.N, s.BLOCK),)](
            (x[: s.N], x[s.N :]), z, s.N, BLOCK=s.BLOCK
        )
    )
    assert examine(pair_kernel, puzzle).ok
    assert "kernel[(1,)]((x, x from element 32), z, 32" in puzzle._repr_markdown_()


def negated(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return -x


@pytest.mark.parametrize("bits, ok", [(-(2**31), True), (1 << 30, False)])
def test_a_launch_may_pass_a_tensor_as_another_dtype(bits, ok):
    @triton.jit
    def flipped_kernel(a, z, n, BITS: tl.constexpr, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z + i, tl.load(a + i, mask=i < n) ^ BITS, mask=i < n)

    puzzle = Puzzle(
        spec=negated,
        launch=lambda kernel, s, x, z: kernel[(triton.cdiv(s.N, 32),)](
            x.view(torch.int32), z.view(torch.int32), s.N, BITS=bits, BLOCK=32
        ),
        cases=(Case(N=100),),
    )
    report = examine(flipped_kernel, puzzle)
    assert report.ok == ok and "kernel[(4,)](x.view(torch.int32), z.view(torch.int32)" in str(
        puzzle._repr_markdown_()
    )
    assert ok or "wrong values in z" in str(report)


def test_a_descriptor_may_be_of_a_part_in_another_dtype():
    @triton.jit
    def copied_kernel(source, z, n, BLOCK: tl.constexpr):
        i = tl.program_id(0) * BLOCK
        offs = i + tl.arange(0, BLOCK)
        tl.store(z + offs, source.load([i]).to(tl.float32, bitcast=True), mask=offs < n)

    def second(x: Float32[Tensor, "2*N"]) -> Float32[Tensor, " N"]:  # noqa: F821
        return x[len(x) // 2 :].clone()

    def launch(kernel, s, x, z):
        part = TensorDescriptor(x[s.N :].view(torch.int32), [s.N], [1], [s.BLOCK])
        kernel[(triton.cdiv(s.N, s.BLOCK),)](part, z, s.N, BLOCK=s.BLOCK)

    puzzle = Puzzle(spec=second, launch=launch, cases=(Case(N=32, BLOCK=32), Case(N=100, BLOCK=32)))
    assert examine(copied_kernel, puzzle).ok


def test_a_part_and_a_hook_are_refused_in_a_sentence():
    hook = triton.Config({"BLOCK": 16}, pre_hook=lambda arguments: None)
    kernel = triton.autotune([hook], key=["n"])(product_kernel)
    halves = _of_halves(lambda kernel, s, x, z: kernel[(triton.cdiv(s.N, 16),)](x[: s.N], x[s.N :], z, s.N))
    assert "launch passes a part of x, but a pre_hook needs all of it" in str(examine(kernel, halves))
