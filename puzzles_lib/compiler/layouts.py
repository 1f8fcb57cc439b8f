"""Read layouts of Triton's GPU dialect: which thread holds which element of a tensor, in which register.

A layout is read from TTGIR, where it is an attribute:

    layout = read_layout(ttgir, "#blocked", shape=(1024,))
    layout.holders((700,))  # ((warp, lane, register), ...)

All sizes are powers of two, so a layout is linear over bits. Each bit of the register's, the lane's and the
warp's number moves the element by a fixed step along one axis. (The step is 0 if several threads hold the
same element.) The steps of all bits that are set add up. Triton computes with its layouts in the same way,
see https://arxiv.org/abs/2505.23819.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import triton

from puzzles_lib import versions

Step = tuple[int, ...]
Holder = tuple[int, int, int]


@dataclass(frozen=True)
class Layout:
    """A map from (register, lane, warp) to an element: each bit of these numbers moves it by one step.

    name: what it was read from, such as ``"#blocked"``.
    shape: that of the tensor. register, lane, warp: a step for each bit, the lowest first.
    """

    name: str
    shape: tuple[int, ...]
    register: tuple[Step, ...]
    lane: tuple[Step, ...]
    warp: tuple[Step, ...]

    @property
    def registers(self) -> int:
        """Return how many elements each thread holds."""
        return 1 << len(self.register)

    @property
    def lanes(self) -> int:
        """Return the number of threads in a warp."""
        return 1 << len(self.lane)

    @property
    def warps(self) -> int:
        return 1 << len(self.warp)

    @cached_property
    def table(self) -> np.ndarray:
        """Return int [warps, lanes, registers, axes]: the element that each thread holds in each register."""
        parts = [_sums(steps, len(self.shape)) for steps in (self.warp, self.lane, self.register)]
        return parts[0][:, None, None] ^ parts[1][None, :, None] ^ parts[2][None, None, :]

    def element(self, warp: int, lane: int, register: int) -> tuple[int, ...]:
        """Return the element that a thread holds in one of its registers."""
        return tuple(int(i) for i in self.table[warp, lane, register])

    def holders(self, element: Sequence[int]) -> tuple[Holder, ...]:
        """Return every (warp, lane, register) that holds an element, the lowest first.

        Raises ValueError for an element outside the tensor.
        """
        if len(element) != len(self.shape) or any(
            not 0 <= i < n for i, n in zip(element, self.shape, strict=True)
        ):
            raise ValueError(f"element {tuple(element)} is not in a tensor of shape {self.shape}")
        found = np.argwhere((self.table == np.array(element)).all(-1))
        return tuple((int(w), int(t), int(r)) for w, t, r in found)


def _sums(steps: Sequence[Step], axes: int) -> np.ndarray:
    """Return int [2 ** bits, axes]: the sum of the steps of each number's bits."""
    places = np.zeros((1, axes), int)
    for step in steps:
        places = np.concatenate([places, places ^ np.array(step)])
    return places


def read_layout(ir: str, name: str, shape: Sequence[int]) -> Layout:
    """Return the layout called ``name`` in TTGIR, for a tensor of this shape.

    name: ``"#blocked"``, or a whole attribute: ``"#ttg.slice<{dim = 1, parent = #blocked}>"``.

    Raises ValueError for a name that the text does not define, for a kind of layout that is not supported,
    and for sizes that are not powers of two. Supported are blocked, slice, linear, nvidia_mma (2 and 3),
    amd_mfma, and dot_op of an nvidia_mma 2.
    """
    shape = tuple(int(n) for n in shape)
    if any(n < 1 or n & (n - 1) for n in shape):
        raise ValueError(f"shape must be a power of two, but is {shape}")
    kind, fields = _attribute(ir, name)
    if kind not in _KINDS:
        raise ValueError(f"{name} must be of kind {', '.join(_KINDS)}, but is of kind {kind}")
    built = _KINDS[kind](ir, fields, shape)
    return Layout(name, shape, *built)


# ---- reading attributes


def _attribute(ir: str, name: str) -> tuple[str, Mapping[str, Any]]:
    """Kind and fields of an attribute, ``#ttg.kind<{field = value, ...}>``, or of what a name stands for."""
    text = name.strip()
    if "<" not in text:
        found = re.search(rf"^{re.escape(text)} = (#.*)$", ir, re.MULTILINE)
        if not found:
            known = ", ".join(re.findall(r"^(#\w+) = #ttn?g\.", ir, re.MULTILINE)) or "none"
            raise ValueError(f"no layout is called {name!r}; there are: {known}")
        text = found[1].strip()
    parsed = re.fullmatch(r"#ttn?g\.(\w+)<\{(.*)\}>", text)
    if not parsed:
        raise ValueError(f"{text!r} is not a layout")
    return parsed[1], {key: _value(value) for key, value in _fields(parsed[2])}


def _fields(text: str) -> list[tuple[str, str]]:
    """``a = 1, b = [2, 3]`` as pairs."""
    halves = (part.split("=", 1) for part in _parts(text))
    return [(name.strip(), value.strip()) for name, value in halves]


def _value(text: str) -> object:
    if text.startswith("["):
        inner = text[1:-1].strip()
        return [_value(part) for part in _parts(inner)] if inner else []
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    return {"true": True, "false": False}.get(text, text)


def _parts(text: str) -> list[str]:
    """What commas part, except for those within brackets."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[<{(") - (character in "]>})")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return [part.strip() for part in parts]


def blocks(types: str) -> Iterator[tuple[tuple[int, ...], str]]:
    """Yield the shape and the layout's name of each block in a text of types."""
    for match in re.finditer(r"tensor<((?:\d+x)+)", types):
        depth, parts = 1, [""]
        for character in types[match.end() :]:
            depth += (character in "<[{(") - (character in ">]})")
            if depth == 0:
                break
            if character == "," and depth == 1:
                parts.append("")
            else:
                parts[-1] += character
        yield tuple(int(n) for n in match[1][:-1].split("x")), parts[-1].strip()


# ---- from fields to steps


class _Steps:
    """Hands out bits to registers, lanes and warps, axis by axis, until the tensor is covered."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        self.reached = [1] * len(shape)
        self.register: list[Step] = []
        self.lane: list[Step] = []
        self.warp: list[Step] = []

    def give(self, to: list[Step], count: int, axis: int | None) -> None:
        """Take ``count`` neighbors along an axis. Past the tensor's end, elements are held again."""
        for _ in range(count.bit_length() - 1):
            step = [0] * len(self.shape)
            if axis is not None and self.reached[axis] < self.shape[axis]:
                step[axis] = self.reached[axis]
                self.reached[axis] *= 2
            to.append(tuple(step))

    def repeat(self, order: Sequence[int]) -> tuple[tuple[Step, ...], ...]:
        """Cover the rest of the tensor with more registers of every thread."""
        for axis in order:
            self.give(self.register, self.shape[axis] // self.reached[axis], axis)
        return tuple(self.register), tuple(self.lane), tuple(self.warp)


_REPEATED = versions.has_repeated_registers(triton.__version__)


def _blocked(ir: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> tuple:
    steps = _Steps(shape)
    for to, key in (
        (steps.register, "sizePerThread"),
        (steps.lane, "threadsPerWarp"),
        (steps.warp, "warpsPerCTA"),
    ):
        for axis in fields["order"]:
            most = shape[axis] if key == "sizePerThread" and not _REPEATED else fields[key][axis]
            steps.give(to, min(fields[key][axis], most), axis)
    return steps.repeat(fields["order"])


def _slice(ir: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> tuple:
    """One axis of the parent is dropped: threads that differ along it hold the same element."""
    axis = fields["dim"]
    parent = read_layout(ir, fields["parent"], shape[:axis] + (1,) + shape[axis:])
    drop = [
        tuple(step[:axis] + step[axis + 1 :] for step in steps)
        for steps in (parent.register, parent.lane, parent.warp)
    ]
    return tuple(step for step in drop[0] if any(step)), drop[1], drop[2]


def _linear(ir: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> tuple:
    return tuple(tuple(tuple(step) for step in fields[key]) for key in ("register", "lane", "warp"))


def _nvidia_mma(ir: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> tuple:
    """Accumulators of mma.sync (2) and wgmma (3): PTX ISA, "Matrix Fragments for mma.m16n8k16"."""
    m, n = 0, 1
    steps = _Steps(shape)
    steps.give(steps.register, 2, n)
    steps.give(steps.lane, 4, n)
    steps.give(steps.lane, 8, m)
    steps.give(steps.register, 2, m)
    across, down = fields["warpsPerCTA"][n], fields["warpsPerCTA"][m]
    if fields["versionMajor"] == 2:
        steps.give(steps.warp, across, n)
        steps.give(steps.warp, down, m)
    elif fields["versionMajor"] == 3:
        steps.give(steps.register, fields["instrShape"][n] // 8, n)
        steps.give(steps.warp, down, m)
        steps.give(steps.warp, across, n)
    else:
        raise ValueError(f"nvidia_mma must have version 2 or 3, but has {fields['versionMajor']}")
    return steps.repeat((n, m))


def _dot_op(ir: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> tuple:
    """Operands of mma.sync, from registers. Warps side by side need the same rows of x, and so on."""
    kind, parent = _attribute(ir, fields["parent"])
    if kind != "nvidia_mma" or parent["versionMajor"] != 2:
        raise ValueError("dot_op can only be read for an nvidia_mma of version 2")
    down, across = parent["warpsPerCTA"]
    steps = _Steps(shape)
    if fields["opIdx"] == 0:  # [m, k]
        other, k = 0, 1
    else:  # [k, n]
        k, other = 0, 1
    steps.give(steps.register, fields["kWidth"], k)
    steps.give(steps.lane, 4, k)
    steps.give(steps.lane, 8, other)
    if fields["opIdx"] == 0:
        steps.give(steps.register, 2, other)
        steps.give(steps.register, 2, k)
        steps.give(steps.warp, across, None)
        steps.give(steps.warp, down, other)
    else:
        steps.give(steps.register, 2, k)
        steps.give(steps.warp, across, other)
        steps.give(steps.warp, down, None)
    return steps.repeat((k, other))


def _amd_mfma(ir: str, fields: Mapping[str, Any], shape: tuple[int, ...]) -> tuple:
    """Accumulators of v_mfma: a thread holds groups of 4 along one side, lanes lie along the other."""
    side = fields["instrShape"][0]
    along, lanes = (1, 0) if fields["isTransposed"] else (0, 1)
    steps = _Steps(shape)
    steps.give(steps.register, 4, along)
    steps.give(steps.lane, side, lanes)
    steps.give(steps.lane, 64 // side, along)
    steps.give(steps.register, side // (4 * (64 // side)), along)
    for axis in (1, 0):
        steps.give(steps.warp, fields["warpsPerCTA"][axis], axis)
    return steps.repeat((1, 0))


_KINDS = {
    "blocked": _blocked,
    "slice": _slice,
    "linear": _linear,
    "nvidia_mma": _nvidia_mma,
    "dot_op": _dot_op,
    "amd_mfma": _amd_mfma,
}


__all__ = ["Layout", "read_layout"]
