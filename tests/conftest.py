"""For every test: progress and IPython's profile of its own, no TRITON_INTERPRET, gpu tests where one is.

torch computes on one thread, here and in the processes that tests start: where each worker has as many as
there are cores, they spend more time waiting for each other (spinning, in OpenMP) than computing.

For all of them, in CI: they leave nothing in the checkout.
"""

import faulthandler
import gc
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ["OMP_NUM_THREADS"] = "1"  # read once, when torch is imported

from tests import warm_compiler
from tests.browser import (  # noqa: F401  fixtures
    _blank_pages,
    browser,
    lab,
    missing,
    open_html,
    open_notebook,
    open_page,
)
from tests.other_triton import difference, installed

sys.modules["rfc3987_syntax"] = None  # an optional part of jsonschema that takes two seconds to import

REPO = Path(__file__).resolve().parent.parent

# The files that take longest come first, so that no worker is left alone with one at the end.
LONGEST = (
    "test_solutions.py",
    "test_wrong_kernels.py",
    "test_notebooks.py",
    "test_right_kernels.py",
    "test_stages.py",
    "test_survival.py",
    "test_grading.py",
    "test_interrupts.py",
)

NEW_PROCESSES = ("test_stages.py", "test_survival.py")
"""The files whose tests end the compiler's processes, or see what these may do."""

_tests = itertools.count()


@pytest.fixture
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where this test's progress is kept; not made yet, since most tests keep none."""
    return tmp_path_factory.getbasetemp() / f"puzzles-state-{next(_tests)}"


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch, state_dir: Path) -> None:
    monkeypatch.setenv("PUZZLES_STATE_DIR", str(state_dir))
    monkeypatch.setenv("IPYTHONDIR", f"{state_dir}-ipython")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)


@pytest.fixture
def kernel_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Puts a command in the place of Jupyter's Python kernel."""

    def use(*command: str) -> None:
        folder = tmp_path / "jupyter" / "kernels" / "python3"
        folder.mkdir(parents=True)
        spec = {"argv": command, "display_name": "Python 3", "language": "python"}
        (folder / "kernel.json").write_text(json.dumps(spec))
        monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))

    return use


@pytest.fixture(autouse=True)
def _own_numbers() -> None:
    """What a test draws does not depend on the tests before it, which xdist hands out by chance."""
    if torch := sys.modules.get("torch"):  # two seconds, so not where a test has no need of it
        # What there is no device for, `torch.manual_seed` notes for later, each time with the stack.
        (torch if torch.cuda.is_available() else torch.default_generator).manual_seed(0)
    if "puzzles_lib.compiler.frontend" in sys.modules:  # nor what it asks of the front end
        sys.modules["puzzles_lib.compiler.frontend"].forget()


@pytest.fixture(autouse=True)
def _warm_compiler(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compile in forks of a process that has imported Triton, except where processes are what is tested."""
    lowering = sys.modules.get("puzzles_lib.compiler.lowering")
    if lowering and request.path.name not in NEW_PROCESSES:
        monkeypatch.setattr(lowering, "subprocess", warm_compiler)


@pytest.fixture
def own_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """Children are forked from this process, and so have what a test has put in the place of something."""
    from puzzles_lib.translator import nursery

    monkeypatch.setattr(nursery, "fork", lambda *work: None)


@pytest.fixture
def two_threads() -> Iterator[None]:
    """Where a test asks whether torch's threads are as many as before: one is what is set for a time."""
    import torch

    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def _untracked() -> set[str]:
    """The files in the checkout that git neither tracks nor ignores; none where it is no checkout."""
    command = ["git", "ls-files", "--others", "--exclude-standard", "-z"]
    try:
        listing = subprocess.run(command, cwd=REPO, capture_output=True, text=True).stdout
    except OSError:  # no git
        return set()
    return set(filter(None, listing.split("\0")))


# What takes minutes.
ON_REQUEST = ("wheel", "nbgrader", "classroom", "torchrun", "workflow", "site", "libraries")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if any(item.get_closest_marker(name) for name in ON_REQUEST):
        faulthandler.cancel_dump_traceback_later()  # it would end these before they are done


_running: dict[str, float] = {}  # the tests at work, on all workers, and since when


def pytest_runtest_logstart(nodeid: str) -> None:
    _running[nodeid] = time.monotonic()


def pytest_runtest_logfinish(nodeid: str) -> None:
    _running.pop(nodeid, None)


_BEFORE = pytest.StashKey[set[str]]()
_LEFT = pytest.StashKey[list[str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are cores, because tests wait for other processes a quarter of their time.

    At least two, and each takes up to 2 GB, its kernels included.
    """
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return max(2, min(len(os.sched_getaffinity(0)) + 1, memory >> 31))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """xdist's own would run a test that hung or crashed again on the next worker, and again on a third."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Once(LoadFileScheduling):
        def remove_node(self, node: Any) -> str | None:
            """Return the test that ended the worker; the tests after it are left for others."""
            for unit in self.assigned_work[node].values():
                for test in (test for test, done in unit.items() if not done):
                    unit[test] = True
                    super().remove_node(node)
                    return test
            return super().remove_node(node)

    return Once(config, log)


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a script's `make test &`
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Let tests that `other_triton` names fail as it says, with the Triton that it says, and not pass."""
    if (different := difference(pyfuncitem.nodeid)) is None:
        return (yield)
    try:
        yield
    except Exception as error:
        if not re.search(different.words, str(error)):
            raise
        pytest.xfail(different.why)
    pytest.fail(f"it passes with Triton {installed()}: take it out of tests/other_triton.py")


def pytest_sessionstart(session: pytest.Session) -> None:
    # Not in xdist's workers, where the others' tests are at work, nor where somebody writes files meanwhile.
    if os.environ.get("CI") and not hasattr(session.config, "workerinput"):
        session.config.stash[_BEFORE] = _untracked()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    stash = session.config.stash
    left = sorted(_untracked() - stash[_BEFORE]) if _BEFORE in stash else []
    if left and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    stash[_LEFT] = left


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, since in _running.items():  # where the run is interrupted or a worker ended
        terminalreporter.write_line(f"not finished after {time.monotonic() - since:.0f} s: {name}")
    for name in config.stash.get(_LEFT, []):
        terminalreporter.write_line(f"FAILED: left in the checkout while the tests ran: {name}", red=True)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None]:
    """What is collected stays: to look through it for garbage, now and in each fork, costs a tenth of all.

    What tests make is looked through less often, too: most of it is gone without that.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.set_threshold(20_000, 50, 100)
        gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--wheel", action="store_true", help="build the wheel and run the notebooks with it")
    parser.addoption("--nbgrader", action="store_true", help="install nbgrader somewhere, and grade with it")
    parser.addoption("--classroom", action="store_true", help="grade a class of hostile submissions, twice")
    parser.addoption("--torchrun", action="store_true", help="train by torchrun, and kill a rank")
    parser.addoption("--libraries", action="store_true", help="train models of transformers, timm and peft")
    parser.addoption("--workflow", action="store_true", help="install a linter for .github/ and run it")
    parser.addoption("--site", action="store_true", help="build the website, and read it in Chromium")
    parser.addoption("--browser", action="store_true", help="drive JupyterLab in Chromium, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    place = {name: number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.name, len(place)))
    for name in ON_REQUEST:
        if not config.getoption(f"--{name}"):
            for item in items:
                if item.get_closest_marker(name):
                    item.add_marker(pytest.mark.skip(reason=f"takes minutes: give --{name}"))
    for item in [item for item in items if item.get_closest_marker("browser")]:
        reason = missing()
        if not reason and "lab" in item.fixturenames and not config.getoption("--browser"):
            reason = "takes minutes: give --browser"
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if not gpu_items:
        return
    import torch  # two seconds, so only where a test asks for it

    if not torch.cuda.is_available():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
