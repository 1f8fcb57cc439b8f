"""Pictures for the notebooks: matplotlib figures with alt text, readable in a light or dark theme.

Two layers. Primitives for hand-made pictures: `new_figure`, `new_sheet`, `cells`, `arrow`. Pictures made from
what a kernel did: `access_map`, `error_map`. All return or fill figures that pyplot knows nothing
about, so nothing piles up in a long session.
"""

from puzzles_lib.drawing.accesses import (
    BAD,
    PROGRAM_COLORS,
    TensorMap,
    access_map,
    program_name,
)
from puzzles_lib.drawing.errors import error_map
from puzzles_lib.drawing.layout import plural
from puzzles_lib.drawing.sheet import (
    FAINT,
    INK,
    LINE,
    PALE,
    PALETTE,
    UNIT,
    Cells,
    Picture,
    arrow,
    cells,
    new_figure,
    new_sheet,
    text_color,
)

__all__ = [
    "BAD",
    "FAINT",
    "INK",
    "LINE",
    "PALE",
    "PALETTE",
    "PROGRAM_COLORS",
    "UNIT",
    "Cells",
    "Picture",
    "TensorMap",
    "access_map",
    "arrow",
    "cells",
    "error_map",
    "new_figure",
    "new_sheet",
    "plural",
    "program_name",
    "text_color",
]
