"""Compare attention over a paged cache with a copy and with torch's attention over a contiguous cache.

Keys and values are nearly all that this step reads. So the baseline is a copy that moves as many bytes: it
reads half of them and writes half. A chip reads somewhat faster than it copies. torch's attention has its
keys in one piece, which spares it the table, and takes texts of one length. Where lmdeploy can be imported,
its Triton kernel runs, too, with pages of 16 keys and with its default of 64. Errors are relative, against
float64, on the first text.
"""

import functools
from collections.abc import Callable, Iterator

import torch
from torch.nn.functional import scaled_dot_product_attention

from puzzles_lib.bench.peers import in_pages, lmdeploy
from puzzles_lib.kernels.paged_decode import paged_attention
from puzzles_lib.timing import interleaved, relative_error, row
from puzzles_lib.timing.h200 import CACHE

CASES = (  # texts, heads of q, heads of keys, keys per text
    (1, 32, 8, 4096),
    (1, 32, 8, 131072),
    (16, 32, 8, 4096),
    (64, 32, 8, 4096),
    (64, 32, 8, 1000),
    (64, 32, 32, 4096),
)
PAGE, D = 16, 128
BASELINE = "copy of as many bytes"


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU, or if the results differ."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench paged-decode needs a CUDA device")
    for case in CASES:
        torch.manual_seed(0)
        yield from _rows(*case)
        torch.cuda.empty_cache()


def _rows(texts: int, heads: int, groups: int, keys: int) -> Iterator[dict[str, object]]:
    width = -(-keys // PAGE)
    options = {"device": "cuda", "dtype": torch.bfloat16}
    nbytes = 2 * texts * keys * groups * D * 2
    sets = []
    for _ in range(max(3, -(-5 * CACHE // (2 * nbytes)))):  # so that no run finds its keys in the cache
        k, v = (torch.randn(texts * width, PAGE, groups, D, **options) for _ in "kv")
        table = torch.randperm(texts * width, device="cuda").view(texts, width).int()
        length = torch.full((texts,), keys, dtype=torch.int32, device="cuda")
        sets.append((torch.randn(texts, heads, D, **options), k, v, table, length))
    whole = [
        tuple(each[table.long()].flatten(1, 2)[:, :keys].transpose(1, 2) for each in (k, v))
        for _, k, v, table, _ in sets
    ]
    sources = [_floats(some, nbytes // 8) for some in sets]
    copy = torch.empty_like(sources[0])
    paths: dict[str, list[Callable[[], torch.Tensor]]] = {
        "paged_attention": [lambda some=some: paged_attention(*some) for some in sets],
        "torch, keys in one piece": [
            lambda q=some[0], kv=kv: scaled_dot_product_attention(q[:, :, None], *kv, enable_gqa=True)
            for some, kv in zip(sets, whole, strict=True)
        ],
        # This is an elementwise kernel, because Tensor.copy_ is slower within a CUDA graph.
        BASELINE: [lambda s=s: torch.mul(s, 1.0, out=copy) for s in sources],
    }
    peer = lmdeploy()
    for page in (PAGE, peer.page) if peer else ():
        calls = []
        for (q, _, _, _, length), kv in zip(sets, whole, strict=True):
            table = torch.randperm(texts * -(-keys // page), device="cuda").view(texts, -1).int()
            k, v = (in_pages(each.transpose(1, 2), table, page) for each in kv)
            calls.append(functools.partial(peer.paged_attention, q, k, v, length, table))
        paths[f"{peer.name}, pages of {page}"] = calls
    errors = {BASELINE: 0.0}
    of_k, of_v = (each[:1].double() for each in whole[0])
    want = scaled_dot_product_attention(sets[0][0][:1, :, None].double(), of_k, of_v, enable_gqa=True)
    for name in paths.keys() - {BASELINE}:
        errors[name] = relative_error(paths[name][0]()[:1].view(-1), want.view(-1))
    if errors["paged_attention"] > 2 * errors["torch, keys in one piece"] + 2**-8:
        raise RuntimeError(f"bench paged-decode: the results differ from float64's, by {errors}")
    times = interleaved(paths)
    case = f"{texts} x {keys} keys, {heads} heads, {groups} of keys, {D} wide, pages of {PAGE}"
    for name, us in times.items():
        yield row("paged-decode", case, name, us, BASELINE, times[BASELINE], errors[name])


def _floats(some: tuple[torch.Tensor, ...], count: int) -> torch.Tensor:
    """Return ``count`` float32 numbers from the bytes of a set's keys."""
    return some[1].view(-1).view(torch.float32)[:count]
