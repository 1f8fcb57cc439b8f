"""Measure chapter 17's kernels on a GPU: the chapter's answers, torch, torch.compile and a copy.

A norm computes little with what it loads, so a copy of as many bytes is its floor. Weights are float32 in the
chapter's kernels, and have x's dtype in torch's own.
"""

from collections.abc import Callable, Iterator, Mapping

import torch
import torch.nn.functional as F
import triton

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.bench.orders import BY_ATOMICS, edited
from puzzles_lib.chapters.ch17_normalisation.puzzles import (
    DW_BY_LOCK,
    LAYER_NORM,
    LAYER_NORM_DW,
    LAYER_NORM_DX,
    LONG_LAYER_NORM,
    RMS_NORM,
)
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.timing import interleaved, relative_error, row

SHAPES = ((50432, 768), (8192, 4096), (4096, 16384))
DTYPES = (torch.bfloat16, torch.float32)
SETS = 3  # of inputs, taken in turn
PARTS = (256, 16)  # rows that a program of dw sums
BLOCK_M, BLOCK_N = 64, 64  # in steps of so many, for so many columns
COPY = "copy of as many bytes"

Tensors = dict[str, torch.Tensor]
Call = Callable[[Tensors], object]


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of bench "norms". Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench norms needs a CUDA device")
    for dtype in DTYPES:
        for M, N in SHAPES:
            torch.manual_seed(0)
            sets = [_tensors(M, N, dtype) for _ in range(SETS)]
            case = f"{M}x{N}, {str(dtype).removeprefix('torch.')}"
            for measured in (_rms_norm, _layer_norm, _dx, _statistics, _dw):
                yield from measured(case, sets)
                torch.cuda.empty_cache()


def _tensors(M: int, N: int, dtype: torch.dtype) -> Tensors:
    """All inputs and results of one set; results are NaN."""
    made = {name: torch.randn(M, N, device="cuda", dtype=dtype) for name in ("x", "r", "dy")}
    made |= {name: torch.randn(N, device="cuda") for name in ("w", "b")}
    wide = made["x"].float()
    made["mean"] = wide.mean(1)
    made["rstd"] = torch.rsqrt(wide.var(1, correction=0) + 1e-5)
    made["xhat"] = ((wide - made["mean"][:, None]) * made["rstd"][:, None]).to(dtype)
    made |= {name: torch.full_like(made["x"], torch.nan) for name in ("y", "h", "dx")}
    return made


def _rows(
    case: str,
    path: str,
    sets: list[Tensors],
    moved: int,
    error: float,
    ours: Call,
    others: Mapping[str, Call],
) -> Iterator[dict[str, object]]:
    """Time a path in turns with a copy and with other ways to the same result."""
    sources = [torch.randn(moved // 8, device="cuda") for _ in sets]
    target = torch.empty_like(sources[0])
    # An elementwise kernel: within a CUDA graph, Tensor.copy_ runs on a slower path.
    paths: dict[str, list[Callable[[], object]]] = {
        path: [lambda t=t: ours(t) for t in sets],
        COPY: [lambda s=s: torch.mul(s, 1.0, out=target) for s in sources],
    }
    for name, other in others.items():
        paths[name] = [lambda t=t, other=other: other(t) for t in sets]
    times = interleaved(paths)
    us = times.pop(path)
    for name, baseline_us in times.items():
        yield row("norms", case, path, us, name, baseline_us, error)


def _compiled(function: Call) -> Call:
    """torch.compile's best, for these sizes alone."""
    torch.compiler.reset()
    return torch.compile(function, dynamic=False)


def _warps(lanes: int) -> int:
    """32 lanes of a block for a thread, as far as that goes."""
    return min(16, max(4, lanes // 1024))


def _spec(puzzle: Puzzle, tensors: Tensors, *numbers: int) -> tuple[torch.Tensor, ...]:
    """The spec's results, computed in float64."""
    found = puzzle.spec(*(tensors[each.name].double() for each in puzzle.inputs), *numbers)
    return found if isinstance(found, tuple) else (found,)


def _error(puzzle: Puzzle, tensors: Tensors, call: Call, names: tuple[str, ...], *numbers: int) -> float:
    """The largest relative error of the named results, which are the spec's first."""
    call(tensors)
    wanted = dict(zip(names, _spec(puzzle, tensors, *numbers), strict=False))
    return max(relative_error(tensors[name], want) for name, want in wanted.items())


# ---- forward


def _rms_norm(case: str, sets: list[Tensors]) -> Iterator[dict[str, object]]:
    (M, N), kernel = sets[0]["x"].shape, solutions()["rms_norm"]
    block = triton.next_power_of_2(N)

    def ours(t: Tensors) -> None:
        kernel[(M,)](t["x"], t["r"], t["w"], t["y"], t["h"], N, BLOCK_N=block, num_warps=_warps(block))

    def plain(t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        h = t["x"].float() + t["r"].float()
        y = h * torch.rsqrt(h.square().mean(1, keepdim=True) + 1e-6) * t["w"]
        return y.to(t["x"].dtype), h.to(t["x"].dtype)

    def written_out(t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        h = t["x"] + t["r"]
        return h * torch.rsqrt(h.square().mean(1, keepdim=True) + 1e-6) * narrow, h

    def two(t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        h = t["x"] + t["r"]
        return F.rms_norm(h, (N,), narrow, 1e-6), h

    narrow = sets[0]["w"].to(sets[0]["x"].dtype)
    error = _error(RMS_NORM, sets[0], ours, ("y", "h"))
    others = {
        "torch, written out": written_out,
        "torch, add and rms_norm": two,
        "torch.compile": _compiled(plain),
    }
    yield from _rows(case, "rms_norm", sets, 4 * sets[0]["x"].nbytes, error, ours, others)


def _layer_norm(case: str, sets: list[Tensors]) -> Iterator[dict[str, object]]:
    (M, N), kernel = sets[0]["x"].shape, solutions()["layer_norm"]
    block = triton.next_power_of_2(N)
    rows = max(2, 4096 // block)  # several rows share a load of w and b
    narrow_w, narrow_b = (sets[0][name].to(sets[0]["x"].dtype) for name in "wb")
    mean, rstd = (torch.empty(M, device="cuda") for _ in range(2))

    def ours(t: Tensors) -> None:
        kernel[(triton.cdiv(M, rows),)](
            t["x"], t["w"], t["b"], t["y"], mean, rstd, M, N,
            BLOCK_M=rows, BLOCK_N=block, num_warps=_warps(rows * block),
        )  # fmt: skip

    def plain(t: Tensors) -> object:
        return torch.ops.aten.native_layer_norm(t["x"], (N,), narrow_w, narrow_b, 1e-5)

    error = _error(LAYER_NORM, sets[0], ours, ("y",))
    others = {"torch": plain, "torch.compile": _compiled(plain)}
    yield from _rows(case, "layer_norm", sets, 2 * sets[0]["x"].nbytes, error, ours, others)


def _statistics(case: str, sets: list[Tensors]) -> Iterator[dict[str, object]]:
    """Mean and rstd alone, the row in blocks."""
    (M, N), kernel = sets[0]["x"].shape, solutions()["long_layer_norm"]
    block = min(4096, triton.next_power_of_2(N))
    results = {name: torch.full((M,), torch.nan, device="cuda") for name in ("mean", "rstd")}

    def ours(t: Tensors) -> None:
        kernel[(M,)](t["x"], results["mean"], results["rstd"], N, BLOCK_N=block, num_warps=_warps(block))

    def plain(t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        x = t["x"].float()
        return x.mean(1), torch.rsqrt(x.var(1, correction=0) + 1e-5)

    ours(sets[0])
    wanted = dict(zip(results, _spec(LONG_LAYER_NORM, sets[0]), strict=True))
    error = relative_error(results["rstd"], wanted["rstd"])
    others = {"torch": plain, "torch.compile": _compiled(plain)}
    yield from _rows(case, "long_layer_norm", sets, sets[0]["x"].nbytes, error, ours, others)


# ---- backward


def _dx(case: str, sets: list[Tensors]) -> Iterator[dict[str, object]]:
    (M, N), kernel = sets[0]["x"].shape, solutions()["layer_norm_dx"]
    block = triton.next_power_of_2(N)
    rows = max(1, 2048 // block)
    narrow_w, narrow_b = (sets[0][name].to(sets[0]["x"].dtype) for name in "wb")

    def ours(t: Tensors) -> None:
        kernel[(triton.cdiv(M, rows),)](
            t["dy"], t["x"], t["w"], t["mean"], t["rstd"], t["dx"], M, N,
            BLOCK_M=rows, BLOCK_N=block, num_warps=_warps(rows * block),
        )  # fmt: skip

    def plain(t: Tensors) -> torch.Tensor:
        g = t["dy"].float() * t["w"]
        xhat = (t["x"].float() - t["mean"][:, None]) * t["rstd"][:, None]
        along = (g * xhat).mean(1, keepdim=True)
        return (t["rstd"][:, None] * (g - g.mean(1, keepdim=True) - xhat * along)).to(t["x"].dtype)

    error = _error(LAYER_NORM_DX, sets[0], ours, ("dx",))
    torchs = _torch_backward(N, narrow_w, narrow_b, (True, False, False))
    others = {"torch": torchs, "torch.compile": _compiled(plain)}
    yield from _rows(case, "layer_norm_dx", sets, 3 * sets[0]["x"].nbytes, error, ours, others)


def _torch_backward(N: int, w: torch.Tensor, b: torch.Tensor, wanted: tuple[bool, bool, bool]) -> Call:
    def call(t: Tensors) -> object:
        return torch.ops.aten.native_layer_norm_backward(
            t["dy"], t["x"], (N,), t["mean"][:, None], t["rstd"][:, None], w, b, wanted
        )

    return call


def _dw(case: str, sets: list[Tensors]) -> Iterator[dict[str, object]]:
    """dw and db: in two stages, under a lock, by atomics; with parts of many rows, and of few."""
    (M, N), dtype = sets[0]["x"].shape, sets[0]["x"].dtype
    narrow_w, narrow_b = (sets[0][name].to(dtype) for name in "wb")

    def plain(t: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        dy = t["dy"].float()
        xhat = (t["x"].float() - t["mean"][:, None]) * t["rstd"][:, None]
        return (dy * xhat).sum(0), dy.sum(0)

    torchs = _torch_backward(N, narrow_w, narrow_b, (False, True, True))
    others = {"torch": torchs, "torch.compile": _compiled(plain)}
    for rows in PARTS:
        for path, make in (
            ("layer_norm_dw", _in_two_stages),
            ("dw_by_lock", _by_lock),
            ("dw_by_atomics", _by_atomics),
        ):
            ours, puzzle, results = make(M, N, rows)
            ours(sets[0])
            wanted = zip(results, _spec(puzzle, sets[0], rows, BLOCK_N), strict=False)
            error = max(relative_error(result, want) for result, want in wanted)
            name = f"{path}, {rows} rows per program"
            yield from _rows(case, name, sets, 2 * sets[0]["x"].nbytes, error, ours, others)


Made = tuple[Call, Puzzle, tuple[torch.Tensor, torch.Tensor]]


def _in_two_stages(M: int, N: int, rows: int) -> Made:
    parts, columns, kernel = triton.cdiv(M, rows), triton.cdiv(N, BLOCK_N), solutions()["layer_norm_dw"]
    dw, db = (torch.empty(N, device="cuda") for _ in range(2))
    dw_part, db_part = (torch.empty(parts, N, device="cuda") for _ in range(2))
    count = torch.zeros(columns, dtype=torch.int32, device="cuda")

    def call(t: Tensors) -> None:
        kernel[(parts, columns)](
            t["dy"],
            t["x"],
            t["mean"],
            t["rstd"],
            dw,
            db,
            dw_part,
            db_part,
            count,
            M,
            N,
            rows,
            BLOCK_M=BLOCK_M,
            BLOCK_N=BLOCK_N,
        )

    return call, LAYER_NORM_DW, (dw, db)


def _by_lock(M: int, N: int, rows: int) -> Made:
    return _added(solutions()["dw_by_lock"], M, N, rows, locks=True)


def _by_atomics(M: int, N: int, rows: int) -> Made:
    return _added(edited("dw_by_lock", BY_ATOMICS), M, N, rows, locks=False)


def _added(kernel: object, M: int, N: int, rows: int, locks: bool) -> Made:
    """Programs add to dw and db, which are set to 0 before: that takes its time, too."""
    parts, columns = triton.cdiv(M, rows), triton.cdiv(N, BLOCK_N)
    both = torch.empty(2, N, device="cuda")
    more = (torch.zeros(columns, dtype=torch.int32, device="cuda"),) if locks else ()

    def call(t: Tensors) -> None:
        both.zero_()
        kernel[(parts, columns)](
            t["dy"],
            t["xhat"],
            both[0],
            both[1],
            *more,
            M,
            N,
            rows,
            BLOCK_M=min(rows, BLOCK_M),
            BLOCK_N=BLOCK_N,
        )

    return call, DW_BY_LOCK, (both[0], both[1])
