"""The report of an audit: as text, as HTML in the notebook's colors, as a dictionary, and as SARIF."""

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from puzzles_lib.auditor.launch import Launch, Place
from puzzles_lib.auditor.running import Outcome
from puzzles_lib.checker.report import KIND_WORDS, Verdict
from puzzles_lib.drawing.card import Theme, card, marked

MOST_LINES = 24


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong.

    verdict: what is wrong, in which line of the kernel, and why if that is known. With ``Guard(strict=True)``
        its kind may also be ``"imprecise"``, ``"wasteful"`` or ``"repeated draws"``.
    launch: the launch's place in `AuditReport.launches`, from 0; None for a result of the call as a whole.
    kernel: the kernel's name. file: the kernel's file. place: where the user's code launches the kernel.
    on: the inputs, such as ``"a row of zeros in x"``; ``""`` for the call's own inputs.
    """

    verdict: Verdict
    launch: int | None = None
    kernel: str = ""
    place: Place | None = None
    file: str = ""
    on: str = ""

    def repeats(self, other: "Finding") -> bool:
        """Return whether another finding is the same fault in the same line of another launch."""
        one, two = self.verdict, other.verdict
        return one.site is not None and (self.file, one.kind, one.site) == (other.file, two.kind, two.site)

    def lines(self) -> list[str]:
        """Return the finding as text."""
        who = f"{self.kernel}: " if self.kernel else ""
        on = f"with {self.on}: " if self.on else ""
        lines = [f"{KIND_WORDS.get(self.verdict.kind, self.verdict.kind)}: {on}{who}{_bare(self.verdict)}"]
        if self.verdict.diagnosis:
            lines.append(self.verdict.diagnosis)
        if self.verdict.site and self.verdict.site.source:
            lines.append(f"{_at(self.file, self.verdict.site.line)}: {self.verdict.site.source}")
        if self.place is not None:
            lines.append(f"launched at {told_place(self.place)}")
            if self.place.caller is not None:
                lines.append(f"called at {told_place(self.place.caller)}")
        return lines


_NUMBER = re.compile(r"\d[\d,.]*")


def grouped(texts: Iterable[str]) -> list[str]:
    """Return each text once. Of those that differ in numbers alone, return the first, and count the rest."""
    groups: dict[str, list[str]] = {}
    for text in dict.fromkeys(texts):
        groups.setdefault(_NUMBER.sub("0", text), []).append(text)
    return [f"{one} (and {len(rest)} more like this)" if rest else one for one, *rest in groups.values()]


def _bare(verdict: Verdict) -> str:
    """The message without the kind that it may begin with."""
    kind = KIND_WORDS.get(verdict.kind, verdict.kind)
    return verdict.message.removeprefix(f"{kind}: ")


def _at(file: str, line: int) -> str:
    """Return ``norm.py:8``; in a notebook, where a file's name is made up, ``line 8 of its cell``."""
    if Path(file).parent.name.startswith("ipykernel_") or file.startswith("<ipython-input"):
        return f"line {line} of its cell"
    return f"{_short(file)}:{line}" if file else f"line {line}"


def told_place(place: Place) -> str:
    """Return a place as text: ``norm.py:8: x = tl.load(X)``."""
    return f"{_at(place.file, place.line)}: {place.source}"


def _short(file: str) -> str:
    path = Path(file)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name


@dataclass(frozen=True, repr=False)
class LaunchResult:
    """One launch of the audited code.

    launch: the kernel with its arguments, grid and options. status: ``"ok"``, ``"FINDING"`` or
    ``"unjudged"``. why: why the launch wasn't judged, or only in part; ``""`` if it was.
    """

    outcome: Outcome

    def __repr__(self) -> str:
        return f"<{self.launch}: {self.status}>"

    @property
    def launch(self) -> Launch:
        """The kernel with its arguments, its grid and its options."""
        return self.outcome.launch

    @property
    def status(self) -> str:
        """``"ok"``, ``"FINDING"`` or ``"unjudged"``."""
        if self.outcome.verdict:
            return "FINDING"
        return "unjudged" if self.outcome.unjudged else "ok"

    @property
    def why(self) -> str:
        """Why the launch was not judged, or only in part; "" if it was."""
        return self.outcome.unjudged

    def watch(self, program: int | tuple[int, ...] | None = None) -> Any:
        """Play the launch line by line, as `puzzles_lib.watch` does: from the tensors as they were before it.

        Raises ValueError if the tensors were too large to be kept.
        """
        from puzzles_lib.auditor.showing import watched

        return watched(self.outcome, program)

    def trace(self) -> Any:
        """Draw which program touches which elements of each tensor."""
        from puzzles_lib.auditor.showing import traced

        return traced(self.outcome)

    def stages(self, target: str = "sm_90") -> Any:
        """Show what the compiler makes of the launch, as `puzzles_lib.stages` does."""
        from puzzles_lib.auditor.showing import staged

        return staged(self.outcome, target)

    def as_dict(self) -> dict[str, Any]:
        """Return the result as JSON types."""
        launch = self.launch
        return {
            "kernel": launch.name,
            "grid": list(launch.full_grid[: launch.axes]),
            "configuration": launch.configuration,
            "status": self.status,
            "why": self.why,
            "programs": self.outcome.programs,
            "of": self.outcome.of,
            "bytes_moved": self.outcome.bytes_moved,
            "notes": list(self.outcome.notes),
            "file": launch.place.file if launch.place else "",
            "line": launch.place.line if launch.place else 0,
        }


@dataclass
class AuditReport:
    """The result of an audit: what was launched, and what is wrong. ``print(report)`` shows it.

    ok: whether everything that was judged is correct.
    launches: the call's launches in order (`LaunchResult`), without those on hard inputs.
    findings: what is wrong, in order (`Finding`).
    unjudged: sentences that say what could not be judged, and why.
    notes: what else the report says.
    tried: the hard inputs and other sizes that were tried.
    unsupported: the kernels that could not be run at all, one per launch. These launches aren't in
        ``launches``.
    compared: whether all results were compared with the reference's.
    lacking: the places in ``launches`` of those that ran only in part, so that results may be missing.
    remarks: with ``Guard(strict=True)``, what is wasteful or imprecise. At the end of an audit, the remarks
        become findings of these two kinds.
    """

    title: str = "audit"
    launches: list[LaunchResult] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    unjudged: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    unsupported: list[str] = field(default_factory=list)
    compared: bool = False
    lacking: list[int] = field(default_factory=list)
    remarks: list[Finding] = field(default_factory=list)

    def be_strict(self) -> None:
        """Turn the remarks into findings, at the end of an audit."""
        for remark in self.remarks:
            outcome = self.launches[remark.launch].outcome if remark.launch is not None else None
            if outcome is not None and outcome.verdict is None:
                outcome.verdict = remark.verdict
            if not any(remark.repeats(earlier) for earlier in self.findings):
                self.findings.append(remark)
        self.remarks = []

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong with what was judged."""
        return not self.findings

    @property
    def lacks_results(self) -> bool:
        """Whether tensors may lack what a launch would store, because it did not run wholly."""
        return bool(self.unsupported or self.lacking)

    @property
    def is_sampled(self) -> bool:
        """Whether results are missing, but only of programs that did not run, and that use no atomics."""
        lacking = [self.launches[number].outcome for number in self.lacking]
        return bool(lacking) and not self.unsupported and all(o.is_sampled and not o.atomics for o in lacking)

    def headline(self) -> str:
        """Return the first line: how many findings there are, or how much is clean."""
        count = len(self.launches) + len(self.unsupported)
        launches = f"{count} launch" + "es" * (count != 1)
        if self.findings:
            found = len(self.findings)
            return f"{self.title}: {found} finding{'s' * (found != 1)} in {launches}"
        if not count:
            return f"{self.title}: no kernel was launched"
        whole = sum(each.status == "ok" for each in self.launches)
        judged = (
            f"{launches} clean" if whole == count else f"{whole} of {launches} clean, the rest not judged"
        )
        values = ", with the reference's values" if self.compared else ""
        return f"{self.title}: {judged}{values}{self._others()}"

    def _others(self) -> str:
        """Return how many other inputs are clean, of how many. Without one, return ""."""
        judged = [t for t in self.tried if not any(u.startswith(f"with {t}: ") for u in self.unjudged)]
        plural = "s" * (len(self.tried) != 1)
        if len(judged) == len(self.tried):
            return f", and {len(judged)} other input{plural}" if judged else ""
        return f", and {len(judged)} of {len(self.tried)} other input{plural}, the rest not judged"

    def _lines(self) -> Iterator[tuple[str, bool]]:
        """Yield the lines, each with whether a finding begins there."""
        for finding in self.findings:
            first, *others = finding.lines()
            yield first, True
            for line in others:
                yield f"    {line}", False
        for text in grouped(self.unjudged):
            yield f"not judged: {text}", False
        for text in grouped(self.notes):
            yield f"note: {text}", False

    def __repr__(self) -> str:
        lines = [self.headline(), *(f"  {line}" for line, _ in self._lines())]
        if len(lines) > MOST_LINES:
            left = len(lines) - MOST_LINES + 1
            lines = [
                *lines[: MOST_LINES - 1],
                f"  ({left} more lines; see report.findings, .unjudged and .notes)",
            ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        body = ""
        for finding in self.findings:
            first, *others = finding.lines()
            body += f"<div><strong>{marked(first)}</strong></div>"
            body += "".join(f"<div style='margin-left:1.5em'>{marked(line)}</div>" for line in others)
        for label, texts in (("not judged", self.unjudged), ("note", self.notes)):
            for text in grouped(texts):
                body += f'<div style="opacity:0.8">{label}: {html.escape(text)}</div>'
        return card(Theme.OK if self.ok else Theme.WRONG, self.headline(), body)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON types. The keys are the names of the fields."""
        return {
            "title": self.title,
            "ok": self.ok,
            "launches": [launch.as_dict() for launch in self.launches],
            "findings": [asdict(finding) for finding in self.findings],
            "unjudged": list(dict.fromkeys(self.unjudged)),
            "notes": list(dict.fromkeys(self.notes)),
            "unsupported": list(self.unsupported),
            "tried": list(self.tried),
        }

    def sarif(self) -> dict[str, Any]:
        """Return the findings as SARIF 2.1.0, which code hosts show beside the lines."""
        results = []
        for finding in self.findings:
            line = finding.verdict.site.line if finding.verdict.site else 0
            file, line = (finding.file, line) if line else _launched(finding)
            result: dict[str, Any] = {
                "ruleId": finding.verdict.kind,
                "level": "error",
                "message": {"text": "\n".join(finding.lines())},
            }
            if not file:  # a result as a whole is wrong: code hosts show nothing without a line
                places = [each.launch.place for each in self.launches if each.launch.place]
                file, line = (places[-1].file, places[-1].line) if places else ("", 0)
            if file:
                where = {"artifactLocation": {"uri": _uri(file)}, "region": {"startLine": max(line, 1)}}
                result["locations"] = [{"physicalLocation": where}]
            results.append(result)
        rules = [{"id": kind} for kind in dict.fromkeys(f.verdict.kind for f in self.findings)]
        driver = {"name": "puzzles_lib.auditor", "rules": rules}
        return {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [{"tool": {"driver": driver}, "results": results}],
        }


def _launched(finding: Finding) -> tuple[str, int]:
    return (finding.place.file, finding.place.line) if finding.place else ("", 0)


def _uri(file: str) -> str:
    path = Path(file)
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.as_posix()
