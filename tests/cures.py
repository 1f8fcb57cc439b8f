"""What a report says to do, done to the kernel as the words say, without reading any more into them."""

import ast
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from puzzles_lib.checker import examine
from puzzles_lib.checker.report import Report, Verdict
from puzzles_lib.puzzle import Puzzle
from puzzles_lib.source import define, file_and_line

WORSE = ("compiler", "signature", "error", "launch", "time limit", "memory limit")
Edit = Callable[[list[str], int, Verdict], Iterator[list[str]]]  # of lines, at one of them


def failures(kernel: JITFunction, puzzle: Puzzle, report: Report) -> list[str]:
    """What is printed as a cure of the first fault, and is none when it is followed; [] if all is well.

    A cure must lead to a correct kernel, or to another fault. If it leaves a choice, such as a factor, some
    choice must.
    """
    verdict = report.verdicts[0]
    kernel = kernel.fn if isinstance(kernel, Autotuner) else kernel
    found: list[str] = []
    if not isinstance(kernel, JITFunction):
        return found
    for words, edit in CURES.items():
        if words not in f"{verdict.message} {verdict.diagnosis}":
            continue
        tried = [examine(each, puzzle, until_failure=True) for each in _edited(kernel, verdict, edit)]
        if tried and not any(_is_better(each, verdict, _line(kernel, verdict)) for each in tried):
            found.append(f"{words!r} leads to\n{tried[0]}\nfrom\n{report}")
    for words, options in OPTIONS.items():
        if words in verdict.diagnosis and not _is_better(examine(kernel, puzzle, **options), verdict, -1):
            found.append(f"{words!r} does not help:\n{report}")
    return found


def _is_better(report: Report, before: Verdict, line: int) -> bool:
    """Whether all is well, or another fault is reported. line: of the fault, from 0; -1 if unknown."""
    if report.ok:
        return True
    after = report.verdicts[0]
    same = after.kind == before.kind and after.message == before.message
    if same and line >= 0 and after.site:  # a fault of the same kind elsewhere is another one
        same = abs(after.site.line - 1 - line) <= 1
    return not same and after.kind not in WORSE


def _line(kernel: JITFunction, verdict: Verdict) -> int:
    """The verdict's line in the kernel's source, from 0."""
    _, first = file_and_line(kernel)
    return verdict.site.line - first + _def(_lines(kernel)) if verdict.site else -1


def _lines(kernel: JITFunction) -> list[str]:
    return textwrap.dedent("".join(kernel.raw_src)).splitlines()


def _def(lines: list[str]) -> int:
    return next(n for n, line in enumerate(lines) if line.strip().startswith("def "))


def _edited(kernel: JITFunction, verdict: Verdict, edit: Edit) -> Iterator[JITFunction]:
    """The kernel, edited at the verdict's line; none if that is in a helper."""
    lines, at = _lines(kernel), _line(kernel, verdict)
    if not _def(lines) < at < len(lines) or lines[at].strip() != verdict.site.source.strip():
        return
    for number, changed in enumerate(edit(lines, at, verdict)):
        source = "\n".join(changed) + "\n"
        yield define(source, f"<{kernel.__name__} cured {number} {hash(source)}>", kernel.fn.__globals__)


def _statement(lines: list[str], at: int) -> tuple[int, int]:
    """The first line of the statement at a line, and the one after its last."""
    tree = ast.parse("\n".join(lines))
    around = [n for n in ast.walk(tree) if isinstance(n, ast.stmt) and not isinstance(n, ast.FunctionDef)]
    ends = lambda n: n.body[0].lineno - 1 if getattr(n, "body", None) else n.end_lineno  # noqa: E731
    node = max((n for n in around if n.lineno <= at + 1 <= ends(n)), key=lambda n: n.lineno)
    return node.lineno - 1, ends(node)


def _replaced(lines: list[str], node: ast.expr, text: str) -> list[str]:
    """The lines with an expression replaced, whose positions are those of the joined lines."""
    whole = "\n".join(lines)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line) + 1)
    begin = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    return (whole[:begin] + text + whole[end:]).split("\n")


def _calls(lines: list[str], at: int, name: str) -> list[ast.Call]:
    first, end = _statement(lines, at)
    every = ast.walk(ast.parse("\n".join(lines)))
    calls = [n for n in every if isinstance(n, ast.Call) and first < n.lineno <= end]
    return [call for call in calls if ast.unparse(call.func) == name]


def _other(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    for call in _calls(lines, at, "tl.load"):
        if not any(keyword.arg == "other" for keyword in call.keywords):
            yield _replaced(lines, call, f"{ast.unparse(call)[:-1]}, other=0)")


def _int64(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    first, end = _statement(lines, at)
    for node in ast.walk(ast.parse("\n".join(lines))):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and first < node.lineno <= end:
            for side in (node.left, node.right):
                if not isinstance(side, ast.Constant):
                    text = ast.unparse(side)
                    single = "tl.cast(" in verdict.message
                    wide = f"tl.cast({text}, tl.int64)" if single else f"({text}).to(tl.int64)"
                    yield _replaced(lines, side, wide)


def _barrier(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    first, _ = _statement(lines, at)
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    yield [*lines[:first], f"{indent}tl.debug_barrier()", *lines[first:]]


def _asked(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    for call in _calls(lines, at, "tl.load"):
        yield _replaced(lines, call, f"tl.atomic_add({ast.unparse(call.args[0])}, 0)")


def _released(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    name = verdict.diagnosis.split("tl.atomic_xchg(")[1].split(",")[0]
    used = [ast.unparse(call.args[0]) for call in _calls(lines, at, "tl.atomic_cas")]
    yield [*lines, "    tl.debug_barrier()", f"    tl.atomic_xchg({used[0] if used else name}, 0)"]


def _sem_left_out(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    for name in ("tl.atomic_add", "tl.atomic_xchg", "tl.atomic_cas", "tl.atomic_min", "tl.atomic_max"):
        for call in _calls(lines, at, name):
            call.keywords = [keyword for keyword in call.keywords if keyword.arg != "sem"]
            yield _replaced(lines, call, ast.unparse(call))


def _on_its_own(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    first, _ = _statement(lines, at)
    indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
    for call in _calls(lines, at, "tl.load"):
        edited = _replaced(lines, call, "loaded")
        yield [*edited[:first], f"{indent}loaded = {ast.unparse(call)}", f"{indent}tl.debug_barrier()",
               *edited[first:]]  # fmt: skip


def _addresses(lines: list[str], at: int, text: str, new: str) -> Iterator[list[str]]:
    """Replace an expression, given as its text, by another one; nothing if the line hasn't got it."""
    first, end = _statement(lines, at)
    every = (
        n
        for n in ast.walk(ast.parse("\n".join(lines)))
        if isinstance(n, ast.expr) and first < n.lineno <= end
    )
    for node in every:
        if ast.unparse(node) == text:
            yield _replaced(lines, node, new)


def _loaded(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    found = re.search(r"(\S.*) contains addresses, not values: (tl\.load\(.*\)) reads", _joined(verdict))
    if found:
        yield from _addresses(lines, at, found[1].rpartition("kernel: ")[2], found[2])


def _joined(verdict: Verdict) -> str:
    return f"{verdict.message}: {verdict.diagnosis}"


def _one_each(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    found = re.search(r"(\S.*) is one address, but the \w+ is a block: use (.*)", _joined(verdict))
    if found:
        yield from _addresses(lines, at, found[1].rpartition("kernel: ")[2], found[2])


def _turned(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    text = re.search(r": is the comparison (.*) reversed", verdict.diagnosis)[1]
    turned = text.translate(str.maketrans("<>", "><"))
    yield [re.sub(r"\s*#.*", "", line).replace(text, turned) for line in lines]


def _ampersand(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    yield [line.replace(") + (", ") & (") for line in lines]


def _arange(lines: list[str], at: int, verdict: Verdict) -> Iterator[list[str]]:
    words = re.search(r"add (tl\.arange\(.*?\))", verdict.diagnosis)[1]
    for n, line in enumerate(lines):
        if n > _def(lines) and re.match(r"\s+\w+ = ", line) and "tl.load" not in line:
            yield [*lines[:n], f"{line.partition('  #')[0]} + {words}", *lines[n + 1 :]]


CURES: dict[str, Edit] = {
    "reads what is there": _loaded,
    "is one address, but": _one_each,
    " reversed?": _turned,
    "combine masks with &": _ampersand,
    "each program stores one element: add": _arange,
    "leave sem out, because the default does both": _sem_left_out,
    "load on a line of its own": _on_its_own,
    "other= gives them a value": _other,
    "convert a factor to int64": _int64,
    "put tl.debug_barrier() between the two": _barrier,
    "put tl.debug_barrier() into the loop": _barrier,
    "use tl.atomic_add(": _asked,
    "release the lock: tl.atomic_xchg(": _released,
}
OPTIONS: dict[str, dict[str, Any]] = {"with num_warps=1 it would be correct": {"num_warps": 1}}
