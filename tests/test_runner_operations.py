"""Operations of Triton IR that the runner is likely to get wrong, and that it knows all those it meets."""

import operator
import re
from unittest import mock

import pytest
import torch

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.compiler import closed_after
from puzzles_lib.compiler.frontend import Opinions
from puzzles_lib.runner import machine, operations
from puzzles_lib.runner.lanes import BOOL, Lanes
from puzzles_lib.runner.operations import TABLE
from tests import kernels
from tests.kernel_lab import evaluate, execute, kernel_of

I8, I32, I64, U8, U32 = torch.int8, torch.int32, torch.int64, torch.uint8, torch.uint32
F32, F64, BF16 = torch.float32, torch.float64, torch.bfloat16
NAN = float("nan")

# What hands values on, where a region or a block ends; the machine sees to it.
CONTROL = {
    "cf.br", "cf.cond_br", "scf.condition", "scf.yield", "tt.map_elementwise.return", "tt.reduce.return",
    "tt.return", "tt.scan.return",
}  # fmt: skip
_BEGUN = re.compile(r'^ {4,}(?:%[^"]* = )?"([\w.]+)"\(', re.MULTILINE)


def the_text(opinions: Opinions) -> str:
    opinion = opinions[0]
    assert opinion is not None and opinion.refusal is None, opinion
    return opinion.ir


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda puzzle: puzzle.name)
def test_every_operation_of_right_kernels_is_known(puzzle):
    found = set()
    right = [solutions()[puzzle.name], *(kernel for of, kernel in kernels.right() if of is puzzle)]
    for kernel in right:
        bound = bind(kernel, puzzle, puzzle.cases[0])
        opinions = Opinions(bound.kernel, [], [bound.arguments])
        found |= set(_BEGUN.findall(closed_after(opinions, the_text)))
    assert found
    assert found - TABLE.keys() - CONTROL == set()


def test_the_machine_runs_what_controls():
    """No name stands in two tables, and control that returns values stands in the operations' own."""
    assert not CONTROL & TABLE.keys()
    assert {"scf.for", "scf.if", "scf.while", "tt.call"} <= TABLE.keys()
    assert TABLE["tt.call"] is machine.call


BITS = torch.tensor([True, True, False, False])
OTHER = torch.tensor([True, False, True, False])


@pytest.mark.parametrize(
    "predicate, compare, of_one",
    [
        (2, operator.lt, -1), (3, operator.le, -1), (4, operator.gt, -1), (5, operator.ge, -1),
        (6, operator.lt, 1), (7, operator.le, 1), (8, operator.gt, 1), (9, operator.ge, 1),
    ],
)  # fmt: skip
def test_a_single_bit_is_minus_one_in_a_signed_comparison(predicate, compare, of_one):
    """Triton's own comparisons of bools are unsigned."""
    step = mock.Mock(**{"op.integer.return_value": predicate})
    x, y = (Lanes(bits.numpy(), BOOL) for bits in (BITS, OTHER))
    found = operations.cmpi(mock.Mock(), step, x, y)
    assert found.data.tolist() == compare(of_one * BITS.int(), of_one * OTHER.int()).tolist()


@pytest.mark.parametrize(
    "expression, by_torch",
    [
        ("x + y", lambda x, y: x ^ y),  # modulo 2, and so on
        ("x - y", lambda x, y: x ^ y),
        ("x * y", lambda x, y: x & y),
        ("x ^ y", lambda x, y: x ^ y),
        ("x == y", lambda x, y: x == y),
        ("x < y", lambda x, y: ~x & y),
        ("tl.maximum(x, y)", lambda x, y: x | y),
        ("tl.minimum(x, y)", lambda x, y: x & y),
        ("tl.where(x, y, x)", lambda x, y: torch.where(x, y, x)),
    ],
)
def test_single_bits(expression, by_torch):
    """Loads of a bool tensor are bytes that become bits."""
    setup = "x = x != 0\ny = y != 0"
    got = evaluate(f"({expression}).to(tl.int8)", BITS, OTHER, shape=(4,), dtype=I8, setup=setup)
    assert got.tolist() == by_torch(BITS, OTHER).int().tolist()


@pytest.mark.parametrize(
    "expression, want",
    [
        ("(x > y).to(tl.uint32)", [1, 0, 1, 0]),
        ("tl.maximum(x, y)", [2**31, 1, 2**32 - 1, 7]),
        ("tl.minimum(x, y)", [1, 0, 5, 7]),
        ("x // y", [2**31, 0, (2**32 - 1) // 5, 1]),
        ("x % y", [0, 0, (2**32 - 1) % 5, 0]),
        ("x >> 1", [2**30, 0, 2**31 - 1, 3]),
        ("tl.umulhi(x, x)", [2**30, 0, 2**32 - 2, 0]),
        ("tl.cumsum(x, 0)", [2**31, 2**31, 2**31 - 1, 2**31 + 6]),
    ],
)
def test_unsigned_numbers(expression, want):
    x = torch.tensor([2**31, 0, 2**32 - 1, 7], dtype=I64).to(U32)
    y = torch.tensor([1, 1, 5, 7], dtype=I64).to(U32)
    assert evaluate(expression, x, y, shape=(4,), dtype=U32).tolist() == want


@pytest.mark.parametrize("dtype", [U8, torch.uint16, U32, torch.uint64])
@pytest.mark.parametrize(
    "expression, want",
    [("tl.max(x, 0)", -1), ("tl.min(x, 0)", 3), ("tl.argmax(x, 0)", 2), ("tl.argmin(x, 0)", 0)],
)
def test_the_largest_of_unsigned_numbers(expression, want, dtype):
    """The IR's integers have no sign; a number with its highest bit set is the largest here."""
    x = torch.tensor([3, 127, -1, -2], dtype=I64).to(dtype)
    got = evaluate(f"({expression}).to(tl.int64)", x, shape=(), dtype=I64).item()
    assert got == (want if want >= 0 else torch.iinfo(dtype).max if dtype is not torch.uint64 else -1)


X = torch.arange(24, dtype=F32).reshape(2, 3, 4).flip(1)[:, [0, 2]].contiguous()  # (2, 2, 4)


# Shapes of values of which the runner holds less than all: spread lanes and scalars.
@pytest.mark.parametrize(
    "expression, want",
    [
        ("tl.reshape(tl.full((2, 4), 3, tl.int32), (4, 2))", torch.full((4, 2), 3)),
        ("tl.trans(tl.broadcast_to(i[None, :], (2, 4)))", torch.arange(4)[:, None].expand(4, 2)),
        ("tl.reshape(tl.broadcast_to(i[:, None], (4, 2)), (2, 4))", torch.arange(4).repeat_interleave(2)),
        ("tl.sum(tl.broadcast_to(i[:, None], (4, 2)), 1)", torch.arange(4) * 2),
        ("tl.sum(tl.broadcast_to(i[:, None], (4, 2)), 0)", torch.tensor([6, 6])),
        ("tl.sum(tl.full((4, 2), 3, tl.int32), 0)", torch.tensor([12, 12])),
        ("tl.cumsum(tl.full((4,), 3, tl.int32), 0)", torch.tensor([3, 6, 9, 12])),
        ("tl.cumsum(i, 0, reverse=True)", torch.tensor([6, 6, 5, 3])),
        ("tl.join(i, tl.full((4,), 9, tl.int32))", torch.tensor([0, 9, 1, 9, 2, 9, 3, 9])),
        ("tl.interleave(tl.full((4,), 9, tl.int32), i)", torch.tensor([9, 0, 9, 1, 9, 2, 9, 3])),
        ("tl.sort(tl.full((4,), 9, tl.int32) - i)", torch.tensor([6, 7, 8, 9])),
        ("tl.sort(i, descending=True)", torch.tensor([3, 2, 1, 0])),
        ("tl.topk(i, 2)", torch.tensor([3, 2])),
        ("tl.flip(tl.broadcast_to(i[:, None], (4, 2)), 0)", torch.tensor([3, 3, 2, 2, 1, 1, 0, 0])),
        ("tl.gather(tl.full((4,), 5, tl.int32), i, 0)", torch.tensor([5, 5, 5, 5])),
        ("tl.gather(i, tl.full((4,), 2, tl.int32), 0)", torch.tensor([2, 2, 2, 2])),
        ("tl.histogram(tl.full((4,), 2, tl.int32), 4)", torch.tensor([0, 0, 4, 0])),
        ("tl.argmax(tl.full((4,), 7, tl.int32), 0)[None]", torch.tensor([0])),
        ("tl.argmin(tl.broadcast_to(i[None, :], (2, 4)), 1)", torch.tensor([0, 0])),
        ("tl.where(i[:, None] > 1, tl.full((4, 2), 1, tl.int32), 0)", torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])),
        ("tl.xor_sum(tl.full((4,), 3, tl.int32), 0)[None]", torch.tensor([0])),
        ("tl.permute(tl.broadcast_to(i[:, None, None], (4, 2, 1)), (2, 0, 1))",
         torch.arange(4).repeat_interleave(2)),
    ],
)  # fmt: skip
def test_spread_lanes_have_their_whole_shape(expression, want):
    x = torch.arange(4, dtype=I32)
    got = evaluate(expression, x, shape=(want.numel(),), dtype=I32)
    assert got.tolist() == want.reshape(-1).tolist()


def test_scalars_are_joined_and_split():
    setup = "a, b = tl.split(tl.join(tl.sum(x, 0), tl.max(x, 0)))"
    assert evaluate("a * 10 + b", torch.arange(4), shape=(), dtype=I64, setup=setup).item() == 63


@pytest.mark.parametrize("dtype", [torch.int8, torch.int64, torch.float16, BF16, F32, F64])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_reductions_along_each_axis(axis, dtype):
    x = X.to(dtype)
    shape = tuple(torch.sum(x, axis).shape)
    of_sum = torch.int32 if dtype is torch.int8 else dtype
    assert torch.equal(
        evaluate(f"tl.sum(x, {axis})", x, shape=shape, dtype=of_sum), x.to(F64).sum(axis).to(of_sum)
    )
    assert torch.equal(evaluate(f"tl.max(x, {axis})", x, shape=shape, dtype=dtype), x.amax(axis))
    got = evaluate(f"tl.argmin(x, {axis})", x, shape=shape, dtype=I32)
    assert torch.equal(got.long(), x.argmin(axis))


@pytest.mark.parametrize(
    "which, row, want",
    [
        ("max", [NAN, 6.0, 8.0, -1.0], 2),
        ("min", [NAN, 6.0, 8.0, 7.0], 1),
        ("max", [3.0, 5.0, NAN, -1.0], 1),
    ],
)
def test_a_search_among_nan_finds_a_place_of_the_row(which, row, want):
    """Triton compares in pairs, and a comparison with NaN takes the right element."""
    kernel = kernel_of(
        f"@triton.jit\ndef kernel(x_ptr, z_ptr):\n"
        f"    tl.store(z_ptr, tl.arg{which}(tl.load(x_ptr + tl.arange(0, 4)), 0))\n"
    )
    z = torch.empty(1, dtype=I32)
    done = execute(kernel, x_ptr=torch.tensor(row), z_ptr=z)
    assert z.item() == want
    assert "NaN is neither larger nor smaller" in str(done.undefined)


def test_a_sum_of_bfloat16_is_a_tree():
    """One after another, ones would stop at 256, where the next number is 258."""
    kernel = kernel_of(
        """
@triton.jit
def add(a, b):
    return a + b

@triton.jit
def kernel(x_ptr, z_ptr):
    tl.store(z_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, 1024)), 0, add))
"""
    )
    z = torch.empty(1, dtype=BF16)
    assert execute(kernel, x_ptr=torch.ones(1024, dtype=BF16), z_ptr=z).stop is None
    assert z.item() == 1024


@pytest.mark.parametrize("dtype", [BF16, torch.float16, F32, F64])
def test_atomics_add_numbers_not_bits(dtype):
    kernel = kernel_of(
        "@triton.jit\ndef kernel(z_ptr):\n"
        "    i = tl.arange(0, 8)\n"
        "    tl.atomic_add(z_ptr + i % 2, i.to(z_ptr.dtype.element_ty))\n"
    )
    z = torch.ones(2, dtype=dtype)
    assert execute(kernel, z_ptr=z).stop is None
    assert z.tolist() == [13.0, 17.0]


def test_a_fused_product_is_rounded_once():
    a = 1 + 2.0**-12
    x = torch.full((4,), a)
    got = evaluate("tl.fma(x, x, y)", x, -(x * x), shape=(4,), dtype=F32)
    assert torch.equal(got, torch.full((4,), 2.0**-24))


@pytest.mark.parametrize("pack", [1, 2, 4])
def test_a_function_of_several_elements_is_mapped(pack):
    names = [f"{letter}{i}" for letter in "ab" for i in range(pack)]
    returned = ", ".join([f"a{i} // b{i}" for i in range(pack)] + [f"a{i} % b{i}" for i in range(pack)])
    kernel = kernel_of(
        f"""
@triton.jit
def divided({", ".join(names)}):
    return {returned}

@triton.jit
def kernel(x_ptr, y_ptr, q_ptr, z_ptr):
    i = tl.arange(0, 16)
    q, r = tl.map_elementwise(divided, tl.load(x_ptr + i), tl.load(y_ptr + i), pack={pack})
    tl.store(q_ptr + i, q)
    tl.store(z_ptr + i, r)
"""
    )
    x, y = torch.arange(16, dtype=I32) * 7, torch.arange(16, dtype=I32) % 5 + 1
    q, z = torch.empty_like(x), torch.empty_like(x)
    done = execute(kernel, x_ptr=x, y_ptr=y, q_ptr=q, z_ptr=z, outputs=("q_ptr", "z_ptr"))
    assert done.stop is None
    assert torch.equal(q, x // y) and torch.equal(z, x % y)
