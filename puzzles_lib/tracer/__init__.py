"""`trace`: which program touched which element of which tensor, as text and as a picture.

The only module that imports triton_viz, and only when a trace is made. A kernel runs guarded first;
only one that stays inside its tensors is run again under triton-viz's Tracer, whose records then make
the picture. triton-viz patches Triton as a whole while it runs (and a little on import): all of that
is undone here.
"""

import contextlib
import io
import math
import sys
import traceback
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType

import numpy as np
import torch
import triton
import triton.language as tl
from matplotlib.figure import Figure
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.checker import SECONDS_PER_CASE, guarded
from puzzles_lib.checker.report import Report
from puzzles_lib.drawing import Picture, TensorMap, access_map, plural, program_name
from puzzles_lib.inputs import make_inputs
from puzzles_lib.interpreter import Access, Program, Run, Site, Stop, TimeLimitReached, time_limit
from puzzles_lib.interpreter.language import stock
from puzzles_lib.interpreter.limits import interrupts_held
from puzzles_lib.puzzle import Argument, Case, Puzzle, Tiled, pick_case


def trace(
    kernel: object,
    puzzle: Puzzle,
    case: int | Case = 0,
    program: int | tuple[int, ...] | None = None,
) -> "Trace":
    """Run a ``@triton.jit`` kernel on one case of a puzzle and show what it touches.

    case: number of the case in ``puzzle.cases``, or a `Case` of your own.
    program: the one to outline, as its number in launch order or its ids along the grid's axes; by
        default one that tells most: the last with lanes out of bounds, else masked off, else 0.

    Whatever the kernel does, this returns: for one that goes out of bounds or breaks off, the picture
    shows what it did until then, bad accesses marked; for one that cannot run, the reason.

    Raises TypeError where ``puzzle`` is not a `Puzzle`, ValueError for a case or program that does not
    exist, and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"trace(kernel, puzzle): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    case = pick_case(puzzle, case, "trace")
    grid = tuple(int(n) for n in puzzle.grid(case))
    outlined = _program(program, grid)
    title = f"{puzzle.name}, {case}"
    tensors = {a.name: (a.dims, a.shape(case.numbers)) for a in puzzle.inputs + puzzle.results}
    ran = guarded(kernel, puzzle, case, record=True)
    if isinstance(ran, Report):
        return Trace(title, grid, refusal=ran)
    accesses, note = ran.accesses, ""
    taken = {name.removesuffix("_ptr").removesuffix("_desc") for name in _parameters(kernel)}
    tensors = {name: tensor for name, tensor in tensors.items() if name in taken}
    if ran.stop is None:
        try:
            accesses = _by_triton_viz(kernel, puzzle, case, ran)
        except _NotTraced as reason:
            note = f"triton-viz cannot trace this kernel ({reason}); drawn from the checker's own run"
    if outlined is None:
        outlined = _telling_program(accesses, grid)
    return Trace(title, grid, tensors, tuple(accesses), outlined, ran.stop, note)


@dataclass(frozen=True, repr=False)
class Trace:
    """What the programs of one launch touched; shows itself as a picture, and as text.

    title: what was run. grid: number of programs along each axis.
    tensors: names of axes, and shape, of each tensor that the kernel takes, by name.
    accesses: every load, store and atomic, program by program.
    program: the outlined one. stop: why the run ended early, None if it did not.
    note: where the accesses come from, if not from triton-viz.
    refusal: the checker's answer where the kernel could not run at all; the rest is empty then.
    """

    title: str
    grid: tuple[int, ...]
    tensors: Mapping[str, tuple[tuple[str, ...], tuple[int, ...]]] = field(default_factory=dict)
    accesses: tuple[Access, ...] = ()
    program: Program | None = None
    stop: Stop | None = None
    note: str = ""
    refusal: Report | None = None

    @property
    def clean(self) -> bool:
        """Whether the kernel ran to its end with every access inside its tensor."""
        return self.stop is None and self.refusal is None

    @cached_property
    def maps(self) -> tuple[TensorMap, ...]:
        """What was done to each tensor, element by element."""
        by_name = defaultdict(list)
        for access in self.accesses:
            by_name[access.argument].append(access)
        return tuple(
            tensor_map(name, dims, shape, by_name[name], self.grid, self.program, counted=not self._cut_off)
            for name, (dims, shape) in self.tensors.items()
        )

    @cached_property
    def picture(self) -> Picture | None:
        """The access map; None for a kernel that could not run."""
        if self.refusal:
            return None
        notes = [text for text in (self._ending(), self.note) if text]
        program = self.program[: len(self.grid)] if self.program else None
        return access_map(self.maps, self.grid, program, self.title, ". ".join(notes))

    @property
    def figure(self) -> Figure | None:
        """The access map as a matplotlib figure; None for a kernel that could not run."""
        return self.picture.figure if self.picture else None

    def _ending(self) -> str:
        """Why the run ended early, in a line."""
        return f"The kernel did not finish: {self.stop.message}" if self.stop and self._broke_off else ""

    @property
    def _cut_off(self) -> bool:
        """Whether it depends on the machine how far the run came."""
        return self.stop is not None and self.stop.kind in ("time limit", "memory limit")

    @property
    def _broke_off(self) -> bool:
        return self.stop is not None and self.stop.kind != "out of bounds"

    def __repr__(self) -> str:
        if self.refusal:
            return str(self.refusal)
        lines = [f"{self.title}: {plural(math.prod(self.grid), 'program')}"]
        width = max((len(name) for name in self.tensors), default=0)
        for each in self.maps:
            lines.append(f"{each.name:{width}}  {each.verb}: {'; '.join(each.facts)}")
            if each.alarm:
                lines.append(f"{'':{width}}  {each.alarm}")
        if self.stop and self.stop.site and self.stop.site.source and not self._cut_off:
            lines.append(str(self.stop.site))
        lines += [text for text in (self._ending(), self.note) if text]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return self.refusal._repr_html_() if self.refusal else self.picture._repr_html_()


# ---- what was asked for


def _program(program: int | tuple[int, ...] | None, grid: tuple[int, ...]) -> Program | None:
    """The program's ids along three axes."""
    if program is None:
        return None
    count = math.prod(grid)
    allowed = f"0 to {count - 1}, or ids below {program_name(grid, len(grid))}"
    wrong = ValueError(f"trace: program is {program!r}, allowed are {allowed}")
    if isinstance(program, int) and not isinstance(program, bool):
        if not 0 <= program < count:
            raise wrong
        return _three(tuple(int(i) for i in np.unravel_index(program, grid)))
    if not isinstance(program, (tuple, list)) or not 1 <= len(program) <= 3:
        raise wrong
    if not all(
        isinstance(i, int) and 0 <= i < n for i, n in zip(_three(program, 0), _three(grid, 1), strict=True)
    ):
        raise wrong
    return _three(program)


def _three(values: Sequence[int], fill: int = 0) -> tuple[int, int, int]:
    return (*values, *(fill,) * (3 - len(values)))


def _parameters(kernel: object) -> list[str]:
    return list(kernel.arg_names)


def _telling_program(accesses: Sequence[Access], grid: tuple[int, ...]) -> Program:
    """The last program with bad lanes, else with masked-off lanes, else the first."""
    masked, bad = None, None
    for access in accesses:
        if access.bad.any():
            bad = access.program
        elif not access.mask.all():
            masked = access.program
    return bad or masked or (0, 0, 0)


# ---- from accesses to elements


def tensor_map(
    name: str,
    dims: tuple[str, ...],
    shape: tuple[int, ...],
    accesses: Sequence[Access],
    grid: tuple[int, ...],
    program: Program | None,
    counted: bool = True,
) -> TensorMap:
    """What these accesses, all of one tensor, did to its elements; ``program`` is the outlined one.

    ``counted``: tell how many lanes there were; not for a run whose length is a matter of time.
    A tensor that is stored to is owned by those who store; loads of it are only told in words.
    """
    size = math.prod(shape)
    kinds = {access.kind for access in accesses}
    drawn = [a for a in accesses if a.kind != "load"] if kinds - {"load"} else list(accesses)
    owner, sharers = np.full(size, -1, np.int64), np.zeros(size, np.int64)
    last, outlined = np.full(size, -1, np.int64), np.zeros(size, bool)
    lanes = masked_off = 0
    numbers = set()
    for access in drawn:
        number = int(np.ravel_multi_index(access.program[: len(grid)], grid))
        on = access.mask & ~access.bad & (access.elements >= 0) & (access.elements < size)
        elements = access.elements[on]
        lanes += int(on.sum())
        masked_off += int((~access.mask).sum())
        new = np.unique(elements[last[elements] != number])
        owner[new] = np.where(owner[new] < 0, number, owner[new])
        sharers[new] += 1
        last[new] = number
        if len(elements):
            numbers.add(number)
        if access.program == program:
            outlined[elements] = True
    masked = [_lane_places(a, shape)[~a.mask] for a in drawn if a.program == program and not a.mask.all()]
    bad_lanes = [(a, a.elements[a.bad]) for a in accesses if a.bad.any()]
    bad = np.unique(np.concatenate([e for _, e in bad_lanes])) if bad_lanes else np.zeros(0, np.int64)
    axes = max(len(shape), 1)
    return TensorMap(
        name=name,
        dims=dims,
        shape=shape,
        verb=_verb(kinds),
        owner=owner.reshape(shape),
        sharers=sharers.reshape(shape),
        outlined=outlined.reshape(shape),
        masked=np.concatenate(masked) if masked else np.zeros((0, axes), np.int64),
        bad=_places(bad, shape),
        facts=_facts(sharers, lanes * counted, masked_off * counted, len(numbers), accesses, drawn),
        alarm=_alarm(bad_lanes, bad, size),
    )


def _verb(kinds: set[str]) -> str:
    words = {"load": "loaded", "store": "stored", "atomic": "updated by atomics"}
    return " and ".join(words[kind] for kind in words if kind in kinds) or "not touched"


def _facts(
    sharers: np.ndarray,
    lanes: int,
    masked_off: int,
    programs: int,
    accesses: Sequence[Access],
    drawn: Sequence[Access],
) -> tuple[str, ...]:
    touched = int((sharers > 0).sum())
    facts = [f"{touched} of {sharers.size} elements"]
    if touched:
        least, most = int(sharers[sharers > 0].min()), int(sharers.max())
        if programs == 1:
            facts[0] += ", by 1 program"
        elif most == least:
            facts[0] += f", each by {plural(most, 'program')}"
        else:
            facts[0] += f", each by {least} to {plural(most, 'program')}"
        if lanes > int(sharers.sum()):
            facts.append(f"{lanes} {'loads' if drawn[0].kind == 'load' else 'stores'} in all")
    if len(drawn) < len(accesses):
        loaded = [a.elements[a.mask & ~a.bad] for a in accesses if a.kind == "load"]
        facts.append(f"{len(np.unique(np.concatenate(loaded)))} elements also loaded")
    if masked_off:
        facts.append(f"{plural(masked_off, 'lane')} masked off")
    return tuple(facts)


def _alarm(bad_lanes: Sequence[tuple[Access, np.ndarray]], bad: np.ndarray, size: int) -> str:
    """Lanes out of bounds, in words: how many, where, in which programs."""
    if not bad_lanes:
        return ""
    lanes = sum(len(elements) for _, elements in bad_lanes)
    ends = np.flatnonzero(np.diff(bad) != 1)
    firsts, lasts = bad[np.append(0, ends + 1)], bad[np.append(ends, len(bad) - 1)]
    runs = [f"{a}" if a == b else f"{a}..{b}" for a, b in zip(firsts[:2], lasts[:2], strict=True)]
    where = f"element{'s' * (len(bad) != 1)} {', '.join(runs)}"
    if len(firsts) > 2:
        where += f" and {plural(len(firsts) - 2, 'more run')} up to {lasts[-1]}"
    return f"{plural(lanes, 'lane')} out of bounds: {where}; it has {size}"


def _places(elements: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Coordinates [..., axes] of flat elements; those past the end count on along the first axis."""
    if len(shape) <= 1:
        return elements[..., None]
    places, rest = [], elements
    for stride in (math.prod(shape[axis + 1 :]) for axis in range(len(shape))):
        places.append(rest // max(stride, 1))
        rest = rest % max(stride, 1)
    return np.stack(places, -1)


def _lane_places(access: Access, shape: tuple[int, ...]) -> np.ndarray:
    """Coordinates [lanes..., axes] that the lanes of a tile *mean*.

    Lane [i, j] of a tile may mean column 104 of 100, though in memory that is column 4 of the next
    row. Where stepping along each axis of the tile steps along one axis of the tensor, coordinates are
    counted from the first lane. Otherwise, or where lanes that are on run over an edge (so that the
    kernel takes the tensor as flat), they are those of the memory.
    """
    flat = _places(access.elements, shape)
    if len(shape) < 2 or not access.elements.size:
        return flat
    elements = access.elements
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    meant = np.broadcast_to(flat[(0,) * elements.ndim], flat.shape).copy()
    used = set()
    for tile_axis, length in enumerate(elements.shape):
        if length == 1:
            continue
        steps = np.diff(elements, axis=tile_axis)
        step = int(steps.flat[0])
        fitting = [a for a, s in enumerate(strides) if s == step and a not in used]
        if not (steps == step).all() or not fitting:
            return flat
        axis = max(fitting, key=lambda a: shape[a])
        used.add(axis)
        along = [1] * elements.ndim
        along[tile_axis] = length
        meant[..., axis] += np.arange(length).reshape(along)
    on = meant[access.mask & ~access.bad]
    return meant if ((on >= 0) & (on < shape)).all() else flat


# ---- triton-viz


class _NotTraced(Exception):
    """triton-viz failed on a kernel; says how, in a few words."""


def _by_triton_viz(kernel: object, puzzle: Puzzle, case: Case, ran: Run) -> list[Access]:
    """The accesses of a kernel known to be clean, from triton-viz's records.

    It does not record atomics; where there are any, these come from the guarded run.
    """
    offers = puzzle.offers(case)
    inputs = make_inputs(puzzle, case)
    bound = {}
    for parameter in kernel.params:
        value = offers.get(parameter.name, parameter.default)
        if isinstance(value, Argument):
            fresh = inputs.get(value.name)
            value = torch.zeros(value.shape(case.numbers), dtype=value.dtype) if fresh is None else fresh
        elif isinstance(value, Tiled):
            value = value.descriptor(case.numbers, inputs[value.argument.name])
        bound[parameter.name] = value
    found = _run_traced(kernel, bound, tuple(puzzle.grid(case)))
    atomics = [access for access in ran.accesses if access.kind == "atomic"]
    if not atomics:
        return found
    merged = defaultdict(list)
    for access in found + atomics:
        merged[access.program].append(access)
    return [access for program in sorted(merged) for access in merged[program]]


def _run_traced(kernel: JITFunction, bound: Mapping[str, object], grid: tuple[int, ...]) -> list[Access]:
    """One launch under a fresh Tracer. Raises _NotTraced where triton-viz cannot."""
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
        _triton_kept(kernel),
    ):
        warnings.simplefilter("ignore")
        try:
            viz = _triton_viz()
            tracer = _tracer(viz)
            traced = viz.TritonTrace(kernel, tracer)
            with time_limit(SECONDS_PER_CASE, inside=launch):
                launch()
        except TimeLimitReached:
            raise _NotTraced("it takes too long") from None
        except Exception as error:
            while error.__cause__ is not None:
                error = error.__cause__
            raise _NotTraced(type(error).__name__) from None
    return tracer.found


def _triton_viz() -> ModuleType:
    """triton-viz's tracing, imported when first needed."""
    import triton_viz  # noqa: F401
    from triton_viz.frontends.base import OPERATION_REGISTRY

    OPERATION_REGISTRY["triton"].namespaces[tl].pop("trans", None)  # its patch of tl.trans raises
    return sys.modules["triton_viz.core.trace"]  # as an attribute, the function of that name hides it


def _tracer(viz: ModuleType):
    """A Tracer that turns its records into accesses, and lets none pass that leaves the tensors.

    The guarded run has shown the kernel to be clean; but lanes that it leaves open hold other values
    there than here, so that a kernel may still do something else this time.
    """
    from triton_viz.core.callbacks import OpCallbacks
    from triton_viz.core.data import AtomicCas, AtomicRMW, Load, Store

    class AccessTracer(viz.Tracer):
        def __init__(self):
            super().__init__()
            self.arguments: dict[str, torch.Tensor] = {}
            self.found: list[Access] = []
            self.program: Program = (0, 0, 0)

        def arg_callback(self, name, arg, arg_cvt):
            super().arg_callback(name, arg, arg_cvt)
            if isinstance(arg, torch.Tensor):
                self.arguments[name.removesuffix("_ptr")] = arg
            elif isinstance(arg, TensorDescriptor):
                self.arguments[name.removesuffix("_desc")] = arg.base

        def grid_idx_callback(self, grid_idx):
            super().grid_idx_callback(grid_idx)
            self.program = _three(grid_idx)

        def register_op_callback(self, op_type):
            callbacks = super().register_op_callback(op_type)
            if op_type in (Load, Store):
                record = callbacks.before_callback

                def note(ptr, mask, keys):
                    record(ptr, mask, keys)
                    self._take(self.records[-1], "load" if op_type is Load else "store")

                return OpCallbacks(before_callback=note)
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
            """The one argument that all lanes that are on point into, the nearest if none is on."""
            addresses = addresses.astype(np.int64)
            on = addresses.ravel() if mask is None else addresses[np.broadcast_to(mask, addresses.shape)]
            if not on.size:
                first = int(addresses.flat[0])
                return min(self.arguments.items(), key=lambda item: _distance(first, item[1]))
            for name, tensor in self.arguments.items():
                if _distance(int(on.min()), tensor) == 0 and _distance(int(on.max()), tensor) == 0:
                    return name, tensor
            raise MemoryError("lanes outside of the tensors")

    return AccessTracer()


def _site(frames: Sequence[traceback.FrameSummary]) -> Site:
    """The innermost line of the learner's."""
    lines = (Site(f.lineno, f.line) for f in reversed(frames) if f.filename != __file__)
    return next(lines, Site(0, ""))


def _distance(address: int, tensor: torch.Tensor) -> int:
    """Bytes from an address to a tensor's memory, 0 inside."""
    first = tensor.data_ptr()
    return max(first - address, address - (first + tensor.nbytes - 1), 0)


@contextlib.contextmanager
def _triton_kept(kernel: JITFunction) -> Iterator[None]:
    """Whatever happens inside, Triton is afterwards as it was before, and so are the kernel's globals."""
    kept = [(owner, dict(vars(owner))) for owner in (*_owners(), kernel)]
    rewritten = dict(stock.InterpretedFunction.rewritten_fn)
    depth = sys.getrecursionlimit()  # triton-viz sets one so high that endless recursion would crash
    stock.InterpretedFunction.rewritten_fn.clear()
    try:
        yield
    finally:
        sys.setrecursionlimit(depth)
        for owner, attributes in kept:
            _put_back(owner, attributes)
        stock.InterpretedFunction.rewritten_fn.clear()
        stock.InterpretedFunction.rewritten_fn.update(rewritten)
        for module in {id(f.__globals__): f.__globals__ for f in _functions(kernel)}.values():
            module.pop("_triton_viz_loop_patcher", None)
        _reset_triton_viz()


def _owners() -> list[object]:
    """Modules, classes and objects of Triton that triton-viz, or Triton's own interpreter, patches."""
    modules = [m for name, m in sys.modules.items() if name.split(".")[:2] == ["triton", "language"]]
    classes = [c for c in vars(stock).values() if isinstance(c, type) and c.__module__ == stock.__name__]
    others = [
        triton,
        JITFunction,
        tl.tensor,
        tl.core.tensor_descriptor_base,
        stock,
        stock.interpreter_builder,
    ]
    return [*modules, *classes, *others]


def _put_back(owner: object, attributes: Mapping[str, object]) -> None:
    for name, value in list(vars(owner).items()):
        if name not in attributes:
            delattr(owner, name)
        elif value is not attributes[name]:
            setattr(owner, name, attributes[name])
    for name in attributes.keys() - vars(owner).keys():
        setattr(owner, name, attributes[name])


def _functions(kernel: JITFunction) -> list[Callable]:
    """The kernel's Python function, and those of the jitted helpers that it can see."""
    helpers = [v for v in kernel.fn.__globals__.values() if isinstance(v, JITFunction)]
    return [f.fn for f in (kernel, *helpers)]


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
