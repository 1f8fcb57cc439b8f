"""The tests of the library, as text, and what ``pytest --audit`` says of them."""

import importlib.util
import inspect
import os
import re
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest import mock

from triton.runtime.jit import JITFunction

from puzzles_lib.auditor import audited
from puzzles_lib.chapters.ch21_your_own_kernel import library

TESTS = """
import torch
from kernels import add_rms_norm, argmax, cross_entropy, paged_copy
from torch.nn import functional as F


def test_add_rms_norm():
    x, residual = torch.randn(2, 4, 100, device="cuda")
    w = torch.randn(100, device="cuda")
    wanted = F.rms_norm(x + residual, (100,), w, eps=1e-6)
    add_rms_norm(x, residual, w)
    torch.testing.assert_close(x, wanted)


def test_paged_copy():
    pages = torch.randn(6, 8, 40, device="cuda")
    table = torch.tensor([4, 1], dtype=torch.int32, device="cuda")
    wanted = pages[table].flatten(0, 1)
    torch.testing.assert_close(paged_copy(pages, table, 16), wanted)


def test_cross_entropy():
    logits = torch.randn(5, 100, device="cuda")
    labels = torch.tensor([3, 0, 99, 50, 7], device="cuda")
    wanted = F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, labels), wanted)


def test_argmax():
    x = torch.randn(5, 100, device="cuda")
    torch.testing.assert_close(argmax(x), x.argmax(1))
"""
"""They pass: one test for each function, on ordinary inputs."""

HARDER = """

def test_paged_copy_ends_within_a_page():
    pages = torch.randn(6, 8, 40, device="cuda")
    table = torch.tensor([4, 1, 5], dtype=torch.int32, device="cuda")
    wanted = pages[table].flatten(0, 1)[:19]
    torch.testing.assert_close(paged_copy(pages, table, 19), wanted)


def test_cross_entropy_of_a_slice():
    logits = torch.randn(5, 128, device="cuda")[:, :100]
    labels = torch.tensor([3, 0, 99, 50, 7], device="cuda")
    wanted = F.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(cross_entropy(logits, labels), wanted)


def test_argmax_of_negative_numbers():
    x = -torch.rand(5, 100, device="cuda")
    torch.testing.assert_close(argmax(x), x.argmax(1))
"""
"""Three more, on harder inputs. Two of them fail."""

SECONDS = 300.0  # until pytest is stopped

_HEAD = f"""import torch
import triton
import triton.language as tl
from torch import Tensor
from {__package__}.library import *
"""
_OUTCOME = re.compile(r"^test_kernels\.py::(\w+) (PASSED|FAILED|ERROR)", re.MULTILINE)
_HEADING = re.compile(r"^_{3,} (\w+) _{3,}$")
_SECTION = re.compile(r"^-{3,} (.+) -{3,}$")
_AUDIT = "Captured audit call"


@dataclass(frozen=True)
class Suite:
    """What pytest says of the tests. tests: each by name, with whether it passes and why not."""

    command: str
    tests: dict[str, tuple[bool, list[str]]]
    launches: str
    error: str = ""

    @property
    def passed(self) -> int:
        return sum(ok for ok, _ in self.tests.values())

    def __repr__(self) -> str:
        lines = [f"$ {self.command}"]
        for name, (ok, why) in self.tests.items():
            lines.append(f"{'pass' if ok else 'FAIL'}  {name}")
            lines += [f"      {line}" for line in why]
        return "\n".join([*lines, self.error or self.launches])


def run(tests: str, *functions: object) -> Suite:
    """Run tests with ``pytest --audit``, in a folder of their own.

    tests: the text of a file of tests, such as `TESTS`. functions: kernels and wrappers of yours, which take
    the place of the library's functions of the same names.
    """
    command = "pytest --audit test_kernels.py"
    if importlib.util.find_spec("pytest") is None:
        return Suite(
            command, {}, "", "pytest isn't installed here. Run %pip install pytest, and this cell again."
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "kernels.py").write_text("\n\n".join([_HEAD, *map(_source, functions)]))
        (folder / "test_kernels.py").write_text(tests)
        (folder / "pytest.ini").write_text("[pytest]\n")
        packages = str(Path(__file__).parents[3])
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST_", "COV_"))}
        environment |= {
            "NO_COLOR": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",  # otherwise the installed plugin would be there twice
            "PYTHONPATH": os.pathsep.join(filter(None, [name, packages, os.environ.get("PYTHONPATH", "")])),
        }
        try:
            done = subprocess.run(
                [
                    *(sys.executable, "-m", "pytest", "-p", "puzzles_lib.pytest_plugin", "--audit"),
                    *("-p", "no:cacheprovider", "-v", "--tb=short", "test_kernels.py"),
                ],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return Suite(command, {}, "", f"pytest was stopped after {SECONDS:.0f} seconds.")
    return _read(command, done.stdout, done.stderr)


def _source(function: object) -> str:
    if isinstance(function, JITFunction):
        return "@triton.jit\n" + textwrap.dedent(function.src)
    return textwrap.dedent(inspect.getsource(function))


def _read(command: str, out: str, err: str) -> Suite:
    """Return what pytest printed, without times, paths and tracebacks."""
    raised: dict[str, list[str]] = {}
    found: dict[str, list[str]] = {}
    name = section = ""
    for line in out.splitlines():
        if heading := _HEADING.match(line):
            name, section = heading[1], ""
        elif heading := _SECTION.match(line):
            section = heading[1]
        elif line.startswith("="):
            name = ""
        elif line.startswith("E   ") and line[4:].strip():
            raised.setdefault(name, []).append(line[4:])
        elif section == _AUDIT and line.strip():
            found.setdefault(name, []).append(line)
    tests = {
        test: (outcome == "PASSED", found.get(test) or raised.get(test, [])[:2])
        for test, outcome in _OUTCOME.findall(out)
    }
    launches = next((line for line in out.splitlines() if " launches in " in line), "")
    error = "" if tests else f"pytest ran no test: {(out + err).strip()[-400:]}"
    return Suite(command, tests, launches, error)


def passed(tests: str) -> int:
    """Return how many tests of the library pass if each launch is audited, without starting pytest."""
    names = vars(library)
    stand_in = ModuleType("kernels")
    vars(stand_in).update({name: value for name, value in names.items() if not name.startswith("_")})
    space: dict[str, object] = {}
    with mock.patch.dict(sys.modules, kernels=stand_in):
        exec(tests, space)
    count = 0
    for name, test in space.items():
        if name.startswith("test_") and callable(test):
            with audited(device="cuda") as report:
                try:
                    test()
                except AssertionError:
                    continue
            count += report.ok
    return count
