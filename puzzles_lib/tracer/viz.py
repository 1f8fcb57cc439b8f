"""Record a run with triton-viz.

This is the only module that imports triton_viz, and only when a trace is made. triton-viz patches all of
Triton while it runs, and some of it on import; all of that is undone here.
"""

import contextlib
import io
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType

import numpy as np
import torch
import triton.language as tl
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.binding import Bound
from puzzles_lib.checker import SECONDS_PER_CASE
from puzzles_lib.dtypes import of_triton
from puzzles_lib.inputs import make_inputs
from puzzles_lib.interpreter import Access, Program, Run, TimeLimitReached, time_limit
from puzzles_lib.interpreter.limits import interrupts_held, undone_after_fork
from puzzles_lib.interpreter.restored import forget_interpreter, triton_restored
from puzzles_lib.source import Site, with_helpers


class NotTraced(Exception):
    """triton-viz failed on a kernel. The message says at which operation and how, in a few words."""


@dataclass(frozen=True)
class Product:
    """One `tl.dot` of one program, with the values of its operands."""

    program: Program
    left: np.ndarray
    right: np.ndarray
    site: Site


Step = Access | Product


def steps(bound: Bound, ran: Run) -> list[Step]:
    """Return the accesses and products of a clean kernel, from triton-viz's records.

    ran: its guarded run, from which atomics are taken, because triton-viz does not record them.
    Raises NotTraced if triton-viz cannot trace the kernel.
    """
    puzzle, case = bound.puzzle, bound.case
    tensors = make_inputs(puzzle, case)
    tensors |= {r.name: torch.zeros(r.shape(case.numbers), dtype=r.dtype) for r in puzzle.results}
    found = _run_traced(bound.kernel, bound.filled(tensors), tuple(puzzle.grid(case)))
    atomics = [access for access in ran.accesses if access.kind == "atomic"]
    if not atomics:
        return found
    merged = defaultdict(list)
    for step in [*found, *atomics]:
        merged[step.program].append(step)
    return [step for program in sorted(merged) for step in merged[program]]


def _run_traced(kernel: JITFunction, bound: Mapping[str, object], grid: tuple[int, ...]) -> list[Step]:
    """Run one launch under a fresh Tracer. Raise NotTraced if triton-viz cannot."""
    quiet = io.StringIO()
    tracer = traced = None

    def launch() -> None:
        traced[grid](**bound)

    with (
        interrupts_held(inside=launch),
        contextlib.redirect_stdout(quiet),
        contextlib.redirect_stderr(quiet),
        warnings.catch_warnings(),
        np.errstate(all="ignore"),
        _kept(kernel),
    ):
        warnings.simplefilter("ignore")
        try:
            viz = _triton_viz()
            tracer = _tracer(viz)
            traced = viz.TritonTrace(kernel, tracer)
            with time_limit(SECONDS_PER_CASE, inside=launch):
                launch()
        except TimeLimitReached:
            raise NotTraced("it takes too long") from None
        except Exception as error:
            while error.__cause__ is not None:
                error = error.__cause__
            raise NotTraced(_failure(kernel, error)) from None
    return tracer.found


def _failure(kernel: JITFunction, error: BaseException) -> str:
    """Say which operation of which line raised what."""
    ours = {(f.fn.__code__.co_filename, f.fn.__name__) for f in with_helpers(kernel)}
    frames = traceback.extract_tb(error.__traceback__)
    places = [i for i, frame in enumerate(frames) if (frame.filename, frame.name) in ours]
    if not places:
        return type(error).__name__
    last = places[-1]
    named = (f.name for f in frames[last + 1 :] if "/triton/language/" in f.filename and hasattr(tl, f.name))
    operation = next((f"tl.{name}" for name in named), "")
    line = f"line {frames[last].lineno}"
    place = f"{operation} ({line})" if operation else line
    return f"{place} raises {type(error).__name__} there"


def _triton_viz() -> ModuleType:
    """Return triton-viz's tracing, which is imported when first needed."""
    import triton_viz  # noqa: F401
    from triton_viz.frontends.base import OPERATION_REGISTRY

    OPERATION_REGISTRY["triton"].namespaces[tl].pop("trans", None)  # its patch of tl.trans raises
    return sys.modules["triton_viz.core.trace"]  # as an attribute, the function of that name hides it


def _tracer(viz: ModuleType):
    """Return a Tracer that turns its records into accesses and stops at one outside of the tensors.

    The guarded run has shown that the kernel is clean. But undefined lanes have other values here than there,
    so the kernel may still do something else this time.
    """
    from triton_viz.core.callbacks import OpCallbacks
    from triton_viz.core.data import AtomicCas, AtomicRMW, Dot, Load, Store

    class AccessTracer(viz.Tracer):
        def __init__(self):
            super().__init__()
            self.arguments: dict[str, torch.Tensor] = {}
            self.found: list[Step] = []
            self.program: Program = (0, 0, 0)

        def arg_callback(self, name, arg, arg_cvt):
            super().arg_callback(name, arg, arg_cvt)
            if isinstance(arg, torch.Tensor):
                self.arguments[name.removesuffix("_ptr")] = arg
            elif isinstance(arg, TensorDescriptor):
                self.arguments[name.removesuffix("_desc")] = arg.base

        def grid_idx_callback(self, grid_idx):
            super().grid_idx_callback(grid_idx)
            self.program = (*grid_idx, *(0,) * (3 - len(grid_idx)))

        def register_op_callback(self, op_type):
            callbacks = super().register_op_callback(op_type)
            if op_type in (Load, Store):
                record = callbacks.before_callback

                def note(ptr, mask, keys):
                    record(ptr, mask, keys)
                    self._take(self.records[-1], "load" if op_type is Load else "store")

                return OpCallbacks(before_callback=note)
            if op_type is Dot:

                def keep(ret, left, right):
                    callbacks.after_callback(ret, left, right)
                    site = _site(self.records[-1].call_path)
                    self.found.append(Product(self.program, _values(left), _values(right), site))

                return OpCallbacks(after_callback=keep)
            if op_type is AtomicRMW:
                return OpCallbacks(
                    before_callback=lambda op, ptr, val, mask, *a, **k: self._vet(ptr.data, mask.data)
                )
            if op_type is AtomicCas:
                return OpCallbacks(before_callback=lambda ptr, *a, **k: self._vet(ptr.data, None))
            return callbacks

        def _take(self, record, kind: str) -> None:
            addresses = record.offsets.view(np.int64) + record.ptr
            mask = np.broadcast_to(np.asarray(record.masks, bool), addresses.shape)
            name, tensor = self._vet(addresses, mask)
            elements = (addresses - tensor.data_ptr()) // tensor.element_size()
            site = _site(record.call_path)
            bad = np.zeros(mask.shape, bool)
            self.found.append(Access(kind, name, self.program, elements, mask.copy(), bad, site))

        def _vet(self, addresses: np.ndarray, mask: np.ndarray | None) -> tuple[str, torch.Tensor]:
            """Return the argument that all active lanes point into; the nearest one if no lane is active."""
            addresses = addresses.astype(np.int64)
            on = addresses.ravel() if mask is None else addresses[np.broadcast_to(mask, addresses.shape)]
            if not on.size:
                first = int(addresses.flat[0])
                return min(self.arguments.items(), key=lambda item: _distance(first, item[1]))
            for name, tensor in self.arguments.items():
                if _distance(int(on.min()), tensor) == 0 and _distance(int(on.max()), tensor) == 0:
                    return name, tensor
            raise MemoryError("lanes are outside of the tensors")

    return AccessTracer()


def _values(handle) -> np.ndarray:
    """Return a copy of an operand's numbers; Triton's interpreter keeps bfloat16 and float8 as bits."""
    return of_triton(handle.dtype).widen(handle.data).copy()


def _site(frames: Sequence[traceback.FrameSummary]) -> Site:
    """Return the innermost line of the learner's source."""
    lines = (Site(f.lineno, f.line) for f in reversed(frames) if f.filename != __file__)
    return next(lines, Site(0, ""))


def _distance(address: int, tensor: torch.Tensor) -> int:
    """Return the bytes from an address to a tensor's memory; 0 inside."""
    first = tensor.data_ptr()
    return max(first - address, address - (first + tensor.nbytes - 1), 0)


@contextlib.contextmanager
def _kept(kernel: JITFunction) -> Iterator[None]:
    """Restore Triton, triton-viz and the kernel's globals afterwards, whatever happens inside."""
    namespaces = {id(f.fn.__globals__): f.fn.__globals__ for f in with_helpers(kernel)}.values()
    before = [set(namespace) for namespace in namespaces]

    def put_back() -> None:
        for namespace, names in zip(namespaces, before, strict=True):
            namespace.pop("_triton_viz_loop_patcher", None)
            forget_interpreter(namespace, names)
        _reset_triton_viz()

    with triton_restored(
        kernel
    ):  # triton-viz raises the recursion limit so far that endless recursion would crash
        try:
            with undone_after_fork(put_back):
                yield
        finally:
            put_back()


def _reset_triton_viz() -> None:
    """Forget what an interrupted launch left in triton-viz itself."""
    patch, viz = sys.modules.get("triton_viz.core.patch"), sys.modules.get("triton_viz.core.trace")
    if patch is None or viz is None:
        return
    for scopes in patch._LANG_PATCH_SCOPES.values():
        scopes.clear()
    patch.patch_calls_scope = 0
    patch._loop_patcher.hooks.clear()
    patch._loop_patcher._patched = False
    patch._current_client_manager = None
    viz.launches.clear()
