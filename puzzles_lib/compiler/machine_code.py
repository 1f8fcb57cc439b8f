"""Disassemble machine code with nvdisasm, which comes with Triton."""

import tempfile
from pathlib import Path

from triton import knobs

from puzzles_lib.compiler import cache
from puzzles_lib.compiler.lowering import run_limited
from puzzles_lib.source import Refusal
from puzzles_lib.translator.environment import variables
from puzzles_lib.translator.targets import tools


def disassemble(cubin: bytes) -> str | Refusal:
    """Return NVIDIA's machine code as text, with source lines in comments; a Refusal if that fails."""
    try:
        tool = knobs.nvidia.nvdisasm.path
    except RuntimeError as error:
        return Refusal(f"{error}; there are {', '.join(tools()) or 'none'}")
    key = cache.key_of("sass", cubin)
    if kept := cache.read(key, "sass"):
        return kept["sass"]
    with tempfile.TemporaryDirectory(prefix="stages-") as name:
        folder = Path(name)
        (folder / "kernel.cubin").write_bytes(cubin)
        ending = run_limited([tool, "-c", "-g", "kernel.cubin"], folder, variables())
        said, sass = (folder / "stderr").read_text(), (folder / "stdout").read_text()
    if ending:
        return Refusal(f"nvdisasm: {ending}; {said.strip()[:200]}")
    cache.write(key, {"sass": sass})
    return sass
