"""Chapter 08: 4-bit weights, unpacked and scaled inside a matmul."""

import functools
import math
from collections.abc import Callable

import torch
import triton
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import all_bits_set, zeros
from puzzles_lib.puzzle import Case, Puzzle


def weight_codes(weight: Int32[Tensor, "M K//8"]) -> Int32[Tensor, "M K"]:
    """weight[m, j] has the codes z[m, 8j] to z[m, 8j + 7] as its fields 0 to 7

    Field i of an int32 word is its bits 4i to 4i + 3, read as a number from 0 to 15.
    K is a multiple of 8.
    """
    two = weight.contiguous().view(torch.uint8)  # [M, K//2]: the lowest byte first
    return torch.stack((two % 16, two // 16), dim=2).flatten(1).int()


def grouped_weights(
    weight: Int32[Tensor, "M K//8"],
    scale: Float32[Tensor, "M K//GROUP"],
    offset: Int32[Tensor, " M (K//GROUP+7)//8"],
) -> Float32[Tensor, "M K"]:
    """z[m, k] = scale[m, g] · (w[m, k] - o[m, g])

    g is k // GROUP. The codes w[m, k] are packed as in puzzle 12a, and so are the
    offsets o[m, g]. In the last offset word of a row, some fields may be unused.
    K is a multiple of 8 and of GROUP.
    """
    w, o = weight_codes(weight), weight_codes(offset)
    g = torch.arange(w.shape[1]) // (w.shape[1] // scale.shape[1])  # [K]
    return scale[:, g] * (w - o[:, g])


def quantized_matmul(
    weight: Int32[Tensor, "M K//8"],
    scale: Float32[Tensor, "M K//GROUP"],
    offset: Int32[Tensor, " M (K//GROUP+7)//8"],
    activation: Float32[Tensor, "K N"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = sum over k of scale[m, g] · (w[m, k] - o[m, g]) · activation[k, n]

    The left matrix is that of puzzle 12b. Don't store it; make its tiles as you go.
    K is a multiple of 8 and of GROUP.
    """
    return grouped_weights(weight, scale, offset) @ activation


def once_per_group(
    weight: Int32[Tensor, "M K//8"],
    scale: Float32[Tensor, "M K//GROUP"],
    offset: Int32[Tensor, " M (K//GROUP+7)//8"],
    activation: Float32[Tensor, "K N"],
) -> Float32[Tensor, "M N"]:
    """z[m, n] = sum over k of scale[m, g] · (w[m, k] - o[m, g]) · activation[k, n]

    Like puzzle 12c, but a program loads each of its weight words only once, and scale
    and offset of a row at most once per BLOCK_K columns. It multiplies by the scale
    outside the sum. GROUP is a multiple of BLOCK_K, and K of GROUP, so a block of
    columns is within one group.
    """
    return quantized_matmul(weight, scale, offset, activation)


def _slip(
    *,
    w_mask: int = 15,
    o_mask: int = 15,
    w_first: int = 0,
    o_first: int = 0,
    by_k: bool = False,
    out: bool = False,
    o_sign: int = -1,
    o_words: Callable[[int], int] | None = None,
    signed: bool = False,
    unscaled: bool = False,
    whole: bool = False,
    field_0: bool = False,
    word_0: bool = False,
    o_shift: Callable[[Tensor], Tensor] | None = None,
    s_words: Callable[[int], int] | None = None,
    w_words: Callable[[int], int] | None = None,
    group_0: bool = False,
    across: bool = False,
) -> Callable:
    """Return `grouped_weights` with a slip, times an activation if there is one.

    w_mask, o_mask: mask of a field, -1 for none. w_first, o_first: shift of field 0, 28 if the fields are
    read from the top. by_k: o's field is k % 8. out: scale · w - o. o_sign: -1 for w - o, 0 for w alone, 1
    for w + o. o_words: how long a row of offset words is taken to be, for a number of groups. signed: the
    highest bit of w is a sign. unscaled: there is no scale. whole: o is its whole word. field_0: o is field 0
    of its word. word_0: o is in word 0 of its row. o_shift: of a group's number, instead of 4 * (g % 8).
    s_words, w_words: like o_words, of the scales and of the words of w. group_0: s is always that of group 0.
    across: rows and columns of the activation are exchanged.
    """

    def slip(weight: Tensor, scale: Tensor, offset: Tensor, activation: Tensor | None = None) -> Tensor:
        groups = scale.shape[1]
        columns = 8 * weight.shape[1] if activation is None else activation.shape[1]
        nothing = torch.full((weight.shape[0], columns), torch.nan)
        offset = _rows_apart(offset, o_words, groups)
        scale, weight = _rows_apart(scale, s_words, groups), _rows_apart(weight, w_words, groups)
        if offset is None or scale is None or weight is None:
            return nothing
        w, fields = _fields(weight, w_mask, w_first), _fields(offset, o_mask, o_first)
        w = (w + 8) % 16 - 8 if signed else w
        k = torch.arange(w.shape[1])
        g = k // (w.shape[1] // scale.shape[1])
        if whole:
            o = offset[:, g // 8]
        elif o_shift:
            o = offset[:, g // 8] >> o_shift(g) & 15
        else:
            field = k % 8 if by_k else 0 * g if field_0 else g % 8
            o = fields[:, (0 * g if word_0 else g // 8 * 8) + field]
        s = torch.ones_like(scale) if unscaled else scale
        s = s[:, 0 * g if group_0 else g]
        weights = s * w - o if out else s * (w + o_sign * o)
        if across and activation is not None:
            activation = activation.flatten().view(activation.shape[::-1]).T
        return weights if activation is None else weights @ activation

    return slip


def _one_group_per_block(
    weight: Tensor, scale: Tensor, offset: Tensor, BLOCK_K: int, activation: Tensor | None = None
) -> Tensor:
    """Return `grouped_weights` with the group of a block's first column for all of the block."""
    w, o = weight_codes(weight), weight_codes(offset)
    g = torch.arange(w.shape[1]) // BLOCK_K * BLOCK_K // (w.shape[1] // scale.shape[1])  # [K]
    weights = scale[:, g] * (w - o[:, g])
    return weights if activation is None else weights @ activation


def _rows_apart(tensor: Tensor, words: Callable[[int], int] | None, groups: int) -> Tensor | None:
    """Return what loads find if rows are `words(groups)` apart; None if some are past the tensor's end."""
    if words is None:
        return tensor
    rows, count = tensor.shape
    places = torch.arange(rows)[:, None] * words(groups) + torch.arange(count)
    return tensor.flatten()[places] if int(places.max()) < tensor.numel() else None


def _fields(words: Tensor, mask: int, first: int) -> Tensor:
    """Return `weight_codes` with another mask and another shift of field 0."""
    shifts = (first - 4 * torch.arange(8)).abs()
    return (words[:, :, None] >> shifts & mask).flatten(1)


def _in_place_of_bits(weight: Tensor, *, divides: bool = False, remains: bool = False) -> Tensor:
    """Return `weight_codes` with a division instead of the shift, or a remainder instead of the mask."""
    words, shifts = weight[:, :, None], 4 * torch.arange(8)
    lowered = words.div(2**shifts, rounding_mode="trunc").to(words.dtype) if divides else words >> shifts
    return (lowered.fmod(16) if remains else lowered & 15).flatten(1)


def _in_another_order(
    weight: Tensor, scale: Tensor, offset: Tensor, activation: Tensor, BLOCK_K: int, *, first: int
) -> Tensor:
    """Return `once_per_group` with the words of an iteration folded in the wrong order, or other words.

    first: 8 if the words begin at start // 8 and the words' axis is folded last, 1 if they begin at start.
    """
    K, count = 8 * weight.shape[1], BLOCK_K // 8
    shifts, w = 4 * torch.arange(8), []
    for start in range(0, K, BLOCK_K):
        words = torch.zeros(weight.shape[0], count, dtype=weight.dtype)
        found = weight[:, start // first : start // first + count]
        words[:, : found.shape[1]] = found
        fields = words[:, :, None] >> shifts & 15
        w.append((fields.mT if first == 8 else fields).flatten(1))
    codes = torch.cat(w, dim=1)[:, :K]
    g = torch.arange(K) // (K // scale.shape[1])  # [K]
    return (scale[:, g] * (codes - weight_codes(offset)[:, g])) @ activation


def _scaled_again(weight: Tensor, scale: Tensor, offset: Tensor, activation: Tensor, BLOCK_K: int) -> Tensor:
    """Return `once_per_group` with an accumulator that is passed to the dot, so each iteration scales it."""
    w, o = weight_codes(weight), weight_codes(offset)
    group = w.shape[1] // scale.shape[1]
    acc = torch.zeros(w.shape[0], activation.shape[1], dtype=activation.dtype)
    for start in range(0, w.shape[1], BLOCK_K):
        g, k = start // group, slice(start, start + BLOCK_K)
        part = (w[:, k] - o[:, g, None]).to(activation.dtype) @ activation[k]
        acc = scale[:, g, None] * (acc + part)
    return acc


CODE_SLIPS = {
    "you'd get these codes from >> 4 * k % 8, which means (4 * k) % 8: shift by 4 * (k % 8)": (
        lambda weight: (weight[:, :, None] >> 4 * torch.arange(8) % 8 & 15).flatten(1)
    ),
    "you'd get these codes from a shift without & 15": lambda weight: _fields(weight, -1, 0),
    "you'd get these codes by reading the fields from the top: field 0 is the lowest 4 bits": (
        lambda weight: _fields(weight, 15, 28)
    ),
    "you'd get these codes from % 16: the remainder of a negative word is negative. Use & 15": (
        lambda weight: _in_place_of_bits(weight, remains=True)
    ),
    "you'd get these codes from //: it rounds negative words toward 0. Use >>": (
        lambda weight: _in_place_of_bits(weight, divides=True)
    ),
    "you'd get these codes from // and % 16: both give other numbers for a negative word. Use >> and & 15": (
        lambda weight: _in_place_of_bits(weight, divides=True, remains=True)
    ),
    "you'd get these codes from & 7: a field has four bits": lambda weight: _fields(weight, 7, 0),
    "you'd get these codes from & 16, which keeps a single bit: & 15 keeps the lowest four": (
        lambda weight: _fields(weight, 16, 0)
    ),
    "you'd get these codes from >> (k % 8): a field has four bits, so shift by 4 * (k % 8)": (
        lambda weight: (weight[:, :, None] >> torch.arange(8) & 15).flatten(1)
    ),
    "you'd get these codes from & 15 before the shift: use parentheses, (words >> ...) & 15": (
        lambda weight: ((weight[:, :, None] & 15) >> 4 * torch.arange(8)).flatten(1)
    ),
    "you'd get these codes if the highest bit of a field were a sign: it needs & 15": (
        lambda weight: (_fields(weight, 15, 0) + 8) % 16 - 8
    ),
}
SLIPS = {
    "you'd get these values from a w without & 15": _slip(w_mask=-1),
    "you'd get these values from an o without & 15": _slip(o_mask=-1),
    "you'd get these values from w and o without & 15": _slip(w_mask=-1, o_mask=-1),
    "you'd get these values by reading w's fields from the top: field 0 is the lowest 4 bits": _slip(
        w_first=28
    ),
    "you'd get these values by reading o's fields from the top: field 0 is the lowest 4 bits": _slip(
        o_first=28
    ),
    "you'd get these values by reading all fields from the top: field 0 is the lowest 4 bits": _slip(
        w_first=28, o_first=28
    ),
    "you'd get these values from k instead of g: the field of o is g % 8": _slip(by_k=True),
    "you'd get these values from s * w - o: subtract o before multiplying, s * (w - o)": _slip(out=True),
    "you'd get these values from s * w, without the offset": _slip(o_sign=0),
    "you'd get these values from w alone: that step is correct": _slip(o_sign=0, unscaled=True),
    "you'd get these values from the whole word as o: shift its field down, and keep four bits": _slip(
        whole=True
    ),
    "you'd get these values from field 0 of every offset word: the field of o is g % 8": _slip(field_0=True),
    "you'd get these values from offset word 0 in every group: the word of o is g // 8": _slip(word_0=True),
    "you'd get these values from >> 4 * g % 8, which means (4 * g) % 8: shift by 4 * (g % 8)": _slip(
        o_shift=lambda g: 4 * g % 8
    ),
    "you'd get these values from the scale of group 0 in every group": _slip(group_0=True),
    "you'd get these values if a block had only its first column's group: each column has its own": (
        _one_group_per_block
    ),
    "you'd get these values from rows of scales that are as long as those of offset: a row has K // GROUP": (
        _slip(s_words=lambda groups: (groups + 7) // 8)
    ),
    "you'd get these values from rows of K // GROUP weight words: a row has K // 8": _slip(
        w_words=lambda groups: groups
    ),
    "you'd get these values from w - o, without the scale": _slip(unscaled=True),
    "you'd get these values from w + o: the offset is subtracted": _slip(o_sign=1),
    "you'd get these values from w with & 7: a field has four bits": _slip(w_mask=7),
    "you'd get these values from a w whose highest bit is a sign: it needs & 15": _slip(signed=True),
    "you'd get these values from offset rows of groups // 8 words: round up, (groups + 7) // 8": _slip(
        o_words=lambda groups: groups // 8
    ),
    "you'd get these values from offset rows of one word each: a row has (groups + 7) // 8 words": _slip(
        o_words=lambda groups: 1
    ),
}
"""Wrong results that are often seen, by what the report says about them."""
ACTIVATION_SLIPS = {
    "you'd get these values if columns of the activation were K apart: its rows are N apart": _slip(
        across=True
    ),
}
"""Wrong results of kernels that multiply by an activation."""
WORD_SLIPS = {
    "you'd get these values from a fold in another order: the eight fields of a word are neighbors": (
        functools.partial(_in_another_order, first=8)
    ),
    "you'd get these values if an iteration's words began at start: they begin at start // 8": (
        functools.partial(_in_another_order, first=1)
    ),
}
"""Wrong results of kernels that load each word once."""
SCALED_AGAIN = (
    "you'd get these values from s * (acc + ...), as in s * tl.dot(..., acc): that scales again what acc "
    "already contains"
)


WEIGHT_CODES = Puzzle(
    number="12a",
    spec=weight_codes,
    formula=r"\mathrm{weight}_{m, j} \equiv \sum_{i=0}^{7} 16^{\,i} \, z_{m, 8 j + i} \pmod{2^{32}}",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.K, s.BLOCK_K)),
    cases=(
        # one program, one word per row
        Case(M=4, K=8, BLOCK_M=4, BLOCK_K=8),
        # several full blocks on both axes
        Case(M=16, K=64, BLOCK_M=8, BLOCK_K=16),
        # ragged on both axes
        Case(M=13, K=104, BLOCK_M=4, BLOCK_K=64),
        # tall blocks that end within a word
        Case(M=13, K=24, BLOCK_M=8, BLOCK_K=4),
        # every field is 15, every sign bit is set
        Case(M=4, K=32, BLOCK_M=2, BLOCK_K=32, fill={"weight": all_bits_set}),
    ),
    slips=CODE_SLIPS,
    contract=Contract({"M": Size(150), "K": Size(700, step=8), "BLOCK_M": (16, 64), "BLOCK_K": (128, 256)}),
)


def fourteens(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return words of 8 codes that are all 14."""
    return torch.full(shape, 0xEEEEEEEE - (1 << 32), dtype=dtype)


def near_1e30(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 2^99."""
    return torch.full(shape, 2.0**99, dtype=dtype)


def near_1e7(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values from 2^23 to 2^24: with 16 products of these and `near_1e30`, a sum is below 2^127."""
    return (2.0**23 * (1 + torch.rand(shape, generator=generator))).to(dtype)


NEARLY_INFINITE = {
    "sums of s · w · a can overflow where those of s · (w - o) · a don't": Case(
        M=2, N=16, K=16, GROUP=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
        fill={
            "weight": all_bits_set, "scale": near_1e30, "offset": fourteens, "activation": near_1e7,
        },
    ),
}  # fmt: skip
"""A hard case: all weights are 15 - 14."""

BY_RECIPROCAL = (
    "a product with a rounded 1 / GROUP can be below the group's number, as for GROUP=41; so can a float "
    "quotient, which is such a product on a GPU"
)
"""What a hard case shows: float32's 1 / 41 is too small, and times 41 it's less than 1."""
GROUPS_TOO_MANY = "a float quotient of whole numbers can be a little off on a GPU, as 84 / 28 is more than 3"
GROUPS_TOO_FEW = "a float quotient of whole numbers can be a little off on a GPU, as 328 / 164 is less than 2"
"""What hard cases show of the number of groups."""
LONG_GROUP = "a group can be so long that a quotient rounded up is the next group's number before the end"
"""What a hard case shows: 4103 / 4104 is nearly 1."""

GROUPED_WEIGHTS = Puzzle(
    number="12b",
    spec=grouped_weights,
    formula=r"z_{m, k} = s_{m, g} \, (w_{m, k} - o_{m, g}) \qquad g = \lfloor k / \mathrm{GROUP} \rfloor",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.K, s.BLOCK_K)),
    cases=(
        # one program, one offset word
        Case(M=4, K=32, GROUP=8, BLOCK_M=4, BLOCK_K=32),
        # several full blocks on both axes; two offset words
        Case(M=16, K=128, GROUP=8, BLOCK_M=8, BLOCK_K=32),
        # ragged on both axes; 13 groups, so the second offset word is ragged too
        Case(M=13, K=104, GROUP=8, BLOCK_M=4, BLOCK_K=64),
        # groups that straddle words and blocks; blocks taller than wide
        Case(M=27, K=120, GROUP=12, BLOCK_M=32, BLOCK_K=16),
        # one group, longer than a block
        Case(M=7, K=80, GROUP=80, BLOCK_M=4, BLOCK_K=32),
        # every field is 15, every sign bit is set
        Case(
            M=4, K=64, GROUP=4, BLOCK_M=2, BLOCK_K=64,
            fill={"weight": all_bits_set, "offset": zeros},
        ),
    ),
    slips=SLIPS,
    hard={
        BY_RECIPROCAL: Case(M=2, K=2624, GROUP=41, BLOCK_M=2, BLOCK_K=512),
        LONG_GROUP: Case(M=2, K=4104, GROUP=4104, BLOCK_M=2, BLOCK_K=512),
    },
    contract=Contract(
        {
            "M": Size(150),
            "GROUP": lambda s: (264,) if s.M > 64 else (4, 12),
            "K": Size(700, step=lambda s: math.lcm(8, s.GROUP)),
            "BLOCK_M": (32, 64),
            "BLOCK_K": (128, 256),
        }
    ),
)  # fmt: skip

QUANTIZED_MATMUL = Puzzle(
    number="12c",
    spec=quantized_matmul,
    formula=(
        r"z_{m, n} = \sum_{k=0}^{K-1} s_{m, g} \, (w_{m, k} - o_{m, g}) \, a_{k, n}"
        r"\qquad g = \lfloor k / \mathrm{GROUP} \rfloor"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        # one program, one iteration, one offset word
        Case(M=16, N=16, K=32, GROUP=8, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32),
        # several blocks on every axis, all full; two offset words
        Case(M=64, N=32, K=128, GROUP=8, BLOCK_M=32, BLOCK_N=16, BLOCK_K=64),
        # ragged on every axis; 13 groups, so the second offset word is ragged too
        Case(M=45, N=50, K=104, GROUP=8, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),
        # groups that straddle words and blocks
        Case(M=20, N=18, K=120, GROUP=12, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32),
        # one group, longer than a block
        Case(M=20, N=18, K=80, GROUP=80, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32),
        # every field is 15, every sign bit is set
        Case(
            M=16, N=16, K=64, GROUP=4, BLOCK_M=16, BLOCK_N=16, BLOCK_K=64,
            fill={"weight": all_bits_set, "offset": zeros},
        ),
        # a layer and one token
        Case(M=64, N=1, K=256, GROUP=32, BLOCK_M=64, BLOCK_N=16, BLOCK_K=64),
    ),
    slips=SLIPS | ACTIVATION_SLIPS,
    hard=NEARLY_INFINITE
    | {
        BY_RECIPROCAL: Case(M=2, N=1, K=2624, GROUP=41, BLOCK_M=16, BLOCK_N=16, BLOCK_K=64),
        LONG_GROUP: Case(M=2, N=1, K=4104, GROUP=4104, BLOCK_M=16, BLOCK_N=16, BLOCK_K=128),
    },
    contract=Contract(
        {
            "M": Size(150),
            "GROUP": lambda s: (264,) if s.M > 64 else (4, 12),
            "K": Size(700, step=lambda s: math.lcm(8, s.GROUP)),
            "N": Size(150),
            "BLOCK_M": (32, 64),
            "BLOCK_N": (32, 64),
            # such a loop is pipelined, and the tiles of three iterations must fit in an H200's shared memory
            "BLOCK_K": lambda s: (64, 128) if s.K <= 256 and s.BLOCK_M + s.BLOCK_N == 64 else (64,),
        }
    ),
)  # fmt: skip

ONCE_PER_GROUP = Puzzle(
    number="12d",
    spec=once_per_group,
    formula=QUANTIZED_MATMUL.formula,
    grid=QUANTIZED_MATMUL.grid,
    cases=(
        # one program, one group
        Case(M=16, N=16, K=32, GROUP=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32),
        # several programs, 8 groups: an offset word filled to the top
        Case(M=64, N=32, K=128, GROUP=16, BLOCK_M=32, BLOCK_N=16, BLOCK_K=16),
        # ragged rows and columns; 9 groups, so the second offset word holds one
        Case(M=45, N=50, K=144, GROUP=16, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16),
        # two iterations per group
        Case(M=20, N=18, K=320, GROUP=64, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32),
        # three iterations per group, which isn't a power of two
        Case(M=20, N=5, K=288, GROUP=96, BLOCK_M=32, BLOCK_N=16, BLOCK_K=32),
        # every field is 15, every sign bit is set
        Case(
            M=16, N=16, K=64, GROUP=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16,
            fill={"weight": all_bits_set, "offset": zeros},
        ),
        # a layer and one token
        Case(M=64, N=1, K=512, GROUP=128, BLOCK_M=16, BLOCK_N=16, BLOCK_K=128),
    ),
    most_loads={"weight": lambda s: _words(s)}
    | {name: lambda s: _steps(s) * s.M for name in ("scale", "offset")},
    # the scale outside the sum: once per result of a tile, not once per weight
    machine=(Goal(cases=(6,), wants=(Want("products", most=16 * 16),)),),
    slips=SLIPS | ACTIVATION_SLIPS | WORD_SLIPS | {SCALED_AGAIN: _scaled_again},
    hard=NEARLY_INFINITE
    | {
        BY_RECIPROCAL: Case(M=2, N=1, K=1312, GROUP=656, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),
        LONG_GROUP: Case(M=2, N=1, K=4112, GROUP=4112, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),
    },
    contract=Contract(
        {
            "M": Size(150),
            "GROUP": lambda s: (288,) if s.M > 64 else (32,),
            "K": Size(1200, step=lambda s: s.GROUP),
            "N": Size(150),
            "BLOCK_M": (32, 64),
            "BLOCK_N": (32, 64),
            "BLOCK_K": (32,),
        }
    ),
)  # fmt: skip


def _words(case: Case) -> int:
    """Return how many weight words are loaded if each program loads each of its words once."""
    return case.M * case.K // 8 * triton.cdiv(case.N, case.BLOCK_N)


def _steps(case: Case) -> int:
    """Return the iterations along K of all programs that share their rows."""
    return case.K // case.BLOCK_K * triton.cdiv(case.N, case.BLOCK_N)


PUZZLES = (WEIGHT_CODES, GROUPED_WEIGHTS, QUANTIZED_MATMUL, ONCE_PER_GROUP)
