"""Make ``notebooks/just_the_puzzles.ipynb``: the puzzles of chapters 01 to 08 in one notebook.

It is for those who know some Triton or CUDA already, and is made from the exercises by every release. A
puzzle has a sentence or two, the chapter's picture of the plan, the statement, an empty kernel and its hints.
"""

import ast
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import nbformat
from nbformat import NotebookNode

from puzzles_lib.notebooks import JUST_THE_PUZZLES as NAME
from puzzles_lib.stubs import HOLE

__all__ = ["NAME", "PARTS", "Part", "empty", "just_the_puzzles"]

_TITLE = (
    "# Just the puzzles\n\nHere are the puzzles of chapters 01 to 08 without the lessons: {count} empty "
    "kernels, from `x + 10` to flash attention and a matmul with 4-bit weights. They follow Sasha Rush's "
    "[Triton Puzzles](https://github.com/srush/Triton-Puzzles).\n\nFill in a kernel and run its cell. "
    "It runs on the CPU, and the report names the most basic fault. `hint` helps when you're stuck, and "
    "each puzzle has a link to its lesson. A puzzle that you solve here counts as solved in its chapter."
)


_CUDA = """## Coming from CUDA?

| in CUDA | in Triton |
|---|---|
| a thread block, `blockIdx.x` | a **program**, `tl.program_id(0)` |
| its threads, `threadIdx.x` | You don't see them. You compute with whole blocks of numbers; `tl.arange(0, BLOCK)` numbers their lanes. |
| `blockDim.x` | `BLOCK`, a power of two, is up to you. `num_warps` says how many threads share the work. |
| `if (i < n)` | `mask=offs < n` in each load and store |
| an `if` that differs from thread to thread | `tl.where(condition, a, b)` |
| `__shared__`, `__syncthreads()`, coalescing | the compiler's work |
| shuffles, reductions in shared memory | `tl.sum(x, axis=1)`, `tl.max(x, axis=1)` |
| tensor cores: `wmma`, `mma`, `wgmma` | `tl.dot(a, b, acc)` |
| `cp.async` and buffers in a ring | `num_stages` |
| a template parameter | a parameter marked `tl.constexpr` |
| `kernel<<<grid, threads>>>(x, n)` | `kernel[grid](x, n, BLOCK=1024, num_warps=4)`, with PyTorch tensors |
"""  # noqa: E501

_CUDA_TRAPS = """Four things surprise people who come from CUDA:

- A masked lane has no value unless you give it one with `other=`. In a sum it counts.
- You can't take one lane out of a block: `x[3]` is an error. Reduce instead.
- Offsets are int32 like the numbers that they're made of. Past 2³¹ elements they wrap.
- An `atomic_add` on a block is one atomic per lane, not one for the block.

**The entrance test:** solve puzzles 4, 8 and 11 below. If you can, [chapter 00](00_welcome.ipynb) says where to go on.
"""  # noqa: E501


@dataclass(frozen=True)
class Part:
    """One puzzle. id: how its cells' ids in the chapter begin. picture: the id of the picture's cell."""

    id: str
    title: str
    text: str
    picture: str = ""


PARTS: Mapping[str, tuple[Part, ...]] = {
    "01_blocks": (
        Part(
            "p1",
            "Puzzle 1 · Constant add",
            "Each program adds 10 to one block of `BLOCK` elements. The blocks fit exactly.",
            "p1-picture",
        ),
        Part(
            "p2",
            "Puzzle 2 · Masked add",
            "The same for any length. The last block sticks out, so its loads and stores need a mask.",
            "p2-picture",
        ),
        Part("p2b", "Puzzle 2b · Reversed add", "The same, but the last element comes first."),
    ),
    "02_broadcasting": (
        Part(
            "p3",
            "Puzzle 3 · Outer add",
            "A single program adds every element of `x` to every element of `y`. `z` is stored row by row.",
            "p3-picture",
        ),
        Part(
            "p4",
            "Puzzle 4 · Outer add in blocks",
            "The same for any size. The grid has two axes: axis 0 counts blocks of rows, "
            "and axis 1 counts blocks of columns.",
            "p4-picture",
        ),
    ),
    "03_fusion": (
        Part(
            "p5",
            "Puzzle 5 · Multiply and relu",
            "Two operations in one kernel, with the grid of puzzle 4. The product never goes to memory.",
        ),
        Part(
            "p6",
            "Puzzle 6 · A gradient",
            "The gradient of $\\operatorname{relu}(x\\,y)$ with respect to $x$. "
            "Now `x` is a matrix, and `y` has one number per row.",
            "p6-picture",
        ),
    ),
    "04_reductions": (
        Part(
            "p7",
            "Puzzle 7 · Long sum",
            "Each program sums `BLOCK_M` rows. A row can be longer than a block, so loop over it.",
            "p7-picture",
        ),
        Part(
            "p8",
            "Puzzle 8 · Long softmax",
            "A softmax over rows of any length. The numbers can be large, so subtract the row's maximum.",
            "p8-picture",
        ),
        Part(
            "p8b",
            "Puzzle 8b · One loop fewer",
            "The same softmax in two loops. The first one finds the maximum and the sum together.",
        ),
    ),
    "05_flash_attention": (
        Part(
            "p9",
            "Puzzle 9 · Scalar flash attention",
            "Attention with one number per query, key and value. A program has `BLOCK_Q` queries "
            "and loops over the keys and values once, so the softmax has to be online.",
            "p9-picture",
        ),
        Part(
            "p9b",
            "Puzzle 9b · Flash attention",
            "Now with vectors of $D$ numbers, `tl.dot`, scores divided by $\\sqrt{D}$, and a causal mask. "
            "Leave out the keys that no query of the block may see.",
            "p9b-picture-3",
        ),
    ),
    "06_convolution": (
        Part(
            "p10",
            "Puzzle 10 · Conv2d",
            "A batch of images and one filter. Axis 0 of the grid counts blocks of images, "
            "axis 1 blocks of rows, and axis 2 blocks of columns.",
            "p10-picture-3",
        ),
        Part(
            "p10b",
            "Puzzle 10b · Life",
            "One generation of Conway's Game of Life. The grid has two axes, rows and columns.",
        ),
    ),
    "07_matmul": (
        Part(
            "p11",
            "Puzzle 11 · Batched matmul",
            "float16 in and out, with sums in float32. Axis 0 of the grid counts blocks of rows, "
            "axis 1 blocks of columns, and axis 2 the matrices.",
            "p11-picture",
        ),
    ),
    "08_quantized_matmul": (
        Part(
            "p12a",
            "Puzzle 12a · Codes",
            "An int32 word contains eight codes of 4 bits. Store each code as a number.",
            "p12c-picture",
        ),
        Part(
            "p12b",
            "Puzzle 12b · Weights",
            "Each group of `GROUP` columns has a scale and an offset. The offsets are packed like the codes.",
            "p12c-picture-3",
        ),
        Part(
            "p12c",
            "Puzzle 12c · Quantized matmul",
            "Multiply the weights of puzzle 12b by the activations, and never store a weight.",
            "p12c-picture-4",
        ),
        Part(
            "p12d",
            "Puzzle 12d · Once per group",
            "The same result with fewer loads: in all of its cases, the columns of an iteration "
            "belong to one group.",
        ),
    ),
}


def just_the_puzzles(exercises: Mapping[str, NotebookNode]) -> NotebookNode:
    """Return the notebook.

    exercises: by the name of the chapter, such as "01_blocks".
    Raises ValueError if a chapter or a cell is missing.
    """
    cells = [cell for chapter, parts in PARTS.items() for cell in _chapter(chapter, parts, exercises)]
    names = sorted({name for cell in cells if cell.cell_type == "code" for name in _asked(cell.source)})
    listed = ", ".join(sorted({"check", "hint", "trace", "watch", *names})) + ","
    listed = textwrap.fill(listed, 80, initial_indent="    ", subsequent_indent="    ") + "\n"
    imports = (
        f"import torch\nimport triton\nimport triton.language as tl\n\nfrom puzzles_lib import (\n{listed})"
    )
    count = sum(len(parts) for parts in PARTS.values())
    first = [
        nbformat.v4.new_markdown_cell(_TITLE.format(count=count), id="title"),
        nbformat.v4.new_markdown_cell(_CUDA.rstrip(), id="cuda"),
        nbformat.v4.new_markdown_cell(_CUDA_TRAPS.rstrip(), id="cuda-traps"),
        nbformat.v4.new_code_cell(imports, id="imports"),
    ]
    notebook = nbformat.v4.new_notebook(cells=first + cells)
    notebook.metadata = nbformat.from_dict(next(iter(exercises.values())).metadata)
    number = 0
    for cell in notebook.cells:
        if cell.get("outputs"):
            number += 1
            cell.execution_count = number
            for output in cell.outputs:
                if "execution_count" in output:
                    output.execution_count = number
    return notebook


def empty(source: str) -> str:
    """Return a cell with the body of its kernel replaced by an empty hole, and nothing else."""
    tree, lines = ast.parse(source), source.splitlines()
    kernel = next(node for node in tree.body if isinstance(node, ast.FunctionDef))
    last = [line for line in lines[kernel.end_lineno :] if line.startswith("check(")]
    head = lines[kernel.decorator_list[0].lineno - 1 : kernel.body[0].lineno - 1]
    while head and head[-1].lstrip().startswith("#"):
        head.pop()
    return "\n".join([*head, f"    {HOLE}", "    pass", "", "", *last])


def _chapter(
    chapter: str, parts: tuple[Part, ...], exercises: Mapping[str, NotebookNode]
) -> Iterator[NotebookNode]:
    if chapter not in exercises:
        raise ValueError(f"there is no exercise {chapter}")
    cells = {cell.id: cell for cell in exercises[chapter].cells}
    for part in parts:
        names = [f"{part.id}-puzzle", f"{part.id}-kernel", f"{part.id}-hints", *filter(None, [part.picture])]
        if missing := [name for name in names if name not in cells]:
            raise ValueError(f"{chapter}.ipynb has no cell {missing[0]}")
        text = f"## {part.title}\n\n{part.text} The lesson: [chapter {chapter[:2]}]({chapter}.ipynb)."
        yield nbformat.v4.new_markdown_cell(text, id=f"{part.id}-text")
        if part.picture:
            yield _copy(cells[part.picture], f"{part.id}-picture")
        yield _copy(cells[f"{part.id}-puzzle"], f"{part.id}-puzzle")
        kernel = _copy(cells[f"{part.id}-kernel"], f"{part.id}-kernel")
        kernel.source = empty(kernel.source)
        yield kernel
        yield _copy(cells[f"{part.id}-hints"], f"{part.id}-hints")


def _copy(cell: NotebookNode, cell_id: str) -> NotebookNode:
    copy = nbformat.from_dict(cell)
    copy.id = cell_id
    return copy


def _asked(source: str) -> set[str]:
    """The puzzles and the chapters that a cell names."""
    names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)}
    return {name for name in names if name.isupper() or name.startswith("ch0")}
