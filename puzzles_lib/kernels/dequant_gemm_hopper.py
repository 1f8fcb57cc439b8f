"""dW = dy^T @ x^ on Hopper GPUs, x^ unpacked in registers: faster than cuBLAS on a ready x^.

Written in Gluon, the language under Triton, where layouts, copies and waits are the author's. What makes
it fast:

- x^^T is the matrix unit's left operand, which may come from registers, and dy its right one, from shared
  memory. Unpacked values so never leave the thread that unpacked them.
- The packed format suits it: word [r, n] holds rows r, r + 16, ... of column n, so that field j of 16 rows
  of words is one 16-deep operand, in any thread whatever that thread holds of the words.
- Two codes are unpacked in three instructions, exactly (`_unpack_asm`), and scaled with one rounding.
- wgmma runs behind: while it multiplies two operands, the threads unpack a third. A wgmma reads its operand's
  registers while it runs, so an operand is kept alive until `warpgroup_mma_wait` says that it is done.
- Copies by TMA run STAGES - 1 steps ahead. Each of the four copies of a step asks for a barrier of all
  threads: they are spread over four operands, so that the matrix unit has work meanwhile.

A step is 128 rows of K. Tiles are 128 columns of x by 256 of dy; K is split among programs until the
multiprocessors are filled, and a second kernel adds the float32 sums of the splits, in order.
"""

import torch
import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

BLOCK_M, BLOCK_N, STEP = 128, 256, 128  # columns of x, columns of dy, rows of both
SWIZZLED, PLAIN = gl.NVMMASharedLayout(128, 16), gl.NVMMASharedLayout(0, 16)

_barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # renamed in Triton 3.7


def fits(dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, group_size: int) -> bool:
    """Whether `launch` takes these: a Hopper GPU, 16-bit floats, a scale per row and tile, aligned rows."""
    (_, cout), cin = dy.shape, words.shape[2]
    aligned = cin % 8 == 0 and cout % 8 == 0  # TMA wants strides of 16 bytes
    aligned = aligned and all(t.data_ptr() % 16 == 0 for t in (dy, words, params))
    one_scale = group_size % BLOCK_M == 0 or params.shape[0] == 1
    small = dy.dtype in (torch.float16, torch.bfloat16) and cin * cout < 2**31
    return aligned and one_scale and small and torch.cuda.get_device_capability(dy.device) == (9, 0)


def launch(
    dy: torch.Tensor, words: torch.Tensor, params: torch.Tensor, bits: int, group_size: int
) -> torch.Tensor:
    """dW [COUT, CIN] of a contiguous matrix dy [K, COUT], K > 0, for which `fits` holds."""
    (rows, cout), cin = dy.shape, words.shape[2]
    steps = triton.cdiv(rows, STEP)
    tiles = triton.cdiv(cin, BLOCK_M) * triton.cdiv(cout, BLOCK_N)
    splits = choose_splits(tiles, steps, cin * cout, _multiprocessors(dy.device))
    out = torch.empty(cout, cin, device=dy.device, dtype=dy.dtype)
    sums = out if splits == 1 else torch.empty(splits, cout, cin, device=dy.device)
    word_rows = max(16, 8 * bits)
    stages = 2 if bits == 8 else 3  # as many as shared memory holds
    with torch.cuda.device(dy.device):
        _dequant_gemm_dw_hopper_kernel[(tiles * splits,)](
            TensorDescriptor.from_tensor(dy, [STEP, BLOCK_N], SWIZZLED),
            TensorDescriptor.from_tensor(words.view(-1, cin), [word_rows, BLOCK_M], SWIZZLED),
            TensorDescriptor.from_tensor(params.view(params.shape[0], -1), [1, STEP], PLAIN),
            sums, steps, cin, cout, splits, group_size,
            BITS=bits, STAGES=stages, num_warps=8,
        )  # fmt: skip
        if splits > 1:
            _add_splits_kernel[(triton.cdiv(out.numel(), 512),)](
                sums, out, out.numel(), SPLITS=splits, BLOCK=512, num_warps=4
            )
    return out


def choose_splits(tiles: int, steps: int, size: int, multiprocessors: int) -> int:
    """Into how many parts to split K: at most one a step, none is empty.

    The unit is a step, 1.3 us on an H200. A program costs its steps and 4 more to begin and end; sums of
    ``size`` floats are written and read at 4 TB/s, by a kernel that costs 2 steps to launch.
    """

    def cost(splits: int) -> float:
        waves = -(-tiles * splits // multiprocessors)
        adding = 2 + splits * size * 8 / 4e6 / 1.3 if splits > 1 else 0
        return waves * (-(-steps // splits) + 4) + adding

    return min(range(1, min(steps, 64) + 1), key=cost)


def _multiprocessors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count


@gluon.constexpr_function
def _unpack_asm(bits, field, half):
    """PTX that makes two codes of a field, in the halves of a word, two floats, and scales them.

    A code's bits in the mantissa of a constant 2^m read as 2^m + code · 2^position: fma takes that apart to
    the code, exactly, as there are bits enough. Where there are not (a bfloat16 has seven), the bits alone
    are a subnormal, code · 2^(position - 133), which one or two powers of two make the code.
    """
    both = 0x10001  # times this: the same in both halves
    position = 0 if bits == 4 and not half else bits * field % 8
    shift = bits * field - position
    fields = both * (((1 << bits) - 1) << position)
    mantissa, bias = (10, 15) if half else (7, 127)
    fma = "fma.rn.f16x2" if half else "fma.rn.bf16x2"
    text = f"{{ .reg .b32 w, a, b; shr.u32 w, $1, {shift}; "
    if position + bits <= mantissa:
        one = (bias + mantissa) << mantissa  # 2^m, whose last bit stands for 1
        text += f"lop3.b32 w, w, {fields:#x}, {both * one:#x}, 0xEA; "  # (w & fields) | 2^m
        text += f"mov.b32 a, {both * ((bias - position) << mantissa):#x}; "  # 2^-position
        text += f"mov.b32 b, {both * (0x8000 + one - (position << mantissa)):#x}; "  # -2^(m - position)
        text += f"{fma} w, w, a, b; "
    else:
        text += f"and.b32 w, w, {fields:#x}; mov.b32 b, {both * 0x8000:#x}; "  # -0
        power = 133 - position
        for part in [min(power, 127), max(power - 127, 0)]:
            text += f"mov.b32 a, {both * ((127 + part) << 7):#x}; {fma} w, w, a, b; "
    return text + f"{fma} $0, w, $2, $3; }}"  # code · scale + minimum, rounded once


@gluon.jit
def _fetch(
    part: gl.constexpr, dy, words, params, s_dy, s_words, s_params, ready, turn, step, m, n, group, wanted,
    BITS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Start the first, second, third or fourth copy of a step, if wanted."""
    stage = turn % STAGES
    bar = ready.index(stage)
    if part == 0:
        mbarrier.expect(
            bar, dy.block_type.nbytes + words.block_type.nbytes + 2 * params.block_type.nbytes, pred=wanted
        )
        tma.async_copy_global_to_shared(dy, [step * 128, n], bar, s_dy.index(stage), pred=wanted)
    elif part == 1:
        row = step // 2 * 16 if BITS == 1 else step * (8 * BITS)
        tma.async_copy_global_to_shared(words, [row, m], bar, s_words.index(stage), pred=wanted)
    else:  # 128 params, and 128 more: scales and minima, in turn as the blocks have them
        start = step // 2 * 512 + step % 2 * 128 if BITS == 1 else step * 256
        start += (part - 2) * (256 if BITS == 1 else 128)
        target = s_params.index(2 * stage + part - 2)
        tma.async_copy_global_to_shared(params, [group, start], bar, target, pred=wanted)


@gluon.jit
def _load_param(
    s_params, stage, j: gl.constexpr, which: gl.constexpr, FIELDS: gl.constexpr, layout: gl.constexpr
):
    """Scales (which 0) or minima (1) of operand j, [1, 16]. A block has all of its scales, then all minima."""
    place: gl.constexpr = 16 * (FIELDS * (j // FIELDS * 2 + which) + j % FIELDS)
    half = s_params.index(2 * stage + place // 128).reshape([128])
    return half.slice(place % 128, 16).load(layout).expand_dims(0)


@gluon.jit
def _dequant_gemm_dw_hopper_kernel(
    dy, words, params_desc, out_ptr, steps, CIN, COUT, splits, group_size,
    BITS: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """A tile of dW^T from the steps of one split."""
    BLOCK_M: gl.constexpr = words.block_shape[1]
    BLOCK_N: gl.constexpr = dy.block_shape[1]
    FIELDS: gl.constexpr = min(16 // BITS, 8)  # of a word, in one step
    HALF: gl.constexpr = dy.dtype == gl.float16
    mma: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[gl.num_warps(), 1], instr_shape=[16, BLOCK_N, 16]
    )
    operand: gl.constexpr = gl.DotOperandLayout(0, mma, k_width=2)
    along_k: gl.constexpr = gl.SliceLayout(0, operand)

    s_dy = gl.allocate_shared_memory(dy.dtype, [STAGES] + dy.block_shape, dy.layout)
    s_words = gl.allocate_shared_memory(words.dtype, [STAGES] + words.block_shape, words.layout)
    s_params = gl.allocate_shared_memory(dy.dtype, [2 * STAGES] + params_desc.block_shape, params_desc.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(STAGES):
        mbarrier.init(ready.index(i), count=1)

    tiles_m = gl.cdiv(CIN, BLOCK_M)
    tiles = tiles_m * gl.cdiv(COUT, BLOCK_N)
    split = gl.program_id(0) // tiles
    m = gl.program_id(0) % tiles % tiles_m * BLOCK_M
    n = gl.program_id(0) % tiles // tiles_m * BLOCK_N
    group = m // group_size
    first = steps * split // splits
    count = gl.maximum(steps * (split + 1) // splits - first, 1)  # where ptxas sees none, wgmma has to wait

    for i in gl.static_range(STAGES - 1):
        for part in gl.static_range(4):
            _fetch(
                part, dy, words, params_desc, s_dy, s_words, s_params, ready, i, first + i, m, n,
                group, i < count, BITS, STAGES,
            )  # fmt: skip
    acc = warpgroup_mma_init(gl.full([BLOCK_M, BLOCK_N], 0.0, gl.float32, mma))
    last = gl.full([BLOCK_M, 16], 0.0, dy.dtype, operand)
    last_but_one = last
    for turn in range(count):
        step = first + turn
        stage = turn % STAGES
        mbarrier.wait(ready.index(stage), turn // STAGES & 1)
        for j in gl.static_range(8):
            if j % FIELDS == 0:  # [BLOCK_M, 16] words, transposed as they are loaded
                word = s_words.index(stage).slice(16 * (j // FIELDS), 16).permute([1, 0]).load(operand)
                if BITS == 1:  # a block is two steps: the second one wants the upper half of the fields
                    word = _shift_right(word, step % 2 * 8)
            scale = _load_param(s_params, stage, j, 0, FIELDS, along_k)
            minimum = _load_param(s_params, stage, j, 1, FIELDS, along_k)
            x = gl.inline_asm_elementwise(
                _unpack_asm(BITS, j % FIELDS, HALF), "=r,r,r,r",
                [word, gl.broadcast(scale, word)[0], gl.broadcast(minimum, word)[0]],
                dtype=dy.dtype, is_pure=True, pack=2,
            )  # fmt: skip
            acc = warpgroup_mma(x, s_dy.index(stage).slice(16 * j, 16), acc, is_async=True)
            warpgroup_mma_wait(2, deps=[last_but_one])
            last_but_one = last
            last = x
            if j >= 4:
                if j == 4:  # the step before is multiplied by now, in all warps: its stage is free
                    _barrier()
                _fetch(
                    j - 4, dy, words, params_desc, s_dy, s_words, s_params, ready, turn + STAGES - 1,
                    step + STAGES - 1, m, n, group, turn + STAGES - 1 < count, BITS, STAGES,
                )  # fmt: skip
    acc, last, last_but_one = warpgroup_mma_wait(0, deps=[acc, last, last_but_one])

    offs_m = m + gl.arange(0, BLOCK_M, gl.SliceLayout(1, mma))[:, None]
    offs_n = n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, mma))[None, :]
    out_ptr += split.to(gl.int64) * COUT * CIN
    mask = (offs_m < CIN) & (offs_n < COUT)
    gl.store(out_ptr + offs_n * CIN + offs_m, acc.to(out_ptr.dtype.element_ty), mask=mask)


@gluon.jit
def _shift_right(word, distance):
    """Both halves of a register at once: the lower one then has bits of the upper at its top."""
    distance = gl.full(word.shape, 1, gl.int16, word.type.layout) * distance.to(gl.int16)
    text: gl.constexpr = "{ .reg .b32 d; and.b32 d, $2, 255; shr.u32 $0, $1, d; }"
    return gl.inline_asm_elementwise(text, "=r,r,r", [word, distance], dtype=gl.int16, is_pure=True, pack=2)


@triton.jit
def _add_splits_kernel(sums_ptr, out_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    """The sum over splits, first to last."""
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):
        total += tl.load(sums_ptr + split * size.to(tl.int64) + offs, mask=offs < size)
    tl.store(out_ptr + offs, total, mask=offs < size)
