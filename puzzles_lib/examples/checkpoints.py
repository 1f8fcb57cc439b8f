"""Save checkpoints of a training run on any number of ranks; each is either complete or absent.

    FOLDER/step-00000020/           torch.distributed.checkpoint's files, and run.json
    FOLDER/step-00000040.partial/   being written, or left by a run that died; the next save removes it

A checkpoint is written under its partial name and renamed when all ranks have written all of it. It
contains the model and the optimizer, by the names of the unwrapped model, so DDP, FSDP2 and a single
process can read each other's. It also contains the state of each rank's random numbers. Only resume from
your own checkpoints: torch reads the list of tensors with pickle, which can run any code.
"""

import json
import os
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

KEPT = 2  # the number of checkpoints that are kept, the newest ones
RUN = "run.json"
PARTIAL = ".partial"


def save(
    folder: Path, step: int, model: nn.Module, optimiser: torch.optim.Optimizer, run: dict[str, Any]
) -> Path:
    """Save what is needed to resume after ``step`` steps, and return the folder. All ranks call it.

    run: what `load` gives back, as JSON. Older checkpoints except the last are removed. Raises OSError if the
    checkpoint cannot be written; the older ones then stay.
    """
    whole = folder / f"step-{step:08d}"
    partial = whole.with_name(whole.name + PARTIAL)
    first = _rank() == 0
    if first:
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f"step-*{PARTIAL}"):
            shutil.rmtree(left)
        partial.mkdir()
    _barrier()
    try:
        with _alone_or_not() as alone:
            dcp.save(_state(model, optimiser), checkpoint_id=partial, no_dist=alone)
    except CheckpointException as error:
        raise OSError(f"{partial} could not be written: {_reason(error)}") from error
    if first:
        _write(partial / RUN, json.dumps({**run, "step": step}))
        if whole.exists():  # it is damaged, or this run would have started from it
            shutil.rmtree(whole)
        os.rename(partial, whole)
        _sync(folder)
        for old in checkpoints(folder)[:-KEPT]:
            shutil.rmtree(old)
    _barrier()
    return whole


def load(path: Path, model: nn.Module, optimiser: torch.optim.Optimizer) -> None:
    """Load a checkpoint into the model, the optimizer and this rank's random numbers. All ranks call it.

    A rank without a state in the checkpoint keeps its random numbers.
    Raises OSError if the checkpoint cannot be read.
    """
    state = _state(model, optimiser)
    known = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    if not any(name.startswith(f"{_random()}.") for name in known):
        del state[_random()]
    try:
        with _alone_or_not() as alone:
            dcp.load(state, checkpoint_id=path, no_dist=alone)
    except CheckpointException as error:
        raise OSError(f"{path} could not be read: {_reason(error)}") from error
    set_state_dict(model, optimiser, model_state_dict=state["model"], optim_state_dict=state["optimiser"])
    if _random() in state:
        torch.set_rng_state(state[_random()]["cpu"])
        if "cuda" in state[_random()]:
            torch.cuda.set_rng_state(state[_random()]["cuda"])


def newest(folder: Path) -> Path | None:
    """Return the newest complete checkpoint in a folder, or None. Rank 0 looks, and all get its answer."""
    found = [next((path for path in reversed(checkpoints(folder)) if is_whole(path)), None)]
    if dist.is_initialized():
        dist.broadcast_object_list(found)
    return found[0]


def checkpoints(folder: Path) -> list[Path]:
    """Return all checkpoints that are not partial, the oldest first."""
    return sorted(path for path in folder.glob("step-*") if not path.name.endswith(PARTIAL))


def is_whole(path: Path) -> bool:
    """Return whether all files of a checkpoint are there and have their full length."""
    try:
        read_run(path)
        for place in dcp.FileSystemReader(path).read_metadata().storage_data.values():
            if (path / place.relative_path).stat().st_size < place.offset + place.length:
                return False
    except Exception:  # damaged bytes may raise anything
        return False
    return True


def read_run(path: Path) -> dict[str, Any]:
    """Return what `save` got of the run, and its ``step``. Raise OSError or ValueError if it is damaged."""
    return json.loads((path / RUN).read_text())


def _state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    its, moments = get_state_dict(model, optimiser)
    numbers = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        numbers["cuda"] = torch.cuda.get_rng_state()
    return {"model": its, "optimiser": moments, _random(): numbers}


def _random() -> str:
    return f"random of rank {_rank()}"


@contextmanager
def _alone_or_not() -> Iterator[bool]:
    """Silence torch's warning if there is only this process."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "torch.distributed is disabled, unavailable or uninitialized")
        yield not dist.is_initialized()


def _rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def _barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def _reason(error: CheckpointException) -> str:
    """Return the first failure of any rank as a line."""
    rank, (failure, _) = next(iter(error.failures.items()))
    return f"rank {rank}: {type(failure).__name__}: {failure}".splitlines()[0]


def _write(path: Path, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync(folder: Path) -> None:
    """Write a folder to disk, so that a rename in it lasts."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
