"""Chapter 12's data: what the checker's scales and minima promise."""

import pytest
import torch

from puzzles_lib.chapters.ch12_fused_dequant_gemm.puzzles import FUSED_DW, PACKED_ALONG_K, PUZZLES, SPLIT_K
from puzzles_lib.inputs import make_inputs


@pytest.mark.parametrize("puzzle", PUZZLES, ids=lambda p: p.name)
def test_every_x_is_a_bfloat16_number(puzzle):
    """So that a kernel may hold it in bfloat16, TF32 or float32."""
    for case in puzzle.cases:
        tensors = make_inputs(puzzle, case)
        scale, minimum = tensors["scale"].double(), tensors["minimum"].double()
        assert (scale > 0).all() and len(scale.unique()) > 1
        for code in range(2**case.BITS):
            x = minimum + scale * code
            assert torch.equal(x, x.bfloat16().double())


@pytest.mark.parametrize("BITS", [2, 4])
def test_some_products_are_not(BITS):
    """So that rounding the product as well shows."""
    case = next(c for c in FUSED_DW.cases if c.BITS == BITS)
    product = make_inputs(FUSED_DW, case)["scale"].double() * (2**BITS - 1)
    assert not torch.equal(product, product.bfloat16().double())


def test_parts_sum_to_dw():
    for case in SPLIT_K.cases:
        tensors = {
            n: t.double() if t.is_floating_point() else t for n, t in make_inputs(SPLIT_K, case).items()
        }
        numbers = {n: case.numbers[n] for n in FUSED_DW.spec_numbers}
        parts = SPLIT_K.spec(**tensors, **numbers, SPLITS=case.SPLITS, BLOCK_K=case.BLOCK_K)
        torch.testing.assert_close(parts.sum(0), FUSED_DW.spec(**tensors, **numbers))


def test_puzzle_21_reads_the_production_format():
    from puzzles_lib.kernels.quantize import dequantize, quantize_pack

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(100, 80, generator=generator)
    dy = torch.randn(100, 24, generator=generator, dtype=torch.float64)
    for bits in (1, 2, 4, 8):
        packed = quantize_pack(x, bits, 32)
        scale, minimum = packed.scale.flatten(1).double(), packed.minimum.flatten(1).double()
        dw = PACKED_ALONG_K.spec(dy, packed.words, scale, minimum, bits, 32)
        want = dy.mT @ dequantize(packed).double()
        torch.testing.assert_close(dw, want, rtol=1e-5, atol=1e-5)


def test_the_clock_s_kernels_cut_k_into_as_many_parts_as_its_axis_says():
    from puzzles_lib.chapters.ch12_fused_dequant_gemm import pictures
    from puzzles_lib.chapters.ch15_racing_cublas import versions

    rungs = (versions.first, versions.bigger, versions.along_k)
    assert {rung.splits for rung in rungs} == {8}
    (axes,) = pictures.clock().figure.axes
    assert "K in 8 parts" in axes.get_xlabel()
