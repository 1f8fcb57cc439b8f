"""What `step` reads off a compiled kernel's loop."""

import pytest

from puzzles_lib import BATCHED_MATMUL, FUSED_DW, INT8_LINEAR, PACKED_ALONG_K, Case, stages
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.inspector.sass import matrix_loop
from puzzles_lib.inspector.step import PRODUCTS, step
from tests.kernels.ch12_fused_dequant_gemm import float32_operands, tf32_operands

SASS = """\
0000  LDC R1, c[0x0][0x28]
.L_x_0:
0010  IADD3 R2, R2, 0x1, RZ
.L_x_1:
0020  HMMA.16816.F32.BF16 R8, R4, R2, R8
0030  @!P0 BRA `(.L_x_1)
0040  @P1 BRA `(.L_x_2)
0050  BRA `(.L_x_0)
.L_x_2:
0060  @P2 BRA `(.L_x_2)
0070  EXIT
"""


def compiled(puzzle, target="sm_90", num_warps=4, **blocks):
    case = Case(K=4096, COUT=256, CIN=256, BITS=2, GROUP=256, **blocks)
    return stages(solutions()[puzzle.name], puzzle, target, case=case, num_warps=num_warps)


def test_the_loop_is_the_innermost_one_with_matrix_instructions():
    assert matrix_loop(SASS) == [("HMMA.16816.F32.BF16", "R8, R4, R2, R8"), ("BRA", "`(.L_x_1)")]


def test_without_matrix_instructions_there_is_no_loop_to_read():
    assert matrix_loop(SASS.replace("HMMA", "FFMA")) == []
    assert matrix_loop("") == []


@pytest.mark.parametrize("M, N, K, warps", [(64, 64, 32, 4), (16, 64, 32, 4), (128, 128, 64, 8)])
def test_products_are_those_of_the_tile(M, N, K, warps):
    got = step(compiled(FUSED_DW, num_warps=warps, BLOCK_M=M, BLOCK_N=N, BLOCK_K=K))
    assert (got.products, got.warps) == (M * N * K, warps)
    assert got.tensor_clocks == M * N * K / PRODUCTS
    assert got.issue_clocks == got.instructions * warps / 4
    assert 0 < got.busy < 1


@pytest.mark.parametrize("M", [16, 64])  # mma.sync, wgmma
def test_tf32_takes_twice_the_time(M):
    case = Case(K=4096, COUT=256, CIN=256, BITS=2, GROUP=256, BLOCK_M=M, BLOCK_N=64, BLOCK_K=32)
    got = stages(tf32_operands, FUSED_DW, case=case)
    assert "tf32" in got.tensor_core
    assert step(got).products == step(got).in_tf32 == M * 64 * 32
    assert step(got).tensor_clocks == 2 * M * 64 * 32 / PRODUCTS


def test_without_tensor_cores_there_is_no_step():
    case = Case(K=4096, COUT=256, CIN=256, BITS=2, GROUP=256, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    got = stages(float32_operands, FUSED_DW, case=case)
    assert got.ok and got.tensor_core is None and step(got) is None


def test_puzzle_19_unpacks_through_shared_memory():
    moves = step(compiled(FUSED_DW, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)).moves
    assert [(m.shape, m.dtype) for m in moves if "shared" in m.through] == [((32, 64), "bf16")]
    assert all("reshape" in m.line for m in moves if "shared" in m.through)


def test_puzzle_21_moves_no_unpacked_value():
    got = step(compiled(PACKED_ALONG_K, BLOCK_M=128, BLOCK_N=128))
    assert got.moves == () and "no computed values" in str(got)
    assert got.products == 128 * 128 * 128  # a block of words at 2 bits


def test_a_taller_tile_keeps_the_tensor_cores_busier():
    shares = [
        step(compiled(FUSED_DW, BLOCK_M=M, BLOCK_N=N, BLOCK_K=K)).busy
        for M, N, K in ((16, 256, 16), (64, 64, 32), (128, 128, 32))
    ]
    assert shares == sorted(shares) and shares[0] < 0.15 < 0.4 < shares[2]


def test_a_plain_matmul_moves_nothing_in_its_loop():
    case = Case(B=1, M=256, N=256, K=256, BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)
    assert step(stages(solutions()["batched_matmul"], BATCHED_MATMUL, case=case)).moves == ()


def test_another_target_is_refused():
    with pytest.raises(ValueError, match="must be compiled for sm_90, but is compiled for sm_80"):
        step(compiled(FUSED_DW, target="sm_80", BLOCK_M=64, BLOCK_N=64, BLOCK_K=32))


def test_what_did_not_compile_has_no_step():
    assert step(stages(lambda: None, FUSED_DW)) is None


@pytest.mark.parametrize("rows", [1, 16])
def test_one_row_or_sixteen_take_the_same_product_as_chapter_14_says(rows):
    case = Case(M=rows, N=256, K=256, BLOCK_M=rows, BLOCK_N=64, BLOCK_K=64)
    assert "m16n8k32" in stages(solutions()["int8_linear"], INT8_LINEAR, case=case).tensor_core
