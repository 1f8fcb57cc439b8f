"""Measure packed layers as people run them first: in eager mode, with no CUDA graph and no compiler.

- The host's time per layer, forward and backward. 16 equal layers in a row get inputs that are so small that
  the GPU waits for the host.
- A step of a ViT-B/16 at batch 128 in bfloat16 with AdamW.
- A step of the byte language model of `puzzles_lib.examples.train_lm` in its base size, under autocast.

``us`` is wall time. The ``error`` and ``cosine`` of a step compare its gradients with torch's.
"""

import copy
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from puzzles_lib.examples.lm import SIZES, ByteLM
from puzzles_lib.examples.train_lm import loss_of, take_step
from puzzles_lib.examples.vit import ViT
from puzzles_lib.kernels.modules import pack_activations
from puzzles_lib.timing import row

ROUNDS = 7
IN_A_ROW = 16  # layers: a single one's time is mostly that of waking the thread that runs backward
FORMATS = {
    "packed, 4 bits": {"bits": 4},
    "packed, 2 bits": {"bits": 2},
    "packed, 2 bits, stochastic": {"bits": 2, "rounding": "stochastic"},
}
CHECKPOINTED = "torch, each block checkpointed"


def measure() -> Iterator[dict[str, Any]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench eager needs a CUDA device")
    yield from measure_layers()
    yield from measure_vit()
    yield from measure_lm()


def measure_layers() -> Iterator[dict[str, Any]]:
    """Yield the rows of layers: the host's time for a forward and a backward pass of one."""
    layers: dict[str, Callable[[], nn.Module]] = {
        "Linear 256 to 256": lambda: nn.Linear(256, 256),
        "LayerNorm 256": lambda: nn.LayerNorm(256),
        "GELU": nn.GELU,
        "MLP 256 to 512 to 256": lambda: nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)),
    }
    x = torch.randn(2048, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    dy = torch.randn_like(x)
    for name, make in layers.items():
        torch.manual_seed(0)
        plain = nn.Sequential(*[make() for _ in range(IN_A_ROW)]).to("cuda", torch.bfloat16)
        models = {"torch": plain} | {
            path: pack_activations(copy.deepcopy(plain), **options) for path, options in FORMATS.items()
        }

        def step(model: nn.Module) -> None:
            model(x).backward(dy)

        steps = {path: _bound(step, model) for path, model in models.items()}
        yield from _rows(f"host, a {name}", steps, models, 20, IN_A_ROW)


def _bound(step: Callable, *arguments: Any) -> Callable[[], None]:
    return lambda: step(*arguments)


def measure_vit() -> Iterator[dict[str, Any]]:
    """Yield the rows of the vision transformer."""
    torch.manual_seed(0)
    plain = ViT().to("cuda", torch.bfloat16)
    images = torch.randn(128, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    labels = torch.randint(1000, (128,), device="cuda")
    models = _paths(plain, lambda model: model.blocks)

    def stepper(model: nn.Module) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

        def step() -> None:
            optimizer.zero_grad(set_to_none=True)
            F.cross_entropy(model(images).float(), labels).backward()
            optimizer.step()

        return step

    yield from _rows("ViT-B/16, batch 128, AdamW", {p: stepper(m) for p, m in models.items()}, models, 10)


def measure_lm(batch: int = 96) -> Iterator[dict[str, Any]]:
    """Yield the rows of the language model."""
    torch.manual_seed(0)
    plain = ByteLM(**SIZES["base"]).to("cuda")
    pieces = torch.randint(256, (2, batch, plain.context), device="cuda")
    models = _paths(plain, lambda model: model.blocks)

    def stepper(model: nn.Module) -> Callable[[], None]:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
        return lambda: take_step(model, optimizer, (pieces[0], pieces[1]))

    name = f"byte LM, 8 layers of 512, {batch} x {plain.context}, autocast, AdamW"
    yield from _rows(name, {p: stepper(m) for p, m in models.items()}, models, 10)
    assert torch.isfinite(loss_of(plain, pieces[0], pieces[1]))


class _Checkpointed(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)


def _paths(plain: nn.Module, blocks_of: Callable) -> dict[str, nn.Module]:
    checkpointed = copy.deepcopy(plain)
    blocks = blocks_of(checkpointed)
    for place, block in enumerate(blocks):
        blocks[place] = _Checkpointed(block)
    packed = {path: pack_activations(copy.deepcopy(plain), **options) for path, options in FORMATS.items()}
    return {"torch": plain, CHECKPOINTED: checkpointed, **packed}


def _rows(
    case: str, steps: dict[str, Callable], models: dict[str, nn.Module], calls: int, layers: int = 1
) -> Iterator[dict[str, Any]]:
    gradients, peaks = {}, {}
    for path, step in steps.items():  # the first step, from equal weights
        for parameter in models[path].parameters():
            parameter.grad = None
        step()
        torch.cuda.synchronize()
        gradients[path] = torch.cat([p.grad.flatten().double() for p in models[path].parameters()] or [_ONE])
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        step()
        torch.cuda.synchronize()
        peaks[path] = torch.cuda.max_memory_allocated() - before
    times: dict[str, list[float]] = {path: [] for path in steps}
    for _ in range(ROUNDS):
        for path, step in steps.items():
            step()
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(calls):
                step()
            torch.cuda.synchronize()
            times[path].append((time.perf_counter() - start) / calls / layers * 1e6)
    us = {path: statistics.median(some) for path, some in times.items()}
    want = gradients["torch"]
    for path, got in gradients.items():
        error = float((got - want).norm() / want.norm())
        cosine = float(F.cosine_similarity(got, want, dim=0))
        made = row("eager", case, path, us[path], "torch", us["torch"], error)
        yield {**made, "bytes": peaks[path], "baseline_bytes": peaks["torch"], "cosine": cosine}


_ONE = torch.ones(1, dtype=torch.float64)
