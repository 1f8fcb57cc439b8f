"""Compute reductions, scans and `tl.map_elementwise`, by the region that says how elements are combined.

Elements are combined in a tree, as on a GPU: the region runs on whole halves, each time combining all
neighboring pairs, so 1024 elements take ten runs. Threads of a warp combine elements that are far apart. A
reduction that depends on the order of two elements does so, too. If a function of Triton's own does what
NumPy does, NumPy does it.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from puzzles_lib.dtypes import DType
from puzzles_lib.runner import arithmetic, numerics
from puzzles_lib.runner.lanes import KIND, Labels, Lanes, folded, joined, where
from puzzles_lib.runner.operations import operation
from puzzles_lib.runner.step import Machine, NotOneValue, Step
from puzzles_lib.translator.ir import Region

LANES = 32  # of a warp
GREAT = 0.02  # of the values: far more than rounding makes, in bfloat16 too
Arrays = list[np.ndarray]
Combine = Callable[[Arrays, Arrays], Arrays]

# NumPy's own, where it computes the same. tl.max and tl.min ignore NaN.
_REDUCE = {
    "_sum_combine": np.add,
    "_elementwise_max": np.fmax,
    "_elementwise_min": np.fmin,
    "_xor_combine": np.bitwise_xor,
    "_or_combine": np.bitwise_or,
}
_SCAN = {"_sum_combine": np.add, "_prod_combine": np.multiply}
_SEARCHES = [f"_arg{which}_combine_tie_break_{how}" for which in ("max", "min") for how in ("left", "fast")]
_BY_SIZE = {"_elementwise_max", "_elementwise_min", *_SEARCHES}
_AMONG_NAN = (
    "NaN is neither larger nor smaller, so the order decides what is found; "
    "is it 0 / 0, inf / inf, inf - inf or the log of a negative number?"
)
_ARG = {"_argmax_combine_tie_break_left": np.max, "_argmin_combine_tie_break_left": np.min}


def combined_by(region: Region) -> str:
    """Return Triton's own function that a region calls and nothing else; "" for any other region."""
    operations = region.entry.operations
    if len(region.blocks) != 1 or len(operations) != 2 or operations[0].name != "tt.call":
        return ""
    found = re.match(r"@\"?triton\.language\.standard\.(\w+?)__", operations[0].attributes["callee"])
    plain = operations[0].operands == region.entry.arguments
    return found[1] if found and plain and operations[1].operands == operations[0].results else ""


def _is_unsigned(step: Step) -> bool:
    """Whether a reduction by a function of Triton's own is of unsigned numbers: only its name says so."""
    callee = step.op.regions[0].entry.operations[0].attributes["callee"]
    return re.search(r"__u\d+_", callee) is not None


class _Region:
    """How elements are combined: a region that is run on arrays."""

    def __init__(self, machine: Machine, step: Step, rows: list[DType]):
        self.machine, self.code, self.rows = machine, step.regions[0], rows
        self.labels: Labels = None  # of what the region itself makes undefined: the worst

    def __call__(self, left: Arrays, right: Arrays) -> Arrays:
        pairs = [*zip(left, self.rows, strict=True), *zip(right, self.rows, strict=True)]
        return self.of([Lanes(array, row) for array, row in pairs], left[0].shape, [a.dtype for a in left])

    def of(self, given: list[Lanes], shape: tuple[int, ...], dtypes: list[Any]) -> Arrays:
        memory = self.machine.memory
        recorder, memory.recorder = memory.recorder, None  # it would see halves of blocks
        try:
            results = self.machine.body(self.code, given)
        finally:
            memory.recorder = recorder
        for each in results:
            if each.labels is not None:
                worst = each.labels.max(initial=0)
                self.labels = np.array([worst if self.labels is None else max(worst, self.labels[0])], KIND)
        return [
            np.broadcast_to(each.data, shape).astype(dtype, copy=False)
            for each, dtype in zip(results, dtypes, strict=True)
        ]


@operation("tt.reduce", labels=None)
def reduce(machine: Machine, step: Step, *inputs: Lanes) -> tuple[Lanes, ...]:
    """Combine all elements along an axis into one."""
    op, axis = step.op, step.op.integer("axis")
    shape = op.operands[0].type.shape
    rows = [lanes.row for lanes in inputs]
    arrays = [np.moveaxis(lanes.full(shape), axis, -1) for lanes in inputs]
    name = step.combined
    if rows[0].is_float:
        machine.memory.flops += arrays[0].size
    found = machine.memory.in_order(joined(*(lanes.full_labels(shape) for lanes in inputs)), *inputs)
    found = None if found is None else np.moveaxis(found, axis, -1)
    labels = (None if found is None else found.max(-1)) if name in _SEARCHES else folded(found)
    undecided = _undecided(name, rows[0], arrays[0])
    if undecided is not None:
        labels = joined(labels, where(undecided, machine.memory.label(_AMONG_NAN)))
    unsigned = name in _BY_SIZE and _is_unsigned(step)  # NumPy would take the highest bit for a sign
    if not unsigned and (ufunc := _numpy(_REDUCE, name, rows[0])):
        dot = _as_dot(machine, inputs[0], shape, axis) if ufunc is np.add else None
        results = [ufunc.reduce(arrays[0], axis=-1, dtype=arrays[0].dtype) if dot is None else dot]
    elif not unsigned and undecided is None and (best := _numpy(_ARG, name, rows[0])):
        values, index = arrays
        value = best(values, -1)
        last = np.iinfo(index.dtype).max
        results = [value, np.where(values == value[..., None], index, last).min(-1)]
    else:
        combine = _Region(machine, step, rows)
        fold = _fold
        if name not in _SEARCHES and not _by_blocks_or_elements(_is_commutative, combine, arrays):
            machine.memory.order_matters_within()
            fold = _fold_halves
        results = _by_blocks_or_elements(fold, combine, arrays)
        if fold is _fold_halves:
            other = _by_blocks_or_elements(_fold_swapped, combine, arrays)
            pairs = zip(results, other, op.results, strict=True)
            if not all(_are_close(one, two) for one, two, value in pairs if value.users):
                machine.memory.depends_on_order_within()
        labels = joined(labels, combine.labels)
        _note_narrow(machine, name, rows[0], arrays[0], results[0])
    made = [np.atleast_1d(np.asarray(each)) for each in results]
    labels = None if labels is None else np.broadcast_to(labels, made[0].shape)
    return tuple(Lanes(each, row, labels) for each, row in zip(made, rows, strict=True))


def _note_narrow(machine: Machine, name: str, row: DType, values: np.ndarray, found: np.ndarray) -> None:
    """Note a sum of many numbers in a dtype narrower than float32, if one in float32 would differ."""
    notes, count = machine.memory.arithmetic, values.shape[-1]
    site = machine.site()
    if name != "_sum_combine" or not row.is_float or site in notes.narrow:
        return
    notes.rounded.setdefault(site, row.name)
    wide = row.widen(values).astype(np.float32).sum(-1)
    if count >= arithmetic.MANY and not np.array_equal(row.narrow(wide), found):
        notes.narrow[site] = row.name, count


def _as_dot(machine: Machine, lanes: Lanes, shape: tuple[int, ...], axis: int) -> np.ndarray | None:
    """Return a sum of products that the compiler makes a dot, as it is compiled; None for any other sum."""
    notes = machine.memory.arithmetic
    operands = arithmetic.dot_operands(lanes.product, shape, lanes.row) if notes.sums_in_tf32 else None
    if operands is None:
        return None
    notes.in_tf32[machine.site()] = None
    left, right = map(numerics.float32_to_tf32, operands)
    if not all(map(partial(np.array_equal, equal_nan=True), operands, (left, right))):
        notes.inexact[machine.site()] = None
    dot = numerics.product(left, right, np.float32)
    fits = dot.shape == tuple(np.delete(shape, axis))  # or it does not compile
    return dot if notes.as_compiled and fits else None


@operation("tt.scan", labels=None)
def scan(machine: Machine, step: Step, *inputs: Lanes) -> tuple[Lanes, ...]:
    """Combine each element along an axis with all before it."""
    op, axis = step.op, step.op.integer("axis")
    back = -1 if op.flag("reverse") else 1
    shape, rows = op.operands[0].type.shape, [lanes.row for lanes in inputs]
    arrays = [np.moveaxis(lanes.full(shape), axis, -1)[..., ::back] for lanes in inputs]
    inside: Labels = None
    if ufunc := _numpy(_SCAN, step.combined, rows[0]):
        results = [ufunc.accumulate(arrays[0], axis=-1, dtype=arrays[0].dtype)]
    else:
        combine = _Region(machine, step, rows)
        results = _by_blocks_or_elements(_prefixes, combine, arrays)
        inside = combine.labels
        if not _by_blocks_or_elements(_is_associative, combine, arrays):
            machine.memory.brackets_matter()
    labels = machine.memory.mixed(joined(*(lanes.full_labels(shape) for lanes in inputs)))
    if labels is not None:
        labels = np.maximum.accumulate(np.moveaxis(labels, axis, -1)[..., ::back], -1)
        labels = np.moveaxis(labels[..., ::back], -1, axis)
    if inside is not None:
        labels = joined(labels, np.full(shape, inside[0], KIND))
    return tuple(
        Lanes(np.moveaxis(each[..., ::back], -1, axis), row, labels)
        for each, row in zip(results, rows, strict=True)
    )


@operation("tt.map_elementwise", labels=None)
def map_elementwise(machine: Machine, step: Step, *inputs: Lanes) -> tuple[Lanes, ...]:
    """Apply a function to each lane, or to each group of ``pack`` neighbors at once.

    On a GPU, a group is the elements that a thread holds, so a function should not mix them.
    """
    shape, pack = step.op.operands[0].type.shape, step.op.integer("pack", 1)
    arrays = [part for lanes in inputs for part in _packs(lanes.full(shape), pack)]
    rows = [lanes.row for lanes in inputs for _ in range(pack)]
    combine = _Region(machine, step, rows)
    kinds = [row for row in step.rows if row is not None]  # all of them: numbers, not tokens
    storages = [row.storage for row in kinds for _ in range(pack)]
    inside = arrays[0].shape
    try:
        made = combine.of([Lanes(a, r) for a, r in zip(arrays, rows, strict=True)], inside, storages)
    except NotOneValue:
        made = [np.empty(inside, storage) for storage in storages]
        for place in range(inside[0]):
            one = [Lanes(a[place : place + 1], r) for a, r in zip(arrays, rows, strict=True)]
            for result, value in zip(made, combine.of(one, (1,), storages), strict=True):
                result[place] = value.item()
    labels = joined(*(lanes.full_labels(shape) for lanes in inputs))
    if labels is not None and pack > 1:
        labels = labels.reshape(-1, pack).max(-1).repeat(pack).reshape(shape)
    if combine.labels is not None:
        labels = joined(labels, np.full(shape, combine.labels[0], KIND))
    results = [np.stack(made[i : i + pack], -1).reshape(shape) for i in range(0, len(made), pack)]
    return tuple(Lanes(each, row, labels) for each, row in zip(results, kinds, strict=True))


def _packs(data: np.ndarray, pack: int) -> list[np.ndarray]:
    """Every ``pack``-th element in a row, from the first, from the second, and so on."""
    return list(np.ascontiguousarray(data.reshape(-1, pack).T))


def _fold(combine: Combine, arrays: Arrays) -> Arrays:
    """Combine all elements of the last axis into one, neighbors first."""
    while arrays[0].shape[-1] > 1:
        arrays = combine([a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays])
    return [a[..., 0] for a in arrays]


def _fold_halves(combine: Combine, arrays: Arrays) -> Arrays:
    """All elements of the last axis in one: the first half with the second, as a warp's shuffles do."""
    while (size := arrays[0].shape[-1]) > 1:
        arrays = combine([a[..., : size // 2] for a in arrays], [a[..., size // 2 :] for a in arrays])
    return [a[..., 0] for a in arrays]


def _fold_swapped(combine: Combine, arrays: Arrays) -> Arrays:
    """As `_fold_halves`, with the second half first: the order of threads isn't that of the elements."""
    return _fold_halves(lambda left, right: combine(right, left), arrays)


def _prefixes(combine: Combine, arrays: Arrays) -> Arrays:
    """Each element combined with all before it: first within its warp, then with the warps before."""
    if arrays[0].shape[-1] <= LANES:
        return _prefixes_of_a_warp(combine, arrays)
    apart = _prefixes_of_a_warp(combine, [a.reshape(*a.shape[:-1], -1, LANES) for a in arrays])
    totals = _prefixes_of_a_warp(combine, [a[..., -1] for a in apart])
    # The first warp has none before it; what it computes is thrown away.
    before = [
        np.broadcast_to(np.roll(t, 1, -1)[..., None], a.shape) for t, a in zip(totals, apart, strict=True)
    ]
    together = combine(before, apart)
    return [
        np.concatenate([a[..., :1, :], j[..., 1:, :]], -2).reshape(whole.shape)
        for a, j, whole in zip(apart, together, arrays, strict=True)
    ]


def _prefixes_of_a_warp(combine: Combine, arrays: Arrays) -> Arrays:
    """Hillis and Steele, Data parallel algorithms (CACM 29(12), 1986)."""
    step = 1
    while step < arrays[0].shape[-1]:
        # The first lanes have nobody at that distance; what they compute is thrown away.
        left = [np.concatenate([a[..., :step], a[..., :-step]], -1) for a in arrays]
        new = combine(left, arrays)
        arrays = [
            np.concatenate([a[..., :step], n[..., step:]], -1) for a, n in zip(arrays, new, strict=True)
        ]
        step *= 2
    return arrays


def _is_associative(combine: Combine, arrays: Arrays) -> bool:
    """Return whether other brackets make no big difference for any three neighbors (in a ring)."""
    one, two, three = ([np.roll(a, -n, -1) for a in arrays] for n in range(3))
    with_left, with_right = combine(combine(one, two), three), combine(one, combine(two, three))
    return all(_are_close(*parts) for parts in zip(with_left, with_right, one, two, three, strict=True))


def _is_commutative(combine: Combine, arrays: Arrays) -> bool:
    """Return whether swapping two neighbors makes no big difference."""
    after = [np.roll(a, -1, -1) for a in arrays]
    return all(
        _are_close(*parts)
        for parts in zip(combine(arrays, after), combine(after, arrays), arrays, strict=True)
    )


def _are_close(one: np.ndarray, other: np.ndarray, *values: np.ndarray) -> bool:
    if one.dtype.kind in "iub":
        return bool((one == other).all())
    left, right, *rest = (part.astype(np.float64) for part in (one, other, *values))
    size = abs(left) + abs(right) + sum(map(abs, rest))
    return not (abs(left - right) > GREAT * size).any()  # NaN, which undefined lanes hold, is no difference


def _by_blocks_or_elements(method: Callable[..., Any], combine: Combine, arrays: Arrays) -> Any:
    """A combine function may branch on its values; then it is called element by element."""
    try:
        return method(combine, arrays)
    except NotOneValue:

        def one_by_one(left: Arrays, right: Arrays) -> Arrays:
            results = [np.empty_like(a) for a in left]
            for place in np.ndindex(left[0].shape):
                one = combine([a[place][None] for a in left], [a[place][None] for a in right])
                for result, value in zip(results, one, strict=True):
                    result[place] = value.item()
            return results

        return method(one_by_one, arrays)


def _numpy(table: dict[str, Any], name: str, row: DType) -> Any:
    """NumPy's equivalent of a combine function, where the dtype and the values allow it."""
    if name not in table or row.code:
        return None
    if name == "_sum_combine" and row.storage.kind in "bf" and row.storage.itemsize < 4:
        return None
    return table[name]


def _undecided(name: str, row: DType, values: np.ndarray) -> np.ndarray | None:
    """Return where it's unknown which element a search along the last axis finds; None if it is known."""
    if name not in _SEARCHES or not row.is_float:
        return None
    wild = np.isnan(row.widen(values)).any(-1)
    return np.atleast_1d(wild) if wild.any() else None
