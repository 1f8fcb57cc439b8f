"""Count how often a GPU gets unordered memory accesses wrong: chapter 17's kernels with and without barriers.

The kernels first compute dw and db of integers, whose sums are exact: any difference is a lost update or a
missing part. Then they compute them of normal numbers, where the order of the additions changes the bits.

The record has no times. It has ``device``, ``versions``, ``date``, ``runs`` (how often each row is run) and
rows. A row has these fields:

- ``case`` and ``path``,
- ``wrong``, the number of runs with a wrong element,
- ``elements``, the number of wrong elements over all runs,
- ``sums``, the number of different results on normal numbers.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import triton

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.source import define
from puzzles_lib.timing import provenance

RUNS = 200
NO_BARRIER = {"    tl.debug_barrier()\n": ""}
_TAKING = "    while tl.atomic_cas(lock_ptr + j, 0, 1) == 1:\n        pass\n"
_LOCKED = f"""{_TAKING}\
    dw += tl.load(dw_ptr + n, mask=n < N, other=0.0)
    db += tl.load(db_ptr + n, mask=n < N, other=0.0)
    tl.store(dw_ptr + n, dw, mask=n < N)
    tl.store(db_ptr + n, db, mask=n < N)
    tl.debug_barrier()
    tl.atomic_xchg(lock_ptr + j, 0)"""
BY_ATOMICS = {
    ", lock_ptr,": ",",
    _LOCKED: "    tl.atomic_add(dw_ptr + n, dw, mask=n < N)\n    tl.atomic_add(db_ptr + n, db, mask=n < N)",
}
"""Edits of puzzle 32's kernel: the chapter's third way, without a lock."""


@dataclass(frozen=True)
class Shape:
    """Sizes of dy, rows that a program sums, all their columns at once, and its warps."""

    M: int
    N: int
    ROWS: int
    warps: int

    @property
    def programs(self) -> int:
        return triton.cdiv(self.M, self.ROWS)

    def __str__(self) -> str:
        return f"{self.M}x{self.N}, {self.ROWS} rows per program, {self.warps} warps"


SHAPES = tuple(Shape(M=4096, N=N, ROWS=8, warps=4) for N in (1024, 2048, 4096, 8192, 16384))


def measure() -> dict[str, Any]:
    """Return the record of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench orders needs a CUDA device")
    kernels = dict(_kernels())
    rows = [
        {"case": str(shape), "path": path, **counted(kernels[path], shape)}
        for shape in SHAPES
        for path in kernels
    ]
    return {**provenance(), "runs": RUNS, "rows": rows}


def _kernels() -> Iterator[tuple[str, object]]:
    """The chapter's answers, and what is left of them without this and that, by path."""
    for name in ("layer_norm_dw", "dw_by_lock"):
        yield name, edited(name, {})
        yield f"{name}, no barrier", edited(name, NO_BARRIER)
    take, give = "lock_ptr + j, 0, 1)", "lock_ptr + j, 0)"
    for name, said in (("relaxed", 'sem="relaxed"'), ("scope cta", 'scope="cta"')):
        edits = {take: f"{take[:-1]}, {said})", give: f"{give[:-1]}, {said})"}
        yield f"dw_by_lock, {name}", edited("dw_by_lock", edits)
    yield "dw_by_lock, no lock", edited("dw_by_lock", {_TAKING: ""})
    yield "dw_by_atomics", edited("dw_by_lock", BY_ATOMICS)


def edited(name: str, edits: Mapping[str, str]) -> object:
    """Return the chapter's answer to a puzzle with texts replaced. Each text must occur exactly once."""
    source = kernel_sources()[name]
    for old, new in edits.items():
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} occurs {source.count(old)} times in the answer, not once")
        source = source.replace(old, new)
    return define(source, f"<{name} with {sorted(edits)}>")


def counted(kernel: object, shape: Shape, runs: int = RUNS) -> dict[str, int]:
    """Return ``wrong``, ``elements`` and ``sums`` of ``runs`` runs, as the module describes them."""
    generator = torch.Generator("cuda").manual_seed(0)
    size = (shape.M, shape.N)
    dy, xhat = (torch.randint(-3, 4, size, device="cuda", generator=generator).bfloat16() for _ in range(2))
    launch = _launcher(kernel, shape)
    want = torch.stack([(dy.double() * xhat.double()).sum(0), dy.double().sum(0)]).float()
    found = torch.zeros(runs, dtype=torch.int64, device="cuda")
    for run in range(runs):
        found[run] = (launch(dy, xhat) != want).sum()
    dy, xhat = (torch.randn(size, device="cuda", generator=generator).bfloat16() for _ in range(2))
    sums = {launch(dy, xhat).cpu().numpy().tobytes() for _ in range(runs)}
    return {"wrong": int((found > 0).sum()), "elements": int(found.sum()), "sums": len(sums)}


def _launcher(kernel: object, shape: Shape) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
    """Gives dw and db, as [2, N]; mean is 0 and rstd 1, where a kernel takes them."""
    parts = shape.programs
    both = torch.empty(2, shape.N, device="cuda")
    offered = {
        "mean_ptr": torch.zeros(shape.M, device="cuda"),
        "rstd_ptr": torch.ones(shape.M, device="cuda"),
        "dw_ptr": both[0],
        "db_ptr": both[1],
        "dw_part_ptr": torch.empty(parts, shape.N, device="cuda"),
        "db_part_ptr": torch.empty(parts, shape.N, device="cuda"),
        "count_ptr": torch.empty(1, dtype=torch.int32, device="cuda"),
        "lock_ptr": torch.empty(1, dtype=torch.int32, device="cuda"),
    }
    numbers = {"M": shape.M, "N": shape.N, "ROWS": shape.ROWS, "BLOCK_N": shape.N}
    numbers["BLOCK_M"] = max(1, min(shape.ROWS, 8192 // shape.N))

    def launch(dy: torch.Tensor, xhat: torch.Tensor) -> torch.Tensor:
        both.zero_()
        for name in ("dw_part_ptr", "db_part_ptr"):
            offered[name].fill_(torch.nan)
        for name in ("count_ptr", "lock_ptr"):
            offered[name].zero_()
        tensors = offered | {"dy_ptr": dy, "x_ptr": xhat, "xhat_ptr": xhat}
        taken = {name: value for name, value in (tensors | numbers).items() if name in kernel.arg_names}
        kernel[(parts, 1)](**taken, num_warps=shape.warps)
        return both.clone()

    return launch


def table(record: Mapping[str, Any]) -> str:
    """Return the rows as text, shape by shape."""
    lines, wide = [], max(len(row["path"]) for row in record["rows"])
    for case in dict.fromkeys(row["case"] for row in record["rows"]):
        lines.append(f"{case}: of {record['runs']} runs")
        for row in record["rows"]:
            if row["case"] == case:
                wrong = f"{row['wrong']:4} wrong ({row['elements']:>9,} elements)"
                lines.append(f"  {row['path']:<{wide}}  {wrong}, {row['sums']:4} different sums")
    return "\n".join(lines)
