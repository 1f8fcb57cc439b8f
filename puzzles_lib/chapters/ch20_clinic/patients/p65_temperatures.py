"""A kernel is compiled again for a size of 1 and for multiples of 16."""

from collections.abc import Iterable

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient, cause
from puzzles_lib.contract import Contract, Size
from puzzles_lib.goal import Once
from puzzles_lib.inputs import large
from puzzles_lib.mistakes import Mistake
from puzzles_lib.puzzle import Case, Puzzle
from puzzles_lib.question import Nudge, Question


def temperatures(
    logits: Float32[Tensor, "M V"],
    t: Float32[Tensor, " M"],
) -> Float32[Tensor, "M V"]:
    """z[m, v] = logits[m, v] · t[m], where t[m] is 1 / temperature"""
    return logits * t[:, None]


PUZZLE = Puzzle(
    number="65",
    spec=temperatures,
    formula=r"z_{mv} = \mathrm{logits}_{mv} \, t_m",
    grid=lambda s: (triton.cdiv(s.M, s.BLOCK_M), triton.cdiv(s.V, s.BLOCK_V)),
    most_loads={"logits": lambda s: s.M * s.V},
    cases=(
        Case(M=1, V=32, BLOCK_M=4, BLOCK_V=32),  # one request, one program
        Case(M=3, V=32, BLOCK_M=4, BLOCK_V=32),  # three
        Case(M=16, V=32, BLOCK_M=4, BLOCK_V=32),  # sixteen
        Case(M=5, V=41, BLOCK_M=4, BLOCK_V=32, fill={"logits": large}),  # ragged on both axes
    ),
    contract=Contract({"M": Size(40), "V": Size(150), "BLOCK_M": (16,), "BLOCK_V": (64,)}),
    machine=(Once(cases=(0, 1, 2), keeps=("V",)),),
    broken_by="specialised",
)

SLIP = Mistake(
    PUZZLE,
    "specialised",
    "Triton compiles three kernels: for M = 1, for multiples of 16, and for other M.",
    {'@triton.jit(do_not_specialize=["M"])': "@triton.jit"},
    kind="machine",
    says="kernels compiled: 3, but the goal is one",
)


def class_of(size: int) -> str:
    """Return the class of an integer argument: all of one class share a kernel."""
    return "1" if size == 1 else "any other" if size % 16 else "a multiple of 16"


def first_of_class(sizes: Iterable[int]) -> set[int]:
    """Return the sizes, in this order, for which Triton compiles a kernel."""
    firsts: dict[str, int] = {}
    for size in sizes:
        firsts.setdefault(class_of(size), size)
    return set(firsts.values())


PATIENT = Patient(
    SLIP,
    thread="https://github.com/vllm-project/vllm-ascend/pull/13637",
    question=cause(
        SLIP,
        "c",
        ("runs", "values"),
        a="Then 8 would be a value that nobody has seen before. Does it stall?",
        b="Compare the block sizes in the table. Which of them differ from case to case?",
        d="Compare 16 with 32. Which of the two has more programs, and which stalls?",
    ),
    also=Question(
        id="ch20-q6",
        asks="M is 24, 32, 8, 1, 5, 16, 48 in turn. At which does a fresh server stall? A set of sizes.",
        right=lambda: first_of_class((24, 32, 8, 1, 5, 16, 48)),
        kind=set,
        nudge="It stalls at the first size of each of the three kinds. 3 and 8 are one kind, 16 and 32 "
        "another.",
        nudges=(
            Nudge(
                lambda v, r: len(v) == 7,
                "Then each size would have its own kernel. But M isn't a tl.constexpr.",
            ),
            Nudge(lambda v, r: 24 not in v, "24 comes first, and a fresh server has compiled nothing yet."),
            Nudge(
                lambda v, r: 8 in v,
                "Is 24 a multiple of 16? No, and neither is 8, so 24 and 8 are the same kind.",
            ),
            Nudge(lambda v, r: 16 in v or 48 in v, "Another multiple of 16 came earlier."),
        ),
    ),
)
