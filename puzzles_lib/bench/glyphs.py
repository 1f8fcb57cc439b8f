"""Measure what packed activations cost a vision transformer: its loss in each format, over several seeds.

It learns to name the characters of `puzzles_lib.examples.glyphs`, of which no two pictures are equal. So the
loss falls until the end of the run, and is about as high on pictures that are kept for the test. All paths
start with the same weights and get the same pictures. Several runs share a GPU at a time, so the record has
no times; `python -m puzzles_lib.bench eager` measures times.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.bench.language import PATHS
from puzzles_lib.bench.many import curve, rows_of, spread
from puzzles_lib.examples.glyphs import Glyphs, glyphs
from puzzles_lib.examples.vit import ViT
from puzzles_lib.kernels.modules import pack_activations
from puzzles_lib.timing import provenance

FORMATS = {name: format for name, format in PATHS.items() if len(format) == 2}
SIZE = {"side": 32, "patch": 4, "channels": 1, "width": 256, "depth": 6, "heads": 4}
SEEDS, STEPS, BATCH, RATE = 3, 4000, 256, 1e-3
WARM_UP, TESTED = 1000, 40  # steps; batches of each test


@dataclass(frozen=True)
class Setup:
    """A run: bits and rounding of `pack_activations` (no bits: torch's layers), and how long it is."""

    bits: int | None
    rounding: str | None
    seed: int
    steps: int = STEPS
    batch: int = BATCH
    size: tuple[tuple[str, int], ...] = tuple(SIZE.items())


def measure(
    paths: Mapping[str, tuple] = FORMATS, seeds: int = SEEDS, steps: int = STEPS, limit: float | None = None
) -> dict[str, Any]:
    """Return this bench's record. limit: the time limit in seconds. Raises RuntimeError without a GPU."""
    jobs = [(name, Setup(*format, seed, steps)) for seed in range(seeds) for name, format in paths.items()]
    results = spread(_named, jobs, limit=limit)
    rows = rows_of([name for name, _ in jobs], results)
    record = {**provenance(), "classes": glyphs()[0].classes, "steps": steps, "batch": BATCH}
    return {**record, "rows": rows}


def _named(job: tuple[str, Setup], device: str) -> dict[str, Any]:
    name, setup = job
    result = run(setup, device)
    print(f"{name}, seed {setup.seed}: {result['held_out']}, {result['right']}", flush=True)
    return result


def run(setup: Setup, device: str) -> dict[str, Any]:
    """Train, and return the loss curve, the peak of memory, and the results on new pictures.

    held_out, right: loss and share of correct answers on new pictures in the trained fonts. unseen,
    unseen_right: the same in other fonts.
    """
    seen, unseen = (some.to(device) for some in glyphs())
    torch.manual_seed(setup.seed)
    model = ViT(**dict(setup.size), classes=seen.classes)
    if setup.bits is not None:
        pack_activations(model, setup.bits, rounding=setup.rounding)
    model = model.to(device)
    on_gpu = torch.device(device).type == "cuda"
    optimizer = torch.optim.AdamW(model.parameters(), RATE, (0.9, 0.98), weight_decay=0.05, fused=on_gpu)
    generator = torch.Generator(device).manual_seed(1000 + setup.seed)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(device)
    losses, side = [], dict(setup.size)["side"]
    for step in range(setup.steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * rate(step, setup.steps)
        loss = _loss(model, *seen.draw(generator, setup.batch, side))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.detach())
    found: dict[str, Any] = {"loss": curve(torch.stack(losses).tolist())}
    found["peak"] = torch.cuda.max_memory_allocated(device) if on_gpu else 0
    found["held_out"], found["right"] = _tested(model, seen, setup, device)
    found["unseen"], found["unseen_right"] = _tested(model, unseen, setup, device)
    return found


def rate(step: int, steps: int) -> float:
    """Return a step's learning rate as a share of the highest: a linear rise, then half a cosine."""
    return min(1.0, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / steps))


def _loss(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    with torch.autocast(images.device.type, torch.bfloat16):
        return F.cross_entropy(model(images).float(), labels)


@torch.no_grad()
def _tested(model: nn.Module, some: Glyphs, setup: Setup, device: str) -> tuple[float, float]:
    """Return the mean loss and the share of right answers; the pictures are the same for all runs."""
    generator, losses, right = torch.Generator(device).manual_seed(9), [], []
    for _ in range(TESTED):
        images, labels = some.draw(generator, setup.batch, dict(setup.size)["side"])
        with torch.autocast(images.device.type, torch.bfloat16):
            logits = model(images).float()
        losses.append(float(F.cross_entropy(logits, labels)))
        right.append(float((logits.argmax(1) == labels).float().mean()))
    return round(fmean(losses), 4), round(fmean(right), 4)


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    told = f"{record['classes']} characters, {record['steps']} steps of {record['batch']} pictures"
    lines = [f"loss of a vision transformer on new pictures, {told}", ""]
    lines.append(f"{'path':20} {'mean':>7}  {'to torch':>8}  right  other fonts  peak GiB  by seed")
    exact = fmean(record["rows"][0]["held_out"])
    for row in record["rows"]:
        mean, seeds = fmean(row["held_out"]), "  ".join(f"{loss:.4f}" for loss in row["held_out"])
        shares = f"{100 * fmean(row['right']):4.1f}%  {100 * fmean(row['unseen_right']):10.1f}%"
        peak = f"{row['peak'] / 2**30:8.2f}"
        lines.append(f"{row['path']:20} {mean:7.4f}  {mean - exact:+8.4f}  {shares}  {peak}  {seeds}")
    return "\n".join(lines)
