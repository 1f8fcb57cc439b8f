"""Pictures for the notebooks: matplotlib figures with alt text, readable in a light or dark theme.

Two layers. Primitives for hand-made pictures: `new_figure`, `new_sheet`, `cells`, `box`, `label`, `arrow`,
`legend`; the colours for them have their names in `puzzles_lib.drawing.colours`. Pictures made from what a
kernel did: `access_map`, `error_map`. All return or fill figures that pyplot knows nothing about, so nothing
piles up in a long session.
"""

from puzzles_lib.drawing.accesses import TensorMap, access_map, program_colors, program_name
from puzzles_lib.drawing.colours import text_color
from puzzles_lib.drawing.errors import error_map
from puzzles_lib.drawing.layout import plural
from puzzles_lib.drawing.sheet import (
    UNIT,
    Cells,
    Picture,
    arrow,
    box,
    cells,
    label,
    legend,
    new_figure,
    new_sheet,
)

__all__ = [
    "UNIT",
    "Cells",
    "Picture",
    "TensorMap",
    "access_map",
    "arrow",
    "box",
    "cells",
    "error_map",
    "label",
    "legend",
    "new_figure",
    "new_sheet",
    "plural",
    "program_colors",
    "program_name",
    "text_color",
]
