"""The package: its names, its version, and what it says where torch or Triton are other ones."""

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
import types
import warnings
from pathlib import Path

import pytest

import puzzles_lib
import puzzles_lib.kernels
from tests.conftest import REPO

METADATA = [
    "torch>=2.9",
    "triton>=3.6",
    'torch==2.13.0; extra == "course"',
    "triton==3.7.1; extra == 'course'",
    'jaxtyping==0.3.11; extra == "course"',
    'mypy==2.4.1; extra == "dev"',
]


@pytest.fixture
def installed(monkeypatch):
    """Pretend that these versions are installed, and that nothing was asked so far."""
    versions = {"torch": "2.13.0+cpu", "triton": "3.7.1", "jaxtyping": "0.3.11"}

    def version(name: str) -> str:
        if name not in versions:
            raise importlib.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(importlib.metadata, "requires", lambda name: METADATA)
    monkeypatch.setattr(importlib.metadata, "version", version)
    puzzles_lib._warn_of_another_triton.cache_clear()
    yield versions
    puzzles_lib._warn_of_another_triton.cache_clear()


@pytest.fixture
def broken(monkeypatch):
    """A module of the course that asks Triton for a name that it has not."""
    monkeypatch.setitem(puzzles_lib._HOME, "check", "puzzles_lib.no_such_module")
    monkeypatch.delitem(vars(puzzles_lib), "check", raising=False)


def test_importing_it_needs_nothing():
    code = "import sys, puzzles_lib.kernels; print({'torch', 'triton', 'numpy'} & sys.modules.keys())"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=240
    )
    assert ran.stdout == "set()\n"


def test_its_version_is_the_newest_release_of_the_changelog():
    changelog = (REPO / "CHANGELOG.md").read_text()
    assert re.findall(r"^## \[([\d.]+)\]", changelog, re.MULTILINE)[0] == puzzles_lib.__version__


def test_another_triton_is_one_sentence(installed, broken):
    installed["triton"] = "3.8.0"
    with pytest.raises(ImportError) as raised:
        _ = puzzles_lib.check
    assert str(raised.value) == (
        "the course needs triton 3.7.1, but finds triton 3.8.0: run pip install triton==3.7.1 "
        "in an environment of its own"
    )
    assert raised.value.__cause__ is None and raised.value.__context__ is None


def test_the_library_without_the_course_says_what_is_missing(installed, broken):
    del installed["jaxtyping"]
    installed["torch"] = "2.14.1"
    with pytest.raises(
        ImportError, match="needs torch 2.13.0 and jaxtyping 0.3.11, but finds torch 2.14.1 and"
    ):
        _ = puzzles_lib.check


def test_a_mistake_of_ours_stays_what_it_is(installed, broken):
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        _ = puzzles_lib.check


def test_another_triton_that_can_be_imported_is_warned_of_once(installed, monkeypatch):
    monkeypatch.setitem(puzzles_lib._HOME, "check", "types")
    monkeypatch.setattr(types, "check", "it", raising=False)
    installed["triton"] = "3.6.0"
    told = "does not support Triton 3.6.0, only Triton 3.7 to 3.9: run pip install triton==3.7.1"
    monkeypatch.setitem(vars(puzzles_lib), "check", None)  # so that what is there now comes back
    with pytest.warns(UserWarning, match=told) as caught:
        for _ in range(2):
            del vars(puzzles_lib)["check"]
            assert puzzles_lib.check == "it"
    assert len(caught) == 1 and caught[0].filename == __file__


def test_a_newer_triton_is_warned_of(installed, monkeypatch):
    monkeypatch.delitem(vars(puzzles_lib), "Case", raising=False)
    installed["triton"] = "3.10.0"
    with pytest.warns(UserWarning, match="tested with Triton 3.7 to 3.9, but this is Triton 3.10.0: run pip"):
        assert puzzles_lib.Case is not None


@pytest.mark.parametrize("version", ["3.7.1", "3.8.0", "3.9.0"])
def test_the_supported_ones_are_not_warned_of(installed, monkeypatch, version):
    installed["triton"] = version
    monkeypatch.delitem(vars(puzzles_lib), "Case", raising=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert puzzles_lib.Case is not None


def test_a_folder_on_the_path_is_no_package(monkeypatch):
    def requires(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert puzzles_lib._unpinned() == {}


@pytest.mark.parametrize("name", puzzles_lib.kernels.__all__)
def test_the_kernels_names_are_functions_and_classes(name):
    home = importlib.import_module(f"puzzles_lib.kernels.{puzzles_lib.kernels._HOME[name]}")
    value = getattr(puzzles_lib.kernels, name)
    assert value is getattr(home, name) and not isinstance(value, types.ModuleType)
    assert value.__doc__ and name in dir(puzzles_lib.kernels)


def test_type_checkers_see_the_same_names():
    stub = ast.parse(Path(puzzles_lib.kernels.__file__).with_suffix(".pyi").read_text())
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    seen = {alias.asname: node.module.rpartition(".")[2] for node in imports for alias in node.names}
    assert seen == puzzles_lib.kernels._HOME


def test_a_submodule_is_imported_by_its_name_and_nothing_else_is_there():
    from puzzles_lib.kernels import sharing

    assert isinstance(sharing, types.ModuleType)
    with pytest.raises(AttributeError, match="module 'puzzles_lib.kernels' has no attribute 'pack'"):
        _ = puzzles_lib.kernels.pack
