"""Bind the arguments of one launch to a kernel's parameters, as Triton does."""

import contextlib
import dataclasses
import linecache
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from unittest import mock

import torch
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.auditor.defined import WeakStorage, memory_of, span_of, storage_of
from puzzles_lib.parameters import Unsupported, leaves, like, parameters, sizes_of
from puzzles_lib.puzzle import Argument

__all__ = ["Copies", "Launch", "NoAddress", "Place", "Unsupported", "bind"]


MOST_LINES = 8  # of a call that are shown


class NoAddress(RuntimeError):
    """Raised for a tensor without an address, such as a sparse one, as a launch on a GPU raises."""


@dataclass(frozen=True)
class Place:
    """Where the user's code launches a kernel: a file, a line, and its text.

    last: the last line of the call. caller: where the audited function calls what launches the kernel; None
    if it launches the kernel itself.
    """

    file: str
    line: int
    last: int = 0
    caller: "Place | None" = None

    @property
    def source(self) -> str:
        lines = range(self.line, min(max(self.line, self.last), self.line + MOST_LINES - 1) + 1)
        text = " ".join(linecache.getline(self.file, line).strip() for line in lines)
        return f"{text} ..." if self.last > lines[-1] else text


@dataclass(frozen=True, repr=False)
class Launch:
    """A kernel with its arguments, its grid and its options: what a GPU would be given.

    It has the attributes of a puzzle, and of a kernel that is bound to one, that verdicts and pages need.
    axes: how many axes the caller gave the grid. reached: tensors that aren't arguments, but whose addresses
    are stored in one that is, as `puzzles_lib.runner.run` takes them. gone: what such tensors were that no
    longer exist. configuration: autotune's, one of ``configurations``.
    """

    kernel: JITFunction
    arguments: Mapping[str, object]
    full_grid: tuple[int, int, int]
    axes: int
    launch_options: Mapping[str, Any] = field(default_factory=dict)
    place: Place | None = None
    configuration: str = ""
    configurations: int = 0
    reached: Mapping[str, tuple[int, torch.Tensor]] = field(default_factory=dict)
    gone: Mapping[str, str] = field(default_factory=dict)

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
    def is_cooperative(self) -> bool:
        """Whether the launch promises that all programs run at the same time."""
        return bool(self.launch_options.get("launch_cooperative_grid"))

    @property
    def numbers(self) -> dict[str, int]:
        """The integers among the arguments."""
        return {n: v for n, v in leaves(self.arguments).items() if type(v) is int}

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments, and those of descriptors, by the parameter's name."""
        found = {}
        for name, value in leaves(self.arguments).items():
            value = value.base if isinstance(value, TensorDescriptor) else value
            if isinstance(value, torch.Tensor):
                found[name] = value
        return found

    @property
    def results(self) -> tuple[Argument, ...]:
        return tuple(Argument(n, t.dtype, tuple(map(str, t.shape))) for n, t in self.tensors.items())

    def pointer(self, name: str) -> str:
        return name

    @property
    def inputs(self) -> tuple[Argument, ...]:
        return ()

    @property
    def locks(self) -> tuple[str, ...]:
        """The names of the tensors that are locks: none, because a launch doesn't declare any."""
        return ()

    @property
    def zeroed(self) -> tuple[str, ...]:
        """The names of the results that begin as zeros: none, because a launch doesn't declare any."""
        return ()

    def grid(self, case: object) -> tuple[int, ...]:
        return self.full_grid[: self.axes]

    def programs(self, case: object) -> tuple[int, int, int]:
        return self.full_grid

    def reached_in(self, tensors: Mapping[str, Any]) -> dict[str, tuple[int, torch.Tensor]]:
        """Return `reached` with these tensors instead, under the same names and addresses."""
        return {name: (address, tensors[name]) for name, (address, _) in self.reached.items()}

    @property
    def all_tensors(self) -> dict[str, torch.Tensor]:
        """The tensors among the arguments, and those whose addresses are stored in one of these."""
        return {**self.tensors, **{name: tensor for name, (_, tensor) in self.reached.items()}}

    def with_tensors(self, tensors: Mapping[str, object]) -> dict[str, object]:
        """Return the arguments with other tensors. A part of a tuple counts as an argument."""
        given = leaves(self.arguments)
        for name, tensor in tensors.items():
            if name in self.reached:
                continue
            value = given[name]
            if isinstance(value, TensorDescriptor):
                given[name] = dataclasses.replace(value, base=tensor)
            else:
                given[name] = tensor
        return given

    def released(self, kept: "Copies | None") -> "Launch":
        """Return the launch without the caller's tensors: with copies that are kept, or none with memory."""
        tensors = kept.kept() if kept else {name: bare(each) for name, each in self.all_tensors.items()}

        def other(name: str, value: object) -> object:
            if isinstance(value, tuple):
                return like(value, [other(f"{name}[{place}]", part) for place, part in enumerate(value)])
            if isinstance(value, TensorDescriptor):
                return dataclasses.replace(value, base=tensors[name])
            return tensors[name] if isinstance(value, torch.Tensor) else value

        arguments = {name: other(name, value) for name, value in self.arguments.items()}
        return dataclasses.replace(self, arguments=arguments, reached=self.reached_in(tensors))

    def __repr__(self) -> str:
        grid = ", ".join(map(str, self.full_grid[: self.axes]))
        told = f"{self.name}[{grid}]"
        return f"{told} ({self.configuration})" if self.configuration else told


def bind(
    kernel: JITFunction,
    grid: object,
    args: Sequence[object],
    kwargs: Mapping[str, Any],
    place: Place | None = None,
) -> Launch:
    """Return the launch that ``kernel[grid](*args, **kwargs)`` makes.

    Raises TypeError and `NoAddress` as a launch does, for arguments that do not fit, and `Unsupported` for
    those that are not judged here.
    """
    if kernel.is_gluon():
        raise Unsupported(
            "it is a Gluon kernel, but only kernels written with triton.language can be audited"
        )
    values, options = parameters(kernel, args, kwargs)
    sizes = sizes_of(grid, values, kernel.__name__)
    full = (*sizes, 1, 1)[:3]
    launch = Launch(kernel, values, (full[0], full[1], full[2]), len(sizes), options, place)
    _check_memory(kernel.__name__, launch.tensors)
    return _reached(launch) if addressed else launch


def _check_memory(kernel: str, tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise an exception for a tensor that has no memory, unless it is on torch's meta device."""
    for name, tensor in tensors.items():
        if storage_of(tensor) is None:
            try:
                tensor.data_ptr()
            except RuntimeError as error:
                raise NoAddress(f"{kernel} gets {name}, which has no address: {error}") from error
        elif tensor.device.type == "meta" or not tensor.numel():
            continue
        if (memory := memory_of(tensor)) is None or not memory.nbytes():
            raise Unsupported(f"{name} is a tensor without memory of its own")


class Addressed(NamedTuple):
    """A tensor of which code has asked the address, or what is left of it."""

    tensor: weakref.ref[torch.Tensor]
    storage: WeakStorage
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    strides: tuple[int, ...]

    def found(self) -> torch.Tensor | None:
        """Return the tensor, or another one in the same memory; None if the memory has been freed."""
        if (tensor := self.tensor()) is not None:
            return tensor.detach()
        storage = torch.UntypedStorage._new_with_weak_ptr(self.storage.cdata)
        if storage is None:
            return None
        return torch.empty(0, dtype=self.dtype).set_(storage, self.offset, self.shape, self.strides)

    def __str__(self) -> str:
        return f"a tensor of {str(self.dtype).removeprefix('torch.')} with the shape {tuple(self.shape)}"


addressed: dict[int, Addressed] = {}
"""Tensors of which code has asked the address, by it: a table of pointers may hold it."""

MOST_ADDRESSES = 1 << 16  # of a table of pointers
_data_ptr = torch.Tensor.data_ptr


def address_of(tensor: torch.Tensor) -> int:
    """Return a tensor's address, and remember the tensor by it."""
    address = _data_ptr(tensor)
    with torch._C.DisableTorchFunction():
        storage = memory_of(tensor) if address and tensor.numel() else None
        if storage is not None:
            if len(addressed) >= MOST_ADDRESSES:
                addressed.clear()
            about = tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride()
            addressed[address] = Addressed(weakref.ref(tensor), WeakStorage(storage), *about)
    return address


def remembered() -> contextlib.AbstractContextManager:
    """Return a context in which tensors are remembered of which code asks the address."""
    return mock.patch.object(torch.Tensor, "data_ptr", address_of)


def _reached(launch: Launch) -> Launch:
    """Return a launch with the tensors whose addresses its integers hold."""
    found: dict[int, tuple[str, torch.Tensor]] = {}
    gone = {}
    for name, table in launch.tensors.items():
        if table.dtype not in (torch.int64, torch.uint64) or table.device.type != "cpu":
            continue
        if not 0 < table.numel() <= MOST_ADDRESSES:
            continue
        for number, address in enumerate(table.view(torch.int64).flatten().tolist()):
            if address in found or (known := addressed.get(address)) is None:
                continue
            if (tensor := known.found()) is not None:
                found[address] = f"{name}[{number}]", tensor
            else:
                gone[f"{name}[{number}]"] = str(known)
    reached = {name: (address, tensor) for address, (name, tensor) in found.items()}
    return dataclasses.replace(launch, reached=reached, gone=gone)


class Copies:
    """Copies of a launch's tensors, which overlap as the tensors do. The tensors aren't kept."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]):
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors.values()}
        self._shapes = {name: (t.untyped_storage().data_ptr(), bare(t)) for name, t in tensors.items()}
        self._kept = {place: storage.clone() for place, storage in storages.items()}
        self.bytes = sum(storage.nbytes() for storage in storages.values())

    def fresh(self) -> dict[str, torch.Tensor]:
        """Return tensors to work on, as they were at first."""
        return self._on({place: storage.clone() for place, storage in self._kept.items()})

    def kept(self) -> dict[str, torch.Tensor]:
        """Return the tensors as they were at first. The caller must not change them."""
        return self._on(self._kept)

    def _on(self, storages: Mapping[int, torch.UntypedStorage]) -> dict[str, torch.Tensor]:
        found = {}
        for name, (place, shape) in self._shapes.items():
            made = torch.empty(0, dtype=shape.dtype)
            found[name] = made.set_(storages[place], shape.storage_offset(), shape.shape, shape.stride())
        return found


def bare(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape, strides, offset and dtype that has no memory."""
    span = tensor.storage_offset() + span_of(tensor)
    made = torch.empty(span, dtype=tensor.dtype, device="meta")
    return made.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
