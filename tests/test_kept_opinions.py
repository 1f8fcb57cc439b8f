"""What the front end has taken is not asked again, unless anything that it depends on is another."""

import contextlib
import os

import pytest
import torch
import triton.language as tl

from puzzles_lib.compiler import frontend
from puzzles_lib.compiler.child import Child, Ended
from puzzles_lib.compiler.frontend import Opinions
from puzzles_lib.source import define
from puzzles_lib.translator import nursery

SOURCE = """
@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    {}
    tl.store(z_ptr + offs, x, mask=offs < N)
"""
ARGUMENTS = {"x_ptr": torch.empty(0), "z_ptr": torch.empty(0), "N": 100, "BLOCK": 64}
HELPER = "@triton.jit\ndef helper(x):\n    return x + {}\n"


def kernel_with(line="x = x + 1", **scope):
    return define(SOURCE.format(line), "<kept>", scope)


@pytest.fixture(autouse=True)
def asked(monkeypatch):
    """The numbers that children are asked."""
    numbers = []
    plain = Child.ask
    monkeypatch.setattr(Child, "ask", lambda self, number: (numbers.append(number), plain(self, number))[1])
    nursery.begin()
    frontend.forget()
    yield numbers
    frontend.forget()


def opinion(kernel, **changed):
    with contextlib.closing(Opinions(kernel, [ARGUMENTS | changed])) as found:
        return found[0]


def test_the_same_is_asked_once(asked):
    first = opinion(kernel_with())
    assert opinion(kernel_with()) == first and first.refusal is None
    assert len(asked) == 1


@pytest.mark.parametrize(
    "changed",
    [
        {"BLOCK": 32},
        {"BLOCK": True},
        {"BLOCK": 64.0},
        {"x_ptr": torch.empty(0, dtype=torch.float16)},
        {"x_ptr": None},
        {"N": None},
        {"N": 1 << 40},
        {"N": 1.0},
    ],
    ids=repr,
)
def test_other_arguments_are_asked(changed, asked):
    kernel = kernel_with()
    opinion(kernel)
    opinion(kernel, **changed)
    assert len(asked) == 2


def test_other_options_and_limits_are_asked(asked, monkeypatch):
    kernel = kernel_with()
    opinion(kernel)
    with contextlib.closing(Opinions(kernel, [ARGUMENTS], num_stages=5)) as found:
        assert found[0].refusal is None
    monkeypatch.setattr(frontend, "FRONT_END_SECONDS", 9.0)
    opinion(kernel)
    assert len(asked) == 3


@pytest.mark.parametrize("line", ["x = x * WHAT", "x = helper(x) * WHAT"])
def test_a_global_that_is_another_now_is_asked(line, asked):
    scope = {"WHAT": tl.constexpr(2), "helper": define(HELPER.format(1), "<helper>")}
    kernel = kernel_with(line, **scope)
    assert opinion(kernel).refusal is None
    kernel.fn.__globals__["WHAT"] = tl.constexpr((1, 2, 3))
    assert opinion(kernel).refusal is not None and len(asked) == 2


def test_a_helper_that_is_another_now_is_asked(asked):
    kernel = kernel_with("x = helper(x)", helper=define(HELPER.format(1), "<helper>"))
    assert opinion(kernel).refusal is None
    kernel.fn.__globals__["helper"] = define(HELPER.format("missing"), "<helper>")
    assert "missing" in opinion(kernel).refusal.message and len(asked) == 2
    kernel.fn.__globals__["helper"].fn.__globals__["missing"] = tl.constexpr(1)
    assert opinion(kernel).refusal is None and len(asked) == 3


def test_what_cannot_be_packed_is_asked_each_time(asked):
    kernel = kernel_with("x = x + 1 if True else TENSOR", TENSOR=torch.ones(3))
    opinion(kernel)
    opinion(kernel)
    assert len(asked) == 2 and not frontend._kept


def test_what_a_child_of_this_process_says_is_not_kept(asked, own_children):
    opinion(kernel_with())
    opinion(kernel_with())
    assert len(asked) == 2 and not frontend._kept


def test_a_kernel_that_changes_meanwhile_is_not_kept():
    kernel = kernel_with("x = x * WHAT", WHAT=tl.constexpr(2))
    with contextlib.closing(Opinions(kernel, [ARGUMENTS])) as found:
        found.begin(0)
        kernel.fn.__globals__["WHAT"] = tl.constexpr(3)
        assert found[0].refusal is None and not frontend._kept


def test_a_refusal_is_not_kept(asked):
    kernel = kernel_with("x = missing")
    assert opinion(kernel) == opinion(kernel)
    assert len(asked) == 2 and not frontend._kept


@pytest.mark.parametrize("cause", ["crash", "time", "hung"])
def test_no_answer_is_not_kept(cause, monkeypatch):
    def none(self):
        raise Ended(cause)

    with monkeypatch.context() as patch:
        patch.setattr(Child, "answer", none)
        assert opinion(kernel_with()).refusal is not None and not frontend._kept
    assert opinion(kernel_with()).refusal is None


def test_not_more_are_kept_than_a_number(monkeypatch):
    monkeypatch.setattr(frontend, "KEPT", 2)
    for size in (16, 32, 64, 128, 256):
        opinion(kernel_with(), BLOCK=size)
        assert 1 <= len(frontend._kept) <= 2


def test_a_line_that_has_moved_is_asked(asked):
    opinion(kernel_with())
    opinion(define(os.linesep * 3 + SOURCE.format("x = x + 1"), "<kept>"))
    assert len(asked) == 2
