"""A guarded run of a kernel as a test has it: translated and run in one step."""

from collections.abc import Callable, Mapping
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
    return runner.run(code, arguments, grid, outputs, runner.Options(**options))


class Guarded:
    """A kernel that is launched as on a GPU and run under guard; a fault fails the test.

    results: the names of the parameters that it fills, unless they are None.
    """

    def __init__(self, kernel: JITFunction, results: tuple[str, ...]):
        self.kernel, self.results = kernel, results

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        def launch(*values: object, num_warps: int, num_stages: int, **constants: object) -> None:
            arguments = dict(zip(self.kernel.arg_names, values, strict=False)) | constants
            results = [name for name in self.results if arguments[name] is not None]
            done = run(self.kernel, arguments, (*grid, 1, 1)[:3], results)
            assert done.stop is None and done.undefined is None and done.conflict is None, done

        return launch
