"""The predictions of chapter 15."""

import math

import torch

from puzzles_lib.bench.h200 import MULTIPROCESSORS
from puzzles_lib.bench.recorded import rows
from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.records import Record, bound_of, ladder_records
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS, Rung
from puzzles_lib.inspector.occupancy import resident
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


def _seven_against_eight() -> float:
    """Rung 7 against rung 6: rounds, each as long as a part of K."""
    before, after = (_rounds(rung) / rung.splits for rung in (versions.by_tma, versions.filled))
    return before / after


def _waiting() -> float:
    return 1 - bound_of(_record(versions.first)).forecast_us / _times(versions.first.name)[0]["us"]


def _times(path: str) -> list[dict]:
    """Of a version, as recorded, the long K first."""
    found = [row for row in rows("ladder") if row["path"] == path]
    return sorted(found, key=lambda row: -row["us"])


def _first_is_faster() -> bool:
    return _times(versions.first.name)[0]["ratio"] > 1


def _bigger_is_twice_as_fast() -> bool:
    return _times(versions.first.name)[0]["us"] >= 2 * _times(versions.bigger.name)[0]["us"]


def _record(rung: Rung) -> Record:
    """Of a version: nobody waits for a compiler to be told that an answer is right."""
    return {record.name: record for record in ladder_records()}[rung.name]


def _rounds(rung: Rung = versions.bigger) -> int:
    found = _record(rung).evidence
    places = MULTIPROCESSORS * resident(found.registers, found.shared, rung.options["num_warps"])
    return -(-math.prod(rung.grid()) // places)


def _passed_on() -> int:
    return _record(versions.along_k).evidence.passed_on


def _operand_registers() -> int:
    whole = versions.whole
    values = whole.constants["BLOCK_N"] * whole.constants["BLOCK_K"]
    return 2 * values // (4 * 32 * whole.options["num_warps"])


def _saved_clocks() -> int:
    """Clocks to issue that rung 8 saves in as many rows as it takes in a turn."""
    filled, whole = _record(versions.filled), _record(versions.whole)
    turns = whole.launch["BLOCK_K"] // filled.launch["BLOCK_K"]
    return round(turns * bound_of(filled).issue - bound_of(whole).issue)


def _gains_more() -> int:
    before, after = _times(versions.whole.name), _times(versions.in_pieces.name)
    gains = [b["us"] / a["us"] for b, a in zip(before, after, strict=True)]
    return dict(zip(gains, ROWS, strict=True))[max(gains)]


def _falls() -> str:
    """Beside rung 4, of rung 5, the long K."""
    before, after = versions.subnormal, versions.one_dot
    forecast = bound_of(_record(after)).forecast_us < bound_of(_record(before)).forecast_us
    time = _times(after.name)[0]["us"] < _times(before.name)[0]["us"]
    return {(True, True): "both", (True, False): "forecast", (False, True): "time"}.get(
        (forecast, time), "neither"
    )


QUESTIONS = (
    Question(
        id="ch15-q1",
        asks="FLOP for each byte that the fused product must move, at K = 100864 (within 2%)?",
        right=_flop_per_byte,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.02,
        nudges=(
            Nudge(lambda v, r: abs(v / (r / 2) - 1) < 0.02, "a multiplication and an addition are two"),
            Nudge(lambda v, r: v < r, "too few: does it move each of these bytes? x̂ itself is never written"),
        ),
        nudge="count dy (2 bytes), the words (a quarter of a byte a code), scale and minimum (2 bytes each)",
    ),
    Question(
        id="ch15-q2",
        asks="How many programs of one part of K load the same columns of dy, in rung 1 and in rung 2?",
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
        asks="If turns were all that counts, how many times as fast as rung 6 is rung 7 (within 2%)?",
        right=_seven_against_eight,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.02,
        nudges=(
            Nudge(lambda v, r: v == 2, "one round for two; but with fewer parts each takes longer"),
            Nudge(lambda v, r: abs(v * r - 1) < 0.02, "the other way round: the time of rung 6 by that of 7"),
            Nudge(lambda v, r: v < 1.2, "rung 6 takes two rounds: its last programs find no place at first"),
        ),
        nudge="count the rounds of both, and how long a round is: as long as a part of K",
    ),
    Question(
        id="ch15-q5",
        asks="Is rung 1 faster than dequantise + cuBLAS, at K = 100864? True or False.",
        right=_first_is_faster,
        kind=bool,
        nudge="so one might think; race it, and see what else there is to do than to move bytes",
    ),
    Question(
        id="ch15-q6",
        asks="Is rung 2 at least twice as fast as rung 1, at K = 100864? True or False.",
        right=_bigger_is_twice_as_fast,
        kind=bool,
        nudge="so one might think; race it, and read all of the box",
    ),
    Question(
        id="ch15-q7",
        asks="One program takes a time T. How many T does the launch of rung 2 take?",
        right=_rounds,
        kind=int,
        nudges=(Nudge(lambda v, r: v == 1, "there is no place for some of the programs at first"),),
        nudge="fill the places with programs; when they end, start those that are left",
    ),
    Question(
        id="ch15-q8",
        asks="How many bytes do threads pass on through shared memory in a turn of rung 3?",
        right=_passed_on,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16 * 256 or v == 16 * 128 * 2,
                "those are bytes of words; they come from memory through shared memory, not from a thread",
            ),
        ),
        nudge="who unpacks a value of x̂ here, and who hands it to the tensor cores?",
    ),
    Question(
        id="ch15-q9",
        asks="How many 32-bit registers of each thread take a turn's 128 x 128 values of x̂, with 8 warps?",
        right=_operand_registers,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == 2 * r, "a register holds two bfloat16"),
            Nudge(lambda v, r: v == 32 * r, "that is for each warp; it has 32 threads"),
        ),
        nudge="values, shared among 8 warps of 32 threads, two to a register",
    ),
    Question(
        id="ch15-q10",
        asks="Which K gains more by storing in pieces, as a share of its time: 100864 or 8192?",
        right=_gains_more,
        kind=int,
        nudges=(Nudge(lambda v, r: v not in ROWS, f"one of {ROWS[0]} and {ROWS[1]}"),),
        nudge="storing comes once, at the end; for which K is the end a larger share?",
    ),
    Question(
        id="ch15-q11",
        asks="How many clocks to issue does rung 8 save in 128 rows, against rung 7?",
        right=_saved_clocks,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v < 0, "a turn of rung 7 has half as many rows: it takes two of them"),
            Nudge(lambda v, r: v > r, "what is saved is less than what rung 7 takes in all"),
        ),
        nudge="both boxes say what a turn of the loop takes to issue, and how many rows a turn has",
    ),
    Question(
        id="ch15-q12",
        asks="What share of its time does rung 1 only wait, at K = 100864 (within 0.02)?",
        right=_waiting,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.02,
        nudges=(
            Nudge(lambda v, r: abs(v + r - 1) < 0.02, "that is the share in which it works, not waits"),
            Nudge(lambda v, r: abs(v - 0.51) < 0.02, "that is beyond the bound; it does not all overlap"),
            Nudge(lambda v, r: not 0 < v < 1, "a share: of the whole time, from 0 to 1"),
        ),
        nudge="the time less the forecast, by the time",
    ),
    Question(
        id="ch15-q13",
        asks='Beside rung 4, what falls with one dot a turn, at K = 100864: "forecast", "time", "both" or '
        '"neither"?',
        right=_falls,
        kind=str,
        nudges=(
            Nudge(
                lambda v, r: v in ("forecast", "both"), "a forecast counts what is issued: is that less here?"
            ),
            Nudge(lambda v, r: v == "neither", "in the picture: what do the tensor cores do meanwhile?"),
        ),
        nudge="one of 'forecast', 'time', 'both' and 'neither'",
    ),
)
