"""Work in a child: whatever it does, this process has an answer, and is as it was."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from puzzles_lib.compiler import child
from puzzles_lib.compiler.child import Limits, Place, in_child

LIMITS = Limits(cpu_seconds=20, memory=1 << 30)


def spin(send):
    send("begun")
    while True:
        pass


def sleep(send):
    time.sleep(100)


def ways_to_die():
    return {
        "abort": lambda send: os.abort(),
        "a signal": lambda send: os.kill(os.getpid(), signal.SIGSEGV),
        "an exit": lambda send: os._exit(3),
        "an exit of Python's": lambda send: sys.exit(),
        "an error": lambda send: 1 / 0,
        "an interrupt of its own": lambda send: (_ for _ in ()).throw(KeyboardInterrupt),
        "memory": lambda send: bytearray(4 << 30),
    }


@pytest.fixture(autouse=True)
def nothing_is_left():
    def state():
        return (
            _children(),
            len(os.listdir("/proc/self/fd")),
            [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE)],
            [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM, signal.SIGPROF, signal.SIGTERM)],
            (sys.stdout, sys.stderr, os.fstat(1).st_ino, os.fstat(2).st_ino),
            sys.getrecursionlimit(),
        )

    before = state()
    yield
    assert state() == before


def _children() -> set[str]:
    """Those of this process that live or wait to be fetched: the tests' own fork server may be one."""
    found = set()
    for thread in os.listdir("/proc/self/task"):
        with open(f"/proc/self/task/{thread}/children") as file:
            found |= set(file.read().split())
    return found


def test_answers_come_in_order_also_long_ones():
    def work(send):
        for n in range(3):
            send({"n": n, "long": "x" * 300_000})

    ending = in_child(work, LIMITS)
    assert ending.cause == "" and [a["n"] for a in ending.answers] == [0, 1, 2]
    assert len(ending.answers[2]["long"]) == 300_000


@pytest.mark.parametrize("way", ways_to_die())
def test_its_death_is_an_answer(way):
    place = Place()

    def work(send):
        place.note(1, 2)
        send("before")
        ways_to_die()[way](send)
        send("after")

    ending = in_child(work, LIMITS)
    assert (ending.cause, ending.answers, place.read()) == ("crash", ["before"], (1, 2))


def test_its_time_is_limited_for_each_part(monkeypatch):
    monkeypatch.setattr(child, "WALL_PER_CPU", 1000)  # by the clock, a busy machine may take any time

    def work(send):
        limits.begin_part()
        deadline = time.process_time() + 0.2
        while time.process_time() < deadline:
            pass
        send("a part")
        limits.begin_part()
        spin(send)

    limits = Limits(0.3, 1 << 30)
    ending = in_child(work, limits)
    assert (ending.cause, ending.answers) == ("time", ["a part", "begun"])


def test_one_that_sleeps_is_tried_again_and_given_up(monkeypatch):
    monkeypatch.setattr(child, "HANGS_AFTER", 0.2)
    assert in_child(sleep, LIMITS).cause == "hung"


def test_a_lock_that_another_thread_holds_at_the_fork_does_no_harm(monkeypatch):
    monkeypatch.setattr(child, "HANGS_AFTER", 0.2)
    lock, held, release = threading.Lock(), threading.Event(), threading.Event()
    once, causes = child._once, []

    def hold():
        with lock:
            held.set()
            release.wait()

    def noted(work, limits):
        ending = once(work, limits)
        causes.append(ending.cause)
        release.set()
        thread.join()
        return ending

    def work(send):
        with lock:
            send("done")

    monkeypatch.setattr(child, "_once", noted)
    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    ending = in_child(work, LIMITS)
    assert (ending.answers, causes) == (["done"], ["hung", ""])


def test_what_it_prints_and_what_was_printed_is_not_shown_twice(capfd):
    print("not yet written", end="")

    def work(send):
        print("here")
        os.write(1, b"there")
        os.write(2, b"everywhere")
        send("done")

    assert in_child(work, LIMITS).answers == ["done"]
    sys.stdout.flush()
    assert capfd.readouterr() == ("not yet written", "")


def test_from_several_threads_at_once():
    found = []

    def ask(number):
        found.append(in_child(lambda send: send(number), LIMITS).answers)

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[n] for n in range(6)]


def test_an_interrupt_ends_it_at_once():
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        in_child(spin, LIMITS)
    assert time.monotonic() - started < 10
    timer.join()


BARE = """
import os, sys, threading, time, warnings
from puzzles_lib.compiler.child import Limits, in_child
warnings.simplefilter("error")  # Python 3.12 has one about forks and threads
before = list(warnings.filters)
threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
os.close(0), os.close(1), os.close(2)
sys.stdout = sys.stderr = None
ending = in_child(lambda send: (print("x"), send("done")), Limits(20, 1 << 30))
os._exit(0 if ending.answers == ["done"] and not ending.cause and warnings.filters == before else 1)
"""


def test_where_there_are_threads_no_files_and_warnings_are_errors():
    root = Path(__file__).parent.parent
    assert subprocess.run([sys.executable, "-c", BARE], cwd=root, timeout=120).returncode == 0
