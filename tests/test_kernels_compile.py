"""The kernels in plain Triton, compiled for a Hopper GPU with none here; those in Gluon have their own files.

`make test-next` runs these with the newest Triton, so they import nothing of the course but `kernels`.
"""

import re
import struct
from importlib import import_module

import pytest
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from puzzles_lib.kernels import bitpack, common, packed_dropout, packed_relu, paged_decode, quantize
from puzzles_lib.kernels.rounding import fraction_bits, leading_one
from tests.lone_sass import said_by_ptxas

module = import_module("puzzles_lib.kernels.q8_linear")
losses = import_module("puzzles_lib.kernels.linear_cross_entropy")
grouped = import_module("puzzles_lib.kernels.grouped_matmul")
turning = import_module("puzzles_lib.kernels.rope")

POINTERS = {
    "codes_ptr": "*u8", "words_ptr": "*i16", "mask_ptr": "*u8", "scale_ptr": "*fp32", "sums_ptr": "*fp32",
    "seed_ptr": "*i64", "label_ptr": "*i64", "loss_ptr": "*fp32",
    "cos_ptr": "*fp32", "sin_ptr": "*fp32", "position_ptr": "*i32",
    "table_ptr": "*i32", "length_ptr": "*i32", "lse_ptr": "*fp32",
}  # fmt: skip
PACKING = {
    "BITS": 2, "GROUP": 256, "WIDTH": 256, "GROUPS": 1, "ROWS": 2, "STEP": 2, "EVEN": True,
}  # fmt: skip
PAIRS = {"BITS": 2, "WIDTH": 256, "GROUPS": 1, "STEP": 8, "ROWS": 1}
KERNELS = [
    (bitpack._pack_bits_kernel, {"BITS": 2, "BLOCK_C": 256}, {}),
    (bitpack._unpack_bits_kernel, {"BITS": 2, "BLOCK_C": 256}, {}),
    (quantize._quantize_pack_kernel, {**PACKING, "seed_ptr": None}, {"num_warps": 1}),  # to the nearest
    (quantize._quantize_pack_kernel, PACKING, {"num_warps": 1}),  # stochastic
    (quantize._quantize_pairs_kernel, {**PAIRS, "seed_ptr": None}, {"num_warps": 1}),
    (quantize._quantize_pairs_kernel, PAIRS, {"num_warps": 1, "maxnreg": quantize._PAIRS_REGISTERS}),
    (
        quantize._dequantize_kernel,
        {"BITS": 4, "GROUP": 100, "BLOCK_C": 256, "ROWS": 1, "EVEN": False},
        {"num_warps": 2},
    ),
    (packed_dropout._mask_pack_kernel, {"BLOCK": 2048}, {}),
    (packed_dropout._dropout_backward_kernel, {"BLOCK": 2048}, {}),
    (packed_relu._relu_pack_kernel, {"BLOCK": 2048}, {}),
    (packed_relu._relu_unpack_backward_kernel, {"BLOCK": 1024}, {}),
    (losses._losses_kernel, {"GRADIENTS": True, "BLOCK": 4096}, {"num_warps": 8}),
    (
        paged_decode._part_kernel,
        {"H": 32, "G": 8, "D": 128, "PAGE": 16, "ROWS": 16, "BLOCK": 64, "PDL": True},
        {"num_warps": 2, "num_stages": 3},
    ),
    (
        paged_decode._part_kernel,  # the widest result: in registers, by eight warps
        {"H": 128, "G": 1, "D": 256, "PAGE": 16, "ROWS": 128, "BLOCK": 64, "PDL": True},
        {"num_warps": 8, "num_stages": 3},
    ),
    (paged_decode._merge_kernel, {"D": 256, "BLOCK": 1024, "STEP": 32, "PDL": True}, {"num_warps": 4}),
    (
        turning._rope_kernel,
        {"HALF": 64, "BLOCK": 64, "BLOCK_H": 16, "BACK": True, "PDL": True},
        {"num_warps": 4},
    ),
    (common._add_splits_kernel, {"SPLITS": 4, "BLOCK": 512, "PDL": True}, {}),
    (
        module._quantize_rows_kernel,
        {"ROWS": 1, "BLOCK_K": 4096, "ONE_BLOCK": True, "PDL": True},
        {"num_warps": 8, **module.EXACT_STEPS},
    ),
]


def for_hopper(kernel, constants, options, divisible=("*",)):
    """divisible: how the types of arguments that are multiples of 16 begin."""
    names = kernel.arg_names
    signature = {
        name: "constexpr" if name in constants else POINTERS.get(name, "*bf16") if "_ptr" in name else "i32"
        for name in names
    }
    attributes = {
        (i,): [["tt.divisibility", 16]]
        for i, name in enumerate(names)
        if signature[name].startswith(divisible)
    }
    values = {(names.index(name),): value for name, value in constants.items()}
    source = ASTSource(kernel, signature, values, attributes)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize("kernel, constants, options", KERNELS, ids=lambda v: getattr(v, "__name__", ""))
def test_kernels_compile_for_hopper(kernel, constants, options):
    compiled = for_hopper(kernel, constants, options)
    assert ("griddepcontrol" in compiled.asm["ptx"]) == ("PDL" in constants)
    assert ".local" not in compiled.asm["ptx"]


def before_waiting(ptx: str) -> str:
    """A kernel's PTX up to where it waits for the kernel before it."""
    body = ptx[ptx.index(".entry") :]
    return body[: body.index("griddepcontrol.wait")]


@pytest.mark.parametrize("kernel, constants, options", [k for k in KERNELS if "PDL" in k[1]])
def test_a_kernel_that_begins_early_touches_nothing_before_it_waits(kernel, constants, options):
    """And lets the next begin only then: whatever the kernel before it writes, it may read."""
    ptx = for_hopper(kernel, constants, options).asm["ptx"]
    early = before_waiting(ptx)
    assert not re.search(r"\b(ld|st|atom|red)\.global|cp\.async|launch_dependents", early)
    assert re.search(r"\b(ld|st)\.global", ptx) and "griddepcontrol.launch_dependents" in ptx


def test_of_pairs_a_minimum_and_a_maximum_go_as_one():
    """Between 32 threads in five exchanges for each of 8 rows; random numbers stay where they are.

    Of a lane's 64 elements two go as one from the halves of their floats on.
    """
    options = {"num_warps": 1, "maxnreg": quantize._PAIRS_REGISTERS}
    compiled = for_hopper(quantize._quantize_pairs_kernel, PAIRS, options, ("*", "i"))
    loop = compiled.asm["ptx"].split("$L__BB0_1:")[1].split("bra")[0]
    assert loop.count("shfl.sync.bfly") == 8 * 5
    ends, numbers, codes = 8 * 2, 8 * 2, 64 // 2
    assert loop.count("prmt.b32") == ends + numbers + codes
    assert loop.count("fma.rn.f32") == 64 + 8 * 2  # and two for each reciprocal of a scale
    # Of the 8 scales, of the minima, and with Triton 3.9 of the words: of what is stored.
    assert loop.count("st.shared") == 2 and loop.count("stmatrix") <= 1


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_half_of_a_float_is_a_code(bits):
    """What `_LEADING` says of the other half, and what is taken from the sum of all fields for it."""
    (pattern,) = struct.unpack("<I", struct.pack("<f", leading_one(bits) + 2**bits - 1 + 0.75))
    assert fraction_bits(bits) == 16
    assert pattern >> 16 == quantize._LEADING.value + 2**bits - 1 and pattern & 0xFFFF == 0xC000
    word = sum(quantize._LEADING.value << (bits * field) for field in range(16 // bits))
    assert (word * 0x10001 - quantize._beside_codes(bits)) % 2**32 == 0


@pytest.mark.parametrize(
    "rows, outputs", [(64, 4096), (128, 4096), (256, 4096), (512, 4096), (4096, 4096), (64, 256)]
)
def test_tiles_compile_for_hopper(rows, outputs):
    tiles = module.choose_tiles(rows, outputs, 4096, 132, True)
    assert (tiles.split > 1) == (outputs == 256)
    constants = {
        "BLOCK_M": tiles.m, "BLOCK_N": tiles.n, "BLOCK_K": tiles.k, "GROUP_M": tiles.group,
        "SPLIT": tiles.split, "HAS_BIAS": True, "TMA": True, "PDL": True,
    }  # fmt: skip
    types = {"codes": f"tensordesc<i8[{tiles.m}, {tiles.k}]>", "wq": f"tensordesc<i8[{tiles.n}, {tiles.k}]>"}
    types |= {"x_scale_ptr": "*fp32", "w_scale_ptr": "*fp32", "bias_ptr": "*bf16", "y_ptr": "*bf16"}
    types |= {"sums_ptr": "*i32", "M": "i32", "N": "i32", "K": "i32"} | dict.fromkeys(constants, "constexpr")
    names = module._matmul_kernel.arg_names
    attributes = {(names.index(n),): [["tt.divisibility", 16]] for n in ("y_ptr", "sums_ptr", "N", "K")}
    source = ASTSource(
        module._matmul_kernel, {name: types[name] for name in names},
        {(names.index(name),): value for name, value in constants.items()}, attributes,
    )  # fmt: skip
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages, **module.EXACT_STEPS}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    assert re.search(r"wgmma\.mma_async\.\S+\.s32\.s8\.s8", compiled.asm["ptx"])
    assert compiled.metadata.shared <= 227 * 1024
    assert ".local" not in compiled.asm["ptx"] and "fma.rn.f32" not in compiled.asm["ptx"]


def grouped_for_hopper(kernel, names, blocks, tiles, **constants):
    """names: of its descriptors, and their blocks."""
    constants |= {
        "BLOCK_M": tiles.m,
        "BLOCK_N": tiles.n,
        "BLOCK_K": tiles.k,
        "GROUP": tiles.group,
        "TMA": True,
    }
    types = {name: f"tensordesc<bf16{list(block)}>" for name, block in zip(names, blocks, strict=True)}
    types |= dict.fromkeys(("y_ptr", "x_ptr", "dy_ptr"), "*bf16") | {"start_ptr": "*i32"}
    order = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in order}
    aligned = [name for name in order if name in ("N", "K") or name.endswith("_ptr")]
    source = ASTSource(
        kernel, signature, {(order.index(name),): value for name, value in constants.items()},
        {(order.index(name),): [["tt.divisibility", 16]] for name in aligned},
    )  # fmt: skip
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    return triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)


@pytest.mark.parametrize("name", ["FEW", "SOME", "MANY", "GRADIENT_SOME", "GRADIENT_MANY"])
def test_products_by_group_keep_the_tensor_cores_busy_and_fit(name, tmp_path):
    """wgmma isn't waited for one by one (ptxas's C7515), as it would be in a loop that may be empty."""
    tiles = getattr(grouped, name)
    if name.startswith("GRADIENT"):
        block = (1, tiles.m, tiles.n)
        found = [
            grouped_for_hopper(grouped._dw_kernel, ("dw",), (block,), tiles, WHOLE=whole)
            for whole in (True, False)
        ]
    else:
        found = [
            grouped_for_hopper(
                grouped._product_kernel, ("x", "w"), ((tiles.m, tiles.k), of_w), tiles,
                EXPERTS=8, ALONG_N=along_n, PDL=True,
            )
            for along_n, of_w in ((True, (1, tiles.k, tiles.n)), (False, (1, tiles.n, tiles.k)))
        ]  # fmt: skip
    for compiled in found:
        ptx = compiled.asm["ptx"]
        assert "wgmma.mma_async" in ptx if tiles.m >= 64 else "mma.sync" in ptx
        assert compiled.metadata.shared <= 227 * 1024
        said = said_by_ptxas(compiled, tmp_path)
        assert "C75" not in said and "0 bytes spill stores, 0 bytes spill loads" in said
