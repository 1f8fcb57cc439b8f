"""Measure the three kernels of `puzzles_lib.kernels.attention` with many tiles, for each head dim.

The record has the form of `puzzles_lib.timing.sweep`. A kernel's blocks are ``m`` queries and ``n`` keys, and
its ``sizes`` are B, H, T and D. It also has ``causal`` and ``chosen``: its tiles at that time, from the
tables ``FORWARD``, ``DQ`` and ``DKV``. These tables depend only on the head dim, so a choice must be good for
causal and for full attention.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import import_module
from typing import Any

import torch

from puzzles_lib.bench.attention import FORMS, ROWS, USUAL, WIDTH, expected
from puzzles_lib.kernels.attention import Tiles, attention
from puzzles_lib.timing import sweep

production = import_module("puzzles_lib.kernels.attention")

TRIED = {"m": (32, 64, 128), "n": (32, 64, 128), "warps": (4, 8), "stages": (2, 3, 4)}
SHORT = 256  # rows for a kernel to be compiled with: as many as the longest tile has, and 16 divides them


@dataclass(frozen=True)
class Part:
    """A kernel. launch: its launcher. takes: its tensors' names, in order. results: those that it fills.

    chosen: tiles by head dim. products: FLOP for each score and column. wide, narrow: how many tensors it
    moves of [B, H, T, D] in bfloat16, and of [B, H, T] in float32.
    """

    launch: Callable[..., Any]
    takes: tuple[str, ...]
    results: tuple[str, ...]
    chosen: Mapping[int, Tiles]
    products: int
    wide: int
    narrow: int


PARTS = {
    "forward": Part(
        production.launch_forward, ("q", "k", "v", "o", "lse"), ("o",), production.FORWARD, 4, 4, 1
    ),
    "dq": Part(
        production.launch_dq,
        ("q", "k", "v", "o", "do", "lse", "dlse", "dq", "delta"),
        ("dq",),
        production.DQ,
        6,
        6,
        3,
    ),
    "dk and dv": Part(
        production.launch_dkv,
        ("q", "k", "v", "do", "lse", "delta", "dk", "dv"),
        ("dk", "dv"),
        production.DKV,
        8,
        6,
        2,
    ),
}


def of(
    name: str,
    causal: bool,
    sizes: Mapping[str, int],
    tried: Mapping[str, tuple[int, ...]] = TRIED,
    device: str = "cuda",
) -> sweep.Swept:
    """Return a part by its name. sizes: B, H, T and D."""
    part, (B, H, T, D) = PARTS[name], (sizes[size] for size in "BHTD")

    def launch(tensors: sweep.Tensors, config: sweep.Config) -> Any:
        rows = tensors["q"].shape[2]
        options = None, rows, causal, None, D**-0.5
        return part.launch(*(tensors[each] for each in part.takes), *options, tiles=Tiles(**config))

    def want(tensors: sweep.Tensors) -> sweep.Tensors:
        found = expected(*(tensors[each] for each in ("q", "k", "v", "do")), causal)
        return {result: found[result] for result in part.results}

    return sweep.Swept(
        f"{name}, D = {D}, {'causal' if causal else 'full'}",
        sizes,
        tried,
        lambda sizes: _tensors(sizes, causal, device),
        launch,
        lambda config: launch(_blank({**sizes, "B": 1, "T": SHORT}, device), config),
        want,
        bytes=B * H * T * (2 * D * part.wide + 4 * part.narrow),
        flops=part.products * B * H * D * (T * (T + 1) // 2 if causal else T * T),
        more={"causal": causal, "chosen": asdict(part.chosen[D])},
    )


def _blank(sizes: Mapping[str, int], device: str) -> sweep.Tensors:
    B, H, T, D = (sizes[size] for size in "BHTD")
    wide = torch.zeros(B, H, T, D, device=device, dtype=torch.bfloat16)
    tensors = {name: wide.clone() for name in ("q", "k", "v", "o", "do", "dq", "dk", "dv")}
    return tensors | {name: torch.zeros(B, H, T, device=device) for name in ("lse", "dlse", "delta")}


def _tensors(sizes: Mapping[str, int], causal: bool, device: str) -> sweep.Tensors:
    """Normal q, k, v and do, and what the kernels before leave of them."""
    tensors = _blank(sizes, device)
    q, k, v, do = (tensors[name].normal_() for name in ("q", "k", "v", "do"))
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    return tensors | {"o": o, "lse": lse, "delta": (do.float() * o.float()).sum(3)}


SWEPT = tuple(
    of(name, causal, {"B": ROWS // USUAL, "H": WIDTH // D, "T": USUAL, "D": D})
    for name in PARTS
    for D, causal in FORMS
)


def measure() -> dict[str, Any]:
    """Return the record of this bench. Raise RuntimeError without a GPU."""
    return sweep.swept("tiles", __name__, SWEPT)


def table(record: Mapping[str, Any]) -> str:
    """Return the best five of each kernel as text, then the times of the chosen tiles and of the best."""
    lines = [sweep.table(record), "", "chosen:"]
    for kernel in record["kernels"]:
        found = [dict(zip(kernel["fields"], row, strict=True)) for row in kernel["rows"]]
        times = sorted(each["us"] for each in found if each["us"] is not None)
        (chosen,) = [each for each in found if kernel["chosen"].items() <= each.items()]
        words = "  ".join(f"{name}={value}" for name, value in kernel["chosen"].items())
        if chosen["us"] is None:
            lines.append(f"{kernel['name']}: {words}: {chosen['error']}")
            continue
        place, ratio = times.index(chosen["us"]) + 1, chosen["us"] / times[0]
        lines.append(f"{kernel['name']}: {words}: number {place}, {ratio:.2f} times the best")
    return "\n".join(lines)
