"""Which kernels `run` launches."""

from collections.abc import Iterator
from contextlib import contextmanager

counting: list[list[object]] = []


@contextmanager
def launched() -> Iterator[list[object]]:
    """Yield a list that gets the kernel of each launch that `run` completes within the ``with`` block."""
    kernels: list[object] = []
    counting.append(kernels)
    try:
        yield kernels
    finally:
        del counting[next(i for i, each in enumerate(counting) if each is kernels)]
