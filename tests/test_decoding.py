"""The kernels of bench "decoding", guarded, beside torch; and the bytes that its floor counts."""

import pytest
import torch
from torch.nn.functional import silu

from puzzles_lib.bench import decoding
from tests.running import Guarded


def normal(*shape):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(shape, generator=generator).bfloat16()


def launched(name, grid, results, *values, **constants):
    Guarded(getattr(decoding, name), results)[grid](*values, num_warps=4, num_stages=1, **constants)


def test_gated():
    h, z = normal(3, 2 * 40), torch.empty(3, 40).bfloat16()
    launched("_swiglu_kernel", (3, 3), ("z_ptr",), h, z, N=40, BLOCK=16)
    gate, up = h.float().chunk(2, dim=1)
    torch.testing.assert_close(z, (silu(gate) * up).bfloat16(), rtol=2**-7, atol=1e-6)


def test_each_choice_comes_back_with_its_weight():
    order = torch.tensor([0, 3, 4, 1, 5, 2], dtype=torch.int32)
    z, weight, y = normal(6, 40), torch.rand(6), torch.empty(3, 40).bfloat16()
    launched("_combine_kernel", (3, 2), ("y_ptr",), z, order, weight, y, 6, 40, ROWS=8, BLOCK=32)
    back = torch.zeros(3, 40).index_add(0, order.long() // 2, z.float() * weight[:, None])
    torch.testing.assert_close(y, back.bfloat16(), rtol=2**-7, atol=1e-6)


def test_the_bytes_of_a_step(monkeypatch):
    """Of Mixtral's sizes: 0.35 GB per expert, and 17 MB of keys and values per text and layer."""
    wide = {"up": (8, 28672, 4096), "down": (8, 4096, 14336), "qkv": (6144, 4096), "out": (4096, 4096)}
    layer = {name: torch.empty(shape, dtype=torch.bfloat16, device="meta") for name, shape in wide.items()}
    expert, key = 3 * 14336 * 4096 * 2, 2 * 4096 * 8 * 128 * 2
    attention, head = (6144 + 4096) * 4096 * 2, 32000 * 4096 * 2
    for batch, chosen in ((1, 2), (16, 8)):
        want = 32 * (chosen * expert + attention + batch * key) + head
        assert decoding._bytes_read(32, batch, [layer], chosen) == want


def test_it_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="bench decoding needs a CUDA device"):
        next(decoding.measure())
