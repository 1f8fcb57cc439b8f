"""Show the progress of a run on standard error."""

import sys
import time

_WIDTH = 30


class Bar:
    """A progress bar in a terminal; elsewhere a line for each tenth of the work."""

    def __init__(self, total: int):
        self._total = total
        self._done = 0
        self._begun = time.monotonic()
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> "Bar":
        self._draw()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            print(file=sys.stderr)

    def step(self) -> None:
        """Count one more as done."""
        self._done += 1
        if self._terminal or self._done * 10 // self._total > (self._done - 1) * 10 // self._total:
            self._draw()

    def say(self, words: str) -> None:
        """Write a line above the bar."""
        print(f"\r\033[K{words}" if self._terminal else words, file=sys.stderr)
        if self._terminal:
            self._draw()

    def _draw(self) -> None:
        full = _WIDTH * self._done // self._total
        left = ""
        if 0 < self._done < self._total:
            seconds = (time.monotonic() - self._begun) / self._done * (self._total - self._done)
            left = (
                f", about {seconds / 60:.0f} min left" if seconds >= 60 else f", about {seconds:.0f} s left"
            )
        text = f"[{'#' * full}{'.' * (_WIDTH - full)}] {self._done} of {self._total}{left}"
        print(
            f"\r\033[K{text}" if self._terminal else text, end="" if self._terminal else "\n", file=sys.stderr
        )
        sys.stderr.flush()
