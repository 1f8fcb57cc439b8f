"""Find what no case of a puzzle has tested: comparisons that came out the same way every time.

A kernel whose results are wrong from the hundredth program on, or for numbers below 1e-30, passes every case
with fewer programs and larger numbers. Its IR shows it: something is compared with 100, or with 1e-30, and
the answer was always the same. Such a kernel is tried on cases made for it, which keep the puzzle's contract:
a size is larger than that number, or the values of an input come close to 0. Nearly all correct kernels have
no such comparison, so that the cases cost nothing.
"""

import linecache
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import torch
import triton

from puzzles_lib.checker.report import Verdict
from puzzles_lib.contract import Fill
from puzzles_lib.inputs import large, random
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner.sides import ALL, BOTH
from puzzles_lib.translator.ir import Location, Operation, Value

MOST_ELEMENTS = 1 << 22  # of all tensors of a case together
MOST_TO_RUN = 1100  # programs of a case
FAR = 80  # times a number is beyond it, where how far is not known
MOST_FAR = 8192
ROUNDS = 6  # in which a size grows until there are enough programs
BEYOND = 1.25, 9  # times a number, such as a word's position times the fields of a word
MOST_CASES = 40  # that are made for one kernel
SECONDS = 3.0  # for each, and twice that for all
LIKE_INFINITY = 1e20
_COPIES = (
    "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "arith.extsi", "arith.extui",
    "arith.index_cast", "arith.sitofp", "arith.uitofp", "arith.extf", "arith.truncf", "arith.trunci",
)  # fmt: skip
_LOADS = ("tt.load", "tt.descriptor_load")
_BITCASTS = ("arith.bitcast", "tt.bitcast")
_OPAQUE = ("tt.atomic_rmw", "tt.atomic_cas")  # what these return depends on other programs
_TRITON = str(triton.__path__[0])
TELLING = ("values", "never written", "out of bounds", "race", "uninitialised", "loads", "input changed")
"""The kinds of verdict on a made case that count. Running out of time or memory there is no fault."""
_FLOAT = re.compile(r"-?\d+\.\d+(E[+-]?\d+)?", re.IGNORECASE)
Exponents = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]
Place = tuple[Location, str, str, int]


@dataclass
class Untested:
    """The comparisons of a check's cases, by their place in the source, and what was seen of each.

    A loop that the compiler unrolls compares several times in one place: each time counts as a place.
    """

    seen: dict[Place, int] = field(default_factory=dict)
    ops: dict[Place, Operation] = field(default_factory=dict)

    def note(self, sides: Mapping[Operation, int]) -> None:
        """Add what a run has seen."""
        count: dict[tuple[Location, str, str], int] = {}
        for op, outcome in sides.items():
            if op.location.file.startswith(_TRITON):
                continue
            at = (op.location, op.name, op.attributes.get("predicate", ""))
            count[at] = count.get(at, 0) + 1
            place = (*at, count[at])
            self.seen[place] = self.seen.get(place, 0) | outcome
            self.ops[place] = op

    def one_sided(self) -> Iterator[Operation]:
        """Yield the comparisons of which not all sides were seen, unless they look at constants or locks."""
        for place, outcome in self.seen.items():
            op = self.ops[place]
            needed = ALL if _may_stand_for_zero(op) else BOTH
            fixed = op.operands[1:2] if op.name == "scf.for" else op.operands
            if outcome & needed == needed or (op.name == "scf.for") != all(literal(value) for value in fixed):
                continue
            if not depends_on(op.operands) & set(_OPAQUE):
                yield op


def _may_stand_for_zero(op: Operation) -> bool:
    """Return whether an operation compares floats, or their bits, with one number."""
    if op.name in ("arith.trunci", "scf.for") or len(op.operands) < 2 or not literal(op.operands[1]):
        return False
    return _is_float(op) or _reads_bits(op.operands)


def _is_float(op: Operation) -> bool:
    return bool(re.match(r"b?f\d", op.operands[0].type.element))


def _is_idle(op: Operation) -> bool:
    """Return whether an operation casts bits to the type that they have."""
    return op.name in _BITCASTS and op.operands[0].type.element == op.results[0].type.element


def _reads_bits(values: Iterable[Value]) -> bool:
    """Return whether values are computed from the bits of others."""
    makers = (value.maker for value in _sources(values))
    return any(op is not None and op.name in _BITCASTS and not _is_idle(op) for op in makers)


def literal(value: Value) -> str:
    """Return a constant's value as text; "" if the value isn't a constant."""
    while value.maker is not None and (value.maker.name in _COPIES or _is_idle(value.maker)):
        value = value.maker.operands[0]
    if value.maker is None or value.maker.name != "arith.constant":
        return ""
    return re.sub(r"^dense<(.*)>$", r"\1", value.maker.attributes["value"].rsplit(" : ", 1)[0])


def depends_on(values: Iterable[Value]) -> set[str]:
    """Return the names of the operations that values come from."""
    return {value.maker.name for value in _sources(values) if value.maker is not None}


def _sources(values: Iterable[Value]) -> set[Value]:
    """Return values and all that they are computed from, as far back as to loads."""
    todo, seen = list(values), set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.maker is None or value.maker.name in _LOADS:
            continue
        todo += value.maker.operands
        for region in value.maker.regions:
            todo += [operand for block in region.blocks for operand in block.operations[-1].operands]
    return seen


def cases(puzzle: Puzzle, op: Operation) -> Iterator[Case]:
    """Yield cases in which a comparison may come out the other way."""
    if not op.operands or not (puzzle.contract or puzzle.number):  # a puzzle of the learner's own
        return
    sources = depends_on(op.operands)
    if _is_float(op) or _reads_bits(op.operands):
        if sources & set(_LOADS):
            yield from _of_any_size(puzzle, _float(op))
    elif puzzle.contract and op.operands[0].type.element.startswith("i"):
        yield from sorted(_larger(puzzle, _number(op)), key=lambda case: _work(puzzle, case))


def _number(op: Operation) -> int:
    """Return the number that something is compared with; if it is computed, a guess at how large it is."""
    if op.name == "arith.trunci":
        return 1 << int(op.results[0].type.element[1:]) - 1
    if op.name == "scf.for":
        return _integer(op.operands[1])
    if number := max(map(_integer, op.operands)):
        return number
    return FAR * max(map(_integer, _sources(op.operands)), default=1)


def _float(op: Operation) -> float:
    """Return the absolute value of the float that something is compared with; 0 if there is none."""
    texts = [literal(value) for value in op.operands]
    return max((abs(float(text)) for text in texts if _FLOAT.fullmatch(text)), default=0.0)


def _integer(value: Value) -> int:
    """Return the absolute value of an integer constant; 0 if a value is none."""
    text = literal(value)
    return abs(int(text)) if re.fullmatch(r"-?\d+", text) else 0


def _larger(puzzle: Puzzle, number: int) -> Iterator[Case]:
    """Yield cases in which a size, or the number of programs along an axis, is larger than a number."""
    assert puzzle.contract is not None
    for times in BEYOND:
        least = int(number * times) + 1
        if times > 2 and least > MOST_FAR:  # a spec may take its square in memory
            continue
        for names in (*((name,) for name in puzzle.contract.sizes), puzzle.contract.sizes):
            for block in (max, min):
                if case := _case(puzzle, names, least, block):
                    yield case
    for name in puzzle.contract.sizes:
        yield from _more_programs(puzzle, name, number)


def _more_programs(puzzle: Puzzle, name: str, number: int) -> Iterator[Case]:
    """Yield cases in which there are more programs along an axis than a number, because of one size."""
    for axis in range(len(puzzle.grid(puzzle.cases[0]))):
        size = number + 1
        for _ in range(ROUNDS):
            case = _case(puzzle, (name,), size, min)
            if case is None:
                break
            count = puzzle.programs(case)[axis]
            if count > number:
                yield case
                break
            size = size * (number + 2) // max(count, 1) + 1


def _work(puzzle: Puzzle, case: Case) -> int:
    """Return a rough measure of the time that a case takes."""
    programs = math.prod(puzzle.programs(case))
    return programs * 2000 + sum(math.prod(tensor.shape(case.numbers)) for tensor in puzzle.tensors)


def _case(
    puzzle: Puzzle, names: Sequence[str], least: int, block: Callable[[Iterable[int]], int]
) -> Case | None:
    """Return a case in which sizes are at least so large; None if it would be too large to run."""
    assert puzzle.contract is not None
    if least > MOST_ELEMENTS:
        return None
    seed = f"{puzzle.name}/{' '.join(names)}/{least}"
    numbers = puzzle.contract.stretched(names, least, block, seed, puzzle.largest)
    elements = sum(math.prod(tensor.shape(numbers)) for tensor in puzzle.tensors)
    if elements > MOST_ELEMENTS:
        return None
    fill = min(puzzle.contract.fills(SimpleNamespace(**numbers)), key=len)
    case = Case(fill=fill, salt="", pretend=False, **numbers)
    return case if math.prod(puzzle.programs(case)) <= MOST_TO_RUN else None


def _of_any_size(puzzle: Puzzle, number: float) -> Iterator[Case]:
    """Yield cases whose floats are smaller than in other cases, and larger if the number is so large.

    An input that all cases fill in a way of their own stays as it is: its values may have to fit others.
    """
    listed = [case for case in puzzle.cases if not case.pretend]
    shapes = {argument.name: argument for argument in puzzle.inputs}
    names = [
        name
        for name, argument in shapes.items()
        if argument.dtype.is_floating_point
        and name not in (puzzle.derived or {})
        and any(name not in case.fill for case in listed)
    ]

    def scaled(names: Sequence[str], exponents: Exponents) -> Case:
        plain = [case for case in listed if not set(names) & set(case.fill)] or listed
        case = max(plain, key=lambda case: math.prod(shapes[names[0]].shape(case.numbers)))
        fill = {name: _scaled(case.fill.get(name, random), exponents) for name in names}
        return Case(fill=case.fill | fill, **case.numbers)

    for name in names:
        yield scaled([name], closer_to_zero)
        yield scaled([name], rows_closer_to_zero)
    if len(names) > 1:
        yield scaled(names, rows_a_little_closer)
    for name in names:
        if 1 < number < LIKE_INFINITY and any(case.fill.get(name) is large for case in listed):
            yield scaled([name], larger)


def _scaled(fill: Fill, exponents: Exponents) -> Fill:
    """Return a fill whose values are those of another one, scaled by powers of two."""

    def scaled(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        values = fill(shape, dtype, generator)
        return (values.double() * torch.exp2(exponents(shape, generator).double())).to(dtype)

    scaled.__name__ = exponents.__name__ if fill is random else f"{fill.__name__}_{exponents.__name__}"
    return scaled


def closer_to_zero(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return exponents from -126 to 0 for each value, most of them nearer to 0."""
    return (-126 * torch.rand(shape, generator=generator).square()).round()


def rows_closer_to_zero(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return exponents from -100 to 0 for each row."""
    return _by_row(shape) * -100


def rows_a_little_closer(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return exponents from -40 to 0 for each row, the same for all tensors."""
    return _by_row(shape) * -40


def larger(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Return exponents from 0 to 40 for each value."""
    return torch.randint(0, 41, shape, generator=generator)


def _by_row(shape: tuple[int, ...]) -> torch.Tensor:
    """Return a number from 0 to 1 for each row along the first axis, which depends on the row alone."""
    rows = 1 - (torch.arange(shape[0]) * 0.618034) % 1
    return rows.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)


def named(verdict: Verdict, listed: Untested, made: Untested) -> Verdict:
    """Return a verdict with the first line whose comparison has another outcome than in all listed cases."""
    untested = list(listed.one_sided())
    for place, op in listed.ops.items():
        if op in untested and made.seen.get(place, 0) & ~listed.seen[place]:
            line = op.location.line
            text = f"no listed case tests this outcome of the comparison on line {line}, but it can occur"
            return replace(verdict, diagnosis=text)
    for op in untested:
        bound = _integer(op.operands[1]) if op.name == "scf.for" else 0
        if bound and re.search(rf"\b{bound}\b", linecache.getline(op.location.file, op.location.line)):
            text = f"the loop on line {op.location.line} ends at {bound}, but a size may be larger"
            return replace(verdict, diagnosis=text)
    return verdict
