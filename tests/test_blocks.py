"""The short ways through Triton's semantic: each gives what the long way gives, or raises what it raises."""

import itertools

import numpy as np
import pytest
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime.interpreter import TensorHandle

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import bind
from puzzles_lib.blocks import unwrapped
from puzzles_lib.chapters import puzzles
from puzzles_lib.compiler import find_target, translate
from puzzles_lib.dtypes import DTYPES
from puzzles_lib.interpreter.language import executing, semantic
from puzzles_lib.translator import observer

NUMBERS = [0, 1, -1, 2**31 - 1, 2**31, -(2**31), -(2**31) - 1, 2**63, 2**64, 0.5, -0.0, 1e-40, 1e300]
NUMBERS += [float("inf"), True]
ROWS = {row.triton.name: row for row in DTYPES}
LONG = TritonSemantic.binary_op_type_checking_impl  # its broadcast, cast and constants are ours
OPTIONS = [{}, {"allow_lhs_ptr": True}, {"arithmetic_check": False}, {"div_or_mod": True}]


def tensor(name: str, shape: tuple[int, ...]) -> tl.tensor:
    """Ones of a dtype, or pointers to int8."""
    if name == "pointer":
        kind, data = tl.pointer_type(tl.int8), np.ones(shape or 1, np.uint64)
    else:
        kind, data = ROWS[name].triton, np.ones(shape or 1, ROWS[name].storage)
    return tl.tensor(TensorHandle(data, kind), tl.block_type(kind, list(shape)) if shape else kind)


def told(method, *operands, **options):
    """Types and values of both results, or what was raised."""
    try:
        with executing():
            results = method(semantic, *operands, **options)
    except Exception as error:
        return type(error), str(error)
    return [(str(r.type), str(r.dtype), r.handle.data.tobytes(), str(r.handle.dtype)) for r in results]


@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("left", [*ROWS, "pointer"])
def test_operands_are_made_compatible_as_triton_does(left, options):
    short = type(semantic).binary_op_type_checking_impl
    for right, shapes in itertools.product([*ROWS, "pointer"], [((4,), (4,)), ((4, 1), (1, 2)), ((), (2,))]):
        operands = tensor(left, shapes[0]), tensor(right, shapes[1])
        assert told(short, *operands, **options) == told(LONG, *operands, **options), right
    for number in NUMBERS:
        for operands in ((tensor(left, (2,)), number), (number, tensor(left, ()))):
            assert told(short, *operands, **options) == told(LONG, *operands, **options), number


def test_what_may_be_a_constexpr_is_unwrapped():
    block = tensor("int32", (2,))
    assert [unwrapped(value) for value in (tl.constexpr(3), 3, 2.5, None, "ieee")] == [
        3,
        3,
        2.5,
        None,
        "ieee",
    ]
    assert unwrapped(block) is block
    assert unwrapped([tl.constexpr(3), (tl.constexpr(4), 5)]) == [3, (4, 5)]


@pytest.mark.parametrize("name", ["quantize_pack", "long_softmax", "dw_by_lock"])
def test_in_the_front_end_they_change_nothing_of_the_ir(name, monkeypatch, own_children):
    """What a reader is shown is Triton's own: names and constants included."""
    puzzle = next(puzzle for puzzle in puzzles() if puzzle.name == name)
    bound = bind(solutions()[name], puzzle, puzzle.cases[1])
    short = translate(bound.kernel, bound.arguments, find_target("sm_90")).ir
    monkeypatch.setattr(observer, "_share", lambda: None)
    monkeypatch.setattr(observer, "compatible", lambda method: method)
    assert short == translate(bound.kernel, bound.arguments, find_target("sm_90")).ir
