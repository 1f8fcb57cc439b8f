"""The predictions of chapter 22."""

import itertools
import math
from collections.abc import Callable

import torch
import triton

from puzzles_lib.chapters.ch22_language_model.puzzles import E2M1, rope
from puzzles_lib.question import Nudge, Question
from puzzles_lib.speaking.model import Model

PAIRS = {"a": (17, 13), "b": (3, 7), "c": (104, 100), "d": (14, 6)}
START = (0, 4, 4, 13, 14)
ORDER, ROUTED = (1, 2, 0, 4, 3, 5), (0, 2, 2, 4, 6)
PROBABILITIES = (0.5, 0.25, 0.15, 0.1)


def _used_weights() -> int:
    model = Model()
    every = sum(p.numel() for p in model.parameters())
    experts = sum(layer.up.numel() + layer.down.numel() for layer in model.layers)
    return every - experts + experts * model.sizes.chosen // model.sizes.experts


def _same_distance(query: int = 7, key: int = 3) -> set[str]:
    return {letter for letter, (q, k) in PAIRS.items() if q - k == query - key}


def _unheard(query: int = 7, key: int = 3) -> set[str]:
    """Return which bugs of RoPE leave the score of two tokens as it is."""
    generator = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, 1, 1, 16, generator=generator, dtype=torch.float64)
    angle = torch.arange(16)[:, None] * 10_000 ** (-2 * torch.arange(8, dtype=torch.float64) / 16)
    first = torch.where(torch.arange(8) == 0, angle, 0.0)

    def score(turn: Callable[[torch.Tensor, int], torch.Tensor]) -> float:
        return float((turn(q, query) * turn(k, key)).sum())

    def turned(x: torch.Tensor, position: int, by: torch.Tensor = angle, sign: int = 1) -> torch.Tensor:
        return rope(x, by.cos(), sign * by.sin(), torch.tensor([position]))

    bugs = {
        "a": lambda x, position: turned(x, 0),  # each new token comes alone
        "b": lambda x, position: turned(x, position).roll(8, 2),
        "c": lambda x, position: turned(x, position, sign=-1),
        "d": lambda x, position: turned(x, position, by=first),
        "e": lambda x, position: -turned(x, position),
    }
    return {letter for letter, bug in bugs.items() if abs(score(bug) - score(turned)) < 1e-9}


def _place(
    key: int = 8, page: int = 4, table: tuple[int, ...] = (0, 3), free: tuple[int, ...] = (5,)
) -> tuple[int, int]:
    return (*table, *free)[key // page], key % page


def _largest_part(keys: int = 4096, page: int = 16, heads: int = 2, processors: int = 132) -> int:
    pages = keys // page
    return max(part for part in range(1, pages + 1) if heads * triton.cdiv(pages, part) >= processors)


def _merged(lse: tuple[float, ...] = (0.0, math.log(3)), o: tuple[float, ...] = (4.0, 8.0)) -> float:
    weights = [math.exp(each) for each in lse]
    return sum(w * value for w, value in zip(weights, o, strict=True)) / sum(weights)


def _difference_of_infinities() -> str:
    return str(math.exp(-math.inf - -math.inf))


def _experts_of(rows: tuple[int, ...] = (4, 13)) -> tuple[int, ...]:
    return tuple(
        next(e for e, (first, end) in enumerate(itertools.pairwise(START)) if first <= row < end)
        for row in rows
    )


def _grouped_programs(block: int = 4) -> tuple[int, int]:
    each = [triton.cdiv(end - first, block) for first, end in itertools.pairwise(START)]
    return len(each) * max(each), sum(each)


def _blocks_of_columns() -> int:
    """Return for how many blocks storing x moves as much as computing it anew, in multiples of K per row."""
    return next(n for n in itertools.count(1) if 2 + 1 + n == 2 * n)


def _same_probabilities() -> set[str]:
    logits, heat = torch.tensor([2.0, 0.5, -1.0, 0.0]), 0.8
    changed = {
        "a": (logits + 5) / heat,
        "b": 2 * logits / (2 * heat),
        "c": logits / (heat / 2),
        "d": (logits + torch.tensor([5.0, 0, 0, 0])) / heat,
    }
    wanted = (logits / heat).softmax(0)
    return {letter for letter, each in changed.items() if torch.allclose(each.softmax(0), wanted)}


def _waits_least() -> str:
    """Return which number is largest where -log(u) / exp(logit) is least, in many random rows."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(1000, 8, generator=generator)
    u = torch.rand(1000, 8, generator=generator)
    least = (-u.log() / logits.exp()).argmin(1)
    numbers = {
        "a": logits + torch.log(-u.log()),
        "b": logits - torch.log(-u.log()),
        "c": logits - u.log(),
        "d": -u.log() / logits,
    }
    (found,) = (letter for letter, each in numbers.items() if torch.equal(each.argmax(1), least))
    return found


def _tokens_per_second(weights: float = 7e9, bytes_per_second: float = 3.35e12) -> tuple[float, ...]:
    steps = bytes_per_second / (2 * weights)
    return tuple(texts * steps for texts in (1, 16))


def _loads_of_w(rows: int = 8192, block: int = 64) -> tuple[int, int]:
    tiles_of_a_block_of_classes = programs = triton.cdiv(rows, block)
    return tiles_of_a_block_of_classes, programs


def _with_one_scale(numbers: tuple[float, ...] = (1000.0, 10.0)) -> tuple[float, ...]:
    scale = 2.0 ** math.ceil(math.log2(max(numbers) / max(E2M1)))
    return tuple(scale * min(E2M1, key=lambda code: abs(code - number / scale)) for number in numbers)


def _decoded(byte: int = 0xA5, scale: int = 129) -> tuple[float, float]:
    low, high = ((-1) ** (code >> 3) * E2M1[code & 7] for code in (byte & 15, byte >> 4))
    return low * 2.0 ** (scale - 127), high * 2.0 ** (scale - 127)


def _experts_of_token(token: int = 2) -> tuple[int, ...]:
    return tuple(
        next(e for e, (first, end) in enumerate(itertools.pairwise(ROUTED)) if choice in ORDER[first:end])
        for choice in (2 * token, 2 * token + 1)
    )


def _lse_of_padding(classes: int = 33, block: int = 16) -> float:
    """Return the log-sum-exp of the lanes after the last class, next to which the classes vanish."""
    return math.log(-classes % block)


def _kept(limits: tuple[float, ...] = (0.75, 0.8)) -> tuple[int, ...]:
    before = [0, *itertools.accumulate(PROBABILITIES)][:-1]
    return tuple(sum(each < limit for each in before) for limit in limits)


def _gradient(p: tuple[float, ...] = (0.5, 0.25, 0.25), label: int = 1) -> tuple[float, ...]:
    return tuple(each - (v == label) for v, each in enumerate(p))


QUESTIONS = (
    Question(
        "ch22-q1",
        "How many of the model's weights does one byte use?",
        _used_weights,
        int,
        nudges=(
            Nudge(
                lambda value, right: value == 772480, "That's all of them. Which experts does a byte skip?"
            ),
            Nudge(
                lambda value, right: value == 589824 // 2, "That's the experts' part. What about the rest?"
            ),
            Nudge(
                lambda value, right: value == 772480 - 589824,
                "That's the part outside the experts. How many weights of the experts does a byte use?",
            ),
            Nudge(
                lambda value, right: value == 772480 - 589824 + 589824 // 4,
                "You've counted one expert of four in each layer. A token takes two.",
            ),
            Nudge(
                lambda value, right: value == 772480 // 2,
                "Only the experts are used by halves. All other weights are used for every byte.",
            ),
        ),
        nudge="Which weights does every byte use? And how many of the experts does it use?",
    ),
    Question(
        "ch22-q2",
        "Which pairs of positions give the same score?",
        _same_distance,
        set,
        nudges=(
            Nudge(
                lambda value, right: "b" in value,
                "In b, the key comes after the query. Is that the same difference?",
            ),
            Nudge(
                lambda value, right: "d" in value,
                "In d, both positions are doubled. What's their difference?",
            ),
        ),
        nudge="Rotate both arrows of 7 and 3 by the same angle. Which pairs of positions can you reach?",
    ),
    Question(
        "ch22-q22",
        "Which bugs leave the text as it is?",
        _unheard,
        set,
        nudges=(
            Nudge(
                lambda value, right: "c" in value,
                "In c, arrows turn the other way: a query that comes after its key looks like one before it.",
            ),
            Nudge(
                lambda value, right: "d" in value,
                "In d, only the first pair says where it is.",
            ),
            Nudge(
                lambda value, right: "a" in value,
                "In a, each new byte comes alone, so t is 0. By which angle is its query rotated?",
            ),
            Nudge(
                lambda value, right: "e" not in value,
                "In e, both vectors point the other way. What's their dot product?",
            ),
        ),
        nudge="Does a dot product care in which order its terms are added?",
    ),
    Question(
        "ch22-q4",
        "In which page and slot is the key?",
        _place,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value)[:1] == (2,),
                "It's in the third page of its text. But page 2 of the cache has another text's key.",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == (3,),
                "Page 3 has the text's keys 4 to 7. Where does it continue?",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == (4,),
                "Page 4 belongs to the first text. Which page is free?",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == right[:1],
                "The page is correct. It was free until now, so which of its slots is filled first?",
            ),
        ),
        nudge="Keys 0 to 3 are in the text's first page. Which of its pages has key 8?",
    ),
    Question(
        "ch22-q6",
        "What is the largest PART that gives every multiprocessor a program?",
        _largest_part,
        int,
        nudges=(
            Nudge(lambda value, right: value == 1, "That's enough programs. Can a part have more pages?"),
            Nudge(
                lambda value, right: value == 4,
                "Each head of keys then has 64 parts. That makes 128 programs: four too few.",
            ),
            Nudge(lambda value, right: value > right, "Count the programs: parts times heads of keys."),
        ),
        nudge="How many parts does each head of keys need? And how many pages does the text have?",
    ),
    Question(
        "ch22-q7",
        "What is the merged o?",
        _merged,
        float,
        nudges=(
            Nudge(
                lambda value, right: value == 6,
                "That's the plain average. Which part has more weight?",
            ),
        ),
        nudge="Each o was divided by its part's own denominator. Undo that, and divide by a common one.",
    ),
    Question(
        "ch22-q8",
        "What is exp(lse - top) if both are minus infinity?",
        _difference_of_infinities,
        str,
        nudges=(
            Nudge(
                lambda value, right: value == "1",
                "It would be if x - x were always 0. Is it, for infinities?",
            ),
        ),
        nudge="The subtraction comes first. What does Python give for float('-inf') - float('-inf')?",
    ),
    Question(
        "ch22-q9",
        "Which expert do the rows belong to?",
        _experts_of,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value)[:1] == (1,),
                "Expert 1 begins at row 4. Where does it end?",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == (0,),
                "Expert 0 has four rows, from row 0 on. Which is the last?",
            ),
            Nudge(
                lambda value, right: tuple(value)[1:] == (2,),
                "Expert 2 ends before row 13.",
            ),
        ),
        nudge="Expert e has the rows from start[e] to before start[e + 1].",
    ),
    Question(
        "ch22-q10",
        "How many programs does the grid have, and how many of them have rows?",
        _grouped_programs,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value)[1:] == right[1:],
                "The second number is correct. The grid treats all experts like the largest one.",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == right[:1],
                "The first number is correct. Now count the blocks that each expert really needs.",
            ),
        ),
        nudge="How many blocks of rows does the bound M need? Every expert gets as many programs.",
    ),
    Question(
        "ch22-q23",
        "With how many blocks of columns are the two counts equal?",
        _blocks_of_columns,
        int,
        nudges=(
            Nudge(
                lambda value, right: value == 1,
                "Then storing x moves 2K + K + K elements per row, and not storing it 2K.",
            ),
            Nudge(
                lambda value, right: value == 2,
                "Before the matmul, one kernel has loaded h. How many elements per row has it stored?",
            ),
        ),
        nudge="Count multiples of K per row. n blocks of columns load h n times, or x n times.",
    ),
    Question(
        "ch22-q12",
        "Which changes leave all probabilities as they are?",
        _same_probabilities,
        set,
        nudges=(
            Nudge(
                lambda value, right: "c" in value,
                "In c, all differences between logits divided by the heat are doubled.",
            ),
            Nudge(
                lambda value, right: "d" in value,
                "In d, one logit moves away from the others. Which byte is likelier now?",
            ),
            Nudge(
                lambda value, right: value == {"a"},
                "a is correct, but not the only one. What is twice a logit, divided by twice the heat?",
            ),
            Nudge(
                lambda value, right: value == {"b"},
                "b is correct, but not the only one. Which other change keeps all differences?",
            ),
            Nudge(
                lambda value, right: not value,
                "Some do. Which of them change no difference between two logits, divided by the heat?",
            ),
        ),
        nudge="How many times as likely one byte is as another depends on the difference of two numbers.",
    ),
    Question(
        "ch22-q24",
        "Which number is largest for the byte that waits least?",
        _waits_least,
        str,
        nudges=(
            Nudge(
                lambda value, right: value == "a",
                "The logarithm of the wait is log(-log(u)) - logit. It's *least* for this byte.",
            ),
            Nudge(
                lambda value, right: value == "c",
                "The logarithm of a quotient is a difference of two logarithms, one of -log(u).",
            ),
            Nudge(
                lambda value, right: value == "d",
                "A byte with a logit of 0 has the weight 1, and can wait. What would it get here?",
            ),
        ),
        nudge="Take the logarithm of the wait. It grows with the wait, so what does minus the logarithm do?",
    ),
    Question(
        "ch22-q21",
        "Which lse does the kernel store in case 5?",
        _lse_of_padding,
        float,
        same=lambda value, right: abs(value - right) < 0.06,  # one decimal is enough
        nudges=(
            Nudge(
                lambda value, right: value < -700,
                "About that is correct without a fault. Which lanes does this kernel count, too?",
            ),
            Nudge(lambda value, right: value == 0, "exp(0) is 1, but how many lanes have logit 0?"),
            Nudge(
                lambda value, right: value in (15, 16, 48), "And its logarithm? How many lanes are no class?"
            ),
        ),
        nudge="Next to exp(0), exp(-850) is nothing. Which lanes have logit 0, and how many are they?",
    ),
    Question(
        "ch22-q14",
        "How many programs of each load a given row of w?",
        _loads_of_w,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: 131_072 in value,
                "131,072 is the number of all tiles. A tile needs only 128 rows of w.",
            ),
            Nudge(
                lambda value, right: tuple(value)[1:] == (1,),
                "In ours, one program loads each row of w once. How many programs are there?",
            ),
            Nudge(
                lambda value, right: tuple(value)[1:] == right[1:],
                "Ours is correct. In the plain matmul, which tiles need this row of w?",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == right[:1],
                "The plain matmul is correct. Which of our programs walk past this row of w?",
            ),
        ),
        nudge="A row of w is one class. Which rows of h need its logits, and how many programs have them?",
    ),
    Question(
        "ch22-q20",
        "What is d?",
        _gradient,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value) == (0.5, 0.25, 0.25),
                "These are the probabilities. What does the label change?",
            ),
            Nudge(
                lambda value, right: tuple(value) == (-0.5, 0.25, 0.25),
                "You've subtracted 1 from class 0. The first class is 0, and the label is 1.",
            ),
            Nudge(
                lambda value, right: tuple(value) == (0.5, 0.75, 0.25),
                "The label's logit should grow, so its gradient is negative.",
            ),
        ),
        nudge="Two things change with a logit: lse always, and logit[label] if it's the label's own.",
    ),
    Question(
        "ch22-q15",
        "What have 1000 and 10 become?",
        _with_one_scale,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value)[:1] == (1000,),
                "Is 1000 one of the eight numbers times a power of two?",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == (768,),
                "768 is the most that fits with a scale of 128. 1000 needs a larger one.",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == right[:1],
                "1024 is correct, with a scale of 256. In units of it, which code is next to 10?",
            ),
        ),
        nudge="Which power of two, times 6, is at least 1000? Measure both numbers in units of it.",
    ),
    Question(
        "ch22-q16",
        "Which two numbers are in the byte?",
        _decoded,
        tuple,
        nudges=(
            Nudge(lambda value, right: tuple(value) == right[::-1], "The low half, 5, comes first."),
            Nudge(
                lambda value, right: tuple(value) == (3, -1), "These are the codes' numbers. Now the scale."
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == right[:1],
                "The first is correct. Code 0xA is 8 + 2: a minus, and the number of code 2.",
            ),
        ),
        nudge="Each half of the byte is a code. Look it up, and multiply it by the scale that 129 means.",
    ),
    Question(
        "ch22-q17",
        "Which experts did token 2 choose?",
        _experts_of_token,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value) == (4, 5),
                "These are token 2's choices. At which places of order are they?",
            ),
            Nudge(
                lambda value, right: tuple(value) == (3, 5),
                "These are the places of its choices in order. Which expert has place 3?",
            ),
            Nudge(
                lambda value, right: tuple(value) == right[::-1],
                "The best one is choice 2t, and the second best 2t + 1.",
            ),
            Nudge(
                lambda value, right: 1 in value,
                "Expert 1 begins at place 2 and ends at place 2.",
            ),
        ),
        nudge="Token t makes the choices 2t and 2t + 1. Find them in order, and then their places in start.",
    ),
    Question(
        "ch22-q18",
        "How many tokens are kept with P = 0.75 and with P = 0.8?",
        _kept,
        tuple,
        nudges=(
            Nudge(
                lambda value, right: tuple(value) == (1, 2),
                "The token that crosses the line is in, too.",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == (3,),
                "The sum before the third token is 0.75. Is that below 0.75?",
            ),
            Nudge(
                lambda value, right: tuple(value)[:1] == right[:1],
                "The first number is correct. With 0.8: which sums before a token are below it?",
            ),
        ),
        nudge="The sums before each token are 0, 0.5, 0.75 and 0.9. Which are below P?",
    ),
    Question(
        "ch22-q19",
        "How many tokens per second can it write at most, with one text and with 16?",
        _tokens_per_second,
        tuple,
        same=lambda value, right: (
            len(value) == 2 and all(abs(v / r - 1) < 0.01 for v, r in zip(value, right, strict=True))
        ),
        nudges=(
            Nudge(
                lambda value, right: abs(value[0] / right[0] - 2) < 0.01, "bfloat16 has two bytes per weight."
            ),
            Nudge(
                lambda value, right: abs(value[0] / right[0] - 0.5) < 0.01,
                "A weight is loaded once per token.",
            ),
            Nudge(
                lambda value, right: len(value) == 2 and value[0] == value[1],
                "A step of 16 texts loads the weights once, too. But how many tokens does it write?",
            ),
            Nudge(
                lambda value, right: abs(value[0] / right[0] - 1) < 0.01,
                "The first is correct. How often does a step of 16 texts load each weight?",
            ),
        ),
        nudge="A step loads each weight once. How many steps fit into a second?",
    ),
)
