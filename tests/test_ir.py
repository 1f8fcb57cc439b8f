"""`puzzles_lib.translator.ir` reads Triton IR in MLIR's generic form."""

import re

import pytest
import torch

from puzzles_lib.compiler import closed_after
from puzzles_lib.compiler.frontend import Opinions
from puzzles_lib.translator import ir
from puzzles_lib.translator.ir import Block, Module, Unreadable, read_module, read_type, unescaped
from tests.kernel_lab import kernel_of

# Everything that is hard to read: brackets, quotes and locations within strings, names that are reused in
# sister regions, several results, attributes before and after the regions, blocks that nothing leads to.
TEXT = r"""
#loc = loc("a (b) loc(c.py":9:0)
#loc6 = loc("k")
#loc34 = loc("x_ptr"(#loc))
#loc40 = loc(unknown)
"builtin.module"() ({
  "tt.func"() <{function_type = (!tt.ptr<f32>, i32) -> (), sym_name = "kernel", sym_visibility = "public"}> ({
  ^bb0(%x_ptr: !tt.ptr<f32> loc("x_ptr"(#loc)), %n: i32 loc(unknown)):
    %i = "tt.make_range"() <{end = 4 : i32, start = 0 : i32}> : () -> tensor<4xi32> loc(#loc37)
    "tt.print"(%n) <{hex = false, s = array<i8: 1>, t = "} loc(#loc1) ^bb0: \22\\b ({ <{x}>, "}> : (i32) -> ()
    %x = "scf.if"(%n) ({
      %y = "arith.constant"() <{value = 1.5 : f32}> : () -> f32 loc(#loc)
      "scf.yield"(%y) : (f32) -> () loc(#loc)
    }, {
      %y = "arith.constant"() <{value = 2.5 : f32}> : () -> f32 loc(#loc)
      "scf.yield"(%y) : (f32) -> () loc(#loc)
    }) : (i1) -> f32 loc(#loc38)
    %9:2 = "tt.call"(%n, %n) <{callee = @"a, <2>"}> : (i32, i32) -> (tensor<4x!tt.ptr<f32>>, i32) loc(#loc39)
    "cf.cond_br"(%9#1, %9#1)[^bb1, ^bb2] <{operandSegmentSizes = array<i32: 1, 1, 0>}> : (i1, i32) -> ()
  ^bb1(%m: i32 loc("m"(#loc))):  // pred: ^bb0
    "tt.return"() : () -> () loc(#loc)
  ^bb2:  // no predecessors
    "cf.br"()[^bb2] : () -> () loc(#loc40)
  }) {noinline = false} : () -> () loc(#loc)
  "tt.func"() <{function_type = (i32, i32) -> (), sym_name = "a, <2>", sym_visibility = "private"}> ({
  ^bb0(%a: i32 loc("a"), %b: i32 loc("b")):
    "tt.return"(%b, %a) : (i32, i32) -> () loc(#loc)
  }) {noinline = true} : () -> () loc(#loc)
}) : () -> () loc(#loc)
#loc1 = loc("f.py":10:21)
#loc4 = loc("f.py":12:73)
#loc37 = loc("gr\C3\BCn"(#loc1))
#loc38 = loc(callsite(#loc4 at #loc1))
#loc39 = loc(fused<"why, [so]">[#loc40, #loc4])
"""

# One line for each operation: results with their numbers and types, name, operands, successors, location.
READ = """
kernel (0 !tt.ptr<f32>, 1 i32) of 9 values, public
^bb0
  2 4xi32 = tt.make_range() f.py:10:21 grün
  tt.print(1) :0:0
  5 f32 = scf.if(1) f.py:12:73
   {
    ^bb0
      3 f32 = arith.constant() a (b) loc(c.py:9:0
      scf.yield(3) a (b) loc(c.py:9:0
   }
   {
    ^bb0
      4 f32 = arith.constant() a (b) loc(c.py:9:0
      scf.yield(4) a (b) loc(c.py:9:0
   }
  6 4x!tt.ptr<f32>, 7 i32 = tt.call(1, 1) f.py:12:73
  cf.cond_br(7, 7) [^bb1, ^bb2] :0:0
^bb1 (8 i32)
  tt.return() a (b) loc(c.py:9:0
^bb2
  cf.br() [^bb2] :0:0
a, <2> (0 i32, 1 i32) of 2 values, private
^bb0
  tt.return(1, 0) a (b) loc(c.py:9:0
"""


def told(module: Module) -> str:
    """What was read, as text."""
    lines = []

    def values(found) -> str:
        return ", ".join(
            f"{v.number} {''.join(f'{n}x' for n in v.type.shape)}{v.type.element}" for v in found
        )

    def block(each: Block, inset: str) -> None:
        lines.append(f"{inset}{each.label}" + (f" ({values(each.arguments)})" if label(each) else ""))
        for op in each.operations:
            results = f"{values(op.results)} = " if op.results else ""
            line = f"{inset}  {results}{op.name}({', '.join(str(v.number) for v in op.operands)})"
            line += f" [{', '.join(op.successors)}]" if op.successors else ""
            at = op.location
            lines.append(f"{line} {at.file}:{at.line}:{at.column} {at.name}".rstrip())
            for region in op.regions:
                lines.append(f"{inset}   {{")
                for inner in region.blocks:
                    block(inner, inset + "    ")
                lines.append(f"{inset}   }}")

    def label(each: Block) -> bool:
        return bool(each.arguments) and each.label != "^bb0"

    for function in module.functions.values():
        of = f"of {function.values} values, {'public' if function.public else 'private'}"
        lines.append(f"{function.name} ({values(function.arguments)}) {of}")
        for each in function.region.blocks:
            block(each, "")
    return "\n".join(lines)


def test_a_text_is_read_as_written():
    assert told(read_module(TEXT)) == READ.strip()


def test_attributes():
    kernel = read_module(TEXT).kernel
    _, print_, _, call, branch = kernel.region.entry.operations
    assert print_.text("t") == '} loc(#loc1) ^bb0: "\\b ({ <{x}>, '
    assert print_.integers("s") == (1,) and not print_.flag("hex") and not print_.flag("other")
    assert call.attributes["callee"] == '@"a, <2>"'
    assert [len(group) for group in branch.segments()] == [1, 1, 0]
    helper = read_module(TEXT).functions["a, <2>"]
    assert [op.name for op in helper.region.entry.operations] == ["tt.return"]


def test_makers_and_users():
    """A name that two sister regions give to different values stands for two values."""
    kernel = read_module(TEXT).kernel
    branches = kernel.region.entry.operations[2].regions
    constants = [region.entry.operations[0] for region in branches]
    yields = [region.entry.operations[1] for region in branches]
    for constant, yielded in zip(constants, yields, strict=True):
        assert constant.results[0].maker is constant
        assert constant.results[0].users == [yielded]


def test_names_of_a_region_end_with_it():
    leaking = TEXT.replace('"cf.br"()[^bb2] : ()', '"cf.br"(%y)[^bb2] : (f32)')
    with pytest.raises(Unreadable, match="%y is used before it is defined"):
        read_module(leaking)


@pytest.mark.parametrize("line", range(1, TEXT.count("\n")))
def test_a_text_that_is_cut(line):
    """A text that ends early, wherever it ends, is not taken for a whole one."""
    lines = TEXT.splitlines()
    end = max(i for i, each in enumerate(lines) if each.startswith("})"))
    if line > end:
        assert told(read_module("\n".join(lines[:line]))).count("\n") == told(read_module(TEXT)).count("\n")
        return
    with pytest.raises(Unreadable):
        read_module("\n".join(lines[:line]))


@pytest.mark.parametrize("at", range(0, 400, 7))
def test_a_line_that_is_cut(at):
    """Half an operation is refused in words, as is a text that is cut within a line."""
    start = TEXT.index('    "tt.print"')
    with pytest.raises(Unreadable):
        read_module(TEXT[: start + at])


@pytest.mark.parametrize(
    "before, after, message",
    [
        ('"builtin.module"() ({', '"builtin.other"() ({', "does not begin with a module"),
        ('sym_visibility = "public"', 'sym_visibility = "private"', "no kernel"),
        ("%9:2 =", "%9:3 =", "are 2 values"),
        ("}, {", "}, {{", "cannot be read"),
        ('"tt.make_range"()', "tt.make_range", "cannot be read"),
        ('%x = "scf.if"(%n)', '%x = "scf.if"(%later)', "%later is used before it is defined"),
    ],
)
def test_what_is_not_ir(before, after, message):
    assert before in TEXT
    with pytest.raises(Unreadable, match=re.escape(message)):
        read_module(TEXT.replace(before, after, 1))


def test_a_text_over_the_limit(monkeypatch):
    monkeypatch.setattr(ir, "MOST_CHARACTERS", len(TEXT) - 1)
    with pytest.raises(Unreadable, match=f"{len(TEXT)} characters"):
        read_module(TEXT)
    monkeypatch.setattr(ir, "MOST_CHARACTERS", len(TEXT))
    assert read_module(TEXT).kernel.name == "kernel"


def test_a_location_that_leads_to_itself():
    text = TEXT.replace('#loc1 = loc("f.py":10:21)', '#loc1 = loc("i"(#loc37))')
    assert read_module(text).kernel.region.entry.operations[0].location.line == 0


@pytest.mark.parametrize(
    "text, shape, element",
    [
        ("i32", (), "i32"),
        ("tensor<4x8xbf16>", (4, 8), "bf16"),
        ("tensor<4x!tt.ptr<f32>>", (4,), "!tt.ptr<f32>"),
        ("tensor<2xf32, #blocked<{order = [0, 1]}>>", (2,), "f32"),
        ("!tt.ptr<tensor<16x32xf16>>", (), "!tt.ptr<tensor<16x32xf16>>"),
    ],
)
def test_types(text, shape, element):
    found = read_type(text)
    assert (found.shape, found.element) == (shape, element)


@pytest.mark.parametrize(
    "text, shape, element",
    [
        ("!tt.ptr<f32>", (), "f32"),
        ("!tt.ptr<f32, 3>", (), "f32"),
        ("tensor<4x!tt.ptr<!tt.ptr<i8>>>", (), "!tt.ptr<i8>"),
        ("!tt.ptr<tensor<16x32xf16>>", (16, 32), "f16"),
        ("!tt.tensordesc<tensor<8x4xf32>>", (8, 4), "f32"),
        ("!tt.tensordesc<8x4xf32>", (8, 4), "f32"),
    ],
)
def test_pointees(text, shape, element):
    found = read_type(text).pointee
    assert (found.shape, found.element) == (shape, element)


@pytest.mark.parametrize(
    "text, meant",
    [
        ('"plain"', "plain"),
        (r'"a\22b"', 'a"b'),
        (r'"a\\22"', r"a\22"),
        (r'"\E2\82\AC"', "€"),
        (r'"line\0Anext"', "line\nnext"),
        (r'"\FF"', "\ufffd"),
    ],
)
def test_escapes(text, meant):
    assert unescaped(text) == meant


KERNEL = r"""
@triton.jit
def either(a, b):
    if a > 3:
        return a, b
    return b, a

@triton.jit
def kernel(x_ptr, n, z_ptr):
    i = tl.arange(0, 4)
    grün = tl.load(x_ptr + i)
    tl.device_print('} loc(#loc1) ^bb0: "a\\b" ({ <{x = 1}> : () -> ()', n)
    while n > 0:
        n -= 2
    a, b = either(n, n + 1)
    if a == 0:
        tl.store(z_ptr + i, grün)
        return
    tl.store(z_ptr + i, tl.sum(grün, 0) + b)
"""


def test_what_triton_prints_now():
    """Of what the installed Triton prints, every operation is read, with its line and the learner's name."""

    def text(opinions: Opinions) -> str:
        opinion = opinions[0]
        assert opinion is not None and opinion.refusal is None
        return opinion.ir

    arguments = {"x_ptr": torch.zeros(4), "n": 5, "z_ptr": torch.zeros(4)}
    printed = closed_after(Opinions(kernel_of(KERNEL), [], [arguments]), text)
    module = read_module(printed)
    ops = []

    def walk(block: Block) -> None:
        for op in block.operations:
            ops.append(op)
            for region in op.regions:
                for inner in region.blocks:
                    walk(inner)

    for function in module.functions.values():
        for each in function.region.blocks:
            walk(each)
    begun = re.findall(r'^ {4,}(?:%[^"]* = )?"([\w.]+)"\(', printed, re.MULTILINE)
    assert sorted(op.name for op in ops) == sorted(begun)
    found = {op.name: op for op in ops if op.location.line and "standard" not in op.location.file}
    lines = KERNEL.splitlines()
    for name, words in {
        "tt.load": "tl.load", "scf.while": "while", "cf.cond_br": "if", "tt.print": "device_print",
    }.items():  # fmt: skip
        assert words in lines[found[name].location.line - 1], name
    assert found["tt.load"].location.name == "grün"
    assert found["tt.print"].text("prefix") == ' } loc(#loc1) ^bb0: "a\\b" ({ <{x = 1}> : () -> (): '
