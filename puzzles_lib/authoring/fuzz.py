"""``python -m puzzles_lib.authoring.fuzz --count 20000``: random kernels, each of which a check must survive.

A kernel is made of statements over values, masks, pointers, block pointers, descriptors, stores, barriers,
helpers and atomics that need not fit each other. It is checked like a learner's. The process must survive
that unchanged; the report's words don't matter, only its length. The kernel's programs are also run at once
(`puzzles_lib.runner.together`), which must leave the same as one after the other. The program prints the
number of each kernel that changed the process, that left something else at once, or whose verdict is "error"
or "time limit"; ``--show NUMBER`` shows that kernel.
"""

import argparse
import dataclasses
import json
import linecache
import os
import random
import resource
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np
import torch

from puzzles_lib import MASKED_ADD, Case
from puzzles_lib.authoring.solutions import define, solutions
from puzzles_lib.binding import bind
from puzzles_lib.checker import examine
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.inputs import make_inputs
from puzzles_lib.runner import Options
from puzzles_lib.runner.together import differences
from puzzles_lib.source import Refusal
from puzzles_lib.translator import nursery

HEAD = """
@triton.jit
def twice(v):
    return v + v

@triton.jit
def pair(v, w):
    return v, w

@triton.jit
def apply(f: tl.constexpr, v):
    return f(v)

@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)

@triton.jit
def early(v):
    if tl.program_id(0) > 3:
        return v
    return v + 1

@triton.jit
def quiet(q):
    tl.store(q, 1.0)

@triton.jit
def kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = offs < N
    x = tl.load(x_ptr + offs, mask=m)
    p = x_ptr + offs
    q = z_ptr + offs
    y = x + 1
    h = offs * 2
    k = 3
    s = N + 1
    f = 0.5
    t = (offs, x)
    w = tl.zeros((BLOCK, BLOCK), tl.float32)
    bp = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), (0,))
    desc = tl.make_tensor_descriptor(z_ptr, [N], [1], [BLOCK])
"""
NAMES = (
    "x",
    "offs",
    "m",
    "p",
    "q",
    "s",
    "f",
    "t",
    "w",
    "bp",
    "desc",
    "BLOCK",
    "N",
    "x_ptr",
    "z_ptr",
    "y",
    "h",
    "k",
)
FITTING = {
    "p": ("p", "q", "z_ptr + offs", "z_ptr", "x_ptr + s"),
    "v": ("x", "offs", "y", "s", "f", "x * 2"),
    "m": ("m", "offs < 3", "x > 0", "m & (offs > 1)"),
    "o": ("offs", "offs // 2", "s"),
}
WRITTEN = ("x", "offs", "m", "p", "s", "y", "h", "k", "bp", "f", "t", "w")
CONSTANTS = (
    "0",
    "1",
    "-1",
    "2",
    "16",
    "32",
    "0.5",
    "True",
    "None",
    '"a"',
    "2**31",
    "2**63",
    "1e40",
    "(1,)",
    "[32]",
)
DTYPES = (
    "tl.float32", "tl.float16", "tl.bfloat16", "tl.float64", "tl.int1", "tl.int8", "tl.uint8", "tl.int32",
    "tl.int64", "tl.float8e5", "tl.float8e4nv", "tl.pointer_type(tl.float32)", "tl.void",
)  # fmt: skip
BINARY = (
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "<<",
    ">>",
    "&",
    "|",
    "^",
    "<",
    "<=",
    "==",
    "!=",
    "**",
    "and",
    "or",
    "@",
)
UNARY = ("-", "~", "not ", "+")
INDICES = (":", "None", ":, None", "None, :", "0", "m", "::2", "..., None", "1:3", "None, :, None")
MEMBERS = ("T", "dtype", "shape", "type", "sum(0)", "max()", "to(tl.int1)", "type.element_ty",
           "dtype.element_ty",
           "value", "numel", "handle", "item()", "trans()", "reshape(4, 8)", "load([0])", "store([0], {e})",
           "atomic_add([0], {e})", "cast(tl.int32, bitcast=True)")  # fmt: skip
CALLS = (
    "tl.load({p})",
    "tl.load({p}, mask={m})",
    "tl.load(bp)",
    "tl.load(bp, boundary_check=(0,))",
    "tl.store(bp, {v})",
    "desc.load([{o}])",
    "desc.store([0], {v})",
    "desc.load([0])",
    "tl.load({p}, mask={m}, other={e})",
    "tl.store({p}, {e})",
    "tl.store({p}, {v}, mask={m})",
    "tl.debug_barrier()",
    'print("a", {e})',
    'tl.device_print("a", {e})',
    "tl.static_print({e})",
    "tl.sum({v}, axis=0)",
    "tl.max({v}, axis={c})",
    "tl.maximum({v}, {e})",
    "tl.where({m}, {v}, {e})",
    "tl.join({v}, {e})",
    "tl.split({e})",
    "tl.interleave({e}, {e})",
    "tl.trans({e})",
    "tl.permute({e}, (1, 0))",
    "tl.reshape({e}, ({c}, {c}))",
    "tl.broadcast_to({e}, ({c}, {c}))",
    "tl.broadcast({e}, {e})",
    "tl.expand_dims({e}, {c})",
    "tl.cat({e}, {e}, can_reorder=True)",
    "tl.ravel({e})",
    "tl.dot(w, w)",
    "tl.dot({e}, {e})",
    "tl.dot({e}, {e}, acc={e})",
    "tl.exp({v})",
    "tl.sqrt({v})",
    "tl.abs({v})",
    "tl.cdiv({e}, {e})",
    "tl.cast({e}, {d})",
    "tl.cast({e}, {d}, bitcast=True)",
    "({v}).to({d})",
    "x.to({d})",
    "offs.to({d})",
    "({e}).to({d}, bitcast=True)",
    "tl.full(({c},), {e}, {d})",
    "tl.full((), {e}, {d})",
    "tl.zeros(({c}, {c}), {d})",
    "tl.arange({c}, {c})",
    "tl.atomic_add({p}, {v})",
    "tl.atomic_add({p}, {v}, mask={m})",
    "tl.atomic_cas({p}, {v}, {e})",
    "tl.atomic_max({p}, {v})",
    "tl.atomic_xchg({p}, {v})",
    "tl.advance({e}, ({c},))",
    "tl.advance({e}, {e})",
    "tl.make_block_ptr({e}, ({e},), ({c},), ({c},), ({c},), (0,))",
    "tl.make_tensor_descriptor({e}, [{e}], [{c}], [{c}])",
    "tl.histogram(offs, {c})",
    "tl.histogram({e}, {c})",
    "tl.sort({v})",
    "tl.flip({e})",
    "tl.gather({v}, {o}, 0)",
    "tl.cumsum({v}, 0)",
    "tl.reduce({v}, 0, larger)",
    "tl.associative_scan({e}, 0, larger)",
    "tl.clamp({e}, {e}, {e})",
    "tl.fma({e}, {e}, {e})",
    "tl.umulhi({e}, {e})",
    "tl.rand({e}, {e})",
    "tl.swizzle2d({e}, {e}, {e}, {e}, {e})",
    "tl.program_id({c})",
    "tl.multiple_of({e}, {c})",
    "tl.max_contiguous({e}, {c})",
    "tl.assume({e})",
    "tl.device_assert({e})",
    "tl.static_assert({e})",
    "tl.map_elementwise(larger, {e}, {e})",
    "tl.dot_scaled({e}, None, 'e5m2', {e}, None, 'e5m2')",
    "tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [{e}], dtype={d}, is_pure=True, pack={c})",
    "twice({v})",
    "twice({e})",
    "pair({e}, {e})",
    "apply(twice, {e})",
    "apply({e}, {e})",
    "early({v})",
    "early({e})",
    "quiet({p})",
    "min({e}, {e})",
    "max({e}, {e})",
    "len({e})",
    "int({e})",
    "float({e})",
    "range({e})",
    "tl.tuple(({e}, {e}))",
    "tl.slice(0, 1, 2)",
)


def source_of(seed: int) -> str:
    """Return the source of a kernel, always the same for the same number."""
    draw = random.Random(seed)
    lines = [line for _ in range(draw.randint(1, 3)) for line in _statement(draw, 0)]
    body = "".join(f"    {line}\n" for line in lines)
    return f"{HEAD}{body}    tl.store(z_ptr + offs, x + 10, mask=m)\n"


def _expression(draw: random.Random, depth: int) -> str:
    kind = draw.random() + 0.3 * depth
    if kind < 0.5:
        return _filled(draw, draw.choice(CALLS), depth)
    if kind < 0.62:
        return f"({_expression(draw, depth + 1)} {draw.choice(BINARY)} {_expression(draw, depth + 1)})"
    if kind < 0.66:
        return f"({draw.choice(UNARY)}{_expression(draw, depth + 1)})"
    if kind < 0.72:
        return f"({_expression(draw, depth + 1)})[{draw.choice(INDICES)}]"
    if kind < 0.77:
        return f"({_expression(draw, depth + 1)}).{_filled(draw, draw.choice(MEMBERS), depth)}"
    if kind < 0.80:
        return "({} if {} else {})".format(*(_expression(draw, depth + 1) for _ in range(3)))
    if kind < 0.82:
        return f"({_expression(draw, depth + 1)}, {_expression(draw, depth + 1)})"
    return draw.choice(draw.choice((FITTING["v"], FITTING["v"], NAMES, CONSTANTS)))


def _filled(draw: random.Random, call: str, depth: int) -> str:
    """A call with its places taken: {e} an expression, {c} a constant, {d} a dtype, the rest by FITTING."""
    parts = call.split("{")
    text = parts[0]
    for part in parts[1:]:
        what, _, rest = part.partition("}")
        if what in FITTING and draw.random() < 0.8:
            text += draw.choice(FITTING[what])
        elif what == "e" or what in FITTING:
            text += _expression(draw, depth + 1)
        elif what == "c":
            text += draw.choice(CONSTANTS if draw.random() < 0.2 else ("0", "1", "16", "32", "BLOCK"))
        else:
            text += draw.choice(DTYPES)
        text += rest
    return text


def _statement(draw: random.Random, depth: int) -> Iterator[str]:
    kind = draw.random() + 0.2 * depth
    if kind < 0.12:
        yield draw.choice(
            ("if {}:", "for k in range(2):", "for k in tl.static_range(2):", "while s < {}:")
        ).format(_expression(draw, 2))
        for _ in range(draw.randint(1, 2)):
            yield from ("    " + line for line in _statement(draw, depth + 1))
        if draw.random() < 0.3:
            yield "    s += 1"
    elif kind < 0.2:
        yield f"return {_expression(draw, 1)}"
    elif kind < 0.75:
        yield f"{draw.choice(WRITTEN)} = {_expression(draw, 0)}"
    elif kind < 0.85:
        yield f"{draw.choice(WRITTEN)} {draw.choice(BINARY[:10])}= {_expression(draw, 0)}"
    elif kind < 0.88:
        yield f"y, h = {_expression(draw, 0)}"
    else:
        yield _expression(draw, 0)


# ---- what must stay as it is


def session() -> dict[str, object]:
    """Return everything that a check might change."""
    import triton.language as tl
    from triton.compiler.code_generator import CodeGenerator
    from triton.language.semantic import TritonSemantic
    from triton.runtime.jit import JITFunction

    owners = (tl, tl.core, tl.math, tl.tensor, tl.constexpr, JITFunction, TritonSemantic, CodeGenerator)
    found = {f"{o.__name__}.{n}": v for o in owners for n, v in vars(o).items() if n != "__warningregistry__"}
    return found | {
        "signals": [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM, signal.SIGPROF)],
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "depth": sys.getrecursionlimit(),
        "limits": [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_CPU)],
        "threads": torch.get_num_threads(),
        "numpy": np.geterr(),
        "warnings": list(warnings.filters),
        "output": (sys.stdout, sys.stderr, os.fstat(1).st_ino, os.fstat(2).st_ino),
        "files": len(os.listdir("/proc/self/fd")),
    }


MANY = Case(N=203, BLOCK=8)  # 26 programs


def apart(kernel: object) -> list[str]:
    """Return what differs if a kernel's programs run at once instead of one after the other."""
    bound = bind(kernel, MASKED_ADD, MANY)
    if isinstance(bound, Refusal) or isinstance(code := bound.translated(), Refusal):
        return []
    bound, given = dataclasses.replace(bound, program=code), make_inputs(MASKED_ADD, MANY)
    asked = (Options(quiet=True, seconds=1.0, together=at_once) for at_once in (False, True))
    alone, at_once = (attempt(bound, given, options) for options in asked)
    if any(ran.stop and ran.stop.kind in ("time limit", "memory limit") for ran in (alone, at_once)):
        return []
    return differences(alone, at_once)


RARE = ("error", "time limit")  # verdicts that may be a fault of the checker


def survive(
    first: int, count: int, begin: Callable[[int], None] = lambda number: None
) -> tuple[dict[str, int], list[str], list[str]]:
    """Check ``count`` random kernels, from number ``first`` on.

    begin: called with the number of each before it is checked.
    Returns how many had each kind of verdict, the number and fault of each with a fault, and the number and
    message of each with a `RARE` verdict.
    """
    puzzle = dataclasses.replace(MASKED_ADD, cases=MASKED_ADD.cases[:2])
    kinds: dict[str, int] = {}
    wrong: list[str] = []
    rare: list[str] = []
    examine(solutions()["masked_add"], puzzle)  # what a first check imports and fills is no fault
    apart(solutions()["masked_add"])
    nursery.begin()  # nor is that
    before = session()
    for seed in range(first, first + count):
        begin(seed)
        source, name = source_of(seed), f"<fuzz {seed}>"
        started = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python's own, of what is not subscriptable
            kernel = define(source, name)
        report = examine(kernel, puzzle, seconds=1.0)
        faults = apart(kernel)
        linecache.cache.pop(name, None)
        after, text = session(), str(report)
        faults += [key for key in before if before[key] != after.get(key)]
        ours = any(words in text for words in ("cannot read this kernel", "checker failed", "Traceback"))
        if ours or len(text.splitlines()) > 12:
            faults.append(text)
        if (took := time.monotonic() - started) > 120:  # twice the limits of two runs and of the front end
            faults.append(f"{took:.0f} s")
        if faults:
            wrong.append(f"{seed}: {'; '.join(faults)}")
        kind = report.verdicts[0].kind if report.verdicts else "pass"
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind in RARE:
            rare.append(f"{seed}: {report.verdicts[0].message}")
        if "compiler crashed on this line" in text:
            kinds["of them: the compiler crashed"] = kinds.get("of them: the compiler crashed", 0) + 1
    return kinds, wrong, rare


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m puzzles_lib.authoring.fuzz", description=__doc__)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--here", action="store_true", help="in this process, not in one for each 500")
    parser.add_argument("--show", type=int, help="print the kernel of a number, and its report")
    chosen = parser.parse_args()
    if chosen.here:
        found = survive(chosen.first, chosen.count, lambda number: print(number, file=sys.stderr, flush=True))
        print(json.dumps(found))
        return
    if chosen.show is not None:
        source = source_of(chosen.show)
        print(source[len(HEAD) :], examine(define(source, "<fuzz>"), MASKED_ADD), sep="\n")
        return
    total: dict[str, int] = {}
    failed = 0
    for first in range(chosen.first, chosen.first + chosen.count, 500):
        count = min(500, chosen.first + chosen.count - first)
        here = [sys.executable, "-m", __spec__.name, "--here", "--first", str(first), "--count", str(count)]
        done = subprocess.run(here, capture_output=True, text=True)
        if done.returncode:
            numbers = [line for line in done.stderr.splitlines() if line.isdigit()]
            wrong = [f"{numbers[-1:]}: the session ended ({done.returncode}): {done.stderr[-300:]}"]
            kinds, rare = {}, []
        else:
            kinds, wrong, rare = json.loads(done.stdout.splitlines()[-1])
        failed += len(wrong)
        for kind, times in kinds.items():
            total[kind] = total.get(kind, 0) + times
        print(f"{first + count - chosen.first} done: {total}", *wrong, *rare, sep="\n", flush=True)
    sys.exit(f"{failed} kernels with a fault" if failed else 0)


if __name__ == "__main__":
    main()
