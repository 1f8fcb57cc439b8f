"""A running maximum that is still -inf: -inf - -inf is NaN."""

import torch
from jaxtyping import Float32, Int8
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause, reproduce
from puzzles_lib.contract import Contract, Size
from puzzles_lib.inputs import CREEPING, creeping, far_below, make_inputs
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge


def mostly(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a mask that keeps three of four, and always the first of each row."""
    keep = (torch.rand(shape, generator=generator) < 0.75).to(dtype)
    keep[..., 0] = 1
    return keep


def late(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a mask that keeps only the last half of each row."""
    keep = torch.zeros(shape, dtype=dtype)
    keep[..., shape[-1] // 2 :] = 1
    return keep


def early(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a mask that keeps only the first half of each row."""
    return 1 - late(shape, dtype, generator)


def all_of_them(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return a mask that keeps everything."""
    return torch.ones(shape, dtype=dtype)


def one_and_many(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return rows of a 0, followed by numbers from -8 to -16."""
    x = torch.linspace(-8.0, -16.0, shape[-1]).repeat(shape[0], 1)
    x[:, 0] = 0.0
    return x.to(dtype)


def one_nan(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, and a NaN in the middle of each row."""
    x = torch.randn(shape, generator=generator)
    x[..., shape[-1] // 2] = torch.nan
    return x.to(dtype)


def half_far_above(shape: tuple[int, ...], dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    """Return normal values, and 200 is added to those in the first half of each row."""
    x = torch.randn(shape, generator=generator)
    x[..., : shape[-1] // 2] += 200
    return x.to(dtype)


def kept_scores(
    x: Float32[Tensor, "M N"],
    keep: Int8[Tensor, "M N"],
) -> Float32[Tensor, " M"]:
    """z[m] = log of the sum of exp(x[m, n]) over those n where keep[m, n] is 1

    At least one is kept in each row. Each program computes one row, block by block,
    with a running maximum.
    """
    return x.masked_fill(keep == 0, -torch.inf).logsumexp(1)


def _from_too_high(x: Tensor, keep: Tensor) -> Tensor:
    """Compute `kept_scores` with a maximum that starts at -10,000."""
    x = x.masked_fill(keep == 0, -torch.inf)
    top = x.amax(1, keepdim=True).clamp(min=-1e4).float()
    return top[:, 0] + (x.float() - top).exp().sum(1).log()


PUZZLE = Puzzle(
    number="48",
    spec=kept_scores,
    formula=r"z_m = \log \sum_{n:\, \mathrm{keep}_{mn}} \exp x_{mn}",
    grid=lambda s: (s.M,),
    cases=(
        Case(M=1, N=16, BLOCK_N=16, fill={"keep": mostly}),  # one program, one block
        Case(M=3, N=64, BLOCK_N=16, fill={"keep": mostly}),  # several blocks, all full
        Case(M=4, N=45, BLOCK_N=16, fill={"keep": mostly}),  # ragged
        Case(M=3, N=64, BLOCK_N=16, fill={"keep": late}),
        Case(M=3, N=64, BLOCK_N=16, fill={"keep": early}),
        Case(M=2, N=40, BLOCK_N=16, fill={"keep": late, "x": far_below}),  # no maximum starts at 0
    ),
    hard={
        "a score that isn't kept can be far above all others": (
            Case(M=3, N=40, BLOCK_N=16, fill={"x": half_far_above, "keep": late})
        ),
        CREEPING: Case(M=1, N=512, BLOCK_N=16, fill={"x": creeping, "keep": all_of_them}),
        "many small exponentials are no longer small": (
            Case(M=1, N=512, BLOCK_N=64, fill={"x": one_and_many, "keep": all_of_them})
        ),
        "if a score that's kept is NaN, so is the result: your kernel hides it": (
            Case(M=2, N=40, BLOCK_N=16, fill={"x": one_nan, "keep": all_of_them})
        ),
    },
    contract=Contract(
        {"M": Size(9), "N": Size(300), "BLOCK_N": lambda s: (32,) if s.N > 64 else (32, 64)},
        fills=lambda s: ({"keep": late, "x": far_below}, {"keep": mostly}),
    ),
    needed={"x": lambda s: int(make_inputs(PUZZLE, s)["keep"].sum())},  # what is not kept need not be read
    slips={
        "if all scores are far below 0, z is -inf: the number subtracted from them is too large, so "
        "each exp() is 0": _from_too_high
    },
    broken_by="from_minus_infinity",
)

SLIP = Mistake(
    PUZZLE,
    "from_minus_infinity",
    "As long as nothing is kept the maximum is -inf, and -inf - -inf is NaN forever.",
    {
        '        base = tl.where(new == float("-inf"), 0.0, new)\n': "",
        "tl.exp(top - base)": "tl.exp(top - new)",
        "tl.exp(x - base)": "tl.exp(x - new)",
    },
    kind="values",
    says="NaN",
)

PATIENT = Patient(
    SLIP,
    thread="https://github.com/vllm-project/vllm/issues/48364",
    question=cause(
        SLIP,
        "d",
        ("values", "elements", "parts"),
        a="Test this with x of zeros: no exponential of those can overflow. Run keep = 0, 0, 1, 1 "
        "with BLOCK_N=2.",
        b="Compare keep = 0, 0, 1, 1 with 1, 1, 0, 0, with BLOCK_N=2. How many keys are left in "
        "each, and which is "
        "NaN?",
        c="Compare keep = 0, 0, 1, 1 with 0, 1, 0, 1, with BLOCK_N=2. Both mask out two keys. Which is NaN?",
    ),
    also=reproduce(
        "ch20-q5",
        "A row has N = 4 keys, with BLOCK_N = 2. For which keep, four numbers 0 or 1 with at least one 1, is "
        "the result NaN?",
        (0, 0, 1, 1),
        lambda *keep: set(keep) == {0, 1} and not any(keep[:2]),
        "Run this row: its result is a number. Shuffle its keys, as the report does, and run it again.",
        Nudge(lambda v, r: not set(v) <= {0, 1}, "Each of the numbers is 0 or 1."),
        Nudge(
            lambda v, r: not any(v), "Then no key is left, and minus infinity is correct. Keep at least one."
        ),
        Nudge(lambda v, r: all(v), "This row's result is a number. The report's rows have masked keys."),
    ),
)
