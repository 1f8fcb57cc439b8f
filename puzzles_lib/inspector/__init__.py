"""Show what the compiler makes of a kernel, from Triton IR to machine code, without a GPU: `stages`."""

import contextlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from triton.runtime.jit import JITFunction

from puzzles_lib.binding import bind
from puzzles_lib.compiler import (
    Build,
    Target,
    Translation,
    build,
    disassemble,
    dump_passes,
    find_target,
    translate,
)
from puzzles_lib.compiler.locations import Line, read
from puzzles_lib.inspector import page
from puzzles_lib.inspector.diff import Diff
from puzzles_lib.inspector.listing import History, Listing
from puzzles_lib.inspector.passes import Passes, read_passes
from puzzles_lib.inspector.sass import reached
from puzzles_lib.puzzle import Case, Puzzle, expect_puzzle, pick_case
from puzzles_lib.runner import Busy, alone
from puzzles_lib.source import Refusal, with_helpers
from puzzles_lib.stumbles import sentence_first
from puzzles_lib.wrapped import unwrap

__all__ = ["Diff", "History", "Line", "Listing", "Passes", "Stages", "diff", "stages"]

NVIDIA = ("ttir", "ttgir", "llir", "ptx", "sass")
AMD = ("ttir", "ttgir", "llir", "amdgcn")
_MEANING = {
    "ttir": "Triton IR: operations on blocks",
    "ttgir": "TritonGPU IR: blocks with layouts",
    "llir": "LLVM IR: what one thread does",
    "ptx": "PTX: virtual assembly",
    "sass": "SASS: machine code",
    "amdgcn": "AMD assembly",
}


def stages(
    kernel: object,
    puzzle: Puzzle,
    target: str = "sm_90",
    *,
    case: int | Case = 0,
    num_warps: int | None = None,
    num_stages: int | None = None,
    until: str = "",
    **numbers: int,
) -> "Stages":
    """Compile a ``@triton.jit`` kernel for a case of a puzzle, as a launch would, and keep every stage.

        stages(outer_add_kernel, OUTER_ADD, "sm_90", until="ttgir")

    target: ``"sm_80"``, ``"sm_90"``, ``"sm_100"`` or ``"gfx942"``, which need no GPU, or ``"local"``, this
        machine's GPU.
    kernel: with `triton.autotune`, its first configuration is compiled.
    case: the number of a case, as in `check`'s report, or a `Case` of your own.
    num_warps, num_stages: those of the launch; by default Triton's choice for the target.
    until: the last stage that you want: ``"ttir"``, ``"ttgir"``, ``"llir"`` or ``"ptx"``. For large tiles,
        machine code can take a minute.
    numbers: sizes or block sizes that differ from the case's, such as ``BLOCK_K=64``.

    If the kernel does not compile, the result's ``refusal`` says why, and the stages that it reached are
    there. It is compiled in a separate process, with limits of time and memory.

    Raises TypeError if ``puzzle`` is not a `Puzzle`, ValueError if a target, case, option or number does not
    exist, and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    asked = {"num_warps": num_warps, "num_stages": num_stages}
    options = {name: value for name, value in asked.items() if value is not None}
    try:
        expect_puzzle("stages", kernel, puzzle)
        chosen = find_target(target)
        case = _with(kernel, pick_case(puzzle, case, "stages"), numbers)
        _check_options(options)
        _check_last(until, chosen)
    except (TypeError, ValueError) as error:
        raise sentence_first(error.with_traceback(None)) from None
    made = None
    with contextlib.suppress(KeyboardInterrupt):
        made = _compile(kernel, puzzle, case, chosen, options, until)
    if made is None:  # raised from here, so that a notebook shows two frames instead of ten
        raise KeyboardInterrupt("the compilation was interrupted") from None
    return made


def _compile(
    kernel: object, puzzle: Puzzle, case: Case, target: Target, options: dict[str, int], until: str
) -> "Stages":
    wrapped = unwrap(kernel)
    name = wrapped.kernel.__name__ if wrapped else puzzle.name
    title = _title(name, target, case, options)
    source: dict[int, str] = {}

    def work() -> Translation | Refusal:
        nonlocal title
        bound = bind(kernel, puzzle, case)
        if isinstance(bound, Refusal):
            return bound
        if bound.configuration:
            of_launch = {
                n: v for n, v in bound.configuration.options.items() if n in ("num_warps", "num_stages")
            }
            options.update({**of_launch, **options})
            title = _title(name, target, bound.case, options)
        source.update(source_lines(bound.kernel))
        return translate(bound.kernel, bound.arguments, target, **options)

    try:
        translation = alone(work)
    except Busy as reason:
        return Stages(title, target, refusal=Refusal(str(reason)))
    except Exception as error:  # a learner must not see a page of traceback for a bug of the course
        words = " ".join(f"it cannot be read ({type(error).__name__}: {error})".split())[:250]
        return Stages(title, target, refusal=Refusal(words))
    return built_from(translation, title, target, source, until)


def built_from(
    translation: Translation | Refusal, title: str, target: Target, source: Mapping[int, str], until: str = ""
) -> "Stages":
    """Return the stages, all or those up to one, of a kernel that the front end has translated."""
    if isinstance(translation, Refusal):
        return Stages(title, target, source, refusal=translation)
    built = build(translation, until)
    return Stages(title, target, source, built, built.refusal)


@dataclass(frozen=True, repr=False)
class Stages:
    """A compiled kernel: its text at every stage, and the resources that it needs.

    title: what was compiled, and for which target. source: the kernel's lines, by number.
    refusal: why it does not compile; None if it does. Missing parts are ``""`` or None.
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
        """Return a stage as text without locations; ``""`` if it was not reached."""
        __tracebackhide__ = True
        return "\n".join(line.text for line in self.read(stage))

    @property
    def ttir(self) -> str:
        """Triton IR: the kernel's own operations on blocks, the same for every GPU."""
        return self.text("ttir")

    @property
    def ttgir(self) -> str:
        """TritonGPU IR: the same with a layout on each block, which says which thread has which element."""
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
    def instructions(self) -> int | None:
        """The number of instructions of NVIDIA's machine code that a thread can reach; None for AMD.

        Labels don't count, nor what pads the code after its end.
        """
        return len(reached(self.sass)) if self.target.is_nvidia else None

    @property
    def cubin(self) -> bytes:
        """The program as a GPU loads it (AMD: hsaco)."""
        return self.built.binary if self.built else b""

    @property
    def num_warps(self) -> int:
        """The number of warps that run a program; 0 if it does not compile."""
        return self.built.metadata["num_warps"] if self.built else 0

    @property
    def registers(self) -> int | None:
        """The number of registers that each thread uses (AMD: vector registers)."""
        return self._number(r"Used (\d+) registers", r"\.vgpr_count:\s+(\d+)")

    @property
    def spills(self) -> int | None:
        """The number of bytes that each thread spills to memory, because it has too few registers."""
        words = self._number(r"(\d+) bytes spill stores", r"\.vgpr_spill_count:\s+(\d+)")
        return words if words is None or self.target.is_nvidia else 4 * words

    @property
    def shared_bytes(self) -> int | None:
        """The bytes of shared memory that each program uses."""
        return self.built.metadata.get("shared") if self.built else None

    @property
    def tensor_core(self) -> str | None:
        """The instruction that multiplies tiles, such as ``"wgmma.mma_async..."``; None if there is none."""
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
        """Return the lines of a stage, each with the line of the kernel that it comes from."""
        __tracebackhide__ = True
        if stage not in self._lines:
            self._lines[stage] = self._read(stage)
        return self._lines[stage]

    @cached_property
    def _lines(self) -> dict[str, tuple[Line, ...]]:
        return {}

    def _read(self, stage: str) -> tuple[Line, ...]:
        __tracebackhide__ = True
        if stage not in self.names:
            raise ValueError(
                f"stage must be one of {', '.join(self.names)} for {self.target.name}, but is {stage!r}"
            )
        if self.built is None:
            return ()
        text = self._disassembled if stage == "sass" else self.built.texts.get(stage, "")
        return () if isinstance(text, Refusal) else read(stage, text, self.built.translation.above)

    # ---- looking

    def show(self, stage: str, around: str = "", context: int = 6) -> Listing:
        """Return one stage. around: only the lines with this text, and ``context`` lines before and after.

        Raises TypeError if ``around`` is not a string or ``context`` is not a number of lines, and ValueError
        if the target does not have this stage.
        """
        __tracebackhide__ = True
        if not isinstance(around, str):
            raise TypeError(
                f"show: around must be text, but is {around!r} (for a line, use lines(stage, number))"
            )
        if isinstance(context, bool) or not isinstance(context, int) or context < 0:
            raise TypeError(f"show: context must be a number of lines, but is {context!r}")
        entries = self.read(stage)
        title = f"{stage} of {self.title}"
        if around:
            near = {
                n
                for at, line in enumerate(entries)
                if around in line.text
                for n in range(at - context, at + context + 1)
            }
            entries = tuple(line for at, line in enumerate(entries) if at in near)
            title = f"{stage} around {around!r}, of {self.title}"
        return Listing(title, stage, entries)

    def lines(self, stage: str, source: int | str) -> Listing:
        """Return what a line of the kernel became in a stage.

        source: the number of the line in the file or cell, as in `check`, or a text in it, such as
            ``"tl.load"``, for all lines with that text.
        Raises ValueError for a stage or a line that does not exist.
        """
        __tracebackhide__ = True
        numbers = self._numbers(source)
        entries = tuple(line for line in self.read(stage) if line.source in numbers)
        return Listing(f"{stage} of {_named(numbers)}", stage, entries)

    def line(self, source: int | str) -> History:
        """Return what a line of the kernel became in each stage; ``source`` as for `lines`."""
        __tracebackhide__ = True
        numbers = self._numbers(source)
        listings = tuple(self.lines(stage, source) for stage in self.names)
        listings = tuple(
            Listing(f"{each.stage}: {_count(len(each))}", each.stage, each.entries) for each in listings
        )
        return History(f"{_named(numbers)} of {self.title}", {n: self.source[n] for n in numbers}, listings)

    def _numbers(self, source: int | str) -> list[int]:
        __tracebackhide__ = True
        if isinstance(source, str):
            found = [number for number, text in self.source.items() if source in text]
        else:
            found = [source] if source in self.source else []
        if not found:
            numbers = f"{min(self.source)} to {max(self.source)}" if self.source else "none"
            raise ValueError(
                f"source is {source!r}, but the kernel has lines {numbers}, and none contains that text"
            )
        return found

    def diff(self, other: "Stages", stage: str = "ttgir") -> Diff:
        """Return the difference between a stage of this compilation and the same stage of another.

        Renumbered values, registers and labels do not count. Raises TypeError if ``other`` is not a
        compilation, and ValueError if one of the two does not have this stage.
        """
        __tracebackhide__ = True
        if not isinstance(other, Stages):
            raise TypeError(f"diff: other must be what stages(...) returns, not {type(other).__name__}")
        one, two = self.read(stage), other.read(stage)
        before, after = (tuple(line.text for line in each) for each in (one, two))
        return Diff(f"{stage}, {_difference(self, other)}", stage, before, after)

    @cached_property
    def passes(self) -> Passes:
        """Return the passes from Triton IR to LLVM's dialect, and what each of them changed."""
        if self.built is None:
            return Passes(self.title, ())
        return read_passes(self.title, dump_passes(self.built.translation))

    def _facts(self) -> list[str]:
        if self.refusal:
            site = [str(self.refusal.site)] if self.refusal.site else []
            what = "" if self.refusal.kind == "error" else "does not compile: "
            return [f"{what}{self.refusal}", *site]
        facts = [
            f"{self.registers} registers per thread, {self.spills} bytes spilled, "
            f"{self.shared_bytes} bytes of shared memory",
            f"tensor core: {self.tensor_core or 'not used'}",
        ]
        limit = self.target.shared_limit
        if limit is not None and (self.shared_bytes or 0) > limit:
            facts.append(
                f"a launch would fail, because {self.target.name} has {limit} bytes of shared memory"
            )
        if isinstance(self._disassembled, Refusal):
            facts.append(f"no sass: {self._disassembled.message}")
        return facts

    @cached_property
    def _disassembled(self) -> str | Refusal:
        binary = self.cubin if self.target.is_nvidia else b""
        return disassemble(binary) if binary else ""

    def __repr__(self) -> str:
        counts = ((stage, len(self.read(stage))) for stage in self.names)
        rows = [f"{stage:6} {count:5} lines" for stage, count in counts if count]
        return "\n".join([self.title, *rows, *self._facts()])

    def _repr_html_(self) -> str:
        reads = {stage: self.read(stage) for stage in self.names}
        sources = {line.source for lines in reads.values() for line in lines}
        reached = {number for number in self.source if number in sources}
        name = page.identifier(self.title, self.source, reads, self._facts())
        facts = "".join(f"<div>{html.escape(fact)}</div>" for fact in self._facts())
        parts = [page.bold(self.title), f'<div role="status">{facts}</div>']
        if reached:
            parts.append(
                page.section("the kernel: choose lines", page.source(self.source, reached), True, "py")
            )
            parts.append(
                '<label><input type="checkbox" class="only" checked> '
                "show only what the chosen lines became</label>"
            )
        for stage, lines in reads.items():
            if lines:
                title = f"<code>{stage}</code> {html.escape(_MEANING[stage])}, {len(lines)} lines"
                parts.append(page.section(title, page.listing(lines, stage, what=f"show({stage!r}).text")))
        sheet = page.style(name, page.linked(name, reached))
        return page.frame(name, sheet, "".join(parts), self.ok)


def diff(before: Stages, after: Stages, stage: str = "ttgir") -> Diff:
    """Return the difference between a stage of the first compilation and of the second."""
    __tracebackhide__ = True
    if not isinstance(before, Stages):
        raise TypeError(f"diff: before must be what stages(...) returns, not {type(before).__name__}")
    return before.diff(after, stage)


def _title(name: str, target: Target, case: Case, options: Mapping[str, int]) -> str:
    return f"{name} for {target.name}, {'  '.join([str(case), *(f'{n}={v}' for n, v in options.items())])}"


def _named(numbers: list[int]) -> str:
    return f"line{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"


def _count(number: int) -> str:
    return "1 line" if number == 1 else f"{number} lines"


def _difference(one: Stages, two: Stages) -> str:
    """Return two titles, the second without what is in both."""
    if one.title == two.title:
        return one.title
    (name, settings), (other, others) = (each.title.split(", ", 1) for each in (one, two))
    same = set(settings.split("  ")) & set(others.split("  "))
    shorter = (
        ", ".join([n] * (name != other) + [" ".join(p for p in s.split("  ") if p not in same)])
        for n, s in ((name, settings), (other, others))
    )
    first, second = (text.strip(", ") or "default" for text in shorter)
    return f"{first} → {second}"


def source_lines(kernel: JITFunction) -> dict[int, str]:
    """Return the lines of the kernel, and of its helpers in the same file or cell, by number."""
    file = kernel.fn.__code__.co_filename
    lines: dict[int, str] = {}
    for function in with_helpers(kernel):
        if function.fn.__code__.co_filename == file:
            first = function.starting_line_number
            lines |= {first + i: line.rstrip() for i, line in enumerate(function.raw_src)}
    return dict(sorted(lines.items()))


def _with(kernel: object, case: Case, numbers: Mapping[str, int]) -> Case:
    """Return the case with other numbers, or with numbers for constants that have a default."""
    known = set(case.numbers)
    if wrapped := unwrap(kernel):
        known |= {p.name for p in wrapped.kernel.params if p.has_default}
    if unknown := sorted(set(numbers) - known):
        raise ValueError(
            f"stages: {unknown[0]} is not a number of the case, which has {', '.join(case.numbers)}"
        )
    return case.but(**numbers)


def _check_last(until: str, target: Target) -> None:
    stages = NVIDIA if target.is_nvidia else AMD
    if until and until not in stages:
        raise ValueError(f"stages: until must be one of {', '.join(stages)}, but is {until!r}")


def _check_options(options: Mapping[str, int]) -> None:
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"stages: {name} must be an integer, but is {value!r}")
    warps = options.get("num_warps", 4)
    if not (0 < warps <= 32 and warps & (warps - 1) == 0):
        raise ValueError(f"stages: num_warps must be one of 1, 2, 4, 8, 16, 32, but is {warps}")
    if not 0 <= options.get("num_stages", 3) <= 16:
        raise ValueError(f"stages: num_stages must be from 0 to 16, but is {options['num_stages']}")
