"""Read a model from a file in the format GGUF, version 3: what it says about itself, and its tensors.

It reads the kinds of tensors that `puzzles_lib.speaking.smollm2` needs: F32, Q4_1 and Q8_0. The last two have
blocks of 32 numbers of a row. A block of Q4_1 is a scale and a minimum in float16, and 32 codes of 4 bits:
first the low halves of 16 bytes, then the high ones. A number is ``scale · code + minimum``. A block of Q8_0
is a scale in float16, and 32 codes in int8.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import struct
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

GROUP = 32  # numbers that share a scale
_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_F32, _Q4_1, _Q8_0 = 0, 3, 8
_NAMES = {_F32: "F32", _Q4_1: "Q4_1", _Q8_0: "Q8_0"}
_BLOCK = {
    _Q4_1: np.dtype([("scale", "<f2"), ("low", "<f2"), ("codes", "u1", GROUP // 2)]),
    _Q8_0: np.dtype([("scale", "<f2"), ("codes", "i1", GROUP)]),
}


@dataclass(frozen=True)
class Codes:
    """A matrix [M, K] of which every 32 numbers of a row share a scale and a minimum.

    codes: uint8 [M, K], from 0 to 15. scale, low: float32 [M, K / 32].
    """

    codes: Tensor
    scale: Tensor
    low: Tensor

    def float(self) -> Tensor:
        """Return the numbers, float32 [M, K]."""
        groups = self.codes.unflatten(1, (-1, GROUP))
        return (groups * self.scale[:, :, None] + self.low[:, :, None]).flatten(1)


class File:
    """A file's facts by their names (``info``), and its tensors' shapes (``shapes``), as torch counts axes.

    Raises ValueError, with the file's name, if it isn't GGUF of version 3, or if it ends early.
    """

    def __init__(self, path: Path):
        self.path = path
        with path.open("rb") as file:
            if file.read(8) != b"GGUF" + struct.pack("<I", 3):
                raise ValueError(f"{path} isn't a GGUF file of version 3")
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        self._at = 8
        tensors, facts = self._of("Q"), self._of("Q")
        self.info = {self._string(): self._value(self._of("I")) for _ in range(facts)}
        self._places: dict[str, tuple[int, int]] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        for _ in range(tensors):
            name = self._string()
            self.shapes[name] = tuple(self._of("Q") for _ in range(self._of("I")))[::-1]
            self._places[name] = self._of("I"), self._of("Q")
        step = self.info.get("general.alignment", 32)
        assert isinstance(step, int)
        self._begin = -(-self._at // step) * step

    def tensor(self, name: str) -> Tensor:
        """Return a tensor's numbers, float32. Raises ValueError for another kind than F32, Q4_1 and Q8_0."""
        shape, kind = self.shapes[name], self._places[name][0]
        if kind == _F32:
            size = 4 * int(np.prod(shape))
            return torch.from_numpy(self._bytes(name, size).view("<f4").copy()).view(shape)
        if kind == _Q4_1:
            return self.codes(name).float()
        blocks = self._blocks(name, _Q8_0)
        scale = torch.from_numpy(blocks["scale"].astype(np.float32))
        return (torch.from_numpy(blocks["codes"].copy()) * scale[:, :, None]).flatten(1)

    def codes(self, name: str) -> Codes:
        """Return a matrix of kind Q4_1. Raises ValueError for any other kind."""
        blocks = self._blocks(name, _Q4_1)
        halves = torch.from_numpy(blocks["codes"].copy())
        codes = torch.cat((halves & 15, halves >> 4), dim=2).flatten(1)
        scale, low = (torch.from_numpy(blocks[part].astype(np.float32)) for part in ("scale", "low"))
        return Codes(codes, scale, low)

    def _blocks(self, name: str, kind: int) -> np.ndarray:
        """Return a matrix's blocks, [M, K / 32]."""
        found, (rows, columns) = self._places[name][0], self.shapes[name]
        if found != kind:
            raise ValueError(
                f"{self.path.name}: {name} must have type {_NAMES[kind]}, "
                f"but has type {_NAMES.get(found, found)}"
            )
        shape = rows, columns // GROUP
        return self._bytes(name, rows * shape[1] * _BLOCK[kind].itemsize).view(_BLOCK[kind]).reshape(shape)

    def _bytes(self, name: str, size: int) -> np.ndarray:
        return self._slice(self._begin + self._places[name][1], size)

    def _slice(self, first: int, size: int) -> np.ndarray:
        if first + size > len(self._data):
            raise ValueError(f"{self.path} ends early: it has {len(self._data)} bytes")
        return np.asarray(self._data[first : first + size])

    # ---- the head, field by field

    def _of(self, kind: str) -> int:
        """Return the next number."""
        (value,) = struct.unpack(f"<{kind}", self._next(struct.calcsize(f"<{kind}")))
        return value

    def _string(self) -> str:
        return self._next(self._of("Q")).decode()

    def _next(self, size: int) -> bytes:
        self._at += size
        return bytes(self._slice(self._at - size, size))

    def _value(self, kind: int) -> object:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            inner, count = self._of("I"), self._of("Q")
            return [self._value(inner) for _ in range(count)]
        return self._of(_FIXED[kind])
