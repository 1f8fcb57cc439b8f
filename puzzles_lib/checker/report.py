"""The report of a check: as a few lines of text, as HTML in the notebook's colors, and as a dictionary."""

import dataclasses
import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from puzzles_lib.drawing.card import Theme, card, heads, marked
from puzzles_lib.source import Site

MOST_LINES = 12
MOST_CHARACTERS = 300  # per line
LEAST = "1.00x means that each input is read once and each output is written once; 2.00x is double"
BY_LANE = '; "by lane" counts every lane, even if several need the same element'
PRETENDED = "pretend"  # in the label of a case that has sizes but no data
IN_BOUNDS = "in bounds"  # of such a case, if another one fails: no value of it was looked at
_CODE = "font-family:var(--jp-code-font-family, monospace)"

KINDS = (
    "open", "signature", "compiler", "launch", "error", "deadlock", "time limit", "memory limit",
    "out of bounds", "uninitialized", "never written", "race", "input changed", "values", "loads",
    "stores", "operations", "false hint", "true size", "machine", "traffic", "puzzle",
)  # fmt: skip
"""The kinds of a `Verdict`. ``"launch"``: the kernel compiles, but a GPU could not launch it.
``"machine"``: it is correct, but its machine code misses the puzzle's goal.
``"traffic"``: it is correct, but fetches more from memory than the puzzle's goal.
``"puzzle"``: the puzzle itself is at fault, not the kernel."""


KIND_WORDS = {kind: kind for kind in KINDS} | {
    "compiler": "does not compile",
    "launch": "does not launch",
    "input changed": "an input is changed",
    "values": "wrong values",
    "loads": "too many loads",
    "stores": "too many stores",
    "operations": "too many operations",
    "uninitialized": "an undefined value",
    "machine": "machine code that misses the goal",
    "traffic": "too much memory traffic",
    "true size": "at true size",
}
"""How a verdict's kind is named for a reader."""
SAME_VALUE = "the value is the same"  # in the message on a race that changes no result
NEVER_LOADED = "is never loaded"  # in the message on an input whose values a result depends on
# for readers who get the word without the details
_RACE = "a race: the results can differ from run to run"
_SAME_RACE = "a race: several programs store the same value"


@dataclass(frozen=True)
class Verdict:
    """One thing that is wrong: what, where, and if it helps, why. kind: one of `KINDS`."""

    kind: str
    message: str
    site: Site | None = None
    diagnosis: str = ""

    def lines(self) -> list[str]:
        lines = [self.message]
        if self.diagnosis:
            lines.append(self.diagnosis)
        if self.site and self.site.source:
            lines.append(str(self.site))
        return lines


Draw = Callable[[], tuple[str, str]]
"""A function that makes a picture: its title and the picture as HTML; both are empty if there is none."""


@dataclass(frozen=True)
class CaseResult:
    """The result of one case. ``verdict`` is None for a pass; ``ran`` is False if it was not tried.

    bytes_moved: the distinct bytes of each load and store of each program. lane_bytes: the bytes that all
        their lanes ask for. bytes_least: the bytes if each needed element of the inputs and outputs is moved
        once.
    number: the case's number, which `trace` accepts; a case made to find a fault has none.
    drawn: whether the puzzle doesn't list the case: it is random, or made to find a fault.
    watch: the call that lets you watch the failing case; "" if there is none.
    draw: makes a map of what is wrong. It is not compared, and not part of `Report.as_dict`.
    """

    label: str
    verdict: Verdict | None = None
    ran: bool = True
    programs: int = 0
    bytes_moved: int = 0
    bytes_least: int = 0
    lane_bytes: int = 0
    number: int | None = None
    drawn: bool = False
    watch: str = ""
    draw: Draw | None = field(default=None, compare=False, repr=False)

    @property
    def ok(self) -> bool:
        return self.ran and self.verdict is None

    @property
    def unlisted(self) -> str:
        """What to call a case that the puzzle doesn't list; "" for the others."""
        return ("not listed" if self.number is None else "random") if self.drawn else ""

    @property
    def pretended(self) -> bool:
        """Whether the case has sizes but no data, so that its addresses are all that is judged."""
        return PRETENDED in self.label.split()

    @property
    def status(self) -> str:
        return "pass" if self.ok else "FAIL" if self.ran else "skip"

    def cost(self) -> str:
        """Return what a pass cost: programs, and bytes moved, also relative to the least."""
        if not self.programs:
            return "no programs"
        programs = "1 program" if self.programs == 1 else f"{self.programs} programs"
        if not self.bytes_least:
            return f"{programs} at the edges of the grid"
        ratio = self.bytes_moved / self.bytes_least
        lanes = f", {_size(self.lane_bytes)} by lane" if self.lane_bytes > self.bytes_moved else ""
        return f"{programs}, {_size(self.bytes_moved)} moved ({ratio:.2f}x){lanes}"


@dataclass(frozen=True)
class GoalResult:
    """The result of one of the puzzle's goals. ``verdict`` is None if it is met.

    launch: the case, and how it is launched. told: what was measured. look: the call that shows it.
    of: ``"machine code"`` or ``"traffic"``.
    """

    launch: str
    told: str = ""
    verdict: Verdict | None = None
    look: str = ""
    of: str = "machine code"

    @property
    def ok(self) -> bool:
        return self.verdict is None


@dataclass(frozen=True)
class Row:
    """A line about one or several cases or goals. verdict: set only for the row that has all details.

    watch: the call that shows the case.
    """

    status: str
    text: str
    cost: str = ""
    verdict: Verdict | None = None
    watch: str = ""
    draw: Draw | None = None

    def lines(self) -> list[str]:
        """Return the lines about the verdict."""
        if not self.verdict:
            return []
        invites, calls = self.invites, self.watch.splitlines()
        offer = [f"{invites} {calls[0]}"] if len(calls) == 1 else [invites, *calls] if calls else []
        return [*self.verdict.lines(), *offer]

    @property
    def invites(self) -> str:
        """What is written before the call; "" without one."""
        return ("See it run:" if self.watch.startswith("watch(") else "See it:") if self.watch else ""


@dataclass(frozen=True)
class Cheer:
    """The message when a puzzle is solved for the first time.

    next: what comes next; "" if nothing does. notebook: the file that contains it; "" for the same one.
    """

    words: str
    next: str = ""
    notebook: str = ""

    def __str__(self) -> str:
        where = f" ({self.notebook})" if self.notebook else ""
        return f"★ {self.words}" + (f" Next: {self.next}{where}." if self.next else "")

    def html(self) -> str:
        """Return the message as HTML. `tests/nbval_sanitize.cfg` removes it by its class."""
        after = html.escape(self.next)
        if self.notebook:
            after = f'<a href="{html.escape(self.notebook)}">{after}</a>'
        star = f'<strong style="color:{Theme.OK.ink}">★ {html.escape(self.words)}</strong>'
        return f'<div class="first-pass">{star}{" Next: " * bool(after)}{after}</div>'


@dataclass(frozen=True)
class Report:
    """The answer to one check: ``ok``, the verdict on the kernel as a whole if any, and the cases.

    Random cases come last, and only if all others pass. salt: as for `check`.
    cheer: set at the first pass. It is not compared, and not part of `as_dict`.
    goals: the results of the puzzle's goals, which are tried only if all cases pass.
    """

    title: str
    cases: tuple[CaseResult, ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = field(default=())
    salt: str = ""
    cheer: Cheer | None = field(default=None, compare=False)
    goals: tuple[GoalResult, ...] = ()

    @property
    def right(self) -> bool:
        """Whether all cases pass, whether or not the goals are met."""
        return self.verdict is None and bool(self.cases) and all(c.ok for c in self.cases)

    @property
    def ok(self) -> bool:
        """Whether all cases pass and all goals are met."""
        return self.right and all(goal.ok for goal in self.goals)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts. The one on the kernel as a whole comes first."""
        found = [self.verdict] if self.verdict else []
        found += [case.verdict for case in self.cases if case.verdict]
        return tuple(found + [goal.verdict for goal in self.goals if goal.verdict])

    @property
    def telling(self) -> Verdict | None:
        """The verdict that a reader should see first: the compiler's if there is one, otherwise the first.

        A wrong shape may fit by chance where blocks are square, and give wrong values there.
        """
        refused = (verdict for verdict in self.verdicts if verdict.kind == "compiler")
        return next(refused, next(iter(self.verdicts), None))

    @property
    def listed(self) -> tuple[CaseResult, ...]:
        """The puzzle's own cases."""
        return tuple(c for c in self.cases if not c.drawn)

    @property
    def passed(self) -> set[int] | None:
        """The numbers of the puzzle's own cases that pass; None if the kernel isn't written yet."""
        if self.verdict and self.verdict.kind == "open":
            return None
        return {case.number for case in self.listed if case.ok and case.number is not None}

    @property
    def drawn(self) -> tuple[CaseResult, ...]:
        """The cases that the puzzle doesn't list: random ones, and those made to find a fault."""
        return tuple(c for c in self.cases if c.drawn)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON types, for a grader. The keys are the names of the fields.

            {"title": "outer_add", "ok": False, "verdict": None, "notes": [], "salt": "", "cases": [
                {"number": 0, "label": "M=32  N=32", "status": "pass", "drawn": False, "ran": True,
                 "programs": 1, "bytes_moved": 4352, "bytes_least": 4352,
                 "lane_bytes": 4352, "watch": "", "verdict": None},
                {"number": 1, "label": "M=90  N=100", "status": "FAIL", ..., "verdict":
                 {"kind": "out of bounds", "message": "out-of-bounds load of x_ptr in ...",
                  "diagnosis": "", "site": {"line": 4, "source": "x = tl.load(x_ptr + offs_n)"}}}],
             "goals": []}

        A goal has the keys ``launch`` (``"case 6, sm_90, 4 warps"``), ``told``, ``look``, ``verdict`` and
        ``of`` (``"machine code"`` or ``"traffic"``).

        The outer ``verdict`` is about the kernel as a whole, which was not run in that case. kind is one of
        `KINDS`, and status is ``"pass"``, ``"FAIL"`` or ``"skip"``. Keys may be added, but none is removed.
        """
        told = dataclasses.asdict(dataclasses.replace(self, cases=())) | {
            "ok": self.ok,
            "notes": list(self.notes),
        }
        del told["cheer"]
        told["cases"] = [_told(case) for case in self.cases]
        return told

    @classmethod
    def from_dict(cls, told: Mapping[str, Any]) -> "Report":
        """Return the report of a dictionary from `as_dict`. Unknown keys are ignored."""
        cases = (_known(CaseResult, case) | {"verdict": _verdict(case["verdict"])} for case in told["cases"])
        parts: dict[str, Any] = {
            "cases": tuple(CaseResult(**case) for case in cases),
            "verdict": _verdict(told["verdict"]),
            "notes": tuple(told["notes"]),
            "goals": tuple(
                GoalResult(**(_known(GoalResult, goal) | {"verdict": _verdict(goal["verdict"])}))
                for goal in told.get("goals", ())
            ),
        }
        return cls(**(_known(cls, told) | parts))

    def _status(self, case: CaseResult) -> str:
        """Return what to call a case's result. A pretended case doesn't show that values are correct."""
        fails = any(each.verdict and not each.pretended for each in self.listed)
        return IN_BOUNDS if case.ok and case.pretended and fails else case.status

    def headline(self) -> str:
        if self.verdict:
            return f"{self.title}: not run"
        passed, count = sum(c.ok for c in self.listed), len(self.listed)
        every = f"all {passed} cases pass" if passed > 1 else "the only case passes"
        if self.right:
            kinds = list(dict.fromkeys(goal.of for goal in self.goals if goal.ok == self.ok))
            of = " and its ".join(kinds)
            met, missed = ("meets its goal", "misses its goal")
            if len(kinds) > 1:
                met, missed = "meet their goals", "miss their goals"
            told = f", and its {of} {met}" if self.ok else f", but its {of} {missed}"
            told = told if self.goals else ""
            return f"{self.title}: {every}{told}"
        if passed == count and self.drawn:
            random = all(case.ok or case.number is not None for case in self.drawn)
            one = "a random one" if random else "an unlisted one"
            return f"{self.title}: {every.replace('case', 'listed case')}, but {one} fails"
        return f"{self.title}: {passed} of {count} cases pass"

    def rows(self, most: int = MOST_LINES) -> list[Row]:
        """Return a row per case and goal. The telling failure has all details; others may share a row."""
        goals = self._goal_rows()
        return self._case_rows(max(most - sum(1 + len(row.lines()) for row in goals), 2)) + goals

    def _goal_rows(self) -> list[Row]:
        told = next((goal for goal in self.goals if not goal.ok), None)
        return [
            Row("pass", f"{goal.of} of {goal.launch}: {goal.told}")
            if goal.ok
            else Row(
                "FAIL",
                f"{goal.of} of {goal.launch}"
                + (f": {goal.verdict.message}" if goal.verdict and goal is not told else ""),
                verdict=goal.verdict if goal is told else None,
                watch=goal.look if goal is told else "",
            )
            for goal in self.goals
        ]

    def _case_rows(self, most: int) -> list[Row]:
        told = next((i for i, c in enumerate(self.cases) if c.verdict and c.verdict == self.telling), None)
        before = tuple(c for c in self.cases[:told] if not c.drawn)
        after = self.cases[told + 1 :] if told is not None else ()
        rows = self._others(before)
        extra = 0
        if told is not None:
            rows.append(self._told(self.cases[told]))
            extra = len(rows[-1].lines())
        elif self.drawn:
            rows.append(Row("pass", _counted(len(self.drawn), "and {} random")))
        rows += self._others(after)
        return rows if len(rows) + extra <= most else self._folded(before, told, after, most - extra - 1)

    def _folded(
        self, before: tuple[CaseResult, ...], told: int | None, after: tuple[CaseResult, ...], most: int
    ) -> list[Row]:
        """Return at most this many rows, and the one told in full."""
        if told is None:
            kept = [self._row(case) for case in before[: most - 1]]
            more = _counted(len(before) - len(kept), "and {} more")
            if self.drawn:
                more += f", and {_counted(len(self.drawn), '{} random')}"
            return [*kept, Row("pass", more)]
        first = self._others(before)
        first = first if len(first) + 3 <= most else self._together(before)
        this = self._told(self.cases[told])
        last = self._others(after)
        return [*first, this, *(last if len(last) <= most - len(first) else self._together(after))]

    def _others(self, cases: Sequence[CaseResult]) -> list[Row]:
        """Return the rows of cases not told in full. Those that fail in the same way share a row."""
        alike: dict[str, list[CaseResult]] = {}
        for case in cases:
            alike.setdefault(_fault(case), []).append(case)
        rows = []
        for case in cases:
            some = alike[_fault(case)]
            if case.status != "FAIL" or len(some) == 1:
                rows.append(self._row(case, f"   {_fault(case)}" if case.verdict else ""))
            elif case is some[0]:
                rows.append(Row(case.status, _with(_numbered(some), _fault(case, len(some)))))
        return rows

    def _told(self, case: CaseResult) -> Row:
        """Return the row of the case with all details."""
        watch = "" if self.salt else case.watch  # with a salt, `watch` would show other values
        return dataclasses.replace(self._row(case), verdict=case.verdict, watch=watch, draw=case.draw)

    def _together(self, cases: Iterable[CaseResult]) -> list[Row]:
        """Return a row for each status among the cases, with their numbers and faults."""
        found: dict[str, list[CaseResult]] = {}
        for case in cases:
            found.setdefault(self._status(case), []).append(case)
        rows = []
        for status, some in found.items():
            faults = dict.fromkeys(_fault(case, len(some)) for case in some)
            rows.append(Row(status, _with(_numbered(some), ", or ".join(filter(None, faults)))))
        return rows

    def _row(self, case: CaseResult, fault: str = "") -> Row:
        """Return the row of a case. fault: what is wrong, unless the lines below it have all details."""
        label = _cut(case.label)
        if case.status != "FAIL":
            return Row(self._status(case), label, case.cost() if self.ok else "")
        # With a salt, a case has other values than `trace(case=...)` would show.
        place = "" if case.number is None or self.salt else f"   (case={case.number})"
        unlisted = f"   {case.unlisted}" if case.drawn else ""
        return Row(case.status, f"{label}{unlisted}{place}{fault}")

    def _notes(self) -> list[str]:
        return [f"({self._least()})", *self.notes] if self._has_costs else [*self.notes]

    @property
    def _has_costs(self) -> bool:
        """Whether bytes are shown, which those of cases without data aren't."""
        return self.ok and any(case.bytes_least for case in self.cases if not case.drawn)

    def _least(self) -> str:
        """Return what the numbers in the costs mean."""
        shared = any(case.lane_bytes > case.bytes_moved for case in self.cases if not case.drawn)
        return LEAST + BY_LANE * shared

    def __repr__(self) -> str:
        lines = [self.headline()]
        notes = self._notes()
        if self.verdict:
            lines += ["       " + line for line in self.verdict.lines()]
        rows = self.rows(max(MOST_LINES - len(lines) - len(notes), 5))
        width = max((len(row.text) for row in rows if row.cost), default=0)
        for row in rows:
            text = f"{row.text:<{width}}   {row.cost}" if row.cost else row.text
            lines.append(f"{row.status}   {text}")
            lines += ["       " + line for line in row.lines()]
        cheer = [str(self.cheer)] if self.cheer else []
        return "\n".join(_cut(line) for line in (lines + notes)[:MOST_LINES] + cheer)

    def _repr_html_(self) -> str:
        table, rows = self.rows(), []
        for row in table:
            colour = {"pass": Theme.OK, "FAIL": Theme.WRONG}.get(row.status)
            style = f"color:{colour.ink}" if colour else "opacity:0.7"
            rows.append(
                f'<tr><td style="{style};font-weight:bold">{row.status}</td>'
                f'<td style="text-align:left">{html.escape(row.text)}</td>'
                f'<td style="text-align:left">{html.escape(row.cost)}</td></tr>'
            )
            if row.verdict:
                rows.append(f'<tr><td></td><td colspan="2">{_verdict_html(row.verdict)}</td></tr>')
        body = _verdict_html(self.verdict) if self.verdict else ""
        if rows:
            head = heads("result", "case", "cost" if any(row.cost for row in table) else "")
            style = f"margin:0.3em 0;{_CODE}"
            body += f'<table style="{style}">{head}{"".join(rows)}</table>'
        body += "".join(_shown(row) for row in table)
        notes = [f"{self._least()}."] if self._has_costs else []
        for note in [*notes, *self.notes]:
            body += f'<div style="opacity:0.8">{html.escape(note)}</div>'
        body += self.cheer.html() if self.cheer else ""
        return card(Theme.OK if self.ok else Theme.WRONG, self.headline(), body)


def _fault(case: CaseResult, cases: int = 1) -> str:
    """Return the words for what is wrong with as many cases; "" if nothing is."""
    if not case.verdict:
        return ""
    kind = case.verdict.kind
    words = KIND_WORDS[kind]
    if kind == "race":
        words = _SAME_RACE if SAME_VALUE in case.verdict.message else _RACE
    if kind == "loads" and NEVER_LOADED in case.verdict.message:
        words = "an input that is never loaded"
    return words.replace("does not", "do not") if cases > 1 else words


def _numbered(cases: Sequence[CaseResult]) -> str:
    """Return ``"cases 2, 3, 5 and 8"``, or ``"4 cases"`` if one is a random case, which has no number."""
    known = [case.number for case in cases if case.number is not None]
    if len(known) < len(cases):
        return _counted(len(cases), "{}")
    if len(known) > 2 and known == list(range(known[0], known[-1] + 1)):
        return f"cases {known[0]} to {known[-1]}"
    *most, last = map(str, known)
    return f"cases {', '.join(most)} and {last}" if most else f"case {last}"


def _with(cases: str, fault: str) -> str:
    return f"{cases}: {fault}" if fault else cases


def _counted(number: int, words: str) -> str:
    return f"{words.format(number)} case{'s' if number > 1 else ''}"


def _verdict_html(verdict: Verdict) -> str:
    text = f"<div>{marked(_cut(verdict.message))}</div>"
    if verdict.diagnosis:
        text += f"<div><em>{marked(_cut(verdict.diagnosis))}</em></div>"
    if verdict.site and verdict.site.source:
        style = f"margin:0.2em 0;background:none;{_CODE}"
        text += f"<pre style='{style}'>{html.escape(_cut(str(verdict.site)))}</pre>"
    return f'<div style="text-align:left">{text}</div>'


def _shown(row: Row) -> str:
    """Return the map of what is wrong, folded, and the call that lets you watch it."""
    text = ""
    if row.draw and (made := _made(row.draw)):
        title, picture = made
        summary = f'<summary style="cursor:pointer">{html.escape(title)}</summary>'
        text = f'<details style="margin:0.3em 0">{summary}{picture}</details>'
    if row.watch:
        call = f"<pre style='margin:0;{_CODE}'>{html.escape(row.watch)}</pre>"
        text += f'<div style="margin:0.3em 0">{row.invites}{call}</div>'
    return text


def _made(draw: Draw) -> tuple[str, str] | None:
    """Return the picture; None if drawing fails, because the report must be shown anyway."""
    try:
        title, picture = draw()
    except Exception:
        return None
    return (title, picture) if picture else None


def _told(case: CaseResult) -> dict[str, Any]:
    told = dataclasses.asdict(dataclasses.replace(case, draw=None)) | {"status": case.status}
    del told["draw"]
    return told


def _cut(line: str) -> str:
    """Return a line, shortened if it is too long."""
    return line if len(line) <= MOST_CHARACTERS else f"{line[: MOST_CHARACTERS - 1]}…"


def _known(kind: type, told: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that are fields of a dataclass."""
    return {f.name: told[f.name] for f in dataclasses.fields(kind) if f.name in told}


def _verdict(told: Mapping[str, Any] | None) -> Verdict | None:
    if told is None:
        return None
    site = Site(**_known(Site, told["site"])) if told["site"] else None
    kind = {"uninitialised": "uninitialized"}.get(told["kind"], told["kind"])  # as 0.3 wrote it
    return Verdict(**(_known(Verdict, told) | {"kind": kind, "site": site}))


def _size(count: int) -> str:
    """Return a number of bytes with a suitable unit."""
    if count < 1e3:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"
