"""Chapter 17: its pictures of what was recorded, and what it says of the figures."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import nbformat
import pytest
import torch

from puzzles_lib import DOUBLE, DW_BY_LOCK, LAYER_NORM_DW, check
from puzzles_lib.bench import orders
from puzzles_lib.chapters.ch17_normalisation import own, pictures
from puzzles_lib.source import define
from puzzles_lib.timing.recorded import ORDERS, about, load, rows
from tests.conftest import REPO

# ---- pictures


RECORD = load(ORDERS)


@pytest.mark.parametrize("name", ["sums", "timings", "widths"])
def test_a_picture_of_what_was_recorded_reads(name):
    drawn = getattr(pictures, name)
    picture = drawn(RECORD) if name == "widths" else drawn(rows("norms"), about("norms"))
    page = picture.svg()
    root = ET.fromstring(page)
    width = float(root.get("viewBox").split()[2])
    sizes = [float(g.get("font-size")) for g in root.iter() if g.get("font-size")]
    assert min(sizes) * min(1, 785 / width) > 10.9 and len(page) < 100_000 and "$" not in page
    told = {
        "sums": "a lock, 16 rows per program, 8677",
        "timings": "the chapter's kernel 67.9",
        "widths": "no barrier: 0 with 1024, 0 with 2048, 1 with 4096, 199 with 8192, 200 with 16384",
    }
    assert told[name] in picture.alt


# ---- what was recorded


def counts(path: str, what: str) -> list[int]:
    return [row[what] for row in RECORD["rows"] if row["path"] == path]


def test_what_is_ordered_is_right_every_time_and_two_stages_give_the_same_bits():
    assert RECORD["runs"] == orders.RUNS and counts("dw_by_lock", "wrong") == [0] * len(orders.SHAPES)
    assert {row["case"] for row in RECORD["rows"]} == set(map(str, orders.SHAPES))
    for path in ("layer_norm_dw", "dw_by_atomics"):
        assert set(counts(path, "wrong")) == {0}
    assert set(counts("layer_norm_dw", "sums")) == {1} and min(counts("dw_by_atomics", "sums")) > 100


def test_the_chapters_words_are_the_recorded_figures():
    """Prose that quotes them, in the master and in RESULTS.md."""
    us = {
        (row["case"], row["path"], row["baseline"]): (row["us"], row["baseline_us"]) for row in rows("norms")
    }
    copy, case = "copy of as many bytes", "8192x4096, bfloat16"
    shares = {
        p: us[case, p, copy][0] / us[case, p, copy][1] for p in ("rms_norm", "layer_norm", "layer_norm_dx")
    }
    assert (
        shares["rms_norm"] < 1.03 and shares["layer_norm_dx"] < 1.03 and round(shares["layer_norm"], 1) == 1.2
    )
    torchs = [("rms_norm", "torch, add and rms_norm"), ("layer_norm", "torch"), ("layer_norm_dx", "torch")]
    slower = [us[case, path, other][1] / us[case, path, other][0] for path, other in torchs]
    assert round(min(slower), 1) == 1.3 and round(max(slower), 1) == 1.5
    dw = "layer_norm_dw, 256 rows per program"
    table = {
        "8192 × 4096, bfloat16": case,
        "8192 × 4096, float32": "8192x4096, float32",
        "50432 × 768, bfloat16": "50432x768, bfloat16",
    }
    lock, apart = (us[case, f"{p}, 16 rows per program", copy][0] for p in ("dw_by_lock", "layer_norm_dw"))
    prose = " ".join(
        cell.source
        for cell in nbformat.read(REPO / "solutions/17_normalisation.ipynb", as_version=4).cells
        if cell.cell_type == "markdown"
    )
    for words, of in table.items():
        others = [us[of, dw, other][1] for other in ("torch.compile", "torch")]
        told = [us[of, dw, copy][1], us[of, dw, copy][0], *others]
        assert f"| {words} | {' | '.join(f'{each:.0f}' for each in told)} |" in prose
    assert round(us[case, dw, copy][0] / us[case, dw, copy][1]) == 2 and "twice as long as its copy" in prose
    more = us["8192x4096, float32", dw, copy][0] - us[case, dw, copy][0]
    assert f"twice as many (float32) take just {more:.0f} µs more" in prose
    ours, two = us[case, "rms_norm", "torch, add and rms_norm"]
    compiled = us[case, "rms_norm", "torch.compile"][1]
    assert round(two / ours, 1) == 1.3 and "about a third longer than the single one" in prose
    assert f"{two:.0f} µs instead of {ours:.0f}" in prose
    norm, its_copy = us[case, "layer_norm", copy]
    longer = f"{norm / its_copy - 1:.0%} longer than its copy ({norm:.1f} µs instead of {its_copy:.1f})"
    assert longer in prose
    assert two / ours > 5 / 4  # question 1
    assert (
        f"`torch.compile` takes {compiled:.0f} µs" in prose
        and compiled < 5 / 4 * us[case, "rms_norm", copy][1]
    )
    for rows_ in (16, 256):
        atomics, *others = (
            us[case, f"{p}, {rows_} rows per program", copy][0]
            for p in ("dw_by_atomics", "dw_by_lock", "layer_norm_dw")
        )
        assert atomics < min(others) and "Atomics were the fastest here" in prose
    assert f"{lock / 1000:.1f} ms" in prose and f"separate parts only {apart / 1000:.2f} ms" in prose
    assert sum(counts("layer_norm_dw, no barrier", "wrong")) == 0 and "all 1000 recorded runs" in prose
    wrong = counts("dw_by_lock, no barrier", "wrong")
    results = (REPO / "RESULTS.md").read_text("utf-8")
    assert f"{', '.join(map(str, wrong[:-1]))} and {wrong[-1]} of 200 runs" in results
    assert set(counts("dw_by_lock, relaxed", "wrong")) == {200}


def test_both_tritons_are_named():
    """The one that recorded the figures, and the one that the course installs."""
    cells = nbformat.read(REPO / "solutions/17_normalisation.ipynb", as_version=4).cells
    (after,) = (cell.source for cell in cells if cell.id == "why-recorded-after")
    triton = RECORD["versions"]["triton"]
    assert f"recorded with Triton {triton}" in after and f"triton {triton}" in about("norms")
    (installed,) = re.findall(r"installs Triton ([\d.]+\d)", after)
    assert f'"triton=={installed}"' in (REPO / "pyproject.toml").read_text("utf-8")


# ---- your own norm


def _of_the_rest(x, keep):
    kept = torch.where(keep, x, 0)
    return x - kept.sum(1, keepdim=True) / keep.sum(1, keepdim=True)


OWN_NORMS = {
    "smallest": lambda x: (y := x - x.amin(1, keepdim=True)) / (1 + y.mean(1, keepdim=True)),
    "softmax": lambda x: torch.softmax(x / 0.1, 1),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x, x.shape[1:]),
    "largest and root": lambda x: (x - x.amax(1, keepdim=True)) / x.square().mean(1, keepdim=True).sqrt(),
}
NO_NORMS = {
    "nothing": lambda x: x,
    "each by itself": torch.sigmoid,
    "the largest alone": lambda x: x / (1 + x.amax(1, keepdim=True).abs()),
    "all but the largest": lambda x: _of_the_rest(x, x < x.amax(1, keepdim=True)),
    "not the first": lambda x: x / (1 + x[:, 1:].abs().mean(1, keepdim=True)),
    "not the last": lambda x: x / (1 + x[:, :-1].abs().mean(1, keepdim=True)),
}


@pytest.mark.parametrize("name", OWN_NORMS)
def test_a_norm_in_which_every_number_counts_is_accepted(name):
    assert own.problem(OWN_NORMS[name]) == ""


@pytest.mark.parametrize("name", NO_NORMS)
def test_a_norm_that_ignores_a_number_is_refused(name):
    assert "has no effect on the rest of its row" in own.problem(NO_NORMS[name])


def test_only_a_stub_is_called_not_solved():
    assert own.problem(NO_NORMS["nothing"]).startswith("not solved yet")
    assert own.problem(NO_NORMS["the largest alone"]).startswith("it may be a norm, but")


def _without_keepdim(x):
    return x - x.mean(1)


def test_an_error_in_an_own_norm_is_told_with_its_line_alone():
    told = own.problem(_without_keepdim).splitlines()
    assert len(told) == 3 and told[0].startswith("my_norm raises RuntimeError for x of shape 2 × 8")
    assert told[1] == "return x - x.mean(1)" and "keepdim=True" in told[2]
    assert "must return a tensor of x's shape, but returns 2" in own.problem(lambda x: x.mean(1))
    assert "but returns NoneType" in own.problem(lambda x: None)


def test_the_verdict_on_an_own_norm_does_not_depend_on_torchs_seed():
    told = set()
    for seed in range(5):
        torch.manual_seed(seed)
        told.add(own.problem(NO_NORMS["the largest alone"]))
    assert len(told) == 1


# ---- the threads of a program


@pytest.mark.parametrize(
    "last_two, between, right", [("offs", "", False), ("turned", "", True), ("offs", "barrier", True)]
)
def test_a_thread_finds_what_it_has_stored_itself(last_two, between, right):
    """The answers to the chapter's question on its detour through memory, checked as its cell does."""
    cells = nbformat.read(REPO / "solutions/17_normalisation.ipynb", as_version=4).cells
    (source,) = (cell.source for cell in cells if cell.id == "threads-kernel")
    *lines, load, store = source[source.index("@triton.jit") :].partition("\n\n\n")[0].splitlines()
    lines += ["    tl.debug_barrier()"] if between else []
    lines += [line.replace("offs", last_two) for line in (load, store)]
    kernel = define("\n".join(lines), f"<{last_two}>")
    (call,) = (line for line in source.splitlines() if line.startswith("check("))
    report = eval(call, {"check": check, "replace": replace, "DOUBLE": DOUBLE, kernel.__name__: kernel})
    assert report.ok == right and ("no barrier between" in str(report)) != right


# ---- how it is counted


@pytest.fixture(scope="module")
def kernels() -> dict[str, object]:
    return dict(orders._kernels())


def test_what_was_counted_are_these_kernels(kernels):
    assert list(kernels) == list(dict.fromkeys(row["path"] for row in RECORD["rows"]))


@pytest.mark.parametrize(
    "path, kind",
    [
        ("dw_by_atomics", "machine"),
        ("dw_by_lock, relaxed", "race"),
        ("dw_by_lock, scope cta", "race"),
        ("dw_by_lock, no lock", "race"),
        ("dw_by_lock, no barrier", "race"),
        ("layer_norm_dw, no barrier", "race"),
    ],
)
def test_the_checker_says_so_without_a_gpu(kernels, path, kind):
    report = check(kernels[path], LAYER_NORM_DW if path.startswith("layer") else DW_BY_LOCK)
    assert [verdict.kind for verdict in report.verdicts[:1]] == ([kind] if kind else [])


def test_an_edit_that_finds_nothing_is_an_error():
    with pytest.raises(ValueError, match="occurs 0 times in the answer"):
        orders.edited("dw_by_lock", {"tl.no_such_thing": ""})


def test_the_table_has_a_line_for_each_kernel_under_its_sizes():
    lines = orders.table(RECORD).splitlines()
    assert len(lines) == len(orders.SHAPES) * (1 + len({row["path"] for row in RECORD["rows"]}))
    assert "199 wrong (  460,233 elements),  200 different sums" in "\n".join(lines)


def test_a_gpu_is_asked_for(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="bench orders needs a CUDA device"):
        orders.measure()
