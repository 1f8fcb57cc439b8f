"""Inline assembly: a few dozen of PTX's instructions, on registers that hold one value for each lane.

Triton passes the text of `tl.inline_asm_elementwise` on to NVIDIA's assembler. What is written in practice is
arithmetic on numbers that Triton has no function for: packed conversions, ``ex2.approx``, ``lop3``. Each is
carried out as the PTX manual says; approximate instructions give the exact result. All others (memory,
branches, warps) are refused.
"""

import functools
import re
from collections.abc import Callable, Mapping, Sequence

import numpy as np

Register = np.ndarray
"""The bits of a register, as unsigned integers, for each lane; a predicate is of bool."""


class NotKnown(Exception):
    """An instruction that is not carried out here. The message is the instruction."""


def run(text: str, constraints: str, inputs: Sequence[Register]) -> list[Register]:
    """Return the registers that assembly sets. inputs: those that it reads, in order of the constraints.

    Raises NotKnown if the text has an instruction, or an operand, that is not known here.
    """
    asked = [each.strip() for each in constraints.split(",")]
    count = sum(each.startswith("=") for each in asked)
    if len(asked) - count != len(inputs) or any(not re.fullmatch(r"=?&?[rfhld]", each) for each in asked):
        raise NotKnown(f"constraints {constraints}")
    registers: dict[str, Register] = {f"${count + place}": value for place, value in enumerate(inputs)}
    shape = np.broadcast_shapes(*(each.shape for each in inputs)) if inputs else (1,)
    with np.errstate(all="ignore"):
        for instruction in _instructions(text):
            _carry_out(instruction, registers, shape)
    missing = [f"${place}" for place in range(count) if f"${place}" not in registers]
    if missing:
        raise NotKnown(f"{missing[0]} is never set")
    return [registers[f"${place}"] for place in range(count)]


def _instructions(text: str) -> list[str]:
    lines = [line.partition("//")[0] for line in text.split("\n")]
    parts = " ".join(lines).replace("{", ";").replace("}", ";").replace("\t", " ").split(";")
    found = [" ".join(part.split()) for part in parts]
    return [each for each in found if each and not each.startswith(".reg")]


def _carry_out(instruction: str, registers: dict[str, Register], shape: tuple[int, ...]) -> None:
    name, _, rest = instruction.partition(" ")
    operands = [each.strip() for each in rest.split(",")]
    operation, *parts = name.split(".")
    kinds = [part for part in parts if part in _TYPES]
    compute = _OPERATIONS.get(operation)
    if compute is None or not kinds or len(operands) < 2 or any(" " in each for each in operands):
        raise NotKnown(instruction)
    modes = [part for part in parts if part not in _TYPES]
    if not set(modes) <= _MODES:
        raise NotKnown(instruction)
    given = [_value(each, registers, kinds[-1], instruction) for each in operands[1:]]
    try:
        result = compute(kinds, modes, *given)
    except (TypeError, KeyError, ValueError):
        raise NotKnown(instruction) from None
    registers[operands[0]] = np.broadcast_to(result, np.broadcast_shapes(result.shape, shape))


def _value(operand: str, registers: Mapping[str, Register], kind: str, instruction: str) -> Register:
    if operand in registers:
        return registers[operand]
    width = _TYPES[kind]
    storage = _UNSIGNED[max(width, 16)]
    if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}|0[dD][0-9A-Fa-f]{16}", operand):
        return np.array([int(operand[2:], 16)], storage)
    if re.fullmatch(r"[+-]?(0[xX][0-9A-Fa-f]+|\d+)U?", operand):
        number = int(operand.rstrip("U"), 0)
        return np.array([number % (1 << max(width, 32))]).astype(np.uint64).astype(storage)
    raise NotKnown(instruction)


# ---- types

_TYPES = {
    **{f"{letter}{width}": width for letter in "usb" for width in (8, 16, 32, 64)},
    "f16": 16, "bf16": 16, "f32": 32, "f64": 64, "f16x2": 32, "bf16x2": 32, "pred": 1,
}  # fmt: skip
_UNSIGNED: Mapping[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
_SIGNED: Mapping[int, type[np.signedinteger]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
_FLOATS = {"f16": np.float16, "f32": np.float32, "f64": np.float64}
_MODES = {
    "rn",
    "rz",
    "rni",
    "rzi",
    "lo",
    "approx",
    "ftz",
    "full",
    "sat",
    "wide",
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
}


def numbers(kind: str, bits: Register) -> np.ndarray:
    """Return the numbers that a register's bits stand for."""
    if kind == "pred":
        return bits
    bits = bits.astype(_UNSIGNED[_TYPES[kind]])
    if kind == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32)
    if kind in _FLOATS:
        return bits.view(_FLOATS[kind])
    return bits.view(_SIGNED[_TYPES[kind]]) if kind[0] == "s" else bits


def bits_of(kind: str, values: np.ndarray) -> Register:
    """Return the bits of a register that stand for numbers, which are rounded to the nearest."""
    if kind == "pred":
        return values
    if kind == "bf16":
        bits = np.ascontiguousarray(values.astype(np.float32)).view(np.uint32)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
        return np.where(np.isnan(values), 0x7FFF, rounded).astype(np.uint16)
    if kind in _FLOATS:
        return np.ascontiguousarray(values.astype(_FLOATS[kind])).view(_UNSIGNED[_TYPES[kind]])
    return values.astype(_UNSIGNED[_TYPES[kind]])


def _halves(bits: Register) -> tuple[Register, Register]:
    return (bits & 0xFFFF).astype(np.uint16), (bits >> 16).astype(np.uint16)


def _together(low: Register, high: Register) -> Register:
    return low.astype(np.uint32) | (high.astype(np.uint32) << 16)


# ---- instructions

Compute = Callable[..., Register]


def _elementwise(compute: Callable[..., np.ndarray]) -> Compute:
    """An instruction that computes numbers of its last type; of a packed type, in both halves."""

    def carried_out(kinds: list[str], modes: list[str], *given: Register) -> Register:
        kind = kinds[-1]
        if kind.endswith("x2"):
            half = kind.removesuffix("x2")
            each = zip(*map(_halves, given), strict=True)
            return _together(*(carried_out([half], modes, *part) for part in each))
        values = [numbers(kind, bits) for bits in given]
        wide = kind in ("f16", "bf16")  # one rounding, at the end
        found = compute(*(v.astype(np.float64 if wide else v.dtype) for v in values))
        if "sat" in modes:
            if kind not in ("f16", "f32", "f64"):
                raise TypeError
            found = np.where(np.isnan(found), 0, np.clip(found, 0, 1))
        return bits_of(kind, found)

    return carried_out


def _fma(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    if a.dtype == np.float32:
        return (a.astype(np.float64) * b + c).astype(np.float32)
    return a * b + c


def _multiplied(kinds: list[str], modes: list[str], *given: Register) -> Register:
    kind = kinds[-1]
    if kind[0] in "us" and "wide" in modes:
        wide = f"{kind[0]}{2 * _TYPES[kind]}"
        a, b, *more = given
        product = numbers(kind, a).astype(numbers(wide, np.zeros(1, np.uint64)).dtype) * numbers(kind, b)
        return bits_of(wide, product + numbers(wide, more[0]) if more else product)
    if kind[0] in "us" and "lo" not in modes:
        raise TypeError
    return _elementwise(_fma if len(given) == 3 else np.multiply)(kinds, modes, *given)


def _shift(left: bool) -> Compute:
    def carried_out(kinds: list[str], modes: list[str], bits: Register, by: Register) -> Register:
        kind, width = kinds[-1], _TYPES[kinds[-1]]
        values, by = numbers(kind, bits), by.astype(np.uint64)
        within = np.minimum(by, width - 1).astype(values.dtype)
        moved = values << within if left else values >> within
        all_out = 0 if left or kind[0] != "s" else values >> np.array(width - 1, values.dtype)
        return bits_of(kind, np.where(by >= width, all_out, moved))

    return carried_out


def _lop3(kinds: list[str], _: list[str], a: Register, b: Register, c: Register, table: Register) -> Register:
    found = np.zeros(np.broadcast_shapes(a.shape, b.shape, c.shape), np.uint32)
    for number in range(8):
        if int(table[0]) >> number & 1:
            found |= (a if number & 4 else ~a) & (b if number & 2 else ~b) & (c if number & 1 else ~c)
    return found


def _prmt(kinds: list[str], _: list[str], a: Register, b: Register, choice: Register) -> Register:
    both = a.astype(np.uint64) | (b.astype(np.uint64) << np.uint64(32))
    found = np.zeros(np.broadcast_shapes(a.shape, b.shape, choice.shape), np.uint64)
    for place in range(4):
        which = choice.astype(np.uint64) >> np.uint64(4 * place)
        byte = (both >> (np.uint64(8) * (which & np.uint64(7)))) & np.uint64(0xFF)
        sign = np.where(byte & np.uint64(0x80), np.uint64(0xFF), np.uint64(0))
        found |= np.where(which & np.uint64(8), sign, byte) << np.uint64(8 * place)
    return found.astype(np.uint32)


def _converted(kinds: list[str], modes: list[str], *given: Register) -> Register:
    to, of = kinds
    if to.endswith("x2"):
        high, low = given
        half = to.removesuffix("x2")
        return _together(bits_of(half, numbers(of, low)), bits_of(half, numbers(of, high)))
    values = numbers(of, given[0])
    if values.dtype.kind == "f" and to[0] in "us":
        if "rzi" not in modes and "rni" not in modes:
            raise TypeError
        whole = np.trunc(values) if "rzi" in modes else np.rint(values)
        limits = np.iinfo(_SIGNED[_TYPES[to]] if to[0] == "s" else _UNSIGNED[_TYPES[to]])
        whole = np.where(np.isnan(values), 0.0, whole).astype(np.float64)
        within = np.clip(whole, limits.min, limits.max)
        at_top = whole >= limits.max
        return bits_of(to, np.where(at_top, limits.max, np.where(at_top, 0, within).astype(limits.dtype)))
    if to in ("f16", "bf16", "f32") and "rz" in modes:
        raise TypeError
    return bits_of(to, values)


def _compared(kinds: list[str], modes: list[str], a: Register, b: Register) -> Register:
    (how,) = [mode for mode in modes if mode in _COMPARISONS]
    return _COMPARISONS[how](numbers(kinds[-1], a), numbers(kinds[-1], b))


_COMPARISONS = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


def _approximated(compute: Callable[[np.ndarray], np.ndarray]) -> Compute:
    return _elementwise(lambda x: compute(x.astype(np.float64)))


_OPERATIONS: Mapping[str, Compute] = {
    "mov": _elementwise(lambda x: x),
    "add": _elementwise(np.add),
    "sub": _elementwise(np.subtract),
    "mul": _multiplied,
    "mad": _multiplied,
    "fma": _elementwise(_fma),
    "div": _elementwise(lambda a, b: a / b if a.dtype.kind == "f" else _refused()),
    "min": _elementwise(np.fmin),
    "max": _elementwise(np.fmax),
    "neg": _elementwise(np.negative),
    "abs": _elementwise(np.abs),
    "and": _elementwise(np.bitwise_and),
    "or": _elementwise(np.bitwise_or),
    "xor": _elementwise(np.bitwise_xor),
    "not": _elementwise(np.invert),
    "shl": _shift(left=True),
    "shr": _shift(left=False),
    "lop3": _lop3,
    "prmt": _prmt,
    "cvt": _converted,
    "setp": _compared,
    "selp": lambda kinds, modes, a, b, which: np.asarray(np.where(which, a, b)),
    "ex2": _approximated(np.exp2),
    "lg2": _approximated(np.log2),
    "rcp": _approximated(np.reciprocal),
    "sqrt": _approximated(np.sqrt),
    "rsqrt": _approximated(lambda x: 1 / np.sqrt(x)),
    "sin": _approximated(np.sin),
    "cos": _approximated(np.cos),
    "tanh": _approximated(np.tanh),
}


def _refused() -> np.ndarray:
    raise TypeError


# ---- elements in registers


def packed(data: np.ndarray, count: int) -> list[Register]:
    """Return the registers for a block. An instruction gets ``count`` neighboring elements at a time.

    Raises NotKnown if these elements do not fill whole registers.
    """
    width = 8 * data.itemsize
    if data.size % count:
        raise NotKnown(f"{count} elements at a time, but there are {data.size}")
    bits = np.ascontiguousarray(data).view(_UNSIGNED[width]).reshape(-1, count)
    if width >= 32 or count == 1 and width == 16:
        return [bits[:, place] for place in range(count)]
    each = 32 // width
    if count % each:
        raise NotKnown(f"{count} elements of {width} bits in a register")
    return [
        functools.reduce(
            np.bitwise_or, (bits[:, at + k].astype(np.uint32) << np.uint32(width * k) for k in range(each))
        )
        for at in range(0, count, each)
    ]


def unpacked(registers: Sequence[Register], dtype: np.dtype, count: int) -> np.ndarray:
    """Return the elements of a block that registers hold, as `packed` has put them there."""
    width = 8 * dtype.itemsize
    storage = _UNSIGNED[width]
    if width >= 32 or count == 1:
        parts = [each.astype(storage) for each in registers]
    else:
        parts = [
            (each >> np.uint32(width * k)).astype(storage) for each in registers for k in range(32 // width)
        ]
    return np.ascontiguousarray(np.stack(parts, -1).reshape(-1)).view(dtype)


def registers_of(width: int, count: int) -> int:
    """Return how many registers ``count`` elements of ``width`` bits need."""
    return count if width >= 32 or count == 1 else count * width // 32
