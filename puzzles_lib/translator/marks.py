"""Marks that the course's front end leaves in the IR of a kernel that is to be run.

What a run has to know and no operation says: where a hint to the compiler stands and of what; and, of a run
that is recorded, where a statement begins and ends, and which names hold what then. A mark is a print, with a
prefix that no kernel can give one. Only in a child: methods of Triton's are replaced for good.
"""

from collections.abc import Callable

import triton.language as tl
from triton.language.semantic import TritonSemantic

from puzzles_lib.translator.observer import Seen

MARK = "\x01"
_PROMISES = ("multiple_of", "max_contiguous", "max_constancy")


def put(seen: Seen, *, recorded: bool) -> None:
    """Have marks put into whatever is translated from now on."""
    for name in _PROMISES:
        setattr(TritonSemantic, name, _promising(name, getattr(TritonSemantic, name)))


def _promising(name: str, method: Callable) -> Callable:
    def promised(self: TritonSemantic, x: object, values: list[int]) -> object:
        result = method(self, x, values)
        if isinstance(x, tl.tensor):
            sizes = " ".join(str(int(getattr(each, "value", each))) for each in values)
            mark(self.builder, f"promise {name} {sizes}", [x.handle])
        return result

    return promised


def mark(builder: object, text: str, handles: list[object], signed: list[bool] | None = None) -> None:
    """Leave a mark at the place that is being translated."""
    builder.create_print(MARK + text, False, handles, signed or [True] * len(handles))
