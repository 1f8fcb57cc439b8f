"""Chapter 10's kernels on a GPU: what a group a program costs, and words along a row.

The kernels are the chapter's answers, launched with different blocks, beside the production kernels and
a copy of as many bytes.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from puzzles_lib.bench.results import row
from puzzles_lib.bench.timing import interleaved
from puzzles_lib.kernels.quantize import dequantize, quantize_pack

SHAPE = (100864, 768)  # a ViT-B at batch 512
BITS, GROUP = 2, 256
SETS = 3  # of inputs, taken in turn


@triton.jit
def _quantize_pack_kernel(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_G: tl.constexpr,
):  # fmt: skip
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_G)  # [BLOCK_G]
    n = offs_g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]  # [BLOCK_G, GROUP]
    x = tl.load(x_ptr + row * N + n, mask=n < N).to(tl.float32)  # [BLOCK_G, GROUP]
    low = tl.min(tl.where(n < N, x, float("inf")), axis=1)  # [BLOCK_G]
    high = tl.max(tl.where(n < N, x, float("-inf")), axis=1)  # [BLOCK_G]
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]  # [BLOCK_G, GROUP]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP)
    codes = tl.where(n < N, codes, 0.0).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)  # [BLOCK_G, GROUP // F]
    offs_w = offs_g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row * W + offs_w, words, mask=offs_w < W)
    tl.store(scale_ptr + row * G + offs_g, scale, mask=offs_g < G)
    tl.store(minimum_ptr + row * G + offs_g, low, mask=offs_g < G)


@triton.jit
def _unpack_dequantize_kernel(
    words_ptr, scale_ptr, minimum_ptr, x_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_W: tl.constexpr,
):  # fmt: skip
    F: tl.constexpr = 32 // BITS
    W, G = tl.cdiv(N, F), tl.cdiv(N, GROUP)
    row = tl.program_id(0)
    offs_w = tl.program_id(1) * BLOCK_W + tl.arange(0, BLOCK_W)  # [BLOCK_W]
    i = tl.arange(0, F)[None, :]  # [1, F]
    n = offs_w[:, None] * F + i  # [BLOCK_W, F]
    words = tl.load(words_ptr + row * W + offs_w, mask=offs_w < W)  # [BLOCK_W]
    codes = (words[:, None] >> BITS * i) & ((1 << BITS) - 1)  # [BLOCK_W, F]
    g = offs_w * F // GROUP  # [BLOCK_W]
    scale = tl.load(scale_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    minimum = tl.load(minimum_ptr + row * G + g, mask=offs_w < W).to(tl.float32)
    x = minimum[:, None] + scale[:, None] * codes  # [BLOCK_W, F]
    tl.store(x_ptr + row * N + n, x, mask=n < N)


class _RowWise:
    """A matrix and its row-wise words, scales, minima."""

    def __init__(self, x: torch.Tensor):
        (self.rows, self.columns), self.x = x.shape, x
        groups = self.columns // GROUP
        self.words = x.new_empty(self.rows, self.columns * BITS // 32, dtype=torch.int32)
        self.scale, self.minimum = x.new_empty(self.rows, groups), x.new_empty(self.rows, groups)
        self.back = torch.empty_like(x)

    def pack(self, groups: int, warps: int) -> None:
        """One program per ``groups`` groups of a row."""
        grid = (self.rows, triton.cdiv(self.columns // GROUP, groups))
        _quantize_pack_kernel[grid](
            self.x, self.words, self.scale, self.minimum, self.columns,
            BITS=BITS, GROUP=GROUP, BLOCK_G=groups, num_warps=warps,
        )  # fmt: skip

    def unpack(self, groups: int, warps: int) -> None:
        """The same way back."""
        grid = (self.rows, triton.cdiv(self.columns // GROUP, groups))
        _unpack_dequantize_kernel[grid](
            self.words, self.scale, self.minimum, self.back, self.columns,
            BITS=BITS, GROUP=GROUP, BLOCK_W=groups * GROUP * BITS // 32, num_warps=warps,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """Least possible bytes of either way."""
        return self.x.nbytes + self.words.nbytes + self.scale.nbytes + self.minimum.nbytes


def _reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x quantised and dequantised in plain torch, and which of its values are on a tie."""
    groups = x.view(len(x), -1, GROUP).float()
    low, high = groups.aminmax(dim=2, keepdim=True)
    scale = ((high - low) / (2**BITS - 1)).bfloat16().float()
    steps = (groups - low) / scale
    codes = steps.round().clamp(0, 2**BITS - 1)
    return (low + codes * scale).bfloat16().view_as(x), (steps % 1 == 0.5).view_as(x)


def measure() -> Iterator[dict[str, object]]:
    """Rows of bench "row-wise".

    ratio is the share of a copy's bandwidth, error the share of dequantised values that are wrong. Values
    exactly between two levels do not count: a GPU's ``/`` may be off in the last bit, and decide for either.
    """
    torch.manual_seed(0)
    sets = [_RowWise(torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16)) for _ in range(SETS)]
    packed = [quantize_pack(each.x, BITS, GROUP) for each in sets]
    want, tie = _reference(sets[0].x)
    blocks = (("1 group a program, 4 warps", 1, 4), ("1 group a program, 1 warp", 1, 1))
    blocks += (("1 row a program, 4 warps", 4, 4), ("1 row a program, 1 warp", 4, 1))
    paths, errors = {"copy": [lambda e=e: e.back.copy_(e.x) for e in sets]}, {}
    for name, groups, warps in blocks:
        for each in sets:
            each.pack(groups, warps)
        sets[0].back.fill_(float("nan"))
        sets[0].unpack(groups, warps)
        errors[name] = float(((sets[0].back != want) & ~tie).float().mean())
        paths[f"quantize_pack, {name}"] = [lambda e=e, g=groups, w=warps: e.pack(g, w) for e in sets]
        paths[f"dequantize, {name}"] = [lambda e=e, g=groups, w=warps: e.unpack(g, w) for e in sets]
    errors["production"] = float(((dequantize(packed[0]) != want) & ~tie).float().mean())
    paths["quantize_pack, production"] = [lambda e=e: quantize_pack(e.x, BITS, GROUP) for e in sets]
    paths["dequantize, production"] = [lambda p=p: dequantize(p) for p in packed]
    times = interleaved(paths)
    copy_us = times.pop("copy") * sets[0].nbytes / (2 * sets[0].x.nbytes)
    case = f"{BITS} bits, groups of {GROUP}, {SHAPE[0]}x{SHAPE[1]}"
    for path, us in times.items():
        error = errors[path.split(", ", 1)[1]]
        yield row("row-wise", case, path, us, "copy of as many bytes", copy_us, error)
