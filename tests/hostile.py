"""Submissions that cheat, attack or are merely broken: all of chapter 01, with the points that each deserves.

None of them may get a point more or less, hurt another or the grader, or go unnamed in its report. The
harmful ones are harmful if they are run: that they are not is what is tested, so nothing here is to be
executed outside of a sandbox.
"""

import io
import json
import os
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

SETUP = """\
import triton
import triton.language as tl
from puzzles_lib import CONSTANT_ADD, MASKED_ADD, answer, check
"""
ONE = """\
@triton.jit
def constant_add_kernel(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, tl.load(x_ptr + offs) + 10)


check(constant_add_kernel, CONSTANT_ADD)
"""
TWO = """\
@triton.jit
def masked_add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < N
    tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)


check(masked_add_kernel, MASKED_ADD)
"""
WRONG_ONE = ONE.replace("+ 10)", "+ 9)")
WRONG_TWO = TWO.replace(" + 10, mask", " + 9, mask")
ANSWER = 'right = ...\nright = {20, 32, 128}\nanswer("ch01-q1", right)\n'


def notebook(cells: Mapping[str, str | None] | None = None, before: str = "", kind: str = "code") -> bytes:
    """A notebook of chapter 01 that is correct except for these cells, by id; None takes a cell out.

    before: a cell at its beginning. kind: of the puzzles' cells.
    """
    sources: dict[str, str | None] = {"setup": SETUP, "early": before or None, "p1-kernel": ONE}
    sources |= {"p2-kernel": TWO, "q1": ANSWER} | dict(cells or {})
    return of_cells([(id, source) for id, source in sources.items() if source is not None], kind)


def of_cells(cells: list[tuple[str, str]], kind: str = "code") -> bytes:
    made = []
    for id, source in cells:
        cell = {"cell_type": kind if id.startswith("p") else "code", "id": id, "metadata": {}}
        if cell["cell_type"] == "code":
            cell |= {"execution_count": None, "outputs": []}
        made.append(cell | {"source": source.splitlines(keepends=True)})
    return json.dumps({"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}).encode()


@dataclass(frozen=True)
class Hostile:
    """A submission: ``write`` puts its files into a folder. says: words of its report; points: of 2.

    slow: takes the compiler's ten seconds, whatever the limit.
    """

    name: str
    points: int
    says: str
    write: Callable[[Path], None]
    slow: bool = False


def _file(data: bytes, name: str = "01_blocks.ipynb") -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        (folder / name).write_bytes(data)

    return write


def _archive(
    members: Mapping[str, bytes], name: str = "hand-in.zip", link: str = ""
) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for member, data in members.items():
                info = zipfile.ZipInfo(member)
                info.compress_type = zipfile.ZIP_DEFLATED
                if member == link:
                    info.external_attr = 0o120777 << 16
                archive.writestr(info, data)
        (folder / name).write_bytes(buffer.getvalue())

    return write


# ---- Python around kernels, which is never run: the kernels of these are wrong


def _python(name: str, says: str, code: str) -> Hostile:
    return Hostile(name, 0, says, _file(notebook({"p1-kernel": WRONG_ONE, "p2-kernel": None}, code)))


PYTHON = (
    _python("torch patched", "assigns torch.equal", "import torch\ntorch.equal = lambda *a, **k: True"),
    _python("numpy patched", "assigns numpy.all", "import numpy\nnumpy.all = lambda *a, **k: True"),
    _python("triton patched", "assigns triton.jit", "import triton\ntriton.jit = lambda f: f"),
    _python("Report patched", "assigns report.Report.ok", "from puzzles_lib.checker import report\nreport.Report.ok = 1"),
    _python("examine patched", "assigns c.examine", "import puzzles_lib.checker as c\nc.examine = c.check = 1"),
    _python("builtins patched", "assigns builtins.all", "import builtins\nbuiltins.all = lambda x: True"),
    _python("torch in a loop", "assigns t.equal", "import torch\ndef f(m):\n    for t in (torch, m):\n        t.equal = 1"),
    _python("modules replaced", "assigns sys.modules", "import sys\nsys.modules['puzzles_lib'] = 1"),
    _python("puzzle emptied", "assigns CONSTANT_ADD.cases", "CONSTANT_ADD.cases = ()\nMASKED_ADD.spec = None"),
    _python("answers from the disk", "calls exec, calls open", "exec(open('../../s/01_blocks.ipynb').read())"),
    _python("answers from the parent", "imports os", "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb').read(9)"),
    _python("answers from neighbours", "imports glob", "import glob\nx = [open(f).read() for f in glob.glob('../*/*')]"),
    _python("forged output and exit", "imports os", "import os\nprint('{\"points\": 2}', flush=True)\nos._exit(0)"),
    _python("forged to every pipe", "imports os", "import os\nfor n in range(999):\n    os.write(n, b'{\"done\":1}')"),
    _python("fork bomb", "which was not run: imports os, has an endless loop", "import os\nwhile True:\n    os.fork()"),
    _python("daemonised child", "imports os", "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('yes', ['yes'])"),
    _python("50 GB", "wrong values", "import numpy\nhoard = numpy.ones(50 << 27)"),
    _python("endless loop", "which was not run: has an endless loop", "while True:\n    pass"),
    _python("endless sleep", "wrong values", "import time\ntime.sleep(10**9)"),
    _python("gigabytes of output", "which was not run: has an endless loop", "while True:\n    print('x' * 10**6)"),
    _python("files deleted", "imports shutil", "import shutil\nshutil.rmtree('/', ignore_errors=True)"),
    _python("shell commands", "runs a shell command", "!rm -rf ~\n%system curl example.org"),
    _python("exit hooks", "imports atexit", "import atexit, signal\natexit.register(print, 'ok')\nsignal.alarm(1)"),
    _python("gradebook rewritten", "imports sqlite3", "import sqlite3\nsqlite3.connect('../../g.db').execute('drop x')"),
)  # fmt: skip

# ---- Python in the definition of a kernel: puzzle 1 is not there


def _definition(
    name: str, two: str, says: str, before: str = "", points: int = 0, one: str | None = None
) -> Hostile:
    return Hostile(name, points, says, _file(notebook({"p1-kernel": one, "p2-kernel": two}, before)))


_EVIL = "__import__('os').system('touch owned')"

DEFINITIONS = (
    _definition("evil decorator", f"@(lambda f: {_EVIL} or f)\n{TWO}", "grading accepts @triton.jit, and @triton.autotune"),
    _definition("decorator of its own", f"@cheat\n{TWO}", "@cheat: grading accepts", "def cheat(f): return f"),
    _definition("evil default", TWO.replace("constexpr)", f"constexpr = {_EVIL})"), "a default is"),
    _definition("evil annotation", TWO.replace("N,", f"N: {_EVIL},"), "annotation"),
    _definition("evil result annotation", TWO.replace("):", f") -> {_EVIL}:", 1), "annotation"),
    _definition("evil argument of jit", TWO.replace("@triton.jit", f"@triton.jit(repr={_EVIL})"), "an argument"),
    _definition(
        "heuristics", TWO.replace("@triton.jit", f"@triton.heuristics({{'K': lambda a: {_EVIL}}})\n@triton.jit"),
        "@triton.heuristics",
    ),
    _definition(
        "autotune's hook",
        TWO.replace("@triton.jit", f"@triton.autotune([triton.Config({{}}, pre_hook={_EVIL})], [])\n@triton.jit"),
        "an argument of @triton.Config",
    ),
    _definition("two lines of a decorator", TWO.replace("@triton.jit", "@\\\ntriton.jit"), "on a separate line"),
    _definition(
        "Triton's names taken", TWO, "tl is Triton's name", "class tl: pass\ntriton = None", points=1
    ),
    _definition("kernel from exec", "exec(open('kernel.py').read())", "no @triton.jit function masked_add_kernel"),
    _definition("kernel from a module", "from mine import masked_add_kernel", "no @triton.jit function"),
    _definition("kernel in a class", "class A:\n" + "    ".join(["", *TWO.splitlines(True)]), "no @triton.jit"),
    _definition("kernel is Python", TWO.replace("@triton.jit\n", ""), "no @triton.jit function"),
    _definition("kernel is a lambda", "masked_add_kernel = triton.jit(lambda x: x)", "no @triton.jit function"),
    _definition("a number too large", TWO.replace("constexpr)", "constexpr = 10**10**10)"), "a default is"),
    _definition("nested too deeply", f"x = {'-' * 100_000}1\n{TWO}", "not Python"),
    _definition("not Python", TWO.replace("):", ")", 1), "not Python"),
)  # fmt: skip

# ---- kernels that do what no kernel does, or too much of it: puzzle 1 is right


def _kernel(name: str, body: str, says: str, before: str = "", two: str = "") -> Hostile:
    """A kernel whose last line stands where the right one stores."""
    line = TWO.splitlines()[4]
    return _definition(
        name,
        two or TWO.replace(line, "\n".join(f"    {row}" for row in body.splitlines())),
        says,
        before,
        points=1,
        one=ONE,
    )


_STORE = "tl.store(z_ptr + offs, tl.load(x_ptr + offs, mask=mask) + 10, mask=mask)"

KERNELS = (
    _kernel("torch in a kernel", f"import torch\n{_STORE}", "import"),
    _kernel("os in a kernel", f"os._exit(0)\n{_STORE}", "os", "import os"),
    _kernel("internals of Triton", f"tl.load.__globals__\n{_STORE}", "__globals__ reaches into Triton's internals"),
    _kernel(
        "stores by an address",
        f"wrong = tl.where(x_ptr.to(tl.int64) % 4096 == 0, 0, 1)\n{_STORE.replace('+ 10', '+ 10 + wrong')}",
        "depends on an address",
    ),
    _kernel("getattr", f"getattr(tl, 'load')('x')\n{_STORE}", "getattr"),
    _kernel("a Python helper", f"helper()\n{_STORE}", "helper", f"def helper(): {_EVIL}"),
    _kernel("opens a file", f"open('/etc/passwd')\n{_STORE}", "open"),
    _kernel("calls counted", f"seen.append(1)\n{_STORE}", "seen", "seen = []"),
    _kernel(
        "knows the sizes", f"if N == 20 or N == 32 or N == 65 or N == 128 or N == 200 or N == 1000:\n    {_STORE}",
        "all 6 listed cases pass, but a random one fails",
    ),
    _kernel("knows the results", "tl.store(z_ptr + offs, offs * 0.0 + 10, mask=mask)", "wrong values"),
    _kernel("randomness", f"if tl.rand(7, N) < 0.5:\n    {_STORE}", "none of the 128 elements of z is written: the kernel stores nothing there"),
    _kernel("endless kernel", f"while N > 0:\n    offs += 0\n{_STORE}", "s of CPU time|time limit|more than"),
    _kernel("endless output", "while N > 0:\n    tl.device_print('x', offs)", "time limit"),
    _kernel("writes to neighbours", "tl.store(z_ptr + offs - 64, 10.0)", "out-of-bounds store"),
    _kernel("50 GB in a kernel", "x = tl.zeros([1 << 20, 1 << 14], tl.float32)", "1,048,576"),
    _kernel(
        "helpers without end", "", "recur|calls itself|itself", two=TWO.replace(
            "@triton.jit\ndef masked", "@triton.jit\ndef deep(x):\n    return deep(x) + 1\n\n\n@triton.jit\ndef masked"
        ).replace("+ 10, mask", "+ deep(10), mask"),
    ),
)  # fmt: skip


def _knows_all_that_check_tries(folder: Path) -> None:
    from puzzles_lib import MASKED_ADD

    sizes = {case.N for case in (*MASKED_ADD.cases, *MASKED_ADD.drawn())}
    # Without a comparison, which `check` would try with other sizes: 0 if N is one of them.
    unknown = " * ".join(f"(N - {size}.0)" for size in sorted(sizes))
    two = TWO.replace(" + 10, mask", f" + 10 + 1e-9 * {unknown}, mask")
    (folder / "01_blocks.ipynb").write_bytes(notebook({"p2-kernel": two}))


_UNROLLED = TWO.replace(
    "    tl.store", "    for i in tl.static_range(1 << 30):\n        offs += i\n    tl.store"
)

KERNELS += (
    Hostile("unrolled for ever", 1, "static_range", _file(notebook({"p2-kernel": _UNROLLED})), slow=True),
    Hostile(
        "knows all that check tries", 1, "passes everything that `check` shows", _knows_all_that_check_tries
    ),
)

# ---- files and notebooks


def _two(folder: Path) -> Path:
    """A right notebook outside of the class's folder."""
    other = folder.parents[1] / f"{folder.name}-elsewhere.ipynb"
    other.write_bytes(notebook())
    return other


def _symlink(folder: Path) -> None:
    (folder / "01_blocks.ipynb").symlink_to(_two(folder))


def _hard_link(folder: Path) -> None:
    os.link(_two(folder), folder / "01_blocks.ipynb")


def _linked_folder(folder: Path) -> None:
    elsewhere = folder.parents[1] / f"{folder.name}-elsewhere"
    elsewhere.mkdir()
    (elsewhere / "01_blocks.ipynb").write_bytes(notebook())
    (folder / "work").symlink_to(elsewhere)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "01_blocks.ipynb")


def _with_modules(folder: Path) -> None:
    (folder / "01_blocks.ipynb").write_bytes(notebook({"p1-kernel": WRONG_ONE, "p2-kernel": WRONG_TWO}))
    for name in ("sitecustomize.py", "triton.py", "torch.py", "usercustomize.py"):
        (folder / name).write_text(_EVIL)
    (folder / "puzzles_lib").mkdir()
    (folder / "puzzles_lib" / "__init__.py").write_text(_EVIL)


_HALF = notebook({"p1-kernel": WRONG_ONE})

FILES = (
    Hostile("symbolic link", 0, "a symbolic link", _symlink),
    Hostile("hard link", 0, "a hard link", _hard_link),
    Hostile("linked folder", 0, "no notebook", _linked_folder),
    Hostile("named pipe", 0, "not a plain file", _pipe),
    Hostile("modules beside it", 0, "wrong values", _with_modules),
    Hostile("broken JSON", 0, "broken JSON", _file(notebook()[:-30])),
    Hostile("deep JSON", 0, "nested too deeply", _file(b"[" * 2_000_000)),
    Hostile("huge notebook", 0, "but at most 20 MB are read", _file(bytes(21 << 20))),
    Hostile("no text", 0, "UTF-8", _file(b"%PDF-1.4 \xff\xfe\x00")),
    Hostile("no notebook", 0, "no list of cells", _file(b'{"cells": 3}')),
    Hostile("old format", 0, "old format", _file(b'{"worksheets": [], "nbformat": 3}')),
    Hostile("foreign notebook", 0, "contains nothing from", _file(of_cells([("a", "print('hello')")]), "hello.ipynb")),
    Hostile("nothing handed in", 0, "no notebook", lambda folder: (folder / "notes.txt").write_text("sorry")),
    Hostile("zip bomb", 0, "when unpacked", _archive({"01_blocks.ipynb": bytes(21 << 20)})),
    Hostile("no zip", 0, "this zip archive cannot be read", _file(b"PK\x03\x04 no", "hand-in.zip")),
    Hostile("zip in a zip", 0, "an archive inside an archive", _archive({"more.zip": b"PK"})),
    Hostile(
        "path traversal", 1, "leads out of the archive",
        _archive({"../../right/01_blocks.ipynb": _HALF, "/etc/cron.d/x.ipynb": _HALF, "01_blocks.ipynb": _HALF}),
    ),
    Hostile(
        "link in a zip", 0, "a symbolic link", _archive({"01_blocks.ipynb": b"/etc/passwd"}, link="01_blocks.ipynb")
    ),
    Hostile("ids deleted", 2, "no cell has an id", _file(notebook().replace(b'"id"', b'"was"'))),
    Hostile(
        "id twice", 1, "appears 2 times",
        _file(of_cells([("setup", SETUP), ("p1-kernel", ONE), ("p1-kernel", WRONG_ONE), ("p2-kernel", TWO)])),
    ),
    Hostile("cell deleted", 1, "there is no cell p1-kernel", _file(notebook({"p1-kernel": None}))),
    Hostile("no code cells", 0, "no longer a code cell", _file(notebook(kind="markdown"))),
    Hostile(
        "kernel renamed", 2, "passes mine to check",
        _file(notebook({"p1-kernel": ONE.replace("constant_add_kernel", "mine")})),
    ),
    Hostile(
        "look-alike name", 1, "no @triton.jit function constant_add_kernel",
        _file(notebook({"p1-kernel": ONE.replace("constant", "\u0441onstant").replace("check", "#")})),
    ),
    Hostile(
        "full-width name", 2, "", _file(notebook({"p1-kernel": ONE.replace("constant_add_k", "\uff43onstant_add_k")}))
    ),
    Hostile(
        "trojan source", 1, "not what it looks like",
        _file(notebook({"p1-kernel": ONE.replace("+ 10)", "+ 9)  # \u202e )01 + \u2066")})),
    ),
    Hostile(
        "lines that only editors see", 1, "wrong values",
        _file(notebook({"p1-kernel": ONE.replace("+ 10)", "+ 9)  #\u2028    tl.store(z_ptr + offs, 10.0)")})),
    ),
    Hostile("markup in a line", 1, "<script>", _file(notebook({"p2-kernel": TWO.replace("constexpr)", "constexpr = open('<script>'))")}))),
    Hostile(
        "answer from Python", 2, "not a plain value",
        _file(notebook({"q1": f'right = {_EVIL}\nanswer("ch01-q1", right)'})),
    ),
    Hostile("answer without end", 2, "not a plain value", _file(notebook({"q1": 'answer("ch01-q1", 9**9**9)'}))),
)  # fmt: skip

# ---- what is only read, and made so that reading it takes for ever, or all memory

_TEXT = f"a = ({'1234567890,' * 900})\nb = ({'a,' * 18})\n"
_MANY_ANSWERS = "".join(f'answer("ch01-q{n}", b)\n' for n in range(5000))


def _packed_otherwise(folder: Path) -> None:
    """By bzip2, of which a few bytes are gigabytes, and zipfile unpacks them in one piece."""
    with zipfile.ZipFile(folder / "hand-in.zip", "w", zipfile.ZIP_BZIP2) as archive:
        archive.writestr("01_blocks.ipynb", notebook())


def _two_of_a_name(folder: Path) -> None:
    with warnings.catch_warnings(), zipfile.ZipFile(folder / "hand-in.zip", "w") as archive:
        warnings.simplefilter("ignore")  # zipfile's own, of just that
        archive.writestr("01_blocks.ipynb", notebook())
        archive.writestr("01_blocks.ipynb", notebook({"p1-kernel": WRONG_ONE}))


def _no_name(folder: Path) -> None:
    """In which zipfile looks for a last character."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("01_blocks.ipynb", notebook())
        archive.writestr("q", b"")
    data = bytearray(buffer.getvalue())
    data[data.rindex(b"PK\x01\x02") + 46] = 0  # the name's one character
    (folder / "hand-in.zip").write_bytes(data)


READ = (
    Hostile("file without a name", 2, "", _no_name),
    Hostile("two files of a name", 1, "is in the archive twice", _two_of_a_name),
    Hostile("rounded for ever", 2, "", _file(notebook(before="x = round(1, -(10**10))"))),
    Hostile("answers of gigabytes", 2, "not a plain value", _file(notebook({"q1": _TEXT + _MANY_ANSWERS}))),
    Hostile("tuples of tuples", 2, "", _file(notebook(before="a = (0, 0)\n" + "a = (a, a)\n" * 60))),
    Hostile("archive of another kind", 0, "compressed in a way", _packed_otherwise),
    Hostile(
        "names of archives", 0, r"and \d+ more remarks",
        _archive({f"{n}{'x' * 9000}.zip": b"" for n in range(99)}),
    ),
    Hostile(
        "endless id", 2, r"xxx, which was not run: imports os$|xxx, which",
        _file(of_cells([("setup", SETUP), ("x" * 10**6, "import os"), ("p1-kernel", ONE), ("p2-kernel", TWO)])),
    ),
    Hostile("half a character", 1, "not Python", _file(notebook({"p2-kernel": f"{TWO}x = '\ud800'"}))),
    Hostile("id of half a character", 2, "", _file(of_cells([("\ud800", ONE), ("p2-kernel", TWO)]))),
    Hostile("a million cells", 0, "5000 are read", _file(b'{"cells": [' + b"{}," * 999_999 + b"{}]}")),
    Hostile(
        "id twice, right last", 2, "the last one that is filled in",
        _file(of_cells([("setup", SETUP), ("p1-kernel", WRONG_ONE), ("p1-kernel", ONE), ("p2-kernel", TWO)])),
    ),
)  # fmt: skip

HOSTILE = READ + PYTHON + DEFINITIONS + KERNELS + FILES
