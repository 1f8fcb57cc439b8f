"""No size is baked in unseen: what holds twice the listed cases does not hold the drawn ones.

A learner who sees rows of 100 may well take 128 for all there are, or 256 to be on the safe side. Here each
solution is given such a belief, about a size or about the turns of a loop, and is tried on what is drawn.
"""

import ast
import dataclasses
import itertools

import pytest

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.contract import beyond
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import define

SALTS = ("", "monday", "tuesday")
NO_LENGTHS = {
    "BITS": "is 1, 2, 4 or 8, and each is listed",
    "BLOCK_K": "is a block",
    "BLOCK_N": "is a block",
    "TILE_K": "is a block",
    "TILE_N": "is a block",
    "NEED_DB": "is 0 or 1",
    "NEED_DW": "is 0 or 1",
    "OFFSET": "is counted from",
    "SEED": "is a seed",
    "SIZE": "is divided by",
    "stride_xm": "is multiplied by",
    "stride_xn": "is multiplied by",
}
"""Sizes that nothing goes through, and why."""
A_PROGRAM_EACH = {
    ("packed_along_k", "GROUP"),
    ("varlen_attention", "B"),
    ("varlen_attention", "H"),
    ("varlen_attention", "H_KV"),
    ("attention_dkv", "H"),
    ("attention_dkv", "H_KV"),
    ("rope", "D"),
    *(("paged_attention", name) for name in ("B", "H", "H_KV", "D", "PAGE", "PAGES", "PART")),
    ("merge_parts", "D"),
    ("grouped_matmul", "E"),
    ("swiglu_down", "E"),
    ("sample_token", "B"),
    *(("nucleus_token", name) for name in ("B", "P")),
}
"""Others: a program has to do with one of them, or with a share that is drawn large, or it is a constant."""


def lengths(puzzle: Puzzle) -> list[str]:
    sizes = [name for name in puzzle.cases[0].numbers if name in puzzle.sizes]
    return [n for n in sizes if n not in NO_LENGTHS and (puzzle.name, n) not in A_PROGRAM_EACH]


def twice_the_listed(puzzle: Puzzle, name: str) -> int:
    """What holds twice the power of two that the listed cases need."""
    return 2 * (beyond(max(case.numbers[name] for case in puzzle.cases if not case.pretend)) - 1)


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_some_draw_goes_beyond_twice_what_holds_the_listed_cases(puzzle):
    for salt, name in itertools.product(SALTS, lengths(puzzle)):
        drawn = max(case.numbers[name] for case in puzzle.drawn(salt))
        assert drawn > twice_the_listed(puzzle, name), (salt, name)


# ---- solutions with a belief


def taken(source: str) -> dict[str, bool]:
    """The parameters of a cell's kernel, and whether they are constants."""
    kernel = [node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)][-1]
    return {argument.arg: argument.annotation is not None for argument in kernel.args.args}


def believing(source: str, name: str, most: int) -> str:
    """A cell whose kernel takes one of its parameters to be ``most`` at most."""
    tree = ast.parse(source)
    kernel = [node for node in tree.body if isinstance(node, ast.FunctionDef)][-1]
    for node in (node for statement in kernel.body for node in ast.walk(statement)):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = f"my_{name}"
    kind = ": tl.constexpr" if taken(source)[name] else ""
    kernel.body.insert(0, ast.parse(f"my_{name}{kind} = min({name}, {most})").body[0])
    return ast.unparse(tree)


def turning(source: str, loop: int, most: int) -> str:
    """A kernel, one of whose loops, in the order of `ast.walk`, makes ``most`` turns at most."""
    tree = ast.parse(source)
    walked = [node for node in ast.walk(tree) if isinstance(node, ast.For)][loop].iter
    first, end, step = ([ast.unparse(a) for a in walked.args] + ["1"])[:3] if walked.args[1:] else (
        "0", ast.unparse(walked.args[0]), "1",
    )  # fmt: skip
    limited = f"min({end}, {first} + {most} * ({step}))"
    walked.args = [ast.parse(text, mode="eval").body for text in (first, limited, step)]
    return ast.unparse(tree)


def is_refused(puzzle: Puzzle, source: str, name: str, size: str = "") -> bool:
    """By the drawn cases alone, which is quicker; and those where ``size`` is largest are tried first."""
    cases = sorted(puzzle.drawn(), key=lambda case: -case.numbers.get(size, 0))
    drawn = dataclasses.replace(puzzle, cases=tuple(cases), contract=None, machine=(), traffic=())
    report = examine(define(source + "\n", name), drawn, until_failure=True)
    return not report.ok


SIZES = [
    pytest.param(puzzle, name, id=f"{puzzle.name}-{name}")
    for puzzle in puzzles()
    for name in lengths(puzzle)
    if name in taken(kernel_sources()[puzzle.name])
]


@pytest.mark.parametrize("puzzle, name", SIZES)
def test_a_size_taken_to_be_twice_what_is_listed_at_most(puzzle, name):
    source = believing(kernel_sources()[puzzle.name], name, twice_the_listed(puzzle, name))
    assert is_refused(puzzle, source, f"<{puzzle.name} of {name}>", name)


TURNS = (
    ("long_sum", 0, 16),
    ("long_softmax", 0, 8),
    ("long_softmax", 1, 8),
    ("long_softmax", 2, 8),
    ("online_softmax", 0, 8),
    ("online_softmax", 1, 8),
    ("scalar_flash_attention", 0, 16),
    ("flash_attention", 0, 16),
    ("conv2d", 0, 8),
    ("conv2d", 1, 16),
    ("batched_matmul", 0, 32),
    ("quantized_matmul", 0, 8),
    ("once_per_group", 0, 32),
    ("fused_dw", 0, 8),
    ("busy_dw", 0, 8),
    ("split_k", 0, 8),
    ("two_programs", 0, 4),
    ("packed_along_k", 0, 8),
    ("quantize_rows", 0, 8),
    ("quantize_rows", 1, 8),
    ("int8_linear", 0, 32),
    ("fused_linear", 0, 8),
    ("fused_linear", 1, 8),
    ("tiled_linear", 0, 16),
    ("linear_backward", 0, 8),
    ("layer_norm_dw", 0, 4),
    ("layer_norm_dw", 1, 8),
    ("dw_by_lock", 0, 8),
    ("long_layer_norm", 0, 8),
    ("linear_recurrence", 0, 8),
    ("window_attention", 0, 16),
    ("varlen_attention", 0, 8),
    ("attention_dq", 0, 16),
    ("attention_dkv", 0, 8),
    ("attention_dkv", 1, 16),
    ("linear_cross_entropy", 0, 16),
    ("linear_cross_entropy", 1, 8),
    ("linear_cross_entropy_grad", 0, 8),
    ("mxfp4_matmul", 0, 8),
    ("route", 0, 8),
    ("route", 1, 8),
    ("tile_order", 0, 8),
    ("running_sums", 0, 16),
    ("kept_scores", 0, 8),
    ("products", 0, 4),
    ("attended", 0, 8),
    ("tuned_rows", 0, 32),
)
"""Loops of the solutions, and twice the power of two of turns that is right for the listed cases."""


@pytest.mark.parametrize("name, loop, most", TURNS)
def test_a_loop_taken_to_make_twice_as_many_turns_as_are_listed_at_most(name, loop, most):
    (puzzle,) = (puzzle for puzzle in puzzles() if puzzle.name == name)
    source = turning(kernel_sources()[name], loop, most)
    assert is_refused(puzzle, source, f"<{name} with {most} turns>")
