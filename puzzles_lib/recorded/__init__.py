"""Measured figures that the course quotes, and where they come from.

``h200.json`` holds them: ``device``, ``versions``, ``date`` and ``rows``. A row is ``bench``, ``case``,
``path``, ``us`` (median microseconds), ``baseline``, ``baseline_us`` (the same for what it is compared
with, in the same run), ``ratio`` (baseline_us / us) and ``error`` (of the result, checked in that run).
"""

import datetime
import json
import os
from collections.abc import Sequence
from pathlib import Path

FILE = Path(__file__).parent / "h200.json"
Row = dict[str, object]


def load(path: str | Path = FILE) -> dict[str, object]:
    """The whole record."""
    return json.loads(Path(path).read_text())


def rows(bench: str) -> list[Row]:
    """The recorded rows of one bench, such as ``"memory"``."""
    return [row for row in load()["rows"] if row["bench"] == bench]


def about() -> str:
    """Where the recorded figures come from, in a line."""
    record = load()
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"recorded on one {record['device']} ({versions}) on {record['date']}"


def save(new: Sequence[Row], path: str | Path = FILE) -> None:
    """Replace the rows of the same benches in a record, and say what they were measured on."""
    import torch
    import triton

    path = Path(path)
    old = load(path)["rows"] if path.exists() else []
    benches = {row["bench"] for row in new}
    record = {
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__.split("+")[0], "triton": triton.__version__},
        "date": datetime.date.today().isoformat(),
        "rows": [row for row in old if row["bench"] not in benches] + list(new),
    }
    lines = ",\n".join("    " + json.dumps(row) for row in record.pop("rows"))
    head = json.dumps(record, indent=2).rstrip("}\n")
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(f'{head},\n  "rows": [\n{lines}\n  ]\n}}\n')
    os.replace(temporary, path)


def table(some: Sequence[Row]) -> str:
    """Rows as a table in text."""
    lines = [f"{'case':<34} {'path':<22} {'us':>9}  {'baseline':<24} {'us':>9}  {'ratio':>6}  {'error':>8}"]
    for row in some:
        lines.append(
            f"{row['case']:<34} {row['path']:<22} {row['us']:9.1f}  {row['baseline']:<24} "
            f"{row['baseline_us']:9.1f}  {row['ratio']:6.3f}  {row['error']:8.1e}"
        )
    return "\n".join(lines)


def report() -> str:
    """All recorded figures, bench by bench."""
    record = load()
    parts = [about()]
    for bench in dict.fromkeys(row["bench"] for row in record["rows"]):
        parts.append(f"{bench}\n{table([r for r in record['rows'] if r['bench'] == bench])}")
    return "\n\n".join(parts)
