"""The walls between modules, so that they are held by more than hope."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIBRARY = ROOT / "puzzles_lib"


def imports_of(path: Path) -> set[str]:
    """Every module a file imports, wherever in the file, as dotted names."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} imports relatively"
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


MODULES = sorted(LIBRARY.rglob("*.py"))


def importers(prefix: str) -> set[str]:
    """Files of the library that import a module or something below it."""
    return {
        str(path.relative_to(LIBRARY))
        for path in MODULES
        if any(name == prefix or name.startswith(prefix + ".") for name in imports_of(path))
    }


def test_only_the_interpreter_touches_tritons_interpreter():
    users = importers("triton.runtime.interpreter")
    assert users and all(user.startswith("interpreter/") for user in users)


@pytest.mark.parametrize("private", ["triton._C", "triton.backends", "triton.runtime.cache", "triton.knobs"])
def test_only_the_compiler_package_touches_tritons_compiler(private):
    users = {u for u in importers(private) if not u.startswith("kernels/")}
    assert users and all(user.startswith(("compiler/", "interpreter/")) for user in users)


def test_the_compilers_process_imports_nothing_of_ours():
    names = imports_of(LIBRARY / "compiler/worker.py")
    assert not any(name.startswith(("puzzles_lib", "torch")) for name in names)


def test_only_the_tracer_imports_triton_viz():
    assert importers("triton_viz") == {"tracer/__init__.py"}


def test_the_harness_never_imports_production_kernels():
    users = {u for u in importers("puzzles_lib.kernels") if not u.startswith("kernels/")}
    assert all(user.startswith(("bench/", "chapters/", "authoring/")) for user in users)


def test_production_kernels_import_torch_and_triton_only():
    allowed = {"torch", "triton", "puzzles_lib.kernels", *sys.stdlib_module_names}
    for path in (LIBRARY / "kernels").rglob("*.py"):
        for name in imports_of(path):
            assert any(name == a or name.startswith(a + ".") for a in allowed), f"{path.name} imports {name}"


@pytest.mark.parametrize(
    "stage",
    [
        "puzzle",
        "inputs",
        "interpreter/__init__",
        "compiler/frontend",
        "compiler/lowering",
        "checker/compare",
        "checker/report",
    ],
)
def test_no_stage_knows_the_checker(stage):
    assert not {n for n in imports_of(LIBRARY / f"{stage}.py") if n.startswith("puzzles_lib.checker")}


def test_the_table_of_dtypes_stands_on_nothing_of_ours():
    assert not any(name.startswith("puzzles_lib") for name in imports_of(LIBRARY / "dtypes.py"))


def test_nobody_sets_triton_interpret():
    for path in MODULES:
        text = path.read_text()
        assert 'environ["TRITON_INTERPRET"]' not in text and "environ['TRITON_INTERPRET']" not in text


def test_importing_the_package_alone_is_fast_and_imports_nothing_heavy():
    code = (
        "import sys, time; t = time.process_time(); import puzzles_lib; "
        "print(time.process_time() - t, 'torch' in sys.modules, 'triton' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    seconds, torch_loaded, triton_loaded = out.stdout.split()
    assert float(seconds) < 0.05
    assert (torch_loaded, triton_loaded) == ("False", "False")
