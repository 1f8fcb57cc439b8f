"""The example on which chapter 20 shows how to read a symptom."""

import triton
import triton.language as tl


@triton.jit
def doubled_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """z[i] = 2 x[i], as it was reported."""
    lane = tl.arange(0, BLOCK)  # [BLOCK]
    offs = tl.program_id(0) * BLOCK + lane  # [BLOCK]
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + lane, 2 * x, mask=offs < N)
