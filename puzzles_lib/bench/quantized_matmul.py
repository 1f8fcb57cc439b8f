"""Measure chapter 08's 4-bit matmul on a GPU, step by step: how much each change of the kernel gains.

The kernels are the chapter's answers and edits of them: 12c with each word loaded once, and 12d with dots in
TF32 and in bfloat16 instead of float32. A layer of 4096 x 4096 weights in groups of 128 takes one activation,
then sixteen. For comparison there are cuBLAS with weights in float32 and bfloat16, the production kernel, and
the floor: the time that reading the packed weights takes. The error of a path is the norm of its distance
from the product with the same weights in float64, over the norm of that product.
"""

from collections.abc import Callable, Iterator

import torch
import triton

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import grouped_weights
from puzzles_lib.kernels.dequant_gemm import dequant_gemm
from puzzles_lib.kernels.quantize import quantize_pack
from puzzles_lib.source import define
from puzzles_lib.timing import interleaved, relative_error, row
from puzzles_lib.timing.h200 import BYTES, CACHE

M = K = 4096
GROUP = 128
COLUMNS = (1, 16)  # of the activation
COPIES = 2 * CACHE // (M * K // 2) + 1  # of the packed weights, taken in turn: no cache holds them all
BASELINE = "cuBLAS, bfloat16 weight"
_EXACT = 'acc += s * tl.dot((w - o).to(tl.float32), a, input_precision="ieee")'
_FIELDS = "        w = (tl.load(weight_rows + k // 8, mask=mask, other=0) >> 4 * (k % 8)) & 15\n"
_WORDS = """        i = start // 8 + tl.arange(0, BLOCK_K // 8)[None, :]
        words = tl.load(weight_rows + i, mask=(offs_m < M) & (i < K // 8), other=0)
        shifts = 4 * tl.arange(0, 8)[None, None, :]
        w = tl.reshape((words[:, :, None] >> shifts) & 15, (BLOCK_M, BLOCK_K))
"""
_LOWER = {
    "TF32": 'acc += s * tl.dot((w - o).to(tl.float32), a, input_precision="tf32")',
    "bfloat16": "acc += s * tl.dot((w - o).to(tl.bfloat16), a.to(tl.bfloat16))",
}


def steps() -> dict[str, tuple[object, tuple[int, int, int]]]:
    """Return each step's kernel, BLOCK_M, BLOCK_N and BLOCK_K."""
    sources, small = kernel_sources(), (16, 16, 128)
    last = sources["once_per_group"]
    if last.count(_EXACT) != 1:
        raise ValueError("the answer to puzzle 12d has changed: its dot is not found")
    if sources["quantized_matmul"].count(_FIELDS) != 1:
        raise ValueError("the answer to puzzle 12c has changed: its w is not found")
    whole = define(sources["quantized_matmul"], "<puzzle 12c>")
    words = define(sources["quantized_matmul"].replace(_FIELDS, _WORDS), "<each word once>")
    found = {
        "12c, tiles of 64 x 64 x 32": (whole, (64, 64, 32)),
        "12c, tiles of 16 x 16 x 128": (whole, small),
        "each word once": (words, small),
        "12d, once per group": (define(last, "<puzzle 12d>"), small),
    }
    for kind, dot in _LOWER.items():
        found[f"12d, dots in {kind}"] = define(last.replace(_EXACT, dot), f"<puzzle 12d in {kind}>"), small
    return found


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of bench "quantized-matmul". Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench quantized-matmul needs a CUDA device")
    for columns in COLUMNS:
        yield from _rows(columns)


def _rows(columns: int) -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    groups = K // GROUP
    words = torch.randint(-(2**31), 2**31, (M, K // 8), dtype=torch.int32, device="cuda")
    scale = torch.rand(M, groups, device="cuda") / 8 + 0.01
    offset = torch.randint(-(2**31), 2**31, (M, (groups + 7) // 8), dtype=torch.int32, device="cuda")
    activation = torch.randn(K, columns, device="cuda")
    weights = grouped_weights(words.cpu(), scale.cpu(), offset.cpu()).cuda()
    exact = weights.double() @ activation.double()
    sets = [tuple(t.roll(i, 0) for t in (words, scale, offset)) for i in range(COPIES)]
    paths: dict[str, list[Callable[[], object]]] = {}
    errors: dict[str, float] = {}
    for name, (kernel, (block_m, block_n, block_k)) in steps().items():
        z = torch.full((M, columns), float("nan"), device="cuda")
        grid = (triton.cdiv(M, block_m), triton.cdiv(columns, block_n))

        def call(tensors, kernel=kernel, grid=grid, z=z, blocks=(block_m, block_n, block_k)):
            kernel[grid](*tensors, activation, z, M, columns, K, GROUP, *blocks)

        call(sets[0])
        errors[name] = relative_error(z, exact)
        paths[name] = [lambda t=t, call=call: call(t) for t in sets]
    x, half = activation.t().contiguous(), activation.bfloat16()
    few = [weights.roll(i, 0) for i in range(2)]  # 67 MB each
    halves = [w.bfloat16() for w in few + [w.roll(2, 0) for w in few]]
    paths["cuBLAS, float32 weight"] = [lambda w=w: w @ activation for w in few]
    paths[BASELINE] = [lambda w=w: w @ half for w in halves]
    errors["cuBLAS, float32 weight"] = relative_error(few[0] @ activation, exact)
    errors[BASELINE] = relative_error(halves[0] @ half, exact)
    packed = [quantize_pack(w, 4, GROUP) for w in halves]
    packed += [quantize_pack(w.roll(8, 0), 4, GROUP) for w in halves * 3]
    tokens = x.bfloat16()
    paths["dequant_gemm"] = [lambda p=p: dequant_gemm(tokens, p) for p in packed]
    errors["dequant_gemm"] = relative_error(dequant_gemm(tokens, packed[0]).t(), exact)
    times = interleaved(paths)
    times["floor: the packed weights, read once"] = sum(t.nbytes for t in sets[0]) / BYTES * 1e6
    case = f"4 bits, groups of {GROUP}, {M}x{K}, N = {columns}"
    for path, us in times.items():
        yield row("quantized-matmul", case, path, us, BASELINE, times[BASELINE], errors.get(path, 0.0))
