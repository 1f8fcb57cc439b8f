"""Chapter 18's puzzles: their formulas are torch's attention and its gradients; what they ask of `check`."""

import dataclasses

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import BFloat16, Float32
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from puzzles_lib import run
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import bind
from puzzles_lib.chapters.ch18_attention.puzzles import (
    ATTENTION_DKV,
    ATTENTION_DQ,
    BFLOAT16,
    PUZZLES,
    VARLEN_ATTENTION,
    WINDOW_ATTENTION,
    attention_dkv,
    attention_dq,
    lengths,
    varlen_attention,
    window_attention,
)
from puzzles_lib.checker import examine
from puzzles_lib.checker.compare import compare
from puzzles_lib.checker.expected import expect
from puzzles_lib.compiler import build, find_target, translate
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case, Puzzle

# ---- what the specs say


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


def test_the_formula_of_forward_is_torchs():
    q, k, v = normal(3, 11, 16), normal(3, 11, 16).flip(1), normal(3, 11, 16).flip(2)
    o, lse = window_attention(q, k, v, 11)
    assert torch.allclose(o, scaled_dot_product_attention(q, k, v, is_causal=True))
    near = torch.ones(11, 11, dtype=torch.bool).tril() & ~torch.ones(11, 11, dtype=torch.bool).tril(-4)
    windowed, of_window = window_attention(q, k, v, 4)
    assert torch.allclose(windowed, scaled_dot_product_attention(q, k, v, attn_mask=near))
    assert torch.equal(lse[:, :4], of_window[:, :4]) and (lse[:, 4:] > of_window[:, 4:]).all()
    assert torch.allclose(of_window[1, 9].exp(), (q[1, 9] @ k[1, 6:10].T / 4).exp().sum())


def test_each_sequence_is_attention_of_its_own():
    q, k, v = normal(9, 4, 16), normal(15, 2, 16), normal(15, 2, 16).flip(0)
    cu_q, cu_k = torch.tensor([0, 3, 3, 9], dtype=torch.int32), torch.tensor([0, 7, 8, 15], dtype=torch.int32)
    o, lse = varlen_attention(q, k, v, cu_q, cu_k)
    for queries, keys in ((slice(0, 3), slice(0, 7)), (slice(3, 9), slice(8, 15))):
        of_q, of_k, of_v = (x.transpose(0, 1) for x in (q[queries], k[keys], v[keys]))
        rows, columns = of_q.shape[1], of_k.shape[1]
        seen = torch.ones(rows, columns, dtype=torch.bool).tril(columns - rows)
        told = scaled_dot_product_attention(of_q, of_k, of_v, attn_mask=seen, enable_gqa=True)
        assert torch.allclose(o[queries].transpose(0, 1), told)
    assert torch.allclose(lse[3, 2], (q[2, 3] @ k[:7, 1].T / 4).logsumexp(0))  # the last of 3 sees all 7


def test_the_formulas_of_backward_are_those_of_autograd():
    q, do = normal(4, 9, 16), normal(4, 9, 16).flip(0)
    k, v = normal(2, 9, 16), normal(2, 9, 16).flip(1)
    leaves = [t.clone().requires_grad_() for t in (q, k, v)]
    o = scaled_dot_product_attention(*leaves, is_causal=True, enable_gqa=True)
    dq, dk, dv = torch.autograd.grad(o, leaves, do)
    k_of_h, v_of_h = k.repeat_interleave(2, 0), v.repeat_interleave(2, 0)
    forward, lse = window_attention(q, k_of_h, v_of_h, 9)
    made, delta = attention_dq(q, k_of_h, v_of_h, forward, do, lse)
    assert torch.allclose(made, dq)
    assert all(map(torch.allclose, attention_dkv(q, k, v, do, lse, delta), (dk, dv)))


@pytest.mark.parametrize("puzzle", [ATTENTION_DQ, ATTENTION_DKV], ids=lambda p: p.name)
def test_backward_gets_what_forward_has_kept(puzzle: Puzzle):
    """o and lse are those of q, k and v; delta is made of the o that was stored."""
    case = puzzle.cases[2]
    given = make_inputs(puzzle, case)
    heads = len(given["q"]) // len(given["k"])
    q, k, v = (given[name].double() for name in ("q", "k", "v"))
    o, lse = window_attention(q, k.repeat_interleave(heads, 0), v.repeat_interleave(heads, 0), case.T)
    assert torch.equal(given["lse"], lse.float())
    assert torch.equal(given.get("o", o.bfloat16()), o.bfloat16())
    delta = (given["do"].double() * o.bfloat16()).sum(2).float()
    assert torch.equal(given.get("delta", delta), delta)


def test_lengths_are_where_sequences_begin_and_end():
    fill = lengths(5, 0, 2)
    assert fill((4,), torch.int32, torch.Generator()).tolist() == [0, 5, 5, 7]
    assert fill.__name__ == "lengths_5_0_2"
    for case in VARLEN_ATTENTION.drawn() + VARLEN_ATTENTION.cases:
        given = make_inputs(VARLEN_ATTENTION, case)
        queries, keys = given["cu_q"].diff(), given["cu_k"].diff()
        assert (queries >= 0).all() and (queries <= keys).all() and queries.max() <= case.MAX_Q
        assert given["cu_q"][-1] == case.NQ and given["cu_k"][-1] == case.NK


# ---- the kernels


def test_they_run_on_tensors_of_ones_own():
    q = torch.ones(2, 20, 16).bfloat16()
    v = torch.arange(20.0)[None, :, None].expand(2, 20, 16).bfloat16().contiguous()
    sizes = {"BLOCK_Q": 16, "BLOCK_K": 16}
    o, lse = run(solutions()["window_attention"], WINDOW_ATTENTION, q=q, k=q, v=v, W=3, **sizes)
    assert o[1, :5, 7].tolist() == [0, 0.5, 1, 2, 3]  # the mean of what the window holds
    assert torch.allclose(lse[0, 2:], 4 + torch.tensor(3.0).log())
    cu = torch.tensor([0, 1, 20], dtype=torch.int32)
    packed = {"q": q.transpose(0, 1).contiguous(), "k": q.transpose(0, 1).contiguous()}
    packed["v"] = v.transpose(0, 1).contiguous()
    kernel = solutions()["varlen_attention"]
    o, _ = run(kernel, VARLEN_ATTENTION, **packed, cu_q=cu, cu_k=cu, B=2, MAX_Q=19, **sizes)
    assert o[:4, 0, 0].tolist() == [0, 1, 1.5, 2]


SHARED_MEMORY = 232_448  # bytes that a program may have on an H100 or H200


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda p: p.name)
def test_they_compile_for_a_gpu_at_sizes_that_one_would_take(puzzle: Puzzle):
    sizes = {"D": 64, "BLOCK_Q": 64, "BLOCK_K": 64}
    bound = bind(solutions()[puzzle.name], puzzle, puzzle.cases[0].but(**sizes))
    built = build(translate(bound.kernel, bound.arguments, find_target("sm_90")))
    assert built.refusal is None and built.metadata["shared"] <= SHARED_MEMORY
    assert "wgmma.mma_async" in built.texts["ptx"]


# ---- what may be rounded on the way


def weighted(w: Float32[Tensor, "M K"], v: BFloat16[Tensor, "K N"]) -> Float32[Tensor, "M N"]:
    return w @ v


WEIGHTED = Puzzle(
    number="0",
    spec=weighted,
    grid=lambda s: (1,),
    cases=(Case(M=16, K=32, N=16),),
    allowance=lambda w, v: BFLOAT16 * w.abs() @ v.abs(),
    slips={"twice": lambda w, v: 2 * w @ v, "none": lambda w, v: w @ v},
)


@triton.jit
def rounded_for_the_dot(w_ptr, v_ptr, z_ptr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    m, k, n = tl.arange(0, M)[:, None], tl.arange(0, K), tl.arange(0, N)[None, :]
    w = tl.load(w_ptr + m * K + k[None, :]).to(tl.bfloat16)
    tl.store(z_ptr + m * N + n, tl.dot(w, tl.load(v_ptr + k[:, None] * N + n)))


@triton.jit
def rounded_to_eight_bits(w_ptr, v_ptr, z_ptr, M: tl.constexpr, K: tl.constexpr, N: tl.constexpr):
    m, k, n = tl.arange(0, M)[:, None], tl.arange(0, K), tl.arange(0, N)[None, :]
    w = tl.load(w_ptr + m * K + k[None, :]).to(tl.float8e4nv).to(tl.bfloat16)
    tl.store(z_ptr + m * N + n, tl.dot(w, tl.load(v_ptr + k[:, None] * N + n)))


def test_a_puzzle_may_allow_for_what_a_dot_rounds_and_for_no_more():
    assert examine(rounded_for_the_dot, WEIGHTED).ok
    assert not examine(rounded_for_the_dot, dataclasses.replace(WEIGHTED, allowance=None)).ok
    assert "wrong values in z" in str(examine(rounded_to_eight_bits, WEIGHTED))


def told(of_w: Tensor) -> str:
    """What is said of a result made of other weights."""
    case = WEIGHTED.cases[0]
    given = make_inputs(WEIGHTED, case)
    expected = expect(WEIGHTED, case, given)["z"]
    got = (given["w"] * of_w).float() @ given["v"].float()
    return compare(expected, got, WEIGHTED, case, given).diagnosis


def test_what_is_allowed_is_no_measure_of_what_is_coarse():
    """Errors of the size of the values are no rounding, however coarse a puzzle allows it to be."""
    assert "coarser type" not in told(torch.linspace(0.3, 1.9, 32))


def test_a_slip_is_told_where_it_rounds_too_and_where_it_makes_a_difference():
    """As what is right: of the wrong elements those of a slip must be much nearer."""
    rounding = 1 + BFLOAT16 * torch.linspace(-1, 1, 32)
    assert told(2 * rounding) == "twice"
    one_row = torch.ones(16, 32)
    one_row[3] += 4 * BFLOAT16
    assert told(one_row) == "all wrong elements are at 3 along M"


# ---- inputs made of others


def test_what_is_derived_is_an_input():
    with pytest.raises(ValueError, match="derived names \\['lsd'\\], which are not inputs"):
        dataclasses.replace(ATTENTION_DQ, derived={"lsd": lambda q: q})


def test_a_fill_goes_before_what_is_derived():
    case = Case(
        H=1, T=4, D=16, BLOCK_Q=16, BLOCK_K=16, fill={"lse": lambda shape, dtype, _: torch.ones(shape)}
    )
    given = make_inputs(ATTENTION_DQ, case)
    assert (given["lse"] == 1).all() and given["o"].any()


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda puzzle: puzzle.name)
def test_every_case_has_the_sizes_of_the_first(puzzle):
    """A size that some cases lack is an empty place in the table that learners read."""
    assert {frozenset(case.numbers) for case in puzzle.cases} == {frozenset(puzzle.cases[0].numbers)}
