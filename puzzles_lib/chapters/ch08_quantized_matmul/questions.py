"""The predictions of chapter 08."""

import triton

from puzzles_lib.chapters.ch08_quantized_matmul.pictures import CODES, pack
from puzzles_lib.chapters.ch08_quantized_matmul.puzzles import GROUPED_WEIGHTS, QUANTIZED_MATMUL
from puzzles_lib.inputs import zeros
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.recorded import rows


def _fields_without_mask() -> set[int]:
    """Return the fields that `>>` alone gives, once bit 31 of the chapter's word is 0."""
    word = pack(CODES) & (2**31 - 1)
    return {i for i in range(8) if word >> 4 * i == word >> 4 * i & 15}


def _with_one_offset_word() -> set[int]:
    """Return the cases with up to eight groups per row, or with offsets that are all 0."""
    return {
        number
        for number, case in enumerate(GROUPED_WEIGHTS.cases)
        if case.K // case.GROUP <= 8 or case.fill.get("offset") is zeros
    }


def _loads_of_a_word() -> int:
    """Return eight lanes times the programs that need a word."""
    case = QUANTIZED_MATMUL.cases[2]
    return 8 * triton.cdiv(case.N, case.BLOCK_N)


def _detour() -> int:
    """Return the bytes of a weight that is stored and read again, in those of its code."""
    code, stored = 4 / 8, 4
    return int((code + 2 * stored) / code)


LAYER = 4096  # rows and columns of the weights that are timed
LAYER_GROUP = 128
MULTIPROCESSORS = 132  # of an H200


def _best_blocks() -> tuple[int, int, int]:
    """Return the smallest BLOCK_N, the longest BLOCK_K, and the tallest BLOCK_M with enough programs."""
    sides = [2**power for power in range(4, 13)]
    tall = max(side for side in sides if LAYER // side >= MULTIPROCESSORS)
    return tall, min(sides), max(side for side in sides if LAYER_GROUP % side == 0)


def _are_blocks(given: tuple) -> bool:
    return len(given) == 3 and all(isinstance(b, int) and b >= 16 and b & (b - 1) == 0 for b in given)


def _products() -> int:
    """Return one multiplication per result of a tile."""
    return 16 * 16


CHANGES = ("tiles", "words", "groups", "dots")  # in the order of the recorded steps


def _best_change() -> str:
    times = [row["us"] for row in rows("quantized-matmul") if row["case"].endswith("N = 1")]
    factors = [times[i] / times[i + 1] for i in range(len(CHANGES))]
    return CHANGES[factors.index(max(factors))]


QUESTIONS = (
    Question(
        "ch08-q1",
        "Bit 31 is now 0. For which fields i does word >> 4 * i alone give the code?",
        _fields_without_mask,
        set,
        "Take field 0: word >> 0 is the whole word. Which bits have to be 0, if a code is to be left alone?",
        (
            Nudge(
                lambda given, right: given == set(range(8)),
                "There are no copies of a sign bit any more. But what about the fields above the chosen one?",
            ),
            Nudge(
                lambda given, right: not given,
                "Most fields have other codes above them. Is there one that has nothing above it?",
            ),
            Nudge(
                lambda given, right: given > right,
                "Field 7 is correct. Take one of the others: which bits does the shift bring down, too?",
            ),
        ),
        why="All other fields have codes above them, and >> brings these down, too.",
    ),
    Question(
        "ch08-q2",
        "Which cases pass if every offset row is taken to be one word long?",
        _with_one_offset_word,
        set,
        "One word has room for eight offsets. How many groups does a row have in each case?",
        (
            Nudge(
                lambda given, right: given == {0, 4},
                "They have up to eight groups. One more case passes for another reason: see its inputs.",
            ),
            Nudge(
                lambda given, right: not given,
                "Some cases do pass. Where is one word's room for eight offsets enough?",
            ),
            Nudge(
                lambda given, right: given < right,
                "Correct so far, but more cases pass. Where is one word's room for eight offsets enough?",
            ),
            Nudge(
                lambda given, right: given > right,
                "At least one of them has rows of more than eight groups, and its offsets aren't all alike.",
            ),
        ),
        why="In cases 0 and 4, a row has up to eight groups. In case 5, all offsets are 0.",
    ),
    Question(
        "ch08-q3",
        "Over all lanes and programs, how many times is each weight word loaded?",
        _loads_of_a_word,
        int,
        "Follow one word: which lanes of a program load it, and which programs need it?",
        (
            Nudge(
                lambda given, right: given == 1,
                "A kernel could manage that. But in yours, each lane loads the word that its own code is in.",
            ),
            Nudge(
                lambda given, right: given == 8,
                "That's how many lanes of a program load it. But how many programs need the same weights? "
                "Look at N.",
            ),
            Nudge(
                lambda given, right: given == 2,
                "It's true that two programs need each word. In each of them, how many lanes load it?",
            ),
            Nudge(
                lambda given, right: given == 45 * 104 * 2,
                "That's how many loads of words there are. How many are they per word?",
            ),
        ),
        why="Eight lanes load it in each of two programs.",
    ),
    Question(
        "ch08-q4",
        "How many times as many bytes does the detour through stored weights move?",
        _detour,
        int,
        "Half a byte of code is read either way. What else is moved, if a float32 is stored and read again?",
        (
            Nudge(
                lambda given, right: given == 8,
                "A float32 has eight times as many bytes as a code. But it's moved twice, and the code is "
                "moved, too.",
            ),
            Nudge(
                lambda given, right: given == 9,
                "That's what 12b moves: it reads a code and writes a float32. Then the matmul reads that.",
            ),
            Nudge(
                lambda given, right: given + 1 == right,
                "That counts the float32 twice, which is correct. But 12b has to read the code, too.",
            ),
        ),
        why="12b reads 0.5 bytes and writes 4, and the matmul reads 4. That's 8.5 instead of 0.5.",
    ),
    Question(
        "ch08-q5",
        "With how few multiplications by s can an iteration add its scaled part to acc?",
        _products,
        int,
        "Write down one result as a sum over k. Where can its scale go, other than to each weight?",
        (
            Nudge(
                lambda given, right: given == 16,
                "There are 16 scales, but each of them belongs to a whole row of results.",
            ),
            Nudge(
                lambda given, right: given == 16 * 128,
                "That's one per weight, as in 12c. In the sum of one result, what doesn't depend on k?",
            ),
        ),
        why="There's one multiplication per result of the tile: the scale multiplies the sum.",
    ),
    Question(
        "ch08-q6",
        "Which change gives the largest speedup?",
        _best_change,
        str,
        "Which change affects nearly all of the arithmetic, and not just a few instructions?",
        (
            Nudge(
                lambda given, right: given not in CHANGES,
                "The answer is one of the four words in quotes above.",
            ),
            Nudge(
                lambda given, right: given == "groups",
                "That saves loads and some multiplications. But a tile has 16 columns, and one token fills "
                "one. What computes all the products of the others?",
            ),
            Nudge(
                lambda given, right: given == "words",
                "The GPU answers eight lanes with one read already, so this saves less than you'd think.",
            ),
        ),
        why="It's the only change that brings the dot to the tensor cores.",
    ),
    Question(
        "ch08-q7",
        "Which blocks waste the fewest columns, keep an iteration within a group, and busy the whole GPU?",
        _best_blocks,
        tuple,
        "Only BLOCK_M is left. The 4096 rows are cut into tiles of BLOCK_M: how many programs are that?",
        (
            Nudge(
                lambda given, right: not _are_blocks(given),
                "Answer with three powers of two, each 16 or more: (BLOCK_M, BLOCK_N, BLOCK_K).",
            ),
            Nudge(
                lambda given, right: given[1] > right[1],
                "One token is one column of the activation. How narrow can a tile of tl.dot be?",
            ),
            Nudge(
                lambda given, right: given[2] > right[2],
                "Such an iteration has columns of several groups, which have several scales per row.",
            ),
            Nudge(
                lambda given, right: given[2] < right[2],
                "That's within a group. But then a group takes several iterations, and each loads its scale.",
            ),
        ),
        why="Tiles of 16 rows make 256 programs, and tiles of 32 rows only 128.",
    ),
)
