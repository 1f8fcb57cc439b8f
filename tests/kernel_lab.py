"""Kernels of one expression, for tests that compare Triton's operations with torch's."""

import itertools
from collections.abc import Mapping

import torch

from puzzles_lib.authoring.solutions import define
from puzzles_lib.compiler import front_end
from puzzles_lib.runner import Run
from tests.running import run

_numbers = itertools.count()
ONE = (1, 1, 1)


def execute(kernel, grid=ONE, outputs=("z_ptr",), **arguments) -> Run:
    """`run` with the output's usual name; grid padded to three axes, options and arguments mixed."""
    options = {n: arguments.pop(n) for n in ("reverse", "record", "quiet", "seconds") if n in arguments}
    grid = (grid,) if isinstance(grid, int) else tuple(grid)
    return run(kernel, arguments, grid + (1,) * (3 - len(grid)), outputs, **options)


def kernel_of(source: str, **names):
    """The last ``@triton.jit`` function of a piece of source; ``names`` are globals it sees."""
    kernel = define(source, f"<kernel {next(_numbers)}>")
    kernel.__globals__.update(names)
    return kernel


def evaluate(
    expression: str,
    *inputs: torch.Tensor,
    shape: tuple[int, ...],
    dtype: torch.dtype,
    setup: str = "",
    names: Mapping[str, object] | None = None,
) -> torch.Tensor:
    """The expression's value for x, y, w = inputs, loaded as blocks of their shapes; ``i`` counts x's rows.

    Asserts that a compiler takes the kernel and that the run is clean.
    """
    letters = "xyw"[: len(inputs)]
    lines = ["@triton.jit", f"def kernel({''.join(f'{n}_ptr, ' for n in letters)}z_ptr):"]
    for name, tensor in zip(letters, inputs, strict=True):
        block = f"tl.arange(0, {tensor.numel()})"
        lines.append(f"    {name} = tl.reshape(tl.load({name}_ptr + {block}), {tuple(tensor.shape)})")
    if inputs:
        lines.append(f"    i = tl.arange(0, {inputs[0].shape[0]})")
    lines += [f"    {line}" for line in setup.splitlines()]
    lines.append(f"    r = {expression}")
    z = torch.empty(shape, dtype=dtype)
    count = z.numel()
    place, value = (
        ("z_ptr", "r") if shape == () else (f"z_ptr + tl.arange(0, {count})", f"tl.reshape(r, ({count},))")
    )
    lines.append(f"    tl.store({place}, {value})")
    kernel = kernel_of("\n".join(lines) + "\n", **(names or {}))
    arguments = {f"{n}_ptr": t.clone() for n, t in zip(letters, inputs, strict=True)} | {"z_ptr": z}
    refusal = front_end(kernel, arguments)
    assert refusal is None, f"{expression}: {refusal}"
    done = execute(kernel, **arguments)
    assert done.stop is None, f"{expression}: {done.stop}"
    assert done.written["z"].all()
    return z
