"""The model's attention with a reader's kernel in it: the values, what is said, and the picture."""

import json
import re

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import ch04, ch05, check, session
from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.chapters import mistakes
from puzzles_lib.chapters.ch04_reductions.puzzles import LONG_SOFTMAX
from puzzles_lib.chapters.ch05_flash_attention.puzzles import FLASH_ATTENTION
from puzzles_lib.source import define
from puzzles_lib.speaking import packed
from puzzles_lib.speaking.launching import Launcher
from puzzles_lib.speaking.looking import MOST, PATTERNS, compute
from puzzles_lib.speaking.model import angles, rms_norm, rotate
from tests.conftest import REPO
from tests.kernels import made

TEXT = "A mask hides the end of each ro"
BOTH = {"softmax": (ch04, LONG_SOFTMAX), "attention": (ch05, FLASH_ATTENTION)}


@pytest.fixture
def fresh(monkeypatch, state_dir):
    """A session without checks."""
    for name in ("_judged", "_passed", "_last"):
        monkeypatch.setattr(session, name, {})


@pytest.fixture(params=BOTH)
def chapter_and_puzzle(request):
    return BOTH[request.param]


def exact(text: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights of all heads, and the logits of the next byte, written out in float64."""
    model = packed.reference(packed.load()).double()
    s = model.sizes
    cos, sin = (each[: len(text)].double() for each in angles(s))
    x, weights = model.embedding[torch.tensor([list(text)])], []
    for layer in model.layers:
        heads = rms_norm(x, layer.attention_norm)[0] @ layer.qkv.T
        q, k, _ = heads.unflatten(1, (-1, s.head)).transpose(0, 1).split((s.heads, s.kv_heads, s.kv_heads))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin).repeat_interleave(s.heads // s.kv_heads, 0)
        scores = (q @ k.mT) / s.head**0.5
        hidden = torch.ones(len(text), len(text)).triu(1).bool()
        weights.append(scores.masked_fill(hidden, -torch.inf).softmax(-1))
        x, _ = layer(x, cos, sin)
    return torch.stack(weights), (rms_norm(x, model.norm) @ model.embedding.T)[0, -1]


@torch.no_grad()
def test_a_readers_kernel_computes_the_models_weights(chapter_and_puzzle):
    chapter, puzzle = chapter_and_puzzle
    text = "the mask hides the keys of later words!!"
    assert len(text) == MOST  # more than D, so that 9b's weights take two launches
    found = chapter.pictures.attention(text, solutions()[puzzle.name])
    weights, logits = exact(text.encode())
    for run in (found.run, found.by_torch):
        assert torch.allclose(run.weights.double(), weights, atol=1e-4)
        assert torch.allclose(run.following.double(), logits.softmax(0), atol=1e-4)
    assert found.tally.launches == {"long_softmax": 4, "flash_attention": 36}[puzzle.name]
    assert found.tally.programs and not found.wrong and found.report is None
    assert "torch computes the same weights and results." in str(found)


def test_without_a_kernel_torch_computes_and_it_is_said(chapter_and_puzzle, fresh):
    chapter, puzzle = chapter_and_puzzle
    notebook = json.loads((REPO / "notebooks" / chapter.notebook).read_text())
    (cell,) = (
        source for each in notebook["cells"]
        if f"def {puzzle.name}_kernel(" in (source := "".join(each["source"]))
    )  # fmt: skip
    hole = define(cell.partition("\ncheck(")[0], "<a kernel with a hole>")
    for kernel in (None, hole):
        found = chapter.pictures.attention(TEXT, kernel)
        said = f"torch computed these weights. If you solve puzzle {puzzle.number}, your kernel will"
        assert str(found).startswith(said) and found.tally.kernel == ""
        assert "torch computes the same" not in str(found) and found.doubt == ""


def test_a_kernel_that_passed_is_the_readers_without_remark(chapter_and_puzzle, fresh):
    chapter, puzzle = chapter_and_puzzle
    kernel = solutions()[puzzle.name]
    assert "It hasn't passed `check` as it is now." in str(chapter.pictures.attention("mask", kernel))
    assert check(kernel, puzzle).ok
    found = chapter.pictures.attention("mask", kernel)
    first, second, *_ = str(found).splitlines()
    assert first == f"Your {puzzle.name}_kernel computed these weights" and found.doubt == ""
    assert re.fullmatch(r"It ran \d+ times\. torch computes the same weights and results\.", second)
    assert "error-color" not in found._repr_html_()


def test_a_wrong_kernel_is_named_and_its_weights_are_shown(fresh):
    source = kernel_sources()["long_softmax"]
    wrong = define(source.replace("/ denominator", "* 0.5 / denominator"), "<half>")
    found = ch04.pictures.attention(TEXT, wrong)
    assert str(found).startswith("long_softmax_kernel computed wrong weights\n")
    assert f"of {3 * 4 * len(TEXT) ** 2} weights, of all heads together, differ from torch's" in str(found)
    assert "`check` finds out why" in str(found) and "error-color" in found._repr_html_()
    assert found.run.weights[0, 0, 0, 0] == 0.5 and "A looks at A with 0.50" in str(found)
    assert " By torch: w 97%" in str(found)
    assert not check(wrong, LONG_SOFTMAX).ok
    found = ch04.pictures.attention(TEXT, wrong)
    assert "It fails `check`." in str(found) and "finds out why" not in str(found)
    (slip,) = mistakes(LONG_SOFTMAX)
    assert ch04.pictures.attention(TEXT, made(slip, source).kernel).wrong


def test_an_unmasked_kernel_looks_into_the_future(fresh):
    source = kernel_sources()["flash_attention"]
    line = next(line for line in source.splitlines() if "scores = tl.where(" in line)
    wrong = define(source.replace(line + "\n", ""), "<unmasked>")
    found = ch05.pictures.attention("mask", wrong)
    assert found.wrong and float(found.run.weights[0, 0, 0, 1:].sum()) > 0.01
    assert "computed wrong weights" in str(found)


@triton.jit
def outside_kernel(x_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    tl.store(z_ptr + M * N, tl.load(x_ptr))


@triton.jit
def takes_what_is_not_there(elsewhere_ptr):
    tl.store(elsewhere_ptr, 1.0)


def test_an_unsafe_kernel_is_stopped_and_torch_does_not_take_its_place(fresh):
    found = ch04.pictures.attention("mask", outside_kernel)
    assert found.run is None and found.picture is None and "<svg" not in found._repr_html_()
    assert str(found).startswith("There are no weights, because outside_kernel didn't run to its end\n")
    assert "element 64; z has 64, numbered 0 to 63" in str(found)
    for kernel in (takes_what_is_not_there, print, 3):
        assert ch05.pictures.attention("mask", kernel).report is not None


def test_nan_is_drawn_and_counted(fresh):
    source = kernel_sources()["long_softmax"]
    wrong = define(source.replace("/ denominator", "* float('nan') / denominator"), "<nan>")
    found = ch04.pictures.attention("mask", wrong)
    assert found.wrong == 3 * 4 * 16 and "#d55e00" in found.picture.svg()


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"sentence": 3}, "attention: the sentence must be a string, not int"),
        ({"sentence": ""}, "attention: the sentence must have 1 to 40 bytes, but has 0$"),
        ({"sentence": "x" * 41}, "attention: the sentence must have 1 to 40 bytes, but has 41$"),
        ({"sentence": "é" * 21}, r"but has 42 \(a letter such as é has several\)"),
        ({"layer": 0}, "attention: layer must be from 1 to 3, but is 0"),
        ({"layer": True}, "layer must be from 1 to 3, but is True"),
        ({"head": 5}, "attention: head must be from 1 to 4, but is 5"),
        ({"head": "1"}, "head must be from 1 to 4, but is '1'"),
    ],
)
def test_bad_arguments_are_named(arguments, words):
    for chapter in (ch04, ch05):
        with pytest.raises((TypeError, ValueError), match=words):
            chapter.pictures.attention(**{"sentence": "mask", **arguments})


# ---- the heads


@torch.no_grad()
def test_the_heads_that_are_shown_are_those_that_look_there_most():
    """As chapters 04 and 05, and `looking`, say it of the README."""
    text, sums, counts = (REPO / "README.md").read_bytes(), {}, dict.fromkeys(PATTERNS, 0)
    for start in range(0, len(text) - 128, 128):
        piece = text[start : start + 128]
        weights = compute(piece, LONG_SOFTMAX, Launcher({})).weights
        for name, pattern in PATTERNS.items():
            if places := pattern.places(piece):
                counts[name] += len(places)
                sums[name] = sums.get(name, 0) + pattern.means(piece, weights) * len(places)
    for name, pattern in PATTERNS.items():
        means = sums[name] / counts[name]
        assert divmod(int(means.argmax()), 4) == (pattern.layer - 1, pattern.head - 1)
        want = {"long_softmax": 0.6, "flash_attention": 0.25}[name]
        assert means.max() == pytest.approx(want, abs=0.03)


def test_patterns_are_places_in_the_text():
    before, end = (pattern.places for pattern in PATTERNS.values())
    assert before(b"abc") == [(1, 0), (2, 1)] and before(b"a") == []
    assert end(b"it was, oh my") == [(3, 1), (4, 1), (5, 1), (11, 9), (12, 9)]
    assert end("né à".encode()) == [] and end(b"word") == [] and end(b"a  b") == []


# ---- the picture


@pytest.mark.parametrize("text", ["x", "aé\n\tb", TEXT, "the mask hides the keys of later words!!"])
def test_a_picture_reads_on_a_small_screen(text):
    for chapter in (ch04, ch05):
        picture = chapter.pictures.attention(text).picture
        page = picture.svg()
        width, height = (float(n) for n in re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', page).groups())
        sizes = [float(size) for size in re.findall(r'font-size="([\d.]+)"', page)]
        assert min(sizes) * min(1, 785 / width) > 10.9 and height * min(1, 785 / width) < 860
        assert len(page) < 100_000 and picture.alt.startswith("The weights of head ")


def test_each_byte_has_its_name():
    alt = ch04.pictures.attention("aé\n\tb").picture.alt
    for name in ("a", "C3", "A9", "\\n", "\\t", "b"):
        assert f"{name} looks at " in alt
    assert "average weight of the byte before, by head: layer 1: " in alt
    assert "average weight" not in ch05.pictures.attention("x").picture.alt
