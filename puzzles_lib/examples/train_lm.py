"""``python -m puzzles_lib.examples.train_lm``: train a byte language model on packed activations.

Without options it trains a small model for a few hundred steps, on a GPU or this CPU, in 4 bits. Use
``--no-packing`` to compare with torch's own layers, ``--bits`` and ``--rounding`` for other codes, and
``--size base`` for a model of 25 million weights, which needs a GPU. The loss is in nats per byte.
"""

import argparse
import math
import re
import statistics
import sys
import time
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn
from tqdm import tqdm

from puzzles_lib.examples.lm import SIZES, ByteLM, corpus, draw
from puzzles_lib.kernels.bitpack import check_bits
from puzzles_lib.kernels.modules import pack_activations
from puzzles_lib.kernels.rounding import check_rounding

WARM_UP, HELD_OUT_BATCHES = 100, 20


@dataclass(frozen=True)
class Setup:
    """What to train and how.

    bits, rounding: those of `pack_activations`. No bits: torch's own layers. No rounding: the default for the
    bits.
    finer: a pattern of names. Layers whose names match keep 4 bits, rounded to the nearest.
    batch: pieces of text per step, each as long as the model's context.
    """

    size: str = "small"
    bits: int | None = 4
    rounding: str | None = None
    steps: int = 300
    batch: int = 32
    lr: float = 6e-4
    seed: int = 0
    finer: str | None = None

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"size must be {' or '.join(SIZES)}, but is {self.size!r}")
        if self.bits is not None:
            check_bits(self.bits)
        if self.rounding is not None:
            check_rounding(self.rounding)
        for name in ("steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be an integer of at least 1, but is {getattr(self, name)}")

    def model(self) -> ByteLM:
        """Return the model with fresh weights, packed if the setup says so."""
        torch.manual_seed(self.seed)
        model = ByteLM(**SIZES[self.size])
        if self.bits is not None:
            pack_activations(model, self.bits, rounding=self.rounding)
        if (finer := self.finer) is not None:
            pack_activations(model, 4, predicate=lambda name, _: bool(re.search(finer, name)))
        return model

    def text(self) -> str:
        """Return how activations are kept, in a few words."""
        if self.bits is None:
            return "torch"
        return (
            f"{self.bits} bit{'s' * (self.bits > 1)}"
            + (f", {self.rounding}" if self.rounding else "")
            + (f", 4 in {self.finer}" if self.finer else "")
        )


@dataclass
class Result:
    """What a run found: the loss of each step and of held-out text, seconds per step, peak bytes on a GPU."""

    losses: list[float] = field(default_factory=list)
    held_out: float = math.nan
    seconds: float = math.nan
    peak: int = 0


def train(setup: Setup, device: torch.device | str, quiet: bool = True) -> Result:
    """Train a model and return its losses. Batches depend on nothing but the setup's sizes."""
    device = torch.device(device)
    model, generator = setup.model().to(device), torch.Generator().manual_seed(1)
    seen, unseen = (part.to(device) for part in corpus())
    fused = device.type == "cuda"
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=setup.lr, weight_decay=0.1, betas=(0.9, 0.95), fused=fused
    )
    if fused:
        torch.cuda.reset_peak_memory_stats(device)
    losses, ended = [], []
    for step in tqdm(range(setup.steps), setup.text(), disable=quiet or None, leave=False):
        for group in optimizer.param_groups:
            cosine = 0.5 * (1 + math.cos(math.pi * step / setup.steps))
            group["lr"] = setup.lr * min(1, (step + 1) / WARM_UP) * cosine
        losses.append(take_step(model, optimizer, draw(seen, generator, setup.batch, model.context)))
        if step % 50 == 49:
            if fused:
                torch.cuda.synchronize(device)
            ended.append(time.perf_counter())
    gaps = [(b - a) / 50 for a, b in zip(ended, ended[1:], strict=False)]
    found = Result(torch.stack(losses).tolist(), seconds=statistics.median(gaps) if gaps else math.nan)
    found.peak = torch.cuda.max_memory_allocated(device) if fused else 0
    found.held_out = _held_out(model, unseen, setup.batch)
    return found


def take_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, batch: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Train on a batch and return its loss."""
    loss = loss_of(model, *batch)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.detach()


def loss_of(model: nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy, computed under autocast to bfloat16."""
    with torch.autocast(inputs.device.type, torch.bfloat16):
        return F.cross_entropy(model(inputs).flatten(0, 1).float(), targets.flatten())


@torch.no_grad()
def _held_out(model: ByteLM, unseen: torch.Tensor, batch: int) -> float:
    generator = torch.Generator().manual_seed(9)
    batches = [draw(unseen, generator, batch, model.context) for _ in range(HELD_OUT_BATCHES)]
    return statistics.fmean(float(loss_of(model, *each)) for each in batches)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.examples.train_lm", description=__doc__)
    parser.add_argument("--size", default="small", choices=list(SIZES), help="model size (default: small)")
    parser.add_argument("--bits", type=int, choices=(1, 2, 4, 8), help="bits per code (default: 4)")
    parser.add_argument("--rounding", choices=("nearest", "stochastic"), help="rounding of the codes")
    parser.add_argument("--no-packing", action="store_true", help="use torch's own layers")
    parser.add_argument("--steps", type=int, default=300, help="(default: 300)")
    parser.add_argument("--batch", type=int, help="pieces of text per step (default: 32, base: 96)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the weights (default: 0)")
    chosen = parser.parse_args(arguments)
    if chosen.no_packing and (chosen.bits or chosen.rounding):
        parser.error("--no-packing excludes --bits and --rounding")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    bits = None if chosen.no_packing else chosen.bits or 4
    batch = chosen.batch or {"small": 32, "base": 96}[chosen.size]
    try:
        setup = Setup(chosen.size, bits, chosen.rounding, chosen.steps, batch, seed=chosen.seed)
    except ValueError as error:
        parser.error(str(error))
    found = train(setup, device, quiet=False)
    parts = [f"{setup.text()}: loss {found.losses[0]:.3f} to {found.losses[-1]:.3f}"]
    parts.append(f"held out {found.held_out:.4f}")
    if not math.isnan(found.seconds):
        parts.append(f"{1000 * found.seconds:.1f} ms per step")
    if found.peak:
        parts.append(f"peak {found.peak / 2**30:.2f} GiB")
    print(", ".join(parts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
