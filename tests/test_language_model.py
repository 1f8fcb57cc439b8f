"""The model that speaks: its weights in 4 bits, its training, and the same text by kernels as by torch."""

import dataclasses
import json
import os
import shutil

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import check, kernel_of, session, speak
from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.bench import language_model
from puzzles_lib.bench.__main__ import main as bench
from puzzles_lib.chapters import mistakes
from puzzles_lib.chapters.ch01_blocks.puzzles import MASKED_ADD
from puzzles_lib.chapters.ch09_bit_packing.puzzles import pack_bits
from puzzles_lib.chapters.ch17_normalisation.puzzles import RMS_NORM
from puzzles_lib.chapters.ch22_language_model.puzzles import ROPE
from puzzles_lib.coach.contrast import Contrast
from puzzles_lib.source import define
from puzzles_lib.speaking import packed
from puzzles_lib.speaking.launching import Launcher
from puzzles_lib.speaking.model import Model, Sizes
from puzzles_lib.speaking.steps import STEPS, Decoder
from puzzles_lib.stubs import is_untouched
from tests.conftest import REPO
from tests.kernels import made

TEXT = b"A program loads a block, and "
RECORD = json.loads(packed.WEIGHTS.with_name("record.json").read_text())


def by_kernels() -> dict[str, object]:
    return {step.name: solutions()[step.name] for step in STEPS}


# ---- weights


def test_a_weight_moves_by_half_a_step_at_most():
    w = torch.randn(8, 64, generator=torch.Generator().manual_seed(0))
    found = packed.Packed.of(w)
    step = found.scale.repeat_interleave(packed.GROUP, 1)
    assert ((found.float() - w).abs() <= 0.5 * step + 1e-3 * w.abs().max()).all()
    assert torch.equal(packed.Packed.of(torch.zeros(2, 32)).float(), torch.zeros(2, 32))
    zero = packed.Packed.of(torch.tensor([[0.0] * 31 + [5.0]])).float()
    assert zero[0, :31].abs().max() == 0  # 0 is always one of the sixteen


def test_the_words_are_those_of_puzzle_13():
    w = torch.randn(4, 32, generator=torch.Generator().manual_seed(1))
    found = packed.Packed.of(w)
    codes = (w / found.scale).round() + (found.offset & 15)
    assert torch.equal(found.words, pack_bits(codes.clamp(0, 15).to(torch.uint8), 4))


def test_training_sees_the_weights_that_are_shipped():
    w = torch.randn(3, 4, 64, generator=torch.Generator().manual_seed(2), requires_grad=True)
    seen = packed.rounded(w)
    assert torch.allclose(seen.flatten(0, 1), packed.Packed.of(w.detach().flatten(0, 1)).float(), atol=1e-6)
    seen.square().sum().backward()
    assert torch.allclose(w.grad, 2 * seen.detach())


def test_the_file_is_small_and_is_what_the_record_says(tmp_path):
    assert packed.WEIGHTS.stat().st_size == RECORD["file bytes"] < 10**6
    weights = packed.load()
    model = packed.reference(weights)
    assert sum(p.numel() for p in model.parameters()) == RECORD["parameters"]
    assert RECORD["sizes"] == {name: getattr(Sizes(), name) for name in RECORD["sizes"]}
    assert RECORD["loss"]["held out, 4 bits"] < RECORD["loss"]["held out, float32"] + 0.05
    packed.save(model, tmp_path / "again.npz")
    again = packed.load(tmp_path / "again.npz")
    assert again.keys() == weights.keys()


def test_it_has_learned_the_courses_prose():
    text = torch.tensor(list((REPO / "README.md").read_bytes()[:4097]), dtype=torch.uint8)
    found = language_model.loss_of(packed.reference(packed.load()), text)
    assert found < language_model.loss_of(Model().eval(), text) - 2


# ---- training


def test_the_corpus_is_prose_and_holds_some_of_it_out():
    seen, unseen = language_model.corpus()
    assert len(seen) > 15 * len(unseen) > 150_000
    pieces = language_model.pieces()
    assert not [piece for piece in pieces if "paged_attention_kernel" in piece]  # the chapter about the model
    assert any(piece.startswith("**Takeaway:**") for piece in pieces)


def test_a_run_is_the_same_again_and_learns():
    seen = torch.tensor(list(b"abcd" * 200), dtype=torch.uint8)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        one, two = (language_model.train(4, 2, 1e-3, 7, seen, quiet=True) for _ in range(2))
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    torch.manual_seed(7)
    assert language_model.loss_of(one.eval(), seen) < language_model.loss_of(Model().eval(), seen)


def test_the_command_writes_both_files_and_how_to_make_them_again(tmp_path, monkeypatch, capsys):
    text = torch.tensor(list(b"abcd" * 200), dtype=torch.uint8)
    monkeypatch.setattr(language_model, "corpus", lambda: (text, text[:300]))
    threads = torch.get_num_threads()
    options = ["--steps", "2", "--batch", "2", "--lr", "0.001", "--seed", "7"]
    try:
        assert bench(["language-model", *options, "--out", str(tmp_path)]) == 0
    finally:
        torch.set_num_threads(threads)
    record = json.loads((tmp_path / "record.json").read_text())
    assert json.loads(capsys.readouterr().out) == record and record.keys() == RECORD.keys()
    begin = "python -m puzzles_lib.bench language-model --steps "
    assert record["command"] == begin + "2 --batch 2 --lr 0.001 --seed 7"
    assert RECORD["command"].startswith(begin)
    assert record["file bytes"] == (tmp_path / packed.WEIGHTS.name).stat().st_size


def test_no_byte_sees_a_later_one():
    model = packed.reference(packed.load())
    text = torch.tensor(list(TEXT))
    other = text.clone()
    other[20:] = 65
    with torch.no_grad():
        a, b = model(text[None]), model(other[None])
    assert torch.allclose(a[0, :20], b[0, :20], atol=1e-4) and not torch.allclose(a[0, 20:], b[0, 20:])


# ---- the chain of puzzles


def logits(kernels: dict[str, object], pieces: list[bytes]) -> list[torch.Tensor]:
    decoder = Decoder(packed.load(), Launcher(kernels))
    with torch.inference_mode():
        return [decoder.logits(piece) for piece in pieces]


@pytest.mark.parametrize("kernels", [dict, by_kernels], ids=["torch", "kernels"])
def test_the_chain_computes_the_model(kernels):
    with torch.no_grad():
        wanted = packed.reference(packed.load())(torch.tensor([list(TEXT)]))[0]
    size = wanted.abs().max()
    *_, last = logits(kernels(), [TEXT])
    assert (last - wanted[-1:]).abs().max() < 0.03 * size
    found = torch.cat(logits(kernels(), [TEXT[:20], TEXT[20:21], TEXT[21:22]]))  # over a page's end, too
    assert (found - wanted[[19, 20, 21]]).abs().max() < 0.03 * size


def test_a_puzzle_that_is_not_the_courses_has_no_saved_kernel():
    with pytest.raises(ValueError, match="kernel_of: rope isn't one of the course's puzzles"):
        kernel_of(dataclasses.replace(ROPE, number=""))


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_is_run_by_its_kernel_alone(step, capsys):
    spoken = speak("The mask", {step.name: solutions()[step.name]}, length=2)
    assert spoken.yours == [step.name] and spoken.report is None
    assert spoken.tallies[step.name].bytes > 0
    assert capsys.readouterr().out.strip() == spoken.text.strip()


def test_a_text_is_the_same_by_all_kernels(capsys):
    torch_alone, kernels = (speak("The mask", each, length=6, seed=3) for each in ({}, by_kernels()))
    assert kernels.text == torch_alone.text and len(kernels.yours) == len(STEPS)
    assert str(kernels).startswith("8 of 8 kernels are yours\n")
    assert "% of your kernels' bytes" in str(kernels)
    assert "rope_kernel" in kernels._repr_html_()
    assert [line for line in str(kernels).splitlines() if "torch" in line] == ["torch writes the same text"]
    assert "writes" not in str(torch_alone) and "share" not in torch_alone._repr_html_()


def test_the_router_and_the_nucleus_take_part_if_asked_for(capsys):
    mine = by_kernels() | {name: solutions()[name] for name in ("route", "nucleus_token")}
    by_torch, by_mine = (speak("The mask", each, length=6, seed=3, top_p=0.8) for each in ({}, mine))
    assert by_mine.text == by_torch.text and str(by_mine).startswith("9 of 9 kernels are yours\n")
    assert str(by_torch).startswith("0 of 8 kernels are yours\n")
    names = list(by_mine.tallies)
    assert names.index("route") == names.index("grouped_matmul") - 1 and names[-1] == "nucleus_token"
    assert "sample_token" not in names and by_mine.tallies["route"].launches == 18
    assert speak("The mask", length=6, heat=0, top_p=0.8).text == speak("The mask", length=6, heat=0).text


def test_a_nucleus_of_one_byte_is_heat_0():
    assert speak("The mask", length=12, top_p=1e-6).text == speak("The mask", length=12, heat=0).text


def test_heat_0_takes_the_likeliest_byte():
    (row,) = logits({}, [b"The mask"])
    assert speak("The mask", length=1, heat=0).text.encode()[-1] == int(row.argmax())


def test_a_wrong_kernel_changes_the_text_and_an_unsafe_one_ends_it(capsys):
    plain = speak("The mask", length=12, heat=0).text
    wrong = speak("The mask", {"rope": _wrong("the_other_way")}, length=12, heat=0)
    same = len(os.path.commonprefix([wrong.text, plain]))
    assert wrong.text != plain
    assert f"after {plain[:same]!r}, torch writes {plain[same:]!r}\n" in str(wrong)
    stopped = speak("The mask", {"rope": _wrong("second_half_kept")}, length=12)
    assert stopped.report is not None and "never written" in str(stopped)
    assert str(stopped).startswith("Stopped after 0 bytes")


def _wrong(name: str) -> object:
    (found,) = (each for each in mistakes(ROPE) if each.name == name)
    return made(found, kernel_sources()["rope"]).kernel


@triton.jit
def takes_what_is_not_there(elsewhere_ptr):
    tl.store(elsewhere_ptr, 1.0)


def test_what_is_no_kernel_of_the_puzzle_is_a_verdict():
    for kernel in (takes_what_is_not_there, print, 3):
        assert speak("The mask", {"rope": kernel}, length=1).report is not None


def test_a_mistake_is_run_itself():
    shown = Contrast("rope", "a slip", kernel=_wrong("second_half_kept"))
    assert "never written" in str(speak("The mask", {"rope": shown}, length=1).report)
    assert speak("The mask", {"rope": Contrast("rope", "not yet")}, length=1).yours == []


@pytest.fixture
def fresh(monkeypatch, state_dir):
    """A session without checks."""
    monkeypatch.setattr(session, "_judged", {})
    monkeypatch.setattr(session, "_passed", {})
    monkeypatch.setattr(session, "_last", {})


def test_a_kernel_that_fails_check_is_named(fresh):
    mine = _wrong("the_other_way")
    assert not check(mine, ROPE).ok
    spoken = speak("The mask", {"rope": mine}, length=1)
    name = mine.__name__
    words = f"1 of 8 kernels is yours. The text can be wrong: {name} fails `check`"
    assert str(spoken).startswith(words) and f"{name} (fails check)" in str(spoken)
    assert "--jp-error-color1" in spoken._repr_html_() and words in spoken._repr_html_()


def test_a_kernel_that_was_mended_since_is_called_older(fresh):
    right, other = solutions()["rope"], _wrong("the_other_way")
    wrong = define(kernel_sources()["rope"].replace("- b * s", "+ b * s"), "<rope with a bug>")
    for kernel in (wrong, other):
        assert not check(kernel, ROPE).ok
        assert "fails `check`" in str(speak("The mask", {"rope": kernel}, length=1))
    assert check(right, ROPE).ok
    assert "fails `check`" in str(speak("The mask", {"rope": other}, length=1))
    spoken = speak("The mask", {"rope": wrong}, length=1)
    told = "this rope_kernel is an older version. The one that you have now passes `check`"
    assert told in str(spoken) and "fails `check`" not in str(spoken)
    assert "--jp-error-color1" in spoken._repr_html_()
    assert speak("The mask", {"rope": right}, length=1).doubts == {}


def test_a_kernel_counts_as_checked_only_as_it_is(fresh):
    right = solutions()["rope"]
    unchecked = "rope_kernel hasn't passed `check` as it is now."
    assert unchecked in str(speak("The mask", {"rope": right}, length=1))
    assert check(right, ROPE).ok
    assert speak("The mask", {"rope": right}, length=1).doubts == {}
    session._judged.clear()  # another session, which knows the progress file
    assert speak("The mask", {"rope": right}, length=1).doubts == {}
    edited = define(
        kernel_sources()["rope"].replace("tl.program_id(0)", "tl.program_id(0) + 0"), "<edited rope>"
    )
    assert unchecked in str(speak("The mask", {"rope": edited}, length=1))
    assert check(edited, ROPE).ok
    session._judged.clear()
    assert speak("The mask", {"rope": edited}, length=1).doubts == {}


def test_mistakes_and_open_holes_are_named(fresh):
    shown = Contrast("rope", "a slip", kernel=_wrong("the_other_way"))
    spoken = str(speak("The mask", {"rope": shown}, length=1))
    assert "with a mistake" in spoken
    assert spoken.startswith("0 of 8 kernels are yours. The text can be wrong: ")
    assert "run check to find out" not in spoken and "kernels' bytes" not in spoken
    for more in ({}, {"model": "smollm2"}):
        waits = Contrast("rope", "not yet", wait="Solve it first.")
        spoken = speak("The mask", {"rope": waits}, length=1, **more)
        assert str(spoken) == "Nothing is written, because a mistake isn't shown yet. Solve it first."
        assert spoken.text == "The mask"
    (cell,) = (
        source for each in json.loads((REPO / "notebooks/22_language_model.ipynb").read_text())["cells"]
        if "def rope_kernel(" in (source := "".join(each["source"]))
    )  # fmt: skip
    hole = define(cell.partition("\ncheck(")[0], "<rope with a hole>")
    assert "torch (your lines are missing)" in str(speak("The mask", {"rope": hole}, length=1))


def test_the_steps_that_torch_runs_are_one_row():
    alone = str(speak("The mask", length=1)).splitlines()
    assert len(alone) == 2 and alone[1].startswith("rms norm, quantized matmul, rope, ")
    with_one = str(speak("The mask", {"rope": solutions()["rope"]}, length=1)).splitlines()
    (mine,) = (line for line in with_one if line.startswith("rope "))
    (others,) = (line for line in with_one if line.startswith("rms norm, "))
    assert "rope_kernel" in mine and "rope" not in others and "torch" in others


def test_without_top_p_the_kernel_that_draws_from_the_likely_is_not_used():
    mine = {"nucleus_token": solutions()["nucleus_token"]}
    spoken = speak("The mask", mine, length=2)
    assert spoken.yours == [] and spoken.text == speak("The mask", length=2).text


def test_none_and_an_open_hole_are_torch():
    assert speak("The mask", {"rope": None}, length=1).yours == []
    (notebook,) = (REPO / "notebooks").glob("22_*.ipynb")
    cells = json.loads(notebook.read_text())["cells"]
    (stub,) = ("".join(cell["source"]) for cell in cells if cell["id"] == "p66-kernel")
    stub = define(stub.partition("\n\n\ncheck(")[0], "<stub>")
    spoken = speak("The mask", {"rope": stub}, length=1)
    assert spoken.yours == [] and "torch (your lines are missing)" in str(spoken)


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"prompt": 3}, "prompt must be a string, not int"),
        ({"prompt": ""}, "prompt must have 1 to 255 bytes, but has 0"),
        ({"prompt": "x" * 256}, "prompt must have 1 to 255 bytes, but has 256"),
        ({"kernels": {"masked_add": None}}, "kernels must be among rms_norm"),
        ({"length": 0}, "length must be from 1 to 252 after this prompt, but is 0"),
        ({"length": 253}, "length must be .*, but is 253"),
        ({"length": True}, "length must be .*, but is True"),
        ({"heat": -1}, "heat must be .*, but is -1"),
        ({"heat": float("nan")}, "heat must be .*, but is nan"),
        ({"seed": -1}, "seed must be .*, but is -1"),
        ({"top_p": 0}, "top_p must be a number above 0 and up to 1, or None, but is 0"),
        ({"top_p": True}, "top_p must be .*, but is True"),
        ({"top_p": 0.5, "model": "smollm2"}, "smollm2 draws from all tokens"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    with pytest.raises((TypeError, ValueError), match=words):
        speak(**{"prompt": "text", **arguments})


def test_a_kernel_of_this_session_comes_before_a_saved_one(fresh, monkeypatch):
    monkeypatch.chdir(REPO / "solutions")
    mine = solutions()["rope"]
    assert check(mine, ROPE).ok and kernel_of(ROPE) is mine
    session._passed.clear()
    assert kernel_of(ROPE) is not mine and kernel_of(ROPE).__name__ == "rope_kernel"


def test_a_kernel_of_an_earlier_chapter_is_found_in_its_notebook(fresh, monkeypatch, tmp_path):
    monkeypatch.chdir(REPO / "solutions")
    assert kernel_of(RMS_NORM).__name__ == "rms_norm_kernel" and kernel_of(MASKED_ADD) is not None
    monkeypatch.chdir(tmp_path)
    assert kernel_of(RMS_NORM) is None
    (tmp_path / "17_normalisation.ipynb").write_text("{")
    assert kernel_of(RMS_NORM) is None
    cell = {"source": ["1 / 0\n", "def f(): ...\n", "check(f, RMS_NORM)"]}
    (tmp_path / "17_normalisation.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert kernel_of(RMS_NORM) is None
    with pytest.raises(TypeError, match="puzzle must be a Puzzle, not str"):
        kernel_of("rms_norm")


def test_a_kernel_of_just_the_puzzles_is_found_if_the_chapters_is_not_solved(fresh, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    shutil.copy(REPO / "notebooks" / "01_blocks.ipynb", tmp_path)
    assert is_untouched(kernel_of(MASKED_ADD))
    cell = {"source": kernel_sources()["masked_add"] + "\n\ncheck(masked_add_kernel, MASKED_ADD)"}
    (tmp_path / "just_the_puzzles.ipynb").write_text(json.dumps({"cells": [cell]}))
    assert not is_untouched(kernel_of(MASKED_ADD))
    shutil.copy(REPO / "notebooks" / "just_the_puzzles.ipynb", tmp_path)
    shutil.copy(REPO / "solutions" / "01_blocks.ipynb", tmp_path)
    assert not is_untouched(kernel_of(MASKED_ADD))
