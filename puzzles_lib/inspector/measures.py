"""Measure a compiled kernel for the goals of a puzzle: a number, and its cause in words.

Each of `MEASURES` has a function here that takes a kernel compiled by `stages` for NVIDIA.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from puzzles_lib.compiler.locations import Line
from puzzles_lib.inspector import Stages
from puzzles_lib.inspector.occupancy import one_more, resident
from puzzles_lib.inspector.sass import instructions, matrix_loop_places
from puzzles_lib.inspector.step import moves, step

_WIDTHS = {"128": 16, "64": 8, "U16": 2, "S16": 2, "U8": 1, "S8": 1}  # bytes of a load; 4 if none is named
_MOST_REGISTERS = 255  # the most registers of a thread
_SHARED = (
    "elements share a load if one thread has them as neighbors and the compiler knows that their address is "
    "a multiple of the load's width. And one bit of the mask must be enough for all of them"
)
_OWN_BITS = (
    "and each has a mask bit of its own: elements share a load only if the compiler knows that they share "
    "their mask bit, too"
)
_UNSEEN = {  # lines from which the compiler doesn't learn what a mask's limit is a multiple of
    r"tl\.multiple_of\(\s*(\w+)\s*,": "tl.multiple_of changes nothing here, because {} is an argument",
    r"tl\.assume\(.*?\b(\w+) % ": "tl.assume doesn't tell it what {} is a multiple of",
    r"\b(\w+) & ?[-~(]": "it doesn't see through &, so {} could be any number to it",
    r"\b(\w+) - ?\(?\1 % ": "it doesn't see through %, so {} could be any number to it",
}
_LOADED_TILE = re.compile(r"= tt\.load .*: tensor<(?:\d+x)+?(\d+)x!tt\.ptr<[a-z]+(\d+)[a-zA-Z0-9]*>")
_INTEGERS = re.compile(r": tensor<(?:\d+x)+i\d+>")
_FLOATS32 = re.compile(r": tensor<(?:\d+x)+f32> \*")
_PRODUCT = re.compile(r"= (?:arith\.(?:mulf|divf)|math\.fma)\b.* : (?:tensor<((?:\d+x)*)[a-z]|[a-z])")


@dataclass(frozen=True)
class Reading:
    """A measured number and its cause.

    number: None if there is nothing to measure. cause: in words. line: the kernel's line that is the cause,
    if it is a line.
    """

    number: float | None
    cause: str = ""
    line: int | None = None


@dataclass(frozen=True)
class _Instruction:
    operation: str
    operands: str
    line: int | None


def measure(name: str, compiled: Stages) -> Reading:
    """Return the value of one of `MEASURES`, read from a kernel's compiled stages for NVIDIA."""
    return _MEASURED[name](compiled)


def _code(compiled: Stages) -> list[_Instruction]:
    """Return the machine code, with the kernel's line that each instruction comes from."""
    lines = ((line.source, found) for line in compiled.read("sass") for found in instructions(line.text))
    return [_Instruction(*found, source) for source, found in lines]


def _load_bytes(compiled: Stages) -> Reading:
    loads = [each for each in _code(compiled) if each.operation.startswith(("LDG.", "LDGSTS."))]
    if not loads:
        return Reading(None, "the kernel loads nothing from memory")
    widths = [_width(each.operation) for each in loads]
    narrow = loads[widths.index(min(widths))]
    many = f"{widths.count(min(widths))} of {len(loads)} loads are that narrow"
    if short := _short_rows(compiled, min(widths)):
        return Reading(min(widths), f"{many}: {short}", narrow.line)
    cause = _own_bits(compiled, len(loads))
    return Reading(min(widths), f"{many}, {cause}" if cause else f"{many}: {_SHARED}", narrow.line)


def _short_rows(compiled: Stages, width: int) -> str:
    """Return that loads are as wide as a row of their tile, if all tiles that are loaded say so; else ""."""
    rows = []
    for line in compiled.ttgir.splitlines():
        if found := _LOADED_TILE.search(line):
            rows.append((int(found[1]), int(found[1]) * int(found[2]) // 8))
    if not rows or any(size != width for _, size in rows):
        return ""
    count, size = rows[0]
    has = f"{count} elements" if count > 1 else "1 element"
    taken = f"{size} byte{'s' * (size > 1)}"
    return f"a row of the loaded tile has {has}, or {taken}, and no load goes past its row"


def _own_bits(compiled: Stages, loads: int) -> str:
    """Return that each load has a mask bit of its own, and what the compiler can't use; "" if some share."""
    guards = re.findall(r"@(!?%p\d+)\s+ld\.global", compiled.ptx)
    if not 1 < loads == len(set(guards)) == len(guards):
        return ""
    arguments = re.findall(r"%(\w+): ", next((x for x in compiled.ttir.splitlines() if "tt.func" in x), ""))
    code = "\n".join(line.partition("#")[0] for line in compiled.source.values())
    for form, words in _UNSEEN.items():
        if (found := re.search(form, code)) and found[1] in arguments:
            return f"{_OWN_BITS}; {words.format(found[1])}"
    return _OWN_BITS


def _wide_loads(compiled: Stages) -> Reading:
    loads = [each for each in _code(compiled) if each.operation.startswith(("LDG.", "LDGSTS."))]
    narrow = [each for each in loads if _width(each.operation) < 16]
    return Reading(len(loads) - len(narrow), f"all of them are narrower: {_SHARED}", _commonest(narrow))


def _float_dots(compiled: Stages) -> Reading:
    """Return how many ``tt.dot`` of the Triton IR take floats."""
    floats = [line for line in _dots(compiled) if not _INTEGERS.search(line.text)]
    cause = (
        "a tensor core adds the products of int8 tiles exactly, and their bytes are a quarter of float32's"
    )
    return Reading(len(floats), cause if floats else "", floats[0].source if floats else None)


def _integer_dots(compiled: Stages) -> Reading:
    """Return how many ``tt.dot`` of the Triton IR take integers."""
    count = sum(bool(_INTEGERS.search(line.text)) for line in _dots(compiled))
    return Reading(count, "" if count else "only tl.dot of int8 tiles multiplies codes on tensor cores")


def _float32_dots(compiled: Stages) -> Reading:
    """Return how many ``tt.dot`` of the Triton IR take float32 tiles."""
    found = [line for line in _dots(compiled) if _FLOATS32.search(line.text)]
    cause = "it works on twice the bytes, at half of bfloat16's rate or less: round both tiles to bfloat16"
    return Reading(len(found), cause if found else "", found[0].source if found else None)


def _float_atomics(compiled: Stages) -> Reading:
    """Return how many lines of the Triton IR add floats to memory with an atomic."""
    found = [line for line in compiled.read("ttir") if "tt.atomic_rmw fadd," in line.text]
    cause = "the sums are correct, but here the lock keeps the programs apart: load, add and store"
    return Reading(len(found), cause if found else "", found[0].source if found else None)


def _dots(compiled: Stages) -> list[Line]:
    return [line for line in compiled.read("ttir") if re.search(r"= tt\.dot\b", line.text)]


def _width(operation: str) -> int:
    return next((_WIDTHS[part] for part in operation.split(".")[1:] if part in _WIDTHS), 4)


def _exchanges(compiled: Stages) -> Reading:
    code = _code(compiled)
    found = [each for each in code if each.operation.split(".")[0] in ("SHFL", "STS", "STSM")]
    if not code or not found:
        return Reading(0 if code else None)
    names = Counter("shuffles" if each.operation.startswith("SHFL") else "stores" for each in found)
    words = {"shuffles": "shuffles", "stores": "stores to shared memory"}
    counts = " and ".join(f"{count} {words[name]}" for name, count in names.items())
    return Reading(len(found), f"{counts}: this line combines values of several threads", _commonest(found))


def _busy(compiled: Stages) -> Reading:
    turn = step(compiled)
    if turn is None:
        return Reading(None, "no loop uses the tensor cores")
    code = _code(compiled)
    places = matrix_loop_places([(each.operation, each.operands) for each in code])
    body = [code[place] for place in places if code[place].operation != "label"]
    line = _commonest(body)
    share = sum(each.line == line for each in body) / len(body)
    cause = f"{share:.0%} of its instructions come from one line"
    moved = [move for move in turn.moves if move.number]
    if moved:  # this costs instructions on other lines, too, and may be avoidable
        largest = max(moved, key=lambda move: math.prod(move.shape))
        shape, line = " × ".join(map(str, largest.shape)), largest.number
        cause = f"threads exchange this line's block of {shape}"
    clocks = (
        f"issuing an iteration takes {turn.issue_clocks:.0f} clocks, its products {turn.tensor_clocks:.0f}"
    )
    return Reading(turn.busy, f"{clocks}; {cause}", line)


def _spills(compiled: Stages) -> Reading:
    many = f"{compiled.registers} registers per thread, and {_MOST_REGISTERS} is the most"
    return Reading(compiled.spills, f"{many}: the values needed at one time do not fit")


def _moves(compiled: Stages) -> Reading:
    if "scf.for" not in compiled.ttgir:
        return Reading(None, "the kernel has no loop")
    found = moves(compiled)
    number = next((n for n, text in compiled.source.items() if found and found[0].line in text), None)
    return Reading(len(found), f"the first is {found[0]}" if found else "", number)


def _programs(compiled: Stages) -> Reading:
    needs = compiled.registers or 0, compiled.shared_bytes or 0, compiled.num_warps
    return Reading(resident(*needs), one_more(*needs))


def _registers(compiled: Stages) -> Reading:
    return Reading(compiled.registers)


def _shared(compiled: Stages) -> Reading:
    return Reading(compiled.shared_bytes, "the tiles of several iterations are there at the same time")


def _products(compiled: Stages) -> Reading:
    """Return how many floats the loops of the Triton IR multiply or divide, each loop's body counted once."""
    found: Counter[int | None] = Counter()
    depth = 0
    for line in compiled.read("ttir"):
        text = line.text.strip()
        depth += ("scf.for" in text or depth > 0) and text.endswith("{")
        if depth and (match := _PRODUCT.search(text)):
            found[line.source] += math.prod(map(int, re.findall(r"\d+", match[1] or "")))
        depth -= depth > 0 and text.startswith("}")
    if "scf.for" not in compiled.ttir:
        return Reading(None, "it has no loop")
    place, most = found.most_common(1)[0] if found else (None, 0)
    cause = f"{most} of them are on one line: which of its products could be made once, or left out?"
    return Reading(found.total(), cause if found else "", place)


def _commonest(code: Iterable[_Instruction]) -> int | None:
    """Return the line that most instructions come from."""
    lines = Counter(each.line for each in code if each.line is not None)
    return lines.most_common(1)[0][0] if lines else None


_MEASURED: Mapping[str, Callable[[Stages], Reading]] = {
    "load bytes": _load_bytes,
    "wide loads": _wide_loads,
    "float dots": _float_dots,
    "integer dots": _integer_dots,
    "float32 dots": _float32_dots,
    "exchanges": _exchanges,
    "busy": _busy,
    "spills": _spills,
    "moves": _moves,
    "programs": _programs,
    "registers": _registers,
    "shared": _shared,
    "products": _products,
    "float atomics": _float_atomics,
}
