"""The bench of chapter 10's kernels measures chapter 10's kernels."""

import ast

import pytest

from puzzles_lib.authoring.solutions import kernel_cells
from puzzles_lib.bench import row_wise


@pytest.mark.parametrize("puzzle", ["quantize_pack", "unpack_dequantize"])
def test_its_kernels_are_the_chapters(puzzle):
    def body(source: str) -> str:
        (function,) = (node for node in ast.parse(source).body if isinstance(node, ast.FunctionDef))
        return ast.dump(ast.Module(function.body, [])) + ast.dump(function.args)

    assert body(getattr(row_wise, f"_{puzzle}_kernel").src) == body(kernel_cells()[puzzle])
