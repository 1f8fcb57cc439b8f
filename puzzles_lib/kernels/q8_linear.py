"""Int8 dynamic linear: rows of x are quantized in each call, weights once, per output channel.

    scale[m] = max_k |x[m, k]| / 127
    xq[m, k] = round(x[m, k] / scale[m]), ties to even, -127 .. 127
    acc[m, n] = sum_k xq[m, k] * wq[n, k], exact, in int32
    y[m, n]  = acc * (scale[m] * w_scale[n]) + bias[n], in float32, every step rounded by itself

The sums are integers. So a row's result has the same bits on a CPU and on a GPU, with any order of summation,
any tile and any other rows in the batch.
"""

from dataclasses import dataclass, replace
from types import ModuleType

import torch
import triton
import triton.language as tl
from torch import nn
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.kernels import q8_linear_rows16, q8_linear_rows64
from puzzles_lib.kernels.common import MAGIC, TINY, check_dtype, check_model, maximum_with_nan, overlapped

TOP = 127
MAX_K = (2**31 - 1) // TOP**2  # 133144: the sum of so many products still fits into int32


def quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes and scales of the rows of x, each row by itself.

    x: [..., K], float32, float16 or bfloat16, of any size and with any strides; K may be 0.

    Returns (codes, scale), both contiguous: codes is int8 [..., K], from -127 to 127, and scale is float32
    [...]. x equals ``codes * scale[..., None]`` to within half of the scale. A row whose scale would be below
    2^-126 has scale 0 and codes 0. A row with a NaN or an infinity has scale NaN and codes 0.

    Raises TypeError for another dtype, and ValueError for a scalar.
    """
    _check_x(x)
    return _quantize_rows(x)


def q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """Quantize the rows of x to int8, and return x @ (wq * w_scale[:, None])ᵀ + bias, with exact int32 sums.

    x: [..., K], float32, float16 or bfloat16, of any size and with any strides.
    wq, w_scale: int8 [N, K] and float32 [N], which `quantize_rows` returns for a weight matrix.
    bias: [N], float32, float16 or bfloat16, or None. All tensors are on one device.

    Returns y: [..., N] in x's dtype, rounded once from float32. A row with a NaN or an infinity becomes NaN
    and does not affect other rows. A row of zeros gives the bias. There is no gradient.

    Raises TypeError for another dtype. Raises ValueError if shapes or devices do not fit, or if K is above
    133144 (132104 if wq has a -128), because the sums would not fit into int32.
    """
    _check_x(x)
    check_weight(wq, w_scale, bias)
    if x.shape[-1] != wq.shape[1]:
        raise ValueError(
            f"x must have rows of {wq.shape[1]} for wq of {tuple(wq.shape)}, but has rows of {x.shape[-1]}"
        )
    if x.device != wq.device:
        raise ValueError(f"x must be on the device of wq, {wq.device}, but is on {x.device}")
    return _q8_linear(x, wq, w_scale, bias)


class Q8Linear(nn.Module):
    """`nn.Linear` for inference with int8 weights; rows of the input are quantized in each call.

    Make it with `Q8Linear.from_linear` or `swap_linears`: a new layer's weights are zeros. It computes
    `q8_linear`.

    Buffers: weight int8 [N, K], scale float32 [N], bias [N] or None. They move and are saved with the module.
    ``scale`` stays float32 when a model is cast.
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
        """Return a layer with the quantized weights of an `nn.Linear`, one scale per output channel.

        The bias is copied. Raises TypeError if ``linear`` is not an nn.Linear, or if its weights are not
        float32, float16 or bfloat16. Raises ValueError if it has more than 133144 inputs.
        """
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"linear must be an nn.Linear, but is {type(linear).__name__}")
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
    """Replace every `nn.Linear` in a model by a `Q8Linear` with int8 weights, and return the model.

    The model is changed in place. If ``model`` itself is an nn.Linear, a new `Q8Linear` is returned instead.
    Subclasses of nn.Linear stay as they are, because other code may use their weights. A module in two places
    stays one module.

    Raises TypeError if ``model`` is not a module, or if a weight is not float32, float16 or bfloat16. Raises
    ValueError if a layer has more than 133144 inputs, because the sums would not fit into int32.
    """
    check_model(model)
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
    check_dtype("x", x)
    if x.dim() == 0:
        raise ValueError("x must have at least one axis, but is a scalar")


def _check_k(columns: int) -> None:
    if columns > MAX_K:
        raise ValueError(f"K must be at most {MAX_K}, because the sums are int32, but is {columns}")


def check_weight(wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None) -> None:
    """Raise TypeError or ValueError if the parts of quantized weights do not fit together."""
    check_dtype("wq", wq, (torch.int8,))
    check_dtype("w_scale", w_scale, (torch.float32,))
    if wq.dim() != 2:
        raise ValueError(f"wq must have 2 axes, [N, K], but has {wq.dim()}")
    _check_k(wq.shape[1])
    parts = [("w_scale", w_scale)]
    if bias is not None:
        check_dtype("bias", bias)
        parts.append(("bias", bias))
    for name, value in parts:
        if value.shape != wq.shape[:1]:
            wanted = f"{tuple(wq.shape[:1])} for wq of {tuple(wq.shape)}"
            raise ValueError(f"{name} must have shape {wanted}, but has shape {tuple(value.shape)}")
        if value.device != wq.device:
            raise ValueError(f"{name} must be on the device of wq, {wq.device}, but is on {value.device}")


# ---- torch, the reference


def quantize_rows_ref(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return codes (int8 [M, K]) and scales (float32 [M]) of a matrix x [M, K]."""
    if not x.numel():
        return x.new_zeros(x.shape, dtype=torch.int8), x.new_zeros(x.shape[0], dtype=torch.float32)
    x = x.float()
    scale = x.abs().amax(1).div_(TOP)  # NaN if one is NaN
    scale = torch.where(scale < TINY.value, 0.0, scale)
    divisor = torch.where((scale > 0) & scale.isfinite(), scale, float("inf"))  # its codes are 0 ...
    codes = (x / divisor[:, None]).round_()
    if not scale.isfinite().all():
        codes.nan_to_num_(0.0)  # ... except for inf / inf and NaN
        scale.masked_fill_(~scale.isfinite(), float("nan"))
    return codes.to(torch.int8), scale


EXACT = 2**24 // 128  # a sum of codes times weights is exact in float32 if its codes sum to no more
BLOCK = 256  # rows of weights turned into float32 at a time, to stay within a cache


@torch.autocast("cpu", enabled=False)  # which would round the sums to 16 bits
def int8_matmul_ref(xq: torch.Tensor, wq: torch.Tensor) -> torch.Tensor:
    """Return xq [M, K] @ wq [N, K]ᵀ as float32, rounded once from the exact sums.

    `torch._int_mm` is fast on CPUs whose AVX-512 multiplies int8 (VNNI). On others oneDNN's int8 kernels
    saturate, or are a plain loop that is some 30 times slower than float32. float32 is exact for sums that
    are short enough.
    """
    if torch.cpu._is_vnni_supported() and wq.shape[1] > 1:
        # With K = 1 the strides of wq.t(), (1, 1), are taken for those of rows, and nothing is written.
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
    """Return y [M, N] of a matrix x [M, K], for wq [N, K], w_scale [N] and bias [N]."""
    rows, outputs = x.shape[0], wq.shape[0]
    if x.numel() and outputs:
        xq, x_scale = quantize_rows_ref(x)
        y = int8_matmul_ref(xq, wq).mul_(x_scale[:, None] * w_scale)
    else:
        y = torch.zeros(rows, outputs, device=x.device)
    return (y if bias is None else y.add_(bias)).to(x.dtype)


# ---- Triton

SMALL = tl.constexpr(2.0**-64)
LARGE = tl.constexpr(2.0**64)


@triton.jit
def _scale_of(amax):
    """amax / 127; 0 where that is subnormal, NaN where amax is no finite number."""
    scale = tl.div_rn(amax, tl.full(amax.shape, 127.0, tl.float32))
    return tl.where(scale < TINY, 0.0, scale) + (amax - amax)


@triton.jit
def _codes_of(x, scale):
    """Return round(x / scale), ties to even, as int8. The result is 0 if scale [ROWS, 1] is NaN.

    Multiplying by the reciprocal gives a quotient that is off by an ulp. One more step, with the exact
    remainder from a fused multiply-add, rounds it as a division does (P. Markstein, 1990). This takes a third
    of the instructions. The remainder must not be subnormal, so small rows are scaled up first.
    """
    up = tl.where(scale < SMALL, LARGE, 1.0)
    divisor = tl.where(scale > 0, scale * up, 1.0)
    inverse = tl.div_rn(tl.full(scale.shape, 1.0, tl.float32), divisor)
    x = x * up
    quotient = x * inverse
    remainder = tl.fma(-quotient, tl.broadcast_to(divisor, x.shape), x)
    quotient = tl.fma(remainder, tl.broadcast_to(inverse, x.shape), quotient)
    # The low byte of MAGIC's pattern is 0: what is left there is the code.
    code = (quotient + MAGIC).to(tl.int32, bitcast=True)
    return tl.where(scale == scale, code, 0).to(tl.int8)


@triton.jit(do_not_specialize=["M", "zeros"])
def _quantize_rows_kernel(
    x_ptr, codes_ptr, scale_ptr, sums_ptr, M, K, zeros,
    ROWS: tl.constexpr, BLOCK_K: tl.constexpr, ONE_BLOCK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """ROWS rows, and on the side sums_ptr[:zeros] = 0 for the matrix multiplication that comes next.

    PDL: that one may start before this one ends, and waits where it needs the codes. This one itself may
    start before the kernel before it ends, whatever that writes: it waits at once.
    """
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    pid = tl.program_id(0)
    offs_m = pid * ROWS + tl.arange(0, ROWS)
    offs_k = tl.arange(0, BLOCK_K)
    mask_m = (offs_m < M)[:, None]
    place = offs_m.to(tl.int64)[:, None] * K + offs_k[None, :]  # [ROWS, BLOCK_K]
    if ONE_BLOCK:
        mask = mask_m & (offs_k < K)[None, :]
        x = tl.load(x_ptr + place, mask=mask, other=0.0).to(tl.float32)
        scale = _scale_of(tl.reduce(tl.abs(x), 1, maximum_with_nan))
        tl.store(codes_ptr + place, _codes_of(x, scale[:, None]), mask=mask)
    else:
        most = tl.zeros([ROWS, BLOCK_K], tl.float32)
        for k in range(0, K, BLOCK_K):
            mask = mask_m & (offs_k < K - k)[None, :]
            x = tl.load(x_ptr + place + k, mask=mask, other=0.0)
            most = maximum_with_nan(most, tl.abs(x.to(tl.float32)))
        scale = _scale_of(tl.reduce(most, 1, maximum_with_nan))
        for k in range(0, K, BLOCK_K):
            mask = mask_m & (offs_k < K - k)[None, :]
            x = tl.load(x_ptr + place + k, mask=mask, other=0.0).to(tl.float32)
            tl.store(codes_ptr + place + k, _codes_of(x, scale[:, None]), mask=mask)
    tl.store(scale_ptr + offs_m, scale, mask=offs_m < M)
    for first in range(pid * 1024, zeros, tl.num_programs(0) * 1024):
        offs = first + tl.arange(0, 1024)
        tl.store(sums_ptr + offs, tl.zeros([1024], tl.int32), mask=offs < zeros)


@triton.jit
def _finish(
    sums, x_scale, w_scale, bias_ptr, y_ptr, sums_ptr, offs_m, offs_n, tile, M, N,
    SPLIT: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """A tile of y from its sums. With SPLIT > 1 they are shares: the last program to add its own finishes.

    Integer sums are the same in whatever order they are added. sums_ptr: int32, M · N sums, then a counter
    for each tile, all zero at first.
    """
    mask_m, mask_n = offs_m < M, offs_n < N
    mask = mask_m[:, None] & mask_n[None, :]
    place = offs_m.to(tl.int64)[:, None] * N + offs_n[None, :]
    last = SPLIT == 1
    if SPLIT > 1:
        tl.atomic_add(sums_ptr + place, sums, mask=mask, sem="relaxed")
        tl.debug_barrier()  # all threads' sums are under way before one of them counts
        arrived = tl.atomic_add(sums_ptr + tl.cast(M, tl.int64) * N + tile, 1, sem="acq_rel")
        last = arrived == SPLIT - 1
    if last:
        if SPLIT > 1:
            sums = tl.load(sums_ptr + place, mask=mask, other=0, cache_modifier=".cg")
        y = sums.to(tl.float32) * (x_scale[:, None] * w_scale[None, :])  # [BLOCK_M, BLOCK_N]
        if HAS_BIAS:
            y += tl.load(bias_ptr + offs_n, mask=mask_n, other=0.0).to(tl.float32)[None, :]
        tl.store(y_ptr + place, y, mask=mask)


@triton.jit(do_not_specialize=["M"])
def _matmul_kernel(
    codes, x_scale_ptr, wq, w_scale_ptr, bias_ptr, y_ptr, sums_ptr, M, N, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr, HAS_BIAS: tl.constexpr, TMA: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    """A tile of y, from one of SPLIT shares of K. With TMA codes and wq are descriptors, else pointers.

    PDL: the program may start before the codes are there, asks for the scales of its weights, and waits.
    """
    pid, tiles_n = tl.program_id(0), tl.cdiv(N, BLOCK_N)
    # GROUP_M rows of tiles at a time, so that programs at the same time share rows and columns in the cache.
    group = pid // (GROUP_M * tiles_n)
    height = tl.minimum(tl.cdiv(M, BLOCK_M) - group * GROUP_M, GROUP_M)
    first_m = (group * GROUP_M + pid % (GROUP_M * tiles_n) % height) * BLOCK_M
    first_n = pid % (GROUP_M * tiles_n) // height * BLOCK_N
    offs_m = first_m + tl.arange(0, BLOCK_M)
    offs_n = first_n + tl.arange(0, BLOCK_N)
    steps = tl.cdiv(tl.cdiv(K, BLOCK_K), SPLIT)
    first_k = tl.program_id(1) * steps * BLOCK_K  # past K in a share without a step: zeros
    sums = tl.zeros([BLOCK_M, BLOCK_N], tl.int32)
    w_scale = tl.load(w_scale_ptr + offs_n, mask=offs_n < N, other=0.0)
    if PDL:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()
    x_scale = tl.load(x_scale_ptr + offs_m, mask=offs_m < M, other=0.0)
    for step in range(0, steps):
        k = first_k + step * BLOCK_K
        if TMA:
            x = codes.load([first_m, k])  # [BLOCK_M, BLOCK_K]
            w = wq.load([first_n, k])  # [BLOCK_N, BLOCK_K]
        else:
            offs_k = k + tl.arange(0, BLOCK_K)
            mask_x = (offs_m < M)[:, None] & (offs_k < K)[None, :]
            mask_w = (offs_n < N)[:, None] & (offs_k < K)[None, :]
            x = tl.load(codes + offs_m.to(tl.int64)[:, None] * K + offs_k[None, :], mask=mask_x, other=0)
            w = tl.load(wq + offs_n.to(tl.int64)[:, None] * K + offs_k[None, :], mask=mask_w, other=0)
        sums = tl.dot(x, w.T, sums, out_dtype=tl.int32)
    _finish(sums, x_scale, w_scale, bias_ptr, y_ptr, sums_ptr, offs_m, offs_n, pid, M, N, SPLIT, HAS_BIAS)


def launch_quantize_rows(
    x: torch.Tensor, codes: torch.Tensor, scale: torch.Tensor, sums: torch.Tensor | None = None, pdl=False
) -> None:
    """Fill codes [M or more, K] and scale [M] from a matrix x [M, K]. Fill sums with zeros.

    sums: int32, or None.
    """
    rows, columns = x.shape
    block = min(triton.next_power_of_2(columns), 8192)
    height = max(1, 2048 // block)
    most_warps = 8 if rows <= 128 else 4  # with a row for each multiprocessor, it has all its threads
    _quantize_rows_kernel[(triton.cdiv(rows, height),)](
        x, codes, scale, scale if sums is None else sums, rows, columns, 0 if sums is None else sums.numel(),
        ROWS=height, BLOCK_K=block, ONE_BLOCK=columns <= block, PDL=pdl,
        num_warps=max(1, min(most_warps, height * block // 512)), **EXACT_STEPS, **overlapped(pdl),
    )  # fmt: skip


EXACT_STEPS = {"enable_fp_fusion": False}  # a product and a sum are rounded one by one, as on a CPU


@dataclass(frozen=True)
class Tiles:
    """How a matrix multiplication is divided: tile sizes, tiles per group, shares of K, warps, stages."""

    m: int
    n: int
    k: int
    group: int = 8
    split: int = 1
    warps: int = 4
    stages: int = 4


def choose_tiles(rows: int, outputs: int, columns: int, programs: int, tma: bool) -> Tiles:
    """Return tiles for a shape, from measurements on an H200 at K = N = 4096.

    programs: how many the GPU runs at once. tma: whether tiles are loaded by TMA.
    """
    if not tma and rows <= 64:
        tiles = Tiles(16 if rows <= 16 else 64, 32, 256, stages=3)
    elif not tma:
        tiles = Tiles(64, 64, 128, stages=3)
    elif rows <= 64:
        tiles = Tiles(64, 32, 512)
    elif rows <= 128:
        tiles = Tiles(64, 64, 256, group=2, stages=6)
    elif rows <= 256:
        tiles = Tiles(128, 64, 256, group=2)
    elif rows <= 512:
        tiles = Tiles(128, 64, 128, group=4)  # two programs per multiprocessor, from here on
    else:
        tiles = Tiles(128, 128, 128, group=16, stages=3)
    # Few tiles do not keep the GPU busy, unless several programs take a share of K each for one of them.
    share = 1024 if rows <= 64 else 4096  # at least: the sums have to be added
    split = min(programs // grid_of(tiles, rows, outputs)[0], columns // share)
    return replace(tiles, split=split) if split > 1 else tiles


def grid_of(tiles: Tiles, rows: int, outputs: int) -> tuple[int, int]:
    """Return the number of tiles of y, and of shares of K."""
    return triton.cdiv(rows, tiles.m) * triton.cdiv(outputs, tiles.n), tiles.split


def kernel_of_few_rows(rows: int, wq: torch.Tensor) -> ModuleType | None:
    """Return the module whose ``launch`` is the fastest for few rows (measured on an H200), or None."""
    if rows > 8 and q8_linear_rows64.fits(rows, wq):
        return q8_linear_rows64
    return q8_linear_rows16 if q8_linear_rows16.fits(rows, wq) else None


def launch_q8_linear(
    x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None, y: torch.Tensor
) -> None:
    """Fill y [M, N] from x [M, K], all contiguous, no size 0."""
    (rows, columns), outputs = x.shape, wq.shape[0]
    gpu = torch.cuda.get_device_properties(x.device)
    x_scale = x.new_empty(rows, dtype=torch.float32)
    few = kernel_of_few_rows(rows, wq)
    if few is not None:
        codes, pdl = x.new_empty(few.ROWS, columns, dtype=torch.int8), gpu.major >= 9
        launch_quantize_rows(x, codes, x_scale, pdl=pdl)
        few.launch(codes, x_scale, wq, w_scale, bias, y, pdl)
        return
    hopper = gpu.major >= 9 and gpu.shared_memory_per_block_optin >= 200 * 1024
    tma = hopper and columns % 16 == 0 and wq.data_ptr() % 16 == 0
    tiles = choose_tiles(rows, outputs, columns, gpu.multi_processor_count, tma)
    # Room for whole tiles: a bulk copy that reaches past the end is slow. What is there is not used.
    codes = x.new_empty(triton.cdiv(rows, tiles.m) * tiles.m, columns, dtype=torch.int8)
    sums = None
    if tiles.split > 1:
        sums = x.new_empty(rows * outputs + grid_of(tiles, rows, outputs)[0], dtype=torch.int32)
    launch_quantize_rows(x, codes, x_scale, sums, pdl=hopper)
    launch_matmul(codes, x_scale, wq, w_scale, bias, y, sums, tiles, tma, pdl=hopper)


def launch_matmul(
    codes: torch.Tensor,
    x_scale: torch.Tensor,
    wq: torch.Tensor,
    w_scale: torch.Tensor,
    bias: torch.Tensor | None,
    y: torch.Tensor,
    sums: torch.Tensor | None,
    tiles: Tiles,
    tma: bool,
    pdl: bool,
) -> None:
    """Fill y [M, N] from int8 codes [M or more, K], and the scales. If K is split, sums must be zeros.

    sums: int32, M · N sums, then a counter for each tile; None if K is not split. pdl: whether the launch
        before this one is `launch_quantize_rows` with pdl, too.
    """
    (rows, outputs), columns = y.shape, wq.shape[1]
    codes_in, weights_in = codes, wq
    if tma:
        codes_in = TensorDescriptor(codes, list(codes.shape), [columns, 1], [tiles.m, tiles.k])
        weights_in = TensorDescriptor(wq, [outputs, columns], [columns, 1], [tiles.n, tiles.k])
    _matmul_kernel[grid_of(tiles, rows, outputs)](
        codes_in, x_scale, weights_in, w_scale, w_scale if bias is None else bias, y,
        y if sums is None else sums, rows, outputs, columns,
        BLOCK_M=tiles.m, BLOCK_N=tiles.n, BLOCK_K=tiles.k, GROUP_M=tiles.group, SPLIT=tiles.split,
        HAS_BIAS=bias is not None, TMA=tma, PDL=pdl,
        num_warps=tiles.warps, num_stages=tiles.stages, **EXACT_STEPS, **overlapped(pdl),
    )  # fmt: skip


# ---- the operators that torch knows


@torch.library.custom_op("bit_by_bit::quantize_rows", mutates_args=())
def _quantize_rows(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    matrix = x.reshape(_rows(x), x.shape[-1]).contiguous()
    if x.is_cuda and x.numel():
        codes, scale = torch.empty_like(matrix, dtype=torch.int8), x.new_empty(_rows(x), dtype=torch.float32)
        with torch.cuda.device(x.device):
            launch_quantize_rows(matrix, codes, scale)
    else:
        codes, scale = quantize_rows_ref(matrix)
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
    matrix = x.reshape(_rows(x), x.shape[-1]).contiguous()
    if x.is_cuda and x.numel() and wq.numel():
        wq, w_scale = wq.contiguous(), w_scale.contiguous()
        y = x.new_empty(_rows(x), wq.shape[0])
        with torch.cuda.device(x.device):
            launch_q8_linear(matrix, wq, w_scale, None if bias is None else bias.contiguous(), y)
    else:
        y = q8_linear_ref(matrix, wq, w_scale, bias)
    return y.view(*x.shape[:-1], wq.shape[0])


@_q8_linear.register_fake
def _(x: torch.Tensor, wq: torch.Tensor, w_scale: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return x.new_empty((*x.shape[:-1], wq.shape[0]))
