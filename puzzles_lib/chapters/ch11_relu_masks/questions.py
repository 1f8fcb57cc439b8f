"""The predictions of chapter 11."""

import math

from puzzles_lib.chapters.ch11_relu_masks.puzzles import RELU_PACK, RELU_UNPACK_BACKWARD, odd_values
from puzzles_lib.inputs import make_inputs
from puzzles_lib.question import Nudge, Question


def _of_nan() -> tuple[int, int]:
    return int(math.nan > 0), int(not (math.nan <= 0))


def _where_a_product_fails() -> set[int]:
    cases = enumerate(RELU_UNPACK_BACKWARD.cases)
    return {i for i, case in cases if case.fill.get("dy") is odd_values}


def _bytes_kept(elements: int = 64 * 1024) -> tuple[int, int]:
    return elements * 2, elements // 8


def _gates_that_nan_shuts() -> set[int]:
    """Return the elements of word 0 of row 0, in the last case, for which x > 0 gives the wrong bit."""
    x = make_inputs(RELU_PACK, RELU_PACK.cases[5])["x"][0, :32]
    return {n for n, value in enumerate(x.tolist()) if (value > 0) == (value <= 0)}


def _bytes_of_a_layer(rows: int = 128, columns: int = 256, group: int = 256) -> int:
    """Return the bytes of a mask, of 2-bit codes, and of a scale and a minimum in bfloat16 per group."""
    values = rows * columns
    return values // 8 + values * 2 // 8 + values // group * 4


def _byte_of_two_rows(columns: int = 77, byte: int = 9) -> int:
    """Return a byte of one long row of bits, with all bits of row 0 set and none of row 1."""
    return sum(1 << b for b in range(8) if 8 * byte + b < columns)


QUESTIONS = (
    Question(
        id="ch11-q1",
        asks="x is NaN. What are the bits of `x > 0` and `~(x <= 0)`? Answer like (1, 0).",
        right=_of_nan,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Please give two bits, each 0 or 1."),
            Nudge(
                lambda v, r: v[0] == v[1],
                "For numbers, the two bits agree. But NaN isn't a number. What is float('nan') <= 0?",
            ),
        ),
        nudge="Every comparison with NaN is false, except !=. So what is `x <= 0`? Then apply the `~`.",
    ),
    Question(
        id="ch11-q2",
        asks="Which cases does your kernel pass, and is only the mask wrong? It should pass all but case 5.",
        right=lambda: ({0, 1, 2, 3, 4}, True),
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: not r[0] <= v[0],
                "A case from 0 to 4 fails, too. Start from your correct kernel and change only the bits.",
            ),
            Nudge(lambda v, r: not v[1], "Something else than the mask is wrong, such as y. Keep y correct."),
        ),
        nudge="Case 5 passes, too. What does it contain that the other cases don't?",
        same=lambda v, r: r[0] <= v[0] and 5 not in v[0] and v[1],
        computed=True,
    ),
    Question(
        id="ch11-q3",
        asks="In which cases of puzzle 18 is the product wrong? Answer with a set of numbers, counting from "
        "0.",
        right=_where_a_product_fails,
        kind=set,
        nudges=(
            Nudge(lambda v, r: 3 in v, "In case 3 every bit is 1, and a factor of 1 changes nothing."),
            Nudge(lambda v, r: v < r, "Correct so far, but there is more."),
        ),
        nudge="Look at the cases to see what dy contains. Which values times 0 don't give 0?",
    ),
    Question(
        id="ch11-q4",
        asks="N = 28672. Which is the first row with an offset row * N + n of 2^31 or more?",
        right=lambda: 2**31 // 28672,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r + 1,
                "Close. In that row every offset is too large. But does the row before end below 2^31?",
            ),
            Nudge(lambda v, r: v == r // 2, "You used 2^30. An int32 has 31 bits besides its sign."),
        ),
        nudge="A row has 28672 offsets and begins at row * 28672. So which row contains the offset 2^31?",
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
                "Did you count both x and y? One of them is enough to see where the gradient passes.",
            ),
            Nudge(lambda v, r: v[1] == 8 * r[1], "Your second number is in bits. Convert it to bytes."),
        ),
        nudge="Count the elements. Autograd keeps two bytes for each, the mask an eighth of a byte.",
    ),
    Question(
        id="ch11-q6",
        asks="The bit is `x > 0`. In case 5, which elements of row 0 have the wrong bit in word 0? Answer "
        "with a set.",
        right=_gates_that_nan_shuts,
        kind=set,
        nudges=(
            Nudge(lambda v, r: not v, "The two words are different, so some bit differs."),
            Nudge(lambda v, r: v and max(v) > 31, "Word 0 contains the elements 0 to 31 only."),
            Nudge(
                lambda v, r: v == {31 - n for n in r},
                "You found the bits, but the lowest bit is element 0: count from the right.",
            ),
            Nudge(lambda v, r: v < r, "Correct so far, but there is more."),
            Nudge(
                lambda v, r: len(v) == len(r) and len(v & r) == 1,
                "One of your elements is correct, the other isn't. Look for another NaN.",
            ),
            Nudge(
                lambda v, r: v > r,
                "Your set contains all wrong bits, but also correct ones. For 0 and -0.0, both versions "
                "give 0.",
            ),
        ),
        nudge="Which values of x are neither above 0 nor at most 0? Look for them among the first 32 of x.",
    ),
    Question(
        id="ch11-q7",
        asks="x is [100, 77], row 0 is all 1 and row 1 all -1. As one long row, what number is byte 9 of the "
        "mask, counting from 0?",
        right=_byte_of_two_rows,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 255, "255 is byte 8. But row 0 ends within byte 9."),
            Nudge(lambda v, r: v == 0, "0 is byte 10. Byte 9 still has some of row 0."),
            Nudge(
                lambda v, r: v == 248,
                "The number of ones is correct, but the first element is the lowest bit.",
            ),
            Nudge(
                lambda v, r: v == 224,
                "Those three bits are row 1's, and row 1 is negative. The lowest bit belongs to the first "
                "element.",
            ),
            Nudge(lambda v, r: v == 5, "There are 5 ones, yes. But which number do they make?"),
        ),
        nudge="Byte 9 contains the elements 72 to 79, the lowest bit first. Row 0 ends with element 76.",
    ),
    Question(
        id="ch11-q8",
        asks="Is z as torch's, is dx as torch's, is dweight near torch's but not exact, and how many bytes "
        "are kept for y of [128, 256]?",
        right=lambda: (True, True, True, _bytes_of_a_layer()),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: not v[0], "z isn't relu(x) @ weight.T any more. Return it from forward."),
            Nudge(
                lambda v, r: not v[1], "dx isn't torch's. First dz @ weight, then what the mask lets pass."
            ),
            Nudge(
                lambda v, r: not v[2],
                "dweight is too far off, or exact. It's dz.T times y, from y's 2-bit codes.",
            ),
            Nudge(
                lambda v, r: v[3] > r[3],
                "All results are correct, but you keep more than the mask and the 2-bit y.",
            ),
        ),
        nudge="All results are correct, but autograd keeps less than a mask and a 2-bit y. A tensor that you "
        "store as ctx.mask stays hidden from it: no hook sees it, and nobody notices if it changes before "
        "the backward pass. Keep all of them with ctx.save_for_backward.",
        computed=True,
    ),
)
