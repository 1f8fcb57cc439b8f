"""What a learner reads for each kind of line that the compiler refuses: their own words, and the cure."""

import contextlib
import math
import re

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice

from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.compiler import Opinions, build, find_target, front_end, translate
from puzzles_lib.compiler.vetting import vet
from puzzles_lib.source import Refusal
from puzzles_lib.translator import observer, wording
from tests.other_triton import installed

HEAD = """
@triton.jit
def kernel(x_ptr, z_ptr, M, N, BLOCK: tl.constexpr, HALF: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    mask = offs < N
    x = tl.load(x_ptr + offs, mask=mask)
    x2 = tl.zeros((BLOCK, HALF), tl.float32)
    acc = 0
"""
X = torch.empty(0)
ARGUMENTS = {"x_ptr": X, "z_ptr": X, "M": 20, "N": 20, "BLOCK": 32, "HALF": 16}
NAMES = {"np": np, "torch": torch, "math": math, "libdevice": libdevice, "triton": triton, "ten": 10}
FIRST = len(HEAD.splitlines()) + 1


def opinions(kernel, cases):
    with contextlib.closing(Opinions(kernel, cases)) as found:
        return [found[number] for number in range(len(cases))]


def written(line: str, name: str = "wording"):
    body = "".join(f"    {part}\n" for part in line.splitlines())
    kernel = define(f"{HEAD}{body}    tl.store(z_ptr + offs, x)\n", f"<{name}: {line}>")
    kernel.__globals__.update(NAMES)
    return kernel


DESCRIPTOR = "d = tl.make_tensor_descriptor(x_ptr, [N], [1], [BLOCK])\n"
# Each row of the table, known by its pattern: a line it is for, and words of what is said.
ROWS = {
    r"^MemoryError": ("a: tl.constexpr = 'a' * (6 * 10**9)", "more than 1 GB"),
    r"^Reduction dimension should pack the same number of elements": (
        "c = tl.zeros((HALF, BLOCK), tl.uint8)\n"
        "acc += tl.dot_scaled(x2.to(tl.float8e4nv), None, 'e4m3', x2.T.to(tl.uint8), None, 'e2m1')",
        "a row of x2.to(tl.float8e4nv) has 16 numbers, so x2.T.to(tl.uint8) must have 8 rows, "
        "with two numbers per byte, but is [16, 32] = [HALF, BLOCK]",
    ),
    r"(lhs|rhs)_scale must be a tensor of shape \[\.\.\., (\d+, \d+)\]\. Got \[(.*)\]": (
        "w, ws = tl.zeros((HALF, BLOCK), tl.uint8), tl.full((1, BLOCK), 127, tl.uint8)\n"
        "r = tl.dot_scaled(x2.T.to(tl.float8e4nv), None, 'e4m3', w, ws, 'e2m1')",
        "the scale of w must be [32, 1] = [BLOCK, 1], but ws is [1, 32] = [1, BLOCK]: is it transposed?",
    ),
    r"'MatMult' (?:object|is not)": ("acc += x2 @ x2", "a kernel has no @: use tl.dot(x2, x2)"),
    r"'(?:Not)?In' (?:object|is not)": ("if N in (1, 2): x += 1", "no `in`: compare with =="),
    r"tensor_descriptor|attribute 'scalar'$|^object of type '\w+' has no len": (
        f"{DESCRIPTOR}r = d + x",
        "d is a descriptor: d.load([0]) reads a block, d.store([0], x) writes one",
    ),
    r"object has no attribute 'func'": (
        "for v in (1, 2): x += v",
        "can only run over range(...), tl.range(...) or tl.static_range(...), which unrolls the loop",
    ),
    r"object has no attribute '(?:arg_names|signature)'": (
        "r = tl.reduce(x, 0, max)",
        "the combine function must be a @triton.jit function: def add(a, b): return a + b",
    ),
    r"^'constexpr_type' object has no attribute '(?:is_ptr|is_const|scalar)'": (
        "r = tl.load(0.5)",
        "tl.load needs addresses, such as x_ptr + offs, but 0.5 is a constant",
    ),
    r"^'constexpr_type' object has no attribute": (
        "r = tl.broadcast_to(0.5, (BLOCK,))",
        "tl.broadcast_to needs a value of the kernel, but 0.5 is a compile-time constant",
    ),
    r"^StopIteration": (
        "def f(a): return a",
        "a kernel cannot define functions: write a @triton.jit function outside of it",
    ),
    r"nested function definition": ("def f(): return 1", "cannot define functions"),
    r"unsupported AST node type: (\w+)": ("import os", "cannot import"),
    r"body should only have one block|Cannot have `return` statements inside": (
        "for i in range(4): return",
        "cannot return from within a loop",
    ),
    r"'tuple_type' object|^'tuple' object|^'(?:int|float)' object has no attribute 'values'": (
        "r = tl.load([x_ptr, z_ptr])",
        "a block is needed here, but this is a tuple: use its parts one by one",
    ),
    r"^'tensor' object has no attribute 'values'|^cannot unpack non-iterable": (
        "a, b = x",
        "a block cannot be unpacked",
    ),
    r"^'NoneType' object has no attribute '(?:type|dtype|shape)'": (
        "r = x[np.newaxis, :]",
        "in a kernel, None adds a new axis, as in x[None, :]",
    ),
    r"^only tuple comprehensions": (
        "r = [v + 1 for v in x]",
        "a kernel has no lists: an operation on a block works on all its lanes",
    ),
    r"^'<=' not supported between .*'tuple'": ("r = tl.max(x2, axis=(0, 1))", "one axis at a time"),
    r"^'tensor' object cannot be interpreted": ("r = tl.load(x_ptr, mask=range(N))", "tl.arange(0, BLOCK)"),
    r"^Assertion condition could not": (
        "tl.static_assert(N > 0)",
        "tl.static_assert is for constants: use tl.device_assert for values",
    ),
    r"^`other` cannot be provided without": ("r = tl.load(x_ptr + offs, other=0.0)", "mask= is missing"),
    r"^`padding_option` or `boundary_check`": (
        "r = tl.load(x_ptr + offs, mask, 0.0, 'evict_first')",
        "boundary_check, the fourth argument, and padding_option are for block",
    ),
    r"^(?:program_id|num_programs) axis must be": ("r = tl.program_id(3)", "an axis of the grid: 0, 1 or 2"),
    r"^AssertionError|^\w+\(\): incompatible function arguments": (
        "r = tl.max(x, 0.0)",
        "which is an integer, and 0.0 is not: to combine two values write tl.maximum(x, 0.0)",
    ),
    r"^AssertionError|^starred assignment|^expected last dimension to be 2": (
        "a = b = x",
        "a kernel cannot assign one value to several names: write a line for each",
    ),
    r"^too many indices for tensor of rank 0": (
        "m = tl.debug_barrier()[:, None]",
        "tl.store, print and barriers return no value, but this line uses one",
    ),
    r"^Not implemented": (
        "r = tl.sum(tl.debug_barrier(), 0)",
        "tl.store, print and barriers return no value, but this line uses one",
    ),
    r"^Cannot access global variable (\S+)": (
        "x += ten",
        "(a kernel can't see the global ten): pass it as a parameter, or write ten = tl.constexpr(...)",
    ),
    r"^__setitem__": (
        "x[mask] = 0",
        "you cannot assign to elements of a block: make a new block with tl.where, or write to memory with",
    ),
    r"`_semantic` argument": ("r = offs[mask]", "a block cannot be filtered"),
    r"^unsupported tensor index": (
        "r = x[3]",
        "you cannot pick elements of a block: an index can only contain `:` and None, which adds an axis",
    ),
    r"^cannot cast pointer<": (
        "tl.store(z_ptr + offs, x_ptr + offs + 10)",
        "x_ptr + offs contains addresses, not values: tl.load(x_ptr + offs) reads",
    ),
    r"^cannot cast <triton[\w.]*\.(\w+) object": (
        "x *= tl.slice(0, 1, 2)",
        "a kernel computes with numbers and blocks, but this is a slice",
    ),
    r"^Unsupported ptr type|^Pointer argument of \w+ instruction": (
        "tl.store(x, z_ptr + offs)",
        "swapped: tl.store(z_ptr + offs, x, ...)",
    ),
    r"^(\w+) argument cannot be block type if pointer": (
        "tl.store(z_ptr, x)",
        "z_ptr is one address, but the value is a block: use z_ptr + offs",
    ),
    r"make_shape_compatible|^Cannot broadcast|^Expected pointer argument to have shape|broadcast": (
        "r = x2 + tl.trans(x2)",
        "x2 is [32, 16] = [BLOCK, HALF], tl.trans(x2) is [16, 32] = [HALF, BLOCK]; one is the",
    ),
    r"^Loop-carried variable (\w+) has initial type (.*) but is re-assigned to (.*) in loop": (
        "for i in range(4):\n    acc += x",
        "acc is one int32 before the loop, but [32] = [BLOCK] of float32 after this line: "
        "start with acc = tl.zeros([BLOCK], tl.float32)",
    ),
    r"^Loop carried variable (\w+) changed type|^cannot reassign constexpr (\w+)": (
        "for i in range(4): BLOCK = BLOCK + 1",
        "BLOCK is a compile-time constant (a tl.constexpr), so a loop cannot change it: assign to another",
    ),
    r"^initial value for `(\w+)` is of type (.*), but the \w+ block redefines it as (.*)$": (
        "if N > 3: x = x[:, None]",
        "x is [32] = [BLOCK] of float32 before the if, but [32, 1] = [BLOCK, 1] of",
    ),
    r"^Mismatched type for (\w+) between then block \((.*)\) and else block \((.*)\)$": (
        "if N > 3:\n    q = x\nelse:\n    q = x2",
        "q is [32] = [BLOCK] of float32 if the condition is true, but [32, 16] =",
    ),
    r"used as tl.static_range \w+ value": ("for i in tl.static_range(N): acc += 1", "unrolls"),
    r"^arange's arguments must be of type tl.constexpr": (
        "r = tl.arange(0, N)",
        "tl.arange needs sizes known",
    ),
    r"^arange's end argument must be greater": ("r = tl.arange(BLOCK, 0)", "tl.arange counts up"),
    r"^Shape element \d must have type": (
        "r = tl.zeros((N,), tl.float32)",
        "a shape must be known at compile time, such as a tl.constexpr parameter",
    ),
    r"^(?:arange's range|Shape element \d) must be a power of 2": (
        "r = tl.arange(0, 30)",
        "a power of 2: mask",
    ),
    r"^numel \((\d+)\) exceeds": (
        "r = tl.arange(0, 2**31)",
        "a block of 2,147,483,648 elements is too large: the limit",
    ),
    r"^'constexpr' object has no attribute 'handle'": ("while True: acc += 1", "computed by the kernel"),
    r"^simultaneous multiple comparison": (
        "r = 0 < offs & offs < N",
        "& and | bind more tightly than comparisons, so put each in parentheses: (0 < offs) & (offs < N)",
    ),
    r"attribute '__r?pow__'|^unsupported operand type\(s\) for \*\*": (
        "r = x ** 2",
        "** only works on constants: for x ** 2 write x * x, for 2 ** n write 1 << n (integers)",
    ),
    r"^Boolean value of Tensor": ("if x > 0: x += 1", "an if cannot decide lane by lane"),
    r"^Ternary expression.*<\[": ("r = x if mask else x2", "use tl.where(c, a, b)"),
    r"^can only unsplat": ("r = x.item()", "a block of one element has .item()"),
    r"^only accepts size-1 tensor": (
        "r = tl.full((BLOCK,), x, tl.float32)",
        "tl.full fills a block with one number, but x is already a block",
    ),
    r"^reshape\(\) cannot change total number": (
        "r = tl.reshape(x, (HALF, 4))",
        "tl.reshape keeps the number of elements, but x is [32] = [BLOCK]: 32 elements",
    ),
    r"^index must be an integer tensor": (
        "r = tl.gather(x, x, 0)",
        "an index must be an integer: convert with .to(tl.int32) first",
    ),
    r"^(Memory semantic|Cache modifier|Eviction policy) (\S+) not supported": (
        'tl.atomic_add(z_ptr + offs, x, sem="acq")',
        "tl.atomic_add does not know 'acq': sem= is acquire, release,",
    ),
    r"^Unsupported (cache modifier|eviction policy) '(\w+)'": (
        'r = tl.load(x_ptr + offs, eviction_policy="first")',
        "tl.load does not know 'first': it is evict_first or evict_last",
    ),
    r"(cache modifier) '(\w+)' is not supported for": (
        'tl.store(z_ptr + offs, x, cache_modifier=".ca")',
        "does not know '.ca': loads take .ca, .cg and .cv, stores .wb,",
    ),
    r"^'math\.(\w+)' op operand .* must be floating-point-like": (
        "r = tl.rsqrt(4)",
        "tl.rsqrt needs floats, but this is an integer: 3.0 is a float, 3 is not",
    ),
    r"^\(triton\.language\.\w+": (
        "r = libdevice.exp(offs)",
        "libdevice.exp has no version for int32; most functions have one for float32:",
    ),
    r"^'scf.condition' op": ("while mask: acc += 1", "one value, not a block"),
    r"is not string$": ("print(x.shape)", "`watch` shows the values of every line"),
    r"^Cannot evaluate f-string": ('print(f"{x}")', 'tl.device_print("x", x) prints them'),
    r"must be 1-bit signless|^Mask must have boolean": (
        "tl.store(z_ptr + offs, x, mask=offs)",
        "a mask must be a condition, such as mask=offs < N, not numbers",
    ),
    r"^module '([\w.]+)' has no attribute '(\w+)'": (
        "r = tl.laod(x_ptr)",
        "no tl.laod: did you mean tl.load?",
    ),
    r"^(\w+) is not defined": ("acc += ofs", "ofs is not defined: did you mean offs?"),
    r"^'(?:int|float|constexpr)' object has no attribute '(\w+)'": ("r = HALF.to(tl.int64)", "tl.cast(HALF"),
    r"^(\w+)\(\) missing \d+ required positional arguments?: (.*)$": (
        "r = tl.arange(32)",
        "tl.arange needs a start, too: write tl.arange(0, 32)",
    ),
    r"^missing (a) required argument: (.*)$": (
        "r = tl.zeros(32)",
        "tl.zeros is missing its argument 'dtype'",
    ),
    r"^(?:(\w+)\(\) )?got an unexpected keyword argument '(\w+)'": (
        "r = tl.load(x_ptr + offs, mask=mask, others=0.0)",
        "tl.load has no argument others: did you mean other?",
    ),
    r"^(\w+)\(\) got multiple values|^(?:\w+\(\) takes .* positional|too many positional)": (
        "r = tl.where(mask, x, 0.0, 1)",
        "more arguments than the function takes",
    ),
    r"^`boundary_check` argument is not supported": (
        "tl.store(z_ptr + offs, x, mask & mask, 3)",
        "more arguments than it takes: boundary_check=",
    ),
    r"^unexpected type fp": ("r = tl.cdiv(N, 0.5)", "tl.cdiv needs integers, but 0.5 is a float"),
    r"^invalid operands of type|^unexpected type|^wrong type argument to unary|^cannot add pointers": (
        "r = tl.load(x_ptr + x)",
        "offsets must be integers, but x is float32",
    ),
    r"equal ranks >= 2": ("r = tl.dot(x2, x)", "x2 is [32, 16] = [BLOCK, HALF], x is [32] = [BLOCK]"),
    r"equal reduction dimensions": ("r = tl.dot(x2, x2)", "multiplies [M, K] by [K, N], but x2 is [32, 16]"),
    r"^Input shapes should have M >= \d+, N >= \d+ and K >= (\d+)": (
        "r = tl.dot(x[:, None], x[None, :])",
        "sums over an axis of 1 here, but this axis needs at least 16",
    ),
    r"^accumulator shape is incompatible": (
        "r = tl.dot(tl.trans(x2), x2, x2)",
        "the product is [16, 16] = [HALF, HALF], but x2 is [32, 16] = [BLOCK, HALF]",
    ),
    r"^Unsupported lhs dtype (\w+)": (
        "r = tl.dot(x2.to(tl.int32), tl.trans(x2).to(tl.int32))",
        "floats and int8, not int32",
    ),
    r"^Unexpected dtype for (\w+)\. Got (\w+)": (
        "r = tl.dot_scaled(x2.to(tl.float8e4nv), None, 'e5m2', x2.T.to(tl.float8e4nv), None, 'e4m3')",
        'fp8e4nv is "e4m3"',
    ),
    r"^Both operands must be same dtype. Got (\w+) and (\w+)": (
        "r = tl.dot(x2.to(tl.float16), tl.trans(x2))",
        "are float16 and float32",
    ),
    r"^Expected dtype (.*) but got (\w+)": (
        "r = tl.exp(offs)",
        "tl.exp needs floats, but this is int32: convert with .to(tl.float32) first",
    ),
    r"^both operands of fdiv|^fdiv requires": (
        "r = tl.fdiv(offs, offs)",
        "tl.fdiv only divides floats: / is for all numbers, // for integers",
    ),
    r"^histogram (?:of|only supports (?:32-bit )?integer)": (
        "r = tl.histogram(x, 8)",
        "counts int32 and uint32, but x is float32: use tl.histogram(x.to(tl.int32),",
    ),
    r"^histogram with (-?\d+) bins": (
        "r = tl.histogram(x.to(tl.int32), 0)",
        "tl.histogram needs at least 1 bin, but num_bins is 0",
    ),
    r"^inline assembly for (-?\d+) elements": (
        "r = tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [N], tl.int32, is_pure=True, pack=-1)",
        "pack= must be at least 1, but is -1",
    ),
    r"^histogram only supports 1D": ("r = tl.histogram(x2.to(tl.int32), 8)", "tl.ravel(x)"),
    r"^values element \d+ must have type": (
        "r = tl.multiple_of(offs, 4.0)",
        "tl.multiple_of needs integers known at compile time, not 4.0",
    ),
    r"^(\w+) promises (-?\d+)$": (
        "r = tl.max_contiguous(offs, -4)",
        "takes numbers from 1 to 2147483647, not -4",
    ),
    r"^(\w+) of (\d+) axes and (\d+) numbers$": (
        "r = tl.multiple_of(offs, (4, 4))",
        "tl.multiple_of takes one number per axis of its block: 1, not 2",
    ),
    r"^max_constancy of (\d+) along (\d+)$": (
        "r = tl.max_constancy(offs, 64)",
        "64 do not fill a block of 32",
    ),
    r"^invalid axis (-?\d+). Expected -(\d+)": (
        "r = tl.sum(x2, axis=2)",
        "no axis 2: the block has axes 0 to 1",
    ),
    r"^permute dims|^tl.trans invoked with a 0- or 1-": (
        "r = x.T",
        "only a block of two or more axes can be transposed: x[:, None] adds one",
    ),
    r"^(float|int)\(\) argument must be": (
        "r = float(N)",
        "converts constants; convert a value of the kernel with x.to(tl.float32)",
    ),
    r"^must be real number, not tensor": (
        "r = math.exp(x)",
        "math.exp only takes constants: for values of the kernel use tl.exp",
    ),
    r"^object of type 'tensor' has no len": ("r = len(x)", "x.shape[0]"),
    r"attribute '(?:scalar|to_ir|is_int)'$": ('r = x.to("float32")', "such as tl.float32"),
    r"^'dtype' object is not callable": ("r = tl.float32(3)", "x.to(tl.float32) converts"),
    r"^'str' object has no attribute '(?:type|dtype)'": (
        "r = 'a' + x",
        "a kernel computes with numbers and blocks, but this is a string",
    ),
    r"^'dtype' object has no attribute 'numel'": (
        "r = tl.topk(x, 1)",
        "tl.topk returns 2 or more elements: for one use tl.max",
    ),
    r"^'<=' not supported between .*'int' and 'NoneType'": (
        "r = tl.flip(x)",
        "tl.flip needs an axis: tl.flip(x, 0)",
    ),
    r"^'<=' not supported between .*'int' and 'str'": (
        'r = tl.max(x, axis="a")',
        "an axis must be an integer: 0 is the first",
    ),
    r"^unsupported operand type.*'static_range'": ("r = tl.static_range(4) + 1", "is for loops"),
    r"^'int' object is not iterable": ("r = tl.zeros(32, tl.float32)", "a shape must be a tuple: (32,)"),
    r"^(?:list|tuple) index out of range": (
        "r = x.shape[1]",
        "x.shape[1] does not exist: x has only x.shape[0]",
    ),
    r"^'tensor' object has no attribute '(\w+)'": ("x_ptr.load(offs)", "a kernel's values have no 'load'"),
    r"^For loop bounds and step must all be ints|^For .* must be a scalar": (
        "for i in range(0.5): acc += 1",
        "the ends and the step of a loop must be single integers",
    ),
    r"^Cannot bitcast data-type of size \d+ to data-type of size 1\b": ("r = not N", "compare, as in N == 0"),
    r"^Cannot bitcast data-type of size (\d+) to data-type of size (\d+)": (
        "r = x.to(tl.bfloat16, bitcast=True)",
        "bitcast=True keeps all bits, but the value has 32 and the new dtype 16",
    ),
    r"^cannot convert .* of type <class '(?:[\w.]+\.)?(\w+)'> to tensor": (
        "r = tl.store",
        "a kernel computes with numbers and blocks, but this is a function",
    ),
    r"^(?:(type) object )?'(?:[\w.]+\.)?(\w+)' (?:object )?has no attribute '(?:d?type|handle)'$": (
        "x *= range(0, 3)",
        "a kernel cannot compute with a range: tl.arange(0, BLOCK) is a block of numbers",
    ),
    r"^Nonrepresentable integer": ("r = x * 2 ** 101", "For a power of two as a float, write 2.0 ** n"),
    r"^Scalar (-?\d+) is out of range for type (u?int(?:8|16))$": (
        "r = x.to(tl.int16) & 49152",
        "49152 is out of range for int16, the dtype of the other operand",
    ),
    r"^\w+\(\): incompatible function arguments": (
        "r = tl.inline_asm_elementwise('a', '=r', [x], dtype=tl.int32, is_pure='yes', pack=1)",
        "takes two strings, a list of blocks, a dtype, is_pure= and pack=",
    ),
}


def test_each_row_is_tried():
    assert [pattern for pattern, _ in wording.ROWS] == list(ROWS)


# Messages that another Triton than the pinned one no longer has, and the first such version.
OLDER = {
    r"^StopIteration": "3.8",
    r"'tuple_type' object|^'tuple' object|^'(?:int|float)' object has no attribute 'values'": "3.8",
    r"^`padding_option` or `boundary_check`": "3.9",
    r"^`boundary_check` argument is not supported": "3.9",
    r"^cannot cast <triton[\w.]*\.(\w+) object": "3.9",
    r"^'dtype' object has no attribute 'numel'": "3.9",
    r"^'<=' not supported between .*'int' and 'NoneType'": "3.9",
    r"(lhs|rhs)_scale must be a tensor of shape \[\.\.\., (\d+, \d+)\]\. Got \[(.*)\]": "3.9",
}
# Messages that only Triton 3.9 has.
NEWER = (
    r"^too many indices for tensor of rank 0",
    r"^Unsupported (cache modifier|eviction policy) '(\w+)'",
    r"(cache modifier) '(\w+)' is not supported for",
)


@pytest.mark.parametrize("pattern", ROWS)
def test_a_row_has_words_that_nothing_else_has(pattern, monkeypatch, request):
    line, words = ROWS[pattern]
    if installed() >= OLDER.get(pattern, "4") or (pattern in NEWER and installed() < "3.9"):
        pytest.skip(f"Triton {installed()} has no such message")
    kernel = written(line)
    told = front_end(kernel, ARGUMENTS)
    assert words in told.message and len(told.message) <= wording.LONGEST
    assert FIRST <= told.site.line < FIRST + len(line.splitlines())
    request.getfixturevalue("own_children")  # not before: to fork this process takes longer than the rest
    monkeypatch.setattr(wording, "ROWS", tuple(row for row in wording.ROWS if row[0] != pattern))
    untold = front_end(kernel, ARGUMENTS)
    assert untold.message != told.message


MORE = {  # lines that a row, or the vetting, answers in several ways
    "r = tl.max(x, x)": "folds one block along an axis; to combine two blocks write tl.maximum(a, b)",
    "r = triton.cdiv(N, 32)": "only works on numbers known at compile time: in a kernel use tl.cdiv",
    "r = tl.arange(0.0, 32.0)": "tl.arange needs integers, but 0.0 is a float",
    "r = tl.arange(N * 2, N * 2 + 8)": "known at compile time: begin at 0, and add N * 2 to it",
    "r = tl.program_id(axis=1.0)": "an axis of the grid: 0, 1 or 2",
    "r = tl.max(3.0, axis=0)": "tl.max needs a value of the kernel, but 3.0 is a compile-time constant",
    "r = tl.join(x, 0.5)": "tl.join needs a value of the kernel, but 0.5 is a compile-time constant",
    'r = tl.zeros((BLOCK,), "float32")': "a kernel needs Triton's dtypes, such as tl.float32",
    "r = tl.associative_scan(x, 0, 5)": "the combine function must be a @triton.jit function: def add",
    "r = tl.rand(0, 0.5)": "tl.rand needs a value of the kernel, but 0.5 is a compile-time constant",
    "r = tl.rand(0.5, offs)": "tl.rand rejects its arguments",
    "r = tl.sort(x2, dim=0)": "tl.sort rejects its arguments: only minor dimension is currently supported",
    "tl.static_assert(BLOCK == 3, 'three')": "tl.static_assert fails: three",
    "r = tl.umulhi(x, x)": "tl.umulhi needs int32, int64, uint32 and uint64, but this is float32",
    "r = tl.erf(x.to(tl.float16))": "tl.erf needs float32 and float64, but this is float16: convert with",
    "r = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (BLOCK,), 0)": "tl.make_block_ptr needs tuples: (0,)",
    "r = libdevice.pow(x, x > 0)": "libdevice.pow has no version for float32 and a mask",
    "r = libdevice.popc(x)": "libdevice.popc has no version for float32",
    'r = tl.load(x_ptr + offs, cache_modifier=".foo")': "does not know '.foo': loads take .ca, .cg and .cv",
    "r = tl.program_id(N)": "an argument of tl.program_id must be known at compile time",
    "z_ptr = 2 * x\ntl.store(z_ptr + offs, x)": "z_ptr is no pointer any more: line ",
    "tl.store(offs, x)": "tl.store needs addresses first, such as x_ptr + offs, but this is int32",
    "r = tl.load(x + 1)": "tl.load needs addresses first, such as x_ptr + offs, but x + 1 is float32: values",
    "tl.store(z_ptr + offs, x2)": "the addresses are [32] = [BLOCK], the value is [32, 16] = [BLOCK, HALF]",
    "r = x & 1": "x & 1 only works on integers and masks, but x is float32",
    "r = x_ptr + z_ptr": "only integers can be added to addresses: tl.load(...) reads the values there",
    "a, *b = (1, 2)": "a kernel cannot unpack with *: name each value",
    "r = x if x > 0 else -x": "use tl.where(c, a, b)",
    "r = x.reshape(-1)": "every size of a shape must be written out: -1 has no meaning here",
    "r = (q := x)": "a kernel has no :=",
    "match N:\n    case 3: x += 1": "a kernel has no match",
    "r = undefined": "undefined is not defined: no line sets it",
    "z = tl.load(z + offs)": "z is not defined here: the pointer is z_ptr",
    "if N > M: z = x\nr = z": "z is not defined here: a name set only in an if or a loop needs a value",
    "c = x[:, None]\nfor i in range(4):\n    c = tl.maximum(c, tl.max(x2, axis=1))": "c is a column, and "
    "tl.max(x2, axis=1) isn't. keep_dims=True makes it one",
    "c = x[:, None]\nfor i in range(4):\n    peak = tl.max(x2, axis=1)\n    c = tl.maximum(c, peak)": "c "
    "is a column, and tl.max(x2, axis=1) isn't. keep_dims=True makes it one",
    "r = tl.dot(x2, x2.to(tl.int8).T)": "x2.to(tl.int8) makes a dot of integers, x2.to(tl.int8).T.to(",
    "W: tl.constexpr = N // 4\nr = offs < W * 4": "W can't be a tl.constexpr, because its value is",
    "total += x": "total is not defined here: its first value comes only in this line or a later one",
    "r = twice(x)": "twice is not defined: a kernel can call functions of tl, and your own",
    "r = ROWS_LEFT": "ROWS_LEFT is not defined: it is not among the kernel's parameters",
    "r = stride_am": "stride_am is not defined: it is not among the kernel's parameters",
    "r = nump.inf": "nump is not defined",
    "r = np.arange(4)": "np.arange is NumPy's, so a kernel cannot use it: here it is tl.arange",
    "r = torch.mul(x, 2)": "torch.mul is PyTorch's, so a kernel cannot use it: write * instead",
    "W = 2 * BLOCK\nr = tl.arange(0, W)": "W = 2 * BLOCK makes a variable: write 2 * BLOCK here, or W: tl",
    "W = 2 * HALF\nr = tl.zeros((W,), tl.float32)": "but W = 2 * HALF makes a variable: write 2 * HALF",
    "W = BLOCK\nr = x.reshape(W)": "known at compile time, but W = BLOCK makes a variable: write BLOCK here",
    "BLOCK = 2 * BLOCK\nr = tl.arange(0, BLOCK)": "makes BLOCK a variable: remove that line, write 2 * BLOCK",
    "HALF *= 2\nr = tl.arange(0, HALF)": "HALF *= 2 makes HALF a variable: remove that line, write HALF",
    "W = N * 2\nr = tl.arange(0, W)": "tl.arange needs sizes known at compile time, such as a tl.constexpr",
    "W = BLOCK\nW = HALF\nr = tl.arange(0, W)": "known at compile time, such as a tl.constexpr parameter",
    "r = offs < N - x_ptr": "x_ptr contains addresses, not numbers of elements: it cannot be subtracted",
    "r = offs < len(x_ptr)": "x_ptr is an address, which has no length: use the size of the tensor",
    "r = offs < x_ptr.shape[0]": "x_ptr is an address, which has no shape: use the size of the tensor",
    "r = x2.shape[3]": "x2.shape[3] does not exist: x2 has only x2.shape[0] and x2.shape[1]",
    "r = tl.max(x, 0).shape[0]": "tl.max(x, 0) is one number, which has no shape",
    "r = (1, 2)[2]": "the index is out of range: (1, 2) has 2 elements, so it must be 0 or 1",
    "r = x[offs]": "x[offs] cannot pick elements of the block x: load the elements that you need with",
    "r = tl.load(x_ptr + offs, mask=0 < offs < N)": "cannot chain comparisons: write (0 < offs) & (offs < N)",
    "r = 0 <= offs | offs < N | offs == 3": "parentheses: (0 <= offs) | (offs < N) | (offs == 3)",
    "r = 0 < offs < N & x > 0": "cannot chain comparisons: write (0 < offs) & (offs < N) & (x > 0)",
    "s: str = 'text'": "str is Python's, so a kernel cannot use it: leave the annotation out",
    "try: x += 1\nexcept ValueError: pass": "a kernel cannot contain try: nothing in a kernel raises an exc",
    "r = (yield from x)": "a kernel cannot yield: write results with tl.store",
    "r = 2 * x_ptr": "x_ptr contains addresses, not values: tl.load(...) reads the values there",
    "r = x.to(torch.float32)": "here it is tl.float32",
    "r = x.astype(tl.float32)": "there is x.to(dtype)",
    "f = lambda a: a\nr = f(x)": "cannot define functions",
    "r = sum(x)": "here it is tl.sum",
    "x.numpy()": "a kernel's values have no 'numpy'",
    "return x": "a kernel can't return a value: write results with tl.store",
    "r = x + tl.store(z_ptr + offs, x)": "barriers return no value, but this line uses one",
    "m = tl.debug_barrier()[:, None]": "tl.store, print and barriers return no value, but this line uses one",
    'r = tl.load(x_ptr + offs, cache_modifier=".cg", eviction_policy="evict_first")': "cannot be combined",
    'r = tl.load(x_ptr + offs, cache_modifier=".ca", volatile=True)': "cannot be combined",
    'r = tl.load(x_ptr + offs, eviction_policy="evict_last", volatile=True)': "cannot be combined",
    'tl.store(z_ptr + offs, x, cache_modifier=".wt", eviction_policy="evict_last")': "cannot be combined",
    "r = tl.multiple_of(offs, 0)": "tl.multiple_of takes numbers from 1",
    "r = tl.max_contiguous(N, 4)": "tl.max_contiguous is for blocks",
    "r = tl.multiple_of(BLOCK, 4)": "needs a value of the kernel, but BLOCK is a compile-time constant",
    "r = tl.histogram(x.to(tl.uint8), 8)": "int32 and uint32, but x.to(tl.uint8) is uint8: use",
    "r = tl.sum(x, 0.0)": "0.0 is not: to combine two values write x + 0.0",
    "r = x.min(0.0)": "to combine two values write tl.minimum(x, 0.0)",
    "r = tl.argmax(x, 0.0)": "tl.argmax needs an axis, which is an integer, and 0.0 is not",
    f"{DESCRIPTOR}r = d * 2": "d is a descriptor",
    f"{DESCRIPTOR}r = tl.load(d + offs)": "d is a descriptor",
    f"{DESCRIPTOR}r = tl.load(d)": "d is a descriptor",
    f"{DESCRIPTOR}r = d[0]": "d is a descriptor",
    f"{DESCRIPTOR}r = d.load(0)": "d is a descriptor: d.load([0]) reads a block, d.store([0], x) writes one",
    "r = tl.exp(tl.debug_barrier())": "tl.store, print and barriers return no value, but this line uses one",
    "r = tl.exp(x.to(tl.float8e5))": "needs floats, but this is float8e5: convert with",
    "r = tl.inline_asm_elementwise('a;', '=r,r', x, tl.int32, True, 1)": "takes two strings, a list",
    "b = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (32,), (0,))\nfor i in range(4):\n"
    "    b = tl.load(b)": "b is a block pointer to [32] = [BLOCK] of float32 before the",
    "p = x_ptr\nfor i in range(4):\n    p = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (32,), (0,))": "but a "
    "block pointer to [32] = [BLOCK] of float32 after this line: a loop cannot",
    "r = torch.outer(x, x)": "here it is the product a[:, None] * b[None, :]",
    "r = tl.broadcast(x, x)\ntl.store(z_ptr + offs, r)": "use one of its parts, such as r[0]",
    "r = tl.outer(x, x)": "there is no tl.outer: did you mean the product a[:, None] * b[None, :]?",
    "r = tl.round(x)": "did you mean tl.floor(x + 0.5), or half to even, (x + 12582912.0) - 12582912.0?",
    "r = x.flatten()": "there is tl.ravel(x)",
    "r = x.unsqueeze(0)": "there is x[:, None]",
    "r = mul(2, x)": "mul is not defined: write * instead",
    "r = program_id(0)": "program_id is not defined: in a kernel it is tl.program_id",
    "r = tl.max(x, axis=0, keepdims=True)": "tl.max has no argument keepdims: did you mean keep_dims?",
    "r = tl.zeros_like(x, dtype=tl.int32)": "tl.zeros_like has no argument dtype; it has input",
    "tl.store(z_ptr + offs, x, mask=mask, other=0.0)": "has no argument other; it has pointer, value",
    "for i, v in enumerate(x): x += v": "here it is for i in range(...)",
    "r = (x, x) + 1": "a block is needed here, but this is a tuple: use its parts one by one",
    "r = tl.load(x_ptr + (offs,))": "a block is needed here, but this is a tuple: use its parts one by one",
    "r = None + x": "a kernel computes with numbers and blocks, but this is None",
    "r = range(0, BLOCK)": "tl.arange(0, BLOCK) is a block of numbers",
    "r = x < range(0, BLOCK)": "a kernel cannot compute with a range: tl.arange(0, BLOCK) is a block",
    "x *= tl.slice(0, 1, 2)": "a kernel computes with numbers and blocks, but this is a slice",
    "r = x < tl.max": "a kernel computes with numbers and blocks, but this is a function",
    "r = x + tl.float32": "a kernel computes with numbers and blocks, but this is a dtype",
    "r = tl.where(mask, x, float)": "a kernel computes with numbers and blocks, but this is a type",
    "r = x.dtype.type": "'dtype' object has no attribute 'type'",
    "r = tl.broadcast_to(x, (HALF, BLOCK))": "[32] cannot become [16, 32]: add the axis with x[None, :]",
    "r = tl.reshape(x, (-1, 1))": "every size of a shape must be written out: -1 has no meaning here",
    "a, b = tl.split(x)": "whose last axis has 2 elements: x is [32] = [BLOCK]",
    "x.store(z_ptr + offs)": "swapped: tl.store(z_ptr + offs, x, ...) has the addresses first",
    "r = tl.zeros((0,), tl.float32)": "a block of shape (0,) has no elements",
    "for i in range(4):\n    x = tl.histogram(offs, True)": "but [1] of int32 after this line",
    "for i in range(4):\n    mask = x2 > 0": "a mask [32] = [BLOCK] before the loop, but a mask [32, 16]",
    "b = tl.make_block_ptr(x_ptr, (N,), (1,), (0,), (32,), (0,))\n"
    "if x_ptr:\n    b = ([32], (1,))": "b is a block "
    "pointer to [32] = [BLOCK] of float32 before the if, but a tuple after this line",
    "if x_ptr:\n    mask = (1,)": "mask is a mask [32] = [BLOCK] before the if, but a tuple after this line",
    "for i in range(4):\n    x = x.to(tl.float16)": "x is [32] = [BLOCK] of float32 before the loop",
}


@pytest.mark.parametrize("line", MORE)
def test_what_else_is_said(line):
    kernel = written(line)
    refusal = vet(kernel) or front_end(kernel, ARGUMENTS)
    assert MORE[line] in refusal.message and "Error" not in refusal.message
    assert not ("for float32" in MORE[line] and ".to(tl.float32)" in refusal.message)  # it is one
    assert refusal.site.source.strip() in line


@pytest.mark.parametrize(
    "lines, shown",
    [
        (
            "r = tl.load(\n    x_ptr + offs,\n    mask=mask,\n    others=0.0,\n)",
            "r = tl.load(x_ptr + offs, mask=mask, others=0.0,)",
        ),
        ("if N > 3:\n    x = x[\n        :, None\n    ]", "x = x[:, None]"),
        ("for i in range(\n    0.5\n):\n    acc += 1", "for i in range("),
    ],
)
def test_a_call_of_several_lines_is_shown_whole(lines, shown):
    assert front_end(written(lines), ARGUMENTS).site.source == shown


def test_a_long_expression_is_cut():
    line = "r = tl.where(\n    mask,\n" + "    x +\n" * 100 + "    x2,\n    x,\n)"
    source = front_end(written(line), ARGUMENTS).site.source
    assert len(source) == wording.LINE and source.startswith("x + x") and source.endswith("...")


@pytest.mark.parametrize("terms, refused", [(200, False), (500, True)])
def test_a_sum_of_hundreds_of_terms_is_told_as_what_it_is(terms, refused):
    kernel = written(f"r = {' + '.join(['x'] * terms)}")
    refusal = vet(kernel)
    assert (refusal and refusal.message) == (wording.TOO_DEEP if refused else None)
    assert not refused or refusal.site.line == FIRST


def test_an_article_is_the_nouns_own():
    kernel = written("r = x + count")
    kernel.__globals__["count"] = tl.constexpr({1: 2})
    assert "count must be a tl.constexpr of a number, but is one of a dict" in vet(kernel).message
    assert [wording.a(noun) for noun in ("int32", "dict", "ndarray")] == ["an int32", "a dict", "a ndarray"]


@pytest.mark.parametrize(
    "cache, eviction, volatile",
    [
        (".cg", "evict_first", False),
        (".ca", "", True),
        ("", "evict_last", True),
        (".cv", "evict_first", False),
    ],
)
def test_ptxas_still_says_the_same_of_hints(cache, eviction, volatile, monkeypatch, own_children):
    hints = f"cache_modifier={cache!r}, eviction_policy={eviction!r}, volatile={volatile}"
    kernel = written(f"tl.store(z_ptr + offs, tl.load(x_ptr + offs, {hints}))")
    refused = front_end(kernel, ARGUMENTS)
    monkeypatch.setattr(observer, "_refuse_two_hints", lambda **hints: None)
    built = build(translate(kernel, ARGUMENTS, find_target("sm_90")))
    assert bool(refused) == bool(built.refusal)


@pytest.mark.parametrize(
    "dtype", [torch.uint8, torch.int16, torch.bool, torch.int64, torch.int32, torch.uint32]
)
def test_the_compiler_still_counts_32_bits_alone(dtype, monkeypatch, own_children):
    kernel = written("h = tl.histogram(x, 32, mask)\ntl.store(z_ptr + offs, h)")
    arguments = ARGUMENTS | {"x_ptr": torch.empty(0, dtype=dtype)}
    refused = front_end(kernel, arguments)
    monkeypatch.setattr(observer, "_refuse_other_widths", lambda counted: None)
    translation = translate(kernel, arguments, find_target("sm_90"))
    by_triton = translation if isinstance(translation, Refusal) else build(translation).refusal
    assert bool(refused) == bool(by_triton) == (dtype.itemsize != 4)


@pytest.mark.parametrize(
    "hint",
    [
        "multiple_of({}, -4)", "multiple_of({}, 4)", "multiple_of({}, 6)", "max_contiguous({}, 0)",
        "max_contiguous({}, -4)", "max_contiguous({}, 3)", "max_constancy({}, 0)", "max_constancy({}, 3)",
        "max_constancy({}, 64)", "max_constancy({}, 2)",
    ],
)  # fmt: skip
def test_the_compiler_still_fails_over_the_same_hints(hint, monkeypatch, own_children):
    lines = ["o = tl.{}", "m = mask"] if "constancy" not in hint else ["o = offs", "m = tl.{} > 0"]
    hinted = "\n".join(lines).format(hint.format("offs" if lines[1] == "m = mask" else "mask.to(tl.int32)"))
    kernel = written(f"{hinted}\nx = tl.load(x_ptr + o, m)\ntl.store(z_ptr + o, x, m)")
    refused = front_end(kernel, ARGUMENTS)
    monkeypatch.setattr(observer, "_refuse_promise", lambda *promise: None)
    built = build(translate(kernel, ARGUMENTS, find_target("sm_90")))
    assert bool(refused) == bool(built.refusal)


def test_an_argument_of_one_is_a_constant_at_a_launch():
    kernel = written("tl.store(z_ptr + M.to(tl.int64), 1.0)")
    sound = written("tl.store(z_ptr + tl.cast(M, tl.int64), 1.0)")
    cases = [{**ARGUMENTS, "M": 3}, {**ARGUMENTS, "M": 1}]
    first, second = opinions(kernel, cases)
    assert first.refusal is None
    assert "M is 1 here, and a launch turns the integer 1 into a constant" in second.refusal.message
    assert "tl.cast(M, ...)" in second.refusal.message
    assert [opinion.refusal for opinion in opinions(sound, cases)] == [None, None]


def test_and_between_blocks_is_taken_with_a_note():
    (opinion,) = opinions(written("m = mask and (offs > 3)"), [ARGUMENTS])
    assert opinion.refusal is None
    assert opinion.notes == (
        "use & and | between blocks: `and` and `or` are deprecated there "
        f"(line {FIRST}: m = mask and (offs > 3))",
    )


def test_what_is_square_is_no_transposed_other():
    line = "tl.store(z_ptr + offs[:, None] + offs[None, :], x[:, None] + x[None, :], mask[:, None, None])"
    told = front_end(written(line), ARGUMENTS).message
    assert "the mask is [32, 1, 1] = [BLOCK, 1, 1]" in told and "transposed" not in told


def test_a_name_near_to_none_is_not_guessed():
    assert wording.in_triton("xyzzy") == "" and wording.in_triton("_builtin") == ""


def test_a_global_beside_a_pointer_of_its_name_is_told_the_pointer():
    kernel = written("r = tl.load(z + offs)")
    kernel.__globals__["z"] = X
    refusal = front_end(kernel, ARGUMENTS)
    assert "z is not defined here: the pointer is z_ptr (a kernel can't see the global z)" in refusal.message


@pytest.mark.parametrize(
    "lines, says",
    [
        (
            "for i in range(0, N):\n    scale = acc * 2\ntl.store(z_ptr + offs, scale)",
            r", because line \d+ sets it inside: move that line below the loop",
        ),
        (
            "for i in range(0, N):\n    at = offs + i\n    scale = at * 2\ntl.store(z_ptr, scale)",
            r": line \d+ sets it inside, for each i. Set it here, too",
        ),
        (
            "for i in range(0, N):\n    scale = x + i\nfor i in range(0, N):\n    acc += scale",
            r": line \d+ sets it inside, for each i. Set it in this loop, too",
        ),
    ],
)
def test_a_name_that_the_kernel_sets_in_a_loop_is_not_taken_for_a_global(lines, says):
    kernel = written(lines)
    kernel.__globals__["scale"] = X
    message = front_end(kernel, ARGUMENTS).message
    assert re.search(f"scale is not defined after the loop{says}", message), message


@pytest.mark.parametrize(
    "puzzle, old, new, says",
    [
        (
            "online_softmax",
            "denominator * factor",
            "denominator * factor[:, None]",
            "denominator and factor are vectors of one length: leave out [:, None]",
        ),
        (
            "long_softmax",
            "row_max = tl.full((BLOCK_M,)",
            "row_max = tl.full((BLOCK_M, BLOCK_N)",
            "row_max has 2 axes because of line 7: row_max = tl.full((BLOCK_M, BLOCK_N)",
        ),
    ],
)
def test_a_vector_with_an_axis_too_many_is_named(puzzle, old, new, says):
    kernel = define(kernel_sources()[puzzle].replace(old, new, 1), f"<{puzzle} with {new}>")
    (chosen,) = (each for each in puzzles() if each.name == puzzle)
    assert says in str(examine(kernel, chosen))


UNSET = "z is not defined: no line sets it, and it is not among the kernel's parameters"


@pytest.mark.parametrize("known", [None, X, [1, 2], 3])
def test_a_line_that_is_still_missing_is_not_taken_for_a_global(known):
    """A half-finished kernel stores z before any line computes it; a cell above has made a z of its own."""
    kernel = written("tl.store(z_ptr + offs, z)")
    if known is not None:
        kernel.__globals__["z"] = known
    message = (vet(kernel) or front_end(kernel, ARGUMENTS)).message
    assert message.startswith(UNSET) and ("can't see the global z" in message) == (known is not None)
    assert ("tl.constexpr" in message) == (known == 3 if isinstance(known, int) else False)
    assert "z_ptr" not in message


@pytest.mark.parametrize("known", [None, X])
def test_a_value_is_not_taken_for_its_pointer_misspelled(known):
    kernel = define(
        "@triton.jit\ndef kernel(scale_ptr, BLOCK: tl.constexpr):\n"
        "    tl.store(scale_ptr + tl.arange(0, BLOCK), scale)\n",
        "<scale is still missing>",
    )
    if known is not None:
        kernel.__globals__["scale"] = known
    message = front_end(kernel, {"scale_ptr": X, "BLOCK": 32}).message
    assert message.startswith("scale is not defined: no line sets it") and "did you mean" not in message


def test_a_global_is_mentioned_beside_a_value_that_comes_later():
    kernel = written("r = z + 1\nz = x")
    kernel.__globals__["z"] = X
    message = front_end(kernel, ARGUMENTS).message
    assert (
        "z is not defined here: its first value comes only in this line or a later one (a kernel" in message
    )
