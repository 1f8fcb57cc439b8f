"""Common slips in the versions along K, as functions like the spec: a failed race names them."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor


def codes_of(words: Tensor, field: Callable[[int], int] = lambda j: j, keep: int = 3) -> Tensor:
    """Return the codes [b, j, r, CIN] of int16 words [b, r, CIN].

    field: which field is taken for field j. keep: the bits that are kept of a shifted word.
    """
    wide = words.int()
    return torch.stack([wide >> 2 * field(j) & keep for j in range(8)], dim=1)


def scales_of(params: Tensor, columns: int) -> tuple[Tensor, Tensor]:
    """Return scale and minimum [K, CIN] of params [CIN//GROUP, b, 256]."""
    group = torch.arange(columns) * params.shape[0] // columns
    params = params.unflatten(2, (2, 128)).permute(2, 1, 3, 0).flatten(1, 2)  # [2, K, CIN // GROUP]
    scale, minimum = params[:, :, group]
    return scale, minimum


def parts_of(dy: Tensor, x: Tensor, splits: int, block_k: int) -> Tensor:
    """Return the partial sums [splits, COUT, CIN] of dy [K, COUT] and x̂ [K, CIN], which is rounded."""
    steps = len(dy) // block_k
    cuts = [s * steps // splits * block_k for s in range(splits + 1)]
    x = x.bfloat16().to(dy.dtype)
    return torch.stack([dy[a:b].t() @ x[a:b] for a, b in zip(cuts[:-1], cuts[1:], strict=True)])


def _of_codes(codes: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return a slip in the codes. codes: a function of the words that returns [b, j, r, CIN]."""

    def parts(words, params, numbers, dy, SPLITS, BLOCK_K):
        scale, minimum = scales_of(params, words.shape[2])
        found = codes(words).to(dy.dtype).reshape(len(dy), words.shape[2])
        return parts_of(dy, minimum + scale * found, SPLITS, BLOCK_K)

    return parts


def _of_scales(scales: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """Return a slip in scale and minimum. scales: what is taken for them."""

    def parts(words, params, numbers, dy, SPLITS, BLOCK_K):
        scale, minimum = scales(*scales_of(params, words.shape[2]))
        return parts_of(dy, minimum + scale * codes_of(words).reshape(scale.shape), SPLITS, BLOCK_K)

    return parts


def _masks_one_bit_apart(words: Tensor) -> Tensor:
    wide = words.int()
    return torch.stack([(wide >> 8 * (j // 4) & 3 << j % 4) / 4 ** (j % 4) for j in range(8)], dim=1)


def _fields_count_fastest(words: Tensor) -> Tensor:
    """Return what `reshape` makes of rung 5's bits if their last axis is that of the four fields."""
    blocks, _, columns = words.shape
    place = torch.arange(4)
    halves = []
    for half in range(2):
        bits = (words.int() >> 8 * half)[:, :, None] & (3 << 2 * place)[:, None]  # [b, 16, 4, CIN]
        found = bits.reshape(blocks, 64, columns) / 4.0 ** (torch.arange(64) // 16)[:, None]
        halves.append(found.reshape(blocks, 4, 16, columns))
    return torch.cat(halves, dim=1)


def _without_permute(words: Tensor) -> Tensor:
    """Return what rung 8's `reshape` makes of the pairs if the axis of two is the last one."""
    blocks, _, columns = words.shape
    place = torch.arange(4)[:, None]
    pairs = words.int().unflatten(1, (8, 2))[:, :, None, None]  # [b, 8, 1, 1, 2, CIN]
    shifted = torch.stack([pairs, pairs >> 8], dim=4)[:, :, 0, :, :]  # [b, 8, 1, 2, 2, CIN]
    bits = shifted & (3 << 2 * place)[..., None, None]  # [b, 8, 4, 2, 2, CIN]
    return bits.reshape(blocks, 8, 16, columns) / 4.0 ** (torch.arange(8) % 4)[:, None, None]


def _shifted_by_16(words: Tensor) -> Tensor:
    """Return rung 8's codes if `pair` is shifted by 16 bits: odd rows' words, then copies of the sign."""
    odd = words.int()[:, 1::2]
    second = torch.stack([odd, odd >> 16], dim=2).flatten(1, 2)  # [b, 16, CIN]
    return torch.cat([codes_of(words)[:, :4], codes_of(second)[:, :4]], dim=1)


def _reshaped(words: Tensor) -> Tensor:
    """Return rung 8's codes if `both` is reshaped from [BLOCK_N, 8, 2], not permuted."""
    r = torch.arange(8)
    halves = []
    for half in range(2):
        pairs = words[:, torch.stack([(8 * half + r) // 2 * 2, (8 * half + r) // 2 * 2 + 1], 1).flatten()]
        shift = (8 * (r % 2)).repeat_interleave(2)[:, None]
        halves += [pairs.int() >> shift + 2 * i & 3 for i in range(4)]
    return torch.stack(halves, dim=1)


def _words_of(which: Callable[[int, int], int]) -> Callable[[Tensor], Tensor]:
    """Return codes of other rows of words, 0 after the last. which: (block, half) -> the first row."""

    def codes(words: Tensor) -> Tensor:
        rows = torch.cat(
            [words.flatten(0, 1).int(), words.new_zeros(16 * len(words) + 16, words.shape[2]).int()]
        )
        found = [
            rows[min(which(b, half), 16 * len(words)) :][:16] >> 2 * (4 * half + i) & 3
            for b in range(len(words)) for half in range(2) for i in range(4)
        ]  # fmt: skip
        return torch.stack(found).unflatten(0, (len(words), 8))

    return codes


def _rows_of_params(
    scale_row: Callable[[int, int], int], minimum_row: Callable[[int, int], int], groups: int = 1
):
    """Return a slip in the corners of rung 6. Each function: (block, half) -> the row that is read.

    groups: 0 if all columns have the first group's rows.
    """

    def parts(words, params, numbers, dy, SPLITS, BLOCK_K):
        blocks, _, columns = words.shape
        rows = torch.cat([params.reshape(-1, 64), params.new_zeros(4 * blocks + 8, 64)])
        group = groups * (torch.arange(columns) * params.shape[0] // columns) * blocks * 4
        halves = [(b, half) for b in range(blocks) for half in range(2)]
        scale, minimum = (
            torch.cat([rows[group + row(b, half)].t() for b, half in halves])
            for row in (scale_row, minimum_row)
        )
        return parts_of(dy, minimum + scale * codes_of(words).reshape(scale.shape), SPLITS, BLOCK_K)

    return parts


def _one_piece_again(words, params, numbers, dy, SPLITS, BLOCK_K, BLOCK_M):
    """Return rung 9's parts if every piece is the first one."""
    scale, minimum = scales_of(params, words.shape[2])
    parts = parts_of(dy, minimum + scale * codes_of(words).reshape(scale.shape), SPLITS, BLOCK_K)
    return parts.unflatten(1, (-1, 8, BLOCK_M // 8))[:, :, :1].repeat(1, 1, 8, 1, 1).flatten(1, 3)


def _only_the_last_dot(words, params, numbers, dy, SPLITS, BLOCK_K):
    scale, minimum = scales_of(params, words.shape[2])
    x = minimum + scale * codes_of(words).reshape(scale.shape)
    steps = len(dy) // BLOCK_K
    last = torch.zeros(len(dy), 1, dtype=dy.dtype)
    for split in range(SPLITS):
        end = (split + 1) * steps // SPLITS * BLOCK_K
        last[end - 16 : end] = 1
    return parts_of(dy, last * x, SPLITS, BLOCK_K)


def _converted(words, params, numbers, dy, SPLITS, BLOCK_K):
    """Return what rung 4 computes if its bits become a number: each is 2^133 times what it should be."""
    scale, minimum = scales_of(params, words.shape[2])
    x = minimum * 2.0**-32 + scale * 2.0**101 * codes_of(words).reshape(scale.shape)
    return (parts_of(dy, x, SPLITS, BLOCK_K) * 2.0**32).float()


def _rounded_twice(words, params, numbers, dy, SPLITS, BLOCK_K):
    """Return rung 4's parts if its product is rounded to bfloat16 before the sum is."""
    scale, minimum = scales_of(params, words.shape[2])
    product = (scale * codes_of(words).reshape(scale.shape)).bfloat16().to(dy.dtype)
    return parts_of(dy, minimum + product, SPLITS, BLOCK_K)


def _pieces_reversed(words, params, numbers, dy, SPLITS, BLOCK_K, BLOCK_M):
    scale, minimum = scales_of(params, words.shape[2])
    parts = parts_of(dy, minimum + scale * codes_of(words).reshape(scale.shape), SPLITS, BLOCK_K)
    pieces = parts.unflatten(1, (-1, 8, BLOCK_M // 8))
    return pieces[:, :, [0, 4, 2, 6, 1, 5, 3, 7]].flatten(1, 3)


SLIPS: Mapping[str, Callable[..., Tensor]] = {
    "x̂ has no minimum: it is the scale times the code": _of_scales(lambda s, m: (s, 0 * m)),
    "x̂ is only the minimum: code times scale is about 0. Which power of two is missing?": _of_scales(
        lambda s, m: (0 * s, m)
    ),
    "x̂ is rounded twice, after the product and after the sum: tl.fma rounds once": _rounded_twice,
    "the minimum is 2^32 too large: x̂ is computed times 2^-32, so both of its terms are": _of_scales(
        lambda s, m: (s, 2.0**32 * m)
    ),
    "the scale is 2^(j % 4) too large: fields are 2 bits apart, so the power falls by 2 per field": (
        _of_codes(lambda words: codes_of(words) * 2.0 ** (torch.arange(8) % 4)[:, None, None])
    ),
    "scale and minimum are swapped": _of_scales(lambda s, m: (m, s)),
    "the word is shifted by j bits, but field j begins at bit 2 j": _of_codes(
        lambda words: torch.stack([words.int() >> j & 3 for j in range(8)], dim=1)
    ),
    "the shifted word isn't masked: & 3 keeps the two bits of a field": _of_codes(
        lambda words: codes_of(words, keep=-1)
    ),
    "word row r is shifted by 2 r bits, but field j is the same in all 16 rows: shift by 2 j": _of_codes(
        lambda words: (words.int() >> 2 * torch.arange(16)[:, None] & 3)[:, None].expand(-1, 8, -1, -1)
    ),
    "every mask is 3, so field 0 or 4 is kept each time: field j begins at bit 2 * (j % 4)": _of_codes(
        lambda words: torch.stack(
            [(words.int() >> 8 * (j // 4) & 3) / 4.0 ** (j % 4) for j in range(8)], dim=1
        )
    ),
    "three bits of the word are kept: & 3 keeps the two bits of a field": _of_codes(
        lambda words: codes_of(words, keep=7)
    ),
    "only the upper bit of each field is kept: 3 << 2 * i keeps both": _of_codes(
        lambda words: codes_of(words, keep=2)
    ),
    "each field is shifted down to bits 0 and 1, but the scale undoes the power of two of field j": _of_codes(
        lambda words: codes_of(words) / 4.0 ** (torch.arange(8) % 4)[:, None, None]
    ),
    "the second half of a block gets the other row's word: pair >> 16 drops a whole word": _of_codes(
        _shifted_by_16
    ),
    "fields 4 to 7 come before fields 0 to 3: pair is the first of the two, pair >> 8 the second": _of_codes(
        lambda words: codes_of(words, field=lambda j: (j + 4) % 8)
    ),
    "the masks are 1 bit apart, but fields are 2 bits apart: 3 << 2 * i": _of_codes(_masks_one_bit_apart),
    "the 64 rows of x̂ are out of order: in k = 16 i + r, the row r of the words counts fastest": _of_codes(
        _fields_count_fastest
    ),
    "fields 4 to 7 of the words are missing: the second half of a block gets fields 0 to 3 again": _of_codes(
        lambda words: codes_of(words, field=lambda j: j % 4)
    ),
    "the second half of a block gets fields 2 to 5 instead of 4 to 7: they are 8 bits further": _of_codes(
        lambda words: codes_of(words, field=lambda j: j - 2 * (j > 3))
    ),
    "the axis of pair and pair >> 8 is the last one: which axis must count faster?": _of_codes(
        _without_permute
    ),
    "pair and pair >> 8 take turns along the last axis: tl.reshape keeps the order, tl.permute swaps axes": (
        _of_codes(_reshaped)
    ),
    "the corner of the words counts rows of x̂, 128 per block, but a block has 16 rows of words": _of_codes(
        _words_of(lambda block, half: 128 * block)
    ),
    "all columns get the first group's scales and minima: their corners begin at group": _rows_of_params(
        lambda block, half: 4 * block + half, lambda block, half: 4 * block + half + 2, groups=0
    ),
    "half of x̂ is only its minimum: codes or scales are read past the end. Both halves of a block read the "
    "same words, and scales begin at column 0": _of_codes(
        _words_of(lambda block, half: 16 * (2 * block + half))
    ),
    "scale and minimum move on by 1 row per half block: block step // 2 begins at row 4 * (step // 2)": (
        _rows_of_params(lambda block, half: 2 * block + half, lambda block, half: 2 * block + half + 2)
    ),
    "the corner of the words moves on by 1 row per block, but a block has 16 rows of words": _of_codes(
        _words_of(lambda block, half: block)
    ),
    "the corner of scale and minimum moves on by 1 row per block, but a block has 4 rows": _rows_of_params(
        lambda block, half: block + half, lambda block, half: block + half + 2
    ),
    "the corner of the scale moves on by 1 row per block, but a block has 4 rows": _rows_of_params(
        lambda block, half: block + half, lambda block, half: 4 * block + half + 2
    ),
    "the corner of the minimum moves on by 1 row per block, but a block has 4 rows": _rows_of_params(
        lambda block, half: 4 * block + half, lambda block, half: block + half + 2
    ),
    "scale and minimum move on by 4 rows per half block: block step // 2 begins at row 4 * (step // 2), and "
    "its second half is 1 row further": _rows_of_params(
        lambda block, half: 8 * block + 4 * half, lambda block, half: 8 * block + 4 * half + 2
    ),
    "both halves of a block get the first half's scales and minima: add half to both rows": _rows_of_params(
        lambda block, half: 4 * block, lambda block, half: 4 * block + 2
    ),
    "the minimum is read 1 row after the scale: it is 2 rows further": _rows_of_params(
        lambda block, half: 4 * block + half, lambda block, half: 4 * block + half + 1
    ),
    "scale and minimum rows are mixed up: a block has two of scales, then two of minima": _rows_of_params(
        lambda block, half: 4 * block + 2 * half, lambda block, half: 4 * block + 2 * half + 1
    ),
    "the scale of fields 4 to 7 is 2^8 too small: they are read as fields 0 to 3, so use j % 4": _of_codes(
        lambda words: codes_of(words) / 256.0 ** (torch.arange(8) > 3)[:, None, None]
    ),
    "the field's bits are converted, not read: .to(tl.bfloat16, bitcast=True) keeps the bits": _converted,
    "only the last dot of each part counts: tl.dot's third argument is the sum so far": _only_the_last_dot,
    "the pieces are in another order: which of the three cuts does i // 4 choose?": _pieces_reversed,
    "every piece is the tile's first one: let i choose the half of each cut": _one_piece_again,
}
"""By what the report says about it."""
