"""Chapter 16: what a layer needs from its kernels: any strides and sizes, a backward, random rounding."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
import triton
from jaxtyping import BFloat16, Float32, Int32
from torch import Tensor

from puzzles_lib.chapters.ch09_bit_packing.puzzles import pack_bits, unpack_bits
from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import (
    BY_RECIPROCAL,
    GROUPS_TOO_FEW,
    GROUPS_TOO_MANY,
    LONG_GROUP,
    TINY,
    VANISHING,
    minima,
    scales,
)
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import EVEN, far_apart, unmoved
from puzzles_lib.puzzle import Case, Puzzle

# ---- puzzle 25

SPAN = " (M-1)*stride_xm+(N-1)*stride_xn+1"  # a name on the card: the chapter asks for the number


def strided_copy(
    x: Float32[Tensor, SPAN],
    M: int,
    N: int,
    stride_xm: int,
    stride_xn: int,
) -> BFloat16[Tensor, "M N"]:
    """y[m, n] = x[m · stride_xm + n · stride_xn], rounded to bfloat16

    x is a view with any strides, in elements: a slice, a transpose, one row for all.
    The kernel gets its SPAN, the memory from the first element to the last.
    The rows of y come one after the other. M, products with the strides and the size
    of y may exceed 2^31; each stride fits into an int32. Axis 0 of the grid counts
    blocks of rows, axis 1 blocks of columns.
    """
    return torch.as_strided(x, (M, N), (stride_xm, stride_xn))  # rounded by `check`


def huge_and_tiny(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Fill like `far_apart`, under a name that nobody takes for strides."""
    return far_apart(shape, dtype, generator)


def _read_from(place: Callable) -> Callable:
    """A spec with a slip: element (m, n) is read at another place, of m, n and the case's numbers."""

    def spec(x: Tensor, M: int, N: int, stride_xm: int, stride_xn: int) -> Tensor:
        at = SimpleNamespace(M=M, N=N, stride_xm=stride_xm, stride_xn=stride_xn)
        places = place(torch.arange(M)[:, None], torch.arange(N)[None, :], at)
        return x[places.clamp(max=len(x) - 1)]

    return spec


def nan_or_huge(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, of which some are NaN as a GPU makes it, 1e35 or an infinity."""
    bits = torch.tensor([0x7FFFFFFF, 0x7F800000, -0x800000], dtype=torch.int32)
    odd = torch.cat([bits.view(torch.float32), torch.tensor([1e35, -1e35])])
    values = torch.randn(shape, generator=generator)
    values[::4] = odd[torch.randint(len(odd), values[::4].shape, generator=generator)]
    return values.to(dtype)


@unmoved
def halfway(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values of either sign, each halfway between two bfloat16 numbers."""
    upper = torch.randint(100 << 7, 150 << 7, shape, dtype=torch.int32, generator=generator)
    signs = torch.randint(0, 2, shape, generator=generator) * 2 - 1
    return ((upper << 16) + 0x8000).view(torch.float32).mul(signs).to(dtype)


STRIDED_COPY = Puzzle(
    number="25",
    spec=strided_copy,
    formula=(
        r"y_{m, n} = \mathrm{bf16}\left(x_{\,i}\right) \qquad "
        r"i = m \cdot \mathrm{stride}_{xm} + n \cdot \mathrm{stride}_{xn}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        # one program; rows one after the other
        Case(M=32, N=16, stride_xm=16, stride_xn=1, BLOCK_M=32, BLOCK_N=16),
        # several programs, full blocks; a slice of the columns of something wider
        Case(M=32, N=64, stride_xm=192, stride_xn=1, BLOCK_M=16, BLOCK_N=32),
        # ragged; a transpose; numbers that float16 cannot hold
        Case(M=45, N=19, stride_xm=1, stride_xn=45, BLOCK_M=16, BLOCK_N=32, fill={"x": huge_and_tiny}),
        # every other row, every third column
        Case(M=19, N=70, stride_xm=420, stride_xn=3, BLOCK_M=32, BLOCK_N=16),
        # one row for all, and one column
        Case(M=20, N=33, stride_xm=0, stride_xn=1, BLOCK_M=16, BLOCK_N=32),
        Case(M=20, N=33, stride_xm=1, stride_xn=0, BLOCK_M=16, BLOCK_N=32),
        # y has 2.5 thousand million elements
        Case(pretend=True, M=50_000, N=50_001, stride_xm=50_001, stride_xn=1, BLOCK_M=32, BLOCK_N=64),
        # y is small: rows of x lie far apart, then columns
        Case(pretend=True, M=5, N=70, stride_xm=2**30, stride_xn=1, BLOCK_M=16, BLOCK_N=32),
        Case(pretend=True, M=70, N=5, stride_xm=1, stride_xn=2**30, BLOCK_M=16, BLOCK_N=32),
        # more rows than an int32 counts
        Case(pretend=True, M=2**31 + 5, N=3, stride_xm=3, stride_xn=1, BLOCK_M=128, BLOCK_N=4),
    ),
    outputs=("y",),
    slips={
        "columns of x are stride_xn apart, but yours are neighbors": _read_from(
            lambda m, n, at: m * at.stride_xm + n
        ),
        "rows of x are stride_xm apart, but yours are N apart": _read_from(
            lambda m, n, at: m * at.N + n * at.stride_xn
        ),
        "rows of x are stride_xm apart and columns stride_xn, but yours are neighbors": _read_from(
            lambda m, n, at: m + n
        ),
        "stride_xm and stride_xn are swapped": _read_from(
            lambda m, n, at: m * at.stride_xn + n * at.stride_xm
        ),
    },
    needed={"x": lambda s: (s.M if s.stride_xm else 1) * (s.N if s.stride_xn else 1)},
    hard={
        "1e35, infinities and every NaN are copied, too": (
            Case(M=16, N=32, stride_xm=32, stride_xn=1, BLOCK_M=16, BLOCK_N=32, fill={"x": nan_or_huge})
        ),
        "columns can be 3 apart even if all sizes are multiples of 16": (
            Case(M=16, N=32, stride_xm=96, stride_xn=3, BLOCK_M=16, BLOCK_N=32)
        ),
        EVEN: Case(M=16, N=32, stride_xm=32, stride_xn=1, BLOCK_M=16, BLOCK_N=32, fill={"x": halfway}),
    },
    contract=Contract(
        {
            "M": Size(300),
            "N": Size(300),
            "stride_xm": lambda s: (s.N, 2 * s.N + 3, 1),
            "stride_xn": lambda s: (s.M,) if s.stride_xm == 1 else (1, 2),
            "BLOCK_M": (16, 64, 128),
            "BLOCK_N": (16, 128),
        },
    ),
)

# ---- puzzle 26

_LOW = 0xFFFFFFFF
MARGIN = 1 / 64  # of a code step: far more than float32 arithmetic on codes up to 255 is off


def uniform(seed: int | Tensor, place: Tensor) -> Tensor:
    """Return `tl.rand(seed, place)`: a float32 from 0 to below 1 for each place, an int64.

    This is the first word of Philox 4x32-10 (Salmon et al., 2011, "Parallel random numbers: as easy as 1, 2,
    3") with the seed as its key and the place as its count.
    """
    return _to_uniform(_philox(seed, place)[0])


def _philox(seed: int | Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first two words, from 0 to 2^32 - 1."""
    c0, c1, c2, c3 = place & _LOW, place >> 32 & _LOW, place * 0, place * 0
    key0, key1 = seed & _LOW, seed >> 32 & _LOW
    for _ in range(10):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2  # 64 bits, the top one in the sign
        c0, c1, c2, c3 = (b >> 32 & _LOW) ^ c1 ^ key0, b & _LOW, (a >> 32 & _LOW) ^ c3 ^ key1, a & _LOW
        key0, key1 = key0 + 0x9E3779B9 & _LOW, key1 + 0xBB67AE85 & _LOW
    return c0, c1


def _to_uniform(word: Tensor) -> Tensor:
    return torch.where(word > _LOW >> 1, _LOW - word, word).float() * 4.6566127342e-10


def _normal(seed: int, place: Tensor) -> Tensor:
    """Return `tl.randn(seed, place)`."""
    first, second = map(_to_uniform, _philox(seed, place))
    return (-2 * first.clamp(min=1e-7).log()).sqrt() * (2 * torch.pi * second).cos()


def stochastic_pack(
    x: BFloat16[Tensor, "M N"], BITS: int, GROUP: int, SEED: int, OFFSET: int
) -> tuple[
    Int32[Tensor, " M (N*BITS+31)//32"],
    BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
]:
    """words, scale, minimum as in puzzle 15, but codes round up or down at random

    The draw of an element is u[m, n] = tl.rand(SEED, OFFSET + m · N + n). Its code is
    one of the two integers around s = (x[m, n] - minimum) / scale: the upper one if u
    is large enough. Over all seeds, the mean is s. The stored scale is rounded, so s
    can exceed 2^BITS - 1, but a code can't. SEED and OFFSET may have 64 bits, and any
    tensor may exceed 2^31 elements.
    """
    steps, scale, minimum = steps_up(x, BITS, GROUP)  # [M, N], [M, G], [M, G]
    u = uniform(SEED, OFFSET + torch.arange(x.numel()).reshape(x.shape))  # [M, N]
    codes = up_or_down(steps, u).clamp(max=2**BITS - 1).to(torch.uint8)
    return pack_bits(codes, BITS), scale.bfloat16(), minimum.bfloat16()


def up_or_down(steps: Tensor, u: Tensor) -> Tensor:
    """Return the integer below or above each of steps, by a draw u from 0 to 1."""
    return (steps + u).floor()


def steps_up(x: Tensor, BITS: int, GROUP: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return each x in steps above its group's minimum, the groups' stored scale, and their minimum."""
    group = torch.arange(x.shape[1]) // GROUP  # [N]
    padded = torch.cat([x, x[:, -1:].expand(-1, -x.shape[1] % GROUP)], 1)
    minimum, maximum = padded.unflatten(1, (-1, GROUP)).aminmax(dim=2)  # [M, G]
    scale = ((maximum - minimum) / (2**BITS - 1)).bfloat16().to(x.dtype)
    scale = torch.where(maximum > minimum, scale, 1.0)
    return (x - minimum[:, group]) / scale[:, group], scale, minimum


def _as_asked(m: Tensor, n: Tensor, at: SimpleNamespace) -> Tensor:
    """The draws of the contract."""
    return uniform(at.SEED, at.OFFSET + m * at.N + n)


def _rounded_by(codes: Callable, draw: Callable = _as_asked) -> Callable:
    """A spec with a slip: codes from steps and draws, by m, n and the case's numbers."""

    def spec(
        x: Tensor, BITS: int, GROUP: int, SEED: int, OFFSET: int, BLOCK_G: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps, scale, minimum = steps_up(x, BITS, GROUP)
        m, n, at = _places_of(x, BITS, GROUP, SEED, OFFSET, BLOCK_G)
        made = codes(steps, draw(m, n, at).expand_as(steps)).clamp(0, 2**BITS - 1).to(torch.uint8)
        return pack_bits(made, BITS), scale.bfloat16(), minimum.bfloat16()

    return spec


def _places_of(
    x: Tensor, BITS: int, GROUP: int, SEED: int, OFFSET: int, BLOCK_G: int
) -> tuple[Tensor, Tensor, SimpleNamespace]:
    """Return the numbers of rows and of columns of x, and the numbers of a case."""
    m, n = torch.arange(x.shape[0])[:, None], torch.arange(x.shape[1])[None, :]
    at = SimpleNamespace(N=x.shape[1], BITS=BITS, GROUP=GROUP, SEED=SEED, OFFSET=OFFSET, BLOCK_G=BLOCK_G)
    return m, n, at


def _unclamped(codes: Callable, draw: Callable = _as_asked) -> Callable:
    """A spec with a slip: codes, of steps, draws and the highest code, that spill into other fields."""

    def spec(
        x: Tensor, BITS: int, GROUP: int, SEED: int, OFFSET: int, BLOCK_G: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        steps, scale, minimum = steps_up(x, BITS, GROUP)
        u = draw(*_places_of(x, BITS, GROUP, SEED, OFFSET, BLOCK_G)).expand_as(steps)
        return _spilling(codes(steps, u, 2**BITS - 1), BITS), scale.bfloat16(), minimum.bfloat16()

    return spec


def _spilling(codes: Tensor, BITS: int) -> Tensor:
    """Return the words of codes, of which those that are negative or too large spill into other fields."""
    F = 32 // BITS
    made = torch.nn.functional.pad(codes.long(), (0, -codes.shape[1] % F))
    words = (made.unflatten(1, (-1, F)) << BITS * torch.arange(F)).sum(2) & _LOW
    return words.to(torch.int32)


def _counted(steps_of: Callable) -> Callable:
    """A spec with a slip: steps are counted otherwise, from x and its group's minimum, scale and range."""

    def spec(
        x: Tensor, BITS: int, GROUP: int, SEED: int, OFFSET: int, BLOCK_G: int
    ) -> tuple[Tensor, Tensor, Tensor]:
        _, scale, minimum = steps_up(x, BITS, GROUP)
        group, top = torch.arange(x.shape[1]) // GROUP, 2**BITS - 1
        padded = torch.cat([x, x[:, -1:].expand(-1, -x.shape[1] % GROUP)], 1)
        low, high = padded.unflatten(1, (-1, GROUP)).aminmax(dim=2)
        exact = torch.where(high > low, (high - low) / top, 1.0)
        steps = steps_of(x, minimum[:, group], scale[:, group], exact[:, group])
        u = _as_asked(*_places_of(x, BITS, GROUP, SEED, OFFSET, BLOCK_G))
        codes = (steps + u).floor().clamp(max=top)
        return _spilling(codes, BITS), scale.bfloat16(), minimum.bfloat16()

    return spec


def _drawn(place: Callable) -> Callable:
    """A spec that draws at another place, of m, n and the case's numbers."""
    return _rounded_by(
        lambda steps, u: (steps + u).floor(), lambda m, n, at: uniform(at.SEED, place(m, n, at))
    )


def _clamped_to_bits(
    x: Tensor, BITS: int, GROUP: int, SEED: int, OFFSET: int, BLOCK_G: int
) -> tuple[Tensor, Tensor, Tensor]:
    """A spec with a slip: the highest code is BITS."""
    rounded = _unclamped(lambda steps, u, top: (steps + u).floor().clamp(max=BITS))
    return rounded(x, BITS, GROUP, SEED, OFFSET, BLOCK_G)


def _lane(n: Tensor, at: SimpleNamespace) -> Tensor:
    """Return each element's lane in its program's block."""
    return n % (at.BLOCK_G * at.GROUP)


def _floor_only(steps: Tensor, u: Tensor, top: int) -> Tensor:
    """Codes that aren't clamped."""
    return (steps + u).floor()


ROUNDING_SLIPS = {
    "steps begin at 0, not at the group's minimum: subtract low before you divide": _counted(
        lambda x, low, scale, exact: x / scale
    ),
    "steps are multiplied by the scale: a step is as long as the scale, so divide by it": _counted(
        lambda x, low, scale, exact: (x - low) * scale
    ),
    "steps use the scale before it was rounded to bfloat16: divide by the scale as stored": _counted(
        lambda x, low, scale, exact: (x - low) / exact
    ),
    "your codes are those of rounding to the nearest": _rounded_by(lambda steps, u: steps.round()),
    "your codes are always rounded down, whatever u is": _rounded_by(lambda steps, u: steps.floor()),
    "each row draws the same numbers: the place of row m begins at OFFSET + m * N": _drawn(
        lambda m, n, at: at.OFFSET + n
    ),
    "the row is added to the seed: the seed is SEED, and the place OFFSET + m * N + n": _rounded_by(
        up_or_down, lambda m, n, at: uniform(at.SEED + m, at.OFFSET + n)
    ),
    "the place skips draws after each row: a row has N elements, no matter how long a group is": _drawn(
        lambda m, n, at: at.OFFSET + m * triton.cdiv(at.N, at.GROUP) * at.GROUP + n
    ),
    "each row draws the same numbers, beginning at 0: the place is OFFSET + m * N + n": _drawn(
        lambda m, n, at: n
    ),
    "the draws begin at 0, not at OFFSET": _drawn(lambda m, n, at: m * at.N + n),
    "the draws repeat after 2^32 of them: OFFSET has 64 bits": _drawn(
        lambda m, n, at: at.OFFSET + m * at.N + n & _LOW
    ),
    "the groups of a row draw the same numbers: n counts through the whole row": _drawn(
        lambda m, n, at: at.OFFSET + m * at.N + n % at.GROUP
    ),
    "all groups of all rows draw the same numbers: the place is OFFSET + m * N + n": _drawn(
        lambda m, n, at: at.OFFSET + n % at.GROUP
    ),
    "all elements of a group share one draw: give each element its own place": _drawn(
        lambda m, n, at: at.OFFSET + m * at.N + n // at.GROUP
    ),
    "the place is one too large: the first element of x draws at OFFSET": _drawn(
        lambda m, n, at: at.OFFSET + m * at.N + n + 1
    ),
    "the place counts GROUP elements per row: a row of x has N elements": _drawn(
        lambda m, n, at: at.OFFSET + m * at.GROUP + n
    ),
    "row and column are swapped: the place is OFFSET + m * N + n": _drawn(
        lambda m, n, at: at.OFFSET + n * at.N + m
    ),
    "the place counts words or groups per row: a row of x has N elements": _drawn(
        lambda m, n, at: at.OFFSET + m * triton.cdiv(at.N * at.BITS, 32) + n
    ),
    "seed and place are swapped: tl.rand(SEED, place)": _rounded_by(
        lambda steps, u: (steps + u).floor(),
        lambda m, n, at: uniform(at.OFFSET + m * at.N + n, torch.tensor(at.SEED)),
    ),
    "OFFSET is added to the seed: add it to the place instead": _rounded_by(
        lambda steps, u: (steps + u).floor(), lambda m, n, at: uniform(at.SEED + at.OFFSET, m * at.N + n)
    ),
    "a code of 2^BITS spills into the next field: after the floor, clamp to TOP, one less": _unclamped(
        lambda steps, u, top: (steps + u).floor()
    ),
    "codes go up when u is small: the card asks for a large u, to have the same bits": _rounded_by(
        lambda steps, u: steps.floor() + (u < steps - steps.floor())
    ),
    "codes are clamped to BITS: the highest code is TOP, 2^BITS - 1": _clamped_to_bits,
    "a code is 0 if s + u is above TOP, the highest code: it must be TOP then": _unclamped(
        lambda steps, u, top: torch.where(steps + u > top, 0.0, (steps + u).floor())
    ),
    "a code above TOP, the highest one, becomes 0: it must become TOP": _unclamped(
        lambda steps, u, top: torch.where((steps + u).floor() > top, 0.0, (steps + u).floor())
    ),
    "codes are one step too high: use tl.floor, which gives the lower code": _rounded_by(
        lambda steps, u: (steps + u).ceil()
    ),
    "a coin toss: each code goes up if u is above 0.5, whatever its fraction is": _rounded_by(
        lambda steps, u: steps.floor() + (u > 0.5)
    ),
    "a coin toss: u above 0.5 gives the upper code, whatever the fraction is": _rounded_by(
        lambda steps, u: torch.where(u > 0.5, steps.ceil(), steps.floor())
    ),
    "codes go up if u is above the fraction, which is reversed: let u be above 1 - fraction": _rounded_by(
        lambda steps, u: steps.floor() + (u > steps - steps.floor())
    ),
    "codes are half a step too high: after adding u, use tl.floor instead of rounding": _rounded_by(
        lambda steps, u: (steps + u).round()
    ),
    "codes are half a step too low: u is from 0 to 1, so subtract nothing": _rounded_by(
        lambda steps, u: (steps + u - 0.5).floor()
    ),
    "codes are half a step too low, even below 0: u is from 0 to 1, so subtract nothing": _unclamped(
        lambda steps, u, top: (steps + u - 0.5).floor().clamp(max=top)
    ),
    "all programs draw the same numbers: count elements of x, not the lanes of a block": _drawn(
        lambda m, n, at: at.OFFSET + _lane(n, at)
    ),
    "all programs of a row draw the same numbers: count elements of x, not the lanes of a block": _drawn(
        lambda m, n, at: at.OFFSET + m * at.N + _lane(n, at)
    ),
    "the draws begin at 0, not at OFFSET, and a code above 2^BITS - 1 spills into the next field": _unclamped(
        _floor_only, lambda m, n, at: uniform(at.SEED, m * at.N + n)
    ),
    "u is from tl.randn, which has no limits: use tl.rand, whose numbers are from 0 to 1": _unclamped(
        lambda steps, u, top: (steps + u).floor().clamp(max=top),
        lambda m, n, at: _normal(at.SEED, at.OFFSET + m * at.N + n),
    ),
    "u is from tl.randint, whose numbers are huge: use tl.rand, whose numbers are from 0 to 1": _rounded_by(
        lambda steps, u: 0 * steps + 255
    ),
    "the draws are those of seed 0, not SEED": _rounded_by(
        lambda steps, u: (steps + u).floor(), lambda m, n, at: uniform(0, at.OFFSET + m * at.N + n)
    ),
}


def off_steps(
    BITS: int, GROUP: int, SEED: int, OFFSET: int, constant: bool = False, apart: int = 4
) -> Callable:
    """Return a fill for a seed: normal values around a value of each group.

    constant: fill every other group with only its value. apart: how far groups are from 0, on average. Words
    are compared exactly. So no steps + u is within `MARGIN` of an integer, because float32 arithmetic may go
    either way there. And no scale is halfway between two bfloat16 numbers. A group's minimum is exact: 0 + u.
    """

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        around = apart * torch.randn(shape[0], triton.cdiv(shape[1], GROUP), generator=generator)
        group = torch.arange(shape[1]) // GROUP
        spread = torch.randn(shape, generator=generator)
        x = (spread * (group % 2 == 0 if constant else 1.0) + around[:, group]).to(dtype)
        u = uniform(SEED, OFFSET + torch.arange(x.numel()).reshape(shape))
        while True:
            padded = torch.cat([x, x[:, -1:].expand(-1, -shape[1] % GROUP)], 1).double()
            minimum, maximum = padded.unflatten(1, (-1, GROUP)).aminmax(dim=2)  # [M, G]
            exact = (maximum - minimum) / (2**BITS - 1)
            beyond_bfloat16 = exact.float().view(torch.int32) & 0xFFFF
            unsure = ((beyond_bfloat16 - 0x8000).abs() < 16) & (maximum != minimum)
            scale = torch.where(maximum == minimum, 1.0, exact.bfloat16().double())
            steps = (x.double() - minimum[:, group]) / scale[:, group]
            near = ((steps + u + 0.5) % 1 - 0.5).abs() < MARGIN
            near = (near & (steps > 0)) | (unsure[:, group] & (x == maximum[:, group]))
            if not near.any():
                return x
            x = torch.where(near, minimum[:, group].to(dtype), x)

    fill.__name__ = "some_groups_constant" if constant else "normal"
    return fill


def tiny_off_steps(BITS: int, GROUP: int, SEED: int, OFFSET: int) -> Callable:
    """Return a fill like `off_steps`, but 2^100 times as small: groups have a spread of about 1e-30."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
        return off_steps(BITS, GROUP, SEED, OFFSET)(shape, dtype, generator) * 2.0**-100

    fill.__name__ = "tiny"
    return fill


ALMOST_ONE = 2_313_274  # the place of a draw of seed 7 so near 1 that 255 plus it is 256 in float32


def top_second(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return groups of 4 values 0, 255, 100 and 7: in 8 bits, a step is 1 and these are the codes."""
    return torch.tensor([0, 255, 100, 7], dtype=dtype).repeat(shape[0], shape[1] // 4)


WHOLE = 621_649  # the place of a draw of seed 7 that is 99 / 128


def whole_third(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return groups of 4 values, in 8 bits a step is 1; the third and its draw, `WHOLE`, have the sum 2."""
    return torch.tensor([0, 255, 157 / 128, 7], dtype=dtype).repeat(shape[0], shape[1] // 4)


def _rounding_case(constant: bool = False, apart: int = 4, **numbers: int) -> Case:
    """A case with values for its seed."""
    fill = off_steps(*(numbers[name] for name in ("BITS", "GROUP", "SEED", "OFFSET")), constant, apart)
    return Case(**numbers, fill={"x": fill})


STOCHASTIC_PACK = Puzzle(
    number="26",
    spec=stochastic_pack,
    formula=(
        r"\begin{gathered} s_{m, n} = \frac{x_{m, n} - \min_g x_{m, n}}{\mathrm{scale}_{m, g}} \qquad "
        r"g = \lfloor n / \mathrm{GROUP} \rfloor \\ "
        r"u_{m, n} = \mathrm{rand}(\mathrm{SEED}, \; \mathrm{OFFSET} + m N + n) \end{gathered}"
    ),
    grid=lambda s: (s.M, triton.cdiv(triton.cdiv(s.N, s.GROUP), s.BLOCK_G)),
    cases=(
        # one program, one group, four words; its minimum isn't about a step above 0
        _rounding_case(apart=8, M=1, N=32, BITS=4, GROUP=32, SEED=7, OFFSET=0, BLOCK_G=1),
        # several rows, two blocks each, all full; one word per group; the draws do not begin at 0
        _rounding_case(M=3, N=128, BITS=2, GROUP=16, SEED=7, OFFSET=1000, BLOCK_G=4),
        # ragged: the last block has two groups, the last group 11 codes, the last word three
        _rounding_case(M=3, N=91, BITS=8, GROUP=16, SEED=123, OFFSET=5, BLOCK_G=4),
        # one bit a code; a seed of more than 32 bits
        _rounding_case(M=2, N=150, BITS=1, GROUP=64, SEED=2**40 + 3, OFFSET=0, BLOCK_G=2),
        # the draws pass number 2^32
        _rounding_case(M=3, N=72, BITS=2, GROUP=32, SEED=11, OFFSET=2**32 - 100, BLOCK_G=2),
        # groups without any spread
        _rounding_case(M=3, N=64, BITS=8, GROUP=4, SEED=5, OFFSET=64, BLOCK_G=8, constant=True),
        # rows shorter than a group
        _rounding_case(M=4, N=5, BITS=4, GROUP=16, SEED=0, OFFSET=17, BLOCK_G=2),
        # one row of 2.5 thousand million elements, and as many in short rows
        Case(pretend=True, M=1, N=2_500_000_000, BITS=2, GROUP=1024, SEED=7, OFFSET=0, BLOCK_G=64),
        Case(pretend=True, M=50_000_000, N=50, BITS=2, GROUP=64, SEED=7, OFFSET=0, BLOCK_G=1),
    ),
    outputs=("words", "scale", "minimum"),
    exact=("scale", "minimum"),
    slips=ROUNDING_SLIPS,
    hard={
        "255 + u can round to 256, which spills into the next field: clamp after the floor": Case(
            M=1, N=8, BITS=8, GROUP=4, SEED=7, OFFSET=ALMOST_ONE - 1, BLOCK_G=2, fill={"x": top_second}
        ),
        "s + u can be a whole number, which is its own code: use tl.floor": Case(
            M=1, N=8, BITS=8, GROUP=4, SEED=7, OFFSET=WHOLE - 2, BLOCK_G=2, fill={"x": whole_third}
        ),
        "words, scale and minimum can have 2^31 elements, too": (
            Case(pretend=True, M=50_000_000, N=200, BITS=8, GROUP=4, SEED=7, OFFSET=0, BLOCK_G=64)
        ),
    },
    contract=Contract(
        {
            "M": Size(9),
            "N": Size(600),
            "BITS": (1, 2, 4, 8),
            "GROUP": lambda s: (256,) if s.N > 150 else (32 // s.BITS, 64),
            "SEED": (1, 2**31 - 1, 2**50 + 1),
            "OFFSET": (0, 12345, 2**33 - 70),
            "BLOCK_G": (4, 32),
        },
        fills=lambda s: (
            {"x": off_steps(s.BITS, s.GROUP, s.SEED, s.OFFSET)},
            {"x": tiny_off_steps(s.BITS, s.GROUP, s.SEED, s.OFFSET)},
        ),
    ),
)

# ---- puzzle 27


def linear_backward(
    dy: BFloat16[Tensor, "M COUT"],
    words: Int32[Tensor, " M (N*BITS+31)//32"],
    scale: BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    minimum: BFloat16[Tensor, " M (N+GROUP-1)//GROUP"],
    N: int,
    BITS: int,
    GROUP: int,
    NEED_DW: int,
    NEED_DB: int,
) -> tuple[Float32[Tensor, "COUT*NEED_DW N"], Float32[Tensor, " COUT*NEED_DB"]]:
    """dw and db, the gradients of y = x wᵀ + b, for the x that the words stand for

    x is packed as in puzzle 19. If NEED_DW = 0 or NEED_DB = 0, that gradient has no
    elements; store and load nothing for it. A program loads no element of dy twice,
    and only one program stores each element of db. M may be 0; any matrix may exceed
    2^31 elements. Sum in float32. "Exact" inputs are such that bfloat16 holds x̂.
    """
    codes = unpack_bits(words, N, BITS)  # [M, N]
    g = torch.arange(N) // GROUP  # [N]
    x = minimum[:, g] + scale[:, g] * codes  # [M, N]
    w = x.new_zeros(dy.shape[1], N, requires_grad=True)
    b = x.new_zeros(dy.shape[1], requires_grad=True)
    with torch.enable_grad():
        y = torch.nn.functional.linear(x, w, b)
    dw, db = torch.autograd.grad(y, (w, b), dy)
    return dw[: len(dw) * NEED_DW], db[: len(db) * NEED_DB]


def _summed_as_db(sums: Callable) -> Callable:
    """A spec with a slip: dw is correct, and db is made of dy, dw and the numbers of a case."""

    def spec(
        dy: Tensor, words: Tensor, scale: Tensor, minimum: Tensor, N: int, BITS: int, GROUP: int,
        NEED_DW: int, NEED_DB: int, BLOCK_M: int, BLOCK_C: int,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        dw, _ = linear_backward(dy, words, scale, minimum, N, BITS, GROUP, 1, 1)
        db = sums(dy, dw, SimpleNamespace(M=dy.shape[0], BLOCK_M=BLOCK_M, BLOCK_C=BLOCK_C, NEED_DW=NEED_DW))
        return dw[: len(dw) * NEED_DW], db[: len(db) * NEED_DB]

    return spec


def _backward_case(*, most: int = 3, times: float = 1.0, **numbers: int) -> Case:
    """A case with scales and minima for its BITS, as those of puzzle 19."""
    BITS = numbers["BITS"]
    fill = {"scale": scales(BITS, most, times), "minimum": minima(BITS, most, times)}
    return Case(**numbers, fill=fill)


LINEAR_BACKWARD = Puzzle(
    number="27",
    spec=linear_backward,
    formula=(
        r"dW_{c, n} = \sum_{m=0}^{M-1} dy_{m, c} \, \hat x_{m, n} \qquad "
        r"db_c = \sum_{m=0}^{M-1} dy_{m, c}"
    ),
    grid=lambda s: (triton.cdiv(s.COUT, s.BLOCK_C), triton.cdiv(s.N, s.BLOCK_N) if s.NEED_DW else 1),
    cases=(
        # one program, one step, one group
        _backward_case(M=16, COUT=16, N=32, BITS=4, GROUP=32, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=32, BLOCK_M=16),
        # several blocks on every axis, all full; four groups a block
        _backward_case(M=64, COUT=64, N=128, BITS=2, GROUP=16, NEED_DW=1, NEED_DB=1,
            BLOCK_C=32, BLOCK_N=64, BLOCK_M=32),
        # ragged on every axis; the last word holds three codes
        _backward_case(M=83, COUT=45, N=91, BITS=8, GROUP=16, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=64, BLOCK_M=32),
        # a layer without a bias; groups that straddle blocks
        _backward_case(M=40, COUT=20, N=150, BITS=1, GROUP=96, NEED_DW=1, NEED_DB=0,
            BLOCK_C=32, BLOCK_N=64, BLOCK_M=16),
        # weights that are not trained
        _backward_case(M=83, COUT=45, N=91, BITS=2, GROUP=16, NEED_DW=0, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=64, BLOCK_M=32),
        # numbers that float16 cannot hold; one row in the last block of M
        _backward_case(M=65, COUT=18, N=40, BITS=2, GROUP=16, NEED_DW=1, NEED_DB=1,
            BLOCK_C=32, BLOCK_N=64, BLOCK_M=32, most=20),
        # no tokens
        _backward_case(M=0, COUT=18, N=40, BITS=4, GROUP=16, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=16, BLOCK_M=16),
        # dy has 4.3 thousand million elements, dw 4 times as many
        Case(pretend=True, M=16, COUT=2**28 + 5, N=64, BITS=8, GROUP=16, NEED_DW=1, NEED_DB=1,
            BLOCK_C=32, BLOCK_N=64, BLOCK_M=16),
        # words, scale and minimum have 2.4 thousand million elements
        Case(pretend=True, M=144, COUT=20, N=66_000_000, BITS=8, GROUP=4, NEED_DW=1, NEED_DB=1,
            BLOCK_C=32, BLOCK_N=1024, BLOCK_M=16),
    ),
    outputs=("dw", "db"),
    stored_once=("db",),
    slips={
        "db has the row sums of dw: it should have the sums of dy along m": _summed_as_db(
            lambda dy, dw, at: dw.sum(1) * at.NEED_DW
        ),
        "db counts the iterations of the loop: add the sums of dy in each": _summed_as_db(
            lambda dy, dw, at: torch.full_like(dw[:, 0], triton.cdiv(at.M, at.BLOCK_M))
        ),
        "all elements of a block of db are the same sum: sum dy along m only, with axis=1": _summed_as_db(
            lambda dy, dw, at: torch.cat([one.sum().expand(one.shape[1]) for one in dy.split(at.BLOCK_C, 1)])
        ),
        "db counts the rows of dy: add their values": _summed_as_db(
            lambda dy, dw, at: torch.full_like(dw[:, 0], at.M)
        ),
    },
    most_loads={
        "dy": lambda s: s.M * s.COUT * (triton.cdiv(s.N, s.BLOCK_N) if s.NEED_DW else 1),
        "words": lambda s: s.NEED_DW * s.M * s.N * triton.cdiv(s.COUT, s.BLOCK_C),
        "scale": lambda s: s.NEED_DW * s.M * s.N * triton.cdiv(s.COUT, s.BLOCK_C),
        "minimum": lambda s: s.NEED_DW * s.M * s.N * triton.cdiv(s.COUT, s.BLOCK_C),
    },
    needed={
        "words": lambda s: s.NEED_DW * s.M * triton.cdiv(s.N * s.BITS, 32),
        "scale": lambda s: s.NEED_DW * s.M * triton.cdiv(s.N, s.GROUP),
        "minimum": lambda s: s.NEED_DW * s.M * triton.cdiv(s.N, s.GROUP),
    },
    hard={
        "words, scale and minimum can have 2^32 elements or more": Case(
            pretend=True, M=288, COUT=20, N=66_000_000, BITS=8, GROUP=4, NEED_DW=1, NEED_DB=1,
            BLOCK_C=32, BLOCK_N=1024, BLOCK_M=16,
        ),
        BY_RECIPROCAL.replace("41", "164"): _backward_case(
            M=16, COUT=1, N=10496, BITS=8, GROUP=164, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=512, BLOCK_M=16,
        ),
        LONG_GROUP: _backward_case(
            M=16, COUT=1, N=4104, BITS=8, GROUP=4104, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=512, BLOCK_M=16,
        ),
        GROUPS_TOO_MANY: _backward_case(
            M=16, COUT=1, N=84, BITS=8, GROUP=28, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=128, BLOCK_M=16,
        ),
        GROUPS_TOO_FEW: _backward_case(
            M=16, COUT=1, N=165, BITS=8, GROUP=164, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=256, BLOCK_M=16,
        ),
        VANISHING: _backward_case(
            M=5, COUT=3, N=5, BITS=4, GROUP=16, NEED_DW=1, NEED_DB=1,
            BLOCK_C=16, BLOCK_N=16, BLOCK_M=16, times=TINY,
        ),
    },
    contract=Contract(
        {
            "COUT": Size(150),
            "N": Size(600),
            "M": Size(300),
            "BITS": (1, 2, 4, 8),
            "GROUP": lambda s: (544,) if s.N > 512 else (32 // s.BITS, 96, 256),
            "NEED_DW": (1,),
            "NEED_DB": (1,),
            "BLOCK_C": lambda s: (128,) if s.COUT > 64 else (32,),
            "BLOCK_N": (64, 128),
            "BLOCK_M": lambda s: (32,) if s.M > 128 else (32, 128),
        },
        fills=lambda s: (
            {"scale": scales(s.BITS), "minimum": minima(s.BITS)},
            {"scale": scales(s.BITS), "minimum": minima(s.BITS), "dy": far_apart},
        ),
        most_programs=4,
    ),
)  # fmt: skip

PUZZLES = (STRIDED_COPY, STOCHASTIC_PACK, LINEAR_BACKWARD)
