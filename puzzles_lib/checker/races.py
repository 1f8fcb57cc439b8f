"""Find races within a program: two of its threads access one element, and nothing orders them.

A guarded run shows which lines and lanes access the same element, and the compiler says which threads own
these lanes. It is asked only if there are such lanes, because a compilation down to the layouts takes about
50 ms per target. The second target is asked about only one case of a check.
"""

import ast
from collections.abc import Callable
from dataclasses import replace

from triton.runtime.jit import JITFunction

from puzzles_lib.binding import Bound
from puzzles_lib.checker.naming import index_of, the_program
from puzzles_lib.checker.report import Verdict
from puzzles_lib.checker.verdicts import in_one_step
from puzzles_lib.compiler import Target, find_target, held_by
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.runner import Options, Run, Touch, WithinProgram
from puzzles_lib.source import Refusal, nodes, site_in, with_helpers

_TARGETS = tuple(map(find_target, ("sm_90", "gfx942")))  # 32 and 64 threads per warp


class Threads:
    """The races within the programs of one kernel, for one check."""

    def __init__(self, targets: tuple[Target, ...] = _TARGETS) -> None:
        self._known: dict[str, str | Refusal] = {}
        self.notes: list[str] = []
        self._targets = targets

    def race(self, bound: Bound, run: Callable[[Options], Run]) -> Verdict | None:
        """Return the first race of a run; None if one thread made all accesses to each shared element."""
        num_warps = bound.num_warps
        targets, self._targets = self._targets, self._targets[:1]
        for target in targets:
            ran = self._ran(bound, run, target, num_warps)
            if ran and ran.within:
                safe = num_warps > 1 and all(self._is_safe_with_one(bound, run, each) for each in _TARGETS)
                loop = _loop_of_second(bound.kernel, ran.within)
                verdict = _race_within(
                    bound.puzzle, bound.case, ran.within, target, num_warps, loop, safe_with_one=safe
                )
                kinds = (ran.within.first.kind, ran.within.second.kind)
                if kinds == ("load", "store") and not ran.atomics:
                    cure = in_one_step(bound.puzzle, ran.within.argument)
                    return replace(verdict, diagnosis=cure or verdict.diagnosis)
                return verdict
        return None

    def _is_safe_with_one(self, bound: Bound, run: Callable[[Options], Run], target: Target) -> bool:
        alone = self._ran(bound, run, target, 1)
        return alone is None or alone.within is None

    def _ran(self, bound: Bound, run: Callable[[Options], Run], target: Target, num_warps: int) -> Run | None:
        """Return a run that knows the threads; None if the kernel does not compile for AMD's target."""
        holders = held_by(bound.kernel, bound.arguments, target, num_warps, self._known)
        if isinstance(holders, Refusal):
            if not target.is_nvidia:
                return None
            self._note(bound)
            holders = _unknown
        return run(Options(held_by=holders, quiet=True))

    def _note(self, bound: Bound) -> None:
        """Note that the compiler fails although the front end accepts the kernel."""
        stopped = [known for known in self._known.values() if isinstance(known, Refusal)]
        if stopped and not self.notes:
            text = f"Triton's compiler fails for {bound.case}: {stopped[0]}"
            self.notes.append(
                f"{text}. A launch would fail, too; puzzles_lib.stages shows how far the compiler gets"
            )


def _unknown(*access: object) -> None:
    """Know no thread, so that each lane of a block counts as another thread."""


def _loop_of_second(kernel: JITFunction, race: WithinProgram) -> int | None:
    """Return the line of the outermost loop around the second access alone; None if there is none."""
    for function in with_helpers(kernel):
        around: list[list[int]] = [[], []]
        for node in nodes(function):
            if isinstance(node, ast.For | ast.While):
                lines = {site_in(function, line) for line in range(node.lineno, (node.end_lineno or 0) + 1)}
                for touch, found in zip((race.first, race.second), around, strict=True):
                    if touch.site in lines:
                        found.append(site_in(function, node.lineno).line)
        if alone := set(around[1]) - set(around[0]):
            return min(alone)
    return None


def _race_within(
    puzzle: Puzzle,
    case: Case,
    race: WithinProgram,
    target: Target,
    num_warps: int,
    loop: int | None = None,
    *,
    safe_with_one: bool,
) -> Verdict:
    """Return the verdict on two threads of a program that access one element with nothing to order them.

    loop: the line of a loop that only the second access is in.
    """
    shape = next((r.shape(case.numbers) for r in puzzle.results if r.name == race.argument), None)
    element = f"{race.argument}[{index_of(race.element, shape)}]" if shape else race.argument
    if shape is None:  # a tensor that a table of pointers leads to
        element = f"element {race.element} of {race.argument}"
    if not race.ends:
        text = (
            f"race within {the_program(race.program, puzzle, case)}: {element} is stored by a descriptor "
            f"at line {race.first.site.line}, then {_DONE[race.second.kind]} at line {race.second.site.line}"
        )
        cure = "no barrier waits for a descriptor's store: use the value that was stored, or tl.store"
        return Verdict("race", text, race.second.site, cure)
    first, second = (_touch(touch, target) for touch in (race.first, race.second))
    warps = "1 warp" if num_warps == 1 else f"{num_warps} warps"
    where = the_program(race.program, puzzle, case)
    text = f"race within {where}: {element} is {first}, then {second}, with no barrier between"
    cure = "put tl.debug_barrier() between the two: threads don't wait for each other"
    if loop is not None:
        cure = (
            f"put tl.debug_barrier() between the two, before the loop in line {loop}: "
            "threads don't wait for each other"
        )
    elif race.first.site == race.second.site and race.first.kind == "load" != race.second.kind:
        cure = "load on a separate line, then put tl.debug_barrier(): threads don't wait for each other"
    elif race.first.site == race.second.site:
        cure = "put tl.debug_barrier() into the loop: threads don't wait for each other"
    alone = "; with num_warps=1 it would be correct" if safe_with_one else ""
    return Verdict("race", text, race.second.site, f"{cure} ({target.name}, {warps}{alone})")


_DONE = {"load": "loaded", "store": "stored", "atomic": "updated"}


def _touch(touch: Touch, target: Target) -> str:
    """Return which threads did what, and at which line."""
    who = f"lane {touch.lane} of the block"
    if touch.thread is not None:
        warp, lane = divmod(touch.thread, target.gpu.warp_size)
        who = f"lane {lane} of warp {warp}"
    elif touch.several:
        who = "several threads"
    return f"{_DONE[touch.kind]} at line {touch.site.line} by {who}"
