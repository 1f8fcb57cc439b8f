"""A kernel's parameters, by name, from a case of a puzzle; or why they cannot be had."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from triton.runtime.jit import JITFunction, KernelInterface
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.compiler import interpret_was_on
from puzzles_lib.compiler.vetting import vet
from puzzles_lib.interpreter import as_jit
from puzzles_lib.puzzle import Argument, Case, Puzzle, Tiled
from puzzles_lib.source import Refusal


@dataclass(frozen=True)
class Bound:
    """A kernel with a value for each of its parameters, by name, for one case of a puzzle.

    arguments: numbers as they are; pointers and descriptors of empty stand-ins of the right dtype.
    """

    kernel: JITFunction
    puzzle: Puzzle
    case: Case
    arguments: Mapping[str, object]

    def at(self, case: Case) -> "Bound":
        """The same kernel bound to another case."""
        return Bound(self.kernel, self.puzzle, case, stand_ins(self.kernel, self.puzzle, case))

    def filled(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, object]:
        """The arguments with these tensors, named as the puzzle names them, in their stand-ins' places."""
        arguments = dict(self.arguments)
        for name, tensor in tensors.items():
            if f"{name}_ptr" in arguments:
                arguments[f"{name}_ptr"] = tensor
            if isinstance(descriptor := arguments.get(f"{name}_desc"), TensorDescriptor):
                arguments[f"{name}_desc"] = dataclasses.replace(descriptor, base=tensor)
        return arguments


def bind(kernel: object, puzzle: Puzzle, case: Case) -> Bound | Refusal:
    """Bind what should be a ``@triton.jit`` kernel to a case, once it has been vetted."""
    if interpret_was_on():
        text = "TRITON_INTERPRET was set when Triton was imported: unset it and restart the notebook's kernel"
        return _signature(text, "the course interprets kernels by itself")
    function = as_jit(kernel)
    if function is None:
        return _no_kernel(kernel)
    refusal = _unfit(function, puzzle) or vet(function)
    return refusal or Bound(function, puzzle, case, stand_ins(function, puzzle, case))


def stand_ins(kernel: JITFunction, puzzle: Puzzle, case: Case) -> dict[str, object]:
    """A value for each of the kernel's parameters, all of which the puzzle offers or have a default."""
    offers = puzzle.offers(case)
    values = {}
    for parameter in kernel.params:
        value = offers[parameter.name] if parameter.name in offers else parameter.default
        if isinstance(value, Argument):
            value = torch.empty(0, dtype=value.dtype)
        elif isinstance(value, Tiled):
            value = value.descriptor(case.numbers, torch.empty(0, dtype=value.argument.dtype))
        values[parameter.name] = value
    return values


def _no_kernel(kernel: object) -> Refusal:
    """Why this object is no kernel."""
    name = getattr(kernel, "__name__", type(kernel).__name__)
    if isinstance(kernel, KernelInterface):
        return _signature(
            f"{type(kernel).__name__} wraps the kernel: hand over the @triton.jit function itself"
        )
    if callable(kernel):
        return _signature(f"{name} is a Python function: put @triton.jit on the line above its def")
    return _signature(f"check(kernel, puzzle): kernel is {kernel!r:.60}, allowed is a @triton.jit function")


def _unfit(kernel: JITFunction, puzzle: Puzzle) -> Refusal | None:
    """Which parameter of the kernel the puzzle cannot fill."""
    offers = puzzle.offers(puzzle.cases[0])
    for parameter in kernel.params:
        offered = offers.get(parameter.name)
        if parameter.is_constexpr and isinstance(offered, Argument | Tiled):
            what = "pointer" if isinstance(offered, Argument) else "descriptor"
            return _signature(f"{parameter.name} is a {what}, it cannot be a tl.constexpr")
        if parameter.name not in offers and not parameter.has_default:
            names = ", ".join(n for n in offers if not n.startswith("stride_"))
            return _signature(
                f"the kernel takes {parameter.name!r}, which {puzzle.name} does not offer",
                f"it offers {names}, and strides (stride_x0)",
            )
    return None


def _signature(message: str, advice: str = "") -> Refusal:
    return Refusal(message, advice=advice, kind="signature")
