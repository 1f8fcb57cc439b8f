"""Train a vision transformer on packed activations, alone or on several GPUs.

    python -m puzzles_lib.examples.train_vit
    python -m puzzles_lib.examples.train_vit --no-packing
    torchrun --nproc-per-node 2 -m puzzles_lib.examples.train_vit --size base --parallel fsdp --folder run

The model is small and reads handwritten digits, or with --size base a ViT-B/16 on synthetic images of
ImageNet's size. With --folder, SIGTERM and Ctrl-C end the step, save and leave; the same command with
--resume goes on, with the losses of a run that was never stopped.
"""

import argparse
import json
import os
import signal
import sys
from dataclasses import asdict
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from puzzles_lib.examples.images import COUNT, digits, order
from puzzles_lib.examples.kept import Kept
from puzzles_lib.examples.training import (
    PARALLEL,
    Config,
    LossLost,
    RankLost,
    Ranks,
    Run,
    deterministic,
    loss_of,
    train,
)
from puzzles_lib.kernels.modules import unpack_activations

MODULE = "puzzles_lib.examples.train_vit"
MINUTES = 10  # how long a rank waits for the others
SIZES: dict[str, dict[str, Any]] = {
    "digits": {"steps": 200},
    "base": {"steps": 30, "batch": 256, "lr": 1e-4, "dtype": "bfloat16"},
}
"""By size, the steps, and what differs from `Config`'s defaults."""


def main(argv: list[str] | None = None) -> int:
    """Run the command and return its exit status: 0, 1 for a failure, 2 for bad arguments, 128 + a signal."""
    parser = _parser()
    chosen = parser.parse_args(argv)
    first = int(os.environ.get("RANK", 0)) == 0
    try:
        config, steps = _config(chosen)
        ranks = join(chosen.parallel, chosen.device)
        options = {name: getattr(chosen, name) for name in ("folder", "save_every", "resume", "graph")}
        run = train(config, steps, ranks, **options, quiet=False)
        if run.stopped is None:
            _show(run, ranks, chosen.plot, chosen.json)
        elif first:
            saved = f"{run.saved} is saved" if run.saved else "nothing is saved without --folder"
            name = signal.Signals(run.stopped).name
            print(f"{name} after {len(run.losses)} of {steps} steps; {saved}", file=sys.stderr)
        status = 0 if run.stopped is None else 128 + run.stopped
    except (RankLost, LossLost, ValueError, OSError) as error:
        if first or isinstance(error, RankLost):
            print(f"{parser.prog}: error: {error}", file=sys.stderr, flush=True)
        if isinstance(
            error, RankLost | OSError
        ):  # the other ranks may be elsewhere, and leaving the group might wait for them
            return 2 if isinstance(error, FileNotFoundError | FileExistsError) else 1
        status = 2 if isinstance(error, ValueError) else 1
    if dist.is_initialized():
        dist.destroy_process_group()
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {MODULE}",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--size", default="digits", choices=list(COUNT), help="the model and its images (default: digits)")
    add("--bits", type=int, help="bits per kept element: 1, 2, 4 or 8 (default: 2)")
    add("--rounding", help="nearest or stochastic (default: the default of pack_activations for these bits)")
    add("--no-packing", action="store_true", help="use torch's own layers")
    add("--parallel", choices=PARALLEL, help="how the ranks of torchrun share the work")
    add("--steps", type=int, help="total number, including steps before --resume (default: 200; base: 30)")
    add("--batch", type=int, help="images per step, on all ranks together (default: 50; base: 256)")
    add("--lr", type=float, help="learning rate of AdamW (default: 0.003; base: 0.0001)")
    add("--dropout", type=float, help="(default: 0)")
    add("--dtype", help="dtype of autocast: float32 or bfloat16 (default: float32; base: bfloat16)")
    add("--compile", action="store_true", default=None, help="compile each block with torch.compile")
    add("--graph", action="store_true", help="replay forward and backward as a CUDA graph; not with fsdp")
    add("--seed", type=int, help="seed of weights, order and rounding (default: 0)")
    add("--device", choices=("cpu", "cuda"), help="(default: cuda if there is a GPU)")
    add("--folder", type=Path, metavar="DIR", help="save checkpoints there, and keep the last two")
    add("--save-every", type=int, default=0, metavar="STEPS", help="save every STEPS steps, and at the end")
    add("--resume", action="store_true", help="continue from the newest complete checkpoint in --folder")
    add(
        "--plot",
        type=Path,
        default=Path("train_vit.png"),
        metavar="FILE",
        help="where to write the picture (%(default)s)",
    )
    add("--json", type=Path, metavar="FILE", help="write losses, times and memory there")
    return parser


def _config(chosen: argparse.Namespace) -> tuple[Config, int]:
    """Return the configuration and the number of steps."""
    if chosen.no_packing and (chosen.bits, chosen.rounding) != (None, None):
        raise ValueError("bits and rounding must not be given with no-packing")
    names = ("size", "bits", "rounding", "batch", "lr", "dropout", "dtype", "compile", "seed", "steps")
    given = {name: getattr(chosen, name) for name in names if getattr(chosen, name) is not None}
    options = SIZES[chosen.size] | given | ({"bits": None} if chosen.no_packing else {})
    steps = options.pop("steps")
    return Config(**options), steps


def join(parallel: str | None, device: str | None) -> Ranks:
    """Join torchrun's processes, set deterministic kernels, and return this process's place.

    Raises ValueError if torchrun's ranks, this machine's GPUs and the arguments do not fit.
    """
    rank, count, local, here = (
        int(os.environ.get(name, value))
        for name, value in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0), ("LOCAL_WORLD_SIZE", 1))
    )
    if parallel and "RANK" not in os.environ:
        command = f"torchrun --nproc-per-node 2 -m {MODULE} --parallel {parallel}"
        raise ValueError(f"parallel is {parallel}, which needs torchrun to start the ranks: {command}")
    if count > 1 and not parallel:
        raise ValueError(f"torchrun started {count} ranks, which needs --parallel {' or '.join(PARALLEL)}")
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if device == "cuda":
        if not torch.cuda.is_available():
            raise ValueError("device is cuda, but there is no GPU")
        if here > torch.cuda.device_count():
            raise ValueError(f"{here} ranks for {torch.cuda.device_count()} GPUs: each rank needs its own")
        torch.cuda.set_device(local)
    deterministic()
    place = torch.device(device, local) if device == "cuda" else torch.device(device)
    if parallel:
        on_gpu = place if device == "cuda" else None
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, timeout=timedelta(minutes=MINUTES), device_id=on_gpu)
    return Ranks(place, rank, count, parallel)


# ---- the output at the end


def _show(run: Run, ranks: Ranks, picture: Path, record: Path | None) -> None:
    """Print a line, draw the picture, write the record; all ranks call it."""
    config, losses = run.config, run.losses
    read = _accuracy(run, ranks.device) if config.size == "digits" else None
    if ranks.rank > 0:
        return
    kept = _kept(run, ranks)
    picture.parent.mkdir(parents=True, exist_ok=True)
    _plot(run, kept, picture)
    parts = [f"{config.text()}: loss {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps"]
    if read is not None:
        parts.append(f"{read:.1%} of {len(digits()[1])} test images right")
    parts.append(f"{run.images_per_second():.0f} images/s on {ranks.text()}")
    if run.peaks[-1]:
        parts.append(f"at most {max(run.peaks) / 1e9:.2f} GB of a GPU")
    parts += [f"{name}: {some.peak / 1e6:.2f} MB kept for backward" for name, some in kept.items()]
    print("; ".join(parts))
    print(f"picture: {picture}" + (f"; checkpoint: {run.saved}" if run.saved else ""))
    if record:
        told = {"config": asdict(config), "ranks": ranks.count, "parallel": ranks.parallel}
        told |= {"device": _name(ranks.device), "torch": torch.__version__, "accuracy": read}
        told |= {"images_per_second": run.images_per_second()}
        told |= {"losses": losses, "seconds": run.seconds, "peaks": run.peaks}
        record.write_text(json.dumps(told) + "\n")


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name() if device.type == "cuda" else device.type


def _accuracy(run: Run, device: torch.device) -> float:
    """Return the share of the test digits that the model reads correctly. All ranks call it."""
    run.model.eval()
    pixels, labels = digits()[1].to(device).take(slice(None))
    with torch.no_grad():
        right = run.model(pixels).argmax(1) == labels
    return right.float().mean().item()


def _kept(run: Run, ranks: Ranks) -> dict[str, Kept]:
    """Return what autograd keeps in a step, by name: for this model, and for torch's layers instead."""
    if ranks.count > 1 or ranks.device.type == "cuda":  # on a GPU the peak says more
        return {}
    packed = run.config.bits is not None
    found = {"packed" if packed else "torch": _kept_in_a_step(run.config, run.model)}
    if packed:
        found["torch"] = _kept_in_a_step(run.config, unpack_activations(run.model))
    return found


def _kept_in_a_step(config: Config, model: nn.Module) -> Kept:
    images = config.images().take(order(COUNT[config.size], config.batch, 0, config.seed))
    model.train()
    with Kept() as kept:
        loss_of(model, config, *images).backward()
    return kept


def _plot(run: Run, kept: dict[str, Kept], path: Path) -> None:
    """Plot the loss by step, and the GPU's peak memory by step, or what is kept in one step."""
    from matplotlib.figure import Figure

    from puzzles_lib.drawing.colours import BLUE, GREY

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    left.plot(range(1, len(run.losses) + 1), run.losses, color=BLUE, linewidth=1)
    left.set(title=run.config.text(), xlabel="step", ylabel="loss", ylim=(0, None))
    if any(run.peaks):
        right.plot(range(1, len(run.peaks) + 1), [peak / 1e9 for peak in run.peaks], color=BLUE)
        right.set(title="peak memory of rank 0's GPU", xlabel="step", ylabel="GB", ylim=(0, None))
    else:
        for (name, some), colour in zip(kept.items(), (BLUE, GREY), strict=False):
            places = [place / len(some.levels) for place in range(len(some.levels))]
            right.step(places, [level / 1e6 for level in some.levels], label=name, color=colour, where="post")
        right.set(title="kept for backward", xlabel="through a step", ylabel="MB", ylim=(0, None), xticks=[])
        if kept:
            right.legend(frameon=False)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


if __name__ == "__main__":
    sys.exit(main())
