"""The course's exercises as they are handed out: is a kernel one that nobody has touched yet?

``stubs.json`` in a chapter's folder, made by ``make notebooks``, has a digest of each function with a hole,
and of each that is handed out broken.
"""

import ast
import functools
import hashlib
import json
from pathlib import Path

from triton.runtime.jit import JITFunction

from puzzles_lib.source import with_helpers
from puzzles_lib.wrapped import unwrap

HOLE = "# your code here"
FILE = "stubs.json"
_CHAPTERS = Path(__file__).with_name("chapters")


def is_untouched(kernel: JITFunction) -> bool:
    """Whether the kernel, or a helper of its, has a hole of the course's and nothing of the learner's.

    Or is broken, as it was handed out.
    """
    return any(_told(function) in _untouched() for function in with_helpers(kernel))


def attempt_text(kernel: object) -> str:
    """What tells one try from another: a kernel's code and its helpers'; "" where it cannot be told."""
    try:
        wrapped = unwrap(kernel)
        return " ".join(_told(function) for function in with_helpers(wrapped.kernel)) if wrapped else ""
    except Exception:  # the check has said what is wrong with it
        return ""


def _told(function: JITFunction) -> str:
    """Its digest, and what its decorator names: no stub and no broken kernel names anything there."""
    return " ".join([digest(function.src), *map(str, function.do_not_specialize)])


def digest(source: str) -> str:
    """Of a function's source, without its comments, its decorators and its layout."""
    function = ast.parse(source).body[0]
    if isinstance(function, ast.FunctionDef):
        function.decorator_list = []
    return hashlib.sha256(ast.unparse(function).encode()).hexdigest()[:16]


@functools.cache
def _untouched() -> frozenset[str]:
    files = _CHAPTERS.glob(f"ch*/{FILE}")
    return frozenset(one for file in files for one in json.loads(file.read_text("utf-8")).values())
