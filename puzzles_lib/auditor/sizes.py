"""True sizes: each size of a call in turn, pretended so large that offsets pass 2**31.

The function is called with tensors on torch's meta device, which have shapes and no memory, so its own code
works out grid, strides and results. The launches are run at the edges of their grids (`PretendedMemory`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from puzzles_lib import compiler
from puzzles_lib.auditor.catching import caught, plain
from puzzles_lib.auditor.cuda import pretended
from puzzles_lib.auditor.guard import Guard
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.auditor.reference import flat
from puzzles_lib.auditor.running import Outcome
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.true_size import CROSSING, edges
from puzzles_lib.puzzle import MOST_PROGRAMS
from puzzles_lib.runner import Pretended, alone, run

LARGEST_AXIS = 1 << 34
SECONDS = 3.0  # of CPU time, for each launch


class Sized:
    """One way to pretend: a size that becomes another wherever a tensor of the call has it."""

    def __init__(self, size: int, large: int):
        self.size, self.large = size, large

    def __str__(self) -> str:
        return f"{self.size} as {self.large:,}"

    def tensor(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a tensor without memory, with that size instead of the other."""
        shape = [self.large if n == self.size else n for n in tensor.shape]
        if not tensor.is_contiguous() and tensor.dim() and shape == list(tensor.shape):
            return torch.empty_strided(shape, tensor.stride(), dtype=tensor.dtype, device="meta")
        order = sorted(range(tensor.dim()), key=lambda axis: -tensor.stride(axis))
        made = torch.empty([shape[axis] for axis in order], dtype=tensor.dtype, device="meta")
        return made.permute([order.index(axis) for axis in range(tensor.dim())])


def ways(args: Any) -> list[Sized]:
    """Return each size above 1 that the tensors of a call have, with one that makes offsets pass 2**31.

    A size that several tensors have is one: the others would no longer fit.
    """
    tensors = flat(args)
    found = []
    for size in dict.fromkeys(n for t in tensors for n in t.shape if n > 1):
        others = [math.prod(n for n in t.shape if n != size) for t in tensors if size in t.shape]
        times = [list(t.shape).count(size) for t in tensors if size in t.shape]
        rest, power = max(zip(others, times, strict=True))
        large = math.isqrt(CROSSING // max(rest, 1)) if power > 1 else CROSSING // max(rest, 1)
        large = -(-(large + large // 16 + 1) // 16) * 16 + size % 16
        if size < large <= LARGEST_AXIS:
            found.append(Sized(size, large))
    return found


def tried(
    function: Callable, args: Sequence[Any], kwargs: Mapping[str, Any], way: Sized, guard: Guard
) -> tuple[list[Outcome], str]:
    """Call a function with a size pretended; return what its launches did, and why it was not judged."""
    outcomes: list[Outcome] = []
    errors: list[str] = []

    def on_launch(launch: Launch) -> bool:
        outcomes.append(alone(lambda: _run(launch, guard)))
        return True

    def convert(leaf: Any) -> Any:
        return way.tensor(leaf) if isinstance(leaf, torch.Tensor) else leaf

    with plain():
        given, named = pytree.tree_map(convert, (tuple(args), dict(kwargs)))
    try:
        with (
            pretended("meta"),
            caught(on_launch, lambda kernel, error: errors.append(f"{kernel}: {error}"), False),
            torch.no_grad(),
        ):
            function(*given, **named)
    except Exception as error:
        words = " ".join(f"{type(error).__name__}: {error}".split())[:120]
        errors.append(f"the function does not run without values ({words})")
    return outcomes, "; ".join(errors)


def _run(launch: Launch, guard: Guard) -> Outcome:
    """Run the programs at the edges of a grid on tensors that are not there."""
    outcome = Outcome(launch, of=math.prod(launch.full_grid))
    for axis, (count, most) in enumerate(zip(launch.full_grid, MOST_PROGRAMS, strict=True)):
        if count > most:
            text = f"the grid has {count:,} programs along axis {axis}, but a GPU launches at most {most:,}"
            outcome.verdict = Verdict("true size", text)
            return outcome
    if not outcome.of:
        return outcome
    opinion = compiler.closed_after(compiler.Opinions(launch.kernel, [], [launch.arguments]), _first)
    if opinion is None or opinion.refusal:
        why = opinion.refusal.message if opinion and opinion.refusal else "the compiler gave no answer"
        outcome.unjudged = f"{launch.name} does not compile at this size: {why}"
        return outcome
    code = compiler.program_of(launch.kernel, launch.arguments, opinion)
    tensors = {}
    for name, tensor in launch.tensors.items():
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True))
        tensors[name] = Pretended((span if tensor.numel() else 0,), tensor.dtype)
    programs = edges(launch.full_grid, [each.numel() for each in tensors.values()])
    ran = run(
        code,
        launch.with_tensors(tensors),
        launch.full_grid,
        set(tensors),
        zeroed=set(tensors),
        suffix="",
        seconds=SECONDS,
        quiet=True,
        only=programs,
    )
    outcome.programs = ran.programs
    if ran.stop and ran.stop.kind in ("time limit", "memory limit", "error", "deadlock"):
        outcome.unjudged = f"{launch.name}: {ran.stop.message}"
    elif ran.stop:
        message = verdicts.on_the_grid(ran.stop.message, launch.axes)
        outcome.verdict = Verdict(ran.stop.kind, message, ran.stop.site, ran.stop.advice)
    elif ran.undefined and guard.undefined:
        outcome.verdict = verdicts.uninitialised(ran.undefined)
    return outcome


def _first(opinions: compiler.Opinions) -> compiler.Opinion | None:
    return opinions[0]
