"""Chapter 16's puzzles: what they draw is what Triton draws, and right on average."""

import subprocess
import sys

import pytest
import torch

from puzzles_lib import check, hint, mistake
from puzzles_lib.authoring.solutions import kernel_sources
from puzzles_lib.chapters.ch09_bit_packing.puzzles import unpack_bits
from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import (
    LINEAR_BACKWARD,
    MARGIN,
    STOCHASTIC_PACK,
    STRIDED_COPY,
    WHOLE,
    steps_up,
    stochastic_pack,
    uniform,
)
from puzzles_lib.coach import hinting
from puzzles_lib.inputs import make_inputs
from puzzles_lib.source import define
from tests.kernel_lab import evaluate

PLACES = torch.tensor([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40 + 5, 2**62 + 3])


@pytest.mark.parametrize("seed", [0, 1, 2**31, 2**32 + 1, 2**63 - 1])
def test_the_spec_draws_what_triton_draws(seed):
    drawn = evaluate(f"tl.rand({seed}, x)", PLACES, shape=(8,), dtype=torch.float32)
    assert torch.equal(drawn, uniform(seed, PLACES))
    assert len(set(drawn.tolist())) == 8


def test_codes_are_right_on_average():
    """The mean over seeds is within 4 standard errors of x; nearest codes are further off."""
    seeds, bits, group = 400, 2, 32
    x = torch.randn(2, 64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x = x.bfloat16().double()
    steps, scale, minimum = steps_up(x, bits, group)
    total = torch.zeros_like(steps)
    for seed in range(seeds):
        total += unpack_bits(stochastic_pack(x, bits, group, seed, OFFSET=seed)[0], 64, bits)
    inside = steps < 2**bits - 1  # what a scale that was rounded down leaves above is clamped
    error = (steps % 1 * (1 - steps % 1) / seeds).sqrt()
    off = (total / seeds - steps).abs()
    assert inside.sum() > 120 and (off <= 4 * error)[inside].all()
    assert ((steps.round() - steps).abs() > 4 * error)[inside].float().mean() > 0.5


@pytest.mark.parametrize(
    "case", [*filter(lambda case: not case.pretend, STOCHASTIC_PACK.cases), *STOCHASTIC_PACK.drawn()], ids=str
)
def test_no_code_is_near_an_edge(case):
    """So float32 and float64 agree on each; what is at its group's minimum is 0 in both."""
    x = make_inputs(STOCHASTIC_PACK, case)["x"].double()
    steps, _, _ = steps_up(x, case.BITS, case.GROUP)
    u = uniform(case.SEED, case.OFFSET + torch.arange(x.numel()).reshape(x.shape))
    near = ((steps + u + 0.5) % 1 - 0.5).abs() < 0.99 * MARGIN
    assert not (near & (steps > 0)).any()


def test_a_spec_that_differentiates_is_not_the_first_to_import_torchs_compiler():
    """Which takes a second in every session and every submission. It gives gradients under `no_grad`, too."""
    code = (
        "import sys, torch\n"
        "from puzzles_lib import LINEAR_BACKWARD as puzzle\n"
        "from puzzles_lib.checker.expected import evaluate\n"
        "from puzzles_lib.inputs import make_inputs\n"
        "with torch.no_grad():\n"
        "    evaluate(puzzle, puzzle.cases[0], make_inputs(puzzle, puzzle.cases[0]))\n"
        "print('torch._dynamo' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout == "False\n"


AT = "offs_m[:, None] * stride_xm + offs_n[None, :] * stride_xn"
TURNED = "offs_m[None, :] * stride_xm + offs_n[:, None] * stride_xn"
SWAPPED = "offs_m[:, None] * stride_xn + offs_n[None, :] * stride_xm"


@pytest.mark.parametrize(
    "puzzle, changes, title",
    [
        (LINEAR_BACKWARD, {"offs_n[None, :] < N": "offs_n[None, :] < W * F"}, "Past the edges"),
        (STRIDED_COPY, {"* BLOCK_M + tl": "* BLOCK_N + tl"}, "A block size for each axis"),
        (STRIDED_COPY, {AT: TURNED}, "Rows down, columns across"),
        (STRIDED_COPY, {AT: SWAPPED}, "A stride for each axis"),
        (STRIDED_COPY, {" * stride_xn": ""}, "It fails if columns aren't"),
        (STOCHASTIC_PACK, {"tl.rand(": "tl.randint("}, "Which number does an element draw?"),
        (
            LINEAR_BACKWARD,
            {"    if NEED_DB:\n        tl.store": "    if True:\n        tl.store"},
            "isn't needed",
        ),
        (LINEAR_BACKWARD, {".to(tl.int64)  # so": "  # so"}, "An offset wraps around in"),
        (LINEAR_BACKWARD, {"(m[None, :] < M)  #": "(m[None, :] < M + 9)  #"}, "The tile of dy"),
        (STOCHASTIC_PACK, {"(x - low[:, None]) / scale": "x / scale"}, "How many steps?"),
        (LINEAR_BACKWARD, {"(pid_n == 0)": "(tl.program_id(0) == 0)"}, "Who stores db?"),
        (LINEAR_BACKWARD, {"tl.store(db_ptr": "tl.atomic_add(db_ptr"}, "Who stores db?"),
        (LINEAR_BACKWARD, {"if NEED_DB:": "if NEED_DB > 1:"}, "The sums of dy"),
        (STOCHASTIC_PACK, {"u), TOP)": "u), BITS)"}, "The highest code"),
        (STOCHASTIC_PACK, {"row * N + n)": "row * GROUP + n)"}, "Which number does an element draw?"),
        (
            STRIDED_COPY,
            {"tl.program_id(0)": "tl.program_id(-1)", "tl.program_id(1)": "tl.program_id(0)", "(-1)": "(1)"},
            "Which axis is which?",
        ),
        (
            STOCHASTIC_PACK,
            {"tl.floor(steps + u)": "tl.floor(steps) + (u > steps - tl.floor(steps)).to(tl.float32)"},
            "Up or down?",
        ),
        (
            STOCHASTIC_PACK,
            {"tl.minimum(tl.floor(steps + u), TOP)": "tl.where(steps + u > TOP, 0.0, tl.floor(steps + u))"},
            "The highest code",
        ),
        (
            STOCHASTIC_PACK,
            {"OFFSET + row * N + n": "OFFSET + row * N + n + 1"},
            "Which number does an element draw?",
        ),
    ],
)
def test_a_hint_is_about_the_mistake_that_the_report_shows(puzzle, changes, title, monkeypatch):
    monkeypatch.setattr(hinting, "_shown", {})
    source = kernel_sources()[puzzle.name]
    for right, wrong in changes.items():
        assert right in source
        source = source.replace(right, wrong)
    check(define(source, "<wrong>"), puzzle)
    assert title in str(hint(puzzle)).splitlines()[0]


def test_the_draw_of_the_hard_case_rounds_255_up_to_256():
    (case,) = (case for words, case in STOCHASTIC_PACK.hard.items() if words.startswith("255 + u"))
    u = uniform(case.SEED, case.OFFSET + torch.arange(case.N))
    assert (255 + u == 256).tolist() == [False, True] + [False] * 6
    x = make_inputs(STOCHASTIC_PACK, case)["x"].double()
    steps, scale, minimum = steps_up(x, case.BITS, case.GROUP)
    assert steps.tolist() == [[0, 255, 100, 7] * 2] and (scale == 1).all() and (minimum == 0).all()


SPILLS = {"tl.minimum(tl.floor(steps + u), TOP)": "tl.floor(steps + u)"}
PLACE = "OFFSET + row * N + n"
LANE = "n - tl.program_id(1) * BLOCK_G * GROUP"
FLOOR = "tl.floor(steps + u)"
DB = "total += tl.sum(dy.to(tl.float32), axis=1)"
TOTAL = "total = tl.zeros((BLOCK_C,), dtype=tl.float32)"
SHORT_TOTAL = TOTAL.replace("float32", "bfloat16")
SHORT_SUM = (
    "the sum on this line is rounded to bfloat16. Convert the numbers to float32 before you add them\n"
)
ALWAYS = "    if True:\n        tl.store"


@pytest.mark.parametrize(
    "puzzle, changes, words",
    [
        (
            LINEAR_BACKWARD,
            {"    if NEED_DW:\n        tl.store": ALWAYS},
            "because NEED_DW = 0: store it only if",
        ),
        (
            LINEAR_BACKWARD,
            {"    if NEED_DB:\n        tl.store": ALWAYS},
            "because NEED_DB = 0: store it only if",
        ),
        (
            LINEAR_BACKWARD,
            {"acc, mask=mask)": "acc)"},
            "dw has COUT = 45 rows: compare the rows with COUT in",
        ),
        (STRIDED_COPY, {"* stride_xm": "* stride_xn", "* stride_xn": "* stride_xm"}, "are swapped"),
        (
            STOCHASTIC_PACK,
            {PLACE: "row * N + n", **SPILLS},
            "draws begin at 0, not at OFFSET, and a code above",
        ),
        (STOCHASTIC_PACK, {PLACE: f"OFFSET + {LANE}"}, "all programs draw the same numbers"),
        (
            STOCHASTIC_PACK,
            {PLACE: f"OFFSET + row * N + {LANE}"},
            "all programs of a row draw the same numbers",
        ),
        (STOCHASTIC_PACK, {"(x - low[:, None]) / scale": "x / scale"}, "steps begin at 0, not at the"),
        (STOCHASTIC_PACK, {"/ scale.to(tl": "* scale.to(tl"}, "steps are multiplied by the scale"),
        (
            STOCHASTIC_PACK,
            {"/ scale.to(tl.float32)[:, None]": "/ tl.where(high > low, (high - low) / TOP, 1.0)[:, None]"},
            "steps use the scale before it was rounded to bfloat16",
        ),
        (STOCHASTIC_PACK, {"tl.rand(": "tl.randn("}, "u is from tl.randn"),
        (STOCHASTIC_PACK, {"tl.rand(": "tl.randint("}, "u is from tl.randint"),
        (STOCHASTIC_PACK, {"tl.floor(steps + u)": "tl.ceil(steps + u)"}, "one step too high: use tl.floor"),
        (STOCHASTIC_PACK, {FLOOR: "tl.floor(steps) + (u > 0.5).to(tl.float32)"}, "a coin toss"),
        (
            STOCHASTIC_PACK,
            {FLOOR: "tl.where(u > 0.5, tl.ceil(steps), tl.floor(steps))"},
            "a coin toss: u above 0.5 gives the upper code",
        ),
        (STOCHASTIC_PACK, {PLACE: "OFFSET + row * GROUP + n"}, "the place counts GROUP elements per row"),
        (STOCHASTIC_PACK, {PLACE: "OFFSET + n * N + row"}, "row and column are swapped"),
        (STOCHASTIC_PACK, {"u), TOP)": "u), BITS)"}, "codes are clamped to BITS"),
        (STOCHASTIC_PACK, {"u), TOP)": "u), TOP + 1)"}, "after the floor, clamp to TOP, one less"),
        (
            STOCHASTIC_PACK,
            {f"tl.minimum({FLOOR}, TOP)": f"tl.where(steps + u > TOP, 0.0, {FLOOR})"},
            "a code is 0 if s + u is above TOP",
        ),
        (
            STOCHASTIC_PACK,
            {f"tl.minimum({FLOOR}, TOP)": f"tl.where({FLOOR} > TOP, 0.0, {FLOOR})"},
            "a code above TOP, the highest one, becomes 0",
        ),
        (STOCHASTIC_PACK, {PLACE: f"{PLACE} + 1"}, "the place is one too large"),
        (
            STOCHASTIC_PACK,
            {PLACE: "OFFSET + row * N + 0 * n + offs_g[:, None]"},
            "all elements of a group share one draw",
        ),
        (
            STOCHASTIC_PACK,
            {FLOOR: "tl.floor(steps) + (u > steps - tl.floor(steps)).to(tl.float32)"},
            "which is reversed: let u be above 1 - fraction",
        ),
        (LINEAR_BACKWARD, {"offs_c, total, mask": "offs_c, tl.sum(acc, axis=1), mask"}, "row sums of dw"),
        (LINEAR_BACKWARD, {"dy.to(tl.float32), axis=1": "dy.to(tl.float32)"}, "along m only, with axis=1"),
        (LINEAR_BACKWARD, {DB: "total += tl.sum(dy, axis=1)"}, SHORT_SUM),
        (LINEAR_BACKWARD, {TOTAL: SHORT_TOTAL, DB: f"{DB}.to(tl.bfloat16)"}, SHORT_SUM),
        (LINEAR_BACKWARD, {DB: "total += 1.0"}, "db counts the iterations of the loop"),
        (LINEAR_BACKWARD, {DB: "total += tl.minimum(M - start, BLOCK_M)"}, "db counts the rows of dy"),
        (LINEAR_BACKWARD, {" & (pid_n == 0)": ""}, "2 and 6: a race: several programs store the same value"),
    ],
)
def test_a_slip_gets_words_of_its_own(puzzle, changes, words):
    parts = kernel_sources()[puzzle.name]
    marks = {right: f"@{number}@" for number, right in enumerate(changes)}
    for right, mark in marks.items():
        assert parts.count(right) == 1
        parts = parts.replace(right, mark)
    for right, mark in marks.items():
        parts = parts.replace(mark, changes[right])
    assert words in str(check(define(parts, "<wrong>"), puzzle))


def test_a_ceiling_minus_1_is_found_where_the_sum_is_whole():
    assert float(uniform(7, torch.tensor(WHOLE))) == 99 / 128
    source = kernel_sources()["stochastic_pack"]
    assert source.count(FLOOR) == 1
    report = check(define(source.replace(FLOOR, "(tl.ceil(steps + u) - 1)"), "<wrong>"), STOCHASTIC_PACK)
    assert "s + u can be a whole number" in str(report)


def test_a_dot_of_short_blocks_is_not_said_to_use_tf32():
    right = "scale[:, :, None] * codes"
    source = kernel_sources()["linear_backward"]
    assert source.count(right) == 1
    report = str(
        check(define(source.replace(right, f"({right}).to(tl.bfloat16)"), "<wrong>"), LINEAR_BACKWARD)
    )
    assert "coarser type's rounding: is something float16 or bfloat16?" in report and "TF32" not in report


STORE = "    if NEED_DB:\n        tl.store(db_ptr + offs_c, total, mask=(offs_c < COUT) & (pid_n == 0))"
BARE = "tl.store(db_ptr + offs_c, total, mask=offs_c < COUT)"


@pytest.mark.parametrize(
    "own",
    [
        f"    if NEED_DB:\n        if pid_n == 0:\n            {BARE}",
        f"    if pid_n == 0:\n        if NEED_DB:\n            {BARE}",
        f"    if NEED_DB and pid_n == 0:\n        {BARE}",
    ],
)
@pytest.mark.parametrize("name", ["db_added_by_every_column", "db_stored_by_every_column"])
def test_a_mistake_is_made_in_ones_own_kernel_whatever_its_conditions(own, name):
    source = kernel_sources()["linear_backward"]
    assert source.count(STORE) == 1
    source = source.replace(STORE, own).replace("total", "sums")
    assert check(define(source, "<own>"), LINEAR_BACKWARD).ok
    told = mistake(LINEAR_BACKWARD, name)
    assert told.own and "sums, mask=offs_c < COUT" in str(told) and "total" not in str(told)


def test_the_card_does_not_give_the_size_of_a_view_away():
    """The chapter asks for it."""
    assert "SPAN" in STRIDED_COPY._repr_markdown_() and "(N-1)" not in STRIDED_COPY._repr_markdown_()


def test_the_widest_card_can_break_its_names():
    """Ten numbers don't fit next to each other in a window of 1000 pixels."""
    shown = LINEAR_BACKWARD._repr_markdown_()
    assert "| NEED_<wbr>DW |" in shown and "| scale, minimum: exact |" in shown
    assert "<wbr>" not in STOCHASTIC_PACK._repr_markdown_()
