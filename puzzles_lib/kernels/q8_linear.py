"""Int8 dynamic linear: rows of x are quantised as they come, weights once, per output channel.

    scale[m] = max_k |x[m, k]| / 127
    xq[m, k] = round(x[m, k] / scale[m]), ties to even, -127 .. 127
    acc[m, n] = sum_k xq[m, k] * wq[n, k], exact, in int32
    y[m, n]  = acc * (scale[m] * w_scale[n]) + bias[n], in float32, every step rounded by itself

The sums are integers, so that neither the order of summation, nor the tile, nor the rest of the batch
changes a bit of a row's result, on a CPU or on a GPU.
"""

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
TOP = 127
MAX_K = (2**31 - 1) // TOP**2  # 133144: the sum of so many products still fits into int32
TINY = 2.0**-126  # the least normal float32


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of the rows of x, each row by itself.

    x: [..., K], float32, float16 or bfloat16; any strides, any size, K = 0 too.
    Returns (codes int8 [..., K] in -127 .. 127, scale float32 [...]), both contiguous: x is about
    ``codes * scale[..., None]``, off by half a scale at most.
    A row whose scale would be below 2^-126 has scale 0 and codes 0. A row with a NaN or an infinity has
    scale NaN and codes 0.

    Raises TypeError for another dtype, ValueError for a scalar.
    """
    _check_x(x)
    return _quantize_rows(x)


def q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """x @ (wq * w_scale)ᵀ + bias, through int8 rows of x and exact int32 sums.

    x: [..., K], float32, float16 or bfloat16; any strides, any size. wq: int8 [N, K], as `quantize_rows`
    gives for a weight matrix. w_scale: float32 [N]. bias: [N], one of x's dtypes. All on one device.
    Returns y: [..., N] in x's dtype, rounded once from float32. A row with a NaN or an infinity comes out
    as NaN, the others are untouched; a row of zeros gives the bias. There is no gradient.

    Raises TypeError for another dtype, ValueError where shapes or devices do not fit or K is over 133144
    (132104 where wq has a -128): the sums would leave int32.
    """
    _check_x(x)
    check_weight(wq, w_scale, bias)
    if x.shape[-1] != wq.shape[1]:
        raise ValueError(f"x has rows of {x.shape[-1]}, allowed for wq of {tuple(wq.shape)} is {wq.shape[1]}")
    if x.device != wq.device:
        raise ValueError(f"x is on {x.device}, allowed is the device of wq, {wq.device}")
    return _q8_linear(x, wq, w_scale, bias)


class Q8Linear(nn.Module):
    """`nn.Linear` for inference with int8 weights and rows quantised as they come.

    Buffers: weight int8 [N, K], scale float32 [N], bias [N] or None. They move and are saved with the
    module; ``scale`` stays float32 when a model is cast.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True, device=None, dtype=None):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        weight = torch.zeros(out_features, in_features, dtype=torch.int8, device=device)
        self.register_buffer("weight", weight)
        self.register_buffer("scale", torch.zeros(out_features, dtype=torch.float32, device=device))
        zeros = torch.zeros(out_features, dtype=dtype, device=device) if bias else None
        self.register_buffer("bias", zeros)

    @classmethod
    def from_linear(cls, linear: nn.Linear) -> "Q8Linear":
        """Quantise the weights of an `nn.Linear`, a scale per output channel; the bias is copied.

        Raises TypeError where ``linear`` is no nn.Linear or its weights are of another dtype than x may be.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear is {type(linear).__name__}, allowed is an nn.Linear")
        weight, bias = linear.weight.detach(), linear.bias
        new = cls(linear.in_features, linear.out_features, bias is not None, weight.device, weight.dtype)
        _check_k(linear.in_features)
        new.weight, new.scale = quantize_rows(weight)
        new.bias = None if bias is None else bias.detach().clone()
        return new.train(linear.training)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return q8_linear(x, self.weight, self.scale, self.bias)

    def _apply(self, fn, recurse=True):
        exact = self.scale
        super()._apply(fn, recurse)
        if self.scale.dtype != torch.float32:  # the model is being cast: that is for activations
            self.scale = exact.to(self.scale.device)
        return self

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bias={self.bias is not None}"


def swap_linears(model: nn.Module) -> nn.Module:
    """Put a `Q8Linear` in the place of every `nn.Linear` below ``model``, and return the model.

    In place, unless the model is itself an nn.Linear. Subclasses of nn.Linear stay, since their owners
    reach for their weights; a module in two places stays one module.
    """
    swapped: dict[nn.Module, nn.Module] = {}

    def swap(module: nn.Module) -> nn.Module:
        if module not in swapped:
            swapped[module] = Q8Linear.from_linear(module) if type(module) is nn.Linear else module
            for name, child in module._modules.items():  # named_children() gives a shared one once
                module._modules[name] = None if child is None else swap(child)
            if isinstance(module, nn.TransformerEncoderLayer):
                module.activation_relu_or_gelu = 0  # no fast path: it multiplies by weights as they are
        return swapped[module]

    return swap(model)


# ---- what is refused


def _check_x(x: torch.Tensor) -> None:
    if not isinstance(x, torch.Tensor) or x.dtype not in DTYPES:
        what = x.dtype if isinstance(x, torch.Tensor) else type(x).__name__
        raise TypeError(f"x is {what}, allowed are float32, float16 and bfloat16")
    if x.dim() == 0:
        raise ValueError("x is a scalar, allowed are tensors of one axis or more")


def _check_k(columns: int) -> None:
    if columns > MAX_K:
        raise ValueError(f"K is {columns}, allowed is up to {MAX_K}: the sums are int32")


def check_weight(wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Raise where quantised weights do not fit together."""
    for name, value, dtypes in (("wq", wq, (torch.int8,)), ("w_scale", w_scale, (torch.float32,))):
        if not isinstance(value, torch.Tensor) or value.dtype not in dtypes:
            what = value.dtype if isinstance(value, torch.Tensor) else type(value).__name__
            raise TypeError(f"{name} is {what}, allowed is {dtypes[0]}")
    if wq.dim() != 2:
        raise ValueError(f"wq has {wq.dim()} axes, allowed are 2: [N, K]")
    _check_k(wq.shape[1])
    parts = [("w_scale", w_scale)]
    if bias is not None:
        if not isinstance(bias, torch.Tensor) or bias.dtype not in DTYPES:
            what = bias.dtype if isinstance(bias, torch.Tensor) else type(bias).__name__
            raise TypeError(f"bias is {what}, allowed are float32, float16 and bfloat16")
        parts.append(("bias", bias))
    for name, value in parts:
        if value.shape != wq.shape[:1]:
            allowed = f"allowed for wq of {tuple(wq.shape)} is {tuple(wq.shape[:1])}"
            raise ValueError(f"{name} has shape {tuple(value.shape)}, {allowed}")
        if value.device != wq.device:
            raise ValueError(f"{name} is on {value.device}, allowed is the device of wq, {wq.device}")


# ---- torch, the reference


def quantize_rows_ref(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of a matrix x [M, K]."""
    if not x.numel():
        return x.new_zeros(x.shape, dtype=torch.int8), x.new_zeros(x.shape[0], dtype=torch.float32)
    x = x.float()
    scale = x.abs().amax(1).div_(TOP)  # NaN if one is NaN
    scale = torch.where(scale < TINY, 0.0, scale)
    divisor = torch.where((scale > 0) & scale.isfinite(), scale, float("inf"))  # its codes are 0 ...
    codes = (x / divisor[:, None]).round_()
    if not scale.isfinite().all():
        codes.nan_to_num_(0.0)  # ... but for inf / inf and NaN
        scale.masked_fill_(~scale.isfinite(), float("nan"))
    return codes.to(torch.int8), scale


EXACT = 2**24 // 128  # a sum of codes times weights is exact in float32 if its codes sum to no more
BLOCK = 256  # rows of weights turned into float32 at a time, to stay within a cache


def int8_matmul_ref(xq: torch.Tensor, wq: torch.Tensor) -> torch.Tensor:
    """xq [M, K] @ wq [N, K]ᵀ as float32, rounded once from the exact sums.

    `torch._int_mm` is quick on CPUs whose AVX-512 multiplies int8 (VNNI). On others oneDNN's int8 kernels
    saturate or are a plain loop, some 30 times slower than float32, which is exact for short enough sums.
    """
    if torch.cpu._is_vnni_supported():
        return torch._int_mm(xq, wq.t()).float()
    x, columns = xq.float(), xq.shape[1]
    chunk = columns if x.abs().sum(1).max() <= EXACT else EXACT // TOP
    y = torch.empty(xq.shape[0], wq.shape[0])
    for n in range(0, wq.shape[0], BLOCK):
        w = wq[n : n + BLOCK].float().t()  # [K, BLOCK]
        if chunk == columns:
            torch.mm(x, w, out=y[:, n : n + BLOCK])
        else:
            parts = [x[:, k : k + chunk] @ w[k : k + chunk] for k in range(0, columns, chunk)]
            y[:, n : n + BLOCK] = sum(part.to(torch.int32) for part in parts)
    return y


def q8_linear_ref(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """y [M, N] of a matrix x [M, K]."""
    rows, outputs = x.shape[0], wq.shape[0]
    if x.numel() and outputs:
        xq, x_scale = quantize_rows_ref(x)
        y = int8_matmul_ref(xq, wq).mul_(x_scale[:, None] * w_scale)
    else:
        y = torch.zeros(rows, outputs, device=x.device)
    return (y if bias is None else y.add_(bias)).to(x.dtype)


# ---- Triton

MAGIC = tl.constexpr(12582912.0)  # 1.5 · 2^23: adding it rounds |x| < 2^22 to an integer, ties to even
LEAST = tl.constexpr(TINY)
SMALL = tl.constexpr(2.0**-64)
LARGE = tl.constexpr(2.0**64)


@triton.jit
def _maximum_with_nan(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _scale_of(amax):
    """amax / 127; 0 where that is subnormal, NaN where amax is no finite number."""
    scale = tl.div_rn(amax, tl.full(amax.shape, 127.0, tl.float32))
    return tl.where(scale < LEAST, 0.0, scale) + (amax - amax)


@triton.jit
def _codes_of(x, scale):
    """round(x / scale), ties to even, as the low byte of an integer. scale broadcasts against x.

    A quotient by multiplying with the reciprocal is off by an ulp; one step of Newton's, with the exact
    remainder from a fused multiply-add, rounds it as a division does (Markstein 1990), in 3 instructions.
    The remainder must not be subnormal: small rows are scaled up first, by a power of two.
    """
    up = tl.where(scale < SMALL, LARGE, 1.0)
    divisor = tl.where(scale > 0, scale * up, 1.0)
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), divisor)
    x = x * up
    quotient = x * inverse
    remainder = tl.fma(-quotient, divisor + tl.zeros_like(x), x)
    quotient = tl.fma(remainder, inverse + tl.zeros_like(x), quotient)
    return (quotient + MAGIC).to(tl.int32, bitcast=True)


@triton.jit
def _quantize_rows_kernel(
    x_ptr, codes_ptr, scale_ptr, sums_ptr, w_ptr, M, K, zeros, w_bytes,
    ROWS: tl.constexpr, BLOCK_K: tl.constexpr, ONE_BLOCK: tl.constexpr, FETCH: tl.constexpr,
    PDL: tl.constexpr,
):  # fmt: skip
    """ROWS rows. On the side, what the matrix multiplication after it needs: sums_ptr[:zeros] = 0."""
    pid = tl.program_id(0)
    if PDL:
        tl.extra.cuda.gdc_launch_dependents()
    if FETCH:
        _fetch(w_ptr, w_bytes, pid, tl.num_programs(0), FETCH)
    offs_m = pid * ROWS + tl.arange(0, ROWS)
    offs_k = tl.arange(0, BLOCK_K)
    start = x_ptr + offs_m.to(tl.int64)[:, None] * K + offs_k[None, :]
    inside = (offs_m < M)[:, None]
    if ONE_BLOCK:
        x = tl.load(start, mask=inside & (offs_k < K)[None, :], other=0.0).to(tl.float32)
        amax = tl.reduce(tl.abs(x), 1, _maximum_with_nan)
    else:
        most = tl.zeros([ROWS, BLOCK_K], tl.float32)
        for k in range(0, K, BLOCK_K):
            x = tl.load(start + k, mask=inside & (offs_k < K - k)[None, :], other=0.0)
            most = _maximum_with_nan(most, tl.abs(x.to(tl.float32)))
        amax = tl.reduce(most, 1, _maximum_with_nan)
    scale = _scale_of(amax)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    finite = (scale == scale)[:, None]
    place = codes_ptr + offs_m.to(tl.int64)[:, None] * K + offs_k[None, :]
    if ONE_BLOCK:
        codes = tl.where(finite, _codes_of(x, scale[:, None]), 0)
        tl.store(place, codes.to(tl.int8), mask=inside & (offs_k < K)[None, :])
    else:
        for k in range(0, K, BLOCK_K):
            mask = inside & (offs_k < K - k)[None, :]
            x = tl.load(start + k, mask=mask, other=0.0).to(tl.float32)
            codes = tl.where(finite, _codes_of(x, scale[:, None]), 0)
            tl.store(place + k, codes.to(tl.int8), mask=mask)
    for first in range(pid * 1024, zeros, tl.num_programs(0) * 1024):
        offs = first + tl.arange(0, 1024)
        tl.store(sums_ptr + offs, tl.zeros([1024], tl.int32), mask=offs < zeros)


@triton.jit
def _fetch(w_ptr, w_bytes, pid, programs, LINES: tl.constexpr):
    """Ask for this program's share of the weights to be brought into the L2 cache, without waiting."""
    share = tl.cdiv(tl.cdiv(w_bytes, 128), programs)
    first = pid * share
    for line in range(0, share, LINES):
        offs = line + tl.arange(0, LINES)
        byte = tl.minimum((first + tl.minimum(offs, share - 1)).to(tl.int64) * 128, w_bytes - 1)
        tl.inline_asm_elementwise(
            "prefetch.global.L2 [$1]; mov.u32 $0, 0;", "=r,l", [w_ptr + byte],
            dtype=tl.int32, is_pure=False, pack=1,
        )  # fmt: skip


@triton.jit
def _store_y(
    sums, x_scale, offs_m, offs_n, w_scale_ptr, bias_ptr, y_ptr, M, N, mask_m,
    HAS_BIAS: tl.constexpr,
):  # fmt: skip
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    y = sums.to(tl.float32) * (x_scale[:, None] * w_scale[None, :])
    if HAS_BIAS:
        y += tl.load(bias_ptr + offs_n, mask=offs_n < N, other=0.0).to(tl.float32)[None, :]
    place = y_ptr + offs_m.to(tl.int64)[:, None] * N + offs_n[None, :]
    tl.store(place, y, mask=mask_m[:, None] & (offs_n < N)[None, :])


@triton.jit
def _matmul_kernel(
    xq, x_scale_ptr, wq, w_ptr, w_scale_ptr, bias_ptr, y_ptr, sums_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
    GROUP_M: tl.constexpr, TMA: tl.constexpr, HAS_BIAS: tl.constexpr, PDL: tl.constexpr,
    FETCH: tl.constexpr,
):  # fmt: skip
    """A tile of y, or with SPLIT > 1 a share of K for it: the last program to add its sums finishes.

    Integer sums come out the same in whatever order they are added. sums_ptr: int32, M * N sums, then a
    counter for each tile, all zero.
    """
    pid, split = tl.program_id(0), tl.program_id(1)
    tiles_m, tiles_n = tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    # Tiles in groups of GROUP_M rows of tiles: neighbours in time share rows and columns in the cache.
    group = pid // (GROUP_M * tiles_n)
    height = tl.minimum(tiles_m - group * GROUP_M, GROUP_M)
    tile_m = group * GROUP_M + pid % (GROUP_M * tiles_n) % height
    tile_n = pid % (GROUP_M * tiles_n) // height
    offs_m = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)
    first = split * steps * BLOCK_K
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.int32)
    if FETCH:
        programs = tl.num_programs(0) * tl.num_programs(1)
        _fetch(w_ptr, tl.cast(N, tl.int64) * K, split * tl.num_programs(0) + pid, programs, FETCH)
    if PDL:
        tl.extra.cuda.gdc_wait()
    for step in range(0, steps):
        k = first + step * BLOCK_K
        if TMA:
            x = xq.load([tile_m * BLOCK_M, k])
            w = wq.load([tile_n * BLOCK_N, k])
        else:
            inside = (k + offs_k < K)[None, :]
            x = tl.load(
                xq + offs_m.to(tl.int64)[:, None] * K + (k + offs_k)[None, :],
                mask=(offs_m < M)[:, None] & inside, other=0,
            )  # fmt: skip
            w = tl.load(
                wq + offs_n.to(tl.int64)[:, None] * K + (k + offs_k)[None, :],
                mask=(offs_n < N)[:, None] & inside, other=0,
            )  # fmt: skip
        sums = tl.dot(x, w.T, sums, out_dtype=tl.int32)
    mask_m = offs_m < M
    x_scale = tl.load(x_scale_ptr + offs_m, mask=mask_m, other=0.0)
    if SPLIT == 1:
        _store_y(sums, x_scale, offs_m, offs_n, w_scale_ptr, bias_ptr, y_ptr, M, N, mask_m, HAS_BIAS)
    else:
        place = sums_ptr + offs_m.to(tl.int64)[:, None] * N + offs_n[None, :]
        mask = mask_m[:, None] & (offs_n < N)[None, :]
        tl.atomic_add(place, sums, mask=mask, sem="relaxed")
        tl.debug_barrier()
        counter = sums_ptr + tl.cast(M, tl.int64) * N + pid
        if tl.atomic_add(counter, 1, sem="acq_rel") == SPLIT - 1:
            sums = tl.load(place, mask=mask, other=0, cache_modifier=".cg")
            _store_y(sums, x_scale, offs_m, offs_n, w_scale_ptr, bias_ptr, y_ptr, M, N, mask_m, HAS_BIAS)


@triton.jit
def _fused_kernel(
    x_ptr, wq_ptr, w_scale_ptr, bias_ptr, y_ptr, M, N, K,
    ROWS: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, PASS: tl.constexpr,
    HAS_BIAS: tl.constexpr, FETCH: tl.constexpr,
):  # fmt: skip
    """BLOCK_N columns of y for M <= ROWS <= 16 rows, which every program quantises for itself."""
    pid = tl.program_id(0)
    offs_n = pid * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_k = tl.arange(0, BLOCK_K)
    offs_r = tl.arange(0, ROWS)
    if FETCH:
        _fetch(wq_ptr, tl.cast(N, tl.int64) * K, pid, tl.num_programs(0), FETCH)
    x_rows = x_ptr + offs_r.to(tl.int64)[:, None] * K
    offs_p = tl.arange(0, PASS)
    most = tl.zeros([ROWS, PASS], tl.float32)
    for k in range(0, K, PASS):
        mask = (offs_r < M)[:, None] & (offs_p < K - k)[None, :]
        x = tl.load(x_rows + (k + offs_p)[None, :], mask=mask, other=0.0)
        most = _maximum_with_nan(most, tl.abs(x.to(tl.float32)))
    scale = _scale_of(tl.reduce(most, 1, _maximum_with_nan))
    sums = tl.zeros([16, BLOCK_N], tl.int32)
    for k in range(0, K, BLOCK_K):
        inside = (offs_k < K - k)[None, :]
        w = tl.load(
            wq_ptr + offs_n.to(tl.int64)[:, None] * K + (k + offs_k)[None, :],
            mask=(offs_n < N)[:, None] & inside, other=0,
        )  # fmt: skip
        x = tl.load(x_rows + (k + offs_k)[None, :], mask=(offs_r < M)[:, None] & inside, other=0.0)
        codes = _codes_of(x.to(tl.float32), scale[:, None]).to(tl.int8)
        sums = tl.dot(_sixteen(codes, ROWS, BLOCK_K), w.T, sums, out_dtype=tl.int32)
    rows = tl.arange(0, 16)
    offs_m = rows // (16 // ROWS)
    mask_m = (rows % (16 // ROWS) == 0) & (offs_m < M)
    x_scale = tl.reshape(_sixteen(scale[:, None], ROWS, 1), [16])
    _store_y(sums, x_scale, offs_m, offs_n, w_scale_ptr, bias_ptr, y_ptr, M, N, mask_m, HAS_BIAS)


@triton.jit
def _sixteen(rows, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Each row 16 / ROWS times: the tensor cores take no fewer than 16."""
    spread = tl.broadcast_to(rows[:, None, :], [ROWS, 16 // ROWS, WIDTH])
    return tl.reshape(spread, [16, WIDTH])


def launch_quantize_rows(x, codes, scale, sums=None, wq=None, fetch=0, pdl=False, num_warps=None) -> None:
    """Fill codes and scale from a matrix x, and sums, if given, with zeros."""
    rows, columns = x.shape
    block = min(triton.next_power_of_2(columns), 8192)
    height = max(1, min(2048 // block, triton.next_power_of_2(rows)))
    programs = triton.cdiv(rows, height)
    _quantize_rows_kernel[(max(programs, fetch),)](
        x, codes, scale, scale if sums is None else sums, wq, rows, columns,
        0 if sums is None else sums.numel(), 0 if wq is None else wq.numel(),
        ROWS=height, BLOCK_K=block, ONE_BLOCK=columns <= block, FETCH=128 if fetch else 0, PDL=pdl,
        num_warps=num_warps or max(1, min(8, height * block // 512)), enable_fp_fusion=False,
    )  # fmt: skip


def launch_matmul(xq, x_scale, wq, w_scale, bias, y, sums, config) -> None:
    """Fill y from codes and scales; sums as the kernel needs them, or None where config has no split."""
    (rows, columns), outputs = xq.shape, wq.shape[0]
    block_m, block_n, block_k, split, group, tma, pdl, fetch, warps, stages = config
    weights = wq
    grid = (triton.cdiv(rows, block_m) * triton.cdiv(outputs, block_n), split)
    if tma:
        xq = TensorDescriptor(xq, [rows, columns], [columns, 1], [block_m, block_k])
        wq = TensorDescriptor(wq, [outputs, columns], [columns, 1], [block_n, block_k])
    _matmul_kernel[grid](
        xq, x_scale, wq, weights, w_scale, w_scale if bias is None else bias, y, y if sums is None else sums,
        rows, outputs, columns, BLOCK_M=block_m, BLOCK_N=block_n, BLOCK_K=block_k, SPLIT=split,
        GROUP_M=group, TMA=tma, HAS_BIAS=bias is not None, PDL=pdl, FETCH=fetch,
        num_warps=warps, num_stages=stages, enable_fp_fusion=False, **({"launch_pdl": True} if pdl else {}),
    )  # fmt: skip


def launch_fused(x, wq, w_scale, bias, y, config) -> None:
    """Fill y from at most 16 rows x."""
    (rows, columns), outputs = x.shape, wq.shape[0]
    block_n, block_k, width, fetch, warps, stages = config
    height = triton.next_power_of_2(rows)
    _fused_kernel[(triton.cdiv(outputs, block_n),)](
        x, wq, w_scale, w_scale if bias is None else bias, y, rows, outputs, columns,
        ROWS=height, BLOCK_N=block_n, BLOCK_K=block_k, PASS=width, HAS_BIAS=bias is not None, FETCH=fetch,
        num_warps=warps, num_stages=stages, enable_fp_fusion=False,
    )  # fmt: skip


# ---- the operators that torch knows


@torch.library.custom_op("bit_by_bit::quantize_rows", mutates_args=())
def _quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    codes, scale = quantize_rows_ref(x.reshape(_rows(x), x.shape[-1]).contiguous())
    return codes.reshape(x.shape), scale.reshape(x.shape[:-1])


@_quantize_rows.register_fake
def _(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x.new_empty(x.shape, dtype=torch.int8), x.new_empty(x.shape[:-1], dtype=torch.float32)


def _rows(x: torch.Tensor) -> int:
    return x.shape[:-1].numel()


@torch.library.custom_op("bit_by_bit::q8_linear", mutates_args=())
def _q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    y = q8_linear_ref(x.reshape(_rows(x), x.shape[-1]).contiguous(), wq, w_scale, bias)
    return y.view(*x.shape[:-1], wq.shape[0])


@_q8_linear.register_fake
def _(x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], wq.shape[0]))
