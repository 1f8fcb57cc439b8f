"""The model as a chain of puzzles: each step is one, and runs by a reader's kernel or in torch.

Keys and values are in pages, as puzzle 67 has them. What is too small for a kernel stays in torch: the lookup
of an embedding, the matmul of a router, and the sum over the chosen experts. Routers choose by puzzle 74 if a
kernel for it is given, and bytes are drawn by puzzle 75 instead of 71 if only the likely ones may be drawn.
"""

from collections.abc import Collection, Mapping

import torch
import triton
from torch import Tensor

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import QUANTIZED_MATMUL
from puzzles_lib.chapters.ch17_normalisation.puzzles import RMS_NORM
from puzzles_lib.chapters.ch22_language_model.puzzles import (
    GROUPED_MATMUL,
    MERGE_PARTS,
    NUCLEUS_TOKEN,
    PAGED_ATTENTION,
    ROPE,
    ROUTE,
    SAMPLE_TOKEN,
    SWIGLU_DOWN,
    route,
)
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.speaking.launching import Launcher
from puzzles_lib.speaking.model import BYTES, Sizes, angles
from puzzles_lib.speaking.packed import GROUP, Packed

PAGE, PART = 16, 4
STEPS: tuple[Puzzle, ...] = (
    RMS_NORM,
    QUANTIZED_MATMUL,
    ROPE,
    PAGED_ATTENTION,
    MERGE_PARTS,
    GROUPED_MATMUL,
    SWIGLU_DOWN,
    SAMPLE_TOKEN,
)
"""The puzzles that a token passes through, in the order in which it meets them."""

OPTIONAL: tuple[Puzzle, ...] = (ROUTE, NUCLEUS_TOKEN)
"""The puzzles that take part if a reader asks for them."""


def steps_of(kernels: Collection[str], nucleus: bool) -> tuple[Puzzle, ...]:
    """Return a token's puzzles, in order, if these kernels are given.

    nucleus: whether bytes are drawn from the likely ones only.
    """
    place = STEPS.index(GROUPED_MATMUL)
    router = (ROUTE,) if ROUTE.name in kernels else ()
    return (*STEPS[:place], *router, *STEPS[place:-1], NUCLEUS_TOKEN if nucleus else SAMPLE_TOKEN)


class Decoder:
    """One text, and the model that continues it.

    weights: those of `packed.load`. launch: runs the steps.
    """

    def __init__(self, weights: Mapping[str, Tensor | Packed], launch: Launcher, sizes: Sizes | None = None):
        self.sizes, self.weights, self.launch = sizes or Sizes(), weights, launch
        s = self.sizes
        self.cos, self.sin = angles(s)
        self.length = 0
        pages = s.context // PAGE
        order = torch.randperm(pages, generator=torch.Generator().manual_seed(0))
        self.table = order.to(torch.int32)[None]  # [1, W]: the pages of a text are anywhere
        shape = (pages, PAGE, s.kv_heads, s.head)
        self.caches = [tuple(torch.full(shape, torch.nan).bfloat16() for _ in "kv") for _ in range(s.layers)]
        self.embedding = weights["embedding"].float().bfloat16()
        self.experts = [
            tuple(self._experts(f"layers.{n}.{name}") for name in ("up", "down")) for n in range(s.layers)
        ]

    def _experts(self, name: str) -> Tensor:
        """Return the experts' matrices, bfloat16 [E, K, N]."""
        packed = self.weights[name]
        return packed.float().unflatten(0, (self.sizes.experts, -1)).mT.contiguous().bfloat16()

    def logits(self, text: bytes) -> Tensor:
        """Return the logits of the byte after a text, float32 [1, 256]. It goes on where the last call ended.

        Raises ValueError if the text so far is longer than the model's context.
        """
        if self.length + len(text) > self.sizes.context:
            raise ValueError(f"the text has more than {self.sizes.context} bytes")
        h = torch.zeros(len(text), self.sizes.width).bfloat16()  # [T, C]
        x = self.embedding[torch.frombuffer(bytearray(text), dtype=torch.uint8).long()]
        position = torch.arange(self.length, self.length + len(text), dtype=torch.int32)
        self.length += len(text)
        for number in range(self.sizes.layers):
            y, h = self._norm(x, h, f"layers.{number}.attention_norm")
            x = self._attention(y, position, number)
            y, h = self._norm(x, h, f"layers.{number}.experts_norm")
            x = self._mixture(y, number)
        y, _ = self._norm(x[-1:], h[-1:], "norm")
        return self._linear(y, "embedding")

    def sample(self, logits: Tensor, heat: float, seed: int, top_p: float | None = None) -> int:
        """Return a byte drawn from the logits; the likeliest one if the heat is 0.

        top_p: draw from the likeliest bytes only, up to this probability; None draws from all.
        """
        if top_p is not None and heat > 0:
            (token,) = self.launch(NUCLEUS_TOKEN, logits=logits / heat, P=top_p, SEED=seed, BLOCK_V=BYTES)
            return int(token[0])
        heats = torch.full((len(logits),), heat)
        (token,) = self.launch(SAMPLE_TOKEN, logits=logits, heat=heats, SEED=seed, BLOCK_V=BYTES)
        return int(token[0])

    def _norm(self, x: Tensor, h: Tensor, name: str) -> tuple[Tensor, Tensor]:
        y, h = self.launch(RMS_NORM, x=x, r=h, w=self._plain(name), BLOCK_N=self.sizes.width)
        return y, h

    def _plain(self, name: str) -> Tensor:
        """Return a weight that isn't packed."""
        w = self.weights[name]
        assert isinstance(w, Tensor), name
        return w

    def _linear(self, y: Tensor, name: str) -> Tensor:
        """Return y @ w.T with a weight in 4 bits, float32 [T, M]."""
        w = self.weights[name]
        assert isinstance(w, Packed), name
        (z,) = self.launch(
            QUANTIZED_MATMUL,
            weight=w.words,
            scale=w.scale,
            offset=w.offset,
            activation=y.float().T.contiguous(),
            K=y.shape[1],
            GROUP=GROUP,
            BLOCK_M=128,
            BLOCK_N=16,
            BLOCK_K=64,
        )
        return z.T

    def _attention(self, y: Tensor, position: Tensor, number: int) -> Tensor:
        s = self.sizes
        heads = self._linear(y, f"layers.{number}.qkv").bfloat16().unflatten(1, (-1, s.head))  # [T, heads, D]
        rotated = heads[:, : s.heads + s.kv_heads].contiguous()
        (rotated,) = self.launch(
            ROPE, x=rotated, cos=self.cos, sin=self.sin, position=position, D=s.head, BLOCK_H=8
        )
        q, new_k = rotated.split((s.heads, s.kv_heads), dim=1)
        k, v = self.caches[number]
        page, slot = self.table[0, position.long() // PAGE].long(), position.long() % PAGE
        k[page, slot], v[page, slot] = new_k, heads[:, s.heads + s.kv_heads :]
        o, lse = self.launch(
            PAGED_ATTENTION,
            q=q.contiguous(),
            k=k,
            v=v,
            table=self.table.expand(len(y), -1).contiguous(),
            length=position + 1,
            PART=PART,
        )
        merged, _ = self.launch(MERGE_PARTS, o=o.flatten(0, 1), lse=lse.flatten(0, 1), BLOCK_S=o.shape[2])
        return self._linear(merged.view(len(y), -1), f"layers.{number}.out").bfloat16()

    def _mixture(self, y: Tensor, number: int) -> Tensor:
        s = self.sizes
        router = self._plain(f"layers.{number}.router")
        order, weight, start = self._routed(y.float() @ router.T)
        token = order.long() // s.chosen  # [P], P = 2 T: which token each sorted row is of
        most = int(start.diff().max())
        up, down = self.experts[number]
        sizes = {"E": s.experts, "M": most, "BLOCK_M": 16, "BLOCK_N": 128, "BLOCK_K": 64}
        (inside,) = self.launch(GROUPED_MATMUL, x=y[token], w=up, start=start, **sizes)
        (z,) = self.launch(SWIGLU_DOWN, h=inside, w=down, start=start, **sizes)
        mixed = torch.zeros(len(y), s.width)
        mixed.index_add_(0, token, z.float() * weight[:, None])
        return mixed.bfloat16()

    def _routed(self, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the tokens' choices of two experts, sorted by expert, as puzzle 74 does."""
        if ROUTE.name not in self.launch.kernels:
            return route(logits)
        size = triton.next_power_of_2(self.sizes.experts)
        order, weight, start = self.launch(ROUTE, logits=logits, BLOCK_T=16, BLOCK_E=size)
        return order, weight, start
