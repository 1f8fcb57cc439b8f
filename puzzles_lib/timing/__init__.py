"""Measure times on a GPU, and keep the times that the course quotes.

This module has the functions that time and describe a result. `h200` has the GPU's figures, and `recorded`
the records. `driver` launches machine code that was compiled elsewhere, and `sweep` times a kernel in many
configurations. The measurements themselves are in `puzzles_lib.bench`, which uses this package.
"""

from puzzles_lib.timing.replays import Sustained, interleaved, sustained
from puzzles_lib.timing.results import provenance, relative_error, row

__all__ = ["Sustained", "interleaved", "provenance", "relative_error", "row", "sustained"]
