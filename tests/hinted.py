"""Kernels with hints to the compiler that are not true: some do harm on a GPU, some do none.

Each copies rows, ``z[r, i] = x[r, i]`` where i < N and 0 elsewhere; rows have STRIDE elements. A GPU runs
them with blocks of B elements, as tests/test_false_hints.py does here.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from triton.runtime.jit import JITFunction


@dataclass(frozen=True)
class Hinted:
    """blamed: the hint that does harm, and how (`promises.Harm.why`); "" where none does any.

    zeroed: z holds zeros at the start.
    """

    kernel: JITFunction
    blamed: str = ""
    why: str = ""
    N: int = 509
    STRIDE: int = 512
    zeroed: bool = False

    @property
    def name(self) -> str:
        return self.kernel.__name__

    def expected(self, x: torch.Tensor) -> torch.Tensor:
        z = torch.zeros_like(x)
        z[:, : self.N] = x[:, : self.N]
        return z


@triton.jit
def a_mask_of_fours(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    mask = tl.max_constancy(offs < N, 4)
    row = tl.program_id(0) * STRIDE
    x = tl.load(x_ptr + row + offs, mask=mask, other=0.0)
    tl.store(z_ptr + row + offs, x, mask=offs < STRIDE)


@triton.jit
def a_mask_of_fours_at_a_store(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    x = tl.load(x_ptr + row + offs)
    tl.store(z_ptr + row + offs, x, mask=tl.max_constancy(offs < N, 4))


@triton.jit
def a_mask_of_fours_at_an_atomic(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    x = tl.load(x_ptr + row + offs)
    tl.atomic_add(z_ptr + row + offs, x, mask=tl.max_constancy(offs < N, 4))


@triton.jit
def a_size_that_16_divides(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    size = tl.multiple_of(tl.minimum(N, STRIDE), 16)
    x = tl.load(x_ptr + row + offs, mask=offs < size, other=0.0)
    tl.store(z_ptr + row + offs, x, mask=offs < STRIDE)


@triton.jit
def neighbours_exchanged(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    swapped = offs // 4 * 4 + offs * 3 % 4  # 0, 3, 2, 1
    x = tl.load(x_ptr + row + tl.max_contiguous(tl.multiple_of(swapped, 4), 4))
    tl.store(z_ptr + row + (offs ^ (offs % 2 * 2)), x)  # the same places


@triton.jit
def _swapped(offs):
    return tl.max_contiguous(tl.multiple_of(offs // 4 * 4 + offs * 3 % 4, 4), 4)


@triton.jit
def promised_by_a_helper(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    x = tl.load(x_ptr + row + _swapped(offs))
    tl.store(z_ptr + row + offs // 4 * 4 + offs * 3 % 4, x)


@triton.jit
def in_a_loop(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    row = tl.program_id(0) * STRIDE
    for start in range(0, STRIDE, B):
        offs = start + tl.arange(0, B)
        mask = tl.max_constancy(offs < N, 4)
        x = tl.load(x_ptr + row + offs, mask=mask, other=0.0)
        tl.store(z_ptr + row + offs, x, mask=offs < STRIDE)


@triton.jit
def rows_that_begin_anywhere(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.multiple_of(tl.program_id(0) * STRIDE, 16)
    x = tl.load(x_ptr + row + offs)
    tl.store(z_ptr + row + offs, x)
    rest = row + B + tl.arange(0, 2)
    tl.store(z_ptr + rest, tl.load(x_ptr + rest))


@triton.jit
def pointers_that_begin_anywhere(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    x = tl.load(tl.multiple_of(x_ptr + row, 16) + offs)
    tl.store(z_ptr + row + offs, x)
    rest = row + B + tl.arange(0, 2)
    tl.store(z_ptr + rest, tl.load(x_ptr + rest))


@triton.jit
def of_a_value(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    x = tl.load(x_ptr + row + offs, mask=offs < N, other=0.0)
    x = tl.max_constancy(x, 4)
    tl.store(z_ptr + row + offs, x, mask=offs < STRIDE)


@triton.jit
def of_rows_that_wrap(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.max_contiguous(tl.multiple_of((tl.program_id(0) + tl.arange(0, 2)) % 2, 2), 2)
    at = row[:, None] * STRIDE + offs[None, :]
    x = tl.load(x_ptr + at, mask=(offs < N)[None, :], other=0.0)
    tl.store(z_ptr + at, x, mask=(offs < STRIDE)[None, :])


@triton.jit
def of_an_argument(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    x = tl.load(x_ptr + row + offs, mask=offs < tl.multiple_of(N, 16), other=0.0)  # the compiler keeps none
    tl.store(z_ptr + row + offs, x, mask=offs < STRIDE)


@triton.jit
def of_no_use(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.arange(0, B)
    row = tl.program_id(0) * STRIDE
    size = tl.multiple_of(tl.minimum(N, STRIDE), 2)
    x = tl.load(x_ptr + row + offs, mask=offs * 3 < size * 3 - 2, other=0.0)
    tl.store(z_ptr + row + offs, x, mask=offs < STRIDE)


@triton.jit
def true_ones(x_ptr, z_ptr, N, STRIDE, B: tl.constexpr):
    offs = tl.max_contiguous(tl.multiple_of(tl.arange(0, B), B), B)
    row = tl.multiple_of(tl.program_id(0) * STRIDE, 16)
    x = tl.load(x_ptr + row + offs, mask=offs < N, other=0.0)
    tl.store(z_ptr + row + offs, x, mask=tl.max_constancy(offs < STRIDE, 4))


HINTED = (
    Hinted(a_mask_of_fours, "max_constancy", "mask"),
    Hinted(a_mask_of_fours_at_a_store, "max_constancy", "mask", zeroed=True),
    Hinted(a_mask_of_fours_at_an_atomic, "max_constancy", "mask", zeroed=True),
    Hinted(a_size_that_16_divides, "multiple_of", "mask"),
    Hinted(neighbours_exchanged, "max_contiguous", "apart", N=512),
    Hinted(promised_by_a_helper, "max_contiguous", "apart", N=512),
    Hinted(in_a_loop, "max_constancy", "mask"),
    Hinted(rows_that_begin_anywhere, "multiple_of", "misaligned", N=514, STRIDE=514),
    Hinted(pointers_that_begin_anywhere, "multiple_of", "misaligned", N=514, STRIDE=514),
    Hinted(of_a_value),
    Hinted(of_rows_that_wrap),
    Hinted(of_an_argument),
    Hinted(of_no_use),
    Hinted(true_ones),
)
