"""Give tensors invented addresses, and find the element that a pointer means, however far it has moved.

Every tensor has its own range of addresses and starts in the middle of it. The ranges are so far apart that
no wrong index reaches another tensor. A pointer that leaves its range (``x_ptr + 2**50``) gets an address of
another kind. That address stands for the tensor it started from and its distance from it in elements.
"""

from typing import NamedTuple

import numpy as np

REGION_BITS = 52  # each tensor owns 2**52 bytes of addresses
_HALF = 1 << (REGION_BITS - 1)
_ASTRAY = 1 << 63  # this bit, the number of a `_Batch`, the number of a pointer in it
_BATCH_BITS = 20  # of a block's lanes: Triton's blocks have at most 2**20
ELSEWHERE = (1, 2)  # choices of other addresses, for kernels that take them as numbers
_FIRST = 0x7000_0FFF_FE00  # the first tensor's then: no multiple of more than torch's 512 bytes
_NEAREST = 1 << 23  # bytes to the next tensor then, or more if tensors are larger
_ODD = (0, 0x3FFC00, 0x1FFE00)  # added to it: all are alike modulo 1024, or differ by turns
_SIGN = (0, 1, -1)  # later arguments lie above, or below
_FAR = 1 << 62  # elements: farther than any range, where counting on would overflow


def base_of(number: int) -> int:
    """Return the address of the first element of a tensor, by the tensor's number from 0."""
    return ((number + 1) << REGION_BITS) + _HALF


class _Batch(NamedTuple):
    """Pointers that left their range: tensors' numbers, and distances in units of ``size`` bytes."""

    numbers: np.ndarray
    elements: np.ndarray
    size: int


class Addresses:
    """All addresses of a run. pointers: uint64; size: bytes of what they point to.

    elsewhere: one of `ELSEWHERE`. A kernel that uses an address as a number then gets another number, see
        `numbers`.
    """

    def __init__(self, elsewhere: int = 0) -> None:
        self.count = 0  # tensors
        self.elsewhere = elsewhere
        self._step = _NEAREST + _ODD[elsewhere]
        self._astray: list[_Batch] = []

    def add(self, size: int = 0) -> int:
        """Add a tensor of ``size`` bytes, and return the address of its first element."""
        self.count += 1
        while self._step < 8 * size:
            self._step += self._step - _ODD[self.elsewhere]
        return base_of(self.count - 1)

    def moved(self, pointers: np.ndarray, offsets: np.ndarray, size: int) -> np.ndarray:
        """Return the pointers, each moved by its offset in elements of ``size`` bytes."""
        moved = pointers + np.uint64(size) * offsets.astype(np.uint64)
        if not self._astray:
            if offsets.itemsize < 8:
                return moved
            far = (offsets.view(np.uint64) + np.uint64(1 << 47)) >> np.uint64(48)
            if not far.any() and not ((moved ^ pointers) >> np.uint64(REGION_BITS)).any():
                return moved
        numbers, elements = self.places(pointers, size)
        numbers, elements = (np.broadcast_to(each, moved.shape) for each in (numbers, elements))
        offsets = np.broadcast_to(offsets.astype(np.int64), moved.shape)
        total = elements + offsets
        over = (elements ^ total) & (offsets ^ total) < 0  # both had the other sign: int64 is too small
        total = np.where(over, np.where(offsets < 0, -_FAR, _FAR), total)
        known = (numbers >= 0) & (numbers < self.count)
        outside: np.ndarray = known & ((total >= _HALF // size) | (total < -_HALF // size))
        back = known & ~outside & (np.broadcast_to(pointers, moved.shape) >= np.uint64(_ASTRAY))
        bases = (numbers + 1 << REGION_BITS) + _HALF
        moved[back] = (bases + total * size)[back].astype(np.uint64)
        if outside.any():
            batch = _Batch(numbers[outside], total[outside], size)
            first = _ASTRAY | len(self._astray) << _BATCH_BITS
            moved[outside] = np.uint64(first) + np.arange(len(batch.elements), dtype=np.uint64)
            self._astray.append(batch)
        return moved

    def numbers(self, pointers: np.ndarray) -> np.ndarray:
        """Return the numbers that a kernel gets if it casts pointers to integers, such as a GPU's addresses.

        They differ from `base_of` in everything that an allocator is free to choose: their magnitude, and the
        bits above the 512 bytes to which torch's allocator aligns.
        """
        tensors, offsets = self.places(pointers, 1)
        known = (tensors >= 0) & (tensors < self.count) & (abs(offsets) < self._step // 4)
        moved = _FIRST + _SIGN[self.elsewhere] * tensors * self._step + offsets
        return np.where(known, moved.astype(np.uint64), pointers)

    def pointers(self, numbers: np.ndarray) -> np.ndarray:
        """Return the pointers for numbers that `numbers` gave, also if the kernel has added to them since."""
        away = numbers.view(np.int64) - _FIRST + self._step // 2
        steps = away // self._step
        tensors = _SIGN[self.elsewhere] * steps
        offsets = away - steps * self._step - self._step // 2
        bases = (tensors + 1 << REGION_BITS) + _HALF
        known = (tensors >= 0) & (tensors < self.count)
        return np.where(known, (bases + offsets).astype(np.uint64), numbers)

    def places(self, pointers: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the number of each pointer's tensor, and the element, which may be outside of the tensor.

        If a pointer was made of something else, the number belongs to no tensor.
        """
        numbers = (pointers >> np.uint64(REGION_BITS)).astype(np.int64) - 1
        bases = (numbers + 1 << REGION_BITS) + _HALF
        elements = (pointers - bases.astype(np.uint64)).view(np.int64) >> (size.bit_length() - 1)
        if self._astray and (astray := pointers >= np.uint64(_ASTRAY)).any():
            which = (pointers[astray] & np.uint64(_ASTRAY - 1)).astype(np.int64)
            found = np.full((2, which.size), -1)
            for number in np.unique(which >> _BATCH_BITS).tolist():
                mine = which >> _BATCH_BITS == number
                if number < len(self._astray):
                    batch, lanes = self._astray[number], which[mine] & (1 << _BATCH_BITS) - 1
                    lanes = np.minimum(lanes, len(batch.elements) - 1)
                    found[:, mine] = batch.numbers[lanes], _in_units(batch, size)[lanes]
            numbers[astray], elements[astray] = found
        return numbers, elements


def _in_units(batch: _Batch, size: int) -> np.ndarray:
    """Return the distances in elements of another size, for pointers that were cast."""
    if size >= batch.size:
        return batch.elements // (size // batch.size)
    times = batch.size // size
    return np.clip(batch.elements, -_FAR // times, _FAR // times) * times
