"""Mends of chapter 20's patients: those that only look right, and right ones. Patients are its mistakes."""

from puzzles_lib.chapters.ch20_clinic.puzzles import PUZZLES
from tests.kernels import Wrong, edited

(
    ANY_ABOVE,
    ATTENDED,
    CELLS,
    DISCOUNTED_SUM,
    FAR_ROWS,
    KEPT_SCORES,
    RANDOM_ROUNDING,
    RUNNING_SUMS,
    TUNED_ROWS,
) = (
    next(p for p in PUZZLES if p.name == name)
    for name in (
        "any_above",
        "attended",
        "cells",
        "discounted_sum",
        "far_rows",
        "kept_scores",
        "random_rounding",
        "running_sums",
        "tuned_rows",
    )
)

values_not_rescaled = edited(
    ATTENDED,
    "values_not_rescaled",
    "The weights' sum is rescaled, the values' sum is not.",
    {"acc * scale": "acc"},
)

weights_not_rescaled = edited(
    ATTENDED,
    "weights_not_rescaled",
    "The values' sum is rescaled, the weights' sum is not.",
    {"total * scale": "total"},
)

upside_down = edited(
    ATTENDED,
    "upside_down",
    "Rescales by exp(new - old), as some papers print it.",
    {"tl.exp(top - best)": "tl.exp(best - top)"},
)

never_moved = edited(
    ATTENDED,
    "never_moved",
    "Takes the first block's maximum for all.",
    {"best - top > 8": 'top == float("-inf")'},
)

moved_on_all_the_same = edited(
    ATTENDED,
    "moved_on_all_the_same",
    "Saves the rescale, and moves the maximum.",
    {"acc += tl.sum(p * v)": "acc += tl.sum(p * v)\n        top = best"},
)

rounded_threshold = edited(
    ATTENDED,
    "rounded_threshold",
    "Adds 8 to a maximum, which may round up to the new one.",
    {"best - top > 8": "best > top + 8"},
)

always_moved = edited(
    ATTENDED,
    "always_moved",
    "Saves nothing.",
    {"best - top > 8:  # don't move it by a little": "best > top:"},
)

taken_back = edited(
    ATTENDED,
    "taken_back",
    "Around the block's maximum first, then taken to the sums' one, as the thread's mend does.",
    {"tl.exp(x - top)": "tl.exp(x - best) * tl.exp(best - top)"},
)

squared = edited(
    DISCOUNTED_SUM,
    "squared",
    "Two stretches of one length have one factor; of two lengths they have not.",
    {"factor_a * factor_b,": "factor_b * factor_b,"},
)

starts_at_zero = edited(
    KEPT_SCORES,
    "starts_at_zero",
    "No -inf any more, and no score far below 0 either.",
    {'top, total = float("-inf"), 0.0': "top, total = 0.0, 0.0"},
)

starts_too_high = edited(
    KEPT_SCORES,
    "starts_too_high",
    "-1e4 is low, but some scores are lower.",
    {'top, total = float("-inf"), 0.0': "top, total = -1e4, 0.0"},
)

one_draw_further = edited(
    RANDOM_ROUNDING,
    "one_draw_further",
    "Adds the program's number to the lanes, not its offset.",
    {"tl.rand(SEED, n)": "tl.rand(SEED, lanes + tl.program_id(0))"},
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

the_other_end = edited(
    RUNNING_SUMS,
    "the_other_end",
    "One end of the mask for the other.",
    {"mask=mine, other=0.0)": "mask=t >= start, other=0.0)"},
)

from_its_beginning = edited(
    RUNNING_SUMS,
    "from_its_beginning",
    "Blocks begin where the sequence does.",
    {"start // BLOCK * BLOCK, end": "start, end", "mask=mine, other=0.0)": "mask=t < end, other=0.0)"},
)

in_its_product = edited(
    FAR_ROWS,
    "in_its_product",
    "Widened where the report finds it.",
    {"tl.program_id(0).to(tl.int64)": "tl.program_id(0)", "b * T * K": "b.to(tl.int64) * T * K"},
)

passes_over_a_block = edited(
    KEPT_SCORES,
    "passes_over_a_block",
    "Leaves out a block in which nothing is kept, and those before it.",
    {
        '        base = tl.where(new == float("-inf"), 0.0, new)\n        total': (
            '        base = new\n        if new > float("-inf"):\n            total'
        ),
        "        top = new": "            top = new",
    },
)

nan_is_nothing = edited(
    KEPT_SCORES,
    "nan_is_nothing",
    "Takes each NaN for an empty sum.",
    {
        "        top = new": "        total = tl.where(total == total, total, 0.0)\n        top = new",
        '        base = tl.where(new == float("-inf"), 0.0, new)\n': "        base = new\n",
    },
)

from_the_far_end = edited(
    CELLS,
    "from_the_far_end",
    "Rounds down as one does in C.",
    {
        "x // SIZE - (x % SIZE < 0)": "tl.where(x < 0, (x - SIZE + 1) // SIZE, x // SIZE)",
    },
)

longer_blocks_too = edited(
    TUNED_ROWS, "longer_blocks_too", "Any blocks do.", {'{"BLOCK_N": 256}': '{"BLOCK_N": 1024}'}
)

above_the_limit_by_a_hair = edited(
    ANY_ABOVE,
    "above_the_limit_by_a_hair",
    "Takes the next float above 1 for 1.",
    {"x > 1)": "x > 1.0000001)"},
)

WRONG = [
    Wrong(ANY_ABOVE, above_the_limit_by_a_hair, "values", "x:last_above"),
    Wrong(ATTENDED, values_not_rescaled, "values", "x:late_maximum   (case=3)"),
    Wrong(ATTENDED, weights_not_rescaled, "values", "x:late_maximum   (case=3)"),
    Wrong(ATTENDED, upside_down, "values", "NaN"),
    Wrong(ATTENDED, never_moved, "values", "wrong values in base: 3 of 3"),
    Wrong(ATTENDED, always_moved, "values", "moves with each larger block"),
    Wrong(ATTENDED, rounded_threshold, "values", "so large that adding 8 rounds"),
    Wrong(ATTENDED, moved_on_all_the_same, "values", "base[0]"),
    Wrong(CELLS, from_the_far_end, "values", "wraps around: correct the quotient, not x"),
    Wrong(DISCOUNTED_SUM, squared, "values", "not associative"),
    Wrong(RUNNING_SUMS, the_other_end, "out of bounds", "x_ptr"),
    Wrong(KEPT_SCORES, starts_at_zero, "values", "the number subtracted from them is too large"),
    Wrong(KEPT_SCORES, starts_too_high, "values", "the number subtracted from them is too large"),
    Wrong(KEPT_SCORES, nan_is_nothing, "values", "so is the result: your kernel hides it"),
    Wrong(RANDOM_ROUNDING, one_draw_further, "values", "block b draws at lanes + b"),
    Wrong(TUNED_ROWS, only_the_large_block, "never written", "z[0, 256]"),
]

RIGHT = [
    (ATTENDED, taken_back),
    (RUNNING_SUMS, from_its_beginning),
    (FAR_ROWS, in_its_product),
    (KEPT_SCORES, passes_over_a_block),
    (TUNED_ROWS, longer_blocks_too),
]
