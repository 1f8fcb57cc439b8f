"""`trace` computes who touched what, survives every kernel, and leaves Triton as it was."""

import os
import sys

import nbformat
import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib import MASKED_ADD, OUTER_ADD, PACK_BITS, tracer
from puzzles_lib.authoring.solutions import define, kernel_sources, solutions
from puzzles_lib.binding import bind
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SUM
from puzzles_lib.checking import check
from puzzles_lib.drawing.accesses import _MapPanel
from puzzles_lib.drawing.colours import JET
from puzzles_lib.inputs import make_inputs
from puzzles_lib.player import watch
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Access, Run, Stop
from puzzles_lib.source import Site
from puzzles_lib.tracer import Trace, tensor_map, trace
from tests.conftest import REPO
from tests.played import Played


def ragged_add(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + 10


RAGGED_ADD = Puzzle(
    number="t1",
    spec=ragged_add,
    grid=lambda s: (triton.cdiv(s.N, s.BLOCK),),
    cases=(Case(N=32, BLOCK=32), Case(N=200, BLOCK=32)),
)


def outer(x: Float32[Tensor, " N"], y: Float32[Tensor, " M"]) -> Float32[Tensor, "M N"]:
    return x[None, :] + y[:, None]


OUTER = Puzzle(
    number="t2",
    spec=outer,
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.N, s.BLOCK_N)),
    cases=(Case(M=20, N=40, BLOCK_M=16, BLOCK_N=32),),
)


@triton.jit
def masked_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def unmasked_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def first_block_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


@triton.jit
def outer_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], x[None, :] + y[:, None], mask=mask)


@triton.jit
def transposing_kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    z = tl.trans(x[:, None] + y[None, :])
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)


@triton.jit
def plus_ten(x):
    return x + 10


@triton.jit
def helped_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    for _ in range(1):
        x = plus_ten(tl.load(x_ptr + offs, mask=offs < N))
        tl.store(z_ptr + offs, x, mask=offs < N)


@triton.jit
def sorting_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    tl.store(z_ptr + offs, tl.sort(x), mask=offs < N)


@triton.jit
def atomic_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.atomic_xchg(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def breaking_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs < N), mask=offs < N)
    tl.device_assert(tl.program_id(0) < 2, "only two")


def maps(made: Trace) -> dict:
    return {each.name: each for each in made.maps}


# ---- who touched what


def test_every_element_is_owned_by_the_program_of_its_block():
    made = trace(masked_kernel, RAGGED_ADD, 1)
    for each in made.maps:
        assert np.array_equal(each.owner, np.arange(200) // 32)
        assert (each.sharers == 1).all()
    assert made.clean and made.note == ""
    assert [maps(made)[n].verb for n in "xz"] == ["loaded", "stored"]


def test_the_last_program_with_masked_lanes_is_outlined():
    made = trace(masked_kernel, RAGGED_ADD, 1)
    z = maps(made)["z"]
    assert made.program == (6, 0, 0)
    assert np.array_equal(np.flatnonzero(z.outlined), np.arange(192, 200))
    assert np.array_equal(z.masked[:, 0], np.arange(200, 224))
    assert not len(z.bad) and z.alarm == ""


def test_a_program_can_be_chosen_by_number_or_ids():
    for program in (1, (0, 1), (0, 1, 0)):
        made = trace(outer_kernel, OUTER, 0, program=program)
        assert made.program == (0, 1, 0)
        assert np.array_equal(np.flatnonzero(maps(made)["x"].outlined), np.arange(32, 40))


def test_broadcast_loads_are_shared_and_tiles_are_not():
    made = maps(trace(outer_kernel, OUTER))
    assert (made["x"].sharers == 2).all() and (made["y"].sharers == 2).all()
    rows, columns = np.indices((20, 40))
    assert np.array_equal(made["z"].owner, rows // 16 * 2 + columns // 32)
    assert (made["z"].sharers == 1).all()


def test_lanes_past_an_edge_of_a_tile_are_placed_past_that_edge():
    z = maps(trace(outer_kernel, OUTER))["z"]  # program (1, 1): rows 16..31 of 20, columns 32..63 of 40
    tile = {(m, n) for m in range(16, 32) for n in range(32, 64)}
    inside = {(m, n) for m, n in tile if m < 20 and n < 40}
    assert {tuple(place) for place in z.masked.tolist()} == tile - inside


def test_elements_that_no_program_stores_are_untouched():
    z = maps(trace(first_block_kernel, RAGGED_ADD, 1))["z"]
    assert (z.owner[32:] == -1).all() and (z.owner[:32] == 0).all()
    assert (z.sharers[:32] == 7).all()


def test_lanes_out_of_bounds_are_counted_placed_and_named():
    made = trace(unmasked_kernel, RAGGED_ADD, 1)
    x = maps(made)["x"]
    assert not made.clean and made.stop.kind == "out of bounds"
    assert np.array_equal(x.bad[:, 0], np.arange(200, 224))
    assert x.alarm == "24 lanes out of bounds: elements 200..223; the tensor has 200"
    assert made.program == (6, 0, 0)
    assert x.alarm in repr(made) and "x = tl.load(x_ptr + offs)" in repr(made)
    assert x.alarm in made.picture.alt


def test_atomics_come_from_the_guarded_run():
    made = trace(atomic_kernel, RAGGED_ADD, 1)
    z = maps(made)["z"]
    assert z.verb == "updated by atomics" and np.array_equal(z.owner, np.arange(200) // 32)
    assert {access.kind for access in made.accesses} == {"load", "atomic"}
    assert [a.program[0] for a in made.accesses] == sorted(a.program[0] for a in made.accesses)


def test_a_kernel_that_takes_not_all_tensors_shows_those_it_takes():
    @triton.jit
    def no_input(z_ptr, N, BLOCK: tl.constexpr):
        offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(z_ptr + offs, 1.0, mask=offs < N)

    assert list(maps(trace(no_input, RAGGED_ADD, 1))) == ["z"]


def access(elements, shape=None, mask=None, program=(0, 0, 0), kind="load") -> Access:
    elements = np.asarray(elements).reshape(shape or np.shape(elements))
    mask = np.ones(elements.shape, bool) if mask is None else np.asarray(mask)
    return Access(kind, "x", program, elements, mask, np.zeros(elements.shape, bool), Site(1, ""))


def test_a_row_past_its_end_is_meant_as_columns():
    row = access(np.arange(96, 112), mask=np.arange(16) < 4)  # row 0 of a [3, 100] tensor
    made = tensor_map("x", ("M", "N"), (3, 100), [row], (1,), (0, 0, 0))
    assert made.masked.tolist() == [[0, n] for n in range(100, 112)]


def test_a_flat_tile_over_a_matrix_is_taken_as_flat():
    flat = access(np.arange(0, 8), mask=np.arange(8) < 6)  # all of a [2, 3] tensor and two past it
    made = tensor_map("x", ("M", "N"), (2, 3), [flat], (1,), (0, 0, 0))
    assert (made.owner == 0).all() and made.masked.tolist() == [[2, 0], [2, 1]]


def test_three_axes_and_a_negative_lane():
    elements = 12 + np.arange(-1, 3)  # row 0 of slice 1 of a [2, 3, 4] tensor, from one to the left
    made = tensor_map("x", ("B", "M", "N"), (2, 3, 4), [access(elements, mask=elements >= 12)], (1,), None)
    assert np.argwhere(made.owner == 0).tolist() == [[1, 0, 0], [1, 0, 1], [1, 0, 2]]


def test_loads_of_an_output_are_told_and_stores_are_drawn():
    both = [access(np.arange(4)), access([1, 2], kind="store")]
    made = tensor_map("x", ("N",), (4,), both, (1,), None)
    assert made.verb == "loaded and stored" and made.owner.tolist() == [-1, 0, 0, -1]
    assert "4 elements also loaded" in made.facts


# ---- what a kernel may do


def test_a_kernel_of_a_notebook_cell():
    source = (
        "@triton.jit\n"
        "def cell_kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):\n"
        "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n"
        "    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)\n"
    )
    made = trace(define(source, "<cell 7>"), RAGGED_ADD)
    assert made.clean and made.note == ""
    assert made.accesses[0].site == Site(4, "tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)")


def test_a_kernel_that_breaks_off_shows_what_it_did_until_then():
    made = trace(breaking_kernel, RAGGED_ADD, 1)
    assert not made.clean and made.stop.kind == "error"
    z = maps(made)["z"]
    assert (z.owner[:64] >= 0).all() and (z.owner[96:] == -1).all()
    assert "The kernel did not finish" in repr(made)


def test_a_time_limit_is_told_without_numbers_that_depend_on_time(monkeypatch):
    stop = Stop(
        "time limit",
        "time limit: still running after 10 s of CPU time, in program (0, 0, 0)",
        Site(3, "while 1:"),
    )
    several = tuple(access(np.arange(32), mask=np.arange(32) < 9, kind="store") for _ in range(77))
    ran = Run(7, {}, stop, accesses=several)
    monkeypatch.setattr(tracer, "guarded", lambda *made: (bind(*made), ran))
    made = trace(masked_kernel, RAGGED_ADD, 1)
    assert not made.clean and made.picture.png()
    assert repr(made) == (
        "masked_kernel, N=200  BLOCK=32: 7 programs\n"
        "x  stored: 9 of 200 elements, by 1 program\n"
        "z  not touched: 0 of 200 elements\n"
        "The kernel did not finish: time limit: still running after 10 s of CPU time, in program 0"
    )


def test_what_cannot_run_is_answered_with_the_reason():
    def plain(x_ptr):
        return x_ptr

    made = trace(plain, RAGGED_ADD)
    assert not made.clean and made.figure is None
    assert "plain is a Python function" in repr(made)
    assert "plain is a Python function" in made._repr_html_()


@pytest.mark.parametrize("case", [2, -1, "0", True, Case(K=3)])
def test_a_case_that_does_not_exist(case):
    with pytest.raises(ValueError, match="case (is|must be)"):
        trace(masked_kernel, RAGGED_ADD, case)


@pytest.mark.parametrize("program", [7, -1, (7,), (0, 1), (0, 0, 0, 0), "0", (0.5,)])
def test_a_program_that_does_not_exist(program):
    with pytest.raises(ValueError, match="program must be from 0 to 6"):
        trace(masked_kernel, RAGGED_ADD, 1, program=program)


def test_a_puzzle_is_needed():
    with pytest.raises(TypeError, match="puzzle must be a Puzzle, not int"):
        trace(masked_kernel, 3)


def test_a_case_of_ones_own():
    assert maps(trace(masked_kernel, RAGGED_ADD, Case(N=5, BLOCK=8)))["z"].shape == (5,)


# ---- leaving everything as it was


def test_nothing_is_printed_and_the_inputs_stay_as_they_were(capfd):
    inputs = make_inputs(RAGGED_ADD, RAGGED_ADD.cases[1])["x"].clone()
    for kernel in (masked_kernel, helped_kernel, sorting_kernel, unmasked_kernel, breaking_kernel):
        trace(kernel, RAGGED_ADD, 1)
    assert torch.equal(make_inputs(RAGGED_ADD, RAGGED_ADD.cases[1])["x"], inputs)
    assert "TRITON_INTERPRET" not in os.environ and "triton_viz" not in sys.modules
    assert capfd.readouterr() == ("", "")
    assert check(masked_kernel, RAGGED_ADD).ok and check(helped_kernel, RAGGED_ADD).ok


@pytest.mark.parametrize("kernel", [transposing_kernel, sorting_kernel, helped_kernel])
def test_transposes_sorts_and_helpers_are_traced(kernel):
    made = trace(kernel, OUTER if kernel is transposing_kernel else RAGGED_ADD)
    assert made.clean and made.note == "" and made.recording is not None


# ---- how it shows itself


def test_the_text_is_the_same_every_time():
    first, second = trace(masked_kernel, RAGGED_ADD, 1), trace(masked_kernel, RAGGED_ADD, 1)
    assert (
        repr(first)
        == repr(second)
        == (
            "masked_kernel, N=200  BLOCK=32: 7 programs\n"
            "x  loaded: 200 of 200 elements, each by 1 program; 24 lanes masked off\n"
            "z  stored: 200 of 200 elements, each by 1 program; 24 lanes masked off"
        )
    )
    assert first.picture.png() == second.picture.png()


def test_a_hatch_on_a_colored_cell_is_dark_in_every_theme():
    """Masked-off lanes of a row of codes point into the next row, which other programs have colored."""
    dark = f'stroke="{JET}"'
    assert dark in trace(solutions()["pack_bits"], PACK_BITS, case=2, program=(1, 1))._repr_html_()
    assert dark not in trace(outer_kernel, OUTER)._repr_html_()


def test_the_picture_has_its_alt_text():
    html = trace(outer_kernel, OUTER)._repr_html_()
    assert html.startswith("<svg role=") and html.endswith("</svg>")
    assert ">Access map of outer, M=20 N=40 BLOCK_M=16 BLOCK_N=32, 4 programs." in html
    assert "x, 40, loaded: 40 of 40 elements, each by 2 programs; 48 lanes masked off." in html
    assert "Program (1, 1), outlined, accesses 32 elements, 480 lanes hatched as masked off." in html


def test_programs_that_share_an_element_are_known_one_by_one():
    """x is loaded by the programs of a column of tiles, in the grid's order."""
    x = next(each for each in trace(outer_kernel, OUTER).maps if each.name == "x")
    assert [x.groups[code] for code in (x.group[0], x.group[-1])] == [(0, 2), (1, 3)]


def test_only_some_tensors_are_shown():
    shown = trace(outer_kernel, OUTER, only=("z", "x"))
    assert [each.name for each in shown.maps] == ["x", "z"]
    assert [each.name for each in trace(outer_kernel, OUTER, only="z").maps] == ["z"]
    with pytest.raises(ValueError, match=r"trace: only must name tensors \(x, y, z\), but has 'w'"):
        trace(outer_kernel, OUTER, only=("w",))


@pytest.mark.parametrize(
    "numbers, told",
    [
        ({"N": 0, "BLOCK": 32}, "starts no program"),
        ({"N": 8, "BLOCK": 0}, "does not fit masked_add"),
        ({"N": 2 * 10**8, "BLOCK": 1024}, "400,000,000 elements, but at most 10,000,000 can be drawn"),
        ({"N": 10**12, "BLOCK": 1024}, "elements, but at most 10,000,000 can be drawn"),
    ],
)
def test_a_case_that_cannot_be_drawn_is_refused_in_a_line(numbers, told):
    with pytest.raises(ValueError, match="^trace: case ") as caught:
        trace(solutions()["masked_add"], MASKED_ADD, case=Case(**numbers))
    assert told in str(caught.value) and "\n" not in str(caught.value)


def test_a_map_counts_elements_that_lanes_of_one_store_share():
    mask = "(offs_m[:, None] < M) & (offs_n[None, :] < N)"
    source = kernel_sources()["outer_add"]
    assert source.count(mask) == 1
    flat = define(source.replace(mask, "offs < M * N"), "<flat mask>")
    told = {flat: True, define(source, "<correct>"): False}
    for kernel, collides in told.items():
        facts = maps(trace(kernel, OUTER_ADD, case=2))["z"].facts
        assert ("38 elements stored by several lanes at once" in facts) == collides


def test_a_kernel_as_it_was_handed_out_is_called_unsolved():
    cells = nbformat.read(REPO / "notebooks/04_reductions.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if "def long_sum_kernel(" in cell.source)
    handed_out = define(source.partition("check(")[0], "<as handed out>")
    solved = define(kernel_sources()["long_sum"], "<solved>")
    told = "Not solved yet: replace the comment"
    for kernel, is_open in ((handed_out, True), (solved, False)):
        traced = trace(kernel, LONG_SUM, case=2)
        assert (told in str(traced)) == (told in traced.picture.alt) == is_open
        notes = Played(watch(kernel, LONG_SUM, case=2).data).tree["notes"]
        assert any(note.startswith(told) for note in notes) == is_open


def test_the_outline_goes_around_its_programs_lanes_out_of_bounds():
    traced = trace(unmasked_kernel, RAGGED_ADD, case=1)
    (x, z), ((program, *_), beyond) = traced.maps, (traced.program, traced.maps[0].beyond)
    assert program == 6 and beyond.ravel().tolist() == list(range(200, 224)) and z.beyond is None
    panel = _MapPanel(x, traced.grid, ["white"] * 7)
    assert panel.frame.sum() == 32 and panel.outlined.sum() == 8
    other = trace(unmasked_kernel, RAGGED_ADD, case=1, program=0).maps[0]
    assert other.beyond is None and len(other.bad) == 24
