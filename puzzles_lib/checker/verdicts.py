"""Turn a run into a verdict: say what is wrong with it, the most basic fault first."""

import ast
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from triton.runtime.jit import JITFunction

from puzzles_lib.checker.compare import (
    AS_SMALL_AS_ROUNDING,
    LOOK_FOR,
    PER_ROW,
    ZERO,
    Mismatch,
    compare,
    only_slip,
)
from puzzles_lib.checker.expected import Expected, evaluate
from puzzles_lib.checker.naming import index_of, the_program, the_programs
from puzzles_lib.checker.report import NEVER_LOADED, SAME_VALUE, CaseResult, Verdict
from puzzles_lib.inputs import make_inputs
from puzzles_lib.puzzle import Argument, Case, Puzzle
from puzzles_lib.runner import (
    UNMARKED,
    Cause,
    Conflict,
    Fused,
    NaNs,
    Plan,
    Run,
    Source,
    asks_again,
)
from puzzles_lib.source import Refusal, Site, with_helpers
from puzzles_lib.stubs import HOLE, has_hole, is_untouched

STILL_OPEN = Verdict("open", "not solved yet", diagnosis=f"replace the comment `{HOLE}` with your lines")
COMMENTED = Verdict("open", "not solved yet", diagnosis="your line is still a comment: remove the # in front")
NO_LINES = Verdict(
    "open", "not solved yet", diagnosis="your lines are missing: the marker is gone, but no line is there"
)
STILL_BROKEN = Verdict("open", "not solved yet: the kernel is still broken, as it was handed out")

LARGEST_BLOCK = 4096  # the longest axis that `with_blocks` tries as a single block


def still_open(kernel: JITFunction) -> Verdict:
    """Return the verdict on a kernel that is as it was handed out, or has such a helper, comments aside."""
    source = "\n".join(each.src for each in with_helpers(kernel) if each is kernel or has_hole(each))
    if HOLE in source:
        return STILL_OPEN
    comments = (line.strip().lstrip("# ") for line in source.splitlines() if line.strip().startswith("#"))
    return COMMENTED if any(map(_is_a_line, comments)) else NO_LINES


def unsolved(kernel: JITFunction, puzzle: Puzzle) -> str:
    """Return what to say of a kernel whose code is as it was handed out, with a hole; "" for others."""
    if puzzle.broken_by or not is_untouched(kernel):
        return ""
    verdict = still_open(kernel)
    return f"{verdict.message[:1].upper()}{verdict.message[1:]}: {verdict.diagnosis}"


def _is_a_line(text: str) -> bool:
    """Return whether the text of a comment is a Python statement that does something, and not only words."""
    try:
        (node,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return False
    return isinstance(getattr(node, "value", None), ast.Call if isinstance(node, ast.Expr) else ast.expr)


def exchanged(verdict: Verdict, first: int, second: int) -> Verdict:
    """Return the verdict on a kernel that is correct if two axes of the grid are exchanged."""
    text = (
        f"tl.program_id({first}) and tl.program_id({second}) are swapped: "
        "exchanged, they give the correct result in this case"
    )
    return replace(verdict, diagnosis=text)


def of_refusal(refusal: Refusal) -> Verdict:
    """Return the verdict on a kernel that cannot be run at all."""
    if refusal.kind in ("signature", "error"):
        return Verdict(refusal.kind, refusal.message, refusal.site, refusal.advice)
    what, more = refusal.parts
    return Verdict(refusal.kind, f"{refusal.by} refuses this kernel: {what}", refusal.site, more)


def of_refusal_in_a_case(refusal: Refusal, puzzle: Puzzle, case: Case) -> Verdict:
    """Return the verdict on a kernel that compiles for the earlier cases and not for this one."""
    advice = refusal.advice or _why_not_earlier(refusal, puzzle, case)
    return of_refusal(replace(refusal, advice=advice))


def _why_not_earlier(refusal: Refusal, puzzle: Puzzle, case: Case) -> str:
    """Say why shapes that differ here fit in the earlier cases; "" if the block sizes don't explain it."""
    shapes = " ".join(re.findall(r"= (\[[^\]]*\])", refusal.message))  # no other names
    names = [name for name in case.numbers if re.search(rf"\b{re.escape(name)}\b", shapes)]
    if "shapes that do not fit" not in refusal.message or len(names) < 2:
        return ""
    earlier = []
    for other in puzzle.cases:
        if str(other) == str(case):
            break
        earlier.append([other.numbers[name] for name in names])
    if not earlier:
        return ""
    if all(len(set(sizes)) == 1 for sizes in earlier):
        return f"the earlier cases compile, because {' = '.join(names)} there"
    if all(len(set(sizes)) == 1 or 1 in sizes for sizes in earlier):
        ones = [name for place, name in enumerate(names) if any(sizes[place] == 1 for sizes in earlier)]
        return f"an earlier case has {' and '.join(ones)} = 1, and a single element fits any shape"
    return ""


def out_of_time(seconds: float) -> Verdict:
    """Return the verdict on a check whose runs take too long together, though each of them ends."""
    text = f"time limit: the runs of this check took {seconds:g} s of CPU time in all"
    return Verdict("time limit", text, diagnosis="check(kernel, PUZZLE, seconds=...) allows more")


_NO_ORDER = (
    "tl.reduce keeps no order: threads combine elements that are far apart, "
    "and f(b, a) differs from f(a, b) here"
)


def judge(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
    explains: bool = True,
) -> Verdict | None:
    """Return the most basic fault of a run; None if there is none.

    explains: whether to look for the reason of wrong values.
    """
    verdict = misconduct(puzzle, case, ran)
    if explains and verdict and verdict.kind == "uninitialized" and not verdict.diagnosis:
        # an undefined value is computed as a GPU computes it today, and other results may be defined
        written = {r.name: ran.outputs[r.name] for r in puzzle.results if r.name in ran.written}
        text = only_slip(expected, written, puzzle, case, inputs) if puzzle.slips else ""
        return replace(verdict, diagnosis=text or _wrong_as_well(puzzle, case, inputs, expected, ran))
    if verdict:
        return verdict
    found: dict[str, Mismatch] = {}
    for result in puzzle.results:
        mismatch = _mismatch(result, puzzle, case, inputs, expected, ran, explains)
        if mismatch and result.name not in ran.written:
            return _not_taken(puzzle, result)
        if mismatch:
            found[result.name] = mismatch
    if found:
        mismatch = _most_telling(found, puzzle)
        if ran.not_associative:
            text = "the scan's combine function is not associative: f(f(a, b), c) differs from f(a, f(b, c))"
            return Verdict("values", mismatch.message, ran.not_associative, text)
        if ran.not_commutative:
            return Verdict("values", mismatch.message, ran.not_commutative, _NO_ORDER)
        if mismatch.diagnosis.startswith(AS_SMALL_AS_ROUNDING) and ran.arithmetic.rounded:
            site, dtype = next(iter(ran.arithmetic.rounded.items()))
            return Verdict("values", mismatch.message, site, _rounded_sum(dtype))
        return Verdict(
            "values", mismatch.message, diagnosis=mismatch.diagnosis + _unread(mismatch, ran, inputs)
        )
    if ran.other_order:
        text = "race: the result is correct only if elements are combined from the first to the last"
        return Verdict("race", text, ran.other_order, _NO_ORDER)
    for name in inputs:
        if not ran.loads.get(name) and (moved := _moves_with(name, puzzle, case, inputs, expected)):
            text = f"{puzzle.pointer(name)} {NEVER_LOADED}, but {moved} depends on its values"
            return Verdict(
                "loads",
                text,
                diagnosis="are results hard-coded in the kernel? Then it is correct only for these inputs",
            )
    for name, most in (puzzle.most_loads or {}).items():
        loads, allowed = ran.loads.get(name, 0), most(case)
        if loads and not allowed:
            text = f"{loads} elements of {puzzle.pointer(name)} are loaded, but no result depends on them"
            return Verdict("loads", text)
        if loads > allowed:
            text = f"too many loads of {puzzle.pointer(name)}: {loads} elements, but {allowed} are enough"
            how = (
                "keep what you loaded, broadcast a row or column, skip blocks and lanes that no result needs"
            )
            slips = (each for each, most in (puzzle.load_slips or {}).items() if loads <= most(case))
            advice = next(slips, f"load {name} only as often as its results need: {how}")
            return Verdict("loads", text, diagnosis=advice)
    if puzzle.most_flops and ran.flops > (enough := puzzle.most_flops(case)):
        text = f"too many operations on floats: {ran.flops}, but {enough} are enough"
        return Verdict("operations", text, diagnosis="does a loop run more often than it has blocks?")
    for name in puzzle.stored_once:
        if name in ran.repeated:
            return stored_again(puzzle, case, ran.repeated[name])
        if name in ran.rewritten:
            return _stored_twice(puzzle, case, ran.rewritten[name])
    return None


def _rounded_sum(dtype: str) -> str:
    return (
        f"{AS_SMALL_AS_ROUNDING}: the sum on this line is rounded to {dtype}. Convert the numbers to float32 "
        "before you add them"
    )


def _mismatch(
    result: Argument,
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
    explains: bool = True,
) -> Mismatch | None:
    """Return what is wrong with one result of a run; None if nothing is."""
    dots = ran.arithmetic.tf32 or bool(ran.arithmetic.in_tf32)
    return compare(expected[result.name], ran.outputs[result.name], puzzle, case, inputs, dots, explains)


def _most_telling(found: Mapping[str, Mismatch], puzzle: Puzzle) -> Mismatch:
    """Return one of several wrong results: one that a slip explains, or else one that others follow from.

    Results that are chosen or copied come before those that are computed, as codes are from a scale.
    """
    slips = tuple(puzzle.slips or {})
    named = (each for each in found.values() if slips and each.diagnosis.startswith(slips))
    chosen = (each for name, each in found.items() if name in puzzle.exact)
    return next(named, None) or next(chosen, None) or next(iter(found.values()))


def _wrong_as_well(
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
    ran: Run,
) -> str:
    """Return that a result is wrong from which undefined ones may follow; "" if none is."""
    for result in puzzle.results:
        if result.name in puzzle.exact and result.name in ran.written:
            mismatch = _mismatch(result, puzzle, case, inputs, expected, ran)
            if mismatch and len(puzzle.results) > 1:
                told = mismatch.message.removeprefix(f"wrong values in {result.name}: ")
                why = f". {mismatch.diagnosis}" if mismatch.diagnosis else ""
                return f"{result.name} has wrong values, too: {told}{why}"
    return ""


def _unread(mismatch: Mismatch, ran: Run, inputs: Mapping[str, torch.Tensor]) -> str:
    """Return which inputs a kernel whose result is zero doesn't use, as one that is half written."""
    unused = [name for name in inputs if not ran.loads.get(name)]
    return f", and no value of {' or '.join(unused)} is used" if unused and mismatch.diagnosis == ZERO else ""


def _moves_with(
    name: str,
    puzzle: Puzzle,
    case: Case,
    inputs: Mapping[str, torch.Tensor],
    expected: Mapping[str, Expected],
) -> str:
    """Return the name of a result that depends on this input; "" if none does."""
    other = make_inputs(puzzle, case.salted(f"{case.salt}, another {name}"))[name]
    moved = evaluate(puzzle, case, {**inputs, name: other})
    for result in puzzle.results:
        value = moved[result.name]
        value = value if value.is_floating_point() else value.to(result.dtype)
        if not expected[result.name].accepts(value).all():
            return result.name
    return ""


def misconduct(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return the most basic fault of a run that shows without comparing values; None if there is none."""
    if ran.stop and ran.stop.kind != "uninitialized":
        message = on_the_grid(ran.stop.message, len(puzzle.grid(case)))
        return Verdict(ran.stop.kind, message, ran.stop.site, ran.stop.advice)
    if ran.undefined and ran.undefined.kind != "early":
        return uninitialized(ran.undefined, puzzle, case)
    for result in puzzle.results:
        verdict = never_written(puzzle, result, case, ran)
        if verdict:
            return verdict
    if ran.conflict:
        return race_between(puzzle, case, ran.conflict, ran.atomics)
    for name, site in ran.changed.items():
        return Verdict(
            "input changed", f"the kernel changes its input {name}; it may only write to its outputs", site
        )
    return uninitialized(ran.undefined, puzzle, case) if ran.undefined else None


def not_finite(
    verdict: Verdict,
    got: torch.Tensor,
    wrong: torch.Tensor,
    nans: NaNs,
    inputs: Mapping[str, torch.Tensor],
) -> Verdict:
    """Return a verdict of wrong values with how the first NaN was made, or which exponential overflowed.

    got: a result, flat, from the run that ``nans`` watched. wrong: which elements are wrong. inputs: of the
        case; a NaN that no line made may come from there.
    """
    diagnosis, found, tail = verdict.diagnosis.partition(LOOK_FOR)
    if found and not tail:
        first = int((wrong & got.isnan()).int().argmax())
        made = nans.origin(got, first)
        spoilt = [name for name, x in inputs.items() if x.is_floating_point() and x.isnan().any()]
        of_inputs = f"{' and '.join(spoilt)} {'contains' if len(spoilt) == 1 else 'contain'} NaN"
        if not made or not made.how:
            if not made and spoilt:
                text = f"{of_inputs}, and 0 * NaN is NaN: mask the load"
                return replace(verdict, diagnosis=f"{diagnosis}: {text}")
            return verdict
        why = ""
        if made.overflowed and made.how in ("inf / inf", "0 * inf", "inf - inf", "inf + (-inf)"):
            why = ", and the inf came from an exp that overflowed"
            if nans.overflow and nans.overflow.line != made.site.line:
                why += f" on line {nans.overflow.line}"
        elif nans.too_large and made.how in ("inf / inf", "0 * inf", "inf - inf", "inf + (-inf)"):
            site, dtype = nans.too_large
            where = "" if site.line == made.site.line else f" on line {site.line}"
            why = f", and the inf came from a product{where} that is too large for {dtype}"
        count = nans.count(got[wrong], made.how)
        if spoilt and count < int(got[wrong].isnan().sum()):
            return replace(
                verdict,
                diagnosis=f"{diagnosis}: {count} from {made.how}{why}, and {of_inputs}",
                site=made.site,
            )
        return replace(verdict, diagnosis=f"{diagnosis}: {made.how}{why}", site=made.site)
    if nans.overflow and not verdict.diagnosis and got[int(wrong.int().argmax())].isinf():
        return replace(verdict, diagnosis="an exp overflowed, and its result is inf", site=nans.overflow)
    if nans.divided and not verdict.diagnosis and got[int(wrong.int().argmax())].isinf():
        return replace(verdict, diagnosis="a number is divided by 0, which gives inf", site=nans.divided)
    if nans.too_large and not verdict.diagnosis and got[int(wrong.int().argmax())].isinf():
        site, dtype = nans.too_large
        return replace(verdict, diagnosis=f"a product is too large for {dtype}, so it is inf", site=site)
    return verdict


def of_nothing_loaded(verdict: Verdict, unread: Sequence[str], loops: bool) -> Verdict:
    """Return a verdict of NaNs with the inputs of which no element was loaded, as in a loop that never runs.

    loops: whether the kernel has a loop.
    """
    if not unread or " NaN: " not in verdict.diagnosis:
        return verdict
    text = f"{verdict.diagnosis}, and no element of {' or '.join(unread)} is loaded"
    return replace(verdict, diagnosis=f"{text}: does the loop run at all?" if loops else text)


def hidden_by_rounding(
    want: Expected, got: torch.Tensor, off: torch.Tensor, allowed: torch.Tensor, slip: str = ""
) -> Verdict:
    """Return the verdict on a formula that is wrong by less than a result's rounding.

    got: the results in float64. off: by how much they differ from the spec. allowed: by how much they may.
    slip: the puzzle's text on the mistake that explains them.
    """
    at = np.unravel_index(int((off / allowed).argmax()), off.shape)  # torch's imports sympy
    place = f"[{', '.join(str(int(i)) for i in at)}]" if off.dim() else ""
    what = f"{want.argument.name}{place}"
    text = (
        f"{what} is wrong by less than its own rounding: computed in float64, it is "
        f"{float(got[at]):.9g}, but should be {float(want.value[at]):.9g} "
        f"(off by {float(off[at]):.2g}, allowed {float(allowed[at]):.2g})"
    )
    return Verdict(
        "values", text, diagnosis=slip or "is a number in the formula slightly off, or a term missing?"
    )


def depends_on_order(verdict: Verdict, order: str = "in reverse order") -> Verdict:
    """Return the verdict on a fault that shows only when the programs run in another order.

    order: such as ``"in reverse order"``.
    """
    text = f"race: when the programs run {order}, the result differs ({verdict.message})"
    if verdict.kind == "deadlock":
        waits = verdict.message.removeprefix("deadlock: ")
        text = f"race: when the programs run {order}, {waits}: any program may start first"
    return Verdict("race", text, verdict.site, verdict.diagnosis if verdict.kind == "deadlock" else "")


def depends_on_lanes(verdict: Verdict) -> Verdict:
    """Return the verdict on a fault that shows only when the lanes of an atomic come in reverse order."""
    text = verdict.message.replace("the programs run", "lanes that meet in an atomic come", 1)
    return replace(
        verdict, message=text, diagnosis=verdict.diagnosis or "the lanes of an atomic have no order"
    )


def interrupted(puzzle: Puzzle, case: Case, verdict: Verdict, ran: Run, plan: Plan) -> Verdict:
    """Return the verdict on a fault that shows only when another program runs between two atomics."""
    axes = len(puzzle.grid(case))
    first, second = (
        on_the_grid(f"program {ran.launched[n]}", axes).removeprefix("program ")
        for n in (plan.first, plan.second)
    )
    assert ran.between is not None
    before, at = ran.between
    where = (
        f"its atomics at lines {before.line} and {at.line}"
        if before.line != at.line
        else "two of its atomics"
    )
    what = verdict.message.removeprefix("race: ")
    text = f"race: if program {second} runs while program {first} is between {where}, {what}"
    why = ran.conflict.why if ran.conflict and verdict.kind == "race" else Cause()
    if why.what in ("release", "acquire", "barrier") and why.sem not in UNMARKED:
        return Verdict("race", text, verdict.site, verdict.diagnosis)
    advice = (
        "by then, the value that the first atomic returned is out of date: make the update with one atomic, "
        "or retry tl.atomic_cas until it succeeds, or hold a lock during the whole update"
    )
    return Verdict("race", text, at, advice)


def depends_on_addresses(verdict: Verdict) -> Verdict:
    """Return the verdict on a fault that shows only if the tensors have other addresses."""
    text = f"the result depends on an address: with the tensors at other addresses, {verdict.message}"
    advice = "the allocator chooses the addresses: compare offsets and sizes instead"
    return Verdict(verdict.kind, text, verdict.site, advice)


def other_bits(puzzle: Puzzle, case: Case, forwards: Run, again: Run, order: str) -> Verdict | None:
    """Return the verdict on results that are correct in both orders of the programs, but differ.

    again: the second run. order: its order, such as ``"in reverse order"``.
    """
    for result in puzzle.results:
        one, other = (ran.outputs[result.name] for ran in (forwards, again))
        differs = (one != other) & ~(one.isnan() & other.isnan())
        if differs.any():
            at = int(differs.flatten().int().argmax())
            place = f"{result.name}[{index_of(at, result.shape(case.numbers))}]"
            values = f"{one.flatten()[at].item():.9g} and {other.flatten()[at].item():.9g}"
            text = f"race: when the programs run {order}, {place} gets different bits: {values}"
            cure = "a float sum depends on the order of its additions: let one program make the whole sum"
            return Verdict("race", text, diagnosis=cure)
    return None


def would_end(verdict: Verdict, ran: Run, puzzle: Puzzle, case: Case) -> Verdict:
    """Return the verdict on a program that waits forever, with what would help.

    ran: a run in which all programs run at the same time.
    """
    if ran.stop is None or ran.stop.kind != "deadlock":
        advice = (
            "a GPU may start later programs only when this one has ended. Wait only for smaller tickets, "
            "taken with tl.atomic_add; a barrier of all programs needs a launch with "
            "launch_cooperative_grid=True"
        )
        return replace(verdict, diagnosis=advice)
    told = misconduct(puzzle, case, ran)
    assert told is not None
    if told.message != verdict.message and told.site == verdict.site:
        return replace(
            told, diagnosis="no program changes it anymore, even if all programs run at the same time"
        )
    if told.message == verdict.message and "nobody has changed" in verdict.message:
        return replace(verdict, diagnosis="no program changes it, even if all programs run at the same time")
    return verdict


def unlocked(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return the verdict on a store without the lock; None if there is no such store."""
    if (store := ran.unlocked) is None:
        return None
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == store.argument)
    place, held = f"{store.argument}[{index_of(store.element, shape)}]", " and ".join(puzzle.locks)
    who = the_program(store.program, puzzle, case)
    text = f"race: {who} stores to {place} while the {held} is not held: others may store as well"
    return Verdict(
        "race", text, store.site, f"before a program stores, it must change the {held} from 0 to 1"
    )


def locked_out(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return the verdict on a program that stores while another holds the locks. Atomics need no lock."""
    for access in ran.accesses:
        if access.kind == "store" and access.argument not in puzzle.locks and access.mask.any():
            shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == access.argument)
            place = f"{access.argument}[{index_of(int(access.elements[access.mask][0]), shape)}]"
            held = " and ".join(puzzle.locks)
            who = the_program(access.program, puzzle, case)
            text = f"race: if another program holds the {held}, {who} stores to {place} anyway"
            return Verdict("race", text, access.site, _must_wait(held))
    return None


def gave_up(puzzle: Puzzle, case: Case, held: Run, free: Run) -> Verdict | None:
    """Return the verdict on a program that ends without its part of the result if the locks are held.

    held: a run with every lock held by another program. free: the same run with no lock held.
    """
    if held.stop:
        return None
    locks = " and ".join(puzzle.locks)
    for result in puzzle.results:
        got, want = (ran.outputs[result.name].flatten() for ran in (held, free))
        lacks = (got != want) & ~(got.isnan() & want.isnan())
        if result.name not in puzzle.locks and lacks.any():
            place = f"{result.name}[{index_of(int(lacks.int().argmax()), result.shape(case.numbers))}]"
            who = the_program(held.program or (0, 0, 0), puzzle, case)
            text = f"race: if another program holds the {locks}, {who} gives up"
            asked = [access.site for access in held.accesses if access.argument in puzzle.locks]
            site = asked[-1] if asked else None
            return Verdict("race", f"{text}: its part of {place} is missing", site, _must_wait(locks))
    return None


def unused_lock(puzzle: Puzzle, case: Case, ran: Run) -> Verdict | None:
    """Return the verdict on a kernel that uses some locks of a result and never the others.

    A kernel that uses none of them passes here: atomics need no lock. ran: a run whose accesses are kept.
    """
    for result in puzzle.results:
        if result.name not in puzzle.locks:
            continue
        shape = result.shape(case.numbers)
        each = [a for a in ran.accesses if a.argument == result.name and a.mask.any()]
        used = {int(element) for a in each for element in a.elements[a.mask]}
        unused = sorted(set(range(math.prod(shape))) - used)
        if used and unused:
            free, taken = (f"{result.name}[{index_of(n, shape)}]" for n in (unused[0], min(used)))
            text = f"{free} is never used, but {taken} is"
            diagnosis = "programs that store to different elements share a lock, so they wait for no reason"
            return Verdict("never written", text, each[0].site, diagnosis)
    return None


def _must_wait(locks: str) -> str:
    return f"while {locks} is 1, a program must wait until it can change it from 0 to 1"


_TF32 = (
    'a dot in TF32, which keeps 10 bits of each factor: tl.dot(a, b, input_precision="ieee") keeps all bits'
)
IN_TF32 = f"the compiler turns this sum of products into {_TF32}"


def sums_in_tf32(sites: Iterable[Site]) -> str:
    """Return a warning about sums that become dots in TF32, for a kernel that is correct anyway."""
    lines = " and ".join(str(line) for line in sorted({site.line for site in sites}))
    return f"on a GPU the sum of products at line {lines} becomes {_TF32}"


def as_compiled(verdict: Verdict, site: Site, why: str) -> Verdict:
    """Return the verdict on a fault that shows only in the compiler's arithmetic."""
    return replace(verdict, message=f"on a GPU, {verdict.message}", site=site, diagnosis=why)


def of_fused(step: Fused) -> str:
    """Say why a product and a sum that are computed in one step give another result."""
    where = "the product and the sum on this line"
    if step.product != step.sum:
        where = f"the product on line {step.product.line} and the sum on line {step.sum.line}"
    text = f"{where} are one step on a GPU, an fma, which does not round the product"
    if not step.cancels:
        return f"{text}: this can change the last bit of the sum, and the result depends on that bit"
    cure = _factored(step.sum.source) or "choose with tl.where or tl.maximum instead"
    return f"{text}: products that cancel here leave a rounding error there; {cure}"


def _factored(line: str) -> str:
    """Return a difference of two products with a common factor as one product; "" if there is none."""
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


_FOR_AN_ELEMENT = "if the tensor has an element for this lane, extend the load's mask. Otherwise, "


def uninitialized(source: Source, puzzle: Puzzle, case: Case) -> Verdict:
    """Return the verdict on results that depend on values that a GPU leaves undefined."""
    text, use, diagnosis = str(source), source.use, ""
    if use and use.element is not None:
        shape = next((r.shape(case.numbers) for r in puzzle.results if r.name == use.what), None)
        if shape is not None:
            element = f"{use.what}[{index_of(use.element, shape)}]" if shape else use.what
            text = text.replace(f"{use.what}[{use.element}]", element, 1)
    if source.first is not None:  # a launch's tensors are called as its parameters are
        shape = next((r.shape(case.numbers) for r in puzzle.results if r.name == source.what), ())
        text = (
            f"{source.what}[{index_of(source.first, shape)}]{text.removeprefix(source.what)}"
            if shape
            else text
        )
    if source.kind == "lanes":
        padded = "boundary_check" in source.site.source
        first = "" if padded else _FOR_AN_ELEMENT
        cure = "padding_option=" if padded else "other="
        diagnosis = (
            f"the lane's value is undefined: {first}don't use the lane, or give it a value with {cure} "
            "(or with tl.where after the load)"
        )
    return Verdict("uninitialized", on_the_grid(text, len(puzzle.grid(case))), source.site, diagnosis)


def _not_taken(puzzle: Puzzle, result: Argument) -> Verdict:
    text = f"{result.name} is never written: the kernel has no parameter {puzzle.pointer(result.name)}"
    return Verdict("never written", text)


def never_written(puzzle: Puzzle, result: Argument, case: Case, ran: Run) -> Verdict | None:
    """Return the verdict on elements of a result that no program stores; None if there are none."""
    shape = result.shape(case.numbers)
    written = ran.written.get(result.name)
    if written is None:
        return None if result.name in ran.outputs else _not_taken(puzzle, result)
    missing = written.size - int(written.sum())
    if not missing:
        return None
    if missing == written.size:
        what = (
            f"none of the {missing} elements of {result.name} is"
            if missing > 1
            else f"{result.name} is never"
        )
        text = f"{what} written: the kernel stores nothing there"
        return Verdict("never written", text)
    place = index_of(int(written.argmin()), shape)
    verb = "is" if missing == 1 else "are"
    text = f"{missing} of {written.size} elements of {result.name} {verb} never written"
    which = ", starting with" if missing > 1 else ":"
    return Verdict("never written", f"{text}{which} {result.name}[{place}]")


def on_the_grid(text: str, axes: int) -> str:
    """Return a text of the interpreter, with one number per axis of the grid in program ids."""

    def of(found: re.Match) -> str:
        ids = tuple(map(int, found.groups()))
        return f"program {ids[0] if axes == 1 else ids[:axes]}"

    return re.sub(r"\bprogram \((\d+), (\d+), (\d+)\)", of, text)


def with_blocks(
    puzzle: Puzzle, results: Sequence[CaseResult], is_right: Callable[[Case], bool]
) -> tuple[CaseResult, ...]:
    """Return the results; the first verdict now says whether only loops over several blocks go wrong.

    is_right: whether the kernel is correct in another case. It is asked about the failing case with a block
        that covers the whole axis, because cases with one block often have something else in common, too.
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
            words.append(f"it is correct in the cases whose {axis} fits into one block ({axis} <= {block})")
            each = zip(one, results, puzzle.cases, strict=True)
            several = [result.ok for alone, result, case in each if not alone and not case.pretend]
            if any(several):
                words[-1] += f", and wrong in {several.count(False)} of {len(several)} with more blocks"
            words[-1] += ". Look at what one block passes on to the next"
            told_so = replace(
                results[told], verdict=replace(verdict, diagnosis="; ".join(words).replace("?; ", "? "))
            )
            return (*results[:told], told_so, *results[told + 1 :])
    return tuple(results)


def _walked(puzzle: Puzzle, block: str) -> str:
    """Return the axis that a loop walks in these blocks; "" if there is none, or the grid divides it."""
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


_UNORDERED = "the two can happen in either order"


def in_one_step(puzzle: Puzzle, argument: str) -> str:
    """Say how programs change a number that they share, if no lock guards it; "" for other results."""
    if argument not in puzzle.zeroed or puzzle.locks:
        return ""
    return f"several programs change {argument}: use tl.atomic_add, which loads, adds and stores in one step"


def race_between(puzzle: Puzzle, case: Case, conflict: Conflict, atomics: int | None = None) -> Verdict:
    """Return the verdict on a race between two programs.

    atomics: the most that one program did; None if that isn't known.
    """
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    element = f"{conflict.argument}[{index_of(conflict.element, shape)}]" if shape else conflict.argument
    first, second = conflict.programs
    diagnosis, site = "", conflict.site
    if conflict.kind == "read":
        waits = re.match(r"while\b.*\bload\(", conflict.site.source)
        if waits and "volatile" not in conflict.site.source:
            diagnosis = asks_again(puzzle.pointer(conflict.argument))
        reader, writer = (the_program(one, puzzle, case) for one in (second, first))
        why = conflict.why
        if why.what in ("release", "acquire") and why.site:
            lacks = {"release": f"release what {writer} stored", "acquire": "acquire what others released"}
            site, diagnosis = why.site, diagnosis or _half_missing(why, lacks[why.what])
        elif why.what == "late":
            diagnosis = f"{writer} stores it after the atomic that {reader} waits for: store first"
            if conflict.resident:
                diagnosis += f", or let {writer} wait at a barrier of the grid until {reader} has read it"
        elif why.what == "descriptor":
            diagnosis = "no atomic waits for a descriptor's store to end: use tl.store"
        elif why.what == "barrier":
            diagnosis = (
                "put tl.debug_barrier() between the store and the atomic, which waits for one thread only"
            )
        elif atomics == 0 and not diagnosis and not why.what and in_one_step(puzzle, conflict.argument):
            diagnosis = in_one_step(puzzle, conflict.argument)
        elif puzzle.locks and not diagnosis and not why.what:
            diagnosis = f"read {conflict.argument} only while you hold the lock that its writers hold"
        text = f"race: {reader} reads {element}, which {writer} wrote; {_UNORDERED}"
    elif conflict.kind == "overwrite":
        reader, writer = (the_program(one, puzzle, case) for one in (first, second))
        text = f"race: {writer} stores to {element}, which {reader} has read; {_UNORDERED}"
        if conflict.why.what == "early":
            text = f"race: {reader} reads {element} before {writer} stores it; {_UNORDERED}"
        site, diagnosis = _why_overwritten(conflict, reader, writer)
    elif conflict.kind == "scope":
        both = the_programs(first, second, puzzle, case)
        text = f'race: {both} update {element}, but scope="cta" keeps only one program\'s threads apart'
        diagnosis = 'leave scope out: "gpu", which keeps all programs apart, is the default'
    elif conflict.kind == "mixed":
        other, writer = (the_program(one, puzzle, case) for one in (first, second))
        does = "looks at" if conflict.why.what == "looks" else "changes"
        line = f" at line {conflict.why.site.line}" if conflict.why.site else ""
        text = f"race: {writer} stores to {element}, which {other} {does} with an atomic{line}"
        text += f"; {_UNORDERED}"
        diagnosis = _plain_store(puzzle, case, conflict)
        if conflict.why.what == "looks":
            diagnosis = f"{_UNRELEASED}: use tl.atomic_xchg instead"
    elif conflict.kind == "update" and conflict.why.site:
        site = conflict.why.site
        writer, updater = (the_program(one, puzzle, case) for one in (first, second))
        text = (
            f"race: {writer} stores to {element} at line {site.line}, and {updater} changes it "
            f"with an atomic at line {conflict.site.line}; {_UNORDERED}"
        )
        diagnosis = _plain_store(puzzle, case, conflict)
    elif first == second:
        where = the_program(first, puzzle, case)
        text = f"race: two lanes of one store in {where} write different values to {element}"
    else:
        text = f"race: {the_programs(first, second, puzzle, case)} write different values to {element}"
        if atomics and conflict.argument not in puzzle.zeroed and not puzzle.locks:
            counters = " and ".join(puzzle.zeroed)
            diagnosis = f"only the last program at {counters} should store it: {_FIRST}" if counters else ""
    return Verdict("race", text, site, diagnosis)


def _half_missing(why: Cause, lacks: str) -> str:
    """Return what is wrong with an access to a flag. lacks: what it does not do."""
    assert why.site is not None
    line = why.site.line
    if why.sem == UNMARKED[0]:
        why_not = "because its result isn't used: wait for that result"
        return f"the atomic at line {line} doesn't {lacks}, {why_not}"
    if why.sem in UNMARKED[1:]:
        return f"the load at line {line} doesn't {lacks}: look with tl.atomic_add(..., 0) instead"
    return (
        f'the atomic at line {line} has sem="{why.sem}", so it doesn\'t {lacks}: '
        "leave sem out, because the default does both"
    )


def _why_overwritten(conflict: Conflict, reader: str, writer: str) -> tuple[Site, str]:
    """Return the line at fault if a program stores to what another one has read, and what to do about it."""
    why = conflict.why
    if why.what in ("release", "acquire") and why.site:
        return why.site, _half_missing(why, why.what)
    if why.what == "barrier":
        return conflict.site, (
            "put tl.debug_barrier() between the load and the atomic, which waits for one thread only"
        )
    if why.what == "late":
        return conflict.site, (
            f"{reader} reads it after the last atomic that {writer} has waited for: "
            "each barrier of the grid needs its own count of arrivals"
        )
    if why.what == "early" and why.site:
        return why.site, f"{reader} must wait until {writer} has stored it"
    return conflict.site, "one of the two must wait for the other one"


_FIRST = "tl.atomic_add returns 0 to the first program"
_UNRELEASED = "other programs may see a plain store before they see the stores above it"


def _plain_store(puzzle: Puzzle, case: Case, conflict: Conflict) -> str:
    """Say what is missing between a plain store of one program and an atomic of another one."""
    if conflict.argument in puzzle.locks:
        return f"{_UNRELEASED}: unlock with tl.atomic_xchg"
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    first, second = conflict.programs
    apart = [axis for axis in range(3) if first[axis] != second[axis]]
    if len(apart) == 1 and len(shape) == 1 and shape[0] > 1:
        along = puzzle.grid(case)[apart[0]]
        if along == shape[0]:  # as many elements as programs along the axis
            element = f"{conflict.argument}[{conflict.element}]"
            both = the_programs(first, second, puzzle, case)
            return f"{conflict.argument} has {shape[0]} elements: should {both} share {element}?"
    atomic = conflict.why.site if conflict.kind == "mixed" else conflict.site
    if conflict.argument in puzzle.zeroed and atomic and "atomic_add(" in atomic.source:
        return f"only the last program may store it, after all others: {_FIRST}"
    return "a plain store is safe only after all other programs are done with the element"


def stored_again(puzzle: Puzzle, case: Case, conflict: Conflict) -> Verdict:
    """Return the verdict on two programs that store the same element of a result that one should store."""
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    element = f"{conflict.argument}[{index_of(conflict.element, shape)}]"
    who = the_programs(*conflict.programs, puzzle, case)
    text = f"{who} both store {element}: {SAME_VALUE}, but one program should store it"
    return Verdict("race", text, conflict.site)


def _stored_twice(puzzle: Puzzle, case: Case, conflict: Conflict) -> Verdict:
    """Return the verdict on a program that stores an element twice of a result that is stored once."""
    shape = next(r.shape(case.numbers) for r in puzzle.results if r.name == conflict.argument)
    element = f"{conflict.argument}[{index_of(conflict.element, shape)}]"
    who = the_program(conflict.programs[0], puzzle, case)
    text = f"{who} stores {element} more than once: the values are correct, but one store is enough"
    advice = f"is the store in a loop? Keep the result in a variable, and store {conflict.argument} after it"
    return Verdict("stores", text, conflict.site, advice)
