"""Measure what chapters 03 and 05 save: the puzzles' own kernels, beside PyTorch calls, fused and not.

``bytes`` is the memory that a call needs beyond its inputs, with the result.
"""

from collections.abc import Iterator

import torch
from torch.nn.functional import scaled_dot_product_attention

from puzzles_lib.bench.lessons import Call, launched, puzzle_named, rows_of
from puzzles_lib.kernels import attention

STORED, FUSED = "PyTorch, all scores stored", "scaled_dot_product_attention"


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench fused needs a CUDA device")
    torch.manual_seed(0)
    yield from _relu(8192)
    for tokens in (4096, 32768):
        yield from _causal(tokens, 64)
    yield from _heads(32, 4096, 64)


def _relu(size: int) -> Iterator[dict[str, object]]:
    x, y = torch.randn(2, size, device="cuda")
    numbers = {"M": size, "N": size, "BLOCK_M": 16, "BLOCK_N": 128}
    calls: dict[str, Call] = {
        "torch.relu(x * y)": lambda: torch.relu(x[None, :] * y[:, None]),
        "puzzle 5": launched("mul_relu", numbers, x, y),
    }
    case = f"relu of {size} x {size} products, float32"
    yield from rows_of("fused", case, calls, "torch.relu(x * y)", captured=True)


def _causal(tokens: int, width: int) -> Iterator[dict[str, object]]:
    q, k, v = (torch.randn(tokens, width, device="cuda") for _ in range(3))
    numbers = {"T": tokens, "D": width, "BLOCK_Q": 32, "BLOCK_K": 32, "BLOCK_D": width}
    spec = puzzle_named("flash_attention").spec
    head = [each[None, None] for each in (q, k, v)]
    calls: dict[str, Call] = {
        STORED: lambda: spec(q, k, v),
        FUSED: lambda: scaled_dot_product_attention(*head, is_causal=True)[0, 0],
        "puzzle 9b": launched("flash_attention", numbers, q, k, v),
    }
    yield from rows_of("fused", f"one causal head of {tokens} tokens, D = {width}, float32", calls, STORED)


def _heads(heads: int, tokens: int, width: int) -> Iterator[dict[str, object]]:
    shape = (1, heads, tokens, width)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    scale = width**-0.5
    calls: dict[str, Call] = {
        STORED: lambda: (q @ k.mT * scale).softmax(-1) @ v,
        FUSED: lambda: scaled_dot_product_attention(q, k, v),
        "attention": lambda: attention(q, k, v, scale=scale),
    }
    yield from rows_of("fused", f"{heads} heads of {tokens} tokens, D = {width}, bfloat16", calls, STORED)
