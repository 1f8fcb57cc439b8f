"""What chapter 16 says about the reader's own operator, functions and layer."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.library import opcheck
from triton.runtime.jit import JITFunction

from puzzles_lib.stubs import has_hole

GRADIENTS = ("dx", "dw", "db")
WIDE = 76  # letters per line of what a test has found


def unsolved(*kernels: JITFunction) -> str:
    """Return which of these kernels still have their hole, as a sentence; "" if none has."""
    names = [kernel.__name__ for kernel in kernels if has_hole(kernel)]
    if not names:
        return ""
    return f"not solved yet: {' and '.join(names)}. Then run this cell again."


def examined(op: Callable, *inputs: object) -> str:
    """Return what opcheck's tests find about an operator for these inputs: each failure, and who passes."""
    found = opcheck(op, inputs, raise_exception=False)
    failing = {test: str(result).strip() for test, result in found.items() if result != "SUCCESS"}
    if not failing:
        return f"all {len(found)} tests: ok"
    lines = []
    for test, result in failing.items():
        lines.append(f"{test} FAILS:")
        lines.append(textwrap.indent(textwrap.fill(result, WIDE), "    "))
    lines.append(f"the other {len(found) - len(failing)}: ok")
    return "\n".join(lines)


def checked(function: Callable, inputs: Sequence[object]) -> str:
    """Return "True" or "False" as gradcheck says, or why it can't: a gradient is missing, or an error."""
    tensors = [each for each in inputs if isinstance(each, Tensor) and each.requires_grad]
    try:
        y = function(*inputs)
        if None in torch.autograd.grad(y, tensors, torch.ones_like(y), allow_unused=True):
            return "not solved yet: backward returns None for a gradient that is needed"
        return str(gradcheck(function, tuple(inputs), raise_exception=False))
    except Exception as error:
        return _told(error)


def gradients(kernel: JITFunction, function: type[torch.autograd.Function], inputs: Sequence[Any]) -> str:
    """Return what is wrong with the gradients of x, weight and bias, or else what gradcheck says.

    kernel: puzzle 26's. inputs: those of ``function``; the first three are x, weight and bias.
    """
    if told := unsolved(kernel):
        return told
    try:
        found = faults(_gradients(function, inputs), inputs)
    except Exception as error:
        return _told(error)
    return "; ".join(found) or f"gradcheck says {checked(function.apply, inputs)}"


def computed(kernel: JITFunction, function: type[torch.autograd.Function], inputs: Sequence[Any]) -> str:
    """Return which of dx, dw and db a backward computes, whether or not they are needed."""
    if told := unsolved(kernel):
        return told
    try:
        made = _gradients(function, inputs)
    except Exception as error:
        return _told(error)
    return str({name: each is not None for name, each in zip(GRADIENTS, made, strict=True)})


def _gradients(function: Any, inputs: Sequence[Any]) -> tuple[Tensor | None, ...]:
    y = function.apply(*inputs)
    return tuple(function.backward(y.grad_fn, torch.ones_like(y))[:3])


def faults(found: Sequence[Tensor | None], inputs: Sequence[Any]) -> list[str]:
    """Return what is wrong with the form of dx, dw and db, the gradients of the first three inputs.

    Each must be None if it isn't needed. Otherwise it must have the shape and the dtype of its input.
    """
    faulty = []
    for name, of, gradient, tensor in zip(GRADIENTS, ("x", "weight", "bias"), found, inputs[:3], strict=True):
        if gradient is None:
            faulty += [f"{name} is None, but {of} needs a gradient"] if tensor.requires_grad else []
        elif not tensor.requires_grad:
            faulty.append(f"{name} must be None: {of} needs no gradient")
        elif gradient.shape != tensor.shape:
            turned = gradient.dim() == 2 and gradient.T.shape == tensor.shape
            shapes = f"{name} is {list(gradient.shape)}, but {of} is {list(tensor.shape)}"
            faulty.append(shapes + (": it's transposed" if turned else ""))
        elif gradient.dtype != tensor.dtype:
            faulty.append(f"{name} is {_name(gradient.dtype)}, but {of} is {_name(tensor.dtype)}")
    return faulty


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def same_words(words: Tensor | None, wanted: Tensor) -> str:
    """Return whether the reader's words are the library's: True, or how they differ."""
    if words is None:
        return "not solved yet"
    if words.shape != wanted.shape:
        return f"False: yours are {list(words.shape)}, the library's {list(wanted.shape)}"
    if words.dtype == wanted.dtype:
        return str(torch.equal(words, wanted))
    same = torch.equal(words.to(wanted.dtype), wanted)
    kinds = f"yours are {_name(words.dtype)}, the library's {_name(wanted.dtype)}"
    return f"False: {kinds}" + (", otherwise the same" if same else "")


def contract(pack: Callable, inputs: Iterable[Tensor]) -> str:
    """Return whether an operator that packs x keeps the chapter's contract, in lines."""
    lines = []
    for x in inputs:
        try:
            pack(x, 3)
            told = examined(pack, x, 3)
        except Exception as error:
            told = f"FAILS. {_told(error)}"
            if x.numel() == 0:
                told = "FAILS. Return early: there are no elements to compute with"
        lines.append(f"x {list(x.shape)}, strides {x.stride()}: {told}")
    try:
        pack(torch.zeros(5, 70, dtype=torch.bfloat16), 3)
        lines.append("a bfloat16 x: FAILS. It isn't refused")
    except TypeError as error:
        lines.append(f"a bfloat16 x: ok, refused. {error}")
    return "\n".join(lines)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0]}"
