"""Public libraries' kernels that a measurement runs beside the course's, where they can be imported."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch


@dataclass(frozen=True)
class Peer:
    """A library's functions, and a name for its rows."""

    name: str
    paged_attention: Callable[..., torch.Tensor]  # q, k, v, lengths, table of pages
    experts: Callable[..., torch.Tensor]  # x, both matrices, weights and numbers of the experts, how many


def lmdeploy() -> Peer | None:
    """Return lmdeploy's Triton kernels for decoding, or None where it isn't installed.

    Only ``lmdeploy.pytorch.kernels.cuda`` is imported, and what that imports.
    """
    try:
        attention = import_module("lmdeploy.pytorch.kernels.cuda.pagedattention")
        experts = import_module("lmdeploy.pytorch.kernels.cuda.fused_moe")
    except ImportError:
        return None
    return Peer("lmdeploy", attention.flash_attn_with_kvcache, experts.fused_moe)
