"""Programs that run at once leave exactly what they leave one after the other, or they don't run at once."""

import dataclasses

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.fuzz import apart
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import bind
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.compiler import program
from puzzles_lib.inputs import make_inputs
from puzzles_lib.runner import Options, Run, run, together
from puzzles_lib.runner.lanes import INT32, Lanes
from puzzles_lib.runner.together import differences
from tests import kernels

RIGHT = kernels.right()


def both(kernel, arguments, grid, outputs, **options) -> Run:
    """Run a kernel's programs one by one and together, compare all that is noted, and return the latter."""
    code = program(kernel, arguments)
    grid = (*grid, 1, 1)[:3]
    found = []
    for at_once in (False, True):
        given = {n: v.clone() if isinstance(v, torch.Tensor) else v for n, v in arguments.items()}
        asked = Options(quiet=True, together=at_once, **options)
        found.append(run(code, given, grid, outputs, asked))
    assert differences(*found) == []
    return found[1]


def defined(**tensors):
    return {name: np.ones(tensor.numel(), bool) for name, tensor in tensors.items()}


# ---- kernels whose programs can run at once


@triton.jit
def softmax(x_ptr, z_ptr, n, m, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * m + i, mask=i < m, other=-float("inf"))
    e = tl.exp(x - tl.max(x, 0))
    tl.store(z_ptr + row * m + i, e / tl.sum(e, 0), mask=i < m)


@triton.jit
def matmul(a_ptr, b_ptr, z_ptr, M, N, K, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)[:, None]
    j = tl.program_id(1) * B + tl.arange(0, B)[None, :]
    acc = tl.zeros((B, B), tl.float32)
    for start in range(0, K, B):
        k = start + tl.arange(0, B)
        a = tl.load(a_ptr + i * K + k[None, :], mask=(i < M) & (k[None, :] < K), other=0.0)
        b = tl.load(b_ptr + k[:, None] * N + j, mask=(k[:, None] < K) & (j < N), other=0.0)
        acc += tl.dot(a, b)
    tl.store(z_ptr + i * N + j, acc, mask=(i < M) & (j < N))


@triton.jit
def holes(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Undefined lanes that no store uses."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(z_ptr + i, x * 2, mask=i < n)


@triton.jit
def in_place(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + i, tl.load(x_ptr + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def one_number(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Numbers, branches, a loop over programs' parts, and a choice between blocks by one number."""
    row = tl.program_id(0)
    scale = tl.load(x_ptr + row)
    i = tl.arange(0, BLOCK)
    block = tl.load(x_ptr + (row * BLOCK + i[:, None] * 2 + tl.arange(0, 2)[None, :]) % n)
    block = tl.where(scale > 0, block, -block)
    if n > 3:
        block += scale
    total = scale
    for step in range(0, 3):
        total += tl.load(x_ptr + (row + step) % n)
    tl.store(z_ptr + row, total + tl.sum(tl.sum(block, 1), 0))


@triton.jit
def shapes(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * BLOCK + i)
    x = tl.flip(tl.sort(x), 0) + tl.cumsum(x, 0)
    even, odd = tl.split(tl.reshape(x, (BLOCK // 2, 2)))
    pairs = tl.trans(tl.reshape(tl.join(odd, even), (2, BLOCK // 2)))
    x = tl.gather(tl.reshape(pairs, (BLOCK,)), (i * 3 + row) % BLOCK, 0)
    best, place = tl.max(x, 0, return_indices=True)
    tl.store(z_ptr + row * BLOCK + i, tl.where(i == place, best * 2, x))


@triton.jit
def narrow(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Half of each element of 16 bits, in bytes and other dtypes."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.bfloat16)
    code = (x.to(tl.float32) * 8).to(tl.int8)
    tl.store(z_ptr + i, code.to(tl.float32, bitcast=False) / 8, mask=i < n)


@triton.jit
def again(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Lanes that load one element, and columns before rows: the bytes that move are fewer than the lanes'."""
    row, i = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row + i // 4) + tl.load(x_ptr + row + 200 * (i // 8))
    turned = tl.load(x_ptr + row + i[:, None] % 4 + 4 * tl.arange(0, 4)[None, :])
    tl.store(z_ptr + row * BLOCK + i, x + tl.sum(turned, 1))


X = torch.randn(1000, generator=torch.Generator().manual_seed(0))
A, B = X[:420].reshape(20, 21), X[420:945].reshape(21, 25)
Z, C = torch.zeros_like(X), torch.zeros(20, 25)
SIZES = {"M": 20, "N": 25, "K": 21}
TOGETHER = {
    "softmax": (softmax, {"x_ptr": X, "z_ptr": Z, "n": 100, "m": 10, "BLOCK": 16}, (100,), {"z_ptr"}),
    "matmul": (matmul, {"a_ptr": A, "b_ptr": B, "z_ptr": C, **SIZES, "B": 16}, (2, 2), {"z_ptr"}),
    "holes": (holes, {"x_ptr": X, "z_ptr": Z, "n": 1000, "BLOCK": 16}, (63,), {"z_ptr"}),
    "one_number": (one_number, {"x_ptr": X, "z_ptr": Z, "n": 1000, "BLOCK": 8}, (77,), {"z_ptr"}),
    "shapes": (shapes, {"x_ptr": X, "z_ptr": Z, "n": 1000, "BLOCK": 16}, (62,), {"z_ptr"}),
    "again": (again, {"x_ptr": X, "z_ptr": Z, "n": 1000, "BLOCK": 16}, (62,), {"z_ptr"}),
    "narrow": (narrow, {"x_ptr": X, "z_ptr": Z, "n": 1000, "BLOCK": 16}, (63,), {"z_ptr"}),
}  # fmt: skip


@pytest.mark.parametrize("name", TOGETHER)
@pytest.mark.parametrize("reverse", [False, True])
def test_programs_run_at_once(monkeypatch, name, reverse):
    monkeypatch.setattr(together, "FEWEST", 2)
    kernel, arguments, grid, outputs = TOGETHER[name]
    ran = both(kernel, arguments, grid, outputs, reverse=reverse)
    assert ran.stop is None and ran.undefined is None
    assert ran.together >= ran.programs - 3


def test_a_tensor_may_be_changed_in_place():
    ran = both(in_place, {"x_ptr": X, "n": 1000, "BLOCK": 16}, (63,), {"x_ptr"}, defined=defined(x=X))
    assert ran.together == 62 and torch.equal(ran.outputs["x"], X + 1)


@pytest.mark.parametrize("puzzle, kernel", RIGHT, ids=[k.__name__ for _, k in RIGHT])
def test_correct_kernels_run_at_once_as_one_by_one(monkeypatch, puzzle, kernel):
    monkeypatch.setattr(together, "FEWEST", 2)
    cases = [case for case in puzzle.cases if not case.pretend]
    for case in (cases[0], cases[-1]):
        bound, inputs = bind(kernel, puzzle, case), make_inputs(puzzle, case)
        asked = (Options(quiet=True, together=at_once) for at_once in (False, True))
        assert differences(*(attempt(bound, inputs, options) for options in asked)) == []


# ---- kernels whose programs can't


@triton.jit
def reads_neighbor(x_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i + 1, mask=i < n - 1)
    tl.store(x_ptr + i, x, mask=i < n - 1)


@triton.jit
def overlaps(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < n) + tl.program_id(0), mask=i < n)


@triton.jit
def stores_again(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """Two programs store the same values to an element."""
    i = tl.program_id(0) * (BLOCK - 1) + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def out_of_bounds_at_last(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i), mask=i < n)


@triton.jit
def undefined(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i != 501)
    tl.store(z_ptr + i, x, mask=i < n)


@triton.jit
def branches(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    x = tl.load(x_ptr + row)
    if x > 0:
        x = x * 2
    tl.store(z_ptr + row, x)


@triton.jit
def triangle(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = 0.0
    for column in range(row + 1):
        total += tl.load(x_ptr + column)
    tl.store(z_ptr + row, total)


@triton.jit
def adds(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(z_ptr + i % 8, tl.load(x_ptr + i, mask=i < n, other=0.0))


@triton.jit
def twice(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    """A program stores an element, and once more."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, i, mask=i < n)
    tl.store(z_ptr + i, i + tl.load(x_ptr + i, mask=i < n), mask=i < n)


@triton.jit
def false_hint(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
    start = tl.multiple_of(tl.program_id(0) * (BLOCK - 1), 4)
    i = start + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < n), mask=i < n)


ALONE = {
    "reads_neighbor": (reads_neighbor, 0), "overlaps": (overlaps, 0), "stores_again": (stores_again, 0),
    "out_of_bounds_at_last": (out_of_bounds_at_last, 60), "undefined": (undefined, 46),
    "branches": (branches, 0), "triangle": (triangle, 0), "adds": (adds, 0), "false_hint": (false_hint, 0),
}  # fmt: skip
MARKED = {
    "overlaps": "conflict", "out_of_bounds_at_last": "stop", "undefined": "undefined",
    "false_hint": "promises",
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_programs_that_depend_on_each_other_run_one_by_one(name):
    kernel, most = ALONE[name]
    given = {"x_ptr": X, "z_ptr": Z.clone(), "n": 1000, "BLOCK": 16}
    given = {name: given[name] for name in kernel.arg_names}
    outputs = {"z_ptr"} if "z_ptr" in given else {"x_ptr"}
    options = {"defined": defined(x=X)} if name == "reads_neighbor" else {"zeroed": {"z_ptr"}}
    ran = both(kernel, given, (63,), outputs, **options)
    assert ran.together <= most
    assert name not in MARKED or getattr(ran, MARKED[name])


def test_what_a_failed_group_has_stored_is_undone():
    """Groups that come before one with a fault, and after it, run at once."""

    @triton.jit
    def fails_once(x_ptr, z_ptr, n, BLOCK: tl.constexpr):
        row = tl.program_id(0)
        i = row * BLOCK + tl.arange(0, BLOCK)
        tl.store(x_ptr + i, tl.load(x_ptr + i) * 2)
        tl.store(z_ptr + i, row)
        if row == 530:
            tl.store(z_ptr + i, -row)

    x = torch.arange(16.0 * 1024)
    given = {"x_ptr": x, "z_ptr": torch.empty_like(x), "n": 1024, "BLOCK": 16}
    ran = both(fails_once, given, (1024,), {"x_ptr", "z_ptr"}, defined=defined(x=x))
    assert ran.together == 1007
    assert "z" in ran.rewritten and torch.equal(ran.outputs["x"], 2 * x)


def test_a_program_may_store_an_element_twice():
    """The first program, which runs alone, shows it."""
    ran = both(twice, {"x_ptr": X, "z_ptr": Z, "n": 1000, "BLOCK": 16}, (63,), {"z_ptr"})
    assert ran.together == 62 and "z" in ran.rewritten


def test_a_difference_is_told():
    ran = both(softmax, *TOGETHER["softmax"][1:])
    assert differences(ran, ran) == []
    changed = dataclasses.replace(ran, bytes_moved=1, outputs={"z": ran.outputs["z"] + 1})
    assert [text.partition(":")[0] for text in differences(ran, changed)] == ["outputs", "bytes_moved"]


def test_fuzz_compares_both_ways(monkeypatch):
    """With a mistake in one of the operations that are only for programs that run at once."""
    kernel = solutions()["masked_add"]
    assert apart(kernel) == []
    wrong = dict(together._OTHERWISE)
    wrong["tt.get_program_id"] = lambda machine, step: Lanes(machine.memory.group[::-1, 0].copy(), INT32)
    monkeypatch.setattr(together, "_OTHERWISE", wrong)
    assert [text.partition(":")[0] for text in apart(kernel)] == ["writers"]
