"""`race`: check, compile, bound and time one version of chapter 15's kernel.

Without a GPU, its time is a recorded one of the same machine code, and the box says so.
"""

import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from triton.runtime.jit import JITFunction

from puzzles_lib import excerpts, ledger, session
from puzzles_lib.chapters.ch15_racing_cublas.ladder import CUBLAS, RUNS, UNFUSED, Unsteady, measure
from puzzles_lib.chapters.ch15_racing_cublas.machine import (
    Bound,
    Evidence,
    bound,
    compile_rung,
    evidence,
    small_puzzle,
    waves,
    waves_text,
)
from puzzles_lib.chapters.ch15_racing_cublas.records import (
    Record,
    bound_of,
    find,
    ladder_records,
    nearest,
    sizes,
    unlike,
)
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS, Rung, outdated
from puzzles_lib.chapters.ch15_racing_cublas.rungs import RUNGS
from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.checker.verdicts import STILL_OPEN
from puzzles_lib.drawing.card import Theme, card
from puzzles_lib.drawing.colours import BLUE, GREEN, GREY, SKY, VERMILLION, YELLOW
from puzzles_lib.excerpts import Excerpt
from puzzles_lib.inspector import Stages
from puzzles_lib.inspector.sass import matrix_loop, overwritten_operands
from puzzles_lib.source import with_helpers
from puzzles_lib.stubs import attempt_text, has_hole
from puzzles_lib.timing.h200 import RESERVED, SHARED
from puzzles_lib.timing.recorded import about, clocks, rows


@dataclass(frozen=True, repr=False)
class Race:
    """The result of a race: a version's report, its evidence, and its times.

    report: what `check` reports on small inputs. compiled: for an H200 at K = 100864, None if the kernel is
    wrong. found: what decides its speed, None if no H200 can run it. times: rows of bench "ladder" or
    "grid"; none if there is no GPU and this version isn't recorded. source: where the times come from.
    record: the recorded version, None if the times were measured now. loaded: the recorded ``us`` and
    ``mhz`` of this version after a second of load at K = 100864, and ``baseline_us``; None if there is no
    such record. unsteady: whether equal runs on this machine's GPU gave different results.
    """

    rung: Rung
    report: Report
    compiled: Stages | None = None
    found: Evidence | None = None
    times: tuple[Mapping, ...] = ()
    source: tuple[str, ...] = ()
    record: Record | None = None
    loaded: Mapping | None = None
    unsteady: bool = False

    @property
    def ok(self) -> bool:
        """Whether the version is correct, compiles, is steady, and overwrites nothing that a wgmma reads."""
        return self.found is not None and not self.found.overwrites and not self.unsteady

    @property
    def is_open(self) -> bool:
        """Whether the version is an untouched exercise."""
        return self.report.verdict is not None and self.report.verdict.kind == "open"

    def heard(self) -> Report:
        """Return what `hint` refers to: the report, or a verdict on the machine code of a correct kernel."""
        if self.ok or not self.report.ok:
            return self.report
        first = self.lines()[0].removeprefix(f"{self.rung.name}: ")
        return replace(self.report, verdict=Verdict("machine", first))

    def bound(self, count: int = ROWS[0]) -> Bound | None:
        """Return the least time that the machine code allows at K = ``count``, or None if unknown."""
        return bound(self.rung.launch(), self.found, count) if self.found else None

    def lines(self) -> list[str]:
        """Return the race's result as lines of text."""
        name = self.rung.name
        if not self.report.ok:
            what = "not solved yet" if self.is_open else "wrong" if self.report.cases else "not run"
            open_helpers = [helper for helper in _open_helpers(self.rung) if self.is_open]
            return [
                f"{name}: {what}",
                *str(self.report).splitlines()[1:],
                *(
                    f"       the helper {helper} isn't solved yet: its cell is above"
                    for helper in open_helpers
                ),
                *(f"       {note}" for note in _other_tiles(self.rung)),
            ]
        if not self.compiled.ok:
            return [f"{name}: does not compile: {self.compiled.refusal}"]
        if self.found is None:
            needs = f"{self.compiled.registers} registers per thread and {self.compiled.shared_bytes} bytes"
            most = SHARED - RESERVED
            text = f"correct here, but no H200 can hold a program: {needs} of shared memory, {most} at most"
            return [f"{name}: {text}"]
        lines = [f"{name}: correct" + ("" if self.ok else " here, but UNSOUND on a GPU"), *self._code()]
        for group in self.groups():
            lines += group.lines()
        return [*lines, *self.source]

    def _code(self) -> list[str]:
        """Return what the machine code shows, as lines of text."""
        lines = [waves_text(self.rung, self.compiled), *self.found.lines(self.rung.constants["BLOCK_K"])]
        if overwritten := overwritten_operands(self.compiled.sass):
            words = "instructions overwrite what a wgmma may still read; the first is"
            lines += [f"{len(overwritten)} {words}", f"    {overwritten[0]}"]
        if (of_long := self.bound()) is not None:
            lines += of_long.lines(self.found.instructions, self.rung.options["num_warps"])
        return lines

    def groups(self) -> list["Times"]:
        """Return bound, forecast and times: at each K in a burst, and at the long K under load."""
        groups = []
        for count in ROWS:
            limits = self.bound(count)
            row = next((row for row in self.times if sizes(row)[0] == count), None)
            if row is None or row["bench"] == "repeats":
                note = f"{row['error']:.0%} of {RUNS} runs differed from the first" if row else ""
                if limits or note:
                    at = f" at {limits.clock / 1e9:.2f} GHz, the highest clock" if limits else ""
                    groups.append(Times(count, at, limits, note=note))
                continue
            at = " in a burst" + (f", at up to {limits.clock / 1e9:.2f} GHz" if limits else "")
            groups.append(Times(count, at, limits, row["us"], row["baseline_us"]))
            if self.loaded and count == ROWS[0]:
                at = f" after a second of load, at {self.loaded['mhz'] / 1e3:.2f} GHz"
                slow = limits.at(self.loaded["mhz"]) if limits else None
                us, baseline_us = self.loaded["us"], self.loaded["baseline_us"]
                groups.append(Times(count, at, slow, us, baseline_us, loaded=True))
            elif count == ROWS[0]:
                groups[-1] = replace(groups[-1], note="its time under load isn't known")
        return groups

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        theme = Theme.OPEN if self.is_open else Theme.OK if self.ok else Theme.WRONG
        if self.found is None or not self.groups():
            return _card(theme, self.lines())
        return card(theme, self.lines()[0], _pre(self._code()) + _drawn(self.groups()) + _pre(self.source))


@dataclass(frozen=True)
class Times:
    """What is known of a version's time at one K, in microseconds.

    count: K. how: in which run, as text. limits: at the clock of the run, None if no loop has matrix
    instructions. us, baseline_us: the version's time and the baseline's, None if unknown. note: a sentence on
    the times, or "". loaded: whether these are the times under load.
    """

    count: int
    how: str
    limits: Bound | None
    us: float | None = None
    baseline_us: float | None = None
    note: str = ""
    loaded: bool = False

    @property
    def head(self) -> str:
        return f"K = {self.count}{self.how}:"

    def lines(self) -> list[str]:
        """Return the times as lines of text."""
        told = [self.head]
        if self.limits:
            parts = f"iterations {self.limits.turns_us:.1f} + partial sums {self.limits.sums_us:.1f}"
            least = "" if self.loaded else f"bound {self.limits.least_us:.1f} µs; "
            told.append(f"    {least}forecast {self.limits.forecast_us:.1f} µs: {parts}")
        if self.us is not None:
            told.append(f"    {_against(self.us, self.baseline_us)}")
        return told + [f"    {self.note}"] * bool(self.note)

    def bars(self) -> list[tuple[str, tuple[tuple[float, str], ...], str]]:
        """Return bars: each is a name, its parts end to end (microseconds, color), and a comment."""
        bars = []
        if self.limits:
            parts = (self.limits.issue_us, self.limits.tensor_us, self.limits.sums_us)
            if not self.loaded:
                bars.append(("bound", ((self.limits.least_us, GREY),), ""))
            bars.append(("forecast", tuple(zip(parts, _PARTS.values(), strict=True)), ""))
        if self.us is not None:
            bars.append(("measured", ((self.us, BLUE),), f"{self.baseline_us / self.us:.2f}×"))
            bars.append((UNFUSED, ((self.baseline_us, VERMILLION),), "1.00×"))
        return bars


_PARTS = {"to issue": SKY, "tensor cores": GREEN, "partial sums": YELLOW}
"""The parts of a forecast, and their colors."""


def _against(us: float, baseline_us: float) -> str:
    """Return a time next to the baseline's, which is from the same run, as text."""
    return f"took {us:.1f} µs, {UNFUSED} {baseline_us:.1f} µs: {baseline_us / us:.2f} times as fast"


def _open_helpers(rung: Rung) -> list[str]:
    """Return the names of the kernel's helpers that are untouched exercises."""
    functions = with_helpers(rung.kernel) if isinstance(rung.kernel, JITFunction) else ()
    return [each.__name__ for each in functions if each is not rung.kernel and has_hole(each)]


def _other_tiles(rung: Rung) -> list[str]:
    """Return, for each descriptor whose tile isn't the launch's, what to change in a kernel that fails."""
    blocks = rung.constants
    wanted = {"words": (16, "BLOCK_N"), "dy": ("BLOCK_K", "BLOCK_M")}
    notes = []
    for name, names in wanted.items():
        tile = tuple(blocks.get(each, each) for each in names)
        if rung.descriptors.get(name, tile) != tile:
            is_now, should = (f"({rows}, {columns})" for rows, columns in (rung.descriptors[name], tile))
            notes.append(f"the descriptor of {name} loads {is_now}: with these tiles, make it {should}")
    return notes


def _drawn(groups: Sequence[Times]) -> str:
    """Return bars and notes as HTML. Bars of one K have one scale."""
    cells = []
    for group in groups:
        alike = [each for each in groups if each.count == group.count]
        most = max((sum(us for us, _ in parts) for each in alike for _, parts, _ in each.bars()), default=1.0)
        cells.append(f'<div style="grid-column:1/-1;margin-top:0.4em">{html.escape(group.head)}</div>')
        for name, parts, comment in group.bars():
            bar = "".join(
                f'<div style="height:0.8em;background:{colour};width:{100 * us / most:.1f}%"></div>'
                for us, colour in parts
            )
            cells += [
                f"<div>{html.escape(name)}</div>",
                f'<div style="text-align:right">{sum(us for us, _ in parts):.1f} µs</div>',
                f'<div style="text-align:right">{comment}</div>',
                f'<div style="display:flex">{bar}</div>',
            ]
        if group.note:
            cells.append(f'<div style="grid-column:1/-1">{html.escape(group.note)}</div>')
    style = "display:grid;grid-template-columns:auto auto auto 1fr;gap:0 0.8em;align-items:center"
    legend = ""
    if any(group.limits for group in groups):
        named = "&ensp;".join(
            f'<span style="display:inline-block;width:0.8em;height:0.8em;background:{colour}"></span> {name}'
            for name, colour in _PARTS.items()
        )
        legend = f'<div style="margin:0.2em 0">parts of a forecast: {named}</div>'
    return f'<div style="{style};max-width:44em">{"".join(cells)}</div>{legend}'


def _pre(lines: Sequence[str]) -> str:
    style = "margin:0.2em 0;font-family:var(--jp-code-font-family, monospace)"
    return f'<pre style="{style}">{html.escape(chr(10).join(lines))}</pre>'


def _card(theme: Theme, lines: Sequence[str]) -> str:
    first, *others = lines
    return card(theme, first, _pre(others))


_LATEST: dict[int, Race] = {}
"""What the last race of each version found, by the id of its `Rung`, which the race keeps alive."""


def figures(rung: Rung) -> dict[str, str]:
    """Return the figures of a version's box, by their names; none if it hasn't been raced successfully."""
    found = _LATEST.get(id(rung))
    if found is None or found.found is None or found.rung is not rung:
        return {}
    programs, slots = waves(rung, found.compiled)
    block_k = rung.constants["BLOCK_K"]
    told = {
        "programs": f"{programs} for {slots} slots",
        "registers per thread": f"{found.found.registers}",
        "x̂ reaches the tensor cores from": found.found.operand,
        "rows in flight across iterations": f"{found.found.in_flight} of {block_k}"
        if found.found.in_flight
        else "none",
        "bytes that threads exchange per 128 rows": f"{found.found.passed_on * 128 // block_k}",
    }
    if limits := found.bound():
        told["issuing, all iterations"] = f"{limits.issue_us:.1f} µs"
        told["tensor cores, all iterations"] = f"{limits.tensor_us:.1f} µs"
        told["forecast in a burst"] = f"{limits.forecast_us:.1f} µs"
    for row in found.times:
        if sizes(row)[0] == ROWS[0] and row["bench"] != "repeats":
            told["time in a burst"] = f"{row['us']:.1f} µs"
    return told


def race(rung: Rung) -> Race:
    """Check a version of chapter 15's kernel, compile it for an H200, and report how fast it is.

    rung: the version: a kernel and how it is launched. If you edit the kernel, make its `Rung` again: a rung
        whose kernel was edited later isn't run.

    What limits the version, memory or tensor cores, is computed from its machine code. If you have a Hopper
    GPU, the version is timed now, alternating with dequantize + cuBLAS, which takes about 2 s. Without a GPU,
    you see the time that was recorded for this kernel. If there is none, you see the most similar version
    that was recorded, and its time. On other GPUs, there is no time.

    `progress` records the versions that you complete, and `hint` uses what the race found.

    Raises TypeError if ``rung`` isn't a `Rung`.
    """
    __tracebackhide__ = True
    if not isinstance(rung, Rung):
        raise TypeError(f"race(rung): rung must be a Rung, not {type(rung).__name__}")
    found = _raced(rung)
    _LATEST[id(rung)] = found
    session.remember_race(rung.hint_key, found.heard())
    if isinstance(rung.kernel, JITFunction) and rung.kernel.__name__ in RUNGS:
        _, name = RUNGS[rung.kernel.__name__]
        kind = next((verdict.kind for verdict in found.heard().verdicts), "")
        ledger.record(name, found.ok, kind, attempt_text(rung.kernel))
    return found


def _raced(rung: Rung) -> Race:
    if rung.refusal:
        return Race(rung, Report(rung.name, verdict=Verdict("signature", rung.refusal)))
    if note := outdated(rung):
        return Race(rung, Report(rung.name, verdict=Verdict("signature", note)))
    if rung.splits is ...:
        open_parts = replace(STILL_OPEN, diagnosis="answer how many parts, in the cell above")
        return Race(rung, Report(rung.name, verdict=open_parts))
    report = examine(rung.kernel, small_puzzle(rung))
    if not report.ok:  # the puzzle has no name that a reader could give to `watch`
        cases = tuple(replace(case, watch="") for case in report.cases)
        return Race(rung, replace(report, cases=cases))
    compiled = compile_rung(rung)
    if not compiled.ok or not waves(rung, compiled)[1]:
        return Race(rung, report, compiled)
    found = evidence(rung, compiled)
    try:
        times, source, record = _times(rung, found)
    except Unsteady as error:
        return Race(rung, report, compiled, found, source=_not_timed(error), unsteady=True)
    return Race(rung, report, compiled, found, times, source, record, _loaded(record))


def _not_timed(error: Exception) -> tuple[str, ...]:
    return (f"not timed on this GPU: {' '.join(str(error).split()):.200}",)


def _times(rung: Rung, found: Evidence) -> tuple[tuple[Mapping, ...], tuple[str, ...], Record | None]:
    """Return rows for this version, where they come from, and the recorded version they belong to.

    Raises Unsteady if equal runs on this machine's GPU give different results.
    """
    import torch

    if torch.cuda.is_available():
        try:
            measured = tuple(row for row in measure([rung]) if row["path"] == rung.name)
        except Unsteady:
            raise
        except Exception as error:  # wrong on this GPU, or too large for it, or no Hopper
            return (), _not_timed(error), None
        return measured, (f"measured now on {torch.cuda.get_device_name()}",), None
    if (record := find(rung, found)) is None:
        return (), _no_times(rung), None
    return record.rows, tuple(_origin(rung, found, record)), record


def _loaded(record: Record | None) -> Mapping | None:
    """Return a recorded version's time and clock after a second of load, if it has them."""
    told = clocks()
    if record is None or record.name not in told:
        return None
    mine = told[record.name]
    return {**mine, "baseline_us": told[UNFUSED]["us"]}


def _origin(rung: Rung, found: Evidence, record: Record) -> list[str]:
    """Return whose times are shown, and how the binary that was timed differs from this one."""
    bench = record.rows[0]["bench"]
    lines = [about(bench)]
    if bench == "grid":
        lines.append("in another run than the rungs, so the baseline is slightly different, too")
    if record.name != rung.name:
        lines.append(f"this is the recorded version {record.name!r}")
    if different := record.evidence.unlike(found):
        lines.append("ANOTHER BINARY was timed (the same kernel, another compiler): it has")
        lines += [f"    {words}" for words in different]
    else:
        lines.append(f"exactly this machine code was timed ({found.code})")
    return lines


def _no_times(rung: Rung) -> tuple[str, ...]:
    near = nearest(rung)
    times = ", ".join(f"{row['us']:.1f} µs at K = {sizes(row)[0]}" for row in near.rows)
    how = unlike(rung, near)
    if not how:
        return (
            "no time: there is no GPU here, and this machine code isn't among the recorded launches",
            f"(the same launch of other code, {near.name!r}, took {times}:",
            "that says nothing about your change)",
        )
    return (
        "no time: there is no GPU here, and this machine code isn't among the recorded launches",
        f"the nearest recorded launch is {near.name!r},",
        f"with {how}: {times}",
    )


# ---- where a version stands

_FORECAST, _BURST, _LOAD = 2, 3, 4  # columns of `Standing.rows`
BEST = 3  # rows that are shown of a version that is unchanged


@dataclass(frozen=True, repr=False)
class Standing:
    """A version among the ladder's at the large K, ranked by the best figure that is known of it.

    That's the time under load, or else the time in a burst. A version without a time comes before the first
    one whose forecast is higher, if it's launched like the last rung. A forecast can't compare launches.

    rows: name, bound, forecast, recorded time and time under load in microseconds, None if unknown; the best
    is first. why_not: why the version doesn't take part; "" if it does. more: what `race` says about that,
    line by line. measured: whether its time comes from this machine's GPU. same: the ladder's version with
    the same machine code; "" if there is none. unranked: why the version has no rank, "" if it has one.
    """

    name: str
    rows: tuple[tuple[str, float, float, float | None, float | None], ...]
    why_not: str = ""
    more: tuple[str, ...] = ()
    measured: bool = False
    same: str = ""
    unranked: str = ""

    @property
    def column(self) -> int:
        """Return the place in ``rows`` of what the version is ranked by."""
        return _column(next((row for row in self.rows if row[0] == (self.same or self.name)), ()))

    @property
    def place(self) -> int | None:
        """Return the version's rank, 1 for the best (ties share a rank); None if it doesn't take part."""
        values = {row[0]: row[self.column] for row in self.rows}
        mine = values.get(self.name)
        if mine is None or self.same or self.unranked:
            return None
        if self.column == _FORECAST:
            return 1 + list(values).index(self.name)
        return 1 + sum(value < mine for value in values.values() if value is not None)

    def lines(self) -> list[str]:
        """Return the standing as lines of text."""
        if self.why_not:
            return [f"{self.name} doesn't take part: {self.why_not}", *self.more]
        head = f"{self.name}: correct, sound, no spills; "
        if self.same:
            lines = [f"{head}it is {self.same!r}, unchanged: edit the kernel or its launch"]
        elif self.unranked:
            lines = [f"{head}no rank", self.unranked]
        else:
            which = "measured" if self.measured else "recorded"
            by = {
                _LOAD: "by time under load",
                _BURST: f"by {which} time in a burst: its time under load isn't known",
            }.get(self.column, "by forecast: its time isn't known, and a better forecast can still be slower")
            lines = [f"{head}number {self.place} of {len(self.rows)} {by}"]
        wide = max(len(name) for name, *_ in self.rows)
        head = f"{'bound':>7}  {'forecast':>8}  {'recorded':>8}  {'under load':>10}"
        lines.append(f"{f'K = {ROWS[0]}, µs':<{wide}}  {head}")
        for name, least, forecast, *both in self.rows[:BEST] if self.same or self.unranked else self.rows:
            times = [f"{us:{size}.1f}" if us is not None else f"{'none':>{size}}"
                     for us, size in zip(both, (8, 10), strict=True)]  # fmt: skip
            here = "  measured now" if name == self.name and self.measured else ""
            lines.append(f"{name:<{wide}}  {least:7.1f}  {forecast:8.1f}  {'  '.join(times)}{here}")
        return lines

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def _repr_html_(self) -> str:
        return _card(Theme.OPEN if self.why_not else Theme.OK, self.lines())


def standing(found: Race) -> Standing:
    """Rank a version among the versions of the ladder. It must be correct and sound, and not spill."""
    name = found.rung.name
    if note := outdated(found.rung):
        return Standing(name, (), note)
    if not found.ok or found.bound() is None:
        first, *others = found.lines()
        return Standing(name, (), first.removeprefix(f"{name}: "), () if found.found else tuple(others))
    if found.found.spills:
        return Standing(name, (), f"it spills {found.found.spills} bytes per thread")
    entries = [
        _entry(record.name, bound_of(record), record.rows, _loaded(record)) for record in ladder_records()
    ]
    measured = bool(found.times) and found.record is None
    ladder = {entry[0] for entry in entries}
    same = found.record.name if found.record and found.record.name in ladder - {name} else ""
    if not same:
        entries = [entry for entry in entries if entry[0] != name]
        entries.append(_entry(name, found.bound(), found.times, found.loaded))
    column = _column(next(entry for entry in entries if entry[0] == (same or name)))
    if column == _FORECAST and unlike(found.rung, ladder_records()[-1]):
        others = sorted(entries[:-1], key=lambda entry: entry[_LOAD])
        return Standing(name, (*others[: BEST - 1], entries[-1]), unranked=_unranked(found.rung))
    if column == _FORECAST:  # recorded versions in the order of their times, and this one by its forecast
        *others, own = entries
        others.sort(key=lambda entry: entry[_BURST])
        place = next((n for n, entry in enumerate(others) if entry[_FORECAST] > own[_FORECAST]), len(others))
        entries = [*others[:place], own, *others[place:]]
    else:
        entries.sort(key=lambda entry: entry[column])
    return Standing(name, tuple(entries), measured=measured, same=same)


def _unranked(rung: Rung) -> str:
    """Return why a version without a time has no rank, if it's launched in another way than the last rung."""
    near = nearest(rung)
    us = next(row["us"] for row in near.rows if sizes(row)[0] == ROWS[0])
    return (
        "its time isn't known, and a forecast can't compare launches, because it leaves out waits;\n"
        f"the nearest recorded launch, {near.name!r}, took {us:.1f} µs"
    )


def _column(entry: Sequence) -> int:
    """Return which figure of an entry tells most: the last one that is known."""
    return next((column for column in (_LOAD, _BURST) if entry and entry[column] is not None), _FORECAST)


def _entry(
    name: str, limits: Bound, some: Sequence[Mapping], loaded: Mapping | None
) -> tuple[str, float, float, float | None, float | None]:
    us = next((row["us"] for row in some if sizes(row)[0] == ROWS[0]), None)
    return name, limits.least_us, limits.forecast_us, us, loaded["us"] if loaded else None


def instructions(rung: Rung) -> str:
    """Return how many instructions of each kind a warp issues in an iteration of a version, as text."""
    names = [name.partition(".")[0] for name, _ in matrix_loop(compile_rung(rung).sass)]
    most = Counter(names).most_common(MOST_KINDS)
    others = len(names) - sum(count for _, count in most)
    told = ", ".join(f"{count} {name}" for name, count in most)
    return f"{len(names)} instructions per warp and iteration:\n{told}, {others} others"


MOST_KINDS = 7  # of instructions, which `instructions` names


# ---- what else was recorded


def bounds() -> dict[str, Bound]:
    """Return the bounds of the ladder's recorded binaries, at the large K."""
    return {record.name: bound_of(record) for record in ladder_records()}


def under_load() -> str:
    """Return the recorded time, clock and power of each path that ran alone for a second, at the large K.

    ``burst`` is the recorded time of a few launches in a row, ``ratio`` the speed under load relative to
    dequantize + cuBLAS.
    """
    told = clocks()
    burst = {row["path"]: row["us"] for row in rows("ladder") if sizes(row)[0] == ROWS[0]}
    wide = max(len(name) for name in told)
    lines = [f"{f'K = {ROWS[0]}':<{wide}}  {'burst':>9}  {'loaded':>9}  ratio     clock  power"]
    lines += [
        f"{name.replace('x^', 'x̂'):<{wide + ('x^' in name)}}  {burst[name]:6.1f} µs  {each['us']:6.1f} µs  "
        f"{told[UNFUSED]['us'] / each['us']:4.2f}×  {each['mhz']:4.0f} MHz  {each['watts']:3.0f} W"
        for name, each in told.items()
    ]
    return "\n".join([*lines, about("ladder")])


def baselines() -> str:
    """Return the recorded times of the paths without fusion, as text."""
    found = [row for row in rows("ladder") if row["path"] in (UNFUSED, CUBLAS)]
    lines = [f"K = {sizes(row)[0]:6}: {row['us']:6.1f} µs  {row['path'].replace('x^', 'x̂')}" for row in found]
    return "\n".join([*lines, about("ladder")])


def product() -> str:
    """Return the recorded times of the library's kernel and of its baselines, all from one run."""
    wanted = [f"2 bits, {count}x{COUT}x{CIN}" for count in ROWS]
    paths = (UNFUSED, CUBLAS, "dequant_gemm_dw")
    some = [row for row in rows("dw") if row["case"] in wanted and row["path"] in paths]
    lines = [
        f"K = {sizes(row)[0]:6}: {row['us']:6.1f} µs  {row['ratio']:4.2f}×  {row['path'].replace('x^', 'x̂')}"
        for row in some
    ]
    return "\n".join([*lines, f"×: relative to {UNFUSED} in this run", about("dw")])


def excerpt(first: str, last: str) -> Excerpt:
    """Return lines of the library's Gluon kernel, as `puzzles_lib.excerpts.excerpt` does."""
    return excerpts.excerpt("kernels/dequant_gemm_hopper.py", first, last)
