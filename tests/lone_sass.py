"""Readers of machine code for tests that run with any Triton.

`puzzles_lib.inspector.sass` by itself: the package around it is bound to one version.
"""

import importlib.util
import re
import subprocess
from pathlib import Path

from triton.backends.nvidia.compiler import get_ptxas

_FILE = Path(__file__).parents[1] / "puzzles_lib" / "inspector" / "sass.py"
_spec = importlib.util.spec_from_file_location("lone_sass", _FILE)
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

instructions = _module.instructions
overwritten_operands = _module.overwritten_operands


def said_by_ptxas(kernel, folder: Path) -> str:
    """What the assembler says of a compiled kernel: registers, spills, advice. ``folder``: for its files."""
    arch = re.search(r"\.target (\w+)", kernel.asm["ptx"])[1]
    (folder / "kernel.ptx").write_text(kernel.asm["ptx"])
    command = [get_ptxas(kernel.metadata.target.arch).path, "-v", f"--gpu-name={arch}"]
    files = [str(folder / "kernel.ptx"), "-o", str(folder / "cubin")]
    return subprocess.run([*command, *files], capture_output=True, text=True, check=True).stderr
