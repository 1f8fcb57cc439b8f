"""Work in a child: whatever it does, this process has an answer, and is as it was.

Whether it is forked from this process, or from the small one that forks for it.
"""

import contextlib
import faulthandler
import gc
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import types
from pathlib import Path

import pytest

from puzzles_lib.compiler import child
from puzzles_lib.compiler.child import Child, Ended, closed_after
from puzzles_lib.translator import nursery, portable
from puzzles_lib.translator.forked import Limits
from tests.files import no_more_are_open_than, open_files
from tests.forks import PATIENCE, fetched

LIMITS = Limits(cpu_seconds=20, memory=1 << 30)
LONG_BY_THE_CLOCK = Limits(cpu_seconds=0.3, memory=1 << 30, wall_per_cpu=1000)  # on a busy machine, too
ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["from here", "from the nursery"], autouse=True)
def way(request, monkeypatch):
    """Where children are forked from."""
    monkeypatch.setattr(portable, "THERE", (*portable.THERE, "os", "signal", "sys", "time", "contextlib"))
    if request.param == "from here":
        request.getfixturevalue("own_children")
    else:
        nursery.begin()
    return request.param


@contextlib.contextmanager
def forked(answer, limits=LIMITS):
    """A child that gives ``answer(number)``, or ``answer(number, place)``."""
    with contextlib.closing(Child(preparing(answer), limits)) as child:
        yield child


def preparing(answer):
    def prepare(place):
        return (lambda number: answer(number, place)) if answer.__code__.co_argcount == 2 else answer

    return prepare


def answers(child, *numbers):
    """What it says of these numbers, asked all at once, up to its end, and what ended it."""
    told = []
    for number in numbers:
        child.ask(number)
    try:
        for _ in numbers:
            told.append(child.answer())
    except Ended as ended:
        return told, ended.cause
    return told, ""


def until(holds):
    """Wait for something that happens at once, or never."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def spin(number):
    while number:
        pass


def sleep(number):
    while True:
        time.sleep(100)


WAYS_TO_DIE = {
    "abort": lambda number: os.abort(),
    "a signal": lambda number: os.kill(os.getpid(), signal.SIGSEGV),
    "an exit": lambda number: os._exit(3),
    "an exit as of one that cannot read": lambda number: os._exit(77),
    "an exit of Python's": lambda number: sys.exit(),
    "an interrupt of its own": lambda number: (_ for _ in ()).throw(KeyboardInterrupt),
    "memory": lambda number: bytearray(4 << 30),
}


@pytest.fixture(autouse=True)
def nothing_is_left(way):
    def state():
        return (
            _children(),
            [resource.getrlimit(n) for n in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_CORE)],
            [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM, signal.SIGPROF, signal.SIGTERM)],
            (sys.stdout, sys.stderr, os.fstat(1).st_ino, os.fstat(2).st_ino),
            sys.getrecursionlimit(),
        )

    before, files = state(), open_files()
    yield
    assert state() == before
    assert no_more_are_open_than(files)


def _children() -> set[str]:
    """Children of this process that live or wait to be fetched, except for its nursery.

    The tests' own fork server may be one.
    """
    found = set()
    small = nursery.current()
    for process in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError):  # another's, which has ended meanwhile
            status = Path(f"/proc/{process}/stat").read_text()
            mine = int(status.rpartition(")")[2].split()[1]) == os.getpid()
            if mine and not (small and small.pid == int(process)):
                found.add(process)
    return found


def test_answers_come_in_order_also_long_ones():
    with forked(lambda number: {"n": number, "long": "x" * 300_000}) as child:
        told, cause = answers(child, 0, 1, 2)
        assert cause == "" and [each["n"] for each in told] == [0, 1, 2]
        assert len(told[2]["long"]) == 300_000


def test_it_works_while_nobody_waits_and_is_asked_again():
    def answer(number, place):
        place.note(number, os.getpid())
        return number

    with forked(answer) as child:
        child.ask(7)
        until(lambda: child.noted[0] == 7)
        pid = child.noted[1]
        assert (child.answer(), answers(child, 8), child.noted) == (7, ([8], ""), (8, pid))


def test_that_is_the_exit():
    assert nursery.UNREADABLE == 77


def test_none_is_forked_before_it_is_asked():
    before = _children()
    with forked(lambda number: number):
        assert _children() == before


@pytest.mark.parametrize("how", WAYS_TO_DIE)
def test_its_death_is_an_answer(how):
    die = WAYS_TO_DIE[how]

    def answer(number, place):
        place.note(number, 2)
        return die(number) if number == 1 else "before"

    with forked(answer) as child:
        assert (answers(child, 0, 1, 2), child.noted) == ((["before"], "crash"), (1, 2))
        assert answers(child, 0) == (["before"], "")  # by another


def test_an_error_of_its_code_is_told_in_words():
    with forked(lambda number: 1 / number) as child:
        child.ask(1)
        child.ask(0)
        assert child.answer() == 1
        with pytest.raises(Ended) as ended:
            child.answer()
        assert (ended.value.cause, ended.value.words) == ("error", "ZeroDivisionError: division by zero")
        assert answers(child, 4) == ([0.25], "")  # by another


def test_it_may_die_before_it_is_asked_for_more():
    before = _children()
    with forked(lambda number: os._exit(0)) as child:
        child.ask(0)
        until(lambda: all(_state(pid) == "Z" for pid in _children() - before))
        assert answers(child, 1) == ([], "crash")


def _state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_its_time_is_limited_for_each_answer():
    def answer(number):
        deadline = time.process_time() + number / 20
        while time.process_time() < deadline:
            pass
        return number

    with forked(answer, LONG_BY_THE_CLOCK) as asked:  # a third of the limit each, and more than it together
        assert answers(asked, 2, 2, 2, 2, 12) == ([2, 2, 2, 2], "time")


def test_time_does_not_run_while_it_waits():
    left = []

    class Noted(Limits):
        def begin(self):
            left.append(signal.getitimer(signal.ITIMER_REAL)[0] + signal.getitimer(signal.ITIMER_PROF)[0])
            super().begin()

    with forked(lambda number: left, Noted(20, 1 << 30)) as waiting:
        _, (at_the_fork, prepared, after_an_answer) = answers(waiting, 1, 2)[0]
    assert at_the_fork == after_an_answer == 0 < prepared


def test_one_that_sleeps_is_given_up(monkeypatch):
    monkeypatch.setattr(child, "HANGS_AFTER", 0.2)
    with forked(sleep, LONG_BY_THE_CLOCK) as asleep:
        assert answers(asleep, 0) == ([], "hung")


def test_one_that_sleeps_reaches_the_limit_by_the_clock(monkeypatch):
    monkeypatch.setattr(child, "HANGS_AFTER", float("inf"))
    with forked(sleep, Limits(cpu_seconds=10, memory=1 << 30, wall_per_cpu=0.01)) as asleep:
        assert answers(asleep, 0) == ([], "time")


def test_only_an_unbroken_sleep_counts(monkeypatch):
    """A busy child also sleeps now and then."""
    seen = iter("SSRSSRSSZ")
    monkeypatch.setattr(child, "_state", lambda pid: next(seen))
    monkeypatch.setattr(child, "_LOOK_EVERY", 0.001)
    monkeypatch.setattr(child, "HANGS_AFTER", 0.0025)
    reading, writing = os.pipe()
    with open(reading, "rb"), open(writing, "wb"):
        assert child._listen(reading, 1, bytearray(), []) == "over" and not [*seen]


def test_a_name_does_not_hide_the_state():
    def answer(number):
        with open("/proc/self/comm", "w") as name:
            name.write("x) Z y")
        return os.getpid()

    with forked(answer) as named:
        assert child._state(answers(named, 0)[0][0]) in tuple("RS")


def test_a_lock_that_another_thread_holds_at_the_fork_does_no_harm(monkeypatch):
    monkeypatch.setattr(child, "HANGS_AFTER", 0.2)
    lock, held, release = threading.Lock(), threading.Event(), threading.Event()

    def hold():
        with lock:
            held.set()
            release.wait()

    def answer(number):
        with lock:
            return "done"

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    with forked(answer) as locked:
        assert answers(locked, 0) == ([], "hung")
        release.set()
        thread.join()
        assert answers(locked, 0) == (["done"], "")


def test_a_fork_while_another_thread_makes_a_child_can_make_one():
    held, release = threading.Event(), threading.Event()

    def hold():
        with child._forking:
            held.set()
            release.wait(PATIENCE)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with forked(lambda number: number) as one:
                status = 0 if answers(one, 3) == ([3], "") else 2
        finally:
            os._exit(status)
    release.set()
    thread.join()
    assert fetched(pid) == 0


def test_it_has_ended_although_a_process_of_its_own_keeps_the_pipe():
    def answer(number, place):
        if grandchild := os.fork():
            place.note(grandchild, 0)
            os._exit(0)
        time.sleep(10_000)

    with forked(answer) as parent:
        told = answers(parent, 1)
        grandchild = parent.noted[0]
        assert grandchild > 0  # to kill 0 is to kill this process, too
        os.kill(grandchild, signal.SIGKILL)
        assert told == ([], "crash")


def test_half_an_answer_is_not_the_next_ones(monkeypatch):
    def interrupted(received, answers):
        if received:
            raise KeyboardInterrupt
        return False

    with forked(lambda number: [number] * 100_000) as long:
        with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr(child, "_taken", interrupted)
            answers(long, 1)
        long.close()
        assert answers(long, 2) == ([[2] * 100_000], "")


def test_a_process_that_cannot_be_made_is_an_error_and_leaves_nothing(monkeypatch):
    def none():
        raise BlockingIOError(11, "no more")

    with forked(lambda number: number) as one:
        with monkeypatch.context() as patch, pytest.raises(BlockingIOError):
            patch.setattr(nursery, "fork", lambda *work: None)
            patch.setattr(os, "fork", none)
            one.ask(1)
        assert answers(one, 2) == ([2], "")


def test_none_is_forked_while_another_thread_makes_one(monkeypatch, forks):
    """It would keep the other one's pipe open."""
    held = []
    forks(lambda: held.append(child._forking.locked()))
    with forked(lambda number: number) as one:
        assert (answers(one, 1), held) == (([1], ""), [True])
    assert not child._forking.locked()


def test_what_it_prints_and_what_was_printed_is_not_shown_twice(capfd):
    print("not yet written", end="")

    def answer(number):
        print("here")
        os.write(1, b"there")
        os.write(2, b"everywhere")
        return "done"

    with forked(answer) as child:
        assert answers(child, 0) == (["done"], "")
    sys.stdout.flush()
    assert capfd.readouterr() == ("not yet written", "")


def test_from_several_threads_at_once():
    found = []

    def ask(number):
        with forked(lambda number: number) as child:
            found.append(answers(child, number)[0])

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [[n] for n in range(6)]


def test_an_interrupt_ends_the_wait_at_once():
    timer = threading.Timer(0.3, signal.raise_signal, [signal.SIGINT])
    timer.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt), forked(spin) as spinning:
        answers(spinning, 1)
    assert time.monotonic() - started < PATIENCE
    timer.join()


@pytest.fixture
def forks(way, monkeypatch):
    """Call a function just after each fork, while it isn't noted yet."""

    def use(then):
        owner, name = (child, "_forked") if way == "from here" else (nursery, "fork")
        fork = getattr(owner, name)

        def forked(*work):
            found = fork(*work)
            then()
            return found

        monkeypatch.setattr(owner, name, forked)

    return use


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_an_interrupt_waits_until_a_fork_is_noted(forks):
    forks(interrupt)
    with forked(lambda number: number) as one:
        with pytest.raises(KeyboardInterrupt):
            one.ask(1)
        assert one.answer() == 1


def test_an_interrupt_waits_until_it_has_been_fetched(monkeypatch):
    fetch = child._fetch

    def interrupted(*given):
        interrupt()
        return fetch(*given)

    one = Child(preparing(lambda number: number), LIMITS)
    assert answers(one, 1) == ([1], "")
    monkeypatch.setattr(child, "_fetch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.close()
    monkeypatch.undo()
    one.close()  # which has nothing to do anymore


class Thing:
    closed = False

    def close(self):
        interrupt()
        self.closed = True


def fails(thing):
    raise ArithmeticError


@pytest.mark.parametrize("work", [lambda thing: 1, fails], ids=["a result", "an error"])
def test_an_interrupt_waits_until_it_is_closed(work):
    thing = Thing()
    with pytest.raises(KeyboardInterrupt):
        closed_after(thing, work)
    assert thing.closed


def test_an_interrupt_of_the_work_comes_at_once_and_closes():
    reached = []

    def work(thing):
        interrupt()
        reached.append(thing)

    thing = Thing()
    with pytest.raises(KeyboardInterrupt):
        closed_after(thing, work)
    assert thing.closed and not reached


def test_an_interrupt_of_all_processes_leaves_it_to_its_parent():
    """Also if a thread has forked it, in which no handler waits for the end of a fork."""
    with forked(lambda number: os.getpid()) as one:
        thread = threading.Thread(target=one.ask, args=[1])
        thread.start()
        thread.join()
        pid = one.answer()
        os.kill(pid, signal.SIGINT)
        assert answers(one, 2) == ([pid], "")


def test_it_has_no_settings_of_its_parents(monkeypatch):
    there = ("faulthandler", "gc", "os", "resource", "signal", "sys")
    monkeypatch.setattr(portable, "THERE", (*portable.THERE, *there))

    def answer(number):
        return {
            "traced": sys.gettrace() is not None or sys.getprofile() is not None,
            "wakes": signal.set_wakeup_fd(-1) != -1,
            "blocked": [*signal.pthread_sigmask(signal.SIG_BLOCK, [])],
            "shown": faulthandler.is_enabled(),
            "dumped": resource.getrlimit(resource.RLIMIT_CORE)[1],
            "collected": gc.get_freeze_count() == 0,
        }

    gc.unfreeze()
    reading, writing = os.pipe2(os.O_NONBLOCK)
    signal.set_wakeup_fd(writing)
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    traced = sys.gettrace()
    sys.settrace(lambda *event: None)
    try:
        with forked(answer) as one:
            told = answers(one, 1)
    finally:
        sys.settrace(traced)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        signal.set_wakeup_fd(-1)
        os.close(reading), os.close(writing)
        gc.freeze()
    assert faulthandler.is_enabled()
    assert told == ([dict.fromkeys(told[0][0], False) | {"blocked": [], "dumped": 0}], "")


def test_it_is_closed_after_the_work():
    def work(one):
        one.ask(1)
        return one.answer()

    one = Child(preparing(lambda number: os.getpid()), LIMITS)
    assert not Path(f"/proc/{closed_after(one, work)}").exists()


ORPHAN = """
import os, sys, time
from puzzles_lib.compiler.child import Child, Limits
from puzzles_lib.translator import nursery, portable
portable.THERE = (*portable.THERE, "os")
if sys.argv[1] == "from the nursery":
    nursery.begin()
child = Child(lambda place: lambda number: os.getpid() if number == 0 else "x" * number, Limits(20, 1 << 30))
child.ask(0)
pid = child.answer()
assert (sys.argv[1] == "from the nursery") == bool(child.by)
print(pid, flush=True)
for number in sys.argv[2:]:
    child.ask(int(number))
    time.sleep(1)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize("unread", [[], ["300000"]], ids=["it waits", "an answer that a pipe cannot hold"])
def test_it_ends_with_its_parent(unread, way):
    ran = subprocess.run(
        [sys.executable, "-c", ORPHAN, way, *unread], cwd=ROOT, capture_output=True, text=True, timeout=240
    )
    wait_for_end(int(ran.stdout))


def wait_for_end(pid):
    until(lambda: not Path(f"/proc/{pid}").exists() or _state(pid) == "Z")


BARE = """
import os, sys, threading, time, warnings
from puzzles_lib.compiler.child import Child, Limits
warnings.simplefilter("error")  # Python 3.12 has one about forks and threads
before = list(warnings.filters)
threading.Thread(target=time.sleep, args=(1,), daemon=True).start()
os.close(0), os.close(1), os.close(2)
sys.stdout = sys.stderr = None
child = Child(lambda place: lambda number: print("x") or "done", Limits(20, 1 << 30))
child.ask(0)
done = child.answer()
child.close()
os._exit(0 if done == "done" and warnings.filters == before else 1)
"""


def test_where_there_are_threads_no_files_and_warnings_are_errors():
    assert subprocess.run([sys.executable, "-c", BARE], cwd=ROOT, timeout=120).returncode == 0


# ---- the nursery


@pytest.mark.parametrize("way", ["from the nursery"], indirect=True)
class TestNursery:
    def test_its_children_have_little(self):
        """Neither torch, nor what this process has."""

        def answer(number):
            return [name for name in ("torch", "numpy", "pytest") if name in sys.modules]

        with forked(answer) as child:
            assert answers(child, 0) == ([[]], "") and child.by

    def test_only_what_has_no_answer_is_asked_again(self):
        """Of a child here, when one that the nursery has forked can't read its work."""

        def answer(number):
            if number == 1:
                os.abort()
            return number if "numpy" in sys.modules else os._exit(nursery_cannot_read)

        nursery_cannot_read = nursery.UNREADABLE
        with forked(answer) as child:
            assert answers(child, 1, 5) == ([], "crash") and child.by
            assert answers(child, 2) == ([2], "") and child.by is None

    def test_a_child_that_it_cannot_make_is_made_here(self, monkeypatch):
        only_here = types.ModuleType("only_here")
        monkeypatch.setitem(sys.modules, "only_here", only_here)
        monkeypatch.setattr(portable, "THERE", (*portable.THERE, "only_here"))
        exec("def double(number): return 2 * number", vars(only_here))
        double = only_here.double
        with forked(lambda number: double(number)) as child:
            assert answers(child, 3, 4) == ([6, 8], "") and child.by is None

    def test_where_it_was_killed_children_are_made_here_and_soon_there_is_another(self):
        killed = nursery.current().pid
        with forked(lambda number: number) as child:
            assert answers(child, 1) == ([1], "") and child.by
            os.kill(killed, signal.SIGKILL)
            until(lambda: _state(killed) == "Z")
            child.ask(2)
            child.answer()
        with forked(lambda number: number) as child:
            assert answers(child, 3) == ([3], "") and child.by is None
        for _ in range(nursery.AFTER + 1):
            with forked(lambda number: number) as child:
                assert answers(child, 4) == ([4], "")
        assert nursery.current().pid != killed

    def test_a_fork_of_this_process_has_none_and_begins_none(self):
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                for _ in range(nursery.AFTER + 2):
                    with forked(lambda number: number) as child:
                        assert answers(child, 0) == ([0], "") and nursery.current() is None
                status = 0
            finally:
                os._exit(status)
        assert fetched(pid) == 0 and nursery.current()

    def test_it_ends_with_its_process(self):
        code = ORPHAN.replace("print(pid", "print(nursery.current().pid")
        ran = subprocess.run(
            [sys.executable, "-c", code, "from the nursery"], cwd=ROOT, capture_output=True, timeout=240
        )
        wait_for_end(int(ran.stdout))

    def test_one_that_answers_too_late_is_not_asked_again(self, monkeypatch):
        """Its late answer would be taken for that of the next question."""
        small = nursery.current()
        with forked(lambda number: number) as child:
            assert answers(child, 1) == ([1], "") and child.by is small
            os.kill(small.pid, signal.SIGSTOP)
            small._socket.settimeout(0.1)
        os.kill(small.pid, signal.SIGCONT)
        with forked(lambda number: number) as child:
            assert answers(child, 2) == ([2], "") and child.by is None
        assert nursery.current() is not small

    def test_an_interrupt_of_all_processes_leaves_it(self):
        os.kill(nursery.current().pid, signal.SIGINT)
        with forked(lambda number: number) as child:
            assert answers(child, 1) == ([1], "") and child.by
