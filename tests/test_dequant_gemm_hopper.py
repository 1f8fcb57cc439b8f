"""The Hopper kernel's machine code, compiled with no GPU."""

import re

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

from puzzles_lib.kernels import dequant_gemm_hopper as hopper
from puzzles_lib.kernels import dequant_gemm_unpack as unpack
from puzzles_lib.kernels.bitpack import block_rows
from tests.lone_sass import instructions, overwritten_operands, said_by_ptxas


def compiled(bits: int, dtype: str, groups: int):
    """The kernel for a format, and so many groups of columns in a tile."""
    rows = block_rows(bits)
    blocks = max(hopper.STEP // rows, 1)

    def descriptor(element: str, shape: list[int], layout: gl.NVMMASharedLayout) -> str:
        return f"tensordesc<{element}{shape},{layout!r}>"

    kernel = hopper._dequant_gemm_dw_hopper_kernel
    signature = {
        "dy": descriptor(dtype, [hopper.STEP, hopper.BLOCK_N], hopper.SWIZZLED),
        "words": descriptor("i16", [16 * blocks, hopper.BLOCK_M], hopper.SWIZZLED),
        "params_desc": descriptor(dtype, [groups, 2 * blocks, min(rows, hopper.STEP)], hopper.PLAIN),
        "out_ptr": "*fp32",
        **dict.fromkeys(("steps", "CIN", "COUT", "splits", "group_size"), "i32"),
        "BITS": "constexpr",
    }
    constants = {(kernel.arg_names.index("BITS"),): bits}
    attributes = {(kernel.arg_names.index("out_ptr"),): [["tt.divisibility", 16]]}
    source = GluonASTSource(kernel, signature, constants, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 8})


KERNELS = [(bits, "bf16", 1) for bits in (1, 2, 4, 8)] + [(2, "fp16", 1)]
KERNELS += [(1, "bf16", 4), (2, "bf16", 2), (2, "fp16", 4), (4, "bf16", 8), (8, "bf16", 2)]


@pytest.fixture(scope="module", params=KERNELS, ids=str)
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
    assert not re.search(r"\bSHFL|\bSTS", kernel.asm["sass"])


def test_ptxas_keeps_wgmma_asynchronous_and_spills_nothing(kernel, tmp_path):
    said = said_by_ptxas(kernel, tmp_path)
    assert "C75" not in said
    assert "0 bytes spill stores, 0 bytes spill loads" in said


def test_shared_memory_fits_a_hopper_multiprocessor(kernel):
    assert kernel.metadata.shared <= 227 * 1024


def executed(text: str, words: torch.Tensor, scale: int, minimum: int) -> torch.Tensor:
    """What PTX of `dequant_gemm_unpack` leaves in $0, for registers as int64 of 32 bits."""
    registers = {"$1": words, "$2": torch.full_like(words, scale), "$3": torch.full_like(words, minimum)}

    def value(name: str) -> torch.Tensor:
        return registers[name] if name in registers else torch.full_like(words, int(name, 0))

    def halves(register: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        bits = torch.stack([register & 0xFFFF, register >> 16])
        return torch.where(bits < 2**15, bits, bits - 2**16).to(torch.int16).view(dtype).double()

    for line in text.strip("{} ").rstrip(";").split("; "):
        name, _, rest = line.partition(" ")
        target, *sources = [part.strip() for part in rest.split(",")]
        if name.startswith("fma.rn."):
            dtype = torch.bfloat16 if "bf16" in name else torch.float16
            a, b, c = (halves(value(source), dtype) for source in sources)
            low, high = (a * b + c).to(dtype).view(torch.int16).long() & 0xFFFF
            registers[target] = low | high << 16
        elif name == "lop3.b32":
            assert sources.pop() == "0xEA"
            registers[target] = value(sources[0]) & value(sources[1]) | value(sources[2])
        elif name in ("and.b32", "shr.u32"):
            a, b = map(value, sources)
            registers[target] = a & b if name == "and.b32" else a >> b
        elif name == "mov.b32":
            registers[target] = value(sources[0])
        else:
            assert name == ".reg", line
    return halves(registers["$0"], dtype)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_every_code_is_unpacked_exactly_of_scaled_params(bits):
    """Of -3, 0 and 1 as minima: what a product is multiplied by at the end is left."""
    low = torch.arange(2**16)
    words = low | low.flip(0) << 16
    for field in range(min(16 // bits, 4)):
        text = unpack.unpack_scaled_asm.fn(bits, field)
        codes = torch.stack([words & 0xFFFF, words >> 16]) >> bits * field & (1 << bits) - 1
        up = 2.0 ** (133 - unpack.SCALED.value - bits * field % 8)
        for minimum in (-3.0, 0.0, 1.0):
            params = torch.tensor([up, minimum * 2.0**-unpack.SCALED.value]).bfloat16()
            scale, low_bits = (params.view(torch.int16).long() & 0xFFFF).tolist()
            got = executed(text, words, 0x10001 * scale, 0x10001 * low_bits)
            want = (codes + minimum).bfloat16().double() * 2.0**-unpack.SCALED.value
            assert torch.equal(got, want), field


@pytest.mark.parametrize("half", [False, True], ids=["bf16", "fp16"])
@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_every_code_of_every_word_is_unpacked_exactly(bits, half):
    low = torch.arange(2**16)
    words = low | low.flip(0) << 16
    one, half_minimum = (0x3C00, 0xC200) if half else (0x3F80, 0xC040)  # 1 and -3
    for field in range(min(16 // bits, 8)):
        text = unpack.unpack_and_scale_asm.fn(bits, field, half)
        codes = torch.stack([words & 0xFFFF, words >> 16]) >> bits * field & (1 << bits) - 1
        got = executed(text, words, 0x10001 * one, 0x10001 * half_minimum)
        want = (codes - 3).to(torch.float16 if half else torch.bfloat16).double()
        assert torch.equal(got, want), field


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
