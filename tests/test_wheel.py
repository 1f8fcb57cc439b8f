"""The wheel, installed beside copied notebooks: `make test PYTEST_ARGS="--wheel tests/test_wheel.py"`.

It takes minutes and asks for the build's own packages, so it is not run by itself.
"""

import sys
from pathlib import Path

import pytest

from tests.environment import new_environment, printed, run
from tests.handout import make_handout
from tests.notebook_run import chapters, run_under_nbval

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a new environment with the wheel; torch and the like are the ones of the course's own."""
    folder = tmp_path_factory.mktemp("wheel")
    source = make_handout(folder / "source")
    printed(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, source)
    (wheel,) = folder.glob("*.whl")
    python = new_environment(folder / "venv", "--no-deps", "--no-index", "--ignore-installed", wheel)
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    where = printed(python, "-c", "import puzzles_lib; print(puzzles_lib.__file__)", cwd=folder)
    assert where.startswith(str(packages))
    return python


@pytest.fixture(scope="module")
def course(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the exercises, as the wheel gives them, and nothing else."""
    folder = tmp_path_factory.mktemp("learner") / "course"
    printed(python, "-m", "puzzles_lib.notebooks", folder, cwd=folder.parent)
    return folder


def test_its_exercises_are_the_courses(course):
    assert [path.name for path in sorted(course.iterdir())] == [path.name for path in chapters("notebooks")]
    for path in chapters("notebooks"):
        assert (course / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    "command", ["puzzles_lib.bench checks", "puzzles_lib.bench watch", "puzzles_lib.authoring.handout"]
)
def test_what_only_a_checkout_can_do_is_said_in_a_line(command, python, tmp_path):
    ran = run(python, "-m", *command.split(), cwd=tmp_path)
    assert ran.returncode == 1 and ran.stderr.startswith("error: ") and ran.stderr.count("\n") == 1


@pytest.mark.parametrize("notebook", chapters("notebooks"), ids=lambda path: path.stem)
def test_a_notebook_runs_with_the_wheel(notebook, course, python, tmp_path):
    run_under_nbval(course / notebook.name, "--nbval-lax", library=tmp_path, python=python)
