"""Find what no case of a puzzle has tested: comparisons that came out the same way every time.

A kernel whose results are wrong from the hundredth program on, or for numbers below 1e-30, passes every case
with fewer programs and larger numbers. Its IR shows it: something is compared with 100, or with 1e-30, and
the answer was always the same. Such a kernel is tried on cases made for it, which keep the puzzle's contract:
a size is larger than that number, or the values of an input come close to 0. Nearly all correct kernels have
no such comparison, so that the cases cost nothing.
"""

import itertools
import linecache
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import torch
import triton
from torch.utils._python_dispatch import TorchDispatchMode

from puzzles_lib.checker.expected import evaluate
from puzzles_lib.checker.report import Verdict
from puzzles_lib.contract import Fill
from puzzles_lib.inputs import large, random
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Program
from puzzles_lib.runner.sides import ALL, BOTH
from puzzles_lib.translator.ir import Location, Operation, Value

MOST_ELEMENTS = 1 << 22  # of all tensors of a case together
MOST_IN_A_STEP = 1 << 26  # elements of what a spec makes on the way
MOST_TO_RUN = 1100  # programs of a case
FAR = 80  # times a number is beyond it, where how far is not known
MOST_FAR = 8192
LEAST_VAST = 1000  # where a case beyond a number may be too large to run all of it
MOST_AT_EDGES = 12  # programs that run of a case with more than there is time for
ROUNDS = 6  # in which a size grows until there are enough programs
BEYOND = 1.25, 9  # times a number, such as a word's position times the fields of a word
MOST_CASES = 40  # that are made for one kernel
MOST_GUESSES = 2  # of them for one comparison of computed numbers
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
TELLING = (
    "values", "never written", "out of bounds", "race", "uninitialised", "loads", "stores", "input changed",
)  # fmt: skip
"""The kinds of verdict on a made case that count. Running out of time or memory there is no fault."""
AT_EDGES = ("values", "out of bounds", "race")
"""The kinds of verdict that count if only a few programs run."""
FOR_EDGES = 0.4  # of the time for all made cases
_FLOAT = re.compile(r"-?\d+\.\d+(E[+-]?\d+)?", re.IGNORECASE)
Exponents = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]
Place = tuple[Location, str, str, int]


@dataclass
class Untested:
    """The comparisons of a check's cases, by their place in the source, and what was seen of each.

    A loop that the compiler unrolls compares several times in one place: each time counts as a place.
    repeats: whether two programs of a case have stored the same element.
    """

    seen: dict[Place, int] = field(default_factory=dict)
    ops: dict[Place, Operation] = field(default_factory=dict)
    repeats: bool = False

    def note(self, sides: Mapping[Operation, int], repeats: bool = False) -> None:
        """Add what a run has seen. repeats: whether two programs stored the same element."""
        self.repeats |= repeats
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
    elif _counts(puzzle, op):
        found = sorted(_larger(puzzle, _number(op)), key=lambda case: _work(puzzle, case))
        yield from found if _is_bound(op) else found[:MOST_GUESSES]


def vast_cases(puzzle: Puzzle, op: Operation) -> Iterator[tuple[Case, list[Program]]]:
    """Yield cases of any number of programs in which an integer may pass a bound, and programs to run.

    These are the programs at the edges of the grid, and those that have the same number as one of these after
    the bound.
    """
    if not _counts(puzzle, op) or not _is_bound(op) or puzzle.zeroed or puzzle.in_place:
        return
    number = _number(op)
    if number < LEAST_VAST:
        return
    for case in sorted(_larger(puzzle, number, math.inf), key=lambda case: size_of(puzzle, case)):
        axes = []
        for count in puzzle.programs(case):
            last = count - 1
            bounded = last & number, last % max(number, 1), last % (number + 1), min(last, number)
            axes.append(dict.fromkeys([last, 0, *bounded]))
        yield case, [(x, y, z) for x, y, z in itertools.islice(itertools.product(*axes), MOST_AT_EDGES)]


def fits(puzzle: Puzzle, case: Case) -> bool:
    """Return whether the spec of a case needs little memory for each of its steps.

    The spec runs on tensors without data. If it needs data, no number of the case may be large, because the
    spec may take a square of it.
    """
    if max(case.numbers.values()) <= MOST_FAR:
        return True
    steps = _Steps()
    empty = {a.name: torch.empty(a.shape(case.numbers), dtype=a.dtype, device="meta") for a in puzzle.inputs}
    try:
        with steps:
            evaluate(puzzle, case, empty)
    except Exception:
        return False
    return steps.largest <= MOST_IN_A_STEP


class _Steps(TorchDispatchMode):
    """Notes the number of elements of the largest tensor that is made."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor):
                self.largest = max(self.largest, each.numel())
        return made


def _counts(puzzle: Puzzle, op: Operation) -> bool:
    """Return whether an operation bounds an integer that may grow with a puzzle's sizes."""
    if not op.operands or not puzzle.contract or _is_float(op) or _reads_bits(op.operands):
        return False
    return op.operands[0].type.element.startswith("i")


def _is_bound(op: Operation) -> bool:
    """Return whether an operation limits an integer to a number that the kernel's source has."""
    return op.name in ("arith.trunci", "scf.for") or any(map(literal, op.operands))


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


def _larger(puzzle: Puzzle, number: int, most: float = MOST_TO_RUN) -> Iterator[Case]:
    """Yield cases in which a size, or the number of programs along an axis, is larger than a number.

    most: the number of programs that a case may have.
    """
    assert puzzle.contract is not None
    sizes = puzzle.contract.sizes
    alone = [(name,) for name in (*sizes, *_counted(puzzle))]
    for times in BEYOND:
        least = int(number * times) + 1
        if times > 2 and least > MOST_FAR:  # a spec may take its square in memory
            continue
        for names in (*alone, sizes):
            for block in (max, min):
                if case := _case(puzzle, names, least, block, most):
                    yield case
    for pair in itertools.combinations(sizes, 2):  # a number such as row * N + n
        if case := _case(puzzle, pair, math.isqrt(2 * number) + 1, max, most):
            yield case
    for name in sizes:
        yield from _more_programs(puzzle, name, number, most)


def _counted(puzzle: Puzzle) -> Iterator[str]:
    """Yield the numbers that have a few values in a contract, but only count the programs along an axis."""
    assert puzzle.contract is not None
    listed = [case for case in puzzle.cases if not case.pretend]
    for name, kind in puzzle.contract.numbers.items():
        axes = zip(*(puzzle.programs(case) for case in listed), strict=True)
        own = tuple(case.numbers[name] for case in listed)
        if isinstance(kind, tuple) and len(set(own)) > 1 and own in set(axes):
            yield name


def _more_programs(puzzle: Puzzle, name: str, number: int, most: float) -> Iterator[Case]:
    """Yield cases in which there are more programs along an axis than a number, because of one size."""
    for axis in range(len(puzzle.grid(puzzle.cases[0]))):
        size = number + 1
        for _ in range(ROUNDS):
            case = _case(puzzle, (name,), size, min, most)
            if case is None:
                break
            count = puzzle.programs(case)[axis]
            if count > number:
                yield case
                break
            size = size * (number + 2) // max(count, 1) + 1


def _work(puzzle: Puzzle, case: Case) -> int:
    """Return a rough measure of the time that a case takes."""
    return math.prod(puzzle.programs(case)) * 2000 + size_of(puzzle, case)


def size_of(puzzle: Puzzle, case: Case) -> int:
    """Return the number of elements of a case's tensors."""
    return sum(math.prod(tensor.shape(case.numbers)) for tensor in puzzle.tensors)


def _case(
    puzzle: Puzzle,
    names: Sequence[str],
    least: int,
    block: Callable[[Iterable[int]], int],
    most: float,
) -> Case | None:
    """Return a case in which sizes are at least so large; None if it would be too large to run."""
    assert puzzle.contract is not None
    if least > MOST_ELEMENTS:
        return None
    seed = f"{puzzle.name}/{' '.join(names)}/{least}/{block.__name__}"
    numbers = puzzle.contract.stretched(names, least, block, seed, puzzle.largest)
    if sum(math.prod(tensor.shape(numbers)) for tensor in puzzle.tensors) > MOST_ELEMENTS:
        return None
    fill = min(puzzle.contract.fills(SimpleNamespace(**numbers)), key=len)
    plain = {name for name in fill if any(name not in case.fill for case in puzzle.cases if not case.pretend)}
    case = Case(fill={n: f for n, f in fill.items() if n not in plain}, salt="", pretend=False, **numbers)
    return case if math.prod(puzzle.programs(case)) <= most else None


def _free(puzzle: Puzzle) -> list[str]:
    """Return the inputs of floats that not all listed cases fill in a way of their own."""
    listed = [case for case in puzzle.cases if not case.pretend]
    return [
        argument.name
        for argument in puzzle.inputs
        if argument.dtype.is_floating_point
        and argument.name not in (puzzle.derived or {})
        and any(argument.name not in case.fill for case in listed)
    ]


def telling_cases(puzzle: Puzzle, ops: Iterable[Operation]) -> Iterator[Case]:
    """Yield cases with values that some comparisons take for others, although both sides were seen.

    To integers, 0 and -0 differ. And a block of zeros isn't the end of a row.
    """
    loaded = [op for op in ops if set(_LOADS) & depends_on(op.operands)] if puzzle.contract else []
    if any(not _is_float(op) and _reads_bits(op.operands) for op in loaded):
        yield from (_filled(puzzle, name, zeros_of_both_signs) for name in _free(puzzle))
    if any(op.name == "arith.cmpf" and _is_reduced(op) and _is_zero(op.operands[1]) for op in loaded):
        yield from (_filled(puzzle, name, zeros_in_stretches) for name in _free(puzzle))


def _is_reduced(op: Operation) -> bool:
    """Return whether an operation takes what a reduction, such as the function `tl.max`, returns."""
    return bool({"tt.reduce", "tt.call"} & depends_on(op.operands))


def _is_zero(value: Value) -> bool:
    return literal(value) == "0" or bool(_FLOAT.fullmatch(literal(value)) and not float(literal(value)))


def _filled(puzzle: Puzzle, name: str, fill: Fill) -> Case:
    """Return the largest listed case that doesn't fill an input in a way of its own, with a fill for it."""
    plain = [case for case in puzzle.cases if not case.pretend and name not in case.fill]
    case = max(plain, key=lambda case: size_of(puzzle, case))
    return Case(fill=case.fill | {name: fill}, **case.numbers)


def zeros_in_stretches(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Fill with normal values; of 128 along the last axis, the second 64 are 0."""
    return random(shape, dtype, generator) * (torch.arange(shape[-1]) // 64 % 2 == 0).to(dtype)


def zeros_of_both_signs(
    shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Fill with values up to 0, half of which are 0 or -0."""
    values = -random(shape, torch.float32, generator).relu()
    signs = torch.randint(0, 2, shape, generator=generator) * 2.0 - 1
    return torch.where(values == 0, 0.0 * signs, values).to(dtype)


def _of_any_size(puzzle: Puzzle, number: float) -> Iterator[Case]:
    """Yield cases whose floats are smaller than in other cases, and larger if the number is so large.

    An input that all cases fill in a way of their own stays as it is: its values may have to fit others.
    """
    listed = [case for case in puzzle.cases if not case.pretend]
    shapes = {argument.name: argument for argument in puzzle.inputs}
    names = _free(puzzle)

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
