"""The machine code that the ladder's launches run: compiled here, or carried from where it was compiled.

`python -m puzzles_lib.bench compile FILE` writes what all launches need, with no GPU. With
``--binaries FILE``, a machine that has one then times those very binaries, whatever Triton it has itself.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
import triton

from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.launches import grid, own
from puzzles_lib.chapters.ch15_racing_cublas.rung import BITS, CIN, COUT, GROUP, ROWS, Rung
from puzzles_lib.kernels.quantize import dequantize_launch, storage_shapes
from puzzles_lib.timing.driver import Binary, Loaded, parameters

SUM_BLOCK = 512  # elements of dW that a program adds up


class Programs:
    """Machine code by name, loaded when it is launched.

    carried: what `read` returned. Only these programs are launched then. Without it, Triton compiles here.
    """

    def __init__(self, carried: Mapping[str, Binary] | None = None):
        self._carried, self._loaded = carried, {}

    def run(self, rung: Rung, values: Mapping[str, object], grid: Sequence[int]) -> None:
        """Launch a version of the kernel. values: what `Rung.arguments` returns."""
        self._load(rung.digest, lambda: rung_binary(rung)).launch(grid, values)

    def sum_splits(self, parts: torch.Tensor, dw: torch.Tensor) -> None:
        """Fill dW with the sum of its parts."""
        splits, grid = len(parts), (dw.numel() // SUM_BLOCK,)
        loaded = self._load(f"sum of {splits}", lambda: sum_binary(splits))
        loaded.launch(grid, {"parts_ptr": parts, "dw_ptr": dw, "N": dw.numel()})

    def dequantize(self, words: torch.Tensor, params: torch.Tensor, x: torch.Tensor) -> None:
        """Fill x [rows, CIN] from its words and parameters, groups of `GROUP`."""
        _, grid, values, _ = dequantize_launch(words, params, x, BITS, GROUP)
        self._load(f"dequantize {len(x)}", lambda: dequantize_binary(len(x))).launch(grid, values)

    def _load(self, name: str, made: Callable[[], Binary]) -> Loaded:
        if name not in self._loaded:
            if self._carried is not None and name not in self._carried:
                raise RuntimeError(f"the binaries have none of {name}: compile them from this very source")
            self._loaded[name] = Loaded(made() if self._carried is None else self._carried[name])
        return self._loaded[name]


def rung_binary(rung: Rung) -> Binary:
    """Compile a version of the kernel, and return its binary. Raise RuntimeError if it does not compile."""
    from puzzles_lib.chapters.ch15_racing_cublas.machine import compile_rung

    compiled = compile_rung(rung)
    if not compiled.ok:
        raise RuntimeError(f"{rung.name}: {compiled.refusal}")
    return binary(compiled.built)


def sum_binary(splits: int) -> Binary:
    """Return the binary of the kernel that adds up ``splits`` parts."""
    parts, dw = torch.empty(splits, COUT, CIN), torch.empty(COUT, CIN, dtype=torch.bfloat16)
    values = {"parts_ptr": parts, "dw_ptr": dw, "N": dw.numel(), "SPLITS": splits, "BLOCK": SUM_BLOCK}
    return _compiled(versions.sum_splits_kernel, values, num_warps=4)


def dequantize_binary(rows: int) -> Binary:
    """Return the binary of the library's kernel that makes x̂ from words."""
    words_shape, params_shape = storage_shapes(rows, CIN, BITS, GROUP)
    words = torch.empty(words_shape, dtype=torch.int16, device="cpu")
    params, x = (torch.empty(shape, dtype=torch.bfloat16) for shape in (params_shape, (rows, CIN)))
    kernel, _, values, options = dequantize_launch(words, params, x, BITS, GROUP)
    return _compiled(kernel, values, **options)


def _compiled(kernel: object, values: Mapping[str, object], **options: int) -> Binary:
    from puzzles_lib.compiler import build, find_target, translate
    from puzzles_lib.source import Refusal

    translation = translate(kernel, values, find_target("sm_90"), **options)
    built = translation if isinstance(translation, Refusal) else build(translation)
    if isinstance(built, Refusal) or built.refusal:
        raise RuntimeError(f"{kernel.__name__}: {getattr(built, 'refusal', built)}")
    return binary(built)


def binary(built: object) -> Binary:
    """Return a `puzzles_lib.compiler.Build` as the driver takes it."""
    told = built.metadata
    return Binary(
        cubin=built.binary,
        name=told["name"],
        warps=told["num_warps"],
        shared=told["shared"],
        scratch=told["global_scratch_size"] or 0,
        parameters=parameters(built.texts["ttir"], built.texts["ptx"]),
        maps=tuple(told["tensordesc_meta"] or ()),
    )


# ---- carried from machine to machine


def compile_all(path: str | Path) -> Iterator[str]:
    """Compile what the benches launch into a file for `read`, and yield a line of text for each launch.

    A launch is left out if it doesn't compile, if no H200 can hold it, or if it writes what a wgmma still
    reads.
    """
    from puzzles_lib.chapters.ch15_racing_cublas.machine import compile_rung, evidence, waves

    binaries = {f"dequantize {rows}": dequantize_binary(rows) for rows in ROWS}
    told = {}
    for rung in [*own(), *grid()]:
        compiled = compile_rung(rung)
        if not compiled.ok or not waves(rung, compiled)[1]:
            yield f"left out {rung.name}: {compiled.refusal or 'no H200 can hold a program'}"
            continue
        found = evidence(rung, compiled)
        if found.overwrites and rung.name[0].isdigit():
            yield f"left out {rung.name}: {found.overwrites} overwrites"
            continue
        binaries[rung.digest] = binary(compiled.built)
        if f"sum of {rung.splits}" not in binaries:
            binaries[f"sum of {rung.splits}"] = sum_binary(rung.splits)
        told[rung.name] = {"kernel": rung.kernel.__name__, "digest": rung.digest, "launch": rung.launch()}
        told[rung.name]["evidence"] = found.as_dict()
        yield rung.name
    write(path, binaries, told)


def write(path: str | Path, binaries: Mapping[str, Binary], launches: Mapping[str, Mapping]) -> None:
    """Keep binaries, and what is known of the launches that use them; the file is replaced as a whole."""
    path = Path(path)
    told = {"triton": triton.__version__, "launches": dict(launches)}
    told["binaries"] = {name: each.as_dict() for name, each in binaries.items()}
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(json.dumps(told))
    os.replace(temporary, path)


def read(path: str | Path) -> dict[str, object]:
    """Return the file's ``triton`` (version), ``launches`` (evidence by name) and ``binaries`` (by name)."""
    told = json.loads(Path(path).read_text())
    told["binaries"] = {name: Binary.from_dict(each) for name, each in told["binaries"].items()}
    return told
