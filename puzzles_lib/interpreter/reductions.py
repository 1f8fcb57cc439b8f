"""``tl.reduce`` and ``tl.associative_scan``, in a tree as on a GPU.

Triton's interpreter sums bfloat16 by its raw bits, rounds float16 once where a GPU rounds at every step,
and calls a combine function once per element. Here the function is called on whole halves: each call
combines all neighbouring pairs, so 1024 elements take ten calls.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import triton.language as tl
from triton.language import standard
from triton.runtime.interpreter import TensorHandle
from triton.runtime.jit import JITFunction

from puzzles_lib.dtypes import of_triton
from puzzles_lib.interpreter import taint
from puzzles_lib.interpreter.rewrite import NotOneValue
from puzzles_lib.interpreter.taint import Labels

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
_AMONG_NAN = "NaN is neither larger nor smaller: which element is found depends on the order of comparing"
_ARG = {"_argmax_combine_tie_break_left": np.max, "_argmin_combine_tie_break_left": np.min}


def reduce(
    twin: Callable,
    as_dot: Callable,
    label: Callable[[str], int],
    input,
    axis,
    combine_fn,
    keep_dims=False,
    **_,
):
    """As ``tl.reduce``; ``twin`` turns a ``@triton.jit`` function into one that executes.

    as_dot: gives the sum of a block along an axis where the compiler makes it a dot, else None.
    label: gives the label of what is undefined, in words.
    """
    inputs = input if isinstance(input, tuple | list | tl.tuple) else (input,)
    axis, keep_dims = _plain(axis), _plain(keep_dims)
    arrays = [t.handle.data for t in inputs]
    rank = arrays[0].ndim
    _check_axis(axis, rank)
    arrays = [_last(a, axis) for a in arrays]
    found = taint.joined(*(taint.labels(t.handle) for t in inputs))
    labels = taint.folded(None if found is None else _last(found, axis))
    undecided = _undecided(combine_fn, inputs[0].dtype, arrays[0])
    if undecided is not None:
        labels = taint.joined(labels, taint.where(undecided, label(_AMONG_NAN)))
    if ufunc := _numpy(_REDUCE, combine_fn, inputs):
        dot = as_dot(inputs[0].handle, axis) if ufunc is np.add else None
        results = [ufunc.reduce(arrays[0], axis=-1, dtype=arrays[0].dtype) if dot is None else dot]
    elif best := _numpy(_ARG, combine_fn, inputs):
        values, index = arrays
        value = best(values, -1)
        last = np.iinfo(index.dtype).max
        results = [value, np.where(values == value[..., None], index, last).min(-1)]
    else:
        results = _by_blocks_or_elements(_fold, _combine(twin, combine_fn, inputs), arrays)
    if keep_dims:
        places = tuple(range(rank)) if axis is None else axis
        results = [np.expand_dims(r, places) for r in results]
        labels = None if labels is None else np.expand_dims(labels, places)
    return _tensors(results, inputs, input, labels)


def _last(array: np.ndarray, axis: int | None) -> np.ndarray:
    return array.reshape(-1) if axis is None else np.moveaxis(array, axis, -1)


def scan(twin: Callable, tell: Callable[[], None], input, axis, combine_fn, reverse=False, **_):
    """As ``tl.associative_scan``. tell: is called where combine_fn is not associative on these values."""
    inputs = input if isinstance(input, tuple | list | tl.tuple) else (input,)
    axis, step = _plain(axis), -1 if _plain(reverse) else 1
    _check_axis(axis, inputs[0].handle.data.ndim)
    arrays = [np.moveaxis(t.handle.data, axis, -1)[..., ::step] for t in inputs]
    if ufunc := _numpy(_SCAN, combine_fn, inputs):
        results = [ufunc.accumulate(arrays[0], axis=-1, dtype=arrays[0].dtype)]
    else:
        combine = _combine(twin, combine_fn, inputs)
        results = _by_blocks_or_elements(_prefixes, combine, arrays)
        if not _by_blocks_or_elements(_is_associative, combine, arrays):
            tell()
    labels = taint.joined(*(taint.labels(t.handle) for t in inputs))
    if labels is not None:
        labels = np.maximum.accumulate(np.moveaxis(labels, axis, -1)[..., ::step], -1)
        labels = np.moveaxis(labels[..., ::step], -1, axis)
    return _tensors([np.moveaxis(r[..., ::step], -1, axis) for r in results], inputs, input, labels)


def map_elementwise(twin: Callable, function: JITFunction, *args: tl.tensor, pack: int = 1) -> object:
    """As ``tl.map_elementwise``."""
    if _plain(pack) != 1:
        raise NotImplementedError("tl.map_elementwise with pack runs on a GPU only")
    run, dtypes = twin(function), [t.dtype for t in args]
    arrays = np.broadcast_arrays(*(t.handle.data for t in args))
    shape = arrays[0].shape
    labels = taint.joined(*(taint.labels(t.handle) for t in args))

    def results_of(parts: Arrays) -> tuple[tl.tensor, ...]:
        results = run(*map(_tensor, parts, dtypes))
        return tuple(results) if isinstance(results, tuple | tl.tuple) else (results,)

    try:
        made = results_of(arrays)
    except NotOneValue:
        ones = [results_of([a[place][None] for a in arrays]) for place in np.ndindex(shape)]
        made = tuple(
            _tensor(np.array([r.handle.data.item() for r in each], each[0].handle.data.dtype), each[0].dtype)
            for each in zip(*ones, strict=True)
        )
    blocks = []
    for each in made:
        data = each.handle.data
        data = data.reshape(shape) if data.size > 1 else np.full(shape, data.item(), data.dtype)
        blocks.append(_tensor(data, each.dtype))
        taint.mark(blocks[-1].handle, labels)
    return blocks[0] if len(blocks) == 1 else tuple(blocks)


def _fold(combine: Combine, arrays: Arrays) -> Arrays:
    """All elements of the last axis in one, neighbours first."""
    while arrays[0].shape[-1] > 1:
        arrays = combine([a[..., 0::2] for a in arrays], [a[..., 1::2] for a in arrays])
    return [a[..., 0] for a in arrays]


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
    joined = combine(before, apart)
    return [
        np.concatenate([a[..., :1, :], j[..., 1:, :]], -2).reshape(whole.shape)
        for a, j, whole in zip(apart, joined, arrays, strict=True)
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
    """Whether it makes no great difference where the brackets stand, for any three neighbours (in a ring)."""
    one, two, three = ([np.roll(a, -n, -1) for a in arrays] for n in range(3))
    with_left, with_right = combine(combine(one, two), three), combine(one, combine(two, three))
    for parts in zip(one, two, three, with_left, with_right, strict=True):
        *values, left, right = (part.astype(np.float64) for part in parts)
        size = abs(left) + abs(right) + sum(map(abs, values))
        if (abs(left - right) > GREAT * size).any():  # NaN, which undefined lanes hold, is no difference
            return False
    return True


def _by_blocks_or_elements(method: Callable, combine: Combine, arrays: Arrays) -> Any:
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


def _combine(twin: Callable, function: JITFunction, inputs: tuple[tl.tensor, ...]) -> Combine:
    run = twin(function)

    def combine(left: Arrays, right: Arrays) -> Arrays:
        results = run(
            *(_tensor(a, t.dtype) for side in (left, right) for a, t in zip(side, inputs, strict=True))
        )
        results = results if isinstance(results, tuple | tl.tuple) else (results,)
        shape = left[0].shape
        return [
            np.broadcast_to(r.handle.data, shape).astype(a.dtype) for r, a in zip(results, left, strict=True)
        ]

    return combine


def _numpy(
    table: dict[str, Callable], function: JITFunction, inputs: tuple[tl.tensor, ...]
) -> Callable | None:
    """NumPy's equivalent of a combine function, where the dtype and the values allow it."""
    name = function.__name__
    if name not in table or getattr(standard, name, None) is not function:
        return None
    dtype = inputs[0].dtype
    if of_triton(dtype).code or (name == "_sum_combine" and (dtype.is_fp16() or dtype.is_bool())):
        return None
    return table[name]


def _undecided(function: JITFunction, dtype: tl.dtype, values: np.ndarray) -> np.ndarray | None:
    """Where nobody knows which element along the last axis a search finds; None where that is known."""
    if function.__name__ not in _SEARCHES or getattr(standard, function.__name__, None) is not function:
        return None
    code = of_triton(dtype).code
    wild = np.isnan(code.widen(values) if code else values).any(-1) if dtype.is_floating() else None
    return None if wild is None or not wild.any() else np.atleast_1d(wild)


def _tensor(data: np.ndarray, dtype: tl.dtype) -> tl.tensor:
    if data.ndim == 0:
        return tl.tensor(TensorHandle(data.reshape(1), dtype), dtype)
    return tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(data.shape)))


def _tensors(results: Arrays, inputs: tuple[tl.tensor, ...], like: object, labels: Labels) -> object:
    made = tuple(_tensor(np.asarray(r), t.dtype) for r, t in zip(results, inputs, strict=True))
    for each in made:
        taint.mark(each.handle, labels)
    return made if isinstance(like, tuple | list | tl.tuple) else made[0]


def _plain(value: object) -> object:
    value = value.value if isinstance(value, tl.constexpr) else value
    return int(value) if isinstance(value, tl.tensor) else value


def _check_axis(axis: int | None, rank: int) -> None:
    if axis is not None and not -rank <= axis < rank:
        raise ValueError(f"axis {axis} of a block that has {rank}")
