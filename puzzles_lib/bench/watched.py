"""Measure `watch` for each solution: the size of its page, and the cost of recording it.

The cost is the CPU time of a recorded run, of the guarded run that `check` makes, and of the whole call.
"""

import json
import math
from collections.abc import Iterator

from puzzles_lib.authoring.checks import cpu_seconds
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.inputs import make_inputs
from puzzles_lib.player import watch
from puzzles_lib.runner import Options, Recorder

REPEATS = 3


def print_watched(as_json: bool) -> None:
    """Print one row per puzzle: its largest page, and its costliest recording."""
    if not as_json:
        print(f"{'puzzle':<24} {'cases':>5} {'page':>8} {'recorded / guarded':>19} {'watch':>8}  (kB, CPU s)")
    for row in watched():
        if as_json:
            print(json.dumps(row), flush=True)
            continue
        sizes = f"{row['puzzle']:<24} {row['cases']:>5} {row['page_bytes'] / 1e3:8.0f}"
        print(f"{sizes} {row['recorded_over_guarded']:19.2f} {row['watch_cpu_s']:8.3f}", flush=True)


def watched() -> Iterator[dict[str, object]]:
    """Yield the worst case of each puzzle. page_bytes: the HTML's size."""
    for puzzle in puzzles():
        kernel = solutions()[puzzle.name]
        page, ratio, seconds = 0, 0.0, 0.0
        cases = [case for case in puzzle.cases if not case.pretend and math.prod(puzzle.programs(case))]
        for case in cases:
            bound, inputs = bind(kernel, puzzle, case), make_inputs(puzzle, case)
            attempt(bound, inputs, Options(record=True, recorder=Recorder()))
            plain = min(_seconds(lambda b=bound, i=inputs: attempt(b, i)) for _ in range(REPEATS))
            recorded = min(
                _seconds(lambda b=bound, i=inputs: attempt(b, i, Options(record=True, recorder=Recorder())))
                for _ in range(REPEATS)
            )
            watch(kernel, puzzle, case)
            started = cpu_seconds()
            shown = watch(kernel, puzzle, case)._repr_html_()
            seconds = max(seconds, cpu_seconds() - started)
            page, ratio = max(page, len(shown.encode())), max(ratio, recorded / plain)
        yield {
            "puzzle": puzzle.name,
            "cases": len(cases),
            "page_bytes": page,
            "recorded_over_guarded": round(ratio, 2),
            "watch_cpu_s": round(seconds, 3),
        }


def _seconds(action) -> float:
    started = cpu_seconds()
    action()
    return cpu_seconds() - started
