"""The GPUs that a kernel is compiled for; none of them needs to be there."""

import contextlib
from dataclasses import dataclass

from triton import knobs
from triton.backends.compiler import GPUTarget

LOCAL = "local"
_KNOWN = {
    "sm_80": (GPUTarget("cuda", 80, 32), "NVIDIA A100"),
    "sm_90": (GPUTarget("cuda", 90, 32), "NVIDIA H100, H200"),
    "sm_100": (GPUTarget("cuda", 100, 32), "NVIDIA B200"),
    "gfx942": (GPUTarget("hip", "gfx942", 64), "AMD MI300"),
}


@dataclass(frozen=True)
class Target:
    """A GPU to compile for: its name (``"sm_90"``), what cards it is, and Triton's own object for it."""

    name: str
    cards: str
    gpu: GPUTarget

    @property
    def is_nvidia(self) -> bool:
        return self.gpu.backend == "cuda"


def find_target(name: object) -> Target:
    """The target of a name; ``"local"`` is the GPU of this machine.

    Raises ValueError for any other name, and for ``"local"`` where there is no GPU; it says which
    there are.
    """
    if name in _KNOWN:
        gpu, cards = _KNOWN[name]
        return Target(name, cards, gpu)
    allowed = ", ".join(_KNOWN)
    if name == LOCAL:
        gpu = _local()
        if gpu is None:
            raise ValueError(f"target is 'local', but this machine has no GPU; without one: {allowed}")
        known = next(((n, cards) for n, (g, cards) in _KNOWN.items() if g == gpu), None)
        prefix = "sm_" if gpu.backend == "cuda" else ""
        return Target(*(known or (f"{prefix}{gpu.arch}", "the GPU of this machine")), gpu)
    raise ValueError(f"target is {name!r}, allowed are {allowed}, and 'local' where there is a GPU")


def _local() -> GPUTarget | None:
    import torch

    if not torch.cuda.is_available():
        return None
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    if torch.version.hip:
        arch = properties.gcnArchName.split(":")[0]
        return GPUTarget("hip", arch, properties.warp_size)
    return GPUTarget("cuda", properties.major * 10 + properties.minor, 32)


def tools() -> tuple[str, ...]:
    """NVIDIA's programs that are there; Triton's wheels bring them along."""
    found = []
    for name in ("ptxas", "ptxas_blackwell", "nvdisasm", "cuobjdump"):
        with contextlib.suppress(RuntimeError):
            getattr(knobs.nvidia, name)
            found.append(name.replace("_", "-"))
    return tuple(found)
