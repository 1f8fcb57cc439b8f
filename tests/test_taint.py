"""Undefined values: labels go with every operation, and none may be stored or decide anything."""

import re

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX
from puzzles_lib.checker import examine
from puzzles_lib.runner import Run
from tests.kernel_lab import execute, kernel_of

HEAD = """
@triton.jit
def kernel(x_ptr, n_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)  # [BLOCK]
    m = offs < N
    x = tl.load(x_ptr + offs, mask=m)  # undefined from N on
    n = tl.load(n_ptr + offs, mask=m)  # the same in int32
    old = tl.load(z_ptr + offs, mask=m, other=0.0)  # nobody has written it
    first = tl.arange(0, 2) == 0
"""


def ran(*lines: str, **names) -> Run:
    """One program of 16 lanes, of which 11 are on."""
    kernel = kernel_of(HEAD + "".join(f"    {line}\n" for line in lines), **names)
    x, n = torch.arange(1.0, 17.0), torch.arange(1, 17, dtype=torch.int32)
    return execute(kernel, x_ptr=x, n_ptr=n, z_ptr=torch.zeros(16), N=11, BLOCK=16)


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


DEFINED = [
    "tl.where(m, x, 0.0)",
    "tl.where(~m, 0.0, x)",
    "n & 0",
    "n * 0",
    "n * 0.0",
    "(n & 15).to(tl.float32) * tl.where(m, x, 0.0)",
    "n & tl.where(m, -1, 0)",
    "n | tl.where(m, 0, -1)",
    "tl.where(m & (x > 3), x, 1.0)",
    "tl.where((x > 3) & m, x, 1.0)",
    "tl.where(~m | (x > 3), 1.0, 2.0)",
    "tl.sum(tl.where(m, x, 0.0))",
    "tl.max(tl.where(m, x, -1e9))",
    "tl.cumsum(tl.where(m, x, 0.0))",
    "tl.reduce(tl.where(m, x, 0.0), 0, larger)",
    "tl.sum(n * m)",
    "tl.flip(tl.flip(tl.where(m, x, 0.0), 0), 0)",
    "tl.sum(tl.cat(offs, offs, can_reorder=True))",
    "tl.max(tl.reshape(offs, (4, 4), can_reorder=True))",
    "tl.max(tl.sum(tl.view(offs, (1, 16)), 1), 0)",
    "tl.max(tl.sum(tl.reshape(offs, (16, 1), can_reorder=True), 0), 0)",
    "tl.histogram(tl.cat(offs, offs, can_reorder=True), 16)",
    "tl.dot(n[:, None].to(tl.int8).broadcast_to(16, 32), tl.zeros((32, 16), tl.int8)).sum(1)",
    "tl.where(m, tl.sum(tl.dot(x[:, None].broadcast_to(16, 16), tl.zeros((16, 16), tl.float32)), 1), 0.0)",
    "tl.sum(tl.map_elementwise(larger, tl.where(m, x, 0.0), 1.0 * offs))",
    "tl.topk(tl.where(m, x, 0.0), 4).sum(0)",
    "tl.gather(x, tl.minimum(offs, N - 1), 0)",
    "tl.sum(tl.where(tl.flip(m, 0), tl.flip(x, 0), 0.0))",
    "tl.sum(tl.where(m.reshape(4, 4).trans(), x.reshape(4, 4).trans(), 0.0))",
    "tl.histogram(n, 32, mask=m).sum(0)",
    "tl.where(m, (n << n) >> n, 0)",
    "tl.where(m, 100 // n, 0) * 0",
]  # fmt: skip


@pytest.mark.parametrize("value", DEFINED)
def test_what_does_not_depend_on_undefined_lanes_may_be_stored(value):
    done = ran(f"v = {value}", "tl.store(z_ptr + offs, v)", larger=larger)
    assert done.stop is None and done.undefined is None


UNDEFINED = [
    "x",
    "x + 1",
    "x * 0",
    "n * tl.where(m, x, 1.0)",
    "n * x",
    "n.to(tl.float16) * 0.0",
    "x.to(tl.int32)",
    "n.to(tl.float32, bitcast=True)",
    "-n",
    "n & 1",
    "n | 1",
    "n ^ n",
    "x == x",
    "tl.maximum(x, 1e30)",
    "tl.minimum(x, -1e30)",
    "tl.clamp(x, 0.0, 1.0)",
    "tl.where(x > 0, 1.0, 1.0)",
    "tl.where(m, 0.0, x)",
    "tl.sum(x)",
    "tl.max(x, 0)",
    "tl.argmax(x, 0)",
    "tl.cumsum(x)",
    "tl.reduce(x, 0, larger)",
    "tl.associative_scan(x, 0, larger)",
    "tl.sort(x)",
    "tl.flip(x, 0)",
    "tl.exp(x)",
    "tl.fma(x, 0.0, 1.0)",
    "tl.reshape(x, (4, 4)).trans().reshape(16)",
    "tl.sum(x[:, None] * offs[None, :], 1)",
    "tl.sum(tl.join(x, x), 1)",
    "tl.split(tl.join(x, 1.0 * offs))[0]",
    "tl.interleave(x, x).reshape(16, 2).sum(1)",
    "tl.gather(x, offs, 0)",
    "tl.gather(offs, n, 0)",
    "tl.histogram(n, 32).sum(0)",
    "tl.dot(x[:, None].broadcast_to(16, 16), tl.zeros((16, 16), tl.float32)).sum(1)",
    "tl.dot(n[:, None].broadcast_to(16, 32).to(tl.int8), tl.full((32, 16), 1, tl.int8)).sum(1)",
    "libdevice.tanh(x)",
    "tl.map_elementwise(larger, x, x)",
    "tl.topk(x, 4).sum(0)",
    "tl.load(x_ptr + offs, mask=m, other=x)",
]


@pytest.mark.parametrize("value", UNDEFINED)
def test_what_depends_on_undefined_lanes_may_not(value):
    done = ran(f"v = {value}", "tl.store(z_ptr + offs, v)", larger=larger, libdevice=tl.extra.libdevice)
    assert done.undefined.kind == "lanes", done.stop
    assert done.undefined.site.source.startswith(
        ("x = tl.load(x_ptr", "n = tl.load(n_ptr", "v = tl.load(x_ptr")
    )


EARLY = [
    "tl.maximum(old, x + 10)",
    "tl.minimum(old, x)",
    "tl.clamp(old, 0.0, 1.0)",
    "tl.where(old == old, old, x + 10)",
    "tl.where(old > x, old, x)",
    "old",
    "old * 0.0",
]


@pytest.mark.parametrize("value", EARLY)
def test_an_output_read_before_it_is_written_may_not_reach_a_store(value):
    done = ran(f"tl.store(z_ptr + offs, {value}, mask=m)")
    assert done.stop is None and done.undefined.kind == "early"
    assert str(done.undefined) == "z_ptr is read before anything is stored there: a GPU reads garbage"
    assert done.undefined.site.source.startswith("old = tl.load(z_ptr")


@pytest.mark.parametrize("atomic", ["add", "min", "max"])
def test_nor_may_an_atomic_start_from_it(atomic):
    assert ran(f"tl.atomic_{atomic}(z_ptr + offs, x + 10, mask=m)").undefined.kind == "early"
    assert (
        ran("tl.store(z_ptr + offs, 0.0)", f"tl.atomic_{atomic}(z_ptr + offs, x, mask=m)").undefined is None
    )


def test_an_exchange_defines_what_it_meets():
    lines = ["got = tl.atomic_xchg(z_ptr + offs, x, mask=m)", "y = tl.load(z_ptr + offs, mask=m, other=0.0)"]
    done = ran(*lines, "tl.store(z_ptr + offs, y + 1)")
    assert done.stop is None and done.undefined is None
    assert ran(*lines, "tl.store(z_ptr + offs, got, mask=m)").undefined.kind == "early"
    assert "mask switches off" in str(ran(*lines, "tl.store(z_ptr + offs, tl.where(m, y, got))").undefined)


@pytest.mark.parametrize(
    "line",
    [
        "tl.store(z_ptr + n, 1.0)",
        "tl.store(z_ptr + offs, 1.0, mask=x > 3)",
        "tl.store(z_ptr + offs, tl.load(x_ptr + n % 16))",
        "tl.atomic_add(z_ptr + offs, 1.0, mask=x > 3)",
        "tl.atomic_add(z_ptr + offs, x)",
        "if tl.sum(x) > 0: tl.store(z_ptr + offs, 1.0)",
        "a = 1.0 if tl.max(n) > 0 else 2.0",
        "for i in range(tl.max(n)): tl.store(z_ptr + offs, 1.0)",
        "while tl.max(n) > 3: N += 1",
        "tl.device_assert(x > 0)",
        "p = tl.make_block_ptr(z_ptr, (16,), (1,), (tl.max(n),), (16,), (0,))",
    ],
)
def test_nothing_undefined_decides_what_a_kernel_does(line):
    done = ran(line)
    assert done.stop.kind == "uninitialized" and done.undefined.kind == "lanes"
    assert done.stop.message == str(done.undefined)
    use, told = done.undefined.use, f"depends on a lane that the load of {done.undefined.what} masks off"
    assert done.stop.message == f"in program (0, 0, 0), {use.what} in line {use.site.line} {told}"


def test_undefined_values_that_are_stored_stay_so_in_memory():
    done = ran("tl.store(z_ptr + offs, x)", "if tl.max(tl.load(z_ptr + offs)) > 0: N += 1")
    assert done.stop.kind == "uninitialized" and done.undefined.what == "x_ptr"
    done = ran(
        "tl.store(z_ptr + offs, x, mask=m)", "if tl.max(tl.load(z_ptr + offs, mask=m, other=0)) > 0: N += 1"
    )
    assert done.stop is None and done.undefined is None


@pytest.mark.parametrize(
    "value, words",
    [
        ("offs << (offs + 20)", "a shift of 32 bits by 32"),
        ("offs >> (offs - 1)", "a shift of 32 bits by -1"),
        ("offs // (offs - 3)", "an integer divided by 0"),
        ("offs % offs", "an integer divided by 0"),
        ("tl.gather(offs, offs - 1, 0)", "tl.gather with index -1 of 16"),
        ("tl.gather(offs, offs + 1, 0)", "tl.gather with index 16 of 16"),
        ("(offs * 100.0).to(tl.int8)", "200 is cast to int8, whose range is -128 to 127"),
        ("(offs - 1.5).to(tl.uint8)", "-1.5 is cast to uint8, whose range is 0 to 255"),
        ("(offs * 3e9).to(tl.int32)", "3e+09 is cast to int32, whose range is -2147483648 to 2147483647"),
        (
            "tl.sqrt(offs - 1.0).to(tl.bfloat16).to(tl.int64)",
            "nan, which comes from 0 / 0 or the like, is cast to int64",
        ),
        ("tl.clamp(tl.sqrt(offs - 1.0), -1.0, 1.0)", "tl.clamp of NaN may be either limit"),
        ("tl.argmax(tl.sqrt(offs - 1.0), 0) + offs", "NaN is neither larger nor smaller"),
        ("tl.min(tl.sqrt(offs - 1.0), 0, return_indices=True)[0] + offs", "NaN is neither larger nor"),
        ("tl.histogram(offs + 1, 16)", "values outside tl.histogram's bins"),
        (
            "tl.reshape(tl.cat(offs, offs, can_reorder=True), (16, 2)).sum(1)",
            "tl.cat does not keep the order",
        ),
        (
            "tl.reshape(offs, (16,), can_reorder=True)",
            "tl.reshape with can_reorder=True does not keep the order",
        ),
    ],
)
def test_what_no_gpu_defines_is_said_in_words(value, words):
    done = ran(f"v = {value}", "tl.store(z_ptr + offs, v)")
    assert f"depends on an undefined value: {words}" in str(done.undefined)
    assert done.undefined.site.source == f"v = {value}"
    assert ran(f"v = {value}").undefined is None


@pytest.mark.parametrize(
    "value",
    [
        "(offs * 8.0 + 7.9).to(tl.int8)",
        "(offs - 0.5).to(tl.uint8)",
        "tl.clamp(tl.sqrt(offs - 1.0), -1.0, 1.0, propagate_nan=tl.PropagateNan.ALL)",
        "tl.max(tl.sqrt(offs - 1.0), 0) + offs",
        "tl.argmax(tl.where(offs > 20, float('inf'), 1.0), 0) + offs",
    ],
)
def test_what_a_gpu_defines_may_be_stored(value):
    assert ran(f"v = {value}", "tl.store(z_ptr + offs, v)").undefined is None


@pytest.mark.parametrize("product, is_told", [("a * b", True), ("a * a", False), ("a * 2", False)])
def test_which_lanes_of_two_blocks_meet_is_open(product, is_told):
    """If both have an order that isn't known, even a sum depends on it."""
    line = "{} = tl.reshape({}, (16,), can_reorder=True)"
    lines = [line.format("a", "offs"), line.format("b", "-offs")]
    done = ran(*lines, f"tl.store(z_ptr + offs, tl.sum({product}))")
    assert (done.undefined is not None) is is_told


def test_the_order_of_lanes_that_meet_in_an_atomic_is_open():
    lines = [
        "tl.store(z_ptr + offs, 0.0)",
        "tl.store(z_ptr + offs, tl.atomic_add(z_ptr + 15 + offs * 0, 1.0), mask=offs < 15)",
    ]
    assert ran(*lines).order_matters and not ran(*lines[:1]).order_matters


# ---- what a learner reads


@triton.jit
def maximum_of_old_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask)
    z = tl.maximum(tl.load(z_ptr + offs, mask=mask), x + 10)
    tl.store(z_ptr + offs, z, mask=mask)


@triton.jit
def running_maximum_in_z_kernel(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + m[:, None] * N + n, mask=(m[:, None] < M) & (n < N), other=-float("inf"))
        high = tl.maximum(tl.load(z_ptr + m * N, mask=m < M), tl.max(x, 1))
        tl.store(z_ptr + m * N, high, mask=m < M)
    high = tl.load(z_ptr + m * N, mask=m < M)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        x = tl.load(x_ptr + m[:, None] * N + n, mask=(m[:, None] < M) & (n < N), other=-float("inf"))
        total += tl.sum(tl.exp(x - high[:, None]), 1)
    for start in range(0, N, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        inside = (m[:, None] < M) & (n < N)
        x = tl.load(x_ptr + m[:, None] * N + n, mask=inside)
        tl.store(z_ptr + m[:, None] * N + n, tl.exp(x - high[:, None]) / total[:, None], mask=inside)


@pytest.mark.parametrize(
    "kernel, puzzle", [(maximum_of_old_kernel, MASKED_ADD), (running_maximum_in_z_kernel, LONG_SOFTMAX)]
)
def test_a_result_kept_in_an_output_that_nobody_clears(kernel, puzzle):
    report = examine(kernel, puzzle)
    verdict = report.verdicts[0]
    assert verdict.kind == "uninitialized" and "z_ptr is read before anything is stored there" in str(report)
    assert "tl.load(z_ptr" in verdict.site.source


ONE_SHORT = """
@triton.jit
def one_short_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N - 1)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)
"""
SUMMED_TO_THE_EDGE = """
@triton.jit
def summed_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    offs = first + tl.arange(0, BLOCK)
    x = tl.load(tl.make_block_ptr(x_ptr, (N,), (1,), (first,), (BLOCK,), (0,)), boundary_check=(0,))
    tl.store(z_ptr + offs, x + 0 * tl.sum(x, axis=0) + 10, mask=offs < N)
"""


@pytest.mark.parametrize(
    "source, case, element, cause, cures",
    [
        (ONE_SHORT, 0, "z[31]", "masks off", ["the tensor has an element for it", "extend the load's mask"]),
        (SUMMED_TO_THE_EDGE, 1, "z[0]", "boundary_check switches off", ["padding_option=", "tl.where"]),
    ],
)
def test_a_report_names_the_element_its_cause_and_the_cures_in_order(source, case, element, cause, cures):
    verdict = examine(kernel_of(source), MASKED_ADD).cases[case].verdict
    assert verdict.message.startswith(f"in program 0, {element} depends on a lane that ")
    assert cause in verdict.message
    places = [verdict.diagnosis.index(cure) for cure in cures]
    assert places == sorted(places) and ("mask" in verdict.diagnosis) == (source is ONE_SHORT)


@pytest.mark.parametrize("name", ["long_sum", "long_softmax"])
def test_a_lane_without_an_element_is_not_cured_by_a_longer_mask(name):
    source = re.sub(r', other=(0\.0|float\("-inf"\))', "", kernel_sources()[name])
    (puzzle,) = (each for each in puzzles() if each.name == name)
    verdict = examine(define(source, "<no other>"), puzzle, until_failure=True).verdicts[0]
    assert verdict.kind == "uninitialized"
    assert "the tensor has no element for it" in verdict.diagnosis and "extend" not in verdict.diagnosis


@triton.jit
def half_of_the_words(z_ptr, ALL: tl.constexpr):
    offs = tl.arange(0, 16)
    tl.store(z_ptr.to(tl.pointer_type(tl.uint8)) + offs, offs, mask=ALL | (offs % 4 < 2))
    word = tl.load(z_ptr + tl.arange(0, 4))
    tl.store(z_ptr + tl.arange(0, 4), word + 1)


def test_a_word_is_defined_when_all_its_bytes_are():
    done = execute(half_of_the_words, z_ptr=torch.zeros(4, dtype=torch.int32), ALL=True)
    assert done.undefined is None and done.written["z"].all()
    done = execute(half_of_the_words, z_ptr=torch.zeros(4, dtype=torch.int32), ALL=False)
    assert done.undefined.kind == "early" and done.written["z"].shape == (4,)
