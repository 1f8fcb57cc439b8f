"""Drawn cases keep the contract, go beyond what is listed, and are the same for one salt."""

import dataclasses
import math

import pytest

from puzzles_lib.chapters import puzzles
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SUM
from puzzles_lib.checker.expected import expect
from puzzles_lib.contract import DRAWS, Contract, Size, beyond
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case, Puzzle
from tests.test_puzzle import make, outer

SALTS = ("", "monday", "tuesday")


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_every_size_of_every_puzzle_is_large_in_some_draw(puzzle):
    sizes = {name for name, kind in puzzle.contract.numbers.items() if isinstance(kind, Size)}
    assert sizes == {name for turn in range(DRAWS) for name in puzzle.contract.large_in(turn)}
    for salt in SALTS:
        drawn = puzzle.drawn(salt)
        for name in sizes:
            listed = max(case.numbers[name] for case in puzzle.cases if not case.pretend)
            assert max(case.numbers[name] for case in drawn) > 2 ** (listed - 1).bit_length(), name


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_draws_stay_in_the_contract_and_are_small_enough_to_try(puzzle):
    for salt in SALTS:
        for case in puzzle.drawn(salt):
            assert list(case.numbers) == list(puzzle.cases[0].numbers)
            for name, kind in puzzle.contract.numbers.items():
                if isinstance(kind, Size):
                    assert 1 <= case.numbers[name] <= kind.most
                elif isinstance(kind, tuple):
                    assert case.numbers[name] in kind
            assert math.prod(puzzle.programs(case)) <= 30
            tensors = make_inputs(puzzle, case)
            assert all(
                t.shape == a.shape(case.numbers) for a, t in zip(puzzle.inputs, tensors.values(), strict=True)
            )


@pytest.mark.parametrize("puzzle", [p for p in puzzles() if p.hard], ids=lambda p: p.name)
def test_hard_cases_fit_their_puzzle(puzzle):
    for case in puzzle.hard.values():
        assert list(case.numbers) == list(puzzle.cases[0].numbers)
        if not case.pretend:
            assert expect(puzzle, case, make_inputs(puzzle, case)).keys() == set(puzzle.outputs)


def test_a_salt_draws_other_cases_and_none_the_same_ones_again():
    assert list(map(str, LONG_SUM.drawn())) == list(map(str, LONG_SUM.drawn()))
    assert len({str(LONG_SUM.drawn(salt)[1]) for salt in "abcdefgh"}) > 4
    assert [case.salt for case in LONG_SUM.drawn("a")] == ["a"] * DRAWS


def test_large_sizes_are_dealt_to_the_draws_in_turn():
    contract = Contract({"M": Size(50), "BLOCK": (4,), "N": Size(60), "K": Size(70)})
    assert [contract.large_in(turn) for turn in range(2)] == [{"M", "K"}, {"N"}]


def test_a_number_may_follow_from_those_before_it():
    contract = Contract(
        {"G": (6,), "K": Size(90, step=lambda s: 4 * s.G), "BLOCK": lambda s: (s.K + 1,)}, most_programs=1
    )
    listed = {"K": 20, "G": 6, "BLOCK": 8}
    for seed in "abcdefgh":
        large = contract.draw(0, seed, listed, lambda n: 1)
        assert large["K"] in (48, 72) and large["BLOCK"] == large["K"] + 1 and list(large) == list(listed)
        assert contract.draw(1, seed, listed, lambda n: 1)["K"] == 24


def test_small_sizes_bite_and_large_ones_are_beyond_the_power_of_two():
    contract = Contract({"N": Size(300)})
    small = {contract.draw(1, str(seed), {"N": 70}, lambda n: 1)["N"] for seed in range(100)}
    assert {1, 2, 3, 17, 33, 65} <= small and max(small) <= 70
    assert all(257 <= contract.draw(0, str(s), {"N": 70}, lambda n: 1)["N"] <= 300 for s in range(20))
    assert contract.draw(0, "", {"N": 256}, lambda n: 1)["N"] >= 257
    assert [beyond(n) for n in (0, 1, 2, 3, 64, 65)] == [2, 2, 3, 5, 65, 129]


@pytest.mark.parametrize("most, least", [(2, 2), (3, 3), (5, 5), (8, 5), (9, 9), (256, 129), (257, 257)])
def test_a_large_size_is_beyond_every_power_of_two_below_its_most(most, least):
    contract = Contract({"N": Size(most)})
    found = {contract.draw(0, str(seed), {"N": 1}, lambda n: 1)["N"] for seed in range(300)}
    assert min(found) == least and max(found) <= most


def test_where_no_multiple_is_so_large_it_is_the_last():
    contract = Contract({"N": Size(300, step=160)})
    assert contract.draw(0, "", {"N": 70}, lambda n: 1)["N"] == 160


def test_of_several_draws_the_first_of_few_programs_is_taken():
    contract = Contract({"N": Size(100), "BLOCK": (1, 64)}, most_programs=2)
    listed = {"N": 30, "BLOCK": 8}
    for seed in "abcdefgh":
        found = contract.draw(0, seed, listed, lambda n: -(-n["N"] // n["BLOCK"]))
        assert found["BLOCK"] == 64


@pytest.mark.parametrize(
    "numbers, words",
    [
        ({"M": Size(9), "BLOCK": (8,)}, "contract draws M, BLOCK, but a case has M, N, BLOCK"),
        ({"M": Size(9), "N": Size(8), "BLOCK": (8,)}, "contract has N up to 8, but at least 9 is needed"),
    ],
)
def test_a_contract_that_does_not_fit_its_puzzle_is_refused(numbers, words):
    with pytest.raises(ValueError, match=words):
        make(outer, contract=Contract(numbers))


def test_a_number_with_few_values_may_be_stretched_to_a_multiple():
    contract = Contract(
        {"N": Size(90), "G": (1, 2), "H": lambda s: (3 * s.G,)}, free=("G", "H"), most_programs=1
    )
    listed = {"N": 20, "G": 2, "H": 6}
    many = contract.stretched({"H": 50}, max, "a", listed)
    assert many["H"] >= 50 and many["H"] % (3 * many["G"]) == 0 and many["N"] <= 24
    assert contract.stretched({"G": 7, "N": 60}, max, "a", listed) == {"N": 60, "G": 7, "H": 21}


def test_a_puzzle_without_a_contract_draws_nothing():
    assert make(outer).drawn() == ()


def test_the_fills_of_a_draw_follow_its_numbers():
    def always(number):
        def fill(shape, dtype, generator):
            raise NotImplementedError

        fill.__name__ = f"always_{number}"
        return fill

    contract = Contract(
        {"M": Size(9), "N": Size(20), "BLOCK": (8,)}, fills=lambda s: ({"x": always(s.N)}, {})
    )
    puzzle = make(outer, contract=contract)
    first, second = puzzle.drawn()
    assert first.fill["x"].__name__ == f"always_{first.N}" and not second.fill


def test_salt_changes_the_inputs_and_not_what_a_case_is_called():
    case = LONG_SUM.cases[1]
    salted = case.salted("exam")
    assert str(salted) == str(case) and isinstance(salted, Case)
    one, two, three = (make_inputs(LONG_SUM, c)["x"] for c in (case, salted, case.salted("exam")))
    assert not one.equal(two) and two.equal(three)


def test_replaced_puzzles_keep_their_contract():
    assert isinstance(dataclasses.replace(LONG_SUM, cases=LONG_SUM.cases[:2]), Puzzle)
