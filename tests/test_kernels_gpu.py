"""Production kernels on a GPU: equal to their torch references, whatever the shape.

Imports neither the harness nor triton-viz, so that it runs where only torch and triton are installed.
"""

import pytest
import torch

from puzzles_lib.kernels import bitpack, packed_relu, quantize

pytestmark = pytest.mark.gpu

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
SHAPES = ((1, 1), (3, 5), (128, 256), (100, 300), (257, 768), (300, 1000), (2, 3, 70), (513,), (0, 8), (8, 0))


def draw(shape, dtype, seed=0, scale=1.0, offset=0.0):
    generator = torch.Generator("cuda").manual_seed(seed)
    return (torch.randn(shape, device="cuda", generator=generator) * scale + offset).to(dtype)


@pytest.mark.parametrize("bits", bitpack.BITS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_pack_and_unpack(shape, bits):
    codes = torch.randint(0, 2**bits, shape, device="cuda", dtype=torch.uint8)
    codes.view(-1)[::3] = 2**bits - 1
    words = bitpack.pack_bits(codes, bits)
    assert torch.equal(words.cpu(), bitpack.pack_bits(codes.cpu(), bits))
    assert torch.equal(bitpack.unpack_bits(words, bits, shape), codes)


@pytest.mark.parametrize("bits", bitpack.BITS)
@pytest.mark.parametrize("group", [1, 32, 50, 128, 256, 1000])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_quantize_equals_the_reference(shape, group, bits):
    for seed, dtype in enumerate(FLOATS):
        x = draw(shape, dtype, seed)
        if x.numel() > 4:
            x.view(-1)[: x.shape[-1]] = 1.5  # a constant row
        packed, want = quantize.quantize_pack(x, bits, group), quantize.quantize_pack(x.cpu(), bits, group)
        assert torch.equal(packed.words.cpu(), want.words)
        assert torch.equal(packed.params.cpu(), want.params)
        back = quantize.dequantize(packed)
        assert back.shape == x.shape and back.dtype == x.dtype
        assert torch.equal(back.cpu(), quantize.dequantize(want))


@pytest.mark.parametrize("bits", bitpack.BITS)
@pytest.mark.parametrize("scale, offset", [(1e-6, 0.0), (1e4, 0.0), (1.0, 3.0), (1e-3, 100.0), (1e-38, 0.0)])
def test_quantize_over_scales(scale, offset, bits):
    x = draw((256, 512), torch.bfloat16, 1, scale, offset)
    packed, want = quantize.quantize_pack(x, bits, 256), quantize.quantize_pack(x.cpu(), bits, 256)
    assert torch.equal(packed.words.cpu(), want.words) and torch.equal(packed.params.cpu(), want.params)


@pytest.mark.parametrize("bits", bitpack.BITS)
@pytest.mark.parametrize("rows", [130, 256])  # ragged and even blocks
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_nan_and_inf_poison_their_group_alone(bad, dtype, rows, bits):
    x = draw((rows, 512), dtype)
    clean = quantize.dequantize(quantize.quantize_pack(x, bits, 128))
    x[7, 300] = bad
    back = quantize.dequantize(quantize.quantize_pack(x, bits, 128))
    assert back[7, 256:384].isnan().all()
    back[7, 256:384] = clean[7, 256:384]
    assert torch.equal(back, clean)


@pytest.mark.parametrize("bits", bitpack.BITS)
@pytest.mark.parametrize("group", [32, 256, 1024])
@pytest.mark.parametrize("rounding", ["nearest", "stochastic"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_pairs_of_neighbours_and_single_ones_give_the_same_bits(dtype, rounding, group, bits):
    """What does not lie at 16 bytes is read one by one."""
    x = draw((512, 2048), dtype)
    x[7, 5], x[300, 700], x[301, 900] = float("nan"), float("inf"), float("-inf")
    x[128:192] = draw((64, 2048), torch.float32, 1, 1e38).clamp(-3e38, 3e38).to(dtype)  # no normal inverse
    x[192:256] = draw((64, 2048), torch.float32, 2, 1e-38).to(dtype)
    x[256:258], x[258:260] = 0.0, -0.0
    shifted = torch.empty(x.numel() + 1, dtype=dtype, device="cuda")[1:].view(x.shape).copy_(x)
    assert x.data_ptr() % 16 == 0 and shifted.data_ptr() % 16 == 2 and shifted.is_contiguous()
    options = {"bits": bits, "group_size": group, "rounding": rounding, "seed": 3}
    pairs, single = (quantize.quantize_pack(each, **options) for each in (x, shifted))
    assert torch.equal(pairs.words, single.words)
    assert torch.equal(pairs.params.view(torch.int16), single.params.view(torch.int16))


@pytest.mark.parametrize("bits", bitpack.BITS)
def test_subnormal_scales_of_float16_stay_within_the_field(bits):
    x = (torch.arange(256, device="cuda") % 22 * 2.0**-24).half().expand(256, 256)
    packed, want = quantize.quantize_pack(x, bits, 128), quantize.quantize_pack(x.cpu(), bits, 128)
    assert torch.equal(packed.words.cpu(), want.words) and torch.equal(packed.params.cpu(), want.params)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("shape", SHAPES + ((2048, 768), (100003,)), ids=str)
def test_relu(shape, dtype):
    x = draw(shape, dtype)
    if x.numel() > 8:
        x.view(-1)[::5] = 0.0
        x.view(-1)[3] = float("nan")
    y, mask = packed_relu.relu_pack(x)
    assert torch.equal(y.nan_to_num(7.0), x.relu().nan_to_num(7.0))
    assert torch.equal(mask.cpu(), packed_relu.relu_pack(x.cpu())[1])
    dy = draw(shape, dtype, 1)
    want = torch.ops.aten.threshold_backward(dy, x, 0)
    assert torch.equal(packed_relu.relu_unpack_backward(dy, mask), want)


def test_non_contiguous_inputs():
    x = draw((300, 200), torch.bfloat16).t()
    assert torch.equal(
        quantize.dequantize(quantize.quantize_pack(x, 8, 64)),
        quantize.dequantize(quantize.quantize_pack(x.contiguous(), 8, 64)),
    )
    y, mask = packed_relu.relu_pack(x)
    assert torch.equal(y, x.relu()) and torch.equal(mask, packed_relu.relu_pack(x.contiguous())[1])
    assert torch.equal(packed_relu.relu_unpack_backward(x, mask), x.relu())


def test_opcheck_of_every_operator():
    x = draw((100, 300), torch.bfloat16)
    packed = quantize.quantize_pack(x, 2, 128)
    codes = torch.randint(0, 4, (100, 300), device="cuda", dtype=torch.uint8)
    torch.library.opcheck(bitpack._pack_bits, (codes, 2))
    torch.library.opcheck(bitpack._unpack_bits, (bitpack.pack_bits(codes, 2), 2, [100, 300]))
    torch.library.opcheck(quantize._quantize_pack, (x, 2, 128))
    torch.library.opcheck(quantize.dequantize_words, (packed.words, packed.params, 2, 128, [100, 300]))
    torch.library.opcheck(packed_relu._relu_pack, (x,))
    torch.library.opcheck(packed_relu._relu_unpack_backward, (x, packed_relu.relu_pack(x)[1]))


def test_compiles_as_one_graph():
    @torch.compile(fullgraph=True)
    def round_trip(x):
        y, mask = packed_relu.relu_pack(x)
        return quantize.dequantize(quantize.quantize_pack(y, 4, 128)), packed_relu.relu_unpack_backward(
            x, mask
        )

    x = draw((128, 256), torch.bfloat16)
    back, gradient = round_trip(x)
    assert torch.equal(back, quantize.dequantize(quantize.quantize_pack(x.relu(), 4, 128)))
    assert torch.equal(gradient, x.relu())


def test_two_devices_are_refused():
    x = draw((8, 8), torch.float32)
    with pytest.raises(ValueError, match="mask must be on .*, but is on cpu"):
        packed_relu.relu_unpack_backward(x, packed_relu.relu_pack(x.cpu())[1])
