"""Measure checkpointed blocks whose inputs are kept in few bits, and other ways to save memory.

The model is a language model of 16 layers of 2048 on two texts of 8192 bytes, in bfloat16, forward and
backward in eager mode. ``us`` is wall time. ``bytes`` is the peak memory above the weights and their
gradients. ``error`` and ``cosine`` compare the gradients with torch's, for one weight in 61.
"""

import gc
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from puzzles_lib.examples.lm import ByteLM
from puzzles_lib.kernels.checkpoints import packed_checkpoint
from puzzles_lib.kernels.modules import pack_activations
from puzzles_lib.timing import row

SIZE = {"width": 2048, "layers": 16, "heads": 16, "context": 8192}
TEXTS, ROUNDS = 2, 5


def measure(size: dict[str, int] = SIZE, device: str = "cuda") -> Iterator[dict[str, Any]]:
    """Yield the rows of this bench. Raises RuntimeError without a GPU."""
    if device == "cuda" and not torch.cuda.is_available():
        raise RuntimeError("bench checkpointing needs a CUDA device")
    case = "{layers} layers of {width}, {context} tokens".format(**size) + f" x {TEXTS}"
    pieces = torch.randint(256, (2, TEXTS, size["context"]), device=device)
    found, want = {}, None
    for path, prepare in PATHS.items():
        torch.manual_seed(0)
        model = ByteLM(**size).to(device, torch.bfloat16)
        prepare(model)
        us, peak, gradients = _measured(model, pieces)
        want = gradients if want is None else want
        error = float((gradients - want).norm() / want.norm())
        found[path] = (us, peak, error, float(F.cosine_similarity(gradients, want, dim=0)))
        del model, gradients
        gc.collect()
        torch.cuda.empty_cache()
    base_us, base_peak = found["torch"][:2]
    for path, (us, peak, error, cosine) in found.items():
        made = row("checkpointing", case, path, us, "torch", base_us, error)
        yield {**made, "bytes": peak, "baseline_bytes": base_peak, "cosine": cosine}


def _measured(model: nn.Module, pieces: torch.Tensor) -> tuple[float, int, torch.Tensor]:
    def step() -> None:
        model.zero_grad(set_to_none=False)  # so that gradients are there all the time
        F.cross_entropy(model(pieces[0]).flatten(0, 1).float(), pieces[1].flatten()).backward()

    on_gpu = pieces.device.type == "cuda"
    step()
    gradients = torch.cat([p.grad.flatten()[::61] for p in model.parameters()]).double()
    before = torch.cuda.memory_allocated() if on_gpu else 0
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(ROUNDS):
        torch.cuda.synchronize() if on_gpu else None
        start = time.perf_counter()
        step()
        torch.cuda.synchronize() if on_gpu else None
        times.append(time.perf_counter() - start)
    peak = torch.cuda.max_memory_allocated() - before if on_gpu else 1
    return 1e6 * statistics.median(times), peak, gradients


class Checkpointed(nn.Module):
    """A block that is called through ``call``, such as `plain_checkpoint`."""

    def __init__(self, block: nn.Module, call: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.block, self.call = block, call

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.call(self.block, x)


def on_the_host(block: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Call a checkpointed block whose input waits in the host's memory."""
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        return plain_checkpoint(block, x)


def checkpointed(call: Callable[..., torch.Tensor], model: nn.Module) -> nn.Module:
    """Let each of a model's blocks be called through ``call``, and return the model."""
    for place, block in enumerate(model.blocks):
        model.blocks[place] = Checkpointed(block, call)
    return model


plain_checkpoint = partial(checkpoint, use_reentrant=False, preserve_rng_state=False)
PATHS: dict[str, Callable[[ByteLM], Any]] = {
    "torch": lambda model: model,
    "packed, 4 bits": lambda model: pack_activations(model, 4),
    "packed, 2 bits": lambda model: pack_activations(model, 2),
    "checkpointed": partial(checkpointed, plain_checkpoint),
    "checkpointed, inputs in 8 bits": partial(checkpointed, partial(packed_checkpoint, bits=8)),
    "checkpointed, inputs in 4 bits": partial(checkpointed, partial(packed_checkpoint, bits=4)),
    "checkpointed, inputs on the host": partial(checkpointed, on_the_host),
}
"""What to do to a model, by name."""
