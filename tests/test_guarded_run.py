"""The guarded interpreter: every access checked, operations as on a GPU, Triton left as it was."""

import re
import resource
import signal
import textwrap
import threading
import warnings

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import ASTSource

from puzzles_lib import runner
from puzzles_lib.compiler import front_end
from puzzles_lib.dtypes import DTYPES
from puzzles_lib.runner import Source, operations
from tests.kernel_lab import execute, kernel_of

NO_NUMBER = float("nan")

# ---- out of bounds


@triton.jit
def copy(x_ptr, z_ptr, x_shift, z_shift, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs + x_shift)  # [BLOCK]
    tl.store(z_ptr + offs + z_shift, x)


@triton.jit
def copy_one(x_ptr, z_ptr, x_shift, z_shift, BLOCK: tl.constexpr):
    tl.store(z_ptr + z_shift, tl.load(x_ptr + x_shift))


@triton.jit
def copy_atomically(x_ptr, z_ptr, x_shift, z_shift, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    tl.atomic_xchg(z_ptr + offs + z_shift, tl.load(x_ptr + offs + x_shift))


def copied(kernel, x_shift=0, z_shift=0, **options):
    x, z = torch.arange(8.0), torch.full((8,), -1.0)
    guard = torch.full((4096,), 7.0)  # allocated next to the others: a stray store might end up here
    done = execute(kernel, x_ptr=x, z_ptr=z, x_shift=x_shift, z_shift=z_shift, BLOCK=8, **options)
    assert (guard == 7).all() and x.tolist() == list(range(8))
    return done, z


@pytest.mark.parametrize("shift", [1, -1, 8, -8, 1000, -1000, 10**12, -(10**12), 10**14])
def test_loads_out_of_bounds_are_refused_near_and_far(shift):
    done, z = copied(copy, x_shift=shift)
    low, high = (
        (shift, shift + 7) if not 0 < abs(shift) < 8 else ((8, 7 + shift) if shift > 0 else (shift, -1))
    )
    which = f"elements {low}..{high}; x has 8, numbered 0 to 7"
    if low == high:
        which = f"element {low}; x has 8, numbered 0 to 7"
    assert done.stop.kind == "out of bounds"
    assert done.stop.message == f"out-of-bounds load of x_ptr in program (0, 0, 0): {which}"
    assert done.stop.site.source == "x = tl.load(x_ptr + offs + x_shift)  # [BLOCK]"
    assert (z == -1).all()


@triton.jit
def copy_by_steps(x_ptr, z_ptr, first, second, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    pointers = x_ptr + first + offs  # [BLOCK]
    pointers = tl.where(offs >= 0, tl.reshape(pointers[None, :], (BLOCK,)), z_ptr)  # [BLOCK]
    tl.store(z_ptr + offs, tl.load(pointers + second))


FAR = [
    2**47,
    2**49,
    2**50 - 8,
    2**50,
    3 * 2**50,
    -(2**50),
    2**53,
    2**61,
    2**62,
    2**62 + 2,
    2**63 - 8,
    -(2**63),
]


@pytest.mark.parametrize("first", FAR)
def test_a_pointer_is_told_by_the_tensor_that_it_started_from(first):
    """2**50 elements of 4 bytes from x are the addresses of another tensor, 2**62 those of x itself."""
    x, z = torch.arange(8.0), torch.full((8,), -1.0)
    for second in (0, 5, -3, first):
        low = first + second
        if -(2**63) <= low <= 2**63 - 8:
            done = execute(copy_by_steps, x_ptr=x, z_ptr=z, first=first, second=second, BLOCK=8)
            which = f"elements {low}..{low + 7}; x has 8, numbered 0 to 7"
            assert done.stop.message == f"out-of-bounds load of x_ptr in program (0, 0, 0): {which}"


@pytest.mark.parametrize("there", [2**50, -(2**50), 2**62, 2**63 - 8])
def test_a_pointer_that_comes_back_is_as_good_as_new(there):
    x, z = torch.arange(8.0), torch.full((8,), -1.0)
    done = execute(copy_by_steps, x_ptr=x, z_ptr=z, first=there, second=-there, BLOCK=8)
    assert done.stop is None and z.tolist() == x.tolist()


def test_a_block_pointer_that_is_far_off_is_told_by_its_tensor():
    source = """
    @triton.jit
    def kernel(x_ptr, z_ptr, far):
        tile = tl.make_block_ptr(x_ptr, (8,), (far,), (0,), (8,), (0,))
        tl.store(z_ptr + tl.arange(0, 8), tl.load(tile))
    """
    x, z = torch.arange(8.0), torch.full((8,), -1.0)
    done = execute(kernel_of(textwrap.dedent(source)), x_ptr=x, z_ptr=z, far=2**50)
    last = 7 * 2**50
    which = f"elements {2**50}..{last}; x has 8, numbered 0 to 7"
    assert done.stop.message == f"out-of-bounds load of x_ptr in program (0, 0, 0): {which}"


@pytest.mark.parametrize("shift", [1, -1, 8, -1000, 10**12, -(10**12)])
@pytest.mark.parametrize("kernel, kind", [(copy, "store"), (copy_atomically, "atomic")])
def test_stores_out_of_bounds_touch_nothing(kernel, kind, shift):
    done, z = copied(kernel, z_shift=shift)
    assert done.stop.message.startswith(f"out-of-bounds {kind} of z_ptr in program (0, 0, 0): element")
    assert (z == -1).all() and not done.written["z"].any()


@pytest.mark.parametrize("shift", [8, -1, 10**12])
def test_scalar_accesses_are_checked_too(shift):
    done, _ = copied(copy_one, x_shift=shift)
    which = f"element {shift}; x has 8, numbered 0 to 7"
    assert done.stop.message == f"out-of-bounds load of x_ptr in program (0, 0, 0): {which}"
    done, _ = copied(copy_one, z_shift=shift)
    assert "out-of-bounds store of z_ptr" in done.stop.message
    done, z = copied(copy_one, x_shift=7, z_shift=3)
    assert done.stop is None and z[3] == 7


def test_no_slip_of_an_index_reaches_another_argument():
    """Whatever the distance between two tensors in real memory, the one is not reached from the other."""
    x, z = torch.arange(8.0), torch.zeros(8)
    between = (z.data_ptr() - x.data_ptr()) // 4
    done = execute(copy, x_ptr=x, z_ptr=z, x_shift=between, z_shift=0, BLOCK=8)
    assert "out-of-bounds load of x_ptr" in done.stop.message


@triton.jit
def masked_copy(x_ptr, z_ptr, N, LIMIT, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    x = tl.load(x_ptr + offs, mask=offs < LIMIT, other=5.0)  # [BLOCK]
    tl.store(z_ptr + offs, x, mask=offs < N)


def test_masked_off_lanes_may_point_anywhere():
    z = torch.zeros(8)
    done = execute(masked_copy, x_ptr=torch.arange(3.0), z_ptr=z, N=8, LIMIT=3, BLOCK=8)
    assert done.stop is None and z.tolist() == [0, 1, 2, 5, 5, 5, 5, 5]


def test_one_lane_too_many_is_named():
    done = execute(masked_copy, x_ptr=torch.arange(3.0), z_ptr=torch.zeros(8), N=8, LIMIT=4, BLOCK=8)
    assert done.stop.message.endswith(
        "load of x_ptr in program (0, 0, 0): element 3; x has 3, numbered 0 to 2"
    )
    done = execute(masked_copy, x_ptr=torch.arange(3.0), z_ptr=torch.zeros(5), N=6, LIMIT=3, BLOCK=8)
    assert done.stop.message.endswith(
        "store of z_ptr in program (0, 0, 0): element 5; z has 5, numbered 0 to 4"
    )


def test_a_mask_that_is_off_everywhere_touches_nothing():
    done = execute(masked_copy, x_ptr=torch.empty(0), z_ptr=torch.empty(0), N=0, LIMIT=0, BLOCK=8)
    assert done.stop is None and done.bytes_moved == 0


def test_an_empty_tensor_has_no_element():
    done, _ = copied(copy)
    assert done.stop is None
    done = execute(copy, x_ptr=torch.empty(0), z_ptr=torch.empty(8), x_shift=0, z_shift=0, BLOCK=8)
    assert done.stop.message.endswith("elements 0..7; x has 0")


def test_a_program_is_named_by_its_three_axes():
    @triton.jit
    def kernel(z_ptr):
        tl.store(z_ptr + tl.program_id(0) * 6 + tl.program_id(1) * 2 + tl.program_id(2), 1.0)

    done = execute(kernel, (2, 3, 2), z_ptr=torch.zeros(11))
    assert "in program (1, 2, 1): element 11; z has 11, numbered 0 to 10" in done.stop.message


@triton.jit
def null_pointer(z_ptr, ADDRESS: tl.constexpr):
    pointer = tl.full((), ADDRESS, tl.int64).to(tl.pointer_type(tl.float32))
    tl.store(z_ptr, tl.load(pointer))


@pytest.mark.parametrize("address", [0, 64, 2**50, -1])
def test_a_forged_pointer_is_refused(address):
    done = execute(null_pointer, z_ptr=torch.zeros(1), ADDRESS=address)
    assert done.stop.kind == "out of bounds"
    assert "through a pointer that is not an argument of the kernel" in done.stop.message


# ---- recording: what a picture needs


def test_recording_notes_bad_accesses_and_goes_on():
    done, z = copied(copy, x_shift=3, record=True)
    assert done.stop.message.endswith("elements 8..10; x has 8, numbered 0 to 7")
    load, store = done.accesses
    assert (load.kind, load.argument, store.kind, store.argument) == ("load", "x", "store", "z")
    assert load.elements.tolist() == [3, 4, 5, 6, 7, 8, 9, 10]
    assert load.bad.tolist() == [False] * 5 + [True] * 3 and load.mask.all()
    assert load.site.source.startswith("x = tl.load") and store.program == (0, 0, 0)
    assert z[:5].tolist() == [3, 4, 5, 6, 7] and z[5:].isnan().all()


def test_recording_a_bad_store_leaves_memory_alone():
    done, z = copied(copy, z_shift=-2, record=True)
    assert z.tolist() == [2, 3, 4, 5, 6, 7, -1, -1]
    assert done.accesses[1].bad.tolist() == [True] * 2 + [False] * 6
    done, z = copied(copy_atomically, z_shift=6, record=True)
    assert z.tolist() == [-1] * 6 + [0, 1] and "atomic of z_ptr" in done.stop.message


def test_recording_keeps_masks_apart():
    done = execute(
        masked_copy, x_ptr=torch.arange(3.0), z_ptr=torch.zeros(8), N=8, LIMIT=3, BLOCK=8, record=True
    )
    load, store = done.accesses
    assert load.mask.tolist() == [True] * 3 + [False] * 5 and store.mask.all() and not load.bad.any()
    done = execute(
        masked_copy, x_ptr=torch.arange(3.0), z_ptr=torch.zeros(8), N=0, LIMIT=0, BLOCK=8, record=True
    )
    assert [a.kind for a in done.accesses] == ["load", "store"]
    assert not any(a.mask.any() for a in done.accesses)


# ---- other ways to reach memory


@triton.jit
def block_pointers(x_ptr, z_ptr, M, N, m, n, BLOCK: tl.constexpr, CHECK: tl.constexpr, PAD: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (M, N), (N, 1), (m, n), (BLOCK, BLOCK), (1, 0))
    z = tl.make_block_ptr(z_ptr, (BLOCK, BLOCK), (BLOCK, 1), (0, 0), (BLOCK, BLOCK), (1, 0))
    tl.store(z, tl.load(x, boundary_check=CHECK, padding_option=PAD))


def by_block_pointers(m=0, n=0, check=(), pad="", shape=(4, 4)):
    x, z = torch.arange(16.0).reshape(4, 4), torch.zeros(4, 4)
    constants = {"BLOCK": 4, "CHECK": check, "PAD": pad}
    done = execute(block_pointers, x_ptr=x, z_ptr=z, M=shape[0], N=shape[1], m=m, n=n, **constants)
    return done, z, x


def test_block_pointers():
    done, z, x = by_block_pointers()
    assert done.stop is None and torch.equal(z, x) and not done.holes


def test_block_pointers_out_of_bounds():
    done, _, _ = by_block_pointers(m=2)
    assert "out-of-bounds load of x_ptr" in done.stop.message and "elements 16..23" in done.stop.message
    done, _, _ = by_block_pointers(m=-1, check=(1,))
    assert "elements -4..-1" in done.stop.message
    done, _, _ = by_block_pointers(check=(0, 1), shape=(5, 4), m=1, pad="zero")
    assert "elements 16..19" in done.stop.message  # the shape it was told is wrong


def test_block_pointers_with_boundary_check_and_padding():
    done, z, x = by_block_pointers(m=2, n=-1, check=(0, 1), pad="zero")
    want = torch.zeros(4, 4)
    want[:2, 1:] = x[2:, :3]
    assert done.stop is None and torch.equal(z, want) and not done.holes
    done, z, _ = by_block_pointers(m=2, n=-1, check=(0, 1), pad="nan")
    assert z[2:].isnan().all() and z[:2, 0].isnan().all() and not z[:2, 1:].isnan().any()


def test_block_pointers_without_padding_leave_holes():
    done, z, _ = by_block_pointers(m=2, check=(0,))
    assert list(done.holes.values()) == ["x"] and z[2:].isnan().all()


@triton.jit
def walking_block_pointer(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    x = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), (0,))
    total = tl.zeros((BLOCK,), tl.float32)
    for _ in range(0, N, BLOCK):
        total += tl.load(x, boundary_check=(0,), padding_option="zero")
        x = tl.advance(x, (BLOCK,))
    tl.store(z_ptr, tl.sum(total))


def test_a_block_pointer_advances():
    z = torch.zeros(1)
    done = execute(walking_block_pointer, x_ptr=torch.arange(10.0), z_ptr=z, N=10, BLOCK=4)
    assert done.stop is None and z.item() == 45


@triton.jit
def descriptors(x_ptr, z_ptr, M, N, m, n, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, (M, N), (N, 1), (BLOCK, BLOCK))
    z = tl.make_tensor_descriptor(z_ptr, (BLOCK, BLOCK), (BLOCK, 1), (BLOCK, BLOCK))
    z.store([0, 0], x.load([m, n]))


def test_tensor_descriptors_fill_with_zero_outside_of_their_shape():
    x, z = torch.arange(16.0).reshape(4, 4), torch.ones(4, 4)
    done = execute(descriptors, x_ptr=x, z_ptr=z, M=4, N=4, m=2, n=0, BLOCK=4)
    assert done.stop is None and torch.equal(z[:2], x[2:]) and (z[2:] == 0).all() and not done.holes


def test_a_tensor_descriptor_with_a_wrong_shape_is_caught():
    x = torch.arange(16.0).reshape(4, 4)
    done = execute(descriptors, x_ptr=x, z_ptr=torch.ones(4, 4), M=6, N=4, m=2, n=0, BLOCK=4)
    which = "elements 16..23; x has 16, numbered 0 to 15"
    assert done.stop.message == f"out-of-bounds load of x_ptr in program (0, 0, 0): {which}"


@triton.jit
def descriptor_from(x_ptr, z_ptr, first, stride, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr + first, (2, BLOCK), (stride, 1), (2, BLOCK))
    tl.store(z_ptr, tl.sum(tl.sum(x.load([0, 0]), axis=1), axis=0))


@pytest.mark.parametrize(
    "first, stride, told",
    [
        (
            0,
            6,
            "descriptor must be a multiple of 16 bytes apart, but are 24 bytes (6 elements) apart",
        ),
        (
            3,
            8,
            "of x_ptr's descriptor must begin at a multiple of 16 bytes, but begins 12 bytes after one",
        ),
        (4, 8, None),
    ],
)
def test_rows_of_a_descriptor_begin_at_multiples_of_16_bytes(first, stride, told):
    done = execute(
        descriptor_from, x_ptr=torch.ones(20), z_ptr=torch.zeros(1), first=first, stride=stride, BLOCK=4
    )
    assert done.stop is None if told is None else told in done.stop.message


@triton.jit
def through_bytes(x_ptr, z_ptr, shift, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr.to(tl.pointer_type(tl.int8), bitcast=True) + offs + shift)
    tl.store(z_ptr.to(tl.pointer_type(tl.int8), bitcast=True) + offs, x)


def test_pointers_cast_to_bytes():
    x, z = torch.randn(4), torch.zeros(4)
    done = execute(through_bytes, x_ptr=x, z_ptr=z, shift=0, BLOCK=16)
    assert done.stop is None and torch.equal(x, z) and done.written["z"].all()
    assert done.bytes_moved == 32 and not done.early_reads and done.conflict is None
    done = execute(through_bytes, x_ptr=x, z_ptr=z, shift=1, BLOCK=16)
    assert "load of x_ptr in program (0, 0, 0): element 16; x has 16, numbered 0 to 15" in done.stop.message


def test_recording_counts_in_the_tensors_own_elements():
    done = execute(through_bytes, x_ptr=torch.zeros(4), z_ptr=torch.zeros(4), shift=0, BLOCK=8, record=True)
    assert done.accesses[0].elements.tolist() == [0, 0, 0, 0, 1, 1, 1, 1]


@triton.jit
def through_words(x_ptr, z_ptr, shift, BLOCK: tl.constexpr):
    words = (x_ptr + shift).to(tl.pointer_type(tl.int32), bitcast=True)
    tl.store(z_ptr + tl.arange(0, BLOCK), tl.load(words + tl.arange(0, BLOCK)))


def test_pointers_cast_to_a_wider_type():
    x, z = torch.arange(16, dtype=torch.int8), torch.zeros(4, dtype=torch.int32)
    done = execute(through_words, x_ptr=x, z_ptr=z, shift=0, BLOCK=4)
    assert done.stop is None and torch.equal(z.view(torch.int8), x)
    done = execute(through_words, x_ptr=x, z_ptr=z, shift=4, BLOCK=4)
    assert "has 4, numbered 0 to 3" in done.stop.message
    done = execute(through_words, x_ptr=x, z_ptr=z, shift=2, BLOCK=2)
    assert done.stop.message == "misaligned load of x_ptr in program (0, 0, 0) at byte 2"


@triton.jit
def either(x_ptr, y_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    odd = (offs & 1) == 1
    value = tl.load(tl.where(odd, x_ptr + offs, y_ptr + offs), mask=offs < N, other=-1.0)
    tl.store(tl.where(odd, z_ptr + offs, z_ptr + (BLOCK - 2) - offs), value)


def test_one_load_from_two_tensors():
    x, y, z = torch.arange(8.0), torch.arange(8.0) * 10, torch.zeros(8)
    done = execute(either, x_ptr=x, y_ptr=y, z_ptr=z, N=8, BLOCK=8)
    assert done.stop is None and z.tolist() == [60, 1, 40, 3, 20, 5, 0, 7]
    assert done.loads == {"x": 4, "y": 4} and done.bytes_moved == 8 * 4 * 2
    done = execute(either, x_ptr=x, y_ptr=y[:6], z_ptr=z, N=8, BLOCK=8)
    assert (
        "out-of-bounds load of y_ptr in program (0, 0, 0): element 6; y has 6, numbered 0 to 5"
        == done.stop.message
    )


@triton.jit
def store_either(x_ptr, y_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    odd = (offs & 1) == 1
    tl.store(tl.where(odd, y_ptr + offs, z_ptr + offs), tl.load(x_ptr + offs))
    tl.atomic_add(tl.where(odd, y_ptr + offs, z_ptr + offs), 100.0, mask=offs < 2)


def test_one_store_to_two_tensors():
    y, z = torch.zeros(4), torch.zeros(4)
    done = execute(
        store_either, outputs={"y_ptr", "z_ptr"}, x_ptr=torch.arange(4.0), y_ptr=y, z_ptr=z, BLOCK=4
    )
    assert done.stop is None and y.tolist() == [0, 101, 0, 3] and z.tolist() == [100, 0, 2, 0]
    assert done.written["y"].tolist() == [False, True, False, True]


@triton.jit
def strided(x_ptr, z_ptr, stride_m, stride_n, M: tl.constexpr, N: tl.constexpr):
    m, n = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    tl.store(z_ptr + m * stride_m + n * stride_n, tl.load(x_ptr + m * stride_m + n * stride_n))


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.t(),
        lambda x: x[:, ::2],
        lambda x: x[1:5, 3:7],
        lambda x: x[::3].mT,
        lambda x: x[:1].expand(4, 8),
    ],
)
def test_strided_tensors(view):
    x = view(torch.arange(128.0).reshape(16, 8))[:4, :4]
    z = torch.zeros(200).as_strided(x.shape, x.stride())
    done = execute(strided, x_ptr=x, z_ptr=z, stride_m=x.stride(0), stride_n=x.stride(1), M=4, N=4)
    assert done.stop is None and torch.equal(x, z)
    assert done.written["z"].shape == (16,) and done.written["z"].all()
    done = execute(strided, x_ptr=x, z_ptr=z, stride_m=x.stride(0), stride_n=x.stride(1) + 1, M=4, N=4)
    assert done.stop.kind == "out of bounds"


def test_between_a_strided_tensors_elements_is_outside_of_it():
    x, z = torch.arange(8.0)[::2], torch.zeros(4)
    done = execute(copy_one, x_ptr=x, z_ptr=z, x_shift=4, z_shift=0, BLOCK=1)
    assert done.stop is None and z[0] == 4
    done = execute(copy_one, x_ptr=x, z_ptr=z, x_shift=3, z_shift=0, BLOCK=1)
    assert done.stop.message.endswith("element 3 is between its elements; it has 4")
    done = execute(copy_one, x_ptr=x, z_ptr=z, x_shift=7, z_shift=0, BLOCK=1)
    assert done.stop.message.endswith("element 7; it has 4")


def test_what_was_written_follows_the_tensors_own_order():
    z = torch.zeros(2, 4).t()  # [4, 2], its storage the other way round
    done = execute(copy_one, x_ptr=torch.ones(1), z_ptr=z, x_shift=0, z_shift=1, BLOCK=1)
    assert z[1, 0] == 1 and done.written["z"].reshape(4, 2)[1, 0] and done.written["z"].sum() == 1


@pytest.mark.parametrize(
    "dtype",
    [
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    ],
)
def test_every_dtype_is_copied_bit_by_bit(dtype):
    torch.manual_seed(0)
    size = dtype.itemsize
    if dtype == torch.bool:
        x = torch.rand(8) < 0.5
    else:
        x = torch.randint(0, 256, (8 * size,), dtype=torch.uint8).view(dtype)
    z = torch.zeros(8, dtype=dtype)
    done = execute(copy, x_ptr=x, z_ptr=z, x_shift=0, z_shift=0, BLOCK=8)
    assert done.stop is None and torch.equal(x.view(torch.uint8), z.view(torch.uint8))
    assert done.bytes_moved == 16 * size
    done = execute(copy, x_ptr=x, z_ptr=z, x_shift=1, z_shift=0, BLOCK=8)
    assert "has 8, numbered 0 to 7" in done.stop.message


@triton.jit
def show_type(n, z_ptr):
    tl.static_print(n.dtype)
    tl.store(z_ptr, n)


@pytest.mark.parametrize(
    "value, dtype", [(3, "int32"), (2**31, "int64"), (2**40, "int64"), (True, "int1"), (0.1, "fp32")]
)
def test_numbers_arrive_with_the_type_a_launch_gives_them(value, dtype, capsys):
    z = torch.zeros(1, dtype=torch.float64)
    done = execute(show_type, n=value, z_ptr=z)
    assert (
        done.stop is None
        and z.item() == pytest.approx(float(value))
        and capsys.readouterr().out == dtype + "\n"
    )


@triton.jit
def show_annotated(n: tl.int64, m: tl.int8, k: tl.uint32, z_ptr):
    tl.static_print(n.dtype, m.dtype, k.dtype)
    tl.store(z_ptr, n)


@pytest.mark.parametrize("value", [1, 3, 2**40])
def test_annotated_numbers_arrive_with_the_type_of_their_annotation(value, capsys):
    """As a launch hands them over, also where 1 would be a constant; a value too large is what it was."""
    z = torch.zeros(1, dtype=torch.int64)
    arguments = {"n": value, "m": 300 if value == 3 else 4, "k": 1, "z_ptr": z}
    assert execute(show_annotated, **arguments).stop is None and z.item() == value
    narrow = "int32" if value == 3 else "int8"
    assert capsys.readouterr().out == f"int64 {narrow} uint32\n"
    assert front_end(show_annotated, arguments) is None


def test_a_float_parameter_is_a_float32_not_a_literal():
    """A literal would leave x * s in float16."""

    @triton.jit
    def kernel(x_ptr, s, z_ptr):
        tl.store(z_ptr, (tl.load(x_ptr) * s).to(tl.float32))

    z = torch.zeros(1)
    execute(kernel, x_ptr=torch.tensor([3.0], dtype=torch.float16), s=0.1, z_ptr=z)
    assert z.item() == (torch.tensor(3.0) * torch.tensor(0.1)).item()


# ---- atomics


@triton.jit
def atomics(z_ptr, index_ptr, x_ptr, old_ptr, N, OP: tl.constexpr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    place = z_ptr + tl.load(index_ptr + offs)
    x = tl.load(x_ptr + offs)
    if OP == "add":
        old = tl.atomic_add(place, x, mask=mask)
    elif OP == "max":
        old = tl.atomic_max(place, x, mask=mask)
    elif OP == "min":
        old = tl.atomic_min(place, x, mask=mask)
    elif OP == "and":
        old = tl.atomic_and(place, x, mask=mask)
    elif OP == "or":
        old = tl.atomic_or(place, x, mask=mask)
    elif OP == "xor":
        old = tl.atomic_xor(place, x, mask=mask)
    elif OP == "xchg":
        old = tl.atomic_xchg(place, x, mask=mask)
    else:
        old = tl.atomic_cas(place, tl.zeros_like(x) + 3, x)
    tl.store(old_ptr + offs, old, mask=mask)


PYTHON_OPERATIONS = {
    "add": lambda old, x: old + x,
    "max": max,
    "min": min,
    "and": lambda old, x: old & x,
    "or": lambda old, x: old | x,
    "xor": lambda old, x: old ^ x,
    "xchg": lambda old, x: x,
    "cas": lambda old, x: x if old == 3 else old,
}


@pytest.mark.parametrize(
    "index", [[3, 1, 0, 2, 5, 4, 7, 6], [0, 1, 0, 1, 0, 0, 2, 2]], ids=["apart", "meeting"]
)
@pytest.mark.parametrize(
    "operation, dtype",
    [(op, torch.int32) for op in PYTHON_OPERATIONS]
    + [(op, torch.float32) for op in ("add", "max", "min", "xchg", "cas")]
    + [("add", torch.float16), ("add", torch.bfloat16), ("add", torch.float64), ("max", torch.int64)],
)
@pytest.mark.parametrize("lanes", [8, 5])
def test_atomics_work_lane_by_lane_and_return_what_was_there(operation, dtype, index, lanes):
    lanes = 8 if operation == "cas" else lanes  # tl.atomic_cas has no mask
    z = torch.tensor([3, -5, 2, 3, 7, 0, -1, 3], dtype=dtype)
    x = torch.tensor([1, -2, 9, 4, -7, 3, 2, -9], dtype=dtype)
    want, old = z.clone(), torch.zeros_like(x)
    for lane in range(lanes):
        place = index[lane]
        old[lane] = want[place]
        want[place] = PYTHON_OPERATIONS[operation](want[place].item(), x[lane].item())
    got = torch.zeros_like(x)
    arguments = {"z_ptr": z, "index_ptr": torch.tensor(index), "x_ptr": x, "old_ptr": got, "N": lanes}
    done = execute(atomics, outputs={"z_ptr", "old_ptr"}, **arguments, OP=operation, BLOCK=8)
    assert done.stop is None and done.conflict is None
    assert torch.equal(z, want)
    if not (dtype.is_floating_point and operation in ("max", "min") and index[0] == index[2]):
        assert torch.equal(got, old)  # (those are done in two steps: positive numbers, then negative ones)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_float_atomics_order_negative_numbers_right(dtype):
    for operation in ("max", "min"):
        z = torch.tensor([-1, -1, 1, 1], dtype=dtype)
        x = torch.tensor([-2, 2, -2, 2], dtype=dtype)
        got = torch.zeros_like(x)
        arguments = {"z_ptr": z, "index_ptr": torch.arange(4), "x_ptr": x, "old_ptr": got, "N": 4}
        execute(atomics, outputs={"z_ptr", "old_ptr"}, **arguments, OP=operation, BLOCK=4)
        assert z.tolist() == [
            PYTHON_OPERATIONS[operation](a, b) for a, b in zip([-1, -1, 1, 1], x.tolist(), strict=False)
        ]
        assert got.tolist() == [-1, -1, 1, 1]


@triton.jit
def count_programs(z_ptr, ticket_ptr):
    ticket = tl.atomic_add(ticket_ptr, 1)
    tl.store(z_ptr + ticket, tl.program_id(0))


def test_a_scalar_atomic_hands_out_tickets():
    z, ticket = torch.full((5,), -1), torch.zeros(1, dtype=torch.int32)
    done = execute(
        count_programs, 5, outputs={"z_ptr", "ticket_ptr"}, z_ptr=z, ticket_ptr=ticket, reverse=True
    )
    assert (
        done.stop is None and done.conflict is None and z.tolist() == [4, 3, 2, 1, 0] and ticket.item() == 5
    )


@triton.jit
def locked_sum(x_ptr, z_ptr, lock_ptr):
    x = tl.load(x_ptr + tl.program_id(0))
    while tl.atomic_cas(lock_ptr, 0, 1) == 1:
        pass
    tl.store(z_ptr, tl.load(z_ptr) + x)
    tl.atomic_xchg(lock_ptr, 0)


def test_programs_that_take_turns_by_a_lock_do_not_race():
    z, lock = torch.zeros(1), torch.zeros(1, dtype=torch.int32)
    arguments = {"x_ptr": torch.arange(5.0), "z_ptr": z, "lock_ptr": lock}
    done = execute(locked_sum, 5, outputs={"z_ptr", "lock_ptr"}, **arguments)
    assert done.stop is None and done.conflict is None and z.item() == 10


# ---- races


@triton.jit
def write(x_ptr, z_ptr, stride, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + pid * stride + offs, tl.load(x_ptr + pid * BLOCK + offs))


def test_two_programs_that_store_different_values_race():
    done = execute(write, 3, x_ptr=torch.arange(12.0), z_ptr=torch.zeros(10), stride=3, BLOCK=4)
    race = done.conflict
    assert (race.kind, race.argument, race.element, race.programs) == (
        "write",
        "z",
        3,
        ((0, 0, 0), (1, 0, 0)),
    )
    assert race.site.source.startswith("tl.store(z_ptr + pid * stride")
    done = execute(write, 3, x_ptr=torch.arange(12.0), z_ptr=torch.zeros(10), stride=3, BLOCK=4, reverse=True)
    assert done.conflict.programs == ((2, 0, 0), (1, 0, 0)) and done.conflict.element == 6


@pytest.mark.parametrize("value", [0.0, 1.5, NO_NUMBER])
def test_two_programs_that_store_the_same_value_do_not(value):
    done = execute(write, 3, x_ptr=torch.full((12,), value), z_ptr=torch.zeros(10), stride=3, BLOCK=4)
    assert done.stop is None and done.conflict is None


@triton.jit
def write_twice(z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, 0.0)
    tl.store(z_ptr + offs, offs + tl.load(z_ptr + offs))


def test_one_program_may_store_and_load_again():
    z = torch.ones(4)
    done = execute(write_twice, z_ptr=z, BLOCK=4)
    assert done.conflict is None and not done.early_reads and z.tolist() == [0, 1, 2, 3]


@triton.jit
def fold(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + (offs >> 1), tl.load(x_ptr + offs))


def test_two_lanes_of_one_store():
    done = execute(fold, x_ptr=torch.arange(8.0), z_ptr=torch.zeros(4), BLOCK=8)
    assert done.conflict.programs == ((0, 0, 0), (0, 0, 0)) and done.conflict.element == 0
    done = execute(fold, x_ptr=torch.ones(8), z_ptr=torch.zeros(4), BLOCK=8)
    assert done.conflict is None


@triton.jit
def pass_on(x_ptr, z_ptr):
    pid = tl.program_id(0)
    if pid == 0:
        tl.store(z_ptr, tl.load(x_ptr))
    else:
        tl.store(z_ptr + pid, tl.load(z_ptr + pid - 1) + 1)


def test_reading_what_another_program_stored_is_a_race():
    z = torch.zeros(4)
    done = execute(pass_on, 4, x_ptr=torch.ones(1), z_ptr=z)
    race = done.conflict
    assert (race.kind, race.element, race.programs) == ("read", 0, ((0, 0, 0), (1, 0, 0)))
    assert z.tolist() == [1, 2, 3, 4]
    done = execute(pass_on, 4, x_ptr=torch.ones(1), z_ptr=torch.zeros(4), reverse=True)
    assert done.early_reads["z"].source.startswith("tl.store(z_ptr + pid, tl.load")


@pytest.mark.parametrize(
    "line, matters",
    [
        ("tl.store(z_ptr + pid * 4 + offs, tl.load(x_ptr + offs))", False),
        ("tl.store(z_ptr + offs, tl.load(x_ptr + offs))", True),
        ("tl.store(z_ptr + pid * 4 + offs, tl.load(z_ptr + offs))", True),
        ("tl.store((z_ptr + pid * 4 + offs).to(tl.pointer_type(tl.int8)), 1)", False),
        ("tl.store((z_ptr + offs).to(tl.pointer_type(tl.int8)), 1)", True),
        ("tl.store(x_ptr + offs, 1.0)", True),
        ("tl.atomic_add(z_ptr + pid * 4 + offs, 1.0)", True),
    ],
)
def test_whether_the_order_of_programs_can_matter(line, matters):
    kernel = kernel_of(
        "@triton.jit\ndef kernel(x_ptr, z_ptr):\n"
        f"    pid = tl.program_id(0)\n    offs = tl.arange(0, 4)\n    {line}\n"
    )
    tensors = {"x_ptr": torch.ones(4), "z_ptr": torch.zeros(8)}
    assert execute(kernel, 2, **tensors).order_matters == matters
    assert not execute(kernel, 1, **tensors).order_matters


@triton.jit
def clear_and_add(x_ptr, z_ptr, CLEAR: tl.constexpr):
    pid = tl.program_id(0)
    if CLEAR == "each" or (CLEAR == "first" and pid == 0):
        tl.store(z_ptr, 0.0)
    tl.atomic_add(z_ptr, tl.load(x_ptr + pid))


@pytest.mark.parametrize("clear", ["each", "first"])
def test_a_plain_store_and_the_atomics_of_others_race(clear):
    done = execute(clear_and_add, 3, x_ptr=torch.ones(3), z_ptr=torch.zeros(1), CLEAR=clear)
    assert done.conflict.programs == ((0, 0, 0), (1, 0, 0))
    assert done.conflict.kind == {"each": "write", "first": "update"}[clear]


@triton.jit
def add_then_access(x_ptr, z_ptr, ACCESS: tl.constexpr):
    pid = tl.program_id(0)
    if pid == 0:
        tl.atomic_add(z_ptr, tl.load(x_ptr))
    elif ACCESS == "load":
        tl.store(z_ptr + pid, tl.load(z_ptr))
    elif ACCESS == "store":
        tl.store(z_ptr, tl.load(x_ptr + pid))


@pytest.mark.parametrize("access, kind", [("load", "read"), ("store", "mixed")])
def test_a_plain_access_to_what_others_update_atomically_is_a_race(access, kind):
    done = execute(add_then_access, 2, x_ptr=torch.ones(2), z_ptr=torch.full((2,), 5.0), ACCESS=access)
    assert done.conflict.programs == ((0, 0, 0), (1, 0, 0)) and done.conflict.kind == kind


def test_atomics_of_many_programs_do_not_race():
    z = torch.zeros(1)
    done = execute(clear_and_add, 3, x_ptr=torch.ones(3), z_ptr=z, CLEAR="never")
    assert done.conflict is None and z.item() == 3
    assert done.early_reads  # but somebody must have cleared z


# ---- what was not written, what should not have been


def test_unwritten_elements_are_known_by_address_not_by_value():
    z = torch.zeros(10)
    done = execute(write, 2, x_ptr=torch.zeros(8), z_ptr=z, stride=5, BLOCK=4)
    assert done.written["z"].tolist() == ([True] * 4 + [False]) * 2


def test_a_changed_input_is_named_with_its_line():
    x = torch.arange(8.0)
    done = execute(copy, outputs=(), x_ptr=torch.ones(8), z_ptr=x, x_shift=0, z_shift=0, BLOCK=8)
    assert done.changed["z"].source == "tl.store(z_ptr + offs + z_shift, x)" and not done.written
    done = execute(copy, outputs=(), x_ptr=x, z_ptr=x.clone(), x_shift=0, z_shift=0, BLOCK=8)
    assert not done.changed  # the same values: nobody can tell


def test_an_atomic_that_changes_an_input_too():
    for amount, changed in ((1, True), (0, False)):
        arguments = {"z_ptr": torch.zeros(4, dtype=torch.int32), "index_ptr": torch.arange(4)}
        arguments |= {"x_ptr": torch.full((4,), amount, dtype=torch.int32), "old_ptr": torch.zeros(4), "N": 4}
        done = execute(atomics, outputs={"old_ptr"}, **arguments, OP="add", BLOCK=4)
        assert bool(done.changed) == changed


@triton.jit
def read_first(z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(z_ptr + offs, mask=offs > 0, other=0.0) + 1)


def test_reading_an_output_before_it_is_written_is_noted():
    done = execute(read_first, z_ptr=torch.zeros(4), BLOCK=4)
    assert list(done.early_reads) == ["z"]
    done = execute(read_first, z_ptr=torch.zeros(1), BLOCK=1)
    assert not done.early_reads


# ---- masked-off lanes


@triton.jit
def leave_open(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x)


@pytest.mark.parametrize("row", DTYPES, ids=lambda row: row.name)
def test_lanes_that_nothing_fills_may_not_be_stored(row):
    z = torch.zeros(8, dtype=row.torch)
    done = execute(leave_open, x_ptr=torch.ones(4).to(row.torch), z_ptr=z, N=4, BLOCK=8)
    ((site, argument),) = done.holes.items()
    assert argument == "x" and site.source == "x = tl.load(x_ptr + offs, mask=offs < N)"
    assert done.undefined == Source("lanes", "x_ptr", site)
    assert (z[:4].float() == 1).all() and not (z[4:].float() == 1).any() or row.storage.kind == "b"


def test_a_load_with_nothing_masked_off_or_with_other_has_no_holes():
    done = execute(leave_open, x_ptr=torch.ones(8), z_ptr=torch.zeros(8), N=8, BLOCK=8)
    assert not done.holes
    done = execute(masked_copy, x_ptr=torch.arange(3.0), z_ptr=torch.zeros(8), N=8, LIMIT=3, BLOCK=8)
    assert not done.holes


@triton.jit
def two_holes(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    harmless = tl.load(x_ptr + offs, mask=offs < N)
    guilty = tl.load(x_ptr + offs, mask=offs < N - 1)
    tl.store(z_ptr + offs, guilty, mask=offs < N)
    tl.store(z_ptr + offs, harmless, mask=offs < N - 1)


def test_every_hole_is_noted_and_the_one_that_is_used_is_named():
    done = execute(two_holes, z_ptr=torch.zeros(4), x_ptr=torch.ones(4), N=4, BLOCK=8)
    harmless, guilty = done.holes
    assert harmless.source.startswith("harmless =") and guilty.source.startswith("guilty =")
    assert done.undefined.site == guilty


# ---- counting


def test_bytes_and_loads_are_counted_by_lanes_that_are_on():
    done = execute(masked_copy, x_ptr=torch.arange(3.0), z_ptr=torch.zeros(6), N=6, LIMIT=3, BLOCK=8)
    assert done.loads == {"x": 3} and done.bytes_moved == 4 * (3 + 6) and done.programs == 1
    done = execute(write, (2, 3, 2), x_ptr=torch.zeros(8), z_ptr=torch.zeros(8), stride=4, BLOCK=4)
    assert done.programs == 12 and done.loads == {"x": 48} and done.bytes_moved == 12 * 32


@triton.jit
def show_order(z_ptr):
    tl.device_print("at", tl.program_id(2) + 10 * tl.program_id(1) + 100 * tl.program_id(0))


def test_programs_run_one_after_the_other_and_in_reverse(capsys):
    execute(show_order, (2, 2, 2), z_ptr=torch.zeros(1))
    forwards = capsys.readouterr().out.splitlines()
    assert forwards[0] == "(0, 0, 0) at: 0" and len(forwards) == 8
    assert [line.split()[-1] for line in forwards] == ["0", "1", "10", "11", "100", "101", "110", "111"]
    execute(show_order, (2, 2, 2), z_ptr=torch.zeros(1), reverse=True)
    assert capsys.readouterr().out.splitlines() == forwards[::-1]


# ---- which line


@triton.jit
def helper_load(x_ptr, offs):
    first = offs + 0
    return tl.load(
        x_ptr + first,
    )


@triton.jit
def through_a_helper(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, helper_load(x_ptr, offs))


def test_a_fault_in_a_helper_names_the_helpers_line():
    done = execute(through_a_helper, x_ptr=torch.zeros(3), z_ptr=torch.zeros(4), BLOCK=4)
    assert done.stop.site.source == "return tl.load("
    first = helper_load.fn.__code__.co_firstlineno
    assert done.stop.site.line == first + 3


@triton.jit
def many_lines(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    # a comment
    x = (
        tl.load(x_ptr + offs, mask=offs < N)
        + tl.load(x_ptr + offs, mask=offs < N - 1)
    )  # fmt: skip
    tl.store(z_ptr + offs, x, mask=offs < N); tl.store(z_ptr + offs, x)  # fmt: skip # noqa: E702


def test_statements_of_many_lines():
    done = execute(many_lines, x_ptr=torch.zeros(3), z_ptr=torch.zeros(3), N=3, BLOCK=4)
    assert [site.source for site in done.holes] == [
        "tl.load(x_ptr + offs, mask=offs < N)",
        "+ tl.load(x_ptr + offs, mask=offs < N - 1)",
    ]
    assert "store of z_ptr" in done.stop.message and done.stop.site.source.startswith(
        "tl.store(z_ptr + offs, x, mask"
    )


# ---- printing and assertions


@triton.jit
def talk(x_ptr, z_ptr, BLOCK: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.static_print("block", BLOCK)
    tl.device_print("x ", x)
    print("sum", tl.sum(x))
    tl.store(z_ptr + tl.arange(0, BLOCK), x)


@pytest.mark.parametrize(
    "dtype, values", [(torch.float32, "[0.5 1.5]"), (torch.bfloat16, "[0.5 1.5]"), (torch.int8, "[0 1]")]
)
def test_kernels_can_print(dtype, values, capsys):
    x = torch.tensor([0.5, 1.5]).to(dtype)
    execute(talk, 2, x_ptr=x, z_ptr=torch.zeros(2), BLOCK=2)
    total = "2.0" if dtype.is_floating_point else "1"
    assert capsys.readouterr().out.splitlines() == [
        "block 2",  # once, not once per program
        f"(0, 0, 0) x: {values}",
        f"(0, 0, 0) sum: {total}",
        f"(1, 0, 0) x: {values}",
        f"(1, 0, 0) sum: {total}",
    ]


def test_a_quiet_run_prints_nothing(capsys):
    execute(talk, 2, x_ptr=torch.ones(2), z_ptr=torch.zeros(2), BLOCK=2, quiet=True)
    assert capsys.readouterr().out == ""


@triton.jit
def talk_at_length(z_ptr):
    i = 0
    while i < 200:
        print("i", tl.arange(0, 512))
        i += 1


def test_a_run_prints_so_many_lines_and_no_more(capsys):
    done = execute(talk_at_length, z_ptr=torch.zeros(1))
    lines = capsys.readouterr().out.splitlines()
    assert done.stop is None and len(lines) == 101 and lines[-1] == "... (only the first 100 lines are shown)"
    execute(talk_at_length, z_ptr=torch.zeros(1))
    assert len(capsys.readouterr().out.splitlines()) == 101  # the count starts again


@pytest.mark.parametrize("quiet, texts", [(False, 13), (True, 0)])
def test_no_text_is_made_of_what_is_not_shown(quiet, texts, monkeypatch, capsys):
    made = []
    monkeypatch.setattr(operations, "shown", lambda *args: made.append(args) or "line\n" * 7 + "line")
    execute(talk_at_length, z_ptr=torch.zeros(1), quiet=quiet)
    assert len(made) == texts and len(capsys.readouterr().out.splitlines()) == (101 if texts else 0)


@triton.jit
def print_hex(x_ptr):
    tl.device_print("x", tl.load(x_ptr), hex=True)


def test_hexadecimal(capsys):
    execute(print_hex, x_ptr=torch.tensor([255], dtype=torch.int32))
    assert capsys.readouterr().out == "(0, 0, 0) x: 0xff\n"
    print(np.array([16]))
    assert capsys.readouterr().out == "[16]\n"  # NumPy's own way to print is left alone


@triton.jit
def asserts(x_ptr, KIND: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, 4))
    if KIND == "device":
        tl.device_assert(x > 0, "x must be positive")
    elif KIND == "plain":
        assert tl.sum(x) > 10, "the sum must be large"


@pytest.mark.parametrize(
    "kind, message", [("device", "x must be positive"), ("plain", "the sum must be large")]
)
def test_assertions_stop_a_run(kind, message):
    done = execute(asserts, x_ptr=torch.tensor([1.0, 2, -3, 4]), KIND=kind)
    assert done.stop.message == f"AssertionError: {message}" and message in done.stop.site.source
    assert execute(asserts, x_ptr=torch.ones(4) * 9, KIND=kind).stop is None


# ---- everything as before


def process_as_it_is() -> tuple:
    return (
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
        signal.getitimer(signal.ITIMER_REAL),
        resource.getrlimit(resource.RLIMIT_AS),
        np.geterr(),
        np.get_printoptions(),
        list(warnings.filters),
        torch.get_num_threads(),
    )


@triton.jit
def fails(x_ptr, z_ptr, HOW: tl.constexpr):
    if HOW == "loop":
        i = 0
        while i >= 0:
            i += 1
    elif HOW == "loop with loads":
        i = 0
        while tl.load(x_ptr) == 0 * i:
            i += 1
    elif HOW == "bounds":
        tl.store(z_ptr + 5, 1.0)
    elif HOW == "error":
        tl.device_assert(tl.program_id(0) > 0)
    elif HOW == "memory":
        many = tl.arange(0, 1024)
        total = many[:, None] * many[None, :]
        for i in tl.static_range(100):
            total += many[:, None] * (many[None, :] + i)
        tl.store(z_ptr, tl.sum(tl.reshape(total, (1024 * 1024,))))
    elif HOW == "race":
        tl.store(z_ptr + tl.zeros((2,), tl.int32), tl.arange(0, 2))


@triton.jit
def sound(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + tl.sum(x, 0) + tl.zeros((BLOCK,), tl.float32) + tl.cdiv(BLOCK, 3))


def assert_all_is_well():
    z = torch.zeros(4)
    done = execute(sound, x_ptr=torch.ones(4), z_ptr=z, BLOCK=4)
    assert done.stop is None and z.tolist() == [7] * 4


@pytest.mark.parametrize(
    "how, kind",
    [
        ("loop", "time limit"),
        ("loop with loads", "time limit"),
        ("bounds", "out of bounds"),
        ("error", "error"),
        ("memory", "memory limit"),
        ("race", None),
    ],
)
def test_after_any_failure_the_process_is_as_before(how, kind, monkeypatch, two_threads):
    monkeypatch.setattr(runner, "MEMORY_LIMIT", 256 << 20)
    assert_all_is_well()
    before = process_as_it_is()
    seconds = 0.3 if kind == "time limit" else 60
    done = execute(fails, x_ptr=torch.zeros(1), z_ptr=torch.zeros(1), HOW=how, seconds=seconds)
    assert (done.stop.kind if done.stop else None) == kind
    assert process_as_it_is() == before
    assert_all_is_well()


def test_a_real_compiler_still_works_between_runs():
    """No GPU needed: compile to PTX what the interpreter has run, and what it has failed on."""
    execute(fails, x_ptr=torch.zeros(1), z_ptr=torch.zeros(1), HOW="bounds")
    assert_all_is_well()
    signature = {"x_ptr": "*fp32", "z_ptr": "*fp32", "BLOCK": "constexpr"}
    compiled = triton.compile(ASTSource(sound, signature, {"BLOCK": 4}), target=GPUTarget("cuda", 80, 32))
    assert ".visible .entry sound" in compiled.asm["ptx"]
    assert_all_is_well()


LIMIT = tl.constexpr(3)


@triton.jit
def uses_a_global(z_ptr):
    tl.store(z_ptr, LIMIT + scale_by_global(1))


@triton.jit
def scale_by_global(x):
    return x * LIMIT


def test_globals_and_helpers_are_read_anew_at_each_run(monkeypatch):
    z = torch.zeros(1)
    execute(uses_a_global, z_ptr=z)
    assert z.item() == 6
    monkeypatch.setitem(globals(), "LIMIT", tl.constexpr(5))
    execute(uses_a_global, z_ptr=z)
    assert z.item() == 10
    monkeypatch.setitem(
        globals(), "scale_by_global", kernel_of("@triton.jit\ndef other(x):\n    return x + 100\n")
    )
    execute(uses_a_global, z_ptr=z)
    assert z.item() == 106


def test_names_imported_from_triton_work():
    kernel = kernel_of(
        """from triton.language import arange, load, store, sum, program_id
from triton.language.math import exp
from triton.language.extra.libdevice import tanh
@triton.jit
def kernel(x_ptr, z_ptr):
    x = load(x_ptr + arange(0, 4))
    store(z_ptr + program_id(0), sum(exp(tanh(x)), 0))
"""
    )
    z = torch.zeros(1)
    done = execute(kernel, x_ptr=torch.zeros(4), z_ptr=z)
    assert done.stop is None and z.item() == 4


@pytest.mark.parametrize("how, kind", [("bounds", "out of bounds"), ("loop", "time limit")])
def test_runs_on_other_threads(how, kind):
    results = []

    def work():
        assert_all_is_well()
        done = execute(fails, x_ptr=torch.zeros(1), z_ptr=torch.zeros(1), HOW=how, seconds=0.3)
        results.append(done.stop.kind)
        assert_all_is_well()
        results.append("well")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(120)
    assert results == [kind, "well"]
    assert_all_is_well()


def test_a_million_programs_need_no_list():
    done = execute(
        fails, (1000, 1000, 1), x_ptr=torch.zeros(1), z_ptr=torch.zeros(1), HOW="none", seconds=0.3
    )
    assert done.stop.kind == "time limit" and done.programs == 10**6
    assert re.search(r"in program \(\d+, \d+, 0\)$", done.stop.message)


def test_an_empty_grid_runs_nothing():
    done = execute(fails, (3, 0, 2), x_ptr=torch.zeros(1), z_ptr=torch.zeros(1), HOW="bounds")
    assert done.stop is None and done.programs == 0


# ---- numbers as a compiled kernel has them


LOOP = """
@triton.jit
def two(n):
    if n > 1:
        return -1
    else:
        return n * 1

@triton.jit
def kernel(x_ptr, z_ptr, N):
"""


def numbered(*lines: str, N: int = 3, dtype: torch.dtype = torch.int64) -> runner.Run:
    """A kernel with a parameter N; z has 8 elements, cleared."""
    kernel = kernel_of(LOOP + "".join(f"    {line}\n" for line in lines))
    return execute(kernel, x_ptr=torch.zeros(1, dtype=torch.int32), z_ptr=torch.zeros(8, dtype=dtype), N=N)


@pytest.mark.parametrize(
    "value, want",
    [
        ("(i - 1) % 4", [-1, 0, 1, 2]),
        ("(2 * i - 7) // 2", [-3, -2, -1, 0]),
        ("i * 1000000007", [0, 1000000007, 2000000014, -1294967275]),
        ("i + 2147483647", [2147483647, -2147483648, -2147483647, -2147483646]),
        ("(i * 1073741824 * 4) >> 31", [0, 0, 0, 0]),
        ("(i * N).to(tl.int64)", [0, 3, 6, 9]),
        ("(i == 1).to(tl.int32)", [0, 1, 0, 0]),
        ("tl.sum(tl.broadcast_to(i * 2, (4,)))", [0, 8, 16, 24]),
        ("two(i - 1) % 4", [-1, 0, 1, -1]),
        ("(-1 if i > 1 else 3) % 4", [3, 3, -1, -1]),
        ("tl.sum(tl.full((4,), 100, tl.uint8) << (8 * i))", [400, 102400, 26214400, -1879048192]),
        ("N & (1 << (i * 8))", [1, 0, 0, 0]),
    ],
)
def test_the_variable_of_a_loop_is_an_int32(value, want):
    done = numbered("for i in range(4):", f"    tl.store(z_ptr + i, {value})")
    assert done.stop is None and done.outputs["z"][:4].tolist() == want


def test_the_top_bit_of_a_word_can_be_asked_for():
    lines = ["word = 0", "for i in range(32):", "    word |= N & (1 << i)", "tl.store(z_ptr, word)"]
    done = numbered(*lines, N=-1)
    assert done.stop is None and done.outputs["z"][0] == -1


@pytest.mark.parametrize(
    "bounds, kind",
    [("4", "int32"), ("N", "int32"), ("2147483648, 2147483650", "uint32"), ("N.to(tl.int64)", "int64")],
)
def test_a_loops_variable_is_as_wide_as_its_bounds(bounds, kind):
    done = numbered(f"for i in range({bounds}):", f"    tl.static_assert(i.dtype == tl.{kind})")
    assert done.stop is None


def test_float_arithmetic_with_a_loops_variable():
    done = numbered("for i in range(4):", "    tl.store(z_ptr + i, i * 0.5)", dtype=torch.float32)
    assert done.outputs["z"][:4].tolist() == [0, 0.5, 1, 1.5]


@pytest.mark.parametrize(
    "bounds, turns",
    [
        ("3, -1, -1", [0, 1, 2, 3]),
        ("N, -1, -N", []),
        ("0, N, 2", [0, 2]),
        ("0, 7, N", [0, 3, 6]),
        ("5, N", []),
    ],
)
def test_a_loop_counts_as_compiled(bounds, turns):
    done = numbered(f"for i in range({bounds}):", "    tl.store(z_ptr + i, 1)")
    assert done.stop is None and done.outputs["z"].nonzero().flatten().tolist() == turns


def test_a_constant_loop_keeps_its_variable():
    lines = ["for i in tl.static_range(4):", "    tl.store(z_ptr + i, (i - 1) % 4)"]
    done = numbered(*lines, "tl.store(z_ptr + 4, i)")
    assert done.stop is None and done.outputs["z"][:5].tolist() == [3, 0, 1, 2, 3]


@pytest.mark.parametrize("loop", ["for i in range(4):", "for i in tl.range(0, N):"])
def test_a_loops_variable_is_lost_after_the_loop(loop):
    lines = [loop, "    tl.store(z_ptr + i, i)"]
    done = numbered(*lines, "tl.store(z_ptr + 7, i)")
    assert "z[7] depends on an undefined value: i after its loop" in str(done.undefined)
    assert done.undefined.site.source == loop
    assert numbered("i = 5", *lines, "tl.store(z_ptr + 7, i)").undefined is not None
    assert numbered(*lines, *lines, "i = 2", "tl.store(z_ptr + 7, i)").undefined is None


@pytest.mark.parametrize(
    "join, beyond",
    [("i > 0 and tl.load(x_ptr + i - 1) > 5", -1), ("i > 0 or tl.load(x_ptr + 9 * i) > 5", 9)],
)
def test_both_sides_of_and_and_or_are_computed(join, beyond):
    done = numbered("for i in range(2):", f"    if {join}: tl.store(z_ptr + i, 1)")
    assert done.stop.kind == "out of bounds" and f"element {beyond};" in done.stop.message


def test_the_variable_of_a_comprehension_stays():
    lines = ["x = N + 0", "ys = [x * 2 for x in (N + 1, N + 2)]", "tl.store(z_ptr, x)"]
    assert numbered(*lines, "tl.store(z_ptr + 1, ys[0])").outputs["z"][:2].tolist() == [5, 8]


def test_the_if_of_a_comprehension_is_ignored_as_compiled():
    done = numbered("ys = [x for x in (N + 1, N + 2) if N > 7]", "tl.store(z_ptr, ys[0])")
    assert done.stop is None and done.outputs["z"][0] == 4


CHOSEN = """
@triton.jit
def size(wide: tl.constexpr):
    if wide:
        return 8
    else:
        return 4

@triton.jit
def kernel(z_ptr):
    tl.store(z_ptr + tl.arange(0, size(True)), 1.0)
"""


def test_a_constant_that_a_helper_chooses_stays_one():
    z = torch.zeros(8)
    assert execute(kernel_of(CHOSEN), z_ptr=z).stop is None and z.sum() == 8


# ---- what is asked of memory


@triton.jit
def ask_twice(x_ptr, z_ptr):
    offs = tl.arange(0, 16)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs // 4) + tl.load(x_ptr + offs * 100))


def test_what_several_lanes_want_is_asked_of_memory_once():
    done = execute(ask_twice, x_ptr=torch.zeros(1501), z_ptr=torch.zeros(16))
    assert done.bytes_moved == 4 * (4 + 16 + 16) and done.lane_bytes == 4 * 48 and done.loads == {"x": 32}
