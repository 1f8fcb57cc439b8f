"""Record chapter 16's loss curves: digits, trained on activations of 8, 4, 2 and 1 bits, on this CPU.

Every path starts with the same weights and gets the same batches, seed by seed, so each curve can be compared
with float32's own: its distance, averaged over the steps. The learning rate is float32's, too. Then the same
at other learning rates, for 2 bits and 1, where each loss is also compared with float32's, seed by seed.
This takes minutes of CPU time and no GPU.

These curves describe one small task. On a language model, formats rank differently.
"""

import datetime
from collections.abc import Mapping, Sequence
from statistics import fmean, stdev
from typing import Any

import torch
import torch.nn.functional as F

from puzzles_lib.chapters.ch16_from_kernel_to_layer.digits import batches, bytes_kept, mlp, train, unseen
from puzzles_lib.kernels.modules import pack_activations, seed_rounding
from puzzles_lib.stumbles import sentence_first
from puzzles_lib.timing.recorded import bits_text, rounding_told

SEEDS, STEPS, RATE = 4, 150, 0.05
RATES, RATE_STEPS, RATE_SEEDS = (0.05, 0.1, 0.2, 0.4), 100, 16  # near the limit, losses are spread wide
FLOAT = "float32"
PATHS: dict[str, tuple[int, str] | None] = {FLOAT: None} | {
    f"{bits_text(bits)}, {rounding}": (bits, rounding)
    for bits in (8, 4, 2, 1)
    for rounding in ("nearest", "stochastic")
}
"""What is kept for backward, by name: bits and rounding."""


def packed_mlp(path: str, seed: int) -> torch.nn.Sequential:
    """Return the digits' model as this path of `PATHS` trains it.

    Raises ValueError if there's no such path.
    """
    if path not in PATHS:
        raise sentence_first(ValueError(f"path must be one of {'; '.join(PATHS)}, but is {path!r}"))
    model, options = mlp(seed), PATHS[path]
    return model if options is None else pack_activations(model, options[0], rounding=options[1])


def losses(path: str, seed: int, steps: int, rate: float = RATE) -> tuple[list[float], torch.nn.Module]:
    """Return the loss of every step, and the trained model."""
    model = packed_mlp(path, seed)
    sgd = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    found = train(model, steps, seed, optimiser=sgd, before=lambda step: seed_rounding(model, step))
    return found, model


def gains(path: str, seed: int, steps: Sequence[int], rate: float = RATE) -> list[list[float]]:
    """Return the gain of each weight matrix's gradient, at these steps of float32's training.

    The gain is the gradient's component along the exact gradient, relative to the exact one's norm: 1 if it's
    as long. Both are computed from the same weights and the same batch.
    """
    exact, found = packed_mlp(FLOAT, seed), {}
    seen = list(batches(max(steps) + 1, seed))

    def note(step: int) -> None:
        if step not in steps:
            return
        model = packed_mlp(path, seed)
        model.load_state_dict(exact.state_dict())
        seed_rounding(model, step)
        pairs = zip(_weight_gradients(exact, *seen[step]), _weight_gradients(model, *seen[step]), strict=True)
        found[step] = [float((one * other).sum() / one.square().sum()) for one, other in pairs]

    sgd = torch.optim.SGD(exact.parameters(), lr=rate, momentum=0.9)
    train(exact, max(steps) + 1, seed, optimiser=sgd, before=note)
    return [found[step] for step in steps]


def _weight_gradients(
    model: torch.nn.Module, images: torch.Tensor, labels: torch.Tensor
) -> tuple[torch.Tensor, ...]:
    weights = [p for p in model.parameters() if p.dim() == 2]
    return torch.autograd.grad(F.cross_entropy(model(images), labels), weights)


def measure() -> dict[str, Any]:
    """Return the record: curves at one learning rate, and mean losses at several.

    ``beyond`` is a mean loss minus float32's of the same seeds; errors are standard errors of the means.
    ``above`` counts the seeds in which it is larger than float32's.
    """
    curves, exact = [], {}
    for path in PATHS:
        runs = [losses(path, seed, STEPS) for seed in range(SEEDS)]
        found = [run for run, _ in runs]
        exact = exact or dict(enumerate(found))
        apart = [_apart(run, exact[seed]) for seed, run in enumerate(found)]
        mean = [round(fmean(step), 5) for step in zip(*found, strict=True)]
        left, right = zip(*(unseen(model) for _, model in runs), strict=True)
        of_unseen = {"unseen": round(fmean(left), 4), "right": round(fmean(right), 1)}
        kept = {"path": path, "bytes": bytes_kept(packed_mlp(path, 0))}
        curves.append({**kept, "apart": round(fmean(apart), 5), **of_unseen, "loss": mean})
    rates = []
    for rate in RATES:
        plain: list[float] = []
        for path in PATHS:
            if path == FLOAT or path.startswith(("1", "2")):
                means = [fmean(losses(path, seed, RATE_STEPS, rate)[0]) for seed in range(RATE_SEEDS)]
                plain = plain or means
                beyond = [mean - one for mean, one in zip(means, plain, strict=True)]
                row = {"rate": rate, "path": path}
                row |= dict(zip(("loss", "error"), _mean_and_error(means), strict=True))
                row |= dict(zip(("beyond", "beyond_error"), _mean_and_error(beyond), strict=True))
                rates.append(row | {"above": sum(each > 0 for each in beyond)})
    return {
        "versions": {"torch": torch.__version__.split("+")[0]},
        "date": datetime.date.today().isoformat(),
        "seeds": SEEDS,
        "rate_seeds": RATE_SEEDS,
        "curves": curves,
        "rates": rates,
    }


def _mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    return round(fmean(values), 4), round(stdev(values) / len(values) ** 0.5, 4)


def _apart(run: list[float], exact: list[float]) -> float:
    return fmean(abs(a - b) for a, b in zip(run, exact, strict=True))


def table(record: Mapping[str, Any]) -> str:
    """Return a record as text."""
    last = len(record["curves"][0]["loss"]) - 1
    steps = [step for step in (25, 50) if step < last] + [last]
    head = " ".join(f"step {step:>3}" for step in steps)
    lines = [f"{'path':18} {'bytes':>7}  {head}  {'apart':>7}  unseen  right"]
    for row in record["curves"]:
        told = " ".join(f"{row['loss'][step]:8.4f}" for step in steps)
        end = f"{row['apart']:7.4f}  {row['unseen']:6.3f}  {row['right']:5.1f}"
        lines.append(f"{row['path']:18} {row['bytes']:7}  {told}  {end}")
    lines.append("")
    rates = list(dict.fromkeys(row["rate"] for row in record["rates"]))
    lines.append(f"{'mean loss at rate':18} " + " ".join(f"{rate:7g}" for rate in rates))
    for path in dict.fromkeys(row["path"] for row in record["rates"]):
        found = {row["rate"]: row["loss"] for row in record["rates"] if row["path"] == path}
        lines.append(f"{path:18} " + " ".join(f"{found[rate]:7.3f}" for rate in rates))
    errors = [max(row["error"] for row in record["rates"] if row["rate"] == rate) for rate in rates]
    lines.append(f"{'standard error':18} " + " ".join(f"{error:7.3f}" for error in errors))
    return "\n".join(lines)


def steps_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return rows of bench "training" as text: time and peak memory of a step, and its gradient's cosine."""
    rows = [row for row in rows if row["baseline"] == "torch"]
    paths = [rounding_told(row["path"]) for row in rows]
    wide = max(map(len, paths))
    lines: list[str] = []
    for case in dict.fromkeys(row["case"] for row in rows):
        lines += ["", f"{case}:", f"{'path':{wide}}     ms     GB  cosine"]
        lines += [
            f"{path:{wide}}  {row['us'] / 1000:5.1f}  {row['bytes'] / 1e9:5.2f}  {row['cosine']:6.3f}"
            for path, row in zip(paths, rows, strict=True)
            if row["case"] == case
        ]
    return "\n".join(lines[1:])
