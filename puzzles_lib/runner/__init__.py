"""Run a kernel on the CPU, and check every memory access before it happens.

What runs is the IR that Triton's front end made of the kernel (`puzzles_lib.compiler.program`). None of the
kernel's Python runs here, and none of Triton's. A run cannot crash the process, and it ends at its time limit
and its memory limit.
"""

import contextlib
import time
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch
import triton
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import versions
from puzzles_lib.runner.addresses import ELSEWHERE
from puzzles_lib.runner.arithmetic import Arithmetic, Fused
from puzzles_lib.runner.interleaving import Begun, Plan, SetAside, Turns
from puzzles_lib.runner.lanes import ADDRESS, BOOL, Descriptor, Lanes, row_of
from puzzles_lib.runner.limits import (
    CLOCK,
    Asleep,
    TimeLimitReached,
    interrupts_held,
    memory_limit,
    recursion_limit,
    time_limit,
)
from puzzles_lib.runner.machine import Machine
from puzzles_lib.runner.memory import Halt, Memory
from puzzles_lib.runner.nans import MadeNaN, NaNs
from puzzles_lib.runner.operations import Unsupported, check_descriptor
from puzzles_lib.runner.options import Options
from puzzles_lib.runner.ordering import HeldBy, Holders
from puzzles_lib.runner.pretend import Pretended, PretendedMemory
from puzzles_lib.runner.promises import Harm, Promise, TakenAtOnce
from puzzles_lib.runner.recording import (
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
from puzzles_lib.runner.records import (
    UNMARKED,
    Access,
    Cause,
    Conflict,
    Product,
    Program,
    Run,
    Source,
    Stop,
    Touch,
    WithinProgram,
    asks_again,
)
from puzzles_lib.runner.together import Groups, Together, group_of
from puzzles_lib.runner.turns import Busy, alone
from puzzles_lib.source import Call
from puzzles_lib.translator.ir import Module

__all__ = [
    "ELSEWHERE",
    "RETURNS",
    "UNMARKED",
    "Access",
    "Arithmetic",
    "Block",
    "Busy",
    "Cause",
    "Code",
    "Conflict",
    "Done",
    "Dot",
    "Function",
    "Fused",
    "Harm",
    "Held",
    "MadeNaN",
    "NaNs",
    "HeldBy",
    "Holders",
    "LINE_BY_LINE",
    "Options",
    "Plain",
    "Plan",
    "Pretended",
    "Product",
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
    "asks_again",
    "group_of",
    "run",
    "time_limit",
]

LINE_BY_LINE = Options()
MEMORY_LIMIT = 2 << 30  # bytes a run may map on top of what the process has
DEEPEST = 6000  # nested calls a run may make


class Code(Protocol):
    """The code that is run: see `puzzles_lib.compiler.Program`."""

    @property
    def module(self) -> Module: ...
    @property
    def takes(self) -> tuple[str, ...]: ...
    @property
    def said(self) -> tuple[str, ...]: ...
    @property
    def functions(self) -> tuple[Mapping[str, Any], ...]: ...
    @property
    def calls(self) -> Mapping[str, Sequence[Call]]: ...


def run(
    code: Code,
    arguments: Mapping[str, object],
    grid: tuple[int, int, int],
    outputs: Collection[str],
    options: Options = LINE_BY_LINE,
) -> Run:
    """Run all programs of the grid, one after the other, and report.

    arguments: value for each parameter of the kernel, by its name. A CPU tensor becomes a
        pointer, a tensor descriptor stays one, and a number becomes a scalar. If a tensor is `Pretended`, all
        are.
    outputs: names of the pointer parameters that the kernel may store to.
    options: see `Options`.

    What the kernel does wrong is in the result. KeyboardInterrupt passes, with everything restored.
    """
    programs = _Programs(grid, options.reverse) if options.only is None else options.only
    pretends = any(isinstance(_tensor(value), Pretended) for value in arguments.values())
    together = options.together and not pretends and not options.needs_order
    memory = (PretendedMemory if pretends else Together if together else Memory)(
        options.record, programs, options.reverse, options.elsewhere, options.suffix
    )
    machine = Machine(code.module, memory, grid, options.quiet, code.calls)
    if options.nans:
        options.nans.take(machine)
    machine.draws = options.draws
    memory.site, memory.is_used = machine.site, machine.is_used
    if isinstance(memory, PretendedMemory):
        memory.column = machine.column
    memory.ordering.held_by = options.held_by
    memory.ordering.at_atomics = versions.has_barriers_at_atomics(triton.__version__)
    memory.arithmetic.sums_in_tf32 = versions.has_sums_in_tf32(triton.__version__)
    memory.at_once = options.at_once
    memory.narrowing = options.narrowing
    memory.resident = memory.ordering.resident = options.resident
    memory.recorder = options.recorder if options.record else None
    memory.arithmetic.as_compiled = options.as_compiled
    memory.holes_are_zero, memory.drops_unused_loads = options.holes_are_zero, options.drops_unused_loads
    stop, began = None, 0.0

    def launch() -> None:
        nonlocal began
        given = _given(machine, code, arguments, outputs, options.tensors or {}, options.starts or {})
        for name, (address, tensor) in (options.others or {}).items():
            memory.add(name, tensor, f"{name}{options.suffix}" in outputs, address)
        memory.locks = {name.removesuffix(options.suffix) for name in options.locks}
        if options.defined is not None:
            memory.share_notes()
            memory.start_with(options.defined)
        memory.start_at_zero({name.removesuffix(options.suffix) for name in options.zeroed})
        _say(machine, code.said, set() if options.said is None else options.said)
        began = time.thread_time()
        if options.waits or options.resident or options.plan is not None:
            _InTurns(machine, memory, options.plan, code).run(programs, given)
            return
        if isinstance(memory, Together):
            Groups(machine, memory, code.calls).run(programs, given)
            return
        for number, program in enumerate(programs):
            memory.enter(program, number)
            if memory.recorder:
                memory.recorder.starts(memory, code.functions)
            machine.launch(given)

    with interrupts_held(inside=launch), _calm():
        try:
            with (
                recursion_limit(DEEPEST),
                memory_limit(MEMORY_LIMIT),
                time_limit(options.seconds, inside=launch),
            ):
                launch()
        except Halt as halt:
            stop = halt.stop
        except TimeLimitReached as error:
            used = f"still running after {options.seconds:g} s of CPU time"
            if isinstance(error, Asleep):
                used = f"asleep for most of {CLOCK * options.seconds:g} s"
            stop = Stop("time limit", f"time limit: {used}, in program {memory.program}", machine.site())
        except MemoryError:
            text = f"memory limit: more than {MEMORY_LIMIT / 2**30:g} GB, in program {memory.program}"
            stop = Stop("memory limit", text, machine.site())
        except Exception as error:
            stop = Stop("error", _in_words(error), machine.site())
        if memory.recorder:
            memory.recorder.ends(stop)
        seconds = time.thread_time() - began if began else 0.0
    return Run(
        programs=len(programs),
        outputs={b.name: b.tensor for b in memory.buffers if b.is_output},
        stop=stop or memory.first_bad,
        written={b.name: b.written_elements() for b in memory.buffers if b.is_output},
        changed=memory.changed,
        conflict=memory.conflict,
        repeated=memory.repeated,
        rewritten=memory.rewritten,
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
        dots=tuple(memory.dots),
        suspect=memory.ordering.suspect,
        within=memory.ordering.race,
        promises=tuple(memory.promises.values()),
        harm=memory.harm,
        arithmetic=memory.arithmetic,
        program=memory.program,
        unlocked=memory.unlocked,
        not_associative=memory.not_associative,
        not_commutative=memory.not_commutative,
        other_order=memory.other_order,
        writers={b.name: b.writers() for b in memory.buffers if b.is_output and not pretends},
        launched=programs,
        tells_addresses=memory.tells_addresses,
        atomics=memory.atomics,
        between=memory.turns.between if memory.turns else None,
        meetings=memory.meetings.telling(),
        sides=memory.sides.seen,
        together=memory.together if isinstance(memory, Together) else 0,
        seconds=seconds,
    )


class _InTurns:
    """Runs all programs, each as far as it can, and lets those that were set aside go on."""

    def __init__(self, machine: Machine, memory: Memory, plan: Plan | None, code: Code):
        self.machine, self.memory, self.code = machine, memory, code
        self.turns = memory.turns = Turns(plan, self._goes_on)
        self._flops = 0
        self._again = False

    def run(self, programs: Sequence[Program], given: list[Any]) -> None:
        turns, memory = self.turns, self.memory
        for one in turns.schedule(programs, lambda: memory.changes):
            self._begins(one)
            try:
                self.machine.launch(given)
            except SetAside as error:
                self._set_aside(one, error.stop)
        if turns.aside:
            first = min(turns.aside, key=lambda one: one.number)
            assert first.stop is not None
            memory.program = first.program
            if memory.recorder:
                memory.recorder.resumes(first.recorded)
            raise Halt(first.stop)

    def _begins(self, one: Begun) -> None:
        memory = self.memory
        self._flops, self._again = memory.flops, one.entered > 0
        memory.enter(one.program, one.number)
        if self._again:
            memory.waiting = one.waiting
            memory.ordering.acquired, memory.ordering.entered = one.acquired, one.entered
        if memory.recorder and self._again:
            memory.recorder.pauses()
        elif memory.recorder:
            memory.recorder.starts(memory, self.code.functions)
        one.entered = memory.ordering.entered

    def _set_aside(self, one: Begun, stop: Stop | None) -> None:
        memory = self.memory
        one.acquired, one.waiting = memory.ordering.acquired, memory.waiting
        if memory.recorder:
            one.recorded = memory.recorder.pauses()
        self.turns.set_aside(one, stop)

    def _goes_on(self, one: Begun) -> None:
        """What it did the first time counts once."""
        if not self._again:
            return
        self.memory.flops = self._flops
        if self.memory.recorder:
            self.memory.recorder.resumes(one.recorded)


def _tensor(value: object) -> object:
    return value.base if isinstance(value, TensorDescriptor) else value


def _given(
    machine: Machine,
    code: Code,
    arguments: Mapping[str, object],
    outputs: Collection[str],
    tensors: Mapping[str, str],
    starts: Mapping[str, int],
) -> list[Lanes | Descriptor]:
    """Return what the IR's kernel gets for its parameters: tensors become invented addresses."""
    wanted = iter(code.module.kernel.arguments)
    given: list[Lanes | Descriptor] = []
    known: dict[tuple, int] = {}
    whole: dict[str, int] = {}  # where tensors begin that parameters get in part
    suffix = machine.memory.suffix
    described = "_desc" if suffix else ""

    def add(parameter: str, tensor: Any, ending: str) -> int:
        told = tensors.get(parameter, parameter.removesuffix(ending))
        if told in whole:
            machine.memory.parameters[told] = told  # no parameter's alone
            return whole[told] + starts.get(parameter, 0)
        if parameter in tensors:
            machine.memory.parameters.setdefault(told, parameter)
        is_output = parameter in outputs or (parameter in tensors and f"{told}{suffix}" in outputs)
        address = machine.memory.add(told, tensor, is_output)
        if parameter in tensors:
            whole[told] = address
        return address + starts.get(parameter, 0)

    for name in code.takes:
        value, kind = arguments[name], next(wanted).type
        if isinstance(value, torch.Tensor | Pretended):
            same = (*_place_of(value), starts.get(name, 0))
            if same not in known:
                known[same] = add(name, value, suffix)
            address = known[same]
            given.append(Lanes(np.array([address], np.uint64), ADDRESS))
        elif isinstance(value, TensorDescriptor):
            address = add(name, value.base, described)
            numbers = []
            for number in (*value.shape, *value.strides):  # the IR's kernel has parameters for these, too
                row = row_of(next(wanted).type.element)
                numbers.append(Lanes(np.array([number], row.storage), row))
            rank = len(value.shape)
            size = row_of(kind.pointee.element.lstrip("su")).storage.itemsize  # "si32" is i32
            base = Lanes(np.array([address], np.uint64), ADDRESS)
            made = Descriptor(base, size, tuple(numbers[:rank]), tuple(numbers[rank:]), kind.pointee.shape)
            made = made._replace(nan=getattr(value, "padding", "zero") == "nan")
            check_descriptor(machine, made)
            given += [made, *numbers]
        else:
            row = row_of(kind.element)
            given.append(
                Lanes(
                    np.array([value]).astype(row.storage) if row is not BOOL else np.array([bool(value)]), row
                )
            )
    return given


def _place_of(tensor: torch.Tensor | Pretended) -> tuple:
    """Return a key that is the same for two arguments if they are one tensor."""
    if isinstance(tensor, Pretended) or not tensor.numel():
        return (id(tensor),)
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride()


def _say(machine: Machine, texts: Sequence[str], said: set[str]) -> None:
    """Show the output of ``tl.static_print``, once."""
    for text in texts:
        if text not in said and not machine.quiet:
            said.add(text)
            machine.print(text)


class _Programs(Sequence[Program]):
    """Program ids in launch order, the last axis fastest. It is not a list, because a grid may be huge."""

    def __init__(self, grid: tuple[int, int, int], reverse: bool):
        self.grid, self.reverse = grid, reverse

    def __len__(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    def __getitem__(self, number: Any) -> Any:
        if not 0 <= number < len(self):
            raise IndexError(number)
        _, ny, nz = self.grid
        i = len(self) - 1 - number if self.reverse else number
        return (i // (ny * nz), i // nz % ny, i % nz)


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    """Turn off NumPy's warnings, which say nothing about a kernel, and use one thread for small tensors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            yield
    finally:
        torch.set_num_threads(threads)


def _in_words(error: Exception) -> str:
    """Return an exception's message in one line."""
    text = " ".join(str(error).split())
    if len(text) > 200:
        text = text[:197] + "..."
    if text and isinstance(error, Unsupported | NotImplementedError):  # our own words
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
