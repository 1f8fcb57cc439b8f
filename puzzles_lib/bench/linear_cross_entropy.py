"""Compare the fused linear cross entropy with torch's two steps: time and memory of a step, and the error.

A step is the loss and the gradients of x and the weight. Its memory is the most that is allocated while it
runs, less what was allocated before: logits, and the gradients. torch's two steps are measured twice: with
the logits in their dtype, and with the logits converted to float32, as training scripts have it. The error is
that of the weight's gradient: its distance from the gradient in float64, divided by the norm of that
gradient. It is computed for the first 512 rows and classes only.
"""

from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import cross_entropy

from puzzles_lib.kernels.linear_cross_entropy import linear_cross_entropy
from puzzles_lib.timing import interleaved, relative_error, row

CASES = ((8192, 131072, 4096), (8192, 131072, 2048), (16384, 32000, 4096), (4096, 50304, 768))  # T, V, K
ROWS = 512  # for the error
ROUNDS = 10
BASELINE = "torch: linear, cross_entropy"

Call = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
PATHS: dict[str, Call] = {
    "linear_cross_entropy": linear_cross_entropy,
    BASELINE: lambda x, weight, label: cross_entropy(x @ weight.t(), label),
    "torch: linear, float, cross_entropy": lambda x, weight, label: cross_entropy(
        (x @ weight.t()).float(), label
    ),
}


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU, or if a path's gradient is wrong."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench linear-cross-entropy needs a CUDA device")
    for case in CASES:
        torch.manual_seed(0)
        yield from _rows(*case)
        torch.cuda.empty_cache()


def _rows(rows: int, classes: int, columns: int) -> Iterator[dict[str, object]]:
    x = torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)
    weight = (torch.randn(classes, columns, device="cuda") / columns**0.5).bfloat16()
    label = torch.randint(classes, (rows,), device="cuda")
    label[::7] = -100
    x.requires_grad_()
    weight.requires_grad_()
    errors = _errors(x, weight, label)
    if errors["linear_cross_entropy"] > 2 * errors[BASELINE] + 2**-8:
        raise RuntimeError(f"bench linear-cross-entropy: the gradients differ, by {errors}")
    memory = {name: _most_bytes(call, x, weight, label) for name, call in PATHS.items()}
    steps = {name: [lambda call=call: _step(call, x, weight, label)] for name, call in PATHS.items()}
    times = interleaved(steps, ROUNDS, captured=False)
    case = f"{rows} rows, {classes} classes, {columns} wide, bfloat16"
    for name, us in times.items():
        made = row("linear-cross-entropy", case, name, us, BASELINE, times[BASELINE], errors[name])
        yield made | {"bytes": memory[name], "baseline_bytes": memory[BASELINE]}


def _step(call: Call, x: torch.Tensor, weight: torch.Tensor, label: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.autograd.grad(call(x, weight, label), (x, weight))


def _most_bytes(call: Call, x: torch.Tensor, weight: torch.Tensor, label: torch.Tensor) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    _step(call, x, weight, label)
    return torch.cuda.max_memory_allocated() - before


def _errors(x: torch.Tensor, weight: torch.Tensor, label: torch.Tensor) -> dict[str, float]:
    """Return each path's error of the weight's gradient, on the first rows and classes."""
    few = (x[:ROWS].detach().requires_grad_(), weight[:ROWS].detach().requires_grad_(), label[:ROWS] % ROWS)
    wide = tuple(each.detach().double().requires_grad_() for each in few[:2])
    want = _step(PATHS[BASELINE], *wide, few[2])[1]
    return {name: relative_error(_step(call, *few)[1], want) for name, call in PATHS.items()}
