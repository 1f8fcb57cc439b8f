"""Read a kernel's source: its lines, the helpers that it reaches, and why it is refused."""

import ast
import collections
import functools
import linecache
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType

import triton
import triton.language as tl
from triton.runtime.jit import JITCallable, JITFunction, KernelInterface

Scope = Mapping[str, object]


@dataclass(frozen=True)
class Site:
    """A line of the learner's source: its number in the cell or file, and its text."""

    line: int
    source: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.source}"


@dataclass(frozen=True)
class Refusal:
    """Why a kernel is not run: one line, the learner's line that it is about, and perhaps advice.

    message: what is wrong, and often, after a colon, more about it or what to do: see `parts`.
    kind: ``"compiler"`` for a kernel that no compiler would translate. ``"signature"`` for an object that is
    not a kernel, or does not fit its puzzle. ``"error"`` if the fault is the course's or Triton is too old.
    by: who refuses it.
    """

    message: str
    site: Site | None = None
    advice: str = ""
    kind: str = "compiler"
    by: str = "the compiler"

    def __str__(self) -> str:
        return "; ".join(part for part in (self.message, self.advice) if part)

    @property
    def parts(self) -> tuple[str, str]:
        """The message up to its first colon, and the rest with the advice. A report has a line for each.

        A colon in code doesn't count, nor one after a single word, such as ``TypeError``.
        """
        first = re.search(r"(?<!Error): (?!tl\.constexpr)", _without_code(self.message), re.DOTALL)
        at = first.start() if first and " " in self.message[: first.start()] else len(self.message)
        rest = self.message[at + 2 :]
        return self.message[:at], "; ".join(part for part in (rest, self.advice) if part)


def _without_code(text: str) -> str:
    """Return a text of the same length without what is between backticks."""
    return re.sub(r"`[^`]*`", lambda found: "`" * len(found[0]), text)


def define(source: str, name: str, scope: Scope | None = None) -> KernelInterface:
    """Run a cell's source and return the last ``@triton.jit`` function in it.

    name: the name of its file. Triton reads a function's source from its file; ``linecache`` provides it,
        as in Jupyter.
    scope: other names for the source, which are not changed; `triton` and `tl` are always there.
    """
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    inner = {**(scope or {}), "triton": triton, "tl": tl, "__name__": "notebook"}
    before = {id(value) for value in inner.values()}
    exec(compile(source, name, "exec"), inner)
    made = [v for v in inner.values() if isinstance(v, KernelInterface) and id(v) not in before]
    return made[-1]


def file_and_line(function: JITCallable) -> tuple[str, int]:
    """Return the file that defines a function, and the line of its ``def`` in that file."""
    lines = enumerate(function.raw_src, function.starting_line_number)
    first = next((n for n, line in lines if line.strip().startswith("def ")), function.starting_line_number)
    return function.fn.__code__.co_filename, first


def site_in(function: JITFunction, line_in_source: int) -> Site:
    """Return the line of the cell or file for a line of the function's source, counted from its def."""
    file, first = file_and_line(function)
    line = first + line_in_source - 1
    return Site(line, linecache.getline(file, line).strip())


def nodes(function: JITCallable) -> tuple[ast.AST, ...]:
    """Return each node of the function's source, the outer before the inner. Do not change them."""
    return nodes_of(function.src)


@functools.lru_cache(maxsize=256)  # a check asks about ten times, and parsing is a twentieth of it
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Return each node of a text, the outer before the inner. Do not change them."""
    return tuple(ast.walk(ast.parse(text)))


@functools.lru_cache(maxsize=256)
def _names(text: str) -> tuple[ast.Name | ast.Attribute, ...]:
    return tuple(node for node in nodes_of(text) if isinstance(node, ast.Name | ast.Attribute))


def statements(function: JITFunction) -> Iterator[tuple[ast.stmt, list[Site]]]:
    """Yield each statement of the function with its lines; those of a body count as other statements."""
    for node in nodes(function):
        if isinstance(node, ast.stmt) and not isinstance(node, ast.FunctionDef):
            body = getattr(node, "body", None)
            last = max(node.lineno, body[0].lineno - 1) if body else (node.end_lineno or node.lineno)
            yield node, [site_in(function, line) for line in range(node.lineno, last + 1)]


@dataclass(frozen=True)
class Call:
    """The place of a call in a file: its first and last line and column."""

    first: tuple[int, int]
    last: tuple[int, int]


def calls_of(kernel: JITFunction) -> dict[str, list[Call]]:
    """Return the calls over several lines in the kernel and its helpers, by file, the inner ones first."""
    found: dict[str, list[Call]] = {}
    for function in with_helpers(kernel):
        file, first = file_and_line(function)
        for node in reversed(nodes(function)):
            if isinstance(node, ast.Call) and node.end_lineno:
                begin = node.lineno + first - 1, node.col_offset
                end = node.end_lineno + first - 1, node.end_col_offset or 0
                found.setdefault(file, []).append(Call(begin, end))
    return {file: calls for file, calls in found.items() if any(c.first[0] != c.last[0] for c in calls)}


def of_triton(function: JITCallable) -> bool:
    """Return whether a function is Triton's own; one made by ``exec`` may have no module."""
    return (function.__module__ or "").startswith("triton.")


def with_helpers(kernel: JITFunction) -> list[JITFunction]:
    """Return the kernel and every ``@triton.jit`` function of the learner that it can reach."""
    found: list[JITFunction] = []
    todo = [kernel]
    while todo:
        function = todo.pop(0)
        if any(function is f for f in found) or of_triton(function):
            continue
        found.append(function)
        todo += _named_in(function)
    return found


def _named_in(function: JITFunction) -> list[JITFunction]:
    """Return the ``@triton.jit`` functions that a function's source and defaults name."""
    found: list[JITFunction] = []
    scope = function.get_capture_scope()
    for node in _names(function.src):
        value = None
        if isinstance(node, ast.Name):
            value = scope.get(node.id)
        elif owner := module_named(node.value, scope):
            value = vars(owner).get(node.attr)
        if isinstance(value, tl.constexpr):
            value = value.value
        if isinstance(value, JITFunction):
            found.append(value)
    return found + [p.default for p in function.params if isinstance(p.default, JITFunction)]


def is_named_tuple(value: object) -> bool:
    """Return whether a class is a ``typing.NamedTuple`` or ``collections.namedtuple`` without additions."""
    if not (isinstance(value, type) and value.__bases__ == (tuple,)):
        return False
    own, fields = vars(value), vars(value).get("_fields", ())
    return (
        all(type(own.get(name)) is type(vars(_Example)["field"]) for name in fields)
        and set(own) <= {*vars(_Example), *fields, "__annotations__", "__orig_bases__", "__annotate_func__"}
        and all(own[name].__code__ is vars(_Example)[name].__code__ for name in ("__repr__", "_asdict"))
    )


_Example = collections.namedtuple("_Example", "field")


def calls_itself(kernel: JITFunction) -> bool:
    """Return whether a function that the kernel can reach calls itself, directly or not."""
    return any(
        any(function is inner for named in _named_in(function) for inner in with_helpers(named))
        for function in with_helpers(kernel)
    )


def module_named(node: ast.expr, scope: Scope, local: Collection[str] = ()) -> ModuleType | None:
    """Return the module that an expression names, if any; ``local`` names are the kernel's own."""
    value = None
    if isinstance(node, ast.Name) and node.id not in local:
        value = scope.get(node.id)
    elif isinstance(node, ast.Attribute):
        owner = module_named(node.value, scope, local)
        value = getattr(owner, node.attr, None) if owner else None
    return value if isinstance(value, ModuleType) else None
