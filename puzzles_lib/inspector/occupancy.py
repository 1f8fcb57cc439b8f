"""How many programs a multiprocessor holds at a time, and what would let it hold one more."""

from puzzles_lib.bench.h200 import PROGRAMS, REGISTERS, RESERVED, SHARED, WARPS


def resident(registers: int, shared: int, warps: int) -> int:
    """Programs that one multiprocessor of an H200 holds at a time.

    registers: a thread; they are given out to warps in lots of 256, from a quarter of the file each.
    shared: bytes a program. warps: a program.

    Raises ValueError for a number that no program has.
    """
    for name, number, least in (("registers", registers, 1), ("shared", shared, 0), ("warps", warps, 1)):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"resident: {name} is {number!r}, allowed is any whole number from {least}")
    lot = -(-registers * 32 // 256) * 256
    by_registers = 4 * (REGISTERS // 4 // lot) // warps
    return min(by_registers, WARPS // warps, SHARED // (shared + RESERVED), PROGRAMS)


def one_more(registers: int, shared: int, warps: int) -> str:
    """What keeps one more program out, and how little of it would let that in."""
    now = resident(registers, shared, warps)
    one = "one program more" if now else "a program"
    fewer = next((r for r in range(registers, 0, -1) if resident(r, shared, warps) > now), None)
    if fewer is not None:
        return f"{registers} registers a thread: {one} fits with {fewer} or fewer"
    most = SHARED // (now + 1) - RESERVED
    if resident(registers, most, warps) > now:
        return f"{shared} bytes of shared memory: {one} fits with {most} or fewer"
    both = f"{registers} registers a thread and {shared} bytes of shared memory"
    return f"{both} are each too many for {one}"
