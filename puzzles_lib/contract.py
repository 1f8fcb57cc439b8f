"""Say which random cases `check` may try besides a puzzle's own: the range of each number.

A kernel that is correct for the listed cases may be wrong for all others: its rows end at 512, or its loop
has five iterations. So `check` also tries a few random cases:

    Contract(
        {"N": Size(2100), "BLOCK_N": (128, 1024), "M": Size(150), "BLOCK_M": (4, 64)},
        fills=lambda s: ({"x": inputs.large}, {}),
    )

The numbers are chosen in the order written, so that each may depend on those before it.
"""

import math
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import SimpleNamespace

from torch import Tensor

Fill = Callable[..., Tensor]
DRAWS = 2
"""The number of random cases of a puzzle."""
SMALL = 100  # the most that a size is if it is not large
SMALLEST = 24  # the most that a size is beside one that is made very large
TRIES = 20  # how often a draw with few programs is tried


@dataclass(frozen=True)
class Size:
    """Any integer from ``least`` to ``most``, or any multiple of ``step`` in that range.

    ``step`` may depend on the numbers before it: ``Size(700, step=lambda s: math.lcm(8, s.GROUP))``.
    """

    most: int
    step: int | Callable[[SimpleNamespace], int] = 1
    least: int = 1


def no_fills(numbers: SimpleNamespace) -> tuple[Mapping[str, Fill], ...]:
    """Return no fills, so that `inputs.random` makes all inputs."""
    return ({},)


@dataclass(frozen=True)
class Contract:
    """How random cases are chosen.

    numbers: a dict from the name of each number of a case to its values. These are a `Size`, a tuple, or a
        function of the numbers before it that returns a tuple. Each size is large in one of the `DRAWS`
        random cases, in the order written: larger than in any case of the puzzle, and above the largest power
        of two below its ``most``, so that ``Size(300)`` draws more than 256. Otherwise it is small: 1, a
        prime, one more than a power of two, or any.
    fills: a function of the numbers that returns a tuple of dicts, one for each random case: the fills of
        inputs, as in `Case`.
    most_programs: the most programs of a random case, if a few tries find one with so few.
    free: names of numbers that have few values in random cases, such as a count of heads, but that a kernel
        must take with any value. If the values are computed from other numbers, any multiple of them.
    """

    numbers: Mapping[str, "Size | tuple[int, ...] | Callable[[SimpleNamespace], tuple[int, ...]]"]
    fills: Callable[[SimpleNamespace], tuple[Mapping[str, Fill], ...]] = no_fills
    most_programs: int = 9
    free: tuple[str, ...] = ()

    def large_in(self, turn: int) -> set[str]:
        """Return the sizes that are large in a draw."""
        return {name for place, name in enumerate(self.sizes) if place % DRAWS == turn}

    def draw(
        self,
        turn: int,
        seed: str,
        listed: Mapping[str, int],
        programs: Callable[[dict[str, int]], int],
    ) -> dict[str, int]:
        """Return the numbers of one draw. listed: the largest value of each number in the puzzle's cases."""
        chance = random.Random(seed)
        draws = (self._once(turn, chance, listed) for _ in range(TRIES))
        found = next(draws)
        while programs(found) > self.most_programs:
            another = next(draws, None)
            if another is None:
                break
            found = min(found, another, key=programs)
        return found

    @property
    def sizes(self) -> tuple[str, ...]:
        """Return the names of the sizes, in the order written."""
        return tuple(name for name, kind in self.numbers.items() if isinstance(kind, Size))

    def least(self, names: Collection[str]) -> dict[str, int]:
        """Return numbers, of these names, in which each size is as small as can be."""
        found: dict[str, int] = {}
        for each, kind in self.numbers.items():
            before = SimpleNamespace(**found)
            if isinstance(kind, Size):
                step = kind.step(before) if callable(kind.step) else kind.step
                found[each] = max(-(-kind.least // step) * step, 1)
            else:
                values = kind(before) if callable(kind) else kind
                found[each] = min(values, key=lambda value: value or 0)  # None stands for no argument
        return {each: found[each] for each in names}

    def stretched(
        self,
        least: Mapping[str, int],
        block: Callable[[tuple[int, ...]], int],
        seed: str,
        listed: Mapping[str, int],
    ) -> dict[str, int]:
        """Return numbers in which some sizes are large, and all others are small.

        least: how large, or a little more, by name; a number with a few values counts if it may be any other
            number, too. block: `min` or `max`, which chooses the block sizes. listed: as for `draw`.
        """
        chance = random.Random(seed)
        found: dict[str, int] = {}
        for each, kind in self.numbers.items():
            before = SimpleNamespace(**found)
            if isinstance(kind, Size):
                step = kind.step(before) if callable(kind.step) else kind.step
                if each in least:
                    found[each] = max(-(-least[each] // step) * step, kind.least)
                else:
                    found[each] = _biting(chance, kind.least, min(listed[each], SMALLEST), step)
            else:
                values = kind(before) if callable(kind) else kind
                found[each] = block(values) if each.startswith("BLOCK") else chance.choice(values)
                if each in least:
                    step = found[each] if callable(kind) else 1
                    found[each] = max(found[each], -(-least[each] // step) * step)
        return {each: found[each] for each in listed}

    def _once(self, turn: int, chance: random.Random, listed: Mapping[str, int]) -> dict[str, int]:
        found: dict[str, int] = {}
        for name, kind in self.numbers.items():
            before = SimpleNamespace(**found)
            if isinstance(kind, Size):
                step = kind.step(before) if callable(kind.step) else kind.step
                if name in self.large_in(turn):
                    low, high = max(beyond(listed[name]), beyond((kind.most + 1) // 2)), kind.most
                else:
                    low, high = kind.least, min(listed[name], SMALL)
                found[name] = _biting(chance, low, high, step)
            else:
                found[name] = chance.choice(kind(before) if callable(kind) else kind)
        return {name: found[name] for name in listed}


def beyond(size: int) -> int:
    """Return the least number that does not fit into the power of two that fits ``size``."""
    return (1 << max(0, size - 1).bit_length()) + 1


def _biting(chance: random.Random, low: int, high: int, step: int) -> int:
    """Return a multiple of ``step`` from ``low`` to ``high``: the least, a prime, 2^k + 1, or any.

    If there is none, return the largest one below.
    """
    last = max(high // step, 1) * step
    multiples = range(min(-(-low // step) * step, last), last + 1, step)
    tempting = (_is_any, _is_prime, _is_beyond_a_power_of_two)
    kind = chance.choice((None, *tempting))
    found = [n for n in multiples if kind(n)] if kind else multiples[:1]
    return chance.choice(found or multiples)


def _is_any(number: int) -> bool:
    return True


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % i for i in range(2, math.isqrt(number) + 1))


def _is_beyond_a_power_of_two(number: int) -> bool:
    return number > 1 and (number - 1) & (number - 2) == 0
