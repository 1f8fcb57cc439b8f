"""`stages`: what the compiler makes of a kernel, from Triton IR to machine code, with no GPU."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from triton.runtime.jit import JITFunction

from puzzles_lib.checker import prepared
from puzzles_lib.compilation.locations import Line, inlined_lines, read
from puzzles_lib.compiler import Build, Target, build, disassemble, find_target, translate
from puzzles_lib.puzzle import Case, Puzzle, pick_case
from puzzles_lib.report import Report
from puzzles_lib.vetting import Refusal, with_helpers

NVIDIA = ("ttir", "ttgir", "llir", "ptx", "sass")
AMD = ("ttir", "ttgir", "llir", "amdgcn")
_OPTIONS = ("num_warps", "num_stages")


def stages(
    kernel: object,
    puzzle: Puzzle,
    target: str = "sm_90",
    *,
    case: int | Case = 0,
    num_warps: int | None = None,
    num_stages: int | None = None,
    **numbers: int,
) -> "Stages":
    """Compile a ``@triton.jit`` kernel for a case of a puzzle, as a launch would, and keep every stage.

    target: ``"sm_80"``, ``"sm_90"``, ``"sm_100"``, ``"gfx942"``, none of which needs a GPU, or ``"local"``.
    case: number of the case in ``puzzle.cases``, or a `Case` of your own.
    num_warps, num_stages: of the launch; Triton's own choice for the target where left out.
    numbers: sizes or block sizes that differ from the case's, such as ``BLOCK_K=64``.

    A kernel that does not compile is no exception: the result's ``refusal`` says why, and the stages
    that it reached are there. It is compiled in a process of its own, under limits of time and memory.

    Raises TypeError where ``puzzle`` is not a `Puzzle`, ValueError for a target, case, option or number
    that does not exist, and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"stages(kernel, puzzle): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    chosen = find_target(target)
    case = _with(kernel, pick_case(puzzle, case, "stages"), numbers)
    options = {"num_warps": num_warps, "num_stages": num_stages}
    options = {name: value for name, value in options.items() if value is not None}
    _check_options(options)
    settings = "  ".join([str(case), *(f"{name}={value}" for name, value in options.items())])
    title = f"{getattr(kernel, '__name__', puzzle.name)} for {chosen.name}, {settings}"
    ready = prepared(kernel, puzzle, case)
    if isinstance(ready, Report):
        verdict = ready.verdict
        return Stages(title, chosen, refusal=Refusal(verdict.message, verdict.site))
    kernel, bound = ready
    translation = translate(kernel, bound, chosen, **options)
    source = _source(kernel)
    if isinstance(translation, Refusal):
        return Stages(title, chosen, source, refusal=translation)
    built = build(translation)
    return Stages(title, chosen, source, built, built.refusal)


@dataclass(frozen=True, repr=False)
class Stages:
    """One kernel, compiled: its text at every stage, and what it takes of the GPU.

    title: what was compiled, for what. source: the kernel's lines, by number.
    refusal: why it does not compile, None where it does. What is missing then is ``""`` or None.
    """

    title: str
    target: Target
    source: Mapping[int, str] = field(default_factory=dict)
    built: Build | None = None
    refusal: Refusal | None = None

    @property
    def ok(self) -> bool:
        return self.refusal is None

    @property
    def names(self) -> tuple[str, ...]:
        """The stages that can be read, in the compiler's order."""
        return NVIDIA if self.target.is_nvidia else AMD

    def text(self, stage: str) -> str:
        """A stage as text without locations; ``""`` for one that was not reached."""
        return "\n".join(line.text for line in self.read(stage))

    @property
    def ttir(self) -> str:
        """Triton IR: the kernel's own operations on blocks, the same for every GPU."""
        return self.text("ttir")

    @property
    def ttgir(self) -> str:
        """TritonGPU IR: the same with a layout on each block, which thread holds which element."""
        return self.text("ttgir")

    @property
    def llir(self) -> str:
        """LLVM IR: what one thread does."""
        return self.text("llir")

    @property
    def ptx(self) -> str:
        """NVIDIA's virtual assembly; ``""`` for AMD."""
        return self.text("ptx") if self.target.is_nvidia else ""

    @property
    def amdgcn(self) -> str:
        """AMD's assembly; ``""`` for NVIDIA."""
        return "" if self.target.is_nvidia else self.text("amdgcn")

    @property
    def sass(self) -> str:
        """NVIDIA's machine code, disassembled; ``""`` for AMD."""
        return self.text("sass") if self.target.is_nvidia else ""

    @property
    def cubin(self) -> bytes:
        """The program as a GPU loads it (AMD: hsaco)."""
        return self.built.binary if self.built else b""

    @property
    def registers(self) -> int | None:
        """Registers that each thread takes (AMD: vector registers)."""
        return self._number(r"Used (\d+) registers", r"\.vgpr_count:\s+(\d+)")

    @property
    def spills(self) -> int | None:
        """Bytes that each thread keeps in memory for want of registers."""
        words = self._number(r"(\d+) bytes spill stores", r"\.vgpr_spill_count:\s+(\d+)")
        return words if words is None or self.target.is_nvidia else 4 * words

    @property
    def shared_bytes(self) -> int | None:
        """Bytes of shared memory that each program takes."""
        return self.built.metadata.get("shared") if self.built else None

    @property
    def tensor_core(self) -> str | None:
        """The instruction that multiplies tiles, such as ``"wgmma.mma_async..."``; None without one."""
        pattern = r"\b(?:wgmma\.mma_async|mma\.sync|tcgen05\.mma|v_s?mfmac?_)[\w.:]*"
        match = re.search(pattern, self.ptx or self.amdgcn)
        return match[0] if match else None

    def _number(self, nvidia: str, amd: str) -> int | None:
        if self.built is None:
            return None
        text = self.built.log if self.target.is_nvidia else self.built.texts.get("amdgcn", "")
        match = re.search(nvidia if self.target.is_nvidia else amd, text)
        return int(match[1]) if match else None

    def read(self, stage: str) -> tuple[Line, ...]:
        """The lines of a stage, each with the line of the kernel that it comes from."""
        if stage not in self._lines:
            self._lines[stage] = self._read(stage)
        return self._lines[stage]

    @cached_property
    def _lines(self) -> dict[str, tuple[Line, ...]]:
        return {}

    def _read(self, stage: str) -> tuple[Line, ...]:
        if stage not in self.names:
            raise ValueError(f"stage is {stage!r}, {self.target.name} has {', '.join(self.names)}")
        if self.built is None:
            return ()
        home = f"{self.built.translation.kernel}.py"
        if stage == "sass":
            sass = disassemble(self.built.binary) if self.built.binary else ""
            return read(stage, sass, home, inlined_lines(self.built.texts["ptx"], home))
        return read(stage, self.built.texts.get(stage, ""), home)

    def __repr__(self) -> str:
        lines = [self.title]
        if self.refusal:
            lines.append(f"does not compile: {self.refusal.message}")
            if self.refusal.site:
                lines.append(str(self.refusal.site))
        for stage in self.names:
            if count := len(self.read(stage)):
                lines.append(f"{stage:6}  {count:5} lines")
        if self.ok:
            lines.append(
                f"{self.registers} registers a thread, {self.spills} bytes spilled, "
                f"{self.shared_bytes} bytes of shared memory"
            )
            lines.append(f"tensor core: {self.tensor_core or 'not used'}")
        return "\n".join(lines)


def _source(kernel: JITFunction) -> dict[int, str]:
    """The lines of the kernel, and of its helpers in the same file or cell, by number."""
    file = kernel.fn.__code__.co_filename
    lines = {}
    for function in with_helpers(kernel):
        if function.fn.__code__.co_filename == file:
            first = function.starting_line_number
            lines |= {first + i: line.rstrip() for i, line in enumerate(function.raw_src)}
    return dict(sorted(lines.items()))


def _with(kernel: object, case: Case, numbers: Mapping[str, int]) -> Case:
    """The case with other numbers, or with some for constants that the kernel has a default for."""
    known = set(case.numbers)
    if isinstance(kernel, JITFunction):
        known |= {p.name for p in kernel.params if p.has_default}
    if unknown := sorted(set(numbers) - known):
        raise ValueError(
            f"stages: {unknown[0]} is no number of the case, which has {', '.join(case.numbers)}"
        )
    return Case(fill=case.fill, **(case.numbers | numbers))


def _check_options(options: Mapping[str, object]) -> None:
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"stages: {name} is {value!r}, allowed are integers")
    warps = options.get("num_warps", 4)
    if not (0 < warps <= 32 and warps & (warps - 1) == 0):
        raise ValueError(f"stages: num_warps is {warps}, allowed are 1, 2, 4, 8, 16, 32")
    if not 0 <= options.get("num_stages", 3) <= 16:
        raise ValueError(f"stages: num_stages is {options['num_stages']}, allowed are 0 to 16")
