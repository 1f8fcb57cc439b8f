"""Chapter 15: one problem to make fast. Its puzzles check each version and don't count as solved."""

from collections.abc import Mapping

import torch
from jaxtyping import BFloat16, Float32, Int16, Int32
from torch import Tensor

from puzzles_lib.puzzle import Case, Puzzle

NUMBERS = (0, 1, 2, 3)  # a kernel loads them, because `tl.arange` would change the layout: see the chapter


def fused_dw_row_words(
    words: Int32[Tensor, "K CIN//16"],
    scale: BFloat16[Tensor, "K CIN//GROUP"],
    minimum: BFloat16[Tensor, "K CIN//GROUP"],
    dy: BFloat16[Tensor, "K COUT"],
    SPLITS: int,
    BLOCK_K: int,
) -> Float32[Tensor, "SPLITS COUT CIN"]:
    """parts[s, m, n] = sum over the k of split s of dy[k, m] · x̂[k, n]

    x̂[k, n] = minimum[k, g] + scale[k, g] · code[k, n], rounded to bfloat16, g = n // GROUP;
    code[k, n] is field n % 16 of words[k, n // 16].
    Split s holds the steps s · steps // SPLITS up to (s + 1) · steps // SPLITS of BLOCK_K rows each.
    """
    codes = (words[:, :, None] >> 2 * torch.arange(16) & 3).flatten(1)  # [K, CIN]
    group = torch.arange(codes.shape[1]) * scale.shape[1] // codes.shape[1]
    return _parts(dy, minimum[:, group] + scale[:, group] * codes, SPLITS, BLOCK_K)


def fused_dw_along_k(
    words: Int16[Tensor, "K//128 16 CIN"],
    params: BFloat16[Tensor, "CIN//GROUP K//128 256"],
    numbers: Int16[Tensor, "4"],
    dy: BFloat16[Tensor, "K COUT"],
    SPLITS: int,
    BLOCK_K: int,
) -> Float32[Tensor, "SPLITS COUT CIN"]:
    """parts[s, m, n] = sum over the k of split s of dy[k, m] · x̂[k, n]

    x̂[k, n] = minimum + scale · code, rounded to bfloat16. Row k = 128 b + 16 j + r: its code of column n
    is field j of words[b, r, n], scale and minimum are params[n // GROUP, b, p] for p = 16 j + r and
    p = 128 + 16 j + r.
    Splits as before, where they are of whole blocks; numbers are `NUMBERS`.
    """
    blocks, _, columns = words.shape
    fields = words.int()[:, None] >> 2 * torch.arange(8)[None, :, None, None] & 3  # [b, j, r, CIN]
    group = torch.arange(columns) * params.shape[0] // columns
    params = params.unflatten(2, (2, 128)).permute(2, 1, 3, 0).flatten(1, 2)  # [2, K, CIN // GROUP]
    scale, minimum = params[:, :, group]  # [K, CIN] each
    return _parts(dy, minimum + scale * fields.reshape(128 * blocks, columns), SPLITS, BLOCK_K)


def _parts(dy: Tensor, x: Tensor, splits: int, block_k: int) -> Tensor:
    steps = len(dy) // block_k
    cuts = [s * steps // splits * block_k for s in range(splits + 1)]
    x = x.bfloat16().to(dy.dtype)
    return torch.stack([dy[a:b].t() @ x[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)])


def the_numbers(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """`NUMBERS`."""
    return torch.tensor(NUMBERS, dtype=dtype)


def race_puzzle(
    row_words: bool, descriptors: Mapping[str, tuple[int, int]], BLOCK_M: int, BLOCK_N: int, BLOCK_K: int
) -> Puzzle:
    """Return the problem with cases for these tiles: a single tile, and several on every axis.

    row_words: whether the kernel reads chapter 10's words along a row, not those along K.
    descriptors: tiles of the tensors that it reads through descriptors.
    """
    tiles = {"GROUP": BLOCK_N, "BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    fill = {} if row_words else {"numbers": the_numbers}
    return Puzzle(
        number="15",
        spec=fused_dw_row_words if row_words else fused_dw_along_k,
        formula=r"\mathrm{dW}_{m, n} = \sum_s \sum_{k \in s} \mathrm{dy}_{k, m}\,\hat{x}_{k, n}",
        grid=lambda s: (s.COUT // s.BLOCK_M, s.CIN // s.BLOCK_N, s.SPLITS),
        outputs=("parts",),
        descriptors={name: lambda case, tile=tile: tile for name, tile in descriptors.items()},
        cases=(
            Case(K=128, COUT=BLOCK_M, CIN=BLOCK_N, SPLITS=1, fill=fill, **tiles),
            Case(K=512, COUT=2 * BLOCK_M, CIN=3 * BLOCK_N, SPLITS=2, fill=fill, **tiles),
        ),
    )
