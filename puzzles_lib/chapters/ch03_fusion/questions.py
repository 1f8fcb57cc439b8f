"""The predictions of chapter 03."""

import torch

from puzzles_lib.chapters.ch03_fusion import silu
from puzzles_lib.chapters.ch03_fusion.pictures import ASKED
from puzzles_lib.chapters.ch03_fusion.puzzles import MUL_RELU
from puzzles_lib.question import Nudge, Question

M, N, FLOAT32 = ASKED.M, ASKED.N, 4


def _saved() -> int:
    """The product is written once and read once."""
    return 2 * M * N * FLOAT32


def _gradient() -> tuple[int, ...]:
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    torch.relu(x * 3.0).backward(torch.tensor([10.0, 20.0, 30.0]))
    assert x.grad is not None
    return tuple(int(value) for value in x.grad)


def _silu_slip(slip: str, words: str) -> Nudge:
    return Nudge(lambda given, right: silu.is_near(given, silu.gradient(slip)), words)


def _cost(round_trips: int) -> float:
    """Return case 2's bytes over the least possible, if the product goes to memory and back so often."""
    case = MUL_RELU.cases[2]
    rows, columns, _ = MUL_RELU.programs(case)
    inputs, tile = rows * case.N + columns * case.M, case.M * case.N
    return round((inputs + tile + 2 * round_trips * tile) / (case.N + case.M + tile), 2)


QUESTIONS = (
    Question(
        "ch03-q1",
        "How many bytes does fusion save? That is what two kernels move, minus what one moves.",
        _saved,
        int,
        "Which numbers no longer go to memory? Each has 4 bytes, and makes how many trips?",
        (
            Nudge(
                lambda given, right: 0 <= given - 3 * right // 2 <= 2 * FLOAT32 * (M + N),
                "That's what the two kernels move. Subtract what the fused kernel moves.",
            ),
            Nudge(
                lambda given, right: given == right // 2 + FLOAT32 * (M + N),
                "That's what the fused kernel moves. Subtract it from what the two kernels move.",
            ),
            Nudge(
                lambda given, right: 0 < right - given <= 2 * FLOAT32 * (M + N),
                "Nearly. Both versions read x and y once, so x and y don't matter for the difference.",
            ),
            Nudge(
                lambda given, right: FLOAT32 * (M + N) <= given - right <= 2 * FLOAT32 * (M + N),
                "Nearly. The second of the two kernels reads only the product, so x and y don't matter.",
            ),
            Nudge(lambda given, right: given == -right, "That many bytes are saved, so leave out the minus."),
            Nudge(
                lambda given, right: any(abs(given * unit - right) < unit for unit in (2**20, 10**6, 2**30)),
                "That is right in MB or GB. Write it in bytes: 2 * 4 * ...",
            ),
            Nudge(
                lambda given, right: abs(given - right) < right / 100,
                "Very close, but rounded. Python can compute it: multiply trips, bytes and elements.",
            ),
            Nudge(
                lambda given, right: 2 * given == right,
                "That counts one direction only. The product was written, and then it was read back.",
            ),
            Nudge(
                lambda given, right: FLOAT32 * given == right,
                "That's how many numbers no longer move. How many bytes are they?",
            ),
            Nudge(
                lambda given, right: 2 * FLOAT32 * given == right,
                "That's how many numbers the product has. Each has 4 bytes, and travels in both directions.",
            ),
        ),
    ),
    Question(
        "ch03-q2",
        "What is dx for x = -1, 0, 2, with y = 3 and dz = 10, 20, 30?",
        _gradient,
        tuple,
        "Take one element at a time. If its x grows by 0.01, does z = relu(3 * x) change, and by how much? "
        "Each unit that z grows changes the loss by dz.",
        (
            Nudge(
                lambda given, right: len(given) != 3, "The answer has three numbers, one per element of x."
            ),
            Nudge(
                lambda given, right: given == (30, 60, 90),
                "That's dz * y everywhere. But what is relu(x * y) if x = -1, and what if x = -0.99?",
            ),
            Nudge(
                lambda given, right: given[1] != 0 and given[::2] == right[::2],
                "Two of them are correct. At exactly 0, the relu's slope counts as 0.",
            ),
            Nudge(
                lambda given, right: given[0] != 0 or given[1] != 0,
                "Begin with the first element: z = relu(3 * -1) = 0. If x grows to -0.99, what is z? "
                "(And at exactly 0, the relu's slope counts as 0.)",
            ),
            Nudge(
                lambda given, right: given[2] == 30,
                "The first two are correct. In the third, the loss grows by 30 if z grows by 1. But by how "
                "much does z = 3 * x grow if x grows by 1?",
            ),
            Nudge(
                lambda given, right: given[2] == 3,
                "The first two are correct. 3 is how much z grows if x grows by 1. And the loss?",
            ),
            Nudge(
                lambda given, right: given[2] == 6,
                "The first two are correct. 6 is z itself. How much does z grow if x grows by 1?",
            ),
            Nudge(
                lambda given, right: given[2] == 60,
                "The first two are correct. 60 is dz * x. If x grows by 1, z = 3 * x doesn't grow by x.",
            ),
        ),
    ),
    Question(
        "ch03-q4",
        "What does case 2 cost if the product goes to memory and back? The number before the x.",
        lambda: _cost(1),
        float,
        "Run your kernel's cell with the two lines in it, and read the cost of case 2, the third row.",
        (
            Nudge(
                lambda given, right: abs(given - _cost(0)) < 0.01,
                "That's the cost of the fused kernel. Put the two lines into your kernel and run it again.",
            ),
            Nudge(
                lambda given, right: 1.9 < given < 2.1,
                "That would be one extra trip. The product is written, and then it is read back.",
            ),
        ),
        same=lambda given, right: abs(given - right) < 0.1,
    ),
    Question(
        "ch03-q5",
        "What is dx for z = silu(x * y)? A matrix, as rows of numbers.",
        lambda: tuple(map(tuple, silu.gradient().tolist())),
        tuple,
        "Your dx differs from PyTorch's. With t = x * y and s = sigmoid(t): what is the slope of t * s, and "
        "what else does the chain rule multiply by?",
        (
            _silu_slip("y", "The slope of the SiLU is correct. What does the chain rule multiply it by?"),
            _silu_slip(
                "sigmoid", "In t * s, both factors change with t. Your slope has only the first term."
            ),
            _silu_slip("other", "In t * s, both factors change with t. Your slope has only the second term."),
            _silu_slip(
                "dz", "The slope is correct, but dz is missing: if z grows by 1, the loss grows by dz."
            ),
            _silu_slip(
                "x", "The slope of the SiLU is correct. But if x grows by 1, x * y doesn't grow by x."
            ),
            _silu_slip("minus", "The two terms have different signs. A product rule adds its terms."),
            _silu_slip("negative", "That's the gradient with the wrong sign."),
            _silu_slip("exponent", "Your gate shuts as t grows. Check the sign of the sigmoid's exponent."),
            _silu_slip("t", "In one place you multiply by x where the SiLU has t = x * y."),
            _silu_slip("gate", "A relu's gate is still in it. Below 0, the SiLU has a slope, too."),
            _silu_slip("relu", "That's the gradient of the relu. The SiLU's slope isn't just 0 or 1."),
            _silu_slip("product", "In t * s, the slope of s still needs its factor: t times s * (1 - s)."),
            _silu_slip("brackets", "dz and y multiply both terms of the slope: put brackets around its sum."),
            _silu_slip("plus", "Your slope has 1 + s. The slope of the sigmoid is s * (1 - s)."),
            _silu_slip("slope", "That has the slope of the sigmoid alone. The SiLU is t times the sigmoid."),
            _silu_slip("forward", "That has the SiLU itself as a factor. The chain rule needs its slope."),
        ),
        same=lambda given, right: silu.is_near(given, torch.tensor(right)),
        computed=True,
    ),
)
