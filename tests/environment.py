"""An environment beside the course's own, which shares its packages."""

import os
import site
import subprocess
import sys
from pathlib import Path


def run(*command: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess:
    """A command's result; its Python takes no library from where this one may take it."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def printed(*command: str | Path, cwd: Path | None = None) -> str:
    """What a command prints; it has to succeed."""
    ran = run(*command, cwd=cwd)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def new_environment(folder: Path, *requirements: str | Path) -> Path:
    """The Python of a new environment, in which pip installs what is asked for and the course's has not."""
    printed(sys.executable, "-m", "venv", folder)
    (packages,) = (folder / "lib").glob("python3*/site-packages")
    # After the environment's own packages; a .pth file in there, as of an editable install, is not read.
    (packages / "dependencies.pth").write_text("\n".join(site.getsitepackages()))
    python = folder / "bin" / "python"
    printed(python, "-m", "pip", "install", "--quiet", *requirements)
    return python
