"""``pytest --audit``: a project's own GPU tests, run on the CPU with every Triton launch under guard.

Off unless asked for. A finding fails the test. Launches that could not be judged are counted at the end: they
are never silently ok.

It is not in `puzzles_lib.auditor`, which imports torch: pytest imports each plugin that is installed.
"""

import contextlib
import signal
from collections.abc import Generator
from types import TracebackType
from typing import Any

import pytest

_REPORTS = pytest.StashKey[list[Any]]()
_STACK = pytest.StashKey[contextlib.ExitStack]()
_SIGNALS = pytest.StashKey[Any]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("audit", "Triton kernels (puzzles_lib)")
    group.addoption(
        "--audit",
        action="store_true",
        help="run Triton kernels on the CPU under guard, as if there were a GPU; a finding fails the test",
    )
    group.addoption("--audit-seconds", type=float, default=2.0, help="CPU time of one launch (default 2)")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    if early_config.known_args_namespace.audit:
        _pretend(early_config)


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--audit") and _STACK not in config.stash:
        _pretend(config)


def _pretend(config: pytest.Config) -> None:
    """Pretend a GPU until pytest ends. Conftests and test modules ask for one while they are imported."""
    from puzzles_lib.auditor.cuda import pretended  # torch and Triton take seconds to import

    stack = contextlib.ExitStack()
    stack.enter_context(pretended())
    config.stash[_STACK] = stack
    config.stash[_REPORTS] = []


def pytest_unconfigure(config: pytest.Config) -> None:
    if _STACK in config.stash:
        config.stash[_STACK].close()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Let a time limit's signal raise in a test, its setup and its teardown, and not in pytest itself."""
    if _REPORTS not in item.config.stash:
        return (yield)
    from puzzles_lib.auditor.held import held

    with held((signal.SIGALRM,)) as signals:
        item.stash[_SIGNALS] = signals
        try:
            return (yield)
        finally:
            signals.drop()  # the test has ended


def _released(item: pytest.Item) -> Generator[None, Any, Any]:
    signals = item.stash.get(_SIGNALS, None)
    with signals.released() if signals else contextlib.nullcontext():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _released(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, Any, Any]:
    if signals := item.stash.get(_SIGNALS, None):
        signals.drop()  # came after the test, whose fixtures must be torn down
    return (yield from _released(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    if _REPORTS not in item.config.stash:
        return (yield)
    signals = item.stash.get(_SIGNALS, None)
    with signals.released() if signals else contextlib.nullcontext():
        return (yield from _audited(item))


def _audited(item: pytest.Item) -> Generator[None, Any, Any]:
    from puzzles_lib.auditor import Guard
    from puzzles_lib.auditor.session import audited

    guard = Guard(seconds=item.config.getoption("--audit-seconds"))
    reports = item.config.stash[_REPORTS]
    with audited(guard=guard, title=item.name) as report:
        reports.append(report)
        try:
            result = yield
        except pytest.skip.Exception:
            reports.pop()
            raise
        except BaseException as error:
            if report.findings:
                item.add_report_section("call", "audit", str(report))
            elif report.unjudged and isinstance(error, Exception | pytest.fail.Exception):
                pytest.skip(f"audit: {report.unjudged[0]}")  # results are missing: the test says nothing
            raise
    if report.findings:
        pytest.fail(str(report), pytrace=False)
    return result


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, Any, Any]:
    if call.excinfo is not None and _REPORTS in item.config.stash:
        _give_lines(call.excinfo.value)
        call.excinfo = pytest.ExceptionInfo.from_exception(call.excinfo.value)
    return (yield)


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


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    if _REPORTS not in config.stash:
        return
    reports = config.stash[_REPORTS]
    launches = [launch for report in reports for launch in report.launches]
    count = {
        status: sum(each.status == status for each in launches) for status in ("ok", "FINDING", "unjudged")
    }
    count["unjudged"] += sum(len(report.unsupported) for report in reports)
    terminalreporter.section("audit")
    terminalreporter.line(
        f"{_counted(len(launches), 'launch', 'es')} in {_counted(len(reports), 'test', 's')}: "
        f"{count['ok']} clean, {count['FINDING']} with a "
        f"finding, {count['unjudged']} not judged or not wholly"
    )
    if without := sum(not (report.launches or report.unsupported) for report in reports):
        terminalreporter.line(f"{_counted(without, 'test', 's')} launched no Triton kernel")
    for reason in dict.fromkeys(text for report in reports for text in report.unjudged):
        terminalreporter.line(f"not judged: {reason}")


def _counted(number: int, noun: str, ending: str) -> str:
    return f"{number} {noun}{ending if number != 1 else ''}"
