"""Find out what the real compiler would refuse, on a machine without a GPU.

Triton's interpreter runs a kernel as Python, and so accepts much that no GPU would run: a block size that is
only known at run time, or a loop variable that changes its type. Triton's own front end refuses these when it
translates the kernel for a real target. The front end is C++, and ends its process if it meets something
unexpected, so it runs in a `child`. Code that it would execute itself must have been refused before
(`vetting`).
"""

import functools
import re
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import triton
import triton.language as tl
from triton.compiler.compiler import ASTSource
from triton.runtime.jit import JITFunction, KernelParam, create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from puzzles_lib import versions
from puzzles_lib.compiler.child import Child, Ended, closed_after
from puzzles_lib.dtypes import of_integer, of_torch
from puzzles_lib.parameters import leaves, like
from puzzles_lib.source import Call, Refusal, Site, calls_of, with_helpers
from puzzles_lib.translator import wording
from puzzles_lib.translator.forked import Limits
from puzzles_lib.translator.ir import Module, read_module
from puzzles_lib.translator.portable import packed
from puzzles_lib.translator.targets import Target, find_target
from puzzles_lib.translator.translation import RUNNING, Work, backend_of, site

DEFAULT = find_target("sm_90")
FRONT_END_SECONDS = 10.0  # of CPU time, for each translation
FRONT_END_MEMORY = 1 << 30  # bytes that may be mapped for it on top of what the process has
KEPT = 500  # opinions, from one check to the next


@dataclass(frozen=True)
class Translation:
    """A kernel as Triton's front end has translated it.

    ir: MLIR text before any pass. Its locations are lines of the kernel's file, less ``above``, so the text
        is the same wherever in a file the kernel is.
    options: what the backend compiles with, such as ``num_warps``.
    """

    kernel: JITFunction
    target: Target
    ir: str
    options: Mapping[str, object]
    above: int = 0


@dataclass(frozen=True)
class Opinion:
    """The front end's answer for a kernel with some arguments.

    refusal: why it can't be translated, or None. notes: what it accepts with a warning. endless: whether it
        took too long, as other launches then would.
    large: the line that needs most of the shared memory, if a program may ask for too much (see
        `shared_memory`). ir: the text that is run. said: what `tl.static_print` prints. functions: those of a
        recorded kernel.
    """

    refusal: Refusal | None = None
    notes: tuple[str, ...] = ()
    ir: str = ""
    endless: bool = False
    large: Site | None = None
    said: tuple[str, ...] = ()
    functions: tuple[Mapping[str, object], ...] = ()


def front_end(kernel: JITFunction, arguments: Mapping[str, object]) -> Refusal | None:
    """Translate the kernel to Triton IR for a real target, without a GPU; return why if it can't be.

    arguments: a value for each parameter by name, as for `puzzles_lib.runner.run`.
    """

    def first(opinions: Opinions) -> Refusal | None:
        return opinions.first.refusal

    return closed_after(Opinions(kernel, [arguments]), first)


@dataclass(frozen=True)
class Program:
    """A kernel as it is run: the front end's translation for one launch.

    takes: the parameters of the IR's kernel, in order; the others became constants. said: what
        `tl.static_print` prints. functions: what `marks` say of a recorded kernel's functions. calls: those
        of the learner's functions, by file.
    """

    module: Module
    takes: tuple[str, ...]
    said: tuple[str, ...] = ()
    functions: tuple[Mapping[str, object], ...] = ()
    calls: Mapping[str, Sequence[Call]] = field(default_factory=dict)


_read_module = functools.lru_cache(maxsize=64)(read_module)


def program_of(kernel: JITFunction, arguments: Mapping[str, object], opinion: "Opinion") -> Program:
    """Return the program for a kernel that the front end accepts with these arguments."""
    signature, _ = _signature(kernel, arguments, True)
    takes = tuple(name for name, kind in leaves(signature).items() if kind != "constexpr")
    return Program(_read_module(opinion.ir), takes, opinion.said, opinion.functions, calls_of(kernel))


def program(
    kernel: JITFunction, arguments: Mapping[str, object], *, record: bool = False
) -> Program | Refusal:
    """Translate a kernel for one launch, so that it can be run.

    arguments: a value for each parameter by name. record: whether to add what a recording needs.
    """

    def first(opinions: Opinions) -> Program | Refusal:
        opinion = opinions.first
        return opinion.refusal or program_of(kernel, arguments, opinion)

    return closed_after(Opinions(kernel, [], [arguments], wanted="record" if record else "run"), first)


class Opinions:
    """The front end's opinions on a kernel with the arguments of several cases, each made when asked for.

        opinions.begin(0)
        ...  # meanwhile it is made
        opinions[0]

    They are made one after another in one child, so this must be closed (`closed_after`). A launch makes a
    constant of a size of 1. If the first case has such a size, it is translated twice, because messages about
    it should hold for the kernel in general. The other cases, and the first of ``drawn``, are only translated
    as they are launched.
    num_stages: 0 for the target's own.
    """

    def __init__(
        self,
        kernel: JITFunction,
        cases: Sequence[Mapping[str, object]],
        drawn: Sequence[Mapping[str, object]] = (),
        *,
        wanted: str = "run",
        num_stages: int = 0,
    ):
        sources: list[ASTSource] = []
        places: dict[str, int] = {}
        self._wanted: list[list[int]] = []  # of each case, which of the sources
        for number, arguments in enumerate((*cases, *drawn)):
            self._wanted.append([])
            for ones in (True,) if number or not cases else (False, True):
                signature, constants = _signature(kernel, arguments, ones)
                key = repr((signature, [(n, type(v), v) for n, v in constants.items()]))
                if key not in places:
                    places[key] = len(sources)
                    sources.append(ASTSource(kernel, signature, constants))
                self._wanted[-1].append(places[key])
        # Overflow is of use in a debug build alone; without debug there is no tl.device_assert.
        options: dict[str, int] = {"sanitize_overflow": False, "debug": True}
        options |= {"num_stages": num_stages} if num_stages else {}
        self._translator = _Translator(_work(kernel, sources, DEFAULT, options, wanted))

    def begin(self, number: int) -> None:
        """Start on a case's opinion, so that it is ready when it is asked for."""
        for source in self._wanted[number]:
            self._translator.begin(source)

    @property
    def first(self) -> Opinion:
        """Return the opinion of the first case, which is always tried."""
        opinion = self[0]
        assert opinion is not None
        return opinion

    def __getitem__(self, number: int) -> Opinion | None:
        """Return a case's opinion; None if the first case was refused, or some case took too long."""
        every = [self._translator.opinion(source) for source in self._wanted[number]]
        tried = [opinion for opinion in every if opinion]
        refused = [opinion for opinion in tried if opinion.refusal]
        if refused or len(tried) < len(every):
            return refused[0] if refused else None
        first, launched = tried[0], tried[-1]
        return replace(first, ir=launched.ir, said=launched.said, functions=launched.functions)

    def close(self) -> None:
        self._translator.close()


def _signature(
    kernel: JITFunction, arguments: Mapping[str, object], ones: bool
) -> tuple[dict[str, Any], dict[Any, object]]:
    """Return Triton's types of the arguments, and those that are constants. ones: also arguments of 1."""
    constants: dict[str | tuple[int, ...], object] = {}

    def kind(parameter: KernelParam, value: Any, place: tuple[int, ...]) -> Any:
        one = ones and type(value) is int and value == 1
        one = one and not (parameter.do_not_specialize or parameter.annotation_type)
        if parameter.is_constexpr or value is None or one:
            constants[place if len(place) > 1 else parameter.name] = value
            return "constexpr"
        if isinstance(value, tuple):
            return like(value, [kind(parameter, part, (*place, at)) for at, part in enumerate(value)])
        if isinstance(value, str | tl.dtype):
            constants[place if len(place) > 1 else parameter.name] = value
            return "constexpr"
        if isinstance(value, torch.Tensor):
            return f"*{of_torch(value.dtype).signature}"
        if isinstance(value, TensorDescriptor):
            return f"tensordesc<{of_torch(value.base.dtype).signature}{list(value.block_shape)}>"
        if isinstance(value, bool):
            return "i1"
        if isinstance(value, float):
            return "fp32"
        return of_integer(value, parameter.annotation_type).signature

    signature = {p.name: kind(p, arguments[p.name], (place,)) for place, p in enumerate(kernel.params)}
    return signature, constants


def translate(
    kernel: JITFunction, arguments: Mapping[str, object], target: Target, **options: int
) -> Translation | Refusal:
    """Translate the kernel for a target, as a launch with these arguments would.

    So a size of 1 becomes a constant, and pointers and sizes that 16 divides are known to be divisible.
    options: ``num_warps``, ``num_stages``; the target's own if left out.
    """
    found = _as_launched(kernel, arguments, target, options, "source")
    if isinstance(found, Refusal):
        return found
    above = min((int(line) for _, line, _ in _LOCATION.findall(found)), default=1) - 1
    return Translation(kernel, target, _counted_from(above, found), options, above)


def gpu_dialect(
    kernel: JITFunction,
    arguments: Mapping[str, object],
    target: Target,
    known: dict[str, str | Refusal] | None = None,
    **options: int,
) -> str | Refusal:
    """Translate as `translate` does, and on to TTGIR, Triton's GPU dialect with a layout for each block.

    known: results of this function for other launches of the same kernel; it is added to.
    """
    return _as_launched(kernel, arguments, target, options, "ttgir", known)


def shared_memory(
    kernel: JITFunction,
    arguments: Mapping[str, object],
    target: Target,
    known: dict[str, str | Refusal] | None = None,
    **options: int,
) -> int | None:
    """Return the bytes of shared memory that a program asks for; None if that is not known.

    target: an NVIDIA GPU. known: as for `gpu_dialect`.
    """
    found = _as_launched(kernel, arguments, target, options, "shared", known)
    return None if isinstance(found, Refusal) else int(found)


def _as_launched(
    kernel: JITFunction,
    arguments: Mapping[str, object],
    target: Target,
    options: Mapping[str, int],
    wanted: str,
    known: dict[str, str | Refusal] | None = None,
) -> str | Refusal:
    backend = backend_of(target)
    told = _specialised(kernel, arguments, backend)
    if isinstance(told, Refusal):
        return told
    signature, constants, attributes = told
    key = repr((target.name, options, wanted, signature, constants, attributes))
    known = {} if known is None else known
    if key not in known:
        source = ASTSource(kernel, signature, constants, attributes)
        found = closed_after(_Translator(_work(kernel, [source], target, options, wanted)), _the_first)
        known[key] = found.refusal or _with_own_lines(found.ir, kernel)
    return known[key]


def _specialised(
    kernel: JITFunction, arguments: Mapping[str, object], backend: Any
) -> tuple[dict[str, str], dict, dict] | Refusal:
    """Return the arguments as a launch gives them to the compiler: types, constants, facts about the rest."""
    try:
        bound, specialization, _ = create_function_from_signature(kernel.signature, kernel.params, backend)(
            **arguments
        )
        # Its options are read where nothing steers them: in the child.
        asked = types.SimpleNamespace(parse_options=dict, parse_attr=backend.parse_attr)
        _, signature, constants, attributes = kernel._pack_args(asked, {}, bound, specialization, {})
    except (TypeError, OverflowError) as error:
        return Refusal(wording.one_line(str(error)))
    return signature, constants, attributes


def specialised(
    kernel: JITFunction, arguments: Mapping[str, object], target: Target
) -> dict[str, str] | Refusal:
    """Return what a launch compiles in for each argument: ``"constexpr 1"``, ``"i32, divisible by 16"``.

    The keys are parameters. Launches for which the result is the same share one compiled kernel.
    """
    told = _specialised(kernel, arguments, backend_of(target))
    if isinstance(told, Refusal):
        return told
    signature, constants, attributes = told
    found = {}
    for place, name in enumerate(signature):
        words = f"{signature[name]} {constants[place,]!r}" if (place,) in constants else signature[name]
        known = "".join(f", divisible by {number}" for _, number in attributes.get((place,), ()))
        found[name] = words + known
    return found


def _the_first(translator: "_Translator") -> Opinion:
    opinion = translator.opinion(0)
    assert opinion is not None  # the first is always tried
    return opinion


def _work(
    kernel: JITFunction, sources: Sequence[ASTSource], target: Target, options: Mapping, wanted: str = ""
) -> Work:
    files = list(dict.fromkeys(f.fn.__code__.co_filename for f in with_helpers(kernel)))
    return Work(kernel, sources, target, options, wanted, files)


_Key = tuple[bytes, bytes]
_kept: dict[_Key, Opinion] = {}


def forget() -> None:
    """Forget all opinions, so that the front end is asked again."""
    _kept.clear()


class _Translator:
    """Has sources of one kernel translated in a child, each when it is needed. To be closed.

    A child's answer is kept under the bytes that the child was made from, because nothing else in a notebook
    can change it. An answer of a child that was forked from this process is not kept, because that child has
    more. A refusal isn't kept either: it may be due to the machine (time, memory, depth), or quote lines as
    they are now.
    """

    def __init__(self, work: Work):
        self._work = work
        self._limits = Limits(FRONT_END_SECONDS, FRONT_END_MEMORY)
        kernel = self._packed_kernel()
        self._keys = [self._key(number, kernel) for number in range(len(work.sources))]
        self._found: dict[int, Opinion] = {}
        self._asked: list[int] = []  # and not fetched
        self._hung: set[int] = set()  # once
        self._child = Child(work.prepare, self._limits)

    def _packed_kernel(self) -> bytes | None:
        """What all opinions depend on; None if it cannot be pickled, or the text would be large."""
        if self._work.wanted not in ("", *RUNNING):
            return None
        return packed((replace(self._work, sources=[]), self._limits))

    def _key(self, number: int, kernel: bytes | None) -> _Key | None:
        """All that an opinion depends on. kernel: as packed; None if it cannot be pickled."""
        source = self._work.sources[number]
        launch = packed((source.signature, source.constants, source.attrs)) if kernel else None
        return (kernel, launch) if kernel and launch else None

    def _keep(self, number: int, opinion: Opinion) -> None:
        """Keep an opinion, unless what the kernel names may have changed since its child was forked."""
        key = self._keys[number]
        if key is None or opinion.refusal or self._child.by is None:
            return
        if self._key(number, self._packed_kernel()) != key:
            return
        if len(_kept) >= KEPT:
            _kept.clear()
        _kept[key] = opinion

    def _over(self) -> bool:
        first = self._found.get(0)
        return bool(first and first.refusal) or any(opinion.endless for opinion in self._found.values())

    def begin(self, number: int) -> None:
        """Start on a translation, unless it is there, or nothing is tried anymore."""
        if number not in self._found and number not in self._asked and not self._over():
            key = self._keys[number]
            if key is not None and (known := _kept.get(key)):
                self._found[number] = known
                return
            try:
                self._child.ask(number)
            except OSError as error:
                reason = (
                    f"the compiler needs a separate process, which could not be started: {error.strerror}"
                )
                self._found[number] = Opinion(Refusal(reason), endless=True)
            else:
                self._asked.append(number)

    def opinion(self, number: int) -> Opinion | None:
        """Return the opinion on that source; None if nothing is tried anymore."""
        self.begin(number)
        while number in self._asked and not self._over():
            self._fetch()
        return self._found.get(number)

    def _fetch(self) -> None:
        """Fetch the opinion that was asked for first. If the child ends, ask another one for the others."""
        number, *others = self._asked
        try:
            self._found[number] = opinion = _read(self._child.answer())
            self._asked = others
            self._keep(number, opinion)
        except Ended as ended:
            if ended.cause == "hung" and number not in self._hung:
                self._hung.add(number)
                others = self._asked
            else:
                kind = "error" if ended.cause == "error" else "compiler"
                refusal = Refusal(_words_for(ended, self._work.kernel), self._site(), kind=kind)
                self._found[number] = Opinion(refusal, endless=ended.cause in ("time", "hung"))
            self._asked = []
            for each in others:
                self.begin(each)

    def _site(self) -> Site | None:
        number, line = self._child.noted
        return site(self._work.files, number, line) if number else None

    def close(self) -> None:
        self._child.close()


def _words_for(ended: Ended, kernel: JITFunction) -> str:
    """Return a message for a front end that gave no answer."""
    if ended.cause == "hung":
        return (
            "the compiler does not answer: try again, and restart the notebook's kernel if that doesn't help"
        )
    newer = versions.too_new(triton.__version__)
    if ended.cause == "error":
        return versions.too_old(triton.__version__) or (
            f"the checker failed on this line ({ended.words}). "
            f"This is a bug in the course, not in your kernel{newer and f': {newer}'}"
        )
    if ended.cause == "crash":
        return (
            "Triton's compiler crashed on this line. "
            f"This is a bug in Triton or in this course, not in your kernel{newer and f': {newer}'}."
        )
    ranges = any("static_range" in function.src for function in with_helpers(kernel))
    why = ": is a tl.static_range very long?" if ranges else ""
    return f"compiling takes more than {FRONT_END_SECONDS:g} s{why}"


def _read(answer: Mapping) -> Opinion:
    """Return the opinion that a child has sent."""
    refusal = answer["refusal"]
    if refusal:
        site = refusal["site"]
        refusal = Refusal(**{**refusal, "site": Site(**site) if site else None})
    large = answer["large"] and Site(**answer["large"])
    return Opinion(
        refusal,
        tuple(answer["notes"]),
        answer["ir"],
        large=large,
        said=tuple(answer["said"]),
        functions=tuple(answer["functions"]),
    )


_LOCATION = re.compile(r'loc\("((?:[^"\\]|\\.)+)":(\d+):(\d+)\)')


def _with_own_lines(text: str, kernel: JITFunction) -> str:
    """Return the IR with locations in the kernel's own file alone, under the kernel's name.

    A cell's own name differs from one session to the next, and a path from one machine to the next. Locations
    in other files become unknown. Then every stage gives code inlined from them the line of the call.
    """
    own = kernel.fn.__code__.co_filename

    def located(match: re.Match) -> str:
        return f'loc("{kernel.__name__}.py":{match[2]}:{match[3]})' if match[1] == own else "loc(unknown)"

    return _LOCATION.sub(located, text)


def _counted_from(above: int, text: str) -> str:
    """Return the IR with ``above`` lines less in each location."""
    return _LOCATION.sub(lambda match: f'loc("{match[1]}":{int(match[2]) - above}:{match[3]})', text)


def interpret_was_on() -> bool:
    """Return whether TRITON_INTERPRET was set when Triton was imported. Then Triton can't compile anymore."""
    return not isinstance(tl.zeros, JITFunction)
