"""`puzzles_lib.authoring.modules`: a chapter's cells as a module that code can import."""

from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from puzzles_lib.authoring.modules import modules

SETUP = new_code_cell("import torch\nimport triton\nimport triton.language as tl")
KERNEL = new_code_cell(
    "# of the cell\n@triton.jit\ndef double(x_ptr):  # [N]\n    tl.store(x_ptr, 2 * tl.load(x_ptr))",
    metadata={"tags": ["module:versions"]},
)
LAUNCH = new_code_cell(
    "from puzzles_lib.puzzle import Case, Puzzle\n\n\nsizes = {'N': 4}\nfirst = Case(**sizes)\nprint(first)",
    metadata={"tags": ["module:versions"]},
)


def made(*cells):
    return modules(new_notebook(cells=list(cells)), "07_matmul")


def test_definitions_and_the_imports_that_they_need_and_nothing_else():
    assert made(SETUP, new_markdown_cell("# words"), KERNEL, new_code_cell("double"), LAUNCH) == {
        "versions": '''"""Cells of chapter 07: made by `make notebooks`, to be changed in its notebook."""

import triton
import triton.language as tl

from puzzles_lib.puzzle import Case


@triton.jit
def double(x_ptr):  # [N]
    tl.store(x_ptr, 2 * tl.load(x_ptr))


sizes = {'N': 4}
first = Case(**sizes)
'''
    }


def test_a_module_for_each_name_and_none_without_tags():
    other = new_code_cell("x = 1", metadata={"tags": ["module:numbers", "hide"]})
    assert set(made(SETUP, KERNEL, other)) == {"versions", "numbers"}
    assert made(SETUP, new_code_cell("x = 1", metadata={"tags": ["hide"]})) == {}


def test_an_answer_is_taken_and_its_hole_is_not():
    hole = new_code_cell(
        "parts = ...\n### BEGIN SOLUTION 1 line\nparts = 7\n### END SOLUTION\nrace(parts)",
        metadata={"tags": ["module:versions"]},
    )
    text = made(hole)["versions"]
    assert text.endswith("\n\nparts = 7\n") and "..." not in text and "SOLUTION" not in text
