"""What the compiler makes of a kernel is the same in every environment."""

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import solutions
from puzzles_lib.chapters import puzzles
from puzzles_lib.checker import examine
from puzzles_lib.compiler import build, find_target, gpu_dialect, translate
from puzzles_lib.translator.environment import variables
from tests.kernel_lab import execute

SETTINGS = {
    "TRITON_OVERRIDE_ARCH": "sm_70",
    "TRITON_FRONT_END_DEBUGGING": "1",
    "TRITON_ALLOW_NON_CONSTEXPR_GLOBALS": "1",
    "TRITON_DEFAULT_FP_FUSION": "0",
    "TRITON_F32_DEFAULT": "ieee",
    "TRITON_DISABLE_LINE_INFO": "1",
    "TRITON_KERNEL_OVERRIDE": "1",
    "TRITON_MOCK_PTX_VERSION": "70",
    "TRITON_ENABLE_ASAN": "1",
    "DISABLE_PTXAS_OPT": "1",
    "DISABLE_LLVM_OPT": "1",
    "DISABLE_MMA_V3": "1",
    "PTXAS_OPTIONS": "--no-such-option",
    "MLIR_ENABLE_DUMP": "1",
    "LLVM_EXTRACT_DI_LOCAL_VARIABLES": "1",
    "AMDGCN_USE_BUFFER_OPS": "0",
}
SM_90 = find_target("sm_90")
ten = 10


@triton.jit
def squares(x_ptr, z_ptr, BLOCK: tl.constexpr):
    rows = tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]
    x = tl.load(x_ptr + rows)
    tl.store(z_ptr + rows, tl.dot(x, x) * x + x)


ARGUMENTS = {"x_ptr": torch.empty(0), "z_ptr": torch.empty(0), "BLOCK": 64}


def compiled() -> tuple[object, ...]:
    built = build(translate(squares, ARGUMENTS, SM_90))
    assert built.binary
    return gpu_dialect(squares, ARGUMENTS, SM_90), built.texts, built.binary


def test_no_variable_changes_what_is_compiled(monkeypatch, tmp_path):
    """All are set at once: each that is let through changes the code as if it were the only one."""
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "without"))
    plain = compiled()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "with"))
    for name, value in SETTINGS.items():
        monkeypatch.setenv(name, value)
    assert compiled() == plain


def test_a_knob_changes_nothing_either(monkeypatch):
    plain = gpu_dialect(squares, ARGUMENTS, SM_90)
    with triton.knobs.language.scope():
        triton.knobs.language.fp32_default = "ieee"
        assert gpu_dialect(squares, ARGUMENTS, SM_90) == plain


@pytest.mark.parametrize("name", ["TRITON_OVERRIDE_ARCH", "DISABLE_PTXAS_OPT", "PTXAS_OPTIONS"])
def test_a_report_is_the_same(name, monkeypatch):
    puzzle = next(puzzle for puzzle in puzzles() if puzzle.name == "pack_wide")
    plain = str(examine(solutions()[puzzle.name], puzzle))
    monkeypatch.setenv(name, SETTINGS[name])
    assert str(examine(solutions()[puzzle.name], puzzle)) == plain


def test_a_run_multiplies_as_it_does_elsewhere(monkeypatch):
    x = torch.randn(64, 64)
    plain, other = torch.empty(64, 64), torch.empty(64, 64)
    execute(squares, x_ptr=x, z_ptr=plain, BLOCK=64)
    monkeypatch.setenv("TRITON_F32_DEFAULT", "ieee")
    execute(squares, x_ptr=x, z_ptr=other, BLOCK=64)
    assert torch.equal(plain, other)


def test_where_tools_and_caches_are_is_kept(monkeypatch):
    kept = {"TRITON_CACHE_DIR": "/cache", "TRITON_PTXAS_PATH": "/ptxas", "TRITON_HOME": "/", "PATH": "/bin"}
    dropped = {"TRITON_REPRODUCER_PATH": "/r", "LLVM_PASS_PLUGIN_PATH": "/p", **SETTINGS}
    for name, value in {**kept, **dropped}.items():
        monkeypatch.setenv(name, value)
    found = variables()
    assert {name: found.get(name) for name in kept} == kept and not dropped.keys() & found.keys()
