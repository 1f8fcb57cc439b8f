"""Measure how fast a language model of real size writes: with the course's kernels, and with torch's.

The model has the sizes of Mixtral 8x7B and random weights in bfloat16: 32 layers, 4096 wide, 32 heads that
share 8 heads of keys, 8 experts of which each token takes 2. Each text has 4,096 keys in its cache, in pages
of 16. A step writes one token for each text: the likeliest one.

A few layers are measured and the rest is scaled: all layers are equal, so a step's time is that of 2 layers
and 30 times an eighth of what 8 more add. ``us`` is this time. The paths:

- "kernels": the production kernels `rope`, `paged_attention` and `grouped_matmul`; chapter 17's RMSNorm and
  chapter 22's routing as its reader writes them; two small kernels here. cuBLAS multiplies by weights that
  aren't experts'.
- "torch": torch's norm, attention over a contiguous cache, top-k, sort, and grouped product.
- "torch, compiled": the same after torch.compile.
- "lmdeploy", where it can be imported: its Triton kernels for attention and experts, with pages of 64 keys,
  its default, and otherwise the course's path.
- "floor": the bytes of the weights and keys that a step reads, at the rate of a kernel in the same run that
  only reads.

Each runs as a replayed CUDA graph, and all but the compiled one also launch by launch ("eager"). Paths take
turns, so all meet an equally warm chip. The error compares the logits after 2 layers with torch's in float32:
the median over the texts, as a text whose token meets two nearly equal experts may take another one.

`live` is a short form for a notebook, on the reader's GPU: "kernels", "torch" and "floor" as graphs, with as
many layers as fit, beside the record.
"""

import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
import triton
import triton.language as tl

from puzzles_lib.bench.peers import Peer, in_pages, lmdeploy
from puzzles_lib.chapters.ch17_normalisation.puzzles import RMS_NORM
from puzzles_lib.chapters.ch22_language_model.puzzles import ROUTE
from puzzles_lib.drawing.layout import plural
from puzzles_lib.kernels.grouped_matmul import grouped_matmul
from puzzles_lib.kernels.paged_decode import paged_attention
from puzzles_lib.kernels.rope import rope
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.reported import right_source
from puzzles_lib.source import define
from puzzles_lib.timing import interleaved, recorded, row

LAYERS, MEASURED = 32, (2, 10)  # of the model, and of what is measured
WIDTH, HEADS, KV_HEADS, HEAD, HIDDEN, EXPERTS, WORDS = 4096, 32, 8, 128, 14336, 8, 32000
KEYS, PAGE, EPSILON = 4096, 16, 1e-6
BATCHES = (1, 16)
ROUNDS = 20
BASELINE, OURS, FLOOR = "torch, CUDA graph", "kernels, CUDA graph", "floor"
SHORT = (MEASURED, (2, 6), (2, 4), (1, 2))  # layers to measure, by how much memory is free

Weights = dict[str, torch.Tensor]
Step = Callable[[list[dict[str, torch.Tensor]]], torch.Tensor]
Pair = tuple[torch.Tensor, torch.Tensor]
Row = dict[str, Any]


def measure() -> Iterator[Row]:
    """Yield all rows. Raise RuntimeError without a GPU, or if the logits differ from torch's in float32."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench decoding needs a CUDA device")
    yield from _measured(MEASURED, short=False)


def live() -> str:
    """Measure the short form on this GPU, and return its table. It takes seconds on an H200.

    If that fails, return why.
    """
    name, free = torch.cuda.get_device_name(), torch.cuda.mem_get_info()[0]
    measured = next((each for each in SHORT if _bytes_needed(max(each)) <= free), None)
    if measured is None:
        least = _bytes_needed(max(SHORT[-1]))
        return f"not timed on this {name}: it has {free / 1e9:.0f} GB free, and needs {least / 1e9:.0f} GB"
    try:
        return beside_the_record(list(_measured(measured, short=True)), name, measured)
    except Exception as error:  # an older GPU, or one with less shared memory, or wrong results
        return f"not timed on this {name}: {' '.join(str(error).split()):.200}"
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def beside_the_record(rows: Sequence[Row], name: str, measured: tuple[int, int]) -> str:
    """Return tokens per second, those of the record, and both in percent of torch's, as text."""
    shown = {BASELINE: "torch", OURS: "the course's kernels", FLOOR: "reading the bytes alone"}
    of_record = {(each["case"], each["path"]): each for each in recorded.rows("decoding")}
    here, there = f"this {name}  ", f"recorded on one {recorded.load()['device']}"
    width = max(28, len(here))
    lines = [f"{'tokens per second':34}{here:{width}}{there}"]
    for each in sorted(rows, key=lambda each: (int(_batch(each)), list(shown).index(each["path"]))):
        path = f"{plural(int(_batch(each)), 'text'):10}{shown[each['path']]:24}"
        lines.append(f"{path}{_rate(each):{width}}{_rate(of_record[each['case'], each['path']])}")
    few, more = measured
    lines.append(f"({few} and {more} layers were timed, replayed as CUDA graphs, and scaled up to {LAYERS}.)")
    return "\n".join(lines)


def _batch(each: Row) -> str:
    return each["case"].split(",")[0].removeprefix("batch ")


def _rate(each: Row) -> str:
    """Return tokens per second, and in percent of torch's."""
    rate = f"{1e6 * int(_batch(each)) / each['us']:4.0f}"
    return rate if each["path"] == BASELINE else f"{rate}, {each['ratio']:.0%} of torch"


def _bytes_needed(layers: int) -> int:
    """Return about how much memory a measurement of so many layers takes, with all of its texts."""
    weights = EXPERTS * 3 * HIDDEN * WIDTH + (2 * HEADS + 2 * KV_HEADS) * HEAD * WIDTH
    caches = 2 * 2 * max(BATCHES) * KEYS * KV_HEADS * HEAD  # keys and values, in pages and whole
    return 2 * layers * (weights + caches) + (7 << 30)  # measured: 6 GiB more, most of it only to be read


def _measured(measured: tuple[int, int], short: bool) -> Iterator[Row]:
    torch.manual_seed(0)
    layers = [_layer() for _ in range(max(measured))]
    ends = {"embedding": _normal(WORDS, WIDTH), "norm": torch.ones(WIDTH, device="cuda")}
    ends["head"] = _normal(WORDS, WIDTH)
    bandwidth = _read_bandwidth()
    with torch.inference_mode():
        for batch in BATCHES:
            yield from _rows(batch, layers, ends, bandwidth, measured, short)
            torch.cuda.empty_cache()


def _course_kernel(puzzle: Puzzle) -> Any:
    """Return a puzzle's correct kernel. Raise RuntimeError if this copy of the course hasn't got it."""
    if not (source := right_source(puzzle)):
        raise RuntimeError("this copy of the course doesn't have the correct kernels")
    return define(source, f"<the course's {puzzle.name}>")


def _normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16).mul_(shape[-1] ** -0.5)


def _layer() -> Weights:
    inside = HEADS * HEAD
    return {
        "attention_norm": torch.ones(WIDTH, device="cuda"),
        "experts_norm": torch.ones(WIDTH, device="cuda"),
        "norms": torch.ones(
            2, WIDTH, device="cuda", dtype=torch.bfloat16
        ),  # the same, as torch's path has it
        "qkv": _normal(inside + 2 * KV_HEADS * HEAD, WIDTH),
        "out": _normal(WIDTH, inside),
        "router": _normal(EXPERTS, WIDTH),
        "up": _normal(EXPERTS, 2 * HIDDEN, WIDTH),
        "down": _normal(EXPERTS, WIDTH, HIDDEN),
    }


@triton.jit
def _read_kernel(x_ptr, sums_ptr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """Sum the elements of each block, so that all of them are read."""
    program = tl.program_id(0).to(tl.int64)
    x = tl.load(x_ptr + program * BLOCK + tl.arange(0, BLOCK))
    tl.store(sums_ptr + program, tl.sum(x))


def _read_bandwidth() -> float:
    """Return the bytes per microsecond of a kernel that reads a large tensor and stores next to nothing."""
    block = 8192
    sources = [torch.randn(2**28, device="cuda") for _ in range(2)]
    programs = sources[0].numel() // block
    sums = torch.empty(programs, device="cuda")
    calls = [lambda x=x: _read_kernel[(programs,)](x, sums, BLOCK=block, num_warps=8) for x in sources]
    return sources[0].nbytes / interleaved({"read": calls}, ROUNDS)["read"]


@dataclass
class State:
    """The state of the texts: the newest tokens, caches per layer, pages, positions and angles."""

    token: torch.Tensor  # [B]
    pages: list[Pair]  # k, v [pages, keys of a page, KV_HEADS, HEAD]
    whole: list[Pair]  # the same keys, [B, KV_HEADS, KEYS, HEAD]
    table: torch.Tensor  # int32 [B, pages of a text]
    length: torch.Tensor  # int32 [B]
    position: torch.Tensor  # int32 [B]
    cos: torch.Tensor  # [KEYS, HEAD / 2]
    sin: torch.Tensor


def _state(batch: int, layers: int) -> State:
    width = KEYS // PAGE
    table = torch.randperm(batch * width, device="cuda").view(batch, width)
    pages, whole = [], []
    for _ in range(layers):
        k, v = (_normal(batch * width, PAGE, KV_HEADS, HEAD).mul_(HEAD**0.5) for _ in "kv")
        pages.append((k, v))
        of_k, of_v = (each[table].flatten(1, 2).transpose(1, 2).contiguous() for each in (k, v))
        whole.append((of_k, of_v))
    speed = 10_000.0 ** (-torch.arange(0, HEAD, 2, device="cuda", dtype=torch.float64) / HEAD)
    angle = torch.arange(KEYS, device="cuda")[:, None] * speed
    full = torch.full((batch,), KEYS, device="cuda", dtype=torch.int32)
    token = torch.randint(WORDS, (batch,), device="cuda")
    return State(token, pages, whole, table.int(), full, full - 1, angle.cos().float(), angle.sin().float())


def _repaged(s: State, page: int) -> State:
    """Return the same texts with other pages."""
    table = torch.randperm(s.table.numel() * PAGE // page, device="cuda").view(len(s.table), -1)
    pages = [
        (in_pages(k.transpose(1, 2), table, page), in_pages(v.transpose(1, 2), table, page))
        for k, v in s.whole
    ]
    return replace(s, pages=pages, table=table.int())


# ---- with the course's kernels


@triton.jit
def _swiglu_kernel(h_ptr, z_ptr, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """z [P, N] = silu(the first N columns of h) times the others."""
    p = tl.program_id(0).to(tl.int64)
    n = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    gate = tl.load(h_ptr + p * 2 * N + n, mask=n < N, other=0.0).to(tl.float32)
    up = tl.load(h_ptr + p * 2 * N + N + n, mask=n < N, other=0.0).to(tl.float32)
    tl.store(z_ptr + p * N + n, gate / (1 + tl.exp(-gate)) * up, mask=n < N)


@triton.jit
def _combine_kernel(z_ptr, order_ptr, weight_ptr, y_ptr, P, C, ROWS: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    """y[t] = the sum of both experts' rows of z for token t, each times its weight."""
    t = tl.program_id(0)
    p, c = tl.arange(0, ROWS), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    order = tl.load(order_ptr + p, mask=p < P, other=-2)
    y = tl.zeros([BLOCK], tl.float32)
    for choice in tl.static_range(2):
        place = tl.sum(tl.where(order == 2 * t + choice, p, 0), 0)
        z = tl.load(z_ptr + place.to(tl.int64) * C + c, mask=c < C, other=0.0)
        y += tl.load(weight_ptr + place) * z.to(tl.float32)
    tl.store(y_ptr + t.to(tl.int64) * C + c, y, mask=c < C)


class Kernels:
    """A step with the course's kernels. Buffers are made anew in every step, as torch's path has it."""

    def __init__(self) -> None:
        self.norm_kernel, self.route_kernel = _course_kernel(RMS_NORM), _course_kernel(ROUTE)

    def step(self, layers: list[Weights], ends: Weights, s: State) -> torch.Tensor:
        """Return the logits [B, WORDS]."""
        x = ends["embedding"][s.token]
        h = torch.zeros_like(x)
        size = s.pages[0][0].shape[1]
        page = s.table.gather(1, (s.position // size).long()[:, None])[:, 0]
        at = page.long(), (s.position % size).long()
        for number, w in enumerate(layers):
            y, h = self._norm(x, h, w["attention_norm"])
            x = self._attention(y, w, s, s.pages[number], at)
            y, h = self._norm(x, h, w["experts_norm"])
            x = self._experts(y, w)
        y, _ = self._norm(x, h, ends["norm"])
        return F.linear(y, ends["head"])

    def _norm(self, x: torch.Tensor, h: torch.Tensor, w: torch.Tensor) -> Pair:
        y, added = torch.empty_like(x), torch.empty_like(x)
        self.norm_kernel[(len(x),)](x, h, w, y, added, WIDTH, BLOCK_N=WIDTH, num_warps=8)
        return y, added

    def _attention(self, y: torch.Tensor, w: Weights, s: State, kv: Pair, at: Pair) -> torch.Tensor:
        heads = F.linear(y, w["qkv"]).view(len(y), -1, HEAD)
        k, v = kv
        q = rope(heads[:, :HEADS], s.cos, s.sin, s.position)
        k[at] = rope(heads[:, HEADS : HEADS + KV_HEADS], s.cos, s.sin, s.position)
        v[at] = heads[:, HEADS + KV_HEADS :]
        return F.linear(self._attend(q, kv, s).view(len(y), -1), w["out"])

    def _attend(self, q: torch.Tensor, kv: Pair, s: State) -> torch.Tensor:
        return paged_attention(q, *kv, s.table, s.length)

    def _experts(self, y: torch.Tensor, w: Weights) -> torch.Tensor:
        tokens, pairs = len(y), 2 * len(y)
        order, start = (y.new_empty(n, dtype=torch.int32) for n in (pairs, EXPERTS + 1))
        weight = y.new_empty(pairs, dtype=torch.float32)
        logits = F.linear(y, w["router"]).float()
        self.route_kernel[(EXPERTS,)](
            logits, order, weight, start, tokens, EXPERTS, BLOCK_T=16, BLOCK_E=EXPERTS
        )
        inside = grouped_matmul(y[order // 2], w["up"].mT, start)
        z, mixed = y.new_empty(pairs, HIDDEN), torch.empty_like(y)
        _swiglu_kernel[(pairs, triton.cdiv(HIDDEN, 1024))](inside, z, N=HIDDEN, BLOCK=1024)
        z = grouped_matmul(z, w["down"].mT, start)
        _combine_kernel[(tokens, triton.cdiv(WIDTH, 512))](
            z, order, weight, mixed, pairs, WIDTH, ROWS=triton.next_power_of_2(pairs), BLOCK=512
        )
        return mixed


class WithPeer(Kernels):
    """A step in which a library's kernels compute attention and the experts."""

    def __init__(self, peer: Peer) -> None:
        super().__init__()
        self.peer = peer

    def _attend(self, q: torch.Tensor, kv: Pair, s: State) -> torch.Tensor:
        return self.peer.paged_attention(q, *kv, s.length, s.table)

    def _experts(self, y: torch.Tensor, w: Weights) -> torch.Tensor:
        best, chosen = F.linear(y, w["router"]).float().topk(2, dim=1)
        return self.peer.experts(y, w["up"], w["down"], best.softmax(1), chosen, 2)


# ---- with torch


def torch_step(layers: list[Weights], ends: Weights, s: State) -> torch.Tensor:
    """Return the logits [B, WORDS] by torch, in the dtype of the weights."""
    x = ends["embedding"][s.token]
    at = torch.arange(len(x), device=x.device), slice(None), s.position.long()
    for number, w in enumerate(layers):
        y = F.rms_norm(x, (WIDTH,), w["norms"][0], EPSILON)
        x = x + _torch_attention(y, w, s, s.whole[number], at)
        x = x + _torch_experts(F.rms_norm(x, (WIDTH,), w["norms"][1], EPSILON), w)
    return F.linear(F.rms_norm(x, (WIDTH,), ends["norm"].to(x.dtype), EPSILON), ends["head"])


def _torch_attention(y: torch.Tensor, w: Weights, s: State, kv: Pair, at: tuple[Any, ...]) -> torch.Tensor:
    heads = F.linear(y, w["qkv"]).view(len(y), -1, HEAD)
    c, sn = s.cos[s.position.long()][:, None], s.sin[s.position.long()][:, None]
    a, b = heads[:, : HEADS + KV_HEADS].float().chunk(2, dim=-1)
    turned = torch.cat((a * c - b * sn, b * c + a * sn), dim=-1).to(y.dtype)
    k, v = kv
    k[at], v[at] = turned[:, HEADS:], heads[:, HEADS + KV_HEADS :]
    o = F.scaled_dot_product_attention(turned[:, :HEADS, None], k, v, enable_gqa=True)
    return F.linear(o.view(len(y), -1), w["out"])


def _torch_experts(y: torch.Tensor, w: Weights) -> torch.Tensor:
    best, chosen = F.linear(y, w["router"]).float().topk(2, dim=1)
    order = chosen.flatten().argsort(stable=True)
    each = torch.arange(EXPERTS, device=y.device)
    ends = (chosen.flatten()[:, None] == each).sum(0).cumsum(0).int()
    token = order // 2
    gate, up = _torch_grouped(y[token], w["up"], ends).chunk(2, dim=1)
    z = _torch_grouped(F.silu(gate) * up, w["down"], ends)
    return torch.zeros_like(y).index_add(0, token, (z * best.softmax(1).flatten()[order, None]).to(y.dtype))


def _torch_grouped(x: torch.Tensor, w: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    if x.dtype == torch.bfloat16:
        return torch._grouped_mm(x, w.mT, offs=ends)
    expert = torch.searchsorted(ends, torch.arange(len(x), device=x.device), right=True)
    return torch.stack([w[int(e)].to(x.dtype) @ row_ for e, row_ in zip(expert, x, strict=True)])


# ---- measuring


def _bytes_read(layers: int, batch: int, weights: list[Weights], chosen: int) -> int:
    """Return the bytes of weights and keys that a step reads. chosen: experts that any token takes."""
    w = weights[0]
    experts = (w["up"][0].nbytes + w["down"][0].nbytes) * chosen
    attention = w["qkv"].nbytes + w["out"].nbytes + 2 * batch * KEYS * KV_HEADS * HEAD * 2
    return layers * (experts + attention) + WORDS * WIDTH * 2


def _rows(
    batch: int, layers: list[Weights], ends: Weights, bandwidth: float, measured: tuple[int, int], short: bool
) -> Iterator[Row]:
    s, kernels = _state(batch, max(measured)), Kernels()
    steps: dict[str, Step] = {
        "kernels": lambda some: kernels.step(some, ends, s),
        "torch": lambda some: torch_step(some, ends, s),
    }
    if not short:
        compiled = torch.compile(torch_step, dynamic=False)
        steps["torch, compiled"] = lambda some: compiled(some, ends, s)
    if not short and (peer := lmdeploy()):
        with_peer, paged = WithPeer(peer), _repaged(s, peer.page)
        steps[peer.name] = lambda some: with_peer.step(some, ends, paged)
    errors = _errors(steps, layers[:2], ends, s)
    if errors["kernels"] > 2 * errors["torch"] + 2**-6:
        raise RuntimeError(f"bench decoding: the logits differ from torch's in float32, by {errors}")
    at: dict[int, dict[str, float]] = {}
    for count in measured:
        some = layers[:count]
        calls = {name: [lambda step=step, some=some: step(some).argmax(1)] for name, step in steps.items()}
        graphs = interleaved(calls, ROUNDS)
        at[count] = {f"{name}, CUDA graph": us for name, us in graphs.items()}
        if short:
            continue
        launched = {name: each for name, each in calls.items() if name != "torch, compiled"}
        at[count] |= {
            f"{name}, eager": us for name, us in interleaved(launched, ROUNDS, captured=False).items()
        }
    few, more = measured
    times = {
        name: at[few][name] + (LAYERS - few) * (at[more][name] - at[few][name]) / (more - few)
        for name in at[few]
    }
    times[FLOOR] = _bytes_read(LAYERS, batch, layers, _experts_used(batch, layers, ends, s)) / bandwidth
    case = f"batch {batch}, {KEYS} keys, {LAYERS} layers, {WIDTH} wide, {EXPERTS} experts"
    for name, us in times.items():
        error = errors.get(name.rsplit(",", 1)[0], 0.0)
        yield row("decoding", case, name, us, BASELINE, times[BASELINE], error)


def _experts_used(batch: int, layers: list[Weights], ends: Weights, s: State) -> int:
    """Return how many experts the texts take in the first layer, whose choices stand for those of all."""
    x = ends["embedding"][s.token]
    at = torch.arange(batch, device="cuda"), slice(None), s.position.long()
    y = F.rms_norm(x, (WIDTH,), None, EPSILON)
    x = x + _torch_attention(y, layers[0], s, s.whole[0], at)
    y = F.rms_norm(x, (WIDTH,), None, EPSILON)
    return F.linear(y, layers[0]["router"]).float().topk(2, dim=1).indices.unique().numel()


def _errors(steps: dict[str, Step], layers: list[Weights], ends: Weights, s: State) -> dict[str, float]:
    """Return each path's median error over the texts."""

    def wide(some: Weights) -> Weights:
        return {name: each if name in ("up", "down") else each.float() for name, each in some.items()}

    exact = State(
        s.token, [], [(k.float(), v.float()) for k, v in s.whole[:2]],
        s.table, s.length, s.position, s.cos, s.sin,
    )  # fmt: skip
    want = torch_step([wide(w) for w in layers], wide(ends), exact)
    return {
        name: float(((step(layers) - want).norm(dim=1) / want.norm(dim=1)).median())
        for name, step in steps.items()
    }
