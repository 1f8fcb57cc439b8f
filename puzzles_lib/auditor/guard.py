"""Choose what an audit looks for, and how much time it may take."""

from dataclasses import dataclass


def guard_of(guard: "Guard | None", caller: str) -> "Guard":
    """Return a guard, or the default one for None. Raises TypeError for anything else."""
    if guard is not None and not isinstance(guard, Guard):
        raise TypeError(f"{caller}: guard is {guard!r}, allowed is a Guard, such as Guard(sizes=False)")
    return guard or Guard()


@dataclass(frozen=True)
class Guard:
    """Named switches of an audit. All are on by default, except hard inputs and a resident grid.

        audit(softmax, x, guard=Guard(races=False, seconds=30))

    races: run the programs in reverse order too, and look for threads and atomics that nothing orders.
    undefined: lanes and elements that hold nothing.
    hints: `tl.multiple_of` and the like, where they are not true.
    sizes: in a call of `audit`, pretend each size so large that offsets pass 2**31.
    hard: in a call of `audit`, also try hard inputs: zeros, infinities, NaN, ties, padded rows, ...
    resident: all programs of a grid run at the same time, as a launch with ``launch_cooperative_grid=True``
        promises by itself, so that each may wait for any other.
    bounds: ``"view"``: a kernel may touch the elements of the tensor that it is given; ``"storage"``: also
        what lies between and around them in the same allocation.
    configurations: try every configuration of `triton.autotune`, not only the first that can be launched.
    seconds: the CPU time of one launch. A larger grid is sampled: its edges and programs at random. All
        configurations of an autotuned launch share four times as much; the report counts those for which no
        time is left.
    """

    races: bool = True
    undefined: bool = True
    hints: bool = True
    sizes: bool = True
    hard: bool = False
    resident: bool = False
    bounds: str = "view"
    configurations: bool = True
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if self.bounds not in ("view", "storage"):
            raise ValueError(f"Guard: bounds is {self.bounds!r}, allowed are 'view' and 'storage'")
        for switch in ("races", "undefined", "hints", "sizes", "hard", "resident", "configurations"):
            if not isinstance(value := getattr(self, switch), bool):
                raise TypeError(f"Guard: {switch} is {value!r}, allowed are True and False")
        is_number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not is_number or not 0 < self.seconds < float("inf"):
            raise ValueError(f"Guard: seconds is {self.seconds!r}, allowed is any number above 0")
