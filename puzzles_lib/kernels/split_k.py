"""What matmuls that split K among programs have in common."""

import torch
import triton
import triton.language as tl


def multiprocessors(device: torch.device) -> int:
    """How many multiprocessors a GPU has."""
    return torch.cuda.get_device_properties(device).multi_processor_count


def add_splits(sums: torch.Tensor, out: torch.Tensor) -> None:
    """Fill out with the sum of float32 ``sums`` [splits, ...], in their order: always the same bits."""
    size = out.numel()
    grid = (triton.cdiv(size, 512),)
    _add_splits_kernel[grid](sums, out, size, SPLITS=sums.shape[0], BLOCK=512, num_warps=4)


@triton.jit
def _add_splits_kernel(sums_ptr, out_ptr, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)  # [BLOCK]
    total = tl.zeros([BLOCK], tl.float32)
    for split in tl.static_range(SPLITS):  # unrolled: all loads are asked for at once
        total += tl.load(sums_ptr + split * tl.cast(size, tl.int64) + offs, mask=offs < size, other=0.0)
    tl.store(out_ptr + offs, total, mask=offs < size)
