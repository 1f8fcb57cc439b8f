"""Set-up: what `make` does before anything else, and that the files it reads agree with each other.

`.setup/venv.sh` runs here on a copy of its inputs, with a Python, a pip and a uname that only pretend.
"""

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from pathlib import Path
from typing import IO

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from puzzles_lib import versions
from tests import browser
from tests.conftest import REPO, pytest_xdist_auto_num_workers
from tests.environment import new_environment, run

PROJECT = tomllib.loads((REPO / "pyproject.toml").read_text())["project"]
LIBRARY = [Requirement(line) for line in PROJECT["dependencies"]]
COURSE, LAB, DEV = (
    [Requirement(line) for line in PROJECT["optional-dependencies"][extra] if PROJECT["name"] not in line]
    for extra in ("course", "lab", "dev")
)
TRITON_PIN = next(str(r.specifier).removeprefix("==") for r in COURSE if r.name == "triton")
TOOLS = (
    "bash",
    "cat",
    "cut",
    "dirname",
    "env",
    "flock",
    "make",
    "mkdir",
    "rm",
    "sed",
    "sh",
    "sha256sum",
    "sleep",
    "stat",
)

# A Python of any version: runs -c, copies itself for -m venv, and logs -m pip install instead of installing.
FAKE_PYTHON = """\
#!{real} -SE
import os, pathlib, signal, sys, time
VERSION, ENSUREPIP, BASE = {version!r}, {ensurepip!r}, {path!r}
args = [arg for arg in sys.argv[1:] if arg != "-S"]
if args[0] == "-c":
    sys.version_info = (*VERSION, 0, "final", 0)
    sys.executable, sys._base_executable = __file__, BASE
    if not ENSUREPIP:
        sys.modules["ensurepip"] = None
    try:
        exec(args[1])
    except ImportError as error:
        sys.exit(str(error))
elif args[:2] == ["-m", "venv"]:
    folder = pathlib.Path(args[2])
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(pathlib.Path(__file__).read_text())
    (folder / "bin" / "python").chmod(0o755)
elif args[:3] == ["-m", "pip", "install"]:
    with open("pip.log", "a") as log:
        log.write(" ".join(args[3:]) + "\\n")
    behaviour = os.environ.get("FAKE_PIP", "")
    if behaviour == "slow":
        while not os.path.exists("go"):
            time.sleep(0.05)
    elif behaviour == "refuse":
        sys.exit("no network")
    elif behaviour:
        os.kill(os.getppid(), getattr(signal, behaviour))
        time.sleep(0.1)
        sys.exit(1)
    lib = pathlib.Path(".venv/lib/python%d.%d/site-packages" % VERSION)
    (lib / "triton-{pin}.dist-info").mkdir(parents=True, exist_ok=True)
    if "--target" in args:
        uv = pathlib.Path(args[args.index("--target") + 1], "bin", "uv")
        uv.parent.mkdir(parents=True)
        uv.write_text('#!/bin/sh\\necho "uv $*" >>pip.log\\n')
        uv.chmod(0o755)
"""


class Checkout:
    """A copy of the set-up's inputs in `folder`, and a PATH of pretenders and of the tools it needs."""

    def __init__(self, folder: Path):
        self.folder = folder / "checkout"
        self.bin = folder / "bin"
        self.bin.mkdir()
        shutil.copytree(REPO / ".setup", self.folder / ".setup")
        for name in ("pyproject.toml", "Makefile"):
            shutil.copy(REPO / name, self.folder)
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool))
        for name in ("solutions", "tests"):
            (self.folder / name).mkdir()
        self.uname("Linux", "x86_64")
        self.user(os.getuid())

    def tool(self, name: str, script: str) -> None:
        """Put a shell script in the place of a tool."""
        path = self.bin / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def uname(self, system: str, machine: str) -> None:
        self.tool("uname", f'[ "$1" = -s ] && echo {system} || echo {machine}')

    def user(self, number: int) -> None:
        self.tool("id", f"echo {number}")

    def python(self, name: str, version: tuple[int, int], ensurepip: bool = True) -> None:
        path = self.bin / name
        path.write_text(
            FAKE_PYTHON.format(
                real=sys.executable, version=version, ensurepip=ensurepip, path=str(path), pin=TRITON_PIN
            )
        )
        path.chmod(0o755)

    def start(
        self, *command: str, stdout: int | IO[str] = subprocess.PIPE, **environment: str
    ) -> subprocess.Popen:
        return subprocess.Popen(
            command or ("bash", ".setup/venv.sh"),
            cwd=self.folder,
            env={"PATH": str(self.bin), "HOME": str(self.folder), **environment},
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *command: str, **environment: str) -> subprocess.CompletedProcess:
        process = self.start(*command, **environment)
        try:
            out, err = process.communicate(timeout=240)
        finally:
            process.kill()
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    @property
    def log(self) -> list[str]:
        log = self.folder / "pip.log"
        return log.read_text().splitlines() if log.exists() else []

    @property
    def installs(self) -> int:
        return len(self.log)

    @property
    def stamp(self) -> str:
        return (self.folder / ".venv" / ".stamp").read_text().strip()

    @property
    def mark(self) -> Path:
        """A file that is there as long as .venv is not made anew."""
        return self.folder / ".venv" / "mark"


@pytest.fixture
def checkout(tmp_path):
    return Checkout(tmp_path)


@pytest.fixture
def installed(checkout):
    checkout.python("python3", (3, 12))
    ran = checkout.run()
    assert (ran.returncode, ran.stderr, checkout.installs) == (0, "", 1)
    checkout.mark.touch()
    return checkout


def assert_one_line_error(ran, *texts):
    assert ran.returncode == 1
    assert ran.stderr.startswith("error: ") and ran.stderr.count("\n") == 1
    for text in texts:
        assert text in ran.stderr


# Errors, one line each.


def test_wrong_python(checkout):
    checkout.python("python3", (3, 10))
    assert_one_line_error(checkout.run(), "needs Python 3.11 to 3.14, and python3 is 3.10", "make PYTHON=")
    assert not (checkout.folder / ".venv").exists()


@pytest.mark.parametrize("version", [(2, 7), (3, 10), (3, 15)])
def test_wrong_python_asked_for(checkout, version):
    checkout.python("python3", (3, 12))
    checkout.python("mine", version)
    assert_one_line_error(checkout.run(PYTHON="mine"), f"and mine is {version[0]}.{version[1]}")


def test_python_asked_for_is_not_there(checkout):
    checkout.python("python3", (3, 12))
    assert_one_line_error(checkout.run(PYTHON="python3.99"), "PYTHON=python3.99 is not found", "3.11 to 3.14")


def test_no_python_at_all(checkout):
    assert_one_line_error(checkout.run(), "and python3 is missing")


def test_no_venv_module(checkout):
    checkout.python("python3", (3, 12), ensurepip=False)
    assert_one_line_error(checkout.run(), "has no venv module: sudo apt install python3.12-venv")
    assert not (checkout.folder / ".venv").exists()


@pytest.mark.parametrize(
    "system, machine", [("Darwin", "arm64"), ("MINGW64_NT-10.0", "x86_64"), ("Linux", "armv7l")]
)
def test_system_without_triton(checkout, system, machine):
    checkout.python("python3", (3, 12))
    checkout.uname(system, machine)
    assert_one_line_error(
        checkout.run(), f"this is {system} {machine}", "WSL2, a container or a hosted Jupyter"
    )


@pytest.mark.parametrize("version", ["3.8.0", None])
def test_another_triton(installed, version):
    lib = installed.folder / ".venv/lib/python3.12/site-packages"
    pinned = lib / f"triton-{TRITON_PIN}.dist-info"
    pinned.rename(lib / f"triton-{version}.dist-info") if version else pinned.rmdir()
    (lib / "triton_viz-3.0.dist-info").mkdir()
    says = f".venv has triton {version or '(none)'}, the course needs {TRITON_PIN}: "
    assert_one_line_error(installed.run(), says, f"run .venv/bin/pip install triton=={TRITON_PIN}")


def test_another_users_venv_is_refused_before_anything_is_removed(installed):
    """As when a class shares a checkout, and one cannot run the teacher's Python, or it is out of date."""
    installed.user(os.getuid() + 1)
    assert installed.run().stderr == ""  # up to date: it may be used
    (installed.folder / ".venv/bin/python").unlink()
    assert_one_line_error(
        installed.run(), ".venv is another user's", "copy the course to a folder of your own"
    )
    assert installed.mark.exists() and installed.installs == 1


def test_clean_leaves_another_users_venv(installed):
    installed.user(os.getuid() + 1)
    ran = installed.run("make", "clean")
    assert ran.returncode == 2 and ran.stderr.startswith("error: .venv is another user's: nothing is removed")
    assert installed.mark.exists()


def test_folder_that_is_not_writable(checkout):
    checkout.python("python3", (3, 12))
    checkout.tool("mkdir", 'echo "mkdir: cannot create directory" >&2; exit 1')
    assert_one_line_error(checkout.run(), f"{checkout.folder} is not writable for you: copy the course")


def test_make_passes_the_error_on(checkout):
    checkout.python("python3", (3, 10))
    ran = checkout.run("make", "test")
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.startswith("error: the course needs Python") and len(ran.stderr.splitlines()) == 2


# What is installed when.


LINES = "--no-compile --progress-bar off"  # without a terminal: a line for each package


def test_lab_installs_what_a_learner_needs_and_test_adds_the_tools(installed):
    assert installed.log == [f"{LINES} --editable .[lab]"]
    ran = installed.run()
    assert (ran.returncode, ran.stdout, ran.stderr, installed.installs) == (0, "", "", 1)
    assert installed.run("make", "tools").returncode == 0
    assert installed.log[1:] == [f"{LINES} --editable .[dev]"] and installed.mark.exists()
    assert (installed.run().stdout, installed.run("make", "tools").stdout, installed.installs) == ("", "", 2)


@pytest.mark.parametrize("missing", ["solutions", "tests"])
def test_a_hand_out_installs_what_the_notebooks_need_and_makes_nothing_else(checkout, missing):
    checkout.python("python3", (3, 12))
    (checkout.folder / missing).rmdir()
    assert checkout.run("make", "venv").returncode == 0
    assert checkout.log == [f"{LINES} --editable .[lab]"]
    for target in ("test", "lint", "notebooks", "handout", "nbgrader", "gradescope", "explorer"):
        ran = checkout.run("make", target)
        assert ran.returncode == 2 and f"without what make {target} needs" in ran.stderr.splitlines()[0]


def test_torch_without_cuda_is_installed_first_by_uv_which_goes_again(checkout):
    checkout.python("python3", (3, 12))
    assert checkout.run("make", "venv", "TORCH=cpu").returncode == 0
    get_uv, uv, course = checkout.log
    assert get_uv == f"{LINES} --target .venv/uv uv" and course == f"{LINES} --editable .[lab]"
    pin = next(str(r) for r in COURSE if r.name == "torch")
    assert uv == f"uv pip install --python .venv/bin/python --torch-backend cpu --no-deps {pin}"
    assert not (checkout.folder / ".venv/uv").exists()
    assert checkout.run("make", "venv").stdout == ""


def test_another_torch_is_refused_by_name(checkout):
    checkout.python("python3", (3, 12))
    assert_one_line_error(checkout.run(TORCH="rocm"), "TORCH=rocm: the only choice is TORCH=cpu")
    assert not (checkout.folder / ".venv").exists()


ROOT = ["--allow-root"] if os.getuid() == 0 else []


@pytest.mark.skipif(not ROOT, reason="only root has to say so")
def test_root_is_told_what_to_type(checkout):
    (checkout.folder / ".venv/bin").mkdir(parents=True)
    (checkout.folder / ".venv/bin/python").symlink_to("/bin/true")
    told = checkout.run("bash", ".setup/lab.sh", TMPDIR=str(checkout.folder))
    assert told.stderr == "As root, run make lab JUPYTER_ARGS=--allow-root\n"
    assert checkout.run("bash", ".setup/lab.sh", *ROOT, TMPDIR=str(checkout.folder)).stderr == ""


def test_lab_keeps_its_sockets_in_a_private_folder(checkout):
    """Whatever the home is like; and its own Jupyter's Python runs it."""
    (checkout.folder / ".venv/bin").mkdir(parents=True)
    (checkout.bin / "mktemp").symlink_to(shutil.which("mktemp"))
    python = checkout.folder / ".venv/bin/python"
    python.write_text(
        '#!/bin/sh\necho "$@"\n[ "$3" = trust ] && echo "$@" > trusted\n'
        'stat -c %a "$JUPYTER_RUNTIME_DIR"\necho "$JUPYTER_RUNTIME_DIR"\n'
    )
    python.chmod(0o755)
    nowhere = checkout.folder / "nowhere"

    def folder(**given: str) -> Path:
        ran = checkout.run(
            "bash", ".setup/lab.sh", "--port", "9999", *ROOT, TMPDIR=str(checkout.folder), **given
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert (checkout.folder / "trusted").read_text().startswith("-m jupyter trust notebooks/")
        command, mode, folder = ran.stdout.splitlines()
        assert command.startswith(
            "-m jupyter lab --KernelManager.transport=ipc --LabApp.default_url=/lab/tree/"
        )
        assert command.endswith(" ".join([" --port 9999", *ROOT])) and mode == "700"
        return Path(folder)

    usual = folder()
    assert usual == folder() == folder(XDG_RUNTIME_DIR=str(checkout.folder))  # the same one again
    given = folder(JUPYTER_RUNTIME_DIR=str(usual))
    assert given == usual
    folder(XDG_RUNTIME_DIR=str(nowhere)).rmdir()
    usual.chmod(0o755)  # as somebody else may have made it
    folder().rmdir()
    assert usual.is_dir() and folder() != usual


def test_a_fitting_python_is_looked_for(checkout):
    checkout.python("python3", (3, 15))
    checkout.python("python3.12", (3, 12))
    assert checkout.run().returncode == 0
    assert checkout.stamp.split()[1] == "3.12"


@pytest.mark.parametrize("name", ["pyproject.toml", ".setup/jupyterlab.json", ".setup/narrow.js"])
def test_changed_inputs_are_installed_in_place(installed, name):
    with open(installed.folder / name, "a") as file:
        file.write("\n")
    assert installed.run().returncode == 0
    assert installed.installs == 2 and installed.mark.exists()
    assert installed.run().stdout == "" and installed.installs == 2


@pytest.mark.parametrize("stop", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_interrupted_install_starts_over(installed, stop):
    with open(installed.folder / "pyproject.toml", "a") as file:
        file.write("\n")
    assert installed.run(FAKE_PIP=stop).returncode in (130, -signal.Signals[stop])
    assert installed.stamp == "incomplete"
    assert installed.run().returncode == 0
    assert not installed.mark.exists()
    assert installed.run().stdout == ""


def test_refusing_pip_is_one_more_line_and_leaves_venv_alone(installed):
    with open(installed.folder / "pyproject.toml", "a") as file:
        file.write("\n")
    ran = installed.run(FAKE_PIP="refuse")
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[0] == "no network"
    assert ran.stderr.splitlines()[1:] == [
        "error: the packages could not be installed, for the reason above (without a network, pip also says "
        '"No matching distribution"); then run make again'
    ]
    assert installed.run().returncode == 0
    assert installed.mark.exists() and installed.installs == 3


def test_half_made_venv_is_made_anew(installed):
    (installed.folder / ".venv/bin/python").unlink()
    assert installed.run().returncode == 0
    assert not installed.mark.exists()


def test_venv_made_by_hand_is_completed_not_removed(installed):
    (installed.folder / ".venv/.stamp").unlink()
    assert installed.run().returncode == 0
    assert installed.mark.exists() and installed.installs == 2


def test_moved_checkout_is_set_up_anew(installed):
    moved = installed.folder.with_name("a new place")
    installed.folder.rename(moved)
    installed.folder = moved
    assert installed.run().returncode == 0
    assert not installed.mark.exists()


def test_another_python_is_kept_until_yet_another_is_asked_for(installed):
    installed.python("python3.13", (3, 13))
    assert installed.run(PYTHON="python3.13").returncode == 0
    assert installed.stamp.split()[1] == "3.13" and not installed.mark.exists()
    assert installed.run().stdout == "" and installed.run(PYTHON="python3.13").stdout == ""
    assert installed.run(PYTHON="python3").returncode == 0
    assert installed.stamp.split()[1] == "3.12"


def test_python_of_the_activated_venv_is_not_built_upon(installed):
    shutil.copy(installed.folder / ".venv/bin/python", installed.folder / ".venv/bin/python3")
    (installed.folder / ".venv/.stamp").write_text("incomplete\n")
    ran = installed.run(PATH=f"{installed.folder}/.venv/bin:{installed.bin}")
    assert (ran.returncode, ran.stderr) == (0, "")


def test_two_makes_at_once_install_once(checkout):
    checkout.python("python3", (3, 12))
    said = checkout.folder / "said"
    with open(said, "w") as out:
        both = [checkout.start(FAKE_PIP="slow", stdout=out) for _ in range(2)]
    end = time.monotonic() + 120
    while "waiting for it" not in said.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    (checkout.folder / "go").touch()  # pip of the one that does not wait goes on
    assert [process.wait(120) for process in both] == [0, 0]
    assert checkout.installs == 1
    assert said.read_text().count("waiting for it") == 1


# The Makefile.


def make(*args, **environment):
    """The lines that make prints, whatever was given to a make that runs this test."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("MAKE") and not k.endswith(("_ARGS", "PYTHON"))
    }
    ran = subprocess.run(
        ["make", "--no-print-directory", *args],
        cwd=REPO,
        env=clean | environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
    )
    return ran.stdout.splitlines()


PYTEST = ".venv/bin/python -m pytest -n auto --dist loadfile"


@pytest.mark.parametrize(
    "args, commands",
    [
        (["lab", "JUPYTER_ARGS=--no-browser --port 9999"], ["bash .setup/lab.sh --no-browser --port 9999"]),
        (["test"], [f"{PYTEST} --no-loadscope-reorder -p no:nbval -p no:logging"]),
        (["lint"], [".venv/bin/ruff check .", ".venv/bin/ruff format --check .", ".venv/bin/mypy"]),
        (["notebooks"], [".venv/bin/python -m puzzles_lib.authoring.release"]),
        (["handout", "HANDOUT_ARGS=01"], [".venv/bin/python -m puzzles_lib.authoring.handout 01"]),
        (["nbgrader"], [".venv/bin/python -m puzzles_lib.authoring.nbgrader"]),
        (["gradescope", "GRADESCOPE_ARGS=01"], [".venv/bin/python -m puzzles_lib.authoring.gradescope 01"]),
    ],
)
def test_targets_set_up_first_and_run_their_command_last(args, commands):
    lines = [line.strip() for line in make("--dry-run", *args)]
    assert lines[0] == f"bash .setup/venv.sh{'' if args[0] == 'lab' else ' dev'}"
    assert lines[1:] == commands


@pytest.mark.parametrize(
    "cores, gigabytes, workers", [(2, 16, 3), (16, 64, 17), (8, 8, 4), (2, 3, 2), (1, 16, 2)]
)
def test_tests_run_on_all_cores_as_far_as_memory_goes(monkeypatch, cores, gigabytes, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(cores)))
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": gigabytes << 18, "SC_PAGE_SIZE": 4096}.get)
    assert pytest_xdist_auto_num_workers() == workers


def test_triton_interpret_does_not_reach_the_commands():
    lines = make("--eval", 'show: ; @echo "[$$TRITON_INTERPRET]"', "show", TRITON_INTERPRET="1")
    assert lines == ["[]"]


# The files agree.


def test_every_dependency_of_the_course_has_one_exact_pin():
    pinned = [r.name for r in COURSE + LAB + DEV if re.fullmatch(r"==[0-9.]+", str(r.specifier))]
    assert len(pinned) == len(set(pinned))
    assert {r.name for r in COURSE + LAB + DEV} == set(pinned)


def test_the_library_asks_for_torch_and_triton_in_ranges_that_hold_the_pins():
    assert {r.name for r in LIBRARY} == {"torch", "triton"}
    pins = {r.name: str(r.specifier).removeprefix("==") for r in COURSE}
    for requirement in LIBRARY:
        assert not str(requirement.specifier).startswith("==")
        assert requirement.specifier.contains(pins[requirement.name])


def test_each_extra_brings_the_one_below():
    extras = PROJECT["optional-dependencies"]
    assert "triton-bit-by-bit[course]" in extras["lab"] and "triton-bit-by-bit[lab]" in extras["dev"]


def test_in_anothers_jupyter_what_it_runs_on_is_left_alone():
    ranges = {r.name for r in COURSE if not str(r.specifier).startswith("==")}
    assert ranges == {r.name for r in COURSE} & {r.name for r in LAB} == {"platformdirs", "Pygments"}


def test_installed_versions_are_the_pinned_ones():
    for requirement in LIBRARY + COURSE + LAB + DEV:
        installed_version = Version(importlib.metadata.version(requirement.name))
        assert requirement.specifier.contains(installed_version.public), requirement.name


def test_environment_yml_installs_this_package_and_pins_nothing_else():
    environment = yaml.safe_load((REPO / "environment.yml").read_text())
    assert environment["name"] == PROJECT["name"]
    python, pip, pip_installs = environment["dependencies"]
    assert pip == "pip" and pip_installs == {"pip": ["-e .[dev]"]}
    version = re.fullmatch(r"python=(3\.\d+)", python).group(1)
    assert SpecifierSet(PROJECT["requires-python"]).contains(version)


def test_the_image_installs_before_it_has_the_notebooks_and_is_a_hand_out(checkout):
    """The Dockerfile's steps, with a pip that pretends: what is copied last does not install anew."""
    lines = (REPO / "Dockerfile").read_text().splitlines()
    python = re.fullmatch(
        r"FROM python:(3\.\d+)-\S+ AS base", next(line for line in lines if "FROM" in line)
    )[1]
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    steps = [line for line in lines if line.startswith(("COPY", "RUN make"))]
    before, after = steps[: steps.index("RUN make venv")], steps[steps.index("RUN make venv") + 1 :]
    assert after == ["COPY --chown=learner . ."]
    shutil.rmtree(checkout.folder)
    for step in before:
        *sources, target = step.split()[2:]
        for source in sources:
            into = checkout.folder / target
            copy = shutil.copytree if (REPO / source).is_dir() else shutil.copy
            (into if copy is shutil.copy else into.parent).mkdir(parents=True, exist_ok=True)
            copy(REPO / source, into)
    checkout.python("python3", tuple(map(int, python.split("."))))
    assert checkout.run("make", "venv").returncode == 0 and checkout.installs == 1
    ignored = (REPO / ".dockerignore").read_text().split()
    assert {"solutions", "tests", ".git", ".venv"} <= set(ignored)
    shutil.copytree(REPO / "puzzles_lib", checkout.folder / "puzzles_lib", dirs_exist_ok=True)
    assert checkout.run("make", "venv").stdout == "" and checkout.installs == 1


def test_the_dev_container_and_the_workflow_run_what_make_gives():
    container = json.loads((REPO / ".devcontainer/devcontainer.json").read_text())
    assert container["postCreateCommand"] == "make venv TORCH=cpu" and container["build"]["target"] == "base"
    workflow = yaml.safe_load((REPO / ".github/workflows/ci.yml").read_text())
    job = workflow["jobs"]["test"]
    assert job["steps"][-1]["run"] == ".ci/run" and os.access(REPO / ".ci/run", os.X_OK)
    assert job["env"] == {"PYTHON": "python${{ matrix.python }}", "TORCH": "cpu"}
    supported = [f"3.{minor}" for minor in range(20)]
    allowed = SpecifierSet(PROJECT["requires-python"])
    assert job["strategy"]["matrix"]["python"] == [each for each in supported if allowed.contains(each)]


def test_once_a_week_the_newest_supported_triton_and_the_newest_are_tried():
    workflow = yaml.safe_load((REPO / ".github/workflows/weekly.yml").read_text())
    assert "schedule" in workflow[True]  # YAML reads "on" as true
    job = workflow["jobs"]["test"]
    assert job["steps"][-1]["run"] == "make test-with" and job["env"]["TRITON"] == "${{ matrix.triton }}"
    (default,) = re.findall(r"^TRITON \?= (.+)$", (REPO / "Makefile").read_text(), re.MULTILINE)
    assert job["strategy"]["matrix"]["triton"] == [default, "newest"]
    assert Version(default).release[:2] == versions.NEWEST


@pytest.mark.workflow
def test_a_linter_finds_nothing_in_the_workflows(tmp_path):
    zizmor = new_environment(tmp_path / "venv", "zizmor").with_name("zizmor")
    ran = run(zizmor, "--offline", "--no-progress", REPO / ".github/workflows")
    assert ran.returncode == 0 and "No findings" in ran.stdout + ran.stderr, ran.stdout


def test_what_the_course_imports_it_depends_on():
    home = importlib.metadata.packages_distributions()
    for path in sorted((REPO / "puzzles_lib").rglob("*.py")):
        part = path.relative_to(REPO / "puzzles_lib").parts[0]
        # Only pytest itself imports its plugin.
        needs = {"authoring": COURSE + DEV, "kernels": LIBRARY, "pytest_plugin.py": COURSE + LAB}
        needs = needs.get(part, COURSE)
        declared = {requirement.name for requirement in needs}
        compared = {  # with other libraries, where they are installed; matplotlib brings pillow
            "beside.py": {"liger_kernel", "torchao", "transformers"},
            "glyphs.py": {"PIL"},
        }.get(path.name, set())
        for name in _imports(path) - sys.stdlib_module_names - {"puzzles_lib"} - compared:
            assert declared & set(home.get(name, [])), f"{path.relative_to(REPO)} imports {name}"


def _imports(path):
    """The top-level names that a file imports."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module.split(".")[0])
    return names


def test_jupyterlab_asks_for_no_news(tmp_path):
    from jupyterlab.commands import get_app_dir
    from jupyterlab_server.settings_utils import get_settings

    wanted = json.loads((REPO / ".setup/jupyterlab.json").read_text())
    (plugin,) = wanted
    share = Path(get_app_dir())
    settings, _ = get_settings(share / "settings", share / "schemas", tmp_path, schema_name=plugin)
    defaults = {key: value["default"] for key, value in settings["schema"]["properties"].items()}
    assert wanted[plugin] == {"fetchNews": "false", "checkForUpdates": False}
    assert defaults.items() >= wanted[plugin].items()


def _tracked_texts():
    """(name, text) of every tracked text file."""
    if not (REPO / ".git").exists():
        pytest.skip("not a git checkout")
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=REPO, capture_output=True, text=True, check=True, timeout=240
    ).stdout
    for name in listing.split("\0"):
        path = REPO / name
        if name and path.is_file():
            try:
                yield name, path.read_text("utf-8")
            except UnicodeDecodeError:
                continue


REGISTRIES = re.compile(
    r"(?<![\w.])(pypi|files\.pythonhosted|pythonhosted|conda\.anaconda|anaconda|registry\.npmjs|download\.pytorch)"
    r"\.(org|com|io)\b"
)
MACHINE_PATHS = re.compile(r"(?<![\w.:/~-])/(root|home|work|farm|Users)/\w|(?<![\w.:/~-])/tmp/[a-z]")


@pytest.mark.parametrize("pattern", [REGISTRIES, MACHINE_PATHS], ids=["registry", "path of a machine"])
def test_no_tracked_file_names_a(pattern):
    found = [f"{name}: {match.group()}" for name, text in _tracked_texts() if (match := pattern.search(text))]
    assert found == []


@pytest.mark.parametrize(
    "pattern, text",
    [
        (REGISTRIES, "//pypi" + ".org/simple"),
        (REGISTRIES, "--index-url download." + "pytorch.org/whl"),
        (MACHINE_PATHS, 'File "/' + 'home/ann/x.py"'),
        (MACHINE_PATHS, " /" + "tmp/ipykernel_1/2.py"),
    ],
)
def test_the_patterns_find_what_they_should(pattern, text):
    assert pattern.search(text)


# ---- a browser is not needed


def test_without_chromium_or_playwright_tests_in_a_browser_are_skipped_with_the_reason(monkeypatch):
    monkeypatch.setattr(browser.shutil, "which", lambda name: None)
    reasons = {browser.missing()}
    monkeypatch.setitem(sys.modules, "playwright.sync_api", None)
    reasons.add(browser.missing())
    playwright_is_there = importlib.util.find_spec("playwright") is not None
    chromium = {"needs chromium, by apt or the like"} if playwright_is_there else set()
    assert reasons == {"needs playwright: pip install -e '.[dev]'"} | chromium
