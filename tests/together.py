"""Several processes that train together, on gloo: forks of the test's own, which has imported torch.

Where there is a GPU, torch has threads for it after its first backward, and then forks can't train. There
they begin anew, and each imports torch.
"""

import multiprocessing
import os
import pickle
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

PATIENCE = 120  # seconds that a rank waits for another, and the test for them all


def together(work: Callable, *arguments: Any, folder: Path, count: int = 2) -> list[Any]:
    """What ``work(rank, *arguments)`` gives on each rank, by rank; a function and what it is given.

    They find each other by a file in ``folder``. Raises AssertionError with the traceback of the first rank
    that failed, or the exit status of one that died.
    """
    import torch

    context = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    store = folder / f"store-{len(list(folder.glob('store-*')))}"
    ranks, pipes = [], []
    for rank in range(count):
        reader, writer = context.Pipe(duplex=False)
        ranks.append(context.Process(target=_run, args=(work, arguments, rank, count, store, writer)))
        ranks[-1].start()
        writer.close()  # before the next rank is forked: the end of this one is the end of the pipe
        pipes.append(reader)
    deadline = time.monotonic() + 2 * PATIENCE
    found = [_receive(pipe, deadline) for pipe in pipes]
    for rank in ranks:
        rank.join(max(deadline - time.monotonic(), 1))
        rank.kill()
        rank.join()
    failed = [text for good, text in found if not good and text]
    assert not failed, "\n".join(failed)
    assert all(good for good, _ in found), [rank.exitcode for rank in ranks]
    return [value for _, value in found]


def _receive(pipe: Connection, deadline: float) -> tuple[bool, Any]:
    if not pipe.poll(max(deadline - time.monotonic(), 0)):
        return False, "it does not end"
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:  # it died
        return False, ""


def _run(work: Callable, arguments: tuple, rank: int, count: int, store: Path, pipe: Connection) -> None:
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    where = {"init_method": f"file://{store}", "rank": rank, "world_size": count}
    try:
        dist.init_process_group("gloo", **where, timeout=timedelta(seconds=PATIENCE))
        pipe.send_bytes(pickle.dumps((True, work(rank, *arguments))))  # `send` would share tensors
        dist.destroy_process_group()
    except BaseException:
        pipe.send_bytes(pickle.dumps((False, traceback.format_exc())))
