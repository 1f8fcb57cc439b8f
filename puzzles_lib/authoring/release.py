"""Make notebooks/ from solutions/: `python -m puzzles_lib.authoring.release`, or `make notebooks`.

The master of a chapter is `solutions/NN_topic.ipynb`, with the answers between marker lines:

    ### BEGIN SOLUTION about 3 lines
    ...
    ### END SOLUTION

A release executes the master in place, then writes `notebooks/NN_topic.ipynb` from it. Each answer becomes a
comment. Outputs are dropped, except for puzzle statements and pictures. A puzzle that is `broken_by` a
mistake has no hole: its kernel contains the mistake. Both files depend only on their sources, so a second
release changes no byte. `just_puzzles` makes one more notebook from the exercises.
"""

import argparse
import ast
import base64
import html
import io
import json
import logging
import os
import re
import stat
import sys
import tempfile
import textwrap
import tokenize
from collections.abc import Callable, Iterable
from pathlib import Path

import nbformat
from nbformat import NotebookNode

from puzzles_lib.authoring import just_puzzles
from puzzles_lib.authoring.modules import modules
from puzzles_lib.authoring.sockets import socket_prefix
from puzzles_lib.authoring.solutions import kernels_in, without_markers
from puzzles_lib.chapters import CHAPTERS, breaking, puzzles
from puzzles_lib.drawing.colours import DARK
from puzzles_lib.mistakes import FILE as RIGHT_KERNELS
from puzzles_lib.stubs import FILE, HOLE, digest

CELL_TIMEOUT_S = 120
START_TIMEOUT_S = 120  # of a kernel
REPO = Path(__file__).resolve().parents[2]

_BEGIN, _END = "### BEGIN SOLUTION", "### END SOLUTION"
_TOOL_COMMENT = re.compile(r" +# fmt: skip$", re.MULTILINE)
_LOOKS_LIKE_A_MARKER = re.compile(r"\s*#+\s*(begin|end)[\s_-]*solution", re.IGNORECASE)
_READABLE_ID = re.compile(r"[a-z0-9]+([-_][a-z0-9]+)*")
_RANDOM_ID_PART = re.compile(r"(?=.*[0-9])[0-9a-f]{8,}")  # of the ids that Jupyter and nbformat make
_MASTERS = "[0-9][0-9]_*.ipynb"
_KERNEL = "python3"
_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": _KERNEL},
    "language_info": {"name": "python"},  # no version: it would be this machine's
}
_KEPT_CELL_METADATA = ("tags", "jupyter")
WHEN_RUN = "when-run"  # the tag of a picture that exercises do not show before
NOT_COMPARED = "nbval-ignore-output"  # nbval's tag: a picture is handed out as an image, and drawn as SVG


class ExecutionFailed(RuntimeError):
    """A cell of a master raised, hung, or killed its kernel, or there was no kernel to run it."""


def strip(nb: NotebookNode, name: str = "notebook") -> NotebookNode:
    """Return the exercise made from a master: holes cut, outputs cleared except for those that `_is_shown`.

    `nb` itself does not change.

    A hole keeps its indentation and says `# your code here (SIZE)`, or `# your code here: replace the dots`
    below a line that ends with ``= ...``. SIZE is the text after the BEGIN marker,
    or the number of lines cut. A block without a line left gets a `pass`, which Triton compiles too. Raises
    ValueError, with `name`, cell id and line, for markers that are unpaired, nested or misspelled.
    """
    exercise = normalise(nb)
    imported, number = _imported(exercise), 0
    for cell in exercise.cells:
        if cell.cell_type == "code":
            outputs = cell.outputs if _is_shown(cell, imported) else []
            cut = _cut_holes(broken(cell.id, cell.source), f"{name}, cell {cell.id}")
            cell.source = without_tool_comments(cut)
            outputs = [output for output in outputs if "data" in output]
            number += bool(outputs)
            cell.execution_count = number if outputs else None  # nbval minds outputs without a number
            cell.outputs = [_still(output, number) for output in outputs]
            if any(_is_drawing(output) for output in outputs):
                cell.metadata.tags = [*cell.metadata.get("tags", ()), NOT_COMPARED]
    return exercise


def _imported(nb: NotebookNode) -> frozenset[str]:
    """The names that a notebook's cells import."""
    found = set()
    for cell in nb.cells:
        if cell.cell_type == "code" and _parses(cell.source):
            for node in ast.walk(ast.parse(cell.source)):
                if isinstance(node, ast.Import | ast.ImportFrom):
                    found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    return frozenset(found)


def _is_shown(cell: NotebookNode, imported: frozenset[str]) -> bool:
    """Return whether a cell shows only a puzzle's statement or a picture, and nothing that a reader has made.

    Such a cell has imports and then one expression of only imported names: a puzzle, or a call of a picture.
    A cell tagged `WHEN_RUN` isn't shown, because it would answer a question above it.
    """
    if WHEN_RUN in cell.metadata.get("tags", ()):
        return False
    statements = ast.parse(cell.source).body if _parses(cell.source) else []
    *first, last = statements or [None]
    if not isinstance(last, ast.Expr) or not all(isinstance(s, ast.Import | ast.ImportFrom) for s in first):
        return False
    names = {node.id for node in ast.walk(last) if isinstance(node, ast.Name)}
    match last.value:
        case ast.Name(id=name):
            return name.isupper() and names <= imported
        case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="pictures"))):
            return names <= imported
    return False


def _still(output: NotebookNode, number: int) -> NotebookNode:
    """An output as it is handed out: a drawing is an image, which a notebook shows that nobody trusts yet.

    JupyterLab takes inline SVG out of such a notebook, and shows no `image/svg+xml`. The image is dark on a
    dark page, as JupyterLab's are by their ``color-scheme``; on any other it is ink on a sheet of paper.
    """
    copy = nbformat.from_dict(output)
    if "execution_count" in copy:
        copy.execution_count = number
    if _is_drawing(copy):
        head, end, rest = copy.data["text/html"].partition(">")
        packed = base64.b64encode(f"{head}{end}{DARK}{rest}".encode()).decode()
        told = html.escape(" ".join(copy.data.get("text/plain", "").removeprefix("[picture] ").split()))
        image = f'<img alt="{told}" src="data:image/svg+xml;base64,{packed}">'
        copy.data["text/html"] = image
    return copy


def _is_drawing(output: NotebookNode) -> bool:
    return output.data.get("text/html", "").startswith("<svg ")


def normalise(nb: NotebookNode) -> NotebookNode:
    """Return a copy of `nb` without the metadata that depends on a computer, a version or an editor."""
    copy = nbformat.from_dict(nb)
    copy.metadata = nbformat.from_dict(_METADATA)
    for cell in copy.cells:
        cell.metadata = {key: cell.metadata[key] for key in _KEPT_CELL_METADATA if key in cell.metadata}
    return copy


def hole_sizes(source: str) -> list[tuple[str, int]]:
    """Return for each hole of a cell its stated size (may be empty) and the number of its lines of code."""
    lines = source.splitlines()
    return [(_stated_size(lines[b]), _count_code(lines[b + 1 : e])) for b, e in _find_holes(source, "cell")]


def with_stubs(source: str, where: str) -> str:
    """Return a master's cell with the exercise's comment before each answer.

    If another tool, such as nbgrader, cuts both markers and everything between them, the exercise is left.
    Raises what `strip` raises.
    """
    return _around_holes(source, where, lambda stub, answer: [*stub, *answer])


def broken(cell_id: str, source: str) -> str:
    """Return a cell's source with the mistake that breaks its puzzle; unchanged if there is no such mistake.

    Raises ValueError for a mistake that does not fit.
    """
    for name in kernels_in({cell_id: source}, cell_id) if cell_id.endswith("-kernel") else ():
        puzzle = next((puzzle for puzzle in puzzles() if puzzle.name == name), None)
        if puzzle and (slip := breaking(puzzle)):
            return slip.apply(source)
    return source


def without_tool_comments(source: str) -> str:
    """Return a cell's source without comments for the formatter."""
    return _TOOL_COMMENT.sub("", source)


def _cut_holes(source: str, where: str) -> str:
    """`source` with a comment, and a `pass` where Python needs one, instead of each hole."""
    return _around_holes(source, where, lambda stub, answer: stub)


def _around_holes(source: str, where: str, joined: Callable[[list[str], list[str]], list[str]]) -> str:
    """`source` with each hole replaced by what is made of its stub and of the lines from marker to marker."""
    holes = _find_holes(source, where)
    if holes and not _parses(source):
        raise ValueError(f"{where}: a cell with a hole must be plain Python")
    lines = source.splitlines()
    cut: list[str] = []  # the exercise so far
    done: list[str] = []
    start = 0
    for begin, end in holes:
        indent = lines[begin][: -len(lines[begin].lstrip())]
        stated = _stated_size(lines[begin]) or _size(_count_code(lines[begin + 1 : end]))
        cut += lines[start:begin]
        asked = "\n".join(lines[start:begin]).rstrip().endswith("= ...")
        stub = [f"{indent}{HOLE}: replace the dots" if asked else f"{indent}{HOLE} ({stated})"]
        if not _parses("\n".join(cut + stub + lines[end + 1 :])):
            stub.append(f"{indent}pass")
            if not _parses("\n".join(cut + stub + lines[end + 1 :])):
                raise ValueError(f"{where}, line {begin + 1}: without the answer the cell is not Python")
        cut += stub
        done += lines[start:begin] + joined(stub, lines[begin : end + 1])
        start = end + 1
    return "\n".join(done + lines[start:])


def _find_holes(source: str, where: str) -> list[tuple[int, int]]:
    """The (first, last) line index of each hole, its markers included."""
    holes = []
    begin = None
    for i, line in enumerate(source.splitlines()):
        if not _LOOKS_LIKE_A_MARKER.match(line):
            continue
        here = f"{where}, line {i + 1}"
        text = line.strip()
        if text == _BEGIN or text.startswith(_BEGIN + " "):
            if begin is not None:
                raise ValueError(f"{here}: {_BEGIN} inside the hole that line {begin + 1} begins")
            begin = i
        elif text == _END:
            if begin is None:
                raise ValueError(f"{here}: {_END} without a {_BEGIN} before it")
            holes.append((begin, i))
            begin = None
        else:
            raise ValueError(f"{here}: {text!r} is neither '{_BEGIN} [size]' nor '{_END}'")
    if begin is not None:
        raise ValueError(f"{where}, line {begin + 1}: {_BEGIN} without an {_END} after it")
    return holes


def _stated_size(begin_line: str) -> str:
    return begin_line.strip().removeprefix(_BEGIN).strip()


def _count_code(lines: Iterable[str]) -> int:
    """Lines of code, one that goes on in the next counted once. Part of a statement counts as one."""
    text = textwrap.dedent("\n".join(lines)) + "\n"
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except tokenize.TokenError:
        return 1
    return sum(token.type == tokenize.NEWLINE for token in tokens)


def _size(count: int) -> str:
    return "1 line" if count == 1 else f"about {count} lines"


def _parses(source: str) -> bool:
    try:
        ast.parse(source)
    except SyntaxError:
        return False
    return True


def _check_ids(nb: NotebookNode, name: str) -> None:
    """Raise ValueError if a cell has no id, a random-looking id, or the id of another cell."""
    seen: set[str] = set()
    for number, cell in enumerate(nb.cells, start=1):
        cell_id = cell.get("id", "")
        parts = cell_id.split("-")
        if not _READABLE_ID.fullmatch(cell_id) or any(_RANDOM_ID_PART.fullmatch(part) for part in parts):
            raise ValueError(
                f"{name}, cell {number}: id {cell_id!r} is not readable; name it like 'add-stub'"
            )
        if cell_id in seen:
            raise ValueError(f"{name}, cell {number}: id {cell_id!r} is taken by an earlier cell")
        seen.add(cell_id)


def execute(path: Path) -> None:
    """Run a master from top to bottom, in its folder, and keep its outputs in the file.

    Raises ValueError if the file is not a master (format, cell ids). Raises ExecutionFailed if a cell raises,
    takes more than CELL_TIMEOUT_S or kills the kernel, or if no kernel starts. The file then stays as it was.
    """
    _write(path, _dumps(_executed(path)))


def release(
    solutions_dir: Path,
    notebooks_dir: Path,
    execute: bool = True,
    only: Iterable[str] | None = None,
    force: bool = False,
) -> list[Path]:
    """Execute the masters in `solutions_dir` and write their exercises to `notebooks_dir`.

    `only` names chapters, "01" or "01_blocks". Returns the files whose bytes changed.
    Raises what `execute` and `strip` raise, and ValueError for an unknown chapter or, unless `force`, for an
    exercise that was run: somebody is solving that one.
    """
    masters = find_masters(solutions_dir, only)
    for master in masters:
        if not force and _is_in_use(notebooks_dir / master.name):
            raise ValueError(
                f"{_short(notebooks_dir / master.name)} was run, so somebody may be solving it: "
                "move it away, or give --force"
            )
    changed = []
    for master in masters:
        source = normalise(read_master(master))
        made = _modules(master, source)  # first: what is executed may read them
        changed += [path for path, text in made.items() if _write(path, text)]
        solved = _executed(master) if execute else source
        exercise = strip(solved, _short(master))
        notebooks_dir.mkdir(parents=True, exist_ok=True)
        made = {master: _dumps(solved), notebooks_dir / master.name: _dumps(exercise)}
        changed += [path for path, text in made.items() if _write(path, text)]
    made = _of_several(solutions_dir, notebooks_dir)
    changed += [path for path, text in made.items() if (force or not _is_in_use(path)) and _write(path, text)]
    return changed


def _of_several(solutions_dir: Path, notebooks_dir: Path) -> dict[Path, str]:
    """The notebook that is made from several chapters, unless one of them is missing."""
    masters = [solutions_dir / f"{chapter}.ipynb" for chapter in just_puzzles.PARTS]
    if not all(master.exists() for master in masters):
        return {}
    exercises = {master.stem: strip(read_master(master), _short(master)) for master in masters}
    return {notebooks_dir / just_puzzles.NAME: _dumps(just_puzzles.just_the_puzzles(exercises))}


def _modules(master: Path, nb: NotebookNode) -> dict[Path, str]:
    """The files of the chapter that are made from a master's cells."""
    folder = master.parent.parent / "puzzles_lib" / "chapters" / f"ch{master.stem}"
    made = {folder / f"{name}.py": text for name, text in modules(nb, master.stem).items()}
    if folder.is_dir() and (found := _stubs(strip(nb, _short(master)), nb)):
        made[folder / FILE] = json.dumps(found, indent=1, sort_keys=True) + "\n"
    if folder.is_dir() and (right := _right_kernels(nb, master)):
        made[folder / RIGHT_KERNELS] = json.dumps(right, indent=1, sort_keys=True) + "\n"
    return made


def _right_kernels(nb: NotebookNode, master: Path) -> dict[str, str]:
    """The kernel of each of the chapter's puzzles that has mistakes, in base64, by the puzzle's name."""
    wanted = {each.puzzle.name for chapter in CHAPTERS for each in chapter.mistakes}
    sources = {cell.id: cell.source for cell in nb.cells if cell.cell_type == "code"}
    kernels = kernels_in(sources, _short(master))
    return {
        name: base64.b64encode(without_markers(source).encode()).decode()
        for name, source in kernels.items()
        if name in wanted
    }


def _stubs(exercise: NotebookNode, master: NotebookNode) -> dict[str, str]:
    """The digest of each kernel with a hole, or handed out broken, by its name."""
    without_lesson = {part.id for parts in just_puzzles.PARTS.values() for part in parts}
    found = {}
    for cell, solved in zip(exercise.cells, master.cells, strict=True):
        if cell.cell_type != "code":
            continue
        is_broken = broken(solved.id, solved.source) != solved.source
        if is_broken or HOLE in cell.source:
            right = {ast.unparse(node) for node in ast.parse(solved.source).body} if is_broken else set()
            lines = cell.source.splitlines()
            for node in ast.parse(cell.source).body:
                if isinstance(node, ast.FunctionDef) and node.decorator_list:
                    whole = is_broken and ast.unparse(node) not in right
                    if whole or HOLE in "\n".join(lines[node.lineno - 1 : _end(node, lines)]):
                        found[node.name] = digest(ast.unparse(node))
                        if any(f"{part}-kernel" == cell.id for part in without_lesson):
                            found[f"{node.name}, empty"] = digest(just_puzzles.empty(cell.source))
    return found


def _end(node: ast.FunctionDef, lines: list[str]) -> int:
    """The line after a function, with the comments at its end."""
    end = node.end_lineno
    while end < len(lines) and (not lines[end].strip() or lines[end][0].isspace()):
        end += 1
    return end


def find_stale(solutions_dir: Path, notebooks_dir: Path, only: Iterable[str] | None = None) -> list[str]:
    """Return a line for each file that a release would change, outputs aside. Runs and writes nothing."""
    problems = []
    masters = find_masters(solutions_dir, only)
    for master in masters:
        exercise = notebooks_dir / master.name
        try:
            solved = read_master(master)
            wanted = _dumps(strip(solved, _short(master)))
        except ValueError as error:
            problems.append(str(error))
            continue
        if master.read_text("utf-8") != _dumps(normalise(solved)):
            problems.append(f"{_short(master)}: an editor left its marks; run make notebooks")
        for path, text in _modules(master, solved).items():
            if not path.exists() or path.read_text("utf-8") != text:
                problems.append(f"{_short(path)}: differs from {_short(master)}'s cells; run make notebooks")
        if not exercise.exists():
            problems.append(f"{_short(exercise)}: missing; run make notebooks")
        elif exercise.read_text("utf-8") != wanted:
            problems.append(
                f"{_short(exercise)}: differs from what {_short(master)} gives; run make notebooks"
            )
    if only is None and not problems:
        problems += [
            f"{_short(path)}: differs from what the chapters give; run make notebooks"
            for path, text in _of_several(solutions_dir, notebooks_dir).items()
            if not path.exists() or path.read_text("utf-8") != text
        ]
    if only is None:
        orphans = {path.name for path in notebooks_dir.glob(_MASTERS)} - {path.name for path in masters}
        problems += [
            f"{_short(notebooks_dir / name)}: no master in solutions; remove it" for name in sorted(orphans)
        ]
    return problems


def find_masters(solutions_dir: Path, only: Iterable[str] | None) -> list[Path]:
    masters = sorted(solutions_dir.glob(_MASTERS))
    if not masters:
        raise ValueError(f"{_short(solutions_dir)}/ has no masters: only a checkout of the course has them")
    if only is None:
        return masters
    chosen = []
    for name in only:
        matches = [path for path in masters if name in (path.stem, path.stem[:2], path.name)]
        if not matches:
            known = ", ".join(path.stem for path in masters) or "none"
            raise ValueError(f"no chapter {name!r} in {_short(solutions_dir)}; there are: {known}")
        chosen += matches
    return chosen


def read_master(path: Path) -> NotebookNode:
    """Return the master at `path`.

    Raises ValueError if it isn't a notebook of format 4.5 or has bad cell ids.
    """
    name = _short(path)
    try:
        raw = json.loads(path.read_text("utf-8"))
        version = (raw["nbformat"], raw["nbformat_minor"])
        cells = raw["cells"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{name}: not a notebook ({error})") from None
    if version != (4, 5):
        raise ValueError(
            f"{name}: notebook format {version[0]}.{version[1]}, which should be 4.5, with cell ids"
        )
    _check_ids(nbformat.from_dict({"cells": cells}), name)  # first: nbformat makes up ids that are missing
    try:
        nb = nbformat.reads(json.dumps(raw), as_version=4)
        nbformat.validate(nb)
    except nbformat.ValidationError as error:
        raise ValueError(f"{name}: {error.message}") from None
    return nb


def _executed(path: Path) -> NotebookNode:
    """The master at `path`, run in its folder, with no trace of the user's own settings and progress."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    nb = normalise(read_master(path))
    running = {"id": "(none)"}
    client = NotebookClient(
        nb,
        kernel_name=_KERNEL,
        startup_timeout=START_TIMEOUT_S,
        timeout=CELL_TIMEOUT_S,
        iopub_timeout=CELL_TIMEOUT_S,  # a busy machine may be late with an output
        raise_on_iopub_timeout=True,  # and a release without it would be a wrong one
        allow_errors=False,
        record_timing=False,
        coalesce_streams=True,
        extra_arguments=["--log-level=ERROR"],
        resources={"metadata": {"path": str(path.parent)}},
        on_cell_start=lambda cell, cell_index: running.update(id=cell.id),
        log=logging.Logger("quiet", logging.CRITICAL),  # what goes wrong is raised as well
    )
    with tempfile.TemporaryDirectory(prefix="puzzles-release-") as scratch, socket_prefix() as prefix:
        environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
        environment |= {"PUZZLES_STATE_DIR": f"{scratch}/state", "IPYTHONDIR": f"{scratch}/ipython"}
        manager = client.create_kernel_manager()
        manager.transport, manager.ip, manager.log = "ipc", prefix, client.log
        try:
            client.start_new_kernel(env=environment)
            client.start_new_kernel_client()
        except (RuntimeError, LookupError, OSError) as error:  # dead, silent; unknown; no such program
            raise ExecutionFailed(f"{_short(path)}: no kernel to run it: {error}") from None
        try:
            client.execute()
        except CellExecutionError as error:
            reason = f"{error.ename}: {error.evalue}".splitlines()[0]
        except CellTimeoutError:
            reason = f"took more than {CELL_TIMEOUT_S} s"
        except DeadKernelError:
            reason = "the kernel died"
        else:
            return normalise(nb)
    raise ExecutionFailed(f"{_short(path)}, cell {running['id']}: {reason}")


def _is_in_use(path: Path) -> bool:
    """Whether a cell of the notebook at `path` was run, except for those that exercises show anyway."""
    if not path.exists():
        return False
    nb = nbformat.read(path, as_version=4)
    imported = _imported(nb)
    return any(
        (cell.get("execution_count") or cell.get("outputs")) and not _is_shown(cell, imported)
        for cell in nb.cells
    )


def _dumps(nb: NotebookNode) -> str:
    return nbformat.writes(nb, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _write(path: Path, text: str) -> bool:
    """Replace `path` as a whole, if it would change; says whether it did."""
    if path.exists() and path.read_text("utf-8") == text:
        return False
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=".tmp")
    try:
        with open(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(temporary, stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o644)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise
    return True


def _short(path: Path) -> str:
    """`solutions/01_blocks.ipynb` rather than the whole path: messages are the same on every machine."""
    return "/".join(path.resolve().parts[-2:]) if path.suffix else path.name


def main(argv: list[str] | None = None, root: Path = REPO) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m puzzles_lib.authoring.release", description=__doc__.splitlines()[0]
    )
    parser.add_argument(
        "chapters", nargs="*", help="chapters to release, like 01 or 01_blocks (default: all)"
    )
    parser.add_argument("--no-execute", action="store_true", help="keep the outputs that the solutions have")
    parser.add_argument("--check", action="store_true", help="list stale files, write nothing; exit 1 if any")
    parser.add_argument("--force", action="store_true", help="overwrite exercises that were run")
    args = parser.parse_args(argv)
    folders = root / "solutions", root / "notebooks"
    try:
        if args.check:
            problems = find_stale(*folders, only=args.chapters or None)
            print("\n".join(problems) or "notebooks/ is what solutions/ gives")
            return 1 if problems else 0
        for path in release(*folders, not args.no_execute, args.chapters or None, args.force):
            print(f"wrote {_short(path)}")
    except (ValueError, ExecutionFailed, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
