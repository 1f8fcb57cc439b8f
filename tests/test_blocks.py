"""The short ways through Triton's semantic: each gives what the long way gives."""

import pytest
import triton.language as tl

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.compiler import find_target, translate
from puzzles_lib.translator import observer
from puzzles_lib.translator.blocks import unwrapped


def test_what_may_be_a_constexpr_is_unwrapped():
    plain = [unwrapped(value) for value in (tl.constexpr(3), 3, 2.5, None, "ieee")]
    assert plain == [3, 3, 2.5, None, "ieee"]
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
