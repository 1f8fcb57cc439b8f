"""Chapter 09: codes of 1, 2, 4 or 8 bits into int32 words, and back."""

from collections.abc import Callable

import torch
import triton
from jaxtyping import Int32, UInt8
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import all_bits_set
from puzzles_lib.puzzle import Case, Puzzle


def below(limit: int) -> Callable:
    """Return a fill with the codes 0 to limit - 1, all equally likely."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(limit, shape, dtype=dtype, generator=generator)

    fill.__name__ = f"below_{limit}"
    return fill


def always(code: int) -> Callable:
    """Return a fill with one code everywhere."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return torch.full(shape, code, dtype=dtype)

    fill.__name__ = f"always_{code}"
    return fill


def no_sign_bit(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return random words with bit 31 off."""
    return torch.randint(2**31, shape, generator=generator).to(dtype)


ENDS = {"N": "columns n with N", "(N*BITS+31)//32": "words offs_w with W"}
"""What ends a row of codes and a row of words."""


def pack_bits(
    codes: UInt8[Tensor, "M N"],
    BITS: int,
) -> Int32[Tensor, " M (N*BITS+31)//32"]:
    """words[m, w] = sum over i of codes[m, w · F + i] · 2^(BITS · i), as an int32

    F is 32 // BITS. Field i of a word is its bits BITS · i to BITS · (i + 1) - 1.
    BITS is 1, 2, 4 or 8, and every code is below 2^BITS. If a row ends within a word,
    the fields past its end are 0.
    """
    fields = 32 // BITS
    spare = -codes.shape[1] % fields
    padded = torch.nn.functional.pad(codes, (0, spare)).long()  # [M, W · F]
    factors = 2 ** (BITS * torch.arange(fields))
    return (padded.unflatten(1, (-1, fields)) * factors).sum(2).to(torch.int32)


def _by_word(codes: Tensor, BITS: int) -> Tensor:
    """Return the codes as int32, one row per word, with zeros past the end: [M, W, F]."""
    fields = 32 // BITS
    padded = torch.nn.functional.pad(codes, (0, -codes.shape[1] % fields)).int()
    return padded.unflatten(1, (-1, fields))


def _up(codes: Tensor, BITS: int) -> Tensor:
    shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
    return (_by_word(codes, BITS) << shifts).sum(2, dtype=torch.int32)


def _down(codes: Tensor, BITS: int) -> Tensor:
    shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
    return (_by_word(codes, BITS) >> shifts).sum(2, dtype=torch.int32)


def _from_the_top(codes: Tensor, BITS: int) -> Tensor:
    shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
    return (_by_word(codes, BITS) << shifts.flip(0)).sum(2, dtype=torch.int32)


def _by_number(codes: Tensor, BITS: int) -> Tensor:
    shifts = torch.arange(32 // BITS, dtype=torch.int32)
    return (_by_word(codes, BITS) << shifts).sum(2, dtype=torch.int32)


def _loaded_below_the_words(codes: Tensor, BITS: int) -> Tensor:
    """Return the words of codes that are loaded with the mask of the words, n < W."""
    words = -(-codes.shape[1] * BITS // 32)
    return _up(torch.where(torch.arange(codes.shape[1]) < words, codes, 0), BITS)


def _rows_of_words(codes: Tensor, BITS: int) -> Tensor:
    """Return the words of codes whose rows are taken to be as long as rows of words."""
    M, N = codes.shape
    words = -(-N * BITS // 32)
    places = torch.arange(M)[:, None] * words + torch.arange(N)[None, :]
    return _up(codes.flatten()[places], BITS)


def _tile_of(codes: Tensor, BITS: int, place: Callable) -> Tensor:
    """Return words with code place(w, i) in field i of word w, and zeros past the end of a row."""
    N, fields = codes.shape[1], 32 // BITS
    n = place(torch.arange(-(-N // fields))[:, None], torch.arange(fields))  # [W, F]
    lanes = torch.where(n < N, codes[:, n.clamp(max=N - 1)].int(), 0)  # [M, W, F]
    return (lanes << BITS * torch.arange(fields, dtype=torch.int32)).sum(2, dtype=torch.int32)


def _combined(codes: Tensor, BITS: int, combine: Callable) -> Tensor:
    """Return the sum of combine(code, i) over the fields i of a word."""
    fields = torch.arange(32 // BITS, dtype=torch.int32)
    return combine(_by_word(codes, BITS), fields).sum(2, dtype=torch.int32)


def _padded_with(codes: Tensor, BITS: int, value: int) -> Tensor:
    """Return the words of codes with this value in each lane past the end of a row."""
    padded = torch.nn.functional.pad(codes.int(), (0, -codes.shape[1] % (32 // BITS)), value=value)
    return _up(padded, BITS)


def _first_row(codes: Tensor, BITS: int) -> Tensor:
    return _up(codes[:1].expand_as(codes), BITS)


PACK_SLIPS: dict[str, Callable] = {
    "you'd get these words from >> instead of <<": _down,
    "you'd get these words with field 0 at the top: it's the lowest BITS bits": _from_the_top,
    "you'd get these words from a shift by i: field i begins at bit BITS * i": _by_number,
    "you'd get these words if only codes with n < W were loaded: a row has N codes": _loaded_below_the_words,
    "you'd get these words if a row of codes began at row * W: it has N codes": _rows_of_words,
    "you'd get these words if every row took the codes of row 0: row `row` begins at row * N": _first_row,
    "you'd get these words if a row of the tile had BITS codes: it has F": (
        lambda codes, BITS: _tile_of(codes, BITS, lambda w, i: w * BITS + i)
    ),
    "you'd get these words if a row of the tile had 8 codes: it has F": (
        lambda codes, BITS: _tile_of(codes, BITS, lambda w, i: w * 8 + i)
    ),
    "you'd get these words if a row of the tile had BLOCK_W codes: it has F": (
        lambda codes, BITS, BLOCK_W: _tile_of(codes, BITS, lambda w, i: w * BLOCK_W + i)
    ),
    "you'd get these words from n = w + i: word w begins at code w * F": (
        lambda codes, BITS: _tile_of(codes, BITS, lambda w, i: w + i)
    ),
    "you'd get these words from n = i * F + w: a word's codes are neighbors, so i moves n by 1": (
        lambda codes, BITS: _tile_of(codes, BITS, lambda w, i: i * (32 // BITS) + w)
    ),
    "you'd get these words from n = i * W + w: a word's codes are neighbors, so i moves n by 1": (
        lambda codes, BITS: _tile_of(codes, BITS, lambda w, i: i * (-(-codes.shape[1] * BITS // 32)) + w)
    ),
    "you'd get these words from a sum without a shift: all codes went to field 0": (
        lambda codes, BITS: _combined(codes, BITS, lambda code, i: code)
    ),
    "you'd get these words from codes * BITS * i: field i needs a shift, which is a factor of 2^(BITS * i)": (
        lambda codes, BITS: _combined(codes, BITS, lambda code, i: code * BITS * i)
    ),
    "you'd get these words from a shift by BITS: field i begins at bit BITS * i": (
        lambda codes, BITS: _combined(codes, BITS, lambda code, i: code << BITS)
    ),
    "you'd get these words from a sum of int8, which has only 8 bits: convert the codes to int32": (
        lambda codes, BITS: _up(codes, BITS).to(torch.int8).int()
    ),
    "you'd get these words from the largest of the shifted codes: add them up": (
        lambda codes, BITS: (_by_word(codes, BITS) << BITS * torch.arange(32 // BITS).int()).amax(2)
    ),
    "you'd get these words with ones in the fields past the end of a row: they must be 0": (
        lambda codes, BITS: _padded_with(codes, BITS, 1)
    ),
    "you'd get these words with -1 past the end of a row, 255 in a byte: the fields there must be 0": (
        lambda codes, BITS: _padded_with(codes, BITS, 255)
    ),
    "you'd get these words if codes from 128 up were negative, as they are in int8": (
        lambda codes, BITS: _combined(codes.to(torch.int8), BITS, lambda code, i: code << BITS * i)
    ),
}
"""Wrong words that are often seen, by what the report says about them."""


PACK_BITS = Puzzle(
    number="13",
    spec=pack_bits,
    formula=(
        r"\mathrm{words}_{m, w} = \sum_{i=0}^{F-1}"
        r"\mathrm{codes}_{m, \, wF + i} \cdot 2^{\mathrm{BITS} \cdot i} \qquad F = 32 / \mathrm{BITS}"
    ),
    grid=lambda s: (s.M, triton.cdiv(s.N * s.BITS, 32 * s.BLOCK_W)),
    cases=(
        # one program, four words
        Case(M=1, N=64, BITS=2, BLOCK_W=4, fill={"codes": below(4)}),
        # several rows, two blocks each, all full
        Case(M=3, N=128, BITS=4, BLOCK_W=8, fill={"codes": below(16)}),
        # ragged: the last block has two words, the last word one code
        Case(M=3, N=37, BITS=8, BLOCK_W=8),
        # 1-bit codes
        Case(M=2, N=75, BITS=1, BLOCK_W=2, fill={"codes": below(2)}),
        # every bit is set except past the end
        Case(M=2, N=83, BITS=2, BLOCK_W=4, fill={"codes": always(3)}),
        # rows shorter than a word
        Case(M=4, N=5, BITS=4, BLOCK_W=2, fill={"codes": below(16)}),
    ),
    outputs=("words",),
    ends=ENDS,
    slips=PACK_SLIPS,
    contract=Contract(
        {"M": Size(9), "N": Size(1100), "BITS": (1, 2, 4, 8), "BLOCK_W": (8, 64, 128)},
        fills=lambda s: ({"codes": below(2**s.BITS)},),
    ),
)


def unpack_bits(
    words: Int32[Tensor, " M (N*BITS+31)//32"],
    N: int,
    BITS: int,
) -> UInt8[Tensor, "M N"]:
    """codes[m, n] = field n % F of words[m, n // F], F = 32 // BITS

    The words are those of puzzle 13, except that the fields past the end of a row can
    contain anything. Load each word only once.
    """
    unsigned = words.long() % 2**32  # [M, W]
    factors = 2 ** (BITS * torch.arange(32 // BITS))
    codes = unsigned[:, :, None] // factors % 2**BITS  # [M, W, F]
    return codes.flatten(1)[:, :N].to(torch.uint8)


def _fields(words: Tensor, N: int, BITS: int, mask: int, top_first: bool = False) -> Tensor:
    """Return the codes of `unpack_bits` with another mask, or with field 0 at the top."""
    shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
    shifts = shifts.flip(0) if top_first else shifts
    return ((words[:, :, None] >> shifts) & mask).flatten(1)[:, :N].to(torch.uint8)


def _by_number_of_field(words: Tensor, N: int, BITS: int) -> Tensor:
    shifts = torch.arange(32 // BITS, dtype=torch.int32)
    return ((words[:, :, None] >> shifts) & 2**BITS - 1).flatten(1)[:, :N].to(torch.uint8)


def _masked_first(words: Tensor, N: int, BITS: int) -> Tensor:
    """Return the codes of `unpack_bits` if the other fields are removed before the shift."""
    shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
    alone = words[:, :, None] & (torch.full_like(shifts, 2**BITS - 1) << shifts)
    return (alone >> shifts).flatten(1)[:, :N].to(torch.uint8)


def _up_and_down(words: Tensor, N: int, BITS: int) -> Tensor:
    """Return the codes of `unpack_bits` if each field is moved to the top of the word and then down."""
    shifts = 32 - BITS - BITS * torch.arange(32 // BITS, dtype=torch.int32)
    return ((words[:, :, None] << shifts) >> 32 - BITS).flatten(1)[:, :N].to(torch.uint8)


def _remainders(words: Tensor, N: int, BITS: int, divided: bool = False, masked: bool = False) -> Tensor:
    """Return the codes of `unpack_bits` by the remainder of C, after a shift or a division of C.

    masked: whether & takes out the field after all.
    """
    shifts = BITS * torch.arange(32 // BITS, dtype=torch.int32)
    wide = words[:, :, None]
    if divided:
        fields = torch.div(wide, torch.ones_like(shifts) << shifts, rounding_mode="trunc")
    else:
        fields = wide >> shifts
    codes = fields & (2**BITS - 1) if masked else torch.fmod(fields, 2**BITS)
    return codes.flatten(1)[:, :N].to(torch.uint8)


UNPACK_SLIPS: dict[str, Callable] = {
    "you'd get these codes from & 15, which keeps 4 bits: keep BITS of them": (
        lambda words, N, BITS: _fields(words, N, BITS, 15)
    ),
    "you'd get these codes if every row took the words of row 0: row `row` begins at row * W": (
        lambda words, N, BITS: unpack_bits(words[:1].expand_as(words), N, BITS)
    ),
    "you'd get these codes from a shift without &": lambda words, N, BITS: _fields(words, N, BITS, -1),
    "you'd get these codes from & 1 << BITS - 1: `-` binds tighter than `<<`, so write (1 << BITS) - 1": (
        lambda words, N, BITS: _fields(words, N, BITS, 1 << BITS - 1 if BITS != 2 else 3)
    ),
    "you'd get these codes from & BITS: the mask of the lowest bits is (1 << BITS) - 1": (
        lambda words, N, BITS: _fields(words, N, BITS, BITS if BITS != 2 else 3)
    ),
    "you'd get these codes from & 2, which is both BITS and 1 << BITS - 1 here: write (1 << BITS) - 1": (
        lambda words, N, BITS: _fields(words, N, BITS, 2 if BITS == 2 else 2**BITS - 1)
    ),
    "you'd get these codes from a shift by i: field i begins at bit BITS * i": _by_number_of_field,
    "you'd get these codes from & before >>: a field with bit 31 is negative, and >> copies its sign": (
        _masked_first
    ),
    "you'd get these codes from << and then >>: a field whose highest bit is 1 then comes back negative": (
        _up_and_down
    ),
    "you'd get these codes if only the lowest 8 bits of a word were kept before the shift": (
        lambda words, N, BITS: unpack_bits(words & 255, N, BITS)
    ),
    "you'd get these codes from & (1 << BITS): the mask of the lowest bits is (1 << BITS) - 1": (
        lambda words, N, BITS: _fields(words, N, BITS, 1 << BITS)
    ),
    "you'd get these codes by reading the fields from the top: field 0 is the lowest BITS bits": (
        lambda words, N, BITS: _fields(words, N, BITS, 2**BITS - 1, top_first=True)
    ),
    "you'd get these codes from %: if the shifted word is negative, so is the remainder": (
        lambda words, N, BITS: _remainders(words, N, BITS)
    ),
    "you'd get these codes from // and %: // rounds negative words up, >> rounds them down": (
        lambda words, N, BITS: _remainders(words, N, BITS, divided=True)
    ),
    "you'd get these codes from // instead of >>: // rounds negative words up, >> rounds them down": (
        lambda words, N, BITS: _remainders(words, N, BITS, divided=True, masked=True)
    ),
}
"""Wrong codes that are often seen, by what the report says about them."""


UNPACK_BITS = Puzzle(
    number="14",
    spec=unpack_bits,
    formula=(
        r"\begin{gathered} \mathrm{codes}_{m, n} = \left\lfloor \frac{u_{m, \lfloor n / F \rfloor}}"
        r"{2^{\mathrm{BITS} \cdot (n \bmod F)}} \right\rfloor \bmod 2^{\mathrm{BITS}}"
        r"\\ F = 32 / \mathrm{BITS}, \; u = \mathrm{words} \text{ read without sign} \end{gathered}"
    ),
    grid=lambda s: (s.M, triton.cdiv(s.N * s.BITS, 32 * s.BLOCK_W)),
    cases=(
        # one program, four words, none negative
        Case(M=1, N=64, BITS=2, BLOCK_W=4, fill={"words": no_sign_bit}),
        # several rows, two blocks each, all full
        Case(M=3, N=128, BITS=4, BLOCK_W=8),
        # ragged: the last block has two words, the last word one code
        Case(M=3, N=37, BITS=8, BLOCK_W=8),
        # 1-bit codes: the sign bit is a field
        Case(M=2, N=75, BITS=1, BLOCK_W=2),
        # every bit is set, past the end as well
        Case(M=2, N=83, BITS=2, BLOCK_W=4, fill={"words": all_bits_set}),
        # rows shorter than a word
        Case(M=4, N=5, BITS=4, BLOCK_W=2),
    ),
    outputs=("codes",),
    most_loads={"words": lambda s: s.M * triton.cdiv(s.N * s.BITS, 32)},
    ends=ENDS,
    slips=UNPACK_SLIPS,
    contract=Contract({"M": Size(9), "N": Size(1100), "BITS": (1, 2, 4, 8), "BLOCK_W": (8, 64, 128)}),
)


def pack_wide(
    codes: UInt8[Tensor, "M N"],
    BITS: int,
) -> Int32[Tensor, " M (N*BITS+31)//32"]:
    """The words of puzzle 13, for rows of any length

    For rows of 4096 codes, each load of a thread must be 16 codes wide, or as wide as
    the codes of a word if they are fewer. No thread may pass a value to another.
    """
    return pack_bits(codes, BITS)


def _second_half(codes: Tensor, BITS: int, loaded: bool, shifted: bool) -> Tensor:
    """Return the words of a loop over two loads of 16 codes that forgets its place in one of two places.

    loaded: whether the second load takes the second 16 codes. shifted: whether they go to the second fields.
    """
    lanes, fields = _by_word(codes, BITS), 32 // BITS
    if fields <= WIDEST:
        return _up(codes, BITS)
    n = torch.arange(fields)
    taken = lanes[:, :, n if loaded else n % WIDEST]
    shifts = BITS * (n if shifted else n % WIDEST).int()
    return (taken << shifts).sum(2, dtype=torch.int32)


WIDEST = 16  # codes in a load of 16 bytes
WIDE_SLIPS: dict[str, Callable] = {
    "you'd get these words if the second load took the same codes as the first: n must grow with the loop": (
        lambda codes, BITS: _second_half(codes, BITS, loaded=False, shifted=True)
    ),
    "you'd get these words if both loads went to the same fields: the shift must grow with the loop": (
        lambda codes, BITS: _second_half(codes, BITS, loaded=True, shifted=False)
    ),
}
"""Wrong words of a loop over loads, by what the report says about them."""


def _as_wide_as(width: int, *cases: int) -> Goal:
    """Return the goal that loads are so many bytes wide, and threads pass no values to each other."""
    return Goal(cases=cases, wants=(Want("load bytes", least=width), Want("exchanges", most=0)))


PACK_WIDE = Puzzle(
    number="13b",
    spec=pack_wide,
    formula=PACK_BITS.formula,
    grid=PACK_BITS.grid,
    cases=(
        *PACK_BITS.cases,
        # 1-bit codes: two threads load the 32 codes of a word, 16 each
        Case(M=2, N=4096, BITS=1, BLOCK_W=512, fill={"codes": below(2)}),
        # 2-bit codes: a thread loads the codes of a whole word
        Case(M=2, N=4096, BITS=2, BLOCK_W=512, fill={"codes": below(4)}),
        # wider codes: a word has 8 or 4
        Case(M=2, N=4096, BITS=4, BLOCK_W=512, fill={"codes": below(16)}),
        Case(M=2, N=4096, BITS=8, BLOCK_W=512, fill={"codes": below(256)}),
    ),
    outputs=("words",),
    ends=ENDS,
    slips=PACK_SLIPS | WIDE_SLIPS,
    contract=Contract(
        {"M": Size(9), "N": Size(9000), "BITS": (1, 2, 4, 8), "BLOCK_W": (64, 128, 512)},
        fills=lambda s: ({"codes": below(2**s.BITS)},),
    ),
    machine=(_as_wide_as(16, 6, 7), _as_wide_as(8, 8), _as_wide_as(4, 9)),
)

PUZZLES = (PACK_BITS, UNPACK_BITS, PACK_WIDE)
