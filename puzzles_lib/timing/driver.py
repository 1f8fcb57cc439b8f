"""Launch machine code that was compiled elsewhere on this computer's GPU, through NVIDIA's driver.

So every byte of the timed binary is known, whichever Triton the computer with the GPU has. The launch works
as in Triton's own launcher: parameters as PTX declares them, a tensor map of 128 bytes for each descriptor,
and two pointers to scratch memory at the end.
"""

import base64
import ctypes
import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

CAPABILITY = (9, 0)  # the architecture of the binaries here
_WIDTHS = {
    "u8": ctypes.c_uint8, "u16": ctypes.c_uint16, "u32": ctypes.c_uint32, "u64": ctypes.c_uint64,
    "f32": ctypes.c_float,
}  # fmt: skip
_ON_HOST = {8: 10, 9: 8, 10: 9}  # CUtensorMapDataType of Triton's numbers for fp16, fp32 and bf16, as it does
_SHARED_BY_DEFAULT = 48 << 10  # in bytes; a kernel must ask for more
_L2_PROMOTION_128B = 2
_MAX_DYNAMIC_SHARED, _PREFER_SHARED = 8, 1  # a CUfunction_attribute, a CUfunc_cache


@dataclass(frozen=True)
class Binary:
    """A kernel's machine code, and everything that a launch needs.

    cubin: as the driver loads it. name: the kernel in it. warps: per program. shared, scratch: bytes of
    shared and of global memory per program. parameters: name in the kernel and PTX type of each, in order, a
    descriptor's five under one name; the two for scratch are left out. maps: for each descriptor,
    ``swizzle``, ``elem_size``, ``elem_type`` and ``block_size``, as Triton's compiler says.
    """

    cubin: bytes
    name: str
    warps: int
    shared: int
    scratch: int
    parameters: tuple[tuple[str, str], ...]
    maps: tuple[Mapping, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return the binary as JSON types."""
        return asdict(self) | {"cubin": base64.b85encode(self.cubin).decode()}

    @classmethod
    def from_dict(cls, told: Mapping) -> "Binary":
        parameters = tuple((name, kind) for name, kind in told["parameters"])
        made = cls(**{**told, "parameters": parameters, "maps": tuple(told["maps"])})
        return replace(made, cubin=base64.b85decode(told["cubin"]))

    def flattened(self, values: Mapping[str, object]) -> list[tuple[str, object]]:
        """Return PTX type and value of each parameter: a number, the address of a tensor, or a `TensorMap`.

        Raises TypeError if the number of values is not the number of the kernel's parameters.
        """
        maps = iter(self.maps)
        found: list[tuple[str, object]] = []
        for name in dict.fromkeys(name for name, _ in self.parameters):
            kinds = [kind for other, kind in self.parameters if other == name]
            value = values[name]
            if isinstance(value, TensorDescriptor):
                given = [TensorMap.of(value, next(maps)), *value.shape, *value.strides]
            else:
                given = [value.data_ptr() if isinstance(value, torch.Tensor) else value]
            if len(given) != len(kinds):
                raise TypeError(f"{self.name}: {name} takes {len(kinds)} parameters, but has {len(given)}")
            found += zip(kinds, given, strict=True)
        return found


@dataclass(frozen=True)
class TensorMap:
    """The description of a matrix and its tiles for TMA. As in the driver's call, the last axis comes first.

    shape, tile: the sizes in elements. pitch: the bytes between neighbors along each axis except the first.
    kind: a CUtensorMapDataType.
    """

    address: int
    shape: tuple[int, ...]
    pitch: tuple[int, ...]
    tile: tuple[int, ...]
    kind: int
    swizzle: int

    @classmethod
    def of(cls, value: TensorDescriptor, told: Mapping) -> "TensorMap":
        """Return the map of a tensor. told: an entry of `Binary.maps`."""
        return cls(
            address=value.base.data_ptr(),
            shape=tuple(reversed(value.shape)),
            pitch=tuple(told["elem_size"] * stride for stride in reversed(value.strides[:-1])),
            tile=tuple(reversed(told["block_size"])),
            kind=_ON_HOST.get(told["elem_type"], told["elem_type"]),
            swizzle=told["swizzle"],
        )


def parameters(ttir: str, ptx: str) -> tuple[tuple[str, str], ...]:
    """Return a kernel's parameters as in `Binary`: names from Triton IR, types from PTX.

    Raises ValueError if the two do not match.
    """
    head = re.search(r"tt\.func public @\w+\((.*)\) attributes", ttir)
    names = re.findall(r'loc\("(\w+)"\(#loc\d*\)\)', head[1]) if head else []
    entry = re.search(r"\.entry \w+\((.*?)\)", ptx, re.DOTALL)
    kinds = [
        f"b8[{size}]" if size else kind
        for kind, size in re.findall(
            r"\.param .*?\.(b8|[usf]\d+)\b.*?_param_\d+(?:\[(\d+)\])?", entry[1] if entry else ""
        )
    ]
    if len(kinds) != len(names) + 2:
        raise ValueError(f"{len(names)} parameters in Triton IR, {len(kinds)} in PTX: two more are scratch")
    return tuple(zip(names, kinds[:-2], strict=True))


class Loaded:
    """A binary on this computer's GPU. Raises RuntimeError if there is no GPU that can run it."""

    def __init__(self, binary: Binary):
        if not torch.cuda.is_available():
            raise RuntimeError("launching machine code needs a CUDA device")
        if (has := torch.cuda.get_device_capability()) != CAPABILITY:
            words = "{}.{}".format(*CAPABILITY), "{}.{}".format(*has)
            raise RuntimeError("it is compiled for compute capability {}, but this GPU has {}".format(*words))
        torch.cuda.current_stream().synchronize()  # makes sure that there is a context
        self.binary = binary
        self._module, self._function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(self._module), binary.cubin)
        name = binary.name.encode()
        self._call("cuModuleGetFunction", ctypes.byref(self._function), self._module, name)
        if binary.shared > _SHARED_BY_DEFAULT:
            self._call("cuFuncSetCacheConfig", self._function, _PREFER_SHARED)
            self._call("cuFuncSetAttribute", self._function, _MAX_DYNAMIC_SHARED, binary.shared)

    def launch(self, grid: Sequence[int], values: Mapping[str, object]) -> None:
        """Launch on torch's current stream. values: by name; values that the code does not take are ignored.

        Scratch memory comes from torch, so that a CUDA graph can contain the launch.
        """
        packed = [self._packed(kind, value) for kind, value in self.binary.flattened(values)]
        scratch = None
        if size := self.binary.scratch * math.prod(grid):
            scratch = torch.empty(size, dtype=torch.int8, device="cuda")
        packed += [ctypes.c_uint64(scratch.data_ptr() if scratch is not None else 0), ctypes.c_uint64(0)]
        pointers = (ctypes.c_void_p * len(packed))(*(ctypes.addressof(value) for value in packed))
        x, y, z = [*grid, 1, 1][:3]
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        threads = 32 * self.binary.warps
        self._call(
            "cuLaunchKernel",
            self._function,
            x,
            y,
            z,
            threads,
            1,
            1,
            self.binary.shared,
            stream,
            pointers,
            None,
        )

    def _packed(self, kind: str, value: Any) -> Any:
        return self._encoded(value) if isinstance(value, TensorMap) else _WIDTHS[kind](value)

    def _encoded(self, told: TensorMap) -> ctypes.Array:
        room = ctypes.create_string_buffer(128 + 64)
        start = -ctypes.addressof(room) % 64  # at the place that the driver needs
        made = (ctypes.c_char * 128).from_buffer(room, start)
        rank = len(told.shape)
        wide, narrow = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        self._call(
            "cuTensorMapEncodeTiled", made, told.kind, rank, ctypes.c_void_p(told.address),
            wide(*told.shape), wide(*told.pitch), narrow(*told.tile), narrow(*[1] * rank),
            0, told.swizzle, _L2_PROMOTION_128B, 0,
        )  # fmt: skip
        return made

    def _call(self, name: str, *arguments: object) -> None:
        """Call the driver, and raise RuntimeError if it returns an error."""
        if status := getattr(_driver(), name)(*arguments):
            words = ctypes.c_char_p()
            _driver().cuGetErrorString(status, ctypes.byref(words))
            raise RuntimeError(f"{name}: {(words.value or b'?').decode()} ({status})")


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")
