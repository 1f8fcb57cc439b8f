"""Check a kernel and keep the result: `check` is what a learner calls, and `puzzles_lib.checker` judges.

It keeps the learner's progress (`ledger`) and the reports of this session for `hint` and `mistake`
(`session`). When a puzzle is solved for the first time, the report says so and what is next (`cheer`).
"""

import ast
import contextlib
import dataclasses
import re
import textwrap

from puzzles_lib import ledger, session
from puzzles_lib.chapters import hints
from puzzles_lib.checker import SECONDS_PER_CASE, examine
from puzzles_lib.checker.attempts import positive
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.overview import cheer
from puzzles_lib.puzzle import Puzzle, expect_puzzle
from puzzles_lib.reported import is_as_reported, symptoms, unsaid
from puzzles_lib.staleness import stale_note
from puzzles_lib.stubs import attempt_text
from puzzles_lib.wrapped import unwrap

WARPS = (1, 2, 4, 8, 16, 32)  # that a launch may ask for


def check(
    kernel: object,
    puzzle: Puzzle,
    *,
    seconds: float = SECONDS_PER_CASE,
    salt: str = "",
    num_warps: int | None = None,
) -> Report:
    """Try a ``@triton.jit`` kernel on every case of a puzzle and on a few random cases; return the report.

        check(outer_add_kernel, OUTER_ADD)

    The report's ``ok`` is True if everything passes, and ``cases`` has the result of each case.

    The kernel runs on the CPU, with every memory access checked, so you get a report even if the kernel would
    crash a GPU. Checks in several threads wait for each other. ``tl.static_print`` shows each text once.
    `progress` records the attempt.

    Inputs are contiguous and, unless a case pretends to be larger, have fewer than 2**31 elements. For
    strides and large sizes of your own kernel, use `audit`.

    Inputs are finite and at most 1e30 in absolute value, unless a case or the task says otherwise. The same
    holds for values on the way to a result, such as attention scores, and no sum or product overflows
    float32. Your kernel may therefore use -1e30 instead of minus infinity in a maximum, but not -1e20. -0.0
    counts as 0.0. Instead of x / s, your kernel may compute x * (1 / s), because a GPU's `/` may be off
    by up to 2 units in the last place. It may leave out terms that change a result by less than half a unit
    in the last place.

    seconds: the limit on the CPU time of each run of a case. A run may last ten times as long on the clock.
        The whole check may use six times this CPU time.
    salt: for graders. Another salt gives other random cases, and other input values in all cases. With the
        same salt, the report is the same at every call. Only the first time that you solve a puzzle of the
        course, it has one more line, which congratulates you.
    num_warps: the number of warps of the launch, which decides what threads do: 1, 2, 4, 8, 16 or 32. None is
        Triton's 4, or what `triton.autotune` sets. Races between threads are judged as on an H100 or MI300.

    Raises TypeError if ``puzzle`` is not a `Puzzle` or ``salt`` is not a string. Raises ValueError if
    ``seconds`` is not a number above 0, or ``num_warps`` is not allowed. Raises KeyboardInterrupt when
    interrupted.
    """
    __tracebackhide__ = True
    expect_puzzle("check", kernel, puzzle)
    positive("check", seconds)
    if not isinstance(salt, str):
        raise TypeError(f"check: salt must be a string, not {type(salt).__name__}")
    if num_warps is not None and (type(num_warps) is not int or num_warps not in WARPS):
        allowed = ", ".join(map(str, WARPS))
        raise ValueError(f"check: num_warps must be one of {allowed} or None, but is {num_warps!r}")
    report = None
    with contextlib.suppress(KeyboardInterrupt):
        report = examine(kernel, puzzle, seconds=seconds, salt=salt, num_warps=num_warps or 0)
    if report is None:  # raised from here, so that a notebook shows two frames and not thirty
        raise KeyboardInterrupt("the check was interrupted") from None
    return _kept(kernel, puzzle, report, salt)


_CURES = {  # what a report on a broken kernel leaves out, because its learner looks for it
    "put tl.debug_barrier() into the loop: ": "",
    "put tl.debug_barrier() between the store and the atomic, which waits": "the atomic waits",
    ": convert a factor to int64 with .to(tl.int64), or a size with tl.cast(size, tl.int64)": "",
    ": convert a factor to int64 with .to(tl.int64)": "",
    ' without input_precision="ieee"': "",
}
_BARRIER = re.compile(r"put tl\.debug_barrier\(\) between the two(, before the loop in line \d+)?: ")


def _unjudged(report: Report, question: str) -> Report:
    """Return the report on a kernel that was handed out broken, and changed before its cause was said."""
    first = f'say the cause first, by answer("{question}", ...), and check again'
    return Report(report.title, verdict=Verdict("open", "your change isn't judged yet", diagnosis=first))


def _without_cures(report: Report) -> Report:
    """Return the report on a kernel that was handed out broken, without a cure in words."""

    def uncured(verdict: Verdict | None) -> Verdict | None:
        if verdict is None:
            return None
        message, diagnosis = verdict.message, verdict.diagnosis
        for cure, rest in _CURES.items():
            message, diagnosis = message.replace(cure, rest), diagnosis.replace(cure, rest)
        return dataclasses.replace(verdict, message=message, diagnosis=_BARRIER.sub("", diagnosis))

    cases = tuple(dataclasses.replace(case, verdict=uncured(case.verdict)) for case in report.cases)
    return dataclasses.replace(report, verdict=uncured(report.verdict), cases=cases)


_LOOP = (
    "It's correct, but slow: your loop loads the numbers of a block one by one, each after the one before. "
    "tl.arange(0, BLOCK) is such a loop for all lanes at once: with it, one load reads the whole block."
)


_LANES = re.compile(r"(tl\.)?(static_)?range\((0, )?BLOCK\w*\)")


def _loops_over_lanes(source: str) -> bool:
    """Return whether a kernel loads the elements of a block one by one, in a loop over its lanes."""
    try:
        tree = ast.parse(textwrap.dedent(source))
    except (SyntaxError, ValueError):
        return False
    makers = ("tl.arange", "tl.load", "[")  # a loaded number may be a vector, too
    assigned = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AugAssign)]
    vectors: set[str] = set()
    for _ in assigned:
        for line in assigned:
            names = {each.id for each in ast.walk(line.value) if isinstance(each, ast.Name)}
            if names & vectors or any(maker in ast.unparse(line.value) for maker in makers):
                targets = line.targets if isinstance(line, ast.Assign) else [line.target]
                vectors |= {each.id for target in targets for each in ast.walk(target)
                            if isinstance(each, ast.Name)}  # fmt: skip
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For) or not _LANES.fullmatch(ast.unparse(loop.iter)):
            continue
        for node in ast.walk(loop):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load":
                names = {each.id for each in ast.walk(node.args[0]) if isinstance(each, ast.Name)}
                counts = isinstance(loop.target, ast.Name) and loop.target.id in names
                if counts and not names & vectors and "tl.arange" not in ast.unparse(node.args[0]):
                    return True
    return False


def _kept(kernel: object, puzzle: Puzzle, report: Report, salt: str) -> Report:
    """Record the check and return its report, with any notes."""
    wrapped = unwrap(kernel)
    notes = [stale_note(wrapped.kernel) if wrapped else ""]
    if report.ok and wrapped and _loops_over_lanes(wrapped.kernel.src):
        notes.append(_LOOP)
    name = wrapped.kernel.__name__ if wrapped else ""
    own = name in ("", f"{puzzle.name}_kernel") or (puzzle.name, name) in hints()
    known, _ = ledger.load()
    broken = puzzle.counts and bool(puzzle.broken_by)
    untouched = broken and not report.ok and is_as_reported(kernel, puzzle)
    if broken and not salt and (asked := unsaid(puzzle)):
        report = symptoms(report, asked) if untouched else _unjudged(report, asked)
    if broken:
        report = _without_cures(report)  # hints quote what is remembered
    session.remember(puzzle, wrapped.kernel if wrapped else None, report, steers=own or not puzzle.counts)
    cheered = None
    if puzzle.counts:
        kind = next((verdict.kind for verdict in report.verdicts), "")
        if untouched:
            kind = ledger.OPEN
        trouble = ledger.record(puzzle.name, report.ok, kind, attempt_text(kernel))
        notes.append(trouble or "")
        if report.ok and not trouble and known.get(puzzle.name) != ledger.SOLVED:
            cheered = cheer(puzzle)
    return dataclasses.replace(report, notes=(*report.notes, *filter(None, notes)), cheer=cheered)
