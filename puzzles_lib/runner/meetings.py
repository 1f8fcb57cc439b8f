"""Find programs that update the same element by atomics, and could come between each other's atomics."""

from dataclasses import dataclass, field

import numpy as np

from puzzles_lib.runner.buffer import NOBODY, Buffer

MOST = 16  # meetings that are kept


@dataclass
class Meetings:
    """Notes the atomics of one run, in which programs run one after the other.

    found: pairs of programs, in launch order. The key is whether the first one had updated the element more
        than once, and the number, from 1, of its last atomic there.
    """

    found: dict[tuple[bool, int], tuple[int, int]] = field(default_factory=dict)
    _last: dict[tuple[str, int], np.ndarray] = field(default_factory=dict)

    def note(self, buffer: Buffer, index: np.ndarray, dtype: np.dtype, program: int, atomic: int) -> None:
        """Note an atomic of a program at these elements. atomic: its number, from 1."""
        key = buffer.name, dtype.itemsize
        if key not in self._last:
            self._last[key] = np.full((3, buffer.data.nbytes // dtype.itemsize), NOBODY, np.int32)
        who, when, times = self._last[key]
        earlier, own = who[index], who[index] == program
        for place in np.flatnonzero((earlier != NOBODY) & ~own & (when[index] > 1)):
            if len(self.found) >= MOST:
                break
            element = index[place]
            met = bool(times[element] > 1), int(when[element])
            self.found.setdefault(met, (int(earlier[place]), program))
        times[index] = np.where(own, times[index] + 1, 1)
        who[index], when[index] = program, atomic

    def telling(self) -> list[tuple[int, int, int]]:
        """Return meetings as (first program, second program, atomic), those with repeated updates first."""
        again = sorted(self.found, key=lambda met: not met[0])
        return [(*self.found[met], met[1]) for met in again]
