"""Sockets in a folder for a Jupyter kernel, instead of ports.

Over TCP a port is found free, let go, and taken by the kernel half a second later: two kernels that start at
the same moment may be given the same one, and then one dies or never answers.
"""

import contextlib
import os
import tempfile
from collections.abc import Iterator

_LONGEST = 80  # bytes of a folder: the path of a socket may have 107, and some of them are the names below


@contextlib.contextmanager
def socket_prefix() -> Iterator[str]:
    """Yield the `ip` of a KernelManager with `transport="ipc"`: how the paths of one kernel's sockets begin.

    They are in a folder of their own, which is removed at the end. The path is absolute, because a kernel and
    its client seldom have the same current folder.
    """
    folder = os.path.abspath(tempfile.gettempdir())
    if len(os.fsencode(folder)) > _LONGEST:
        folder = "/tmp"
    with tempfile.TemporaryDirectory(prefix="kernel-", dir=folder, ignore_cleanup_errors=True) as own:
        yield f"{own}/socket"
