"""The predictions of chapter 16."""

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch.library import opcheck

from puzzles_lib.chapters.ch16_from_kernel_to_layer.digits import mlp
from puzzles_lib.chapters.ch16_from_kernel_to_layer.judged import are_strides, examined_at
from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import LINEAR_BACKWARD, STOCHASTIC_PACK, uniform
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.recorded import DIGITS, load, rounding_told
from puzzles_lib.timing.recorded import rows as recorded_rows

ROOM, IMAGES = 32e9, 1024  # bytes for activations, and images per step, of the question on the table


def _first_row_too_far() -> int:
    return -(-(2**31) // 50_001)


@cache
def _operators() -> dict[str, object]:
    """Return the notebook's broken operators, renamed: an operator's name can be taken only once."""
    source = Path(__file__).with_name("operators.py").read_text()
    found: dict[str, object] = {}
    exec(source.replace('"ch16::', '"ch16_asked::'), found)
    return found


def _convicts(strides: tuple[int, int]) -> bool:
    """Return whether a test of opcheck fails for row_by_row and an x of 5 by 33 with these strides."""
    return not examined_at(_operators()["row_by_row"], (5, 33), strides).endswith("tests: ok")  # type: ignore[arg-type]


def _failing(name: str) -> str:
    """Return the only test of opcheck that fails for this operator and an x that needs a gradient."""
    x = torch.randn(5, 33, generator=torch.Generator().manual_seed(0), requires_grad=name == "clipped")
    found = opcheck(_operators()[name], (x,), raise_exception=False)  # type: ignore[arg-type]
    (test,) = [test for test, result in found.items() if result != "SUCCESS"]
    return test


def _test(name: str) -> str:
    """Return a test's name without what a reader may leave out."""
    return name.strip().lower().removeprefix("test_")


TESTS = ("schema", "autograd_registration", "faketensor", "aot_dispatch_dynamic")


def _first_row_read() -> tuple[int, ...]:
    """Return the first row that strides (1, 2) find in a [2, 3] stored row by row."""
    y = torch.arange(6).view(3, 2).T.contiguous()
    return tuple(y.as_strided(y.shape, (1, 2))[0].tolist())


def _are_numbers(row: object) -> bool:
    return isinstance(row, tuple) and all(type(each) in (int, float) for each in row)


def _unpacked(row: tuple[float, ...]) -> list[float]:
    """Return what 2-bit codes of one group keep of a row of 16 numbers."""
    x = torch.tensor([row], dtype=torch.float64).bfloat16().double()
    words, scale, minimum = STOCHASTIC_PACK.spec(x, 2, 64, 7, 0)
    codes = words[0, :, None] >> 2 * torch.arange(16) & 3
    return (minimum[0].double() + scale[0].double() * codes[0]).tolist()


def _survives(row: object) -> bool:
    """Return whether 2-bit codes keep 16 numbers exactly, of which four are different."""
    if not _are_numbers(row) or len(row) != 16 or len(set(row)) < 4:  # type: ignore[arg-type]
        return False
    return _unpacked(row) == [float(each) for each in row]  # type: ignore[arg-type,attr-defined]


def _grid_for_db() -> tuple[int, int]:
    sizes = SimpleNamespace(COUT=45, N=91, BLOCK_C=16, BLOCK_N=32, NEED_DW=0)
    return tuple(LINEAR_BACKWARD.grid(sizes))


def _dtype_of_dy() -> str:
    layer, seen = torch.nn.Linear(4, 2), []
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.ones(3, 4))
    y.register_hook(lambda dy: seen.append(dy.dtype))
    y.float().sum().backward()
    return str(seen[0]).removeprefix("torch.")


def _ups() -> int:
    return int((2.3 + uniform(7, torch.arange(1000)) >= 3).sum())


def _inputs_kept_by_others() -> int:
    """Return how many layers get a ReLU's result, which the ReLU keeps."""
    layers = list(mlp())
    return sum(isinstance(layer, torch.nn.ReLU) for layer in layers[:-1])


def _bytes_of_codes() -> int:
    words, groups = 256 * 128 * 2 // 8, 256 * 128 // 64
    return words + groups * 2 * 2  # a scale and a minimum, of 2 bytes each


FORMATS = {"A": "2 bits, nearest", "B": "1 bit, nearest", "C": "1 bit, stochastic"}


def _by_distance() -> str:
    """Return the letters of `FORMATS`, that whose loss curve is nearest to float32's first."""
    apart = {row["path"]: row["apart"] for row in load(DIGITS)["curves"]}
    return "".join(sorted(FORMATS, key=lambda letter: apart[FORMATS[letter]]))


def _letters(value: str) -> str:
    return "".join(each for each in value.upper() if each.isalpha())


def _checkpointed() -> float:
    forward, backward = 1, 2  # products of a linear layer
    return (2 * forward + backward) / (forward + backward)


def _plain(path: str) -> str:
    """Return a path without what a reader may leave out."""
    plain = path.strip().lower().replace(",", "").removeprefix("packed ").removesuffix(" nearest")
    return "torch each block checkpointed" if "checkpoint" in plain else plain


def _row_of(path: str) -> Mapping[str, Any] | None:
    """Return the table's row of this path, if there is one."""
    rows = [row for row in recorded_rows("eager") if row["case"].startswith("ViT")]
    return next((row for row in rows if _plain(rounding_told(row["path"])) == _plain(path)), None)


def _needs(row: Mapping[str, Any] | None) -> float:
    """Return the bytes that a row's step needs with `IMAGES`."""
    if row is None:
        return 0.0
    (images,) = re.findall(r"batch (\d+)", row["case"])
    return row["bytes"] / int(images) * IMAGES


def _chosen() -> str:
    """Return the path with the largest cosine, among those that fit and are about the fastest."""
    rows = [row for row in recorded_rows("eager") if row["case"].startswith("ViT") and _needs(row) <= ROOM]
    fast = [row for row in rows if row["us"] <= 1.03 * min(each["us"] for each in rows)]
    return rounding_told(max(fast, key=lambda row: row["cosine"])["path"])


def _off() -> float:
    """Return how far the mean of 64 one-bit copies of a row is from the row, relative to its norm."""
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(0)).bfloat16().double()
    words, scale, minimum = STOCHASTIC_PACK.spec(x.repeat(1, 64), 1, 64, 7, 0)
    codes = (words[:, :, None] >> torch.arange(32) & 1).reshape(64, 64)
    copies = minimum.double().view(64, 1) + scale.double().view(64, 1) * codes
    return float((copies.mean(0) - x).norm() / x.norm())


def _shape_of_words() -> tuple[int, int, int]:
    fields = 16 // 2
    return -(-33 // (16 * fields)), 16, 70


NO_TEST = Nudge(lambda v, r: _test(v) not in TESTS, "Answer with one of the four names in the table above.")

QUESTIONS = (
    Question(
        id="ch16-q1",
        asks="Rows have 50001 elements. Which is the first row whose own first element an int32 offset can't "
        "reach?",
        right=_first_row_too_far,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == r - 1,
                "The first element of this row can still be reached. Only its end can't.",
            ),
            Nudge(lambda v, r: v == r + 1, "The row before this one begins past 2^31, too."),
            Nudge(lambda v, r: v > 100_000, "That's an offset, not a row. Each row has 50001 elements."),
            Nudge(
                lambda v, r: v == 2 * r or v == 2 * r - 1,
                "An int32 has a sign, so it ends before 2^31. Where does that put the row?",
            ),
        ),
        nudge="Row m begins at m * 50001. Which is the first m for which that is 2^31 or more?",
    ),
    Question(
        id="ch16-q2",
        asks="s = 2.3. How many of 1000 copies must get code 3, not 2, so that the mean fits (within 50)?",
        right=_ups,
        kind=int,
        same=lambda value, right: abs(value - right) <= 50,
        nudges=(
            Nudge(lambda v, r: v == 0, "That would be rounding to the nearest: the mean would be 2."),
            Nudge(
                lambda v, r: abs(v - 700) <= 50,
                "That's how many stay below 3. How many get it?",
            ),
            Nudge(lambda v, r: v in (3, 30), "There are 1000 copies, not ten or a hundred."),
            Nudge(lambda v, r: v == 500, "A coin toss would be biased, because 2.3 is nearer to 2."),
        ),
        nudge="If k of 1000 codes are 3 and the rest are 2, the mean is 2 + k / 1000.",
    ),
    Question(
        id="ch16-q3",
        asks="One copy is off by 2.46 times the norm of x. How far off is the mean of 64 copies, each "
        "rounded by draws of its own (within a fifth)?",
        right=_off,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.2 * right,
        nudges=(
            Nudge(
                lambda v, r: abs(v - 2.46) < 0.1,
                "That's a single copy. In the mean, some copies are too high where others are too low.",
            ),
            Nudge(
                lambda v, r: abs(v - 1.87) < 0.1,
                "That's the error of the nearest codes, which are the same in each copy.",
            ),
            Nudge(
                lambda v, r: abs(v - 1.87 / 8) < 0.01,
                "1.87 is the error of the nearest codes, which a mean can't make smaller. One random copy is "
                "off by 2.46.",
            ),
            Nudge(
                lambda v, r: abs(v - 2.46 / 64) < 0.01,
                "So small a mean would need a sum that is no further off than one copy. Its error is √64 "
                "times as long.",
            ),
            Nudge(
                lambda v, r: abs(v - 2.46 * 8) < 1,
                "That's how far off the sum of the 64 copies is. What about their mean?",
            ),
        ),
        nudge="The sum of the 64 copies is off by √64 times as much as one copy. Divide it by 64.",
    ),
    Question(
        id="ch16-q4",
        asks="The plain model makes [0, 2] of x = [-1, 2]. What does the compiled one make?",
        right=lambda: (-1, 2),
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "Answer with two numbers, because x has two."),
            Nudge(
                lambda v, r: v == (0, 2),
                "That's the plain model's result. The compiled one follows a plan, made before anything ran. "
                "According to the schema, what does a call of keep_signs change?",
            ),
        ),
        nudge="The plan reads the schema, not the function. Does this model need a call whose result it "
        "doesn't use, and which changes nothing?",
        why="The schema says that a call changes nothing, so the plan leaves it out.",
    ),
    Question(
        id="ch16-q5",
        asks="Which strides of an x of 5 by 33 show that the fake of row_by_row lies?",
        right=lambda: (1, 5),
        kind=tuple,
        same=lambda value, right: are_strides(value) and _convicts(value),
        nudges=(
            Nudge(
                lambda v, r: not are_strides(v),
                "Answer with two numbers from 0 to 100: the strides of the rows and of the columns.",
            ),
            Nudge(
                lambda v, r: v == (33, 1),
                "That's the x above, for which no test fails. Which other x has rows and columns?",
            ),
            Nudge(
                lambda v, r: v[1] == 1 and v[0] >= 33,
                "No test fails for it. empty_like closes gaps between rows, and so does the result. What "
                "else can happen to an x of rows and columns?",
            ),
        ),
        nudge="No test fails for it. empty_like drops gaps and repeats, but keeps the order of the axes. In "
        "the result, rows are further apart than columns.",
    ),
    Question(
        id="ch16-q6",
        asks="Memory has 0, 2, 4, 1, 3, 5. Which first row of a [2, 3] do the strides (1, 2) find there?",
        right=_first_row_read,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 3, "Answer with three numbers: the first row has three columns."),
            Nudge(
                lambda v, r: v == (0, 2, 4),
                "That's y's real first row. The compiled model takes its columns for 2 places apart.",
            ),
            Nudge(lambda v, r: v == (0, 2, 1), "Element [0, 2] is at place 2 * 2, not 2 + 1."),
            Nudge(
                lambda v, r: v == (0, 1, 2),
                "Those would be places, if the columns were 1 apart. What is stored there?",
            ),
        ),
        nudge="Element [0, n] is at place n * 2. What's stored at the places 0, 2 and 4?",
    ),
    Question(
        id="ch16-q7",
        asks="clipped has no backward. Which test of opcheck fails if x has requires_grad=True?",
        right=lambda: _failing("clipped"),
        kind=str,
        same=lambda value, right: _test(value) == _test(right),
        nudges=(
            NO_TEST,
            Nudge(
                lambda v, r: _test(v) == "autograd_registration",
                "It sounds like it. But that test only looks where a backward was registered, and here "
                "there is none. Which test computes gradients?",
            ),
        ),
        nudge="The schema and the fake are correct. Which test needs a gradient?",
    ),
    Question(
        id="ch16-q8",
        asks="COUT = 45, N = 91, tiles of 16 by 32, and only db is needed. Which grid, (axis 0, axis 1)?",
        right=_grid_for_db,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 2, "The grid has two axes. Answer with two numbers."),
            Nudge(
                lambda v, r: v == (3, 3),
                "That's the grid for dW. For db, all three programs of a row would sum the same dy.",
            ),
            Nudge(lambda v, r: v == tuple(reversed(r)), "Swap them: axis 0 counts the rows of dW, COUT."),
            Nudge(lambda v, r: 0 in v, "A grid with 0 programs on an axis runs none at all."),
            Nudge(lambda v, r: v == (45, 1), "A program sums 16 rows of COUT. How many programs cover 45?"),
        ),
        nudge="A program sums 16 of the 45 rows of dyᵀ. How many programs cover all rows? And how many "
        "programs should sum the same strip?",
    ),
    Question(
        id="ch16-q9",
        asks="Which 16 numbers, at least four of them different, do 2-bit codes keep exactly?",
        right=lambda: (0, 1, 2, 3) * 4,
        kind=tuple,
        same=lambda value, right: _survives(value),
        nudges=(
            Nudge(lambda v, r: not _are_numbers(v), "Answer with numbers."),
            Nudge(lambda v, r: len(v) != 16, "Answer with 16 numbers: a row has 16 columns."),
            Nudge(lambda v, r: len(set(v)) < 4, "That's kept, or could be, but use four different numbers."),
            Nudge(
                lambda v, r: len(set(v)) > 4,
                "2 bits have four codes, so a group can't keep more than four different numbers.",
            ),
            Nudge(
                lambda v, r: any(each != float(torch.tensor(each).bfloat16()) for each in v),
                "One of these isn't a bfloat16 number, and x is rounded to bfloat16 before it's packed.",
            ),
        ),
        nudge="The four codes stand for evenly spaced numbers: the minimum, and 1, 2 and 3 times the scale "
        "above it. The scale is bfloat16.",
    ),
    Question(
        id="ch16-q10",
        asks="x and weight are float32, and autocast is set to bfloat16. What's the dtype of dy in backward?",
        right=_dtype_of_dy,
        kind=str,
        same=lambda value, right: value.removeprefix("torch.") in (right, "bf16"),
        nudge="A gradient has the dtype of the tensor it belongs to. dy belongs to y.",
    ),
    Question(
        id="ch16-q11",
        asks="How many of the inputs of the model's three linear layers does something else keep in float32?",
        right=_inputs_kept_by_others,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 0, "What is between two linear layers, and what does its backward need?"),
            Nudge(lambda v, r: v == 3, "One input is the images. Which function's backward would need them?"),
        ),
        nudge="Each linear layer but the first gets a ReLU's result. What does a ReLU keep for its backward?",
    ),
    Question(
        id="ch16-q12",
        asks="x is [256, 128]. How many bytes does it take in 2 bits, with a bfloat16 scale and minimum per "
        "group of 64?",
        right=_bytes_of_codes,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 8192, "That's the codes alone. What about the scales and minima?"),
            Nudge(lambda v, r: v == 8 * 8192 or v == 8 * 8192 + 2048, "The codes are counted in bits here."),
            Nudge(
                lambda v, r: v in (8192 + 1024, 8192 + 512),
                "Each group has two numbers, a scale and a minimum, of two bytes each.",
            ),
            Nudge(lambda v, r: v == 8192 + 4096, "A bfloat16 number takes two bytes, not four."),
            Nudge(lambda v, r: v in (8192 + 4, 8192 + 8), "Every row has its own groups, and there are 256."),
        ),
        nudge="There are 4 codes per byte. How many groups has a row, and how many bytes are a group's two "
        "numbers?",
    ),
    Question(
        id="ch16-q13",
        asks="A: 2 bits, nearest. B: 1 bit, nearest. C: 1 bit, stochastic. Which loss curve is the nearest "
        "to float32's, which comes next, and which is the farthest?",
        right=_by_distance,
        kind=str,
        same=lambda value, right: _letters(value) == right,
        nudges=(
            Nudge(
                lambda v, r: sorted(_letters(v)) != sorted(r),
                "Answer with the letters A, B and C, each once, such as 'ABC'.",
            ),
            Nudge(
                lambda v, r: _letters(v)[2] == "C",
                "x̂ of C is the farthest from x, but its errors have no direction. Which gains were near 1?",
            ),
            Nudge(
                lambda v, r: _letters(v)[2] == "A",
                "A and B are both biased. Which one more, the one with two codes or the one with four?",
            ),
        ),
        nudge="x̂ of A is nearer to x than that of C. But its errors have a direction, so they don't cancel.",
    ),
    Question(
        id="ch16-q14",
        asks="At which rate are float32's losses about those of 1 bit, nearest at 0.05?",
        right=lambda: 0.055,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.0021,
        nudges=(
            Nudge(lambda v, r: v <= 0.05, "At 0.05, float32's loss falls more slowly than the packed one's."),
            Nudge(lambda v, r: v >= 0.1, "Far too large: compare the losses in the last column."),
            Nudge(
                lambda v, r: v >= 0.07,
                "Much too large: at 0.05, float32's losses are nearer to the packed ones.",
            ),
            Nudge(lambda v, r: v > r, "A bit too large: float32's losses are below the packed ones now."),
        ),
        nudge="A little too small: float32's losses are still above the packed ones.",
    ),
    Question(
        id="ch16-q15",
        asks="A linear layer's backward has two products, its forward one. Checkpointing runs forward "
        "twice. How many times as long does a step take (within 0.035)?",
        right=_checkpointed,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.035,
        nudges=(
            Nudge(lambda v, r: abs(v - 1.5) < 0.02, "Forward is a third of a step, not half of it."),
            Nudge(
                lambda v, r: abs(v - 0.33) < 0.02,
                "That's how much is added. How long is the whole step, relative to before?",
            ),
            Nudge(lambda v, r: v == 4, "That's how many products there are now. How many were there before?"),
            Nudge(lambda v, r: v == 2, "Only forward runs twice. Backward doesn't."),
        ),
        nudge="Count the products: three without checkpointing. How many with it?",
    ),
    Question(
        id="ch16-q16",
        asks="1024 images per step, and 32 GB for activations: which row of the table fits, and is the "
        "fastest? If rows are about as fast, choose the largest cosine.",
        right=_chosen,
        kind=str,
        same=lambda value, right: _plain(value) == _plain(right),
        nudges=(
            Nudge(
                lambda v, r: _row_of(v) is None,
                "Answer with a path of the table, such as 'packed, 2 bits, nearest'.",
            ),
            Nudge(
                lambda v, r: _needs(_row_of(v)) > ROOM,
                "It needs about 61 GB: 1024 images are eight times as many as in the table.",
            ),
            Nudge(
                lambda v, r: "checkpoint" in v.lower(),
                "It fits, and if you need the exact gradient, it's the only one that does. But it takes the "
                "longest of all. Which rows are faster, and fit?",
            ),
        ),
        nudge="It fits. But another row fits, too, takes no longer, and its cosine is larger.",
    ),
    Question(
        id="ch16-q17",
        asks="x is [33, 70], in 2 bits. What's the shape of its int16 words: (blocks of rows, rows of words "
        "per block, columns)?",
        right=_shape_of_words,
        kind=tuple,
        nudges=(
            Nudge(
                lambda v, r: len(v) != 3,
                "Answer with three numbers: blocks, rows of words per block, columns.",
            ),
            Nudge(
                lambda v, r: sorted(v) == sorted(r),
                "These are the correct numbers, but the order is: blocks, rows of words per block, columns.",
            ),
            Nudge(lambda v, r: v[2] != 70, "Each column has its own words; no two columns share one."),
            Nudge(
                lambda v, r: v[1] == 33,
                "Several rows share words. In the picture, which word is row 17 in?",
            ),
            Nudge(
                lambda v, r: v[0] != 1,
                "A block ends when all fields of its words are full. Are 33 rows enough to fill one?",
            ),
        ),
        nudge="The first 16 rows begin 16 words; rows 16 to 31 are in the same words' next fields. Where is "
        "row 32?",
    ),
)
