"""Keep what has been compiled, in Triton's own cache directory (``TRITON_CACHE_DIR``)."""

import contextlib
import hashlib
import json
from pathlib import Path
from typing import Any

import triton
from triton import knobs
from triton.runtime.cache import get_cache_manager

_SCHEMA = 3  # of what is kept: count up when it changes
_FILE = "stages.json"


def key_of(*parts: object) -> str:
    """Return a key for what follows from these parts, this Triton and its tools."""
    return hashlib.sha256(repr((_SCHEMA, triton.__version__, _tools(), *parts)).encode()).hexdigest()


def _tools() -> tuple[str, ...]:
    """Return which ptxas compiles, because another one can replace it at any time (``TRITON_PTXAS_PATH``)."""
    found = []
    for name in ("ptxas", "ptxas_blackwell"):
        with contextlib.suppress(Exception):  # missing: whoever needs it will say so
            tool = getattr(knobs.nvidia, name)
            found.append(f"{tool.path} {tool.version}")
    return tuple(found)


def read(key: str, *fields: str) -> dict[str, Any] | None:
    """Return what was kept under a key; None if there is nothing, or nothing that has these fields."""
    try:
        path = get_cache_manager(key).get_file(_FILE)
        value = json.loads(Path(path).read_text()) if path else None
    except (OSError, ValueError, RuntimeError):
        return None
    return value if isinstance(value, dict) and set(fields) <= set(value) else None


def write(key: str, value: dict[str, object]) -> None:
    """Keep a dictionary. If the cache cannot be written to, do nothing."""
    with contextlib.suppress(OSError, RuntimeError):
        get_cache_manager(key).put(json.dumps(value), _FILE, binary=False)
