"""Measure one iteration of a kernel's loop around its matrix instructions: what it issues and moves.

A multiprocessor has four schedulers, and each starts one instruction of one warp per clock. Tensor cores
share them with everything else. If issuing an iteration takes more clocks than its products, the tensor
cores wait, however many programs are resident. So both numbers, read from the machine code, bound the share
of the peak that a kernel can reach. This is an upper bound, not a prediction: memory, barriers and slow
instructions add to it.
"""

import math
import re
from collections import Counter
from dataclasses import dataclass

from puzzles_lib.inspector import Stages
from puzzles_lib.inspector.sass import matrix_loop

SCHEDULERS = 4  # schedulers of a multiprocessor
PRODUCTS = 2048  # products of 16-bit floats per clock and multiprocessor (NVIDIA, *H100 architecture*, 2022)

_HMMA = re.compile(
    r"^HMMA\.(?:16816\.|1688\.\S*TF32)"
)  # of one warp: 16 · 8 · 16 products, or half as many in TF32
_HGMMA = re.compile(r"^HGMMA\.(\d+)x(\d+)x(\d+)\.")  # of four warps
_MOVE = re.compile(r"(ttg\.convert_layout|ttg\.local_alloc|ttg\.local_store) %.*?tensor<([\dx]+)x(\w+),")


@dataclass(frozen=True)
class Move:
    """A block of values that threads exchange: ``shape``, ``dtype``, and the kernel's ``line``.

    number: the line's number; None if it is not known.
    """

    shape: tuple[int, ...]
    dtype: str
    through: str
    line: str
    number: int | None = None

    def __str__(self) -> str:
        size = " × ".join(map(str, self.shape))
        return f"[{size}] {self.dtype}, {self.through}: {self.line}"


@dataclass(frozen=True)
class Step:
    """One iteration of the innermost loop that multiplies tiles.

    instructions: how many each warp issues. warps: how many a program has.
    products: how many pairs of numbers the program's tensor cores multiply and add.
    moves: the computed blocks that threads exchange, by TritonGPU IR. Loads are not counted.
    in_tf32: how many of the products are in TF32, which takes twice as long.
    """

    instructions: int
    warps: int
    products: int
    moves: tuple[Move, ...]
    in_tf32: int = 0

    @property
    def issue_clocks(self) -> float:
        """The clocks that a multiprocessor needs to issue the instructions of all warps."""
        return self.instructions * self.warps / SCHEDULERS

    @property
    def tensor_clocks(self) -> float:
        """The clocks that its tensor cores need for the products, at their peak."""
        return (self.products + self.in_tf32) / PRODUCTS

    @property
    def busy(self) -> float:
        """The largest share of the time in which the tensor cores can be busy."""
        return min(1.0, self.tensor_clocks / self.issue_clocks)

    def __str__(self) -> str:
        lines = [
            f"one iteration: {self.issue_clocks:.0f} clocks to issue its instructions, "
            f"{self.tensor_clocks:.0f} clocks of tensor cores, busy at most {self.busy:.0%} of the time",
            *(f"exchanged between threads{_often(n)}: {move}" for move, n in Counter(self.moves).items()),
        ]
        return "\n".join(lines if self.moves else [*lines, "exchanged between threads: no computed values"])

    __repr__ = __str__


def _often(count: int) -> str:
    return f", {count} blocks like this" if count > 1 else ""


def step(compiled: Stages) -> Step | None:
    """Measure a kernel compiled by `stages` for sm_90; return None if no loop uses the tensor cores.

    Raises ValueError for another target, and TypeError if ``compiled`` is not a compiled kernel.
    """
    if not isinstance(compiled, Stages):
        raise TypeError(f"step: compiled must be what stages(...) returns, not {type(compiled).__name__}")
    if compiled.target.name != "sm_90":
        raise ValueError(
            f"step: the kernel must be compiled for sm_90, but is compiled for {compiled.target.name}"
        )
    body = matrix_loop(compiled.sass)
    if not body:
        return None
    warps = compiled.num_warps
    operations = [operation for operation, _ in body]
    products = in_tf32 = 0
    for operation in operations:
        if _HMMA.match(operation):
            many = (1024 if "TF32" in operation else 2048) * warps
        elif match := _HGMMA.match(operation):
            many = math.prod(map(int, match.groups())) * warps // 4
        else:
            continue
        products += many
        in_tf32 += many if "TF32" in operation else 0
    return Step(len(body), warps, products, moves(compiled), in_tf32)


def moves(compiled: Stages) -> tuple[Move, ...]:
    """Return the computed blocks that threads exchange in the loops of the TritonGPU IR."""
    found, depth = [], 0
    for line in compiled.read("ttgir"):
        text = line.text.strip()
        depth += ("scf.for" in text or depth > 0) and text.endswith("{")
        if depth and (match := _MOVE.search(text)):
            *shape, through = *map(int, match[2].split("x")), match[1]
            through = "to another layout" if through == "ttg.convert_layout" else "through shared memory"
            source = compiled.source.get(line.source or 0, "").split("  #")[0].strip()
            found.append(Move(tuple(shape), match[3], through, source, line.source))
        depth -= depth > 0 and text.startswith("}")
    return tuple(found)
