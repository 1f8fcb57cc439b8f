"""What Triton's compiler makes of a kernel, and what it refuses, on a machine with no GPU.

`front_end` and `translate` run Triton's front end here, on what `vetting` has passed. All that comes
after, in `build`, runs in processes of its own: LLVM may crash, hang or eat the memory.
"""

from puzzles_lib.compiler.frontend import Translation, front_end, interpret_was_on, translate
from puzzles_lib.compiler.lowering import Build, build, dump_passes
from puzzles_lib.compiler.machine_code import disassemble
from puzzles_lib.compiler.targets import Target, find_target
from puzzles_lib.compiler.threads import MemoryAccess, held_by, memory_accesses

__all__ = [
    "Build",
    "MemoryAccess",
    "Target",
    "Translation",
    "build",
    "disassemble",
    "dump_passes",
    "find_target",
    "front_end",
    "held_by",
    "interpret_was_on",
    "memory_accesses",
    "translate",
]
