"""How many files this process has open."""

import os
import time

PATIENCE = 30  # seconds


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def no_more_are_open_than(before: int) -> bool:
    """Whether a test has left none open.

    Fewer may be: earlier tests' are closed when somebody sees to it. A thread may be reading one just now,
    such as the clock of a run that has ended: that is soon over.
    """
    deadline = time.monotonic() + PATIENCE
    while open_files() > before:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
