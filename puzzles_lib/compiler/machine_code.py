"""Machine code as text: the cubin through nvdisasm, which comes with Triton."""

import functools
import tempfile
from pathlib import Path

from triton import knobs

from puzzles_lib.compiler.build import run_limited, variables


@functools.lru_cache(32)
def disassemble(cubin: bytes) -> str:
    """NVIDIA's machine code with the source line of each instruction in comments; ``""`` if it fails."""
    with tempfile.TemporaryDirectory(prefix="stages-") as name:
        folder = Path(name)
        (folder / "kernel.cubin").write_bytes(cubin)
        command = [knobs.nvidia.nvdisasm.path, "-c", "-g", "kernel.cubin"]
        ending = run_limited(command, folder, variables())
        return "" if ending else (folder / "stdout").read_text()
