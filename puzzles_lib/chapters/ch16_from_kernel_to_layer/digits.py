"""Train on handwritten digits: small, reproducible, and measured in bytes kept.

There are 1797 images of 8 by 8 pixels; the first 1500 of a fixed order are used for training. Everything runs
on one thread, because a second one costs more than it saves on so little work.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from puzzles_lib.examples.images import load_digits

BATCH = 256  # images a step: whole blocks of words, whatever the bits
TRAINED = 1500
PIXELS, CLASSES = 64, 10


@cache
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images [1797, 64], float32 from 0 to 1, and their labels [1797], in a fixed random order."""
    images, labels = load_digits()
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    return images.flatten(1).float()[order] / 16, labels[order]


def batches(steps: int, seed: int = 0) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield images [BATCH, 64] and labels [BATCH] for each step, drawn from the first 1500."""
    images, labels = digits()
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        some = torch.randint(TRAINED, (BATCH,), generator=generator)
        yield images[some], labels[some]


def mlp(seed: int = 0, width: int = 128, linear: type[nn.Linear] = nn.Linear) -> nn.Sequential:
    """Return an MLP: 64 pixels, two hidden layers of ``width`` with ReLU, 10 classes; weights by seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            linear(PIXELS, width), nn.ReLU(), linear(width, width), nn.ReLU(), linear(width, CLASSES)
        )


def train(
    model: nn.Module,
    steps: int,
    seed: int = 0,
    *,
    optimiser: torch.optim.Optimizer | None = None,
    before: Callable[[int], None] | None = None,
) -> list[float]:
    """Train a model on ``steps`` batches. Return the loss of each step, taken before its update.

    ``optimiser``: None means SGD with momentum. before: called with each step's number, before it.
    """
    if optimiser is None:
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses, threads = [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for step, (images, labels) in enumerate(batches(steps, seed)):
            if before is not None:
                before(step)
            loss = F.cross_entropy(model(images), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(loss.item())
    finally:
        torch.set_num_threads(threads)
    return losses


@torch.no_grad()
def unseen(model: nn.Module) -> tuple[float, int]:
    """Return the loss on the 297 held-out images, and how many of them are classified correctly."""
    images, labels = (part[TRAINED:] for part in digits())
    logits = model(images)
    return F.cross_entropy(logits, labels).item(), int((logits.argmax(1) == labels).sum())


def bytes_kept(model: nn.Module) -> int:
    """Return the bytes that a forward pass on a batch keeps for backward, without parameters and buffers.

    This counts saved tensors, and tensors that a forward sets as attributes of its ctx, of its autograd
    function or of its module. Tensors that share memory count once.
    """
    known = {tensor.untyped_storage().data_ptr() for tensor in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage
        return tensor

    images, labels = next(batches(1))
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        loss = F.cross_entropy(model(images), labels)
    for node in _nodes(loss.grad_fn):
        function = getattr(type(node), "_forward_cls", None)  # of a node that Python has defined
        for value in (vars(each) for each in (node, function) if function):
            for tensor in _tensors(value):
                note(tensor)
    for module in model.modules():
        for tensor in _tensors({name: value for name, value in vars(module).items() if name[0] != "_"}):
            note(tensor)
    return sum(storage.nbytes() for storage in kept.values())


def _nodes(last: object) -> Iterator[Any]:
    """Yield all nodes of autograd's graph that lead to this one."""
    seen, left = set(), [last]
    while left:
        node: Any = left.pop()
        if node is not None and node not in seen:
            seen.add(node)
            yield node
            left += [before for before, _ in node.next_functions]


def _tensors(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value, also from lists, tuples, sets and dictionaries."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _tensors(each)
    elif isinstance(value, list | tuple | set):
        for each in value:
            yield from _tensors(each)
