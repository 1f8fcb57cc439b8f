"""Attention on a GPU: the Triton kernels beside the torch path in float32, whatever the shape.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

from importlib import import_module

import pytest
import torch

from puzzles_lib.kernels.attention import attention

module = import_module("puzzles_lib.kernels.attention")

pytestmark = pytest.mark.gpu

MASKS = [{}, {"causal": True}, {"causal": True, "window": 1}, {"causal": True, "window": 100}]


def draw(shape, dtype=torch.bfloat16, seed=0, scale=1.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator) * scale).to(dtype)


def tensors(B, H, G, T, D, dtype=torch.bfloat16, scale=1.0):
    """q, k, v and do."""
    shapes = [(B, H, T, D), (B, G, T, D), (B, G, T, D), (B, H, T, D)]
    return [draw(shape, dtype, seed, scale) for seed, shape in enumerate(shapes)]


def results(q, k, v, do, **options):
    """o, lse, dq, dk and dv, made in memory that held NaN."""
    junk = [torch.full_like(q, torch.nan) for _ in range(6)]
    del junk
    inputs = [each.detach().requires_grad_() for each in (q, k, v)]
    o, lse = attention(*inputs, return_lse=True, **options)
    return [o.detach(), lse.detach(), *torch.autograd.grad((o, lse), inputs, (do, lse.detach().cos()))]


def in_float32(q, k, v, do, **options):
    return results(*(each.float() for each in (q, k, v, do)), **options)


def close(got, want, dtype):
    """Each of them, element by element, within what rounding p and ds to half precision does."""
    eps = torch.finfo(dtype).eps
    for name, a, b in zip(("o", "lse", "dq", "dk", "dv"), got, want, strict=True):
        assert a.isfinite().all(), name
        off = (a.float() - b).norm() / b.norm()
        assert off < (2e-5 if name == "lse" else eps), (name, float(off))
        assert (a.float() - b).abs().max() <= 4 * eps * max(1.0, float(b.abs().max())), name


@pytest.mark.parametrize("options", MASKS, ids=str)
@pytest.mark.parametrize("D", module.HEAD_DIMS)
@pytest.mark.parametrize("T", [1, 63, 64, 65, 200, 513])
def test_results_are_those_of_float32(T, D, options):
    inputs = tensors(2, 4, 4, T, D)
    close(results(*inputs, **options), in_float32(*inputs, **options), torch.bfloat16)


@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 70}], ids=str)
@pytest.mark.parametrize("H, G", [(6, 2), (8, 1), (3, 3)])
@pytest.mark.parametrize("dtype", module.HALVES, ids=str)
def test_grouped_heads(dtype, H, G, options):
    for D in (64, 128):
        inputs = tensors(3, H, G, 217, D, dtype)
        close(results(*inputs, **options), in_float32(*inputs, **options), dtype)


@pytest.mark.parametrize("options", MASKS, ids=str)
@pytest.mark.parametrize("D", [64, 128])
def test_sequences_packed_in_a_row_are_as_each_alone(D, options):
    lengths = [130, 0, 1, 300, 64]
    inputs = tensors(1, 4, 2, sum(lengths), D)
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0, dtype=torch.int32)
    got = results(*inputs, cu_seqlens=starts, max_seqlen=300, **options)
    assert all(map(torch.equal, got, results(*inputs, cu_seqlens=starts, **options)))
    close(got, in_float32(*inputs, cu_seqlens=starts, **options), torch.bfloat16)


@pytest.mark.parametrize("D", [64, 128])
def test_a_nan_stays_in_its_sequence(D):
    lengths = [100, 57, 200]
    inputs = tensors(1, 2, 2, sum(lengths), D)
    starts = torch.tensor([0, *lengths], device="cuda").cumsum(0, dtype=torch.int32)
    right = results(*inputs, cu_seqlens=starts, causal=True)
    for bad in range(4):
        spoilt = [each.clone() for each in inputs]
        spoilt[bad][:, :, 100:157] = torch.nan
        for got, want in zip(results(*spoilt, cu_seqlens=starts, causal=True), right, strict=True):
            assert torch.equal(got[:, :, :100], want[:, :, :100])
            assert torch.equal(got[:, :, 157:], want[:, :, 157:])


def test_any_strides_and_large_scores():
    inputs = tensors(2, 4, 2, 150, 64, scale=8.0)
    want = results(*inputs, causal=True)
    rows_first = [each.transpose(1, 2).contiguous().transpose(1, 2) for each in inputs]
    odd = [torch.cat([each, each[..., :3]], 3)[..., :64] for each in inputs]
    assert odd[0].stride(2) == 67
    for others in (rows_first, odd):
        got = results(*others, causal=True)
        assert all(map(torch.equal, got, want))
    assert attention(*rows_first[:3]).stride() == rows_first[0].stride()
    assert all(each.isfinite().all() for each in want)
    one = inputs[3].mean((0, 1, 2), keepdim=True).expand_as(inputs[3])  # as a sum's gradient comes
    assert all(map(torch.equal, results(*inputs[:3], one), results(*inputs[:3], one.contiguous())))


@pytest.mark.parametrize("D", [64, 128])
def test_the_same_bits_in_every_run(D):
    inputs = tensors(4, 16, 4, 1000, D)
    first = results(*inputs, causal=True)
    for _ in range(100):
        assert all(map(torch.equal, first, results(*inputs, causal=True)))


def test_more_than_two_to_the_31_elements():
    T = 2**31 // (4 * 64) + 1000
    q = torch.zeros(1, 4, T, 64, device="cuda", dtype=torch.bfloat16)
    k, v = torch.zeros_like(q), torch.zeros_like(q)
    v[:, :, -300:] = 1.0
    inputs = [each.requires_grad_() for each in (q, k, v)]
    o = attention(*inputs, causal=True, window=100)
    assert (o[:, :, -200:] == 1).all() and (o[:, :, :-300] == 0).all()
    (dv,) = torch.autograd.grad(o, inputs[2], torch.ones_like(o))
    assert torch.allclose(dv[:, :, -300:-200].float(), torch.ones((), device="cuda"), atol=0.02)


@pytest.mark.parametrize("options", [{}, {"causal": True, "window": 33}], ids=str)
def test_torch_compiles_it_as_one_graph(options):
    q, k, v, do = tensors(2, 4, 2, 150, 64)
    torch.compiler.reset()

    def layer(q, k, v):
        return attention(2 * q, k, v, **options).transpose(1, 2).flatten(2)

    compiled = torch.compile(layer, fullgraph=True)
    found = []
    for call in (compiled, layer):
        inputs = [each.detach().requires_grad_() for each in (q, k, v)]
        y = call(*inputs)
        found.append([y.detach(), *torch.autograd.grad(y, inputs, do.transpose(1, 2).flatten(2))])
    assert all(map(torch.equal, *found))


def test_torchs_own_checks_of_an_operator():
    for D, options in ((64, (None, 70, True, 20, 0.1)), (128, (None, 70, False, None, 0.1))):
        q, k, v, do = tensors(2, 4, 2, 70, D)
        o, lse = module._attention(q, k, v, *options)
        torch.library.opcheck(module._attention, (q, k, v, *options), atol=1e-2, rtol=1e-2)
        inputs = [each.detach().requires_grad_() for each in (q, k, v)]
        tests = ("test_schema", "test_autograd_registration", "test_faketensor")
        torch.library.opcheck(module._attention, (*inputs, *options), test_utils=tests)
        torch.library.opcheck(module._attention_backward, (do, lse, q, k, v, o, lse, *options))
