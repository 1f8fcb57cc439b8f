"""Run the jobs on any `concurrent.futures.Executor`, even if its workers die."""

import concurrent.futures
import ctypes
import importlib
import multiprocessing
import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from typing import Any

from puzzles_lib.grading.grade import Job, grade

Factory = Callable[[], Executor]
ATTEMPTS = 3  # how often a job is tried if workers die, perhaps because of it
_PR_SET_PDEATHSIG = 1  # an option of prctl
AHEAD = 2  # jobs handed out per worker; the notebooks of later jobs are not read yet


def processes(workers: int) -> Factory:
    """Return an executor of processes forked from this one, with all that it has imported and computed."""

    def factory() -> Executor:
        fork = multiprocessing.get_context("fork")
        return concurrent.futures.ProcessPoolExecutor(workers, mp_context=fork, initializer=_be_worker)

    return factory


_busy = False


def _be_worker() -> None:
    """Let Ctrl-C end only the job, and end this process if its parent is killed."""
    signal.signal(signal.SIGINT, _interrupt)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _interrupt(signum: int, frame: object) -> None:
    if _busy:
        raise KeyboardInterrupt


def graded(job: Job) -> dict[str, Any]:
    """Return the grade of a job; an executor's worker calls this."""
    global _busy
    _busy = True
    try:
        return grade(job)
    finally:
        _busy = False


def named(text: str) -> Factory:
    """Return the factory that ``MODULE:NAME`` names. Raise ValueError if it names none."""
    module, _, name = text.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f"--executor {text}: {error}; expected a form such as my_cluster:executor") from None
    if not callable(factory):
        raise ValueError(f"--executor {text}: this is not a function that returns an executor")
    return factory


def work(
    jobs: Iterable[Job], factory: Factory, ahead: int
) -> Iterator[tuple[Job, dict[str, Any] | Exception]]:
    """Yield each job with its grade, or with the reason why it has none, in the order of completion.

    ahead: how many jobs are handed out at a time. If an executor breaks because a worker was killed, another
    one does the unfinished jobs again, each at most `ATTEMPTS` times. So a submission that kills its workers
    fails by itself, and only costs the others time.
    """
    todo = iter(jobs)
    tries: dict[str, int] = {}
    again: list[Job] = []
    while True:
        executor = factory()
        running: dict[Future[dict[str, Any]], Job] = {}
        broken = interrupted = False
        try:
            while not broken:
                # After a break, one job at a time, to find out which one breaks it.
                while len(running) < (1 if again else ahead) and (job := _next(again, todo)):
                    tries[job.key] = tries.get(job.key, 0) + 1
                    running[executor.submit(graded, job)] = job
                if not running:
                    return
                done, _ = concurrent.futures.wait(running, return_when=concurrent.futures.FIRST_COMPLETED)
                for future in done:
                    job = running.pop(future)
                    try:
                        outcome: dict[str, Any] | Exception = future.result()
                    except BrokenExecutor as error:
                        broken = True
                        if tries[job.key] < ATTEMPTS:
                            again.append(job)
                            continue
                        outcome = error
                    except Exception as error:
                        outcome = error
                    yield job, outcome
            again += running.values()
        except BaseException:
            interrupted = True
            raise
        finally:
            for future in running:
                future.cancel()
            executor.shutdown(wait=not (broken or interrupted))
            if (
                interrupted
            ):  # otherwise the interpreter would wait for their jobs at its end, with the lock held
                for child in multiprocessing.active_children():
                    child.terminate()


def _next(again: list[Job], todo: Iterator[Job]) -> Job | None:
    return again.pop(0) if again else next(todo, None)
