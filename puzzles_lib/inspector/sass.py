"""What a Hopper kernel's machine code says about wgmma and the registers that it reads while it runs.

A wgmma (HGMMA) whose left operand is in registers reads them after the instruction is issued: until a
WARPGROUP.DEPBAR says that its group is done, nothing may write them. A compiler that gets it wrong makes
a kernel whose results change from run to run.
"""

import re
from collections.abc import Iterator, Sequence

Instruction = tuple[str, str]

_LINE = re.compile(r"^(?:\S+\s+)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);?\s*$")


def instructions(sass: str) -> Iterator[Instruction]:
    """Pairs (operation, operands) of a listing, Triton's or that of `stages`; a label is ("label", name)."""
    for line in sass.splitlines():
        line = line.strip()
        if re.fullmatch(r"[.\w]+:", line):
            yield "label", line[:-1]
        elif re.match(r"\S+\t|[0-9a-f]{4,}\s", line) and (found := _LINE.match(line.replace("\t", " "))):
            yield found[1], found[2]


def main_loop(code: Sequence[Instruction]) -> Sequence[Instruction]:
    """The innermost loop with the most wgmma in it; empty where there is none."""
    labels = {name: place for place, (operation, name) in enumerate(code) if operation == "label"}
    best, most = code[:0], 0
    for place, (operation, operands) in enumerate(code):
        target = labels.get(_target(operands), place) if operation == "BRA" else place
        body = code[target:place]
        count = sum(name.startswith("HGMMA") for name, _ in body)
        if count > most or (count == most and count and len(body) < len(best)):
            best, most = body, count
    return best


def overwritten_operands(sass: str) -> list[str]:
    """Instructions that write a register which a wgmma still in flight may read; loops are walked twice."""
    code = list(instructions(sass))
    labels = {name: place for place, (operation, name) in enumerate(code) if operation == "label"}
    found, flying, group, seen = [], [], set(), set()
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
        if operation == "BRA" and (target := labels.get(_target(operands))) is not None:
            if target < place and place not in seen:
                seen.add(place)
                place = target
        place += 1
    return found


def _target(operands: str) -> str:
    return operands.split()[-1].strip("`()") if operands else ""


def written(operation: str, operands: str) -> set[int]:
    """Vector registers that an instruction writes."""
    first = operands.split(",")[0].strip()
    if operation.startswith(("ST", "RED", "BAR", "SYNCS", "UTMA", "BRA", "ISETP", "R2UR", "VOTE")):
        return set()
    if not (register := re.fullmatch(r"R(\d+)", first)):
        return set()
    wide = 1
    if operation.startswith("LDSM"):
        wide = int(operation.rsplit(".", 1)[1])
    elif ".128" in operation:
        wide = 4
    elif ".64" in operation or ".WIDE" in operation:
        wide = 2
    return set(range(int(register[1]), int(register[1]) + wide))


def bytes_stored_to_shared(code: Sequence[Instruction]) -> int:
    """Bytes that one thread stores to shared memory, copies from global memory (LDGSTS, TMA) not counted."""
    sizes = {"128": 16, "64": 8, "U16": 2, "S16": 2, "16": 2, "U8": 1, "S8": 1, "8": 1}
    count = 0
    for operation, _ in code:
        name, *parts = operation.split(".")
        if name == "STS":
            count += next((sizes[part] for part in parts if part in sizes), 4)
        elif name == "STSM":
            count += 4 * int(parts[-1])
    return count
