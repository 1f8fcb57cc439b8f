"""Attention over pages on the CPU: the torch path, the operator, the errors; the kernels, guarded.

What needs a GPU is in test_paged_decode_gpu.py.
"""

import contextlib
from importlib import import_module

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from puzzles_lib.kernels.paged_decode import paged_attention
from tests.running import Guarded

module = import_module("puzzles_lib.kernels.paged_decode")


def draw(lengths=(40, 0, 1, 97), H=6, G=2, D=16, page=12, dtype=torch.float64):
    """q, k, v, table and length. What isn't a key is NaN, and entries after the last page are no pages."""
    generator = torch.Generator().manual_seed(0)
    used = [-(-keys // page) for keys in lengths]
    pages, width = sum(used) + 2, max(used) + 1
    order = torch.randperm(pages, generator=generator).int()
    q = torch.randn(len(lengths), H, D, generator=generator, dtype=torch.float64)
    k, v = (torch.full((pages, page, G, D), torch.nan, dtype=torch.float64) for _ in "kv")
    table = torch.full((len(lengths), width), 2**30, dtype=torch.int32)
    taken = 0
    for b, keys in enumerate(lengths):
        table[b, : used[b]] = order[taken : taken + used[b]]
        taken += used[b]
        j = torch.arange(keys)
        at = table[b, j // page].long(), j % page
        for each in (k, v):
            each[at] = torch.randn(keys, G, D, generator=generator, dtype=torch.float64)
    return *(each.to(dtype) for each in (q, k, v)), table, torch.tensor(lengths, dtype=torch.int32)


def exact(q, k, v, table, length, scale=None):
    """torch's attention, text by text, in float64."""
    o = torch.zeros_like(q, dtype=torch.float64)
    for b, keys in enumerate(length.tolist()):
        if keys:
            pages = table[b, : -(-keys // k.shape[1])].long()
            of_k, of_v = (each[pages].flatten(0, 1)[:keys].transpose(0, 1).double() for each in (k, v))
            of_q = q[b, :, None].double()
            o[b] = scaled_dot_product_attention(of_q, of_k, of_v, scale=scale, enable_gqa=True)[:, 0]
    return o


@pytest.mark.parametrize("scale", [None, 0.5])
def test_it_is_torchs_attention(scale):
    inputs = draw()
    torch.testing.assert_close(paged_attention(*inputs, scale=scale), exact(*inputs, scale=scale))
    assert not paged_attention(*inputs)[1].any()  # a text without keys


def test_nothing_in_nothing_out():
    q, k, v, table, length = draw()
    assert paged_attention(q[:0], k, v, table[:0], length[:0]).shape == (0, 6, 16)


def test_there_is_no_gradient():
    q, *rest = draw()
    with pytest.raises(RuntimeError, match="paged_attention"):
        paged_attention(q.requires_grad_(), *rest).sum().backward()


def test_torchs_own_checks_of_an_operator():
    torch.library.opcheck(module._paged_attention, (*draw(dtype=torch.float32), 0.25, 108))


def test_torch_compiles_it_as_one_graph():
    inputs = draw(dtype=torch.float32)
    torch.compiler.reset()
    compiled = torch.compile(paged_attention, fullgraph=True, backend="aot_eager")
    assert torch.equal(compiled(*inputs), paged_attention(*inputs))


def test_a_part_has_whole_blocks_and_all_keys_have_a_part():
    assert module.parts_and_span(1, 2, 4096, 132) == (64, 64)
    assert module.parts_and_span(64, 8, 4096, 132) == (1, 4096)
    assert module.parts_and_span(16, 8, 4096, 132) == (4, 1024)
    for texts, heads, longest in ((1, 1, 0), (1, 1, 1), (3, 2, 1000), (7, 8, 5000), (1, 4, 100_000)):
        parts, span = module.parts_and_span(texts, heads, longest, 132)
        assert span % module.BLOCK == 0 and parts * span >= longest
        assert (parts - 1) * span < max(longest, 1)  # no part without keys in the longest text


def wrong(**changes):
    made = dict(zip(("q", "k", "v", "table", "length"), draw(dtype=torch.float32), strict=True))
    return made | changes


@pytest.mark.parametrize(
    "arguments, error, words",
    [
        (wrong(q=torch.zeros(4, 6, 16).int()), TypeError, "q must be .*, but is torch.int32"),
        (
            wrong(q=torch.zeros(4, 6, 16).half()),
            TypeError,
            "k must be torch.float16 like q, but is torch.float32",
        ),
        (
            wrong(q=torch.zeros(4, 6, 24)),
            ValueError,
            "q must have 16, 32, 64, 128 or 256 columns .*, but has 24",
        ),
        (wrong(q=torch.zeros(4, 5, 16)), ValueError, "k must have .*, but has pages of 12 and 2 heads"),
        (wrong(q=torch.zeros(4, 6, 32)), ValueError, r"k must have shape \(..., 32\), but has shape .*"),
        (wrong(q=torch.zeros(6, 16)), ValueError, "q must have 3 axes, but has 2"),
        (
            wrong(v=torch.zeros(3, 12, 2, 16)),
            ValueError,
            r"v must have shape .*, but has shape \(3, 12, 2, 16\)",
        ),
        (wrong(table=torch.zeros(4, 9)), TypeError, "table must be torch.int32, but is torch.float32"),
        (
            wrong(table=torch.zeros(3, 9).int()),
            ValueError,
            r"table must have shape \(4, W\), but has shape \(3, 9\)",
        ),
        (
            wrong(length=torch.zeros(3).int()),
            ValueError,
            r"length must have shape \(4,\), but has shape \(3,\)",
        ),
        (
            wrong(length=torch.zeros(4, device="meta").int()),
            ValueError,
            "length must be on the device of q, cpu, but is on meta",
        ),
        (wrong(max_length=-1), ValueError, "max_length must be at least the longest length, but is -1"),
        (wrong(max_length=1.5), TypeError, "max_length must be an integer, but is float"),
    ],
)
def test_errors_say_what_is_allowed(arguments, error, words):
    with pytest.raises(error, match=words):
        paged_attention(**arguments)


# ---- the kernels, guarded


@pytest.fixture(params=[1, 4], ids=["1 processor", "4 processors"])
def guarded(monkeypatch, request):
    """As if this were a small GPU: of these texts' keys, one part, or several."""
    for name, results in (("_part_kernel", ("o_ptr", "lse_ptr")), ("_merge_kernel", ("z_ptr",))):
        monkeypatch.setattr(module, name, Guarded(getattr(module, name), results))
    monkeypatch.setattr(module, "BLOCK", 16)
    monkeypatch.setattr(module, "multiprocessors", lambda device: request.param)
    monkeypatch.setattr(module, "_on_gpu", lambda q: q.dtype in module.HALVES and q.numel() > 0)
    monkeypatch.setattr(module.launching, "on_device_of", lambda q: contextlib.nullcontext())
    monkeypatch.setattr(module, "STEP", 2)


@pytest.mark.parametrize("H, G, D, page", [(6, 2, 16, 12), (4, 4, 32, 16), (20, 1, 16, 1), (2, 1, 16, 64)])
def test_the_kernels_compute_what_torch_does(guarded, H, G, D, page):
    for dtype in module.HALVES:
        inputs = draw(H=H, G=G, D=D, page=page, dtype=dtype)
        for options in ({}, {"max_length": 97}, {"scale": 3.0}):
            found = paged_attention(*inputs, **options)
            want = exact(*inputs, scale=options.get("scale"))
            assert (found.double() - want).norm() < 4 * torch.finfo(dtype).eps * want.norm()
            assert not found[1].any()
