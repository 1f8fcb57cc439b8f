"""Mutation testing of the checker: does `check` reject every small change of every solution?

    python -m tests.mutation [--json] [--puzzle NAME ...] [--jobs N] [--log FILE]

Each mutant is a solution with one slip in it: another operator, comparison, constant, mask, index, name,
axis, type, bound, or a statement left out. `check` should reject them all, except for the mutants that no
GPU, input or block size within the puzzle's contract can distinguish from the original. These are listed,
with the reason, in tests/mutation_equivalents.txt.

Method: DeMillo, Lipton and Sayward, *Hints on test data selection* (Computer, 1978); the operators follow
Offutt et al., *An experimental determination of sufficient mutant operators* (TOSEM, 1996).
"""

import argparse
import ast
import copy
import dataclasses
import functools
import hashlib
import itertools
import json
import linecache
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from puzzles_lib import checker
from puzzles_lib.authoring.solutions import define, kernel_cells
from puzzles_lib.puzzle import Puzzle

EQUIVALENTS = Path(__file__).with_name("mutation_equivalents.txt")
SECONDS = 2.0  # time limit for a mutant's run of a case
SECONDS_TO_BE_SURE = 20.0  # for one that reached it: slow is not wrong, and the machine may be busy


@dataclass(frozen=True)
class Mutant:
    """One change of a puzzle's solution.

    line: of the changed statement, in the notebook's cell.
    before, after: that statement (its first line, if it has a body) as `ast.unparse` writes it.
    place: counts the lines that read like ``before``: 1, 2, ...
    kind: what sort of change, such as ``"comparison"``.
    source: the changed cell.
    """

    puzzle: str
    line: int
    place: int
    kind: str
    before: str
    after: str
    source: str = dataclasses.field(repr=False, default="")

    def diff(self) -> str:
        """As in mutation_equivalents.txt."""
        return f"{_minus(self.before, self.place)}\n+ {self.after}"

    def described(self) -> dict[str, object]:
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in ("source", "place")}


def _minus(before: str, place: int) -> str:
    return f"- {before}" if place == 1 else f"- {before}  # {place}"


# ---- making mutants


def mutants(source: str, puzzle: str) -> list[Mutant]:
    """All mutants of a cell's source, in the order of its lines, no two alike."""
    tree = ast.parse(source)
    seen, found, places = {ast.unparse(tree)}, [], _places(tree)
    lines = [_headline(statement) for statement in _statements(tree)]
    number = {id(s): lines[:i].count(lines[i]) + 1 for i, s in enumerate(_statements(tree))}
    for place in places:
        before = _headline(place.statement)
        for kind, changed in _changes(place):
            original = place.get()
            place.put(changed)
            try:
                text = ast.unparse(tree)
                after = "pass" if isinstance(changed, ast.Pass) else _headline(place.enclosing(changed))
            finally:
                place.put(original)
            if text not in seen:
                seen.add(text)
                line, nth = place.statement.lineno, number[id(place.statement)]
                found.append(Mutant(puzzle, line, nth, kind, before, after, text))
    return sorted(found, key=lambda m: m.line)


def _headline(statement: ast.stmt) -> str:
    """A statement on one line, without its body."""
    return ast.unparse(statement).splitlines()[0]


@dataclass(frozen=True)
class _Place:
    """Where a node hangs in the tree: ``owner.field`` or ``owner.field[index]``.

    names: the variables that have a value here, as far as the text tells.
    """

    statement: ast.stmt
    owner: ast.AST
    field: str
    index: int | None
    names: tuple[str, ...]

    def get(self) -> ast.AST:
        value = getattr(self.owner, self.field)
        return value if self.index is None else value[self.index]

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.owner, self.field, node)
        else:
            getattr(self.owner, self.field)[self.index] = node

    def enclosing(self, changed: ast.AST) -> ast.stmt:
        """The statement to show once ``changed`` is here."""
        return changed if isinstance(changed, ast.stmt) else self.statement


def _is_kernel(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(d) for d in node.decorator_list)


def _is_constexpr(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and "constexpr" in ast.unparse(node.value)


def _statements(tree: ast.Module) -> list[ast.stmt]:
    """Those that may be changed: the bodies of kernels, and constants for them."""
    found = []
    for top in tree.body:
        if _is_kernel(top):
            inner = [n for n in ast.walk(top) if isinstance(n, ast.stmt) and n is not top]
            found += sorted(inner, key=lambda n: (n.lineno, n.col_offset))
        elif _is_constexpr(top):
            found.append(top)
    return [s for s in found if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]


def _places(tree: ast.Module) -> list[_Place]:
    allowed = {id(s) for s in _statements(tree)}
    found: list[_Place] = []

    def visit(node: ast.AST, statement: ast.stmt | None, names: list[str]) -> None:
        if isinstance(node, ast.For):
            names += [n for n in _assigned(node.target) if n not in names]
        for field, value in ast.iter_fields(node):
            if field in ("decorator_list", "annotation", "args") and isinstance(node, ast.FunctionDef):
                continue
            for index, child in enumerate(value) if isinstance(value, list) else [(None, value)]:
                if not isinstance(child, ast.AST) or isinstance(child, ast.expr_context):
                    continue
                here = child if isinstance(child, ast.stmt) else statement
                if id(here) in allowed:
                    found.append(_Place(here, node, field, index, tuple(names)))
                if id(here) in allowed or _is_kernel(child):
                    visit(child, here, names)
                if isinstance(child, ast.stmt):
                    names += [n for n in _assigned(child) if n not in names]

    for index, top in enumerate(tree.body):
        if _is_kernel(top):
            visit(top, None, [a.arg for a in top.args.args])
        elif _is_constexpr(top):
            found.append(_Place(top, tree, "body", index, ()))
            visit(top, top, [])
    return found


def _assigned(node: ast.AST) -> list[str]:
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]


# ---- the changes


Change = tuple[str, ast.AST]


def _changes(place: _Place) -> Iterator[Change]:
    """Every change of one node, as (kind, new node)."""
    match node := place.get():
        case ast.BinOp():
            yield from _arithmetic(node)
        case ast.UnaryOp():
            yield "unary", node.operand
        case ast.Compare() if len(node.ops) == 1:
            yield from _comparison(node)
        case ast.BoolOp():
            yield from _bool_op(node)
        case ast.Constant():
            yield from (("constant", ast.Constant(value)) for value in _constants(node.value))
        case ast.Name(ctx=ast.Load()):
            yield from (("name", _name(other)) for other in _siblings(node.id, place.names))
            if isinstance(place.owner, ast.BinOp) and _family(node.id) in ("value", "offs", "pid"):
                yield "unary", ast.UnaryOp(ast.USub(), node)
        case ast.Attribute(value=ast.Name(id="tl")):
            for attr in _ATTRIBUTES.get(node.attr, ()):
                yield "function or type", ast.Attribute(node.value, attr, ast.Load())
        case ast.Attribute(attr="T"):
            yield "call dropped", node.value
        case ast.Subscript(slice=ast.Tuple()):
            yield from _index(node)
        case ast.Call():
            yield from _call(node)
        case ast.IfExp():
            yield "arms swapped", ast.IfExp(node.test, node.orelse, node.body)
        case ast.AugAssign():
            yield from _augmented(node)
        case ast.Assign() if set(_assigned(node)) <= set(place.names):
            yield "statement deleted", ast.Pass()
        case ast.Expr(value=ast.Call()):
            yield "statement deleted", ast.Pass()
        case ast.For():
            yield "statement deleted", ast.Pass()
        case ast.If():
            yield "condition", _with_test(node, ast.Constant(True))
            yield "condition", _with_test(node, ast.UnaryOp(ast.Not(), node.test))
            yield "statement deleted", ast.Pass()


_OPERATORS: dict[type[ast.operator], tuple[type[ast.operator], ...]] = {
    ast.Add: (ast.Sub, ast.Mult),
    ast.Sub: (ast.Add, ast.Mult),
    ast.Mult: (ast.Add, ast.Div, ast.FloorDiv),
    ast.Div: (ast.Mult, ast.Sub),
    ast.FloorDiv: (ast.Mult, ast.Mod, ast.Div),
    ast.Mod: (ast.FloorDiv, ast.Mult),
    ast.MatMult: (ast.Mult,),
    ast.BitAnd: (ast.BitOr, ast.BitXor),
    ast.BitOr: (ast.BitAnd, ast.BitXor),
    ast.BitXor: (ast.BitAnd, ast.BitOr),
    ast.LShift: (ast.RShift, ast.Mult),
    ast.RShift: (ast.LShift, ast.FloorDiv),
}
_COMMUTE = (ast.Add, ast.Mult, ast.BitAnd, ast.BitOr, ast.BitXor)


def _arithmetic(node: ast.BinOp) -> Iterator[Change]:
    for operator in _OPERATORS.get(type(node.op), ()):
        yield "operator", ast.BinOp(node.left, operator(), node.right)
    yield "operand dropped", node.left
    yield "operand dropped", node.right
    if not isinstance(node.op, _COMMUTE):
        yield "operands swapped", ast.BinOp(node.right, node.op, node.left)


def _comparison(node: ast.Compare) -> Iterator[Change]:
    for operator in (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq):
        yield "comparison", ast.Compare(node.left, [operator()], node.comparators)
    if isinstance(node.comparators[0], ast.Name):
        yield "comparison", ast.Compare(node.left, node.ops, [_plus(node.comparators[0], -1)])


def _bool_op(node: ast.BoolOp) -> Iterator[Change]:
    other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
    yield "operator", ast.BoolOp(other, node.values)
    yield from (("operand dropped", value) for value in node.values)


def _constants(value: object) -> list[object]:
    match value:
        case bool():
            return [not value]
        case int():
            others = [value + 1, value - 1, 0, 1]
        case float():
            others = [0.0, 1.0, -value, value + 1.0, value - 1.0]
            if value != round(value, 2):
                others.append(round(value, 2))  # 1.4426950408889634 -> 1.44
        case "ieee" | "tf32x3":
            return ["tf32"]
        case _:
            return []
    return [other for other in dict.fromkeys(others) if other != value]


_SIZES = "size"


def _family(name: str) -> str:
    """Names of one family stand for things of one sort."""
    if name.endswith("_ptr"):
        return "pointer"
    if name.isupper():
        return _SIZES
    head = name.split("_")[0]
    return head if head in ("offs", "pid", "mask", "stride") else "value"


def _siblings(name: str, names: tuple[str, ...]) -> list[str]:
    if name not in names:  # a module, a function, a global constant
        return []
    return [other for other in names if other != name and _family(other) == _family(name)]


_ATTRIBUTES = {
    "maximum": ("minimum",),
    "minimum": ("maximum",),
    "max": ("min", "sum"),
    "min": ("max", "sum"),
    "sum": ("max",),
    "exp": ("exp2",),
    "exp2": ("exp",),
    "log": ("log2",),
    "log2": ("log",),
    "float32": ("float16", "bfloat16"),
    "float16": ("float32", "bfloat16"),
    "bfloat16": ("float32", "float16"),
    "int64": ("int32",),
    "int32": ("int16", "int8", "float32"),
    "int8": ("int32",),
}


def _index(node: ast.Subscript) -> Iterator[Change]:
    """``[:, None]`` to ``[None, :]``, and every other order where there are more."""
    for order in itertools.permutations(node.slice.elts):
        yield "index", ast.Subscript(node.value, ast.Tuple(list(order), ast.Load()), node.ctx)


def _call(node: ast.Call) -> Iterator[Change]:
    function, args = ast.unparse(node.func), node.args
    if function in ("range", "tl.range", "tl.static_range"):
        yield from _range(node)
    for keyword in node.keywords:
        yield "keyword removed", _call_with(node, without={keyword.arg})
        if keyword.arg == "mask":
            yield "mask", _call_with(node, without={"mask", "other"})
            if function in ("tl.load", "tl.store"):
                yield "mask", _call_with(node, mask=ast.Constant(True))
    if function == "tl.program_id":
        yield "index", ast.Constant(0)
    if function == "float" and isinstance(args[0], ast.Constant):
        yield from (("constant", ast.Constant(v)) for v in (0.0, 1.0))
        yield "constant", ast.Call(node.func, [ast.Constant("inf")], [])
    if function == "tl.where":
        yield "arms swapped", _call_with(node, args=[args[0], args[2], args[1]])
        yield "arm dropped", args[1]
        yield "arm dropped", args[2]
    if function in ("min", "max"):
        yield "function or type", ast.Call(_name("max" if function == "min" else "min"), args, [])
    if function in ("tl.maximum", "tl.minimum", "min", "max"):
        yield from (("operand dropped", arg) for arg in args)
    if function in ("tl.dot", "tl.cdiv", "triton.cdiv") and len(args) >= 2:
        yield "operands swapped", _call_with(node, args=[args[1], args[0], *args[2:]])
    if function == "tl.dot" and len(args) == 3:
        yield "operand dropped", _call_with(node, args=args[:2])
    if function in ("tl.cdiv", "triton.cdiv"):
        yield "operator", ast.BinOp(args[0], ast.FloorDiv(), args[1])
    if function == "tl.zeros":
        yield "constant", ast.BinOp(node, ast.Add(), ast.Constant(1))
    if len(args) == 1 and function.startswith("tl.") and function not in ("tl.program_id", "tl.constexpr"):
        yield "call dropped", args[0]
    if isinstance(node.func, ast.Attribute) and node.func.attr == "to":
        yield "call dropped", node.func.value


def _range(node: ast.Call) -> Iterator[Change]:
    """Off by one, the first or the last step left out, one step alone, steps too long."""
    if len(node.args) == 1:
        start, stop, step = ast.Constant(0), node.args[0], ast.Constant(1)
    else:
        start, stop, step = (*node.args, ast.Constant(1))[:3]
    changed = [
        (start, _plus(stop, 1), step),
        (start, _plus(stop, -1), step),
        (start, ast.BinOp(stop, ast.Sub(), step), step),
        (start, _sum(start, step), step),
        (_sum(start, step), stop, step),
        (start, stop, ast.BinOp(ast.Constant(2), ast.Mult(), step)),
    ]
    if ast.unparse(step) != "1":
        changed.append((start, stop, ast.Constant(1)))
    for new in changed:
        yield "range", ast.Call(node.func, list(new), node.keywords)


def _augmented(node: ast.AugAssign) -> Iterator[Change]:
    load = ast.parse(ast.unparse(node.target), mode="eval").body
    for kind, changed in _arithmetic(ast.BinOp(load, node.op, node.value)):
        if kind == "operator":
            yield kind, ast.AugAssign(node.target, changed.op, node.value)
    yield "assignment", ast.Assign([node.target], node.value, lineno=node.lineno)
    yield "statement deleted", ast.Pass()


# ---- building nodes


def _name(text: str) -> ast.Name:
    return ast.Name(text, ast.Load())


def _plus(node: ast.expr, number: int) -> ast.expr:
    return ast.BinOp(node, ast.Add() if number > 0 else ast.Sub(), ast.Constant(abs(number)))


def _sum(a: ast.expr, b: ast.expr) -> ast.expr:
    return b if isinstance(a, ast.Constant) and a.value == 0 else ast.BinOp(a, ast.Add(), b)


def _with_test(node: ast.If, test: ast.expr) -> ast.If:
    changed = copy.copy(node)
    changed.test = test
    return changed


def _call_with(
    node: ast.Call,
    *,
    args: list[ast.expr] | None = None,
    without: Iterable[str] = (),
    **values: ast.expr,
) -> ast.Call:
    keywords = [ast.keyword(k.arg, values.get(k.arg, k.value)) for k in node.keywords if k.arg not in without]
    return ast.Call(node.func, node.args if args is None else args, keywords)


# ---- judging them


def judge(mutant: Mutant) -> str | None:
    """Why `check` rejects a mutant, or None where it does not.

    Most mutants fail in the first case that is tried. Only a mutant that passes every case, or is too slow
    in one, gets the whole check, with random and made cases and goals.
    """
    name = "<mutant>"
    try:
        kernel = define(mutant.source, name)
    except Exception as error:
        return f"cannot be defined: {error!r}"
    try:
        for part in _parts(mutant.puzzle):
            with _cases_alone():
                reason = _fault(kernel, part, SECONDS)
            if reason not in (None, "time limit"):
                return reason
        return _fault(kernel, _puzzles()[mutant.puzzle], SECONDS_TO_BE_SURE)
    finally:
        linecache.cache.pop(name, None)


def _fault(kernel: object, puzzle: Puzzle, seconds: float) -> str | None:
    """Return the kind of the first fault that a check finds, without the runs that only explain it."""
    until_a_fault = [
        probe._replace(when=lambda trial, when=probe.when: trial.verdict is None and when(trial))
        for probe in checker.probes.PROBES
    ]
    with mock.patch.object(checker.probes, "PROBES", until_a_fault):
        report = checker.examine(kernel, puzzle, seconds=seconds, until_failure=True)
    return None if report.ok else report.verdicts[0].kind


def _cases_alone() -> AbstractContextManager:
    """Leave out what a check tries on its own after the listed cases."""
    return mock.patch.object(checker, "_made_cases", lambda *_: [])


@functools.cache
def _parts(name: str) -> list[Puzzle]:
    """Return the puzzle with one case alone, then with the others; ragged cases first, they tell most.

    Random cases, goals and slips are left out. The parts are kept, and so are their expected results.
    """
    puzzle = _puzzles()[name]
    cases = sorted(puzzle.cases, key=_ragged_axes, reverse=True)
    return [
        dataclasses.replace(puzzle, cases=tuple(part), contract=None, machine=(), traffic=(), slips=None)
        for part in (cases[:1], cases[1:])
    ]


@functools.cache
def _puzzles() -> dict:
    """Return the puzzles that have a solution, by name. Puzzle 0 isn't counted, but it's checked."""
    from puzzles_lib.chapters import puzzles
    from puzzles_lib.chapters.ch00_welcome.puzzles import DOUBLE

    return {p.name: p for p in (DOUBLE, *puzzles())}


def puzzle_cells() -> dict[str, str]:
    """Return the source of each puzzle's solution, by name.

    A second check of a solution, such as puzzle 11's with other tiles, is left out.
    """
    known = _puzzles()
    return {name: source for name, source in kernel_cells().items() if name in known}


def headlines(source: str) -> list[tuple[str, int]]:
    """Return (before, place) of each line of a cell that may be changed. See `Mutant`."""
    lines = [_headline(statement) for statement in _statements(ast.parse(source))]
    return [(line, lines[:i].count(line) + 1) for i, line in enumerate(lines)]


def _ragged_axes(case) -> int:
    """How many axes of a case are longer than a block that does not divide them."""
    blocks = {n.removeprefix("BLOCK_"): b for n, b in case.numbers.items() if n.startswith("BLOCK_")}
    sizes = {axis: case.numbers[axis] for axis in blocks if axis in case.numbers}
    return sum(size > blocks[axis] and size % blocks[axis] != 0 for axis, size in sizes.items())


def judge_all(found: list[Mutant], jobs: int = 2) -> Iterator[str | None]:
    """`judge` of each, in order, on so many processes."""
    if jobs == 1:
        yield from map(judge, found)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_one_thread) as pool:
        yield from pool.map(judge, found, chunksize=4)


def _one_thread() -> None:
    import torch

    torch.set_num_threads(1)


# ---- equivalent mutants


@dataclass(frozen=True)
class Equivalent:
    """A change that makes no difference, and why. Fields as in `Mutant`."""

    puzzle: str
    place: int
    before: str
    after: str
    why: str

    def is_for(self, mutant: Mutant) -> bool:
        mine = (self.puzzle, self.place, self.before, self.after)
        return mine == (mutant.puzzle, mutant.place, mutant.before, mutant.after)

    def __str__(self) -> str:
        return f"{self.puzzle}:\n{_minus(self.before, self.place)}\n+ {self.after}"


def read_equivalents(text: str) -> list[Equivalent]:
    """Parse the list of equivalents: ``puzzle: why`` above ``-`` and ``+`` lines; ``#`` starts a remark.

    Raises ValueError for a line that is none of these, or a change without a reason.
    """
    found, puzzle, why, before, place = [], "", "", "", 1
    for number, line in enumerate(text.splitlines(), 1):
        match line[:2]:
            case "- ":
                before, _, nth = line[2:].partition("  # ")
                place = int(nth or 1)
            case "+ " if puzzle and why and before:
                found.append(Equivalent(puzzle, place, before, line[2:], why))
            case _ if not line.strip() or line.startswith("#"):
                continue
            case _:
                puzzle, colon, why = (part.strip() for part in line.partition(":"))
                before = ""
                if not (colon and puzzle.isidentifier() and why):
                    raise ValueError(f"equivalents, line {number}: {line!r} has no puzzle, reason, - or +")
    return found


# ---- the score


@dataclass
class Score:
    """What became of one puzzle's mutants.

    stale: entries of the list of equivalents that no mutant matches.
    refuted: entries whose mutant is rejected after all.
    """

    puzzle: str
    reasons: Counter[str] = dataclasses.field(default_factory=Counter)
    equivalent: list[Equivalent] = dataclasses.field(default_factory=list)
    survivors: list[Mutant] = dataclasses.field(default_factory=list)
    stale: list[Equivalent] = dataclasses.field(default_factory=list)
    refuted: list[Equivalent] = dataclasses.field(default_factory=list)

    @property
    def killed(self) -> int:
        return self.reasons.total()

    @property
    def mutants(self) -> int:
        return self.killed + len(self.equivalent) + len(self.survivors)


def score(
    puzzle: str, judged: Iterable[tuple[Mutant, str | None]], equivalents: Iterable[Equivalent]
) -> Score:
    """Count the judged mutants of a puzzle, with the entries of the list that are about it."""
    result = Score(puzzle)
    open_entries = [e for e in equivalents if e.puzzle == puzzle]
    result.stale = list(open_entries)
    for mutant, reason in judged:
        entry = next((e for e in open_entries if e.is_for(mutant)), None)
        if entry in result.stale:
            result.stale.remove(entry)
        if reason:
            result.reasons[reason] += 1
            if entry:
                result.refuted.append(entry)
        elif entry:
            result.equivalent.append(entry)
        else:
            result.survivors.append(mutant)
    return result


def run(
    cells: dict[str, str], equivalents: list[Equivalent], jobs: int = 2, log: Path | None = None
) -> Iterator[Score]:
    """Score each puzzle's solution, given as source by the puzzle's name.

    log: a file to which each verdict is added, as a line of JSON. Mutants that are in it aren't judged again.
    """
    found = {puzzle: mutants(source, puzzle) for puzzle, source in cells.items()}
    known = _read_log(log) if log else {}
    unknown = [m for each in found.values() for m in each if _key(m) not in known]
    verdicts = judge_all(unknown, jobs)
    with log.open("a") if log else nullcontext() as file:
        for puzzle, each in found.items():
            judged = []
            for mutant in each:
                if (key := _key(mutant)) not in known:
                    known[key] = next(verdicts)
                    if file:
                        print(json.dumps([*key, known[key]]), file=file, flush=True)
                judged.append((mutant, known[key]))
            yield score(puzzle, judged, equivalents)


def _key(mutant: Mutant) -> tuple[str, str]:
    return mutant.puzzle, hashlib.sha256(mutant.source.encode()).hexdigest()[:20]


def _read_log(log: Path) -> dict[tuple[str, str], str | None]:
    lines = log.read_text().splitlines() if log.exists() else []
    return {(puzzle, digest): reason for puzzle, digest, reason in map(json.loads, lines)}


def as_json(scores: list[Score]) -> dict[str, object]:
    return {
        "mutants": sum(s.mutants for s in scores),
        "killed": sum(s.killed for s in scores),
        "equivalent": sum(len(s.equivalent) for s in scores),
        "survivors": [m.described() for s in scores for m in s.survivors],
    }


HEAD = f"{'puzzle':<24}{'mutants':>9}{'killed':>9}{'equivalent':>12}{'survivors':>11}"


def row(name: str, mutants: int, killed: int, equivalent: int, survivors: int) -> str:
    return f"{name:<24}{mutants:>9}{killed:>9}{equivalent:>12}{survivors:>11}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    parser.add_argument("--puzzle", metavar="NAME", nargs="+", help="these puzzles alone")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="processes (2)")
    text = "keep verdicts in this file and go on from it; delete it after a change of the checker or of cases"
    parser.add_argument("--log", metavar="FILE", type=Path, help=text)
    options = parser.parse_args(arguments)
    if options.jobs < 1:
        parser.error(f"--jobs is {options.jobs}, allowed is 1 and up")
    cells = puzzle_cells()
    if options.puzzle:
        if wrong := [name for name in options.puzzle if name not in cells]:
            parser.error(f"--puzzle is {wrong[0]}, allowed are {', '.join(cells)}")
        cells = {name: cells[name] for name in options.puzzle}
    entries = read_equivalents(EQUIVALENTS.read_text())
    scores = []
    if not options.json:
        print(HEAD)
    for result in run(cells, entries, options.jobs, options.log):
        scores.append(result)
        if not options.json:
            counts = (result.mutants, result.killed, len(result.equivalent), len(result.survivors))
            print(row(result.puzzle, *counts), flush=True)
    total = as_json(scores)
    unknown = [] if options.puzzle else [e for e in entries if e.puzzle not in cells]
    for entry in unknown + [e for s in scores for e in s.stale]:
        print(f"stale, matches no mutant: {entry}", file=sys.stderr)
    for entry in [e for s in scores for e in s.refuted]:
        print(f"not equivalent, is rejected: {entry}", file=sys.stderr)
    if options.json:
        print(json.dumps(total))
    else:
        _print_totals(scores, total)
    return 1 if total["survivors"] else 0


def _print_totals(scores: list[Score], total: dict[str, object]) -> None:
    survivors = [m for s in scores for m in s.survivors]
    print(row("all", total["mutants"], total["killed"], total["equivalent"], len(survivors)))
    reasons = sum((s.reasons for s in scores), Counter())
    print("\nrejected for: " + ", ".join(f"{kind} {count}" for kind, count in reasons.most_common()))
    counted = total["mutants"] - total["equivalent"]
    if counted:
        print(f"score: {total['killed'] / counted:.2%} of {counted} that are not equivalent")
    for mutant in survivors:
        print(f"\nsurvives: {mutant.puzzle}, line {mutant.line} ({mutant.kind})\n{mutant.diff()}")


if __name__ == "__main__":
    sys.exit(main())
