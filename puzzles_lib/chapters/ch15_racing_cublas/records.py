"""Find the recorded launch that is the same as a version of chapter 15's kernel, or nearest to it."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from puzzles_lib.chapters.ch15_racing_cublas.machine import Bound, Evidence, bound
from puzzles_lib.chapters.ch15_racing_cublas.rung import ROWS, Rung
from puzzles_lib.timing import recorded


@dataclass(frozen=True)
class Record:
    """A launch that was timed.

    name: the path of its rows. kernel: its kernel's name. launch: what `Rung.launch` returns. digest: of the
    rung. evidence: that of the binary that was timed. rows: those of bench "ladder", "grid" or "repeats".
    """

    name: str
    kernel: str
    digest: str
    launch: Mapping
    evidence: Evidence
    rows: tuple[Mapping, ...]


def records() -> list[Record]:
    """Return all recorded launches."""
    timed: dict[str, list[Mapping]] = {}
    for bench in ("ladder", "grid", "repeats"):
        for row in recorded.rows(bench):
            timed.setdefault(row["path"], []).append(row)
    return [
        Record(
            name, told["kernel"], told["digest"], told["launch"], Evidence.from_dict(told["evidence"]),
            tuple(timed[name]),
        )
        for name, told in recorded.launches().items()
    ]  # fmt: skip


def ladder_records() -> list[Record]:
    """Return the records of the ladder's own versions, in order."""
    return [record for record in records() if record.rows[0]["bench"] == "ladder"]


def bound_of(record: Record, rows: int = ROWS[0]) -> Bound:
    """Return the bound for K = ``rows`` from the machine code that was timed."""
    return bound(record.launch, record.evidence, rows)


def find(rung: Rung, found: Evidence) -> Record | None:
    """Return the record with the same machine code, or else the same kernel and launch.

    Returns None if there is none.
    """
    known = records()
    same = [r for r in known if r.evidence.code == found.code and r.launch["splits"] == rung.splits]
    same += [r for r in known if r.digest == rung.digest]
    return same[0] if same else None


def nearest(rung: Rung) -> Record:
    """Return the record with the most similar settings, of a kernel of the same name if there is one.

    A factor of two in a setting, or one stage, is a step away.
    """
    known = [record for record in records() if record.rows[0]["bench"] != "repeats"]
    alike = [record for record in known if record.kernel == rung.kernel.__name__]
    if not alike:  # the reader's own name: what it takes tells most
        taken = {"words_desc", "numbers_ptr", "scale_ptr"} & set(rung.kernel.arg_names)
        kind = {"words_desc": "9", "numbers_ptr": "5", "scale_ptr": "1"}
        first = next((kind[name] for name in kind if name in taken), "4")
        alike = [record for record in known if record.name.startswith(first)]
    return min(alike, key=lambda record: _steps(rung.launch(), record.launch))


def _steps(one: Mapping, other: Mapping) -> float:
    names = [name for name in one if name in other and isinstance(one[name], int)]
    return sum(
        abs(one[n] - other[n]) if n == "num_stages" else abs(math.log2(one[n] / other[n])) for n in names
    )


def sizes(row: Mapping) -> tuple[int, ...]:
    """Return K, COUT and CIN of a row's case."""
    return tuple(int(size) for size in str(row["case"]).split(", ")[-1].split("x"))


def unlike(rung: Rung, record: Record) -> str:
    """Return the settings in which a recorded launch differs, as text; "" if there are none."""
    words = {"splits": "parts", "num_warps": "warps", "num_stages": "stages"}
    mine = rung.launch()
    names = [name for name in mine if name != "descriptors" and record.launch.get(name) != mine[name]]
    return ", ".join(f"{record.launch.get(name)} for {mine[name]} {words.get(name, name)}" for name in names)
