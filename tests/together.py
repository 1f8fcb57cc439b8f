"""Several processes that train together, on gloo: forks of one that has imported torch, which is quick."""

import multiprocessing
import os
import pickle
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["puzzles_lib.examples.train_vit", "puzzles_lib.kernels.modules"])


def together(work: Callable, *arguments: Any, folder: Path, count: int = 2) -> list[Any]:
    """What ``work(rank, *arguments)`` gives on each rank, by rank; a function of a module, as pickle wants.

    They find each other by a file in ``folder``. Raises AssertionError with the traceback of the first rank
    that failed, or the exit status of one that died.
    """
    store = folder / f"store-{len(list(folder.glob('store-*')))}"
    pipes = [CONTEXT.Pipe(duplex=False) for _ in range(count)]
    ranks = [
        CONTEXT.Process(target=_run, args=(work, arguments, rank, count, store, pipe))
        for rank, (_, pipe) in enumerate(pipes)
    ]
    for rank, (_, pipe) in zip(ranks, pipes, strict=True):
        rank.start()
        pipe.close()
    found = [_receive(pipe) for pipe, _ in pipes]
    for rank in ranks:
        rank.join()
    failed = [text for good, text in found if not good and text]
    assert not failed, "\n".join(failed)
    assert all(good for good, _ in found), [rank.exitcode for rank in ranks]
    return [value for _, value in found]


def _receive(pipe: Connection) -> tuple[bool, Any]:
    try:
        return pickle.loads(pipe.recv_bytes())
    except EOFError:  # it died
        return False, ""


def _run(work: Callable, arguments: tuple, rank: int, count: int, store: Path, pipe: Connection) -> None:
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    where = {"init_method": f"file://{store}", "rank": rank, "world_size": count}
    try:
        dist.init_process_group("gloo", **where, timeout=timedelta(minutes=5))
        pipe.send_bytes(pickle.dumps((True, work(rank, *arguments))))  # `send` would share tensors
        dist.destroy_process_group()
    except BaseException:
        pipe.send_bytes(pickle.dumps((False, traceback.format_exc())))
