"""Measure training steps on packed activations: time, memory and gradients against torch in bfloat16.

There are two models. One is twelve blocks of LayerNorm, Linear 768 -> 3072, ReLU, Linear 3072 -> 768 on 50432
tokens: forward and backward of the mean square. The other is a ViT-B/16 at batch 128: a whole step, including
AdamW. Each runs in plain torch, compiled block by block, with activation checkpointing of each block, and
with `pack_activations`. Codes are rounded to nearest unless a path says "stochastic".

Steps are replayed as CUDA graphs, as in the other benches. So the host's time to launch them, which is longer
than the GPU's at small batches, is not included. Rows have three more fields than those of other benches:

- ``bytes``, the peak memory above what is there before the step (weights, optimizer state, inputs),
- ``baseline_bytes``, the same for the baseline,
- ``cosine``, between the gradients of all weights and the baseline's; ``error`` is their relative error.
"""

import copy
import gc
from collections.abc import Callable, Iterator
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from puzzles_lib.examples.vit import ViT
from puzzles_lib.kernels.modules import pack_activations, seed_rounding
from puzzles_lib.timing import interleaved, row
from puzzles_lib.timing.recorded import bits_text

TOKENS, WIDTH, HIDDEN, BLOCKS = 50432, 768, 3072, 12  # a ViT-B at batch 256
BATCH, CLASSES = 128, 1000
EAGER, COMPILED = "torch", "torch, compiled"
ROUNDS = 12


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    yield from measure_blocks()
    yield from _rows(f"ViT-B/16, batch {BATCH}, AdamW", ViT, _vit_step, (2, 4))


def measure_blocks(tokens: int = TOKENS) -> Iterator[dict[str, object]]:
    """Yield the rows of the first model, on ``tokens`` tokens. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench training needs a CUDA device")
    name = f"{BLOCKS} blocks of LayerNorm and MLP (ReLU), {tokens} tokens"
    yield from _rows(name, mlp_blocks, partial(_mlp_step, tokens=tokens), (1, 2, 4, 8))


def _rows(
    case: str, make: Callable, step_of: Callable, formats: tuple[int, ...]
) -> Iterator[dict[str, object]]:
    torch.manual_seed(0)
    plain = make().to("cuda", torch.bfloat16)
    models = {EAGER: plain, COMPILED: _compiled(copy.deepcopy(plain))}
    models["torch, checkpointed"] = _checkpointed(copy.deepcopy(plain))
    models["torch, checkpointed and compiled"] = _compiled(_checkpointed(copy.deepcopy(plain)))
    for bits in formats:
        model = pack_activations(copy.deepcopy(plain), bits, rounding="nearest")
        models[f"packed, {bits_text(bits)}"] = model
    for bits in (1, 2):
        if bits in formats:
            model = pack_activations(copy.deepcopy(plain), bits, rounding="stochastic")
            models[f"packed, {bits_text(bits)}, stochastic"] = model
    model = pack_activations(copy.deepcopy(plain), 2, rounding="nearest")
    models["packed, 2 bits, compiled"] = _compiled(model)
    steps = {path: step_of(model) for path, model in models.items()}
    peaks, gradients = {}, {}
    for path, step in steps.items():
        for turn in range(3):
            seed_rounding(models[path], turn)
            gradients[path] = step(update=False)
        peaks[path] = _peak(step)
    wanted = gradients.pop(EAGER)
    compared = {path: _compare(found, wanted) for path, found in gradients.items()} | {EAGER: (0.0, 1.0)}
    del gradients, wanted
    times = interleaved({path: [step] for path, step in steps.items()}, ROUNDS)
    for path in models:
        baselines = [EAGER, COMPILED] if path.startswith("packed") else [EAGER]
        for baseline in baselines:
            error, cosine = compared[path]
            made = row("training", case, path, times[path], baseline, times[baseline], error)
            yield {**made, "bytes": peaks[path], "baseline_bytes": peaks[baseline], "cosine": cosine}
    del models, steps
    gc.collect()
    torch.cuda.empty_cache()


def _peak(step: Callable) -> int:
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    step()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _compare(found: torch.Tensor, wanted: torch.Tensor) -> tuple[float, float]:
    """Relative error and cosine."""
    found, wanted = found.double(), wanted.double()
    error = float((found - wanted).norm() / wanted.norm())
    return error, float(F.cosine_similarity(found, wanted, dim=0))


def _gradients(model: nn.Module) -> torch.Tensor:
    """Of all weights, in one vector on the CPU."""
    return torch.cat([p.grad.flatten().cpu() for p in model.parameters()])


def _blocks(model: nn.Module) -> nn.Sequential:
    return model.blocks if isinstance(model, ViT) else model


def _compiled(model: nn.Module) -> nn.Module:
    for block in _blocks(model):
        block.compile(fullgraph=True)
    return model


class _Checkpointed(nn.Module):
    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.block, x, use_reentrant=False, preserve_rng_state=False)  # nothing is random


def _checkpointed(model: nn.Module) -> nn.Module:
    blocks = _blocks(model)
    for place, block in enumerate(blocks):
        blocks[place] = _Checkpointed(block)
    return model


# ---- the models


def mlp_blocks() -> nn.Sequential:
    """Return blocks without residuals, so that the gradient passes through every block."""
    return nn.Sequential(
        *[
            nn.Sequential(
                nn.LayerNorm(WIDTH),
                nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, WIDTH)),
            )
            for _ in range(BLOCKS)
        ]
    )


def _mlp_step(model: nn.Module, tokens: int) -> Callable:
    x = torch.randn(tokens, WIDTH, device="cuda", dtype=torch.bfloat16, generator=_generator())

    def step(update: bool = True) -> torch.Tensor | None:
        for parameter in model.parameters():
            parameter.grad = None
        model(x).square().mean().backward()
        return None if update else _gradients(model)

    return step


def _vit_step(model: nn.Module) -> Callable:
    generator = _generator()
    images = torch.randn(BATCH, 3, 224, 224, device="cuda", dtype=torch.bfloat16, generator=generator)
    labels = torch.randint(CLASSES, (BATCH,), device="cuda", generator=generator)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)

    def step(update: bool = True) -> torch.Tensor | None:
        optimiser.zero_grad(set_to_none=True)
        F.cross_entropy(model(images), labels).backward()
        if not update:
            return _gradients(model)
        optimiser.step()
        return None

    return step


def _generator() -> torch.Generator:
    return torch.Generator("cuda").manual_seed(0)
