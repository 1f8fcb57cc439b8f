"""Read NVIDIA's machine code: its instructions, the loop with the matrix instructions, and its hazards.

A wgmma (HGMMA) whose left operand is in registers reads them after the instruction is issued. Until a
WARPGROUP.DEPBAR says that its group is done, no instruction must write them. If a compiler gets this wrong,
the kernel's results change from run to run.
"""

import re
from collections.abc import Iterator, Sequence

Instruction = tuple[str, str]

_LINE = re.compile(r"^(?:\S+\s+)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);?\s*$")
_GUARDED = re.compile(r"^\S+\s+@")
_ENDS = ("EXIT", "BRA", "RET", "KILL")  # nothing follows, unless a predicate or an operand decides
_ANYWHERE = ("BRX", "JMX")  # to an address in a register: any label may be next
_MATRIX = ("HMMA", "IMMA", "HGMMA", "IGMMA", "QGMMA")  # of one warp, and of four warps


def instructions(sass: str) -> Iterator[Instruction]:
    """Return pairs (operation, operands) of SASS from Triton or `stages`; labels are ("label", name)."""
    for line in sass.splitlines():
        line = line.strip()
        if re.fullmatch(r"[.\w]+:", line):
            yield "label", line[:-1]
        elif re.match(r"\S+\t|[0-9a-f]{4,}\s", line) and (found := _LINE.match(line.replace("\t", " "))):
            yield found[1], found[2]


def reached(sass: str) -> list[Instruction]:
    """Return the instructions that a thread can reach from the first one, in the order of the listing.

    Labels don't count, nor does the padding after the end: a jump to itself, and NOPs up to a round address.
    """
    lines = [(line, found) for line in sass.splitlines() for found in instructions(line)]
    code, guarded = [found for _, found in lines], [bool(_GUARDED.match(line.strip())) for line, _ in lines]
    labels = {name: place for place, (operation, name) in enumerate(code) if operation == "label"}
    seen: set[int] = set()
    to_see = [0]
    while to_see:
        place = to_see.pop()
        if place in seen or place >= len(code):
            continue
        seen.add(place)
        operation, operands = code[place]
        kind = operation.partition(".")[0]
        if kind in _ANYWHERE:
            to_see += labels.values()
        to_see += [labels[name] for name in re.findall(r"`\((\.\w+)\)", operands) if name in labels]
        if guarded[place] or kind not in _ENDS or "," in operands:
            to_see.append(place + 1)
    return [code[place] for place in sorted(seen) if code[place][0] != "label"]


def matrix_loop(sass: str) -> list[Instruction]:
    """Return the innermost loop with most matrix instructions, with its branch back; [] if there is none."""
    code = list(instructions(sass))
    return [code[place] for place in matrix_loop_places(code) if code[place][0] != "label"]


def matrix_loop_places(code: Sequence[Instruction]) -> range:
    """Return `matrix_loop` as places in a listing, including those of labels."""
    loops = [range(start, end + 1) for end, start in _branches_back(code).items()]
    counts = {loop: sum(code[place][0].startswith(_MATRIX) for place in loop) for loop in loops}
    inner = [
        loop
        for loop, count in counts.items()
        if count and not any(_within(other, loop) for other in loops if counts[other])
    ]
    return max(inner, key=lambda loop: (counts[loop], -len(loop)), default=range(0))


def _branches_back(code: Sequence[Instruction]) -> dict[int, int]:
    """Map the place of each branch to an earlier label to that label's place."""
    labels = {name: place for place, (operation, name) in enumerate(code) if operation == "label"}
    targets = {p: labels.get(_target(ops), p) for p, (op, ops) in enumerate(code) if op.startswith("BRA")}
    return {place: target for place, target in targets.items() if target < place}


def _within(one: range, other: range) -> bool:
    return one != other and one[0] >= other[0] and one[-1] <= other[-1]


def overwritten_operands(sass: str) -> list[str]:
    """Return instructions that write a register which a wgmma in flight may read; loops are walked twice."""
    code = list(instructions(sass))
    back = _branches_back(code)
    found, flying, group = [], [], set()
    place = 0
    while place < len(code):
        operation, operands = code[place]
        if operation.startswith("HGMMA"):
            parts = [part.strip() for part in operands.split(",")]
            if register := re.fullmatch(r"R(\d+)", parts[1].removesuffix(".reuse")):
                group |= set(range(int(register[1]), int(register[1]) + 4))
            if "gsb0" in parts:
                flying.append(group)
                group = set()
        elif operation.startswith("WARPGROUP.DEPBAR"):
            left = int(operands.split(",")[1], 0)
            flying = flying[len(flying) - left :] if left and len(flying) > left else flying * bool(left)
        elif hit := written(operation, operands) & set().union(group, *flying):
            found.append(f"{operation} {operands} writes R{min(hit)}")
        place = back.pop(place, place) + 1
    return found


def _target(operands: str) -> str:
    return operands.split()[-1].strip("`()") if operands else ""


def written(operation: str, operands: str) -> set[int]:
    """Return the vector registers that an instruction writes."""
    first = operands.split(",")[0].strip()
    if operation.startswith(("ST", "RED", "BAR", "SYNCS", "UTMA", "BRA", "ISETP", "R2UR", "VOTE")):
        return set()
    if not (register := re.fullmatch(r"R(\d+)", first)):
        return set()
    wide = 1
    if operation.startswith("LDSM"):
        wide = _matrices(operation)
    elif ".128" in operation:
        wide = 4
    elif ".64" in operation or ".WIDE" in operation:
        wide = 2
    return set(range(int(register[1]), int(register[1]) + wide))


def bytes_stored_to_shared(code: Sequence[Instruction]) -> int:
    """Return the bytes that one thread stores to shared memory, except copies from global memory."""
    sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1, "8": 1}
    count = 0
    for operation, _ in code:
        name, *parts = operation.split(".")
        if name == "STS":
            count += next((sizes[part] for part in parts if part in sizes), 4)
        elif name == "STSM":
            count += 4 * _matrices(operation)
    return count


def _matrices(operation: str) -> int:
    """Return how many matrices of 8 rows of 16 bytes an LDSM or STSM moves: the number at its end, or 1."""
    last = operation.rpartition(".")[2]
    return int(last) if last.isdigit() else 1
