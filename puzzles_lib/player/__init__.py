"""Play a kernel's run in the notebook, line by line and value by value: `watch`.

One guarded run is recorded statement by statement (`runner.recording`) and turned into a tree of plain
values (`story`). The tree is packed (`packing`) and put into a page with a script (`page`, `player.js`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from triton.runtime.jit import JITFunction

from puzzles_lib.binding import Bound
from puzzles_lib.checker import guarded, wanted
from puzzles_lib.checker.expected import Expected
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.checker.verdicts import on_the_grid, still_open, unsolved
from puzzles_lib.player import page
from puzzles_lib.player.frame import Frame, frame_of
from puzzles_lib.player.packing import packed
from puzzles_lib.player.story import Sheet, Teller, Told, sheets
from puzzles_lib.puzzle import Case, NoSuchProgram, Puzzle, expect_puzzle, pick_case, pick_program
from puzzles_lib.runner import Access, Conflict, Options, Recorder, Recording, Run
from puzzles_lib.session import failing_case
from puzzles_lib.wrapped import is_wrapped

MOST_ELEMENTS = 1_000_000  # of all tensors of a case
MOST_CHARACTERS = 900_000  # of what is packed: with script and first frame a page stays below 1 MB
MOST_BYTES = 24 << 20  # before it is packed
FEWEST_STEPS = 20
LARGE = 50_000  # elements of a tensor: the values of such are left out where a page is too large for them


def watch(
    kernel: object,
    puzzle: Puzzle,
    case: int | Case | None = None,
    program: int | tuple[int, ...] | None = None,
    step: int | None = None,
) -> "Player":
    """Run a ``@triton.jit`` kernel on one case of a puzzle and play the run, line by line.

        watch(outer_add_kernel, OUTER_ADD, case=2, program=1)

    kernel: with `triton.autotune`, its first configuration is shown.
    case: the number of the case in ``puzzle.cases``, or a `Case` of your own. The default
        is the first case that your last check of this kernel failed, or case 0 if it failed none.
    program: the program to begin with, as its number in launch order or its ids along the grid's axes. The
        default is the second of two programs that race. If none race, it is the first one that stores a
        wrong value, stops early, goes out of bounds or has masked-off lanes. If there is none, it is
        program 0.
    step: the step to open at, counted from 1 as on the page. A number past the end opens the last step.

    Without ``step``, the page opens at the line that first stores a wrong value. If there is none, it opens
    at the line that stops the run, goes out of bounds or races, or else at the start.

    You get a player no matter what the kernel does. If a run stops early, the player ends at the line that
    stopped it. If a kernel cannot run, the player shows the checker's report.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, and KeyboardInterrupt when interrupted. Raises
    ValueError if a case or program does not exist, a case is too large to show, or ``step`` is not an integer
    from 1.
    """
    __tracebackhide__ = True
    if step is not None and (type(step) is not int or step < 1):
        raise ValueError(f"watch: step must be an integer of at least 1, but is {step!r}")
    expect_puzzle("watch", kernel, puzzle)
    case = pick_case(puzzle, failing_case(kernel, puzzle) if case is None else case, "watch")
    if case.pretend:
        raise ValueError(f"watch: case {case} can't be shown, because its tensors have no values")
    elements = sum(math.prod(a.shape(case.numbers)) for a in puzzle.tensors)
    if elements > MOST_ELEMENTS:
        most = f"at most {MOST_ELEMENTS:,} can be shown"
        raise ValueError(f"watch: case {case} has {elements:,} elements, but {most}")
    if not math.prod(puzzle.programs(case)):
        raise ValueError(f"watch: case {case} starts no program")
    if not is_wrapped(kernel):  # else a configuration may change the grid
        pick_program(program, puzzle.grid(case), "watch")
    try:
        return _watched(kernel, puzzle, case, program, step)
    except NoSuchProgram:  # in the grid that a configuration gives
        raise
    except Exception as error:  # a learner must not see a page of traceback for a bug of the course
        text = " ".join(f"watch cannot show this run ({type(error).__name__}: {error})".split())
        refusal = Report(puzzle.name, verdict=Verdict("error", text[:250]))
        return Player(f"{puzzle.name}, {case}", refusal=refusal)


def _watched(
    kernel: object, puzzle: Puzzle, case: Case, program: int | tuple[int, ...] | None, step: int | None
) -> "Player":
    goal = wanted(puzzle, case)
    if isinstance(goal, Report):
        return Player(f"{puzzle.name}, {case}", refusal=goal)
    recorder = Recorder()
    done = guarded(kernel, puzzle, case, Options(recorder=recorder))
    if isinstance(done, Report):
        if isinstance(kernel, JITFunction) and unsolved(kernel, puzzle):  # its hole is the reason
            done = Report(puzzle.name, verdict=still_open(kernel))
        return Player(f"{puzzle.name}, {case}", refusal=done)
    bound, ran = done
    grid = tuple(int(n) for n in puzzle.grid(bound.case))
    number = pick_program(program, grid, "watch")
    number = racing(ran, grid) if number is None else number
    tensors = _tensors(bound, goal, ran)
    if number is None:
        number = _first_to_store_wrong(recorder, tensors, ran.accesses, grid)
    if number is not None and number not in recorder.recordings:
        recorder = Recorder({number})
        guarded(kernel, puzzle, case, Options(recorder=recorder, quiet=True))
    title = f"{puzzle.name}, {bound.case}"
    if bound.configuration and bound.configuration.count > 1:
        title += f", in {bound.configuration}"
    note = unsolved(bound.kernel, puzzle)
    return played(title, grid, recorder, tensors, number, ran, step, [f"{note}."] if note else [])


@dataclass(frozen=True, repr=False)
class Player:
    """A run to look at, shown as a page that plays, or as the text of its first frame.

    title: what was run. frame: the frame that it opens at; None for a kernel that could not run.
    data: what the page plays, packed. refusal: the checker's report if the kernel could not run.
    """

    title: str
    frame: Frame | None = None
    data: str = field(default="", repr=False)
    refusal: Report | None = None

    def __repr__(self) -> str:
        return str(self.refusal) if self.refusal or self.frame is None else f"{self.title}\n{self.frame}"

    def _repr_html_(self) -> str:
        if self.refusal or self.frame is None:
            return self.refusal._repr_html_() if self.refusal else ""
        return page.html_of(self.title, self.frame, self.data)


# ---- what is shown


def _tensors(
    bound: Bound, goal: tuple[dict[str, torch.Tensor], dict[str, Expected]], ran: Run
) -> list[Sheet]:
    """Return the tensors that the kernel takes."""
    every = bound.puzzle.tensors
    shapes = {a.name: a.shape(bound.case.numbers) for a in every}
    return sheets([a for a in every if a.name in bound.takes], shapes, *goal, ran)


def racing(ran: Run, grid: tuple[int, ...]) -> int | None:
    """Return the second of two programs that race, as its number in launch order; None if none do."""
    if ran.conflict is None or ran.stop is not None:
        return None
    return int(np.ravel_multi_index(ran.conflict.programs[1][: len(grid)], grid))


def _racing_step(recording: Recording, ran: Run) -> int:
    """Return the step in which a program touches the element that it races for; 0 if there is none."""
    if (conflict := ran.conflict) is None:
        return 0
    for place, step in enumerate(recording.steps):
        for access in (done.access for done in step.accesses):
            is_here = access.argument == conflict.argument and access.program in conflict.programs
            if is_here and bool((access.mask & (access.elements == conflict.element)).any()):
                return place
    return 0


def _first_to_store_wrong(
    recorder: Recorder, tensors: Sequence[Sheet], accesses: Sequence[Access], grid: tuple[int, ...]
) -> int | None:
    """Return the first program that left a wrong value, if not all were recorded; else None."""
    count = math.prod(grid)
    complete = len(recorder.recordings) == count and all(r.complete for r in recorder.recordings.values())
    if complete or not accesses:
        return None
    stored = {sheet.name: np.full(math.prod(sheet.shape), count, np.int64) for sheet in tensors}
    for access in accesses:
        if access.kind != "load":
            number = int(np.ravel_multi_index(access.program[: len(grid)], grid))
            stored[access.argument][access.elements[access.mask & ~access.bad]] = number
    return min((int(stored[s.name][s.wrong].min()) for s in tensors if s.wrong.any()), default=None)


def played(
    title: str,
    grid: tuple[int, ...],
    recorder: Recorder,
    tensors: Sequence[Sheet],
    number: int | None,
    ran: Run,
    step: int | None = None,
    notes: Sequence[str] = (),
) -> Player:
    """Return a page with as many programs and steps as fit, perhaps without the values of large tensors.

    step: the step to open at, from 1. A number past the end opens the last step.
        None opens the step where something goes wrong.
    notes: lines below the page, before those about the run.
    """
    count = math.prod(grid)
    is_clean = ran.undefined is None and ran.stop is None and not any(a.bad.any() for a in ran.accesses)
    every, longest = sorted(recorder.recordings), max(len(r.steps) for r in recorder.recordings.values())
    large = [sheet.name for sheet in tensors if math.prod(sheet.shape) > LARGE]
    cut: list[str] = []
    kept, most_steps = every, longest
    while True:
        teller = Teller(recorder, tensors, cut, len(grid))
        told = {n: teller.told(recorder.recordings[n], most_steps) for n in kept}
        if number is None:
            number = _telling(told)
        last = len(told[number].steps) - 1
        opening = told[number].opening or _racing_step(recorder.recordings[number], ran)
        place = min(opening if step is None else step - 1, last)
        functions = teller.functions()
        tree = {
            "title": title,
            "grid": list(grid),
            "functions": functions,
            "tensors": teller.sheets(),
            "programs": [teller.tree(told[n]) for n in kept],
            "values": teller.values,
            "sources": recorder.sources,
            "unused": recorder.masked if is_clean else [],
            "program": kept.index(number),
            "step": place,
            "notes": [*notes, *_notes(told, grid, recorder.started, ran, tensors), *_left_out(cut)],
        }
        data = packed(tree, teller.pool) if len(teller.pool.blob) <= MOST_BYTES else ""
        size = len(data) / MOST_CHARACTERS if data else 2 * len(teller.pool.blob) / MOST_BYTES
        steps = min(len(told[number].steps), most_steps)
        if size <= 1 or (len(kept) == 1 and steps <= FEWEST_STEPS and cut == large):
            frame = frame_of(recorder, recorder.recordings[number], place, count)
            return Player(title, frame, data)
        if len(kept) > 1:
            fewer = min(max(1, int(0.9 * len(kept) / size)), len(kept) - 1)
            nearest = sorted(kept, key=lambda n: (abs(n - number), n))
            kept = sorted(nearest[:fewer])
        elif steps > FEWEST_STEPS:
            most_steps = max(FEWEST_STEPS, min(int(0.9 * steps / size), steps - 1))
        else:
            cut, kept, most_steps = large, every, longest


def _telling(told: Mapping[int, Told]) -> int:
    """Return the program to begin with: one with a fault, else with masked-off lanes, else the first."""
    for has in (Told.stores_wrong, Told.goes_bad, Told.masks):
        found = [number for number, each in told.items() if has(each)]
        if found:
            return found[0]
    return min(told)


def _left_out(cut: Sequence[str]) -> list[str]:
    if not cut:
        return []
    names = " and ".join(filter(None, [", ".join(cut[:-1]), cut[-1]]))
    return [
        f"{names} would make this page too large. It keeps only the elements that these steps load and store."
    ]


def _race(conflict: Conflict, axes: int, tensors: Sequence[Sheet]) -> str:
    """Say which programs race for an element. On a GPU, any of them may be the last."""
    first, second = (p[0] if axes == 1 else p[:axes] for p in conflict.programs)
    who = (
        f"two lanes of one store in program {first}" if first == second else f"programs {first} and {second}"
    )
    shape = next((sheet.shape for sheet in tensors if sheet.name == conflict.argument), ())
    index = np.unravel_index(conflict.element, shape) if shape else ()
    element = f"{conflict.argument}[{', '.join(map(str, index))}]" if shape else conflict.argument
    order = "one lane stored after the other" if first == second else "the programs ran one after the other"
    done = {"write": "store different values to", "read": "store to and load"}
    what = done.get(conflict.kind, "change")
    line = f" ({conflict.site})" if conflict.site.source else ""
    return (
        f"This is a race: {who} {what} {element}{line}. Here {order}; on a GPU the order isn't fixed, so "
        "the result can differ from run to run."
    )


def _notes(
    told: Mapping[int, Told], grid: tuple[int, ...], started: int, ran: Run, tensors: Sequence[Sheet]
) -> list[str]:
    """Return why the run ended early, which result depends on the order of programs, and what is left out."""
    notes = []
    if ran.stop and ran.stop.kind != "out of bounds":
        count = math.prod(grid)
        never = f"; {count - started} of {count} programs never started" if started < count else ""
        stopped = on_the_grid(ran.stop.message, len(grid))
        notes.append(f"The kernel did not finish: {stopped}{never}.")
    if ran.conflict:
        notes.append(_race(ran.conflict, len(grid), tensors))
    if len(told) < started:
        kept = f"{min(told)} is" if len(told) == 1 else f"{min(told)} to {max(told)} are"
        notes.append(
            f"Of {started} programs, {kept} on this page; watch(kernel, PUZZLE, program=...) shows another."
        )
    for number, each in told.items():
        if not each.complete:
            notes.append(f"Program {number} took more than the {len(each.steps)} steps on this page.")
            break
    return notes
