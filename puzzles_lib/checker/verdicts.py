"""From a run to a verdict: what is wrong with it, the most basic fault first, in words."""

import ast
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from puzzles_lib.checker.compare import PER_ROW, compare
from puzzles_lib.checker.expected import Expected, evaluate
from puzzles_lib.checker.report import CaseResult, Verdict
from puzzles_lib.compiler import Target
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import (
    Conflict,
    Fused,
    Harm,
    Program,
    Promise,
    Run,
    Source,
    Touch,
    WithinProgram,
    asks_again,
)
from puzzles_lib.source import Refusal, Site
from puzzles_lib.stubs import HOLE

STILL_OPEN = Verdict("open", "still open: your lines are missing", diagnosis=f"write them under `{HOLE}`")
STILL_BROKEN = Verdict("open", "still open: the kernel is broken as it was handed out")

LARGEST_BLOCK = 4096  # of an axis, to try the whole of it at once
_REFUSED = " refuses this kernel: "


def of_refusal(refusal: Refusal) -> Verdict:
    """Why the kernel is not run at all."""
    if refusal.kind == "signature":
        return Verdict("signature", refusal.message, refusal.site, refusal.advice)
    text = f"{refusal.by}{_REFUSED}{refusal.message}"
    return Verdict(refusal.kind, text, refusal.site, refusal.advice)


def of_refusal_in_a_case(refusal: Refusal) -> Verdict:
    """Why a kernel that compiles for the cases before does not for this one."""
    advice = refusal.advice
    if "shapes that do not fit" in refusal.message and not advice:
        advice = "with blocks of equal sizes, as in the cases before, this goes unnoticed"
    return of_refusal(replace(refusal, advice=advice))


def out_of_time(seconds: float) -> Verdict:
    """All runs together take too long, though each of them ends."""
    text = f"time limit: the runs of this check have taken {seconds:g} s of CPU time in all"
    return Verdict("time limit", text, diagnosis="check(kernel, PUZZLE, seconds=...) allows more")


def with_later_refusal(results: Sequence[CaseResult]) -> list[CaseResult]:
    """The results, a first fault explained by what the compiler says of a later case that it refuses."""
    told = list(results)
    wrong = [(n, result.verdict) for n, result in enumerate(told) if result.verdict]
    refused = [(n, verdict) for n, verdict in wrong if verdict.kind == "compiler"]
    if refused and wrong[0][0] < refused[0][0]:
        (first, verdict), (later, refusal) = wrong[0], refused[0]
        words = f"with {told[later].label} it does not compile: {refusal.message.partition(_REFUSED)[2]}"
        told[first] = replace(told[first], verdict=replace(verdict, diagnosis=words))
    return told


def judge(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
) -> Verdict | None:
    """The most basic fault of a run."""
    verdict = misconduct(puzzle, case, ran)
    if verdict:
        return verdict
    dots = ran.arithmetic.dots or bool(ran.arithmetic.in_tf32)
    for result in puzzle.results:
        mismatch = compare(expected[result.name], ran.outputs[result.name], puzzle, case, inputs, dots)
        if mismatch and result.name not in ran.written:
            return _not_taken(result)
        if mismatch and ran.not_associative:
            text = "the scan's combine function is not associative: f(f(a, b), c) is not f(a, f(b, c)) there"
            return Verdict("values", mismatch.message, ran.not_associative, text)
        if mismatch:
            return Verdict("values", mismatch.message, diagnosis=mismatch.diagnosis)
    for name in inputs:
        if not ran.loads.get(name) and (moved := _moves_with(name, puzzle, case, inputs, expected)):
            text = f"{name}_ptr is never loaded, and {moved} depends on what it holds"
            return Verdict(
                "loads", text, diagnosis="are numbers typed in? They are right for these inputs only"
            )
    for name, most in (puzzle.most_loads or {}).items():
        loads, allowed = ran.loads.get(name, 0), most(case)
        if loads and not allowed:
            text = f"{name}_ptr is loaded, {loads} elements of it, and no result depends on them"
            return Verdict("loads", text)
        if loads > allowed:
            text = f"too many loads of {name}_ptr: {loads} elements, {allowed} are enough"
            return Verdict(
                "loads", text, diagnosis=f"keep what you need of {name} instead of reading it again"
            )
    return None


def _moves_with(
    name: str,
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
) -> str:
    """The result that would be another one if this input were; "" where there is none."""
    other = make_inputs(puzzle, case.salted(f"{case.salt}, another {name}"))[name]
    moved = evaluate(puzzle, case, {**inputs, name: other})
    for result in puzzle.results:
        value = moved[result.name]
        value = value if value.is_floating_point() else value.to(result.dtype)
        if not expected[result.name].accepts(value).all():
            return result.name
    return ""


def misconduct(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """The most basic fault of a run that shows without looking at any value."""
    if ran.stop and ran.stop.kind != "uninitialised":
        return Verdict(ran.stop.kind, ran.stop.message, ran.stop.site, ran.stop.advice)
    if ran.undefined and ran.undefined.kind != "early":
        return _uninitialised(ran.undefined)
    for result in puzzle.results:
        verdict = _never_written(result, case, ran)
        if verdict:
            return verdict
    if ran.conflict:
        return _race(puzzle, case, ran.conflict)
    for name, site in ran.changed.items():
        return Verdict("input changed", f"{name} was changed; a kernel may only write its outputs", site)
    return _uninitialised(ran.undefined) if ran.undefined else None


def depends_on_order(verdict: Verdict) -> Verdict:
    """A fault that shows only when the programs run in reverse order."""
    text = f"race: with the programs run in reverse order the result differs ({verdict.message})"
    if verdict.kind == "deadlock":
        waits = verdict.message.removeprefix("deadlock: ")
        text = f"race: with the programs run in reverse order {waits}: who begins first is not known"
    return Verdict("race", text, verdict.site, verdict.diagnosis if verdict.kind == "deadlock" else "")


def depends_on_addresses(verdict: Verdict) -> Verdict:
    """A fault that shows only where the tensors lie elsewhere in memory."""
    text = f"it depends on an address: with the tensors elsewhere in memory, {verdict.message}"
    advice = "where a tensor lies is the allocator's choice: decide by offsets and sizes"
    return Verdict(verdict.kind, text, verdict.site, advice)


def other_bits(puzzle: Puzzle, case: Case, forwards: Run, reverse: Run) -> Verdict | None:
    """Results that are right in both orders of the programs, and not the same."""
    for result in puzzle.results:
        one, other = (ran.outputs[result.name] for ran in (forwards, reverse))
        differs = (one != other) & ~(one.isnan() & other.isnan())
        if differs.any():
            at = int(differs.flatten().int().argmax())
            place = f"{result.name}[{_index(at, result.shape(case.numbers))}]"
            values = f"{one.flatten()[at].item():.9g} and {other.flatten()[at].item():.9g}"
            text = f"race: with the programs run in reverse order {place} has other bits: {values}"
            cure = (
                "a sum must be made in one order, whoever comes first: let nobody add to what others add to"
            )
            return Verdict("race", text, diagnosis=cure)
    return None


def unlocked(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """A store while no lock is held, which another program may make at the same time."""
    if (store := ran.unlocked) is None:
        return None
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == store.argument)
    place, held = f"{store.argument}[{_index(store.element, shape)}]", " and ".join(puzzle.locks)
    text = f"race: program {store.program} stores to {place}, and the {held} is not held: others may as well"
    return Verdict("race", text, store.site, f"who stores must have made the {held} a 1, from 0")


def locked_out(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """A run with every lock held by another program, which must wait; atomics need no lock."""
    for access in ran.accesses:
        if access.kind == "store" and access.argument not in puzzle.locks and access.mask.any():
            shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == access.argument)
            place = f"{access.argument}[{_index(int(access.elements[access.mask][0]), shape)}]"
            held = " and ".join(puzzle.locks)
            text = f"race: program {access.program} stores to {place} while another one holds the {held}"
            return Verdict("race", text, access.site, _must_wait(held))
    return None


def gave_up(puzzle: Puzzle, case: Case, held: Run, free: Run) -> Verdict | None:
    """Two runs of one program, with every lock held by another and with none: it ends without its part."""
    if held.stop:
        return None
    locks = " and ".join(puzzle.locks)
    for result in puzzle.results:
        got, want = (ran.outputs[result.name].flatten() for ran in (held, free))
        lacks = (got != want) & ~(got.isnan() & want.isnan())
        if result.name not in puzzle.locks and lacks.any():
            place = f"{result.name}[{_index(int(lacks.int().argmax()), result.shape(case.numbers))}]"
            text = f"race: program {held.program} gives up while another one holds the {locks}: "
            asked = [access.site for access in held.accesses if access.argument in puzzle.locks]
            site = asked[-1] if asked else None
            return Verdict("race", f"{text}{place} lacks its part", site, _must_wait(locks))
    return None


def _must_wait(locks: str) -> str:
    return f"where {locks} is 1 a program must wait until it finds a 0 there, and has made it a 1"


_TF32 = (
    'a dot in TF32, which takes 10 bits of each factor: tl.dot(a, b, input_precision="ieee") keeps all bits'
)
IN_TF32 = f"the compiler makes this sum of products {_TF32}"


def sums_in_tf32(sites: Iterable[Site]) -> str:
    """A warning, where that is within what the puzzle allows."""
    lines = " and ".join(str(line) for line in sorted({site.line for site in sites}))
    return f"on a GPU the sum of products at line {lines} is {_TF32}"


def as_compiled(verdict: Verdict, site: Site, why: str) -> Verdict:
    """A fault that shows only in the compiler's arithmetic."""
    return replace(verdict, message=f"on a GPU, {verdict.message}", site=site, diagnosis=why)


def of_fused(step: Fused) -> str:
    """Why a product and a sum in one step give something else."""
    where = "the product and the sum of this line"
    if step.product != step.sum:
        where = f"the product of line {step.product.line} and the sum of line {step.sum.line}"
    text = f"{where} are one step on a GPU, an fma, which does not round the product"
    if not step.cancels:
        return f"{text}: a result that hangs on the last bit comes out otherwise"
    cure = _factored(step.sum.source) or "choose by tl.where or tl.maximum instead"
    return f"{text}: what cancels here leaves its rounding error there; {cure}"


def _factored(line: str) -> str:
    """A difference of two products with a factor in common, as one product; "" where there is none."""
    try:
        every = list(ast.walk(ast.parse(line)))
    except SyntaxError:  # part of a statement
        return ""
    for node in every:
        match node:
            case ast.BinOp(ast.BinOp(a, ast.Mult(), b), ast.Sub(), ast.BinOp(c, ast.Mult(), d)):
                sides = [(a, b, c, d), (a, b, d, c), (b, a, c, d), (b, a, d, c)]
                for factor, one, other, rest in sides:
                    if ast.dump(factor) == ast.dump(other):
                        inner = ast.unparse(ast.BinOp(one, ast.Sub(), rest))
                        return f"write {ast.unparse(factor)} * ({inner})"
    return ""


def _uninitialised(source: Source) -> Verdict:
    """The results depend on what a GPU leaves undefined."""
    diagnosis = ""
    if source.kind == "lanes":
        cure = "padding_option=" if "boundary_check" in source.site.source else "other="
        diagnosis = (
            f"Triton does not say what these lanes hold; load them, too, or give them a value with {cure}"
        )
    return Verdict("uninitialised", str(source), source.site, diagnosis)


def _not_taken(result: Argument) -> Verdict:
    text = f"never written: the kernel does not take {result.name}_ptr, where the result belongs"
    return Verdict("never written", text)


def _never_written(result: Argument, case: Case, ran: Run) -> Verdict | None:
    shape = result.shape(case.numbers)
    written = ran.written.get(result.name)
    if written is None:
        return None if result.name in ran.outputs else _not_taken(result)
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


def never_written(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Why elements of a result are not written, from a run whose accesses were kept."""
    for result in puzzle.results:
        verdict = _never_written(result, case, ran)
        if verdict:
            return _why_not_written(verdict, result, puzzle, case, ran)
    return None


def _why_not_written(verdict: Verdict, result: Argument, puzzle: Puzzle, case: Case, ran: Run) -> Verdict:
    stores = [a for a in ran.accesses if a.kind != "load" and a.argument == result.name]
    if not stores:
        for access in ran.accesses:
            if access.kind != "load" and access.argument in (a.name for a in puzzle.inputs):
                what = verdict.message.split(";")[0]
                text = f"{what}; the kernel stores to {access.argument}_ptr instead, an input"
                return replace(verdict, message=text, site=access.site)
        return verdict
    if not any(a.mask.any() for a in stores):
        text = (
            "all lanes of this store are masked off; masks are joined by &: + of two is False where both hold"
        )
        return replace(verdict, diagnosis=text, site=stores[0].site)
    shape = result.shape(case.numbers)
    owner: dict[int, Program] = {}
    for access in stores:
        elements, times = np.unique(access.elements[access.mask], return_counts=True)
        if (times > 1).any():
            place = f"{result.name}[{_index(int(elements[(times > 1).argmax()]), shape)}]"
            text = (
                f"several lanes of this store hit one element, such as {place}: is the stride of a row right?"
            )
            return replace(verdict, diagnosis=text, site=access.site)
        for element in elements.tolist():
            first = owner.setdefault(element, access.program)
            if first != access.program:
                place = f"{result.name}[{_index(element, shape)}]"
                text = f"programs {first} and {access.program} both store to {place}"
                return replace(
                    verdict, diagnosis=f"{text}: do the offsets follow tl.program_id?", site=access.site
                )
    return verdict


def with_blocks(
    puzzle: Puzzle, results: Sequence[CaseResult], is_right: Callable[[Case], bool]
) -> tuple[CaseResult, ...]:
    """The results; that wrong values come only where a walk has several blocks is said with the first.

    is_right: whether the kernel is right in another case. It is asked for the one that fails, with a block
    that holds the whole walk: cases with one block have more in common, as a rule.
    """
    told = next((i for i, r in enumerate(results) if r.verdict), None)
    verdict = results[told].verdict if told is not None else None
    if told is None or verdict is None or verdict.kind != "values" or results[told].drawn:
        return tuple(results)
    words = [w for w in (verdict.diagnosis,) if w.startswith(PER_ROW)]
    if verdict.diagnosis and not words:
        return tuple(results)
    case = puzzle.cases[told]
    for block in case.numbers:
        axis = _walked(puzzle, block)
        one = [not axis or case.numbers[axis] <= case.numbers[block] for case in puzzle.cases]
        if not any(one) or all(one) or not all(r.ok for r, alone in zip(results, one, strict=True) if alone):
            continue
        whole = 1 << (case.numbers[axis] - 1).bit_length()
        if whole <= LARGEST_BLOCK and is_right(case.but(**{block: whole})):
            words.append(f"it is right in the cases with one block of {axis}, {axis} <= {block}")
            told_so = replace(
                results[told], verdict=replace(verdict, diagnosis="; ".join(words).replace("?; ", "? "))
            )
            return (*results[:told], told_so, *results[told + 1 :])
    return tuple(results)


def _walked(puzzle: Puzzle, block: str) -> str:
    """The size that programs walk along in blocks of this; "" where there is none, or the grid cuts it."""
    case = puzzle.cases[0]
    name = block.removeprefix("BLOCK_")
    axis = name if name in case.numbers else "T" if name in ("Q", "K") and "T" in case.numbers else ""
    if name == block or not axis:
        return ""
    for case in puzzle.cases:
        wider = Case(fill=None, salt="", pretend=False, **{**case.numbers, block: 2 * case.numbers[axis]})
        thinner = Case(fill=None, salt="", pretend=False, **{**case.numbers, block: 1})
        if puzzle.programs(wider) != puzzle.programs(thinner):
            return ""
    return axis


def _race(puzzle: Puzzle, case: Case, conflict: Conflict) -> Verdict:
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    element = f"{conflict.argument}[{_index(conflict.element, shape)}]"
    first, second = conflict.programs
    diagnosis = ""
    if conflict.kind == "read":
        waits = re.match(r"while\b.*\bload\(", conflict.site.source)
        if waits and "volatile" not in conflict.site.source:
            diagnosis = asks_again(conflict.argument)
        text = f"race: program {second} reads {element}, which program {first} wrote; nothing orders the two"
    elif first == second:
        text = f"race: two lanes of one store in program {first} write different values to {element}"
    else:
        text = f"race: two programs, {first} and {second}, write different values to {element}"
    return Verdict("race", text, conflict.site, diagnosis)


def race_within(
    puzzle: Puzzle, case: Case, race: WithinProgram, target: Target, num_warps: int, *, safe_with_one: bool
) -> Verdict:
    """Two threads of a program met in an element with nothing to order them."""
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == race.argument)
    element = f"{race.argument}[{_index(race.element, shape)}]"
    first, second = (_touch(touch, target) for touch in (race.first, race.second))
    warps = "1 warp" if num_warps == 1 else f"{num_warps} warps"
    text = f"race within program {race.program}: {element} is {first}, then {second}, no barrier between"
    cure = "put tl.debug_barrier() between the two: threads run at their own pace"
    if race.first.site == race.second.site:
        cure = "put tl.debug_barrier() into the loop: threads run at their own pace"
    alone = "; with num_warps=1 it would be right" if safe_with_one else ""
    return Verdict("race", text, race.second.site, f"{cure} ({target.name}, {warps}{alone})")


_DONE = {"load": "loaded", "store": "stored", "atomic": "updated"}


def _touch(touch: Touch, target: Target) -> str:
    """Who did what, and where."""
    who = f"lane {touch.lane} of the block"
    if touch.thread is not None:
        warp, lane = divmod(touch.thread, target.gpu.warp_size)
        who = f"lane {lane} of warp {warp}"
    elif touch.several:
        who = "several threads"
    return f"{_DONE[touch.kind]} at line {touch.site.line} by {who}"


_HARM = {  # why -> which hint is to blame, what the compiler does
    "mask": ("max_constancy", "by the first one's mask, but not all of them are on"),
    "apart": ("max_contiguous", "from the first one's address, but they do not lie side by side"),
    "misaligned": ("multiple_of", "from an address that is no multiple of that, and fails"),
}


def false_hint(promises: Sequence[Promise], harm: Harm | None) -> Verdict:
    """A hint to the compiler that is not true, and what the compiler does in good faith."""
    blamed, done = _HARM[harm.why] if harm else ("", "")
    promise = next((each for each in promises if each.hint == blamed), promises[0])
    sizes = promise.sizes[0] if len(promise.sizes) == 1 else list(promise.sizes)
    text = f"false hint: tl.{promise.hint}(..., {sizes}), but {promise.found}"
    others = sorted({each.site.line for each in promises if each.site != promise.site})
    if others:
        text += f"; nor is the hint of line {others[0]} true"
    cure = "leave the hint out, or make it true"
    if harm:
        first, last = (_index(lane, harm.shape) for lane in (harm.lanes[0], harm.lanes[-1]))
        lanes = f"{first} to {last}" if len(harm.shape) == 1 else f"[{first}] to [{last}]"
        cure = f"a GPU {_DOES[harm.kind]} lanes {lanes} of line {harm.site.line} at once, {done}; {cure}"
    return Verdict("false hint", text, promise.site, cure)


_DOES = {"load": "loads", "store": "stores", "atomic": "updates"}


def _index(flat: int, shape: tuple[int, ...]) -> str:
    index = []
    for size in reversed(shape):
        index.append(flat % size)
        flat //= size
    return ", ".join(map(str, reversed(index)))
