"""Find what no case of a puzzle has tested: comparisons that came out the same way every time.

A kernel whose results are wrong from the hundredth program on, or for numbers below 1e-30, passes every case
with fewer programs and larger numbers. Its IR shows it: something is compared with 100, or with 1e-30, and
the answer was always the same. `made_cases` makes cases in which it may come out the other way.
"""

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import triton

from puzzles_lib.checker.report import Verdict
from puzzles_lib.runner.sides import ALL, BOTH
from puzzles_lib.translator.ir import Location, Operation, Value

LOADS = ("tt.load", "tt.descriptor_load")
_COPIES = (
    "tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "arith.extsi", "arith.extui",
    "arith.index_cast", "arith.sitofp", "arith.uitofp", "arith.extf", "arith.truncf", "arith.trunci",
)  # fmt: skip
WORDS = {
    "arith.andi": "&", "arith.divsi": "division", "arith.divui": "division", "arith.maxsi": "maximum",
    "arith.maxui": "maximum", "arith.minsi": "minimum", "arith.minui": "minimum", "arith.remsi": "remainder",
    "arith.remui": "remainder", "arith.trunci": "cast",
}  # fmt: skip
"""What a report calls an operation that counts as a comparison."""
DIVISIONS = ("arith.divsi", "arith.divui")
BITCASTS = ("arith.bitcast", "tt.bitcast")
_OPAQUE = ("tt.atomic_rmw", "tt.atomic_cas")  # what these return depends on other programs
TRITON = str(triton.__path__[0])
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
            if op.location.file.startswith(TRITON):
                continue
            at = (op.location, op.name, op.attributes.get("predicate", ""))
            count[at] = count.get(at, 0) + 1
            place = (*at, count[at])
            self.seen[place] = self.seen.get(place, 0) | outcome
            if place not in self.ops or not _has_fewer_parameters(op, self.ops[place]):
                self.ops[place] = op

    def one_sided(self) -> Iterator[Operation]:
        """Yield the comparisons of which not all sides were seen, unless they look at constants or locks."""
        for place, outcome in self.seen.items():
            op = self.ops[place]
            needed = ALL if _may_stand_for_zero(op) else BOTH
            if op.name in DIVISIONS and not integer(op.operands[1]):
                continue  # by a size
            fixed = op.operands[1:2] if op.name == "scf.for" else op.operands
            if outcome & needed == needed or (op.name == "scf.for") != all(literal(value) for value in fixed):
                continue
            if not depends_on(op.operands) & set(_OPAQUE):
                yield op


def named(verdict: Verdict, listed: Untested, made: Untested) -> Verdict:
    """Return a verdict with the first line whose comparison has another outcome than in all listed cases."""
    untested = list(listed.one_sided())
    for place, op in listed.ops.items():
        if op in untested and made.seen.get(place, 0) & ~listed.seen[place]:
            line = op.location.line
            what = WORDS.get(op.name, "comparison")
            text = f"the {what} on line {line} has a result here that it has in no listed case"
            return replace(verdict, diagnosis=text)
    for op in untested:
        bound = integer(op.operands[1]) if op.name == "scf.for" else 0
        if bound and re.search(rf"\b{bound}\b", linecache.getline(op.location.file, op.location.line)):
            text = f"the loop on line {op.location.line} ends at {bound}, but a size may be larger"
            return replace(verdict, diagnosis=text)
    return verdict


# ---- what the IR says of an operation


def _has_fewer_parameters(op: Operation, other: Operation) -> bool:
    """Return whether an operand is a constant where in another launch it's a size, because that isn't 1."""
    each = zip(op.operands, other.operands, strict=False)
    return any(literal(value) and not literal(instead) for value, instead in each)


def _may_stand_for_zero(op: Operation) -> bool:
    """Return whether an operation compares floats, or their bits, with one number."""
    if op.name in ("arith.trunci", "scf.for") or len(op.operands) < 2 or not literal(op.operands[1]):
        return False
    return is_float(op) or reads_bits(op.operands)


def is_float(op: Operation) -> bool:
    return bool(re.match(r"b?f\d", op.operands[0].type.element))


def _is_idle(op: Operation) -> bool:
    """Return whether an operation casts bits to the type that they have."""
    return op.name in BITCASTS and op.operands[0].type.element == op.results[0].type.element


def reads_bits(values: Iterable[Value]) -> bool:
    """Return whether values are computed from the bits of others."""
    makers = (value.maker for value in sources(values))
    return any(op is not None and op.name in BITCASTS and not _is_idle(op) for op in makers)


def literal(value: Value) -> str:
    """Return a constant's value as text; "" if the value isn't a constant."""
    while value.maker is not None and (value.maker.name in _COPIES or _is_idle(value.maker)):
        value = value.maker.operands[0]
    if value.maker is None or value.maker.name != "arith.constant":
        return ""
    return re.sub(r"^dense<(.*)>$", r"\1", value.maker.attributes["value"].rsplit(" : ", 1)[0])


def depends_on(values: Iterable[Value]) -> set[str]:
    """Return the names of the operations that values come from."""
    return {value.maker.name for value in sources(values) if value.maker is not None}


def sources(values: Iterable[Value]) -> set[Value]:
    """Return values and all that they are computed from, as far back as to loads."""
    todo, seen = list(values), set()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value.maker is None or value.maker.name in LOADS:
            continue
        todo += value.maker.operands
        for region in value.maker.regions:
            todo += [operand for block in region.blocks for operand in block.operations[-1].operands]
    return seen


def integer(value: Value) -> int:
    """Return the absolute value of an integer constant; 0 if a value is none."""
    text = literal(value)
    return abs(int(text)) if re.fullmatch(r"-?\d+", text) else 0
