"""The learner's own ``linear`` in a real model: is it ready, and which kernels does it launch?"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch14_int8_linear.puzzles import fused_linear
from puzzles_lib.checker import examine
from puzzles_lib.checker.run_launches import launched
from puzzles_lib.puzzle import Puzzle

Linear = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor | None]
FEW, MANY = 5, 40  # rows: for one launch, and for two
FARTHEST = 0.02  # a correct kernel's codes differ from the spec's in a few ties at most


def missing(linear: Linear, solved: Sequence[tuple[JITFunction, Puzzle]]) -> str:
    """Return what ``linear`` lacks, as a sentence; "" if it is ready for the model.

    solved: the kernels of puzzles 22, 23 and 23b with their puzzles, in this order.
    ``linear`` is called with 5 rows, for which it should run the last kernel, and with 40 rows, for which it
    should run the first two. An error that it raises is passed on.
    """
    for kernel, puzzle in solved:
        if not examine(kernel, puzzle).ok:
            return f"Puzzle {puzzle.number} first: `check` doesn't accept {kernel.__name__} as it is now."
    generator = torch.Generator().manual_seed(0)
    wq = torch.randint(-127, 128, (6, 40), dtype=torch.int8, generator=generator)
    w_scale, bias = torch.rand(6, generator=generator), torch.randn(6, generator=generator)
    rows, codes, fused = (kernel for kernel, _ in solved)
    for M, wanted in ((FEW, [fused]), (MANY, [rows, codes])):
        x = torch.randn(M, 40, generator=generator)
        with launched() as kernels:
            y = linear(x, wq, w_scale, bias)
        if y is None:
            return f"`linear` returns None for {M} rows. Write that branch, and run this cell again."
        want = fused_linear(x, wq, w_scale, bias)
        if not isinstance(y, Tensor) or y.shape != want.shape:
            found = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"a {type(y).__name__}"
            return (
                f"For {M} rows, `linear` returns {found}. It should be a tensor of shape {tuple(want.shape)}."
            )
        off = float((y - want).norm() / want.norm())
        if not off <= FARTHEST:
            return f"For {M} rows, `linear` is off by {off:.0%}. Which tensor has which name?"
        if kernels != wanted:
            return f"For {M} rows, `linear` runs {_named(kernels)}. It should `run` {_named(wanted)}."
    return ""


def _named(kernels: Sequence[JITFunction]) -> str:
    return ", then ".join(kernel.__name__ for kernel in kernels) or "none of your kernels"


__all__ = ["launched", "missing"]
