"""What a run has seen of each comparison: whether it was ever true, and ever false.

A maximum, a minimum, a remainder, an ``&`` and a narrowing cast count as comparisons, too: each either
changes its operand or leaves it. So does a division by a number that may be larger than all that was divided
by it. What happens on a side that no run has seen is untested. Undefined lanes
don't count, because nothing may depend on them.
"""

import numpy as np

from puzzles_lib.runner.lanes import Labels, Lanes
from puzzles_lib.translator.ir import Operation

ONE, OTHER, BETWEEN = 1, 2, 4
BOTH = ONE | OTHER
ALL = BOTH | BETWEEN


class Sides:
    """What was seen, by the operation that compares: `ONE` side, the `OTHER`, or something `BETWEEN`.

    `BETWEEN` stands for values between 0 and the one number that all are compared with: without such values,
    a comparison with that number looks the same as one with 0.
    """

    def __init__(self) -> None:
        self.seen: dict[Operation, int] = {}

    def compared(
        self, op: Operation, outcome: np.ndarray, x: np.ndarray, y: np.ndarray, labels: Labels = None
    ) -> None:
        """Note the outcome of a comparison of x and y, lane by lane. labels: of x."""
        known = self.seen.get(op, 0)
        if known == ALL:
            return
        if labels is not None:
            outcome, x, y = _defined(labels, outcome, x, y)
        if known & BOTH != BOTH:
            known |= ONE * bool(outcome.any()) | OTHER * (not outcome.all())
        self.seen[op] = known | _between(x, y)

    def limited(self, op: Operation, x: Lanes, y: Lanes) -> None:
        """Note which of two operands a maximum or minimum had to choose."""
        known = self.seen.get(op, 0)
        if known == ALL:
            return
        left, right = x.wide, y.wide
        if x.labels is not None:
            left, right = _defined(x.labels, left, right)
        if known & BOTH != BOTH:
            known |= ONE * bool((left < right).any()) | OTHER * bool((left > right).any())
        self.seen[op] = known | _between(left, right)

    def kept(self, op: Operation, x: np.ndarray, result: np.ndarray, labels: Labels = None) -> None:
        """Note whether an operation has left its operand as it was. labels: of x."""
        known = self.seen.get(op, 0)
        if known != ALL and x.dtype != bool:
            if labels is not None:
                x, result = _defined(labels, x, result)
            same = x == result
            self.seen[op] = known | ONE * bool(same.any()) | OTHER * (not same.all()) | BETWEEN

    def divided(self, op: Operation, quotient: np.ndarray, labels: Labels = None) -> None:
        """Note whether a quotient is ever other than 0: if not, its divisor may be a limit. labels: of it."""
        known = self.seen.get(op, 0)
        if known != ALL and quotient.dtype != bool:
            found = quotient if labels is None else _defined(labels, quotient)[0]
            self.seen[op] = ALL if found.any() else known | ONE

    def made_of_bits(self, op: Operation) -> None:
        """Note that a float is put together from bits: for which numbers that's correct is not known."""
        self.seen[op] = ONE

    def ended(self, op: Operation) -> None:
        """Note that a loop has ended at its bound."""
        self.seen[op] = ONE


def _defined(labels: np.ndarray, *lanes: np.ndarray) -> list[np.ndarray]:
    """Return the lanes that are defined; a single number, which all are compared with, stays one."""
    shape = np.broadcast_shapes(labels.shape, *(each.shape for each in lanes))
    defined = np.broadcast_to(labels == 0, shape)
    return [each if each.size == 1 else np.broadcast_to(each, shape)[defined] for each in lanes]


def _between(x: np.ndarray, y: np.ndarray) -> int:
    """Return `BETWEEN` if a value of x is strictly between 0 and the number y, or if y is no such number."""
    if y.size != 1 or x.dtype == bool or not (number := y.flat[0]):
        return BETWEEN
    found = (x > 0) & (x < number) if number > 0 else (x < 0) & (x > number)
    return BETWEEN * bool(found.any())
