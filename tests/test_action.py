"""The GitHub Action: its steps are run as a runner runs them, in a folder with a user's kernels alone."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.environment import new_environment, run

ROOT = Path(__file__).parent.parent
ACTION = yaml.safe_load((ROOT / "action.yml").read_text())
STEPS = {step["name"]: step for step in ACTION["runs"]["steps"]}

KERNELS = """
import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(X, Z, n, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(Z + i, tl.load(X + i, mask=i < n, other=0.0), mask=i < n if MASKED else None)


def copied(x, masked=True):
    z = torch.empty_like(x)
    copy_kernel[(triton.cdiv(len(x), 32),)](x, z, len(x), masked, BLOCK=32)
    return z


def overrun(x):
    return copied(x, masked=False)


def inputs():
    return (torch.ones(100),)


def doubled(x):
    return 2 * x
"""


def evaluated(text: str, given: dict[str, str]) -> str:
    """Return a value of the file with its expressions replaced, as a runner replaces them."""
    values = {f"inputs.{name}": each.get("default", "") for name, each in ACTION["inputs"].items()}
    values |= {f"inputs.{name}": value for name, value in given.items()}
    values["github.action_path"] = str(ROOT)
    return re.sub(r"\$\{\{\s*(.*?)\s*\}\}", lambda found: values[found[1]], text)


def step(name: str, folder: Path, bin_: Path, **given: str) -> subprocess.CompletedProcess:
    """Run one step: its script in a file, by the shell of that name, with the step's own environment."""
    assert STEPS[name]["shell"] == "bash"
    script = folder.parent / f"{name}.sh"
    script.write_text(STEPS[name]["run"])
    own = {key: evaluated(value, given) for key, value in STEPS[name].get("env", {}).items()}
    runner = {
        "CI": "true",
        "GITHUB_ACTIONS": "true",
        "GITHUB_ACTION_PATH": str(ROOT),
        "GITHUB_WORKSPACE": str(folder),
        "GITHUB_STEP_SUMMARY": str(folder.parent / "summary.md"),
        "HOME": str(folder.parent),
        "RUNNER_TEMP": str(folder.parent),
        "PATH": f"{bin_}:/usr/bin:/bin",
        **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
    }
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)]
    return subprocess.run(command, cwd=folder, env=runner | own, capture_output=True, text=True, timeout=300)


@pytest.fixture
def folder(tmp_path) -> Path:
    bare = tmp_path / "workspace"
    bare.mkdir()
    (bare / "kernels.py").write_text(KERNELS)
    return bare


def test_each_expression_is_an_input_of_the_action():
    text = (ROOT / "action.yml").read_text()
    used = set(re.findall(r"\$\{\{\s*inputs\.(\w+)\s*\}\}", text))
    assert used == set(ACTION["inputs"])
    for name, each in ACTION["inputs"].items():
        assert each["description"] and ("default" in each) != bool(each.get("required")), name
    for each in STEPS.values():
        assert "${{" not in each["run"], "a script with an input in it can be made to run anything"
    assert ACTION["runs"]["using"] == "composite"


@pytest.mark.wheel
def test_the_steps_install_the_package_and_audit(tmp_path_factory, folder):
    bin_ = new_environment(tmp_path_factory.mktemp("runner"), "--upgrade", "pip").parent
    done = step("Install", folder, bin_, function="kernels:copied", inputs="kernels:inputs")
    assert done.returncode == 0, done.stdout + done.stderr
    where = [str(bin_ / "python"), "-c", "import puzzles_lib; print(puzzles_lib.__file__)"]
    found = subprocess.run(where, cwd=folder, capture_output=True, text=True, check=True).stdout
    assert found.startswith(str(bin_.parent))
    done = step("Audit", folder, bin_, function="kernels:copied", inputs="kernels:inputs")
    assert done.returncode == 0 and "copied: 1 launch clean" in done.stdout, done.stdout + done.stderr
    assert json.loads((folder / "audit.sarif").read_text())["runs"][0]["results"] == []
    assert json.loads((folder / "audit.json").read_text())["ok"] is True


def audited(folder: Path, **given: str) -> subprocess.CompletedProcess:
    """Run the second step with this environment's python and this project."""
    (folder.parent / "bin").mkdir()
    python = folder.parent / "bin" / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return step("Audit", folder, python.parent, **given)


def test_a_finding_fails_the_step_and_is_written(folder):
    done = audited(
        folder, function="kernels:overrun", inputs="kernels:inputs", sarif="found.sarif", json="found.json"
    )
    assert done.returncode == 1 and "out of bounds: copy_kernel" in done.stdout, done.stdout + done.stderr
    (result,) = json.loads((folder / "found.sarif").read_text())["runs"][0]["results"]
    assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "kernels.py"
    assert json.loads((folder / "found.json").read_text())["ok"] is False
    assert "out of bounds: copy_kernel" in (folder.parent / "summary.md").read_text()


def test_the_reference_and_hard_inputs_are_handed_on(folder):
    done = audited(
        folder, function="kernels:copied", inputs="kernels:inputs", like="kernels:doubled", hard="true"
    )
    assert done.returncode == 1 and "of the result are wrong" in done.stdout, done.stdout + done.stderr


def test_a_switch_is_true_or_false(folder):
    done = audited(folder, function="kernels:copied", inputs="kernels:inputs", hard="yes")
    assert done.returncode == 2 and "hard must be true or false, but is 'yes'" in done.stdout + done.stderr


def test_inputs_are_no_commands_and_bad_ones_are_named(folder):
    done = audited(folder, function="kernels; touch taken", inputs="$(touch taken)")
    assert done.returncode == 2 and "'kernels; touch taken' is not of the form" in done.stdout + done.stderr
    assert not (folder / "taken").exists()


@pytest.mark.workflow
def test_a_linter_finds_nothing_in_the_action(tmp_path):
    zizmor = new_environment(tmp_path / "venv", "zizmor").with_name("zizmor")
    ran = run(zizmor, "--offline", "--no-progress", ROOT / "action.yml")
    assert ran.returncode == 0 and "No findings" in ran.stdout + ran.stderr, ran.stdout
