"""Track which elements of `torch.empty`'s tensors were stored to, by torch or by a kernel.

A mode of torch's dispatcher sees each such tensor when it is made, and each operation that stores to one. New
tensors are filled with values that aren't plausible results. A second run fills them with other values, and
shows what depends on them.

The mode also tracks which elements may lack what a launch would store, because only some of its programs ran.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch._ops import HigherOrderOperator
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

_UPDATES = {"aten::add_", "aten::sub_", "aten::mul_", "aten::div_", "aten::clamp_", "aten::relu_"}
OVERWRITES = {"aten::zero_", "aten::fill_", "aten::copy_"}
_MADE_EMPTY = ("aten::empty", "aten::new_empty", "aten::resize_")
POISON = (0xA5, 0x5A)
FEWEST_KNOWN = 64


class WeakStorage(StorageWeakRef):
    """A weak reference to a storage. `torch.compile` makes one without a storage, and drops it again."""

    def __del__(self) -> None:
        if hasattr(self, "_free_weak_ref"):
            super().__del__()


class Notes:
    """A note on each byte of some tensors' memory: True if it holds what it should hold."""

    def __init__(self, known: Mapping[int, tuple[WeakStorage, np.ndarray]] | None = None) -> None:
        self._known = dict(known or {})
        self._forgets_at = FEWEST_KNOWN  # tensors: those that are gone are then forgotten

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> "Notes":
        """Return notes that do not change with these."""
        return Notes({place: (ref, notes.copy()) for place, (ref, notes) in self._known.items()})

    def begin(self, storage: torch.UntypedStorage) -> None:
        """Note that no byte of a storage holds what it should."""
        if len(self._known) >= self._forgets_at:
            self._known = {place: known for place, known in self._known.items() if not known[0].expired()}
            self._forgets_at = max(2 * len(self._known), FEWEST_KNOWN)
        self._known[storage.data_ptr()] = WeakStorage(storage), np.zeros(storage.nbytes(), bool)

    def _of(self, tensor: torch.Tensor) -> np.ndarray | None:
        """The notes on a tensor's storage, byte by byte; None if all of it is as it should be."""
        if not self._known or (storage := memory_of(tensor)) is None:
            return None
        known = self._known.get(storage.data_ptr())
        if known is None:
            return None
        if known[0].expired() or known[0].cdata != storage._cdata or len(known[1]) != storage.nbytes():
            del self._known[storage.data_ptr()]
            return None
        return known[1]

    def set(self, tensor: torch.Tensor, which: np.ndarray | None = None, to: bool = True) -> None:
        """Note that elements of a tensor hold what they should. which: bool by flat index; None for all.

        to: False if they do not.
        """
        notes = self._of(tensor)
        if notes is None and not to and (storage := memory_of(tensor)) is not None and tensor.numel():
            self.begin(storage)
            notes = self._of(tensor)
            assert notes is not None
            notes[:] = True
        if notes is None or not tensor.numel():
            return
        size = tensor.element_size()
        if tensor.is_contiguous():
            first = tensor.storage_offset() * size
            mine = notes[first : first + tensor.numel() * size].reshape(-1, size)
            mine[slice(None) if which is None else which] = to
            return
        places = places_of(tensor)
        if which is not None:
            places = places[which]
        notes[(places[:, None] * size + np.arange(size)).ravel()] = to

    def places(self, tensor: torch.Tensor) -> np.ndarray:
        """Return the notes on the places of a tensor's storage, from its first element to its last."""
        span = span_of(tensor)
        notes = self._of(tensor)
        if notes is None or not span:
            return np.ones(span, bool)
        size = tensor.element_size()
        first = tensor.storage_offset() * size
        return np.asarray(notes[first : first + span * size].reshape(span, size).all(1))

    def elements(self, tensor: torch.Tensor) -> np.ndarray | None:
        """Return the notes on a tensor's elements, by flat index; None if all are as they should be."""
        notes = self._of(tensor)
        if notes is None or not tensor.numel():
            return None
        found = self.places(tensor)
        if not tensor.is_contiguous():
            found = found[places_of(tensor) - tensor.storage_offset()]
        return None if found.all() else found


class Defined(TorchDispatchMode):
    """Follows the tensors that `torch.empty` and its relatives make while the mode is on.

    poison: the byte that integers are filled with; floats are filled with NaN, or with a large number.
    notes: which of their bytes were stored to. read: the name of the first torch operator that was given a
    tensor with undefined elements.
    computed: called with the schema, the arguments and the result of each operator.
    stored: where results of a launch may be missing. reads_missing: whether anything may have read them.
    """

    supports_higher_order_operators = True  # such as flex_attention: they are made of others

    def __init__(self, poison: int = 0, computed: Callable[..., None] | None = None) -> None:
        super().__init__()
        self.poison, self.computed = poison, computed
        self.notes, self.read = Notes(), ""
        self.stored, self.reads_missing = Notes(), False

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Leave torch's compiler alone, whose import takes seconds."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        name = func._schema.name
        schema = func._schema
        if self.notes and not self.read and _reads(self.notes, schema, args, kwargs, name not in _UPDATES):
            self.read = name.removeprefix("aten::")
        if self.stored and not self.reads_missing:
            self.reads_missing = _reads(self.stored, schema, args, kwargs, name in OVERWRITES)
        result = func(*args, **kwargs)
        if name.startswith(_MADE_EMPTY):
            if isinstance(result, torch.Tensor) and name != "aten::resize_":
                self._begin(result)
        elif func._schema.is_mutable:
            self._stored(func._schema, args, kwargs)
        if self.computed is not None:
            self.computed(schema, args, kwargs, result)
        return result

    def _begin(self, tensor: torch.Tensor) -> None:
        storage = memory_of(tensor)
        if storage is None or not storage.nbytes():
            return
        fill(tensor, self.poison)
        self.notes.begin(storage)

    def _stored(self, schema: Any, args: tuple, kwargs: Mapping[str, Any]) -> None:
        for argument, tensor in given(schema, args, kwargs):
            if is_written(argument):
                self.define(tensor)

    def missing(self) -> tuple[Notes, bool]:
        """Return what is known of results that are missing, for `set_missing`."""
        return self.stored.copy(), self.reads_missing

    def set_missing(self, stored: Notes, reads: bool) -> None:
        """Forget what is known since then."""
        self.stored, self.reads_missing = stored.copy(), reads

    def define(self, tensor: torch.Tensor, which: np.ndarray | None = None) -> None:
        """Note that elements of a tensor have been stored to. which: bool by flat index; None for all."""
        self.notes.set(tensor, which)
        self.stored.set(tensor, which)

    def places(self, tensor: torch.Tensor) -> np.ndarray:
        """Return which places of a tensor's storage were stored to, from its first element to its last."""
        return self.notes.places(tensor)

    def elements(self, tensor: torch.Tensor) -> np.ndarray | None:
        """Return which elements were stored to, by flat index; None if all were."""
        return self.notes.elements(tensor)


def _reads(notes: Notes, schema: Any, args: tuple, kwargs: Mapping[str, Any], overwrites: bool) -> bool:
    """Whether an operator reads elements that aren't as they should be. One that returns a view takes none.

    overwrites: whether the operator stores to its results without a look at what they were.
    """
    if any(result.alias_info is not None for result in schema.returns) and not schema.is_mutable:
        return False
    return any(
        notes.elements(tensor) is not None
        for argument, tensor in given(schema, args, kwargs)
        if not (overwrites and is_written(argument))
    )


def given(schema: Any, args: tuple, kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, torch.Tensor]]:
    """Yield each tensor that an operator gets, after the argument that the operator's schema has for it."""
    for place, argument in enumerate(schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, list | tuple) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield argument, tensor


def is_written(argument: Any) -> bool:
    """Return whether an operator stores to an argument of its schema."""
    return argument.alias_info is not None and argument.alias_info.is_write


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's memory; None for a sparse one, or one that only stands for others."""
    if tensor.layout != torch.strided or tensor.is_nested:
        return None
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def memory_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return a tensor's memory if it is on the CPU and has an address; None if not."""
    storage = storage_of(tensor)
    if storage is None or storage.device.type != "cpu":  # the device of a fake tensor's is meta
        return None
    try:
        storage.data_ptr()
    except RuntimeError:  # of `torch.func.functionalize`
        return None
    return storage


def fill(tensor: torch.Tensor, poison: int) -> None:
    """Fill a tensor with implausible values, so that reads of undefined elements show.

    poison: 0 for NaN, and bytes 1010 0101 in integers; 1 for large numbers, and bytes 0101 1010.
    """
    if tensor.is_floating_point() and tensor.element_size() > 1:
        tensor.fill_(float("nan") if not poison else 3.0e4)
    elif tensor.is_complex():
        tensor.fill_(complex("nan") if not poison else 3.0e4)
    elif tensor.dtype == torch.bool:
        tensor.fill_(not poison)
    else:
        flat = torch.empty(0, dtype=torch.uint8).set_(tensor.untyped_storage())
        flat.fill_(POISON[poison])


def span_of(tensor: torch.Tensor) -> int:
    """Return the number of places of storage from a tensor's first element to its last."""
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))


def places_of(tensor: torch.Tensor) -> np.ndarray:
    """Return each element's place in storage, by flat index."""
    index = np.zeros(tuple(tensor.shape), np.int64)
    for axis, (size, stride) in enumerate(zip(tensor.shape, tensor.stride(), strict=True)):
        shape = [1] * tensor.dim()
        shape[axis] = size
        index = index + (np.arange(size) * stride).reshape(shape)
    return index.ravel() + int(tensor.storage_offset())
