"""Define an operation that is ready to run, and what it can ask of the machine that runs it."""

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from puzzles_lib.dtypes import DType
from puzzles_lib.runner.lanes import Lanes, row_of
from puzzles_lib.runner.memory import Memory
from puzzles_lib.runner.records import Program
from puzzles_lib.source import Site
from puzzles_lib.translator.ir import Operation


class NotOneValue(ValueError):
    """A block was used as a condition."""


class Step:
    """An operation, and what is known of it before it runs.

    ins, outs: the numbers of its values. row, shape, size: dtype, shape and number of lanes of the first
        result, if it has lanes; rows: the dtypes of all results. kept: what the operation keeps from one run
        to the next. regions: its regions, ready to run. combined: the name of Triton's own function that
        combines elements, or "".
    """

    __slots__ = (
        "combined", "ins", "kept", "op", "outs", "regions", "row", "rows", "run", "shape", "size",
    )  # fmt: skip

    def __init__(self, op: Operation, run: Callable[..., Any]):
        self.op = op
        self.ins = tuple(value.number for value in op.operands)
        self.outs = tuple(value.number for value in op.results)
        self.run = run
        kinds = [result.type for result in op.results]
        self.rows: list[DType | None] = [_row(kind.element) for kind in kinds]
        self.row: Any = self.rows[0] if self.rows else None
        self.shape = kinds[0].shape if kinds else ()
        self.size = math.prod(self.shape)
        self.regions: tuple[Any, ...] = ()
        self.combined = ""
        self.kept: Any = None


def _row(element: str) -> DType | None:
    """Return the dtype of lanes; None for something else, or for a dtype that the course doesn't have."""
    if element.startswith(("!tt.ptr<tensor", "!tt.tensordesc")):
        return None
    try:
        return row_of(element)
    except NotImplementedError:
        return None


class Machine(Protocol):
    """The part of `puzzles_lib.runner.machine` that operations use."""

    memory: Memory
    grid: Program
    quiet: bool

    def site(self) -> Site: ...
    def is_used(self) -> bool: ...
    def site_of(self, step: Any) -> Site: ...
    def body(self, code: Any, given: Sequence[Any]) -> list[Any]: ...
    def print(self, text: str) -> None: ...
    def dotted(self, step: Step, depth: int, *blocks: Lanes, factors: Any = None) -> None: ...
    def accessed(self, before: int, values: Lanes, *operands: Lanes) -> None: ...
    def marked(self, step: Step, text: str, values: Sequence[Any]) -> None: ...
