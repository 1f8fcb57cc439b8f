"""Watch Triton's front end: what it visits, what it computes there, and calls that would crash it.

Only in a child (`puzzles_lib.translator.forked`), because Triton's methods are replaced for good.
"""

import ast
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import triton
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.errors import CompilationError
from triton.language.semantic import TritonSemantic
from triton.runtime.jit import JITFunction

from puzzles_lib import versions
from puzzles_lib.float8 import NO_FLOAT8_ARITHMETIC, refused_cast, refused_constant
from puzzles_lib.source import nodes, of_triton
from puzzles_lib.translator.blocks import compatible, make_block_type, make_tensor, unwrapped
from puzzles_lib.translator.forked import Place
from puzzles_lib.translator.shared import Demand, watch_demand

NO_VALUE = "tl.store, print and barriers return no value, but this line uses one"


@dataclass(frozen=True)
class RecordedFunction:
    """A function of the learner's: its source, and that source's first line in the cell or file."""

    name: str
    source: str
    first_line: int


@dataclass
class Seen:
    """The state of the front end at the place where it stopped.

    node: the innermost node of the learner's source. source: that of its function. scope: the names
        there. outside: the globals. values: those of expressions, by the node's id. returned: the kernel's
        ``return`` of a value. demand: the shared memory asked for. said: texts of `tl.static_print`.
        functions: the functions of a recorded kernel.
    """

    node: ast.AST | None = None
    file: str = ""
    first_line: int = 0
    source: str = ""
    scope: Mapping[str, object] = field(default_factory=dict)
    outside: Mapping[str, object] = field(default_factory=dict)
    values: dict[int, tuple[ast.AST, object]] = field(default_factory=dict)
    returned: ast.Return | None = None
    demand: Demand = field(default_factory=Demand)
    said: dict[str, None] = field(default_factory=dict)
    functions: list["RecordedFunction"] = field(default_factory=list)

    def value(self, node: ast.AST) -> object:
        """Return the value of an expression; None if the front end has not reached it."""
        known, value = self.values.get(id(node), (None, None))
        return value if known is node else None

    def function(self, function: JITFunction, begin_line: int) -> int:
        """Return the number of a function that is translated to be recorded."""
        made = RecordedFunction(function.fn.__name__, function.src, begin_line + 1)
        if made not in self.functions:
            self.functions.append(made)
        return self.functions.index(made)

    def start(self) -> None:
        """Forget what was seen of another kernel, or of this one with other arguments."""
        type(self).__init__(self)


def watch(files: list[str], place: Place) -> Seen:
    """Watch the front end in functions of these files: note file and line in ``place``, return the rest."""
    seen = Seen()
    numbers = {file: number for number, file in enumerate(files)}
    visit = CodeGenerator.visit
    here = (0, 0)
    loops = 0  # the number of loops around the current node
    unused: ast.AST | None = None  # an expression statement, usually a call of tl.store

    def watched(self: CodeGenerator, node: ast.AST) -> object:
        nonlocal here, loops, unused
        number = numbers.get(self.file_name)
        if number is None:
            return visit(self, node)
        before = here
        if hasattr(node, "lineno"):
            here = number + 1, self.begin_line + node.lineno
            if here != before:
                place.note(*here)
        if isinstance(node, ast.Expr):
            unused = node.value
        around, loops = loops, loops + isinstance(node, ast.For | ast.While)
        try:
            value = visit(self, node)
        except CompilationError as error:
            if seen.node is None:
                own = error.src == self.jit_fn.src and isinstance(error.node, ast.AST)
                seen.node = error.node if own else self.cur_node
                seen.file, seen.first_line, seen.scope = self.file_name, self.begin_line, dict(self.lscope)
                seen.source, seen.outside = self.jit_fn.src, self.gscope
            raise
        loops = around
        if here != before:
            here = before
            place.note(*here)
        if isinstance(node, ast.expr):
            seen.values[id(node)] = node, value
            if node is not unused and _is_odd(value):
                _be_on_guard()
        elif isinstance(node, ast.Return) and self.is_kernel and isinstance(self.return_vals[-1], tl.tensor):
            seen.returned = seen.returned or node
            seen.file, seen.first_line = self.file_name, self.begin_line
        return value

    CodeGenerator.visit = watched
    CodeGenerator.visit_Compare = _unchained(CodeGenerator.visit_Compare)
    _listen(seen)
    _share()
    watch_demand(lambda: seen.demand, lambda: (loops > 0, *here))
    _replace({"binary_op_type_checking_impl": compatible})
    _replace({name: functools.partial(_float8_made, name) for name in ("cast", "scalar_constant")})
    rare = [name for name in _RARE if hasattr(TritonSemantic, name)]  # block pointers left in 3.8
    _replace({name: functools.partial(_fussy, name) for name in rare})
    _replace({"load": _load_hinted, "store": _store_hinted, "splat": _not_empty, "histogram": _counted})
    _replace({name: functools.partial(_promised, name) for name in _PROMISES})
    tl.inline_asm_elementwise = tl.core.inline_asm_elementwise = _packed(tl.core.inline_asm_elementwise)
    return seen


def _unchained(method: Callable) -> Callable:
    """Return visit_Compare, which refuses comparisons that are joined by & or | without parentheses.

    An example is a < b & c < d. Triton 3.9 chains comparisons, and would take it for a < (b & c) < d.
    """

    @functools.wraps(method)
    def checked(self: Any, node: ast.Compare) -> Any:
        inner = [each.op for each in node.comparators[:-1] if isinstance(each, ast.BinOp)]
        if any(isinstance(op, ast.BitAnd | ast.BitOr) for op in inner):
            raise self._unsupported(node, "simultaneous multiple comparison is not supported")
        return method(self, node)

    return checked


def _listen(seen: Seen) -> None:
    """Keep what `tl.static_print` says, which nobody would see here."""

    def keep(*values: object, sep: str = " ", end: str = "\n", **_: object) -> None:
        seen.said[str(sep).join(map(str, values)) + str(end)] = None

    executed = CodeGenerator.static_executor
    CodeGenerator.statically_implemented_functions[tl.static_print] = executed(keep)


def _share() -> None:
    """Let translations share the shapes of blocks and the trees of Triton's own functions."""
    tl.block_type.__init__ = make_block_type
    tl.tensor.__init__ = make_tensor
    tl.core._unwrap_if_constexpr = unwrapped
    parse = JITFunction.parse

    def parsed(self: JITFunction) -> Any:
        # A learner's helper has a tree for each kind of its arguments, because values are found by node.
        return nodes(self)[0] if of_triton(self) else parse(self)

    JITFunction.parse = parsed


def _replace(wrappers: Mapping[str, Callable]) -> None:
    """Put wrappers around methods of Triton's semantic class, by name."""
    for name, wrap in wrappers.items():
        setattr(TritonSemantic, name, wrap(getattr(TritonSemantic, name)))


def _is_odd(value: object) -> bool:
    """Return whether methods of Triton's semantic class must be guarded from this value."""
    if not isinstance(value, tl.tensor):
        return False
    return value.type == tl.void or "fp8" in value.type.scalar.name or _is_block_pointer(value)


@functools.cache
def _be_on_guard() -> None:
    """Guard Triton's semantic class from odd values. Most kernels have none, and guards double the work."""
    methods = [n for n, m in vars(TritonSemantic).items() if inspect.isfunction(m) and not n.startswith("__")]
    _replace({name: functools.partial(_fussy, name) for name in _FUSSY})
    _replace(dict.fromkeys(_COMPUTING, _not_of_float8))
    _replace(dict.fromkeys(methods, _valued))


def _valued(method: Callable) -> Callable:
    """Return a method that rejects what tl.store returns, because MLIR would end the process."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        for argument in (*args, *kwargs.values()):
            if isinstance(argument, tl.tensor) and argument.type == tl.void:
                raise TypeError(NO_VALUE)
        return method(self, *args, **kwargs)

    return checked


def _is_block_pointer(value: object) -> bool:
    kind = getattr(value, "type", None)
    return isinstance(kind, tl.pointer_type) and kind.element_ty.is_block()


def _fussy(name: str, method: Callable) -> Callable:
    """Return a method of Triton's semantic class that raises where MLIR would end the process (SIGABRT)."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        if name == "device_print":
            given = [part for each in given if isinstance(each, list | tuple) for part in each]
        if name == "advance":
            if not _is_block_pointer(args[0]):
                raise TypeError("tl.advance only moves block pointers, made by tl.make_block_ptr")
        elif any(_is_block_pointer(a) for a in given):
            raise TypeError("a block pointer only works in tl.advance, tl.load and tl.store")
        if name == "atom_red_typechecking_impl" and all(isinstance(arg, tl.tensor) for arg in args[:2]):
            if not args[0].type.is_block() and args[1].type.is_block():
                raise TypeError("this atomic has a pointer to one element, but a block of values")
        return method(self, *args, **kwargs)

    return checked


def _load_hinted(method: Callable) -> Callable:
    """Return tl.load, which raises if ptxas would refuse the instruction that its hints lead to."""

    signature = inspect.signature(method)
    counted = {".ca", ".cg"}
    if versions.has_cv_with_a_policy(triton.__version__):
        counted.add(".cv")

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        cache, eviction = _cache_hints(given)
        cached = cache if cache in counted else ""
        _refuse_two_hints(cache_modifier=cached, eviction_policy=eviction, volatile=given.get("is_volatile"))
        return method(*args, **kwargs)

    return checked


def _store_hinted(method: Callable) -> Callable:
    """Return tl.store, which raises in the same way."""

    signature = inspect.signature(method)

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        cache, eviction = _cache_hints(signature.bind(*args, **kwargs).arguments)
        _refuse_two_hints(cache_modifier=cache, eviction_policy=eviction)
        return method(*args, **kwargs)

    return checked


def _cache_hints(given: Mapping[str, Any]) -> tuple[str, str]:
    """Return the cache modifier and the eviction policy, "" for none; one argument from Triton 3.9 on."""
    if policy := given.get("cache_policy"):
        cache = "" if policy.cache_modifier == "none" else f".{policy.cache_modifier}"
        return cache, policy.eviction_policy.replace("evict_normal", "")
    return given.get("cache_modifier") or "", given.get("eviction_policy") or ""


def _refuse_two_hints(**hints: object) -> None:
    given = [f"{name}={value!r}" for name, value in hints.items() if value]
    if len(given) > 1:
        raise TypeError(f"{' and '.join(given)} cannot be combined: a GPU has no such instruction")


def _not_empty(method: Callable) -> Callable:
    """Return the method that makes a block of one value, which raises if a later pass would fail."""

    @functools.wraps(method)
    def checked(self: Any, value: Any, shape: Any) -> Any:
        if 0 in shape:
            raise TypeError(
                f"a block of shape {tuple(shape)} has no elements, but a block needs at least one"
            )
        return method(self, value, shape)

    return checked


def _counted(method: Callable) -> Callable:
    """Return tl.histogram, which raises if a later pass would fail.

    It only compiles for 32-bit integers, and for at least one bin.
    """

    @functools.wraps(method)
    def checked(self: Any, input: Any, num_bins: Any, mask: Any) -> Any:
        _refuse_other_widths(input)
        if isinstance(count := getattr(num_bins, "value", num_bins), int) and count < 1:
            raise TypeError(f"histogram with {count} bins")
        return method(self, input, num_bins, mask)

    return checked


def _refuse_other_widths(counted: object) -> None:
    if isinstance(counted, tl.tensor) and (counted.dtype.is_ptr() or counted.dtype.primitive_bitwidth != 32):
        raise TypeError(f"histogram of {counted.dtype}")


def _packed(function: Callable) -> Callable:
    """Return tl.inline_asm_elementwise, which raises if Triton would divide by 0, or fill all memory."""

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        pack = kwargs.get("pack", args[5] if len(args) > 5 else 1)
        count = getattr(pack, "value", pack)
        if isinstance(count, int) and count < 1:
            raise TypeError(f"inline assembly for {count} elements")
        return function(*args, **kwargs)

    return checked


def _promised(name: str, method: Callable) -> Callable:
    """Return a hint on values, which raises if a later pass would fail because of its promise."""

    @functools.wraps(method)
    def checked(self: Any, x: Any, values: Any) -> Any:
        _refuse_promise(name, x, values)
        return method(self, x, values)

    return checked


def _refuse_promise(name: str, x: object, values: Sequence[int]) -> None:
    """Raise if the groups of tl.max_constancy do not fill a block, because layouts depend on them."""
    if not isinstance(x, tl.tensor):
        return
    shape = [int(size) for size in x.shape]
    if len(values) != len(shape) and (shape or name != "multiple_of" or len(values) != 1):
        raise TypeError(f"{name} of {len(shape)} axes and {len(values)} numbers")
    for axis, value in enumerate(values):
        if not 1 <= value < 2**31:
            raise TypeError(f"{name} promises {value}")
        if name == "max_constancy" and shape[axis] % value:
            raise TypeError(f"{name} of {value} along {shape[axis]}")


_PROMISES = ("multiple_of", "max_contiguous", "max_constancy")
_RARE = ("advance", "atom_red_typechecking_impl")
_FUSSY = (
    "binary_op_type_checking_impl",
    "broadcast_impl_shape",
    "broadcast_impl_value",
    "cast",
    "device_print",
    "expand_dims",
    "join",
    "logical_and",
    "logical_or",
    "not_",
    "where",
)


_COMPUTING = (
    "add",
    "clamp",
    "equal",
    "fdiv",
    "greater_equal",
    "greater_than",
    "less_equal",
    "less_than",
    "maximum",
    "minimum",
    "minus",
    "mod",
    "mul",
    "not_equal",
    "sub",
    "truediv",
)


def _not_of_float8(method: Callable) -> Callable:
    """Return a method of Triton's semantic class that raises where LLVM would fail on a float8."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        kinds = {value.dtype.name for value in args if isinstance(value, tl.tensor)}
        if len(kinds) == 1 and kinds.pop().startswith("fp8"):  # two different kinds are converted to a third
            raise TypeError(NO_FLOAT8_ARITHMETIC)
        return method(self, *args, **kwargs)

    return checked


def _float8_made(name: str, method: Callable) -> Callable:
    """Return a method of Triton's semantic class that sets a dtype, and raises for an impossible float8."""

    @functools.wraps(method)
    def checked(self: Any, *args: Any, **kwargs: Any) -> Any:
        told = ""
        if name == "cast" and isinstance(args[0], tl.tensor):
            told = refused_cast(args[0].dtype, args[1], args[2:] == ("rtz",))
        elif name != "cast":
            dtype = kwargs.get("dtype") or args[1]
            told = refused_constant(args[0], dtype) if args[0] and dtype.is_fp8() else ""
        if told:
            raise TypeError(told)
        return method(self, *args, **kwargs)

    return checked
