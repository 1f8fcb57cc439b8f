"""The byte language model's example, and what its recorded runs say about the defaults."""

import math
from statistics import fmean

import pytest
import torch

from puzzles_lib.bench import checkpointing, kept, language
from puzzles_lib.examples import lm, train_lm
from puzzles_lib.examples.train_lm import Setup, train
from puzzles_lib.kernels.modules import PackedLinear, PackedMLP
from puzzles_lib.timing.recorded import KEPT, LANGUAGE, load, rows

RECORD = load(LANGUAGE)


@pytest.fixture(autouse=True)
def _small_corpus(monkeypatch):
    text = b"def add(a, b):\n    return a + b\n\n" * 300
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    monkeypatch.setattr(train_lm, "corpus", lambda: (data[:9000], data[9000:]))


@pytest.mark.parametrize("bits", [None, 4])
def test_it_learns(bits):
    setup = Setup(bits=bits, steps=30, batch=8, lr=3e-3)
    kinds = {type(module) for module in setup.model().modules()}
    assert {PackedLinear, PackedMLP} <= kinds if bits else not {PackedLinear, PackedMLP} & kinds
    found = train(setup, "cpu")
    assert len(found.losses) == 30 and found.losses[0] == pytest.approx(math.log(256), abs=0.6)
    assert found.losses[-1] < found.losses[0] - 0.5 and found.held_out < found.losses[0] - 0.5


def test_equal_setups_give_equal_losses():
    setup = Setup(bits=2, rounding="stochastic", steps=3, batch=4)
    assert train(setup, "cpu").losses == train(setup, "cpu").losses


def test_the_command(capsys):
    assert train_lm.main(["--steps", "2", "--batch", "2", "--bits", "2", "--rounding", "stochastic"]) == 0
    assert capsys.readouterr().out.startswith("2 bits, stochastic: loss 5.")
    for wrong in (["--no-packing", "--bits", "2"], ["--steps", "0"], ["--bits", "3"]):
        with pytest.raises(SystemExit):
            train_lm.main(wrong)


def test_the_corpus_is_python():
    seen, unseen = lm.corpus.__wrapped__()
    assert len(seen) > 5_000_000 and 0.02 < len(unseen) / len(seen) < 0.04
    assert b"import" in bytes(seen[:100_000].tolist())


def test_pieces_and_what_follows():
    data = torch.arange(200, dtype=torch.uint8)
    inputs, targets = lm.draw(data, torch.Generator().manual_seed(0), 3, 16)
    assert inputs.shape == targets.shape == (3, 16) and torch.equal(inputs + 1, targets)


# ---- the record


def test_the_record_is_whole():
    assert [row["path"] for row in RECORD["rows"]] == list(language.PATHS)
    assert all(len(row["held_out"]) == language.SEEDS for row in RECORD["rows"])
    assert (RECORD["steps"], RECORD["batch"]) == (language.STEPS, language.BATCH)
    assert language.table(RECORD).count("\n") == len(language.PATHS) + 2


def test_the_defaults_are_what_the_record_says():
    """4 bits to the nearest cost no more than seeds differ by. 2 bits do, and stochastic ones more."""
    found = {row["path"]: row["held_out"] for row in RECORD["rows"]}
    exact = fmean(found["torch"])
    spread = max(found["torch"]) - min(found["torch"])
    worse = {path: fmean(losses) - exact for path, losses in found.items()}
    assert worse["4 bits, nearest"] < spread and worse["8 bits, nearest"] < spread
    assert spread < worse["2 bits, nearest"] < worse["2 bits, stochastic"] < worse["1 bit, stochastic"]
    assert worse["1 bit, nearest"] > 1


def test_eager_steps_take_no_longer_than_the_goals():
    found = {(row["case"], row["path"]): row for row in rows("eager")}
    assert found["host, a Linear 256 to 256", "packed, 4 bits"]["us"] < 250
    for case, path in found:
        if path == "packed, 4 bits" and not case.startswith("host"):
            row = found[case, path]
            assert row["us"] < 1.25 * row["baseline_us"] and row["bytes"] < 0.5 * row["baseline_bytes"]


def test_other_libraries_models_keep_no_more_than_the_goals():
    found = {row["model"]: row["2 bits"] / row["torch"] for row in load(KEPT)["rows"]}
    assert set(found) == set(kept.MODELS)
    assert max(found.values()) <= 0.45
    assert max(share for name, share in found.items() if "ViT" in name or "BERT" in name) <= 0.38


def test_checkpointed_inputs_in_few_bits_take_less():
    found = {row["path"]: row for row in rows("checkpointing")}
    eight, four, plain = (
        found[f"checkpointed{more}"] for more in (", inputs in 8 bits", ", inputs in 4 bits", "")
    )
    assert four["bytes"] < eight["bytes"] < plain["bytes"] and eight["cosine"] > 0.999
    assert set(found) == set(checkpointing.PATHS)


def test_the_benches_paths_compute_what_they_say():
    """On a CPU and a small model: the same gradients, as near as their bits allow."""
    size = {"width": 64, "layers": 2, "heads": 2, "context": 32}
    found = {row["path"]: row for row in checkpointing.measure(size, "cpu")}
    assert found["checkpointed"]["error"] == found["checkpointed, inputs on the host"]["error"] == 0
    assert 0 < found["checkpointed, inputs in 8 bits"]["error"] < 0.02
    assert found["packed, 4 bits"]["cosine"] > 0.98
