"""Train a vision transformer, alone or on several ranks. A step's computation depends only on its number.

The batch is drawn by seed and step, rounding by step and rank, and kernels are the deterministic ones (see
`deterministic`). So a resumed run has bit for bit the losses of an uninterrupted one; only dropout's
random numbers have a state, which checkpoints contain.
"""

import os
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from puzzles_lib.examples import checkpoints
from puzzles_lib.examples.images import COUNT, Images, digits, order, synthetic
from puzzles_lib.examples.leaving import Leaving
from puzzles_lib.examples.replayed import Replayed
from puzzles_lib.examples.vit import ViT
from puzzles_lib.kernels.bitpack import check_bits
from puzzles_lib.kernels.modules import pack_activations, seed_rounding
from puzzles_lib.kernels.rounding import check_rounding

SMALL = {"side": 8, "patch": 2, "channels": 1, "width": 64, "depth": 2, "heads": 4, "classes": 10}
PARALLEL = ("ddp", "fsdp")


@dataclass(frozen=True)
class Config:
    """The configuration of a run. A checkpoint can only be resumed with the same one.

    size: digits or base. bits, rounding: those of `pack_activations`; no bits for torch's own layers, no
    rounding for its default. batch: images per step, on all ranks together. lr: that of AdamW, reached within
    ten steps.
    dtype: that of autocast. compile: whether torch.compile compiles each block.
    """

    size: str = "digits"
    bits: int | None = 2
    rounding: str | None = None
    batch: int = 50
    lr: float = 3e-3
    dropout: float = 0.0
    dtype: str = "float32"
    compile: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Raise ValueError for an impossible configuration."""
        if self.size not in COUNT:
            raise ValueError(f"size must be {' or '.join(COUNT)}, but is {self.size!r}")
        if self.bits is not None:
            check_bits(self.bits)
        if self.rounding is not None:
            check_rounding(self.rounding)
        if self.dtype not in ("float32", "bfloat16"):
            raise ValueError(f"dtype must be float32 or bfloat16, but is {self.dtype!r}")
        _at_least("seed", self.seed, 0)
        if not self.lr > 0:
            raise ValueError(f"lr must be a number above 0, but is {self.lr}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, but is {self.dropout}")
        most = COUNT[self.size]
        if not 1 <= self.batch <= most:
            raise ValueError(
                f"batch must be from 1 to {most}, the images of {self.size}, but is {self.batch}"
            )

    def images(self) -> Images:
        return digits()[0] if self.size == "digits" else synthetic()

    def model(self) -> ViT:
        torch.manual_seed(self.seed)
        model = ViT(**(SMALL if self.size == "digits" else {}), dropout=self.dropout)
        if self.bits is not None:
            rounding: dict[str, Any] = {} if self.rounding is None else {"rounding": self.rounding}
            pack_activations(model, self.bits, **rounding)
        if self.compile:
            for (
                block
            ) in model.blocks:  # not the module, so that FSDP2's hooks and the names of weights stay outside
                block.forward = torch.compile(block.forward, fullgraph=True, dynamic=False)
        return model

    def text(self) -> str:
        if self.bits is None:
            return f"{self.size}, torch's layers"
        return f"{self.size}, packed into {self.bits} bit{'s' * (self.bits != 1)}"


@dataclass(frozen=True)
class Ranks:
    """This process among those that train together."""

    device: torch.device
    rank: int = 0
    count: int = 1
    parallel: str | None = None

    def text(self) -> str:
        name = "GPU" if self.device.type == "cuda" else "process"
        many = f"{self.count} {name}{('es' if name == 'process' else 's') * (self.count != 1)}"
        return many + (f" ({self.parallel})" if self.parallel else "")

    def share(self, chosen: torch.Tensor) -> torch.Tensor:
        """Return this rank's part of a batch."""
        return chosen.chunk(self.count)[self.rank] if self.count > 1 else chosen


class RankLost(RuntimeError):
    """Another rank is gone."""


class LossLost(ArithmeticError):
    """The loss is no longer a number."""


@dataclass
class Run:
    """The results of a run, and its model. losses, seconds, peaks (bytes): one for each step since step 0.

    Peaks are those of the GPU's allocator on rank 0, 0 on a CPU. stopped: the signal that stopped the run, if
    any. replayed: the CUDA graph that computes loss and gradients; None if the host launches each kernel.
    """

    config: Config
    model: nn.Module
    losses: list[float]
    seconds: list[float]
    peaks: list[int]
    saved: Path | None = None
    stopped: int | None = None
    replayed: Replayed | None = None

    def images_per_second(self) -> float:
        """Return the images per second of the median step, among the steps that compiled no kernel."""
        times = sorted(self.seconds[min(3, len(self.seconds) - 1) :])
        return self.config.batch / times[len(times) // 2]


def deterministic() -> None:
    """Use kernels that return the same bits each time. Call it before the first step on a GPU."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # takes time
    torch.backends.cuda.enable_cudnn_sdp(
        False
    )  # for attention: torch's flash attention has a deterministic backward


def train(
    config: Config,
    steps: int,
    ranks: Ranks,
    folder: Path | None = None,
    save_every: int = 0,
    resume: bool = False,
    graph: bool = False,
    quiet: bool = True,
) -> Run:
    """Train until ``steps`` steps are done. All ranks call it, each with its `Ranks`.

    folder: for checkpoints, one every ``save_every`` steps (0: none) and one at the end. resume: continue
        from the newest complete one in it. graph: replay forward and backward as a CUDA graph, with the
        same losses.
    quiet: without a progress bar.

    Raises ValueError for arguments that do not fit together. Raises FileNotFoundError if there is nothing
    to resume, and FileExistsError if there is something without ``resume``. Raises OSError if a checkpoint
    cannot be written or read, RankLost if another rank died, and LossLost if the loss is not a number.
    """
    _at_least("steps", steps, 1)
    _at_least("save_every", save_every, 0)
    if config.batch % ranks.count:
        raise ValueError(
            f"batch must be a multiple of {ranks.count} on {ranks.count} ranks, but is {config.batch}"
        )
    if graph and (ranks.device.type != "cuda" or ranks.parallel == "fsdp"):
        where = f"{ranks.device.type} with {ranks.parallel or 'one process'}"
        raise ValueError(f"graph needs a GPU, alone or with ddp, but is given on {where}")
    found = _to_resume(config, steps, folder, save_every, resume)
    stream = torch.cuda.Stream(ranks.device) if graph else None
    with torch.cuda.stream(stream) if stream else nullcontext():
        model = _parallel(config.model().to(ranks.device), ranks)
    seed_rounding(model, 0)  # the seeds that each step sets have to be there when a graph is captured
    optimiser = torch.optim.AdamW(model.parameters(), lr=config.lr, fused=ranks.device.type == "cuda")
    images = config.images().to(ranks.device)
    if ranks.parallel == "ddp":
        _settle(model, config, ranks, images)
    torch.manual_seed(2**20 * config.seed + ranks.rank)  # the seed of dropout
    run = Run(config, model, [], [], [], saved=found)
    if found:
        checkpoints.load(found, model, optimiser)
        before = checkpoints.read_run(found)
        run.losses, run.seconds, run.peaks = (before[name] for name in ("losses", "seconds", "peaks"))
        if (before["ranks"], before["parallel"]) != (ranks.count, ranks.parallel) and ranks.rank == 0:
            was = replace(ranks, count=before["ranks"], parallel=before["parallel"]).text()
            tqdm.write(
                f"{found} was saved by {was}, but this run has {ranks.text()}: "
                "losses will differ in the last bits"
            )
    if stream:
        some = images.take(torch.arange(config.batch // ranks.count, device=ranks.device))
        run.replayed = Replayed(model, partial(loss_of, model, config), *some, stream=stream)
    start = len(run.losses)
    bar = tqdm(
        range(start, steps),
        config.text(),
        initial=start,
        total=steps,
        disable=quiet or ranks.rank > 0 or None,
        leave=False,
    )
    with Leaving(lambda: _lost(run, ranks)) as leaving:
        for step in bar:
            with _naming_who_is_lost(run, ranks):
                leaving.in_step = ranks.count > 1
                take_step(run, images, optimiser, ranks, step)
                stopping, done = _any(bool(leaving.signals), ranks), step + 1
                leaving.in_step = False
                if folder and (stopping or done == steps or save_every and done % save_every == 0):
                    told = {"config": asdict(config), "ranks": ranks.count, "parallel": ranks.parallel}
                    told |= {"losses": run.losses, "seconds": run.seconds, "peaks": run.peaks}
                    run.saved = checkpoints.save(folder, done, model, optimiser, told)
            if stopping:
                run.stopped = leaving.signals[0] if leaving.signals else signal.SIGTERM
                break
    return run


def take_step(run: Run, images: Images, optimiser: torch.optim.Optimizer, ranks: Ranks, step: int) -> None:
    """Train on one batch, and record the results."""
    config, began = run.config, time.perf_counter()
    on_gpu = ranks.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    for group in optimiser.param_groups:
        group["lr"] = config.lr * min(1.0, (step + 1) / 10)
    # Each rank rounds by numbers of its own, so that errors of all ranks average out.
    seed_rounding(run.model, ranks.count * step + ranks.rank)
    chosen = ranks.share(order(len(images), config.batch, step, config.seed))
    batch = images.take(chosen.to(ranks.device))
    if run.replayed:
        loss = run.replayed(*batch)
    else:
        loss = loss_of(run.model, config, *batch)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
    optimiser.step()
    mean = loss.detach()
    if ranks.count > 1:
        dist.all_reduce(mean)
        mean = mean / ranks.count
    run.losses.append(mean.item())
    if not abs(run.losses[-1]) < float("inf"):
        raise LossLost(f"the loss is {run.losses[-1]} in step {step}, with lr {config.lr}")
    run.seconds.append(time.perf_counter() - began)
    transient = (
        run.replayed.transient if run.replayed else 0
    )  # the allocator does not see the graph's memory again
    run.peaks.append(torch.cuda.max_memory_allocated() + transient if on_gpu else 0)


def loss_of(model: nn.Module, config: Config, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of a batch."""
    with torch.autocast(images.device.type, torch.bfloat16, enabled=config.dtype == "bfloat16"):
        return F.cross_entropy(model(images).float(), labels)


def _parallel(model: ViT, ranks: Ranks) -> nn.Module:
    if ranks.parallel == "ddp":
        torch._dynamo.config.optimize_ddp = False  # which cuts what is compiled at DDP's buckets
        with warnings.catch_warnings():  # torch 2.13 has another name for it, older ones have not
            warnings.simplefilter("ignore", FutureWarning)
            # Buffers are the seeds of rounding, each rank's its own.
            return DistributedDataParallel(model, broadcast_buffers=False)
    if ranks.parallel == "fsdp":
        mesh = init_device_mesh(ranks.device.type, (ranks.count,))
        for block in model.blocks:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
    return model


def _settle(model: nn.Module, config: Config, ranks: Ranks, images: Images) -> None:
    """Let DDP lay out its buckets of gradients for good, which it does after a first backward.

    Other buckets may sum in another order: the first step of a resumed run would not have the bits of the
    same step in a run that was not.
    """
    chosen = torch.arange(config.batch // ranks.count, device=ranks.device)
    loss_of(model, config, *images.take(chosen)).backward()
    model.zero_grad(set_to_none=True)


def _to_resume(config: Config, steps: int, folder: Path | None, save_every: int, resume: bool) -> Path | None:
    """Return the checkpoint to continue from, if any."""
    if folder is None:
        if resume:
            raise ValueError("resume needs a folder, with the checkpoints of an earlier run")
        if save_every:
            raise ValueError(f"save_every is {save_every}, which needs a folder")
        return None
    found = checkpoints.newest(folder)
    if not resume:
        if found:
            raise FileExistsError(f"{folder} has {found.name} in it: resume it, or name another folder")
        return None
    if not found:
        raise FileNotFoundError(f"{folder} has no complete checkpoint to resume")
    before = checkpoints.read_run(found)
    saved, wanted = before["config"], asdict(config)
    other = [name for name in wanted if saved.get(name) != wanted[name]]
    if other:
        was, now = (", ".join(f"{name} {some.get(name)}" for name in other) for some in (saved, wanted))
        raise ValueError(f"{found} was saved with {was}, but this run has {now}: they must be the same")
    if before["step"] >= steps:
        raise ValueError(f"steps must be more than the {before['step']} of {found}, but is {steps}")
    return found


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} must be an integer of at least {least}, but is {value}")


def _any(flag: bool, ranks: Ranks) -> bool:
    """Return whether the condition is true on any rank."""
    if ranks.count == 1:
        return flag
    flags = torch.tensor(float(flag), device=ranks.device)
    dist.all_reduce(flags)
    return bool(flags.item())


@contextmanager
def _naming_who_is_lost(run: Run, ranks: Ranks) -> Iterator[None]:
    """Name the lost rank, because the error of a collective says neither where it is nor what is left."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        raise RankLost(_lost(run, ranks)) from error


def _lost(run: Run, ranks: Ranks) -> str:
    left = f"the last complete checkpoint is {run.saved}" if run.saved else "there is no checkpoint"
    return f"rank {ranks.rank} of {ranks.count} lost another rank in step {len(run.losses)}: {left}"
