"""Puzzles read their contract from annotations, and refuse what does not fit together."""

import inspect
import pydoc
import re

import pytest
import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from puzzles_lib.chapters import CHAPTERS, puzzles
from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD
from puzzles_lib.puzzle import Case, Puzzle, evaluate


def outer(x: Float32[Tensor, " N"], y: Float32[Tensor, " M"]) -> Float32[Tensor, "M N"]:
    return x[None, :] + y[:, None]


def packed(w: Int32[Tensor, "M (K+7)//8"]) -> tuple[Float32[Tensor, " M"], Int32[Tensor, " K"]]:  # noqa: F821
    return w.sum(1).float(), w[0]


def make(spec=outer, **changes) -> Puzzle:
    parts = {"number": "0", "spec": spec, "grid": lambda s: (s.M, 2), "cases": (Case(M=3, N=5, BLOCK=8),)}
    return Puzzle(**{**parts, **changes})


def test_shapes_and_dtypes_come_from_the_annotations():
    puzzle = make()
    case = puzzle.cases[0]
    assert [(a.name, a.dtype, a.shape(case.numbers)) for a in puzzle.inputs] == [
        ("x", torch.float32, (5,)),
        ("y", torch.float32, (3,)),
    ]
    assert puzzle.results[0].shape(case.numbers) == (3, 5)
    assert puzzle.programs(case) == (3, 2, 1)


def test_sizes_may_be_expressions_and_results_several():
    puzzle = make(packed, cases=(Case(M=2, K=17),), outputs=("s", "r"))
    assert puzzle.inputs[0].shape({"M": 2, "K": 17}) == (2, 3)
    assert [(r.name, r.dtype) for r in puzzle.results] == [("s", torch.float32), ("r", torch.int32)]


def test_a_spec_may_take_numbers_of_the_case():
    def repeat(x: Float32[Tensor, " N"], TIMES: int) -> Float32[Tensor, "TIMES N"]:
        return x.expand(TIMES, -1)

    puzzle = make(repeat, grid=lambda s: (1,), cases=(Case(N=5, TIMES=3),))
    assert [a.name for a in puzzle.inputs] == ["x"] and puzzle.spec_numbers == ("TIMES",)
    with pytest.raises(ValueError, match="takes \\['TIMES'\\]"):
        make(repeat, grid=lambda s: (1,), cases=(Case(N=5),)).inputs  # noqa: B018


def test_a_kernel_is_offered_pointers_numbers_and_strides():
    offers = make().offers(make().cases[0])
    assert offers["stride_zm"] == offers["stride_z0"] == 5
    assert offers["stride_zn"] == offers["stride_xn"] == 1
    assert {"x_ptr", "y_ptr", "z_ptr", "M", "N", "BLOCK"} <= set(offers)


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"cases": ()}, "cases is empty"),
        ({"cases": (Case(M=3),)}, "'N' needs N"),
        ({"outputs": ("z", "t")}, "outputs names 2 results, but the spec returns 1"),
        (
            {"outputs": ("x",)},
            r"x is changed in place, so its result must be Float32\[N\], not Float32\[M, N\]",
        ),
        ({"spec": packed, "outputs": ("s", "s")}, "outputs names s twice"),
        ({"grid": lambda s: (1, 1, 1, 1)}, "1 to 3 axes"),
        ({"cases": (Case(M=3, N=5, fill={"q": torch.zeros}),)}, "not inputs"),
        ({"needed": {"q": lambda s: 0}}, "needed names \\['q'\\], which are not inputs"),
        ({"descriptors": {"q": lambda s: (4, 4)}}, "descriptors names \\['q'\\], which are not inputs"),
        ({"descriptors": {"x": lambda s: (4, 3)}}, "no x_desc for case .*power of 2"),
    ],
)
def test_parts_that_do_not_fit_are_refused_by_name(changes, words):
    with pytest.raises(ValueError, match=words):
        make(**changes)


def test_an_annotation_without_shape_or_dtype_is_refused():
    def bare(x: Tensor) -> Float32[Tensor, " N"]:
        return x

    with pytest.raises(ValueError, match="x must be annotated"):
        make(bare).inputs  # noqa: B018


@pytest.mark.parametrize(
    "dim, value", [("K//8", 3), ("(K+7)//8", 4), ("2*K-1", 49), ("-(-K//8)", 4), ("7", 7)]
)
def test_evaluate(dim, value):
    assert evaluate(dim, {"K": 25}) == value


@pytest.mark.parametrize("dim", ["K.real", "print(K)", "K/2", "Q", "3-K", "..."])
def test_evaluate_refuses_all_but_integer_arithmetic(dim):
    with pytest.raises(ValueError, match="size"):
        evaluate(dim, {"K": 25})


def test_a_case_is_frozen_and_names_what_it_has():
    case = Case(M=3)
    with pytest.raises(AttributeError, match="frozen"):
        case.M = 4
    with pytest.raises(AttributeError, match="it has M"):
        case.N  # noqa: B018
    with pytest.raises(
        ValueError, match="N must be an integer of at least 0, a float, a boolean or None, but is '2'"
    ):
        Case(N="2")
    with pytest.raises(ValueError, match="M is 2.5, but sizes such as 'M' are integers"):
        make(cases=(Case(M=2.5, N=5, BLOCK=8),))


def test_the_syllabus_is_numbered_in_order_with_unique_names():
    numbers = [re.fullmatch(r"(\d+)([a-z]?)", p.number).groups() for p in puzzles()]
    assert numbers[0] == ("0", "")
    firsts = [int(number) for number, letter in numbers if letter in ("", "a")]
    (clinic,) = (c for c in CHAPTERS if c.number == "20")  # from easy to hard, not in order
    cases = {int(puzzle.number) for puzzle in clinic.puzzles}
    others = [number for number in firsts if number not in cases]
    assert sorted(others) == [*range(41), *range(66, max(others) + 1)] and cases < set(range(41, 66))
    (model,) = (c for c in CHAPTERS if c.number == "22")  # first those whose kernels go into its model
    assert [n for n in others if n <= 71] == [*range(41), *range(66, 72)] and model.puzzles[0].number == "66"
    for i, (number, letter) in enumerate(numbers):
        if letter not in ("", "a"):  # 9b after 9, 12b after 12a; 13b may come after 14, too
            before = {chr(ord(letter) - 1), ""} if letter == "b" else {chr(ord(letter) - 1)}
            assert before & {its for its_number, its in numbers[:i] if its_number == number}
    assert len({p.name for p in puzzles()}) == len(puzzles())
    assert [c.number for c in CHAPTERS] == [f"{n:02}" for n in range(len(CHAPTERS))]


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_no_line_of_a_statement_is_broken_in_a_window_of_1000_pixels(puzzle):
    assert max(map(len, puzzle.source().split("\n"))) <= 86  # JupyterLab breaks within words


def letters(formula: str) -> int:
    """About as many as MathJax sets side by side in the formula's longest row."""
    formula = re.sub(r"\\frac\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "", formula)  # the upper half
    formula = re.sub(r"\\(begin|end)\{\w+\}|\\(mathrm|left|right|hat)|\\[,;!]|[{}_^$ ]", "", formula)
    rows = formula.split(r"\\")
    return max(len(re.sub(r"\\[a-z]*quad", "  ", row)) for row in rows)


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_no_formula_is_cut_off_in_a_window_of_1000_pixels(puzzle):
    assert letters(puzzle.formula) <= 80


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_every_puzzle_has_cases_of_each_kind(puzzle):
    cases = puzzle.cases
    assert len(cases) >= 4
    # A program of puzzle 74 takes an expert, and two are the least.
    alone = puzzle.name == "route" or any(puzzle.programs(c) == (1, 1, 1) for c in cases)
    assert alone, "no case with one program"
    assert any(c.fill for c in cases), "no case with values that bite"
    assert puzzle.formula and puzzle.spec.__doc__


# Puzzles 1 and 3 come before masks and before the grid; every other one has them.
@pytest.mark.parametrize("puzzle", [p for p in puzzles() if p.number != "1"], ids=lambda p: p.name)
def test_every_block_size_fails_to_divide_in_some_case(puzzle):
    blocks = {n for c in puzzle.cases for n in c.numbers if n.startswith("BLOCK_")}
    blocks -= {"BLOCK_K"} if puzzle.name == "once_per_group" else set()  # divides, by its contract
    for block in blocks:
        assert any(blocked_size(c.numbers, block) % c.numbers[block] for c in puzzle.cases), block


def blocked_size(numbers: dict[str, int], block: str) -> int:
    """The size that a block size cuts up."""
    if "MAX_Q" in numbers:  # sequences of many lengths in a row
        return numbers[{"BLOCK_Q": "MAX_Q", "BLOCK_K": "NK"}[block]]
    if block == "BLOCK_Q" or (block == "BLOCK_K" and "K" not in numbers):  # queries and keys
        return numbers["T"]
    if block == "BLOCK_W" and "W" not in numbers:  # 32-bit words of a row
        return -(-numbers["N"] * numbers.get("BITS", 1) // 32)
    if block == "BLOCK_G":  # groups of a row
        return -(-numbers["N"] // numbers["GROUP"])
    if "COUT" in numbers:  # of dW
        names = {"BLOCK_C": "COUT"} if "NEED_DW" in numbers else {"BLOCK_M": "COUT", "BLOCK_N": "CIN"}
        return numbers[names.get(block, block.removeprefix("BLOCK_"))]
    return numbers[block.removeprefix("BLOCK_")]


@pytest.mark.parametrize("puzzle", [p for p in puzzles() if p.number != "3"], ids=lambda p: p.name)
def test_every_grid_axis_has_several_programs_in_some_case(puzzle):
    for axis in range(len(puzzle.grid(puzzle.cases[0]))):
        assert any(puzzle.programs(c)[axis] > 1 for c in puzzle.cases)


def test_help_shows_the_puzzles_own_task():
    shown = pydoc.plain(pydoc.render_doc(OUTER_ADD))
    assert inspect.getdoc(OUTER_ADD).startswith(f"Puzzle 3: outer add\n\n{OUTER_ADD.source()}\n\n")
    assert "    x_ptr: float32 [N]\n" in shown and "    z_ptr: float32 [M, N], a result\n" in shown
    assert "    M, N, BLOCK_M, BLOCK_N: numbers of the case\n" in shown
    assert all(str(case) in shown for case in OUTER_ADD.cases) and "class Puzzle" not in shown
    assert Puzzle.__doc__.startswith("What to compute") and "class Puzzle" in pydoc.plain(
        pydoc.render_doc(Puzzle)
    )


def test_help_shows_descriptors_launches_and_changed_inputs():
    told = make(descriptors={"x": lambda s: (s.BLOCK,)}).__doc__
    assert "\n    x_desc: a descriptor of x, with tiles of (8,) in case 0\n" in told

    def doubled(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
        return 2 * x

    launched = {"grid": lambda s: (1,)}, {"launch": lambda kernel, s, x: kernel[(1,)](x, s.N, BLOCK=8)}
    by_grid, by_launch = (
        Puzzle(spec=doubled, outputs=("x",), cases=(Case(N=5),), **how).__doc__ for how in launched
    )
    assert "\n    x_ptr: float32 [N], an input that the kernel changes\n    N: numbers of" in by_grid
    assert "\n    x: float32 [N], an input that the kernel changes\nIn case 0, the kernel is" in by_launch
    assert "is launched as kernel[(1,)](x, 5, BLOCK=8)\n" in by_launch


def test_help_works_for_a_spec_without_source():
    names = dict(globals())
    exec('def made(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]: return x', names)
    told = make(names["made"], grid=lambda s: (1,)).__doc__
    assert told.startswith("Puzzle 0: made\n\nyour kernel may take\n")


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.number)
def test_help_shows_a_chapters_puzzles(chapter):
    shown = pydoc.plain(pydoc.render_doc(chapter))
    assert f"Chapter {chapter.number}: {chapter.title}\n" in shown and chapter.notebook in shown
    assert all(f"{puzzle.name.upper()} (puzzle {puzzle.number})\n" in shown for puzzle in chapter.puzzles)
    assert all(puzzle.name in puzzle.__doc__ for puzzle in chapter.puzzles)


@pytest.mark.parametrize("puzzle", puzzles(), ids=lambda p: p.name)
def test_every_puzzle_shows_itself(puzzle):
    shown = puzzle._repr_markdown_()
    assert puzzle.formula in shown and puzzle.source() in shown
    assert all(f"`{a.name}_ptr`" in shown for a in puzzle.inputs + puzzle.results)
