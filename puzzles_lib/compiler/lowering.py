"""Compile a translated kernel, stage by stage, in a process of its own.

LLVM and ptxas may crash, loop for hours or use up the memory on a learner's kernel. So they run in
`puzzles_lib.compiler.worker`, under limits, and return data. Results are kept in Triton's own cache directory
(``TRITON_CACHE_DIR``), by the IR, the target and the versions. A kernel that is moved within its file, or
copied to another, is not compiled again.
"""

import base64
import contextlib
import json
import linecache
import os
import re
import signal
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from puzzles_lib.compiler import cache
from puzzles_lib.compiler.frontend import Translation
from puzzles_lib.source import Refusal, Site
from puzzles_lib.translator.environment import variables

SECONDS = 30  # CPU time of each of the compiler's processes; on a busy machine they may take four times that
MEMORY = 4 << 30  # bytes of address space, for each of its processes
LARGEST_FILE = 128 << 20  # bytes that one of them may write to a file
TEXTS = ("ttir", "ttgir", "llir", "ptx", "amdgcn")
BINARIES = ("cubin", "hsaco")
_TOO_SLOW = "it takes more than {} s"
_WORKER = Path(__file__).with_name("worker.py")


@dataclass(frozen=True)
class Build:
    """What the compiler made of a kernel.

    texts: MLIR, LLVM IR and assembly by stage, as Triton writes them, with the translation's locations.
    binary: the cubin or hsaco; empty if the kernel did not compile so far.
    metadata: ``shared`` (bytes), ``num_warps``, ``num_stages``, ``global_scratch_size`` (bytes per program)
        and ``tensordesc_meta``, from which a launch makes the map of each descriptor.
    log: what ptxas printed.
    refusal: why the compiler stopped early; None if it didn't.
    """

    translation: Translation
    texts: Mapping[str, str]
    binary: bytes = b""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    log: str = ""
    refusal: Refusal | None = None


def build(translation: Translation, until: str = "") -> Build:
    """Return the stages of a kernel, from the cache if they have been made before.

    until: the last one that is wanted, such as ``"ttgir"``; all by default.

    If a kernel does not compile, or not within the limits, the result's ``refusal`` says why. Raises
    KeyboardInterrupt when interrupted; the compiler's process is then ended.
    """
    key = _key(f"build {until}".strip(), translation)
    if kept := cache.read(key, "texts", "binary", "metadata", "log"):
        binary = base64.b64decode(kept["binary"])
        return Build(translation, kept["texts"], binary, kept["metadata"], kept["log"])
    with tempfile.TemporaryDirectory(prefix="stages-") as name:
        folder = Path(name)
        ending = run_worker(translation, folder, until=until)
        texts = {s: (folder / s).read_text() for s in TEXTS if (folder / s).exists()}
        binary = next(((folder / s).read_bytes() for s in BINARIES if (folder / s).exists()), b"")
        done = json.loads((folder / "done.json").read_text()) if (folder / "done.json").exists() else {}
        log, said = ((folder / f).read_text(errors="replace") for f in ("stdout", "stderr"))
        reached = (folder / "reached").read_text() if (folder / "reached").exists() else ""
    refusal = None
    if ending or done.get("error"):
        refusal = _why(translation, reached, ending, done.get("error"), said)
    built = Build(translation, texts, binary, done.get("metadata", {}), log, refusal)
    if not refusal:
        kept = {"texts": texts, "metadata": built.metadata, "log": log}
        cache.write(key, kept | {"binary": base64.b64encode(binary).decode()})
    return built


def dump_passes(translation: Translation) -> str:
    """Return MLIR's dump before each pass, up to LLVM IR. If a pass fails, the dump ends there."""
    key = _key("passes", translation)
    if kept := cache.read(key, "dumps"):
        return zlib.decompress(base64.b64decode(kept["dumps"])).decode()
    with tempfile.TemporaryDirectory(prefix="stages-") as name:
        folder = Path(name)
        ending = run_worker(translation, folder, until="llir", extra={"MLIR_ENABLE_DUMP": "1"})
        dumps = (folder / "stderr").read_text(errors="replace")
        done = json.loads((folder / "done.json").read_text()) if (folder / "done.json").exists() else {}
    if not ending and not done.get("error"):
        cache.write(key, {"dumps": base64.b64encode(zlib.compress(dumps.encode())).decode()})
    return dumps


def run_worker(
    translation: Translation, folder: Path, *, until: str = "", extra: Mapping[str, str] | None = None
) -> str:
    """Run the worker in a folder, to which it writes the stages, ``stdout`` and ``stderr``.

    Returns "" if it ran to its end, else how it ended, in words. It leaves no process running.
    """
    gpu = translation.target.gpu
    request = {"backend": gpu.backend, "arch": gpu.arch, "warp_size": gpu.warp_size}
    request |= {
        "options": dict(translation.options),
        "until": until,
        "seconds": SECONDS,
        "bytes": MEMORY,
        "file_bytes": LARGEST_FILE,
    }
    (folder / "request.json").write_text(json.dumps(request))
    (folder / "source.ttir").write_text(translation.ir)
    environment = variables() | {"TMPDIR": str(folder)} | dict(extra or {})
    return run_limited([sys.executable, "-P", str(_WORKER), str(folder)], folder, environment)


def run_limited(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command within the limits, with its output in ``stdout`` and ``stderr`` in the folder.

    Returns "" for exit status 0, else how it ended. When interrupted, ends it and what it started.
    """
    with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=folder,
            env=dict(environment),
            start_new_session=True,
        )
        try:
            status = process.wait(4 * SECONDS)
        except subprocess.TimeoutExpired:
            return _TOO_SLOW.format(SECONDS)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if status == -signal.SIGXCPU:
        return _TOO_SLOW.format(SECONDS)
    if status < 0:
        return f"the compiler crashed ({signal.Signals(-status).name})"
    return f"the compiler ended with status {status}" if status else ""


def _key(what: str, translation: Translation) -> str:
    options = sorted(translation.options.items())
    return cache.key_of(what, translation.target.gpu, translation.ir, options)


# ---- what went wrong

_SAYS_NOTHING = "Failures have been detected while processing an MLIR pass pipeline"
_CURES = {  # of what the compiler says of an operation that no learner wrote
    "uninitialized alloc must have a mutable memdesc": (
        "Triton can't compile a tl.dot_scaled that begins at 0 for this GPU: pass acc as its last argument, "
        "acc = tl.dot_scaled(..., acc)"
    ),
}
_DIAGNOSTIC = re.compile(r'^(?:loc\()?"?[^"\n]*?\.py"?:(\d+):\d+\)?: error: (.*)$', re.MULTILINE)


def _why(
    translation: Translation, stage: str, ending: str, error: Mapping[str, str] | None, said: str
) -> Refusal:
    """Return the compiler's own words, at the learner's line, as far as it gives any."""
    site, words = None, []
    for line, message in _DIAGNOSTIC.findall(said):
        if site is None and int(line):
            file, number = translation.kernel.fn.__code__.co_filename, int(line) + translation.above
            site = Site(number, linecache.getline(file, number).strip())
        words += [message] if message != _SAYS_NOTHING else []
    message = error["message"] if error else ""
    if re.search(r"bad_alloc|out of memory|Allocation failed|MemoryError", said + message):
        ending, words = "", [f"it needs more than {MEMORY / 2**30:g} GB of memory"]
    elif f"error code -{signal.SIGXCPU.value}" in message:  # ptxas, stopped by the limit
        words = [_TOO_SLOW.format(SECONDS)]
    elif not words:  # ptxas names its temporary file, which says nothing
        words = re.findall(r"ptxas\S* \S+, line \d+; error\s*: (.*)", message)[:3]
        words = words or [line for line in message.splitlines() if line.strip()][:3]
    text = "; ".join(dict.fromkeys([*([ending] if ending else []), *words]))
    text = " ".join(text.split()) or "it fails without a message"
    text = text if len(text) <= 400 else text[:397] + "..."
    advice = next((cure for complaint, cure in _CURES.items() if complaint in text), "")
    return Refusal(f"{stage}: {text}" if stage else text, site, advice)
