"""Chapter 10: groups of values to scale, minimum and packed codes, and back."""

from collections.abc import Callable, Sequence

import torch
import triton
from jaxtyping import BFloat16, Int32, UInt8
from torch import Tensor

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import BY_RECIPROCAL, LONG_GROUP
from puzzles_lib.chapters.ch09_bit_packing.puzzles import PACK_SLIPS, pack_bits, unpack_bits
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import EVEN, all_bits_set, far_apart, whole
from puzzles_lib.puzzle import Case, Puzzle

MARGIN = 1 / 64  # of a code step: far more than the error of float32 arithmetic on codes up to 255


def quantize_codes(
    x: BFloat16[Tensor, "M N"], BITS: int, GROUP: int
) -> tuple[
    UInt8[Tensor, "M N"],
    BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
]:
    """codes, scale, minimum; element n of a row is in group g = n // GROUP

    scale[m, g] = (max - min) / (2^BITS - 1), rounded to bfloat16; 1 if max = min.
    codes[m, n] is from 0 to 2^BITS - 1. It brings
    minimum[m, g] + scale[m, g] * codes[m, n] as near to x[m, n] as possible.
    Of two such codes, it's the even one.
    GROUP is a power of two and a multiple of 32 // BITS. A row's last group may be
    short.
    """
    return nearest_levels(x.bfloat16().double(), BITS, GROUP)  # exact otherwise


def nearest_levels(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return codes, scales and minima of x, as `quantize_codes` does; x: float64, [M, N]."""
    last = x[:, -1:].expand(-1, -x.shape[1] % GROUP)  # changes no minimum, no maximum
    groups = torch.cat([x, last], 1).unflatten(1, (-1, GROUP))  # [M, G, GROUP]
    minimum, maximum = groups.aminmax(dim=2)  # [M, G]
    scale = ((maximum - minimum) / (2**BITS - 1)).bfloat16()
    scale = torch.where(maximum == minimum, 1.0, scale)
    codes = (groups - minimum[:, :, None]) / scale[:, :, None]
    codes = codes.round().clamp(0, 2**BITS - 1).to(torch.uint8)
    return codes.flatten(1)[:, : x.shape[1]], scale, minimum


def _with_a_slip(
    x: Tensor,
    BITS: int,
    GROUP: int,
    *,
    steps: Callable[[int], int] = lambda BITS: 2**BITS - 1,
    stored: bool = True,
    rounding: Callable[[Tensor], Tensor] = torch.round,
    from_minimum: bool = True,
    zero_scale: bool = False,
    tested: Callable[[Tensor, Tensor], Tensor] = lambda between, maximum: between,
    added: float = 0.0,
    zeros: Sequence[str] = (),
    padding: float = 0.0,
    spread: Callable[[Tensor, Tensor], Tensor] = torch.sub,
    top: Callable[[int], float] = lambda BITS: 2**BITS - 1,
    divides: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `quantize_codes` gives with a slip.

    steps: between minimum and maximum, from BITS. stored: whether codes come from the stored scale.
    rounding: of steps to codes. from_minimum: whether steps are counted from the minimum. zero_scale: whether
    constant groups have the scale 0. tested: what is 0 in groups with the scale 1, from the spread and the
    maximum. added: to each scale. zeros: "minimum" or "maximum", for which lanes past the end count as
    `padding`. spread: of the maximum and the minimum. top: the highest code, from BITS.
    divides: whether steps are divided by the scale.
    """
    x = x.bfloat16().float()  # rounds as a kernel does
    last = x[:, -1:].expand(-1, -x.shape[1] % GROUP)  # changes no minimum, no maximum
    groups = torch.cat([x, last], 1).unflatten(1, (-1, GROUP))  # [M, G, GROUP]
    minimum, maximum = groups.aminmax(dim=2)  # [M, G]
    padded = torch.cat([x, torch.full_like(last, padding)], 1).unflatten(1, (-1, GROUP))
    minimum = padded.amin(2) if "minimum" in zeros else minimum
    maximum = padded.amax(2) if "maximum" in zeros else maximum
    between = spread(maximum, minimum)
    exact = between / steps(BITS) + added
    exact = exact if zero_scale else torch.where(tested(between, maximum) == 0, 1.0, exact)
    scale = exact.bfloat16()
    divisor = scale.float() if stored else exact
    above = groups - minimum[:, :, None] if from_minimum else groups
    divisor = divisor if divides else 1 / divisor
    codes = rounding(above / divisor[:, :, None]).nan_to_num(2**BITS - 1)  # tl.minimum drops NaN
    codes = codes.clamp(max=top(BITS)).to(torch.int32)
    return codes.flatten(1)[:, : x.shape[1]], scale, minimum


CODE_SLIPS: dict[str, Callable] = {
    "you'd get these codes from the exact scale: round it to bfloat16 before you divide": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, stored=False)
    ),
    "you'd get these codes by rounding halves down: they go to the even code": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, rounding=lambda s: (s - 0.5).ceil())
    ),
    "you'd get these codes by cutting off the fraction instead of rounding": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, rounding=torch.floor)
    ),
    "you'd get these codes by rounding halves up: they go to the even code": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, rounding=lambda s: (s + 0.5).floor())
    ),
    "you'd get these codes from 2^BITS steps: from the minimum to the maximum there are 2^BITS - 1": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, steps=lambda BITS: 2**BITS)
    ),
    "you'd get these codes from BITS steps: from the minimum to the maximum there are 2^BITS - 1": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, steps=lambda BITS: BITS)
    ),
    "you'd get these codes from 1 << BITS - 1 steps: `-` binds tighter than `<<`, so write (1 << BITS) - 1": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, steps=lambda BITS: 1 << BITS - 1)
    ),
    "you'd get these codes from max / (2^BITS - 1): the steps cover max - min": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, spread=lambda high, low: high)
    ),
    "you'd get these codes from (x - minimum) * scale: divide by the scale to count the steps": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, divides=False)
    ),
    "you'd get these codes if every row took the values of row 0: row `row` begins at row * N": (
        lambda x, BITS, GROUP: _with_a_slip(x[:1].expand_as(x), BITS, GROUP)
    ),
    "you'd get these codes if they ended at 2^BITS - 2: the highest is 2^BITS - 1": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, top=lambda BITS: max(2**BITS - 2, 1))
    ),
    "you'd get these codes if every group had the scale 1, which only max = min should get": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, spread=lambda high, low: low - low)
    ),
    "you'd get these codes if the scale came from max + min: the steps cover max - min": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, spread=torch.add)
    ),
    "you'd get these codes from x / scale: count the steps from the minimum": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, from_minimum=False)
    ),
    "you'd get these codes by adding and subtracting 2^24: float32 numbers there are 2 apart": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, rounding=lambda s: (s + 2.0**24) - 2.0**24)
    ),
    "you'd get this from a scale with 1e-6 added, or of at least 1e-6: only a constant group needs another "
    "scale, and that's 1": (lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zero_scale=True, added=1e-6)),
    "you'd get these codes if a constant group had the scale 0: 0 / 0 is NaN, so give it the scale 1": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zero_scale=True)
    ),
    "you'd get these codes if only groups with max = 0 had the scale 1: give it where max = min": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, tested=lambda between, maximum: maximum)
    ),
    "you'd get this if lanes past the end of a row counted as 0 in the minimum": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zeros=("minimum",))
    ),
    "you'd get this if lanes past the end of a row counted as 0 in the maximum": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zeros=("maximum",))
    ),
    "you'd get this if lanes past the end of a row counted as 0 in the minimum and the maximum": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zeros=("minimum", "maximum"))
    ),
    "you'd get this if lanes past the end of a row counted as +inf in the maximum": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zeros=("maximum",), padding=float("inf"))
    ),
    "you'd get this if lanes past the end of a row counted as -inf in the minimum": (
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, zeros=("minimum",), padding=float("-inf"))
    ),
}
"""Wrong codes that are often seen, by what the report says about them."""


def _in_bytes(slip: Callable) -> Callable:
    """Return a slip of `quantize_codes` with codes as a GPU casts them to uint8: 0 for a negative one."""

    def cast(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
        codes, scale, minimum = slip(x, BITS, GROUP)
        return codes.clamp(min=0).to(torch.uint8), scale, minimum

    return cast


def _cut_to_bytes(slip: Callable) -> Callable:
    """Return a slip of `quantize_codes` with int32 codes stored in uint8, which keeps their low 8 bits."""

    def cut(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
        codes, scale, minimum = slip(x, BITS, GROUP)
        return (codes & 255).to(torch.uint8), scale, minimum

    return cut


def _packed(slip: Callable) -> Callable:
    """Return a slip of `quantize_codes` as one of `quantize_pack`."""

    def pack(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
        codes, scale, minimum = slip(x, BITS, GROUP)
        return pack_bits(codes, BITS), scale, minimum  # a code of 2^BITS spills into the next field

    return pack


def _repacked(slip: Callable) -> Callable:
    """Return a slip of `pack_bits` as one of `quantize_pack`."""

    def pack(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
        codes, scale, minimum = quantize_codes(x, BITS, GROUP)
        return slip(codes, BITS), scale, minimum

    return pack


def _across(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words of `quantize_pack` whose codes are GROUP // F places apart."""
    codes, scale, minimum = quantize_codes(x, BITS, GROUP)
    fields, words = 32 // BITS, -(-codes.shape[1] * BITS // 32)
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % GROUP)).int()
    groups = padded.unflatten(1, (-1, fields, GROUP // fields))  # [M, G, F, GROUP // F]
    shifts = BITS * torch.arange(fields, dtype=torch.int32)
    packed = (groups << shifts[:, None]).sum(2, dtype=torch.int32)
    return packed.flatten(1)[:, :words], scale, minimum


def _zeros_encoded(
    x: Tensor, BITS: int, GROUP: int, zeros: Sequence[str] = ()
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the words of `quantize_pack` with the code of 0 in the fields past the end of a row.

    zeros: "minimum" or "maximum", for which lanes past the end count as 0.
    """
    codes, scale, minimum = _with_a_slip(x, BITS, GROUP, zeros=zeros)
    of_zero = ((0.0 - minimum[:, -1:]) / scale[:, -1:]).round().clamp(max=2**BITS - 1)
    spare = -codes.shape[1] % (32 // BITS)
    of_zero = of_zero.to(torch.int32).expand(-1, spare)
    return pack_bits(torch.cat([codes.int(), of_zero], 1), BITS), scale, minimum


WORD_SLIPS = (
    {
        text.replace("these codes", "the codes in these words"): _packed(slip)
        for text, slip in CODE_SLIPS.items()
    }
    | {
        text: _repacked(slip)
        for text, slip in PACK_SLIPS.items()
        if "BLOCK_W" not in text and "n = " not in text
    }
    | {
        "you'd get these words if no code were clamped: 2^BITS spills into the field above": _packed(
            lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, top=lambda BITS: float("inf"))
        ),
        "you'd get these words from a reshape to (BLOCK_G, F, GROUP // F): a word's codes are neighbors, "
        "so F comes last": _across,
        "you'd get these words with the code of 0 in the fields past the end of a row: they must be 0": (
            _zeros_encoded
        ),
        "you'd get these words if lanes past the end of a row counted as 0 in the minimum and the maximum, "
        "and the code of 0 were packed": (
            lambda x, BITS, GROUP: _zeros_encoded(x, BITS, GROUP, zeros=("minimum", "maximum"))
        ),
    }
)


def quantize_pack(
    x: BFloat16[Tensor, "M N"], BITS: int, GROUP: int
) -> tuple[
    Int32[Tensor, " M (N*BITS+31)//32"],
    BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
]:
    """words, scale, minimum

    The codes, scales and minima of puzzle 15a, with the codes packed into words as in
    puzzle 13: if a row ends within a word, the fields past its end are 0.
    """
    codes, scale, minimum = quantize_codes(x, BITS, GROUP)
    return pack_bits(codes, BITS), scale, minimum


# ---- data whose codes don't depend on how a correct kernel orders its float32 operations
#
# Codes and words are compared exactly, so a value that may be rounded either way must not occur.
# `off_ties` keeps every code MARGIN away from a tie, and every scale away from the middle between two
# bfloat16 numbers. In `on_ties` and `past_the_top`, scales are powers of two and values are multiples of
# half or a quarter of a scale, so differences, quotients and products are exact in float32.


def off_ties(BITS: int, GROUP: int) -> Callable:
    """Return a fill with normal values around a value of each group; no code is within `MARGIN` of a tie."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        around = 4 * torch.randn(shape[0], triton.cdiv(shape[1], GROUP), generator=generator)
        x = torch.randn(shape, generator=generator) + around[:, torch.arange(shape[1]) // GROUP]
        return _moved_off_ties(x.to(dtype), BITS, GROUP)

    fill.__name__ = "off_ties"
    return fill


def tiny_off_ties(BITS: int, GROUP: int) -> Callable:
    """Return `off_ties` divided by 2^112: groups have a spread of about 1e-33."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return off_ties(BITS, GROUP)(shape, dtype, generator) * 2.0**-112

    fill.__name__ = "tiny_off_ties"
    return fill


def some_constant(BITS: int, GROUP: int) -> Callable:
    """Return a fill like `off_ties`, but in every other group all values are equal, in some of them 0."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        x = torch.randn(shape, generator=generator).to(dtype)
        rows, groups = torch.arange(shape[0])[:, None], torch.arange(shape[1])[None, :] // GROUP
        x = torch.where((rows + groups) % 2 == 0, x[:, :1] + groups, x)
        return _moved_off_ties(torch.where((rows + groups) % 4 == 0, 0.0, x).to(dtype), BITS, GROUP)

    fill.__name__ = "some_constant"
    return fill


def on_ties(BITS: int, GROUP: int) -> Callable:
    """Return a fill with as many half codes as whole ones; scales are powers of two. BITS is at most 4."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        halves = torch.randint(2 ** (BITS + 1) - 1, shape, generator=generator)  # twice the code
        halves[:, ::GROUP] = 0
        halves[:, GROUP - 1 :: GROUP] = halves[:, -1] = 2 * (2**BITS - 1)
        groups = (shape[0], triton.cdiv(shape[1], GROUP))
        scale = 2.0 ** torch.randint(-20, 21, groups, generator=generator)
        offset = torch.randint(-16, 17, groups, generator=generator)
        group = torch.arange(shape[1]) // GROUP
        return (scale[:, group] * (offset[:, group] + halves / 2)).to(dtype)

    fill.__name__ = "on_ties"
    return fill


def on_ties_of_bytes(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return whole and half codes of 8 bits, up to 127.5, in groups of 64 with a scale of 1."""
    x = torch.randint(256, shape, generator=generator) / 2
    x[:, ::64], x[:, 63::64] = 0.0, 255.0
    return x.to(dtype)


def past_the_top(GROUP: int) -> Callable:
    """Return a fill for 8 bits: scales are rounded down so far that the maximum would get code 256."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        x = torch.randint(256, shape, generator=generator).double()
        x[:, ::GROUP] = -0.75
        x[:, GROUP - 1 :: GROUP] = x[:, -1] = 255.0  # 255.75 / 255 is 1 in bfloat16
        groups = (shape[0], triton.cdiv(shape[1], GROUP))
        scale = 2.0 ** torch.randint(-20, 21, groups, generator=generator)
        return (scale[:, torch.arange(shape[1]) // GROUP] * x).to(dtype)

    fill.__name__ = "past_the_top"
    return fill


def positive(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return half the sizes of normal values: a scale is never negative."""
    return (torch.randn(shape, generator=generator).abs() / 2).to(dtype)


def positive_and_wide(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return the sizes of normal values times powers of two from 2^-20 to 2^20."""
    return wide(shape, dtype, generator).abs()


def wide(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values times powers of two from 2^-20 to 2^20."""
    exponents = torch.randint(-20, 21, shape, generator=generator)
    return (torch.randn(shape, generator=generator) * 2.0**exponents).to(dtype)


def _moved_off_ties(x: Tensor, BITS: int, GROUP: int) -> Tensor:
    """Return x with values too near a tie replaced by their group's minimum, until there are none left."""
    group = torch.arange(x.shape[1]) // GROUP
    while True:
        padded = torch.cat([x, x[:, -1:].expand(-1, -x.shape[1] % GROUP)], 1).double()
        minimum, maximum = padded.unflatten(1, (-1, GROUP)).aminmax(dim=2)  # [M, G]
        exact = (maximum - minimum) / (2**BITS - 1)
        scale = torch.where(maximum == minimum, 1.0, exact.bfloat16().double())
        beyond_bfloat16 = exact.float().view(torch.int32) & 0xFFFF
        unsure = ((beyond_bfloat16 - 0x8000).abs() < 16) & (maximum != minimum)
        codes = (x.double() - minimum[:, group]) / scale[:, group]
        near = (codes % 1 - 0.5).abs() < MARGIN
        near |= unsure[:, group] & (x == maximum[:, group])
        if not near.any():
            return x
        x = torch.where(near, minimum[:, group].to(x.dtype), x)


BYTE_SLIPS: dict[str, Callable] = {
    "you'd get these codes if they weren't clamped to 2^BITS - 1: a byte keeps 0 of 256": _cut_to_bytes(
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, top=lambda BITS: float("inf"))
    ),
    "you'd get these codes from x / scale, where a negative one has 256 added in a byte: count the steps "
    "from the minimum": _cut_to_bytes(
        lambda x, BITS, GROUP: _with_a_slip(x, BITS, GROUP, from_minimum=False)
    ),
}
"""Those that show only because a code is a byte."""

QUANTIZE_CODES = Puzzle(
    number="15a",
    spec=quantize_codes,
    formula=(
        r"\begin{gathered} \mathrm{scale}_{m, g} = \mathrm{bf16}\!\left("
        r"\frac{\max - \min}{2^{\mathrm{BITS}} - 1}\right)"
        r"\qquad g = \lfloor n / \mathrm{GROUP} \rfloor \\"
        r"\mathrm{minimum}_{m, g} + \mathrm{scale}_{m, g} \cdot \mathrm{code}_{m, n} \approx x_{m, n}"
        r" \end{gathered}"
    ),
    grid=lambda s: (s.M, triton.cdiv(triton.cdiv(s.N, s.GROUP), s.BLOCK_G)),
    cases=(
        # one program, one group, four words
        Case(M=1, N=32, BITS=4, GROUP=32, BLOCK_G=1, fill={"x": off_ties(4, 32)}),
        # several rows, two blocks each, all full; one word per group
        Case(M=3, N=128, BITS=2, GROUP=16, BLOCK_G=4, fill={"x": off_ties(2, 16)}),
        # ragged: the last block has two groups, the last group 11 codes, the last word three
        Case(M=3, N=91, BITS=8, GROUP=16, BLOCK_G=4, fill={"x": off_ties(8, 16)}),
        # 1-bit codes
        Case(M=2, N=150, BITS=1, GROUP=64, BLOCK_G=2, fill={"x": off_ties(1, 64)}),
        # steps like 0.5, 1.5 and 2.5
        Case(M=3, N=72, BITS=2, GROUP=32, BLOCK_G=2, fill={"x": on_ties(2, 32)}),
        # top codes that would be 256
        Case(M=2, N=48, BITS=8, GROUP=16, BLOCK_G=2, fill={"x": past_the_top(16)}),
        # groups without any spread; more groups per block than codes per group
        Case(M=3, N=128, BITS=4, GROUP=8, BLOCK_G=16, fill={"x": some_constant(4, 8)}),
        # rows shorter than a group
        Case(M=4, N=5, BITS=4, GROUP=16, BLOCK_G=2, fill={"x": off_ties(4, 16)}),
    ),
    outputs=("codes", "scale", "minimum"),
    exact=("scale", "minimum"),
    slips={text: _in_bytes(slip) for text, slip in CODE_SLIPS.items()} | BYTE_SLIPS,
    hard={
        "half a code goes to the even one, of 1-bit codes, too": (
            Case(M=1, N=128, BITS=1, GROUP=64, BLOCK_G=2, fill={"x": on_ties(1, 64)})
        ),
        "half a code goes to the even one, of 8-bit codes, too": (
            Case(M=1, N=128, BITS=8, GROUP=64, BLOCK_G=2, fill={"x": on_ties_of_bytes})
        ),
    },
    contract=Contract(
        {
            "M": Size(9),
            "N": Size(600),
            "BITS": (1, 2, 4, 8),
            "GROUP": lambda s: (256,) if s.N > 150 else (32 // s.BITS, 64),
            "BLOCK_G": (4, 32),
        },
        fills=lambda s: (
            {"x": off_ties(s.BITS, s.GROUP)},
            {"x": tiny_off_ties(s.BITS, s.GROUP)},
        ),
    ),
)  # fmt: skip

QUANTIZE_PACK = Puzzle(
    number="15b",
    spec=quantize_pack,
    formula=(
        r"\mathrm{words}_{m, w} = \sum_{i=0}^{F-1}"
        r"\mathrm{code}_{m, \, wF + i} \cdot 2^{\mathrm{BITS} \cdot i} \qquad F = 32 / \mathrm{BITS}"
    ),
    grid=QUANTIZE_CODES.grid,
    cases=QUANTIZE_CODES.cases,
    outputs=("words", "scale", "minimum"),
    exact=("scale", "minimum"),
    slips=WORD_SLIPS,
    hard=QUANTIZE_CODES.hard,
    contract=QUANTIZE_CODES.contract,
)


def unpack_dequantize(
    words: Int32[Tensor, " M (N*BITS+31)//32"],
    scale: BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    minimum: BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    N: int,
    BITS: int,
    GROUP: int,
) -> BFloat16[Tensor, "M N"]:
    """x[m, n] = minimum[m, g] + scale[m, g] · code[m, n], where g = n // GROUP

    code[m, n] is field n % F of words[m, n // F], F = 32 // BITS, as in puzzle 14.
    Round the result only once, to bfloat16. GROUP is a multiple of F. For each word,
    load one word, one scale and one minimum.
    """
    codes = unpack_bits(words, N, BITS)  # [M, N]
    g = torch.arange(N) // GROUP  # [N]
    minimum, scale = minimum.double(), scale.double()  # nothing is rounded here
    return minimum[:, g] + scale[:, g] * codes


def _words_of(case: Case) -> int:
    """Return the number of words in a case of puzzle 16."""
    return case.M * triton.cdiv(case.N * case.BITS, 32)


def _lanes_of(case: Case) -> int:
    """Return the number of lanes that hold a case's words: those past the end of a row count, too."""
    return case.M * triton.cdiv(case.N * case.BITS, 32 * case.BLOCK_W) * case.BLOCK_W


def _with_groups(words: Tensor, scale: Tensor, minimum: Tensor, N: int, BITS: int, group: Callable) -> Tensor:
    """Return what `unpack_dequantize` gives if word w has the scale and the minimum of group(w)."""
    codes = unpack_bits(words, N, BITS)  # [M, N]
    g = group(torch.arange(N) // (32 // BITS)).clamp(max=scale.shape[1] - 1)  # [N]
    return minimum.double()[:, g] + scale.double()[:, g] * codes


def _rows_of_groups(words: Tensor, scale: Tensor, minimum: Tensor, N: int, BITS: int, GROUP: int) -> Tensor:
    """Return what `unpack_dequantize` gives if rows of scales and minima are taken to be N // GROUP long."""
    codes = unpack_bits(words, N, BITS)  # [M, N]
    places = torch.arange(len(words))[:, None] * (N // GROUP) + torch.arange(N) // GROUP  # [M, N]
    places = places.clamp(max=scale.numel() - 1)
    return minimum.double().flatten()[places] + scale.double().flatten()[places] * codes


VALUE_SLIPS: dict[str, Callable] = {
    "you'd get these values if every word had the scale and the minimum of group 0: how many words does "
    "a group have?": (
        lambda words, scale, minimum, N, BITS, GROUP: _with_groups(
            words, scale, minimum, N, BITS, lambda w: w * 0
        )
    ),
    "you'd get these values if word w had the scale and the minimum of group w % G: all words of a group are "
    "neighbors, so divide": (
        lambda words, scale, minimum, N, BITS, GROUP: _with_groups(
            words, scale, minimum, N, BITS, lambda w: w % scale.shape[1]
        )
    ),
    "you'd get these values if word w had the scale and the minimum of group w: how many words does a group "
    "have?": (
        lambda words, scale, minimum, N, BITS, GROUP: _with_groups(
            words, scale, minimum, N, BITS, lambda w: w
        )
    ),
    "you'd get these values from codes that are 1 too high: code 0 is the minimum": (
        lambda words, scale, minimum, N, BITS, GROUP: unpack_dequantize(
            words, scale, minimum.double() + scale.double(), N, BITS, GROUP
        )
    ),
    "you'd get these values without the minimum": (
        lambda words, scale, minimum, N, BITS, GROUP: unpack_dequantize(
            words, scale, minimum * 0, N, BITS, GROUP
        )
    ),
    "you'd get these values from (minimum + scale) * code: the minimum isn't multiplied": (
        lambda words, scale, minimum, N, BITS, GROUP: unpack_dequantize(
            words, scale.double() + minimum.double(), minimum * 0, N, BITS, GROUP
        )
    ),
    "you'd get these values with scale and minimum swapped": (
        lambda words, scale, minimum, N, BITS, GROUP: unpack_dequantize(words, minimum, scale, N, BITS, GROUP)
    ),
    "you'd get these values if a row had N // GROUP scales: a short last group has one, too": _rows_of_groups,
}
"""Wrong values that are often seen, by what the report says about them."""


UNPACK_DEQUANTIZE = Puzzle(
    number="16",
    spec=unpack_dequantize,
    formula=(
        r"x_{m, n} = \mathrm{bf16}\!\left(\mathrm{minimum}_{m, g}"
        r"+ \mathrm{scale}_{m, g} \cdot \mathrm{code}_{m, n}\right)"
        r"\qquad g = \lfloor n / \mathrm{GROUP} \rfloor"
    ),
    grid=lambda s: (s.M, triton.cdiv(s.N * s.BITS, 32 * s.BLOCK_W)),
    cases=(
        # one program, four words, one group
        Case(M=1, N=32, BITS=4, GROUP=32, BLOCK_W=4, fill={"scale": positive}),
        # several rows, two blocks each, all full; one group per word
        Case(M=3, N=128, BITS=2, GROUP=16, BLOCK_W=4, fill={"scale": positive}),
        # ragged: the last block has seven words, the last group 11 codes, the last word three
        Case(M=3, N=91, BITS=8, GROUP=16, BLOCK_W=16, fill={"scale": positive}),
        # 1-bit codes: the sign bit is a code; numbers too large for float16
        Case(M=2, N=150, BITS=1, GROUP=64, BLOCK_W=2, fill={"scale": positive_and_wide, "minimum": wide}),
        # groups of three words
        Case(M=2, N=100, BITS=4, GROUP=24, BLOCK_W=4, fill={"scale": positive}),
        # every code is the highest; the last group of a row has all its words
        Case(M=2, N=90, BITS=2, GROUP=32, BLOCK_W=4, fill={"words": all_bits_set, "scale": positive}),
        # rows shorter than a group
        Case(M=4, N=5, BITS=4, GROUP=16, BLOCK_W=2, fill={"scale": positive}),
    ),
    outputs=("x",),
    most_loads={"words": _words_of, "scale": _lanes_of, "minimum": _lanes_of},
    slips=VALUE_SLIPS,
    hard={
        BY_RECIPROCAL.replace("41", "164"): (
            Case(M=2, N=10496, BITS=8, GROUP=164, BLOCK_W=128, fill={"scale": positive})
        ),
        LONG_GROUP: Case(M=2, N=4104, BITS=8, GROUP=4104, BLOCK_W=128, fill={"scale": positive}),
        EVEN: Case(
            M=2, N=64, BITS=8, GROUP=32, BLOCK_W=16, fill={"scale": whole(1, 3), "minimum": whole(200, 255)}
        ),
    },
    contract=Contract(
        {
            "M": Size(9),
            "N": Size(1100),
            "BITS": (1, 2, 4, 8),
            "GROUP": lambda s: (256, 320) if s.N > 150 else (32 // s.BITS, 96),
            "BLOCK_W": (8, 64, 128),
        },
        fills=lambda s: ({"scale": positive}, {"scale": far_apart, "minimum": far_apart}),
    ),
)

PUZZLES = (QUANTIZE_CODES, QUANTIZE_PACK, UNPACK_DEQUANTIZE)
