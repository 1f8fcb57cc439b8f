"""Production kernels: what the puzzles grow up to be, and layers that train on packed activations.

    from puzzles_lib.kernels import pack_activations, report

Imports torch and triton only, runs on Triton 3.6 and 3.7, and compiles with 3.9 (`make test-next`). CPU
tensors take a plain torch path with the same results, so that everything above works without a GPU.
"""

from importlib import import_module
from typing import Any

_PLACES = {
    "pack_activations": "modules",
    "unpack_activations": "modules",
    "report": "modules",
    "seed_rounding": "modules",
    "packed_checkpoint": "checkpoints",
    "pack_checkpoints": "checkpoints",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Import what a model needs when it is first asked for."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
