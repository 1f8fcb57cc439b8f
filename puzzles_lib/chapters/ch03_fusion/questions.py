"""The predictions of chapter 03."""

import torch

from puzzles_lib.question import Nudge, Question

M, N, FLOAT32 = 200, 300, 4


def _saved() -> int:
    """The product is written once and read once."""
    return 2 * M * N * FLOAT32


def _gradient() -> tuple[int, ...]:
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    torch.relu(x * 3.0).backward(torch.tensor([10.0, 20.0, 30.0]))
    return tuple(int(value) for value in x.grad)


def _open_gate() -> int:
    x, y, dz = 0, 3, 20
    return dz * y if x * y >= 0 else 0


QUESTIONS = (
    Question(
        "ch03-q1",
        "How many bytes does one fused kernel move less than the two kernels?",
        _saved,
        int,
        "What is it that never goes to memory any more, and how many numbers does it have?",
        (
            Nudge(
                lambda given, right: 2 * given == right,
                "That is one way. The product was written, and then read back.",
            ),
            Nudge(lambda given, right: FLOAT32 * given == right, "So many numbers; each has 4 bytes."),
            Nudge(
                lambda given, right: 2 * FLOAT32 * given == right,
                "So many numbers. Each has 4 bytes, and goes both ways.",
            ),
        ),
    ),
    Question(
        "ch03-q2",
        "What is dx for x = -1, 0, 2, with y = 3 and dz = 10, 20, 30?",
        _gradient,
        tuple,
        "For each: is x * y above 0? If so dz * y, and if not, the gate is shut.",
        (
            Nudge(lambda given, right: len(given) != 3, "Three numbers."),
            Nudge(
                lambda given, right: given[1] != 0 and given[::2] == right[::2],
                "Two are right. At exactly 0 the gate is shut.",
            ),
            Nudge(
                lambda given, right: given[2] == 30,
                "The gate passes dz on. Which factor is missing?",
            ),
        ),
    ),
    Question(
        "ch03-q3",
        "What does the second element of dx become with >= in place of >?",
        _open_gate,
        int,
        "Now the gate is open at 0. What does it let through, and times what?",
        (
            Nudge(lambda given, right: given == 0, "So it is with >. Is 0 >= 0?"),
            Nudge(lambda given, right: given == 20, "That is dz. The chain rule has one more factor."),
        ),
    ),
)
