"""The compiler proper, run as a program of its own: ``python worker.py FOLDER``.

Reads FOLDER/request.json and FOLDER/source.ttir, limits its own memory and time, and writes every stage
to FOLDER as it is reached: whatever LLVM or ptxas then do, what was made until then is there. It sees
IR alone, never a learner's Python. Imports nothing of puzzles_lib.

request.json: ``{"backend", "arch", "warp_size", "options", "until", "seconds", "bytes", "file_bytes"}``;
``until`` is the last stage wanted. Written: ``<stage>`` for each stage, ``reached``, the one being made,
and at the end done.json: ``{"metadata", "error"}``. What ptxas says goes to stdout.
"""

import json
import os
import resource
import sys
from pathlib import Path


def main(folder: Path) -> None:
    request = json.loads((folder / "request.json").read_text())
    limit(resource.RLIMIT_AS, request["bytes"], request["bytes"])
    # Also for ptxas, a child of this. SIGXCPU comes at the first, SIGKILL at the second.
    limit(resource.RLIMIT_CPU, request["seconds"], request["seconds"] + 1)
    limit(resource.RLIMIT_FSIZE, request["file_bytes"], request["file_bytes"])
    limit(resource.RLIMIT_CORE, 0, 0)

    from triton import knobs
    from triton._C.libtriton import ir
    from triton.backends.compiler import GPUTarget, Language
    from triton.compiler.compiler import make_backend

    knobs.nvidia.dump_ptxas_log = True  # to stdout: registers, spills, advice
    target = GPUTarget(request["backend"], request["arch"], request["warp_size"])
    backend = make_backend(target)
    options = backend.parse_options(request["options"])
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    module = ir.parse_mlir_module(str(folder / "source.ttir"), context)
    module.context = context
    stages: dict = {}
    backend.add_stages(stages, options, Language.TRITON)
    metadata = dict(options.__dict__)
    error = None
    for name, lower in stages.items():
        (folder / "reached").write_text(name)
        try:
            module = lower(module, metadata)
        except BaseException as failure:
            error = {"stage": name, "type": type(failure).__name__, "message": str(failure)}
            break
        if name == "ptx":
            module = without_lines_of_assembly(module)
        data = module if isinstance(module, bytes) else str(module).encode()
        unfinished = folder / "unfinished"
        unfinished.write_bytes(data)
        os.replace(unfinished, folder / name)
        if name == request["until"]:
            break
    for_a_launch = ("global_scratch_size", "tensordesc_meta")
    kept = ("name", "shared", "num_warps", "num_stages", "tmem_size", *for_a_launch)
    known = {k: metadata.get(k) for k in kept}
    (folder / "done.json").write_text(json.dumps({"metadata": known, "error": error}))


def without_lines_of_assembly(ptx: str) -> str:
    """Drop each ``.loc`` within inline assembly: in Triton 3.9 it counts the assembly's own lines."""
    kept, inside = [], False
    for line in ptx.splitlines(keepends=True):
        word = line.strip()
        inside = word == "// begin inline asm" or (inside and word != "// end inline asm")
        if not (inside and word.startswith(".loc")):
            kept.append(line)
    return "".join(kept)


def limit(what: int, soft: int, hard: int) -> None:
    """Set a limit. If the present one is lower, keep it, because a process can't raise that."""
    most = resource.getrlimit(what)[1]
    most = hard if most == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (min(soft, most), most))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
