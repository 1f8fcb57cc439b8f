"""The walls between modules, so that they are held by more than hope."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from puzzles_lib.drawing import colours

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "puzzles_lib"
FILES = sorted(LIBRARY.rglob("*.py"))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path) -> frozenset[str]:
    """Every module a file imports, wherever in the file, as dotted names."""
    found = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def place(path: Path) -> str:
    return str(path.relative_to(LIBRARY))


def importers(prefix: str) -> set[str]:
    """Files of the library that import a module or something below it."""
    return {
        place(path)
        for path in FILES
        if any(name == prefix or name.startswith(prefix + ".") for name in imports_of(path))
    }


def all_below(users: set[str], *folders: str) -> bool:
    return bool(users) and all(user.startswith(folders) for user in users)


# ---- no circle


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in FILES}


def needs(name: str) -> set[str]:
    """The library's modules that one imports, those it looks up by name when used included."""
    found = set()
    for node in ast.walk(tree(MODULES[name])):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            named = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            found |= {full if full in MODULES else node.module for full in named.values()}
    if name == "puzzles_lib.chapters":
        found |= {module for module in MODULES if re.fullmatch(r"puzzles_lib\.chapters\.ch.*", module)}
    if name == "puzzles_lib":
        found |= set(re.findall(r'"(puzzles_lib\.[\w.]+)"', MODULES[name].read_text()))
    return found & set(MODULES)


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of nodes that all lead to each other; a single node where it leads to itself."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}  # the first node on the path that a node leads back to
    path: list[str] = []
    found = []

    def visit(node: str) -> None:  # Tarjan's algorithm
        number[node] = lowest[node] = len(number)
        path.append(node)
        for other in graph[node]:
            if other not in number:
                visit(other)
            if other in path:
                lowest[node] = min(lowest[node], lowest[other])
        if lowest[node] == number[node]:
            start = path.index(node)
            group = set(path[start:])
            del path[start:]
            if len(group) > 1 or node in graph[node]:
                found.append(group)

    for node in graph:
        if node not in number:
            visit(node)
    return found


def test_no_module_leads_back_to_itself():
    assert circles({name: needs(name) for name in MODULES}) == []


def test_a_circle_would_be_found():
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": set()}) == [{"b", "c"}]
    assert circles({"a": {"a"}}) == [{"a"}]


# ---- who may touch what


def test_nobody_touches_tritons_interpreter():
    """What runs is what the front end made: nothing of the kernel's Python, and nothing of Triton's."""
    assert importers("triton.runtime.interpreter") == set()


def test_the_runner_knows_nothing_of_triton_but_its_descriptors():
    users = {user for user in importers("triton") if user.startswith("runner/")}
    assert users <= {"runner/__init__.py", "runner/machine.py"}


@pytest.mark.parametrize("private", ["triton._C", "triton.backends", "triton.runtime.cache", "triton.knobs"])
def test_only_the_compiler_package_touches_tritons_compiler(private):
    users = {u for u in importers(private) if not u.startswith("kernels/")}
    assert all_below(users, "compiler/", "translator/")


def test_the_compilers_process_imports_nothing_of_ours():
    names = imports_of(LIBRARY / "compiler/worker.py")
    assert not any(name.startswith(("puzzles_lib", "torch")) for name in names)


def test_only_the_tracer_knows_triton_vizs_page_and_nobody_runs_anything_of_it():
    assert importers("triton_viz") == set()
    assert all_below({place(path) for path in FILES if "triton_viz" in path.read_text()}, "tracer/")


def test_the_harness_never_imports_production_kernels():
    users = {u for u in importers("puzzles_lib.kernels") if not u.startswith("kernels/")}
    measuring = ("chapters/ch15_racing_cublas/", "chapters/ch16_from_kernel_to_layer/curves")
    layers = "chapters/ch11_relu_masks/judged"  # of the reader, with codes of the library
    assert all_below(users, "bench/", "examples/", *measuring, layers)


def test_production_kernels_import_torch_and_triton_only():
    allowed = {"torch", "triton", "puzzles_lib.kernels", *sys.stdlib_module_names}
    for path in (LIBRARY / "kernels").rglob("*.py"):
        for name in imports_of(path):
            assert any(name == a or name.startswith(a + ".") for a in allowed), f"{path.name} imports {name}"


def test_nobody_imports_what_measures():
    assert all_below(importers("puzzles_lib.bench"), "bench/")


def test_only_a_measurement_imports_what_makes_the_course():
    """And of that only the masters' kernels, and what a check costs."""
    users = {user for user in importers("puzzles_lib.authoring") if not user.startswith("authoring/")}
    assert all_below(users, "bench/")
    ours = {name for user in users for name in imports_of(LIBRARY / user) if "authoring" in name}
    assert {name for name in ours if name in MODULES} == {
        "puzzles_lib.authoring.checks",
        "puzzles_lib.authoring.solutions",
    }


def test_nobody_imports_what_teachers_run():
    """But what packs it for Gradescope, and what puts its marks into nbgrader's gradebook."""
    allowed = ("grading/", "authoring/gradescope.py", "authoring/nbgrader.py")
    assert all_below(importers("puzzles_lib.grading"), *allowed)


def test_what_takes_times_stands_on_nothing_else_of_ours():
    files = [path for path in FILES if place(path).startswith("timing/")]
    names = {name for path in files for name in imports_of(path) if name.startswith("puzzles_lib")}
    assert files and all(name.startswith("puzzles_lib.timing") for name in names)


def test_the_functions_of_timing_have_one_address():
    hidden = ("puzzles_lib.timing.replays", "puzzles_lib.timing.results")
    assert all_below(importers(hidden[0]) | importers(hidden[1]), "timing/")


def test_grading_stands_on_the_checker_alone_and_runs_code_in_one_place():
    """What reads submissions executes nothing; what is taken of them is defined in `inside` alone."""
    allowed = {f"puzzles_lib.{name}" for name in ("answers", "chapters", "checker", "drawing", "grading")}
    allowed |= {
        "puzzles_lib.ledger",
        "puzzles_lib.notebooks",
        "puzzles_lib.puzzle",
        "puzzles_lib.question",
        "puzzles_lib.stubs",
        "puzzles_lib.versions",
        "puzzles_lib.wrapped",
        "torch",  # for its dtypes' limits, which a constant may be made of
        "triton",
        *sys.stdlib_module_names,
    }
    running = set()
    for path in (LIBRARY / "grading").rglob("*.py"):
        for name in imports_of(path):
            assert any(name == a or name.startswith(a + ".") for a in allowed), f"{path.name} imports {name}"
        calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        names = {called.id for called in calls if isinstance(called, ast.Name)}
        running |= {path.name} if names & {"exec", "eval", "compile", "__import__"} else set()
    assert running == {"inside.py"}


def test_only_makers_and_measurements_know_of_solutions():
    knowing = {place(path) for path in FILES if "solutions" in path.read_text()}
    assert all_below(knowing, "authoring/", "bench/")


@pytest.mark.parametrize(
    "stage", ["puzzle", "question", "source", "inputs", "binding", "runner", "compiler", "inspector"]
)
def test_no_stage_before_it_knows_the_checker(stage):
    files = [path for path in FILES if place(path).partition("/")[0].removesuffix(".py") == stage]
    assert files
    for path in files:
        assert not {n for n in imports_of(path) if n.startswith("puzzles_lib.checker")}, place(path)


@pytest.mark.parametrize("stage", ["attempts", "compare", "report", "verdicts"])
def test_the_checkers_stages_do_not_know_their_order(stage):
    imported = imports_of(LIBRARY / f"checker/{stage}.py")
    assert "puzzles_lib.checker" not in {n for n in imported if n in MODULES}


def test_nobody_takes_another_modules_private_name():
    taken = []
    for path in FILES:
        ours = {}
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("puzzles_lib"):
                for alias in node.names:
                    ours[alias.asname or alias.name] = f"{node.module}.{alias.name}"
        names = {full for full in ours.values() if full.rpartition(".")[2].startswith("_")}
        for node in ast.walk(tree(path)):
            is_ours = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
            if is_ours and ours.get(node.value.id) in MODULES and node.attr.startswith("_"):
                names.add(f"{ours[node.value.id]}.{node.attr}")
        taken += [f"{place(path)}: {name}" for name in names]
    assert taken == []


def test_no_stage_prints():
    def prints(path: Path) -> bool:
        calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
        return any(isinstance(called, ast.Name) and called.id == "print" for called in calls)

    printing = {place(path) for path in FILES if prints(path)}
    assert all_below(
        printing,
        "authoring/",
        "bench/",
        "chapters/ch11_relu_masks/judged",  # what the reader's layer keeps
        "chapters/ch16_from_kernel_to_layer/judged",  # what is wrong with a schema
        "examples/",
        "auditor/command",
        "grading/__main__",
        "grading/bar",
        "export.py",
        "notebooks.py",
        "speaking/speak",  # a text as it is written
        "stumbles.py",
    )


def test_pictures_are_made_of_labels_boxes_and_named_colours():
    """A picture says where a text or a box lies; how matplotlib draws it stands in `puzzles_lib.drawing`."""
    for path in [p for p in FILES if p.name == "pictures.py"]:
        calls = [n.func for n in ast.walk(tree(path)) if isinstance(n, ast.Call)]
        assert not [c.lineno for c in calls if isinstance(c, ast.Attribute) and c.attr == "text"], path
        assert not {n for n in imports_of(path) if n.endswith((".PALETTE", ".Rectangle"))}, path


COLOUR = re.compile(r"#(?:[0-9a-fA-F]{3}){1,2}\b")


def test_colours_have_names_and_stand_in_one_place():
    """The figures', the theme's, and those of highlighted code."""
    users = {place(path) for path in FILES if COLOUR.search(path.read_text())}
    assert users == {"drawing/colours.py", "drawing/card.py", "inspector/page.py"}
    owners: dict[str, list[str]] = {}
    for name, value in vars(colours).items():
        if isinstance(value, str) and COLOUR.fullmatch(value):
            owners.setdefault(value.lower(), []).append(name)
    assert {v: names for v, names in owners.items() if len(names) > 1} == {"#d55e00": ["VERMILLION", "BAD"]}


def test_one_card():
    assert {place(path) for path in FILES if "border-left" in path.read_text()} == {"drawing/card.py"}


def test_the_tables_of_dtypes_and_formats_stand_on_nothing_else_of_ours():
    ours = {name for name in imports_of(LIBRARY / "dtypes.py") if name.startswith("puzzles_lib")}
    assert ours == {"puzzles_lib.float8", "puzzles_lib.float8.FORMATS", "puzzles_lib.float8.Format"}
    roots = {name.partition(".")[0] for name in imports_of(LIBRARY / "float8.py")}
    assert not roots & {"puzzles_lib", "torch", "numpy"}


def test_nobody_sets_triton_interpret():
    for path in FILES:
        text = path.read_text()
        assert 'environ["TRITON_INTERPRET"]' not in text and "environ['TRITON_INTERPRET']" not in text


# ---- what a learner meets


def test_importing_the_package_alone_imports_nothing_but_python():
    code = (
        "import sys; before = {*sys.modules}; import puzzles_lib; "
        "print(*{name.partition('.')[0] for name in {*sys.modules} - before})"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=240
    )
    assert {*out.stdout.split()} - sys.stdlib_module_names == {"puzzles_lib"}


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.ipynb")), ids=lambda path: path.stem)
def test_a_set_up_cell_is_at_most_five_imports(notebook):
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    statements = ast.parse("".join(cells[0]["source"])).body
    assert 1 <= len(statements) <= 5
    assert all(isinstance(statement, ast.Import | ast.ImportFrom) for statement in statements)
