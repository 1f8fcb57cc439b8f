"""Find the launch, the program and the line that stored an element of a result."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from puzzles_lib.auditor.defined import WeakStorage, memory_of, places_of
from puzzles_lib.auditor.launch import bare
from puzzles_lib.auditor.running import Outcome
from puzzles_lib.auditor.showing import recorded
from puzzles_lib.runner import NaNs, Program, Run, alone
from puzzles_lib.source import Site


@dataclass(frozen=True)
class Store:
    """What one launch stored to one tensor.

    launch: the launch's number. name: the parameter that got the tensor. writers: for each element, by flat
    index, the number of the program that stored it last, in the order of ``programs``; -1 for none; None if
    that wasn't noted. version: torch's own count of changes to the tensor, which a launch doesn't change.
    shape: a tensor without memory, of the same shape and strides.
    """

    launch: int
    name: str
    writers: np.ndarray | None
    programs: Sequence[Program]
    storage: WeakStorage
    version: int
    shape: torch.Tensor


class Stores:
    """What the launches of a call have stored, one after the other."""

    def __init__(self) -> None:
        self._all: list[Store] = []
        self._names: list[tuple[WeakStorage, str]] = []

    def add(self, number: int, outcome: Outcome) -> None:
        """Note what a launch has stored."""
        for name, tensor in outcome.launch.all_tensors.items():
            storage = memory_of(tensor)
            writers = outcome.writers.get(name)
            if storage is not None:
                self._names.append((WeakStorage(storage), name))
            if storage is None or tensor.is_inference() or (writers is not None and not (writers >= 0).any()):
                continue
            known, version = WeakStorage(storage), tensor._version
            self._all.append(Store(number, name, writers, outcome.launched, known, version, bare(tensor)))

    def names(self, tensor: torch.Tensor) -> list[str]:
        """Return the parameters with which launches have got a tensor's memory, the last first."""
        storage = memory_of(tensor)
        own = [name for known, name in self._names if storage is not None and known.cdata == storage._cdata]
        return list(dict.fromkeys(reversed(own)))

    def to(self, tensor: torch.Tensor) -> Iterator[Store]:
        """Yield what was stored to a tensor's memory since torch has last changed it, the last first."""
        for store in self._back(tensor):
            if store is None:
                return
            yield store

    def _back(self, tensor: torch.Tensor) -> Iterator[Store | None]:
        """Yield what was stored to a tensor's memory, the last first; then None if more is unknown."""
        storage = memory_of(tensor)
        if storage is None or tensor.is_inference():
            yield None
            return
        for store in reversed(self._all):
            if store.storage.cdata == storage._cdata and not store.storage.expired():
                if store.version != tensor._version or store.writers is None:
                    yield None
                    return
                yield store

    def written(self, tensor: torch.Tensor) -> np.ndarray | None:
        """Return whether a launch has stored each element of a tensor, by flat index; None if unknown."""
        places = places_of(tensor) * tensor.element_size()
        found = np.zeros(len(places), bool)
        for store in self._back(tensor):
            if store is None:
                return None
            assert store.writers is not None
            own = places_of(store.shape) * store.shape.element_size()
            found |= np.isin(places, own[store.writers >= 0])
        return found

    def of(self, tensor: torch.Tensor, flat: int) -> tuple[Store, int] | None:
        """Return what stored an element last, and its flat index in the launch's tensor; None if unknown."""
        place = int(places_of(tensor)[flat]) * tensor.element_size()
        for store in self.to(tensor):
            assert store.writers is not None
            places = places_of(store.shape) * store.shape.element_size()
            found = np.flatnonzero((places == place) & (store.writers >= 0))
            if len(found):
                return store, int(found[0])
        return None


def line_of(outcome: Outcome, store: Store, element: int) -> tuple[Site | None, str]:
    """Return the line with which a launch has stored an element, and how its NaN or infinity was made.

    None and "" if that isn't found out. The program that stored it runs once more, from the tensors as they
    were before the launch.
    """
    if outcome.before is None or store.writers is None:
        return None, ""
    before, program = outcome.before.fresh(), store.programs[int(store.writers[element])]
    tensor = before[store.name]
    place = element if tensor.is_contiguous() else int(places_of(tensor)[element]) - tensor.storage_offset()
    nans = NaNs()
    done = alone(lambda: recorded(outcome.launch, before, None, [program], nans))
    if not isinstance(done, Run):
        return None, ""
    sites = [
        access.site
        for access in done.accesses
        if access.argument == store.name and access.kind != "load"
        if bool((access.mask & (access.elements == place)).any())
    ]
    return sites[-1] if sites else None, _how_made(nans, done.outputs[store.name], element)


def _how_made(nans: NaNs, result: torch.Tensor, element: int) -> str:
    """Say which line made the NaN or the infinity in an element; "" if it has neither, or none made it."""
    value = float(result.reshape(-1)[element]) if result.is_floating_point() else 0.0
    if value != value and (made := nans.origin(result, element)) and made.how:
        inf = (
            ", and the inf comes from an exp that overflows" if made.overflowed and "inf" in made.how else ""
        )
        return f"the NaN is made in line {made.site.line}, by {made.how}{inf}"
    if np.isinf(value) and nans.overflow:
        return f"an exp overflows in line {nans.overflow.line}"
    if np.isinf(value) and nans.divided:
        return f"a number is divided by 0 in line {nans.divided.line}"
    return ""
