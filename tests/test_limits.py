"""Limits on time and memory, and Ctrl-C: they strike where they should, and everything is put back."""

import io
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.runner import TimeLimitReached, limits, time_limit
from tests.conftest import REPO
from tests.kernel_lab import execute


def spin(seconds: float = 60.0) -> None:
    """Be busy. What ends this before its time, ended it; how soon is the machine's affair."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def spin_until(condition: Callable[[], bool]) -> None:
    """Be busy until it holds, a minute at most."""
    end = time.monotonic() + 60
    while not condition() and time.monotonic() < end:
        pass


def state() -> tuple:
    return (
        signal.getsignal(signal.SIGALRM),
        signal.getsignal(signal.SIGINT),
        signal.getitimer(signal.ITIMER_REAL),
        resource.getrlimit(resource.RLIMIT_AS),
    )


@pytest.fixture(autouse=True)
def everything_is_put_back():
    before = state()
    yield
    assert state() == before


@pytest.fixture
def elapsed():
    start = time.monotonic()
    return lambda: time.monotonic() - start


# ---- time, on the main thread


def test_the_time_limit_ends_a_loop(elapsed):
    with pytest.raises(TimeLimitReached), time_limit(0.2):
        spin()
    assert elapsed() >= 0.2


def test_a_block_that_is_fast_enough_is_left_alone():
    with time_limit(1):
        spin(0.01)
    spin(1.2)


def test_no_except_exception_swallows_it():
    def stubborn():
        while True:
            try:
                spin()
            except Exception:
                pass

    with pytest.raises(TimeLimitReached), time_limit(0.1):
        stubborn()


def test_lost_once_it_comes_again(elapsed):
    """An exception in a __del__ is printed and forgotten."""
    with pytest.raises(TimeLimitReached), time_limit(0.1):
        try:
            spin()
        except TimeLimitReached:
            spin()
    assert elapsed() > 0.5


def test_a_limit_that_python_ignores_is_not_printed(monkeypatch):
    """A time limit may strike in the callback of a weak reference, as torch has many."""
    printed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: printed.append(lost.exc_type))

    class Slow:
        def __init__(self, ends):
            self.ends = ends

        def __del__(self):
            self.ends()

    def divides():
        return 1 / 0

    with pytest.raises(TimeLimitReached), time_limit(0.1):
        Slow(spin)
        Slow(divides)
        spin()
    assert printed == [ZeroDivisionError]
    Slow(divides)
    assert len(printed) == 2


def test_only_the_function_named_is_interrupted(elapsed):
    def body():
        spin()

    with pytest.raises(TimeLimitReached), time_limit(0.1, inside=body):
        spin(0.3)  # not body: runs to its end
        assert elapsed() >= 0.3
        body()


def test_after_the_named_function_ends_nothing_strikes():
    def body():
        pass

    with time_limit(0.1, inside=body):
        body()
        spin(0.3)


def test_an_inner_limit_within_an_outer_one(elapsed):
    with pytest.raises(TimeLimitReached), time_limit(2):
        with pytest.raises(TimeLimitReached), time_limit(0.1):
            spin()
        assert elapsed() < 2
        spin()
    assert elapsed() >= 2


def test_anothers_alarm_still_rings(elapsed):
    """pytest-timeout lives by this."""
    rung = []

    def ring(signum, frame):
        rung.append(elapsed())

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 1.5, 70.0)
        with pytest.raises(TimeLimitReached), time_limit(0.1):
            spin()
        assert signal.getsignal(signal.SIGALRM) is ring
        left, interval = signal.getitimer(signal.ITIMER_REAL)
        assert 0 < left < 1.45 and interval == 70.0
        spin_until(lambda: rung)
        assert len(rung) == 1 and rung[0] >= 1.45
        signal.setitimer(signal.ITIMER_REAL, 0.05)  # due while an inner block runs: rings after it
        with time_limit(60):
            spin(0.2)
        spin_until(lambda: len(rung) > 1)
        assert len(rung) == 2
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_seconds_are_of_the_processor(elapsed):
    """So a busy machine makes no difference: what others use does not count, nor what is slept."""
    done = threading.Event()
    busy = threading.Thread(target=spin_until, args=(done.is_set,))
    busy.start()
    try:
        with time_limit(0.4):
            time.sleep(0.5)
    finally:
        done.set()
        busy.join()
    assert elapsed() >= 0.5


def test_what_sleeps_is_ended_by_the_clock(elapsed):
    with pytest.raises(limits.Asleep), time_limit(0.02):
        time.sleep(60)
    assert 0.02 * limits.CLOCK <= elapsed() < 30


@pytest.mark.parametrize("seconds", [10**10, float("inf")])
def test_a_limit_may_be_far_off(seconds):
    with time_limit(seconds):
        spin(0.01)
    assert on_a_thread(lambda: work_briefly(seconds)) is None


# ---- time, on other threads


def on_a_thread(work) -> object:
    """What the function returned or raised on a thread of its own."""
    result = []

    def body():
        try:
            result.append(work())
        except BaseException as error:
            result.append(error)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(120)
    assert result, "the thread is still running"
    return result[0]


def test_the_time_limit_ends_a_loop_on_another_thread(elapsed):
    def work():
        with time_limit(0.2):
            spin()

    assert isinstance(on_a_thread(work), TimeLimitReached) and elapsed() >= 0.2


def test_a_thread_that_is_fast_enough_is_left_alone():
    def work():
        with time_limit(1):
            spin(0.01)
        spin(1.2)
        return "done"

    assert on_a_thread(work) == "done"


def test_only_the_function_named_is_interrupted_on_a_thread():
    def body():
        spin()

    def work():
        with time_limit(0.1, inside=body):
            spin(0.3)
            body()

    assert isinstance(on_a_thread(work), TimeLimitReached)


def test_lost_once_it_comes_again_on_a_thread():
    def work():
        with time_limit(0.1):
            try:
                spin()
            except TimeLimitReached:
                spin()

    assert isinstance(on_a_thread(work), TimeLimitReached)


def test_a_limit_reached_as_the_block_ends_is_forgotten():
    """The exception may be on its way when the block is over."""

    def work():
        for _ in range(100):
            try:
                with time_limit(0.001):
                    spin(0.00099)
            except TimeLimitReached:
                pass
        spin(0.2)
        return "done"

    assert on_a_thread(work) == "done"


def test_no_watcher_stays_behind():
    threads = threading.active_count()
    for _ in range(20):
        on_a_thread(work_briefly)
    spin_until(lambda: threading.active_count() <= threads)
    assert threading.active_count() <= threads


def work_briefly(seconds: float = 100):
    with time_limit(seconds):
        pass


def test_seconds_are_of_the_processor_on_a_thread():
    def work():
        with time_limit(0.4):
            time.sleep(0.5)
            return "done"

    assert on_a_thread(work) == "done"


def test_what_sleeps_is_ended_by_the_clock_on_a_thread():
    def work():
        with time_limit(0.02):
            while True:  # an exception from another thread waits for the end of a sleep
                time.sleep(0.01)

    assert isinstance(on_a_thread(work), limits.Asleep)


# ---- memory


def test_the_memory_limit_refuses_what_is_too_much():
    with limits.memory_limit(200 << 20):
        np.zeros(50 << 20, np.uint8)
        with pytest.raises(MemoryError):
            np.zeros(50 << 30, np.uint8)
        with pytest.raises(MemoryError):
            bytearray(1 << 30)
    np.zeros(1 << 30, np.uint8)


def test_a_stricter_limit_that_is_set_already_stays():
    with limits.memory_limit(300 << 20), limits.memory_limit(100 << 30):
        with pytest.raises(MemoryError):
            np.zeros(1 << 30, np.uint8)


def test_the_memory_limit_is_lifted_after_an_error():
    with pytest.raises(ZeroDivisionError), limits.memory_limit(100 << 20):
        1 / 0  # noqa: B018
    np.zeros(1 << 30, np.uint8)


# ---- depth


def dive(depth: int = 0) -> int:
    try:
        return dive(depth + 1)
    except RecursionError:
        return depth


def test_the_recursion_limit_counts_from_here():
    before = sys.getrecursionlimit()
    with limits.recursion_limit(200):
        assert 150 < dive() < 250
        with limits.recursion_limit(10**6):  # a stricter one stays
            assert 150 < dive() < 250
    assert sys.getrecursionlimit() == before


# ---- Ctrl-C


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_waits_until_the_block_ends():
    steps = []
    with pytest.raises(KeyboardInterrupt), limits.interrupts_held(inside=spin):
        press_ctrl_c()
        steps.append("went on")
    assert steps == ["went on"]


def test_ctrl_c_strikes_in_the_function_named():
    def body():
        press_ctrl_c()
        spin()
        raise AssertionError("not reached")

    with pytest.raises(KeyboardInterrupt), limits.interrupts_held(inside=body):
        body()


def test_ctrl_c_on_another_thread_is_the_main_threads_business():
    def work():
        with limits.interrupts_held(inside=spin):
            return signal.getsignal(signal.SIGINT)

    assert on_a_thread(work) is signal.getsignal(signal.SIGINT)


def test_a_process_that_ignores_ctrl_c_goes_on_doing_so():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with limits.interrupts_held(inside=spin):
            press_ctrl_c()
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


# ---- in a run


@triton.jit
def prints(z_ptr):
    print("waiting")
    tl.store(z_ptr, 0.0)


class Full:
    def write(self, text):
        raise OSError(28, "No space left on device")


closed = io.StringIO()
closed.close()


@pytest.mark.parametrize("stdout", [None, closed, Full()], ids=["none", "closed", "full"])
def test_a_kernel_that_prints_runs_where_nobody_listens(monkeypatch, stdout):
    monkeypatch.setattr(sys, "stdout", stdout)
    done = execute(prints, z_ptr=torch.ones(1))
    assert done.stop is None and done.outputs["z"].item() == 0


def test_a_run_that_waits_is_told_so(monkeypatch):
    class Stuck:
        def write(self, text):
            time.sleep(60)

    monkeypatch.setattr(sys, "stdout", Stuck())
    done = execute(prints, z_ptr=torch.zeros(1), seconds=0.05)
    assert done.stop.message == "time limit: asleep for most of 0.5 s, in program (0, 0, 0)"


@triton.jit
def endless(x_ptr, z_ptr, LOADS: tl.constexpr):
    total = 0.0
    while total >= 0:
        if LOADS:
            total += 1 + tl.load(x_ptr)
        else:
            total += 1.0
    tl.store(z_ptr, total)


@triton.jit
def sound(x_ptr, z_ptr):
    tl.store(z_ptr + tl.arange(0, 4), tl.load(x_ptr + tl.arange(0, 4)) + tl.zeros((4,), tl.float32))


def run_endlessly(**options):
    loads = options.pop("LOADS", True)
    return execute(endless, x_ptr=torch.zeros(1), z_ptr=torch.zeros(1), LOADS=loads, **options)


def run_soundly() -> None:
    z = torch.zeros(4)
    done = execute(sound, x_ptr=torch.ones(4), z_ptr=z)
    assert done.stop is None and z.tolist() == [1] * 4


@pytest.mark.parametrize("loads", [True, False])
def test_a_run_ends_at_its_time_limit_and_names_the_line(loads, elapsed):
    done = run_endlessly(seconds=0.3, LOADS=loads)
    assert elapsed() >= 0.3
    assert done.stop.kind == "time limit"
    assert done.stop.message == "time limit: still running after 0.3 s of CPU time, in program (0, 0, 0)"
    assert done.stop.site.source in (
        "while total >= 0:",
        "total += 1 + tl.load(x_ptr)",
        "total += 1.0",
        "if LOADS:",
    )
    run_soundly()


@pytest.mark.parametrize("on", [on_a_thread, lambda work: work()], ids=["thread", "main"])
def test_what_waits_for_a_processor_does_not_sleep(on, monkeypatch):
    def work():
        with limits.time_limit(0.1):
            time.sleep(1.5)
            return "done"

    monkeypatch.setattr(limits, "queued", lambda thread: time.monotonic())  # kept from running ever since
    assert on(work) == "done"


def test_a_thread_that_others_keep_from_running_is_known():
    started, before = time.monotonic(), limits.queued(threading.get_native_id())
    while time.monotonic() < started + 0.05:
        pass
    assert 0 <= before <= limits.queued(threading.get_native_id()) < before + time.monotonic() - started
    assert limits.queued(0) == 0


@pytest.mark.parametrize("loads", [True, False])
def test_ctrl_c_ends_a_run_at_once(loads, elapsed):
    with pytest.raises(KeyboardInterrupt):
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        run_endlessly(seconds=60, LOADS=loads)
    assert 0.25 < elapsed()
    run_soundly()


@triton.jit
def hoard(z_ptr):
    many = tl.arange(0, 1024)
    total = many[:, None] * many[None, :]
    for i in tl.static_range(100):
        total += many[:, None] * (many[None, :] + i)
    tl.store(z_ptr, tl.sum(tl.reshape(total, (1024 * 1024,))))


def test_a_run_ends_at_its_memory_limit():
    """In a fresh process: this one may have freed memory at hand, which no limit counts."""
    script = (
        "import torch, puzzles_lib.runner as i; from tests.test_limits import execute, hoard; "
        "i.MEMORY_LIMIT = 256 << 20; stop = execute(hoard, z_ptr=torch.zeros(1)).stop; "
        "print(stop.kind, stop.message, stop.site.source, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=REPO, capture_output=True, text=True, check=True, timeout=240
    )
    assert done.stdout.splitlines() == [
        "memory limit",
        "memory limit: more than 0.25 GB, in program (0, 0, 0)",
        "total += many[:, None] * (many[None, :] + i)",
    ]
