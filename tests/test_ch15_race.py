"""Chapter 15's tools: versions checked and compiled, and what is read from their machine code."""

import json
import re

import pytest
import torch
import triton
import triton.language as tl

from puzzles_lib.authoring.solutions import ROOT, define
from puzzles_lib.bench.results import relative_error
from puzzles_lib.chapters.ch15_racing_cublas import ladder, puzzles
from puzzles_lib.chapters.ch15_racing_cublas import race as racing
from puzzles_lib.chapters.ch15_racing_cublas import rung as rung_module
from puzzles_lib.chapters.ch15_racing_cublas.questions import QUESTIONS
from puzzles_lib.chapters.ch15_racing_cublas.rung import Problem, Rung
from puzzles_lib.inspector.sass import bytes_stored_to_shared, matrix_loop, overwritten_operands
from puzzles_lib.kernels.bitpack import unpack_bits
from puzzles_lib.kernels.quantize import dequantize, quantize_pack

NOTEBOOK = ROOT / "solutions" / "15_racing_cublas.ipynb"
RUNGS = {rung.name: rung for rung in ladder.rungs()}


@pytest.fixture(scope="module")
def compiled():
    """`compile_rung`, each rung once."""
    kept = {}

    def of(rung: Rung):
        if rung.name not in kept:
            kept[rung.name] = racing.compile_rung(rung)
        return kept[rung.name]

    return of


def small_run(rung: Rung, problem: Problem) -> torch.Tensor:
    """dW as float64, in the guarded interpreter."""
    from puzzles_lib.interpreter import run

    parts = torch.full((rung.splits, *problem.shape), float("nan"))
    grid = rung.grid(*problem.shape)
    done = run(rung.kernel, rung.arguments(problem.of(rung), parts), grid, ("parts_ptr",))
    assert done.stop is None and all(written.all() for written in done.written.values())
    return done.outputs["parts"].double().sum(0)


@pytest.mark.parametrize("name", RUNGS)
@pytest.mark.parametrize(("size", "offset"), [(1.0, 0.0), (1e-6, 3e-6), (1e4, -3e4)])
def test_every_rung_is_as_exact_as_float32_sums_are(name, size, offset):
    torch.manual_seed(0)
    x = (size * torch.randn(256, 256) + offset).bfloat16()
    problem = Problem(x, torch.randn(256, 256).bfloat16(), group_size=128)
    rung = RUNGS[name]
    rung = Rung(name, rung.kernel, splits=2, descriptors=rung.descriptors, **rung.constants)
    assert relative_error(small_run(rung, problem), problem.exact()) < 1e-6


@pytest.mark.parametrize("name", RUNGS)
def test_no_rung_overwrites_what_a_wgmma_may_still_read(name, compiled):
    code = compiled(RUNGS[name])
    assert any(operation.startswith("HGMMA") for operation, _ in matrix_loop(code.sass))
    assert overwritten_operands(code.sass) == []
    assert code.spills == 0 and racing.ptxas_notes(code) == []


def test_the_unsound_example_does_and_race_says_so(compiled):
    (hasty,) = ladder.unsound()
    assert overwritten_operands(compiled(hasty).sass)
    found = racing.race(hasty)
    assert not found.ok and str(found).startswith("hasty: right here, and UNSOUND on a GPU")
    assert re.search(r"\d+ instructions overwrite what a wgmma may still read", str(found))


def test_the_draft_of_rung_8_that_the_chapter_warns_of_is_unsound():
    (cell,) = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["id"] == "r8-kernel"]
    source = "".join(cell["source"])
    for old, new in (
        ("    minimum = (minimum[None, :].to(tl.float32) * 2.0**-32).to(tl.bfloat16)\n", ""),
        ("tl.reshape(params, (2, 128))", "tl.reshape(params * unit, (2, 128))"),
        ("tl.fma(code, scale[None, :] * unit, minimum)", "tl.fma(code, scale[None, :], minimum[None, :])"),
        ("field = tl.load(numbers_ptr + tl.arange(0, BLOCK_K) // 16 % 4)[None, :]",
         "place = tl.arange(0, 256)\n    field = tl.load(numbers_ptr + place // 16 % 4)"),
        ("unit = ((228 - 2 * field) << 7).to(tl.bfloat16, bitcast=True)",
         "power = tl.where(place < 128, 101 - 2 * field, -32)\n"
         "    unit = ((127 + power) << 7).to(tl.int16).to(tl.bfloat16, bitcast=True)[None, :]"),
    ):  # fmt: skip
        assert old in source
        source = source.replace(old, new)
    rung = RUNGS["8 a whole block"]
    descriptors = {"descriptors": rung.descriptors}
    draft = Rung(
        "draft", define(source, "<draft>"), splits=7, **descriptors, **rung.constants, **rung.options
    )
    found = racing.race(draft)
    assert str(found).startswith("draft: right here, and UNSOUND on a GPU")
    assert len(overwritten_operands(found.compiled.sass)) >= 24


def test_without_the_assumption_every_wgmma_waits(compiled):
    rung = RUNGS["6 copies by TMA"]
    source = rung.kernel.src.replace("    tl.assume(first < last)\n", "")
    assert source != rung.kernel.src
    kernel = define("@triton.jit\n" + source, "<no assumption>")
    code = racing.compile_rung(Rung("mine", kernel, splits=8, **rung.constants, **rung.options))
    assert racing.ptxas_notes(code) == ["C7515"] and racing.pending(code) == 0


def test_what_the_chapter_says_of_each_rung(compiled):
    facts = [
        (racing.operand(code), racing.pending(code) > 0, racing.bytes_passed_on(rung, code))
        for rung in RUNGS.values()
        for code in [compiled(rung)]
    ]
    assert facts == [
        ("shared memory", False, 64 * 32 * 2),
        ("shared memory", False, 128 * 64 * 2),
        ("registers", False, 0),
        ("registers", False, 0),
        ("registers", True, 16 * 128 * 2),
        ("registers", True, 0),
        ("registers", True, 0),
        ("registers", True, 0),
        ("registers", True, 0),
    ]


def test_from_rung_7_on_there_is_a_place_for_every_program(compiled):
    fills = [racing.waves(rung, compiled(rung)) for rung in RUNGS.values()]
    assert [programs <= places for programs, places in fills] == [False] * 6 + [True] * 3


@pytest.mark.parametrize(
    ("registers", "shared", "warps", "programs"),
    [
        (32, 0, 4, 16),  # 64 warps
        (64, 0, 4, 8),  # all registers
        (65, 0, 4, 7),  # given out in lots of 8 a thread
        (255, 0, 4, 2),
        (255, 0, 8, 1),
        (32, 100 << 10, 4, 2),  # shared memory, 1 KiB more for each
        (32, 114 << 10, 4, 1),
        (16, 0, 1, 32),
    ],
)
def test_programs_that_a_multiprocessor_holds(registers, shared, warps, programs):
    assert racing.resident(registers, shared, warps) == programs


# ---- words and launches


def test_row_wise_words_hold_the_same_codes():
    packed = quantize_pack(torch.randn(200, 64).bfloat16(), 2, 32)
    words, scale, minimum = rung_module.row_wise(packed)
    codes = (words[:, :, None] >> 2 * torch.arange(16) & 3).flatten(1)
    assert torch.equal(codes.to(torch.uint8), unpack_bits(packed.words, 2, (200, 64)))
    x = codes * scale.repeat_interleave(32, 1).double() + minimum.repeat_interleave(32, 1).double()
    assert torch.equal(x.float().bfloat16(), dequantize(packed))


def test_a_kernel_with_an_unknown_parameter_is_refused():
    @triton.jit
    def odd_kernel(weight_ptr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
        tl.store(weight_ptr, 0)

    problem = Problem(torch.randn(128, 64).bfloat16(), torch.randn(128, 64).bfloat16(), 64)
    rung = Rung("odd", odd_kernel, splits=1, BLOCK_M=64, BLOCK_N=64, BLOCK_K=64)
    with pytest.raises(TypeError, match="weight_ptr .* it offers words_ptr"):
        rung.arguments(problem, torch.empty(1))


def test_the_numbers_are_the_same_where_they_are_checked_and_measured():
    assert puzzles.NUMBERS == rung_module.NUMBERS


def test_no_measurement_without_a_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="needs a CUDA device"):
        list(ladder.measure())


# ---- race


def test_a_wrong_version_is_said_to_be_wrong_and_not_compiled():
    source = RUNGS["1 first"].kernel.src.replace("& 3, (BLOCK_K", "& 1, (BLOCK_K")
    rung = Rung("mine", define("@triton.jit\n" + source, "<wrong rung>"), splits=8, num_warps=4,
                       BLOCK_M=64, BLOCK_N=64, BLOCK_K=32)  # fmt: skip
    found = racing.race(rung)
    assert not found.ok and found.compiled is None
    assert "mine: wrong" in str(found) and "wrong values in parts" in str(found)


def test_a_changed_version_has_no_recorded_times(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    first = RUNGS["1 first"]
    changed = Rung(first.name, first.kernel, splits=4, **first.constants)
    assert first.same_as(Rung(first.name, first.kernel, splits=8, **first.constants))
    assert racing._times(changed) == (
        (),
        "no times: there is no GPU here, and this version is not the recorded one",
    )


def test_a_changed_helper_makes_another_version():
    rung = RUNGS["9 stored in pieces"]
    (cell,) = [c for c in json.loads(NOTEBOOK.read_text())["cells"] if c["id"] == "r8-kernel"]
    source, was = "".join(cell["source"]), RUNGS["8 a whole block"]

    def made(text):
        settings = {"splits": was.splits, "descriptors": was.descriptors, **was.constants, **was.options}
        return Rung(was.name, define(text, "<helpers>"), **settings)

    assert made(source).same_as(was) and not made(source).same_as(rung)
    changed = source.replace("(high.to(tl.int32) << 16) |", "(high.to(tl.int32) << 16) +")
    assert changed != source and not made(changed).same_as(was)


def test_a_version_that_no_multiprocessor_holds_is_said_to_be_so(monkeypatch):
    monkeypatch.setattr(racing, "_times", lambda rung: pytest.fail("it cannot run"))
    rung = RUNGS["8 a whole block"]
    options = {**rung.options, "num_stages": 9}
    large = Rung("mine", rung.kernel, splits=7, descriptors=rung.descriptors, **rung.constants, **options)
    found = racing.race(large)
    assert not found.ok and len(found.lines()) == 1
    assert re.search(
        r"no H200 can hold a program: \d+ registers .* \d{6} bytes .*, 232448 at most", str(found)
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"splits": 0}, "splits is 0, allowed are 1 to 128: none may be empty"),
        ({"splits": 129}, "splits is 129, allowed are 1 to 128"),
        ({"BLOCK_N": None}, "BLOCK_N is None, allowed are powers of 2"),
        ({"BLOCK_K": 48}, "BLOCK_K is 48, allowed are powers of 2"),
        ({"descriptors": {"x": (1, 8)}}, "descriptors names 'x', allowed are words, params, dy"),
        ({"descriptors": {"dy": (3, 8)}}, r"the tile of 'dy' is \(3, 8\), allowed are two powers of 2"),
        ({"descriptors": {"dy": 128}}, "the tile of 'dy' is 128, allowed are two powers of 2"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, words):
    blocks = {"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 64}
    with pytest.raises(ValueError, match=words):
        Rung("mine", RUNGS["1 first"].kernel, **{"splits": 8, **blocks, **changes})


def test_what_a_gpu_cannot_run_is_no_page_of_traceback(monkeypatch):
    def measure(some):
        raise triton.runtime.errors.OutOfResources(205888, 101376, "shared memory")
        yield

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(racing, "measure", measure)
    times, source = racing._times(RUNGS["1 first"])
    assert times == () and source.startswith("not timed on this GPU: out of resource: shared memory")


def test_race_wants_a_rung():
    with pytest.raises(TypeError, match=r"race\(rung\): rung is a JITFunction, allowed is a Rung"):
        racing.race(RUNGS["1 first"].kernel)


def test_excerpts_are_whole_statements_or_an_error():
    lines = racing.excerpt("mma: gl.constexpr", "mma: gl.constexpr").lines
    assert lines[0].startswith("mma: gl.constexpr = ") and lines[-1] == ")"
    with pytest.raises(ValueError, match="has no lines from 'nothing of the kind'"):
        racing.excerpt("nothing of the kind", "import")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda q: q.id)
def test_questions_have_answers(question):
    right = question.right()
    assert isinstance(right, question.kind)
    wrong = tuple(r + 1 for r in right) if question.kind is tuple else 2 * right + 1
    assert not (question.same(wrong, right) if question.same else wrong == right)


# ---- machine code

LOOP = """
.L_x_0:
0100  STS.128 [R3], R4
0110  BAR.SYNC 0x0
0120  LDGSTS.E.BYPASS.128 [R3], [R6.64]
0130  STS [R3+0x10], R4
0140  HGMMA.64x128x16.F32.BF16 R88, R8, gdesc[UR28].tnspB, R88, gsb0
0150  WARPGROUP.DEPBAR.LE gsb0, 0x1
0160  @P0 BRA `(.L_x_0)
0170  EXIT
"""


def test_the_loop_and_what_it_stores():
    body = matrix_loop(LOOP)
    assert (body[0][0], body[-1][0]) == ("STS.128", "BRA")
    assert len(body) == 7 and bytes_stored_to_shared(body) == 16 + 4
    assert overwritten_operands(LOOP) == []
    assert overwritten_operands(LOOP.replace("STS [R3+0x10], R4", "MOV R9, R4")) == ["MOV R9, R4 writes R9"]


def test_code_without_a_loop():
    assert matrix_loop("0100  EXIT\n") == []
