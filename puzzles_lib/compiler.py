"""What a real compiler would refuse, found on a machine with no GPU.

The interpreter runs a kernel as Python, and so forgives much that no GPU would run: ``and`` between
tensors, a block size that is only known at run time, a call of a torch function. Two checks close the
gap: `vet` looks at what the kernel calls, before any of it runs, and `front_end` lets Triton's own
front end translate the kernel for a real target.
"""

import ast
import builtins
import contextlib
import functools
import io
import linecache
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

import torch
import triton.language as tl
from triton._C.libtriton import ir
from triton.backends.compiler import GPUTarget
from triton.compiler.code_generator import CodeGenerator
from triton.compiler.compiler import ASTSource, make_backend
from triton.compiler.errors import CompilationError
from triton.runtime.jit import JITCallable, JITFunction, get_jit_fn_file_line

from puzzles_lib.interpreter import Site, TimeLimitReached, time_limit

TARGET = GPUTarget("cuda", 90, 32)
FRONT_END_SECONDS = 10.0
RECURSION = "the kernel calls itself; a GPU kernel cannot recurse"

_TYPES = {
    torch.bool: "i1",
    torch.uint8: "u8",
    torch.int8: "i8",
    torch.int16: "i16",
    torch.int32: "i32",
    torch.int64: "i64",
    torch.float16: "fp16",
    torch.bfloat16: "bf16",
    torch.float32: "fp32",
    torch.float64: "fp64",
}


@dataclass(frozen=True)
class Refusal:
    """Why a kernel would not compile: one line, and the learner's line it is about."""

    message: str
    site: Site | None = None


# ---- what a kernel calls


def vet(kernel: JITFunction) -> Refusal | None:
    """Refuse calls of anything but Triton's language, builtins it knows, and ``@triton.jit`` helpers.

    A compiler can translate nothing else; an interpreter, though, would simply run it, be it
    ``torch.relu`` or ``os._exit``. Looks into helpers as well. Nothing of the kernel is executed.
    """
    for function in _with_helpers(kernel):
        scope = function.get_capture_scope()
        tree = function.parse()
        local = _local_names(tree)
        for node in ast.walk(tree):
            complaint = None
            if isinstance(node, ast.Attribute) and (node.attr.startswith("_") or node.attr == "handle"):
                complaint = f"{ast.unparse(node)} reaches into Triton's internals"
            elif isinstance(node, ast.Call):
                complaint = _complain(node.func, scope, local)
            if complaint:
                return Refusal(complaint, _site(function, node.lineno))
    return None


def _complain(callee: ast.expr, scope: Mapping[str, object], local: set[str]) -> str | None:
    """What is wrong with calling this, if anything."""
    if isinstance(callee, ast.Name):
        if callee.id in local:
            return f"{callee.id} is a value of the kernel, it cannot be called"
        if callee.id in scope:
            return _complain_about_value(callee.id, scope[callee.id])
        if callee.id not in CodeGenerator.builtin_namespace and hasattr(builtins, callee.id):
            return f"{callee.id}() is Python's, a kernel cannot call it"
        return None  # unknown names are the front end's to explain
    if isinstance(callee, ast.Attribute):
        value = _resolve(callee, scope, local)
        return None if value is None else _complain_about_value(ast.unparse(callee), value)
    return f"{ast.unparse(callee)} is not something that a kernel can call"


def _complain_about_value(name: str, value: object) -> str | None:
    """What is wrong with calling a global, if anything.

    Not all of ``triton.*`` is harmless: ``triton.testing.do_bench`` calls what it is given.
    """
    module = getattr(value, "__module__", None) or ""
    if isinstance(value, JITFunction) or module in ("triton", "math") or module.startswith("triton.language"):
        return None
    if isinstance(value, JITCallable):
        return (
            f"{name} runs Python at compile time: the course checks tl.*, triton.* and @triton.jit functions"
        )
    what = "a lambda" if getattr(value, "__name__", "") == "<lambda>" else "a Python function"
    return f"the kernel calls {name}, {what}: it may call tl.*, triton.* and @triton.jit functions only"


def _resolve(node: ast.expr, scope: Mapping[str, object], local: set[str]) -> object | None:
    """The value of ``module.attribute``, or None where it hangs on a value of the kernel."""
    if isinstance(node, ast.Name):
        return None if node.id in local else scope.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = _resolve(node.value, scope, local)
        if isinstance(owner, ModuleType) or (owner is not None and not isinstance(owner, tl.constexpr)):
            return getattr(owner, node.attr, None)
    return None


def _local_names(tree: ast.AST) -> set[str]:
    names = {a.arg for node in ast.walk(tree) if isinstance(node, ast.arguments) for a in node.args}
    return names | {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def _with_helpers(kernel: JITFunction) -> list[JITFunction]:
    """The kernel and every ``@triton.jit`` function of the learner's that it can reach."""
    found, todo = [], [kernel]
    while todo:
        function = todo.pop(0)
        if any(function is f for f in found) or function.__module__.startswith("triton."):
            continue
        found.append(function)
        scope = function.get_capture_scope()
        for node in ast.walk(function.parse()):
            if isinstance(node, ast.Name | ast.Attribute):
                value = _resolve(node, scope, set())
                if isinstance(value, JITFunction):
                    todo.append(value)
    return found


# ---- what the front end says


def front_end(kernel: JITFunction, arguments: Mapping[str, object]) -> Refusal | None:
    """Translate the kernel to Triton IR for a real target, without a GPU.

    arguments: a value for each parameter by name, as for `puzzles_lib.interpreter.run`.
    """
    signature, constants = {}, {}
    for parameter in kernel.params:
        value = arguments[parameter.name]
        if parameter.is_constexpr or value is None:
            signature[parameter.name] = "constexpr"
            constants[parameter.name] = value
        elif isinstance(value, torch.Tensor):
            signature[parameter.name] = "*" + _TYPES[value.dtype]
        elif isinstance(value, float):
            signature[parameter.name] = "fp32"
        else:
            signature[parameter.name] = "i32" if -(2**31) <= value < 2**31 else "i64"
    source = ASTSource(kernel, signature, constants)
    backend, options, codegen_fns, module_map = _backend()
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    try:
        with _silent() as warned, time_limit(FRONT_END_SECONDS):
            source.make_ir(TARGET, options, codegen_fns, module_map, context)
    except CompilationError as error:
        return _refusal(kernel, error)
    except TimeLimitReached:
        return Refusal(f"compiling takes more than {FRONT_END_SECONDS:g} s: is a tl.static_range very long?")
    except RecursionError:
        return Refusal(RECURSION)
    except Exception as error:
        return Refusal(_first_lines(f"{type(error).__name__}: {error}"))
    for warning in warned:  # a warning to the compiler, but other semantics to Python
        if "Logical operators" in str(warning.message):
            line = linecache.getline(warning.filename, warning.lineno).strip()
            return Refusal("between blocks it is & and |, not `and` and `or`", Site(warning.lineno, line))
    return None


@functools.cache
def _backend():
    backend = make_backend(TARGET)
    options = backend.parse_options({})
    return backend, options, backend.get_codegen_implementation(options), backend.get_module_map()


@contextlib.contextmanager
def _silent() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings, and drop what tl.static_print prints: once, while running, is enough."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        yield warned


def _refusal(kernel: JITFunction, error: CompilationError) -> Refusal:
    """The innermost message and the innermost line of the learner's own."""
    functions = _with_helpers(kernel)
    message, site = "", None
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, CompilationError):
            owner = next((f for f in functions if f.src == current.src), None)
            if owner is not None and hasattr(current.node, "lineno"):
                site = _site(owner, current.node.lineno)
            message = current.error_message or message
        else:
            message = str(current) or type(current).__name__
        current = current.__cause__
    return Refusal(_first_lines(_explained(message)), site)


def _explained(message: str) -> str:
    """Triton's words, without the exception's name around them, some said more plainly."""
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
    if message.endswith("is not string"):
        return 'print in a kernel is tl.device_print("a name", value); shapes cannot be printed'
    return message


def _first_lines(text: str, limit: int = 220) -> str:
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _site(function: JITFunction, line_in_source: int) -> Site:
    file, first = get_jit_fn_file_line(function)
    line = first + line_in_source - 1
    return Site(line, linecache.getline(file, line).strip())


def interpret_was_on() -> bool:
    """Whether TRITON_INTERPRET was set when Triton was imported: then nothing of it compiles any more."""
    return not isinstance(tl.zeros, JITFunction)
