"""Look at one launch of an audit: play it, draw what it touches, read what the compiler makes of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from puzzles_lib import compiler
from puzzles_lib.auditor.defined import span_of
from puzzles_lib.auditor.launch import Launch
from puzzles_lib.auditor.running import Outcome
from puzzles_lib.checker import verdicts
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.compiler import find_target, translate
from puzzles_lib.inspector import Stages, built_from, source_lines
from puzzles_lib.player import Player, played, racing
from puzzles_lib.player.story import RIGHT, Sheet
from puzzles_lib.puzzle import pick_program
from puzzles_lib.runner import NaNs, Options, Program, Recorder, Run, alone, run
from puzzles_lib.source import Refusal
from puzzles_lib.tracer import Trace

MOST_ELEMENTS = 1_000_000
SECONDS = 20.0


@dataclass(frozen=True)
class _Open(Sheet):
    """A tensor of which nobody says what it should hold."""

    def judged(self, elements: np.ndarray, raw: np.ndarray) -> np.ndarray:
        return np.full(len(elements), RIGHT)


def watched(outcome: Outcome, program: int | tuple[int, ...] | None) -> Player:
    """Play a launch, from the tensors as they were before it."""
    launch = outcome.launch
    before = _before(outcome, "watch")
    recorder = Recorder()
    done = alone(lambda: recorded(launch, before, recorder))
    title = str(launch)
    if isinstance(done, Report):
        return Player(title, refusal=done)
    grid = launch.full_grid[: launch.axes]
    number = pick_program(program, grid, "watch")
    number = racing(done, grid) if number is None else number
    if number is not None and number not in recorder.recordings:
        recorder = Recorder({number})
        alone(lambda: recorded(launch, before, recorder))
    shown = [_Open(a, tuple(before[a.name].shape), values=before[a.name]) for a in launch.results]
    return played(title, grid, recorder, shown, number, done)


def traced(outcome: Outcome) -> Trace:
    """Draw which program of a launch touches which elements."""
    launch = outcome.launch
    before = _before(outcome, "trace")
    grid = launch.full_grid[: launch.axes]
    done = alone(lambda: recorded(launch, before, None))
    if isinstance(done, Report):
        return Trace(str(launch), grid, refusal=done)
    tensors = {n: (tuple(map(str, t.shape)), tuple(t.shape)) for n, t in before.items()}
    return Trace(str(launch), grid, tensors, tuple(done.accesses), done.program, done.stop)


def staged(outcome: Outcome, target: str) -> Stages:
    """Show what the compiler makes of a launch."""
    launch, chosen = outcome.launch, find_target(target)
    translation = alone(lambda: translate(launch.kernel, launch.arguments, chosen, **launch.options))
    return built_from(translation, f"{launch.name}, {chosen.name}", chosen, source_lines(launch.kernel))


def _before(outcome: Outcome, caller: str) -> dict[str, torch.Tensor]:
    if outcome.before is None and not outcome.of:
        raise ValueError(f"{caller}: {outcome.launch} has an empty grid, so no program ran")
    if outcome.before is None and not outcome.programs:
        raise ValueError(f"{caller}: no program of {outcome.launch} ran; the report says why")
    if outcome.before is None:
        raise ValueError(f"{caller}: the tensors of {outcome.launch} were too large to be kept")
    before = outcome.before.fresh()
    if sum(tensor.numel() for tensor in before.values()) > MOST_ELEMENTS:
        raise ValueError(
            f"{caller}: the tensors of {outcome.launch} are too large to show: "
            f"use at most {MOST_ELEMENTS:,} elements"
        )
    return before


def recorded(
    launch: Launch,
    before: dict[str, torch.Tensor],
    recorder: Recorder | None,
    only: Sequence[Program] | None = None,
    nans: NaNs | None = None,
) -> Run | Report:
    """Run a launch, or some of its programs, and keep the accesses. nans: watches the run."""
    code = compiler.program(launch.kernel, launch.arguments, record=recorder is not None)
    if isinstance(code, Refusal):
        return Report(str(launch), verdict=verdicts.of_refusal(code))
    if not before:
        return Report(str(launch), verdict=Verdict("error", "the kernel takes no tensor"))
    tensors = {name: tensor.clone() if tensor.is_contiguous() else tensor for name, tensor in before.items()}
    return run(
        code,
        launch.with_tensors(tensors),
        launch.full_grid,
        set(tensors),
        Options(
            defined={name: np.ones(span_of(tensor), bool) for name, tensor in tensors.items()},
            others=launch.reached_in(tensors),
            suffix="",
            record=True,
            recorder=recorder,
            only=only,
            nans=nans,
            quiet=True,
            seconds=SECONDS,
        ),
    )
