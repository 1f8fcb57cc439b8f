"""The exercises of chapter 21. They have no puzzle, so `hint` takes these instead."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Task:
    """An exercise that has hints. name: as `hint` shows it."""

    name: str

    @property
    def hint_key(self) -> tuple[str, str]:
        """Return the key of the exercise's hints, for `puzzles_lib.hint`."""
        return self.name, ""


NORM_FIX = Task("norm_fix")
COPY_LAUNCH = Task("copy_launch")
COPY_FIX = Task("copy_fix")
REFERENCE = Task("reference")
LOSS_FIX = Task("loss_fix")
REFUSALS = Task("refusals")
ARGMAX_FIX = Task("argmax_fix")

TASKS = (NORM_FIX, COPY_LAUNCH, COPY_FIX, REFERENCE, LOSS_FIX, REFUSALS, ARGMAX_FIX)
"""In the notebook's order."""
