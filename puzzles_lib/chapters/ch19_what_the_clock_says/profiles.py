"""What ncu reads off a GPU while kernels of different characters run: chapter 19's profiles.

The record: ``device``, ``versions``, ``date``, and ``rows``: ``name`` of the profile, ``kernel``, and what
ncu reads of it, `COUNTERS` by short names; ``stalls``: of 100 samples of a warp, how many by reason why it
does not issue; ``programs``, ``threads`` and ``shared`` bytes of a program, ``registers`` of a thread.

ncu runs this module again, as a program that launches each kernel once.
"""

import csv
import io
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from puzzles_lib.chapters.ch19_what_the_clock_says import kernels
from puzzles_lib.timing import provenance

SECTIONS = (
    "SpeedOfLight",
    "MemoryWorkloadAnalysis",
    "ComputeWorkloadAnalysis",
    "WarpStateStats",
    "SchedulerStats",
    "Occupancy",
    "LaunchStats",
)
COUNTERS = {
    "us": "gpu__time_duration.sum",
    "dram_read": "dram__bytes_read.sum",
    "dram_write": "dram__bytes_write.sum",
    "l2_sectors": "lts__t_sectors.sum",
    "l2_read_sectors": "lts__t_sectors_op_read.sum",
    "l2_hit": "lts__t_sector_hit_rate.pct",
    "l1_hit": "l1tex__t_sector_hit_rate.pct",
    "dram_busy": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "sm_busy": "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "tensor_busy": "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "xu_busy": "sm__inst_executed_pipe_xu.avg.pct_of_peak_sustained_active",
    "issue_busy": "sm__inst_issued.avg.pct_of_peak_sustained_active",
    "occupancy": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "spilling": "derived__local_spilling_requests",
}
SMALL = {"BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}
Row = dict[str, Any]


def _float(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda")


def _matmul(group: int, size: int = 8192, **blocks: int) -> Callable[[], object]:
    a, b = (_float(size, size).bfloat16() for _ in range(2))
    c = torch.empty_like(a)
    chosen = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "num_warps": 8, "num_stages": 3, **blocks}
    grid = (size // chosen["BLOCK_M"] * (size // chosen["BLOCK_N"]),)
    return lambda: kernels.matmul_kernel[grid](a, b, c, size, size, size, GROUP=group, **chosen)


def _copy() -> Callable[[], object]:
    x = _float(1 << 27)
    z = torch.empty_like(x)
    return lambda: kernels.copy_kernel[(len(x) // 1024,)](x, z, BLOCK=1024)


def _column_copy() -> Callable[[], object]:
    x = _float(8192, 8192)
    z = torch.empty_like(x)
    return lambda: kernels.column_copy_kernel[(8192, 8)](x, z, 8192, BLOCK=1024)


def _row_sum() -> Callable[[], object]:
    x, z = _float(132, 1 << 20), torch.empty(132, device="cuda")
    return lambda: kernels.row_sum_kernel[(132,)](x, z, 1 << 20, BLOCK=1024)


def _wide_softmax(warps: int) -> Callable[[], object]:
    x = _float(4096, 16384)
    z = torch.empty_like(x)
    return lambda: kernels.wide_softmax_kernel[(4096,)](x, z, N=16384, num_warps=warps)


def _count(bins: int) -> Callable[[], object]:
    x = torch.randint(0, 1 << 20, (1 << 25,), device="cuda", dtype=torch.int32)
    z = torch.zeros(bins, device="cuda", dtype=torch.int32)
    return lambda: kernels.count_kernel[(len(x) // 1024,)](x, z, BINS=bins, BLOCK=1024)


def _powers() -> Callable[[], object]:
    x = _float(1 << 25)
    z = torch.empty_like(x)
    return lambda: kernels.powers_kernel[(len(x) // 1024,)](x, z, TURNS=256, BLOCK=1024)


PROFILED: Mapping[str, Callable[[], Callable[[], object]]] = {
    "copy": _copy,
    "column copy": _column_copy,
    "row sum": _row_sum,
    "softmax, 2 warps": lambda: _wide_softmax(2),
    "softmax, 16 warps": lambda: _wide_softmax(16),
    "count, 16 bins": lambda: _count(16),
    "powers": _powers,
    **{f"matmul, group {g}": lambda g=g: _matmul(g) for g in (1, 2, 4, 8, 16, 32, 64)},  # type: ignore[misc]
    **{f"small tiles, group {g}": lambda g=g: _matmul(g, **SMALL) for g in (1, 2, 8, 128)},  # type: ignore[misc]
}


def measure() -> dict[str, Any]:
    """Profile with ncu, and return the record.

    Raises RuntimeError without a GPU, and if ncu is missing or refuses.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("bench profiles needs a CUDA device")
    if not (ncu := shutil.which("ncu") or shutil.which("/usr/local/cuda/bin/ncu")):
        raise RuntimeError("bench profiles needs ncu, of NVIDIA's Nsight Compute")
    command = [ncu, "--clock-control", "none", "--csv", "--page", "raw", "--print-units", "base"]
    command += ["--kernel-name", "regex:^(matmul|(column_)?copy|row_sum|wide_softmax|count|powers)_kernel$"]
    command += [part for section in SECTIONS for part in ("--section", section)]
    asked = subprocess.run([ncu, "--query-metrics", "--chips", "gh100"], capture_output=True, text=True)
    known = {line.split()[0] for line in asked.stdout.splitlines() if line.strip()}
    command += ["--metrics", ",".join(name for name in COUNTERS.values() if name.split(".")[0] in known)]
    done = subprocess.run(
        [*command, sys.executable, "-m", __spec__.name], capture_output=True, text=True, env=os.environ
    )
    if kept := os.environ.get("NCU_CSV"):
        with open(kept, "w") as file:
            file.write(done.stdout + "\n#### stderr\n" + done.stderr)
    rows = list(read(done.stdout))
    if len(rows) != len(PROFILED):
        raise RuntimeError(f"ncu gave {len(rows)} profiles of {len(PROFILED)}: {done.stderr[-500:]}")
    return {**provenance(), "rows": rows}


def read(output: str) -> Iterator[Row]:
    """Read the profiles in ncu's output, in the order of launches. A line of units follows the heads."""
    lines = output.splitlines()
    first = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return
    table = csv.DictReader(io.StringIO("\n".join(lines[first:])))
    launches = [row for row in table if row["ID"].isdigit()]
    for name, row in zip(PROFILED, launches, strict=False):
        yield {"name": name, "kernel": row["Kernel Name"], **_numbers(row)}


_STALLS = "smsp__average_warps_issue_stalled_"
_SAMPLES = "_per_issue_active.ratio"


def _numbers(row: Mapping[str, str]) -> Row:
    def number(name: str) -> float | None:
        text = (row.get(name) or "").replace(",", "")
        return float(text) if text.replace(".", "", 1).replace("e+", "").isdigit() else None

    found: Row = {short: number(name) for short, name in COUNTERS.items()}
    if found["us"] is not None:
        found["us"] = round(found["us"] / 1000, 2)  # of nanoseconds
    waits = {}
    for name in row:
        if name.startswith(_STALLS) and name.endswith(_SAMPLES) and "not_issued" not in name:
            waits[name.removeprefix(_STALLS).removesuffix(_SAMPLES)] = number(name) or 0.0
    total = sum(waits.values()) or 1.0
    found["stalls"] = {
        reason: round(100 * wait / total, 1)
        for reason, wait in sorted(waits.items(), key=lambda pair: -pair[1])
        if wait / total >= 0.005
    }
    launch = {"programs": "launch__grid_size", "threads": "launch__block_size"}
    launch |= {"registers": "launch__registers_per_thread", "shared": "launch__shared_mem_per_block"}
    return found | {short: number(name) for short, name in launch.items()}


def table(record: Mapping[str, Any]) -> str:
    """Return one line per profile."""
    lines = [f"{record['device']}, {record['date']}"]
    for row in record["rows"]:
        lines.append("  ".join(f"{name}={value}" for name, value in row.items() if name != "kernel"))
    return "\n".join(lines)


if __name__ == "__main__":
    for make in PROFILED.values():
        call = make()
        torch.cuda.synchronize()
        call()
        torch.cuda.synchronize()
        del call
        torch.cuda.empty_cache()
