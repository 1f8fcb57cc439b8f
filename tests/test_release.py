"""`puzzles_lib.authoring.release`: what is cut, what stays, and that nothing is half-written."""

import base64
import json
import os
import re
import stat
import sys

import nbformat
import pytest

from puzzles_lib.authoring import release as module
from puzzles_lib.authoring.release import (
    ExecutionFailed,
    execute,
    find_stale,
    hole_sizes,
    main,
    release,
    strip,
)
from puzzles_lib.drawing.colours import THEME

KERNEL = """\
@triton.jit
def add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    ### BEGIN SOLUTION about 2 lines
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, x + 10, mask=offs < N)
    ### END SOLUTION


check(add_kernel, CONSTANT_ADD)"""


def code(cell_id, source, **metadata):
    cell = nbformat.v4.new_code_cell(source, id=cell_id, metadata=metadata)
    return cell


def prose(cell_id, source):
    return nbformat.v4.new_markdown_cell(source, id=cell_id)


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=list(cells))


def stripped(source):
    return strip(notebook(code("stub", source))).cells[0].source


@pytest.fixture
def course(tmp_path):
    """A folder with solutions/, and a function that puts a chapter there."""
    (tmp_path / "solutions").mkdir()

    def put(name, *cells):
        path = tmp_path / "solutions" / f"{name}.ipynb"
        nbformat.write(notebook(*cells), path)
        return path

    return tmp_path, put


# What is cut.


def test_a_learner_reads_no_comment_for_the_formatter():
    source = "def kernel(\n    x, y,\n):  # fmt: skip\n    return x  # [BLOCK]"
    assert stripped(source) == "def kernel(\n    x, y,\n):\n    return x  # [BLOCK]"


def test_hole_becomes_a_comment_with_its_size_and_indentation():
    assert stripped(KERNEL) == (
        "@triton.jit\n"
        "def add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n"
        "    offs = tl.arange(0, BLOCK)\n"
        "    # your code here (about 2 lines)\n"
        "\n"
        "\n"
        "check(add_kernel, CONSTANT_ADD)"
    )


@pytest.mark.parametrize(
    "body, comment",
    [
        ("a = 1", "# your code here (1 line)"),
        ("# why\na = 1\n\nb = 2", "# your code here (about 2 lines)"),
        ("a = (\n    1,\n)\nb = 2", "# your code here (about 2 lines)"),
    ],
)
def test_size_is_counted_where_none_is_given(body, comment):
    assert stripped(f"### BEGIN SOLUTION\n{body}\n### END SOLUTION") == comment


@pytest.mark.parametrize(
    "head, tail",
    [
        ("def f():", ""),
        ("def f(\n    a,\n):  # the sum", "\n\ng = 1"),
        ("def f(n):\n    for i in range(n):", ""),
        ("def f(n):\n    if n:", "\n    return n"),
        ("def f(n):\n    if n:\n        a = 1\n    else:", ""),
        ("while True:", "\n\n\ndef g():\n    pass"),
    ],
)
def test_empty_block_gets_a_pass(head, tail):
    indent = " " * (len(head.splitlines()[-1]) - len(head.splitlines()[-1].lstrip()) + 4)
    left = stripped(
        f"{head}\n{indent}### BEGIN SOLUTION 1 line\n{indent}a = 2\n{indent}### END SOLUTION{tail}"
    )
    assert left == f"{head}\n{indent}# your code here (1 line)\n{indent}pass{tail}"


@pytest.mark.parametrize(
    "head", ['def f():\n    """Sum."""', "def f():\n    a = 1", "x = 1\nif x:\n    y = 1"]
)
def test_block_with_something_left_gets_no_pass(head):
    assert "pass" not in stripped(f"{head}\n    ### BEGIN SOLUTION 1 line\n    b = 2\n    ### END SOLUTION")


def test_two_holes_in_a_block_get_one_pass():
    hole = "    ### BEGIN SOLUTION 1 line\n    a = 1\n    ### END SOLUTION"
    comment = "    # your code here (1 line)"
    left = stripped(f"def f():\n{hole}\n\n    # then\n{hole}")
    assert left == f"def f():\n{comment}\n\n    # then\n{comment}\n    pass"


def test_what_is_left_compiles_as_a_kernel(tmp_path):
    """An empty body, and a loop with an empty body, get through Triton's front end."""
    import linecache

    import triton
    import triton.language as tl
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    hole = "### BEGIN SOLUTION 1 line\n{0}tl.store(x_ptr, 1.0)\n{0}### END SOLUTION"
    source = (
        f"def empty(x_ptr, N):\n    {hole.format('    ')}\n\n"
        f"def loop(x_ptr, N):\n    for _ in range(N):\n        {hole.format('        ')}\n"
    )
    left = stripped(source)
    assert left.count("pass") == 2 and "store" not in left
    linecache.cache["<stub>"] = (len(left), None, left.splitlines(keepends=True), "<stub>")
    names = {"tl": tl}
    exec(compile(left, "<stub>", "exec"), names)
    for name in ("empty", "loop"):
        kernel = triton.jit(names[name])
        source = ASTSource(kernel, {"x_ptr": "*fp32", "N": "i32"}, {})
        assert triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"]


def test_outputs_and_metadata_go_ids_tags_and_prose_stay():
    cell = code("stub", KERNEL, tags=["raises-exception"], execution={"iopub": "now"}, collapsed=True)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="all 4 cases pass\n")]
    cell.execution_count = 7
    master = notebook(prose("intro", "### BEGIN SOLUTION is a marker in code only"), cell)
    master.metadata = {"kernelspec": {"name": "my-conda"}, "language_info": {"version": "3.13.1"}, "toc": {}}
    before = nbformat.writes(master)
    exercise = strip(master)
    assert nbformat.writes(master) == before
    assert exercise.cells[0].source == "### BEGIN SOLUTION is a marker in code only"
    stub = exercise.cells[1]
    assert (stub.id, stub.outputs, stub.execution_count) == ("stub", [], None)
    assert stub.metadata == {"tags": ["raises-exception"]}
    assert exercise.metadata.kernelspec.name == "python3"
    assert exercise.metadata.language_info == {"name": "python"}
    assert set(exercise.metadata) == {"kernelspec", "language_info"}


@pytest.mark.parametrize(
    "source, line, reason",
    [
        ("a = 1\n### BEGIN SOLUTION\nb = 2", 2, "without an ### END"),
        ("a = 1\nb = 2\n### END SOLUTION", 3, "without a ### BEGIN"),
        ("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION", 2, "inside the hole that line 1 begins"),
        ("### BEGIN SOLUTION\n### END SOLUTION\n### END SOLUTION", 3, "without a ### BEGIN"),
        ("## BEGIN SOLUTION\na = 1\n## END SOLUTION", 1, "is neither"),
        ("### Begin Solution\na = 1\n### END SOLUTION", 1, "is neither"),
        ("### BEGIN SOLUTIONS\na = 1\n### END SOLUTION", 1, "is neither"),
        ("### BEGIN SOLUTION\na = 1\n### END SOLUTION here", 3, "is neither"),
        ("### BEGIN_SOLUTION\na = 1\n### END SOLUTION", 1, "is neither"),
        ("x = (\n### BEGIN SOLUTION\n1)\n### END SOLUTION", 2, "without the answer the cell is not Python"),
    ],
)
def test_malformed_markers_name_file_cell_and_line(source, line, reason):
    with pytest.raises(ValueError, match="solutions/01_blocks.ipynb, cell add-stub, line") as error:
        strip(notebook(code("add-stub", source)), "solutions/01_blocks.ipynb")
    assert f"line {line}: " in str(error.value) and reason in str(error.value)
    assert "\n" not in str(error.value)


def test_hole_needs_plain_python_around_it():
    with pytest.raises(ValueError, match="cell stub: a cell with a hole must be plain Python"):
        stripped("%matplotlib inline\n### BEGIN SOLUTION\na = 1\n### END SOLUTION")


def test_magic_without_a_hole_is_left_alone():
    assert stripped("%matplotlib inline") == "%matplotlib inline"


def test_hole_sizes():
    assert hole_sizes(KERNEL) == [("about 2 lines", 2)]
    assert hole_sizes("### BEGIN SOLUTION\n# a\n\nb = 1\n### END SOLUTION") == [("", 1)]


# What a release writes.


def test_release_executes_writes_and_is_byte_stable(course, state_dir, monkeypatch):
    root, put = course
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (root / "solutions" / "data.txt").write_text("beside the notebook")
    first = put(
        "01_blocks",
        prose("intro", "# Blocks"),
        code("where", "import os\nprint(open('data.txt').read(), os.environ.get('TRITON_INTERPRET'))"),
        code("state", "open(os.environ['PUZZLES_STATE_DIR'], 'x').close()"),
        code("answer", "### BEGIN SOLUTION 1 line\n6 * 7\n### END SOLUTION"),
    )
    solutions, notebooks = root / "solutions", root / "notebooks"
    assert release(solutions, notebooks) == [first, notebooks / "01_blocks.ipynb"]

    solved = nbformat.read(first, as_version=4)
    assert solved.cells[1].outputs[0].text == "beside the notebook None\n"
    assert solved.cells[3].outputs[0].data["text/plain"] == "42"
    assert [cell.execution_count for cell in solved.cells[1:]] == [1, 2, 3]
    assert all(cell.metadata == {} for cell in solved.cells)
    assert not state_dir.exists()  # the user's progress is not touched

    exercise = nbformat.read(notebooks / "01_blocks.ipynb", as_version=4)
    assert exercise.cells[3].source == "# your code here (1 line)"
    assert all(cell.outputs == [] for cell in exercise.cells[1:])
    nbformat.validate(exercise)

    before = [path.read_bytes() for path in (first, notebooks / "01_blocks.ipynb")]
    assert release(solutions, notebooks) == []
    assert [path.read_bytes() for path in (first, notebooks / "01_blocks.ipynb")] == before
    assert before[0].endswith(b"}\n") and b"version" not in before[0]
    assert sorted(path.name for path in solutions.iterdir()) == ["01_blocks.ipynb", "data.txt"]


@pytest.mark.parametrize(
    "source, reason",
    [
        ("1 / 0", "cell bad: ZeroDivisionError: division by zero"),
        ("import os\nos._exit(1)", "cell bad: the kernel died"),
        ("import time\ntime.sleep(600)", "cell bad: took more than 10 s"),
    ],
)
def test_failed_execution_names_the_cell_and_writes_nothing(course, monkeypatch, source, reason):
    root, put = course
    if "took more" in reason:
        monkeypatch.setattr(module, "CELL_TIMEOUT_S", 10)
    path = put(
        "01_blocks", code("good", "print('hello')"), code("bad", source), code("after", "print('there')")
    )
    before = path.read_bytes()
    with pytest.raises(ExecutionFailed) as error:
        execute(path)
    assert str(error.value) == f"solutions/01_blocks.ipynb, {reason}"
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["01_blocks.ipynb"]


@pytest.mark.parametrize(
    "command, reason",
    [
        (["false"], "Kernel died before replying to kernel_info"),
        ([sys.executable, "-c", "import time; time.sleep(600)"], "Kernel didn't respond in 2 seconds"),
        (["no-such-program"], "[Errno 2] No such file or directory: 'no-such-program'"),
    ],
    ids=["dies", "is silent", "is missing"],
)
def test_a_kernel_that_does_not_start_is_one_line(
    course, capsys, kernel_command, monkeypatch, command, reason
):
    root, put = course
    path = put("01_blocks", code("good", "print('hello')"))
    before = path.read_bytes()
    kernel_command(*command)
    monkeypatch.setattr(module, "START_TIMEOUT_S", 2)
    assert main([], root) == 1
    said = capsys.readouterr()
    assert said == ("", f"error: solutions/01_blocks.ipynb: no kernel to run it: {reason}\n")
    assert path.read_bytes() == before


def test_a_kernel_that_is_not_installed_is_one_line(course, capsys, monkeypatch):
    root, put = course
    put("01_blocks", code("good", "print('hello')"))
    monkeypatch.setattr(module, "_KERNEL", "python99")
    assert main([], root) == 1
    err = capsys.readouterr().err
    assert err == "error: solutions/01_blocks.ipynb: no kernel to run it: No such kernel named python99\n"


def test_a_kernel_talks_over_sockets_in_a_folder_that_is_removed(course):
    root, put = course
    find = "from ipykernel.connect import get_connection_info\nprint(get_connection_info())"
    path = put("01_blocks", code("find", find))
    execute(path)
    info = json.loads(nbformat.read(path, as_version=4).cells[0].outputs[0].text)
    assert info["transport"] == "ipc" and os.path.isabs(info["ip"])
    assert not os.path.exists(os.path.dirname(info["ip"]))


def test_only_limits_the_chapters(course):
    root, put = course
    for name in ("00_welcome", "01_blocks", "02_more"):
        put(name, code("one", "1"))
    notebooks = root / "notebooks"
    release(root / "solutions", notebooks, execute=False, only=["01", "02_more"])
    assert sorted(path.name for path in notebooks.iterdir()) == ["01_blocks.ipynb", "02_more.ipynb"]
    with pytest.raises(
        ValueError, match="no chapter '07' in solutions; there are: 00_welcome, 01_blocks, 02_more"
    ):
        release(root / "solutions", notebooks, execute=False, only=["07"])


def test_exercise_that_is_being_solved_is_not_overwritten(course):
    root, put = course
    put("00_welcome", code("one", "1"))
    put("01_blocks", code("stub", KERNEL))
    solutions, notebooks = root / "solutions", root / "notebooks"
    release(solutions, notebooks, execute=False)
    mine = nbformat.read(notebooks / "01_blocks.ipynb", as_version=4)
    mine.cells[0].outputs = [nbformat.v4.new_output("stream", text="all 4 cases pass\n")]
    nbformat.write(mine, notebooks / "01_blocks.ipynb")
    before = (notebooks / "01_blocks.ipynb").read_bytes()
    put("00_welcome", code("one", "2"))
    master_before = (solutions / "00_welcome.ipynb").read_bytes()
    with pytest.raises(ValueError, match="notebooks/01_blocks.ipynb was run.*--force"):
        release(solutions, notebooks, execute=False)
    assert (notebooks / "01_blocks.ipynb").read_bytes() == before
    assert (solutions / "00_welcome.ipynb").read_bytes() == master_before
    release(solutions, notebooks, execute=False, force=True)
    assert find_stale(solutions, notebooks) == []


SHOWN = [
    "OUTER_ADD",
    "ch02.pictures.tiles()",
    "ch02.pictures.tiles(OUTER_ADD, BLOCK=4)",
    "from puzzles_lib.timing import recorded\n\nch02.pictures.bandwidth(recorded.rows('memory'))",
]
NOT_SHOWN = [
    "check(kernel, OUTER_ADD)",
    "kernel",
    "NAMED_BY_THE_READER",
    "ch02.pictures.road(kernel)",
    "size = 4\nch02.pictures.tiles(size)",
    "print(ch02.pictures.tiles())",
    "ch02.pictures",
    "%timeit 1",
    "",
]
IMPORTS = "from puzzles_lib import OUTER_ADD, ch02, check"
DRAWING = '<svg role="img" aria-labelledby="p1"><desc id="p1">a &lt; b</desc></svg>'


def shows(cell_id: str, source: str, **data: str):
    made = code(cell_id, source)
    kinds = {kind.replace("_", "/"): text for kind, text in data.items()}
    made.outputs = [nbformat.v4.new_output("execute_result", kinds, execution_count=7)]
    made.execution_count = 7
    return made


@pytest.mark.parametrize("source", SHOWN + NOT_SHOWN)
def test_statements_and_pictures_are_shown_and_nothing_that_a_reader_makes(source):
    nb = notebook(code("imports", IMPORTS), shows("it", source, text_plain="said"))
    cell = strip(nb).cells[1]
    assert [output.data["text/plain"] for output in cell.outputs] == ["said"] * (source in SHOWN)
    number = 1 if source in SHOWN else None  # of what is shown, in order: nbval wants one
    assert [cell.execution_count, *(o.execution_count for o in cell.outputs)] == [number] * (
        1 + len(cell.outputs)
    )
    nbformat.validate(strip(nb))
    assert nb.cells[1].execution_count == nb.cells[1].outputs[0].execution_count == 7


def test_a_picture_is_shown_as_an_image_with_its_words():
    picture = shows("it", SHOWN[1], text_html=DRAWING, text_plain='[picture] a < b, "c"')
    cell = strip(notebook(code("imports", IMPORTS), picture)).cells[1]
    assert cell.metadata.tags == ["nbval-ignore-output"] and "tags" not in picture.metadata
    (output,) = cell.outputs
    head, _, packed = output.data["text/html"].partition("base64,")
    assert head == '<img alt="a &lt; b, &quot;c&quot;" src="data:image/svg+xml;'
    drawing = base64.b64decode(packed.removesuffix('">')).decode()
    dark = re.search(r"<style>@media \(prefers-color-scheme:dark\)\{svg\{(.*?)\}\}</style>", drawing)
    assert drawing.replace(dark[0], "") == DRAWING
    defined = re.findall(r"(--[\w-]+):", dark[1])
    assert defined == re.findall(r"var\((--jp-[\w-]+)", THEME)  # what a picture's paper and ink come from
    assert output.data["text/plain"] == '[picture] a < b, "c"'


def test_a_statement_is_shown_as_it_is():
    statement = shows("it", "OUTER_ADD", text_markdown="**Puzzle 3**")
    cell = strip(notebook(code("imports", IMPORTS), statement)).cells[1]
    assert "tags" not in cell.metadata  # nbval compares it
    (output,) = cell.outputs
    assert output.data == {"text/markdown": "**Puzzle 3**"}


def test_what_is_shown_is_in_step_and_is_no_sign_of_use(course):
    root, put = course
    put("02_more", code("imports", IMPORTS), shows("it", "OUTER_ADD", text_markdown="**Puzzle 3**"))
    solutions, notebooks = root / "solutions", root / "notebooks"
    release(solutions, notebooks, execute=False)
    assert find_stale(solutions, notebooks) == [] and release(solutions, notebooks, execute=False) == []
    path = notebooks / "02_more.ipynb"
    mine = nbformat.read(path, as_version=4)
    assert mine.cells[1].outputs
    mine.cells[1].outputs[0].data["text/markdown"] = "**Puzzle 4**"
    nbformat.write(mine, path)
    assert [line.partition(":")[0] for line in find_stale(solutions, notebooks)] == [
        "notebooks/02_more.ipynb"
    ]
    mine.cells[0].execution_count = 1  # its reader ran it
    nbformat.write(mine, path)
    with pytest.raises(ValueError, match="02_more.ipynb was run"):
        release(solutions, notebooks, execute=False)


def test_written_whole_or_not_at_all(course, monkeypatch):
    root, put = course
    path = put("01_blocks", code("stub", KERNEL))
    before = path.read_bytes()

    def refuse(*_):
        raise OSError("disk full")

    monkeypatch.setattr("puzzles_lib.authoring.release.os.replace", refuse)
    with pytest.raises(OSError, match="disk full"):
        release(root / "solutions", root / "notebooks", execute=False)
    assert path.read_bytes() == before
    assert not [p for p in root.rglob("*") if p.name.endswith(".tmp")]


def test_files_can_be_read_by_others(course):
    root, put = course
    put("01_blocks", code("stub", KERNEL))
    release(root / "solutions", root / "notebooks", execute=False)
    assert stat.S_IMODE(os.stat(root / "notebooks" / "01_blocks.ipynb").st_mode) == 0o644


@pytest.mark.parametrize(
    "bad_id", ["3f2a9c01", "3f2a9c01-1b2c-4d3e-8f90-0a1b2c3d4e5f", "Add", "add stub", ""]
)
def test_unreadable_cell_id_is_refused(course, bad_id):
    root, put = course
    path = put("01_blocks", code("good", "1"), code("stub", "1"))
    raw = json.loads(path.read_text())
    raw["cells"][1]["id"] = bad_id
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match="solutions/01_blocks.ipynb, cell 2: id .* is not readable"):
        release(root / "solutions", root / "notebooks", execute=False)


def test_repeated_or_missing_cell_id_is_refused(course):
    root, put = course
    path = put("01_blocks", code("one", "1"), code("two", "1"))
    raw = json.loads(path.read_text())
    raw["cells"][1]["id"] = "one"
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match="cell 2: id 'one' is taken"):
        release(root / "solutions", root / "notebooks", execute=False)
    del raw["cells"][1]["id"]
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match="cell 2: id '' is not readable"):
        release(root / "solutions", root / "notebooks", execute=False)


@pytest.mark.parametrize(
    "text, reason",
    [
        ("{", "not a notebook"),
        ("{}", "not a notebook"),
        (
            '{"nbformat": 4, "nbformat_minor": 4, "cells": [], "metadata": {}}',
            "format 4.4, which should be 4.5",
        ),
        (
            '{"nbformat": 4, "nbformat_minor": 5, "cells": [{"id": "one"}], "metadata": {}}',
            "solutions/01_blocks.ipynb",
        ),
    ],
)
def test_file_that_is_no_notebook_is_refused(course, text, reason):
    root, _ = course
    (root / "solutions" / "01_blocks.ipynb").write_text(text)
    with pytest.raises(ValueError, match=reason):
        release(root / "solutions", root / "notebooks", execute=False)


# What --check says.


def test_find_stale(course):
    root, put = course
    solutions, notebooks = root / "solutions", root / "notebooks"
    for name in ("01_fine", "02_edited", "03_missing", "04_opened", "05_broken"):
        put(name, code("stub", KERNEL))
    put("06_gone", code("stub", KERNEL))
    release(solutions, notebooks, execute=False)
    assert find_stale(solutions, notebooks) == []

    edited = notebooks / "02_edited.ipynb"
    edited.write_text(edited.read_text().replace("your code", "your own code"))
    (notebooks / "03_missing.ipynb").unlink()
    put("04_opened", code("stub", KERNEL, scrolled=True))
    put("05_broken", code("stub", "### END SOLUTION"))
    (solutions / "06_gone.ipynb").unlink()
    contents = {path: path.read_bytes() for path in root.rglob("*.ipynb")}
    assert find_stale(solutions, notebooks) == [
        "notebooks/02_edited.ipynb: differs from what solutions/02_edited.ipynb gives; run make notebooks",
        "notebooks/03_missing.ipynb: missing; run make notebooks",
        "solutions/04_opened.ipynb: an editor left its marks; run make notebooks",
        "solutions/05_broken.ipynb, cell stub, line 1: "
        "### END SOLUTION without a ### BEGIN SOLUTION before it",
        "notebooks/06_gone.ipynb: no master in solutions; remove it",
    ]
    assert {path: path.read_bytes() for path in root.rglob("*.ipynb")} == contents
    assert find_stale(solutions, notebooks, only=["01"]) == []


def test_command_line(course, capsys):
    root, put = course
    put("01_blocks", code("stub", KERNEL))
    assert main(["--check"], root) == 1
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["--no-execute"], root) == 0
    assert capsys.readouterr().out == "wrote solutions/01_blocks.ipynb\nwrote notebooks/01_blocks.ipynb\n"
    assert main(["--check"], root) == 0
    assert main(["--check", "01"], root) == 0
    capsys.readouterr()
    assert main(["--no-execute", "9"], root) == 1
    assert capsys.readouterr().err == "error: no chapter '9' in solutions; there are: 01_blocks\n"
