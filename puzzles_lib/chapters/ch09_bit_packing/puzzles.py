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
    """A fill with the codes 0 to limit - 1, each as likely."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return torch.randint(limit, shape, dtype=dtype, generator=generator)

    fill.__name__ = f"below_{limit}"
    return fill


def always(code: int) -> Callable:
    """A fill with one code everywhere."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        return torch.full(shape, code, dtype=dtype)

    fill.__name__ = f"always_{code}"
    return fill


def no_sign_bit(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Random words with bit 31 off."""
    return torch.randint(2**31, shape, generator=generator).to(dtype)


def pack_bits(
    codes: UInt8[Tensor, "M N"],
    BITS: int,
) -> Int32[Tensor, " M (N*BITS+31)//32"]:
    """words[m, w] = sum over i of codes[m, w · F + i] · 2^(BITS · i), as an int32

    F is 32 // BITS. Field i of a word is its bits BITS · i to BITS · (i + 1) - 1.
    BITS is 1, 2, 4 or 8, and every code is below 2^BITS. Where a row ends within a
    word, the fields past its end are 0.
    """
    fields = 32 // BITS
    spare = -codes.shape[1] % fields
    padded = torch.nn.functional.pad(codes, (0, spare)).int()  # [M, W · F]
    shifts = BITS * torch.arange(fields, dtype=torch.int32)
    return (padded.unflatten(1, (-1, fields)) << shifts).sum(2, dtype=torch.int32)


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
        # one bit a code
        Case(M=2, N=75, BITS=1, BLOCK_W=2, fill={"codes": below(2)}),
        # every bit set but those past the end
        Case(M=2, N=83, BITS=2, BLOCK_W=4, fill={"codes": always(3)}),
        # rows shorter than a word
        Case(M=4, N=5, BITS=4, BLOCK_W=2, fill={"codes": below(16)}),
    ),
    outputs=("words",),
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

    The words of puzzle 13, but the fields past the end of a row may hold anything.
    """
    fields = 32 // BITS
    shifts = BITS * torch.arange(fields, dtype=torch.int32)
    codes = (words[:, :, None] >> shifts) & (2**BITS - 1)  # [M, W, F]
    return codes.flatten(1)[:, :N].to(torch.uint8)


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
        # one bit a code: the sign bit is a field
        Case(M=2, N=75, BITS=1, BLOCK_W=2),
        # every bit set, past the end too
        Case(M=2, N=83, BITS=2, BLOCK_W=4, fill={"words": all_bits_set}),
        # rows shorter than a word
        Case(M=4, N=5, BITS=4, BLOCK_W=2),
    ),
    outputs=("codes",),
    most_loads={"words": lambda s: s.M * triton.cdiv(s.N * s.BITS, 32)},
    contract=Contract({"M": Size(9), "N": Size(1100), "BITS": (1, 2, 4, 8), "BLOCK_W": (8, 64, 128)}),
)


def pack_wide(
    codes: UInt8[Tensor, "M N"],
    BITS: int,
) -> Int32[Tensor, " M (N*BITS+31)//32"]:
    """The words of puzzle 13: rows of any length, and of 4096 codes without detours.

    There each thread loads 16 codes at a time, and no code goes to another thread.
    """
    return pack_bits(codes, BITS)


PACK_WIDE = Puzzle(
    number="13b",
    spec=pack_wide,
    formula=PACK_BITS.formula,
    grid=PACK_BITS.grid,
    cases=(
        *PACK_BITS.cases,
        # one bit a code: two threads hold the 32 codes of a word, 16 each
        Case(M=2, N=4096, BITS=1, BLOCK_W=512, fill={"codes": below(2)}),
        # two bits a code: a thread holds a word's codes
        Case(M=2, N=4096, BITS=2, BLOCK_W=512, fill={"codes": below(4)}),
    ),
    outputs=("words",),
    contract=Contract(
        {"M": Size(9), "N": Size(9000), "BITS": (1, 2, 4, 8), "BLOCK_W": (64, 128, 512)},
        fills=lambda s: ({"codes": below(2**s.BITS)},),
    ),
    machine=(Goal(cases=(6, 7), wants=(Want("load bytes", least=16), Want("exchanges", most=0))),),
)

PUZZLES = (PACK_BITS, UNPACK_BITS, PACK_WIDE)
