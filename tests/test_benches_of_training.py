"""The benches that train: they give what a record needs, and measure what they say, on a CPU and in small."""

import math
from statistics import fmean

import pytest
import torch

from puzzles_lib.bench import beside, codes, glyphs, language, many, tokens
from puzzles_lib.bench.__main__ import main
from puzzles_lib.examples.glyphs import FONTS, UNSEEN
from puzzles_lib.examples.glyphs import glyphs as characters
from puzzles_lib.examples.lm import ByteLM
from puzzles_lib.examples.train_lm import Setup
from puzzles_lib.timing.recorded import BESIDE, CODES, GLYPHS, LANGUAGE, TOKENS, load

SMALL = {"width": 32, "layers": 2, "heads": 2, "context": 32}
DEVICE = torch.device("cpu")


# ---- characters


def test_no_two_pictures_of_characters_are_equal():
    seen, unseen = characters()
    assert (len(seen.drawn), len(unseen.drawn)) == (len(FONTS), len(UNSEEN)) and not set(FONTS) & set(UNSEEN)
    assert seen.classes == unseen.classes > 400
    flat = seen.drawn[0].flatten(1)
    assert len(flat.unique(dim=0)) == seen.classes and flat.any(1).all()
    generator = torch.Generator().manual_seed(0)
    first, second = (seen.draw(generator, 64, 16) for _ in range(2))
    assert first[0].shape == (64, 1, 16, 16) and not torch.equal(first[0], second[0])
    again = seen.draw(torch.Generator().manual_seed(0), 64, 16)
    assert torch.equal(again[0], first[0]) and torch.equal(again[1], first[1])
    with pytest.raises(ValueError, match="^count must be an integer of at least 1, but is 0$"):
        seen.draw(generator, 0)


def test_a_picture_shows_its_character():
    """The mean of many pictures is more like it than like nine in ten of the others."""
    seen, _ = characters()
    generator, label = torch.Generator().manual_seed(0), 200
    one = type(seen)(seen.drawn[:1, label : label + 1], noise=0.1)
    mean = one.draw(generator, 400, 32)[0].mean(0).flatten()
    drawn = torch.nn.functional.avg_pool2d(seen.drawn[0], 2).flatten(1)
    drawn = drawn - drawn.mean(0)
    assert label in torch.nn.functional.cosine_similarity(drawn, mean).topk(seen.classes // 10).indices


def test_the_bench_of_characters_trains_and_tests(monkeypatch):
    monkeypatch.setattr(glyphs, "TESTED", 1)
    size = {**glyphs.SIZE, "side": 16, "patch": 8, "width": 32, "depth": 1, "heads": 2}
    found = [
        glyphs.run(glyphs.Setup(bits, None, 0, 3, 8, tuple(size.items())), "cpu") for bits in (None, 8, None)
    ]
    assert found[0] == found[2] and found[0] != found[1]
    assert found[0]["held_out"] == pytest.approx(found[1]["held_out"], abs=0.02)
    assert found[0]["held_out"] == pytest.approx(math.log(characters()[0].classes), abs=0.5)
    assert set(found[0]) == {"loss", "peak", "held_out", "right", "unseen", "unseen_right"}
    assert glyphs.rate(0, 100) < 0.01 and glyphs.rate(glyphs.WARM_UP, 10**6) > 0.99


# ---- many runs


def test_rows_have_the_numbers_of_all_seeds_that_came():
    one = {"held_out": 1.0, "loss": [3.0, 1.0], "peak": 5}
    two = {"held_out": 2.0, "loss": [5.0, 2.0], "peak": 4}
    rows = many.rows_of(["a", "b", "a", "c"], [one, one, two, None])
    assert rows[0] == {"path": "a", "held_out": [1.0, 2.0], "loss": [4.0, 1.5], "peak": 5}
    assert [row["path"] for row in rows] == ["a", "b"]


def test_a_curve_has_the_means_of_equal_parts():
    assert many.curve([float(n) for n in range(60)]) == [0.5 + 2 * n for n in range(30)]
    assert many.curve([1.0, 2.0]) == [1.0, 2.0]


def test_tokens_are_counted_by_batch(monkeypatch):
    def spread(work, jobs, at_once, limit):
        assert all(isinstance(job, Setup) for job in jobs) and jobs[0].batch == 384
        losses = {None: 1.0, 4: 1.01, 2: 1.1}
        return [{"held_out": losses[job.bits] / job.batch, "loss": [1.0], "peak": 1} for job in jobs]

    monkeypatch.setattr(tokens, "spread", spread)
    monkeypatch.setattr(tokens, "provenance", dict)
    record = tokens.measure(steps=3)
    assert [row["batch"] for row in record["rows"]] == [24] * 4 + [384] * 4
    assert [row["path"] for row in record["rows"][:4]] == list(tokens.FORMATS)
    assert [len(row["held_out"]) for row in record["rows"][::4]] == [3, 2]
    assert "  6,144  2 bits, nearest" in tokens.table(record)


def test_layers_of_a_setup_keep_more_bits():
    setup = language.setup(language.BY_LAYER["2 bits in MLPs, else 4"], 0)
    small = Setup("small", setup.bits, setup.rounding, finer=setup.finer)
    bits = {name: m.bits for name, m in small.model().named_modules() if hasattr(m, "bits")}
    first = {name.rpartition(".")[2]: found for name, found in bits.items() if name.startswith("blocks.0.")}
    assert first == {"norm": 4, "qkv": 4, "out": 4, "mlp_norm": 4, "0": 2, "2": 2}
    assert small.text() == "2 bits, nearest, 4 in norm|qkv|out"


@pytest.mark.parametrize("name", ["glyphs", "tokens", "codes", "beside", "language"])
def test_without_a_gpu_they_are_one_line(name, capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([name]) == 1
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and "needs a CUDA device" in error


# ---- codes


@pytest.fixture
def short_text(monkeypatch):
    text = (torch.arange(5000) % 5).to(torch.uint8)  # all batches have much in common
    monkeypatch.setattr(codes, "corpus", lambda: (text, text))


def test_noise_fades_in_a_sum_and_the_nearest_codes_error_does_not(short_text, monkeypatch):
    some = ("8 bits", "2 bits", "2 bits, stochastic", "2 bits, rotated, clipped")
    monkeypatch.setattr(codes, "FORMATS", {path: codes.FORMATS[path] for path in some})
    record = codes.measure({**SMALL, "layers": 1}, "cpu", 2, (1,), (1, 4, 8))
    found = {(row["path"], row["kind"]): row["cosine"] for row in record["rows"]}
    assert {path for path, _ in found} == set(some) and {kind for _, kind in found} == set(codes.KINDS)
    for kind in codes.KINDS:
        assert min(found["8 bits", kind]) > 0.999
    lost = {path: [1 - found[path, "qkv"][place] for place in (0, -1)] for path in some}
    assert lost["2 bits, stochastic"][1] < 0.5 * lost["2 bits, stochastic"][0]
    assert lost["2 bits"][1] > 0.5 * lost["2 bits"][0]
    whole = {row["path"]: row["cosine"][0] for row in record["whole"]}
    assert whole["2 bits"] < whole["2 bits, norms and attention 4"] < whole["4 bits"]
    assert codes.table(record).count("whole gradient") == len(codes.WHOLE)


def test_a_rotation_is_turned_back():
    x = torch.randn(5, 64)
    assert torch.allclose(codes.rotated(lambda x, seed: x)(x, 0), x, atol=1e-5)
    spread = x.clone()
    spread[:, 3] *= 100
    plain, turned = (form(spread, 0) for form in (codes.FORMATS["2 bits"], codes.FORMATS["2 bits, rotated"]))
    rest = torch.arange(64) != 3
    assert (turned - spread)[:, rest].norm() < (plain - spread)[:, rest].norm() * 5
    clipped = codes.clipped(lambda x, seed: x, 1.0)(x, 0)
    assert clipped.abs().max() < x.abs().max() and torch.equal(clipped.sign(), x.sign())


# ---- beside


def test_every_way_trains_alike(monkeypatch):
    def batch(device, generator):
        return tuple(torch.randint(256, (2, 4, 32), generator=generator))

    task = beside.Task(lambda: ByteLM(**SMALL), batch, 1e-3, beside.PATHS)
    paths = [path for path in beside.PATHS if "compiled" not in path and path not in beside.NEEDS]
    found = {path: beside.run(task, path, DEVICE, 3) for path in paths}
    exact = found["torch"]["loss"]
    for path, row in found.items():
        packed = "bits" in path
        assert row["loss"] == pytest.approx(exact, abs=2e-3 if packed else 1e-4), path
    base = {"baseline_us": 1.0, "baseline_bytes": 1}
    rows = [{"task": "LM", "path": path, **row, **base} for path, row in found.items()]
    assert beside.table({"rows": rows}).count("\n") == len(paths)


# ---- the records


def test_what_the_results_say_of_the_records():
    losses = {(row["batch"], row["path"]): fmean(row["held_out"]) for row in load(TOKENS)["rows"] + usual()}
    for batch in (24, 96, 384):
        exact, nearest, random = (
            losses[batch, p] for p in ("torch", "2 bits, nearest", "2 bits, stochastic")
        )
        assert exact < nearest < random
    most = [losses[384, f"2 bits, {how}"] - losses[384, "torch"] for how in ("nearest", "stochastic")]
    assert [round(each, 3) for each in most] == [0.006, 0.015]  # chapter 16 says so
    found = {(r["steps"], r["path"], r["kind"]): r["cosine"] for r in load(CODES)["rows"]}
    for kind in codes.KINDS:
        nearest, random = (found[1000, path, kind] for path in ("2 bits", "2 bits, stochastic"))
        assert nearest[0] > random[0] and nearest[-1] < random[-1]
    rows = {row["path"]: row["held_out"] for row in load(GLYPHS)["rows"]}
    means = {path: fmean(losses) for path, losses in rows.items()}
    order = ("torch", "4 bits, nearest", "2 bits, nearest", "2 bits, stochastic", "1 bit, stochastic")
    assert sorted(order, key=means.__getitem__) == list(order)
    assert min(rows["1 bit, nearest"]) > 6 and means["1 bit, stochastic"] > 2 * means["2 bits, stochastic"]
    apart = [round(means[path] - means["torch"], 3) for path in order[1:4]]
    assert apart == [0.006, 0.015, 0.036]
    beside_rows = {(row["task"], row["path"]): row for row in load(BESIDE)["rows"]}
    half, four = (
        beside_rows["LM", f"{p}"] for p in ("torch, compiled, half the memory", "packed, 4 bits, compiled")
    )
    assert half["us"] < four["us"] and half["bytes"] > four["bytes"]
    llama = [beside_rows["Llama", f"packed, {bits} bits"] for bits in (4, 2)]
    assert [round(row["bytes"] / row["baseline_bytes"], 2) for row in llama] == [0.30, 0.28]
    assert {round(row["us"] / row["baseline_us"], 2) for row in llama} <= {0.91, 0.92}


def usual():
    return [{"batch": 96, **row} for row in load(LANGUAGE)["rows"]]
