"""Write the parts that all records share: where a record comes from, its rows, and their errors."""

import datetime

import torch
import triton


def provenance() -> dict[str, object]:
    """Return what a record begins with: ``device``, ``versions`` and ``date``. Needs a GPU."""
    versions = {"torch": torch.__version__.split("+")[0], "triton": triton.__version__}
    found = {"device": torch.cuda.get_device_name(), "versions": versions}
    return {**found, "date": datetime.date.today().isoformat()}


def row(
    bench: str, case: str, path: str, us: float, baseline: str, baseline_us: float, error: float
) -> dict[str, object]:
    """Return one result: median microseconds of a path and of its baseline in the same run."""
    times = {"us": round(us, 2), "baseline": baseline, "baseline_us": round(baseline_us, 2)}
    ratio = round(baseline_us / us, 4)
    return {"bench": bench, "case": case, "path": path, **times, "ratio": ratio, "error": error}


def relative_error(got: torch.Tensor, want: torch.Tensor) -> float:
    """Return the size of the difference (root of the sum of squares) over that of ``want``, in float64."""
    want = want.double()
    return float((got.double() - want).norm() / want.norm())
