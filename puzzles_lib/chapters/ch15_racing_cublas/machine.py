"""What the compiler and an H200 make of a version of chapter 15's kernel: evidence, and a bound on its time.

None of it needs a GPU.
"""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from puzzles_lib.bench.h200 import BYTES, FLOPS, MULTIPROCESSORS
from puzzles_lib.chapters.ch15_racing_cublas.puzzles import race_puzzle
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, GROUP, ROWS, Rung
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.inspector.sass import bytes_stored_to_shared, matrix_loop, overwritten_operands
from puzzles_lib.inspector.step import PRODUCTS, SCHEDULERS, step
from puzzles_lib.puzzle import Puzzle

CLOCK = FLOPS / (2 * PRODUCTS * MULTIPROCESSORS)  # a second: where tensor cores reach the data sheet's rate
DIGEST = 16  # hexadecimal digits


def small_puzzle(rung: Rung) -> Puzzle:
    """The problem in small, with the tiles of this version."""
    row_words = "scale_ptr" in rung.kernel.arg_names
    tiles = {name: rung.constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
    return race_puzzle(row_words, rung.descriptors, **tiles)


def compile_rung(rung: Rung) -> Stages:
    """`stages` of a version in its real size, for an H200."""
    sizes = {"K": ROWS[0], "COUT": COUT, "CIN": CIN, "GROUP": GROUP, "SPLITS": rung.splits}
    return stages(rung.kernel, small_puzzle(rung), "sm_90", **sizes, **rung.options)


# ---- places for programs


def waves(rung: Rung, compiled: Stages) -> tuple[int, int]:
    """Programs in all, and how many the whole GPU holds at a time."""
    held = resident(compiled.registers, compiled.shared_bytes, rung.options["num_warps"])
    return math.prod(rung.grid()), MULTIPROCESSORS * held


def waves_text(rung: Rung, compiled: Stages) -> str:
    programs, held = waves(rung, compiled)
    text = f"{programs} programs, {held // MULTIPROCESSORS} at a time on each multiprocessor"
    return f"{text}: {held} places, filled {programs / held:.2f} times"


# ---- evidence


@dataclass(frozen=True)
class Evidence:
    """What decides a version's speed, read from the compiler's output.

    registers: a thread. spills: bytes a thread. shared: bytes a program. operand: where the tensor cores take
    x^ from. pending: groups of wgmma that may still run when a turn ends. passed_on: bytes that threads hand
    on to each other through shared memory in a turn. instructions, products: of a turn of the loop, for a
    warp and for the program; 0 where no loop has matrix instructions. overwrites: instructions that write
    what a wgmma may still read. notes: ptxas's remarks on wgmma. code: digest of the machine code.
    """

    registers: int
    spills: int
    shared: int
    operand: str
    pending: int
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
        """As text. block_k: rows of a turn."""
        lines = [
            f"{self.registers} registers a thread, {self.spills} bytes spilled, "
            f"{self.shared} bytes of shared memory",
            f"x^ to the tensor cores from {self.operand}; when a turn ends, {_groups(self.pending)} of "
            "wgmma may go on",
            f"in a turn of {block_k} rows threads pass on {self.passed_on} bytes through shared memory",
        ]
        return lines + [f"ptxas remarks {note}" for note in self.notes]

    def unlike(self, other: "Evidence") -> list[str]:
        """In what it differs from another, as text: its own figure, and the other's."""
        told = {
            "registers": "{} registers a thread",
            "spills": "{} bytes spilled",
            "shared": "{} bytes of shared memory",
            "operand": "x^ from {}",
            "pending": "{} groups of wgmma that go on",
            "passed_on": "{} bytes passed on",
            "instructions": "{} instructions a turn",
            "overwrites": "{} overwrites",
        }
        pairs = [(words, getattr(self, name), getattr(other, name)) for name, words in told.items()]
        found = [f"{words.format(mine)}, not {theirs}" for words, mine, theirs in pairs if mine != theirs]
        if self.notes != other.notes:
            mine, theirs = (", ".join(note[:5] for note in e.notes) or "none" for e in (self, other))
            found.append(f"remarks of ptxas: {mine}, not {theirs}")
        if not found and self.code != other.code:
            found.append("the same figures, of other instructions")
        return found


def evidence(rung: Rung, compiled: Stages) -> Evidence:
    """Of a version that compiles."""
    turn = step(compiled)
    return Evidence(
        registers=compiled.registers,
        spills=compiled.spills,
        shared=compiled.shared_bytes,
        operand=operand(compiled),
        pending=pending(compiled),
        passed_on=bytes_passed_on(rung, compiled),
        instructions=turn.instructions if turn else 0,
        products=turn.products if turn else 0,
        overwrites=len(overwritten_operands(compiled.sass)),
        notes=tuple(ptxas_notes(compiled)),
        code=digest(compiled),
    )


def _groups(count: int) -> str:
    return f"{count or 'no'} group{'s' * (count != 1)}"


def digest(compiled: Stages) -> str:
    """Of its instructions: two kernels that differ in comments and names alone have the same."""
    return hashlib.sha256(compiled.sass.encode()).hexdigest()[:DIGEST]


def loop(compiled: Stages) -> str:
    """The body of the kernel's loop in TTGIR."""
    match = re.search(r"scf\.for .*?\n(.*?)scf\.yield", compiled.ttgir, re.DOTALL)
    return match[1] if match else ""


def operand(compiled: Stages) -> str:
    """Where the tensor cores take x^ from: ``"registers"`` or ``"shared memory"``."""
    dots = [line for line in loop(compiled).splitlines() if "warp_group_dot " in line]
    return "registers" if any("dot_op" in line for line in dots) else "shared memory"


def pending(compiled: Stages) -> int:
    """Groups of wgmma that may still run when a turn ends."""
    waits = [o for name, o in matrix_loop(compiled.sass) if name == "WARPGROUP.DEPBAR.LE"]
    return int(waits[-1].split(",")[1], 0) if waits else 0


def bytes_passed_on(rung: Rung, compiled: Stages) -> int:
    """Bytes that the threads of a program hand on to each other through shared memory, in a turn."""
    body = matrix_loop(compiled.sass)
    return bytes_stored_to_shared(body) * 32 * rung.options["num_warps"]


def ptxas_notes(compiled: Stages) -> list[str]:
    """ptxas's remarks on wgmma, each with its number, such as "C7515: wgmma... are serialized due to..."."""
    found = re.findall(r"\((C75\d\d)\) (?:Potential Performance Loss: )?(.*)", compiled.built.log)
    return sorted({f"{number}: {words.partition(' in the function')[0]}" for number, words in found})


# ---- a bound


@dataclass(frozen=True)
class Bound:
    """The least time that the machine code allows, on the multiprocessor with the most to do, at `CLOCK`.

    The chip itself runs a little faster while it draws little power, and slower at full load.

    programs: that it runs, one after the other or together. turns: of the loop, the most of a program.
    issue: clocks of its schedulers to start a turn's instructions. tensor: clocks of its tensor cores for a
    turn's products. sums_us: microseconds to write and read the partial sums, as fast as a large copy. What
    else a kernel waits for (memory, barriers, what is before and after the loop) comes on top.
    """

    programs: int
    turns: int
    issue: float
    tensor: float
    sums_us: float

    @property
    def issue_us(self) -> float:
        return self._us(self.issue)

    @property
    def tensor_us(self) -> float:
        return self._us(self.tensor)

    @property
    def least_us(self) -> float:
        """Microseconds where issuing and tensor cores overlap all the time."""
        return max(self.issue_us, self.tensor_us)

    @property
    def turns_us(self) -> float:
        """Microseconds where they take turns."""
        return self.issue_us + self.tensor_us

    @property
    def forecast_us(self) -> float:
        """A rule of thumb for versions that wait for little else: taking turns, and then the partial sums."""
        return self.turns_us + self.sums_us

    def _us(self, clocks: float) -> float:
        return 1e6 * self.programs * self.turns * clocks / CLOCK

    def lines(self) -> list[str]:
        """What it is made of, as text."""
        one = "1 program" if self.programs == 1 else f"{self.programs} programs"
        return [
            f"a turn of the loop: {self.issue:.0f} clocks to issue, {self.tensor:.0f} of tensor cores",
            f"the fullest multiprocessor runs {one} of {self.turns} turns, at {CLOCK / 1e9:.2f} GHz:",
        ]


def bound(launch: Mapping[str, int], found: Evidence, rows: int = ROWS[0]) -> Bound | None:
    """Of such machine code, launched so, for K = ``rows``; None where no loop has matrix instructions.

    Programs are dealt evenly to multiprocessors, and the longest part of K counts for all.
    launch: as `Rung.launch` tells it.
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
