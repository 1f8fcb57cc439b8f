"""Chapter 14: a linear layer in int8. Rows are quantized as they arrive, weights once; sums are exact."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
import triton
from jaxtyping import Float32, Int8
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import unmoved, zeros
from puzzles_lib.puzzle import Case, Puzzle

TOP = 127
MARGIN = 1 / 64  # of a code: far above the error of float32 arithmetic on codes up to 127


def quantize_rows(
    x: Float32[Tensor, "M K"],
) -> tuple[Int8[Tensor, "M K"], Float32[Tensor, " M"]]:
    """codes, scale: one scale per row, codes from -127 to 127

    scale[m] = max over k of |x[m, k]|, divided by 127, or 1 if the row is all zeros.
    A peak that isn't 0 is at least 2e-36.
    codes[m, k] = x[m, k] / scale[m], rounded half to even.
    x * (1 / scale) is fine, too: where the two could differ, nothing is checked.
    """
    scale = x.abs().amax(dim=1) / 127
    scale = scale.masked_fill(scale == 0, 1.0)
    return torch.round(x / scale[:, None]).to(torch.int8), scale


def _symmetric(x: Tensor, cut: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """Return codes, made from quotients by cut, and scales."""
    peak = x.abs().amax(dim=1)  # [M]
    scale = torch.where(peak > 0, peak / TOP, 1.0)
    return cut(x / scale[:, None]).to(torch.int8), scale


# ---- data whose codes don't depend on how a correct kernel orders its float32 operations
#
# Codes are compared exactly, so no value may be one that can be rounded either way. `off_ties` keeps every
# quotient MARGIN away from a tie. In `on_ties`, scales are powers of two and values are whole or half
# multiples of them, so every way to compute the quotient is exact in float32.


def off_ties(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal rows of several sizes. Every other peak is negative; no quotient is near a tie."""
    x = torch.randn(shape, generator=generator)
    x[torch.rand(shape, generator=generator) < 1 / 16] = 0.0
    x *= 2.0 ** torch.randint(-3, 4, (shape[0], 1), generator=generator)
    return _moved_off_ties(_with_peaks(x))


@unmoved
def on_ties(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return whole and half codes of either sign, as many of each; scales are powers of two."""
    x = torch.randint(-2 * TOP, 2 * TOP + 1, shape, generator=generator) / 2
    x[:, shape[1] // 2] = TOP * (-1.0) ** torch.arange(shape[0])
    return x * 2.0 ** torch.randint(-3, 4, (shape[0], 1), generator=generator)


def tiny(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values like those of `off_ties`, but 2^40 times smaller."""
    return off_ties(shape, dtype, generator) * 2.0**-40


def vanishing(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows like those of `off_ties` with peaks near 4e-36: their scales are barely not subnormal."""
    x = off_ties(shape, dtype, generator)
    return torch.ldexp(x, -118 - torch.frexp(x.abs().amax(dim=1, keepdim=True)).exponent + 1)


def one_outlier(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows of one size, except one that is 50 times as large."""
    x = torch.randn(shape, generator=generator)
    x[shape[0] // 3] *= 50
    return _moved_off_ties(_with_peaks(x))


def some_zero_rows(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows like those of `off_ties`; some are zero, and the one after each rises to its end."""
    x = off_ties(shape, dtype, generator)
    zero = torch.arange(shape[0]) % 7 % 4 == 1  # rows 1 and 5: not as far apart as blocks are
    rising = zero.roll(1)
    x[zero] = 0.0
    x[rising] = x[rising].gather(1, x[rising].abs().argsort(dim=1))
    return x


def rising(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows like those of `off_ties` whose magnitudes rise toward the end of the row."""
    x = off_ties(shape, dtype, generator)
    return x.gather(1, x.abs().argsort(dim=1))


def _with_peaks(x: Tensor) -> Tensor:
    """Return x with peaks that are negative in even rows and positive in odd rows."""
    column = x.abs().argmax(dim=1, keepdim=True)  # [M, 1]
    sign = (-1.0) ** (1 + torch.arange(x.shape[0]))[:, None]
    return x.scatter(1, column, sign * x.gather(1, column).abs())


def _moved_off_ties(x: Tensor) -> Tensor:
    """Return x with zeros for all values whose quotient is too near a tie. No peak is."""
    steps = x.double() / (x.abs().amax(dim=1, keepdim=True).double() / TOP).clamp(min=1e-30)
    return torch.where((steps % 1 - 0.5).abs() < MARGIN, 0.0, x)


def _rounded_by(cut: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return quantize_rows with another way to make codes from quotients.

    The quotients are float32's: in float64 that of a peak may be just below 127.
    """

    def spec(x: Tensor) -> tuple[Tensor, Tensor]:
        codes, scale = _symmetric(x.float(), cut)
        return codes, scale.to(x.dtype)

    return spec


def _by_2_to_23(steps: Tensor) -> Tensor:
    """Return what adding and subtracting 2^23 makes of float32 quotients, then cut off by the cast."""
    return ((steps + 2.0**23) - 2.0**23).trunc()


CUTS = {
    "your codes are truncated: .to(tl.int8) drops the fraction, so round first": torch.trunc,
    "your codes are always rounded down": torch.floor,
    "2^23 rounds only positive quotients to integers: add and subtract 1.5 * 2^23": _by_2_to_23,
    "0.5 was added to negative quotients, too, and the cast drops the fraction": lambda steps: (
        steps + 0.5
    ).trunc(),
    "your ties always go up: they should go to the even code": lambda steps: (steps + 0.5).floor(),
    "your ties always go away from zero: they should go to the even code": lambda steps: (
        steps.sign() * (steps.abs() + 0.5).floor()
    ),
}
"""Slips in making codes from quotients, by what a report says of them."""


def _other_scale_for_zeros(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return quantize_rows with another scale for rows of zeros: a least peak of 1e-12, as is often used."""
    codes, scale = quantize_rows(x)
    return codes, torch.where(x.abs().amax(dim=1) > 0, scale, torch.tensor(1e-12) / TOP).to(scale.dtype)


def _zeros_divided_too(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return quantize_rows with 1 instead of the peak of a row of zeros, before the division."""
    codes, scale = quantize_rows(x)
    return codes, torch.where(x.abs().amax(dim=1) > 0, scale, 1 / TOP).to(scale.dtype)


def _cast(steps: Tensor) -> Tensor:
    """Return rounded quotients as int8, cast as a GPU does: clamped to int16, then cut to the lower half."""
    whole = torch.round(steps).nan_to_num(0.0, 32767.0, -32768.0)
    return whole.clamp(-32768, 32767).to(torch.int32).to(torch.int8)


def _by_peaks(peaks: Callable[..., Tensor], scale_of: Callable[[Tensor], Tensor]) -> Callable[..., tuple]:
    """Return quantize_rows with other peaks of x, which is float32 here, or other scales."""

    def quantize(x: Tensor, BLOCK_K: int) -> tuple[Tensor, Tensor]:
        scale = scale_of(peaks(x.float(), BLOCK_K))  # [M]
        return _cast(x.float() / scale[:, None]), scale.to(x.dtype)

    return quantize


def _scale_of(peak: Tensor) -> Tensor:
    return torch.where(peak > 0, peak / TOP, 1.0)


def _largest_magnitude(x: Tensor, BLOCK_K: int) -> Tensor:
    return x.abs().amax(dim=1)


def _of_the_last_block(x: Tensor, BLOCK_K: int) -> Tensor:
    return x.split(BLOCK_K, dim=1)[-1].abs().amax(dim=1)


def _codes_of_one_walk(x: Tensor, BLOCK_K: int) -> tuple[Tensor, Tensor]:
    """Return quantize_rows with the codes of each block made from the peak so far."""
    peak = _peaks_so_far(x.float(), BLOCK_K)  # [M, K]
    scale = _scale_of(peak)
    return _cast(x.float() / scale), scale[:, -1].to(x.dtype)


def _peaks_so_far(x: Tensor, BLOCK_K: int) -> Tensor:
    """Return the largest magnitude of a row up to the end of each element's block."""
    blocks = x.split(BLOCK_K, dim=1)
    peaks = torch.stack([block.abs().amax(dim=1) for block in blocks], dim=1).cummax(dim=1).values
    return torch.cat([peaks[:, i : i + 1].expand_as(block) for i, block in enumerate(blocks)], dim=1)


PEAKS = {
    "each peak is the largest value of its row, not the largest magnitude: is tl.abs missing?": _by_peaks(
        lambda x, BLOCK_K: x.amax(dim=1).clamp(min=0), _scale_of
    ),
    "each peak is that of the last block of K: keep the larger of it and the peak so far": _by_peaks(
        _of_the_last_block, _scale_of
    ),
    "each scale is the peak / 128, so the peak itself gets code 128: divide by 127": _by_peaks(
        _largest_magnitude, lambda peak: torch.where(peak > 0, peak / (TOP + 1), 1.0)
    ),
}
"""Slips in making scales, by what a report says of them."""


QUANTIZE_ROWS = Puzzle(
    number="22",
    spec=quantize_rows,
    formula=(
        r"\mathrm{scale}_m = \frac{\max_k |x_{m, k}|}{127} \qquad "
        r"\mathrm{codes}_{m, k} = \mathrm{round}\!\left(\frac{x_{m, k}}{\mathrm{scale}_m}\right)"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    cases=(
        # one program, one iteration
        Case(M=8, K=64, BLOCK_M=8, BLOCK_K=64, fill={"x": off_ties}),
        # several programs and iterations, all full
        Case(M=16, K=128, BLOCK_M=4, BLOCK_K=32, fill={"x": off_ties}),
        # ragged on both axes
        Case(M=13, K=100, BLOCK_M=4, BLOCK_K=64, fill={"x": off_ties}),
        # quotients like 0.5, -1.5 and 126.5
        Case(M=6, K=300, BLOCK_M=4, BLOCK_K=128, fill={"x": on_ties}),
        # one row 50 times as large as its neighbors
        Case(M=9, K=50, BLOCK_M=16, BLOCK_K=32, fill={"x": one_outlier}),
        # rows of zeros
        Case(M=7, K=33, BLOCK_M=2, BLOCK_K=32, fill={"x": some_zero_rows}),
        # one token, of values far below 1
        Case(M=1, K=200, BLOCK_M=1, BLOCK_K=64, fill={"x": tiny}),
    ),
    outputs=("codes", "scale"),
    slips={text: _rounded_by(cut) for text, cut in CUTS.items()}
    | PEAKS
    | {
        "the rows of zeros are wrong: their scale should be 1": _other_scale_for_zeros,
        "rows of zeros have scale 1 / 127: put the 1 where the scale is chosen, not the peak": (
            _zeros_divided_too
        ),
        "codes of the first blocks are made before the peak of the whole row is known": _codes_of_one_walk,
    },
    most_loads={"x": lambda s: 2 * s.M * s.K},  # once for the peak, once for the codes
    contract=Contract(
        {
            "M": Size(70),
            "K": Size(2100),
            "BLOCK_M": (8, 16),
            "BLOCK_K": lambda s: (128,) if s.K > 1000 else (32, 1024),
        },
        fills=lambda s: ({"x": vanishing}, {"x": off_ties}),
    ),
)  # fmt: skip


def int8_linear(
    xq: Int8[Tensor, "M K"],
    x_scale: Float32[Tensor, " M"],
    wq: Int8[Tensor, "N K"],
    w_scale: Float32[Tensor, " N"],
    bias: Float32[Tensor, " N"],
) -> Float32[Tensor, "M N"]:
    """y[m, n] = x_scale[m] · w_scale[n] · (Σ over k of xq[m, k] · wq[n, k]) + bias[n]

    The sum adds integers and is exact. K is at most 131071, so it fits in an int32.
    """
    # float64 holds such sums exactly
    acc = (xq.double() @ wq.double().T).to(torch.int32)
    return x_scale[:, None] * w_scale * acc + bias


def scales(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return positive scales around 2^-7, as int8 rows have them."""
    return (0.5 + torch.rand(shape, generator=generator)) / 128


def huge_scales(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return scales near 6e29, whose products with the scales of `vanishing` rows are near 2e-8."""
    return scales(shape, dtype, generator) * 2.0**106


def top_codes(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 127 everywhere."""
    return torch.full(shape, TOP, dtype=dtype)


def lowest_codes(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return -128 everywhere: `quantize_rows` never makes that code, but other quantizers do."""
    return torch.full(shape, -TOP - 1, dtype=dtype)


def there_and_back(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows that are 127 up to the middle and -127 after it, or one less in magnitude.

    Multiplied by `top_codes`, the sum climbs past 2^24, where float32 has only even numbers, and returns.
    """
    codes = torch.full(shape, TOP)
    codes[:, shape[1] // 2 :] = -TOP
    codes -= codes.sign() * torch.randint(0, 2, shape, generator=generator)
    return codes.to(dtype)


def _weights_as_k_by_n(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
    """Return y if wq's memory is read as [K, N]."""
    turned = wq.contiguous().view(wq.shape[1], wq.shape[0]).T
    return int8_linear(xq, x_scale, turned, w_scale, bias)


def _bias_scaled(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
    """Return y if the bias is added to the sum before the scales."""
    return int8_linear(xq, x_scale, wq, w_scale, torch.zeros_like(bias)) + x_scale[:, None] * w_scale * bias


def _only_bias(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
    """Return y without the products."""
    return bias.expand(len(x_scale), -1)


def _rows_of_a_block(
    xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor, BLOCK_K: int
) -> Tensor:
    """Return y if rows of wq are taken to be BLOCK_K elements apart."""
    places = torch.arange(wq.shape[0])[:, None] * BLOCK_K + torch.arange(wq.shape[1])
    there = wq.flatten()[places.clamp(max=wq.numel() - 1)]  # a kernel that goes further is out of bounds
    return int8_linear(xq, x_scale, there, w_scale, bias)


def _rows_of_n(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
    """Return y if rows of wq are taken to be N elements apart."""
    places = torch.arange(wq.shape[0])[:, None] * wq.shape[0] + torch.arange(wq.shape[1])
    there = wq.flatten()[places.clamp(max=wq.numel() - 1)]  # a kernel that goes further is out of bounds
    return int8_linear(xq, x_scale, there, w_scale, bias)


def _without(*names: str) -> Callable[..., Tensor]:
    """Return int8_linear without its bias, or without some of its scales."""

    def spec(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
        given = {"x_scale": x_scale, "w_scale": w_scale}
        kept = {name: torch.ones_like(each) if name in names else each for name, each in given.items()}
        added = torch.zeros_like(bias) if "bias" in names else bias
        return int8_linear(xq, kept["x_scale"], wq, kept["w_scale"], added)

    return spec


def _one_block(at: int) -> Callable[..., Tensor]:
    """Return int8_linear with the products of one block of K alone: 0 is the first, -1 the last."""

    def spec(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor, BLOCK_K: int) -> Tensor:
        x, w = (codes.split(BLOCK_K, dim=1)[at] for codes in (xq, wq))
        return int8_linear(x, x_scale, w, w_scale, bias)

    return spec


WITHOUT = {
    "the bias": ("bias",),
    "the weights' scale": ("w_scale",),
    "the row's scale": ("x_scale",),
    "the two scales": ("x_scale", "w_scale"),
    "the weights' scale and the bias": ("w_scale", "bias"),
    "the row's scale and the bias": ("x_scale", "bias"),
}
"""What may be missing after the sum, in words, and the names of these inputs."""


def _scales_read_at(row: str, column: str) -> Callable[..., Tensor]:
    """Return int8_linear with x_scale read along the axis `row` and w_scale along `column`, "M" or "N"."""

    def spec(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
        at = {"M": torch.arange(len(x_scale))[:, None], "N": torch.arange(len(w_scale))}
        x_read = x_scale[at[row].clamp(max=len(x_scale) - 1)]  # a kernel that goes further is out of bounds
        w_read = w_scale[at[column].clamp(max=len(w_scale) - 1)]
        ones = torch.ones_like
        sums = int8_linear(xq, ones(x_scale), wq, ones(w_scale), torch.zeros_like(bias))
        return x_read * w_read * sums + bias

    return spec


def _bias_per_block(
    xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor, BLOCK_K: int
) -> Tensor:
    """Return y if the bias is added in every iteration."""
    return int8_linear(xq, x_scale, wq, w_scale, bias * triton.cdiv(wq.shape[1], BLOCK_K))


def _narrow(dtype: torch.dtype) -> Callable[..., Tensor]:
    """Return int8_linear with sums in a short integer."""

    def spec(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
        acc = (xq.double() @ wq.double().T).to(torch.int64).to(dtype)
        return x_scale[:, None] * w_scale * acc + bias

    return spec


def _narrow_products(xq: Tensor, x_scale: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
    """Return int8_linear with products that are cut to int8. Their sum is exact."""
    codes, weights = xq.to(torch.int8), wq.to(torch.int8)
    acc = torch.stack([(row * weights).sum(dim=1, dtype=torch.int64) for row in codes])
    return x_scale[:, None] * w_scale * acc + bias


NARROW = {
    "each product is cut to int8, because both factors are int8: tl.dot multiplies exactly": _narrow_products,
    "sums are cut to int16, which ends at 32767: the dot and acc have to be int32": _narrow(torch.int16),
    "sums are cut to int8, which ends at 127: the dot and acc have to be int32": _narrow(torch.int8),
}
"""Sums in a type that is too short, by what a report says of them."""


INTEGER_DOTS = (Want("float dots", most=0), Want("integer dots", least=1))

INT8_LINEAR = Puzzle(
    number="23",
    spec=int8_linear,
    formula=(
        r"y_{m, n} = s^x_m \, s^w_n \sum_{k=0}^{K-1} x^q_{m, k} \, w^q_{n, k} \; + \; b_n"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        # one program, one iteration
        Case(M=16, N=16, K=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32),
        # several blocks on every axis, all full
        Case(M=64, N=96, K=128, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),
        # ragged on every axis
        Case(M=45, N=50, K=100, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64),
        # one more than a block, one more than an iteration
        Case(M=3, N=65, K=33, BLOCK_M=16, BLOCK_N=64, BLOCK_K=32),
        # one token
        Case(
            M=1, N=80, K=200, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64,
            fill={"x_scale": scales, "w_scale": scales},
        ),
        # the largest sums that codes can make
        Case(
            M=8, N=24, K=600, BLOCK_M=16, BLOCK_N=32, BLOCK_K=128,
            fill={"xq": top_codes, "wq": lowest_codes},
        ),
        # sums that pass 2^24 on their way to small ones
        Case(
            M=8, N=24, K=4200, BLOCK_M=16, BLOCK_N=32, BLOCK_K=512,
            fill={"xq": top_codes, "wq": there_and_back},
        ),
    ),
    outputs=("y",),
    slips={
        "it is what you get if wq is read as [K, N]: row n starts at n * K": _weights_as_k_by_n,
        "it is what you get if the bias is added before the scales": _bias_scaled,
        **{f"it is what you get without {words}": _without(*names) for words, names in WITHOUT.items()},
        "y is the bare sum of codes: multiply it by the two scales, then add the bias": _without(
            "x_scale", "w_scale", "bias"
        ),
        "it is what you get if x_scale is read at offs_n: row m has the scale x_scale[m]": _scales_read_at(
            "N", "N"
        ),
        "it is what you get if w_scale is read at offs_m: output n has the scale w_scale[n]": _scales_read_at(
            "M", "M"
        ),
        "the two scales are exchanged: x_scale has one for each row, w_scale for each output": (
            _scales_read_at("N", "M")
        ),
        "it is what you get if the bias is added once per block of K: add it once, at the end": (
            _bias_per_block
        ),
        "rows of wq are read BLOCK_K elements apart, but they are K elements apart": _rows_of_a_block,
        "rows of wq are read N elements apart, but they are K elements apart": _rows_of_n,
        "acc has the products of the last block of K alone: add each dot to it": _one_block(-1),
        "acc has the products of the first block of K alone": _one_block(0),
        "y is only the bias: no product is added to acc": _only_bias,
        **NARROW,
    },
    machine=(Goal(cases=(1,), wants=INTEGER_DOTS),),
    contract=Contract(
        {
            "M": Size(150),
            "K": Size(17000),
            "N": Size(300),
            "BLOCK_M": (32, 64),
            "BLOCK_N": (32, 64),
            "BLOCK_K": lambda s: (512,) if s.K > 1000 else (64, 128),
        },
        most_programs=4,
    ),
)  # fmt: skip


def fused_linear(
    x: Float32[Tensor, "M K"],
    wq: Int8[Tensor, "N K"],
    w_scale: Float32[Tensor, " N"],
    bias: Float32[Tensor, " N"],
) -> Float32[Tensor, "M N"]:
    """Puzzles 22 and 23 in one kernel

    y[m, n] = scale[m] · w_scale[n] · (Σ over k of codes[m, k] · wq[n, k]) + bias[n]
    with codes and scale as quantize_rows(x) makes them: one scale per row of x, and 1
    for a row of zeros.
    """
    codes, scale = quantize_rows(x)
    return int8_linear(codes, scale, wq, w_scale, bias)


def _fused(quantize: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """Return fused_linear with other codes or scales."""

    def spec(x: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
        codes, scale = quantize(x)
        return int8_linear(codes, scale, wq, w_scale, bias)

    return spec


def _fused_by_block(quantize: Callable[[Tensor, int], tuple[Tensor, Tensor]]) -> Callable[..., Tensor]:
    """Return fused_linear with codes or scales that depend on BLOCK_K."""

    def spec(x: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor, BLOCK_K: int) -> Tensor:
        codes, scale = quantize(x, BLOCK_K)
        return int8_linear(codes, scale, wq, w_scale, bias)

    return spec


def _then(linear: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return fused_linear with another function after quantize_rows."""

    def spec(x: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor) -> Tensor:
        return linear(*quantize_rows(x), wq, w_scale, bias)

    return spec


def _last_block_alone(x: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor, BLOCK_K: int) -> Tensor:
    """Return fused_linear with the products of the last block of K alone."""
    return _one_block(-1)(*quantize_rows(x), wq, w_scale, bias, BLOCK_K)


def _one_walk(corrected: bool) -> Callable[..., Tensor]:
    """Return fused_linear in one walk whose peak grows. corrected: whether acc is rescaled when it does."""

    def spec(x: Tensor, wq: Tensor, w_scale: Tensor, bias: Tensor, BLOCK_K: int) -> Tensor:
        peaks = _peaks_so_far(x.float(), BLOCK_K)  # [M, K]
        codes = _cast(x.float() / _scale_of(peaks)).double()
        acc, peak = 0.0, torch.zeros(len(x))
        for start in range(0, x.shape[1], BLOCK_K):
            block = slice(start, start + BLOCK_K)
            before, peak = peak, peaks[:, start]
            factor = torch.where(before > 0, before / peak, 1.0) if corrected else torch.ones_like(peak)
            acc = acc * factor.double()[:, None] + codes[:, block] @ wq[:, block].double().T
        return _scale_of(peak)[:, None] * w_scale * acc + bias

    return spec


def _undivided(cut: Callable[[Tensor], Tensor]) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return quantize_rows with codes that are x itself, cut to integers."""
    return lambda x: (cut(x).to(torch.int8), quantize_rows(x)[1])


FUSED_LINEAR = Puzzle(
    number="23b",
    spec=fused_linear,
    formula=(
        r"y_{m, n} = s_m \, s^w_n \sum_{k=0}^{K-1} \mathrm{round}\!\left(\frac{x_{m, k}}{s_m}\right) "
        r"w^q_{n, k} \; + \; b_n \qquad s_m = \frac{\max_k |x_{m, k}|}{127}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        # one program, one iteration
        Case(M=16, N=16, K=32, BLOCK_M=16, BLOCK_N=16, BLOCK_K=32, fill={"x": off_ties}),
        # several blocks on every axis, all full
        Case(M=32, N=64, K=128, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64, fill={"x": off_ties}),
        # ragged on every axis
        Case(M=45, N=50, K=100, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64, fill={"x": off_ties}),
        # quotients like 0.5, -1.5 and 126.5
        Case(M=6, N=60, K=250, BLOCK_M=16, BLOCK_N=32, BLOCK_K=128, fill={"x": on_ties}),
        # rows of zeros; one more than an iteration
        Case(M=7, N=33, K=33, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32, fill={"x": some_zero_rows}),
        # one token in a tile of one row
        Case(
            M=1, N=40, K=200, BLOCK_M=1, BLOCK_N=32, BLOCK_K=64,
            fill={"x": off_ties, "w_scale": scales},
        ),
        # one row 50 times as large as its neighbors, and the lowest codes
        Case(
            M=9, N=24, K=90, BLOCK_M=16, BLOCK_N=32, BLOCK_K=32,
            fill={"x": one_outlier, "wq": lowest_codes},
        ),
        # blocks of M and N longer than an iteration
        Case(M=40, N=40, K=100, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32, fill={"x": off_ties}),
        # sums that pass 2^24 on their way to small ones
        Case(
            M=8, N=24, K=4200, BLOCK_M=16, BLOCK_N=32, BLOCK_K=512,
            fill={"x": top_codes, "wq": there_and_back},
        ),
    ),
    outputs=("y",),
    slips={text: _fused(_rounded_by(cut)) for text, cut in CUTS.items()}
    | {
        **{text: _fused_by_block(quantize) for text, quantize in PEAKS.items()},
        **{
            f"it is what you get without {words}": _then(_without(*names)) for words, names in WITHOUT.items()
        },
        "y is the bare sum of codes: multiply it by the two scales, then add the bias": _then(
            _without("x_scale", "w_scale", "bias")
        ),
        "it is what you get with a peak that grows, and sums rescaled when it does: codes need the peak of "
        "the whole row": _one_walk(corrected=True),
        "codes of the first blocks are made before the peak of the whole row is known": _one_walk(
            corrected=False
        ),
        "rows of wq are read N elements apart, but they are K elements apart": _then(_rows_of_n),
        "it is what you get if wq is read as [K, N]: row n starts at n * K": _then(_weights_as_k_by_n),
        "acc has the products of the last block of K alone: add each dot to it": _last_block_alone,
        "x is rounded to codes without being divided by its scale": _fused(_undivided(torch.round)),
        "x itself is cast to int8, not divided by its scale and not rounded": _fused(_undivided(torch.trunc)),
        "y is only the bias: no product is added to acc": lambda x, wq, w_scale, bias: (
            bias.expand(len(x), -1)
        ),
        **{text: _then(narrow) for text, narrow in NARROW.items()},
    },
    hard={
        "a row of numbers near 1e-36 isn't a row of zeros": (
            Case(
                M=16, N=32, K=64, BLOCK_M=16, BLOCK_N=32, BLOCK_K=64,
                fill={"x": vanishing, "w_scale": huge_scales, "bias": zeros},
            )
        ),
    },
    machine=(Goal(cases=(1,), wants=INTEGER_DOTS),),
    contract=Contract(
        {
            "M": Size(150),
            "K": Size(17000),
            "N": Size(150),
            "BLOCK_M": (16, 32),
            "BLOCK_N": (32, 64),
            "BLOCK_K": lambda s: (512,) if s.K > 1000 else (64, 512),
        },
        # the peak is small, and there is nothing beside it; or it is in the last block
        fills=lambda s: ({"x": tiny, "bias": zeros}, {"x": rising}),
        most_programs=4,
    ),
)  # fmt: skip


def tiled_linear(
    xq: Int8[Tensor, "M K"],
    x_scale: Float32[Tensor, " M"],
    tiles: Int8[Tensor, "(N+TILE_N-1)//TILE_N (K+TILE_K-1)//TILE_K TILE_N TILE_K"],
    w_scale: Float32[Tensor, " N"],
    bias: Float32[Tensor, " N"],
) -> Float32[Tensor, "M N"]:
    """y[m, n] = x_scale[m] · w_scale[n] · (Σ over k of xq[m, k] · wq[n, k]) + bias[n]

    wq[n, k] is tiles[n // TILE_N, k // TILE_K, n % TILE_N, k % TILE_K].
    The last tiles reach past N and K. What's there is padding and can be anything.
    """
    # [N or more, K or more]
    padded = tiles.transpose(1, 2).flatten(0, 1).flatten(1, 2)
    return int8_linear(xq, x_scale, padded[: len(bias), : xq.shape[1]], w_scale, bias)


def _tile_elements(s: Case) -> int:
    return triton.cdiv(s.N, s.TILE_N) * triton.cdiv(s.K, s.TILE_K) * s.TILE_N * s.TILE_K


def _tiles_at(place: Callable[..., Tensor], rounded_up: bool = True) -> Callable[..., Tensor]:
    """Return tiled_linear with wq read from other places in memory.

    place: the place from i (the row of tiles), step, n and k in a tile, and the sizes. rounded_up: whether
    a last tile that reaches past K counts.
    """

    def spec(
        xq: Tensor, x_scale: Tensor, tiles: Tensor, w_scale: Tensor, bias: Tensor, TILE_N: int, TILE_K: int
    ) -> Tensor:
        N, K = len(bias), xq.shape[1]
        n, k = torch.arange(N)[:, None], torch.arange(K)
        steps = triton.cdiv(K, TILE_K) if rounded_up else K // TILE_K
        at = SimpleNamespace(steps=steps, down=triton.cdiv(N, TILE_N), K=K, TILE_N=TILE_N, TILE_K=TILE_K)
        places = place(n // TILE_N, k // TILE_K, n % TILE_N, k % TILE_K, at).expand(N, K)
        there = places.clamp(max=tiles.numel() - 1)  # a kernel that goes further is out of bounds
        wq = torch.where(k < steps * TILE_K, tiles.flatten()[there], 0)
        return int8_linear(xq, x_scale, wq.to(tiles.dtype), w_scale, bias)

    return spec


def _codes_of_the_next_row(
    xq: Tensor, x_scale: Tensor, tiles: Tensor, w_scale: Tensor, bias: Tensor
) -> Tensor:
    """Return y if a row of xq goes on past K, with the codes that follow in memory."""
    M, K = xq.shape
    padded = tiles.transpose(1, 2).flatten(0, 1).flatten(1, 2)[: len(bias)]  # [N, K or more]
    places = torch.arange(M)[:, None] * K + torch.arange(padded.shape[1])
    rows = torch.where(places < M * K, xq.flatten()[places.clamp(max=M * K - 1)], 0)
    return int8_linear(rows.to(xq.dtype), x_scale, padded, w_scale, bias)


TILE_SLIPS = {
    "past K, the next row's codes are multiplied by the padding: mask xq along K": _codes_of_the_next_row,
    "each tile is read as if n were innermost: it is k, so (n, k) is at n * TILE_K + k": _tiles_at(
        lambda i, step, n, k, s: ((i * s.steps + step) * s.TILE_N * s.TILE_K) + k * s.TILE_N + n
    ),
    "tiles are read in the wrong order: those of one row of tiles are neighbors": _tiles_at(
        lambda i, step, n, k, s: ((step * s.down + i) * s.TILE_N + n) * s.TILE_K + k
    ),
    "from one tile to the next you go TILE_K elements: a tile has TILE_N * TILE_K": _tiles_at(
        lambda i, step, n, k, s: (i * s.steps + step) * s.TILE_K + n * s.TILE_K + k
    ),
    "from one tile to the next you go TILE_N elements: a tile has TILE_N * TILE_K": _tiles_at(
        lambda i, step, n, k, s: (i * s.steps + step) * s.TILE_N + n * s.TILE_K + k
    ),
    "the number of a tile is used as its address: multiply it by TILE_N * TILE_K": _tiles_at(
        lambda i, step, n, k, s: i * s.steps + step + n * s.TILE_K + k
    ),
    "each row has K // TILE_K tiles here: round up, because the last tile is padded": _tiles_at(
        lambda i, step, n, k, s: ((i * s.steps + step) * s.TILE_N + n) * s.TILE_K + k, rounded_up=False
    ),
    "from one row of tiles to the next you go TILE_N * K: rows are padded, so it's steps * TILE_N * TILE_K": (
        _tiles_at(lambda i, step, n, k, s: i * s.TILE_N * s.K + (step * s.TILE_N + n) * s.TILE_K + k)
    ),
    "from one row of tiles to the next you go one tile: a row has tl.cdiv(K, TILE_K) of them": _tiles_at(
        lambda i, step, n, k, s: ((i + step) * s.TILE_N + n) * s.TILE_K + k
    ),
    "every program reads the first row of tiles": _tiles_at(
        lambda i, step, n, k, s: (step * s.TILE_N + n) * s.TILE_K + k + 0 * i
    ),
    "every step reads the first tile of its row": _tiles_at(
        lambda i, step, n, k, s: (i * s.steps * s.TILE_N + n) * s.TILE_K + k + 0 * step
    ),
    "y is only the bias: no product is added to acc": lambda xq, x_scale, tiles, w_scale, bias: bias.expand(
        len(x_scale), -1
    ),
    "acc has the products of the last tile alone: add each dot to it": lambda xq, x_scale, tiles, w_scale, bias, TILE_K: (  # noqa: E501
        _one_block(-1)(
            xq,
            x_scale,
            tiles.transpose(1, 2).flatten(0, 1).flatten(1, 2)[: len(bias), : xq.shape[1]],
            w_scale,
            bias,
            TILE_K,
        )
    ),
    "tiles are read as if they were the plain [N, K] matrix": _tiles_at(
        lambda i, step, n, k, s: (i * s.TILE_N + n) * s.K + step * s.TILE_K + k
    ),
}

TILED_LINEAR = Puzzle(
    number="24",
    spec=tiled_linear,
    formula=(
        r"\begin{gathered} "
        r"y_{m, n} = s^x_m \, s^w_n \sum_{k=0}^{K-1} x^q_{m, k} \, w^q_{n, k} \; + \; b_n \\ "
        r"w^q_{n, k} = \mathrm{tiles}\!\left[\lfloor n / T_N \rfloor,\; \lfloor k / T_K \rfloor,\;"
        r" n \bmod T_N,\; k \bmod T_K\right] \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.TILE_N)),
    cases=(
        # one tile
        Case(M=16, N=16, K=32, BLOCK_M=16, TILE_N=16, TILE_K=32),
        # several tiles on every axis, all full
        Case(M=64, N=96, K=128, BLOCK_M=16, TILE_N=32, TILE_K=64),
        # ragged on every axis
        Case(M=45, N=50, K=100, BLOCK_M=16, TILE_N=16, TILE_K=64),
        # one more than a tile on both axes, tiles taller than wide
        Case(M=3, N=65, K=33, BLOCK_M=16, TILE_N=64, TILE_K=32),
        # one token
        Case(M=1, N=40, K=200, BLOCK_M=16, TILE_N=32, TILE_K=64, fill={"x_scale": scales, "w_scale": scales}),
        # sums that pass 2^24 on their way to small ones
        Case(
            M=8, N=24, K=4096, BLOCK_M=16, TILE_N=32, TILE_K=512,
            fill={"xq": top_codes, "tiles": there_and_back},
        ),
    ),
    outputs=("y",),
    slips=TILE_SLIPS,
    machine=(Goal(cases=(4,), wants=(Want("wide loads", least=1), *INTEGER_DOTS)),),
    most_loads={"tiles": lambda s: triton.cdiv(s.M, s.BLOCK_M) * _tile_elements(s)},
    contract=Contract(
        {
            "M": Size(150),
            "K": Size(9000),
            "N": Size(300),
            "BLOCK_M": (32, 64),
            "TILE_N": (32, 64),
            "TILE_K": lambda s: (512,) if s.K > 1000 else (64, 128),
        },
        most_programs=4,
    ),
)  # fmt: skip

PUZZLES = (QUANTIZE_ROWS, INT8_LINEAR, FUSED_LINEAR, TILED_LINEAR)
