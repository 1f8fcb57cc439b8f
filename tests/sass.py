"""What a Hopper kernel's machine code says about wgmma and the registers that it reads while it runs.

A wgmma (HGMMA) whose left operand is in registers reads them after the instruction is issued: until a
WARPGROUP.DEPBAR says that its group is done, nothing may write them. A compiler that gets it wrong makes
a kernel whose results change from run to run.
"""

import re
from collections.abc import Iterator

_LINE = re.compile(r"^(?:\S+\s+)?(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);?\s*$")


def instructions(sass: str) -> Iterator[tuple[str, str]]:
    """Pairs (operation, operands) of Triton's SASS listing; a label is ("label", its name)."""
    for line in sass.splitlines():
        line = line.strip()
        if re.fullmatch(r"\w+:", line):
            yield "label", line[:-1]
        elif "\t" in line and (found := _LINE.match(line.replace("\t", " "))):
            yield found[1], found[2]


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
        if operation == "BRA" and (target := labels.get(operands.split()[-1].strip("`()"))) is not None:
            if target < place and place not in seen:
                seen.add(place)
                place = target
        place += 1
    return found


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
