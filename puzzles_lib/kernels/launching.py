"""Launch kernels with little overhead on the host.

A training step on a GPU is often limited by the host, which takes longer to start a kernel than the kernel
runs. Two things here keep that time short:

- `run` calls an operator's implementation directly in eager mode. The operator itself, with torch's checks
  around it, is called under `torch.compile`, in an export and wherever else a call has to be seen.
- `launch` starts a kernel through Triton once per set of shapes. After that it starts the compiled kernel
  with the arguments of the first time, and only pointers are new.

`empty` takes half the time of torch's ``new_empty``.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any

import torch
import triton
from torch import nn

MOST = 4096  # prepared launches that are kept

_prepared: dict[tuple, Callable[..., None]] = {}
_PLAIN = (torch.Tensor, nn.Parameter)
_library = torch.library.Library("bit_by_bit", "FRAGMENT")


def inside(
    name: str,
    operator: Callable[..., Any],
    implementation: Callable[..., Any],
    *,
    changes: tuple[str, ...] = (),
) -> Callable[..., Any]:
    """Return an operator for compiled graphs that does what another one does, with less of torch's checks.

    The checks of ``torch.library.custom_op`` take the host 40 microseconds per call, twice as long as a
    prepared launch, and several times that if the operator changes an input. The layers call operators where
    nothing is differentiated, so they don't need the checks.
    operator: its fake is used for this operator, too. changes: the inputs that it changes. An implementation
        that changes nothing must accept inputs of any strides: Inductor then doesn't copy an input that
        it also needs elsewhere, such as x cast to bfloat16.
    """
    name = f"{name}_inside"
    schema = torch.library.infer_schema(implementation, mutates_args=changes)
    tags = (torch.Tag.pt2_compliant_tag, *(() if changes else (torch.Tag.flexible_layout,)))
    _library.define(name + schema, tags=tags)
    _library.impl(name, implementation, "CompositeExplicitAutograd")
    torch.library.register_fake(f"bit_by_bit::{name}", lambda *arguments: operator(*arguments), lib=_library)
    return getattr(torch.ops.bit_by_bit, name).default


def run(
    operator: Callable[..., Any],
    compiled: Callable[..., Any],
    implementation: Callable[..., Any],
    x: torch.Tensor,
    *rest: Any,
) -> Any:
    """Return what the operator returns for these arguments, straight from its implementation if possible.

    That is possible in eager mode, for a plain tensor x on the current device, if nothing observes operators.
    compiled: what a compiled graph calls: the operator or one that `inside` made of it.
    """
    if torch.compiler.is_compiling():
        return compiled(x, *rest)
    if (
        type(x) not in _PLAIN
        or x.is_meta
        or torch._C._len_torch_dispatch_stack()
        or x.is_cuda
        and x.get_device() != torch._C._cuda_getDevice()
    ):
        return operator(x, *rest)
    return implementation(x, *rest)


def on_device_of(x: torch.Tensor) -> AbstractContextManager:
    """Return a context in which the GPU of x is the current one."""
    here = x.get_device() == torch._C._cuda_getDevice()
    return _NOTHING if here else torch.cuda.device(x.device)


_NOTHING = nullcontext()


def no_autocast(x: torch.Tensor) -> AbstractContextManager:
    """Return a context without autocast on the device of x."""
    kind = x.device.type
    if torch.compiler.is_compiling() or torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return _NOTHING


def empty(x: torch.Tensor, shape: tuple[int, ...], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return an uninitialized contiguous tensor on the device of x, in ``dtype`` or x's dtype."""
    if type(x) in _PLAIN and x.is_cuda and _empty_cuda and x.get_device() == torch._C._cuda_getDevice():
        return _empty_cuda(*_laid_out(shape), x.dtype if dtype is None else dtype)
    return x.new_empty(shape, dtype=dtype)


# What Inductor's code calls. It allocates on the current device.
_empty_cuda = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)


@lru_cache(4096)
def _laid_out(shape: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return a shape and its strides, both as the plain tuples that torch's function needs."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * max(shape[axis + 1], 1)
    return tuple(shape), tuple(strides)


def launch(
    kernel: Any,
    key: tuple,
    tensors: tuple[torch.Tensor | None, ...],
    prepare: Callable[[], tuple[tuple[int, ...], tuple, dict[str, Any]]],
) -> None:
    """Start a kernel on the current device, which must be the device of the first tensor.

    kernel: a jit function. Its first parameters are pointers, and ``tensors`` are what they point to.
    key: everything that the kernel, its grid, its other arguments and the dtypes of its tensors depend on.
    prepare: returns the grid, and the other arguments in order and by name. It's called if the key is new.
    """
    device, places, low_bits = tensors[0].get_device(), [], 0
    for tensor in tensors:
        place = None if tensor is None else tensor.data_ptr()
        places.append(place)
        low_bits |= place or 0
    key = (device, key)
    if low_bits % 16 == 0 and key in _prepared:
        _prepared[key](*places)
        return
    grid, arguments, options = prepare()
    compiled = kernel[grid](*tensors, *arguments, **options)
    if device >= 0 and low_bits % 16 == 0 and compiled is not None:
        names = kernel.arg_names[len(tensors) + len(arguments) :]
        keep(key, compiled, grid, (*arguments, *[options[name] for name in names]))


def keep(key: tuple, compiled: Any, grid: tuple[int, ...], arguments: tuple) -> None:
    """Keep a compiled kernel for later calls, with its grid and the arguments that follow the pointers.

    key: begins with the number of the device.
    """
    if len(_prepared) >= MOST:
        _prepared.clear()
    x, y, z = (*grid, 1, 1)[:3]
    whole, hooks = compiled[x, y, z], triton.knobs.runtime
    device, stream = key[0], torch._C._cuda_getCurrentRawStream
    run, begin, end = _started_by(compiled)

    def start(*pointers: Any) -> None:
        enter, leave = hooks.launch_enter_hook, hooks.launch_exit_hook
        if getattr(enter, "calls", enter) or getattr(leave, "calls", leave):  # a profiler perhaps
            whole(*pointers, *arguments, stream=stream(device))
        else:
            run(x, y, z, stream(device), *begin, None, None, *end, *pointers, *arguments)

    _prepared[key] = start


def _started_by(compiled: Any) -> tuple[Callable[..., None], tuple, tuple]:
    """Return what starts a compiled kernel, and its arguments before and after the two for scratch memory.

    Triton 3.6 has a launcher in C under one in Python, which is left out if there is no scratch memory.
    """
    run, function, metadata = compiled.run, compiled.function, compiled.packed_metadata
    scratch = getattr(run, "global_scratch_size", 1) or getattr(run, "profile_scratch_size", 1)
    if type(run).__name__ == "CudaLauncher" and not scratch and not hasattr(run, "arg_annotations"):
        return run.launch, (function, run.launch_cooperative_grid, run.launch_pdl), (metadata, *[None] * 3)
    return run, (function, metadata), (None,)


def prepared(key: tuple) -> Callable[..., None] | None:
    """Return a function that starts the kernel kept under a key."""
    return _prepared.get(key)
