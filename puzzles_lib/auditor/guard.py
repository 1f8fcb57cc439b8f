"""Choose what an audit looks for, and how much time it may take."""

from collections.abc import Collection
from dataclasses import dataclass, fields

MORE = "Guard(seconds=...) allows more"


def guard_of(guard: "Guard | None", caller: str) -> "Guard":
    """Return a guard, or the default one for None. Raises TypeError for anything else."""
    if guard is not None and not isinstance(guard, Guard):
        raise TypeError(f"{caller}: guard must be a Guard, such as Guard(sizes=False), but is {guard!r}")
    return guard or Guard()


@dataclass(frozen=True)
class Guard:
    """What an audit looks for, and how.

    Every switch is on by default, except ``hard``, ``contiguous``, ``resident`` and ``strict``. A test that
    ``pytest --audit`` runs can have its own: ``@pytest.mark.audit(races=False, seconds=30)``.

        audit(softmax, x, guard=Guard(races=False, seconds=30))

    races: run the programs in reverse order, too, and look for accesses of threads and atomics that nothing
        orders.
    undefined: look for uses of undefined lanes and elements.
    unwritten: in a call of `audit`, the kernel's parameters for results that may be left partly unwritten on
        purpose, such as ``("Out",)``. Elements that nothing writes are then no finding, and aren't compared.
    hints: look for `tl.multiple_of` and similar hints that are false and do harm.
    sizes: in a call of `audit`, pretend that each size is so large that offsets pass 2**31.
    hard: in a call of `audit`, also try hard inputs: zeros, infinities, NaN, ties, padded rows, ... This is
        the same as ``audit(..., hard=True)``.
    contiguous: True if the function only ever gets contiguous tensors, or the names of arguments that are
        contiguous, such as ``("x", "w")``. Hard inputs then don't pad, transpose or repeat their rows, or
        spread their elements.
    resident: all programs of a grid run at the same time, so that each may wait for any other. This is the
        same as ``audit(..., resident=True)``. A launch with ``launch_cooperative_grid=True`` promises it by
        itself.
    bounds: which elements a kernel may touch. ``"view"``: those of the tensor that it is given.
        ``"storage"``: also those between and around them in the same allocation.
    configurations: try every configuration of `triton.autotune`, not only the first that can be launched.
    strict: report waste and imprecision as findings, and not only as notes. Programs are wasteful if they
        store the same values to the same elements. A kernel is imprecise if it adds up numbers in float16 or
        bfloat16, in a loop or 16 and more at once. It is also imprecise if it stores an element in one of
        these dtypes, loads it again, and updates it. A random number that two programs, or two iterations of
        a loop, use for different elements is reported, too.
    seconds: the CPU time for one launch. If a grid needs more, only its edges and a random sample of programs
        run. All configurations of an autotuned launch share four times as much. The report counts the
        configurations for which no time is left. Launches at enlarged sizes get 0.7 s, and proportionally
        more if ``seconds`` is above 5.

    Raises TypeError if a switch is not True or False, and ValueError for any other ``bounds`` and for
    ``seconds`` that is not a number above 0.
    """

    races: bool = True
    undefined: bool = True
    unwritten: Collection[str] = ()
    hints: bool = True
    sizes: bool = True
    hard: bool = False
    contiguous: bool | Collection[str] = False
    resident: bool = False
    bounds: str = "view"
    configurations: bool = True
    strict: bool = False
    seconds: float = 5.0

    def keeps_strides(self, argument: str) -> bool:
        """Return whether an argument is contiguous by contract. A tensor in a list is called ``x[0]``."""
        if isinstance(self.contiguous, bool):
            return self.contiguous
        return argument in self.contiguous or argument.partition("[")[0] in self.contiguous

    @property
    def patience(self) -> float:
        """By how much to multiply other limits of time: 1 or more."""
        return max(1.0, self.seconds / Guard.seconds)

    def __post_init__(self) -> None:
        if self.bounds not in ("view", "storage"):
            raise ValueError(f"Guard: bounds must be 'view' or 'storage', but is {self.bounds!r}")
        switches = [each.name for each in fields(self) if each.type is bool or each.type == "bool"]
        for switch in switches:
            if not isinstance(value := getattr(self, switch), bool):
                raise TypeError(f"Guard: {switch} must be True or False, but is {value!r}")
        if not isinstance(self.contiguous, bool) and not _are_names(self.contiguous):
            raise TypeError(
                "Guard: contiguous must be True, False or a list of arguments' names, "
                f"but is {self.contiguous!r}"
            )
        if not _are_names(self.unwritten):
            raise TypeError(
                f"Guard: unwritten must be a list of parameters' names, but is {self.unwritten!r}"
            )
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not is_number or not 0 < self.seconds < float("inf"):
            raise ValueError(f"Guard: seconds must be a number above 0, but is {self.seconds!r}")


def _are_names(given: object) -> bool:
    """Return whether something is a list of names, or another collection of them, but not a string."""
    return isinstance(given, list | tuple | set | frozenset) and all(type(each) is str for each in given)
