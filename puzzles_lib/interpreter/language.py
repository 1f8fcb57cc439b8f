"""Makes ``triton.language`` execute instead of compile, for the time of a run.

Triton does this at every launch, and again at every call of a helper; here it is done once per run,
with a fixed list of replacements that is undone in full afterwards.
"""

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Iterator

import triton.language as tl
from triton.language.extra import cuda, libdevice
from triton.language.extra.cuda import libdevice as cuda_libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as stock
from triton.runtime.jit import JITFunction, get_jit_fn_file_line

from puzzles_lib import blocks
from puzzles_lib.interpreter import promises, reductions, rewrite, taint
from puzzles_lib.interpreter.builder import GuardedBuilder, shown
from puzzles_lib.interpreter.limits import undone_after_fork
from puzzles_lib.interpreter.recording import Function
from puzzles_lib.source import of_triton

builder = GuardedBuilder()

LEARNER = "__learner_code__"  # marks the globals of functions that are not Triton's own
_MISSING = object()
_NONE = inspect.Signature()
# A run does not depend on TRITON_F32_DEFAULT: tl.dot asks for nothing else.
_NO_KNOBS = types.SimpleNamespace(language=types.SimpleNamespace(fp32_default=None))

# ---- functions that execute


_of_triton: dict[int, Callable] = {}  # by id: hashing a JITFunction in mid-run raises
_of_learner: dict[int, Callable] = {}  # for the time of a run: a learner's globals change between runs


def twin(function: JITFunction) -> Callable:
    """A Python function that executes the ``@triton.jit`` function's source, line numbers kept."""
    made = _of_triton.get(id(function)) or _of_learner.get(id(function))
    return made or _make_twin(function)


def _make_twin(function: JITFunction) -> Callable:
    scope = {**function.get_capture_scope(), rewrite.NAME: rewrite.AsCompiled(semantic)}
    twins = _of_triton
    if not of_triton(function):
        twins = _of_learner
        scope[LEARNER] = True
        scope.update({name: _as_in_a_kernel(v) for name, v in scope.items() if callable(v)})
        scope = {**_python_names(), **scope}
    local: dict[str, Callable] = {}
    file, first_line = get_jit_fn_file_line(function)
    recorder = builder.memory.recorder if twins is _of_learner else None
    if recorder:
        code, parts = rewrite.recorded(function.src, file, first_line)
        number = recorder.function(Function(function.fn.__name__, function.src, first_line, parts))
        scope |= {rewrite.RECORDER: recorder, rewrite.FUNCTION: number}
    else:
        code = rewrite.compiled(function.src, file, first_line)
    exec(code, scope, local)
    twins[id(function)] = local[function.fn.__name__]
    return local[function.fn.__name__]


def _as_in_a_kernel(value: Callable) -> Callable:
    """What stands in for a global of the learner's, such as after ``from triton.language import load``."""
    if tl.core.is_builtin(value):
        return _bound(value)
    if getattr(value, "__module__", None) == libdevice.__name__:
        return getattr(libdevice, value.__name__)
    return value


def _python_names() -> dict[str, Callable]:
    """Builtins of Python's that mean something else in a kernel."""
    chosen = {name: _chosen(_bound(getattr(tl.core, f"builtin_{name}"))) for name in ("min", "max")}
    return {"print": _print, **chosen}


def _chosen(choose: Callable) -> Callable:
    """Of constants it gives one, which Python goes on computing with."""

    def call(*args):
        found = choose(*args)
        return found.value if isinstance(found, tl.constexpr) else found

    return call


def _print(*values, sep: str = " ", end: str = "\n", **_) -> None:
    if not builder.quiet:  # to make text of values takes longer than most that a kernel does
        builder.print(sep.join(str(value) for value in values) + end)


def _static_print(*values, sep: str = " ", end: str = "\n", **_) -> None:
    if builder.memory.number or builder.quiet:  # a compiler says it once, not once per program
        return
    text = sep.join(str(value) for value in values) + end
    if text not in builder.said:
        builder.said.add(text)
        builder.print(text)


# ---- the replacements


def _bound(member: Callable) -> Callable:
    """The builtin with our semantic filled in, as the compiler fills in its own."""
    plain = inspect.unwrap(member, stop=lambda f: not tl.core.is_builtin(f))

    def call(*args, **kwargs):
        kwargs["_semantic"] = semantic
        return plain(*args, **kwargs)

    return call


def _reduce(*args, **kwargs):
    if isinstance(args[0], tl.tensor) and args[0].dtype.is_floating():
        builder.memory.flops += args[0].handle.data.size
    return reductions.reduce(twin, builder.sum_as_dot, builder.memory.label, *args, **kwargs)


def _index(value: tl.tensor) -> int:
    """A number that Python itself needs, such as the bounds of a loop."""
    builder.memory.use(taint.labels(value.handle))
    return int(value.handle.data.item())


def _flip(x: tl.tensor, dim: int) -> tl.tensor:
    """Triton's own takes the exclusive or of halves, in which undefined lanes spread to their partners."""
    axis = dim.value if isinstance(dim, tl.constexpr) else dim
    if not -len(x.shape) <= axis < len(x.shape):
        raise ValueError(f"tl.flip along axis {axis} of a block that has {len(x.shape)}")
    return tl.tensor(builder.create_flip(x.handle, axis), x.type)


def _scan(*args, **kwargs):
    """Triton's own goes from left to right, and does not mind where brackets would stand."""
    return reductions.scan(twin, lambda: builder.memory.brackets_matter(), *args, **kwargs)


_scaled = inspect.unwrap(tl.dot_scaled, stop=lambda f: not tl.core.is_builtin(f))


def _dot_scaled(*args, **kwargs):
    """Triton asks for the value of the formats' names, which a compiler hands it as constants."""
    named = {name: tl.constexpr(v) if isinstance(v, str) else v for name, v in kwargs.items()}
    return _scaled(*(tl.constexpr(v) if isinstance(v, str) else v for v in args), **named, _semantic=semantic)


def _promise(input, values, *, hint: str):
    """A hint to the compiler: of use for loads and stores that take several lanes at once."""
    if isinstance(input, tl.tensor):  # and not a number that is known to the compiler
        sizes = values if isinstance(values, list | tuple | tl.tuple) else [values]
        step = input.dtype.scalar.element_ty.primitive_bitwidth // 8 if input.dtype.scalar.is_ptr() else 1
        builder.memory.promised(hint, input.handle.data, [int(getattr(v, "value", v)) for v in sizes], step)
    return input


class _Semantic(TritonSemantic):
    """Triton's, with short ways for what every line of a kernel asks for."""

    @functools.lru_cache(maxsize=4096)  # noqa: B019 - there is one
    def scalar_constant(self, value, dtype):
        return super().scalar_constant(value, dtype)

    binary_op_type_checking_impl = blocks.compatible(
        TritonSemantic.binary_op_type_checking_impl, numbers=True
    )

    def _has_native_tma(self):
        return True

    def device_assert(self, cond, msg, mask):
        super().device_assert(cond, msg, mask)  # gives None, as a compiler that is asked for no debugging

    def broadcast_impl_value(self, lhs, rhs):
        shapes = [each.type.shape.values if each.type.is_block() else [] for each in (lhs, rhs)]
        if shapes[0] == shapes[1]:
            return lhs, rhs
        if all(shapes) and len(shapes[0]) != len(shapes[1]):
            return super().broadcast_impl_value(lhs, rhs)
        if all(shapes):
            pairs = list(zip(*shapes, strict=True))
            if any(m != n and 1 not in (m, n) for m, n in pairs):
                return super().broadcast_impl_value(lhs, rhs)  # says what does not fit
            shape = [n if m == 1 else m for m, n in pairs]
        else:
            shape = shapes[0] or shapes[1]
        return self._spread(lhs, shapes[0], shape), self._spread(rhs, shapes[1], shape)

    def _spread(self, value: tl.tensor, has: list[int], shape: list[int]) -> tl.tensor:
        if has == shape:
            return value
        kind = tl.block_type(value.dtype, shape)
        if has:
            return tl.tensor(builder.create_broadcast(value.handle, shape), kind)
        return tl.tensor(builder.create_splat(kind, value.handle), kind)


semantic = _Semantic(builder)


class _Collector:
    """Stands in for Triton's patch scope: notes what would be set."""

    def __init__(self):
        self.patches: list[tuple[object, str, object]] = []

    def set_attr(self, owner: object, name: str, value: object) -> None:
        self.patches.append((owner, name, value))


@functools.cache
def _patches() -> list[tuple[object, str, object]]:
    collector = _Collector()
    for owner in (tl, tl.core, tl.math, tl.tensor, tl.core.tensor_descriptor_base, cuda, cuda_libdevice):
        for name, member in inspect.getmembers(owner, callable):
            if isinstance(member, JITFunction) and owner is tl.tensor:
                # x.sum(0): a JITFunction does not bind to x by itself
                method = lambda self, *args, _function=member, **kw: twin(_function)(self, *args, **kw)  # noqa: E731
                collector.set_attr(owner, name, method)
            elif tl.core.is_builtin(member) or "_semantic" in getattr(member, "signature", _NONE).parameters:
                collector.set_attr(owner, name, _bound(member))
    stock._patch_lang_tensor(tl.tensor, collector)
    collector.set_attr(tl.block_type, "__init__", blocks.make_block_type)
    collector.set_attr(tl.tensor, "__init__", blocks.make_tensor)
    collector.set_attr(tl.core, "_unwrap_if_constexpr", blocks.unwrapped)
    collector.set_attr(tl.tensor, "T", property(lambda self: semantic.permute(self, (1, 0))))
    collector.set_attr(tl.tensor, "__index__", _index)
    collector.set_attr(tl.tensor, "__bool__", lambda self: True)  # `if other:` means "if there is one"
    collector.set_attr(tl.tensor, "__str__", lambda self: shown(self.handle))
    collector.set_attr(tl.tensor, "__repr__", lambda self: shown(self.handle))
    for owner in (tl, tl.core):
        stock._patch_lang_core(owner, collector)
        for hint in (promises.MULTIPLE, promises.CONTIGUOUS, promises.CONSTANT):
            collector.set_attr(owner, hint, functools.partial(_promise, hint=hint))
        collector.set_attr(owner, "static_print", _static_print)
        collector.set_attr(owner, "dot_scaled", _dot_scaled)
        collector.set_attr(owner, "range", range)  # what they stand for is in `rewrite`
        collector.set_attr(owner, "static_range", rewrite.STATIC_RANGE)
    for owner in (tl, tl.core, tl.tensor):
        collector.set_attr(owner, "reduce", _reduce)
        collector.set_attr(owner, "associative_scan", _scan)
    for owner in (tl, tl.core):
        mapped = lambda *args, **kw: reductions.map_elementwise(twin, *args, **kw)  # noqa: E731
        collector.set_attr(owner, "map_elementwise", mapped)
    for owner in (tl, tl.standard, tl.tensor):
        collector.set_attr(owner, "flip", _flip)
    for name, _ in inspect.getmembers(libdevice, inspect.isfunction):  # empty functions, filled per target
        if hasattr(cuda_libdevice, name):
            collector.set_attr(libdevice, name, _bound(getattr(cuda_libdevice, name)))
    collector.set_attr(tl.core, "knobs", _NO_KNOBS)
    collector.set_attr(JITFunction, "__call__", lambda self, *args, **kw: twin(self)(*args, **kw))
    last = {(id(owner), name): (owner, name, value) for owner, name, value in collector.patches}
    return list(last.values())


_active: list[tuple[object, str, object]] = []


@contextlib.contextmanager
def executing() -> Iterator[None]:
    """While the block runs, ``tl.*`` operations execute through `builder`.

    Raises RuntimeError when a run is under way in this process already: Triton's language is global.
    """
    if _active:
        raise RuntimeError("another kernel is being run in this process; wait until it is done")
    patches = _patches()
    try:
        for owner, name, value in patches:
            _active.append((owner, name, vars(owner).get(name, _MISSING)))
            setattr(owner, name, value)
        with undone_after_fork(_put_back):
            yield
    finally:
        _put_back()


def _put_back() -> None:
    while _active:
        owner, name, original = _active.pop()
        if original is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, original)
    _of_learner.clear()
