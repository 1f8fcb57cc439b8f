"""Attention on the CPU: the torch path, the operators, the errors; the kernels, guarded, and for Hopper.

What needs a GPU is in test_attention_gpu.py.
"""

import contextlib
import itertools
import re
from importlib import import_module

import pytest
import torch
import triton
from torch.nn.functional import scaled_dot_product_attention
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from puzzles_lib.kernels.attention import attention
from tests.running import Guarded

module = import_module("puzzles_lib.kernels.attention")

MASKS = [{}, {"causal": True}, {"causal": True, "window": 1}, {"causal": True, "window": 5}]


def draw(B=2, H=4, G=2, T=19, D=16, dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    shapes = [(B, H, T, D), (B, G, T, D), (B, G, T, D)]
    made = [torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes]
    return [each.to(dtype).requires_grad_() for each in made]


def mask(T, causal=False, window=None):
    """[T, T], of what is seen."""
    behind = torch.arange(T)[:, None] - torch.arange(T)
    return (behind >= (0 if causal else -T)) & (behind < (window or T))


@pytest.mark.parametrize("options", MASKS, ids=str)
def test_it_is_torchs_attention_with_these_gradients(options):
    q, k, v = inputs = draw()
    wanted = scaled_dot_product_attention(q, k, v, attn_mask=mask(19, **options), enable_gqa=True)
    found, lse = attention(q, k, v, return_lse=True, **options)
    torch.testing.assert_close(found, wanted)
    s = (q @ k.repeat_interleave(2, 1).mT / 4).masked_fill(~mask(19, **options), -torch.inf)
    torch.testing.assert_close(lse, s.logsumexp(3))
    do, dlse = torch.randn_like(found), torch.randn_like(lse)
    got = torch.autograd.grad((found, lse), inputs, (do, dlse))
    want = torch.autograd.grad((wanted, s.logsumexp(3)), inputs, (do, dlse))
    torch.testing.assert_close(got, want)


def test_scale_is_what_one_says_and_half_precision_is_rounded_once():
    q, k, v = (each.detach() for each in draw())
    torch.testing.assert_close(
        attention(q, k, v, scale=0.5), scaled_dot_product_attention(q, k, v, scale=0.5, enable_gqa=True)
    )
    for dtype in module.HALVES:
        low = [each.to(dtype) for each in (q, k, v)]
        assert torch.equal(attention(*low), attention(*(each.float() for each in low)).to(dtype))


@pytest.mark.parametrize("options", MASKS, ids=str)
def test_packed_sequences_are_as_each_alone(options):
    lengths = (7, 0, 1, 11)
    q, k, v = (each.detach()[:1] for each in draw())
    starts = torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)
    found, lse = attention(q, k, v, cu_seqlens=starts, max_seqlen=11, return_lse=True, **options)
    for first, end in itertools.pairwise(starts.tolist()):
        part = [each[:, :, first:end] for each in (q, k, v)]
        alone, alone_lse = attention(*part, return_lse=True, **options)
        torch.testing.assert_close(found[:, :, first:end], alone)
        torch.testing.assert_close(lse[:, :, first:end], alone_lse)


def test_a_nan_stays_in_its_sequence():
    q, k, v = (each.detach()[:1] for each in draw())
    starts = torch.tensor([0, 7, 12, 19], dtype=torch.int32)
    right = attention(q, k, v, cu_seqlens=starts)
    v = v.clone()
    v[:, :, 7:12] = torch.nan
    found = attention(q, k, v, cu_seqlens=starts)
    assert found[:, :, 7:12].isnan().all()
    assert torch.equal(found[:, :, :7], right[:, :, :7]) and torch.equal(found[:, :, 12:], right[:, :, 12:])


def test_nothing_in_nothing_out():
    for shape in ((0, 2, 5, 16), (2, 2, 0, 16)):
        inputs = [torch.zeros(shape, requires_grad=True) for _ in range(3)]
        o = attention(*inputs)
        assert o.shape == shape
        assert [each.shape for each in torch.autograd.grad(o.sum(), inputs)] == [shape] * 3


@pytest.mark.parametrize("options", MASKS, ids=str)
def test_gradients_are_those_of_small_steps(options):
    inputs = draw(B=1, T=7)

    def call(*tensors):
        return attention(*tensors, return_lse=True, **options)

    assert torch.autograd.gradcheck(call, inputs, fast_mode=True)


def test_torchs_own_checks_of_an_operator():
    q, k, v = draw(T=9)
    options = (None, 9, True, 4, 0.25)
    torch.library.opcheck(module._attention, (q, k, v, *options))
    o, lse = (each.detach() for each in module._attention(q, k, v, *options))
    plain = [each.detach() for each in (q, k, v)]
    torch.library.opcheck(module._attention_backward, (o, lse, *plain, o, lse, *options))


def test_torch_compiles_it_as_one_graph():
    inputs = draw(T=9, dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(lambda *t: attention(*t, causal=True), fullgraph=True, backend="aot_eager")
    both = [torch.autograd.grad(call(*inputs).sum(), inputs) for call in (compiled, attention_causal)]
    torch.testing.assert_close(*both)


def attention_causal(*tensors):
    return attention(*tensors, causal=True)


def wrong(**changes):
    """Arguments, some of them replaced."""
    made = dict(zip("qkv", (each.detach().float() for each in draw()), strict=True))
    return made | changes


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (wrong(q=torch.zeros(2, 4, 19, 16, dtype=torch.int8)), TypeError, "q must be .*, but is torch.int8"),
        (
            wrong(k=torch.zeros(2, 2, 19, 16).half()),
            TypeError,
            "k must be .* like q, but is torch.float16 on cpu",
        ),
        (
            wrong(v=torch.zeros(2, 19, 16)),
            ValueError,
            r"v must have 4 axes \(batch, heads, rows, columns\), but has 3",
        ),
        (
            wrong(q=torch.zeros(2, 4, 19, 24)),
            ValueError,
            "q must have 16, 32, 64 or 128 columns .*, but has 24",
        ),
        (
            wrong(q=torch.zeros(2, 3, 19, 16)),
            ValueError,
            "the number of k's heads must divide q's 3, but is 2",
        ),
        (
            wrong(k=torch.zeros(2, 2, 18, 16)),
            ValueError,
            r"k must have shape \(2, 2, .*, but has shape \(2, 2, 18, 16\)",
        ),
        (
            wrong(window=4),
            ValueError,
            "window must be at least 1, with causal=True, but is 4 with causal=False",
        ),
        (wrong(causal=True, window=0), ValueError, "window must be at least 1, with causal=True, but is 0"),
        (wrong(causal="yes"), TypeError, "causal must be True or False, but is 'yes'"),
        (wrong(causal=True, window=2.5), TypeError, "window must be an integer, but is float"),
        (wrong(max_seqlen="4"), TypeError, "max_seqlen must be an integer, but is str"),
        (wrong(scale="big"), TypeError, "scale must be a number, but is 'big'"),
        (wrong(max_seqlen=4), ValueError, "max_seqlen must be None without cu_seqlens, but is 4"),
        (
            wrong(cu_seqlens=torch.tensor([0, 19])),
            TypeError,
            "cu_seqlens must be torch.int32, but is torch.int64",
        ),
        (
            wrong(cu_seqlens=torch.tensor([0, 19]).int()),
            ValueError,
            "q must have a batch of 1 with cu_seqlens, but has 2",
        ),
        (
            wrong(cu_seqlens=torch.zeros(2, 2).int()),
            ValueError,
            r"cu_seqlens must have shape .*, but has shape \(2, 2\) on cpu",
        ),
    ],
)
def test_errors_say_what_is_allowed(arguments, error, words):
    with pytest.raises(error, match=words):
        attention(**arguments)


# ---- the kernels, guarded


@pytest.fixture
def guarded(monkeypatch):
    """All three, as if this were a GPU."""
    for name, results in (
        ("_forward_kernel", ("o_ptr", "lse_ptr")),
        ("_dq_kernel", ("dq_ptr", "delta_ptr")),
        ("_dkv_kernel", ("dk_ptr", "dv_ptr")),
    ):
        monkeypatch.setattr(module, name, Guarded(getattr(module, name), results))
    for table, tiles in (("FORWARD", (32, 16)), ("DQ", (16, 32)), ("DKV", (16, 32))):
        monkeypatch.setattr(module, table, {64: module.Tiles(*tiles, 4, 2)})
    monkeypatch.setattr(module, "_on_gpu", lambda q: q.dtype in module.HALVES and q.numel() > 0)
    monkeypatch.setattr(torch.cuda, "device", lambda device: contextlib.nullcontext())


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize(
    "T, options", [(40, each) for each in MASKS] + [(100, {"causal": True, "window": 60})]
)
def test_the_kernels_compute_what_the_torch_path_does(guarded, T, options, packed):
    options, lengths = dict(options), (9, 0, T - 9)
    if packed:
        starts = torch.tensor([0, *lengths]).cumsum(0, dtype=torch.int32)
        options |= {"cu_seqlens": starts, "max_seqlen": max(lengths)}
    inputs = [each.detach() for each in draw(B=1 if packed else 2, T=T, dtype=torch.bfloat16)]
    inputs[1] = inputs[1].transpose(1, 2).contiguous().transpose(1, 2)  # heads beside each other
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        some = [each.to(dtype).requires_grad_() for each in inputs]
        o, lse = attention(*some, return_lse=True, **options)
        found.append([o, lse, *torch.autograd.grad((o, lse), some, (o.detach().sin(), lse.detach().cos()))])
    for name, got, want in zip(("o", "lse", "dq", "dk", "dv"), *found, strict=True):
        off = (got.float() - want).norm() / want.norm()
        assert off < (1e-6 if name == "lse" else 2**-7), name


@pytest.mark.parametrize("scale", [-1.0, 0.0])
def test_the_kernels_take_a_scale_that_is_not_positive(guarded, scale):
    inputs = [each.detach() for each in draw(B=1, H=2, G=1, T=20, dtype=torch.bfloat16)]
    found = []
    for dtype in (torch.bfloat16, torch.float32):
        some = [each.to(dtype).requires_grad_() for each in inputs]
        o, lse = attention(*some, causal=True, scale=scale, return_lse=True)
        found.append([o, lse, *torch.autograd.grad(o, some, o.detach().sin())])
    for name, got, want in zip(("o", "lse", "dq", "dk", "dv"), *found, strict=True):
        assert (got.float() - want).norm() <= 2**-7 * want.norm(), name


def test_the_kernels_keep_a_nan_in_its_sequence(guarded):
    inputs = [each.detach() for each in draw(B=1, T=40, dtype=torch.bfloat16)]
    starts = torch.tensor([0, 9, 23, 40], dtype=torch.int32)

    def results(tensors):
        some = [each.clone().requires_grad_() for each in tensors]
        o = attention(*some, causal=True, cu_seqlens=starts, max_seqlen=17)
        return [o.detach(), *torch.autograd.grad(o, some, torch.ones_like(o))]

    right = results(inputs)
    for bad in range(3):
        spoilt = [each.clone() for each in inputs]
        spoilt[bad][:, :, 9:23] = torch.nan
        for got, want in zip(results(spoilt), right, strict=True):
            assert torch.equal(got[:, :, :9], want[:, :, :9])
            assert torch.equal(got[:, :, 23:], want[:, :, 23:])


# ---- and for Hopper


def compiled(kernel, tiles, D, causal, window=False, packed=False, group=1):
    """For sm_90, as its launcher would have it compiled."""
    constants = {"GROUP": group, "CAUSAL": causal, "D": D, "BLOCK_M": tiles.m, "BLOCK_N": tiles.n}
    constants |= ({} if packed else {"cu_ptr": None}) | ({} if window else {"window": None})
    of_queries, of_keys = (f"tensordesc<bf16[1, {block}, {D}]>" for block in (tiles.m, tiles.n))
    types = dict.fromkeys(("q", "do", "o"), of_queries) | dict.fromkeys(("k", "v"), of_keys)
    types |= dict.fromkeys(("lse_ptr", "dlse_ptr", "delta_ptr"), "*fp32") | {
        "cu_ptr": "*i32",
        "scale": "fp32",
    }
    types |= dict.fromkeys(("o_ptr", "dq_ptr", "dk_ptr", "dv_ptr"), "*bf16") | dict.fromkeys(
        constants, "constexpr"
    )
    names = kernel.arg_names
    signature = {name: types.get(name, "i32") for name in names}
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if signature[name].startswith("*")
        or name in ("length", "longest", "stride_b", "stride_h", "stride_t")
    }
    source = ASTSource(
        kernel, signature, {(names.index(name),): value for name, value in constants.items()}, attributes
    )
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


FORMS = {
    "full": {"causal": False},
    "causal": {"causal": True},
    "window": {"causal": True, "window": True},
    "packed, grouped": {"causal": True, "packed": True, "group": 4},
}
KERNELS = {
    "forward": (module._forward_kernel, module.FORWARD, 2),
    "dq": (module._dq_kernel, module.DQ, 3),
    "dkv": (module._dkv_kernel, module.DKV, 4),
}


@pytest.mark.parametrize(
    "name, D, form",
    [("forward", 64, "window"), ("dq", 128, "causal"), ("dkv", 128, "full"), ("dkv", 64, "packed, grouped")],
)
def test_a_kernel_compiles_for_hopper(name, D, form):
    kernel, table, dots = KERNELS[name]
    code = compiled(kernel, table[D], D, **FORMS[form])
    loops = code.asm["ttgir"].count("scf.for")
    assert len(re.findall("warp_group_dot ", code.asm["ttgir"])) >= 2 * dots and loops >= 2
    assert "cp.async.bulk.tensor" in code.asm["ptx"] and "wgmma.mma_async" in code.asm["ptx"]
    assert code.metadata.shared <= 227 * 1024


def test_descriptors_take_heads_outside_and_inside_rows():
    x = torch.zeros(2, 4, 6, 16, dtype=torch.bfloat16)
    assert tuple(module._rows(x, 64).shape) == (8, 6, 16)
    inside = x.transpose(1, 2).contiguous().transpose(1, 2)
    assert tuple(module._rows(inside, 64).shape) == (2, 6, 64) and module._aligned(inside) is inside
    assert tuple(module._rows(inside, 64).strides) == (6 * 64, 64, 1)
    for odd in (
        x.expand(2, 4, 6, 16)[..., :8].repeat(1, 1, 1, 3)[..., 1:17],
        x[:, :, ::2].mT.contiguous().mT,
    ):
        assert module._aligned(odd).is_contiguous()
    one = torch.zeros(3, 1, 6, 16, dtype=torch.bfloat16)
    assert tuple(module._rows(one, 64).strides) == (96, 16, 1)
