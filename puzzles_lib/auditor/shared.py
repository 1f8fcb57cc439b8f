"""Say from strides and loaded indices why programs share an element, or why an offset leaves a tensor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from puzzles_lib import compiler
from puzzles_lib.auditor.edges import integers, pointers, rows_by_number
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.untested import LOADS, sources
from puzzles_lib.runner import Access, Program
from puzzles_lib.runner.records import Conflict
from puzzles_lib.translator.ir import Value

_ADDS = ("arith.addf", "arith.addi", "arith.subf", "arith.subi")
_CASTS = ("arith.extf", "arith.truncf", "arith.extsi", "arith.trunci", "arith.sitofp", "arith.fptosi")
Accesses = Callable[[Program], Sequence[Access]]


def of_race(
    verdict: Verdict, launch: Launch, code: compiler.Program, conflict: Conflict, accesses: Accesses
) -> Verdict:
    """Return a verdict on a race with what the two programs share, or with what usually cures it.

    accesses: a function that returns those of a program.
    """
    name = conflict.argument
    if text := overlaps(launch, name):
        return replace(verdict, diagnosis=text)
    if verdict.diagnosis or conflict.kind not in ("read", "write") or "_fused_" in launch.name:
        return verdict
    first, second = conflict.programs
    rows = launch.tensors[name].shape if name in launch.tensors else ()
    same = [
        next((each for each, value in _indices(launch, code, accesses(one), name) if value == row), "")
        for one in (first, second)
        for row in ([conflict.element // max(1, rows[1:].numel())] if rows else [])
    ]
    if conflict.kind == "write":
        both = f"{same[0]} and {same[1]}" if len(set(same)) == 2 and all(same) else ""
        return replace(verdict, diagnosis=f"{both} are the same number" if both else "")
    for each, value in _indices(launch, code, accesses(second), name):
        if value < 0:
            return replace(
                verdict, diagnosis=f"the offset comes from {each} = {value}: leave out numbers below 0"
            )
    cure = (
        "let each program read only what it writes itself; if it needs the elements of others, "
        "write to another tensor, or in a second launch"
    )
    if _adds_to(code, name):
        cure = (
            "if both add to the element, use tl.atomic_add; if one only reads it, "
            "write to another tensor, or in a second launch"
        )
    return replace(verdict, diagnosis=cure)


def overlaps(launch: Launch, name: str) -> str:
    """Say that several elements of a tensor share memory, if they do."""
    tensor = launch.all_tensors.get(name)
    for axis, size in enumerate(tensor.shape if tensor is not None else ()):
        if tensor is not None and size > 1 and tensor.stride(axis) == 0:
            return (
                f"{name} has stride 0 along axis {axis}, as an expanded tensor has: {size} elements share "
                "one place in memory. Write to a copy, such as that of .contiguous()"
            )
    return ""


def bad_index(launch: Launch, code: compiler.Program, accesses: Sequence[Access], access: Access) -> str:
    """Say which loaded index leads an access out of its tensor; "" if none does."""
    shape = launch.tensors[access.argument].shape
    rows = set((access.elements[access.bad] // max(1, shape[1:].numel())).tolist())
    for each, value in _indices(launch, code, accesses, access.argument):
        if value in rows and not 0 <= value < shape[0]:
            what = "elements" if len(shape) == 1 else "rows" if len(shape) == 2 else "places along axis 0"
            return f"{each} is {value}, but {access.argument} has {shape[0]} {what}"
    return ""


def _indices(
    launch: Launch, code: compiler.Program, accesses: Sequence[Access], argument: str
) -> Iterator[tuple[str, int]]:
    """Yield the integers that a program loads for offsets into a tensor: the name of each, and its value."""
    names = sorted(numbers for tensor, numbers in rows_by_number(code) if tensor == argument)
    values = integers({name: launch.tensors[name] for name in names if name in launch.tensors})
    for access in accesses:
        if access.kind == "load" and access.argument in values:
            own = values[access.argument]
            for element in access.elements[access.mask & ~access.bad].tolist():
                yield f"{access.argument}[{element}]", int(own[element])


def _adds_to(code: compiler.Program, name: str) -> bool:
    """Whether a store's value is a sum with what was loaded from the same place."""
    for op in code.module.operations():
        if op.name == "tt.store" and name in pointers(sources(op.operands[:1])):
            for value in sources(op.operands[1:2]):
                if value.maker is not None and value.maker.name in _ADDS:
                    loads = (_uncast(part).maker for part in value.maker.operands)
                    if any(o and o.name in LOADS and _same(o.operands[0], op.operands[0]) for o in loads):
                        return True
    return False


def _same(one: Value, other: Value) -> bool:
    """Whether two values are computed in the same way. The compiler merges them later."""
    if one is other or one.maker is None or other.maker is None:
        return one is other
    a, b = one.maker, other.maker
    if a.name != b.name or a.regions or a.attributes != b.attributes or a.name in LOADS:
        return False
    return len(a.operands) == len(b.operands) and all(map(_same, a.operands, b.operands))


def _uncast(value: Value) -> Value:
    while value.maker is not None and value.maker.name in _CASTS:
        value = value.maker.operands[0]
    return value
