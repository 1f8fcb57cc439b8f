"""Make hard inputs, which break kernels that are correct on random numbers.

Each variant changes one tensor of the call, or one size. Integer tensors keep what the caller gave: they may
be indices, lengths or page tables.
"""

import inspect
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from puzzles_lib.auditor.blocks import are_offsets, axes, counts, listed, together
from puzzles_lib.auditor.guard import Guard
from puzzles_lib.auditor.reference import kept

INF = float("inf")
TRANSPOSED = "transposed in memory"


class Variant:
    """Other inputs for a call. name: such as ``"x: a row of zeros"``. kind: what is hard about them.

    size: the size in the call that was replaced; 0 if none was.
    usual: False if the new size is special, such as 1.
    """

    def __init__(
        self, kind: str, name: str, args: tuple, kwargs: dict[str, Any], size: int = 0, usual: bool = True
    ):
        self.kind, self.name, self.args, self.kwargs = kind, name, args, kwargs
        self.size, self.usual = size, usual

    @property
    def has_strides(self) -> bool:
        """Whether a tensor isn't contiguous."""
        return self.kind == "layout"

    @property
    def is_given(self) -> bool:
        """Whether the caller has chosen the value, with ``vary=``."""
        return self.kind == "vary"

    @property
    def is_vector(self) -> bool:
        """Whether a tensor with one axis isn't contiguous."""
        return self.kind == "layout" and ": elements of " in self.name

    @property
    def is_tiny(self) -> bool:
        """Whether results may be far smaller than the values that a kernel adds up to get them."""
        return self.name.endswith(("tiny values", "denormal values"))

    @property
    def makes_ties(self) -> bool:
        """Whether different values may become equal, so that more than one of them is the largest."""
        return not self.is_finite or self.name.endswith("huge values")

    @property
    def has_infinities(self) -> bool:
        return self.kind == "value" and "inf" in self.name.split(": ")[-1]

    @property
    def has_nan(self) -> bool:
        return self.kind == "value" and "NaN" in self.name.split(": ")[-1]

    @property
    def is_finite(self) -> bool:
        """Whether all values are finite, except those that the label names."""
        return not (self.has_infinities or self.has_nan)


def _whole(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda tensor: torch.full_like(tensor, value)


def _row(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.select(0, tensor.shape[0] // 2).fill_(value) if tensor.dim() else changed.fill_(value)
        return changed

    return change


def _one(value: float) -> Callable[[torch.Tensor], torch.Tensor]:
    def change(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone().contiguous()
        changed.view(-1)[changed.numel() * 2 // 3] = value
        return changed

    return change


def _huge(tensor: torch.Tensor) -> torch.Tensor:
    """Values whose squares can be added up: for float16, in float32."""
    largest = torch.finfo(tensor.dtype).max
    count = 1 if tensor.dtype == torch.float16 else max(tensor.numel(), 1)
    return tensor * (math.sqrt(largest / count) / 4)


def _tiny(tensor: torch.Tensor) -> torch.Tensor:
    return tensor * math.sqrt(torch.finfo(tensor.dtype).tiny)


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor - 1000


def _ties(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.round().clamp(-1, 1)


VALUES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all zeros": _whole(0.0),
    "a row of zeros": _row(0.0),
    "a row of -inf": _row(-INF),
    "all -inf": _whole(-INF),
    "one inf": _one(INF),
    "one -inf": _one(-INF),
    "one NaN": _one(float("nan")),
    "huge values": _huge,
    "tiny values": _tiny,
    "values near -1000": _shifted,
    "many ties": _ties,
    "denormal values": lambda t: torch.full_like(t, torch.finfo(t.dtype).tiny / 8),
}


def _padded(tensor: torch.Tensor) -> torch.Tensor:
    """Rows that lie further apart than they are long."""
    *rows, columns = tensor.shape
    wider = torch.full((*rows, columns + 16), float("nan"), dtype=tensor.dtype)
    wider[..., :columns] = tensor
    return wider[..., :columns]


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    """The last two axes are transposed in memory."""
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    """One row, with stride 0."""
    return tensor[:1].clone().expand(tensor.shape)


def _spread(tensor: torch.Tensor) -> torch.Tensor:
    """A vector whose elements lie two apart."""
    wider = torch.full((2 * len(tensor),), float("nan"), dtype=tensor.dtype)
    wider[::2] = tensor
    return wider[::2]


_ROWS, _VECTOR = range(2, 65), range(1, 2)  # for tensors of how many axes
LAYOUTS: Mapping[str, tuple[range, Callable[[torch.Tensor], torch.Tensor]]] = {
    "padded rows": (_ROWS, _padded),
    TRANSPOSED: (_ROWS, _turned),
    "rows of stride 0": (_ROWS, _repeated),
    "elements of stride 2": (_VECTOR, _spread),
    "elements of stride 0": (_VECTOR, _repeated),
}


def variants(
    function: Callable,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    stored: set[int],
    others: Mapping[str, Sequence[Any]],
    guard: Guard,
) -> Iterator[Variant]:
    """Yield hard inputs for a call. Kinds that have found most faults come first.

    stored: ids of the tensors that the function changes. Nobody gives these a stride of 0.
    others: for an argument's name, other values for it.
    guard: whether to yield hard inputs as well, not only ``others``, and which tensors keep their layout.
    """
    leaves, spec = pytree.tree_flatten((tuple(args), dict(kwargs)))
    told = names(function, args, kwargs)

    def changed(place: int, value: Any) -> tuple[tuple, dict[str, Any]]:
        old = leaves[place]
        same = {place} | {n for n, leaf in enumerate(leaves) if isinstance(old, torch.Tensor) and leaf is old}
        if isinstance(old, torch.Tensor) and isinstance(value, torch.Tensor) and value.is_floating_point():
            value = value.requires_grad_(old.requires_grad or value.requires_grad)
        fresh = [value if n in same else _fresh(leaf) for n, leaf in enumerate(leaves)]
        return pytree.tree_unflatten(fresh, spec)

    floats = [
        place
        for place, leaf in enumerate(leaves)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.numel()
        if leaf.element_size() > 1
    ]  # fmt: skip
    places = list({id(leaves[place]): place for place in floats}.values())
    for name, values in others.items():
        for number, value in enumerate(values, 1):
            is_short = isinstance(value, int | float | str | None) and len(repr(value)) < 40
            label = f"{name}={value!r}" if is_short else f"value {number} of {len(values)} for {name}"
            yield Variant("vary", label, *changed(told.index(name), value))
    if not guard.hard:
        return
    for label, (axes_of, change) in LAYOUTS.items():
        for place in places:
            tensor = leaves[place]
            if not tensor.is_contiguous() or tensor.dim() not in axes_of:
                continue
            if guard.keeps_strides(told[place]):
                continue
            if label.endswith("stride 0") and (tensor.shape[0] < 2 or id(tensor) in stored):
                continue
            yield Variant("layout", f"{told[place]}: {label}", *changed(place, change(tensor.detach())))
    yield from _other_sizes(leaves, spec, told)
    yield from _other_numbers(leaves, spec, told)
    for label, change in VALUES.items():
        for place in places:
            yield Variant("value", f"{told[place]}: {label}", *changed(place, change(leaves[place].detach())))


def _other_sizes(leaves: list[Any], spec: Any, told: Sequence[str]) -> Iterator[Variant]:
    """Yield calls with one size changed wherever a tensor has it, unless an argument says it, too.

    Sizes that count its blocks change with it. A flattened tensor changes with the size that counts its rows,
    if an argument says how long they are.

    Integers in a tensor may say it: as the last offset of ragged rows, or as lengths that add up to it. There
    is one offset more than rows.
    """
    tensors, where = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], axes(leaves, told)
    said = {leaf for leaf in leaves if type(leaf) is int}
    integers = [t for t in tensors if not t.is_floating_point() and t.dtype != torch.bool]
    fixed = {n for t in integers for n in t.shape}
    largest = [int(t.max()) for t in integers if t.numel()]  # they may be indices
    fixed |= {*largest, *(int(t.sum()) for t in integers)}
    fixed |= {len(t) - 1 for t in integers if are_offsets(t)}
    known = counts(leaves)
    flat = {
        n: rows for n, rows in _flattened(tensors, said).items() if n not in fixed and rows[0] not in known
    }
    for size in dict.fromkeys(n for t in tensors for n in t.shape if n > 1):
        if size in known or size in flat or (said | fixed) & together(size, 0, known).keys():
            continue
        power = 1 << (size - 1).bit_length()
        for other in dict.fromkeys((power + 1, power, power - 1, 1, 0)):
            replaced = together(size, other, known)
            replaced |= {n: replaced[rows] * row for n, (rows, row) in flat.items() if rows in replaced}
            if other == size or any(new <= i < old for old, new in replaced.items() for i in largest):
                continue
            fresh = _all_resized(leaves, replaced)
            name = listed([f"{where[old]} = {new}" for old, new in replaced.items()])
            given, named = pytree.tree_unflatten(fresh, spec)
            yield Variant("size", name, given, named, size, other > 1)


def _flattened(tensors: Sequence[torch.Tensor], said: Collection[int]) -> dict[int, tuple[int, int]]:
    """Return sizes of flattened tensors, each with how many rows they have, and how long these are.

    An argument says the length, another size counts the rows, and only tensors with one axis have the whole.
    """
    sizes = {n for t in tensors for n in t.shape if n > 1}
    others = {n for t in tensors if t.dim() != 1 for n in t.shape}
    return {n * rows: (rows, n) for n in said if n > 1 for rows in sizes if n * rows in sizes - others}


def _other_numbers(leaves: list[Any], spec: Any, told: Sequence[str]) -> Iterator[Variant]:
    """Yield calls with another length of the rows of a flattened tensor, wherever an argument says it."""
    tensors, where = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)], axes(leaves, told)
    sizes = {n for t in tensors for n in t.shape if n > 1}
    integers = [t for t in tensors if not t.is_floating_point() and t.dtype != torch.bool and t.numel()]
    largest = {int(t.max()) for t in integers} | {int(t.sum()) for t in integers}
    fixed = sizes | largest
    said = [leaf for leaf in leaves if type(leaf) is int]
    for place, number in enumerate(leaves):
        if type(number) is not int or number in fixed or said.count(number) > 1:
            continue
        flat = {n: rows for n, (rows, row) in _flattened(tensors, said).items() if row == number}
        power = 1 << (number - 1).bit_length()
        for other in dict.fromkeys((power + 1, power, power - 1)):
            if other in (number, 1) or not flat or largest & flat.keys():
                continue
            replaced = {size: other * rows for size, rows in flat.items()}
            fresh = _all_resized(leaves, replaced)
            fresh[place] = other
            resized = [f"{where[old]} = {new}" for old, new in replaced.items()]
            name = listed([f"{told[place]}={other}", *resized])
            yield Variant("size", name, *pytree.tree_unflatten(fresh, spec))


def _all_resized(leaves: Sequence[Any], replaced: Mapping[int, int]) -> list[Any]:
    """Return arguments with another size along each axis of a size that is replaced.

    Tensors have values like those they had. Floats that come again are a little smaller, by other factors in
    each tensor, so that there are no ties.
    """
    generator = torch.Generator().manual_seed(0)
    return [
        _resized(each, replaced, generator) if isinstance(each, torch.Tensor) else each for each in leaves
    ]


def _resized(tensor: torch.Tensor, replaced: Mapping[int, int], generator: torch.Generator) -> torch.Tensor:
    found = tensor.detach()
    for axis, size in enumerate(tensor.shape):
        if (other := replaced.get(size, size)) != size:
            found = found.index_select(axis, torch.arange(other) % size)
            if found.is_floating_point() and found.element_size() > 1 and other > size:
                again = found.narrow(axis, size, other - size)
                again.mul_(1 - torch.rand(again.shape, generator=generator).to(again.dtype) / 4)
    made = found.contiguous().clone() if found.data_ptr() == tensor.data_ptr() else found.contiguous()
    return made.requires_grad_(tensor.requires_grad)


def _fresh(leaf: Any) -> Any:
    return kept(leaf) if isinstance(leaf, torch.Tensor) else leaf


def names(function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[str]:
    """Return a name for each leaf of the arguments, from the function's parameters."""
    try:
        own = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        own = []
    given = [(own[place] if place < len(own) else f"argument {place}", v) for place, v in enumerate(args)]
    found = []
    for name, value in [*given, *kwargs.items()]:
        count = len(pytree.tree_leaves(value))
        found += [name + (f"[{n}]" if count > 1 else "") for n in range(count)]
    return found
