"""CPU seconds per puzzle for `check` on its solution, and what guarding costs.

The comparison is with Triton's plain interpreter, for the same programs on the same inputs.
"""

import inspect
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable

from puzzles_lib.authoring.solutions import ROOT, kernel_cells

REPEATS = 5


def print_checks(as_json: bool) -> None:
    """One row per puzzle, and the first check of a fresh process.

    Raises FileNotFoundError where there are no masters.
    """
    kernel_cells()
    plain = _plain_in_its_own_process()
    rows = []
    for name, check_s, guarded_s in check_seconds():
        row = {"puzzle": name, "check_cpu_s": check_s, "guarded_cpu_s": guarded_s}
        row |= {"plain_cpu_s": plain.get(name)}
        rows.append(row)
        if as_json:
            print(json.dumps(row), flush=True)
    if as_json:
        return
    print(f"{'puzzle':<24} {'check':>8} {'plain':>8} {'guarded':>8}  guarded / plain   (CPU seconds)")
    for row in rows:
        beside = f"{row['plain_cpu_s'] or math.nan:8.3f} {row['guarded_cpu_s']:8.3f}"
        ratio = row["guarded_cpu_s"] / (row["plain_cpu_s"] or math.nan)
        print(f"{row['puzzle']:<24} {row['check_cpu_s']:8.3f} {beside}  {ratio:15.2f}")
    median = statistics.median(row["check_cpu_s"] for row in rows)
    worst = max(row["check_cpu_s"] for row in rows)
    first = _first_check()
    print(f"median {median:.3f} s, worst {worst:.3f} s; a process's first, imports included, {first:.2f} s")


def check_seconds():
    """Per puzzle: name, CPU seconds of `check`, CPU seconds of the forward guarded runs alone."""
    from puzzles_lib.authoring.solutions import solutions
    from puzzles_lib.binding import bind
    from puzzles_lib.chapters import puzzles
    from puzzles_lib.checker import examine
    from puzzles_lib.checker.attempts import attempt
    from puzzles_lib.inputs import make_inputs

    for puzzle in puzzles():
        kernel = solutions()[puzzle.name]
        assert examine(kernel, puzzle).ok
        bound = bind(kernel, puzzle, puzzle.cases[0])
        cases = [case for case in puzzle.cases if not case.pretend]
        prepared = [(bound.at(case), make_inputs(puzzle, case)) for case in cases]

        def guarded(prepared=prepared) -> None:
            for bound, tensors in prepared:
                attempt(bound, tensors)

        def checked(kernel=kernel, puzzle=puzzle) -> None:
            examine(kernel, puzzle)

        yield puzzle.name, _median_cpu(checked), _median_cpu(guarded)


def plain_seconds() -> dict[str, float]:
    """Per puzzle: CPU seconds of the solution's programs on all cases under Triton's own interpreter.

    Needs TRITON_INTERPRET=1 from the start of the process. Without the puzzles that it cannot run: those of
    tuned kernels, and where a loop's number, which is Python's there, is converted.
    """
    from triton.runtime.jit import JITFunction

    from puzzles_lib.authoring.solutions import solutions
    from puzzles_lib.binding import Bound, stand_ins
    from puzzles_lib.chapters import puzzles
    from puzzles_lib.checker.attempts import blank
    from puzzles_lib.inputs import make_inputs
    from puzzles_lib.wrapped import Wrapped

    seconds = {}
    for puzzle in puzzles():
        kernel = solutions()[puzzle.name]
        if not inspect.isfunction(kernel.fn):  # it is tuned
            continue
        launches = []
        for case in (case for case in puzzle.cases if not case.pretend):
            function = JITFunction(kernel.fn)
            bound = Bound(function, puzzle, case, stand_ins(function, puzzle, case), Wrapped(function))
            outputs = {r.name: blank(puzzle, r, case) for r in puzzle.results}
            launches.append((puzzle.programs(case), bound.filled(make_inputs(puzzle, case) | outputs)))

        def launch(kernel=kernel, launches=launches) -> None:
            for grid, arguments in launches:
                kernel[grid](**arguments)

        try:
            launch()
        except Exception:
            continue
        seconds[puzzle.name] = _median_cpu(launch)
    return seconds


def _plain_in_its_own_process() -> dict[str, float]:
    """The course never sets TRITON_INTERPRET; this comparison alone needs it."""
    command = [sys.executable, "-m", "puzzles_lib.bench", "plain-interpreter"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def _first_check() -> float:
    """CPU seconds from the start of Python to the end of a first check."""
    script = [
        "import triton, triton.language as tl",
        "from puzzles_lib import CONSTANT_ADD",
        "from puzzles_lib.checker import examine",
        kernel_cells()["constant_add"],
        "assert examine(constant_add_kernel, CONSTANT_ADD).ok",
        "from puzzles_lib.authoring.checks import cpu_seconds",
        "print(cpu_seconds())",
    ]
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write("\n".join(script))
        file.flush()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, file.name]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def _median_cpu(action: Callable[[], None]) -> float:
    times = []
    for _ in range(REPEATS):
        started = cpu_seconds()
        action()
        times.append(cpu_seconds() - started)
    return statistics.median(times)


def cpu_seconds() -> float:
    """That this process has used so far, and its children that have ended, such as the front end's."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
