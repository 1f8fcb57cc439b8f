"""Measured figures that the course quotes, and where they come from.

``h200.json`` has ``device``, ``versions``, ``date``, ``dates`` (when the rows of each bench were recorded;
``date`` is the newest) and ``rows``. A row has these fields:

- ``bench``, ``case``, ``path``,
- ``us`` (median microseconds), ``baseline``, ``baseline_us`` (the same for the baseline, in the same run),
- ``ratio`` (baseline_us / us), ``error`` (of the result, checked in that run),
- in benches "fused", "lessons", "linear-cross-entropy", "ranks" and "training": ``bytes`` (peak memory) and
  ``baseline_bytes``,
- in bench "training": ``cosine`` (of gradients).

``h100.json`` has the same form, for benches "eager" and "checkpointing", whose rows have all these fields.
``eager_h200.json`` has bench "eager" on another computer, whose processor is slower. ``lessons.json`` has
bench "lessons", with another Triton.

``race.json`` has the same form, for chapter 15's launches, with binaries that the pinned Triton made. It also
has ``launches`` (by path: how it was launched and what its binary looks like, see
`puzzles_lib.chapters.ch15_racing_cublas.records`) and ``clocks`` (what the chip did under load).

The modules that measure the records of chapter 19 describe them. ``clock.json`` and ``profiles.json``: the
modules of these names in `puzzles_lib.chapters.ch19_what_the_clock_says`. ``points.json``:
`puzzles_lib.bench.points`. The two sweeps: `puzzles_lib.timing.sweep`. ``tiles.json`` is also a sweep.
Attention's tiles were chosen from it: `puzzles_lib.bench.tiles`.

More records have forms of their own. `puzzles_lib.bench.language` measures ``language.json`` on a GPU.
`puzzles_lib.bench.kept` counts ``kept.json`` without one. The modules ``tokens``, ``glyphs``, ``codes`` and
``beside`` of `puzzles_lib.bench` measure the records of their names on a GPU.
`puzzles_lib.chapters.ch16_from_kernel_to_layer.curves` measures ``digits.json`` on a CPU.
`puzzles_lib.bench.orders` counts ``orders.json`` on a GPU.
`puzzles_lib.chapters.ch15_racing_cublas.assemblers` finds ``ptxas.json`` without a GPU.
"""

import datetime
import json
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

FILE = Path(__file__).parent / "h200.json"
H100 = FILE.with_name("h100.json")
EAGER = FILE.with_name("eager_h200.json")
LESSONS = FILE.with_name("lessons.json")
RACE = FILE.with_name("race.json")
LANGUAGE = FILE.with_name("language.json")
KEPT = FILE.with_name("kept.json")
TOKENS = FILE.with_name("tokens.json")
GLYPHS = FILE.with_name("glyphs.json")
CODES = FILE.with_name("codes.json")
BESIDE = FILE.with_name("beside.json")
DIGITS = FILE.with_name("digits.json")
ORDERS = FILE.with_name("orders.json")
PTXAS = FILE.with_name("ptxas.json")
CLOCK = FILE.with_name("clock.json")
POINTS = FILE.with_name("points.json")
PROFILES = FILE.with_name("profiles.json")
TILES = FILE.with_name("tiles.json")
SWEEPS = {"H200": FILE.with_name("sweep_h200.json"), "H100": FILE.with_name("sweep_h100.json")}
NAMES = ("bench", "case", "path", "us", "baseline", "baseline_us", "ratio", "error")  # of a row's entries
MORE = ((), ("bytes", "baseline_bytes"), ("bytes", "baseline_bytes", "cosine"))  # after those, in some rows
NUMBERS = ("us", "baseline_us", "ratio", "error")
Row = dict[str, Any]


def load(path: str | Path = FILE) -> dict[str, Any]:
    """Return the whole record."""
    return json.loads(Path(path).read_text())


def rows(bench: str) -> list[Row]:
    """Return the recorded rows of one bench, such as ``"memory"``."""
    return [row for record in _records() for row in record["rows"] if row["bench"] == bench]


def launches() -> dict[str, Row]:
    """Return chapter 15's recorded launches, by the path of their rows."""
    return load(RACE)["launches"]


def clocks() -> dict[str, Row]:
    """Return ``us``, ``mhz`` and ``watts`` of chapter 15's paths, each run alone for a second, by path."""
    return load(RACE)["clocks"]


def about(bench: str = "") -> str:
    """Return in a line where the figures of a bench come from; without a bench, those of the main record."""
    of_bench = (record for record in _records() if any(row["bench"] == bench for row in record["rows"]))
    record = next(of_bench, None) or load()
    return origin({**record, "date": record["dates"].get(bench, record["date"])})


def origin(record: Mapping[str, Any]) -> str:
    """Return in a line where the figures of a record come from."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"recorded on one {record['device']} ({versions}) on {record['date']}"


def _records() -> list[dict[str, Any]]:
    return [load(path) for path in (FILE, H100, LESSONS, RACE)]


def save(
    new: Sequence[Row],
    path: str | Path = FILE,
    *,
    compiler: str = "",
    launches: Mapping[str, Row] | None = None,
    clocks: Mapping[str, Row] | None = None,
) -> None:
    """Replace the rows of the same benches in a record, and say what they were measured on.

    compiler: the Triton that made the binaries, if it is not this computer's. launches: those of the rows'
    paths; launches of paths without a row are left out. clocks: by path, replaces the earlier clocks.

    The file is replaced as a whole or not at all. Raises ValueError if a row doesn't have exactly the fields
    above or has a number that is not finite. Raises ValueError if rows of other benches come from another
    device or other versions, because a record has one of each.
    """
    import torch
    import triton

    path = Path(path)
    for row in new:
        _verify(row)
    origin: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__.split("+")[0], "triton": compiler or triton.__version__},
    }
    old = load(path) if path.exists() else {**origin, "dates": {}, "rows": []}
    benches = {row["bench"] for row in new}
    kept = [row for row in old["rows"] if row["bench"] not in benches]
    if kept and (origin["device"], origin["versions"]) != (old["device"], old["versions"]):
        was, now = f"{old['device']}, {old['versions']}", f"{origin['device']}, {origin['versions']}"
        raise ValueError(f"{path} keeps rows recorded on {was}; these are of {now}: write another file")
    lines = ",\n".join("    " + json.dumps(row) for row in [*kept, *new])
    today = datetime.date.today().isoformat()
    dates = old.get("dates", {})
    dates = {row["bench"]: dates.get(row["bench"], old["date"]) for row in kept}
    dates |= dict.fromkeys(sorted(benches), today)
    head = json.dumps({**origin, "date": max(dates.values(), default=today), "dates": dates}, indent=2)
    head = head.rstrip("}\n") + "}"
    paths = {row["path"] for row in [*kept, *new]}
    chip = clocks or old.get("clocks", {})
    known = {**old.get("launches", {}), **(launches or {})}
    told = [f"    {json.dumps(name)}: {json.dumps(known[name])}" for name in known if name in paths]
    beside = {"launches": told, "clocks": [f"    {json.dumps(n)}: {json.dumps(chip[n])}" for n in chip]}
    more = "".join(f',\n  "{n}": {{\n' + ",\n".join(some) + "\n  }" for n, some in beside.items() if some)
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text(f'{head},\n  "rows": [\n{lines}\n  ]{more}\n}}\n')
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def keep(record: Mapping[str, Any], path: str | Path) -> None:
    """Write a record of another form, with one row per line, as a whole or not at all."""
    parts = []
    for name, value in record.items():
        if isinstance(value, list):
            rows = ",\n".join("    " + json.dumps(row) for row in value)
            parts.append(f'  "{name}": [\n{rows}\n  ]')
        else:
            parts.append(f'  "{name}": {json.dumps(value)}')
    path = Path(path)
    temporary = path.with_name(path.name + ".new")
    try:
        temporary.write_text("{\n" + ",\n".join(parts) + "\n}\n")
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def _verify(row: Row) -> None:
    """Raises ValueError for what is no row."""
    if tuple(row) not in [NAMES + more for more in MORE]:
        raise ValueError(f"a row has {', '.join(row)}, it needs {', '.join(NAMES)}")
    for name in (*NUMBERS, *(name for name in MORE[-1] if name in row)):
        if not math.isfinite(row[name]):
            raise ValueError(f"{name} is {row[name]} in {row['bench']}, {row['case']}, {row['path']}")


def table(some: Sequence[Row]) -> str:
    """Return rows as a table in text, under one line of headings."""
    wide = {
        name: max([len(name), *(len(row[name]) for row in some)]) for name in ("case", "path", "baseline")
    }
    case, path, baseline = (f"{name:<{width}}" for name, width in wide.items())
    head = f"{case} {path} {'us':>9}  {baseline} {'us':>9}  {'ratio':>6}  {'error':>8}"
    head += f"  {'MB':>7}  {'of':>5}" if any("bytes" in row for row in some) else ""
    head += f"  {'cosine':>7}" if any("cosine" in row for row in some) else ""
    lines = [head]
    for row in some:
        case, path, baseline = (f"{row[name]:<{width}}" for name, width in wide.items())
        times = f"{path} {row['us']:9.1f}  {baseline} {row['baseline_us']:9.1f}"
        line = f"{case} {times}  {row['ratio']:6.3f}  {row['error']:8.1e}"
        if "bytes" in row:
            share = row["bytes"] / row["baseline_bytes"]
            line += f"  {row['bytes'] / 1e6:7.1f}  {share:5.3f}"
        if "cosine" in row:
            line += f"  {row['cosine']:7.5f}"
        lines.append(line)
    return "\n".join(lines)


def bits_text(bits: int) -> str:
    """Return the name of a format in cases: "1 bit", "2 bits"."""
    return f"{bits} bit{'s' * (bits != 1)}"


def rounding_told(path: str) -> str:
    """Return the name of a variant that bench "training" measured, with "nearest" if it names no rounding."""
    if not path.startswith("packed, ") or "stochastic" in path:
        return path
    packed, bits, *others = path.split(", ")
    return ", ".join([packed, bits, "nearest", *others])


def report() -> str:
    """Return all recorded figures as text, bench by bench."""
    parts = []
    for record in _records():
        for bench in dict.fromkeys(row["bench"] for row in record["rows"]):
            some = [row for row in record["rows"] if row["bench"] == bench]
            parts.append(f"{bench}, {about(bench)}\n{table(some)}")
    return "\n\n".join(parts)
