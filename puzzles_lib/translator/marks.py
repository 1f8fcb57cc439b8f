"""Put marks into the IR of a kernel that is to be run.

Marks carry what a run has to know and no operation says: where a hint to the compiler is, and which value it
is about. In a recorded run, they also say where a statement begins and ends, and which names then have which
values. A mark is a print whose prefix begins with `MARK`, followed by a word and JSON. Its operands are the
values that it is about. Only in a child, because Triton's methods are replaced for good.
"""

import ast
import json
from collections.abc import Callable, Mapping
from typing import Any

import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.language.semantic import TritonSemantic

from puzzles_lib.translator.observer import Seen
from puzzles_lib.translator.statements import Place, Table, place_of, span_of, table_of

MARK = "\x01"
LONGEST = 200  # characters of a constant that is shown
_PROMISES = ("multiple_of", "max_contiguous", "max_constancy")


def put(seen: Seen, files: Mapping[str, int], *, recorded: bool) -> None:
    """Put marks into whatever is translated from now on. files: those with the learner's functions."""
    for name in _PROMISES:
        setattr(TritonSemantic, name, _promising(name, getattr(TritonSemantic, name)))
    if recorded:
        _Recording(seen, files).begin()


def _promising(name: str, method: Callable) -> Callable:
    def promised(self: TritonSemantic, x: object, values: list[int]) -> object:
        result = method(self, x, values)
        if isinstance(x, tl.tensor):
            sizes = [int(getattr(each, "value", each)) for each in values]
            _mark(self.builder, "promise", {"hint": name, "sizes": sizes}, [x.handle])
        return result

    return promised


def _mark(builder: Any, word: str, told: object, handles: list[object]) -> None:
    """Leave a mark at the place that is being translated."""
    text = f"{MARK}{word} {json.dumps(told, separators=(',', ':'))}"
    builder.create_print(text, False, handles, [True] * len(handles))


class _Recording:
    """Leaves the marks of a recorded run while the front end visits one node after another."""

    def __init__(self, seen: Seen, files: Mapping[str, int]):
        self.seen, self.files = seen, files
        self.inside: Place | None = None  # of the statement that is visited
        self.turns: dict[int, list[object]] = {}  # the arguments of a loop's range, as far as they are known

    def begin(self) -> None:
        visit = CodeGenerator.visit

        def marked(generator: CodeGenerator, node: ast.AST) -> object:
            if generator.file_name not in self.files or isinstance(node, ast.FunctionDef):
                return visit(generator, node)
            table = table_of(generator.jit_fn.src)
            if isinstance(node, ast.stmt):
                return self._statement(generator, table, node, visit)
            value = visit(generator, node)
            if isinstance(node, ast.expr):
                self._expression(generator, table, node, value)
            return value

        CodeGenerator.visit = marked

    # ---- statements

    def _statement(self, generator: CodeGenerator, table: Table, node: ast.stmt, visit: Callable) -> object:
        place = place_of(node)
        if place == table.first:
            function = self.seen.function(generator.jit_fn, generator.begin_line)
            self._tell(generator, "call", {"f": function}, list(generator.lscope))
        if place in table.begun and place != self.inside:
            loop = table.begun[place]
            turns = self._count(loop)
            self._tell(generator, "turn", {"s": loop, "of": turns}, table.statements[loop].writes)
        number = table.numbers.get(place)
        if number is None or place == self.inside:  # Triton visits x += y once more, as x = x + y
            return visit(generator, node)
        around, self.inside = self.inside, place
        try:
            return self._numbered(generator, table, node, number, visit)
        finally:
            self.inside = around

    def _numbered(
        self, generator: CodeGenerator, table: Table, node: ast.stmt, number: int, visit: Callable
    ) -> object:
        if isinstance(node, ast.For | ast.While):
            self.turns[number] = []
            self._tell(generator, "begins", {"s": number})
        else:
            self._tell(generator, "enter", {"s": number})
        if isinstance(node, ast.Return) and node.value is None:
            self._tell(generator, "gave", {"s": number})
        value = visit(generator, node)
        if isinstance(node, ast.For):
            self._tell(generator, "ended", {"s": number}, table.left.get(number, ()))
        elif not isinstance(node, ast.While | ast.If | ast.Return):
            self._tell(generator, "done", {"s": number}, table.statements[number].writes)
        return value

    def _count(self, loop: int) -> int | None:
        """How many iterations a loop over constants has; None if only the run can tell."""
        known = self.turns.get(loop, [])
        numbers = [getattr(each, "value", each) for each in known]
        plain = [each for each in numbers if isinstance(each, int)]
        if not plain or len(plain) < len(numbers):
            return None
        return len(range(*plain))

    # ---- expressions

    def _expression(self, generator: CodeGenerator, table: Table, node: ast.expr, value: object) -> None:
        span = span_of(node)
        if span in table.iterated:
            self.turns.setdefault(table.iterated[span], []).append(value)
        if isinstance(node, ast.Compare) and span in table.terms and isinstance(value, tl.tensor):
            self._values(generator, "term", {"text": table.terms[span]}, [value])
        if isinstance(node, ast.BinOp) and span in table.both and isinstance(value, tl.tensor):
            sides = [self.seen.value(side) for side in (node.left, node.right)]
            if all(isinstance(side, tl.tensor) for side in sides) and value.dtype.is_int1():
                self._values(generator, "both", {"texts": table.both[span]}, [*sides, value])
        if span in table.masks and isinstance(value, tl.tensor):
            self._values(generator, "mask", {"text": table.masks[span]}, [value])
        if span in table.tests:
            told: dict[str, object] = {"s": table.tests[span]}
            if isinstance(value, tl.tensor):
                self._values(generator, "test", told, [value])
            else:
                self._tell(generator, "test", told | {"is": bool(getattr(value, "value", value))})
        if span in table.returned:
            handles: list[object] = []
            held = _held(value, handles)
            _mark(generator.builder, "gave", {"s": table.returned[span], "v": held}, handles)

    # ---- marks

    def _tell(self, generator: CodeGenerator, word: str, told: dict[str, object], names: Any = ()) -> None:
        """A mark with what names hold."""
        handles: list[object] = []
        found = []
        for name in names:
            if name in generator.lscope and not name.startswith("__"):
                held = _held(generator.lscope[name], handles, name)
                if held is not None:
                    found.append([name, held])
        _mark(generator.builder, word, told | ({"n": found} if found else {}), handles)

    def _values(
        self, generator: CodeGenerator, word: str, told: dict[str, object], values: list[Any]
    ) -> None:
        _mark(generator.builder, word, told, [value.handle for value in values])


def _held(value: object, handles: list[object], name: str = "") -> object:
    """Return a value as a mark has it: an operand's number and its dtype, or a text; None for no value."""
    if isinstance(value, tl.tensor):
        if value.handle is None or value.dtype == tl.void:
            return None
        handles.append(value.handle)
        return {"i": len(handles) - 1, "t": str(value.dtype), "b": value.type.is_block()}
    if isinstance(value, tl.constexpr):
        value = value.value
    if isinstance(value, tuple | list | tl.tuple):
        return [held for each in value if (held := _held(each, handles, name)) is not None]
    if isinstance(value, tl.core.tensor_descriptor_base):
        shape = []
        for size in getattr(value, "shape", ()):
            handles.append(size.handle)
            shape.append(len(handles) - 1)
        return {"d": name.removesuffix("_desc"), "shape": shape, "block": [int(n) for n in value.block_shape]}
    if value is None or isinstance(value, bool | int | float | str | tl.dtype):
        text = repr(value) if not isinstance(value, tl.dtype) else str(value)
        return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
    return None
