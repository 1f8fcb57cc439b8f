"""Chapter 12: the weight gradient from packed activations, unpacked inside the matmul."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace

import torch
import triton
from jaxtyping import BFloat16, Float32, Int16, Int32
from torch import Tensor

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import (
    BY_RECIPROCAL,
    GROUPS_TOO_FEW,
    GROUPS_TOO_MANY,
    LONG_GROUP,
)
from puzzles_lib.chapters.ch09_bit_packing.puzzles import unpack_bits
from puzzles_lib.contract import Contract, Fill, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import far_apart
from puzzles_lib.puzzle import Case, Puzzle

# ---- scales and minima whose values are bfloat16 numbers
#
# minimum + scale · code is a power of two times an integer from -255 to 255, so a kernel can keep it in
# bfloat16, TF32 or float32 without an error. The products scale · code go up to 510, which bfloat16 can't
# hold, so rounding the product as well is a mistake that shows. The scale and minimum of a group belong
# together, but their fills are called separately: both draw the scales from the same seed.


def _steps(shape: tuple[int, ...], BITS: int, most: int) -> tuple[Tensor, Tensor]:
    """Return the scale of each group as an integer, and the power of two to multiply it by."""
    generator = torch.Generator().manual_seed(BITS)
    step = torch.randint(1, min(510 // (2**BITS - 1), 255) + 1, shape, generator=generator)
    return step, 2.0 ** torch.randint(-most, most + 1, shape, generator=generator)


def scales(BITS: int, most: int = 3, times: float = 1.0) -> Callable:
    """Return a fill of integers times powers of two from 2^-most to 2^most, and times another one."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        step, power = _steps(shape, BITS, most)
        return (step * power * times).to(dtype)

    fill.__name__ = _named(most, times)
    return fill


def minima(BITS: int, most: int = 3, times: float = 1.0) -> Callable:
    """Return a fill of minima that go with `scales`."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        step, power = _steps(shape, BITS, most)
        room = 511 - step * (2**BITS - 1)  # minima of at least -255 whose group ends at 255 at most
        low = (torch.rand(shape, generator=generator) * room).floor() - 255
        return (low * power * times).to(dtype)

    fill.__name__ = _named(most, times)
    return fill


def _named(most: int, times: float) -> str:
    return "exact_tiny" if times < 1 else "exact" if most < 8 else "exact_wide"


def _case(*, most: int = 3, times: float = 1.0, **numbers: int) -> Case:
    """Return a case with scales and minima for its BITS."""
    BITS = numbers["BITS"]
    fill = {"scale": scales(BITS, most, times), "minimum": minima(BITS, most, times)}
    return Case(**numbers, fill=fill)


VANISHING = "x can be as small as 1e-21, and its sums with it"
"""What a hard case shows."""
TINY = 2.0**-70


def _fills(s: SimpleNamespace) -> tuple[Mapping[str, Fill], ...]:
    """Return the fills of random cases, for their BITS."""
    fit = {"scale": scales(s.BITS), "minimum": minima(s.BITS)}
    return fit, {**fit, "dy": far_apart}


# Tensor cores take float32 tiles at half the rate, so they would look busier.
_HALVES = Want("float32 dots", most=0)


# ---- puzzle 19


def fused_dw(
    dy: BFloat16[Tensor, "K COUT"],
    words: Int32[Tensor, " K (CIN*BITS+31)//32"],
    scale: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    minimum: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    CIN: int,
    BITS: int,
    GROUP: int,
) -> Float32[Tensor, "COUT CIN"]:
    """dw[m, n] = sum over k of dy[k, m] · x[k, n]

    x[k, n] = minimum[k, g] + scale[k, g] · code[k, n] with g = n // GROUP.
    code[k, n] is field n % F of words[k, n // F], F = 32 // BITS, as in puzzle
    16. GROUP and BLOCK_N are multiples of F. x is rounded to bfloat16 for the dot,
    and sums are in float32.
    """
    codes = unpack_bits(words, CIN, BITS)  # [K, CIN]
    g = torch.arange(CIN) // GROUP  # [CIN]
    x = minimum[:, g] + scale[:, g] * codes  # [K, CIN]
    return dy.mT @ x


def _dy_as_cout_by_k(
    dy: Tensor, words: Tensor, scale: Tensor, minimum: Tensor, CIN: int, BITS: int, GROUP: int
) -> Tensor:
    """Return dW if dy's memory is read as [COUT, K]."""
    turned = dy.contiguous().view(dy.shape[1], dy.shape[0]).T
    return fused_dw(turned, words, scale, minimum, CIN, BITS, GROUP)


def _unpacked(s: SimpleNamespace, words: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    """Return x of all whole tiles, [steps, BLOCK_K, tiles, words per tile, F], with zeros for padding."""
    F, CIN = 32 // s.BITS, s.CIN
    steps, tiles = triton.cdiv(words.shape[0], s.BLOCK_K), triton.cdiv(CIN, s.BLOCK_N)
    g = torch.arange(words.shape[1]) * F // s.GROUP  # the group of each word
    codes = unpack_bits(words, words.shape[1] * F, s.BITS).reshape(*words.shape, F)
    x = minimum[:, g, None] + scale[:, g, None] * codes  # [K, W, F]
    rows, columns = steps * s.BLOCK_K - x.shape[0], tiles * s.BLOCK_N // F - x.shape[1]
    x = torch.nn.functional.pad(x, (0, 0, 0, columns, 0, rows))
    return x.reshape(steps, s.BLOCK_K, tiles, s.BLOCK_N // F, F)


def _flattened(axes: tuple[int, ...], turned: bool = False) -> Callable:
    """Return a spec whose tiles of x have their axes (row, word, field) in this order before the reshape.

    turned: whether the reshape makes ``[BLOCK_N, BLOCK_K]``.
    """

    def slip(
        dy: Tensor,
        words: Tensor,
        scale: Tensor,
        minimum: Tensor,
        CIN: int,
        BITS: int,
        GROUP: int,
        BLOCK_N: int,
        BLOCK_K: int,
    ) -> Tensor:
        s = SimpleNamespace(CIN=CIN, BITS=BITS, GROUP=GROUP, BLOCK_N=BLOCK_N, BLOCK_K=BLOCK_K)
        x = _unpacked(s, words, scale, minimum)
        steps, _, tiles = x.shape[:3]
        parts = x.permute(0, 2, *((1, 3, 4)[axis] for axis in axes))  # [steps, tiles, ...]
        shape = (BLOCK_N, BLOCK_K) if turned else (BLOCK_K, BLOCK_N)
        parts = parts.reshape(steps, tiles, *shape)
        parts = parts.mT if turned else parts
        x = parts.permute(0, 2, 1, 3).reshape(steps * BLOCK_K, tiles * BLOCK_N)
        return dy.mT @ x[: dy.shape[0], :CIN]

    return slip


def _unpacked_with(
    *, mask: Callable[[int], int] = lambda BITS: 2**BITS - 1, before: bool = False
) -> Callable:
    """Return a spec that keeps `mask` of a shifted word, or adds the minimum to the code before scaling."""

    def slip(
        dy: Tensor, words: Tensor, scale: Tensor, minimum: Tensor, CIN: int, BITS: int, GROUP: int
    ) -> Tensor:
        shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
        codes = (words[:, :, None] >> shifts & mask(BITS)).flatten(1)[:, :CIN]
        g = torch.arange(CIN) // GROUP  # [CIN]
        return dy.mT @ _decoded(codes, scale[:, g], minimum[:, g], before)

    return slip


def _decoded(codes: Tensor, scale: Tensor, minimum: Tensor, before: bool) -> Tensor:
    """Return x, rounded to bfloat16. before: whether the minimum is added before scaling."""
    x = scale * (codes + minimum) if before else minimum + scale * codes
    return x.to(torch.bfloat16).to(scale.dtype)


_FIELD_SLIPS = {
    "you'd get these values from codes without a mask: a field is the lowest BITS bits of the shifted word": {
        "mask": lambda BITS: -1
    },
    "you'd get these values from & BITS, which is a number and no mask: & ((1 << BITS) - 1)": {
        "mask": lambda BITS: BITS
    },
    "you'd get these values from scale * (code + minimum): multiply first, then add the minimum": {
        "before": True
    },
}
"""Ways to get a wrong x from a word, and what is different in them."""
FIELD_SLIPS = {text: _unpacked_with(**what) for text, what in _FIELD_SLIPS.items()}


_READ_AS_COUT_BY_K = "it is what you get if dy is read as [COUT, K]: row k starts at k * COUT"
_FIELDS_FIRST = (
    "in each tile, all fields 0 come first, then all fields 1: "
    "before the reshape, the axis of fields must come right after the axis of words"
)
_FIELDS_LAST = (
    "in each tile, the fields of a word come one after the other along k: "
    "before the reshape, the axis of fields must come right after the axis of words"
)


FUSED_DW = Puzzle(
    number="19",
    spec=fused_dw,
    formula=(
        r"\begin{gathered} dW_{m, n} = \sum_{k=0}^{K-1} dy_{k, m} \, \hat x_{k, n} \\ "
        r"\hat x_{k, n} = \mathrm{minimum}_{k, g} + \mathrm{scale}_{k, g} \cdot \mathrm{code}_{k, n}"
        r"\qquad g = \lfloor n / \mathrm{GROUP} \rfloor \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.COUT, s.BLOCK_M), triton.cdiv(s.CIN, s.BLOCK_N)),
    cases=(
        # one program, one iteration, one group
        _case(K=16, COUT=16, CIN=32, BITS=4, GROUP=32, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16),
        # several blocks on every axis, all full; four groups a block
        _case(K=64, COUT=64, CIN=128, BITS=2, GROUP=16, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32),
        # ragged on every axis; the last word holds three codes
        _case(K=83, COUT=45, CIN=91, BITS=8, GROUP=16, BLOCK_M=16, BLOCK_N=64, BLOCK_K=32),
        # one bit a code; groups that straddle blocks
        _case(K=40, COUT=20, CIN=150, BITS=1, GROUP=96, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16),
        # numbers that float16 can't hold; one row in the last block of K
        _case(K=65, COUT=18, CIN=40, BITS=2, GROUP=16, BLOCK_M=32, BLOCK_N=64, BLOCK_K=32, most=20),
        # fewer rows and columns than a block, and than a word
        _case(K=5, COUT=3, CIN=5, BITS=4, GROUP=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),
    ),
    outputs=("dw",),
    slips={
        _READ_AS_COUT_BY_K: _dy_as_cout_by_k,
        _FIELDS_FIRST: _flattened((0, 2, 1)),
        **FIELD_SLIPS,
    },
    hard={
        BY_RECIPROCAL.replace("41", "164"): (
            _case(K=16, COUT=1, CIN=10496, BITS=8, GROUP=164, BLOCK_M=16, BLOCK_N=512, BLOCK_K=16)
        ),
        LONG_GROUP: _case(K=16, COUT=1, CIN=4104, BITS=8, GROUP=4104, BLOCK_M=16, BLOCK_N=512, BLOCK_K=16),
        GROUPS_TOO_MANY: _case(K=16, COUT=1, CIN=84, BITS=8, GROUP=28, BLOCK_M=16, BLOCK_N=128, BLOCK_K=16),
        GROUPS_TOO_FEW: _case(K=16, COUT=1, CIN=165, BITS=8, GROUP=164, BLOCK_M=16, BLOCK_N=256, BLOCK_K=16),
        VANISHING: _case(
            K=5, COUT=3, CIN=5, BITS=4, GROUP=16, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, times=TINY
        ),
    },
    contract=Contract(
        {
            "COUT": Size(300),
            "CIN": Size(600),
            "K": Size(300),
            "BITS": (1, 2, 4, 8),
            "GROUP": lambda s: (544,) if s.CIN > 512 else (32 // s.BITS, 96, 256),
            "BLOCK_M": lambda s: (128,) if s.COUT > 64 else (32,),
            "BLOCK_N": (64, 128),
            "BLOCK_K": lambda s: (32,) if s.K > 128 else (32, 128),
        },
        fills=_fills,
        most_programs=4,
    ),
    machine=(Goal(cases=(1,), wants=(_HALVES,)),),
)  # fmt: skip


def busy_dw(
    dy: BFloat16[Tensor, "K COUT"],
    words: Int32[Tensor, " K (CIN*BITS+31)//32"],
    scale: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    minimum: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    CIN: int,
    BITS: int,
    GROUP: int,
) -> Float32[Tensor, "COUT CIN"]:
    """dW as in puzzle 19. BLOCK_K is a multiple of 32.

    In tiles of 128 x 128 with BLOCK_K = 64, the dot's operands are bfloat16,
    nothing spills, and the tensor cores can be busy at least 70% of the time.
    """
    return fused_dw(dy, words, scale, minimum, CIN, BITS, GROUP)


def _in_tiles(case: Case, **blocks: int) -> Case:
    """Return a case with chapter 12's tiles on fewer rows and columns: the machine code is the same."""
    sizes = {"K": 128, "COUT": 128, "CIN": 128, "BITS": 2, "GROUP": 256}
    return case.but(**sizes, BLOCK_M=128, BLOCK_N=128, **blocks)


def _least_block_k(contract: Contract, least: int) -> Contract:
    numbers = {**contract.numbers, "BLOCK_K": lambda s: (least,) if s.K > 128 else (least, 128)}
    return Contract(numbers, contract.fills, contract.most_programs)


BUSY_DW = Puzzle(
    number="19b",
    spec=busy_dw,
    formula=FUSED_DW.formula,
    grid=FUSED_DW.grid,
    cases=(
        *(case.but(BLOCK_K=32) for case in FUSED_DW.cases),
        _in_tiles(FUSED_DW.cases[1], BLOCK_K=64),
    ),
    outputs=("dw",),
    slips={
        _READ_AS_COUT_BY_K: _dy_as_cout_by_k,
        _FIELDS_FIRST: _flattened((0, 2, 1)),
        _FIELDS_LAST: _flattened((1, 0, 2), turned=True),
        **FIELD_SLIPS,
    },
    hard={text: case.but(BLOCK_K=32) for text, case in FUSED_DW.hard.items()},
    contract=_least_block_k(FUSED_DW.contract, 32),
    machine=(Goal(cases=(6,), wants=(_HALVES, Want("busy", least=0.7), Want("spills", most=0))),),
)

# ---- puzzle 20


def split_k(
    dy: BFloat16[Tensor, "K COUT"],
    words: Int32[Tensor, " K (CIN*BITS+31)//32"],
    scale: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    minimum: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    CIN: int,
    BITS: int,
    GROUP: int,
    SPLITS: int,
    BLOCK_K: int,
) -> Float32[Tensor, "SPLITS COUT CIN"]:
    """parts[s, m, n] = sum over the rows k of split s of dy[k, m] · x[k, n]

    x as in puzzle 19. K has cdiv(K, BLOCK_K) blocks of rows. Each split takes
    cdiv(blocks, SPLITS) of them, one split after the other. The last splits may be
    short, or empty: then their sums are 0. The sum of all parts is dW.
    """
    rows = BLOCK_K * triton.cdiv(triton.cdiv(dy.shape[0], BLOCK_K), SPLITS)
    shares = [range(split * rows, (split + 1) * rows) for split in range(SPLITS)]
    return _parts(shares, dy, words, scale, minimum, CIN, BITS, GROUP)


def _parts(
    shares: Sequence[range],
    dy: Tensor,
    words: Tensor,
    scale: Tensor,
    minimum: Tensor,
    CIN: int,
    BITS: int,
    GROUP: int,
) -> Tensor:
    """Return the sums over some of K's rows each."""
    K, parts = dy.shape[0], []
    for share in shares:
        k = slice(min(share.start, K), min(share.stop, K))
        parts.append(fused_dw(dy[k], words[k], scale[k], minimum[k], CIN, BITS, GROUP))
    return torch.stack(parts)


def _shared_out(shares: Callable[[int, int, int], Sequence[range]]) -> Callable:
    """Return `split_k` with other shares, for K, SPLITS and BLOCK_K."""

    def slip(
        dy: Tensor,
        words: Tensor,
        scale: Tensor,
        minimum: Tensor,
        CIN: int,
        BITS: int,
        GROUP: int,
        SPLITS: int,
        BLOCK_K: int,
    ) -> Tensor:
        K = dy.shape[0]
        return _parts(shares(K, SPLITS, BLOCK_K), dy, words, scale, minimum, CIN, BITS, GROUP)

    return slip


def _by_rows(K: int, SPLITS: int, BLOCK_K: int) -> list[range]:
    """Return shares of K / SPLITS rows, rounded up, each read in whole blocks."""
    rows = triton.cdiv(K, SPLITS)
    owned = [(min(split * rows, K), min((split + 1) * rows, K)) for split in range(SPLITS)]
    return [range(first, first + triton.cdiv(last - first, BLOCK_K) * BLOCK_K) for first, last in owned]


def _by_few_blocks(K: int, SPLITS: int, BLOCK_K: int) -> list[range]:
    """Return shares of blocks / SPLITS blocks, rounded down."""
    rows = triton.cdiv(K, BLOCK_K) // SPLITS * BLOCK_K
    return [range(split * rows, (split + 1) * rows) for split in range(SPLITS)]


def _to_the_end(K: int, SPLITS: int, BLOCK_K: int) -> list[range]:
    """Return shares that begin in the right place, and end at K."""
    rows = triton.cdiv(triton.cdiv(K, BLOCK_K), SPLITS) * BLOCK_K
    return [range(split * rows, K) for split in range(SPLITS)]


SHARE_SLIPS = {
    "you'd get these values from shares of K / SPLITS rows, which aren't whole blocks: "
    "divide the number of blocks by SPLITS": _shared_out(_by_rows),
    "you'd get these values from a division that rounds down, so the last blocks are in no split: "
    "round up the number of blocks and each split's share": _shared_out(_by_few_blocks),
    "you'd get these values if each split went on to K: a split ends where the next one begins": (
        _shared_out(_to_the_end)
    ),
}
"""Wrong shares of K."""


def _short_splits(BLOCK_K: int) -> dict[str, Case]:
    """Return a hard case of 42 blocks in 41 splits: float32's 1 / 41, times 42 + 40, is less than 2."""
    text = "a float quotient of whole numbers can be a little off on a GPU, and its floor 1 too small"
    numbers = {"K": 42 * BLOCK_K, "COUT": 1, "CIN": 16, "BITS": 8, "GROUP": 16, "SPLITS": 41}
    return {text: _case(**numbers, BLOCK_M=16, BLOCK_N=16, BLOCK_K=BLOCK_K)}


SPLIT_K = Puzzle(
    number="20",
    spec=split_k,
    formula=(
        r"\begin{gathered} "
        r"\mathrm{parts}_{s, m, n} = \sum_{k = sR}^{\min(sR + R, K) - 1} dy_{k, m} \, \hat x_{k, n} \\ "
        r"R = \mathrm{BLOCK\_K} \left\lceil"
        r"\frac{\lceil K / \mathrm{BLOCK\_K} \rceil}{\mathrm{SPLITS}} \right\rceil \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.COUT, s.BLOCK_M), triton.cdiv(s.CIN, s.BLOCK_N), s.SPLITS),
    cases=(
        # one program, three blocks
        _case(K=48, COUT=16, CIN=32, BITS=4, GROUP=32, SPLITS=1, BLOCK_M=16, BLOCK_N=32, BLOCK_K=16),
        # several blocks on every axis, all full; two blocks per split
        _case(K=128, COUT=32, CIN=64, BITS=2, GROUP=32, SPLITS=2, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32),
        # ragged on every axis: 6 blocks in 4 splits of two, the third short, the last empty
        _case(K=83, COUT=45, CIN=91, BITS=8, GROUP=16, SPLITS=4, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16),
        # one bit a code; groups that straddle blocks
        _case(K=40, COUT=20, CIN=150, BITS=1, GROUP=96, SPLITS=2, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16),
        # numbers that float16 can't hold; three splits of two blocks, one row in the last
        _case(K=65, COUT=18, CIN=40, BITS=2, GROUP=16, SPLITS=3, BLOCK_M=32, BLOCK_N=64, BLOCK_K=16, most=20),
        # fewer rows than a block: all splits except one are empty
        _case(K=5, COUT=3, CIN=5, BITS=4, GROUP=16, SPLITS=3, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16),
    ),
    outputs=("parts",),
    slips=SHARE_SLIPS,
    hard={
        BY_RECIPROCAL.replace("41", "164"): (
            _case(K=16, COUT=1, CIN=10496, BITS=8, GROUP=164, SPLITS=1, BLOCK_M=16, BLOCK_N=512, BLOCK_K=16)
        ),
        LONG_GROUP: (
            _case(K=16, COUT=1, CIN=4104, BITS=8, GROUP=4104, SPLITS=1, BLOCK_M=16, BLOCK_N=512, BLOCK_K=16)
        ),
        GROUPS_TOO_MANY: (
            _case(K=16, COUT=1, CIN=84, BITS=8, GROUP=28, SPLITS=1, BLOCK_M=16, BLOCK_N=128, BLOCK_K=16)
        ),
        GROUPS_TOO_FEW: (
            _case(K=16, COUT=1, CIN=165, BITS=8, GROUP=164, SPLITS=1, BLOCK_M=16, BLOCK_N=256, BLOCK_K=16)
        ),
        **_short_splits(BLOCK_K=16),
        "a float quotient of whole numbers can be a little off on a GPU, and its ceiling 1 too large": (
            _case(K=672, COUT=1, CIN=16, BITS=8, GROUP=16, SPLITS=7, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16)
        ),
        VANISHING: _case(
            K=5, COUT=3, CIN=5, BITS=4, GROUP=16, SPLITS=1, BLOCK_M=16, BLOCK_N=16, BLOCK_K=16, times=TINY
        ),
    },
    contract=Contract(
        {
            "COUT": Size(300),
            "K": Size(2100),
            "CIN": Size(600),
            "SPLITS": Size(9),
            "BITS": (1, 2, 4, 8),
            "GROUP": lambda s: (544,) if s.CIN > 512 else (32 // s.BITS, 96, 256),
            "BLOCK_M": lambda s: (128,) if s.COUT > 64 else (32,),
            "BLOCK_N": (64, 128),
            "BLOCK_K": lambda s: (16,) if s.K > 128 else (32, 128),
        },
        fills=_fills,
        most_programs=4,
    ),
)  # fmt: skip


def two_programs(
    dy: BFloat16[Tensor, "K COUT"],
    words: Int32[Tensor, " K (CIN*BITS+31)//32"],
    scale: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    minimum: BFloat16[Tensor, " K (CIN+GROUP-1)//GROUP"],
    CIN: int,
    BITS: int,
    GROUP: int,
    SPLITS: int,
    BLOCK_K: int,
) -> Float32[Tensor, "SPLITS COUT CIN"]:
    """The parts of puzzle 20. BLOCK_K is a multiple of 32.

    In tiles of 128 x 128 with BLOCK_K = 32 and 8 warps per program, a
    multiprocessor has room for two programs.
    """
    return split_k(dy, words, scale, minimum, CIN, BITS, GROUP, SPLITS, BLOCK_K)


TWO_PROGRAMS = Puzzle(
    number="20b",
    spec=two_programs,
    formula=SPLIT_K.formula,
    grid=SPLIT_K.grid,
    cases=(
        *(case.but(BLOCK_K=32) for case in SPLIT_K.cases),
        _in_tiles(SPLIT_K.cases[1], SPLITS=2, BLOCK_K=32),
    ),
    outputs=("parts",),
    slips=SHARE_SLIPS,
    hard={text: case.but(BLOCK_K=32) for text, case in SPLIT_K.hard.items()} | _short_splits(BLOCK_K=32),
    contract=_least_block_k(SPLIT_K.contract, 32),
    machine=(
        Goal(
            cases=(6,),
            wants=(_HALVES, Want("programs", least=2), Want("spills", most=0)),
            num_warps=8,
            shows=("registers", "busy"),
        ),
    ),
)

# ---- puzzle 21


def packed_along_k(
    dy: BFloat16[Tensor, "K COUT"],
    words: Int16[Tensor, " (K*BITS+255)//256 16 CIN"],
    scale: BFloat16[Tensor, " (CIN+GROUP-1)//GROUP (K*BITS+255)//256*(256//BITS)"],
    minimum: BFloat16[Tensor, " (CIN+GROUP-1)//GROUP (K*BITS+255)//256*(256//BITS)"],
    BITS: int,
    GROUP: int,
) -> Float32[Tensor, "COUT CIN"]:
    """dw[m, n] = sum over k of dy[k, m] · x[k, n]

    x[k, n] = minimum[g, k] + scale[g, k] · code[k, n] with g = n // GROUP.
    code[k, n] is field j of words[b, r, n] where k = 16 · F · b + 16 · j + r,
    F = 16 // BITS, r < 16: the format of puzzles_lib.kernels. Past row K, words,
    scales and minima can be any numbers up to 1e30. GROUP is a multiple of BLOCK_N.
    Sums are in float32, and the checker's x are bfloat16 numbers. In tiles of
    128 x 128, no computed value goes from thread to thread.
    """
    K, CIN = dy.shape[0], words.shape[2]
    codes = _codes_along_k(words, BITS, 2**BITS - 1)[:K]  # [K, CIN]
    g = torch.arange(CIN) // GROUP  # [CIN]
    x = minimum.mT[:K, g] + scale.mT[:K, g] * codes  # [K, CIN]
    return dy.mT @ x


def _codes_along_k(words: Tensor, BITS: int, mask: int) -> Tensor:
    """Return the fields of words along K, [K', CIN]."""
    shifts = BITS * torch.arange(16 // BITS, dtype=torch.int32)[:, None, None]
    fields = words.int()[:, None] >> shifts & mask  # [blocks, F, 16, CIN]
    return fields.reshape(-1, words.shape[2])


def _along_k_with(
    *, mask: Callable[[int], int] = lambda BITS: 2**BITS - 1, before: bool = False, short: bool = False
) -> Callable:
    """Return `packed_along_k` with a slip of `_unpacked_with`, or with rows of scales that are K long."""

    def slip(dy: Tensor, words: Tensor, scale: Tensor, minimum: Tensor, BITS: int, GROUP: int) -> Tensor:
        K, CIN = dy.shape[0], words.shape[2]
        codes = _codes_along_k(words, BITS, mask(BITS))[:K]
        g, k = torch.arange(CIN) // GROUP, torch.arange(K)[:, None]
        at = g * (K if short else scale.shape[1]) + k  # [K, CIN]
        return dy.mT @ _decoded(codes, scale.flatten()[at], minimum.flatten()[at], before)

    return slip


ALONG_K_SLIPS = {text: _along_k_with(**what) for text, what in _FIELD_SLIPS.items()} | {
    "you'd get these values from rows of K scales and minima: a row has K', to the end of the last block": (
        _along_k_with(short=True)
    )
}
"""Wrong results that are often seen, by what the report says about them."""


PACKED_ALONG_K = Puzzle(
    number="21",
    spec=packed_along_k,
    formula=(
        r"\begin{gathered} dW_{m, n} = \sum_{b} \sum_{j=0}^{F-1} \sum_{r=0}^{15} dy_{k, m} \, "
        r"\hat x_{k, n} \\ "
        r"k = 16 F b + 16 j + r \qquad "
        r"\mathrm{code}_{k, n} = \text{field } j \text{ of } \mathrm{words}_{b, r, n} \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.COUT, s.BLOCK_M), triton.cdiv(s.CIN, s.BLOCK_N)),
    cases=(
        # one program, one block of words
        _case(K=128, COUT=32, CIN=64, BITS=2, GROUP=64, BLOCK_M=32, BLOCK_N=64),
        # several blocks on every axis, all full; two tiles per group
        _case(K=128, COUT=32, CIN=96, BITS=4, GROUP=64, BLOCK_M=16, BLOCK_N=32),
        # ragged on every axis
        _case(K=83, COUT=45, CIN=91, BITS=8, GROUP=64, BLOCK_M=32, BLOCK_N=64),
        # one bit a code; a last group shorter than a tile
        _case(K=40, COUT=20, CIN=75, BITS=1, GROUP=64, BLOCK_M=32, BLOCK_N=64),
        # numbers that float16 can't hold; one row in the last block of words
        _case(K=129, COUT=18, CIN=40, BITS=2, GROUP=32, BLOCK_M=32, BLOCK_N=32, most=20),
        # fewer rows and columns than a block
        _case(K=5, COUT=3, CIN=5, BITS=4, GROUP=16, BLOCK_M=16, BLOCK_N=16),
        # a tile as large as in the chapter's comparison
        _case(K=128, COUT=128, CIN=128, BITS=2, GROUP=256, BLOCK_M=128, BLOCK_N=128),
    ),
    outputs=("dw",),
    slips=ALONG_K_SLIPS,
    hard={
        BY_RECIPROCAL.replace("41", "656"): (
            _case(K=16, COUT=1, CIN=672, BITS=8, GROUP=656, BLOCK_M=16, BLOCK_N=16)
        ),
        LONG_GROUP: _case(K=16, COUT=1, CIN=4112, BITS=8, GROUP=4112, BLOCK_M=16, BLOCK_N=16),
        VANISHING: _case(K=5, COUT=3, CIN=5, BITS=4, GROUP=16, BLOCK_M=16, BLOCK_N=16, times=TINY),
    },
    contract=Contract(
        {
            "COUT": Size(300),
            "K": Size(600),
            "CIN": Size(300),
            "BITS": lambda s: (8,) if s.K > 129 else (2, 4, 8),  # 32 rows per block of words; 1 bit is slow
            "BLOCK_M": (64, 128),
            "BLOCK_N": (64, 128),
            "GROUP": lambda s: (s.BLOCK_N, 3 * s.BLOCK_N),
        },
        fills=_fills,
        most_programs=2,
    ),
    machine=(Goal(cases=(6,), wants=(_HALVES, Want("moves", most=0), Want("busy", least=0.5))),),
)  # fmt: skip

PUZZLES = (FUSED_DW, BUSY_DW, SPLIT_K, TWO_PROGRAMS, PACKED_ALONG_K)
