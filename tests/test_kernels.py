"""Production kernels on the CPU: the torch references, the operators, and the Triton kernels, guarded.

What needs a GPU is in test_kernels_gpu.py.
"""

import dataclasses
import itertools
import math
import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import triton

from puzzles_lib.kernels import bitpack, packed_relu, quantize
from puzzles_lib.kernels.bitpack import BITS, block_rows, pack_bits, unpack_bits
from puzzles_lib.kernels.packed_relu import relu_pack, relu_unpack_backward
from puzzles_lib.kernels.quantize import dequantize, quantize_pack
from tests.running import run

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ((1, 1), (3, 5), (128, 256), (100, 70), (257, 40), (2, 3, 70), (513,), (0, 8), (8, 0), (0,))
bits_of_a_code = pytest.mark.parametrize("bits", BITS)
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
dtypes = pytest.mark.parametrize("dtype", FLOATS, ids=str)


def draw(shape, dtype=torch.float32, seed=0, scale=1.0, offset=0.0):
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale + offset).to(dtype)


def draw_codes(shape, bits, seed=0):
    codes = torch.randint(0, 2**bits, shape, generator=torch.Generator().manual_seed(seed)).to(torch.uint8)
    codes.view(-1)[::3] = 2**bits - 1
    return codes


def on_a_grid(shape, bits, dtype=torch.float32, seed=0):
    """Data whose groups of any size from 2 up have scale 1/4 and codes without a tie, all in use."""
    x = draw_codes(shape, bits, seed).float()
    x[..., 0::2], x[..., 1::2] = 0, 2**bits - 1
    middle = draw_codes(shape, bits, seed + 1).float()
    x[..., 2::4] = middle[..., 2::4]
    return (x / 4 - 1).to(dtype)


def field(words, bits, row, column):
    """The code of one element, by the letter of the format."""
    block, j, r = row // block_rows(bits), row % block_rows(bits) // 16, row % 16
    return (int(words[block, r, column]) % 2**16) >> (j * bits) & (2**bits - 1)


# ---- pack_bits


@bits_of_a_code
@shapes
def test_codes_come_back(shape, bits):
    codes = draw_codes(shape, bits)
    words = pack_bits(codes, bits)
    rows, columns = bitpack.matrix_shape(shape)
    assert words.dtype == torch.int16 and words.is_contiguous()
    assert words.shape == (math.ceil(rows / block_rows(bits)), 16, columns)
    back = unpack_bits(words, bits, shape)
    assert back.dtype == torch.uint8 and torch.equal(back, codes)


@bits_of_a_code
def test_the_place_of_a_code(bits):
    assert block_rows(bits) == {1: 256, 2: 128, 4: 64, 8: 32}[bits]
    codes = draw_codes((300, 3), bits)
    words = pack_bits(codes, bits)
    for row, column in itertools.product(range(300), range(3)):
        assert field(words, bits, row, column) == codes[row, column]
    for row in range(300, len(words) * block_rows(bits)):
        assert field(words, bits, row, 0) == 0


@bits_of_a_code
def test_a_top_code_in_the_top_field_sets_the_sign_bit(bits):
    top = block_rows(bits) - 16
    codes = torch.zeros(block_rows(bits), 1, dtype=torch.uint8)
    codes[top + 5] = 2**bits - 1
    words = pack_bits(codes, bits)
    assert words[0, 5, 0] == -(2 ** (16 - bits)) and words.count_nonzero() == 1
    assert torch.equal(unpack_bits(words, bits, codes.shape), codes)


@pytest.mark.parametrize("bits", (1, 2, 4))
def test_bits_above_a_code_are_ignored(bits):
    codes = draw_codes((40, 6), bits)
    assert torch.equal(pack_bits(codes | 2**bits, bits), pack_bits(codes, bits))


@bits_of_a_code
def test_codes_and_words_may_be_non_contiguous(bits):
    codes = draw_codes((50, 70), bits).t()
    words = pack_bits(codes, bits)
    assert torch.equal(words, pack_bits(codes.contiguous(), bits))
    strided = words.transpose(0, 2).contiguous().transpose(0, 2)
    assert not strided.is_contiguous()
    assert torch.equal(unpack_bits(strided, bits, codes.shape), codes)


# ---- quantize_pack


def check_codes(x, packed):
    """Every code against a loop in float64 that knows nothing but x, the params and the format."""
    rows, columns = bitpack.matrix_shape(x.shape)
    x, top = x.reshape(rows, columns), 2**packed.bits - 1
    height = block_rows(packed.bits)
    for row, group in itertools.product(range(rows), range(math.ceil(columns / packed.group_size))):
        some = slice(group * packed.group_size, (group + 1) * packed.group_size)
        values = [float(v) for v in x[row, some]]
        scale = float(packed.scale[group, row // height, row % height])
        low = float(packed.minimum[group, row // height, row % height])
        assert low == min(values)
        exact = (max(values) - min(values)) / top
        if exact < 2.0**-126:
            assert scale == 1
        else:
            one_step = torch.tensor(exact).to(x.dtype)
            assert scale == pytest.approx(float(one_step), rel=2 * torch.finfo(x.dtype).eps)
        for column, value in enumerate(values, some.start):
            place = (value - low) / scale
            code = field(packed.words, packed.bits, row, column)
            assert abs(min(place, top) - code) <= 0.5 + 1e-5, (row, column)


@bits_of_a_code
@dtypes
@pytest.mark.parametrize("shape, group", [((20, 12), 4), ((9, 50), 32), ((2, 3, 7), 7), ((40,), 16)], ids=str)
def test_codes_are_those_of_the_stored_scale(shape, group, dtype, bits):
    x = draw(shape, dtype, bits)
    check_codes(x, quantize_pack(x, bits, group))


def test_codes_of_the_unrounded_scale_would_differ():
    """So that the test above is worth something: bfloat16 rounds 1.0 / 255 by enough to move codes."""
    x = torch.linspace(0, 1, 256).bfloat16()[None]
    packed = quantize_pack(x, 8, 256)
    got = [field(packed.words, 8, 0, c) for c in range(256)]
    assert got != [min(255, round(float(v) * 255)) for v in x[0]]
    check_codes(x, packed)


@bits_of_a_code
@dtypes
@shapes
def test_what_comes_back_is_within_half_a_step(shape, dtype, bits):
    x = draw(shape, dtype, bits, scale=3.0)
    packed = quantize_pack(x, bits, 32)
    back = dequantize(packed)
    assert back.shape == x.shape and back.dtype == dtype and back.is_contiguous()
    assert packed.shape == tuple(shape) and packed.dtype == packed.params.dtype == dtype
    assert packed.nbytes == packed.words.nbytes + packed.params.nbytes
    if not x.numel():
        return
    rows, columns = bitpack.matrix_shape(shape)
    matrix, eps = x.reshape(rows, columns).double(), torch.finfo(dtype).eps
    for start in range(0, columns, 32):
        some = matrix[:, start : start + 32]
        spread = some.amax(1, keepdim=True) - some.amin(1, keepdim=True)
        error = (back.reshape(rows, columns)[:, start : start + 32].double() - some).abs()
        half = spread / (2**bits - 1) / 2
        assert (error <= half * (1 + eps) + eps * (spread + some.abs().amax(1, keepdim=True))).all()


@bits_of_a_code
def test_values_on_the_levels_come_back_exactly(bits):
    for dtype in FLOATS:
        x = on_a_grid((70, 64), bits, dtype)
        packed = quantize_pack(x, bits, 16)
        height = block_rows(bits)
        assert (packed.scale.transpose(0, 2)[: min(70, height)] == 0.25).any()
        assert torch.equal(dequantize(packed), x)


@bits_of_a_code
@dtypes
def test_constant_groups_come_back_exactly(dtype, bits):
    for value in (0.0, 1.5, -3.25, 2.0**-20):
        x = torch.full((5, 24), value, dtype=dtype)
        x[2, 8:16] = draw((8,), dtype)
        packed = quantize_pack(x, bits, 8)
        height = block_rows(bits)
        assert (packed.scale[0] == 1).all() and packed.scale.shape == (3, math.ceil(5 / height), height)
        back = dequantize(packed)
        assert torch.equal(back[:, :8], x[:, :8]) and torch.equal(back[3], x[3])


def test_rows_past_the_end_have_scale_one_and_minimum_zero():
    packed = quantize_pack(draw((5, 8)), 4, 4)
    assert (packed.scale[:, 0, 5:] == 1).all() and (packed.minimum[:, 0, 5:] == 0).all()


@bits_of_a_code
@dtypes
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_inf_poison_their_group_alone(bad, dtype, bits):
    x = draw((70, 64), dtype)
    want = dequantize(quantize_pack(x, bits, 16))
    x[7, 20] = bad
    back = dequantize(quantize_pack(x, bits, 16))
    assert back[7, 16:32].isnan().all()
    back[7, 16:32] = want[7, 16:32]
    assert torch.equal(back, want)


def test_a_float16_scale_beyond_its_range_poisons_the_group():
    x = torch.zeros(1, 8, dtype=torch.float16)
    x[0, 1], x[0, 2] = 65504, -65504
    assert dequantize(quantize_pack(x, 1, 4))[0, :4].isnan().all()
    assert (dequantize(quantize_pack(x, 1, 4))[0, 4:] == 0).all()
    x[0, 1], x[0, 2] = 32000, -32000
    assert dequantize(quantize_pack(x, 2, 4)).isfinite().all()


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_subnormal_scales_of_float16_stay_within_the_field(bits):
    x = (torch.arange(64) % 22 * 2.0**-24).half().expand(64, 64)
    check_codes(x, quantize_pack(x, bits, 32))


@bits_of_a_code
def test_x_may_be_non_contiguous(bits):
    x = draw((40, 60)).t()
    got, want = quantize_pack(x, bits, 8), quantize_pack(x.contiguous(), bits, 8)
    assert torch.equal(got.words, want.words) and torch.equal(got.params, want.params)
    strided = dataclasses.replace(got, params=got.params.transpose(0, 3).contiguous().transpose(0, 3))
    assert torch.equal(dequantize(strided), dequantize(want))


@pytest.mark.parametrize(
    "changes, pairs",
    [
        ({}, True),
        ({"is_cuda": False}, False),  # in the guarded interpreter
        ({"size": 4}, False),
        ({"place": 2}, False),
        ({"capability": (7, 5)}, False),
        ({"hip": "6.4"}, False),
    ],
)
def test_neighbours_are_read_as_one_where_a_gpu_can(monkeypatch, changes, pairs):
    given = {"is_cuda": True, "size": 2, "place": 256, "capability": (8, 0), "hip": None} | changes
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: given["capability"])
    monkeypatch.setattr(torch.version, "hip", given["hip"])
    x = SimpleNamespace(
        is_cuda=given["is_cuda"],
        get_device=lambda: 0,
        element_size=lambda: given["size"],
        data_ptr=lambda: given["place"],
    )
    monkeypatch.setattr(quantize, "_has_pairs", quantize._has_pairs.__wrapped__)  # without its cache
    assert quantize._read_in_pairs(x) is pairs


def test_a_packed_tensor_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        quantize_pack(draw((2, 2)), 4, 2).bits = 2


# ---- relu


@dtypes
@shapes
def test_relu_and_its_gradient_are_those_of_torch(shape, dtype):
    x = draw(shape, dtype)
    if x.numel() > 8:
        x.view(-1)[::5], x.view(-1)[3], x.view(-1)[4] = 0.0, float("nan"), -0.0
    y, mask = relu_pack(x)
    assert torch.equal(y.nan_to_num(7.0), x.relu().nan_to_num(7.0))
    assert mask.dtype == torch.uint8 and mask.shape == (math.ceil(x.numel() / 8),)
    keep = [not v <= 0 for v in x.flatten().tolist()] + [False] * (-x.numel() % 8)
    assert mask.tolist() == [sum(keep[i + b] << b for b in range(8)) for i in range(0, len(keep), 8)]
    dy = draw(shape, dtype, 1)
    dx = relu_unpack_backward(dy, mask)
    assert dx.dtype == dtype and torch.equal(dx, torch.ops.aten.threshold_backward(dy, x, 0))


def test_relu_of_non_contiguous_tensors():
    x, dy = draw((30, 7)).t(), draw((30, 7), seed=1).t()
    y, mask = relu_pack(x)
    assert y.is_contiguous() and torch.equal(y, x.relu())
    assert torch.equal(mask, relu_pack(x.contiguous())[1])
    dx = relu_unpack_backward(dy, mask.repeat_interleave(2)[::2])
    assert dx.is_contiguous() and torch.equal(dx, torch.ops.aten.threshold_backward(dy, x, 0))


# ---- what is refused


def packed_with(**parts):
    return lambda: dequantize(dataclasses.replace(quantize_pack(draw((20, 30)), 4, 8), **parts))


U8 = torch.zeros(4, 4, dtype=torch.uint8)
REFUSED = {
    f"offset must be an integer that fits in 64 bits, but is {2**70}": [
        lambda: quantize_pack(draw((4, 4)), 4, offset=2**70)
    ],
    "bits must be 1, 2, 4 or 8, but is 3": [
        lambda: pack_bits(U8, 3),
        lambda: unpack_bits(U8.short(), 3, (4, 4)),
        lambda: quantize_pack(draw((4, 4)), 3),
        packed_with(bits=3),
    ],
    "bits must be 1, 2, 4 or 8, but is True": [
        lambda: pack_bits(U8, True),
        lambda: quantize_pack(draw((4, 4)), True),
    ],
    "group_size must be an integer of at least 1, but is 0": [lambda: quantize_pack(draw((4, 4)), 4, 0)],
    "group_size must be an integer of at least 1, but is -8": [lambda: quantize_pack(draw((4, 4)), 4, -8)],
    "group_size must be an integer of at least 1, but is 2.0": [lambda: quantize_pack(draw((4, 4)), 4, 2.0)],
    "group_size must be an integer of at least 1, but is True": [
        lambda: quantize_pack(draw((4, 4)), 4, True)
    ],
    "codes must have at least one axis, but is a scalar": [lambda: pack_bits(U8[0, 0], 4)],
    "x must have at least one axis, but is a scalar": [lambda: quantize_pack(draw(()), 4)],
    "shape must be a shape with at least one axis, but is ()": [lambda: unpack_bits(U8.short(), 4, ())],
    "words must have shape (1, 16, 4) for shape (4, 4), but has shape (1, 16, 3)": [
        lambda: unpack_bits(torch.zeros(1, 16, 3, dtype=torch.int16), 4, (4, 4))
    ],
    "mask must have shape (2,) for 16 elements, but has shape (1,)": [
        lambda: relu_unpack_backward(draw((4, 4)), U8[0, :1])
    ],
    "mask must have shape (16,) for 128 elements, but has shape (4, 4)": [
        lambda: relu_unpack_backward(draw((128,)), U8)
    ],
    "mask must be on the device of dy, cpu, but is on meta": [
        lambda: relu_unpack_backward(draw((16,)), torch.zeros(2, dtype=torch.uint8, device="meta"))
    ],
    "packed.words must have shape (1, 16, 31), but has shape (1, 16, 30)": [packed_with(shape=(20, 31))],
    "packed.words must have shape (2, 16, 30), but has shape (1, 16, 30)": [packed_with(shape=(65, 30))],
    "packed.params must have shape (2, 1, 2, 64), but has shape (4, 1, 2, 64)": [packed_with(group_size=16)],
    "packed.params must have shape (4, 1, 2, 64), but has shape (3, 1, 2, 64)": [
        packed_with(params=torch.zeros(3, 1, 2, 64))
    ],
    "packed.params must be on the device of words, cpu, but is on meta": [
        packed_with(params=torch.zeros(4, 1, 2, 64, device="meta"))
    ],
}
REFUSED_TYPES = {
    "codes must be torch.uint8, but is torch.int32": [lambda: pack_bits(U8.int(), 4)],
    "codes must be torch.uint8, but is list": [lambda: pack_bits([1, 2], 4)],
    "words must be torch.int16, but is torch.uint8": [lambda: unpack_bits(U8, 4, (4, 4))],
    "x must be float32, float16 or bfloat16, but is torch.int32": [
        lambda: quantize_pack(U8.int(), 4),
        lambda: relu_pack(U8.int()),
    ],
    "x must be float32, float16 or bfloat16, but is torch.float64": [
        lambda: quantize_pack(draw((4, 4)).double(), 4),
        lambda: relu_pack(draw((4, 4)).double()),
    ],
    "x must be float32, float16 or bfloat16, but is ndarray": [
        lambda: relu_pack(np.zeros(3)),
        lambda: quantize_pack(np.zeros(3, np.float32), 4),
    ],
    "dy must be float32, float16 or bfloat16, but is torch.int64": [
        lambda: relu_unpack_backward(U8.long(), U8[0, :2])
    ],
    "mask must be torch.uint8, but is torch.bool": [
        lambda: relu_unpack_backward(draw((16,)), torch.zeros(2, dtype=torch.bool))
    ],
    "packed must be a PackedTensor, not Tensor": [lambda: dequantize(U8)],
    "packed.words must be torch.int16, but is torch.int32": [
        packed_with(words=torch.zeros(1, 16, 30, dtype=torch.int32))
    ],
    "packed.words must be torch.int16, but is NoneType": [packed_with(words=None)],
    "packed.params must be torch.float32, but is torch.float16": [
        packed_with(params=torch.zeros(4, 1, 2, 64, dtype=torch.float16))
    ],
    "shape must be a tuple of integers, but is 8": [
        packed_with(shape=8),
        lambda: unpack_bits(U8.short(), 4, 8),
    ],
    "offset must be an integer, but is str": [lambda: quantize_pack(draw((4, 4)), 4, offset="a")],
}
EVERY_REFUSAL = [
    (kind, text, call)
    for kind, table in ((ValueError, REFUSED), (TypeError, REFUSED_TYPES))
    for text, calls in table.items()
    for call in calls
]


@pytest.mark.parametrize("kind, text, call", EVERY_REFUSAL, ids=[text[:40] for _, text, _ in EVERY_REFUSAL])
def test_bad_input_is_refused_by_name_value_and_what_is_allowed(kind, text, call):
    with pytest.raises(kind, match="^" + re.escape(text)):
        call()


# ---- the operators that torch knows


@bits_of_a_code
def test_opcheck(bits):
    for shape in ((20, 30), (2, 3, 5), (7,), (0, 4)):
        codes, x = draw_codes(shape, bits), draw(shape)
        packed = quantize_pack(x, bits, 8)
        cases = [
            (bitpack._pack_bits, (codes, bits)),
            (bitpack._unpack_bits, (pack_bits(codes, bits), bits, list(shape))),
            (quantize._quantize_pack, (x, bits, 8)),
            (quantize.dequantize_words, (packed.words, packed.params, bits, packed.group_size, list(shape))),
        ]
        if bits == 1:
            cases += [
                (packed_relu._relu_pack, (x,)),
                (packed_relu._relu_unpack_backward, (x, relu_pack(x)[1])),
            ]
        for operator, arguments in cases:
            torch.library.opcheck(operator, arguments, test_utils=("test_schema", "test_faketensor"))


def test_opcheck_of_what_is_left():
    """The checks above are the quick ones; all of them once."""
    x, codes = draw((20, 30)), draw_codes((20, 30), 4)
    packed, words = quantize_pack(x, 4, 8), pack_bits(codes, 4)
    torch.library.opcheck(bitpack._pack_bits, (codes, 4))
    torch.library.opcheck(bitpack._unpack_bits, (words, 4, [20, 30]))
    torch.library.opcheck(quantize._quantize_pack, (x, 4, 8))
    torch.library.opcheck(quantize.dequantize_words, (packed.words, packed.params, 4, 8, [20, 30]))
    torch.library.opcheck(packed_relu._relu_pack, (x,))
    torch.library.opcheck(packed_relu._relu_unpack_backward, (x, relu_pack(x)[1]))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_as_one_graph(backend):
    def round_trip(x, dy, codes):
        y, mask = relu_pack(x)
        packed = quantize_pack(y, 4, 16)
        back = unpack_bits(pack_bits(codes, 2), 2, codes.shape)
        return dequantize(packed), packed.words, relu_unpack_backward(dy, mask), back

    torch.compiler.reset()
    compiled = torch.compile(round_trip, fullgraph=True, backend=backend)
    inputs = draw((20, 30)), draw((20, 30), seed=1), draw_codes((9, 5), 2)
    for got, want in zip(compiled(*inputs), round_trip(*inputs), strict=True):
        assert got.dtype == want.dtype and torch.equal(got, want)
    torch.compiler.reset()


# ---- the Triton kernels against the references


def guarded(kernel, grid, outputs, **arguments):
    """The outputs of a run without a fault. They start as 77, so that an element that stays is noticed."""
    done = run(kernel, arguments, tuple(grid) + (1,) * (3 - len(grid)), outputs)
    assert done.stop is None, done.stop
    assert done.conflict is None and not done.early_reads and not done.changed and not done.holes
    assert all(written.all() for written in done.written.values())
    return list(done.outputs.values())


def blank(shape, dtype):
    return torch.full(tuple(shape), 77, dtype=dtype)


class Recorded:
    """Stands for a kernel in a launcher: keeps what it is launched with."""

    def __getitem__(self, grid):
        return lambda *values, **options: self.__dict__.update(grid=grid, values=values, options=options)


def launched(monkeypatch, name, launch, *arguments):
    """Grid and arguments by name of a launcher's launch of a kernel of `quantize`."""
    kernel, seen = getattr(quantize, name), Recorded()
    with monkeypatch.context() as patch:
        patch.setattr(quantize, name, seen)
        launch(*arguments)
    options = {k: v for k, v in seen.options.items() if k not in ("num_warps", "num_stages", "maxnreg")}
    return kernel, seen.grid, {**dict(zip(kernel.arg_names, seen.values, strict=False)), **options}


@bits_of_a_code
@pytest.mark.parametrize("rows, columns", [(1, 1), (37, 9), (256, 16), (130, 300)])
def test_kernels_pack_and_unpack(rows, columns, bits):
    codes = draw_codes((rows, columns), bits)
    want = bitpack.pack_rows_ref(codes, bits)
    numbers = {"K": rows, "C": columns, "BITS": bits, "BLOCK_C": 256}
    grid = (want.shape[0] * 16, triton.cdiv(columns, 256))
    [words] = guarded(
        bitpack._pack_bits_kernel, grid, ["words_ptr"],
        codes_ptr=codes, words_ptr=blank(want.shape, torch.int16), **numbers,
    )  # fmt: skip
    assert torch.equal(words, want)
    [back] = guarded(
        bitpack._unpack_bits_kernel, grid, ["codes_ptr"],
        words_ptr=want, codes_ptr=blank(codes.shape, torch.uint8), **numbers,
    )  # fmt: skip
    assert torch.equal(back, codes)


def quantized_by_the_kernel(monkeypatch, x, bits, group):
    words, params = quantize.storage_shapes(*x.shape, bits, group)
    words, params = blank(words, torch.int16), blank(params, x.dtype)
    kernel, grid, arguments = launched(
        monkeypatch, "_quantize_pack_kernel", quantize.launch_quantize_pack, x, words, params, bits, group
    )
    words, params = guarded(kernel, grid, ["words_ptr", "params_ptr"], **arguments)
    return arguments["EVEN"], words, params


# rows in blocks of words, rows more, columns, group; even ones first
MATRICES = [
    (1, 0, 256, 128),
    (2, 0, 512, 256),
    (1, 0, 256, 32),
    (0, 3, 5, 2),
    (1, 5, 70, 32),
    (0, 33, 40, 16),
]
MATRICES += [(0, 20, 50, 50), (1, 0, 300, 128), (0, 7, 3, 1)]


@bits_of_a_code
@pytest.mark.parametrize("blocks, more, columns, group", MATRICES)
def test_kernel_quantizes(monkeypatch, blocks, more, columns, group, bits):
    rows = blocks * block_rows(bits) + more
    for seed, dtype in enumerate(FLOATS if rows * columns < 20000 else FLOATS[seed_of(bits) :][:1]):
        x = draw((rows, columns), dtype, seed)
        x[min(2, rows - 1)] = 1.5
        even, words, params = quantized_by_the_kernel(monkeypatch, x, bits, group)
        assert even == (more == 0 and columns % 256 == 0)
        want_words, want_params = quantize.quantize_pack_ref(x, bits, group)
        assert torch.equal(params, want_params)
        check_words(words, want_words, bits, x, params, group)


def test_kernel_quantizes_a_long_group(monkeypatch):
    """Beyond 4096 columns a program holds fewer rows at once."""
    x = draw((2, 4100), torch.bfloat16)
    _, words, params = quantized_by_the_kernel(monkeypatch, x, 8, 4100)
    want_words, want_params = quantize.quantize_pack_ref(x, 8, 4100)
    assert torch.equal(params, want_params)
    check_words(words, want_words, 8, x, params, 4100)


def seed_of(bits):
    return {1: 2, 2: 0, 4: 1, 8: 2}[bits]


def check_words(words, want, bits, x, params, group):
    """Equal except for codes next to a tie: the interpreter's fma rounds twice, a GPU's once."""
    rows = x.shape[0]
    got, want = (bitpack.unpack_rows_ref(w, bits, len(w) * block_rows(bits)).int() for w in (words, want))
    assert torch.equal(got[rows:], want[rows:])
    off = (got - want).abs()[:rows]
    scale, low = params.permute(2, 1, 3, 0).flatten(1, 2)[:, :rows].double()
    of_column = torch.arange(x.shape[1]) // group
    place = (x.double() - low[:, of_column]) / scale[:, of_column]
    beside = (place % 1 - 0.5).abs() < 1e-6
    assert (off[~beside] == 0).all() and off.max() <= 1
    assert (words != bitpack.pack_rows_ref(want.byte(), bits)).float().mean() <= 0.002


@bits_of_a_code
@pytest.mark.parametrize("blocks, more, columns, group", [(1, 0, 256, 128), (0, 37, 44, 20)])
def test_kernel_quantizes_a_power_of_two_grid_to_the_bit(monkeypatch, blocks, more, columns, group, bits):
    for dtype in FLOATS[seed_of(bits) :][:1] if blocks else FLOATS:
        x = on_a_grid((blocks * block_rows(bits) + more, columns), bits, dtype)
        _, words, params = quantized_by_the_kernel(monkeypatch, x, bits, group)
        want_words, want_params = quantize.quantize_pack_ref(x, bits, group)
        assert torch.equal(words, want_words) and torch.equal(params, want_params)


@bits_of_a_code
@pytest.mark.parametrize("more", [0, 3])
def test_kernel_keeps_nan_and_inf_in_their_group(monkeypatch, more, bits):
    x = on_a_grid((block_rows(bits) + more, 256), bits)
    x[1, 3], x[18, 200], x[5, 130], x[7, 0] = (float(v) for v in ("nan", "inf", "-inf", "nan"))
    _, words, params = quantized_by_the_kernel(monkeypatch, x, bits, 128)
    want_words, want_params = quantize.quantize_pack_ref(x, bits, 128)
    assert torch.equal(words, want_words)
    assert torch.equal(params.nan_to_num(9.0), want_params.nan_to_num(9.0))


@bits_of_a_code
def test_kernel_stays_within_the_field(monkeypatch, bits):
    """Scales that are rounded down by much: subnormal in float16, and 255 steps of bfloat16."""
    height = block_rows(bits)
    tiny = (torch.arange(256) % 22 * 2.0**-24).half().expand(height, 256).contiguous()
    wide = torch.linspace(0, 1.0039 * (2**bits - 1), 256).bfloat16().expand(height, 256).contiguous()
    for x in (tiny, wide):
        even, words, params = quantized_by_the_kernel(monkeypatch, x, bits, 128)
        want_words, want_params = quantize.quantize_pack_ref(x, bits, 128)
        assert even and torch.equal(params, want_params)
        check_words(words, want_words, bits, x, params, 128)


@bits_of_a_code
@pytest.mark.parametrize("blocks, more, columns, group", MATRICES)
def test_kernel_dequantizes(monkeypatch, blocks, more, columns, group, bits):
    rows = blocks * block_rows(bits) + more
    for seed, dtype in enumerate(FLOATS if rows * columns < 20000 else FLOATS[seed_of(bits) :][:1]):
        words, params = quantize.quantize_pack_ref(on_a_grid((rows, columns), bits, dtype, seed), bits, group)
        kernel, grid, arguments = launched(
            monkeypatch, "_dequantize_kernel", quantize.launch_dequantize,
            words, params, blank((rows, columns), dtype), bits, group,
        )  # fmt: skip
        [x] = guarded(kernel, grid, ["x_ptr"], **arguments)
        assert torch.equal(x, quantize.dequantize_ref(words, params, bits, group, rows))


@dtypes
@pytest.mark.parametrize("count", [1, 7, 8, 1024, 5000])
def test_kernels_of_relu(count, dtype):
    x, dy = draw((count,), dtype), draw((count,), dtype, 1)
    x[::5], x[-1] = 0.0, float("nan")
    want_y, want_mask = packed_relu.relu_pack_ref(x)
    blocks = (packed_relu.FORWARD_BLOCK, packed_relu.BACKWARD_BLOCK)
    y, mask = guarded(
        packed_relu._relu_pack_kernel, (triton.cdiv(count, blocks[0]),), ["y_ptr", "mask_ptr"],
        x_ptr=x, y_ptr=blank(x.shape, dtype), mask_ptr=blank(want_mask.shape, torch.uint8), N=count,
        BLOCK=blocks[0],
    )  # fmt: skip
    assert torch.equal(y.nan_to_num(9.0), want_y.nan_to_num(9.0)) and torch.equal(mask, want_mask)
    [dx] = guarded(
        packed_relu._relu_unpack_backward_kernel, (triton.cdiv(count, blocks[1]),), ["dx_ptr"],
        dy_ptr=dy, mask_ptr=mask, dx_ptr=blank(x.shape, dtype), N=count, BLOCK=blocks[1],
    )  # fmt: skip
    assert torch.equal(dx, packed_relu.relu_unpack_backward_ref(dy, mask))
