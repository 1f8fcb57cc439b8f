"""Measure chapter 06's convolution: the puzzle's own kernel in several tiles, beside PyTorch's.

The kernel is launched without the checker, so that any Triton will do.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters.ch06_convolution.puzzles import CONV2D
from puzzles_lib.timing import interleaved, relative_error, row

IMAGES, SIDE = 64, 1024
TILES = {  # by the filter's sizes: the sides of a tile, of one image
    (5, 5): ((8, 8), (16, 16), (16, 64), (32, 32), (64, 16), (64, 64)),
    (3, 11): ((4, 256), (8, 128), (16, 64), (32, 32), (64, 16), (128, 8)),
}
TORCH = "torch.nn.functional.conv2d"
ROUNDS = 15

Call = Callable[[], torch.Tensor]


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench convolution needs a CUDA device")
    torch.manual_seed(0)
    x = torch.randn(IMAGES, SIDE, SIDE, device="cuda")
    for (KH, KW), tiles in TILES.items():
        w = torch.randn(KH, KW, device="cuda")
        calls = {TORCH: _torch(x, w)} | {f"tiles of {h} x {b}": _puzzle(x, w, h, b) for h, b in tiles}
        wanted = calls[TORCH]()
        errors = {path: relative_error(call(), wanted) for path, call in calls.items()}
        times = interleaved({path: [call] for path, call in calls.items()}, ROUNDS, captured=False)
        case = f"a filter of {KH} x {KW}, {IMAGES} images of {SIDE} x {SIDE}"
        for path in calls:
            yield row("convolution", case, path, times[path], TORCH, times[TORCH], errors[path])


def _torch(x: torch.Tensor, w: torch.Tensor) -> Call:
    """Return the same convolution by PyTorch, in float32: padded on all sides, and cut to what is wanted."""
    KH, KW = w.shape

    def call() -> torch.Tensor:
        with torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=False):
            z = torch.nn.functional.conv2d(x[:, None], w[None, None], padding=(KH - 1, KW - 1))
        return z[:, 0, KH - 1 :, KW - 1 :]

    return call


def _puzzle(x: torch.Tensor, w: torch.Tensor, BLOCK_H: int, BLOCK_W: int) -> Call:
    """Return a call of the course's solution of the puzzle."""
    kernel: Any = solutions()["conv2d"]
    numbers = dict(zip("NHW", x.shape, strict=True)) | dict(zip(("KH", "KW"), w.shape, strict=True))
    blocks = {"BLOCK_N": 1, "BLOCK_H": BLOCK_H, "BLOCK_W": BLOCK_W}
    grid = CONV2D.programs(CONV2D.cases[0].but(**numbers, **blocks))

    def call() -> torch.Tensor:
        z = torch.empty_like(x)
        kernel[grid](x, w, z, **numbers, **blocks)
        return z

    return call
