"""A model's weights in 4 bits, in the format of puzzle 12, packed by the course's own `pack_bits`.

A matrix [M, K] has a scale and an offset for each group of 32 weights of a row. A weight is
``scale · (code - offset)``, with codes and offsets from 0 to 15. Norms and routers stay float32.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import grouped_weights
from puzzles_lib.chapters.ch09_bit_packing.puzzles import pack_bits
from puzzles_lib.speaking.model import Model, Sizes

GROUP, TOP = 32, 15
PLACE = Path(__file__).parent
WEIGHTS = PLACE / "weights.npz"
_PARTS = ("words", "scale", "offset")


@dataclass(frozen=True)
class Packed:
    """A matrix [M, K] in 4 bits: int32 words [M, K / 8], float32 scale [M, K / 32], int32 offset words."""

    words: Tensor
    scale: Tensor
    offset: Tensor

    @classmethod
    def of(cls, weight: Tensor) -> "Packed":
        """Return the nearest weights that 4 bits can represent. weight: float [M, K], K a multiple of 32."""
        scale, offset, codes = _codes(weight)
        words = pack_bits(codes.flatten(1).to(torch.uint8), 4)
        return cls(words, scale, pack_bits(offset.to(torch.uint8), 4))

    def float(self) -> Tensor:
        """Return the weights, float32 [M, K]."""
        return grouped_weights(self.words, self.scale, self.offset)

    @property
    def nbytes(self) -> int:
        """The number of bytes on disk, where scales are float16."""
        return self.words.nbytes + self.scale.nbytes // 2 + self.offset.nbytes


def rounded(weight: Tensor) -> Tensor:
    """Return the weights [..., K] as 4 bits represent them; the gradient passes as if they were not."""
    scale, offset, codes = _codes(weight.detach().flatten(0, -2))
    values = scale[:, :, None] * (codes - offset[:, :, None])
    return weight + (values.view(weight.shape) - weight).detach()


def _codes(weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return scale [M, K / 32], offset [M, K / 32] and codes [M, K / 32, 32]."""
    groups = weight.unflatten(1, (-1, GROUP))
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    scale = ((high - low) / TOP).half().float()
    scale = torch.where(scale == 0, 1.0, scale)
    offset = (-low / scale).round().clamp(0, TOP)
    codes = ((groups / scale[:, :, None]).round() + offset[:, :, None]).clamp(0, TOP)
    return scale, offset, codes


def is_packed(name: str) -> bool:
    """Return whether a parameter is stored in 4 bits: all except norms and routers."""
    return not name.endswith(("norm", "router"))


def save(model: Model, file: Path = WEIGHTS) -> int:
    """Write a model's weights and return the file's bytes."""
    arrays: dict[str, np.ndarray] = {}
    for name, weight in model.state_dict().items():
        if is_packed(name):
            packed = Packed.of(weight.flatten(0, -2))
            parts = (packed.words, packed.scale.half(), packed.offset)
            arrays |= {f"{name}.{part}": each.numpy() for part, each in zip(_PARTS, parts, strict=True)}
        else:
            arrays[name] = weight.numpy()
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file.stat().st_size


def load(file: Path = WEIGHTS) -> dict[str, Tensor | Packed]:
    """Return the weights by their names in `Model`."""
    with np.load(file) as arrays:
        found = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    names = dict.fromkeys(name.removesuffix(".words") for name in found if name.endswith(".words"))
    packed = {n: Packed(*(found.pop(f"{n}.{part}") for part in _PARTS)) for n in names}
    return found | {n: Packed(each.words, each.scale.float(), each.offset) for n, each in packed.items()}


def reference(weights: Mapping[str, Tensor | Packed], sizes: Sizes | None = None) -> Model:
    """Return the model in plain torch with these weights."""
    model = Model(sizes)
    shapes = {name: each.shape for name, each in model.state_dict().items()}
    values = {n: w.float().view(shapes[n]) if isinstance(w, Packed) else w for n, w in weights.items()}
    model.load_state_dict(values)
    return model.eval()
