"""Tests that end differently with another supported Triton than the pinned one, and why.

What differs is the compiler's doing: it refuses something, or compiles it in another way. Such a test must
then fail with certain words. If it passes, or fails with others, `make test-with` fails.
"""

import importlib.metadata
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Difference:
    """What other versions do, and which tests notice.

    versions: of Triton, such as "3.9". words: a pattern in what each of the tests then fails with.
    tests: their ids, below ``tests/``.
    """

    why: str
    versions: Sequence[str]
    words: str
    tests: Sequence[str]


_OPERATIONS = "test_operations.py::test_constants_at_and_above_two_to_the_31"
_RIGHT = "test_right_kernels.py::test_right_kernel_passes"
_FUNCTIONS = "test_bfloat16.py::test_functions_compute_in_float32_and_round_once"
_EXACT = "test_bfloat16.py::test_exact_functions"
_TAINT = "test_taint.py::test_nothing_undefined_decides_what_a_kernel_does"
_RACES = "test_races.py::test_two_threads_that_meet_are_a_race"
_WRONG = "test_wrong_kernels.py::test_wrong_kernel_is_rejected_for_its_reason"
_SUMS = "test_arithmetic.py::test_a_sum_that_is_a_dot_in_tf32"
_SAID = "test_wording.py::test_what_else_is_said"
_POINTER = (
    "b = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (32,), (0,))\\nfor i in range(4):\\n    b = tl.load(b)"
)
_POINTERS = "p = x_ptr\\nfor i in range(4):\\n    p = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (32,), (0,))"
_DOTS = "test_arithmetic.py::test_a_dot_in_tf32_is_wrong_where_it_shows_and_a_note_where_not"

DIFFERENCES = (
    Difference(
        "block pointers are gone",
        ["3.9"],
        "Block pointers have been removed",
        [
            "test_guarded_run.py::test_a_block_pointer_that_is_far_off_is_told_by_its_tensor",
            "test_guarded_run.py::test_block_pointers",
            "test_guarded_run.py::test_block_pointers_out_of_bounds",
            "test_guarded_run.py::test_block_pointers_with_boundary_check_and_padding",
            "test_guarded_run.py::test_block_pointers_without_padding_leave_holes",
            "test_guarded_run.py::test_a_block_pointer_advances",
            f"{_TAINT}[p = tl.make_block_ptr(z_ptr, (16,), (1,), (tl.max(n),), (16,), (0,))]",
            "test_true_size.py::test_only_the_product_need_be_wide[by_block_pointer]",
            f"{_RIGHT}[by_block_pointer]",
            f"{_RIGHT}[tile_by_block_pointer]",
            f"{_RIGHT}[block_pointer_store]",
            f"{_RIGHT}[block_pointers0]",
            f"{_RIGHT}[sum_by_block_pointer]",
            f"{_RIGHT}[block_pointers1]",
            f"{_RIGHT}[matmul_by_block_pointers]",
            f"{_RIGHT}[block_pointers_and_rint]",
            f"{_RIGHT}[weights_on_the_left]",
            f"{_SAID}[r = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), 0)]",
            f"{_SAID}[{_POINTER}]",
            f"{_SAID}[{_POINTERS}]",
            *(f"test_dtypes.py::test_padding_with_nan[dtype{number}]" for number in range(4)),
            "test_player.py::test_folds_void_and_block_pointers",
            "test_compiler.py::test_refused_with_reason_and_line[adds_to_a_block_pointer]",
        ],
    ),
    Difference(
        "a block pointer is only computed where it is loaded from or stored to",
        ["3.8"],
        "'NoneType' object has no attribute '(?:kind|message)'",
        [
            f"{_TAINT}[p = tl.make_block_ptr(z_ptr, (16,), (1,), (tl.max(n),), (16,), (0,))]",
            f"{_SAID}[r = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), 0)]",
        ],
    ),
    Difference(
        "in a loop, the class of a block pointer is looked at, not what it points to",
        ["3.8"],
        "is a block pointer before the loop or after this line, but not both[:;] assign to another name",
        [f"{_SAID}[{_POINTER}]", f"{_SAID}[{_POINTERS}]"],
    ),
    Difference(
        "a constant that doesn't fit the other operand's dtype is refused, also in comparisons and maxima",
        ["3.9"],
        "is out of range for type int32",
        [
            f"{_OPERATIONS}[tl.maximum(i, 4294967295)-dtype6-4294967295]",
            f"{_OPERATIONS}[(i * 0 < 2147483648)-dtype7-1]",
            f"{_OPERATIONS}[(i * 0 - 1 == 4294967295)-dtype8-1]",
        ],
    ),
    Difference(
        "-x is arith.negf, whose zero is negative, not 0 - x",
        ["3.8", "3.9"],
        r"got tensor\(\[-0\., ",
        ["test_bfloat16.py::test_elementwise_operations_are_torchs_bit_for_bit[-x-<lambda>]"],
    ),
    Difference(
        "as methods, too, functions take no bfloat16",
        ["3.9"],
        r"but this is bfloat16: convert with \.to\(tl\.float32\) first",
        [
            *(f"{_FUNCTIONS}[{name}]" for name in ("exp", "exp2", "log", "log2", "sqrt", "rsqrt")),
            *(f"{_FUNCTIONS}[{name}]" for name in ("sin", "cos", "erf")),
            *(f"{_EXACT}[{name}]" for name in ("sqrt", "floor", "ceil")),
        ],
    ),
    Difference(
        "an atomic that releases has a barrier before it, and one that acquires has one after it",
        ["3.9"],
        r"all \d+ cases pass|the only case passes|None is|the two can happen in either order",
        [
            f"{_RACES}[counted_by_atomics]",
            f"{_RACES}[atomic_whose_result_is_dropped]",
            "test_races.py::test_waiting_for_a_flag[no barrier]",
            "test_races.py::test_a_load_within_a_store_gets_no_advice_about_a_loop",
            "test_races.py::test_less_than_that_does_not[acq_rel-gpu-False]",
            "test_races.py::test_a_lock_is_given_back_after_a_barrier[False]",
            f"{_WRONG}[layer_norm_dw-no_barrier]",
            f"{_WRONG}[layer_norm_dw-barrier_too_late]",
            f"{_WRONG}[dw_by_lock-no_barrier]",
            f"{_WRONG}[dw_by_lock-barrier_before_the_stores]",
            f"{_WRONG}[dw_by_lock-taken_by_looking]",
        ],
    ),
    Difference(
        "a block of integer atomics has one element per thread, where a store has two or more: they race",
        ["3.8"],
        "race within",
        ["test_races.py::test_with_its_barriers_it_passes[atomics_upon_own_stores]"],
    ),
    Difference(
        "a sum of products keeps all bits, in a dot or without one",
        ["3.8", "3.9"],
        r"\[\] == \[|True is False|all \d+ cases pass|'a dot in TF32' in",
        [
            f"{_SUMS}[tl.sum(a[:, :, None] * b[None, :, :], axis=1)]",
            f"{_SUMS}[tl.sum(a[:, :, None] * b[None, :, :], axis=-2)]",
            f"{_SUMS}[summed(a, b) + summed(b, a)]",
            f"{_SUMS}[tl.sum(a[:, :, None] * b[None, :, :], axis=0)]",
            f"{_DOTS}[any]",
            f"{_DOTS}[codes]",
            f"{_WRONG}[quantized_matmul-sum_of_products]",
            f"{_WRONG}[flash_attention-strides_and_no_dot]",
        ],
    ),
    Difference(
        "a negative tl.multiple_of compiles",
        ["3.8", "3.9"],
        "True == False",
        ["test_wording.py::test_the_compiler_still_fails_over_the_same_hints[multiple_of({}, -4)]"],
    ),
    Difference(
        "a division by a constant has an fma of its own",
        ["3.9"],
        r"Extra items in the left set:\s+16",
        ["test_arithmetic.py::test_the_compiler_does_so"],
    ),
    Difference(
        "comparisons may be chained, as in 0 <= a < b",
        ["3.9"],
        r"all \d+ cases pass",
        [f"{_WRONG}[masked_add-chained_comparison]"],
    ),
    Difference(
        "a dot may have 8 columns, and its accumulator decides its dtype",
        ["3.8", "3.9"],
        r"all \d+ cases pass",
        [
            f"{_WRONG}[quantized_matmul-dot_too_short]",
            f"{_WRONG}[int8_linear-accumulator_of_another_type]",
        ],
    ),
    Difference(
        "an integer that is stored as a bool is compared with 0, not cut off",
        ["3.9"],
        r"all \d+ cases pass",
        [f"{_WRONG}[any_above-count_as_bool]"],
    ),
    Difference(
        "block pointers are gone",
        ["3.9"],
        "tuple index out of range",
        [
            "test_taint.py::test_a_report_names_the_element_its_cause_and_the_cures_in_order"
            "[source1-1-z[0]-boundary_check switches off-cures1]"
        ],
    ),
    Difference(
        "a name to reset that is no argument is refused where the kernel is defined",
        ["3.9"],
        "reset_to_zero contains names that are not kernel arguments",
        [f"{_WRONG}[split_sum-reset_by_a_text]"],
    ),
    Difference(
        "a scaled dot whose result is added to a sum needs no multiplications outside it",
        ["3.9"],
        r"all \d+ cases pass",
        [f"{_WRONG}[mxfp4_matmul-begins_at_zero]"],
    ),
    Difference(
        "other machine code misses a goal, which is set for the pinned compiler",
        ["3.8"],
        "but its machine code misses its goal",
        [f"{_RIGHT}[half_at_a_time0]", f"{_RIGHT}[blocks_counted]"],
    ),
    Difference(
        "other machine code misses a goal, which is set for the pinned compiler",
        ["3.8", "3.9"],
        "but its machine code misses its goal",
        [f"{_RIGHT}[a_while_loop1]"],
    ),
)


def installed() -> str:
    """Return the installed Triton as "3.9"."""
    return ".".join(importlib.metadata.version("triton").split(".")[:2])


def difference(test: str) -> Difference | None:
    """Return why a test ends differently with the installed Triton; None if it doesn't. test: its id."""
    return _HERE.get(test.removeprefix("tests/"))


_HERE = {test: each for each in DIFFERENCES if installed() in each.versions for test in each.tests}
