"""Find out from a run's recorded accesses which axis a mask leaves out, or that a block has too few lanes.

Given a verdict, they return it with that diagnosis, or None if they find nothing.
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from puzzles_lib.checker import comparisons
from puzzles_lib.checker.naming import begins_late
from puzzles_lib.checker.report import Verdict
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import Access, Run, Source

NOUNS = ("row", "column")
LEAST_COLUMNS = 4  # with fewer, the last one of a row may be as near as the one before the first
OF_IMAGES = ("H", "W")  # the last sizes of a tensor of images
CURE = ": compare the "
MASK_EXCHANGED = "the mask compares rows with"
NO_ELEMENT = "the lane's value is undefined, because the tensor has no element for it"
_PRODUCT = re.compile(r"\w+(\*\w+)*")


def past_an_edge(verdict: Verdict, puzzle: Puzzle, case: Case, ran: Run, source: str = "") -> Verdict | None:
    """Return the same fault with its reason: a tile goes past the last row or column, and its mask lets it.

    None if it isn't clear: the tile isn't one of whole rows and columns, or its mask differs along that axis.
    ran: a run whose accesses were kept. source: of the kernel, to see what its mask compares.
    """
    access = next((a for a in ran.accesses if a.bad.any()), None)
    argument = next((t for t in puzzle.tensors if access and t.name == access.argument), None)
    if access is None or argument is None or "boundary_check" in access.site.source:
        return None
    if unasked := [name for name in _factors(argument.dims) if case.numbers.get(name) == 0]:
        why = f"{argument.name} has no elements in this case, because {unasked[0]} = 0"
        return replace(verdict, diagnosis=f"{why}: {access.kind} it only if {unasked[0]} isn't 0")
    alike = [a for a in ran.accesses if a.site == access.site and a.argument == access.argument]
    if early := _before_the_first(access, argument, case):
        return replace(verdict, diagnosis=early)
    written = comparisons.of_access(source, access.kind, argument.name) if source else None
    is_tile = access.kind != "load" and _edges(access, argument, case)
    if is_tile and (late := begins_late(ran, argument, puzzle, case)):
        return replace(verdict, diagnosis=late)  # the mask may be correct
    why = (
        mask_exchanged(alike, argument, case)
        or _either_alone(access, alike, argument, case)
        or _moved_too_far(access, alike, argument, case, written)
        or _not_compared(access, argument, puzzle, case, written=written)
        or _past_its_row(access, alike, argument, puzzle, case)
    )
    return replace(verdict, diagnosis=why) if why else None


def _before_the_first(access: Access, argument: Argument, case: Case) -> str:
    """Say which lanes before the first row or column are on; "" if none are, or the tile isn't whole."""
    shape, elements = argument.shape(case.numbers), access.elements
    if len(shape) < 2 or elements.ndim != len(shape) or elements.size == 0 or int(elements.min()) >= 0:
        return ""
    first, columns = int(elements.flat[0]), shape[-1]
    if columns < LEAST_COLUMNS:
        return ""
    column = (first + columns // 2) % columns - columns // 2  # -1 is nearer than the row before's last one
    lane = np.indices(elements.shape)
    rows, places = (first - column) // columns + lane[-2], column + lane[-1]
    images = lane[0] * shape[-2] if len(shape) > 2 else 0
    if not (elements == (images + rows) * columns + places).all():
        return ""
    told = [
        (noun, numbers[access.mask & (numbers < 0)])
        for noun, numbers in (("row", rows), ("column", places))
        if (access.mask & (numbers < 0)).any()
    ]
    if not told or (access.bad & (rows >= 0) & (places >= 0)).any():
        return ""
    lanes = " and ".join(
        f"{noun} {low}" if (low := int(numbers.min())) == (high := int(numbers.max())) else
        f"{noun}s {low} to {high}"
        for noun, numbers in told
    )  # fmt: skip
    nouns = " and ".join(f"{noun}s" for noun, _ in told)
    return f"lanes for {lanes} are on, but the {nouns} of {argument.name} begin at 0"


def _past_its_row(
    access: Access, alike: Sequence[Access], argument: Argument, puzzle: Puzzle, case: Case
) -> str:
    """Say which lanes past the end of a row are on, if a block is a piece of one row; "" if it isn't.

    Such blocks begin at the first element of every row. alike: all accesses of this line.
    """
    shape, firsts = argument.shape(case.numbers), {int(a.elements.flat[0]) for a in alike if a.elements.size}
    first, columns = int(access.elements.flat[0]), shape[-1]
    is_a_piece = (np.diff(access.elements.reshape(-1)) == 1).all() and len(shape) == len(NOUNS)
    if not is_a_piece or not 0 < first // columns < shape[0]:
        return ""
    numbers = first % columns + np.arange(access.elements.size).reshape(access.elements.shape)
    past = access.mask & (numbers >= columns)
    if not past.any() or not {row * columns for row in range(first // columns + 1)} <= firsts:
        return ""
    compared = (puzzle.ends or {}).get(argument.dims[-1], f"columns with {argument.dims[-1]}")
    noun, bound = compared.split()[0].removesuffix("s"), compared.split()[-1]
    lanes = _lanes_on(noun, bound, columns, numbers[past], argument, of="a row of ")
    return f"{lanes}{CURE}{compared} in the mask"


def _moved_too_far(
    access: Access,
    alike: Sequence[Access],
    argument: Argument,
    case: Case,
    written: comparisons.Access | None,
) -> str:
    """Say that a tile moves along its rows by more columns than it has, and past their end; "" if not.

    The addresses alone look like those of later rows. But the tile would then overlap with the one before it,
    and its mask compares the rows. alike: all accesses of this line, in the order of the run. written: what
    the source compares.
    """
    own = [each for each in alike if each.program == access.program]
    place = next(i for i, each in enumerate(own) if each is access)
    ends = _edges(own[0], argument, case)
    if len(argument.dims) != len(NOUNS):  # with more axes, a tile may also move from one head to the next
        return ""
    if not place or len(ends) != len(NOUNS) or any(a.elements.shape != access.elements.shape for a in own):
        return ""
    firsts = [int(each.elements.flat[0]) for each in own[: place + 1]]
    (_, rows, _, across, _), (_, _, size, along, columns) = ends
    step, height, width = firsts[1] - firsts[0], access.elements.shape[across], access.elements.shape[along]
    is_even = set(np.diff(firsts).tolist()) == {step}
    compares = f"< {rows}" in access.site.source or (written is not None and written.with_size(rows))
    if not is_even or not width < step < height * size or not compares:
        return ""
    lanes = _lanes_on(
        "column", argument.dims[-1], size, columns + firsts[-1] - firsts[0], argument, of="a row of "
    )
    return f"{lanes}: from one iteration to the next, the tile moves {step} columns, but it has {width}"


def stored_past_an_edge(verdict: Verdict, puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return a fault at a result's element with its reason: a lane past the end of a row stores there.

    Memory goes on with the next row, so such a store is not out of bounds. None if no store does so.
    ran: a run whose accesses were kept.
    """
    for access in ran.accesses:
        result = next((t for t in puzzle.results if t.name == access.argument), None)
        if access.kind == "store" and result and "boundary_check" not in access.site.source:
            alike = [a for a in ran.accesses if a.site == access.site]
            why = mask_exchanged(alike, result, case) or _either_alone(access, alike, result, case)
            if why := why or _not_compared(access, result, puzzle, case, in_bounds=True):
                return replace(verdict, diagnosis=why, site=access.site)
    return None


def _not_compared(
    access: Access,
    argument: Argument,
    puzzle: Puzzle,
    case: Case,
    in_bounds: bool = False,
    written: comparisons.Access | None = None,
) -> str:
    """Say which lanes past the last row or column are on, and the comparison that is missing; "" if none.

    in_bounds: whether their addresses are inside the tensor, so that any such lane is at fault. written: what
    the source compares.
    """
    told = []
    for noun, dim, size, axis, numbers in _edges(access, argument, case):
        past = access.mask & (numbers >= size)
        is_alike = (access.mask == np.take(access.mask, [0], axis)).all()
        is_one = bool((numbers[past] == size).all())  # off by one: the next lane is off
        is_one &= not in_bounds or bool((numbers > size).any())
        if past.any() and (is_alike or is_one or in_bounds):
            bound = (puzzle.ends or {}).get(dim, f"{noun}s with {dim}")
            fact = _lanes_on(noun, dim, size, numbers[past], argument)
            if (cure := _compared_otherwise(written, noun, dim, access.kind)) and not in_bounds:
                return f"{fact}{cure}"
            told.append((fact, bound, ", with < instead of <=" if is_one and not is_alike else ""))
    if not told:
        return ""
    facts = ", and ".join(fact for fact, *_ in told)
    cure = " and the ".join(bound for _, bound, _ in told)
    operators = next((how for *_, how in told if how), "") if len(told) == 1 else ""
    return f"{facts}{CURE}{cure} in the mask{operators}"


def _compared_otherwise(written: comparisons.Access | None, noun: str, dim: str, kind: str) -> str:
    """Return the cure of a mask that compares rows or columns, but the wrong ones; "" if it compares none."""
    found = written.with_size(dim) if written else []
    if written is None or len(found) != 1:
        return ""
    (comparison,) = found
    if comparison.or_equal:
        return f"{CURE}{noun}s with {dim} in the mask, with < instead of <="
    if written.moves and not comparison.moves:
        moves = " and ".join(written.moves)
        tested = f"The mask tests {comparison.text}, but the {kind} moves with {moves}"
        return f". {tested}: test the {noun} that is {kind.removesuffix('e')}ed"
    return ""


def _either_alone(access: Access, alike: Sequence[Access], argument: Argument, case: Case) -> str:
    """Say that a lane is on if its row exists or its column, instead of both; "" if that isn't so.

    alike: all accesses of this line.
    """
    ends = _edges(access, argument, case)
    decided = False
    for each in alike:
        inside = [numbers < size for _, _, size, _, numbers in _edges(each, argument, case)]
        if len(inside) != len(NOUNS) or (each.mask != inside[0] | inside[1]).any():
            return ""
        decided |= bool((inside[0] & ~inside[1]).any() and (inside[1] & ~inside[0]).any()) and not (
            each.mask.all()
        )
    told = [
        _lanes_on(noun, dim, size, numbers[access.mask & (numbers >= size)], argument)
        for noun, dim, size, _, numbers in ends
        if (access.mask & (numbers >= size)).any()
    ]
    return f"{', and '.join(told)}: combine the comparisons with &, not with |" if decided and told else ""


def mask_exchanged(alike: Sequence[Access], argument: Argument, case: Case) -> str:
    """Say that a mask compares rows with the number of columns, and the reverse; "" if that isn't so.

    alike: all accesses of one line.
    """
    decided = False
    for each in alike:
        ends = _edges(each, argument, case)
        if len(ends) != len(NOUNS):
            return ""
        (_, rows, M, _, row), (_, columns, N, _, column) = ends
        if rows.isdigit() or columns.isdigit():  # a size that the kernel has no name for
            return ""
        if (each.mask != ((row < N) & (column < M))).any():
            return ""
        decided |= bool((each.mask != ((row < M) & (column < N))).any())
    if not decided:
        return ""
    return f"{MASK_EXCHANGED} {columns} and columns with {rows}: exchange {rows} and {columns} in it"


def _lanes_on(noun: str, dim: str, size: int, numbers: np.ndarray, argument: Argument, of: str = "") -> str:
    """Return which lanes past the end are on. of: what has as many, if it isn't the tensor."""
    first, last = max(size, int(numbers.min())), int(numbers.max())
    lanes = f"{noun} {first}" if last == first else f"{noun}s {first} to {last}"
    has = f"{dim} = {size}" if dim != str(size) else dim
    return f"lanes for {lanes} are on, but {of}{argument.name} has {has} {noun}{'s' * (size != 1)}"


def _edges(access: Access, argument: Argument, case: Case) -> list[tuple[str, str, int, int, np.ndarray]]:
    """Return for rows and columns: the noun, the size's name, the size, the tile's axis, each lane's number.

    The same for images, if the tensor has some. [] if the tile isn't one of whole rows and columns.
    """
    shape = argument.shape(case.numbers)
    if len(shape) < 2:
        return []
    nouns: tuple[str, ...] = NOUNS
    if argument.dims[1:] == OF_IMAGES and access.elements.ndim == 3:
        nouns, places = ("image", *NOUNS), _places_of_three(access, shape)
    else:
        places = _places(access, shape[-2], shape[-1], len(shape) == 2)
    if not places:
        return []
    found, last = [], len(nouns)
    sizes = zip(argument.dims[-last:], shape[-last:], strict=True)
    for noun, (axis, numbers), (dim, size) in zip(nouns, places, sizes, strict=True):
        name = "*".join(name for name in _factors([dim]) if case.numbers.get(name) != 1) or dim
        found.append((noun, name, size, axis, numbers))
    return found


def past_the_end(verdict: Verdict, ran: Run) -> Verdict | None:
    """Return the same fault with its reason: a vector has no mask, or one that is True in too many lanes.

    None if it isn't clear. ran: a run whose accesses were kept.
    """
    access = next((a for a in ran.accesses if a.bad.any()), None)
    if access is None or access.elements.ndim != 1:
        return None
    lane, size = int(access.bad.argmax()), access.mask.size
    steps = np.unique(np.diff(access.elements)).tolist()
    if _has_no_mask(access):
        is_in_place = len(steps) == 1 and 0 <= access.elements[0] % (size * steps[0]) < steps[0]
        if not is_in_place or not lane or not access.bad[lane:].all():
            return None
        lanes = f"only {lane} of the {size} lanes have" if lane > 1 else f"only 1 of the {size} lanes has"
        return replace(verdict, diagnosis=f"this {access.kind} has no mask, but {lanes} an element")
    if "mask" not in access.site.source:
        return None
    in_place = steps == [-1] or (steps == [1] and access.elements[0] % size == 0)  # else, it's the address
    if not in_place or not (access.mask[: lane + 1].all() and access.bad[lane:][access.mask[lane:]].all()):
        return None
    if access.bad.sum() == 1 and lane + 1 < size:
        text = f"the mask is True in one lane too many: lane {lane - 1} is the last one that has an element"
    elif access.mask.all() and lane:
        has = f"{lane} of them have" if lane > 1 else "1 of them has"
        text = f"all {size} lanes are on, but only {has} an element"
    else:
        return None
    return replace(verdict, diagnosis=text)


def _has_no_mask(access: Access) -> bool:
    """Return whether the line has calls such as ``tl.load(addresses)``, and none of them has a mask."""
    try:
        tree = ast.parse(access.site.source.strip())
    except SyntaxError:  # a part of a statement
        return False
    least = {"load": 1, "store": 2}.get(access.kind, 0)
    named = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    calls = [node for node in named if ast.unparse(node.func) == f"tl.{access.kind}"]
    return bool(calls) and all(len(call.args) == least and not call.keywords for call in calls)


def _factors(dims: Sequence[str]) -> list[str]:
    """Return the names in sizes that are products, such as "COUT*NEED_DW"; other sizes as they are."""
    return [each for dim in dims for each in (dim.split("*") if _PRODUCT.fullmatch(dim.strip()) else [dim])]


def without_cure(diagnosis: str) -> str:
    """Return what `past_an_edge` says but its cure, for a mask that compares in all listed cases."""
    return diagnosis.partition(CURE)[0]


def cure_of_lanes(verdict: Verdict, source: Source, puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return the verdict on undefined lanes with the cure that fits; None if it isn't clear.

    A lane that has an element should have been loaded. One that has none needs another value.
    ran: a run whose accesses were kept.
    """
    argument = next((t for t in puzzle.tensors if f"{t.name}_ptr" == source.what), None)
    if argument is None or source.use is None or "boundary_check" in source.site.source:
        return None
    own = [a for a in ran.accesses if a.program == source.use.program]
    loads = [a for a in own if a.kind == "load" and a.site == source.site and not a.mask.all()]
    stores = [a for a in own if a.kind == "store" and a.argument == source.use.what]
    found: set[bool] = set()
    for load in loads:
        has = _have_elements(load, argument.shape(case.numbers))
        if has is None:
            return None
        alike = [s for s in stores if s.elements.shape == load.elements.shape]
        stored = [s.mask & (s.elements == source.use.element) for s in alike]
        lanes = ~load.mask & np.logical_or.reduce(stored) if stored else ~load.mask
        found |= set(has[lanes if lanes.any() else ~load.mask].tolist())
    if len(found) != 1:
        return None
    text = "the lane's value is undefined, although the tensor has an element for it: extend the load's mask"
    if not found.pop():
        how = "with other= (or with tl.where after the load)"
        text = f"{NO_ELEMENT}: don't use the lane, or give it a value {how}"
    return replace(verdict, diagnosis=text)


def where_zero_is_wrong(verdict: Verdict, zeros: Verdict | None, puzzle: Puzzle) -> Verdict:
    """Return a verdict of `cure_of_lanes` that doesn't advise other=0 if that gives wrong values.

    zeros: the verdict on a run whose undefined lanes are 0; None if it is correct.
    """
    if not verdict.diagnosis.startswith(NO_ELEMENT) or zeros is None or zeros.kind != "values":
        return verdict
    text = f"{NO_ELEMENT}: don't use the lane, or give it a value that changes no result, as 0 would"
    if zeros.diagnosis.startswith(tuple(puzzle.slips or {})):
        text = f"{NO_ELEMENT}: don't use the lane. other=0 isn't enough: {zeros.diagnosis}"
    return replace(verdict, diagnosis=text)


def _have_elements(access: Access, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return for each lane whether the tensor has an element for it; None if it isn't clear.

    A lane past the end of a row has none, although its address is that of an element of the next row.
    """
    elements = access.elements
    inside = (elements >= 0) & (elements < np.prod(shape))
    if len(shape) < 2:
        return inside
    if elements.ndim == 2 and (places := _places(access, shape[-2], shape[-1], len(shape) == 2)):
        (_, row), (_, column) = places
        return inside & (row < shape[-2]) & (column < shape[-1])
    if (np.diff(elements.reshape(-1)) == 1).all():  # neighbors of one row, also if a tile is cut out of it
        first = int(elements.reshape(-1)[0])
        return inside & (elements // shape[-1] == first // shape[-1])
    return None


def _places(access: Access, rows: int, columns: int, is_matrix: bool) -> list[tuple[int, np.ndarray]] | None:
    """Return the axis of a tile for the rows, with the row of each lane, and the same for the columns.

    None if the tile has no such axes. is_matrix: whether nothing follows the last row.
    """
    elements = access.elements
    if elements.ndim != 2 or columns < 2 or elements[0, 0] < 0:
        return None
    first = int(elements[0, 0])
    steps = [int(line[1] - line[0]) if len(line) > 1 else None for line in (elements[:, 0], elements[0])]
    lane = np.indices(elements.shape)
    if not (elements == first + sum(n * (step or 0) for n, step in zip(lane, steps, strict=True))).all():
        return None
    for row, column in ((0, 1), (1, 0)):
        if steps[row] in (columns, None) and steps[column] in (1, None):
            start, place = divmod(first, columns)
            start = start if is_matrix else start % rows
            return [(row, start + lane[row]), (column, place + lane[column])]
    return None


def _places_of_three(access: Access, shape: tuple[int, ...]) -> list[tuple[int, np.ndarray]] | None:
    """Return the same for a tile with three axes, in the order of the tensor's: each axis, and its numbers.

    None if an element isn't where these numbers say, or the first lane is in none of the tensor's rows.
    """
    first, lane = int(access.elements[0, 0, 0]), np.indices(access.elements.shape)
    if not 0 <= first < np.prod(shape):
        return None
    image, within = divmod(first, shape[1] * shape[2])
    start = np.array([image, *divmod(within, shape[2])]).reshape(3, 1, 1, 1)
    numbers = start + lane
    placed = (numbers[0] * shape[1] + numbers[1]) * shape[2] + numbers[2]
    return list(enumerate(numbers)) if np.array_equal(placed, access.elements) else None
