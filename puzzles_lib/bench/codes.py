"""Measure what codes do to the gradients of a language model, by format, layer, and batches summed.

The model is that of `puzzles_lib.examples.train_lm`, after few and after many steps with torch's layers.
Each linear layer's dW = dyᵀ x is computed once more from the x that its codes stand for, with the same dy.
The cosine between both is measured for one batch and for sums over several. An error that is the same in
each batch stays in the sum, while noise fades.

Three cures that the layers don't have are tried as well: smaller groups, clipping each group's values, and a
Hadamard rotation of each group before its values become codes, which spreads large columns over all columns.
At the end whole models are packed, with more bits in some of their layers.
"""

import copy
import math
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.examples.lm import SIZES, ByteLM, corpus, draw
from puzzles_lib.examples.train_lm import loss_of, take_step
from puzzles_lib.kernels.modules import pack_activations
from puzzles_lib.kernels.quantize import dequantize, quantize_pack
from puzzles_lib.timing import provenance

BATCH, TRAINED, STAGES, SUMS = 24, 4, (50, 1000), (1, 4, 16, 64)
"""Pieces of text per batch, batches in a training step, such steps before a measurement, batches in a sum."""
Seen = Callable[[torch.Tensor, int], torch.Tensor]


def _coded(bits: int, group: int = 256, rounding: str = "nearest") -> Seen:
    def seen(x: torch.Tensor, seed: int) -> torch.Tensor:
        return dequantize(quantize_pack(x, bits, group, rounding=rounding, seed=seed))

    return seen


@cache
def hadamard(order: int, device: torch.device) -> torch.Tensor:
    """Return an orthogonal matrix [order, order] whose entries have one size. order: a power of two."""
    matrix = torch.ones(1, 1, device=device)
    while len(matrix) < order:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(order)


def rotated(seen: Seen, most: int = 256) -> Seen:
    """Return a ``seen`` that rotates groups of columns of x before it rounds them, and back afterwards.

    most: the largest group. A group's size divides the number of columns.
    """

    def through(x: torch.Tensor, seed: int) -> torch.Tensor:
        order = math.gcd(x.shape[-1], most)
        matrix = hadamard(order, x.device)
        turned = (x.float().unflatten(-1, (-1, order)) @ matrix).flatten(-2).to(x.dtype)
        back = seen(turned, seed).float().unflatten(-1, (-1, order)) @ matrix.t()
        return back.flatten(-2).to(x.dtype)

    return through


def clipped(seen: Seen, deviations: float, group: int = 256) -> Seen:
    """Return ``seen`` for an x clipped to ``deviations`` standard deviations around each group's mean."""

    def through(x: torch.Tensor, seed: int) -> torch.Tensor:
        parts = x.float().unflatten(-1, (-1, math.gcd(x.shape[-1], group)))
        mean, reach = parts.mean(-1, keepdim=True), deviations * parts.std(-1, keepdim=True)
        return seen(parts.clamp(mean - reach, mean + reach).flatten(-2).to(x.dtype), seed)

    return through


FORMATS: dict[str, Seen] = {
    "8 bits": _coded(8),
    "4 bits": _coded(4),
    "4 bits, stochastic": _coded(4, rounding="stochastic"),
    "2 bits": _coded(2),
    "2 bits, stochastic": _coded(2, rounding="stochastic"),
    "2 bits, groups of 64": _coded(2, 64),
    "2 bits, clipped to 2 deviations": clipped(_coded(2), 2.0),
    "2 bits, rotated": rotated(_coded(2)),
    "2 bits, rotated, clipped": rotated(clipped(_coded(2), 2.0)),
    "2 bits, rotated, stochastic": rotated(_coded(2, rounding="stochastic")),
    "1 bit": _coded(1),
    "1 bit, stochastic": _coded(1, rounding="stochastic"),
}
KINDS = {"qkv": r"\.qkv$", "out": r"\.out$", "up": r"mlp\.0$", "down": r"mlp\.2$", "head": "^head$"}
"""Linear layers by their names: attention's, the MLP's and the last one."""
WHOLE: dict[str, tuple[int, str | None]] = {
    "4 bits": (4, None),
    "2 bits": (2, None),
    "2 bits, norms 4": (2, "norm"),
    "2 bits, attention 4": (2, "qkv|out"),
    "2 bits, MLPs 4": (2, "mlp$|mlp[.]"),
    "2 bits, norms and attention 4": (2, "norm|qkv|out"),
}
"""Packed models: bits, and a pattern of the layers that have 4."""


def measure(
    size: Mapping[str, int] = SIZES["base"],
    device: str = "cuda",
    batch: int = BATCH,
    stages: tuple[int, ...] = STAGES,
    sums: tuple[int, ...] = SUMS,
) -> dict[str, Any]:
    """Return the record of this bench. Raises RuntimeError without a GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("bench codes needs a CUDA device")
    torch.manual_seed(0)
    model = ByteLM(**size).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, weight_decay=0.1, betas=(0.9, 0.95))
    text, generator = corpus()[0].to(device), torch.Generator().manual_seed(1)
    rows, columns, whole, done = [], [], [], 0
    for stage in stages:
        for _ in range(done, stage):
            take_step(model, optimizer, draw(text, generator, TRAINED * batch, model.context))
        done = stage
        pieces = [draw(text, generator, batch, model.context) for _ in range(max(sums))]
        found = [{"steps": stage, **row} for row in _layers(model, pieces, sums)]
        rows += [row for row in found if "cosine" in row]
        columns += [row for row in found if "columns" in row]
        whole += [{"steps": stage, **row} for row in _whole(model, pieces[: sums[-2]])]
    head = provenance() if device == "cuda" else {}
    return {**head, "batch": batch, "sums": list(sums), "rows": rows, "columns": columns, "whole": whole}


def _layers(
    model: ByteLM, pieces: list[tuple[torch.Tensor, torch.Tensor]], sums: tuple[int, ...]
) -> Iterator[dict[str, Any]]:
    """Yield the cosines of each format by kind of layer, and how uneven the columns of each kind's x are."""
    linears = {name: m for name, m in model.named_modules() if isinstance(m, nn.Linear)}
    exact = {name: torch.zeros_like(m.weight) for name, m in linears.items()}
    seen = {path: {name: torch.zeros_like(m.weight) for name, m in linears.items()} for path in FORMATS}
    squares: dict[str, torch.Tensor] = {}
    number = 0

    def looking(name: str) -> Callable:
        def hook(module: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
            x = inputs[0].detach().flatten(0, -2).to(torch.bfloat16)
            squares.setdefault(name, x.float().square().mean(0))

            def behind(dy: torch.Tensor) -> None:
                dy = dy.flatten(0, -2).to(torch.bfloat16)
                exact[name] += (dy.t() @ x).float()
                for path, format in FORMATS.items():
                    seen[path][name] += (dy.t() @ format(x, number)).float()

            output.register_hook(behind)

        return hook

    handles = [m.register_forward_hook(looking(name)) for name, m in linears.items()]
    cosines: dict[tuple[str, str], list[float]] = {}
    for number, each in enumerate(pieces):
        model.zero_grad(set_to_none=True)
        loss_of(model, *each).backward()
        if number + 1 in sums:
            for path in FORMATS:
                for kind, pattern in KINDS.items():
                    names = [name for name in linears if re.search(pattern, name)]
                    pair = [torch.cat([some[n].flatten() for n in names]) for some in (seen[path], exact)]
                    value = F.cosine_similarity(pair[0].double(), pair[1].double(), dim=0)
                    cosines.setdefault((path, kind), []).append(round(float(value), 5))
    for handle in handles:
        handle.remove()
    for (path, kind), values in cosines.items():
        yield {"path": path, "kind": kind, "cosine": values}
    for kind, pattern in KINDS.items():
        ratios = [
            float((s.max() / s.median()).sqrt()) for name, s in squares.items() if re.search(pattern, name)
        ]
        yield {"kind": kind, "columns": round(max(ratios), 2)}


def _whole(model: ByteLM, pieces: list[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[dict[str, Any]]:
    """Yield the cosines of whole gradients: of the first batch, and of the sum over all."""
    want: list[torch.Tensor] = []
    for path, (bits, finer) in {"torch": (None, None), **WHOLE}.items():
        packed = copy.deepcopy(model)
        if bits is not None:
            pack_activations(packed, bits)
        if finer is not None:
            pack_activations(packed, 4, predicate=lambda name, _, finer=finer: bool(re.search(finer, name)))
        packed.zero_grad(set_to_none=True)
        found = []
        for number, each in enumerate(pieces):
            loss_of(packed, *each).backward()
            if number in (0, len(pieces) - 1):
                found.append(torch.cat([p.grad.flatten().clone() for p in packed.parameters()]))
        if not want:
            want = found
            continue
        values = [
            float(F.cosine_similarity(a.double(), b.double(), dim=0))
            for a, b in zip(found, want, strict=True)
        ]
        yield {"path": path, "cosine": [round(value, 5) for value in values], "sums": [1, len(pieces)]}


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    lines = []
    for stage in dict.fromkeys(row["steps"] for row in record["rows"]):
        some = [row for row in record["rows"] if row["steps"] == stage]
        sums = record["sums"]
        lines.append(f"after {stage} steps: cosine of dW for {sums[0]} and for {sums[-1]} batches")
        lines.append(f"{'':34}" + "".join(f"{kind:>16}" for kind in KINDS))
        for path in dict.fromkeys(row["path"] for row in some):
            cells = [row["cosine"] for row in some if row["path"] == path]
            lines.append(f"{path:34}" + "".join(f"{c[0]:9.4f}{c[-1]:7.4f}" for c in cells))
        uneven = [row["columns"] for row in record["columns"] if row["steps"] == stage]
        lines.append(f"{'largest column / median column':34}" + "".join(f"{value:16.1f}" for value in uneven))
        for row in record["whole"]:
            if row["steps"] == stage:
                values = "".join(f"{value:9.4f}" for value in row["cosine"])
                lines.append(f"{'whole gradient, ' + row['path']:50}{values}")
        lines.append("")
    return "\n".join(lines)
