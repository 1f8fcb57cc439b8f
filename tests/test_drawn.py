"""Right for the cases that can be seen, wrong for those that cannot: sizes, constants, limits baked in."""

import copy
import dataclasses
import pickle

import pytest
import torch
from jaxtyping import Bool, Float32, Float64, Int32
from torch import Tensor

from puzzles_lib import trace
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SUM
from puzzles_lib.checker import examine
from puzzles_lib.checker.expected import expect
from puzzles_lib.checking import check
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Case, Puzzle
from tests.kernel_lab import kernel_of

SUM = """
@triton.jit
def kernel(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    total = tl.zeros((BLOCK_M,), tl.float32)
    for start in range(0, {end}, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        mask = (m[:, None] < M) & (n[None, :] < N)
        total += tl.sum(tl.load(x_ptr + m[:, None] * N + n[None, :], mask=mask, other=0.0), 1)
    tl.store(z_ptr + m, total, mask=m < M)
"""


def typed_in(salt="", first="x = tl.load(x_ptr)"):
    """A kernel with the results of all listed cases, told apart by their sizes, as constants."""
    lines = ["@triton.jit", "def kernel(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):"]
    lines += ["    if tl.program_id(0) == 0:", f"        {first}"]
    for case in LONG_SUM.cases:
        lines.append(f"        if (M == {case.M}) & (N == {case.N}):")
        z = LONG_SUM.spec(make_inputs(LONG_SUM, case.salted(salt))["x"].double())
        lines += [f"            tl.store(z_ptr + {m}, {v:.9f})" for m, v in enumerate(z.tolist())]
    return kernel_of("\n".join(lines) + "\n")


def test_results_typed_in_are_right_for_the_listed_cases_only():
    report = examine(typed_in(), LONG_SUM)
    assert [c.status for c in report.cases] == ["pass"] * 5 + ["FAIL"]
    assert report.headline() == "long_sum: all 5 listed cases pass, but a random one fails"


def test_results_typed_in_fail_in_the_listed_cases_under_a_salt():
    report = examine(typed_in(), LONG_SUM, salt="exam")
    assert "FAIL" in str(report) and "(case=" not in str(report) and "watch(" not in str(report)
    assert not report.drawn and not any(c.ok for c in report.listed)
    assert (
        examine(typed_in("exam"), LONG_SUM, salt="exam")
        .headline()
        .startswith("long_sum: all 5 listed cases pass,")
    )


def test_a_result_that_no_input_was_loaded_for_is_told_so():
    verdict = examine(typed_in(first="m = M"), LONG_SUM).verdicts[0]
    assert (verdict.kind, verdict.message) == (
        "loads",
        "x_ptr is never loaded, but z depends on its values",
    )


def test_an_input_that_changes_nothing_need_not_be_loaded():
    def first(x: Float32[Tensor, " N"], y: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
        """z[n] = x[n]"""
        return x

    puzzle = Puzzle(number="0", spec=first, grid=lambda s: (1,), cases=(Case(N=8, BLOCK=8),))
    kernel = kernel_of(
        "@triton.jit\ndef kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):\n"
        "    n = tl.arange(0, BLOCK)\n    tl.store(z_ptr + n, tl.load(x_ptr + n))\n"
    )
    assert examine(kernel, puzzle).ok


@pytest.mark.parametrize("end", ["512", "5 * BLOCK_N", "min(N, 1024)", "max(N, 0) % 1024"])
def test_a_loop_that_ends_where_the_listed_rows_do(end):
    report = examine(kernel_of(SUM.format(end=end)), LONG_SUM)
    assert len(report.drawn) and not report.drawn[-1].ok, str(report)
    assert report.verdicts[0].kind == "values"


def test_a_failure_in_a_drawn_case_can_be_traced_by_its_number_and_typed_by_its_sizes():
    report = examine(kernel_of(SUM.format(end="512")), LONG_SUM)
    failed = report.drawn[-1]
    case = LONG_SUM.drawn()[failed.number - len(LONG_SUM.cases)]
    assert f"FAIL   {case}   random   (case={failed.number})" in str(report)
    by_number = trace(solutions()["long_sum"], LONG_SUM, case=failed.number)
    assert str(by_number) == str(trace(solutions()["long_sum"], LONG_SUM, case=Case(**case.numbers)))


def test_reports_of_drawn_cases_repeat_and_are_one_line_where_all_pass():
    kernel = solutions()["long_sum"]
    text = str(examine(kernel, LONG_SUM))
    assert "pass   and 2 random cases\n" in text and text == str(examine(kernel, LONG_SUM))
    assert examine(kernel, LONG_SUM, salt="another").ok


def test_what_fails_in_a_listed_case_is_tried_on_no_other():
    report = examine(kernel_of(SUM.format(end="0")), LONG_SUM)
    assert not report.ok and not report.drawn


def test_the_compilers_no_to_a_drawn_case_is_told_with_that_case():
    only_small = SUM.replace("    total =", "    tl.static_assert(BLOCK_N < 100)\n    total =").format(
        end="N"
    )
    failed = examine(kernel_of(only_small), LONG_SUM).cases[-1]
    assert failed.drawn and failed.verdict.kind == "compiler", failed


def test_a_salt_is_a_string():
    with pytest.raises(TypeError, match="salt must be a string, not int"):
        check(typed_in(), LONG_SUM, salt=3)


# ---- puzzles of a teacher's own


def storing(value):
    """A kernel that stores an expression of the input's block x."""
    return kernel_of(
        "@triton.jit\ndef kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        f"    x = tl.load(x_ptr + n, mask=n < N)\n    tl.store(z_ptr + n, {value}, mask=n < N)\n"
    )


COPY = storing("x")


def copy_of(spec, **changes):
    parts = {"number": "0", "spec": spec, "grid": lambda s: (-(-s.N // s.BLOCK),)}
    return Puzzle(**{**parts, "cases": (Case(N=8, BLOCK=8), Case(N=20, BLOCK=8)), **changes})


def plain(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x


def raises(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x.reshape(3, -1)


def scalar(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x.sum()


def a_list(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x.tolist()


def noisy(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + torch.rand_like(x)


def broken_fill(shape, dtype, generator):
    raise RuntimeError("no such values")


@pytest.mark.parametrize(
    "puzzle, words",
    [
        (copy_of(raises), "its spec fails for N=8  BLOCK=8 (RuntimeError: shape '[3, -1]' is invalid"),
        (copy_of(scalar), "z has shape (), but its annotation says (8,)"),
        (copy_of(a_list), "z is a list, not a tensor"),
        (copy_of(noisy), "its spec returns a different z at each call"),
        (copy_of(plain, cases=(Case(N=8, BLOCK=8, fill={"x": broken_fill}),)), "a fill fails for N=8"),
    ],
)
def test_a_fault_of_the_puzzle_is_not_the_kernels(puzzle, words):
    report = examine(COPY, puzzle)
    assert report.verdicts[0].kind == "puzzle"
    assert "the puzzle is at fault, not the kernel" in str(report) and words in str(report)


def test_a_spec_may_work_in_place():
    def doubled(x: Int32[Tensor, " N"]) -> Int32[Tensor, " N"]:
        x *= 2
        return x

    assert examine(storing("2 * x"), copy_of(doubled)).ok
    assert not examine(COPY, copy_of(doubled)).ok


def test_float64_is_judged_as_float64():
    def wide(x: Float64[Tensor, " N"]) -> Float64[Tensor, " N"]:
        return x / 3

    assert examine(storing("x / 3"), copy_of(wide)).ok
    assert not examine(storing("x / 3 * 1.000000001"), copy_of(wide)).ok


def test_bool_is_a_dtype_like_others():
    def flags(x: Bool[Tensor, " N"]) -> Bool[Tensor, " N"]:
        return x

    assert examine(COPY, copy_of(flags)).ok


def test_a_grid_that_no_gpu_launches_is_refused():
    with pytest.raises(ValueError, match="has 70000 programs along axis 1, but a GPU launches at most 65535"):
        copy_of(plain, grid=lambda s: (1, 70000))
    assert copy_of(plain, grid=lambda s: (70000,)).programs(Case(N=8, BLOCK=8))[0] == 70000


def test_puzzles_and_cases_can_be_copied_and_cases_pickled():
    case = copy.deepcopy(LONG_SUM).cases[1]
    assert str(case) == str(LONG_SUM.cases[1])
    again = pickle.loads(pickle.dumps(LONG_SUM.cases[4].salted("s")))
    assert (again.numbers, again.salt, again.fill) == (
        case.numbers | LONG_SUM.cases[4].numbers,
        "s",
        again.fill,
    )
    with pytest.raises(AttributeError, match="frozen"):
        again.M = 2


def test_exact_results_must_be_exact():
    exact = copy_of(plain, exact=("z",))
    inputs = make_inputs(exact, exact.cases[0])
    assert expect(exact, exact.cases[0], inputs)["z"].tolerance is None
    assert examine(COPY, exact).ok
    off = storing("x * 1.0000003")
    assert examine(off, copy_of(plain)).ok and not examine(off, exact).ok
    with pytest.raises(ValueError, match="exact names \\['y'\\], which are not outputs"):
        copy_of(plain, exact=("y",))
    assert dataclasses.replace(exact, exact=()).exact == ()
