"""Measure chapter 10's kernels on a GPU: what one group per program costs, and what words along a row cost.

The kernels are the chapter's answers, launched with different blocks. The baselines are the production
kernels and a copy of as many bytes. Two changes, one by one and together, show what holds the answer back:
several rows per program with no lane off, and a reciprocal instead of the divisions.
"""

from collections.abc import Iterator

import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.kernels.quantize import dequantize, quantize_pack
from puzzles_lib.timing import interleaved, row

SHAPE = (100864, 768)  # a ViT-B at batch 512
BITS, GROUP = 2, 256
SETS = 3  # of inputs, taken in turn
ROWS = 4  # a program, in the changed kernels


@triton.jit
def quantize_rows_kernel(
    x_ptr, words_ptr, scale_ptr, minimum_ptr, N,
    BITS: tl.constexpr, GROUP: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_G: tl.constexpr, FMA: tl.constexpr,
):  # fmt: skip
    """Quantize like the chapter, with [BLOCK_R * BLOCK_G] groups per program; one of the blocks is 1.

    FMA: multiply by a reciprocal, one fused operation per element, instead of subtracting and dividing.
    """
    F: tl.constexpr = 32 // BITS
    TOP: tl.constexpr = (1 << BITS) - 1
    row = tl.program_id(0) * BLOCK_R + tl.arange(0, BLOCK_R * BLOCK_G) // BLOCK_G  # [B]
    g = tl.program_id(1) * BLOCK_G + tl.arange(0, BLOCK_R * BLOCK_G) % BLOCK_G  # [B]
    inside = g < N // GROUP  # [B]
    n = g[:, None] * GROUP + tl.arange(0, GROUP)[None, :]  # [B, GROUP]
    x = tl.load(x_ptr + row[:, None] * N + n, mask=inside[:, None], other=0.0).to(tl.float32)
    low = tl.min(x, axis=1)
    high = tl.max(x, axis=1)
    scale = tl.where(high > low, (high - low) / TOP, 1.0).to(tl.bfloat16)
    if FMA:
        inverse = 1.0 / scale.to(tl.float32)
        steps = tl.fma(x, inverse[:, None], (-low * inverse)[:, None])
    else:
        steps = (x - low[:, None]) / scale.to(tl.float32)[:, None]
    codes = tl.minimum((steps + 12582912.0) - 12582912.0, TOP).to(tl.int32)
    fields = tl.reshape(codes, (BLOCK_R * BLOCK_G, GROUP // F, F))
    words = tl.sum(fields << BITS * tl.arange(0, F)[None, None, :], axis=2)
    offs_w = g[:, None] * (GROUP // F) + tl.arange(0, GROUP // F)[None, :]
    tl.store(words_ptr + row[:, None] * (N // F) + offs_w, words, mask=inside[:, None])
    tl.store(scale_ptr + row * (N // GROUP) + g, scale, mask=inside)
    tl.store(minimum_ptr + row * (N // GROUP) + g, low, mask=inside)


class _RowWise:
    """A matrix and its row-wise words, scales, minima."""

    def __init__(self, x: torch.Tensor):
        (self.rows, self.columns), self.x = x.shape, x
        groups = self.columns // GROUP
        self.words = x.new_empty(self.rows, self.columns * BITS // 32, dtype=torch.int32)
        self.scale, self.minimum = x.new_empty(self.rows, groups), x.new_empty(self.rows, groups)
        self.back = torch.empty_like(x)

    def pack(self, groups: int, warps: int) -> None:
        """Quantize and pack with one program per ``groups`` groups of a row."""
        grid = (self.rows, triton.cdiv(self.columns // GROUP, groups))
        solutions()["quantize_pack"][grid](
            self.x, self.words, self.scale, self.minimum, self.columns,
            BITS=BITS, GROUP=GROUP, BLOCK_G=groups, num_warps=warps,
        )  # fmt: skip

    def pack_changed(self, rows: int, groups: int, fma: bool) -> None:
        """Quantize and pack with blocks of ``rows`` by ``groups`` groups, one warp per program."""
        grid = (self.rows // rows, triton.cdiv(self.columns // GROUP, groups))
        quantize_rows_kernel[grid](
            self.x, self.words, self.scale, self.minimum, self.columns,
            BITS=BITS, GROUP=GROUP, BLOCK_R=rows, BLOCK_G=groups, FMA=fma, num_warps=1,
        )  # fmt: skip

    def unpack(self, groups: int, warps: int) -> None:
        """Unpack and dequantize with one program per ``groups`` groups of a row."""
        grid = (self.rows, triton.cdiv(self.columns // GROUP, groups))
        solutions()["unpack_dequantize"][grid](
            self.words, self.scale, self.minimum, self.back, self.columns,
            BITS=BITS, GROUP=GROUP, BLOCK_W=groups * GROUP * BITS // 32, num_warps=warps,
        )  # fmt: skip

    @property
    def nbytes(self) -> int:
        """The fewest bytes that packing or unpacking can move."""
        return self.x.nbytes + self.words.nbytes + self.scale.nbytes + self.minimum.nbytes


def _reference(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x quantized and dequantized in plain torch, and which of its values are on a tie."""
    groups = x.view(len(x), -1, GROUP).float()
    low, high = groups.aminmax(dim=2, keepdim=True)
    scale = ((high - low) / (2**BITS - 1)).bfloat16().float()
    steps = (groups - low) / scale
    codes = steps.round().clamp(0, 2**BITS - 1)
    return (low + codes * scale).bfloat16().view_as(x), (steps % 1 == 0.5).view_as(x)


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of bench "row-wise".

    ratio is the share of a copy's bandwidth, and error the share of dequantized values that are wrong. Values
    exactly between two levels do not count, because a GPU's ``/`` may be off in the last bit and give either.
    Raises RuntimeError without a GPU.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("bench row-wise needs a CUDA device")
    torch.manual_seed(0)
    sets = [_RowWise(torch.randn(SHAPE, device="cuda", dtype=torch.bfloat16)) for _ in range(SETS)]
    packed = [quantize_pack(each.x, BITS, GROUP) for each in sets]
    want, tie = _reference(sets[0].x)
    blocks = (("1 group a program, 4 warps", 1, 4), ("1 group a program, 1 warp", 1, 1))
    blocks += (("1 row per program, 4 warps", 4, 4), ("1 row per program, 1 warp", 4, 1))
    paths, errors = {"copy": [lambda e=e: e.back.copy_(e.x) for e in sets]}, {}
    for name, groups, warps in blocks:
        for each in sets:
            each.pack(groups, warps)
        sets[0].back.fill_(float("nan"))
        sets[0].unpack(groups, warps)
        errors[name] = float(((sets[0].back != want) & ~tie).float().mean())
        paths[f"quantize_pack, {name}"] = [lambda e=e, g=groups, w=warps: e.pack(g, w) for e in sets]
        paths[f"dequantize, {name}"] = [lambda e=e, g=groups, w=warps: e.unpack(g, w) for e in sets]
    changes = (
        ("1 row per program, reciprocal", 1, 4, True),
        (f"{ROWS} rows per program, no lane off", ROWS, 1, False),
        (f"{ROWS} rows per program, no lane off, reciprocal", ROWS, 1, True),
    )
    for name, rows, groups, fma in changes:
        for each in sets:
            each.words.fill_(-1)
            each.pack_changed(rows, groups, fma)
        sets[0].back.fill_(float("nan"))
        sets[0].unpack(4, 1)
        errors[name] = float(((sets[0].back != want) & ~tie).float().mean())
        paths[f"quantize_pack, {name}"] = [
            lambda e=e, change=(rows, groups, fma): e.pack_changed(*change) for e in sets
        ]
    errors["production"] = float(((dequantize(packed[0]) != want) & ~tie).float().mean())
    paths["quantize_pack, production"] = [lambda e=e: quantize_pack(e.x, BITS, GROUP) for e in sets]
    paths["dequantize, production"] = [lambda p=p: dequantize(p) for p in packed]
    times = interleaved(paths)
    copy_us = times.pop("copy") * sets[0].nbytes / (2 * sets[0].x.nbytes)
    case = f"{BITS} bits, groups of {GROUP}, {SHAPE[0]}x{SHAPE[1]}"
    for path, us in times.items():
        error = errors[path.split(", ", 1)[1]]
        yield row("row-wise", case, path, us, "copy of as many bytes", copy_us, error)
