"""Let code that asks for a GPU run here: its tensors stay on the CPU and say that they are on a GPU.

A torch function mode treats ``device="cuda"``, ``.cuda()`` and ``.to("cuda")`` as the CPU, and answers
``is_cuda`` and ``device`` as a GPU tensor would. Torch suspends a mode while it handles a call, so the mode
turns itself on again for calls that lead back to Python: backward passes and custom operators. `torch.cuda`
and Triton's driver answer for one H100. CUDA libraries don't run. What torch would compute with cuBLAS or
cuDNN, it computes on the CPU. C++ extensions for CUDA raise an error, as they do without a GPU.
"""

import collections
import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch._ops import OperatorBase, OpOverload, OpOverloadPacket
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import _pytree as pytree
from triton.runtime import driver

from puzzles_lib.auditor.catching import benched, one_thread
from puzzles_lib.auditor.defined import WeakStorage, storage_of
from puzzles_lib.auditor.graphs import Graph, captured, is_capturing
from puzzles_lib.auditor.launch import Launch, remembered
from puzzles_lib.auditor.scalars import ASKS, Scalars
from puzzles_lib.compiler import find_target

NAME = "NVIDIA H100 80GB HBM3"
_CUDA = torch.device("cuda", 0)
_PROPERTIES = {
    "name": NAME,
    "major": 9,
    "minor": 0,
    "multi_processor_count": 132,
    "total_memory": 80 << 30,
    "shared_memory_per_block": 48 << 10,
    "shared_memory_per_block_optin": 227 << 10,
    "shared_memory_per_multiprocessor": 228 << 10,
    "regs_per_multiprocessor": 65_536,
    "max_threads_per_multi_processor": 2048,
    "warp_size": 32,
    "L2_cache_size": 50 << 20,
    "gcnArchName": "",
    "is_integrated": False,
}
_OF_TRITON = {
    "max_shared_mem": 227 << 10,
    "max_num_regs": 65_536,
    "multiprocessor_count": 132,
    "warpSize": 32,
    "sm_clock_rate": 1_980_000,
    "mem_clock_rate": 2_619_000,
    "mem_bus_width": 5120,
}


@contextlib.contextmanager
def pretended(
    tensors: str = "cpu", compiles: bool = False, strictly: bool = False, scalars: Scalars | None = None
) -> Iterator[None]:
    """Pretend that there is a GPU.

    tensors: the device where they really are, ``"cpu"`` or ``"meta"``. compiles: whether `torch.compile`
    compiles. By default it returns the function unchanged, so that its kernels are launched one after the
    other. strictly: whether a launch must not get a tensor that the code has made on the CPU. scalars: notes
    or answers what code asks of tensors, such as `torch.Tensor.item`.
    """
    with one_thread(), contextlib.ExitStack() as stack:
        if not compiles:
            stack.enter_context(_set(torch, "compile", _uncompiled))
            for owner, name, value in _accelerated():
                if hasattr(owner, name):
                    stack.enter_context(_set(owner, name, value))
        mode = OnGPU(tensors, strictly, scalars)
        for owner, name, value in (*_replacements(), *_calling_back(mode)):
            if hasattr(owner, name):
                stack.enter_context(_set(owner, name, value))
        # torch's CPU build has no such function.
        stack.enter_context(_set(torch._C, "_cuda_getCurrentRawStream", lambda device=0: 0))
        stack.enter_context(driven())
        stack.enter_context(remembered())
        stack.enter_context(mode)
        _modes.append(mode)
        stack.callback(_modes.remove, mode)
        yield


_modes: list["OnGPU"] = []


def not_on_gpu(launch: Launch) -> str:
    """Return the name of a tensor on the CPU that a launch gets although a GPU is strictly pretended.

    A GPU can access pinned memory. If there is no such tensor, return "".
    """
    if not _modes or not _modes[-1].strictly:
        return ""
    every = launch.all_tensors.items()
    return next((name for name, tensor in every if tensor.numel() and _modes[-1].keeps(tensor)), "")


# Before torch 2.13, an operator that is written in Python sees tensors on the CPU.
_REDISPATCH: Any = getattr(torch.overrides, "redispatch_function", None)
_RUN_BACKWARD = torch.autograd._engine_run_backward  # type: ignore[attr-defined]
_PUSH_HOOKS = torch._C._autograd._push_saved_tensors_default_hooks


def _calling_back(mode: "OnGPU") -> Iterator[tuple[Any, str, Any]]:
    """Yield what calls the user's functions, so that these see the GPU."""

    def run_backward(outputs: Any, grads: Any, *args: Any, **kwargs: Any) -> Any:
        mode.note_alike(outputs, grads)
        with torch._C.DisableTorchFunction() if mode.computed_on_cpu(outputs) else mode.again():
            return _RUN_BACKWARD(outputs, grads, *args, **kwargs)

    def push_hooks(pack: Callable[..., Any], unpack: Callable[..., Any]) -> None:
        _PUSH_HOOKS(_within(mode, pack), _within(mode, unpack))

    yield (
        threading.Thread,
        "run",
        _within(mode, threading.Thread.run),
    )  # torch's modes are those of one thread
    yield torch.autograd, "_engine_run_backward", run_backward
    yield torch._C._autograd, "_push_saved_tensors_default_hooks", push_hooks


def _within(mode: "OnGPU", function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs with the mode."""

    def called(*args: Any, **kwargs: Any) -> Any:
        with mode.again():
            return function(*args, **kwargs)

    return called


@contextlib.contextmanager
def _set(owner: Any, name: str, value: Any) -> Iterator[None]:
    missing = object()
    was = getattr(owner, name, missing)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if was is missing:
            delattr(owner, name)
        else:
            setattr(owner, name, was)


@contextlib.contextmanager
def driven() -> Iterator[None]:
    """Let Triton find the driver of a GPU that is not there."""
    was = driver._active
    driver.set_active(_Driver())
    try:
        yield
    finally:
        driver._active = was


class _Driver:
    """Triton's driver of a GPU that is not there."""

    utils = SimpleNamespace(get_device_properties=lambda device=0: dict(_OF_TRITON))

    def is_active(self) -> bool:
        return True

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return 9, 0

    def get_current_target(self) -> Any:
        return find_target("sm_90").gpu

    def get_active_torch_device(self) -> torch.device:
        return _CUDA

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable:
        return benched

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(0)

    def clear_cache(self, cache: object) -> None:
        pass


class _Stream:
    """A stream or an event: what is launched is done at once."""

    cuda_stream, stream_id, device_index, device = 0, 0, 0, _CUDA

    def __init__(self, *_: Any, **__: Any):
        pass

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return is_capturing()

    def elapsed_time(self, other: object) -> float:
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        return event or _Stream()

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    synchronize = wait = record = wait_stream = wait_event = _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass


class _Runtime:
    """CUDA's runtime, of which each call succeeds and does nothing."""

    def __getattr__(self, name: str) -> Callable[..., int]:
        return lambda *_: 0


def _uncompiled(model: Any = None, **_: Any) -> Any:
    return _same if model is None else model


def _on_cpu(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of autocast that answers for the CPU if it is asked about a GPU."""
    return lambda *args: function(*("cpu" if each == "cuda" else each for each in args))


_AUTOCAST = torch.amp.autocast_mode.autocast.__init__


def _autocast(
    self: Any,
    device_type: str,
    dtype: torch.dtype | None = None,
    enabled: bool = True,
    cache_enabled: bool | None = None,
) -> None:
    """Cast where the tensors are in truth, to float16 as on a GPU."""
    if device_type == "cuda":
        device_type, dtype = "cpu", dtype or torch.float16
    _AUTOCAST(self, device_type, dtype, enabled, cache_enabled)


def _sharing(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that makes tensors of memory on the CPU. Torch's modes don't see its calls."""

    def made(*args: Any, **kwargs: Any) -> torch.Tensor:
        tensor = function(*args, **kwargs)
        for mode in _get_current_function_mode_stack():
            if isinstance(mode, OnGPU):
                mode.note_on_cpu(tensor)
        return tensor

    return made


def _loading(load: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that loads tensors. They are on the GPU unless ``map_location`` is the CPU."""

    def loaded(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        is_cpu = map_location is not None and not _is_gpu(map_location)
        with torch._C.DisableTorchFunction():
            found = load(f, map_location if is_cpu else "cpu", *args, **kwargs)
        for mode in _get_current_function_mode_stack():
            if is_cpu and isinstance(mode, OnGPU):
                for leaf in pytree.tree_leaves(found):
                    mode.note_on_cpu(leaf)
        return found

    return loaded


def _set_default_device(device: Any) -> None:
    OnGPU.is_default = _is_gpu(device, named=True)


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(**_PROPERTIES)


def _accelerated() -> Iterator[tuple[Any, str, Any]]:
    """Yield what `torch.accelerator` answers. Torch's compiler would take it for a device of its own."""
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_accelerator": torch.device("cuda"),
        "current_device_index": 0,
        "current_device_idx": 0,
        "synchronize": None,
        "set_device_index": None,
        "set_device_idx": None,
        "empty_cache": None,
        "memory_allocated": 0,
        "max_memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "reset_peak_memory_stats": None,
        "get_memory_info": (79 << 30, 80 << 30),
    }
    for name, answer in answers.items():
        yield torch.accelerator, name, lambda *_, _answer=answer, **__: _answer
    yield torch.accelerator, "current_stream", lambda *_, **__: torch.cuda.current_stream()


def _replacements() -> Iterator[tuple[Any, str, Any]]:
    cuda = torch.cuda
    answers: dict[str, Any] = {
        "is_available": True,
        "device_count": 1,
        "current_device": 0,
        "get_device_capability": (9, 0),
        "get_device_name": NAME,
        "is_bf16_supported": True,
        "_exchange_device": 0,
        "_maybe_exchange_device": 0,
        "is_initialized": True,
        "max_memory_allocated": 0,
        "memory_allocated": 0,
        "memory_reserved": 0,
        "max_memory_reserved": 0,
        "mem_get_info": (79 << 30, 80 << 30),
        "get_arch_list": ["sm_90"],
        "memory_summary": "",
    }
    for name, answer in answers.items():
        yield cuda, name, lambda *_, _answer=answer, **__: _answer
    for name in (
        "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats",
        "ipc_collect", "manual_seed", "manual_seed_all", "set_stream", "reset_max_memory_allocated",
    ):  # fmt: skip
        yield cuda, name, lambda *_, **__: None  # one each: torch's compiler asks that they differ
    yield cuda, "get_device_properties", _properties
    yield cuda, "memory_stats", lambda *_, **__: collections.Counter()
    yield cuda, "get_rng_state", lambda *_, **__: torch.get_rng_state()
    yield cuda, "set_rng_state", lambda state, *_, **__: torch.set_rng_state(state)
    yield (
        triton.testing,
        "nvsmi",
        lambda attributes: [_OF_TRITON["sm_clock_rate"] // 1000 for _ in attributes],
    )
    stream = type("Stream", (_Stream,), {})
    for name in ("current_stream", "default_stream"):
        yield cuda, name, lambda *_, **__: stream()
    for name in ("Stream", "ExternalStream"):
        yield cuda, name, stream
    for name in ("Event", "stream", "device", "device_of", "StreamContext", "_DeviceGuard"):
        yield cuda, name, type(name, (_Stream,), {})
    yield torch.Tensor, "record_stream", _nothing  # torch's own takes a true stream
    yield cuda, "CUDAGraph", Graph
    yield cuda, "graph", captured
    yield cuda, "graph_pool_handle", lambda: (0, 0)
    yield cuda, "is_current_stream_capturing", is_capturing
    yield cuda, "make_graphed_callables", lambda callables, *_, **__: callables
    for name in ("range_push", "range_pop", "mark"):
        yield cuda.nvtx, name, lambda *_, **__: None
    yield cuda, "cudart", _Runtime
    for name in ("start", "stop"):
        yield cuda.profiler, name, lambda: None
    yield torch.version, "cuda", "12.8"
    yield cuda, "default_generators", (_Philox(),)
    for name in ("from_numpy", "frombuffer"):
        yield torch, name, _sharing(getattr(torch, name))
    yield torch, "load", _loading(torch.load)
    yield torch, "set_default_device", _set_default_device
    yield OnGPU, "is_default", False
    yield torch, "Generator", _Generator
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        yield torch, name, _on_cpu(getattr(torch, name))
    yield torch.amp.autocast_mode.autocast, "__init__", _autocast


class _Philox:
    """A GPU's generator of random numbers, whose state is a seed and an offset."""

    def __init__(self) -> None:
        self.state = torch.tensor([0, 0], dtype=torch.int64)

    def get_state(self) -> torch.Tensor:
        return self.state.clone().view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> None:
        self.state = state.clone().view(torch.int64)

    def manual_seed(self, seed: int) -> "_Philox":
        self.state = torch.tensor([seed, 0], dtype=torch.int64)
        return self

    def initial_seed(self) -> int:
        return int(self.state[0])

    def get_offset(self) -> int:
        return int(self.state[1])

    def set_offset(self, offset: int) -> None:
        self.state[1] = offset


class _Generator(torch.Generator):
    def __new__(cls, device: Any = "cpu") -> "_Generator":
        return super().__new__(cls, "cpu")  # type: ignore[call-arg]


class OnGPU(TorchFunctionMode):
    """A mode in which tensors claim to be on a GPU. tensors, strictly, scalars: as in `pretended`."""

    is_default = False  # whether new tensors are on the GPU unless their call names a device

    def __init__(self, tensors: str = "cpu", strictly: bool = False, scalars: Scalars | None = None):
        super().__init__()
        self.tensors, self.strictly, self.scalars = torch.device(tensors), strictly, scalars
        self._on_cpu, self._pinned = _Storages(), _Storages()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            if len(args) == 1 and type(args[0]) is int:
                return func("cuda", *args)
            return func(*args, **kwargs)
        if func is torch._C._nn._parse_to:  # of `torch.nn.Module.to`, which then calls `torch.Tensor.to`
            return func(*args, **kwargs)
        if func in (torch.Tensor.to, torch.Tensor.cuda, torch.Tensor.cpu) and self.tensors.type == "cpu":
            return self._moved(func, args, kwargs)
        if func is torch.Tensor.pin_memory:
            self._pinned.add(args[0])
            return args[0]
        if func is torch.Tensor.is_pinned:
            return args[0] in self._pinned
        if func in _OF_DEVICES:
            if args[0].device.type == "meta" != self.tensors.type:
                return func(*args, **kwargs)
            return _OF_DEVICES[func][args[0] in self._on_cpu]
        if answer := _ANSWERS.get(func):
            return answer(*args, **kwargs)
        if self.scalars is not None and func in ASKS:
            return self.scalars.answer(func, args[0])
        if func in _TAKE_APART and self.tensors.type == "meta":
            _check_parts(func, args, kwargs)
        asked = kwargs.get("device")
        args = tuple(self._here(each) for each in args)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self._here(kwargs["device"], named=True)}
        elif func in _FACTORIES and self.tensors.type != "cpu":
            kwargs = {**kwargs, "device": self.tensors}
        is_pinned = kwargs.get("pin_memory", False)
        if "pin_memory" in kwargs:
            kwargs = {**kwargs, "pin_memory": False}
        if _REDISPATCH and isinstance(func, OperatorBase | OpOverloadPacket):  # perhaps the user's own
            with self:
                result = _REDISPATCH(func, types, args, kwargs)
        else:
            result = func(*args, **kwargs)
        if asked is not None and not isinstance(func, OpOverload):  # torch itself asks for the true device
            on_cpu = not _is_gpu(asked, named=True) and torch.device(asked).type == "cpu"
        elif (func in _FACTORIES and "out" not in kwargs) or _is_made_of_data(func, args):
            on_cpu = not OnGPU.is_default
        else:
            on_cpu = self._on_cpu.hold_all(args, kwargs)
        if on_cpu:
            for each in result if isinstance(result, tuple | list) else (result,):
                self._on_cpu.add(each)
                if is_pinned:
                    self._pinned.add(each)
        return result

    def keeps(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on the CPU, and no GPU can access it."""
        return tensor in self._on_cpu and tensor not in self._pinned

    def again(self) -> contextlib.AbstractContextManager:
        """Return a context in which the mode is on, also where torch has suspended it."""
        return contextlib.nullcontext() if self in _get_current_function_mode_stack() else self

    def computed_on_cpu(self, outputs: Any) -> bool:
        """Return whether tensors are on the CPU, and so is all that they were computed from."""
        with torch._C.DisableTorchFunction():
            if not all(isinstance(each, torch.Tensor) and each in self._on_cpu for each in outputs):
                return False
            left = [each.grad_fn for each in outputs]
            seen = set(left)
            while left:
                node = left.pop()
                if isinstance(node, _Copied._backward_cls):
                    return False
                new = {other for other, _ in node.next_functions} - seen if node is not None else set()
                seen |= new
                left += new
            return True

    def note_alike(self, outputs: Any, grads: Any) -> None:
        """Note that gradients are on the CPU whose tensors are."""
        for output, grad in zip(outputs, grads, strict=True):
            if isinstance(output, torch.Tensor) and output in self._on_cpu:
                self._on_cpu.add(grad)

    def note_on_cpu(self, tensor: object) -> None:
        """Note that code has made a tensor on the CPU. Anything else is left out."""
        self._on_cpu.add(tensor)

    def _moved(self, func: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
        """Return a tensor on another device: a copy, if it is known to be on this one, or is copied to it."""
        tensor = args[0]
        if func is torch.Tensor.to:
            target = kwargs.get("device", args[1] if len(args) > 1 else None)
            to_gpu = _is_gpu(target, named=True)
            to_cpu = not to_gpu and isinstance(target, str | torch.device)
            args = (tensor, *(self._here(each, named=place == 0) for place, each in enumerate(args[1:])))
            if "device" in kwargs:
                kwargs = {**kwargs, "device": self._here(kwargs["device"], named=True)}
            result = func(*args, **kwargs)
        else:
            to_gpu, to_cpu, result = func is torch.Tensor.cuda, func is torch.Tensor.cpu, tensor
        if to_cpu or (to_gpu and tensor in self._on_cpu):
            if result.requires_grad and not torch._C._are_functorch_transforms_active():
                return _Copied.apply(result, self, to_cpu)
            if _share(result, tensor):
                result = result.clone()
        if to_cpu:
            self._on_cpu.add(result)
        return result

    def _here(self, value: Any, named: bool = False) -> Any:
        """The device where tensors are in truth, if this names a GPU."""
        return self.tensors if _is_gpu(value, named) else value


def _is_gpu(value: Any, named: bool = False) -> bool:
    """Whether a value names a GPU. named: whether it must be a device's name, so that a number is one."""
    if isinstance(value, torch.device):
        return value.type == "cuda"
    if isinstance(value, str):
        return value == "cuda" or value.startswith("cuda:")
    return named and isinstance(value, int) and not isinstance(value, bool)


def _is_made_of_data(func: Any, args: tuple) -> bool:
    """Whether a call makes a tensor of numbers, and not of another tensor."""
    return func in (torch.as_tensor, torch.asarray) and not isinstance(args[0], torch.Tensor)


def _share(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors are in the same memory."""
    first, second = storage_of(one), storage_of(other)
    return one is other if first is None or second is None else first._cdata == second._cdata


class TooManyParts(Exception):
    """Raised if a tensor is taken apart into more tensors than there is time for. The message says so."""


_TAKE_APART = (torch.Tensor.unbind, torch.unbind, torch.Tensor.split, torch.split)
MOST_PARTS = 1 << 17


def _check_parts(func: Any, args: tuple, kwargs: Mapping[str, Any]) -> None:
    """Raise `TooManyParts` for `unbind`, which ``for row in x`` calls, and `split` of a long axis."""
    by_size = func in (torch.Tensor.split, torch.split)
    given = dict(zip(("tensor", "size", "dim") if by_size else ("tensor", "dim"), args, strict=False))
    tensor = given["tensor"] if "tensor" in given else kwargs["input"]
    size = given.get("size", kwargs.get("split_size", kwargs.get("split_size_or_sections", 1)))
    count = tensor.shape[given.get("dim", kwargs.get("dim", 0))] if tensor.dim() else 0
    if isinstance(size, int) and (parts := count // max(size, 1)) > MOST_PARTS:
        raise TooManyParts(f"the function takes a tensor apart into {parts:,} tensors")


class _Copied(torch.autograd.Function):
    """A copy from the GPU to the CPU or back. Its gradient goes the other way."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor, mode: OnGPU, to_cpu: bool) -> torch.Tensor:
        ctx.mode, ctx.to_cpu = mode, to_cpu
        with torch._C.DisableTorchFunction():
            result = tensor.clone()
            if to_cpu:
                mode.note_on_cpu(result)
            return result

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        return _Copied.apply(grads[0], ctx.mode, not ctx.to_cpu), None, None


class _Storages:
    """The memory of tensors that code has made on the CPU, not on the GPU that is not there."""

    def __init__(self) -> None:
        self._known: dict[int, WeakStorage] = {}
        self._forgets_at = 64

    def add(self, tensor: object) -> None:
        """Add a tensor's memory. Anything else is left out."""
        if not isinstance(tensor, torch.Tensor) or (storage := storage_of(tensor)) is None:
            return
        if len(self._known) >= self._forgets_at:
            self._known = {place: ref for place, ref in self._known.items() if not ref.expired()}
            self._forgets_at = max(2 * len(self._known), 64)
        self._known[storage._cdata] = WeakStorage(storage)

    def __contains__(self, tensor: torch.Tensor) -> bool:
        if not self._known or (storage := storage_of(tensor)) is None:
            return False
        known = self._known.get(storage._cdata)
        return known is not None and not known.expired()

    def hold_all(self, args: tuple, kwargs: dict[str, Any]) -> bool:
        """Return whether there are tensors among the arguments, and each of them is here."""
        if not self._known:
            return False
        every = [*args, *kwargs.values()]
        for each in every[:]:
            if isinstance(each, tuple | list):
                every += each
        tensors = [each for each in every if isinstance(each, torch.Tensor)]
        return bool(tensors) and all(tensor in self for tensor in tensors)


def _same(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _copied(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor.clone()


_OF_DEVICES: dict[Any, tuple[Any, Any]] = {  # of a tensor on the GPU, and of one on the CPU
    torch.Tensor.is_cuda.__get__: (True, False),  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: (False, True),  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: (_CUDA, torch.device("cpu")),  # type: ignore[attr-defined]
    torch.Tensor.get_device: (0, -1),
    torch.Tensor.is_meta.__get__: (False, False),  # type: ignore[attr-defined]
}
_ANSWERS: dict[Any, Callable] = {
    torch.Tensor.cuda: _same,  # of a tensor on torch's meta device
    torch.Tensor.cpu: _copied,
}
_FACTORIES = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.arange,
    torch.empty_strided, torch.tensor, torch.linspace, torch.eye, torch.randperm,
}  # fmt: skip
