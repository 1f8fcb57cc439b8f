from puzzles_lib.chapters.ch21_your_own_kernel.tasks import (
    ARGMAX_FIX,
    COPY_FIX,
    COPY_LAUNCH,
    LOSS_FIX,
    NORM_FIX,
    REFERENCE,
    REFUSALS,
)

TITLE = "Your own kernel"

__all__ = [
    "ARGMAX_FIX", "COPY_FIX", "COPY_LAUNCH", "LOSS_FIX", "NORM_FIX", "REFERENCE", "REFUSALS", "TITLE",
]  # fmt: skip
