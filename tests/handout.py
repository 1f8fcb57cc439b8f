"""What a teacher hands out, unpacked: the library and the exercises, without masters, tests and git."""

import os
from pathlib import Path

from puzzles_lib.authoring.handout import contents, handed_out
from tests import warm
from tests.conftest import REPO


def make_handout(folder: Path) -> Path:
    """Copy it into `folder`."""
    for path in handed_out(REPO):
        target = folder / path.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(contents(path))
    return folder


def python_in(handout: Path, code: str) -> str:
    """What a piece of Python prints where the library is the handed-out one."""
    return warm.python(code, handout / "notebooks", os.environ | {"PYTHONPATH": str(handout)})
