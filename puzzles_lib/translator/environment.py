"""Set the environment of Triton's compiler, so that a kernel compiles to the same code for everyone.

About 60 variables change the result, such as ``TRITON_OVERRIDE_ARCH`` and ``DISABLE_PTXAS_OPT``, and so do
`triton.knobs`, which set them. Only variables with paths are kept.
"""

import os
from collections.abc import Mapping

from triton import knobs

_KEPT = ("TRITON_HOME", "TRITON_CACHE_DIR")
_WRITTEN_TO = ("TRITON_REPRODUCER_PATH",)
_PREFIXES = (
    "TRITON_",
    "MLIR_",
    "LLVM_",
    "AMDGCN_",
    "NVPTX_",
    "DISABLE_",
    "ALLOW_LHS_",
    "PTXAS_OPTIONS",
    "USE_IR_LOC",
)


def variables() -> dict[str, str]:
    """Return this process's variables, except those that change what the compiler does."""
    return {name: value for name, value in os.environ.items() if not _steers(name)}


def forget_settings(environment: Mapping[str, str]) -> None:
    """Keep only these variables, and reset the knobs to their defaults. Only in a child process."""
    for name in [*os.environ]:
        if name not in environment:
            del os.environ[name]
    for each in (knobs.compilation, knobs.runtime, knobs.language, knobs.nvidia, knobs.amd):
        each.reset()


def _steers(name: str) -> bool:
    if name in _KEPT or name.startswith("TRITON_") and name.endswith("_PATH"):
        return name in _WRITTEN_TO
    return name.startswith(_PREFIXES)
