"""A kernel is compiled anew for sizes of 1 and for multiples of 16."""

import triton
from jaxtyping import Float32
from torch import Tensor

from puzzles_lib.chapters.ch20_clinic.patient import Patient
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
    """z[m, v] = logits[m, v] · t[m], for M requests at a time, each with its own t"""
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
    machine=(Once(cases=(0, 1, 2)),),
    broken_by="specialised",
)

SLIP = Mistake(
    PUZZLE,
    "specialised",
    "Triton compiles for M = 1, for multiples of 16 and for other M: three kernels.",
    {'@triton.jit(do_not_specialize=["M"])': "@triton.jit"},
    kind="machine",
    says="kernels compiled: 3, one wanted",
)


def classes(sizes: tuple[int, ...]) -> int:
    """How many kernels Triton compiles for these sizes."""
    return len({"1" if size == 1 else size % 16 == 0 for size in sizes})


PATIENT = Patient(
    SLIP,
    thread="https://github.com/vllm-project/vllm-ascend/pull/13637",
    ward="tools",
    question=Question(
        id="ch20-q65",
        asks="M is 1, 2, 3, 5, 8, 16, 17, 24, 32 in turn. At how many of these does the server stall?",
        right=lambda: classes((1, 2, 3, 5, 8, 16, 17, 24, 32)),
        kind=int,
        nudge="it stalls at the first size of each class; 1 is one of them, and so are multiples of 16",
        nudges=(
            Nudge(lambda v, r: v == 9, "then each size would have a kernel of its own: M is no tl.constexpr"),
            Nudge(lambda v, r: v == 2, "do not forget the sizes that are neither"),
            Nudge(lambda v, r: v == 1, "the report says that it is more than once"),
        ),
    ),
)
