"""The model in plain torch: byte by byte, with RMSNorm, RoPE, grouped-query attention and experts.

This is what is trained. `puzzles_lib.speaking.steps` computes the same with kernels and a cache.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BYTES = 256
EPSILON = 1e-6  # of RMSNorm, as in puzzle 28


@dataclass(frozen=True)
class Sizes:
    """The sizes of a model.

    width: numbers per token. heads: those of queries; kv_heads: those of keys and values; head: numbers per
    head.
    experts: per layer, of which each token takes the best ``chosen``; hidden: numbers inside an expert.
    context: the most positions of a text. base: that of the angles of RoPE.
    """

    layers: int = 3
    width: int = 128
    heads: int = 4
    kv_heads: int = 2
    head: int = 32
    experts: int = 4
    chosen: int = 2
    hidden: int = 128
    context: int = 256
    base: float = 10_000.0


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Return the attention of q, k, v [B, heads, T, D], in which no position sees a later one."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Layer(nn.Module):
    """Attention and a mixture of experts, each after a norm and around a residual.

    attend: computes the attention, as `causal_attention` does.
    """

    attend: Callable[[Tensor, Tensor, Tensor], Tensor]

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, self.attend = sizes, causal_attention
        c, f, inside = sizes.width, sizes.hidden, sizes.heads * sizes.head
        self.attention_norm, self.experts_norm = (nn.Parameter(torch.ones(c)) for _ in range(2))
        self.qkv = _weight(inside + 2 * sizes.kv_heads * sizes.head, c)
        self.out = _weight(c, inside, layers=sizes.layers)
        self.router = _weight(sizes.experts, c)
        self.up = nn.Parameter(torch.stack([_weight(2 * f, c).data for _ in range(sizes.experts)]))
        downs = [_weight(c, f, layers=sizes.layers).data for _ in range(sizes.experts)]
        self.down = nn.Parameter(torch.stack(downs))

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        """Return the layer's result [B, T, C], and how unevenly the experts are used: 1 is even."""
        x = x + self._attention(rms_norm(x, self.attention_norm), cos, sin)
        y = rms_norm(x, self.experts_norm).flatten(0, 1)  # [B T, C]
        mixed, uneven = self._experts(y)
        return x + mixed.view(x.shape), uneven

    def _attention(self, y: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        s = self.sizes
        heads = (y @ self.qkv.T).unflatten(2, (-1, s.head)).transpose(1, 2)  # [B, heads, T, D]
        q, k, v = heads.split((s.heads, s.kv_heads, s.kv_heads), dim=1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (each.repeat_interleave(s.heads // s.kv_heads, dim=1) for each in (k, v))
        o = self.attend(q, k, v)
        return o.transpose(1, 2).flatten(2) @ self.out.T

    def _experts(self, y: Tensor) -> tuple[Tensor, Tensor]:
        s = self.sizes
        likely = (y @ self.router.T).softmax(1)  # [N, E]
        weight, chosen = likely.topk(s.chosen, dim=1)  # [N, 2]
        weight = weight / weight.sum(1, keepdim=True)
        mixed = torch.zeros_like(y)
        for expert in range(s.experts):
            token, slot = (chosen == expert).nonzero(as_tuple=True)
            gate, up = (y[token] @ self.up[expert].T).chunk(2, dim=1)
            z = (F.silu(gate) * up) @ self.down[expert].T
            mixed = mixed.index_add(0, token, z * weight[token, slot, None])
        share = F.one_hot(chosen, s.experts).float().mean((0, 1))  # [E]
        return mixed, s.experts * (share * likely.mean(0)).sum()


class Model(nn.Module):
    """The model: bytes [B, T], int64, to logits [B, T, 256] of the next byte. The embedding is the head."""

    def __init__(self, sizes: Sizes | None = None) -> None:
        super().__init__()
        self.sizes = sizes or Sizes()
        self.embedding = nn.Parameter(0.02 * torch.randn(BYTES, self.sizes.width))
        self.layers = nn.ModuleList(Layer(self.sizes) for _ in range(self.sizes.layers))
        self.norm = nn.Parameter(torch.ones(self.sizes.width))

    def forward(self, bytes: Tensor) -> Tensor:
        return self.with_balance(bytes)[0]

    def with_balance(self, bytes: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits, and how unevenly the experts are used, on average over the layers."""
        x = self.embedding[bytes]
        cos, sin = (each[: bytes.shape[1]] for each in angles(self.sizes))
        uneven = []
        for layer in self.layers:
            x, found = layer(x, cos, sin)
            uneven.append(found)
        return rms_norm(x, self.norm) @ self.embedding.T, torch.stack(uneven).mean()


def rms_norm(x: Tensor, w: Tensor) -> Tensor:
    """Return x over the root of its mean square, times w, along the last axis."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPSILON) * w


def angles(sizes: Sizes) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of RoPE for every position, float32 [context, head / 2] each."""
    pair = torch.arange(sizes.head // 2, dtype=torch.float64)
    speed = sizes.base ** (-2 * pair / sizes.head)  # radians per position
    angle = torch.arange(sizes.context, dtype=torch.float64)[:, None] * speed
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return x [..., T, D] with each pair (i, i + D / 2) rotated by its position's angle."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def _weight(rows: int, columns: int, layers: int = 0) -> nn.Parameter:
    """Return a random weight; the last of a residual's branch is smaller, by the number of layers."""
    size = columns**-0.5 / (2 * layers) ** 0.5 if layers else columns**-0.5
    return nn.Parameter(size * torch.randn(rows, columns))
