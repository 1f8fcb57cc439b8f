"""Which lanes of a block are undefined, and why: labels that every operation hands on.

A label is 0 for a lane that is defined, else it stands for the source of what is undefined there; of two
sources a lane keeps the one that the run met first. A block without labels is defined everywhere, and
costs nothing but the question.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import triton.language as tl
from triton._C.libtriton import ir
from triton.runtime.interpreter import TensorHandle

from puzzles_lib.dtypes import of_triton

KEY = "undefined"  # of a handle's attributes
KIND = np.int16
MOST = np.iinfo(KIND).max  # the first source's label; later ones are smaller
ORDER = 1000  # labels below are of lanes that are defined, but in an order that is not

Labels = np.ndarray | None
Rule = Callable[..., Labels]


def labels(handle: object) -> Labels:
    """A block's labels; None where all of it is defined."""
    return handle.attr.get(KEY) if isinstance(handle, TensorHandle) else None


def numbers(found: Labels) -> Labels:
    """Labels as numbers of sources in the order in which the run met them, from 1."""
    if found is None:
        return None
    found = found.astype(np.int32)
    return np.where(found == 0, 0, np.where(found >= ORDER, MOST + 1 - found, ORDER - found))


def mark(handle: TensorHandle, found: Labels) -> TensorHandle:
    """Give a new block its labels."""
    if found is not None and found.any():
        handle.attr[KEY] = np.broadcast_to(found, handle.data.shape)
    return handle


def joined(*parts: Labels) -> Labels:
    """The labels of what depends on all of these."""
    some = [part for part in parts if part is not None]
    return functools.reduce(np.maximum, some) if some else None


def where(condition: np.ndarray, found: Labels | int) -> Labels:
    """These labels in some lanes, the others defined."""
    return None if found is None else np.where(condition, found, 0).astype(KIND, copy=False)


def handles(values: object) -> Iterator[TensorHandle]:
    """The blocks among an operation's arguments, also those in lists."""
    for value in values:
        if isinstance(value, TensorHandle):
            yield value
        elif isinstance(value, list | tuple):
            yield from handles(value)


# ---- rules: from a builder's operation and its arguments to the labels of its result


def elementwise(builder: Any, *args: Any) -> Labels:
    return joined(*(labels(handle) for handle in handles(args)))


def select(builder: Any, condition: TensorHandle, left: TensorHandle, right: TensorHandle) -> Labels:
    """The side chosen, and the condition."""
    sides = where(condition.data, labels(left)), where(~condition.data, labels(right))
    return joined(labels(condition), *sides)


def absorbing(settles: Callable[[np.ndarray], np.ndarray]) -> Rule:
    """A rule for operations that one operand can settle alone, such as ``x & 0``."""

    def rule(builder: Any, left: TensorHandle, right: TensorHandle) -> Labels:
        found = []
        for one, other in ((left, right), (right, left)):
            if labels(one) is None:
                continue
            settled = settles(other.data)
            if labels(other) is not None:
                settled = settled & (labels(other) == 0)
            found.append(where(~settled, labels(one)))
        return joined(*found)

    return rule


def is_zero(data: np.ndarray) -> np.ndarray:
    return data == 0


def is_all_ones(data: np.ndarray) -> np.ndarray:
    return data if data.dtype == bool else ~data == 0


def dot(builder: Any, left: TensorHandle, right: TensorHandle, start: TensorHandle, *_: Any) -> Labels:
    """Rows and columns; of integers only where the other factor is not 0."""
    rows, columns = labels(left), labels(right)
    if start.data.dtype.kind not in "iu":
        rows = None if rows is None else rows.max(-1, keepdims=True)
        columns = None if columns is None else columns.max(-2, keepdims=True)
    else:
        counts = [
            h.data != 0 if labels(h) is None else (h.data != 0) | (labels(h) > 0) for h in (left, right)
        ]
        if rows is not None:
            rows = (rows[..., :, :, None] * counts[1][..., None, :, :]).max(-2)
        if columns is not None:
            columns = (counts[0][..., :, :, None] * columns[..., None, :, :]).max(-2)
    return joined(labels(start), rows, columns)


def dot_scaled(
    builder: Any, left: TensorHandle, left_scale: TensorHandle | None, left_kind: Any,
    right: TensorHandle, right_scale: TensorHandle | None, right_kind: Any, fast: Any,
    left_packs_k: bool, right_packs_k: bool, start: TensorHandle,
) -> Labels:  # fmt: skip
    """Rows and columns, with their scales."""
    found = [labels(start)]
    for block, axis in ((left, -1), (left_scale, -1), (right, -2), (right_scale, -1)):
        of_it = labels(block)
        if of_it is None:
            continue
        of_it = of_it.max(axis, keepdims=True)
        if block is right_scale:
            of_it = np.swapaxes(of_it, -1, -2)
        for place in (-1, -2):  # two of fp4 in a byte
            if of_it.shape[place] not in (1, start.data.shape[place]):
                of_it = np.repeat(of_it, 2, place)
        found.append(of_it)
    return joined(*found)


def folded(found: Labels) -> Labels:
    """What a reduction along the last axis makes of labels; that of a whole block needs no order."""
    if found is None:
        return None
    result = found.max(-1)
    return where(result >= ORDER, result) if found.ndim == 1 else result


def cat(builder: Any, left: TensorHandle, right: TensorHandle) -> Labels:
    moved = np.concatenate([_relabelled(h).data for h in (left, right)])[::-1]
    return joined(moved, builder.memory.label("tl.cat keeps no order: use tl.join", order=True))


def reshape(builder: Any, arg: TensorHandle, shape: list[int], can_reorder: bool) -> Labels:
    if not can_reorder:
        return None if labels(arg) is None else labels(arg).reshape(shape)
    moved = _relabelled(arg).data.reshape(shape)
    return joined(
        moved.ravel()[::-1].reshape(shape),
        builder.memory.label("tl.reshape with can_reorder=True keeps no order", order=True),
    )


def histogram(builder: Any, data: TensorHandle, bins: int, mask: TensorHandle | None) -> Labels:
    """A value that is undefined may count in any bin, and so may one that has none."""
    on = np.ones(data.data.shape, bool) if mask is None else mask.data
    found = joined(labels(data), None if mask is None else labels(mask))
    found = where(on, found)
    worst = folded(found)
    if (on & ((data.data < 0) | (data.data >= bins))).any() and not worst:
        worst = builder.memory.label("values outside of tl.histogram's bins count anywhere")
    return np.array([worst], KIND) if worst else None


def shift(builder: Any, value: TensorHandle, by: TensorHandle) -> Labels:
    found = elementwise(builder, value, by)
    bits = 8 * value.data.itemsize
    wild = by.data.view(f"u{bits // 8}") >= bits
    if wild.any():
        what = f"a shift of {bits} bits by {int(by.data[wild].flat[0])} is undefined"
        found = joined(found, where(wild, builder.memory.label(what)))
    return found


def clamp(builder: Any, value: TensorHandle, low: TensorHandle, high: TensorHandle, nan: Any) -> Labels:
    found = elementwise(builder, value, low, high)
    code = of_triton(value.dtype.scalar).code
    wild = np.isnan(code.widen(value.data) if code else value.data)
    if nan != ir.PROPAGATE_NAN.ALL and wild.any():
        what = "tl.clamp of NaN is the one limit or the other; propagate_nan=tl.PropagateNan.ALL keeps it NaN"
        found = joined(found, where(wild, builder.memory.label(what)))
    return found


def to_integer(builder: Any, value: TensorHandle, dtype: tl.dtype) -> Labels:
    found = labels(value)
    row = of_triton(value.dtype.scalar)
    target = dtype.scalar
    limits = np.iinfo(of_triton(target).storage)
    floats = row.code.widen(value.data) if row.code else value.data
    fits = (floats > limits.min - 1.0) & (floats < limits.max + 1.0)  # NaN does not
    if not fits.all():
        what = f"{floats[~fits].flat[0]:.6g} is cast to {target}, which holds {limits.min} to {limits.max}"
        found = joined(found, where(~fits, builder.memory.label(what)))
    return found


def division(builder: Any, value: TensorHandle, by: TensorHandle) -> Labels:
    found = elementwise(builder, value, by)
    wild = by.data == 0
    if wild.any():
        found = joined(found, where(wild, builder.memory.label("an integer divided by 0 is undefined")))
    return found


def gather(builder: Any, source: TensorHandle, indices: TensorHandle, axis: int) -> Labels:
    found = labels(indices)
    size = source.data.shape[axis]
    wild = (indices.data < 0) | (indices.data >= size)
    if labels(source) is not None:
        places = np.clip(indices.data, 0, size - 1)
        found = joined(found, np.take_along_axis(labels(source), places, axis))
    if wild.any():
        what = f"tl.gather with index {int(indices.data[wild].flat[0])} of {size} is undefined"
        found = joined(found, where(wild, builder.memory.label(what)))
    return found


# ---- which rule is whose

_MOVING = (
    "broadcast",
    "expand_dims",
    "flip",
    "join",
    "splat",
    "split",
    "trans",
    "unsplat",
)
_OWN = (  # these see to labels themselves
    "atomic_cas",
    "atomic_rmw",
    "descriptor_gather",
    "descriptor_load",
    "descriptor_reduce",
    "descriptor_scatter",
    "descriptor_store",
    "load",
    "masked_load",
    "masked_store",
    "print",
    "store",
    "tensor_pointer_load",
    "tensor_pointer_store",
)
_NEEDING = (  # addresses, and what the kernel asserts, must be defined
    "advance",
    "assert",
    "assume",
    "make_block_ptr",
    "make_tensor_descriptor",
)
_RULES: dict[str, Rule] = {
    "and": absorbing(is_zero),
    "dot": dot,
    "dot_scaled": dot_scaled,
    "mul": absorbing(is_zero),
    "or": absorbing(is_all_ones),
    "select": select,
}
_MAKING: dict[str, Rule] = {  # what they make of defined values may be undefined
    "cat": cat,
    "clampf": clamp,
    "fp_to_si": to_integer,
    "fp_to_ui": to_integer,
    "gather": gather,
    "histogram": histogram,
    "sdiv": division,
    "srem": division,
    "udiv": division,
    "urem": division,
    "ashr": shift,
    "lshr": shift,
    "reshape": reshape,
    "shl": shift,
}


def tracked(builder: type) -> type:
    """A builder's class whose every operation hands labels on."""
    for name in dir(builder):
        operation = name.removeprefix("create_")
        if operation == name or operation in _OWN:
            continue
        method = getattr(builder, name)
        if operation in _MOVING:
            made = _moving(method)
        elif operation in _NEEDING:
            made = _needing(method)
        elif operation in _MAKING:
            made = _marking(method, _MAKING[operation])
        else:
            made = _marking_later(method, _RULES.get(operation, elementwise))
        setattr(builder, name, made)
    return builder


def _marking(method: Callable, rule: Rule) -> Callable:
    @functools.wraps(method)
    def call(self, *args):
        result = method(self, *args)
        mark(result, rule(self, *args))
        return result

    return call


def _marking_later(method: Callable, rule: Rule) -> Callable:
    """The same, once a run has met something undefined."""

    @functools.wraps(method)
    def call(self, *args, **kwargs):
        result = method(self, *args, **kwargs)
        if self.memory.sources:
            found = rule(self, *args)
            if found is not None and isinstance(result, TensorHandle):
                mark(result, found)
        return result

    return call


def _needing(method: Callable) -> Callable:
    @functools.wraps(method)
    def call(self, *args, **kwargs):
        for handle in handles(args):
            self.memory.use(labels(handle))
        return method(self, *args, **kwargs)

    return call


def _moving(method: Callable) -> Callable:
    """Labels move as the values do: the operation is done on them too."""

    @functools.wraps(method)
    def call(self, *args):
        result = method(self, *args)
        if self.memory.sources and any(labels(handle) is not None for handle in handles(args)):
            moved = method(self, *(_relabelled(a) if isinstance(a, TensorHandle) else a for a in args))
            pairs = zip(result, moved, strict=True) if isinstance(result, tuple) else [(result, moved)]
            for handle, found in pairs:
                mark(handle, found.data)
        return result

    return call


def _relabelled(handle: TensorHandle) -> TensorHandle:
    """The labels as a block of their own."""
    found = labels(handle)
    return TensorHandle(np.zeros(handle.data.shape, KIND) if found is None else found, tl.int16)
