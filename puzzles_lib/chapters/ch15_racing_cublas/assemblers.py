"""Compile chapter 15's hasty kernel with several releases of ptxas, without a GPU."""

import json
import os
from collections.abc import Sequence
from typing import Any

import triton

from puzzles_lib.chapters.ch15_racing_cublas.ladder import unsound
from puzzles_lib.chapters.ch15_racing_cublas.machine import compile_rung, evidence, waves
from puzzles_lib.timing.recorded import PTXAS

VARIABLE = "TRITON_PTXAS_PATH"  # names the ptxas that Triton takes for its own


def measure(paths: Sequence[str] = ()) -> dict[str, Any]:
    """Return the record: Triton's own ptxas, then those of `paths`, each with the code it generates.

    A row has the release of ``ptxas``, and ``registers`` and bytes of ``spills`` per thread. ``overwrites``
    counts the instructions that write a register which a wgmma may still read. ``programs`` is the number of
    programs for which the GPU has room. Raises RuntimeError if a path isn't a ptxas, or if its ptxas refuses
    the kernel.
    """
    rows = [_row(None), *map(_row, paths)]
    return {"kernel": unsound()[0].name, "triton": triton.__version__, "rows": rows}


def _row(path: str | None) -> dict[str, Any]:
    before = os.environ.get(VARIABLE)
    _set(path)
    try:
        ptxas = triton.knobs.nvidia.ptxas
        if path is not None and ptxas.path != path:
            raise RuntimeError(f"{path} isn't a ptxas that runs here")
        (rung,) = unsound()
        compiled = compile_rung(rung)
        if not compiled.ok:
            raise RuntimeError(f"ptxas {ptxas.version}: {compiled.refusal}")
        found = evidence(rung, compiled)
        return {
            "ptxas": ptxas.version,
            "registers": found.registers,
            "spills": found.spills,
            "overwrites": found.overwrites,
            "programs": waves(rung, compiled)[1],
        }
    finally:
        _set(before)


def _set(path: str | None) -> None:
    if path is None:
        os.environ.pop(VARIABLE, None)
    else:
        os.environ[VARIABLE] = path


def table(record: dict[str, Any] | None = None) -> str:
    """Return a record as text; the recorded one if none is given."""
    record = record or json.loads(PTXAS.read_text())
    head = f"{'ptxas':>5}  {'registers':>9}  {'spilled':>7}  {'overwrites':>10}  slots"
    lines = [
        f"{row['ptxas']:>5}  {row['registers']:9}  {row['spills']:7}  {row['overwrites']:10}  "
        f"{row['programs']:5}"
        for row in record["rows"]
    ]
    return "\n".join([head, *lines, f"the {record['kernel']} kernel, by triton {record['triton']}"])
