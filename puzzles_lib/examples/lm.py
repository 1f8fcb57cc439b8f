"""A small language model that predicts the next byte of Python source code, and the code it reads.

The corpus is on every machine that runs the example: the sources of Python's standard library and of torch.
"""

import sysconfig
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

MOST_BYTES = 40_000_000
HELD_OUT = 0.03  # of the corpus, its end
SIZES = {
    "small": {"width": 64, "layers": 2, "heads": 2, "context": 64},
    "base": {"width": 512, "layers": 8, "heads": 8, "context": 256},
}


class Block(nn.Module):
    """Attention and an MLP, each with a norm before it and a residual around both."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.qkv = nn.LayerNorm(width), nn.Linear(width, 3 * width)
        self.out, self.mlp_norm = nn.Linear(width, width), nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        x = x + self.out(y)
        return x + self.mlp(self.mlp_norm(x))


class ByteLM(nn.Module):
    """A language model: bytes [batch, length], int64, to logits [batch, length, 256] of the next byte."""

    def __init__(self, width: int, layers: int, heads: int, context: int) -> None:
        super().__init__()
        self.context = context
        self.embedding = nn.Embedding(256, width)
        self.places = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)

    def forward(self, bytes: torch.Tensor) -> torch.Tensor:
        x = self.embedding(bytes) + self.places[: bytes.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@cache
def corpus() -> tuple[torch.Tensor, torch.Tensor]:
    """Return the bytes to train on and those held out, uint8 [count]."""
    folders = [Path(sysconfig.get_path("stdlib")), Path(torch.__file__).parent]
    text = bytearray()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            if "site-packages" not in file.relative_to(folder).parts:
                text += file.read_bytes()
    data = torch.frombuffer(text[:MOST_BYTES], dtype=torch.uint8)
    cut = int(len(data) * (1 - HELD_OUT))
    return data[:cut], data[cut:]


def draw(
    data: torch.Tensor, generator: torch.Generator, count: int, length: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ``count`` random pieces of the data and the bytes that follow, int64 [count, length] each."""
    starts = torch.randint(len(data) - length - 1, (count,), generator=generator).to(data.device)
    pieces = data[starts[:, None] + torch.arange(length + 1, device=data.device)].long()
    return pieces[:, :-1], pieces[:, 1:]
