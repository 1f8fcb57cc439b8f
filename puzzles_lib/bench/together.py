"""Measure programs that run at once, and one by one: ``python -m puzzles_lib.bench together``.

Each of these solutions of the course runs in a large case. The CPU time is that of the programs alone, the
median of three runs. Both ways must leave the same, or it's an error. The last two kernels can't run at once:
each program of one has its own number of iterations, and the programs of the other update the same sums.
"""

import statistics
from dataclasses import replace

from puzzles_lib import Case
from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.binding import Bound, bind
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker.attempts import attempt
from puzzles_lib.compiler import Program
from puzzles_lib.inputs import make_inputs
from puzzles_lib.runner import Options
from puzzles_lib.runner.together import differences

REPEATS = 3
CASES = {
    "masked_add": Case(N=262_144, BLOCK=256),
    "outer_add_blocks": Case(M=1024, N=1024, BLOCK_M=32, BLOCK_N=32),
    "long_softmax": Case(M=2048, N=300, BLOCK_M=1, BLOCK_N=128),
    "layer_norm": Case(M=1024, N=500, BLOCK_M=1, BLOCK_N=512),
    "batched_matmul": Case(B=4, M=256, N=256, K=256, BLOCK_M=32, BLOCK_N=32, BLOCK_K=32),
    "flash_attention": Case(T=512, D=64, BLOCK_Q=16, BLOCK_K=16, BLOCK_D=64),
    "split_sum": Case(M=512, N=512, BLOCK_M=16, BLOCK_N=16),
}


def print_together() -> None:
    """Print a row for each kernel. Raise RuntimeError if the two ways differ."""
    head = f"{'kernel':<18} {'programs':>8} {'at once':>8} {'one by one':>11} {'together':>9} {'times':>6}"
    print(f"{head}  (CPU s)")
    for name, case in CASES.items():
        puzzle = next(each for each in puzzles() if each.name == name)
        bound, inputs = bind(solutions()[name], puzzle, case), make_inputs(puzzle, case)
        assert isinstance(bound, Bound)
        code = bound.translated()
        assert isinstance(code, Program)
        bound = replace(bound, program=code)
        runs = {
            at_once: [
                attempt(bound, inputs, Options(quiet=True, together=at_once, seconds=60.0))
                for _ in range(REPEATS)
            ]
            for at_once in (False, True)
        }
        if found := differences(runs[False][0], runs[True][0]):
            raise RuntimeError(f"{name} leaves something else if its programs run at once: {found}")
        alone, at_once = (statistics.median(run.seconds for run in each) for each in runs.values())
        first = runs[True][0]
        print(
            f"{name:<18} {first.programs:>8} {first.together:>8} {alone:>11.3f} {at_once:>9.3f} "
            f"{alone / at_once:>6.1f}",
            flush=True,
        )
