"""Wait for a forked process of a test's own, not forever."""

import os
import signal
import time

PATIENCE = 120  # seconds: only a process that hangs takes so long


def fetched(child: int, patience: float = PATIENCE) -> int:
    """Return the status of a child of this process. One that does not end in time is killed."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return status
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]
