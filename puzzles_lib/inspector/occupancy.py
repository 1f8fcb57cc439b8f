"""Compute how many programs fit on a multiprocessor at a time, and which resource limits that number."""

from puzzles_lib.timing.h200 import PROGRAMS, REGISTERS, RESERVED, SHARED, WARPS


def resident(registers: int, shared: int, warps: int) -> int:
    """Return how many programs one multiprocessor of an H200 runs at a time.

    registers: per thread. Warps get them in units of 256, each from a quarter of the register file.
    shared: bytes per program. warps: per program.

    Raises ValueError for a number that no program can have.
    """
    for name, number, least in (("registers", registers, 1), ("shared", shared, 0), ("warps", warps, 1)):
        if not isinstance(number, int) or number < least:
            raise ValueError(f"resident: {name} must be an integer of at least {least}, but is {number!r}")
    lot = -(-registers * 32 // 256) * 256
    by_registers = 4 * (REGISTERS // 4 // lot) // warps
    return min(by_registers, WARPS // warps, SHARED // (shared + RESERVED), PROGRAMS)


def one_more(registers: int, shared: int, warps: int) -> str:
    """Say what prevents one more program, and how little of it would allow one."""
    now = resident(registers, shared, warps)
    one = "one program more" if now else "a program"
    fewer = next((r for r in range(registers, 0, -1) if resident(r, shared, warps) > now), None)
    if fewer is not None:
        return f"{registers} registers per thread: {one} fits with {fewer} or fewer"
    most = SHARED // (now + 1) - RESERVED
    if resident(registers, most, warps) > now:
        return f"{shared} bytes of shared memory: {one} fits with {most} or fewer"
    both = f"{registers} registers per thread and {shared} bytes of shared memory"
    return f"{both} are each too many for {one}"
