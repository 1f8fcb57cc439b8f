"""Public libraries' kernels that a measurement runs beside the course's, where they can be imported."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module

import torch
import torch.nn.functional as F


@dataclass(frozen=True)
class Peer:
    """A library's functions, a name for its rows, and how many keys its pages have by default."""

    name: str
    page: int
    paged_attention: Callable[..., torch.Tensor]  # q, k, v, lengths, table of pages
    experts: Callable[..., torch.Tensor]  # x, both matrices, weights and numbers of the experts, how many


def lmdeploy() -> Peer | None:
    """Return lmdeploy's Triton kernels for decoding, or None if it isn't installed.

    Only ``lmdeploy.pytorch.kernels.cuda`` is imported, and what that imports.
    """
    try:
        attention = import_module("lmdeploy.pytorch.kernels.cuda.pagedattention")
        experts = import_module("lmdeploy.pytorch.kernels.cuda.fused_moe")
    except ImportError:
        return None
    return Peer("lmdeploy", 64, attention.flash_attn_with_kvcache, experts.fused_moe)


def in_pages(each: torch.Tensor, table: torch.Tensor, page: int) -> torch.Tensor:
    """Return keys [B, keys, heads, D] in pages [pages, page, heads, D]. table: each text's pages, [B, W]."""
    padded = F.pad(each, (0, 0, 0, 0, 0, table.shape[1] * page - each.shape[1]))
    pages = torch.empty_like(padded.reshape(-1, page, *each.shape[2:]))
    pages[table.flatten().long()] = padded.reshape(pages.shape)
    return pages
