"""Run by tests/test_interrupts.py in a process of its own: a Ctrl-C at every line of a piece of work.

    python -m tests.interrupted run | turn | front_end | trace

Notes the lines that the work executes in the course's own code. Then does the work once more for the
first and for the last time that each line is reached, with a SIGINT sent there, and says what is not as
it was before. What it prints last is the number of interrupts.
"""

import functools
import os
import resource
import signal
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from types import CodeType

import numpy as np
import torch
import triton.language as tl
from triton.compiler.code_generator import CodeGenerator
from triton.language.extra import cuda, libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime.jit import JITFunction

from puzzles_lib import CONSTANT_ADD, compiler, runner
from puzzles_lib.authoring.solutions import define
from puzzles_lib.compiler import front_end, frontend
from puzzles_lib.runner import alone, turns
from puzzles_lib.tracer import trace
from puzzles_lib.translator import nursery
from tests.files import open_files

Place = tuple[str, int]  # a file, and the number of a line
OURS = os.path.dirname(os.path.dirname(runner.__file__))
OWNERS = (tl, tl.core, tl.math, tl.tensor, cuda, libdevice, JITFunction, TritonSemantic, CodeGenerator)
SOURCE = """@triton.jit
def kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    tl.store(z_ptr + i, x + 1 / tl.sum(x, axis=0))
"""
KERNEL = define(SOURCE, "<interrupted>")
SMALL = """@triton.jit
def kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + i, tl.load(x_ptr + i) + 10)
"""
SMALL_KERNEL = define(SMALL, "<interrupted, small>")


def state() -> dict[str, object]:
    """What a run changes for its time, or might."""
    found = {f"{o.__name__}.{n}": v for o in OWNERS for n, v in vars(o).items() if n != "__warningregistry__"}
    return found | {
        "SIGINT": signal.getsignal(signal.SIGINT),
        "SIGALRM": signal.getsignal(signal.SIGALRM),
        "timer": signal.getitimer(signal.ITIMER_REAL)[0] > 0,
        "depth": sys.getrecursionlimit(),
        "memory": resource.getrlimit(resource.RLIMIT_AS),
        "threads": torch.get_num_threads(),
        "numpy": np.geterr(),
        "warnings": list(warnings.filters),
        "showwarning": warnings.showwarning,
        "stdout": sys.stdout,
        "stderr": (os.fstat(2).st_dev, os.fstat(2).st_ino),
        "files": open_files(),
        "children": open(f"/proc/self/task/{os.getpid()}/children").read(),
        "turn": (turns._turn.thread, turns._turn.lock.locked()),
    }


def arguments() -> dict[str, object]:
    return {"x_ptr": torch.ones(32), "z_ptr": torch.zeros(32), "BLOCK": 32}


@functools.cache
def code() -> compiler.Program:
    """What is run of the kernel, translated once: the front end has interrupts of its own."""
    return compiler.program(KERNEL, arguments())


def nothing() -> None:
    pass


def traced_kernel() -> None:
    """A trace without the front end, which has interrupts of its own."""
    compiler.front_end = lambda *_: None
    trace(SMALL_KERNEL, CONSTANT_ADD)


def asked() -> None:
    """Ask for the front end's opinion, which a child gives."""
    frontend.forget()
    front_end(SMALL_KERNEL, arguments())


def asked_twice() -> None:
    """Ask for it again, too. An opinion is kept if a nursery has forked the child."""
    asked()
    front_end(SMALL_KERNEL, arguments())


ATTEMPTS = 6  # how often a line is reached while waiting for another process differs from time to time
WORK = {  # and where its lines are
    "run": (lambda: runner.run(code(), arguments(), (1, 1, 1), ["z_ptr"]), ["runner"]),
    "nursery": (asked_twice, ["compiler", "translator"]),
    # A fork of this process is dear, so only the lines where it is made differently.
    "front_end": (asked, ["compiler/child.py", "translator/forked.py", "translator/nursery.py"]),
    "turn": (lambda: alone(nothing), ["runner/turns.py"]),
    "trace": (traced_kernel, ["tracer"]),
}


def traced(
    work: Callable[[], object], files: tuple[str, ...], at_line: Callable[[Place], None], line: int = 0
) -> None:
    """Do the work, calling ``at_line`` with the place of each line of those files that is reached.

    line: of the functions that have this one alone.
    """
    has: dict[CodeType, bool] = {}

    def concerns(code: CodeType) -> bool:
        if not code.co_filename.startswith(files):
            return False
        return not line or any(number == line for _, _, number in code.co_lines())

    def trace(frame, event, _):
        code = frame.f_code
        if code not in has:
            has[code] = concerns(code)
        if not has[code]:
            return None
        if event == "line":
            at_line((frame.f_code.co_filename, frame.f_lineno))
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)


def say(*words: object) -> None:
    print(*words, file=sys.__stdout__, flush=True)


def main(name_of_work: str) -> None:
    work, where = WORK[name_of_work]
    files = tuple(os.path.join(OURS, place) for place in where)
    nursery.AFTER = sys.maxsize  # none is begun in the midst of it
    if name_of_work == "nursery":
        nursery.begin()
    torch.set_num_threads(2)  # one is what is set for a time
    work()  # caches are filled
    times: Counter[Place] = Counter()
    traced(work, files, lambda place: times.update([place]))
    before = state()
    chosen = sorted({(place, nth) for place, count in times.items() for nth in (1, count)})
    for chosen_place, nth in chosen:
        name = f"{os.path.relpath(chosen_place[0], OURS)}:{chosen_place[1]}"
        for _ in range(ATTEMPTS):
            reached: Counter[Place] = Counter()

            def interrupt(
                place: Place, chosen_place: Place = chosen_place, nth: int = nth, reached: Counter = reached
            ) -> None:
                reached.update([place])
                if (place, reached[place]) == (chosen_place, nth):
                    signal.raise_signal(signal.SIGINT)

            try:
                traced(work, chosen_place[:1], interrupt, chosen_place[1])
            except KeyboardInterrupt:
                break
            if reached[chosen_place] >= nth:
                say(f"{name}: the interrupt is lost")
                break
        after = state()
        for thing in before.keys() | after.keys():
            if before.get(thing) != after.get(thing):
                say(f"{name}: {thing} is {after.get(thing)!r}"[:300])
                return
    work()
    say(len(chosen))


if __name__ == "__main__":
    main(sys.argv[1])
