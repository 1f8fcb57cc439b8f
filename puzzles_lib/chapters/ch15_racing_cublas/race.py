"""`race`: one version of chapter 15's kernel, checked, compiled, and timed where there is a GPU.

Without a GPU the times are the recorded ones, and said to be; a version that has been changed has none.
"""

import html
import re
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from puzzles_lib.bench.h200 import MULTIPROCESSORS, RESERVED, SHARED
from puzzles_lib.bench.recorded import about, rows, table
from puzzles_lib.card import Theme, card
from puzzles_lib.chapters.ch15_racing_cublas.ladder import CUBLAS, RUNS, UNFUSED, measure, rungs, unsound
from puzzles_lib.chapters.ch15_racing_cublas.puzzles import race_puzzle
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, GROUP, ROWS, Rung
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report
from puzzles_lib.inspector import Stages, stages
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.inspector.sass import bytes_stored_to_shared, matrix_loop, overwritten_operands
from puzzles_lib.puzzle import Puzzle


@dataclass(frozen=True, repr=False)
class Race:
    """How a version did.

    report: `check`'s, on small inputs. compiled: for an H200 at K = 100864, None where it is wrong.
    times: rows of bench "ladder", none where there is no GPU and the version is not the recorded one.
    source: where the times come from.
    """

    rung: Rung
    report: Report
    compiled: Stages | None = None
    times: tuple[dict[str, object], ...] = ()
    source: str = ""

    @property
    def ok(self) -> bool:
        """Whether it is right, compiles, and keeps its hands off what a wgmma still reads."""
        compiles = self.report.ok and self.compiled is not None and self.compiled.ok
        fits = compiles and waves(self.rung, self.compiled)[1] > 0
        return fits and not overwritten_operands(self.compiled.sass)

    def lines(self) -> list[str]:
        """What it shows, as text."""
        if not self.report.ok:
            return [f"{self.rung.name}: wrong", *str(self.report).splitlines()[1:]]
        if not self.compiled.ok:
            return [f"{self.rung.name}: does not compile: {self.compiled.refusal}"]
        if not waves(self.rung, self.compiled)[1]:
            needs = f"{self.compiled.registers} registers a thread and {self.compiled.shared_bytes} bytes"
            most = SHARED - RESERVED
            text = f"right here, but no H200 can hold a program: {needs} of shared memory, {most} at most"
            return [f"{self.rung.name}: {text}"]
        lines = [f"{self.rung.name}: right" + ("" if self.ok else " here, and UNSOUND on a GPU")]
        lines.append(waves_text(self.rung, self.compiled))
        lines += evidence(self.rung, self.compiled)
        for row in self.times:
            if row["bench"] == "repeats":
                lines.append(f"K = {_sizes(row)[0]:6}: {row['error']:.0%} of {RUNS} runs unlike the first")
            else:
                times = f"{row['us']:7.1f} µs, {row['ratio']:.2f} times as fast as {row['baseline']}"
                lines.append(f"K = {_sizes(row)[0]:6}: {times}")
        return [*lines, self.source]

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        first, *others = self.lines()
        style = "margin:0.2em 0;font-family:var(--jp-code-font-family, monospace)"
        body = html.escape("\n".join(others))
        return card(Theme.OK if self.ok else Theme.WRONG, first, f'<pre style="{style}">{body}</pre>')


def race(rung: Rung) -> Race:
    """Check a version, compile it for an H200, and say how fast it is.

    rung: a kernel and how it is launched. With a GPU it is measured now, beside dequantise + cuBLAS; that
        takes about 2 s. Without, these are recorded figures.

    Raises TypeError where ``rung`` is no `Rung`.
    """
    __tracebackhide__ = True
    if not isinstance(rung, Rung):
        raise TypeError(f"race(rung): rung is a {type(rung).__name__}, allowed is a Rung")
    report = examine(rung.kernel, small_puzzle(rung))
    if not report.ok:
        return Race(rung, report)
    compiled = compile_rung(rung)
    if not compiled.ok or not waves(rung, compiled)[1]:
        return Race(rung, report, compiled)
    return Race(rung, report, compiled, *_times(rung))


def small_puzzle(rung: Rung) -> Puzzle:
    """The problem in small, with the tiles of this version."""
    row_words = "scale_ptr" in rung.kernel.arg_names
    tiles = {name: rung.constants[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")}
    return race_puzzle(row_words, rung.descriptors, **tiles)


def compile_rung(rung: Rung) -> Stages:
    """`stages` of a version in its real size, for an H200."""
    sizes = {"K": ROWS[0], "COUT": COUT, "CIN": CIN, "GROUP": GROUP, "SPLITS": rung.splits}
    return stages(rung.kernel, small_puzzle(rung), "sm_90", **sizes, **rung.options)


def _times(rung: Rung) -> tuple[tuple[dict[str, object], ...], str]:
    """Rows for this version and where they come from."""
    import torch

    if torch.cuda.is_available():
        try:
            measured = tuple(row for row in measure([rung]) if row["path"] == rung.name)
        except Exception as error:  # wrong or never the same on this GPU, or too large for it, or too new
            return (), f"not timed on this GPU: {' '.join(str(error).split()):.200}"
        return measured, f"measured now on {torch.cuda.get_device_name()}"
    if not any(rung.same_as(other) for other in [*rungs(), *unsound()]):
        return (), "no times: there is no GPU here, and this version is not the recorded one"
    found = tuple(row for bench in ("ladder", "repeats") for row in rows(bench) if row["path"] == rung.name)
    return found, about() if found else "no times: there is no GPU here, and none are recorded"


# ---- what the compiler and the hardware make of it


def waves(rung: Rung, compiled: Stages) -> tuple[int, int]:
    """Programs in all, and how many the whole GPU holds at a time."""
    warps = rung.options["num_warps"]
    across, down, splits = rung.grid()
    held = resident(compiled.registers, compiled.shared_bytes, warps)
    return across * down * splits, MULTIPROCESSORS * held


def waves_text(rung: Rung, compiled: Stages) -> str:
    programs, held = waves(rung, compiled)
    text = f"{programs} programs, {held // MULTIPROCESSORS} at a time on each multiprocessor"
    return f"{text}: {held} places, filled {programs / held:.2f} times"


def evidence(rung: Rung, compiled: Stages) -> list[str]:
    """What decides its speed, from the compiler's output."""
    passed = bytes_passed_on(rung, compiled)
    lines = [
        f"{compiled.registers} registers a thread, {compiled.spills} bytes spilled, "
        f"{compiled.shared_bytes} bytes of shared memory",
        f"x^ to the matrix unit from {operand(compiled)}; when a step ends, {_count(pending(compiled))} of "
        "wgmma may go on",
        f"in a step of {rung.constants['BLOCK_K']} rows threads pass on {passed} bytes through shared memory",
    ]
    if notes := ptxas_notes(compiled):
        lines.append(f"ptxas remarks: {', '.join(notes)}")
    if found := overwritten_operands(compiled.sass):
        lines.append(f"{len(found)} instructions overwrite what a wgmma may still read, the first is")
        lines.append(f"    {found[0]}")
    return lines


def _count(groups: int) -> str:
    return f"{groups or 'no'} group{'s' * (groups != 1)}"


def loop(compiled: Stages) -> str:
    """The body of the kernel's loop in TTGIR."""
    match = re.search(r"scf\.for .*?\n(.*?)scf\.yield", compiled.ttgir, re.DOTALL)
    return match[1] if match else ""


def operand(compiled: Stages) -> str:
    """Where the matrix unit takes x^ from: ``"registers"`` or ``"shared memory"``."""
    dots = [line for line in loop(compiled).splitlines() if "warp_group_dot " in line]
    return "registers" if any("dot_op" in line for line in dots) else "shared memory"


def pending(compiled: Stages) -> int:
    """Groups of wgmma that may still run when a step ends."""
    waits = [o for name, o in matrix_loop(compiled.sass) if name == "WARPGROUP.DEPBAR.LE"]
    return int(waits[-1].split(",")[1], 0) if waits else 0


def bytes_passed_on(rung: Rung, compiled: Stages) -> int:
    """Bytes that the threads of a program hand on to each other through shared memory, in a step."""
    body = matrix_loop(compiled.sass)
    return bytes_stored_to_shared(body) * 32 * rung.options["num_warps"]


def ptxas_notes(compiled: Stages) -> list[str]:
    """Numbers of ptxas's remarks on wgmma, such as C7515."""
    return sorted(set(re.findall(r"C75\d\d", compiled.built.log)))


def _sizes(row: Mapping[str, object]) -> tuple[int, ...]:
    """K, COUT, CIN of a row's case."""
    return tuple(int(size) for size in str(row["case"]).split(", ")[-1].split("x"))


def baselines() -> str:
    """The paths without fusion, as recorded."""
    found = [row for row in rows("ladder") if row["path"] in (UNFUSED, CUBLAS)]
    lines = [f"K = {_sizes(row)[0]:6}: {row['us']:6.1f} µs  {row['path']}" for row in found]
    return "\n".join([*lines, about()])


def product() -> str:
    """The library's kernel against the same baseline, as recorded."""
    wanted = [f"2 bits, {count}x{COUT}x{CIN}" for count in ROWS]
    return f"{table([row for row in rows('dw') if row['case'] in wanted])}\n{about()}"


@dataclass(frozen=True, repr=False)
class Excerpt:
    """Lines of a file, highlighted in a notebook."""

    lines: tuple[str, ...]

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_markdown_(self) -> str:
        return f"```python\n{self}\n```"


def excerpt(first: str, last: str) -> Excerpt:
    """The lines of the library's Gluon kernel from the first that holds one text to the next with the other.

    Raises ValueError where there are none.
    """
    file = Path(__file__).parents[2] / "kernels" / "dequant_gemm_hopper.py"
    lines = file.read_text().splitlines()
    start = next((n for n, line in enumerate(lines) if first in line), None)
    end = next((n for n, line in enumerate(lines) if last in line and start is not None and n >= start), None)
    if end is None:
        raise ValueError(f"excerpt: {file.name} has no lines from {first!r} to {last!r}")
    while "\n".join(lines[start : end + 1]).count("(") > "\n".join(lines[start : end + 1]).count(")"):
        end += 1  # to the end of the statement
    return Excerpt(tuple(textwrap.dedent("\n".join(lines[start : end + 1])).splitlines()))
