"""Find the line of the kernel for each line of a stage, by the locations that Triton passes on.

Every stage writes them in its own way: MLIR as ``loc(#loc7)``, LLVM IR as ``!dbg !7``, PTX and AMD's assembly
as ``.loc 1 7 20`` lines, nvdisasm as comments. `read` removes them from the text, and returns the text and
the lines of the kernel. All locations are in the kernel's own file, because `puzzles_lib.compiler` drops
others.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of a stage, and the line of the kernel's file or cell that it comes from, if that is known."""

    text: str
    source: int | None = None


def read(stage: str, text: str, above: int = 0) -> tuple[Line, ...]:
    """Return the lines of a stage's text, without locations, each with its line in the kernel.

    above: lines of the file that the locations do not count (`Translation.above`).
    """
    lines = _trimmed(_READERS[stage](text))
    if above:
        lines = [Line(line.text, line.source and line.source + above) for line in lines]
    return tuple(lines)


def _trimmed(lines: list[Line]) -> list[Line]:
    """Without blank lines at the ends, and with one where there were several."""
    kept: list[Line] = []
    for line in lines:
        if line.text.strip() or (kept and kept[-1].text.strip()):
            kept.append(Line(line.text.rstrip(), line.source))
    while kept and not kept[-1].text:
        kept.pop()
    return kept


# ---- MLIR

_DEFINITION = re.compile(r"^(#loc\d*) = loc\((.*)\)$")


def _mlir(text: str) -> list[Line]:
    definitions = {m[1]: m[2] for m in map(_DEFINITION.match, text.splitlines()) if m}
    resolved: dict[str, int | None] = {}

    def resolve(location: str) -> int | None:
        """The line of a location; of a call that was inlined, the callee's, if it has one."""
        if location not in resolved:
            resolved[location] = None
            if location.startswith("#loc"):
                resolved[location] = resolve(definitions.get(location, ""))
            elif match := re.match(r'"(?:[^"\\]|\\.)*":(\d+):', location):
                resolved[location] = int(match[1])
            else:
                for part in re.findall(r'#loc\d*|"(?:[^"\\]|\\.)*":\d+:\d+', location):
                    resolved[location] = resolved[location] or resolve(part)
        return resolved[location]

    lines: list[Line] = []
    opened: list[int] = []  # operations whose region is open: their location stands where it ends
    for raw in text.splitlines():
        if _DEFINITION.match(raw):
            continue
        cleaned, locations = _without_locations(raw)
        source = resolve(locations[-1][0]) if locations and locations[-1][1] else None
        starts, ends = cleaned.rstrip().endswith(("{", "({")), cleaned.lstrip().startswith("}")
        if ends and opened and not starts:
            first = opened.pop()
            lines[first] = Line(lines[first].text, source)
        elif starts and not ends:
            opened.append(len(lines))
        lines.append(Line(cleaned, source))
    return lines


def _without_locations(line: str) -> tuple[str, list[tuple[str, bool]]]:
    """A line of MLIR without its ``loc(...)``, and what they hold; True for one at the line's end."""
    if line.count(" loc(") == 1 and (match := re.search(r" loc\((#loc\d*)\)$", line)):  # nearly all
        return line[: match.start()], [(match[1], True)]
    pieces, found, at = [], [], 0
    for match in re.finditer(r" loc\(", line):
        if match.start() < at:
            continue
        end, depth, quoted = match.end(), 1, False
        while depth and end < len(line):
            quoted ^= line[end] == '"' and line[end - 1] != "\\"
            depth += 0 if quoted else {"(": 1, ")": -1}.get(line[end], 0)
            end += 1
        pieces.append(line[at : match.start()])
        found.append((line[match.end() : end - 1], end == len(line)))
        at = end
    return "".join(pieces) + line[at:], found


# ---- LLVM IR


def _llvm(text: str) -> list[Line]:
    found = re.finditer(r"^(!\d+) = (?:distinct )?!DILocation\(line: (\d+)", text, re.MULTILINE)
    numbers = {match[1]: int(match[2]) for match in found}
    lines = []
    for raw in text.splitlines():
        if raw.startswith(("!", "source_filename", "; ModuleID")) or "@llvm.dbg" in raw:
            continue
        match = re.search(r", !dbg (!\d+)", raw)
        source = numbers.get(match[1]) if match else None  # a function's own !dbg is no location
        lines.append(Line(re.sub(r",? !dbg !\d+", "", raw), source or None))
    return lines


# ---- assembly


def _assembly(text: str) -> list[Line]:
    """PTX or AMD's assembly: ``.loc`` is about the instructions that follow it."""
    lines: list[Line] = []
    current = None
    for raw in _program_only(text).splitlines():
        word = raw.split(None, 1)[0] if raw.strip() else ""
        if word == ".loc":
            current = int(raw.split()[2]) or None  # .loc FILE LINE COLUMN
        elif word in (".file", ".section", ".size", ".text") or word.startswith(".cfi_"):
            continue
        elif re.match(r"(\$L__|\.L)(tmp|func_)", word) or _REMARK.match(raw):
            continue
        else:
            is_code = word and not word.startswith((".", "//", ";", "{", "}")) and not word.endswith(":")
            lines.append(Line(_in_columns(raw), current if is_code else None))
    return lines


def _in_columns(line: str) -> str:
    """An instruction with its operands in a column of their own, where the compiler has set tabs."""
    if not line.startswith("\t"):
        return line.expandtabs(8)
    operation, tab, operands = line[1:].partition("\t")
    return "    " + (f"{operation:<15} {operands.expandtabs(8)}" if tab else operation)


_REMARK = re.compile(r"\s*(//|;)(?! %bb)")  # a whole line of comment, except for the blocks' names


def _program_only(text: str) -> str:
    """Without the debugging sections and tables that follow the program."""
    for end in ("\n\t.file\t1 ", "\n\t.section\t.debug", "\n\t.section\t.rodata"):
        at = text.find(end, text.find("\n\t.loc\t"))
        text = text if at < 0 else text[:at]
    return text


def _sass(text: str) -> list[Line]:
    lines: list[Line] = []
    current = None
    for raw in text.splitlines():
        if match := re.match(r'\s*//## File "[^"]*", line (\d+)', raw):
            current = int(match[1]) or None
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$", raw):
            lines.append(Line(f"{match[1]}  {match[2]}", current))
        elif lines and (match := re.match(r"(\.L_\w+):", raw)):
            lines.append(Line(f"{match[1]}:"))
    ends = [i for i, line in enumerate(lines) if line.text.endswith("  EXIT")]
    behind = ends[-1] + 1 if ends else len(lines)
    if all(_fills_up(line.text) for line in lines[behind:]):
        lines[behind:] = [Line(line.text) for line in lines[behind:]]
    return lines


def _fills_up(line: str) -> bool:
    """Return whether a line only fills up the last cache line: a jump to itself, NOPs, a label after them."""
    return bool(re.search(r"  NOP$|:$|  BRA `\(\.L_x_\d+\)$", line))


_READERS: dict[str, Callable[[str], list[Line]]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _assembly,
    "amdgcn": _assembly,
    "sass": _sass,
}
