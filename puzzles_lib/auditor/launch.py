"""One launch of a kernel, as Triton binds it, and a guarded run of it on the CPU."""

import dataclasses
import linecache
import numbers
import operator
import weakref
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import triton.language as tl
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.dtypes import of_torch
from puzzles_lib.puzzle import Argument

OPTIONS = (
    "num_warps", "num_stages", "num_ctas", "maxnreg", "debug", "enable_fp_fusion", "launch_cooperative_grid",
    "launch_pdl", "allow_fp8e4nv", "ir_override", "extern_libs", "warmup",
    "sanitize_overflow", "waves_per_eu", "matrix_instr_nonkdim", "kpack", "instrumentation_mode",
)  # fmt: skip
"""What a launch may be given beside the kernel's parameters."""


class Unsupported(Exception):
    """A launch that cannot be judged. The message says why, in a sentence."""


@dataclass(frozen=True)
class Place:
    """Where the user's code launches a kernel: a file, a line, and its text."""

    file: str
    line: int

    @property
    def source(self) -> str:
        return linecache.getline(self.file, self.line).strip()


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments, its grid and its options: what a GPU would be given.

    It has the attributes of a puzzle, and of a kernel that is bound to one, that verdicts and pages need.
    axes: how many numbers the grid was given as. reached: tensors that are no arguments, but whose addresses
    are in one that is, as `puzzles_lib.runner.run` takes them.
    """

    kernel: JITFunction
    arguments: Mapping[str, object]
    full_grid: tuple[int, int, int]
    axes: int
    launch_options: Mapping[str, Any] = field(default_factory=dict)
    place: Place | None = None
    configuration: str = ""
    reached: Mapping[str, tuple[int, torch.Tensor]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.kernel.__name__

    @property
    def title(self) -> str:
        return self.name

    @property
    def puzzle(self) -> "Launch":
        return self

    @property
    def case(self) -> "Launch":
        return self

    @property
    def num_warps(self) -> int:
        return self.options.get("num_warps", 4)

    @property
    def options(self) -> dict[str, int]:
        """``num_warps`` and ``num_stages``, if the launch sets them."""
        given = self.launch_options
        return {name: given[name] for name in ("num_warps", "num_stages") if type(given.get(name)) is int}

    @property
    def numbers(self) -> dict[str, int]:
        """The integers among the arguments."""
        return {n: v for n, v in self.arguments.items() if type(v) is int}

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments, and those of descriptors, by the parameter's name."""
        found = {}
        for name, value in self.arguments.items():
            value = value.base if isinstance(value, TensorDescriptor) else value
            if isinstance(value, torch.Tensor):
                found[name] = value
        return found

    @property
    def results(self) -> tuple[Argument, ...]:
        return tuple(Argument(n, t.dtype, tuple(map(str, t.shape))) for n, t in self.tensors.items())

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return ()

    def grid(self, case: object) -> tuple[int, ...]:
        return self.full_grid[: self.axes]

    def programs(self, case: object) -> tuple[int, int, int]:
        return self.full_grid

    def reached_in(self, tensors: Mapping[str, Any]) -> dict[str, tuple[int, torch.Tensor]]:
        """Return what is found by its address, with other tensors."""
        return {name: (address, tensors[name]) for name, (address, _) in self.reached.items()}

    @property
    def all_tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments, and those that are found by their addresses."""
        return {**self.tensors, **{name: tensor for name, (_, tensor) in self.reached.items()}}

    def with_tensors(self, tensors: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments with other tensors."""
        given = dict(self.arguments)
        for name, tensor in tensors.items():
            if name in self.reached:
                continue
            value = given[name]
            if isinstance(value, TensorDescriptor):
                given[name] = dataclasses.replace(value, base=tensor)
            else:
                given[name] = tensor
        return given

    def __str__(self) -> str:
        grid = ", ".join(map(str, self.full_grid[: self.axes]))
        told = f"{self.name}[{grid}]"
        return f"{told} ({self.configuration})" if self.configuration else told


def bind(
    kernel: JITFunction,
    grid: object,
    args: Sequence[object],
    kwargs: Mapping[str, Any],
    place: Place | None = None,
    configuration: str = "",
) -> Launch:
    """Return the launch that ``kernel[grid](*args, **kwargs)`` is.

    Raises TypeError as a launch does, for arguments that do not fit, and `Unsupported` for those that are not
    judged here.
    """
    names = {parameter.name for parameter in kernel.params}
    options = {name: value for name, value in kwargs.items() if name not in names}
    if unknown := [name for name in options if name not in OPTIONS]:
        raise TypeError(f"{kernel.__name__}: {unknown[0]} is neither a parameter of the kernel nor an option")
    given = {name: value for name, value in kwargs.items() if name in names}
    try:
        bound = kernel.signature.bind(*args, **given)
    except TypeError as error:
        raise TypeError(f"{kernel.__name__}: {error}") from None
    bound.apply_defaults()
    constants = {p.name for p in kernel.params if p.is_constexpr}
    values = {n: v if n in constants else _plain(n, v) for n, v in bound.arguments.items()}
    if callable(grid):
        grid = grid(dict(values))
    try:
        sizes = tuple(operator.index(n) for n in grid)  # type: ignore[attr-defined]
    except TypeError:
        words = f"the grid is {grid!r}, allowed is a tuple of integers"
        raise TypeError(f"{kernel.__name__}: {words}") from None
    if not 1 <= len(sizes) <= 3:
        raise TypeError(f"{kernel.__name__}: the grid is {sizes}, allowed are 1 to 3 axes")
    full = (*sizes, 1, 1)[:3]
    launch = Launch(kernel, values, (full[0], full[1], full[2]), len(sizes), options, place, configuration)
    return dataclasses.replace(launch, reached=_reached(launch.tensors)) if addressed else launch


addressed: MutableMapping[int, torch.Tensor] = weakref.WeakValueDictionary()
"""Tensors of which code has asked the address, by it: a table of pointers may hold it."""

MOST_ADDRESSES = 1 << 16  # of a table of pointers


def _reached(tensors: Mapping[str, torch.Tensor]) -> dict[str, tuple[int, torch.Tensor]]:
    """Return the tensors whose addresses a launch's integers hold."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    for name, table in tensors.items():
        if table.dtype not in (torch.int64, torch.uint64) or table.device.type != "cpu":
            continue
        if not 0 < table.numel() <= MOST_ADDRESSES:
            continue
        for number, address in enumerate(table.view(torch.int64).flatten().tolist()):
            if (tensor := addressed.get(address)) is not None:
                found.setdefault(address, (f"{name}[{number}]", tensor.detach()))
    return {name: (address, tensor) for address, (name, tensor) in found.items()}


_TORCHS = {
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
    "int1": torch.bool,
    "fp8e4nv": torch.float8_e4m3fn,
    "fp8e5": torch.float8_e5m2,
    "fp8e4b8": torch.float8_e4m3fnuz,
    "fp8e5b16": torch.float8_e5m2fnuz,
}


def _plain(name: str, value: object) -> object:
    """Return an argument as the front end takes it."""
    if hasattr(value, "base") and hasattr(value, "dtype") and not isinstance(value, torch.Tensor):
        dtype = value.dtype  # of triton.reinterpret
        if isinstance(value.base, torch.Tensor) and isinstance(dtype, tl.dtype):
            wanted = _TORCHS.get(dtype.name, getattr(torch, dtype.name, None))
            if wanted is not None:
                return value.base.view(wanted)
    if isinstance(value, torch.Tensor):
        try:
            of_torch(value.dtype)
        except (KeyError, TypeError, ValueError):
            raise Unsupported(f"{name} has the dtype {value.dtype}, which no kernel takes") from None
        if value.layout != torch.strided:
            raise Unsupported(f"{name} is a tensor of layout {value.layout}")
        return value.detach()
    if value is None or isinstance(value, bool | int | float | str | TensorDescriptor | tl.dtype):
        return value
    if isinstance(value, np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    if hasattr(value, "data_ptr"):
        raise Unsupported(f"{name} is a {type(value).__name__}, which has an address, but is no torch tensor")
    raise Unsupported(
        f"{name} is a {type(value).__name__}; judged are tensors, numbers, None and descriptors"
    )


class Copies:
    """Copies of a launch's tensors, which overlap where the tensors do."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]):
        self._tensors = dict(tensors)
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors.values()}
        self._kept = {place: storage.clone() for place, storage in storages.items()}
        self.bytes = sum(storage.nbytes() for storage in storages.values())

    def fresh(self) -> dict[str, torch.Tensor]:
        """Return tensors to work on, as they were at first."""
        return _on(self._tensors, {place: storage.clone() for place, storage in self._kept.items()})

    def kept(self) -> dict[str, torch.Tensor]:
        """Return the tensors as they were at first. The caller must not change them."""
        return _on(self._tensors, self._kept)


def _on(
    tensors: Mapping[str, torch.Tensor], storages: Mapping[int, torch.UntypedStorage]
) -> dict[str, torch.Tensor]:
    found = {}
    for name, tensor in tensors.items():
        storage = storages[tensor.untyped_storage().data_ptr()]
        made = torch.empty(0, dtype=tensor.dtype)
        found[name] = made.set_(storage, tensor.storage_offset(), tensor.shape, tensor.stride())
    return found
