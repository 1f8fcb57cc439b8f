"""What chapter 11 asks of the reader's own kernel with a bug, and of the layer in three bits."""

import traceback
from collections.abc import Callable
from types import EllipsisType

import torch
from torch import Tensor
from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK
from puzzles_lib.chapters.ch11_relu_masks.questions import CODES, FARTHEST, OF_X, ONES, UNGATED, UNKNOWN
from puzzles_lib.checker import examine
from puzzles_lib.kernels.quantize import PackedTensor, dequantize, quantize_pack

TOKENS, HIDDEN, OUT = 128, 256, 64  # of the layer's x and weight
BITS, GROUP = 2, 256
SAME = 0.999  # the least cosine of two gradients that were computed in the same way


def bug_of(
    kernel: JITFunction, run: Callable[..., tuple[Tensor, ...]]
) -> tuple[set[int], bool, bool] | EllipsisType:
    """Return which cases of puzzle 17 a kernel passes, whether only its mask is wrong, and NaN's bits are 1.

    The last is asked only of a kernel that passes the rest. Returns ... if no case was run.
    run: `puzzles_lib.run`.
    """
    report = examine(kernel, RELU_PACK)
    if not report.cases:
        return ...
    passed = {case.number for case in report.cases if case.ok}
    in_mask = all("in mask" in verdict.message for verdict in report.verdicts)
    of_nan = False
    if {0, 1, 2, 3, 4} <= passed and in_mask:
        both = torch.tensor([0x7FC0, -0x0040], dtype=torch.int16).view(torch.bfloat16)  # NaN and -NaN
        _, mask = run(kernel, RELU_PACK, x=both.repeat(1, 64), BLOCK_W=4)
        of_nan = bool((mask == -1).all())
    return passed, in_mask, of_nan


def squeeze(y: Tensor) -> tuple[Tensor, Tensor]:
    """Return 2-bit words, and their parameters: scales and minima."""
    packed = quantize_pack(y, bits=BITS, group_size=GROUP)
    return packed.words, packed.params


def widen(words: Tensor, params: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return the y that `squeeze` has packed, in bfloat16. shape: that of y."""
    return dequantize(PackedTensor(words, params, BITS, GROUP, tuple(shape), torch.bfloat16))


def layer(function: type[torch.autograd.Function]) -> tuple[bool, bool, float, int, str] | EllipsisType:
    """Compare a layer with relu(x) @ weight.T, and print how many bytes it keeps and how far dweight is off.

    Returns whether z and dx are torch's, the error of dweight relative to its size, the bytes that are kept
    for backward, and the cause of a wrong gradient. Returns ... if there aren't two gradients to compare. An
    error in the layer is printed with its line.
    """
    x, weight, dz = _inputs()
    z, plain = _forward(lambda x, weight: torch.relu(x) @ weight.T, x, weight)
    z.backward(dz)
    dx, dweight = x.grad, weight.grad
    x, weight, _ = _inputs()
    phase = "forward"
    try:
        z2, kept = _forward(function.apply, x, weight)
        phase = "backward"
        z2.backward(dz)
    except Exception as error:
        _tell(error, function, phase)
        return ...
    if x.grad is None or weight.grad is None:
        return ...
    off = float((weight.grad - dweight).norm() / dweight.norm())
    print(f"torch keeps {plain} bytes, yours {kept}: 1/{plain / max(kept, 1):.1f}")
    print(f"dweight is off by {off:.2f} of its size")
    same = torch.equal(x.grad, dx)
    cause = UNKNOWN
    if not same:
        cause = _cause(x.grad, _wrong_dx(x.detach(), weight.detach(), dz))
    elif off > FARTHEST:
        cause = _cause(weight.grad, _wrong_dweight(x.detach(), dz))
    return torch.equal(z2, z), same, round(off, 2), kept, cause


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = (TOKENS, HIDDEN), (OUT, HIDDEN), (TOKENS, OUT)
    x, weight, dz = (torch.randn(size, generator=generator).bfloat16() for size in sizes)
    return x.requires_grad_(), weight.requires_grad_(), dz


def _forward(layer: Callable[[Tensor, Tensor], Tensor], x: Tensor, weight: Tensor) -> tuple[Tensor, int]:
    """Return what the layer computes, and how many bytes it keeps for backward, without the weight."""
    kept: dict[int, Tensor] = {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t), lambda t: t):
        z = layer(x, weight)
    own = getattr(z.grad_fn, "__dict__", {}).values()  # what forward has set on ctx
    kept |= {t.data_ptr(): t for t in own if isinstance(t, Tensor)}
    kept.pop(weight.data_ptr(), None)
    return z, sum(t.nbytes for t in kept.values())


def _tell(error: Exception, function: type[torch.autograd.Function], phase: str) -> None:
    """Print an error in the layer, and the lines of its method on the way there."""
    file = getattr(function, phase).__code__.co_filename
    calls = traceback.extract_tb(error.__traceback__)
    lines = [call.line for call in calls if call.filename == file and call.name == phase]
    print(f"{phase} fails: {error}", *lines, sep="\n  in: ")


def _wrong_dx(x: Tensor, weight: Tensor, dz: Tensor) -> list[tuple[str, Tensor]]:
    dy = dz @ weight
    coded = [widen(*squeeze(kept), kept.shape) for kept in (torch.relu(x), x)]
    return [(UNGATED, dy)] + [(CODES, torch.where(y > 0, dy, 0)) for y in coded]


def _wrong_dweight(x: Tensor, dz: Tensor) -> list[tuple[str, Tensor]]:
    coded = widen(*squeeze(x), x.shape)
    of_x = [(OF_X, dz.T @ y) for y in (coded, torch.where(x > 0, coded, 0))]
    return [(ONES, dz.T @ (x > 0).to(x.dtype)), *of_x]


def _cause(got: Tensor, wrong: list[tuple[str, Tensor]]) -> str:
    """Return the cause whose gradient this is, up to a factor."""

    def cosine(other: Tensor) -> float:
        return float(torch.cosine_similarity(got.float().flatten(), other.float().flatten(), 0))

    return next((cause for cause, other in wrong if cosine(other) > SAME), UNKNOWN)
