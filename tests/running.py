"""A guarded run of a kernel as a test has it: translated and run in one step."""

from collections.abc import Mapping
from typing import Any

from triton.runtime.jit import JITFunction

from puzzles_lib import runner
from puzzles_lib.compiler import program
from puzzles_lib.runner import Run
from puzzles_lib.source import Refusal


def run(kernel: JITFunction, arguments: Mapping[str, object], grid: Any, outputs: Any, **options: Any) -> Run:
    """As `puzzles_lib.runner.run`, of a kernel that Triton's front end takes."""
    code = program(kernel, arguments, record="recorder" in options)
    assert not isinstance(code, Refusal), code
    return runner.run(code, arguments, grid, outputs, **options)
