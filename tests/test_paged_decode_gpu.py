"""Attention over pages on a GPU, beside torch's in float64.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

from importlib import import_module

import pytest
import torch

from puzzles_lib.kernels.paged_decode import paged_attention

module = import_module("puzzles_lib.kernels.paged_decode")

pytestmark = pytest.mark.gpu


def draw(lengths, H, G, D, page, dtype):
    """q, k, v, table and length. What isn't a key is NaN."""
    generator = torch.Generator().manual_seed(0)
    width = max(-(-max(lengths) // page), 1)
    pages = width * len(lengths)
    q = torch.randn(len(lengths), H, D, generator=generator)
    k, v = (torch.randn(pages, page, G, D, generator=generator) for _ in "kv")
    table = torch.randperm(pages, generator=generator).view(len(lengths), width).int()
    for b, keys in enumerate(lengths):
        free = torch.arange(keys, width * page)
        for each in (k, v):
            each[table[b, free // page].long(), free % page] = torch.nan
    length = torch.tensor(lengths, dtype=torch.int32)
    return [each.to(dtype).cuda() for each in (q, k, v)] + [table.cuda(), length.cuda()]


@pytest.mark.parametrize("page", [1, 16, 24, 256])
@pytest.mark.parametrize("H, G", [(32, 8), (4, 4), (17, 1), (128, 1)])
@pytest.mark.parametrize("dtype", module.HALVES, ids=str)
def test_results_are_float64s(dtype, H, G, page):
    for D in (16, 64, 128, 256):
        q, k, v, table, length = draw((1000, 0, 1, 63, 257), H, G, D, page, dtype)
        want = module.paged_attention_ref(q.double(), k.double(), v.double(), table, length, D**-0.5)
        for options in ({}, {"max_length": 1000}):
            found = paged_attention(q, k, v, table, length, **options)
            assert (found.double() - want).norm() < 2 * torch.finfo(dtype).eps * want.norm()
            assert not found[1].any()


def test_one_long_text_in_many_parts():
    q, k, v, table, length = draw((100_000,), 8, 2, 64, 16, torch.bfloat16)
    want = module.paged_attention_ref(q.double(), k.double(), v.double(), table, length, 0.125)
    found = paged_attention(q, k, v, table, length)
    assert (found.double() - want).norm() < 2**-7 * want.norm()
    assert torch.equal(found, paged_attention(q, k, v, table, length))
