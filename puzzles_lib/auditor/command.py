"""Audit a function of a module from the command line, with inputs that another function makes."""

import argparse
import ast
import importlib
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from puzzles_lib.auditor import Guard, audit

_LIBRARY = Path(__file__).parent.parent


def main(arguments: Sequence[str] | None = None) -> int:
    """Return the exit status: 0 for no finding, 1 for findings, 2 for a bad command."""
    parser = argparse.ArgumentParser(
        prog="python -m puzzles_lib.audit",
        description="Run on the CPU all Triton kernels that a function launches, and report what is wrong.",
    )
    parser.add_argument("function", metavar="MODULE:FUNCTION", help="the function to audit")
    parser.add_argument(
        "--inputs",
        required=True,
        metavar="MODULE:FUNCTION",
        help="a function that returns the arguments as a tuple or a dict",
    )
    parser.add_argument(
        "--like", metavar="MODULE:FUNCTION", help="compare values with this reference, called the same way"
    )
    parser.add_argument(
        "--vary",
        metavar="NAME=VALUES",
        action="append",
        default=[],
        help="also try other values for an argument, such as n=1,17; can be repeated",
    )
    parser.add_argument(
        "--allowance",
        type=float,
        default=0.0,
        help="allow a further error of this number times the largest element of a result",
    )
    parser.add_argument("--hard", action="store_true", help="also try hard inputs")
    parser.add_argument(
        "--contiguous",
        action="store_true",
        help="the function gets contiguous tensors only: don't pad, transpose or repeat their rows",
    )
    parser.add_argument(
        "--unwritten",
        metavar="NAME",
        action="append",
        default=[],
        help="the kernel's parameter for a result that is partly unwritten on purpose; can be repeated",
    )
    parser.add_argument(
        "--resident",
        action="store_true",
        help="assume that all programs of a grid run at the same time, so that each may wait for any other",
    )
    parser.add_argument(
        "--strict", action="store_true", help="report wasteful or imprecise code as findings, not as notes"
    )
    parser.add_argument(
        "--no-sizes", action="store_true", help="don't enlarge sizes until offsets pass 2**31"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=Guard.seconds,
        help=f"limit on the CPU time of a launch in seconds (by default {Guard.seconds:g})",
    )
    parser.add_argument("--json", metavar="FILE", help="write the report to this file as JSON")
    parser.add_argument("--sarif", metavar="FILE", help="write the findings to this file as SARIF 2.1.0")
    given = parser.parse_args(arguments)
    for option, file in (("--json", given.json), ("--sarif", given.sarif)):
        if file and not Path(file).absolute().parent.is_dir():
            print(f"{parser.prog}: {option} is {file!r}, but its folder does not exist", file=sys.stderr)
            return 2
    sys.path.insert(0, str(Path.cwd()))
    try:
        function, inputs = _named(given.function), _named(given.inputs)
        like = _named(given.like) if given.like else None
        values = inputs()
        args, kwargs = ((), values) if isinstance(values, dict) else (values, {})
        args = args if isinstance(args, tuple | list) else (args,)
        vary = dict(map(_values, given.vary))
        guard = Guard(
            hard=given.hard,
            contiguous=given.contiguous,
            unwritten=given.unwritten,
            resident=given.resident,
            strict=given.strict,
            sizes=not given.no_sizes,
            seconds=given.seconds,
        )
        report = audit(
            function, *args, like=like, guard=guard, allowance=given.allowance, vary=vary, **kwargs
        )
    except _Misnamed as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except Exception as error:
        if not str(error).startswith(("audit: ", "Guard: ")):  # of the user's code, so its lines are shown
            frames = traceback.extract_tb(error.__traceback__)
            own = [each for each in frames if not Path(each.filename).is_relative_to(_LIBRARY)]
            print("".join(traceback.format_list(own)), end="", file=sys.stderr)
        print(f"{parser.prog}: {type(error).__name__}: {error}", file=sys.stderr)
        return 2
    print(report)
    for file, content in ((given.json, report.as_dict), (given.sarif, report.sarif)):
        if file:
            Path(file).write_text(json.dumps(content(), indent=2, default=str) + "\n")
    return 0 if report.ok else 1


class _Misnamed(Exception):
    """An option that names no function, or no values. The message says why."""


def _values(option: str) -> tuple[str, list[Any]]:
    """Return what ``n=1,17`` means: a name and values. Raises `_Misnamed` for anything else."""
    name, _, values = option.partition("=")
    try:
        found = list(ast.literal_eval(f"({values},)"))
    except (SyntaxError, ValueError):
        found = []
    if not name or not found:
        raise _Misnamed(f"--vary must be like n=1,17, but is {option!r}")
    return name, found


def _named(name: str) -> Callable[..., Any]:
    """Return what ``module:function`` names. Raises `_Misnamed` if there is no such function."""
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise _Misnamed(f"{name!r} is not of the form module:function")
    path = os.path.relpath(module) if "/" in module else module  # ./kernels.py is kernels
    dotted = path.removesuffix(".py").replace("/", ".")
    if dotted.startswith("."):
        raise _Misnamed(f"{module} is not in the current folder")
    try:
        found: Any = importlib.import_module(dotted)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{dotted}.".startswith(f"{error.name}."):
            raise  # by the module's own imports
        raise _Misnamed(f"there is no module {dotted} in the current folder or on the path") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise _Misnamed(f"{module} has no {attribute}")
        found = getattr(found, part)
    if not callable(found):
        raise _Misnamed(f"{name} must be a function, but is {found!r}")
    return found
