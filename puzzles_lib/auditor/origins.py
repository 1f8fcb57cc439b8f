"""Find the launches from whose results torch has computed a tensor.

A function often ends with torch's operators, such as the sum of partial results or a cast. What these return
is stored by no kernel, so `stores` knows no line of it.
"""

from collections.abc import Mapping
from typing import Any

import torch

from puzzles_lib.auditor.defined import OVERWRITES, WeakStorage, given, is_written, memory_of

_SPOKEN = {"_to_copy": "to", "copy_": "copy_", "_reshape_copy": "reshape", "rsub": "subtraction"}


class Origins:
    """From which launches each tensor's memory comes, and through which of torch's operators, the last."""

    def __init__(self) -> None:
        self._of: dict[int, tuple[WeakStorage, frozenset[int], str]] = {}

    def stored(self, launch: int, tensor: torch.Tensor) -> None:
        """Note that a launch has stored to a tensor."""
        self._note(tensor, frozenset([launch]), "")

    def computed(self, schema: Any, args: tuple, kwargs: Mapping[str, Any], result: Any) -> None:
        """Note that one of torch's operators was called."""
        if not self._of:
            return
        taken = [
            tensor
            for argument, tensor in given(schema, args, kwargs)
            if not (schema.name in OVERWRITES and is_written(argument))
        ]
        launches = frozenset().union(*(self.of(tensor)[0] for tensor in taken))
        changed = [tensor for argument, tensor in given(schema, args, kwargs) if is_written(argument)]
        returned = result if isinstance(result, list | tuple) else [result]
        known = {place for tensor in taken if (place := _place(tensor))}
        made = [each for each in returned if isinstance(each, torch.Tensor) and _place(each) not in known]
        for tensor in (*changed, *made):
            name = schema.name.removeprefix("aten::")
            self._note(tensor, launches, _SPOKEN.get(name, name.strip("_")))

    def of(self, tensor: torch.Tensor) -> tuple[frozenset[int], str]:
        """Return the launches' numbers, and the last operator's name; "" if a launch stored the tensor."""
        known = self._of.get(_place(tensor))
        if known is None or known[0].expired():
            return frozenset(), ""
        return known[1:]

    def _note(self, tensor: torch.Tensor, launches: frozenset[int], name: str) -> None:
        storage = memory_of(tensor)
        if storage is None:
            return
        if launches:
            self._of[storage._cdata] = WeakStorage(storage), launches, name
        else:
            self._of.pop(storage._cdata, None)


def _place(tensor: torch.Tensor) -> int:
    storage = memory_of(tensor)
    return storage._cdata if storage is not None else 0
