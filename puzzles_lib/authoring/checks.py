"""Measure CPU seconds per puzzle: of `check` on its solution, and of only its guarded runs."""

import dataclasses
import json
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
    """Print one row per puzzle, and the first check of a fresh process.

    Raises FileNotFoundError if there are no masters.
    """
    kernel_cells()
    rows = []
    for name, check_s, guarded_s in check_seconds():
        row = {"puzzle": name, "check_cpu_s": check_s, "guarded_cpu_s": guarded_s}
        rows.append(row)
        if as_json:
            print(json.dumps(row), flush=True)
    if as_json:
        return
    print(f"{'puzzle':<24} {'check':>8} {'runs':>8}   (CPU seconds)")
    for row in rows:
        print(f"{row['puzzle']:<24} {row['check_cpu_s']:8.3f} {row['guarded_cpu_s']:8.3f}")
    total = sum(row["guarded_cpu_s"] for row in rows)
    print(f"runs of all {len(rows)} puzzles: {total:.2f} s")
    median = statistics.median(row["check_cpu_s"] for row in rows)
    worst = max(row["check_cpu_s"] for row in rows)
    first = _first_check()
    print(f"median {median:.3f} s, worst {worst:.3f} s; a process's first, imports included, {first:.2f} s")


def check_seconds():
    """Yield for each puzzle: name, CPU seconds of `check`, CPU seconds of only the forward guarded runs."""
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
        prepared = []
        for case in cases:
            one = bound.at(case)
            one = dataclasses.replace(one, program=one.translated())
            prepared.append((one, make_inputs(puzzle, case)))

        def guarded(prepared=prepared) -> None:
            for bound, tensors in prepared:
                attempt(bound, tensors)

        def checked(kernel=kernel, puzzle=puzzle) -> None:
            examine(kernel, puzzle)

        yield puzzle.name, _median_cpu(checked), _median_cpu(guarded)


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
    """Return the CPU time of this process so far, and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)
