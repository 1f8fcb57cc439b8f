"""The first draft of the paged copy, which the notebook hands out without a launch.

It forgets that the last page may be partly filled: `library.paged_copy_kernel` has the mask that is missing.
"""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def copy_kernel(
    out_ptr, pages_ptr, table_ptr, T, D, PAGE: tl.constexpr, BLOCK_D: tl.constexpr
):  # fmt: skip
    page = tl.program_id(0).to(tl.int64)
    t = page * PAGE + tl.arange(0, PAGE)  # [PAGE], tokens of the sequence
    d = tl.program_id(1) * BLOCK_D + tl.arange(0, BLOCK_D)  # [BLOCK_D]
    mask = d[None, :] < D
    first = tl.load(table_ptr + page).to(tl.int64) * PAGE
    rows = first + tl.arange(0, PAGE)  # [PAGE], where the tokens are in the cache
    x = tl.load(pages_ptr + rows[:, None] * D + d[None, :], mask=mask)
    tl.store(out_ptr + t[:, None] * D + d[None, :], x, mask=mask)


def copied(pages: Tensor, table: Tensor, T: int) -> Tensor:
    """Return the T tokens of a sequence, as `library.paged_copy` does, if T fills all of its pages."""
    _, page, D = pages.shape
    out = pages.new_empty(T, D)
    grid = (triton.cdiv(T, page), triton.cdiv(D, 32))
    copy_kernel[grid](out, pages, table, T, D, PAGE=page, BLOCK_D=32)
    return out
