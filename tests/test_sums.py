"""What a report says of a loop whose running sums have a slip that only its source shows."""

import pytest

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine

PUZZLES = {puzzle.name: puzzle for puzzle in puzzles()}
SCALAR, FLASH, ONLINE = "scalar_flash_attention", "flash_attention", "online_softmax"
NEW, OLD = "new_max - row_max", "row_max - new_max"
UPDATE = "        row_max = new_max\n"
SUM, DOT = "tl.sum(p, axis=1)", 'tl.dot(p, v, input_precision="ieee")'


def source_without(name: str, *starts: str) -> str:
    lines = kernel_sources()[name].splitlines(keepends=True)
    kept = [line for line in lines if not line.strip().startswith(starts)]
    assert len(kept) < len(lines)
    return "".join(kept)


def report_on(name: str, source: str) -> str:
    return str(examine(define(source, "<sums>"), PUZZLES[name]))


@pytest.mark.parametrize(
    "name, starts, says",
    [
        (SCALAR, ("denominator = denominator", "acc = acc"), "no line adds to denominator or acc: they stay"),
        (SCALAR, ("new_max", "factor", "p =", "denominator = d", "acc = a", "row_max = n"), "or acc: they"),
        (SCALAR, ("denominator = denominator",), "no line adds to denominator: it stays"),
        (FLASH, ("acc = acc",), "the result is zero everywhere: no line adds to acc"),
        (ONLINE, ("denominator = denominator",), "no line adds to denominator"),
        ("long_sum", ("acc +=",), "no line adds to acc"),
        ("long_softmax", ("denominator +=",), "no line adds to denominator"),
    ],
)
def test_a_sum_that_no_line_adds_to_is_named(name, starts, says):
    assert says in report_on(name, source_without(name, *starts))


@pytest.mark.parametrize(
    "name, edits, says",
    [
        (SCALAR, {f"denominator * factor + {SUM}": f"(denominator + {SUM}) * factor"}, "only the old denom"),
        (SCALAR, {f"denominator * factor + {SUM}": f"factor * ({SUM} + denominator)"}, "only the old denom"),
        (FLASH, {f"acc * factor[:, None] + {DOT}": f"(acc + {DOT}) * factor[:, None]"}, "only the old acc"),
        (
            FLASH,
            {f"acc = acc * factor[:, None] + {DOT}": f"acc += {DOT}\n        acc *= factor[:, None]"},
            "multiplies the new terms by the factor, too",
        ),
        (SCALAR, {OLD: NEW}, "is inf in the first block: take old minus new, row_max - new_max"),
        (FLASH, {OLD: NEW}, "is inf in the first block: take old minus new, row_max - new_max"),
        (ONLINE, {OLD: NEW}, "is inf in the first block: take old minus new, row_max - new_max"),
        (SCALAR, {'scores, float("-inf"))': 'float("-inf"), scores)'}, "swap its last two arguments"),
    ],
)
def test_a_slip_in_a_running_sum_has_its_line(name, edits, says):
    source = kernel_sources()[name]
    for old, new in edits.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    assert says in report_on(name, source)


@pytest.mark.parametrize(
    "name, edits, silent",
    [
        # a mask that says which lanes do not exist: -inf comes first, and another line is at fault
        (
            SCALAR,
            {'tl.where(mask_k[None, :], scores, float("-inf"))': 'tl.where(~mask_k[None, :], float("-inf"), '
             "scores)", "acc / denominator, mask": "(acc - acc) / (denominator - denominator), mask"},
            "swap its last two",
        ),
        # a sum that is never added to, but set after the loop
        (FLASH, {"    tl.store(": "    acc = acc * 0\n    tl.store("}, "no line adds to"),
        # a product of a sum, beside a NaN of another kind
        (SCALAR, {OLD: NEW, "row_max = new_max": "row_max = new_max * 1"}, "take old minus new"),
    ],
)  # fmt: skip
def test_a_line_that_is_not_the_cause_is_not_blamed(name, edits, silent):
    source = kernel_sources()[name]
    for old, new in edits.items():
        assert source.count(old) == 1
        source = source.replace(old, new)
    assert silent not in report_on(name, source)
