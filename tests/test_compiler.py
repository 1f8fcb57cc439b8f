"""What a compiler would refuse is refused here, with the learner's line, on a machine with no GPU."""

import dataclasses
import math
import os
import resource

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib import CONSTANT_ADD, MASKED_ADD, OUTER_ADD_BLOCKS, trace
from puzzles_lib.authoring.solutions import define, kernel_sources
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine, verdicts
from puzzles_lib.compiler import front_end
from puzzles_lib.compiler.vetting import vet
from puzzles_lib.source import Refusal
from tests import running

ten = 10
TEN = tl.constexpr(10)
plus_ten = lambda x: x + 10  # noqa: E731


def spec(x):
    return x + 10


@triton.jit
def helper(x):
    return x + TEN


@triton.jit
def bad_helper(x):
    return torch.relu(x)


# One kernel per refusal: what it does wrong, and words that the refusal must hold.


@triton.jit
def calls_torch(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, torch.relu(tl.load(x_ptr + offs)))


@triton.jit
def calls_the_spec(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, spec(tl.load(x_ptr + offs)))


@triton.jit
def calls_a_lambda(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, plus_ten(tl.load(x_ptr + offs)))


@triton.jit
def calls_a_bad_helper(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, bad_helper(tl.load(x_ptr + offs)))


@triton.jit
def exits(x_ptr, z_ptr, BLOCK: tl.constexpr):
    os._exit(1)


@triton.jit
def exits_by_builtin(x_ptr, z_ptr, BLOCK: tl.constexpr):
    exit()


@triton.jit
def exits_by_alias(x_ptr, z_ptr, BLOCK: tl.constexpr):
    leave = os._exit
    leave(0)


@triton.jit
def hands_a_function_to_triton(x_ptr, z_ptr, BLOCK: tl.constexpr):
    triton.testing.do_bench(os.abort)


@triton.jit
def reaches_into_the_interpreter(x_ptr, z_ptr, BLOCK: tl.constexpr):
    x = tl.arange(0, BLOCK)
    x.handle.data.fill(0)


@triton.jit
def climbs_the_class_tree(x_ptr, z_ptr, BLOCK: tl.constexpr):
    x = ().__class__.__base__.__subclasses__()
    tl.store(z_ptr, x)


@triton.jit
def run_time_block(x_ptr, z_ptr, BLOCK):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs))


@triton.jit
def reads_a_global(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + ten)


@triton.jit
def forgets_parentheses(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, 1.0, mask=offs < 10 & offs < 20)


@triton.jit
def branches_on_a_block(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    if offs > 3:
        tl.store(z_ptr + offs, 1.0)


@triton.jit
def changes_a_type(x_ptr, z_ptr, BLOCK: tl.constexpr):
    acc = 0
    for _ in range(4):
        acc += tl.load(x_ptr + tl.arange(0, BLOCK))
    tl.store(z_ptr + tl.arange(0, BLOCK), acc)


@triton.jit
def prints_a_shape(x_ptr, z_ptr, BLOCK: tl.constexpr):
    print(tl.arange(0, BLOCK).shape)


@triton.jit
def multiplies_small_tiles(x_ptr, z_ptr, BLOCK: tl.constexpr):
    tile = tl.zeros((8, 8), tl.float32)
    tl.store(z_ptr + tl.arange(0, 8)[:, None] * 8 + tl.arange(0, 8)[None, :], tl.dot(tile, tile))


@triton.jit
def calls_itself(x_ptr, z_ptr, BLOCK: tl.constexpr):
    calls_itself(x_ptr, z_ptr, BLOCK)


@triton.jit
def masks_with_numbers(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=offs))


@triton.jit
def adds_to_a_block_pointer(x_ptr, z_ptr, BLOCK: tl.constexpr):
    tile = tl.make_block_ptr(x_ptr, (BLOCK,), (1,), (0,), (BLOCK,), (0,))
    tile += BLOCK
    tl.store(z_ptr + tl.arange(0, BLOCK), tl.load(tile))


@triton.jit
def advances_a_pointer(x_ptr, z_ptr, BLOCK: tl.constexpr):
    tl.store(z_ptr, tl.load(tl.advance(x_ptr, (BLOCK,))))


@triton.jit
def loops_for_ever(x_ptr, z_ptr, BLOCK: tl.constexpr):
    while True:
        tl.store(z_ptr, 1.0)


@triton.jit
def imports(x_ptr, z_ptr, BLOCK: tl.constexpr):
    import os

    os.getpid()


REFUSED = [
    (calls_torch, "torch.relu", "torch.relu("),
    (calls_the_spec, "spec, a Python function", "spec("),
    (calls_a_lambda, "plus_ten, a lambda", "plus_ten("),
    (calls_a_bad_helper, "torch.relu", "return torch.relu(x)"),
    (exits, "os._exit", "os._exit(1)"),
    (exits_by_builtin, "exit() is Python's", "exit()"),
    (exits_by_alias, "internals", "leave = os._exit"),
    (hands_a_function_to_triton, "triton.testing.do_bench", "do_bench"),
    (reaches_into_the_interpreter, "x.handle", "x.handle"),
    (climbs_the_class_tree, "internals", "__subclasses__"),
    (run_time_block, "known at compile time", "tl.arange(0, BLOCK)"),
    (reads_a_global, "a kernel can't see the global ten): pass it as a parameter", "+ ten"),
    (forgets_parentheses, "put each in parentheses: (offs < 10) & (offs < 20)", "offs < 10 & offs < 20"),
    (branches_on_a_block, "", "if offs > 3"),
    (changes_a_type, "one int32 before the loop", "acc += tl.load"),
    (prints_a_shape, "", "print("),
    (multiplies_small_tiles, "", "tl.dot"),
    (masks_with_numbers, "a mask must be a condition", "mask=offs"),
    (adds_to_a_block_pointer, "a block pointer only works in tl.advance", "tile += BLOCK"),
    (advances_a_pointer, "tl.advance only moves block pointers", "tl.advance"),
    (loops_for_ever, "the condition of a while", "while True"),
    (imports, "", ""),
]
ARGUMENTS = {"x_ptr": torch.empty(0), "z_ptr": torch.empty(0), "BLOCK": 16}


def refusal_of(kernel):
    return vet(kernel) or front_end(kernel, ARGUMENTS)


@pytest.mark.parametrize("kernel, words, line", REFUSED, ids=[k.__name__ for k, _, _ in REFUSED])
def test_refused_with_reason_and_line(kernel, words, line, capfd):
    refusal = refusal_of(kernel)
    assert capfd.readouterr() == ("", "")
    assert refusal is not None
    assert words in refusal.message and len(refusal.message) <= 250 and "\n" not in refusal.message
    assert line in refusal.site.source
    assert "Error(" not in refusal.message


def test_recursion_is_refused():
    assert "recurse" in refusal_of(calls_itself).message


def test_a_name_that_is_no_name_to_the_compiler():
    kernel = define("@triton.jit\ndef käse(z_ptr):\n    tl.store(z_ptr, 1.0)\n", "<käse>")
    assert front_end(kernel, {"z_ptr": torch.empty(0)}).message == "invalid function identifier: käse"


def test_lines_are_those_of_the_file():
    with open(__file__) as file:
        lines = file.read().splitlines()
    refusal = refusal_of(run_time_block)
    assert lines[refusal.site.line - 1].strip() == refusal.site.source


@triton.jit
def uses_much_of_the_language(x_ptr, z_ptr, BLOCK: tl.constexpr, SCALE: tl.constexpr = math.pi):
    offs = tl.arange(0, BLOCK)
    tl.static_assert(BLOCK >= 16)
    tl.device_assert(offs >= 0, "message")
    x = helper(tl.load(x_ptr + offs))
    x = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    half: tl.constexpr = BLOCK // 2
    for i in tl.static_range(2):
        x = tl.maximum(x, tl.exp(-x) * SCALE * i).to(tl.float32)
    total = x.sum(0) + tl.sum(x, axis=0) + min(BLOCK, 4) + math.log2(BLOCK) + triton.next_power_of_2(half)
    if total > 0:
        x = tl.where(x > 0, x, 0.0)
    tl.store(z_ptr + offs, x + total)


def test_what_a_compiler_accepts_is_accepted():
    assert vet(uses_much_of_the_language) is None
    assert front_end(uses_much_of_the_language, {**ARGUMENTS, "SCALE": math.pi}) is None


def test_a_compile_without_end_is_stopped(monkeypatch):
    @triton.jit
    def unrolls(x_ptr, z_ptr, BLOCK: tl.constexpr):
        for i in tl.static_range(10**9):
            tl.store(z_ptr, i)

    monkeypatch.setattr("puzzles_lib.compiler.frontend.FRONT_END_SECONDS", 0.3)
    assert "compiling takes more than" in refusal_of(unrolls).message


@pytest.mark.parametrize(
    "line",
    [
        "a: tl.constexpr = 'a' * (6 * 10**9)",
        "a: tl.constexpr = 1 << (64 * 10**9)",
        "a = (1,) * 10**9",
    ],
)
def test_values_too_large_for_memory_are_refused(line):
    kernel = define(f"@triton.jit\ndef kernel(z_ptr):\n    {line}\n    tl.store(z_ptr, 1.0)\n", f"<{line}>")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refusal = front_end(kernel, {"z_ptr": torch.empty(0)})
    assert "takes more than 1 GB" in refusal.message and refusal.site.source == line
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # KB
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY


def test_values_of_a_refused_kernel_do_not_stay():
    lines = "a: tl.constexpr = 'a' * 900 * 2**20", "b: tl.constexpr = a + a"
    kernel = define("\n    ".join(["@triton.jit\ndef kernel(z_ptr):", *lines, ""]), "<adds>")

    def resident() -> int:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * resource.getpagesize()

    before = resident()
    assert "takes more than 1 GB" in front_end(kernel, {"z_ptr": torch.empty(0)}).message
    assert resident() - before < 450 * 2**20


def test_an_assertion_that_fails_is_said_in_a_line_also_from_a_helper():
    @triton.jit
    def asserts(x_ptr, z_ptr, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK == 3)

    @triton.jit
    def asserts_with_words(x_ptr, z_ptr, BLOCK: tl.constexpr):
        tl.static_assert(BLOCK == 3, "BLOCK must be 3")

    @triton.jit
    def calls(x_ptr, z_ptr, BLOCK: tl.constexpr):
        asserts(x_ptr, z_ptr, BLOCK)

    for kernel, words in ((asserts, ""), (calls, ""), (asserts_with_words, ": BLOCK must be 3")):
        refusal = refusal_of(kernel)
        assert refusal.message == f"tl.static_assert fails{words}"
        assert refusal.site.source.startswith("tl.static_assert(BLOCK == 3")


def test_an_accumulator_of_another_dtype_is_explained():
    @triton.jit
    def kernel(x_ptr, z_ptr):
        i = tl.arange(0, 32)
        x = tl.load(x_ptr + i[:, None] * 32 + i[None, :])
        acc = tl.zeros((32, 32), tl.int32)
        acc = tl.dot(x, x, acc)
        tl.store(z_ptr + i[:, None] * 32 + i[None, :], acc)

    refusal = front_end(kernel, {"x_ptr": torch.empty(0, dtype=torch.int8), "z_ptr": torch.empty(0)})
    assert "accumulator has another dtype" in refusal.message and "tl.dot(x, x, acc)" in refusal.site.source


def test_an_accumulator_of_half_precision_is_told_to_be_float32():
    """Neither way to add to it may be advised: one rounds every sum, the other changes acc's dtype."""

    @triton.jit
    def given(x_ptr, z_ptr):
        i = tl.arange(0, 32)
        x = tl.load(x_ptr + i[:, None] * 32 + i[None, :])
        acc = tl.zeros((32, 32), tl.float16)
        for _ in range(2):
            acc = tl.dot(x, x, acc)
        tl.store(z_ptr + i[:, None] * 32 + i[None, :], acc)

    @triton.jit
    def added(x_ptr, z_ptr):
        i = tl.arange(0, 32)
        x = tl.load(x_ptr + i[:, None] * 32 + i[None, :])
        acc = tl.zeros((32, 32), tl.float16)
        for _ in range(2):
            acc += tl.dot(x, x)
        tl.store(z_ptr + i[:, None] * 32 + i[None, :], acc)

    tensors = {"x_ptr": torch.empty(0, dtype=torch.float16), "z_ptr": torch.empty(0)}
    assert "acc is float16, but tl.dot adds in float32: make acc of float32" in (
        front_end(given, tensors).message
    )
    assert "float32 after this line: start with float32, because" in front_end(added, tensors).message


HABITS = {  # of NumPy users, with words of the answer
    "x = x_ptr[0]": "a pointer cannot be indexed: use tl.load",
    "x = x_ptr[i]": "a pointer cannot be indexed: use tl.load",
    "z_ptr[0] = 1.0": "a pointer cannot be indexed: use tl.load",
    "i[0] = 1": "you cannot assign to elements of a block: make a new block with tl.where",
    "x = i[0]": "you cannot pick elements of a block: an index can only contain `:` and None",
    "x = i ** 2": "** only works on constants",
    "x = 2 ** i": "** only works on constants",
    "if i < 3: tl.store(z_ptr + i, 1.0)": "an if cannot decide lane by lane",
    "x = i if i < 3 else 0.0": "use tl.where(c, a, b)",
}


@pytest.mark.parametrize("line", HABITS)
def test_habits_from_numpy_are_answered_in_plain_words(line):
    source = f"@triton.jit\ndef kernel(x_ptr, z_ptr):\n    i = tl.arange(0, 32)\n    {line}\n"
    x = torch.empty(32)
    refusal = front_end(define(source, "<habit>"), {"x_ptr": x, "z_ptr": x})
    assert HABITS[line] in refusal.message and refusal.site.line == 4


# What makes Triton's C++ end its process, or would, and words of the answer.
CRASHES = "tl.make_block_ptr(x_ptr, tl.full((1,), 32, tl.int32), (1,), (0,), (32,), (0,))"
ENDS = {
    "r = tl.debug_barrier()[:, None]": "return no value",
    "h = tl.store(z_ptr + i, i)\n    tl.store(z_ptr + i, h)": "return no value",
    "r = tl.join(tl.store(z_ptr + i, i), i)": "return no value",
    "print('a', bp)": "a block pointer only works in tl.advance",
    "tl.device_print('a', i, bp)": "a block pointer only works in tl.advance",
    "tl.inline_asm_elementwise('mov.b32 $0, $1;', '=r,r', [i], tl.int32, True, 0)": "but is 0",
    "r = i if bp else i": "a block pointer only works in tl.advance",
    "bp.to(tl.int1)": "a block pointer only works in tl.advance",
    "tl.histogram(i, -4)": "tl.histogram needs at least 1 bin, but num_bins is -4",
    CRASHES: "Triton's compiler crashed on this line",
    "tl.inline_asm_elementwise('a' * (450 << 20), '=r,r', [i], tl.int32, True, 1)": "compiler crashed on",
}


@pytest.mark.parametrize("line", ENDS)
def test_what_ends_the_compilers_process_is_refused_at_its_line(line):
    head = "@triton.jit\ndef kernel(x_ptr, z_ptr):\n    i = tl.arange(0, 32)\n"
    block_pointer = "    bp = tl.make_block_ptr(x_ptr, (32,), (1,), (0,), (32,), (0,))\n"
    x = torch.empty(0)
    kernel = define(f"{head}{block_pointer}    {line}\n", f"<{line[:30]}>")
    refusal = front_end(kernel, {"x_ptr": x, "z_ptr": x})
    assert ENDS[line] in refusal.message and refusal.site.source == line.splitlines()[-1].strip()


def test_a_helper_that_breaks_the_compiler_is_named_by_its_own_line():
    source = f"@triton.jit\ndef helper(x_ptr):\n    return {CRASHES}\n\n@triton.jit\ndef kernel(z_ptr):\n"
    kernel = define(f"{source}    helper(z_ptr)\n", "<breaks in a helper>")
    refusal = front_end(kernel, {"z_ptr": torch.empty(0)})
    assert (refusal.site.line, refusal.site.source) == (3, f"return {CRASHES}")


# What Triton takes, and vetting and the interpreter take as well: lines that set r to x + 10.
TAKEN = [
    "r = (x + 10).to(z_ptr.dtype.element_ty)",
    "r = (x + 10).to(z_ptr.type.element_ty)",
    "r = x + 10 + x.dtype.primitive_bitwidth - 32",
    "r = x + 10 + (x.type.get_block_shapes()[0] - BLOCK)",
    "r = x + 10 + (BLOCK.value - BLOCK)",
    "T: tl.constexpr = z_ptr.dtype.element_ty\n    r = (x + 10).to(T)",
    "T: tl.constexpr = add10\n    r = T(x)",
    "r = apply(add10, x)",
    "r = x + halved(20)",
    "größe = BLOCK\n    r = x + 10 + (größe - BLOCK)",
    "m = (offs >= 0) and (offs < N)\n    r = tl.where(m, x + 10, 0.0)",
    "offs2: torch.Tensor = offs\n    r = x + 10",
    "r = x + RED",
]
HELPERS = """
import enum, typing
import torch
RED = tl.constexpr(enum.IntEnum("Colour", {"RED": 10}).RED)

@triton.jit
def add10(x):
    return x + 10

@triton.jit
def apply(f: tl.constexpr, x):
    return f(x)

@triton.constexpr_function
def halved(n):
    count = 0
    for i in range(n):
        count += 1 if i >= 0 else max(0, i)
    return count // 2
"""


@pytest.mark.parametrize("line", TAKEN)
@pytest.mark.parametrize("types", ["", "typed"], ids=["bare", "typed"])
def test_what_triton_takes_is_taken(line, types):
    parameters = "x_ptr, z_ptr, N, BLOCK: tl.constexpr"
    if types:
        parameters = "x_ptr: torch.Tensor, z_ptr: typing.Optional[torch.Tensor], N: int, BLOCK: tl.constexpr"
    source = f"""{HELPERS}
@triton.jit
def kernel({parameters}):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    {line}
    tl.store(z_ptr + offs, r, mask=offs < N)
"""
    puzzle = dataclasses.replace(MASKED_ADD, cases=MASKED_ADD.cases[-1:])
    report = examine(define(source, "<taken>"), puzzle)
    assert report.ok, report


PYTHONS = {  # in a constexpr function, which runs as Python
    "os.abort()": "os.abort is Python's",
    "exec('1')": "exec() is Python's",
    "().__class__": "internals",
    "getattr(os, 'abort')()": "",
    "tl.str_to_ty('tensordesc<fp32[1],print(1)>', n)": "tl.str_to_ty is Python's",  # it evaluates that
    "tl.core.dispatch(n, '', '', (), {}, '')": "tl.core.dispatch is Python's",
}


@pytest.mark.parametrize("line", PYTHONS)
def test_a_constexpr_function_may_not_reach_python(line):
    source = f"import os\n@triton.constexpr_function\ndef ends(n):\n    return {line}\n"
    kernel = define(f"{source}@triton.jit\ndef kernel(z_ptr):\n    tl.store(z_ptr, ends(1))\n", f"<{line}>")
    refusal = vet(kernel)
    assert PYTHONS[line] in refusal.message and line in refusal.site.source


STATEMENTS = {  # in a constexpr function: what each is called in the refusal
    "from builtins import exec as run": "an import",
    "import os": "an import",
    "global m": "global",
    "def inner(): pass": "a function",
    "class Inner: pass": "a class",
    "x = lambda: 0": "a lambda",
    "x = [i for i in range(3)]": "a comprehension",
    "x = sum(i for i in range(3))": "a generator",
    "x = {1: 2}": "a dictionary",
    "x = f'{n}'": "an f-string",
    "with n: pass": "with",
    "del n": "del",
    "raise ValueError": "raise",
    "yield n": "yield",
    "(y := n)": ":=",
    "try: pass\n    except Exception: pass": "try",
    "match n:\n        case int(__class__=c): pass": "match",
}


@pytest.mark.parametrize("line", STATEMENTS)
def test_a_constexpr_function_consists_of_arithmetic(line):
    source = f"@triton.constexpr_function\ndef ends(n):\n    {line}\n    return 1\n"
    kernel = define(f"{source}@triton.jit\ndef kernel(z_ptr):\n    tl.store(z_ptr, ends(1))\n", f"<{line}>")
    refusal = vet(kernel)
    assert refusal is not None and f"it cannot contain {STATEMENTS[line]}" in refusal.message
    assert refusal.site.source == line.splitlines()[0]


@pytest.mark.parametrize("line", ["tl.float32.name = 'fp16'", "tl.load = n", "n.value += 1"])
def test_a_constexpr_function_sets_no_attribute(line):
    source = f"@triton.constexpr_function\ndef ends(n):\n    {line}\n    return 1\n"
    kernel = define(f"{source}@triton.jit\ndef kernel(z_ptr):\n    tl.store(z_ptr, ends(1))\n", f"<{line}>")
    assert "a constexpr function cannot set an attribute" in vet(kernel).message


@pytest.mark.parametrize("line", ["import os", "global m", "class A: pass", "raise ValueError"])
def test_a_kernel_hides_nothing_under_a_condition_that_the_compiler_skips(line):
    body = f"    if B > 4:\n        {line}\n    tl.store(z_ptr, 1)\n"
    source = f"@triton.jit\ndef kernel(z_ptr, B: tl.constexpr):\n{body}"
    refusal = vet(define(source, f"<hidden {line}>"))
    assert refusal is not None and refusal.site.source == line


def test_vetting_ends_for_tuples_that_hold_themselves_many_times():
    nested = ()
    for _ in range(60):
        nested = (nested, nested)
    kernel = define("@triton.jit\ndef kernel(z_ptr):\n    tl.store(z_ptr, NESTED)\n", "<nested>")
    kernel.__globals__["NESTED"] = tl.constexpr(nested)
    assert vet(kernel) is None


@pytest.mark.parametrize("line", ["pair.die()", "pair.module.abort()", "Pair.die", "pair.die.module"])
def test_fields_of_a_named_tuple_are_those_of_the_kernels_own_values(line):
    source = 'Pair = collections.namedtuple("Pair", "die module")\npair = Pair(print, collections)\n'
    kernel = f"@triton.jit\ndef kernel(z_ptr):\n    p = Pair(1, 2)\n    tl.store(z_ptr, p.die)\n    {line}\n"
    refusal = vet(define(f"import collections\n{source}{kernel}", "<pair>"))
    assert refusal.site.source == line
    assert vet(define(f"import collections\n{source}{kernel.replace(line, 'p.module')}", "<own>")) is None


def test_a_refusal_in_a_later_case_is_the_verdict_of_that_case():
    """Right for square blocks: the rows' mask is missing an axis."""
    source = """@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    x = tl.load(x_ptr + offs_n, mask=offs_n < N)
    y = tl.load(y_ptr + offs_m, mask=offs_m < M)
    z = x[None, :] + y[:, None] + 0.0 * (offs_m + offs_n)[:, None]
    mask = (offs_m[:, None] < M) & (offs_n[None, :] < N)
    tl.store(z_ptr + offs_m[:, None] * N + offs_n[None, :], z, mask=mask)
"""
    report = examine(define(source, "<square>"), OUTER_ADD_BLOCKS)
    assert [c.status for c in report.cases][:2] == ["pass", "FAIL"]
    verdict = report.cases[1].verdict
    assert verdict.kind == "compiler" and verdict.site.line == 7
    facts = "offs_m is [16] = [BLOCK_M], offs_n is [32] = [BLOCK_N]"
    assert verdict.diagnosis.startswith(facts)
    assert verdict.diagnosis.endswith("; the earlier cases compile, because BLOCK_M = BLOCK_N there")


def test_a_name_outside_the_shapes_is_no_reason_why_earlier_cases_compile():
    message = "shapes that do not fit each other: ok is [16], offs_m < M is [1, 32] = [1, BLOCK_M]"
    verdict = verdicts.of_refusal_in_a_case(Refusal(message), OUTER_ADD_BLOCKS, OUTER_ADD_BLOCKS.cases[1])
    assert "earlier" not in verdict.diagnosis
    told = message.replace("is [16]", "is [16] = [BLOCK_N]")
    verdict = verdicts.of_refusal_in_a_case(Refusal(told), OUTER_ADD_BLOCKS, OUTER_ADD_BLOCKS.cases[1])
    assert "because BLOCK_M = BLOCK_N there" in verdict.diagnosis


@pytest.mark.parametrize(
    "puzzle, edits, origin",
    [
        (
            "flash_attention",
            {'tl.dot(q, k.T, input_precision="ieee")': "q[:, None] * k[None, :]"},
            "p has 3 axes because of line 32: scores = q[:, None] * k[None, :] / root_d",
        ),
        (
            "flash_attention",
            {
                'tl.dot(q, k.T, input_precision="ieee")': "q[:, None] * k[None, :]",
                'tl.dot(p, v, input_precision="ieee")': "tl.sum(p, axis=2)",
            },
            "new_max has 2 axes because of line 34: new_max = tl.maximum(row_max, tl.max(scores, axis=1))",
        ),
        (
            "outer_add_blocks",
            {
                "    mask = ": "    z = x[None, None, :] + y[:, None]\n    mask = ",
                "x[None, :] + y[:, None]": "z",
            },
            "z has 3 axes because of line 10: z = x[None, None, :] + y[:, None]",
        ),
        (
            "long_sum",
            {"acc += tl.sum(x, axis=1)": "part = tl.sum(x, axis=1)\n        acc += tl.sum(part, axis=1)"},
            "part has 1 axis because of line 10: part = tl.sum(x, axis=1)",
        ),
        (
            "flash_attention",
            {
                "acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)": "acc = tl.zeros((BLOCK_Q,), tl.float32)",
                "acc * factor[:, None]": "acc",
            },
            "tl.dot gives a tile: the sum has to start as a tile of its shape, [16, 16]",
        ),
        (
            "long_sum",
            {"tl.sum(x, axis=1)": "tl.sum(tl.sum(x, axis=1), axis=1)"},
            "",  # the value has no name
        ),
    ],
)
def test_the_line_that_gave_a_value_its_axes_is_named(puzzle, edits, origin):
    source = kernel_sources()[puzzle]
    for old, new in edits.items():
        assert old in source
        source = source.replace(old, new)
    (task,) = (each for each in puzzles() if each.name == puzzle)
    verdict = examine(define(source, f"<axes of {puzzle}>"), task).verdict
    assert verdict.kind == "compiler" and verdict.diagnosis.endswith(origin)
    assert ("because of" in verdict.diagnosis) == ("because of" in origin)


def test_a_refusal_in_a_later_case_is_told_before_other_faults():
    source = """@triton.jit
def kernel(x_ptr, y_ptr, z_ptr, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    offs_m = tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    tl.store(z_ptr + offs_m * N + offs_n, 0.0, mask=offs_m < M)
"""
    report = examine(define(source, "<diagonal>"), OUTER_ADD_BLOCKS)
    assert report.verdicts[0].kind == "never written" and report.telling.kind == "compiler"
    _, first, told, why, *_ = str(report).splitlines()
    assert first.startswith("FAIL") and first.endswith("(case=0)   never written")
    assert told.startswith("FAIL") and "refuses this kernel: shapes that do not fit each other" in why


def test_a_refused_kernel_is_reported_by_check():
    @triton.jit
    def wrong(z_ptr, BLOCK_M):
        tl.store(z_ptr + tl.arange(0, BLOCK_M), 0.0)

    report = examine(wrong, OUTER_ADD_BLOCKS)
    assert report.verdict.kind == "compiler" and "the compiler refuses this kernel" in str(report)
    assert len(str(report).splitlines()) == 3


CLASSES = """
from triton.language.core import _aggregate as aggregate

@aggregate
class Pair:
    a: tl.tensor
    b: tl.tensor

    def __init__(self, a, b):
        self.a, self.b = a, b

    @triton.jit
    def total(self):
        return self.a + self.b

class Ops:
    @staticmethod
    @triton.jit
    def twice(x):
        return 2 * x

@triton.jit
def kernel(z_ptr):
    i = tl.arange(0, 8)
    pair = EXPRESSION
    tl.store(z_ptr + i, 0)
"""


@pytest.mark.parametrize("expression", ["Pair(i, i)", "Pair(i, i).total()", "Pair(i, i).a"])
def test_an_aggregate_is_refused_in_the_courses_own_name(expression):
    kernel = define(CLASSES.replace("EXPRESSION", expression), "<classes>")
    assert front_end(kernel, {"z_ptr": torch.empty(0, dtype=torch.int32)}) is None  # the compiler takes it
    refusal = vet(kernel)
    assert (refusal.by, refusal.site.line) == ("the course's checker", 25)
    assert "Pair is an aggregate" in refusal.message and "class Pair(typing.NamedTuple)" in refusal.advice


def test_what_is_to_be_written_instead_of_an_aggregate_is_taken():
    source = CLASSES.replace("@aggregate\nclass Pair:", "class Pair(typing.NamedTuple):")
    source = source.replace("    def __init__(self, a, b):\n        self.a, self.b = a, b\n\n", "")
    source = source.replace("    @triton.jit\n    def total(self):", "@triton.jit\ndef total(self):")
    source = source.replace("        return self.a + self.b", "    return self.a + self.b")
    kernel = define("import typing\n" + source.replace("EXPRESSION", "total(Pair(i, i))"), "<classes>")
    z = torch.zeros(8, dtype=torch.int32)
    assert front_end(kernel, {"z_ptr": z}) is None and vet(kernel) is None
    assert running.run(kernel, {"z_ptr": z}, (1, 1, 1), {"z_ptr"}).stop is None


@pytest.mark.parametrize("expression", ["Ops.twice(i)", "Ops().twice(i)"])
def test_a_static_method_is_to_be_a_function(expression):
    kernel = define(CLASSES.replace("EXPRESSION", expression), "<classes>")
    assert "Ops" in front_end(kernel, {"z_ptr": torch.empty(0, dtype=torch.int32)}).message
    refusal = vet(kernel)
    assert refusal.by == "the compiler" and "make twice a @triton.jit function" in refusal.message


def test_who_refuses_is_said():
    told = verdicts.of_refusal(Refusal("a reason", by="the course's checker")).message
    assert told == "the course's checker refuses this kernel: a reason"


@pytest.mark.parametrize(
    "reason, what, more",
    [
        ("x_ptr is an address: tl.load(x_ptr) reads it", "x_ptr is an address", "tl.load(x_ptr) reads it"),
        ("no `a: b` here: write c, as in x: y", "no `a: b` here", "write c, as in x: y"),
        ("use `:` in x[:, None] or N: tl.constexpr = 3", "use `:` in x[:, None] or N: tl.constexpr = 3", ""),
        ("a TypeError: no", "a TypeError: no", ""),
        ("llir: no", "llir: no", ""),
    ],
)
def test_the_cure_of_a_refusal_has_a_line_of_its_own(reason, what, more):
    verdict = verdicts.of_refusal(Refusal(reason))
    assert verdict.message == f"the compiler refuses this kernel: {what}" and verdict.diagnosis == more
    more = f"{more}; and this" if more else "and this"
    assert verdicts.of_refusal(Refusal(reason, advice="and this")).diagnosis == more


def test_a_kernel_of_no_module_is_one_all_the_same():
    """As after ``exec`` in a scope without a name."""
    kernel = define(
        """
@triton.jit
def constant_add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)
""",
        "<no module>",
    )
    kernel.__module__ = None
    assert examine(kernel, CONSTANT_ADD).ok
    assert "x" in str(trace(kernel, CONSTANT_ADD))


# ---- parameters that Triton's code generator does not see


@triton.jit
def by_keyword(x_ptr, z_ptr, N, *, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < N) + 10, mask=i < N)


@triton.jit
def by_place(x_ptr, z_ptr, /, N, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i, mask=i < N) + 10, mask=i < N)


@pytest.mark.parametrize(
    "kernel, told", [(by_keyword, "BLOCK is a keyword"), (by_place, "x_ptr is a positional")]
)
def test_parameters_by_keyword_or_place_alone_are_named(kernel, told):
    arguments = {"x_ptr": torch.empty(0), "z_ptr": torch.empty(0), "N": 5, "BLOCK": 16}
    assert f"{told}-only parameter, which not every Triton compiles" in str(vet(kernel))
    assert front_end(kernel, arguments) is not None  # so does Triton itself


@pytest.mark.parametrize("name, fold", [("pack_bits", "tl.sum"), ("quantize_codes", "tl.max")])
def test_a_tile_folded_along_the_wrong_axis_is_named_where_its_vector_is_stored(name, fold):
    source = kernel_sources()[name]
    assert "axis=1" in source
    head = "import triton\nimport triton.language as tl\n\n"
    (puzzle,) = (each for each in puzzles() if each.name == name)
    told = str(examine(define(head + source.replace("axis=1", "axis=0"), "<axis>"), puzzle))
    assert "shapes that do not fit each other" in told
    assert f"{fold} in line 1" in told and "has axis=0, which leaves one number per column of" in told
    assert "axis=1 leaves one per row" in told
