"""A small transformer that reads handwritten digits of 8 by 8 pixels, as chapter 14 quantizes it."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Block(nn.Module):
    """Attention with one head, then an MLP: four linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm_1, self.norm_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Return [N, tokens, width] for x of the same shape."""
        q, k, v = self.qkv(self.norm_1(x)).chunk(3, -1)
        x = x + self.out((q @ k.mT / k.shape[-1] ** 0.5).softmax(-1) @ v)
        return x + self.down(self.up(self.norm_2(x)).relu())


class Reader(nn.Module):
    """Two blocks on 8 tokens, each a row of pixels; the mean over the tokens decides. Ten linear layers."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Linear(8, width)
        self.place = nn.Parameter(torch.zeros(8, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.head = nn.Linear(width, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits [N, 10] for images [N, 8, 8]."""
        return self.head(self.blocks(self.embed(images) + self.place).mean(1))


def train_reader(images: Tensor, labels: Tensor, steps: int = 300) -> Reader:
    """Return a reader trained on images [N, 8, 8], float64, and labels [N], int64, as a float32 model.

    It trains in float64 on one thread: CPUs add in different orders, and after hundreds of steps in float32
    the weights would differ from machine to machine. The default generator is seeded.
    """
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.manual_seed(0)
    try:
        torch.set_num_threads(1)
        torch.set_default_dtype(torch.float64)
        model = Reader()
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for _ in range(steps):
            batch = torch.randint(len(labels), (64,))
            loss = F.cross_entropy(model(images[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
    return model.float().eval().requires_grad_(False)
