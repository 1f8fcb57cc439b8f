"""The GPUs that a kernel is compiled for; none of them needs to be there."""

import contextlib
from dataclasses import dataclass

from triton import knobs
from triton.backends.compiler import GPUTarget

LOCAL = "local"


@dataclass(frozen=True)
class Target:
    """A GPU to compile for.

    name: ``"sm_90"``. gpu: Triton's own object for it. shared_limit: most bytes of shared memory that a
    program may take, None where that is not known.
    """

    name: str
    gpu: GPUTarget
    shared_limit: int | None

    @property
    def is_nvidia(self) -> bool:
        return self.gpu.backend == "cuda"


# Shared memory: CUDA C++ Programming Guide, table of technical specifications (163 and 227 KB a block);
# AMD Instinct MI300 ISA, LDS (64 KB a workgroup).
_KNOWN = {
    "sm_80": Target("sm_80", GPUTarget("cuda", 80, 32), 166_912),  # A100
    "sm_90": Target("sm_90", GPUTarget("cuda", 90, 32), 232_448),  # H100, H200
    "sm_100": Target("sm_100", GPUTarget("cuda", 100, 32), 232_448),  # B200
    "gfx942": Target("gfx942", GPUTarget("hip", "gfx942", 64), 65_536),  # MI300
}


def find_target(name: object) -> Target:
    """The target of a name; ``"local"`` is the GPU of this machine.

    Raises ValueError for any other name, and for ``"local"`` where there is no GPU; it says which
    there are.
    """
    allowed = ", ".join(_KNOWN)
    if isinstance(name, str) and name in _KNOWN:
        return _KNOWN[name]
    if name == LOCAL:
        gpu = _local()
        if gpu is None:
            raise ValueError(f"target is 'local', but this machine has no GPU; without one: {allowed}")
        prefix = "sm_" if gpu.backend == "cuda" else ""
        return _KNOWN.get(f"{prefix}{gpu.arch}") or Target(f"{prefix}{gpu.arch}", gpu, None)
    raise ValueError(f"target is {name!r}, allowed are {allowed}, and 'local' where there is a GPU")


def _local() -> GPUTarget | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        return GPUTarget("hip", properties.gcnArchName.split(":")[0], properties.warp_size)
    return GPUTarget("cuda", properties.major * 10 + properties.minor, 32)


def tools() -> tuple[str, ...]:
    """NVIDIA's programs that are there; Triton's wheels bring them along."""
    found = []
    for name in ("ptxas", "ptxas_blackwell", "nvdisasm", "cuobjdump"):
        with contextlib.suppress(RuntimeError):
            getattr(knobs.nvidia, name)
            found.append(name.replace("_", "-"))
    return tuple(found)
