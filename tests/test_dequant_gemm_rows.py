"""The kernels of few rows: what they were compiled to, with no GPU, and how they cut a product.

What they compute is in test_dequant_gemm_gpu.py and test_q8_linear_gpu.py.
"""

import itertools
import re

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.experimental.gluon._runtime import GluonASTSource

from puzzles_lib.kernels import dequant_gemm_rows16 as rows16
from puzzles_lib.kernels import dequant_gemm_rows128 as rows128
from puzzles_lib.kernels import q8_linear_rows16 as q8
from puzzles_lib.kernels import q8_linear_rows64 as q8_more
from puzzles_lib.kernels.dequant_gemm_unpack import group_shift
from tests.lone_sass import instructions, overwritten_operands, said_by_ptxas

H200 = 132  # multiprocessors


def compiled(kernel, types: dict[str, str], constants: dict[str, object], capability: int, **options):
    """A kernel for a GPU of that capability, its pointers aligned."""
    names = kernel.arg_names
    signature = {name: types.get(name, "constexpr" if name in constants else "i32") for name in names}
    attributes = {
        (i,): [["tt.divisibility", 16]] for i, name in enumerate(names) if signature[name].startswith("*")
    }
    values = {(names.index(name),): value for name, value in constants.items()}
    source = GluonASTSource(kernel, signature, values, attributes)
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)


def compiled_rows16(
    bits: int, dtype: str, rows: int, columns: int, group: int, features: int = 4096, capability: int = 90
):
    cut = rows16.choose_cut(rows, features, columns, bits, group, H200)
    types = {f"{name}_ptr": f"*{dtype}" for name in ("x", "params", "out")} | {"words_ptr": "*i16"}
    constants = {
        "BITS": bits, "FIELDS": cut.fields, "COLUMNS": cut.columns, "STEPS": cut.steps,
        "AHEAD": cut.ahead, "WHOLE": cut.steps - 1, "BLOCK_M": 8 if rows <= 8 else 16, "UNIT": 8,
        "SHIFT": group_shift(group, columns), "PDL": capability == 90,
    }  # fmt: skip
    options = {"num_warps": cut.warps, "maxnreg": 128}
    return compiled(rows16._dequant_gemm_rows16_kernel, types, constants, capability, **options)


def compiled_rows128(bits: int, dtype: str, block_m: int, spans: int):
    layout = repr(rows128.SWIZZLED)
    types = {
        "x": f"tensordesc<{dtype}[{block_m}, {rows128.STEP}],{layout}>",
        "words": f"tensordesc<i16[{rows128.WORD_ROWS}, {rows128.STEP}],{layout}>",
        "params_ptr": f"*{dtype}", "out_ptr": "*fp32",
    }  # fmt: skip
    constants = {"BITS": bits, "FIELDS": min(16 // bits, 4), "SPAN": 128, "SPANS": spans, "SPLIT": True}
    return compiled(rows128._dequant_gemm_rows128_kernel, types, constants, 90, num_warps=4)


@pytest.fixture(scope="module", params=[(4, "bf16", 1, 2048, 128), (1, "fp16", 16, 1000, 32, 8192)], ids=str)
def few(request):
    return compiled_rows16(*request.param)


@pytest.fixture(scope="module", params=[(4, "bf16", 64, 8), (8, "fp16", 16, 32)], ids=str)
def more(request):
    return compiled_rows128(*request.param)


# ---- where values travel


def definitions(ttgir: str) -> dict[str, tuple[str, list[str]]]:
    """Of each value of a kernel's GPU code: the operation that makes it, and what that reads."""
    found = {}
    for line in ttgir.splitlines():
        made = re.match(r"\s*(%[\w]+)(?::\d+)? = ([\w.]+) ?(\".*?\" \{[^}]*\})?([^:{]*)", line)
        if made:
            found[made[1]] = made[2], re.findall(r"%\w+", made[4])
    return found


def origins(value: str, made: dict[str, tuple[str, list[str]]], through: set[str]) -> set[str]:
    """The operations a value comes from, walking back through those that only rename its elements."""
    operation, sources = made[value]
    if operation not in through:
        return {operation}
    return set().union(*(origins(source, made, through) for source in sources))


RENAMING = {"ttg.convert_layout", "tt.reshape", "tt.trans", "tt.join"}


def check_operands(kernel, dot: str) -> None:
    """Left operands are renamed results of unpacking, with no memory between, and renaming moves nothing.

    Each of these `convert_layout` was asserted trivial; that it is, the compiler has checked.
    """
    made = definitions(kernel.asm["ttgir"])
    dots = [sources for operation, sources in made.values() if operation == dot]
    assert dots
    assert {o for left, *_ in dots for o in origins(left, made, RENAMING)} == {"tt.elementwise_inline_asm"}


def test_unpacked_values_stay_where_they_are(few, more):
    check_operands(few, "tt.dot")
    check_operands(more, "ttng.warp_group_dot")


def test_a_value_that_passed_through_memory_would_be_found():
    text = """
    %a = tt.elementwise_inline_asm "fma {$0}" {pure = true} %w, %s : tensor<4xi16>, tensor<4xbf16>
    %m = ttg.local_alloc %a : (tensor<4xbf16>) -> !ttg.memdesc<4xbf16>
    %b = ttg.local_load %m : !ttg.memdesc<4xbf16> -> tensor<4xbf16>
    %c = ttg.convert_layout %b : tensor<4xbf16> -> tensor<4xbf16>
    %d = tt.dot %c, %x, %z : tensor<4xbf16>
    """
    made = definitions(text)
    assert origins("%c", made, RENAMING) == {"ttg.local_load"}
    assert origins("%a", made, RENAMING) == {"tt.elementwise_inline_asm"}
    assert made["%d"] == ("tt.dot", ["%c", "%x", "%z"])


def between_products(kernel, product: str) -> list[str]:
    """Operations from the first to the last of the matrix unit's, in each stretch without a jump."""
    found, stretch = [], []
    for operation, _ in instructions(kernel.asm["sass"]):
        stretch.append(operation)
        if operation.startswith(("BRA", "EXIT", "BSYNC", "WARPSYNC")):
            at = [i for i, name in enumerate(stretch) if name.startswith(product)]
            found += stretch[at[0] : at[-1]] if at else []
            stretch = []
    assert found
    return found


def test_nothing_is_shuffled_or_stored_between_products_of_sixteen_rows(few):
    """Nor waited for: the unrolled loop over K has no barrier."""
    straight = [name for name in between_products(few, "HMMA") if name.startswith(("SHFL", "LDSM", "STL"))]
    assert straight == []


def test_nothing_is_shuffled_or_stored_between_products_of_many_rows(more):
    assert not [name for name in between_products(more, "HGMMA") if name.startswith(("SHFL", "STS", "STL"))]
    products = [operands for name, operands in instructions(more.asm["sass"]) if name.startswith("HGMMA")]
    assert products and all(re.match(r"R\d+, R\d+, gdesc", operands) for operands in products)
    assert overwritten_operands(more.asm["sass"]) == []


def test_words_and_x_are_loaded_sixteen_bytes_at_a_time(few):
    loads = [name for name, _ in instructions(few.asm["sass"]) if name.startswith("LDG")]
    assert loads and all(".128" in name for name in loads)


def check_resources(kernel, tmp_path, registers: int) -> None:
    """No register is spilled to memory, and wgmma is not waited for one by one."""
    said = said_by_ptxas(kernel, tmp_path)
    assert "C75" not in said and "0 bytes spill stores, 0 bytes spill loads" in said
    assert int(re.search(r"Used (\d+) registers", said)[1]) <= registers


def test_nothing_spills(few, more, tmp_path):
    check_resources(few, tmp_path, 128)
    check_resources(more, tmp_path, 168)  # three programs a multiprocessor


def test_sixteen_rows_touch_nothing_before_they_wait(few):
    """They may begin while the kernel before them ends, and that may write words, params or x."""
    ptx = few.asm["ptx"]
    early = ptx[ptx.index(".entry") : ptx.index("griddepcontrol.wait")]
    assert not re.search(r"\b(ld|st)\.global|launch_dependents", early)
    assert re.search(r"\bld\.global", ptx) and "griddepcontrol.launch_dependents" in ptx


@pytest.mark.parametrize("capability", [(8, 0), (9, 0)])
@pytest.mark.parametrize("rows", [1, 8, 9, 16])
def test_up_to_sixteen_rows_begin_while_the_kernel_before_ends(monkeypatch, capability, rows):
    """Where the kernel can wait for it, and only there."""
    launched = []

    class Noted:
        def __getitem__(self, grid):
            return lambda *tensors, **options: launched.append(options)

    monkeypatch.setattr(rows16, "_dequant_gemm_rows16_kernel", Noted())
    monkeypatch.setattr(rows16, "multiprocessors", lambda device: H200)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    x, words = torch.randn(rows, 128), torch.zeros(64, 16, 128, dtype=torch.int16)
    rows16.launch(x, words, torch.zeros(1, 64, 2, 64), x.new_empty(rows, 4096), 4, 128)
    (options,) = launched
    assert options["PDL"] == options.get("launch_pdl", False) == (capability == (9, 0))


def test_sixteen_rows_compile_for_other_gpus():
    for capability in (80, 120):
        kernel = compiled_rows16(8, "bf16", 1, 1024, 128, capability=capability)
        assert "mma.sync.aligned.m16n8k16" in kernel.asm["ptx"]


def test_the_int8_product_of_few_rows_goes_from_memory_to_registers(tmp_path):
    types = {"codes_ptr": "*i8", "wq_ptr": "*i8", "bias_ptr": "*bf16", "y_ptr": "*bf16"}
    types |= {"x_scale_ptr": "*fp32", "w_scale_ptr": "*fp32"}
    constants = {"BLOCK_M": 16, "STEPS": 2, "WHOLE": 1, "AHEAD": 2, "HAS_BIAS": True, "PDL": True}
    options = {"num_warps": q8.WARPS, "enable_fp_fusion": False}
    kernel = compiled(q8._q8_linear_rows16_kernel, types, constants, 90, **options)
    found = between_products(kernel, "IMMA")
    assert not [name for name in found if name.startswith(("SHFL", "STS", "LDS", "BAR", "STL"))]
    assert re.search(r"mma\.sync\.aligned\.m16n8k32\.\S+\.s32\.s8\.s8", kernel.asm["ptx"])
    assert "fma.rn.f32" not in kernel.asm["ptx"]  # each step is rounded by itself, as on the CPU
    check_resources(kernel, tmp_path, 128)


def test_the_int8_product_of_more_rows_waits_late_and_asks_early(tmp_path):
    types = {"x_scale_ptr": "*fp32", "w_scale_ptr": "*fp32", "bias_ptr": "*bf16", "y_ptr": "*bf16"}
    for name, rows in (("codes", q8_more.ROWS), ("wq", q8_more.OUTPUTS)):
        types[name] = f"tensordesc<i8[{rows}, {q8_more.STEP}],{q8_more.SWIZZLED!r}>"
    kernel = q8_more._q8_linear_rows64_kernel
    kernel = compiled(kernel, types, {"HAS_BIAS": True}, 90, num_warps=4, enable_fp_fusion=False)
    ptx = kernel.asm["ptx"]
    early, late = ptx.split("griddepcontrol.wait")
    assert early.count("cp.async.bulk.tensor") >= q8_more.EARLY.value and "ld.global" in early
    assert "ld.global" not in late[late.index("wgmma.mma_async") :]  # scales are there before the last sum
    assert re.search(r"wgmma\.mma_async\.sync\.aligned\.m64n32k32\.s32\.s8\.s8", ptx)
    assert re.search(r"wgmma\.wait_group\.sync\.aligned\s+1;", ptx)  # a product runs on meanwhile
    assert "fma.rn.f32" not in ptx  # each step is rounded by itself, as on the CPU
    assert kernel.metadata.shared <= 227 << 10
    check_resources(kernel, tmp_path, 255)


# ---- how a product is cut

SIZES = (1, 31, 64, 1000, 1024, 4096, 8192, 11008, 28672, 100000)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("group", [32, 96, 128, 100000])
def test_steps_of_sixteen_rows_cover_all_columns_once(bits, group):
    for features, columns, rows in itertools.product(SIZES, SIZES, (1, 16, 32)):
        cut = rows16.choose_cut(rows, features, columns, bits, group, H200)
        step = cut.warps * cut.columns
        assert cut.splits * cut.steps * step >= columns > (cut.splits - 1) * cut.steps * step
        assert 1 <= cut.steps <= rows16.STEPS and (group % cut.columns == 0 or group >= columns)
        assert (16 // bits) % cut.fields == 0


def test_cuts_that_were_measured():
    assert rows16.choose_cut(1, 4096, 4096, 4, 128, H200) == rows16.Cut(4, 16, 64, 1, 4, ahead=2)
    assert rows16.choose_cut(1, 8192, 8192, 4, 128, H200) == rows16.Cut(4, 8, 64, 1, 16, ahead=4)
    assert rows16.choose_cut(1, 1024, 4096, 4, 128, H200) == rows16.Cut(4, 16, 64, 4, 1, ahead=2)
    splits = {
        (32, 64, 4096): 4, (32, 32, 4096): 8, (64, 64, 8192): 4, (64, 16, 8192): 8, (86, 64, 4096): 3,
        (32, 128, 4096): 4, (224, 64, 8192): 1, (8, 64, 4096): 8,
    }  # fmt: skip
    for (tiles, rows, columns), wanted in splits.items():
        assert rows128.choose_splits(tiles, rows, columns, 4, 128, H200)[0] == wanted


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
@pytest.mark.parametrize("group", [64, 192, 256, 4096, 100000])
def test_splits_of_many_rows_have_steps_and_room_for_their_params(bits, group):
    for tiles, columns, rows in itertools.product((1, 7, 64, 500), (64, 1000, 4096, 28672, 100000), (16, 64)):
        splits, count, span, spans = rows128.choose_splits(tiles, rows, columns, bits, group, H200)
        steps = triton.cdiv(columns, rows128.STEP)
        assert splits * count >= steps > (splits - 1) * count
        assert group % span == 0 or group >= columns
        for first in range(0, steps * rows128.STEP, count * rows128.STEP):
            last = min(first + count * rows128.STEP, columns) - 1
            assert last // span - first // span < spans
        assert spans * rows128.WORD_ROWS * 2 * min(16 // bits, 4) * 2 <= rows128.PARAMS


def test_columns_of_a_group_are_found_by_a_shift_or_a_division():
    for columns, group in itertools.product((1, 2, 100, 4096, 4097), (1, 32, 96, 128, 4096, 9999)):
        shift = group_shift(group, columns)
        assert shift >= 0 or group & (group - 1)
        if shift >= 0:
            assert all(k >> shift == k // group for k in range(columns))
