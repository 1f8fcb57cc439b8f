"""Cells of chapter 15: made by `make notebooks`, to be changed in its notebook."""

import triton
import triton.language as tl

from puzzles_lib.chapters.ch15_racing_cublas.rung import Rung


@triton.jit
def sum_splits_kernel(parts_ptr, dw_ptr, N, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    acc = tl.zeros((BLOCK,), tl.float32)
    for split in tl.static_range(SPLITS):  # a fixed order gives fixed bits
        acc += tl.load(parts_ptr + split * N + offs)
    tl.store(dw_ptr + offs, acc)


@triton.jit
def row_words_kernel(
    words_ptr, scale_ptr, minimum_ptr, dy_ptr, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    W: tl.constexpr = CIN // 16  # words per row, 16 codes each
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M], of COUT
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N], of CIN
    # [BLOCK_N // 16]
    offs_w = tl.program_id(1) * (BLOCK_N // 16) + tl.arange(0, BLOCK_N // 16)
    i = tl.arange(0, 16)[None, None, :]  # [1, 1, 16], field of a word
    group = tl.program_id(1) * BLOCK_N // GROUP
    split, steps = tl.program_id(2), K // BLOCK_K
    splits = tl.num_programs(2)
    first, last = split * steps // splits, (split + 1) * steps // splits
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for step in range(first, last):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K)  # [BLOCK_K]
        place = words_ptr + k[:, None] * W + offs_w[None, :]
        words = tl.load(place)  # [BLOCK_K, BLOCK_N // 16]
        place = scale_ptr + k * (CIN // GROUP) + group
        scale = tl.load(place).to(tl.float32)  # [BLOCK_K]
        place = minimum_ptr + k * (CIN // GROUP) + group
        minimum = tl.load(place).to(tl.float32)  # [BLOCK_K]
        codes = tl.reshape((words[:, :, None] >> 2 * i) & 3, (BLOCK_K, BLOCK_N))
        # [BLOCK_K, BLOCK_N]
        x = (minimum[:, None] + scale[:, None] * codes).to(tl.bfloat16)
        dy = tl.load(dy_ptr + k[:, None] * COUT + offs_m[None, :])  # [BLOCK_K, BLOCK_M]
        acc = tl.dot(tl.trans(dy), x, acc)  # [BLOCK_M, BLOCK_N]
    tl.store(parts_ptr + (split * COUT + offs_m[:, None]) * CIN + offs_n[None, :], acc)


square = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32}
first = Rung("1 first", row_words_kernel, **square, splits=8, num_warps=4)
tile = {"BLOCK_M": 256, "BLOCK_N": 128, "num_warps": 8}
bigger = Rung("2 bigger tiles", row_words_kernel, **tile, BLOCK_K=64, splits=8)


@triton.jit
def along_k_kernel(
    words_ptr, params_ptr, dy_ptr, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M], of COUT
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N], of CIN
    r = tl.arange(0, 16)  # row of words
    tl.static_assert(BLOCK_K == 128)  # one block of words per iteration
    split, blocks = tl.program_id(2), K // 128
    splits = tl.num_programs(2)
    first, last = split * blocks // splits, (split + 1) * blocks // splits
    # of the tile's group
    params_ptr += tl.program_id(1) * BLOCK_N // GROUP * blocks * 256
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)  # transposed
    for block in range(first, last):
        place = words_ptr + (block * 16 + r[None, :]) * CIN + offs_n[:, None]
        words = tl.load(place)  # [BLOCK_N, 16]
        for j in tl.static_range(8):
            k = 16 * j + r  # [16], row of the block
            scale = tl.load(params_ptr + block * 256 + k).to(tl.float32)  # [16]
            minimum = tl.load(params_ptr + block * 256 + 128 + k).to(tl.float32)  # [16]
            codes = (words >> 2 * j) & 3  # [BLOCK_N, 16]
            # [BLOCK_N, 16]
            x = (minimum[None, :] + scale[None, :] * codes).to(tl.bfloat16)
            place = dy_ptr + (block * 128 + k[:, None]) * COUT + offs_m[None, :]
            dy = tl.load(place)  # [16, BLOCK_M]
            acc = tl.dot(x, dy, acc)  # [BLOCK_N, BLOCK_M]
    tl.store(parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None], acc)


along_k = Rung("3 packed along K", along_k_kernel, **tile, BLOCK_K=128, splits=8)


@triton.jit
def subnormal_kernel(
    words_ptr, params_ptr, dy_ptr, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M], of COUT
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N], of CIN
    r = tl.arange(0, 16)  # row of words
    tl.static_assert(BLOCK_K == 128)  # one block of words per iteration
    split, blocks = tl.program_id(2), K // 128
    splits = tl.num_programs(2)
    first, last = split * blocks // splits, (split + 1) * blocks // splits
    # of the tile's group
    params_ptr += tl.program_id(1) * BLOCK_N // GROUP * blocks * 256
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)  # transposed
    for block in range(first, last):
        place = words_ptr + (block * 16 + r[None, :]) * CIN + offs_n[:, None]
        words = tl.load(place)  # [BLOCK_N, 16]
        for j in tl.static_range(8):
            k = 16 * j + r  # [16], row of the block
            place = params_ptr + block * 256 + k
            scale = tl.load(place) * 2.0 ** (101 - 2 * (j % 4))  # [16]
            minimum = tl.load(params_ptr + block * 256 + 128 + k).to(tl.float32)  # [16]
            minimum = (minimum * 2.0**-32).to(tl.bfloat16)
            bits = (words >> 8 * (j // 4)) & (3 << 2 * (j % 4))  # [BLOCK_N, 16]
            code = bits.to(tl.bfloat16, bitcast=True)  # code · 2^(2 (j % 4) - 133)
            x = tl.fma(code, scale[None, :], minimum[None, :])  # x̂ times 2^-32
            place = dy_ptr + (block * 128 + k[:, None]) * COUT + offs_m[None, :]
            dy = tl.load(place)  # [16, BLOCK_M]
            acc = tl.dot(x, dy, acc)  # [BLOCK_N, BLOCK_M]
    out_ptr = parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None]
    tl.store(out_ptr, acc * 2.0**32)


subnormal = Rung("4 subnormals", subnormal_kernel, **tile, BLOCK_K=128, splits=8)


@triton.jit
def bfloat16_pairs(pair):
    """Return the bfloat16 numbers that int32 numbers consist of, twice as many."""
    both = tl.join(pair.to(tl.int16), (pair >> 16).to(tl.int16))  # low, high halves
    return tl.reshape(both, (2 * pair.shape[0],)).to(tl.bfloat16, bitcast=True)


@triton.jit
def powers(field):
    """Return 2^(101 - 2 field) as bfloat16."""
    return ((228 - 2 * field) << 7).to(tl.bfloat16, bitcast=True)


@triton.jit
def four_masks(numbers_ptr):
    """Return the masks of fields 0 to 3, [1, 4, 1]."""
    mask = 3 << 2 * tl.load(numbers_ptr + tl.arange(0, 4))[None, :, None]
    return mask


@triton.jit
def four_fields(words, mask):
    """Return the bits of fields 0 to 3 in order, [N, 64]; words are [N, 16]."""
    bits = tl.reshape(words[:, None, :] & mask, (words.shape[0], 64))
    return bits


@triton.jit
def one_dot_kernel(
    words_ptr, params_ptr, numbers_ptr, dy_ptr, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)  # [BLOCK_M], of COUT
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)  # [BLOCK_N], of CIN
    tl.static_assert(BLOCK_K == 64)  # half a block: four fields of its words
    r, k = tl.arange(0, 16), tl.arange(0, 64)  # row of words, row of the iteration
    unit = powers(tl.load(numbers_ptr + k // 16))  # [BLOCK_K]
    mask = four_masks(numbers_ptr)  # [1, 4, 1]
    split, steps = tl.program_id(2), K // BLOCK_K
    splits = tl.num_programs(2)
    first, last = split * steps // splits, (split + 1) * steps // splits
    tl.assume(first < last)
    # of the tile's group
    params_ptr += tl.program_id(1) * BLOCK_N // GROUP * (K // 128) * 256
    pairs_ptr = params_ptr.to(tl.pointer_type(tl.int32))  # two parameters at a time
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)  # transposed
    for step in range(first, last):
        block, half = step // 2, step % 2
        place = words_ptr + (block * 16 + r[None, :]) * CIN + offs_n[:, None]
        words = tl.load(place)  # [BLOCK_N, 16]
        words = words >> 8 * tl.load(numbers_ptr + half + tl.zeros((1, 1), tl.int32))
        bits = four_fields(words, mask)  # [BLOCK_N, BLOCK_K]
        code = bits.to(tl.bfloat16, bitcast=True)  # the code times 2^(2 i - 133)
        pair = pairs_ptr + block * 128 + half * 32 + tl.arange(0, 32)
        scale = bfloat16_pairs(tl.load(pair)) * unit  # [BLOCK_K]
        minimum = bfloat16_pairs(tl.load(pair + 64)).to(tl.float32) * 2.0**-32
        # x̂ times 2^-32
        x = tl.fma(code, scale[None, :], minimum.to(tl.bfloat16)[None, :])
        place = dy_ptr + (step * BLOCK_K + k)[:, None] * COUT + offs_m[None, :]
        dy = tl.load(place)  # [BLOCK_K, BLOCK_M]
        acc = tl.dot(x, dy, acc)  # [BLOCK_N, BLOCK_M]
    out_ptr = parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None]
    tl.store(out_ptr, acc * 2.0**32)


one_dot = Rung("5 one dot per iteration", one_dot_kernel, **tile, BLOCK_K=64, splits=8)


@triton.jit
def descriptor_kernel(
    words_ptr, params_ptr, numbers_ptr, dy_ptr, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    tl.static_assert(BLOCK_K == 64)  # half a block: four fields of its words
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N  # of COUT, of CIN
    group = n // GROUP * (K // 128) * 4  # of the tile: four rows of 64 per block
    R = K // 8  # rows of words
    words_in = tl.make_tensor_descriptor(words_ptr, [R, CIN], [CIN, 1], [16, BLOCK_N])
    P = CIN // GROUP * K // 32  # rows of parameters
    params_in = tl.make_tensor_descriptor(params_ptr, [P, 64], [64, 1], [1, 64])
    dy_in = tl.make_tensor_descriptor(dy_ptr, [K, COUT], [COUT, 1], [BLOCK_K, BLOCK_M])
    field = tl.load(numbers_ptr + tl.arange(0, BLOCK_K) // 16)[None, :]  # [1, BLOCK_K]
    unit, mask = powers(field), four_masks(numbers_ptr)
    split, steps = tl.program_id(2), K // BLOCK_K
    splits = tl.num_programs(2)
    first, last = split * steps // splits, (split + 1) * steps // splits
    tl.assume(first < last)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)  # transposed
    for step in range(first, last):
        block, half = step // 2, step % 2
        words = tl.trans(words_in.load([block * 16, n]))  # [BLOCK_N, 16]
        words = words >> 8 * tl.load(numbers_ptr + half + tl.zeros((1, 1), tl.int32))
        bits = four_fields(words, mask)  # [BLOCK_N, BLOCK_K]
        code = bits.to(tl.bfloat16, bitcast=True)  # the code times 2^(2 field - 133)
        scale = params_in.load([group + 4 * block + half, 0]) * unit  # [1, BLOCK_K]
        minimum = params_in.load([group + 4 * block + 2 + half, 0])
        minimum = minimum.to(tl.float32) * 2.0**-32
        x = tl.fma(code, scale, minimum.to(tl.bfloat16))  # x̂ times 2^-32
        acc = tl.dot(x, dy_in.load([step * BLOCK_K, m]), acc)  # [BLOCK_N, BLOCK_M]
    offs_m, offs_n = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
    out_ptr = parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None]
    tl.store(out_ptr, acc * 2.0**32)


launch = {**tile, "BLOCK_K": 64, "num_stages": 4}  # one more fits
by_tma = Rung("6 copies by TMA", descriptor_kernel, **launch, splits=8)
parts = 7
filled = Rung("7 filled multiprocessors", descriptor_kernel, **launch, splits=parts)


@triton.jit
def unpacked(words, params, mask, unit):
    """Return x̂ of a block, times 2^-32, [BLOCK_N, 128]; words are [16, BLOCK_N]."""
    COLUMNS: tl.constexpr = words.shape[1]
    low, high = tl.split(tl.reshape(tl.trans(words), (COLUMNS, 8, 2)))  # even, odd rows
    pair = (high.to(tl.int32) << 16) | (low.to(tl.int32) & 0xFFFF)  # [BLOCK_N, 8]
    both = tl.permute(tl.join(pair, pair >> 8), (0, 2, 1))  # [BLOCK_N, 2, 8]
    bits = both[:, :, None, :] & mask  # [BLOCK_N, 2, 4, 8]
    # [BLOCK_N, 2, 4, 8, 2]
    bits = tl.join(bits.to(tl.int16), (bits >> 16).to(tl.int16))
    # [BLOCK_N, 128], the code times 2^(2 field - 133)
    code = tl.reshape(bits, (COLUMNS, 128)).to(tl.bfloat16, bitcast=True)
    scale, minimum = tl.split(tl.trans(tl.reshape(params, (2, 128))))  # [128] each
    minimum = (minimum[None, :].to(tl.float32) * 2.0**-32).to(tl.bfloat16)
    return tl.fma(code, scale[None, :] * unit, minimum)


@triton.jit
def tile_sums(
    words_desc, params_desc, numbers_ptr, dy_desc, K, m, n,
    GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """Return a part's sums for a tile of dW, transposed, times 2^-32."""
    tl.static_assert(BLOCK_K == 128)  # one block of words per iteration
    group = n // GROUP * (K // 128)  # of the tile: one row of 256 per block
    four = tl.load(numbers_ptr + tl.arange(0, 4)).to(tl.int32)
    mask = 0x30003 << 2 * four[None, None, :, None]
    place = numbers_ptr + tl.arange(0, BLOCK_K) // 16 % 4
    unit = powers(tl.load(place)[None, :])  # [1, BLOCK_K]
    split, blocks = tl.program_id(2), K // BLOCK_K
    splits = tl.num_programs(2)
    first, last = split * blocks // splits, (split + 1) * blocks // splits
    tl.assume(first < last)
    acc = tl.zeros((BLOCK_N, BLOCK_M), tl.float32)
    for block in range(first, last):
        words = words_desc.load([block * 16, n])
        params = params_desc.load([group + block, 0])
        x = unpacked(words, params, mask, unit)
        acc = tl.dot(x, dy_desc.load([block * BLOCK_K, m]), acc)
    return acc


@triton.jit
def whole_block_kernel(
    words_desc, params_desc, numbers_ptr, dy_desc, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    split = tl.program_id(2)
    tensors = words_desc, params_desc, numbers_ptr, dy_desc
    acc = tile_sums(*tensors, K, m, n, GROUP, BLOCK_M, BLOCK_N, BLOCK_K)
    offs_m, offs_n = m + tl.arange(0, BLOCK_M), n + tl.arange(0, BLOCK_N)
    out_ptr = parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None]
    tl.store(out_ptr, acc * 2.0**32)


tiles = {"words": (16, 128), "params": (1, 256), "dy": (128, 256)}
blocks = {**tile, "BLOCK_K": 128, "num_stages": 3, "descriptors": tiles}  # no more fit
whole = Rung("8 a whole block", whole_block_kernel, **blocks, splits=7)


@triton.jit
def halves(tile):
    """Return a tile's left and right half."""
    both = tl.reshape(tile, (tile.shape[0], 2, tile.shape[1] // 2))
    return tl.split(tl.permute(both, (0, 2, 1)))


@triton.jit
def in_pieces_kernel(
    words_desc, params_desc, numbers_ptr, dy_desc, parts_ptr, K,
    COUT: tl.constexpr, CIN: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    m, n = tl.program_id(0) * BLOCK_M, tl.program_id(1) * BLOCK_N
    split = tl.program_id(2)
    tensors = words_desc, params_desc, numbers_ptr, dy_desc
    acc = tile_sums(*tensors, K, m, n, GROUP, BLOCK_M, BLOCK_N, BLOCK_K)
    PIECE: tl.constexpr = BLOCK_M // 8
    offs_m, offs_n = m + tl.arange(0, PIECE), n + tl.arange(0, BLOCK_N)
    # [BLOCK_N, PIECE]
    out = parts_ptr + (split * COUT + offs_m[None, :]) * CIN + offs_n[:, None]
    for i in tl.static_range(8):
        piece = halves(halves(halves(acc)[i // 4])[i // 2 % 2])[i % 2]
        tl.store(out + i * PIECE * CIN, piece * 2.0**32)


in_pieces = Rung("9 stored in pieces", in_pieces_kernel, **blocks, splits=7)
