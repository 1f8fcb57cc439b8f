"""Show what Triton's compiler makes of a kernel, and what it refuses, on a machine without a GPU.

None of it runs in this process, because the compiler may crash, hang or use up the memory. Triton's front
end, for `Opinions`, `front_end` and `translate`, runs in a forked process (`child`). That process gets the
kernel and everything that the kernel names, after `vetting` has checked it, and runs
`puzzles_lib.translator`. Everything after the front end, in `build`, runs in separate programs.
"""

from puzzles_lib.compiler.arithmetic import Steps, steps
from puzzles_lib.compiler.child import closed_after
from puzzles_lib.compiler.frontend import (
    Opinion,
    Opinions,
    Program,
    Translation,
    front_end,
    gpu_dialect,
    interpret_was_on,
    program,
    program_of,
    shared_memory,
    specialised,
    translate,
)
from puzzles_lib.compiler.lowering import Build, build, dump_passes
from puzzles_lib.compiler.machine_code import disassemble
from puzzles_lib.compiler.threads import MemoryAccess, held_by, memory_accesses, taken_at_once
from puzzles_lib.translator.targets import Target, find_target

__all__ = [
    "Build",
    "MemoryAccess",
    "Opinion",
    "Opinions",
    "Program",
    "Steps",
    "Target",
    "Translation",
    "build",
    "closed_after",
    "disassemble",
    "dump_passes",
    "find_target",
    "front_end",
    "gpu_dialect",
    "held_by",
    "interpret_was_on",
    "memory_accesses",
    "program",
    "program_of",
    "shared_memory",
    "specialised",
    "steps",
    "taken_at_once",
    "translate",
]
