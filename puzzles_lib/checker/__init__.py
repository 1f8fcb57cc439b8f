"""`check`: binds a kernel to a puzzle, tries it on every case, and says what is wrong.

The only module that knows all the others. Nothing that a learner types into a kernel raises here:
the answer is always a `Report`.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Mapping

import torch
from triton.runtime.jit import JITFunction, KernelInterface

from puzzles_lib import compiler, ledger
from puzzles_lib.checker.compare import Expected, compare, expect
from puzzles_lib.checker.report import CaseResult, Report, Verdict
from puzzles_lib.compiler.vetting import Refusal, vet
from puzzles_lib.inputs import make_inputs
from puzzles_lib.interpreter import HUGE, NAN, ZERO, InterpretedFunction, Poison, Run, Site, run
from puzzles_lib.puzzle import Argument, Case, Puzzle, Tiled

SECONDS_PER_CASE = 10.0


def check(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE) -> Report:
    """Try a ``@triton.jit`` kernel on every case of a puzzle.

    Runs on the CPU, guarded: whatever the kernel does, this returns. ``seconds`` limits the time of
    each run of a case (wall clock). A pass or a try is noted for `progress`.

    Raises TypeError where ``puzzle`` is not a `Puzzle`, ValueError where ``seconds`` is not positive,
    and KeyboardInterrupt when interrupted.
    """
    __tracebackhide__ = True
    if not isinstance(puzzle, Puzzle):
        raise TypeError(f"check(kernel, puzzle): puzzle is a {type(puzzle).__name__}, allowed is a Puzzle")
    if not seconds > 0:
        raise ValueError(f"check: seconds is {seconds!r}, allowed is any number above 0")
    report = None
    with contextlib.suppress(KeyboardInterrupt):
        report = examine(kernel, puzzle, seconds=seconds)
    if report is None:  # raised from here, so that a notebook shows two frames and not thirty
        raise KeyboardInterrupt("the check was interrupted") from None
    note = ledger.record(puzzle.name, report.ok)
    return dataclasses.replace(report, notes=(*report.notes, note)) if note else report


def examine(kernel: object, puzzle: Puzzle, *, seconds: float = SECONDS_PER_CASE) -> Report:
    """`check` without a trace in the learner's progress."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors are small: more threads only spin
    try:
        return _examine(kernel, puzzle, seconds)
    except Exception as error:  # a fault of ours must not be a page of traceback for a learner
        text = (
            f"the checker cannot read this kernel ({type(error).__name__}: {error}); try to write it plainly"
        )
        return Report(puzzle.name, verdict=Verdict("error", " ".join(text.split())[:250]))
    finally:
        torch.set_num_threads(threads)


def _examine(kernel: object, puzzle: Puzzle, seconds: float) -> Report:
    refused = _refuse(kernel, puzzle)
    if refused:
        return Report(puzzle.name, verdict=refused)
    kernel = _as_jit(kernel)
    results = []
    for case in puzzle.cases:
        bound = _bind(kernel, puzzle, case)
        refused = _compiler_verdict(compiler.front_end(kernel, bound))
        if refused:
            return Report(puzzle.name, verdict=refused)
        slow = any(r.verdict and r.verdict.kind == "time limit" for r in results)
        results.append(
            CaseResult(str(case), ran=False) if slow else _check_case(kernel, puzzle, case, bound, seconds)
        )
    return Report(puzzle.name, tuple(results))


def guarded(kernel: object, puzzle: Puzzle, case: Case, *, record: bool = True) -> Run | Report:
    """One guarded run of a kernel on a case; a `Report` where it cannot be run at all.

    With ``record``, accesses are kept and an out-of-bounds one does not end the run.
    """
    ready = prepared(kernel, puzzle, case)
    if isinstance(ready, Report):
        return ready
    kernel, bound = ready
    refused = _compiler_verdict(compiler.front_end(kernel, bound))
    if refused:
        return Report(puzzle.name, verdict=refused)
    return _run(kernel, puzzle, case, bound, record=record)


def outputs(
    kernel: object, puzzle: Puzzle, case: Case, inputs: Mapping[str, torch.Tensor], *, seconds: float
) -> dict[str, torch.Tensor] | Report:
    """A kernel's results on given inputs, by name; a `Report` where the run is not clean.

    Clean: what `check` asks of a run, but for the values, which are compared with nothing.
    """
    ready = prepared(kernel, puzzle, case)
    if isinstance(ready, Report):
        return ready
    kernel, bound = ready
    refused = _compiler_verdict(compiler.front_end(kernel, bound))
    if refused:
        return Report(puzzle.name, verdict=refused)

    def attempt(**options) -> Run:
        return _run(kernel, puzzle, case, bound, inputs=inputs, seconds=seconds, **options)

    ran = attempt()
    verdict = _misconduct(puzzle, case, ran)
    if verdict is None and ran.early_reads:
        verdict = _early_read(ran)
    if verdict is None and ran.holes:
        verdict = _uninitialised(attempt, ran, NAN, {})
    if verdict:
        return Report(puzzle.name, (CaseResult(str(case), verdict),))
    return {result.name: ran.outputs[result.name] for result in puzzle.results}


def prepared(kernel: object, puzzle: Puzzle, case: Case) -> tuple[JITFunction, dict[str, object]] | Report:
    """A kernel that has been vetted, and a value for each of its parameters; or why there is none.

    Tensors are empty stand-ins of the right dtype.
    """
    refused = _refuse(kernel, puzzle)
    if refused:
        return Report(puzzle.name, verdict=refused)
    kernel = _as_jit(kernel)
    return kernel, _bind(kernel, puzzle, case)


# ---- binding


def _as_jit(kernel: object) -> JITFunction:
    """The kernel itself, also where TRITON_INTERPRET has made something else of it."""
    return JITFunction(kernel.fn) if isinstance(kernel, InterpretedFunction) else kernel


def _refuse(kernel: object, puzzle: Puzzle) -> Verdict | None:
    """Why this object cannot be checked at all."""
    if compiler.interpret_was_on():
        text = "TRITON_INTERPRET was set when Triton was imported: unset it and restart the notebook's kernel"
        return Verdict("signature", text, diagnosis="the course interprets kernels by itself")
    if not isinstance(kernel, JITFunction | InterpretedFunction):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        if isinstance(kernel, KernelInterface):
            text = f"{type(kernel).__name__} wraps the kernel: hand over the @triton.jit function itself"
        elif callable(kernel):
            text = f"{name} is a Python function: put @triton.jit on the line above its def"
        else:
            text = f"check(kernel, puzzle): kernel is {kernel!r:.60}, allowed is a @triton.jit function"
        return Verdict("signature", text)
    kernel = _as_jit(kernel)
    offers = puzzle.offers(puzzle.cases[0])
    for parameter in kernel.params:
        if parameter.name in offers:
            if parameter.is_constexpr and isinstance(offers[parameter.name], Argument | Tiled):
                what = "pointer" if isinstance(offers[parameter.name], Argument) else "descriptor"
                text = f"{parameter.name} is a {what}, it cannot be a tl.constexpr"
                return Verdict("signature", text)
        elif not parameter.has_default:
            names = [n for n in offers if not n.startswith("stride_")]
            text = f"the kernel takes {parameter.name!r}, which {puzzle.name} does not offer"
            return Verdict(
                "signature", text, diagnosis=f"it offers {', '.join(names)}, and strides (stride_x0)"
            )
    return _compiler_verdict(vet(kernel))


def _compiler_verdict(refusal: Refusal | None) -> Verdict | None:
    if refusal is None:
        return None
    return Verdict("compiler", f"the compiler refuses this kernel: {refusal.message}", refusal.site)


def _bind(kernel: JITFunction, puzzle: Puzzle, case: Case) -> dict[str, object]:
    """A value for each of the kernel's parameters; tensors are empty stand-ins of the right dtype."""
    offers = puzzle.offers(case)
    bound = {}
    for parameter in kernel.params:
        value = offers[parameter.name] if parameter.name in offers else parameter.default
        if isinstance(value, Argument):
            value = torch.empty(0, dtype=value.dtype)
        elif isinstance(value, Tiled):
            value = value.descriptor(case.numbers, torch.empty(0, dtype=value.argument.dtype))
        bound[parameter.name] = value
    return bound


# ---- running


def _run(
    kernel: JITFunction,
    puzzle: Puzzle,
    case: Case,
    bound: Mapping[str, object],
    *,
    inputs: Mapping[str, torch.Tensor] | None = None,
    poison: Poison = NAN,
    output_poison: Poison | None = None,
    **options,
) -> Run:
    """A guarded run on fresh tensors: copies of the inputs, poisoned outputs."""
    inputs = make_inputs(puzzle, case) if inputs is None else inputs
    arguments = dict(bound)
    for name, tensor in inputs.items():
        if f"{name}_ptr" in arguments:
            arguments[f"{name}_ptr"] = tensor.clone()
        if f"{name}_desc" in arguments:
            arguments[f"{name}_desc"] = dataclasses.replace(arguments[f"{name}_desc"], base=tensor.clone())
    for result in puzzle.results:
        if f"{result.name}_ptr" in arguments:
            arguments[f"{result.name}_ptr"] = _poisoned(result, case, output_poison or poison)
    outputs = {f"{result.name}_ptr" for result in puzzle.results}
    return run(kernel, arguments, puzzle.programs(case), outputs, poison=poison, **options)


def _poisoned(result: Argument, case: Case, poison: Poison) -> torch.Tensor:
    """An output full of what nobody should take for a result."""
    tensor = torch.empty(result.shape(case.numbers), dtype=result.dtype)
    if result.dtype.is_floating_point:
        return tensor.fill_(float("nan"))
    if result.dtype == torch.bool:
        return tensor.fill_(poison is NAN)
    byte = 0xA5 if poison is NAN else 0x5A
    return tensor.view(torch.uint8).fill_(byte).view(result.dtype) if tensor.numel() else tensor


def _check_case(
    kernel: JITFunction, puzzle: Puzzle, case: Case, bound: Mapping[str, object], seconds: float
) -> CaseResult:
    """Run a case forwards, and backwards where that may tell; name the most basic fault."""
    inputs = make_inputs(puzzle, case)
    expected = expect(puzzle, case, inputs)

    def attempt(**options) -> Run:
        return _run(kernel, puzzle, case, bound, inputs=inputs, seconds=seconds, **options)

    forwards = attempt()
    verdict = _judge(puzzle, case, inputs, expected, forwards)
    if verdict and forwards.holes and verdict.kind not in ("time limit", "memory limit"):
        verdict = _uninitialised(attempt, forwards, NAN, {}) or verdict
    if verdict is None and (forwards.programs > 1 or forwards.holes):
        backwards = attempt(reverse=True, poison=HUGE, quiet=True)
        again = _judge(puzzle, case, inputs, expected, backwards)
        if again and backwards.holes:
            verdict = _uninitialised(attempt, backwards, HUGE, {"reverse": True})
        if again and not verdict:
            verdict = again if again.kind in ("race", "time limit") else _depends_on_order(again)
    moved = forwards.bytes_moved
    return CaseResult(
        str(case), verdict, programs=forwards.programs, bytes_moved=moved, bytes_least=_least(puzzle, case)
    )


def _least(puzzle: Puzzle, case: Case) -> int:
    """Bytes that any kernel must move: each input once, each output once."""
    total = 0
    for argument in puzzle.inputs + puzzle.results:
        total += torch.Size(argument.shape(case.numbers)).numel() * argument.dtype.itemsize
    return total


def _judge(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
) -> Verdict | None:
    """The most basic fault of a run."""
    verdict = _misconduct(puzzle, case, ran)
    if verdict:
        return verdict
    for result in puzzle.results:
        mismatch = compare(expected[result.name], ran.outputs[result.name], puzzle, case, inputs)
        if mismatch and ran.early_reads:
            return _early_read(ran)
        if mismatch:
            return Verdict("values", mismatch.message, diagnosis=mismatch.diagnosis)
    for name, most in (puzzle.most_loads or {}).items():
        loads, allowed = ran.loads.get(name, 0), most(case)
        if loads > allowed:
            text = f"too many loads of {name}_ptr: {loads} elements, {allowed} are enough"
            return Verdict(
                "loads", text, diagnosis=f"keep what you need of {name} instead of reading it again"
            )
    return None


def _misconduct(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """The most basic fault of a run that shows without looking at any value."""
    if ran.stop:
        return Verdict(ran.stop.kind, ran.stop.message, ran.stop.site)
    for result in puzzle.results:
        verdict = _never_written(result, case, ran)
        if verdict:
            return verdict
    if ran.conflict:
        return _race(puzzle, case, ran)
    for name, site in ran.changed.items():
        return Verdict("input changed", f"{name} was changed; a kernel may only write its outputs", site)
    return None


def _early_read(ran: Run) -> Verdict:
    name, site = next(iter(ran.early_reads.items()))
    text = f"{name}_ptr is read before anything is stored there: a GPU finds garbage"
    return Verdict("uninitialised", text, site)


def _never_written(result: Argument, case: Case, ran: Run) -> Verdict | None:
    shape = result.shape(case.numbers)
    written = ran.written.get(result.name)
    if written is None:
        text = f"never written: the kernel does not take {result.name}_ptr, where the result belongs"
        return Verdict("never written", text)
    missing = written.size - int(written.sum())
    if not missing:
        return None
    if missing == written.size:
        all_of_it = f"all {missing} elements" if missing > 1 else "the one element"
        text = f"never written: {all_of_it} of {result.name}_ptr; the kernel stores nothing there"
        return Verdict("never written", text)
    place = _index(int(written.argmin()), shape)
    text = f"never written: {missing} of {written.size} elements of {result.name}_ptr"
    return Verdict("never written", f"{text}, the first is {result.name}[{place}]")


def _race(puzzle: Puzzle, case: Case, ran: Run) -> Verdict:
    conflict = ran.conflict
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    element = f"{conflict.argument}[{_index(conflict.element, shape)}]"
    first, second = conflict.programs
    if conflict.kind == "read":
        text = f"race: program {second} reads {element}, which program {first} wrote; nothing orders the two"
    elif first == second:
        text = f"race: two lanes of one store in program {first} write different values to {element}"
    else:
        text = f"race: two programs, {first} and {second}, write different values to {element}"
    return Verdict("race", text, conflict.site)


def _depends_on_order(verdict: Verdict) -> Verdict:
    text = f"race: with the programs run in reverse order the result differs ({verdict.message})"
    return Verdict("race", text, verdict.site)


def _uninitialised(
    attempt: Callable[..., Run], ran: Run, poison: Poison, options: Mapping[str, object]
) -> Verdict | None:
    """Do the results depend on what masked-off lanes hold? Then say which load leaves them open."""
    clean = attempt(poison=ZERO, output_poison=poison, quiet=True, **options)
    if _same(ran, clean):
        return None
    site = next(iter(ran.holes))
    for each in ran.holes:
        if not _same(attempt(poison=poison, poison_only=each, quiet=True, **options), clean):
            site = each
            break
    return _hole_verdict(ran.holes[site], site)


def _hole_verdict(name: str, site: Site) -> Verdict:
    if "boundary_check" in site.source:
        left, cure = "a boundary_check but no padding_option", "padding_option="
    else:
        left, cure = "a mask but no other=", "other="
    text = f"uninitialised lanes of {name}_ptr are used: the load has {left}"
    return Verdict(
        "uninitialised", text, site, f"on a GPU these lanes hold garbage; give them a value with {cure}"
    )


def _same(one: Run, two: Run) -> bool:
    """Whether two runs ended alike, bit for bit."""
    if (one.stop is None) != (two.stop is None) or (one.stop and one.stop.message != two.stop.message):
        return False
    return all(
        torch.equal(
            one.outputs[n].contiguous().view(torch.uint8), two.outputs[n].contiguous().view(torch.uint8)
        )
        for n in one.outputs
        if one.outputs[n].numel()
    )


def _index(flat: int, shape: tuple[int, ...]) -> str:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return ", ".join(map(str, reversed(index)))
