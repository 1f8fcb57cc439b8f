"""`stages`: every target, every stage, what is refused, and what LLVM must not be allowed to do."""

import contextlib
import functools
import html
import html.parser
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from jaxtyping import Float16, Float32, Int8, Int32
from torch import Tensor
from triton import knobs
from triton.backends.compiler import GPUTarget

from puzzles_lib import MASKED_ADD, Case, Puzzle, compiler
from puzzles_lib.authoring.solutions import define
from puzzles_lib.chapters.ch13_machine_code.kernels import masked_add_kernel
from puzzles_lib.compiler import cache, lowering, machine_code
from puzzles_lib.inspector import diff, stages
from puzzles_lib.inspector.lexers import highlight
from puzzles_lib.inspector.sass import reached
from puzzles_lib.translator import targets

TARGETS = ("sm_80", "sm_90", "sm_100", "gfx942")


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    """Triton's cache directory, empty at first."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield


def add_ten(x: Float32[Tensor, " N"]) -> Float32[Tensor, " N"]:
    return x + 10


def matmul(x: Float16[Tensor, "M K"], y: Float16[Tensor, "K N"]) -> Float16[Tensor, "M N"]:
    return x @ y


def matmul_int8(x: Int8[Tensor, "M K"], y: Int8[Tensor, "K N"]) -> Int32[Tensor, "M N"]:
    return (x.double() @ y.double()).int()


ADD = Puzzle("1", add_ten, lambda s: (1,), (Case(N=4096, BLOCK=1024), Case(N=1000, BLOCK=1024)))
BIG = Case(M=512, N=512, K=512, BLOCK_M=128, BLOCK_N=128, BLOCK_K=64)
MATMUL = Puzzle("2", matmul, lambda s: (1,), (BIG,))
MATMUL_INT8 = Puzzle("3", matmul_int8, lambda s: (1,), (BIG,))


@triton.jit
def ten_more(x):
    return x + 10


@triton.jit
def add_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, ten_more(x), mask=offs < N)


@triton.jit
def matmul_kernel(
    x_ptr,
    y_ptr,
    z_ptr,
    M,
    N,
    K,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    DTYPE: tl.constexpr = tl.float32,
):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), DTYPE)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :])
        y = tl.load(y_ptr + k[:, None] * N + n[None, :])
        acc = tl.dot(x, y, acc, out_dtype=DTYPE)
    tl.store(z_ptr + m[:, None] * N + n[None, :], acc)


@triton.jit
def matmul_int8_kernel(
    x_ptr, y_ptr, z_ptr, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr
):
    m = tl.arange(0, BLOCK_M)
    n = tl.arange(0, BLOCK_N)
    k = tl.arange(0, BLOCK_K)
    x = tl.load(x_ptr + m[:, None] * K + k[None, :])
    y = tl.load(y_ptr + k[:, None] * N + n[None, :])
    tl.store(z_ptr + m[:, None] * N + n[None, :], tl.dot(x, y))


@triton.jit
def largest_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N, other=0.0)
    top = tl.max(x, axis=0)
    tl.store(z_ptr + offs, x - top, mask=offs < N)


@functools.cache
def compiled(target="sm_90", **options):
    """The matmul, compiled once for all tests that look at it."""
    return stages(matmul_kernel, MATMUL, target, **options)


@functools.cache
def added(target="sm_90", **options):
    return stages(add_kernel, ADD, target, **options)


def line_of(text: str, kernel) -> int:
    """The number in this file of the line of a kernel that holds a text."""
    (number,) = (kernel.starting_line_number + i for i, line in enumerate(kernel.raw_src) if text in line)
    return number


def fresh_kernel(name: str, body: str):
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return define(f"@triton.jit\ndef {name}(x_ptr, z_ptr, N, BLOCK: tl.constexpr):\n{lines}\n", f"<{name}>")


# ---- what comes out


@pytest.mark.parametrize(
    "target, names, tensor_core",
    [
        ("sm_80", ("ttir", "ttgir", "llir", "ptx", "sass"), "mma.sync.aligned.m16n8k16"),
        ("sm_90", ("ttir", "ttgir", "llir", "ptx", "sass"), "wgmma.mma_async.sync.aligned.m64n128k16"),
        ("sm_100", ("ttir", "ttgir", "llir", "ptx", "sass"), "tcgen05.mma"),
        ("gfx942", ("ttir", "ttgir", "llir", "amdgcn"), "v_mfma_f32_"),
    ],
)
def test_every_target_has_every_stage(target, names, tensor_core):
    s = compiled(target)
    assert s.ok and s.names == names
    assert "tt.dot" in s.ttir and "#ttg" not in s.ttir
    assert "sizePerThread" in s.ttgir and "define " in s.llir
    assert s.tensor_core.startswith(tensor_core)
    assert s.registers > 32 and s.spills == 0 and s.shared_bytes >= 16384
    assert s.cubin.startswith(b"\x7fELF")
    if target == "gfx942":
        assert (s.ptx, s.sass) == ("", "") and s.tensor_core in s.amdgcn
        assert 'ttg.target = "hip:gfx942"' in s.ttgir
    else:
        assert s.amdgcn == "" and s.tensor_core in s.ptx
        assert f".target {target}" in s.ptx and re.search(r"^[0-9a-f]{4,}  \S*EXIT", s.sass, re.MULTILINE)
        assert f'ttg.target = "cuda:{target[3:]}"' in s.ttgir


@pytest.mark.parametrize("target", TARGETS)
def test_without_a_dot_there_is_no_tensor_core(target):
    s = added(target)
    assert s.ok and s.tensor_core is None and s.shared_bytes == 0 and "not used" in repr(s)


def test_registers_are_those_in_the_cubin(tmp_path):
    s = compiled()
    (tmp_path / "kernel.cubin").write_bytes(s.cubin)
    said = subprocess.check_output(
        [knobs.nvidia.cuobjdump.path, "-res-usage", "kernel.cubin"], cwd=tmp_path, text=True, timeout=240
    )
    assert s.registers == int(re.search(r"REG:(\d+)", said)[1])


def test_too_few_registers_are_spilled():
    s = compiled("sm_80", num_warps=1, BLOCK_M=64, BLOCK_K=16)
    assert s.registers == 255 and s.spills > 0
    assert "STL" in s.sass and "STL" not in compiled("sm_80").sass
    assert f"{s.spills} bytes spilled" in repr(s)


def test_too_much_shared_memory_is_said():
    s = compiled("sm_80", num_stages=8)
    assert s.shared_bytes > 166_912
    assert "a launch would fail, because sm_80 has 166912 bytes of shared memory" in repr(s)
    assert "launch" not in repr(compiled("sm_80"))


@pytest.mark.parametrize("stage", ["ttir", "ttgir", "llir", "ptx", "sass"])
def test_texts_hold_no_locations_and_no_paths(stage):
    text = added().text(stage)
    assert text
    for trace in ("loc(", "#loc", "!dbg", "!DI", ".loc", ".file", "//##", "debug", "/", ".py"):
        if trace == "/" and stage in ("ptx", "llir"):
            continue  # comments, and slashes in inline assembly
        assert trace not in text, trace


def test_amd_text_is_the_program_alone():
    text = added("gfx942").amdgcn
    assert (
        text.endswith("s_endpgm") and ".amdhsa_next" not in text and ".loc" not in text and ".cfi" not in text
    )


# ---- as a launch would


def test_sizes_that_16_divides_are_specialised():
    even, odd, one = added(), added(N=4097), added(N=1)
    assert "%N: i32 {tt.divisibility = 16 : i32}" in even.ttir
    assert "%N: i32)" in odd.ttir
    assert "%N" not in one.ttir  # a size of 1 is a constant
    assert "ld.global.v4.b32" in even.ptx and "ld.global.v4.b32" not in odd.ptx
    assert "%x_ptr: !tt.ptr<f32> {tt.divisibility = 16 : i32}" in odd.ttir


def test_cases_numbers_and_options():
    assert added(case=1).title == "add_kernel for sm_90, N=1000  BLOCK=1024"
    assert added(case=Case(N=64, BLOCK=64)).title == "add_kernel for sm_90, N=64  BLOCK=64"
    s = added(BLOCK=256, num_warps=2)
    assert s.title == "add_kernel for sm_90, N=4096  BLOCK=256  num_warps=2"
    assert "tensor<256xf32" in s.ttir and '"ttg.num-warps" = 2' in s.ttgir
    assert compiled(num_stages=1).shared_bytes < compiled(num_stages=4).shared_bytes


@pytest.mark.parametrize("first", ["ttgir", ""])
def test_until_ends_with_a_stage_and_is_not_mistaken_for_the_whole(first, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for until in (first, "" if first else "ttgir"):
        s = added(BLOCK=128, until=until)
        assert s.ok and "ttg.num-warps" in s.ttgir
        assert (s.ptx == "", s.registers is None) == (bool(until), bool(until))


@pytest.mark.parametrize(
    "call, words",
    [
        ({"target": "sm_75"}, "target must be one of sm_80, sm_90, sm_100, gfx942"),
        ({"target": 90}, "there is a GPU, but is 90"),
        ({"target": ["sm_90"]}, "there is a GPU, but is ['sm_90']"),
        ({"case": 2}, "stages: case must be from 0 to 1 or a Case, but is 2"),
        ({"case": Case(BLOCK=2)}, "does not fit add_ten"),
        ({"BLOCKS": 2}, "stages: BLOCKS is not a number of the case, which has N, BLOCK"),
        ({"N": -1}, "N must be an integer of at least 0, a float, a boolean or None, but is -1"),
        ({"num_warps": 3}, "num_warps must be one of 1, 2, 4, 8, 16, 32, but is 3"),
        ({"num_warps": 2.0}, "num_warps must be an integer, but is 2.0"),
        ({"num_stages": -1}, "num_stages must be from 0 to 16, but is -1"),
        ({"until": "sas"}, "stages: until must be one of ttir, ttgir, llir, ptx, sass, but is 'sas'"),
    ],
)
def test_what_there_is_not_is_answered_with_what_there_is(call, words):
    with pytest.raises(ValueError) as error:
        stages(add_kernel, ADD, **call)
    assert words in str(error.value) and "\n" not in str(error.value)


def test_no_puzzle():
    with pytest.raises(TypeError, match="must be a Puzzle"):
        stages(add_kernel, "ADD")


def test_local_without_a_gpu_says_what_there_is(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no GPU; without one, use sm_80, sm_90, sm_100, gfx942"):
        stages(add_kernel, ADD, "local")


@pytest.mark.parametrize(
    "gpu, name",
    [
        (GPUTarget("cuda", 90, 32), "sm_90"),
        (GPUTarget("cuda", 89, 32), "sm_89"),
        (GPUTarget("hip", "gfx942", 64), "gfx942"),
    ],
)
def test_local_is_the_gpu_that_is_there(monkeypatch, gpu, name):
    monkeypatch.setattr(targets, "_local", lambda: gpu)
    s = stages(add_kernel, ADD, "local")
    assert s.ok and s.target.name == name and f"for {name}," in s.title


# ---- refused


@triton.jit
def calls_torch(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    tl.store(z_ptr + offs, torch.relu(tl.load(x_ptr + offs)))


@triton.jit
def branches_on_a_block(x_ptr, z_ptr, BLOCK: tl.constexpr):
    offs = tl.arange(0, BLOCK)
    if offs > 3:
        tl.store(z_ptr + offs, 1.0)


@triton.jit
def takes_weights(w_ptr, z_ptr):
    tl.store(z_ptr, tl.load(w_ptr))


def no_kernel(x_ptr):
    pass


@pytest.mark.parametrize(
    "kernel, words, line",
    [
        (calls_torch, "torch.relu", "line {}: tl.store(z_ptr + offs, torch.relu("),
        (branches_on_a_block, "", "line {}: if offs > 3"),
        (takes_weights, "'w_ptr', which add_ten does not have; its names are x_ptr, z_ptr, N", ""),
        (no_kernel, "put @triton.jit on the line above its def", ""),
        (None, "", ""),
    ],
)
def test_refused_in_a_few_lines(kernel, words, line):
    s = stages(kernel, ADD)
    text = repr(s)
    assert not s.ok and len(text.splitlines()) <= 8
    assert "does not compile: " in text and words in text and "refuses" not in text
    if line:
        number = line_of(line.partition(": ")[2], kernel)
        assert line.format(number) in text
    assert (s.ttir, s.ttgir, s.llir, s.ptx, s.sass, s.cubin) == ("",) * 5 + (b"",)
    assert (s.registers, s.spills, s.shared_bytes, s.tensor_core) == (None,) * 4
    assert "role=" in s._repr_html_() and "<details" not in s._repr_html_()
    assert len(s.passes) == 0 and not s.diff(s)


def test_a_fault_of_ours_is_a_line(monkeypatch):
    def fails(*args):
        raise RuntimeError("no\nway")

    monkeypatch.setattr("puzzles_lib.inspector.bind", fails)
    assert stages(add_kernel, ADD).refusal.message == "it cannot be read (RuntimeError: no way)"


def test_a_dot_over_4_of_int8_is_refused_at_its_line():
    assert stages(matmul_int8_kernel, MATMUL_INT8).ok
    s = stages(matmul_int8_kernel, MATMUL_INT8, BLOCK_K=4)
    assert not s.ok and "at least 32 elements" in s.refusal.message
    assert s.refusal.site.line == line_of("tl.dot(x, y)", matmul_int8_kernel)


def test_what_an_untranslatable_kernel_executes_is_nothing(tmp_path):
    mark = tmp_path / "executed"
    source = f"@triton.jit\ndef kernel(x_ptr, z_ptr):\n    open({str(mark)!r}, 'w')\n"
    assert not stages(define(source, "<opens a file>"), ADD).ok
    assert not mark.exists()


WRONG_ASSEMBLY = """x = tl.load(x_ptr + tl.arange(0, BLOCK))
y = tl.inline_asm_elementwise("nonsense.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
tl.store(z_ptr + tl.arange(0, BLOCK), y)"""


def test_stages_before_the_one_that_fails_are_there(capfd):
    s = stages(fresh_kernel("wrong_assembly", WRONG_ASSEMBLY), ADD)
    assert not s.ok and s.ttir and s.ttgir and s.llir and "nonsense.f32" in s.ptx
    assert (s.sass, s.cubin, s.registers) == ("", b"", None)
    assert s.refusal.message.startswith("cubin: ") and "nonsense" in s.refusal.message
    assert "/" not in s.refusal.message and len(repr(s).splitlines()) <= 8
    assert "convert-triton-to-tritongpu" in [p.name for p in s.passes]
    assert capfd.readouterr() == ("", "")


# ---- LLVM and ptxas at their worst


@pytest.fixture
def worker(tmp_path, monkeypatch):
    """Puts a program of the test's in the worker's place; notes the processes that were started."""
    started = []

    class Popen(subprocess.Popen):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            started.append(self.pid)

    def use(source):
        (tmp_path / "worker.py").write_text(source)
        monkeypatch.setattr(lowering, "_WORKER", tmp_path / "worker.py")
        return started

    monkeypatch.setattr(lowering.subprocess, "Popen", Popen)
    return use


def any_left(started) -> bool:
    """Whether a process of these groups still runs; one that only waits to be noticed does not count."""
    for _ in range(300):  # killing takes effect a moment later
        if not any(_running(int(stat.parent.name), started) for stat in Path("/proc").glob("[0-9]*/stat")):
            return False
        time.sleep(0.1)
    return True


def _running(pid, groups) -> bool:
    with contextlib.suppress(OSError):
        state, _, group = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:3]
        return int(group) in groups and state not in "ZX"
    return False


ONE = "tl.store(z_ptr, 1.0)"
HUGE = """offs = tl.arange(0, 1048576)
x = tl.load(x_ptr + offs, mask=offs < N)
tl.store(z_ptr + offs, tl.sin(x) * tl.exp(x), mask=offs < N)"""
UNROLLED = """x = tl.load(x_ptr + tl.arange(0, 1024))
for i in tl.static_range(300):
    x = tl.where(x > i, tl.sin(x), tl.cos(x) * i)
tl.store(z_ptr + tl.arange(0, 1024), x)"""


@pytest.mark.parametrize("body", [HUGE, UNROLLED], ids=["huge", "unrolled"])
def test_endless_compilation_is_stopped(monkeypatch, body):
    monkeypatch.setattr(lowering, "SECONDS", 1)
    s = stages(fresh_kernel("endless", body), ADD)
    assert not s.ok and "it takes more than 1 s" in s.refusal.message
    assert not s.cubin
    assert len(repr(s).splitlines()) <= 8 and s._repr_html_()


def test_memory_is_limited(monkeypatch):
    monkeypatch.setattr(lowering, "MEMORY", 300 << 20)
    s = stages(fresh_kernel("hungry", HUGE), ADD)
    assert not s.ok and s.refusal.message.startswith("llir: ") and not s.cubin


def test_lower_limits_stay():
    code = """
import resource
from resource import RLIMIT_CORE, RLIMIT_CPU, RLIMIT_FSIZE, getrlimit
from puzzles_lib.compiler.worker import limit
resource.setrlimit(RLIMIT_FSIZE, (1 << 20, 2 << 20))
limit(RLIMIT_FSIZE, 8 << 20, 8 << 20)
resource.setrlimit(RLIMIT_CPU, (50, 60))
limit(RLIMIT_CPU, 30, 31)
limit(RLIMIT_CORE, 0, 0)
print([getrlimit(each) for each in (RLIMIT_FSIZE, RLIMIT_CPU, RLIMIT_CORE)])
"""
    command = [sys.executable, "-c", code]
    ran = subprocess.run(
        command, cwd=Path(__file__).parent.parent, capture_output=True, text=True, timeout=240
    )
    assert ran.stdout == f"{[(2 << 20, 2 << 20), (30, 31), (0, 0)]}\n", ran.stderr


@pytest.mark.parametrize(
    "source, words",
    [
        ("import os; os.abort()", "the compiler crashed (SIGABRT)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "the compiler crashed (SIGSEGV)"),
        ("raise SystemExit(3)", "the compiler ended with status 3"),
        (
            "import sys; sys.stderr.write('std::bad_alloc'); raise SystemExit(1)",
            "it needs more than 4 GB of memory",
        ),
    ],
)
def test_a_crash_is_a_refusal(worker, source, words):
    started = worker(source)
    s = stages(fresh_kernel("crashes", ONE), ADD)
    assert not s.ok and words in s.refusal.message and not any_left(started)


def test_time_is_up_for_the_worker_and_what_it_started(worker, monkeypatch):
    monkeypatch.setattr(lowering, "SECONDS", 1)
    started = worker("import subprocess; subprocess.run(['sleep', '60'])")
    s = stages(fresh_kernel("hangs", ONE), ADD)
    assert "it takes more than 1 s" in s.refusal.message and not any_left(started)


def test_an_interrupt_ends_the_worker(worker):
    def interrupt(*_):
        raise KeyboardInterrupt

    started = worker(
        "import os, signal, time\n"
        "time.sleep(2)\n"  # we wait for it by then
        "os.kill(os.getppid(), signal.SIGALRM)\n"
        "time.sleep(60)"
    )
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt) as error:
            stages(fresh_kernel("interrupted", ONE), ADD)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert started and not any_left(started)
    assert len(error.traceback) == 2 and error.value.__context__ is None


def test_the_worker_sees_no_python_of_the_learners(worker, tmp_path):
    """It is handed IR; what it imports is not of the folder it runs in."""
    seen = tmp_path / "seen"
    worker(
        "import os, sys, pathlib\n"
        f"pathlib.Path({str(seen)!r}).write_text(' '.join(sorted(os.listdir(sys.argv[1]))) + str(sys.path))"
    )
    stages(fresh_kernel("seen", ONE), ADD)
    text = seen.read_text()
    assert text.startswith("request.json source.ttir stderr stdout") and "'', " not in text


def test_variables_that_change_the_compiler_are_kept_from_it(monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setenv("MLIR_ENABLE_DUMP", "1")
    monkeypatch.setenv("TRITON_PTXAS_PATH", "/usr/bin/ptxas")
    variables = lowering.variables()
    assert "TRITON_INTERPRET" not in variables and "MLIR_ENABLE_DUMP" not in variables
    assert variables["TRITON_PTXAS_PATH"] == "/usr/bin/ptxas" and "TRITON_CACHE_DIR" in variables


def test_another_ptxas_compiles_anew_as_soon_as_it_is_named(tmp_path, monkeypatch):
    ours = cache.key_of("kernel")
    other = tmp_path / "ptxas"
    other.write_text("#!/bin/sh\necho 'Cuda compilation tools, release 99.9, V99.9.1'\n")
    other.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(other))
    assert cache.key_of("kernel") != ours
    monkeypatch.delenv("TRITON_PTXAS_PATH")
    assert cache.key_of("kernel") == ours


# ---- tools


class _NoTool:
    def __getattr__(self, name):
        raise RuntimeError(f"Cannot find {name}")


def test_a_missing_disassembler_says_what_there_is(monkeypatch):
    monkeypatch.setattr(machine_code, "knobs", type("Knobs", (), {"nvidia": _NoTool()}))
    s = stages(add_kernel, ADD)
    assert s.ok and s.sass == "" and s.ptx
    assert "no sass: Cannot find nvdisasm; there are ptxas, ptxas-blackwell, nvdisasm, cuobjdump" in repr(s)


# ---- the cache


def test_the_second_time_nothing_is_compiled(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    first = stages(add_kernel, ADD, BLOCK=512)
    assert first.sass and len(first.passes)

    def never(*args, **kwargs):
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "Popen", never)
    again = stages(add_kernel, ADD, BLOCK=512)
    assert (again.ptx, again.sass, again.cubin) == (first.ptx, first.sass, first.cubin)
    assert repr(again) == repr(first) and repr(again.passes) == repr(first.passes)
    assert os.listdir(tmp_path) == []
    with pytest.raises(AssertionError, match="compiled again"):
        stages(add_kernel, ADD, BLOCK=512, num_warps=8)


def test_a_kernel_elsewhere_in_another_file_is_not_compiled_anew(monkeypatch):
    body = """
@triton.jit
def plus(x):
    return x + 3

@triton.jit
def moved_kernel(x_ptr, z_ptr, N, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs, mask=offs < N)
    tl.store(z_ptr + offs, plus(x), mask=offs < N)
"""
    first = stages(define(body, "moved_kernel", {}), ADD, BLOCK=512)
    assert first.sass and len(first.passes)

    def never(*args, **kwargs):
        raise AssertionError("compiled again")

    monkeypatch.setattr(subprocess, "Popen", never)
    again = stages(define("\n" * 40 + body, "<another cell>", {}), ADD, BLOCK=512)
    assert again.passes and again.cubin == first.cubin
    for stage in first.names:
        for text in ("tl.load", "plus(x), mask", "x + 3"):
            assert again.lines(stage, text).text == first.lines(stage, text).text
        lines = {line.source for line in first.read(stage)} - {None}
        assert lines
        assert {line.source for line in again.read(stage)} - {None} == {line + 40 for line in lines}


def test_a_damaged_cache_is_compiled_over(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert stages(add_kernel, ADD).ok
    for path in tmp_path.rglob("stages.json"):
        path.write_text("{")
    s = stages(add_kernel, ADD)
    assert s.ok and s.sass
    (kept,) = {p for p in tmp_path.rglob("stages.json") if '"ttgir"' in p.read_text()}
    assert kept


@pytest.mark.parametrize("damage", ["", "{", '["texts", "log"]', '{"texts": {}}'])
def test_what_a_damaged_cache_has_is_nothing(damage, monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    key = cache.key_of("a kernel")
    cache.write(key, {"texts": {}, "log": ""})
    assert cache.read(key, "texts", "log") == {"texts": {}, "log": ""}
    (path,) = tmp_path.rglob("stages.json")
    path.write_text(damage)
    assert cache.read(key, "texts", "log") is None


def test_a_cache_that_cannot_be_written_is_done_without(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert stages(add_kernel, ADD).ok


# ---- reading


LOADS = {
    "ttir": "tt.load",
    "ttgir": "tt.load",
    "llir": "ld.global.v4.b32",
    "ptx": "ld.global.v4.b32",
    "sass": "LDG.E.128",
}


@pytest.mark.parametrize("stage, operation", LOADS.items())
def test_a_line_is_followed_through_every_stage(stage, operation):
    s = added()
    number = line_of("tl.load", add_kernel)
    lines = s.lines(stage, number)
    assert any(operation in line for line in lines)
    assert tuple(lines) == tuple(s.lines(stage, "tl.load"))
    others = [line.text for line in s.read(stage) if line.source != number]
    assert not any(operation in line for line in others)


def test_what_fills_up_the_machine_code_is_no_lines_doing():
    """Behind the last instruction come a jump to itself, NOPs, and a label."""
    lines = added().read("sass")
    nops = [line for line in lines if line.text.endswith("  NOP")]
    assert nops and all(line.source is None for line in nops)
    (last,) = (i for i, line in enumerate(lines) if line.text.endswith("  EXIT") and "@" not in line.text)
    assert lines[last].source and not any(line.source for line in lines[last + 1 :])


def test_listings_have_a_font_of_code_wherever_they_are_shown_and_break_between_words():
    """nbconvert's page lets them inherit the prose's, JupyterLab's breaks words anywhere."""
    for shown in (added(), added().show("ttir"), added().line("tl.load"), added().passes):
        text = shown._repr_html_()
        assert "pre{" in text and "font-family:var(--jp-code-font-family" in text
        assert "word-break:normal" in text


def test_choosing_a_line_shows_only_what_became_of_it_unless_that_is_switched_off():
    assert 'class="only" checked>' in added()._repr_html_()


def test_a_line_is_followed_to_amd_too():
    lines = added("gfx942").lines("amdgcn", "tl.load")
    assert any("_load_dword" in line for line in lines) and not any("_store_" in line for line in lines)


@pytest.mark.parametrize("stage, operation", [("ttir", "arith.addf"), ("ptx", "add.f32"), ("sass", "FADD")])
def test_a_helper_of_the_same_file_has_its_own_line(stage, operation):
    s = added()
    assert line_of("return x + 10", ten_more) in s.source
    assert any(operation in line for line in s.lines(stage, "return x + 10"))


def test_tritons_own_functions_count_as_the_line_that_calls_them():
    s = stages(largest_kernel, ADD)
    number = line_of("tl.max", largest_kernel)
    assert any("tt.reduce" in line for line in s.lines("ttgir", number))
    for stage, operation in (("llir", "shfl"), ("ptx", "shfl.sync.bfly"), ("sass", "SHFL.BFLY")):
        found = [line for line in s.read(stage) if operation in line.text and "declare" not in line.text]
        assert found and all(line.source == number for line in found), stage


def test_a_loop_belongs_to_its_line():
    s = compiled(num_stages=1)
    number = line_of("for start in range", matmul_kernel)
    loop = s.lines("ttgir", number)
    assert any("scf.for" in line for line in loop)
    assert any("warp_group_dot" in line for line in s.lines("ttgir", "tl.dot"))


def test_a_line_there_is_not():
    with pytest.raises(ValueError, match="source is 3, but the kernel has lines"):
        added().lines("ttir", 3)
    with pytest.raises(ValueError, match="source is 'tl.dot'"):
        added().line("tl.dot")
    with pytest.raises(
        ValueError, match="stage must be one of ttir, ttgir, llir, amdgcn for gfx942, but is 'ptx'"
    ):
        added("gfx942").show("ptx")


def test_show_and_line():
    s = added()
    assert s.show("ttir").text == s.ttir and len(s.show("ttir")) == len(s.ttir.splitlines())
    near = s.show("ptx", around="ld.global", context=1)
    assert 3 <= len(near) < len(s.show("ptx")) and any("ld.global" in line for line in near)
    assert near[0] == near[0:1][0]
    nothing = s.show("ptx", around="wgmma")
    assert not len(nothing) and repr(nothing).endswith(": no lines") and "<pre" not in nothing._repr_html_()
    text = repr(s.line("tl.load"))
    number = line_of("tl.load", add_kernel)
    assert text.startswith(
        f"line {number} of add_kernel for sm_90, N=4096  BLOCK=1024\nline {number}: x = tl.load("
    )
    assert [m[0] for m in re.finditer(r"^\w+(?=: \d+ lines?$)", text, re.MULTILINE)] == list(s.names)


# ---- as text and as HTML


def test_text_is_short_and_exact():
    s = compiled()
    lines = repr(s).splitlines()
    assert lines[0] == "matmul_kernel for sm_90, M=512  N=512  K=512  BLOCK_M=128  BLOCK_N=128  BLOCK_K=64"
    assert [line.split()[0] for line in lines[1:6]] == list(s.names)
    assert [int(line.split()[1]) for line in lines[1:6]] == [len(s.read(stage)) for stage in s.names]
    assert (
        lines[6]
        == f"{s.registers} registers per thread, 0 bytes spilled, {s.shared_bytes} bytes of shared memory"
    )
    assert lines[7] == f"tensor core: {s.tensor_core}" and len(lines) == 8


def test_nothing_depends_on_the_cells_file_name(monkeypatch, tmp_path):
    source = Path(__file__).read_text()
    start = source.index("@triton.jit\ndef add_kernel")
    cell = (
        "@triton.jit\ndef ten_more(x):\n    return x + 10\n\n\n"
        + source[start : source.index("\n\n\n", start)]
    )
    shown = []
    for name in ("ipykernel_1/1.py", "ipykernel_22/333.py"):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / name))
        s = stages(define(cell, str(tmp_path / name)), ADD)
        assert s.ok
        parts = (s, s.show("ttgir"), s.line("tl.load"), s.diff(added(), "ptx"), s.passes, s.passes["cse"])
        shown.append([(repr(p), p._repr_html_()) for p in parts] + [s.text(stage) for stage in s.names])
    assert shown[0] == shown[1]
    assert "ipykernel" not in str(shown)


class _Checker(html.parser.HTMLParser):
    """That tags are closed, ids there once, and scripts nowhere."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.tags, self.labels = [], [], set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        values = dict(attributes)
        assert not any(name.startswith("on") for name in values)
        if "id" in values:
            self.ids.append(values["id"])
        if tag == "input":
            self.labels.append(values.get("aria-label") or (self.open[-1] == "label"))
        else:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def checked(page: str) -> _Checker:
    checker = _Checker()
    checker.feed(page)
    assert not checker.open and len(checker.ids) == len(set(checker.ids)) == 1
    assert "script" not in checker.tags and "http" not in page
    return checker


def test_html_is_well_formed_small_and_has_no_scripts():
    s = compiled()
    pages = [s, s.show("ptx"), s.line("tl.dot"), s.diff(compiled(num_stages=1)), s.passes]
    for page in (p._repr_html_() for p in pages):
        checked(page)
        assert len(page) < 80_000
    checker = checked(s._repr_html_())
    assert checker.labels and all(checker.labels)
    assert f"of {len(s.read('ptx'))} lines, the first ones of each" in s._repr_html_()
    assert "For all lines: show('ptx').text" in s._repr_html_()


def test_html_of_a_long_stage_has_something_of_every_line():
    s = compiled()
    page = s._repr_html_()
    for stage in s.names:
        start = page.index(f"<code>{stage}</code>")
        section = page[start : page.index("</details>", start)]
        lines = s.read(stage)
        for number in {line.source for line in lines if line.source}:
            assert f"<span class=l{number}>" in section, (stage, number)
        assert section.count("<span") <= 200
        assert ("<span>…\n</span>" in section) == (len(lines) > 120)


@pytest.mark.parametrize("target, stage", [*(("sm_90", s) for s in LOADS), ("gfx942", "amdgcn")])
def test_highlighting_changes_no_character(target, stage):
    lines = compiled(target).text(stage).split("\n")
    coloured = highlight(lines, stage)
    assert [html.unescape(re.sub(r"</?(?:b|i|em|bdi)>", "", line)) for line in coloured] == lines
    assert sum("<b>" in line for line in coloured) > len(lines) / 2  # operations
    for line in coloured:
        assert len(re.findall(r"<\w+>", line)) == len(re.findall(r"</\w+>", line))
    assert highlight([], stage) == []


def test_html_links_lines_by_rules_of_css():
    s = added()
    page = s._repr_html_()
    number = line_of("tl.load", add_kernel)
    (name,) = re.findall(r'id="(c[0-9a-f]+)"', page)
    assert f"#{name}:has(.s{number} :checked) .l{number}" in page
    assert f'<label class=s{number}><input type="checkbox" aria-label="line {number}">' in page
    shown = sum(page.count(f"<span class=l{number}>") for _ in [0])
    assert shown == sum(len(s.lines(stage, number)) for stage in s.names)
    assert page.count("<details") == 1 + len(s.names)
    assert "var(--jp-" in page and "color:#" not in page.replace("(", "").replace(",#", "")


def test_html_escapes_what_a_kernel_says():
    page = stages(fresh_kernel("says", f'tl.static_assert(True, "<script>&")\n{ONE}'), ADD)._repr_html_()
    checked(page)
    assert "&lt;script&gt;&amp;" in page


# ---- diffs


def test_the_same_twice_is_no_difference():
    again = stages(add_kernel, ADD, "sm_90")
    for stage in again.names:
        assert not added().diff(again, stage), stage
    assert repr(added().diff(again)).endswith("no difference")


def test_a_diff_is_about_what_changed():
    change = added().diff(added(N=4097), "ttir")
    assert len(change.removed) == len(change.added) == 1
    assert "%N: i32 {tt.divisibility" in change.removed[0] and "%N: i32)" in change.added[0]
    assert repr(change).splitlines()[0] == "ttir, N=4096 → N=4097: 1 line removed, 1 added"
    assert "<del>" in change._repr_html_() and "<ins>" in change._repr_html_()
    assert repr(diff(added(), added(N=4097), "ttir")) == repr(change)


def test_what_num_stages_does():
    change = compiled(num_stages=1).diff(compiled(num_stages=3))
    assert "default" not in change.title and "num_stages=1 → num_stages=3" in change.title
    assert any("async_copy_global_to_local" in line for line in change.added)
    assert not any("async_copy_global_to_local" in line for line in change.removed)


def test_one_more_line_is_one_more_line():
    """One operation in the midst renumbers all values after it: none of that shows."""
    plain = fresh_kernel(
        "twice", "i = tl.arange(0, BLOCK)\nx = tl.load(x_ptr + i)\ntl.store(z_ptr + i, x + 1)"
    )
    more = fresh_kernel(
        "twice", "i = tl.arange(0, BLOCK)\nx = tl.load(x_ptr + i)\nx = tl.exp(x)\ntl.store(z_ptr + i, x + 1)"
    )
    change = stages(plain, ADD).diff(stages(more, ADD))
    assert not change.removed and len(change.added) == 1 and "math.exp" in change.added[0]


def test_layouts_under_other_numbers_are_the_same():
    from puzzles_lib.inspector.diff import Diff

    before = ("#blocked = #ttg.blocked<{a = 1}>", "#blocked1 = #ttg.blocked<{a = 2}>", "%0 = x : #blocked1")
    after = ("#blocked = #ttg.blocked<{a = 2}>", "#blocked1 = #ttg.blocked<{a = 1}>", "%4 = x : #blocked")
    assert not Diff("t", "ttgir", before, after)
    moved = ("#blocked = #ttg.blocked<{a = 3}>", "#blocked1 = #ttg.blocked<{a = 1}>", "%4 = x : #blocked")
    assert Diff("t", "ttgir", before, moved).added == (moved[0], moved[2])


def test_two_targets():
    change = compiled("sm_80").diff(compiled("sm_90"))
    assert any("warp_group_dot" in line for line in change.added)
    assert any(" tt.dot " in line for line in change.removed)
    with pytest.raises(ValueError, match="for gfx942"):
        compiled("sm_90").diff(compiled("gfx942"), "ptx")


# ---- passes


def test_passes_in_order_and_what_they_changed():
    passes = compiled().passes
    names = [p.name for p in passes]
    assert len(passes) > 55 and [p.number for p in passes] == list(range(len(passes)))
    order = ["inline", "convert-triton-to-tritongpu", "tritongpu-coalesce", "tritongpu-accelerate-matmul"]
    order += ["tritongpu-pipeline", "convert-triton-gpu-to-llvm"]
    assert [n for n in names if n in order] == order
    for one, two in zip(passes, passes[1:], strict=False):
        assert one.after == two.before
    assert any("convert_layout" in line for line in passes["tritongpu-coalesce"].diff.added)
    assert any("ttng.warp_group_dot" in line for line in passes["tritongpu-accelerate-matmul"].diff.added)
    assert any("async_copy" in line for line in passes["tritongpu-pipeline"].diff.added)
    assert not passes["triton-rewrite-tensor-pointer"].diff
    assert passes["canonicalize"].diff and names.count("canonicalize") > 3


def test_passes_show_those_that_changed_something():
    passes = compiled().passes
    lines = repr(passes).splitlines()
    assert lines[0].endswith(f"{len(passes)} passes, {len(passes.changed)} changed something")
    assert len(lines) == 2 + len(passes.changed) < 45
    assert any(line.split()[-1] == "tritongpu-coalesce" for line in lines)
    assert not any(line.split()[-1] == "symbol-dce" for line in lines)
    assert "tritongpu-coalesce" in passes._repr_html_()


def test_passes_of_amd():
    assert compiled("gfx942").passes["tritonamdgpu-accelerate-matmul"].diff


def test_a_pass_there_is_not():
    with pytest.raises(KeyError, match="no pass 'vectorise'; there are inline"):
        compiled().passes["vectorise"]


def test_the_compiler_package_says_what_it_offers():
    assert all(hasattr(compiler, name) for name in compiler.__all__)


def test_instructions_are_those_that_a_thread_can_reach():
    """A listing ends with a jump to itself and NOPs up to a round address, which no thread reaches."""
    listing = """\
    0000  MOV R1, c[0x0][0x28]
    0010  @P0 BRA `(.L_x_1)
    0020  NOP
    0030  @!P1 EXIT
    0040  BRA `(.L_x_2)
    .L_x_0:
    0050  BRA `(.L_x_0)
    0060  NOP
    .L_x_1:
    0070  CALL.REL.NOINC `(.L_x_3)
    .L_x_2:
    0080  EXIT
    0090  NOP
    .L_x_3:
    00a0  BRA.U UP0, `(.L_x_2)
    00b0  RET.REL.NODEC R2
    00c0  NOP
    """
    names = [operation.partition(".")[0] for operation, _ in reached(listing)]
    assert names == ["MOV", "BRA", "NOP", "EXIT", "BRA", "CALL", "EXIT", "BRA", "RET"]
    assert reached("") == []


@pytest.mark.parametrize("N", [4096, 4095])
def test_no_padding_counts_as_an_instruction(N):
    code = stages(masked_add_kernel, MASKED_ADD, "sm_90", N=N, BLOCK=1024)
    lines = [line.split() for line in code.sass.splitlines()]
    end = next(place for place, words in enumerate(lines) if words[1:] == ["EXIT"])
    assert code.instructions == end + 1 < len(lines) - 3  # a loop of one jump and NOPs follow
    assert stages(masked_add_kernel, MASKED_ADD, "gfx942", N=N, BLOCK=1024).instructions is None
