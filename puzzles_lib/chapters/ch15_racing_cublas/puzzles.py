"""Chapter 15: one problem to make fast. Its puzzles check the versions, and `progress` doesn't count them."""

from collections.abc import Mapping

import torch
from jaxtyping import BFloat16, Float32, Int16, Int32
from torch import Tensor

from puzzles_lib.chapters.ch15_racing_cublas.slips import SLIPS, codes_of, parts_of, scales_of
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
    Split s has the steps s · steps // SPLITS up to (s + 1) · steps // SPLITS of BLOCK_K rows each.
    """
    codes = (words[:, :, None] >> 2 * torch.arange(16) & 3).flatten(1)  # [K, CIN]
    group = torch.arange(codes.shape[1]) * scale.shape[1] // codes.shape[1]
    return parts_of(dy, minimum[:, group] + scale[:, group] * codes, SPLITS, BLOCK_K)


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
    is field j of words[b, r, n]. Scale and minimum are params[n // GROUP, b, p] for p = 16 j + r and
    p = 128 + 16 j + r.
    Splits are those of `fused_dw_row_words`, of whole blocks; numbers is `NUMBERS`.
    """
    scale, minimum = scales_of(params, words.shape[2])
    return parts_of(dy, minimum + scale * codes_of(words).reshape(scale.shape), SPLITS, BLOCK_K)


def the_numbers(words: Tensor) -> Tensor:
    """Return `NUMBERS`, whatever the words are."""
    return torch.tensor(NUMBERS)


def race_puzzle(
    row_words: bool, descriptors: Mapping[str, tuple[int, int]], BLOCK_M: int, BLOCK_N: int, BLOCK_K: int
) -> Puzzle:
    """Return the problem with cases for these tiles: a single tile, and several on every axis.

    row_words: whether the kernel reads chapter 10's words along a row, not those along K.
    descriptors: tiles of the tensors that it reads through descriptors.
    """
    tiles = {"GROUP": BLOCK_N, "BLOCK_M": BLOCK_M, "BLOCK_N": BLOCK_N, "BLOCK_K": BLOCK_K}
    return Puzzle(
        number="15",
        spec=fused_dw_row_words if row_words else fused_dw_along_k,
        formula=r"\mathrm{dW}_{m, n} = \sum_s \sum_{k \in s} \mathrm{dy}_{k, m}\,\hat{x}_{k, n}",
        grid=lambda s: (s.COUT // s.BLOCK_M, s.CIN // s.BLOCK_N, s.SPLITS),
        outputs=("parts",),
        derived=None if row_words else {"numbers": the_numbers},
        slips=None if row_words else SLIPS,
        descriptors={name: lambda case, tile=tile: tile for name, tile in descriptors.items()},
        cases=(
            Case(K=128, COUT=BLOCK_M, CIN=BLOCK_N, SPLITS=1, **tiles),
            Case(K=512, COUT=2 * BLOCK_M, CIN=3 * BLOCK_N, SPLITS=2, **tiles),
        ),
    )
