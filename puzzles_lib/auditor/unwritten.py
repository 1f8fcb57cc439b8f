"""Say why a launch leaves out elements of a result: by a mask, a small block, or a count rounded down."""

import ast
from collections.abc import Iterator, Mapping

import numpy as np

from puzzles_lib.auditor.running import Outcome
from puzzles_lib.auditor.stores import Store
from puzzles_lib.source import nodes, site_in

LISTED = 3  # elements that are named one by one


def why_unwritten(outcome: Outcome, store: Store, holds: np.ndarray, shape: tuple[int, ...]) -> str:
    """Say that a grid or a loop has too few blocks, if a launch has stored all but the last elements, or "".

    holds: whether each element of the result is written, by flat index. shape: the result's.
    """
    if text := _count(outcome, store, holds, shape):
        return text
    for unit, coordinate, reached, size in _covered(store, holds, shape):
        if (
            text := _grid(outcome, store, unit, coordinate, reached, size)
            or _floor(outcome, unit, reached, size)
            or _block(outcome, unit, reached, size)
        ):
            return text
    written = int(holds.sum())
    own = np.bincount(store.writers[store.writers >= 0]) if store.writers is not None else np.zeros(0)
    alike = len(set(own.tolist())) == 1  # then whole blocks are missing
    if alike and holds[:written].all() and written > holds.size - written:
        return "they are the last elements: is a count of blocks rounded down? triton.cdiv rounds up"
    return ""


def _count(outcome: Outcome, store: Store, holds: np.ndarray, shape: tuple[int, ...]) -> str:
    """Say that a mask compares offsets with another number than that of the elements, if they end there."""
    written, numbers = int(holds.sum()), outcome.launch.numbers
    rows = {int(np.prod(shape[axis:])) for axis in range(1, len(shape))}  # a row of these ends there, too
    if not written or not holds[:written].all() or written in rows:
        return ""
    names = [name for name in dict.fromkeys(_compared(outcome, numbers)) if numbers[name] == written]
    has = f"{store.name} has {holds.size} elements"
    return f"a mask compares with {names[0]} = {written}, but {has}" if len(names) == 1 else ""


def _compared(outcome: Outcome, numbers: Mapping[str, int]) -> Iterator[str]:
    """Yield the parameters that a kernel compares something with."""
    for node in nodes(outcome.launch.kernel):
        if isinstance(node, ast.Compare):
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and part.id in numbers:
                    yield part.id


def _block(outcome: Outcome, unit: str, reached: int, size: int) -> str:
    """Say that a block is smaller than a row, if one constant is how far all programs reach."""
    launch = outcome.launch
    constants = {p.name for p in launch.kernel.params if p.is_constexpr}
    names = [name for name, value in launch.numbers.items() if value == reached and name in constants]
    if len(names) != 1 or unit == "element":
        return ""
    return f"{names[0]} = {reached} is too small for {_many(size, unit)}, or a loop over blocks is missing"


def which(wrong: np.ndarray, shape: tuple[int, ...]) -> str:
    """Return the names of elements, such as ``"[96] to [99]"``; "" if there are many. wrong: flat indices."""
    named = [_named(n, shape) for n in (wrong if len(wrong) <= LISTED else wrong[[0, -1]])]
    if len(wrong) <= LISTED:
        return " and ".join(filter(None, (", ".join(named[:-1]), named[-1])))
    return " to ".join(named) if wrong[-1] - wrong[0] == len(wrong) - 1 else ""


def _named(flat: int, shape: tuple[int, ...]) -> str:
    return f"[{', '.join(str(int(place)) for place in np.unravel_index(flat, shape))}]"


def _covered(
    store: Store, holds: np.ndarray, shape: tuple[int, ...]
) -> Iterator[tuple[str, np.ndarray | None, int, int]]:
    """Yield each axis that is written up to a coordinate: its unit, the coordinates, how far, and its size.

    The last one is the whole result, element by element, with None for the coordinates.
    """
    if len(shape) > 1 and store.shape.shape == shape and holds.any():
        ends = [int(places.max()) + 1 for places in np.nonzero(holds.reshape(shape))]
        if holds.sum() == np.prod(ends):
            units = (
                ("row", "column") if len(shape) == 2 else [f"place on axis {n}" for n in range(len(shape))]
            )
            for axis, (end, size) in enumerate(zip(ends, shape, strict=True)):
                if end < size:
                    each = np.arange(size).reshape([-1 if n == axis else 1 for n in range(len(shape))])
                    yield units[axis], np.broadcast_to(each, shape).reshape(-1), end, size
    if holds[: (written := int(holds.sum()))].all() and written:
        yield "element", None, written, holds.size


def _grid(
    outcome: Outcome, store: Store, unit: str, coordinate: np.ndarray | None, reached: int, size: int
) -> str:
    """Say that the grid has too few programs, if each one stores the same number of rows, columns, ..."""
    assert store.writers is not None
    stored = store.writers >= 0
    writers = store.writers[stored]
    axes = outcome.launch.axes
    for axis, count in enumerate(outcome.launch.full_grid[:axes]):
        block, left = divmod(reached, count)
        if left:
            continue
        if coordinate is None:
            first = writers[::block]
            if axes > 1 or len(writers) != reached or (writers != first.repeat(block)).any():
                continue
            if len(np.unique(first)) != count:
                continue
        else:
            own = np.array(store.programs)[writers, axis]
            if (count == 1 and axes > 1) or (own != coordinate[stored] // block).any():
                continue
        along = f" along axis {axis}" if axes > 1 else ""
        return (
            f"the grid has {_many(count, 'program')}{along}, and each stores {_many(block, unit)}: "
            f"{_many(size, unit)} need triton.cdiv({size}, {block}) = {-(-size // block):,} programs"
        )
    return ""


def _floor(outcome: Outcome, unit: str, reached: int, size: int) -> str:
    """Say that a division in the kernel rounds down, if it gives the number of blocks that are written."""
    kernel, numbers = outcome.launch.kernel, outcome.launch.numbers
    for node in nodes(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv):
            whole, block = _value(node.left, numbers), _value(node.right, numbers)
            if whole == size and block and whole // block * block == reached:
                line, blocks = site_in(kernel, node.lineno).line, whole // block
                cure = f"tl.cdiv({ast.unparse(node.left)}, {ast.unparse(node.right)})"
                return (
                    f"{ast.unparse(node)} in line {line} rounds down to {blocks:,}, and {blocks:,} blocks "
                    f"have {_many(reached, unit)}: {cure} rounds up"
                )
    return ""


def _many(count: int, noun: str) -> str:
    head, space, tail = noun.partition(" ")
    return f"{count:,} {head}{'s' * (count != 1)}{space}{tail}"


def _value(node: ast.expr, numbers: Mapping[str, int]) -> int | None:
    """Return the number that a parameter or a constant has."""
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    return numbers.get(node.id) if isinstance(node, ast.Name) else None
