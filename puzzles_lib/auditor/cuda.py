"""Let code that asks for a GPU run here: its tensors stay on the CPU and say that they are on a GPU.

A torch function mode treats ``device="cuda"``, ``.cuda()`` and ``.to("cuda")`` as the CPU, and answers
``is_cuda`` and ``device`` as a GPU tensor would. `torch.cuda` and Triton's driver answer for one H100. What a
CUDA library computes (cuBLAS, cuDNN, extensions in C++) is not there: torch computes on the CPU, and an
extension raises as it does without a GPU.
"""

import contextlib
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.overrides import TorchFunctionMode
from triton.runtime import driver

from puzzles_lib.auditor.catching import benched, one_thread
from puzzles_lib.auditor.launch import address_of
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
def pretended(tensors: str = "cpu", compiles: bool = False) -> Iterator[None]:
    """Pretend that there is a GPU.

    tensors: the device where they really are, ``"cpu"`` or ``"meta"``. compiles: whether `torch.compile`
    compiles. By default it returns the function unchanged, so that its kernels are launched one after the
    other.
    """
    with one_thread(), contextlib.ExitStack() as stack:
        if not compiles:
            stack.enter_context(_set(torch, "compile", _uncompiled))
        for owner, name, value in _replacements():
            if hasattr(owner, name):
                stack.enter_context(_set(owner, name, value))
        # torch's CPU build has no such function.
        stack.enter_context(_set(torch._C, "_cuda_getCurrentRawStream", lambda device=0: 0))
        stack.enter_context(driven())
        stack.enter_context(OnGPU(tensors))
        yield


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

    def elapsed_time(self, other: object) -> float:
        return 1.0

    def record_event(self, event: Any = None) -> Any:
        return event or _Stream()

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    synchronize = wait = record = wait_stream = wait_event = _nothing


def _nothing(*_: Any, **__: Any) -> None:
    pass


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


class _NoGraph:
    def __init__(self, *_: Any, **__: Any):
        raise RuntimeError("a CUDA graph cannot be recorded here: there is no GPU")


def _properties(device: Any = None) -> SimpleNamespace:
    return SimpleNamespace(**_PROPERTIES)


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
    }
    for name, answer in answers.items():
        yield cuda, name, lambda *_, _answer=answer, **__: _answer
    for name in (
        "init", "_lazy_init", "set_device", "synchronize", "empty_cache", "reset_peak_memory_stats",
        "ipc_collect", "manual_seed", "manual_seed_all", "set_stream", "reset_max_memory_allocated",
    ):  # fmt: skip
        yield cuda, name, lambda *_, **__: None  # one each: torch's compiler asks that they differ
    yield cuda, "get_device_properties", _properties
    yield cuda, "get_rng_state", lambda *_, **__: torch.get_rng_state()
    yield cuda, "set_rng_state", lambda state, *_, **__: torch.set_rng_state(state)
    yield (
        triton.testing,
        "nvsmi",
        lambda attributes: [_OF_TRITON["sm_clock_rate"] // 1000 for _ in attributes],
    )
    for name in ("current_stream", "default_stream"):
        yield cuda, name, lambda *_, **__: _Stream()
    for name in ("Stream", "Event", "stream", "device", "device_of", "StreamContext", "_DeviceGuard"):
        yield cuda, name, type(name, (_Stream,), {})
    for name in ("CUDAGraph", "graph"):
        yield cuda, name, type(name, (_NoGraph,), {})
    for name in ("range_push", "range_pop", "mark"):
        yield cuda.nvtx, name, lambda *_, **__: None
    yield torch.version, "cuda", "12.8"
    yield cuda, "default_generators", (_Philox(),)
    yield torch, "set_default_device", lambda *_, **__: None
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
    """A mode in which tensors claim to be on a GPU. tensors: the device where they really are."""

    def __init__(self, tensors: str = "cpu"):
        super().__init__()
        self.tensors = torch.device(tensors)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.device:
            return func(*args, **kwargs)
        if answer := _ANSWERS.get(func):
            return answer(*args, **kwargs)
        args = tuple(self._here(each) for each in args)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self._here(kwargs["device"], named=True)}
        elif func in _FACTORIES and self.tensors.type != "cpu":
            kwargs = {**kwargs, "device": self.tensors}
        return func(*args, **kwargs)

    def _here(self, value: Any, named: bool = False) -> Any:
        """The device where tensors are in truth, if this names a GPU."""
        if isinstance(value, torch.device):
            return self.tensors if value.type == "cuda" else value
        if isinstance(value, str) and (value == "cuda" or value.startswith("cuda:")):
            return self.tensors
        if named and isinstance(value, int) and not isinstance(value, bool):
            return self.tensors
        return value


def _same(value: Any, *_: Any, **__: Any) -> Any:
    return value


def _copied(tensor: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return tensor.clone()


_ANSWERS: dict[Any, Callable] = {
    torch.Tensor.is_cuda.__get__: lambda *_: True,  # type: ignore[attr-defined]
    torch.Tensor.is_cpu.__get__: lambda *_: False,  # type: ignore[attr-defined]
    torch.Tensor.is_meta.__get__: lambda *_: False,  # type: ignore[attr-defined]
    torch.Tensor.device.__get__: lambda *_: _CUDA,  # type: ignore[attr-defined]
    torch.Tensor.get_device: lambda *_: 0,
    torch.Tensor.cuda: _same,
    torch.Tensor.cpu: _copied,
    torch.Tensor.data_ptr: address_of,
    torch.Tensor.pin_memory: _same,
    torch.Tensor.is_pinned: lambda *_, **__: False,
    torch.Tensor.record_stream: _nothing,
}
_FACTORIES = {
    torch.empty, torch.zeros, torch.ones, torch.full, torch.rand, torch.randn, torch.randint, torch.arange,
    torch.empty_strided, torch.tensor, torch.linspace, torch.eye,
}  # fmt: skip
