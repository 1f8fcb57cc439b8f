"""Define what a value is while a kernel runs: one element per lane, and which lanes are undefined.

A label is 0 for a lane that is defined. Otherwise it is a number for the source of the undefined value. If a
lane has two sources, it keeps the one that the run met first. Lanes without labels are all defined, and need
no work.

``data`` can have a smaller shape than the block: values that are equal in all lanes, or along an axis, are
stored once, and NumPy broadcasts them. `Lanes.full` returns the data in the block's shape.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from puzzles_lib.dtypes import DTYPES, DType

KIND = np.int16  # of labels
MOST = np.iinfo(KIND).max  # the first source's label; later ones are smaller
ORDER = 1000  # labels below are of lanes that are defined, but in an order that is not

Labels = np.ndarray | None


class Product(NamedTuple):
    """Notes that lanes are a product: its factors and its rounded result.

    moved: if the lanes were moved since, a function that moves what the rounding lost in the same way.
    """

    left: np.ndarray
    right: np.ndarray
    rounded: np.ndarray
    row: DType
    step: object
    moved: Callable[[np.ndarray], np.ndarray] | None = None


class Lanes:
    """The elements of a block. A single value is a block of one element here.

    data: in ``row``'s storage dtype; addresses, for pointers. labels: see above; None if nothing is
        undefined.
    product: set if these lanes are a product that was only moved since. terms: what a mask is made of.
    """

    __slots__ = ("data", "labels", "product", "row", "terms")

    def __init__(self, data: np.ndarray, row: DType, labels: Labels = None, product: Product | None = None):
        self.data = data
        self.row = row
        self.labels = labels
        self.product = product
        self.terms: tuple[tuple[str, np.ndarray], ...] = ()

    def full(self, shape: tuple[int, ...]) -> np.ndarray:
        """Return the data in the block's shape, ``shape``. The result must not be changed."""
        shape = shape or (1,)
        return self.data if self.data.shape == shape else np.broadcast_to(self.data, shape)

    def full_labels(self, shape: tuple[int, ...]) -> Labels:
        """Return the labels in the shape of the block, or None if there are none."""
        if self.labels is None or self.labels.shape == (shape or (1,)):
            return self.labels
        return np.broadcast_to(self.labels, shape or (1,))

    def spread(self, shape: tuple[int, ...]) -> "Lanes":
        """Return the same lanes, with data and labels in the shape of the block."""
        whole = shape or (1,)
        if self.data.shape == whole and (self.labels is None or self.labels.shape == whole):
            return self
        made = Lanes(self.full(shape), self.row, self.full_labels(shape))
        made.terms = self.terms
        return made

    @property
    def wide(self) -> np.ndarray:
        """Return the data as numbers that NumPy computes with."""
        return self.data if self.row.code is None else self.row.code.widen(self.data)


class Descriptor(NamedTuple):
    """A tensor descriptor's fields. padding: ``True`` for NaN."""

    base: Lanes
    size: int  # bytes of an element
    shape: tuple[Lanes, ...]
    strides: tuple[Lanes, ...]
    block: tuple[int, ...]
    nan: bool = False


class BlockPointer(NamedTuple):
    """A pointer to a tile (`tl.make_block_ptr`)."""

    base: Lanes
    size: int
    shape: tuple[Lanes, ...]
    strides: tuple[Lanes, ...]
    offsets: tuple[Lanes, ...]
    block: tuple[int, ...]


_BY_NAME = {row.name: row for row in DTYPES}
ADDRESS = _BY_NAME["uint64"]
INT32, INT64, BOOL = (_BY_NAME[name] for name in ("int32", "int64", "bool"))
NARROW_INTEGERS = (_BY_NAME["int8"], _BY_NAME["int16"], INT32)  # IR has integers without a sign only
FLOAT32, BFLOAT16, E5M2 = (_BY_NAME[name] for name in ("float32", "bfloat16", "float8_e5m2"))
_ROWS = {row.ir: row for row in DTYPES if row.ir} | {"index": INT64}


@functools.lru_cache(maxsize=256)
def row_of(element: str) -> DType:
    """Return the dtype of an element by its type in the IR; for a pointer, that of addresses.

    Raises NotImplementedError if the course has no such dtype.
    """
    if element.startswith("!tt.ptr<"):
        return ADDRESS
    if element not in _ROWS:
        raise NotImplementedError(f"the course's runner has no {element}")
    return _ROWS[element]


# ---- labels


def numbers(found: Labels) -> Labels:
    """Return labels renumbered from 1, in the order in which the run met their sources."""
    if found is None:
        return None
    found = found.astype(np.int32)
    return np.where(found == 0, 0, np.where(found >= ORDER, MOST + 1 - found, ORDER - found))


def marked(lanes: Lanes, found: Labels) -> Lanes:
    """Return the lanes with these labels, if there are any."""
    if found is not None and found.any():
        lanes.labels = found
    return lanes


def joined(*parts: Labels) -> Labels:
    """Return the labels of a result that depends on all of these."""
    some = [part for part in parts if part is not None]
    return functools.reduce(np.maximum, some) if some else None


def where(condition: np.ndarray, found: Labels | int) -> Labels:
    """Return these labels where the condition is true; the other lanes are defined."""
    return None if found is None else np.where(condition, found, 0).astype(KIND, copy=False)


def folded(found: Labels) -> Labels:
    """Return the labels of a reduction along the last axis. A reduction of a whole block needs no order."""
    if found is None:
        return None
    result = found.max(-1)
    return where(result >= ORDER, result) if result.size == 1 else result
