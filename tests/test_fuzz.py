"""Random kernels: a check survives each, and leaves everything as it was."""

import pytest

from puzzles_lib.authoring import fuzz


def test_a_hundred_random_kernels_leave_the_session_as_it_was(two_threads):
    kinds, wrong, _ = fuzz.survive(0, 100)
    assert wrong == []
    assert sum(kinds.get(kind, 0) for kind in ("compiler", "pass")) > 50


def test_a_kernel_is_the_same_for_its_number():
    assert fuzz.source_of(7) == fuzz.source_of(7) != fuzz.source_of(8)


def test_what_a_check_leaves_is_found(monkeypatch):
    import warnings

    monkeypatch.setattr(warnings, "filters", list(warnings.filters))
    found = fuzz.survive(0, 2, lambda number: warnings.filters.append(("left", number)))
    assert [text.partition(":")[2].strip() for text in found[1]] == ["warnings", "warnings"]


@pytest.mark.parametrize(
    "number, told",
    [
        (50504, "the condition of this tl.device_assert is False"),
        (51570, "32 elements at a time, but there are 1"),
        (51838, ""),  # a hint on a block pointer
    ],
)
def test_what_was_an_error_of_the_checker(number, told):
    _, wrong, rare = fuzz.survive(number, 1)
    assert wrong == [] and len(rare) == bool(told) and told in "".join(rare)


def test_rare_verdicts_are_told_with_their_kernels(monkeypatch):
    monkeypatch.setattr(fuzz, "RARE", ("compiler", "error", "time limit"))
    kinds, _, rare = fuzz.survive(0, 10)
    assert len(rare) == sum(kinds.get(kind, 0) for kind in fuzz.RARE) > 0
    assert all(text.split(":")[0].isdigit() and len(text.split(": ", 1)[1]) > 10 for text in rare)


@pytest.mark.parametrize("number", range(3))
def test_it_is_python(number):
    compile(fuzz.source_of(number), "<fuzz>", "exec")
