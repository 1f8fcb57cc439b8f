"""Pack arrays and a tree of plain values into a short text; equal content gives equal text.

Each array is kept once. An array that follows a rule, such as offsets, is kept as the rule. Any other is kept
as bytes, first the first bytes of all elements, then the second, because that compresses better. The text is
base64 of a zlib stream: the length of the JSON in 4 bytes, the JSON, the bytes. `player.js` reads it.
"""

import base64
import json
import zlib
from typing import Any

import numpy as np

_SAFE = 1 << 53  # the largest integers that JavaScript's number, a float64, represents


class Pool:
    """The arrays of a page, by number.

    In JSON each is ``[kind, shape, ...]``. ``["c", shape, value]`` is the same value everywhere, and
    ``["a", shape, first, steps]`` is a first integer with a step along each axis. All others are
    ``[bytes, shape, offset]``, with ``"b"`` for bits.
    """

    def __init__(self) -> None:
        self.entries: list[list[Any]] = []
        self.blob = bytearray()
        self._known: dict[tuple[str, tuple[int, ...], bytes], int] = {}
        self._seen: dict[int, tuple[np.ndarray, int]] = {}

    def add(self, array: np.ndarray) -> int:
        """Return the number of an array, which is new if no equal array is known. Do not change it later."""
        if id(array) not in self._seen:
            key = (array.dtype.str, array.shape, array.tobytes())
            if key not in self._known:
                self._known[key] = len(self.entries)
                self.entries.append(self._entry(array))
            self._seen[id(array)] = array, self._known[key]
        return self._seen[id(array)][1]

    def _entry(self, array: np.ndarray) -> list[Any]:
        shape = list(array.shape)
        if array.size == 0:
            return ["c", shape, 0]
        bits = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1)
        if (bits == bits[0]).all():
            return ["c", shape, number(array.flat[0])]
        if array.dtype.kind == "b":
            return self._bytes("b", shape, np.packbits(array.reshape(-1), bitorder="little").tobytes())
        if array.dtype.kind == "f":
            array = array.astype(np.float32) if array.dtype == np.float16 else array
            return self._planes(f"f{array.dtype.itemsize}", array)
        if (rule := _rule(array)) is not None:
            return ["a", shape, *rule]
        low, high = int(array.min()), int(array.max())
        for kind in ("u1", "i1", "u2", "i2", "u4", "i4"):
            limits = np.iinfo(kind)
            if limits.min <= low and high <= limits.max:
                return self._planes(kind, array.astype(kind))
        if -_SAFE <= low and high <= _SAFE:
            return self._planes("f8", array.astype(np.float64))
        return self._planes("u8" if array.dtype.kind == "u" else "i8", array)

    def _planes(self, kind: str, array: np.ndarray) -> list[Any]:
        planes = np.ascontiguousarray(array).reshape(-1).view(np.uint8).reshape(array.size, -1).T
        return self._bytes(kind, list(array.shape), planes.tobytes())

    def _bytes(self, kind: str, shape: list[int], data: bytes) -> list[Any]:
        self.blob += data
        return [kind, shape, len(self.blob) - len(data)]


def number(value: Any) -> Any:
    """Return a number for JSON, as text if JSON or JavaScript has no such number."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float) and (value != value or value in (np.inf, -np.inf)):
        return {np.inf: "inf", -np.inf: "-inf"}.get(value, "nan")
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _SAFE:
        return str(value)
    return value


def _rule(array: np.ndarray) -> tuple[int, list[int]] | None:
    """Return an array's first integer and its step along each axis; None if it has no such rule."""
    first = int(array.flat[0])
    if array.dtype.kind not in "iu" or abs(first) > _SAFE:
        return None
    steps, expected = [], np.array(first, np.float64)
    for axis, size in enumerate(array.shape):
        place = [0] * array.ndim
        place[axis] = min(1, size - 1)
        step = int(array[tuple(place)]) - first
        steps.append(step)
        along = np.arange(size, dtype=np.float64) * step
        expected = expected + along.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
    return (first, steps) if np.array_equal(expected, array) else None


def packed(tree: Any, pool: Pool) -> str:
    """Return the text of a tree and its arrays."""
    told = json.dumps({**tree, "arrays": pool.entries}, separators=(",", ":"), allow_nan=False).encode()
    stream = len(told).to_bytes(4, "little") + told + bytes(pool.blob)
    return base64.b64encode(zlib.compress(stream, 9)).decode()
