"""Estimate how much shared memory a program may need, while the front end translates it.

The compiler itself decides in `frontend.shared_memory`, which takes about 50 ms. If blocks are small, it
need not be asked. Shared memory contains the operands of `tl.dot`, and `num_stages` of each load that runs
ahead in a loop. It also contains what descriptors move, and for a moment blocks that threads exchange (a
scan, a transposition). The estimate is the sum of all.
"""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic

SUSPICIOUS = 232_448  # the bytes of sm_90; the estimate adds everything, so it is rather too large


@dataclass
class Demand:
    """The bytes that a program may need.

    stages: those of a loop. staged: whether loads run ahead in a loop, because of a dot or of ``num_stages``.
    kept, ahead: the bytes of operands, and of loads in loops.
    block, most: the largest block, and the most that one line needs, with the file's number and the line.
    """

    stages: int = 3
    staged: bool = False
    kept: int = 0
    ahead: int = 0
    block: tuple[int, int, int] = (0, 0, 0)
    most: tuple[int, int, int] = (0, 0, 0)

    @property
    def total(self) -> int:
        on_its_way = 2 * self.block[0]  # perhaps addresses, of which only the offsets count
        return on_its_way + self.kept + self.ahead * self.stages * self.staged

    @property
    def place(self) -> tuple[int, int]:
        return (self.most if self.kept or self.staged else self.block)[1:]

    def keep(self, size: int, place: tuple[int, int], *, ahead: bool = False) -> None:
        if ahead:
            self.ahead += size
        else:
            self.kept += size
        size *= self.stages if ahead else 1
        if size > self.most[0]:
            self.most = (size, *place)


Where = Callable[[], tuple[bool, int, int]]
"""Returns whether the front end is within a loop, and at which file and line."""


def watch_demand(demand: Callable[[], Demand], where: Where) -> None:
    """Let the front end note what it makes. Only in a child, because Triton's methods are replaced."""
    make_type, make_range = tl.block_type.__init__, tl.range.__init__

    def made_type(self: tl.block_type, element_ty: tl.dtype, shape: object) -> None:
        make_type(self, element_ty, shape)
        now, size = demand(), 0 if element_ty.is_ptr() else self.numel * _bytes(element_ty)
        if size > now.block[0]:
            now.block = (size, *where()[1:])

    @functools.wraps(make_range)
    def made_range(self: tl.range, *args: Any, **kwargs: Any) -> None:
        make_range(self, *args, **kwargs)
        stages = getattr(self.num_stages, "value", self.num_stages)
        if isinstance(stages, int):
            demand().stages, demand().staged = max(demand().stages, stages), True

    def given(method: Callable, ahead: bool) -> Callable:
        @functools.wraps(method)
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            value = method(self, *args, **kwargs)
            looped, file, line = where()
            if looped or not ahead:
                blocks = value if isinstance(value, tuple) else (value,)
                demand().keep(sum(map(_size, blocks)), (file, line), ahead=ahead)
            return value

        return noted

    def multiplied(method: Callable) -> Callable:
        @functools.wraps(method)
        def noted(self: Any, *args: Any, **kwargs: Any) -> Any:
            blocks = (each for each in args if isinstance(each, tl.tensor))
            demand().staged = True
            demand().keep(sum(_size(block) for block, _ in zip(blocks, "ab", strict=False)), where()[1:])
            return method(self, *args, **kwargs)

        return noted

    def stored(method: Callable) -> Callable:
        @functools.wraps(method)
        def noted(self: Any, desc: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
            demand().keep(_size(value), where()[1:])
            return method(self, desc, value, *args, **kwargs)

        return noted

    tl.block_type.__init__, tl.range.__init__ = made_type, made_range
    wrappers: Mapping[str, Callable] = {
        "load": functools.partial(given, ahead=True),
        "descriptor_load": lambda method: given(given(method, ahead=True), ahead=False),
        "descriptor_gather": lambda method: given(given(method, ahead=True), ahead=False),
        "associative_scan": functools.partial(given, ahead=False),
        "gather": functools.partial(given, ahead=False),
        "histogram": functools.partial(given, ahead=False),
        "descriptor_store": stored,
        "descriptor_scatter": stored,
        "dot": multiplied,
        "dot_scaled": multiplied,
    }
    for name, wrap in wrappers.items():
        setattr(TritonSemantic, name, wrap(getattr(TritonSemantic, name)))


def _size(value: Any) -> int:
    block = isinstance(value, tl.tensor) and value.type.is_block()
    return value.type.numel * _bytes(value.type.scalar) if block else 0


def _bytes(dtype: tl.dtype) -> int:
    return 8 if dtype.is_ptr() else max(dtype.primitive_bitwidth, 8) // 8
