"""A time limit's handler may raise in the user's code and between runs, and leaves no audit half done."""

import signal
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from puzzles_lib import Guard, audit, audited, auditor
from puzzles_lib.auditor import running
from puzzles_lib.auditor.held import held
from tests.audited_suite import audited_suite

ROOT = Path(__file__).parent.parent
OURS = str(Path(auditor.__file__).parent)


class Late(Exception):
    """What a time limit of the user's raises."""


@pytest.fixture
def times_out():
    def late(number, frame):
        raise Late("the time is up")

    before = signal.signal(signal.SIGUSR1, late)
    yield late
    signal.signal(signal.SIGUSR1, before)


def send():
    signal.raise_signal(signal.SIGUSR1)


@triton.jit
def copy_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i, mask=i < n), mask=i < n)


def copied(x):
    z = torch.empty_like(x)
    copy_kernel[(3,)](x, z, len(x), BLOCK=32)
    return z


def test_a_signal_waits_for_the_end_of_a_block(times_out):
    done = []
    with pytest.raises(Late), held():
        send()
        done.append("the block")
    assert done and signal.getsignal(signal.SIGUSR1) is times_out


def test_a_signal_that_waits_is_delivered_where_it_may_raise(times_out):
    done = []
    with pytest.raises(Late) as caught, held() as signals:
        signals.deliver()
        send()
        done.append("before")
        signals.deliver()
        done.append("after")
    assert done == ["before"] and signals.raised is caught.value
    with held() as signals, signals.released(), pytest.raises(Late):
        send()


def test_a_handler_that_the_code_sets_in_between_is_kept(times_out):
    came = []
    with held() as signals:
        with signals.released():
            signal.signal(signal.SIGUSR1, lambda number, frame: came.append(number))
        send()
        assert not came
    send()
    assert came == 2 * [signal.SIGUSR1]


def test_signals_that_are_dropped_do_not_raise(times_out):
    with held() as signals:
        send()
        signals.drop()
    with pytest.raises(Late):
        send()


def test_other_threads_hold_nothing(times_out):
    def work():
        with held():
            found.append(signal.getsignal(signal.SIGUSR1))

    found: list = []
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [times_out]


@pytest.mark.parametrize("guard", [Guard(), Guard(races=False)])
def test_what_a_handler_raises_during_a_launch_passes(monkeypatch, times_out, guard):
    translated, stored = running.Runner._translated, []

    def late(self, launch, outcome):
        send()
        return translated(self, launch, outcome)

    monkeypatch.setattr(running.Runner, "_translated", late)
    z = torch.zeros(90)
    with pytest.raises(Late, match="the time is up"), audited(guard=guard) as report:
        copy_kernel[(3,)](torch.ones(90), z, 90, BLOCK=32)
        stored.append(z)
    assert not stored and not report.unjudged and not report.launches
    with pytest.raises(Late):
        audit(copied, torch.ones(90))


def state():
    with pytest.raises(AssertionError):
        torch.ones(1).cuda()  # no GPU is pretended
    return {
        "run": (JITFunction.run, Autotuner.run, JITFunction.warmup, triton.testing.do_bench),
        "torch": (
            torch.compile,
            torch.Generator,
            torch.cuda.is_available,
            torch.cuda.Stream,
            torch.version.cuda,
        ),
        "modes": (torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack()),
        "driver": triton.runtime.driver._active,
        "handler": signal.getsignal(signal.SIGUSR1),
    }


def work():
    with audited(device="cuda"):
        pass


def at_lines(at_line):
    """Call a function at each line of the auditor's that `work` reaches."""

    def trace(frame, event, _):
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line":
            at_line((frame.f_code.co_filename, frame.f_lineno))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)


def test_nothing_is_left_half_done_at_any_line(times_out):
    work()
    counted: Counter = Counter()
    at_lines(lambda place: counted.update([place]))
    before = state()
    raised = 0
    for place, count in counted.items():
        for nth in {1, count}:
            reached: Counter = Counter()

            def interrupt(here, place=place, nth=nth, reached=reached):
                reached.update([here])
                if here == place and reached[here] == nth:
                    send()

            try:
                at_lines(interrupt)
            except Late:
                raised += 1
            assert state() == before, place
    assert raised > 50


CONFTEST = """
import signal

import pytest


def late(number, frame):
    raise RuntimeError("the time is up")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    signal.signal(signal.SIGALRM, late)
    try:
        return (yield)
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)


def pytest_runtest_logreport(report):
    after = {"setup": "before_the_test", "call": "before_the_teardown", "teardown": "at_the_end"}
    if report.nodeid.endswith(after[report.when]):
        signal.raise_signal(signal.SIGALRM)
"""
SUITE = """
import signal

import pytest
import torch
import triton
import triton.language as tl


@triton.jit
def double_kernel(X, Z, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(Z + i, 2 * tl.load(X + i, mask=i < n), mask=i < n)


def test_before_the_test():  # when its setup has been reported
    pass


def test_before_the_teardown():
    pass


def test_at_the_end():
    pass


def late():
    signal.raise_signal(signal.SIGALRM)


def without_lines():
    signal.raise_signal(signal.SIGALRM)


def test_where_there_is_no_line():
    code, no_line = without_lines.__code__, 0b1_1111_000  # an entry of a table of lines, for one instruction
    without_lines.__code__ = code.replace(co_linetable=bytes([no_line]) * (len(code.co_code) // 2))
    try:
        without_lines()
    except RuntimeError as error:
        assert error.__traceback__.tb_next.tb_lineno is None
        raise


def test_late_and_too_large(monkeypatch):
    from puzzles_lib.auditor import running

    x = torch.ones(20, device="cuda")
    monkeypatch.setattr(running, "MOST_BYTES", 16)
    double_kernel[(1,)](x, torch.empty_like(x), 20, BLOCK=32)
    late()


def test_after_all_that():
    x = torch.ones(20, device="cuda")
    z = torch.empty_like(x)
    double_kernel[(1,)](x, z, 20, BLOCK=32)
    assert (z == 2).all()
"""


def test_a_time_limit_never_ends_the_suite(tmp_path):
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_late.py").write_text(SUITE)
    done = audited_suite(tmp_path)
    assert "INTERNALERROR" not in done.stdout, done.stdout
    assert "3 failed, 3 passed" in done.stdout, done.stdout + done.stderr
    assert "2 launches in 5 tests: 1 clean" in done.stdout
