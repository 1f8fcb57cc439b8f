"""Gluon under the names that Triton 3.6, 3.7 and 3.9 have for the same things."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import tma

barrier = gl.barrier if hasattr(gl, "barrier") else gl.thread_barrier  # the latter in 3.6
# In 3.9 the older name is there still, and raises.
copy_tile = tma.async_load if hasattr(tma, "async_load") else tma.async_copy_global_to_shared

_REINTERPRET = gl.constexpr(hasattr(gl.shared_memory_descriptor, "reinterpret"))  # 3.9


@gluon.jit
def seen_as(memory, shape: gl.constexpr, layout: gl.constexpr):
    """Return shared memory with another shape and layout."""
    if _REINTERPRET:
        return memory.reinterpret(memory.dtype, shape, layout)
    else:
        return memory._reinterpret(memory.dtype, shape, layout)
