"""Say what is wasteful or imprecise in a launch whose results are correct."""

import linecache
from collections.abc import Iterator
from typing import Any

import triton

from puzzles_lib import compiler
from puzzles_lib.auditor.edges import pointers
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.expected import FLOAT32_ROUNDOFF
from puzzles_lib.checker.naming import index_of, the_program
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.untested import LOADS, sources
from puzzles_lib.dtypes import of_torch
from puzzles_lib.runner import Conflict, Run
from puzzles_lib.source import Site
from puzzles_lib.translator.ir import Operation

_TRITON = str(triton.__path__[0])
_NARROW = {"bf16": "bfloat16", "f16": "float16"}
_IN_FLOAT32 = ", which rounds after every addition. Leave out_dtype out: the sum is then in float32"
_WIDER = ", which rounds after every addition. Convert them with .to(tl.float32) before the sum"


def remarks(launch: Launch, code: compiler.Program, ran: Run) -> list[Verdict]:
    """Return what is ``"wasteful"`` or ``"imprecise"`` in a run without a fault, each with its line."""
    found = [*_in_narrow_dtypes(launch, code, ran), *_rounded_twice(launch, code, ran)]
    remarks = [Verdict("imprecise", text, site) for site, text in found]
    if not ran.atomics:
        remarks += [Verdict("wasteful", text, site) for site, text in _stored_again(launch, ran)]
    return remarks


def _stored_again(launch: Any, ran: Run) -> Iterator[tuple[Site, str]]:
    """Two programs store the same values to the same elements."""
    for again in ran.repeated.values():
        text = verdicts.stored_again(launch, launch, again).message
        yield again.site, f"{text}; this is wasteful, but not wrong"


def _in_narrow_dtypes(launch: Launch, code: compiler.Program, ran: Run) -> Iterator[tuple[Site, str]]:
    """Many numbers are added up in float16 or bfloat16: by `tl.sum`, by `tl.dot`, or in a loop."""
    for site, (dtype, count) in ran.arithmetic.narrow.items():
        yield site, f"{count} numbers are added in {dtype}{_WIDER}"
    for op in code.module.operations():
        if op.name == "tt.dot" and op.results[0].type.element in _NARROW:
            dtype = _NARROW[op.results[0].type.element]
            yield _site(launch, op), f"tl.dot adds products in {dtype}{_IN_FLOAT32}"
        if op.name == "scf.for":
            for added in _added_in_loop(op):
                dtype = _NARROW[added.results[0].type.element]
                yield _site(launch, added), f"the loop adds numbers in {dtype}{_WIDER}"


def _site(launch: Launch, op: Operation) -> Site:
    line = op.location.line
    return Site(line, linecache.getline(launch.kernel.fn.__code__.co_filename, line).strip())


def _added_in_loop(loop: Operation) -> Iterator[Operation]:
    """Yield the additions to a float16 or bfloat16 variable that a loop carries."""
    body = loop.regions[0].entry
    for carried, after in zip(body.arguments[1:], body.operations[-1].operands, strict=True):
        op = after.maker
        if op is None or op.name != "arith.addf" or op.location.file.startswith(_TRITON):
            continue
        if carried in op.operands and after.type.element in _NARROW:
            yield op


def _rounded_twice(launch: Launch, code: compiler.Program, ran: Run) -> Iterator[tuple[Site, str]]:
    """A program stores an element, loads it again, and stores what it computes from the rounded value."""
    for name, again in ran.rewritten.items():
        dtype = of_torch(launch.all_tensors[name].dtype) if name in launch.all_tensors else None
        if dtype is None or dtype.roundoff <= FLOAT32_ROUNDOFF or not _from_itself(code, again):
            continue
        stands: Any = launch  # for the puzzle and the case
        shape = next(r.shape(launch.numbers) for r in stands.puzzle.results if r.name == name)
        element = f"{name}[{index_of(again.element, shape)}]" if shape else name
        who = the_program(again.programs[0], stands, stands)
        text = (
            f"{who} stores {element} once more, computed from its first value after that was rounded to "
            f"{dtype.name}: keep the first value in float32"
        )
        yield again.site, text


def _from_itself(code: compiler.Program, again: Conflict) -> bool:
    """Whether the second store's value comes from a load of the tensor that it stores to."""
    stores = [op for op in code.module.operations() if op.name == "tt.store"]
    stores = [op for op in stores if op.location.line >= again.site.line]
    if not stores:
        return False
    store = min(stores, key=lambda op: op.location.line)  # Triton gives a call the place of its last argument
    loads = [v.maker for v in sources(store.operands[1:2]) if v.maker is not None and v.maker.name in LOADS]
    return again.argument in pointers(sources(each for load in loads for each in load.operands[:1]))
