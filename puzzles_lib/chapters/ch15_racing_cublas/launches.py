"""Some hundred launches of the ladder's kernels, such as readers may try: to be timed once on an H200."""

import linecache
from collections.abc import Iterator

from triton.runtime.jit import JITFunction

from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.hasty import hasty
from puzzles_lib.chapters.ch15_racing_cublas.rung import ROWS, Rung

_BY_NUMBER = (
    "words = words >> 8 * tl.load(numbers_ptr + half + tl.zeros((1, 1), tl.int32))",
    "words = words >> (8 * half).to(tl.int16)",
)  # the edit that chapter 15 proposes for rungs 5 and 6


def own() -> list[Rung]:
    """Return the chapter's rungs, and its example of what goes wrong."""
    return [*(value for value in vars(versions).values() if isinstance(value, Rung)), hasty]


def grid() -> list[Rung]:
    """Return all rungs except those of `own`."""
    made = {rung.digest: rung for rung in _grid()}
    kept = {rung.digest for rung in own()}
    return [rung for digest, rung in made.items() if digest not in kept]


def _grid() -> Iterator[Rung]:
    row_words, along_k, subnormal = (
        versions.row_words_kernel,
        versions.along_k_kernel,
        versions.subnormal_kernel,
    )
    yield from _some("1", row_words, (64, 64, 32), 4, splits=(7, 11, 16))
    yield from _some("1", row_words, (64, 64, 64), 4, splits=(8,))
    yield from _some("1", row_words, (128, 64, 64), 4, splits=(8, 11))
    yield from _some("1", row_words, (64, 128, 64), 4, splits=(8, 11))
    yield from _some("1", row_words, (128, 128, 32), 4, splits=(7, 11))
    yield from _some("1", row_words, (128, 128, 64), 4, splits=(7, 11, 14))
    yield from _some("1", row_words, (128, 128, 64), 8, splits=(7, 14))
    yield from _some("1", row_words, (256, 64, 64), 8, splits=(7, 11))
    yield from _some("1", row_words, (256, 128, 32), 8, splits=(7, 8))
    yield from _some("1", row_words, (256, 128, 64), 8, splits=(4, 5, 6, 7, 14, 22))
    yield from _some("1", row_words, (256, 128, 64), 8, splits=(7,), stages=(2, 4))
    for number, kernel in (("3", along_k), ("4", subnormal)):
        yield from _some(number, kernel, (256, 128, 128), 8, splits=(4, 6, 7, 14, 22))
        yield from _some(number, kernel, (256, 128, 128), 8, splits=(7,), stages=(2,))
        yield from _some(number, kernel, (128, 128, 128), 4, splits=(7, 11))
        yield from _some(number, kernel, (128, 128, 128), 8, splits=(7,))
        yield from _some(number, kernel, (64, 128, 128), 4, splits=(7,))
    for number, kernel, stages in (("5", versions.one_dot_kernel, 3), ("6", versions.descriptor_kernel, 4)):
        by_number = _edited(kernel, *_BY_NUMBER)
        yield from _some(number, kernel, (256, 128, 64), 8, splits=(4, 5, 6, 7, 11, 14, 22), stages=(stages,))
        yield from _some(number, kernel, (256, 128, 64), 8, splits=(7, 8), stages=(2, 3, 4, 5, 6))
        yield from _some(f"{number}, shift by a number", by_number, (256, 128, 64), 8, (7, 8), (stages,))
        yield from _some(number, kernel, (128, 128, 64), 4, splits=(7, 11, 14), stages=(3, 4))
        yield from _some(number, kernel, (128, 128, 64), 8, splits=(7,), stages=(3,))
        yield from _some(number, kernel, (128, 256, 64), 8, splits=(7,), stages=(3,))
        yield from _some(number, kernel, (64, 128, 64), 4, splits=(7,), stages=(3,))
    for number, kernel in (("8", versions.whole_block_kernel), ("9", versions.in_pieces_kernel)):
        yield from _some(number, kernel, (256, 128, 128), 8, splits=(4, 5, 6, 8, 11, 14, 22))
        yield from _some(number, kernel, (256, 128, 128), 8, splits=(7,), stages=(2,))
        yield from _some(number, kernel, (128, 128, 128), 4, splits=(7, 11), stages=(2, 3))
        yield from _some(number, kernel, (128, 128, 128), 8, splits=(7, 11), stages=(2, 3))
        yield from _some(number, kernel, (64, 128, 128), 4, splits=(7,))


def _some(
    number: str,
    kernel: JITFunction,
    tile: tuple[int, int, int],
    warps: int,
    splits: tuple[int, ...],
    stages: tuple[int, ...] = (3,),
) -> Iterator[Rung]:
    """tile: BLOCK_M, BLOCK_N, BLOCK_K."""
    m, n, k = tile
    by_descriptor = any(name.endswith("_desc") for name in kernel.arg_names)
    tiles = {"words": (16, n), "params": (1, 256), "dy": (k, m)} if by_descriptor else {}
    for count in stages:
        for parts in splits:
            if parts * k <= min(ROWS):
                name = f"{number}: {m} x {n} x {k}, {warps} warps, {count} stages, {parts} parts"
                yield Rung(
                    name, kernel, splits=parts, num_warps=warps, num_stages=count, descriptors=tiles,
                    BLOCK_M=m, BLOCK_N=n, BLOCK_K=k,
                )  # fmt: skip


def _edited(kernel: JITFunction, old: str, new: str) -> JITFunction:
    """The kernel with a line changed. Raises ValueError where it has no such line."""
    if old not in kernel.src:
        raise ValueError(f"{kernel.__name__} has no {old!r}")
    source = "import triton\n@triton.jit\n" + kernel.src.replace(old, new)
    name = f"<{kernel.__name__}, edited>"
    linecache.cache[name] = (
        len(source),
        None,
        source.splitlines(keepends=True),
        name,
    )  # Triton reads it there
    scope = dict(kernel.fn.__globals__)
    exec(compile(source, name, "exec"), scope)
    return scope[kernel.__name__]
