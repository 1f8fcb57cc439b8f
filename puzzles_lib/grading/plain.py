"""Read what a cell defines without running it: `@triton.jit` functions, constants, named tuples, imports.

Everything here is decided on the syntax tree. A constant is computed by `value`, which knows arithmetic on
numbers and little else. A function is accepted, with its own text, if executing its definition runs no Python
except Triton's decorator. A short list of imports is accepted. Everything else in a cell is ignored.
"""

import ast
import math
import operator
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import torch

MOST_CHARACTERS = 200_000  # of a cell
MOST_BITS = 4096  # of a number
MOST_ITEMS = 1000  # of a tuple, a list, a set, a dictionary
MOST_WORDS = 300  # the most characters of the reason why something is not accepted

_GIVEN = {"triton": "triton", "tl": "triton.language"}  # names that always have this meaning
_MODULES = {  # modules that may be imported, and which of their names; None: every public name
    "triton": {"Config", "autotune", "cdiv", "constexpr_function", "jit", "language", "next_power_of_2"},
    "triton.language": None,
    "triton.language.math": None,
    "triton.language.extra": {"libdevice"},
    "triton.language.extra.libdevice": None,
    "math": None,
    "typing": {"NamedTuple"},
}
_JIT = ("triton.jit", "triton.constexpr_function")


def _round(number: float, digits: int | None = None) -> float:
    """Round as Python does, which for integers computes 10 to the power of the digits, however many."""
    if digits is not None and digits < -MOST_BITS:
        raise ValueError("too many digits")
    return round(number, digits)


_OPERATORS: dict[type, Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: operator.pow,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.USub: operator.neg, ast.UAdd: operator.pos,
    ast.Invert: operator.invert, ast.Not: operator.not_,
}  # fmt: skip
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs, "bool": bool, "float": float, "int": int, "len": len, "max": max, "min": min, "round": _round,
    "set": set, "tuple": tuple,
}  # fmt: skip
_COMPARED: dict[type, Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
    ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Is: operator.is_, ast.IsNot: operator.is_not,
    ast.In: lambda x, y: x in y, ast.NotIn: lambda x, y: x not in y,
}  # fmt: skip
_OF_MATH = ("ceil", "cos", "exp", "exp2", "floor", "log", "log10", "log2", "pow", "sin", "sqrt", "tanh")
_OF_MODULES: dict[str, Callable[..., Any]] = {
    **{f"math.{name}": getattr(math, name) for name in _OF_MATH},
    "triton.cdiv": lambda x, y: (x + y - 1) // y,
    "triton.next_power_of_2": lambda n: 1 << (operator.index(n) - 1).bit_length() if n > 0 else 0,
}
_NUMBERS = ("e", "inf", "nan", "pi")  # of these:
_WITH_NUMBERS = ("math", "numpy", "torch")
_LIMITS = {  # of a dtype: `torch.finfo(torch.float32).max`
    "finfo": ("bits", "eps", "max", "min", "smallest_normal", "tiny"),
    "iinfo": ("bits", "max", "min"),
}
_DTYPES = r"bfloat16|float(16|32|64|8_e4m3fn|8_e5m2)|u?int(8|16|32|64)"
_NO_LINE_ENDS = str.maketrans(dict.fromkeys("\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))
_MISLEADING = re.compile("[\u202a-\u202e\u2066-\u2069\u200e\u200f\u061c]")


class NotPlain(ValueError):
    """Something is not accepted. The message says what. line: the cell's line; 0 if there is none."""

    def __init__(self, words: str, line: int = 0):
        super().__init__(words[:MOST_WORDS])
        self.line = line


@dataclass(frozen=True)
class Named:
    """A value that only Triton has, given by its text: ``tl.float32``, ``tl.constexpr(32)``."""

    text: str


@dataclass(frozen=True)
class Definition:
    """What a cell binds a name to.

    kind: ``"function"``, ``"constant"``, ``"class"``, ``"import"`` or ``"other"``.
    text: source that defines it again, from line ``line`` of the cell on; "" if it is not accepted.
    needs: the names that it uses. complaint: why it is not accepted.
    """

    name: str
    kind: str
    text: str
    line: int
    needs: frozenset[str] = frozenset()
    complaint: NotPlain | None = None


@dataclass
class Known:
    """What the cells so far have bound: constants with values, modules' names with meanings, and classes."""

    values: dict[str, object] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=lambda: dict(_GIVEN))
    classes: set[str] = field(default_factory=set)


def parse(source: str) -> ast.Module:
    """Return a cell's syntax tree without IPython's own lines. Raise NotPlain if it is not Python."""
    text = "\n".join(lines_of(source))
    for attempt in (text, re.sub(r"^[%!?].*", "", text, flags=re.MULTILINE)):
        try:
            return ast.parse(attempt)
        except SyntaxError as error:
            fault = NotPlain(f"the cell is not Python: {error.msg}", error.lineno or 0)
        except (ValueError, MemoryError, RecursionError):
            fault = NotPlain(
                "the cell is not Python: it is nested too deeply, or has characters that are not text"
            )
    raise fault


def lines_of(source: str) -> list[str]:
    """Return a cell's lines as Python counts them. Other tools' line ends become spaces.

    Raises NotPlain for a cell with more than `MOST_CHARACTERS`.
    """
    if len(source) > MOST_CHARACTERS:
        raise NotPlain(f"the cell has {len(source)} characters, but at most {MOST_CHARACTERS} are read")
    return source.replace("\r\n", "\n").replace("\r", "\n").translate(_NO_LINE_ENDS).split("\n")


def misleading(source: str) -> bool:
    """Return whether characters make an editor show the text in another order than Python reads it."""
    return bool(_MISLEADING.search(source))


def definitions(source: str, tree: ast.Module, known: Known) -> list[Definition]:
    """Return what a cell binds at its top level, in order, and add it to ``known``."""
    lines = lines_of(source)
    found: list[Definition] = []
    for node in tree.body:
        for one in _defined(node, lines, known):
            if one.name in _GIVEN and one.kind != "import":
                words = f"{one.name} is Triton's name, but the cell gives it to something else"
                one = Definition(one.name, "other", "", one.line, complaint=NotPlain(words, one.line))
            found.append(one)
    return found


def _defined(node: ast.stmt, lines: list[str], known: Known) -> list[Definition]:
    if isinstance(node, ast.FunctionDef):
        return [_function(node, lines, known)]
    if isinstance(node, ast.Import | ast.ImportFrom):
        return [d for alias in node.names if (d := _import(node, alias, known))]
    if isinstance(node, ast.Assign | ast.AnnAssign) and node.value:
        return _assigned(node, node.value, known)
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        read = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
        whole = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        return [_constant(node.target.id, node, _tried(whole, None, known), None, known)]
    if isinstance(node, ast.If):
        return _chosen(node, lines, known)
    if isinstance(node, ast.ClassDef):
        known.classes.add(node.name)
        return [_class(node, known)]
    if isinstance(node, ast.AsyncFunctionDef):
        return [_other(node.name, node, known)]
    return _others(node, known, _under(node))


def _chosen(node: ast.If, lines: list[str], known: Known) -> list[Definition]:
    """Return the statements under an ``if`` whose condition is plain."""
    try:
        branch = node.body if value(node.test, known) else node.orelse
    except NotPlain:
        advice = "which the grader cannot evaluate: write it at the top level of the cell"
        why = f"it is under `if {ast.unparse(node.test)[:60]}`, {advice}"
        return _others(node, known, why)
    return [one for each in branch for one in _defined(each, lines, known)]


def _others(node: ast.AST, known: Known, why: str) -> list[Definition]:
    """Return all names that a statement may bind."""
    inner = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef | ast.ClassDef)]
    return [_other(n.name, n, known, why) for n in inner] + [
        _other(n, node, known, why) for n in _names_in(node)
    ]


_STATEMENTS = {ast.For: "for", ast.While: "while", ast.With: "with", ast.Try: "try", ast.Match: "match"}


def _under(node: ast.AST) -> str:
    word = _STATEMENTS.get(type(node))
    return f"it is under `{word}`, which grading does not run: write it at the top level" if word else ""


def _other(name: str, node: ast.AST, known: Known, why: object = "") -> Definition:
    known.values.pop(name, None)
    line = getattr(node, "lineno", 0)
    words = f"{name} is not accepted: grading accepts @triton.jit functions, plain constants and named tuples"
    words += f"; {why}" if why else ""
    return Definition(name, "other", "", line, complaint=NotPlain(words, line))


def _names_in(node: ast.AST) -> list[str]:
    """Return the names that are given a value."""
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


# ---- constants


def _assigned(node: ast.Assign | ast.AnnAssign, given: ast.expr, known: Known) -> list[Definition]:
    """Return a constant for each name, also of ``a, b = 1, 2``; all are computed before any is bound."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names, parts = [n for target in targets for n in _names_in(target)], [given] * len(targets)
    if len(targets) == 1 and isinstance(targets[0], ast.Tuple) and isinstance(given, ast.Tuple):
        targets, parts = targets[0].elts, given.elts
    if len(targets) != len(parts) or not all(isinstance(target, ast.Name) for target in targets):
        return [_other(name, node, known) for name in names]
    annotation = node.annotation if isinstance(node, ast.AnnAssign) else None
    found = [_tried(part, annotation, known) for part in parts]
    return [_constant(name, node, one, annotation, known) for name, one in zip(names, found, strict=True)]


def _tried(part: ast.expr, annotation: ast.expr | None, known: Known) -> tuple[Any, str] | NotPlain:
    """Return a value and its text, or why it is not a plain value."""
    try:
        found = value(part, known)
        if annotation:
            _check_annotation(annotation)
        return found, written(found)
    except NotPlain as why:
        return why


def _constant(
    name: str,
    node: ast.stmt,
    found: tuple[Any, str] | NotPlain,
    annotation: ast.expr | None,
    known: Known,
) -> Definition:
    if name not in _GIVEN:
        known.aliases.pop(name, None)
    if isinstance(found, NotPlain):
        return _other(name, node, known, found)
    if name not in _GIVEN:
        known.values[name] = found[0]
    declared = f"{name}: {ast.unparse(annotation)}" if annotation else name
    return Definition(name, "constant", f"{declared} = {found[1]}", node.lineno)


def value(node: ast.expr, known: Known) -> Any:
    """Return the value of a plain expression: a number, a string, ``...``, a `Named`, or several.

    Raises NotPlain for anything else, and for values that are too large or nested too deeply.
    """
    try:
        found = _value(node, known)
    except NotPlain:
        raise
    except RecursionError:
        raise NotPlain("it is nested too deeply", getattr(node, "lineno", 0)) from None
    except (ArithmeticError, TypeError, ValueError, MemoryError) as error:
        raise NotPlain(f"{type(error).__name__}: {error}"[:200], getattr(node, "lineno", 0)) from None
    return found


def _value(node: ast.expr, known: Known) -> Any:
    match node:
        case ast.Constant() if node.value is ... or isinstance(node.value, bool | int | float | str | None):
            return _bounded(node.value)
        case ast.Name() if node.id in known.values:
            return known.values[node.id]
        case ast.Name(id="__name__"):
            return "__main__"
        case ast.Compare():
            return _compared(node, known)
        case ast.BoolOp():
            found = _value(node.values[0], known)
            for each in node.values[1:]:
                if bool(found) is not isinstance(node.op, ast.And):
                    break
                found = _value(each, known)
            return found
        case ast.IfExp():
            return _value(node.body if _value(node.test, known) else node.orelse, known)
        case ast.Subscript() if not isinstance(node.slice, ast.Slice):
            return _item(_value(node.value, known), _value(node.slice, known), node)
        case ast.Attribute(value=ast.Call(args=[dtype], keywords=[]) as call):
            return _limit_of(dotted(call.func, known), dotted(dtype, known), node)
        case ast.UnaryOp():
            return _bounded(_OPERATORS[type(node.op)](_number(node.operand, known)))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            if isinstance(node.op, ast.Mult | ast.Add) and (items := _items(node, known)) is not None:
                return items
            left, right = _number(node.left, known), _number(node.right, known)
            if isinstance(node.op, ast.Pow | ast.LShift) and _too_large(node.op, left, right):
                raise NotPlain("the number is too large", node.lineno)
            return _bounded(_OPERATORS[type(node.op)](left, right))
        case ast.Tuple() | ast.List() | ast.Set():
            kind = {ast.Tuple: tuple, ast.List: list, ast.Set: set}[type(node)]
            return _bounded(kind(_value(item, known) for item in node.elts))
        case ast.Dict() if None not in node.keys:
            keys = [_value(key, known) for key in node.keys if key is not None]
            return _bounded(dict(zip(keys, (_value(v, known) for v in node.values), strict=True)))
        case ast.Call(func=ast.Name(id=name)) if name in _FUNCTIONS and not node.keywords:
            return _bounded(_FUNCTIONS[name](*(_value(argument, known) for argument in node.args)))
    named = dotted(node.func if isinstance(node, ast.Call) else node, known)
    module, _, last = named.rpartition(".")
    if isinstance(node, ast.Call) and named == "triton.language.constexpr":
        if len(node.args) == 1 and not node.keywords:
            return Named(f"tl.constexpr({written(_value(node.args[0], known))})")
    if isinstance(node, ast.Call) and named in _OF_MODULES and not node.keywords:
        return _bounded(_OF_MODULES[named](*(_number(argument, known) for argument in node.args)))
    if isinstance(node, ast.Attribute) and module in _WITH_NUMBERS and last in _NUMBERS:
        return getattr(math, last)
    if (
        isinstance(node, ast.Attribute)
        and module == "triton.language"
        and re.fullmatch(r"[a-z]+\d+\w*", last)
    ):
        return Named(f"tl.{last}")  # a dtype
    raise NotPlain(f"{ast.unparse(node)[:80]} is not a plain value", node.lineno)


def _compared(node: ast.Compare, known: Known) -> bool:
    left = _value(node.left, known)
    for op, each in zip(node.ops, node.comparators, strict=True):
        right = _value(each, known)
        if not _COMPARED[type(op)](left, right):
            return False
        left = right
    return True


def _items(node: ast.BinOp, known: Known) -> Any:
    """Return a tuple or list that is repeated, or two that are joined; None if it's something else."""
    left, right = _value(node.left, known), _value(node.right, known)
    if isinstance(node.op, ast.Add):
        alike = type(left) is type(right) and isinstance(left, tuple | list)
        return _bounded(left + right) if alike else None
    held, count = (right, left) if isinstance(left, int) else (left, right)
    if not isinstance(held, tuple | list) or not isinstance(count, int):
        return None
    if len(held) * count > MOST_ITEMS:
        raise NotPlain("there are too many items", node.lineno)
    return held * count


def _item(held: Any, key: Any, node: ast.AST) -> Any:
    if not isinstance(held, tuple | list | dict | str) or not isinstance(key, bool | int | float | str):
        raise NotPlain(f"{ast.unparse(node)[:80]} is not a plain value", getattr(node, "lineno", 0))
    try:
        return held[key]  # type: ignore[index]
    except (LookupError, TypeError) as error:
        words = f"{ast.unparse(node)[:80]}: {type(error).__name__}: {error}"
        raise NotPlain(words, getattr(node, "lineno", 0)) from None


def _limit_of(named: str, dtype: str, node: ast.Attribute) -> float:
    """Return a limit of `torch.finfo` or `torch.iinfo`, or numpy's, for a dtype."""
    module, _, kind = named.rpartition(".")
    of, _, name = dtype.rpartition(".")
    known = module in ("torch", "numpy") and of in ("torch", "numpy") and re.fullmatch(_DTYPES, name)
    if not known or node.attr not in _LIMITS.get(kind, ()) or ("int" in name) is not (kind == "iinfo"):
        raise NotPlain(f"{ast.unparse(node)[:80]} is not a plain value", node.lineno)
    return getattr((torch.finfo if kind == "finfo" else torch.iinfo)(getattr(torch, name)), node.attr)


def _number(node: ast.expr, known: Known) -> Any:
    found = _value(node, known)
    if not isinstance(found, bool | int | float):
        raise NotPlain(f"{ast.unparse(node)[:80]} is not a number", node.lineno)
    return found


def _too_large(op: ast.operator, left: float, right: float) -> bool:
    if isinstance(left, float) or isinstance(right, float):
        return False
    return abs(right) * (max(left.bit_length(), 1) if isinstance(op, ast.Pow) else 1) > MOST_BITS


def _bounded(found: Any) -> Any:
    if isinstance(found, int) and found.bit_length() > MOST_BITS or isinstance(found, complex):
        raise NotPlain("the number is too large")
    if isinstance(found, str) and len(found) > MOST_ITEMS * 10:
        raise NotPlain("the string is too long")
    if isinstance(found, tuple | list | set | dict) and len(found) > MOST_ITEMS:
        raise NotPlain("there are too many items")
    return found


def written(found: Any, most: int = MOST_CHARACTERS) -> str:
    """Return a plain value as the text of an expression, which `value` can read again.

    Raises NotPlain as soon as the text has more than ``most`` characters.
    """
    pieces: list[str] = []
    for piece in _pieces(found):
        most -= len(piece)
        if most < 0:
            raise NotPlain("the value is too large")
        pieces.append(piece)
    return "".join(pieces)


def _pieces(found: Any) -> Iterator[str]:
    match found:
        case Named():
            yield found.text
        case float() if not math.isfinite(found):
            yield f'float("{found}")'
        case tuple():
            yield from _joined("(", map(_pieces, found), ",)" if len(found) == 1 else ")")
        case list():
            yield from _joined("[", map(_pieces, found), "]")
        case set():
            items = sorted("".join(_pieces(item)) for item in found)
            yield from _joined("{", ([item] for item in items), "}") if found else ["set()"]
        case dict():
            pairs = (chain(_pieces(key), [": "], _pieces(item)) for key, item in found.items())
            yield from _joined("{", pairs, "}")
        case _:
            yield "..." if found is ... else repr(found)


def _joined(opening: str, items: Iterable[Iterable[str]], closing: str) -> Iterator[str]:
    yield opening
    for number, item in enumerate(items):
        if number:
            yield ", "
        yield from item
    yield closing


# ---- imports and names


def _import(node: ast.Import | ast.ImportFrom, alias: ast.alias, known: Known) -> Definition | None:
    if isinstance(node, ast.Import):
        if alias.asname is None and "." in alias.name:
            return (
                None  # binds only the first part: `triton`, which is known, or a module that is not accepted
            )
        bound, stands_for = alias.asname or alias.name, alias.name
        allowed = alias.name in _MODULES
        text = f"import {alias.name} as {bound}"
    else:
        module = node.module or ""
        bound, stands_for = alias.asname or alias.name, f"{module}.{alias.name}"
        of_it = _MODULES.get(module, set())
        public = not alias.name.startswith("_") and alias.name != "*"
        allowed = not node.level and public and (of_it is None or alias.name in of_it)
        text = f"from {module} import {alias.name} as {bound}"
    if bound in _GIVEN:
        return None if stands_for == _GIVEN[bound] else _other(bound, node, known)
    known.values.pop(bound, None)
    known.classes.discard(bound)
    if not allowed:
        known.aliases.pop(bound, None)
        if stands_for in _WITH_NUMBERS:  # for the values that a constant is computed from
            known.aliases[bound] = stands_for
        return _other(bound, node, known)
    known.aliases[bound] = stands_for
    return Definition(bound, "import", text, node.lineno)


def dotted(node: ast.expr, known: Known) -> str:
    """Return ``triton.language.constexpr`` for ``tl.constexpr``; "" if it is not a name in a module."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known.aliases:
        return ""
    return ".".join([known.aliases[node.id], *reversed(parts)])


# ---- named tuples


def _class(node: ast.ClassDef, known: Known) -> Definition:
    """Return a named tuple with only fields; no other class is accepted."""
    base = node.bases[0] if len(node.bases) == 1 else None
    body = node.body
    if isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        body = body[1:]  # its docstring
    fields = [
        each.target.id
        for each in body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.value is None
    ]
    plainly = not (node.decorator_list or node.keywords) and fields and len(fields) == len(body)
    plainly = plainly and not any(name.startswith("_") for name in fields)
    if not (isinstance(base, ast.Name) and dotted(base, known) == "typing.NamedTuple" and plainly):
        return _other(node.name, node, known)
    known.values.pop(node.name, None)
    known.aliases.pop(node.name, None)
    text = "\n".join([f"class {node.name}({base.id}):", *(f"    {name}: object" for name in fields)])
    return Definition(node.name, "class", text, node.lineno, frozenset([base.id]))


# ---- functions


def _function(node: ast.FunctionDef, lines: list[str], known: Known) -> Definition:
    known.values.pop(node.name, None)
    if node.name not in _GIVEN:
        known.aliases.pop(node.name, None)
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    text = textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]))  # it may stand under an `if`
    own = {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)} | set(_names_in(node))
    needs = frozenset(n.id for n in ast.walk(node) if isinstance(n, ast.Name)) - own
    if not node.decorator_list:
        words = f"{node.name} has no @triton.jit, and grading does not run Python functions"
        return Definition(node.name, "other", "", first, needs, NotPlain(words, node.lineno))
    try:
        _check_definition(node, known)
        _check_text(node, text)
    except NotPlain as complaint:
        return Definition(node.name, "function", "", first, needs, complaint)
    return Definition(node.name, "function", text, first, needs)


def _check_definition(node: ast.FunctionDef, known: Known) -> None:
    """Raise NotPlain if the ``def`` alone, without a call, would run more than Triton's decorators."""
    decorators = list(node.decorator_list)
    for decorator in decorators:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        named = dotted(called, known)
        if named in _JIT and decorator is decorators[-1]:
            _check_arguments(decorator, known)
        elif named == "triton.autotune" and decorator is not decorators[-1]:
            _check_autotune(decorator, known)
        else:
            words = (
                f"@{ast.unparse(decorator)[:80]}: grading accepts @triton.jit, and @triton.autotune around it"
            )
            raise NotPlain(words, decorator.lineno)
    arguments = node.args
    for default in [*arguments.defaults, *filter(None, arguments.kw_defaults)]:
        _check_value(default, known, "a default")
    every = [
        *arguments.posonlyargs,
        *arguments.args,
        *arguments.kwonlyargs,
        arguments.vararg,
        arguments.kwarg,
    ]
    for annotation in [*(a.annotation for a in every if a and a.annotation), node.returns]:
        if annotation is not None:
            _check_annotation(annotation)
    if getattr(node, "type_params", ()):
        raise NotPlain("grading does not accept functions with type parameters", node.lineno)


def _check_value(node: ast.expr, known: Known, what: str) -> None:
    try:
        value(node, known)
    except NotPlain as complaint:
        words = (
            f"{what} is {ast.unparse(node)[:80]}, but grading only accepts plain values and runs no Python"
        )
        raise NotPlain(words, complaint.line or node.lineno) from None


def _check_arguments(decorator: ast.expr, known: Known) -> None:
    """Check that a decorator is a call with plain values, or not a call."""
    if isinstance(decorator, ast.Call):
        for argument in [*decorator.args, *(keyword.value for keyword in decorator.keywords)]:
            _check_value(argument, known, f"an argument of @{ast.unparse(decorator.func)[:40]}")


def _check_autotune(decorator: ast.expr, known: Known) -> None:
    """Check ``triton.autotune(configs=[triton.Config({...}, num_warps=4), ...], key=[...])``."""
    if not isinstance(decorator, ast.Call):
        raise NotPlain("@triton.autotune without its configurations", decorator.lineno)
    for argument in [*decorator.args, *(keyword.value for keyword in decorator.keywords)]:
        for part in argument.elts if isinstance(argument, ast.List | ast.Tuple) else [argument]:
            if isinstance(part, ast.Call) and dotted(part.func, known) == "triton.Config":
                _check_arguments(part, known)
            else:
                _check_value(part, known, "an argument of @triton.autotune")


def _check_annotation(node: ast.expr) -> None:
    """Check that an annotation is a name or an attribute of a name, because looking these up runs nothing."""
    for part in ast.walk(node):
        if not isinstance(part, ast.Name | ast.Attribute | ast.Constant | ast.Load):
            words = (
                f"the annotation {ast.unparse(node)[:80]}: grading only accepts names, such as tl.constexpr"
            )
            raise NotPlain(words, node.lineno)


def _check_text(node: ast.FunctionDef, text: str) -> None:
    """Check that the function's lines alone mean the same as in their cell."""
    try:
        again = ast.parse(text).body
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        again = []
    if len(again) != 1 or ast.dump(again[0]) != ast.dump(node):
        raise NotPlain(f"{node.name}: write its decorator on a separate line", node.lineno)


def text_of(parts: Iterable[Definition]) -> str:
    """Return source with each definition at its place in the cell, so that line numbers fit the cell."""
    rows: dict[int, str] = {}
    for part in parts:
        rows[part.line] = "; ".join(filter(None, [rows.get(part.line), part.text]))
    text = ""
    for line, row in sorted(rows.items()):
        text += "\n" * (line - 1 - text.count("\n")) + row + "\n"
    return text
