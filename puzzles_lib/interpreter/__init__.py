"""Runs a kernel on the CPU, every memory access checked before it happens.

The only package that touches Triton's private interpreter. A run cannot crash the process, outlives
neither its time limit nor its memory limit, and leaves Triton as it found it.
"""

import ast
import contextlib
import functools
import linecache
import sys
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
import triton.language as tl
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpretedFunction, TensorHandle, _implicit_cvt
from triton.runtime.jit import JITFunction, KernelParam
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib.dtypes import of_integer
from puzzles_lib.interpreter.addresses import ELSEWHERE
from puzzles_lib.interpreter.arithmetic import Arithmetic, Fused
from puzzles_lib.interpreter.builder import GuardedBuilder
from puzzles_lib.interpreter.language import LEARNER, builder, executing, twin
from puzzles_lib.interpreter.limits import (
    CLOCK,
    Asleep,
    TimeLimitReached,
    interrupts_held,
    memory_limit,
    recursion_limit,
    time_limit,
)
from puzzles_lib.interpreter.memory import Halt, Memory
from puzzles_lib.interpreter.ordering import HeldBy, Holders
from puzzles_lib.interpreter.pretend import Pretended, PretendedMemory, PretendingBuilder
from puzzles_lib.interpreter.promises import Harm, Promise, TakenAtOnce
from puzzles_lib.interpreter.recording import (
    RETURNS,
    Block,
    Done,
    Dot,
    Function,
    Held,
    Plain,
    Recorder,
    Recording,
    Statement,
    Step,
)
from puzzles_lib.interpreter.records import (
    Access,
    Conflict,
    Program,
    Run,
    Source,
    Stop,
    Touch,
    WithinProgram,
    asks_again,
)
from puzzles_lib.interpreter.turns import Busy, alone
from puzzles_lib.source import Site, statements, with_helpers

__all__ = [
    "ELSEWHERE",
    "RETURNS",
    "Access",
    "Arithmetic",
    "Block",
    "Busy",
    "Conflict",
    "Done",
    "Dot",
    "Function",
    "Fused",
    "Harm",
    "HeldBy",
    "Held",
    "Holders",
    "Plain",
    "Pretended",
    "Program",
    "Promise",
    "Recorder",
    "Recording",
    "Run",
    "Source",
    "Statement",
    "Step",
    "Stop",
    "TakenAtOnce",
    "TimeLimitReached",
    "Touch",
    "WithinProgram",
    "alone",
    "as_jit",
    "asks_again",
    "run",
    "time_limit",
]

MEMORY_LIMIT = 2 << 30  # bytes a run may map on top of what the process has
DEEPEST = 1000  # nested calls a run may make


def as_jit(kernel: object) -> JITFunction | None:
    """The ``@triton.jit`` function, also where TRITON_INTERPRET has made something else of it; else None."""
    if isinstance(kernel, InterpretedFunction):
        return JITFunction(kernel.fn)
    return kernel if isinstance(kernel, JITFunction) else None


def run(
    kernel: JITFunction,
    arguments: Mapping[str, object],
    grid: tuple[int, int, int],
    outputs: Collection[str],
    *,
    zeroed: Collection[str] = (),
    locks: Collection[str] = (),
    reverse: bool = False,
    record: bool = False,
    quiet: bool = False,
    said: set[str] | None = None,
    seconds: float = 10.0,
    held_by: HeldBy | None = None,
    at_once: TakenAtOnce | None = None,
    only: Sequence[Program] | None = None,
    recorder: Recorder | None = None,
    as_compiled: bool = False,
    elsewhere: int = 0,
) -> Run:
    """Run all programs of the grid, one after the other, and report.

    arguments: value for each parameter of the kernel, by its name. CPU tensors become pointers,
        descriptors of them descriptors, integers and floats scalars; parameters annotated
        ``tl.constexpr`` keep their value. Where a tensor is `Pretended`, all are.
    outputs: names of the pointer parameters that the kernel may store to.
    zeroed: those of them that hold zeros; in the others nothing is defined before something is stored.
    locks: those of them that are locks: somebody holds one that is 1.
    reverse: from the last program to the first, and so for lanes that meet in one atomic.
    record: keep every access, and go on after an out-of-bounds one, which is noted and not carried out.
    quiet: suppress what the kernel prints.
    said: texts that ``tl.static_print`` has shown in earlier runs and does not show again; is added to.
    held_by: which threads hold the lanes of an access (`ordering`), to look for races within a program.
    at_once: which lanes of an access one instruction takes, to look for the harm of hints that are not true.
    seconds: limit on the run, of CPU time; see `time_limit`.
    only: run these programs of the grid, in this order.
    recorder: keeps what each statement does, where ``record`` is on.
    as_compiled: with a compiler's arithmetic, not line by line: see `arithmetic`.
    elsewhere: of `ELSEWHERE`: a kernel that takes an address as a number gets another one than without.

    What the kernel does wrong is in the result. KeyboardInterrupt passes, with everything restored.
    """
    programs = _Programs(grid, reverse) if only is None else only
    pretends = any(isinstance(_tensor(value), Pretended) for value in arguments.values())
    dropped = functools.cache(lambda: _dropped(kernel))
    memory = (PretendedMemory if pretends else Memory)(
        record, _learner_site, programs, reverse, lambda site: site not in dropped(), elsewhere
    )
    memory.ordering.held_by = held_by
    memory.at_once = at_once
    memory.recorder = recorder if record else None
    memory.arithmetic.as_compiled = as_compiled
    parameters = {p.name: p for p in kernel.params}
    stop = None

    def launch() -> None:
        body = twin(kernel)
        for number, program in enumerate(programs):
            memory.enter(program, number)
            if memory.recorder:
                memory.recorder.starts(memory)
            body(**values)

    with interrupts_held(inside=launch), executing(), _calm():
        builder.__class__ = PretendingBuilder if pretends else GuardedBuilder
        builder.start(memory, grid, quiet, set() if said is None else said)
        values = {
            name: _argument(memory, parameters[name], value, outputs) for name, value in arguments.items()
        }
        memory.locks = {name.removesuffix("_ptr") for name in locks}
        memory.start_at_zero({name.removesuffix("_ptr") for name in zeroed})
        try:
            with recursion_limit(DEEPEST), memory_limit(MEMORY_LIMIT), time_limit(seconds, inside=launch):
                launch()
        except Halt as halt:
            stop = halt.stop
        except TimeLimitReached as error:
            used = f"still running after {seconds:g} s of CPU time"
            if isinstance(error, Asleep):
                used = f"asleep for most of {CLOCK * seconds:g} s"
            text = f"time limit: {used}, in program {memory.program}"
            stop = Stop("time limit", text, _raised_at(error))
        except MemoryError as error:
            text = f"memory limit: more than {MEMORY_LIMIT / 2**30:g} GB, in program {memory.program}"
            stop = Stop("memory limit", text, _raised_at(error))
        except (Exception, SystemExit) as error:
            stop = Stop("error", _cause(error), _raised_at(error))
        if memory.recorder:
            memory.recorder.ends(stop)
    return Run(
        programs=len(programs),
        outputs={b.name: b.tensor for b in memory.buffers if b.is_output},
        stop=stop or memory.first_bad,
        written={b.name: b.written_elements() for b in memory.buffers if b.is_output},
        changed=memory.changed,
        conflict=memory.conflict,
        holes=memory.holes,
        early_reads=memory.early_reads,
        undefined=memory.undefined,
        order_matters=memory.order_matters,
        loads={
            b.name: -(-memory.loaded.get(b.name, 0) // b.data.itemsize)
            for b in memory.buffers
            if b.name in memory.loaded
        },
        bytes_moved=memory.bytes_moved,
        lane_bytes=memory.lane_bytes,
        flops=memory.flops,
        accesses=tuple(memory.accesses),
        suspect=memory.ordering.suspect,
        within=memory.ordering.race,
        promises=tuple(memory.promises.values()),
        harm=memory.harm,
        arithmetic=memory.arithmetic,
        program=memory.program,
        unlocked=memory.unlocked,
        not_associative=memory.not_associative,
        writers={b.name: b.writers() for b in memory.buffers if b.is_output and not pretends},
        launched=programs,
        tells_addresses=memory.tells_addresses,
    )


def _tensor(value: object) -> object:
    return value.base if isinstance(value, TensorDescriptor) else value


def _argument(memory: Memory, parameter: KernelParam, value: object, outputs: Collection[str]) -> object:
    """What the kernel gets for a parameter: a constant as it is, a tensor as an invented address."""
    name = parameter.name
    if parameter.is_constexpr or value is None:
        return value
    if type(value) is int and value == 1 and not (parameter.do_not_specialize or parameter.annotation_type):
        return value  # a launch makes a constant of it
    if isinstance(value, torch.Tensor | Pretended):
        address = memory.add(name.removesuffix("_ptr"), value, name in outputs)
        return _implicit_cvt(_Pointer(address, value.dtype))
    if isinstance(value, TensorDescriptor):
        address = memory.add(name.removesuffix("_desc"), value.base, False)
        return _implicit_cvt(replace(value, base=_Pointer(address, value.base.dtype)))
    if isinstance(value, bool):
        return tl.tensor(builder.get_int1(value), tl.int1)
    if isinstance(value, float):
        return tl.tensor(builder.get_fp32(value), tl.float32)
    if isinstance(value, int):
        row = of_integer(value, parameter.annotation_type)
        return tl.tensor(TensorHandle(np.array([value], row.storage), row.triton), row.triton)
    return value


class _Pointer:
    """Looks to Triton like a tensor that lives at an address of our choice."""

    def __init__(self, address: int, dtype: torch.dtype):
        self.address, self.dtype = address, dtype

    def data_ptr(self) -> int:
        return self.address


class _Programs(Sequence):
    """Program ids in launch order, the last axis fastest. No list, since a grid may be huge."""

    def __init__(self, grid: tuple[int, int, int], reverse: bool):
        self.grid, self.reverse = grid, reverse

    def __len__(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def __getitem__(self, number: int) -> Program:
        if not 0 <= number < len(self):
            raise IndexError(number)
        _, ny, nz = self.grid
        i = len(self) - 1 - number if self.reverse else number
        return (i // (ny * nz), i // nz % ny, i % nz)


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    """No warnings from NumPy, which say nothing about a kernel, and one thread: the tensors are small."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


# ---- the learner's line


def _dropped(kernel: JITFunction) -> frozenset[Site]:
    """The lines of statements that are calls and nothing else, helpers' included."""
    found: set[Site] = set()
    for function in with_helpers(kernel):
        for node, sites in statements(function):
            if isinstance(node, ast.Expr):
                found.update(sites)
    return frozenset(found)


def _learner_site() -> Site:
    """Where the running kernel is now."""
    frame = sys._getframe(1)
    while frame is not None and not frame.f_globals.get(LEARNER):
        frame = frame.f_back
    return _site(frame.f_code.co_filename, frame.f_lineno) if frame else Site(0, "")


def _raised_at(error: BaseException) -> Site | None:
    """The innermost line of the learner's on an exception's way up."""
    site = None
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_globals.get(LEARNER):
                site = _site(trace.tb_frame.f_code.co_filename, trace.tb_lineno)
            trace = trace.tb_next
        error = error.__cause__
    return site


def _site(file: str, line: int) -> Site:
    return Site(line, linecache.getline(file, line).strip())


def _cause(error: BaseException) -> str:
    """An exception in one line, without Triton's wrapping."""
    while isinstance(error, InterpreterError) and error.__cause__ is not None:
        error = error.__cause__
    text = " ".join(str(error).split())
    if len(text) > 200:
        text = text[:197] + "..."
    if text and isinstance(error, NotImplementedError):  # our own words
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
