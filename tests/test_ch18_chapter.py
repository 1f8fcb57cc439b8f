"""Chapter 18: its pictures, of tiles and of what was recorded, and what it says of the figures."""

import re
import xml.etree.ElementTree as ET

import nbformat
import pytest
import torch
import triton

from puzzles_lib import WINDOW_ATTENTION, stages
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.bench import attention as bench
from puzzles_lib.chapters.ch18_attention import pictures
from puzzles_lib.chapters.ch18_attention.questions import QUESTIONS, against
from puzzles_lib.source import define
from puzzles_lib.timing.recorded import about, rows
from tests.conftest import REPO

RECORDED = rows("attention")
DRAWN = (
    "aligned", "derivation", "heads", "kept", "packed", "precision", "products", "row", "tiles",
    "turns", "walks", "window",
)  # fmt: skip


@pytest.mark.parametrize("name", [*DRAWN, "floors", "lengths"])
def test_a_picture_reads(name):
    picture = getattr(pictures, name)(*([RECORDED] if name == "floors" else []))
    page = picture.svg()
    root = ET.fromstring(page)
    width = float(root.get("viewBox").split()[2])
    sizes = [float(g.get("font-size")) for g in root.iter() if g.get("font-size")]
    assert min(sizes) * min(1, 785 / width) > 9.9 and len(page) < 100_000 and "$" not in page
    told = {
        "aligned": "the ends line up (puzzle 36): 5, 6, 7.",
        "derivation": "ds = p ∘ (dp − delta)",
        "kept": "T = 4096: 512 and 64",
        "products": "dk, dv: s = q kᵀ, dp = do vᵀ, dk = dsᵀ q, dv = pᵀ do",
        "window": "query 12 sees keys 7 to 12, query 15 sees keys 10 to 15. It visits keys 4 to 15",
        "packed": "12 programs per head; 5 have something to do",
        "tiles": "causal: 30 whole, 12 cut, 30 not visited",
        "row": "ds = [0.0, -1.0, 1.0], which adds up to 0",
        "floors": "the course's kernels 806, flash",
        "walks": "program 2 walks 6 tiles",
    }
    assert told.get(name, "") in picture.alt


def test_the_other_rule_is_drawn_when_it_is_asked_for():
    assert "the starts line up" not in pictures.aligned().alt
    assert pictures.aligned(both=True).alt.endswith("the starts line up: 1, 2, 3.")


def test_backward_is_derived_step_by_step():
    steps = [pictures.derivation(step).alt for step in (1, 2, 3)]
    assert ["dq = " in alt for alt in steps] == [False, True, True]
    assert ["delta" in alt for alt in steps] == [False, False, True]


def test_a_tile_is_whole_where_all_is_seen_and_skipped_where_nothing_is():
    assert pictures.tile_kinds(8, 4, 4, None, causal=False) == [["whole", "whole"]] * 2
    assert pictures.tile_kinds(8, 4, 4, None) == [["cut", "skipped"], ["whole", "cut"]]
    assert pictures.tile_kinds(8, 4, 4, 3) == [["cut", "skipped"], ["cut", "cut"]]
    assert pictures.tile_kinds(12, 4, 4, 4)[2] == ["skipped", "cut", "cut"]
    assert pictures.tile_kinds(6, 4, 4, None, causal=False) == [["whole", "cut"]] * 2  # T ends in a tile


def test_each_cell_of_the_library_and_of_the_figures_runs_after_the_set_up_alone():
    book = nbformat.read(REPO / "solutions/18_attention.ipynb", 4)
    scope: dict = {}
    cells = {cell.id: cell.source for cell in book.cells if cell.cell_type == "code"}
    exec(cells["imports"], scope)
    after = list(cells)[list(cells).index("prod-tma") :]
    mine = ("prod-exp2-own", "prod-exp2-count", "gpu-live")
    needs_no_answer = [name for name in after if name.startswith(("prod-", "gpu-")) and name not in mine]
    assert len(needs_no_answer) > 5
    for name in needs_no_answer:
        exec(cells[name], dict(scope))


def test_questions_are_numbered_as_they_are_met():
    book = nbformat.read(REPO / "solutions/18_attention.ipynb", 4)
    met = [cell.id for cell in book.cells if re.fullmatch(r"q\d+", cell.id)]
    assert met == sorted(met, key=lambda id: int(id[1:]))
    assert [question.id for question in QUESTIONS] == [f"ch18-{id}" for id in met]


def test_an_answer_is_not_told_below_its_question():
    book = nbformat.read(REPO / "notebooks/18_attention.ipynb", 4)
    prose = {cell.id: cell.source for cell in book.cells if cell.cell_type == "markdown"}
    told = {
        "back-who-after": ("seven", "3.5"),
        "p38-registers-seen": ("spills a little",),
        "prod-tma-after": ("127", "28"),
        "gpu-missing-after": ("64",),
    }
    assert not [(cell, word) for cell, words in told.items() for word in words if word in prose[cell]]


# ---- what was recorded


def test_every_form_and_length_is_there_once_and_was_right():
    keys = [(row["case"], row["path"], row["baseline"]) for row in RECORDED]
    assert len(keys) == len(set(keys))
    for D, causal in bench.FORMS:
        for T in bench.LENGTHS:
            for part in pictures.PARTS:
                assert {(bench._case(D, causal, T), part, name) for name in bench.TORCHS} <= set(keys)
    assert max(row["error"] for row in RECORDED) < 2**-8  # of bfloat16's own rounding


def test_both_tritons_are_named():
    master = nbformat.read(REPO / "solutions/18_attention.ipynb", as_version=4)
    (source,) = (cell.source for cell in master.cells if cell.id == "gpu-versions")
    recorded_with, installed = re.findall(r"Triton ([\d.]+\d)", source)
    assert f"triton {recorded_with}" in about("attention")
    assert f'"triton=={installed}"' in (REPO / "pyproject.toml").read_text("utf-8")


def test_what_is_said_of_the_first_figure_is_what_was_recorded():
    for D in (128,):
        for part, found in pictures.times(RECORDED, f"D = {D}, causal, T = 4096").items():
            both = found[pictures.PRODUCTS] + found[pictures.EXPONENTIALS]
            least = min(found[name] for name in ("ours", "puzzles", "flash"))
            assert least > both and (found["cuDNN"] < both) == (part == "forward")
    for row in RECORDED:  # none is faster than the slower of the two alone
        if row["path"] in pictures.PARTS and row["baseline"] == pictures.PRODUCTS:
            assert row["us"] > row["baseline_us"]


def test_the_chapters_words_are_the_recorded_figures():
    every = [
        against(name, part, D, mask)
        for name in ("cuDNN", "flash")
        for part in pictures.PARTS
        for D in (64, 128)
        for mask in ("causal", "full")
    ]
    forward, backward = every[:4], every[4:8]
    assert min(forward) >= 0.6 and min(backward) >= 0.5 and min(every[8:]) > 1.3
    master = nbformat.read(REPO / "solutions/18_attention.ipynb", as_version=4)
    prose = " ".join(" ".join(c.source.split()) for c in master.cells if c.cell_type == "markdown")
    found = pictures.times(RECORDED, "D = 128, causal, T = 4096")
    assert "torch's flash kernels were written for the generation before Hopper" in prose
    assert all(part["puzzles"] < part["flash"] for part in found.values())
    full = pictures.times(RECORDED, "D = 128, full, T = 4096")["forward"]
    both = full[pictures.PRODUCTS] + full[pictures.EXPONENTIALS]
    assert "takes a little more than the sum of the two" in prose and 1 < full["ours"] / both < 1.15
    assert "cuDNN hides more than half of the exponentials" in prose
    assert both - full["cuDNN"] > 0.5 * full[pictures.EXPONENTIALS]
    assert "At D = 64 neither kernel hides much" in prose
    small = pictures.times(RECORDED, "D = 64, full, T = 4096")["forward"]
    for name in ("ours", "cuDNN"):
        assert 0.9 < small[name] / (small[pictures.PRODUCTS] + small[pictures.EXPONENTIALS]) < 1


def test_what_is_said_of_the_general_forms_is_what_was_recorded():
    ratios = {(row["case"], row["path"]): row["ratio"] for row in RECORDED}
    for part in pictures.PARTS:  # a fifth of the time, half the time, the same time
        assert 4.5 < ratios["D = 128, causal, T = 16384, window 1024", part] < 5.5
        assert 1.9 < ratios["D = 128, causal, 16 sequences packed", part] < 2.1
        assert 0.95 < ratios["D = 128, causal, T = 4096, 4 heads of keys", part] < 1.05
    seen = sum(min(i + 1, 1024) for i in range(16384))
    assert round(bench.scores(16384, causal=True) / seen) == 8  # "an eighth of the pairs"


# ---- how it is measured


def test_scores_that_count():
    assert bench.scores(4096, causal=False) == 16384 * 4096
    assert bench.scores(16384, causal=True) == 16384 * 16385 // 2
    assert sum(bench.PACKED) == bench.ROWS


def test_a_gpu_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="bench attention needs a CUDA device"):
        next(bench.measure())


def test_the_library_packs_as_one_at_a_time_and_as_puzzle_36():
    master = nbformat.read(REPO / "solutions/18_attention.ipynb", as_version=4)
    said = {cell.id: "".join(o.get("text", "") for o in cell.get("outputs", ())) for cell in master.cells}
    assert said["prod-packed-same"].splitlines() == [
        "packed is as one at a time: True",
        "your kernel is as the library: True",
    ]
    assert said["prod-packed-nan"].split()[-5:] == ["16", "rows", "forgotten", "66", "rows"]


def test_a_hole_that_is_filled_wrong_gets_its_own_error(capsys):
    notebook = nbformat.read(REPO / "notebooks/18_attention.ipynb", as_version=4)
    (cell,) = (cell for cell in notebook.cells if cell.id == "prod-packed-same")

    def one_at_a_time(*_):
        raise ValueError("cu_seqlens begins at 20")

    exec(
        cell.source,
        {
            **dict.fromkeys(("all_q", "all_k", "all_v")),
            "torch": torch,
            "cu_seqlens": (0, 86),
            "one_at_a_time": one_at_a_time,
        },
    )
    assert "It stopped at: cu_seqlens begins at 20" in capsys.readouterr().out


def test_the_formulas_of_backward_are_torchs():
    """As `p35-lse-idea`, `back-idea`, and `back-softmax-idea` have them."""
    torch.manual_seed(0)
    T, D = 7, 4
    q, k, v = (torch.randn(T, D, dtype=torch.float64, requires_grad=True) for _ in range(3))
    do, dlse = torch.randn(T, D, dtype=torch.float64), torch.randn(T, dtype=torch.float64)
    s = q @ k.T / D**0.5
    p, lse = s.softmax(1), s.logsumexp(1)
    o = p @ v
    wanted = torch.autograd.grad([o, lse], [s, q, k, v], [do, dlse])
    with torch.no_grad():
        row_max = s.max(1).values
        assert torch.allclose(lse, row_max + (s - row_max[:, None]).exp().sum(1).log())
        assert torch.allclose(p, (s - lse[:, None]).exp())
        dp, delta = do @ v.T, (do * o).sum(1)
        assert torch.allclose(delta, (p * dp).sum(1))
        ds = p * (dp - (delta - dlse)[:, None])
        for got, want in zip((ds, ds @ k / D**0.5, ds.T @ q / D**0.5, p.T @ do), wanted, strict=True):
            assert torch.allclose(got, want)
        slope = torch.autograd.functional.jacobian(lambda row: row.softmax(0), s[0])
        assert torch.allclose(slope, p[0][:, None] * (torch.eye(T) - p[0]))  # of p_l by s_j


def test_what_triton_does_with_warp_specialize():
    """As `gpu-sums-how` says of the Triton that the course installs."""
    cells = nbformat.read(REPO / "solutions/18_attention.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.id == "gpu-sums-how")
    assert f"With Triton {triton.__version__}, puzzle 35's loop doesn't compile" in source
    plain = solutions()["window_attention"]
    loop = "range(begin, tl.minimum(start + BLOCK_Q, T), BLOCK_K)"
    assert plain.src.count(loop) == 1
    changed = plain.src.replace(loop, f"tl.{loop[:-1]}, warp_specialize=True)")
    split = define(f"@triton.jit\n{changed}", "<split>")
    sizes = {"H": 16, "T": 4096, "D": 128, "W": 4096, "BLOCK_Q": 64, "BLOCK_K": 64}

    def compiled(kernel, target, warps):
        return stages(kernel, WINDOW_ATTENTION, target, **sizes, num_warps=warps)

    assert "does not compile" in str(compiled(split, "sm_90", 4))
    assert str(compiled(split, "sm_90", 8).sass) == str(compiled(plain, "sm_90", 8).sass)


def test_powers_of_two_save_multiplications():
    """As `prod-exp2-count` shows with the chapter's answers: 128 for each thread's tile of scores."""
    cells = nbformat.read(REPO / "solutions/18_attention.ipynb", as_version=4).cells
    (counted,) = ("".join(o.text for o in cell.outputs) for cell in cells if cell.id == "prod-exp2-count")
    plain, faster = (int(number) for number in re.findall(r"(\d+) FMUL", counted))
    assert faster < plain - 100
