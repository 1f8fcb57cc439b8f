"""End a run when a signal arrives: after its step, or with a message if another rank never arrives."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType

PATIENCE = 20  # in seconds; torchrun kills a process 30 seconds after its SIGTERM


class Leaving:
    """A context in which SIGTERM and Ctrl-C are only noted in ``signals``; a second one acts immediately.

    A process that waits in a collective for a rank that died runs no handler of Python's, and under NCCL
    waits for long. So while ``in_step`` is true, `PATIENCE` seconds after a signal, a thread ends the
    process with status 1 and the line that ``lost`` returns.
    """

    def __init__(self, lost: Callable[[], str]) -> None:
        self.signals: list[int] = []
        self.in_step = False
        self._lost = lost
        self._left = threading.Event()

    def __enter__(self) -> "Leaving":
        self._before = {
            number: signal.signal(number, self._note) for number in (signal.SIGTERM, signal.SIGINT)
        }
        reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._woken = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread = threading.Thread(target=self._watch, args=(reader,), daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._left.set()
        signal.set_wakeup_fd(self._woken)
        os.close(self._writer)
        self._thread.join()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        signal.signal(number, self._before[signal.Signals(number)])

    def _watch(self, reader: int) -> None:
        """Watch for signals. Python writes each signal's number at once, whatever the main thread does."""
        while (come := os.read(reader, 1)) and come[0] not in (signal.SIGTERM, signal.SIGINT):
            pass
        while come and not self._left.wait(PATIENCE):
            if self.in_step:
                sys.stderr.write(f"error: {self._lost()}\n")
                sys.stderr.flush()
                os._exit(1)
        os.close(reader)
