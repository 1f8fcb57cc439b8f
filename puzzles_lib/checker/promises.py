"""Find false hints to the compiler that a load or store relies on.

A guarded run shows which hints are false for the values, and the PTX shows what the compiler does with
them. Only a kernel with such a hint is compiled, for NVIDIA's target alone: that takes about 0.4 s, and the
result is kept on disk.
"""

from collections.abc import Callable, Sequence

from puzzles_lib.binding import Bound
from puzzles_lib.checker.naming import index_of
from puzzles_lib.checker.report import Verdict
from puzzles_lib.compiler import find_target, taken_at_once
from puzzles_lib.runner import Harm, Options, Promise, Run
from puzzles_lib.source import Refusal

_TARGET = find_target("sm_90")


def of_hints(bound: Bound, ran: Run, run: Callable[[Options], Run]) -> Verdict | None:
    """Return the verdict on the harm that a run's false hints do on a GPU; None if they do none.

    ran: a run of the bound kernel. run: repeats that run with other options.
    If the kernel does not compile to PTX, the hint is a fault by itself.
    """
    if not ran.promises:
        return None
    found = taken_at_once(bound.kernel, bound.arguments, _TARGET, bound.num_warps)
    if isinstance(found, Refusal):
        return _false_hint(ran.promises, None)
    harm = run(Options(at_once=found, quiet=True)).harm
    return _false_hint(ran.promises, harm) if harm else None


_HARM = {  # reason -> the hint to blame, and what the compiler does because of it
    "mask": ("max_constancy", "by the first lane's mask, but some of them are masked off"),
    "apart": ("max_contiguous", "from the first lane's address, but their addresses are not contiguous"),
    "misaligned": ("multiple_of", "from an address that is not such a multiple, and fails"),
}


def _false_hint(promises: Sequence[Promise], harm: Harm | None) -> Verdict:
    """Return the verdict on a false hint, with what the compiler does because of it."""
    blamed, done = _HARM[harm.why] if harm else ("", "")
    promise = next((each for each in promises if each.hint == blamed), promises[0])
    sizes = promise.sizes[0] if len(promise.sizes) == 1 else list(promise.sizes)
    text = f"false hint: tl.{promise.hint}(..., {sizes}), but {promise.found}"
    others = sorted({each.site.line for each in promises if each.site != promise.site})
    if others:
        text += f"; the hint on line {others[0]} is false, too"
    cure = "leave the hint out, or make it true"
    if harm:
        first, last = (index_of(lane, harm.shape) for lane in (harm.lanes[0], harm.lanes[-1]))
        lanes = f"{first} to {last}" if len(harm.shape) == 1 else f"[{first}] to [{last}]"
        cure = f"a GPU {_DOES[harm.kind]} lanes {lanes} of line {harm.site.line} at once, {done}; {cure}"
    return Verdict("false hint", text, promise.site, cure)


_DOES = {"load": "loads", "store": "stores", "atomic": "updates"}
