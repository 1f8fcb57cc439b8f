"""From which line of the kernel each line of a stage comes, by the locations that Triton carries along.

Every stage writes them in its own way: MLIR as ``loc(#loc7)``, LLVM IR as ``!dbg !7``, PTX and AMD's
assembly as ``.loc 1 7 20`` lines, nvdisasm as comments. `read` takes them off, which leaves text that
is about the program, and returns the two side by side. ``home`` is the file of the kernel, under the
short name that `puzzles_lib.compiler` gave it: code inlined from elsewhere counts as the line of the
kernel that called it.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Line:
    """A line of a stage, and the line of the kernel's file or cell that it comes from, if it says."""

    text: str
    source: int | None = None


def read(stage: str, text: str, home: str, inlined: Mapping[str, int] | None = None) -> tuple[Line, ...]:
    """The lines of a stage's text, locations taken off and resolved.

    inlined: for ``"sass"``, which line of the kernel a line of another file was inlined into
        (``"standard.py:191"``), as `inlined_lines` finds them in the PTX.
    """
    if stage == "sass":
        return tuple(_sass(text, home, inlined or {}))
    return tuple(_trimmed(_READERS[stage](text, home)))


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


def _mlir(text: str, home: str) -> list[Line]:
    definitions = dict(m.groups() for m in map(_DEFINITION.match, text.splitlines()) if m)
    resolved: dict[str, int | None] = {}

    def resolve(location: str) -> int | None:
        """The first line of the kernel's file in a location: callees before callers."""
        if location not in resolved:
            resolved[location] = None
            if location.startswith("#loc"):
                resolved[location] = resolve(definitions.get(location, ""))
            elif match := re.match(r'"((?:[^"\\]|\\.)*)":(\d+):', location):
                resolved[location] = int(match[2]) if match[1] == home else None
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


def _llvm(text: str, home: str) -> list[Line]:
    nodes = {}
    for match in re.finditer(r"^(!\d+) = (?:distinct )?!(DI\w+)\((.*)\)$", text, re.MULTILINE):
        fields = dict(re.findall(r'(\w+): ("(?:[^"\\]|\\.)*"|[^,]+)', match[3]))
        nodes[match[1]] = (match[2], fields)

    def file_of(scope: str) -> str:
        while scope in nodes:
            _, fields = nodes[scope]
            if "file" in fields:
                return nodes.get(fields["file"], ("", {}))[1].get("filename", "").strip('"')
            scope = fields.get("scope", "")
        return ""

    def resolve(node: str) -> int | None:
        while node in nodes:
            _, fields = nodes[node]
            if file_of(fields.get("scope", "")) == home:
                return int(fields.get("line", 0)) or None
            node = fields.get("inlinedAt", "")
        return None

    lines = []
    for raw in text.splitlines():
        if raw.startswith(("!", "source_filename", "; ModuleID")) or "@llvm.dbg" in raw:
            continue
        match = re.search(r", !dbg (!\d+)", raw)
        source = resolve(match[1]) if match and not raw.startswith("define") else None
        lines.append(Line(re.sub(r",? !dbg !\d+", "", raw), source))
    return lines


# ---- assembly


def _here(comment: str, home: str) -> int | None:
    """The line of the kernel in a comment such as ``standard.py:191:40 @[ kernel.py:16:45 ]``."""
    match = re.search(rf"(?:^|\s){re.escape(home)}:(\d+):", comment)
    return int(match[1]) or None if match else None


def _assembly(text: str, home: str) -> list[Line]:
    """PTX or AMD's assembly: ``.loc`` is about the instructions that follow it."""
    lines: list[Line] = []
    current = None
    for raw in _program_only(text).splitlines():
        word = raw.split(None, 1)[0] if raw.strip() else ""
        if word == ".loc":
            current = _here(raw.partition(";" if ";" in raw else "//")[2], home)
        elif word in (".file", ".section", ".text") or word.startswith(".cfi_"):
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


_REMARK = re.compile(r"\s*(//|;)(?! %bb)")  # a whole line of comment, but for the blocks' names


def _program_only(text: str) -> str:
    """Without the debugging sections and tables that follow the program."""
    for end in ("\n\t.file\t1 ", "\n\t.section\t.debug", "\n\t.section\t.rodata"):
        at = text.find(end, text.find("\n\t.loc\t"))
        text = text if at < 0 else text[:at]
    return text


def inlined_lines(ptx: str, home: str) -> dict[str, int]:
    """For lines of other files that the PTX has inlined into one line of the kernel only: that line."""
    found: dict[str, set[int]] = {}
    for match in re.finditer(r"^\t\.loc\t.*// (\S+:\d+):\d+ (@\[.*)$", ptx, re.MULTILINE):
        if line := _here(match[2], home):
            found.setdefault(match[1], set()).add(line)
    return {place: lines.pop() for place, lines in found.items() if len(lines) == 1}


def _sass(text: str, home: str, inlined: Mapping[str, int]) -> list[Line]:
    lines: list[Line] = []
    current = None
    in_code = False
    for raw in text.splitlines():
        if match := re.match(r'\s*//## File "([^"]*)", line (\d+)', raw):
            file = match[1].rpartition("/")[2]
            current = int(match[2]) if match[1] == home else inlined.get(f"{file}:{match[2]}")
        elif match := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*$", raw):
            in_code = True
            lines.append(Line(f"{match[1]}  {match[2]}", current))
        elif in_code and (match := re.match(r"(\.L_\w+):", raw)):
            lines.append(Line(f"{match[1]}:"))
    while lines and lines[-1].text.endswith("  NOP"):  # they only fill up the last cache line
        lines.pop()
    return lines


_READERS: dict[str, Callable[[str, str], list[Line]]] = {
    "ttir": _mlir,
    "ttgir": _mlir,
    "llir": _llvm,
    "ptx": _assembly,
    "amdgcn": _assembly,
}
