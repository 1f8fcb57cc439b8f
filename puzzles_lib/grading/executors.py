"""Who does the work: any `concurrent.futures.Executor`, and what happens when its workers die."""

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
ATTEMPTS = 3  # to have a job done, where workers die of it or beside it
_PR_SET_PDEATHSIG = 1  # of prctl
AHEAD = 2  # jobs handed out for each worker: the others' notebooks are not read yet


def processes(workers: int) -> Factory:
    """Processes forked from this one, with all that it has imported and computed."""

    def factory() -> Executor:
        fork = multiprocessing.get_context("fork")
        return concurrent.futures.ProcessPoolExecutor(workers, mp_context=fork, initializer=_be_worker)

    return factory


_busy = False


def _be_worker() -> None:
    """Ctrl-C ends the job and nothing else; where the parent is killed, this is, too."""
    signal.signal(signal.SIGINT, _interrupt)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _interrupt(signum: int, frame: object) -> None:
    if _busy:
        raise KeyboardInterrupt


def graded(job: Job) -> dict[str, Any]:
    """`grade`, as an executor's worker calls it."""
    global _busy
    _busy = True
    try:
        return grade(job)
    finally:
        _busy = False


def named(text: str) -> Factory:
    """The factory that ``MODULE:NAME`` names. Raises ValueError where it names none."""
    module, _, name = text.partition(":")
    try:
        factory = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"--executor {text}: {error}; a form such as my_cluster:executor is wanted"
        ) from None
    if not callable(factory):
        raise ValueError(f"--executor {text}: it is no function that gives an executor")
    return factory


def work(
    jobs: Iterable[Job], factory: Factory, ahead: int
) -> Iterator[tuple[Job, dict[str, Any] | Exception]]:
    """Each job with its grade, in the order in which they are done, or with why there is none.

    ahead: jobs that are handed out at a time. Where an executor breaks, since a worker was killed, another is
    made and what it had not done is done again, each job `ATTEMPTS` times at most: so a submission that kills
    its workers ends as a failure of its own, and costs the others nothing but time.
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
                # After a break one at a time, so that it is known who breaks it.
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
            if interrupted:  # the interpreter would wait for their jobs before it ends, lock and all
                for child in multiprocessing.active_children():
                    child.terminate()


def _next(again: list[Job], todo: Iterator[Job]) -> Job | None:
    return again.pop(0) if again else next(todo, None)
