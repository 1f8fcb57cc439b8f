"""The GPUs that a kernel can be compiled for. None of them has to be present."""

import contextlib
from dataclasses import dataclass

from triton import knobs
from triton.backends.compiler import GPUTarget

LOCAL = "local"


@dataclass(frozen=True)
class Target:
    """A GPU to compile for.

    name: such as ``"sm_90"``. gpu: Triton's own object for it. shared_limit: the most bytes of shared
    memory of a program; None if that is not known.
    """

    name: str
    gpu: GPUTarget
    shared_limit: int | None

    @property
    def is_nvidia(self) -> bool:
        return self.gpu.backend == "cuda"


# Shared memory: CUDA C++ Programming Guide, table of technical specifications (163 and 227 KB per block);
# AMD Instinct MI300 ISA, LDS (64 KB per workgroup).
_KNOWN = {
    "sm_80": Target("sm_80", GPUTarget("cuda", 80, 32), 166_912),  # A100
    "sm_90": Target("sm_90", GPUTarget("cuda", 90, 32), 232_448),  # H100, H200
    "sm_100": Target("sm_100", GPUTarget("cuda", 100, 32), 232_448),  # B200
    "gfx942": Target("gfx942", GPUTarget("hip", "gfx942", 64), 65_536),  # MI300
}


def find_target(name: object) -> Target:
    """Return the target with a name; ``"local"`` is the GPU of this computer.

    Raises ValueError for an unknown name, and for ``"local"`` if there is no GPU. The message lists the
    targets.
    """
    allowed = ", ".join(_KNOWN)
    if isinstance(name, str) and name in _KNOWN:
        return _KNOWN[name]
    if name == LOCAL:
        gpu = _local()
        if gpu is None:
            raise ValueError(f"target is 'local', but this computer has no GPU; without one, use {allowed}")
        prefix = "sm_" if gpu.backend == "cuda" else ""
        return _KNOWN.get(f"{prefix}{gpu.arch}") or Target(f"{prefix}{gpu.arch}", gpu, None)
    raise ValueError(f"target must be one of {allowed}, or 'local' if there is a GPU, but is {name!r}")


def _local() -> GPUTarget | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        return GPUTarget("hip", properties.gcnArchName.split(":")[0], properties.warp_size)
    return GPUTarget("cuda", properties.major * 10 + properties.minor, 32)


def tools() -> tuple[str, ...]:
    """Return NVIDIA's programs that are present; Triton's wheels contain them."""
    found = []
    for name in ("ptxas", "ptxas_blackwell", "nvdisasm", "cuobjdump"):
        with contextlib.suppress(RuntimeError):
            getattr(knobs.nvidia, name)
            found.append(name.replace("_", "-"))
    return tuple(found)
