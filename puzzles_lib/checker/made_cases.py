"""Make cases for what a kernel does that no listed case exercises; `untested` finds that.

Made cases keep the puzzle's contract, so a correct kernel passes them. The left column says what an operation
of the kernel looks at. Three dots continue the line above. The right column says which cases are made for it:

    a kernel's numbers alone are compared         sizes that turn the comparison: `turning`
    ... in any way                                a size that blocks divide, beside ragged ones: `uneven`
    ... and so are others                         sizes that turn two comparisons at once: `together`
    an integer that was loaded is compared        inputs with the other number: `with_a_number`
    an integer is compared with 100, or cut off   a size, or a number of programs, beyond 100: `beyond`
    100 lanes are compared with a size            the same, if no block grows with the size: `beyond_lanes`
    ... or divided by 100, and 0 is left          the same
    ... with 32768, or cut off at 16 bits         the same, running only the grid's edges: `at_edges`
    ... cut off at 16 bits                        a pretended size beyond it: `at_true_size`
    an offset passes through a float              2^25 elements that exist as a formula: `at_true_size`
    a float is compared, or made of bits          values closer to 0, and larger ones: `of_any_size`
    ... with 1e-30 or 1e30                        values near it, or results beyond it: `at_a_limit`
    a float has 64 added and taken away again     values closer to 0: `small_ones`
    ... or is cut to an integer and divided       the same
    a whole number becomes float16 or bfloat16    a size, or programs, beyond 2048 or 256: `beyond_whole`
    a float becomes float16, as no tensor is      numbers beyond it: `beyond_half`
    the bits of a float are compared              zeros of both signs: `with_zeros`
    a float is made of bits                       zeros alone: `with_zeros`
    a maximum or a sum is compared with 0         blocks of zeros, or zeros alone: `with_zeros`

The last four, and `uneven`, are made even if both outcomes of the comparison were seen.
Nearly all correct kernels have no such comparison, so these cases cost nothing.

Also, a launch turns the integer 1 into a constant. Where a kernel uses a method of a size or a stride, such
as ``N.to(tl.int64)``, all sizes are as small as the contract allows: `smallest`.
"""

import ast
import inspect
import itertools
import math
import operator
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from puzzles_lib.checker.expected import evaluate
from puzzles_lib.checker.untested import (
    BITCASTS,
    DIVISIONS,
    LOADS,
    TRITON,
    depends_on,
    integer,
    is_float,
    literal,
    reads_bits,
    sources,
)
from puzzles_lib.contract import Fill
from puzzles_lib.inputs import large, make_inputs, random, zeros
from puzzles_lib.puzzle import MOST_PROGRAMS, Argument, Case, Puzzle
from puzzles_lib.runner import Program
from puzzles_lib.source import nodes_of
from puzzles_lib.translator.ir import Module, Operation, Value, is_read_unsigned

# ---- limits

MOST_CASES = 40  # that are made for one kernel
MOST_GUESSES = 2  # of them for one comparison of computed numbers
SECONDS = 3.0  # for each, and twice that for all
PRETENDED_SECONDS = 0.5  # for a case that is pretended: its last programs, which tell most, run first
FOR_THE_KERNEL = 0.6  # times these seconds, besides, for cases made whatever was seen
MOST_TOGETHER = 6  # comparisons that are tried in pairs
FOR_EDGES = 0.4  # of the time for all, for cases of which only programs at the edges run
MOST_ELEMENTS = 1 << 22  # of all tensors of a case together
MOST_IN_A_STEP = 1 << 26  # elements of what a spec makes on the way
SMALL = 2048  # a number whose square is less
PROBED = 64  # a size at which the sizes of a spec's steps are found
MOST_TO_RUN = 1100  # programs of a case
MOST_AT_EDGES = 12  # programs that run of a case with more than there is time for
MOST_NARROWED = 24  # pretended cases for one cast to a narrower integer
MOST_LOOPS = 256  # iterations of a pretended case that take little time
MOST_INTEGERS = 1 << 20  # of an input that is real in a pretended case

# ---- verdicts on made cases that count

TELLING = (
    "values", "never written", "out of bounds", "race", "uninitialized", "loads", "stores", "operations",
    "input changed", "false hint",
)  # fmt: skip
"""Kinds that count if all programs run. Running out of time or memory there is no fault."""
UNRELATED = ("out of bounds", "race", "loads", "stores", "operations", "input changed")
"""Kinds of which a hard case that happens to find them doesn't say the reason."""
AT_EDGES = ("values", "out of bounds", "race")
"""Kinds that count if only a few programs run."""

_FLOAT = re.compile(r"-?\d+\.\d+(E[+-]?\d+)?", re.IGNORECASE)
Exponents = Callable[[tuple[int, ...], torch.Generator], torch.Tensor]


def cases(puzzle: Puzzle, op: Operation) -> Iterator[Case]:
    """Yield cases in which a comparison may come out the other way."""
    if not op.operands or not (puzzle.contract or puzzle.number):  # a puzzle of the learner's own
        return
    sources = depends_on(op.operands)
    if is_float(op) or reads_bits(op.operands):
        if sources & set(LOADS):
            yield from of_any_size(puzzle, _float(op))
            yield from at_a_limit(puzzle, _float(op, sign=1))
    elif chosen := with_a_number(puzzle, op):
        yield from chosen
    elif _counts(puzzle, op):
        if turned := turning(puzzle, op):
            yield from turned
            return
        found = sorted(beyond(puzzle, _number(op)), key=lambda case: _work(puzzle, case))
        yield from found if _is_bound(op) else found[:MOST_GUESSES]


def smallest(puzzle: Puzzle, source: str) -> Case | None:
    """Return a case whose sizes are as small as the contract allows.

    None unless the kernel, whose source this is, has a method of a size or a stride that is then 1.
    """
    asked = _asked_for_a_method(source)
    case = of_least_sizes(puzzle) if asked else None
    if case is None:
        return None
    offers = puzzle.offers(case)
    return case if any(offers.get(name) == 1 for name in asked) else None


def of_least_sizes(puzzle: Puzzle) -> Case | None:
    """Return a case whose sizes are as small as the contract allows; None without a contract."""
    if puzzle.contract is None:
        return None
    numbers = puzzle.contract.least(puzzle.cases[0].numbers)
    return Case(fill=_fills(puzzle, numbers), salt="", pretend=False, **numbers)


def _asked_for_a_method(source: str) -> set[str]:
    """Return the names of which a method or an attribute is used."""
    nodes = nodes_of(textwrap.dedent(source))
    return {
        node.value.id
        for node in nodes
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id != "tl"
    }


def fits(puzzle: Puzzle, case: Case) -> bool:
    """Return whether the spec of a case needs little memory for each of its steps.

    The sizes of its steps are extrapolated from small cases. If these can't tell, no number may be large,
    because the spec may take a square of it.
    """
    numbers = case.numbers
    if max(numbers.values()) <= SMALL:
        return True
    growing = [name for name, number in numbers.items() if number > PROBED]
    small = numbers | dict.fromkeys(growing, PROBED)
    try:
        steps = _step_sizes(puzzle, small)
        doubled = {name: _step_sizes(puzzle, small | {name: 2 * PROBED}) for name in growing}
        if any(len(sizes) != len(steps) for sizes in doubled.values()):  # a loop over elements
            steps, doubled = [max(steps)], {name: [max(sizes)] for name, sizes in doubled.items()}
        expected = list(map(float, steps))
        for name, sizes in doubled.items():
            for step, (one, two) in enumerate(zip(steps, sizes, strict=True)):
                expected[step] *= (numbers[name] / PROBED) ** math.log2(two / one)
    except Exception:  # the spec refuses such sizes
        return max(numbers.values()) <= MOST_FAR
    return max(expected) <= MOST_IN_A_STEP


def _step_sizes(puzzle: Puzzle, numbers: dict[str, int]) -> list[int]:
    """Return the number of elements, at least 1, of each tensor that the spec of a case makes."""
    zero = {a.name: torch.zeros(a.shape(numbers), dtype=a.dtype) for a in puzzle.inputs}
    with _Steps() as steps:
        evaluate(puzzle, Case(fill=None, salt="", pretend=False, **numbers), zero)
    return steps.sizes


class _Steps(TorchFunctionMode):
    """Notes the sizes of the tensors that are made."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        for each in made if isinstance(made, tuple | list) else (made,):
            if isinstance(each, torch.Tensor):
                self.sizes.append(max(each.numel(), 1))
        return made


def size_of(puzzle: Puzzle, case: Case) -> int:
    """Return the number of elements of a case's tensors."""
    return sum(math.prod(tensor.shape(case.numbers)) for tensor in puzzle.tensors)


# ---- sizes and numbers of programs beyond a number

FAR = 80  # times a number is beyond it, where how far is not known
MOST_FAR = 8192
BEYOND = 1.25, 9  # times a number, such as a word's position times the fields of a word
PRETENDED = 1 / 8, *BEYOND, FAR  # likewise, or fewer, such as pages: for cases without values
ROUNDS = 6  # in which a size grows until there are enough programs
PAST_FLOAT32 = (1 << 25) + 1, (1 << 24) + 1, 1 << 24
# The first two are no numbers of float32, and some grids can have only the second. The third plus 31 is none.
RAGGED, EVEN = 5, 64  # sizes that no block divides, and that nearly all blocks divide
FEW = 3  # other sizes then: in row 0, a wrong length of rows has no effect
MOST_PRETENDED = 1 << 31  # elements, so that int32 holds their offsets
LEAST_NARROW = 100  # bounds of casts to fewer bits are no integers of the source
BESIDE = 2048  # another size, beside one that passes a number
LEAST_VAST = 1000  # where a case beyond a number may be too large to run all of it


def beyond(
    puzzle: Puzzle, number: int, most: float = MOST_TO_RUN, elements: int = MOST_ELEMENTS
) -> Iterator[Case]:
    """Yield cases in which a size, or the number of programs along an axis, is larger than a number.

    most: the number of programs that a case may have. elements: those of all its tensors together.
    """
    assert puzzle.contract is not None
    sizes = puzzle.contract.sizes
    alone = [(name,) for name in dict.fromkeys([*sizes, *_counted(puzzle), *puzzle.contract.free])]
    pretended = elements > MOST_ELEMENTS
    for times in PRETENDED if pretended else BEYOND:
        least = int(number * times) + 1
        if times > 2 and least > MOST_FAR and not pretended:  # a spec may take its square in memory
            continue
        for names in (*alone, sizes):
            for block in (max, min):
                if case := _case(puzzle, dict.fromkeys(names, least), block, most, elements):
                    yield case
    for pair in itertools.combinations(sizes, 2):
        both = int(number * BEYOND[0]) + 1  # such as a filter and an image, each wider than a number
        for least in (math.isqrt(2 * number) + 1, both):  # the first for a number such as row * N + n
            if case := _case(puzzle, dict.fromkeys(pair, least), max, most, elements):
                yield case
    for name in sizes:
        yield from _more_programs(puzzle, name, number, most, elements)


def beyond_lanes(puzzle: Puzzle, ops: Iterable[Operation]) -> Iterator[tuple[Case, tuple[int, int]]]:
    """Yield cases in which a size is larger than a `tl.arange` that is compared with it.

    Also the line of the `tl.arange`, and where it ends. Lanes from 0 on cover a whole axis: either their
    number is that of a block of the case, which grows with the axis, or the axis must not grow beyond it.
    """
    if puzzle.contract is None:
        return
    most: dict[tuple[int, tuple[str, ...]], int] = {}
    for op in ops:
        if op.name != "arith.cmpi":
            continue
        for lanes, limit in (op.operands, op.operands[::-1]):
            if not depends_on((limit,)) <= _OF_LIMITS or (found := _lanes_from_0(lanes)) is None:
                continue
            names = {value.location.name for value in sources((limit,)) if value.maker is None}
            growing = tuple(name for name in (*puzzle.contract.sizes, *puzzle.contract.free) if name in names)
            line, count = found
            most[line, growing] = max(count, most.get((line, growing), 0))  # a loop may be unrolled
    for (line, growing), count in most.items():
        least = int(count * BEYOND[0]) + 1
        if growing:
            each = [
                _case(puzzle, {name: least}, block, MOST_TO_RUN, MOST_ELEMENTS)
                for name, block in itertools.product(growing, (min, max))
            ]
        else:  # such as a number of programs
            each = [
                case
                for name in puzzle.contract.sizes
                for case in _more_programs(puzzle, name, count, MOST_TO_RUN, MOST_ELEMENTS)
            ]
        own = count in _blocks([*puzzle.cases, *puzzle.drawn("")])
        larger = [case for case in each if case and not (own and max(_blocks([case]), default=0) >= least)]
        for case in sorted(larger, key=lambda case: _work(puzzle, case))[:MOST_GUESSES]:
            yield case, (line, count)


def _blocks(cases: Iterable[Case]) -> set[int]:
    """Return the sizes of the blocks of cases."""
    return {n for case in cases for name, n in case.numbers.items() if name.startswith("BLOCK") and n}


def _lanes_from_0(value: Value) -> tuple[int, int] | None:
    """Return the line of a `tl.arange` that a value is, with constants added, and where it ends."""
    found, end = None, 0
    for each in sources((value,)):
        if each.maker is None or each.maker.name not in _OF_LANES:
            return None
        if each.maker.name == "tt.make_range":
            found, end = each.maker.location.line, end + each.maker.integer("end")
        elif each.maker.name == "arith.constant":
            end += integer(each)
    return None if found is None else (found, end)


def turning(puzzle: Puzzle, op: Operation) -> list[Case]:
    """Return cases in which a comparison of a kernel's numbers comes out as in no listed case.

    Empty if it depends on more than these, such as the number of a program.
    """
    assert puzzle.contract is not None
    names = {value.location.name for value in sources(op.operands) if value.maker is None}
    growing = [name for name in (*puzzle.contract.sizes, *puzzle.contract.free) if name in names]
    growing += [name for name in _counted(puzzle) if name in names and name not in growing]
    known = {_outcome(op, case) for case in puzzle.cases if not case.pretend}
    if None in known:
        return []
    found: dict[str, Case] = {}
    for name, number in itertools.product(growing, _literals(op)):
        least = int(number * BEYOND[0]) + 1
        for wanted in (least,) if op.name in ("arith.minsi", "arith.maxsi") else (number, least):
            others = [{}, *({one: n} for one in puzzle.contract.sizes for n in (wanted, BESIDE))]
            for other, block in itertools.product(others, (max, min)):
                if name not in other and (block is max or BESIDE in other.values()):
                    case = _case(puzzle, {name: wanted} | other, block, MOST_TO_RUN, MOST_ELEMENTS)
                    if case and _outcome(op, case) not in known | {None}:
                        found[str(case)] = case
    return sorted(found.values(), key=lambda case: _work(puzzle, case))


def uneven(puzzle: Puzzle, products: bool = False) -> list[Case]:
    """Return cases in which blocks divide one size and no other.

    Also those in which one of a size's blocks divides it and a larger one doesn't. products: whether those
    come first in which the product of two blocks divides that of their sizes, but not each its own.
    """
    if puzzle.contract is None:
        return []
    found: dict[str, Case] = {}
    for name, block in itertools.product(puzzle.contract.sizes, (max, min)):
        ragged = dict.fromkeys(puzzle.contract.sizes, RAGGED)
        first = _case(puzzle, ragged, block, MOST_TO_RUN, MOST_ELEMENTS)
        blocks = [n for key, n in first.numbers.items() if key.startswith("BLOCK") and n] if first else []
        for number in sorted({EVEN, *blocks}):
            if case := _case(puzzle, ragged | {name: number}, block, MOST_TO_RUN, MOST_ELEMENTS):
                found[str(case)] = case
    others = list(_even_products(puzzle)) if products else []
    others += _even_for_one_block(puzzle)
    return [*others, *sorted(found.values(), key=lambda case: _work(puzzle, case))]


def _even_products(puzzle: Puzzle) -> Iterator[Case]:
    """Yield cases with half a block along one axis and two along another."""
    assert puzzle.contract is not None
    for short, long in itertools.permutations(puzzle.contract.sizes, 2):
        first = _case(puzzle, {}, min, MOST_TO_RUN, MOST_ELEMENTS)
        blocks = [first.numbers.get(f"BLOCK_{name}", 0) for name in (short, long)] if first else [0]
        if min(blocks) > 1:
            sizes = {short: blocks[0] // 2, long: 2 * blocks[1]}
            if case := _case(puzzle, sizes, min, MOST_TO_RUN, MOST_ELEMENTS):
                yield case


def _even_for_one_block(puzzle: Puzzle) -> Iterator[Case]:
    """Yield listed cases with another size, the smaller one of two blocks that no size gives a name to."""
    assert puzzle.contract is not None
    for case in puzzle.cases:
        of_a_size = {f"BLOCK_{name}" for name in case.numbers}
        own = {n for name, n in case.numbers.items() if name.startswith("BLOCK") and name not in of_a_size}
        if len(own) > 1 and not case.pretend and not case.fill:
            yield from (case.but(**{name: min(own)}) for name in puzzle.contract.sizes)


def compares_sizes(ops: Mapping[Any, Operation]) -> bool:
    """Return whether operations compare a kernel's numbers alone: it may leave out a mask for some sizes."""
    compared = (op.operands for op in ops.values() if op.name == "arith.cmpi")
    return any(_has_parameters(each) and depends_on(each) <= _OF_NUMBERS for each in compared)


def together(puzzle: Puzzle, ops: Mapping[Any, Operation]) -> Iterator[tuple[Case, tuple[int, int]]]:
    """Yield cases in which two comparisons come out as in no listed case, and the lines of the two.

    Each compares a kernel's numbers with a constant, or divides them by one and was 0 in all listed cases.
    One that asks for a remainder is left to `uneven`.
    """
    if puzzle.contract is None:
        return
    listed = [case for case in puzzle.cases if not case.pretend]
    found = []
    for op in ops.values():
        if op.name not in ("arith.cmpi", *DIVISIONS) or not _has_parameters(op.operands):
            continue
        if _literals(op) and depends_on(op.operands) <= _OF_NUMBERS - {"arith.remsi", "tt.call"}:
            outcomes = [_outcome(op, case) for case in listed]
            if None not in outcomes and (op.name == "arith.cmpi" or all(outcomes)):
                found.append((op, outcomes))
    for (one, left), (other, right) in itertools.combinations(found[:MOST_TOGETHER], 2):
        seen = set(zip(left, right, strict=True))
        for case in _near_both(puzzle, one, other):
            outcome = _outcome(one, case), _outcome(other, case)
            if None not in outcome and outcome not in seen:
                seen.add(outcome)
                yield case, (one.location.line, other.location.line)


def _near_both(puzzle: Puzzle, one: Operation, other: Operation) -> Iterator[Case]:
    """Yield cases in which the sizes that two operations compare are near their constants."""
    assert puzzle.contract is not None
    names = (*puzzle.contract.sizes, *puzzle.contract.free)
    own = [
        [name for name in names if name in {value.location.name for value in sources(op.operands)}]
        for op in (one, other)
    ]
    near = [sorted({max(n + by, 1) for n in _literals(op) for by in (0, 1, -1)}) for op in (one, other)]
    for first, second in itertools.product(*own):
        for x, y in itertools.product(*near):
            others = dict.fromkeys(puzzle.contract.sizes, max(x, y) + RAGGED) if max(x, y) <= EVEN else {}
            sizes = others | {first: x, second: y}
            if first != second and (case := _case(puzzle, sizes, max, MOST_TO_RUN, MOST_ELEMENTS)):
                yield case


def compares_products(ops: Mapping[Any, Operation]) -> bool:
    """Return whether operations compare something with a product of two of a kernel's numbers."""
    compared = (op.operands for op in ops.values() if op.name == "arith.cmpi")
    makers = (value.maker for each in compared for value in sources(each))
    products = (op.operands for op in makers if op is not None and op.name == "arith.muli")
    return any(all(value.maker is None for value in each) for each in products)


def _literals(op: Operation) -> list[int]:
    """Return the constants that an operation's operands are computed with, and its own."""
    return sorted({number for value in sources(op.operands) if (number := integer(value))})


def _outcome(op: Operation, case: Case) -> bool | None:
    """Return what a comparison of a case's numbers gives; None if it depends on more, or divides by 0."""
    try:
        x, y = (*(_computed(value, case) for value in op.operands), 0)[:2]
        return _compared(op, x, y)
    except (KeyError, ZeroDivisionError):
        return None


def _compared(op: Operation, x: int, y: int) -> bool:
    """Return what a comparison of two numbers gives. Raise KeyError if it isn't one."""
    if op.name == "arith.trunci":
        bits = int(op.results[0].type.element[1:])
        low = 0 if is_read_unsigned(op) else -1 << bits - 1
        return low <= x < low + (1 << bits)
    if op.name == "arith.cmpi":
        return _COMPARE[op.integer("predicate")](x, y)
    if op.name in ("arith.minsi", "arith.maxsi"):
        return x < y
    if op.name in DIVISIONS:
        return 0 <= x < y
    return _COMPUTE[op.name](x, y) == x


_OF_NUMBERS = {
    "arith.addi", "arith.andi", "arith.constant", "arith.divsi", "arith.extsi", "arith.muli", "arith.remsi",
    "arith.subi", "arith.trunci", "tt.call",
}  # fmt: skip
_OF_LIMITS = _OF_NUMBERS | {"tt.broadcast", "tt.get_num_programs", "tt.splat"}
_OF_LANES = {
    "arith.addi", "arith.constant", "arith.extsi", "tt.broadcast", "tt.expand_dims", "tt.make_range",
    "tt.reshape", "tt.splat",
}  # fmt: skip
_ORDERS = operator.lt, operator.le, operator.gt, operator.ge  # signed, then unsigned
_COMPARE = dict(enumerate([operator.eq, operator.ne, *_ORDERS, *_ORDERS]))
_COMPUTE: dict[str, Callable[[int, int], int]] = {
    "arith.addi": operator.add, "arith.andi": operator.and_, "arith.divsi": operator.floordiv,
    "arith.maxsi": max, "arith.minsi": min, "arith.muli": operator.mul, "arith.remsi": operator.mod,
    "arith.subi": operator.sub,
}  # fmt: skip


def _computed(value: Value, case: Case) -> int:
    """Return an integer that is computed from a case's numbers.

    Raises KeyError if it depends on more, and ZeroDivisionError.
    """
    maker = value.maker
    if maker is None:
        return case.numbers[value.location.name]
    if maker.name == "arith.constant" and re.fullmatch(r"-?\d+", literal(value)):
        return int(literal(value))
    if maker.name in ("arith.extsi", "arith.extui", "arith.trunci", "tt.splat", "tt.broadcast"):
        return _computed(maker.operands[0], case)
    if maker.name not in _COMPUTE:
        raise KeyError(maker.name)
    x, y = (_computed(each, case) for each in maker.operands[:2])
    return _COMPUTE[maker.name](x, y)


def _counted(puzzle: Puzzle) -> Iterator[str]:
    """Yield the numbers that have a few values in a contract, but only count the programs along an axis."""
    assert puzzle.contract is not None
    listed = [case for case in puzzle.cases if not case.pretend]
    for name, kind in puzzle.contract.numbers.items():
        axes = zip(*(puzzle.programs(case) for case in listed), strict=True)
        own = tuple(case.numbers[name] for case in listed)
        if isinstance(kind, tuple) and len(set(own)) > 1 and own in set(axes):
            yield name


def _more_programs(puzzle: Puzzle, name: str, number: int, most: float, elements: int) -> Iterator[Case]:
    """Yield cases in which there are more programs along an axis than a number, because of one size."""
    for axis in range(len(puzzle.grid(puzzle.cases[0]))):
        size = number + 1
        for _ in range(ROUNDS):
            case = _case(puzzle, {name: size}, min, most, elements)
            if case is None:
                break
            count = puzzle.programs(case)[axis]
            if count > number:
                yield case
                break
            size = size * (number + 2) // max(count, 1) + 1


def _case(
    puzzle: Puzzle,
    least: Mapping[str, int],
    block: Callable[[Iterable[int]], int],
    most: float,
    elements: int,
) -> Case | None:
    """Return a case in which sizes are at least so large; None if it would be too large to run."""
    assert puzzle.contract is not None
    if max(least.values(), default=0) > elements:
        return None
    each = "/".join(map(str, dict.fromkeys(least.values())))
    seed = f"{puzzle.name}/{' '.join(least)}/{each}/{block.__name__}"
    numbers = puzzle.contract.stretched(least, block, seed, puzzle.largest)
    if sum(math.prod(tensor.shape(numbers)) for tensor in puzzle.tensors) > elements:
        return None
    case = Case(fill=_fills(puzzle, numbers), salt="", pretend=False, **numbers)
    return case if math.prod(puzzle.programs(case)) <= most else None


def _fills(puzzle: Puzzle, numbers: Mapping[str, int]) -> dict[str, Fill]:
    """Return the fills that a made case needs: of inputs that must have values of a certain kind.

    Either all listed cases fill such an input in a way of their own, or it holds integers, and all random
    cases with these numbers fill it: codes of one bit are below 2, though codes of eight bits can be any.
    """
    assert puzzle.contract is not None
    ways = puzzle.contract.fills(SimpleNamespace(**numbers))
    listed = [case for case in puzzle.cases if not case.pretend]
    floats = {a.name for a in puzzle.inputs if a.dtype.is_floating_point}
    return {
        name: fill
        for name, fill in min(ways, key=len).items()
        if all(name in case.fill for case in listed)
        or (name not in floats and all(name in way for way in ways))
    }


def with_ordinary_values(puzzle: Puzzle, case: Case) -> Case | None:
    """Return a case with random values, except for inputs that must have values of a certain kind.

    None if a case has no other values, or if its numbers can't be the reason that it fails: then its sizes
    are no larger than those of listed cases. Also if some of its integers, or a seed, are its own.
    """
    listed = [each for each in puzzle.cases if not each.pretend]
    sizes = puzzle.contract.sizes if puzzle.contract else ()
    for name, number in case.numbers.items():
        is_size = name in sizes or name.startswith("BLOCK")
        if not is_size and all(number != each.numbers[name] for each in listed):
            return None
    if all(case.numbers[name] <= max(each.numbers[name] for each in listed) for name in sizes):
        return None
    always = {name for name in case.fill if all(name in each.fill for each in listed)}
    floats = {a.name for a in puzzle.inputs if a.dtype.is_floating_point}
    if always >= set(case.fill) or set(case.fill) - always - floats:
        return None
    return Case(fill={name: case.fill[name] for name in always}, **case.numbers)


def at_edges(puzzle: Puzzle, op: Operation) -> Iterator[tuple[Case, list[Program]]]:
    """Yield cases of any number of programs in which an integer may pass a bound, and programs to run.

    These are the programs at the edges of the grid, and those that have the same number as one of these after
    the bound.
    """
    if not _counts(puzzle, op) or not _is_bound(op) or puzzle.zeroed or puzzle.in_place:
        return
    number = _number(op)
    if number < LEAST_VAST:
        return
    for case in sorted(beyond(puzzle, number, math.inf), key=lambda case: size_of(puzzle, case)):
        axes = []
        for count in puzzle.programs(case):
            last = count - 1
            bounded = last & number, last % max(number, 1), last % (number + 1), min(last, number)
            axes.append(dict.fromkeys([last, 0, *bounded]))
        yield case, [(x, y, z) for x, y, z in itertools.islice(itertools.product(*axes), MOST_AT_EDGES)]


def at_true_size(puzzle: Puzzle, op: Operation) -> Iterator[tuple[Case, Mapping[str, np.ndarray]]]:
    """Yield pretended cases in which an offset is too large for what it becomes, and their integers.

    That is a float, or an integer of 8 or 16 bits.
    """
    contract = puzzle.contract
    if contract is None or puzzle.resident or puzzle.tables:
        return
    if op.name == "arith.trunci":
        yield from _narrowed(puzzle, op)
    elif op.name in ("arith.fptosi", "arith.fptoui", "arith.cmpf") and not set(LOADS) & depends_on(
        op.operands
    ):
        for name, size in itertools.product(contract.sizes, PAST_FLOAT32):
            seed = f"{puzzle.name}/{name}/true size"
            least = dict.fromkeys(contract.sizes, FEW) | {name: size}
            numbers = contract.stretched(least, max, seed, puzzle.largest)
            case = _with_larger_blocks(puzzle, Case(fill=None, salt="", pretend=True, **numbers))
            if size_of(puzzle, case) < MOST_PRETENDED:
                yield case, {}


def _with_larger_blocks(puzzle: Puzzle, case: Case) -> Case:
    """Return a case with blocks so large that a GPU can launch its grid, or the same case."""
    blocks = [name for name, number in case.numbers.items() if name.startswith("BLOCK") and number]
    for times in (1, 2, 4, 8, 16):
        for name in blocks:
            larger = case.but(**{name: times * case.numbers[name]})
            grid = zip(puzzle.programs(larger), MOST_PROGRAMS, strict=True)
            if all(count <= most for count, most in grid):
                return larger
    return case


def _narrowed(puzzle: Puzzle, op: Operation) -> Iterator[tuple[Case, Mapping[str, np.ndarray]]]:
    """Yield pretended cases in which a narrower integer may be too small, the smallest first."""
    number = _number(op)
    if not _counts(puzzle, op) or not LEAST_NARROW <= number < 1 << 31:
        return
    found = depends_on(op.operands)
    counted = {*LOADS, "tt.get_program_id", "tt.get_num_programs", "tt.make_range"}
    if not found & counted and not _has_parameters(op.operands):
        return  # it's no number of an element
    inputs = [a for a in puzzle.inputs if not (a.dtype.is_floating_point or a.dtype == torch.bool)]
    loaded = [a for a in inputs if f"{a.name}_ptr" in _loaded_from(op.operands)]
    if found & {"tt.get_program_id", "tt.make_range"}:
        loaded = []

    def effort(case: Case) -> tuple[int, int]:
        return sum(math.prod(a.shape(case.numbers)) for a in loaded) >> 16, size_of(puzzle, case)

    short, long = list[Case](), list[Case]()
    for case in sorted(beyond(puzzle, number, math.inf, MOST_PRETENDED), key=effort):
        (short if _loops(puzzle, case) <= MOST_LOOPS else long).append(case)
    cases = itertools.chain.from_iterable(itertools.zip_longest(short, long))
    for case in itertools.islice(filter(None, cases), MOST_NARROWED):
        if loaded:  # their values are to be too large, but not so large that they stand for no index
            values = np.concatenate(list(_integers(puzzle, case, loaded).values()))
            if not ((number <= values) & (values <= size_of(puzzle, case))).any():
                continue
        yield Case(fill=None, salt="", pretend=True, **case.numbers), _integers(puzzle, case, inputs)


def _loops(puzzle: Puzzle, case: Case) -> int:
    """Return the product of the sizes that a grid doesn't depend on, which programs have loops for."""
    assert puzzle.contract is not None
    grid, found = puzzle.programs(case), 1
    for name in puzzle.contract.sizes:
        if puzzle.programs(case.but(**{name: case.numbers[name] + MOST_FAR})) == grid:
            found *= case.numbers[name]
    return found


def _has_parameters(values: Iterable[Value]) -> bool:
    """Return whether values are computed from a kernel's or a loop's parameters."""
    return any(value.maker is None for value in sources(values))


def _loaded_from(values: Iterable[Value]) -> set[str]:
    """Return the names of the parameters whose elements values are computed from."""
    loads = [v.maker for v in sources(values) if v.maker is not None and v.maker.name in LOADS]
    pointers = sources([op.operands[0] for op in loads])
    return {value.location.name for value in pointers if value.maker is None}


def _integers(puzzle: Puzzle, case: Case, inputs: Sequence[Argument]) -> dict[str, np.ndarray]:
    """Return what inputs of integers hold in a case; for a large one, values of a listed case."""
    if (
        inputs
        and size_of(puzzle, case) <= MOST_ELEMENTS
        and any(a.name in (puzzle.derived or {}) for a in inputs)
    ):
        tensors = make_inputs(puzzle, case)
        return {a.name: tensors[a.name].numpy().ravel() for a in inputs}
    found = {}
    for a in inputs:
        shape, fill = a.shape(case.numbers), case.fill.get(a.name)
        if fill and math.prod(shape) <= MOST_INTEGERS:
            values = fill(shape, a.dtype, torch.Generator().manual_seed(0))
        else:
            listed = [each for each in puzzle.cases if not each.pretend]
            values = make_inputs(puzzle, max(listed, key=lambda each: size_of(puzzle, each)))[a.name]
        found[a.name] = values.numpy().ravel()
    return found


_SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
_AS_LOADED = {
    *LOADS, "arith.constant", "arith.extsi", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.splat",
    "tt.trans",
}  # fmt: skip
_OF_INDICES = {
    *LOADS, "arith.addi", "arith.cmpf", "arith.cmpi", "arith.constant", "arith.divsi", "arith.extsi",
    "arith.extui", "arith.maxsi", "arith.minsi", "arith.muli", "arith.remsi", "arith.select", "arith.subi",
    "arith.trunci", "tt.addptr", "tt.broadcast", "tt.call", "tt.expand_dims", "tt.get_num_programs",
    "tt.get_program_id", "tt.make_range", "tt.reduce", "tt.scan", "tt.splat",
}  # fmt: skip
_RANDOM = re.compile("rand|philox")


def is_of_indices(op: Operation) -> bool:
    """Return whether an operation takes numbers of programs and lanes, sizes and what is loaded, as they are.

    No bits were taken out of these: a number that doesn't fit a narrower integer is then a fault.
    """
    if op.name != "arith.trunci" or not depends_on(op.operands) <= _OF_INDICES:
        return False
    makers = [value.maker for value in sources(op.operands) if value.maker is not None]
    return not any(_RANDOM.search(maker.attributes.get("callee", "")) for maker in makers)


def _counts(puzzle: Puzzle, op: Operation) -> bool:
    """Return whether an operation bounds an integer that may grow with a puzzle's sizes."""
    if not op.operands or not puzzle.contract or is_float(op) or reads_bits(op.operands):
        return False
    return op.operands[0].type.element.startswith("i")


def _is_bound(op: Operation) -> bool:
    """Return whether an operation limits an integer to a number that the kernel's source has."""
    return op.name in ("arith.trunci", "scf.for") or any(map(literal, op.operands))


def _number(op: Operation) -> int:
    """Return the number that something is compared with; if it is computed, a guess at how large it is."""
    if op.name == "arith.trunci":
        return 1 << int(op.results[0].type.element[1:]) - (not is_read_unsigned(op))
    if op.name == "scf.for":
        return integer(op.operands[1])
    if number := max(map(integer, op.operands)):
        divided = op.operands[0].maker if op.name in DIVISIONS else None
        while divided is not None and divided.name in DIVISIONS and integer(divided.operands[1]):
            number, divided = number * integer(divided.operands[1]), divided.operands[0].maker
        return number
    return FAR * max(map(integer, sources(op.operands)), default=1)


def _work(puzzle: Puzzle, case: Case) -> int:
    """Return a rough measure of the time that a case takes."""
    sizes = puzzle.contract.sizes if puzzle.contract else ()
    loops = math.prod(case.numbers[name] for name in sizes)  # as if a program had a loop for each
    return math.prod(puzzle.programs(case)) * 2000 + size_of(puzzle, case) + loops


# ---- floats of other sizes

LIKE_INFINITY = 1e20  # numbers from here on stand for it, such as the -1e30 of scores that don't count
BEYOND_HALF = 30  # an exponent: neither 2^30 nor 2^-30 is a number of float16
LARGEST = 1e30  # of which a kernel must be correct, as `check` says
MOST_EXPONENT = 97  # of normal values, so that these are below it
CLOSE = 2.0**-40  # `rows_a_little_closer` reaches it
MOST_BEYOND_WHOLE = 12  # cases for one cast
MOST_HALVINGS = 12  # in the search of a scale
BEYOND_A_LIMIT, MOST_OF_A_RESULT = 2.0, 1e38  # times the limit, and at most


def of_any_size(puzzle: Puzzle, number: float) -> Iterator[Case]:
    """Yield cases whose floats are smaller than in other cases, and larger if the number is so large.

    An input that all cases fill in a way of their own stays as it is: its values may have to fit others.
    """
    names = _free(puzzle)
    for name in names:
        yield _scaled_case(puzzle, [name], closer_to_zero)
        yield _scaled_case(puzzle, [name], rows_closer_to_zero)
    if len(names) > 1:
        yield _scaled_case(puzzle, names, rows_a_little_closer)
    listed = [case for case in puzzle.cases if not case.pretend]
    for name in names:
        if 1 < number < LIKE_INFINITY and any(case.fill.get(name) is large for case in listed):
            yield _scaled_case(puzzle, [name], larger)


def at_a_limit(puzzle: Puzzle, number: float) -> Iterator[Case]:
    """Yield cases whose floats are near a number such as 1e-30, or of which some pass one such as 1e30.

    The largest of a row may stay below 1e30: a kernel may begin a minimum with that number. Cases that
    float32 cannot compute are left out.
    """
    names, cases = _free(puzzle), list[Case]()
    if 0 < number < CLOSE and names:
        cases.append(_scaled_case(puzzle, names, _all_by(math.log2(number))))
    if LIKE_INFINITY <= number < math.inf:
        exponents = [min(math.log2(number) / root + 2, MOST_EXPONENT) for root in (1, 2)]  # of x, and x * x
        cases += (_scaled_case(puzzle, [name], _some_by(e)) for name in names for e in exponents)
    yield from (case for case in cases if fits_float32(puzzle, case))
    if LIKE_INFINITY <= number < math.inf:
        yield from _with_results_beyond(puzzle, number)


def _with_results_beyond(puzzle: Puzzle, number: float) -> Iterator[Case]:
    """Yield cases of which results are larger than a number, although all inputs are in range.

    One input is scaled until they are. If that takes numbers that are out of range, another one is as large
    as can be.
    """
    names = _free(puzzle)
    for name, other in itertools.product(names, ["", *names]):
        for case in _bases(puzzle):
            fill = dict(case.fill)
            if other not in ("", name):
                fill[other] = _scaled(fill.get(other, random), _all_by(MOST_EXPONENT - 2))
            low, high, found = 0.0, float(MOST_EXPONENT), None
            for _ in range(MOST_HALVINGS):
                exponent = (low + high) / 2
                scaled = {name: _scaled(fill.get(name, random), _all_by(exponent))}
                made = Case(fill=fill | scaled, **case.numbers)
                largest = _largest_result(puzzle, made)
                if BEYOND_A_LIMIT * number < largest < MOST_OF_A_RESULT:
                    found = made
                    break
                low, high = (exponent, high) if largest <= BEYOND_A_LIMIT * number else (low, exponent)
            if found and fits_float32(puzzle, found, loosely=True):
                yield found
                break


def _bases(puzzle: Puzzle) -> list[Case]:
    """Return listed cases with different fills, of each the largest."""
    listed = sorted((case for case in puzzle.cases if not case.pretend), key=lambda c: size_of(puzzle, c))
    found = {str(sorted((name, fill.__name__) for name, fill in c.fill.items())): c for c in listed}
    return list(found.values())


def _largest_result(puzzle: Puzzle, case: Case) -> float:
    """Return the absolute value of the largest float that the spec returns; infinity if one isn't finite."""
    results = evaluate(puzzle, case, make_inputs(puzzle, case)).values()
    floats = [x.abs().nan_to_num(math.inf).max().item() for x in results if x.is_floating_point()]
    return max(floats, default=0.0)


def fits_float32(puzzle: Puzzle, case: Case, loosely: bool = False) -> bool:
    """Return whether the spec gives nearly the same in float32: no value on the way is out of its range.

    loosely: floats must only be finite where the exact ones are.
    """
    inputs = make_inputs(puzzle, case)
    narrow = {name: x.float() if x.is_floating_point() else x.clone() for name, x in inputs.items()}
    asked = inspect.signature(puzzle.spec).parameters
    try:
        found = puzzle.spec(**narrow, **{name: n for name, n in case.numbers.items() if name in asked})
    except Exception:  # a spec only has to work in float64
        return False
    exact = evaluate(puzzle, case, inputs).values()
    each = zip(found if isinstance(found, tuple) else (found,), exact, strict=True)
    return all(_are_near(x, want, loosely) for x, want in each)


def _are_near(x: torch.Tensor, want: torch.Tensor, loosely: bool) -> bool:
    if loosely and want.is_floating_point():
        return torch.equal(x.isfinite(), want.isfinite())
    return torch.allclose(x.double(), want.double(), 1e-3, 1e-37, equal_nan=True)


def _float(op: Operation, sign: int = 0) -> float:
    """Return the absolute value of the float that something is compared with; 0 if there is none.

    sign: 1 if only positive ones count.
    """
    numbers = [float(text) for text in map(literal, op.operands) if _FLOAT.fullmatch(text)]
    return max((abs(number) for number in numbers if number * sign >= 0), default=0.0)


def _scaled_case(puzzle: Puzzle, names: Sequence[str], exponents: Exponents) -> Case:
    """Return the case with the most values of an input, with these inputs scaled by powers of two."""
    listed = [case for case in puzzle.cases if not case.pretend]
    (first,) = (argument for argument in puzzle.inputs if argument.name == names[0])
    plain = [case for case in listed if not set(names) & set(case.fill)] or listed
    case = max(plain, key=lambda case: math.prod(first.shape(case.numbers)))
    fill = {name: _scaled(case.fill.get(name, random), exponents) for name in names}
    return Case(fill=case.fill | fill, **case.numbers)


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


def _all_by(exponent: float) -> Exponents:
    """Return a function that returns the same exponent for each value."""

    def by_powers(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return torch.full(shape, float(exponent))

    by_powers.__name__ = f"times_{2.0**exponent:.3g}"
    return by_powers


def _some_by(exponent: float) -> Exponents:
    """Return a function: an exponent for each fourth value of an axis, or its last, and 0 for others."""

    def partly_huge(shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        return (torch.arange(shape[-1]) % 4 == min(3, shape[-1] - 1)).expand(shape) * round(exponent)

    return partly_huge


def _by_row(shape: tuple[int, ...]) -> torch.Tensor:
    """Return a number from 0 to 1 for each row along the first axis, which depends on the row alone."""
    rows = 1 - (torch.arange(shape[0]) * 0.618034) % 1
    return rows.reshape(-1, *[1] * (len(shape) - 1)).expand(shape)


def beyond_half(puzzle: Puzzle, module: Module) -> Iterator[Case]:
    """Yield cases with numbers that float16 cannot hold, if a kernel casts to it and no tensor has it."""
    if puzzle.contract is None or any(a.dtype == torch.float16 for a in puzzle.tensors):
        return
    if any(op.name == "arith.truncf" and op.results[0].type.element == "f16" for op in module.operations()):
        for exponent, name in itertools.product((BEYOND_HALF, -BEYOND_HALF), _free(puzzle)):
            case = _scaled_case(puzzle, [name], _all_by(exponent))
            if fits_float32(puzzle, case, loosely=True):
                yield case


SMALL_BY = -15  # an exponent
LEAST_ADDED, MOST_ADDED = 0.25, 2.0**22  # larger numbers are added to round
_SUMS = ("arith.addf", "arith.subf")
_CUT = ("arith.fptosi", "arith.fptoui", "math.floor", "math.ceil", "math.rint", "math.round")
_PRECISE = (
    "math.exp",
    "math.exp2",
    "math.log",
    "math.log2",
    "tt.extern_elementwise",
    "tt.dot",
    "arith.truncf",
)


def small_ones(puzzle: Puzzle, module: Module) -> Iterator[tuple[Case, int]]:
    """Yield cases with small values if a number is added to a float and another one is taken away later.

    Likewise if a float becomes an integer and is divided by a number. In both ways bits of small floats get
    lost. Also the line where it ends.
    """
    line = _ends_as_it_began(module) if puzzle.contract else 0
    for name in _free(puzzle) if line else ():
        case = _scaled_case(puzzle, [name], _all_by(SMALL_BY))
        if fits_float32(puzzle, case):
            yield case, line


def _added(op: Operation) -> float:
    """Return the absolute value of the float32 constant that an operation takes; 0 if it takes none."""
    texts = [text for text in map(literal, op.operands) if re.fullmatch("0x[0-9A-F]{8}", text)]
    written = [float(np.array(int(text, 16), np.uint32).view(np.float32)) for text in texts]
    return max([abs(number) for number in written if math.isfinite(number)] + [_float(op)])


def _ends_as_it_began(module: Module) -> int:
    """Return the line of the second step that `small_ones` looks for; 0 if there is none."""
    for op in module.operations():
        if op.name not in (*_SUMS, "arith.mulf", "arith.divf") or op.location.file.startswith(TRITON):
            continue
        number = _added(op)
        if not number:
            continue
        before = {value.maker for value in sources(op.operands) if value.maker not in (None, op)}
        if any(maker.name in _PRECISE for maker in before):
            continue
        for maker in before:
            added = maker.name in _SUMS and LEAST_ADDED <= _added(maker) < MOST_ADDED
            if op.name in _SUMS and added and LEAST_ADDED <= number < MOST_ADDED:
                return op.location.line
            if op.name not in _SUMS and maker.name in _CUT and min(number, 1 / number) < 0.01:
                return op.location.line
    return 0


WHOLE = {"f16": 1 << 11, "bf16": 1 << 8}  # up to which all whole numbers are numbers of a dtype
_TO_FLOATS = ("arith.sitofp", "arith.uitofp")


def beyond_whole(puzzle: Puzzle, module: Module) -> Iterator[tuple[Case, tuple[int, str]]]:
    """Yield cases in which whole numbers are too large for float16 or bfloat16, if a kernel casts them.

    These count programs, lanes or elements. Also the line of the cast, and the dtype.
    """
    if puzzle.contract is None:
        return
    for op in module.operations():
        kind = op.results[0].type.element if op.results else ""
        if kind not in WHOLE or not (op.name in _TO_FLOATS or op.name == "arith.truncf"):
            continue
        found = depends_on(op.operands)
        wide = op.name in _TO_FLOATS and int(op.operands[0].type.element[1:]) > 16
        whole = wide or (op.name == "arith.truncf" and found & set(_TO_FLOATS))
        if (
            not whole
            or found & {"arith.andi", "arith.shrsi", "arith.shrui", "tt.dot", *BITCASTS}
            or op.location.file.startswith(TRITON)
        ):
            continue
        others = {f"{a.name}_ptr" for a in puzzle.inputs if a.dtype not in (torch.int32, torch.int64)}
        if not _loaded_from(op.operands) & others:
            cases = sorted(beyond(puzzle, WHOLE[kind]), key=lambda case: _work(puzzle, case))
            for case in cases[:MOST_BEYOND_WHOLE]:
                yield case, (op.location.line, {"f16": "float16", "bf16": "bfloat16"}[kind])


# ---- integers


def with_a_number(puzzle: Puzzle, op: Operation) -> list[Case]:
    """Return cases in which inputs of any bits have the number that these are compared with."""
    numbers = [int(text) for text in map(literal, op.operands) if re.fullmatch(r"-?\d+", text)]
    names = _loaded_from(op.operands) if numbers and depends_on(op.operands) <= _AS_LOADED else set()
    return [
        _filled(puzzle, a.name, _with(numbers[0]))
        for a in puzzle.inputs
        if f"{a.name}_ptr" in names
        and _is_plain(puzzle, a)
        and a.dtype in _SIGNED
        and torch.iinfo(a.dtype).min <= numbers[0] <= torch.iinfo(a.dtype).max
    ]


def _with(number: int) -> Fill:
    """Return a fill with integers of random bits, of which a half is a number, or one beside it."""

    def fill(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        bits = torch.iinfo(dtype)
        near = torch.tensor([number, number, max(number - 1, bits.min), min(number + 1, bits.max)])
        chosen = near[torch.randint(4, shape, generator=generator)].to(dtype)
        others = random(shape, dtype, generator)
        return torch.where(torch.rand(shape, generator=generator) < 0.5, chosen, others)

    fill.__name__ = f"some_{number}"
    return fill


# ---- zeros


def with_zeros(puzzle: Puzzle, ops: Iterable[Operation]) -> Iterator[Case]:
    """Yield cases with values that some comparisons take for others, although both sides were seen.

    To integers, 0 and -0 differ, and 0 has an exponent. And a block of zeros isn't the end of a row.
    """
    loaded = [op for op in ops if set(LOADS) & depends_on(op.operands)] if puzzle.contract else []
    if any(not is_float(op) and reads_bits(op.operands) for op in loaded):
        yield from (_filled(puzzle, name, zeros_of_both_signs) for name in _free(puzzle))
    if any(op.name in BITCASTS for op in loaded):
        yield from (_filled(puzzle, name, zeros) for name in _free(puzzle))
    if any(op.name == "arith.cmpf" and _is_reduced(op) and _is_zero(op.operands[1]) for op in loaded):
        for name in _free(puzzle):
            yield _filled(puzzle, name, zeros_in_stretches)
            yield _filled(puzzle, name, zeros)


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


def _free(puzzle: Puzzle) -> list[str]:
    """Return the inputs of floats that not all listed cases fill in a way of their own."""
    return [
        argument.name
        for argument in puzzle.inputs
        if argument.dtype.is_floating_point and _is_plain(puzzle, argument)
    ]


def _is_plain(puzzle: Puzzle, argument: Argument) -> bool:
    """Return whether an input isn't derived, and not all listed cases fill it in a way of their own."""
    listed = [case for case in puzzle.cases if not case.pretend]
    return argument.name not in (puzzle.derived or {}) and any(argument.name not in c.fill for c in listed)
