"""``pytest --audit``: run a project's own GPU tests on the CPU, and check every launch of a Triton kernel.

The plugin is off unless asked for. A finding fails the test. Launches that could not be judged are counted at
the end: they are never silently ok.

It is not in `puzzles_lib.auditor`, which imports torch: pytest imports each plugin that is installed.
"""

import argparse
import contextlib
import dataclasses
import signal
from collections.abc import Generator
from types import TracebackType
from typing import Any

import pytest

_COUNTS = pytest.StashKey["_Counts"]()
_STACK = pytest.StashKey[contextlib.ExitStack]()
_SIGNALS = pytest.StashKey[Any]()
_REPORT = pytest.StashKey[Any]()  # of a test's setup, call or teardown, until pytest reports it


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("audit", "Triton kernels (puzzles_lib)")
    group.addoption(
        "--audit",
        action="store_true",
        help="run and check Triton kernels on the CPU, as if there were a GPU; a finding fails the test",
    )
    group.addoption("--audit-seconds", type=_seconds, default=2.0, help="CPU time of one launch (default 2)")
    group.addoption(
        "--audit-strict", action="store_true", help="report wasteful or imprecise code as findings"
    )


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"it must be a number above 0, but is {text}")
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.audit:
        _pretend(early_config)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "audit(**switches): what pytest --audit looks for; see help(Guard)")
    if config.getoption("--audit") and _STACK not in config.stash:
        _pretend(config)


def _pretend(config: pytest.Config) -> None:
    """Pretend a GPU until pytest ends. Conftests and test modules ask for one while they are imported."""
    from puzzles_lib.auditor.cuda import pretended  # torch and Triton take seconds to import

    stack = contextlib.ExitStack()
    stack.enter_context(pretended(strictly=True))
    config.stash[_STACK] = stack
    config.stash[_COUNTS] = _Counts()
    config.pluginmanager.register(config.stash[_COUNTS])


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STACK in config.stash:
        config.stash[_STACK].close()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """Audit what a module launches while it is imported."""
    if _COUNTS not in collector.config.stash or not isinstance(collector, pytest.Module):
        return (yield)
    with _audits(collector, "import") as report:
        result = yield
    collector.config.stash[_COUNTS].add(collector.nodeid, _told(report, "import"))
    if report.findings and result.passed:
        result.outcome, result.longrepr, result.result = "failed", str(report), []
    return result


def _audits(node: pytest.Item | pytest.Collector, when: str) -> contextlib.AbstractContextManager:
    from puzzles_lib.auditor.session import audited

    title = node.name if when == "call" else f"{node.name}, {when}"
    return audited(guard=_guard(node, when), title=title)


_OF_CALLS = ("hard", "sizes", "contiguous", "unwritten")  # switches that need the function


def _guard(node: pytest.Item | pytest.Collector, when: str) -> Any:
    """Return what to look for in a test: the options say it, and its markers, of which the closest wins."""
    from puzzles_lib.auditor import Guard

    option, wrong = node.config.getoption, ""
    guard = Guard(seconds=option("--audit-seconds"), strict=option("--audit-strict"))
    for mark in reversed(list(node.iter_markers("audit"))):
        try:
            guard = dataclasses.replace(guard, **mark.kwargs)
        except (TypeError, ValueError) as error:
            wrong = str(error)
        if other := [name for name in mark.kwargs if name in _OF_CALLS]:
            wrong = f"{other[0]} needs audit(function, ...): call that in the test instead"
    if wrong and when == "setup":
        pytest.fail(f"pytest.mark.audit: {wrong}", pytrace=False)
    return guard


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a time limit's signal raise in a test, its setup and its teardown, and not in pytest itself."""
    if _COUNTS not in item.config.stash:
        return (yield)
    from puzzles_lib.auditor.held import held

    with held((signal.SIGALRM,)) as signals:
        item.stash[_SIGNALS] = signals
        try:
            return (yield)
        finally:
            signals.drop()  # the test has ended


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _audited(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _audited(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    if signals := item.stash.get(_SIGNALS, None):
        signals.drop()  # came after the test, whose fixtures must be torn down
    return (yield from _audited(item, "teardown"))


def _audited(item: pytest.Item, when: str) -> Generator[None, Any, Any]:
    """Audit what a test launches, or its fixtures do."""
    if _COUNTS not in item.config.stash:
        return (yield)
    signals = item.stash.get(_SIGNALS, None)
    with signals.released() if signals else contextlib.nullcontext(), _audits(item, when) as report:
        item.stash[_REPORT] = report
        try:
            result = yield
        except pytest.skip.Exception:
            del item.stash[_REPORT]
            raise
        except BaseException as error:
            if report.findings:
                item.add_report_section(when, "audit", str(report))
            elif report.lacks_results and when != "teardown" and _follows(error):
                pytest.skip(f"audit: {report.unjudged[0]}")  # results are missing: the test says nothing
            raise
    if report.findings:
        pytest.fail(str(report), pytrace=False)
    return result


def _follows(error: BaseException) -> bool:
    """Whether an error may follow from results that are missing. That of a time limit does not."""
    if not isinstance(error, Exception | pytest.fail.Exception):
        return False
    handler = getattr(signal.getsignal(signal.SIGALRM), "__code__", None)
    entry = error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code is handler:
            return False
        entry = entry.tb_next
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
    if _COUNTS not in item.config.stash:
        return (yield)
    if call.excinfo is not None:
        _give_lines(call.excinfo.value)
        call.excinfo = pytest.ExceptionInfo.from_exception(call.excinfo.value)
    result = yield
    if report := item.stash.get(_REPORT, None):
        result.audit = _told(report, call.when)
        del item.stash[_REPORT]
    return result


def _give_lines(error: BaseException | None) -> None:
    """Give a line to each entry of a traceback that has none, which pytest cannot show.

    Python has no line for the jump at the end of a loop, where a signal's handler may raise.
    """
    while error is not None:
        entries, entry = [], error.__traceback__
        while entry is not None:
            entries.append(entry)
            entry = entry.tb_next
        if any(entry.tb_lineno is None for entry in entries):
            made = None
            for entry in reversed(entries):
                made = TracebackType(made, entry.tb_frame, entry.tb_lasti, _line(entry))
            error.__traceback__ = made
        error = error.__cause__ or error.__context__


def _line(entry: TracebackType) -> int:
    """Return the line of a traceback's entry, or of the last instruction before it that has one."""
    if entry.tb_lineno is not None:
        return entry.tb_lineno
    code = entry.tb_frame.f_code
    before = [line for first, _, line in code.co_lines() if line is not None and first <= entry.tb_lasti]
    return before[-1] if before else code.co_firstlineno


def _told(report: Any, when: str) -> dict[str, Any]:
    """Return what is counted of a report. A worker of pytest-xdist sends it to the process that prints."""
    return {
        "when": when,
        "launches": len(report.launches) + len(report.unsupported),
        "clean": sum(each.status == "ok" for each in report.launches),
        "findings": sum(each.status == "FINDING" for each in report.launches),
        "unjudged": sum(bool(each.why) for each in report.launches) + len(report.unsupported),
        "why": report.unjudged,
    }


_COUNTED = ("launches", "clean", "findings", "unjudged")


class _Counts:
    """Counts launches by test, and prints how many were judged."""

    def __init__(self) -> None:
        self.tests: dict[str, list[dict[str, Any]]] = {}

    def add(self, test: str, told: dict[str, Any]) -> None:
        self.tests.setdefault(test, []).append(told)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if told := getattr(report, "audit", None):
            self.add(report.nodeid, told)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        every = [told for tests in self.tests.values() for told in tests]
        count = {each: sum(told[each] for told in every) for each in _COUNTED}
        tests = [each for each in self.tests.values() if any(told["when"] == "call" for told in each)]
        terminalreporter.section("audit")
        terminalreporter.line(
            f"{_counted(count['launches'], 'launch', 'es')} in {_counted(len(tests), 'test', 's')}: "
            f"{count['clean']} clean, {count['findings']} with a finding, "
            f"{count['unjudged']} not judged, or only in part"
        )
        without = sum(not any(told["launches"] for told in each) for each in tests)
        if without:
            terminalreporter.line(f"{_counted(without, 'test', 's')} launched no Triton kernel")
        from puzzles_lib.auditor.report import grouped

        for reason in grouped(text for told in every for text in told["why"]):
            terminalreporter.line(f"not judged: {reason}")


def _counted(number: int, noun: str, ending: str) -> str:
    return f"{number} {noun}{ending if number != 1 else ''}"
