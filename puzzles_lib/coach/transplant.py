"""Put a mistake into a learner's kernel, given a correct kernel and a wrong version of it.

The learner's kernel computes the same as the correct one, but has other names.

    right: words = tl.sum(codes << BITS * i, axis=1)
    wrong: words = tl.sum(codes >> BITS * i, axis=1)
    own:   packed = tl.sum(c << (lane * BITS), 1)      # a learner's

Expressions are compared by what they mean. A local name that is assigned once stands for its expression. The
order of a sum's terms or a minimum's arguments doesn't matter, nor whether `[:, None]` is before or after a
comparison. Four ways are tried, and the learner's other text stays as it is:

1. The smallest changed expression that both kernels contain equally often is replaced.
2. If the correct kernel has an expression once, for a name, all of the learner's copies of it are replaced.
3. The names may stand for anything: the only expression of the same form is replaced.
4. The learner's load or store with the same pointer gets the new mask or `other`.
"""

import ast
import difflib
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

_COMMUTES = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)
_MIRRORED = {ast.Gt: ast.Lt, ast.GtE: ast.LtE}
_LEAVES = (ast.Name, ast.Constant, ast.Attribute)
_BLOCKS = (ast.For, ast.While, ast.If)
_EITHER_ORDER = {"tl.minimum": "minimum", "min": "minimum", "tl.maximum": "maximum", "max": "maximum"}
_LOOPS = {"range", "tl.range", "tl.static_range"}
_SCALARS = {"tl.program_id", "tl.num_programs"}
_OF_SCALARS = {"tl.load", "tl.cdiv", "tl.minimum", "tl.maximum", "min", "max", "tl.where"}
_PLACES = {"tl.load": ("", "mask", "other"), "tl.store": ("", "", "mask")}
"""The names of what a call takes in its first places; "" for what has no name."""
_ALONG_AN_AXIS = {"tl.sum", "tl.max", "tl.min", "tl.argmax", "tl.argmin", "tl.cumsum"}


class NoPlace(Exception):
    """The change has no clear place in the learner's kernel."""


@dataclass(frozen=True)
class _Change:
    """Statements of the correct kernel, what they are in the wrong one, and the statement before them."""

    before: ast.stmt | None
    old: Sequence[ast.stmt]
    new: Sequence[ast.stmt]


def transplanted(right: str, wrong: str, own: str) -> str:
    """Return the learner's source with the change from ``right`` to ``wrong``.

    Raises `NoPlace` if it has no place there, or several.
    """
    try:
        rights, wrongs = _functions(right), _functions(wrong)
        changed = [name for name in rights if ast.dump(rights[name]) != ast.dump(wrongs[name])]
        for name in changed or [_KERNEL]:
            own = _Transplant(rights[name], wrongs[name], _functions(own)[name], own).made()
        return own
    except (SyntaxError, RecursionError, KeyError):
        raise NoPlace from None


_KERNEL = ""  # the last function; the others go by their names


def _functions(source: str) -> dict[str, ast.FunctionDef]:
    """Return the functions of a source: those that the kernel calls by name, and the kernel."""
    found = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)]
    return {node.name if node is not found[-1] else _KERNEL: node for node in found}


class _Meaning:
    """Numbers for the expressions of a function: the same for those that mean the same.

    numbers: shared by the functions that are compared.
    """

    def __init__(self, function: ast.FunctionDef, numbers: dict[object, int]):
        self.function, self._numbers = function, numbers
        self.parameters = {each.arg for each in function.args.args + function.args.kwonlyargs}
        self.defined: dict[str, list[tuple[str, ast.expr]]] = {}
        for node in _in_order(function.body):
            for name, how, value in _definitions(node):
                self.defined.setdefault(name, []).append((how, value))
        self._known: dict[str, int] = {}
        self._scalars: dict[str, bool] = {}
        self._subscripts: dict[tuple[int, int], int] = {}
        taken: Counter[int] = Counter()
        for name in self.defined:
            if name not in self.parameters and not self.stands_for(name):
                how, value = self.defined[name][0]
                base = self._number("first", how, self.of(value))
                self._known[name] = self._number("variable", base, taken[base])
                taken[base] += 1

    def stands_for(self, name: str) -> ast.expr | None:
        """Return the expression of a local name that is assigned once; else None."""
        found = self.defined.get(name, [])
        plain = len(found) == 1 and found[0][0] == "=" and name not in self.parameters
        return found[0][1] if plain else None

    def _number(self, *shape: object) -> int:
        return self._numbers.setdefault(shape, len(self._numbers))

    def name(self, name: str) -> int:
        """Return the number of a name."""
        if name not in self._known:
            self._known[name] = self._number("name", name)  # what its own definition may mention
            if value := self.stands_for(name):
                self._known[name] = self.of(value)
        return self._known[name]

    def of(self, node: object) -> int:
        """Return the number of an expression, or of a part of one."""
        if not isinstance(node, ast.AST):
            return self._number("plain", repr(node))
        if isinstance(node, ast.Name):
            return self.name(node.id)
        if isinstance(node, ast.Constant):
            return self._number("constant", type(node.value).__name__, repr(node.value))
        if isinstance(node, ast.Subscript):
            key = self.of(node.value), self.of(node.slice)
            if key not in self._subscripts:
                inner = self.inward(node)
                self._subscripts[key] = self.of(inner) if inner else self._number("Subscript", *key)
            return self._subscripts[key]
        if isinstance(node, ast.BinOp) and isinstance(node.op, _COMMUTES):
            return self._number(
                type(node.op).__name__, *sorted(map(self.of, self._terms(node, type(node.op))))
            )
        if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _MIRRORED:
            mirrored = _MIRRORED[type(node.ops[0])].__name__
            return self._number(mirrored, self.of(node.comparators[0]), self.of(node.left))
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            name = type(node.ops[0]).__name__
            return self._number(name, self.of(node.left), self.of(node.comparators[0]))
        if isinstance(node, ast.Call):
            if (name := _called(node)) in _EITHER_ORDER and len(node.args) == 2 and not node.keywords:
                return self._number(_EITHER_ORDER[name], *sorted(map(self.of, node.args)))
            if name == "tl.dot" and (terms := _added_dot(node)):
                return self._number("Add", *sorted(map(self.of, terms)))
            if name in _LOOPS and (bounds := _bounds(node)):
                return self._number("range", *map(self.of, bounds))
            node = _along_its_axis(node)
            if name in _PLACES:
                node = ast.Call(node.func, *_by_name(node))
            if name == "tl.zeros" and len(node.args) == 2:
                dtype = ast.keyword("dtype", node.args[1])
                node = ast.Call(node.func, node.args[:1], [dtype, *node.keywords])
            named = sorted((each.arg or "", self.of(each.value)) for each in node.keywords)
            return self._number("call", self.of(node.func), tuple(map(self.of, node.args)), *named)
        parts: list[object] = ["Tuple" if isinstance(node, ast.List) else type(node).__name__]
        for field, value in ast.iter_fields(node):
            if isinstance(value, list):
                parts.append(tuple(self.of(each) for each in value))
            elif isinstance(value, ast.AST):
                parts += [] if isinstance(value, ast.expr_context) else [self.of(value)]
            else:
                parts.append((field, repr(value)))
        return self._number(*parts)

    def _terms(self, node: ast.expr, op: type) -> Iterator[ast.expr]:
        """Yield the terms of a sum, also of the sums that its names stand for."""
        for term in _terms(node, op):
            value = self.stands_for(term.id) if isinstance(term, ast.Name) else None
            value = self.inward(term) if isinstance(term, ast.Subscript) else value
            if isinstance(value, ast.BinOp) and isinstance(value.op, op):
                yield from self._terms(value, op)
            else:
                yield term

    def inward(self, node: ast.Subscript) -> ast.expr | None:
        """Return ``a[:, None] < n`` for ``(a < n)[:, None]``, and so for a sum; None for anything else."""
        if not _adds_axes(node.slice):
            return None
        value = self._resolved(node.value)

        def within(part: ast.expr) -> ast.expr:
            return part if self.is_scalar(part) else ast.Subscript(part, node.slice, ast.Load())

        if isinstance(value, ast.BinOp):
            return ast.BinOp(within(value.left), value.op, within(value.right))
        if isinstance(value, ast.Compare) and len(value.ops) == 1:
            return ast.Compare(within(value.left), value.ops, [within(value.comparators[0])])
        return None

    def _resolved(self, node: ast.expr) -> ast.expr:
        """Return what a name stands for, also if that is a name; any other expression as it is."""
        seen = set()
        while isinstance(node, ast.Name) and node.id not in seen and (value := self.stands_for(node.id)):
            seen.add(node.id)
            node = value
        return node

    def is_scalar(self, node: ast.expr) -> bool:
        """Return whether an expression is surely a number or an address, and not a block of them."""
        if isinstance(node, ast.Name):
            if node.id not in self._scalars:
                self._scalars[node.id] = True  # for a name in its own definition
                found = (value for _, value in self.defined.get(node.id, []))
                own = node.id in self.parameters or node.id in self.defined
                self._scalars[node.id] = own and all(map(self.is_scalar, found))
            return self._scalars[node.id]
        if isinstance(node, ast.BinOp):
            return self.is_scalar(node.left) and self.is_scalar(node.right)
        if isinstance(node, ast.Compare):
            return all(map(self.is_scalar, [node.left, *node.comparators]))
        if isinstance(node, ast.Call):
            if _called(node) in _SCALARS:
                return True
            if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
                return self.is_scalar(node.func.value)
            given = [*node.args, *(each.value for each in node.keywords)]
            return _called(node) in _OF_SCALARS | _LOOPS and all(map(self.is_scalar, given))
        return isinstance(node, ast.Constant)

    def statement(self, node: ast.stmt) -> int:
        """Return the number of a statement; of a loop or condition, that of its first line."""
        if isinstance(node, ast.For):
            return self._number("for", self.of(node.iter))
        if isinstance(node, ast.While | ast.If):
            return self._number(type(node).__name__, self.of(node.test))
        found = list(_definitions(node))
        if len(found) == 1:
            name, how, value = found[0]
            target = None if self.stands_for(name) else self.name(name)
            return self._number("statement", target, how, self.of(value))
        return self._number("statement", self.of(node))

    def expressions(self) -> list[ast.expr]:
        """Return the function's expressions, except names, numbers and attributes."""
        body = (node for each in self.function.body for node in ast.walk(each))
        found = [node for node in body if isinstance(node, ast.expr) and not _is_small(node)]
        return sorted(found, key=lambda node: (node.lineno, node.col_offset))


def _called(node: ast.Call) -> str:
    """Return the name of a called function, such as ``"tl.sum"``."""
    return ast.unparse(node.func)


def _adds_axes(index: ast.expr) -> bool:
    """Return whether an index only adds axes, as ``:, None`` does."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return all(
        ast.unparse(each) == ":" if isinstance(each, ast.Slice) else ast.unparse(each) == "None"
        for each in parts
    )


def _by_name(node: ast.Call) -> tuple[list[ast.expr], list[ast.keyword]]:
    """Return the arguments of a load or store: those in their places, and those by name, also if given in
    a place."""
    names = _PLACES[_called(node)]
    if any(isinstance(each, ast.Starred) for each in node.args):
        return node.args, node.keywords
    placed = [each for each, name in itertools.zip_longest(node.args, names[: len(node.args)]) if not name]
    named = [ast.keyword(name, each) for each, name in zip(node.args, names, strict=False) if name]
    return placed, sorted([*named, *node.keywords], key=lambda each: each.arg or "")


def _along_its_axis(node: ast.Call) -> ast.Call:
    """Return a reduction or scan with its axis by name; any other call as it is."""
    if (name := _called(node)) not in _ALONG_AN_AXIS:
        return node
    if len(node.args) == 2:
        return ast.Call(node.func, node.args[:1], [ast.keyword("axis", node.args[1]), *node.keywords])
    if name == "tl.cumsum" and len(node.args) == 1 and not node.keywords:
        return ast.Call(node.func, node.args, [ast.keyword("axis", ast.Constant(0))])
    return node


def _added_dot(node: ast.Call) -> tuple[ast.expr, ast.expr] | None:
    """Return the terms of ``tl.dot(x, y, acc)``, which is ``acc + tl.dot(x, y)``; None without ``acc``."""
    others = [each for each in node.keywords if each.arg != "acc"]
    given = [*node.args[2:3], *(each.value for each in node.keywords if each.arg == "acc")]
    if len(node.args) > 3 or len(given) != 1:
        return None
    return given[0], ast.Call(node.func, node.args[:2], others)


def _as_compared(node: object) -> object:
    """Return ``tl.dot(x, y, acc)`` as ``acc + tl.dot(x, y)``, and a load with its mask by name."""
    if isinstance(node, ast.Call) and _called(node) in _PLACES:
        return ast.Call(node.func, *_by_name(node))
    if isinstance(node, ast.Call) and _called(node) == "tl.dot" and (terms := _added_dot(node)):
        return ast.BinOp(terms[0], ast.Add(), terms[1])
    return _along_its_axis(node) if isinstance(node, ast.Call) else node


class _Added(ast.BinOp):
    """The sum in ``acc += value``, at the place of the whole statement."""

    target: str


def _added(function: ast.FunctionDef) -> Iterator[ast.expr]:
    """Yield the sums that a function's statements like ``acc += value`` compute."""
    for node in _in_order(function.body):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
            name = ast.copy_location(ast.Name(node.target.id, ast.Load()), node)
            found = _Added(name, node.op, node.value)
            found.target = node.target.id
            yield ast.copy_location(found, node)


def _bounds(node: ast.Call) -> list[ast.expr]:
    """Return the start, the end and the step of a range; [] if they aren't given one by one."""
    given = node.args
    if not 1 <= len(given) <= 3 or any(isinstance(each, ast.Starred) for each in given):
        return []
    start, end = (ast.Constant(0), given[0]) if len(given) == 1 else given[:2]
    return [start, end, given[2] if len(given) == 3 else ast.Constant(1)]


def _is_small(node: ast.expr) -> bool:
    """Return whether an expression says too little, or isn't one on its own, as ``:, None``."""
    inner = node.elts if isinstance(node, ast.Tuple) else [node]
    return isinstance(node, _LEAVES) or any(isinstance(each, ast.Slice) for each in inner)


def _in_order(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        yield node
        for field in ("body", "orelse"):
            yield from _in_order(getattr(node, field, []))


def _definitions(node: ast.stmt) -> Iterator[tuple[str, str, ast.expr]]:
    """Yield each name that a statement defines, how, and from what."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name):
            yield target.id, "=", value
        elif isinstance(target, ast.Tuple):
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            for number, each in enumerate(target.elts):
                if isinstance(each, ast.Name) and len(values) == len(target.elts):
                    how = "=" if isinstance(value, ast.Tuple) else f"item {number}"
                    yield each.id, how, values[number]
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
        yield node.target.id, "=", node.value
    elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        left = ast.Name(node.target.id, ast.Load())
        yield node.target.id, "=", ast.BinOp(left, node.op, node.value)
    elif isinstance(node, ast.For) and isinstance(node.target, ast.Name):
        yield node.target.id, "for", node.iter


def _terms(node: ast.expr, op: type) -> Iterator[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, op):
        yield from _terms(node.left, op)
        yield from _terms(node.right, op)
    else:
        yield node


class _Transplant:
    def __init__(self, right: ast.FunctionDef, wrong: ast.FunctionDef, own: ast.FunctionDef, source: str):
        numbers: dict[object, int] = {}
        self.right, self.own = _Meaning(right, numbers), _Meaning(own, numbers)
        self.wrong, self.source = wrong, source
        self.news = set(_Meaning(wrong, {}).defined) - set(self.right.defined)
        self.lines = source.splitlines(keepends=True)
        self.line = 0  # of the place that is being changed
        self.edits: list[tuple[int, int, str]] = []

    def made(self) -> str:
        for change in _changes(self.right.function.body, self.wrong.body):
            self._change(change)
        self._parameters()
        text, end = self.source, len(self.source)
        if not self.edits:
            raise NoPlace
        for first, last, new in sorted(self.edits, reverse=True):
            if last > end:
                raise NoPlace  # two edits overlap
            text, end = text[:first] + new + text[last:], first
        return text

    def _change(self, change: _Change) -> None:
        """Note the edits for a change: of one expression if possible, else of statements."""
        if len(change.old) == len(change.new) == 1:
            smallest_first = list(_narrowed(change.old[0], change.new[0]))[::-1]
            for find in (self._same, self._copies):
                for old, new in smallest_first:
                    if places := find(old):
                        self.edits += [(*self._span(each), self._in_place(new, each)) for each in places]
                        return
        try:
            self._change_statements(change)
        except NoPlace:
            if not (len(change.old) == len(change.new) == 1):
                raise
            try:
                self._change_alike(change.old[0], change.new[0])
            except NoPlace:
                self._change_access(change.old[0], change.new[0])

    def _change_alike(self, old: ast.stmt, new: ast.stmt) -> None:
        """Note the edit of the learner's only expression that has the form of a changed one."""
        for before, after in reversed(list(_narrowed(old, new))):
            if not _is_small(before) and (found := self._alike(before)):
                place, bound = found
                self.line = place.lineno
                made = _Bound(self, bound).visit(_copied(after))
                self.edits.append((*self._span(place), self._fitted(made, place)))
                return
        raise NoPlace

    def _alike(self, node: ast.expr) -> tuple[ast.expr, dict[str, ast.expr]] | None:
        """Return the learner's expression of the same form, and what the names in it stand for.

        If there are several, the one in which the most names mean the same; None if that isn't clear.
        """
        form = _Form(self.right, self.own)
        found = []
        for each in (*self.own.expressions(), *_added(self.own.function)):
            if bounds := list(itertools.islice(form.match(node, each, {}), 20)):
                same = [sum(self.right.name(n) == self.own.of(e) for n, e in b.items()) for b in bounds]
                best = max(range(len(bounds)), key=same.__getitem__)
                found.append((same[best], each, bounds[best]))
        most = max((same for same, *_ in found), default=0)
        best_of_all = [(each, bound) for same, each, bound in found if same == most]
        return best_of_all[0] if len(best_of_all) == 1 else None

    def _change_statements(self, change: _Change) -> None:
        if any(isinstance(each, _BLOCKS) for each in change.new):
            raise NoPlace
        places = [self._whole(each) for each in change.old]
        anchor = places[0] if places else change.before and self._statement(change.before)
        if anchor is None:
            raise NoPlace
        self.line = anchor.lineno
        indent = " " * anchor.col_offset
        text = "".join(f"{indent}{ast.unparse(self._named(each))}\n" for each in change.new)
        starts = [self._at(each.lineno, 0) for each in places]
        ends = [self._at((each.end_lineno or each.lineno) + 1, 0) for each in places]
        if places:
            self.edits.append((starts[0], ends[0], text))
            self.edits += [(start, end, "") for start, end in zip(starts[1:], ends[1:], strict=True)]
        else:
            after = self._at((anchor.end_lineno or anchor.lineno) + 1, 0)
            self.edits.append((after, after, text))

    def _parameters(self) -> None:
        """Note the edit that adds parameters that only the wrong kernel has, before the constants."""
        added = [each.arg for each in self.wrong.args.args if each.arg not in self.right.parameters]
        added = [name for name in added if name not in self.own.parameters]
        if added and self.edits:
            own = self.own.function.args.args
            place = next((each for each in own if each.annotation), None)
            if place is None or set(added) & set(self.own.defined):
                raise NoPlace
            first = self._at(place.lineno, place.col_offset)
            self.edits.append((first, first, "".join(f"{name}, " for name in added)))

    def _same(self, node: ast.expr) -> list[ast.expr]:
        """Return the learner's expression that means the same, in a list; [] if it isn't clear.

        If the correct kernel has several of them, in the same order as the learner's.
        """
        rights, owns = self._alternatives(node)
        return [owns[rights.index(node)]] if len(owns) == len(rights) > 0 else []

    def _copies(self, node: ast.expr) -> list[ast.expr]:
        """Return the learner's expressions that mean the same as the only one of the correct kernel.

        [] unless it's in the definition of a name there: the learner has written it out wherever it is used.
        """
        rights, owns = self._alternatives(node)
        values = filter(None, map(self.right.stands_for, self.right.defined))
        defines = any(node is each for value in values for each in ast.walk(value))
        return owns if len(rights) == 1 and defines else []

    def _alternatives(self, node: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
        """Return the expressions of both kernels that mean the same as one of the correct kernel."""
        if _is_small(node):
            return [], []
        wanted = self.right.of(node)
        return (
            [each for each in self.right.expressions() if self.right.of(each) == wanted],
            [each for each in self.own.expressions() if self.own.of(each) == wanted],
        )

    def _change_access(self, old: ast.stmt, new: ast.stmt) -> None:
        """Note the edit of what the learner's load or store takes by name, such as its mask."""
        calls = [
            (a, b) for a, b in _narrowed(old, new) if isinstance(a, ast.Call) and isinstance(b, ast.Call)
        ]
        calls = [(a, b) for a, b in calls if _called(a) == _called(b) and _called(a) in _PLACES]
        if not calls:
            raise NoPlace
        before, after = calls[-1]
        (placed, was), (placed_after, is_now) = _by_name(before), _by_name(after)
        if list(map(ast.dump, placed)) != list(map(ast.dump, placed_after)):
            raise NoPlace
        own = self._access(before)
        self.line = own.lineno
        rest, named = _by_name(own)
        gone = {each.arg for each in was} - {each.arg for each in is_now}
        same = {ast.dump(each) for each in was}
        given = {each.arg: each for each in named if each.arg not in gone}
        for each in is_now:
            if ast.dump(each) not in same:
                value: Any = self._named(each.value)
                given[each.arg] = ast.keyword(each.arg, value)
        self.edits.append((*self._span(own), ast.unparse(ast.Call(own.func, rest, [*given.values()]))))

    def _access(self, node: ast.Call) -> ast.Call:
        """Return the learner's load or store with the same pointer, of which both kernels have as many."""

        def alike(meaning: _Meaning) -> list[ast.Call]:
            calls = [each for each in meaning.expressions() if isinstance(each, ast.Call) and each.args]
            calls = [each for each in calls if _called(each) == _called(node)]
            return [each for each in calls if _pointers(meaning, each.args[0]) == pointers]

        pointers = _pointers(self.right, node.args[0]) if node.args else set()
        rights, owns = alike(self.right), alike(self.own)
        if not pointers or len(rights) != len(owns):
            raise NoPlace
        return owns[rights.index(node)]

    def _statement(self, node: ast.stmt) -> ast.stmt:
        """Return the learner's statement that does the same, as `_same` does for an expression."""
        wanted = self.right.statement(node)
        rights = [n for n in _in_order(self.right.function.body) if self.right.statement(n) == wanted]
        owns = [n for n in _in_order(self.own.function.body) if self.own.statement(n) == wanted]
        lines = [each.lineno for each in rights]
        if len(owns) != len(rights) or node.lineno not in lines:
            raise NoPlace
        return owns[lines.index(node.lineno)]

    def _whole(self, node: ast.stmt) -> ast.stmt:
        """Return the learner's statement that does the same; of a condition, with all that is in it."""
        own = self._statement(node)
        if isinstance(node, _BLOCKS):
            inner = [
                [meaning.statement(each) for each in _in_order([block])]
                for meaning, block in ((self.right, node), (self.own, own))
            ]
            if not isinstance(node, ast.If) or node.orelse or inner[0] != inner[1]:
                raise NoPlace
        return own

    def _named(self, node: ast.AST) -> ast.AST:
        """Return a part of the wrong kernel with the learner's names."""
        return _Renamed(self).visit(_copied(node))

    def own_name(self, name: str) -> ast.expr:
        """Return what the learner's kernel has for a local name of the correct one."""
        if name in self.right.parameters or name not in {*self.right.defined, *self.news}:
            return ast.Name(name, ast.Load())
        if name in self.news:
            taken = name in self.own.defined or name in self.own.parameters
            return ast.Name(f"{name}_" if taken else name, ast.Load())
        wanted = self.right.name(name)
        for each in (name, *self.own.defined):
            if each in self.own.defined and self.own.name(each) == wanted:
                value = self.own.stands_for(each)
                if value is None or not self.line or value.lineno < self.line:
                    return ast.Name(each, ast.Load())
        if value := self.right.stands_for(name):
            return self._named(value)  # type: ignore[return-value]
        raise NoPlace

    def _in_place(self, new: ast.expr, old: ast.expr) -> str:
        """Return the new expression's text, in parentheses if it needs them where the old one was."""
        self.line = old.lineno
        return self._fitted(self._named(new), old)

    def _fitted(self, new: ast.AST, old: ast.expr) -> str:
        """Return the text of an expression, in parentheses if it needs them where the old one is."""
        text = ast.unparse(new)
        if isinstance(old, _Added):
            return f"{old.target} = {text}"
        first, last = self._span(old)
        before, after = self.source[:first], self.source[last:]
        try:
            same = ast.dump(ast.parse(f"{before}{text}{after}")) == ast.dump(
                ast.parse(f"{before}({text}){after}")
            )
        except SyntaxError:
            same = False
        return text if same else f"({text})"

    def _at(self, line: int, column: int) -> int:
        """Return the place in the source. column: in bytes, as `ast` counts."""
        if line > len(self.lines):
            return len(self.source)
        before = self.lines[line - 1].encode()[:column].decode()
        return sum(map(len, self.lines[: line - 1])) + len(before)

    def _span(self, node: ast.expr) -> tuple[int, int]:
        return self._at(node.lineno, node.col_offset), self._at(
            node.end_lineno or node.lineno, node.end_col_offset or 0
        )


def _pointers(meaning: _Meaning, address: ast.expr) -> set[str]:
    """Return the pointers among a kernel's parameters that an address is made of."""
    parts, seen = [address], set()
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, ast.Name) and node.id not in seen:
                seen.add(node.id)
                parts += filter(None, [meaning.stands_for(node.id)])
    return {name for name in seen & meaning.parameters if name.endswith("_ptr")}


class _Form:
    """Compares forms: a local name of the correct kernel may stand for any of the learner's expressions."""

    def __init__(self, right: _Meaning, own: _Meaning):
        self._right, self._own = right, own

    def match(self, node: object, own: object, bound: dict[str, ast.expr]) -> Iterator[dict[str, ast.expr]]:
        """Yield what the names of ``node`` stand for if ``own`` has its form."""
        if isinstance(node, ast.Name) and isinstance(own, ast.expr) and self._is_local(node.id):
            if isinstance(own, ast.Constant):
                return  # a number is no variable
            if node.id not in bound:
                yield {**bound, node.id: own}
            elif self._own.of(bound[node.id]) == self._own.of(own):
                yield bound
            return
        node, own = _as_compared(node), _as_compared(own)
        if isinstance(own, ast.Subscript) and (inner := self._own.inward(own)):
            yield from self.match(node, inner, bound)
        if isinstance(own, ast.Name) and (value := self._own.stands_for(own.id)):
            yield from self.match(node, value, bound)
        if isinstance(node, ast.Constant) and isinstance(own, ast.Constant):
            if node.value == own.value:
                yield bound
        elif isinstance(node, ast.BinOp) and isinstance(node.op, _COMMUTES):
            if isinstance(own, ast.BinOp) and type(own.op) is type(node.op):
                terms, owns = (list(_terms(each, type(node.op))) for each in (node, own))
                if len(terms) == len(owns) <= _MOST_TERMS:
                    for order in itertools.permutations(owns):
                        yield from self._all(terms, order, bound)
        elif isinstance(node, ast.AST) and type(node) is type(own):
            pairs = [(getattr(node, field, None), getattr(own, field, None)) for field in node._fields]
            yield from self._all([a for a, _ in pairs], [b for _, b in pairs], bound)
        elif isinstance(node, list) and isinstance(own, list) and len(node) == len(own):
            yield from self._all(node, own, bound)
        elif not isinstance(node, ast.AST | list) and node == own:
            yield bound

    def _all(
        self, nodes: Sequence[object], owns: Sequence[object], bound: dict[str, ast.expr]
    ) -> Iterator[dict[str, ast.expr]]:
        if not nodes:
            yield bound
            return
        for found in self.match(nodes[0], owns[0], bound):
            yield from self._all(nodes[1:], owns[1:], found)

    def _is_local(self, name: str) -> bool:
        return name in self._right.defined and name not in self._right.parameters


_MOST_TERMS = 4  # of a sum, in any order


def _copied(value: Any) -> Any:
    """Return a copy of a node, or of a list of nodes, with the fields and places of its nodes.

    `copy.deepcopy` would also copy what others have noted on the nodes that Python shares. After a traceback
    in Jupyter, `ast.Load()` has its parent, and so the whole syntax tree of a file, for every name copied.
    """
    if isinstance(value, list):
        return [_copied(each) for each in value]
    if not isinstance(value, ast.AST) or not value._fields:
        return value
    made = type(value)(**{name: _copied(field) for name, field in ast.iter_fields(value)})
    return ast.copy_location(made, value)


class _Bound(ast.NodeTransformer):
    """Puts in what the names stand for."""

    def __init__(self, transplant: "_Transplant", bound: dict[str, ast.expr]):
        self._transplant, self._values = transplant, bound

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._values:
            return _copied(self._values[node.id])
        return self._transplant.own_name(node.id)


class _Renamed(ast.NodeTransformer):
    def __init__(self, transplant: _Transplant):
        self.transplant = transplant

    def visit(self, node: ast.AST) -> ast.AST:
        """Return the learner's name for an expression if there is one; else the expression, renamed."""
        right, own = self.transplant.right, self.transplant.own
        if isinstance(node, ast.expr) and not _is_small(node):
            wanted = right.of(node)
            for name in own.defined:
                value = own.stands_for(name)
                if value and own.name(name) == wanted and value.lineno < self.transplant.line:
                    return ast.Name(name, ast.Load())
        return super().visit(node)  # type: ignore[no-any-return]

    def visit_Name(self, node: ast.Name) -> ast.expr:
        found = self.transplant.own_name(node.id)
        if isinstance(node.ctx, ast.Store):
            if not isinstance(found, ast.Name):
                raise NoPlace
            return ast.Name(found.id, ast.Store())
        return found


def _changes(right: Sequence[ast.stmt], wrong: Sequence[ast.stmt]) -> Iterator[_Change]:
    """Yield the changes of a body, and of the bodies in it."""
    olds, news = ([ast.dump(each) for each in body] for body in (right, wrong))
    for tag, i, j, k, m in difflib.SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        before = right[i - 1] if i else None
        if tag == "replace" and j - i == m - k:
            for old, new in zip(right[i:j], wrong[k:m], strict=True):
                if isinstance(old, _BLOCKS) and type(old) is type(new):
                    yield from _of_block(old, new)
                else:
                    yield _Change(before, [old], [new])
        elif tag != "equal":
            yield _Change(before, right[i:j], wrong[k:m])


def _of_block(old: ast.stmt, new: ast.stmt) -> Iterator[_Change]:
    heads = [ast.For, ast.While, ast.If]
    assert type(old) in heads
    field = "iter" if isinstance(old, ast.For) else "test"
    if ast.dump(getattr(old, field)) != ast.dump(getattr(new, field)):
        ends = [ast.copy_location(ast.Expr(getattr(each, field)), each) for each in (old, new)]
        yield _Change(None, ends[:1], ends[1:])
    for part in ("body", "orelse"):
        yield from _changes(getattr(old, part), getattr(new, part))


def _narrowed(old: ast.AST, new: ast.AST) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield the changed expression, and within it the only changed part, and so on, the whole first."""
    while type(old) is type(new):
        if isinstance(old, ast.expr) and isinstance(new, ast.expr):
            yield old, new
        pairs = list(zip(_parts(old), _parts(new), strict=False))
        changed = [(a, b) for a, b in pairs if ast.dump(a) != ast.dump(b)]
        if len(changed) != 1 or len(_parts(old)) != len(_parts(new)):
            return
        if isinstance(old, ast.stmt) and not isinstance(changed[0][0], ast.expr):
            return
        if isinstance(old, ast.Assign) and changed[0][0] is not old.value:
            return
        old, new = changed[0]
    if isinstance(old, ast.expr) and isinstance(new, ast.expr):
        yield old, new


def _parts(node: ast.AST) -> list[ast.AST]:
    return [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.expr_context)]
