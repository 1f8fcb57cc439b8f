"""Chapter 17: normalization forward and backward, sums over programs, and a scan over blocks."""

from collections.abc import Callable

import torch
import triton
from jaxtyping import BFloat16, Float32, Int32
from torch import Tensor

from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Goal, Want
from puzzles_lib.inputs import far_apart, small, unmoved, zeros
from puzzles_lib.puzzle import Case, Puzzle

# ---- inputs that break wrong kernels


def far_from_zero(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values around 10000, where E[x²] - E[x]² has no correct digit left in float32."""
    return (1e4 + torch.randn(shape, generator=generator)).to(dtype)


@unmoved
def near_200(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a row's number 200, and here and there 201."""
    return (200 + (torch.rand(shape, generator=generator) < 0.1)).to(dtype)


@unmoved
def near_minus_200(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return the opposite of `near_200`, with other places for -201."""
    return -near_200(shape, dtype, generator)


@unmoved
def all_200(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 200 everywhere."""
    return torch.full(shape, 200.0, dtype=dtype)


def first_far(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values after a first one of 1234.567: most squares around that are like its own."""
    x = torch.randn(shape, generator=generator)
    x[..., 0] = 1234.567
    return x.to(dtype)


def all_alike(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows in which all numbers are equal."""
    return torch.randn(*shape[:-1], 1, generator=generator).expand(shape).to(dtype)


def positive(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values from 1/4 to 4, as often below 1 as above."""
    return torch.exp2(4 * torch.rand(shape, generator=generator) - 2).to(dtype)


def stretched(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows around a mean of their own, with a spread from 1/4 to 4 of their own."""
    rows = (*shape[:-1], 1)
    spread = torch.exp2(4 * torch.rand(rows, generator=generator) - 2)
    middle = torch.randn(rows, generator=generator)
    return (spread * (middle + torch.randn(shape, generator=generator))).to(dtype)


def decays(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return values from 0.9 to 1, so that early elements still count much later."""
    return (1 - 0.1 * torch.rand(shape, generator=generator)).to(dtype)


@unmoved
def sixteenths(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 1/16 and -1/16, whose products are exact."""
    return ((torch.randint(0, 2, shape, generator=generator) * 2 - 1) / 16).to(dtype)


def ones(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return ones."""
    return torch.ones(shape, dtype=dtype)


PAST_UINT32 = "a tensor can have 2^32 elements or more, too many for an offset of 32 bits"
FIRST_FAR = "the first numbers of a row can be far from all others"
LARGE_PART = "a part of the rows can have 2^31 elements"
"""What hard cases show."""

# ---- puzzle 28


def rms_norm(
    x: BFloat16[Tensor, "M N"],
    r: BFloat16[Tensor, "M N"],
    w: Float32[Tensor, " N"],
) -> tuple[BFloat16[Tensor, "M N"], BFloat16[Tensor, "M N"]]:
    """h = x + r, and y[m, n] = h[m, n] · w[n] / sqrt(mean over n of h[m, n]² + 1e-6)

    Each program has one row, which fits into its block. Load x and r once. Sum in
    float32, and compute y from h before h is rounded for the store. The tensors can
    have 2^31 elements or more.
    """
    h = x + r  # [M, N]
    return h * torch.rsqrt(h.square().mean(1, keepdim=True) + 1e-6) * w, h


def _of_rounded(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    h = (x + r).bfloat16().to(x.dtype)
    return h * torch.rsqrt(h.square().mean(1, keepdim=True) + 1e-6) * w, h


def _rms_norm_with(eps: float, after_root: bool = False) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip with another ε, or with ε added to the root."""

    def slip(x: Tensor, r: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        h = x + r
        mean = h.square().mean(1, keepdim=True)
        return h / (mean.sqrt() + eps if after_root else (mean + eps).sqrt()) * w, h

    return slip


RMS_NORM = Puzzle(
    number="28",
    spec=rms_norm,
    formula=(
        r"h_{mn} = x_{mn} + r_{mn} \qquad "
        r"y_{mn} = w_n \, h_{mn} \Big/ \sqrt{\tfrac{1}{N} \sum_{j} h_{mj}^2 + 10^{-6}}"
    ),
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=64, BLOCK_N=64),  # one program, a full block
        Case(M=4, N=128, BLOCK_N=128),  # several
        Case(M=3, N=100, BLOCK_N=128),  # a block that ends after its row
        Case(M=3, N=45, BLOCK_N=256, fill={"x": small, "r": small}),  # 1e-6 is more than the squares
        Case(M=2, N=70, BLOCK_N=128, fill={"x": zeros, "r": zeros}),
        Case(M=3, N=33, BLOCK_N=64, fill={"x": far_apart}),  # numbers that float16 cannot hold
        # 4.3 thousand million elements
        Case(pretend=True, M=2**20 + 1, N=4096, BLOCK_N=4096),
    ),
    outputs=("y", "h"),
    most_loads={"x": lambda s: s.M * s.N, "r": lambda s: s.M * s.N},
    slips={
        "y is computed from the rounded h: add in float32, and round only for the store": _of_rounded,
        "the number under the root is 1e-5: use 1e-6": _rms_norm_with(1e-5),
        "the 1e-6 is added to the root: add it to the mean, under the root": _rms_norm_with(1e-6, True),
    },
    hard={
        "x and r can nearly cancel: then sums of their squares lose all digits of h": Case(
            M=2, N=2048, BLOCK_N=2048, fill={"x": near_200, "r": near_minus_200}
        ),
    },
    contract=Contract(
        {"N": Size(1500), "M": Size(9), "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),)},
        fills=lambda s: ({}, {"x": small, "r": small}),
    ),
)

# ---- puzzle 29


def layer_norm(
    x: Float32[Tensor, "M N"],
    w: Float32[Tensor, " N"],
    b: Float32[Tensor, " N"],
) -> tuple[Float32[Tensor, "M N"], Float32[Tensor, " M"], Float32[Tensor, " M"]]:
    """y[m, n] = (x[m, n] - mean[m]) · rstd[m] · w[n] + b[n]; store mean and rstd, too

    rstd[m] = 1 / sqrt(mean over n of (x[m, n] - mean[m])² + 1e-5). Each program has
    BLOCK_M rows, which fit into one block of columns. Load x once. The numbers can
    be far from zero. x can have 2^31 elements or more, but M and N are below 2^31.
    """
    mean = x.mean(1)  # [M]
    centered = x - mean[:, None]  # [M, N]
    rstd = torch.rsqrt(centered.square().mean(1) + 1e-5)  # [M]
    return centered * rstd[:, None] * w + b, mean, rstd


def _layer_norm_by(variance) -> object:
    def spec(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mean = x.mean(1)
        rstd = torch.rsqrt(variance(x) + 1e-5)
        return (x - mean[:, None]) * rstd[:, None] * w + b, mean, rstd

    return spec


def _padded_squares(x: Tensor, w: Tensor, b: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the results if each lane past the end adds (0 - mean)² to the sum of squares."""
    extra = (BLOCK_N - N) / N
    return _layer_norm_by(lambda x: x.var(1, correction=0) + extra * x.mean(1).square())(x, w, b)


def _variance_as_rstd(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, _ = layer_norm(x, w, b)
    return y, mean, x.var(1, correction=0)


def _root_as_rstd(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    y, mean, rstd = layer_norm(x, w, b)
    return y, mean, 1 / rstd


def _eps_after_the_root(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mean = x.mean(1)
    rstd = 1 / (x.var(1, correction=0).sqrt() + 1e-5)
    return (x - mean[:, None]) * rstd[:, None] * w + b, mean, rstd


def _bias_times_weight(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return layer_norm(x, w, b * w)


LAYER_NORM = Puzzle(
    number="29",
    spec=layer_norm,
    formula=(
        r"\begin{gathered} y_{mn} = (x_{mn} - \mu_m) \, \rho_m \, w_n + b_n \\ "
        r"\mu_m = \tfrac{1}{N} \sum_{j} x_{mj} \qquad "
        r"\rho_m = 1 \Big/ \sqrt{\tfrac{1}{N} \sum_{j} (x_{mj} - \mu_m)^2 + 10^{-5}} \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    cases=(
        Case(M=4, N=64, BLOCK_M=4, BLOCK_N=64),  # one program, a full block
        Case(M=8, N=128, BLOCK_M=2, BLOCK_N=128),  # several
        Case(M=7, N=100, BLOCK_M=4, BLOCK_N=128),  # ragged on both axes
        Case(M=5, N=90, BLOCK_M=2, BLOCK_N=128, fill={"x": far_from_zero}),
        Case(M=5, N=77, BLOCK_M=4, BLOCK_N=128, fill={"x": small}),  # 1e-5 is more than the variance
        Case(M=3, N=20, BLOCK_M=2, BLOCK_N=32, fill={"x": all_alike}),
        Case(M=5, N=1, BLOCK_M=2, BLOCK_N=2),  # a row of one element
        # 2.4 thousand million elements
        Case(pretend=True, M=600_001, N=4000, BLOCK_M=2, BLOCK_N=4096),
    ),
    outputs=("y", "mean", "rstd"),
    most_loads={"x": lambda s: s.M * s.N},
    slips={
        "the sum of squares is divided by N - 1: divide by N": _layer_norm_by(
            lambda x: (x - x.mean(1, keepdim=True)).square().sum(1) / max(1, x.shape[1] - 1)
        ),
        "lanes past the end of the row are counted in the variance: 0 - mean isn't 0 there": _padded_squares,
        "the 1e-5 is added to the root: add it to the variance, under the root": _eps_after_the_root,
        "rstd contains the variance: it's one over the root": _variance_as_rstd,
        "rstd contains the root: it's one over the root": _root_as_rstd,
        "b is added before the product with w: add it after": _bias_times_weight,
    },
    hard={
        FIRST_FAR: Case(M=1, N=2048, BLOCK_M=1, BLOCK_N=2048, fill={"x": first_far}),
        PAST_UINT32: Case(pretend=True, M=1_200_001, N=4000, BLOCK_M=2, BLOCK_N=4096),
    },
    contract=Contract(
        {
            "N": Size(1500),
            "M": Size(30),
            "BLOCK_M": (4, 16),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        },
        fills=lambda s: ({"x": far_from_zero}, {}),
    ),
)

# ---- puzzle 30


def layer_norm_dx(
    dy: BFloat16[Tensor, "M N"],
    x: BFloat16[Tensor, "M N"],
    w: Float32[Tensor, " N"],
    mean: Float32[Tensor, " M"],
    rstd: Float32[Tensor, " M"],
) -> BFloat16[Tensor, "M N"]:
    """dx: the gradient of x, if dy is the gradient of y = layer_norm(x, w, b)

    The forward pass has stored the mean and rstd of each row. Each program has
    BLOCK_M rows, which fit into one block of columns. Load dy and x once. Sum in
    float32. The tensors can have 2^31 elements or more, but M and N are below 2^31.
    """
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        y, _, _ = layer_norm(x, w, torch.zeros_like(w))
        return torch.autograd.grad(y, x, dy)[0]


def _dx_of(g: Tensor, x: Tensor, mean: Tensor, rstd: Tensor, off: Tensor, along: Tensor) -> Tensor:
    """Return dx with another mean of g, and with another mean of g · x̂."""
    xhat = (x - mean[:, None]) * rstd[:, None]
    return rstd[:, None] * (g - off - xhat * along)


def _mean(x: Tensor) -> Tensor:
    return x.mean(1, keepdim=True)


def _with_means(off: int, along: int) -> Callable[..., Tensor]:
    """Return a slip that subtracts the mean of g this many times, and the term along x̂ this many times."""

    def slip(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        g, xhat = dy * w, (x - mean[:, None]) * rstd[:, None]
        return _dx_of(g, x, mean, rstd, off * _mean(g), along * _mean(g * xhat))

    return slip


def _row_mean(x: Tensor) -> Tensor:
    return x.mean(1)


def _row_rstd(x: Tensor) -> Tensor:
    return torch.rsqrt(x.var(1, correction=0) + 1e-5)


def _sum_with_x(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    g = dy * w
    return _dx_of(g, x, mean, rstd, _mean(g), _mean(g * x))


def _sum_times_x(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
    g, xhat = dy * w, (x - mean[:, None]) * rstd[:, None]
    return rstd[:, None] * (g - _mean(g) - x * _mean(g * xhat))


def _with_divisors(off: str, along: str) -> Callable[..., Tensor]:
    """Return a slip whose two sums are divided by ``"N"``, ``"BLOCK_N"``, or nothing (``""``)."""

    def slip(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor, N: int, BLOCK_N: int) -> Tensor:
        g, xhat = dy * w, (x - mean[:, None]) * rstd[:, None]
        share = {"N": 1.0, "BLOCK_N": N / BLOCK_N, "": N}
        return _dx_of(g, x, mean, rstd, _mean(g) * share[off], _mean(g * xhat) * share[along])

    return slip


def _means_of_dy(off: bool, along: bool) -> Callable[..., Tensor]:
    """Return a slip with dy instead of g in the mean of g, or in the mean of g · x̂."""

    def slip(dy: Tensor, x: Tensor, w: Tensor, mean: Tensor, rstd: Tensor) -> Tensor:
        g, xhat = dy * w, (x - mean[:, None]) * rstd[:, None]
        return _dx_of(g, x, mean, rstd, _mean(dy if off else g), _mean((dy if along else g) * xhat))

    return slip


LAYER_NORM_DX = Puzzle(
    number="30",
    spec=layer_norm_dx,
    formula=(
        r"dx_{mj} = \sum_{n} dy_{mn} \, \frac{\partial y_{mn}}{\partial x_{mj}} \qquad "
        r"y_{mn} = (x_{mn} - \mu_m) \, \rho_m \, w_n + b_n"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M),),
    cases=(
        Case(M=4, N=64, BLOCK_M=4, BLOCK_N=64, fill={"x": stretched}),  # one program, a full block
        Case(M=8, N=128, BLOCK_M=2, BLOCK_N=128, fill={"x": stretched}),  # several
        Case(M=7, N=100, BLOCK_M=4, BLOCK_N=128, fill={"x": stretched}),  # ragged on both axes
        # numbers that float16 cannot hold
        Case(M=5, N=40, BLOCK_M=2, BLOCK_N=128, fill={"x": stretched, "dy": far_apart}),
        Case(M=5, N=3, BLOCK_M=2, BLOCK_N=4, fill={"x": stretched}),  # short rows
        # 2.4 thousand million elements
        Case(pretend=True, M=600_001, N=4000, BLOCK_M=2, BLOCK_N=4096),
    ),
    outputs=("dx",),
    derived={"mean": _row_mean, "rstd": _row_rstd},
    most_loads={"dy": lambda s: s.M * s.N, "x": lambda s: s.M * s.N},
    slips={
        "w is missing: g is dy times w": lambda dy, x, w, mean, rstd: layer_norm_dx(
            dy, x, torch.ones_like(w), mean, rstd
        ),
        "the factor rstd is missing": lambda rstd, **others: (
            layer_norm_dx(rstd=rstd, **others) / rstd[:, None]
        ),
        "the rows of dx don't add up to 0: the mean of g isn't subtracted": _with_means(0, 1),
        "the rows of dx don't add up to 0: the mean of g is added, not subtracted": _with_means(-1, 1),
        "the rows of dx · x̂ don't add up to 0: the term along x̂ isn't subtracted": _with_means(1, 0),
        "the rows of dx · x̂ don't add up to 0: the term along x̂ is added, not subtracted": _with_means(1, -1),
        "the rows of dx don't add up to 0: both means are added, not subtracted": _with_means(-1, -1),
        "the rows of dx don't add up to 0: neither mean is subtracted": _with_means(0, 0),
        "the second sum is over g times x: it needs x̂": _sum_with_x,
        "the last term has x in front of its mean: it needs x̂": _sum_times_x,
        "the means are divided by BLOCK_N: divide by N": _with_divisors("BLOCK_N", "BLOCK_N"),
        "the mean of g is divided by BLOCK_N: divide by N": _with_divisors("BLOCK_N", "N"),
        "the mean of g · x̂ is divided by BLOCK_N: divide by N": _with_divisors("N", "BLOCK_N"),
        "the sum of g isn't divided by N": _with_divisors("", "N"),
        "the sum of g · x̂ isn't divided by N": _with_divisors("N", ""),
        "the sums of g and of g · x̂ aren't divided by N": _with_divisors("", ""),
        "the sum of g lacks w: g is dy times w": _means_of_dy(True, False),
        "the sum of g · x̂ lacks w: g is dy times w": _means_of_dy(False, True),
        "the sums of g and of g · x̂ lack w: g is dy times w": _means_of_dy(True, True),
    },
    hard={PAST_UINT32: Case(pretend=True, M=1_200_001, N=4000, BLOCK_M=2, BLOCK_N=4096)},
    contract=Contract(
        {
            "N": Size(1500, least=3),  # in shorter rows dx is all cancellation
            "M": Size(30),
            "BLOCK_M": (4, 16),
            "BLOCK_N": lambda s: (triton.next_power_of_2(s.N),),
        },
        fills=lambda s: ({"x": stretched}, {"x": stretched, "dy": small}),
    ),
)

# ---- puzzle 31


def layer_norm_dw(
    dy: BFloat16[Tensor, "M N"],
    x: BFloat16[Tensor, "M N"],
    mean: Float32[Tensor, " M"],
    rstd: Float32[Tensor, " M"],
    ROWS: int,
    BLOCK_N: int,
) -> tuple[
    Float32[Tensor, " N"],
    Float32[Tensor, " N"],
    Float32[Tensor, " (M+ROWS-1)//ROWS N"],
    Float32[Tensor, " (M+ROWS-1)//ROWS N"],
    Int32[Tensor, " (N+BLOCK_N-1)//BLOCK_N"],
]:
    """dw[n] and db[n]: sums over all rows m of dy[m, n] · x̂[m, n] and of dy[m, n]

    Program (p, j) sums rows p · ROWS up to (p + 1) · ROWS for block j of the columns,
    and stores this part in dw_part[p] and db_part[p]. Then it raises count[j]. The
    program that is last at count[j] adds up the parts, from part 0 on, and sets
    count[j] back to 0 for the next launch. Load dy and x once; they can have 2^31
    elements or more. Sum in float32.
    """
    xhat = (x - mean[:, None]) * rstd[:, None]  # [M, N]
    dw_part = torch.stack([rows.sum(0) for rows in (dy * xhat).split(ROWS)])
    db_part = torch.stack([rows.sum(0) for rows in dy.split(ROWS)])
    count = torch.zeros(triton.cdiv(x.shape[1], BLOCK_N), dtype=torch.int32)
    return dw_part.sum(0), db_part.sum(0), dw_part, db_part, count


LAYER_NORM_DW = Puzzle(
    number="31",
    spec=layer_norm_dw,
    formula=(
        r"\begin{gathered} dw_n = \sum_p dw_{pn}^{\mathrm{part}} \qquad "
        r"dw_{pn}^{\mathrm{part}} = \sum_{m = p R}^{(p + 1) R - 1} dy_{mn} \, \hat x_{mn} \\ "
        r"\text{and } db \text{ likewise, without } \hat x \end{gathered}"
    ),
    grid=lambda s: (triton.cdiv(s.M, s.ROWS), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        # one program, one step
        Case(M=8, N=16, ROWS=8, BLOCK_M=8, BLOCK_N=16, fill={"rstd": positive}),
        # several parts, blocks of columns and steps, all full
        Case(M=48, N=32, ROWS=16, BLOCK_M=8, BLOCK_N=16, fill={"rstd": positive}),
        # ragged: the last part has 3 rows, each part a last step of 4, the last block 13 columns
        Case(M=39, N=29, ROWS=12, BLOCK_M=8, BLOCK_N=16, fill={"rstd": positive}),
        # a step that is longer than a part; numbers that float16 cannot hold
        Case(M=11, N=20, ROWS=3, BLOCK_M=4, BLOCK_N=32, fill={"rstd": positive, "dy": far_apart}),
        # 2.4 thousand million elements
        Case(pretend=True, M=600_001, N=4000, ROWS=64, BLOCK_M=32, BLOCK_N=64),
    ),
    outputs=("dw", "db", "dw_part", "db_part", "count"),
    zeroed=("count",),
    same_bits=True,
    most_loads={"dy": lambda s: s.M * s.N, "x": lambda s: s.M * s.N},
    hard={
        LARGE_PART: Case(pretend=True, M=1100, N=2**21 + 1, ROWS=1100, BLOCK_M=64, BLOCK_N=64),
        "rows can be far from zero: then sums of dy · x and dy · mean cancel": Case(
            M=24, N=16, ROWS=8, BLOCK_M=8, BLOCK_N=16, fill={"x": near_200, "mean": all_200, "rstd": positive}
        ),
    },
    contract=Contract(
        {
            "M": Size(600),
            "N": Size(100),
            "ROWS": lambda s: (16, 25) if s.M <= 64 else (40, 45),
            "BLOCK_M": lambda s: (16, 32) if s.M <= 64 else (8,),
            "BLOCK_N": (64,),
        },
        fills=lambda s: ({"rstd": positive}, {"rstd": positive, "dy": small}),
    ),
)

# ---- puzzle 32


def dw_by_lock(
    dy: BFloat16[Tensor, "M N"],
    xhat: BFloat16[Tensor, "M N"],
    ROWS: int,
    BLOCK_N: int,
) -> tuple[
    Float32[Tensor, " N"],
    Float32[Tensor, " N"],
    Int32[Tensor, " (N+BLOCK_N-1)//BLOCK_N"],
]:
    """dw[n] and db[n]: sums over all rows m of dy[m, n] · x̂[m, n] and of dy[m, n]

    Program (p, j) sums rows p · ROWS up to (p + 1) · ROWS for block j of the columns,
    and adds the sums to dw and db, without atomic additions. lock[j] is 1 while a
    program does that, and 0 at the end. Load dy and xhat once; they can have 2^31
    elements or more. Sum in float32.
    """
    lock = torch.zeros(triton.cdiv(dy.shape[1], BLOCK_N), dtype=torch.int32)
    return (dy * xhat).sum(0), dy.sum(0), lock


def _never_given_back(dy: Tensor, xhat: Tensor, ROWS: int, BLOCK_N: int) -> tuple[Tensor, Tensor, Tensor]:
    dw, db, lock = dw_by_lock(dy, xhat, ROWS, BLOCK_N)
    return dw, db, torch.ones_like(lock)


DW_BY_LOCK = Puzzle(
    number="32",
    spec=dw_by_lock,
    formula=r"dw_n = \sum_m dy_{mn} \, \hat x_{mn} \qquad db_n = \sum_m dy_{mn}",
    grid=lambda s: (triton.cdiv(s.M, s.ROWS), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(
        Case(M=4, N=8, ROWS=4, BLOCK_M=4, BLOCK_N=8),  # one program, one step
        Case(M=24, N=24, ROWS=12, BLOCK_M=4, BLOCK_N=8),  # several, all full
        # ragged: the last part has 7 rows, each other part a last step of 2, the last block 5 columns
        Case(M=27, N=13, ROWS=10, BLOCK_M=4, BLOCK_N=8),
        # a step that is longer than a part; numbers that float16 cannot hold
        Case(M=8, N=10, ROWS=3, BLOCK_M=4, BLOCK_N=8, fill={"dy": far_apart}),
        # 2.4 thousand million elements
        Case(pretend=True, M=600_001, N=4000, ROWS=64, BLOCK_M=32, BLOCK_N=64),
    ),
    outputs=("dw", "db", "lock"),
    zeroed=("dw", "db", "lock"),
    locks=("lock",),
    most_loads={"dy": lambda s: s.M * s.N, "xhat": lambda s: s.M * s.N},
    slips={"the lock is never unlocked: the next program would wait for it forever": _never_given_back},
    hard={LARGE_PART: Case(pretend=True, M=1100, N=2**21 + 1, ROWS=1100, BLOCK_M=64, BLOCK_N=64)},
    contract=Contract(
        {
            "M": Size(150),
            "N": Size(100),
            "ROWS": lambda s: (9, 25) if s.M <= 64 else (45, 60),
            "BLOCK_M": lambda s: (32,) if s.M <= 64 else (4,),
            "BLOCK_N": (64,),
        },
        fills=lambda s: ({}, {"dy": small}),
    ),
    machine=(Goal(cases=(1,), wants=(Want("float atomics", most=0),)),),  # two of them need no lock
)

# ---- puzzle 33


def long_layer_norm(
    x: Float32[Tensor, "M N"],
) -> tuple[Float32[Tensor, " M"], Float32[Tensor, " M"]]:
    """mean[m] and rstd[m] = 1 / sqrt(mean over n of (x[m, n] - mean[m])² + 1e-5)

    Each program has one row of any length. It walks the row in blocks and loads each
    block once. The numbers can be far from zero. x can have 2^31 elements or more.
    """
    mean = x.mean(1)  # [M]
    return mean, torch.rsqrt((x - mean[:, None]).square().mean(1) + 1e-5)


def _padded_blocks(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Return the results if each lane past the end adds (0 - mean of the last block)² to the squares."""
    mean = x.mean(1)
    last = x[:, (N - 1) // BLOCK_N * BLOCK_N :]
    extra = (BLOCK_N - last.shape[1]) * last.mean(1).square() / N
    return mean, torch.rsqrt((x - mean[:, None]).square().mean(1) + extra + 1e-5)


def _mean_of_means(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Return the results if the short last block counts as much as a full one."""
    mean, squares = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for number, block in enumerate(x.split(BLOCK_N, 1)):
        own, share = block.mean(1), 1 / (number + 1)
        apart = own - mean
        mean = mean + apart * share
        squares = squares + (block - own[:, None]).square().sum(1) + apart**2 * number * BLOCK_N * share
    return mean, torch.rsqrt(squares / N + 1e-5)


def _old_share(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Return the results if the mean moves by the fraction of the elements before the block."""
    mean, count = torch.zeros_like(x[:, 0]), 0
    for block in x.split(BLOCK_N, 1):
        mean = mean + (block.mean(1) - mean) * count / (count + block.shape[1])
        count += block.shape[1]
    return mean, long_layer_norm(x)[1]


def _counted_full(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Return the results if the last block's count is BLOCK_N, however few elements it has."""
    mean, squares = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0])
    for number, block in enumerate(x.split(BLOCK_N, 1)):
        own, share = block.sum(1) / BLOCK_N, 1 / (number + 1)
        apart = own - mean
        mean = mean + apart * share
        squares = squares + (block - own[:, None]).square().sum(1) + apart**2 * number * BLOCK_N * share
    return mean, torch.rsqrt(squares / N + 1e-5)


def _halved(first: float) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip in which the mean moves by half of δ, or by another share (first) for the first block."""

    def slip(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
        mean, squares, count = torch.zeros_like(x[:, 0]), torch.zeros_like(x[:, 0]), 0
        for block in x.split(BLOCK_N, 1):
            own, more = block.mean(1), block.shape[1]
            apart = own - mean
            squares = (
                squares + (block - own[:, None]).square().sum(1) + apart**2 * count * more / (count + more)
            )
            mean = mean + apart * (0.5 if count else first)
            count += more
        return mean, torch.rsqrt(squares / N + 1e-5)

    return slip


def _weighted(weight: Callable[[int, int], float]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return a slip with another factor of δ² in M2, given n1 and n2."""

    def slip(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
        squares, count = torch.zeros_like(x[:, 0]), 0
        mean = squares
        for block in x.split(BLOCK_N, 1):
            own, more = block.mean(1), block.shape[1]
            apart = own - mean
            squares = squares + (block - own[:, None]).square().sum(1) + apart**2 * weight(count, more)
            count += more
            mean = mean + apart * more / count
        return mean, torch.rsqrt(squares / N + 1e-5)

    return slip


def _not_apart(x: Tensor, N: int, BLOCK_N: int) -> tuple[Tensor, Tensor]:
    """Return the results if only the squares within the blocks are summed."""
    squares = sum((block - _mean(block)).square().sum(1) for block in x.split(BLOCK_N, 1))
    return x.mean(1), torch.rsqrt(squares / N + 1e-5)


LONG_LAYER_NORM = Puzzle(
    number="33",
    spec=long_layer_norm,
    formula=(
        r"\mu_m = \tfrac{1}{N} \sum_{j} x_{mj} \qquad "
        r"\rho_m = 1 \Big/ \sqrt{\tfrac{1}{N} \sum_{j} (x_{mj} - \mu_m)^2 + 10^{-5}}"
    ),
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=64, BLOCK_N=64),  # one program, one block
        Case(M=3, N=128, BLOCK_N=32),  # several blocks, all full
        Case(M=4, N=150, BLOCK_N=64),  # ragged
        Case(M=3, N=97, BLOCK_N=32, fill={"x": far_from_zero}),  # one element in the last block
        Case(M=3, N=77, BLOCK_N=32, fill={"x": far_apart}),
        Case(M=3, N=70, BLOCK_N=32, fill={"x": small}),  # 1e-5 is more than the variance
        Case(M=5, N=1, BLOCK_N=16),  # a row of one element
        # 2.4 thousand million elements
        Case(pretend=True, M=600_001, N=4000, BLOCK_N=1024),
    ),
    outputs=("mean", "rstd"),
    most_loads={"x": lambda s: s.M * s.N},
    slips={
        "lanes past the end are counted in the last block's M2: 0 - mean isn't 0 there": _padded_blocks,
        "the short last block counts as much as a full one": _mean_of_means,
        "the short last block counts as full, and its sum is divided by BLOCK_N: use its own length": (
            _counted_full
        ),
        "the mean doesn't move by the new block's fraction of δ: n2 / n, or 1 for a row's first block": (
            _old_share
        ),
        "the mean moves by half of δ: blocks have different lengths, and a row's first block has n1 = 0": (
            _halved(first=0.5)
        ),
        "the mean moves by half of δ: that's right for two equal parts only": _halved(first=1.0),
        "M2 takes δ after the mean has moved: keep the δ from before": _weighted(
            lambda n1, n2: n1**3 * n2 / (n1 + n2) ** 3
        ),
        "M2 doesn't grow with the distance between the blocks' means: δ² n1 n2 / n is missing": _not_apart,
        "M2 grows by δ² n2 / n: the factor n1 is missing": _weighted(lambda n1, n2: n2 / (n1 + n2)),
        "M2 grows by δ² n1: the factor n2 / n is missing": _weighted(lambda n1, n2: n1),
        "M2 grows by δ² n1 n2: divide by n": _weighted(lambda n1, n2: n1 * n2),
        "M2 grows by δ² n2: the factor n1 / n is missing": _weighted(lambda n1, n2: n2),
    },
    hard={
        FIRST_FAR: Case(M=1, N=2048, BLOCK_N=8, fill={"x": first_far}),
        PAST_UINT32: Case(pretend=True, M=1_200_001, N=4000, BLOCK_N=1024),
    },
    contract=Contract(
        {"N": Size(1500), "M": Size(17), "BLOCK_N": (64, 128)},
        fills=lambda s: ({"x": far_from_zero}, {}),
    ),
)

# ---- puzzle 34


def linear_recurrence(
    a: Float32[Tensor, "M T"],
    x: Float32[Tensor, "M T"],
    start: Float32[Tensor, " M"],
) -> Float32[Tensor, "M T"]:
    """h[m, t] = a[m, t] · h[m, t - 1] + x[m, t], where h[m, -1] is start[m]

    Each program has one row of any length, and walks it in blocks: all threads load,
    not one of them. Load a and x once. x can have 2^31 elements or more.
    """
    h, rows = start, []
    for t in range(x.shape[1]):
        h = a[:, t] * h + x[:, t]
        rows.append(h)
    return torch.stack(rows, 1)


def _later_step_first(a: Tensor, x: Tensor, start: Tensor, BLOCK_T: int) -> Tensor:
    """Return h if the combine function applies the next step before the earlier one."""
    h, rows = start, []
    for first in range(0, x.shape[1], BLOCK_T):
        steps, sums = torch.ones_like(start), torch.zeros_like(start)
        before = h
        for t in range(first, min(first + BLOCK_T, x.shape[1])):
            steps, sums = steps * a[:, t], steps * x[:, t] + sums
            h = steps * before + sums
            rows.append(h)
    return torch.stack(rows, 1)


def _carried(times: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    """Return a slip with another factor of the h before the block, given a[t] and the product up to t."""

    def slip(a: Tensor, x: Tensor, start: Tensor, BLOCK_T: int) -> Tensor:
        h, rows = start, []
        for first in range(0, x.shape[1], BLOCK_T):
            steps, sums, before = torch.ones_like(start), torch.zeros_like(start), h
            for t in range(first, min(first + BLOCK_T, x.shape[1])):
                steps, sums = steps * a[:, t], sums * a[:, t] + x[:, t]
                h = times(a[:, t], steps) * before + sums
                rows.append(h)
        return torch.stack(rows, 1)

    return slip


def _starting_from(of: Callable[[Tensor, int], Tensor | None]) -> Callable[..., Tensor]:
    """Return a slip with another h before a block, given the h of the one before, [M, n], and its number."""

    def slip(a: Tensor, x: Tensor, start: Tensor, BLOCK_T: int) -> Tensor:
        before, blocks = start, []
        for number, (of_a, of_x) in enumerate(zip(a.split(BLOCK_T, 1), x.split(BLOCK_T, 1), strict=True)):
            blocks.append(linear_recurrence(of_a, of_x, before))
            before = start if (h := of(blocks[-1], number)) is None else h
        return torch.cat(blocks, 1)

    return slip


def _summed_without_start(a: Tensor, x: Tensor, start: Tensor, BLOCK_T: int) -> Tensor:
    """Return h if the h before a block lacks the start of the block before it."""
    before, blocks = start, []
    for of_a, of_x in zip(a.split(BLOCK_T, 1), x.split(BLOCK_T, 1), strict=True):
        blocks.append(linear_recurrence(of_a, of_x, before))
        before = linear_recurrence(of_a, of_x, torch.zeros_like(start))[:, -1]
    return torch.cat(blocks, 1)


LINEAR_RECURRENCE = Puzzle(
    number="34",
    spec=linear_recurrence,
    formula=r"h_{mt} = a_{mt} \, h_{m, t - 1} + x_{mt} \qquad h_{m, -1} = \mathrm{start}_m",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, T=32, BLOCK_T=32, fill={"a": ones}),  # one program, one block: a cumulative sum
        Case(M=3, T=64, BLOCK_T=16, fill={"a": decays}),  # several blocks, all full
        Case(M=3, T=45, BLOCK_T=16, fill={"a": decays}),  # ragged
        Case(M=3, T=50, BLOCK_T=16),  # zeros, negative numbers, and more than one
        Case(M=2, T=1, BLOCK_T=16),
        Case(M=2, T=128, BLOCK_T=128, fill={"a": decays}),  # whose machine code is measured
        # 2.4 thousand million elements
        Case(pretend=True, M=4_800_001, T=500, BLOCK_T=128),  # short rows: a loop over t ends in time
    ),
    outputs=("h",),
    most_loads={"a": lambda s: s.M * s.T, "x": lambda s: s.M * s.T},
    machine=(Goal(cases=(5,), wants=(Want("wide loads", least=2),), num_warps=1),),  # a loop over t has none
    slips={
        "the steps are combined in the wrong order: the earlier step, (a, x), comes first": _later_step_first,
        "the h before the block is added as it is: multiply it by the scanned factor": _carried(
            lambda a, steps: torch.ones_like(a)
        ),
        "the h before the block is multiplied by a alone: multiply it by the scanned factor": _carried(
            lambda a, steps: a
        ),
        "every block begins with start: the first does, each other with the last h of the one before": (
            _starting_from(lambda h, number: None)
        ),
        "every block but the first begins with h = 0: where does the last h of the one before get lost?": (
            _starting_from(lambda h, number: torch.zeros_like(h[:, 0]))
        ),
        "from the third block on, each begins with h = 0: the last lane is at first + BLOCK_T - 1": (
            _starting_from(lambda h, number: h[:, -1] * (number == 0))
        ),
        "a block begins with the first h of the one before: take the last one": _starting_from(
            lambda h, number: h[:, 0]
        ),
        "a block begins with the second-to-last h of the one before: take the last one": _starting_from(
            lambda h, number: h[:, -2] if h.shape[1] > 1 else h[:, 0]
        ),
        "a block begins with the largest h of the one before: take the last one": _starting_from(
            lambda h, number: h.amax(1)
        ),
        "a negative h is carried as 0, the larger of the two: use tl.sum instead of tl.max": _starting_from(
            lambda h, number: h[:, -1].clamp(min=0)
        ),
        "a block begins with the sum of all h of the one before: take the last one": _starting_from(
            lambda h, number: h.sum(1)
        ),
        "the h that is carried lacks what came before its own block: take the last lane of what you store": (
            _summed_without_start
        ),
    },
    hard={
        "h can get as small as 2^-120": Case(
            M=1, T=30, BLOCK_T=32, fill={"a": sixteenths, "x": unmoved(zeros), "start": unmoved(ones)}
        ),
    },
    contract=Contract(
        {"T": Size(300), "M": Size(9), "BLOCK_T": (32, 64)},
        fills=lambda s: ({"a": decays}, {}),
    ),
)

PUZZLES = (
    RMS_NORM,
    LAYER_NORM,
    LAYER_NORM_DX,
    LAYER_NORM_DW,
    DW_BY_LOCK,
    LONG_LAYER_NORM,
    LINEAR_RECURRENCE,
)
