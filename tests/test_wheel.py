"""The wheel, installed beside copied notebooks: `make test PYTEST_ARGS="--wheel tests/test_wheel.py"`.

It takes minutes and asks for the build's own packages, so it is not run by itself.
"""

import shutil
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPO
from tests.notebook_run import chapters, run_under_nbval

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of a new environment with the wheel; torch and the like are the ones of the course's own."""
    folder = tmp_path_factory.mktemp("wheel")

    def run(*command: str | Path) -> str:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    shutil.copytree(REPO / "puzzles_lib", folder / "source" / "puzzles_lib")
    shutil.copytree(REPO / ".setup", folder / "source" / ".setup")
    for name in ("pyproject.toml", "LICENSE", "README.md"):
        shutil.copy(REPO / name, folder / "source")
    run(
        sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, folder / "source"
    )
    (wheel,) = folder.glob("*.whl")
    run(sys.executable, "-m", "venv", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    run(python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel)
    (packages,) = (folder / "venv" / "lib").glob("python3*/site-packages")
    # After the environment's own packages; a .pth file in there, as of an editable install, is not read.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    where = run(python, "-c", "import puzzles_lib; print(puzzles_lib.__file__)")
    assert where.startswith(str(packages))
    return python


@pytest.mark.parametrize("notebook", chapters("notebooks"), ids=lambda path: path.stem)
def test_a_notebook_runs_with_the_wheel(notebook, python, tmp_path):
    copy = shutil.copy(notebook, tmp_path)
    run_under_nbval(Path(copy), "--nbval-lax", library=tmp_path, python=python)
