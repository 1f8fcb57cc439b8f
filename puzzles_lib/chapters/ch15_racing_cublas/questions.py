"""The predictions of chapter 15."""

import math

import torch

from puzzles_lib.chapters.ch15_racing_cublas import versions
from puzzles_lib.chapters.ch15_racing_cublas.records import Record, bound_of, ladder_records
from puzzles_lib.chapters.ch15_racing_cublas.rung import CIN, COUT, ROWS, Rung
from puzzles_lib.inspector.occupancy import resident
from puzzles_lib.question import Nudge, Question
from puzzles_lib.timing.h200 import MULTIPROCESSORS
from puzzles_lib.timing.recorded import rows


def _flop_per_byte(more: int = 0) -> float:
    """Return the FLOP per byte that must be moved. more: bytes that needn't be, but are counted, too."""
    rows = ROWS[0]
    words, params = rows * CIN // 4, 4 * rows * CIN // 256
    return 2 * rows * COUT * CIN / (words + params + 2 * rows * COUT + 2 * COUT * CIN + more)


def _exponent() -> int:
    word = torch.tensor([1 << 6], dtype=torch.int16)  # code 1 in field 3
    return int(word.view(torch.bfloat16).double().log2())


def _seven_against_eight() -> float:
    """Return the speedup of rung 7 over rung 6: rounds, each as long as a part of K."""
    before, after = (_rounds(rung) / rung.splits for rung in (versions.by_tma, versions.filled))
    return before / after


def _waiting() -> float:
    return 1 - bound_of(_record(versions.first)).forecast_us / _times(versions.first.name)[0]["us"]


def _beyond_the_bound() -> float:
    return 1 - bound_of(_record(versions.first)).least_us / _times(versions.first.name)[0]["us"]


def _times(path: str) -> list[dict]:
    """Return the recorded rows of a version, the long K first."""
    found = [row for row in rows("ladder") if row["path"] == path]
    return sorted(found, key=lambda row: -row["us"])


def _times_unpacked() -> int:
    return COUT // versions.first.constants["BLOCK_M"]


def _record(rung: Rung) -> Record:
    """Return the record of a version: an answer is judged without waiting for a compiler."""
    return {record.name: record for record in ladder_records()}[rung.name]


def _rounds(rung: Rung) -> int:
    found = _record(rung).evidence
    places = MULTIPROCESSORS * resident(found.registers, found.shared, rung.options["num_warps"])
    return -(-math.prod(rung.grid()) // places)


def _most_parts() -> int:
    """Return the largest number of parts whose programs all find a slot at once."""
    found, rung = _record(versions.by_tma).evidence, versions.by_tma
    places = MULTIPROCESSORS * resident(found.registers, found.shared, rung.options["num_warps"])
    return places // (COUT // rung.constants["BLOCK_M"] * (CIN // rung.constants["BLOCK_N"]))


def _passed_on() -> int:
    return _record(versions.along_k).evidence.passed_on


def _tile_bytes() -> int:
    return 2 * versions.bigger.constants["BLOCK_K"] * versions.bigger.constants["BLOCK_N"]


def _most_expensive() -> str:
    """Return what costs rung 6 most time at the long K: issuing, time beyond the forecast, or empty slots."""
    limits = bound_of(_record(versions.by_tma))
    programs = math.prod(versions.by_tma.grid())
    busy = programs / (_rounds(versions.by_tma) * MULTIPROCESSORS)
    took = _times(versions.by_tma.name)[0]["us"]
    costs = {
        "issuing": limits.issue_us,
        "waits": took - limits.forecast_us,
        "slots": (1 - busy) * (took - limits.sums_us),
    }
    return max(costs, key=lambda name: costs[name])


def _share_of_sums(count: int = ROWS[1]) -> float:
    limits = bound_of(_record(versions.whole), count)
    return limits.sums_us / limits.forecast_us


def _falls() -> str:
    """Return what falls from rung 4 to rung 5, at the long K."""
    before, after = versions.subnormal, versions.one_dot
    forecast = bound_of(_record(after)).forecast_us < bound_of(_record(before)).forecast_us
    time = _times(after.name)[0]["us"] < _times(before.name)[0]["us"]
    return {(True, True): "both", (True, False): "forecast", (False, True): "time"}.get(
        (forecast, time), "neither"
    )


QUESTIONS = (
    Question(
        id="ch15-q1",
        asks="How many FLOP per byte does the fused product do, at K = 100864 (within 0.2%)?",
        right=_flop_per_byte,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.002,
        nudges=(
            Nudge(
                lambda v, r: abs(v / (r / 2) - 1) < 0.02,
                "A multiplication and an addition count as two FLOP. Do you have both?",
            ),
            Nudge(
                lambda v, r: r < v < 1.02 * r,
                "That's nearly it, but some bytes are missing: do you have scales, minima and dW?",
            ),
            Nudge(
                lambda v, r: abs(v / _flop_per_byte(2 * COUT * CIN) - 1) < 0.0005,
                "That's correct for a dW in float32. Here, dW is bfloat16.",
            ),
            Nudge(
                lambda v, r: any(
                    abs(v / _flop_per_byte(trips * 2 * ROWS[0] * CIN) - 1) < 0.02 for trips in (1, 2)
                ),
                "You counted x̂ in bfloat16. A fused kernel reads the words, and x̂ is never in memory.",
            ),
            Nudge(
                lambda v, r: abs(v / 768 - 1) < 0.02,
                "That's correct if only dy were moved. The kernel reads words, scales and minima, too, and "
                "writes dW.",
            ),
            Nudge(
                lambda v, r: v > 1.02 * r,
                "That's too many FLOP per byte, so you've left out some bytes. The kernel reads words, "
                "scales, minima and dy, and writes dW.",
            ),
            Nudge(
                lambda v, r: v < r,
                "That's too few FLOP per byte, so some of the bytes you counted aren't moved. The kernel "
                "reads words, scales, minima and dy, and writes dW.",
            ),
        ),
        nudge="Count dy (2 bytes per element), the words (a quarter of a byte per code), and scale and "
        "minimum (2 bytes each per group).",
    ),
    Question(
        id="ch15-q3",
        asks="Two bits in field 3, all others 0, read as a bfloat16, are code · 2^e. What is e?",
        right=_exponent,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == -133, "That's the exponent of field 0. Where is field 3?"),
            Nudge(
                lambda v, r: v == -130,
                "That would be bit 3. Fields are two bits wide. Where does field 3 begin?",
            ),
            Nudge(lambda v, r: v == -126, "That's bit 7, the upper bit of field 3. Code 1 is the lower one."),
            Nudge(lambda v, r: v == -r, "The number is very small. Which sign does its exponent have?"),
        ),
        nudge="Field 0 counts in steps of 2^-133, and each field further left is worth four times as much.",
    ),
    Question(
        id="ch15-q4",
        asks="If iterations were all that counts, how many times as fast as rung 6 is rung 7 (within 2%)?",
        right=_seven_against_eight,
        kind=float,
        same=lambda value, right: abs(value / right - 1) < 0.02,
        nudges=(
            Nudge(
                lambda v, r: v == 2,
                "One round instead of two is correct. With fewer parts, though, each part takes longer.",
            ),
            Nudge(
                lambda v, r: abs(v * r - 1) < 0.02,
                "That's the inverse: divide the time of rung 6 by the time of rung 7.",
            ),
            Nudge(
                lambda v, r: abs(v - 7 / 8) < 0.01 or abs(v - 8 / 7) < 0.01,
                "That compares the lengths of the parts. How many rounds does each launch take?",
            ),
            Nudge(
                lambda v, r: v < 1.2,
                "Rung 6 takes two rounds, because its last programs find no free slot at first. Did you "
                "count both?",
            ),
        ),
        nudge="Count the rounds of both launches. How long is a round? It takes as long as one part of K.",
    ),
    Question(
        id="ch15-q5",
        asks="How many times does rung 1 unpack each value of x̂, in all its programs together?",
        right=_times_unpacked,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 1,
                "One program unpacks it once. Which other programs need the same value, for other tiles?",
            ),
            Nudge(
                lambda v, r: v == r**2,
                "That's the number of tiles. Tiles that are next to each other along CIN need other columns "
                "of x̂.",
            ),
            Nudge(
                lambda v, r: v == 64,
                "64 is the length of a tile's side. How many such tiles are there along COUT?",
            ),
            Nudge(
                lambda v, r: v == 2 * r,
                "A value is needed for its own column of dW only. How many tiles are in that column?",
            ),
            Nudge(
                lambda v, r: v in (r * versions.first.splits, versions.first.splits),
                "The parts of K share no row of x̂, so they don't count here.",
            ),
        ),
        nudge="A value in column n of x̂ is needed for column n of dW. How many tiles contain parts of that "
        "column?",
    ),
    Question(
        id="ch15-q8",
        asks="How many bytes do threads exchange through shared memory in an iteration of rung 3?",
        right=_passed_on,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v == 16 * 256 or v == 16 * 128 * 2,
                "That's the size of the words. A copy brings them from memory to shared memory. Which bytes "
                "does one thread write there for another?",
            ),
        ),
        nudge="Which thread unpacks a value of x̂ here, and which thread hands it to the tensor cores?",
    ),
    Question(
        id="ch15-q12",
        asks="For what share of its time does rung 1 merely wait, at K = 100864 (within 0.02)?",
        right=_waiting,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.02,
        nudges=(
            Nudge(
                lambda v, r: min(abs(v + r - 1), abs(v - _beyond_the_bound())) < 0.02,
                "Is that the share in which it works, or the time beyond the bound? You need the time "
                "beyond the forecast.",
            ),
            Nudge(lambda v, r: not 0 < v < 1, "A share is a number from 0 to 1. Divide by the whole time."),
        ),
        nudge="Subtract the forecast from the measured time, then divide by the measured time.",
    ),
    Question(
        id="ch15-q13",
        asks='From rung 4 to rung 5, what falls at K = 100864: "forecast", "time", "both" or "neither"?',
        right=_falls,
        kind=str,
        nudges=(
            Nudge(
                lambda v, r: v in ("forecast", "both"),
                "A forecast adds up what is issued. Does rung 5 issue less than rung 4?",
            ),
            Nudge(
                lambda v, r: v == "neither",
                "What can the tensor cores do now while the threads unpack?",
            ),
        ),
        nudge="Answer with 'forecast', 'time', 'both' or 'neither'.",
    ),
    Question(
        id="ch15-q15",
        asks="Into how many parts should K be cut, so that no program of rung 7 waits for a slot and as few "
        "slots as possible stay empty?",
        right=_most_parts,
        kind=int,
        nudges=(
            Nudge(
                lambda v, r: v > r,
                "That makes more programs than slots, so some programs wait. Count the programs per part.",
            ),
            Nudge(
                lambda v, r: 0 < v < r,
                "No program waits, but more slots than necessary stay empty. Is there room for another part?",
            ),
        ),
        nudge="One part is 18 programs, and the GPU has 132 slots for them.",
    ),
    Question(
        id="ch15-q16",
        asks="How many bytes does one iteration's tile of x̂ in rung 2 take in bfloat16?",
        right=_tile_bytes,
        kind=int,
        nudges=(
            Nudge(lambda v, r: v == r // 2, "That's how many values it has. A bfloat16 takes 2 bytes."),
            Nudge(
                lambda v, r: v == 2 * 256 * 128,
                "256 × 128 is the tile of dW. The tile of x̂ has BLOCK_N columns, and how many rows?",
            ),
            Nudge(
                lambda v, r: v in (2 * 256 * 64, 2 * 32 * 64),
                "The tile of x̂ has BLOCK_K rows and BLOCK_N columns, as rung 2 is launched.",
            ),
        ),
        nudge="Multiply BLOCK_K rows by BLOCK_N columns by the bytes of a bfloat16.",
    ),
    Question(
        id="ch15-q17",
        asks='Which costs rung 6 most, at K = 100864: "issuing", "waits" or "slots"?',
        right=_most_expensive,
        kind=str,
        nudges=(
            Nudge(
                lambda v, r: v == "issuing",
                "2 · 197 iterations of 538 clocks at 1.98 GHz are 107 µs. Estimate the other two in the same "
                "way. If all slots were busy all the time, how long would the iterations take?",
            ),
            Nudge(
                lambda v, r: v == "waits",
                "The time beyond the forecast is 341.7 - 320.4 µs. Is there anything that costs more?",
            ),
        ),
        nudge='Answer with "issuing", "waits" or "slots".',
    ),
    Question(
        id="ch15-q18",
        asks="What share of rung 8's forecast is partial sums, at K = 8192 (within 0.02)?",
        right=_share_of_sums,
        kind=float,
        same=lambda value, right: abs(value - right) < 0.02,
        nudges=(
            Nudge(
                lambda v, r: not 0 < v < 1, "A share is a number from 0 to 1. Divide by the whole forecast."
            ),
            Nudge(
                lambda v, r: abs(v - _share_of_sums(ROWS[0])) < 0.02,
                "That's the share at the long K. The box has a forecast for the short K, too.",
            ),
            Nudge(
                lambda v, r: abs(v + r - 1) < 0.02,
                "That's the share of the iterations. The rest of the forecast is partial sums.",
            ),
        ),
        nudge="In the box, at K = 8192, the forecast is split into iterations and partial sums.",
    ),
)
