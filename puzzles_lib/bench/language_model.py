"""``python -m puzzles_lib.bench language-model``: train chapter 22's model on the course's own text.

It reads the prose of all masters and all hints, and trains on one core of this CPU. In the last quarter of
the steps, weights are rounded to 4 bits. It writes `weights.npz` and `record.json` to `puzzles_lib/speaking`.
The same text and options give the same weights on the same machine and torch. Losses are in nats per byte.
"""

import hashlib
import json
import math
import time
from dataclasses import asdict
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize
from tqdm import tqdm

from puzzles_lib.speaking.model import Model
from puzzles_lib.speaking.packed import WEIGHTS, is_packed, load, reference, rounded, save

ROOT = Path(__file__).parents[2]
RECORD = WEIGHTS.with_name("record.json")
HELD_OUT = 20  # one of so many pieces of prose isn't trained on
WARM_UP, ROUNDED_FROM, BALANCE = 100, 0.75, 0.01
NOT_READ = "22_"  # the chapter about the model quotes it


def pieces(root: Path = ROOT) -> list[str]:
    """Return the course's prose: cells of text, and hints."""
    found = []
    for master in sorted((root / "solutions").glob("*.ipynb")):
        if not master.name.startswith(NOT_READ):
            cells = json.loads(master.read_text("utf-8"))["cells"]
            found += ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    for hints in sorted((root / "puzzles_lib" / "chapters").glob("*/hints.md")):
        if not hints.parent.name.startswith(f"ch{NOT_READ}"):
            found += [f"## {part.strip()}" for part in hints.read_text("utf-8").split("\n## ")[1:]]
    return [piece.strip() for piece in found if piece.strip()]


def corpus(root: Path = ROOT) -> tuple[Tensor, Tensor]:
    """Return the bytes to train on and those held out, uint8 [count] each."""
    each = pieces(root)
    parts = ([p for n, p in enumerate(each) if (n % HELD_OUT == 0) == held] for held in (False, True))
    seen, unseen = (torch.frombuffer(bytearray("\n\n".join(p).encode()), dtype=torch.uint8) for p in parts)
    return seen, unseen


def draw(data: Tensor, generator: torch.Generator, count: int, length: int) -> tuple[Tensor, Tensor]:
    """Return random pieces of the data and the bytes that follow, int64 [count, length] each."""
    starts = torch.randint(len(data) - length - 1, (count,), generator=generator)
    text = data[starts[:, None] + torch.arange(length + 1)].long()
    return text[:, :-1], text[:, 1:]


class _Rounded(nn.Module):
    """Weights as 4 bits represent them."""

    def forward(self, weight: Tensor) -> Tensor:
        return rounded(weight)


def round_weights(model: Model) -> None:
    """Let the model compute with weights rounded to 4 bits, while the optimizer goes on with float32."""
    for module in list(model.modules()):
        for name, _ in list(module.named_parameters(recurse=False)):
            if is_packed(name):
                parametrize.register_parametrization(module, name, _Rounded(), unsafe=True)


def unround(model: Model) -> None:
    """Undo `round_weights`. The weights stay those that the optimizer has."""
    for module in list(model.modules()):
        if parametrize.is_parametrized(module):
            for name in list(module.parametrizations):  # type: ignore[arg-type]
                parametrize.remove_parametrizations(module, name, leave_parametrized=False)


@torch.no_grad()
def loss_of(model: Model, data: Tensor) -> float:
    """Return the mean loss on all of the data, in pieces of the model's context."""
    length = model.sizes.context
    starts = range(0, len(data) - length - 1, length)
    text = torch.stack([data[start : start + length + 1] for start in starts]).long()
    return float(F.cross_entropy(model(text[:, :-1]).flatten(0, 1), text[:, 1:].flatten()))


def train(steps: int, batch: int, lr: float, seed: int, seen: Tensor, quiet: bool = False) -> Model:
    """Return a model trained on ``seen``."""
    torch.manual_seed(seed)
    model, generator = Model(), torch.Generator().manual_seed(seed + 1)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
    shown = tqdm(range(steps), disable=quiet, mininterval=10)
    for step in shown:
        if step == int(ROUNDED_FROM * steps):
            round_weights(model)
        cosine = 0.5 * (1 + math.cos(math.pi * step / steps))
        for group in optimizer.param_groups:
            group["lr"] = lr * min(1, (step + 1) / WARM_UP) * (0.02 + 0.98 * cosine)
        inputs, targets = draw(seen, generator, batch, model.sizes.context)
        logits, uneven = model.with_balance(inputs)
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        optimizer.zero_grad(set_to_none=True)
        (loss + BALANCE * uneven).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % 50 == 49:
            shown.set_postfix(loss=f"{float(loss):.3f}", uneven=f"{float(uneven):.2f}")
    unround(model)
    return model


def measure(steps: int, batch: int, lr: float, seed: int, folder: Path | None = None) -> dict[str, object]:
    """Train, write both files to the folder (by default the library's own), and return the record."""
    folder = folder or WEIGHTS.parent
    torch.set_num_threads(1)
    seen, unseen = corpus()
    started = time.process_time()
    model = train(steps, batch, lr, seed, seen)
    seconds = time.process_time() - started
    size = save(model, folder / WEIGHTS.name)
    packed = reference(load(folder / WEIGHTS.name))
    options = f"--steps {steps} --batch {batch} --lr {lr} --seed {seed}"
    record = {
        "command": f"python -m puzzles_lib.bench language-model {options}",
        "torch": torch.__version__,
        "sizes": asdict(model.sizes),
        "parameters": sum(p.numel() for p in model.parameters()),
        "text": {
            "bytes": len(seen),
            "held out": len(unseen),
            "sha256": hashlib.sha256(seen.numpy().tobytes() + unseen.numpy().tobytes()).hexdigest(),
        },
        "loss": {
            "held out, float32": round(loss_of(model, unseen), 4),
            "held out, 4 bits": round(loss_of(packed, unseen), 4),
            "seen, 4 bits": round(loss_of(packed, seen[:65536]), 4),
        },
        "CPU seconds": round(seconds),
        "file bytes": size,
    }
    (folder / RECORD.name).write_text(json.dumps(record, indent=2) + "\n", "utf-8")
    return record
