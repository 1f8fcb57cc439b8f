"""Read a version of chapter 15's kernel from its machine code: evidence, and a bound on its time on an H200.

Nothing here needs a GPU.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace

from puzzles_lib.chapters.ch15_racing_cublas.puzzles import race_puzzle
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, GROUP, ROWS, Rung
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.inspector.sass import bytes_stored_to_shared, matrix_loop, overwritten_operands
from puzzles_lib.inspector.step import PRODUCTS, SCHEDULERS, step
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.timing.h200 import BYTES, MULTIPROCESSORS

CLOCK = 1.98e9  # the highest of an H200, in Hz; busy tensor cores lower it, see `recorded.clocks`
PEAK = 2 * PRODUCTS * MULTIPROCESSORS * CLOCK  # FLOP/s of the tensor cores at that clock
DIGEST = 16  # hexadecimal digits


def small_puzzle(rung: Rung) -> Puzzle:
    """Return the problem with small sizes and the tiles of this version."""
    row_words = "scale_ptr" in rung.kernel.arg_names
    tiles = {name: rung.constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
    return race_puzzle(row_words, rung.descriptors, **tiles)


def compile_rung(rung: Rung) -> Stages:
    """Return `stages` of a version at its real size, for an H200."""
    sizes = {"K": ROWS[0], "COUT": COUT, "CIN": CIN, "GROUP": GROUP, "SPLITS": rung.splits}
    return stages(rung.kernel, small_puzzle(rung), "sm_90", **sizes, **rung.options)


# ---- slots for programs


def waves(rung: Rung, compiled: Stages) -> tuple[int, int]:
    """Return the number of programs, and how many of them the whole GPU holds at a time (its slots)."""
    held = resident(compiled.registers, compiled.shared_bytes, rung.options["num_warps"])
    return math.prod(rung.grid()), MULTIPROCESSORS * held


def waves_text(rung: Rung, compiled: Stages) -> str:
    """Return `waves` in words."""
    programs, held = waves(rung, compiled)
    return f"{programs} programs for {held} slots ({held // MULTIPROCESSORS} per multiprocessor)"


# ---- evidence


@dataclass(frozen=True)
class Evidence:
    """What decides a version's speed, read from the compiler's output.

    registers: per thread. spills: bytes per thread. shared: bytes per program. operand: where the tensor
    cores take x̂ from. in_flight: rows of K whose wgmmas may still run when an iteration ends. passed_on:
    bytes that threads exchange through shared memory per iteration. instructions, products: those of one
    iteration, per warp and per program; 0 if no loop has matrix instructions. overwrites: instructions that
    write what a wgmma may still read. notes: ptxas's remarks on wgmma. code: digest of the machine code.
    """

    registers: int
    spills: int
    shared: int
    operand: str
    in_flight: int
    passed_on: int
    instructions: int
    products: int
    overwrites: int
    notes: tuple[str, ...]
    code: str

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"notes": list(self.notes)}

    @classmethod
    def from_dict(cls, told: Mapping) -> "Evidence":
        return cls(**{**told, "notes": tuple(told["notes"])})

    def lines(self, block_k: int) -> list[str]:
        """Return the evidence as lines of text. block_k: rows of K per iteration."""
        lines = [
            f"{self.registers} registers per thread, {self.spills} bytes spilled, "
            f"{self.shared} bytes of shared memory per program",
            f"x̂ reaches the tensor cores from {self.operand}",
            f"{_in_flight(self.in_flight, block_k)} in flight across iterations",
            f"in each iteration of {block_k} rows, threads exchange {self.passed_on} bytes through shared "
            "memory",
        ]
        return lines + [f"ptxas warns: {note}" for note in self.notes]

    def unlike(self, other: "Evidence") -> list[str]:
        """Return the differences from other evidence, as text: this figure, then the other one."""
        told = {
            "registers": "{} registers per thread",
            "spills": "{} bytes spilled",
            "shared": "{} bytes of shared memory",
            "operand": "x̂ from {}",
            "in_flight": "{} rows in flight across iterations",
            "passed_on": "{} bytes exchanged",
            "instructions": "{} instructions per iteration",
            "overwrites": "{} overwrites",
        }
        pairs = [(words, getattr(self, name), getattr(other, name)) for name, words in told.items()]
        found = [f"{words.format(mine)}, not {theirs}" for words, mine, theirs in pairs if mine != theirs]
        if self.notes != other.notes:
            mine, theirs = (", ".join(note[:5] for note in e.notes) or "none" for e in (self, other))
            found.append(f"warnings of ptxas: {mine}, not {theirs}")
        if not found and self.code != other.code:
            found.append("the same figures, but other instructions")
        return found


def evidence(rung: Rung, compiled: Stages) -> Evidence:
    """Return the evidence of a version that compiles."""
    turn = step(compiled)
    return Evidence(
        registers=compiled.registers,
        spills=compiled.spills,
        shared=compiled.shared_bytes,
        operand=operand(compiled),
        in_flight=rows_in_flight(rung, compiled),
        passed_on=bytes_passed_on(rung, compiled),
        instructions=turn.instructions if turn else 0,
        products=turn.products if turn else 0,
        overwrites=len(overwritten_operands(compiled.sass)),
        notes=tuple(ptxas_notes(compiled)),
        code=digest(compiled),
    )


def _in_flight(rows: int, block_k: int) -> str:
    return f"the wgmmas of the last {rows} of {block_k} rows may stay" if rows else "no wgmma stays"


def digest(compiled: Stages) -> str:
    """Return a digest of its instructions: the same for kernels that differ only in comments and names."""
    return hashlib.sha256(compiled.sass.encode()).hexdigest()[:DIGEST]


def loop(compiled: Stages) -> str:
    """Return the body of the kernel's loop in TTGIR."""
    match = re.search(r"scf\.for .*?\n(.*?)scf\.yield", compiled.ttgir, re.DOTALL)
    return match[1] if match else ""


def operand(compiled: Stages) -> str:
    """Return where the tensor cores take x̂ from: ``"registers"`` or ``"shared memory"``."""
    dots = [line for line in loop(compiled).splitlines() if "warp_group_dot " in line]
    return "registers" if any("dot_op" in line for line in dots) else "shared memory"


def rows_in_flight(rung: Rung, compiled: Stages) -> int:
    """Return how many rows of K may still be multiplied when an iteration ends.

    A wait lets the latest groups of wgmma run on, as many as it says. What starts after the last wait may run
    on, too.
    """
    groups, running = [0], 0  # wgmmas of each group, the last one unfinished; groups that may run
    for name, operands in matrix_loop(compiled.sass):
        if name.startswith("HGMMA"):
            groups[-1] += 1
            if "gsb" in operands:  # the last wgmma of its group
                groups.append(0)
                running += 1
        elif name == "WARPGROUP.DEPBAR.LE":
            running = min(running, int(operands.split(",")[1], 0))
    flying = sum(groups[-1 - running :])
    return rung.constants["BLOCK_K"] * flying // max(1, sum(groups))


def bytes_passed_on(rung: Rung, compiled: Stages) -> int:
    """Return the bytes that a program's threads exchange through shared memory per iteration."""
    body = matrix_loop(compiled.sass)
    return bytes_stored_to_shared(body) * 32 * rung.options["num_warps"]


def ptxas_notes(compiled: Stages) -> list[str]:
    """Return ptxas's remarks on wgmma with their numbers: "C7515: wgmma... are serialized due to..."."""
    found = re.findall(r"\((C75\d\d)\) (?:Potential Performance Loss: )?(.*)", compiled.built.log)
    return sorted({f"{number}: {words.partition(' in the function')[0]}" for number, words in found})


# ---- a bound


@dataclass(frozen=True)
class Bound:
    """The least time that the machine code allows on the busiest multiprocessor, at a given clock.

    At `CLOCK`, the chip's highest, no run is faster. Under load the chip runs slower.

    programs: how many programs the multiprocessor runs, one after the other or together. turns: the
    iterations of the longest program's loop. issue: clocks of the schedulers to start an iteration's
    instructions.
    tensor: clocks of the tensor cores for an iteration's products. sums_us: microseconds to write and read
    the partial sums, as fast as a large copy. What else a kernel waits for (memory, barriers, what is before
    and after the loop) comes on top. clock: in Hz.
    """

    programs: int
    turns: int
    issue: float
    tensor: float
    sums_us: float
    clock: float = CLOCK

    def at(self, mhz: float) -> "Bound":
        """Return this bound at another clock."""
        return replace(self, clock=1e6 * mhz)

    @property
    def issue_us(self) -> float:
        return self._us(self.issue)

    @property
    def tensor_us(self) -> float:
        return self._us(self.tensor)

    @property
    def least_us(self) -> float:
        """Microseconds if issuing and tensor cores overlap all the time."""
        return max(self.issue_us, self.tensor_us)

    @property
    def turns_us(self) -> float:
        """Microseconds if issuing and tensor cores never overlap."""
        return self.issue_us + self.tensor_us

    @property
    def forecast_us(self) -> float:
        """Microseconds without any overlap, plus the partial sums: a rule of thumb."""
        return self.turns_us + self.sums_us

    def _us(self, clocks: float) -> float:
        return 1e6 * self.programs * self.turns * clocks / self.clock

    def lines(self, instructions: int, warps: int) -> list[str]:
        """Return the parts of the bound as lines of text. instructions: those of an iteration, per warp."""
        one = "1 program" if self.programs == 1 else f"{self.programs} programs"
        return [
            f"one iteration takes {self.issue:.0f} clocks to issue ({instructions} instructions in each of "
            f"{warps} warps)",
            f"    and {self.tensor:.0f} clocks on tensor cores",
            f"the busiest multiprocessor runs {one} of {self.turns} iterations",
        ]


def bound(launch: Mapping[str, int], found: Evidence, rows: int = ROWS[0]) -> Bound | None:
    """Return the bound of machine code for K = ``rows``, or None if no loop has matrix instructions.

    Programs are spread evenly over the multiprocessors, and the longest part of K counts for all.
    launch: what `Rung.launch` returns.
    """
    if not found.products:
        return None
    m, n, k, splits = (launch[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "splits"))
    steps = -(-(rows // k) // splits)  # of the longest part
    return Bound(
        programs=-(-(COUT // m) * (CIN // n) * splits // MULTIPROCESSORS),
        turns=-(-steps * m * n * k // found.products),
        issue=found.instructions * launch["num_warps"] / SCHEDULERS,
        tensor=found.products / PRODUCTS,
        sums_us=1e6 * 2 * 4 * COUT * CIN * splits / BYTES,
    )
