"""Layouts agree, element for element, with Triton's own printing of them."""

import re

import pytest
from triton.experimental.gluon.language import (
    BlockedLayout,
    DotOperandLayout,
    NVMMADistributedLayout,
    SliceLayout,
)
from triton.experimental.gluon.language.amd import AMDMFMALayout

from puzzles_lib.compiler.layouts import Layout, read_layout


def as_printed(layout: Layout) -> list[str]:
    """``T33:2| T97:2`` for each element in order: thread of the program, register; as Triton prints."""
    cells: dict = {}
    for warp, lane, register in (
        (w, t, r) for w in range(layout.warps) for t in range(layout.lanes) for r in range(layout.registers)
    ):
        name = f"T{warp * layout.lanes + lane}:{register}"
        cells.setdefault(layout.element(warp, lane, register), []).append(name)
    return ["|".join(cells[element]) for element in sorted(cells)]


def tritons(layout, shape) -> list[str]:
    text = layout.format_tensor_view(list(shape))
    return [re.sub(r"\s", "", cell) for cell in re.split(r",", text.replace("[", "").replace("]", ","))[:-1]
            if cell.strip()]  # fmt: skip


def ir_of(name: str, text: str) -> str:
    return f"{name} = {text}\nmodule {{}}\n"


def blocked(size, threads, warps, order) -> str:
    return (
        f"#ttg.blocked<{{sizePerThread = {size}, threadsPerWarp = {threads}, "
        f"warpsPerCTA = {warps}, order = {order}}}>"
    )


BLOCKED = [
    ([4], [32], [4], [0], (1024,)),
    ([4], [32], [4], [0], (512,)),
    ([2], [32], [4], [0], (128,)),  # half of the threads hold what the other half holds
    ([1], [32], [8], [0], (64,)),
    ([8], [32], [1], [0], (4,)),  # less than one thread's share
    ([4], [64], [4], [0], (4096,)),  # AMD's warps
    ([1, 8], [4, 8], [4, 1], [1, 0], (128, 64)),
    ([1, 8], [2, 16], [4, 1], [1, 0], (64, 128)),
    ([2, 4], [8, 4], [2, 2], [1, 0], (64, 64)),
    ([2, 4], [8, 4], [2, 2], [0, 1], (64, 64)),
    ([4, 8], [4, 16], [4, 1], [1, 0], (16, 128)),
    ([1, 1], [4, 8], [4, 1], [1, 0], (1, 64)),
    ([1, 2, 4], [2, 4, 4], [2, 1, 2], [2, 1, 0], (4, 16, 32)),
]


@pytest.mark.parametrize("size, threads, warps, order, shape", BLOCKED)
def test_blocked(size, threads, warps, order, shape):
    mine = read_layout(ir_of("#blocked", blocked(size, threads, warps, order)), "#blocked", shape)
    assert as_printed(mine) == tritons(BlockedLayout(size, threads, warps, order), shape)
    assert mine.warps == warps[0] * (warps[1] if len(warps) > 1 else 1) * (warps[2] if len(warps) > 2 else 1)


@pytest.mark.parametrize("dim, shape", [(0, (64,)), (1, (128,)), (0, (128,)), (1, (8,))])
def test_slice(dim, shape):
    parent = ([1, 8], [4, 8], [4, 1], [1, 0])
    mine = read_layout(
        ir_of("#blocked", blocked(*parent)), f"#ttg.slice<{{dim = {dim}, parent = #blocked}}>", shape
    )
    assert as_printed(mine) == tritons(SliceLayout(dim, BlockedLayout(*parent)), shape)


MMA = [
    (2, [2, 2], [16, 8], (128, 128)),
    (2, [4, 1], [16, 8], (64, 32)),
    (2, [2, 2], [16, 8], (16, 8)),
    (3, [4, 1], [16, 128, 16], (128, 128)),
    (3, [4, 1], [16, 64, 16], (128, 64)),
    (3, [8, 1], [16, 128, 16], (128, 256)),
    (3, [4, 2], [16, 64, 16], (64, 128)),
]


def mma(version, warps, instruction) -> str:
    return (
        f"#ttg.nvidia_mma<{{versionMajor = {version}, versionMinor = 0, warpsPerCTA = {warps}, "
        f"instrShape = {instruction}}}>"
    )


@pytest.mark.parametrize("version, warps, instruction, shape", MMA)
def test_accumulators_of_tensor_cores(version, warps, instruction, shape):
    mine = read_layout(ir_of("#mma", mma(version, warps, instruction)), "#mma", shape)
    assert as_printed(mine) == tritons(NVMMADistributedLayout([version, 0], warps, instruction), shape)


@pytest.mark.parametrize("warps", [[2, 2], [4, 1], [1, 4]])
@pytest.mark.parametrize("width", [2, 4])
@pytest.mark.parametrize("operand, shape", [(0, (128, 64)), (1, (64, 128)), (0, (32, 32)), (1, (32, 32))])
def test_operands_of_tensor_cores(operand, shape, warps, width):
    parent = NVMMADistributedLayout([2, 0], warps, [16, 8])
    attribute = f"#ttg.dot_op<{{opIdx = {operand}, parent = #mma, kWidth = {width}}}>"
    mine = read_layout(ir_of("#mma", mma(2, warps, [16, 8])), attribute, shape)
    assert as_printed(mine) == tritons(DotOperandLayout(operand, parent, width), shape)


@pytest.mark.parametrize("side, depth", [(32, 8), (16, 16)])
@pytest.mark.parametrize("transposed", [True, False])
@pytest.mark.parametrize("shape", [(64, 64), (128, 128)])
def test_accumulators_of_matrix_cores(side, depth, transposed, shape):
    text = (
        f"#ttg.amd_mfma<{{version = 3, warpsPerCTA = [2, 2], instrShape = [{side}, {side}, {depth}], "
        f"isTransposed = {str(transposed).lower()}}}>"
    )
    mine = read_layout(ir_of("#mma", text), "#mma", shape)
    theirs = AMDMFMALayout(3, [side, side, depth], transposed, [2, 2])
    assert as_printed(mine) == tritons(theirs, shape)


def test_linear_is_what_it_says():
    text = "#ttg.linear<{register = [[0, 1], [0, 2]], lane = [[1, 0], [2, 0], [4, 0]], warp = [[8, 0]], block = []}>"  # noqa: E501
    layout = read_layout(ir_of("#linear", text), "#linear", (16, 4))
    assert (layout.warps, layout.lanes, layout.registers) == (2, 8, 4)
    assert layout.element(1, 5, 3) == (13, 3)
    assert layout.holders((13, 3)) == ((1, 5, 3),)


def test_holders_of_an_element_that_several_threads_hold():
    layout = read_layout(ir_of("#b", blocked([2], [32], [4], [0])), "#b", (64,))
    assert layout.holders((5,)) == ((0, 2, 1), (1, 2, 1), (2, 2, 1), (3, 2, 1))
    with pytest.raises(ValueError, match="element .64,. is not in a tensor of shape .64,."):
        layout.holders((64,))


# ---- messages


def test_unknown_names_are_answered_with_those_there_are():
    with pytest.raises(ValueError, match="no layout is called '#shared'; there are: #blocked"):
        read_layout(ir_of("#blocked", blocked([4], [32], [4], [0])), "#shared", (64,))


@pytest.mark.parametrize(
    "text, words",
    [
        ("#ttg.amd_wmma<{version = 1}>", "must be of kind blocked.*, but is of kind amd_wmma"),
        (mma(5, [4, 1], [16, 8]), "nvidia_mma must have version 2 or 3, but has 5"),
        ("#ttg.shared_memory", "is not a layout"),
    ],
)
def test_other_layouts_are_refused(text, words):
    with pytest.raises(ValueError, match=words):
        read_layout(ir_of("#a", text), "#a", (64, 64))


def test_operands_of_wgmma_are_refused():
    with pytest.raises(ValueError, match="can only be read for an nvidia_mma of version 2"):
        read_layout(ir_of("#mma", mma(3, [4, 1], [16, 64, 16])),
                    "#ttg.dot_op<{opIdx = 0, parent = #mma, kWidth = 2}>", (64, 64))  # fmt: skip


def test_sizes_must_be_powers_of_two():
    with pytest.raises(ValueError, match=r"shape must be a power of two, but is \(48,\)"):
        read_layout(ir_of("#blocked", blocked([4], [32], [4], [0])), "#blocked", (48,))
