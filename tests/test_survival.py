"""A live Jupyter session survives whatever is typed into a kernel, and says briefly what was wrong."""

import contextlib
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from jupyter_client.manager import KernelManager

from puzzles_lib.authoring.sockets import socket_prefix

MOST_LINES = 12
AT_ONCE_S = 60  # on a busy machine; what is interrupted would take minutes

SET_UP = """
import ctypes, os, signal, sys, types
import torch, triton, triton.language as tl
from jaxtyping import Float32
from torch import Tensor
from puzzles_lib import CONSTANT_ADD, MASKED_ADD, Case, Puzzle, check

@triton.jit
def sound(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)
"""


@dataclass
class Answer:
    """What a cell printed, and the error it ended with."""

    out: str = ""
    err: str = ""
    traceback: list[str] = field(default_factory=list)
    seconds: float = 0.0


class Session:
    """A Jupyter kernel, as a notebook sees it."""

    def __init__(self, prefix: str, **environment: str):
        self.manager = KernelManager(kernel_name="python3", transport="ipc", ip=prefix)
        self.manager.start_kernel(env={**os.environ, **environment})
        self.client = self.manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self.pid = self.manager.provisioner.pid

    def run(self, code: str, interrupt_after: float | None = None, timeout: float = 240) -> Answer:
        """Execute a cell; seconds count from when the kernel has it, or from the interrupt."""
        answer = Answer()
        message = self.client.execute(code)
        executing = False
        start = time.monotonic()
        while True:
            assert self.manager.is_alive(), f"the session died of:\n{code}"
            if executing and interrupt_after is not None and time.monotonic() - start > interrupt_after:
                self.manager.interrupt_kernel()
                start, interrupt_after = time.monotonic(), None
            assert time.monotonic() - start < timeout, f"no answer to:\n{code}"
            try:
                reply = self.client.get_iopub_msg(timeout=0.1)
            except Exception:  # nothing to read yet
                continue
            if reply["parent_header"].get("msg_id") != message:
                continue
            content = reply["content"]
            if reply["msg_type"] == "execute_input":
                executing, start = True, time.monotonic()
            elif reply["msg_type"] == "stream":
                name = "out" if content["name"] == "stdout" else "err"
                setattr(answer, name, getattr(answer, name) + content["text"])
            elif reply["msg_type"] == "execute_result":
                answer.out += content["data"]["text/plain"] + "\n"
            elif reply["msg_type"] == "error":
                answer.traceback = content["traceback"]
            elif reply["msg_type"] == "status" and content["execution_state"] == "idle":
                answer.seconds = time.monotonic() - start
                return answer

    def close(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@contextlib.contextmanager
def opened(**environment: str) -> Iterator[Session]:
    """A session in which the names of SET_UP are known."""
    with socket_prefix() as prefix:
        live = Session(prefix, **environment)
        try:
            first = live.run(SET_UP)
            assert not first.traceback and not first.err, first
            yield live
        finally:
            live.close()


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    folder = tmp_path_factory.mktemp("session")
    with opened(PUZZLES_STATE_DIR=f"{folder}/state", IPYTHONDIR=f"{folder}/ipython") as live:
        assert_all_is_well(live)  # and nothing that a first check imports is new to those that follow
        yield live


def check(session: Session, kernel: str, puzzle: str = "CONSTANT_ADD", seconds: float = 1) -> str:
    """The answer to a check of a kernel that is wrong: short, and nothing but the answer."""
    answer = session.run(f"{kernel}\ncheck(kernel, {puzzle}, seconds={seconds})")
    assert not answer.traceback, "\n".join(answer.traceback)
    assert answer.err == ""
    lines = answer.out.splitlines()
    assert 2 <= len(lines) <= MOST_LINES and max(map(len, lines)) < 260, answer.out
    assert "Traceback" not in answer.out and "site-packages" not in answer.out
    assert "all" not in lines[0], f"{kernel} passes:\n{answer.out}"
    return answer.out


def assert_all_is_well(session: Session) -> None:
    answer = session.run("check(sound, MASKED_ADD)")
    assert answer.out.startswith("masked_add: all 6 cases pass") and not answer.err and not answer.traceback


def kernel(body: str, parameters: str = "x_ptr, z_ptr, N, BLOCK: tl.constexpr") -> str:
    lines = body.strip("\n").splitlines()
    return "\n".join(["@triton.jit", f"def kernel({parameters}):", *("    " + line for line in lines)])


# ---- memory


@pytest.mark.parametrize("distance", ["1", "100000", "10**12", "-1", "-100000", "-(10**12)"])
@pytest.mark.parametrize("access", ["load", "store"])
def test_out_of_bounds_near_and_far(session, access, distance):
    shift = f"tl.full((), {distance}, tl.int64)"
    body = {
        "load": f"offs = tl.arange(0, BLOCK)\ntl.store(z_ptr + offs, tl.load(x_ptr + offs + {shift}))",
        "store": f"offs = tl.arange(0, BLOCK)\ntl.store(z_ptr + offs + {shift}, tl.load(x_ptr + offs))",
    }[access]
    pointer = {"load": "x_ptr", "store": "z_ptr"}[access]
    assert f"out-of-bounds {access} of {pointer} in program 0" in check(session, kernel(body))


def test_after_many_faults_the_next_check_is_right(session):
    assert_all_is_well(session)


# ---- loops without end


@pytest.mark.parametrize(
    "body",
    [
        "i = 0\nwhile i < N:\n    i -= 1\ntl.store(z_ptr, i)",
        "i = 0\nwhile i < N:\n    tl.store(z_ptr, tl.load(x_ptr))\n    i -= 1",
        "for i in range(0, 2**31 - 1):\n    tl.store(z_ptr, i)",
    ],
)
def test_a_loop_without_end(session, body):
    text = check(session, kernel(body), seconds=0.5)
    assert "time limit: still running after 0.5 s of CPU time, in program 0" in text
    assert_all_is_well(session)


@pytest.mark.parametrize(
    "body, why",
    [
        ("i = 0\nwhile i < N:\n    i += 0\ntl.store(z_ptr, i)", "no iteration changes i"),
        ("i = 0\nwhile i < N:\n    tl.store(z_ptr, tl.load(x_ptr))\n    i *= 1", "no iteration changes i"),
        ("while tl.program_id(0) >= 0:\n    pass", "nothing in it changes its condition"),
        (
            "lock = tl.load(x_ptr)\nwhile lock == lock:\n    lock = tl.load(x_ptr)",
            "no iteration changes lock",
        ),
    ],
)
def test_a_loop_that_turns_on_the_spot(session, body, why):
    text = check(session, kernel(body), seconds=60)
    assert f"time limit: this loop never ends in program 0: {why}" in text
    assert_all_is_well(session)


def test_a_grid_of_a_million_programs(session):
    session.run(
        """
def many(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + 1
MANY = Puzzle(number="0", spec=many, grid=lambda s: (s.N,), cases=(Case(N=1000000), Case(N=2000000)))
"""
    )
    body = "pid = tl.program_id(0)\ntl.store(z_ptr + pid, tl.load(x_ptr + pid) + 1)"
    text = check(session, kernel(body, "x_ptr, z_ptr"), "MANY")
    assert re.search(r"time limit: still running after 1 s of CPU time, in program \d+", text)
    assert "skip   N=2000000" in text
    assert_all_is_well(session)


def test_a_kernel_that_prints_without_end(session):
    body = "i = 0\nwhile i < N:\n    tl.device_print('i', i)\n    i += 0\ntl.store(z_ptr, i)"
    answer = session.run(kernel(body) + "\ncheck(kernel, CONSTANT_ADD, seconds=2)")
    lines = answer.out.splitlines()
    assert lines[100] == "... (only the first 100 lines are shown)" and len(lines) < 101 + MOST_LINES
    assert "time limit" in answer.out and not answer.err
    assert_all_is_well(session)


# ---- memory without end


@pytest.mark.parametrize(
    "body",
    [
        "tl.store(z_ptr, tl.sum(tl.zeros((2**30, 16), tl.float32)))",
        "x = tl.zeros((1024, 1024), tl.float32)\nfor _ in tl.static_range(50):\n    x = tl.join(x, x)",
        "kept = (tl.zeros((1024, 1024), tl.float64),)\n"
        "for _ in tl.static_range(300):\n    kept = kept + (kept[0] + 1,)\n"
        "tl.store(z_ptr, tl.sum(kept[0]))",
        "x = 'a' * 10 ** 11\ntl.static_print(x)",
        "x = (0,) * 10 ** 11\ntl.static_print(x)",
        "x: tl.constexpr = 'a' * (6 * 10 ** 9)\ntl.store(z_ptr, 1.0)",
    ],
    ids=["50 GB at once", "doubling", "hoarding", "a long string", "a long tuple", "a string that fits"],
)
def test_a_kernel_that_wants_all_the_memory(session, body):
    check(session, kernel(body))
    with open(f"/proc/{session.pid}/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
    assert peak < 4 << 20  # kB
    assert_all_is_well(session)


# ---- ways out

ESCAPES = """
exit()
quit()
sys.exit()
os._exit(0)
os.abort()
os.kill(os.getpid(), 9)
signal.raise_signal(9)
ctypes.string_at(0)
raise SystemExit
raise KeyboardInterrupt
import os
from os import abort
__import__("os").abort()
eval("os.abort()")
exec("os.abort()")
open("never", "w")
breakpoint()
globals()["os"].abort()
getattr(os, "abort")()
getattr(os, "ab" + "ort")()
getattr(tl.core, "builtins").exec("os.abort()")
(lambda: os.abort())()
(os.abort)()
(os,)[0].abort()
[os][0].abort()
(os if 1 else os).abort()
(os or 0).abort()
(m := os).abort()
[m.abort() for m in (os,)]
[os.abort() for _ in (1,)]
print(f"{os.abort()}")
print("{0.abort}".format(os))
tl.static_print(os.abort())
tl.static_assert(os.abort(), "no")
tl.static_assert(False, os.abort())
assert os.abort(), "no"
x: os.abort() = 1
x: tl.constexpr = os; x.abort()
m = os; m.abort()
m, n = os, 1; m.abort()
os.abort(); os = 1
os.abort(); [os for os in (1,)]
os.abort(); f = lambda os: 0
with os.abort(): pass
for m in (os,): m.abort()
die()
DIE()
DIE.value()
MODULE.abort()
MODULE.value.abort()
OBJECT.die()
OBJECT.value.die()
OBJECT + 1
OBJECT[0]
tl.static_print(OBJECT)
tl.device_print("x", OBJECT)
thing.die()
thing.attribute
call(os)
call_constexpr(os)
call_default()
tl.core.constexpr(os).value.abort()
tl.core.constexpr(os.abort)()
tl.core.builtin(os.abort)()
tl.core.inspect.os.abort()
tl.core.builtins.exec("os.abort()")
triton.runtime.jit.os.abort()
triton.runtime.driver.active.utils
triton.testing.do_bench(die)
tl.reduce(tl.arange(0, 4), 0, die)
tl.reduce(tl.arange(0, 4), 0, thing)
tl.map_elementwise(die, tl.arange(0, 4))
tl.load.__globals__["os"].abort()
tl.load.__wrapped__.__globals__["builtins"].exec("os.abort()")
x_ptr.__class__.__init__.__globals__["builtins"].exec("os.abort()")
x_ptr.handle.data.tofile("never")
getattr(x_ptr, "handle").data.ctypes
x_ptr.abort()
tl.load = os.abort
del tl.load
m = tl.debug_barrier()[:, None]
m = tl.store(z_ptr, 1.0); tl.store(z_ptr, m)
tl.histogram(tl.arange(0, 4), -4)
x: thing.attribute = 1
call(die)
call(pair[0])
partial()
table["die"]()
pair.die()
pair.module.abort()
Pair; pair.die()
Pair(1, 2).module.abort(); Pair.die(pair)
p = Pair(die, os); p.die()
p = Pair(pair, 1); p.die.die()
Wild(1, 2)
Worse(1)
tl.constexpr.__init__.__globals__
method()
""".strip().splitlines()

GLOBALS = """
import functools, collections, typing
def die(*a, **k): os.abort()
class Thing:
    die = __add__ = __getitem__ = __repr__ = __str__ = __call__ = die
    fn = staticmethod(die)
    attribute = property(die)
thing = Thing()
method = thing.die
DIE, MODULE, OBJECT = tl.constexpr(die), tl.constexpr(os), tl.constexpr(thing)
partial, table = functools.partial(die), {"die": die}
Pair = collections.namedtuple("Pair", "die module")
pair = Pair(die, os)
class Wild(collections.namedtuple("Plain", "a b")): __new__ = die
class Worse(typing.NamedTuple):
    a: int
    __repr__ = __add__ = die
    later = property(die)
@triton.jit
def call(m): m.abort()
@triton.jit
def call_constexpr(m: tl.constexpr): m.abort()
@triton.jit
def call_default(m: tl.constexpr = os): m.abort()
"""

PARAMETERS = [
    "x_ptr, z_ptr, m: tl.constexpr = os",
    "x_ptr, z_ptr, m=os",
    "x_ptr, z_ptr, m: tl.constexpr = OBJECT",
    "x_ptr, z_ptr, m: tl.constexpr = thing",
    "x_ptr, z_ptr, m=thing",
    "x_ptr, z_ptr, m: tl.constexpr = tl.constexpr(os)",
]


def test_nothing_typed_inside_a_kernel_ends_the_session(session):
    """One cell for all of them: each line must be refused, with two or three lines of why."""
    sources = [kernel(line + "\ntl.store(z_ptr, 1.0)", "x_ptr, z_ptr") for line in ESCAPES]
    sources += [
        kernel(f"m.{what}\ntl.store(z_ptr, 1.0)", p) for p in PARAMETERS for what in ("abort()", "die()")
    ]
    assert not session.run(GLOBALS).traceback
    for source in sources:
        text = check(session, source)
        assert "compiler refuses" in text or "0 of 4 cases pass" in text, text
        assert len(text.splitlines()) <= 8, text
    assert_all_is_well(session)


def test_a_kernel_that_is_no_kernel(session):
    for code in (
        "check(print, CONSTANT_ADD)",
        "check(None, CONSTANT_ADD)",
        "check('x' * 10**6, CONSTANT_ADD)",
    ):
        answer = session.run(code)
        assert not answer.traceback and not answer.err and len(answer.out) < 400, answer


# ---- Ctrl-C


@pytest.mark.parametrize(
    "body",
    [
        "i = 0\nwhile i >= 0:\n    tl.store(z_ptr, tl.load(x_ptr))\n    i += 1",
        "i = 0\nwhile i < N:\n    i -= 1\ntl.store(z_ptr, i)",
        "for i in tl.static_range(100000):\n    tl.store(z_ptr, i)",  # the front end is busy
        "x = 10 ** 10 ** 8\ntl.store(z_ptr, x)",  # Python itself is
    ],
)
def test_an_interrupt_ends_a_check_at_once(session, body):
    code = kernel(body) + "\ncheck(kernel, CONSTANT_ADD, seconds=120)"
    answer = session.run(code, interrupt_after=1.5)
    assert answer.seconds < AT_ONCE_S
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(answer.traceback))
    assert "KeyboardInterrupt" in text and len(text.splitlines()) < 30, text
    assert "site-packages" not in text and not answer.err
    assert_all_is_well(session)


# ---- stages

SLOW_TO_COMPILE = """
offs = tl.arange(0, 1048576)
x = tl.load(x_ptr + offs, mask=offs < N)
tl.store(z_ptr + offs, tl.sin(x) * tl.exp(x), mask=offs < N)
"""


@pytest.mark.parametrize(
    "body, words",
    [
        (SLOW_TO_COMPILE, "it takes more than 2 s"),
        ("x: tl.constexpr = 'a' * (6 * 10 ** 9)\ntl.store(z_ptr, 1.0)", "more than 1 GB"),
        ("os.abort()", "os.abort"),
        (
            "tl.store(z_ptr, tl.dot(tl.zeros((4, 4), tl.int8), tl.zeros((4, 4), tl.int8)))",
            "at least 32 elements",
        ),
    ],
    ids=["LLVM without end", "a string that fits", "abort", "too small a dot"],
)
def test_compiling_ends_no_session(session, body, words):
    seconds = 2 if "2 s" in words else 30
    limit = f"import puzzles_lib.compiler.lowering as lowering\nlowering.SECONDS = {seconds}\n"
    answer = session.run(f"{limit}from puzzles_lib import stages\n{kernel(body)}\nstages(kernel, MASKED_ADD)")
    assert not answer.traceback and not answer.err, answer
    assert "does not compile: " in answer.out and words in answer.out
    assert len(answer.out.splitlines()) <= 8
    assert_all_is_well(session)


def test_an_interrupt_ends_a_compilation_at_once(session):
    session.run("import puzzles_lib.compiler.lowering as lowering\nfrom puzzles_lib import stages")
    code = f"{kernel(SLOW_TO_COMPILE)}\nstages(kernel, MASKED_ADD, num_warps=2)"
    answer = session.run(f"lowering.SECONDS = 120\n{code}", interrupt_after=2)
    assert answer.seconds < AT_ONCE_S
    assert "KeyboardInterrupt" in str(answer.traceback) and not answer.err
    assert_all_is_well(session)


# ---- TRITON_INTERPRET


def test_with_triton_interpret_set_check_says_what_to_do(tmp_path):
    with opened(PUZZLES_STATE_DIR=str(tmp_path), TRITON_INTERPRET="1") as live:
        answer = live.run("check(sound, MASKED_ADD)")
    assert "TRITON_INTERPRET" in answer.out and "unset it and restart" in answer.out
    assert not answer.traceback and not answer.err and len(answer.out.splitlines()) <= 3


def test_triton_interpret_set_later_does_no_harm(session):
    try:
        session.run("os.environ['TRITON_INTERPRET'] = '1'")
        assert_all_is_well(session)  # a kernel from before
        again = SET_UP.split("\n\n")[1]
        answer = session.run(f"{again}\ncheck(sound, MASKED_ADD)")
        assert not answer.traceback and not answer.err
        assert "all 6 cases pass" in answer.out or "TRITON_INTERPRET" in answer.out
    finally:
        session.run("del os.environ['TRITON_INTERPRET']")
        session.run(SET_UP.split("\n\n")[1])
    assert_all_is_well(session)
