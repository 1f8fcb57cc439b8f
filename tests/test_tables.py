"""Tables of addresses, and descriptors with more axes than two."""

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32, Int64
from torch import Tensor

from puzzles_lib import watch
from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case, Puzzle
from tests import running


def doubled(table: Int64[Tensor, " T"], x: Float32[Tensor, "T N"]) -> Float32[Tensor, "T N"]:
    return 2 * x


CASES = (Case(T=2, N=32), Case(T=5, N=20))
FOREACH = Puzzle(number="0", spec=doubled, grid=lambda s: (s.T,), cases=CASES, tables={"table": "x"})


@triton.jit
def foreach_kernel(table_ptr, z_ptr, N, HOW: tl.constexpr):
    """One program per tensor, as a foreach optimizer takes them."""
    p = tl.program_id(0)
    x_ptr = tl.load(table_ptr + (p + 1 if HOW == "next" else p)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, 32)
    mask = i < (N + 1 if HOW == "far" else N)
    if HOW == "half":
        x_ptr = tl.load(table_ptr + p).to(tl.pointer_type(tl.float16))
    x = tl.load(x_ptr + i + (1 if HOW == "shifted" else 0), mask=mask, other=0.0)
    tl.store(z_ptr + p * N + i, 2 * x.to(tl.float32), mask=i < N)


@pytest.mark.parametrize(
    "how, kind, says",
    [
        ("right", "", ""),
        ("next", "out of bounds", "out-of-bounds load of table_ptr in program 1: element 2"),
        ("shifted", "out of bounds", "out-of-bounds load of x_ptr in program 1"),
        ("half", "values", "wrong values in z"),
    ],
)
def test_a_table_of_addresses(how, kind, says):
    report = examine(triton.heuristics({"HOW": lambda args: how})(foreach_kernel), FOREACH)
    assert [verdict.kind for verdict in report.verdicts[:1]] == ([kind] if kind else []), report
    assert says in str(report)


@triton.jit
def with_both(table_ptr, x_ptr, z_ptr, N):
    """Some rows by the table, some by the argument itself."""
    p, i = tl.program_id(0), tl.arange(0, 32)
    row_ptr = tl.load(table_ptr + p).to(tl.pointer_type(tl.float32))
    x = tl.load(row_ptr + i, mask=i < N, other=0.0) + tl.load(x_ptr + p * N + i, mask=i < N, other=0.0)
    tl.store(z_ptr + p * N + i, x, mask=i < N)


def test_a_kernel_may_take_both_the_table_and_the_tensor():
    assert examine(with_both, FOREACH).ok
    assert watch(with_both, FOREACH).frame is not None


def _at(**tensors):
    return {name: (tensor.data_ptr(), tensor) for name, tensor in tensors.items()}


def test_tensors_that_are_no_arguments():
    """`runner.run` takes them by name; they may be results."""
    x, y = torch.arange(8.0), torch.zeros(8)
    table = torch.tensor([x.data_ptr(), y.data_ptr()])
    ran = running.run(through_a_table, {"table_ptr": table}, (1, 1, 1), {"y_ptr"}, others=_at(x=x, y=y))
    assert ran.stop is None and torch.equal(y, 2 * x)
    assert ran.outputs.keys() == {"y"} and ran.written["y"].all()
    ran = running.run(through_a_table, {"table_ptr": table}, (1, 1, 1), {"y_ptr"}, others=_at(y=y))
    assert ran.stop.kind == "out of bounds" and "not an argument of the kernel" in ran.stop.message


@triton.jit
def through_a_table(table_ptr):
    i = tl.arange(0, 8)
    x_ptr = tl.load(table_ptr).to(tl.pointer_type(tl.float32))
    y_ptr = tl.load(table_ptr + 1).to(tl.pointer_type(tl.float32))
    tl.store(y_ptr + i, 2 * tl.load(x_ptr + i))


@pytest.mark.parametrize(
    "change, says",
    [
        ({"tables": {"x": "table"}}, "a tensor named in tables must be torch.int64, but x is torch.float32"),
        ({"tables": {"table": "y"}}, r"tables names \['y'\], which are not inputs"),
        ({"cases": (Case(T=2, N=32), Case(T=2, N=2**31, pretend=True))}, "has no pretended cases"),
    ],
)
def test_tables_that_cannot_be(change, says):
    parts = {
        "number": "0",
        "spec": doubled,
        "grid": lambda s: (s.T,),
        "cases": CASES,
        "tables": {"table": "x"},
    }
    with pytest.raises(ValueError, match=says):
        Puzzle(**{**parts, **change})


# ---- descriptors with more axes


def swapped(x: Float32[Tensor, "A B C D"]) -> Float32[Tensor, "A C B D"]:
    return x.transpose(1, 2)


@triton.jit
def swapped_kernel(x_desc, z_ptr, B, C, D, BLOCK: tl.constexpr, SWAPPED: tl.constexpr):
    a, c = tl.program_id(0), tl.program_id(1)
    b, d = tl.arange(0, BLOCK), tl.arange(0, BLOCK)
    x = x_desc.load([a, c, 0, 0] if SWAPPED else [a, 0, c, 0]).reshape(BLOCK, BLOCK)
    mask = (b[:, None] < B) & (d[None, :] < D)
    tl.store(z_ptr + ((a * C + c) * B + b[:, None]) * D + d[None, :], x, mask=mask)


@pytest.mark.parametrize("wrong", [False, True])
def test_a_descriptor_with_four_axes(wrong):
    puzzle = Puzzle(
        number="0", spec=swapped, grid=lambda s: (s.A, s.C),
        cases=(Case(A=2, B=5, C=5, D=8, BLOCK=8), Case(A=3, B=6, C=2, D=4, BLOCK=8)),
        descriptors={"x": lambda s: (1, s.BLOCK, 1, s.BLOCK)},
    )  # fmt: skip
    report = examine(triton.heuristics({"SWAPPED": lambda args: wrong})(swapped_kernel), puzzle)
    assert report.ok is not wrong, report
    assert not wrong or report.verdicts[0].kind == "values"
