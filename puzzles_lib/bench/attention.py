"""Measure attention on a GPU: the production kernels, the chapter's answers, torch's, and two floors.

torch's `scaled_dot_product_attention` runs with cuDNN, and with the flash kernels that ship with torch. One
floor is the time of a product with as many operations in cuBLAS. The other is the time of as many
exponentials if nothing waits for them. All have 16384 rows and 2048 columns in heads of D. Errors are
relative to float32 on the same inputs. The error of backward is the largest of its three gradients.
"""

from collections.abc import Callable, Iterator
from importlib import import_module

import torch
import torch.nn.functional as F
import triton
import triton.language as tl
from torch.nn.attention import SDPBackend, sdpa_kernel

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.kernels.attention import attention
from puzzles_lib.timing import interleaved, relative_error, row

production = import_module("puzzles_lib.kernels.attention")

ROWS, WIDTH = 16384, 2048
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
USUAL = 4096
FORMS = ((64, True), (64, False), (128, True), (128, False))
TORCHS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}
PRODUCTS, EXPONENTIALS = "as many products, cuBLAS", "as many exp2, alone"
ROUNDS = 20
BLOCKS = ((64, 64, 4), (128, 64, 8), (128, 128, 8), (64, 32, 4))  # of the chapter's kernels; warps
PACKED = (2048, 64, 911, 1500, 333, 128, 2000, 700, 77, 1234, 1800, 256, 1024, 1999, 512, 1798)  # rows each

Call = Callable[[], object]


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of bench "attention". Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench attention needs a CUDA device")
    for D, causal in FORMS:
        for T in LENGTHS:
            yield from _against_torch(D, causal, T)
            torch.cuda.empty_cache()
    for D in (64, 128):
        yield from _the_chapters(D)
        torch.cuda.empty_cache()
    for measured in (_grouped, _windowed, _packed):
        yield from measured()
        torch.cuda.empty_cache()


def _inputs(D: int, T: int, heads: int = 0) -> list[torch.Tensor]:
    """q, k, v and do; heads: those of k and v, if fewer."""
    torch.manual_seed(0)
    shape = (ROWS // T, WIDTH // D, T, D)
    shapes = [shape, *[(shape[0], heads or shape[1], T, D)] * 2, shape]
    return [torch.randn(each, device="cuda", dtype=torch.bfloat16).requires_grad_() for each in shapes]


def _case(D: int, causal: bool, T: int) -> str:
    return f"D = {D}, {'causal' if causal else 'full'}, T = {T}"


def scores(T: int, causal: bool) -> int:
    """Return how many scores count, over all heads."""
    return ROWS // T * (T * (T + 1) // 2 if causal else T * T)


# ---- what is right


def expected(q, k, v, do, causal: bool) -> dict[str, torch.Tensor]:
    """Return o, dq, dk and dv in float32, computed head by head. q, k and v have equally many heads."""
    found = [torch.empty_like(q, dtype=torch.float32) for _ in range(4)]
    for b in range(q.shape[0]):
        for h in range(q.shape[1]):
            head = [each[b, h].detach().float().requires_grad_() for each in (q, k, v)]
            s = head[0] @ head[1].mT * q.shape[3] ** -0.5
            if causal:
                s = s.masked_fill(torch.ones_like(s, dtype=torch.bool).triu(1), -torch.inf)
            o = s.softmax(1) @ head[2]
            parts = [o.detach(), *torch.autograd.grad(o, head, do[b, h].float())]
            for whole, part in zip(found, parts, strict=True):
                whole[b, h] = part
    return dict(zip(("o", "dq", "dk", "dv"), found, strict=True))


# ---- against torch


def _against_torch(D: int, causal: bool, T: int) -> Iterator[dict[str, object]]:
    q, k, v, do = _inputs(D, T)
    exact = expected(q, k, v, do, causal)
    yield from _forward(D, causal, T, [each.detach() for each in (q, k, v)], exact)
    backward = list(_backward(D, causal, T, (q, k, v), do, exact))
    yield from backward
    if T == USUAL:
        yield from _apart(D, causal, q, k, v, do, backward[0]["error"])


def _forward(D: int, causal: bool, T: int, inputs, exact) -> Iterator[dict[str, object]]:
    calls = _ways(*inputs, causal)
    errors = {name: relative_error(call(), exact["o"]) for name, call in calls.items()}
    yield from _compared(D, causal, T, "forward", calls, errors, captured=True)


def _backward(D: int, causal: bool, T: int, inputs, do, exact) -> Iterator[dict[str, object]]:
    calls, errors = {}, {}
    for name, call in _ways(*inputs, causal).items():
        o = call()

        def backward(o=o) -> tuple[torch.Tensor, ...]:
            return torch.autograd.grad(o, inputs, do, retain_graph=True)

        wanted = [exact[each] for each in ("dq", "dk", "dv")]
        errors[name] = max(map(relative_error, backward(), wanted))
        calls[name] = backward
    yield from _compared(D, causal, T, "backward", calls, errors, captured=False)


def _compared(
    D: int, causal: bool, T: int, part: str, calls: dict[str, Call], errors: dict[str, float], captured: bool
) -> Iterator[dict[str, object]]:
    """Ours beside all others; torch's beside the products alone, once, for their errors."""
    if T == USUAL:
        operations = (4 if part == "forward" else 10) * scores(T, causal) * WIDTH
        calls = calls | {PRODUCTS: _products(operations), EXPONENTIALS: _exponentials(D, T, causal, part)}
    times = interleaved({name: [call] for name, call in calls.items()}, ROUNDS, captured=captured)
    for path, error in errors.items():
        for baseline in times:
            name = part if path == "attention" else f"{part}, {path}"
            if baseline != path and (path == "attention" or baseline == PRODUCTS):
                us, other = times[path], times[baseline]
                yield row("attention", _case(D, causal, T), name, us, baseline, other, error)


def _ways(q, k, v, causal: bool) -> dict[str, Call]:
    """Forward, by each of those that are compared."""

    def torchs(backend) -> Call:
        def call() -> torch.Tensor:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

        return call

    ours = {"attention": lambda: attention(q, k, v, causal=causal)}
    return ours | {name: torchs(backend) for name, backend in TORCHS.items()}


def _products(operations: int) -> Call:
    """A product of so many floating-point operations."""
    a = torch.randn(8192, operations // (2 * 8192 * 8192) // 64 * 64, device="cuda", dtype=torch.bfloat16)
    return lambda: a @ a.mT


@triton.jit
def _exp2_kernel(x_ptr, each, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    for _ in range(each):
        x = tl.exp2(x)
    tl.store(x_ptr + offs, x)


def _exponentials(D: int, T: int, causal: bool, part: str) -> Call:
    """One for each score; backward has two, since two kernels compute p."""
    wanted = scores(T, causal) * (WIDTH // D) * (1 if part == "forward" else 2)
    programs, block = 132 * 8, 2048  # as many as a chip runs at once
    x = torch.randn(programs * block, device="cuda").neg_()
    return lambda: _exp2_kernel[(programs,)](x, wanted // x.numel(), BLOCK=block, num_warps=8)


def _apart(D: int, causal: bool, q, k, v, do, error: float) -> Iterator[dict[str, object]]:
    """The two kernels of backward, each beside the products that it has."""
    o, lse = attention(q, k, v, causal=causal, return_lse=True)
    q, k, v, do, o, lse = (each.detach() for each in (q, k, v, do, o, lse))
    delta, dlse = torch.empty_like(lse), torch.zeros_like(lse)
    dq, dk, dv = (torch.empty_like(q) for _ in range(3))
    options = (None, q.shape[2], causal, None, D**-0.5)
    paths: dict[str, Call] = {
        "dq": lambda: production.launch_dq(q, k, v, o, do, lse, dlse, dq, delta, *options),
        "dk and dv": lambda: production.launch_dkv(q, k, v, do, lse, delta, dk, dv, *options),
    }
    for (path, call), products in zip(paths.items(), (6, 8), strict=True):
        floor = _products(products * scores(q.shape[2], causal) * WIDTH)
        times = interleaved({path: [call], PRODUCTS: [floor]}, ROUNDS, captured=False)
        yield row(
            "attention", _case(D, causal, q.shape[2]), path, times[path], PRODUCTS, times[PRODUCTS], error
        )


# ---- the chapter's answers


def _the_chapters(D: int) -> Iterator[dict[str, object]]:
    """Puzzles 35, 37 and 38 as they stand, in the best of some blocks, beside the production kernels."""
    T, scale = USUAL, D**-0.5
    q, k, v, do = (each.detach() for each in _inputs(D, T))
    exact = expected(q, k, v, do, True)
    o, lse = attention(q, k, v, causal=True, return_lse=True)
    delta, dlse = torch.empty_like(lse), torch.zeros_like(lse)
    dq, dk, dv = (torch.full_like(q, torch.nan) for _ in range(3))
    mine = torch.full_like(o, torch.nan)
    heads = q.shape[0] * q.shape[1]
    options, answers = (None, T, True, None, scale), solutions()

    def forward(m: int, n: int, warps: int) -> None:
        answers["window_attention"][(T // m, heads)](
            q, k, v, mine, lse, T, T, D=D, BLOCK_Q=m, BLOCK_K=n, num_warps=warps
        )

    def backward_dq(m: int, n: int, warps: int) -> None:
        answers["attention_dq"][(T // m, heads)](
            q, k, v, o, do, lse, dq, delta, T, D=D, BLOCK_Q=m, BLOCK_K=n, num_warps=warps
        )

    def backward_dkv(m: int, n: int, warps: int) -> None:
        answers["attention_dkv"][(T // n, heads)](
            q, k, v, do, lse, delta, dk, dv, heads, heads, T, D=D, BLOCK_Q=m, BLOCK_K=n, num_warps=warps
        )

    other = torch.empty_like(o), torch.empty_like(lse)
    both = [torch.empty_like(q) for _ in range(3)]
    ours: dict[str, Call] = {
        "forward": lambda: production.launch_forward(q, k, v, *other, *options),
        "dq": lambda: production.launch_dq(q, k, v, o, do, lse, dlse, both[0], delta, *options),
        "dk and dv": lambda: production.launch_dkv(q, k, v, do, lse, delta, *both[1:], *options),
    }
    for part, puzzle, call, results in (
        ("forward", "puzzle 35", forward, {"o": mine}),
        ("dq", "puzzle 37", backward_dq, {"dq": dq}),
        ("dk and dv", "puzzle 38", backward_dkv, {"dk": dk, "dv": dv}),
    ):
        tried = {}
        for blocks in BLOCKS:
            try:
                call(*blocks)
            except triton.runtime.errors.OutOfResources:
                continue
            tried[blocks] = interleaved({"it": [lambda b=blocks, call=call: call(*b)]}, 3)["it"]
        best = min(tried, key=tried.get)
        call(*best)
        error = max(relative_error(got, exact[name]) for name, got in results.items())
        paths = {puzzle: [lambda b=best, call=call: call(*b)], part: [ours[part]]}
        times = interleaved(paths, ROUNDS)
        yield row("attention", _case(D, True, T), puzzle, times[puzzle], part, times[part], error)


# ---- what a general form costs, and saves


def _grouped() -> Iterator[dict[str, object]]:
    D, T = 128, USUAL
    yield from _beside(
        f"{_case(D, True, T)}, 4 heads of keys",
        _both(_inputs(D, T, 4), {}),
        "16 heads of keys",
        _both(_inputs(D, T), {}),
    )


def _windowed() -> Iterator[dict[str, object]]:
    D, T = 128, 16384
    tensors = _inputs(D, T)
    case = f"{_case(D, True, T)}, window 1024"
    yield from _beside(case, _both(tensors, {"window": 1024}), "no window", _both(tensors, {}))


def _packed() -> Iterator[dict[str, object]]:
    """Yield the rows of packed sequences, compared with the same ones padded to the longest."""
    D = 128
    assert sum(PACKED) == ROWS
    starts = torch.tensor([0, *PACKED], device="cuda").cumsum(0, dtype=torch.int32)
    packed = _both(_inputs(D, ROWS), {"cu_seqlens": starts, "max_seqlen": max(PACKED)})
    shape = (len(PACKED), WIDTH // D, max(PACKED), D)
    padded = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_() for _ in range(4)]
    case = f"D = {D}, causal, {len(PACKED)} sequences packed"
    yield from _beside(case, packed, "padded to the longest", _both(padded, {}))


def _both(tensors: list[torch.Tensor], options: dict) -> dict[str, tuple[Call, float]]:
    """Forward and backward, each with its error."""
    q, k, v, do = tensors

    def call() -> torch.Tensor:
        return attention(q, k, v, causal=True, **options)

    o = call()

    def backward() -> object:
        return torch.autograd.grad(o, (q, k, v), do, retain_graph=True)

    wide = [each.detach().float().requires_grad_() for each in (q, k, v)]
    heads = 1 if q.shape[2] > USUAL else 2  # the last ones alone, which is enough of them
    group = q.shape[1] // k.shape[1]
    some = [wide[0][:, -heads:]]
    some += [each.repeat_interleave(group, 1)[:, -heads:] for each in wide[1:]]
    exact = attention(*some, causal=True, **options)  # of float32: in plain torch
    error = relative_error(o.detach()[:, -heads:], exact.detach())
    (want,) = torch.autograd.grad(exact, wide[0], do[:, -heads:].float())
    got = backward()[0]
    return {
        "forward": (call, error),
        "backward": (backward, relative_error(got[:, -heads:], want[:, -heads:])),
    }


def _beside(case: str, ours: dict, name: str, others: dict) -> Iterator[dict[str, object]]:
    for part, (call, error) in ours.items():
        times = interleaved({part: [call], name: [others[part][0]]}, ROUNDS, captured=False)
        yield row("attention", case, part, times[part], name, times[name], error)
