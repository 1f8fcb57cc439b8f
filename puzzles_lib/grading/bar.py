"""Show the progress of a run on standard error."""

import sys
import time

_WIDTH = 30
_OFTEN = 5.0  # seconds between two lines without a terminal, at first


class Bar:
    """A progress bar, which is redrawn on a terminal.

    Elsewhere it prints a line from time to time: every 5 seconds at first, then at longer and longer
    intervals, and at each tenth of the way.
    """

    def __init__(self, total: int):
        self._total = total
        self._done = 0
        self._kept = 0
        self._begun = self._drawn = time.monotonic()
        self._first: float | None = None  # when the first submission of this run was begun
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> "Bar":
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            print(file=sys.stderr)

    def begin(self) -> None:
        """Start the clock: the time left is estimated from what is done after this call."""
        if self._first is None:
            self._first = time.monotonic()

    def step(self, kept: bool = False) -> None:
        """Count one more as done. kept: whether an earlier run did it, so that it took no time."""
        self._done += 1
        self._kept += kept
        tenth = self._done * 10 // self._total > (self._done - 1) * 10 // self._total
        if self._terminal or tenth or self._is_time():
            self._draw()

    def say(self, words: str) -> None:
        """Print a line above the bar."""
        print(f"\r\033[K{words}" if self._terminal else words, file=sys.stderr)
        if self._terminal:
            self._draw()

    def count(self, words: str) -> None:
        """Show what is being prepared: next to the bar, or on a line of its own from time to time."""
        if self._terminal:
            self._draw(f": {words}")
        elif self._is_time():
            print(words, file=sys.stderr, flush=True)
            self._drawn = time.monotonic()

    def _is_time(self) -> bool:
        now = time.monotonic()
        return now - self._drawn >= max(_OFTEN, (now - self._begun) / 20)

    def _left(self) -> str:
        """How long the rest will take; "" if nothing was graded in this run that would tell."""
        graded = self._done - self._kept
        if not graded or self._first is None or self._done == self._total:
            return ""
        seconds = (time.monotonic() - self._first) / graded * (self._total - self._done)
        return f", about {seconds / 60:.0f} min left" if seconds >= 60 else f", about {seconds:.0f} s left"

    def _draw(self, words: str = "") -> None:
        full = _WIDTH * self._done // self._total
        text = f"[{'#' * full}{'.' * (_WIDTH - full)}] {self._done} of {self._total}{words or self._left()}"
        print(
            f"\r\033[K{text}" if self._terminal else text, end="" if self._terminal else "\n", file=sys.stderr
        )
        sys.stderr.flush()
        self._drawn = time.monotonic()
