"""What `check` found, as a few lines of text and as HTML in the notebook's own colours."""

import html
from dataclasses import dataclass, field

from puzzles_lib.card import Theme, card
from puzzles_lib.source import Site

MOST_LINES = 12


KINDS = (
    "open", "signature", "compiler", "error", "time limit", "memory limit", "out of bounds", "uninitialised",
    "never written", "race", "input changed", "values", "loads",
    "true size",
)  # fmt: skip
"""What a `Verdict` can be of."""


@dataclass(frozen=True)
class Verdict:
    """One thing that is wrong: what, where, and where it helps, why. kind: one of `KINDS`."""

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


@dataclass(frozen=True)
class CaseResult:
    """How one case went. ``verdict`` is None for a pass; ``ran`` is False where it was not tried."""

    label: str
    verdict: Verdict | None = None
    ran: bool = True
    programs: int = 0
    bytes_moved: int = 0
    bytes_least: int = 0

    @property
    def ok(self) -> bool:
        return self.ran and self.verdict is None

    @property
    def status(self) -> str:
        return "pass" if self.ok else "FAIL" if self.ran else "skip"

    def cost(self) -> str:
        """What a pass cost: programs, and bytes moved against the least possible."""
        programs = "1 program" if self.programs == 1 else f"{self.programs} programs"
        if not self.bytes_least:
            return f"{programs} at the edges of the grid"
        ratio = self.bytes_moved / self.bytes_least
        return f"{programs}, {_size(self.bytes_moved)} moved ({ratio:.2f}x)"


@dataclass(frozen=True)
class Report:
    """The answer to one check: ``ok``, the verdict on the kernel as a whole if any, and the cases."""

    title: str
    cases: tuple[CaseResult, ...] = ()
    verdict: Verdict | None = None
    notes: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        return self.verdict is None and bool(self.cases) and all(c.ok for c in self.cases)

    @property
    def verdicts(self) -> tuple[Verdict, ...]:
        """All verdicts, the one on the kernel first."""
        found = [self.verdict] if self.verdict else []
        return tuple(found + [c.verdict for c in self.cases if c.verdict])

    def headline(self) -> str:
        passed = sum(c.ok for c in self.cases)
        if self.verdict:
            return f"{self.title}: not run"
        if self.ok:
            return f"{self.title}: all {passed} cases pass"
        return f"{self.title}: {passed} of {len(self.cases)} cases pass"

    def __repr__(self) -> str:
        lines = [self.headline()]
        if self.verdict:
            lines += ["       " + line for line in self.verdict.lines()]
        width = max((len(c.label) for c in self.cases), default=0)
        told = False
        for case in self.cases:
            cost = f"{case.label:<{width}}   {case.cost()}" if case.ok and self.ok else case.label
            lines.append(f"{case.status}   {cost}")
            if case.verdict and not told:
                lines += ["       " + line for line in case.verdict.lines()]
                told = True
        if self.ok:
            lines.append("(1.00x is the least possible: each input read once, each output written once)")
        lines += self.notes
        return "\n".join(lines[:MOST_LINES])

    def _repr_html_(self) -> str:
        rows = []
        told = self.verdict is not None
        for case in self.cases:
            colour = {"pass": Theme.OK, "FAIL": Theme.WRONG}.get(case.status)
            style = f"color:{colour}" if colour else "opacity:0.7"
            cost = html.escape(case.cost()) if case.ok and self.ok else ""
            rows.append(
                f'<tr><td style="{style};font-weight:bold">{case.status}</td>'
                f'<td style="text-align:left">{html.escape(case.label)}</td>'
                f'<td style="text-align:left">{cost}</td></tr>'
            )
            if case.verdict and not told:
                rows.append(f'<tr><td></td><td colspan="2">{_verdict_html(case.verdict)}</td></tr>')
                told = True
        body = _verdict_html(self.verdict) if self.verdict else ""
        if rows:
            style = "margin:0.3em 0;font-family:var(--jp-code-font-family, monospace)"
            body += f'<table style="{style}">{"".join(rows)}</table>'
        notes = [*self.notes]
        if self.ok:
            notes.insert(0, "1.00x is the least possible: each input read once, each output written once.")
        body += "".join(f'<div style="opacity:0.8">{html.escape(n)}</div>' for n in notes)
        return card(Theme.OK if self.ok else Theme.WRONG, self.headline(), body)


def _verdict_html(verdict: Verdict) -> str:
    text = f"<div>{html.escape(verdict.message)}</div>"
    if verdict.diagnosis:
        text += f"<div><em>{html.escape(verdict.diagnosis)}</em></div>"
    if verdict.site and verdict.site.source:
        text += f"<pre style='margin:0.2em 0'>{html.escape(str(verdict.site))}</pre>"
    return f'<div style="text-align:left">{text}</div>'


def _size(count: int) -> str:
    """A number of bytes in a unit that suits it."""
    if count < 1e3:
        return f"{count} B"
    return f"{count / 1e3:.1f} kB" if count < 1e6 else f"{count / 1e6:.1f} MB"
