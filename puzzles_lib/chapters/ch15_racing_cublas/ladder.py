"""Chapter 15's ladder: fused dW = dy^T @ x^ in nine versions, against the best unfused path.

The kernels and how they are launched are the chapter's own cells. They are written for one problem, with
no masks: K a multiple of 128, COUT and CIN of the tiles, 2 bits, groups no narrower than a tile.
"""

import functools
import json
import linecache
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
import triton
import triton.language as tl
from triton.runtime.jit import KernelInterface
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.bench.results import relative_error, row
from puzzles_lib.bench.timing import interleaved
from puzzles_lib.kernels.bitpack import unpack_bits
from puzzles_lib.kernels.quantize import PackedTensor, dequantize, quantize_pack
from puzzles_lib.source import with_helpers

NOTEBOOK = Path(__file__).parents[3] / "solutions" / "15_racing_cublas.ipynb"
COUT, CIN = 768, 768  # the layers of a ViT-B
ROWS = (100864, 8192)  # K: a ViT-B at batch 512, and a small batch
BITS, GROUP = 2, 256
UNFUSED, CUBLAS = "dequantize + cuBLAS", "cuBLAS alone, x^ ready"
NUMBERS = (0, 1, 2, 3)
TILED = ("words", "params", "dy")  # what a kernel may take by descriptor
REPEATS = 20  # runs that must give the same bits
RUNS = 300  # of a version that may not


class Rung:
    """One version: a kernel, and how it is launched.

    kernel: leaves float32 partial sums of dW in ``parts_ptr`` [splits, COUT, CIN]. Its parameters are
        bound by name: ``words_ptr`` with ``scale_ptr`` and ``minimum_ptr`` (row-wise words), or with
        ``params_ptr`` (words along K, as the production kernels have them), ``dy_ptr``, ``numbers_ptr``
        (`NUMBERS`), ``K``, and constants.
    splits: parts that K is cut into, none of them empty.
    descriptors: for the name of a tensor, the tile that its descriptor loads, made by the host: the kernel
        takes ``dy_desc`` for ``dy_ptr`` where this has ``dy``. Tensors are seen as matrices, their last
        axis a row; a row of ``params`` is the 256 parameters of a block.
    constants: BLOCK_M (of COUT), BLOCK_N (of CIN), BLOCK_K (rows a step), and what else the kernel has.

    Raises ValueError for numbers of splits and tiles that cannot be.
    """

    def __init__(
        self,
        name: str,
        kernel: KernelInterface,
        *,
        splits: int,
        num_warps: int = 4,
        num_stages: int = 3,
        descriptors: Mapping[str, tuple[int, int]] | None = None,
        **constants: int,
    ):
        for block in ("BLOCK_M", "BLOCK_N", "BLOCK_K"):
            if not _is_power_of_two(constants.get(block)):
                raise ValueError(f"Rung: {block} is {constants.get(block)!r}, allowed are powers of 2")
        most = min(ROWS) // constants["BLOCK_K"]
        if not isinstance(splits, int) or not 1 <= splits <= most:
            raise ValueError(f"Rung: splits is {splits!r}, allowed are 1 to {most}: none may be empty")
        for tensor, tile in (descriptors or {}).items():
            if tensor not in TILED:
                raise ValueError(f"Rung: descriptors names {tensor!r}, allowed are {', '.join(TILED)}")
            if not isinstance(tile, tuple) or len(tile) != 2 or not all(map(_is_power_of_two, tile)):
                allowed = "allowed are two powers of 2, rows by columns"
                raise ValueError(f"Rung: the tile of {tensor!r} is {tile!r}, {allowed}")
        self.name, self.kernel, self.splits, self.constants = name, kernel, splits, constants
        self.descriptors = dict(descriptors or {})
        self.options = {"num_warps": num_warps, "num_stages": num_stages}

    def same_as(self, other: "Rung") -> bool:
        """Whether it is the same kernel, launched in the same way."""
        return self._identity() == other._identity()

    def _identity(self) -> tuple[object, ...]:
        sources = [function.src.strip() for function in with_helpers(self.kernel)]
        return sources, self.splits, self.constants, self.options, self.descriptors

    def grid(self, cout: int = COUT, cin: int = CIN) -> tuple[int, int, int]:
        """Programs: tiles along COUT, along CIN, parts of K."""
        return cout // self.constants["BLOCK_M"], cin // self.constants["BLOCK_N"], self.splits

    def arguments(self, problem: "Problem", parts: torch.Tensor) -> dict[str, object]:
        """What the kernel's parameters are bound to."""
        offered = problem.offers | self.constants | {"parts_ptr": parts}
        for name, tile in self.descriptors.items():
            tensor = problem.offers[f"{name}_ptr"]
            offered[f"{name}_desc"] = TensorDescriptor.from_tensor(tensor.view(-1, tensor.shape[-1]), [*tile])
        missing = [name for name in self.kernel.arg_names if name not in offered]
        if missing:
            raise TypeError(f"{missing[0]} is no parameter of the ladder; it offers {', '.join(offered)}")
        return {name: offered[name] for name in self.kernel.arg_names}


class Problem:
    """dy, and a quantised x in both formats. ``x``: [K, CIN] bfloat16, ``dy``: [K, COUT] bfloat16."""

    def __init__(self, x: torch.Tensor, dy: torch.Tensor, group_size: int = GROUP):
        self.rows, self.dy, self.packed = len(x), dy, quantize_pack(x, BITS, group_size)
        self.shape = dy.shape[1], x.shape[1]
        words, scale, minimum = row_wise(self.packed)
        self._row_wise = {"words_ptr": words, "scale_ptr": scale, "minimum_ptr": minimum}
        numbers = torch.tensor(NUMBERS, dtype=torch.int16, device=x.device)
        self.offers = {
            "words_ptr": self.packed.words, "params_ptr": self.packed.params.flatten(-2),
            "numbers_ptr": numbers, "dy_ptr": dy,
            "K": self.rows, "COUT": dy.shape[1], "CIN": x.shape[1], "GROUP": group_size,
        }  # fmt: skip

    def of(self, rung: Rung) -> "Problem":
        """The same with the words that the rung's kernel reads."""
        if "scale_ptr" in rung.kernel.arg_names:
            other = object.__new__(Problem)
            vars(other).update(vars(self), offers=self.offers | self._row_wise)
            return other
        return self

    def exact(self) -> torch.Tensor:
        """dy^T @ x^ in float64, of x^ as `dequantize` rounds it."""
        return self.dy.double().t() @ dequantize(self.packed).double()


def row_wise(packed: PackedTensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Chapter 10's words [K, CIN / 16] int32, scale and minimum [K, CIN / group] of the same codes."""
    rows, columns = packed.shape
    codes = unpack_bits(packed.words, BITS, (rows, columns)).view(rows, columns // 16, 16)
    words = torch.zeros(codes.shape[:2], dtype=torch.int32, device=codes.device)
    for i in range(16):
        words |= codes[:, :, i].int() << BITS * i
    scale, minimum = (p.flatten(1)[:, :rows].t().contiguous() for p in (packed.scale, packed.minimum))
    return words, scale, minimum


def _is_power_of_two(size: object) -> bool:
    return isinstance(size, int) and size > 0 and size & (size - 1) == 0


# ---- the chapter's cells


@functools.cache
def scope(notebook: Path = NOTEBOOK) -> Mapping[str, object]:
    """What the chapter's cells named ``*-kernel`` and ``*-rung`` define."""
    names = {"triton": triton, "tl": tl, "Rung": Rung, "__name__": "notebook"}
    for cell in json.loads(notebook.read_text())["cells"]:
        if cell["cell_type"] == "code" and cell["id"].endswith(("-kernel", "-rung")):
            lines = "".join(cell["source"]).splitlines()
            lines = [line for line in lines if not line.startswith(("race(", "evidence("))]
            source, name = "\n".join(lines) + "\n", f"<{cell['id']} of chapter 15>"
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
            exec(compile(source, name, "exec"), names)
    return names


def rungs() -> list[Rung]:
    """The chapter's versions, in order: those whose name begins with their number."""
    return [value for value in scope().values() if isinstance(value, Rung) and value.name[0].isdigit()]


def unsound() -> list[Rung]:
    """Its examples of what goes wrong."""
    return [value for value in scope().values() if isinstance(value, Rung) and not value.name[0].isdigit()]


# ---- running and measuring


def run(rung: Rung, problem: Problem, parts: torch.Tensor, dw: torch.Tensor) -> None:
    """Fill dw [COUT, CIN] on a GPU; parts [splits, COUT, CIN] float32 is overwritten."""
    problem = problem.of(rung)
    triton.set_allocator(_scratch)  # for kernels that make tensor descriptors
    rung.kernel[rung.grid(*problem.shape)](**rung.arguments(problem, parts), **rung.options)
    block, add = 512, scope()["sum_splits_kernel"]
    add[(dw.numel() // block,)](parts, dw, dw.numel(), SPLITS=len(parts), BLOCK=block)


def _scratch(size: int, alignment: int, stream: int | None) -> torch.Tensor:
    return torch.empty(size, device="cuda", dtype=torch.int8)


def unfused(problem: Problem) -> torch.Tensor:
    """The path to beat: our dequantise, then cuBLAS."""
    return torch.matmul(problem.dy.t(), dequantize(problem.packed))


def measure(some: Sequence[Rung] | None = None, rows: Sequence[int] = ROWS) -> Iterator[dict[str, object]]:
    """Rows of bench "ladder": each rung against `UNFUSED`, taking turns in one run.

    error is relative to the exact product of the same x^. Then, of the chapter's unsound examples, rows of
    bench "repeats", whose error is the share of `RUNS` runs that give other bits than the first.

    some: rungs other than the chapter's, without the examples.
    Raises RuntimeError without a GPU, or where a rung's result is off, or differs between runs.
    """
    if not torch.cuda.is_available():
        raise RuntimeError("bench ladder needs a CUDA device")
    for count in rows:
        problems = _problems(count)
        yield from _measure(rungs() if some is None else some, problems)
        for rung in unsound() if some is None else ():
            yield _repeated(rung, problems)
        del problems
        torch.cuda.empty_cache()


def _problems(rows: int) -> list[Problem]:
    """More of them than the cache holds."""
    torch.manual_seed(0)

    def normal(columns: int) -> torch.Tensor:
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16)

    return [Problem(normal(CIN), normal(COUT)) for _ in range(3 if rows > 50000 else 8)]


def _buffers(rung: Rung) -> tuple[torch.Tensor, torch.Tensor]:
    """For partial sums, and for dW."""
    parts = torch.empty(rung.splits, COUT, CIN, device="cuda")
    return parts, torch.empty(COUT, CIN, device="cuda", dtype=torch.bfloat16)


def _measure(some: Sequence[Rung], problems: Sequence[Problem]) -> Iterator[dict[str, object]]:
    rows = problems[0].rows
    x = [dequantize(p.packed) for p in problems]
    want = problems[0].exact()
    paths = {UNFUSED: [lambda p=p: unfused(p) for p in problems]}
    paths[CUBLAS] = [lambda p=p, x=x: torch.matmul(p.dy.t(), x) for p, x in zip(problems, x, strict=True)]
    errors = {name: relative_error(calls[0](), want) for name, calls in paths.items()}
    for rung in some:
        buffers = _buffers(rung)
        paths[rung.name] = [lambda p=p, r=rung, b=buffers: run(r, p, *b) for p in problems]
        errors[rung.name] = _checked(rung, problems[0], *buffers, want, 1.05 * errors[UNFUSED])
    times = interleaved(paths)
    for path, us in times.items():
        yield _row("ladder", rows, path, us, times[UNFUSED], float(f"{errors[path]:.3e}"))


def _row(bench: str, rows: int, path: str, us: float, baseline_us: float, error: float) -> dict[str, object]:
    return row(bench, f"2 bits, {rows}x{COUT}x{CIN}", path, us, UNFUSED, baseline_us, error)


def _repeated(rung: Rung, problems: Sequence[Problem]) -> dict[str, object]:
    """How many runs on the same inputs differ from the first."""
    rows = problems[0].rows
    parts, dw = _buffers(rung)
    run(rung, problems[0], parts, dw)
    first, differing = dw.clone(), 0
    for _ in range(RUNS):
        run(rung, problems[0], parts, dw)
        differing += not torch.equal(dw, first)  # a NaN differs too
    paths = {rung.name: [lambda p=p: run(rung, p, parts, dw) for p in problems]}
    times = interleaved(paths | {UNFUSED: [lambda p=p: unfused(p) for p in problems]})
    return _row("repeats", rows, rung.name, times[rung.name], times[UNFUSED], differing / RUNS)


def _checked(
    rung: Rung, problem: Problem, parts: torch.Tensor, dw: torch.Tensor, want: torch.Tensor, most: float
) -> float:
    """The error of a rung, whose buffers are poisoned before each of `REPEATS` runs."""
    for repeat in range(REPEATS):
        parts.fill_(float("nan"))
        dw.fill_(float("nan"))
        run(rung, problem, parts, dw)
        if repeat == 0:
            first = dw.clone()
        elif not torch.equal(dw, first):
            off = float((dw != first).float().mean())
            raise RuntimeError(f"{rung.name}: run {repeat} differs from run 0 in {off:.2%} of dW")
    error = relative_error(first, want)
    if not error <= most:
        raise RuntimeError(f"{rung.name}: error {error:.2e}, allowed is {most:.2e}")
    return error
