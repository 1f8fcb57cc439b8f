"""Chapter 16: the digits that it trains on, and the loss curves that were recorded."""

import json
import xml.etree.ElementTree as ET
from statistics import fmean

import pytest
import torch
from torch import nn

from puzzles_lib.bench import digits as bench
from puzzles_lib.bench.__main__ import main
from puzzles_lib.bench.recorded import DIGITS, about, load, rounding_told, rows
from puzzles_lib.chapters.ch16_from_kernel_to_layer import digits, pictures
from puzzles_lib.kernels.rounding import rounding_of

RECORD = load(DIGITS)
CURVES = {row["path"]: row for row in RECORD["curves"]}

# ---- the digits


def test_the_same_seed_trains_the_same_and_threads_are_put_back():
    threads = torch.get_num_threads()
    runs = [digits.train(digits.mlp(seed), 2, seed) for seed in (0, 0, 1)]
    assert runs[0] == runs[1] != runs[2] and torch.get_num_threads() == threads
    state = torch.random.get_rng_state()
    digits.mlp(3)
    assert torch.equal(torch.random.get_rng_state(), state)


def test_what_is_told_before_each_step():
    told = []
    digits.train(digits.mlp(), 3, before=told.append)
    assert told == [0, 1, 2]


def test_images_that_are_trained_on_are_none_of_the_unseen():
    seen = digits.digits()[0][: digits.TRAINED]
    for images, labels in digits.batches(2):
        assert images.shape == (digits.BATCH, 64) and labels.shape == (digits.BATCH,)
        assert (images[:3, None] == seen).all(2).any(1).all()

    class Right(nn.Module):
        def forward(self, images):
            return nn.functional.one_hot(digits.digits()[1][digits.TRAINED :], 10).float() * 100

    loss, right = digits.unseen(Right())
    assert right == 297 and loss < 1e-6


def test_bytes_kept_counts_every_storage_once_and_no_parameter():
    inputs = 4 * 256 * (64 + 128 + 128)  # a layer's input is the ReLU's output, which it keeps as well
    log_softmax, labels, their_weight = 4 * 256 * 10, 8 * 256, 4
    assert digits.bytes_kept(digits.mlp()) == inputs + log_softmax + labels + their_weight
    assert CURVES["float32"]["bytes"] == digits.bytes_kept(digits.mlp())
    for path in ("8 bits, nearest", "2 bits, stochastic"):
        assert CURVES[path]["bytes"] == digits.bytes_kept(bench.packed_mlp(path, 0))


# ---- what was recorded


@pytest.mark.parametrize("path", ["float32", "1 bit, nearest", "2 bits, stochastic"])
def test_the_first_recorded_steps_are_what_comes_out_here(path):
    found = [bench.losses(path, seed, 4)[0] for seed in range(RECORD["seeds"])]
    assert CURVES[path]["loss"][:4] == pytest.approx([fmean(s) for s in zip(*found, strict=True)], rel=1e-3)


def test_the_record_is_whole():
    assert list(CURVES) == list(bench.PATHS)
    assert all(len(row["loss"]) == bench.STEPS for row in CURVES.values())
    assert {row["rate"] for row in RECORD["rates"]} == set(bench.RATES)
    assert CURVES["float32"]["apart"] == 0


def test_layers_round_by_default_as_the_curves_say():
    """Stochastically where that brings a curve nearer to float32's by far; else the cheaper way."""
    for bits in (1, 2, 4, 8):
        nearest, stochastic = (
            CURVES[f"{bits} bit{'s' * (bits > 1)}, {r}"] for r in ("nearest", "stochastic")
        )
        off = nearest["apart"] > 0.005 and nearest["apart"] > 5 * stochastic["apart"]
        assert rounding_of(bits, None) == ("stochastic" if off else "nearest")
        assert stochastic["apart"] < 0.005
    rates = {(row["rate"], row["path"]): row for row in RECORD["rates"]}
    for rate in bench.RATES:
        exact = rates[rate, "float32"]["loss"]
        for bits in ("1 bit", "2 bits"):
            nearest, stochastic = (rates[rate, f"{bits}, {r}"] for r in ("nearest", "stochastic"))
            if rate < max(bench.RATES):
                assert abs(stochastic["loss"] - exact) < 0.005 and nearest["loss"] < exact - 0.003
            else:  # near float32's own limit nothing is told apart
                assert abs(stochastic["loss"] - nearest["loss"]) < 2 * max(
                    nearest["error"], stochastic["error"]
                )


def test_rounding_is_refused_or_taken_as_it_is_said():
    assert [rounding_of(bits, "nearest") for bits in (1, 8)] == ["nearest"] * 2
    with pytest.raises(ValueError, match="rounding is 'up', allowed are nearest and stochastic"):
        rounding_of(1, "up")


def test_paths_of_training_say_how_they_round():
    assert rounding_told("torch, compiled") == "torch, compiled"
    assert rounding_told("packed, 2 bits, stochastic") == "packed, 2 bits, stochastic"
    assert rounding_told("packed, 2 bits, compiled") == "packed, 2 bits, nearest, compiled"
    assert rounding_told("packed, 1 bit") == "packed, 1 bit, nearest"


def test_the_command_writes_what_it_prints(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "SEEDS", 1)
    monkeypatch.setattr(bench, "STEPS", 2)
    monkeypatch.setattr(bench, "RATE_STEPS", 1)
    monkeypatch.setattr(bench, "RATES", (0.1,))
    monkeypatch.setattr(bench, "RATE_SEEDS", 2)
    assert main(["digits", "--json", str(tmp_path / "d.json")]) == 0
    record = json.loads((tmp_path / "d.json").read_text())
    assert [row["path"] for row in record["curves"]] == list(bench.PATHS)
    assert len(record["curves"][0]["loss"]) == 2 and [p.name for p in tmp_path.iterdir()] == ["d.json"]
    printed = capsys.readouterr().out
    assert printed == bench.table(record) + "\n" and "2 bits, stochastic   47108" in printed


@pytest.mark.parametrize("name", ["budget", "curves", "rates", "steps"])
def test_a_picture_of_what_was_recorded_reads(name):
    drawn = getattr(pictures, name)
    picture = drawn(rows("training"), about("training")) if name == "steps" else drawn(RECORD)
    page = picture.svg()
    root = ET.fromstring(page)
    width = float(root.get("viewBox").split()[2])
    sizes = [float(g.get("font-size")) for g in root.iter() if g.get("font-size")]
    assert min(sizes) * min(1, 830 / width) > 10.9 and len(page) < 100_000 and "$" not in page
    for told in ("1 bit, stochastic", "2 bits, nearest"):
        assert told in picture.alt


def test_the_picture_of_offsets_that_wrap_asks_for_their_row():
    drawn = pictures.wraps()
    assert "42949" not in repr(drawn) + drawn._repr_html_() and "from which row on?" in drawn._repr_html_()
