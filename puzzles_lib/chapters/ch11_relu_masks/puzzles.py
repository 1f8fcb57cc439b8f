"""Chapter 11: ReLU that keeps one bit per element for its backward pass."""

import torch
import triton
from jaxtyping import BFloat16, Int32
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import all_bits_set, far_apart, zeros
from puzzles_lib.puzzle import Case, Puzzle

ODD = (float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 2.0**-126, -(2.0**-126))


def odd_values(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Normal values; half of them replaced by NaN, infinities, zeros of both signs, and tiny numbers."""
    values = torch.randn(shape, generator=generator)
    odd = torch.tensor(ODD)[torch.randint(len(ODD), shape, generator=generator)]
    return torch.where(torch.rand(shape, generator=generator) < 0.5, odd, values).to(dtype)


def positive(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
    """Values above zero: every bit of the mask is set."""
    return (0.1 + torch.rand(shape, generator=generator)).to(dtype)


def relu_pack(
    x: BFloat16[Tensor, "M N"],
) -> tuple[BFloat16[Tensor, "M N"], Int32[Tensor, " M (N+31)//32"]]:
    """y[m, n] = relu(x[m, n]); bit n % 32 of mask[m, n // 32]: passes its gradient?

    It passes where x > 0 and, as in torch, where x is NaN; relu(NaN) is NaN. Bits
    past the end of a row are 0.
    """
    passes = ~(x <= 0)
    padded = torch.nn.functional.pad(passes.int(), (0, -x.shape[1] % 32))
    bits = padded.unflatten(1, (-1, 32))  # [M, W, 32]
    mask = (bits << torch.arange(32, dtype=torch.int32)).sum(2, dtype=torch.int32)
    return torch.relu(x), mask


RELU_PACK = Puzzle(
    number="17",
    spec=relu_pack,
    formula=(
        r"y_{m, n} = \max(x_{m, n}, 0) \qquad"
        r"\mathrm{mask}_{m, w} = \sum_{i=0}^{31} \left[ \lnot (x_{m, \, 32w + i} \le 0) \right] \cdot 2^i"
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
    contract=Contract(
        {"M": Size(17), "N": Size(1100), "BLOCK_W": (4, 16)},
        fills=lambda s: ({"x": far_apart}, {"x": odd_values}),
    ),
)


def relu_unpack_backward(
    dy: BFloat16[Tensor, "M N"], mask: Int32[Tensor, " M (N+31)//32"]
) -> BFloat16[Tensor, "M N"]:
    """dx[m, n] = dy[m, n] where bit n % 32 of mask[m, n // 32] is set, else 0

    Also where dy is infinite or NaN. Bits past the end of a row may hold anything.
    """
    bits = (mask[:, :, None] >> torch.arange(32, dtype=torch.int32)) & 1  # [M, W, 32]
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
    contract=Contract(
        {"M": Size(17), "N": Size(1100), "BLOCK_W": (4, 16)},
        fills=lambda s: ({"dy": far_apart}, {"dy": odd_values}),
    ),
)

PUZZLES = (RELU_PACK, RELU_UNPACK_BACKWARD)
