"""The Hopper kernel's machine code, compiled with no GPU."""

import re
import subprocess

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from puzzles_lib.kernels import dequant_gemm_hopper as hopper
from puzzles_lib.kernels.bitpack import block_rows
from puzzles_lib.wgmma import instructions, overwritten_operands


def compiled(bits: int, dtype: str):
    rows = block_rows(bits)
    blocks = max(hopper.STEP // rows, 1)

    def descriptor(element: str, shape: list[int], layout: gl.NVMMASharedLayout) -> str:
        return f"tensordesc<{element}{shape},{layout!r}>"

    kernel = hopper._dequant_gemm_dw_hopper_kernel
    signature = {
        "dy": descriptor(dtype, [hopper.STEP, hopper.BLOCK_N], hopper.SWIZZLED),
        "words": descriptor("i16", [16 * blocks, hopper.BLOCK_M], hopper.SWIZZLED),
        "params_desc": descriptor(dtype, [1, 2 * blocks, min(rows, hopper.STEP)], hopper.PLAIN),
        "out_ptr": "*fp32",
        **dict.fromkeys(("steps", "CIN", "COUT", "splits", "group_size"), "i32"),
        "BITS": "constexpr",
    }
    constants = {(kernel.arg_names.index("BITS"),): bits}
    attributes = {(kernel.arg_names.index("out_ptr"),): [["tt.divisibility", 16]]}
    source = GluonASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})


@pytest.fixture(
    scope="module", params=[(1, "bf16"), (2, "bf16"), (4, "bf16"), (8, "bf16"), (2, "fp16")], ids=str
)
def kernel(request):
    return compiled(*request.param)


def test_no_operand_is_overwritten_while_wgmma_may_read_it(kernel):
    assert overwritten_operands(kernel.asm["sass"]) == []


def test_one_wait_too_few_would_be_found(kernel):
    hasty = kernel.asm["sass"].replace("DEPBAR.LE gsb0, 0x2", "DEPBAR.LE gsb0, 0x3")
    assert overwritten_operands(hasty)


def test_the_left_operand_comes_from_registers(kernel):
    products = [operands for name, operands in instructions(kernel.asm["sass"]) if name.startswith("HGMMA")]
    assert len(products) == hopper.STEP // 16
    assert all(re.match(r"R\d+, R\d+, gdesc", operands) for operands in products)


def test_unpacked_values_do_not_move(kernel):
    assert "ttg.convert_layout" not in kernel.asm["ttgir"]
    assert not re.search(r"\bSHFL|\bSTS", kernel.asm["sass"])


def test_ptxas_keeps_wgmma_asynchronous_and_spills_nothing(kernel, tmp_path):
    (tmp_path / "kernel.ptx").write_text(kernel.asm["ptx"])
    command = [triton.knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", str(tmp_path / "kernel.ptx")]
    said = subprocess.run([*command, "-o", str(tmp_path / "cubin")], capture_output=True, text=True).stderr
    assert "C75" not in said
    assert "0 bytes spill stores, 0 bytes spill loads" in said


def test_shared_memory_fits_a_hopper_multiprocessor(kernel):
    assert kernel.metadata.shared <= 227 * 1024


LOOP = """
LBB0:
--:-:-:-:1\tLDSM.16.MT88.4 R4, [R2];
--:-:-:-:1\tHFMA2.BF16_V2 R8, R4, R5, R6;
--:-:-:-:1\tHGMMA.64x128x16.F32.BF16 R88, R8, gdesc[UR28].tnspB, R88, gsb0;
--:-:-:-:1\tWARPGROUP.DEPBAR.LE gsb0, {left};
--:-:-:-:1\t@P0 BRA LBB0;
--:-:-:-:1\tEXIT;
"""


@pytest.mark.parametrize(("left", "found"), [("0x0", 0), ("0x1", 1)])
def test_an_overwritten_operand_is_found_over_the_edge_of_the_loop(left, found):
    assert len(overwritten_operands(LOOP.format(left=left))) == found


@pytest.mark.parametrize(
    ("tiles", "steps", "size", "splits"),
    [
        (18, 788, 768 * 768, 7),
        (18, 64, 768 * 768, 7),
        (1376, 128, 11008 * 4096, 1),
        (1, 1, 128 * 256, 1),
        (1, 2, 128 * 256, 1),
    ],
)
def test_splits_fill_the_multiprocessors_and_none_is_empty(tiles, steps, size, splits):
    assert hopper.choose_splits(tiles, steps, size, 132) == splits


@pytest.mark.parametrize("steps", [1, 2, 3, 7, 64, 1000])
def test_there_are_never_more_splits_than_steps(steps):
    for tiles in (1, 2, 5, 40, 300):
        assert 1 <= hopper.choose_splits(tiles, steps, 768 * 768, 132) <= steps
