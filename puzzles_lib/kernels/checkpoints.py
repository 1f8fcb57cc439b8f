"""Gradient checkpointing that keeps the inputs of its blocks in a few bits.

Checkpointing keeps only a block's input and runs the block again in the backward pass. With many blocks or
long texts, these inputs need most of the remaining memory. Here they are kept in 8 bits by default, half of
bfloat16's bytes, or in 4, a quarter:

    y = packed_checkpoint(block, x)          # instead of torch.utils.checkpoint.checkpoint
    pack_checkpoints(model)                  # a transformers model, after gradient_checkpointing_enable()

The forward pass is exact. All gradients of a block are computed from the input that its codes stand for.
Errors don't accumulate from block to block, because each block runs again from its own input. In a mixture
of experts, tokens between two experts may take another one in that second run, so keep 8 bits there.

With `pack_activations` a block keeps more than its input, and need not run again. Use that if time matters
more, and checkpoints if memory does, or both together in one model.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from puzzles_lib.kernels.bitpack import check_bits
from puzzles_lib.kernels.common import DTYPES, check_model
from puzzles_lib.kernels.quantize import PackedTensor, check_group_size, dequantize, quantize_pack

LEAST = 1024  # elements: smaller inputs stay as they are


def packed_checkpoint(
    function: Callable[..., Any], *inputs: Any, bits: int = 8, group_size: int = 256, **options: Any
) -> Any:
    """Call a function under gradient checkpointing, with its inputs kept in ``bits`` bits for backward.

    Inputs that have a gradient are packed if they are float32, float16 or bfloat16, with at least 1024
    elements. Parameters, masks and other inputs are kept as they are, because other blocks keep them, too.

    function: a function or a module, such as a block of a model. inputs: its arguments.
    bits: 1, 2, 4 or 8. group_size: how many adjacent elements of a row share a scale and a minimum.
    options: those of `torch.utils.checkpoint.checkpoint`; ``use_reentrant`` is False by default.

    Returns what ``function`` returns. Raises ValueError for any other ``bits`` or ``group_size``, and
    TypeError if ``function`` can't be called.
    """
    if not callable(function):
        raise TypeError(f"function must be a function or a module, but is {type(function).__name__}")
    check_bits(bits)
    check_group_size(group_size)

    def pack(tensor: torch.Tensor) -> torch.Tensor | PackedTensor:
        wanted = tensor.requires_grad and not tensor.is_leaf and tensor.numel() >= LEAST
        if not wanted or tensor.dtype not in DTYPES:
            return tensor
        return quantize_pack(tensor.detach(), bits, group_size)

    with saved_tensors_hooks(pack, _unpack):
        return checkpoint(function, *inputs, **{"use_reentrant": False, **options})


def _unpack(kept: torch.Tensor | PackedTensor) -> torch.Tensor:
    return dequantize(kept) if isinstance(kept, PackedTensor) else kept


def pack_checkpoints(model: nn.Module, bits: int = 8, group_size: int = 256) -> nn.Module:
    """Let a transformers model keep the inputs of its checkpointed blocks in few bits, and return the model.

    Call ``model.gradient_checkpointing_enable()`` first (or ``activation_checkpointing_enable``, its newer
    name). You can call `pack_checkpoints` again to set other bits.

    model: the model, which is changed in place. bits: 1, 2, 4 or 8. group_size: how many adjacent elements of
        a row share a scale and a minimum.

    Raises ValueError for any other ``bits`` or ``group_size``, or if no block of the model is checkpointed.
    Raises TypeError if ``model`` is not a module.
    """
    check_model(model)
    check_bits(bits)
    check_group_size(group_size)
    blocks = [each for each in model.modules() if callable(vars(each).get(HELD))]
    if not blocks:
        raise ValueError(
            "no block of model is checkpointed: call model.gradient_checkpointing_enable() first"
        )
    for block in blocks:
        held = getattr(block, HELD)
        plain = held.plain if isinstance(held, _Checkpoint) else held
        setattr(block, HELD, _Checkpoint(plain, bits, group_size))
    return model


HELD = "_gradient_checkpointing_func"  # under which transformers' blocks hold what checkpoints them


class _Checkpoint:
    """In the place of a block's checkpoint function, whose options it goes on with."""

    def __init__(self, plain: Callable[..., Any], bits: int, group_size: int) -> None:
        self.plain, self.bits, self.group_size = plain, bits, group_size

    def __call__(self, function: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        options = {**getattr(self.plain, "keywords", {}), **options}
        return packed_checkpoint(function, *inputs, bits=self.bits, group_size=self.group_size, **options)
