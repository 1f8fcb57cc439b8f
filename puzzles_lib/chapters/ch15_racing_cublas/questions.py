"""The predictions of chapter 15."""

import torch

from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.race import compile_rung, waves
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS
from puzzles_lib.question import Nudge, Question


def _flop_per_byte() -> float:
    rows = ROWS[0]
    words, params = rows * CIN // 4, 4 * rows * CIN // 256
    return 2 * rows * COUT * CIN / (words + params + 2 * rows * COUT + 2 * COUT * CIN)


def _reads_of_dy() -> tuple[int, int]:
    first, bigger = versions.first, versions.bigger
    return CIN // first.constants["BLOCK_N"], CIN // bigger.constants["BLOCK_N"]


def _exponent() -> int:
    word = torch.tensor([1 << 6], dtype=torch.int16)  # code 1 in field 3
    return int(word.view(torch.bfloat16).double().log2())


def _most_parts() -> int:
    by_tma = versions.by_tma  # rung 6, whose places the reader has before them
    programs, places = waves(by_tma, compile_rung(by_tma))
    return places // (programs // by_tma.splits)


QUESTIONS = (
    Question(
        id="ch15-q1",
        asks="FLOP for each byte that the fused product must move, at K = 100864 (within 2%)?",
        right=_flop_per_byte,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.02,
        nudges=(
            Nudge(lambda v, r: abs(v / (r / 2) - 1) < 0.02, "a multiplication and an addition are two"),
            Nudge(lambda v, r: v < r, "that counts bytes which the fused product does not move, such as x̂"),
        ),
        nudge="count dy (2 bytes), the words (a quarter of a byte a code), scale and minimum (2 bytes each)",
    ),
    Question(
        id="ch15-q2",
        asks="How many programs of one part of K load the same row of dy's tile, in rung 1 and in rung 2?",
        right=_reads_of_dy,
        kind=tuple,
        nudges=(
            Nudge(lambda v, r: v == tuple(reversed(r)), "in this order: rung 1, then rung 2"),
            Nudge(
                lambda v, r: len(v) == 2 and v[0] == r[0],
                "the first is right; the second has wider tiles along CIN",
            ),
        ),
        nudge="a tile of dW wants BLOCK_M columns of dy, and so does every other tile of its row",
    ),
    Question(
        id="ch15-q3",
        asks="Two bits in field 3, all others 0, read as a bfloat16, are code · 2^e: what is e?",
        right=_exponent,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -133, "that is field 0"),
            Nudge(lambda v, r: v == -r, "a very small number, so the exponent is negative"),
        ),
        nudge="field 0 counts in steps of 2^-133; each field further left is worth four times as much",
    ),
    Question(
        id="ch15-q4",
        asks="Into how many parts may K be cut at most, if all programs are to have a place at once?",
        right=_most_parts,
        kind=int,
        nudges=(Nudge(lambda v, r: v > r, "then there are more programs than places, and a second round"),),
        nudge="race says how many places there are; a part is one program for each tile",
    ),
)
