"""Start kernels with little work for the host.

A training step on a GPU is often limited by the host, which takes longer to start a kernel than the kernel
runs. Two things here keep that time short:

- `run` calls an operator's implementation directly in eager mode. The operator itself, with torch's checks
  around it, is called under `torch.compile`, in an export and wherever else a call has to be seen.
- `launch` starts a kernel through Triton once per set of shapes. After that it starts the compiled kernel
  with the arguments of the first time, and only pointers are new.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import nn

MOST = 4096  # prepared launches that are kept

_prepared: dict[tuple, Callable[..., None]] = {}
_PLAIN = (torch.Tensor, nn.Parameter)


def run(operator: Callable[..., Any], implementation: Callable[..., Any], x: torch.Tensor, *rest: Any) -> Any:
    """Return what the operator returns for these arguments: from its implementation, where that is as good.

    That is in eager mode, for a plain tensor x, with nobody who wants to see operators.
    """
    if (
        torch.compiler.is_compiling()
        or type(x) not in _PLAIN
        or x.is_meta
        or torch._C._len_torch_dispatch_stack()
    ):
        return operator(x, *rest)
    return implementation(x, *rest)


def on_device_of(x: torch.Tensor) -> AbstractContextManager:
    """Return a context in which the GPU of x is the current one."""
    here = x.get_device() == torch.cuda.current_device()
    return nullcontext() if here else torch.cuda.device(x.device)


def launch(
    kernel: Any,
    key: tuple,
    tensors: tuple[torch.Tensor | None, ...],
    prepare: Callable[[], tuple[tuple[int, ...], tuple, dict[str, Any]]],
) -> None:
    """Start a kernel on the device of the first tensor, which is the current one.

    kernel: a jit function. Its first parameters are pointers, and ``tensors`` are what they point to.
    key: everything that the kernel, its grid, its other arguments and the dtypes of its tensors depend on.
    prepare: gives the grid, the other arguments in order and by name, and is called if the key is new.
    """
    device = tensors[0].get_device()
    if device < 0:  # a CPU tensor: the kernel is interpreted
        grid, arguments, options = prepare()
        kernel[grid](*tensors, *arguments, **options)
        return
    pointers = [None if tensor is None else tensor.data_ptr() for tensor in tensors]
    aligned = not any(pointer is not None and pointer % 16 for pointer in pointers)
    start = _prepared.get((device, key)) if aligned else None
    if start is not None:
        start(*pointers)
        return
    grid, arguments, options = prepare()
    compiled = kernel[grid](*tensors, *arguments, **options)
    if aligned and hasattr(compiled, "packed_metadata"):
        names = kernel.arg_names[len(tensors) + len(arguments) :]
        keep((device, key), compiled, grid, (*arguments, *[options[name] for name in names]))


def keep(key: tuple, compiled: Any, grid: tuple[int, ...], arguments: tuple) -> None:
    """Keep a compiled kernel for the calls to come, with its grid and the arguments behind the pointers."""
    if len(_prepared) >= MOST:
        _prepared.clear()
    start = compiled[(*grid, 1, 1)[:3]]
    device = key[0]
    stream = torch._C._cuda_getCurrentRawStream
    _prepared[key] = lambda *pointers: start(*pointers, *arguments, stream=stream(device))


def prepared(key: tuple) -> Callable[..., None] | None:
    """Return what was kept under a key."""
    return _prepared.get(key)
