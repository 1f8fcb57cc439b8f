"""Do work in a forked process, so that its changes do not reach this process.

An audit calls a function again and again, with sizes that are only pretended and with NaN in the inputs. A
function may keep something between calls, such as a workspace in a global variable. These trials must not
change that.
"""

import contextlib
import io
import os
import pickle
import signal
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch

from puzzles_lib.auditor.catching import one_thread

T = TypeVar("T")


class Ended(Exception):
    """The process has ended without a result. The message says how."""


def aside(work: Callable[[], T]) -> T:
    """Call ``work`` in a forked process, and return its result, which must be picklable.

    Raises what ``work`` raises, and `Ended` if the process ends too early. If no process can be made,
    ``work`` is called here.
    """
    read, write = os.pipe()
    try:
        with one_thread(), _quiet():
            child = _forked(work, read, write)
    except OSError:
        os.close(read)
        os.close(write)
        return work()
    os.close(write)
    try:
        with open(read, "rb") as pipe:
            told = pipe.read()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        raise
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not told:
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        raise Ended(f"the process that tries other inputs ended {how}")
    result, error = pickle.loads(told)
    if error is not None:
        raise error
    return result


def _forked(work: Callable[[], Any], read: int, write: int) -> int:
    """Return the number of a child that does the work and writes what comes of it, and never returns."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    try:
        os.close(read)
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        torch.set_num_threads(1)  # OpenMP's threads are not there after a fork
        told = _told(work)
        sys.stdout.flush()
        with open(write, "wb") as pipe:
            pipe.write(told)
    finally:
        os._exit(0)  # nothing of this process is to be undone or written twice


def _told(work: Callable[[], Any]) -> bytes:
    """What comes of the work: its result or its error, as bytes."""
    try:
        return pickle.dumps((work(), None))
    except BaseException as error:
        error.add_note("".join(traceback.format_tb(error.__traceback__)))
        told = io.BytesIO()
        with contextlib.suppress(Exception):
            pickle.loads(pickle.dumps(error))  # some can be pickled, and not be read again
            pickle.dump((None, error), told)
            return told.getvalue()
        return pickle.dumps((None, RuntimeError(f"{type(error).__name__}: {error}")))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Python 3.12 warns of threads in a process that is forked."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield
