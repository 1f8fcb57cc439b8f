"""Wrong and correct kernels for chapters 00 and 01: square, constant_add and masked_add."""

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from puzzles_lib.chapters.ch00_welcome.puzzles import PAIR_DIFFERENCE
from puzzles_lib.chapters.ch01_blocks.puzzles import CONSTANT_ADD, MASKED_ADD, REVERSED_ADD
from puzzles_lib.chapters.ch01_blocks.puzzles import constant_add as constant_add_spec
from tests.kernels import Wrong

PLAIN_BLOCK = 32
PLAIN_TEN = 10
TEN = tl.constexpr(10)
add_ten = lambda block: block + 10  # noqa: E731 - the mistake is the lambda

# ---- puzzle 1, wrong ---------------------------------------------------------------------------


@triton.jit
def ch01_empty(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The stub as it is handed out: nothing is stored."""
    pid = tl.program_id(0)  # noqa: F841
    # your code here (about 3 lines)


@triton.jit
def loads_and_forgets(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Computes everything and stores nothing."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(x_ptr + offs) + 10  # noqa: F841


@triton.jit
def every_program_takes_block_zero(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The program id is ignored: right for one program only."""
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def shifted_by_pid_alone(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """pid + arange instead of pid * BLOCK + arange: blocks overlap, most of z stays empty."""
    offs = tl.program_id(0) + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def one_block_too_far(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Counts programs from 1: the last block lies beyond the end."""
    offs = (tl.program_id(0) + 1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def one_block_too_early(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The first block lies before the tensor's beginning."""
    offs = (tl.program_id(0) - 1) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def far_out_of_bounds(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """An offset of a billion elements, as from a stray multiplication."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs + 1000000000) + 10)


@triton.jit
def ten_added_to_the_address(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Adds 10 to the address instead of the value."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs + 10))


@triton.jit
def addresses_stored(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Takes the offsets for the values."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, offs + 10)


@triton.jit
def copied(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Forgets to add."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs))


@triton.jit
def eleven_added(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Adds 11."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 11)


@triton.jit
def added_in_half_precision(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Computes in float16, which has 11 bits."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs).to(tl.float16) + 10)


@triton.jit
def added_in_place(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Writes the result over the input as well."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    z = tl.load(x_ptr + offs) + 10
    tl.store(x_ptr + offs, z)
    tl.store(z_ptr + offs, z)


@triton.jit
def stored_into_the_input(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """x_ptr for z_ptr in the store."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def without_output(x_ptr, BLOCK: tl.constexpr):
    """Does not even take z_ptr."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def all_write_the_first_block(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """All programs store in the first block, and all but the first in their own, too."""
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * BLOCK + lanes
    z = tl.load(x_ptr + offs) + 10
    tl.store(z_ptr + lanes, z, mask=offs >= BLOCK)
    tl.store(z_ptr + offs, z)


@triton.jit
def block_of_32(x_ptr, z_ptr):
    """The block size of the first case as a number in the code."""
    offs = tl.program_id(0) * 32 + tl.arange(0, 32)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def one_element_a_program(x_ptr, z_ptr):
    """CUDA's habit: the program id taken for a thread's."""
    pid = tl.program_id(0)
    tl.store(z_ptr + pid, tl.load(x_ptr + pid) + 10)


@triton.jit
def size_in_arange(x_ptr, z_ptr, N):
    """tl.arange of a size that is known at run time only."""
    offs = tl.arange(0, N)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def block_is_no_constexpr(x_ptr, z_ptr, BLOCK):
    """BLOCK without tl.constexpr."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def plain_global(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Reads a global that is no tl.constexpr."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + PLAIN_TEN)


@triton.jit
def global_block(x_ptr, z_ptr):
    """Block size from a global that is no tl.constexpr."""
    offs = tl.program_id(0) * PLAIN_BLOCK + tl.arange(0, PLAIN_BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def torch_inside(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Calls torch from within the kernel."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, torch.add(tl.load(x_ptr + offs), 10))


@triton.jit
def spec_inside(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Calls the puzzle's own spec."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, constant_add_spec(tl.load(x_ptr + offs)))


@triton.jit
def lambda_inside(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Calls a lambda."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, add_ten(tl.load(x_ptr + offs)))


@triton.jit
def leftover_print(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """A print of a shape, left over from looking around."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    print(x.shape)
    tl.store(z_ptr + offs, x + 10)


@triton.jit
def pointer_indexed(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Indexes a pointer as if it were an array."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, x_ptr[offs] + 10)


@triton.jit
def store_arguments_swapped(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """tl.store(values, addresses)."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(tl.load(x_ptr + offs) + 10, z_ptr + offs)


@triton.jit
def name_not_offered(x_ptr, out_ptr, BLOCK: tl.constexpr):
    """A parameter name that the puzzle does not have."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offs, tl.load(x_ptr + offs) + 10)


def not_a_kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """@triton.jit is missing."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def ten_added_to_stored_addresses(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The load is forgotten, and 10 is added to addresses."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, x_ptr + offs + 10)


@triton.jit
def ten_before_stored_addresses(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The same, with the number first."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, 10 + (x_ptr + offs))


@triton.jit
def addresses_of_a_long_sum(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The load is forgotten; the id's part comes last."""
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    tl.store(z_ptr + lanes + pid * BLOCK, x_ptr + lanes + pid * BLOCK)


@triton.jit
def arange_forgotten(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The offset is one number for each program."""
    offs = tl.program_id(0) * BLOCK
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + 10)


@triton.jit
def offset_added_to_one_address(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """One address for a block of values; lanes are those of program 0."""
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + pid * BLOCK + lanes)
    tl.store(z_ptr + pid * BLOCK, x + 10)


@triton.jit
def picks_lane_by_lane(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """A loop over the elements of a block, as in Python."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    z = x
    for i in range(BLOCK):
        z[i] = x[i] + 10
    tl.store(z_ptr + offs, z)


# ---- puzzle 2, wrong ---------------------------------------------------------------------------


@triton.jit
def no_mask_at_all(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The kernel of puzzle 1."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def no_mask_on_the_load(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Masks the store only."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10, mask=offs < N)


@triton.jit
def no_mask_on_the_store(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Masks the load only."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N, other=0.0) + 10)


@triton.jit
def mask_with_less_or_equal(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """<= for <: one element too many."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs <= N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def store_mask_with_less_or_equal(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """<= for < in the store alone."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    tl.store(z_ptr + offs, x + 10, mask=offs <= N)


@triton.jit
def mask_one_short(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """N - 1 for N: the last element is left out."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N - 1
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def load_mask_one_short(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The load leaves out a lane that the store then writes."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N - 1)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def load_mask_one_short_with_other(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The same with other=0.0: defined, and still not what is in x."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N - 1, other=0.0)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def moved_pointers_and_lanes_below_n(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The pointers have moved, but the mask counts from the start of the tensor."""
    lanes = tl.arange(0, BLOCK)
    x_ptr += tl.program_id(0) * BLOCK
    z_ptr += tl.program_id(0) * BLOCK
    x = tl.load(x_ptr + lanes, mask=lanes < N)
    tl.store(z_ptr + lanes, x + 10, mask=lanes < N)


@triton.jit
def moved_twice(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The pointers have moved, and the offsets add the same once more."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x_ptr += tl.program_id(0) * BLOCK
    z_ptr += tl.program_id(0) * BLOCK
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def mask_from_lanes(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Compares lanes instead of offsets with N: never off in a late block."""
    lanes = tl.arange(0, BLOCK)
    offs = tl.program_id(0) * BLOCK + lanes
    mask = lanes < N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def mask_from_the_block_size(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """offs < BLOCK: only the first block is handled."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < BLOCK
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def whole_blocks_only(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Assumes that the block size divides: the ragged block is dropped."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N // BLOCK * BLOCK
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def size_of_200(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """A size of one case as a number in the code."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < 200
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def mask_reversed(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """> for <."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs > N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def size_first_and_wrong_way_round(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The size on the left, and < for >."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, N < offs) + 10, N < offs)


@triton.jit
def masks_added(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Two conditions joined by +, which wraps around: True + True is False."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs >= 0) + (offs < N)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def id_loaded_under_a_mask(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """One address with a mask of a block; offs contains the id already."""
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + pid, mask=mask)
    tl.store(z_ptr + offs, x + 10, mask=mask)


@triton.jit
def mask_with_and(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """`and` for `&` between two blocks of booleans: deprecated, and taken."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (offs >= 0) and (offs < N)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def chained_comparison(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """0 <= offs < N, which Python reads as two comparisons joined by `and`."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = 0 <= offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def if_on_a_block(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """An `if` on a block of booleans instead of a mask."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if offs < N:
        tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def last_block_moved_back(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Shifts the last block left so that it fits: out of bounds to the left where N < BLOCK."""
    offs = tl.minimum(tl.program_id(0) * BLOCK, N - BLOCK) + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def wrapped_load(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """offs % N on both sides: lanes past the end write x[0] + 11 over the first elements."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    extra = tl.where(offs < N, 0, 1)
    tl.store(z_ptr + offs % N, tl.load(x_ptr + offs % N) + 10 + extra)


@triton.jit
def loop_changes_type(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """A loop variable that starts as a number and becomes a block."""
    start = tl.program_id(0) * BLOCK
    acc = 0
    for _ in range(0, 10):
        acc = acc + 1.0 + 0.0 * tl.arange(0, BLOCK)
    offs = start + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + acc, mask=offs < N)


@triton.jit
def all_blocks_by_each(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Each program walks all blocks, its own and those of the others."""
    for start in range(0, tl.num_programs(0) * BLOCK, BLOCK):
        offs = start + tl.arange(0, BLOCK)
        tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def two_blocks_by_each(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Each program does its neighbor's block, too."""
    lanes = tl.arange(0, 2 * BLOCK)
    x_ptr += tl.program_id(0) * BLOCK
    z_ptr += tl.program_id(0) * BLOCK
    mask = lanes < N - tl.program_id(0) * BLOCK
    tl.store(z_ptr + lanes, tl.load(x_ptr + lanes, mask=mask) + 10, mask=mask)


@triton.jit
def wrapped_on_both_sides(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Lanes past the end start over: two programs write the same value to one element."""
    offs = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)) % N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def only_x_moved(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """The lanes are the offsets of both, but z_ptr hasn't moved."""
    pid = tl.program_id(0)
    x_ptr += pid * BLOCK
    lanes = tl.arange(0, BLOCK)
    tl.store(z_ptr + lanes, tl.load(x_ptr + lanes) + 10)


@triton.jit
def lanes_times_the_id(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Multiplies the lanes by the id: all lanes of program 0 have the offset 0."""
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    tl.store(z_ptr + lanes * pid, tl.load(x_ptr + pid * BLOCK + lanes) + 10)


@triton.jit
def one_block_of_x(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Each program takes BLOCK numbers of x, which are only half as many pairs."""
    offs = tl.program_id(0) * BLOCK + 2 * tl.arange(0, BLOCK)
    mask = offs < 2 * N
    first = tl.load(x_ptr + offs, mask=mask)
    second = tl.load(x_ptr + offs + 1, mask=mask)
    tl.store(z_ptr + offs // 2, second - first, mask=mask)


@triton.jit
def pairs_split(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """One load of both numbers; tl.split takes the pairs apart."""
    at = tl.program_id(0) * 2 * BLOCK + tl.arange(0, 2 * BLOCK)
    x = tl.load(x_ptr + at, mask=at < 2 * N)
    first, second = tl.split(tl.reshape(x, (BLOCK, 2)))
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, second - first, mask=offs < N)


@triton.jit
def pointer_moved_to_the_second(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    first = tl.load(x_ptr + offs * 2, mask=offs < N)
    x_ptr += 1
    second = tl.load(x_ptr + offs * 2, mask=offs < N)
    tl.store(z_ptr + offs, second - first, mask=offs < N)


# ---- puzzle 2b, wrong --------------------------------------------------------------------------


@triton.jit
def read_forwards(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Moves to the last element, and counts up from there."""
    pid = tl.program_id(0)
    x_ptr += N - 1 - pid * BLOCK
    lanes = tl.arange(0, BLOCK)
    mask = lanes < N - pid * BLOCK
    tl.store(z_ptr + pid * BLOCK + lanes, tl.load(x_ptr + lanes, mask=mask) + 10, mask=mask)


@triton.jit
def not_reversed(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The kernel of puzzle 2."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def one_past_the_last(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Counts elements from 1: lane 0 of program 0 is one past the end."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + N - offs, mask=mask) + 10, mask=mask)


@triton.jit
def each_block_on_its_own(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Reverses within the block: right for a single full block only."""
    pid = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    left = tl.minimum(N - pid * BLOCK, BLOCK)
    mask = lanes < left
    x = tl.load(x_ptr + pid * BLOCK + left - 1 - lanes, mask=mask)
    tl.store(z_ptr + pid * BLOCK + lanes, x + 10, mask=mask)


@triton.jit
def mask_of_the_first_program(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The mask doesn't count from where the pointers are."""
    pid = tl.program_id(0)
    x_ptr += N - 1 - pid * BLOCK
    lanes = tl.arange(0, BLOCK)
    mask = lanes < N
    tl.store(z_ptr + pid * BLOCK + lanes, tl.load(x_ptr - lanes, mask=mask) + 10, mask=mask)


@triton.jit
def load_left_unmasked(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The pointers and the mask are correct, but only the store has the mask."""
    pid = tl.program_id(0)
    x_ptr += N - 1 - pid * BLOCK
    lanes = tl.arange(0, BLOCK)
    mask = lanes < N - pid * BLOCK
    tl.store(z_ptr + pid * BLOCK + lanes, tl.load(x_ptr - lanes) + 10, mask=mask)


@triton.jit
def last_block_for_all(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Moves to the last element, but not on to the program's own."""
    pid = tl.program_id(0)
    x_ptr += N - 1
    lanes = tl.arange(0, BLOCK)
    mask = lanes < N - pid * BLOCK
    tl.store(z_ptr + pid * BLOCK + lanes, tl.load(x_ptr - lanes, mask=mask) + 10, mask=mask)


WRONG = [
    Wrong(CONSTANT_ADD, ch01_empty, kind="never written", says="of z"),
    Wrong(CONSTANT_ADD, loads_and_forgets, kind="never written", says="of z"),
    Wrong(CONSTANT_ADD, every_program_takes_block_zero, kind="never written", says="z[32]"),
    Wrong(CONSTANT_ADD, shifted_by_pid_alone, kind="never written", says="z[35]"),
    Wrong(CONSTANT_ADD, one_block_too_far, kind="out of bounds", says="32..63"),
    Wrong(CONSTANT_ADD, one_block_too_early, kind="out of bounds", says="-32..-1"),
    Wrong(CONSTANT_ADD, far_out_of_bounds, kind="out of bounds", says="x_ptr"),
    Wrong(CONSTANT_ADD, ten_added_to_the_address, kind="out of bounds", says="x_ptr"),
    Wrong(CONSTANT_ADD, addresses_stored, kind="values", says="z[0]"),
    Wrong(CONSTANT_ADD, copied, kind="values", says="too low by 10"),
    Wrong(CONSTANT_ADD, eleven_added, kind="values", says="too high by 1"),
    Wrong(CONSTANT_ADD, added_in_half_precision, kind="values", says="z[0]"),
    Wrong(CONSTANT_ADD, added_in_place, kind="input changed", says="its input x"),
    Wrong(CONSTANT_ADD, stored_into_the_input, kind="never written", says="of z"),
    Wrong(CONSTANT_ADD, without_output, kind="never written", says="stores to x_ptr instead"),
    Wrong(CONSTANT_ADD, all_write_the_first_block, kind="race", says="0 and 1"),
    Wrong(CONSTANT_ADD, block_of_32, kind="never written", says="z[224]"),
    Wrong(CONSTANT_ADD, one_element_a_program, kind="never written", says="z[1]"),
    Wrong(CONSTANT_ADD, size_in_arange, kind="compiler", says="tl.arange"),
    Wrong(CONSTANT_ADD, block_is_no_constexpr, kind="compiler", says="tl.arange"),
    Wrong(CONSTANT_ADD, plain_global, kind="compiler", says="PLAIN_TEN"),
    Wrong(CONSTANT_ADD, global_block, kind="compiler", says="PLAIN_BLOCK"),
    Wrong(CONSTANT_ADD, torch_inside, kind="compiler", says="torch.add"),
    Wrong(CONSTANT_ADD, spec_inside, kind="compiler", says="constant_add_spec"),
    Wrong(CONSTANT_ADD, lambda_inside, kind="compiler", says="a lambda"),
    Wrong(CONSTANT_ADD, leftover_print, kind="compiler", says="tl.device_print"),
    Wrong(CONSTANT_ADD, pointer_indexed, kind="compiler", says="a pointer"),
    Wrong(CONSTANT_ADD, store_arguments_swapped, kind="compiler", says="tl.store"),
    Wrong(CONSTANT_ADD, ten_added_to_stored_addresses, kind="compiler", says="tl.load(x_ptr + offs) reads"),
    Wrong(CONSTANT_ADD, ten_before_stored_addresses, kind="compiler", says="tl.load(x_ptr + offs) reads"),
    Wrong(CONSTANT_ADD, addresses_of_a_long_sum, kind="compiler", says="(x_ptr + lanes + pid * BLOCK) reads"),
    Wrong(CONSTANT_ADD, arange_forgotten, kind="never written", says="add tl.arange(0, BLOCK)"),
    Wrong(CONSTANT_ADD, offset_added_to_one_address, kind="compiler", says="use z_ptr + pid * BLOCK + lanes"),
    Wrong(CONSTANT_ADD, picks_lane_by_lane, kind="compiler", says="load the elements that you need"),
    Wrong(CONSTANT_ADD, name_not_offered, kind="signature", says="out_ptr"),
    Wrong(CONSTANT_ADD, not_a_kernel, kind="signature", says="@triton.jit"),
    Wrong(MASKED_ADD, no_mask_at_all, kind="out of bounds", says="20..31"),
    Wrong(MASKED_ADD, no_mask_on_the_load, kind="out of bounds", says="x_ptr"),
    Wrong(MASKED_ADD, no_mask_on_the_store, kind="out of bounds", says="z_ptr"),
    Wrong(MASKED_ADD, mask_with_less_or_equal, kind="out of bounds", says="element 20"),
    Wrong(MASKED_ADD, store_mask_with_less_or_equal, kind="out of bounds", says="z_ptr"),
    Wrong(MASKED_ADD, mask_one_short, kind="never written", says="z[31]"),
    Wrong(MASKED_ADD, load_mask_one_short, kind="uninitialized", says="x_ptr"),
    Wrong(MASKED_ADD, load_mask_one_short_with_other, kind="values", says="z[31] is 10"),
    Wrong(MASKED_ADD, mask_from_lanes, kind="out of bounds", says="200..223"),
    Wrong(MASKED_ADD, moved_pointers_and_lanes_below_n, kind="out of bounds", says="200..223"),
    Wrong(
        MASKED_ADD, moved_twice, kind="out of bounds", says="the offsets add the block's start a second time"
    ),
    Wrong(MASKED_ADD, mask_from_the_block_size, kind="out of bounds", says="x_ptr"),
    Wrong(MASKED_ADD, whole_blocks_only, kind="never written", says="of z"),
    Wrong(MASKED_ADD, size_of_200, kind="out of bounds", says="20..31"),
    Wrong(MASKED_ADD, mask_reversed, kind="never written", says="is the comparison offs > N reversed?"),
    Wrong(
        MASKED_ADD,
        size_first_and_wrong_way_round,
        kind="never written",
        says="is the comparison N < offs reversed?",
    ),
    Wrong(MASKED_ADD, masks_added, kind="never written", says="combine masks with &, not with +"),
    Wrong(MASKED_ADD, id_loaded_under_a_mask, kind="compiler", says="use x_ptr + offs"),
    Wrong(MASKED_ADD, chained_comparison, kind="compiler", says="cannot chain comparisons"),
    Wrong(MASKED_ADD, if_on_a_block, kind="compiler", says="an if"),
    Wrong(MASKED_ADD, last_block_moved_back, kind="out of bounds", says="-12..-1"),
    Wrong(MASKED_ADD, wrapped_load, kind="race", says="two lanes"),
    Wrong(MASKED_ADD, loop_changes_type, kind="compiler", says="acc is one int32"),
    Wrong(CONSTANT_ADD, only_x_moved, kind="never written", says="z_ptr hasn't moved as x_ptr has"),
    Wrong(CONSTANT_ADD, lanes_times_the_id, kind="never written", says="each lane needs its own offset"),
    Wrong(PAIR_DIFFERENCE, one_block_of_x, kind="never written", says="z"),
    Wrong(REVERSED_ADD, read_forwards, kind="out of bounds", says="x_ptr"),
    Wrong(REVERSED_ADD, not_reversed, kind="values", says="z[0]"),
    Wrong(REVERSED_ADD, one_past_the_last, kind="out of bounds", says="x has 32"),
    Wrong(REVERSED_ADD, each_block_on_its_own, kind="values", says="wrong values in z"),
    Wrong(REVERSED_ADD, mask_of_the_first_program, kind="out of bounds", says="x_ptr"),
    Wrong(REVERSED_ADD, load_left_unmasked, kind="out of bounds", says="-12..-1"),
    Wrong(REVERSED_ADD, last_block_for_all, kind="values", says="all programs read the last elements"),
    Wrong(CONSTANT_ADD, all_blocks_by_each, kind="race", says="programs 0 and 1 both store z[0]"),
    Wrong(MASKED_ADD, two_blocks_by_each, kind="race", says="programs 0 and 1 both store z[32]"),
    Wrong(MASKED_ADD, wrapped_on_both_sides, kind="race", says="both store z[0]"),
]

# ---- right, written in other ways ---------------------------------------------------------------


@triton.jit
def sizes_as_constexpr(x_ptr, z_ptr, N: tl.constexpr, BLOCK: tl.constexpr):
    """N as a constexpr, and a mask that is not needed."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + TEN, mask=offs < N)


@triton.jit
def stride_as_parameter(x_ptr, z_ptr, stride_xn, stride_zn, BLOCK: tl.constexpr, unused=3):
    """Strides passed in, pointers moved, a parameter of its own with a default."""
    lanes = tl.arange(0, BLOCK)
    x_ptr += tl.program_id(0) * BLOCK * stride_xn
    z_ptr += tl.program_id(0) * BLOCK * stride_zn
    tl.store(z_ptr + lanes * stride_zn, 10 + tl.load(x_ptr + lanes * stride_xn))


@triton.jit
def reversed_programs(x_ptr, z_ptr, BLOCK: tl.constexpr):
    """Takes the blocks from the last to the first."""
    offs = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


@triton.jit
def by_block_pointer(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """tl.make_block_ptr with a boundary check instead of a mask."""
    start = tl.program_id(0) * BLOCK
    x_block = tl.make_block_ptr(x_ptr, (N,), (1,), (start,), (BLOCK,), (0,))
    z_block = tl.make_block_ptr(z_ptr, (N,), (1,), (start,), (BLOCK,), (0,))
    x = tl.load(x_block, boundary_check=(0,))
    tl.store(z_block, x + 10, boundary_check=(0,))


@triton.jit
def clamped_load(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Lanes beyond the end load the last element again; only the store is masked."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.minimum(offs, N - 1))
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def by_helper(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The block's place and mask come from a helper."""
    offs, mask = _place(N, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def _place(N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return offs, offs < N


class Place(NamedTuple):
    offs: tl.tensor
    mask: tl.tensor


@triton.jit
def by_named_tuple(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """The helper's two results have names."""
    place = _named_place(N, BLOCK)
    x = tl.load(x_ptr + place.offs, mask=place.mask)
    _, mask = place
    result = Place(mask=mask, offs=x + 10)
    tl.store(z_ptr + place.offs, result.offs, mask=result.mask)


@triton.jit
def _named_place(N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return Place(offs, offs < N)


@triton.jit
def in_two_halves(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Each program walks its block in two steps."""
    HALF: tl.constexpr = BLOCK // 2
    for half in tl.static_range(2):
        offs = tl.program_id(0) * BLOCK + half * HALF + tl.arange(0, HALF)
        tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N) + 10, mask=offs < N)


@triton.jit
def from_the_end_without_moving(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """No pointer moves: the offsets count down from the last element."""
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + N - 1 - offs, mask=mask) + 10, mask=mask)


@triton.jit
def from_the_left_of_its_part(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    """Moves to the other end of the program's part, and counts the lanes from their last."""
    pid = tl.program_id(0)
    x_ptr += N - (pid + 1) * BLOCK
    lanes = tl.arange(0, BLOCK)
    mask = lanes < N - pid * BLOCK
    x = tl.load(x_ptr + (BLOCK - 1 - lanes), mask=mask)
    tl.store(z_ptr + pid * BLOCK + lanes, x + 10, mask=mask)


RIGHT = [
    (PAIR_DIFFERENCE, pairs_split),
    (PAIR_DIFFERENCE, pointer_moved_to_the_second),
    (REVERSED_ADD, from_the_end_without_moving),
    (REVERSED_ADD, from_the_left_of_its_part),
    (MASKED_ADD, mask_with_and),
    (CONSTANT_ADD, sizes_as_constexpr),
    (CONSTANT_ADD, stride_as_parameter),
    (CONSTANT_ADD, reversed_programs),
    (MASKED_ADD, by_block_pointer),
    (MASKED_ADD, clamped_load),
    (MASKED_ADD, by_helper),
    (MASKED_ADD, by_named_tuple),
    (MASKED_ADD, in_two_halves),
]
