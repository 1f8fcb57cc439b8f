"""Codes of 1, 2, 4 or 8 bits, packed down the columns into 16-bit words.

A matrix of codes [K, C] is divided into blocks of ``16 · (16 / bits)`` rows. A block has 16 words per column.
Word ``[r, c]`` has column ``c`` of the rows ``r, r + 16, r + 32, ...``: its bits ``j·bits`` and up are row
``16·j + r``.

    bits   rows per block   fields per word
    1      256              16
    2      128              8
    4      64               4
    8      32               2

A matrix multiplication that walks along K can load a word and then has several k of one column, without
passing a value between threads. Rows past K are zero fields.
"""

import math

import torch
import triton
import triton.language as tl

BITS = (1, 2, 4, 8)
WORD_BITS = 16
WORD_ROWS = 16  # rows of words in a block


def block_rows(bits: int) -> int:
    """Return how many rows of codes are in a block of words."""
    return WORD_ROWS * (WORD_BITS // bits)


def check_bits(bits: int, name: str = "bits") -> None:
    if type(bits) is not int or bits not in BITS:
        raise ValueError(f"{name} must be 1, 2, 4 or 8, but is {bits!r}")


def pack_bits(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes [..., C] (uint8, each below 2^bits) into words [blocks, 16, C] (int16).

    All axes except the last are flattened to K rows. The codes can have any size, including 0, and need not
    be contiguous. The top of `puzzles_lib.kernels.bitpack` shows where each code goes.

    bits: 1, 2, 4 or 8. Only the lowest ``bits`` bits of a code are used.

    Raises ValueError for any other ``bits`` and for a scalar, and TypeError for a dtype other than uint8.
    """
    check_bits(bits)
    if not isinstance(codes, torch.Tensor) or codes.dtype != torch.uint8:
        raise TypeError(f"codes must be torch.uint8, but is {getattr(codes, 'dtype', type(codes).__name__)}")
    if codes.dim() == 0:
        raise ValueError("codes must have at least one axis, but is a scalar")
    return _pack_bits(codes, bits)


def unpack_bits(words: torch.Tensor, bits: int, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the codes, uint8 of ``shape``, from which `pack_bits` made the words.

    words: int16 [blocks, 16, C]. bits: 1, 2, 4 or 8, as in `pack_bits`. shape: the shape of the codes.

    Raises ValueError if the words do not fit ``bits`` and ``shape``, and TypeError for a dtype other than
    int16.
    """
    check_bits(bits)
    if not isinstance(words, torch.Tensor) or words.dtype != torch.int16:
        raise TypeError(f"words must be torch.int16, but is {getattr(words, 'dtype', type(words).__name__)}")
    rows, columns = matrix_shape(shape)
    expected = (triton.cdiv(rows, block_rows(bits)), WORD_ROWS, columns)
    if tuple(words.shape) != expected:
        text = (
            f"words must have shape {expected} for shape {tuple(shape)}, but has shape {tuple(words.shape)}"
        )
        raise ValueError(text)
    return _unpack_bits(words, bits, list(shape))


def matrix_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Return a shape as (K, C): the last axis is C, and all others are flattened to K.

    Raises TypeError if it is not a tuple or a list, and ValueError if it is empty.
    """
    if not isinstance(shape, (tuple, list)):
        raise TypeError(f"shape must be a tuple of integers, but is {shape!r}")
    if len(shape) == 0:
        raise ValueError("shape must be a shape with at least one axis, but is ()")
    *leading, columns = shape
    return math.prod(leading), columns


# ---- torch, the reference


def pack_rows_ref(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Pack codes [K, C] into words [blocks, 16, C]."""
    rows, columns = codes.shape
    fields = WORD_BITS // bits
    blocks = triton.cdiv(rows, block_rows(bits))
    padded = codes.new_zeros(blocks * block_rows(bits), columns)
    padded[:rows] = codes & (2**bits - 1)
    shifts = bits * torch.arange(fields, device=codes.device, dtype=torch.int32)
    by_field = padded.view(blocks, fields, WORD_ROWS, columns).int()  # [blocks, j, r, C]
    words = (by_field << shifts[None, :, None, None]).sum(1, dtype=torch.int32)
    return words.to(torch.int16)  # keeps the low 16 bits, the top field reaches the sign


def unpack_rows_ref(words: torch.Tensor, bits: int, rows: int) -> torch.Tensor:
    """Unpack words [blocks, 16, C] into codes [K, C]."""
    blocks, _, columns = words.shape
    shifts = bits * torch.arange(WORD_BITS // bits, device=words.device, dtype=torch.int32)
    fields = (words.int()[:, None] >> shifts[None, :, None, None]) & (2**bits - 1)  # [blocks, j, r, C]
    return fields.reshape(blocks * block_rows(bits), columns)[:rows].to(torch.uint8)


# ---- Triton


@triton.jit
def _pack_bits_kernel(codes_ptr, words_ptr, K, C, BITS: tl.constexpr, BLOCK_C: tl.constexpr):
    """Words of one row ``r`` of a block: program (block·16 + r, columns)."""
    FIELDS: tl.constexpr = 16 // BITS
    word_row = tl.program_id(0)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)  # [BLOCK_C]
    offs_j = tl.arange(0, FIELDS)  # [FIELDS]
    rows = (word_row // 16) * (16 * FIELDS) + offs_j * 16 + word_row % 16  # [FIELDS]
    mask = (rows[:, None] < K) & (offs_c[None, :] < C)  # [FIELDS, BLOCK_C]
    where = rows[:, None].to(tl.int64) * C + offs_c[None, :]
    codes = tl.load(codes_ptr + where, mask=mask, other=0).to(tl.int32)
    words = tl.sum((codes & ((1 << BITS) - 1)) << (BITS * offs_j)[:, None], axis=0)  # [BLOCK_C]
    tl.store(words_ptr + word_row.to(tl.int64) * C + offs_c, words.to(tl.int16), mask=offs_c < C)


@triton.jit
def _unpack_bits_kernel(words_ptr, codes_ptr, K, C, BITS: tl.constexpr, BLOCK_C: tl.constexpr):
    """The rows whose fields share one row of words: program (block·16 + r, columns)."""
    FIELDS: tl.constexpr = 16 // BITS
    word_row = tl.program_id(0)
    offs_c = tl.program_id(1) * BLOCK_C + tl.arange(0, BLOCK_C)  # [BLOCK_C]
    offs_j = tl.arange(0, FIELDS)  # [FIELDS]
    words = tl.load(words_ptr + word_row.to(tl.int64) * C + offs_c, mask=offs_c < C, other=0).to(tl.int32)
    codes = (words[None, :] >> (BITS * offs_j)[:, None]) & ((1 << BITS) - 1)  # [FIELDS, BLOCK_C]
    rows = (word_row // 16) * (16 * FIELDS) + offs_j * 16 + word_row % 16  # [FIELDS]
    mask = (rows[:, None] < K) & (offs_c[None, :] < C)
    tl.store(codes_ptr + rows[:, None].to(tl.int64) * C + offs_c[None, :], codes.to(tl.uint8), mask=mask)


# ---- the operators that torch knows


@torch.library.custom_op("bit_by_bit::pack_bits", mutates_args=())
def _pack_bits(codes: torch.Tensor, bits: int) -> torch.Tensor:
    rows, columns = matrix_shape(codes.shape)
    matrix = codes.reshape(rows, columns).contiguous()
    if not codes.is_cuda:
        return pack_rows_ref(matrix, bits)
    words = _empty_words(codes, bits)
    if words.numel():
        grid = (words.shape[0] * WORD_ROWS, triton.cdiv(columns, 256))
        with torch.cuda.device(codes.device):
            _pack_bits_kernel[grid](matrix, words, rows, columns, BITS=bits, BLOCK_C=256, num_warps=1)
    return words


@_pack_bits.register_fake
def _(codes: torch.Tensor, bits: int) -> torch.Tensor:
    return _empty_words(codes, bits)


def _empty_words(codes: torch.Tensor, bits: int) -> torch.Tensor:
    rows, columns = matrix_shape(codes.shape)
    return codes.new_empty(triton.cdiv(rows, block_rows(bits)), WORD_ROWS, columns, dtype=torch.int16)


@torch.library.custom_op("bit_by_bit::unpack_bits", mutates_args=())
def _unpack_bits(words: torch.Tensor, bits: int, shape: list[int]) -> torch.Tensor:
    rows, columns = matrix_shape(shape)
    words = words.contiguous()
    if not words.is_cuda:
        return unpack_rows_ref(words, bits, rows).view(shape)
    codes = words.new_empty(shape, dtype=torch.uint8)
    if codes.numel():
        grid = (words.shape[0] * WORD_ROWS, triton.cdiv(columns, 256))
        with torch.cuda.device(words.device):
            _unpack_bits_kernel[grid](words, codes, rows, columns, BITS=bits, BLOCK_C=256, num_warps=1)
    return codes


@_unpack_bits.register_fake
def _(words: torch.Tensor, bits: int, shape: list[int]) -> torch.Tensor:
    return words.new_empty(shape, dtype=torch.uint8)
