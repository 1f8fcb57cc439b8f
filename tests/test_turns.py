"""Checks at the same time, within each other, and across a fork: right verdicts, and nothing left changed."""

import asyncio
import contextlib
import dataclasses
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
import triton.language as tl
from torch._subclasses.fake_tensor import FakeTensorMode

from puzzles_lib import MASKED_ADD, check, run, stages, trace
from puzzles_lib.checker import examine
from puzzles_lib.puzzle import Case
from puzzles_lib.runner import Busy, alone, turns
from puzzles_lib.translator import nursery
from tests.files import no_more_are_open_than
from tests.forks import fetched
from tests.interrupted import state


@triton.jit
def right(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)


@triton.jit
def wrong(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10, mask=offs < N)


@triton.jit
def endless(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    i = 0
    while i < 1:
        tl.store(z_ptr, 0.0)
        i -= 1


WRONG = str(examine(wrong, MASKED_ADD))


@pytest.fixture(autouse=True)
def everything_is_put_back():
    trace(right, MASKED_ADD)  # what is imported on the way stays
    with FakeTensorMode():
        torch.ones(1)
    nursery.begin()  # a process and files of its own, fewer once it is ready: not on the way
    before = state()
    yield
    after = state()
    assert {n for n in before if before[n] != after.get(n)} <= {"files"}
    assert no_more_are_open_than(before["files"])


def verdict(number: int) -> bool:
    """Whether the answer to one of several questions is what it should be."""
    match number % 4:
        case 0:
            return check(right, MASKED_ADD).ok
        case 1:
            return str(examine(wrong, MASKED_ADD)) == WRONG
        case 2:
            return trace(right, MASKED_ADD).clean
        case _:
            return run(right, MASKED_ADD, x=torch.ones(5), BLOCK=8).tolist() == [11] * 5


def test_on_several_threads():
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(verdict, range(12))) == [True] * 12


def test_on_a_thread_and_the_main_one():
    with ThreadPoolExecutor(1) as pool:
        other = pool.map(verdict, range(4))
        assert [verdict(number) for number in range(4)] == list(other) == [True] * 4


def test_with_asyncio():
    async def all_at_once():
        return await asyncio.gather(*(asyncio.to_thread(verdict, number) for number in range(6)))

    assert asyncio.run(all_at_once()) == [True] * 6


def test_stages_beside_checks():
    with ThreadPoolExecutor(2) as pool:
        answers = [pool.submit(stages, right, MASKED_ADD), pool.submit(examine, right, MASKED_ADD)]
        assert all(answer.result().ok for answer in answers)


# ---- within each other


@pytest.mark.parametrize(
    "work",
    [
        lambda: str(check(right, MASKED_ADD)),
        lambda: repr(trace(right, MASKED_ADD)),
        lambda: repr(stages(right, MASKED_ADD)),
        lambda: run(right, MASKED_ADD, x=torch.ones(5), BLOCK=8),
    ],
    ids=["check", "trace", "stages", "run"],
)
def test_in_the_middle_of_a_check_it_is_refused_in_a_line(work):
    told = []

    def fill(shape, dtype, generator):
        try:
            told.append(work())
        except RuntimeError as error:
            told.append(str(error))
        return torch.ones(shape, dtype=dtype)

    puzzle = dataclasses.replace(MASKED_ADD, cases=(Case(N=20, BLOCK=32, fill={"x": fill}),))
    assert check(right, puzzle).ok
    assert "a kernel is being checked right now, and it cannot check another one" in told[0]
    assert len(told[0].splitlines()) <= 3


def test_in_a_signal_handler_in_the_middle_of_a_check():
    told = []
    before = signal.signal(signal.SIGUSR1, lambda *_: told.append(str(check(right, MASKED_ADD))))
    try:
        timer = threading.Timer(0.2, signal.raise_signal, (signal.SIGUSR1,))
        timer.start()
        report = examine(endless, MASKED_ADD, seconds=1)
    finally:
        timer.cancel()
        signal.signal(signal.SIGUSR1, before)
    assert "still running after 1 s" in str(report)
    assert "a kernel is being checked right now, and it cannot check another one" in told[0]


# ---- waiting


@contextlib.contextmanager
def somebody_at_work():
    started, done = threading.Event(), threading.Event()

    def work():
        started.set()
        done.wait(60)

    thread = threading.Thread(target=alone, args=(work,))
    thread.start()
    started.wait(60)
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_ctrl_c_ends_the_waiting():
    with somebody_at_work():
        start = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            check(right, MASKED_ADD)
        assert time.monotonic() - start < 30
    assert check(right, MASKED_ADD).ok


def test_who_waits_too_long_is_told_so(monkeypatch):
    monkeypatch.setattr("puzzles_lib.runner.turns.PATIENCE_S", 0.1)
    with somebody_at_work():
        assert "another thread has been checking" in str(check(right, MASKED_ADD))
        with pytest.raises(RuntimeError, match="another thread has been checking"):
            run(right, MASKED_ADD, x=torch.ones(5), BLOCK=8)


def test_an_error_ends_the_turn():
    with pytest.raises(ZeroDivisionError):
        alone(lambda: 1 / 0)
    assert alone(lambda: "again") == "again"


def test_one_within_another_is_busy():
    with pytest.raises(Busy):
        alone(lambda: alone(lambda: None))


# ---- a fork in the middle


def in_a_fork(work) -> bool:
    """What the function says in a forked process."""
    child = os.fork()
    if not child:
        answer = 1
        try:
            answer = 0 if work() else 1
        finally:
            os._exit(answer)
    return fetched(child) == 0


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_while_another_thread_checks():
    before = state()

    def nothing_is_left() -> bool:
        after = state()
        # a fork has no children; a thread's run sets the state of NumPy and the warning filters itself
        names = set(before) - {"children", "files", "numpy", "warnings", "showwarning", "threads"}
        return all(before[n] == after.get(n) for n in names) and verdict(0) and verdict(1)

    thread = threading.Thread(target=examine, args=(endless, MASKED_ADD), kwargs={"seconds": 1})
    thread.start()
    deadline = time.monotonic() + 60
    while not turns._turn.lock.locked() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert turns._turn.lock.locked()
    try:
        assert in_a_fork(nothing_is_left)
    finally:
        thread.join()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_by_the_code_that_is_at_work():
    def at_work():
        return in_a_fork(lambda: "cannot check another" in str(check(right, MASKED_ADD)))

    assert alone(at_work)


# ---- what else the session may have set


def test_another_default_device():
    torch.set_default_device("meta")
    try:
        assert verdict(0) and verdict(1) and trace(right, MASKED_ADD).clean
        assert stages(right, MASKED_ADD).ok
        assert run(right, MASKED_ADD, x=torch.ones(5, device="cpu"), BLOCK=8).tolist() == [11] * 5
        assert torch.empty(1).device.type == "meta"
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_another_default_dtype(dtype):
    torch.set_default_dtype(dtype)
    try:
        assert all(verdict(number) for number in range(3)) and torch.get_default_dtype() == dtype
    finally:
        torch.set_default_dtype(torch.float32)


def test_within_a_mode_of_fake_tensors():
    with FakeTensorMode():
        assert all(verdict(number) for number in range(3))
        assert type(torch.ones(1)).__name__ == "FakeTensor"
