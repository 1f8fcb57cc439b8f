"""Wrong kernels of chapter 03: correct ones with one slip each. The tests have more, written out."""

from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU, MUL_RELU_BACKWARD
from puzzles_lib.mistakes import Mistake

MISTAKES = (
    Mistake(
        MUL_RELU,
        "if_in_place_of_maximum",
        "An if looks at a whole block of products.",
        {"    z = tl.maximum(product, 0.0)\n": "    z = product\n    if z < 0:\n        z = z * 0.0\n"},
        kind="compiler",
        says="lane by lane",
    ),
    Mistake(
        MUL_RELU_BACKWARD,
        "gate_open_at_zero",
        "The gate is open where x * y is 0, because of >= instead of >. The checker mixes a few exact zeros "
        "into its random numbers, so cases 0 to 2 fail, too. Among the tiny and huge numbers there are none.",
        {"x * y > 0": "x * y >= 0"},
        kind="values",
        says="dx",
        asks="Will only the case with x:zeros fail, or others, too?",
    ),
)
