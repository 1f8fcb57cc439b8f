"""The predictions of chapter 02."""

from collections.abc import Callable

import torch
import triton

from puzzles_lib.chapters.ch02_broadcasting.puzzles import OUTER_ADD, OUTER_ADD_BLOCKS
from puzzles_lib.question import Nudge, Question


def _element_of_column_30() -> tuple[int, int]:
    return divmod(30, OUTER_ADD.cases[2].N)


def _loads() -> tuple[int, int]:
    """A row of tiles needs y once for each of its tiles, a column x."""
    rows, columns = OUTER_ADD_BLOCKS.programs(OUTER_ADD_BLOCKS.cases[2])[:2]
    return rows, columns


def _bytes_of_scales() -> tuple[int, int]:
    expanded = torch.empty(1000)[:, None].expand(1000, 3000)
    return expanded.untyped_storage().nbytes(), expanded.contiguous().untyped_storage().nbytes()


def counts(x: torch.Tensor, y: torch.Tensor, steps: int, slip: str = "") -> torch.Tensor:
    """Return for each point (x[n], y[m]) after how many of the steps a*a + b*b is below 4.

    slip: what is done wrong. ``"order"``: the new b is made from the new a. ``"limit"``: 2 instead of 4.
    ``"moment"``: each step is counted before it is made. ``"side"``: steps above 4 count.
    """
    x, y = x[None, :], y[:, None]
    a = b = count = torch.zeros(y.shape[0], x.shape[1])
    for _ in range(steps):
        below = a * a + b * b < 4
        old, a = a, a * a - b * b + x
        b = 2 * (a if slip == "order" else old) * b + y
        size = a * a + b * b
        count = count + (
            below
            if slip == "moment"
            else size > 4
            if slip == "side"
            else size < (2 if slip == "limit" else 4)
        )
    return count


STEPS = 30
PLANE = {"x": torch.linspace(-2.1, 0.7, 140), "y": torch.linspace(-1, 1, 100)}


def _mandelbrot() -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    """Return the counts of the notebook's plane after 30 steps, and that plane."""
    return counts(PLANE["x"], PLANE["y"], STEPS), PLANE


NEAR = 0.99  # the share of points with the right count: rounding moves points at the edge of the set


def _drawn(given: tuple, slip: str = "") -> bool:
    """Return whether these are the counts of a plane, up to rounding: (counts, plane)."""
    found, plane = given
    most = int(found.max())
    steps = max(most, STEPS) if slip == "side" else most  # what overflows counts no further
    want = counts(plane["x"], plane["y"], steps, slip)
    return most > 0 and want.shape == found.shape and bool((found == want).float().mean() >= NEAR)


LEAST = 0.05  # the share of points that must have another count than the most frequent one


def _is_telling(given: tuple) -> bool:
    """Return whether a plane's points have different counts, so that they tell correct loops from others."""
    found, plane = given
    want = counts(plane["x"], plane["y"], max(int(found.max()), STEPS))
    return bool((want != want.flatten().mode().values).float().mean() >= LEAST)


def _never_leaves(given: tuple) -> bool:
    return bool((given[0] == given[0].max()).all())


WORDS, WINDOW = 12, 4


def window(words: int = WORDS, size: int = WINDOW, back: bool = True) -> tuple[tuple[int, ...], ...]:
    """Return for each word (a row) which words (columns) it sees: 1 for the last `size`, itself included.

    back: False for words that see the next ones.
    """
    place = torch.arange(words)
    behind = (place[:, None] - place) * (1 if back else -1)
    return tuple(map(tuple, ((behind >= 0) & (behind < size)).int().tolist()))


def _whole(given: tuple) -> tuple:
    """Return the rows of a result as tuples of integers; () if it isn't a matrix of 0 and 1."""
    try:
        rows = tuple(tuple(int(v) for v in row) for row in given)
    except (TypeError, ValueError, OverflowError):
        return ()
    return rows if rows == tuple(map(tuple, given)) else ()


def _sees_later(rows: tuple[tuple[int, ...], ...]) -> bool:
    return any(any(row[m + 1 :]) for m, row in enumerate(rows))


def _is_blind_to_itself(rows: tuple[tuple[int, ...], ...]) -> bool:
    return bool(rows) and not any(row[m : m + 1] != (0,) for m, row in enumerate(rows))


PROGRAMS = 12  # at least, of the tile that is asked for
SIZES = tuple(2**power for power in range(3, 8))  # of the blocks that can be dragged


def _moved(tile: tuple[int, int]) -> tuple[int, int]:
    """Return how many elements the tiles of case 2 move, and how many programs there are."""
    case = OUTER_ADD_BLOCKS.cases[2].but(BLOCK_M=tile[0], BLOCK_N=tile[1])
    rows, columns = OUTER_ADD_BLOCKS.programs(case)[:2]
    return rows * case.N + columns * case.M + case.M * case.N, rows * columns


def _best_tile() -> tuple[int, int]:
    every = [(m, n) for m in SIZES for n in SIZES if _moved((m, n))[1] >= PROGRAMS]
    return min(every, key=_moved)


def _can_grow(tile: tuple[int, int]) -> bool:
    m, n = tile
    larger = [each for each in ((2 * m, n), (m, 2 * n)) if max(each) <= SIZES[-1]]
    return any(_moved(each)[1] >= PROGRAMS for each in larger)


def _is_a_tile(given: tuple) -> bool:
    return len(given) == 2 and all(size in SIZES for size in given)


def _grids() -> tuple[tuple[int, ...], ...]:
    return tuple(OUTER_ADD_BLOCKS.programs(case)[:2] for case in OUTER_ADD_BLOCKS.cases)


def _are_pairs(given: tuple) -> bool:
    return all(isinstance(grid, tuple | list) and len(grid) == 2 for grid in given)


def _counted(how: Callable[[int, int], float], swapped: bool = False) -> tuple[tuple[float, float], ...]:
    """Return the grids that come from one rule. swapped: each axis gets the other one's block size."""
    blocks = ("BLOCK_N", "BLOCK_M") if swapped else ("BLOCK_M", "BLOCK_N")
    return tuple(
        (how(case.M, case.numbers[blocks[0]]), how(case.N, case.numbers[blocks[1]]))
        for case in OUTER_ADD_BLOCKS.cases
    )


def _as_tuples(given: tuple) -> tuple:
    return tuple(map(tuple, given)) if _are_pairs(given) else ()


def _case(number: int) -> str:
    """Return the words for grids that are wrong in this case, and in none before it."""
    case = OUTER_ADD_BLOCKS.cases[number]
    return (
        f"Case {number} comes out wrong: {case.M} rows in tiles of {case.BLOCK_M}, and {case.N} columns in "
        f"tiles of {case.BLOCK_N}. How many tiles is that from top to bottom, and from left to right?"
    )


def _right_up_to(number: int) -> Callable[[tuple, tuple], bool]:
    return lambda given, right: _as_tuples(given)[:number] == right[:number]


QUESTIONS = (
    Question(
        "ch02-q1",
        "Which element of z does the lane in row 0, column 30 write to? Answer with (row, column).",
        _element_of_column_30,
        tuple,
        "Its offset is 0 * N + 30. Count the elements of z from 0, row by row, up to that one.",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (row, column)."),
            Nudge(
                lambda given, right: given == (0, 30),
                "Row 0 of z ends at column 29. Where does memory continue?",
            ),
            Nudge(lambda given, right: given == right[::-1], "The row comes first, then the column."),
        ),
    ),
    Question(
        "ch02-q2",
        "How many programs load each element of x, and how many load each element of y? "
        "Answer with a pair: (x, y).",
        _loads,
        tuple,
        "x runs along a row of z. How many tiles are in the same column of the grid, one above the other?",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (x, y)."),
            Nudge(
                lambda given, right: given == right[::-1],
                "Right numbers, wrong order. Does x run along the rows of z, or down its columns?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "x is correct. y runs down a column of z. How many tiles are in the same row of the grid?",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "y is correct. x runs along a row of z. How many tiles are in the same column of the grid?",
            ),
            Nudge(
                lambda given, right: given == (1, 1),
                "One program each would be enough if there were a single tile. How many tiles need x[0]?",
            ),
        ),
        why="The 3 tiles in a column of the grid need the same part of x, and the 7 in a row need the same "
        "part of y.",
    ),
    Question(
        "ch02-q5",
        "How many bytes of memory does each version occupy? Answer with a pair: (expanded, written).",
        _bytes_of_scales,
        tuple,
        "How many numbers does each version keep in memory? A number has 4 bytes.",
        (
            Nudge(lambda given, right: len(given) != 2, "The answer has two numbers: (expanded, written)."),
            Nudge(
                lambda given, right: given[0] == right[1] == given[1],
                "That's correct for written. But expand copies nothing. What is still in memory?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0] == given[1],
                "That's correct for expanded. But contiguous() writes every repeat to memory.",
            ),
            Nudge(lambda given, right: given == right[::-1], "Which of the two is a copy?"),
            Nudge(
                lambda given, right: given == tuple(number // 4 for number in right),
                "That's how many numbers they keep. How many bytes does each number have?",
            ),
            Nudge(
                lambda given, right: given == (right[0], right[1] // 4),
                "That's correct for expanded. For written, it's the number of numbers. How many bytes does "
                "each number have?",
            ),
            Nudge(
                lambda given, right: given[0] == right[0],
                "That's correct for expanded. How many numbers does written keep? A number has 4 bytes.",
            ),
            Nudge(
                lambda given, right: given[1] == right[1],
                "That's correct for written. How many numbers does expanded keep? A number has 4 bytes.",
            ),
        ),
    ),
    Question(
        "ch02-q6",
        "What is the grid in each of the six cases? (A function without return returns None.)",
        _grids,
        tuple,
        _case(0),
        (
            Nudge(
                lambda given, right: not _are_pairs(given),
                "Return a pair: the number of programs along axis 0, then along axis 1.",
            ),
            Nudge(
                lambda given, right: _as_tuples(given) == tuple(grid[::-1] for grid in right),
                "Axis 0 numbers the tiles from top to bottom, so it goes with M. Your two axes are swapped.",
            ),
            Nudge(
                lambda given, right: any(size != int(size) for grid in _as_tuples(given) for size in grid),
                "These aren't whole numbers. Which function divides and rounds up?",
            ),
            Nudge(
                lambda given, right: _as_tuples(given) == _counted(lambda size, block: size // block),
                "Your grid counts only the tiles that fit entirely. In case 2, two tiles cover 64 of 90 "
                "rows. Which program would compute the other 26 rows?",
            ),
            Nudge(
                lambda given, right: _as_tuples(given) == _counted(lambda size, block: size // block + 1),
                "Your grid has a tile too many if the tiles fit without a remainder: in case 1, tiles of 16 "
                "rows cover 64 rows.",
            ),
            Nudge(
                lambda given, right: _as_tuples(given) == _counted(triton.cdiv, swapped=True),
                "The two block sizes are exchanged: a tile has BLOCK_M rows and BLOCK_N columns.",
            ),
            Nudge(_right_up_to(2), _case(2)),
            Nudge(_right_up_to(1), _case(1)),
        ),
        same=lambda given, right: _as_tuples(given) == right,
        computed=True,
    ),
    Question(
        "ch02-q7",
        "Does each point have the correct count? (So far, no point has one.)",
        _mandelbrot,
        tuple,
        "This isn't the Mandelbrot set yet. Check the two formulas, and what you add to steps.",
        (
            Nudge(
                lambda given, right: not _is_telling(given),
                "Nearly all points of this plane should have the same count, so it can't show whether your "
                "loop is correct. Take the plane above, or one with the edge of the black area in it.",
            ),
            Nudge(
                lambda given, right: _never_leaves(given),
                "All points have the same count. Do a and b change in your loop, and do you add a comparison "
                "to steps?",
            ),
            Nudge(
                lambda given, right: _drawn(given, "side"),
                "Your steps count while a * a + b * b is above 4. Turn the comparison around.",
            ),
            Nudge(
                lambda given, right: _drawn(given, "order"),
                "Your new b is made from the new a. Both need the old values: compute them in one line, with "
                "a, b = ..., or keep the old a under another name.",
            ),
            Nudge(
                lambda given, right: _drawn(given, "limit"),
                "Your steps count while a * a + b * b is below 2. There is no way back only from 4 on.",
            ),
            Nudge(
                lambda given, right: _drawn(given, "moment"),
                "Your counts are 1 too high: take the step first, then see whether a * a + b * b is below 4.",
            ),
        ),
        same=lambda given, right: _drawn(given) and _is_telling(given),
        computed=True,
    ),
    Question(
        "ch02-q8",
        f"Of the tiles that leave at least {PROGRAMS} programs, which one moves the fewest bytes? "
        "Answer with (BLOCK_M, BLOCK_N).",
        _best_tile,
        tuple,
        "Another tile of the same area moves fewer bytes. Which shape needs the fewest elements of x and y?",
        (
            Nudge(
                lambda given, right: not _is_a_tile(given),
                "The answer has two numbers that the sliders can show: (BLOCK_M, BLOCK_N).",
            ),
            Nudge(
                lambda given, right: _moved(given)[1] < PROGRAMS,
                f"That tile leaves fewer than {PROGRAMS} programs.",
            ),
            Nudge(
                lambda given, right: _can_grow(given),
                f"A tile that is twice as large moves fewer bytes, and still leaves {PROGRAMS} programs.",
            ),
        ),
    ),
    Question(
        "ch02-q9",
        f"Which of the {WORDS} words does each word see?",
        window,
        tuple,
        "This isn't the window yet. Take one row: which columns are at most 3 places before its word?",
        (
            Nudge(
                lambda given, right: _whole(given) == window(size=WORDS),
                "That's the causal mask: each word sees all words before it. What limits it to the last 4?",
            ),
            Nudge(
                lambda given, right: _whole(given) == window(size=WINDOW + 1),
                "Your window is one word too long. It has 4 words, including the word itself.",
            ),
            Nudge(
                lambda given, right: _whole(given) == window(size=WINDOW - 1),
                "Your window is one word too short. It has 4 words, including the word itself.",
            ),
            Nudge(
                lambda given, right: _whole(given) == window(back=False),
                "These words see the next ones. A row is the word that looks, a column a word it may see.",
            ),
            Nudge(
                lambda given, right: _sees_later(_whole(given)),
                "Some of your words see words that come after them. Which condition forbids that?",
            ),
            Nudge(
                lambda given, right: _is_blind_to_itself(_whole(given)),
                "Your words don't see themselves. The window's 4 words include the word itself.",
            ),
        ),
        same=lambda given, right: _whole(given) == right,
        computed=True,
    ),
)
