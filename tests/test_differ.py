"""Random kernels to compare with a GPU: what is made here, and how results are compared."""

import dataclasses

import pytest
import torch
from triton.runtime.interpreter import TensorHandle

from puzzles_lib.authoring.differ import Kept, Writer, differences, inputs, made
from puzzles_lib.dtypes import of_triton
from puzzles_lib.interpreter import GuardedBuilder

NUMBERS = range(500, 560)


@pytest.fixture(scope="module")
def found() -> list[Kept | str]:
    return [made(number) for number in NUMBERS]


def test_most_kernels_are_kept_and_the_same_each_time(found):
    assert sum(isinstance(each, Kept) for each in found) > 0.75 * len(found)
    assert all(Writer(each.number).kernel() == each.statements for each in found if isinstance(each, Kept))


def test_their_results_are_not_all_alike(found):
    kept = [each for each in found if isinstance(each, Kept)]
    assert len({str((k.floats.tolist(), k.integers.tolist())) for k in kept}) > 0.8 * len(kept)


def test_what_the_interpreter_computes_has_the_dtype_that_it_says(monkeypatch):
    """NumPy's promotion is another than Triton's: a shift once made int8 of a block of uint8."""
    wrong = []

    def watched(name, operation):
        def call(self, *args, **kwargs):
            made_of = operation(self, *args, **kwargs)
            for handle in made_of if isinstance(made_of, tuple) else (made_of,):
                if isinstance(handle, TensorHandle) and not handle.dtype.scalar.is_ptr():
                    if handle.data.dtype != of_triton(handle.dtype.scalar).storage:
                        wrong.append((name, handle.dtype, handle.data.dtype))
            return made_of

        return call

    operations = [name for name in dir(GuardedBuilder) if name.startswith("create_")]
    for name in operations:
        operation = getattr(GuardedBuilder, name)
        monkeypatch.setattr(GuardedBuilder, name, watched(name, operation))
    for number in NUMBERS:
        made(number)
    assert wrong == []


KEPT = Kept(0, ("r = f32 / 3.0",), torch.full((64,), 2.0).double(), torch.zeros(64).long())
NAN = torch.full((64,), float("nan")).double()


@pytest.mark.parametrize(
    "change, differs",
    [
        ({}, False),
        ({"floats": KEPT.floats * 1.001}, False),
        ({"floats": KEPT.floats * 1.01}, True),
        ({"floats": NAN}, True),
        ({"floats": KEPT.floats / 0}, True),
        ({"integers": torch.arange(64)}, True),
    ],
)
def test_what_differs_is_told(change, differs):
    other = dataclasses.replace(KEPT, **change)
    words = differences(KEPT, other.floats, other.integers)
    assert bool(words) == differs
    assert not words or f"'f32': {inputs()['f32'][words.count('the first is 1')].item()}" in words


def test_nan_is_nan():
    kept = dataclasses.replace(KEPT, floats=NAN)
    assert differences(kept, NAN, kept.integers) == ""
