"""What a real compiler would refuse, found on a machine with no GPU.

The interpreter runs a kernel as Python, and so forgives much that no GPU would run: ``and`` between
blocks, a block size that is only known at run time, a loop variable that changes its type. Triton's own
front end, asked to translate the kernel for a real target, does not. What it would execute itself
(`vetting`) must have been refused before.
"""

import contextlib
import functools
import gc
import io
import linecache
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.compiler.compiler import ASTSource, make_backend
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.language.semantic import TritonSemantic
from triton.runtime.jit import JITFunction, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.compiler.targets import Target, find_target
from puzzles_lib.dtypes import NO_FLOAT8_ARITHMETIC, of_torch, refused_cast, refused_constant
from puzzles_lib.interpreter import TimeLimitReached, time_limit
from puzzles_lib.interpreter.limits import interrupts_held, memory_limit
from puzzles_lib.source import Refusal, Site, site_in, with_helpers

DEFAULT = find_target("sm_90")
FRONT_END_SECONDS = 10.0
FRONT_END_MEMORY = 1 << 30  # bytes that may be mapped for it on top of what the process has
TOO_LARGE = f"a value known at compile time takes more than {FRONT_END_MEMORY / 2**30:g} GB"
RECURSION = "the kernel calls itself; a GPU kernel cannot recurse"


@dataclass(frozen=True)
class Translation:
    """A kernel as Triton's front end has translated it.

    ir: MLIR text that no pass has touched yet. Its locations are lines of the kernel's file.
    options: what the backend compiles with, such as ``num_warps``.
    """

    kernel: JITFunction
    target: Target
    ir: str
    options: Mapping[str, object]


def front_end(kernel: JITFunction, arguments: Mapping[str, object]) -> Refusal | None:
    """Translate the kernel to Triton IR for a real target, without a GPU; say why where it cannot be.

    arguments: a value for each parameter by name, as for `puzzles_lib.interpreter.run`.
    """
    signature, constants = {}, {}
    for parameter in kernel.params:
        value = arguments[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = f"*{of_torch(value.dtype).signature}"
        elif isinstance(value, TensorDescriptor):
            element = of_torch(value.base.dtype).signature
            signature[parameter.name] = f"tensordesc<{element}{list(value.block_shape)}>"
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
    backend, options = _backend(DEFAULT, ())
    found = _make_ir(kernel, ASTSource(kernel, signature, constants), backend, options)
    return found if isinstance(found, Refusal) else None


def translate(
    kernel: JITFunction, arguments: Mapping[str, object], target: Target, **options: int
) -> Translation | Refusal:
    """Translate the kernel for a target as a launch with these arguments would.

    So a size of 1 becomes a constant, and pointers and sizes that 16 divides are known to be so.
    options: ``num_warps``, ``num_stages``; the target's own where left out.
    """
    backend, parsed = _backend(target, tuple(options.items()))
    try:
        bound, specialization, _ = create_function_from_signature(kernel.signature, kernel.params, backend)(
            **arguments
        )
        _, signature, constants, attributes = kernel._pack_args(backend, {}, bound, specialization, {})
    except (TypeError, OverflowError) as error:
        return Refusal(_first_lines(str(error)))
    source = ASTSource(kernel, signature, constants, attributes)
    found = _make_ir(kernel, source, backend, parsed)
    if isinstance(found, Refusal):
        return found
    return Translation(kernel, target, _with_own_lines(found, kernel), options)


def _make_ir(kernel: JITFunction, source: ASTSource, backend, options) -> str | Refusal:
    """The module's text as the front end leaves it."""
    found = _try_to_make_ir(kernel, source, backend, options)
    if isinstance(found, Refusal) and found.message == TOO_LARGE:
        gc.collect()  # the translator is full of cycles: its values would stay for long
    return found


def _try_to_make_ir(kernel: JITFunction, source: ASTSource, backend, options) -> str | Refusal:
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    codegen_fns, module_map = backend.get_codegen_implementation(options), backend.get_module_map()
    spoken = []
    text = ""

    def translated() -> str:
        return str(source.make_ir(backend.target, options, codegen_fns, module_map, context))

    try:
        with (
            interrupts_held(inside=translated),
            _silent() as warned,
            _verifier(spoken),
            _no_aborts(),
            memory_limit(FRONT_END_MEMORY),
            time_limit(FRONT_END_SECONDS, inside=translated),
        ):
            text = translated()
    except MemoryError:
        return Refusal(TOO_LARGE)
    except CompilationError as error:
        return _refusal(kernel, error)
    except TimeLimitReached:
        return Refusal(f"compiling takes more than {FRONT_END_SECONDS:g} s: is a tl.static_range very long?")
    except RecursionError:
        return Refusal(RECURSION)
    except Exception as error:
        if spoken:
            return spoken[0]
        return Refusal(_first_lines(f"{type(error).__name__}: {error}"))
    for warning in warned:  # a warning to the compiler, but other semantics to Python
        if "Logical operators" in str(warning.message):
            line = linecache.getline(warning.filename, warning.lineno).strip()
            return Refusal("between blocks it is & and |, not `and` and `or`", Site(warning.lineno, line))
    return text


@functools.cache
def _backend(target: Target, options: tuple[tuple[str, int], ...]):
    """Triton's backend for a target, and its options."""
    backend = make_backend(target.gpu)
    return backend, backend.parse_options(dict(options))


_LOCATION = re.compile(r'loc\("((?:[^"\\]|\\.)+)":(\d+:\d+)\)')


def _with_own_lines(text: str, kernel: JITFunction) -> str:
    """The IR with locations in the kernel's own file alone, under the kernel's name.

    A cell's own name differs from one session to the next, and a path from one machine to the next.
    Other files become unknown: then every stage gives what is inlined from them to the line that calls.
    """
    own = kernel.fn.__code__.co_filename

    def located(match: re.Match) -> str:
        return f'loc("{kernel.__name__}.py":{match[2]})' if match[1] == own else "loc(unknown)"

    return _LOCATION.sub(located, text)


@contextlib.contextmanager
def _silent() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings, and drop what tl.static_print prints: once, while running, is enough."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield warned


def _is_block_pointer(value: object) -> bool:
    kind = getattr(value, "type", None)
    return isinstance(kind, tl.pointer_type) and kind.element_ty.is_block()


def _fussy(name: str, method: Callable) -> Callable:
    """A method of Triton's semantic that raises where MLIR would end the process (SIGABRT)."""

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        if name == "advance":
            if not _is_block_pointer(args[0]):
                raise TypeError("tl.advance moves block pointers only, made by tl.make_block_ptr")
        elif any(_is_block_pointer(a) for a in (*args, *kwargs.values())):
            raise TypeError("a block pointer is moved by tl.advance, and used by tl.load and tl.store alone")
        if name == "atom_red_typechecking_impl" and not args[0].type.is_block() and args[1].type.is_block():
            raise TypeError("this atomic has a pointer to one element, and a block of values")
        return method(self, *args, **kwargs)

    return checked


_ABORTING = (
    "advance",
    "atom_red_typechecking_impl",
    "binary_op_type_checking_impl",
    "broadcast_impl_shape",
    "broadcast_impl_value",
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
    "mod",
    "mul",
    "not_equal",
    "sub",
    "truediv",
)


def _float8_stored(name: str, method: Callable) -> Callable:
    """A method of Triton's semantic that raises where LLVM would fail, to which a float8 is an integer."""

    @functools.wraps(method)
    def checked(self, *args, **kwargs):
        told = ""
        if name == "cast":
            told = refused_cast(args[0].dtype, args[1], args[2:] == ("rtz",))
        elif name == "scalar_constant":
            dtype = kwargs.get("dtype") or args[1]
            told = refused_constant(args[0], dtype) if args[0] and dtype.is_fp8() else ""
        else:
            kinds = {value.dtype.name for value in args if isinstance(value, tl.tensor)}
            if len(kinds) == 1 and kinds.pop().startswith("fp8"):  # two kinds meet in a third
                told = NO_FLOAT8_ARITHMETIC
        if told:
            raise TypeError(told)
        return method(self, *args, **kwargs)

    return checked


_WRAPPERS = dict.fromkeys(_ABORTING, _fussy)
_WRAPPERS |= dict.fromkeys((*_COMPUTING, "cast", "scalar_constant"), _float8_stored)


@contextlib.contextmanager
def _no_aborts() -> Iterator[None]:
    """What MLIR answers with abort(), and LLVM with a failure, is an exception while the block runs."""
    originals = {name: getattr(TritonSemantic, name) for name in _WRAPPERS}
    try:
        for name, method in originals.items():
            setattr(TritonSemantic, name, _WRAPPERS[name](name, method))
        yield
    finally:
        for name, method in originals.items():
            setattr(TritonSemantic, name, method)


@contextlib.contextmanager
def _verifier(spoken: list[Refusal]) -> Iterator[None]:
    """Collect what MLIR's verifier writes to the process's stderr: ``file:line:column: error: words``."""
    with tempfile.TemporaryFile() as file:
        sys.stderr.flush()
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            file.seek(0)
            for found in re.finditer(r"^(.*):(\d+):\d+: error: (.*)$", file.read().decode(), re.MULTILINE):
                line = linecache.getline(found[1], int(found[2])).strip()
                spoken.append(Refusal(_first_lines(found[3]), Site(int(found[2]), line)))


def _refusal(kernel: JITFunction, error: CompilationError) -> Refusal:
    """The innermost message and the innermost line of the learner's own."""
    functions = with_helpers(kernel)
    message, site = "", None
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, CompilationError):
            owner = next((f for f in functions if f.src == current.src), None)
            if owner is not None and hasattr(current.node, "lineno"):
                site = site_in(owner, current.node.lineno)
            message = current.error_message or message
            if isinstance(current, CompileTimeAssertionFailure):
                message = f"tl.static_assert fails{': ' * bool(message)}{message}"
        else:
            message = str(current) or type(current).__name__
        current = current.__cause__
    return Refusal(_first_lines(_explained(message or str(error), site)), site)


def _explained(message: str, site: Site | None) -> str:
    """Triton's words, without the exception's name around them, some said more plainly."""
    if message.startswith("MemoryError"):
        return TOO_LARGE
    if message.startswith("AssertionError") and site and "dot(" in site.source:
        return (
            "tl.dot's accumulator is of another dtype than its result, which is float32 by default: "
            "give out_dtype=, or write acc += tl.dot(...)"
        )
    wrapped = re.fullmatch(r"(\w+)\((['\"])(.*)\2,?\)", message, re.DOTALL)
    error, message = (wrapped[1], wrapped[3]) if wrapped else ("", message)
    if error == "KeyError" and "__" in message or error == "RecursionError":
        return RECURSION  # the callee that is not there yet is the caller
    if message.startswith("Cannot access global variable"):
        name = message.split("variable ")[1].split(" ")[0]
        return f"{name} is a global: pass it as a parameter, or define it as {name} = tl.constexpr(...)"
    if message.startswith("arange's arguments must be of type tl.constexpr"):
        return "tl.arange needs sizes known at compile time, such as a tl.constexpr parameter"
    if message == "'constexpr' object has no attribute 'handle'":
        return "the condition of a while must be computed by the kernel, such as i < N"
    if message == "simultaneous multiple comparison is not supported":
        return "a < b < c is a chain of comparisons: put brackets around each comparison that & or | joins"
    reads_element = message.startswith("unsupported tensor index") or "`_semantic` argument" in message
    if reads_element and site and re.search(r"_ptr\s*\[", site.source):
        return "a pointer is not indexed: tl.load(x_ptr + offsets) reads, tl.store(z_ptr + offsets, z) writes"
    if message.startswith("__setitem__"):
        return "a kernel cannot set elements: tl.store writes to memory, tl.where makes a new block"
    if message.startswith("unsupported tensor index"):
        return "a block is indexed by : and None alone, to give it more axes; its elements cannot be picked"
    if message.endswith(("attribute '__pow__'", "attribute '__rpow__'")):
        return "blocks have no **: write x * x, 1 << n, or tl.exp2(x)"
    if message.startswith("Boolean value of Tensor"):
        return "an if cannot decide lane by lane: use a mask, or tl.where"
    if message.startswith("Ternary expression") and "<[" in message:
        return "a if c else b cannot choose lane by lane: use tl.where(c, a, b)"
    if message.endswith("is not string"):
        return 'print in a kernel is tl.device_print("a name", value); shapes cannot be printed'
    return message


def _first_lines(text: str, limit: int = 220) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def interpret_was_on() -> bool:
    """Whether TRITON_INTERPRET was set when Triton was imported: then nothing of it compiles any more."""
    return not isinstance(tl.zeros, JITFunction)
