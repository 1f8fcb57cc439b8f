"""Translate the messages of Triton's front end into the words of the kernel's author.

The table is tried row by row. A row has a pattern of Triton's message and the text that replaces it, or a
function if the text depends on the source. A function that returns nothing passes on to the next row. If no
row fits, the message is Triton's own.
"""

import ast
import builtins
import difflib
import inspect
import linecache
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import triton.language as tl
from triton.compiler.errors import CompilationError, CompileTimeAssertionFailure
from triton.runtime.jit import JITFunction

from puzzles_lib.float8 import NAMES
from puzzles_lib.source import Refusal, Site, nodes_of, site_in
from puzzles_lib.translator.observer import NO_VALUE, Seen

TOO_LARGE = "a value known at compile time takes more than 1 GB"
RECURSION = "the kernel calls itself; a GPU kernel cannot recurse"
TOO_DEEP = "the kernel is nested too deeply to be compiled: use shorter expressions, or fewer nested helpers"
LONGEST = 220
LINE = 160  # the most characters shown of an expression that spans several lines


@dataclass
class Trouble:
    """What the front end stopped at. message: Triton's text; error: the class of its exception, if known.

    node: the learner's expression or statement. A row of the table of wordings may move it to a better place.
    advice: what a row adds to its text; "" for nothing.
    """

    message: str
    error: str
    node: ast.AST | None
    line: str
    seen: Seen
    advice: str = ""

    def text(self, node: ast.AST) -> str:
        """Return an expression nearly as it was written; a long one is cut."""
        text = ast.unparse(node)
        return text if len(text) <= 40 else text[:37] + "..."

    def operands(self) -> list[tuple[ast.expr, tl.tensor]]:
        """Return the operands or arguments of the node that are tensors, in order."""
        found = [(part, self.seen.value(part)) for part in self.parts()]
        return [(part, value) for part, value in found if isinstance(value, tl.tensor)]

    def parts(self) -> list[ast.expr]:
        """Return the operands or arguments of the node."""
        node = self.node
        if isinstance(node, ast.AugAssign | ast.Assign | ast.Expr | ast.Attribute):
            node = node.value
        parts: list[ast.expr] = []
        if isinstance(node, ast.BinOp):
            parts = [node.left, node.right]
        elif isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.BoolOp):
            parts = node.values
        elif isinstance(node, ast.UnaryOp):
            parts = [node.operand]
        elif isinstance(node, ast.Call):
            parts = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            parts += [*node.args, *(k.value for k in node.keywords)]
        elif isinstance(node, ast.Subscript):
            parts = [node.value]
        return parts

    def callee(self) -> str:
        """Return the name of the function that is called, such as ``tl.max``; "" if nothing is."""
        node = self.node.value if isinstance(self.node, ast.Assign | ast.Expr) else self.node
        return ast.unparse(node.func) if isinstance(node, ast.Call) else ""

    def arguments(self) -> list[ast.expr]:
        node = self.node.value if isinstance(self.node, ast.Assign | ast.Expr) else self.node
        return [*node.args, *(k.value for k in node.keywords)] if isinstance(node, ast.Call) else []

    def shape(self, sizes: Sequence[int]) -> str:
        """Return ``"[8, 32] = [BLOCK_M, BLOCK_N]"`` if each size is that of one constant.

        Only constants count that the kernel gives to a block, as in `tl.arange`: not a number of bits.
        """
        named = []
        for size in sizes:
            names = [
                n for n, v in self.seen.scope.items() if isinstance(v, tl.constexpr) and v.value is not True
                and v.value == size and self._sizes_a_block(n)
            ]  # fmt: skip
            named.append("1" if size == 1 else names[0] if len(names) == 1 else "")
        plain = _listed(sizes)
        return f"{plain} = {_listed(named)}" if all(named) and any(n != "1" for n in named) else plain

    def _sizes_a_block(self, name: str) -> bool:
        """Return whether a constant is the size of a block by its name, or by the line that makes one."""
        made = rf"\btl\.(arange|zeros|full|reshape|view|broadcast_to)\([^\n]*\b{re.escape(name)}\b"
        return name.startswith("BLOCK") or bool(re.search(made, self.seen.source))

    def axes_from(self, *nodes: ast.expr) -> None:
        """Say, as advice, which line gave the one of these values its axes that has the most of them."""
        at = getattr(self.node, "lineno", 0)
        values = [(node, self.seen.value(node)) for node in nodes]
        blocks = [(n, v) for n, v in values if isinstance(v, tl.tensor) and v.type.is_block()]
        if not blocks:
            return
        node, value = max(blocks, key=lambda block: len(_sizes(block[1])))
        axes = len(_sizes(value))
        made = _made_with(node.id, axes, at, self.seen) if isinstance(node, ast.Name) else None
        if made and made.lineno < at:
            for part in ast.walk(made):  # of new_max[:, None], new_max may have an axis too many
                name = part.value if isinstance(part, ast.Subscript) else None
                if isinstance(name, ast.Name) and (earlier := self.assigned(name.id, made.lineno)):
                    if self.fold_missing(earlier):
                        return
            site = _line(self.seen, made)
            many, code = "1 axis" if axes == 1 else f"{axes} axes", site.source.partition(" # ")[0].rstrip()
            self.advice = f"{self.text(node)} has {many} because of line {site.line}: {code}"

    def assigned(self, name: str, before: int) -> ast.Assign | None:
        """Return the last assignment to a name in the lines before one; None if there is none."""
        made = [
            node
            for node in ast.walk(ast.parse(self.seen.source))
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and node.lineno < before
        ]
        return max(made, key=lambda node: node.lineno, default=None)

    def block(self, node: ast.AST) -> list[int]:
        """Return the shape of an expression's value, also of one parsed again; [] if it isn't a block."""
        wanted = ast.dump(node, include_attributes=True)
        for known, value in self.seen.values.values():
            if isinstance(value, tl.tensor) and value.type.is_block():
                if ast.dump(known, include_attributes=True) == wanted:
                    return _sizes(value)
        return []

    def fold_missing(self, made: ast.stmt, running: Sequence[int] = ()) -> bool:
        """Say, as advice, which tile is combined with a vector and wasn't folded; False if none is.

        made: an assignment. If it copies a name, the assignment of that name counts. running: the shape of
        the variable that ``made`` updates if it's an augmented assignment.
        """
        at = getattr(self.node, "lineno", 0)
        value = getattr(made, "value", None)
        if isinstance(value, ast.Name) and isinstance(made, ast.Assign):
            earlier = self.assigned(value.id, made.lineno)
            return earlier is not None and self.fold_missing(earlier)
        shapes: list[tuple[list[int], ast.expr]]
        match made:
            case ast.AugAssign(target, ast.Add() | ast.Sub(), added):
                shapes, name = [(list(running), target), (self.block(added), added)], "sum"
            case ast.Assign(_, ast.BinOp(left, ast.Add() | ast.Sub(), right)):
                shapes, name = [(self.block(left), left), (self.block(right), right)], "sum"
            case ast.Assign(_, ast.Call(ast.Attribute(_, "maximum" | "minimum" as called), [left, right])):
                shapes, name = [(self.block(left), left), (self.block(right), right)], called[:3]
            case _:
                return False
        (vector, _), (tile, node) = sorted(shapes, key=lambda pair: len(pair[0]))
        if len(vector) != 1 or len(tile) != 2 or _is_call_of(node, "tl.sum", "tl.max", "tl.min"):
            return False
        if _is_call_of(node, "tl.dot"):
            self.advice = (
                f"tl.dot gives a tile: the sum has to start as a tile of its shape, {self.shape(tile)}"
            )
            return True
        axis = 1 if vector[0] == tile[0] else 0
        if tile[0] == tile[1] and "axis=0" in self.seen.source and "axis=1" not in self.seen.source:
            axis = 0
        if vector[0] != tile[1 - axis]:
            return False
        if advice := self._turned_for_nothing(node):
            self.advice = advice
            return True
        text = ast.unparse(node)
        where = f" on line {site.line}" if (site := _line(self.seen, made)).line and made.lineno < at else ""
        what, which = (text, text) if len(text) <= LONGEST_TILE else ("the tile", "...")
        each = "column" if axis == 0 else "row"
        self.advice = f"fold {what}{where} to one number per {each}: tl.{name}({which}, axis={axis})"
        return True

    def _turned_for_nothing(self, node: ast.expr) -> str:
        """Return advice on two vectors of one length whose result is a tile, since one has a new axis.

        node: the tile. If a name in it is one, the line that sets the name counts.
        """
        at = getattr(node, "lineno", 0)
        tiles = [n for n in ast.walk(node) if isinstance(n, ast.Name) and len(self.block(n)) == 2]
        made = [earlier for n in tiles if (earlier := self.assigned(n.id, at))]
        for each in (node, *made):
            for part in ast.walk(each):
                if isinstance(part, ast.BinOp) and (both := self._one_turned(part)):
                    where = "" if each is node else f" on line {_line(self.seen, each).line}"
                    return f"{both[0]} are vectors of one length: leave out {both[1]}{where}"
        return ""

    def _one_turned(self, node: ast.BinOp) -> tuple[str, str] | None:
        """Return two vectors of one length, and the index that gives one of them an axis; None if unclear."""
        for turned, other in ((node.left, node.right), (node.right, node.left)):
            if isinstance(turned, ast.Subscript) and "None" in ast.unparse(turned.slice):
                shapes = [self.block(turned.value), self.block(other)]
                if shapes[0] == shapes[1] and len(shapes[0]) == 1:
                    axis = ast.unparse(turned)[len(ast.unparse(turned.value)) :]
                    return f"{ast.unparse(other)} and {ast.unparse(turned.value)}", axis
        return None


LONGEST_TILE = 40  # characters of an expression that is shown twice


def _is_call_of(node: ast.expr, *functions: str) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in functions


def _made_with(name: str, axes: int, before: int, seen: Seen) -> ast.stmt | None:
    """Return the assignment where a name's value gets so many axes, in the lines before one; None if unclear.

    If it has them from another name, this is the assignment of that one.
    """
    tree = ast.walk(ast.parse(seen.source))
    every = [node for node in tree if isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign)]
    known = {ast.dump(node, include_attributes=True): value for node, value in seen.values.values()}

    def has_them(node: ast.AST) -> bool:
        value = known.get(ast.dump(node, include_attributes=True))
        return isinstance(value, tl.tensor) and value.type.is_block() and len(_sizes(value)) == axes

    while True:
        made = [
            node
            for node in every
            if ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target) == name
            if node.lineno < before and node.value is not None and has_them(node.value)
        ]
        if not made:
            return None
        found = max(made, key=lambda node: node.lineno)
        assert found.value is not None
        names = [n.id for n in ast.walk(found.value) if isinstance(n, ast.Name) and has_them(n)]
        earlier = next((n for n in names if _made_with(n, axes, found.lineno, seen)), None)
        if earlier is None:
            return found
        name, before = earlier, found.lineno


def _listed(parts: Sequence[object]) -> str:
    return f"[{', '.join(map(str, parts))}]"


def _sizes(value: tl.tensor) -> list[int]:
    return [int(n) for n in value.shape]


_DTYPES = NAMES | {"int1": "a mask", "void": "no value"}


def a(noun: str) -> str:
    """Return a noun with its article."""
    return f"{'an' if noun[:1] in 'aeioAEIO' else 'a'} {noun}"


def _dtype(value: tl.tensor | str) -> str:
    """Return what a tensor contains: ``"float32"``, ``"addresses"``, ..."""
    name = value if isinstance(value, str) else str(value.type.scalar)
    return "addresses" if name.startswith("pointer") else _DTYPES.get(name, name)


def _is_pointer(value: object) -> bool:
    return isinstance(value, tl.tensor) and value.type.scalar.is_ptr()


# ---- rows that depend on what was written


def _matmul(t: Trouble, _: re.Match) -> str:
    node = t.node
    if not isinstance(node, ast.BinOp):
        return "a kernel has no @: use tl.dot(a, b)"
    left, right = t.text(node.left), t.text(node.right)
    return f"a kernel has no @: use tl.dot({left}, {right})"


NO_FUNCTIONS = "a kernel cannot define functions: write a @triton.jit function outside of it"
_NO_SUCH_STATEMENT = {
    "Import": "a kernel cannot import: import above the kernel",
    "ClassDef": "a kernel cannot define classes",
    "Break": "a kernel's loops have no break: use a while with a condition, or a mask",
    "Continue": "a kernel's loops have no continue: use an if around the rest, or a mask",
    "Dict": "a kernel has no dictionaries, only tuples and blocks",
    "Set": "a kernel has no sets, only tuples and blocks",
    "Try": "a kernel cannot contain try: nothing in a kernel raises an exception",
    "Raise": "a kernel cannot raise: tl.device_assert(condition) stops it, tl.static_assert the compiler",
    "Global": "a kernel cannot set globals: write results with tl.store",
    "Delete": "a kernel cannot delete names: leave that line out",
    "NamedExpr": "a kernel has no :=: name the value on a separate line",
    "Match": "a kernel has no match: use if",
    "Starred": "a kernel cannot unpack with *: name each value",
    "Yield": "a kernel cannot yield: write results with tl.store",
}
_NO_SUCH_STATEMENT |= {
    "AsyncFunctionDef": NO_FUNCTIONS,
    "ImportFrom": _NO_SUCH_STATEMENT["Import"],
    "DictComp": _NO_SUCH_STATEMENT["Dict"],
    "Lambda": NO_FUNCTIONS,
    "SetComp": _NO_SUCH_STATEMENT["Set"],
    "Nonlocal": _NO_SUCH_STATEMENT["Global"],
    "TryStar": _NO_SUCH_STATEMENT["Try"],
    "YieldFrom": _NO_SUCH_STATEMENT["Yield"],
}


def no_such_statement(node: ast.AST) -> str:
    """Return why a kernel can't contain a statement or an expression of this kind."""
    return _no_such_kind(type(node).__name__)


def _no_such_kind(name: str) -> str:
    return _NO_SUCH_STATEMENT.get(name, f"a kernel cannot contain {_kind_named(name)}")


def _no_such_statement(t: Trouble, found: re.Match) -> str:
    return _no_such_kind(found[1])


def kind_of(node: ast.AST) -> str:
    """Return the usual name of a kind of statement or expression."""
    return _kind_named(type(node).__name__)


def _kind_named(name: str) -> str:
    return _KINDS.get(name, a(name))


_KINDS = {
    "Assert": "assert",
    "AsyncFor": "async for",
    "AsyncFunctionDef": "a function",
    "AsyncWith": "async with",
    "Await": "await",
    "ClassDef": "a class",
    "Delete": "del",
    "DictComp": "a dictionary",
    "Dict": "a dictionary",
    "FormattedValue": "an f-string",
    "FunctionDef": "a function",
    "GeneratorExp": "a generator",
    "Global": "global",
    "Import": "an import",
    "ImportFrom": "an import",
    "JoinedStr": "an f-string",
    "Lambda": "a lambda",
    "ListComp": "a comprehension",
    "Match": "match",
    "NamedExpr": ":=",
    "Nonlocal": "nonlocal",
    "Raise": "raise",
    "Set": "a set",
    "SetComp": "a comprehension",
    "Starred": "unpacking by *",
    "Try": "try",
    "TryStar": "try",
    "With": "with",
    "Yield": "yield",
    "YieldFrom": "yield",
}


def _not_a_range(t: Trouble, _: re.Match) -> str:
    if isinstance(t.node, ast.With):
        return "a kernel has no with statement"
    return (
        "a for loop in a kernel can only run over range(...), tl.range(...) or tl.static_range(...), "
        "which unrolls the loop"
    )


_TUPLE = "a block is needed here, but this is a tuple: use its parts one by one"


def _descriptor(t: Trouble, _: re.Match) -> str:
    """Explain a descriptor that is used as a block or an address."""
    kind = tl.core.tensor_descriptor_base
    found = next((part for part in t.parts() if isinstance(t.seen.value(part), kind)), None)
    if found is None:
        several = any(isinstance(t.seen.value(part), tl.tuple) for part in t.parts())
        return _TUPLE if several and not isinstance(t.node, ast.Subscript) else ""
    text, axes = t.text(found), len(getattr(t.seen.value(found), "block_shape", ()))
    start = ", ".join("0" * axes)
    return (
        f"{text} is a descriptor: {text}.load([{start}]) reads a block, {text}.store([{start}], x) writes one"
    )


_FOLDED = ("max", "min", "sum", "argmax", "argmin", "cumsum", "cumprod", "xor_sum", "flip", "sort", "softmax")


def _axis_wanted(t: Trouble, _: re.Match) -> str:
    """Explain a float given as the axis: usually tl.maximum is meant."""
    callee, given = t.callee(), t.arguments()
    name = callee.rpartition(".")[2]
    if name not in _FOLDED or not given:
        return ""
    block = callee.rpartition(".")[0] if callee.rpartition(".")[0] != "tl" else t.text(given[0])
    for part in given:
        value = t.seen.value(part)
        value = value.value if isinstance(value, tl.constexpr) else value
        if isinstance(value, float):
            number = t.text(part)
            both = {"max": "tl.maximum({}, {})", "min": "tl.minimum({}, {})", "sum": "{} + {}"}.get(name, "")
            told = f"{callee} needs an axis, which is an integer, and {number} is not"
            return f"{told}: to combine two values write {both.format(block, number)}" if both else told
    return ""


_ASM = "tl.inline_asm_elementwise takes two strings, a list of blocks, a dtype, is_pure= and pack="


BROKEN = (
    "Triton's compiler cannot translate this line and doesn't say why: "
    "check the arguments of each call, or write the line in a simpler way"
)


def _broken(t: Trouble, _: re.Match) -> str:
    if t.callee().endswith("inline_asm_elementwise"):
        return _ASM
    if t.callee() in ("tl.program_id", "tl.num_programs"):
        return _axis_of_the_grid(t, _)
    return BROKEN


def _axis_of_the_grid(t: Trouble, _: re.Match) -> str:
    return f"{t.callee()} takes an axis of the grid: 0, 1 or 2"


def _none_given(t: Trouble, _: re.Match) -> str:
    values = (t.seen.value(part) for part in t.parts())
    return NO_VALUE if any(isinstance(v, tl.tensor) and v.type == tl.void for v in values) else ""


_HALVES = ("float16", "bfloat16")
_ROUNDED = "because a sum in 16 bits is rounded in every iteration"


def _one_target(t: Trouble, _: re.Match) -> str:
    node = t.node
    if isinstance(node, ast.Assign) and len(node.targets) > 1:
        return "a kernel cannot assign one value to several names: write a line for each"
    if isinstance(node, ast.Assign | ast.Starred) and "*" in t.line:
        return _NO_SUCH_STATEMENT["Starred"]
    if t.callee().endswith("split") and (blocks := t.operands()):
        of = f"{t.text(blocks[0][0])} is {t.shape(_sizes(blocks[0][1]))}"
        return f"tl.split needs a block whose last axis has 2 elements: {of}"
    if "dot(" in t.line:
        operands = t.operands()
        if len(operands) > 2 and _dtype(operands[-1][1]) in _HALVES:
            node, acc = operands[-1]
            text = t.text(node)
            return f"{text} is {_dtype(acc)}, but tl.dot adds in float32: make {text} of float32, {_ROUNDED}"
        return (
            "tl.dot's accumulator has another dtype than out_dtype=, which is tl.float32 by default: "
            "set it (tl.int32 for int8 tiles), or write acc += tl.dot(...)"
        )
    return BROKEN


_FOLDS = {"max": "tl.maximum(a, b)", "min": "tl.minimum(a, b)", "sum": "a + b"}


def _outside_of_the_compiler(t: Trouble, _: re.Match) -> str:
    """Explain a tensor that was given to one of Triton's Python functions, which need numbers."""
    callee = t.callee()
    owner, name = callee.rpartition(".")[::2]
    if re.search(r"_ptr\s*\[", t.line):
        return _POINTER_INDEXED
    if name == "inline_asm_elementwise":
        return _ASM
    if isinstance(t.node, ast.Subscript):
        index = t.seen.value(t.node.slice)
        if isinstance(index, tl.tensor) and index.type.scalar.is_bool():
            return "a block cannot be filtered: keep all lanes, and use mask= in tl.load and tl.store"
        return (
            f"{t.text(t.node)} cannot pick elements of the block {t.text(t.node.value)}: "
            "load the elements that you need with tl.load"
        )
    if name in _FOLDS and len(t.arguments()) > 1:
        return f"{callee} folds one block along an axis; to combine two blocks write {_FOLDS[name]}"
    if owner == "triton":
        instead = f"in a kernel use tl.{name}" if hasattr(tl, name) else "pass its result as a tl.constexpr"
        return f"{callee} only works on numbers known at compile time: {instead}"
    if callee:
        return _known_early(t, f"an argument of {callee} must be")
    for name in (each.id for each in ast.walk(t.node) if isinstance(each, ast.Name)) if t.node else ():
        value = t.seen.scope.get(name)
        if isinstance(value, tl.constexpr) and isinstance(value.value, tl.tensor):
            why = "because its value is known only at launch"
            return f"{name} can't be a tl.constexpr, {why}: write {name} = ..."
    return "this needs numbers known at compile time, such as a tl.constexpr parameter"


def _addresses_as_values(t: Trouble, _: re.Match) -> str:
    node = next((node for node, value in t.operands()[1:] if _is_pointer(value)), None)
    if node is None:
        return "the value consists of addresses: tl.load reads what is there"
    node = _named_pointer(t, node)
    cure = f"tl.load({t.text(node)})" if t.text(node) == ast.unparse(node) else "tl.load"
    return f"{t.text(node)} contains addresses, not values: {cure} reads what is there"


def _named_pointer(t: Trouble, node: ast.expr) -> ast.expr:
    """Return the addresses that a value such as x_ptr + offs + 10 is made from, here x_ptr + offs.

    If they have a name that isn't a parameter, such as x in x + 10, return the name.
    """
    node = inner = _without_constants(t, node)
    while isinstance(inner, ast.BinOp):
        side = next((side for side in (inner.left, inner.right) if _is_pointer(t.seen.value(side))), None)
        if side is None:
            return node
        inner = side
    return inner if isinstance(inner, ast.Name) and not inner.id.endswith("_ptr") else node


def _without_constants(t: Trouble, node: ast.expr) -> ast.expr:
    """Return a sum of a pointer and offsets without the numbers that it adds last: they're for the values."""
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sides = ((node.left, node.right), (node.right, node.left))
        inner = next((one for one, other in sides if isinstance(other, ast.Constant)), None)
        if not isinstance(inner, ast.BinOp) or not _is_pointer(t.seen.value(inner)):
            break
        node = inner
    return node


def _no_addresses(t: Trouble, found: re.Match) -> str:
    callee, operands = t.callee(), t.operands()
    if not callee or not operands:
        return "this needs addresses, such as x_ptr + offs"
    (first, value), rest = operands[0], operands[1:]
    owner, _, name = callee.rpartition(".")
    callee = callee if owner == "tl" else f"tl.{name}"
    if any(_is_pointer(v) for _, v in rest):
        text = t.text(next(n for n, v in rest if _is_pointer(v)))
        return f"the arguments are swapped: {callee}({text}, {t.text(first)}, ...) has the addresses first"
    for node in ast.walk(first):
        if isinstance(node, ast.Name) and node.id.endswith("_ptr") and (made := _set_last(t, node.id)):
            return f"{node.id} is no pointer any more: line {made} gives it another value"
    if "float" in (kind := _dtype(value)):
        return f"{callee} needs addresses first, such as x_ptr + offs, but {t.text(first)} is {kind}: values"
    return f"{callee} needs addresses first, such as x_ptr + {t.text(first)}, but this is {kind}"


def _set_last(t: Trouble, name: str) -> int:
    """Return the line of the last assignment to a name above the trouble; 0 if there is none."""
    made = t.assigned(name, t.operands()[0][0].lineno)
    return _line(t.seen, made).line if made else 0


def _shapes_differ(t: Trouble, found: re.Match) -> str:
    """Explain operands whose shapes differ, with names if the constants have different values."""
    blocks = [(n, v) for n, v in t.operands() if v.type.is_block()]
    callee = t.callee()
    if callee.endswith(("store", "load")) or callee.rpartition(".")[2].startswith("atomic"):
        roles = [
            "the addresses are",
            "the value is" if "load" not in callee else "the mask is",
            "the mask is",
        ]
    else:
        roles = [f"{t.text(n)} is" for n, _ in blocks]
    parts = [f"{role} {t.shape(_sizes(v))}" for role, (_, v) in zip(roles, blocks, strict=False)]
    mismatch = re.search(r"rank mismatch: (.*\]), (\[.*)", t.message)
    if mismatch and len(parts) < 2:
        has, wants = (re.sub(r"constexpr\[(\d+)\]|'", r"\1", text) for text in mismatch.groups())
        return (
            f"a block of shape {has} cannot become {wants}: add the axis with x[None, :] or x[:, None] first"
        )
    if len(set(parts)) < 2:
        return "blocks of these shapes do not fit each other: " + re.sub(
            r"constexpr\[(\d+)\]|'", r"\1", t.message
        )
    words = f"shapes that do not fit each other: {', '.join(parts)}"
    sizes = [_sizes(v) for _, v in blocks[:2]]
    ranks = {len(_sizes(v)) for _, v in blocks}
    if roles[0] == "the addresses are" and ranks == {1} and len(blocks) > 1:
        _folded_along_the_other_axis(t, blocks[1][0], *sizes)
    if len(ranks) > 1 and max(ranks) > 2:  # of a vector and a tile, the vector is at fault
        t.axes_from(*(node for node, _ in blocks))
    if len(sizes[0]) == len(sizes[1]) == 2 and sizes[0] == sizes[1][::-1] != sizes[1]:
        words += "; one is the other transposed"
    elif len(blocks) == 2 and sorted(map(len, sizes)) == [1, 1] and 1 not in (sizes[0][0], sizes[1][0]):
        words += _as_row_and_column(t, *(node for node, _ in blocks))
    elif sorted(map(len, sizes)) == [1, 2]:
        words += _as_column(
            t, *sorted(((_sizes(v), n) for n, v in blocks[:2]), key=lambda pair: len(pair[0]))
        )
    elif len(sizes[0]) == len(sizes[1]) == 2 and 1 not in sizes[0] + sizes[1]:
        words += _no_dot(t, *(node for node, _ in blocks[:2]))
    elif len(sizes[0]) == len(sizes[1]) == 2:
        words += _lies_as_a_row(*sorted(((_sizes(v), n) for n, v in blocks[:2]), key=lambda pair: pair[0][0]))
    return words


def _folded_along_the_other_axis(
    t: Trouble, stored: ast.expr, addresses: list[int], value: list[int]
) -> None:
    """Say, as advice, that a stored vector comes from a tile folded along the wrong axis, if that's so."""
    at, nodes = getattr(t.node, "lineno", 0), [stored]
    seen: set[int] = set()  # lines
    while nodes:
        node = nodes.pop(0)
        for part in ast.walk(node):
            if isinstance(part, ast.Name) and (made := t.assigned(part.id, getattr(node, "lineno", at))):
                if made.lineno not in seen:
                    seen.add(made.lineno)
                    nodes.append(made.value)
            if not isinstance(part, ast.Call) or not _is_call_of(part, *_FOLDING) or not part.args:
                continue
            axes = [k.value for k in part.keywords if k.arg == "axis"] + part.args[1:2]
            axis = next((each for each in (0, 1) for n in axes if ast.unparse(n) == str(each)), None)
            tile = t.block(part.args[0])
            if axis is not None and len(tile) == 2 and ([tile[axis]], [tile[1 - axis]]) == (addresses, value):
                line, kinds = _line(t.seen, part).line, ("column", "row")
                t.advice = (
                    f"{ast.unparse(part.func)} in line {line} has axis={axis}, which leaves one number per "
                    f"{kinds[axis]} of {t.shape(tile)}. axis={1 - axis} leaves one per {kinds[1 - axis]}"
                )
                return


def _no_dot(t: Trouble, left: ast.expr, right: ast.expr) -> str:
    """Say that * is no matrix product, if the rows of two tiles are equally long; "" if they aren't."""
    node = t.node.value if isinstance(t.node, ast.Assign) else t.node
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
        return ""
    if t.block(left)[-1:] != t.block(right)[-1:]:
        return ""
    product = f"tl.dot({t.text(left)}, {_transposed(right)})"
    return f"; * multiplies lane by lane, and {product} multiplies each row by each row"


def _lies_as_a_row(row: tuple[list[int], ast.expr], tile: tuple[list[int], ast.expr]) -> str:
    """Say that a row with an element per row of a tile must become a column; "" if it has none."""
    (one, size), node = row
    rows, columns = tile[0]
    if one != 1 or size != rows or size == columns:
        return ""
    if isinstance(node, ast.Subscript) and ast.unparse(node.slice).strip("()") == "None, :":
        return f"; {ast.unparse(node.value)}[:, None] is a column, with one element per row"
    if not isinstance(node, ast.Name):
        return ""
    return f"; {node.id} has one element per row of the tile, so make it a column: [:, None], not [None, :]"


def _as_column(t: Trouble, vector: tuple[list[int], ast.expr], tile: tuple[list[int], ast.expr]) -> str:
    """Say that a vector with an element per row of a tile must become a column; "" if it has none."""
    (size,), node = vector
    rows, columns = tile[0]
    if size != rows or size == columns or not isinstance(node, ast.Name):
        return ""
    return f"; {node.id}[:, None] is a column, with one element per row"


def _as_row_and_column(t: Trouble, *nodes: ast.expr) -> str:
    """Say how two vectors of different lengths combine into a tile; "" if one of them has no name.

    Which one is the column is said only if the kernel makes columns or rows of other vectors as long.
    """
    if not all(isinstance(node, ast.Name) for node in nodes):
        return ""
    told = "; to get a tile, add an axis to each"
    lengths = [_sizes(value) for value in map(t.seen.value, nodes) if isinstance(value, tl.tensor)]
    columns, rows = (_expanded(t, form) for form in (":, None", "None, :"))
    for order in (nodes, nodes[::-1]):
        first, last = lengths if order is nodes else lengths[::-1]
        if (first in columns or last in rows) and not (first in rows or last in columns):
            names = [f"{t.text(node)}[{':, None' if node is order[0] else 'None, :'}]" for node in nodes]
            return f"{told}, such as {' and '.join(names)}"
    return f"{told}, with [:, None] for a column and [None, :] for a row"


def _expanded(t: Trouble, form: str) -> list[list[int]]:
    """Return the shapes of the vectors that a kernel indexes like this, such as ``mask_k[None, :]``."""
    found = []
    for node in ast.walk(ast.parse(t.seen.source)):
        if isinstance(node, ast.Subscript) and ast.unparse(node.slice).strip("()") == form:
            value = t.seen.scope.get(ast.unparse(node.value))
            if isinstance(value, tl.tensor) and value.type.is_block() and len(_sizes(value)) == 1:
                found.append(_sizes(value))
    return found


def _operands(t: Trouble, found: re.Match) -> str:
    """Explain an operator that does not work on its operands."""
    operands = t.operands()
    node = t.node.value if isinstance(t.node, ast.Assign) else t.node
    if any(_is_pointer(v) for _, v in operands):
        if isinstance(node, ast.Compare):
            return _addresses_compared(t, next(n for n, v in operands if _is_pointer(v)))
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            other = next(((n, v) for n, v in operands if not _is_pointer(v)), None)
            if other and isinstance(node.op, ast.Sub) and _is_pointer(operands[-1][1]):
                name = t.text(operands[-1][0])
                return f"{name} contains addresses, not numbers of elements: it cannot be subtracted"
            if other:
                return f"offsets must be integers, but {t.text(other[0])} is {_dtype(other[1])}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return "only integers can be added to addresses: tl.load(...) reads the values there"
        name = next(t.text(n) for n, v in operands if _is_pointer(v))
        return f"{name} contains addresses, not values: tl.load(...) reads the values there"
    kinds = ", ".join(f"{t.text(n)} is {_dtype(v)}" for n, v in operands)
    if isinstance(node, ast.BinOp | ast.UnaryOp):
        operator = ast.unparse(node)
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.FloorDiv):
                return f"// only divides integers, but {kinds}: use / and tl.floor"
        return f"{t.text(node) if operator else ''} only works on integers and masks, but {kinds}"
    return ""


def _addresses_compared(t: Trouble, node: ast.expr) -> str:
    """Explain a comparison of addresses, mostly with a size, as in ``mask = x_ptr + offs < N``."""
    offsets = ""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        offset = next((n for n in (node.right, node.left) if not _is_pointer(t.seen.value(n))), None)
        offsets = "" if offset is None else f", here {t.text(offset)}"
    return f"{t.text(node)} contains addresses: a mask compares positions, not addresses{offsets}"


def _carried(t: Trouble, found: re.Match) -> str:
    """Explain a loop that changes the shape or dtype of a variable, at the line that does."""
    name = found[1]
    last = _last_assignment(t.node, name)
    t.node = last or t.node
    before, after = _kind(t, found[2]), _kind(t, found[3])
    text = f"{name} is {before} before the loop, but {after} after this line"
    block = re.search(r"<\['(.*)'\], (\w+)>", found[3])
    if block and "<[" not in found[2] and "pointer" not in found[2] + found[3]:
        shape = _start_shape(t, _numbers(block[1]))
        return f"{text}: start with {name} = {_start(t, shape, _DTYPES.get(block[2]) or block[2])}"
    halves = [half for half in _HALVES if before.replace(half, "float32") == after and half in before]
    if halves and "pointer" not in before:
        return f"{text}: start with float32, {_ROUNDED}"
    if fold := _without_kept_axis(t, last, found[2], found[3]):
        vector, kind = fold
        return f"{text}: {name} is a {kind}, and {vector} isn't. keep_dims=True makes it one"
    if last is not None and (advice := _misfolded(t, last, found[2], found[3])):
        t.advice = advice
        return f"{text}: a loop cannot change a variable's shape or dtype"
    if before.count(",") != after.count(",") and last is not None:
        sizes = re.search(r"<\['(.*)'\]|<\[(.*?)\]", found[2])
        if sizes and t.fold_missing(last, _numbers(sizes[1] or sizes[2])):
            return f"{text}: a loop cannot change a variable's shape or dtype"
        names = [node for node in ast.walk(last) if isinstance(node, ast.Name)]
        most = max((len(t.block(name)) for name in names), default=0)
        indexed = [node for node in ast.walk(last) if isinstance(node, ast.Subscript)]
        t.axes_from(*([node.value for node in indexed if len(t.block(node)) > most] or names))
    return f"{text}: a loop cannot change a variable's shape or dtype"


_FOLDING = ("tl.max", "tl.min", "tl.sum", "tl.argmax", "tl.argmin", "tl.reduce")


def _misfolded(t: Trouble, made: ast.stmt, before: str, after: str) -> str:
    """Return advice on a fold along the wrong axis, or with an axis too many; "" if there is none.

    made: the assignment that changes the shape from ``before`` to ``after``, in Triton's text.
    """
    shapes = [re.search(r"<\['?(.*?)'?\], \w+>|<\[(.*?)\]", text) for text in (before, after)]
    if not all(shapes):
        return ""
    wanted, got = (_numbers(found[1] or found[2]) for found in shapes if found)
    names = [node for node in ast.walk(made) if isinstance(node, ast.Name)]
    copied = [earlier for n in names if (earlier := t.assigned(n.id, made.lineno))]
    lines: list[ast.stmt] = [made, *copied]
    for each in lines:
        for node in ast.walk(each):
            if not (isinstance(node, ast.Call) and _is_call_of(node, *_FOLDING) and node.args):
                continue
            tile, given = t.block(node.args[0]), {keyword.arg: keyword.value for keyword in node.keywords}
            axis = given.get("axis", node.args[1] if len(node.args) > 1 else None)
            where = f" on line {_line(t.seen, each).line}" if each is not made else ""
            text = ast.unparse(node)
            if len(tile) != 2 or not isinstance(axis, ast.Constant):
                continue
            if axis.value == 0 and wanted == [tile[0]] and got == [tile[1]]:
                return f"{text}{where} gives one number per column: with axis=1, it's one per row"
            if "keep_dims" in given and wanted == [tile[0]] and got == [tile[0], 1]:
                return f"with keep_dims=True, the result of {text}{where} has 2 axes: leave it out"
    return ""


def _without_kept_axis(t: Trouble, made: ast.stmt | None, before: str, after: str) -> tuple[str, str] | None:
    """Return the fold without keep_dims that makes a tile of a column, and the word "column".

    made: the assignment that changes the shape from ``before`` to ``after``, in Triton's text.
    """
    shapes = [re.search(r"<\['?(.*?)'?\], \w+>|<\[(.*?)\]", text) for text in (before, after)]
    if made is None or not all(shapes):
        return None
    column, tile = (_numbers(found[1] or found[2]) for found in shapes if found)
    if len(column) != 2 or len(tile) != 2 or column[1] != 1 or tile[1] == 1:
        return None
    nodes = [node for node in ast.walk(made) if isinstance(node, ast.expr)]
    named = [t.assigned(n.id, made.lineno) for n in nodes if isinstance(n, ast.Name)]
    for node in [*nodes, *(each.value for each in named if each)]:
        if isinstance(node, ast.Call) and _is_call_of(node, *_FOLDING):
            kept = any(keyword.arg in ("keep_dims", None) for keyword in node.keywords)
            if not kept and any(keyword.arg == "axis" for keyword in node.keywords):
                return ast.unparse(node), "column"
    return None


def _start_shape(t: Trouble, sizes: Sequence[int]) -> str:
    """Return a shape by the names of its sizes, ``"[BLOCK_M]"``, because numbers change from case to case.

    A size that several constants have is ``...``, because only the author knows which one is meant.
    """
    constants = {
        name: value.value
        for name, value in t.seen.scope.items()
        if isinstance(value, tl.constexpr) and type(value.value) is int
    }
    named = []
    for size in sizes:
        names = [name for name, value in constants.items() if value == size]
        named.append(names[0] if len(names) == 1 else "..." if names else str(size))
    return _listed(named)


def _start(t: Trouble, shape: str, dtype: str) -> str:
    """Return what an accumulator starts from: a block of the fold's neutral element."""
    value = t.node.value if isinstance(t.node, ast.Assign) else None
    callee = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
    neutral = {"tl.maximum": '"-inf"', "tl.minimum": '"inf"'}.get(callee)
    if neutral and "float" in dtype:
        return f"tl.full({shape}, float({neutral}), tl.{dtype})"
    return f"tl.zeros({shape}, tl.{dtype})"


def _last_assignment(loop: ast.AST | None, name: str) -> ast.stmt | None:
    found: ast.stmt | None = None
    for node in ast.walk(loop) if loop else ():
        if not isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        if any(isinstance(n, ast.Name) and n.id == name for t in targets for n in ast.walk(t)):
            if found is None or node.lineno >= found.lineno:
                found = node
    return found


def _numbers(text: str) -> list[int]:
    """Return the sizes in Triton's text of a shape. To Triton, True is a size of 1."""
    return [int(ast.literal_eval(n.strip(" '"))) for n in text.split(",")]


def _kind(t: Trouble, text: str) -> str:
    """Return Triton's text of a type in plain words."""
    text = text.replace("constexpr", "").replace("'", "")
    if text.startswith(("[", "(")):
        return "a tuple"
    if block := re.match(r"pointer<<\[(.*)\], (\w+)>", text):
        shape = t.shape(_numbers(block[1]))
        return f"a block pointer to {shape} of {_dtype(block[2])}"
    if block := re.search(r"<\[(.*)\], ([^>]+)>", text):
        shape = t.shape(_numbers(block[1]))
        return f"a mask {shape}" if block[2] == "int1" else f"{shape} of {_dtype(block[2])}"
    if block := re.fullmatch(r"(\w+)\[(.*\d.*)\]", text):
        sizes = [int(n) for n in re.findall(r"\d+", block[2])]
        return f"a mask {t.shape(sizes)}" if block[1] == "int1" else f"{t.shape(sizes)} of {_dtype(block[1])}"
    return f"one {_dtype(text.removesuffix('[]'))}" if "pointer" not in text else "an address"


def _if_changes(t: Trouble, found: re.Match) -> str:
    before, after = _kind(t, found[2]), _kind(t, found[3])
    t.node = _last_assignment(t.node, found[1]) or t.node
    text = f"{found[1]} is {before} before the if, but {after} after this line"
    return f"{text}: an if cannot change a variable's shape or dtype"


def _branches_differ(t: Trouble, found: re.Match) -> str:
    one, other = _kind(t, found[2]), _kind(t, found[3])
    return f"{found[1]} is {one} if the condition is true, but {other} if it is false"


_RENAME = "assign to another name"


def _constant_in_loop(t: Trouble, found: re.Match) -> str:
    name = found[1]
    t.node = _last_assignment(t.node, name) or t.node
    if "_block_ptr" in t.message:  # in Triton 3.8, which may name the two types in either order
        return f"{name} is a block pointer before the loop or after this line, but not both: {_RENAME}"
    return f"{name} is a compile-time constant (a tl.constexpr), so a loop cannot change it: {_RENAME}"


_FROM_NUMPY = {
    "concatenate": "tl.cat",
    "matmul": "tl.dot",
    "mean": "tl.sum(x, axis=0) / n",
    "pow": "x * x for a square, tl.exp2(n) for 2 ** n",
    "power": "x * x for a square, tl.exp2(n) for 2 ** n",
    "ones": "tl.full(shape, 1, dtype)",
    "array": "blocks made by tl.arange, tl.full and tl.load",
    "linspace": "tl.arange",
    "tanh": "2 * tl.sigmoid(2 * x) - 1",
    "inf": 'float("inf")',
    "nan": 'float("nan")',
    "pi": "a tl.constexpr of it",
    "clip": "tl.clamp",
    "relu": "tl.maximum(x, 0.0)",
    "any": "tl.max of the mask, as an int",
    "all": "tl.min of the mask, as an int",
    "astype": "x.to(dtype)",
    "float": "tl.float32",
    "int": "tl.int32",
    "bool": "tl.int1",
    "len": "x.shape[0]",
    "round": "tl.floor(x + 0.5), or half to even, (x + 12582912.0) - 12582912.0",
    "transpose": "tl.trans",
    "item": "the value itself",
    "outer": "the product a[:, None] * b[None, :]",
    "empty": "tl.zeros(shape, dtype)",
    "stack": "tl.join(x, y)",
    "tile": "tl.broadcast_to",
    "repeat": "tl.broadcast_to",
    "pid": "tl.program_id",
    "flatten": "tl.ravel(x)",
    "unsqueeze": "x[:, None]",
    "squeeze": "tl.reshape",
    "copy": "the value itself",
    "enumerate": "for i in range(...)",
    "zip": "for i in range(...)",
}


def in_triton(name: str) -> str:
    """Return what a name of NumPy, torch or Python is called in Triton; ``""`` if nothing is similar.

    Otherwise return a name of Triton with a similar spelling.
    """
    if name in _FROM_NUMPY:
        return _FROM_NUMPY[name]
    if hasattr(tl, name) and not name.startswith("_"):
        return f"tl.{name}"
    public = [n for n in dir(tl) if not n.startswith("_")]
    close = difflib.get_close_matches(name, public, n=1, cutoff=0.7)
    return f"tl.{close[0]}" if close else ""


_ELSEWHERE = {"np": "numpy", "numpy": "numpy", "torch": "torch"}
_OWNERS = {"numpy": "NumPy's", "torch": "PyTorch's"}
_OPERATORS = {
    "add": "+", "sub": "-", "subtract": "-", "mul": "*", "multiply": "*", "div": "/", "divide": "/",
    "true_divide": "/",
}  # fmt: skip


def not_tritons(text: str, module: str) -> str:
    """Return that a kernel can't use a name of another module, such as ``torch.mul``, and what it can use."""
    name = text.rpartition(".")[2]
    owner = _OWNERS.get(module.partition(".")[0], "Python's")
    told = f"{text} is {owner}, so a kernel cannot use it"
    if name in _OPERATORS:
        return f"{told}: write {_OPERATORS[name]} instead"
    instead = "" if module.startswith("triton") else in_triton(name)
    return told + (f": here it is {instead}" if instead else "")


def _no_such_name(t: Trouble, found: re.Match) -> str:
    module, name = found[1], found[2]
    short = "tl" if module == "triton.language" else module
    near = in_triton(name)
    return f"there is no {short}.{name}" + (f": did you mean {near}?" if near else "")


def _undefined(t: Trouble, found: re.Match) -> str:
    name = found[1]
    names = [n for n in t.seen.scope if isinstance(n, str)]
    if f"{name}_ptr" in names and not _in_an_address(t, name):
        names.remove(f"{name}_ptr")  # not a slip: the value is missing
    if name.endswith("_ptr") and (outputs := _stored_instead(t, name)):
        return f"{name} is not defined: did you mean {' or '.join(outputs)}?"
    if (close := _closest(name, names)) and not _assigned(t, name):
        return f"{name} is not defined: did you mean {' or '.join(close)}?"
    if name == "inf":
        value = "-inf" if re.search(r"-\s*inf\b", t.line) else name
        return f'inf is not defined: write float("{value}")'
    if name in _OPERATORS:
        return f"{name} is not defined: write {_OPERATORS[name]} instead"
    if hasattr(builtins, name) and _annotates(t, name):
        return f"{name} is Python's, so a kernel cannot use it: leave the annotation out"
    if (
        number := re.search(r"(-?)\s*(?:\bmath\.)?\b(inf|nan)\b", t.line)
        if name in ("inf", "nan", "math")
        else None
    ):
        return f'{name} is not defined: write float("{number[1]}{number[2]}")'
    if hasattr(tl, name):
        return f"{name} is not defined: in a kernel it is tl.{name}"
    if name in _ELSEWHERE and (used := re.search(rf"(?<![\w.]){name}\.(\w+)", t.line)):
        return not_tritons(used[0], _ELSEWHERE[name])
    if name in ("np", "numpy", "torch", "math", "tl", "triton"):
        return f"{name} is not defined: it is not imported"
    if re.fullmatch(r"[A-Z][A-Z0-9_]*|stride_\w+|\w+_ptr", name):
        return f"{name} is not defined: it is not among the kernel's parameters"
    if re.search(rf"(?<![\w.]){re.escape(name)}\s*\(", t.line):
        return f"{name} is not defined: a kernel can call functions of tl, and your own with @triton.jit"
    return f"{name} is not defined{_why_undefined(t, name)}"


def _stored_instead(t: Trouble, name: str) -> list[str]:
    """Return the pointers that nothing is loaded from, if a store's addresses use an undefined one."""
    line = getattr(t.node, "lineno", 0)
    calls = [n for n in nodes_of(t.seen.source) if isinstance(n, ast.Call)] if t.seen.source else []
    loaded, stores = set[str](), False
    for call in (each for each in calls if each.args and isinstance(each.func, ast.Attribute)):
        names = _names(call.args[0])
        if ast.unparse(call.func).endswith("load"):
            loaded |= names
        stores |= ast.unparse(call.func).endswith("store") and call.lineno <= line and name in names
    pointers = [n for n, value in t.seen.scope.items() if isinstance(n, str) and n.endswith("_ptr")]
    return (
        [each for each in pointers if each not in loaded and _is_pointer(t.seen.scope[each])]
        if stores
        else []
    )


def _annotates(t: Trouble, name: str) -> bool:
    """Return whether a name is part of an annotation on the line."""
    made = [n for n in nodes_of(t.seen.source) if isinstance(n, ast.AnnAssign)] if t.seen.source else []
    at = getattr(t.node, "lineno", 0)
    return any(node.lineno == at and name in _names(node.annotation) for node in made)


def _closest(name: str, names: list[str]) -> list[str]:
    """Return the names that are most like another one: several if they are equally like it."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    like = {each: difflib.SequenceMatcher(None, each, name).ratio() for each in close}
    return sorted(each for each in close if like[each] == max(like.values()))


def _why_undefined(t: Trouble, name: str) -> str:
    places = _assigned(t, name)
    at = getattr(t.node, "lineno", 0)
    if any(line < at for line in places):
        if inside := _set_in_an_ended_loop(t, name, at):
            return inside
        return " here: a name set only in an if or a loop needs a value before it"
    if f"{name}_ptr" in t.seen.scope and _in_an_address(t, name):
        return f" here: the pointer is {name}_ptr"
    if places:
        return " here: its first value comes only in this line or a later one"
    return ": no line sets it, and it is not among the kernel's parameters"


def _set_in_an_ended_loop(t: Trouble, name: str, at: int) -> str:
    """Return what to do with a name that a loop sets which ends before a line; ``""`` if there is none."""
    loops = [n for n in nodes_of(t.seen.source) if isinstance(n, ast.For)] if t.seen.source else []
    for loop in (each for each in loops if (each.end_lineno or 0) < at):
        if not isinstance(made := _last_assignment(loop, name), ast.Assign):
            continue
        line, variable = _line(t.seen, made).line, ast.unparse(loop.target)
        if name not in _changing(loop):
            return f" after the loop, because line {line} sets it inside: move that line below the loop"
        around = any(each.lineno <= at <= (each.end_lineno or 0) for each in loops)
        told = f" after the loop: line {line} sets it inside, for each {variable}."
        if not around and _of_a_store(t, name, at):
            return f"{told} Here, use what doesn't change with {variable}"
        return f"{told} Set it {'in this loop' if around else 'here'}, too"
    return ""


def _of_a_store(t: Trouble, name: str, at: int) -> bool:
    """Return whether a name is in the addresses or the mask of a store on this line."""
    for call in nodes_of(t.seen.source):
        if isinstance(call, ast.Call) and call.lineno == at and _is_call_of(call, "tl.store"):
            masks = [each.value for each in call.keywords if each.arg == "mask"]
            if any(name in _names(each) for each in (*call.args[:1], *call.args[2:3], *masks)):
                return True
    return False


def _changing(loop: ast.For) -> set[str]:
    """Return the names that are computed from a loop's variable in each of its iterations."""
    found = _names(loop.target)
    inside = [n for n in ast.walk(loop) if isinstance(n, ast.Assign) and len(n.targets) == 1]
    for _ in inside:  # a name may be set above a line that it is computed from
        for each in inside:
            if isinstance(each.targets[0], ast.Name | ast.Tuple) and found & _names(each.value):
                found |= _names(each.targets[0])
    return found


def _in_an_address(t: Trouble, name: str) -> bool:
    """Return whether the line uses the name in the addresses of a load, a store or an atomic."""
    line = getattr(t.node, "lineno", 0)
    nodes = nodes_of(t.seen.source) if t.seen.source else ()
    calls = (node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute))
    return any(
        isinstance(part, ast.Name) and part.id == name and part.lineno == line
        for call in calls
        if re.fullmatch(r"load|store|atomic_\w+", call.func.attr)  # type: ignore[attr-defined]
        for address in call.args[:1]
        for part in ast.walk(address)
    )


def _assigned(t: Trouble, name: str) -> list[int]:
    """Return the lines of the function in which a name gets a value."""
    nodes = nodes_of(t.seen.source) if t.seen.source else ()
    return [
        n.lineno for n in nodes if isinstance(n, ast.Name) and n.id == name and isinstance(n.ctx, ast.Store)
    ]


def _constant_has_no(t: Trouble, found: re.Match) -> str:
    node, name = t.node, found[1]
    if not isinstance(node, ast.Attribute | ast.Call):
        return ""
    node = node.func if isinstance(node, ast.Call) else node
    text = t.text(node.value) if isinstance(node, ast.Attribute) else "this"
    if text == "tl":
        return _value_wanted(t, found)
    value = t.seen.scope.get(text)
    if name != "to":
        return f"{text} is a compile-time constant and has no .{name}"
    if isinstance(value, tl.constexpr) and type(value.value) is int and value.value == 1:
        why = f"{text} is 1 here, and a launch turns the integer 1 into a constant, which has no .to"
        return f"{why}: use tl.cast({text}, ...)"
    return f"{text} is a compile-time constant, which has no .to: use tl.cast({text}, ...)"


def _value_wanted(t: Trouble, found: re.Match) -> str:
    """Explain a constant that was given instead of a value: the first one."""
    constants = [part for part in t.arguments() if not isinstance(t.seen.value(part), tl.tensor)]
    if not constants:
        return ""
    floats = [part for part in constants if _is_float(t.seen.value(part))]
    constant = t.text((floats if floats and t.message.startswith("'float'") else constants)[0])
    return f"{t.callee()} needs a value of the kernel, but {constant} is a compile-time constant"


def _address_wanted(t: Trouble, found: re.Match) -> str:
    if "scalar" in found[0] and not re.search(r"\.(?:load|store|atomic_\w+)$", t.callee()):
        return ""
    constant = t.text(t.arguments()[0]) if t.arguments() else "this"
    return f"{t.callee()} needs addresses, such as x_ptr + offs, but {constant} is a constant"


def _missing(t: Trouble, found: re.Match) -> str:
    callee, given = t.callee() or found[1], t.arguments()
    if callee == "tl.arange" and len(given) == 1:
        return f"tl.arange needs a start, too: write tl.arange(0, {t.text(given[0])})"
    return f"{callee} is missing its argument{'s' if ' and ' in found[2] else ''} {found[2]}"


def _unexpected(t: Trouble, found: re.Match) -> str:
    callee = t.callee() or found[1] or "this call"
    function = getattr(tl, found[1] or callee.rpartition(".")[2], None)
    function = getattr(function, "fn", function)  # of a @triton.jit function
    names: list[str] = []
    if callable(function):
        names = [n for n in inspect.signature(function).parameters if not n.startswith("_")]
    close = difflib.get_close_matches(found[2], names, n=1, cutoff=0.7)
    instead = f": did you mean {close[0]}?" if close else f"; it has {', '.join(names)}" if names else ""
    return f"{callee} has no argument {found[2]}{instead}"


def _one_address(t: Trouble, found: re.Match) -> str:
    operands = t.operands()
    if not operands:
        return ""
    node, text = operands[0][0], t.text(operands[0][0])
    what = f"{text} is one address, but the {found[1].lower()} is a block"
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    pointer = next((n for n in names if _is_pointer(t.seen.value(n))), node)
    offsets = _as_long_as_the_block(t, node)
    name = "offs" if "offs" in offsets else offsets[0] if len(offsets) == 1 else ""
    if not offsets:
        return f"{what}: add a block of offsets, such as tl.arange(0, BLOCK)"
    added = {n.id for n in names if n is not pointer and isinstance(t.seen.value(n), tl.tensor)}
    loops = [n for n in nodes_of(t.seen.source) if isinstance(n, ast.For)] if t.seen.source else []
    if not name or added & {name for loop in loops for name in _names(loop.target)}:
        return f"{what}: one number needs no mask. A block needs a block of offsets in the address"
    start = t.text(pointer) if added & _made_from(name, t.seen.source) else text
    return f"{what}: use {start} + {name}"


def _as_long_as_the_block(t: Trouble, address: ast.expr) -> list[str]:
    """Return the names of offsets that have the shape of a call's mask or value, if one is a block.

    Of several, only those count that the mask itself compares.
    """
    offsets = {name: value for name, value in t.seen.scope.items() if _is_offsets(value)}
    for part in t.parts():
        block = t.block(part) if part is not address else []
        fitting = [name for name, value in offsets.items() if _sizes(value) == block]
        if block:
            compared = [name for name in fitting if name in _names(part)]
            return compared or fitting
    return list(offsets)


def _is_offsets(value: object) -> bool:
    return isinstance(value, tl.tensor) and value.type.is_block() and value.type.scalar.is_int() \
        and not value.type.scalar.is_bool()  # fmt: skip


def _made_from(name: str, source: str) -> set[str]:
    """Return the names that the lines which make a name use, and those that these are made from."""
    lines = re.findall(
        r"^\s*(\w+)(?:\s*:[^=\n]+)?\s*[-+*/&|]*=(?!=)\s*(.*?)\s*(?:#.*)?$", source, re.MULTILINE
    )
    found, waiting = set[str](), [name]
    while waiting:
        each = waiting.pop()
        used = {n for made, line in lines if made == each for n in re.findall(r"\b[A-Za-z_]\w*", line)}
        waiting += used - found
        found |= used
    return found


def _scaled_axes(t: Trouble, _: re.Match) -> str:
    """Explain operands of tl.dot_scaled of which one has more numbers along k."""
    given = t.arguments()
    if len(given) < 6:
        return ""
    (x, y), kinds = (given[0], given[3]), [getattr(given[n], "value", "") for n in (2, 5)]
    blocks = [t.seen.value(part) for part in (x, y)]
    if not all(isinstance(block, tl.tensor) and len(_sizes(block)) == 2 for block in blocks):
        return ""
    left, right = (_sizes(block) for block in blocks)
    packed = [2 if kind == "e2m1" else 1 for kind in kinds]  # numbers in a byte
    numbers = left[1] * packed[0]
    rows = f"{numbers // packed[1]} rows" + (", with two numbers per byte" if packed[1] == 2 else "")
    told = f"a row of {t.text(x)} has {numbers} numbers, so {t.text(y)} must have {rows}"
    turned = ": is it transposed?" if right[1] * packed[1] == numbers else ""
    return f"{told}, but is {t.shape(right)}{turned}"


def _scale_shape(t: Trouble, found: re.Match) -> str:
    """Explain a scale of tl.dot_scaled that doesn't fit its operand, by the names of the call."""
    at = 1 if found[1] == "lhs" else 4
    given = t.arguments()
    if len(given) <= at:
        return ""
    scale, operand = t.text(given[at]), t.text(given[at - 1])
    wanted, has = (_numbers(text) for text in (found[2], found[3]))
    turned = ": is it transposed?" if wanted == has[::-1] else ""
    return f"the scale of {operand} must be {t.shape(wanted)}, but {scale} is {t.shape(has)}{turned}"


def _dot_of(t: Trouble, _: re.Match) -> str:
    parts = [f"{t.text(n)} is {t.shape(_sizes(v))}" for n, v in t.operands()[:2]]
    axes = [len(_sizes(v)) for _, v in t.operands()[:2]]
    if sorted(axes) == [1, 2]:
        (one, other), vector = (t.text(n) for n, _ in t.operands()[:2]), axes.index(1)
        product = f"{one} * {other}[None, :], axis=1" if vector else f"{one}[:, None] * {other}, axis=0"
        t.advice = f"{(one, other)[vector]} is a vector: multiply and fold it with tl.sum({product})"
    elif len(set(axes)) > 1:
        t.axes_from(*(node for node, _ in t.operands()[:2]))
    left, right = (t.text(n) for n, _ in t.operands()[:2])
    told = (
        f"tl.dot needs the last axis of {left} to be as long as the first of {right}, but {', '.join(parts)}"
    )
    fitting = _dots_that_fit(t, *t.operands()[:2]) if axes == [2, 2] else []
    return told + (f": did you mean {' or '.join(fitting)}?" if fitting else "")


def _dots_that_fit(t: Trouble, *tiles: tuple[ast.expr, tl.tensor]) -> list[str]:
    """Return the products of two tiles, one of them transposed or the two swapped, whose axes fit.

    If the product is added to a tile, it must have its shape. If a tile is transposed already, and fits
    without it, only this product counts.
    """
    (one, a), (other, b) = ((node, _sizes(value)) for node, value in tiles)
    x, y = ast.unparse(one), ast.unparse(other)
    found = [
        (f"tl.dot({x}, {_transposed(other)})", a[1] == b[1], [a[0], b[0]], y.endswith(".T")),
        (f"tl.dot({_transposed(one)}, {y})", a[0] == b[0], [a[1], b[1]], x.endswith(".T")),
        (f"tl.dot({y}, {x})", b[1] == a[0], [b[0], a[1]], False),
    ]
    sums = [n for n in nodes_of(t.seen.source) if isinstance(n, ast.BinOp)] if t.seen.source else []
    call = ast.unparse(t.node.value if isinstance(t.node, ast.Assign) else t.node) if t.node else ""
    beside = [t.block(n.left) for n in sums if isinstance(n.op, ast.Add) and ast.unparse(n.right) == call]
    fitting = [
        (text, undone) for text, fits, shape, undone in found if fits and (not any(beside) or shape in beside)
    ]
    undone = [text for text, is_undone in fitting if is_undone]
    kept = [text for text, _ in fitting]
    return undone[:1] or (kept[:1] if kept[:1] == [found[0][0]] else kept)


def _transposed(node: ast.expr) -> str:
    text = ast.unparse(node)
    simple = isinstance(node, ast.Name | ast.Attribute | ast.Call)
    return text.removesuffix(".T") if text.endswith(".T") else f"{text if simple else f'({text})'}.T"


def _text_given(t: Trouble, _: re.Match) -> str:
    """Explain a string where a value belongs: in tl.dot, a precision without its name."""
    words = [n.value for n in t.arguments() if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    if t.callee().endswith("dot") and words:
        return f'the third argument of tl.dot is a tile to add to: write input_precision="{words[0]}"'
    return ""


def _power(t: Trouble, _: re.Match) -> str:
    """Explain ** between values: a root has a function, and a line above may have it already."""
    told = "** only works on constants"
    for node in ast.walk(t.node) if t.node else ():
        match node:
            case ast.BinOp(base, ast.Pow(), ast.Constant(0.5)):
                value = t.seen.value(base)
                whole = isinstance(value, tl.tensor) and value.type.scalar.is_int()
                cure = f"tl.sqrt({t.text(base)}{'.to(tl.float32)' if whole else ''})"
                for made in nodes_of(t.seen.source) if t.seen.source else ():
                    if isinstance(made, ast.Assign) and made.lineno < node.lineno:
                        if ast.unparse(made.value) == cure and isinstance(made.targets[0], ast.Name):
                            line = _line(t.seen, made).line
                            return f"{told}: use {made.targets[0].id}, which line {line} sets"
                return f"{told}: use {cure}"
    return f"{told}: for x ** 2 write x * x, for 2 ** n write 1 << n (integers) or tl.exp2(n) (floats)"


def _small_dot(t: Trouble, found: re.Match) -> str:
    sizes = [_sizes(value) for _, value in t.operands()[:2]]
    if len(sizes) < 2 or sizes[0][-1] >= int(found[1]):
        return ""
    if sizes[0][-1] == 1:
        left, right = (t.text(node) for node, _ in t.operands()[:2])
        t.advice = f"a product of a column and a row has nothing to sum: write {left} * {right}"
    return (
        f"tl.dot sums over an axis of {sizes[0][-1]} here, but this axis needs at least {found[1]} elements"
    )


def _dot_sum(t: Trouble, _: re.Match) -> str:
    """Explain a sum so far that isn't of the shape of tl.dot's product."""
    operands = t.operands()
    if len(operands) < 3 or len({len(_sizes(block)) for _, block in operands[:3]}) > 1:
        return ""
    left, right, total = (_sizes(block) for _, block in operands[:3])
    made, name = [*left[:-1], right[-1]], t.text(operands[2][0])
    turned = ": is it transposed?" if [*total] == made[::-1] else ""
    return f"the product is {t.shape(made)}, but {name} is {t.shape(total)}{turned}"


def _dot_dtypes(t: Trouble, found: re.Match) -> str:
    one, other = _dtype(found[1]), _dtype(found[2])
    told = f"tl.dot's operands must be of one dtype, but are {one} and {other}"
    operands = t.operands()
    if {one, other} == {"float32", "int8"} and len(operands) > 1:
        floats, codes = (t.text(n) for n, _ in (operands if one == "float32" else operands[1::-1])[:2])
        return f"{told}: {floats}.to(tl.int8) makes a dot of integers, {codes}.to(tl.float32) one of floats"
    return f"{told}: convert one with .to(...)"


def _floats_wanted(t: Trouble, found: re.Match) -> str:
    callee, wanted, given = t.callee() or "this", re.findall(r"'(\w+)'", found[1]), found[2]
    if given == "void":
        return NO_VALUE
    if not any(name.startswith("fp") for name in wanted):
        return f"{callee} needs {_both(wanted)}, but this is {_dtype(given)}"
    what = _both(wanted) if given in ("fp16", "bf16") else "floats"
    return f"{callee} needs {what}, but this is {_dtype(given)}: convert with .to(tl.float32) first"


def _both(dtypes: Sequence[str]) -> str:
    *most, last = map(_dtype, dtypes)
    return f"{', '.join(most)} and {last}" if most else last


def _no_version(t: Trouble, _: re.Match) -> str:
    """Explain a function of libdevice that has no version for these dtypes."""
    given = re.findall(r"triton\.language\.(\w+)", t.message)
    cure = "" if "float32" in given else "; most functions have one for float32: .to(tl.float32)"
    return f"{t.callee()} has no version for {_both(given)}{cure}" if t.callee() else ""


def _arange(t: Trouble, _: re.Match) -> str:
    for part in t.arguments():
        if _is_float(t.seen.value(part)):
            return f"tl.arange needs integers, but {t.text(part)} is a float"
    start = t.arguments()[0] if len(t.arguments()) == 2 else None
    if start and isinstance(t.seen.value(start), tl.tensor):
        return f"tl.arange needs sizes known at compile time: begin at 0, and add {t.text(start)} to it"
    return _known_early(t, "tl.arange needs sizes")


def _sizes_of_a_shape(t: Trouble, _: re.Match) -> str:
    return _known_early(t, "the sizes of a shape must be")


def _known_early(t: Trouble, needs: str) -> str:
    """Say that sizes must be known at compile time, and which line has made a variable of a constant."""
    needs += " known at compile time"
    for name in (node for part in t.parts() for node in ast.walk(part) if isinstance(node, ast.Name)):
        made = _made_of_constants(t, name.id) if isinstance(t.seen.value(name), tl.tensor) else None
        if made:
            line, value = made
            if name.id in _names(value):
                return f"{needs}, but {line} makes {name.id} a variable: remove that line, write {value} here"
            cure = f"write {value} here, or {name.id}: tl.constexpr = {value} above"
            return f"{needs}, but {line} makes a variable: {cure}"
    return f"{needs}, such as a tl.constexpr parameter"


def _made_of_constants(t: Trouble, name: str) -> tuple[str, str] | None:
    """Return the only assignment to a name, and its value, if that consists of constants of the compiler."""
    nodes = list(ast.walk(ast.parse(t.seen.source))) if t.seen.source else []
    made: list[tuple[str, ast.expr]] = []
    for node in nodes:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == name for target in node.targets):
            made.append((t.text(node), node.value))
        elif isinstance(node, ast.AugAssign) and ast.unparse(node.target) == name:
            made.append((t.text(node), ast.BinOp(ast.Name(name), node.op, node.value)))
    if len(made) != 1:
        return None
    line, value = made[0]
    kinds = ast.BinOp | ast.operator | ast.Constant | ast.Name | ast.expr_context
    names = _names(value)
    if not names or not names <= _constants(nodes) or not all(isinstance(n, kinds) for n in ast.walk(value)):
        return None
    return line, t.text(value)


def _names(node: ast.expr | str) -> set[str]:
    tree = ast.parse(node) if isinstance(node, str) else node
    return {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}


def _constants(nodes: Sequence[ast.AST]) -> set[str]:
    """Return the parameters that are annotated as constants of the compiler."""
    parameters = [node for node in nodes if isinstance(node, ast.arg) and node.annotation is not None]
    return {each.arg for each in parameters if "constexpr" in ast.unparse(each.annotation or each)}


def _no_length(t: Trouble, _: re.Match) -> str:
    """Say where a length comes from: a block has one, a pointer doesn't know that of its tensor."""
    of = t.arguments()[0] if t.arguments() else None
    if of is not None and _is_pointer(t.seen.value(of)):
        return f"{t.text(of)} is an address, which has no length: use the size of the tensor, such as N"
    return "a block's length is x.shape[0]"


def _no_such_axis(t: Trouble, _: re.Match) -> str:
    node = t.node.value if isinstance(t.node, ast.Subscript) else None
    if isinstance(node, ast.Attribute) and node.attr == "shape" and _is_pointer(t.seen.value(node.value)):
        return (
            f"{t.text(node.value)} is an address, which has no shape: use the size of the tensor, such as N"
        )
    if isinstance(node, ast.Attribute) and node.attr == "shape":
        value, text = t.seen.value(node.value), t.text(node.value)
        axes = len(value.shape) if isinstance(value, tl.tensor) else 0
        if axes:
            known = " and ".join(f"{text}.shape[{axis}]" for axis in range(axes))
            whole = t.text(t.node) if t.node else text
            return f"{whole} does not exist: {text} has only {known}"
        is_bool = isinstance(value, tl.tensor) and value.type.is_int1()
        if is_bool or isinstance(value, bool):
            return f"{text} is one True or False for all lanes: for a value per lane, compare a block"
        return f"{text} is one number, which has no shape"
    parts = t.seen.value(node) if node else None
    if node and (count := len(parts) if isinstance(parts, tuple | list | tl.tuple) else 0):
        known = {1: "one part, 0", 2: "2 parts, 0 and 1"}.get(count, f"{count} parts, 0 to {count - 1}")
        return f"the index is out of range: {t.text(node)} has {known}"
    return "the index is out of range: the index of the first element is 0"


def _is_float(value: object) -> bool:
    value = value.value if isinstance(value, tl.constexpr) else value
    return isinstance(value, float) or isinstance(value, tl.tensor) and value.type.scalar.is_floating()


def _other_count(t: Trouble, _: re.Match) -> str:
    if not t.operands():
        return ""
    block, value = t.operands()[0]
    parts = t.parts()
    sizes, wanted = _sizes(value), _whole_numbers(t, parts[parts.index(block) + 1 :])
    text = f"{t.text(block)} is {t.shape(sizes)} and has {math.prod(sizes)}"
    other = f", {_listed(wanted)} would have {math.prod(wanted)}" if wanted else ""
    return f"{t.callee()} keeps the number of elements, but {text}{other}"


def _whole_numbers(t: Trouble, nodes: Sequence[ast.expr]) -> list[int]:
    """Return the numbers of a shape, written as a tuple or as arguments; [] if one isn't known."""
    parts = [part for node in nodes for part in (node.elts if isinstance(node, ast.Tuple) else [node])]
    values = [part.value if isinstance(part, ast.Constant) else t.seen.value(part) for part in parts]
    numbers = [value.value if isinstance(value, tl.constexpr) else value for value in values]
    return [n for n in numbers if isinstance(n, int)] if all(type(n) is int for n in numbers) else []


def _one_number(t: Trouble, _: re.Match) -> str:
    if not t.callee().endswith("full") or not t.operands():
        return ""
    return f"tl.full fills a block with one number, but {t.text(t.operands()[0][0])} is already a block"


def _axis(t: Trouble, found: re.Match) -> str:
    count = int(found[2])
    there = "axis 0" if count == 1 else f"axes 0 to {count - 1}"
    t.axes_from(*(node for node, _ in t.operands()[:1]))
    return f"there is no axis {found[1]}: the block has {there}"


def _no_python_number(t: Trouble, found: re.Match) -> str:
    name = found[1]
    converted = {"float": "x.to(tl.float32)", "int": "x.to(tl.int32)"}.get(name, "")
    return f"{name}() only converts constants; convert a value of the kernel with {converted}"


def _python_function(t: Trouble, _: re.Match) -> str:
    callee = t.callee()
    instead = in_triton(callee.rpartition(".")[2])
    return f"{callee} only takes constants" + (f": for values of the kernel use {instead}" if instead else "")


def _no_value(t: Trouble, found: re.Match) -> str:
    if found[1] == "tuple" and t.callee() in ("print", "tl.device_print"):
        return "print cannot show a shape or another tuple: tl.static_print(x.shape) can"
    several = [part for part in t.parts() if isinstance(t.seen.value(part), tl.tuple)]
    if found[1] == "tuple" and several and isinstance(several[0], ast.Name):
        name = several[0].id
        return f"{name} is a tuple, but a block is needed here: use one of its parts, such as {name}[0]"
    return _not_this(found[1])


def _no_operand(t: Trouble, found: re.Match) -> str:
    """Explain an operand without a dtype, unless the line itself asks for such an attribute."""
    return "" if isinstance(t.node, ast.Attribute) else _not_this(found[1] or found[2])


def _not_this(kind: str) -> str:
    """Return that a kernel can't compute with a value. kind: the name of its class."""
    if kind == "range":
        return "a kernel cannot compute with a range: tl.arange(0, BLOCK) is a block of numbers"
    what = {"str": "a text", "NoneType": "None", "function": "a function", "JITFunction": "a function"}
    return f"a kernel computes with numbers and blocks, but this is {what.get(kind, a(kind))}"


def _global(t: Trouble, found: re.Match) -> str:
    name = found[1]
    value = t.seen.outside.get(name)
    why = _why_undefined(t, name)
    if any(line < getattr(t.node, "lineno", 0) for line in _assigned(t, name)):
        # the kernel's own name, whatever other cells call by it
        return f"{name} is not defined{why}"
    text = unseen(name, why)
    if isinstance(value, bool | int | float):
        return f"{text}: pass it as a parameter, or write {name} = tl.constexpr(...)"
    return text


def unseen(name: str, why: str = ": no line sets it, and it is not among the kernel's parameters") -> str:
    """Return the message about a name that the kernel has no value for, although there is such a global."""
    return f"{name} is not defined{why} (a kernel can't see the global {name})"


POWERS_OF_2 = "each size of a block must be a power of 2: mask the rest"
_POINTER_INDEXED = (
    "a pointer cannot be indexed: use tl.load(x_ptr + offsets) to read, "
    "and tl.store(z_ptr + offsets, z) to write"
)
MASK = "a mask must be a condition, such as mask=offs < N, not numbers"
LANE_BY_LANE = "a if c else b cannot choose lane by lane: use tl.where(c, a, b)"


def _a_condition(t: Trouble, _: re.Match) -> str:
    return LANE_BY_LANE if re.search(r"\bif\b.*\belse\b", t.line) else MASK


def _one_element_wanted(t: Trouble, _: re.Match) -> str:
    return "only a block of one element has .item()" if t.callee().endswith(".item") else LANE_BY_LANE


def _powers_of_2(t: Trouble, _: re.Match) -> str:
    for shape in (node for node in t.arguments() if isinstance(node, ast.Tuple | ast.List)):
        if any(isinstance(size, ast.Constant) and size.value == 0 for size in shape.elts):
            return f"a block of shape {t.text(shape)} has no elements, but a block needs at least one"
    written = any(re.search(r"(?<![\w)] )-1\b", t.text(node)) for node in t.arguments())
    return "every size of a shape must be written out: -1 has no meaning here" if written else POWERS_OF_2


def _histogram(t: Trouble, _: re.Match) -> str:
    operands = t.operands()
    if not operands:
        return ""
    text, value = t.text(operands[0][0]), operands[0][1]
    cure = f"tl.histogram({text}.to(tl.int32), ...)"
    return f"tl.histogram only counts int32 and uint32, but {text} is {_dtype(value)}: use {cure}"


def _promise(t: Trouble, _: re.Match) -> str:
    return f"{t.callee()} needs integers known at compile time, not {t.text(t.arguments()[-1])}"


def _hints_axes(t: Trouble, found: re.Match) -> str:
    if found[2] == "0":
        return f"tl.{found[1]} is for blocks, but this is one number"
    return f"tl.{found[1]} takes one number per axis of its block: {found[2]}, not {found[3]}"


def _none(t: Trouble, _: re.Match) -> str:
    if "newaxis" in t.line:
        return "in a kernel, None adds a new axis, as in x[None, :]"
    return "a kernel computes with numbers and blocks, but this is None"


def _without_axis(t: Trouble, _: re.Match) -> str:
    return f"{t.callee()} needs an axis: {t.callee()}(x, 0)" if t.callee() else ""


def _no_tuple(t: Trouble, _: re.Match) -> str:
    name = t.callee().rpartition(".")[2]
    if name in ("make_block_ptr", "make_tensor_descriptor"):
        given = next((part for part in t.arguments()[1:] if not isinstance(part, ast.Tuple | ast.List)), None)
        return f"{t.callee()} needs tuples: ({t.text(given)},)" if given else ""
    if name not in ("zeros", "full", "broadcast_to", "reshape"):
        return ""
    return f"a shape must be a tuple: ({t.text(t.arguments()[0])},)"


_WORDS = {
    "Memory semantic": "sem= is acquire, release, acq_rel or relaxed, scope= is gpu, cta or sys",
    "Cache modifier": "loads take .ca, .cg and .cv, stores .wb, .cg, .cs and .wt",
    "Eviction policy": "it is evict_first or evict_last",
}


def _no_such_word(t: Trouble, found: re.Match) -> str:
    word = f".{found[2]}" if found[1] == "cache modifier" else found[2]
    return f"{t.callee() or 'this call'} does not know {word!r}: {_WORDS[found[1].capitalize()]}"


def _integers_wanted(t: Trouble, found: re.Match) -> str:
    """Explain a float among the arguments of a Triton function that needs integers."""
    floats = [part for part in t.arguments() if _is_float(t.seen.value(part))]
    if not t.callee() or not floats:
        return ""
    return f"{t.callee()} needs integers, but {t.text(floats[0])} is a float"


def _subscript(t: Trouble, _: re.Match) -> str:
    if re.search(r"_ptr\s*\[", t.line):
        return _POINTER_INDEXED
    if isinstance(t.node, ast.Subscript) and any(
        isinstance(each, ast.Slice) and (each.lower or each.upper or each.step)
        for each in ast.walk(t.node.slice)
    ):
        return (
            "you cannot pick elements of a block: load only those that you need, "
            "with a tl.load and offsets of their own"
        )
    return (
        "you cannot pick elements of a block: an index can only contain `:` and None, which adds an axis, "
        "as in x[:, None]"
    )


def _set(t: Trouble, _: re.Match) -> str:
    if re.match(r"\w+_ptr\s*\[", t.line):
        return _POINTER_INDEXED
    return (
        "you cannot assign to elements of a block: "
        "make a new block with tl.where, or write to memory with tl.store"
    )


def _too_many(t: Trouble, found: re.Match) -> str:
    return f"a block of {int(found[1]):,} elements is too large: the limit is 1,048,576"


def _chain(t: Trouble, _: re.Match) -> str:
    """Explain a < b < c, also if it comes from a < b & c < d, because & binds more tightly than <."""
    node = next((n for n in ast.walk(t.node) if isinstance(n, ast.Compare)), None) if t.node else None
    if node is None or len(node.ops) < 2:
        return "a kernel cannot chain comparisons: instead of a < b < c, write (a < b) & (b < c)"
    sides, signs, tight = [node.left], [], []
    for each in node.comparators[:-1]:
        tight.append(isinstance(each, ast.BinOp) and isinstance(each.op, ast.BitAnd | ast.BitOr))
        if isinstance(each, ast.BinOp) and tight[-1]:
            sides += [each.left, each.right]
            signs.append("&" if isinstance(each.op, ast.BitAnd) else "|")
        else:
            sides += [each, each]
            signs.append("&")
    sides.append(node.comparators[-1])
    pairs = zip(sides[::2], node.ops, sides[1::2], strict=True)
    each_one = [f"({ast.unparse(ast.Compare(left, [op], [right]))})" for left, op, right in pairs]
    cure = " ".join(part for both in zip(each_one, [*signs, ""], strict=True) for part in both if part)
    if all(tight):
        return f"& and | bind more tightly than comparisons, so put each in parentheses: {cure}"
    return f"a kernel cannot chain comparisons: write {cure}"


Say = str | Callable[[Trouble, re.Match], str]
# The first row counts whose pattern is in the message and whose text is not empty.
ROWS: tuple[tuple[str, Say], ...] = (
    (r"^MemoryError", TOO_LARGE),
    (r"^Reduction dimension should pack the same number of elements", _scaled_axes),
    (r"(lhs|rhs)_scale must be a tensor of shape \[\.\.\., (\d+, \d+)\]\. Got \[(.*)\]", _scale_shape),
    (r"'MatMult' (?:object|is not)", _matmul),
    (r"'(?:Not)?In' (?:object|is not)", "a kernel has no `in`: compare with ==, and join comparisons with |"),
    (r"tensor_descriptor|attribute 'scalar'$|^object of type '\w+' has no len", _descriptor),
    (r"object has no attribute 'func'", _not_a_range),
    (r"^Only `range` and `static_range` iterators", "a for loop cannot run over a block; use range(...)"),
    (
        r"object has no attribute '(?:arg_names|signature)'",
        "the combine function must be a @triton.jit function: def add(a, b): return a + b",
    ),
    (r"^'constexpr_type' object has no attribute '(?:is_ptr|is_const|scalar)'", _address_wanted),
    (r"^'constexpr_type' object has no attribute", _value_wanted),
    (r"^StopIteration", NO_FUNCTIONS),
    (r"nested function definition", NO_FUNCTIONS),
    (r"unsupported AST node type: (\w+)", _no_such_statement),
    (
        r"body should only have one block|Cannot have `return` statements inside",
        "a kernel cannot return from within a loop",
    ),
    (r"'tuple_type' object|^'tuple' object|^'(?:int|float)' object has no attribute 'values'", _TUPLE),
    (
        r"^'tensor' object has no attribute 'values'|^cannot unpack non-iterable",
        "a block cannot be unpacked: its elements have no names",
    ),
    (r"^'NoneType' object has no attribute '(?:type|dtype|shape)'", _none),
    (
        r"^only tuple comprehensions",
        "a kernel has no lists: an operation on a block works on all its lanes",
    ),
    (r"^'<=' not supported between .*'tuple'", "fold along one axis at a time: first one, then the other"),
    (
        r"^'tensor' object cannot be interpreted",
        "Python's range only takes constants here: tl.arange(0, BLOCK) is a block of numbers",
    ),
    (r"^Assertion condition could not", "tl.static_assert is for constants: use tl.device_assert for values"),
    (
        r"^`other` cannot be provided without",
        "other= is for the lanes that a mask switches off, but mask= is missing",
    ),
    (
        r"^`padding_option` or `boundary_check`",
        "boundary_check, the fourth argument, and padding_option are for block pointers: name the argument, "
        "such as eviction_policy=",
    ),
    (r"^(?:program_id|num_programs) axis must be", _axis_of_the_grid),
    (r"^AssertionError|^\w+\(\): incompatible function arguments", _axis_wanted),
    (r"^AssertionError|^starred assignment|^expected last dimension to be 2", _one_target),
    (r"^too many indices for tensor of rank 0", _none_given),
    (r"^Not implemented", _none_given),
    (r"^Cannot access global variable (\S+)", _global),
    (r"^__setitem__", _set),
    (r"`_semantic` argument", _outside_of_the_compiler),
    (r"^unsupported tensor index", _subscript),
    (r"^cannot cast pointer<", _addresses_as_values),
    (r"^cannot cast <triton[\w.]*\.(\w+) object", _no_value),
    (r"^Unsupported ptr type|^Pointer argument of \w+ instruction", _no_addresses),
    (r"^(\w+) argument cannot be block type if pointer", _one_address),
    (
        r"make_shape_compatible|^Cannot broadcast|^Expected pointer argument to have shape|broadcast",
        _shapes_differ,
    ),
    (r"^Loop-carried variable (\w+) has initial type (.*) but is re-assigned to (.*) in loop", _carried),
    (r"^Loop carried variable (\w+) changed type|^cannot reassign constexpr (\w+)", _constant_in_loop),
    (r"^initial value for `(\w+)` is of type (.*), but the \w+ block redefines it as (.*)$", _if_changes),
    (r"^Mismatched type for (\w+) between then block \((.*)\) and else block \((.*)\)$", _branches_differ),
    (
        r"used as tl.static_range \w+ value",
        "tl.static_range unrolls the loop, so its ends must be constants: use range",
    ),
    (r"^arange's arguments must be of type tl.constexpr", _arange),
    (
        r"^arange's end argument must be greater",
        "tl.arange counts up: its end must be greater than its start",
    ),
    (
        r"^Shape element \d must have type",
        _sizes_of_a_shape,
    ),
    (r"^(?:arange's range|Shape element \d) must be a power of 2", _powers_of_2),
    (r"^numel \((\d+)\) exceeds", _too_many),
    (
        r"^'constexpr' object has no attribute 'handle'",
        "the condition of a while must be computed by the kernel, such as i < N",
    ),
    (r"^simultaneous multiple comparison", _chain),
    (
        r"attribute '__r?pow__'|^unsupported operand type\(s\) for \*\*",
        _power,
    ),
    (r"^Boolean value of Tensor", "an if cannot decide lane by lane: use a mask or tl.where"),
    (r"^Ternary expression.*<\[", LANE_BY_LANE),
    (r"^can only unsplat", _one_element_wanted),
    (r"^only accepts size-1 tensor", _one_number),
    (r"^reshape\(\) cannot change total number", _other_count),
    (r"^index must be an integer tensor", "an index must be an integer: convert with .to(tl.int32) first"),
    (r"^(Memory semantic|Cache modifier|Eviction policy) (\S+) not supported", _no_such_word),
    (r"^Unsupported (cache modifier|eviction policy) '(\w+)'", _no_such_word),
    (r"(cache modifier) '(\w+)' is not supported for", _no_such_word),
    (
        r"^'math\.(\w+)' op operand .* must be floating-point-like",
        "tl.{0} needs floats, but this is an integer: 3.0 is a float, 3 is not",
    ),
    (r"^\(triton\.language\.\w+", _no_version),
    (r"^'scf.condition' op", "the condition of a while must be one value, not a block"),
    (
        r"is not string$",
        "print(x) works in Python only: take it out, because `watch` shows the values of every line "
        '(in a kernel, tl.device_print("x", x) prints them for every program)',
    ),
    (
        r"^Cannot evaluate f-string",
        'a string cannot contain values of the kernel: tl.device_print("x", x) prints them',
    ),
    (r"must be 1-bit signless|^Mask must have boolean", _a_condition),
    (r"^module '([\w.]+)' has no attribute '(\w+)'", _no_such_name),
    (r"^(\w+) is not defined", _undefined),
    (r"^'(?:int|float|constexpr)' object has no attribute '(\w+)'", _constant_has_no),
    (r"^(\w+)\(\) missing \d+ required positional arguments?: (.*)$", _missing),
    (r"^missing (a) required argument: (.*)$", _missing),
    (r"^(?:(\w+)\(\) )?got an unexpected keyword argument '(\w+)'", _unexpected),
    (
        r"^(\w+)\(\) got multiple values|^(?:\w+\(\) takes .* positional|too many positional)",
        "this call has more arguments than the function takes",
    ),
    (
        r"^`boundary_check` argument is not supported",
        "this call has more arguments than it takes: boundary_check= is for block pointers",
    ),
    (r"^unexpected type fp", _integers_wanted),
    (
        r"^invalid operands of type|^unexpected type|^wrong type argument to unary|^cannot add pointers",
        _operands,
    ),
    (r"equal ranks >= 2", _dot_of),
    (r"equal reduction dimensions", _dot_of),
    (r"^Input shapes should have M >= \d+, N >= \d+ and K >= (\d+)", _small_dot),
    (r"^accumulator shape is incompatible", _dot_sum),
    (r"^Unsupported lhs dtype (\w+)", "tl.dot multiplies floats and int8, not {0}"),
    (
        r"^Unexpected dtype for (\w+)\. Got (\w+)",
        'this block has the dtype {1}, and its format is said to be "{0}": '
        'fp8e4nv is "e4m3", fp8e5 is "e5m2", and uint8 can be "e2m1"',
    ),
    (r"^Both operands must be same dtype. Got (\w+) and (\w+)", _dot_dtypes),
    (r"^Expected dtype (.*) but got (\w+)", _floats_wanted),
    (
        r"^both operands of fdiv|^fdiv requires",
        "tl.fdiv only divides floats: / is for all numbers, // for integers",
    ),
    (r"^histogram (?:of|only supports (?:32-bit )?integer)", _histogram),
    (r"^histogram with (-?\d+) bins", "tl.histogram needs at least 1 bin, but num_bins is {0}"),
    (r"^inline assembly for (-?\d+) elements", "pack= must be at least 1, but is {0}"),
    (r"^histogram only supports 1D", "tl.histogram needs a block of one axis: use tl.ravel(x)"),
    (r"^values element \d+ must have type", _promise),
    (
        r"^(\w+) promises (-?\d+)$",
        "tl.{0} takes numbers from 1 to 2147483647, not {1}: promise what is true, or leave the hint out",
    ),
    (r"^(\w+) of (\d+) axes and (\d+) numbers$", _hints_axes),
    (
        r"^max_constancy of (\d+) along (\d+)$",
        "tl.max_constancy promises groups of equal lanes, but groups of {0} do not fill a block of {1}",
    ),
    (r"^invalid axis (-?\d+). Expected -(\d+)", _axis),
    (
        r"^permute dims|^tl.trans invoked with a 0- or 1-",
        "only a block of two or more axes can be transposed: x[:, None] adds one",
    ),
    (r"^(float|int)\(\) argument must be", _no_python_number),
    (r"^must be real number, not tensor", _python_function),
    (r"^object of type 'tensor' has no len", _no_length),
    (r"attribute '(?:scalar|to_ir|is_int)'$", "a kernel needs Triton's dtypes, such as tl.float32"),
    (r"^'dtype' object is not callable", "a dtype cannot be called: x.to(tl.float32) converts"),
    (r"^'str' object has no attribute 'shape'", _text_given),
    (
        r"^'str' object has no attribute '(?:type|dtype)'",
        "a kernel computes with numbers and blocks, but this is a string",
    ),
    (
        r"^'dtype' object has no attribute 'numel'",
        "tl.topk returns 2 or more elements: for one use tl.max",
    ),
    (r"^'<=' not supported between .*'int' and 'NoneType'", _without_axis),
    (r"^'<=' not supported between .*'int' and 'str'", "an axis must be an integer: 0 is the first"),
    (
        r"^unsupported operand type.*'static_range'",
        "tl.static_range is for loops; tl.arange(0, BLOCK) is a block of numbers",
    ),
    (r"^'int' object is not iterable", _no_tuple),
    (
        r"^(?:list|tuple) index out of range",
        _no_such_axis,
    ),
    (r"^'tensor' object has no attribute '(\w+)'", "a kernel's values have no {0!r}"),
    (
        r"^For loop bounds and step must all be ints|^For .* must be a scalar",
        "the ends and the step of a loop must be single integers",
    ),
    (
        r"^Cannot bitcast data-type of size \d+ to data-type of size 1\b",
        "not needs a condition: compare, as in N == 0",
    ),
    (
        r"^Cannot bitcast data-type of size (\d+) to data-type of size (\d+)",
        "bitcast=True keeps all bits, but the value has {0} and the new dtype {1}",
    ),
    (r"^cannot convert .* of type <class '(?:[\w.]+\.)?(\w+)'> to tensor", _no_value),
    (
        r"^(?:(type) object )?'(?:[\w.]+\.)?(\w+)' (?:object )?has no attribute '(?:d?type|handle)'$",
        _no_operand,
    ),
    (
        r"^Nonrepresentable integer",
        "this integer has more than 64 bits. For a power of two as a float, write 2.0 ** n",
    ),
    (
        r"^Scalar (-?\d+) is out of range for type (u?int(?:8|16))$",
        "{0} is out of range for {1}, the dtype of the other operand",
    ),
    (r"^\w+\(\): incompatible function arguments", _broken),
)


def of_compilation(
    error: CompilationError, seen: Seen, functions: Sequence[JITFunction], recursive: bool
) -> Refusal:
    """Return the innermost message, with the innermost line of the learner's own source."""
    message = ""
    asserted = False
    current: BaseException | None = error
    while current is not None:
        if isinstance(current, CompilationError):
            message = current.error_message or message
            asserted = asserted or isinstance(current, CompileTimeAssertionFailure)
        else:
            message = str(current) or type(current).__name__
        current = current.__cause__
    site = _site(seen, seen.node, functions)
    if asserted:
        callee = Trouble("", "", seen.node, "", seen).callee()
        own = not callee or callee.endswith("static_assert")
        words = "tl.static_assert fails" if own else f"{callee} rejects its arguments"
        return Refusal(one_line(f"{words}{': ' * bool(message)}{message}"), site)
    wrapped = re.fullmatch(r"(\w+)\(((['\"]).*\3)?,?\)", message or str(error), re.DOTALL)
    kind, plain = (wrapped[1], _unquoted(wrapped[2])) if wrapped else ("", message or str(error))
    if seen.returned is not None and "ret():" in plain:  # the value of tl.store, which is none
        return of_return(seen) or Refusal(one_line(plain), site)
    if kind == "RecursionError" or recursive and kind == "KeyError":
        return Refusal(RECURSION if recursive else TOO_DEEP, site)
    trouble = Trouble(plain or kind, kind, seen.node, site.source if site else "", seen)
    words = explained(trouble)
    return Refusal(one_line(words), _site(seen, trouble.node, functions), one_line(trouble.advice))


def _unquoted(text: str | None) -> str:
    """Return the text that Python writes so in the `repr` of an exception; ``""`` for none."""
    if not text:
        return ""
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):  # a message of Triton's that only looks like one
        return text[1:-1]


def explained(trouble: Trouble) -> str:
    """Return the text of the first row of the table that fits; Triton's own message if none does."""
    for pattern, say in ROWS:
        if found := re.search(pattern, trouble.message, re.DOTALL):
            words = say.format(*found.groups()) if isinstance(say, str) else say(trouble, found)
            if words:
                return words
    return re.sub(r" at 0x[0-9a-f]+", "", trouble.message)


def of_verifier(message: str, line: str) -> str:
    """Return the message of MLIR's verifier about a line, in the learner's words."""
    return one_line(explained(Trouble(message, "", None, line, Seen())))


def of_return(seen: Seen) -> Refusal | None:
    """Return the refusal of a kernel that returns a value; None if it doesn't."""
    if seen.returned is None:
        return None
    return Refusal("a kernel can't return a value: write results with tl.store", _line(seen, seen.returned))


def of_warning(warning: warnings.WarningMessage) -> str:
    """Return what a learner should know of a warning of the front end; ``""`` for nothing."""
    if "Logical operators" not in str(warning.message):
        return ""
    line = linecache.getline(warning.filename, warning.lineno).strip()
    return f"use & and | between blocks: `and` and `or` are deprecated there (line {warning.lineno}: {line})"


def _site(seen: Seen, node: ast.AST | None, functions: Sequence[JITFunction]) -> Site | None:
    if node is None or not hasattr(node, "lineno"):
        return site_in(functions[0], 1)
    return _line(seen, node)


def _line(seen: Seen, node: Any) -> Site:
    """Return the line that the node begins on, with the rest of an expression that spans several."""
    line, more = seen.first_line + node.lineno, 0
    if isinstance(node, ast.expr | ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Expr):
        more = (node.end_lineno or node.lineno) - node.lineno
    texts = (linecache.getline(seen.file, each).strip() for each in range(line, line + more + 1))
    text = re.sub(r"(?<=[(\[]) | (?=[)\]])", "", " ".join(texts)) if more else next(texts)
    return Site(line, text if not more or len(text) <= LINE else text[: LINE - 3] + "...")


def one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
