"""Measure what chapters 04 and 05 save: the puzzles' own kernels, beside PyTorch calls that store more.

``bytes`` is the memory that a call needs beyond its inputs, with the result.
"""

from collections.abc import Callable, Iterator

import torch

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.kernels import attention
from puzzles_lib.timing import interleaved, relative_error, row

SOFTMAX = {  # puzzle and BLOCK_N by path; of rows of 32,768 numbers
    "puzzle 8, blocks of 128": ("long_softmax", 128),
    "puzzle 8b, blocks of 128": ("online_softmax", 128),
    "puzzle 8b, blocks of 2048": ("online_softmax", 2048),
}
STORED = "PyTorch, all scores stored"
ROUNDS = 15

Call = Callable[[], torch.Tensor]


def measure() -> Iterator[dict[str, object]]:
    """Yield the rows of this bench. Raise RuntimeError without a GPU."""
    if not torch.cuda.is_available():
        raise RuntimeError("bench lessons needs a CUDA device")
    torch.manual_seed(0)
    yield from _softmax(8192, 32768)
    for tokens in (4096, 32768):
        yield from _causal(tokens, 64)
    yield from _heads(32, 4096, 64)


def _softmax(rows: int, columns: int) -> Iterator[dict[str, object]]:
    x = torch.randn(rows, columns, device="cuda")
    calls: dict[str, Call] = {"torch.softmax": lambda: x.softmax(1)}
    for path, (name, block) in SOFTMAX.items():
        calls[path] = _launched(name, {"M": rows, "N": columns, "BLOCK_M": 1, "BLOCK_N": block}, x)
    yield from _rows(f"softmax of {rows} rows of {columns}", calls, "torch.softmax")


def _causal(tokens: int, width: int) -> Iterator[dict[str, object]]:
    q, k, v = (torch.randn(tokens, width, device="cuda") for _ in range(3))
    numbers = {"T": tokens, "D": width, "BLOCK_Q": 32, "BLOCK_K": 32, "BLOCK_D": width}
    spec = _puzzle("flash_attention").spec
    calls = {STORED: lambda: spec(q, k, v), "puzzle 9b": _launched("flash_attention", numbers, q, k, v)}
    yield from _rows(f"one causal head of {tokens} tokens, D = {width}, float32", calls, STORED)


def _heads(heads: int, tokens: int, width: int) -> Iterator[dict[str, object]]:
    shape = (1, heads, tokens, width)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    scale = width**-0.5
    calls: dict[str, Call] = {
        STORED: lambda: (q @ k.mT * scale).softmax(-1) @ v,
        "attention": lambda: attention(q, k, v, scale=scale),
    }
    yield from _rows(f"{heads} heads of {tokens} tokens, D = {width}, bfloat16", calls, STORED)


def _puzzle(name: str):
    return next(puzzle for puzzle in puzzles() if puzzle.name == name)


def _launched(name: str, numbers: dict[str, int], *inputs: torch.Tensor) -> Call:
    """Return a call of the course's solution of a puzzle with one result."""
    puzzle = _puzzle(name)
    case = puzzle.cases[0].but(**numbers)
    bound = bind(solutions()[name], puzzle, case)
    if not isinstance(bound, Bound):
        raise RuntimeError(f"{name} cannot be launched: {bound}")
    given = dict(zip((each.name for each in puzzle.inputs), inputs, strict=True))
    (result,) = puzzle.results

    def call() -> torch.Tensor:
        z = torch.empty(result.shape(case.numbers), device="cuda", dtype=result.dtype)
        bound.kernel[puzzle.programs(case)](**bound.filled({**given, result.name: z}))
        return z

    return call


def _rows(case: str, calls: dict[str, Call], baseline: str) -> Iterator[dict[str, object]]:
    wanted = calls[baseline]()
    errors = {path: relative_error(call(), wanted) for path, call in calls.items()}
    del wanted
    peaks = {path: _peak(call) for path, call in calls.items()}
    times = interleaved({path: [call] for path, call in calls.items()}, ROUNDS, captured=False)
    for path in calls:
        made = row("lessons", case, path, times[path], baseline, times[baseline], errors[path])
        yield {**made, "bytes": peaks[path], "baseline_bytes": peaks[baseline]}
    torch.cuda.empty_cache()


def _peak(call: Call) -> int:
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before
