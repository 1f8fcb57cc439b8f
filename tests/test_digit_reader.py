"""The small transformer that chapter 14 quantizes."""

import torch
from torch import nn

from puzzles_lib.examples.digit_reader import train_reader

IMAGES = torch.rand(16, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
LABELS = torch.arange(16) % 10


def test_it_is_a_float32_model_of_ten_linear_layers():
    model = train_reader(IMAGES, LABELS, steps=1)
    assert model(IMAGES.float()).shape == (16, 10)
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert sum(isinstance(layer, nn.Linear) for layer in model.modules()) == 10
    assert not any(p.requires_grad for p in model.parameters()) and not model.training


def test_it_is_the_same_every_time_and_it_learns():
    first, again, longer = (train_reader(IMAGES, LABELS, steps=n) for n in (3, 3, 60))
    x = IMAGES.float()
    assert torch.equal(first(x), again(x))
    loss = nn.functional.cross_entropy
    assert loss(longer(x), LABELS) < loss(first(x), LABELS) / 2


def test_it_leaves_torchs_defaults_alone():
    before = torch.get_default_dtype(), torch.get_num_threads()
    train_reader(IMAGES, LABELS, steps=1)
    assert (torch.get_default_dtype(), torch.get_num_threads()) == before
