"""Faults that one step hides from the next: each wrong kernel has a right one beside it."""

from unittest import mock

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int32
from torch import Tensor
from triton.language.extra import libdevice

from puzzles_lib.checker import examine, probes
from puzzles_lib.compiler import build, find_target, translate
from puzzles_lib.puzzle import Case, Puzzle


def verdict_of(kernel, spec, *cases, grid=lambda s: (1,), **options):
    """The kind and the text of the first verdict; empty if the kernel passes."""
    puzzle = Puzzle(number="0", spec=spec, grid=grid, cases=cases or (Case(N=256),), **options)
    report = examine(kernel, puzzle)
    return (report.verdicts[0].kind if report.verdicts else ""), str(report)


# ---- atomics of a program's threads


def twice_shifted(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Float32[Tensor, " N"]]:
    return torch.roll(x, 1), torch.roll(x, 1)


@triton.jit
def own_atomic_later(x_ptr, z_ptr, y_ptr, N: tl.constexpr, HOW: tl.constexpr):
    """Each thread updates the next one's element, then its own, and loads that."""
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    if HOW == "xchg":
        tl.atomic_xchg(z_ptr + (i + 1) % N, x)
    else:
        tl.atomic_add(z_ptr + (i + 1) % N, x)
    if HOW == "barrier":
        tl.debug_barrier()
    tl.atomic_add(z_ptr + i, 0.0 * x)
    tl.store(y_ptr + i, tl.load(z_ptr + i))


@triton.jit
def two_lanes_meet(x_ptr, z_ptr, y_ptr, N: tl.constexpr, BARRIER: tl.constexpr):
    """Lanes n and n + N / 2 add to element n; the last of them loads it."""
    i = tl.arange(0, N)
    tl.atomic_add(z_ptr + i % (N // 2), tl.load(x_ptr + i))
    if BARRIER:
        tl.debug_barrier()
    tl.store(y_ptr + i, tl.load(z_ptr + i % (N // 2), mask=i >= N // 2, other=0.0), mask=i >= N // 2)
    tl.store(y_ptr + i, 0.0, mask=i < N // 2)
    tl.store(z_ptr + N // 2 + i, 0.0, mask=i < N // 2)


def halves_added(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Float32[Tensor, " N"]]:
    both = x[: len(x) // 2] + x[len(x) // 2 :]
    none = torch.zeros_like(both)
    return torch.cat([both, none]), torch.cat([none, both])


@pytest.mark.parametrize("how, kind", [("add", "race"), ("xchg", "race"), ("barrier", "")])
def test_a_later_atomic_hides_no_earlier_one(how, kind):
    kernel = triton.heuristics({"HOW": lambda args: how})(own_atomic_later)
    found, text = verdict_of(kernel, twice_shifted, outputs=("z", "y"), zeroed=("z",))
    assert found == kind, text
    assert not kind or "updated at line" in text and "by several threads" in text


@pytest.mark.parametrize("barrier", [False, True])
def test_lanes_that_meet_in_an_atomic_are_several_threads(barrier):
    kernel = triton.heuristics({"BARRIER": lambda args: barrier})(two_lanes_meet)
    found, text = verdict_of(kernel, halves_added, outputs=("z", "y"), zeroed=("z",))
    assert found == ("" if barrier else "race"), text


def shifted(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Float32[Tensor, " N"]]:
    return x.clone(), torch.roll(x, 1)


@triton.jit
def dead_atomic(x_ptr, z_ptr, y_ptr, N: tl.constexpr, USED: tl.constexpr):
    """The compiler hands an atomic's result to all threads over a barrier, if anything is done with it."""
    i = tl.arange(0, N)
    tl.store(z_ptr + i, tl.load(x_ptr + i))
    found = tl.atomic_add(z_ptr, 0.0)
    more = (found + 1) * 0.0
    y = tl.load(z_ptr + (i + N - 1) % N)
    tl.store(y_ptr + i, y + more if USED else y)


@pytest.mark.parametrize("used", [False, True])
def test_what_nobody_uses_is_no_barrier(used):
    kernel = triton.heuristics({"USED": lambda args: used})(dead_atomic)
    found, text = verdict_of(kernel, shifted, outputs=("z", "y"))
    assert found == ("" if used else "race"), text


# ---- the order of programs, and of elements


def counted(x: Float32[Tensor, "P B"]) -> tuple[Int32[Tensor, ""], Float32[Tensor, " B"]]:
    return torch.tensor(len(x), dtype=torch.int32), x[len(x) // 2].clone()


def added(x: Float32[Tensor, "P B"]) -> tuple[Int32[Tensor, ""], Float32[Tensor, " B"]]:
    return torch.tensor(len(x), dtype=torch.int32), x.sum(0)


@triton.jit
def by_arrival(x_ptr, count_ptr, z_ptr, P: tl.constexpr, B: tl.constexpr, HOW: tl.constexpr):
    """The middle one of an odd number of programs is in the middle in reverse order, too."""
    p, b = tl.program_id(0), tl.arange(0, B)
    x = tl.load(x_ptr + p * B + b)
    before = tl.atomic_add(count_ptr, 1)
    if HOW == "the middle one":
        if before == P // 2:
            tl.store(z_ptr + b, x)
    elif HOW == "as far from both ends":
        tl.store(z_ptr + b, x, mask=(b >= 0) & (tl.minimum(before, P - 1 - before) == P // 2))
    else:
        tl.atomic_add(z_ptr + b, x)


@pytest.mark.parametrize("how", ["the middle one", "as far from both ends", "all"])
def test_who_comes_when_is_not_known(how):
    kernel = triton.heuristics({"HOW": lambda args: how})(by_arrival)
    found, text = verdict_of(
        kernel, added if how == "all" else counted, Case(P=5, B=32), Case(P=3, B=32),
        grid=lambda s: (s.P,), outputs=("count", "z"), zeroed=("count", *(("z",) if how == "all" else ())),
    )  # fmt: skip
    assert found == ("" if how == "all" else "race"), text
    assert how == "all" or "in another order, program 2 first, the result differs" in text


def first(x: Float32[Tensor, " N"]) -> Float32[Tensor, ""]:
    return x[0].clone()


def last(x: Float32[Tensor, " N"]) -> Float32[Tensor, ""]:
    return x[-1].clone()


def largest(x: Float32[Tensor, " N"]) -> Float32[Tensor, ""]:
    return x.max()


@triton.jit
def takes_left(a, b):
    return a


@triton.jit
def takes_right(a, b):
    return b


@triton.jit
def any_of_the_largest(x, i, y, j):
    return tl.where(x >= y, x, y), tl.where(x >= y, i, j)


@triton.jit
def reduced(x_ptr, z_ptr, N: tl.constexpr, HOW: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    if HOW == "left":
        z = tl.reduce(x, 0, takes_left)
    elif HOW == "right":
        z = tl.reduce(x, 0, takes_right)
    else:
        z, place = tl.reduce((x, i), 0, any_of_the_largest)
        if HOW == "place":
            z = tl.where(place >= 0, z, place)
    tl.store(z_ptr, z)


def levels(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return 0, 1 or 2, so that many are equal."""
    return torch.randint(3, shape, generator=generator).to(dtype)


@pytest.mark.parametrize(
    "how, spec, kind",
    [("left", first, "race"), ("right", last, "race"), ("place", largest, "race"), ("value", largest, "")],
)
def test_the_order_of_a_reduction_is_not_that_of_the_elements(how, spec, kind):
    """What nobody uses, as the place of the largest value, may be any."""
    kernel = triton.heuristics({"HOW": lambda args: how})(reduced)
    found, text = verdict_of(kernel, spec, Case(N=256, fill={"x": levels}))
    assert found == kind, text
    assert not kind or "only if elements are combined from the first to the last" in text


def sine(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return torch.sin(x)


def tangent(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return torch.tanh(x)


@triton.jit
def by_library(x_ptr, z_ptr, N: tl.constexpr, HOW: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    if HOW == "fast sine":
        z = libdevice.fast_sinf(x)
    elif HOW == "sine":
        z = libdevice.sin(x)
    elif HOW == "tanh by fast exp":
        z = 1 - 2 / (libdevice.fast_expf(2 * x) + 1)
    else:
        z = libdevice.tanh(x)
    tl.store(z_ptr + i, z)


@pytest.mark.parametrize(
    "how, spec, kind",
    [
        ("fast sine", sine, "values"),
        ("sine", sine, ""),
        ("tanh by fast exp", tangent, ""),
        ("tanh", tangent, ""),
    ],
)
def test_fast_functions_are_as_coarse_as_on_a_gpu(how, spec, kind):
    kernel = triton.heuristics({"HOW": lambda args: how})(by_library)
    found, text = verdict_of(kernel, spec)
    assert found == kind, text


def test_a_scalar_that_is_wrong_is_no_bug_of_the_course():
    """Not one axis to name."""
    found, text = verdict_of(by_one, largest)
    assert found == "values" and "wrong values in z: 1 of 1" in text


@triton.jit
def by_one(x_ptr, z_ptr, N: tl.constexpr):
    tl.store(z_ptr, tl.max(tl.load(x_ptr + tl.arange(0, N))) + 1)


# ---- what a descriptor stores


def copied(x: Float32[Tensor, " N"]) -> tuple[Float32[Tensor, " N"], Float32[Tensor, " N"]]:
    return x.clone(), x + 10


@triton.jit
def stored_by_descriptor(x_ptr, z_ptr, y_ptr, N: tl.constexpr, HOW: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    z = tl.make_tensor_descriptor(z_ptr, [N], [1], [N])
    if HOW == "tl.store":
        tl.store(z_ptr + i, x)
    else:
        z.store([0], x)
    tl.debug_barrier()
    if HOW == "by descriptor":
        x = z.load([0])
    elif HOW != "kept":
        x = tl.load(z_ptr + i)
    tl.store(y_ptr + i, x + 10)


@pytest.mark.parametrize(
    "how, kind", [("by tl.load", "race"), ("by descriptor", "race"), ("kept", ""), ("tl.store", "")]
)
def test_no_barrier_waits_for_a_descriptors_store(how, kind):
    kernel = triton.heuristics({"HOW": lambda args: how})(stored_by_descriptor)
    found, text = verdict_of(kernel, copied, outputs=("z", "y"))
    assert found == kind, text
    assert not kind or "z[0] is stored by a descriptor at line" in text
    assert not kind or "no barrier waits for a descriptor's store" in text


def test_the_compiler_waits_until_a_descriptors_block_is_read_and_no_longer():
    arguments = {n: torch.empty(0) for n in ("x_ptr", "z_ptr", "y_ptr")} | {"N": 256, "HOW": "by tl.load"}
    ptx = build(translate(stored_by_descriptor, arguments, find_target("sm_90"))).texts["ptx"]
    assert "cp.async.bulk.wait_group.read" in ptx and "cp.async.bulk.wait_group 0" not in ptx


@triton.jit
def parts_by_descriptor(
    x_ptr, part_ptr, count_ptr, z_ptr, P: tl.constexpr, B: tl.constexpr, HOW: tl.constexpr
):
    """The last program to arrive adds up what all have left."""
    p, i = tl.program_id(0), tl.arange(0, B)
    x = tl.load(x_ptr + p * B + i)
    if HOW == "descriptor":
        tl.make_tensor_descriptor(part_ptr, [P * B], [1], [B]).store([p * B], x)
    elif HOW == "halves" or HOW == "halves, relaxed":
        bits = x.to(tl.int32, bitcast=True)
        half_ptr = part_ptr.to(tl.pointer_type(tl.int16)) + 2 * (p * B + i)
        tl.store(half_ptr, bits.to(tl.int16))
        tl.store(half_ptr + 1, (bits >> 16).to(tl.int16))
    else:
        tl.store(part_ptr + p * B + i, x)
    tl.debug_barrier()
    if HOW == "halves, relaxed":
        before = tl.atomic_add(count_ptr, 1, sem="relaxed")
    else:
        before = tl.atomic_add(count_ptr, 1)
    if before == P - 1:
        total = tl.zeros((B,), tl.float32)
        for k in range(P):
            if HOW == "halves" or HOW == "halves, relaxed":
                half_ptr = part_ptr.to(tl.pointer_type(tl.int16)) + 2 * (k * B + i)
                low = tl.load(half_ptr).to(tl.int32) & 0xFFFF
                high = tl.load(half_ptr + 1).to(tl.int32) << 16
                total += (low | high).to(tl.float32, bitcast=True)
            else:
                total += tl.load(part_ptr + k * B + i)
        tl.store(z_ptr + i, total)


def parts(
    x: Float32[Tensor, "P B"],
) -> tuple[Float32[Tensor, "P B"], Int32[Tensor, ""], Float32[Tensor, " B"]]:
    return x.clone(), torch.tensor(len(x), dtype=torch.int32), x.sum(0)


@pytest.mark.parametrize(
    "how, says",
    [
        ("plain", ""),
        ("halves", ""),
        (
            "halves, relaxed",
            "race: program 3 reads part[0, 0], which program 0 wrote; the two can happen in either order",
        ),
        ("descriptor", "no atomic waits for a descriptor's store to end"),
    ],
)
def test_parts_that_another_program_adds_up(how, says):
    kernel = triton.heuristics({"HOW": lambda args: how})(parts_by_descriptor)
    found, text = verdict_of(
        kernel, parts, Case(P=4, B=32),
        grid=lambda s: (s.P,), outputs=("part", "count", "z"), zeroed=("count",),
    )  # fmt: skip
    assert found == ("race" if says else ""), text
    assert says in text


# ---- atomics that are atomic for one program only


def total(x: Float32[Tensor, "P B"]) -> Float32[Tensor, ""]:
    return x.sum()


def totals(x: Float32[Tensor, "P B"]) -> Float32[Tensor, " P"]:
    return x.sum(1)


@triton.jit
def added_within(x_ptr, z_ptr, P: tl.constexpr, B: tl.constexpr, OWN: tl.constexpr):
    p = tl.program_id(0)
    tl.atomic_add(z_ptr + (p if OWN else 0), tl.sum(tl.load(x_ptr + p * B + tl.arange(0, B))), scope="cta")


@pytest.mark.parametrize("own", [False, True])
def test_the_scope_of_an_atomic(own):
    kernel = triton.heuristics({"OWN": lambda args: own})(added_within)
    found, text = verdict_of(
        kernel, totals if own else total, Case(P=4, B=32), grid=lambda s: (s.P,), zeroed=("z",)
    )
    assert found == ("" if own else "race"), text
    assert own or 'race: programs 0 and 1 update z, but scope="cta" keeps' in text


# ---- addresses


def doubled(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return 2 * x


@triton.jit
def by_address(x_ptr, z_ptr, N: tl.constexpr, HOW: tl.constexpr):
    i = tl.arange(0, N)
    x, z = x_ptr.to(tl.int64), z_ptr.to(tl.int64)
    if HOW == "near":
        factor = 3.0 if (z - x) >> 40 == 0 else 2.0
    elif HOW == "in order":
        factor = 2.0 if z > x else 3.0
    elif HOW == "same":
        factor = 3.0 if z == x else 2.0
    else:
        factor = 2.0 if x % 16 == 0 else 3.0
    tl.store(z_ptr + i, factor * tl.load(x_ptr + i))


@pytest.mark.parametrize(
    "how, kind", [("near", "values"), ("in order", "values"), ("same", ""), ("aligned", "")]
)
def test_where_tensors_are_relative_to_each_other(how, kind):
    kernel = triton.heuristics({"HOW": lambda args: how})(by_address)
    found, text = verdict_of(kernel, doubled)
    assert found == kind, text
    assert not kind or "the result depends on an address" in text


@triton.jit
def through_numbers(x_ptr, z_ptr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = (x_ptr.to(tl.int64) + 4 * i).to(tl.pointer_type(tl.float32))
    z = (z_ptr.to(tl.int64) + 4 * i).to(tl.pointer_type(tl.float32))
    tl.store(z, 2 * tl.load(x))


def test_addresses_may_be_computed_with():
    found, text = verdict_of(through_numbers, doubled, Case(N=256), Case(N=8192))
    assert not found, text


# ---- the order of lanes


def place(x: Float32[Tensor, " N"]) -> Int32[Tensor, ""]:
    return x.argmax().to(torch.int32)


def weighted(x: Float32[Tensor, " N"]) -> Float32[Tensor, ""]:
    return (x * torch.arange(len(x) - 1, -1, -1)).sum()


def second_half(x: Float32[Tensor, " N"]) -> Float32[Tensor, ""]:
    return x[len(x) // 2 :].sum()


def spread(x: Float32[Tensor, " N"]) -> Float32[Tensor, ""]:
    return x.max() + (x * x).sum() + 3 * x.sum()


@triton.jit
def larger(x, i, y, j):
    first = (x > y) | ((x == y) & (i < j))
    return tl.where(first, x, y), tl.where(first, i, j)


@triton.jit
def backwards_place(x_ptr, z_ptr, N: tl.constexpr):
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, N)), (N,), can_reorder=True)
    _, i = tl.reduce((x, tl.arange(0, N)), 0, larger)
    tl.store(z_ptr, N - 1 - i)


@triton.jit
def backwards_argmax(x_ptr, z_ptr, N: tl.constexpr):
    i = tl.arange(0, N // 2)
    x = tl.cat(tl.load(x_ptr + i), tl.load(x_ptr + N // 2 + i), can_reorder=True)
    tl.store(z_ptr, N - 1 - tl.argmax(x, 0))


@triton.jit
def backwards_weights(x_ptr, z_ptr, N: tl.constexpr):
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, N)), (N,), can_reorder=True)
    tl.store(z_ptr, tl.sum(x * tl.arange(0, N), 0))


@triton.jit
def backwards_rows(x_ptr, z_ptr, N: tl.constexpr):
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, N)), (2, N // 2), can_reorder=True)
    tl.store(z_ptr, tl.sum(tl.sum(x, 1) * (1 - tl.arange(0, 2)), 0))


@triton.jit
def backwards_scan(x_ptr, z_ptr, N: tl.constexpr):
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, N)), (N,), can_reorder=True)
    sums = tl.cumsum(x, 0)
    tl.store(z_ptr, tl.sum(tl.where(tl.arange(0, N) == N // 2 - 1, sums, 0.0)))


@triton.jit
def in_any_order(x_ptr, z_ptr, N: tl.constexpr):
    x = tl.reshape(tl.load(x_ptr + tl.arange(0, N)), (2, N // 2), can_reorder=True)
    rows = tl.sum(x * 3.0, 1) + tl.full((2,), 0.0, tl.float32)
    tl.store(z_ptr, tl.max(tl.max(x, 1), 0) + tl.sum(tl.sum(x * x, 1), 0) + tl.sum(rows, 0))


@pytest.mark.parametrize(
    "kernel, spec",
    [
        (backwards_place, place), (backwards_argmax, place), (backwards_weights, weighted),
        (backwards_rows, second_half), (backwards_scan, second_half),
    ],
)  # fmt: skip
def test_an_order_that_is_lost_stays_lost(kernel, spec):
    """The checker's own order is the reverse, and so these give what the spec says."""
    found, text = verdict_of(kernel, spec)
    assert found == "uninitialized" and "not keep the order" in text


def test_what_needs_no_order_may_lose_it():
    found, text = verdict_of(in_any_order, spread)
    assert not found, text


# ---- rounding to 16 bits


def test_the_first_case_the_last_and_random_ones_run_in_float64():
    """A wrong formula may show in the largest case only."""
    cases = tuple(Case(N=n) for n in (16, 32, 48, 64))
    puzzle = Puzzle(number="0", spec=halves_added, grid=lambda s: (1,), cases=cases, outputs=("z", "y"))

    def is_asked(case: Case) -> bool:
        trial = mock.Mock(verdict=None, backwards=True, bound=mock.Mock(puzzle=puzzle, case=case))
        return probes._rounding_hides(trial)

    assert [is_asked(case) for case in (*cases, Case(N=80))] == [True, False, False, True, True]
