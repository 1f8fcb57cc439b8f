"""Say why elements of a result are never written, from a run whose accesses were kept."""

import ast
import math
import re
import textwrap
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from puzzles_lib.checker.edges import mask_exchanged
from puzzles_lib.checker.naming import begins_late, index_of, the_program, the_programs
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.verdicts import never_written
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import Access, Run


def why_never_written(puzzle: Puzzle, case: Case, ran: Run, source: str = "") -> Verdict | None:
    """Say why elements of a result are not written, from a run whose accesses were kept.

    source: the kernel's source.
    """
    for result in puzzle.results:
        verdict = never_written(puzzle, result, case, ran)
        if verdict:
            found = _why_not_written(verdict, result, puzzle, case, ran, source)
            return found if found.diagnosis else replace(found, diagnosis=_no_such_axis(puzzle, case, source))
    return None


_PROGRAM_ID = re.compile(r"\bprogram_id\((?:axis=)?([12])\)")


def _no_such_axis(puzzle: Puzzle, case: Case, source: str) -> str:
    """Say that the kernel asks for an axis that the grid doesn't have, where every program is number 0."""
    axes = len(puzzle.grid(case))
    missing = sorted({int(axis) for axis in _PROGRAM_ID.findall(source) if int(axis) >= axes})
    if not missing:
        return ""
    each = f"tl.program_id({missing[0]}) is always 0"
    return f"the grid has {axes} {'axis' if axes == 1 else 'axes'} here, so {each}: {ONE_PROGRAM}"


ONE_PROGRAM = "a program has to do the rest itself, in a loop"


LOADED = "both places depend on loaded values"


def idle_program_loads(verdict: Verdict, puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return a verdict on too many loads with a program that does them and stores nothing; None without one.

    ran: a run whose accesses were kept.
    """
    busy = {a.program for a in ran.accesses if a.kind != "load" and a.mask.any()}
    for access in ran.accesses:
        pointer = puzzle.pointer(access.argument)
        idle = access.kind == "load" and access.mask.any() and access.program not in busy
        if idle and f"loads of {pointer}:" in verdict.message:
            text = f"{the_program(access.program, puzzle, case)} stores nothing, but loads {pointer} here"
            return replace(
                verdict, diagnosis=f"{text}: a program without results must not load it", site=access.site
            )
    return None


def _why_not_written(
    verdict: Verdict, result: Argument, puzzle: Puzzle, case: Case, ran: Run, source: str
) -> Verdict:
    stores = [a for a in ran.accesses if a.kind != "load" and a.argument == result.name]
    if not stores:
        for access in ran.accesses:
            if access.kind != "load" and access.argument in (a.name for a in puzzle.inputs):
                what = verdict.message.split(":")[0]
                other = puzzle.pointer(access.argument)
                text = f"{what}: the kernel stores to {other} instead, which is an input"
                return replace(verdict, message=text, site=access.site)
        return replace(verdict, diagnosis=_number_before(result, puzzle, ran, source))
    if not any(a.mask.any() for a in stores):
        why = _why_all_off(stores[0].site.source, source, case)
        text = f"the mask of this store is False in every lane{why}"
        return replace(verdict, diagnosis=text, site=stores[0].site)
    if tile := _other_tile(stores, result, case):
        return replace(verdict, diagnosis=tile, site=stores[0].site)
    shape = result.shape(case.numbers)
    owner: dict[int, Access] = {}
    for access in stores:
        elements, times = np.unique(access.elements[access.mask], return_counts=True)
        if (times > 1).any():
            place = f"{result.name}[{index_of(int(elements[(times > 1).argmax()]), shape)}]"
            other = "is the stride of a row correct?" if len(shape) > 1 else "each lane needs its own offset"
            alike = [each for each in stores if each.site == access.site]
            why = _wrong_stride(access, stores, result, case) or mask_exchanged(alike, result, case) or other
            text = f"several lanes of this store write to one element, such as {place}: {why}"
            return replace(verdict, diagnosis=text, site=access.site)
        for element in elements.tolist():
            first = owner.setdefault(element, access)
            if first.program != access.program:
                place = f"{result.name}[{index_of(element, shape)}]"
                why = (
                    _wrong_stride(access, stores, result, case)
                    or _wrong_start(first, access, result, puzzle, case, source)
                    or _starts_too_soon(first, access, stores, result, source)
                    or _begins_after(first, access, result, puzzle, case)
                    or _strides_of(access, result, case)
                    or _same_place(first, access)
                )
                both = the_programs(first.program, access.program, puzzle, case)
                return replace(
                    verdict, diagnosis=f"{both} overwrite each other at {place}: {why}", site=access.site
                )
    if gap := _gap(stores, result, puzzle, case):
        return replace(verdict, diagnosis=gap[0], site=gap[1].site)
    if one := _one_element_each(stores, result, case, source):
        return replace(verdict, diagnosis=one, site=stores[0].site)
    if share := _too_small_a_share(stores, result, puzzle, case):
        return replace(verdict, diagnosis=share, site=stores[0].site)
    if few := _too_few_lanes(stores, result, puzzle, case):
        return replace(verdict, diagnosis=few, site=stores[0].site)
    if late := begins_late(ran, result, puzzle, case):
        return replace(verdict, diagnosis=late, site=stores[0].site)
    if off := _switched_off(stores, result, shape, ran, case):
        return replace(verdict, diagnosis=off[0], site=off[1].site)
    return verdict


def _number_before(result: Argument, puzzle: Puzzle, ran: Run, source: str) -> str:
    """Say which numbers tl.atomic_add returns if no program gets to the store of a result; "" without one."""
    atomics = [a for a in ran.accesses if a.kind == "atomic" and a.argument in puzzle.zeroed]
    if not atomics or puzzle.locks or f"tl.store({puzzle.pointer(result.name)}" not in source:
        return ""
    most = max(int(np.unique(np.concatenate([a.elements[a.mask] for a in atomics if a.argument == name]),
               return_counts=True)[1].max(initial=0)) for name in {a.argument for a in atomics})  # fmt: skip
    found = "0" if most == 1 else f"0 to {most - 1}"
    return f"is its condition ever True? tl.atomic_add returns the number before the addition, here {found}"


SAME_PLACES = "do their offsets depend on tl.program_id?"
NEARBY = "each starts at a place of its own"
"""What a report says of two programs that overwrite each other, if nothing better is known."""


def _same_place(first: Access, second: Access) -> str:
    """Say whether two stores to one element are to the same places, or begin at different ones."""
    one, other = (each.elements[each.mask] for each in (first, second))
    if np.array_equal(one, other) or not (one.size and other.size) or one.min() == other.min():
        return SAME_PLACES
    return f"{NEARBY}, {one.min()} and {other.min()}, but their elements overlap"


def _why_all_off(store: str, source: str, case: Case) -> str:
    """Say what may be wrong with the mask of a store, given as its line; "" if that isn't clear."""
    mask = _argument(store, "mask", 2)
    if isinstance(mask, ast.Name):
        made = [node.value for node in ast.walk(_parsed(source)) if isinstance(node, ast.Assign)
                and [ast.unparse(target) for target in node.targets] == [mask.id]]  # fmt: skip
        mask = made[-1] if made else None
    if mask is None:
        return ""
    if any(isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add) and _compares(node.left, node.right)
           for node in ast.walk(mask)):  # fmt: skip
        return ": combine masks with &, not with +"
    sizes = {name for name in case.numbers if not name.startswith("BLOCK")}
    for node in ast.walk(mask):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
            whole, part = (case.numbers.get(ast.unparse(each)) for each in (node.left, node.right))
            if whole and part and whole % part == 0:
                return f": {ast.unparse(node)} is 0 in this case"
        if isinstance(node, ast.Compare) and len(node.ops) == 1:
            more = isinstance(node.ops[0], ast.Gt | ast.GtE)
            less = isinstance(node.ops[0], ast.Lt | ast.LtE)
            small = node.comparators[0] if more else node.left if less else None
            if isinstance(small, ast.BinOp) and isinstance(small.op, ast.Sub):
                small = small.left  # such as N - pid * BLOCK, what is left for a program
            if isinstance(small, ast.Name) and small.id in sizes:
                if any(isinstance(side, ast.Constant) for side in (node.left, *node.comparators)):
                    return f": {ast.unparse(node)} is one condition for all lanes"
                return f": is the comparison {ast.unparse(node)} reversed?"
    return ""


def _compares(*nodes: ast.expr) -> bool:
    return any(isinstance(each, ast.Compare) for node in nodes for each in ast.walk(node))


def _parsed(source: str) -> ast.Module:
    """Return the tree of a kernel's source; an empty one if it can't be parsed."""
    try:
        return ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError):
        return ast.Module([], [])


def _argument(call: str, name: str, place: int) -> ast.expr | None:
    """Return an argument of a call, given as its line; None if it isn't there."""
    for node in ast.walk(_parsed(call)):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.store":
            named = [keyword.value for keyword in node.keywords if keyword.arg == name]
            return named[0] if named else node.args[place] if len(node.args) > place else None
    return None


def _one_element_each(stores: Sequence[Access], result: Argument, case: Case, source: str) -> str:
    """Say that each program stores one element because its lanes are missing; "" if that isn't so."""
    blocks = [name for name in case.numbers if name.startswith("BLOCK")]
    programs = [access.program for access in stores]
    if len(blocks) != 1 or blocks[0] not in source or len(result.dims) != 1:
        return ""
    if len(set(programs)) != len(programs) or any(access.elements.size != 1 for access in stores):
        return ""
    lanes = f"tl.arange(0, {blocks[0]})"
    if lanes not in source:
        return f"each program stores one element: add {lanes} to get the offsets of its block"
    own = [
        ast.unparse(node.targets[0])
        for node in ast.walk(_parsed(source))
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == lanes
    ]
    return f"each program stores one element: add {own[0] if own else lanes} to get one address per lane"


def _other_tile(stores: Sequence[Access], result: Argument, case: Case) -> str:
    """Say that tiles have their rows and columns exchanged, or only one of them; "" if they don't."""
    blocks = [f"BLOCK_{dim}" for dim in result.dims]
    sizes = [case.numbers.get(block, 0) for block in blocks]
    shapes = {access.elements.shape for access in stores}
    if len(blocks) != 2 or not all(sizes) or len(shapes) != 1:
        return ""
    shape = shapes.pop()
    shape = (1, 1) if math.prod(shape) == 1 else shape
    if shape == tuple(sizes[::-1]) != tuple(sizes):
        has = f"{blocks[1]} = {sizes[1]} rows and {blocks[0]} = {sizes[0]} columns"
        return (
            f"a tile of this store has {has}: {blocks[0]} is its number of rows, {blocks[1]} of its columns"
        )
    short = [axis for axis in (0, 1) if len(shape) == 2 and shape[axis] == 1 < sizes[axis]]
    if not short or any(shape[axis] != sizes[axis] for axis in (0, 1) if axis not in short):
        return ""
    has = "one element" if len(short) == 2 else f"one {('row', 'column')[short[0]]}"
    ranges = " and ".join(f"tl.arange(0, {blocks[axis]})" for axis in short)
    return f"a tile of this store has only {has}: its offsets need {ranges}"


def _wrong_stride(access: Access, stores: Sequence[Access], result: Argument, case: Case) -> str:
    """Say how far apart the rows are and should be; "" if the stride is correct, or isn't clear.

    The rows are the tile's if the case has a block of them, such as BLOCK_M. Otherwise each program has one.
    """
    shape, elements = result.shape(case.numbers), access.elements
    if len(shape) < 2:
        return ""
    rows, wanted = math.prod(shape[:-1]), shape[-1]
    steps = np.diff(elements, axis=0) if elements.ndim == 2 else np.zeros(0, int)
    found = int(steps.flat[0]) if steps.size else 0
    flat = steps.size and (steps == found).all() and (np.diff(elements, axis=1) == 1).all()
    tiled = any(f"BLOCK_{dim}" in case.numbers for dim in result.dims[:-1])
    if not tiled:  # the tile's rows are parts of one row
        if flat and 0 < found < (long := elements.shape[1]):
            return f"the rows of your tile begin {_elements(found)} apart, but are {long} long"
        axes = _axes_of_rows(stores, rows)
        found = _apart(access, stores, axes[0]) if len(axes) == 1 else 0
    elif not flat:
        return ""
    strides = {math.prod(shape[axis:]) for axis in range(1, len(shape))}
    if found in strides or found < 1:
        return ""
    apart = _named(found, case) if tiled and found > 1 else _elements(found)
    columns = result.dims[-1]
    right = f"{columns} = {wanted}" if columns in case.numbers else _named(wanted, case)
    return f"your rows are {apart} apart, but rows of {result.name} are {right} apart"


def of_a_wrong_stride(verdict: Verdict, puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return a store out of bounds with its reason: rows of a tile are too far apart; None if they aren't.

    ran: a run whose accesses were kept.
    """
    access = next((a for a in ran.accesses if a.bad.any()), None)
    result = next((r for r in puzzle.results if access and r.name == access.argument), None)
    if access is None or result is None or access.kind == "load":
        return None
    stores = [a for a in ran.accesses if a.kind != "load" and a.argument == result.name]
    why = _wrong_stride(access, stores, result, case)
    return replace(verdict, diagnosis=why) if why else None


def _strides_of(access: Access, result: Argument, case: Case) -> str:
    """Say how far apart a tile's rows are, if no axis of a result with three or more has this stride."""
    shape, elements = result.shape(case.numbers), access.elements
    if len(shape) < 3 or elements.ndim != 2 or len(elements) < 2:
        return ""
    steps = np.unique(np.diff(elements, axis=0))
    strides = [math.prod(shape[axis:]) for axis in range(1, len(shape))]
    if steps.size != 1 or not 1 < (found := int(steps[0])) < strides[0] or found in strides:
        return ""
    told = f"{', '.join(map(str, strides[:-1]))} and {strides[-1]}"
    return f"the rows of your tile are {found} elements apart, but the strides of {result.name} are {told}"


def _axes_of_rows(stores: Sequence[Access], rows: int) -> list[int]:
    """Return the axes of the grid with as many programs as the result has rows, if it has several."""
    counts = (len({each.program[axis] for each in stores}) for axis in range(3))
    return [axis for axis, count in enumerate(counts) if count == rows > 1]


def _apart(access: Access, stores: Sequence[Access], axis: int) -> int:
    """Return how far apart neighboring programs store along an axis with this line; 0 if it isn't clear."""
    first = {}
    for each in stores:
        if each.site == access.site and each.elements.shape == access.elements.shape:
            if each.program in first:
                return 0
            first[each.program] = each.elements
    found = set()
    for program, elements in first.items():
        after = tuple(number + (i == axis) for i, number in enumerate(program))
        if after in first:
            found.update(np.unique(first[after] - elements).tolist())
    return found.pop() if len(found) == 1 else 0


def _elements(count: int) -> str:
    return "one element" if count == 1 else f"{count} elements"


def _named(size: int, case: Case) -> str:
    """Return a number of elements, with the name of the one size of the case that it equals."""
    names = [name for name, value in case.numbers.items() if value == size]
    if len(names) != 1:
        return f"{size} elements"
    return f"{names[0]} = {size} elements"


def _from_data(store: str, source: str) -> bool:
    """Return whether the address of a store, given as its line, depends on loads or on other functions.

    False if that isn't clear.
    """
    try:
        (line,) = ast.parse(store).body
        body = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError):
        return False
    if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Call) and line.value.args):
        return False
    assigned = [node for node in ast.walk(body) if isinstance(node, ast.Assign | ast.AugAssign)]
    waiting, seen = [line.value.args[0]], set[str]()
    while waiting:
        nodes = list(ast.walk(waiting.pop()))
        calls = [ast.unparse(node.func) for node in nodes if isinstance(node, ast.Call)]
        if any(
            name == "tl.load" or "." not in name and name not in ("min", "max", "range") for name in calls
        ):
            return True
        names = {node.id for node in nodes if isinstance(node, ast.Name)} - seen
        seen |= names
        for each in assigned:
            targets = each.targets if isinstance(each, ast.Assign) else [each.target]
            found = {node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name)}
            waiting += [each.value] if found & names else []
    return False


def _wrong_start(
    first: Access, second: Access, result: Argument, puzzle: Puzzle, case: Case, source: str
) -> str:
    """Say where two programs' blocks begin if the second begins within the first; "" if it isn't clear."""
    if first.site != second.site or first.elements.shape != second.elements.shape:
        return ""
    apart = int(second.elements.flat[0] - first.elements.flat[0])
    if not apart:
        axes = [axis for axis in range(3) if first.program[axis] != second.program[axis]]
        if len(axes) == 1:
            if moved := _others_moved(f"{result.name}_ptr", source):
                return f"their offsets are the same, and {result.name}_ptr hasn't moved as {moved} has"
            if re.search(rf"program_id\((axis=)?{axes[0]}\)", source):  # it's used, but not for these offsets
                return f"their offsets are the same, although their tl.program_id({axes[0]}) differs"
            none = [axis for axis in range(len(puzzle.grid(case)), 3) if f"program_id({axis})" in source]
            instead = f" instead of tl.program_id({none[0]}), which is always 0" if none else ""
            return f"their offsets are the same, so use tl.program_id({axes[0]}){instead}"
        *rows, columns = result.dims
        if not rows:
            return "their offsets are the same"
        length = result.shape(case.numbers)[-1]
        apart_by = f"{columns} = {length} elements" if columns != str(length) else f"{length} elements"
        return f"their offsets are the same, but each row of {result.name} is {apart_by} after the one before"
    if text := _tiles_apart(first, second, result, case, overlap=True):
        return text
    sizes = first.elements.size
    if len(result.shape(case.numbers)) != 1 or not (np.diff(first.elements) == 1).all() or apart >= sizes:
        return ""
    numbers = sum(abs(a - b) for a, b in zip(first.program, second.program, strict=True))
    if numbers != 1 or apart < 0:
        return ""
    if _from_data(first.site.source, source):
        return LOADED
    start = "1 element" if apart == 1 else f"{apart} elements"
    return f"one starts {start} after the other, but each program covers {_named(sizes, case)}"


def _begins_after(first: Access, second: Access, result: Argument, puzzle: Puzzle, case: Case) -> str:
    """Say by how much the offsets of two neighboring programs differ; "" if it isn't clear.

    If the axis on which they differ has a program for each index of the result's first axis, say how far
    apart these are.
    """
    if first.site != second.site or first.elements.shape != second.elements.shape:
        return ""
    differences = np.unique(second.elements - first.elements)
    axes = [axis for axis in range(3) if first.program[axis] != second.program[axis]]
    if differences.size != 1 or len(axes) != 1 or second.program[axes[0]] - first.program[axes[0]] != 1:
        return ""
    apart, shape = int(differences[0]), result.shape(case.numbers)
    begins = f"their offsets differ by {_named(apart, case)}"
    wanted = math.prod(shape[1:])
    if len(shape) < 2 or apart <= 0 or apart == wanted or puzzle.grid(case)[axes[0]] != shape[0]:
        return begins
    product = " · ".join(result.dims[1:])
    equals = f"{product} = {wanted} elements" if product != str(wanted) else f"{wanted} elements"
    return f"{begins}, but {result.name}[1, ...] is {equals} after {result.name}[0, ...]"


def _others_moved(pointer: str, source: str) -> str:
    """Return the pointer that a kernel moves by the program's id, if it doesn't move this one; "" if none."""
    moved = moved_pointers(source)
    return moved[0] if moved and pointer not in moved else ""


def of_another_tensor(verdict: Verdict, puzzle: Puzzle, ran: Run, source: str) -> Verdict | None:
    """Return the same fault with the line that sets a tensor's pointer to an address of another tensor.

    None if there is no such line. ran: a run whose accesses were kept.
    """
    access = next((a for a in ran.accesses if a.bad.any()), None)
    if access is None:
        return None
    pointers = {puzzle.pointer(tensor.name): tensor.name for tensor in puzzle.tensors}
    own = puzzle.pointer(access.argument)
    for node in ast.walk(_parsed(source)):
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1):
            continue
        target = ast.unparse(node.targets[0])
        names = {each.id for each in ast.walk(node.value) if isinstance(each, ast.Name)}
        if target in pointers and target != own in names and re.search(rf"\b{target}\b", access.site.source):
            made = f"{ast.unparse(node)} makes {target} an address in {access.argument}"
            text = f"{made}, not in {pointers[target]}"
            return replace(verdict, diagnosis=text)
    return None


def moved_pointers(source: str) -> list[str]:
    """Return the pointers that a kernel moves by the program's id, as in ``x_ptr += pid * BLOCK``."""
    body = _parsed(source)
    ids = [
        ast.unparse(target)
        for node in ast.walk(body) if isinstance(node, ast.Assign) and "program_id" in ast.unparse(node.value)
        for target in node.targets
    ]  # fmt: skip
    moves = [node for node in ast.walk(body) if isinstance(node, ast.AugAssign)]
    moved = [
        ast.unparse(node.target)
        for node in moves
        if re.search(rf"\b({'|'.join(['program_id', *map(re.escape, ids)])})\b", ast.unparse(node.value))
    ]
    return [name for name in moved if name.endswith("_ptr")]


def of_a_moved_pointer(verdict: Verdict, ran: Run, source: str) -> Verdict | None:
    """Return the same fault with its reason: a pointer has moved to its program's block.

    The offsets move as far once more, or the mask counts from the tensor's first element. None if neither
    is so. ran: a run whose accesses were kept.
    """
    access = next((a for a in ran.accesses if a.bad.any()), None)
    if access is None or f"{access.argument}_ptr" not in moved_pointers(source):
        return None
    elements, size = access.elements.ravel(), access.elements.size
    pid = sum(access.program)
    if size < 2 or not pid or (np.diff(elements) != 1).any():
        return None
    moved = f"{access.argument}_ptr has moved to the program's block"
    if int(elements[0]) == 2 * pid * size:
        text = f"{moved}, and the offsets add the block's start a second time"
    elif (
        int(elements[0]) == pid * size
        and access.mask.all()
        and access.bad.sum() > 1
        and "mask" in access.site.source
    ):
        text = f"{moved}, so its mask must count the elements from there"
    else:
        return None
    return replace(verdict, diagnosis=text)


def _starts_too_soon(
    first: Access, second: Access, stores: Sequence[Access], result: Argument, source: str
) -> str:
    """Say that a program begins within the part of a vector that the one before it stores in several steps.

    "" if that isn't so, or isn't clear.
    """
    apart = [abs(a - b) for a, b in zip(first.program, second.program, strict=True)]
    if len(result.dims) != 1 or sum(apart) != 1:
        return ""
    if any(_from_data(access.site.source, source) for access in stores):
        return ""
    parts = [
        np.unique(np.concatenate([a.elements.ravel() for a in stores if a.program == program]))
        for program in (first.program, second.program)
    ]
    late, size = int(parts[1][0] - parts[0][0]), parts[0].size
    if not 0 < late < size == parts[1].size or any((np.diff(part) != 1).any() for part in parts):
        return ""
    return f"one starts {_elements(late)} after the other, but each stores {size} elements"


def _switched_off(
    stores: Sequence[Access], result: Argument, shape: tuple[int, ...], ran: Run, case: Case
) -> tuple[str, Access] | None:
    """Say that the lane for the first missing element is masked off, and why; None if it isn't clear.

    A lane right of a matrix, whose address is in the next row, isn't the lane for that element.
    """
    missing = int(np.asarray(ran.written[result.name]).reshape(-1).argmin())
    for access in stores:
        elements = access.elements
        if not len(shape) == elements.ndim <= 2:
            continue
        lanes = (elements == missing) & ~access.mask
        if len(shape) == 2:
            lanes &= elements // shape[1] == elements[:, :1] // shape[1]
        if lanes.any():
            place = f"{result.name}[{index_of(missing, shape)}]"
            alike = [each for each in stores if each.site == access.site]
            why = mask_exchanged(alike, result, case)
            return why or f"the lane for {place} is switched off by the mask of this store", access
    return None


def _tiles_apart(first: Access, second: Access, result: Argument, case: Case, *, overlap: bool) -> str:
    """Say where two programs' tiles begin if it is neither one tile apart, nor several; "" if it isn't clear.

    The programs must differ along one axis of the grid, and their tiles along one axis of a matrix.
    overlap: whether the tiles overlap. If they don't, one that begins a few whole rows later begins
        past the last column of the same rows.
    """
    shape, elements = result.shape(case.numbers), first.elements
    axes = [axis for axis in range(3) if first.program[axis] != second.program[axis]]
    if len(shape) != 2 or elements.ndim != 2 or len(axes) != 1 or first.site != second.site:
        return ""
    if (
        second.elements.shape != elements.shape
        or not (second.elements - elements == _offset(first, second)).all()
    ):
        return ""
    if (np.diff(elements, axis=1) != 1).any() or (np.diff(elements, axis=0) != shape[1]).any():
        return ""
    rows, columns = divmod(_offset(first, second), shape[1])
    if (rows == 0) == (columns == 0):
        return ""
    dim = 0 if rows else 1
    if not overlap and abs(rows) < len(elements):
        dim, rows, columns = 1, 0, rows * shape[1] + columns
    apart, count = divmod((rows, columns)[dim], second.program[axes[0]] - first.program[axes[0]])
    size, name = elements.shape[dim], f"BLOCK_{result.dims[dim]}"
    if count or apart < 1 or case.numbers.get(name) != size or apart == size:
        return ""
    if overlap != (apart < size):
        return ""
    what = ("row", "column")[dim]
    begin = f"1 {what}" if apart == 1 else f"{apart} {what}s"
    return f"neighboring tiles begin {begin} apart, but a tile has {name} = {size} {what}s"


def _offset(first: Access, second: Access) -> int:
    return int(second.elements.flat[0] - first.elements.flat[0])


def _gap(stores: Sequence[Access], result: Argument, puzzle: Puzzle, case: Case) -> tuple[str, Access] | None:
    """Say that neighboring tiles begin further apart than a tile is long; None if it isn't clear."""
    first = stores[0]
    for other in stores:
        if sum(abs(a - b) for a, b in zip(first.program, other.program, strict=True)) == 1:
            if text := _tiles_apart(first, other, result, case, overlap=False):
                return (
                    f"{the_programs(first.program, other.program, puzzle, case)} leave a gap: {text}",
                    first,
                )
    return None


def _too_few_lanes(stores: Sequence[Access], result: Argument, puzzle: Puzzle, case: Case) -> str:
    """Say that all programs together have fewer lanes than a vector has elements; "" if that isn't so."""
    programs, lanes = math.prod(puzzle.programs(case)), {access.elements.size for access in stores}
    size = math.prod(result.shape(case.numbers))
    if len(result.dims) != 1 or len(lanes) != 1 or len({a.program for a in stores}) != len(stores):
        return ""
    if not 1 < (count := lanes.pop()) or programs * count >= size:
        return ""
    all_of = "1 program stores" if programs == 1 else f"{programs} programs store"
    return f"with {count} lanes each, {all_of} at most {programs * count} elements: a block needs more lanes"


def _too_small_a_share(stores: Sequence[Access], result: Argument, puzzle: Puzzle, case: Case) -> str:
    """Say that each program stores less than its block of a vector; "" if it stores all of it."""
    axis = result.dims[0] if len(result.dims) == 1 else ""
    block = case.numbers.get(f"BLOCK_{axis}", 0)
    counts = {int(access.mask.sum()) for access in stores}
    programs = [access.program for access in stores]
    if len(counts) != 1 or len(set(programs)) != len(programs) or not 0 < (count := counts.pop()) < block:
        return ""
    if case.numbers[axis] != block * math.prod(puzzle.programs(case)):
        return ""
    each = "1 element" if count == 1 else f"{count} elements"
    of = f"program p owns elements p * BLOCK_{axis} to p * BLOCK_{axis} + {block - 1}"
    return f"each program stores {each} of {result.name}, but its share is BLOCK_{axis} = {block}: {of}"
