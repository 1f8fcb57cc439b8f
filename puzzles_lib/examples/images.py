"""Provide images to train on. Their order is a function of seed and step, so there is nothing to save."""

import csv
import gzip
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F

COUNT = {"digits": 1500, "base": 2048}  # the number of images to train on


@dataclass(frozen=True)
class Images:
    """Labeled images. pixels: [N, channels, side, side], uint8 up to 2 · half. labels: [N], int64."""

    pixels: torch.Tensor
    labels: torch.Tensor
    half: float

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> "Images":
        return Images(self.pixels.to(device), self.labels.to(device), self.half)

    def take(self, chosen: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Return some of the images, float32 from -1 to 1, and their labels."""
        return self.pixels[chosen].float() / self.half - 1, self.labels[chosen]


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return 1797 handwritten digits: pixels [1797, 8, 8], float64 from 0 to 16, and labels [1797], int64.

    They are the test set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, 1998,
    https://archive.ics.uci.edu/dataset/80, CC BY 4.0).
    """
    with gzip.open(Path(__file__).with_name("digits.csv.gz"), "rt") as file:
        rows = torch.tensor([[int(number) for number in row] for row in csv.reader(file)])
    return rows[:, :-1].double().reshape(-1, 8, 8), rows[:, -1].clone()


@cache
def digits() -> tuple[Images, Images]:
    """Return the shuffled handwritten digits, of 8 by 8 pixels: 1500 to train on and 297 to test."""
    pixels, labels = load_digits()
    mixed = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    pixels, labels = pixels.to(torch.uint8)[mixed, None], labels[mixed]
    count = COUNT["digits"]
    return Images(pixels[:count], labels[:count], 8.0), Images(pixels[count:], labels[count:], 8.0)


@cache
def synthetic(classes: int = 20, side: int = 224) -> Images:
    """Return images of ImageNet's size: for each of a few classes, a pattern of 14 by 14 noisy patches."""
    count, generator = COUNT["base"], torch.Generator().manual_seed(0)
    labels = torch.randint(classes, (count,), generator=generator)
    patterns = torch.randn(classes, 3, 14, 14, generator=generator)
    pixels = torch.empty(count, 3, side, side, dtype=torch.uint8)
    for place, label in enumerate(labels.tolist()):
        noise = torch.randn(3, side, side, generator=generator)
        image = F.interpolate(patterns[None, label], side)[0] + noise
        pixels[place] = (image * 32 + 128).clamp(0, 255)
    return Images(pixels, labels, 128.0)


def order(count: int, batch: int, step: int, seed: int) -> torch.Tensor:
    """Return which of ``count`` images are the batch of a step: [batch] indices, shuffled anew each epoch.

    The incomplete last batch of an epoch is left out.
    """
    epoch, place = divmod(step, count // batch)
    generator = torch.Generator().manual_seed(2**20 * seed + epoch)
    return torch.randperm(count, generator=generator)[place * batch : (place + 1) * batch]
