"""The kernels of chapter 15 with a hole to fill: `race` records them, and `progress` counts them."""

RUNGS = {
    "along_k_kernel": ("3", "ch15-rung3"),
    "subnormal_kernel": ("4", "ch15-rung4"),
    "one_dot_kernel": ("5", "ch15-rung5"),
    "descriptor_kernel": ("6", "ch15-rung6"),
    "whole_block_kernel": ("8", "ch15-rung8"),
    "in_pieces_kernel": ("9", "ch15-rung9"),
}
"""By a kernel's name: the number of its rung, and the rung's name in the progress file."""
