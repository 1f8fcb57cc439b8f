"""A version of chapter 15's kernel, dW = dyᵀ x̂, with its launch; and the problem that all versions solve.

Versions are written for one problem, without masks: K is a multiple of 128; COUT and CIN are multiples of
the tile's sizes; codes have 2 bits, and groups are no narrower than a tile.
"""

import functools
import hashlib
import io
import json
import tokenize
from collections.abc import Iterator, Mapping
from types import EllipsisType

import torch
from triton.runtime.jit import JITFunction, KernelInterface
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.kernels.bitpack import unpack_bits
from puzzles_lib.kernels.quantize import PackedTensor, dequantize, quantize_pack
from puzzles_lib.source import with_helpers
from puzzles_lib.staleness import stale_note

COUT, CIN = 768, 768  # the layers of a ViT-B
ROWS = (100864, 8192)  # K: a ViT-B at batch 512, and a small batch
BITS, GROUP = 2, 256
NUMBERS = (0, 1, 2, 3)
TILED = ("words", "params", "dy")  # what a kernel may take by descriptor
SIZES = ("K", "COUT", "CIN", "GROUP")  # the problem's, not a launch's
MOST = {"BLOCK_M": 256, "BLOCK_N": 256, "BLOCK_K": 128}  # 768 is no multiple of 512, K of a block's 128 rows


class Rung:
    """One version of chapter 15's kernel, a rung of its ladder: a kernel, and how it is launched.

    name: what `race` calls the version.
    kernel: writes float32 partial sums of dW to ``parts_ptr`` [splits, COUT, CIN]. Its parameters are
        bound by name: ``words_ptr`` with ``scale_ptr`` and ``minimum_ptr`` (row-wise words), or with
        ``params_ptr`` (words along K, as the production kernels have them), ``dy_ptr``, ``numbers_ptr``
        (`NUMBERS`), ``K``, and constants.
    splits: the number of parts that K is cut into, none of them empty; ``...`` if it isn't decided yet.
    num_warps, num_stages: as in any Triton launch.
    descriptors: a dict from a tensor's name to the tile that its descriptor loads, such as ``{"dy": (64,
        128)}``. The host makes the descriptor, and the kernel takes ``dy_desc`` instead of ``dy_ptr``.
        Tensors are seen as matrices whose rows are the last axis; a row of ``params`` is the 256 parameters
        of a block.
    constants: BLOCK_M (of COUT), BLOCK_N (of CIN), BLOCK_K (rows per iteration), and the kernel's others.

    Impossible settings raise nothing here, because readers try them and the cells below should still run.
    `refusal` says which of them is wrong, and `race` shows it.
    """

    def __init__(
        self,
        name: str,
        kernel: KernelInterface,
        *,
        splits: int | EllipsisType,
        num_warps: int = 4,
        num_stages: int = 3,
        descriptors: Mapping[str, tuple[int, int]] | None = None,
        **constants: int,
    ):
        self.name, self.kernel, self.splits, self.constants = name, kernel, splits, constants
        self.options = {"num_warps": num_warps, "num_stages": num_stages}
        self.descriptors: dict[str, tuple[int, int]] = {}
        self.refusal = next(self._refusals(descriptors or {}), "")
        if not self.refusal:
            self.descriptors = dict(descriptors or {})

    def _refusals(self, descriptors: Mapping[str, tuple[int, int]]) -> Iterator[str]:
        """Yield each impossible setting, and what is allowed instead."""
        if not isinstance(self.kernel, KernelInterface):
            yield f"kernel must be a @triton.jit function, but is {in_words(self.kernel)}"
            return
        for block, most in MOST.items():
            size = self.constants.get(block)
            if not _is_power_of_two(size) or size > most:
                yield f"{block} must be a power of 2 up to {most}, but is {in_words(size)}"
                return
        most = min(ROWS) // self.constants["BLOCK_K"]
        if self.splits is not ... and not _is_whole(self.splits, 1, most):
            found = in_words(self.splits)
            yield f"splits must be an integer from 1 to {most}, so that no part of K is empty, but is {found}"
        warps, stages = self.options.values()
        if not _is_power_of_two(warps) or warps > 32:
            yield f"num_warps must be one of 1, 2, 4, 8, 16, 32, but is {in_words(warps)}"
        if not _is_whole(stages, 0, 16):
            yield f"num_stages must be an integer from 0 to 16, but is {in_words(stages)}"
        own = (name for name in self.kernel.arg_names if not name.endswith(("_ptr", "_desc")))
        takes = [*dict.fromkeys([*MOST, *(name for name in own if name not in SIZES)])]
        for name, value in self.constants.items():
            if name not in takes:
                others = ", ".join([*takes, "splits", *self.options, "descriptors"])
                yield f"{name} = {in_words(value)} is not a setting: the settings are {others}"
            elif not _is_whole(value, None, None):
                yield f"{name} must be an integer, but is {in_words(value)}"
        if not isinstance(descriptors, Mapping):
            yield f"descriptors must be a dict of tiles by {', '.join(TILED)}, but is {in_words(descriptors)}"
            return
        for tensor, tile in descriptors.items():
            if tensor not in TILED:
                yield f"descriptors must name tensors ({', '.join(TILED)}), but names {in_words(tensor)}"
            elif not isinstance(tile, tuple) or len(tile) != 2 or not all(map(_is_power_of_two, tile)):
                found = in_words(tile)
                yield f"the tile of {tensor!r} must be two powers of 2, (rows, columns), but is {found}"

    @property
    def hint_key(self) -> tuple[str, str]:
        """Return the key of the kernel's hints, for `puzzles_lib.hint`."""
        return "fused_dw_along_k", getattr(self.kernel, "__name__", "")

    def same_as(self, other: "Rung") -> bool:
        """Return whether another version has the same kernel, launched in the same way."""
        return self._identity() == other._identity()

    def _identity(self) -> tuple[object, ...]:
        return self._sources(), self.launch()

    def _sources(self) -> list[list[str]]:
        return [_tokens(function.src) for function in with_helpers(self.kernel)]

    @functools.cached_property
    def digest(self) -> str:
        """Return a digest of kernel and launch, without comments and layout."""
        told = json.dumps(self._identity(), sort_keys=True, default=str)
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def launch(self) -> dict[str, object]:
        """Return the launch's settings, as JSON types."""
        tiles = {name: list(tile) for name, tile in self.descriptors.items()}
        return {"splits": self.splits, **self.constants, **self.options, "descriptors": tiles}

    def grid(self, cout: int = COUT, cin: int = CIN) -> tuple[int, int, int]:
        """Return the grid: tiles along COUT, tiles along CIN, parts of K."""
        return cout // self.constants["BLOCK_M"], cin // self.constants["BLOCK_N"], self.splits

    def arguments(self, problem: "Problem", parts: torch.Tensor) -> dict[str, object]:
        """Return the value of each of the kernel's parameters, by name."""
        offered = problem.offers | self.constants | {"parts_ptr": parts}
        for name, tile in self.descriptors.items():
            tensor = problem.offers[f"{name}_ptr"]
            offered[f"{name}_desc"] = TensorDescriptor.from_tensor(tensor.view(-1, tensor.shape[-1]), [*tile])
        missing = [name for name in self.kernel.arg_names if name not in offered]
        if missing:
            raise TypeError(f"{missing[0]} isn't a parameter of the ladder; it offers {', '.join(offered)}")
        return {name: offered[name] for name in self.kernel.arg_names}


class Problem:
    """dy, and a quantized x in both formats. ``x``: [K, CIN] bfloat16, ``dy``: [K, COUT] bfloat16."""

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
        """Return the same problem with the words that the rung's kernel reads."""
        if "scale_ptr" in rung.kernel.arg_names:
            other = object.__new__(Problem)
            vars(other).update(vars(self), offers=self.offers | self._row_wise)
            return other
        return self

    def exact(self) -> torch.Tensor:
        """Return dyᵀ x̂ in float64, for x̂ as `dequantize` rounds it."""
        return self.dy.double().t() @ dequantize(self.packed).double()


def row_wise(packed: PackedTensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return chapter 10's words [K, CIN / 16] int32, scale and minimum [K, CIN / group] of the same codes."""
    rows, columns = packed.shape
    codes = unpack_bits(packed.words, BITS, (rows, columns)).view(rows, columns // 16, 16)
    words = torch.zeros(codes.shape[:2], dtype=torch.int32, device=codes.device)
    for i in range(16):
        words |= codes[:, :, i].int() << BITS * i
    scale, minimum = (p.flatten(1)[:, :rows].t().contiguous() for p in (packed.scale, packed.minimum))
    return words, scale, minimum


def outdated(rung: Rung) -> str:
    """Return a sentence if a newer cell defines the rung's kernel, or stopped before it could; else ""."""
    note = stale_note(rung.kernel) if isinstance(rung.kernel, JITFunction) else ""
    if not note or rung.kernel.fn.__globals__.get(rung.kernel.__name__) is rung.kernel:
        return note
    name = rung.kernel.__name__
    return f"{name} has been edited since this Rung was made: run the kernel's cell and the Rung's cell again"


def _tokens(source: str) -> list[str]:
    """Return what Python reads of a source: all but its comments, empty lines and layout."""
    aside = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENDMARKER)
    found = tokenize.generate_tokens(io.StringIO(source).readline)
    marks = {tokenize.INDENT: "->", tokenize.DEDENT: "<-"}
    return [marks.get(token.type, token.string) for token in found if token.type not in aside]


def _is_power_of_two(size: object) -> bool:
    return _is_whole(size, 1, None) and size & (size - 1) == 0


def _is_whole(value: object, least: int | None, most: int | None) -> bool:
    if isinstance(value, bool) or not isinstance(value, int):
        return False
    return (least is None or least <= value) and (most is None or value <= most)


def in_words(value: object) -> str:
    """Return a value for a message, cut to a few words."""
    text = repr(value) if isinstance(value, str | int | float | tuple | None) else f"a {type(value).__name__}"
    return text if len(text) <= 40 else f"{text[:36]} ..."
