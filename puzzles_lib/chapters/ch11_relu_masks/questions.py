"""The predictions of chapter 11."""

import torch

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question

FARTHEST = 0.4  # that a dweight of 2-bit codes may be off
CODES, UNGATED, ONES, OF_X, UNKNOWN = "codes", "ungated", "ones", "of x", ""  # causes of a wrong gradient


def _bytes_kept(elements: int = 64 * 1024) -> tuple[int, int]:
    return elements * 2, elements // 8


def _gates_that_nan_shuts() -> set[int]:
    """Return the elements of word 0 of row 0, in the last case, for which x > 0 gives the wrong bit."""
    x = make_inputs(RELU_PACK, RELU_PACK.cases[5])["x"][0, :32]
    return {n for n, value in enumerate(x.tolist()) if (value > 0) == (value <= 0)}


def _ones_without_the_sign(bits: set[int]) -> set[int]:
    """Return the places of the ones in what `bin` prints for an int32 with these bits, sign bit included."""
    return {n for n in range(32) if abs(sum(1 << bit for bit in bits) - (1 << 32)) >> n & 1}


def _bytes_of_a_layer(rows: int = 128, columns: int = 256, group: int = 256) -> int:
    """Return the bytes of a mask, of 2-bit codes, and of a scale and a minimum in bfloat16 per group."""
    values = rows * columns
    return values // 8 + values * 2 // 8 + values // group * 4


def _lost_by_codes() -> set[int]:
    """Return the elements whose 2-bit code is 0 although they are positive."""
    y = torch.tensor([0.0, 0.1, 0.6, 0.0, 3.0, 0.4])
    return set(((y > 0) & (y.round() == 0)).nonzero().flatten().tolist())


def _early_enough() -> set[str]:
    """Return the expressions that give the offset of an element in row 80000, in torch's int32."""
    row, N, n = (torch.tensor(v, dtype=torch.int32) for v in (80000, 28672, 5))
    offsets = {
        "a": (row * N + n).long(),
        "b": row.long() * N + n,
        "c": row * N + n.long(),
        "d": n + N.long() * row,
    }
    return {letter for letter, offset in offsets.items() if int(offset) == 80000 * 28672 + 5}


def _times_as_many_bytes() -> float:
    """Return the bytes that torch's backward moves per element, in those of ours."""
    return (2 + 2 + 2) / (2 + 1 / 8 + 2)


QUESTIONS = (
    Question(
        id="ch11-q2",
        asks="Has own_bug_kernel a bug that only case 5 notices, in the bits of something else than NaN?",
        right=lambda: ({0, 1, 2, 3, 4}, True, True),
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: not r[0] <= v[0],
                "A case from 0 to 4 fails, too. Start from your correct kernel and change only the bits.",
            ),
            Nudge(lambda v, r: not v[1], "Something else than the mask is wrong, such as y. Keep y correct."),
            Nudge(lambda v, r: 5 in v[0], "Case 5 passes, too. What does it contain besides NaN?"),
        ),
        nudge="Only case 5 fails, but a NaN's bit is 0, and that bug is known. (A NaN has a sign bit, too. "
        "Both kinds must have a 1.) Find a bug for another of case 5's values.",
        same=lambda v, r: r[0] <= v[0] and 5 not in v[0] and v[1] and v[2],
        computed=True,
    ),
    Question(
        id="ch11-q5",
        asks="x is bfloat16, [64, 1024]. How many bytes does autograd keep for torch.relu(x), and how many "
        "would one bit per element take? (autograd, bits)",
        right=_bytes_kept,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) != 2, "Please give two numbers of bytes: (autograd, one bit per element)."
            ),
            Nudge(
                lambda v, r: v == r[::-1],
                "Both numbers are correct, but swap them: autograd's comes first.",
            ),
            Nudge(
                lambda v, r: v[0] == r[0] // 2,
                "That's how many elements there are. And how many bytes is each?",
            ),
            Nudge(
                lambda v, r: v[0] == 2 * r[0],
                "That's as much as x and y together. Does the backward pass need both?",
            ),
            Nudge(lambda v, r: v[1] == 8 * r[1], "Your second number is in bits. Convert it to bytes."),
        ),
        nudge="Count the elements. Autograd keeps two bytes for each, the mask an eighth of a byte.",
        why="Each element has two bytes, and one byte of a mask is enough for eight elements.",
    ),
    Question(
        id="ch11-q6",
        asks="Word 0 of the mask, an int32, is 405362512 and should be -1708566704. Which elements of row 0 "
        "have the wrong bit? Answer with a set.",
        right=_gates_that_nan_shuts,
        kind=set,
        computed=True,
        nudges=(
            Nudge(lambda v, r: not v, "The two words are different, so some bit differs."),
            Nudge(lambda v, r: v and max(v) > 31, "Word 0 contains the elements 0 to 31 only."),
            Nudge(
                lambda v, r: v == {31 - n for n in r},
                "You found the bits, but the lowest bit is element 0: count from the right.",
            ),
            Nudge(
                lambda v, r: v == _ones_without_the_sign(r),
                "Those are the ones that Python prints after a minus, so they aren't the bits of the int32. "
                "Apply & 0xffffffff before you print.",
            ),
            Nudge(lambda v, r: v < r, "Correct so far, but there is more."),
            Nudge(lambda v, r: v > r, "Your set contains both wrong bits, but also correct ones."),
        ),
        nudge="Which operator on two numbers gives a 1 exactly in the bits that differ? Then bit i of the "
        "result belongs to element i.",
    ),
    Question(
        id="ch11-q8",
        asks="Are z and dx as torch's, how far is dweight off, and how many bytes are kept? Your forward and "
        "backward must run, and backward must return both gradients. If one of them fails, a line above says "
        "where.",
        right=lambda: (True, True, 0.27, _bytes_of_a_layer(), UNKNOWN),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: not v[0], "z isn't relu(x) @ weight.T any more. Return it from forward."),
            Nudge(
                lambda v, r: v[4] == CODES,
                "Your dx is 0 where the 2-bit code is 0. Small positive y have that code, too, so you lose "
                "their gradient. Which of the tensors can tell them from 0?",
            ),
            Nudge(
                lambda v, r: v[4] == UNGATED,
                "Your dx is the gradient that arrives at y. Where y is 0, it must not pass. Which of the "
                "tensors knows where?",
            ),
            Nudge(
                lambda v, r: v[4] == ONES,
                "Your dweight is what you'd get if each positive y were the same number. The mask knows "
                "where y is positive, but not how large it is. What else do you have to keep?",
            ),
            Nudge(
                lambda v, r: v[4] == OF_X,
                "Your dweight comes from the codes of x. But the input of the linear layer is y, so y is "
                "what you should squeeze.",
            ),
            Nudge(
                lambda v, r: not v[1],
                "dx isn't torch's. Which gradient arrives at y? From there on, it's puzzle 18.",
            ),
            Nudge(
                lambda v, r: v[2] > FARTHEST,
                "dweight is too far off. Row j of it is the sum over all tokens of dz[token, j] * y[token].",
            ),
            Nudge(
                lambda v, r: v[3] > 13_000,
                "Your gradients are correct, but you keep more bytes than the budget. Which of your "
                "tensors has "
                "16 bits per value?",
            ),
            Nudge(
                lambda v, r: v[2] < 0.1,
                "dweight is more exact than 2 bits allow, so some y in 16 bits is still alive. Where?",
            ),
        ),
        nudge="All results are correct, but fewer bytes are counted than a mask and a 2-bit y take. Keep "
        "these "
        "tensors with ctx.save_for_backward, or autograd can't notice if one of them changes before the "
        "backward "
        "pass.",
        same=lambda v, r: v[0] and v[1] and 0.1 < v[2] <= FARTHEST and r[3] <= v[3] <= 13_000,
        computed=True,
    ),
    Question(
        id="ch11-q9",
        asks="y is 0, 0.1, 0.6, 0, 3, 0.4, with minimum 0, scale 1 and 2-bit codes. If the gradient passed "
        "where "
        "the code is above 0, which elements would get the wrong gradient? Answer with a set.",
        right=_lost_by_codes,
        kind=set,
        nudges=(
            Nudge(
                lambda v, r: v & {0, 3}, "Elements 0 and 3 are 0, and so are their codes. What's right for 0?"
            ),
            Nudge(
                lambda v, r: v & {2, 4},
                "0.6 and 3 have the codes 1 and 3, so the gradient passes, correctly.",
            ),
            Nudge(lambda v, r: not v, "Which codes do 0.1 and 0.6 get?"),
            Nudge(lambda v, r: v < r, "Correct so far, but there is more."),
        ),
        nudge="Write down the six codes: y rounded to a whole number. Where is y above 0, and the code "
        "isn't?",
        why="0.1 and 0.4 are rounded to code 0.",
    ),
    Question(
        id="ch11-q10",
        asks="Which of the offsets a to d are correct in row 80000 of a tensor with 28672 columns? Answer "
        "with a "
        "set of letters.",
        right=_early_enough,
        kind=set,
        nudges=(
            Nudge(lambda v, r: "a" in v, "In a, the int32 sum has wrapped around before it's converted."),
            Nudge(lambda v, r: "c" in v, "In c, n is an int64. But of which type is row * N?"),
            Nudge(
                lambda v, r: v and v < r,
                "Correct so far, but there is more. It doesn't matter which factor is wider.",
            ),
        ),
        nudge="If one of two factors is an int64, their product is, too. Which products here are int64?",
        why="In a and c, row * N is an int32 product, and 80000 * 28672 doesn't fit.",
    ),
    Question(
        id="ch11-q11",
        asks="Per element, ours reads 2 bytes and a bit and writes 2 bytes. Torch's reads y in bfloat16 "
        "instead "
        "of the bit. How many times as many bytes does torch's move, with two decimals?",
        right=lambda: round(_times_as_many_bytes(), 2),
        kind=float,
        nudges=(
            Nudge(
                lambda v, r: v == 16,
                "y is 16 times as large as the mask. But both kernels also move dy and dx.",
            ),
            Nudge(lambda v, r: v < 1, "Torch's moves more, so the factor is above 1."),
            Nudge(
                lambda v, r: abs(v - 6 / 4) < 0.02,
                "That's 6 bytes over 4, so one bit per element is missing. How many bytes is a bit?",
            ),
            Nudge(lambda v, r: abs(v - 6 / 5) < 0.04, "A bit isn't a byte. How many bytes is it?"),
            Nudge(
                lambda v, r: abs(v - 4 / 2.125) < 0.06,
                "You counted what is read. Both kernels also write dx.",
            ),
        ),
        nudge="Add up the bytes per element for each kernel: what it reads, and what it writes. Then divide, "
        "and answer with two decimals.",
        same=lambda v, r: abs(v - _times_as_many_bytes()) < 0.006,
        why="Torch's moves 6 bytes, ours 4.125.",
    ),
)
