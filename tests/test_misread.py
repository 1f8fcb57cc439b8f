"""A report names an input that is read by another stride or index, once per iteration, or not at all."""

from dataclasses import replace

import pytest

from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters import named
from puzzles_lib.checker import examine
from puzzles_lib.source import define


def report(puzzle: str, old: str, new: str) -> str:
    source = kernel_sources()[puzzle.lower()]
    assert source.count(old) == 1
    plain = replace(named()[puzzle], slips=())  # a puzzle's own slips come first
    return str(examine(define(source.replace(old, new), f"<{puzzle} {new}>"), plain))


@pytest.mark.parametrize(
    "puzzle, old, new, words",
    [
        (
            "INT8_LINEAR", "x_scale_ptr + offs_m, mask=offs_m < M", "x_scale_ptr + offs_n, mask=offs_n < N",
            "if x_scale is indexed along N, but its elements are along M",
        ),
        (
            "INT8_LINEAR", "(x_scale * w_scale) + bias", "(x_scale * w_scale) + bias * tl.cdiv(K, BLOCK_K)",
            "if bias is added in every iteration over K, 2 times",
        ),
        (
            "GROUPED_WEIGHTS", "offs_m * groups + g", "offs_m * ((groups + 7) // 8) + g",
            "if rows of scale are taken to be (K//GROUP+7)//8 elements apart, but they are K//GROUP apart",
        ),
        (
            "GROUPED_WEIGHTS", "offs_m * groups + g", "offs_m * groups + 0 * g",
            "if scale is always read at index 0 along K//GROUP",
        ),
        (
            "MUL_RELU_BACKWARD", "dz_ptr + offs,", "dz_ptr + (offs_n[None, :] * M + offs_m[:, None]),",
            "if dz is read as [N, M], but it is [M, N]",
        ),
        (
            "FUSED_LINEAR", "acc += tl.dot(codes.to(tl.int8), w)", "pass",
            "if x, wq or w_scale is 0 everywhere: is a term missing?",
        ),
    ],
)  # fmt: skip
def test_a_misread_input_is_named(puzzle, old, new, words):
    assert f"it is what you get {words}" in report(puzzle, old, new)


def test_where_the_wrong_elements_are_is_still_told():
    text = report("GROUPED_WEIGHTS", "offs_m * groups + g", "offs_m * groups + 0 * g")
    assert "all wrong elements are at 8–31 along K; it is what you get" in text


@pytest.mark.parametrize(
    "puzzle, old, new",
    [
        ("INT8_LINEAR", "(x_scale * w_scale) + bias", "(x_scale * w_scale) + bias * bias"),
        ("GROUPED_WEIGHTS", "s * (w - o)", "s * (w + o)"),
    ],
)
def test_another_mistake_is_not_taken_for_one(puzzle, old, new):
    assert "it is what you get if" not in report(puzzle, old, new)
