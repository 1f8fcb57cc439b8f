"""Compare products by group with one cuBLAS product of as many operations, and with torch's grouped product.

Rows are routed at random, unevenly, and one expert gets none. The baseline multiplies all rows by one matrix.
"torch, expert by expert" is a loop over cuBLAS products, which has to know the groups on the host. Errors are
relative, against float64, on the first expert.

`sweep` measures other tiles: ``python -m puzzles_lib.bench.grouped_matmul``.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise

import torch

from puzzles_lib.kernels.grouped_matmul import (
    Tiles,
    choose_gradient_tiles,
    choose_tiles,
    grouped_matmul,
    launch_dw,
    launch_product,
)
from puzzles_lib.timing import interleaved, relative_error, row
from puzzles_lib.timing.h200 import CACHE
from puzzles_lib.timing.recorded import table

CASES = (  # rows, experts, K, N
    (8192, 8, 4096, 28672),
    (8192, 8, 14336, 4096),
    (1024, 8, 4096, 28672),
    (16384, 64, 2048, 2816),
    (32, 8, 4096, 28672),
    (2, 8, 4096, 28672),
)
WITH_GRADIENT = 1024  # rows, at least
ROUNDS = 20
BASELINE = "cuBLAS, one matrix"

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # x, w, start


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU, or if the results differ."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench grouped-matmul needs a CUDA device")
    for case in CASES:
        yield from _forward(case)
        torch.cuda.empty_cache()
        if case[0] >= WITH_GRADIENT:
            yield from _gradient(case)
            torch.cuda.empty_cache()


def _text(case: tuple[int, int, int, int]) -> str:
    return "{} rows, {} experts, K = {}, N = {}".format(*case)


def _inputs(case: tuple[int, int, int, int]) -> Inputs:
    """Draw x, w (stored [E, N, K], as linear layers are) and start: random shares, the second expert's 0."""
    rows, experts, K, N = case
    torch.manual_seed(0)
    options = {"device": "cuda", "dtype": torch.bfloat16}
    share = torch.rand(experts, device="cuda") + 0.5
    share[1] = 0
    expert = torch.multinomial(share, rows, replacement=True)
    start = torch.cat((expert.new_zeros(1), expert.bincount(minlength=experts).cumsum(0))).int()
    w = torch.randn(experts, N, K, **options) / K**0.5
    return torch.randn(rows, K, **options), w.mT, start


def _sets(inputs: Inputs) -> list[Inputs]:
    """Return as many inputs as it takes for no run to find its matrices in the cache."""
    x, w, start = inputs
    used = w.nbytes if x.shape[0] >= w.shape[0] else w.nbytes // w.shape[0] * x.shape[0]
    return [inputs] + [(x.clone(), w.mT.clone().mT, start) for _ in range(min(4, 3 * CACHE // used))]


def _by_expert(x: torch.Tensor, w: torch.Tensor, places: list[int]) -> list[torch.Tensor]:
    return [x[a:b] @ w[e] for e, (a, b) in enumerate(pairwise(places)) if b > a]


def _forward(case: tuple[int, int, int, int]) -> Iterator[dict[str, object]]:
    sets = _sets(_inputs(case))
    places = sets[0][2].tolist()
    paths: dict[str, list[Callable[[], object]]] = {
        "grouped_matmul": [lambda some=some: grouped_matmul(*some) for some in sets],
        BASELINE: [lambda x=x, w=w: x @ w[0] for x, w, _ in sets],
        "torch, expert by expert": [lambda x=x, w=w: _by_expert(x, w, places) for x, w, _ in sets],
    }
    if hasattr(torch, "_grouped_mm"):
        paths["torch, grouped_mm"] = [
            lambda x=x, w=w, s=s: torch._grouped_mm(x, w, offs=s[1:]) for x, w, s in sets
        ]
    x, w, start = sets[0]
    expert = next(e for e, (a, b) in enumerate(pairwise(places)) if b > a)
    some = slice(places[expert], places[expert + 1])
    want = x[some].double() @ w[expert].double()
    errors = {
        name: relative_error(calls[0]()[some], want) for name, calls in paths.items() if "group" in name
    }
    if errors["grouped_matmul"] > 2**-8:
        raise RuntimeError(f"bench grouped-matmul: the result differs from float64's, by {errors}")
    times = interleaved(paths, ROUNDS)
    for name, us in times.items():
        yield row("grouped-matmul", _text(case), name, us, BASELINE, times[BASELINE], errors.get(name, 0.0))


def _gradient(case: tuple[int, int, int, int]) -> Iterator[dict[str, object]]:
    x, w, start = _inputs(case)
    places = start.tolist()
    dy = torch.randn(case[0], case[3], device="cuda", dtype=torch.bfloat16)
    dw = torch.empty_like(w.mT)  # [E, N, K], as w is stored

    def our_dw() -> torch.Tensor:
        launch_dw(dy, x, start, dw)
        return dw

    paths: dict[str, list[Callable[[], torch.Tensor]]] = {
        "grouped_matmul, dx": [lambda: grouped_matmul(dy, w.mT, start)],
        "grouped_matmul, dw": [our_dw],
        f"{BASELINE}, dx": [lambda: dy @ w[0].t()],
        f"{BASELINE}, dw": [lambda: dy.t() @ x],
    }
    for name, call in (
        ("torch, grouped_mm, dx", lambda: torch._grouped_mm(dy, w.mT, offs=start[1:])),
        ("torch, grouped_mm, dw", lambda: torch._grouped_mm(dy.t(), x, offs=start[1:])),
    ):
        try:
            call()
        except (AttributeError, RuntimeError) as reason:  # a version without it, or with narrower bounds
            print(f"{name}: {reason}", flush=True)
        else:
            paths[name] = [call]
    expert = next(e for e, (a, b) in enumerate(pairwise(places)) if b > a)
    some = slice(places[expert], places[expert + 1])
    errors = {
        "grouped_matmul, dx": relative_error(
            paths["grouped_matmul, dx"][0]()[some], dy[some].double() @ w[expert].double().t()
        ),
        "grouped_matmul, dw": relative_error(
            paths["grouped_matmul, dw"][0]()[expert], dy[some].double().t() @ x[some].double()
        ),
    }
    if max(errors.values()) > 2**-8:
        raise RuntimeError(f"bench grouped-matmul: gradients differ from float64's, by {errors}")
    times = interleaved(paths, ROUNDS)
    for name, us in times.items():
        baseline = f"{BASELINE}, {name[-2:]}"
        yield row("grouped-matmul", _text(case), name, us, baseline, times[baseline], errors.get(name, 0.0))


def sweep() -> Iterator[dict[str, object]]:
    """Yield a row for each choice of tiles, for the product and for dw. An error of 1 is a wrong result."""
    some = [
        Tiles(m, n, k, group, warps, stages)
        for m, n, warps in ((128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (64, 256, 4))
        for k, stages in ((64, 3), (64, 4), (128, 2))
        for group in (4, 16)
    ]
    of_dw = [
        Tiles(m, n, 32, group, warps, stages, persistent)
        for m, n, warps, persistent in ((128, 256, 8, True), (256, 128, 8, True), (128, 128, 4, False))
        for stages in (3, 4, 5, 6)
        for group in (8, 16)
    ]
    few = [
        Tiles(16, n, k, 1, warps, stages)
        for n, warps in ((32, 4), (64, 4), (128, 4), (128, 8))
        for k, stages in ((64, 6), (128, 4), (128, 6), (256, 3), (256, 4))
    ]
    for case in CASES:
        (x, w, start), *_ = sets = _sets(_inputs(case))
        y = torch.empty(case[0], case[3], device="cuda", dtype=torch.bfloat16)
        yield from _swept(
            _text(case), few if case[0] < WITH_GRADIENT else some, grouped_matmul(x, w, start), y,
            lambda t, s, y=y: launch_product(*s, y, t), sets, choose_tiles(case[0], case[1], True),
        )  # fmt: skip
        if case[0] >= WITH_GRADIENT:
            dy, dw, want = torch.randn_like(y), torch.empty_like(w.mT), torch.empty_like(w.mT)
            launch_dw(dy, x, start, want)
            yield from _swept(
                f"{_text(case)}, dw", of_dw, want, dw,
                lambda t, s, dy=dy, dw=dw: launch_dw(dy, s[0], s[2], dw, t), sets[:1],
                choose_gradient_tiles(case[0], case[1], True),
            )  # fmt: skip
        torch.cuda.empty_cache()


def _swept(case, tiles, want, out, launch, sets, chosen) -> Iterator[dict[str, object]]:
    paths, errors = {}, {}
    for each in dict.fromkeys([chosen, *tiles]):
        out.fill_(torch.nan)
        try:
            launch(each, sets[0])
        except Exception as reason:  # such as too much shared memory
            print(f"{each}: {type(reason).__name__}", flush=True)
            continue
        name = f"{each.m} x {each.n} x {each.k}, {each.group}, {each.warps} warps, {each.stages} stages"
        errors[name] = min(relative_error(out, want), 1.0) if out.isfinite().all() else 1.0
        paths[name] = [lambda each=each, s=s: launch(each, s) for s in sets]
    times = interleaved(paths, 10)
    first = next(iter(times))
    for name, us in sorted(times.items(), key=lambda item: item[1])[:8] + [(first, times[first])]:
        yield row("grouped-matmul, tiles", case, name, us, first, times[first], errors[name])


if __name__ == "__main__":
    print(table(list(sweep())))
