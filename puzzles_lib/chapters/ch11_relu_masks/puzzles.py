"""Chapter 11: ReLU that keeps one bit per element for its backward pass."""

from collections.abc import Callable

import torch
import triton
from jaxtyping import BFloat16, Int32
from torch import Tensor

from puzzles_lib.chapters.ch09_bit_packing.puzzles import unpack_bits
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import all_bits_set, far_apart, zeros
from puzzles_lib.puzzle import Case, Puzzle

ODD = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 2.0**-126, -(2.0**-126))


def odd_values(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return normal values, half of them replaced by NaN, infinities, both zeros, and tiny numbers."""
    values = torch.randn(shape, generator=generator)
    odd = torch.tensor(ODD)[torch.randint(len(ODD), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.5, odd, values).to(dtype)


def positive(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Return values above zero: every bit of the mask is set."""
    return (0.1 + torch.rand(shape, generator=generator)).to(dtype)


def relu_pack(
    x: BFloat16[Tensor, "M N"],
) -> tuple[BFloat16[Tensor, "M N"], Int32[Tensor, " M (N+31)//32"]]:
    """y = relu(x); bit n % 32 of mask[m, n // 32] is 1 if dy[m, n] passes, else 0

    Both equal torch's for every x, NaN too; 0.0 and -0.0 count as equal. Bits past
    the end of a row are 0.
    """
    y = torch.relu(x)
    dy = torch.ones_like(x)
    passes = torch.ops.aten.threshold_backward(dy, y, 0)  # relu's backward: 1 or 0
    padded = torch.nn.functional.pad(passes.int(), (0, -x.shape[1] % 32))
    bits = padded.unflatten(1, (-1, 32))  # [M, W, 32]
    mask = (bits << torch.arange(32, dtype=torch.int32)).sum(2, dtype=torch.int32)
    return y, mask


def _mask(passes: Tensor, top_first: bool = False, spare: int = 0, down: bool = False) -> Tensor:
    """Return the words of a mask, or those with element 0 in the highest bit.

    passes: bool, or the numbers that a kernel sums as bits. spare: such a number for lanes past the end.
    down: whether bits are shifted down instead of up.
    """
    padded = torch.nn.functional.pad(passes.int(), (0, -passes.shape[1] % 32), value=spare)
    bits = padded.unflatten(1, (-1, 32))  # [M, W, 32]
    shifts = torch.arange(32, dtype=torch.int32)
    if down:
        return (bits >> shifts).sum(2, dtype=torch.int32)
    return (bits << (shifts.flip(0) if top_first else shifts)).sum(2, dtype=torch.int32)


SLIPS: dict[str, Callable] = {
    "you'd get this y from x > 0, or tl.maximum without propagate_nan=: both turn NaN into 0": lambda x: (
        torch.where(x > 0, x, 0),
        _mask(~(x <= 0)),
    ),
    "you'd get these words from x > 0, which is false for NaN": lambda x: (torch.relu(x), _mask(x > 0)),
    "you'd get these words with 0 and 1 swapped: the bit is 1 where dy passes": lambda x: (
        torch.relu(x),
        _mask(x <= 0),
    ),
    "you'd get these words with 0 and 1 swapped, and ones past the end of a row": lambda x: (
        torch.relu(x),
        _mask(x <= 0, spare=1),
    ),
    "you'd get these words if the bit were 1 at x = 0: torch's gradient is 0 there": lambda x: (
        torch.relu(x),
        _mask((x >= 0) | x.isnan()),
    ),
    "you'd get these words from x != 0: no gradient passes a negative x": lambda x: (
        torch.relu(x),
        _mask(x != 0),
    ),
    "you'd get these words if the bits were shifted down with >>: bit i is 1 << i": lambda x: (
        torch.relu(x),
        _mask(~(x <= 0), down=True),
    ),
    "you'd get these words with element 0 in the highest bit: it's the lowest": lambda x: (
        torch.relu(x),
        _mask(~(x <= 0), top_first=True),
    ),
    "you'd get these words with ones past the end of a row: those bits must be 0": lambda x: (
        torch.relu(x),
        _mask(~(x <= 0), spare=1),
    ),
    "you'd get these words from ~ of an int32, where ~1 is -2: use ~ before you convert": lambda x: (
        torch.relu(x),
        _mask(~(x <= 0).int(), spare=-2),
    ),
}
"""Wrong results that are often seen, by what the report says about them."""


RELU_PACK = Puzzle(
    number="17",
    spec=relu_pack,
    formula=(
        r"y_{m, n} = \mathrm{relu}(x_{m, n}) \qquad"
        r"\mathrm{mask}_{m, w} = \sum_{i=0}^{31} \mathrm{bit}_{m, \, 32w + i} \cdot 2^i"
    ),
    grid=lambda s: (s.M, triton.cdiv(s.N, 32 * s.BLOCK_W)),
    cases=(
        # one program, four words
        Case(M=1, N=128, BLOCK_W=4),
        # several rows, two blocks each, all full
        Case(M=3, N=256, BLOCK_W=4),
        # ragged: the last block has one word, the last word one element
        Case(M=4, N=65, BLOCK_W=2),
        # every bit set, rows shorter than a word
        Case(M=5, N=9, BLOCK_W=4, fill={"x": positive}),
        # every bit set, the sign bits too
        Case(M=2, N=96, BLOCK_W=4, fill={"x": positive}),
        # NaN, infinities, zeros of both signs, and tiny numbers
        Case(M=3, N=100, BLOCK_W=4, fill={"x": odd_values}),
    ),
    outputs=("y", "mask"),
    exact=("y",),
    slips=SLIPS,
    contract=Contract(
        {"M": Size(17), "N": Size(1100), "BLOCK_W": (4, 16)},
        fills=lambda s: ({"x": far_apart}, {"x": odd_values}),
    ),
)


def relu_unpack_backward(
    dy: BFloat16[Tensor, "M N"], mask: Int32[Tensor, " M (N+31)//32"]
) -> BFloat16[Tensor, "M N"]:
    """dx[m, n] = dy[m, n] if bit n % 32 of mask[m, n // 32] is 1, otherwise 0

    Bits past the end of a row can be anything. Load each word only once.
    """
    passes = unpack_bits(mask, dy.shape[1], BITS=1).bool()  # [M, N], puzzle 14
    dx = torch.zeros_like(dy)
    dx[passes] = dy[passes]
    return dx


def _where(
    dy: Tensor,
    mask: Tensor,
    passes: Callable[[Tensor], Tensor],
    but_the_sign: bool = False,
    up: bool = False,
) -> Tensor:
    """Return dy where passes is True of the word, shifted down or up, and 0 elsewhere.

    but_the_sign: never for bit 31.
    """
    words, i = mask[:, :, None], torch.arange(32, dtype=torch.int32)
    kept = passes((words << i if up else words >> i).flatten(1))  # [M, W * 32]
    if but_the_sign:
        kept = kept & (torch.arange(kept.shape[1]) % 32 != 31)
    return torch.where(kept[:, : dy.shape[1]], dy, 0)


BACKWARD_SLIPS: dict[str, Callable] = {
    "you'd get this dx with dy and 0 swapped: dy passes if the bit is 1": (
        lambda dy, mask: _where(dy, mask, lambda shifted: shifted & 1 == 0)
    ),
    "you'd get this dx from a shift without & 1: the bits above are still there": (
        lambda dy, mask: _where(dy, mask, lambda shifted: shifted != 0)
    ),
    "you'd get this dx if you compared with 1 but left out & 1: the bits above are still there": (
        lambda dy, mask: _where(dy, mask, lambda shifted: shifted == 1)
    ),
    "you'd get this dx if the words were shifted up with <<: >> brings bit i down to bit 0": (
        lambda dy, mask: _where(dy, mask, lambda shifted: shifted & 1 == 1, up=True)
    ),
    "you'd get this dx from % 2 == 1: for a negative word, the remainder of 1 is -1": (
        lambda dy, mask: _where(dy, mask, lambda shifted: torch.fmod(shifted, 2) == 1)
    ),
    "you'd get this dx with element 0 in the highest bit: it's the lowest": (
        lambda dy, mask: _from_the_top(dy, mask)
    ),
    "you'd get this dx if bit 31 never let dy pass: it is the sign, and 1 << 31 is negative": (
        lambda dy, mask: _where(dy, mask, lambda shifted: shifted & 1 == 1, but_the_sign=True)
    ),
    "you'd get this dx from a shift and > 0 without & 1: the bits above are still there": (
        lambda dy, mask: _where(dy, mask, lambda shifted: shifted > 0)
    ),
    "you'd get this dx from the sign of dy: the bit of the mask decides": (
        lambda dy, mask: torch.where(dy > 0, dy, 0)
    ),
}
"""Wrong gradients that are often seen, by what the report says about them."""


def _from_the_top(dy: Tensor, mask: Tensor) -> Tensor:
    bits = (mask[:, :, None] >> torch.arange(32, dtype=torch.int32).flip(0)) & 1
    return torch.where(bits.flatten(1)[:, : dy.shape[1]] == 1, dy, 0)


RELU_UNPACK_BACKWARD = Puzzle(
    number="18",
    spec=relu_unpack_backward,
    formula=(
        r"dx_{m, n} = \begin{cases} dy_{m, n} & \text{bit } n \bmod 32 \text{ of }"
        r"\mathrm{mask}_{m, \lfloor n / 32 \rfloor} \text{ is } 1 \\ 0 & \text{else} \end{cases}"
    ),
    grid=lambda s: (s.M, triton.cdiv(s.N, 32 * s.BLOCK_W)),
    cases=(
        # one program, four words
        Case(M=1, N=128, BLOCK_W=4),
        # several rows, two blocks each, all full
        Case(M=3, N=256, BLOCK_W=4),
        # ragged: the last block has one word, the last word one element
        Case(M=4, N=65, BLOCK_W=2),
        # every gradient passes; rows shorter than a word
        Case(M=5, N=9, BLOCK_W=4, fill={"mask": all_bits_set}),
        # none passes
        Case(M=2, N=100, BLOCK_W=4, fill={"dy": odd_values, "mask": zeros}),
        # NaN, infinities, zeros of both signs, and tiny numbers
        Case(M=3, N=100, BLOCK_W=4, fill={"dy": odd_values}),
    ),
    outputs=("dx",),
    exact=("dx",),
    most_loads={"mask": lambda s: s.M * triton.cdiv(s.N, 32)},
    slips=BACKWARD_SLIPS,
    contract=Contract(
        {"M": Size(17), "N": Size(1100), "BLOCK_W": (4, 16)},
        fills=lambda s: ({"dy": far_apart}, {"dy": odd_values}),
    ),
)

PUZZLES = (RELU_PACK, RELU_UNPACK_BACKWARD)
