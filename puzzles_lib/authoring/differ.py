"""Random kernels, whose results in the guarded interpreter are compared with a GPU's.

    python -m puzzles_lib.authoring.differ kernels.pt --make 2000  # anywhere, some 0.1 s each
    python -m puzzles_lib.authoring.differ kernels.pt --compare  # where there is a GPU

Each computes an expression of blocks and scalars of all dtypes, extreme values among them, or goes through
loops, masked loads, stores of another dtype, or atomics. Kept are those that the compiler takes and whose
results are defined. ``--compare`` needs a Triton that runs them, not the pinned one. Integers must be equal,
floats agree within 0.002 of themselves, since some operations are approximate on a GPU.

On an H100 with Triton 3.6.0, November 2026: of the 1,509 kernels that ``--make 1800 --first 20000`` keeps, 3
differ. Two take the remainder of a quotient, whose last bit the GPU approximates; the third is
``tl.atomic_min`` of NaN. Others have shown ``-x`` of an int16 of -32768, widened at once: ptxas makes 32768
of it.
"""

import argparse
import contextlib
import linecache
import multiprocessing
import os
import queue
import random
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

N = 64  # lanes of each block
SILENT = 60  # seconds, after which a kernel is taken to be endless
TOGETHER = 6  # kernels that a GPU compiles as one
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
NAMES = {name: name.replace("uint", "u").replace("int", "i") for name in INTEGERS}
NAMES |= {name: name.replace("bfloat", "bf").replace("float", "f") for name in FLOATS} | {"bool": "b"}
BLOCKS = tuple(NAMES.values())  # as the kernels name them
TYPES = {short: f"tl.{name}" for name, short in NAMES.items()} | {"b": "tl.int1"}
SCALARS = {"L": 5_000_000_000, "S": 37, "T": -5, "F": 2.5, "ONE": 1, "B": N}
CONSTANTS = ("0", "1", "2", "3", "-1", "-2", "5", "7", "16", "127", "255", "-128", "65535", "2147483647",
             "-2147483648", "4294967295")  # fmt: skip
ATOMIC = ("i32", "u32", "i64", "u64", "f32", "f64", "f16", "bf16")
Statements = tuple[str, ...]
HEAD = (
    """
@triton.jit
def add(a, b):
    return a + b

@triton.jit
def pick(a, b):
    return tl.where(a > b, a, b)

@triton.jit
def exchanged(a, b):
    return b, a

@triton.jit
def early(a, n):
    if n > 3:
        return a + 1
    return a

@triton.jit
def kernel("""
    + "".join(f"{name}_ptr, a_{name}_ptr, " for name in BLOCKS)
    + "zf_ptr, zi_ptr, L, S, T, F, ONE, B: tl.constexpr):\n    o = tl.arange(0, B)\n"
    + "".join(f"    {name} = tl.load({name}_ptr + o)\n" for name in BLOCKS)
)
TAIL = """    if r.dtype.is_floating():
        tl.store(zf_ptr + {k} * B + o, r.to(tl.float64))
    else:
        tl.store(zi_ptr + {k} * B + o, r.to(tl.int64))
"""


@dataclass(frozen=True)
class Kept:
    """A kernel's number and its statements, which make ``r``; and r as the interpreter has it, or not.

    floats: float64 [N], NaN where r is no float. integers: int64 [N], 0 where it is one.
    """

    number: int
    statements: Statements
    floats: torch.Tensor
    integers: torch.Tensor


# ---- kernels


class Writer:
    """Writes the statements of one kernel, always the same for the same number."""

    def __init__(self, number: int):
        self.draw = random.Random(number)

    def one(self, *choices: str) -> str:
        return self.draw.choice(choices)

    def kernel(self) -> Statements:
        makers = (self.plain, self.plain, self.plain, self.plain, self.loop, self.atomic, self.memory,
                  self.blocks, self.blocks, self.scalar)  # fmt: skip
        return tuple(self.draw.choice(makers)())

    def integer(self, depth: int) -> str:
        one, less = self.one, depth - 1
        kind = self.draw.random()
        if depth <= 0 or kind < 0.25:
            return one(*BLOCKS[: len(INTEGERS)], "o", "S", "T", "ONE", "b", "i32", "i8", "u8")
        if kind < 0.32:
            return f"({self.integer(less)} {one(*'+-*&|^')} {one(*CONSTANTS)})"
        if kind < 0.52:
            return f"({self.integer(less)} {one(*'+-*&|^')} {self.integer(less)})"
        if kind < 0.58:
            by = one("3", "7", "2", "16", "-3", "(o + 1)", "(i32 & 7 | 1)", "S", "T", "((u8 & 15) + 1)")
            return f"({self.integer(less)} {one('//', '%')} {by})"
        if kind < 0.63:
            by = one("1", "3", "7", "(o & 7)", "(u8 & 7)", "(i32 & 3)")
            return f"({self.integer(less)} {one('<<', '>>')} {by})"
        if kind < 0.66:
            return f"({one('-', '~')}{self.integer(less)})"
        if kind < 0.72:
            return f"({self.integer(less)}).to({one(*TYPES.values())})"
        if kind < 0.75:
            return f"tl.{one('minimum', 'maximum')}({self.integer(less)}, {self.integer(less)})"
        if kind < 0.79:
            return f"tl.where({self.mask(less)}, {self.integer(less)}, {one(self.integer(less), *CONSTANTS)})"
        if kind < 0.81:
            return f"tl.abs({self.integer(less)})"
        if kind < 0.87:
            how = one("sum", "max", "min", "xor_sum", "cumsum", "argmax", "argmin", "sort", "flip")
            return f"tl.{how}({self.whole(self.integer(less))}, 0)"
        if kind < 0.91:
            how = one("reduce", "associative_scan")
            return f"tl.{how}({self.whole(self.integer(less))}, 0, {one('add', 'pick')})"
        if kind < 0.93:
            return f"tl.cdiv({self.integer(less)}, {one('3', '8', '(o + 1)')})"
        if kind < 0.94:
            return f"tl.gather({self.whole(self.integer(less))}, (o * 5 + 3) % B, 0)"
        if kind < 0.96:
            return f"({self.mask(less)} {one(*'+*-|&')} {one(self.mask(less), self.integer(less))})"
        if kind < 0.98:
            return one(
                "i32.to(tl.uint32, bitcast=True)",
                "u8.to(tl.int8, bitcast=True)",
                "f32.to(tl.int32, bitcast=True)",
                "bf16.to(tl.uint16, bitcast=True)",
                "tl.umulhi(i32, u32)",
                "tl.umulhi(u64, i64)",
            )
        return f"tl.clamp({self.floating(less)}, -100.0, 90.0).to({one('tl.int8', 'tl.int32', 'tl.int64')})"

    def mask(self, depth: int) -> str:
        one, less = self.one, depth - 1
        kind = self.draw.random()
        if depth <= 0 or kind < 0.15:
            return one("b", "(o < 20)", "(i32 > 0)", "(f32 > 0)")
        relation = one("<", "<=", ">", ">=", "==", "!=")
        if kind < 0.55:
            return f"({self.integer(less)} {relation} {one(self.integer(less), *CONSTANTS)})"
        if kind < 0.7:
            return f"({self.floating(less)} {relation} {self.floating(less)})"
        if kind < 0.85:
            return f"({self.mask(less)} {one('&', '|', '^', '==')} {self.mask(less)})"
        return (
            f"({one('~', 'not ')}{self.mask(less)})" if kind < 0.93 else f"({self.integer(less)}).to(tl.int1)"
        )

    def floating(self, depth: int) -> str:
        one, less = self.one, depth - 1
        kind = self.draw.random()
        if depth <= 0 or kind < 0.25:
            return one("f16", "bf16", "f32", "f64", "f32", "f16", "F", "0.5")
        if kind < 0.45:
            return (
                f"({self.floating(less)} {one(*'+-*')} {one(self.floating(less), self.integer(less), '2')})"
            )
        if kind < 0.54:
            value = one(self.floating(less), self.integer(less))
            return f"({value} / {one('3.0', '(o + 1)', 'f32', 'i32', '7', 'S')})"
        if kind < 0.60:
            value, to = one(self.floating(less), self.integer(less)), NAMES[one(*FLOATS)]
            return f"({value}).to({TYPES[to]})"
        if kind < 0.66:
            return f"tl.{one('minimum', 'maximum')}({self.floating(less)}, {self.floating(less)})"
        if kind < 0.72:
            return f"tl.where({self.mask(less)}, {self.floating(less)}, {self.integer(less)})"
        if kind < 0.80:
            return one(
                f"tl.{one('abs', 'floor', 'ceil')}({self.floating(less)})", f"(-{self.floating(less)})"
            )
        if kind < 0.88:
            how = one("max", "min", "argmax", "argmin", "sort", "flip", "sum", "cumsum")
            return f"tl.{how}(tl.broadcast_to({self.floating(less)}, (B,)), 0)"
        if kind < 0.92:
            how = one("exp", "exp2", "sqrt", "sin", "cos", "log", "rsqrt", "sigmoid", "erf")
            return f"tl.{how}({self.floating(less)}.to(tl.float32))"
        if kind < 0.94:
            return f"tl.fma({self.floating(less)}, {self.floating(less)}, {self.floating(less)})"
        if kind < 0.97:
            return one(f"tl.clamp({self.floating(less)}, -2.0, 3.0)", f"({self.floating(less)} % 3.0)")
        return one(
            "i32.to(tl.float32, bitcast=True)",
            "u16.to(tl.bfloat16, bitcast=True)",
            "tl.rand(7, o)",
            "tl.div_rn(f32, 3.0)",
            "f32.to(tl.float8e5).to(tl.float32)",
            "f32.to(tl.float8e4nv).to(tl.float32)",
        )

    def whole(self, value: str) -> str:
        """The value as a block of N."""
        zeros = f"tl.zeros((B,), {self.one('tl.int8', 'tl.uint8', 'tl.int1', 'tl.int32', 'tl.int16')})"
        return self.one(f"({value}) + {zeros}", f"tl.broadcast_to({value}, (B,))")

    def any(self, depth: int) -> str:
        return self.one(self.integer(depth), self.integer(depth), self.floating(depth), self.mask(depth))

    def plain(self) -> list[str]:
        return [f"r = {self.any(self.draw.randint(1, 3))}"]

    def loop(self) -> list[str]:
        steps = self.one(
            "range(5)", "range(-3, 4)", "range(S, T, -7)", "tl.static_range(4)", "tl.range(2, 9, 3)"
        )
        value = f"({self.integer(2)} {self.one(*'+*^-')} j)"
        return [
            f"r = {self.one('o', 'i32', 'i64', 'u32', 'tl.zeros((B,), tl.int32)', '0', 'S * 1')}",
            f"for j in {steps}:",
            f"    r {self.one(*'+^-*')}= {self.one(value, 'j // 2', '(j - 1) % 4', 'j * j', '(j << 3)')}",
        ]

    def atomic(self) -> list[str]:
        name = self.one(*ATOMIC)
        place = f"a_{name}_ptr + KK * B + o"
        if name in ("f16", "bf16"):
            how = "add"
        elif name in ("f32", "f64"):
            how = self.one("add", "max", "min", "xchg")
        else:
            how = self.one("add", "max", "min", "and", "or", "xor", "xchg", "cas")
        value = f"({self.floating(1) if 'f' in name else self.integer(1)}).to({TYPES[name]})"
        operands = f"({name} - 1), {value}" if how == "cas" else value
        return [
            f"t = tl.atomic_{how}({place}, {operands})",
            f"r = tl.where(o % 2 == 0, tl.load({place}), t)",
        ]

    def memory(self) -> list[str]:
        name = self.one(*BLOCKS)
        if self.draw.random() < 0.6:
            place = f"a_{name}_ptr + KK * B + o"
            return [f"tl.store({place}, {self.any(2)})", f"r = tl.load({place})"]
        other = self.one("0", "-1", "300", "2.5", "True", "S", "F", "i8", self.any(1))
        return [f"r = tl.load({name}_ptr + o, mask={self.mask(1)}, other={other})"]

    def blocks(self) -> list[str]:
        one = self.one
        some = self.integer if self.draw.random() < 0.5 else self.floating
        left, right = (f"tl.broadcast_to({some(1)}, (B,))" for _ in range(2))
        kind = self.draw.random()
        if kind < 0.25:
            how = one("sum", "max", "min", "argmax", "argmin")
            return [
                f"m = {left}[:, None] {one(*'+*-')} {right}[None, :]",
                f"r = tl.{how}(m, {one('0', '1')})",
            ]
        if kind < 0.4:
            result = one("p - q", "q", "tl.sum(m, 1)", "tl.max(m, 1)")
            return [f"m = tl.join({left}, {right})", "p, q = tl.split(m)", f"r = {result}"]
        if kind < 0.5:
            return [f"m = tl.interleave({left}, {right})", "r = tl.sum(tl.reshape(m, (64, 2)), 1)"]
        if kind < 0.65:
            how = one("cumsum(m, 1)", "sort(m, 1)", "flip(m, 1)", "trans(m)")
            return [f"m = tl.reshape({left}, (4, 16))", f"r = tl.reshape(tl.{how}, (B,))"]
        if kind < 0.8:
            dtype = one("tl.float16", "tl.bfloat16", "tl.float32", "tl.int8")
            values = [f"tl.clamp(({self.floating(1)}).to(tl.float32), -9.0, 8.0)" for _ in range(2)]
            if dtype == "tl.int8":
                values = [self.integer(1), self.integer(1)]
            x, y = (f"tl.broadcast_to({value}, (B,)).to({dtype})" for value in values)
            return [
                f"m = {x}[:, None] + (o % 3).to({dtype})[None, :]",
                f"w = (o % 5).to({dtype})[:, None] - {y}[None, :]",
                f'r = tl.sum(tl.dot(m, w, input_precision="ieee"), {one("0", "1")})',
            ]
        if kind < 0.85:
            return ["r = tl.histogram(i32 & 63, B)"]
        if kind < 0.92:
            return [f"p, q = exchanged({self.any(1)}, {self.any(1)})", f"r = {one('p', 'q')}"]
        return [f"r = early({self.any(1)}, {one('S', 'T')})"]

    def number(self, depth: int) -> str:
        """A scalar."""
        one, kind = self.one, self.draw.random()
        if depth <= 0:
            return one(
                "S", "T", "ONE", "tl.program_id(0)", "B", "3", "-7", "L", "2147483647", "tl.sum(i32, 0)"
            )
        if kind < 0.6:
            operator = one("+", "-", "*", "//", "%", "&", "|", "^")
            return f"({self.number(depth - 1)} {operator} {one(self.number(depth - 1), '3', '7', '-2', 'S')})"
        if kind < 0.8:
            how = one("min", "max", "tl.minimum", "tl.maximum")
            return f"{how}({self.number(depth - 1)}, {self.number(depth - 1)})"
        return one(
            f"({self.number(depth - 1)} / 3.0)", f"(-{self.number(depth - 1)})", f"({self.number(0)} * F)"
        )

    def scalar(self) -> list[str]:
        one, kind = self.one, self.draw.random()
        if kind < 0.5:
            return [f"r = {self.number(3)} + {one('o', '0', 'tl.zeros((B,), tl.int64)')}"]
        if kind < 0.75:
            return [
                f"r = {self.number(2)} * 1",
                f"if {self.number(1)} {one('<', '>', '==', '!=')} {self.number(1)}:",
                f"    r = r {one(*'+*-')} {one('3', 'S', 'T')}",
                "else:",
                "    r = r - 3",
            ]
        step = f"    r = r * {one('3', '-7', 'n')} + n"
        return [
            f"r = {one('S', 'L')} * 1",
            "n = S",
            f"while n > {one('3', 'T')}:",
            step,
            f"    n -= {one('5', '9')}",
        ]


def source_of(kernels: Sequence[Statements]) -> str:
    """One kernel that does the work of these, each with rows of its own in what is stored."""
    body = ""
    for k, statements in enumerate(kernels):
        body += "".join(f"    {line.replace('KK', str(k))}\n" for line in statements) + TAIL.format(k=k)
    return HEAD + body


def inputs() -> dict[str, torch.Tensor]:
    """By the name that a kernel has for it, a block of each dtype."""
    draw = random.Random(7)
    found = {}
    for name in INTEGERS:
        limits = torch.iinfo(getattr(torch, name))
        values = [limits.min, limits.max, 0, 1, 2, 3, 7, limits.max - 1, limits.min + 1, 100, 64, 31]
        values += [draw.randint(limits.min, limits.max) for _ in range(26)]
        values += [draw.randint(max(limits.min, -20), 20) for _ in range(N - len(values))]
        draw.shuffle(values)
        found[NAMES[name]] = torch.tensor(values, dtype=getattr(torch, name))
    for name in FLOATS:
        floats = [0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 1e-4, 3e4, -3e4, 1 / 3]
        floats += [float("inf"), float("-inf"), float("nan")]
        floats += [draw.gauss(0, 10) for _ in range(N - len(floats))]
        draw.shuffle(floats)
        found[NAMES[name]] = torch.tensor(floats, dtype=getattr(torch, name))
    return found | {"b": torch.tensor([draw.random() < 0.5 for _ in range(N)])}


def arguments(kernels: int, device: str = "cpu") -> dict[str, object]:
    """What so many kernels in one are launched with."""
    given = {f"{name}_ptr": block.to(device) for name, block in inputs().items()}
    given |= {f"a_{name}": block.repeat(kernels) for name, block in given.items()}
    given["zf_ptr"] = torch.full((kernels * N,), float("nan"), dtype=torch.float64, device=device)
    given["zi_ptr"] = torch.zeros(kernels * N, dtype=torch.int64, device=device)
    return {**given, **SCALARS}


# ---- here


def made(number: int) -> Kept | str:
    """A kernel with its results, or why it is not kept."""
    from puzzles_lib.compiler import front_end
    from puzzles_lib.runner import run
    from puzzles_lib.source import define

    statements = Writer(number).kernel()
    name = f"<differ {number}>"
    kernel = define(source_of([statements]), name)
    given = arguments(1)
    refusal = front_end(kernel, given)
    if refusal:
        return f"refused: {refusal.message}"
    outputs = [parameter for parameter in given if parameter.startswith(("a_", "z"))]
    done = run(kernel, given, (1, 1, 1), outputs, zeroed=outputs, quiet=True, as_compiled=True)
    linecache.cache.pop(name, None)
    if done.stop or done.undefined:
        return f"stopped: {done.stop.message}" if done.stop else f"undefined: {done.undefined}"
    return Kept(number, statements, done.outputs["zf"].clone(), done.outputs["zi"].clone())


def make(first: int, count: int, file: str) -> None:
    kept: list[Kept] = []
    reasons: dict[str, int] = {}
    for number in range(first, first + count):
        found = made(number)
        if isinstance(found, Kept):
            kept.append(found)
        else:
            reason = found.partition(":")[0]
            reasons[reason] = reasons.get(reason, 0) + 1
            if "stopped: TypeError" in found or "stopped: ValueError" in found:
                print(number, found, *Writer(number).kernel(), sep="\n    ")
    torch.save([(k.number, k.statements, k.floats, k.integers) for k in kept], file)
    print(f"{len(kept)} of {count} kernels are in {file}; others: {reasons}")


# ---- on a GPU


def differences(kept: Kept, floats: torch.Tensor, integers: torch.Tensor) -> str:
    """How another's results differ, in words; "" where they do not."""
    both = kept.floats.isfinite() & floats.isfinite()
    apart = (kept.floats - floats).abs()
    near = (apart <= 1e-5) | (apart <= 0.002 * kept.floats.abs())
    same = (kept.floats == floats) | (kept.floats.isnan() & floats.isnan()) | (both & near)
    wrong = ~same | (kept.integers != integers)
    if not wrong.any():
        return ""
    lane = int(wrong.int().argmax())
    pair = (kept.integers, integers) if same[lane] else (kept.floats, floats)
    used = {name: block[lane].item() for name, block in inputs().items() if name in " ".join(kept.statements)}
    here, there = (each[lane].item() for each in pair)
    return f"{int(wrong.sum())} lanes, the first is {lane}: {here} here, {there} on the GPU, of {used}"


def _launched(kernels: Sequence[Kept]) -> list[str]:
    name = f"<differ {kernels[0].number} and {len(kernels) - 1} more>"
    source = source_of([kept.statements for kept in kernels])
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    scope = {"triton": triton, "tl": tl, "__name__": "differ"}
    exec(compile(source, name, "exec"), scope)
    given = arguments(len(kernels), "cuda")
    scope["kernel"][(1,)](**given)
    floats, integers = (given[z].cpu().reshape(-1, N) for z in ("zf_ptr", "zi_ptr"))  # type: ignore[attr-defined]
    return [differences(*each) for each in zip(kernels, floats, integers, strict=True)]


def _compared(file: str, worker: int, workers: int, found) -> None:
    """In a process of its own: compiling takes longest."""
    warnings.simplefilter("ignore")
    kernels = [Kept(*parts) for parts in torch.load(file)]
    groups = [kernels[at : at + TOGETHER] for at in range(0, len(kernels), TOGETHER)]
    for group in groups[worker::workers]:
        found.put((worker, [kept.number for kept in group], []))
        try:
            told = _launched(group)
        except Exception:  # of one of them: which?
            told = []
            for kept in group:
                try:
                    told += _launched([kept])
                except Exception as error:
                    told.append(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        differing = [(kept, words) for kept, words in zip(group, told, strict=True) if words]
        found.put((worker, [], differing))
    found.put((worker, None, []))


def compare(file: str) -> int:
    """Prints what differs; returns how many do."""
    workers = max(1, (os.cpu_count() or 2) - 1)
    context = multiprocessing.get_context("spawn")
    found = context.Queue()
    processes = [
        context.Process(target=_compared, args=(file, worker, workers, found), daemon=True)
        for worker in range(workers)
    ]
    for process in processes:
        process.start()
    count = 0
    begun: dict[int, list[int]] = {worker: [] for worker in range(workers)}  # and not ended
    while begun:
        try:
            worker, numbers, differing = found.get(timeout=SILENT)
        except queue.Empty:
            print(f"no answer for {SILENT} s: one of {sorted(sum(begun.values(), []))} does not end")
            return count + 1
        if numbers is None:
            del begun[worker]
        else:
            begun[worker] = numbers
        for kept, words in differing:
            count += 1
            print(kept.number, *kept.statements, words, sep="\n    ")
    return count


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.authoring.differ", description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--make", type=int, metavar="COUNT", help="so many kernels, and run them here")
    parser.add_argument("--first", type=int, default=0, help="the number of the first of them")
    parser.add_argument("--compare", action="store_true", help="run the file's kernels on a GPU")
    chosen = parser.parse_args()
    if chosen.make:
        with contextlib.suppress(KeyboardInterrupt):
            make(chosen.first, chosen.make, chosen.file)
    if chosen.compare:
        count = compare(chosen.file)
        print(f"{count} kernels differ")
        sys.exit(bool(count))


if __name__ == "__main__":
    main()
