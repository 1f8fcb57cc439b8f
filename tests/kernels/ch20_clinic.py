"""Wrong kernels for chapter 20: mends that look right; each patient itself is among its mistakes."""

from puzzles_lib.chapters.ch20_clinic.puzzles import PUZZLES
from tests.kernels import Wrong, edited

KEPT_SCORES, ROW_MINIMUM, TUNED_ROWS = (
    next(p for p in PUZZLES if p.name == name) for name in ("kept_scores", "row_minimum", "tuned_rows")
)

starts_at_zero = edited(
    KEPT_SCORES,
    "starts_at_zero",
    "No -inf any more, and no score far below 0 either.",
    {'top, total = float("-inf"), 0.0': "top, total = 0.0, 0.0"},
)

nearly_infinite = edited(
    ROW_MINIMUM,
    "nearly_infinite",
    "1e9 is no infinity.",
    {'other=float("inf")': "other=1e9"},
)

only_the_large_block = edited(
    TUNED_ROWS,
    "only_the_large_block",
    "Leaves out the configuration that fails, and with it nothing but short rows are right.",
    {
        ', triton.Config({"BLOCK_N": 32})': "",
        "    for first in range(0, N, BLOCK_N):\n        n = first + tl": "    n = tl",
        "\n        x": "\n    x",
        "\n        tl.store": "\n    tl.store",
    },
)

WRONG = [
    Wrong(KEPT_SCORES, starts_at_zero, "values", "got -inf"),
    Wrong(ROW_MINIMUM, nearly_infinite, "values", "z["),
    Wrong(TUNED_ROWS, only_the_large_block, "never written", "z[0, 256]"),
]
