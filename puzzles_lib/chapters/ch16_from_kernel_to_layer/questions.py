"""The predictions of chapter 16."""

from functools import cache
from pathlib import Path
from statistics import fmean

import torch
from torch.library import opcheck

from puzzles_lib.bench.recorded import DIGITS, load
from puzzles_lib.chapters.ch16_from_kernel_to_layer.puzzles import STOCHASTIC_PACK, uniform
from puzzles_lib.question import Nudge, Question

CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor", "test_aot_dispatch_dynamic")


def _first_row_too_far() -> int:
    return -(-(2**31) // 50_001)


@cache
def _operators() -> dict[str, object]:
    """The notebook's three broken operators, under names of their own: an operator's name is taken once."""
    source = Path(__file__).with_name("operators.py").read_text()
    found: dict[str, object] = {}
    exec(source.replace('"ch16::', '"ch16_asked::'), found)
    return found


def _failing(name: str, columns: int = 33, requires_grad: bool = False) -> list[str]:
    """Which of opcheck's tests a broken operator fails."""
    x = torch.randn(5, columns, generator=torch.Generator().manual_seed(0), requires_grad=requires_grad)
    found = opcheck(_operators()[name], (x,), raise_exception=False)
    return [test for test, result in found.items() if result != "SUCCESS"]


def _only(name: str, requires_grad: bool = False) -> str:
    (test,) = _failing(name, requires_grad=requires_grad)
    return test


def _gradcheck_on_any_x() -> bool:
    """Is the x that the words stand for the x that the forward pass has multiplied?"""
    x = torch.randn(3, 16, generator=torch.Generator().manual_seed(0)).bfloat16().double()
    words, scale, minimum = STOCHASTIC_PACK.spec(x, 2, 16, 0, 0)
    codes = words[:, 0, None] >> 2 * torch.arange(16) & 3
    return bool(torch.equal(minimum.double() + scale.double() * codes, x))


def _computed_by_a_first_layer() -> set[str]:
    asked: list[bool] = []

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, weight, bias):
            asked.extend(ctx.needs_input_grad)
            return torch.nn.functional.linear(x, weight, bias)

    layer = torch.nn.Linear(4, 2)
    Linear.apply(torch.ones(3, 4), layer.weight, layer.bias)
    return {name for name, needed in zip(("dx", "dw", "db"), asked, strict=True) if needed}


def _dtype_of_dy() -> str:
    layer, seen = torch.nn.Linear(4, 2), []
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(torch.ones(3, 4))
    y.register_hook(lambda dy: seen.append(dy.dtype))
    y.float().sum().backward()
    return str(seen[0]).removeprefix("torch.")


def _ups() -> int:
    return int((2.3 + uniform(7, torch.arange(1000)) >= 3).sum())


def _bytes_of_codes() -> int:
    return 256 * 128 * 2 // 8 + 256 * 2 * 4


def _side_of_one_bit() -> str:
    rows = {row["path"]: fmean(row["loss"][20:60]) for row in load(DIGITS)["curves"]}
    return "below" if rows["1 bit, nearest"] < rows["float32"] else "above"


def _checkpointed() -> float:
    forward, backward = 1, 2  # products of a linear layer
    return (2 * forward + backward) / (forward + backward)


def _rows_of_3072() -> int:
    return 2**31 // 3072 + 1  # so many end past element 2^31 - 1


def _low_bits() -> int:
    return int((torch.tensor(2.6) + 12582912.0).view(torch.int32)) & 0xFFFF


def _spoilt() -> int:
    return 256  # its group


def _off() -> float:
    """Of the mean of 64 copies of a row from the row, over the row's own length; in one bit."""
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(0)).bfloat16().double()
    words, scale, minimum = STOCHASTIC_PACK.spec(x.repeat(1, 64), 1, 64, 7, 0)
    codes = (words[:, :, None] >> torch.arange(32) & 1).reshape(64, 64)
    copies = minimum.double().view(64, 1) + scale.double().view(64, 1) * codes
    return float((copies.mean(0) - x).norm() / x.norm())


def _apart() -> str:
    rows = {row["path"]: row for row in load(DIGITS)["rates"] if row["rate"] == 0.4}
    nearest, exact = rows["1 bit, nearest"], rows["float32"]
    by = nearest["loss"] - exact["loss"]
    if abs(by) < 2 * max(nearest["error"], exact["error"]):
        return "not apart"
    return "above" if by > 0 else "below"


def _shape_of_words() -> tuple[int, int, int]:
    fields = 16 // 2
    return -(-33 // (16 * fields)), 16, 70


def _twice() -> int:
    return 128 * 768 // 24  # all of a program's


def _even() -> set[str]:
    asked = {"a": (256, 768, 256), "b": (250, 768, 256), "c": (256, 768, 96), "d": (256, 768, 64)}

    def even(rows: int, columns: int, group: int) -> bool:
        width = 1 << (group - 1).bit_length()
        return rows % 128 == 0 and columns % (max(1, 256 // width) * group) == 0 and width == group

    return {name for name, sizes in asked.items() if even(*sizes)}


def _sharing() -> int:
    return 32 // (64 // 16)


_NAMES = f"one of {', '.join(CHECKS[:-1])} and {CHECKS[-1]}"
_NO_NAME = Nudge(lambda v, r: v not in CHECKS, f"the answer is {_NAMES}")

QUESTIONS = (
    Question(
        id="ch16-q1",
        asks="Rows of 50001 elements. Which is the first row whose own first element is past the reach of an "
        "int32 offset?",
        right=_first_row_too_far,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == r - 1, "this row begins within reach; it only ends beyond"),
            Nudge(lambda v, r: v == 2 * r or v == 2 * r - 1, "an int32 has a sign: it ends before 2^31"),
        ),
        nudge="the row m begins at m * 50001; when is that 2^31 or more?",
    ),
    Question(
        id="ch16-q2",
        asks="Which of opcheck's four tests names the operator that changes its input?",
        right=lambda: _only("keep_signs"),
        kind=str,
        nudges=(
            _NO_NAME,
            Nudge(lambda v, r: "fake" in v, "a fake has no data to be changed; shapes and dtypes are right"),
            Nudge(lambda v, r: "aot" in v, "each of its runs gets an x of its own, and the results agree"),
        ),
        nudge="mutates_args=() is a promise about the inputs; which test is about such promises?",
    ),
    Question(
        id="ch16-q3",
        asks="Which of opcheck's four tests names the operator that forgets the last byte?",
        right=lambda: _only("signs_of_whole_bytes"),
        kind=str,
        nudges=(
            _NO_NAME,
            Nudge(lambda v, r: "schema" in v, "nothing is changed, nothing is shared"),
            Nudge(lambda v, r: "aot" in v, "nothing behind it depends on the shape, and data is right"),
        ),
        nudge="where are the shapes with and without data compared?",
    ),
    Question(
        id="ch16-q4",
        asks="Would it have been found with an x of 5 by 32?",
        right=lambda: bool(_failing("signs_of_whole_bytes", columns=32)),
        kind=bool,
        nudge="how many bytes has a row of 32 bits, by either formula?",
    ),
    Question(
        id="ch16-q5",
        asks="x requires a gradient. Which of opcheck's four tests names the operator without a backward?",
        right=lambda: _only("clipped", requires_grad=True),
        kind=str,
        nudges=(
            _NO_NAME,
            Nudge(
                lambda v, r: "autograd" in v,
                "so one would think: it asks whether a backward is registered in the wrong place",
            ),
        ),
        nudge="which of them would run a backward?",
    ),
    Question(
        id="ch16-q6",
        asks="Does gradcheck pass on an x of random numbers?",
        right=_gradcheck_on_any_x,
        kind=bool,
        nudge="forward multiplies by x; which x does backward have?",
    ),
    Question(
        id="ch16-q7",
        asks="A model's first layer gets images. Which of dx, dw and db does its backward compute?",
        right=_computed_by_a_first_layer,
        kind=set,
        nudges=(Nudge(lambda v, r: "dx" in v, "who would use a gradient of the images?"),),
        nudge="a set of names, such as {'dx', 'dw'}: what is it that is trained?",
    ),
    Question(
        id="ch16-q8",
        asks="x and weight are float32, autocast is to bfloat16. Of which dtype is dy in backward?",
        right=_dtype_of_dy,
        kind=str,
        nudge="a gradient has the dtype of what it is the gradient of: here, of y",
    ),
    Question(
        id="ch16-q9",
        asks="s = 2.3. Of 1000 draws of s + u, how many become code 3 (within 50)?",
        right=_ups,
        kind=int,
        same=lambda value, right: abs(value - right) <= 50,
        nudges=(
            Nudge(lambda v, r: v == 0, "that is rounding to the nearest"),
            Nudge(lambda v, r: abs(v - 700) <= 50, "so many stay below"),
            Nudge(lambda v, r: v == 500, "a coin would have a bias: 2.3 is nearer to 2"),
        ),
        nudge="u must be 0.7 or more",
    ),
    Question(
        id="ch16-q10",
        asks="One copy is off by 2.46 times the length of x. By how much is the mean of 64 copies off, each "
        "rounded by draws of its own (within a fifth)?",
        right=_off,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.2 * right,
        nudges=(
            Nudge(lambda v, r: abs(v - 2.46) < 0.1, "some copies are too high where others are too low"),
            Nudge(lambda v, r: abs(v - 1.87) < 0.1, "that is what the nearest codes are"),
            Nudge(lambda v, r: v < 0.1, "errors that cancel by chance leave more: the root of their number"),
        ),
        nudge="the mean of independent errors shrinks with the root of their number",
    ),
    Question(
        id="ch16-q11",
        asks="x is [256, 128]. How many bytes are its 2-bit codes, with a float32 scale and minimum a row?",
        right=_bytes_of_codes,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 8192, "and the scales and minima?"),
            Nudge(lambda v, r: v == 8 * 8192 or v == 8 * 8192 + 2048, "those are bits"),
            Nudge(lambda v, r: v == 8192 + 1024, "a scale and a minimum are two numbers"),
        ),
        nudge="4 codes a byte; and 8 bytes a row",
    ),
    Question(
        id="ch16-q12",
        asks="1 bit, nearest codes: does the loss of steps 20 to 60 lie 'above' or 'below' that of float32?",
        right=_side_of_one_bit,
        kind=str,
        nudges=(Nudge(lambda v, r: v not in ("above", "below"), "answer 'above' or 'below'"),),
        nudge="gradients of weights are too large: what does a larger step do, as long as it is bearable?",
    ),
    Question(
        id="ch16-q13",
        asks="At a rate of 0.4: does the loss of one bit, nearest, lie 'above' or 'below' that of float32, "
        "or 'not apart' by two standard errors?",
        right=_apart,
        kind=str,
        nudges=(
            Nudge(lambda v, r: v == "above", "four seeds alone had said so; and the other twelve?"),
            Nudge(lambda v, r: v == "below", "so it is at lower rates; here float32 is near its own limit"),
        ),
        nudge="the answers are 'above', 'below' and 'not apart'",
    ),
    Question(
        id="ch16-q14",
        asks="A linear layer's backward has two products, its forward one. Checkpointing runs forward "
        "twice. How many times as long does a step take (within 0.02)?",
        right=_checkpointed,
        kind=float,
        same=lambda value, right: abs(value - right) <= 0.02,
        nudges=(
            Nudge(lambda v, r: abs(v - 1.5) < 0.02, "forward is a third of a step, not half of it"),
            Nudge(lambda v, r: abs(v - 0.33) < 0.02, "so much is added; how long is all of it?"),
            Nudge(lambda v, r: v == 2, "backward is not run twice"),
        ),
        nudge="count products: without it three, with it ...",
    ),
    Question(
        id="ch16-q15",
        asks="x is [33, 70], in 2 bits. What is the shape of its int16 words: (blocks of rows, rows of words "
        "in a block, columns)?",
        right=_shape_of_words,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: len(v) != 3, "three numbers: blocks, rows of words in a block, columns"),
            Nudge(lambda v, r: v[2] != 70, "each column has words of its own: no two share one"),
            Nudge(lambda v, r: v[1] == 33, "rows share words: whose word is row 17 in, by the picture?"),
            Nudge(lambda v, r: v[0] != 1, "a block ends where all fields of its words are filled"),
        ),
        nudge="fields of a word are 16 rows apart: how many words does a column begin before it fills "
        "their next fields?",
    ),
    Question(
        id="ch16-q16",
        asks="How many rows of 3072 columns need an offset past int32's reach at their end?",
        right=_rows_of_3072,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == r - 1, "these still fit: their last element is at 2^31 - 2049"),
            Nudge(lambda v, r: v in (2 * r - 1, 2 * r), "an int32 has a sign"),
        ),
        nudge="rows * 3072 - 1 is the last offset; when is that 2^31 or more?",
    ),
    Question(
        id="ch16-q17",
        asks="2.6 + 12582912.0 in float32: what are the low 16 bits of its pattern, as a number?",
        right=_low_bits,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2, "adding rounds to the nearest, it does not cut"),
            Nudge(lambda v, r: v > 65535, "of the pattern's 32 bits the lower half only"),
        ),
        nudge="numbers there are 1 apart, and the pattern of the first of them ends in 16 zeros",
    ),
    Question(
        id="ch16-q18",
        asks="A row of 768 values in groups of 256 holds one NaN. How many of them come back as NaN?",
        right=_spoilt,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1, "its code has two bits, and none of four codes is NaN"),
            Nudge(lambda v, r: v == 768, "who shares a scale with it?"),
        ),
        nudge="a scale and a minimum with a NaN are NaN; whose are they?",
    ),
    Question(
        id="ch16-q19",
        asks="24 programs share an x of 128 by 768 evenly, and it holds one NaN. How many elements are "
        "rounded twice?",
        right=_twice,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 1, "a single element has no pass of its own"),
            Nudge(lambda v, r: v == 256, "its group is spoilt; but quantize_rows runs again on what?"),
            Nudge(lambda v, r: v == 128 * 768, "23 programs have met no NaN"),
            Nudge(lambda v, r: v == 2 * r, "so many roundings; of how many elements?"),
        ),
        nudge="quantize_rows takes all that a program has: x has 98,304 elements",
    ),
    Question(
        id="ch16-q20",
        asks="Which x goes without masks, in blocks of 128 rows: 'a', [256, 768] in groups of 256; 'b', "
        "[250, 768] in groups of 256; 'c', [256, 768] in groups of 96; 'd', [256, 768] in groups of 64?",
        right=_even,
        kind=set,
        nudges=(
            Nudge(lambda v, r: "b" in v, "250 rows end within a block"),
            Nudge(lambda v, r: "c" in v, "96 is no power of two: some of a group's 128 lanes have nothing"),
            Nudge(lambda v, r: v == {"a"}, "a program takes four groups of 64: do they divide 768?"),
        ),
        nudge="of `even` in the lines above, all three parts must hold",
    ),
    Question(
        id="ch16-q21",
        asks="A call makes 64 random bits for 32 rows of a column, cut into numbers of 16 bits. How many "
        "elements share a number?",
        right=_sharing,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2, "two bits for each would be coarse; a number has 16"),
            Nudge(lambda v, r: v == 4, "so many numbers come of a call: for how many elements?"),
            Nudge(lambda v, r: v == 32, "these share a call, which makes several numbers"),
        ),
        nudge="how many numbers of 16 bits are in 64 bits, and for how many elements are they?",
    ),
)
